//! The file system interface of the log, the B-tree and the blob files: a trait, the real file system, and a simulated one that
//! loses and tears unforced data.
//!
//! Names are relative to the store's directory. The bytes of a file are durable after [`DiskFile::force`]. Its name is
//! durable after [`Disk::force_names`] of its directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(any(test, feature = "sim"))]
pub(crate) mod sim;

/// The directory of a store.
pub(crate) trait Disk: Send + Sync {
    /// Creates a directory durably, unless it exists.
    fn make_dir(&self, name: &str) -> io::Result<()>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file, replacing an existing one.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Creates an empty file, unless there is one with this name.
    fn create_new(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file within its directory, replacing an existing file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Renames a file within its directory, unless there is one with the new name.
    fn rename_new(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The names of the files in a directory.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Makes creations, renames and removals in a directory durable.
    fn force_names(&self, dir: &str) -> io::Result<()>;
}

/// An open file of the store.
pub(crate) trait DiskFile: Send + Sync {
    /// Reads from `offset` on into `out`; an error if the file ends before.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    /// Whether a range can probably be read without waiting for the disk: whether its first and last bytes are in memory.
    fn is_in_memory(&self, _offset: u64, _len: u64) -> bool {
        true
    }
    /// Writes at `offset`, growing the file.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Writes parts at `offset`, one after the other, growing the file. There are at most 1,024, none of which is empty. They have
    /// any values afterwards.
    fn write_parts_at(&self, mut offset: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        for part in parts {
            self.write_at(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }
    /// Makes what was written durable.
    fn force(&self) -> io::Result<()>;
    /// Grows the file to `len` bytes, which is not less than it has. The new ones read as zeros.
    fn grow(&self, len: u64) -> io::Result<()>;
    /// Starts writing a range to disk without waiting. A hint.
    fn begin_write_back(&self, offset: u64, len: u64);
    /// Frees the storage of a range, which then reads as zeros.
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Bytes in the file.
    fn len(&self) -> io::Result<u64>;
    /// The operating system's file, for sending it without copying; `None` in a simulation.
    fn system_file(&self) -> Option<&Arc<File>>;
    /// A file of the operating system with the same bytes, also after later writes, for a memory map.
    fn mappable(&self) -> io::Result<Arc<File>>;
}

/// The real file system.
pub(crate) struct RealDisk {
    root: PathBuf,
}

/// Asks the kernel to start writing a range of a file to the disk, so that less is left for a later force. That writes the rest and reports errors.
#[allow(unsafe_code)]
pub fn begin_write_back(file: &File, offset: u64, len: u64) {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open, and the call only asks the kernel to start writing. Its result does not matter.
    unsafe { libc::sync_file_range(file.as_raw_fd(), offset as i64, len as i64, libc::SYNC_FILE_RANGE_WRITE) };
}

struct RealFile(Arc<File>);

impl RealDisk {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
}

impl Disk for RealDisk {
    fn make_dir(&self, name: &str) -> io::Result<()> {
        create_private_dir(&self.root.join(name))?;
        // The name of the directory must be durable, or everything forced in it is lost with it.
        File::open(&self.root)?.sync_all()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = private_file().open(self.root.join(name))?;
        Ok(Arc::new(RealFile(Arc::new(file))))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = private_file().create(true).truncate(true).open(self.root.join(name))?;
        Ok(Arc::new(RealFile(Arc::new(file))))
    }

    fn create_new(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = private_file().create_new(true).open(self.root.join(name))?;
        Ok(Arc::new(RealFile(Arc::new(file))))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        rename_new(&self.root.join(from), &self.root.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(name))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join(dir))? {
            // A name that is not UTF-8 is not of this store.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn force_names(&self, dir: &str) -> io::Result<()> {
        File::open(self.root.join(dir))?.sync_all()
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn is_in_memory(&self, offset: u64, len: u64) -> bool {
        let is_byte_in_memory = |at| {
            let (mut byte, no_waiting) = ([0], rustix::io::ReadWriteFlags::NOWAIT);
            let read = rustix::io::preadv2(&*self.0, &mut [IoSliceMut::new(&mut byte)], at, no_waiting);
            // Some file systems cannot tell.
            read != Err(rustix::io::Errno::AGAIN)
        };
        is_byte_in_memory(offset) && is_byte_in_memory(offset + len.saturating_sub(1))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn write_parts_at(&self, mut offset: u64, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut left = parts;
        while !left.is_empty() {
            match rustix::io::pwritev(&*self.0, left, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut left, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn force(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn begin_write_back(&self, offset: u64, len: u64) {
        begin_write_back(&self.0, offset, len);
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        use rustix::fs::FallocateFlags;
        rustix::fs::fallocate(&*self.0, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn system_file(&self) -> Option<&Arc<File>> {
        Some(&self.0)
    }

    fn mappable(&self) -> io::Result<Arc<File>> {
        Ok(Arc::clone(&self.0))
    }
}

/// Creates a directory and its parents, accessible by the owner only, unless they exist. The names of new ones are durable. Returns whether
/// the directory itself is new.
pub(crate) fn create_private_dir(dir: &Path) -> io::Result<bool> {
    if dir.is_dir() {
        return Ok(false);
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private_dir(parent)?;
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => return Ok(false),
        created => created?,
    }
    match File::open(parent) {
        // One in which names can be made and not listed.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(true),
        opened => opened?.sync_all().map(|()| true),
    }
}

/// Options to open a file for reading and writing. A new file is accessible by the owner only.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Renames a file, unless there is one with the new name.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems can only do it in two steps.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            fs::hard_link(from, to)?;
            fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

/// Whether an error means that the device is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_written_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let (real, simulated) = (RealDisk::new(dir.path()), sim::SimDisk::new());
        for disk in [&real as &dyn Disk, &simulated] {
            let file = disk.create("file").unwrap();
            file.write_at(0, &[9; 100]).unwrap();
            file.write_parts_at(7, &mut []).unwrap();
            file.write_parts_at(10, &mut [b"first ".as_slice(), b"s", b"econd"].map(IoSlice::new)).unwrap();
            file.write_parts_at(98, &mut [b"be".as_slice(), b"hind"].map(IoSlice::new)).unwrap();
            let mut bytes = [0; 104];
            file.read_at(0, &mut bytes).unwrap();
            let expected = [&[9; 10][..], b"first second", &[9; 76], b"behind"].concat();
            assert_eq!((&bytes[..], file.len().unwrap()), (&expected[..], 104));
        }
    }
}
