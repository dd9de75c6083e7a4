use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use meta::catalog::{Parameters, ServerId, Storage};
use meta::{Embedded, MetaStore, Revision};
use model::{NodeId, Object, PageId, SpaceId};
use store::{Options, RowChanges};

use super::*;
use crate::brick::node_manager::DamagedNodes;
use crate::brick::node_usage::{DurableCounts, NodeUsage};
use crate::brick::page_rows;
use crate::cluster_view::ClusterView;
use crate::node_placement::BrickId;
use crate::server::Config;

const NODE: NodeId = NodeId(3);
/// Serves no logical node.
const NOTHING: Serving<'_> = Serving {
    served: &BTreeSet::new,
    durable_counts: &BTreeMap::new,
    damaged: &DamagedNodes::new,
    is_unique: &|_, _| false,
    mixed_outcomes: &|_| Vec::new(),
};

/// A store with some objects and one that is damaged.
fn store(count: u16) -> Store {
    let store = Store::in_memory(Options::default()).unwrap();
    let page = PageId { space: SpaceId(1), node: NODE, number: 1 };
    let mut rows = RowChanges::new();
    for slot in 0..count {
        rows.put(
            &page_rows::object_key(page, slot),
            page_rows::encode_object(&Object::blob(Bytes::from(vec![7; 1000]))),
        );
    }
    rows.put(&page_rows::object_key(page, count), "bad".into());
    store.commit_rows(rows).unwrap();
    store
}

fn work(before: JobPart) -> Work {
    Work { before, shared: Arc::default(), begun: Instant::now() }
}

#[test]
fn a_part_is_checked_in_two_steps_and_the_second_alone_finds_damaged_objects() {
    let store = store(40);
    let first = work(JobPart::default());
    let report = check(&store, &NOTHING, first.is_store_checked(), &first.shared).unwrap();
    assert_eq!((report.objects, report.damaged), (41, 1));
    let (place, progress) = first.state();
    assert_eq!((place.as_deref(), progress.found), (Some(OBJECTS), 0));
    let all = first.end(&report, &[]);
    assert_eq!((all.objects, all.found, all.findings.len(), all.done), (41, 1, 1, all.total));
    // Another process goes on behind the first step.
    let before = JobPart { place, progress, ..JobPart::default() };
    let second = work(before.clone());
    let report = check(&store, &NOTHING, second.is_store_checked(), &second.shared).unwrap();
    let all = second.end(&report, &[]);
    assert_eq!((all.objects, all.found, all.findings.len()), (41, 1, 1));
    assert!(all.done >= second.before.progress.done && second.shared.bytes.load(Ordering::Relaxed) == 0);
    // What the first step has found is found again with its objects, and is reported once.
    let mut third = work(before);
    third.before.progress.add_finding("content 1 is damaged");
    let report = check(&store, &NOTHING, third.is_store_checked(), &third.shared).unwrap();
    let all = third.end(&report, &[]);
    assert_eq!((all.objects, all.found, all.findings.len()), (41, 1, 1));
    assert!(third.shared.bytes.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_count_that_was_corrected_is_no_finding() {
    let counted = NodeUsage { objects: 2, bytes: 5 };
    let before = DurableCounts { opening: 1, batches: 0 };
    let miscount = Miscount { node: NODE, counted, found: NodeUsage::default(), before };
    let report = ScrubReport { miscounts: vec![miscount], ..ScrubReport::default() };
    let ended = work(JobPart::default()).end(&report, &[miscount]);
    assert_eq!((ended.found, ended.findings.len()), (0, 0));
    assert_eq!(ended.corrected, ["logical node 3 counts 2 objects of 5 bytes, and has 0 of 0 bytes"]);
}

#[test]
fn a_stopped_scrub_ends_in_each_step() {
    let store = store(2 * ROWS_BETWEEN_LOOKS as u16);
    for is_store_checked in [false, true] {
        let shared = Arc::new(Shared::default());
        assert!(check(&store, &NOTHING, is_store_checked, &shared).is_ok());
        shared.is_stopped.store(true, Ordering::Relaxed);
        let ended = check(&store, &NOTHING, is_store_checked, &shared);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn what_is_read_is_paid_for_once() {
    let pacer = Pacer::new(Arc::default());
    for bytes in [PIECE / 2, PIECE - 1, PIECE, PIECE + 1, PIECE / 2, 3 * PIECE] {
        assert_eq!(pacer.advance(bytes), ControlFlow::Continue(()));
    }
    assert_eq!(pacer.taken.get(), 3 * PIECE);
}

#[tokio::test]
async fn only_scrubs_that_run_are_worked_on() {
    let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
    let editor = CatalogEditor::new(catalogue.clone());
    editor.set_up(&Parameters::generate()).await.unwrap();
    let view = ClusterView::follow(catalogue.clone()).await.unwrap();
    let brick = editor.add_brick(&["127.0.0.1:1".to_owned()], Storage::Memory).await.unwrap().value.id;
    let session = catalogue.open_session(Duration::from_secs(3600)).await.unwrap().id;
    let start = editor.start_number().await.unwrap();
    editor.announce_brick(brick, start, session).await.unwrap();
    let store = Store::in_memory(Options::default()).unwrap();
    let nodes = Nodes::new(store, view.clone(), BrickId(brick.0), &Config::default(), None).unwrap();
    let worker = JobWorker { server: ServerId::Brick(brick), start };
    let next = async |revision: Revision| {
        view.wait_for_revision(revision).await.unwrap();
        next_scrub(&nodes, worker)
    };
    let parts = [brick.0].into();
    let evolution = JobKind::Evolve { space: SpaceId(1), classes: Vec::new() };
    let evolution = editor.begin_job(&evolution, &parts, None).await.unwrap();
    assert_eq!(next(evolution.revision).await, None);
    let scrub = editor.begin_job(&JobKind::Scrub, &parts, None).await.unwrap();
    assert_eq!(next(scrub.revision).await, Some(scrub.value.id));
    let cancelled = editor.cancel_job(scrub.value.id).await.unwrap();
    assert_eq!(next(cancelled.revision).await, None);
}
