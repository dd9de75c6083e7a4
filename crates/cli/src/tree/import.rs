//! Imports a tree of files as objects.
//!
//! The tree is walked twice: first to count it and to find its directories, which become collections, and then to import the files.
//! Many small files share a transaction, and several transactions are in flight. A large file is uploaded individually. Each
//! transaction is complete: a file's object, attributes, name and membership in its directory are created together. So an import
//! that is stopped leaves no partial objects, and can be continued by running it again.

mod batch;
mod directories;
mod existing;
mod large;

use std::collections::HashMap;
use std::sync::Arc;

use client::Client;
use model::{Error, ErrorKind, Oid};
use serde::Serialize;
use tokio::task::JoinSet;

use super::MAX_BATCHES;
use super::plan::{TreePlan, Work};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;

/// Attempts of a transaction after conflicts or broken connections.
const ATTEMPTS: usize = 5;

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
    client: Client,
    progress: Progress,
    json: bool,
    /// Whether no name has the prefix yet, so that files need not be looked up.
    is_prefix_empty: bool,
    /// The collections of the tree's directories, by name.
    directories: HashMap<String, Oid>,
}

impl Job {
    /// Reports a file that could not be imported, and counts it.
    fn report_failure(&self, tally: &mut Tally, message: &str) {
        tally.failed += 1;
        self.progress.suspend(|| output::warn(self.json, "not_imported", message));
    }
}

/// Whether a transaction that failed for this reason may succeed after the current state is read again.
fn is_transient(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable)
}

/// The failure of a transaction after [`ATTEMPTS`] attempts.
fn attempts_exhausted() -> Failure {
    Failure::conflict(format!(
        "{ATTEMPTS} attempts failed: the server is unreachable, or another client changes the same names"
    ))
    .hint("Import again: existing files are skipped.")
}

/// Imports a tree. `json` selects the form of reports about files that could not be imported.
pub(crate) async fn import(client: &Client, plan: &TreePlan, progress: &Progress, json: bool) -> Result<Tally> {
    let survey = plan.survey().await?;
    progress.set_total(survey.bytes, survey.objects);
    let nothing_below = client.names(&plan.prefix.below(), None, 1).await?.is_empty();
    let fresh = nothing_below && client.resolve(plan.prefix.root()).await?.is_none();
    let mut tally = Tally { skipped: survey.skipped, left_out: survey.left_out, ..Tally::default() };
    let mut job = Job {
        client: client.clone(),
        progress: progress.clone(),
        json,
        is_prefix_empty: fresh,
        directories: HashMap::new(),
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
            Work::Small(entries) => drop(running.spawn(async move { batch::import(&job, entries).await })),
            Work::Large(entry) => drop(running.spawn(async move { large::import(&job, entry).await })),
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
