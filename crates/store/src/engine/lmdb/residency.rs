//! Whether rows of the B-tree can be read without waiting for the disk.
//!
//! A page of the memory map that is not in the system's cache stops the thread that reads it until the disk has delivered it. So a
//! thread that must not wait first walks from the root to the rows with `preadv2(RWF_NOWAIT)`, which fails instead. Pages that a read
//! did not find are on their way from then on.
//!
//! 1. The result is a hint: the system may evict a page at any time. Nothing that it depends on may be unsafe or wrong.
//! 2. The walk takes no part in LMDB's transactions, so a batch may overwrite the pages that it visits. It checks every number that it
//!    reads, visits few pages, and calls rows resident when it cannot make sense of a page.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Pages that a walk visits at most. Of rows on more pages it says whether these are in memory.
const MAX_VISITS: usize = 64;

/// The root of a tree without rows, or of a file that this module does not understand.
const NO_ROOT: u64 = u64::MAX;

// LMDB's file format, version 1: see `MDB_meta`, `MDB_page` and `MDB_node` in its source.
const MAGIC: u32 = 0xBEEF_C0DE;
const FORMAT: u32 = 1;
const META_PAGES: u64 = 2;
const META_LEN: usize = 152;
const META_MAGIC: usize = 16;
const META_FORMAT: usize = 20;
const META_ROOT: usize = 128;
const META_TXN: usize = 144;
const PAGE_HEAD: usize = 16;
const PAGE_FLAGS: usize = 10;
const PAGE_LOWER: usize = 12;
const NODE_HEAD: usize = 8;
const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
/// The value of a row is on pages of its own.
const BIG_VALUE: u16 = 0x01;

/// Finds out whether rows are in memory.
pub(super) struct ResidencyProbe {
    file: File,
    page_size: usize,
    /// The root of the newest batch.
    root: AtomicU64,
}

/// Pages that are yet to be visited, and whose keys are wanted: `from <= key <= to`.
struct Walk<'a> {
    from: &'a [u8],
    to: &'a [u8],
    pages: Vec<u64>,
    /// The first and the last page of each value: a value comes and goes as a whole, most often.
    values: Vec<u64>,
}

impl ResidencyProbe {
    /// Opens LMDB's file once more, for reading.
    pub(super) fn open(path: &Path, page_size: u64) -> std::io::Result<Self> {
        let file = File::open(path)?;
        // A probe needs one page; others would only push pages out of memory.
        if let Err(error) = fadvise(&file, 0, None, Advice::Random) {
            tracing::debug!(%error, "the system does not take advice about the B-tree's file");
        }
        let probe = Self { file, page_size: page_size as usize, root: AtomicU64::new(NO_ROOT) };
        probe.follow();
        Ok(probe)
    }

    /// A batch was written.
    pub(super) fn follow(&self) {
        let newest = (0..META_PAGES).filter_map(|page| self.read_meta(page)).max();
        self.root.store(newest.map_or(NO_ROOT, |(_, root)| root), Ordering::Release);
    }

    /// The number of the batch that a meta page describes, and the root of its tree.
    fn read_meta(&self, page: u64) -> Option<(u64, u64)> {
        let mut meta = [0; META_LEN];
        self.file.read_exact_at(&mut meta, page * self.page_size as u64).ok()?;
        let is_known = u32_at(&meta, META_MAGIC)? == MAGIC && u32_at(&meta, META_FORMAT)? == FORMAT;
        let found = (u64_at(&meta, META_TXN)?, u64_at(&meta, META_ROOT)?);
        is_known.then_some(found)
    }

    /// Whether the rows `from <= key <= to` can probably be read without waiting.
    pub(super) fn is_resident(&self, from: &[u8], to: &[u8]) -> bool {
        let root = self.root.load(Ordering::Acquire);
        if root == NO_ROOT {
            return true;
        }
        let mut walk = Walk { from, to, pages: vec![root], values: Vec::new() };
        let mut page = vec![0; self.page_size];
        for _ in 0..MAX_VISITS {
            if let Some(number) = walk.pages.pop() {
                if !self.read(number, &mut page) {
                    return false;
                }
                if walk.visit(number, &page).is_none() {
                    return true;
                }
            } else if let Some(number) = walk.values.pop() {
                if !self.read(number, &mut page[..1]) {
                    return false;
                }
            } else {
                return true;
            }
        }
        true
    }

    /// Reads the beginning of a page if it is in memory. Pages behind the end of the file, and those of a file system that cannot tell,
    /// count as in memory.
    fn read(&self, number: u64, page: &mut [u8]) -> bool {
        let Some(offset) = number.checked_mul(self.page_size as u64) else { return true };
        let wanted = page.len();
        match preadv2(&self.file, &mut [IoSliceMut::new(page)], offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) => false,
            Ok(read) if read == wanted => true,
            // Zeros are no page.
            Ok(_) | Err(_) => {
                page.fill(0);
                true
            }
        }
    }
}

impl Walk<'_> {
    /// Notes what is to be visited below a page; `None` if it is no page of a tree.
    fn visit(&mut self, number: u64, page: &[u8]) -> Option<()> {
        let flags = u16_at(page, PAGE_FLAGS)?;
        let nodes = usize::from(u16_at(page, PAGE_LOWER)?).checked_sub(PAGE_HEAD)? / 2;
        if u64_at(page, 0)? != number {
            return None;
        }
        for index in 0..nodes {
            let node = page.get(usize::from(u16_at(page, PAGE_HEAD + 2 * index)?)..)?;
            match flags & (BRANCH | LEAF) {
                BRANCH => {
                    let next = match index + 1 < nodes {
                        true => Some(key_of(page.get(usize::from(u16_at(page, PAGE_HEAD + 2 * (index + 1))?)..)?)?),
                        false => None,
                    };
                    // The first key of a branch is absent: it is below all others.
                    let is_behind = index > 0 && key_of(node)? > self.to;
                    if !is_behind && next.is_none_or(|next| next > self.from) {
                        let high = u64::from(u16_at(node, 4)?) << 32;
                        self.pages.push(high | u64::from(u32_at(node, 0)?));
                    }
                }
                LEAF if u16_at(node, 4)? & BIG_VALUE != 0 => {
                    let key = key_of(node)?;
                    if self.from <= key && key <= self.to {
                        let bytes = u64::from(u32_at(node, 0)?) + PAGE_HEAD as u64;
                        let first = u64_at(node, NODE_HEAD + key.len())?;
                        let last = first.wrapping_add(bytes.div_ceil(page.len() as u64) - 1);
                        self.values.extend([first, last]);
                    }
                }
                LEAF => {}
                _ => return None,
            }
        }
        Some(())
    }
}

fn key_of(node: &[u8]) -> Option<&[u8]> {
    let len = usize::from(u16_at(node, 6)?);
    node.get(NODE_HEAD..NODE_HEAD + len)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

/// LMDB keeps the lower half of such a number first on machines of either byte order.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests;
