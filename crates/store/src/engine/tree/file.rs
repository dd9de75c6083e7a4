//! The file of the tree: its memory map, and the check of a page when it is read first.
//!
//! 1. A page is read with a system call and compared with its checksum before the map shows it for the first time, so a disk that
//!    cannot read it causes an error instead of a signal. Later reads of the page only use the map.
//! 2. The system may evict a checked page and read it again, damaged. So all checks are forgotten when this process had to wait for
//!    a page of a map, or found a page that was not in memory, which is looked up every two seconds. Other programs may read the page
//!    again, too, and the system reads pages ahead, so a check counts for five minutes at most. It does not count once damage of the
//!    page was found.
//! 3. What the writer takes over into a new page is from a copy of its own that was checked: damage never gets a new checksum.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::super::EngineResult;
use super::damage::{PageDamage, PageFault};
use super::page::{Node, PAGE, PageRef, pages_of};
use super::{NAME, TreeId, io_error};
use crate::checksum::{crc32c, crc64, mix};
use crate::disk::{Disk, DiskFile};
use crate::plant::{TreeBug, planted};

/// Address space reserved for the map, and the maximum size of the file.
pub(super) const MAP_BYTES: usize = 1 << 40;
pub(super) const MAX_PAGES: u64 = (MAP_BYTES / PAGE) as u64;
/// Pages in a part of the set of checked pages.
const PART_PAGES: usize = 1 << 18;
const PARTS: usize = MAX_PAGES as usize / PART_PAGES;
/// Calls of [`TreeFile::forget_some_checks`] until all checks are forgotten.
pub(super) const FORGET_CALLS: usize = 150;

/// The mapped file.
pub(super) struct TreeFile {
    file: Arc<dyn DiskFile>,
    /// The file of the map, which the file of the operating system is, except in a simulation.
    mapped: Arc<File>,
    map: Map,
    pub(super) store: TreeId,
    /// Distinguishes the checksums of this store's pages from those of others.
    salt: u64,
    checked: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// The word of `checked` at which the next checks are forgotten.
    next_forgotten: AtomicUsize,
    /// The page faults of this process when checks were forgotten last.
    faults: AtomicU64,
    /// Whether a page was not in memory since checks were forgotten last.
    has_missed: AtomicBool,
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

/// How often a thread of this process had to wait until the disk had delivered a page of a map.
#[allow(unsafe_code)]
pub(super) fn waits_for_pages() -> u64 {
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is that of the structure. Without an answer the count is 0.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_majflt as u64
}

impl TreeFile {
    pub(super) fn open(disk: &dyn Disk, store: &TreeId) -> io::Result<Self> {
        let file = disk.open(NAME)?;
        let mapped = file.mappable()?;
        let map = Map::new(&mapped)?;
        let checked = (0..PARTS).map(|_| OnceLock::new()).collect();
        Ok(Self {
            file,
            mapped,
            map,
            store: *store,
            salt: crc64(store),
            checked,
            next_forgotten: AtomicUsize::new(0),
            faults: AtomicU64::new(waits_for_pages()),
            has_missed: AtomicBool::new(false),
        })
    }

    pub(super) fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<()> {
        self.file.read_at(at, out)
    }

    pub(super) fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_at(at, bytes)
    }

    /// Writes adjacent pages.
    pub(super) fn write_pages(&self, pages: &mut [io::IoSlice<'_>], at: u64) -> io::Result<()> {
        self.file.write_parts_at(at, pages)
    }

    /// Makes everything that was written durable.
    pub(super) fn force(&self) -> io::Result<()> {
        self.file.force()
    }

    /// Starts writing everything that was written, up to a position, to the disk.
    pub(super) fn begin_write_back(&self, end: u64) {
        self.file.begin_write_back(0, end);
    }

    /// Grows the file to at least this many bytes.
    pub(super) fn grow(&self, bytes: u64) -> io::Result<()> {
        if self.len()? < bytes { self.file.grow(bytes) } else { Ok(()) }
    }

    /// Whether a page that the file has is in the system's cache.
    #[allow(unsafe_code)]
    pub(super) fn is_in_memory(&self, page: u64) -> bool {
        let mut found = 1;
        // SAFETY: the page is within the mapping, and the result is one byte for one page.
        let result =
            unsafe { libc::mincore(self.map.0.cast::<u8>().add(page as usize * PAGE).cast(), PAGE, &raw mut found) };
        // A system that cannot tell says that all is in memory.
        result != 0 || found & 1 != 0
    }

    /// Has the system read a page, without waiting for it.
    pub(super) fn read_ahead(&self, page: u64) {
        use rustix::io::{ReadWriteFlags, preadv2};
        let at = page * PAGE as u64;
        // The read fails with `EAGAIN` when the system begins to read the page. Another failure is that of the read that follows.
        let _ = preadv2(&*self.mapped, &mut [io::IoSliceMut::new(&mut [0])], at, ReadWriteFlags::NOWAIT);
    }

    /// The bytes of a page that the file has, which may be damaged.
    #[allow(unsafe_code)]
    pub(super) fn unchecked_bytes(&self, page: u64) -> Option<&[u8; PAGE]> {
        // SAFETY: the file has the page, and no page of a state is written while it can be read.
        unsafe { self.map.bytes(page as usize * PAGE, PAGE) }.first_chunk()
    }

    /// The checksum of the bytes of a page or of a run that begins with this page.
    pub(super) fn checksum(&self, page: u64, bytes: &[u8]) -> u32 {
        let covered = if planted(TreeBug::ChecksumOfPart) { bytes.len() - bytes.len() / 8 } else { bytes.len() };
        crc32c(&bytes[..covered]) ^ mix(self.salt ^ page) as u32
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

    /// A page of the run that begins with this page was not in memory. The system reads it with some of its neighbours.
    pub(super) fn note_miss(&self, first: u64) {
        if !planted(TreeBug::FaultsIgnored) {
            self.forget_check(first);
            self.has_missed.store(true, Ordering::Relaxed);
        }
    }

    /// Removes a page from the system's cache and changes it on the disk only. Returns whether the system did that.
    #[cfg(test)]
    #[allow(unsafe_code)]
    pub(super) fn evict(&self, page: u64, bytes: &[u8; PAGE]) -> bool {
        use rustix::fs::{Advice, fadvise};
        use rustix::mm::{Advice as MapAdvice, madvise};
        #[repr(align(4096))]
        struct Aligned([u8; PAGE]);
        let at = page * PAGE as u64;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*self.mapped));
        let mut direct = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(direct.write(true), libc::O_DIRECT);
        // SAFETY: the range is within the mapping, and its pages are those of a file, which the system reads again.
        let advised =
            unsafe { madvise(self.map.0.cast::<u8>().add(at as usize).cast(), PAGE, MapAdvice::LinuxPageOut) };
        let dropped = fadvise(&*self.mapped, at, std::num::NonZeroU64::new(PAGE as u64), Advice::DontNeed);
        let Ok(direct) = direct.open(path) else { return false };
        let written = std::os::unix::fs::FileExt::write_all_at(&direct, &Aligned(*bytes).0, at);
        advised.is_ok() && dropped.is_ok() && written.is_ok() && !self.is_in_memory(page)
    }

    #[cfg(test)]
    pub(super) fn is_checked(&self, page: u64) -> bool {
        self.checked_bit(page).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Forgets some checks of a file with `pages` pages: all of them after [`FORGET_CALLS`] calls, and all of them at once if a page
    /// was not in memory or this process had to wait for a page of a map since the call before. `faults` is how often it had to.
    pub(super) fn forget_some_checks(&self, pages: u64, faults: u64) {
        let words = (pages as usize).div_ceil(64);
        let has_missed = self.has_missed.swap(false, Ordering::Relaxed);
        let has_faulted = self.faults.swap(faults, Ordering::Relaxed) != faults && !planted(TreeBug::FaultsIgnored);
        let has_waited = has_missed || has_faulted;
        let from = if has_waited { 0 } else { self.next_forgotten.load(Ordering::Relaxed) };
        let end = if has_waited { words } else { (from + words.div_ceil(FORGET_CALLS)).min(words) };
        for word in (from..end).filter(|_| !planted(TreeBug::ChecksKept)) {
            let part = self.checked.get(word * 64 / PART_PAGES).and_then(OnceLock::get);
            if let Some(word) = part.and_then(|part| part.get(word % (PART_PAGES / 64))) {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.next_forgotten.store(if end == words { 0 } else { end }, Ordering::Relaxed);
    }

    /// Compares the bytes of a run with its checksum, unless that was done a short time ago.
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
        if len <= PAGE {
            self.read_checked(run, &mut [0; PAGE][..len], fault)
        } else {
            self.read_checked(run, &mut vec![0; len], fault)
        }
    }

    /// Reads a run into memory of the caller and compares that with the run's checksum. A failure counts for readers, too.
    fn read_checked(&self, run: PageRef, out: &mut [u8], fault: PageFault) -> EngineResult<()> {
        let damaged = || Err(PageDamage::error(run.page, fault));
        let read = match self.read_at(out, run.page.saturating_mul(PAGE as u64)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => damaged(),
            Err(error) => Err(io_error(error)),
            Ok(()) if planted(TreeBug::ReferenceNotChecked) => Ok(()),
            Ok(()) if self.checksum(run.page, out) != run.crc => damaged(),
            Ok(()) => Ok(()),
        };
        if read.is_err() && !planted(TreeBug::FailedCheckCounts) {
            self.forget_check(run.page);
        }
        read
    }

    /// Copies a page of a state of the tree with `pages` pages, and checks the copy.
    pub(super) fn copy(&self, page: PageRef, pages: u64, out: &mut [u8; PAGE]) -> EngineResult<()> {
        if page.page >= pages {
            return Err(PageDamage::error(page.page, PageFault::Number));
        }
        self.read_checked(page, out, PageFault::Checksum)
    }

    /// A page of a state of the tree with `pages` pages, which the file has.
    #[inline]
    pub(super) fn node(&self, page: PageRef, level: u8, pages: u64) -> EngineResult<Node<'_>> {
        if page.page >= pages {
            return Err(PageDamage::error(page.page, PageFault::Number));
        }
        self.check_once(page, PAGE, PageFault::Checksum)?;
        let Some(bytes) = self.unchecked_bytes(page.page) else { return Err(PageDamage::structure(page.page)) };
        Node::parse(bytes, page.page, level)
    }

    /// A value on pages of its own.
    #[allow(unsafe_code)]
    pub(super) fn value(&self, run: PageRef, len: usize, pages: u64) -> EngineResult<&[u8]> {
        if run.page.checked_add(pages_of(len)).is_none_or(|end| end > pages) {
            return Err(PageDamage::error(run.page, PageFault::Number));
        }
        if !planted(TreeBug::ValueNotChecked) {
            self.check_once(run, len, PageFault::Value)?;
        }
        // SAFETY: as in `node`.
        Ok(unsafe { self.map.bytes(run.page as usize * PAGE, len) })
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
