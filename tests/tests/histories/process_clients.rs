//! Clients in processes of their own: each is a thread there, whose transactions a task here requests and records.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use check::history::{Kind, Operation, Outcome, Step};
use client::Oid;
use model::ClassId;
use mortar_tests::acts::Act;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use crate::acts;
use crate::client_process::{ClientProcess, ClientProgram, Reply};
use crate::objects::Objects;
use crate::recorder::Recorder;
use crate::run::{RECOVERY_TIMEOUT, RunningClient};

/// Options that only the Java program has.
const JAVA_OPTIONS: [&str; 3] = ["jakarta", "new-manager", "by-query"];
/// The longest pause between two transactions of a client, in milliseconds.
const REST_MS: u64 = 5;
/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The message of a conflict of a transaction that a server has given up.
const ABORTED: &str = "was aborted in favor of another one";

/// How the transactions of all these clients have ended.
#[derive(Debug, Default)]
pub(crate) struct OutcomeTally {
    committed: AtomicU64,
    /// Conflicts whose exception names an object of the transaction.
    named_conflicts: AtomicU64,
    /// Conflicts that have no object.
    unnamed_conflicts: AtomicU64,
    retryable: AtomicU64,
    unknown: AtomicU64,
}

impl OutcomeTally {
    pub(crate) fn named_conflicts(&self) -> u64 {
        self.named_conflicts.load(Ordering::Relaxed)
    }
}

impl fmt::Display for OutcomeTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committed, named_conflicts, unnamed_conflicts, retryable, unknown } = self;
        let [committed, named, unnamed, retryable, unknown] =
            [committed, named_conflicts, unnamed_conflicts, retryable, unknown]
                .map(|count| count.load(Ordering::Relaxed));
        write!(f, "{committed} committed, {named} conflicts with an object, {unnamed} others, ")?;
        write!(f, "{retryable} retryable, {unknown} unknown")
    }
}

/// The client processes of a run and their clients.
pub(crate) struct ProcessClients {
    pub(crate) program: ClientProgram,
    pub(crate) processes: Vec<Arc<ClientProcess>>,
    pub(crate) running: Vec<RunningClient>,
    pub(crate) tally: Arc<OutcomeTally>,
    pub(crate) record: Arc<Recorder>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) rng: StdRng,
    pub(crate) end: watch::Receiver<bool>,
    /// Clients in each process.
    pub(crate) threads: u64,
    /// The directory of logs.
    pub(crate) dir: PathBuf,
}

impl ProcessClients {
    /// Starts the clients of a process.
    pub(crate) fn spawn_clients(&mut self, which: usize) {
        let process = self.processes[which].clone();
        process.announce(&self.objects);
        for thread in 0..self.threads {
            let activity = Arc::new(Mutex::new(String::new()));
            let client = ProcessClient {
                program: self.program,
                process: process.clone(),
                thread,
                number: self.record.next_client(),
                record: self.record.clone(),
                objects: self.objects.clone(),
                tally: self.tally.clone(),
                rng: StdRng::seed_from_u64(self.rng.random()),
                activity: activity.clone(),
            };
            let end = self.end.clone();
            let task = tokio::spawn(async move {
                client.run(end).await;
                Vec::new()
            });
            self.running.push((activity, task));
        }
    }

    /// Kills one of the processes, if there are any, and starts another one with new clients in its place.
    pub(crate) fn replace(&mut self, which: usize, url: &str) {
        let Some(which) = which.checked_rem(self.processes.len()) else { return };
        self.processes[which].kill();
        self.processes[which] = ClientProcess::start(self.program, which, url, &self.dir);
        self.spawn_clients(which);
    }

    /// Stops or continues one of the processes, if there are any.
    pub(crate) fn signal(&self, which: usize, signal: Signal) {
        if let Some(which) = which.checked_rem(self.processes.len()) {
            self.processes[which].signal(signal);
        }
    }

    /// Waits until each process has committed another transaction.
    ///
    /// # Errors
    /// If one does not.
    pub(crate) async fn wait_commits(&self) -> Result<(), String> {
        let until = Instant::now() + RECOVERY_TIMEOUT;
        for process in &self.processes {
            let before = process.commits.load(Ordering::Relaxed);
            while process.commits.load(Ordering::Relaxed) == before {
                if Instant::now() > until {
                    return Err(format!("{} commits nothing after the recovery", process.name));
                }
                time::sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }
}

/// A client in a process.
struct ProcessClient {
    program: ClientProgram,
    process: Arc<ClientProcess>,
    thread: u64,
    /// Its number in the history.
    number: u64,
    record: Arc<Recorder>,
    objects: Arc<Objects>,
    tally: Arc<OutcomeTally>,
    rng: StdRng,
    /// Its current activity, for reports of hangs.
    activity: Arc<Mutex<String>>,
}

impl ProcessClient {
    /// Works until `end` is set or the process is killed.
    async fn run(mut self, mut end: watch::Receiver<bool>) {
        let ready = tokio::select! {
            ready = self.process.ready() => ready,
            _ = end.wait_for(|end| *end) => return,
        };
        if let Err(why) = ready
            && !self.process.is_killed()
        {
            self.record.record_unexpected(format!("{}: {why}", self.process.name));
        }
        while !*end.borrow() && self.transaction().await {
            let rest = self.rng.random_range(0..REST_MS);
            time::sleep(Duration::from_millis(rest)).await;
        }
        *self.activity.lock().unwrap() = "has ended".to_owned();
    }

    /// Requests a random transaction and records it. Returns whether the process goes on.
    async fn transaction(&mut self) -> bool {
        let (options, acts) = self.draw();
        let writes = acts.iter().any(Act::writes);
        let kind = match () {
            () if options.contains(&"snapshot") => Kind::Snapshot,
            () if options.contains(&"locks") => Kind::Locks,
            () if writes => Kind::Transaction,
            () => Kind::ReadOnly,
        };
        let operation = self.record.begin_operation(self.number, kind);
        *self.activity.lock().unwrap() = format!(
            "{}, {options:?}, operation {} since {} ms",
            self.process.name, operation.number, operation.invoked
        );
        self.request(operation, &options, &acts).await
    }

    /// The options and acts of a transaction.
    fn draw(&mut self) -> (Vec<&'static str>, Vec<Act>) {
        let (rng, objects, record) = (&mut self.rng, &*self.objects, &*self.record);
        let (level, acts) = match rng.random_range(0..100) {
            0..30 => (None, acts::use_lists(rng, objects, record, 60)),
            30..40 => (Some("locks"), acts::use_lists(rng, objects, record, 70)),
            40..50 => (None, acts::use_lists(rng, objects, record, 0)),
            50..60 => (Some("snapshot"), acts::use_lists(rng, objects, record, 0)),
            60..70 => (Some("jakarta"), acts::use_lists(rng, objects, record, 60)),
            70..80 => (None, acts::transfer(rng, objects)),
            80..85 => (Some("jakarta"), acts::transfer(rng, objects)),
            85..90 => (Some("locks"), acts::transfer(rng, objects)),
            90..95 => (None, acts::audit(objects)),
            95..98 => (Some("snapshot"), acts::audit(objects)),
            _ => (Some("jakarta"), acts::audit(objects)),
        };
        let mut options: Vec<&str> = level.into_iter().collect();
        if rng.random_bool(0.2) {
            options.push("new-manager");
        }
        // A group snapshot has neither locks nor queries.
        if level != Some("snapshot") {
            if rng.random_bool(0.3) {
                options.push("for-update");
            }
            if rng.random_bool(0.2) {
                options.push("by-query");
            }
        }
        if self.program == ClientProgram::Rust {
            options.retain(|option| !JAVA_OPTIONS.contains(option));
            if rng.random_bool(0.5) {
                options.push("resolve");
            }
        }
        (options, acts)
    }

    async fn request(&self, mut operation: Operation, options: &[&str], acts: &[Act]) -> bool {
        let mut replies = self.process.run(operation.number, self.thread, options, acts);
        let mut reply = replies.recv().await;
        let is_committing = if let Some(Reply::Steps(steps)) = reply {
            operation.steps = steps;
            reply = replies.recv().await;
            true
        } else {
            false
        };
        let writes = operation.steps.iter().any(|step| !matches!(step, Step::Read(..)));
        let (counter, outcome) = match reply {
            Some(Reply::Committed) => {
                self.process.commits.fetch_add(1, Ordering::Relaxed);
                (&self.tally.committed, Outcome::Ok)
            }
            Some(Reply::Conflict(named, message)) => {
                (self.check_conflict(&operation, acts, &named, &message), Outcome::Failed)
            }
            Some(Reply::Retryable(_)) => (&self.tally.retryable, Outcome::Failed),
            // A transaction without writes has no effect.
            Some(Reply::Unknown(_)) if is_committing => {
                (&self.tally.unknown, if writes { Outcome::Unknown } else { Outcome::Failed })
            }
            None => return self.end_with_process(operation, writes),
            Some(other) => {
                self.record_unexpected(&operation, &format!("with {options:?}: {other:?}"));
                (&self.tally.unknown, Outcome::Unknown)
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.record.end_operation(operation, outcome);
        true
    }

    /// Records an operation that was running when the process ended. The process says beforehand what it is going to commit.
    fn end_with_process(&self, operation: Operation, writes: bool) -> bool {
        if !self.process.is_killed() {
            self.record_unexpected(&operation, "the process has ended");
        }
        if writes {
            self.record.abandon_operation(operation);
        } else {
            self.record.end_operation(operation, Outcome::Failed);
        }
        false
    }

    /// Checks that a conflict names objects of its transaction. Returns its counter.
    fn check_conflict(&self, operation: &Operation, acts: &[Act], named: &[Oid], message: &str) -> &AtomicU64 {
        let is_foreign = |oid: &&Oid| acts.iter().all(|act| act.object().oid != **oid);
        if let Some(foreign) = named.iter().find(is_foreign) {
            self.record_unexpected(operation, &format!("a conflict names {foreign}, which it does not use: {message}"));
        }
        if !named.is_empty() {
            return &self.tally.named_conflicts;
        }
        // An older transaction has taken a lock away, or a server has given the transaction up.
        let is_aborted = operation.kind == Kind::Locks || message.contains(ABORTED);
        if !is_aborted && !names_guard(message) {
            self.record_unexpected(operation, &format!("a conflict names no object: {message}"));
        }
        &self.tally.unnamed_conflicts
    }

    fn record_unexpected(&self, operation: &Operation, what: &str) {
        let (process, number, kind) = (&self.process.name, operation.number, operation.kind);
        self.record.record_unexpected(format!("{process}, operation {number} ({kind:?}): {what}"));
    }
}

/// Whether a message names a guard, which has no class. It stands for all objects that a query may find.
fn names_guard(message: &str) -> bool {
    message.split_whitespace().filter_map(|word| word.parse().ok()).any(|oid: Oid| oid.class() == ClassId::NONE)
}
