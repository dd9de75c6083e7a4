//! Reading a state of the tree.

use std::ops::ControlFlow;

use super::super::{CheckObserver, Checked, EngineRead, EngineResult, RowVisitor, TreeDamage};
use super::damage::{PageDamage, PageFault};
use super::file::TreeFile;
use super::meta::{FoundMeta, TreeState};
use super::page::{Node, PAGE, PageRef, Value};
use super::{io_error, meta_place, read_map};
use crate::plant::{TreeBug, planted};
use crate::rows::key;
use crate::rows::key_range::KeyRange;

/// A state of the tree that is being read.
pub(super) struct TreeRead<'a> {
    pub(super) file: &'a TreeFile,
    pub(super) state: &'a TreeState,
}

/// Whether a scan goes on.
type Scanned = EngineResult<ControlFlow<()>>;

impl TreeRead<'_> {
    pub(super) fn node(&self, page: PageRef, level: u8) -> EngineResult<Node<'_>> {
        self.file.node(page, level, self.state.pages)
    }

    pub(super) fn value<'a>(&'a self, value: Value<'a>) -> EngineResult<Option<&'a [u8]>> {
        match value {
            Value::Inline(bytes) => Ok(Some(bytes)),
            Value::Outside(run, len) => self.file.value(run, len, self.state.pages).map(Some),
            Value::Absent => Ok(None),
        }
    }

    fn scan(&self, at: PageRef, level: u8, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> Scanned {
        let node = self.node(at, level)?;
        if level > 0 {
            for index in node.child_of(from)?..node.count() {
                let (first, child) = node.child(index)?;
                if index > 0 && first >= to {
                    break;
                }
                if self.scan(child, level - 1, from, to, show)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        if node.is_incomplete() {
            return Err(PageDamage::error(node.number(), PageFault::Lost));
        }
        for index in node.find(from)?.0..node.count() {
            let (key, value) = node.row(index)?;
            if key >= to {
                break;
            }
            let Some(value) = self.value(value)? else { continue };
            if show(key, value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn scan_back(&self, at: PageRef, level: u8, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> Scanned {
        let node = self.node(at, level)?;
        if level > 0 {
            let last = node.child_of(to)?;
            // All rows of a child that begins at `to` are behind the range.
            let is_behind = last > 0 && (node.child(last)?.0 >= to || planted(TreeBug::ScanBackEndsEarly));
            let behind = if is_behind { last } else { last + 1 };
            for index in (node.child_of(from)?..behind).rev() {
                if self.scan_back(node.child(index)?.1, level - 1, from, to, show)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            return Ok(ControlFlow::Continue(()));
        }
        if node.is_incomplete() {
            return Err(PageDamage::error(node.number(), PageFault::Lost));
        }
        for index in (node.find(from)?.0..node.find(to)?.0).rev() {
            let (key, value) = node.row(index)?;
            let Some(value) = self.value(value)? else { continue };
            if show(key, value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The first part of a page and of those below, with keys `from <= key < to`, that cannot be read. The keys of the page are
    /// `first <= key < end`.
    fn damage_below(
        &self,
        (at, level): (PageRef, u8),
        (from, to): (&[u8], &[u8]),
        (first, end): (&[u8], Option<&[u8]>),
    ) -> Option<KeyRange> {
        let all = || Some(KeyRange::new(first, end));
        let node = match self.node(at, level) {
            Ok(node) if !node.is_incomplete() => node,
            _ => return all(),
        };
        if level == 0 {
            let Ok((start, _)) = node.find(from) else { return all() };
            return (start..node.count()).find_map(|index| {
                let Ok((key, value)) = node.row(index) else { return all() };
                (key < to && self.value(value).is_err()).then(|| KeyRange::of_key(key))
            });
        }
        let Ok(start) = node.child_of(from) else { return all() };
        (start..node.count()).find_map(|index| {
            let Ok((key, child)) = node.child(index) else { return all() };
            let next = (index + 1 < node.count()).then(|| node.child(index + 1).map(|(key, _)| key));
            let Ok(next) = next.transpose() else { return all() };
            let first = if index == 0 { first } else { key };
            if first >= to {
                return None;
            }
            self.damage_below((child, level - 1), (from, to), (first, next.or(end)))
        })
    }

    /// Whether the meta page of this state can be read. A later batch may have overwritten it.
    fn check_header(&self) -> EngineResult<()> {
        let page = meta_place(self.state.batch);
        let mut bytes = [0; PAGE];
        // It may be read while it is being written.
        for _ in 0..3 {
            self.file.read_at(&mut bytes, page * PAGE as u64).map_err(io_error)?;
            match TreeState::decode(&bytes, &self.file.store) {
                FoundMeta::Valid(meta) if meta.batch >= self.state.batch => return Ok(()),
                _ => {}
            }
        }
        Err(PageDamage::structure(page))
    }

    /// Checks a page and everything below, apart from pages whose rows are all before `start`. The keys of the page are `from <= key < to`.
    fn check_node(
        &self,
        (at, level): (PageRef, u8),
        (from, to): (&[u8], Option<&[u8]>),
        start: &[u8],
        observe: &mut CheckObserver<'_>,
    ) -> ControlFlow<()> {
        let damage =
            |what: String| Checked::Damage(TreeDamage { what, page: at.page, range: Some(KeyRange::new(from, to)) });
        observe(Checked::Bytes(PAGE as u64))?;
        let checked = match at.page < self.state.pages {
            true => self.file.check(at, PAGE, PageFault::Checksum),
            false => Err(PageDamage::error(at.page, PageFault::Number)),
        };
        let node = match checked.and_then(|()| self.node(at, level)) {
            Ok(node) if node.is_incomplete() => {
                observe(damage(PageDamage { page: at.page, fault: PageFault::Lost }.to_string()))?;
                self.show_kept(&node, observe)?;
                return observe(Checked::UpTo(to));
            }
            Ok(node) => node,
            Err(error) => {
                observe(damage(error.cause()))?;
                return observe(Checked::UpTo(to));
            }
        };
        let mut last = from.to_vec();
        for index in 0..node.count() {
            let is_valid = match level {
                0 => self.check_row(&node, index, &mut last, to, observe)?,
                _ => self.check_child((&node, index, level), (&mut last, to), start, observe)?,
            };
            if !is_valid {
                // All of the page: who gives up its rows gives up all.
                observe(damage(PageDamage { page: at.page, fault: PageFault::Structure }.to_string()))?;
                return observe(Checked::UpTo(to));
            }
        }
        if level == 0 { observe(Checked::UpTo(to)) } else { ControlFlow::Continue(()) }
    }

    /// Shows the rows of a leaf that is incomplete.
    fn show_kept(&self, leaf: &Node<'_>, observe: &mut CheckObserver<'_>) -> ControlFlow<()> {
        for index in 0..leaf.count() {
            if let Ok((key, value)) = leaf.row(index)
                && let Ok(Some(value)) = self.value(value)
            {
                observe(Checked::Kept(key, value))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Checks a child of a branch, whose keys begin at `first`, which becomes the end of its range. Returns whether the entry is valid.
    fn check_child(
        &self,
        (node, index, level): (&Node<'_>, usize, u8),
        (first, to): (&mut Vec<u8>, Option<&[u8]>),
        start: &[u8],
        observe: &mut CheckObserver<'_>,
    ) -> ControlFlow<(), bool> {
        let end = if index + 1 < node.count() { node.child(index + 1).map(|(key, _)| Some(key)) } else { Ok(to) };
        let (Ok((key, child)), Ok(end)) = (node.child(index), end) else { return ControlFlow::Continue(false) };
        let is_within = end.is_none_or(|end| end > &first[..] && to.is_none_or(|to| end <= to));
        if !is_within || key.is_empty() != (index == 0) {
            return ControlFlow::Continue(false);
        }
        if end.is_none_or(|end| end > start) {
            self.check_node((child, level - 1), (first, end), start, observe)?;
        }
        *first = end.unwrap_or_default().to_vec();
        ControlFlow::Continue(true)
    }

    /// Checks a row of a leaf, whose key is `last` or behind it, and its value. Returns whether the entry is valid.
    fn check_row(
        &self,
        node: &Node<'_>,
        index: usize,
        last: &mut Vec<u8>,
        to: Option<&[u8]>,
        observe: &mut CheckObserver<'_>,
    ) -> ControlFlow<(), bool> {
        let Ok((key, value)) = node.row(index) else { return ControlFlow::Continue(false) };
        let is_behind = if index == 0 { key >= &last[..] } else { key > &last[..] };
        if !is_behind || to.is_some_and(|to| key >= to) {
            return ControlFlow::Continue(false);
        }
        *last = key.to_vec();
        if let Value::Outside(run, len) = value {
            observe(Checked::Bytes(len as u64))?;
            if let Err(error) = self.value(value).and_then(|_| self.file.check(run, len, PageFault::Value)) {
                let range = Some(KeyRange::of_key(key));
                observe(Checked::Damage(TreeDamage { what: error.cause(), page: run.page, range }))?;
            }
        }
        ControlFlow::Continue(true)
    }
}

impl EngineRead for TreeRead<'_> {
    fn get<'a>(&'a self, key: &[u8]) -> EngineResult<Option<&'a [u8]>> {
        if let Some(row) = key::system_row(key) {
            return Ok(self.state.system[row].as_deref());
        }
        let Some((mut at, mut level)) = self.state.root else { return Ok(None) };
        while level > 0 {
            let node = self.node(at, level)?;
            at = node.child(node.child_of(key)?)?.1;
            level -= 1;
        }
        let node = self.node(at, 0)?;
        match node.find(key)? {
            (index, true) => self.value(node.row(index)?.1),
            _ if node.is_incomplete() => Err(PageDamage::error(node.number(), PageFault::Lost)),
            _ => Ok(None),
        }
    }

    fn range(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        match self.state.root {
            Some((root, level)) if from < to => self.scan(root, level, from, to, show).map(drop),
            _ => Ok(()),
        }
    }

    fn range_back(&self, from: &[u8], to: &[u8], show: &mut RowVisitor<'_>) -> EngineResult<()> {
        match self.state.root {
            Some((root, level)) if from < to => self.scan_back(root, level, from, to, show).map(drop),
            _ => Ok(()),
        }
    }

    fn first_damage(&self, from: &[u8], to: &[u8]) -> Option<KeyRange> {
        self.damage_below(self.state.root?, (from, to), (&[], None))
    }

    fn check_from(&self, from: &[u8], observe: &mut CheckObserver<'_>) -> ControlFlow<()> {
        let mut found = Vec::new();
        if from.is_empty() {
            if let Err(error) = self.check_header() {
                found.push(error.cause());
            }
            read_map(self.file, &self.state.index, self.state.pages, &mut |_, _, _| {}, &mut |what| found.push(what));
        }
        for what in found {
            // No rows are on these pages.
            observe(Checked::Damage(TreeDamage { what, page: 0, range: None }))?;
        }
        match self.state.root {
            Some(root) => self.check_node(root, (&[], None), from, observe),
            None => ControlFlow::Continue(()),
        }
    }
}
