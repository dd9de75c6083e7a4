//! `mortar-sim nightly`.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use sim::workload::Choice;

use crate::campaign::{Campaign, CampaignResult};
use crate::screen::{result, status};
use crate::{CommandResult, Result, interrupt};

/// Run many seeds over all topologies, workloads and faults, without planted bugs, and every scenario.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The seeds: A..B without B.
    #[arg(long, value_name = "A..B", default_value = "0..20000", value_parser = super::run::seeds)]
    seeds: Range<u64>,
    /// How often each cluster is backed up, restored and judged, if its stores have logs to hold; default: at most three times.
    #[arg(long, value_name = "N")]
    backups: Option<u16>,
    /// Fail if clusters were restored from fewer cuts.
    #[arg(long, value_name = "N", default_value = "0")]
    least_cuts: u64,
    /// Threads; default: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The directory of the scenarios.
    #[arg(long, value_name = "DIR", default_value = "crates/sim/tests/scenarios")]
    scenarios: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandResult> {
    let mut found = CommandResult::Clean;
    let (mut many, mut mistakes) = (0, 0);
    for path in scenarios(&arguments.scenarios)? {
        let (_, scenario) = super::scenario::read(&path)?;
        for complaint in scenario.mismatches() {
            status(format_args!("{}: {complaint}", path.display()));
            found = CommandResult::Failed;
        }
        (many, mistakes) = (many + 1, mistakes + scenario.catches.len());
    }
    result(format_args!("{many} scenarios, in which {mistakes} planted bugs must be noticed"));
    let threads = arguments.threads.map_or_else(super::cores, usize::from);
    let (seeds, choice) = (arguments.seeds.clone(), Choice { backups: arguments.backups, ..Choice::default() });
    let campaign = Campaign { seeds, choice, bug: None, threads, once: false, failures: usize::MAX };
    let CampaignResult { totals, failed, .. } = campaign.run();
    if interrupt::is_requested() {
        status(format_args!("interrupted"));
    }
    result(format_args!("{}", totals.line()));
    if totals.cuts < arguments.least_cuts {
        result(format_args!("{} cuts were wanted: run more seeds", arguments.least_cuts));
        found = CommandResult::Failed;
    }
    for one in &failed {
        let first = one.wrong.lines().next().unwrap_or_default();
        result(format_args!("seed {}: {first} (mortar-sim run --seeds {} shows how)", one.seed, one.seed));
        found = CommandResult::Failed;
    }
    result(format_args!(
        "{}",
        if found == CommandResult::Clean { "nothing was found wrong" } else { "something is wrong" }
    ));
    Ok(found)
}

/// The files, by name.
fn scenarios(dir: &PathBuf) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(dir).map_err(|error| format!("{}: {error} (--scenarios names another)", dir.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", dir.display()))?.path();
        files.extend(Some(path).filter(|path| path.extension().is_some_and(|extension| extension == "txt")));
    }
    files.sort();
    Ok(files)
}
