use std::sync::Arc;
use std::time::Duration;

use store::Options;

use super::*;
use crate::catalog::{
    Catalog, CatalogEditor, Follower, Parameters, SpaceOptions, StartNumber, Storage, check_went_back,
};
use crate::opening::ForcedPosition;

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
}

fn no_progress(_: u64, _: u64) {}

/// A catalogue in a store, as a meta-server that has ended left it: with a brick that is alive, a space, and an opening.
async fn original() -> (Store, Embedded) {
    let store = Store::in_memory(Options::default()).unwrap();
    let embedded = Embedded::open(&store).unwrap();
    let editor = CatalogEditor::new(Arc::new(embedded.clone()));
    editor.set_up(&Parameters::generate()).await.unwrap();
    editor.add_own_opening(7).await.unwrap();
    let brick = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value.id;
    let session = embedded.open_session(Duration::from_secs(600)).await.unwrap().id;
    editor.announce_brick(brick, StartNumber(1), session).await.unwrap();
    editor.create_space("main", SpaceOptions::default()).await.unwrap();
    // More revisions than entries.
    for number in 0..64 {
        let put = KeyChange::put(Key::new("extra").unwrap(), number.to_string());
        assert!(matches!(embedded.write(vec![], vec![put]).await.unwrap(), WriteOutcome::Done(_)));
    }
    (store, embedded)
}

/// The highest position that a process sees of a catalogue.
async fn highest_position(of: &Embedded) -> ForcedPosition {
    Catalog::load(&of.read(Prefix::all()).await.unwrap()).forced_position().unwrap()
}

async fn move_to(source: &Embedded, target: &Store) -> CatalogueCopy {
    let target = MoveTarget::Embedded(target);
    move_catalogue(source, &target, "elsewhere", &no_progress, &no_progress).await.unwrap()
}

/// A moved catalogue: the original, its copy, and what a process saw of the original.
async fn moved_catalogue() -> (Embedded, Embedded, ForcedPosition) {
    let (_store, original) = original().await;
    let seen = highest_position(&original).await;
    let target = Store::in_memory(Options::default()).unwrap();
    move_to(&original, &target).await;
    (original, Embedded::open(&target).unwrap(), seen)
}

pub(crate) fn copy_has_everything_but_sessions() {
    run(async {
        let (original, copy, _) = moved_catalogue().await;
        let (before, after) = (original.read(Prefix::all()).await.unwrap(), copy.read(Prefix::all()).await.unwrap());
        assert!(after.entries.iter().all(|(_, entry)| entry.session.is_none()));
        let is_same = |(key, entry): &&(Key, MetaEntry)| after.entry(key).is_some_and(|copy| copy == entry);
        let lacking = before.entries.iter().filter(|one| !is_same(one)).map(|(key, _)| key.as_str());
        assert_eq!(lacking.collect::<Vec<_>>(), ["alive/bricks/1", "moved", "opening"]);
        assert!(after.entry(&seal_key().unwrap()).is_none());
        // No session of the original is one of the copy.
        let session = copy.open_session(Duration::from_secs(60)).await.unwrap().id;
        assert!(original.renew_session(session).await.is_err());
    });
}

pub(crate) fn process_that_followed_the_original_follows_the_copy() {
    run(async {
        let (_, copy, seen) = moved_catalogue().await;
        let editor = CatalogEditor::new(Arc::new(copy.clone()));
        editor.add_own_opening(8).await.unwrap();
        let follower = Follower::start_after(Arc::new(copy.clone()), move || Some(seen)).await.unwrap();
        assert!(follower.catalog().space("main").is_some());
        let made = editor.create_user("ann", Some("a long password"), &[]).await.unwrap();
        assert!(made.revision.0 > seen.position);
        let next = follower.catalog().counters().clone();
        assert_eq!((next["bricks"], next["spaces"]), (2, 2), "numbers continue");
        follower.wait_for_revision(made.revision).await.unwrap();
        // A watch from the original's last revision reads again: it would miss the removal of sessions.
        let mut watch = copy.watch(Prefix::all(), Revision(seen.position)).await.unwrap();
        assert_eq!(watch.next().await.unwrap(), crate::WatchEvent::Compacted);
    });
}

pub(crate) fn original_is_not_believed_after_its_copy() {
    run(async {
        let (original, copy, before) = moved_catalogue().await;
        let of_copy = highest_position(&copy).await;
        assert!(of_copy.opening.number > before.opening.number);
        // The move is cancelled although the copy is in use.
        cancel(&original).await.unwrap();
        let editor = CatalogEditor::new(Arc::new(original.clone()));
        let history = editor.add_own_opening(9).await.unwrap();
        let checked = check_went_back(&history.value, history.revision, of_copy, "a process saw it");
        assert_eq!(checked.unwrap_err().kind(), ErrorKind::Denied);
    });
}

pub(crate) fn moved_catalogue_refuses_writes_until_the_move_is_cancelled() {
    run(async {
        let (_store, original) = original().await;
        let editor = CatalogEditor::new(Arc::new(original.clone()));
        seal(&original, "elsewhere").await.unwrap();
        for refused in [
            editor.create_space("late", SpaceOptions::default()).await.map(drop).map_err(Error::from),
            editor.add_own_opening(8).await.map(drop).map_err(Error::from),
            original.write(vec![], vec![KeyChange::put(Key::new("x").unwrap(), "1")]).await.map(drop),
            original
                .write(vec![], vec![KeyChange::remove(seal_key().unwrap()), KeyChange::put(Key::new("x").unwrap(), "")])
                .await
                .map(drop),
        ] {
            let error = refused.expect_err("the catalogue is sealed");
            assert!(error.kind() == ErrorKind::Denied && error.message().contains("moved to elsewhere"), "{error}");
        }
        cancel(&original).await.unwrap();
        editor.create_space("late", SpaceOptions::default()).await.unwrap();
        assert_eq!(cancel(&original).await.unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn catalogue_is_moved_whole_and_followed() {
    copy_has_everything_but_sessions();
    process_that_followed_the_original_follows_the_copy();
    original_is_not_believed_after_its_copy();
    moved_catalogue_refuses_writes_until_the_move_is_cancelled();
}

#[tokio::test]
async fn interrupted_move_goes_on_and_a_target_in_use_is_refused() {
    let (_store, original) = original().await;
    // Interrupted after the seal.
    let begun = seal(&original, "elsewhere").await.unwrap();
    assert_eq!(seal(&original, "another").await.unwrap_err().kind(), ErrorKind::Conflict);
    let target = Store::in_memory(Options::default()).unwrap();
    let copy = move_to(&original, &target).await;
    assert_eq!(copy.opening, begun.opening);
    // Repeated after its end.
    assert_eq!(move_to(&original, &target).await, copy);
    // A target with another catalogue.
    let (other, _) = self::original().await;
    let to_other = MoveTarget::Embedded(&other);
    let refused = move_catalogue(&original, &to_other, "elsewhere", &no_progress, &no_progress).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
    // Which does not seal the original.
    let (_store, fresh) = self::original().await;
    assert!(move_catalogue(&fresh, &to_other, "elsewhere", &no_progress, &no_progress).await.is_err());
    assert_eq!(known_move(&fresh).await.unwrap(), None);
    // Nothing to move.
    let empty = Embedded::in_memory().unwrap();
    assert_eq!(seal(&empty, "elsewhere").await.unwrap_err().kind(), ErrorKind::NotFound);
}
