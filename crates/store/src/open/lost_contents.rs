//! Makes the records of contents agree with each other after a repair gave up rows of them.
//!
//! 1. A content of which a chunk is lost is removed whole: a missing chunk would be read as zeros.
//! 2. Chunks that no content has become garbage.
//! 3. An extent is recorded as used exactly if a chunk uses it, and blob files are swept again.
//!
//! It runs when a store is opened, after the log was replayed and before anything is freed, until it has once come to its end.

use std::collections::HashSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ContentId, ErrorKind, Result};

use crate::commit::Core;
use crate::content::chunk_set::ChunkSet;
use crate::engine::{Engine, EngineRead, EngineRow};
use crate::error::IntoModelResult;
use crate::plant::{RecoveryBug, planted};
use crate::rows::key::{self, DataId, Key, content_of, data_of, extent_of, index_of, table};
use crate::rows::key_range::KeyRange;
use crate::rows::lost::{LossMark, decode_range, encode_range};
use crate::rows::row::{CHUNK, Chunk, ContentHead, HEAD, decode_extent_len, encode_extent_len, is_chunk_position};

/// What is known of a loss that was not accepted yet: it is in the meta page of the B-tree, which is always readable.
pub(crate) fn loss_mark(engine: &dyn Engine) -> Result<LossMark> {
    let row = engine.get(&Key::system(key::SALVAGED)).into_model_result()?;
    Ok(LossMark::decode(row.as_deref()))
}

/// What is listed as lost: rows of the list, and the ranges of keys in them.
pub(crate) fn lost_ranges(engine: &dyn Engine) -> Result<Vec<(Key, KeyRange)>> {
    let mut ranges = Vec::new();
    if !loss_mark(engine)?.has_list {
        return Ok(ranges);
    }
    let (from, to) = (Key::table(table::LOST), Key::table(table::LOST).prefix_end());
    let mut show = |key: &[u8], row: &[u8]| {
        ranges.push((Key::from(key), decode_range(row)));
        ControlFlow::Continue(())
    };
    match engine.range(&from, &to, &mut show).into_model_result() {
        // The list is on a damaged page: it does not say any more what is lost.
        Err(error) if error.kind() == ErrorKind::Corrupt => ranges.push((Key::lost_range(0), KeyRange::ALL)),
        scanned => scanned?,
    }
    Ok(ranges)
}

/// Whether a range has rows of contents.
fn has_contents(range: &KeyRange) -> bool {
    let tables = [table::CONTENT, table::CHUNK, table::EXTENT, table::FREED, table::GARBAGE];
    tables.into_iter().any(|table| range.of_table(table).is_some())
}

/// Mends the contents of a store whose list says that rows of them are lost.
pub(super) fn mend(core: &Core) -> Result<()> {
    let lost = lost_ranges(&*core.state.engine)?;
    if !lost.iter().any(|(_, range)| has_contents(range)) {
        return Ok(());
    }
    // Then the B-tree has all there is.
    core.install_all()?;
    let mut found = Contents::new(lost.iter().filter_map(|(_, range)| range.of_table(table::CHUNK)).collect());
    core.state.read_engine(|state| found.read(state))?;
    if found.removed > 0 {
        tracing::warn!(contents = found.removed, "contents of which a part was lost are given up");
    }
    let mut rows = found.into_rows();
    let rest = |range: &KeyRange| range.of_table(table::ROW).map(|range| encode_range(&range));
    rows.extend(lost.into_iter().map(|(key, range)| (key, rest(&range))));
    if !rows.iter().any(|(key, row)| Key::table_of(key) == table::LOST && row.is_some()) {
        let mark = LossMark { has_list: false, ..loss_mark(&*core.state.engine)? };
        rows.push((Key::system(key::SALVAGED), mark.encode()));
    }
    core.write_to_tree(rows)
}

/// The contents of a store, and what must be written.
struct Contents {
    /// Ranges of chunks that may be lost.
    lost: Vec<KeyRange>,
    /// The numbers of chunks that a content has, or that are recorded as garbage.
    owned: HashSet<DataId>,
    /// Whether a content's head cannot be decoded: then it is unknown which chunks it has.
    has_unreadable_heads: bool,
    /// Extents of chunks. Those that are recorded are removed from it.
    used: ChunkSet,
    removed: u64,
    rows: Vec<EngineRow>,
}

impl Contents {
    fn new(lost: Vec<KeyRange>) -> Self {
        let (owned, used, rows) = (HashSet::new(), ChunkSet::default(), Vec::new());
        Self { lost, owned, has_unreadable_heads: false, used, removed: 0, rows }
    }

    /// Calls `show` with each row of a table.
    fn each(
        &mut self,
        state: &dyn EngineRead,
        table: u8,
        mut show: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (from, to) = (Key::table(table), Key::table(table).prefix_end());
        let mut shown = Ok(());
        let mut visit = |key: &[u8], value: &[u8]| {
            shown = show(self, key, value);
            if shown.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        state.range(&from, &to, &mut visit).into_model_result()?;
        shown
    }

    fn read(&mut self, state: &dyn EngineRead) -> Result<()> {
        self.each(state, table::CONTENT, |found, key, row| {
            match content_of(key).map(|id| (id, ContentHead::decode(id, row))) {
                Some((id, Ok(head))) if found.is_lost(state, &head)? => {
                    found.remove(id);
                    return Ok(());
                }
                Some((_, Ok(head))) => drop(found.owned.insert(head.data)),
                _ => found.has_unreadable_heads = true,
            }
            found.note_extent(row.get(HEAD..).unwrap_or_default());
            Ok(())
        })?;
        self.each(state, table::GARBAGE, |found, key, _| {
            found.owned.extend(data_of(key));
            Ok(())
        })?;
        self.each(state, table::CHUNK, |found, key, row| {
            found.note_extent(row);
            if let Some(data) = data_of(key)
                && !found.has_unreadable_heads
                && found.owned.insert(data)
            {
                found.rows.push((Key::garbage(data), Some(Bytes::new())));
            }
            Ok(())
        })?;
        self.each(state, table::EXTENT, |found, key, len| {
            found.check_extent(key, len);
            Ok(())
        })
    }

    /// Whether a chunk of a content that may be lost does not exist.
    fn is_lost(&self, state: &dyn EngineRead, head: &ContentHead) -> Result<bool> {
        let end = head.size.div_ceil(CHUNK as u64);
        for range in &self.lost {
            let (from, to) =
                (first_index(&range.from, head.data), range.to.as_ref().map(|to| first_index(to, head.data)));
            let (from, to) = (from.max(1), to.unwrap_or(end).min(end));
            if from >= to {
                continue;
            }
            let mut rows = 0;
            let mut count = |key: &[u8], _: &[u8]| {
                rows += u64::from(index_of(key).is_some());
                ControlFlow::Continue(())
            };
            state.range(&Key::chunk(head.data, from), &Key::chunk(head.data, to), &mut count).into_model_result()?;
            if rows < to - from {
                return Ok(!planted(RecoveryBug::HolesLeft));
            }
        }
        Ok(false)
    }

    fn remove(&mut self, id: ContentId) {
        self.removed += 1;
        self.rows.push((Key::content(id), None));
    }

    fn check_extent(&mut self, key: &[u8], len: &[u8]) {
        let Some((file, offset)) = extent_of(key).filter(|(file, offset)| is_chunk_position(*file, *offset)) else {
            return;
        };
        if !self.used.remove(file, offset) && !self.has_unreadable_heads {
            self.rows.push((Key::from(key), None));
            let len = decode_extent_len(len).unwrap_or(CHUNK as u32);
            self.rows.push((Key::freed_extent(file, offset), Some(Bytes::copy_from_slice(&len.to_be_bytes()))));
        }
    }

    fn note_extent(&mut self, chunk: &[u8]) {
        if let Ok(Chunk::Extent(extent)) = Chunk::decode(chunk) {
            self.used.insert(extent.file, extent.offset);
        }
    }

    fn into_rows(self) -> Vec<EngineRow> {
        let Self { mut rows, used, .. } = self;
        let len = Bytes::copy_from_slice(&encode_extent_len(CHUNK as u32));
        let used = used.iter().filter(|_| !planted(RecoveryBug::UsedExtentsForgotten));
        rows.extend(used.map(|(file, offset)| (Key::extent(file, offset), Some(len.clone()))));
        rows.push((Key::system(key::SWEPT), None));
        rows
    }
}

/// The index of the first chunk under a number whose key is at or behind `bound`; the largest number if none is.
fn first_index(bound: &[u8], data: DataId) -> u64 {
    let prefix = Key::chunks_of(data);
    match bound.strip_prefix(&prefix[..]) {
        None if *bound <= prefix[..] => 0,
        None => u64::MAX,
        Some(rest) => {
            let mut index = [0; 8];
            let len = rest.len().min(8);
            index[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(index).saturating_add(u64::from(rest.len() > 8))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_rows_of_the_user_has_no_contents() {
        assert!(has_contents(&KeyRange::new(b"gx", Some(b"ka"))));
        assert!(!has_contents(&KeyRange::new(b"ka", Some(b"lb"))));
    }

    #[test]
    fn first_index_is_that_of_the_first_key_behind_a_bound() {
        let data = DataId(7);
        let index = |bound: &[u8]| first_index(bound, data);
        assert_eq!(index(&Key::chunk(DataId(6), 9)), 0);
        assert_eq!(index(&Key::chunks_of(data)), 0);
        assert_eq!(index(&Key::chunk(data, 5)), 5);
        assert_eq!(index(&Key::chunk(data, 5).successor()), 6);
        assert_eq!(index(&Key::chunk(data, 0x0300)[..16]), 0x0300);
        assert_eq!(index(&Key::chunk(DataId(8), 0)), u64::MAX);
        assert_eq!((index(b""), index(b"d")), (0, u64::MAX));
    }
}
