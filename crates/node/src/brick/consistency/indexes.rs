//! Entries of indexes against the objects that they lead to, and the values of unique indexes against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::{ClassId, FieldNumber, NodeId, Object, Oid, PageId, Result, SpaceId};

use super::plant::{Bug, planted};
use super::{Place, Problem, Reading, is_damage};
use crate::brick::index_rows::{self as rows, IndexId, Mark};
use crate::brick::indexes::entry_of;
use crate::brick::page_rows::{self, Rows};

/// An index, as its marks say.
#[derive(Debug, Default)]
struct KnownIndex {
    fields: Vec<FieldNumber>,
    /// Its classes, and whether it has all objects of the class.
    classes: BTreeMap<ClassId, bool>,
}

/// The indexes of a logical node in a state of the store.
#[derive(Debug, Default)]
pub(crate) struct NodeIndexes {
    known: BTreeMap<IndexId, KnownIndex>,
    /// Those whose entries are being removed.
    removing: BTreeSet<IndexId>,
}

impl NodeIndexes {
    /// Reads them from their marks.
    ///
    /// # Errors
    /// If a mark is damaged, or cannot be read.
    pub(crate) fn read(state: &impl Rows, node: NodeId) -> Result<Self> {
        let (mut indexes, mut failed) = (Self::default(), Ok(()));
        let (from, to) = rows::marks_range(node);
        state.each(&from, &to, |key, row| {
            let parsed = rows::parse_mark(node, key).and_then(|(id, class)| Ok((id, class, Mark::decode(id, row)?)));
            match parsed {
                Ok((id, class, mark)) => indexes.add(id, class, mark),
                Err(error) => {
                    failed = Err(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        failed.map(|()| indexes)
    }

    fn add(&mut self, id: IndexId, class: ClassId, mark: Mark) {
        let (fields, is_complete) = match mark {
            Mark::Removing => {
                self.removing.insert(id);
                return;
            }
            Mark::Building(fields) => (fields, planted(Bug::TrustsMarks)),
            Mark::Complete(fields) => (fields, true),
        };
        let known = self.known.entry(id).or_default();
        known.fields = fields;
        known.classes.insert(class, is_complete);
    }

    /// Whether there is such an index, or its entries are being removed.
    pub(crate) fn is_known(&self, id: IndexId) -> bool {
        self.known.contains_key(&id) || self.removing.contains(&id)
    }

    /// The entries that an object must have: in the indexes that have all objects of its class.
    pub(super) fn complete_entries<'a>(
        &'a self,
        space: SpaceId,
        object: &'a Object,
    ) -> impl Iterator<Item = (IndexId, Vec<u8>)> + 'a {
        let of_class = self
            .known
            .iter()
            .filter(move |(id, known)| id.space == space && known.classes.get(&object.class).copied().unwrap_or(false));
        of_class.filter_map(|(id, known)| Some((*id, entry_of(object, &known.fields)?.key)))
    }

    /// The entry that an object may have in an index; `None` if it may have none.
    pub(crate) fn entry(&self, id: IndexId, object: &Object) -> Option<query::key::IndexEntry> {
        let known = self.known.get(&id)?;
        known.classes.contains_key(&object.class).then(|| entry_of(object, &known.fields))?
    }
}

/// The entry before, if its index is unique and its values are not null.
struct Before {
    index: IndexId,
    key: Vec<u8>,
    oid: Oid,
}

/// Checks a portion of the entries. The next one begins with the last entry of this one, to compare the values of two neighbours.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check(reading: &mut Reading<'_>, from: Vec<u8>, to: &[u8]) -> Result<()> {
    let node = reading.node();
    let Some(indexes) = reading.accept(NodeIndexes::read(reading.state, node))? else { return Ok(()) };
    let mut before: Option<Before> = None;
    let mut last: Option<Vec<u8>> = None;
    reading.each(&from, to, |reading, row, _| {
        let reported = reading.portion.problems.len();
        if planted(Bug::ForgetsNeighbour) && *row == *from {
            return Ok(());
        }
        before = check_entry(reading, &indexes, row, before.take())?;
        if *row == *from {
            // The portion before has checked it.
            reading.portion.problems.truncate(reported);
        }
        last = Some(row.to_vec());
        Ok(())
    })?;
    // One row alone would never come to an end.
    let repeated = last.filter(|last| *last != from);
    if let (Some(next), Some(last)) = (&mut reading.portion.next, repeated) {
        *next = Place { table: b'I', from: last };
    }
    Ok(())
}

fn check_entry(
    reading: &mut Reading<'_>,
    indexes: &NodeIndexes,
    row: &[u8],
    before: Option<Before>,
) -> Result<Option<Before>> {
    let node = reading.node();
    let Some(index) = reading.accept(rows::index_of_entry(node, row))? else { return Ok(None) };
    if indexes.removing.contains(&index) {
        return Ok(None);
    }
    if !indexes.known.contains_key(&index) {
        reading.report(Problem::IndexUnknown { index, row: row.to_vec() });
        return Ok(None);
    }
    let Some((key, number, slot)) = reading.accept(rows::parse_entry(index, row))? else { return Ok(None) };
    let page = PageId { space: index.space, node, number };
    let object = match page_rows::read_object(reading.state, page, slot) {
        // It is reported where objects are walked.
        Err(error) if is_damage(&error) => return Ok(None),
        read => read?,
    };
    let oid = object.as_ref().map(|object| Oid::new(object.class, page, slot));
    let entry = object.and_then(|object| indexes.entry(index, &object)).filter(|entry| entry.key == key);
    let (Some(oid), Some(entry)) = (oid, entry) else {
        reading.report(Problem::IndexEntryStray { index, object: oid, page, slot, row: row.to_vec() });
        return Ok(None);
    };
    if entry.has_null || !(reading.check.is_unique)(index.space, index.index) {
        return Ok(None);
    }
    let twice = before.filter(|before| (before.index, &before.key) == (index, &entry.key) && before.oid != oid);
    if let Some(Before { oid: other, .. }) = twice.filter(|_| !planted(Bug::SkipsUnique)) {
        reading.report(Problem::ValuesTwice { oid, other, index });
    }
    Ok(Some(Before { index, key: entry.key, oid }))
}
