//! The archive of a whole cluster: the parts of its stores, interleaved as they come.
//!
//! ```text
//!   "mortcls4" | frame | frame | …
//!   frame: kind u8 | part u16 | length u32 | crc32c u32 of the 7 bytes before and the payload | payload
//! ```
//!
//! | kind | payload |
//! | --- | --- |
//! | 1 | the name of the part: `catalogue`, or `brick-7`; before its bytes |
//! | 2 | bytes of the part, at most 1 MiB |
//! | 3 | the number of its bytes, u64: it is complete |
//! | 4 | the number of parts, u16: the archive is complete; `part` is 0 |
//! | 5 | [`ArchiveHeader`], in the first frame only; `part` is 0 |
//!
//! Numbers are little-endian. Parts are numbered from 1 in the order of their names in the archive. The part of a brick is an archive of its
//! store (docs/format.md, "Backups"), which has checks of its own.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::mpsc::Receiver;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use model::checksum::{crc32c, crc32c_behind};
use model::{Error, ErrorKind, Result};

/// The first bytes of an archive. One altered bit makes none of the former ones of it.
pub const MAGIC: &[u8; 8] = b"mortcls4";
/// Those of archives without a head, and of heads without a cluster, from before the first release.
const FORMER_MAGICS: [&[u8; 8]; 2] = [b"mortcls1", b"mortcls2"];
/// The most bytes of a part in a frame.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The most parts: a catalogue, and bricks.
pub const MAX_PARTS: u16 = 4_096;
const MAX_NAME: usize = 32;
/// The last byte of the head of an archive of changes.
const CHANGES: u8 = 1;
/// Most payloads whose memory is kept.
const MAX_SPARE: usize = 64;

mod kind {
    pub(super) const NAME: u8 = 1;
    pub(super) const BYTES: u8 = 2;
    pub(super) const PART_END: u8 = 3;
    pub(super) const END: u8 = 4;
    pub(super) const HEAD: u8 = 5;
}

/// Which archive an archive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveId {
    /// A random number.
    pub number: u128,
    /// When the backup began, in microseconds since 1970-01-01T00:00Z.
    pub time_us: i64,
}

/// What the first frame of an archive says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveHeader {
    /// The number of the cluster.
    pub cluster: u128,
    /// This archive.
    pub id: ArchiveId,
    /// The archive that it needs, if it has only what has changed since.
    pub base: Option<ArchiveId>,
    /// Whether its parts are archives of changes, by which the restored base is rolled forward, and no increments.
    pub is_changes: bool,
}

impl ArchiveId {
    const LEN: usize = 24;

    /// The identity of an archive of this moment.
    #[must_use]
    pub fn new() -> Self {
        let time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        Self { number: rand::random(), time_us }
    }

    fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.time_us.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (number, time_us) = bytes.split_first_chunk()?;
        Some(Self { number: u128::from_le_bytes(*number), time_us: i64::from_le_bytes(time_us.try_into().ok()?) })
    }
}

impl Default for ArchiveId {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Display for ArchiveId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:08x}, taken {}", self.number >> 96, model::Timestamp::from_micros(self.time_us))
    }
}

impl ArchiveHeader {
    /// The head of a new archive of a cluster.
    #[must_use]
    pub fn new(cluster: u128, base: Option<ArchiveId>) -> Self {
        Self { cluster, id: ArchiveId::new(), base, is_changes: false }
    }

    /// The head of a new archive of changes since `base`. Its time is after that of the base, also if the clock went back.
    #[must_use]
    pub fn of_changes(cluster: u128, base: ArchiveId) -> Self {
        let mut head = Self { is_changes: true, ..Self::new(cluster, Some(base)) };
        head.id.time_us = head.id.time_us.max(base.time_us.saturating_add(1));
        head
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.cluster.to_le_bytes().to_vec();
        bytes.extend(self.id.encode());
        bytes.extend(self.base.map(ArchiveId::encode).into_iter().flatten());
        bytes.extend(self.is_changes.then_some(CHANGES));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (cluster, rest) = bytes.split_first_chunk()?;
        let cluster = u128::from_le_bytes(*cluster);
        let (id, rest) = rest.split_at_checked(ArchiveId::LEN)?;
        let id = ArchiveId::decode(id)?;
        if rest.is_empty() {
            return Some(Self { cluster, id, base: None, is_changes: false });
        }
        let (base, kind) = rest.split_at_checked(ArchiveId::LEN)?;
        let is_changes = match kind {
            [] => false,
            [CHANGES] => true,
            _ => return None,
        };
        Some(Self { cluster, id, base: Some(ArchiveId::decode(base)?), is_changes })
    }
}

/// What a part is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartName {
    /// The catalogue, if no brick's store has it.
    Catalogue,
    /// The store of a brick.
    Brick(u32),
}

impl std::fmt::Display for PartName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Catalogue => f.write_str("catalogue"),
            Self::Brick(number) => write!(f, "brick-{number}"),
        }
    }
}

impl PartName {
    /// Parses a name as it is printed.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if name == "catalogue" {
            return Some(Self::Catalogue);
        }
        let number: u32 = name.strip_prefix("brick-")?.parse().ok()?;
        Some(Self::Brick(number)).filter(|parsed| parsed.to_string() == name)
    }
}

/// A part in an archive, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part(u16);

/// Writes an archive.
pub struct ClusterArchiveWriter<W> {
    out: W,
    /// The bytes of each part.
    parts: Vec<u64>,
    bytes: u64,
}

impl<W: Write> ClusterArchiveWriter<W> {
    /// Begins an archive.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn begin(mut out: W, head: &ArchiveHeader) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let mut writer = Self { out, parts: Vec::new(), bytes: MAGIC.len() as u64 };
        writer.frame(kind::HEAD, 0, &head.encode())?;
        Ok(writer)
    }

    /// Begins a part.
    ///
    /// # Errors
    /// Those of `out`, and if there are too many parts.
    pub fn begin_part(&mut self, name: PartName) -> io::Result<Part> {
        let number = u16::try_from(self.parts.len() + 1).ok().filter(|number| *number <= MAX_PARTS);
        let number = number.ok_or_else(|| io::Error::other("an archive has at most 4096 parts"))?;
        self.parts.push(0);
        self.frame(kind::NAME, number, name.to_string().as_bytes())?;
        Ok(Part(number))
    }

    /// Adds bytes to a part.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&mut self, part: Part, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(MAX_PAYLOAD).try_for_each(|piece| self.write_checked(part, piece, crc32c(piece)))
    }

    /// [`ClusterArchiveWriter::write`] of bytes that have this checksum.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_checked(&mut self, part: Part, bytes: &[u8], checksum: u32) -> io::Result<()> {
        if bytes.len() > MAX_PAYLOAD {
            return self.write(part, bytes);
        }
        self.frame_checked(kind::BYTES, part.0, bytes, checksum)?;
        self.parts[usize::from(part.0) - 1] += bytes.len() as u64;
        Ok(())
    }

    /// Ends a part, which is complete.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn end_part(&mut self, part: Part) -> io::Result<()> {
        let bytes = self.parts[usize::from(part.0) - 1];
        self.frame(kind::PART_END, part.0, &bytes.to_le_bytes())
    }

    /// The bytes that were written.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the archive. Returns its number of bytes, and what it was written to.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn end(mut self) -> io::Result<(u64, W)> {
        // At most `MAX_PARTS`.
        let parts = self.parts.len() as u16;
        self.frame(kind::END, 0, &parts.to_le_bytes())?;
        self.out.flush()?;
        Ok((self.bytes, self.out))
    }

    fn frame(&mut self, kind: u8, part: u16, payload: &[u8]) -> io::Result<()> {
        self.frame_checked(kind, part, payload, crc32c(payload))
    }

    fn frame_checked(&mut self, kind: u8, part: u16, payload: &[u8], checksum: u32) -> io::Result<()> {
        let header = header(kind, part, payload.len(), checksum);
        self.out.write_all(&header)?;
        self.out.write_all(payload)?;
        self.bytes += (header.len() + payload.len()) as u64;
        Ok(())
    }
}

const HEADER: usize = 11;
/// Bytes of the payload of the last frame.
const NUMBER_OF_PARTS: usize = 2;

/// The header of a frame whose payload has this length and checksum.
fn header(kind: u8, part: u16, len: usize, checksum: u32) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = kind;
    header[1..3].copy_from_slice(&part.to_le_bytes());
    // At most `MAX_PAYLOAD`.
    header[3..7].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = crc32c_behind(&header[..7], checksum, len);
    header[7..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// What comes next in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A part begins.
    Begin(Part, PartName),
    /// More bytes of a part.
    Bytes(Part, Bytes),
    /// A part is complete.
    End(Part),
}

/// What an archive is.
pub enum ArchiveFormat<R> {
    /// That of a cluster.
    Cluster(ClusterArchiveReader<R>, ArchiveHeader),
    /// Something else: its first bytes, and the rest.
    Other(Vec<u8>, R),
}

/// Reads an archive.
pub struct ClusterArchiveReader<R> {
    from: R,
    parts: Vec<ReadPart>,
    bytes: u64,
    /// Payloads, whose memory is used again when they were dropped.
    spare: VecDeque<Bytes>,
}

struct ReadPart {
    name: PartName,
    bytes: u64,
    is_ended: bool,
}

impl<R: Read> ClusterArchiveReader<R> {
    /// Begins to read behind [`MAGIC`].
    ///
    /// # Errors
    /// As [`ClusterArchiveReader::next_item`].
    pub fn after_magic(from: R) -> Result<(Self, ArchiveHeader)> {
        let mut reader = Self { from, parts: Vec::new(), bytes: MAGIC.len() as u64, spare: VecDeque::new() };
        let (kind, part, payload) = reader.frame()?;
        let head = ArchiveHeader::decode(&payload).filter(|_| kind == kind::HEAD && part == 0);
        Ok((reader, head.ok_or_else(|| damage_error("it does not begin with its head"))?))
    }

    /// Begins to read an archive.
    ///
    /// # Errors
    /// As [`ClusterArchiveReader::next_item`], also for an empty file; [`ErrorKind::Unsupported`] for an archive of an earlier format.
    pub fn begin(mut from: R) -> Result<ArchiveFormat<R>> {
        let mut magic = Vec::new();
        (&mut from).take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(read_error)?;
        if magic.is_empty() {
            return Err(damage_error("it is empty"));
        }
        if magic.len() < MAGIC.len() && MAGIC.starts_with(&magic) {
            return Err(damage_error("it ends in its header"));
        }
        if FORMER_MAGICS.iter().any(|former| magic == *former) {
            let what = "the archive has a former format of archives of clusters: use the version that wrote it";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if magic != MAGIC {
            return Ok(ArchiveFormat::Other(magic, from));
        }
        Self::after_magic(from).map(|(reader, header)| ArchiveFormat::Cluster(reader, header))
    }

    /// The bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// What comes next; `None` at the end of a complete archive.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the archive is damaged or ends too early; those of reading it.
    pub fn next_item(&mut self) -> Result<Option<Item>> {
        let (kind, part, payload) = self.frame()?;
        self.item(kind, part, payload)
    }

    /// The kind, the part and the payload of the next frame.
    fn frame(&mut self) -> Result<(u8, u16, Bytes)> {
        let mut head = [0; HEADER];
        self.read(&mut head)?;
        let (kind, part) = (head[0], u16::from_le_bytes([head[1], head[2]]));
        let len = u32::from_le_bytes([head[3], head[4], head[5], head[6]]) as usize;
        if len > MAX_PAYLOAD {
            return Err(damage_error("a frame is too long"));
        }
        let payload = self.payload(len)?;
        if header(kind, part, payload.len(), crc32c(&payload)) != head {
            return Err(damage_error("the checksum of a frame does not match"));
        }
        Ok((kind, part, payload))
    }

    fn item(&mut self, kind: u8, part: u16, payload: Bytes) -> Result<Option<Item>> {
        if kind == kind::NAME {
            return self.begin_part(part, &payload).map(Some);
        }
        if kind == kind::END {
            let is_complete = payload[..] == (self.parts.len() as u16).to_le_bytes() && part == 0;
            return match is_complete && self.parts.iter().all(|part| part.is_ended) {
                true => self.check_nothing_follows().map(|()| None),
                false => Err(damage_error("it ends before its parts")),
            };
        }
        let known = usize::from(part).checked_sub(1).and_then(|index| self.parts.get_mut(index));
        let known = known.filter(|known| !known.is_ended).ok_or_else(|| damage_error("a frame belongs to no part"))?;
        match kind {
            kind::BYTES => {
                known.bytes += payload.len() as u64;
                Ok(Some(Item::Bytes(Part(part), payload)))
            }
            kind::PART_END if payload[..] == known.bytes.to_le_bytes() => {
                known.is_ended = true;
                Ok(Some(Item::End(Part(part))))
            }
            kind::PART_END => Err(damage_error(&format!("bytes of {} are missing", known.name))),
            _ => {
                let what = format!("the archive has a frame of kind {kind}, which this version does not know");
                Err(Error::new(ErrorKind::Unsupported, what))
            }
        }
    }

    fn begin_part(&mut self, part: u16, name: &[u8]) -> Result<Item> {
        let parsed = Some(name).filter(|name| name.len() <= MAX_NAME).and_then(|name| str::from_utf8(name).ok());
        let name = parsed.and_then(PartName::parse).ok_or_else(|| damage_error("the name of a part is not valid"))?;
        let is_next = usize::from(part) == self.parts.len() + 1 && part <= MAX_PARTS;
        if !is_next || self.parts.iter().any(|known| known.name == name) {
            return Err(damage_error(&format!("part {name} is out of order, or there twice")));
        }
        self.parts.push(ReadPart { name, bytes: 0, is_ended: false });
        Ok(Item::Begin(Part(part), name))
    }

    /// Reads a payload, into the memory of an earlier one if that was dropped: so it is not filled with zeros before.
    fn payload(&mut self, len: usize) -> Result<Bytes> {
        let free = self.spare.iter().position(Bytes::is_unique).and_then(|free| self.spare.remove(free));
        let mut memory = free.and_then(|free| free.try_into_mut().ok()).unwrap_or_default();
        memory.resize(len, 0);
        self.read(&mut memory)?;
        let payload = memory.freeze();
        if self.spare.len() == MAX_SPARE {
            self.spare.pop_front();
        }
        self.spare.push_back(payload.clone());
        Ok(payload)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.from.read_exact(bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damage_error("it ends too early"),
            _ => read_error(error),
        })?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// An encrypted archive is authentic only to its end.
    fn check_nothing_follows(&mut self) -> Result<()> {
        let mut next = Vec::new();
        (&mut self.from).take(1).read_to_end(&mut next).map_err(read_error)?;
        match next.is_empty() {
            true => Ok(()),
            false => Err(damage_error("more bytes follow after its end")),
        }
    }
}

/// Checks that an archive ends as a complete one does. Only its end is read: what is damaged before it is not noticed.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it does not; those of reading it.
pub fn check_end(archive: &mut (impl Read + Seek)) -> Result<()> {
    let cut_off = || damage_error("it is cut off, or its end is altered");
    let mut end = [0; HEADER + NUMBER_OF_PARTS];
    let read = archive.seek(SeekFrom::End(-(end.len() as i64))).and_then(|_| archive.read_exact(&mut end));
    match read {
        Ok(()) => {}
        // It is shorter, or its encryption is that of a longer one.
        Err(error) if [io::ErrorKind::InvalidInput, io::ErrorKind::InvalidData].contains(&error.kind()) => {
            return Err(cut_off());
        }
        Err(error) => return Err(read_error(error)),
    }
    let (head, parts) = end.split_at(HEADER);
    if head == header(kind::END, 0, parts.len(), crc32c(parts)) { Ok(()) } else { Err(cut_off()) }
}

fn read_error(error: io::Error) -> Error {
    match error.kind() {
        // An encrypted archive that is not authentic.
        io::ErrorKind::InvalidData => damage_error(&error.to_string()),
        _ if is_bad_sector(&error) => damage_error(&format!("it cannot be read: {error}")),
        _ => Error::new(ErrorKind::Io, "the archive cannot be read").with_source(error),
    }
}

/// Whether a disk could not read what it has: that is damage like any other, and other copies or earlier moments can be used.
#[must_use]
pub fn is_bad_sector(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn damage_error(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the archive is damaged: {what}; use another backup"))
}

/// The bytes of a part as another thread reads them from an archive.
pub struct PartBytes {
    pieces: Receiver<Bytes>,
    piece: Bytes,
}

impl PartBytes {
    /// The bytes that come from this channel.
    #[must_use]
    pub fn new(pieces: Receiver<Bytes>) -> Self {
        Self { pieces, piece: Bytes::new() }
    }
}

impl Read for PartBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            // A piece that was used up frees its memory before the next one is waited for.
            self.piece = Bytes::new();
            let Ok(next) = self.pieces.recv() else { return Ok(0) };
            self.piece = next;
        }
        let len = into.len().min(self.piece.len());
        bytes::Buf::copy_to_slice(&mut self.piece, &mut into[..len]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: ArchiveHeader = ArchiveHeader {
        cluster: 9 << 64,
        id: ArchiveId { number: 7 << 96, time_us: -1 },
        base: Some(ArchiveId { number: 5, time_us: 1_000_000 }),
        is_changes: false,
    };

    fn archive() -> Vec<u8> {
        let mut writer = ClusterArchiveWriter::begin(Vec::new(), &HEAD).unwrap();
        let one = writer.begin_part(PartName::Brick(7)).unwrap();
        writer.write(one, b"abc").unwrap();
        let other = writer.begin_part(PartName::Catalogue).unwrap();
        writer.write(other, b"").unwrap();
        writer.write(other, &[5; 100]).unwrap();
        writer.write(one, b"def").unwrap();
        writer.end_part(other).unwrap();
        writer.end_part(one).unwrap();
        let (bytes, archive) = writer.end().unwrap();
        assert_eq!(bytes, archive.len() as u64);
        archive
    }

    fn read(archive: &[u8]) -> Result<Vec<Item>> {
        let rest = archive.strip_prefix(MAGIC).ok_or_else(|| damage_error("no archive"))?;
        let (mut reader, head) = ClusterArchiveReader::after_magic(rest)?;
        assert_eq!(head, HEAD);
        let mut items = Vec::new();
        while let Some(item) = reader.next_item()? {
            items.push(item);
        }
        assert_eq!(reader.bytes_read(), archive.len() as u64);
        Ok(items)
    }

    #[test]
    fn parts_read_back_as_they_were_written() {
        let (one, other) = (Part(1), Part(2));
        let expected = [
            Item::Begin(one, PartName::Brick(7)),
            Item::Bytes(one, Bytes::from_static(b"abc")),
            Item::Begin(other, PartName::Catalogue),
            Item::Bytes(other, vec![5; 100].into()),
            Item::Bytes(one, Bytes::from_static(b"def")),
            Item::End(other),
            Item::End(one),
        ];
        assert_eq!(read(&archive()).unwrap(), expected);
    }

    #[test]
    fn damaged_and_incomplete_archives_are_refused() {
        let archive = archive();
        for len in 0..archive.len() {
            assert_eq!(read(&archive[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        for bit in 0..archive.len() * 8 {
            let mut damaged = archive.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
        // Each frame left out, or there twice, with right checksums.
        let frames = frames(&archive[MAGIC.len()..]);
        for left_out in 0..frames.len() {
            for repeat in [false, true] {
                let mut changed = MAGIC.to_vec();
                for (at, frame) in frames.iter().enumerate() {
                    let times = if at != left_out { 1 } else { 2 * usize::from(repeat) };
                    changed.extend(frame.repeat(times));
                }
                assert!(read(&changed).is_err(), "frame {left_out}, {repeat}");
            }
        }
    }

    #[test]
    fn the_end_of_an_archive_shows_that_it_is_cut_off() {
        let archive = archive();
        let check = |bytes: &[u8]| check_end(&mut io::Cursor::new(bytes));
        check(&archive).unwrap();
        for len in 0..archive.len() {
            assert_eq!(check(&archive[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        for changed in [[&archive[..], b"x"].concat(), [&archive[..archive.len() - 1], b"x"].concat()] {
            assert_eq!(check(&changed).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn an_empty_or_short_file_is_a_damaged_archive() {
        let begin = |bytes: &'static [u8]| ClusterArchiveReader::begin(bytes);
        for (bytes, expected) in [(&b""[..], "it is empty"), (b"mort", "ends in its header")] {
            let error = begin(bytes).err().unwrap();
            assert!(error.kind() == ErrorKind::Corrupt && error.message().contains(expected), "{error}");
        }
        assert!(matches!(begin(b"other").unwrap(), ArchiveFormat::Other(..)));
        for former in FORMER_MAGICS {
            assert_eq!(begin(former).err().unwrap().kind(), ErrorKind::Unsupported);
        }
    }

    fn frames(mut rest: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while !rest.is_empty() {
            let len = HEADER + u32::from_le_bytes(rest[3..7].try_into().unwrap()) as usize;
            frames.push(rest[..len].to_vec());
            rest = &rest[len..];
        }
        frames
    }

    #[test]
    fn heads_read_back_as_they_were_written() {
        let base = ArchiveId { number: 1, time_us: 2 };
        for head in
            [ArchiveHeader { base: None, ..HEAD }, HEAD, ArchiveHeader { base: Some(base), is_changes: true, ..HEAD }]
        {
            assert_eq!(ArchiveHeader::decode(&head.encode()), Some(head));
        }
        let changes = ArchiveHeader::of_changes(7, base).encode();
        for len in (0..changes.len() - 1).filter(|len| ![40, 64].contains(len)) {
            assert_eq!(ArchiveHeader::decode(&changes[..len]), None, "{len} bytes");
        }
        assert_eq!(ArchiveHeader::decode(&[&changes[..64], &[2]].concat()), None);
    }

    #[test]
    fn names_have_one_form() {
        assert_eq!(PartName::parse("brick-7"), Some(PartName::Brick(7)));
        assert_eq!(PartName::parse("catalogue"), Some(PartName::Catalogue));
        for name in ["brick-07", "brick-", "brick--1", "brick-4294967296", "Catalogue", ""] {
            assert_eq!(PartName::parse(name), None, "{name}");
        }
    }
}
