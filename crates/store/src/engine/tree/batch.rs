//! How a batch of rows becomes new pages.
//!
//! The rows are sorted. From the root down, each page that has some of their keys in its range is read, and its entries with the
//! changes become new pages; pages without changes are kept. A page that becomes small takes in its neighbour.
//!
//! A damaged page that has changes in its range becomes a leaf that is incomplete: it has the changed rows, removed ones too, and
//! stands for all other rows in the range, which are lost.

use bytes::Bytes;

use super::super::{BatchAborted, EngineError, EngineResult, EngineRow};
use super::damage::PageDamage;
use super::file::TreeFile;
use super::meta::{SystemRows, put_ref};
use super::page::{
    Entry, MAX_LEVEL, MAX_VALUE, NewValue, Node, PAGE, PageRef, Value, encode, fits_inline, is_valid_key, pages_of,
};
use super::space::Space;
use super::{HEADER_PAGES, INDEX_REFS, TreeState, io_error};
use crate::plant::{TreeBug, planted};
use crate::rows::key::{self, Key, SYSTEM_VALUE};

/// After so many batches in a row that failed because a page could not be read, it counts as damaged. The installer tries again
/// every half second.
pub(super) const FAILED_READS: u32 = 120;
/// New pages are written when there are this many.
const FLUSH_PAGES: usize = 1024;

/// A changed row.
struct Change {
    key: Key,
    /// [`NewValue::Absent`] removes the row.
    value: NewValue,
}

/// A batch that is being written.
pub(super) struct Batch<'a> {
    file: &'a TreeFile,
    space: &'a mut Space,
    pub(super) before: &'a TreeState,
    /// Bytes of entries that a page takes.
    room: usize,
    /// Pages that are not written yet.
    pages: Vec<(u64, Box<[u8; PAGE]>)>,
    /// The system rows with the changes.
    pub(super) system: SystemRows,
    /// Batches in a row that failed because a page could not be read.
    failed_reads: &'a mut u32,
}

/// Entries of adjacent pages of a level that become new pages. The first one of branches has the key `first`, so that keys can be
/// compared when entries of other pages come before it.
struct Gathered {
    /// The smallest key that the pages may have.
    first: Box<[u8]>,
    entries: Vec<Entry>,
    size: usize,
    /// Whether the entries are those of a leaf that is incomplete.
    is_incomplete: bool,
}

impl Gathered {
    fn new(first: &[u8], mut entries: Vec<Entry>, is_incomplete: bool) -> Self {
        begin_at(first, &mut entries);
        let size = entries.iter().map(Entry::size).sum();
        Self { first: first.into(), entries, size, is_incomplete }
    }

    fn append(&mut self, next: Self) {
        if self.entries.is_empty() {
            // The range of the page before, which has no rows, is that of the next page, too.
            *self = Self::new(&self.first, next.entries, self.is_incomplete);
            return;
        }
        let mut entries = next.entries;
        if planted(TreeBug::JoinedKeyWrong)
            && let [Entry { key, value: NewValue::Child(_) }, second, ..] = &mut entries[..]
        {
            key.clone_from(&second.key);
        }
        self.entries.extend(entries);
        self.size += next.size;
    }
}

/// The first child of a branch has all keys from the beginning of the branch's range on.
fn begin_at(first: &[u8], entries: &mut [Entry]) {
    if let Some(Entry { key, value: NewValue::Child(_) }) = entries.first_mut() {
        *key = first.into();
    }
}

/// A set of pages, one bit each.
#[derive(Default)]
struct Pages(Vec<u64>);

impl Pages {
    fn insert(&mut self, first: u64, len: u64) {
        for page in first..first + len {
            let word = page as usize / 64;
            if word >= self.0.len() {
                self.0.resize(word + 1, 0);
            }
            self.0[word] |= 1 << (page % 64);
        }
    }
}

/// The entries of a page.
struct Contents {
    entries: Vec<Entry>,
    is_incomplete: bool,
}

impl<'a> Batch<'a> {
    /// A batch whose pages take entries of `room` bytes, which is [`ROOM`] except in tests of high trees.
    pub(super) fn new(
        file: &'a TreeFile,
        space: &'a mut Space,
        before: &'a TreeState,
        room: usize,
        failed_reads: &'a mut u32,
    ) -> Self {
        Self { file, space, before, room, pages: Vec::new(), system: before.system.clone(), failed_reads }
    }

    /// A page with fewer bytes takes in its neighbour.
    fn small(&self) -> usize {
        self.room / 4
    }

    /// Writes the pages of the new state; returns its root.
    pub(super) fn apply(
        &mut self,
        rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>,
    ) -> EngineResult<Option<(PageRef, u8)>> {
        let changes = self.collect(rows)?;
        let Some((root, level)) = self.before.root else {
            let entries = Self::merge(Vec::new(), &changes, false, &mut Vec::new());
            return self.build_root(entries, 0, false);
        };
        let contents = self.rewrite(root, level, &[], &changes)?;
        self.build_root(contents.entries, level, contents.is_incomplete)
    }

    /// The changes in the order of their keys, the last one of each key. Large values are written at once.
    fn collect(
        &mut self,
        rows: &mut dyn Iterator<Item = Result<EngineRow, BatchAborted>>,
    ) -> EngineResult<Vec<Change>> {
        let mut changes = Vec::new();
        for row in rows {
            let (key, value) = row.map_err(|BatchAborted| EngineError::Aborted)?;
            self.keep_system_row(&key, value.as_ref())?;
            let value = match value {
                // No row has such a key.
                None if !is_valid_key(&key, self.room) => continue,
                None => NewValue::Absent,
                _ if !is_valid_key(&key, self.room) => return Err(EngineError::Failed("a key is too long".into())),
                Some(value) if fits_inline(key.len(), value.len(), self.room) => NewValue::Inline(value),
                Some(value) => self.write_value(&value)?,
            };
            changes.push(Change { key, value });
        }
        // The sort is stable: the last change of a key comes last.
        changes.sort_by(|a, b| a.key.cmp(&b.key));
        let mut last: Vec<Change> = Vec::with_capacity(changes.len());
        for change in changes {
            match last.last_mut() {
                Some(before) if before.key == change.key => {
                    self.free_value(&before.value);
                    *before = change;
                }
                _ => last.push(change),
            }
        }
        Ok(last)
    }

    /// Takes over a system row for the meta page.
    fn keep_system_row(&mut self, key: &[u8], value: Option<&Bytes>) -> EngineResult<()> {
        let Some(row) = key::system_row(key) else { return Ok(()) };
        if value.is_some_and(|value| value.len() > SYSTEM_VALUE) {
            return Err(EngineError::Failed("a system row is too long".into()));
        }
        self.system[row] = value.map(|value| Box::from(&value[..]));
        Ok(())
    }

    /// Writes a value on pages of its own.
    fn write_value(&mut self, value: &Bytes) -> EngineResult<NewValue> {
        if value.len() > MAX_VALUE {
            return Err(EngineError::Failed("a value is too long".into()));
        }
        let page = self.space.take(pages_of(value.len()))?;
        self.file.forget_check(page);
        self.file.write_at(value, page * PAGE as u64).map_err(io_error)?;
        let crc = self.file.checksum(page, value);
        Ok(NewValue::Outside(PageRef { page, crc }, value.len()))
    }

    /// Frees the pages that are in use and to which nothing refers any more; returns their number.
    pub(super) fn free_unreachable(&mut self) -> EngineResult<u64> {
        let mut kept = Pages::default();
        kept.insert(0, HEADER_PAGES);
        self.space.map_pages().for_each(|page| kept.insert(page, 1));
        if let Some((root, level)) = self.before.root {
            self.keep_reachable(root, level, &mut kept)?;
        }
        if planted(TreeBug::LeakedPagesKept) {
            return Ok(0);
        }
        Ok(self.space.free_others(&kept.0))
    }

    /// Adds a page and those to which it refers. A damaged page refers to none.
    fn keep_reachable(&self, at: PageRef, level: u8, kept: &mut Pages) -> EngineResult<()> {
        if at.page >= self.before.pages {
            return Ok(());
        }
        kept.insert(at.page, 1);
        let contents = match self.contents(at, level, &[]) {
            Ok(contents) => contents,
            Err(EngineError::Damaged(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in contents.entries {
            match entry.value {
                NewValue::Child(child) => self.keep_reachable(child, level - 1, kept)?,
                NewValue::Outside(run, len) => {
                    let end = run.page.saturating_add(pages_of(len)).min(self.before.pages);
                    kept.insert(run.page, end.saturating_sub(run.page));
                }
                NewValue::Inline(_) | NewValue::Absent => {}
            }
        }
        Ok(())
    }

    fn free_value(&mut self, value: &NewValue) {
        if planted(TreeBug::ReplacedValueKept) {
            return;
        }
        if let NewValue::Outside(run, len) = value {
            self.space.free(run.page, pages_of(*len));
        }
    }

    /// The entries of a page with the changes, all of which are in its range, which begins at `first`. The page is freed.
    fn rewrite(&mut self, at: PageRef, level: u8, first: &[u8], changes: &[Change]) -> EngineResult<Contents> {
        let contents = match self.contents(at, level, first) {
            Ok(contents) => contents,
            Err(EngineError::Failed(error))
                if *self.failed_reads < FAILED_READS && !planted(TreeBug::UnreadableIsLost) =>
            {
                *self.failed_reads += 1;
                return Err(EngineError::Failed(error));
            }
            Err(error) => {
                // The page stays in use, so it is not overwritten.
                let error = error.cause();
                tracing::error!(error, "changing rows of a damaged page of the B-tree: its other rows are lost");
                return self.replace_damaged(level, first, changes);
            }
        };
        self.space.free(at.page, 1);
        if level > 0 {
            return Ok(Contents {
                entries: self.rewrite_children(level, contents.entries, changes)?,
                is_incomplete: false,
            });
        }
        let (is_incomplete, mut replaced) = (contents.is_incomplete, Vec::new());
        let entries = Self::merge(contents.entries, changes, is_incomplete, &mut replaced);
        replaced.iter().for_each(|value| self.free_value(value));
        Ok(Contents { entries, is_incomplete })
    }

    /// The entries of a page whose range begins at `first`.
    fn contents(&self, at: PageRef, level: u8, first: &[u8]) -> EngineResult<Contents> {
        let bytes;
        let node = if planted(TreeBug::WriterTrustsChecks) {
            self.file.node(at, level, self.before.pages)?
        } else {
            bytes = self.file.copy(at, self.before.pages)?;
            Node::parse(&bytes, at.page, level)?
        };
        let mut entries: Vec<Entry> = Vec::with_capacity(node.count());
        let mut size = 0;
        for index in 0..node.count() {
            let (on_page, key, value) = match level {
                0 => {
                    let (key, value) = node.row(index)?;
                    let value = match value {
                        Value::Inline(bytes) => NewValue::Inline(Bytes::copy_from_slice(bytes)),
                        Value::Outside(run, len) => NewValue::Outside(run, len),
                        Value::Absent => NewValue::Absent,
                    };
                    (key, key, value)
                }
                _ => {
                    let (key, child) = node.child(index)?;
                    (key, if index == 0 { first } else { key }, NewValue::Child(child))
                }
            };
            let is_ordered = entries.last().is_none_or(|last| *last.key < *key);
            let entry = Entry { key: key.into(), value };
            // Entries that share bytes, or that begin in the list of places, may be larger than all that fit into a page.
            size += entry.size_with(on_page);
            let fits = entry.size() <= self.room / 2 && size <= self.room;
            if !is_ordered || !(fits || planted(TreeBug::EntrySizeNotChecked)) {
                return Err(PageDamage::structure(at.page));
            }
            entries.push(entry);
        }
        Ok(Contents { entries, is_incomplete: level == 0 && node.is_incomplete() })
    }

    /// Merges the rows of a leaf with changes. Values that are replaced or removed are added to `replaced`.
    fn merge(before: Vec<Entry>, changes: &[Change], keeps_absent: bool, replaced: &mut Vec<NewValue>) -> Vec<Entry> {
        let mut out = Vec::with_capacity(before.len() + changes.len());
        let mut before = before.into_iter().peekable();
        for change in changes {
            while let Some(entry) = before.next_if(|entry| *entry.key < *change.key) {
                out.push(entry);
            }
            if let Some(old) = before.next_if(|entry| *entry.key == *change.key) {
                replaced.push(old.value);
            }
            if keeps_absent || !matches!(change.value, NewValue::Absent) {
                out.push(Entry { key: (*change.key).into(), value: change.value.clone() });
            }
        }
        out.extend(before);
        out
    }

    /// The children of a branch with the changes.
    fn rewrite_children(&mut self, level: u8, children: Vec<Entry>, changes: &[Change]) -> EngineResult<Vec<Entry>> {
        let (mut out, mut gathered, mut rest) = (Vec::new(), None, changes);
        let mut children = children.into_iter().peekable();
        while let Some(child) = children.next() {
            let end = children.peek().map_or(rest.len(), |next| rest.partition_point(|change| *change.key < *next.key));
            let (own, behind) = rest.split_at(end);
            rest = behind;
            let NewValue::Child(at) = child.value else { continue };
            let next = if own.is_empty() {
                self.neighbour(at, level - 1, &child.key, gathered.as_ref())
            } else {
                let contents = self.rewrite(at, level - 1, &child.key, own)?;
                Some(Gathered::new(&child.key, contents.entries, contents.is_incomplete))
            };
            match (next, &mut gathered) {
                (Some(next), Some(before)) if !next.is_incomplete && !before.is_incomplete => before.append(next),
                (next, before) => {
                    self.pack(level - 1, before.take(), &mut out)?;
                    match next {
                        Some(next) => *before = Some(next),
                        None => out.push(child),
                    }
                }
            }
            // Bounds the memory for many adjacent pages with changes.
            if gathered.as_ref().is_some_and(|gathered| gathered.size > 64 * self.room) {
                self.pack(level - 1, gathered.take(), &mut out)?;
            }
        }
        self.take_in_last(level - 1, &mut gathered, &mut out);
        self.pack(level - 1, gathered, &mut out)?;
        Ok(out)
    }

    /// The entries of a page without changes, if the page before it is so small that it takes them in. The page is freed.
    fn neighbour(&mut self, at: PageRef, level: u8, first: &[u8], before: Option<&Gathered>) -> Option<Gathered> {
        before.filter(|before| before.size < self.small() && !before.is_incomplete)?;
        // A damaged page stays as it is.
        let contents = self.contents(at, level, first).ok().filter(|contents| !contents.is_incomplete)?;
        self.space.free(at.page, 1);
        Some(Gathered::new(first, contents.entries, false))
    }

    /// Takes the page before into the last entries, if they are too few for a page.
    fn take_in_last(&mut self, level: u8, gathered: &mut Option<Gathered>, out: &mut Vec<Entry>) {
        let (Some(few), Some(last)) = (gathered.as_mut(), out.last()) else { return };
        let NewValue::Child(at) = last.value else { return };
        if few.size >= self.small() || few.is_incomplete || self.pages.iter().any(|(page, _)| *page == at.page) {
            return;
        }
        let Ok(contents) = self.contents(at, level, &last.key) else { return };
        if contents.is_incomplete {
            return;
        }
        self.space.free(at.page, 1);
        let mut joined = Gathered::new(&last.key, contents.entries, false);
        out.pop();
        joined.append(Gathered::new(&few.first, std::mem::take(&mut few.entries), false));
        *few = joined;
    }

    /// Writes entries as pages of a level, and adds these to the entries of the level above.
    fn pack(&mut self, level: u8, gathered: Option<Gathered>, out: &mut Vec<Entry>) -> EngineResult<()> {
        let Some(Gathered { first, entries, is_incomplete, .. }) = gathered else { return Ok(()) };
        if entries.is_empty() && !is_incomplete {
            // The page before has the range, too.
            return Ok(());
        }
        let mut first = Some(first);
        let mut rest = &entries[..];
        loop {
            let (page, behind) = rest.split_at(page_end(rest, self.room));
            rest = behind;
            let entry = if planted(TreeBug::DividedKeyWrong) { page.last() } else { page.first() };
            let key = first.take().or_else(|| entry.map(|entry| entry.key.clone())).unwrap_or_default();
            let at = self.write_page(level, is_incomplete, page)?;
            out.push(Entry { key, value: NewValue::Child(at) });
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// A part of the tree that replaces a damaged page of a level: the changed rows.
    fn replace_damaged(&mut self, level: u8, first: &[u8], changes: &[Change]) -> EngineResult<Contents> {
        let mut entries = Self::merge(Vec::new(), changes, true, &mut Vec::new());
        for below in 0..level {
            let mut above = Vec::new();
            self.pack(below, Some(Gathered::new(first, entries, below == 0)), &mut above)?;
            entries = above;
        }
        Ok(Contents { entries, is_incomplete: level == 0 })
    }

    /// Adds levels until one page is left.
    fn build_root(
        &mut self,
        entries: Vec<Entry>,
        mut level: u8,
        is_incomplete: bool,
    ) -> EngineResult<Option<(PageRef, u8)>> {
        let mut gathered = Gathered::new(&[], entries, is_incomplete);
        loop {
            if let ([Entry { value: NewValue::Child(only), .. }], 1..) = (&gathered.entries[..], level) {
                return Ok(Some((*only, level - 1)));
            }
            let mut above = Vec::new();
            self.pack(level, Some(gathered), &mut above)?;
            if above.is_empty() {
                return Ok(None);
            }
            level += 1;
            if level > MAX_LEVEL {
                return Err(EngineError::Failed("the B-tree is too high".into()));
            }
            gathered = Gathered::new(&[], above, false);
        }
    }

    fn write_page(&mut self, level: u8, is_incomplete: bool, entries: &[Entry]) -> EngineResult<PageRef> {
        let bytes = encode(level, is_incomplete, entries);
        let page = self.space.take(1)?;
        self.put_page(page, bytes)
    }

    fn put_page(&mut self, page: u64, bytes: Box<[u8; PAGE]>) -> EngineResult<PageRef> {
        let crc = self.file.checksum(page, &bytes[..]);
        self.file.forget_check(page);
        self.pages.push((page, bytes));
        if self.pages.len() >= FLUSH_PAGES {
            self.flush()?;
        }
        Ok(PageRef { page, crc })
    }

    /// Writes the pages of the map of used pages that have changed, and those that list them.
    pub(super) fn write_map(&mut self) -> EngineResult<()> {
        for section in self.space.move_map(INDEX_REFS)? {
            let Some(at) = self.space.sections[section] else { continue };
            let bits = self.space.section_bits(section);
            self.space.sections[section] = Some(self.put_page(at.page, bits)?);
        }
        for number in 0..self.space.index.len() {
            let mut bytes = Box::new([0; PAGE]);
            let sections = self.space.sections.iter().skip(number * INDEX_REFS);
            for (slot, at) in bytes.chunks_exact_mut(12).zip(sections) {
                put_ref(slot, at.unwrap_or(PageRef { page: 0, crc: 0 }));
            }
            let page = self.space.index[number].page;
            self.space.index[number] = self.put_page(page, bytes)?;
        }
        Ok(())
    }

    /// Writes all pages, adjacent ones with one call.
    pub(super) fn flush(&mut self) -> EngineResult<()> {
        let mut pages = std::mem::take(&mut self.pages);
        pages.sort_unstable_by_key(|(page, _)| *page);
        let mut bytes = Vec::new();
        for run in pages.chunk_by(|(page, _), (next, _)| page + 1 == *next) {
            let [(first, _), ..] = run else { continue };
            bytes.clear();
            run.iter().for_each(|(_, page)| bytes.extend_from_slice(&page[..]));
            self.file.write_at(&bytes, first * PAGE as u64).map_err(io_error)?;
        }
        Ok(())
    }
}

/// How many of these entries come into the next page: as many as fit, or about half if the rest would be a small page.
fn page_end(entries: &[Entry], room: usize) -> usize {
    let (mut size, mut end) = (0, entries.len());
    for (index, entry) in entries.iter().enumerate() {
        if size + entry.size() > room {
            end = index;
            break;
        }
        size += entry.size();
    }
    let behind: usize = entries[end..].iter().map(Entry::size).take(room / 8).sum();
    if end == entries.len() || behind >= room {
        // Each page takes an entry, so that the pages come to an end.
        return end.max(1).min(entries.len());
    }
    let half = (size + behind) / 2;
    let mut taken = 0;
    let balanced = entries.iter().take_while(|entry| {
        taken += entry.size();
        taken <= half
    });
    balanced.count().clamp(1, end)
}
