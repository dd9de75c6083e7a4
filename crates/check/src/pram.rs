//! Single writes of one client are seen by every other client in the order in which they were made (rule N1; PRAM,
//! Lipton and Sandberg 1988), and each client sees its own.
//!
//! Judged are `write` and `read` operations, on objects with a single value. A reader's *view* grows with what it reads
//! and writes:
//!
//! 1. What the reader has read is in its view, and what it has written, as soon as that is acknowledged.
//! 2. With a write, all earlier acknowledged writes of the same client are in the view. (One that is unknown may happen
//!    after those that follow it.)
//! 3. With a write, all that it replaced is in the view. Who replaced what is known if the order of the writes to an
//!    object is given, as its brick applied them.
//!
//! No read returns a value that is older than one in the view, and no write precedes what its client had seen. Older
//! means: by the given order; without one, written earlier by the same client, or read by this reader before another
//! value.

use std::collections::{BTreeMap, BTreeSet};

use super::verdict::{Rule, Summary, Violation};
use crate::history::{History, Kind, Operation, Outcome, Step, Value};

/// The index of a write among all.
type Index = usize;

struct Write<'h> {
    operation: &'h Operation,
    key: &'h str,
    /// Where in the order of its object, if that is given.
    position: Option<usize>,
}

struct Writes<'h> {
    all: Vec<Write<'h>>,
    by_value: BTreeMap<(&'h str, i64), Index>,
    /// Those of a client, in its order.
    by_client: BTreeMap<u64, Vec<Index>>,
    /// Those to an object, as they are in the order that is given.
    ordered: BTreeMap<&'h str, Vec<Option<Index>>>,
}

/// What one client must have seen.
#[derive(Default)]
struct View<'h> {
    /// For each object, the newest writes in the view, as far as they are known to be newer than others, each with the
    /// one because of which it is there.
    newest: BTreeMap<&'h str, Vec<(Index, Index)>>,
    /// For each writer, up to which of its operations all that is acknowledged is in the view.
    complete: BTreeMap<u64, u64>,
    /// For each object, how many writes of its order are in the view.
    replaced: BTreeMap<&'h str, usize>,
    /// What was read last.
    last: BTreeMap<&'h str, Index>,
    /// What was read, and then another value of the same object.
    overwritten_reads: BTreeSet<Index>,
}

/// Checks single writes and reads. `orders` may give, for an object, all values that it had, in order; for a history
/// that is all the checker needs to be exact. The summary counts reads, and the writes in the views that they were
/// compared with.
///
/// # Errors
/// A read that fits no order of writes, or that returned a value of a failed write or of no write.
pub fn check(history: &History, orders: &BTreeMap<String, Vec<i64>>) -> Result<Summary, Violation> {
    let writes = Writes::new(history, orders)?;
    let mut clients: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for operation in history.operations.iter().filter(|operation| operation.outcome != Outcome::Failed) {
        if matches!(operation.kind, Kind::Read | Kind::Write) {
            clients.entry(operation.client).or_default().push(operation);
        }
    }
    let mut summary = Summary::default();
    for (_, mut operations) in clients {
        operations.sort_by_key(|operation| operation.number);
        let mut view = View::default();
        for operation in operations {
            match operation.steps.first() {
                Some(Step::Write(key, value)) => {
                    let own = writes.by_value[&(key.as_str(), *value)];
                    view.check(&writes, operation, key, Some(own))?;
                    if operation.outcome == Outcome::Ok {
                        view.add(&writes, own);
                    }
                }
                Some(Step::Read(key, value)) if operation.outcome == Outcome::Ok && writes.is_written(key) => {
                    summary.operations += 1;
                    summary.relations += view.newest.get(key.as_str()).map_or(0, Vec::len);
                    view.read(&writes, operation, key, value)?;
                }
                _ => (),
            }
        }
    }
    Ok(summary)
}

impl<'h> Writes<'h> {
    fn new(history: &'h History, orders: &'h BTreeMap<String, Vec<i64>>) -> Result<Self, Violation> {
        let mut operations: Vec<&Operation> = history.operations.iter().collect();
        operations.sort_by_key(|operation| operation.number);
        let ordered = orders.iter().map(|(key, order)| (key.as_str(), vec![None; order.len()])).collect();
        let mut writes = Self { all: Vec::new(), by_value: BTreeMap::new(), by_client: BTreeMap::new(), ordered };
        let mut positions = BTreeMap::new();
        for (key, order) in orders {
            positions.extend(order.iter().enumerate().map(|(at, value)| ((key.as_str(), *value), at)));
        }
        for operation in operations.into_iter().filter(|operation| operation.kind == Kind::Write) {
            let Some(Step::Write(key, value)) = operation.steps.first() else { continue };
            let (index, position) = (writes.all.len(), positions.get(&(key.as_str(), *value)).copied());
            if let Some(other) = writes.by_value.insert((key, *value), index) {
                let why = format!("{value} is written to {key} twice; values must be unique");
                return Err(Violation::new(Rule::Malformed, &[writes.all[other].operation, operation], why));
            }
            if operation.outcome == Outcome::Failed && position.is_some() {
                let why = format!("T{} wrote {value} to {key} and failed, and it was there", operation.number);
                return Err(Violation::new(Rule::G1a, &[operation], why));
            }
            if let (Some(order), Some(position)) = (writes.ordered.get_mut(key.as_str()), position) {
                order[position] = Some(index);
            }
            writes.by_client.entry(operation.client).or_default().push(index);
            writes.all.push(Write { operation, key, position });
        }
        Ok(writes)
    }

    fn is_written(&self, key: &str) -> bool {
        self.by_value.range((key, i64::MIN)..=(key, i64::MAX)).next().is_some()
    }

    /// Whether a write to an object was certainly replaced by another one.
    fn is_older(&self, one: Index, other: Index) -> bool {
        let (one, other) = (&self.all[one], &self.all[other]);
        match (one.position, other.position) {
            (Some(one), Some(other)) => one < other,
            _ => {
                let (first, second) = (one.operation, other.operation);
                first.client == second.client && first.number < second.number && first.outcome == Outcome::Ok
            }
        }
    }
}

impl<'h> View<'h> {
    /// A write is seen, and with it all that must have been seen before.
    fn add(&mut self, writes: &Writes<'h>, seen: Index) {
        let mut waiting = vec![seen];
        while let Some(index) = waiting.pop() {
            let write = &writes.all[index];
            let (client, number) = (write.operation.client, write.operation.number);
            let newest = self.newest.entry(write.key).or_default();
            if !newest.iter().any(|(other, _)| *other == index || writes.is_older(index, *other)) {
                newest.retain(|(other, _)| !writes.is_older(*other, index));
                newest.push((index, seen));
            }
            let complete = self.complete.entry(client).or_default();
            if *complete < number {
                let of_client = &writes.by_client[&client];
                let from = of_client.partition_point(|index| writes.all[*index].operation.number < *complete);
                let earlier = of_client[from..].iter().take_while(|earlier| **earlier != index);
                waiting.extend(earlier.filter(|earlier| writes.all[**earlier].operation.outcome == Outcome::Ok));
                *complete = number;
            }
            if let (Some(order), Some(position)) = (writes.ordered.get(write.key), write.position) {
                let replaced = self.replaced.entry(write.key).or_default();
                if *replaced <= position {
                    waiting.extend(order[*replaced..position].iter().flatten());
                    *replaced = position + 1;
                }
            }
        }
    }

    fn read(&mut self, writes: &Writes<'h>, reader: &Operation, key: &'h str, value: &Value) -> Result<(), Violation> {
        let number = reader.number;
        let read = match value {
            Value::Nothing => None,
            Value::Integer(value) => match writes.by_value.get(&(key, *value)) {
                Some(index) => Some(*index),
                None => {
                    let why = format!("T{number} read {value} in {key}, which no operation wrote");
                    return Err(Violation::new(Rule::Phantom, &[reader], why));
                }
            },
            Value::List(_) => {
                let why = format!("{key} is a list here and a single value there");
                return Err(Violation::new(Rule::Malformed, &[reader], why));
            }
        };
        if let Some(write) = read.map(|index| &writes.all[index]) {
            let operation = write.operation;
            if operation.outcome == Outcome::Failed {
                let why = format!("T{number} read what T{} wrote to {key}, which failed", operation.number);
                return Err(Violation::new(Rule::G1a, &[operation, reader], why));
            }
            if write.position.is_none() && writes.ordered.contains_key(key) {
                let why = format!("T{number} read what T{} wrote to {key}, which it never had", operation.number);
                return Err(Violation::new(Rule::Phantom, &[operation, reader], why));
            }
        }
        self.check(writes, reader, key, read)?;
        let Some(read) = read else { return Ok(()) };
        if self.overwritten_reads.contains(&read) {
            return Err(out_of_order(writes, reader, Some(read), self.last[key], self.last[key]));
        }
        if let Some(last) = self.last.insert(key, read).filter(|last| *last != read) {
            self.overwritten_reads.insert(last);
        }
        self.add(writes, read);
        Ok(())
    }

    /// Nothing in the view is newer than what was read of an object, or has just been written to it.
    fn check(&self, writes: &Writes<'_>, by: &Operation, key: &str, value: Option<Index>) -> Result<(), Violation> {
        let mut in_view = self.newest.get(key).into_iter().flatten().copied();
        let newer = in_view.find(|(newest, _)| value.is_none_or(|value| writes.is_older(value, *newest)));
        newer.map_or(Ok(()), |(newer, because)| Err(out_of_order(writes, by, value, newer, because)))
    }
}

/// An operation gave what is older than a write that is in the view because of another write.
fn out_of_order(writes: &Writes<'_>, by: &Operation, value: Option<Index>, newer: Index, because: Index) -> Violation {
    let (newer, because) = (&writes.all[newer], &writes.all[because]);
    let (client, number, key, newest) = (by.client, by.number, newer.key, newer.operation.number);
    let older = value.map(|index| writes.all[index].operation);
    let mut why = match older {
        None => format!("T{number} read nothing in {key}, which is older than T{newest}"),
        Some(own) if own.number == number => format!("what T{number} wrote to {key} came before T{newest}"),
        Some(older) => format!("T{number} read what T{} wrote to {key}, which is older than T{newest}", older.number),
    };
    if newest == because.operation.number {
        why += &format!(", which client {client} had seen or made");
    } else {
        why += &format!("; client {client} had seen or made T{}, which comes after that", because.operation.number);
    }
    let mut operations: Vec<&Operation> = Vec::new();
    for operation in older.into_iter().chain([newer.operation, because.operation, by]) {
        if !operations.iter().any(|other| other.number == operation.number) {
            operations.push(operation);
        }
    }
    Violation::new(Rule::Backwards, &operations, why)
}

#[cfg(test)]
mod tests;
