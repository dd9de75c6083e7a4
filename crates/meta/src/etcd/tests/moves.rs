//! Catalogues that are moved to etcd and back.

use std::sync::atomic::{AtomicU64, Ordering};

use store::{Options, Store};

use super::*;
use crate::catalog::{Catalog, CatalogEditor, Follower, Parameters};
use crate::catalogue_move::{self, CatalogueCopy, MoveTarget, MoveTargetState, move_catalogue};
use crate::opening::ForcedPosition;
use crate::{Embedded, WatchEvent};

/// Spaces of a catalogue that needs several writes.
const SPACES: usize = 120;

fn no_progress(_: u64, _: u64) {}

async fn highest_position(of: &dyn MetaStore) -> ForcedPosition {
    Catalog::load(&of.read(Prefix::all()).await.unwrap()).forced_position().unwrap()
}

fn store() -> Store {
    Store::in_memory(Options::default()).unwrap()
}

async fn original() -> (Store, Embedded) {
    let store = store();
    let embedded = Embedded::open(&store).unwrap();
    let editor = CatalogEditor::new(Arc::new(embedded.clone()));
    editor.set_up(&Parameters::generate()).await.unwrap();
    editor.add_own_opening(7).await.unwrap();
    for number in 0..SPACES {
        embedded
            .write(vec![], vec![KeyChange::put(key(&format!("extra/{number}")), vec![7; 4096])])
            .await
            .map(drop)
            .unwrap();
    }
    (store, embedded)
}

/// What keeps its value, as keys and values.
async fn contents(of: &dyn MetaStore) -> Vec<(Key, bytes::Bytes)> {
    let state = of.read(Prefix::all()).await.unwrap();
    let lasting = state.entries.into_iter().filter(|(_, entry)| entry.session.is_none());
    let lasting = lasting.map(|(key, entry)| (key, entry.value));
    lasting.filter(|(key, _)| !["moved", "opening"].contains(&key.as_str())).collect()
}

async fn to_etcd(source: &dyn MetaStore, etcd: &Etcd) -> Result<CatalogueCopy> {
    move_catalogue(source, &MoveTarget::Etcd(etcd), "etcd", &no_progress, &no_progress).await
}

/// Opens the catalogue as a meta-server does, and follows it as a process that has seen `before`.
async fn serve(catalogue: Arc<dyn MetaStore>, before: ForcedPosition, user: &str) -> ForcedPosition {
    let editor = CatalogEditor::new(catalogue.clone());
    editor.set_up(&Parameters::generate()).await.unwrap();
    editor.add_own_opening(rand::random()).await.unwrap();
    let follower = Follower::start_after(catalogue.clone(), move || Some(before)).await.unwrap();
    let made = editor.create_user(user, Some("a long password"), &[]).await.unwrap();
    assert!(made.revision.0 > before.position);
    follower.wait_for_revision(made.revision).await.unwrap();
    highest_position(&*catalogue).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalogue_moves_to_etcd_and_back_and_is_followed() {
    let servers = Servers::start(1).await;
    let (_store, embedded) = original().await;
    let before = highest_position(&embedded).await;
    let first = Etcd::new(&servers.config()).unwrap();
    to_etcd(&embedded, &first).await.unwrap();
    assert_eq!(contents(&embedded).await, contents(&first).await);
    let etcd: Arc<dyn MetaStore> = Arc::new(Etcd::new(&servers.config()).unwrap());
    let at_etcd = serve(etcd.clone(), before, "ann").await;
    // Watches from before the copy have to read everything again.
    let mut watch = etcd.watch(Prefix::all(), Revision(before.position)).await.unwrap();
    assert_eq!(watch.next().await.unwrap(), WatchEvent::Compacted);
    // Back, while a meta-server on etcd still runs: it cannot write any more.
    let session = etcd.open_session(Duration::from_secs(60)).await.unwrap().id;
    assert!(is_done(
        etcd.write(vec![], vec![KeyChange::attach(key("alive/bricks/9"), "{\"start\":1}", session)]).await
    ));
    let back = store();
    let moved = move_catalogue(&*etcd, &MoveTarget::Embedded(&back), "DIR", &no_progress, &no_progress).await.unwrap();
    let refused = etcd.write(vec![], vec![KeyChange::put(key("late"), "1")]).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Denied && refused.message().contains("moved to DIR"), "{refused}");
    let embedded = Embedded::open(&back).unwrap();
    assert_eq!(contents(&embedded).await, contents(&*etcd).await);
    assert!(moved.revision.0 > at_etcd.position);
    let at_home = serve(Arc::new(embedded.clone()), at_etcd, "bob").await;
    // And once more, to another namespace of the same etcd, whose own revisions are far lower.
    let config = EtcdConfig { namespace: "second".to_owned(), ..servers.config() };
    to_etcd(&embedded, &Etcd::new(&config).unwrap()).await.unwrap();
    let last = serve(Arc::new(Etcd::new(&config).unwrap()), at_home, "eve").await;
    assert!(last.opening.number > at_home.opening.number && at_home.opening.number > at_etcd.opening.number);
    // For processes that saw the copy, the cancelled original is an older catalogue.
    catalogue_move::cancel(&*etcd).await.unwrap();
    assert!(is_done(etcd.write(vec![], vec![KeyChange::put(key("late"), "1")]).await));
    assert!(Follower::start_after(etcd, move || Some(at_home)).await.is_err());
}

/// A copy that fails is complete or not served, wherever it was interrupted, and goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_copy_is_not_served_and_goes_on() {
    let servers = Servers::start(1).await;
    let (_store, embedded) = original().await;
    let relay = Relay::start(servers.address(0)).await;
    let short = Duration::from_secs(2);
    let through = EtcdConfig { endpoints: vec![relay.url()], operation_timeout: short, ..servers.config() };
    let through = EtcdConfig { attempt_timeout: short, ..through };
    let copied = AtomicU64::new(0);
    // The link breaks when the first batch was copied.
    let on_copied = |_: u64, entries: u64| {
        copied.fetch_add(entries, Ordering::SeqCst);
        relay.set_mode(Mode::DropAnswers);
    };
    let etcd = Etcd::new(&through).unwrap();
    let broken = move_catalogue(&embedded, &MoveTarget::Etcd(&etcd), "etcd", &no_progress, &on_copied).await;
    assert!(broken.is_err() && copied.load(Ordering::SeqCst) > 0);
    let direct = || Etcd::new(&servers.config()).unwrap();
    assert_eq!(MoveTarget::Etcd(&direct()).state().await.unwrap(), MoveTargetState::Interrupted);
    for refused in [
        direct().read(Prefix::all()).await.map(drop),
        direct().write(vec![], vec![KeyChange::put(key("x"), "1")]).await.map(drop),
        direct().watch(Prefix::all(), Revision(0)).await.unwrap().next().await.map(drop),
    ] {
        let error = refused.expect_err("an incomplete copy is not served");
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains("incomplete copy"), "{error}");
    }
    let before = highest_position(&embedded).await;
    let copy = to_etcd(&embedded, &direct()).await.unwrap();
    assert_eq!(contents(&embedded).await, contents(&direct()).await);
    // Repeated after its end, it changes nothing.
    let revision = direct().read(Prefix::all()).await.unwrap().revision;
    assert_eq!(to_etcd(&embedded, &direct()).await.unwrap(), copy);
    assert_eq!(direct().read(Prefix::all()).await.unwrap().revision, revision);
    serve(Arc::new(direct()), before, "ann").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespace_in_use_is_refused_and_its_owner_refuses_a_copy() {
    let servers = Servers::start(1).await;
    let owner = Etcd::new(&servers.config()).unwrap();
    // It has read that the namespace has no record.
    assert!(owner.read(Prefix::all()).await.unwrap().entries.is_empty());
    let (_store, embedded) = original().await;
    to_etcd(&embedded, &Etcd::new(&servers.config()).unwrap()).await.unwrap();
    let refused = owner.write(vec![], vec![KeyChange::put(key("x"), "1")]).await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Denied && refused.message().contains("another catalogue"), "{refused}");
    let (_other, other) = original().await;
    let refused = to_etcd(&other, &Etcd::new(&servers.config()).unwrap()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
    let used = EtcdConfig { namespace: "used".to_owned(), ..servers.config() };
    let used = Etcd::new(&used).unwrap();
    assert!(is_done(used.write(vec![], vec![KeyChange::put(key("x"), "1")]).await));
    assert_eq!(to_etcd(&other, &used).await.unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(catalogue_move::known_move(&other).await.unwrap(), None);
}

/// Catalogues in namespaces that were filled by a copy, so that their revisions have an offset.
struct Copies<'a> {
    namespaces: Namespaces<'a>,
    last: parking_lot::Mutex<Option<Etcd>>,
}

impl Subject for Copies<'_> {
    fn create_empty(&self) -> Pending<'_, Arc<dyn MetaStore>> {
        Box::pin(async move {
            let number = self.namespaces.given.fetch_add(1, Ordering::Relaxed);
            let config = EtcdConfig { namespace: format!("copy/{number}"), ..self.namespaces.servers.config() };
            let empty = CatalogueCopy {
                entries: Vec::new(),
                openings: (key("opening"), "{}".into()),
                opening: crate::opening::Opening { number: 1, nonce: 1 },
                revision: Revision(1 << 40),
            };
            Etcd::new(&config)?.write_copy(&empty, &no_progress).await?;
            let store = Etcd::new(&config)?;
            store.write(vec![], vec![KeyChange::remove(key("opening"))]).await.map(drop)?;
            *self.last.lock() = Some(store.clone());
            Ok(Arc::new(store) as Arc<dyn MetaStore>)
        })
    }

    fn forget<'a>(&'a self, _: &'a Arc<dyn MetaStore>, up_to: Revision) -> Pending<'a, ()> {
        Box::pin(async move {
            let store = self.last.lock().clone().unwrap();
            let of_etcd = store.inner.origin().await.unwrap().of_etcd(up_to);
            self.namespaces.servers.compact(Revision(of_etcd.to_u64())).await
        })
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(2)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_conform() {
    let servers = Servers::start(1).await;
    let namespaces = Namespaces { servers: &servers, user: None, given: 1.into() };
    conformance::run(&Copies { namespaces, last: parking_lot::Mutex::default() }).await;
}
