//! Whether a client reads what it has written.
//!
//! A transaction that writes to a page which the client has no copy of, as all do that create objects in a new page, leaves no copy behind. A
//! client that then reads these objects fetches the page first, which takes a round trip. So once a client has done that, it fetches such
//! pages when it commits. The page is empty or old then, but the message about the commit makes the copy current ([`PageCache::invalidate`]).
//! A client that has not read back what it wrote, such as one that loads data, fetches nothing.
//!
//! [`PageCache::invalidate`]: crate::page_cache::PageCache::invalidate

use std::collections::VecDeque;

use model::PageId;

/// Pages that are remembered, as written and not fetched.
const REMEMBERED_PAGES: usize = 64;
/// Pages that are fetched at commits after one was read back. Then the client has to show again that it reads what it writes.
const FETCHES: u32 = 256;

/// What a client has written without a copy.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadBack {
    written: VecDeque<PageId>,
    /// The pages that are fetched when they are written.
    left: u32,
}

impl ReadBack {
    /// As of a client that has just read back what it had written.
    pub(super) fn eager() -> Self {
        Self { left: FETCHES, ..Self::default() }
    }

    /// A page is missing that is read.
    pub(super) fn on_missing(&mut self, page: PageId) {
        if let Some(at) = self.written.iter().position(|written| *written == page) {
            self.written.remove(at);
            self.left = FETCHES;
        }
    }

    /// A transaction that commits has written to a page of which there is no copy. Returns whether it is to be fetched.
    pub(super) fn on_written(&mut self, page: PageId) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        if self.written.front() != Some(&page) {
            self.written.truncate(REMEMBERED_PAGES - 1);
            self.written.push_front(page);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;

    fn page(number: u64) -> PageId {
        PageId { space: SpaceId(1), node: NodeId(1), number }
    }

    #[test]
    fn pages_are_fetched_after_one_was_read_back() {
        let mut read_back = ReadBack::default();
        assert!(!read_back.on_written(page(1)));
        read_back.on_missing(page(2));
        assert!(!read_back.on_written(page(3)), "another page was missing");
        read_back.on_missing(page(1));
        assert!((0..u64::from(FETCHES)).all(|number| read_back.on_written(page(10 + number))));
        assert!(!read_back.on_written(page(9)), "it has not shown for long that it reads what it writes");
        read_back.on_missing(page(3));
        assert!(read_back.on_written(page(4)));
    }

    #[test]
    fn few_pages_are_remembered() {
        let mut read_back = ReadBack::default();
        let last = REMEMBERED_PAGES as u64;
        assert!((0..=last).all(|number| !read_back.on_written(page(number))));
        read_back.on_missing(page(0));
        assert!(!read_back.on_written(page(last + 1)));
        read_back.on_missing(page(2));
        assert!(read_back.on_written(page(last + 2)));
    }
}
