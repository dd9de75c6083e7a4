//! Which pages are in use.
//!
//! 1. The pages of the newest state are in use. The file keeps them as a map of bits, in pages that are written anew when a bit of
//!    theirs changes.
//! 2. Pages of older states are not used again while such a state can be read, and never in the batch that frees them: until that
//!    batch is durable, the state before it counts.
//! 3. A page of the map that is damaged counts as full, so no page in use is overwritten.

use std::collections::{BTreeMap, VecDeque};

use super::super::{EngineError, EngineResult};
use super::file::MAX_PAGES;
use super::page::{PAGE, PageRef};
use crate::plant::{TreeBug, planted};

/// Pages that a page of the map covers.
pub(super) const SECTION_PAGES: u64 = (PAGE * 8) as u64;
const SECTION_WORDS: usize = SECTION_PAGES as usize / 64;

/// The map of used pages, and the pages that this batch takes and frees.
pub(super) struct Space {
    /// Pages in the file.
    pages: u64,
    /// Pages of the newest state, one bit each.
    used: Vec<u64>,
    /// Pages that older states may still use, one bit each.
    held: Vec<u64>,
    /// Free pages in each section.
    free: Vec<u32>,
    /// The pages of the map.
    pub(super) sections: Vec<Option<PageRef>>,
    /// The pages that list the pages of the map.
    pub(super) index: Vec<PageRef>,
    /// The pages that each batch freed, oldest first.
    freed: VecDeque<(u64, Vec<(u64, u64)>)>,
    batch: BatchSpace,
    cursor: u64,
}

/// What a batch has changed, and what it needs for undoing that.
#[derive(Default)]
struct BatchSpace {
    /// Whether the batch was neither committed nor undone.
    is_open: bool,
    pages_before: u64,
    taken: Vec<(u64, u64)>,
    freed: Vec<(u64, u64)>,
    /// Whether a section has changed.
    changed: Vec<bool>,
    /// Sections and index before the batch.
    sections: BTreeMap<usize, Option<PageRef>>,
    index: Option<Vec<PageRef>>,
    /// No free run has this many pages.
    longest: Option<u64>,
    run_cursor: u64,
}

impl Space {
    /// The space of a file with `pages` pages. All of them are in use until [`Space::load_section`] was called.
    pub(super) fn new(pages: u64, index: Vec<PageRef>) -> Self {
        let mut space = Self {
            pages: 0,
            used: Vec::new(),
            held: Vec::new(),
            free: Vec::new(),
            sections: Vec::new(),
            index,
            freed: VecDeque::new(),
            batch: BatchSpace::default(),
            cursor: 0,
        };
        space.grow(pages);
        if !planted(TreeBug::DamagedMapIsFree) {
            space.used.fill(u64::MAX);
            space.free.fill(0);
        }
        space
    }

    fn grow(&mut self, pages: u64) {
        let sections = pages.div_ceil(SECTION_PAGES) as usize;
        if sections > self.sections.len() {
            self.used.resize(sections * SECTION_WORDS, 0);
            self.held.resize(sections * SECTION_WORDS, 0);
            self.sections.resize(sections, None);
            self.batch.changed.resize(sections, false);
            self.free.resize(sections, 0);
        }
        for page in self.pages..pages {
            self.free[(page / SECTION_PAGES) as usize] += 1;
        }
        self.pages = pages;
    }

    /// Takes over a page of the map.
    pub(super) fn load_section(&mut self, section: usize, at: PageRef, bits: &[u8; PAGE]) {
        let from = section * SECTION_WORDS;
        for (word, bytes) in self.used[from..].iter_mut().zip(bits.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.note_section(section, at);
        let first = section as u64 * SECTION_PAGES;
        let end = (first + SECTION_PAGES).min(self.pages);
        self.free[section] = (first..end).filter(|page| !self.is_taken(*page)).count() as u32;
    }

    /// Where a section is, even if its page is damaged.
    pub(super) fn note_section(&mut self, section: usize, at: PageRef) {
        self.sections[section] = Some(at);
    }

    /// The bits of a section, as its page has them.
    pub(super) fn section_bits(&self, section: usize) -> Box<[u8; PAGE]> {
        let mut bits = Box::new([0; PAGE]);
        let from = section * SECTION_WORDS;
        for (bytes, word) in bits.as_chunks_mut::<8>().0.iter_mut().zip(&self.used[from..]) {
            *bytes = word.to_le_bytes();
        }
        bits
    }

    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    fn is_taken(&self, page: u64) -> bool {
        let (word, bit) = (page as usize / 64, 1 << (page % 64));
        (self.used[word] | self.held[word]) & bit != 0
    }

    /// Begins a batch. Pages that batches before `oldest` freed, and `oldest` itself, may be used again.
    pub(super) fn begin(&mut self, oldest: u64) {
        if self.batch.is_open {
            // A panic ended the batch before.
            self.abort();
        }
        while let Some((_, runs)) = self.freed.pop_front_if(|(batch, _)| *batch <= oldest) {
            for (first, len) in runs {
                (first..first + len).for_each(|page| self.release(page));
            }
        }
        let sections = self.sections.len();
        self.batch = BatchSpace {
            is_open: true,
            pages_before: self.pages,
            changed: vec![false; sections],
            ..BatchSpace::default()
        };
    }

    fn release(&mut self, page: u64) {
        self.held[page as usize / 64] &= !(1 << (page % 64));
        self.free[(page / SECTION_PAGES) as usize] += 1;
    }

    /// Takes a run of pages for this batch.
    pub(super) fn take(&mut self, len: u64) -> EngineResult<u64> {
        let first = if len == 1 { self.find_page() } else { self.find_run(len) };
        let first = match first {
            Some(first) => first,
            None => {
                let first = self.pages;
                if len > MAX_PAGES - first {
                    return Err(EngineError::Full("the B-tree has as many pages as are possible".into()));
                }
                self.grow(first + len);
                first
            }
        };
        for page in first..first + len {
            self.used[page as usize / 64] |= 1 << (page % 64);
            let section = (page / SECTION_PAGES) as usize;
            self.free[section] -= 1;
            self.batch.changed[section] = true;
        }
        self.batch.taken.push((first, len));
        Ok(first)
    }

    fn find_page(&mut self) -> Option<u64> {
        for from in [self.cursor, 0] {
            let mut page = from;
            while page < self.pages {
                if self.free[(page / SECTION_PAGES) as usize] == 0 {
                    page = (page / SECTION_PAGES + 1) * SECTION_PAGES;
                    continue;
                }
                let word = (page / 64) as usize;
                let free = !(self.used[word] | self.held[word]) & (u64::MAX << (page % 64));
                let found = word as u64 * 64 + u64::from(free.trailing_zeros());
                if free != 0 && found < self.pages {
                    self.cursor = found + 1;
                    return Some(found);
                }
                page = (page / 64 + 1) * 64;
            }
        }
        self.cursor = self.pages;
        None
    }

    fn find_run(&mut self, len: u64) -> Option<u64> {
        if self.batch.longest.is_some_and(|longest| len > longest) {
            return None;
        }
        for from in [self.batch.run_cursor, 0] {
            let (mut page, mut first) = (from, from);
            while page < self.pages {
                if page % SECTION_PAGES == 0 && self.free[(page / SECTION_PAGES) as usize] == 0 {
                    page += SECTION_PAGES;
                    first = page;
                    continue;
                }
                let (word, bit) = ((page / 64) as usize, page % 64);
                let taken = (self.used[word] | self.held[word]) >> bit;
                let free = u64::from(taken.trailing_zeros()).min(64 - bit).min(self.pages - page);
                page += free;
                if page - first >= len {
                    self.batch.run_cursor = first + len;
                    return Some(first);
                }
                if bit + free < 64 {
                    // To the next free page, or to the end of the word.
                    page += u64::from((taken >> free).trailing_ones());
                    first = page;
                }
            }
            if from == 0 {
                break;
            }
        }
        self.batch.longest = Some(len - 1);
        None
    }

    /// Frees a run of pages of the newest state.
    pub(super) fn free(&mut self, first: u64, len: u64) {
        // A page beyond the end is named by a damaged page only.
        for page in first..first.saturating_add(len).min(self.pages) {
            let (word, bit) = (page as usize / 64, 1 << (page % 64));
            if self.used[word] & bit != 0 {
                self.used[word] &= !bit;
                let section = (page / SECTION_PAGES) as usize;
                self.batch.changed[section] = true;
                if planted(TreeBug::ReusedWithinBatch) {
                    self.free[section] += 1;
                    continue;
                }
                self.held[word] |= bit;
                match self.batch.freed.last_mut() {
                    Some((first, len)) if *first + *len == page => *len += 1,
                    _ => self.batch.freed.push((page, 1)),
                }
            }
        }
    }

    /// Frees the pages that are in use and not in this map of bits; returns their number.
    pub(super) fn free_others(&mut self, kept: &[u64]) -> u64 {
        let mut freed = 0;
        for page in 0..self.pages {
            let (word, bit) = (page as usize / 64, 1 << (page % 64));
            let is_kept = kept.get(word).is_some_and(|word| word & bit != 0);
            if self.used[word] & bit != 0 && !is_kept {
                self.free(page, 1);
                freed += 1;
            }
        }
        freed
    }

    /// Takes new pages for the index and for each section that has changed, which changes sections, too. Returns the sections.
    pub(super) fn move_map(&mut self, sections_per_index: usize) -> EngineResult<Vec<usize>> {
        let old = std::mem::take(&mut self.index);
        old.iter().for_each(|at| self.free(at.page, 1));
        self.batch.index = Some(old);
        let mut moved = Vec::new();
        let mut is_moved = Vec::new();
        loop {
            is_moved.resize(self.sections.len(), false);
            if self.index.len() < self.sections.len().div_ceil(sections_per_index) {
                let page = self.take(1)?;
                self.index.push(PageRef { page, crc: 0 });
                continue;
            }
            let next = (0..self.sections.len()).find(|section| {
                // A section without a page has never been written.
                let has_changed = self.batch.changed[*section] && !planted(TreeBug::MapNotWritten);
                !is_moved[*section] && (has_changed || self.sections[*section].is_none())
            });
            let Some(section) = next else { return Ok(moved) };
            is_moved[section] = true;
            moved.push(section);
            let before = self.sections[section];
            self.batch.sections.insert(section, before);
            if let Some(before) = before {
                self.free(before.page, 1);
            }
            let page = self.take(1)?;
            self.sections[section] = Some(PageRef { page, crc: 0 });
        }
    }

    /// The batch is durable: what it freed may be used again when no older state is left.
    pub(super) fn commit(&mut self, batch: u64) {
        let freed = std::mem::take(&mut self.batch).freed;
        self.freed.push_back((batch, freed));
    }

    /// Undoes the batch. Pages that it added stay, as free ones.
    pub(super) fn abort(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        // A page may have been taken and freed by the batch.
        for (first, len) in batch.freed {
            for page in first..first + len {
                let (word, bit) = (page as usize / 64, 1 << (page % 64));
                self.held[word] &= !bit;
                self.used[word] |= bit;
            }
        }
        for (first, len) in batch.taken.into_iter().filter(|_| !planted(TreeBug::AbortKeepsPages)) {
            for page in first..first + len {
                self.used[page as usize / 64] &= !(1 << (page % 64));
                self.free[(page / SECTION_PAGES) as usize] += 1;
            }
        }
        for (section, before) in batch.sections {
            self.sections[section] = before;
        }
        if let Some(index) = batch.index {
            self.index = index;
        }
        self.cursor = self.cursor.min(batch.pages_before);
        self.batch.changed.resize(self.sections.len(), false);
    }

    /// The pages of the map, and those that list them.
    pub(super) fn map_pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.sections.iter().flatten().chain(&self.index).map(|at| at.page)
    }

    /// Pages in use by the newest state.
    #[cfg(test)]
    pub(super) fn used_pages(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.pages).filter(|page| self.used[*page as usize / 64] & (1 << (page % 64)) != 0)
    }
}
