//! What a transaction has read, by page, so that a read costs one look-up and a change of a page only what was read of it.
//!
//! Nearly all reads of a page are of one copy at one version, and rise together. Such reads are a [`ReadGroup`]: the version stands once,
//! and each object has a key of eight bytes.

use model::{ClassId, Oid, PageId};

use super::ReadVersion;
use crate::ident::HlcTimestamp;
use crate::page_map::PageMap;

/// A read of a running transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TrackedRead {
    pub(super) seen: ReadVersion,
    pub(super) copy: u64,
    /// Its interval (G2): from here,
    pub(super) from: HlcTimestamp,
    /// to before here, if it has ended.
    pub(super) until: Option<HlcTimestamp>,
}

impl TrackedRead {
    /// Its interval ends here, unless it has ended before.
    pub(super) fn end_interval(&mut self, end: HlcTimestamp) {
        self.until = Some(self.until.map_or(end, |until| until.min(end)));
    }
}

/// An object of a page: its slot, and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ObjectKey(u64);

impl ObjectKey {
    fn new(oid: Oid) -> Self {
        Self(u64::from(oid.slot()) << 24 | u64::from(oid.class().0))
    }

    fn oid(self, page: PageId) -> Oid {
        Oid::new(ClassId(self.0 as u32 & ClassId::MAX.0), page, (self.0 >> 24) as u16)
    }
}

/// Reads of a page that are equal but for their objects.
#[derive(Clone, Debug)]
struct ReadGroup {
    read: TrackedRead,
    /// Rising, and in no other group.
    objects: Vec<ObjectKey>,
}

impl ReadGroup {
    fn new(read: TrackedRead, object: ObjectKey) -> Self {
        Self { read, objects: vec![object] }
    }
}

/// The reads of a page.
#[derive(Clone, Debug, Default)]
struct PageReads {
    groups: Vec<ReadGroup>,
}

impl PageReads {
    fn insert(&mut self, read: TrackedRead, object: ObjectKey) {
        match self.groups.iter_mut().find(|group| group.read == read) {
            Some(group) => match group.objects.last() {
                Some(last) if *last >= object => {
                    if let Err(place) = group.objects.binary_search(&object) {
                        group.objects.insert(place, object);
                    }
                }
                _ => group.objects.push(object),
            },
            None => self.groups.push(ReadGroup::new(read, object)),
        }
    }

    /// The group that has an object, and the object's place there.
    fn find(&self, object: ObjectKey) -> Option<(usize, usize)> {
        self.groups.iter().enumerate().find_map(|(group, reads)| {
            let place = reads.objects.binary_search(&object).ok()?;
            Some((group, place))
        })
    }
}

/// The result of a read for the reads of its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// The first read of the page.
    NewPage,
    /// The object was not read before, or in the same state.
    Consistent,
    /// An earlier read has seen another state: a message has named the object, or another copy has replaced that of the first read.
    Changed,
}

/// What a transaction has read.
#[derive(Clone, Debug, Default)]
pub(super) struct TxnReads {
    pages: PageMap<PageReads>,
    count: usize,
}

impl TxnReads {
    /// Calls `act` with each object and its read, in the order of pages, slots and classes.
    pub(super) fn for_each(&self, mut act: impl FnMut(Oid, &TrackedRead)) {
        let mut pages: Vec<(PageId, &PageReads)> = self.pages.iter().map(|(page, reads)| (*page, reads)).collect();
        pages.sort_unstable_by_key(|(page, _)| *page);
        for (page, PageReads { groups }) in pages {
            if let [group] = &groups[..] {
                group.objects.iter().for_each(|object| act(object.oid(page), &group.read));
                continue;
            }
            let all = groups.iter().flat_map(|group| group.objects.iter().map(|object| (*object, &group.read)));
            let mut all: Vec<(ObjectKey, &TrackedRead)> = all.collect();
            all.sort_unstable_by_key(|(object, _)| *object);
            all.into_iter().for_each(|(object, read)| act(object.oid(page), read));
        }
    }

    /// When the first interval has ended, and an object whose interval that is.
    pub(super) fn first_ended(&self) -> Option<(HlcTimestamp, Oid)> {
        let ended = self.pages.iter().flat_map(|(page, reads)| {
            let ended = |group: &ReadGroup| Some((group.read.until?, group.objects.first()?.oid(*page)));
            reads.groups.iter().filter_map(ended)
        });
        ended.min()
    }

    /// The pages.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageId> {
        self.pages.keys().copied()
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The largest of the times from which the reads hold.
    pub(super) fn latest_from(&self) -> Option<HlcTimestamp> {
        self.pages.values().flat_map(|reads| &reads.groups).map(|group| group.read.from).max()
    }

    /// The read of an object.
    pub(super) fn get(&self, oid: Oid) -> Option<&TrackedRead> {
        let reads = self.pages.get(&oid.page())?;
        let (group, _) = reads.find(ObjectKey::new(oid))?;
        Some(&reads.groups[group].read)
    }

    /// Records a read of an object. The first one counts (P3).
    pub(super) fn record(&mut self, oid: Oid, read: TrackedRead) -> Recorded {
        let (page, object) = (oid.page(), ObjectKey::new(oid));
        let Some(reads) = self.pages.get_mut(&page) else {
            self.pages.insert(page, PageReads { groups: vec![ReadGroup::new(read, object)] });
            self.count += 1;
            return Recorded::NewPage;
        };
        let Some((group, place)) = reads.find(object) else {
            reads.insert(read, object);
            self.count += 1;
            return Recorded::Consistent;
        };
        let first = &mut reads.groups[group];
        if first.read.seen == read.seen {
            return Recorded::Consistent;
        }
        let ended = TrackedRead { until: Some(HlcTimestamp::ZERO), ..first.read };
        first.objects.remove(place);
        reads.insert(ended, object);
        Recorded::Changed
    }

    /// Calls `act` with each object of a page that was read, and its read, which may change.
    pub(super) fn update(&mut self, page: PageId, mut act: impl FnMut(Oid, &mut TrackedRead)) {
        let Some(reads) = self.pages.get_mut(&page) else { return };
        for group in std::mem::take(&mut reads.groups) {
            for object in group.objects {
                let mut read = group.read;
                act(object.oid(page), &mut read);
                reads.insert(read, object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use super::*;
    use crate::ident::Version;

    fn page(number: u64) -> PageId {
        PageId { space: SpaceId::MAX, node: NodeId::MAX, number }
    }

    fn at(position: u64) -> TrackedRead {
        let seen = ReadVersion::At(Version { position, ..Version::ZERO });
        TrackedRead { seen, copy: 1, from: HlcTimestamp(position), until: None }
    }

    fn list(reads: &TxnReads) -> Vec<(Oid, TrackedRead)> {
        let mut listed = Vec::new();
        reads.for_each(|oid, read| listed.push((oid, *read)));
        listed
    }

    #[test]
    fn key_of_an_object_tells_its_slot_and_class() {
        for (class, slot) in [(ClassId::NONE, 0), (ClassId(9), 300), (ClassId::MAX, u16::MAX)] {
            let oid = Oid::new(class, page(PageId::MAX_NUMBER), slot);
            assert_eq!(ObjectKey::new(oid).oid(oid.page()), oid);
        }
    }

    #[test]
    fn reads_are_listed_in_the_order_of_objects_and_counted_once() {
        let mut reads = TxnReads::default();
        let oid = |number, slot, class| Oid::new(ClassId(class), page(number), slot);
        assert_eq!(reads.record(oid(7, 4, 1), at(1)), Recorded::NewPage);
        assert_eq!(reads.record(oid(7, 2, 2), at(2)), Recorded::Consistent);
        assert_eq!(reads.record(oid(7, 2, 1), at(1)), Recorded::Consistent);
        assert_eq!(reads.record(oid(3, 9, 1), at(4)), Recorded::NewPage);
        assert_eq!(reads.record(oid(7, 4, 1), at(1)), Recorded::Consistent);
        let listed = list(&reads);
        let expected = [(oid(3, 9, 1), at(4)), (oid(7, 2, 1), at(1)), (oid(7, 2, 2), at(2)), (oid(7, 4, 1), at(1))];
        assert_eq!(listed, expected);
        assert_eq!((reads.len(), reads.latest_from()), (4, Some(HlcTimestamp(4))));
    }

    #[test]
    fn second_read_of_another_state_keeps_the_first_one_and_ends_its_interval() {
        let mut reads = TxnReads::default();
        let oid = |slot| Oid::new(ClassId(1), page(7), slot);
        let _ = (reads.record(oid(1), at(1)), reads.record(oid(2), at(1)));
        assert_eq!(reads.record(oid(1), at(5)), Recorded::Changed);
        let listed = list(&reads);
        let ended = TrackedRead { until: Some(HlcTimestamp::ZERO), ..at(1) };
        assert_eq!(listed, [(oid(1), ended), (oid(2), at(1))]);
        assert_eq!(reads.first_ended(), Some((HlcTimestamp::ZERO, oid(1))));
    }

    #[test]
    fn update_changes_single_reads_and_joins_equal_ones() {
        let mut reads = TxnReads::default();
        let oid = |slot| Oid::new(ClassId(1), page(7), slot);
        for slot in 0..4 {
            let _ = reads.record(oid(slot), at(u64::from(slot / 2)));
        }
        reads.update(page(7), |oid, read| {
            if oid.slot() != 3 {
                *read = at(9);
            }
        });
        let listed = list(&reads);
        assert_eq!(listed, [(oid(0), at(9)), (oid(1), at(9)), (oid(2), at(9)), (oid(3), at(1))]);
        assert_eq!(reads.pages.get(&page(7)).map(|reads| reads.groups.len()), Some(2));
    }
}
