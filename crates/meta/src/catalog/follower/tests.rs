use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::ErrorKind;
use parking_lot::Mutex;

use super::*;
use crate::catalog::{BrickId, CatalogEditor, JobKind, JobWorker, ServerId, SpaceOptions, StartNumber, Storage};
use crate::{Embedded, Expect, Key, KeyChange, MetaSession, MetaSessionId, MetaSnapshot, Pending, WriteOutcome};

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn with_brick(store: Arc<dyn MetaStore>) -> CatalogEditor {
    let editor = CatalogEditor::new(store);
    let brick = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value.id;
    let session = editor.store().open_session(Duration::from_secs(600)).await.unwrap().id;
    editor.announce_brick(brick, StartNumber(1), session).await.unwrap();
    editor
}

#[tokio::test]
async fn follower_shows_changes_and_catalogues_are_immutable() {
    let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
    let editor = with_brick(store.clone()).await;
    let follower = Follower::start(store).await.unwrap();
    let before = follower.catalog();
    assert_eq!(before.bricks().filter(|(_, alive)| alive.is_some()).count(), 1);
    let mut changed = follower.subscribe();
    let made = editor.create_space("main", SpaceOptions::default()).await.unwrap();
    let after = follower.wait_for_revision(made.revision).await.unwrap();
    assert_eq!(**after.space("main").unwrap(), made.value);
    assert!(before.space("main").is_none(), "a catalogue does not change");
    assert!(*changed.borrow_and_update() >= made.revision);
    assert!(follower.load().revision() >= made.revision);
    editor.create_user("first", Some("secret words"), &[]).await.unwrap();
    editor.create_user("ann", None, &[]).await.unwrap();
    let removed = editor.remove_user("ann").await.unwrap();
    assert!(follower.wait_for_revision(removed.revision).await.unwrap().user("ann").is_none());
}

#[test]
fn examples_of_the_documentation_form_a_catalogue() {
    let text = include_str!("../../../../../docs/catalogue.md");
    let examples = text.split("```\n").nth(1).unwrap().lines();
    let entries = examples.map(|line| {
        let (path, json) = line.split_once(' ').unwrap();
        let value = json.trim().to_owned().into();
        (key(path), crate::MetaEntry { value, revision: Revision(1), session: None })
    });
    let catalog = Catalog::load(&MetaSnapshot { revision: Revision(1), entries: entries.collect() });
    assert_eq!(catalog.invalid_entries().collect::<Vec<_>>(), []);
    let space = catalog.space("main").unwrap();
    assert_eq!(catalog.schema(space.id).classes().count(), 2);
    assert_eq!(catalog.placement_map().nodes().count(), 2);
    assert!(catalog.parameters().is_ok() && catalog.user("ann").is_some());
    let alive = catalog.bricks().filter(|(_, alive)| alive.is_some()).count() + catalog.peers().count();
    assert_eq!(alive, 2);
}

#[tokio::test]
pub(crate) async fn following_gives_the_same_as_reading() {
    let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
    let follower = Follower::start(store.clone()).await.unwrap();
    let editor = with_brick(store.clone()).await;
    editor.create_space("main", SpaceOptions::default()).await.unwrap();
    let definition = crate::catalog::ClassDefinition { name: "A".to_owned(), parent: None, fields: Vec::new() };
    editor.define("main", &[definition]).await.unwrap();
    editor.create_index("main", "i", "A", &[], false).await.unwrap_err();
    let job = editor.begin_job(&JobKind::Scrub, &[1, 2].into(), Some(5)).await.unwrap().value;
    let worker = JobWorker { server: ServerId::Brick(BrickId(1)), start: StartNumber(1) };
    editor.claim_job_part(job.id, 1, worker).await.unwrap();
    let last = editor.create_group("staff").await.unwrap();
    let followed = follower.wait_for_revision(last.revision).await.unwrap();
    let read = Catalog::load(&store.read(Prefix::all()).await.unwrap());
    assert_eq!(format!("{followed:?}"), format!("{read:?}"));
}

#[tokio::test]
async fn unreadable_entry_keeps_its_last_value() {
    let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
    let editor = with_brick(store.clone()).await;
    editor.create_space("main", SpaceOptions::default()).await.unwrap();
    let follower = Follower::start(store.clone()).await.unwrap();
    let put = |text: &'static str| {
        let store = store.clone();
        async move {
            match store.write(vec![], vec![KeyChange::put(key("spaces/main"), text)]).await.unwrap() {
                WriteOutcome::Done(revision) => revision,
                WriteOutcome::Conflict => panic!("a write without expectations conflicts"),
            }
        }
    };
    let broken = follower.wait_for_revision(put("{").await).await.unwrap();
    assert!(broken.space("main").is_some());
    assert_eq!(broken.invalid_entries().map(|(key, _)| key).collect::<Vec<_>>(), ["spaces/main"]);
    let error = editor.grant("main", crate::catalog::Grantee::User("x"), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let good = r#"{"id":1,"name":"main","first_node":1,"nodes":8,"storage":"memory","policy":"continue","newer":true}"#;
    let mended = follower.wait_for_revision(put(good).await).await.unwrap();
    assert_eq!(mended.invalid_entries().count(), 0);
    assert_eq!(mended.space("main").unwrap().storage, Storage::Memory);
}

/// A store whose watches can be made to fail, or to have lost the history.
struct FlakyStore {
    store: Embedded,
    compacted: AtomicBool,
    /// How the next watches fail.
    failures: Mutex<Vec<ErrorKind>>,
}

impl MetaStore for FlakyStore {
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot> {
        self.store.read(prefix)
    }

    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot> {
        self.store.get(keys)
    }

    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome> {
        self.store.write(expects, changes)
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
        if let Some(kind) = self.failures.lock().pop() {
            return Box::pin(async move { Err(Error::new(kind, "the watch fails")) });
        }
        if self.compacted.swap(false, Ordering::Relaxed) {
            return Box::pin(async { Ok(Box::new(CompactedWatch) as Box<dyn Watch>) });
        }
        self.store.watch(prefix, after)
    }

    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession> {
        self.store.open_session(ttl)
    }

    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        self.store.renew_session(session)
    }

    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        self.store.end_session(session)
    }
}

struct CompactedWatch;

impl Watch for CompactedWatch {
    fn next(&mut self) -> Pending<'_, WatchEvent> {
        Box::pin(async { Ok(WatchEvent::Compacted) })
    }
}

#[tokio::test(start_paused = true)]
async fn follower_continues_after_failures_and_compaction() {
    let store = Embedded::in_memory().unwrap();
    let flaky =
        FlakyStore { store, compacted: AtomicBool::new(true), failures: Mutex::new(vec![ErrorKind::Unavailable; 3]) };
    let flaky: Arc<dyn MetaStore> = Arc::new(flaky);
    let follower = Follower::start(flaky.clone()).await.unwrap();
    let editor = CatalogEditor::new(flaky);
    let first = editor.create_group("a").await.unwrap();
    assert_eq!(follower.wait_for_revision(first.revision).await.unwrap().groups().count(), 1);
    let second = editor.create_group("b").await.unwrap();
    assert_eq!(follower.wait_for_revision(second.revision).await.unwrap().groups().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn problem_ends_when_the_store_permits_again_what_it_refused() {
    let (store, failures) = (Embedded::in_memory().unwrap(), Mutex::new(vec![ErrorKind::Denied; 2]));
    let flaky = FlakyStore { store, compacted: AtomicBool::new(false), failures };
    let follower = Follower::start(Arc::new(flaky)).await.unwrap();
    time::sleep(RETRY_PAUSE / 2).await;
    assert!(follower.problem().is_some_and(|why| why.contains("the watch fails")));
    time::sleep(2 * RETRY_PAUSE).await;
    assert_eq!(follower.problem(), None, "although nothing was changed");
}

/// A copy of a catalogue in memory.
async fn copy(store: &dyn MetaStore) -> Arc<dyn MetaStore> {
    let copy = Embedded::in_memory().unwrap();
    for (key, entry) in store.read(Prefix::all()).await.unwrap().entries {
        let _ = copy.write(Vec::new(), vec![KeyChange::put(key, entry.value)]).await.unwrap();
    }
    Arc::new(copy)
}

#[tokio::test]
pub(crate) async fn older_catalogue_is_not_followed() {
    let editor = CatalogEditor::new(Arc::new(Embedded::in_memory().unwrap()));
    editor.add_own_opening(1).await.unwrap();
    let older = copy(&**editor.store()).await;
    for _ in 0..5 {
        editor.start_number().await.unwrap();
    }
    let follower = Follower::start(editor.store().clone()).await.unwrap();
    let seen = follower.catalog().forced_position();
    assert_eq!(seen.unwrap().position, follower.catalog().revision().0);
    let again = Follower::start_after(editor.store().clone(), move || seen).await.unwrap();
    assert_eq!(again.problem(), None);
    let refused = |store: Arc<dyn MetaStore>| async move {
        let refused = Follower::start_after(store, move || seen).await.map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);
        assert!(refused.message().contains("went back in time"), "{refused}");
    };
    refused(older.clone()).await;
    // It is opened and written until its revision is as high.
    let other = CatalogEditor::new(older.clone());
    other.add_own_opening(2).await.unwrap();
    for _ in 0..20 {
        other.start_number().await.unwrap();
    }
    refused(older.clone()).await;
    refused(Arc::new(Embedded::in_memory().unwrap())).await;
    // The loss is accepted.
    other.accept_own_loss().await.unwrap();
    Follower::start_after(older, move || seen).await.unwrap();
}

#[tokio::test]
async fn counters_are_raised_and_never_lowered() {
    let editor = CatalogEditor::new(Arc::new(Embedded::in_memory().unwrap()));
    editor.take_numbers("spaces", 4).await.unwrap();
    let seen = [("spaces", 3), ("bricks", 9), ("map", 7)].map(|(name, next)| (name.to_owned(), next));
    assert_eq!(editor.raise_counters(&seen.into()).await.unwrap(), ["bricks", "map"]);
    assert_eq!(editor.take_numbers("bricks", 1).await.unwrap().start, 9);
    assert_eq!(editor.take_numbers("spaces", 1).await.unwrap().start, 5);
    let catalog = Catalog::load(&editor.store().read(Prefix::all()).await.unwrap());
    assert_eq!(catalog.counters().get("bricks"), Some(&10));
    assert_eq!(catalog.placement_map().epoch().0, 7);
}
