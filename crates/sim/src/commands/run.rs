//! `mortar-sim run`.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use serde::Serialize;
use sim::bug::Bug;
use sim::plan::Topology;
use sim::run::run as run_plan;
use sim::scenario::{Scenario, expectation};
use sim::shrink::{ShrinkResult, shrink};
use sim::workload::{Choice, Faults, Workload, plan};

use crate::campaign::{Campaign, CampaignResult, FailedSeed, Totals};
use crate::screen::{self, result, status};
use crate::{CommandResult, Result, interrupt};

/// Run seeds. Everything that is not fixed follows from the seed, so that many seeds cover all combinations.
///
/// Every seed is run twice, and both runs must be identical. For a seed that fails, the shortest failing schedule is
/// searched and written as a scenario, with a transcript of all its events.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The seeds: A..B without B, or a single one.
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Range<u64>,
    /// The topology: direct, peer, group, site, mixed, replicated or chain.
    #[arg(long, value_name = "T", value_parser = topology)]
    topology: Option<Topology>,
    /// The workload: lists, bank, ring, own, skew, hot, wide, snapshots, locks, phantoms, names, pram, slow
    /// or everything.
    #[arg(long, value_name = "W", value_parser = workload)]
    workload: Option<Workload>,
    /// The faults: none, network, crashes or all.
    #[arg(long, value_name = "F", value_parser = faults)]
    faults: Option<Faults>,
    /// How often each cluster is backed up, restored and judged, if its stores have logs to hold.
    #[arg(long, value_name = "N")]
    backups: Option<u16>,
    /// Add fields to classes in every run whose clients query sets
    #[arg(long)]
    fields: bool,
    /// Damage pages of the B-trees of bricks for a while in every run whose bricks have stores on disk
    #[arg(long)]
    damage: bool,
    /// Change permissions of users in every run whose clients can have users
    #[arg(long)]
    permissions: bool,
    /// Plant this bug.
    #[arg(long, value_name = "NAME", value_parser = super::bug)]
    bug: Option<Bug>,
    /// Threads; default: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Run every seed only once.
    #[arg(long)]
    once: bool,
    /// Stop after this number of failed seeds.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    failures: u16,
    /// Write the history of the run as JSON lines; for a single seed only.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// The directory for failing schedules.
    #[arg(long, value_name = "DIR", default_value = "sim-failures")]
    out: PathBuf,
    /// Write the whole plan instead of a shorter schedule.
    #[arg(long)]
    no_shrink: bool,
    /// The maximum number of runs to find a shorter schedule.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    shrink_runs: usize,
    /// Print a summary as JSON on standard output.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct JsonSummary<'a> {
    #[serde(flatten)]
    totals: Totals,
    events_a_second: u64,
    interrupted: bool,
    failed: Vec<JsonFailure<'a>>,
}

#[derive(Serialize)]
struct JsonFailure<'a> {
    seed: u64,
    wrong: &'a str,
    scenario: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandResult> {
    let seeds = arguments.seeds.clone();
    if arguments.history.is_some() && seeds.end - seeds.start != 1 {
        return Err("--history is for one seed: --seeds 7".into());
    }
    let Arguments { topology, workload, faults, backups, permissions, fields, damage, bug, once, .. } = *arguments;
    let choice = Choice {
        topology,
        workload,
        faults,
        backups,
        permissions: permissions.then_some(true),
        fields: fields.then_some(true),
        damage: damage.then_some(true),
    };
    let threads = arguments.threads.map_or_else(super::cores, usize::from);
    let campaign = Campaign { seeds, choice, bug, threads, once, failures: usize::from(arguments.failures) };
    if let Some(path) = &arguments.history {
        write_history(path, campaign.seeds.start, choice, bug)?;
    }
    let CampaignResult { totals, failed, interrupted } = campaign.run();
    let mut written = Vec::new();
    for one in &failed {
        let scenario = if one.differs { None } else { Some(arguments.write_schedule(choice, one)?) };
        written.push(JsonFailure { seed: one.seed, wrong: &one.wrong, scenario });
    }
    if interrupted {
        status(format_args!("interrupted"));
    }
    if arguments.json {
        let events_a_second = totals.events_a_second();
        let summary = JsonSummary { totals, events_a_second, interrupted, failed: written };
        result(format_args!("{}", serde_json::to_string(&summary)?));
    } else {
        result(format_args!("{}", totals.line()));
        result(format_args!("{}", if failed.is_empty() { "nothing was found wrong" } else { "something is wrong" }));
    }
    Ok(if failed.is_empty() { CommandResult::Clean } else { CommandResult::Failed })
}

impl Arguments {
    /// Writes the shortest schedule that is found, and a transcript beside it.
    fn write_schedule(&self, choice: Choice, failed: &FailedSeed) -> Result<PathBuf> {
        let whole = plan(failed.seed, choice);
        let found = (!self.no_shrink).then(|| self.shortest(whole.clone())).flatten();
        let plan = found.map_or(whole, |found| found.plan);
        let (report, right) = (run_plan(plan.clone(), self.bug, true), run_plan(plan.clone(), None, false));
        let catches: Vec<Bug> = self.bug.into_iter().collect();
        // What is expected is what the rules do; what a mistake does to it is in the transcript.
        let scenario = Scenario { expected: Some(expectation(&plan, &right)), plan, catches };
        fs::create_dir_all(&self.out).map_err(|error| format!("{}: {error}", self.out.display()))?;
        let name = self.bug.map_or_else(String::new, |bug| format!("-{bug:?}"));
        let path = self.out.join(format!("seed-{}{name}.txt", failed.seed));
        fs::write(&path, scenario.to_string()).map_err(|error| format!("{}: {error}", path.display()))?;
        let mut lines = report.transcript.clone();
        lines.extend(expectation(&scenario.plan, &report));
        lines.extend(report.wrong.map(|wrong| wrong.to_string()));
        let transcript = path.with_extension("transcript");
        fs::write(&transcript, lines.join("\n") + "\n")
            .map_err(|error| format!("{}: {error}", transcript.display()))?;
        let actions = scenario.plan.actions.len();
        status(format_args!("seed {}: {actions} actions in {}", failed.seed, path.display()));
        Ok(path)
    }

    fn shortest(&self, plan: sim::plan::Plan) -> Option<ShrinkResult> {
        let bar = screen::bar(self.shrink_runs as u64);
        let found = shrink(plan, self.bug, self.shrink_runs, &mut |progress| {
            bar.set_position(progress.runs as u64);
            bar.set_message(format!("runs to find a shorter schedule: {} actions", progress.actions));
            if interrupt::is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish_and_clear();
        found
    }
}

fn write_history(path: &Path, seed: u64, choice: Choice, bug: Option<Bug>) -> Result<()> {
    let history = run_plan(plan(seed, choice), bug, false).history;
    let failed = |error| format!("{}: {error}", path.display());
    let mut out = BufWriter::new(File::create(path).map_err(failed)?);
    history.write(&mut out).and_then(|()| out.flush()).map_err(failed)?;
    Ok(())
}

// ---------------------------------------------------------------------------------------------- arguments

/// `A..B`, or one seed.
pub(super) fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = |_| format!("`{text}` is neither a seed nor A..B");
    let (first, end) = match text.split_once("..") {
        Some((first, end)) => (first.parse().map_err(wrong)?, end.parse().map_err(wrong)?),
        None => {
            let seed: u64 = text.parse().map_err(wrong)?;
            (seed, seed.checked_add(1).ok_or("the largest seed cannot be run")?)
        }
    };
    if first < end {
        Ok(first..end)
    } else {
        Err(format!("there is no seed in {text}: B is the first that is left out"))
    }
}

fn topology(name: &str) -> Result<Topology, String> {
    find_by_name(name, Topology::ALL, Topology::name)
}

fn workload(name: &str) -> Result<Workload, String> {
    find_by_name(name, Workload::ALL, Workload::name)
}

fn faults(name: &str) -> Result<Faults, String> {
    find_by_name(name, Faults::ALL, Faults::name)
}

fn find_by_name<T: Copy, const N: usize>(name: &str, all: [T; N], name_of: fn(T) -> &'static str) -> Result<T, String> {
    let found = all.into_iter().find(|one| name_of(*one) == name);
    found.ok_or_else(|| format!("`{name}` is none of {}", all.map(name_of).join(", ")))
}
