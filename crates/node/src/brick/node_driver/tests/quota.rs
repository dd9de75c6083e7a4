//! A logical node takes in nothing that exceeds the quota of its space.

use std::sync::Mutex;

use meta::catalog::Quota;
use model::planted_bug::assert_noticed;
use model::{ContentId, ContentOp, ContentPatch, ContentRef};

use super::*;
use crate::brick::quota::{SharedQuota, SpaceQuota};

fn shared_quota(max_bytes: Option<u64>, max_objects: Option<u64>) -> SharedQuota {
    Arc::new(Mutex::new(SpaceQuota::new("main", Quota { max_bytes, max_objects }, [NODE].into_iter())))
}

fn with_quota(max_bytes: Option<u64>, max_objects: Option<u64>) -> World {
    let mut world = World::with_index();
    world.driver.set_quota(Some(shared_quota(max_bytes, max_objects)));
    world
}

fn blob(slot: u16) -> Oid {
    oid(ClassId::NONE, slot)
}

fn bytes(count: usize) -> ObjectState<Object> {
    ObjectState::Value(Object::blob(vec![7; count].into()))
}

fn is_committed(world: &mut World, oid: Oid, content: ObjectState<Object>) -> bool {
    let answer = world.commit(&[], oid, content);
    matches!(answer, Answer::Ended { outcome: Outcome::Committed(_), .. })
}

/// Stages a content in pieces; fails as the piece that exceeds the quota does.
fn stage(world: &mut World, size: usize) -> Result<ContentId> {
    let upload = world.store.begin_upload().unwrap();
    let id = world.driver.begin_upload(SPACE, upload, world.now);
    for end in 1..=size {
        world.driver.receive_upload(id, world.now).unwrap();
        if let Err(error) = world.driver.extend_upload(id, end as u64) {
            world.driver.abort_upload(id, world.now);
            world.carry_out();
            return Err(error);
        }
        world.store.upload(upload, vec![7].into()).unwrap();
    }
    let size = world.store.seal_upload(upload).unwrap();
    let rows = world.driver.finish_upload(id, size, world.now).unwrap();
    world.store.commit_rows(rows).unwrap();
    world.driver.complete_upload(id, true, world.now);
    Ok(id)
}

fn refers_to(id: ContentId, size: u64) -> ObjectState<Object> {
    ObjectState::Value(Object::blob_with_content(ContentRef { id, size, generation: 0 }))
}

#[test]
fn commits_beyond_the_bytes_of_a_quota_are_refused() {
    let mut world = with_quota(Some(100), None);
    assert!(is_committed(&mut world, blob(1), bytes(60)));
    assert!(!is_committed(&mut world, blob(2), bytes(41)));
    assert!(is_committed(&mut world, blob(2), bytes(40)));
    assert!(!is_committed(&mut world, blob(1), bytes(61)), "a larger object in the place of one");
    let append = ContentPatch::new(vec![ContentOp::Append { data: "x".into() }]);
    assert!(!is_committed(&mut world, blob(1), ObjectState::Changed(append.encode())));
    assert!(is_committed(&mut world, blob(1), bytes(60)) && is_committed(&mut world, blob(1), bytes(1)));
    assert!(is_committed(&mut world, blob(3), bytes(59)));
    world.check_usage();
}

#[test]
fn commits_beyond_the_objects_of_a_quota_are_refused() {
    let mut world = with_quota(None, Some(2));
    assert!((1..=2).all(|slot| is_committed(&mut world, blob(slot), bytes(1))));
    assert!(!is_committed(&mut world, blob(3), bytes(1)));
    assert!(is_committed(&mut world, blob(2), bytes(100)));
    assert!(is_committed(&mut world, blob(2), ObjectState::Absent));
    assert!(is_committed(&mut world, blob(3), bytes(1)));
}

#[test]
fn deletions_work_beyond_a_quota_that_was_set_later() {
    let mut world = with_quota(None, None);
    assert!((1..=3).all(|slot| is_committed(&mut world, blob(slot), bytes(10))));
    world.driver.set_quota(Some(shared_quota(Some(5), Some(1))));
    assert!(is_committed(&mut world, blob(1), ObjectState::Absent) && is_committed(&mut world, blob(2), bytes(9)));
    assert!(!is_committed(&mut world, blob(2), bytes(10)) && !is_committed(&mut world, blob(1), bytes(0)));
    world.driver.set_quota(None);
    assert!(is_committed(&mut world, blob(1), bytes(1000)));
}

fn check_prepared_growth_counts() {
    let mut world = with_quota(None, Some(1));
    world.begin(Vec::new(), [(blob(1), bytes(1))].into(), false);
    world.answer_all();
    assert!(!is_committed(&mut world, blob(2), bytes(1)), "the other one may be committed");
    world.decide(false);
    assert!(is_committed(&mut world, blob(2), bytes(1)));
}

#[test]
fn prepared_transactions_count() {
    check_prepared_growth_counts();
    assert_noticed(&[Bug::PreparedGrowthForgotten], check_prepared_growth_counts);
}

/// Another transaction may come between the parts of a joint request and the messages in their place.
#[test]
fn a_transaction_is_not_refused_for_the_reason_of_another_one() {
    let mut world = with_quota(None, Some(1));
    assert!(is_committed(&mut world, blob(1), bytes(1)));
    let part = Part { writes: [(blob(2), bytes(1))].into(), ..Part::default() };
    let participants = vec![NODE, NodeId(8)];
    let mut beyond = Request::Prepare { txn: world.next_txn(), participants, part };
    assert!(world.driver.begin_one_phase(&mut beyond).is_none());
    world.driver.cancel_one_phase();
    assert!(is_committed(&mut world, blob(1), bytes(2)));
}

#[test]
fn prepared_transactions_count_after_a_restart() {
    let mut world = with_quota(Some(15), None);
    assert!(is_committed(&mut world, blob(1), bytes(5)));
    world.begin(Vec::new(), [(blob(1), bytes(10))].into(), false);
    world.answer_all();
    let mut world = world.reopen();
    world.driver.set_quota(Some(shared_quota(Some(15), None)));
    assert_eq!(world.driver.pending_usage(), NodeUsage { objects: 0, bytes: 5 });
    assert!(!is_committed(&mut world, blob(2), bytes(6)) && is_committed(&mut world, blob(2), bytes(5)));
    world.decide(true);
    world.answer_all();
    assert_eq!(world.driver.pending_usage(), NodeUsage::default());
    world.check_usage();
}

#[test]
fn staged_bytes_count_once() {
    let mut world = with_quota(Some(10), None);
    let id = stage(&mut world, 8).unwrap();
    assert_eq!(stage(&mut world, 3).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    assert!(!is_committed(&mut world, blob(1), bytes(3)));
    assert!(is_committed(&mut world, blob(1), refers_to(id, 8)), "its bytes count already");
    assert_eq!((world.driver.staged_bytes(), world.driver.usage().bytes), (0, 8));
    let id = stage(&mut world, 2).unwrap();
    assert!(!is_committed(&mut world, blob(2), bytes(1)));
    world.driver.abort_upload(id, world.now);
    world.carry_out();
    world.answer_all();
    assert!(is_committed(&mut world, blob(2), bytes(2)), "the upload was given up");
}
