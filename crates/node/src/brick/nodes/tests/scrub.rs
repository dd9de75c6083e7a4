//! A brick that scrubs itself, and puts right what was found.

use std::os::unix::fs::FileExt;
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
    let mut bytes = 0;
    for _ in 0..4 {
        bytes += before.step(&nodes).unwrap().unwrap();
    }
    before.save(&store);
    let mut after = crate::brick::background_scrub::Scrubber::open(&store).unwrap();
    assert_eq!(after.kept_text(), before.kept_text());
    let (mut left, mut all) = (0, 4);
    while let Some(portion) = after.step(&nodes).unwrap() {
        left += 1;
        bytes += portion;
    }
    assert!(bytes > 4096, "{bytes}: a page of the B-tree, and rows");
    assert_eq!(after.shown_bytes(), bytes, "each portion is counted");
    while before.step(&nodes).unwrap().is_some() {
        all += 1;
    }
    assert_eq!(left + 4, all, "no portion is read twice");
    assert_eq!(after.kept_text(), before.kept_text());
}

#[tokio::test]
async fn what_a_whole_scrub_finds_counts_from_then_on_also_for_a_round_that_is_running() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    write_wrong_rows(&store);
    let nodes = nodes_on(store.clone());
    let mut round = crate::brick::background_scrub::Scrubber::default();
    round.begin(5);
    while round.step(&nodes).unwrap().is_some() {}
    round.save(&store);
    let scrub = BackgroundScrub::open(&store, settings());
    assert!(scrub.health_problem().unwrap().contains("found 3 damaged"));
    scrub.report_whole(&store, 1, 0, Some("object 7".to_owned()));
    assert!(
        scrub.health_problem().unwrap().ends_with("found 1 damaged: `mortar scrub` lists them; the first is object 7")
    );
    scrub.report_whole(&store, 0, 0, None);
    assert_eq!(scrub.health_problem(), None);
    assert_eq!(BackgroundScrub::open(&store, settings()).health_problem(), None, "nor after a restart");
}

/// The damage that a round of the background scrub finds, and the first, in words.
fn damage_of_round(nodes: &Arc<Nodes>) -> (u64, String) {
    let mut scrubber = crate::brick::background_scrub::Scrubber::default();
    scrubber.begin(5);
    while scrubber.step(nodes).unwrap().is_some() {}
    scrubber.found_damage()
}

/// Damages each page of the B-tree in turn: inner pages, leaves, values of their own, the map of used pages, the header. Damage that makes rows
/// unreadable is counted once, and hides no problem of other rows.
#[tokio::test]
async fn brick_that_scrubs_itself_finds_damage_in_each_kind_of_page() {
    const PAGE: u64 = 4096;
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    // Rows of no logical node, so that only the pages are damaged. Some are too large for a leaf.
    for from in (0..1_500_u32).step_by(500) {
        let mut changes = RowChanges::new();
        for number in from..from + 500 {
            let len = if number % 50 == 0 { 20_000 } else { 300 };
            changes.put(&[b"~test".as_slice(), &number.to_be_bytes()].concat(), vec![number as u8; len].into());
        }
        store.commit_rows(changes).unwrap();
    }
    store.close().unwrap();
    let store = Store::open(dir.path(), Options::default()).unwrap();
    let nodes = nodes_on(store.clone());
    write_wrong_rows(&store);
    // No page moves from here on.
    store.install().unwrap();
    let undamaged = damage_of_round(&nodes);
    assert_eq!(undamaged.0, 3, "{undamaged:?}");
    let file = std::fs::File::options().read(true).write(true).open(dir.path().join("tree/rows")).unwrap();
    let pages = file.metadata().unwrap().len() / PAGE;
    let (mut damaged, mut without_rows) = (0, 0);
    for at in (0..pages).map(|page| page * PAGE) {
        let mut bytes = [0; 64];
        file.read_exact_at(&mut bytes, at).unwrap();
        file.write_all_at(&bytes.map(|byte| byte ^ 0x55), at).unwrap();
        let (found, first) = damage_of_round(&nodes);
        let whole = store.scrub(&()).unwrap();
        let in_tree = whole.damage.iter().filter(|damage| damage.what.contains("of tree/rows")).count() as u64;
        let problems = nodes.scrub(&()).unwrap().contradictions;
        assert_eq!(found, in_tree + problems, "byte {at}: {first}, {:?}", whole.damage);
        damaged += in_tree;
        without_rows += u64::from(first.contains("map of used pages"));
        file.write_all_at(&bytes, at).unwrap();
    }
    // The others are free, or of the older header.
    assert!(damaged > pages / 4 && without_rows >= 2, "{damaged} and {without_rows} of {pages}");
    assert_eq!(damage_of_round(&nodes), undamaged);
}

/// A logical node holds a transaction as committed, and the other participant has lost what it had prepared.
#[tokio::test]
async fn mixed_outcome_is_a_problem_until_it_is_given_up() {
    let nodes = nodes();
    let start = HlcTimestamp::at(nodes.time.now());
    let txn = TxnId { start, client: ClientId(1) };
    let written = Oid::new(ClassId::NONE, page(), 1);
    let writes = [(written, ObjectState::Absent)].into();
    let part = Part { writes, ..Part::default() };
    ask(&nodes, Request::Prepare { txn, participants: vec![NODE, OTHER], part });
    ask(&nodes, Request::Decide { txn, outcome: Outcome::Committed(start) });
    let problems = |nodes: &Arc<Nodes>| {
        nodes.handle_tasks(&mut Vec::new());
        let found = nodes.scrub(&()).unwrap();
        (!found.problems.is_empty()).then_some(found.problems)
    };
    let found = wait_for(|| problems(&nodes));
    let [mixed] = &found[..] else { panic!("{found:?}") };
    let expected =
        format!("transaction {txn:?} is committed at logical node {:x} and aborted at {:x}", NODE.0, OTHER.0);
    assert!(mixed.to_string().contains(&expected), "{mixed}");
    assert!(nodes.health_problem().unwrap().contains(&expected));
    let repair = |discards| nodes.repair_all(&found, discards).unwrap()[0].repair();
    assert_eq!(repair(false), wire::proto::ProblemRepair::Loses);
    assert_eq!(repair(true), wire::proto::ProblemRepair::Done);
    assert_eq!(repair(true), wire::proto::ProblemRepair::NotNeeded);
    assert!(problems(&nodes).is_none() && nodes.health_problem().is_none());
}
