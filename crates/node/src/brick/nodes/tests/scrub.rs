//! A brick that scrubs itself, and puts right what was found.

use std::time::Duration;

use store::{RowChanges, Store};

use super::*;
use crate::brick::background_scrub::{BackgroundScrub, ScrubSettings};
use crate::brick::page_rows as rows;

fn page() -> PageId {
    PageId { space: SpaceId(1), node: NODE, number: 7 }
}

/// An object that is in no extent, in a page that was not reserved and has no head.
fn write_wrong_rows(store: &Store) {
    let mut changes = RowChanges::new();
    let object = Object::record(ClassId(5), model::RecordBuilder::new().build().unwrap());
    changes.put(&rows::object_key(page(), 1), rows::encode_object(&object));
    store.commit_rows(changes).unwrap();
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3_000 {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it does not come");
}

fn settings() -> ScrubSettings {
    ScrubSettings { mib_s: 100, delay: Duration::ZERO, ..ScrubSettings::default() }
}

#[tokio::test]
async fn brick_scrubs_itself_and_reports_what_it_finds_until_a_scrub_finds_it_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    write_wrong_rows(&store);
    let nodes = nodes_on(store.clone());
    let scrub = BackgroundScrub::open(&store, settings());
    assert_eq!(scrub.health_problem(), None);
    let ended = |scrub: &BackgroundScrub| {
        let value = |name: &str| scrub.metrics().iter().find(|metric| metric.name == name).unwrap().value;
        (value("scrub_running") == 0 && value("scrub_ended_seconds") > 0).then(|| value("scrub_damage"))
    };
    let running = scrub.start(&nodes);
    assert_eq!(wait_for(|| ended(&scrub)), 3, "{:?}", scrub.health_problem());
    drop(running);
    let problem = scrub.health_problem().unwrap();
    assert!(problem.contains("mortar scrub"), "{problem}");
    let reopened = BackgroundScrub::open(&store, settings());
    assert_eq!(reopened.health_problem(), Some(problem), "it is known after a restart");
    // A whole scrub finds the same, and what can be put right is.
    let found = nodes.scrub(&()).unwrap();
    assert_eq!(found.contradictions, 3, "{:?}", found.problems);
    let repaired = nodes.repair_all(&found.problems, false).unwrap();
    let outcomes: Vec<(&str, i32)> = repaired.iter().map(|one| (one.kind.as_str(), one.repair)).collect();
    let (done, impossible) = (wire::proto::ProblemRepair::Done.into(), wire::proto::ProblemRepair::Impossible.into());
    let expected = [("head_missing", impossible), ("page_not_reserved", done), ("extent_missing", done)];
    assert_eq!(outcomes, expected);
    let left = nodes.scrub(&()).unwrap();
    assert_eq!(left.problems.iter().map(|one| one.problem.kind()).collect::<Vec<_>>(), ["head_missing"]);
    assert!(nodes.with_driver(NODE, |driver| driver.next_page(SpaceId(1))).unwrap() > 7, "the page is not given out");
}

#[tokio::test]
async fn scrub_that_is_stopped_continues_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    write_wrong_rows(&store);
    let nodes = nodes_on(store.clone());
    let mut before = crate::brick::background_scrub::Scrubber::default();
    before.begin(5);
    for _ in 0..4 {
        assert!(before.step(&nodes).unwrap().is_some());
    }
    before.save(&store);
    let mut after = crate::brick::background_scrub::Scrubber::open(&store).unwrap();
    assert_eq!(after.kept(), before.kept());
    let (mut left, mut all) = (0, 4);
    while after.step(&nodes).unwrap().is_some() {
        left += 1;
    }
    while before.step(&nodes).unwrap().is_some() {
        all += 1;
    }
    assert_eq!(left + 4, all, "no portion is read twice");
    assert_eq!(after.kept(), before.kept());
}
