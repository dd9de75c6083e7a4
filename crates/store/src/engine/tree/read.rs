//! Reading a state of the tree.

use std::ops::ControlFlow;

use super::super::{DamagedRange, EngineRead, EngineResult, RowVisitor};
use super::damage::{PageDamage, PageFault};
use super::file::TreeFile;
use super::meta::{FoundMeta, Meta};
use super::page::{Node, PAGE, PageRef, Value};
use super::{TreeState, io_error, meta_place, read_map};
use crate::rows::key;

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
            let behind = if last > 0 && node.child(last)?.0 >= to { last } else { last + 1 };
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

    /// Whether the meta page of this state can be read. A later batch may have overwritten it.
    fn check_header(&self) -> EngineResult<()> {
        let page = meta_place(self.state.batch);
        let mut bytes = [0; PAGE];
        // It may be read while it is being written.
        for _ in 0..3 {
            self.file.read_at(&mut bytes, page * PAGE as u64).map_err(io_error)?;
            match Meta::decode(&bytes, &self.file.store) {
                FoundMeta::Valid(meta) if meta.batch >= self.state.batch => return Ok(()),
                _ => {}
            }
        }
        Err(PageDamage::structure(page))
    }

    /// Checks a page and everything below. The keys of the page are `from <= key < to`.
    fn check_node(&self, at: PageRef, level: u8, from: &[u8], to: Option<&[u8]>, report: &mut dyn FnMut(DamagedRange)) {
        let mut note = |what: String, from: &[u8], to: Option<&[u8]>| {
            report(DamagedRange { what, from: from.to_vec(), to: to.map(<[u8]>::to_vec) });
        };
        let checked = match at.page < self.state.pages {
            true => self.file.check(at, PAGE, PageFault::Checksum),
            false => Err(PageDamage::error(at.page, PageFault::Number)),
        };
        let node = match checked.and_then(|()| self.node(at, level)) {
            Ok(node) if node.is_incomplete() => {
                return note(PageDamage { page: at.page, fault: PageFault::Lost }.to_string(), from, to);
            }
            Ok(node) => node,
            Err(error) => return note(error.cause(), from, to),
        };
        let mut last = from.to_vec();
        for index in 0..node.count() {
            if level > 0 {
                let end =
                    if index + 1 < node.count() { node.child(index + 1).map(|(key, _)| Some(key)) } else { Ok(to) };
                match (node.child(index), end) {
                    (Ok((key, child)), Ok(end))
                        if end.is_none_or(|end| *end > *last) && key.is_empty() == (index == 0) =>
                    {
                        let first = if index == 0 { from } else { key };
                        self.check_node(child, level - 1, first, end, report);
                        last = end.unwrap_or_default().to_vec();
                    }
                    _ => {
                        let what = PageDamage { page: at.page, fault: PageFault::Structure }.to_string();
                        return report(DamagedRange { what, from: last, to: to.map(<[u8]>::to_vec) });
                    }
                }
                continue;
            }
            let is_valid = |key: &[u8]| {
                let is_behind = if index == 0 { key >= &last[..] } else { key > &last[..] };
                is_behind && to.is_none_or(|to| key < to)
            };
            let Some((key, value)) = node.row(index).ok().filter(|(key, _)| is_valid(key)) else {
                let what = PageDamage { page: at.page, fault: PageFault::Structure }.to_string();
                return report(DamagedRange { what, from: last, to: to.map(<[u8]>::to_vec) });
            };
            last = key.to_vec();
            let Value::Outside(run, len) = value else { continue };
            let checked = self.value(value).and_then(|_| self.file.check(run, len, PageFault::Value));
            if let Err(error) = checked {
                let behind = [key, &[0]].concat();
                report(DamagedRange { what: error.cause(), from: key.to_vec(), to: Some(behind) });
            }
        }
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

    fn check(&self, report: &mut dyn FnMut(DamagedRange)) {
        // No rows are on these pages.
        let mut note = |what| report(DamagedRange { what, from: Vec::new(), to: Some(Vec::new()) });
        if let Err(error) = self.check_header() {
            note(error.cause());
        }
        read_map(self.file, &self.state.index, self.state.pages, &mut |_, _, _| {}, &mut note);
        match self.state.root {
            Some((root, level)) => self.check_node(root, level, &[], None, report),
            None => tracing::debug!("the B-tree has no rows"),
        }
    }
}
