//! `mortar scrub`: reads everything and compares its checksums.

use std::io::{self, Write};

use clap::Args;
use client::AdminClient;
use meta::catalog::BrickId;
use serde::Serialize;

use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{HumanBytes, Report, pluralize};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar scrub
  mortar scrub --json        one object with all damage; exit code 6 if there is any";

/// Read everything that the bricks hold and check it against its checksums
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
    let bricks = session.bricks().await?;
    let progress = Progress::start("scrubbing", &session.output);
    let scrubbed = scrub_all(&bricks, &progress).await;
    progress.end();
    let found = scrubbed?;
    session.output.print(&found)?;
    match found.damaged.len() {
        0 => Ok(()),
        damaged => {
            Err(Failure::corrupt(format!("the store is damaged in {}", pluralize(damaged as u64, "place", "places"))))
        }
    }
}

/// Scrubs the bricks, one after the other.
async fn scrub_all(bricks: &[(Option<BrickId>, AdminClient)], progress: &Progress) -> Result<ScrubSummary> {
    let mut summary = ScrubSummary { objects: 0, bytes: 0, damaged: Vec::new() };
    for (brick, client) in bricks {
        let (shown, before) = (progress.clone(), summary.bytes);
        let show = move |now: client::Progress| {
            shown.set_total(before + now.total, 0);
            shown.set_done(before + now.done, 0);
        };
        let report = client.scrub(show).await?;
        summary.objects += report.objects;
        summary.bytes += report.bytes;
        let place = brick.filter(|_| bricks.len() > 1).map(|brick| format!("brick {brick}: ")).unwrap_or_default();
        summary.damaged.extend(report.damaged.into_iter().map(|damage| format!("{place}{damage}")));
    }
    Ok(summary)
}
