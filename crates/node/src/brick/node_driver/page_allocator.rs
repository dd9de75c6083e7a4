//! Hands out page numbers, each once.

use std::collections::BTreeMap;

use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use store::RowChanges;

use crate::brick::page_rows::{self as rows, Rows};
use crate::brick::plant::{Bug, planted};

use super::RESERVABLE;

/// Page numbers that may be used once `rows` are durable.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The first of them.
    pub(crate) first: u64,
    /// To be submitted, behind the rows of all reservations before; then [`NodeDriver::finish_reservation`] is called once.
    ///
    /// [`NodeDriver::finish_reservation`]: super::NodeDriver::finish_reservation
    pub(crate) rows: RowChanges,
}

/// The page numbers of a logical node.
#[derive(Debug)]
pub(super) struct PageAllocator {
    node: NodeId,
    /// The first page number of each space that was never handed out, as far as it was read.
    next: BTreeMap<SpaceId, u64>,
    /// Reservations whose rows are with the store.
    in_flight: u64,
}

impl PageAllocator {
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, next: BTreeMap::new(), in_flight: 0 }
    }

    /// The first page number of a space that was never handed out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn next_page(&self, space: SpaceId, reader: &impl Rows) -> Result<u64> {
        match self.next.get(&space) {
            Some(next) => Ok(*next),
            None => rows::read_count(reader, &rows::free_key(self.node, space)),
        }
    }

    /// Reserves page numbers of a space, as many as asked for.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] if there are not so many left; or if it cannot be read which were reserved.
    pub(super) fn reserve(&mut self, space: SpaceId, pages: u64, reader: &impl Rows) -> Result<Reservation> {
        let first = if planted(Bug::ReservationReused) {
            rows::read_count(reader, &rows::free_key(self.node, space))?
        } else {
            self.next_page(space, reader)?
        };
        let next = first.saturating_add(pages);
        if next > RESERVABLE {
            let what = format!("logical node {:x} has no page numbers left in space {}", self.node.0, space.0);
            return Err(Error::new(ErrorKind::Full, what));
        }
        self.next.insert(space, next);
        self.in_flight += 1;
        let mut changes = RowChanges::new();
        changes.put(&rows::free_key(self.node, space), rows::encode_number(next));
        Ok(Reservation { first, rows: changes })
    }

    /// The rows of a reservation are not with the store any more.
    ///
    /// # Panics
    /// If there is no such reservation.
    pub(super) fn finish(&mut self) {
        assert!(self.in_flight > 0, "a reservation of logical node {:x} ends twice", self.node.0);
        self.in_flight -= 1;
    }

    /// Whether no reservation is with the store.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// The spaces of which page numbers were reserved since the node was opened.
    pub(super) fn spaces(&self) -> impl Iterator<Item = SpaceId> {
        self.next.keys().copied().filter(|_| !planted(Bug::ReservationsNotMoved))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use bytes::Bytes;

    use super::*;

    const NODE: NodeId = NodeId(3);
    const SPACE: SpaceId = SpaceId(1);

    /// A store in which the next page number of the space is this.
    struct Stored(u64);

    impl Rows for Stored {
        fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
            Ok((key == &rows::free_key(NODE, SPACE)[..]).then(|| rows::encode_number(self.0)))
        }

        fn get_with<T>(&self, _: &[u8], _: impl FnMut(&[u8]) -> T) -> Result<Option<T>> {
            Ok(None)
        }

        fn each(&self, _: &[u8], _: &[u8], _: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn reservations_follow_each_other_before_they_are_durable() {
        let mut pages = PageAllocator::new(NODE);
        let firsts = [10, 5, 1].map(|count| pages.reserve(SPACE, count, &Stored(100)).unwrap().first);
        assert_eq!(firsts, [100, 110, 115]);
        assert_eq!(pages.reserve(SpaceId(2), 1, &Stored(100)).unwrap().first, 0, "another space");
        assert!(!pages.is_idle());
        (0..4).for_each(|_| pages.finish());
        assert!(pages.is_idle());
    }

    #[test]
    fn the_last_page_number_is_reserved_and_none_above_it() {
        let mut pages = PageAllocator::new(NODE);
        assert_eq!(pages.reserve(SPACE, 1, &Stored(RESERVABLE - 1)).unwrap().first, RESERVABLE - 1);
        let full = pages.reserve(SPACE, 1, &Stored(0)).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::Full);
        assert_eq!(pages.reserve(SpaceId(2), u64::MAX, &Stored(0)).unwrap_err().kind(), ErrorKind::Full);
    }
}
