//! `mortar-sim scenario`.

use std::fs;
use std::path::{Path, PathBuf};

use sim::bug::Bug;
use sim::run::run as run_plan;
use sim::scenario::{Scenario, TEXT_LIMIT, expectation};

use crate::screen::result;
use crate::{CommandResult, Result};

/// Run schedules from files and compare the results with the expected ones.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The scenarios.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print every event.
    #[arg(long)]
    trace: bool,
    /// Plant this bug and print the result.
    #[arg(long, value_name = "NAME", value_parser = super::bug)]
    bug: Option<Bug>,
    /// List all bugs that this schedule notices.
    #[arg(long, conflicts_with = "bug")]
    all_bugs: bool,
    /// Write the result as the expected result.
    #[arg(long, conflicts_with_all = ["bug", "all_bugs"])]
    rewrite: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<CommandResult> {
    let mut found = CommandResult::Clean;
    for path in &arguments.files {
        let (text, scenario) = read(path)?;
        let name = path.display();
        if arguments.trace || arguments.bug.is_some() {
            let report = run_plan(scenario.plan.clone(), arguments.bug, arguments.trace);
            report.transcript.iter().for_each(|line| result(format_args!("{line}")));
            let lines = expectation(&scenario.plan, &report);
            lines.iter().for_each(|line| result(format_args!("{line}")));
            if let Some(wrong) = report.wrong {
                result(format_args!("{wrong}"));
                found = CommandResult::Failed;
            }
        } else if arguments.all_bugs {
            let correct = expectation(&scenario.plan, &run_plan(scenario.plan.clone(), None, false));
            let noticed = Bug::all().filter(|bug| scenario.notices(*bug, &correct));
            let noticed: Vec<String> = noticed.map(|bug| format!("{bug:?}")).collect();
            result(format_args!("{name}: {}", noticed.join(" ")));
        } else if arguments.rewrite {
            let lines = expectation(&scenario.plan, &run_plan(scenario.plan.clone(), None, false));
            fs::write(path, Scenario::rewrite(&text, &lines)).map_err(|error| format!("{name}: {error}"))?;
            result(format_args!("{name}: {}", lines.last().map_or("", String::as_str)));
        } else {
            let complaints = scenario.mismatches();
            if complaints.is_empty() {
                result(format_args!("{name}: as expected"));
            } else {
                found = CommandResult::Failed;
            }
            complaints.iter().for_each(|complaint| result(format_args!("{name}: {complaint}")));
        }
    }
    Ok(found)
}

/// Reads a scenario, with its text.
pub(super) fn read(path: &Path) -> Result<(String, Scenario)> {
    let name = path.display();
    let length = fs::metadata(path).map_err(|error| format!("{name}: {error}"))?.len();
    if length > TEXT_LIMIT as u64 {
        return Err(format!("{name}: a scenario has at most {TEXT_LIMIT} bytes, not {length}").into());
    }
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let scenario = Scenario::read(&text).map_err(|error| format!("{name}: {error}"))?;
    Ok((text, scenario))
}
