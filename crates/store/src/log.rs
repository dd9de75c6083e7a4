//! The log: every committed transaction, in order, in preallocated and recycled segments.
//!
//! One thread appends. Each batch is one sequential write and one force, however many transactions it contains. A
//! segment is free once everything in it is in the B-tree. `recover` defines how bad frames are handled.
//!
//! ```text
//! log/0000000000000007.seg   in use: header, frames
//! log/spare-3                zeroed or recycled, for later use
//! log/tail                   which segment is the last, and up to where the log is durable
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::checksum::crc32c;
use crate::disk::{self, Disk, DiskFile};
use crate::plant::{Bug, planted};
use crate::rows::mob::{LogPosition, SEQ_END, Seq};

pub(crate) mod entry;
pub mod frame;
pub(crate) mod recover;
mod tail_record;

#[cfg(test)]
mod tests;

use frame::StoreId;
use tail_record::{TailRecord, TailRecordFile};

/// The directory of the log.
pub(crate) const DIR: &str = "log";
/// Bytes before the first frame of a segment.
pub(crate) const SEGMENT_HEADER: u64 = 64;
/// Maximum bytes of a segment: room for one frame of any length.
pub(crate) const MAX_SEGMENT: u64 = SEGMENT_HEADER + frame::frame_len(frame::MAX_PAYLOAD) as u64;
/// Numbers of segments, of spares and of tail records are below this. No log reaches it, so any number can be counted on from.
const NUMBERS: u64 = 1 << 63;
/// Maximum number of spare segments.
const SPARES: usize = 2;

const MAGIC: &[u8; 8] = b"mortlog1";

/// Why the log failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// No room for another segment; nothing of the batch was written.
    #[error("the disk has no room for another log segment")]
    Full(#[source] io::Error),
    /// Another segment could not be made; nothing of the batch was written.
    #[error("another log segment could not be made")]
    NoSegment(#[source] io::Error),
    /// The chunks that a batch names could not be forced; nothing of the batch was written.
    #[error("a blob file could not be forced")]
    Chunks(#[source] io::Error),
    /// The device failed.
    #[error("the log device failed")]
    Io(#[from] io::Error),
    /// Acknowledged transactions cannot be read.
    #[error("{0}")]
    Damaged(recover::LogDamage),
    /// A logged transaction cannot be decoded or applied.
    #[error("log frame {seq} cannot be replayed: {reason}")]
    Replay {
        /// The position of the frame.
        seq: Seq,
        /// The reason.
        reason: String,
    },
}

impl LogError {
    /// An error before the first byte of a batch was written.
    fn before_write(error: io::Error) -> Self {
        if disk::is_full(&error) { Self::Full(error) } else { Self::NoSegment(error) }
    }

    /// Whether nothing of the batch was written, so that the log goes on with another one.
    pub(crate) fn is_before_write(&self) -> bool {
        matches!(self, Self::Full(_) | Self::NoSegment(_) | Self::Chunks(_))
    }
}

/// Frames to append, in order.
#[derive(Default)]
pub(crate) struct FrameBatch {
    pub(crate) bytes: Vec<u8>,
    /// For each frame: its end in `bytes`, its position and its checksum.
    pub(crate) frames: Vec<(usize, Seq, u32)>,
}

impl FrameBatch {
    /// Larger buffers are not kept for the next batch.
    const MAX_KEPT_BYTES: usize = 1 << 20;

    /// Moves the frames of `next` after these.
    pub(crate) fn append(&mut self, next: &mut Self) {
        let before = self.bytes.len();
        self.bytes.append(&mut next.bytes);
        self.frames.extend(next.frames.drain(..).map(|(end, seq, crc)| (before + end, seq, crc)));
    }

    /// An empty batch with the buffers of this one, unless they are very large.
    pub(crate) fn into_empty(mut self) -> Self {
        self.frames.clear();
        self.bytes.clear();
        self.bytes.shrink_to(Self::MAX_KEPT_BYTES);
        self
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) index: u64,
    /// The position of its first frame.
    pub(crate) first: Seq,
    /// The checksum of the frame before it.
    pub(crate) prev: u32,
}

impl SegmentHeader {
    fn encode(&self, store: &StoreId) -> [u8; SEGMENT_HEADER as usize] {
        let mut out = [0; SEGMENT_HEADER as usize];
        out[..8].copy_from_slice(MAGIC);
        out[8..24].copy_from_slice(store);
        out[24..32].copy_from_slice(&self.index.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.to_le_bytes());
        out[40..44].copy_from_slice(&self.prev.to_le_bytes());
        let crc = crc32c(&out[..44]);
        out[44..48].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8], store: &StoreId) -> Result<Self, SegmentFault> {
        let bytes: &[u8; 48] = bytes.first_chunk().ok_or(SegmentFault::Header)?;
        let long = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if &bytes[..8] != MAGIC || crc32c(&bytes[..44]) != word(44) || !(1..SEQ_END).contains(&long(32)) {
            return Err(SegmentFault::Header);
        }
        if bytes[8..24] != *store {
            return Err(SegmentFault::OtherStore);
        }
        Ok(Self { index: long(24), first: long(32), prev: word(40) })
    }
}

/// Why a file is not the segment that its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentFault {
    /// The file does not exist.
    Missing,
    /// It has no valid header.
    Header,
    /// It has more bytes than a segment can have.
    Length(u64),
    /// It is a segment of another store.
    OtherStore,
    /// It is a segment with another number.
    OtherNumber(u64),
    /// It does not follow the segment before it.
    OtherHistory,
}

impl fmt::Display for SegmentFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing"),
            Self::Header => f.write_str("has no valid header"),
            Self::Length(len) => write!(f, "has {len} bytes, and a segment of a log at most {MAX_SEGMENT}"),
            Self::OtherStore => f.write_str("belongs to another store"),
            Self::OtherNumber(number) => write!(f, "is the segment {}", segment_name(*number)),
            Self::OtherHistory => f.write_str("does not follow the segment before it"),
        }
    }
}

impl SegmentFault {
    /// Whether the file is no segment of this log, rather than a damaged one: without it, the log may be sound.
    fn is_foreign(self) -> bool {
        matches!(self, Self::OtherStore | Self::Length(_))
    }
}

fn segment_name(index: u64) -> String {
    format!("{DIR}/{index:016x}.seg")
}

/// The number in the name of a segment; `None` for other names.
fn segment_number(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".seg")?, 16).ok().filter(|number| *number < NUMBERS)?;
    (segment_name(number).strip_prefix(DIR)?.strip_prefix('/')? == name).then_some(number)
}

fn spare_name(number: u64) -> String {
    format!("{DIR}/spare-{number}")
}

/// The number in the name of a spare; `None` for other names.
fn spare_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("spare-")?.parse().ok().filter(|number| *number < NUMBERS)?;
    (spare_name(number).strip_prefix(DIR)?.strip_prefix('/')? == name).then_some(number)
}

/// The segment to which frames are appended.
struct Tail {
    file: Arc<dyn DiskFile>,
    index: u64,
    position: u64,
    capacity: u64,
    last: Seq,
}

struct SealedSegment {
    index: u64,
    last: Seq,
    len: u64,
}

struct SegmentPool {
    sealed: VecDeque<SealedSegment>,
    spares: Vec<String>,
    next_spare: u64,
}

/// The files of the log.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    store: StoreId,
    /// Bytes in a segment, unless a single frame needs more.
    segment_len: u64,
    pool: Mutex<SegmentPool>,
    /// Bytes of the sealed segments and of the spares.
    pool_bytes: AtomicU64,
}

/// The open log.
pub(crate) struct Log {
    segments: Segments,
    tail: Mutex<Tail>,
    /// Bytes of the segment to which frames are appended.
    tail_bytes: AtomicU64,
    /// Locked after `tail`.
    tail_record: Mutex<TailRecordFile>,
}

impl Log {
    /// Creates a log whose first frame is `first`, after a frame with checksum `prev`.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        store: StoreId,
        segment_len: u64,
        first: Seq,
        prev: u32,
    ) -> Result<Self, LogError> {
        disk.make_dir(DIR)?;
        let segments = Segments::new(disk, store, segment_len);
        let tail = segments.next_segment(SegmentHeader { index: 1, first, prev }, 0)?;
        Self::with_record(
            segments,
            tail,
            TailRecord { segment: 1, position: LogPosition { seq: first - 1, crc: prev } },
        )
    }

    /// An open log, after its tail is recorded durably.
    fn with_record(segments: Segments, tail: Tail, record: TailRecord) -> Result<Self, LogError> {
        let mut tail_record = TailRecordFile::open(&*segments.disk, segments.store)?;
        tail_record.force(record)?;
        let tail_bytes = AtomicU64::new(tail.capacity);
        Ok(Self { segments, tail: Mutex::new(tail), tail_bytes, tail_record: Mutex::new(tail_record) })
    }

    /// Appends a batch and makes it durable.
    ///
    /// # Errors
    /// After [`LogError::Full`] and [`LogError::NoSegment`] nothing of the batch is in the log, and the append may be repeated. After any other
    /// error the log must not be appended to again.
    pub(crate) fn append(&self, batch: &FrameBatch, prev: u32) -> Result<(), LogError> {
        let mut tail = self.tail.lock();
        let mut tail_record = self.tail_record.lock();
        let parts = self.split(&tail, batch, prev);
        let mut fresh = self.segments.prepare(&parts[1..])?;
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                let SegmentHeader { index, first, prev } = part.header;
                let position = LogPosition { seq: first - 1, crc: prev };
                tail_record.force(TailRecord { segment: index, position })?;
                let next = fresh.pop_front().ok_or_else(|| io::Error::other("a segment was not prepared"))?;
                let old = std::mem::replace(&mut *tail, next);
                self.tail_bytes.store(tail.capacity, Ordering::Relaxed);
                let sealed = SealedSegment { index: old.index, last: old.last, len: old.capacity };
                self.segments.change_pool(|pool| pool.sealed.push_back(sealed));
            }
            if part.from < part.to {
                tail.file.write_at(tail.position, &batch.bytes[part.from..part.to])?;
                tail.file.force()?;
                tail.position += part.len() as u64;
                tail.last = part.last;
            }
        }
        if let Some((_, seq, crc)) = batch.frames.last() {
            let position = LogPosition { seq: *seq, crc: *crc };
            tail_record.write(TailRecord { segment: tail.index, position })?;
        }
        Ok(())
    }

    /// Splits a batch into the part that fits the tail and parts for further segments.
    fn split(&self, tail: &Tail, batch: &FrameBatch, prev: u32) -> Vec<SegmentPart> {
        let header = SegmentHeader { index: tail.index, first: 0, prev: 0 };
        let mut parts = vec![SegmentPart { header, from: 0, to: 0, last: tail.last }];
        let mut room = tail.capacity.saturating_sub(tail.position);
        let (mut start, mut prev) = (0, prev);
        for (end, seq, crc) in &batch.frames {
            let len = (end - start) as u64;
            if len > room {
                let index = tail.index + parts.len() as u64;
                let header = SegmentHeader { index, first: *seq, prev };
                parts.push(SegmentPart { header, from: start, to: start, last: seq - 1 });
                room = (self.segments.segment_len - SEGMENT_HEADER).max(len);
            }
            room -= len;
            (start, prev) = (*end, *crc);
            if let Some(part) = parts.last_mut() {
                (part.to, part.last) = (*end, *seq);
            }
        }
        parts
    }

    /// Frees the segments whose frames are all installed, up to position `installed`.
    pub(crate) fn free(&self, installed: Seq) -> io::Result<()> {
        self.segments.free(installed)
    }

    /// Whether a spare segment is needed: the current segment is half full and there is no spare. A store that is
    /// rarely written to needs none.
    pub(crate) fn needs_spare(&self) -> bool {
        let half_full = {
            let tail = self.tail.lock();
            tail.position > tail.capacity / 2
        };
        half_full && self.segments.pool.lock().spares.is_empty()
    }

    /// Creates a spare if one is needed, so that the committer does not wait for it.
    pub(crate) fn ensure_spare(&self) -> Result<(), LogError> {
        if self.needs_spare() { self.segments.keep_spare() } else { Ok(()) }
    }

    /// Bytes of all segments, including spares. This does not wait for a disk.
    pub(crate) fn size(&self) -> u64 {
        self.tail_bytes.load(Ordering::Relaxed) + self.segments.pool_bytes.load(Ordering::Relaxed)
    }
}

impl Segments {
    fn new(disk: Arc<dyn Disk>, store: StoreId, segment_len: u64) -> Self {
        let pool = SegmentPool { sealed: VecDeque::new(), spares: Vec::new(), next_spare: 0 };
        let segment_len = segment_len.min(MAX_SEGMENT);
        Self { disk, store, segment_len, pool: Mutex::new(pool), pool_bytes: AtomicU64::new(0) }
    }

    /// Changes the pool; all changes are made by this.
    fn change_pool<T>(&self, change: impl FnOnce(&mut SegmentPool) -> T) -> T {
        let mut pool = self.pool.lock();
        let changed = change(&mut pool);
        let sealed: u64 = pool.sealed.iter().map(|segment| segment.len).sum();
        self.pool_bytes.store(sealed + pool.spares.len() as u64 * self.segment_len, Ordering::Relaxed);
        changed
    }

    /// Creates every segment that a batch needs before its first byte is written, so that a full or failing disk leaves no segment
    /// behind. A segment that is left would be taken for the end of the log, although the log continues in the one
    /// before. So if one may be left, the log has failed.
    fn prepare(&self, parts: &[SegmentPart]) -> Result<VecDeque<Tail>, LogError> {
        let made = parts.iter().map(|part| self.next_segment(part.header, part.len() as u64)).collect();
        let Err(error) = made else { return made };
        for part in parts {
            match self.disk.remove(&segment_name(part.header.index)) {
                Err(left) if left.kind() != io::ErrorKind::NotFound => return Err(LogError::Io(left)),
                _ => {}
            }
        }
        self.disk.force_names(DIR)?;
        Err(error)
    }

    /// Takes a spare or creates a segment with room for at least `len` bytes of frames. Its name is durable.
    fn next_segment(&self, header: SegmentHeader, len: u64) -> Result<Tail, LogError> {
        let capacity = self.segment_len.max(SEGMENT_HEADER + len);
        let name = segment_name(header.index);
        if header.index >= NUMBERS {
            let last = segment_name(header.index - 1);
            let what = format!(
                "no number for another segment is left after {last}: if that is not a segment of this store, move it away"
            );
            return Err(LogError::Io(io::Error::other(what)));
        }
        let spare = if capacity == self.segment_len { self.change_pool(|pool| pool.spares.pop()) } else { None };
        let file = match spare {
            Some(spare) => {
                if let Err(error) = self.disk.rename(&spare, &name) {
                    self.change_pool(|pool| pool.spares.push(spare));
                    return Err(LogError::before_write(error));
                }
                self.disk.open(&name).map_err(LogError::before_write)?
            }
            None => self.create_zeroed(&name, capacity)?,
        };
        file.write_at(0, &header.encode(&self.store)).map_err(LogError::before_write)?;
        file.force().map_err(LogError::before_write)?;
        if !planted(Bug::SegmentNameNotForced) {
            self.disk.force_names(DIR).map_err(LogError::before_write)?;
        }
        Ok(Tail { file, index: header.index, position: SEGMENT_HEADER, capacity, last: header.first - 1 })
    }

    /// Creates a file of zeros. They are written, not only allocated, so that later forces write no metadata.
    fn create_zeroed(&self, name: &str, len: u64) -> Result<Arc<dyn DiskFile>, LogError> {
        let fill = || {
            let file = self.disk.create(name)?;
            write_zeros(&*file, 0, len)?;
            file.force()?;
            Ok(file)
        };
        fill().map_err(|error: io::Error| {
            // Frees the space that was allocated so far.
            let _ = self.disk.remove(name);
            LogError::before_write(error)
        })
    }

    fn free(&self, installed: Seq) -> io::Result<()> {
        let installed = if planted(Bug::SegmentFreedEarly) { Seq::MAX } else { installed };
        self.change_pool(|pool| {
            while pool.sealed.front().is_some_and(|s| s.last <= installed) {
                let Some(sealed) = pool.sealed.pop_front() else { break };
                let name = segment_name(sealed.index);
                if pool.spares.len() < SPARES && sealed.len == self.segment_len {
                    let spare = spare_name(pool.next_spare);
                    pool.next_spare += 1;
                    if is_there(&name, self.disk.rename(&name, &spare))? {
                        pool.spares.push(spare);
                    }
                } else {
                    is_there(&name, self.disk.remove(&name))?;
                }
            }
            Ok(())
        })
    }

    fn keep_spare(&self) -> Result<(), LogError> {
        let name = {
            let mut pool = self.pool.lock();
            if !pool.spares.is_empty() {
                return Ok(());
            }
            pool.next_spare += 1;
            spare_name(pool.next_spare - 1)
        };
        self.create_zeroed(&name, self.segment_len)?;
        self.change_pool(|pool| pool.spares.push(name));
        Ok(())
    }
}

/// Whether the file of a freed segment existed. An operator may have removed it.
fn is_there(segment: &str, freed: io::Result<()>) -> io::Result<bool> {
    match freed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            tracing::warn!(segment, "a segment of the log is missing; all that it had is in the B-tree");
            Ok(false)
        }
        freed => freed.map(|()| true),
    }
}

/// A run of frames for one segment.
struct SegmentPart {
    header: SegmentHeader,
    from: usize,
    to: usize,
    last: Seq,
}

impl SegmentPart {
    fn len(&self) -> usize {
        self.to - self.from
    }
}

/// Writes zeros over a range.
fn write_zeros(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; (1 << 20).min((to - from) as usize)];
    let mut at = from;
    while at < to {
        let len = zeros.len().min((to - at) as usize);
        file.write_at(at, &zeros[..len])?;
        at += len as u64;
    }
    Ok(())
}
