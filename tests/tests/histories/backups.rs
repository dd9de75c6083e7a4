//! Backups that are taken while the cluster works and fails.
//!
//! A backup that succeeded is restored as another cluster. What that has is recorded as reads that began and ended with the command (K1), so the
//! checkers judge it with all other operations: it is one consistent moment, has all that was acknowledged before, and nothing that began later.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, ConnectOptions, IsolationLevel};
use mortar_tests::{Server, mortar, run};
use sim::history::{Kind, Operation, Outcome, Step};
use tokio::task::{self, JoinHandle};

use crate::acts::Act;
use crate::objects::Objects;
use crate::recorder::Recorder;
use crate::run::RECOVERY_TIMEOUT;
use crate::worker;

/// Exit codes of a backup of a cluster that fails: something was out of reach, or the space was stopped.
const EXPECTED_EXITS: [i32; 2] = [0, 5];

/// The backups of a run.
pub(crate) struct Backups {
    dir: PathBuf,
    record: Arc<Recorder>,
    /// Each with what it has when it has succeeded. At most the last one is under way.
    begun: Vec<JoinHandle<Option<Backup>>>,
}

/// A backup that succeeded.
struct Backup {
    archive: PathBuf,
    /// The read of everything that it stands for, and when it ended.
    read: Operation,
    ended: u64,
}

impl Backups {
    /// `dir` is where archives go.
    pub(crate) fn new(dir: &Path, record: Arc<Recorder>) -> Self {
        Self { dir: dir.to_owned(), record, begun: Vec::new() }
    }

    /// Begins a backup, unless one is being taken.
    pub(crate) fn begin(&mut self, url: String) {
        if self.begun.last().is_some_and(|last| !last.is_finished()) {
            return;
        }
        let record = self.record.clone();
        let read = record.begin_operation(record.next_client(), Kind::ReadOnly);
        let archive = self.dir.join(format!("{}.mortar", read.number));
        self.begun.push(task::spawn_blocking(move || take(&url, archive, read, &record)));
    }

    /// Restores each backup, and records what the restored cluster has. Returns their number.
    pub(crate) async fn restore(&mut self, objects: &Objects) -> Result<u64, String> {
        let mut count = 0;
        for begun in self.begun.drain(..) {
            let Some(backup) = begun.await.unwrap() else { continue };
            let archive = backup.archive.clone();
            let server = task::spawn_blocking(move || restored(&archive)).await.unwrap()?;
            let name = backup.archive.display().to_string();
            let failed = |why: String| format!("the cluster that was restored from {name}: {why}");
            record_state(&server, backup, &self.record, objects).await.map_err(failed)?;
            count += 1;
        }
        Ok(count)
    }
}

/// Runs the command.
fn take(url: &str, archive: PathBuf, read: Operation, record: &Recorder) -> Option<Backup> {
    let done = run(mortar(&["--server", url, "--timeout", "3", "backup"]).arg(&archive));
    if done.code == 0 {
        return Some(Backup { archive, read, ended: record.now() });
    }
    if !EXPECTED_EXITS.contains(&done.code) {
        record.record_unexpected(format!("a backup ends with {}: {}", done.code, done.stderr));
    }
    record.end_operation(read, Outcome::Failed);
    None
}

/// A server on what is restored from an archive.
fn restored(archive: &Path) -> Result<Server, String> {
    let mut server = Server::new(&[]);
    let done = run(mortar(&["restore", "--data"]).arg(server.data()).arg(archive));
    if done.code != 0 {
        return Err(format!("{} cannot be restored: {}", archive.display(), done.stderr));
    }
    server.launch();
    server.wait_ready();
    Ok(server)
}

/// Records what a restored cluster has: lists and accounts as one transaction that reads only, and single values as reads of one client.
async fn record_state(server: &Server, backup: Backup, record: &Recorder, objects: &Objects) -> Result<(), String> {
    let Backup { mut read, ended, .. } = backup;
    let mut options = ConnectOptions::default();
    options.timeout = RECOVERY_TIMEOUT;
    let failed = |error: client::Error| error.to_string();
    let client = Client::connect_with(&server.url(), options).await.map_err(failed)?;
    let lists = objects.lists.iter().cloned().map(Act::Read);
    let acts: Vec<Act> = lists.chain(objects.accounts.iter().cloned().map(Act::Balance)).collect();
    let (done, steps) = worker::transact(&client, &acts, false).await;
    done.map_err(failed)?;
    read.steps = steps;
    let reader = record.next_client();
    record.end_operation_at(read, Outcome::Ok, ended);
    for kept in objects.singles.iter().flatten() {
        let mut operation = record.begin_operation(reader, Kind::Read);
        operation.invoked = ended;
        let value = kept.value(client.get(kept.oid).await.map_err(failed)?.as_ref())?;
        operation.steps.push(Step::read(&kept.key, value));
        record.end_operation_at(operation, Outcome::Ok, ended);
    }
    let named = objects.check_names(&client.begin(IsolationLevel::Optimistic)).await.map_err(failed)?;
    client.close();
    if named { Ok(()) } else { Err("names do not resolve to the objects that were bound".to_owned()) }
}
