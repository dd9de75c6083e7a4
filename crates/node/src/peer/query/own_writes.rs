//! Objects that the querying transaction has written: they replace those of bricks and caches.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{Error, ErrorKind, Kind, Object, Oid, RecordRef, Result};
use query::key::IndexEntry;
use query::{CandidateSource, Plan, QueryRun};

/// The objects that the transaction has written.
#[derive(Debug, Default)]
pub(super) struct OwnWrites {
    objects: BTreeMap<Oid, Option<Object>>,
    /// The candidates among them, in the order of the plan's index, until they are offered.
    candidates: Vec<(Oid, Bytes)>,
}

impl OwnWrites {
    /// Finds the candidates of a plan among `objects`, as long as they are wanted.
    ///
    /// # Errors
    /// If one of them is damaged; [`ErrorKind::Unavailable`] if they are not wanted any more.
    pub(super) fn new(
        objects: BTreeMap<Oid, Option<Object>>,
        plan: &Plan,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let index = match plan.source() {
            CandidateSource::Nothing => return Ok(Self { objects, candidates: Vec::new() }),
            CandidateSource::Extent => None,
            CandidateSource::Index(index) => Some(index).filter(|index| index.ordered),
        };
        let mut candidates: Vec<(Vec<u8>, Oid, Bytes)> = Vec::new();
        for (oid, object) in &objects {
            if !is_wanted() {
                return Err(Error::new(ErrorKind::Unavailable, "the query has ended"));
            }
            let Some(object) = object.as_ref().filter(|object| object.kind == Kind::Record) else { continue };
            let record = RecordRef::new(&object.data)?;
            if plan.classes().contains(&oid.class()) && plan.filter().matches(&record)? {
                let key = index
                    .map_or(Ok(Vec::new()), |index| IndexEntry::of(&record, &index.fields).map(|entry| entry.key))?;
                candidates.push((key, *oid, object.data.clone()));
            }
        }
        candidates.sort_by(|(a, one, _), (b, other, _)| (a, one).cmp(&(b, other)));
        if index.is_some_and(|index| index.reverse) {
            candidates.reverse();
        }
        let candidates = candidates.into_iter().map(|(_, oid, record)| (oid, record)).collect();
        Ok(Self { objects, candidates })
    }

    /// How many objects it has written.
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether it has written this object, or deleted it.
    pub(super) fn has(&self, oid: Oid) -> bool {
        self.objects.contains_key(&oid)
    }

    /// The record of an object that it has written; `Some(None)` if it has deleted the object or it is no record.
    pub(super) fn get(&self, oid: Oid) -> Option<Option<Bytes>> {
        let object = self.objects.get(&oid)?.as_ref();
        Some(object.filter(|object| object.kind == Kind::Record).map(|object| object.data.clone()))
    }

    /// Offers the candidates, once, as a stream of their own. Returns whether there were any.
    pub(super) fn offer(&mut self, run: Option<&mut QueryRun>) -> bool {
        let Some(run) = run.filter(|_| !self.candidates.is_empty()) else { return false };
        for (oid, record) in self.candidates.drain(..) {
            run.offer(u32::MAX, oid, record);
        }
        true
    }
}
