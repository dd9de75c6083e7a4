//! Decides where each part of a query runs.
//!
//! The filter for the bricks accepts every object that satisfies the condition. It contains as much of the condition as
//! a brick can evaluate: tests of the object's own fields against known values ([`push`]). The rest is the *residual*
//! condition, which runs at the peer server, including everything that follows references. If the condition implies a
//! range of an index, candidates come from the index instead of the extent ([`mod@index`]); the filter is applied in
//! both cases.
//!
//! In an `&&`, a test can protect the tests behind it: `b != 0 && a / b > 3`. Pushing simple tests to the bricks
//! preserves that, because they cannot fail and the remaining tests keep their order.

mod explain;
mod index;
mod push;

use std::collections::BTreeSet;

use model::{ClassId, FieldNumber, Filter, Result};

use crate::check::{CheckedQuery, Cond, Output};
use crate::key::KeyRange;
use crate::plant::{Bug, planted};
use crate::{Column, Schema};

pub use explain::{Counts, PlanStep};

/// An index over the objects of a class and of the classes that extend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// The class whose objects it contains.
    pub class: ClassId,
    /// The fields that it is ordered by; at most [`limits::KEY_FIELDS`](crate::limits::KEY_FIELDS).
    pub fields: Vec<FieldNumber>,
    /// Whether no two objects have the same values; null equals nothing.
    pub unique: bool,
    /// Whether it contains all objects.
    pub ready: bool,
}

/// A query with the decision where each part runs.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) checked: CheckedQuery,
    pub(crate) source: CandidateSource,
    pub(crate) filter: Filter,
    pub(crate) residual: Option<Cond>,
}

/// The source of candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateSource {
    /// None: no object satisfies the condition.
    Nothing,
    /// All objects of the classes.
    Extent,
    /// Disjoint ranges of an index, in order. The index can contain objects of other classes.
    Index(IndexRanges),
}

/// The parts of an index that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRanges {
    /// The index's number.
    pub index: u32,
    /// The index's name.
    pub name: String,
    /// The index's fields.
    pub fields: Vec<FieldNumber>,
    /// Ranges of keys, ascending.
    pub ranges: Vec<KeyRange>,
    /// Whether the ranges, and the entries in each, are read in reverse.
    pub reverse: bool,
    /// Whether candidates must be offered in the order of the index. The run then reports when it needs no more.
    pub ordered: bool,
    /// The number of fields that determine that order.
    pub(crate) leading: usize,
    /// The tests that the ranges are derived from, as text.
    pub words: String,
}

impl CheckedQuery {
    /// A plan, which uses the best of these indexes if one is useful.
    #[must_use]
    pub fn plan(&self, schema: &Schema, indexes: &[Index]) -> Plan {
        let parts = self.conjuncts();
        if parts.contains(&&Cond::Constant(false)) {
            let filter = Filter::Or(vec![]);
            return Plan { checked: self.clone(), source: CandidateSource::Nothing, filter, residual: None };
        }
        let (filter, residual) = push::split_condition(&parts);
        let source =
            index::choose(self, &parts, schema, indexes).map_or(CandidateSource::Extent, CandidateSource::Index);
        let source = match source {
            CandidateSource::Index(index) if index.ranges.is_empty() => CandidateSource::Nothing,
            source => source,
        };
        Plan { checked: self.clone(), source, filter, residual }
    }
}

impl CheckedQuery {
    /// The conditions that must all hold.
    fn conjuncts(&self) -> Vec<&Cond> {
        let mut parts = match &self.condition {
            None => vec![],
            Some(Cond::And(parts)) => flatten(parts),
            Some(one) => vec![one],
        };
        parts.retain(|part| **part != Cond::Constant(true));
        parts
    }
}

/// The parts of a conjunction, with nested conjunctions flattened.
fn flatten(parts: &[Cond]) -> Vec<&Cond> {
    let mut flat = Vec::new();
    for part in parts {
        match part {
            Cond::And(parts) => flat.extend(flatten(parts)),
            one => flat.push(one),
        }
    }
    flat
}

impl Plan {
    /// The source of candidates.
    #[must_use]
    pub fn source(&self) -> &CandidateSource {
        &self.source
    }

    /// The classes of candidates.
    #[must_use]
    pub fn classes(&self) -> &BTreeSet<ClassId> {
        self.checked.classes()
    }

    /// The filter that bricks apply to each candidate.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The columns of rows; empty if the query returns whole objects.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        self.checked.columns()
    }

    /// Whether bricks evaluate the whole condition.
    #[must_use]
    pub fn is_decided_by_bricks(&self) -> bool {
        self.residual.is_none()
    }

    /// Whether only the number of objects matters, so that bricks send only counts
    /// ([`QueryRun::offer_count`](crate::QueryRun::offer_count)).
    #[must_use]
    pub fn counts_only(&self) -> bool {
        let Output::Groups(groups) = &self.checked.output else { return false };
        self.residual.is_none() && groups.keys.is_empty() && groups.aggregates.iter().all(|(_, of)| of.is_none())
    }

    /// The number of candidates that suffices from each brick, if it is known in advance.
    #[must_use]
    pub fn candidate_limit(&self) -> Option<u64> {
        let any_will_do = self.residual.is_none()
            && self.checked.order.is_empty()
            && !matches!(self.checked.output, Output::Groups(_));
        let skip = if planted(Bug::SkipForgottenInLimit) { 0 } else { self.checked.skip };
        self.checked.limit.filter(|_| any_will_do).map(|limit| limit.saturating_add(skip))
    }

    /// The number of candidates to request from each brick at a time: about the number of wanted rows, if candidates come in order.
    #[must_use]
    pub fn batch_size(&self) -> Option<u64> {
        let is_ordered = matches!(&self.source, CandidateSource::Index(index) if index.ordered);
        let in_order = self.checked.limit.filter(|_| is_ordered).map(|limit| limit.saturating_add(self.checked.skip));
        self.candidate_limit().or(in_order)
    }

    /// Whether rows are available only after all candidates were processed.
    #[must_use]
    pub fn collects(&self) -> bool {
        !self.checked.order.is_empty() || matches!(self.checked.output, Output::Groups(_))
    }

    /// The filter, encoded for the bricks.
    ///
    /// # Errors
    /// None: planning has bounded the size of the filter.
    pub fn encode_filter(&self) -> Result<Vec<u8>> {
        self.filter.encode()
    }
}

#[cfg(test)]
pub(crate) mod tests;
