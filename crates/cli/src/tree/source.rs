//! Reads whole files and detects changes during the read.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};

use super::attributes::Mtime;
use super::walk::{Entry, EntryKind, mtime_of};

/// How often a file that changes while it is read is read again.
pub(crate) const ATTEMPTS: usize = 3;

/// An open file, and what it was when it was opened.
pub(crate) struct Source {
    file: File,
    /// Bytes of content.
    pub(crate) size: u64,
    /// When it last changed.
    pub(crate) mtime: Mtime,
}

impl Source {
    /// Opens a regular file. Neither a link nor a pipe that has taken its place since the walk is followed or waited for.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is no regular file any more"));
        }
        Ok(Self { size: metadata.len(), mtime: mtime_of(&metadata), file })
    }

    /// The file's first bytes, at most `limit`, wherever reading is.
    pub(crate) fn head(&self, limit: usize) -> io::Result<Vec<u8>> {
        let mut head = vec![0; limit];
        let read = self.file.read_at(&mut head, 0)?;
        head.truncate(read);
        Ok(head)
    }

    /// Whether the file is as it was when it was opened, and `read` bytes are all of it.
    pub(crate) fn is_unchanged(&self, read: u64) -> io::Result<bool> {
        let now = self.file.metadata()?;
        Ok(read == self.size && now.len() == self.size && mtime_of(&now) == self.mtime)
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

/// The content of a small file or a link; the entry becomes what it was when the content was read.
///
/// A file that changes while it is read is read again, [`ATTEMPTS`] times; then it is an error, and so is a file that
/// has more than `limit` bytes.
pub(crate) fn read_small(entry: &mut Entry, limit: u64) -> io::Result<Bytes> {
    if entry.kind == EntryKind::Symlink {
        return Ok(fs::read_link(&entry.path)?.into_os_string().into_vec().into());
    }
    for _ in 0..ATTEMPTS {
        let mut source = Source::open(&entry.path)?;
        if source.size > limit {
            return Err(io::Error::other("it grew while it was imported; import again"));
        }
        let mut content = Vec::with_capacity(usize::try_from(source.size).unwrap_or(0) + 1);
        (&mut source).take(limit + 1).read_to_end(&mut content)?;
        if source.is_unchanged(content.len() as u64)? {
            entry.size = source.size;
            entry.mtime = source.mtime;
            return Ok(content.into());
        }
    }
    Err(file_changed_error())
}

/// The error of a file that would not hold still.
pub(crate) fn file_changed_error() -> io::Error {
    io::Error::other(format!("it kept changing while it was read ({ATTEMPTS} attempts); import again"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::PathBuf;

    use super::*;

    fn entry(path: PathBuf, kind: EntryKind) -> Entry {
        let mtime = Mtime { seconds: 0, nanoseconds: 0 };
        Entry { path, name: "/x".into(), parent: None, kind, size: 0, mode: 0, mtime }
    }

    #[test]
    fn a_file_that_grew_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("growing");
        fs::write(&path, "abc").unwrap();
        let mut source = Source::open(&path).unwrap();
        assert_eq!(io::read_to_string(&mut source).unwrap(), "abc");
        assert_eq!(source.head(2).unwrap(), b"ab");
        assert!(source.is_unchanged(3).unwrap());
        File::options().append(true).open(&path).unwrap().write_all(b"d").unwrap();
        assert!(!source.is_unchanged(3).unwrap());
    }

    #[test]
    fn small_files_and_links_are_read_whole() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "abc").unwrap();
        let mut entry_of_file = entry(file.clone(), EntryKind::File);
        assert_eq!(read_small(&mut entry_of_file, 10).unwrap(), "abc");
        assert_eq!(entry_of_file.size, 3);
        assert!(read_small(&mut entry_of_file, 2).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("to/where", &link).unwrap();
        assert!(Source::open(&link).is_err(), "a link is not followed");
        assert_eq!(read_small(&mut entry(link, EntryKind::Symlink), 10).unwrap(), "to/where");
    }
}
