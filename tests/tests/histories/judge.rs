//! The checks of a history after the recovery.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use check::history::{History, Kind, Operation, Outcome, Step, Value};
use check::{Summary, Violation, acknowledged, bank, exactly_once, pram, snapshot, strict_serializability};

use crate::objects::{BALANCE, Objects};

/// The final state of the objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct FinalState {
    pub(crate) lists: BTreeMap<String, Vec<i64>>,
    pub(crate) accounts: BTreeMap<String, i64>,
    pub(crate) singles: BTreeMap<String, Option<i64>>,
}

impl FinalState {
    /// Adds the reads of a transaction.
    pub(crate) fn add(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Read(key, Value::List(elements)) => drop(self.lists.insert(key.clone(), elements.clone())),
                Step::Read(key, Value::Integer(balance)) => drop(self.accounts.insert(key.clone(), *balance)),
                _ => {}
            }
        }
    }
}

/// Runs all checks. `happened` are transactions of unknown outcome that were found to be committed.
pub(crate) fn judge(
    history: &History,
    finals: &FinalState,
    happened: &[u64],
    objects: &Objects,
) -> Result<CheckSummary, String> {
    history.validate().map_err(|error| error.to_string())?;
    let named = |what: &'static str| move |violation: Violation| format!("{what}: {violation}");
    let strict = strict_serializability::check(history).map_err(named("strict serializability"))?;
    let snapshots = snapshot::check(history, snapshot::Demands::default()).map_err(named("snapshots"))?;
    let singles = pram::check(history, &BTreeMap::new()).map_err(named("PRAM"))?;
    let total = BALANCE * i64::try_from(objects.accounts.len()).unwrap();
    let audits = bank::check(history, total, &finals.accounts).map_err(named("bank"))?;
    // Only the last write of a single value is known.
    let mut lists = history.clone();
    lists.operations.retain(|operation| operation.kind != Kind::Write);
    for operation in lists.operations.iter_mut().filter(|operation| happened.contains(&operation.number)) {
        operation.outcome = Outcome::Ok;
    }
    acknowledged::check(&lists, &finals.lists).map_err(named("acknowledged"))?;
    exactly_once::check(&lists, &finals.lists).map_err(named("exactly once"))?;
    for (key, value) in &finals.singles {
        check_last_write(history, key, *value)?;
    }
    let operations = history.operations.len();
    Ok(CheckSummary { operations, strict, snapshots, singles, audits })
}

/// Checks that an object with one writer has the value that was acknowledged last, or one that was written later.
fn check_last_write(history: &History, key: &str, value: Option<i64>) -> Result<(), String> {
    let mut writes: Vec<&Operation> = history.operations.iter().collect();
    writes.retain(|operation| operation.kind == Kind::Write && operation.steps[0].key() == key);
    let last = writes.iter().filter(|write| write.outcome == Outcome::Ok).max_by_key(|write| write.number);
    let written = |write: &Operation| match write.steps[0] {
        Step::Write(_, value) => Some(value),
        _ => None,
    };
    let may_be = writes.iter().filter(|write| write.outcome == Outcome::Unknown).any(|write| written(write) == value);
    let wanted = last.and_then(|write| written(write));
    match value == wanted || may_be {
        true => Ok(()),
        false => Err(format!("acknowledged: {key} is {value:?} in the end, and {wanted:?} was written last")),
    }
}

/// Numbers of what was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckSummary {
    pub(crate) operations: usize,
    pub(crate) strict: Summary,
    pub(crate) snapshots: Summary,
    pub(crate) singles: Summary,
    pub(crate) audits: Summary,
}

impl fmt::Display for CheckSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operations, strict, snapshots, singles, audits } = self;
        write!(
            f,
            "{operations} operations; committed: {} transactions with {} relations, {} snapshots, {} reads, {} audits",
            strict.operations, strict.relations, snapshots.operations, singles.operations, audits.operations
        )
    }
}

/// The directory for histories of failed runs: `MORTAR_HISTORIES_DIR`, or one beside the build.
fn history_directory() -> PathBuf {
    let named = std::env::var_os("MORTAR_HISTORIES_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("histories"))
}

/// Stores a history and the logs. Returns the path.
pub(crate) fn save_history(name: &str, history: &History, logs: &Path) -> PathBuf {
    let dir = history_directory().join(name);
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("history.jsonl");
    history.write(BufWriter::new(File::create(&path).unwrap())).unwrap();
    for entry in fs::read_dir(logs).unwrap() {
        let log = entry.unwrap().path();
        if log.extension().is_some_and(|extension| extension == "log") {
            fs::copy(&log, dir.join(log.file_name().unwrap())).unwrap();
        }
    }
    path
}
