use std::time::Duration;

use bytes::Bytes;
use model::ErrorKind;

use super::rows::MemoryRows;
use super::rows::{DurableCallback, RowChange};
use super::*;
use crate::conformance::{self, Subject};
use crate::{Key, limits};

/// Embedded catalogues. The last one is kept so that the suite can discard its history.
struct Subjects {
    open: fn() -> Result<Embedded>,
    last: Mutex<Option<Embedded>>,
}

impl Subject for Subjects {
    fn create_empty(&self) -> Pending<'_, Arc<dyn MetaStore>> {
        Box::pin(async {
            let store = (self.open)()?;
            *self.last.lock() = Some(store.clone());
            Ok(Arc::new(store) as Arc<dyn MetaStore>)
        })
    }

    fn forget<'a>(&'a self, _: &'a Arc<dyn MetaStore>, up_to: Revision) -> Pending<'a, ()> {
        self.last.lock().as_ref().unwrap().forget(up_to);
        Box::pin(async { Ok(()) })
    }

    fn shortest_ttl(&self) -> Duration {
        *limits::TTL.start()
    }
}

#[tokio::test]
async fn memory_conforms() {
    conformance::run(&Subjects { open: Embedded::in_memory, last: Mutex::default() }).await;
}

#[tokio::test]
async fn store_conforms() {
    let open = || {
        let directory = tempfile::tempdir().unwrap();
        // Unlinked while it is open, so nothing is left behind.
        Embedded::open(&Store::open(directory.path(), store::Options::default())?)
    };
    conformance::run(&Subjects { open, last: Mutex::default() }).await;
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn write(store: &Embedded, changes: Vec<KeyChange>) -> Revision {
    match store.write(vec![], changes).await.unwrap() {
        WriteOutcome::Done(revision) => revision,
        WriteOutcome::Conflict => panic!("a write without expectations conflicts"),
    }
}

#[tokio::test]
async fn catalogue_persists_when_its_store_is_reopened() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Store::open(directory.path(), store::Options::default()).unwrap();
    let store = open();
    let catalogue = Embedded::open(&store).unwrap();
    let session = catalogue.open_session(Duration::from_secs(600)).await.unwrap();
    write(&catalogue, vec![KeyChange::put(key("a"), "1"), KeyChange::attach(key("b"), "2", session.id)]).await;
    write(&catalogue, vec![KeyChange::put(key("a"), vec![7; limits::VALUE])]).await;
    let before = catalogue.read(Prefix::all()).await.unwrap();
    drop((catalogue, store));
    let again = Embedded::open(&open()).unwrap();
    assert_eq!(again.read(Prefix::all()).await.unwrap(), before);
    again.renew_session(session.id).await.unwrap();
}

#[tokio::test]
async fn restart_keeps_entries_revisions_and_renews_sessions() {
    let rows = MemoryRows::default();
    let store = Embedded::with_rows(Box::new(rows.clone())).unwrap();
    tokio::time::pause();
    let session = store.open_session(Duration::from_secs(10)).await.unwrap();
    let ended = store.open_session(Duration::from_secs(10)).await.unwrap();
    store.end_session(ended.id).await.unwrap();
    write(&store, vec![KeyChange::put(key("a"), "1"), KeyChange::put(key("b"), "1")]).await;
    write(&store, vec![KeyChange::attach(key("alive"), "1", session.id)]).await;
    let last = write(&store, vec![KeyChange::remove(key("a"))]).await;
    let before = store.read(Prefix::all()).await.unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    drop(store);

    let store = Embedded::with_rows(Box::new(rows)).unwrap();
    assert_eq!(store.read(Prefix::all()).await.unwrap(), before);
    assert_eq!(before.revision, last);
    assert_eq!(store.renew_session(ended.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    let mut old = store.watch(Prefix::all(), Revision(last.0 - 1)).await.unwrap();
    assert_eq!(old.next().await.unwrap(), WatchEvent::Compacted);
    let mut watch = store.watch(Prefix::all(), last).await.unwrap();
    let begin = Instant::now();
    let WatchEvent::Changed(batch) = watch.next().await.unwrap() else { panic!("the history is known") };
    assert_eq!(batch.changes[0].key, key("alive"));
    assert!(batch.revision > last);
    assert_eq!(begin.elapsed().as_secs(), 10);
    let next = store.open_session(Duration::from_secs(10)).await.unwrap();
    assert!(next.id > ended.id, "numbers of sessions are not reused");
}

#[tokio::test(start_paused = true)]
async fn sessions_do_not_expire_because_of_a_stall() {
    let store = Embedded::in_memory().unwrap();
    let session = store.open_session(Duration::from_secs(10)).await.unwrap();
    // Lets the session clock begin to wait.
    tokio::task::yield_now().await;
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::task::yield_now().await;
    store.renew_session(session.id).await.unwrap();
}

/// Rows whose writes can be made to fail, or to end later.
#[derive(Clone, Default)]
struct FlakyRows {
    rows: MemoryRows,
    fail: Arc<Mutex<bool>>,
    deferred: Arc<Mutex<Option<DeferredSubmits>>>,
}

type DeferredSubmits = Vec<(Vec<RowChange>, DurableCallback)>;

impl Rows for FlakyRows {
    fn load(&self, visit: &mut dyn FnMut(&[u8], Bytes) -> Result<()>) -> Result<()> {
        self.rows.load(visit)
    }

    fn submit(&self, changes: Vec<RowChange>, done: DurableCallback) {
        if *self.fail.lock() {
            return done(Err(Error::new(ErrorKind::Full, "the disk is full")));
        }
        if let Some(held) = &mut *self.deferred.lock() {
            return held.push((changes, done));
        }
        self.rows.submit(changes, done);
    }
}

impl FlakyRows {
    fn release(&self) {
        for (changes, done) in self.deferred.lock().take().unwrap_or_default() {
            self.rows.submit(changes, done);
        }
    }
}

#[tokio::test]
async fn write_that_cannot_be_made_durable_is_not_visible() {
    let rows = FlakyRows::default();
    let store = Embedded::with_rows(Box::new(rows.clone())).unwrap();
    let first = write(&store, vec![KeyChange::put(key("a"), "1")]).await;
    *rows.fail.lock() = true;
    let refused = store.write(vec![], vec![KeyChange::put(key("a"), "2")]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full);
    let state = store.read(Prefix::all()).await.unwrap();
    assert_eq!((state.revision, &state.entries[0].1.value[..]), (first, &b"1"[..]));
    *rows.fail.lock() = false;
    assert_eq!(write(&store, vec![KeyChange::put(key("a"), "3")]).await.0, first.0 + 1);
}

#[tokio::test]
async fn write_becomes_visible_when_durable_even_if_its_caller_is_dropped() {
    let rows = FlakyRows::default();
    let store = Embedded::with_rows(Box::new(rows.clone())).unwrap();
    let mut watch = store.watch(Prefix::all(), Revision(0)).await.unwrap();
    *rows.deferred.lock() = Some(Vec::new());
    let given_up =
        time::timeout(Duration::from_millis(20), store.write(vec![], vec![KeyChange::put(key("a"), "1")])).await;
    assert!(given_up.is_err());
    assert!(store.read(Prefix::all()).await.unwrap().entries.is_empty());
    rows.release();
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Changed(batch) if batch.revision == Revision(1)));
    assert_eq!(write(&store, vec![KeyChange::put(key("a"), "2")]).await, Revision(2));
}

#[tokio::test(start_paused = true)]
async fn end_of_a_session_is_repeated_until_it_is_durable() {
    let rows = FlakyRows::default();
    let store = Embedded::with_rows(Box::new(rows.clone())).unwrap();
    let session = store.open_session(Duration::from_secs(5)).await.unwrap();
    let last = write(&store, vec![KeyChange::attach(key("a"), "1", session.id)]).await;
    *rows.fail.lock() = true;
    time::sleep(Duration::from_secs(7)).await;
    assert_eq!(store.read(Prefix::all()).await.unwrap().entries.len(), 1);
    assert_eq!(store.renew_session(session.id).await.unwrap_err().kind(), ErrorKind::NotFound);
    *rows.fail.lock() = false;
    let mut watch = store.watch(Prefix::all(), last).await.unwrap();
    assert!(matches!(watch.next().await.unwrap(), WatchEvent::Changed(_)));
    assert!(store.read(Prefix::all()).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn keys_of_a_session_without_a_row_are_reported_as_damage() {
    let rows = MemoryRows::default();
    let store = Embedded::with_rows(Box::new(rows.clone())).unwrap();
    let session = store.open_session(Duration::from_secs(5)).await.unwrap();
    write(&store, vec![KeyChange::attach(key("a"), "1", session.id)]).await;
    rows.submit(vec![rows::session(session.id, None)], Box::new(|_| ()));
    let Err(error) = Embedded::with_rows(Box::new(rows)) else { panic!("a damaged catalogue opens") };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}
