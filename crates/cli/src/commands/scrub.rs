//! `mortar scrub`: reads everything, compares its checksums, and compares what bricks keep about objects with each other. It is a job of the
//! cluster, unless it repairs.

mod collections;
mod references;

use std::io::{self, Write};

use clap::Args;
use client::{AdminClient, ProblemRepair, ScrubOptions, ScrubProblem, ScrubReport};
use meta::catalog::{BrickId, JobRequest, JobView};
use model::{EntryKey, Oid};
use serde::{Serialize, Serializer};

use super::job::{self, JobLine, Rate, parse_rate};
use crate::connection::CommandContext;
use crate::failure::{Exit, Failure, Result};
use crate::output::{HumanBytes, Printable, Report, pluralize};
use crate::progress::Progress;
use references::References;

const EXAMPLES: &str = "\
Examples:
  mortar scrub
  mortar scrub --rate 50MiB/s --detach   slowly, without waiting; `mortar job ls` shows it
  mortar scrub --brick 2
  mortar scrub --json                    one object with all damage; exit code 6 if there is any
  mortar scrub --repair                  put right what can be put right without loss, and say what cannot
  mortar scrub --repair --yes            and free bytes that no object has
  mortar scrub --references              and follow names, members and references to objects at other bricks

All bricks read at the same time. A brick that is started again goes on; the command waits for one that is not alive for --timeout
after the others. Ctrl-C ends the waiting, not the scrub: `mortar job cancel JOB` does. With --repair the command works on one brick after the other, and Ctrl-C ends it.";

/// Read everything that the bricks hold, check it against its checksums, and compare objects with indexes, extents and names
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Scrub {
    /// Only this brick; several in any order [default: all]
    #[arg(long = "brick", value_name = "BRICK")]
    bricks: Vec<u32>,
    /// Do not wait for the end
    #[arg(long, conflicts_with_all = ["repair", "references"])]
    detach: bool,
    /// Most bytes a second at each brick, such as 50MiB/s [default: as fast as possible]
    #[arg(long, value_parser = parse_rate, conflicts_with = "repair")]
    rate: Option<Rate>,
    /// Put right what can be put right without loss; the servers keep running
    #[arg(long)]
    repair: bool,
    /// With --repair: also free bytes that no object has, which may be all that is left of one
    #[arg(long, requires = "repair")]
    yes: bool,
    /// Also follow names, members of sets, references of records and values of unique indexes to their objects, at whatever brick, in the
    /// space of the URL. --repair binds values that are bound to no object, with --yes it removes names and members that lead nowhere
    #[arg(long)]
    references: bool,
}

#[derive(Default, Serialize)]
struct ScrubSummary {
    objects: u64,
    bytes: u64,
    damaged: Vec<String>,
    /// What was wrong and was put right without being asked for.
    corrected: Vec<String>,
    problems: Vec<FoundProblem>,
    /// Damage, and what leads nowhere, beyond what is listed.
    unlisted: u64,
    unlisted_dangling: u64,
    /// The job that did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    /// Whether a brick has failed after others were scrubbed, so that this is what was found before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_partial: bool,
}

/// Rows that contradict each other, or that lead nowhere.
#[derive(Serialize)]
struct FoundProblem {
    #[serde(skip_serializing_if = "Option::is_none")]
    brick: Option<u32>,
    kind: String,
    what: String,
    dangling: bool,
    #[serde(serialize_with = "write_repair")]
    repair: ProblemRepair,
    /// The object that it is about.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "write_object")]
    object: Option<Oid>,
    /// Of a lost entry in that object: its key and its target.
    #[serde(skip)]
    entry: Option<(EntryKey, Oid)>,
}

fn write_object<S: Serializer>(object: &Option<Oid>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&object.map(|oid| oid.to_string()).unwrap_or_default())
}

fn write_repair<S: Serializer>(repair: &ProblemRepair, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(match repair {
        ProblemRepair::Impossible => "impossible",
        ProblemRepair::Possible => "possible",
        ProblemRepair::Loses => "loses",
        ProblemRepair::Done => "done",
        ProblemRepair::NotNeeded => "not_needed",
        ProblemRepair::Busy => "busy",
    })
}

impl FoundProblem {
    fn new(brick: Option<BrickId>, problem: ScrubProblem) -> Self {
        let ScrubProblem { kind, what, dangling, repair, object, entry } = problem;
        Self { brick: brick.map(|brick| brick.0), kind, what, dangling, repair, object, entry }
    }

    /// One that was found by following what leads from one object to another.
    fn followed(kind: &str, what: String, dangling: bool, repair: ProblemRepair) -> Self {
        Self { brick: None, kind: kind.to_owned(), what, dangling, repair, object: None, entry: None }
    }

    /// Whether it is still there.
    fn is_left(&self) -> bool {
        !matches!(self.repair, ProblemRepair::Done | ProblemRepair::NotNeeded)
    }

    /// The note about its repair in the output for people.
    fn repair_note(&self) -> &'static str {
        match self.repair {
            ProblemRepair::Impossible => "",
            ProblemRepair::Possible if collections::is_restorable(self) => {
                " [--repair through a peer server restores it]"
            }
            ProblemRepair::Possible => " [--repair puts it right]",
            ProblemRepair::Loses => " [--repair --yes gives it up]",
            ProblemRepair::Done => " [put right]",
            ProblemRepair::NotNeeded => " [gone]",
            ProblemRepair::Busy => " [not put right, because it was changing all the time: try again]",
        }
    }
}

impl Report for ScrubSummary {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for damage in &self.damaged {
            writeln!(out, "damaged: {}", Printable(damage))?;
        }
        for corrected in &self.corrected {
            writeln!(out, "corrected: {}", Printable(corrected))?;
        }
        for problem in &self.problems {
            let severity = if problem.dangling { "leads nowhere" } else { "contradiction" };
            let brick = problem.brick.map(|brick| format!("brick {brick}: ")).unwrap_or_default();
            writeln!(out, "{severity}: {brick}{}{}", Printable(&problem.what), problem.repair_note())?;
        }
        if self.unlisted + self.unlisted_dangling > 0 {
            let more = pluralize(self.unlisted + self.unlisted_dangling, "more problem", "more problems");
            writeln!(out, "and {more}: {} contradictions", self.unlisted)?;
        }
        writeln!(
            out,
            "checked {}, {}: {}",
            pluralize(self.objects, "object", "objects"),
            HumanBytes(self.bytes),
            match (self.places(), self.left().filter(|problem| problem.dangling).count()) {
                (0, 0) if self.is_partial => "no damage is left, up to the brick that failed".to_owned(),
                (0, 0) if self.corrected.is_empty() => "all is well".to_owned(),
                (0, 0) => "no damage is left".to_owned(),
                (0, dangling) => format!("no damage, {dangling} that lead nowhere"),
                (damaged, _) => format!("{damaged} damaged"),
            }
        )
    }
}

impl ScrubSummary {
    /// The problems that are still there.
    fn left(&self) -> impl Iterator<Item = &FoundProblem> {
        self.problems.iter().filter(|problem| problem.is_left())
    }

    /// How many places are damaged.
    fn places(&self) -> u64 {
        let listed = self.damaged.len() + self.left().filter(|problem| !problem.dangling).count();
        listed as u64 + self.unlisted
    }
}

/// What a scrub has come to.
enum Scrubbed {
    /// It was begun, and goes on.
    Begun(Box<JobView>),
    /// Also if it has failed: what was found, and perhaps given up, before.
    Ended(ScrubSummary, Result),
}

pub(crate) async fn run(args: Scrub, session: &mut CommandContext) -> Result {
    let (mut found, scrubbed) = match scrub(&args, session).await? {
        Scrubbed::Begun(job) => return session.output.print(&JobLine::of(*job, false)),
        Scrubbed::Ended(found, scrubbed) => (found, scrubbed),
    };
    let goes_on = scrubbed.is_ok();
    let restored =
        if args.repair && goes_on { collections::restore(session, &mut found.problems).await } else { Ok(()) };
    let followed =
        if args.references && goes_on { follow_references(&args, session, &mut found).await } else { Ok(()) };
    // What was found, and perhaps put right or given up, is not lost with the rest.
    let printed = session.output.print(&found);
    scrubbed.and(restored).and(followed)?;
    match found.places() {
        0 => printed,
        damaged => Err(Failure::corrupt(format!("the store is damaged in {}", pluralize(damaged, "place", "places")))),
    }
}

async fn follow_references(args: &Scrub, session: &mut CommandContext, found: &mut ScrubSummary) -> Result {
    let cluster = session.cluster().await?;
    let progress = Progress::start("following references", &session.output);
    let repairs = references::Repairs { binds: args.repair, removes: args.yes };
    let mut references = References::default();
    let checked = references::check(&cluster, repairs, &progress, &mut references).await;
    progress.end();
    found.problems.extend(references.problems);
    found.unlisted += references.unlisted;
    found.unlisted_dangling += references.unlisted_dangling;
    checked
}

/// Scrubs the cluster by a job, or bricks one after the other if they are to be repaired or one was connected to.
async fn scrub(args: &Scrub, session: &mut CommandContext) -> Result<Scrubbed> {
    let client = session.connect_to_cluster().await?;
    let is_brick = client.status().await?.role == "brick";
    if is_brick && (args.detach || args.rate.is_some() || !args.bricks.is_empty()) {
        let what = "a brick that is named scrubs itself at once, and as fast as possible";
        return Err(Failure::usage(what).hint("Name a peer server for a job with --brick, --rate and --detach."));
    }
    if is_brick || args.repair {
        return scrub_now(args, session).await.map(|(found, scrubbed)| Scrubbed::Ended(found, scrubbed));
    }
    let bricks = args.bricks.iter().copied().map(BrickId).collect();
    let rate = args.rate.as_ref().and_then(|rate| rate.0);
    let begun = job::ask_one(&client, &JobRequest::Scrub { bricks, rate }).await?;
    if args.detach {
        return Ok(Scrubbed::Begun(Box::new(begun)));
    }
    let ended = job::follow(&client, session, begun.job, "scrubbing").await?;
    job::check_end(&ended)?;
    let JobView { job, objects, done: bytes, findings: damaged, found, corrected, .. } = ended;
    let unlisted = found.saturating_sub(damaged.len() as u64);
    let job = Some(job.0);
    let found = ScrubSummary { objects, bytes, damaged, corrected, unlisted, job, ..ScrubSummary::default() };
    Ok(Scrubbed::Ended(found, Ok(())))
}

/// Scrubs the bricks by requests. The inner result is that of a brick that has failed after others were scrubbed.
async fn scrub_now(args: &Scrub, session: &mut CommandContext) -> Result<(ScrubSummary, Result)> {
    let mut bricks = session.bricks().await?;
    let missing = args.bricks.iter().find(|wanted| !bricks.iter().any(|(brick, _)| *brick == Some(BrickId(**wanted))));
    if let Some(missing) = missing {
        return Err(Failure::with(Exit::NotFound, "not_found", format!("there is no brick {missing}")));
    }
    bricks.retain(|(brick, _)| args.bricks.is_empty() || brick.is_some_and(|brick| args.bricks.contains(&brick.0)));
    let progress = Progress::start("scrubbing", &session.output);
    let options = ScrubOptions { repair: args.repair, discard: args.yes };
    let scrub = async |client: &AdminClient, before: u64| {
        let shown = progress.clone();
        let show = move |now: client::Progress| {
            shown.set_total(before + now.total, 0);
            shown.set_done(before + now.done, 0);
        };
        client.scrub_with(options, show).await
    };
    let scrubbed = scrub_all(&bricks, scrub).await;
    progress.end();
    match scrubbed {
        (found, Err(failure)) if !found.is_partial => Err(failure),
        scrubbed => Ok(scrubbed),
    }
}

/// Scrubs the bricks, one after the other, until one fails. `scrub` takes a brick, and the bytes that were scrubbed before.
async fn scrub_all<B>(
    bricks: &[(Option<BrickId>, B)],
    scrub: impl AsyncFn(&B, u64) -> client::Result<ScrubReport>,
) -> (ScrubSummary, Result) {
    let mut summary = ScrubSummary::default();
    for (index, (brick, client)) in bricks.iter().enumerate() {
        let brick = brick.filter(|_| bricks.len() > 1);
        let place = brick.map(|brick| format!("brick {brick}: ")).unwrap_or_default();
        let report = match scrub(client, summary.bytes).await {
            Ok(report) => report,
            Err(error) => {
                summary.is_partial = index > 0;
                let failure = match brick {
                    Some(brick) => Failure::from(error).context(&format!("brick {brick}")),
                    None => error.into(),
                };
                return (summary, Err(failure));
            }
        };
        summary.objects += report.objects;
        summary.bytes += report.bytes;
        summary.problems.extend(report.problems.into_iter().map(|problem| FoundProblem::new(brick, problem)));
        summary.unlisted += report.unlisted;
        summary.unlisted_dangling += report.unlisted_dangling;
        summary.damaged.extend(report.damaged.into_iter().map(|damage| format!("{place}{damage}")));
        summary.corrected.extend(report.corrected.into_iter().map(|corrected| format!("{place}{corrected}")));
    }
    (summary, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_given_up_before_a_brick_failed_is_reported() {
        let given_up = || {
            let (kind, what) = ("extent_unreferenced".to_owned(), "bytes".to_owned());
            ScrubProblem { kind, what, dangling: false, repair: ProblemRepair::Done, object: None, entry: None }
        };
        let scrub = async |brick: &u32, before: u64| match brick {
            2 => Err(client::Error::new(client::ErrorKind::Unavailable, format!("gone after {before} bytes"))),
            _ => Ok(ScrubReport { objects: 1, bytes: 7, problems: vec![given_up()], ..ScrubReport::default() }),
        };
        let bricks = [1, 2, 3].map(|brick| (Some(BrickId(brick)), brick));
        let (summary, scrubbed) = scrub_all(&bricks, &scrub).await;
        let failure = scrubbed.unwrap_err();
        assert_eq!((failure.exit(), failure.message()), (Exit::Unavailable, "brick 2: gone after 7 bytes"));
        assert_eq!((summary.objects, summary.problems.len(), summary.problems[0].brick), (1, 1, Some(1)));
        let mut text = Vec::new();
        summary.write_text(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("brick 1: bytes [put right]") && !text.contains("all is well"), "{text}");
        assert_eq!(serde_json::to_value(&summary).unwrap()["is_partial"], true);
        let (summary, scrubbed) = scrub_all(&bricks[1..], &scrub).await;
        assert!(scrubbed.is_err() && !summary.is_partial, "nothing was scrubbed");
        let (summary, scrubbed) = scrub_all(&bricks[..1], &scrub).await;
        assert!(scrubbed.is_ok() && !summary.is_partial);
    }
}
