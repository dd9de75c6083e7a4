//! The state that a chain of archives shows: a full archive, and increments that were taken after it.
//!
//! An increment says of each range of its base, in order, that it is the same or that it is replaced, and has the items that are new. So the ranges
//! of a chain come one after the other from a reader of each archive, in bounded memory. Each range is compared with its digest, and the state of
//! each archive with the digest in its trailer: the wrong base, or a range too much or too few, is always noticed.

use std::io::Read;

use model::{ContentId, Error, ErrorKind, Result};

use super::archive::{ArchiveHeader, ArchiveKind, ArchiveReader, damage_error};
use super::item::Item;
use super::range::{MAX_RANGE_BYTES, Position, RangeDigest, RangeEntry, StateDigest, position_of};
use crate::plant::{ContentBug, planted};
use crate::rows::row::block_checksums;

/// Most archives of a chain.
pub(crate) const MAX_CHAIN: usize = 1_000;

/// An archive, and the chain before it.
pub(crate) struct Chain<'a> {
    base: Option<Box<Chain<'a>>>,
    archive: ArchiveReader<'a>,
    /// The content of the last range.
    content: ContentId,
    /// Ranges of the base that come next.
    same: u64,
    range: RangeDigest,
    state: StateDigest,
    opened: Option<u32>,
}

/// What comes next in an archive.
enum Step {
    Range(RangeEntry),
    Same(u64),
    Replaced(u64),
    End,
}

impl<'a> Chain<'a> {
    /// The chain of these archives, the full one first.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it has too many or none, or if a full archive comes after another one; those of reading.
    pub(crate) fn begin(archives: Vec<Box<dyn Read + 'a>>) -> Result<Self> {
        if archives.len() > MAX_CHAIN {
            let what = format!("a chain has at most {MAX_CHAIN} archives: make a full backup from time to time");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let mut chain: Option<Box<Self>> = None;
        for from in archives {
            let archive = ArchiveReader::begin(from)?;
            match archive.header.kind {
                ArchiveKind::Full if chain.is_some() => {
                    let what = "a full archive has no base: begin the chain with it";
                    return Err(Error::new(ErrorKind::Invalid, what));
                }
                ArchiveKind::Full | ArchiveKind::Increment => {}
                ArchiveKind::Changes => {
                    let what =
                        "an archive of changes is not one of a state: the archive before it must be restored first";
                    return Err(Error::new(ErrorKind::Invalid, what));
                }
            }
            chain = Some(Box::new(Self {
                base: chain,
                archive,
                content: ContentId(0),
                same: 0,
                range: RangeDigest::default(),
                state: StateDigest::default(),
                opened: None,
            }));
        }
        chain.map(|chain| *chain).ok_or_else(|| Error::new(ErrorKind::Invalid, "there is no archive"))
    }

    fn is_increment(&self) -> bool {
        self.archive.header.kind == ArchiveKind::Increment
    }

    pub(crate) fn header(&self) -> ArchiveHeader {
        self.archive.header
    }

    /// How often the store had been opened, when all was read.
    pub(crate) fn open_count(&self) -> Option<u32> {
        self.opened
    }

    /// Bytes read so far, of all archives.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.archive.bytes_read() + self.base.as_ref().map_or(0, |base| base.bytes_read())
    }

    /// Reads the items of the next range into `out`. Returns nothing at the end, when all archives have proved to be complete and right.
    pub(crate) fn next_range(&mut self, out: &mut Vec<u8>) -> Result<Option<RangeEntry>> {
        loop {
            if self.same > 0 {
                self.same -= 1;
                let (entry, content) = self.next_of_base(out)?.ok_or_else(wrong_base)?;
                self.content = content;
                self.state.add(&entry);
                return Ok(Some(entry));
            }
            match self.next_step(out)? {
                Step::Range(entry) => {
                    self.state.add(&entry);
                    return Ok(Some(entry));
                }
                Step::Same(ranges) => self.same = ranges,
                Step::Replaced(ranges) => {
                    for _ in 0..ranges {
                        self.next_of_base(out)?.ok_or_else(wrong_base)?;
                    }
                }
                Step::End => return self.check_end(out).map(|()| None),
            }
        }
    }

    /// The next range of the base, and its content.
    fn next_of_base(&mut self, out: &mut Vec<u8>) -> Result<Option<(RangeEntry, ContentId)>> {
        let Some(base) = &mut self.base else { return Ok(None) };
        Ok(base.next_range(out)?.map(|entry| (entry, base.content)))
    }

    fn next_step(&mut self, out: &mut Vec<u8>) -> Result<Step> {
        out.clear();
        // Where the items begin in `out` that the digest does not have yet.
        let mut undigested = 0;
        let mut start = Position::default();
        loop {
            let Some((item, encoded)) = self.archive.next_item()? else {
                let is_complete = out.is_empty() || planted(ContentBug::CutArchiveRestored);
                return if is_complete { Ok(Step::End) } else { Err(damage_error("it ends within a range")) };
            };
            match item {
                Item::RangeEnd { digest } => {
                    self.range.add_encoded(&out[undigested..]);
                    let entry = self.range.end(start).ok_or_else(|| damage_error("it has an empty range"))?;
                    return match entry.digest == digest {
                        true => Ok(Step::Range(entry)),
                        false => Err(damage_error("the digest of a range does not match")),
                    };
                }
                Item::Same { .. } | Item::Replaced { .. } | Item::Incarnation { .. } if !out.is_empty() => {
                    return Err(damage_error("a range is interrupted"));
                }
                Item::Same { ranges } => return Ok(Step::Same(ranges)),
                Item::Replaced { ranges } => return Ok(Step::Replaced(ranges)),
                Item::Incarnation { times } => {
                    self.opened = Some(times);
                    continue;
                }
                Item::Content { id, .. } => self.content = id,
                Item::Bytes { .. } | Item::Extent { .. } | Item::Row { .. } => {}
                Item::Cleared { .. } | Item::RemovedContent { .. } | Item::RemovedRow { .. } => {
                    return Err(damage_error("it has an item of an archive of changes"));
                }
            }
            if out.is_empty() {
                start = position_of(&item, self.content).ok_or_else(|| damage_error("a range has no beginning"))?;
            }
            if let Item::Extent { index, file, offset, bytes, .. } = item {
                self.range.add_encoded(&out[undigested..]);
                self.range.add_extent(index, (file, offset), block_checksums(bytes));
                undigested = out.len() + encoded.len();
            }
            out.extend_from_slice(encoded);
            if out.len() as u64 > MAX_RANGE_BYTES {
                return Err(damage_error("a range is too long"));
            }
        }
    }

    fn check_end(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let is_checked = !planted(ContentBug::BaseNotChecked) && !planted(ContentBug::CutArchiveRestored);
        if self.next_of_base(out)?.is_some() && is_checked {
            return Err(wrong_base());
        }
        let trailer = self.archive.trailer().ok_or_else(|| damage_error("it ends too early"))?;
        let empty = StateDigest::default();
        let base = self.base.as_ref().map_or(&empty, |base| &base.state).value();
        if self.is_increment() && trailer.base != base && is_checked {
            return Err(wrong_base());
        }
        match trailer.state == self.state.value() || !is_checked {
            true => Ok(()),
            false if self.is_increment() => Err(wrong_base()),
            false => Err(damage_error("the digest of its state does not match")),
        }
    }
}

fn wrong_base() -> Error {
    let what = "the archive before an increment is not its base: name the archives in the order in which they were taken, the full one first";
    Error::new(ErrorKind::Invalid, what)
}
