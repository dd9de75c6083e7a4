//! Decides where each part of a query runs.
//!
//! The brick's filter never loses an object that the condition holds of, and has as much of the condition as a brick can
//! decide: tests of the object's own fields against values that are known ([`push`]). What it does not decide exactly is
//! the *residual* condition, which runs at the peer server, with everything that follows references. An index that the
//! condition gives a range of takes the place of the extent ([`mod@index`]); the filter is asked all the same.
//!
//! A test that stands before another in an `&&` may guard it: `b != 0 && a / b > 3`. Moving simple tests down keeps that, as
//! they cannot fail, and as the others keep their order.

mod explain;
mod index;
mod push;

use std::collections::BTreeSet;

use model::{ClassId, FieldNumber, Filter, Result};

use crate::check::{CheckedQuery, Cond, Output};
use crate::key::KeyRange;
use crate::{Column, Schema};

pub use explain::{Counts, PlanStep};

/// An index of a class: an entry for each of its objects and of those of classes that extend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Whose objects it has.
    pub class: ClassId,
    /// What they are ordered by; at most [`limits::KEY_FIELDS`](crate::limits::KEY_FIELDS).
    pub fields: Vec<FieldNumber>,
    /// Whether two objects never have the same values, unless one is null.
    pub unique: bool,
    /// Whether it has all objects already.
    pub ready: bool,
}

/// Where a query is answered.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) checked: CheckedQuery,
    pub(crate) source: CandidateSource,
    pub(crate) filter: Filter,
    pub(crate) residual: Option<Cond>,
}

/// Where candidates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CandidateSource {
    /// From nowhere: the condition holds of nothing.
    Nothing,
    /// All objects of the classes.
    Extent,
    /// Those in ranges of an index, which do not overlap and come in order. The index may have objects of other classes.
    Index(IndexRanges),
}

/// What is read of an index.
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
    /// The last range first, and in each the last entry.
    pub reverse: bool,
    /// Whether entries have to come in order: then a run says when it has enough of them.
    pub ordered: bool,
    /// How many of the fields make that order.
    pub(crate) leading: usize,
    /// The ranges in words.
    pub words: String,
}

impl CheckedQuery {
    /// A plan that uses the best of these indexes, if one is any good.
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
    /// What all has to hold.
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

/// The parts of a conjunction, and of conjunctions within it.
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
    /// Where candidates come from.
    #[must_use]
    pub fn source(&self) -> &CandidateSource {
        &self.source
    }

    /// The classes that candidates must be of.
    #[must_use]
    pub fn classes(&self) -> &BTreeSet<ClassId> {
        self.checked.classes()
    }

    /// What bricks ask of each candidate.
    #[must_use]
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The columns of rows; empty if whole objects are wanted.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        self.checked.columns()
    }

    /// Whether bricks decide the whole condition.
    #[must_use]
    pub fn is_decided_by_bricks(&self) -> bool {
        self.residual.is_none()
    }

    /// Whether only the number of objects matters, so that bricks need send no more
    /// ([`QueryRun::offer_count`](crate::QueryRun::offer_count)).
    #[must_use]
    pub fn counts_only(&self) -> bool {
        let Output::Groups(groups) = &self.checked.output else { return false };
        self.residual.is_none() && groups.keys.is_empty() && groups.aggregates.iter().all(|(_, of)| of.is_none())
    }

    /// How many candidates are enough from each brick, if that can be said beforehand.
    #[must_use]
    pub fn candidate_limit(&self) -> Option<u64> {
        let any_will_do = self.residual.is_none()
            && self.checked.order.is_empty()
            && !matches!(self.checked.output, Output::Groups(_));
        self.checked.limit.filter(|_| any_will_do).map(|limit| limit.saturating_add(self.checked.skip))
    }

    /// How many candidates to ask each brick for at a time: not many more than there are rows to come, where they come in order.
    #[must_use]
    pub fn batch_size(&self) -> Option<u64> {
        let is_ordered = matches!(&self.source, CandidateSource::Index(index) if index.ordered);
        let in_order = self.checked.limit.filter(|_| is_ordered).map(|limit| limit.saturating_add(self.checked.skip));
        self.candidate_limit().or(in_order)
    }

    /// Whether rows come only when all candidates were seen.
    #[must_use]
    pub fn collects(&self) -> bool {
        !self.checked.order.is_empty() || matches!(self.checked.output, Output::Groups(_))
    }

    /// The filter, encoded for the bricks.
    ///
    /// # Errors
    /// None, as planning saw to it that the filter is not too large.
    pub fn encode_filter(&self) -> Result<Vec<u8>> {
        self.filter.encode()
    }
}

#[cfg(test)]
mod tests;
