//! Imports a tree of files as objects.
//!
//! The tree is walked twice: first to count it and to find its directories, which are created, and then to import the files. Many
//! small files share a transaction, and several transactions are in flight. A large file has a transaction of its own. Each
//! transaction is complete: a file's object, attributes and name are created together. So an import that is stopped leaves no partial
//! objects, and can be continued by running it again.

mod batch;
mod directories;
mod existing;
mod large;
mod transaction;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use model::{Error, ErrorKind, Oid};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time;
use wire::tasks;

use super::MAX_BATCHES;
use super::plan::{TreePlan, Work};
use super::walk::Entry;
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;

/// Attempts of a transaction whose outcome is unknown, or that finds another state than was read before it.
const MAX_ATTEMPTS: u32 = 5;
/// The pause after the first attempt; it doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Objects created: files, links and directories.
    pub(crate) imported: u64,
    /// Objects whose content was replaced.
    pub(crate) replaced: u64,
    /// Objects of which only attributes were changed.
    pub(crate) updated: u64,
    /// Objects that are equal to the files.
    pub(crate) unchanged: u64,
    /// Files over `--max-bytes`.
    pub(crate) left_out: u64,
    /// Sockets, pipes and devices.
    pub(crate) skipped: u64,
    /// Files that could not be imported, each reported on the error stream.
    pub(crate) failed: u64,
    /// Bytes of imported content.
    pub(crate) bytes: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.imported += other.imported;
        self.replaced += other.replaced;
        self.updated += other.updated;
        self.unchanged += other.unchanged;
        self.left_out += other.left_out;
        self.skipped += other.skipped;
        self.failed += other.failed;
        self.bytes += other.bytes;
    }

    /// Number of objects of the tree in the store.
    pub(crate) fn objects(&self) -> u64 {
        self.imported + self.replaced + self.updated + self.unchanged
    }
}

/// The state shared by all parts of an import.
struct Job {
    cluster: Client,
    progress: Progress,
    json: bool,
    /// The tree's directories in the store, by path.
    directories: HashMap<String, Oid>,
    /// Those that this import has created: their files need not be looked up.
    new_directories: HashSet<Oid>,
}

impl Job {
    /// Reports a file that could not be imported, and counts it.
    fn report_failure(&self, tally: &mut Tally, message: &str) {
        tally.failed += 1;
        self.progress.suspend(|| output::warn(self.json, "not_imported", message));
    }

    /// The directory in the store that a file is in.
    fn parent(&self, entry: &Entry) -> Option<Oid> {
        entry.parent.as_ref().and_then(|path| self.directories.get(path)).copied()
    }
}

/// Whether what failed for this reason may succeed after the current state is read again: the outcome of a transaction is unknown, or
/// another import has taken a name, or an object or staged bytes have disappeared. A server that is away is not waited for again: the
/// client has done so already.
fn is_transient(error: &Error) -> bool {
    use ErrorKind::{Conflict, Exists, NotFound, Unknown};
    matches!(error.kind(), Unknown | Exists | NotFound | Conflict)
}

/// The attempts of a transaction that have failed.
#[derive(Default)]
struct Attempts {
    failed: u32,
}

impl Attempts {
    fn is_first(&self) -> bool {
        self.failed == 0
    }

    /// Waits before the next attempt. Fails if there is none, or if it would fail, too.
    async fn pause(&mut self, error: Error) -> Result {
        let hint = "Import again: existing files are skipped.";
        if !is_transient(&error) {
            let is_away = error.kind() == ErrorKind::Unavailable;
            let failure = Failure::from(error);
            return Err(if is_away { failure.hint(hint) } else { failure });
        }
        let pause = FIRST_PAUSE * 2_u32.pow(self.failed);
        self.failed += 1;
        if self.failed == MAX_ATTEMPTS && error.kind() == ErrorKind::Unknown {
            return Err(Failure::from(error).context(&format!("{MAX_ATTEMPTS} attempts failed")).hint(hint));
        }
        if self.failed == MAX_ATTEMPTS {
            let what = format!("{MAX_ATTEMPTS} attempts failed: another client changes the same names: {error}");
            return Err(Failure::conflict(what).hint(hint));
        }
        time::sleep(pause).await;
        Ok(())
    }
}

/// The message for a file whose directory was not imported.
fn no_directory(entry: &Entry) -> String {
    format!("{}: its directory is not in the store", entry.path.display())
}

/// Imports a tree. `json` selects the form of reports about files that could not be imported.
pub(crate) async fn import(cluster: &Client, plan: &TreePlan, progress: &Progress, json: bool) -> Result<Tally> {
    let survey = plan.survey().await?;
    progress.set_total(survey.bytes, survey.objects);
    let mut tally = Tally { skipped: survey.skipped, left_out: survey.left_out, ..Tally::default() };
    let mut job = Job {
        cluster: cluster.clone(),
        progress: progress.clone(),
        json,
        directories: HashMap::new(),
        new_directories: HashSet::new(),
    };
    tally.add(&directories::import(&mut job, &survey.directories).await?);
    tally.add(&import_files(Arc::new(job), plan.clone()).await?);
    Ok(tally)
}

/// Imports the files and links: batches as the walk finds them, [`MAX_BATCHES`] at a time.
async fn import_files(job: Arc<Job>, plan: TreePlan) -> Result<Tally> {
    let mut work = plan.hand_out();
    let mut tally = Tally::default();
    // Dropping the set, on a failure or Ctrl-C, stops the batches in flight. Transactions are atomic.
    let mut running: JoinSet<Result<Tally>> = JoinSet::new();
    while let Some(next) = work.recv().await {
        let job = Arc::clone(&job);
        match next {
            Work::Small(entries) => {
                drop(tasks::spawn_in(&mut running, async move { batch::import(&job, entries).await }))
            }
            Work::Large(entry) => drop(tasks::spawn_in(&mut running, async move { large::import(&job, entry).await })),
            Work::Failed(message) => job.report_failure(&mut tally, &message),
        }
        while running.len() >= MAX_BATCHES {
            collect_one(&mut running, &mut tally).await?;
        }
    }
    while !running.is_empty() {
        collect_one(&mut running, &mut tally).await?;
    }
    Ok(tally)
}

async fn collect_one(running: &mut JoinSet<Result<Tally>>, tally: &mut Tally) -> Result {
    if let Some(done) = running.join_next().await {
        tally.add(&done.map_err(|e| Failure::new(format!("importing failed: {e}")))??);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[tokio::test]
    async fn last_attempt_says_why_it_failed() {
        for (kind, exit) in [(ErrorKind::Unknown, Exit::Unknown), (ErrorKind::Exists, Exit::Conflict)] {
            let mut attempts = Attempts { failed: MAX_ATTEMPTS - 1 };
            let failure = attempts.pause(Error::new(kind, "the reason")).await.unwrap_err();
            let text = failure.to_string();
            assert!(
                failure.exit() == exit && text.contains("5 attempts failed") && text.contains("Import again"),
                "{text}"
            );
            assert_eq!(text.contains("another client"), kind == ErrorKind::Exists, "{text}");
        }
    }
}
