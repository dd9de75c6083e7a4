//! The framing of an archive: header, parts, trailer. `docs/format.md` has the byte layout.
//!
//! Each part has a number, and a checksum that includes the archive's header, so a part that is damaged, missing,
//! misplaced or from another archive is detected. Parts have items, or entries of the index of their ranges (`range`). The trailer has counts and
//! the digest of the state. An archive without a valid trailer is incomplete.

use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use model::{Error, ErrorKind, Result};

use super::chain::Chain;
use super::item::{self, Item, ItemError};
use super::range::{Entries, Position, RANGE_BYTES, RangeDigest, RangeEntry, StateDigest, encode_entry};
use crate::checksum::{crc32c, crc32c_behind, crc32c_parts};
use crate::error;
use crate::log::frame::StoreId;
use crate::plant::{ContentBug, planted};
use crate::rows::mob::Seq;

const MAGIC: &[u8; 8] = b"mortarbk";
const FORMAT: u32 = 4;
/// Bytes of the header.
const HEADER: usize = 49;
/// Bytes of a part before its items.
const PART_HEADER: usize = 20;
/// Where the bytes of a part begin that its checksum includes.
const CHECKED_FROM: usize = 8;
/// A part is written when it has at least this many bytes.
const PART: usize = 256 << 10;
/// Maximum number of bytes of a part: one more item than `PART`, of which a row is the longest.
const PART_MAX: usize = 6 << 20;
/// Kinds of parts.
const ITEMS: u32 = 1;
const END: u32 = 2;
const INDEX: u32 = 3;

/// What an archive has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchiveKind {
    /// A state.
    Full,
    /// What a state has that another archive, its base, does not have.
    Increment,
    /// What a state has of the items that have changed (`changes`).
    Changes,
}

/// The header of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveHeader {
    /// The store that was backed up.
    pub(crate) store: StoreId,
    /// The log position that the archive shows.
    pub(crate) version: Seq,
    /// When the backup began, in microseconds since 1970.
    pub(crate) time_us: i64,
    pub(crate) kind: ArchiveKind,
}

/// The counts in the trailer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ArchiveCounts {
    pub(crate) contents: u64,
    pub(crate) content_bytes: u64,
    pub(crate) chunks: u64,
    pub(crate) rows: u64,
}

impl ArchiveCounts {
    pub(crate) fn count(&mut self, item: &Item<'_>) {
        match item {
            Item::Incarnation { .. }
            | Item::RangeEnd { .. }
            | Item::Same { .. }
            | Item::Replaced { .. }
            | Item::Cleared { .. }
            | Item::RemovedContent { .. }
            | Item::RemovedRow { .. } => {}
            Item::Content { size, .. } => {
                self.contents += 1;
                self.content_bytes = self.content_bytes.saturating_add(*size);
            }
            Item::Bytes { .. } | Item::Extent { .. } => self.chunks += 1,
            Item::Row { .. } => self.rows += 1,
        }
    }

    /// Rows and contents.
    pub(crate) fn items(&self) -> u64 {
        self.contents + self.rows
    }

    fn to_array(self) -> [u64; 4] {
        [self.contents, self.content_bytes, self.chunks, self.rows]
    }
}

impl ArchiveHeader {
    /// The header of an archive that begins now, of a store at a position of its log.
    pub(crate) fn new((store, version): (StoreId, Seq), kind: ArchiveKind) -> Self {
        let time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        Self { store, version, time_us, kind }
    }

    fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..28].copy_from_slice(&self.store);
        out[28..36].copy_from_slice(&self.version.to_le_bytes());
        out[36..44].copy_from_slice(&self.time_us.to_le_bytes());
        out[44] = match self.kind {
            ArchiveKind::Full => 0,
            ArchiveKind::Increment => 1,
            ArchiveKind::Changes => 2,
        };
        let crc = crc32c(&out[..45]);
        out[45..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn check_format(bytes: &[u8; HEADER]) -> Result<()> {
        if bytes[..8] != *MAGIC {
            let what = "this is not an archive of Mortar, or its first bytes are damaged";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let format = le32(bytes, 8);
        if format != FORMAT {
            let message = format!(
                "the archive has format {format}; this version reads format {FORMAT}: use the version that wrote it"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }

    fn decode(bytes: &[u8; HEADER]) -> Result<Self> {
        let kind = match bytes[44] {
            0 => Some(ArchiveKind::Full),
            1 => Some(ArchiveKind::Increment),
            2 => Some(ArchiveKind::Changes),
            _ => None,
        };
        let kind = kind.filter(|_| crc32c(&bytes[..45]) == le32(bytes, 45));
        let kind = kind.ok_or_else(|| damage_error("its header's checksum does not match"))?;
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[12..28]);
        let (version, time_us) = (le64(bytes, 28), le64(bytes, 36) as i64);
        Ok(Self { store, version, time_us, kind })
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// The error for an archive that cannot be used.
pub(crate) fn damage_error(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the archive is damaged: {why}; use another archive"))
}

/// Where an archive goes.
pub trait ArchiveSink {
    /// Takes the next bytes of the archive, with their CRC-32C. Returns memory for later ones, whatever it has in it.
    ///
    /// # Errors
    /// Those of what is behind it: the archive is not complete then.
    fn write(&mut self, bytes: Vec<u8>, checksum: u32) -> io::Result<Vec<u8>>;
}

impl ArchiveSink for Vec<u8> {
    fn write(&mut self, bytes: Vec<u8>, _: u32) -> io::Result<Vec<u8>> {
        self.extend_from_slice(&bytes);
        Ok(bytes)
    }
}

/// Writes an archive, part by part.
pub(crate) struct ArchiveWriter<'a> {
    out: &'a mut dyn ArchiveSink,
    /// The checksum of the header, which the checksums of the parts include.
    salt: u32,
    number: u64,
    part: Vec<u8>,
    counts: ArchiveCounts,
    /// The open range, where it begins, and where its items begin in `part` that the digest does not have yet.
    range: RangeDigest,
    start: Position,
    undigested: usize,
    /// Entries of the index that are not written yet, and the position of the last one.
    index: Vec<u8>,
    last_entry: Position,
    state: StateDigest,
    bytes_written: u64,
}

impl<'a> ArchiveWriter<'a> {
    pub(crate) fn begin(out: &'a mut dyn ArchiveSink, header: &ArchiveHeader) -> Result<Self> {
        let header = header.encode();
        let mut writer = Self {
            out,
            salt: le32(&header, 45),
            number: 0,
            part: vec![0; PART_HEADER],
            counts: ArchiveCounts::default(),
            range: RangeDigest::default(),
            start: Position::default(),
            undigested: PART_HEADER,
            index: vec![0; PART_HEADER],
            last_entry: Position::default(),
            state: StateDigest::default(),
            bytes_written: 0,
        };
        writer.write(header.to_vec(), crc32c(&header))?;
        Ok(writer)
    }

    /// Writes an item that is in no range.
    pub(crate) fn write_outside(&mut self, item: &Item<'_>) -> Result<()> {
        self.digest_items();
        self.counts.count(item);
        item::encode(&mut self.part, item);
        self.undigested = self.part.len();
        self.write_full_part()
    }

    /// Writes an item that is no chunk in a blob file. `position` is called if a range begins with it.
    pub(crate) fn write_item(&mut self, item: &Item<'_>, position: impl FnOnce() -> Position) -> Result<()> {
        self.begin_item(position)?;
        self.counts.count(item);
        item::encode(&mut self.part, item);
        self.write_full_part()
    }

    /// Writes a chunk in a blob file; `blocks` are the checksums of its blocks.
    pub(crate) fn write_extent(
        &mut self,
        item: &Item<'_>,
        blocks: impl Iterator<Item = u32>,
        position: impl FnOnce() -> Position,
    ) -> Result<()> {
        let Item::Extent { index, file, offset, .. } = item else { return self.write_item(item, position) };
        self.begin_item(position)?;
        self.counts.count(item);
        self.digest_items();
        item::encode(&mut self.part, item);
        self.undigested = self.part.len();
        self.range.add_extent(*index, (*file, *offset), blocks);
        self.write_full_part()
    }

    /// Adds the items to the digest of the open range that it does not have yet.
    fn digest_items(&mut self) {
        self.range.add_encoded(&self.part[self.undigested..]);
        self.undigested = self.part.len();
    }

    /// Bytes of the open range.
    fn range_len(&self) -> u64 {
        self.range.len() + (self.part.len() - self.undigested) as u64
    }

    fn begin_item(&mut self, position: impl FnOnce() -> Position) -> Result<()> {
        if self.range_len() >= RANGE_BYTES as u64 {
            self.end_range()?;
        }
        if self.range_len() == 0 {
            self.start = position();
        }
        Ok(())
    }

    /// Ends the open range, if there is one.
    pub(crate) fn end_range(&mut self) -> Result<()> {
        self.digest_items();
        let Some(entry) = self.range.end(std::mem::take(&mut self.start)) else { return Ok(()) };
        item::encode(&mut self.part, &Item::RangeEnd { digest: entry.digest });
        self.undigested = self.part.len();
        self.write_entry(entry)
    }

    /// Adds a range to the index.
    pub(crate) fn write_entry(&mut self, entry: RangeEntry) -> Result<()> {
        encode_entry(&mut self.index, &self.last_entry, &entry);
        self.state.add(&entry);
        self.last_entry = entry.start;
        if self.index.len() < PART { Ok(()) } else { self.write_index() }
    }

    fn write_index(&mut self) -> Result<()> {
        self.last_entry = Position::default();
        let mut index = std::mem::take(&mut self.index);
        self.write_part(INDEX, &mut index)?;
        self.index = index;
        Ok(())
    }

    /// Rows and contents written so far.
    pub(crate) fn items(&self) -> u64 {
        self.counts.items()
    }

    /// Writes the trailer, with the digest of the state of the base; returns the counts and the bytes of the archive.
    pub(crate) fn end(mut self, base: u64) -> Result<(ArchiveCounts, u64)> {
        self.end_range()?;
        if self.part.len() > PART_HEADER {
            self.write_items()?;
        }
        if self.index.len() > PART_HEADER {
            self.write_index()?;
        }
        let mut trailer = vec![0; PART_HEADER];
        for number in self.counts.to_array().into_iter().chain([self.state.value(), base]) {
            trailer.extend_from_slice(&number.to_le_bytes());
        }
        self.write_part(END, &mut trailer)?;
        Ok((self.counts, self.bytes_written))
    }

    fn write_full_part(&mut self) -> Result<()> {
        if self.part.len() < PART { Ok(()) } else { self.write_items() }
    }

    fn write_items(&mut self) -> Result<()> {
        self.digest_items();
        self.undigested = PART_HEADER;
        let mut part = std::mem::take(&mut self.part);
        self.write_part(ITEMS, &mut part)?;
        self.part = part;
        Ok(())
    }

    /// Writes a part, and empties it.
    fn write_part(&mut self, kind: u32, part: &mut Vec<u8>) -> Result<()> {
        assert!(part.len() <= PART_MAX, "a part has at most PART_MAX bytes");
        let len = (part.len() - PART_HEADER) as u32;
        part[8..16].copy_from_slice(&self.number.to_le_bytes());
        part[16..20].copy_from_slice(&kind.to_le_bytes());
        // The bytes are read once, for the checksum of the part and for that of the whole.
        let (body, checksum) = (part.len() - CHECKED_FROM, crc32c(&part[CHECKED_FROM..]));
        let crc = crc32c_behind(&self.salt.to_le_bytes(), checksum, body);
        part[..4].copy_from_slice(&len.to_le_bytes());
        part[4..CHECKED_FROM].copy_from_slice(&crc.to_le_bytes());
        let whole = crc32c_behind(&part[..CHECKED_FROM], checksum, body);
        self.number += 1;
        *part = self.write(std::mem::take(part), whole)?;
        part.clear();
        part.resize(PART_HEADER, 0);
        Ok(())
    }

    /// Writes bytes with this checksum. Returns memory for later ones.
    fn write(&mut self, bytes: Vec<u8>, checksum: u32) -> Result<Vec<u8>> {
        self.bytes_written += bytes.len() as u64;
        self.out.write(bytes, checksum).map_err(write_error)
    }
}

fn write_error(error: io::Error) -> Error {
    error::io("writing the archive", error)
}

/// Reads an archive part by part. Each part is verified before its items are passed on.
pub(crate) struct ArchiveReader<'a> {
    from: Box<dyn Read + 'a>,
    pub(crate) header: ArchiveHeader,
    salt: u32,
    number: u64,
    part: Vec<u8>,
    /// Where the next item of the part begins.
    at: usize,
    counts: ArchiveCounts,
    /// The digest of the state, from the index.
    indexed: StateDigest,
    last_entry: Option<Position>,
    bytes_read: u64,
    trailer: Option<Trailer>,
}

/// What a valid trailer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    /// The digest of the state.
    pub(crate) state: u64,
    /// The digest of the state of the base.
    pub(crate) base: u64,
}

/// What a part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartKind {
    Items,
    Index,
    End,
}

impl<'a> ArchiveReader<'a> {
    pub(crate) fn begin(mut from: Box<dyn Read + 'a>) -> Result<Self> {
        let mut bytes = [0; HEADER];
        // The error names the format even if the rest of a shorter header is missing.
        fill(&mut *from, &mut bytes[..12], || "its header".to_owned())?;
        ArchiveHeader::check_format(&bytes)?;
        fill(&mut *from, &mut bytes[12..], || "its header".to_owned())?;
        Ok(Self {
            from,
            header: ArchiveHeader::decode(&bytes)?,
            salt: le32(&bytes, 45),
            number: 0,
            part: Vec::new(),
            at: 0,
            counts: ArchiveCounts::default(),
            indexed: StateDigest::default(),
            last_entry: None,
            bytes_read: HEADER as u64,
            trailer: None,
        })
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The trailer, when all was read.
    pub(crate) fn trailer(&self) -> Option<Trailer> {
        self.trailer
    }

    /// The next item, with its encoding; `None` after a valid trailer.
    pub(crate) fn next_item(&mut self) -> Result<Option<(Item<'_>, &[u8])>> {
        while self.at == self.part.len() {
            match self.next_part()? {
                PartKind::Items => {}
                PartKind::Index => self.at = self.part.len(),
                PartKind::End => return Ok(None),
            }
        }
        let mut items = item::Items(&self.part[self.at..]);
        let part = self.number - 1;
        let found = items.next().map_err(|e| item_error(e, &format!("part {part}")))?;
        let Some(found) = found else { return Err(damage_error(format!("part {part} ends within an item"))) };
        let encoded = &self.part[self.at..self.part.len() - items.0.len()];
        self.at += encoded.len();
        self.counts.count(&found);
        Ok(Some((found, encoded)))
    }

    /// The bytes of the next part of the index; `None` after a valid trailer.
    pub(crate) fn next_index(&mut self) -> Result<Option<&[u8]>> {
        loop {
            match self.next_part()? {
                PartKind::Items => self.count_items()?,
                PartKind::Index => return Ok(Some(&self.part)),
                PartKind::End => return Ok(None),
            }
        }
    }

    fn count_items(&mut self) -> Result<()> {
        let mut items = item::Items(&self.part);
        while let Some(found) = items.next().map_err(|e| item_error(e, &format!("part {}", self.number - 1)))? {
            self.counts.count(&found);
        }
        Ok(())
    }

    /// Reads and verifies the next part.
    fn next_part(&mut self) -> Result<PartKind> {
        if self.trailer.is_some() {
            return Ok(PartKind::End);
        }
        let (number, at) = (self.number, self.bytes_read);
        let place = || format!("part {number}, at byte {at}");
        let mut header = [0; PART_HEADER];
        let filled = fill(&mut *self.from, &mut header, place);
        if filled.is_err() && planted(ContentBug::CutArchiveRestored) {
            self.trailer = Some(Trailer { state: self.indexed.value(), base: 0 });
            return Ok(PartKind::End);
        }
        filled?;
        let len = le32(&header, 0) as usize;
        if len > PART_MAX {
            return Err(damage_error(format!("{} has {len} bytes", place())));
        }
        self.part.resize(len, 0);
        self.at = 0;
        fill(&mut *self.from, &mut self.part, place)?;
        if crc32c_parts(&[&self.salt.to_le_bytes(), &header[8..], &self.part]) != le32(&header, 4) {
            return Err(damage_error(format!("the checksum of {} does not match", place())));
        }
        if le64(&header, 8) != number {
            return Err(damage_error(format!("{} has the number {}", place(), le64(&header, 8))));
        }
        self.number += 1;
        self.bytes_read += (PART_HEADER + len) as u64;
        match le32(&header, 16) {
            ITEMS => Ok(PartKind::Items),
            INDEX => self.note_entries().map(|()| PartKind::Index),
            END => {
                self.trailer = Some(self.check_end()?);
                self.check_nothing_follows().map(|()| PartKind::End)
            }
            other => {
                let message =
                    format!("{} of the archive is of kind {other}, which this version does not know", place());
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }

    fn note_entries(&mut self) -> Result<()> {
        let mut entries = Entries::new(&self.part);
        while let Some(entry) = entries.next()? {
            if self.last_entry.as_ref().is_some_and(|last| *last >= entry.start) {
                return Err(damage_error("the entries of its index are not in order"));
            }
            self.indexed.add(&entry);
            self.last_entry = Some(entry.start);
        }
        Ok(())
    }

    fn check_nothing_follows(&mut self) -> Result<()> {
        let mut next = [0];
        match self.from.read_exact(&mut next) {
            Ok(()) => Err(damage_error(format!("more bytes follow after its end at byte {}", self.bytes_read))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(read_error(error)),
        }
    }

    fn check_end(&self) -> Result<Trailer> {
        let said: Vec<u64> = self.part.chunks_exact(8).map(|bytes| le64(bytes, 0)).collect();
        let found: Vec<u64> = self.counts.to_array().into_iter().chain([self.indexed.value()]).collect();
        match said.split_last() {
            Some((base, rest)) if rest == found && self.part.len() == 8 * said.len() => {
                Ok(Trailer { state: self.indexed.value(), base: *base })
            }
            _ => Err(damage_error("its trailer does not match its parts")),
        }
    }
}

/// Whether the bytes are a valid archive, or the items of a part. For fuzzing.
///
/// # Panics
/// If an item differs from what its encoding decodes to.
#[must_use]
pub fn check_archive(bytes: &[u8]) -> bool {
    let whole = Chain::begin(vec![Box::new(bytes)]).and_then(|mut chain| {
        let mut range = Vec::new();
        while chain.next_range(&mut range)?.is_some() {}
        Ok(())
    });
    let (mut items, mut rest) = (item::Items(bytes), bytes);
    while let Ok(Some(item)) = items.next() {
        let (taken, behind) = rest.split_at(rest.len() - items.0.len());
        let mut again = Vec::new();
        item::encode(&mut again, &item);
        assert_eq!(again, taken, "an item decodes to itself");
        rest = behind;
    }
    whole.is_ok() || rest.is_empty()
}

/// Reads an archive for the index of its ranges: calls `show` with each piece, as a base of an increment needs them. All parts are verified.
///
/// # Errors
/// Those of `show` and of reading; [`ErrorKind::Corrupt`] for a damaged or incomplete archive.
pub fn read_archive_index(from: &mut dyn Read, show: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut reader = ArchiveReader::begin(Box::new(from))?;
    while let Some(piece) = reader.next_index()? {
        show(piece)?;
    }
    Ok(())
}

fn item_error(error: ItemError, place: &str) -> Error {
    if let ItemError::Kind(_) = error {
        return Error::new(ErrorKind::Unsupported, format!("{place} of the archive: {error}")).with_source(error);
    }
    damage_error(format!("{place}: {error}"))
}

fn fill(from: &mut dyn Read, out: &mut [u8], what: impl Fn() -> String) -> Result<()> {
    from.read_exact(out).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => damage_error(format!("it ends in {}: the rest is missing", what())),
        _ => read_error(e),
    })
}

fn read_error(error: io::Error) -> Error {
    match error.kind() {
        // An encrypted archive that is not authentic.
        io::ErrorKind::InvalidData => damage_error(error),
        _ => error::io("reading the archive", error),
    }
}
