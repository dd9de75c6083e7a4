//! `mortar repair`: why a damaged store does not open, what a repair would lose, and the repair itself.
//!
//! The directory of `mortar dev` has those of further bricks below it. All are examined, but only the named one is repaired: what is
//! given up is always named by the operator.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use node::local_cluster::brick_directories;
use serde::Serialize;
use store::{Amount, Options, RepairReport, Store};

use super::dev::explain_open;
use crate::connection::DATA;
use crate::failure::{Exit, Failure, Result};
use crate::output::{Output, Report, pluralize};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar repair                       what is damaged in ./mortar-data, and what would be lost; changes nothing
  cp -a mortar-data mortar-data.kept  before you accept anything
  mortar repair --accept-loss         give that up and make the rest usable

The bricks below a directory of `mortar dev --bricks N` are examined too. --accept-loss repairs only the directory that is named:
mortar repair --data mortar-data/brick-2 --accept-loss";

/// What helps if a store cannot be repaired.
const ONLY_A_BACKUP: &str =
    "Only a backup of the whole cluster helps: `mortar restore FILE --data NEW` makes a new directory from it.";

/// Report why a store does not open, and make it usable without the damaged part
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Repair {
    /// The data directory; no server may run on it
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Give up the damaged part that `mortar repair` without this option reports
    #[arg(long)]
    accept_loss: bool,
}

#[derive(Serialize)]
struct RepairSummary {
    /// The directory.
    data: String,
    /// Whether the store can be opened, now or after the repair.
    usable: bool,
    repaired: bool,
    identity_lost: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
    /// The last transaction that is kept.
    kept: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostTransactions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<String>,
    /// Rows and contents that are also damaged, as the scrub after the repair has found.
    damaged: Vec<String>,
    #[serde(skip)]
    text: String,
    /// Whether other directories are reported too.
    #[serde(skip)]
    is_one_of_several: bool,
    /// Whether `--accept-loss` makes it usable, if it is not.
    #[serde(skip)]
    is_repairable: bool,
}

/// The transactions that are lost, or would be lost.
#[derive(Serialize)]
struct LostTransactions {
    first: u64,
    last: u64,
}

impl RepairSummary {
    fn new(data: &Path, report: &RepairReport) -> Self {
        let damaged = report.scrub.iter().flat_map(|scrub| scrub.damage.iter().map(ToString::to_string));
        Self {
            data: data.display().to_string(),
            usable: report.is_sound() || report.repaired,
            repaired: report.repaired,
            identity_lost: report.identity_lost,
            damage: report.damage.clone(),
            kept: report.kept,
            lost: report.lost().map(|(first, last)| LostTransactions { first, last }),
            set_aside: report.set_aside.as_ref().map(|path| path.display().to_string()),
            damaged: damaged.collect(),
            text: report.to_string(),
            is_one_of_several: false,
            is_repairable: true,
        }
    }

    /// The summary of a store that cannot be repaired.
    fn beyond_repair(data: &Path, failure: &Failure) -> Self {
        Self {
            data: data.display().to_string(),
            usable: false,
            repaired: false,
            identity_lost: false,
            damage: Some(failure.message().to_owned()),
            kept: 0,
            lost: None,
            set_aside: None,
            damaged: Vec::new(),
            text: format!("{}\nit cannot be repaired", failure.message()),
            is_one_of_several: false,
            is_repairable: false,
        }
    }
}

impl Report for RepairSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_one_of_several {
            writeln!(out, "{}:", self.data)?;
        }
        writeln!(out, "{}", self.text)?;
        self.damaged.iter().try_for_each(|damage| writeln!(out, "damaged: {damage}"))
    }
}

pub(crate) fn run(args: &Repair, output: &mut Output) -> Result {
    let below = brick_directories(&args.data);
    let named = examine(&args.data, args.accept_loss, output);
    if below.is_empty() {
        let report = named?;
        output.print(&report)?;
        output.flush()?;
        return check(&[report]);
    }
    let named = or_beyond_repair(&args.data, named)?;
    let mut reports = vec![named];
    for brick in &below {
        let examined = examine(brick, false, output);
        reports.push(or_beyond_repair(brick, examined)?);
    }
    for report in &mut reports {
        report.is_one_of_several = true;
        output.print(report)?;
    }
    output.flush()?;
    check(&reports)
}

/// Examines a store, and repairs it if the loss is accepted.
fn examine(data: &Path, accept_loss: bool, output: &Output) -> Result<RepairSummary> {
    let progress = Progress::start("repairing", output);
    let tell = |amount: Amount| {
        progress.set_total(amount.total_bytes, 0);
        progress.set_done(amount.bytes, 0);
        ControlFlow::Continue(())
    };
    let done = Store::repair(data, accept_loss, Options::default(), &tell);
    progress.end();
    let report = done.map_err(|error| match error.kind() {
        model::ErrorKind::Corrupt => Failure::local(error).hint(ONLY_A_BACKUP),
        _ => explain_open(error, data),
    })?;
    Ok(RepairSummary::new(data, &report))
}

/// A report also of a store that cannot be repaired, so that the others are reported too.
fn or_beyond_repair(data: &Path, examined: Result<RepairSummary>) -> Result<RepairSummary> {
    match examined {
        Err(failure) if matches!(failure.exit(), Exit::Corrupt | Exit::NotFound) => {
            Ok(RepairSummary::beyond_repair(data, &failure))
        }
        examined => examined,
    }
}

/// Fails if a store cannot be opened or is damaged.
fn check(reports: &[RepairSummary]) -> Result {
    let unusable: Vec<&RepairSummary> = reports.iter().filter(|report| !report.usable).collect();
    if let Some(first) = unusable.first() {
        let which = unusable.iter().map(|report| report.data.as_str()).collect::<Vec<_>>().join(" and ");
        let (store, are) = if unusable.len() == 1 { ("store", "is") } else { ("stores", "are") };
        let changed = if reports.iter().any(|report| report.repaired) { "" } else { "; nothing was changed" };
        return Err(
            Failure::corrupt(format!("the {store} in {which} {are} damaged{changed}")).hint(remedy(&unusable, first))
        );
    }
    match reports.iter().map(|report| report.damaged.len() as u64).sum() {
        0 => Ok(()),
        damaged => {
            let places = pluralize(damaged, "place", "places");
            Err(Failure::corrupt(format!("the store can be opened, but is damaged in {places}")))
        }
    }
}

fn remedy(unusable: &[&RepairSummary], first: &RepairSummary) -> String {
    if unusable.iter().any(|report| !report.is_repairable) {
        return ONLY_A_BACKUP.to_owned();
    }
    let given_up = if first.lost.is_some() { "the transactions named above" } else { "what is named above" };
    let which = if first.is_one_of_several { format!("--data {} ", first.data) } else { String::new() };
    format!("Restore a backup, or give up {given_up} with {which}--accept-loss; copy the directory first.")
}
