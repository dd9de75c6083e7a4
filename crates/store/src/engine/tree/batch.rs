//! How a batch of rows becomes new pages.
//!
//! The rows are sorted. From the root down, each page that has some of their keys in its range is read, and its entries with the
//! changes become new pages; pages without changes are kept. A page that becomes small takes in its neighbour.
//!
//! A damaged page that has changes in its range becomes a leaf that is incomplete: it has the changed rows, removed ones too, and
//! stands for all other rows in the range, which are lost. A batch that gives them up leaves the changed rows only.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::io::IoSlice;

use bytes::Bytes;

use super::super::{BatchAborted, EngineError, EngineResult, EngineRow};
use super::changes::{Change, ChangedValue, LeafSize, merge, merge_page};
use super::damage::PageDamage;
use super::file::TreeFile;
use super::meta::{SystemRows, put_ref};
use super::page::{
    Entry, MAX_LEVEL, MAX_VALUE, NewValue, Node, PAGE, PageRef, encode, fits_inline, is_valid_key, pages_of,
};
use super::space::Space;
use super::{HEADER_PAGES, INDEX_REFS, TreeState, io_error};
use crate::engine::FAILED_READS;
use crate::plant::{TreeBug, planted};
use crate::rows::key::{self, SYSTEM_VALUE};

/// New pages are written when there are this many.
const FLUSH_PAGES: usize = 1024;
/// Maximum number of adjacent pages that are written with one call, beginning with a multiple of it. The system keeps what one call writes in one
/// piece of its cache if it is aligned. A later write of a page costs more the larger the piece is in which it is.
const RUN_PAGES: u64 = 16;

/// The bytes of a page.
type PageBytes = Box<[u8; PAGE]>;

/// A batch that is being written.
pub(super) struct Batch<'a> {
    file: &'a TreeFile,
    space: &'a mut Space,
    pub(super) before: &'a TreeState,
    /// Bytes of entries that a page takes.
    room: usize,
    /// Pages that are not written yet.
    pages: Vec<(u64, PageBytes)>,
    /// Memory for pages, with any contents.
    spare: Vec<PageBytes>,
    /// The system rows with the changes.
    pub(super) system: SystemRows,
    /// Batches in a row that failed because a page could not be read.
    failed_reads: &'a mut u32,
    /// Damaged pages whose lost rows are absent from now on.
    pub(super) given_up: BTreeSet<u64>,
}

/// Copies of the children of a branch, to which entries refer while the branch is rewritten. One is for a child that was just written.
type Copies = [OnceCell<PageBytes>];

/// Entries of adjacent pages of a level that become new pages. The first one of branches has the key `first`, so that keys can be
/// compared when entries of other pages come before it.
struct Gathered<'p, 'e> {
    /// The smallest key that the pages may have.
    first: Cow<'p, [u8]>,
    entries: Vec<Entry<'e>>,
    size: usize,
    /// Whether the entries are those of a leaf that is incomplete.
    is_incomplete: bool,
}

impl<'p: 'e, 'e> Gathered<'p, 'e> {
    fn new(first: Cow<'p, [u8]>, mut entries: Vec<Entry<'e>>, is_incomplete: bool) -> Self {
        // The first child of a branch has all keys from the beginning of the branch's range on.
        if let Some(Entry { key, value: NewValue::Child(_) }) = entries.first_mut() {
            *key = first.clone();
        }
        let size = entries.iter().map(Entry::size).sum();
        Self { first, entries, size, is_incomplete }
    }

    fn append(&mut self, next: Self) {
        if self.entries.is_empty() {
            // The range of the page before, which has no rows, is that of the next page, too.
            *self = Self::new(self.first.clone(), next.entries, self.is_incomplete);
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
struct Contents<'e> {
    entries: Vec<Entry<'e>>,
    is_incomplete: bool,
}

/// What a page with changes has become.
enum Rewritten<'e> {
    /// One page, which is written.
    Page(PageRef),
    /// Entries that are to be written.
    Contents(Contents<'e>),
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
        let (pages, spare) = (Vec::new(), Vec::new());
        let system = before.system.clone();
        Self { file, space, before, room, pages, spare, system, failed_reads, given_up: BTreeSet::new() }
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
            let entries = merge(Vec::new(), &changes, false, &mut Vec::new());
            return self.build_root(entries, 0, false);
        };
        let copy = OnceCell::new();
        match self.rewrite(root, level, &Cow::Borrowed(&[]), &changes, &copy)? {
            Rewritten::Page(root) => Ok(Some((root, level))),
            Rewritten::Contents(contents) => self.build_root(contents.entries, level, contents.is_incomplete),
        }
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
                None => ChangedValue::Absent,
                _ if !is_valid_key(&key, self.room) => return Err(EngineError::Failed("a key is too long".into())),
                Some(value) if fits_inline(key.len(), value.len(), self.room) => ChangedValue::Inline(value),
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
                    self.free_value(before.value.as_new());
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
    fn write_value(&mut self, value: &Bytes) -> EngineResult<ChangedValue> {
        if value.len() > MAX_VALUE {
            return Err(EngineError::Failed("a value is too long".into()));
        }
        let page = self.space.take(pages_of(value.len()))?;
        self.file.forget_check(page);
        self.file.write_at(value, page * PAGE as u64).map_err(io_error)?;
        let crc = self.file.checksum(page, value);
        Ok(ChangedValue::Outside(PageRef { page, crc }, value.len()))
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
    fn keep_reachable(&mut self, at: PageRef, level: u8, kept: &mut Pages) -> EngineResult<()> {
        if at.page >= self.before.pages {
            return Ok(());
        }
        kept.insert(at.page, 1);
        let copy = OnceCell::new();
        let contents = match self.contents(at, level, &Cow::Borrowed(&[]), &copy) {
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
        self.spare.extend(copy.into_inner());
        Ok(())
    }

    fn free_value(&mut self, value: NewValue<'_>) {
        if planted(TreeBug::ReplacedValueKept) {
            return;
        }
        if let NewValue::Outside(run, len) = value {
            self.space.free(run.page, pages_of(len));
        }
    }

    /// A page with the changes, all of which are in its range, which begins at `first`. The page is freed.
    fn rewrite<'e>(
        &mut self,
        at: PageRef,
        level: u8,
        first: &Cow<'e, [u8]>,
        changes: &'e [Change],
        copy: &'e OnceCell<PageBytes>,
    ) -> EngineResult<Rewritten<'e>> {
        let gives_up = self.given_up.contains(&at.page);
        let contents = match self.copy(at, level, copy) {
            Ok(node) => match self.rewrite_leaf(&node, level, changes)? {
                Some(page) => return Ok(Rewritten::Page(page)),
                None => self.entries(&node, level, first),
            },
            Err(error) => Err(error),
        };
        let contents = match contents {
            Ok(contents) => contents,
            Err(EngineError::Failed(error))
                if !gives_up && *self.failed_reads < FAILED_READS && !planted(TreeBug::UnreadableIsLost) =>
            {
                *self.failed_reads += 1;
                return Err(EngineError::Failed(error));
            }
            Err(error) => {
                // The page stays in use, so it is not overwritten.
                let error = error.cause();
                tracing::error!(error, "changing rows of a damaged page of the B-tree: its other rows are lost");
                return self.replace_damaged(level, first, changes, gives_up).map(Rewritten::Contents);
            }
        };
        self.space.free(at.page, 1);
        let Contents { entries: mut before, mut is_incomplete } = contents;
        if gives_up && !planted(TreeBug::GivenUpStaysIncomplete) {
            before.retain(|entry| match entry.value {
                NewValue::Absent => false,
                NewValue::Outside(run, len) => self.file.value(run, len, self.before.pages).is_ok(),
                _ => true,
            });
            is_incomplete = false;
        }
        let mut replaced = Vec::new();
        let entries = match level {
            0 => merge(before, changes, is_incomplete, &mut replaced),
            _ => self.rewrite_children(level, before, changes)?,
        };
        replaced.into_iter().for_each(|value| self.free_value(value));
        Ok(Rewritten::Contents(Contents { entries, is_incomplete }))
    }

    /// Writes a leaf with the changes if that is one page that needs no neighbour. The page before is freed.
    fn rewrite_leaf(&mut self, node: &Node<'_>, level: u8, changes: &[Change]) -> EngineResult<Option<PageRef>> {
        if level > 0 || node.is_incomplete() {
            return Ok(None);
        }
        let size = LeafSize { least: self.small(), room: self.room };
        let mut bytes = self.buffer();
        let Some(replaced) = merge_page(node, changes, size, &mut bytes) else {
            self.spare.push(bytes);
            return Ok(None);
        };
        self.space.free(node.number(), 1);
        replaced.into_iter().for_each(|value| self.free_value(value));
        let page = self.space.take(1)?;
        self.put_page(page, bytes).map(Some)
    }

    fn buffer(&mut self) -> PageBytes {
        self.spare.pop().unwrap_or_else(|| Box::new([0; PAGE]))
    }

    /// A checked page, copied to `copy`.
    fn copy<'e>(&mut self, at: PageRef, level: u8, copy: &'e OnceCell<PageBytes>) -> EngineResult<Node<'e>> {
        let mut bytes = self.buffer();
        let copied = match planted(TreeBug::WriterTrustsChecks) {
            true => self.file.node(at, level, self.before.pages).map(|node| *bytes = *node.bytes()),
            false => self.file.copy(at, self.before.pages, &mut bytes),
        };
        if let Err(error) = copied {
            self.spare.push(bytes);
            return Err(error);
        }
        assert!(copy.get().is_none(), "a page is copied once");
        Node::parse(copy.get_or_init(|| bytes), at.page, level)
    }

    /// The entries of a page whose range begins at `first`.
    fn contents<'e>(
        &mut self,
        at: PageRef,
        level: u8,
        first: &Cow<'e, [u8]>,
        copy: &'e OnceCell<PageBytes>,
    ) -> EngineResult<Contents<'e>> {
        let node = self.copy(at, level, copy)?;
        self.entries(&node, level, first)
    }

    fn entries<'e>(&self, node: &Node<'e>, level: u8, first: &Cow<'e, [u8]>) -> EngineResult<Contents<'e>> {
        let mut entries: Vec<Entry<'e>> = Vec::with_capacity(node.count() + 1);
        let mut size = 0;
        for index in 0..node.count() {
            let (on_page, value) = match level {
                0 => node.row(index).map(|(key, value)| (key, value.into()))?,
                _ => node.child(index).map(|(key, child)| (key, NewValue::Child(child)))?,
            };
            let key = if level > 0 && index == 0 { first.clone() } else { on_page.into() };
            let is_ordered = entries.last().is_none_or(|last| *last.key < *key);
            let entry = Entry { key, value };
            // Entries that share bytes, or that begin in the list of places, may be larger than all that fit into a page.
            size += value.size_with(on_page);
            let fits = entry.size() <= self.room / 2 && size <= self.room;
            if !is_ordered || !(fits || planted(TreeBug::EntrySizeNotChecked)) {
                return Err(PageDamage::structure(node.number()));
            }
            entries.push(entry);
        }
        Ok(Contents { entries, is_incomplete: level == 0 && node.is_incomplete() })
    }

    /// The children of a branch with the changes.
    fn rewrite_children<'p>(
        &mut self,
        level: u8,
        children: Vec<Entry<'p>>,
        changes: &'p [Change],
    ) -> EngineResult<Vec<Entry<'p>>> {
        let copies: Vec<_> = (0..=children.len()).map(|_| OnceCell::new()).collect();
        let out = self.rewrite_copied(level, children, changes, &copies)?;
        self.spare.extend(copies.into_iter().filter_map(OnceCell::into_inner));
        Ok(out)
    }

    fn rewrite_copied<'p: 'e, 'e>(
        &mut self,
        level: u8,
        children: Vec<Entry<'p>>,
        changes: &'p [Change],
        copies: &'e Copies,
    ) -> EngineResult<Vec<Entry<'p>>> {
        let (mut out, mut rest) = (Vec::with_capacity(children.len() + 1), changes);
        let mut gathered: Option<Gathered<'p, 'e>> = None;
        let mut children = children.into_iter().zip(copies).peekable();
        while let Some((child, copy)) = children.next() {
            let next = children.peek().map(|(next, _)| &next.key);
            let own = next.map_or(rest.len(), |next| changes_below(rest, next));
            let (own, behind) = rest.split_at(own);
            rest = behind;
            let NewValue::Child(at) = child.value else { continue };
            let next = if own.is_empty() {
                self.neighbour(at, level - 1, &child.key, gathered.as_ref(), copy)
            } else {
                match self.rewrite(at, level - 1, &child.key, own, copy)? {
                    Rewritten::Page(at) => {
                        self.pack(level - 1, gathered.take(), &mut out)?;
                        out.push(Entry { key: child.key, value: NewValue::Child(at) });
                        continue;
                    }
                    Rewritten::Contents(Contents { entries, is_incomplete }) => {
                        Some(Gathered::new(child.key.clone(), entries, is_incomplete))
                    }
                }
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
        if let Some(copy) = copies.last() {
            self.take_in_last(level - 1, &mut gathered, &mut out, copy);
        }
        self.pack(level - 1, gathered, &mut out)?;
        Ok(out)
    }

    /// The entries of a page without changes, if the page before it is so small that it takes them in. The page is freed.
    fn neighbour<'p: 'e, 'e>(
        &mut self,
        at: PageRef,
        level: u8,
        first: &Cow<'p, [u8]>,
        before: Option<&Gathered<'p, 'e>>,
        copy: &'e OnceCell<PageBytes>,
    ) -> Option<Gathered<'p, 'e>> {
        before.filter(|before| before.size < self.small() && !before.is_incomplete)?;
        // A damaged page stays as it is.
        let contents = self.contents(at, level, first, copy).ok().filter(|contents| !contents.is_incomplete)?;
        self.space.free(at.page, 1);
        Some(Gathered::new(first.clone(), contents.entries, false))
    }

    /// Takes the page before into the last entries, if they are too few for a page.
    fn take_in_last<'p: 'e, 'e>(
        &mut self,
        level: u8,
        gathered: &mut Option<Gathered<'p, 'e>>,
        out: &mut Vec<Entry<'p>>,
        copy: &'e OnceCell<PageBytes>,
    ) {
        let (Some(few), Some(last)) = (gathered.as_mut(), out.last()) else { return };
        let NewValue::Child(at) = last.value else { return };
        if few.size >= self.small() || few.is_incomplete {
            return;
        }
        let new = self.pages.iter().rposition(|(page, _)| *page == at.page);
        let node = match new {
            Some(new) => {
                let mut bytes = self.buffer();
                bytes.copy_from_slice(&self.pages[new].1[..]);
                Node::parse(copy.get_or_init(|| bytes), at.page, level)
            }
            None => self.copy(at, level, copy),
        };
        let contents = match node.and_then(|node| self.entries(&node, level, &last.key)) {
            Ok(contents) if !contents.is_incomplete => contents,
            _ => return,
        };
        if let Some(new) = new {
            // The batch need not write it any more.
            self.spare.push(self.pages.swap_remove(new).1);
        }
        self.space.free(at.page, 1);
        let mut joined = Gathered::new(last.key.clone(), contents.entries, false);
        out.pop();
        joined.append(Gathered::new(few.first.clone(), std::mem::take(&mut few.entries), false));
        *few = joined;
    }

    /// Writes entries as pages of a level, and adds these to the entries of the level above.
    fn pack<'p>(
        &mut self,
        level: u8,
        gathered: Option<Gathered<'p, '_>>,
        out: &mut Vec<Entry<'p>>,
    ) -> EngineResult<()> {
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
            let divided = || entry.map(|entry| Cow::Owned(entry.key.to_vec()));
            let key = first.take().or_else(divided).unwrap_or_default();
            let at = self.write_page(level, is_incomplete, page)?;
            out.push(Entry { key, value: NewValue::Child(at) });
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// A part of the tree that replaces a damaged page of a level: the changed rows.
    fn replace_damaged<'e>(
        &mut self,
        level: u8,
        first: &Cow<'e, [u8]>,
        changes: &'e [Change],
        gives_up: bool,
    ) -> EngineResult<Contents<'e>> {
        let is_incomplete = !gives_up || planted(TreeBug::GivenUpStaysIncomplete);
        let mut entries = merge(Vec::new(), changes, is_incomplete, &mut Vec::new());
        for below in 0..level {
            let mut above = Vec::new();
            self.pack(below, Some(Gathered::new(first.clone(), entries, is_incomplete && below == 0)), &mut above)?;
            entries = above;
        }
        Ok(Contents { entries, is_incomplete: is_incomplete && level == 0 })
    }

    /// Adds levels until one page is left.
    fn build_root(
        &mut self,
        entries: Vec<Entry<'_>>,
        mut level: u8,
        is_incomplete: bool,
    ) -> EngineResult<Option<(PageRef, u8)>> {
        let mut gathered = Gathered::new(Cow::Borrowed(&[]), entries, is_incomplete);
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
            gathered = Gathered::new(Cow::Borrowed(&[]), above, false);
        }
    }

    fn write_page(&mut self, level: u8, is_incomplete: bool, entries: &[Entry<'_>]) -> EngineResult<PageRef> {
        let mut bytes = self.buffer();
        encode(level, is_incomplete, entries, &mut bytes);
        let page = self.space.take(1)?;
        self.put_page(page, bytes)
    }

    fn put_page(&mut self, page: u64, bytes: PageBytes) -> EngineResult<PageRef> {
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
        let is_in_run = |page: u64, next: u64| page + 1 == next && !next.is_multiple_of(RUN_PAGES);
        for run in pages.chunk_by(|(page, _), (next, _)| is_in_run(*page, *next)) {
            let Some((first, _)) = run.first() else { continue };
            let mut parts: Vec<IoSlice<'_>> = run.iter().map(|(_, bytes)| IoSlice::new(&bytes[..])).collect();
            self.file.write_pages(&mut parts, first * PAGE as u64).map_err(io_error)?;
        }
        self.spare.extend(pages.drain(..).map(|(_, bytes)| bytes));
        self.pages = pages;
        Ok(())
    }
}

/// The number of changes with keys below `key`.
fn changes_below(changes: &[Change], key: &[u8]) -> usize {
    // Most children have few changes.
    match changes.get(..4) {
        Some(few) if few.iter().all(|change| *change.key < *key) => {
            changes.partition_point(|change| *change.key < *key)
        }
        _ => changes.iter().take_while(|change| *change.key < *key).count(),
    }
}

/// How many of these entries come into the next page: as many as fit, or about half if the rest would be a small page.
fn page_end(entries: &[Entry<'_>], room: usize) -> usize {
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
