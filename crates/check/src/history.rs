//! Histories: what clients did and observed, as JSON lines. The checkers of [this crate](crate) judge them, and external
//! checkers can read them. `docs/history.md` describes each field.
//!
//! - **H1.** A client does one thing at a time. The numbers of its operations grow in the order in which it invoked
//!   them.
//! - **H2.** Times are milliseconds of one clock that only the observer has. Two operations of different clients are
//!   ordered by it only if one returned in an earlier millisecond than that in which the other was invoked.
//! - **H3.** Unknown values are omitted: a read whose value the client did not learn is not among the steps. So the
//!   steps of an operation that is `ok` are all its steps.
//! - **H4.** An element is appended to a list, and a value is written to an object, by one operation only. A client
//!   that tries again after a failure appends another element. (The accounts of [`crate::bank`] are an
//!   exception.)

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

/// The maximum length of a line in bytes.
pub const LINE_LIMIT: usize = 1 << 20;
/// How the name of a set ends: with the slot of its guard.
const SET: &str = ".1000";
/// The maximum number of operations.
pub const OPERATION_LIMIT: usize = 1_000_000;
/// The maximum length of a key in bytes.
pub const KEY_LIMIT: usize = 64;

/// The operations of all clients of a run, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The operations.
    pub operations: Vec<Operation>,
}

/// An operation of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// Unique in the history; grows with each operation of a client (H1).
    pub number: u64,
    /// The client: a sequential process. A restarted client has a new number.
    pub client: u64,
    /// What is promised of it.
    pub kind: Kind,
    /// When the client began, in milliseconds.
    pub invoked: u64,
    /// When the client had the answer, or stopped waiting for it, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What was done and read, in order.
    pub steps: Vec<Step>,
    /// The commit timestamp, if the client learned it. Only its order has a meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// The maximum age of the state that a snapshot reads, in milliseconds, if the client knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<u64>,
}

/// What is promised of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An optimistic transaction: strictly serializable.
    Transaction,
    /// A datastore transaction, with locks: strictly serializable.
    Locks,
    /// A transaction that only reads: strictly serializable.
    ReadOnly,
    /// A group snapshot: only reads; serializable, of bounded staleness.
    Snapshot,
    /// One write without a transaction: PRAM.
    Write,
    /// One read without a transaction: PRAM.
    Read,
}

/// The outcome of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It happened.
    Ok,
    /// It did not happen and never will.
    Failed,
    /// It may have happened, or may happen later.
    Unknown,
}

/// A step of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StepTuple", into = "StepTuple")]
pub enum Step {
    /// A value was read.
    Read(String, Value),
    /// An element was appended to a list.
    Append(String, i64),
    /// A value was replaced.
    Write(String, i64),
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is null, an integer or a list of integers")]
pub enum Value {
    /// Nothing: as a list, the empty one.
    Nothing,
    /// What was written last.
    Integer(i64),
    /// All appended elements, in order.
    List(Vec<i64>),
}

/// A step as it is on a line.
type StepTuple = (Verb, String, Value);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Read,
    Append,
    Write,
}

impl From<Step> for StepTuple {
    fn from(step: Step) -> Self {
        match step {
            Step::Read(key, value) => (Verb::Read, key, value),
            Step::Append(key, element) => (Verb::Append, key, Value::Integer(element)),
            Step::Write(key, value) => (Verb::Write, key, Value::Integer(value)),
        }
    }
}

impl TryFrom<StepTuple> for Step {
    type Error = &'static str;

    fn try_from(words: StepTuple) -> Result<Self, Self::Error> {
        match words {
            (Verb::Read, key, value) => Ok(Self::Read(key, value)),
            (Verb::Append, key, Value::Integer(element)) => Ok(Self::Append(key, element)),
            (Verb::Write, key, Value::Integer(value)) => Ok(Self::Write(key, value)),
            (Verb::Append | Verb::Write, ..) => Err("what is appended or written is an integer"),
        }
    }
}

impl Step {
    /// A list was read.
    pub fn read_list(key: impl Into<String>, elements: impl Into<Vec<i64>>) -> Self {
        Self::Read(key.into(), Value::List(elements.into()))
    }

    /// A single value was read, or that there is none.
    pub fn read(key: impl Into<String>, value: Option<i64>) -> Self {
        Self::Read(key.into(), value.map_or(Value::Nothing, Value::Integer))
    }

    /// An element was put behind the end of a list.
    pub fn append(key: impl Into<String>, element: i64) -> Self {
        Self::Append(key.into(), element)
    }

    /// A value replaced the one before.
    pub fn write(key: impl Into<String>, value: i64) -> Self {
        Self::Write(key.into(), value)
    }

    /// What it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        let (Self::Read(key, _) | Self::Append(key, _) | Self::Write(key, _)) = self;
        key
    }
}

impl Value {
    /// As a list, if it can be one: nothing is the empty list.
    #[must_use]
    pub fn list(&self) -> Option<&[i64]> {
        match self {
            Self::Nothing => Some(&[]),
            Self::List(elements) => Some(elements),
            Self::Integer(_) => None,
        }
    }
}

impl Operation {
    /// An operation that a client begins. Until it [returns](Operation::finish), its outcome is unknown.
    #[must_use]
    pub fn begin(number: u64, client: u64, kind: Kind, now_ms: u64) -> Self {
        Self {
            number,
            client,
            kind,
            invoked: now_ms,
            returned: None,
            outcome: Outcome::Unknown,
            steps: Vec::new(),
            at: None,
            as_of: None,
        }
    }

    /// The client learns how it ended, or stops waiting for that.
    pub fn finish(&mut self, outcome: Outcome, now_ms: u64) {
        self.outcome = outcome;
        self.returned = Some(now_ms);
    }

    /// Whether it is one of those that happen in the order of real time.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        matches!(self.kind, Kind::Transaction | Kind::Locks | Kind::ReadOnly)
    }

    /// When it had happened for sure, in milliseconds.
    #[must_use]
    pub fn completion_ms(&self) -> Option<u64> {
        self.returned.filter(|_| self.outcome == Outcome::Ok)
    }

    /// The elements that it appended.
    pub fn appends(&self) -> impl Iterator<Item = (&str, i64)> + Clone {
        self.steps.iter().filter_map(|step| match step {
            Step::Append(key, element) => Some((key.as_str(), *element)),
            Step::Read(..) | Step::Write(..) => None,
        })
    }

    fn validate(&self) -> Result<(), String> {
        let number = self.number;
        if self.returned.is_some_and(|returned| returned < self.invoked) {
            return Err(format!("operation {number} returned before it was invoked"));
        }
        if self.outcome != Outcome::Unknown && self.returned.is_none() {
            return Err(format!("operation {number} is not unknown, so it has a time at which it returned"));
        }
        if let Some(step) = self.steps.iter().find(|step| step.key().is_empty() || step.key().len() > KEY_LIMIT) {
            return Err(format!("operation {number}: a key has 1 to {KEY_LIMIT} bytes, not {}", step.key().len()));
        }
        let reads = self.steps.iter().filter(|step| matches!(step, Step::Read(..))).count();
        let writes = self.steps.len() - reads;
        match self.kind {
            Kind::ReadOnly | Kind::Snapshot if writes > 0 => Err(format!("operation {number} may only read")),
            Kind::Read if writes > 0 || reads > 1 => Err(format!("operation {number} has more than one read")),
            Kind::Write if reads > 0 || writes != 1 => Err(format!("operation {number} is not one write")),
            _ => Ok(()),
        }
    }
}

/// Why something is no history.
#[derive(Debug)]
pub struct Malformed {
    /// The line, counted from 1; none if it is about more than one.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line} of the history: {}", self.message),
            None => write!(f, "the history: {}", self.message),
        }
    }
}

impl Error for Malformed {}

/// The key of a member of a set. A set is judged as one list for each possible member, which contains the member or is
/// empty: elements of a list have an order, but inserts into a set do not depend on each other.
#[must_use]
pub fn member(set: &str, element: i64) -> String {
    format!("{set}/{element}")
}

/// The members of sets that may have been replaced by others: an operation that removes a member appends its number to the list of the
/// [member], and inserts its number in the set.
#[derive(Clone, Debug, Default)]
pub struct Replacements {
    /// By set and member, those that may have replaced it.
    sets: BTreeMap<String, BTreeMap<i64, Vec<i64>>>,
}

impl Replacements {
    /// Those of a history, whose sets may be split already.
    #[must_use]
    pub fn of(history: &History) -> Self {
        let mut sets: BTreeMap<String, BTreeMap<i64, Vec<i64>>> = BTreeMap::new();
        for (key, replacement) in history.operations.iter().flat_map(Operation::appends) {
            if let Some((set, element)) = key.rsplit_once('/')
                && let Ok(element) = element.parse::<i64>()
                && element != replacement
            {
                sets.entry(set.to_owned()).or_default().entry(element).or_default().push(replacement);
            }
        }
        Self { sets }
    }

    /// The list of a member of a set for one that has found these members. A member that is not there was replaced if the one that has
    /// replaced it is there, or was replaced itself. So what replaces members is in the same set.
    #[must_use]
    pub fn list_of(&self, set: &str, element: i64, found: &BTreeSet<i64>) -> Vec<i64> {
        match self.sets.get(set) {
            _ if found.contains(&element) => vec![element],
            Some(replaced) => match replacement_of(replaced, element, found) {
                Some(replacement) => vec![element, replacement],
                None => Vec::new(),
            },
            None => Vec::new(),
        }
    }
}

/// The member that has replaced another one, by those that were found: it was found, or was replaced in its turn. An operation may have replaced a
/// member of a larger number, which was inserted after it had begun.
fn replacement_of(replaced: &BTreeMap<i64, Vec<i64>>, element: i64, found: &BTreeSet<i64>) -> Option<i64> {
    let candidates = replaced.get(&element).into_iter().flatten().copied();
    candidates.into_iter().find(|candidate| {
        let (mut reached, mut seen) = (vec![*candidate], BTreeSet::from([element]));
        while let Some(one) = reached.pop() {
            if found.contains(&one) {
                return true;
            }
            if seen.insert(one) {
                reached.extend(replaced.get(&one).into_iter().flatten());
            }
        }
        false
    })
}

impl History {
    /// Splits each set into the lists of its members. During a run a set is one list with the name of its guard:
    /// inserts append to it, and queries read all of it. A query that did not return a member has read the empty list
    /// of that member, unless the member was replaced ([`Replacements`]).
    pub fn split_sets(&mut self) {
        let is_set = |key: &str| key.ends_with(SET);
        let replacements = Replacements::of(self);
        let mut members: BTreeMap<String, BTreeSet<i64>> = BTreeMap::new();
        for (set, element) in self.operations.iter().flat_map(Operation::appends).filter(|(key, _)| is_set(key)) {
            members.entry(set.to_owned()).or_default().insert(element);
        }
        for operation in &mut self.operations {
            let steps = std::mem::take(&mut operation.steps);
            operation.steps = steps
                .into_iter()
                .flat_map(|step| match step {
                    Step::Append(set, element) if is_set(&set) => vec![Step::Append(member(&set, element), element)],
                    Step::Read(set, Value::List(found)) if is_set(&set) => {
                        let all = members.get(&set).into_iter().flatten();
                        let present: BTreeSet<i64> = found.iter().copied().collect();
                        let read = |element: &i64| {
                            let mut list: Vec<i64> = found.iter().filter(|one| *one == element).copied().collect();
                            if list.is_empty() {
                                list = replacements.list_of(&set, *element, &present);
                            }
                            Step::read_list(member(&set, *element), list)
                        };
                        all.map(read).collect()
                    }
                    other => vec![other],
                })
                .collect();
        }
    }

    /// Reads a history: one operation a line. Empty lines are passed over.
    ///
    /// # Errors
    /// The line that cannot be read, or the rule that does not hold of the operations ([`History::validate`]).
    pub fn read(mut input: impl BufRead) -> Result<Self, Malformed> {
        let mut history = Self::default();
        let mut text = Vec::new();
        for line in 1.. {
            let malformed = |message: String| Malformed { line: Some(line), message };
            text.clear();
            let limit = LINE_LIMIT as u64 + 1;
            let length =
                input.by_ref().take(limit).read_until(b'\n', &mut text).map_err(|e| malformed(e.to_string()))?;
            if length == 0 {
                break;
            }
            if length > LINE_LIMIT {
                return Err(malformed(format!("longer than {LINE_LIMIT} bytes")));
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            if history.operations.len() == OPERATION_LIMIT {
                return Err(malformed(format!("more than {OPERATION_LIMIT} operations")));
            }
            let operation: Operation = serde_json::from_slice(&text).map_err(|error| {
                // Whatever serde_json says about lines is about the one line that it got.
                let message = error.to_string();
                malformed(message.replace(" at line 1 column", ", column"))
            })?;
            operation.validate().map_err(malformed)?;
            history.operations.push(operation);
        }
        history.validate()?;
        Ok(history)
    }

    /// Writes the history: one operation a line.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        for operation in &self.operations {
            serde_json::to_writer(&mut out, operation)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// Checks what checkers rely on: each operation has the steps that its kind allows, and clients are sequential
    /// (H1).
    ///
    /// # Errors
    /// The first operation of which it does not hold.
    pub fn validate(&self) -> Result<(), Malformed> {
        let malformed = |message: String| Malformed { line: None, message };
        let mut numbers = BTreeSet::new();
        let mut clients: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            operation.validate().map_err(malformed)?;
            if !numbers.insert(operation.number) {
                return Err(malformed(format!("operation {} is there twice", operation.number)));
            }
            clients.entry(operation.client).or_default().push(operation);
        }
        for (client, mut operations) in clients {
            operations.sort_by_key(|operation| operation.number);
            for pair in operations.windows(2) {
                let (first, second) = (pair[0], pair[1]);
                if first.returned.is_none_or(|returned| returned > second.invoked) {
                    return Err(malformed(format!(
                        "client {client} began operation {} before {} had returned",
                        second.number, first.number
                    )));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
