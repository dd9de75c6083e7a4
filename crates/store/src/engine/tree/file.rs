//! The file of the tree: its memory map, and the check of a page when it is read first.
//!
//! A page is read with a system call and compared with its checksum before the map shows it for the first time, so a disk that
//! cannot read it causes an error instead of a signal. Later reads of the page only use the map.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::EngineResult;
use super::damage::{PageDamage, PageFault};
use super::page::{Node, PAGE, PageRef, pages_of};
use super::{TreeId, io_error};
use crate::checksum::{crc32c, crc64, mix};

/// Address space reserved for the map, and the maximum size of the file.
pub(super) const MAP_BYTES: usize = 1 << 40;
pub(super) const MAX_PAGES: u64 = (MAP_BYTES / PAGE) as u64;
/// Pages in a part of the set of checked pages.
const PART_PAGES: usize = 1 << 18;
const PARTS: usize = MAX_PAGES as usize / PART_PAGES;

/// The mapped file.
pub(super) struct TreeFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    #[cfg(test)]
    pub(super) trial: parking_lot::Mutex<Trial>,
    map: Map,
    /// Distinguishes the checksums of this store's pages from those of others.
    salt: u64,
    checked: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

/// What a test lets fail, and what it sees.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Trial {
    /// Pages that the disk cannot read.
    pub(super) unreadable: std::collections::BTreeSet<u64>,
    /// Writes and forces until one fails; `None` if none fails.
    pub(super) left: Option<u32>,
    /// Writes, with the page where they begin, and forces.
    pub(super) operations: Vec<Operation>,
}

#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write(u64),
    Force,
}

#[cfg(test)]
impl Trial {
    fn count(&mut self, operation: Operation) -> io::Result<()> {
        self.operations.push(operation);
        match &mut self.left {
            Some(0) => Err(io::Error::other("a fault that a test asked for")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A read-only mapping of the file, longer than the file.
struct Map(*mut std::ffi::c_void);

// SAFETY: the mapping is only read, and stays until it is dropped.
#[allow(unsafe_code)]
unsafe impl Send for Map {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Map {}

impl Map {
    #[allow(unsafe_code)]
    fn new(file: &File) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses.
        let address = unsafe { mmap(std::ptr::null_mut(), MAP_BYTES, ProtFlags::READ, flags, file, 0) }?;
        Ok(Self(address))
    }

    /// # Safety
    /// The file has these bytes, and nothing writes to them while the result is used.
    #[allow(unsafe_code)]
    unsafe fn bytes(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: the caller guarantees that the range is within the file, and so within the mapping.
        unsafe { std::slice::from_raw_parts(self.0.cast::<u8>().add(at), len) }
    }
}

impl Drop for Map {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        if let Err(error) = unsafe { rustix::mm::munmap(self.0, MAP_BYTES) } {
            tracing::debug!(%error, "cannot unmap the B-tree");
        }
    }
}

impl TreeFile {
    pub(super) fn open(path: &Path, store: &TreeId) -> io::Result<Self> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        let map = Map::new(&file)?;
        let checked = (0..PARTS).map(|_| OnceLock::new()).collect();
        Ok(Self {
            path: path.to_owned(),
            file,
            #[cfg(test)]
            trial: parking_lot::Mutex::default(),
            map,
            salt: crc64(store),
            checked,
        })
    }

    pub(super) fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        #[cfg(test)]
        if self.trial.lock().unreadable.contains(&(at / PAGE as u64)) {
            return Err(io::Error::other("a page that the disk cannot read"));
        }
        self.file.read_exact_at(out, at)
    }

    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        #[cfg(test)]
        self.trial.lock().count(Operation::Write(at / PAGE as u64))?;
        self.file.write_all_at(bytes, at)
    }

    /// Makes everything that was written durable.
    pub(super) fn force(&self) -> io::Result<()> {
        #[cfg(test)]
        self.trial.lock().count(Operation::Force)?;
        self.file.sync_data()
    }

    pub(super) fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    /// The checksum of the bytes of a page or of a run that begins with this page.
    pub(super) fn checksum(&self, page: u64, bytes: &[u8]) -> u32 {
        crc32c(bytes) ^ mix(self.salt ^ page) as u32
    }

    fn checked_bit(&self, page: u64) -> Option<(&AtomicU64, u64)> {
        let part = self.checked.get(page as usize / PART_PAGES)?;
        let words = part.get_or_init(|| (0..PART_PAGES / 64).map(|_| AtomicU64::new(0)).collect());
        Some((words.get(page as usize % PART_PAGES / 64)?, 1 << (page % 64)))
    }

    /// A page was written and must be checked again.
    pub(super) fn forget_check(&self, page: u64) {
        if let Some((word, bit)) = self.checked_bit(page) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Compares the bytes of a run with its checksum, unless that was done before.
    #[inline]
    fn check_once(&self, run: PageRef, len: usize, fault: PageFault) -> EngineResult<()> {
        let Some((word, bit)) = self.checked_bit(run.page) else {
            return Err(PageDamage::error(run.page, PageFault::Number));
        };
        if word.load(Ordering::Acquire) & bit == 0 {
            self.check(run, len, fault)?;
            word.fetch_or(bit, Ordering::Release);
        }
        Ok(())
    }

    /// Reads a run from the disk and compares it with its checksum.
    #[cold]
    pub(super) fn check(&self, run: PageRef, len: usize, fault: PageFault) -> EngineResult<()> {
        let mut small = [0; PAGE];
        let mut large = Vec::new();
        let bytes = if len <= PAGE {
            &mut small[..len]
        } else {
            large.resize(len, 0);
            &mut large[..]
        };
        match self.read_at(bytes, run.page * PAGE as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(PageDamage::error(run.page, fault)),
            Err(error) => Err(io_error(error)),
            Ok(()) if self.checksum(run.page, bytes) != run.crc => Err(PageDamage::error(run.page, fault)),
            Ok(()) => Ok(()),
        }
    }

    /// A page of a state of the tree with `pages` pages, which the file has.
    #[inline]
    #[allow(unsafe_code)]
    pub(super) fn node(&self, page: PageRef, level: u8, pages: u64) -> EngineResult<Node<'_>> {
        if page.page >= pages {
            return Err(PageDamage::error(page.page, PageFault::Number));
        }
        self.check_once(page, PAGE, PageFault::Checksum)?;
        // SAFETY: the file has at least `pages` pages, and no page of a state is written while it can be read.
        let bytes = unsafe { self.map.bytes(page.page as usize * PAGE, PAGE) };
        let Some(bytes) = bytes.first_chunk() else { return Err(PageDamage::structure(page.page)) };
        Node::parse(bytes, page.page, level)
    }

    /// A value on pages of its own.
    #[allow(unsafe_code)]
    pub(super) fn value(&self, run: PageRef, len: usize, pages: u64) -> EngineResult<&[u8]> {
        if run.page.checked_add(pages_of(len)).is_none_or(|end| end > pages) {
            return Err(PageDamage::error(run.page, PageFault::Number));
        }
        self.check_once(run, len, PageFault::Value)?;
        // SAFETY: as in `node`.
        Ok(unsafe { self.map.bytes(run.page as usize * PAGE, len) })
    }

    /// Reads a page that is not shown by the map, if it has this checksum.
    pub(super) fn read_page(&self, page: PageRef, pages: u64) -> io::Result<Option<Box<[u8; PAGE]>>> {
        let mut bytes = Box::new([0; PAGE]);
        if page.page >= pages {
            return Ok(None);
        }
        match self.read_at(&mut bytes[..], page.page * PAGE as u64) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        Ok((self.checksum(page.page, &bytes[..]) == page.crc).then_some(bytes))
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
