//! `mortar scrub`: reads everything and compares its checksums.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{HumanBytes, Report, pluralize};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar scrub
  mortar scrub --json        one object with all damage; exit code 6 if there is any";

/// Read everything a server holds and check it against its checksums
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Scrub {}

#[derive(Serialize)]
struct ScrubSummary {
    objects: u64,
    bytes: u64,
    damaged: Vec<String>,
}

impl Report for ScrubSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for damage in &self.damaged {
            writeln!(out, "damaged: {damage}")?;
        }
        writeln!(
            out,
            "checked {}, {}: {}",
            pluralize(self.objects, "object", "objects"),
            HumanBytes(self.bytes),
            match self.damaged.len() {
                0 => "all is well".to_owned(),
                damaged => format!("{damaged} damaged"),
            }
        )
    }
}

pub(crate) async fn run(_: Scrub, session: &mut CommandContext) -> Result {
    let client = session.connect().await?;
    let progress = Progress::start("scrubbing", &session.output);
    let shown = progress.clone();
    let report = client
        .scrub(move |now| {
            shown.set_total(now.total, 0);
            shown.set_done(now.done, 0);
        })
        .await;
    progress.end();
    let report = report?;
    let found = ScrubSummary { objects: report.objects, bytes: report.bytes, damaged: report.damaged };
    session.output.print(&found)?;
    match found.damaged.len() {
        0 => Ok(()),
        damaged => {
            Err(Failure::corrupt(format!("the store is damaged in {}", pluralize(damaged as u64, "place", "places"))))
        }
    }
}
