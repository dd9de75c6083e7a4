//! The rows on damaged pages of the B-tree, and how a repair gives them up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Result};

use super::{EssentialRows, loss};
use crate::engine::damaged_ranges::{DamagedRanges, MAX_RANGES, WithoutRows};
use crate::engine::{Checked, Engine, TreeDamage};
use crate::error::IntoModelResult;
use crate::progress::{self, Amount, Progress};
use crate::rows::key::{Key, table};
use crate::rows::row::{CHUNK, ContentHead};

/// Maximum number of damaged parts that are listed.
const MAX_LISTED: usize = 1000;

/// The parts of the B-tree that cannot be read.
#[derive(Default)]
pub(super) struct LostRows {
    ranges: DamagedRanges,
    /// The first key and the page of each part.
    parts: Vec<(Key, u64)>,
    /// Rows of these parts that can be read, apart from those of the store's user.
    kept: BTreeMap<Key, Bytes>,
    listed: Vec<String>,
    /// Damaged pages without rows, which the writer replaces.
    structure: Vec<String>,
}

impl LostRows {
    /// Reads all pages of the B-tree.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if there are too many damaged parts.
    pub(super) fn find(engine: &dyn Engine, progress: &dyn Progress) -> Result<Self> {
        let (mut found, mut bytes, mut told) = (Self::default(), 0, Ok(()));
        let total_bytes = engine.size();
        let mut observe = |checked: Checked<'_>| {
            match checked {
                Checked::Bytes(read) => bytes += read,
                Checked::Damage(damage) => found.add(&damage),
                Checked::UpTo(_) => {}
                Checked::Kept(key, _) if Key::table_of(key) == table::ROW => {}
                Checked::Kept(key, value) => {
                    found.kept.insert(Key::from(key), Bytes::copy_from_slice(value));
                }
            }
            told = progress::report(progress, "check", Amount { items: 0, bytes, total_bytes });
            if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        // Whether the check was ended does not matter: `told` says it.
        engine
            .read(&mut |state| {
                let _ = state.check(&mut observe);
            })
            .into_model_result()?;
        told?;
        if found.parts.len() >= MAX_RANGES {
            let what = format!("more than {MAX_RANGES} parts of the B-tree cannot be read");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(found)
    }

    fn add(&mut self, damage: &TreeDamage) {
        let Some(range) = &damage.range else {
            if self.structure.len() < MAX_LISTED {
                self.structure.push(damage.to_string());
            }
            return;
        };
        self.ranges.add(range.clone());
        self.parts.push((Key::from(&range.from[..]), damage.page));
        if self.listed.len() < MAX_LISTED {
            self.listed.push(damage.to_string());
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.parts.len() as u64
    }

    pub(super) fn descriptions(&self) -> Vec<String> {
        self.listed.clone()
    }

    pub(super) fn damaged_structure(&self) -> Vec<String> {
        self.structure.clone()
    }

    /// The B-tree as it is once they are given up.
    pub(super) fn without_them<'a>(&'a self, engine: &'a dyn Engine) -> WithoutRows<'a> {
        WithoutRows { engine, ranges: &self.ranges, kept: &self.kept }
    }

    /// Refuses to give up rows without which the store is of no use.
    pub(super) fn check_not_essential(&self, essential: &[EssentialRows]) -> Result<()> {
        for EssentialRows { from, to, what } in essential {
            let (from, to) = (Key::row(from), Key::row(to));
            if self.ranges.within(&from, &to).next().is_some() {
                let lost = self.listed.join("; ");
                let what = format!("{what} may be on a part of the B-tree that cannot be read: {lost}");
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        }
        Ok(())
    }

    /// Refuses to give up a part of a content that the log changes: its changes cannot be applied to what is left.
    pub(super) fn check_not_changed(&self, engine: &dyn Engine, changed: &BTreeSet<ContentId>) -> Result<()> {
        for id in changed {
            let row = self.without_them(engine).get(&Key::content(*id)).into_model_result()?;
            let head = row.and_then(|row| ContentHead::decode(*id, &row).ok());
            let Some(head) = head else { continue };
            let (from, to) = (Key::chunk(head.data, 1), Key::chunk(head.data, head.size.div_ceil(CHUNK as u64)));
            if self.ranges.within(&from, &to).next().is_some() {
                let what = format!("the log changes content {id}, of which a part cannot be read");
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        }
        Ok(())
    }

    /// Gives them up, in one batch with the list of what is lost.
    pub(super) fn give_up(&self, engine: &dyn Engine) -> Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        let rows = loss::listing(&self.without_them(engine), &self.ranges)?;
        engine.give_up(&self.parts, &mut rows.into_iter().map(Ok)).into_model_result()
    }
}
