//! Every operation took effect exactly once and completely. A retry, a repeated message or a recovery that executes a
//! change again leaves a duplicate element; one that forgets a change leaves a partial transaction.
//!
//! - An `ok` operation has happened, a `failed` one has not, an `unknown` one may have (C1).
//! - There are no duplicates, neither in the final state nor in any list that any transaction read, committed or not
//!   (C3).
//! - Of each transaction, all appends are in the final state or none is (C1).

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{Rule, Summary, Violation};
use crate::history::{History, Kind, Operation, Outcome, Step};

/// What an operation leaves for ever: the elements that it appended, and the value of a single write, which are unique.
/// Values that transactions write are not: they may be equal, and are replaced.
pub(super) fn lasting_effects(operation: &Operation) -> impl Iterator<Item = (&str, i64)> {
    operation.steps.iter().filter_map(|step| match step {
        Step::Append(key, value) => Some((key.as_str(), *value)),
        Step::Write(key, value) if operation.kind == Kind::Write => Some((key.as_str(), *value)),
        Step::Write(..) | Step::Read(..) => None,
    })
}

/// Checks that everything happened once or not at all. `finals` has what each list is in the end, and of an object with
/// a single value all that it ever was, in order; a key that it lacks has nothing. The summary counts operations that
/// left something, and all that is there.
///
/// # Errors
/// What happened twice, in part, or against what its client was told.
pub fn check(history: &History, finals: &BTreeMap<String, Vec<i64>>) -> Result<Summary, Violation> {
    let mut writers: BTreeMap<(&str, i64), &Operation> = BTreeMap::new();
    for operation in &history.operations {
        writers.extend(lasting_effects(operation).map(|mark| (mark, operation)));
        for step in &operation.steps {
            let Step::Read(key, value) = step else { continue };
            if let Some(twice) = value.list().and_then(first_repeated) {
                let why = format!("T{} read {twice} in {key} twice", operation.number);
                let involved = writers.get(&(key.as_str(), twice)).into_iter().copied().chain([operation]);
                return Err(Violation::new(Rule::Duplicate, &involved.collect::<Vec<_>>(), why));
            }
        }
    }
    let mut present: BTreeSet<(&str, i64)> = BTreeSet::new();
    for (key, elements) in finals {
        for element in elements {
            let Some(operation) = writers.get(&(key.as_str(), *element)) else {
                let why = format!("{element} is in {key} in the end, and no operation wrote it");
                return Err(Violation::new(Rule::Phantom, &[], why));
            };
            let is_first = present.insert((key, *element));
            let (rule, what) = match operation.outcome {
                Outcome::Failed => (Rule::G1a, "failed, and it is there"),
                _ if !is_first => (Rule::Duplicate, "did so once, and it is there twice"),
                Outcome::Ok | Outcome::Unknown => continue,
            };
            let why = format!("T{} put {element} into {key}; it {what} in the end", operation.number);
            return Err(Violation::new(rule, &[operation], why));
        }
    }
    let mut summary = Summary { operations: 0, relations: present.len() };
    for operation in history.operations.iter().filter(|operation| operation.outcome != Outcome::Failed) {
        let (there, missing): (Vec<_>, Vec<_>) = lasting_effects(operation).partition(|mark| present.contains(mark));
        summary.operations += usize::from(!(there.is_empty() && missing.is_empty()));
        let Some((key, element)) = missing.first() else { continue };
        let number = operation.number;
        if let Some((other_key, other)) = there.first() {
            let why = format!("T{number} put {other} into {other_key}, which is there, and {element} into {key}");
            return Err(Violation::new(Rule::Torn, &[operation], why + ", which is not"));
        }
        if operation.outcome == Outcome::Ok {
            let why = format!("T{number} put {element} into {key}, and it is not there in the end");
            return Err(Violation::new(Rule::Lost, &[operation], why));
        }
    }
    Ok(summary)
}

fn first_repeated(elements: &[i64]) -> Option<i64> {
    let mut seen = BTreeSet::new();
    elements.iter().find(|element| !seen.insert(**element)).copied()
}

#[cfg(test)]
mod tests;
