//! Lists of what transactions have read.
//!
//! A transaction that follows references reads many objects of each page, nearly all of them in one state of the page. Such reads are a
//! *run*: page, class and state stand once, and each object takes the two bytes of its slot. So a list is copied, sent and checked run by
//! run, and a commit costs little for each object that was read.

use model::{ClassId, Oid, PageId};

use crate::memory_size::MemorySize;
use crate::validate::{Read, ReadVersion};

/// Consecutive reads of objects that have the same page, class and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRun<'a> {
    /// The page of the objects.
    pub page: PageId,
    /// Their class.
    pub class: ClassId,
    /// Which state of them was read.
    pub seen: ReadVersion,
    /// Their slots; at least one.
    pub slots: &'a [u16],
}

impl<'a> ReadRun<'a> {
    /// The reads.
    pub fn reads(self) -> impl Iterator<Item = Read> + 'a {
        let Self { page, class, seen, slots } = self;
        slots.iter().map(move |slot| Read { oid: Oid::new(class, page, *slot), seen })
    }
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RunHead {
    page: PageId,
    class: ClassId,
    seen: ReadVersion,
    /// The place of its first slot. Its last slot is before the first one of the next run.
    start: usize,
}

impl RunHead {
    fn continues(&self, page: PageId, class: ClassId, seen: ReadVersion) -> bool {
        self.page == page && self.class == class && self.seen == seen
    }
}

/// Reads in the order in which they were added. Runs are as long as possible, so equal lists have equal runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadList {
    heads: Vec<RunHead>,
    slots: Vec<u16>,
}

impl ReadList {
    /// An empty list with room for this many reads.
    #[must_use]
    pub fn with_capacity(reads: usize) -> Self {
        Self { heads: Vec::new(), slots: Vec::with_capacity(reads) }
    }

    /// The number of reads.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a read.
    pub fn push(&mut self, read: Read) {
        let Read { oid, seen } = read;
        self.continue_run(oid.page(), oid.class(), seen);
        self.slots.push(oid.slot());
    }

    /// Adds the reads of a run.
    pub fn push_run(&mut self, run: ReadRun<'_>) {
        if !run.slots.is_empty() {
            self.continue_run(run.page, run.class, run.seen);
            self.slots.extend_from_slice(run.slots);
        }
    }

    /// Begins a run, unless the last one is the same.
    fn continue_run(&mut self, page: PageId, class: ClassId, seen: ReadVersion) {
        if !self.heads.last().is_some_and(|last| last.continues(page, class, seen)) {
            self.heads.push(RunHead { page, class, seen, start: self.slots.len() });
        }
    }

    /// The runs, in order.
    pub fn runs(&self) -> impl Iterator<Item = ReadRun<'_>> {
        let ends = self.heads.iter().skip(1).map(|next| next.start).chain([self.slots.len()]);
        self.heads.iter().zip(ends).map(|(head, end)| {
            let RunHead { page, class, seen, start } = *head;
            ReadRun { page, class, seen, slots: &self.slots[start..end] }
        })
    }

    /// The reads, in order.
    pub fn iter(&self) -> impl Iterator<Item = Read> + '_ {
        self.runs().flat_map(ReadRun::reads)
    }

    /// The page of each run. A page may occur more than once.
    pub fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.heads.iter().map(|head| head.page)
    }

    /// Whether an object was read.
    #[must_use]
    pub fn contains(&self, oid: Oid) -> bool {
        self.state_of(oid).is_some()
    }

    /// Which state of an object was read first.
    #[must_use]
    pub fn state_of(&self, oid: Oid) -> Option<ReadVersion> {
        let mut of_page = self.runs().filter(|run| run.page == oid.page() && run.class == oid.class());
        of_page.find(|run| run.slots.contains(&oid.slot())).map(|run| run.seen)
    }

    /// Whether a state was read.
    #[must_use]
    pub fn contains_state(&self, seen: ReadVersion) -> bool {
        self.heads.iter().any(|head| head.seen == seen)
    }
}

impl Extend<Read> for ReadList {
    fn extend<I: IntoIterator<Item = Read>>(&mut self, reads: I) {
        reads.into_iter().for_each(|read| self.push(read));
    }
}

impl FromIterator<Read> for ReadList {
    fn from_iter<I: IntoIterator<Item = Read>>(reads: I) -> Self {
        let mut list = Self::default();
        list.extend(reads);
        list
    }
}

impl<const N: usize> From<[Read; N]> for ReadList {
    fn from(reads: [Read; N]) -> Self {
        reads.into_iter().collect()
    }
}

impl From<Vec<Read>> for ReadList {
    fn from(reads: Vec<Read>) -> Self {
        reads.into_iter().collect()
    }
}

impl ReadList {
    /// The bytes of the list in a message, at most: for each run the first identifier, the version and the number of slots, for one of a
    /// transaction's write the client, too, and two bytes for each further slot.
    #[must_use]
    pub fn message_bytes(&self) -> usize {
        let written = self.heads.iter().filter(|head| matches!(head.seen, ReadVersion::Written(_))).count();
        self.heads.len() * 32 + written * 12 + (self.slots.len() - self.heads.len()) * 2
    }
}

impl MemorySize for ReadList {
    fn memory_size(&self) -> usize {
        self.heads.len() * size_of::<RunHead>() + self.slots.len() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;
    use crate::ident::Version;

    fn read(page: u64, class: u32, slot: u16, position: u64) -> Read {
        let page = PageId { space: SpaceId(1), node: NodeId(1), number: page };
        Read { oid: Oid::new(ClassId(class), page, slot), seen: ReadVersion::At(Version { moves: 0, position }) }
    }

    fn run_lengths(list: &ReadList) -> Vec<usize> {
        list.runs().map(|run| run.slots.len()).collect()
    }

    #[test]
    fn reads_keep_their_order_and_equal_neighbours_share_a_run() {
        let reads = [
            read(1, 5, 3, 9),
            read(1, 5, 1, 9),
            read(1, 6, 2, 9),
            read(1, 5, 4, 9),
            read(1, 5, 5, 8),
            read(2, 5, 5, 8),
            read(2, 5, 5, 8),
        ];
        let list = ReadList::from(reads);
        assert_eq!(list.iter().collect::<Vec<_>>(), reads);
        assert_eq!((list.len(), run_lengths(&list)), (7, vec![2, 1, 1, 1, 2]));
    }

    #[test]
    fn runs_that_are_added_join_the_last_run() {
        let whole: ReadList = (0..6).map(|slot| read(1, 5, slot, 9)).collect();
        let mut joined: ReadList = (0..2).map(|slot| read(1, 5, slot, 9)).collect();
        let rest: ReadList = (2..6).map(|slot| read(1, 5, slot, 9)).collect();
        rest.runs().for_each(|run| joined.push_run(run));
        assert_eq!(joined, whole);
        assert_eq!(run_lengths(&joined), [6]);
    }

    #[test]
    fn empty_list_has_no_runs() {
        let empty = ReadList::default();
        assert!(empty.is_empty() && empty.runs().next().is_none() && empty.iter().next().is_none());
        assert!(!empty.contains(read(1, 5, 0, 9).oid));
    }

    #[test]
    fn each_read_adds_to_the_size() {
        let mut list = ReadList::default();
        let mut sizes = vec![list.memory_size()];
        for slot in 0..100 {
            list.push(read(1, 5, slot, 9));
            sizes.push(list.memory_size());
        }
        assert!(sizes.is_sorted_by(|before, after| before < after), "{sizes:?}");
    }

    #[test]
    fn objects_and_states_are_found() {
        let list = ReadList::from([read(1, 5, 3, 9), read(1, 5, 4, 9), read(2, 5, 1, 8)]);
        assert!(list.contains(read(1, 5, 4, 0).oid) && list.contains(read(2, 5, 1, 0).oid));
        let absent = [read(1, 5, 1, 9), read(1, 6, 3, 9), read(2, 5, 3, 8)];
        assert!(absent.iter().all(|absent| !list.contains(absent.oid)));
        assert!(list.contains_state(read(2, 5, 1, 8).seen) && !list.contains_state(read(2, 5, 1, 7).seen));
    }
}
