//! `mortar-sim check`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use check::history::History;
use check::{Summary, Violation, pram, snapshot, strict_serializability};

use crate::screen::result;
use crate::{CommandResult, Result};

/// Check histories from any source: JSON lines, as docs/history.md describes them.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The histories.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The maximum age of a snapshot, in milliseconds.
    #[arg(long, value_name = "MS")]
    bound: Option<u64>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandResult> {
    let mut found = CommandResult::Clean;
    for path in &arguments.files {
        let name = path.display();
        let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
        let history = History::read(BufReader::new(file)).map_err(|error| format!("{name}: {error}"))?;
        if history.operations.is_empty() {
            return Err(format!("{name}: no operations, so there is nothing to judge").into());
        }
        result(format_args!("{name}: {} operations", history.operations.len()));
        let demands = snapshot::Demands { bound_ms: arguments.bound, real_time: false };
        for (demand, verdict) in [
            ("strict serializability", strict_serializability::check(&history)),
            ("snapshots", snapshot::check(&history, demands)),
            ("PRAM", pram::check(&history, &BTreeMap::new())),
        ] {
            if !print_verdict(demand, verdict) {
                found = CommandResult::Failed;
            }
        }
    }
    Ok(found)
}

fn print_verdict(demand: &str, verdict: Result<Summary, Violation>) -> bool {
    match &verdict {
        Ok(Summary { operations, relations }) => {
            result(format_args!("  {demand}: right, by {operations} operations and {relations} relations"));
        }
        Err(violation) => result(format_args!("  {demand}: {violation}")),
    }
    verdict.is_ok()
}
