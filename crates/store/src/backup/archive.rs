//! The framing of an archive: header, parts, trailer. `docs/format.md` has the byte layout.
//!
//! Each part has a number, and a checksum that includes the archive's header, so a part that is damaged, missing,
//! misplaced or from another archive is detected. The trailer has counts and a digest of every byte before it. An
//! archive without a valid trailer is incomplete.

use std::io::{self, Read, Write};

use crc_fast::{CrcAlgorithm, Digest};
use model::{Error, ErrorKind, Result};

use super::item::{self, Item, ItemError};
use crate::checksum::{crc32c, crc32c_parts};
use crate::error;
use crate::log::frame::StoreId;
use crate::plant::{ContentBug, planted};
use crate::rows::mob::Seq;

const MAGIC: &[u8; 8] = b"mortarbk";
const FORMAT: u32 = 3;
/// Bytes of the header.
const HEADER: usize = 48;
/// Bytes of a part before its items.
const PART_HEADER: usize = 20;
/// A part is written when it has at least this many bytes.
const PART: usize = 256 << 10;
/// Maximum number of bytes of a part: one more item than `PART`, of which a row is the longest.
const PART_MAX: usize = 6 << 20;
/// Kinds of parts.
const ITEMS: u32 = 1;
const END: u32 = 2;

/// The header of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchiveHeader {
    /// The store that was backed up.
    pub(crate) store: StoreId,
    /// The log position that the archive shows.
    pub(crate) version: Seq,
    /// When the backup began, in microseconds since 1970.
    pub(crate) time_us: i64,
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
            Item::Incarnation { .. } => {}
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
    fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..28].copy_from_slice(&self.store);
        out[28..36].copy_from_slice(&self.version.to_le_bytes());
        out[36..44].copy_from_slice(&self.time_us.to_le_bytes());
        let crc = crc32c(&out[..44]);
        out[44..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; HEADER]) -> Result<Self> {
        if bytes[..8] != *MAGIC {
            return Err(Error::new(ErrorKind::Invalid, "this is not an archive of Mortar"));
        }
        let format = le32(bytes, 8);
        if format != FORMAT {
            let message = format!(
                "the archive has format {format}; this version reads format {FORMAT}: use the version that wrote it"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if crc32c(&bytes[..44]) != le32(bytes, 44) {
            return Err(damaged("its header's checksum does not match"));
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[12..28]);
        Ok(Self { store, version: le64(bytes, 28), time_us: le64(bytes, 36) as i64 })
    }
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// The error for an archive that cannot be used.
pub(crate) fn damaged(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the archive is damaged: {why}; use another archive"))
}

/// Writes an archive, part by part.
pub(crate) struct ArchiveWriter<'a> {
    out: &'a mut dyn Write,
    /// The checksum of the header, which the checksums of the parts include.
    salt: u32,
    number: u64,
    part: Vec<u8>,
    counts: ArchiveCounts,
    digest: Digest,
    bytes_written: u64,
}

impl<'a> ArchiveWriter<'a> {
    pub(crate) fn begin(out: &'a mut dyn Write, header: &ArchiveHeader) -> Result<Self> {
        let header = header.encode();
        let mut writer = Self {
            out,
            salt: le32(&header, 44),
            number: 0,
            part: vec![0; PART_HEADER],
            counts: ArchiveCounts::default(),
            digest: Digest::new(CrcAlgorithm::Crc64Nvme),
            bytes_written: 0,
        };
        writer.write(&header)?;
        Ok(writer)
    }

    pub(crate) fn write_item(&mut self, item: &Item<'_>) -> Result<()> {
        self.counts.count(item);
        item::encode(&mut self.part, item);
        if self.part.len() < PART { Ok(()) } else { self.write_part(ITEMS) }
    }

    /// Bytes written so far.
    pub(crate) fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Rows and contents written so far.
    pub(crate) fn items(&self) -> u64 {
        self.counts.items()
    }

    /// Writes the trailer; returns the counts and the bytes of the archive.
    pub(crate) fn end(mut self) -> Result<(ArchiveCounts, u64)> {
        if self.part.len() > PART_HEADER {
            self.write_part(ITEMS)?;
        }
        let digest = self.digest.finalize();
        for number in self.counts.to_array().into_iter().chain([digest]) {
            self.part.extend_from_slice(&number.to_le_bytes());
        }
        self.write_part(END)?;
        self.out.flush().map_err(write_error)?;
        Ok((self.counts, self.bytes_written))
    }

    fn write_part(&mut self, kind: u32) -> Result<()> {
        let mut part = std::mem::take(&mut self.part);
        assert!(part.len() <= PART_MAX, "a part has at most PART_MAX bytes");
        let len = (part.len() - PART_HEADER) as u32;
        part[8..16].copy_from_slice(&self.number.to_le_bytes());
        part[16..20].copy_from_slice(&kind.to_le_bytes());
        let crc = crc32c_parts(&[&self.salt.to_le_bytes(), &part[8..]]);
        part[..4].copy_from_slice(&len.to_le_bytes());
        part[4..8].copy_from_slice(&crc.to_le_bytes());
        self.number += 1;
        self.write(&part)?;
        part.truncate(PART_HEADER);
        self.part = part;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.digest.update(bytes);
        self.bytes_written += bytes.len() as u64;
        self.out.write_all(bytes).map_err(write_error)
    }
}

fn write_error(error: io::Error) -> Error {
    error::io("writing the archive", error)
}

/// Reads an archive part by part. Each part is verified before its items are passed on.
pub(crate) struct ArchiveReader<'a> {
    from: &'a mut dyn Read,
    pub(crate) header: ArchiveHeader,
    salt: u32,
    number: u64,
    part: Vec<u8>,
    counts: ArchiveCounts,
    digest: Digest,
    bytes_read: u64,
}

impl<'a> ArchiveReader<'a> {
    pub(crate) fn begin(from: &'a mut dyn Read) -> Result<Self> {
        let mut bytes = [0; HEADER];
        fill(from, &mut bytes, || "its header".to_owned())?;
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(&bytes);
        let (header, salt) = (ArchiveHeader::decode(&bytes)?, le32(&bytes, 44));
        let (part, counts) = (Vec::new(), ArchiveCounts::default());
        Ok(Self { from, header, salt, number: 0, part, counts, digest, bytes_read: HEADER as u64 })
    }

    /// Bytes read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    pub(crate) fn counts(&self) -> ArchiveCounts {
        self.counts
    }

    /// Calls `show` with the items of the next part. Returns `false` after a valid trailer.
    pub(crate) fn read_part(&mut self, show: &mut dyn FnMut(Item<'_>) -> Result<()>) -> Result<bool> {
        let (number, at) = (self.number, self.bytes_read);
        let place = || format!("part {number}, at byte {at}");
        let mut header = [0; PART_HEADER];
        let filled = fill(self.from, &mut header, place);
        if filled.is_err() && planted(ContentBug::CutArchiveRestored) {
            return Ok(false);
        }
        filled?;
        let len = le32(&header, 0) as usize;
        if len > PART_MAX {
            return Err(damaged(format!("{} has {len} bytes", place())));
        }
        self.part.resize(len, 0);
        fill(self.from, &mut self.part, place)?;
        if crc32c_parts(&[&self.salt.to_le_bytes(), &header[8..], &self.part]) != le32(&header, 4) {
            return Err(damaged(format!("the checksum of {} does not match", place())));
        }
        if le64(&header, 8) != number {
            return Err(damaged(format!("{} has the number {}", place(), le64(&header, 8))));
        }
        self.number += 1;
        self.bytes_read += (PART_HEADER + len) as u64;
        match le32(&header, 16) {
            ITEMS => {}
            END => {
                self.check_end()?;
                return self.check_nothing_follows().map(|()| false);
            }
            other => {
                let message =
                    format!("{} of the archive is of kind {other}, which this version does not know", place());
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        self.digest.update(&header);
        self.digest.update(&self.part);
        let mut items = item::Items(&self.part);
        while let Some(item) = items.next().map_err(|e| item_error(e, &place()))? {
            self.counts.count(&item);
            show(item)?;
        }
        Ok(true)
    }

    fn check_nothing_follows(&mut self) -> Result<()> {
        let mut next = [0];
        match self.from.read_exact(&mut next) {
            Ok(()) => Err(damaged(format!("more bytes follow after its end at byte {}", self.bytes_read))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            Err(error) => Err(read_error(error)),
        }
    }

    fn check_end(&self) -> Result<()> {
        let said: Vec<u64> = self.part.chunks_exact(8).map(|bytes| le64(bytes, 0)).collect();
        let found: Vec<u64> = self.counts.to_array().into_iter().chain([self.digest.finalize()]).collect();
        if said == found { Ok(()) } else { Err(damaged("its trailer does not match its parts")) }
    }
}

/// Whether the bytes are a valid archive, or the items of a part. For fuzzing.
///
/// # Panics
/// If an item differs from what its encoding decodes to.
#[must_use]
pub fn check_archive(bytes: &[u8]) -> bool {
    let mut from = bytes;
    let whole = ArchiveReader::begin(&mut from).and_then(|mut reader| {
        while reader.read_part(&mut |_| Ok(()))? {}
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

fn item_error(error: ItemError, place: &str) -> Error {
    if let ItemError::Kind(_) = error {
        return Error::new(ErrorKind::Unsupported, format!("{place} of the archive: {error}")).caused_by(error);
    }
    damaged(format!("{place}: {error}"))
}

fn fill(from: &mut dyn Read, out: &mut [u8], what: impl Fn() -> String) -> Result<()> {
    from.read_exact(out).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => damaged(format!("it ends in {}: the rest is missing", what())),
        _ => read_error(e),
    })
}

fn read_error(error: io::Error) -> Error {
    match error.kind() {
        // An encrypted archive that is not authentic.
        io::ErrorKind::InvalidData => damaged(error),
        _ => error::io("reading the archive", error),
    }
}
