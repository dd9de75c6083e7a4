//! `mortar scrub`: reads everything and compares its checksums, as a job of the cluster.

use std::io::{self, Write};

use clap::Args;
use client::AdminClient;
use meta::catalog::{BrickId, JobRequest, JobView};
use serde::Serialize;

use super::job::{self, JobLine, Rate, parse_rate};
use crate::connection::CommandContext;
use crate::failure::{Failure, Result};
use crate::output::{HumanBytes, Printable, Report, pluralize};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar scrub
  mortar scrub --rate 50MiB/s --detach   slowly, without waiting; `mortar job ls` shows it
  mortar scrub --brick 2
  mortar scrub --json                    one object with all damage; exit code 6 if there is any

All bricks read at the same time. A brick that is started again goes on. Ctrl-C ends the waiting, not the scrub: `mortar job
cancel JOB` does.";

/// Read everything that the bricks hold and check it against its checksums
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Scrub {
    /// Only this brick; several in any order [default: all]
    #[arg(long = "brick", value_name = "BRICK")]
    bricks: Vec<u32>,
    /// Do not wait for the end
    #[arg(long)]
    detach: bool,
    /// Most bytes a second at each brick, such as 50MiB/s [default: as fast as possible]
    #[arg(long, value_parser = parse_rate)]
    rate: Option<Rate>,
}

#[derive(Serialize)]
struct ScrubSummary {
    objects: u64,
    bytes: u64,
    damaged: Vec<String>,
    /// The job that did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
}

impl Report for ScrubSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for damage in &self.damaged {
            writeln!(out, "damaged: {}", Printable(damage))?;
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

pub(crate) async fn run(args: Scrub, session: &mut CommandContext) -> Result {
    let client = session.connect_to_cluster().await?;
    if client.status().await?.role == "brick" {
        return scrub_brick(&args, &client, session).await;
    }
    let bricks = args.bricks.into_iter().map(BrickId).collect();
    let begun = job::ask_one(&client, &JobRequest::Scrub { bricks, rate: args.rate.and_then(|rate| rate.0) }).await?;
    if args.detach {
        return session.output.print(&JobLine::of(begun, false));
    }
    let ended = job::follow(&client, session, begun.job, "scrubbing").await?;
    job::check_end(&ended)?;
    let JobView { job, objects, done: bytes, mut findings, found, .. } = ended;
    let more = found.saturating_sub(findings.len() as u64);
    if more > 0 {
        findings.push(format!("{more} more"));
    }
    report(&ScrubSummary { objects, bytes, damaged: findings, job: Some(job.0) }, session)
}

/// Scrubs the brick that was connected to, in one request.
async fn scrub_brick(args: &Scrub, client: &AdminClient, session: &mut CommandContext) -> Result {
    if args.detach || args.rate.is_some() || !args.bricks.is_empty() {
        let what = "a brick that is named scrubs itself at once, and as fast as possible";
        return Err(Failure::usage(what).hint("Name a peer server for a job with --brick, --rate and --detach."));
    }
    let progress = Progress::start("scrubbing", &session.output);
    let shown = progress.clone();
    let show = move |now: client::Progress| {
        shown.set_total(now.total, 0);
        shown.set_done(now.done, 0);
    };
    let scrubbed = client.scrub(show).await;
    progress.end();
    let client::ScrubReport { objects, bytes, damaged } = scrubbed?;
    report(&ScrubSummary { objects, bytes, damaged, job: None }, session)
}

fn report(summary: &ScrubSummary, session: &mut CommandContext) -> Result {
    session.output.print(summary)?;
    match summary.damaged.len() {
        0 => Ok(()),
        damaged => {
            Err(Failure::corrupt(format!("the store is damaged in {}", pluralize(damaged as u64, "place", "places"))))
        }
    }
}
