//! `mortar repair`: why a damaged store does not open, what a repair would lose, and the repair itself.
//!
//! The directory of `mortar dev` has those of further bricks below it. All are examined, but only the named one is repaired: what is
//! given up is always named by the operator. A repaired brick of `mortar dev` is also entered in the catalogue as one that went back in
//! time (K3); for a brick with a process of its own, `mortar brick accept-loss` does that.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use node::local_cluster::{brick_directories, data_directory_of};
use node::purpose::{ESSENTIAL_ROWS, Purpose};
use serde::Serialize;
use store::{Amount, Options, RepairReport, Store};

use super::accept_loss::{BrickLossReport, accept_loss_below};
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

Transactions of a damaged log and rows on damaged pages of the B-tree are given up, and reported. What is left is the newest state from
then on: caches drop what they have of it. For a brick with a process of its own, `mortar brick accept-loss` has to follow.

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
    /// Damaged parts of the B-tree, with their keys; the first thousand.
    lost_rows: Vec<String>,
    /// The number of damaged parts of the B-tree.
    lost_row_ranges: u64,
    /// Damaged pages of the B-tree without rows, which a repair writes again without loss; the first thousand.
    damaged_structure: Vec<String>,
    /// Whether one of the two records of the end of the log cannot be read.
    damaged_tail: bool,
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
    /// Whether the loss has to be accepted in the cluster by another command.
    needs_acceptance: bool,
    /// What was accepted in the cluster, if the catalogue was at hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<BrickLossReport>,
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
            lost: report.lost_txns().map(|(first, last)| LostTransactions { first, last }),
            lost_rows: report.lost_rows.clone(),
            lost_row_ranges: report.lost_row_ranges,
            damaged_structure: report.damaged_structure.clone(),
            damaged_tail: report.damaged_tail,
            set_aside: report.set_aside.as_ref().map(|path| path.display().to_string()),
            damaged: damaged.collect(),
            text: report.to_string(),
            is_one_of_several: false,
            is_repairable: true,
            needs_acceptance: report.needs_acceptance,
            accepted: None,
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
            lost_rows: Vec::new(),
            lost_row_ranges: 0,
            damaged_structure: Vec::new(),
            damaged_tail: false,
            set_aside: None,
            damaged: Vec::new(),
            text: format!("{}\nit cannot be repaired", failure.message()),
            is_one_of_several: false,
            is_repairable: false,
            needs_acceptance: false,
            accepted: None,
        }
    }
}

impl Report for RepairSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.is_one_of_several {
            writeln!(out, "{}:", self.data)?;
        }
        writeln!(out, "{}", self.text)?;
        self.damaged.iter().try_for_each(|damage| writeln!(out, "damaged: {damage}"))?;
        if self.needs_acceptance {
            writeln!(
                out,
                "The brick is served once `mortar brick accept-loss --config FILE --yes` has accepted the loss. It names the transactions in which other bricks took \
                 part and that are lost here."
            )?;
        }
        self.accepted.iter().try_for_each(|accepted| accepted.write_text(out))
    }
}

pub(crate) fn run(args: &Repair, output: &mut Output) -> Result {
    let below = brick_directories(&args.data);
    let mut named = examine(&args.data, args.accept_loss, output);
    // What was given up is reported whether it is accepted or not.
    let accepted = match &mut named {
        Ok(report) if report.needs_acceptance && args.accept_loss => accept(&args.data, report),
        _ => Ok(()),
    };
    let mut reports = match below.is_empty() {
        true => vec![named?],
        false => vec![or_beyond_repair(&args.data, named)?],
    };
    for brick in &below {
        let examined = examine(brick, false, output);
        reports.push(or_beyond_repair(brick, examined)?);
    }
    for report in &mut reports {
        report.is_one_of_several = !below.is_empty();
        output.print(report)?;
    }
    output.flush()?;
    accepted?;
    check(&reports, args.accept_loss)
}

/// Accepts in the cluster what a repair gave up, if the catalogue is at hand.
fn accept(data: &Path, report: &mut RepairSummary) -> Result {
    let is_local = data_directory_of(data).is_some() || {
        let store = Store::open(data, Options::default())?;
        let purpose = Purpose::of(&store)?;
        store.close()?;
        // A catalogue of its own has no logical nodes.
        report.needs_acceptance = purpose != Some(Purpose::Catalogue);
        purpose == Some(Purpose::Whole)
    };
    if is_local {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::file("cannot start", &error))?;
        report.accepted = Some(runtime.block_on(accept_loss_below(data, true))?);
        report.needs_acceptance = false;
    }
    Ok(())
}

/// Examines a store, and repairs it if the loss is accepted.
fn examine(data: &Path, accept_loss: bool, output: &Output) -> Result<RepairSummary> {
    let progress = Progress::start("repairing", output);
    let tell = |amount: Amount| {
        progress.set_total(amount.total_bytes, 0);
        progress.set_done(amount.bytes, 0);
        ControlFlow::Continue(())
    };
    let done = Store::repair(data, accept_loss, &ESSENTIAL_ROWS, Options::default(), &tell);
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

/// Fails if a store cannot be opened or is damaged, or if a loss was not accepted and this command was not told to do that.
fn check(reports: &[RepairSummary], accepts: bool) -> Result {
    let unusable: Vec<&RepairSummary> = reports.iter().filter(|report| !report.usable).collect();
    if let Some(first) = unusable.first() {
        let which = unusable.iter().map(|report| report.data.as_str()).collect::<Vec<_>>().join(" and ");
        let (store, are) = if unusable.len() == 1 { ("store", "is") } else { ("stores", "are") };
        let changed = if reports.iter().any(|report| report.repaired) { "" } else { "; nothing was changed" };
        return Err(
            Failure::corrupt(format!("the {store} in {which} {are} damaged{changed}")).hint(remedy(&unusable, first))
        );
    }
    let is_unrepaired = |report: &&RepairSummary| report.lost_row_ranges > 0 && !report.repaired;
    if let Some(damaged) = reports.iter().find(is_unrepaired) {
        let parts = pluralize(damaged.lost_row_ranges, "part", "parts");
        let what = format!("{} of the B-tree in {} cannot be read; nothing was changed", parts, damaged.data);
        return Err(Failure::corrupt(what).hint(remedy(&[damaged], damaged)));
    }
    let is_incomplete = |report: &&RepairSummary| !report.damaged_structure.is_empty() && !report.repaired;
    if let Some(damaged) = reports.iter().find(is_incomplete) {
        let pages = pluralize(damaged.damaged_structure.len() as u64, "page", "pages");
        let what = format!("the B-tree in {} is damaged in {pages} without rows; nothing was changed", damaged.data);
        return Err(Failure::corrupt(what).hint(format!(
            "`mortar repair --data {} --accept-loss` writes them again. Nothing is lost with them; until then the store can be used.",
            damaged.data
        )));
    }
    if let Some(lost) = reports.iter().find(|report| report.needs_acceptance && !accepts) {
        let what = format!("what a repair gave up in {} was not accepted: the brick is not served", lost.data);
        return Err(Failure::corrupt(what).hint(format!(
            "`mortar repair --data {} --accept-loss` accepts it, or `mortar brick accept-loss --config FILE --yes` if the brick has a process \
             of its own.",
            lost.data
        )));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_pages_without_rows_are_damage_until_they_are_repaired() {
        let map = "the map of used pages of tree/rows: damaged".to_owned();
        let mut report = RepairReport { damaged_structure: vec![map], ..RepairReport::default() };
        let summary = RepairSummary::new(Path::new("data"), &report);
        let failure = check(&[summary], false).unwrap_err();
        assert!(failure.exit() == Exit::Corrupt && failure.message().contains("1 page without rows"), "{failure:?}");
        report.repaired = true;
        assert!(check(&[RepairSummary::new(Path::new("data"), &report)], true).is_ok());
    }
}
