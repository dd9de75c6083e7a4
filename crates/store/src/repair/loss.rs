//! What a store has lost, as it is kept until that is accepted.

use model::Result;

use crate::commit::Core;
use crate::engine::damaged_ranges::DamagedRanges;
use crate::engine::{Engine, EngineRow};
use crate::open::{loss_mark, lost_ranges};
use crate::plant::{RecoveryBug, planted};
use crate::rows::key::{self, Key, table};
use crate::rows::key_range::KeyRange;
use crate::rows::lost::{LossMark, encode_range};
use crate::store::Store;

/// Maximum number of ranges that are kept. If there are more, several become one.
const MAX_KEPT: usize = 4096;

/// What repairs have given up since the last call of [`Store::accept_loss`]. It does not list contents: an identifier of a content is used
/// once, so a cached chunk of a lost content is never read as part of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loss {
    /// The last transaction that a repair of the log kept: those behind it are lost.
    pub kept: Option<u64>,
    /// The keys of rows that may be lost, in order.
    pub rows: Vec<KeyRange>,
}

impl Store {
    /// What repairs have given up since the last call of [`Store::accept_loss`]; `None` if that is nothing.
    ///
    /// Caches may still have lost rows. Before a brick serves the store, its page versions and its horizon must rise, so that validation refuses
    /// reads of these rows (K3).
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn loss(&self) -> Result<Option<Loss>> {
        loss_in(&*self.core().state.engine)
    }

    /// Removes the record of what repairs have given up.
    ///
    /// # Errors
    /// If the B-tree cannot be written.
    pub fn accept_loss(&self) -> Result<()> {
        let core: &Core = self.core();
        let listed = lost_ranges(&*core.state.engine)?.into_iter().map(|(key, _)| (key, None));
        core.write_to_tree(listed.chain([(Key::system(key::SALVAGED), None)]).collect())
    }
}

/// What is lost, by the B-tree. The rows about it are written there only.
pub(super) fn loss_in(engine: &dyn Engine) -> Result<Option<Loss>> {
    let kept = loss_mark(engine)?.kept;
    let rows: Vec<KeyRange> = lost_ranges(engine)?.iter().filter_map(|(_, range)| range.of_user()).collect();
    let is_any = kept.is_some() || !rows.is_empty();
    Ok(is_any.then_some(Loss { kept, rows }))
}

/// The rows that list these ranges, in place of those of earlier repairs, which become a part of them.
pub(super) fn listing(engine: &dyn Engine, ranges: &DamagedRanges) -> Result<Vec<EngineRow>> {
    if planted(RecoveryBug::LossNotKept) {
        return Ok(Vec::new());
    }
    let mark = loss_mark(engine)?;
    let mut known: Vec<KeyRange> = ranges.iter().cloned().collect();
    let (from, to) = (Key::table(table::LOST), Key::table(table::LOST).prefix_end());
    if mark.has_list && ranges.within(&from, &to).next().is_some() {
        // Earlier losses are among the lost rows.
        known = vec![KeyRange::ALL];
    }
    let earlier = lost_ranges(engine)?;
    known.extend(earlier.iter().map(|(_, range)| range.clone()));
    known.sort_by(|a, b| a.from.cmp(&b.from));
    let together = known.len().div_ceil(MAX_KEPT).max(1);
    let joined = known.chunks(together).filter_map(|chunk| {
        let first = chunk.first()?;
        // `None` is the largest end.
        let is_open = chunk.iter().any(|range| range.to.is_none());
        let to = if is_open { None } else { chunk.iter().filter_map(|range| range.to.clone()).max() };
        Some(KeyRange { from: first.from.clone(), to })
    });
    let mut rows: Vec<EngineRow> = earlier.iter().map(|(key, _)| (key.clone(), None)).collect();
    rows.extend((0..).zip(joined).map(|(number, range)| (Key::lost_range(number), Some(encode_range(&range)))));
    rows.push((Key::system(key::SALVAGED), LossMark { has_list: true, ..mark }.encode()));
    Ok(rows)
}
