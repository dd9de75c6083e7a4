//! Reading the log: which frames count, where the log ends, and whether the end is a torn tail or damage.
//!
//! A frame counts if it has the next position, names its predecessor's checksum, and has a valid checksum itself. The
//! first frame that does not count is either
//!
//! - a *torn tail*: the batch that was being written when the machine stopped. Nothing in it was acknowledged, so it is
//!   cut, whatever part of it reached the disk; or
//! - *damage*: a valid later frame, the tail record, or the B-tree says that the bad frame's position had been forced.
//!   Then acknowledged transactions may be lost, and the log refuses to open and names the frame.
//!
//! The log is also refused if its last segment is missing or not the recorded one, if it has a segment of another store,
//! and if the frame that the B-tree or the tail record names has another checksum there: then it has another history.
//!
//! Frames of lower positions are earlier contents of a recycled segment and do not count.
//!
//! An operator who accepts the loss *salvages* the log: every frame after the installed ones that can be read without a
//! gap counts. The store continues with a new segment at a position above all that were ever assigned, so that no
//! version is assigned twice. The old segments are kept until the salvaged frames are in the B-tree.

use std::fmt;
use std::io;
use std::sync::Arc;

use tracing::warn;

use super::frame::{self, StoreId};
use super::tail_record::{self, RecordFault, TailRecord};
use super::{
    DIR, Log, LogError, MAX_SEGMENT, SEGMENT_HEADER, SealedSegment, SegmentFault, SegmentHeader, Segments, Tail,
    segment_name, segment_number, spare_number, write_zeros,
};
use crate::disk::{Disk, DiskFile};
use crate::plant::{Bug, RecoveryBug, planted};
use crate::rows::mob::{LogPosition, SEQ_END, Seq};

/// Why a log cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogDamage {
    /// A frame that had been forced cannot be read.
    Frame {
        /// The file with the bad frame.
        segment: String,
        /// The offset of the bad frame.
        offset: u64,
        /// The position that the frame should have.
        seq: Seq,
        /// The newest position that is known to have been forced.
        forced: Seq,
    },
    /// No segment has the first frame after those in the B-tree.
    NoFrame {
        /// The first segment, or the directory of the log.
        segment: String,
        /// The position of the frame.
        seq: Seq,
    },
    /// The log ends before what is in the B-tree, which only gets forced frames.
    EndsEarly {
        /// The file in which it ends.
        segment: String,
        /// The offset of its end.
        offset: u64,
        /// The position that the next frame would have.
        seq: Seq,
        /// The last position in the B-tree.
        installed: Seq,
    },
    /// The frame with this position is not the one that the B-tree or the tail record names.
    OtherHistory {
        /// The file with the frame.
        segment: String,
        /// The position.
        seq: Seq,
        /// What names another frame.
        than: &'static str,
    },
    /// A file is not the segment that it should be.
    Segment {
        /// The file.
        segment: String,
        /// Why.
        fault: SegmentFault,
    },
    /// The tail record cannot be read.
    Record(RecordFault),
}

impl fmt::Display for LogDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { segment, offset, seq, forced } => write!(
                f,
                "frame {seq} at byte {offset} of {segment} is damaged, but frame {forced} had been forced: acknowledged \
                 transactions {seq}..={forced} cannot be read back"
            ),
            Self::NoFrame { segment, seq } => write!(
                f,
                "{segment} has no frame {seq}, the first after those in the B-tree: acknowledged transactions from there on \
                 cannot be read back. Segments are missing, or the B-tree is an older copy"
            ),
            Self::EndsEarly { segment, offset, seq, installed } => write!(
                f,
                "the log ends before frame {seq} at byte {offset} of {segment}, but the B-tree has the transactions up to \
                 {installed}: the log is an older copy or damaged, and acknowledged transactions may be lost"
            ),
            Self::OtherHistory { segment, seq, than } => write!(
                f,
                "frame {seq} in {segment} is another one than {than} names: these files belong to different copies of the store"
            ),
            Self::Segment { segment, fault } => write!(f, "{segment} {fault}: put the right file back"),
            Self::Record(fault) => {
                write!(
                    f,
                    "{} {fault}, so acknowledged transactions at the end of the log may be lost",
                    tail_record::FILE
                )
            }
        }
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
    /// The last position that any frame or the tail record mentions.
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
    header: Result<SegmentHeader, SegmentFault>,
}

impl SegmentFile {
    /// The position of its first frame, if its header is valid.
    fn first(&self) -> Option<Seq> {
        self.header.ok().map(|header| header.first)
    }

    fn check_not_foreign(&self) -> Result<(), LogError> {
        match self.header {
            Err(fault) if fault.is_foreign() => {
                Err(LogError::Damaged(LogDamage::Segment { segment: self.name.clone(), fault }))
            }
            _ => Ok(()),
        }
    }
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
/// The replayed frames are durable when this returns, even if they were only in the operating system's cache. Frames behind the position in the tail
/// record may be there because a force of them failed: the system then takes them for written, and a later force does not write them. So they are
/// written again.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    installed: LogPosition,
    on_damage: OnDamage,
    replay: &mut ReplayFrame<'_>,
) -> Result<RecoveredLog, LogError> {
    let found = list_segments(&**disk, &store)?;
    if on_damage == OnDamage::Salvage {
        return salvage(disk, store, segment_len, &found, installed, replay);
    }
    let read = read_log(&**disk, &store, &found, installed, replay)?;
    let log = resume(disk, store, segment_len, &found, &read)?;
    Ok(RecoveredLog { log, last: read.end.seq - 1, crc: read.end.crc, cut: read.is_torn, salvaged: None })
}

/// Finds damage without changing anything.
///
/// A frame that cannot be replayed counts as damage, because nothing after it can be used.
pub(crate) fn inspect(
    disk: &dyn Disk,
    store: StoreId,
    installed: LogPosition,
    replay: &mut ReplayFrame<'_>,
) -> Result<Option<LogError>, LogError> {
    match read_log(disk, &store, &list_segments(disk, &store)?, installed, replay) {
        Ok(_) => Ok(None),
        Err(damage @ (LogError::Damaged(_) | LogError::Replay { .. })) => Ok(Some(damage)),
        Err(other) => Err(other),
    }
}

/// A log without damage.
struct ReadLog {
    /// The segment with the first frame that is not in the B-tree.
    start: usize,
    end: ChainEnd,
    /// Whether there are frames after the end that must not be mistaken for later ones.
    is_torn: bool,
    unrecorded: Vec<UnrecordedBytes>,
}

/// Bytes of a segment that the tail record does not call durable.
struct UnrecordedBytes {
    /// The segment.
    at: usize,
    offset: usize,
    bytes: Vec<u8>,
}

/// Reads the log and calls `replay` with every frame above `installed` in order.
fn read_log(
    disk: &dyn Disk,
    store: &StoreId,
    found: &[SegmentFile],
    installed: LogPosition,
    replay: &mut ReplayFrame<'_>,
) -> Result<ReadLog, LogError> {
    found.iter().try_for_each(SegmentFile::check_not_foreign)?;
    let start = first_segment(found, installed.seq)?;
    let record = match tail_record::read(disk, store)? {
        // The frames before the marker show whether they were forced.
        _ if planted(RecoveryBug::TailNotRecorded) => None,
        record => Some(record.map_err(|fault| LogError::Damaged(LogDamage::Record(fault)))?),
    };
    let known = Known { installed, record };
    if tail_record::has_damaged_slot(disk, store)? {
        warn!(
            file = tail_record::FILE,
            "one of the two records of the end of the log cannot be read, as after a power failure or damage: if the last transactions are \
             missing, too, this start does not notice"
        );
    }
    let Walked { end, last_segment, unrecorded } = walk(disk, store, found, start, &known, replay)?;
    let tail = scan_tail(disk, store, found, &end, &last_segment)?;
    check_end(found, &end, &known, &tail)?;
    Ok(ReadLog { start, end, is_torn: tail.has_frames, unrecorded })
}

/// What is known to be durable.
struct Known {
    /// The last frame in the B-tree.
    installed: LogPosition,
    record: Option<TailRecord>,
}

impl Known {
    /// Checks that a frame is the one of this history.
    fn check(&self, found: LogPosition, segment: &SegmentFile) -> Result<(), LogError> {
        let recorded = self.record.map(|record| record.position);
        for (known, than) in [(Some(self.installed), "the B-tree"), (recorded, tail_record::FILE)] {
            let differs = known.is_some_and(|known| known.seq == found.seq && known.crc != found.crc);
            if differs && !planted(RecoveryBug::HistoryNotChecked) {
                let segment = segment.name.clone();
                return Err(LogError::Damaged(LogDamage::OtherHistory { segment, seq: found.seq, than }));
            }
        }
        Ok(())
    }

    /// Whether the header of a segment, and each of its frames up to a position, is durable.
    fn is_recorded(&self, segment: &SegmentFile, last: Seq) -> bool {
        self.record.is_some_and(|record| segment.index <= record.segment && last <= record.position.seq)
    }
}

/// Checks that the log reaches everything that is known to be durable.
fn check_end(found: &[SegmentFile], end: &ChainEnd, known: &Known, tail: &TailScan) -> Result<(), LogError> {
    if planted(RecoveryBug::DamageIsTornTail) {
        return Ok(());
    }
    let (segment, offset, seq) = (found[end.at].name.clone(), end.position, end.seq);
    let recorded = known.record.map_or(0, |record| record.position.seq);
    let forced = tail.forced.max(recorded);
    if let Some(record) = known.record
        && let Some(fault) = recorded_segment_fault(found, record.segment)
    {
        return Err(LogError::Damaged(LogDamage::Segment { segment: segment_name(record.segment), fault }));
    }
    if forced >= seq {
        return Err(LogError::Damaged(LogDamage::Frame { segment, offset, seq, forced }));
    }
    if seq <= known.installed.seq {
        let installed = known.installed.seq;
        return Err(LogError::Damaged(LogDamage::EndsEarly { segment, offset, seq, installed }));
    }
    match known.record {
        Some(record) if found[end.at].index < record.segment => Err(LogError::Damaged(LogDamage::Segment {
            segment: segment_name(record.segment),
            fault: SegmentFault::OtherHistory,
        })),
        _ => Ok(()),
    }
}

/// What is wrong with the recorded segment, if anything is.
fn recorded_segment_fault(found: &[SegmentFile], index: u64) -> Option<SegmentFault> {
    found.iter().find(|segment| segment.index == index).map_or(Some(SegmentFault::Missing), |s| s.header.err())
}

/// Whether one of the two records of the end of the log cannot be read.
pub(crate) fn has_damaged_record(disk: &dyn Disk, store: &StoreId) -> io::Result<bool> {
    tail_record::has_damaged_slot(disk, store)
}

/// Whether the log has or had any frame, as far as its readable parts and the names of its files tell.
pub(crate) fn is_used(disk: &dyn Disk, store: &StoreId) -> Result<bool, LogError> {
    let record = tail_record::read(disk, store)?;
    if record.is_ok_and(|record| record.segment > 1 || record.position.seq > 0) {
        return Ok(true);
    }
    for segment in list_segments(disk, store)? {
        segment.check_not_foreign()?;
        let starts_later = segment.index > 1 || segment.first().is_some_and(|first| first > 1);
        if starts_later || has_frame(&read_segment(disk, &segment)?, store) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether there is a frame anywhere in a segment, also one behind damage.
fn has_frame(segment: &[u8], store: &StoreId) -> bool {
    let places = (SEGMENT_HEADER as usize..segment.len()).step_by(frame::ALIGN);
    places.map(|place| &segment[place..]).any(|rest| frame::decode(rest, store).is_some())
}

/// The segments from the one with frame `seq` on, and those with damaged headers.
pub(crate) fn segments_from(disk: &dyn Disk, store: &StoreId, seq: Seq) -> Result<Vec<String>, LogError> {
    let found = list_segments(disk, store)?;
    let from = found.iter().rposition(|s| s.first().is_some_and(|first| first <= seq)).unwrap_or(0);
    let all = found.into_iter().enumerate();
    Ok(all.filter(|(i, s)| *i >= from || s.header.is_err()).map(|(_, s)| s.name).collect())
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
        if SegmentHeader::decode(&first, &id).is_ok() && *found.get_or_insert(id) != id {
            return Ok(None);
        }
    }
    Ok(found)
}

/// Determines which part of a damaged log can be kept, and the last position that it or the tail record mentions.
///
/// `replay` is called with every frame after the installed ones, up to the first that is missing or cannot be replayed.
pub(crate) fn find_salvageable(
    disk: &dyn Disk,
    store: &StoreId,
    installed: LogPosition,
    replay: &mut ReplayFrame<'_>,
) -> Result<Salvaged, LogError> {
    // Frames only tell what was forced before them, so only the record knows of the last ones.
    let recorded = tail_record::read(disk, store)?.map_or(0, |record| record.position.seq);
    let (mut kept, mut seen, mut stopped) = (installed, installed.seq.max(recorded), false);
    for segment in list_segments(disk, store)? {
        let bytes = read_segment(disk, &segment)?;
        let mut position = SEGMENT_HEADER as usize;
        while position < bytes.len() {
            let Some((header, payload)) = frame::decode(&bytes[position..], store) else {
                position += frame::ALIGN;
                continue;
            };
            seen = seen.max(header.seq).max(header.forced);
            let follows = header.seq == kept.seq + 1 && header.prev == kept.crc;
            let follows = follows || (header.seq > kept.seq && planted(RecoveryBug::SalvageSkipsGap));
            if !stopped && follows {
                match replay(header.seq, payload) {
                    Ok(()) => kept = LogPosition { seq: header.seq, crc: header.crc },
                    Err(LogError::Replay { .. }) => stopped = true,
                    Err(other) => return Err(other),
                }
            }
            position += frame::frame_len(payload.len());
        }
    }
    Ok(Salvaged { kept: kept.seq, seen })
}

/// Continues after the part of a damaged log that is kept.
fn salvage(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    found: &[SegmentFile],
    installed: LogPosition,
    replay: &mut ReplayFrame<'_>,
) -> Result<RecoveredLog, LogError> {
    let salvaged = find_salvageable(&**disk, &store, installed, replay)?;
    let last = if planted(RecoveryBug::SalvagedPositionsReused) {
        salvaged.kept
    } else {
        salvaged.seen.max(salvaged.kept) + SKIPPED_POSITIONS
    };
    // The next transaction is behind it.
    if last + 1 >= SEQ_END {
        let what = format!(
            "the log mentions position {}, after which too few are left to go on: restore from a backup",
            salvaged.seen
        );
        return Err(LogError::Io(io::Error::other(what)));
    }
    disk.make_dir(DIR)?;
    let segments = Segments::new(Arc::clone(disk), store, segment_len);
    let index = found.last().map_or(1, |s| s.index + 1);
    let tail = segments.next_segment(SegmentHeader { index, first: last + 1, prev: 0 }, 0)?;
    // These segments are removed after an installation. They do not become spares, because their storage may be bad.
    let old = found.iter().map(|segment| SealedSegment { index: segment.index, last, len: 0 });
    segments.change_pool(|pool| pool.sealed.extend(old));
    adopt_spares(&segments)?;
    let record = TailRecord { segment: index, position: LogPosition { seq: last, crc: 0 } };
    let log = Log::with_record(segments, tail, record)?;
    Ok(RecoveredLog { log, last, crc: 0, cut: true, salvaged: Some(salvaged) })
}

/// The segment with the first frame that is not installed.
fn first_segment(found: &[SegmentFile], installed: Seq) -> Result<usize, LogError> {
    let start = found.iter().rposition(|s| s.first().is_some_and(|first| first <= installed + 1));
    start.ok_or_else(|| {
        let segment = found.first().map_or_else(|| DIR.to_owned(), |s| s.name.clone());
        LogError::Damaged(LogDamage::NoFrame { segment, seq: installed + 1 })
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
        let Some(index) = segment_number(&name) else { continue };
        let name = segment_name(index);
        let file = disk.open(&name)?;
        let len = file.len()?;
        let mut first = [0; SEGMENT_HEADER as usize];
        let header = match file.read_at(0, &mut first) {
            _ if len > MAX_SEGMENT => Err(SegmentFault::Length(len)),
            Ok(()) => match SegmentHeader::decode(&first, store) {
                Ok(header) if header.index != index => Err(SegmentFault::OtherNumber(header.index)),
                decoded => decoded,
            },
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(SegmentFault::Header),
            Err(e) => return Err(e.into()),
        };
        found.push(SegmentFile { name, index, len, header });
    }
    found.sort_by_key(|s| s.index);
    Ok(found)
}

/// The bytes of a segment. Of a file that is too long these are the first ones, as many as a segment can have.
fn read_segment(disk: &dyn Disk, found: &SegmentFile) -> Result<Vec<u8>, LogError> {
    let mut bytes = vec![0; found.len.min(MAX_SEGMENT) as usize];
    disk.open(&found.name)?.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The frames that count.
struct Walked {
    end: ChainEnd,
    /// The bytes of the segment in which they end.
    last_segment: Vec<u8>,
    unrecorded: Vec<UnrecordedBytes>,
}

/// Follows the chain of frames from the beginning of segment `start`.
fn walk(
    disk: &dyn Disk,
    store: &StoreId,
    found: &[SegmentFile],
    start: usize,
    known: &Known,
    replay: &mut ReplayFrame<'_>,
) -> Result<Walked, LogError> {
    let mut unrecorded = Vec::new();
    let mut end = ChainEnd { at: start, position: SEGMENT_HEADER, seq: 0, crc: 0 };
    if let Ok(header) = found[start].header {
        known.check(LogPosition { seq: header.first - 1, crc: header.prev }, &found[start])?;
        (end.seq, end.crc) = (header.first, header.prev);
    }
    loop {
        let segment = &found[end.at];
        let bytes = read_segment(disk, segment)?;
        let mut position = SEGMENT_HEADER as usize;
        let mut recorded = if known.is_recorded(segment, 0) { position } else { 0 };
        while let Some((header, payload)) = bytes.get(position..).and_then(|rest| frame::decode(rest, store)) {
            if header.seq != end.seq || header.prev != end.crc {
                break;
            }
            known.check(LogPosition { seq: header.seq, crc: header.crc }, segment)?;
            if header.seq > known.installed.seq + Seq::from(planted(Bug::ReplaySkipsFirst)) {
                replay(header.seq, payload)?;
            }
            (end.seq, end.crc) = (header.seq + 1, header.crc);
            position += frame::frame_len(payload.len());
            if known.is_recorded(segment, header.seq) {
                recorded = position;
            }
        }
        end.position = position as u64;
        if let Some(rest) = bytes.get(recorded..position).filter(|rest| !rest.is_empty()) {
            unrecorded.push(UnrecordedBytes { at: end.at, offset: recorded, bytes: rest.to_vec() });
        }
        let next = found.get(end.at + 1);
        let follows = next.is_some_and(|n| {
            n.index == segment.index + 1 && n.header.is_ok_and(|h| h.first == end.seq && h.prev == end.crc)
        });
        if !follows {
            return Ok(Walked { end, last_segment: bytes, unrecorded });
        }
        end.at += 1;
    }
}

/// What follows the frames that count.
struct TailScan {
    /// Whether there are frames that must not be mistaken for later ones.
    has_frames: bool,
    /// The newest position that one of them reports as forced.
    forced: Seq,
}

/// Scans what follows the frames that count, from the segment in which they end on.
fn scan_tail(
    disk: &dyn Disk,
    store: &StoreId,
    found: &[SegmentFile],
    end: &ChainEnd,
    last_segment: &[u8],
) -> Result<TailScan, LogError> {
    let later = &found[end.at + 1..];
    let mut scan = TailScan { has_frames: !later.is_empty(), forced: 0 };
    let mut look = |bytes: &[u8]| {
        for (_, header) in frame::scan(bytes, store).filter(|(_, header)| header.seq >= end.seq) {
            scan.has_frames = true;
            scan.forced = scan.forced.max(header.forced);
        }
    };
    look(last_segment.get(end.position as usize..).unwrap_or_default());
    for segment in later {
        look(&read_segment(disk, segment)?);
    }
    Ok(scan)
}

/// Removes frames that do not count, makes those that do durable, and opens the tail.
fn resume(
    disk: &Arc<dyn Disk>,
    store: StoreId,
    segment_len: u64,
    found: &[SegmentFile],
    read: &ReadLog,
) -> Result<Log, LogError> {
    let ReadLog { start, end, is_torn, unrecorded } = read;
    let segments = Segments::new(Arc::clone(disk), store, segment_len);
    let is_forced = !planted(RecoveryBug::ReplayedFramesNotForced);
    if !planted(RecoveryBug::ReplayedFramesNotWritten) {
        for UnrecordedBytes { at, offset, bytes } in unrecorded {
            disk.open(&found[*at].name)?.write_at(*offset as u64, bytes)?;
        }
    }
    for segment in found[*start..end.at].iter().filter(|_| is_forced) {
        disk.open(&segment.name)?.force()?;
    }
    let tail = &found[end.at];
    let file: Arc<dyn DiskFile> = disk.open(&tail.name)?;
    if *is_torn && !planted(RecoveryBug::TornTailKept) {
        write_zeros(&*file, end.position.min(tail.len), tail.len)?;
    }
    if is_forced {
        file.force()?;
    }
    let last = end.seq - 1;
    let record = TailRecord { segment: tail.index, position: LogPosition { seq: last, crc: end.crc } };
    let tail = Tail { file, index: tail.index, position: end.position, capacity: tail.len, last };
    // The record is durable before the segments after the end are removed.
    let log = Log::with_record(segments, tail, record)?;
    for segment in &found[end.at + 1..] {
        if !planted(RecoveryBug::TornSegmentsKept) {
            disk.remove(&segment.name)?;
        }
    }
    adopt_segments(&log.segments, found, *start, end.at)?;
    disk.force_names(DIR)?;
    Ok(log)
}

/// Adopts the sealed segments and the spares; removes unneeded segments.
fn adopt_segments(segments: &Segments, found: &[SegmentFile], start: usize, tail: usize) -> Result<(), LogError> {
    for segment in &found[..start] {
        segments.disk.remove(&segment.name)?;
    }
    let sealed = found[start..tail].iter().enumerate().map(|(i, segment)| {
        let last = found[start + i + 1].first().map_or(0, |first| first - 1);
        SealedSegment { index: segment.index, last, len: segment.len }
    });
    segments.change_pool(|pool| pool.sealed.extend(sealed));
    adopt_spares(segments)
}

/// Adopts the spares.
fn adopt_spares(segments: &Segments) -> Result<(), LogError> {
    segments.change_pool(|pool| {
        for name in segments.disk.list(DIR)? {
            let Some(number) = spare_number(&name) else { continue };
            let name = format!("{DIR}/{name}");
            pool.next_spare = pool.next_spare.max(number + 1);
            if segments.disk.open(&name)?.len()? == segments.segment_len {
                pool.spares.push(name);
            } else {
                segments.disk.remove(&name)?;
            }
        }
        Ok(())
    })
}
