//! Jobs that may take hours, each on its own thread: backup and scrub.

use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use model::checksum::crc32c;
use model::{Error, ErrorKind, NodeId, Result};
use protocol::cut::CutNumber;
use store::{Amount, ArchiveSink};
use tokio::sync::Semaphore;
use tracing::warn;
use wire::link::{DeferredResponder, Responder};
use wire::proto;
use wire::proto::response::Response;

use super::background_scrub::BackgroundScrub;
use super::backup_base::ReceivedBase;
use super::consistency::Remedy;
use super::content_reads::check_all_contents;
use super::cuts::{Cuts, TakenPart};
use super::nodes::Nodes;
use super::scrub::{NamedProblem, ScrubReport, name_damaged_object};
use super::scrub_job;

/// Most such jobs at a time.
pub(crate) const AT_A_TIME: usize = 4;
/// Most bytes in a piece of an archive that is in memory.
const PIECE: usize = 256 << 10;
/// Most pieces whose memory is kept.
const MAX_SENT: usize = 31;
/// How often a client receives the progress of a scrub.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Most bytes of all descriptions of damage together.
const DAMAGE_BYTES: usize = 1 << 20;

/// Runs a job, unless too many are running.
fn run(
    name: &'static str,
    places: &Arc<Semaphore>,
    reply: Responder<'_>,
    job: impl FnOnce(&DeferredResponder) -> Result<Response> + Send + 'static,
) {
    let Ok(place) = places.clone().try_acquire_owned() else {
        let what = format!("{AT_A_TIME} jobs as this {name} are running already: wait for one to end");
        return reply.fail(&Error::new(ErrorKind::Unavailable, what));
    };
    let deferred = reply.defer();
    let started = thread::Builder::new().name(format!("mortar-{name}")).spawn(move || {
        match job(&deferred) {
            Ok(response) => deferred.send(response, Vec::new()),
            Err(error) => {
                // A backup that follows asks for changes that may not be known, and goes on then.
                if error.kind() != ErrorKind::NotFound {
                    warn!(name, %error, "a long job failed");
                }
                deferred.fail(&error);
            }
        }
        drop(place);
    });
    if let Err(error) = started {
        // The request was answered with an error when it was dropped with the job.
        warn!(name, %error, "a thread cannot be started");
    }
}

/// Streams an archive of the part of a cut, or of another snapshot; with the index of a base, of what has changed since. The contents of
/// `served`, the logical nodes that are served, must all exist.
pub(crate) fn backup(
    part: TakenPart,
    served: BTreeSet<NodeId>,
    base: Option<ReceivedBase>,
    places: &Arc<Semaphore>,
    reply: Responder<'_>,
) {
    run("backup", places, reply, move |deferred| {
        check_all_contents(&part.snapshot, &served).map_err(|error| name_damaged_object(&part.snapshot, error))?;
        let mut pieces = Pieces::new(deferred);
        let written = match base {
            None => {
                pieces.total = part.snapshot.estimated_archive_bytes();
                part.snapshot.backup(&mut pieces, &())
            }
            Some(mut base) => part.snapshot.backup_increment(&mut base, &mut pieces, &()),
        };
        let summary = written.map_err(|error| name_damaged_object(&part.snapshot, error))?;
        Ok(Response::BackupDone(proto::BackupDone { bytes: summary.archive_bytes }))
    });
}

/// Streams an archive of what has changed at a cut since an earlier one, for a backup that follows.
pub(crate) fn backup_changes(
    (cuts, cut, since): (Arc<Cuts>, CutNumber, CutNumber),
    places: &Arc<Semaphore>,
    reply: Responder<'_>,
) {
    run("follow", places, reply, move |deferred| {
        let changes = cuts.changes_since(since)?;
        let part = cuts.take_part(cut)?;
        let mut pieces = Pieces::new(deferred);
        let written = part.snapshot.backup_changes(&changes, &mut pieces, &());
        let summary = written.map_err(|error| name_damaged_object(&part.snapshot, error))?;
        Ok(Response::BackupDone(proto::BackupDone { bytes: summary.archive_bytes }))
    });
}

/// Sends an archive that is in memory. It blocks while the client is slow.
pub(crate) fn send_archive(archive: &[u8], deferred: DeferredResponder) {
    let mut pieces = Pieces::new(&deferred);
    let written = archive.chunks(PIECE).try_for_each(|piece| pieces.write(piece.to_vec(), crc32c(piece)).map(drop));
    match written {
        Ok(()) => {
            let bytes = archive.len() as u64;
            deferred.send(Response::BackupDone(proto::BackupDone { bytes }), Vec::new());
        }
        Err(error) => {
            deferred.fail(&Error::new(ErrorKind::Unavailable, "the backup was not taken").with_source(error));
        }
    }
}

/// Reports the progress of a scrub of a brick, and then its result. Wrong counts of objects are corrected, and other problems if that is
/// asked for.
pub(crate) fn scrub(
    asked: proto::Scrub,
    (nodes, background): (Arc<Nodes>, Arc<BackgroundScrub>),
    places: &Arc<Semaphore>,
    reply: Responder<'_>,
) {
    run("scrub", places, reply, move |deferred| {
        let reported_at = Cell::new(Instant::now());
        let progress = |amount: Amount| {
            if reported_at.get().elapsed() < TELL_EVERY {
                return ControlFlow::Continue(());
            }
            reported_at.set(Instant::now());
            let progress = proto::Progress { done: amount.bytes, total: amount.total_bytes };
            let listening = deferred.send_more(Response::Progress(progress), Vec::new());
            if listening { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let report = nodes.scrub(&progress)?;
        report.log();
        let corrected = scrub_job::correct(&nodes, &report.miscounts);
        let problems = if asked.repair {
            nodes.repair_all(&report.problems, asked.discard)?
        } else {
            unrepaired_problems(&report)
        };
        let is_left = |problem: &&proto::ScrubProblem| {
            !problem.dangling
                && !matches!(problem.repair(), proto::ProblemRepair::Done | proto::ProblemRepair::NotNeeded)
        };
        let left = problems.iter().filter(is_left).count() as u64;
        let damage = report.damaged + report.contradictions - count(&problems, false) + left;
        let first = in_words(&report).into_iter().next();
        let first = first.or_else(|| problems.iter().find(is_left).map(|problem| problem.what.clone()));
        background.report_whole(&nodes.store, damage, report.dangling, first);
        let problems = limit_problems(problems);
        Ok(Response::ScrubDone(proto::ScrubDone {
            objects: report.objects,
            bytes: report.bytes,
            damaged: in_words(&report),
            corrected: corrected.iter().map(ToString::to_string).collect(),
            unlisted: report.contradictions - count(&problems, false),
            unlisted_dangling: report.dangling - count(&problems, true),
            problems,
        }))
    });
}

/// The problems of a scrub that repairs nothing.
fn unrepaired_problems(report: &ScrubReport) -> Vec<proto::ScrubProblem> {
    let repair = |problem: &NamedProblem| match problem.problem.remedy() {
        Remedy::None => proto::ProblemRepair::Impossible,
        Remedy::Lossless | Remedy::Transaction => proto::ProblemRepair::Possible,
        Remedy::Loses => proto::ProblemRepair::Loses,
    };
    report.problems.iter().map(|problem| problem.to_proto(repair(problem))).collect()
}

fn count(problems: &[proto::ScrubProblem], dangling: bool) -> u64 {
    problems.iter().filter(|problem| problem.dangling == dangling).count() as u64
}

/// As many problems as a message can hold.
fn limit_problems(problems: Vec<proto::ScrubProblem>) -> Vec<proto::ScrubProblem> {
    let mut room = DAMAGE_BYTES;
    let fits = |problem: &proto::ScrubProblem| match room.checked_sub(problem.what.len()) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    problems.into_iter().take_while(fits).collect()
}

/// Descriptions of the damage, as many as a message can hold.
fn in_words(report: &ScrubReport) -> Vec<String> {
    let mut room = DAMAGE_BYTES;
    let mut damaged = Vec::new();
    for text in report.damage.iter().map(ToString::to_string) {
        let Some(left) = room.checked_sub(text.len()) else { break };
        room = left;
        damaged.push(text);
    }
    let more = report.damaged - damaged.len() as u64;
    if more > 0 {
        damaged.push(format!("{more} more"));
    }
    damaged
}

/// Sends an archive in pieces. Waits while the client is slow, and fails when it has disconnected.
struct Pieces<'a> {
    deferred: &'a DeferredResponder,
    /// Pieces that were sent, whose memory is used again when they have left: a new mapping for each would cost more than a copy.
    sent: VecDeque<Bytes>,
    /// The estimate that the next piece has.
    total: u64,
}

impl<'a> Pieces<'a> {
    fn new(deferred: &'a DeferredResponder) -> Self {
        Self { deferred, sent: VecDeque::new(), total: 0 }
    }

    /// Memory of a piece that has left, or new memory.
    fn free_memory(&mut self) -> Vec<u8> {
        match self.sent.iter().position(Bytes::is_unique) {
            Some(free) => self.sent.remove(free).map(Vec::from).unwrap_or_default(),
            None => {
                self.sent.truncate(MAX_SENT);
                Vec::new()
            }
        }
    }
}

impl ArchiveSink for Pieces<'_> {
    fn write(&mut self, bytes: Vec<u8>, checksum: u32) -> io::Result<Vec<u8>> {
        let piece = Bytes::from(bytes);
        let response = Response::BackupPiece(proto::BackupPiece { total: std::mem::take(&mut self.total) });
        if !self.deferred.send_more_checked(response, piece.clone(), checksum) {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone"));
        }
        let free = self.free_memory();
        self.sent.push_back(piece);
        Ok(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::brick::scrub::Damage;

    #[test]
    fn a_long_list_of_damage_fits_a_message_and_says_how_much_is_missing() {
        let damage = |what: String| Damage { what, ..Damage::default() };
        let few = ScrubReport { damage: vec![damage("one".into())], damaged: 1, ..ScrubReport::default() };
        assert_eq!(in_words(&few), ["one"]);
        let long = (0..10).map(|_| damage("x".repeat(300_000))).collect();
        let many = in_words(&ScrubReport { damage: long, damaged: 5000, ..ScrubReport::default() });
        assert_eq!((many.len(), many[3].as_str()), (4, "4997 more"));
    }
}
