//! Tests with real members of etcd, started by the tests.

use std::sync::Arc;
use std::time::Duration;

use model::ErrorKind;
use tokio::time;

use super::*;
use crate::conformance::{self, Subject};
use relay::{Mode, Relay};
use servers::Servers;

mod certificates;
mod chaos;
mod moves;
mod relay;
mod security;
mod servers;
mod users;

/// Catalogues in one etcd, each in its own namespace below `test/`.
struct Namespaces<'a> {
    servers: &'a Servers,
    user: Option<EtcdUser>,
    given: std::sync::atomic::AtomicU32,
}

impl Subject for Namespaces<'_> {
    fn create_empty(&self) -> Pending<'_, Arc<dyn MetaStore>> {
        let number = self.given.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let config =
            EtcdConfig { namespace: format!("test/{number}"), user: self.user.clone(), ..self.servers.config() };
        Box::pin(async move { Ok(Arc::new(Etcd::new(&config)?) as Arc<dyn MetaStore>) })
    }

    fn forget<'a>(&'a self, _: &'a Arc<dyn MetaStore>, up_to: Revision) -> Pending<'a, ()> {
        Box::pin(self.servers.compact(up_to))
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_conforms() {
    let servers = Servers::start(3).await;
    conformance::run(&Namespaces { servers: &servers, user: None, given: 1.into() }).await;
    // Namespaces with a common prefix do not share keys.
    let read =
        |namespace: &str| Etcd::new(&EtcdConfig { namespace: namespace.to_owned(), ..servers.config() }).unwrap();
    assert!(read("test").read(Prefix::all()).await.unwrap().entries.is_empty());
    assert!(!read("test/1").read(Prefix::all()).await.unwrap().entries.is_empty());
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn value(store: &Etcd, text: &str) -> Option<String> {
    let state = store.get(vec![key(text)]).await.unwrap();
    state.entries.first().map(|(_, entry)| String::from_utf8(entry.value.to_vec()).unwrap())
}

fn is_done(written: Result<WriteOutcome>) -> bool {
    matches!(written.unwrap(), WriteOutcome::Done(_))
}

/// One member, a store that connects directly, and a store that connects first through a relay and then directly.
async fn with_relay() -> (Servers, Etcd, Relay, Etcd) {
    let servers = Servers::start(1).await;
    let direct = Etcd::new(&servers.config()).unwrap();
    let relay = Relay::start(servers.address(0)).await;
    let endpoints = vec![relay.url(), servers.urls()[0].clone()];
    let attempt = Duration::from_millis(500);
    let relayed = Etcd::new(&EtcdConfig { endpoints, attempt_timeout: attempt, ..servers.config() }).unwrap();
    // Gives it a lease, a marker and a connection.
    assert!(is_done(relayed.write(vec![], vec![KeyChange::put(key("first"), "1")]).await));
    // On a busy machine it may have switched to the direct address already.
    relayed.inner.cluster.current.store(0, std::sync::atomic::Ordering::SeqCst);
    (servers, direct, relay, relayed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_whose_answers_are_lost_takes_effect_once_and_succeeds() {
    let (_servers, direct, relay, relayed) = with_relay().await;
    let start = direct.read(Prefix::all()).await.unwrap().revision;
    relay.set_mode(Mode::DropAnswers);
    // The write has no expectation, so only its marker prevents a second effect.
    assert!(is_done(relayed.write(vec![], vec![KeyChange::put(key("x"), "1")]).await));
    assert!(relay.lost_answers() > 0, "no answer was lost");
    let mut watch = direct.watch(Prefix::all(), start).await.unwrap();
    let crate::WatchEvent::Changed(batch) = watch.next().await.unwrap() else { panic!("the history is known") };
    assert_eq!(batch.changes[0].key, key("x"));
    assert!(time::timeout(Duration::from_millis(100), watch.next()).await.is_err(), "the write took effect twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_write_does_not_take_effect_later() {
    let (_servers, direct, relay, relayed) = with_relay().await;
    assert!(is_done(direct.write(vec![], vec![KeyChange::put(key("x"), "other")]).await));
    relay.set_mode(Mode::HoldRequests);
    let expects = vec![Expect::absent(key("x"))];
    let written = relayed.write(expects, vec![KeyChange::put(key("y"), "1")]).await.unwrap();
    assert_eq!(written, WriteOutcome::Conflict);
    // The expectation of the delayed attempt holds when it arrives.
    assert!(is_done(direct.write(vec![], vec![KeyChange::remove(key("x"))]).await));
    assert!(relay.held_requests() > 0, "nothing was held back");
    relay.set_mode(Mode::Forward);
    relay.wait_answered().await;
    assert_eq!(value(&direct, "y").await, None);
    assert!(is_done(relayed.write(vec![], vec![KeyChange::put(key("z"), "1")]).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_without_an_answer_is_unknown_and_one_that_was_not_sent_is_unavailable() {
    let (servers, direct, relay, _) = with_relay().await;
    let (operation_timeout, attempt_timeout) = (Duration::from_secs(3), Duration::from_secs(1));
    let config = EtcdConfig { endpoints: vec![relay.url()], attempt_timeout, operation_timeout, ..servers.config() };
    relay.set_mode(Mode::Forward);
    let relayed = Etcd::new(&config).unwrap();
    assert!(is_done(relayed.write(vec![], vec![KeyChange::put(key("a"), "1")]).await));
    relay.set_mode(Mode::DropAnswers);
    let unknown = relayed.write(vec![], vec![KeyChange::put(key("b"), "1")]).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::Unknown, "{unknown}");
    assert_eq!(value(&direct, "b").await.as_deref(), Some("1"));
    let unavailable = relayed.read(Prefix::all()).await.unwrap_err();
    assert_eq!(unavailable.kind(), ErrorKind::Unavailable, "{unavailable}");
    drop(relay);
    let config = EtcdConfig { endpoints: vec!["http://127.0.0.1:1".to_owned()], ..config };
    let unreachable = Etcd::new(&config).unwrap();
    let unavailable = unreachable.write(vec![], vec![KeyChange::put(key("c"), "1")]).await.unwrap_err();
    assert_eq!(unavailable.kind(), ErrorKind::Unavailable, "{unavailable}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_markers_are_replaced() {
    let servers = Servers::start(1).await;
    let store = Etcd::new(&servers.config()).unwrap();
    assert!(is_done(store.write(vec![], vec![KeyChange::put(key("a"), "1")]).await));
    servers.revoke_all_leases().await;
    assert!(is_done(store.write(vec![], vec![KeyChange::put(key("a"), "2")]).await));
    assert_eq!(value(&store, "a").await.as_deref(), Some("2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_keys_in_the_namespace_are_named() {
    let servers = Servers::start(1).await;
    let store = Etcd::new(&servers.config()).unwrap();
    servers.put(b"mortar/k/a\nb").await;
    let error = store.read(Prefix::all()).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.message().contains("mortar/k/a"), "{error}");
    let mut watch = store.watch(Prefix::all(), Revision(1)).await.unwrap();
    for _ in 0..2 {
        assert_eq!(watch.next().await.unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
