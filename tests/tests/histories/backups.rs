//! Backups that are taken while the cluster works and fails: by single commands, and by one that follows the cluster.
//!
//! A backup that succeeded is restored as another cluster, and so are moments of the one that follows. What that has is recorded as reads that began and
//! ended with the command, or with the wait for the moment (K1), so the checkers judge it with all other operations: it is one consistent moment, has
//! all that was acknowledged before, and nothing that began later.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use check::history::{Kind, Operation, Outcome, Step};
use client::{Client, ConnectOptions, IsolationLevel};
use mortar_tests::following::FollowingBackup;
use mortar_tests::{CommandOutput, Server, mortar, run};
use tokio::task::{self, JoinHandle};

use crate::objects::Objects;
use crate::recorder::Recorder;
use crate::run::RECOVERY_TIMEOUT;
use crate::worker;
use mortar_tests::acts::Act;

/// Exit codes of a backup of a cluster that fails: something was out of reach, or the space was stopped.
const EXPECTED_EXITS: [i32; 2] = [0, 5];

/// How long a moment of the backup that follows is waited for, while the cluster fails.
const MOMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// The backups of a run.
pub(crate) struct Backups {
    dir: PathBuf,
    record: Arc<Recorder>,
    /// From the first backup on.
    following: Option<Arc<FollowingBackup>>,
    /// Each with what it has when it has succeeded. At most the last one is under way.
    begun: Vec<JoinHandle<Option<Backup>>>,
}

/// A backup that succeeded.
struct Backup {
    archive: Archive,
    /// The read of everything that it stands for, and when it ended.
    read: Operation,
    ended: u64,
}

/// What is restored.
enum Archive {
    File(PathBuf),
    /// A moment of the backup that follows.
    Moment(Arc<FollowingBackup>, String),
}

impl Archive {
    fn restore(&self, target: &Path) -> CommandOutput {
        match self {
            Self::File(archive) => run(mortar(&["restore", "--data"]).arg(target).arg(archive)),
            Self::Moment(following, moment) => following.restore(moment, target),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File(archive) => archive.display().to_string(),
            Self::Moment(_, moment) => format!("the moment {moment}"),
        }
    }
}

impl Backups {
    /// `dir` is where archives go.
    pub(crate) fn new(dir: &Path, record: Arc<Recorder>) -> Self {
        Self { dir: dir.to_owned(), record, following: None, begun: Vec::new() }
    }

    /// Begins a backup, or to wait for a moment of the one that follows, in turn, unless one is under way.
    pub(crate) fn begin(&mut self, url: String) {
        if self.begun.last().is_some_and(|last| !last.is_finished()) {
            return;
        }
        let follow = || Arc::new(FollowingBackup::start(&url, &self.dir.join("following"), &[]));
        let following = self.following.get_or_insert_with(follow).clone();
        let record = self.record.clone();
        let read = record.begin_operation(record.next_client(), Kind::ReadOnly);
        let archive = self.dir.join(format!("{}.mortar", read.number));
        let is_moment = self.begun.len() % 2 == 1;
        self.begun.push(task::spawn_blocking(move || match is_moment {
            true => wait_for_moment(following, read, &record),
            false => take(&url, archive, read, &record),
        }));
    }

    /// Restores each backup, and records what the restored cluster has. Returns their number.
    pub(crate) async fn restore(&mut self, objects: &Objects) -> Result<u64, String> {
        let mut count = 0;
        for begun in self.begun.drain(..) {
            let Some(Backup { archive, read, ended }) = begun.await.unwrap() else { continue };
            let name = archive.name();
            let server = task::spawn_blocking(move || restored_server(&archive)).await.unwrap()?;
            let failed = |why: String| format!("the cluster that was restored from {name}: {why}");
            record_state(&server, (read, ended), &self.record, objects).await.map_err(failed)?;
            count += 1;
        }
        let Some(following) = self.following.take() else { return Ok(count) };
        let mut following = Arc::into_inner(following).ok_or("a moment is waited for")?;
        if following.has_ended() {
            return Err(format!("the backup that follows has ended: {}", following.log()));
        }
        let (is_right, log) = (following.stop().success(), following.log());
        // If everything fails all the time, not even its first archive may be complete.
        match is_right || log.contains("stopped before the first archive was complete") {
            true => Ok(count),
            false => Err(format!("the backup that follows has failed: {log}")),
        }
    }
}

/// Waits for a moment of the backup that follows.
fn wait_for_moment(following: Arc<FollowingBackup>, read: Operation, record: &Recorder) -> Option<Backup> {
    match following.next_moment(MOMENT_TIMEOUT) {
        Some(moment) => Some(Backup { archive: Archive::Moment(following, moment), read, ended: record.now() }),
        None => {
            record.end_operation(read, Outcome::Failed);
            None
        }
    }
}

/// Runs the command.
fn take(url: &str, archive: PathBuf, read: Operation, record: &Recorder) -> Option<Backup> {
    let done = run(mortar(&["--server", url, "--timeout", "3", "backup"]).arg(&archive));
    if done.code == 0 {
        return Some(Backup { archive: Archive::File(archive), read, ended: record.now() });
    }
    if !EXPECTED_EXITS.contains(&done.code) {
        record.record_unexpected(format!("a backup ends with {}: {}", done.code, done.stderr));
    }
    record.end_operation(read, Outcome::Failed);
    None
}

/// A server on what is restored from an archive.
fn restored_server(archive: &Archive) -> Result<Server, String> {
    let mut server = Server::new(&[]);
    let done = archive.restore(&server.data());
    if done.code != 0 {
        return Err(format!("{} cannot be restored: {}", archive.name(), done.stderr));
    }
    server.launch();
    server.wait_ready();
    Ok(server)
}

/// Records what a restored cluster has: lists and accounts as one transaction that reads only, and single values as reads of one client.
async fn record_state(
    server: &Server,
    (mut read, ended): (Operation, u64),
    record: &Recorder,
    objects: &Objects,
) -> Result<(), String> {
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
