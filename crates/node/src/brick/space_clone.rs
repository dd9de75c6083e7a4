//! Clones of a space: the rows that the snapshot of a cut has of a logical node, with the identifiers of the clone ([`SpaceMap`]).
//!
//! A brick makes the rows of a clone from its own part of the cut (K1), so nothing but requests crosses the network. The clone begins as a
//! restored cluster does: a transaction that was prepared in the cut is decided by its participants in the clone (C1, C2).
//!
//! 1. Until it is complete, a logical node of a clone has the mark of an incomplete copy, which is durable before its first row (M1.3). It is in no
//!    placement map, so nothing serves it. The last rows replace the mark.
//! 2. The first request removes what an earlier attempt has left. One cut makes all rows: a request of an earlier cut, and one that does not begin at
//!    the beginning after a restart, is refused.
//! 3. Entries of indexes are made from the objects, because a key that was truncated cannot be mapped ([`query::key`]). All other rows are
//!    mapped one by one.

mod records;
mod rows;

use std::ops::ControlFlow;

use bytes::Bytes;
use model::{Error, ErrorKind, Result, SpaceMap};
use store::RowChanges;
use wire::cluster::CloneRows;

use super::content_reads::{OBJECTS, check_contents, content_of};
use super::content_rows::{self, Contents};
use super::node_manager::MoveLimits;
use super::page_rows::{self, Key, Rows};
use rows::RowMapper;

/// The table of the records of transactions, which may be in several rows.
const TXN_TABLE: u8 = b'K';
/// The table of the entries of indexes.
const INDEX_TABLE: u8 = b'I';

/// Rows of a clone that are written together.
#[derive(Debug)]
pub(crate) struct Portion {
    pub(crate) changes: RowChanges,
    /// The key of the source at which the rows continue; `None` at the end.
    pub(crate) next: Option<Key>,
    pub(crate) objects: u64,
    /// Bytes of the rows and contents that were read.
    bytes: u64,
}

/// Makes as many rows of a clone as fit.
///
/// # Errors
/// Those of the snapshot; [`ErrorKind::Corrupt`] if a row is damaged, or an object's content is lost: nothing of the portion may be written then.
pub(crate) fn make_portion(
    snapshot: &(impl Rows + Contents),
    asked: &CloneRows,
    limits: MoveLimits,
) -> Result<Portion> {
    let mapper = RowMapper::new(snapshot, asked.map, asked.node)?;
    let mut portion = Portion { changes: RowChanges::new(), next: None, objects: 0, bytes: 0 };
    let from = asked.from.as_deref().unwrap_or_default();
    let tables = page_rows::ranges(asked.node).filter(|(start, end)| start[0] != INDEX_TABLE && from < &end[..]);
    for (start, end) in tables {
        if portion.is_full(asked, limits) {
            portion.next = Some(start);
            return Ok(portion);
        }
        if start[0] == TXN_TABLE {
            mapper.map_transactions(snapshot, &mut portion)?;
            continue;
        }
        let start = if from > &start[..] { from } else { &start[..] };
        let (mut failed, mut contents) = (Ok(()), Vec::new());
        snapshot.each(start, &end, |key, row| {
            if portion.is_full(asked, limits) {
                portion.next = Some(Key::from_slice(key));
                return ControlFlow::Break(());
            }
            failed = mapper.map_row(key, row, &mut portion);
            contents.extend(content_of(key, row).filter(|_| key[0] == OBJECTS));
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed?;
        check_contents(snapshot, &contents)?;
        if portion.next.is_some() {
            return Ok(portion);
        }
    }
    add_contents(snapshot, asked, limits, &mut portion)?;
    Ok(portion)
}

/// Adds chunks of contents, whose keys are behind those of all rows.
fn add_contents(snapshot: &impl Contents, asked: &CloneRows, limits: MoveLimits, portion: &mut Portion) -> Result<()> {
    let from = asked.from.as_deref().unwrap_or_default();
    let mut failed = Ok(());
    content_rows::each(snapshot, asked.node, from, |key, value| {
        if portion.is_full(asked, limits) {
            portion.next = Some(Key::from_slice(key));
            return ControlFlow::Break(());
        }
        failed = add_content(&asked.map, key, value, portion);
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed
}

fn add_content(map: &SpaceMap, key: &[u8], value: Bytes, portion: &mut Portion) -> Result<()> {
    let foreign = || Error::new(ErrorKind::Corrupt, format!("content {key:02x?} is of another space"));
    let (id, chunk) = content_rows::parse(key)?.ok_or_else(foreign)?;
    let id = map.content(id).ok_or_else(foreign)?;
    portion.bytes += value.len() as u64;
    content_rows::apply(&mut portion.changes, (id, chunk), Some(value))
}

impl Portion {
    fn is_full(&self, asked: &CloneRows, limits: MoveLimits) -> bool {
        self.objects >= asked.most_objects
            || self.changes.len() >= limits.answer_rows
            || self.bytes >= limits.answer_bytes as u64
    }
}
