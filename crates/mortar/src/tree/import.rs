//! A tree of files becomes objects.
//!
//! The tree is walked twice: once to count it and to know its directories, which become collections first, and once to
//! bring the files. Many small files share a transaction, several of which are under way at a time; a large file is an
//! upload of its own. Each transaction is complete in itself: a file's object, attributes, name and place in its
//! directory come together, so an import that is stopped anywhere leaves nothing by halves, and the next one goes on.

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

/// How often a transaction is tried after a conflict or a broken connection.
const ATTEMPTS: usize = 5;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Objects made: files, links and directories.
    pub(crate) imported: u64,
    /// Objects whose content had changed.
    pub(crate) replaced: u64,
    /// Objects of which only attributes had changed.
    pub(crate) updated: u64,
    /// Objects that were there already, as they are on disk.
    pub(crate) unchanged: u64,
    /// Files that `--max-bytes` has no room for.
    pub(crate) left_out: u64,
    /// Sockets, pipes and devices.
    pub(crate) skipped: u64,
    /// Files that could not be imported, each reported on the error stream.
    pub(crate) failed: u64,
    /// Bytes of content that were brought.
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

    /// Objects that are in the store now.
    pub(crate) fn objects(&self) -> u64 {
        self.imported + self.replaced + self.updated + self.unchanged
    }
}

/// What all parts of an import share.
struct Job {
    client: Client,
    progress: Progress,
    json: bool,
    /// Nothing is below the prefix yet: looking each file up would find nothing.
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

/// Whether what failed for this reason may succeed when it is tried again, once it is known what is there.
fn is_transient(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unknown | ErrorKind::Unavailable)
}

/// The failure of a transaction that was tried [`ATTEMPTS`] times.
fn attempts_exhausted() -> Failure {
    Failure::conflict(format!("after {ATTEMPTS} attempts the server is gone, or another client changes the same names"))
        .hint("Import again: what is there already is passed over.")
}

/// Imports a tree; `json` says how files that could not be imported are reported.
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

/// Brings the files and links: batches as the walk finds them, [`MAX_BATCHES`] at a time.
async fn import_files(job: Arc<Job>, plan: TreePlan) -> Result<Tally> {
    let mut work = plan.hand_out();
    let mut tally = Tally::default();
    // Dropping the set, on a failure or Ctrl-C, stops what is under way; a transaction is whole or was never there.
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
