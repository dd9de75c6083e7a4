//! A meta-server must do what everything that keeps the catalogue does, seen through the wire.

use std::sync::Arc;
use std::time::Duration;

use meta::conformance::{self, Subject};
use meta::opening::{self, ForcedPosition, Opening};
use meta::{Embedded, Expect, Key, KeyChange, MetaStore, Pending, Revision, WriteOutcome};
use parking_lot::Mutex;
use wire::handshake::Role;
use wire::transport::Address;

use super::*;
use crate::auth::ClusterCredentials;
use crate::openings::WitnessTable;
use crate::server::Server;

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

/// Serves a catalogue as it is.
async fn serve(store: Arc<dyn MetaStore>, config: Config) -> MetaServer {
    let (editor, follower) = (CatalogEditor::new(store.clone()), Follower::start(store.clone()).await.unwrap());
    let (ended, clock) = (watch::Sender::new(None), ProcessClock::of_catalogue());
    let role = MetaRole { store, editor, follower, ended, deduplicator: WriteDeduplicator::new(), clock };
    MetaServer { server: Server::start(role, config).await.unwrap() }
}

/// Each catalogue has a meta-server of its own.
#[derive(Default)]
struct Remotes {
    started: Mutex<Vec<RemoteAndServer>>,
}

/// A catalogue as it is seen from elsewhere, where it is, and what serves it.
type RemoteAndServer = (Arc<dyn MetaStore>, Embedded, MetaServer);

impl Subject for Remotes {
    fn create_empty(&self) -> Pending<'_, Arc<dyn MetaStore>> {
        Box::pin(async {
            let embedded = Embedded::in_memory()?;
            let server = serve(Arc::new(embedded.clone()), config()).await;
            let remote: Arc<dyn MetaStore> = Arc::new(RemoteMetaStore::new(server.addresses().to_vec())?);
            self.started.lock().push((remote.clone(), embedded, server));
            Ok(remote)
        })
    }

    fn forget<'a>(&'a self, store: &'a Arc<dyn MetaStore>, up_to: Revision) -> Pending<'a, ()> {
        Box::pin(async move {
            let known = self.started.lock();
            known.iter().find(|(remote, ..)| Arc::ptr_eq(remote, store)).unwrap().1.forget(up_to);
            Ok(())
        })
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_meta_server_keeps_the_catalogue_like_any_other() {
    conformance::run(&Remotes::default()).await;
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

#[tokio::test]
async fn a_remote_goes_on_when_the_meta_server_is_started_again() {
    let embedded = Arc::new(Embedded::in_memory().unwrap());
    let server = serve(embedded.clone(), config()).await;
    let listen: Vec<Address> = server.addresses().to_vec();
    let remote = RemoteMetaStore::new(listen.clone()).unwrap();
    let WriteOutcome::Done(first) = remote.write(vec![], vec![KeyChange::put(key("a"), "1")]).await.unwrap() else {
        panic!("nothing was expected")
    };
    let mut watch = MetaStore::watch(&remote, meta::Prefix::all(), first).await.unwrap();
    server.shutdown().await.unwrap();
    let writer = remote.clone();
    let changes = vec![KeyChange::put(key("a"), "2")];
    let writing = tokio::spawn(async move { writer.write(vec![Expect::at(key("a"), first)], changes).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _server = serve(embedded, Config { listen, ..config() }).await;
    assert!(matches!(writing.await.unwrap().unwrap(), WriteOutcome::Done(_)));
    match watch.next().await.unwrap() {
        meta::WatchEvent::Changed(batch) => assert_eq!(batch.changes[0].entry.as_ref().unwrap().value, "2"),
        meta::WatchEvent::Compacted => panic!("the history is known"),
    }
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_answer() {
    let server = serve(Arc::new(Embedded::in_memory().unwrap()), config()).await;
    // The listener is closed at once, so nothing listens at its address.
    let closed_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses = vec![closed_address.to_string().parse().unwrap(), server.addresses()[0].clone()];
    let remote = RemoteMetaStore::new(addresses).unwrap();
    assert!(remote.get(vec![key("a")]).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn a_write_whose_outcome_is_lost_with_its_run_is_unknown_unless_it_can_happen_once_only() {
    let (at, absent) = (Expect::at(key("a"), Revision(3)), Expect::absent(key("a")));
    let put = vec![KeyChange::put(key("a"), "1")];
    assert!(remote_meta_store::happens_once(std::slice::from_ref(&at), &put));
    assert!(!remote_meta_store::happens_once(&[], &put));
    assert!(!remote_meta_store::happens_once(&[absent], &put));
    assert!(!remote_meta_store::happens_once(&[at], &[KeyChange::put(key("b"), "1")]));
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_meta_server_end_within_the_caller_s_time_limit() {
    // Nothing listens on this port.
    let remote = RemoteMetaStore::new(vec!["127.0.0.1:1".parse().unwrap()]).unwrap();
    let (key, patience) = (Key::new("a").unwrap(), Duration::from_millis(700));
    let begun = tokio::time::Instant::now();
    let asked = call_timeout::with_timeout(patience, async {
        let read = remote.get(vec![key.clone()]).await.unwrap_err();
        // Both of them together have so long.
        let written = remote.write(Vec::new(), vec![KeyChange::put(key, "x")]).await.unwrap_err();
        [read, written]
    });
    for error in asked.await {
        assert_eq!(error.kind(), model::ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("no meta-server has answered"), "{error}");
    }
    assert!(begun.elapsed() <= patience, "{:?}", begun.elapsed());
}

/// What it saw is of another catalogue, which may be later than the one here (K2).
#[tokio::test]
async fn process_of_another_cluster_is_refused_before_what_it_saw_counts() {
    let embedded = Arc::new(Embedded::in_memory().unwrap());
    let server = MetaServer::start(embedded.clone(), config()).await.unwrap();
    let cluster = CatalogEditor::new(embedded).parameters().await.unwrap().cluster;
    let read_as = async |cluster: &str| {
        let witnesses = WitnessTable::new();
        witnesses.set_cluster(cluster.to_owned());
        let later = ForcedPosition { opening: Opening { number: 9, nonce: 9 }, position: 1 << 40 };
        witnesses.note(opening::Subject::Catalogue, later);
        let (addresses, credentials) = (server.addresses().to_vec(), ClusterCredentials::default());
        RemoteMetaStore::new_as_witness(addresses, credentials, Role::Brick, witnesses)?.get(vec![key("a")]).await
    };
    let refused = read_as("another").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(refused.message().contains(&cluster), "{refused}");
    assert!(server.server.role().ended.borrow().is_none());
    // One of this cluster ends it: the catalogue went back in time.
    read_as(&cluster).await.unwrap();
    assert!(server.ended().await.contains("went back"));
}
