//! Compares what a logical node keeps about its objects with each other: the rows of a store that is sound may still contradict each other.
//!
//! | table | is compared with |
//! | --- | --- |
//! | `P` objects | the head of their page, the pages that were reserved, their content, their extent, the entries of indexes |
//! | `E` extents, `I` entries of indexes | the objects that they lead to; the values of a unique index with each other |
//! | `C` entries of collections | their collection, its totals, their targets, table `R`; and `R` with them |
//! | `U` staged contents | the contents |
//! | `K` transactions, `M` marks of clients | their keys, each other, the staged contents |
//! | `X` contents | the objects that name them |
//! | `Y` bytes of contents | their checksums, if that is wanted |
//!
//! 1. Rows that one record changes are in one batch, so they agree in every state of the store. Each portion reads one snapshot, and takes
//!    a bounded number of rows; the rows that belong to them are looked up in the same snapshot. So memory is bounded, no snapshot is kept
//!    for long, and a check can continue behind any portion.
//! 2. A content is named by one object from the transaction that takes it until it is freed. So a content that is in two snapshots, not
//!    staged in the first one, is named in every snapshot between them. Contents are compared with objects in such a walk.
//! 3. A damaged page of the B-tree is a problem of its logical node once, however many rows of it were looked up.
//! 4. A problem of a portion counts only if the logical node was served all the time: else its rows may be an incomplete copy. The caller
//!    checks that.

mod collections;
mod contents;
mod indexes;
mod objects;
pub(crate) mod plant;
mod problem;
mod transactions;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, NodeId, Oid, Result, SpaceId};
use store::{Snapshot, Store, is_unreadable_part};

use super::page_rows;
use contents::ContentWalk;
pub(crate) use indexes::NodeIndexes;
pub(crate) use problem::{Problem, Remedy, Severity};

/// Rows of a portion; a large collection or transaction may exceed them.
const PORTION_ROWS: usize = if cfg!(test) { 3 } else { 2048 };
/// Bytes of rows after which a part of a portion ends.
const PORTION_BYTES: usize = 4 << 20;
/// Damages of rows that a check remembers. It may report later ones more than once.
const KNOWN_DAMAGES: usize = 1_000;
/// The tables that are walked, in order; `X` stands for the contents, `Y` for their bytes.
const TABLES: [u8; 10] = *b"PEICRUKMXY";

/// Where a check continues: behind a row, or with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    table: u8,
    /// The first key that was not checked; empty at the beginning of the table.
    from: Vec<u8>,
}

impl Place {
    /// The beginning of a check.
    pub(crate) fn first() -> Self {
        Self { table: TABLES[0], from: Vec::new() }
    }

    /// The bytes that stand for it.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&[self.table], &self.from[..]].concat()
    }

    /// The place in these bytes; the beginning, if they are none.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        match bytes.split_first() {
            Some((table, from)) if TABLES.contains(table) => Self { table: *table, from: from.to_vec() },
            _ => Self::first(),
        }
    }

    /// The beginning of the next table.
    fn next_table(&self) -> Option<Self> {
        let at = TABLES.iter().position(|table| *table == self.table)?;
        TABLES.get(at + 1).map(|table| Self { table: *table, from: Vec::new() })
    }
}

/// What a portion of a check has read and found.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    pub(crate) bytes: u64,
    pub(crate) problems: Vec<Problem>,
    /// Where the check continues; `None` at the end.
    pub(crate) next: Option<Place>,
}

/// A check of a logical node.
pub(crate) struct NodeCheck<'a> {
    pub(crate) store: &'a Store,
    pub(crate) node: NodeId,
    /// Whether an index of a space is unique and ready, so that no two objects have its values.
    pub(crate) is_unique: &'a dyn Fn(SpaceId, u32) -> bool,
    /// Whether the bytes of contents are read, too.
    pub(crate) reads_contents: bool,
}

/// A check on its way.
pub(crate) struct Walk {
    place: Option<Place>,
    /// The contents that are compared with objects.
    contents: Option<ContentWalk>,
    /// Damages of rows that were reported: of a damaged page all look-ups tell the same.
    damages: BTreeSet<String>,
}

impl Walk {
    /// Continues a check at a place.
    pub(crate) fn from(place: Place) -> Self {
        Self { place: Some(place), contents: None, damages: BTreeSet::new() }
    }

    /// The next portion; `None` at the end. A walk belongs to the check of one logical node.
    ///
    /// # Errors
    /// If rows cannot be read for another reason than damage.
    pub(crate) fn step(&mut self, check: &NodeCheck<'_>) -> Result<Option<Portion>> {
        let Some(place) = self.place.clone() else { return Ok(None) };
        let mut portion = match self.portion(check, &place) {
            // What is behind a damaged page of the table cannot be walked.
            Err(error) if is_damage(&error) => {
                self.contents = None;
                Portion { problems: vec![row_damaged(check.node, &error)], ..Portion::default() }
            }
            portion => portion?,
        };
        portion.problems.retain(|problem| self.is_new(problem));
        portion.next = portion.next.or_else(|| place.next_table());
        self.place = portion.next.clone();
        Ok(Some(portion))
    }

    /// Whether a problem is none that was reported before.
    fn is_new(&mut self, problem: &Problem) -> bool {
        match problem {
            Problem::RowDamaged { what, .. } if self.damages.len() < KNOWN_DAMAGES => self.damages.insert(what.clone()),
            Problem::RowDamaged { what, .. } => !self.damages.contains(what),
            _ => true,
        }
    }

    fn portion(&mut self, check: &NodeCheck<'_>, place: &Place) -> Result<Portion> {
        match place.table {
            b'X' => {
                let walk = match &mut self.contents {
                    Some(walk) => walk,
                    None => self.contents.insert(ContentWalk::begin(check, place)?),
                };
                let portion = walk.step(check, place)?;
                if portion.next.as_ref() != Some(place) {
                    self.contents = None;
                }
                Ok(portion)
            }
            b'Y' if check.reads_contents => contents::read_bytes(check, place),
            b'Y' => Ok(Portion::default()),
            _ => check.portion(place),
        }
    }
}

impl NodeCheck<'_> {
    /// Checks the logical node from a place on, in portions, until `take` breaks. `take` gets each portion, and decides how fast it goes on.
    ///
    /// # Errors
    /// If rows cannot be read for another reason than damage.
    pub(crate) fn run(&self, from: Place, mut take: impl FnMut(Portion) -> ControlFlow<()>) -> Result<()> {
        let mut walk = Walk::from(from);
        while let Some(portion) = walk.step(self)? {
            if take(portion).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The object that has a content: all objects are walked for it.
    ///
    /// # Errors
    /// If rows cannot be read for another reason than damage.
    pub(crate) fn find_owner(&self, content: ContentId) -> Result<Option<Oid>> {
        let mut walk = ContentWalk::of(self, vec![content]);
        let place = Place { table: b'X', from: Vec::new() };
        while walk.step(self, &place)?.next.is_some() && walk.owner(content).is_none() {}
        Ok(walk.owner(content))
    }

    fn portion(&self, place: &Place) -> Result<Portion> {
        let state = self.store.snapshot()?;
        let mut reading = Reading { check: self, state: &state, portion: Portion::default() };
        let (first, to) = page_rows::table_range(place.table, self.node);
        let from = if place.from.is_empty() { first.to_vec() } else { place.from.clone() };
        match place.table {
            b'P' => objects::check_objects(&mut reading, from, &to)?,
            b'E' => objects::check_extents(&mut reading, from, &to)?,
            b'I' => indexes::check(&mut reading, from, &to)?,
            b'C' => collections::check(&mut reading, from, &to)?,
            b'R' => collections::check_reverse(&mut reading, from, &to)?,
            b'U' => transactions::check_staged(&mut reading, from, &to)?,
            b'K' => transactions::check(&mut reading, from, &to)?,
            _ => transactions::check_marks(&mut reading, from, &to)?,
        }
        Ok(reading.portion)
    }
}

/// A row: its key and its value.
type Row = (Vec<u8>, Bytes);

/// A portion while it is read.
struct Reading<'a> {
    check: &'a NodeCheck<'a>,
    state: &'a Snapshot,
    portion: Portion,
}

impl Reading<'_> {
    fn node(&self) -> NodeId {
        self.check.node
    }

    fn report(&mut self, problem: Problem) {
        self.portion.problems.push(problem);
    }

    /// Takes what was read; a row that is damaged is a problem.
    fn accept<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_damage(&error) => {
                self.report(row_damaged(self.node(), &error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether there is a row with this key; `None` if that cannot be read, which is a problem.
    fn has_row(&mut self, key: &[u8]) -> Result<Option<bool>> {
        let found = page_rows::Rows::get(self.state, key).map(|row| row.is_some());
        self.accept(found)
    }

    /// The next rows, at most a portion of them.
    fn rows(&mut self, from: &[u8], to: &[u8]) -> Result<Vec<Row>> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let take = |key: &[u8], value: &[u8]| {
            bytes += key.len() + value.len();
            rows.push((key.to_vec(), Bytes::copy_from_slice(value)));
            let is_full = rows.len() >= PORTION_ROWS || bytes >= PORTION_BYTES;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let (node, problems) = (self.check.node, &mut self.portion.problems);
        self.state.rows_beside_damage(from, to, take, |_, error| problems.push(row_damaged(node, error)))?;
        self.portion.bytes += bytes as u64;
        Ok(rows)
    }

    /// Calls `look` with each row of a portion, and notes where the next one begins.
    fn each(
        &mut self,
        from: &[u8],
        to: &[u8],
        mut look: impl FnMut(&mut Self, &[u8], &Bytes) -> Result<()>,
    ) -> Result<()> {
        let rows = self.rows(from, to)?;
        for (key, value) in &rows {
            look(self, key, value)?;
        }
        self.continue_behind(&rows);
        Ok(())
    }

    /// The next portion begins behind these rows, if they are not the last ones.
    fn continue_behind(&mut self, rows: &[Row]) {
        if let Some((key, _)) = rows.last().filter(|_| !is_end(rows)) {
            self.portion.next = Some(Place { table: key[0], from: behind(key) });
        }
    }
}

/// Whether no rows follow these.
fn is_end(rows: &[Row]) -> bool {
    let bytes: usize = rows.iter().map(|(key, value)| key.len() + value.len()).sum();
    rows.len() < PORTION_ROWS && bytes < PORTION_BYTES
}

/// The least key behind a key.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn row_damaged(node: NodeId, error: &Error) -> Problem {
    Problem::RowDamaged { node, what: error.message().to_owned(), is_unreadable_part: is_unreadable_part(error) }
}

/// Whether an error says that stored bytes are wrong.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::TooLarge)
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    #[test]
    fn what_cannot_be_read_for_another_reason_than_damage_is_an_error() {
        let store = Store::in_memory(Options::default()).unwrap();
        let check = NodeCheck { store: &store, node: NodeId(3), is_unique: &|_, _| false, reads_contents: false };
        let state = store.snapshot().unwrap();
        let mut reading = Reading { check: &check, state: &state, portion: Portion::default() };
        let mut accept = |kind| reading.accept::<()>(Err(Error::new(kind, "why")));
        assert_eq!(accept(ErrorKind::Corrupt).unwrap(), None);
        assert_eq!(accept(ErrorKind::Io).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(reading.portion.problems.len(), 1);
    }

    #[test]
    fn damaged_page_is_one_problem_of_a_logical_node() {
        let mut walk = Walk::from(Place::first());
        let damaged = |page: u32| Problem::RowDamaged {
            node: NodeId(3),
            what: format!("page {page} is damaged"),
            is_unreadable_part: true,
        };
        let is_new: Vec<bool> = [1, 1, 2, 1, 2].map(|page| walk.is_new(&damaged(page))).to_vec();
        assert_eq!(is_new, [true, false, true, false, false]);
    }
}
