//! Reading the log: which frames count, where the log ends, and whether the end is a torn tail or damage.
//!
//! A frame counts if it has the next position, names its predecessor's checksum, and has a valid checksum itself. The
//! first frame that does not count is either
//!
//! - a *torn tail*: the batch that was being written when the machine stopped. Nothing in it was acknowledged, so it is
//!   cut, whatever part of it reached the disk; or
//! - *damage*: a valid later frame says that the bad frame's position had been forced. Then acknowledged transactions
//!   are lost, and the log refuses to open and names the frame.
//!
//! Frames of lower positions are earlier contents of a recycled segment and do not count.
//!
//! An operator who accepts the loss *salvages* the log: every frame after the installed ones that can be read without a
//! gap counts. The store continues with a new segment at a position above all that were ever assigned, so that no
//! version is assigned twice. The old segments are kept until the salvaged frames are in the B-tree.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::frame::{self, StoreId};
use super::{
    DIR, Log, LogError, SEGMENT_HEADER, SealedSegment, SegmentHeader, Segments, Tail, segment_name, write_zeros,
};
use crate::disk::{Disk, DiskFile};
use crate::plant::{Bug, RecoveryBug, planted};
use crate::rows::mob::Seq;

/// Acknowledged transactions that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogDamage {
    /// The file with the bad frame.
    pub(crate) segment: String,
    /// The offset of the bad frame; 0 if its segment is missing.
    pub(crate) offset: u64,
    /// The position that the frame should have.
    pub(crate) seq: Seq,
    /// The newest position that a later frame reports as forced.
    pub(crate) forced: Seq,
    /// The last position of any valid frame in the log.
    pub(crate) last: Seq,
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset == 0 {
            let Self { seq, segment, .. } = self;
            return write!(
                f,
                "{segment} has no frame {seq}: acknowledged transactions from there on cannot be read back"
            );
        }
        write!(
            f,
            "frame {} at byte {} of {} is damaged, but frame {} had been forced: acknowledged transactions {}..={} \
             cannot be read back",
            self.seq, self.offset, self.segment, self.forced, self.seq, self.forced
        )
    }
}

/// The result of reading the log.
pub(crate) struct RecoveredLog {
    pub(crate) log: Log,
    /// The position of the last frame that counts.
    pub(crate) last: Seq,
    /// Its checksum.
    pub(crate) crc: u32,
    /// Whether frames of an incomplete batch were cut.
    pub(crate) cut: bool,
    /// What was kept of a damaged log. Then `last` is the position at which the store continues.
    pub(crate) salvaged: Option<Salvaged>,
}

/// What is kept of a damaged log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salvaged {
    /// The last position up to which nothing is lost.
    pub(crate) kept: Seq,
    /// The last position that any frame mentions.
    pub(crate) seen: Seq,
}

/// Whether damage is an error or the end of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnDamage {
    /// Refuse.
    Refuse,
    /// Keep what can be read and continue after it: the operator has accepted the loss of the rest.
    Salvage,
}

/// The number of positions skipped after a loss. Lost transactions may have had higher positions than the readable part
/// of the log shows, and no version may be assigned twice.
const SKIPPED_POSITIONS: Seq = 1 << 24;

/// Called with the position and payload of each frame that counts.
pub(crate) type ReplayFrame<'a> = dyn FnMut(Seq, &[u8]) -> Result<(), LogError> + 'a;

/// A segment found on the disk.
struct SegmentFile {
    name: String,
    index: u64,
    len: u64,
    /// `None` if it has no valid header of this store.
    header: Option<SegmentHeader>,
}

/// The end of the frames that count.
struct ChainEnd {
    at: usize,
    position: u64,
    seq: Seq,
    crc: u32,
}

/// Reads the log, calls `replay` with every frame above `installed` in order, and prepares the log for appending.
///
/// The replayed frames are durable when this returns, even if they were only in the operating system's cache.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    installed: Seq,
    on_damage: OnDamage,
    replay: &mut ReplayFrame<'_>,
) -> Result<RecoveredLog, LogError> {
    let found = list_segments(&**disk, &store)?;
    if on_damage == OnDamage::Salvage {
        return salvage(disk, store, segment_len, &found, installed, replay);
    }
    let start = first_segment(&found, installed)?;
    let end = walk(&**disk, &store, &found, start, installed, replay)?;
    let torn = scan_tail(&**disk, &store, &found, &end, installed)?;
    if let Some(damage) = torn.damage {
        return Err(LogError::Damaged(damage));
    }
    if end.seq <= installed {
        let log =
            restart(disk, store, segment_len, &found, SegmentHeader { index: 0, first: installed + 1, prev: end.crc })?;
        return Ok(RecoveredLog { log, last: installed, crc: end.crc, cut: true, salvaged: None });
    }
    let log = resume(disk, store, segment_len, &found, start, &end, torn.frames)?;
    Ok(RecoveredLog { log, last: end.seq - 1, crc: end.crc, cut: torn.frames, salvaged: None })
}

/// Finds damage without changing anything.
///
/// A frame that cannot be replayed counts as damage, because nothing after it can be used.
pub(crate) fn inspect(
    disk: &dyn Disk,
    store: StoreId,
    installed: Seq,
    replay: &mut ReplayFrame<'_>,
) -> Result<Option<LogError>, LogError> {
    let found = list_segments(disk, &store)?;
    let walked =
        first_segment(&found, installed).and_then(|start| walk(disk, &store, &found, start, installed, replay));
    match walked {
        Ok(end) => Ok(scan_tail(disk, &store, &found, &end, installed)?.damage.map(LogError::Damaged)),
        Err(damage @ (LogError::Damaged(_) | LogError::Replay { .. })) => Ok(Some(damage)),
        Err(other) => Err(other),
    }
}

/// Whether the log has or had any frame.
pub(crate) fn is_used(disk: &dyn Disk, store: &StoreId) -> Result<bool, LogError> {
    for segment in list_segments(disk, store)? {
        let Some(header) = segment.header else { continue };
        let bytes = read_segment(disk, &segment)?;
        let first = bytes.get(SEGMENT_HEADER as usize..).and_then(|rest| frame::decode(rest, store));
        if header.first > 1 || first.is_some_and(|(frame, _)| frame.seq >= header.first) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The segments from the one with frame `seq` on, and those with damaged headers.
pub(crate) fn segments_from(disk: &dyn Disk, store: &StoreId, seq: Seq) -> Result<Vec<String>, LogError> {
    let found = list_segments(disk, store)?;
    let from = found.iter().rposition(|s| s.header.is_some_and(|h| h.first <= seq)).unwrap_or(0);
    let all = found.into_iter().enumerate();
    Ok(all.filter(|(i, s)| *i >= from || s.header.is_none()).map(|(_, s)| s.name).collect())
}

/// The store to which the log belongs, if all readable headers of segments agree.
pub(crate) fn store_of(disk: &dyn Disk) -> io::Result<Option<StoreId>> {
    let mut found = None;
    for name in segment_names(disk)? {
        let mut first = [0; SEGMENT_HEADER as usize];
        if disk.open(&format!("{DIR}/{name}"))?.read_at(0, &mut first).is_err() {
            continue;
        }
        let mut id = [0; 16];
        id.copy_from_slice(&first[8..24]);
        if SegmentHeader::decode(&first, &id).is_some() && *found.get_or_insert(id) != id {
            return Ok(None);
        }
    }
    Ok(found)
}

/// Determines which part of a damaged log can be kept, and the last position that it mentions.
///
/// `replay` is called with every frame after the installed ones, up to the first that is missing or cannot be replayed.
pub(crate) fn find_salvageable(
    disk: &dyn Disk,
    store: &StoreId,
    installed: Seq,
    replay: &mut ReplayFrame<'_>,
) -> Result<Salvaged, LogError> {
    let (mut kept, mut crc, mut seen, mut stopped) = (installed, None, installed, false);
    for segment in list_segments(disk, store)? {
        let bytes = read_segment(disk, &segment)?;
        let mut position = SEGMENT_HEADER as usize;
        while position < bytes.len() {
            let Some((header, payload)) = frame::decode(&bytes[position..], store) else {
                position += frame::ALIGN;
                continue;
            };
            seen = seen.max(header.seq).max(header.forced);
            // The frame before the first may be unreadable.
            let follows = header.seq == kept + 1 && crc.is_none_or(|crc| crc == header.prev);
            let follows = follows || (header.seq > kept && planted(RecoveryBug::SalvageSkipsGap));
            if !stopped && follows {
                match replay(header.seq, payload) {
                    Ok(()) => (kept, crc) = (header.seq, Some(header.crc)),
                    Err(LogError::Replay { .. }) => stopped = true,
                    Err(other) => return Err(other),
                }
            }
            position += frame::frame_len(payload.len());
        }
    }
    Ok(Salvaged { kept, seen })
}

/// Continues after the part of a damaged log that is kept.
fn salvage(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    found: &[SegmentFile],
    installed: Seq,
    replay: &mut ReplayFrame<'_>,
) -> Result<RecoveredLog, LogError> {
    let salvaged = find_salvageable(&**disk, &store, installed, replay)?;
    let last = if planted(RecoveryBug::SalvagedPositionsReused) {
        salvaged.kept
    } else {
        salvaged.seen.max(salvaged.kept) + SKIPPED_POSITIONS
    };
    disk.make_dir(DIR)?;
    let segments = Segments::new(Arc::clone(disk), store, segment_len);
    let index = found.last().map_or(1, |s| s.index + 1);
    let tail = segments.next_segment(SegmentHeader { index, first: last + 1, prev: 0 }, 0)?;
    {
        let mut pool = segments.pool.lock();
        // These segments are removed after an installation. They do not become spares, because their storage may be
        // bad.
        pool.sealed.extend(found.iter().map(|segment| SealedSegment { index: segment.index, last, len: 0 }));
    }
    adopt_spares(&segments)?;
    let log = Log { segments, tail: Mutex::new(tail) };
    Ok(RecoveredLog { log, last, crc: 0, cut: true, salvaged: Some(salvaged) })
}

/// The segment with the first frame that is not installed.
fn first_segment(found: &[SegmentFile], installed: Seq) -> Result<usize, LogError> {
    let start = found.iter().rposition(|s| s.header.is_some_and(|h| h.first <= installed + 1));
    start.ok_or_else(|| {
        let segment = found.first().map_or_else(|| DIR.to_owned(), |s| s.name.clone());
        LogError::Damaged(LogDamage { segment, offset: 0, seq: installed + 1, forced: installed + 1, last: installed })
    })
}

/// The names of the segments; none if the log is missing.
fn segment_names(disk: &dyn Disk) -> io::Result<Vec<String>> {
    match disk.list(DIR) {
        Ok(names) => Ok(names.into_iter().filter(|name| name.ends_with(".seg")).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

fn list_segments(disk: &dyn Disk, store: &StoreId) -> Result<Vec<SegmentFile>, LogError> {
    let mut found = Vec::new();
    for name in segment_names(disk)? {
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
        found.push(SegmentFile { name, index, len, header });
    }
    found.sort_by_key(|s| s.index);
    Ok(found)
}

fn read_segment(disk: &dyn Disk, found: &SegmentFile) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; found.len as usize];
    disk.open(&found.name)?.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Follows the chain of frames from the beginning of segment `start`.
fn walk(
    disk: &dyn Disk,
    store: &StoreId,
    found: &[SegmentFile],
    start: usize,
    installed: Seq,
    replay: &mut ReplayFrame<'_>,
) -> Result<ChainEnd, LogError> {
    let mut end = ChainEnd { at: start, position: SEGMENT_HEADER, seq: 0, crc: 0 };
    if let Some(header) = found[start].header {
        (end.seq, end.crc) = (header.first, header.prev);
    }
    loop {
        let bytes = read_segment(disk, &found[end.at])?;
        let mut position = SEGMENT_HEADER as usize;
        while let Some((header, payload)) = bytes.get(position..).and_then(|rest| frame::decode(rest, store)) {
            if header.seq != end.seq || header.prev != end.crc {
                break;
            }
            if header.seq > installed + Seq::from(planted(Bug::ReplaySkipsFirst)) {
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

/// What follows the frames that count.
struct TailScan {
    /// Whether there are frames that must not be mistaken for later ones.
    frames: bool,
    damage: Option<LogDamage>,
}

/// Scans what follows the frames that count. Installed frames are not lost, even if the log does not have them.
fn scan_tail(
    disk: &dyn Disk,
    store: &StoreId,
    found: &[SegmentFile],
    end: &ChainEnd,
    installed: Seq,
) -> Result<TailScan, LogError> {
    let (mut frames, mut forced, mut last) = (false, 0, end.seq - 1);
    for (i, segment) in found.iter().enumerate().skip(end.at) {
        let bytes = read_segment(disk, segment)?;
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
    let lost = if end.seq > installed { forced >= end.seq } else { last > installed };
    let lost = lost && !planted(RecoveryBug::DamageIsTornTail);
    let damage = lost.then(|| LogDamage {
        segment: found[end.at].name.clone(),
        offset: end.position,
        seq: end.seq,
        forced: forced.max(installed),
        last,
    });
    Ok(TailScan { frames, damage })
}

/// Removes frames that do not count, forces those that do, and opens the tail.
fn resume(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    found: &[SegmentFile],
    start: usize,
    end: &ChainEnd,
    torn: bool,
) -> Result<Log, LogError> {
    let segments = Segments::new(Arc::clone(disk), store, segment_len);
    for segment in &found[end.at + 1..] {
        if !planted(RecoveryBug::TornSegmentsKept) {
            disk.remove(&segment.name)?;
        }
    }
    let is_forced = !planted(RecoveryBug::ReplayedFramesNotForced);
    for segment in found[start..end.at].iter().filter(|_| is_forced) {
        disk.open(&segment.name)?.force()?;
    }
    let tail = &found[end.at];
    let file: Arc<dyn DiskFile> = disk.open(&tail.name)?;
    if torn && !planted(RecoveryBug::TornTailKept) {
        write_zeros(&*file, end.position.min(tail.len), tail.len)?;
    }
    if is_forced {
        file.force()?;
    }
    adopt_segments(&segments, found, start, end.at)?;
    disk.force_names(DIR)?;
    let tail = Tail { file, index: tail.index, position: end.position, capacity: tail.len, last: end.seq - 1 };
    Ok(Log { segments, tail: Mutex::new(tail) })
}

/// Starts a new segment after a log with a damaged end, if all of it is installed.
fn restart(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    found: &[SegmentFile],
    header: SegmentHeader,
) -> Result<Log, LogError> {
    let segments = Segments::new(Arc::clone(disk), store, segment_len);
    let index = found.last().map_or(0, |last| last.index) + 1;
    // The new segment is durable before the old ones are removed.
    let tail = segments.next_segment(SegmentHeader { index, ..header }, 0)?;
    adopt_segments(&segments, found, found.len(), found.len())?;
    disk.force_names(DIR)?;
    Ok(Log { segments, tail: Mutex::new(tail) })
}

/// Adopts the sealed segments and the spares; removes unneeded segments.
fn adopt_segments(segments: &Segments, found: &[SegmentFile], start: usize, tail: usize) -> Result<(), LogError> {
    let mut pool = segments.pool.lock();
    for segment in &found[..start] {
        segments.disk.remove(&segment.name)?;
    }
    for (i, segment) in found[start..tail].iter().enumerate() {
        let last = found[start + i + 1].header.map_or(0, |h| h.first - 1);
        pool.sealed.push_back(SealedSegment { index: segment.index, last, len: segment.len });
    }
    drop(pool);
    adopt_spares(segments)
}

/// Adopts the spares.
fn adopt_spares(segments: &Segments) -> Result<(), LogError> {
    let mut pool = segments.pool.lock();
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
