//! Pages that clients have reserved and not filled. A client returns them when it is closed, and the next client fills them further, so
//! that objects of short-lived clients share pages.
//!
//! A page is in at most one place: reserved on a connection ([`Reservations`]) or in the [`PagePool`]. What a client returns is checked
//! against the reservations of its connection: it can return each page once, and no page of another client. Pages of connections that end
//! without returning them stay as they are, and so do those in the pool of a peer server that ends.
//!
//! The numbers of pages are never given twice, so a user gets them at a rate ([`UserRates`](super::user_rates::UserRates)): 2⁴⁷ of a logical node last for four years of
//! a user who takes as many as one peer server gives.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{NodeId, SpaceId};
use wire::cluster::ReservedPages;

use super::plant::{Bug, planted};

/// Pages with objects that are kept for each logical node.
const MAX_BEGUN: usize = 64;
/// Ranges of empty pages that are kept for each logical node. Others cost nothing but their numbers.
const MAX_EMPTY: usize = 8;
/// Ranges that a client returns at a time, at most.
pub(super) const MAX_RETURNED: usize = 64;
/// Pages a second that the clients of one user get as new ones: 8 GiB of full pages.
pub(super) const PAGES_PER_SECOND: u64 = 1 << 20;
/// Ranges of a connection that are known. Pages of earlier ones cannot be returned.
const MAX_RESERVATIONS: usize = 64;

/// The pages that clients have returned to a peer server.
#[derive(Debug, Default)]
pub(super) struct PagePool(Mutex<HashMap<(SpaceId, NodeId), Vec<ReservedPages>>>);

impl PagePool {
    fn lock(&self) -> MutexGuard<'_, HashMap<(SpaceId, NodeId), Vec<ReservedPages>>> {
        // No operation leaves a list inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes at most `pages` pages of a logical node, the first of which has room for `room` bytes: of the pages that objects share
    /// already the fullest one, and empty ones if there is none.
    pub(super) fn take(&self, space: SpaceId, node: NodeId, pages: u32, room: u32) -> Option<ReservedPages> {
        let mut pool = self.lock();
        let ranges = pool.get_mut(&(space, node))?;
        let fits = |range: &ReservedPages| range.has_room(room) || planted(Bug::RoomIgnored);
        let fitting = ranges.iter().enumerate().filter(|(_, range)| fits(range));
        let (at, _) = fitting.min_by_key(|(_, range)| (range.slot == 0, range.room))?;
        let mut taken = ranges.swap_remove(at);
        if taken.pages > pages {
            ranges.push(ReservedPages::empty(taken.first + u64::from(pages), taken.pages - pages));
            taken.pages = pages;
        }
        Some(taken)
    }

    /// Adds pages that a client has returned. If there are more than [`MAX_BEGUN`] pages with objects, the pool drops the fullest one; if
    /// there are more than [`MAX_EMPTY`] ranges of empty pages, it drops the shortest one.
    pub(super) fn add(&self, space: SpaceId, node: NodeId, range: ReservedPages) {
        let mut pool = self.lock();
        let ranges = pool.entry((space, node)).or_default();
        ranges.push(range);
        let is_empty = range.slot == 0;
        let alike = ranges.iter().enumerate().filter(|(_, other)| (other.slot == 0) == is_empty);
        let most = if is_empty { MAX_EMPTY } else { MAX_BEGUN };
        if alike.clone().count() > most && !planted(Bug::ReturnedPagesUnbounded) {
            let least = alike.min_by_key(|(_, other)| (other.room, other.pages)).map(|(at, _)| at);
            least.into_iter().for_each(|at| _ = ranges.swap_remove(at));
        }
    }

    /// Keeps only pages of these spaces.
    pub(super) fn retain_spaces(&self, is_known: impl Fn(SpaceId) -> bool) {
        self.lock().retain(|(space, _), _| is_known(*space));
    }
}

/// The pages that are reserved on a connection, newest last. They are all of one space, that of the connection.
#[derive(Debug, Default)]
pub(super) struct Reservations(Mutex<VecDeque<(NodeId, ReservedPages)>>);

impl Reservations {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(NodeId, ReservedPages)>> {
        // As for the pool.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pages are reserved for the client of this connection.
    pub(super) fn add(&self, node: NodeId, range: ReservedPages) {
        let mut reserved = self.lock();
        reserved.push_back((node, range));
        if reserved.len() > MAX_RESERVATIONS {
            reserved.pop_front();
        }
    }

    /// Ends the reservation of pages that the client returns. Returns whether they were reserved, all of them, and the slots that it
    /// returns as free were not taken when it got them.
    pub(super) fn remove(&self, node: NodeId, returned: ReservedPages) -> bool {
        let mut reserved = self.lock();
        let is_part = |(at, range): &(NodeId, ReservedPages)| {
            let are_slots_free = returned.first != range.first || returned.slot >= range.slot;
            *at == node
                && range.first <= returned.first
                && returned.end() <= range.end()
                && (are_slots_free || planted(Bug::TakenSlotsReturned))
        };
        let Some(at) = reserved.iter().position(is_part) else { return planted(Bug::ForeignPagesReturned) };
        if planted(Bug::PagesReturnedTwice) {
            return true;
        }
        if let Some((_, range)) = reserved.remove(at) {
            if range.first < returned.first {
                let pages = (returned.first - range.first) as u32;
                reserved.push_back((node, ReservedPages { pages, ..range }));
            }
            if returned.end() < range.end() {
                let pages = (range.end() - returned.end()) as u32;
                reserved.push_back((node, ReservedPages::empty(returned.end(), pages)));
            }
            let surplus = reserved.len().saturating_sub(MAX_RESERVATIONS);
            drop(reserved.drain(..surplus));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;

    use super::*;

    const SPACE: SpaceId = SpaceId(1);
    const NODE: NodeId = NodeId(3);

    fn range(first: u64, pages: u32, slot: u16, room: u32) -> ReservedPages {
        ReservedPages { first, pages, slot, room }
    }

    #[test]
    fn fullest_page_with_room_is_given_first() {
        let pool = PagePool::default();
        for returned in [range(100, 256, 0, 0), range(7, 1, 3, 4_000), range(9, 1, 5, 900)] {
            pool.add(SPACE, NODE, returned);
        }
        let take = |room| pool.take(SPACE, NODE, 256, room);
        assert_eq!(pool.take(SPACE, NodeId(4), 256, 1), None, "of another logical node");
        assert_eq!(pool.take(SpaceId(2), NODE, 256, 1), None, "of another space");
        assert_eq!(take(1_000), Some(range(7, 1, 3, 4_000)));
        assert_eq!(take(1_000), Some(range(100, 256, 0, 0)), "the other page has too little room");
        assert_eq!(take(1_000), None);
        assert_eq!(take(900), Some(range(9, 1, 5, 900)));
    }

    #[test]
    fn more_pages_than_asked_for_stay_in_the_pool() {
        let pool = PagePool::default();
        pool.add(SPACE, NODE, range(50, 10, 2, 100));
        assert_eq!(pool.take(SPACE, NODE, 4, 100), Some(range(50, 4, 2, 100)));
        assert_eq!(pool.take(SPACE, NODE, 256, 100), Some(range(54, 6, 0, 0)));
        assert_eq!(pool.take(SPACE, NODE, 256, 100), None);
    }

    fn pool_is_bounded_and_keeps_the_pages_with_most_room() {
        let pool = PagePool::default();
        for number in 0..=MAX_EMPTY as u64 {
            pool.add(SPACE, NODE, range(1_000 * number, 100 + number as u32, 0, 0));
        }
        for number in 0..=MAX_BEGUN as u64 {
            pool.add(SPACE, NODE, range(100_000 + number, 1, 1, 100 + number as u32));
        }
        assert_eq!(pool.lock()[&(SPACE, NODE)].len(), MAX_BEGUN + MAX_EMPTY);
        assert_eq!(pool.take(SPACE, NODE, 256, 1), Some(range(100_001, 1, 1, 101)), "the fullest one was dropped");
        assert!(pool.lock()[&(SPACE, NODE)].iter().all(|range| range.first != 0), "and the shortest range");
        pool.retain_spaces(|space| space != SPACE);
        assert_eq!(pool.take(SPACE, NODE, 256, 1), None, "the space was removed");
    }

    /// Clients that overlap have all begun pages of their own. Those that come one after the other later share one again.
    #[test]
    fn pages_are_shared_again_after_many_clients_at_once() {
        let pool = PagePool::default();
        for number in 0..2 * MAX_BEGUN as u64 {
            pool.add(SPACE, NODE, range(1_000 * number, 1, 5, 300));
            pool.add(SPACE, NODE, range(1_000 * number + 1, 255, 0, 0));
        }
        let first = pool.take(SPACE, NODE, 256, 4_000).unwrap();
        assert_eq!(first.slot, 0);
        pool.add(SPACE, NODE, range(first.first, 1, 1, 4_000));
        pool.add(SPACE, NODE, ReservedPages::empty(first.first + 1, first.pages - 1));
        assert_eq!(pool.take(SPACE, NODE, 256, 4_000), Some(range(first.first, 1, 1, 4_000)));
    }

    fn only_reserved_pages_are_returned_and_each_once() {
        let reservations = Reservations::default();
        assert!(!reservations.remove(NODE, range(10, 1, 0, 0)), "nothing is reserved");
        reservations.add(NODE, range(10, 10, 4, 500));
        assert!(!reservations.remove(NodeId(4), range(12, 1, 0, 0)), "at another logical node");
        assert!(!reservations.remove(NODE, range(9, 2, 0, 0)), "a page below");
        assert!(!reservations.remove(NODE, range(19, 2, 0, 0)), "a page above");
        assert!(!reservations.remove(NODE, range(10, 1, 3, 500)), "a slot of an earlier client");
        assert!(reservations.remove(NODE, range(13, 2, 7, 100)));
        assert!(!reservations.remove(NODE, range(14, 1, 9, 50)), "returned already");
        assert!(!reservations.remove(NODE, range(12, 3, 0, 0)), "some were returned already");
        assert!(reservations.remove(NODE, range(10, 3, 4, 500)));
        assert!(reservations.remove(NODE, range(15, 5, 0, 0)));
        assert!(!reservations.remove(NODE, range(10, 10, 4, 500)));
    }

    #[test]
    fn planted_bugs_are_noticed() {
        assert_noticed(&[Bug::RoomIgnored], fullest_page_with_room_is_given_first);
        assert_noticed(&[Bug::ReturnedPagesUnbounded], pool_is_bounded_and_keeps_the_pages_with_most_room);
        let bugs = [Bug::ForeignPagesReturned, Bug::PagesReturnedTwice, Bug::TakenSlotsReturned];
        assert_noticed(&bugs, only_reserved_pages_are_returned_and_each_once);
    }

    #[test]
    fn reservations_of_a_connection_are_bounded() {
        let reservations = Reservations::default();
        (0..=MAX_RESERVATIONS as u64).for_each(|n| reservations.add(NODE, range(10 * n, 10, 0, 0)));
        assert_eq!(reservations.lock().len(), MAX_RESERVATIONS);
        assert!(!reservations.remove(NODE, range(0, 10, 0, 0)), "the oldest one");
        assert!(reservations.remove(NODE, range(10, 10, 0, 0)));
        reservations.add(NODE, range(10_000, 4_000, 0, 0));
        (0..2_000).for_each(|n| _ = reservations.remove(NODE, range(10_000 + 2 * n, 1, 0, 0)));
        assert_eq!(reservations.lock().len(), MAX_RESERVATIONS, "also if every second page is returned");
    }
}
