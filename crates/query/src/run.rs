//! Evaluates the part of a plan that runs at the peer server.
//!
//! A [`QueryRun`] is a state machine: the driver offers candidates, and the run says what it needs next. It never
//! waits. A candidate that needs a referenced object is set aside until the object is supplied; the needs of many
//! candidates are requested together.
//!
//! ```text
//!            offer            supply
//!  candidates ──▶ ┌──────────┐ ◀── objects it needed
//!                 │ QueryRun │
//!        step ──▶ └──────────┘ ──▶ Need(oids) | More | Enough
//!                      │ take
//!                      ▼
//!                     rows
//! ```
//!
//! 1. Every candidate has passed the plan's filter, is of one of its classes, and is offered once.
//! 2. Memory is bounded: sorted rows and groups by [`limits::BUFFERED`], referenced objects by [`limits::REFERENCED`].
//!    The driver bounds the candidates: it offers more only when a step asks for more.
//! 3. The result does not depend on the order of candidates, except for the last digits of sums of float64 and for the choice that
//!    `limit` makes without an order.

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
use crate::plant::{Bug, planted};
use groups::Grouping;
use sort::{Sorter, sort_key};

/// A row of the result.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// An object as it is stored.
    Object(Oid, Bytes),
    /// The values of the columns.
    Values(Vec<Value>),
}

/// What a run needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// These objects, at most [`limits::NEEDED`]. Objects that do not exist must be supplied as `None`. It is enough to supply some
    /// before the next step, which asks for the others again.
    Need(Vec<Oid>),
    /// More candidates, or [`QueryRun::end`].
    More,
    /// Another [`QueryRun::step`]: it has done as much work as one does.
    Again,
    /// Nothing: all wanted rows are available.
    Enough,
}

/// The evaluation of a plan.
#[derive(Debug)]
pub struct QueryRun {
    plan: Arc<Plan>,
    candidates: VecDeque<Candidate>,
    referenced: Referenced,
    /// The number of candidates that can wait for objects at the same time.
    window: usize,
    rows: VecDeque<Row>,
    /// Rows that are still to be skipped.
    skip: u64,
    wanted: u64,
    sorter: Option<Sorter>,
    grouping: Option<Grouping>,
    /// Streams from which no more candidates are needed.
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

/// The result of evaluating a candidate.
enum Verdict {
    /// It takes more work than was allowed.
    Exhausted,
    /// It does not satisfy the condition.
    Dropped,
    /// It does. With the values of its columns, or those for its group, and its key in the order.
    Matched { values: Vec<Value>, key: Vec<u8> },
    /// It needs these objects.
    Missing(Vec<Oid>),
}

/// Why the evaluation of a candidate has ended without values.
enum Ended {
    /// It does not satisfy the condition.
    Unmatched,
    Stopped(Stop),
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
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

    /// Offers a candidate and its record from one of the streams of candidates. If the plan's index is
    /// [`ordered`](crate::IndexRanges::ordered), each stream for which [`QueryRun::is_done`] is used must be in the order of the
    /// index.
    pub fn offer(&mut self, stream: u32, oid: Oid, record: Bytes) {
        add(&mut self.counts.sent, 1);
        self.candidates.push_back(Candidate { stream, oid, record });
    }

    /// Offers a number of objects that the filter accepts, for a plan that [counts only](Plan::counts_only).
    pub fn offer_count(&mut self, count: u64) {
        add(&mut self.counts.sent, count);
        add(&mut self.counts.matched, count);
        if let Some(grouping) = &mut self.grouping {
            grouping.count(count);
        }
    }

    /// Supplies an object that was needed, or `None` if it does not exist.
    pub fn supply(&mut self, oid: Oid, record: Option<Bytes>) {
        add(&mut self.counts.navigated, u64::from(record.is_some()));
        self.referenced.insert(oid, record);
    }

    /// Ends the candidates.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Whether no more candidates are needed from a stream, because the rest of it orders after the last wanted row.
    #[must_use]
    pub fn is_done(&self, stream: u32) -> bool {
        self.done.contains(&stream)
    }

    /// The number of objects that each step has processed so far; only the bricks know `scanned`.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes the available rows. A plan that [collects](Plan::collects) has none before the end.
    pub fn take(&mut self) -> Vec<Row> {
        let rows: Vec<Row> = self.rows.drain(..).collect();
        add(&mut self.counts.rows, rows.len() as u64);
        rows
    }

    /// Evaluates candidates, until it has done as much work as a step does.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if a value cannot be computed, [`ErrorKind::TooLarge`] if too much would be sorted, grouped,
    /// followed or computed for one object, [`ErrorKind::Corrupt`] if a record is damaged.
    pub fn step(&mut self) -> Result<Progress> {
        self.step_within(limits::STEP_WORK, limits::WORK)
    }

    /// The same within about a millisecond. If a candidate takes longer, its evaluation is given up, and [`QueryRun::step`] repeats it.
    ///
    /// # Errors
    /// As [`QueryRun::step`].
    pub fn step_briefly(&mut self) -> Result<Progress> {
        self.step_within(limits::BRIEF_WORK, limits::BRIEF_WORK)
    }

    /// Evaluates candidates until this much [work](limits::WORK) was done; one candidate may take `most`.
    fn step_within(&mut self, mut work: u64, most: u64) -> Result<Progress> {
        if self.referenced.bytes() > limits::REFERENCED {
            // Too much for all waiting candidates: evaluate them one at a time until one is done.
            if self.window == 1 {
                let most = limits::REFERENCED >> 20;
                let message =
                    format!("the references of one object lead to more than {most} MiB of objects, too many at once");
                return Err(Error::new(ErrorKind::TooLarge, message));
            }
            self.window = 1;
            self.referenced.clear();
        }
        let (mut waiting, mut missing) = (VecDeque::new(), BTreeSet::new());
        while waiting.len() < self.window && missing.len() < limits::NEEDED && self.wanted > 0 && work > 0 {
            let Some(candidate) = self.candidates.pop_front() else { break };
            let (verdict, done) = self.evaluate(&candidate, most)?;
            work = work.saturating_sub(done);
            match verdict {
                Verdict::Exhausted if most < limits::WORK => {
                    self.candidates.push_front(candidate);
                    work = 0;
                }
                Verdict::Exhausted => return Err(too_much_work(candidate.oid)),
                Verdict::Missing(oids) => {
                    missing.extend(oids);
                    if !planted(Bug::MissingReferenceDropsCandidate) {
                        waiting.push_back(candidate);
                    }
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
        if !self.candidates.is_empty() {
            return Ok(Progress::Again);
        }
        if !self.ended {
            return Ok(Progress::More);
        }
        self.finish()?;
        Ok(Progress::Enough)
    }

    /// Evaluates a candidate with at most this much work. Returns how much was done, too.
    fn evaluate(&self, candidate: &Candidate, most: u64) -> Result<(Verdict, u64)> {
        let mut evaluator = Evaluator::new(candidate.oid, &candidate.record, &self.referenced, most)?;
        let verdict = match self.evaluate_with(candidate, &mut evaluator) {
            Ok((values, key)) => Verdict::Matched { values, key },
            Err(Ended::Unmatched) => Verdict::Dropped,
            Err(Ended::Stopped(Stop::Missing)) => {
                let done = most - evaluator.work_left();
                return Ok((Verdict::Missing(evaluator.into_missing()), done));
            }
            Err(Ended::Stopped(Stop::Exhausted)) => Verdict::Exhausted,
            Err(Ended::Stopped(Stop::Failed(error))) => return Err(error),
        };
        Ok((verdict, most - evaluator.work_left()))
    }

    /// The values of a candidate's columns, or those for its group, and its key in the order.
    fn evaluate_with<'a>(
        &'a self,
        candidate: &Candidate,
        evaluator: &mut Evaluator<'a>,
    ) -> std::result::Result<(Vec<Value>, Vec<u8>), Ended> {
        let checked = &self.plan.checked;
        if let Some(residual) = &self.plan.residual
            && !evaluator.cond(residual)?
        {
            return Err(Ended::Unmatched);
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
            match evaluator.own_value(term) {
                Ok(value) => values.push(value),
                // Continue, so that all missing objects are requested together.
                Err(Stop::Missing) => waits = true,
                Err(stop) => return Err(stop.into()),
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
                    Err(stop) => return Err(stop.into()),
                }
            }
            key.extend_from_slice(&candidate.oid.to_bytes());
        }
        if waits { Err(Stop::Missing.into()) } else { Ok((values, key)) }
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

    /// The position of a candidate in the order of the index: larger is later. `None` if the index provides no order.
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
    /// Whether an object satisfies the whole condition, including the part that bricks evaluate; `None` if a referenced object is
    /// not known. For objects that a transaction has changed.
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
            let mut evaluator = Evaluator::new(oid, record, &referenced, limits::WORK)?;
            match evaluator.cond(condition) {
                Ok(holds) => return Ok(Some(holds)),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Exhausted) => return Err(too_much_work(oid)),
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
    *count = Some(count.unwrap_or_default().saturating_add(more));
}

/// The approximate size of a row in memory.
fn size(values: &[Value]) -> usize {
    values.iter().map(|value| 32 + value_size(value)).sum::<usize>() + 64
}

/// The approximate size of what a value has beside itself.
pub(crate) fn value_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Decimal(number) => number.as_ref().unscaled_value().len(),
        Value::List(values) => values.iter().map(|value| 32 + value_size(value)).sum(),
        Value::Set(values) => values.iter().map(|value| 48 + value_size(value)).sum(),
        Value::Map(entries) => entries.iter().map(|(key, value)| 80 + value_size(key) + value_size(value)).sum(),
        _ => 0,
    }
}

fn too_much_work(oid: Oid) -> Error {
    let what =
        format!("the query takes too much time for object {oid}: ask for fewer functions and tests of long values");
    Error::new(ErrorKind::TooLarge, what)
}

fn too_large(what: &str) -> Error {
    let most = limits::BUFFERED >> 20;
    Error::new(ErrorKind::TooLarge, format!("{what} takes more than {most} MiB: narrow the condition, or set a limit"))
}

#[cfg(test)]
pub(crate) mod tests;
