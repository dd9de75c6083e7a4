//! A journal: the archives of changes of a backup that follows a cluster, one after the other in a file.
//!
//! ```text
//!   "mortjrn1" | record | record | …
//!   record: zeros up to a multiple of 32 bytes | length u64 | time i64 | crc32c u32 of the 16 bytes before | an archive of so many bytes
//! ```
//!
//! Zeros also follow the first 8 bytes. Numbers are little-endian. The time is that of the archive, in microseconds since 1970. An archive checks itself, and may be encrypted. Its length
//! is written when the archive is complete and on disk: a record without one is the last one, and was never complete. No sector of a disk ends within
//! length, time and checksum, so a loss of power leaves all or nothing of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use model::checksum::crc32c;
use model::{Error, ErrorKind, Result, Timestamp};
use node::cluster_archive::is_bad_sector;

const MAGIC: &[u8; 8] = b"mortjrn1";
const HEADER: usize = 20;
/// Records begin at multiples of this number.
const ALIGNMENT: u64 = 32;

/// Where the record after this position begins.
fn align(position: u64) -> u64 {
    position.next_multiple_of(ALIGNMENT)
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Bytes of the archive.
    pub(super) len: u64,
    /// When it was taken, in microseconds since 1970-01-01T00:00Z.
    pub(super) time_us: i64,
}

impl Record {
    fn encode(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.time_us.to_le_bytes());
        let crc = crc32c(&bytes[..16]);
        bytes[16..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (time_us, _) = rest.split_first_chunk()?;
        let record = Self { len: u64::from_le_bytes(*len), time_us: i64::from_le_bytes(*time_us) };
        (record.encode() == *bytes).then_some(record)
    }
}

/// Writes a journal.
pub(super) struct JournalWriter {
    file: File,
    /// Bytes of the complete records.
    end: u64,
}

impl JournalWriter {
    /// Creates a journal.
    ///
    /// # Errors
    /// If there is such a file, and those of the file system.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(MAGIC)?;
        file.sync_all()?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()?;
        Ok(Self { file, end: MAGIC.len() as u64 })
    }

    /// Bytes of the journal.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// Where the next archive is written to. What an earlier one that was not ended has left is overwritten.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn begin(&mut self) -> io::Result<File> {
        self.file.set_len(self.end)?;
        let mut archive = self.file.try_clone()?;
        archive.seek(SeekFrom::Start(align(self.end)))?;
        archive.write_all(&[0; HEADER])?;
        Ok(archive)
    }

    /// Ends the record of an archive that was written as a whole. It is durable when this returns.
    ///
    /// # Errors
    /// Those of the file system. The backup must end then: the record may count or not.
    pub(super) fn end(&mut self, time_us: i64) -> io::Result<()> {
        self.file.sync_data()?;
        let begin = align(self.end) + HEADER as u64;
        let len = self.file.metadata()?.len() - begin;
        self.file.write_all_at(&Record { len, time_us }.encode(), align(self.end))?;
        self.file.sync_data()?;
        self.end = begin + len;
        Ok(())
    }
}

/// Reads the complete records of a journal, to which a backup may be writing.
pub(super) struct JournalReader {
    file: Arc<File>,
    name: String,
    /// Where the last record ended.
    end: u64,
    last_us: Option<i64>,
}

impl JournalReader {
    /// Opens a journal.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is none, or cannot be read because of a bad sector; those of the file system.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let unreadable = |error| read_error(&name, error);
        let mut file = File::open(path).map_err(unreadable)?;
        let mut magic = Vec::new();
        (&mut file).take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(unreadable)?;
        // One that is shorter was being made.
        if !MAGIC.starts_with(&magic) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{name} is not a journal of a backup, or is damaged")));
        }
        Ok(Self { file: Arc::new(file), name, end: MAGIC.len() as u64, last_us: None })
    }

    /// Bytes up to the end of the last record.
    pub(super) fn bytes(&self) -> u64 {
        self.end
    }

    /// The next complete record, and its archive; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a record is damaged, with the time of the one before; those of the file system.
    pub(super) fn next(&mut self) -> Result<Option<(Record, RecordBytes)>> {
        let at = align(self.end);
        let (mut zeros, mut header) = ([0; ALIGNMENT as usize], [0; HEADER]);
        let zeros = &mut zeros[..(at - self.end) as usize];
        let read = self.file.read_exact_at(zeros, self.end).and_then(|()| self.file.read_exact_at(&mut header, at));
        match read {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(|error| self.unreadable(error))?,
        }
        if zeros.iter().any(|byte| *byte != 0) {
            return Err(self.damage_error_at(self.end));
        }
        if header == [0; HEADER] {
            // The last archive was not complete when the backup ended, or is not yet.
            return Ok(None);
        }
        // The file has the archive when it has the header.
        let len = self.file.metadata().map_err(|error| self.unreadable(error))?.len();
        let (begin, left) = (at + HEADER as u64, len.saturating_sub(at + HEADER as u64));
        let is_next = |record: &Record| record.len <= left && self.last_us.is_none_or(|last| last < record.time_us);
        let record = Record::decode(&header).filter(is_next).ok_or_else(|| self.damage_error_at(at))?;
        (self.end, self.last_us) = (begin + record.len, Some(record.time_us));
        Ok(Some((record, RecordBytes { file: self.file.clone(), at: begin, end: self.end })))
    }

    fn damage_error_at(&self, byte: u64) -> Error {
        let last = self.last_us.map(|last| format!("; the last moment before is {}", Timestamp::from_micros(last)));
        let what = format!("{} is damaged at byte {byte}{}", self.name, last.unwrap_or_default());
        Error::new(ErrorKind::Corrupt, what)
    }

    fn unreadable(&self, error: io::Error) -> Error {
        read_error(&self.name, error)
    }
}

fn read_error(name: &str, error: io::Error) -> Error {
    let kind = if is_bad_sector(&error) { ErrorKind::Corrupt } else { ErrorKind::Io };
    Error::new(kind, format!("{name}: {error}")).with_source(error)
}

/// The archive of a record. It can be read although the journal was removed since.
pub(super) struct RecordBytes {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for RecordBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(usize::try_from(self.end - self.at).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut into[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Result<Vec<(i64, Vec<u8>)>> {
        let mut journal = JournalReader::open(path)?;
        let mut all = Vec::new();
        while let Some((record, mut archive)) = journal.next()? {
            let mut bytes = Vec::new();
            archive.read_to_end(&mut bytes).unwrap();
            all.push((record.time_us, bytes));
        }
        Ok(all)
    }

    fn journal(path: &Path) -> JournalWriter {
        let mut journal = JournalWriter::create(path).unwrap();
        for (time, archive) in [(1, &b"one"[..]), (2, b""), (3, b"three")] {
            journal.begin().unwrap().write_all(archive).unwrap();
            journal.end(time).unwrap();
        }
        journal
    }

    #[test]
    fn archives_read_back_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut journal = journal(&path);
        let mut expected = vec![(1, b"one".to_vec()), (2, Vec::new()), (3, b"three".to_vec())];
        assert_eq!(read(&path).unwrap(), expected);
        // An archive that is being written, or was not ended, does not count, and is overwritten.
        journal.begin().unwrap().write_all(b"a longer one that fails").unwrap();
        assert_eq!(read(&path).unwrap(), expected);
        journal.begin().unwrap().write_all(b"four").unwrap();
        journal.end(4).unwrap();
        expected.push((4, b"four".to_vec()));
        assert_eq!(read(&path).unwrap(), expected);
        assert_eq!(journal.bytes(), std::fs::metadata(&path).unwrap().len());
    }

    #[test]
    fn a_journal_is_read_while_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let mut writer = journal(&path);
        let mut archive = writer.begin().unwrap();
        let mut reader = JournalReader::open(&path).unwrap();
        for _ in 0..3 {
            assert!(reader.next().unwrap().is_some());
        }
        assert!(reader.next().unwrap().is_none());
        archive.write_all(&[5; 10_000]).unwrap();
        assert!(reader.next().unwrap().is_none());
        writer.end(4).unwrap();
        let (record, mut bytes) = reader.next().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut read = Vec::new();
        bytes.read_to_end(&mut read).unwrap();
        assert_eq!((record, read), (Record { len: 10_000, time_us: 4 }, vec![5; 10_000]));
    }

    #[test]
    fn damaged_journals_are_refused_and_incomplete_ones_end_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        journal(&path);
        let whole = std::fs::read(&path).unwrap();
        // "one" ends at byte 55, and the empty archive at 84.
        let zeros = (MAGIC.len()..32).chain(55..64).chain(84..96);
        let records = [32, 64, 96].into_iter().flat_map(|record| record..record + HEADER);
        for byte in records.chain(0..MAGIC.len()).chain(zeros) {
            let mut damaged = whole.clone();
            damaged[byte] ^= 0x10;
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(read(&path).unwrap_err().kind(), ErrorKind::Corrupt, "byte {byte}");
        }
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            // A cut file is either shorter by whole records, or refused.
            if let Ok(records) = read(&path) {
                assert!(records.len() < 3, "{len} bytes");
            }
        }
        // Times rise.
        let mut journal = journal(&dir.path().join("other"));
        journal.begin().unwrap();
        journal.end(3).unwrap();
        assert_eq!(read(&dir.path().join("other")).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
