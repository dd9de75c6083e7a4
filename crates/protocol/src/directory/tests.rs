use model::{NodeId, SpaceId};

use super::*;

const A: HolderId = HolderId(1);
const B: HolderId = HolderId(2);
const LEASE: u64 = 1000;

const fn page(number: u64) -> PageId {
    PageId { space: SpaceId(1), node: NodeId(0), number }
}

fn at(position: u64) -> Version {
    Version { moves: 0, position }
}

/// Two holders of page 7, by fetch 1 of each.
fn directory() -> Directory {
    let mut directory = Directory::default();
    for holder in [A, B] {
        directory.grant(holder, 0, 0, LEASE, u64::MAX);
        assert!(directory.list(page(7), holder, FetchId(1)));
    }
    directory.check_invariants().unwrap();
    directory
}

#[test]
fn a_change_is_settled_when_all_holders_have_acknowledged_it() {
    let mut directory = directory();
    assert_eq!(directory.mark_changed(page(7), at(5), 0), [A, B]);
    assert_eq!(directory.mark_changed(page(8), at(6), 0), []);
    assert!(!directory.is_settled(page(7), at(5)));
    directory.acknowledge(A, page(7), at(5));
    directory.mark_changed(page(7), at(9), 0);
    directory.acknowledge(B, page(7), at(9));
    // A has heard of 5 and not of 9.
    assert_eq!(directory.settled(page(7)), Some(at(5)));
    directory.acknowledge(A, page(7), at(9));
    assert_eq!(directory.settled(page(7)), None);
}

#[test]
fn a_holder_whose_lease_has_run_out_is_waited_for_no_more() {
    let mut directory = directory();
    directory.mark_changed(page(7), at(5), 0);
    directory.acknowledge(A, page(7), at(5));
    directory.grant(A, 0, 500, LEASE, u64::MAX);
    assert_eq!(directory.deadline(), Some(1050));
    assert_eq!(directory.expire(1049), []);
    assert!(!directory.is_settled(page(7), at(5)));
    assert_eq!(directory.expire(1050), [B]);
    assert!(directory.is_settled(page(7), at(5)));
    assert!(!directory.list(page(7), B, FetchId(2)), "it must come back first");
    directory.acknowledge(B, page(7), at(5));
    directory.check_invariants().unwrap();
}

/// ATTACK: a redirector that was cut off once renewed its members' leases.
#[test]
fn nobody_is_granted_more_than_is_left_of_the_nodes_own_lease() {
    let mut directory = Directory::default();
    assert_eq!(directory.grant(A, 0, 0, LEASE, 300), 300);
    assert_eq!(directory.deadline(), Some(315));
    assert_eq!(directory.grant(A, 0, 400, LEASE, 0), 0);
}

#[test]
fn an_eviction_that_crosses_a_later_fetch_ends_nothing() {
    let mut directory = directory();
    directory.list(page(7), A, FetchId(2));
    directory.evict(page(7), A, FetchId(1));
    assert_eq!(directory.mark_changed(page(7), at(5), 0), [A, B]);
    directory.evict(page(7), A, FetchId(2));
    directory.evict(page(7), B, FetchId(1));
    assert_eq!(directory.mark_changed(page(7), at(6), 0), []);
    assert!(directory.is_settled(page(7), at(6)));
    directory.check_invariants().unwrap();
}

#[test]
fn a_node_in_the_middle_acknowledges_upward_when_all_below_have() {
    let mut directory = directory();
    directory.mark_passed_on(page(7), at(5), 0);
    directory.mark_passed_on(page(8), at(6), 0);
    assert_eq!(directory.acknowledge_upward(), [(page(8), at(6))]);
    directory.acknowledge(A, page(7), at(5));
    assert_eq!(directory.acknowledge_upward(), []);
    directory.mark_passed_on(page(7), at(9), 0);
    directory.acknowledge(A, page(7), at(9));
    directory.acknowledge(B, page(7), at(5));
    assert_eq!(directory.acknowledge_upward(), [(page(7), at(5))], "it does not wait for the changes to end");
    directory.remove(B);
    assert_eq!(directory.acknowledge_upward(), [(page(7), at(9))]);
    assert_eq!(directory.acknowledge_upward(), []);
}

/// Whoever says that a whole tower is below it is not waited for as long as that would take.
#[test]
fn a_node_cannot_say_that_it_is_as_high_as_it_likes() {
    let mut directory = Directory::default();
    directory.grant(HolderId(1), u8::MAX, 0, 1_000_000, u64::MAX);
    assert!(directory.height() <= 5);
}
