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
fn change_is_settled_when_all_holders_have_acknowledged_it() {
    let mut directory = directory();
    assert_eq!(directory.mark_changed(page(7), at(5), 0), [A, B]);
    assert_eq!(directory.mark_changed(page(8), at(6), 0), []);
    assert!(!directory.is_settled(page(7), at(5)));
    directory.acknowledge(A, page(7), at(5));
    directory.mark_changed(page(7), at(9), 0);
    directory.acknowledge(B, page(7), at(9));
    // A has acknowledged 5 but not 9.
    assert_eq!(directory.settled_version(page(7)), Some(at(5)));
    directory.acknowledge(A, page(7), at(9));
    assert_eq!(directory.settled_version(page(7)), None);
}

#[test]
fn copies_of_unconfirmed_pages_are_counted_until_they_exist_or_are_evicted() {
    let mut directory = directory();
    let counts = |directory: &Directory| [A, B].map(|holder| directory.unconfirmed_pages(holder..=holder));
    for number in 8..12 {
        directory.list(page(number), A, FetchId(number));
        directory.set_unconfirmed(page(number), A, true);
        directory.set_unconfirmed(page(number), B, true);
    }
    assert_eq!(counts(&directory), [4, 0]);
    directory.check_invariants().unwrap();
    directory.evict(page(8), A, FetchId(8));
    directory.mark_changed(page(9), at(5), 0);
    directory.set_unconfirmed(page(10), A, false);
    directory.set_unconfirmed(page(10), A, false);
    assert_eq!(counts(&directory), [1, 0]);
    directory.check_invariants().unwrap();
    directory.remove(A);
    assert_eq!(directory.unconfirmed_pages(A..=B), 0);
}

#[test]
fn expired_holder_does_not_block_settlement() {
    let mut directory = directory();
    directory.mark_changed(page(7), at(5), 0);
    directory.acknowledge(A, page(7), at(5));
    directory.grant(A, 0, 500, LEASE, u64::MAX);
    assert_eq!(directory.deadline(), Some(1050));
    assert_eq!(directory.expire(1049), []);
    assert!(!directory.is_settled(page(7), at(5)));
    assert_eq!(directory.expire(1050).into_iter().map(|(holder, _)| holder).collect::<Vec<_>>(), [B]);
    assert!(directory.is_settled(page(7), at(5)));
    assert!(!directory.list(page(7), B, FetchId(2)), "an expired holder must open another session");
    directory.acknowledge(B, page(7), at(5));
    directory.check_invariants().unwrap();
}

/// ATTACK: a disconnected redirector once renewed the leases of its holders.
#[test]
fn granted_lease_never_exceeds_the_own_lease() {
    let mut directory = Directory::default();
    assert_eq!(directory.grant(A, 0, 0, LEASE, 300), 300);
    assert_eq!(directory.deadline(), Some(315));
    assert_eq!(directory.grant(A, 0, 400, LEASE, 0), 0);
}

#[test]
fn eviction_of_an_earlier_fetch_has_no_effect() {
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
fn cache_node_acknowledges_upward_when_all_holders_have_acknowledged() {
    let mut directory = directory();
    directory.mark_passed_on(page(7), at(5), 0);
    directory.mark_passed_on(page(8), at(6), 0);
    assert_eq!(directory.acknowledge_upward(), [(page(8), at(6))]);
    directory.acknowledge(A, page(7), at(5));
    assert_eq!(directory.acknowledge_upward(), []);
    directory.mark_passed_on(page(7), at(9), 0);
    directory.acknowledge(A, page(7), at(9));
    directory.acknowledge(B, page(7), at(5));
    assert_eq!(directory.acknowledge_upward(), [(page(7), at(5))], "an intermediate version is acknowledged, too");
    directory.remove(B);
    assert_eq!(directory.acknowledge_upward(), [(page(7), at(9))]);
    assert_eq!(directory.acknowledge_upward(), []);
}

/// A cache node gets additional time for each level below it, so the reported number of levels has a maximum.
#[test]
fn reported_height_is_limited() {
    let mut directory = Directory::default();
    directory.grant(HolderId(1), u8::MAX, 0, 1_000_000, u64::MAX);
    assert!(directory.height() <= 5);
}
