//! Reading the log back: which frames count, where it ends, and whether that is a torn tail or damage.
//!
//! Frames count as long as each has the next position, names its predecessor's checksum and has its own right. The
//! first that does not is either
//!
//! - a *torn tail*: the batch that was being written when the machine stopped. Nothing in it was acknowledged; it is cut,
//!   whatever part of it reached the disk; or
//! - *damage*: a valid later frame says that the bad one's position had been forced when it was written. Then
//!   acknowledged transactions are lost, and the log refuses to open and names the frame.
//!
//! Frames of lower positions are what a recycled segment held before; they do not count.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::frame::{self, StoreId};
use super::{DIR, Log, LogError, SEGMENT_HEADER, Sealed, SegmentHeader, Segments, Tail, segment_name, zero};
use crate::disk::{Disk, DiskFile};
use crate::mob::Seq;

/// Acknowledged transactions that cannot be read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// The file with the bad frame.
    pub(crate) segment: String,
    /// Where the bad frame begins.
    pub(crate) offset: u64,
    /// The position that it should have.
    pub(crate) seq: Seq,
    /// The newest position that some later frame says had been forced.
    pub(crate) forced: Seq,
    /// The last position that the log still holds in some valid frame.
    pub(crate) last: Seq,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "frame {} at byte {} of {} is damaged, but frame {} had been forced: acknowledged transactions {}..={} \
             cannot be read back",
            self.seq, self.offset, self.segment, self.forced, self.seq, self.forced
        )
    }
}

/// What reading the log found.
pub(crate) struct Recovered {
    pub(crate) log: Log,
    /// The position of the last frame that counts.
    pub(crate) last: Seq,
    /// Its checksum.
    pub(crate) crc: u32,
    /// Whether frames of an unfinished batch were cut.
    pub(crate) cut: bool,
}

/// Whether damage is an error or the end of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDamage {
    /// Refuse.
    Refuse,
    /// Cut the log there: the operator has accepted the loss.
    Cut,
}

/// Is shown each frame that counts: its position and payload.
pub(crate) type Replay<'a> = dyn FnMut(Seq, &[u8]) -> Result<(), LogError> + 'a;

/// A segment found on the disk.
struct Found {
    name: String,
    index: u64,
    len: u64,
    /// `None` if its first bytes are no header of this store.
    header: Option<SegmentHeader>,
}

/// Where the frames that count end.
struct End {
    at: usize,
    position: u64,
    seq: Seq,
    crc: u32,
}

/// Reads the log, shows `replay` every frame above `installed` in order, and makes it ready for appending.
///
/// What was shown is durable when this returns, also if it had only been in the operating system's cache.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    installed: Seq,
    on_damage: OnDamage,
    replay: &mut Replay<'_>,
) -> Result<Recovered, LogError> {
    let found = list(&**disk, &store)?;
    let Some(start) = found.iter().rposition(|s| s.header.is_some_and(|h| h.first <= installed + 1)) else {
        let name = found.first().map_or_else(|| DIR.to_owned(), |s| s.name.clone());
        let damage = Damage { segment: name, offset: 0, seq: installed + 1, forced: installed + 1, last: installed };
        return Err(LogError::Damaged(damage));
    };
    let end = walk(&**disk, &store, &found, start, installed, replay)?;
    let torn = behind(&**disk, &store, &found, &end)?;
    if let Some(damage) = torn.damage
        && on_damage == OnDamage::Refuse
    {
        return Err(LogError::Damaged(damage));
    }
    let log = resume(disk, store, segment_len, &found, start, &end, torn.frames)?;
    Ok(Recovered { log, last: end.seq - 1, crc: end.crc, cut: torn.frames })
}

fn list(disk: &dyn Disk, store: &StoreId) -> Result<Vec<Found>, LogError> {
    let mut found = Vec::new();
    for name in disk.list(DIR)? {
        let Some(index) = name.strip_suffix(".seg").and_then(|n| u64::from_str_radix(n, 16).ok()) else { continue };
        let name = segment_name(index);
        let file = disk.open(&name)?;
        let len = file.len()?;
        let mut first = [0; SEGMENT_HEADER as usize];
        let header = match file.read_at(0, &mut first) {
            Ok(()) => SegmentHeader::decode(&first, store).filter(|h| h.index == index),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(e) => return Err(e.into()),
        };
        found.push(Found { name, index, len, header });
    }
    found.sort_by_key(|s| s.index);
    Ok(found)
}

fn read(disk: &dyn Disk, found: &Found) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; found.len as usize];
    disk.open(&found.name)?.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Follows the chain of frames from the beginning of segment `start`.
fn walk(
    disk: &dyn Disk,
    store: &StoreId,
    found: &[Found],
    start: usize,
    installed: Seq,
    replay: &mut Replay<'_>,
) -> Result<End, LogError> {
    let mut end = End { at: start, position: SEGMENT_HEADER, seq: 0, crc: 0 };
    if let Some(header) = found[start].header {
        (end.seq, end.crc) = (header.first, header.prev);
    }
    loop {
        let bytes = read(disk, &found[end.at])?;
        let mut position = SEGMENT_HEADER as usize;
        while let Some((header, payload)) = bytes.get(position..).and_then(|rest| frame::decode(rest, store)) {
            if header.seq != end.seq || header.prev != end.crc {
                break;
            }
            if header.seq > installed {
                replay(header.seq, payload)?;
            }
            (end.seq, end.crc) = (header.seq + 1, header.crc);
            position += frame::frame_len(payload.len());
        }
        end.position = position as u64;
        let next = found.get(end.at + 1);
        let follows = next.is_some_and(|n| {
            n.index == found[end.at].index + 1 && n.header.is_some_and(|h| h.first == end.seq && h.prev == end.crc)
        });
        if !follows {
            return Ok(end);
        }
        end.at += 1;
    }
}

/// What lies behind the frames that count.
struct Behind {
    /// Whether there are any frames that must not be mistaken for later ones.
    frames: bool,
    damage: Option<Damage>,
}

fn behind(disk: &dyn Disk, store: &StoreId, found: &[Found], end: &End) -> Result<Behind, LogError> {
    let (mut frames, mut forced, mut last) = (false, 0, end.seq - 1);
    for (i, segment) in found.iter().enumerate().skip(end.at) {
        let bytes = read(disk, segment)?;
        let from = if i == end.at { end.position as usize } else { 0 };
        for (_, header) in frame::scan(bytes.get(from..).unwrap_or_default(), store) {
            if header.seq >= end.seq {
                frames = true;
                forced = forced.max(header.forced);
                last = last.max(header.seq);
            }
        }
        frames |= i > end.at;
    }
    let damage = (forced >= end.seq).then(|| Damage {
        segment: found[end.at].name.clone(),
        offset: end.position,
        seq: end.seq,
        forced,
        last,
    });
    Ok(Behind { frames, damage })
}

/// Removes what does not count, forces what does, and opens the tail.
fn resume(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    found: &[Found],
    start: usize,
    end: &End,
    torn: bool,
) -> Result<Log, LogError> {
    let segments = Segments::new(Arc::clone(disk), store, segment_len);
    for segment in &found[end.at + 1..] {
        disk.remove(&segment.name)?;
    }
    for segment in &found[start..end.at] {
        disk.open(&segment.name)?.force()?;
    }
    let tail = &found[end.at];
    let file: Arc<dyn DiskFile> = disk.open(&tail.name)?;
    if torn {
        zero(&*file, end.position.min(tail.len), tail.len)?;
    }
    file.force()?;
    adopt(&segments, found, start, end.at)?;
    disk.force_names(DIR)?;
    let tail = Tail { file, index: tail.index, position: end.position, capacity: tail.len, last: end.seq - 1 };
    Ok(Log { segments, tail: Mutex::new(tail) })
}

/// Takes over the sealed segments and the spares; removes those that are of no use.
fn adopt(segments: &Segments, found: &[Found], start: usize, tail: usize) -> Result<(), LogError> {
    let mut pool = segments.pool.lock();
    for segment in &found[..start] {
        segments.disk.remove(&segment.name)?;
    }
    for (i, segment) in found[start..tail].iter().enumerate() {
        let last = found[start + i + 1].header.map_or(0, |h| h.first - 1);
        pool.sealed.push_back(Sealed { index: segment.index, last, len: segment.len });
    }
    for name in segments.disk.list(DIR)? {
        let Some(number) = name.strip_prefix("spare-").and_then(|n| n.parse::<u64>().ok()) else { continue };
        let name = format!("{DIR}/{name}");
        pool.next_spare = pool.next_spare.max(number + 1);
        if segments.disk.open(&name)?.len()? == segments.segment_len {
            pool.spares.push(name);
        } else {
            segments.disk.remove(&name)?;
        }
    }
    Ok(())
}
