//! Does what a plan leaves to the peer server.
//!
//! A [`Run`] is driven from outside: it is offered candidates and says what it needs next. It never waits; a candidate for
//! which a referenced object is missing is set aside until the object is supplied, and the needs of many candidates are
//! asked for at once.
//!
//! ```text
//!            offer            supply
//!  candidates ──▶ ┌─────────┐ ◀── objects it needed
//!                 │   Run   │
//!        step ──▶ └─────────┘ ──▶ Need(oids) | More | Enough
//!                      │ take
//!                      ▼
//!                     rows
//! ```
//!
//! 1. Every candidate is one that passed the plan's filter and is of its classes; offered once.
//! 2. What a run holds is bounded: rows that are sorted and groups by [`limits::HELD`], referenced objects by
//!    [`limits::REFERENCED`]. Candidates that are offered are the driver's to bound: it offers more when a step says so.
//! 3. Equal candidates give equal answers in whatever order they come, but for the last digits of sums of float64, and for
//!    which objects are taken by `limit` without an order.

mod groups;
mod sort;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, Oid, RecordRef, Result, Value, ValueRef};

use crate::check::{Order, OrderBy, Output, Term};
use crate::eval::{Evaluator, Referenced, Stop};
use crate::key::KeyPrefix;
use crate::limits;
use crate::plan::{CandidateSource, Counts, Plan};
use groups::Grouping;
use sort::{Sorter, sort_key};

/// A row of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// An object as it is stored.
    Object(Oid, Bytes),
    /// The values of the columns.
    Values(Vec<Value>),
}

/// What a run wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// These objects, to be supplied, also if they do not exist. Not more than [`limits::NEEDED`]; some of them will do for
    /// the next step, which asks for the others again.
    Need(Vec<Oid>),
    /// More candidates, or to hear that there are none: [`QueryRun::end`].
    More,
    /// Nothing: the rows that are wanted are there.
    Enough,
}

/// An answer in the making.
#[derive(Debug)]
pub struct QueryRun {
    plan: Arc<Plan>,
    candidates: VecDeque<Candidate>,
    referenced: Referenced,
    /// How many candidates are looked at before the first of them is done.
    window: usize,
    rows: VecDeque<Row>,
    /// Rows that are still to be skipped, and still wanted, if they come one by one.
    skip: u64,
    wanted: u64,
    sorter: Option<Sorter>,
    grouping: Option<Grouping>,
    /// Streams from which nothing more is wanted.
    done: BTreeSet<u32>,
    ended: bool,
    counts: Counts,
}

#[derive(Debug)]
struct Candidate {
    stream: u32,
    oid: Oid,
    record: Bytes,
}

/// What came of a candidate.
enum Verdict {
    /// It is not asked for.
    Dropped,
    /// It is, with its columns, or what a group needs of it, and its key in the order.
    Matched { values: Vec<Value>, key: Vec<u8> },
    /// It has to wait for these.
    Missing(Vec<Oid>),
}

impl QueryRun {
    /// A run of a plan.
    #[must_use]
    pub fn new(plan: Arc<Plan>) -> Self {
        let checked = &plan.checked;
        let wanted = checked.limit.unwrap_or(u64::MAX);
        let grouping = match &checked.output {
            Output::Groups(groups) => Some(Grouping::new(groups)),
            _ => None,
        };
        let most = wanted.saturating_add(checked.skip);
        let sorts = grouping.is_none() && !checked.order.is_empty();
        Self {
            candidates: VecDeque::new(),
            referenced: Referenced::default(),
            window: limits::NEEDED,
            rows: VecDeque::new(),
            skip: checked.skip,
            wanted,
            sorter: sorts.then(|| Sorter::new(most)),
            grouping,
            done: BTreeSet::new(),
            ended: false,
            counts: Counts { sent: Some(0), navigated: Some(0), matched: Some(0), rows: Some(0), scanned: None },
            plan,
        }
    }

    /// A candidate and its record, from one of the streams that candidates come in. If the plan's index is
    /// [`ordered`](crate::IndexRanges::ordered), each stream must be in its order, but one of which [`QueryRun::is_done`] is not
    /// asked.
    pub fn offer(&mut self, stream: u32, oid: Oid, record: Bytes) {
        add(&mut self.counts.sent, 1);
        self.candidates.push_back(Candidate { stream, oid, record });
    }

    /// So many objects pass the filter, if only that matters ([`Plan::counts_only`]).
    pub fn offer_count(&mut self, count: u64) {
        add(&mut self.counts.matched, count);
        if let Some(grouping) = &mut self.grouping {
            grouping.count(count);
        }
    }

    /// An object that was needed, or `None` if it does not exist.
    pub fn supply(&mut self, oid: Oid, record: Option<Bytes>) {
        add(&mut self.counts.navigated, u64::from(record.is_some()));
        self.referenced.insert(oid, record);
    }

    /// There are no more candidates.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether nothing more is wanted from a stream: what is still to come in it is behind the last row.
    #[must_use]
    pub fn is_done(&self, stream: u32) -> bool {
        self.done.contains(&stream)
    }

    /// How many objects each step touched so far; `scanned` is known to the bricks only.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The rows that are ready. Those of a plan that [collects](Plan::collects) come after the end.
    pub fn take(&mut self) -> Vec<Row> {
        let rows: Vec<Row> = self.rows.drain(..).collect();
        add(&mut self.counts.rows, rows.len() as u64);
        rows
    }

    /// Works through the candidates, as far as it can.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if something cannot be computed, [`ErrorKind::TooLarge`] if too much is to be sorted, grouped
    /// or followed, [`ErrorKind::Corrupt`] if a record is damaged.
    pub fn step(&mut self) -> Result<Progress> {
        if self.referenced.bytes() > limits::REFERENCED {
            // Too much for all who wait: from now on one at a time, until one is through.
            if self.window == 1 {
                let most = limits::REFERENCED >> 20;
                let message = format!("one object leads to more than {most} MiB of others, too many to follow at once");
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            self.window = 1;
            self.referenced.clear();
        }
        let (mut waiting, mut missing) = (VecDeque::new(), BTreeSet::new());
        while waiting.len() < self.window && missing.len() < limits::NEEDED && self.wanted > 0 {
            let Some(candidate) = self.candidates.pop_front() else { break };
            match self.evaluate(&candidate)? {
                Verdict::Missing(oids) => {
                    missing.extend(oids);
                    waiting.push_back(candidate);
                }
                verdict => {
                    if waiting.is_empty() && self.window == 1 {
                        self.window = limits::NEEDED;
                        self.referenced.clear();
                    }
                    self.apply_verdict(candidate, verdict)?;
                }
            }
        }
        while let Some(candidate) = waiting.pop_back() {
            self.candidates.push_front(candidate);
        }
        if self.wanted == 0 {
            self.candidates.clear();
            return Ok(Progress::Enough);
        }
        if !missing.is_empty() {
            return Ok(Progress::Need(missing.into_iter().take(limits::NEEDED).collect()));
        }
        if !self.ended {
            return Ok(Progress::More);
        }
        self.finish()?;
        Ok(Progress::Enough)
    }

    /// Decides about a candidate, changing nothing.
    fn evaluate(&self, candidate: &Candidate) -> Result<Verdict> {
        let checked = &self.plan.checked;
        let mut evaluator = Evaluator::new(candidate.oid, &candidate.record, &self.referenced)?;
        match self.plan.residual.as_ref().map_or(Ok(true), |residual| evaluator.cond(residual)) {
            Ok(true) => {}
            Ok(false) => return Ok(Verdict::Dropped),
            Err(Stop::Missing) => return Ok(Verdict::Missing(evaluator.into_missing())),
            Err(Stop::Failed(error)) => return Err(error),
        }
        let terms: Vec<&Term> = match &checked.output {
            Output::Objects => vec![],
            Output::Columns(terms) => terms.iter().collect(),
            Output::Groups(groups) => {
                groups.keys.iter().chain(groups.aggregates.iter().filter_map(|(_, of)| of.as_ref())).collect()
            }
        };
        let mut values = Vec::with_capacity(terms.len());
        let mut waits = false;
        for term in terms {
            match evaluator.term(term).and_then(|value| value.to_value().map_err(Stop::Failed)) {
                Ok(value) => values.push(value),
                // On, so that all that is missing is asked for together.
                Err(Stop::Missing) => waits = true,
                Err(Stop::Failed(error)) => return Err(error),
            }
        }
        let mut key = Vec::new();
        if self.sorter.is_some() {
            for Order { by, descending, nulls_first } in &checked.order {
                let OrderBy::Term(term) = by else { continue };
                match evaluator.term(term) {
                    Ok(value) => {
                        let value = value.scalar().unwrap_or(ValueRef::Null);
                        sort_key(value, *descending, *nulls_first, &mut key);
                    }
                    Err(Stop::Missing) => waits = true,
                    Err(Stop::Failed(error)) => return Err(error),
                }
            }
            key.extend_from_slice(&candidate.oid.to_bytes());
        }
        if waits { Ok(Verdict::Missing(evaluator.into_missing())) } else { Ok(Verdict::Matched { values, key }) }
    }

    fn apply_verdict(&mut self, candidate: Candidate, verdict: Verdict) -> Result<()> {
        let place = self.index_position(&candidate)?;
        if let (Some(place), Some(sorter)) = (&place, &self.sorter)
            && sorter.is_behind(place)
        {
            self.done.insert(candidate.stream);
        }
        let Verdict::Matched { values, key } = verdict else { return Ok(()) };
        add(&mut self.counts.matched, 1);
        if let Some(grouping) = &mut self.grouping {
            return grouping.add(values);
        }
        let row = match self.plan.checked.output {
            Output::Objects => Row::Object(candidate.oid, candidate.record),
            _ => Row::Values(values),
        };
        match &mut self.sorter {
            Some(sorter) => sorter.add(key, place, row)?,
            None => self.emit(row),
        }
        Ok(())
    }

    /// Where a candidate stands in the order of the index: larger is later. `None` if the index has no order of use.
    fn index_position(&self, candidate: &Candidate) -> Result<Option<Vec<u8>>> {
        let CandidateSource::Index(index) = &self.plan.source else { return Ok(None) };
        if !index.ordered {
            return Ok(None);
        }
        let record = RecordRef::new(&candidate.record)?;
        let mut prefix = KeyPrefix::new(index.fields.len());
        for field in &index.fields[..index.leading] {
            prefix.push(record.field(*field)?.unwrap_or(ValueRef::Null));
        }
        let mut place = prefix.bytes().to_vec();
        if index.reverse {
            place.iter_mut().for_each(|byte| *byte = !*byte);
        }
        Ok(Some(place))
    }

    fn emit(&mut self, row: Row) {
        if self.skip > 0 {
            self.skip -= 1;
        } else if self.wanted > 0 {
            self.wanted -= 1;
            self.rows.push_back(row);
        }
    }

    fn finish(&mut self) -> Result<()> {
        if let Some(sorter) = self.sorter.take() {
            sorter.into_rows().into_iter().for_each(|row| self.emit(row));
        }
        if let (Some(grouping), Output::Groups(groups)) = (self.grouping.take(), &self.plan.checked.output) {
            let rows = grouping.into_rows(groups, &self.plan.checked.order)?;
            rows.into_iter().for_each(|row| self.emit(row));
        }
        Ok(())
    }
}

impl Plan {
    /// Whether the condition holds of an object, all of it and not only what bricks leave; `None` if an object that it
    /// refers to is not known. For those who have changed objects and no brick to ask.
    ///
    /// # Errors
    /// As of [`QueryRun::step`].
    pub fn matches(
        &self,
        oid: Oid,
        record: &[u8],
        find: impl Fn(Oid) -> Option<Option<Bytes>>,
    ) -> Result<Option<bool>> {
        if !self.classes().contains(&oid.class()) {
            return Ok(Some(false));
        }
        let Some(condition) = &self.checked.condition else { return Ok(Some(true)) };
        let mut referenced = Referenced::default();
        loop {
            let mut evaluator = Evaluator::new(oid, record, &referenced)?;
            match evaluator.cond(condition) {
                Ok(holds) => return Ok(Some(holds)),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Missing) => {}
            }
            for missing in evaluator.into_missing() {
                match find(missing) {
                    Some(object) => referenced.insert(missing, object),
                    None => return Ok(None),
                }
            }
        }
    }
}

fn add(count: &mut Option<u64>, more: u64) {
    *count = Some(count.unwrap_or_default() + more);
}

/// What a row takes in memory, about.
fn size(values: &[Value]) -> usize {
    values.iter().map(|value| 32 + value_size(value)).sum::<usize>() + 64
}

fn value_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Decimal(number) => number.as_ref().unscaled().len(),
        Value::List(values) => values.iter().map(|value| 32 + value_size(value)).sum(),
        Value::Set(values) => values.iter().map(|value| 48 + value_size(value)).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| 80 + value_size(key) + value_size(value)).sum(),
        _ => 0,
    }
}

fn too_large(what: &str) -> Error {
    let most = limits::BUFFERED >> 20;
    Error::new(ErrorKind::TooLarge, format!("{what} takes more than {most} MiB: narrow the condition, or set a limit"))
}

#[cfg(test)]
mod tests;
