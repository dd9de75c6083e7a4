//! `mortar repair`: why a damaged store does not open, what a repair would lose, and the repair itself.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use model::ErrorKind;
use serde::Serialize;
use store::{Amount, Options, RepairReport, Store};

use super::dev::explain_open;
use crate::connection::DATA;
use crate::failure::{Failure, Result};
use crate::output::{Output, Report, pluralize};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar repair                       what is damaged in ./mortar-data, and what would be lost; changes nothing
  cp -a mortar-data mortar-data.kept  before you accept anything
  mortar repair --accept-loss         give that up and make the rest usable";

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
}

/// The transactions that are lost, or would be lost.
#[derive(Serialize)]
struct LostTransactions {
    first: u64,
    last: u64,
}

impl From<&RepairReport> for RepairSummary {
    fn from(report: &RepairReport) -> Self {
        let damaged = report.scrub.iter().flat_map(|scrub| scrub.damage.iter().map(ToString::to_string));
        Self {
            usable: report.is_sound() || report.repaired,
            repaired: report.repaired,
            identity_lost: report.identity_lost,
            damage: report.damage.clone(),
            kept: report.kept,
            lost: report.lost().map(|(first, last)| LostTransactions { first, last }),
            set_aside: report.set_aside.as_ref().map(|path| path.display().to_string()),
            damaged: damaged.collect(),
            text: report.to_string(),
        }
    }
}

impl Report for RepairSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", self.text)?;
        self.damaged.iter().try_for_each(|damage| writeln!(out, "damaged: {damage}"))
    }
}

pub(crate) fn run(args: &Repair, output: &mut Output) -> Result {
    let progress = Progress::start("repairing", output);
    let tell = |amount: Amount| {
        progress.set_total(amount.total_bytes, 0);
        progress.set_done(amount.bytes, 0);
        ControlFlow::Continue(())
    };
    let done = Store::repair(&args.data, args.accept_loss, Options::default(), &tell);
    progress.end();
    let report = RepairSummary::from(&done.map_err(|error| explain_repair(error, &args.data))?);
    output.print(&report)?;
    output.flush()?;
    if !report.usable {
        let given_up = if report.lost.is_some() { "the transactions named above" } else { "what is named above" };
        return Err(Failure::corrupt(format!("the store in {} is damaged; nothing was changed", args.data.display()))
            .hint(format!("Restore a backup, or give up {given_up} with --accept-loss; copy the directory first.")));
    }
    match report.damaged.len() as u64 {
        0 => Ok(()),
        damaged => {
            let places = pluralize(damaged, "place", "places");
            Err(Failure::corrupt(format!("the store can be opened, but is damaged in {places}")))
        }
    }
}

fn explain_repair(error: model::Error, data: &Path) -> Failure {
    match error.kind() {
        ErrorKind::Corrupt => Failure::from(error).hint("Only a backup helps: mortar restore FILE --data DIR."),
        _ => explain_open(error, data),
    }
}
