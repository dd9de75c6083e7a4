//! Incremental backups: compares what a snapshot has with the index of an earlier archive, the base, and writes only what differs.
//!
//! 1. The items of the snapshot come in order, and so do the ranges of the base. The items between the beginnings of two ranges of the base are
//!    compared with the first of these by their digest and length. Equal ones are written as one number; else they are written as new ranges.
//! 2. What was compared is what the snapshot shows, whatever store had the base: a store that was restarted, replaced or restored, or whose
//!    objects came from another one, has an increment, too.
//! 3. Memory holds a range and an item. Chunks in blob files are compared by the checksums in their rows, and read only if they differ.
//! 4. The digest of the state covers what was compared, not what the base has said.

use std::ops::Range;

use bytes::Bytes;
use model::{ContentId, Result};

use super::archive::{ArchiveCounts, ArchiveWriter, damage_error};
use super::item::{self, Item};
use super::range::{Entries, Position, RangeDigest, RangeEntry, StateDigest};
use super::{ExtentBytes, write_extent};
use crate::plant::{ContentBug, planted};
use crate::rows::row::Extent;

/// The index of the base of an increment, as it comes.
pub trait BaseIndex {
    /// The next piece of it; `None` at its end.
    ///
    /// # Errors
    /// If it ends early or cannot be read.
    fn next_piece(&mut self) -> Result<Option<Bytes>>;
}

/// The entries of the base's index.
struct BaseEntries<'a> {
    pieces: &'a mut dyn BaseIndex,
    /// Decoded entries, the next one last.
    entries: Vec<RangeEntry>,
    last: Option<Position>,
    state: StateDigest,
}

impl BaseEntries<'_> {
    fn next(&mut self) -> Result<Option<RangeEntry>> {
        while self.entries.is_empty() {
            let Some(piece) = self.pieces.next_piece()? else { return Ok(None) };
            let mut entries = Entries::new(&piece);
            while let Some(entry) = entries.next()? {
                if self.last.as_ref().is_some_and(|last| *last >= entry.start) {
                    return Err(damage_error("the entries of the base's index are not in order"));
                }
                self.last = Some(entry.start.clone());
                self.state.add(&entry);
                self.entries.push(entry);
            }
            self.entries.reverse();
        }
        Ok(self.entries.pop())
    }
}

/// Writes the archive of an increment.
pub(super) struct Increment<'a> {
    out: ArchiveWriter<'a>,
    base: BaseEntries<'a>,
    /// The range of the base with which the pending items are compared; `None` if items are new in any case.
    current: Option<RangeEntry>,
    /// The range of the base after that.
    next: Option<RangeEntry>,
    pending: Vec<(Position, Pending)>,
    /// The encoded items that are pending, and how many bytes of them the digest has.
    encoded: Vec<u8>,
    digested: usize,
    digest: RangeDigest,
    /// Ranges of the base that are the same or replaced, and are not written yet.
    same: u64,
    replaced: u64,
}

/// An item that may be the same as in the base.
enum Pending {
    Encoded(Range<usize>),
    Extent(ContentId, u64, Extent),
}

impl<'a> Increment<'a> {
    pub(super) fn begin(out: ArchiveWriter<'a>, pieces: &'a mut dyn BaseIndex) -> Result<Self> {
        let mut base = BaseEntries { pieces, entries: Vec::new(), last: None, state: StateDigest::default() };
        let next = base.next()?;
        Ok(Self {
            out,
            base,
            current: None,
            next,
            pending: Vec::new(),
            encoded: Vec::new(),
            digested: 0,
            digest: RangeDigest::default(),
            same: 0,
            replaced: 0,
        })
    }

    pub(super) fn writer(&self) -> &ArchiveWriter<'a> {
        &self.out
    }

    pub(super) fn write_outside(&mut self, item: &Item<'_>) -> Result<()> {
        self.out.write_outside(item)
    }

    /// Adds an item that is no chunk in a blob file.
    pub(super) fn add(&mut self, position: Position, item: &Item<'_>, extents: &mut ExtentBytes<'_>) -> Result<()> {
        self.begin_item(&position, extents)?;
        if self.current.is_none() {
            self.write_same()?;
            return self.out.write_item(item, || position);
        }
        let from = self.encoded.len();
        item::encode(&mut self.encoded, item);
        self.pending.push((position, Pending::Encoded(from..self.encoded.len())));
        self.end_full_comparison(extents)
    }

    /// Adds a chunk in a blob file.
    pub(super) fn add_extent(
        &mut self,
        (position, id, index): (Position, ContentId, u64),
        extent: &Extent,
        extents: &mut ExtentBytes<'_>,
    ) -> Result<()> {
        self.begin_item(&position, extents)?;
        if self.current.is_none() {
            self.write_same()?;
            return write_extent(&mut self.out, (position, id, index), extent, extents);
        }
        self.digest_items();
        self.digest.add_extent(index, (extent.file, extent.offset), extent.block_checksums());
        self.pending.push((position, Pending::Extent(id, index, extent.clone())));
        self.end_full_comparison(extents)
    }

    /// Ends the comparison with ranges of the base that end before this position.
    fn begin_item(&mut self, position: &Position, extents: &mut ExtentBytes<'_>) -> Result<()> {
        while self.next.as_ref().is_some_and(|next| next.start <= *position) {
            self.end_comparison(extents)?;
            self.current = self.next.take();
            self.next = self.base.next()?;
        }
        Ok(())
    }

    /// Ends a comparison for which no further item can matter: the range of the base has no more bytes.
    fn end_full_comparison(&mut self, extents: &mut ExtentBytes<'_>) -> Result<()> {
        let len = self.digest.len() + (self.encoded.len() - self.digested) as u64;
        match self.current.as_ref().is_some_and(|current| len >= current.len) {
            true => self.end_comparison(extents),
            false => Ok(()),
        }
    }

    /// Adds the pending items to the digest that it does not have yet.
    fn digest_items(&mut self) {
        self.digest.add_encoded(&self.encoded[self.digested..]);
        self.digested = self.encoded.len();
    }

    fn end_comparison(&mut self, extents: &mut ExtentBytes<'_>) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        self.digest_items();
        let found = self.digest.end(current.start.clone());
        match found.filter(|found| *found == current || is_taken_for_same(found, &current)) {
            Some(found) => {
                self.pending.clear();
                self.encoded.clear();
                self.digested = 0;
                self.out.end_range()?;
                self.write_replaced()?;
                self.same += 1;
                self.out.write_entry(found)
            }
            None => self.replace(extents),
        }
    }

    /// Writes the pending items in place of a range of the base.
    fn replace(&mut self, extents: &mut ExtentBytes<'_>) -> Result<()> {
        if !(self.pending.is_empty() && planted(ContentBug::GoneRangesKept)) {
            self.replaced += 1;
        }
        let encoded = std::mem::take(&mut self.encoded);
        self.digested = 0;
        for (position, pending) in std::mem::take(&mut self.pending) {
            self.write_same()?;
            match pending {
                Pending::Encoded(range) => {
                    let item = item::Items(&encoded[range]).next().ok().flatten();
                    let item = item.ok_or_else(|| damage_error("an item that was just encoded"))?;
                    self.out.write_item(&item, || position)?;
                }
                Pending::Extent(id, index, extent) => {
                    write_extent(&mut self.out, (position, id, index), &extent, extents)?;
                }
            }
        }
        Ok(())
    }

    fn write_same(&mut self) -> Result<()> {
        match std::mem::take(&mut self.same) {
            0 => Ok(()),
            ranges => self.out.write_outside(&Item::Same { ranges }),
        }
    }

    /// Says which ranges are replaced, before the next one that is the same.
    fn write_replaced(&mut self) -> Result<()> {
        if self.replaced == 0 {
            return Ok(());
        }
        self.write_same()?;
        let ranges = std::mem::take(&mut self.replaced);
        self.out.write_outside(&Item::Replaced { ranges })
    }

    /// All items were added.
    pub(super) fn end(mut self, extents: &mut ExtentBytes<'_>) -> Result<(ArchiveCounts, u64)> {
        self.end_comparison(extents)?;
        while let Some(gone) = self.next.take() {
            self.current = Some(gone);
            self.end_comparison(extents)?;
            self.next = self.base.next()?;
        }
        self.out.end_range()?;
        self.write_replaced()?;
        self.write_same()?;
        let base = self.base.state.value();
        self.out.end(base)
    }
}

fn is_taken_for_same(found: &RangeEntry, current: &RangeEntry) -> bool {
    planted(ContentBug::ChangedRangesOmitted) && found.len == current.len
}
