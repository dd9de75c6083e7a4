//! A client: executes random operations one after the other and records them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use check::history::{Kind, Operation, Outcome, Step};
use client::{Client, CommitOutcome, ConnectOptions, Error, ErrorKind, IsolationLevel};
use model::Object;
use mortar_tests::acts::{Act, run_acts};
use mortar_tests::keyed_objects::single_object;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use tokio::sync::watch;
use tokio::time;

use crate::acts;
use crate::objects::Objects;
use crate::recorder::{InDoubt, Recorder};

/// Timeout of a client while servers fail.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of a large write.
const LARGE_WRITE_BYTES: usize = 1 << 20;
/// The longest pause between two operations, in milliseconds.
const REST_MS: u64 = 10;

/// The work of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientWork {
    /// Transactions of all kinds.
    Transactions,
    /// Writes and reads outside of transactions. The number selects the objects that it writes.
    Singles(usize),
    /// Large writes.
    Ballast,
}

/// A client.
pub(crate) struct Worker {
    pub(crate) work: ClientWork,
    url: String,
    cluster: Client,
    record: Arc<Recorder>,
    objects: Arc<Objects>,
    rng: StdRng,
    /// Its number in the history.
    number: u64,
    /// The transactions with unknown outcomes.
    in_doubt: Vec<(Client, InDoubt)>,
    /// Its current activity, for reports of hangs.
    activity: Arc<Mutex<String>>,
}

fn options() -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.timeout = TIMEOUT;
    options.connect_timeout = TIMEOUT;
    options.snapshots = true;
    options
}

impl Worker {
    pub(crate) async fn connect(
        does: ClientWork,
        url: String,
        record: Arc<Recorder>,
        objects: Arc<Objects>,
        seed: u64,
        doing: Arc<Mutex<String>>,
    ) -> Self {
        let cluster = connect_client(&url, &record).await;
        let (rng, number) = (StdRng::seed_from_u64(seed), record.next_client());
        Self { work: does, url, cluster, record, objects, rng, number, in_doubt: Vec::new(), activity: doing }
    }

    /// Works until `end` is set. Returns the transactions with unknown outcomes.
    pub(crate) async fn run(mut self, end: watch::Receiver<bool>) -> Vec<(Client, InDoubt)> {
        while !*end.borrow() {
            match self.work {
                ClientWork::Transactions => self.transaction().await,
                ClientWork::Singles(writer) => self.single_value(writer).await,
                ClientWork::Ballast => self.write_ballast().await,
            }
            let rest = self.rng.random_range(0..REST_MS);
            time::sleep(Duration::from_millis(rest)).await;
        }
        *self.activity.lock().unwrap() = "has ended".to_owned();
        self.in_doubt
    }

    fn begin(&self, kind: Kind, what: &str) -> Operation {
        let operation = self.record.begin_operation(self.number, kind);
        *self.activity.lock().unwrap() =
            format!("{what}, operation {} since {} ms", operation.number, operation.invoked);
        operation
    }

    // -------------------------------------------------------------------------------------------- transactions

    async fn transaction(&mut self) {
        match self.rng.random_range(0..200) {
            0..70 => {
                let acts = acts::use_lists(&mut self.rng, &self.objects, &self.record, 60);
                self.run_explicit(IsolationLevel::Optimistic, acts).await;
            }
            70..100 => {
                let acts = acts::use_lists(&mut self.rng, &self.objects, &self.record, 70);
                self.run_explicit(IsolationLevel::Locks, acts).await;
            }
            100..125 => {
                let acts = acts::use_lists(&mut self.rng, &self.objects, &self.record, 80);
                self.transact(acts).await;
            }
            125..145 => {
                let acts = acts::use_lists(&mut self.rng, &self.objects, &self.record, 0);
                self.run_explicit(IsolationLevel::Snapshot, acts).await;
            }
            145..175 => {
                let acts = acts::transfer(&mut self.rng, &self.objects);
                match self.rng.random_range(0..4) {
                    0 => self.run_explicit(IsolationLevel::Locks, acts).await,
                    1 => self.run_explicit(IsolationLevel::Optimistic, acts).await,
                    _ => self.transact(acts).await,
                }
            }
            175..199 => {
                let acts = acts::audit(&self.objects);
                let level = *[IsolationLevel::Optimistic, IsolationLevel::Snapshot, IsolationLevel::Locks]
                    .choose(&mut self.rng)
                    .unwrap();
                self.run_explicit(level, acts).await;
            }
            _ => self.abandon_locks().await,
        }
    }

    async fn run_explicit(&mut self, level: IsolationLevel, acts: Vec<Act>) {
        let writes = acts.iter().any(Act::writes);
        let kind = match level {
            IsolationLevel::Snapshot => Kind::Snapshot,
            IsolationLevel::Locks => Kind::Locks,
            IsolationLevel::Optimistic if writes => Kind::Transaction,
            IsolationLevel::Optimistic => Kind::ReadOnly,
        };
        let mut operation = self.begin(kind, &format!("{level:?} by hand"));
        let ahead = self.rng.random_bool(0.5);
        let t = self.cluster.begin(level);
        let mut steps = Vec::new();
        if let Err(error) = run_acts(&t, &acts, ahead, &mut steps).await {
            self.check_error(&operation, &error, &[ErrorKind::Conflict, ErrorKind::Unavailable]);
            t.abort();
            return self.record.end_operation(operation, Outcome::Failed);
        }
        operation.steps = steps;
        let writes = operation.steps.iter().any(|step| !matches!(step, Step::Read(..)));
        let mut decided = match t.commit().await {
            Ok(decided) => decided,
            // For example, the disk of a brick is full.
            Err(error) if error.kind() == ErrorKind::Unknown => CommitOutcome::Unknown(t.id()),
            Err(error) => {
                self.check_error(&operation, &error, &[ErrorKind::Unavailable, ErrorKind::Full]);
                return self.record.end_operation(operation, Outcome::Failed);
            }
        };
        if let CommitOutcome::Unknown(txn) = decided
            && writes
            && self.rng.random_bool(0.5)
        {
            decided = self.cluster.outcome(txn).await.unwrap_or(decided);
        }
        self.finish_operation(operation, decided, writes);
    }

    fn finish_operation(&mut self, mut operation: Operation, decided: CommitOutcome, writes: bool) {
        let outcome = match decided {
            CommitOutcome::Committed(receipt) => {
                operation.at = Some(receipt.timestamp.0);
                Outcome::Ok
            }
            CommitOutcome::Conflict(_) => Outcome::Failed,
            // A transaction without writes has no effect.
            CommitOutcome::Unknown(_) if !writes => Outcome::Failed,
            CommitOutcome::Unknown(txn) => {
                self.in_doubt
                    .push((self.cluster.clone(), InDoubt { number: operation.number, client: operation.client, txn }));
                Outcome::Unknown
            }
        };
        self.record.end_operation(operation, outcome);
    }

    /// Uses `Client::transact`. All its attempts append the same elements, so an attempt that took effect although it was reported as
    /// failed is noticed.
    async fn transact(&mut self, acts: Vec<Act>) {
        let mut operation = self.begin(Kind::Transaction, "transact");
        let ahead = self.rng.random_bool(0.5);
        let (done, steps) = transact(&self.cluster, &acts, ahead).await;
        let outcome = match done {
            Ok(()) => Outcome::Ok,
            Err(error) if error.kind() == ErrorKind::Unknown => Outcome::Unknown,
            Err(error) => {
                self.check_error(&operation, &error, &[ErrorKind::Unavailable, ErrorKind::Full]);
                Outcome::Failed
            }
        };
        operation.steps = steps;
        self.record.end_operation(operation, outcome);
    }

    /// Takes locks and disconnects; another client replaces it.
    async fn abandon_locks(&mut self) {
        let operation = self.begin(Kind::Locks, "leaving");
        let t = self.cluster.begin(IsolationLevel::Locks);
        let list = self.objects.lists.choose(&mut self.rng).unwrap().oid;
        // Whether it gets the lock does not matter.
        let _ = t.get_for_update(list).await;
        // A client with unknown outcomes stays connected.
        let is_needed = self.in_doubt.iter().any(|(_, open)| open.client == self.number);
        if self.rng.random_bool(0.5) && !is_needed {
            self.cluster.close();
        }
        self.record.end_operation(operation, Outcome::Failed);
        self.cluster = connect_client(&self.url, &self.record).await;
        self.number = self.record.next_client();
    }

    // -------------------------------------------------------------------------------------------- single values

    async fn single_value(&mut self, writer: usize) {
        if self.rng.random_bool(0.5) {
            let kept = self.objects.singles[writer].choose(&mut self.rng).unwrap().clone();
            let new = self.record.next_element();
            let mut operation = self.begin(Kind::Write, "put");
            operation.steps.push(Step::write(kept.key, new));
            let outcome = match self.cluster.put(kept.oid, single_object(new)).await {
                Ok(()) => Outcome::Ok,
                Err(error) => {
                    self.check_error(&operation, &error, &[ErrorKind::Unknown, ErrorKind::Unavailable]);
                    if error.kind() == ErrorKind::Unknown { Outcome::Unknown } else { Outcome::Failed }
                }
            };
            return self.record.end_operation(operation, outcome);
        }
        let of = self.objects.singles.choose(&mut self.rng).unwrap();
        let kept = of.choose(&mut self.rng).unwrap().clone();
        let mut operation = self.begin(Kind::Read, "get");
        let outcome = match self.cluster.get(kept.oid).await {
            Ok(object) => match kept.value(object.as_ref()) {
                Ok(value) => {
                    operation.steps.push(Step::read(kept.key, value));
                    Outcome::Ok
                }
                Err(what) => {
                    self.record.record_unexpected(format!("operation {}: {}: {what}", operation.number, kept.key));
                    Outcome::Failed
                }
            },
            Err(error) => {
                self.check_error(&operation, &error, &[ErrorKind::Unavailable]);
                Outcome::Failed
            }
        };
        self.record.end_operation(operation, outcome);
    }

    /// Fills the log of a brick. The checkers ignore these writes.
    async fn write_ballast(&mut self) {
        let at = self.objects.ballast.choose(&mut self.rng).unwrap().oid;
        let t = self.cluster.begin(IsolationLevel::Optimistic);
        if t.put(at, Object::blob(vec![1; LARGE_WRITE_BYTES].into())).await.is_ok() {
            let _ = t.commit().await;
        }
    }

    /// Records an error that faults do not explain.
    fn check_error(&self, operation: &Operation, error: &Error, kinds: &[ErrorKind]) {
        let is_stop = self.record.may_stop && error.kind() == ErrorKind::Stopped;
        if !kinds.contains(&error.kind()) && !is_stop {
            self.record.record_unexpected(format!("operation {} ({:?}): {error}", operation.number, operation.kind));
        }
    }
}

/// Connects a new client; waits while no server answers.
async fn connect_client(url: &str, record: &Recorder) -> Client {
    loop {
        match Client::connect_with(url, options()).await {
            Ok(cluster) => return cluster,
            Err(error) if error.kind() == ErrorKind::Unavailable => time::sleep(Duration::from_millis(50)).await,
            Err(error) => {
                record.record_unexpected(format!("a client connects: {error}"));
                time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Carries out acts until they are committed. Returns the steps of the successful attempt.
pub(crate) async fn transact(cluster: &Client, acts: &[Act], ahead: bool) -> (client::Result<()>, Vec<Step>) {
    let seen = Mutex::new(Vec::new());
    let done = cluster.transact(|t| {
        let seen = &seen;
        async move {
            let mut steps = Vec::new();
            let result = run_acts(&t, acts, ahead, &mut steps).await;
            *seen.lock().unwrap() = steps;
            result
        }
    });
    let done = done.await;
    (done, seen.into_inner().unwrap())
}

/// Writes each object, and then reads all lists and accounts in one transaction, as a client with a long timeout. Afterwards nothing
/// is in doubt. Returns what it has read.
pub(crate) async fn finish(cluster: &Client, record: &Recorder, objects: &Objects) -> client::Result<Vec<Step>> {
    let number = record.next_client();
    for kept in &objects.lists {
        let mut operation = record.begin_operation(number, Kind::Transaction);
        let (done, steps) = transact(cluster, &[Act::Append(kept.clone(), record.next_element())], false).await;
        operation.steps = steps;
        let outcome = if done.is_ok() { Outcome::Ok } else { Outcome::Unknown };
        record.end_operation(operation, outcome);
        done?;
    }
    let others: Vec<Act> =
        objects.accounts.iter().chain(objects.singles.iter().flatten()).cloned().map(Act::Touch).collect();
    transact(cluster, &others, true).await.0?;
    let mut operation = record.begin_operation(number, Kind::ReadOnly);
    let lists = objects.lists.iter().cloned().map(Act::Read);
    let acts: Vec<Act> = lists.chain(objects.accounts.iter().cloned().map(Act::Balance)).collect();
    let (done, steps) = transact(cluster, &acts, false).await;
    done?;
    operation.steps = steps.clone();
    record.end_operation(operation, Outcome::Ok);
    Ok(steps)
}

/// A client connects, takes a lock, and ends without closing its session.
pub(crate) fn spawn_dying_client(url: String, objects: Arc<Objects>, which: usize) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let cluster = Client::connect_with(&url, options()).await.ok()?;
            let t = cluster.begin(IsolationLevel::Locks);
            let list = &objects.lists[which % objects.lists.len()];
            let _ = t.get_for_update(list.oid).await;
            Some((cluster, t))
        });
        // The connection ends first, so messages of the client's destructor are not sent.
        drop(runtime);
        drop(client);
    });
}
