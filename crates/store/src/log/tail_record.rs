//! The tail record: which segment is the last one, and a position up to which the log is durable.
//!
//! Frames only tell what was forced before them, so they cannot show that the last of them are gone, or a whole last
//! segment. `log/tail` can: it is written after each batch, and forced before a segment takes its first frame.
//!
//! 1. The recorded segment exists, with a durable header.
//! 2. Every frame up to the recorded position is durable, with the recorded checksum. After a power failure the record may
//!    be older than the log, never newer. So a log that does not reach it has lost acknowledged transactions.
//!
//! ```text
//! slot  +-----------+---------+----------+----------+----------+-----------+-------+
//!       | "mortend1"|  store  |  number  | segment  | position | its frame |  crc  |
//!       |     8     |   16    |    8     |    8     |    8     |  crc 4    |   4   |
//!       +-----------+---------+----------+----------+----------+-----------+-------+
//! ```
//!
//! There are two slots, in different blocks of the disk. They are written in turn, and the valid one with the higher
//! number counts, so an interrupted write leaves a valid slot.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::frame::StoreId;
use super::{DIR, NUMBERS};
use crate::checksum::crc32c;
use crate::disk::{Disk, DiskFile};
use crate::plant::{RecoveryBug, planted};
use crate::rows::mob::{LogPosition, SEQ_END};

/// The file of the record.
pub(crate) const FILE: &str = "log/tail";
/// The distance between the slots.
const SLOT_SPACING: u64 = 4096;
const SLOT_LEN: usize = 56;
const MAGIC: &[u8; 8] = b"mortend1";

/// What the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailRecord {
    /// The number of the last segment.
    pub(crate) segment: u64,
    /// A durable frame.
    pub(crate) position: LogPosition,
}

/// Why there is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFault {
    /// The file does not exist.
    Missing,
    /// No slot is valid.
    Damaged,
    /// The record is of another store.
    OtherStore,
}

impl fmt::Display for RecordFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "is missing",
            Self::Damaged => "is damaged",
            Self::OtherStore => "belongs to another store",
        })
    }
}

/// The open file of the record.
pub(super) struct TailRecordFile {
    file: Arc<dyn DiskFile>,
    store: StoreId,
    /// The number of the next write.
    next: u64,
    written: Option<TailRecord>,
}

impl TailRecordFile {
    /// Opens the file, or creates it. The name of a new file is durable.
    pub(super) fn open(disk: &dyn Disk, store: StoreId) -> io::Result<Self> {
        let file = match disk.open(FILE) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let file = disk.create(FILE)?;
                file.write_at(0, &[0; 2 * SLOT_SPACING as usize])?;
                file.force()?;
                disk.force_names(DIR)?;
                file
            }
            other => other?,
        };
        let newest = newest_slot(&*file, &store).ok();
        let next = newest.map_or(1, |(number, _)| number + 1);
        Ok(Self { file, store, next, written: newest.map(|(_, record)| record) })
    }

    /// Writes a record, unless it is the last one. It is durable after the next [`TailRecordFile::force`].
    pub(super) fn write(&mut self, record: TailRecord) -> io::Result<()> {
        if self.written == Some(record) { Ok(()) } else { self.write_slot(record) }
    }

    fn write_slot(&mut self, record: TailRecord) -> io::Result<()> {
        if !planted(RecoveryBug::TailNotRecorded) {
            let slot = encode(&self.store, self.next, &record);
            self.file.write_at(self.next % 2 * SLOT_SPACING, &slot)?;
            self.next += 1;
            self.written = Some(record);
        }
        Ok(())
    }

    /// Writes a record and makes it durable. It is written even if it is the last one: after a force that failed, the system shows what the disk
    /// does not have, and does not write it again.
    pub(super) fn force(&mut self, record: TailRecord) -> io::Result<()> {
        self.write_slot(record)?;
        self.file.force()
    }
}

/// Reads the record of a store.
pub(super) fn read(disk: &dyn Disk, store: &StoreId) -> io::Result<Result<TailRecord, RecordFault>> {
    match disk.open(FILE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Err(RecordFault::Missing)),
        Err(e) => Err(e),
        Ok(file) => Ok(newest_slot(&*file, store).map(|(_, record)| record)),
    }
}

/// Whether one of the slots cannot be read. A power failure while it was written explains that; so does damage, and then the other one may
/// be older than the end of the log.
pub(super) fn has_damaged_slot(disk: &dyn Disk, store: &StoreId) -> io::Result<bool> {
    let file = match disk.open(FILE) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    Ok([0, 1].into_iter().any(|slot| {
        let mut bytes = [0; SLOT_LEN];
        let read = file.read_at(slot * SLOT_SPACING, &mut bytes);
        // One that was never written is empty.
        read.is_err() || bytes != [0; SLOT_LEN] && decode(&bytes, store).is_err()
    }))
}

/// The newest valid slot: its number and its record.
fn newest_slot(file: &dyn DiskFile, store: &StoreId) -> Result<(u64, TailRecord), RecordFault> {
    let slots = [0, 1].map(|slot| {
        let mut bytes = [0; SLOT_LEN];
        file.read_at(slot * SLOT_SPACING, &mut bytes).map_err(|_| RecordFault::Damaged)?;
        decode(&bytes, store)
    });
    match slots {
        [Ok(a), Ok(b)] => Ok(if a.0 > b.0 { a } else { b }),
        [Ok(one), Err(_)] | [Err(_), Ok(one)] => Ok(one),
        [Err(RecordFault::Damaged), Err(fault)] | [Err(fault), Err(_)] => Err(fault),
    }
}

fn encode(store: &StoreId, number: u64, record: &TailRecord) -> [u8; SLOT_LEN] {
    let mut out = [0; SLOT_LEN];
    out[..8].copy_from_slice(MAGIC);
    out[8..24].copy_from_slice(store);
    out[24..32].copy_from_slice(&number.to_le_bytes());
    out[32..40].copy_from_slice(&record.segment.to_le_bytes());
    out[40..48].copy_from_slice(&record.position.seq.to_le_bytes());
    out[48..52].copy_from_slice(&record.position.crc.to_le_bytes());
    let crc = crc32c(&out[..52]);
    out[52..].copy_from_slice(&crc.to_le_bytes());
    out
}

fn decode(bytes: &[u8; SLOT_LEN], store: &StoreId) -> Result<(u64, TailRecord), RecordFault> {
    let long = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let is_possible = long(24) < NUMBERS && long(40) < SEQ_END;
    if &bytes[..8] != MAGIC || crc32c(&bytes[..52]) != word(52) || !is_possible {
        return Err(RecordFault::Damaged);
    }
    if bytes[8..24] != *store {
        return Err(RecordFault::OtherStore);
    }
    let position = LogPosition { seq: long(40), crc: word(48) };
    Ok((long(24), TailRecord { segment: long(32), position }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;

    const STORE: StoreId = *b"0123456789abcdef";

    fn record(seq: u64) -> TailRecord {
        TailRecord { segment: 3, position: LogPosition { seq, crc: 9 } }
    }

    #[test]
    fn the_newest_record_counts_and_any_loss_of_unforced_writes_leaves_a_valid_one() {
        for seed in 0..50 {
            let disk = SimDisk::new();
            let mut file = TailRecordFile::open(&disk, STORE).unwrap();
            file.force(record(5)).unwrap();
            (6..9).for_each(|seq| file.write(record(seq)).unwrap());
            assert_eq!(read(&disk, &STORE).unwrap(), Ok(record(8)));
            let after = read(&disk.crash(seed), &STORE).unwrap().unwrap();
            assert!((5..9).contains(&after.position.seq), "{after:?}");
        }
    }

    #[test]
    fn one_damaged_slot_leaves_the_other_and_two_leave_no_record() {
        let disk = SimDisk::new();
        assert_eq!(read(&disk, &STORE).unwrap(), Err(RecordFault::Missing));
        let mut file = TailRecordFile::open(&disk, STORE).unwrap();
        assert_eq!(read(&disk, &STORE).unwrap(), Err(RecordFault::Damaged));
        file.force(record(5)).unwrap();
        assert!(!has_damaged_slot(&disk, &STORE).unwrap(), "the other one was never written");
        file.force(record(6)).unwrap();
        assert!(!has_damaged_slot(&disk, &STORE).unwrap());
        assert_eq!(read(&disk, b"another one, yes").unwrap(), Err(RecordFault::OtherStore));
        for at in 0..SLOT_LEN {
            let disk = disk.image();
            disk.damage(FILE, at, |bytes| bytes[0] ^= 1);
            assert_eq!(read(&disk, &STORE).unwrap(), Ok(record(5)), "byte {at}");
            assert!(has_damaged_slot(&disk, &STORE).unwrap(), "byte {at}");
            disk.damage(FILE, SLOT_SPACING as usize + at, |bytes| bytes[0] ^= 1);
            assert!(read(&disk, &STORE).unwrap().is_err(), "byte {at}");
        }
    }

    #[test]
    fn records_can_be_counted_on_from_the_highest_number() {
        for number in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1] {
            let disk = SimDisk::new();
            TailRecordFile::open(&disk, STORE).unwrap().force(record(5)).unwrap();
            disk.set_bytes(FILE, (number % 2 * SLOT_SPACING) as usize, &encode(&STORE, number, &record(6)));
            let mut file = TailRecordFile::open(&disk, STORE).unwrap();
            (7..10).for_each(|seq| file.force(record(seq)).unwrap());
        }
    }
}
