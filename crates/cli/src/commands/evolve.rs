//! `mortar evolve`: rewrites old records in the current version of their classes, as a job of the cluster.
//!
//! Reading does not need it: old records are read through the newest class. It makes them smaller and faster to read,
//! brings defaults into indexes, and removes what removed fields have left.

use std::io::{self, Write};

use clap::Args;
use client::Client;
use client::jobs::{count_objects, upgrade_object};
use meta::catalog::{JobPartView, JobRequest, JobView};
use model::ClassId;
use query::Schema;
use serde::Serialize;

use super::class;
use super::job::{self, JobLine, Rate, parse_rate};
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanCount, Printable, Report, pluralize};
use crate::progress::Progress;

const EXAMPLES: &str = "\
Examples:
  mortar class evolve Person --add 'email:string?' --remove fax
  mortar evolve Person --dry-run       how many records are of before
  mortar evolve Person                 writes those anew, and those of classes that extend it
  mortar evolve                        all classes of the space
  mortar evolve --rate 500/s --detach  slowly, without waiting; `mortar job ls` shows it

A peer server does the work, and another one goes on if it ends. Ctrl-C ends the waiting, not the work: `mortar job cancel
JOB` does. Other commands can be used meanwhile.";

/// Rewrite old records in the current version of their classes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Evolve {
    /// The classes, with those that extend them [default: all]
    #[arg(value_name = "CLASS")]
    classes: Vec<String>,
    /// Count old records without writing
    #[arg(long, conflicts_with_all = ["detach", "rate"])]
    dry_run: bool,
    /// Do not wait for the end
    #[arg(long)]
    detach: bool,
    /// Most objects a second, such as 500/s [default: as fast as possible]
    #[arg(long, value_parser = parse_rate)]
    rate: Option<Rate>,
}

/// The result for one class.
#[derive(Serialize)]
struct EvolveReport {
    class: String,
    objects: u64,
    /// Objects that were rewritten, or would be.
    rewritten: u64,
    dry_run: bool,
    /// The job that did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
}

impl Report for EvolveReport {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { class, objects, rewritten, dry_run, .. } = self;
        let what = if *dry_run { "would be rewritten" } else { "rewritten" };
        writeln!(out, "{}: {} of {} objects {what}", Printable(class), HumanCount(*rewritten), HumanCount(*objects))
    }
}

pub(crate) async fn run(args: Evolve, session: &mut CommandContext) -> Result {
    if args.dry_run {
        return count_old(&args.classes, session).await;
    }
    let client = session.connect().await?;
    let (space, classes) = (client.url().space.clone(), full_names(&args.classes, session).await?);
    let rate = args.rate.and_then(|rate| rate.0);
    let begun = job::ask_one(&client, &JobRequest::Evolve { space, classes, rate }).await?;
    if args.detach {
        return session.output.print(&JobLine::of(begun, false));
    }
    let ended = job::follow(&client, session, begun.job, "evolving").await?;
    report(&ended, session)
}

/// The full names of classes: the last part of a name may be given.
async fn full_names(given: &[String], session: &mut CommandContext) -> Result<Vec<String>> {
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let schema = class::schema(&session.cluster().await?).await?;
    given.iter().map(|name| Ok(schema.class_named(name)?.name.clone())).collect()
}

/// Prints what a job has done.
fn report(ended: &JobView, session: &mut CommandContext) -> Result {
    for JobPartView { part, done, changed, .. } in ended.parts.clone() {
        let job = Some(ended.job.0);
        session.output.print(&EvolveReport { class: part, objects: done, rewritten: changed, dry_run: false, job })?;
    }
    job::check_end(ended)?;
    match ended.found {
        0 => Ok(()),
        found => {
            let what = format!("{} could not be rewritten", pluralize(found, "object", "objects"));
            let hint = format!("`mortar job show {}` lists them.", ended.job);
            Err(Failure::with(Exit::Failure, "not_rewritten", what).hint(hint))
        }
    }
}

/// Counts the objects that are old.
async fn count_old(wanted: &[String], session: &mut CommandContext) -> Result {
    let cluster = session.cluster().await?;
    let schema = class::schema(&cluster).await?;
    let classes = schema.families(wanted)?;
    let progress = Progress::start("counting", &session.output);
    let mut total = 0;
    for class in &classes {
        total += count_objects(&cluster, &schema, *class).await?;
    }
    progress.set_total(0, total);
    let mut counted = Vec::new();
    for class in classes {
        counted.push(count_old_of(&cluster, &schema, class, &progress).await?);
    }
    progress.end();
    counted.iter().try_for_each(|one| session.output.print(one))
}

/// Counts the objects of a class that are old.
async fn count_old_of(cluster: &Client, schema: &Schema, class: ClassId, progress: &Progress) -> Result<EvolveReport> {
    let name = schema.class(class).map(|class| class.name.clone()).unwrap_or_default();
    let mut counted = EvolveReport { class: name, objects: 0, rewritten: 0, dry_run: true, job: None };
    let mut found = cluster.find([class], None);
    while let Some(objects) = found.next().await? {
        counted.objects += objects.len() as u64;
        for (oid, object) in &objects {
            counted.rewritten += u64::from(upgrade_object(schema, *oid, object)?.is_some());
        }
        progress.advance(0, objects.len() as u64);
    }
    Ok(counted)
}
