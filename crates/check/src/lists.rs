//! What lists that are only appended to tell about the order of transactions: the inference of Elle (Kingsbury and
//! Alvaro, VLDB 2020), for lists whose elements are unique.
//!
//! A transaction is *committed* if it is `ok`, or if it is `unknown` and a committed transaction has read what it
//! appended. Its reads are then true: they fit together with all others, if the transactions are serializable.
//!
//! 1. Within a transaction, a read of a list is what the transaction found, and behind it what it has appended so far.
//!    What it found is the same in all its reads.
//! 2. All that was found of one list begins alike: the longest is the *known* order of the list. If one transaction
//!    found all of it and appended more, that belongs to it too.
//! 3. What was appended by committed transactions and is not known came behind it.
//!
//! So the transaction that appended an element precedes the one that appended the next element, and every transaction
//! that read it; a transaction that read the list without an element precedes the one that appended it.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Graph, Reason};
use super::verdict::{Rule, Violation};
use crate::history::{History, Operation, Outcome, Step, Value};

/// Who appended an element: the operation's index, and which of its appends to this list it is.
#[derive(Clone, Copy, Debug)]
struct Writer {
    operation: usize,
    nth: usize,
    is_last: bool,
}

/// A list that is appended to.
#[derive(Debug, Default)]
struct List<'h> {
    writers: BTreeMap<i64, Writer>,
    /// What committed transactions found.
    found: Vec<(usize, &'h [i64])>,
    /// The longest of it.
    known: &'h [i64],
    /// The elements of it.
    positions: BTreeMap<i64, usize>,
    /// What was appended behind it by the only one that found all of it and appended more.
    extended: Vec<i64>,
}

/// All lists of a history, and the transactions that committed.
pub(super) struct Lists<'h> {
    history: &'h History,
    lists: BTreeMap<&'h str, List<'h>>,
    /// Indices of operations, to their node in the graph.
    committed: BTreeMap<usize, usize>,
}

impl<'h> Lists<'h> {
    /// Reads the lists out of those operations of a history that are to be judged.
    ///
    /// # Errors
    /// What is wrong already without any order of transactions.
    pub(super) fn new(history: &'h History, judged: impl Fn(&Operation) -> bool) -> Result<Self, Violation> {
        let mut all = Self { history, lists: BTreeMap::new(), committed: BTreeMap::new() };
        all.find_writers()?;
        let operations = history.operations.iter().enumerate();
        let ok = operations.filter(|(_, operation)| operation.outcome == Outcome::Ok && judged(operation));
        let mut waiting: Vec<usize> = ok.map(|(at, _)| at).collect();
        // Those that are found out come after all that are known to be committed.
        waiting.reverse();
        while let Some(at) = waiting.pop() {
            if all.committed.insert(at, 0).is_some() {
                continue;
            }
            for (key, elements) in lists_found(&history.operations[at])? {
                for writer in all.add_found(at, key, elements)? {
                    let operation = &history.operations[writer];
                    if operation.outcome == Outcome::Unknown && judged(operation) {
                        waiting.push(writer);
                    }
                }
            }
        }
        for (node, at) in all.committed.values_mut().enumerate() {
            *at = node;
        }
        for (key, list) in &mut all.lists {
            list.check_contiguous(history, key)?;
            list.extend_known(history, &all.committed, key);
        }
        Ok(all)
    }

    fn find_writers(&mut self) -> Result<(), Violation> {
        for (at, operation) in self.history.operations.iter().enumerate() {
            for (key, element) in operation.appends() {
                let list = self.lists.entry(key).or_default();
                let before = operation.appends().filter(|(other, _)| *other == key);
                let nth = before.clone().position(|(_, other)| other == element).unwrap_or(0);
                let writer = Writer { operation: at, nth, is_last: nth + 1 == before.count() };
                if let Some(other) = list.writers.insert(element, writer) {
                    let why = format!("{element} is appended to {key} twice; elements must be unique");
                    return Err(Violation::new(
                        Rule::Malformed,
                        &[&self.history.operations[other.operation], operation],
                        why,
                    ));
                }
            }
        }
        for operation in &self.history.operations {
            for step in &operation.steps {
                let single = matches!(step, Step::Write(..) | Step::Read(_, Value::Integer(_)));
                if single && self.lists.contains_key(step.key()) {
                    let why = format!("{} is a list here and a single value there", step.key());
                    return Err(Violation::new(Rule::Malformed, &[operation], why));
                }
            }
        }
        Ok(())
    }

    /// A committed transaction read these elements of a list. Returns the transactions that appended the elements read
    /// for the first time.
    fn add_found(&mut self, at: usize, key: &'h str, elements: &'h [i64]) -> Result<Vec<usize>, Violation> {
        let operations = &self.history.operations;
        let list = self.lists.entry(key).or_default();
        let common = list.known.len().min(elements.len());
        list.check_last(operations, at, key, elements)?;
        if list.known[..common] != elements[..common] {
            list.check_elements(operations, at, key, elements, &mut BTreeMap::new())?;
            let longest = list.found.iter().find(|(_, found)| found.len() == list.known.len());
            let other = &operations[longest.map_or(at, |(other, _)| *other)];
            let differ = (0..common).find(|i| list.known[*i] != elements[*i]).unwrap_or(common);
            let why = format!(
                "at position {differ} of {key}, T{} read {}, and T{} read {}",
                other.number, list.known[differ], operations[at].number, elements[differ]
            );
            return Err(Violation::new(Rule::Incompatible, &[other, &operations[at]], why));
        }
        let mut positions = std::mem::take(&mut list.positions);
        let fresh = list.check_elements(operations, at, key, &elements[common..], &mut positions)?;
        list.positions = positions;
        list.found.push((at, elements));
        if elements.len() > list.known.len() {
            list.known = elements;
        }
        Ok(fresh)
    }

    /// Reports an acknowledged append that no transaction read, although a later transaction read or appended more.
    ///
    /// # Errors
    /// The first such append, with one who should have seen it.
    pub(super) fn check_lost(&self) -> Result<(), Violation> {
        let operations = &self.history.operations;
        for (key, list) in &self.lists {
            let readers = list.found.iter().filter(|(_, found)| found.len() == list.known.len());
            let readers = readers.map(|(at, _)| &operations[*at]);
            let writers = list.known.iter().filter_map(|element| list.writers.get(element));
            let later = readers.chain(writers.map(|writer| &operations[writer.operation]));
            let Some(latest) = later.max_by_key(|operation| operation.invoked) else { continue };
            for (element, writer) in self.unseen_elements(list) {
                let operation = &operations[writer.operation];
                if let Some(done) = operation.completion_ms().filter(|done| *done < latest.invoked) {
                    let why = format!(
                        "T{} appended {element} to {key} and returned at {done}; the list is known without it, and T{}, \
                         invoked at {}, read or wrote it later",
                        operation.number, latest.number, latest.invoked
                    );
                    return Err(Violation::new(Rule::Lost, &[operation, latest], why));
                }
            }
        }
        Ok(())
    }

    /// What committed transactions appended, and is not in the known order.
    fn unseen_elements<'a>(&'a self, list: &'a List<'h>) -> impl Iterator<Item = (i64, Writer)> {
        let unseen = list.writers.iter().filter(|(element, writer)| {
            let is_known = list.positions.contains_key(element) || list.extended.contains(element);
            self.committed.contains_key(&writer.operation) && !is_known
        });
        unseen.map(|(element, writer)| (*element, *writer))
    }

    /// The committed transactions, and what must come before what because of the lists.
    pub(super) fn graph(&self) -> Graph<'h> {
        let mut graph = Graph::new(self.committed.keys().map(|at| &self.history.operations[*at]).collect());
        for (key, list) in &self.lists {
            let node =
                |element: i64| list.writers.get(&element).and_then(|w| self.committed.get(&w.operation)).copied();
            let order: Vec<i64> = list.known.iter().chain(&list.extended).copied().collect();
            for pair in order.windows(2) {
                if let (Some(first), Some(second)) = (node(pair[0]), node(pair[1])) {
                    graph.add(first, second, Reason::Wrote { key, before: pair[0], after: pair[1] });
                }
            }
            let mut saw_all = Vec::new();
            for (at, found) in &list.found {
                let reader = self.committed[at];
                if let Some((element, writer)) = found.last().and_then(|last| Some((*last, node(*last)?))) {
                    graph.add(writer, reader, Reason::Seen { key, element });
                }
                match order.get(found.len()) {
                    None => saw_all.push(reader),
                    Some(next) => {
                        if let Some(writer) = node(*next) {
                            graph.add(reader, writer, Reason::Missed { key, element: *next });
                        }
                    }
                }
            }
            let unseen: Vec<(i64, Writer)> = self.unseen_elements(list).collect();
            if unseen.is_empty() {
                continue;
            }
            if list.extended.is_empty() {
                add_lost_updates(&mut graph, key, &saw_all, &unseen, &self.committed);
            }
            let end = graph.point();
            if let Some((element, writer)) = order.last().and_then(|last| Some((*last, node(*last)?))) {
                graph.add(writer, end, Reason::WroteLast { key, element });
            }
            let appended = unseen.iter().map(|(element, writer)| (*element, self.committed[&writer.operation]));
            let writers: BTreeSet<usize> = appended.clone().map(|(_, node)| node).collect();
            for reader in saw_all.iter().filter(|reader| !writers.contains(reader)) {
                graph.add(*reader, end, Reason::SawAll);
            }
            for (element, writer) in appended {
                graph.add(end, writer, Reason::Unseen { key, element });
            }
        }
        graph
    }
}

/// Several found all of a list and appended more, unseen by each other: each missed what the others appended.
fn add_lost_updates<'h>(
    graph: &mut Graph<'h>,
    key: &'h str,
    saw_all: &[usize],
    unseen: &[(i64, Writer)],
    nodes: &BTreeMap<usize, usize>,
) {
    let both = unseen.iter().map(|(element, writer)| (*element, nodes[&writer.operation]));
    let both: Vec<(i64, usize)> = both.filter(|(_, node)| saw_all.contains(node)).collect();
    for pair in both.windows(2) {
        let ((first, one), (second, other)) = (pair[0], pair[1]);
        graph.add(one, other, Reason::Missed { key, element: second });
        graph.add(other, one, Reason::Missed { key, element: first });
    }
}

/// What a transaction found in each list that it read.
fn lists_found(operation: &Operation) -> Result<BTreeMap<&str, &[i64]>, Violation> {
    let mut found: BTreeMap<&str, &[i64]> = BTreeMap::new();
    let violation = |rule, why| Err(Violation::new(rule, &[operation], why));
    let number = operation.number;
    for (at, step) in operation.steps.iter().enumerate() {
        let Step::Read(key, value) = step else { continue };
        let Some(elements) = value.list() else { continue };
        let appended = |steps: &[Step]| -> Vec<i64> {
            let appends = steps.iter().filter_map(|step| match step {
                Step::Append(other, element) if other == key => Some(*element),
                _ => None,
            });
            appends.collect()
        };
        let (own, later) = (appended(&operation.steps[..at]), appended(&operation.steps[at..]));
        let Some(before) = elements.strip_suffix(own.as_slice()) else {
            return violation(
                Rule::Internal,
                format!("T{number} read {elements:?} in {key}, after it appended {own:?}"),
            );
        };
        if let Some(twice) = own.iter().find(|element| before.contains(element)) {
            return violation(Rule::Duplicate, format!("T{number} appended {twice} to {key} once, and read it twice"));
        }
        if let Some(early) = later.iter().find(|element| before.contains(element)) {
            return violation(Rule::Internal, format!("T{number} read {early} in {key} before it appended it"));
        }
        if let Some(first) = found.insert(key, before).filter(|first| *first != before) {
            let why = format!("T{number} found {first:?} in {key}, and later {before:?}");
            return violation(Rule::Internal, why);
        }
    }
    Ok(found)
}

impl List<'_> {
    /// Checks that each element was appended once, by an operation that did not fail. Returns the writers.
    fn check_elements(
        &self,
        operations: &[Operation],
        at: usize,
        key: &str,
        elements: &[i64],
        positions: &mut BTreeMap<i64, usize>,
    ) -> Result<Vec<usize>, Violation> {
        let reader = &operations[at];
        let mut writers = Vec::new();
        for element in elements {
            let Some(writer) = self.writers.get(element) else {
                let why = format!("T{} read {element} in {key}, which no operation appended", reader.number);
                return Err(Violation::new(Rule::Phantom, &[reader], why));
            };
            let operation = &operations[writer.operation];
            if operation.outcome == Outcome::Failed {
                let why = format!("T{} read {element} in {key}, which T{} appended", reader.number, operation.number);
                return Err(Violation::new(Rule::G1a, &[operation, reader], why));
            }
            if positions.insert(*element, positions.len()).is_some() {
                let why = format!("T{} appended {element} to {key} once, and it is there twice", operation.number);
                return Err(Violation::new(Rule::Duplicate, &[operation, reader], why));
            }
            writers.push(writer.operation);
        }
        Ok(writers)
    }

    /// What was found does not end within the appends of another.
    fn check_last(&self, operations: &[Operation], at: usize, key: &str, elements: &[i64]) -> Result<(), Violation> {
        let last = elements.last().and_then(|last| Some((last, self.writers.get(last)?)));
        let Some((element, writer)) = last.filter(|(_, writer)| !writer.is_last) else { return Ok(()) };
        let (operation, reader) = (&operations[writer.operation], &operations[at]);
        if operation.outcome == Outcome::Failed {
            return Ok(());
        }
        let why = format!(
            "T{} found {element} at the end of {key}, behind which T{} appended more",
            reader.number, operation.number
        );
        Err(Violation::new(Rule::G1b, &[operation, reader], why))
    }

    /// Where elements of one transaction follow each other, they do so in the order in which it appended them, from the
    /// first one on.
    fn check_contiguous(&self, history: &History, key: &str) -> Result<(), Violation> {
        let mut last: Option<Writer> = None;
        for element in self.known {
            let Some(writer) = self.writers.get(element) else { continue };
            let expected = match last {
                Some(last) if last.operation == writer.operation => last.nth + 1,
                // What another appended in between is for the search of cycles.
                _ if writer.nth > 0 && self.is_known_before(element, writer) => writer.nth,
                _ => 0,
            };
            if writer.nth != expected {
                let operation = &history.operations[writer.operation];
                let why = format!(
                    "{element} is not in {key} in the order in which T{} appended to it: {:?}",
                    operation.number, self.known
                );
                return Err(Violation::new(Rule::Internal, &[operation], why));
            }
            last = Some(*writer);
        }
        Ok(())
    }

    /// Whether the element that the same transaction appended before this one is known, and stands before it.
    fn is_known_before(&self, element: &i64, writer: &Writer) -> bool {
        let before =
            self.writers.iter().find(|(_, other)| other.operation == writer.operation && other.nth + 1 == writer.nth);
        let position = |element: &i64| self.positions.get(element);
        before.and_then(|(before, _)| position(before)).is_some_and(|before| Some(before) < position(element))
    }

    /// If one transaction alone found all that is known and appended more, that is known too.
    fn extend_known(&mut self, history: &History, committed: &BTreeMap<usize, usize>, key: &str) {
        let all = self.found.iter().filter(|(_, found)| found.len() == self.known.len());
        let mut more = all.filter_map(|(at, _)| {
            let appends = history.operations[*at].appends().filter(|(other, _)| *other == key);
            let appended: Vec<i64> = appends.map(|(_, element)| element).collect();
            (committed.contains_key(at) && !appended.is_empty()).then_some(appended)
        });
        if let (Some(appended), None) = (more.next(), more.next()) {
            self.extended = appended;
        }
    }
}
