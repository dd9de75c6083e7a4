//! Scans one logical node for objects: through the extents of classes, or through a range of an index.
//!
//! An answer ends with the object at which its work reaches a limit: rows, bytes that were read, and tests of the filter.
//!
//! An answer is read from one durable snapshot. Each object comes with the version of its page, by which a transaction can
//! validate it. A scan is split into answers of bounded size and time. The first answer has the guards of the scanned set, with
//! their versions in that snapshot: a transaction that has read the guards either sees every object of the set, in this answer or a
//! later one, or conflicts.
//!
//! An index is scanned only if it is complete for the requested classes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, Kind, NodeId, Object, Oid, PageId, RecordRef, Result, SpaceId};
use protocol::ident::Version;
use protocol::validate::{Read, ReadVersion};
use query::key::common_first_component;
use store::{Snapshot, Store};
use wire::cluster::{IndexRange, Scan, ScanPosition, Scanned};

use super::filter_cost::FilterCost;
use super::guards;
use super::index_rows::{self, IndexId, Key, Mark};
use super::page_rows as rows;
use super::plant::{Bug, planted};

/// Most bytes of objects in one answer; the last object may exceed them.
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// Most objects that are examined for one answer.
const MAX_EXAMINED: u64 = 10_000;
/// Most work for one answer; that on the last object may exceed it. Less than a second.
const MAX_WORK: u64 = query::limits::WORK;
/// Most entries that are counted for one answer, if the objects need not be read.
const MAX_COUNTED: u64 = 100_000;
/// Rows that are read in one step: first as many as requested within these bounds, then [`MAX_ROWS`].
const MIN_ROWS: usize = 16;
const MAX_ROWS: usize = 512;

/// Answers a scan.
///
/// # Errors
/// [`ErrorKind::NotFound`] for an unknown index; [`ErrorKind::Unavailable`] for an index that is not complete yet;
/// [`ErrorKind::Corrupt`] for damaged rows.
pub(crate) fn scan(store: &Store, scan: &Scan) -> Result<Scanned> {
    let state = store.snapshot()?;
    let cost = FilterCost::new(scan.filter.as_ref());
    let mut looking = Scanner { state: &state, scan, scanned: Scanned::default(), bytes: 0, cost, work: 0 };
    match &scan.range {
        None => looking.scan_extents()?,
        Some(range) => looking.scan_index(range)?,
    }
    Ok(looking.scanned)
}

struct Scanner<'a> {
    state: &'a Snapshot,
    scan: &'a Scan,
    scanned: Scanned,
    bytes: usize,
    cost: FilterCost,
    /// What was read and tested, in units of [`query::limits::WORK`].
    work: u64,
}

impl Scanner<'_> {
    fn page(&self, number: u64) -> PageId {
        PageId { space: self.scan.space, node: self.scan.node, number }
    }

    /// Adds guards with their versions to the first answer.
    fn add_guards(&mut self, guards: impl IntoIterator<Item = Oid>) -> Result<()> {
        if self.scan.after.is_some() || planted(Bug::GuardsNotRead) {
            return Ok(());
        }
        for oid in guards {
            let version = rows::read_head(self.state, oid.page())?.version;
            self.scanned.guards.push(Read { oid, seen: ReadVersion::At(version) });
        }
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- extents

    fn scan_extents(&mut self) -> Result<()> {
        let scan = self.scan;
        self.add_guards(scan.classes.iter().map(|class| guards::of_class(scan.space, scan.node, *class)))?;
        let after = scan.after.as_ref().map(|place| place.oid);
        for class in &scan.classes {
            // Classes are in ascending order, so those before the position to continue from are done.
            if after.is_some_and(|oid| oid.class() > *class) {
                continue;
            }
            self.scan_extent(*class, after.filter(|oid| oid.class() == *class))?;
            if self.scanned.next.is_some() {
                break;
            }
        }
        Ok(())
    }

    fn scan_extent(&mut self, class: ClassId, after: Option<Oid>) -> Result<()> {
        let scan = self.scan;
        let Scan { node, space, count, ref filter, .. } = *scan;
        let counts = count && filter.is_none();
        let after = after.map(|oid| (oid.page().number, oid.slot()));
        let (from, to) = rows::extent_range(node, space, class, after);
        self.walk((&from, &to), false, |looking, row| {
            let (number, slot) = rows::extent_place(row)?;
            let oid = Oid::new(class, looking.page(number), slot);
            if counts {
                return Ok(looking.count_object(oid, &[]));
            }
            match read_at(looking.state, oid.page(), slot)? {
                (version, Some(object)) => looking.add_object(oid, version, object, &[]),
                (_, None) => Err(damaged_extent_error(node, space, class, oid)),
            }
        })
    }

    /// Visits rows in order, in portions, until `look` returns false. No other row is read while a portion is read.
    fn walk(
        &mut self,
        (from, to): (&[u8], &[u8]),
        back: bool,
        mut look: impl FnMut(&mut Self, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let (mut from, mut to) = (Key::from_slice(from), Key::from_slice(to));
        let mut portion = (self.scan.limit as usize).clamp(MIN_ROWS, MAX_ROWS);
        loop {
            let mut found: Vec<Key> = Vec::new();
            let visit = |row: &[u8], _: &[u8]| {
                found.push(Key::from_slice(row));
                if found.len() < portion { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            match back {
                false => self.state.rows(&from, &to, visit)?,
                true => self.state.rows_back(&from, &to, visit)?,
            }
            for row in &found {
                if !look(self, row)? {
                    return Ok(());
                }
            }
            let Some(last) = found.pop().filter(|_| found.len() + 1 == portion) else { return Ok(()) };
            if back {
                to = last;
            } else {
                from = last;
                from.push(0);
            }
            portion = MAX_ROWS;
        }
    }

    // -------------------------------------------------------------------------------------------- indexes

    fn scan_index(&mut self, range: &IndexRange) -> Result<()> {
        let scan = self.scan;
        let Scan { node, space, count, ref filter, ref classes, .. } = *scan;
        let id = IndexId { node, space, index: range.index };
        let all = self.check_complete(id)?;
        let counts = count && filter.is_none() && all.is_subset(classes);
        self.add_guards([match common_first_component(&range.from, &range.to) {
            Some(first) => guards::of_bucket(space, node, id.index, first),
            None => guards::of_index(space, node, id.index),
        }])?;
        let (from, to) = bounds(id, range, scan.after.as_ref());
        self.walk((&from, &to), range.reverse, |looking, row| {
            let (key, number, slot) = index_rows::parse_entry(id, row)?;
            let page = looking.page(number);
            if counts {
                return Ok(looking.count_object(Oid::new(ClassId::NONE, page, slot), key));
            }
            match read_at(looking.state, page, slot)? {
                (version, Some(object)) => looking.add_object(Oid::new(object.class, page, slot), version, object, key),
                (_, None) => Err(index_rows::damage_error(id, "an entry names an object that does not exist")),
            }
        })
    }

    /// Returns the classes for which an index is complete. Fails unless it is complete for the requested classes.
    fn check_complete(&self, id: IndexId) -> Result<BTreeSet<ClassId>> {
        let marks = index_rows::read_marks(self.state, id)?;
        let mut complete = BTreeSet::new();
        for (class, mark) in &marks {
            match mark {
                Mark::Complete(_) => drop(complete.insert(*class)),
                Mark::Building(_) => {}
                Mark::Removing => return Err(no_index(id)),
            }
        }
        if marks.is_empty() {
            return Err(no_index(id));
        }
        match self.scan.classes.iter().find(|class| !complete.contains(class)) {
            None => Ok(marks.into_iter().map(|(class, _)| class).collect()),
            Some(_) if planted(Bug::PartialIndexUsed) => Ok(complete),
            Some(class) => {
                let what = format!("{id} is not complete for class {} yet: try again in a moment", class.0);
                Err(Error::new(ErrorKind::Unavailable, what))
            }
        }
    }

    // -------------------------------------------------------------------------------------------- results

    /// Adds an object if it matches. Returns whether there is room for another one.
    fn add_object(&mut self, oid: Oid, version: Version, object: Object, key: &[u8]) -> Result<bool> {
        self.scanned.examined += 1;
        self.work += 1 + object.encoded_len() as u64 / 16;
        let matches = self.scan.classes.contains(&object.class)
            && match &self.scan.filter {
                None => true,
                Some(_) if object.kind != Kind::Record => false,
                Some(filter) => {
                    let record = RecordRef::new(&object.data)?;
                    self.work += self.cost.work_on(oid, &record, object.data.len())?;
                    filter.matches(&record)?
                }
            };
        if matches {
            self.scanned.count += 1;
            if !self.scan.count {
                self.bytes += object.encoded_len();
                self.scanned.found.push((oid, version, object));
            }
        }
        let is_full = self.scanned.found.len() >= self.scan.limit as usize && !self.scan.count;
        let is_over = self.bytes >= MAX_ANSWER_BYTES || self.scanned.examined >= MAX_EXAMINED || self.work >= MAX_WORK;
        Ok(self.set_next_if_over(is_full || is_over, oid, key))
    }

    /// Counts an object that need not be read. Returns whether another one may be counted.
    fn count_object(&mut self, oid: Oid, key: &[u8]) -> bool {
        self.scanned.count += 1;
        self.set_next_if_over(self.scanned.count >= MAX_COUNTED, oid, key)
    }

    fn set_next_if_over(&mut self, is_over: bool, oid: Oid, key: &[u8]) -> bool {
        if is_over {
            self.scanned.next = Some(ScanPosition { key: Bytes::copy_from_slice(key), oid });
        }
        !is_over
    }
}

/// The rows of a range of an index, after a position.
fn bounds(id: IndexId, range: &IndexRange, after: Option<&ScanPosition>) -> (Key, Key) {
    let (mut from, mut to) = (index_rows::bound(id, &range.from), index_rows::bound(id, &range.to));
    if let Some(ScanPosition { key, oid }) = after {
        let mut place = index_rows::entry_key(id, key, oid.page(), oid.slot());
        if range.reverse {
            to = to.min(place);
        } else {
            place.push(0);
            from = from.max(place);
        }
    }
    (from, to)
}

/// An object with the version of its page.
fn read_at(state: &Snapshot, page: PageId, slot: u16) -> Result<(Version, Option<Object>)> {
    Ok((rows::read_head(state, page)?.version, rows::read_object(state, page, slot)?))
}

fn no_index(id: IndexId) -> Error {
    Error::new(ErrorKind::NotFound, format!("{id} does not exist in this brick's copy of the catalogue"))
}

fn damaged_extent_error(node: NodeId, space: SpaceId, class: ClassId, oid: Oid) -> Error {
    let what = format!(
        "the extent of class {} of space {} at logical node {:x} is damaged: it has {oid}, which does not exist; see \
         \"Mend\" in docs/operations.md",
        class.0, space.0, node.0
    );
    Error::new(ErrorKind::Corrupt, what)
}
