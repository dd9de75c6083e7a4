//! A client: does one thing after the other, drawn from a seed, and has it recorded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client::cluster::{Cluster, ClusterOptions, Decided, Level, Transaction};
use client::{Error, ErrorKind};
use model::Object;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use sim::history::{Kind, Operation, Outcome, Step};
use tokio::sync::watch;
use tokio::time;

use crate::objects::{self, Kept, Objects, elements, value};
use crate::record::{Open, Record};

/// How long a client waits for an answer, while servers fail.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Lists that are this long are only read.
const LONGEST: usize = 400;
/// Bytes of a large write.
const LARGE: usize = 1 << 20;
/// The longest rest between two operations, in milliseconds.
const REST_MS: u64 = 10;

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Transactions of all kinds.
    Transactions,
    /// Writes and reads outside of transactions; the number says which objects it writes.
    Singles(usize),
    /// Large writes.
    Ballast,
}

/// A client.
pub(crate) struct Client {
    pub(crate) does: Does,
    url: String,
    cluster: Cluster,
    record: Arc<Record>,
    objects: Arc<Objects>,
    rng: StdRng,
    /// Its number in the history.
    number: u64,
    /// What it could not find out.
    open: Vec<(Cluster, Open)>,
    /// What it does, for those who wonder.
    doing: Arc<Mutex<String>>,
}

fn options() -> ClusterOptions {
    let mut options = ClusterOptions::default();
    options.timeout = TIMEOUT;
    options.connect_timeout = TIMEOUT;
    options.snapshots = true;
    options
}

/// What one step of a transaction does with an object.
#[derive(Clone, Debug)]
enum Act {
    Read(Kept),
    /// Appends this.
    Append(Kept, i64),
    /// Reads a balance.
    Balance(Kept),
    /// Adds this to a balance.
    Add(Kept, i64),
    /// Writes what is there already.
    Touch(Kept),
}

impl Client {
    pub(crate) async fn connect(
        does: Does,
        url: String,
        record: Arc<Record>,
        objects: Arc<Objects>,
        seed: u64,
        doing: Arc<Mutex<String>>,
    ) -> Self {
        let cluster = enter(&url, &record).await;
        let (rng, number) = (StdRng::seed_from_u64(seed), record.client());
        Self { does, url, cluster, record, objects, rng, number, open: Vec::new(), doing }
    }

    /// Works until told to end. Returns what it could not find out.
    pub(crate) async fn run(mut self, end: watch::Receiver<bool>) -> Vec<(Cluster, Open)> {
        while !*end.borrow() {
            match self.does {
                Does::Transactions => self.transaction().await,
                Does::Singles(writer) => self.single(writer).await,
                Does::Ballast => self.ballast().await,
            }
            let rest = self.rng.random_range(0..REST_MS);
            time::sleep(Duration::from_millis(rest)).await;
        }
        *self.doing.lock().unwrap() = "has ended".to_owned();
        self.open
    }

    fn begin(&self, kind: Kind, what: &str) -> Operation {
        let operation = self.record.invoked(self.number, kind);
        *self.doing.lock().unwrap() = format!("{what}, operation {} since {} ms", operation.number, operation.invoked);
        operation
    }

    // -------------------------------------------------------------------------------------------- transactions

    async fn transaction(&mut self) {
        match self.rng.random_range(0..200) {
            0..70 => {
                let acts = self.list_acts(60);
                self.by_hand(Level::Optimistic, acts).await;
            }
            70..100 => {
                let acts = self.list_acts(70);
                self.by_hand(Level::Locks, acts).await;
            }
            100..125 => {
                let acts = self.list_acts(80);
                self.transact(acts).await;
            }
            125..145 => {
                let acts = self.list_acts(0);
                self.by_hand(Level::Snapshot, acts).await;
            }
            145..175 => {
                let acts = self.transfer();
                match self.rng.random_range(0..4) {
                    0 => self.by_hand(Level::Locks, acts).await,
                    1 => self.by_hand(Level::Optimistic, acts).await,
                    _ => self.transact(acts).await,
                }
            }
            175..199 => {
                let acts = self.objects.accounts.iter().cloned().map(Act::Balance).collect();
                let level = *[Level::Optimistic, Level::Snapshot, Level::Locks].choose(&mut self.rng).unwrap();
                self.by_hand(level, acts).await;
            }
            _ => self.leave().await,
        }
    }

    /// Some lists, each read or appended to: appends in so many of a hundred cases.
    fn list_acts(&mut self, appends: u32) -> Vec<Act> {
        let count = *[1, 1, 2, 2, 3, 4].choose(&mut self.rng).unwrap();
        let lists: Vec<Kept> = self.objects.lists.sample(&mut self.rng, count).cloned().collect();
        let mut acts = Vec::new();
        for list in lists {
            if self.rng.random_range(0..100) < appends {
                acts.push(Act::Append(list, self.record.element()));
            } else {
                acts.push(Act::Read(list));
            }
        }
        acts
    }

    fn transfer(&mut self) -> Vec<Act> {
        let two: Vec<Kept> = self.objects.accounts.sample(&mut self.rng, 2).cloned().collect();
        let amount = self.rng.random_range(1..10);
        vec![Act::Add(two[0].clone(), -amount), Act::Add(two[1].clone(), amount)]
    }

    async fn by_hand(&mut self, level: Level, acts: Vec<Act>) {
        let writes = acts.iter().any(|act| matches!(act, Act::Append(..) | Act::Add(..)));
        let kind = match level {
            Level::Snapshot => Kind::Snapshot,
            Level::Locks => Kind::Locks,
            Level::Optimistic if writes => Kind::Transaction,
            Level::Optimistic => Kind::ReadOnly,
        };
        let mut operation = self.begin(kind, &format!("{level:?} by hand"));
        let ahead = self.rng.random_bool(0.5);
        let t = self.cluster.begin(level);
        let mut steps = Vec::new();
        if let Err(error) = run_acts(&t, &acts, ahead, &mut steps).await {
            self.expect(&operation, &error, &[ErrorKind::Conflict, ErrorKind::Unavailable]);
            t.abort();
            return self.record.returned(operation, Outcome::Failed);
        }
        operation.steps = steps;
        let writes = operation.steps.iter().any(|step| !matches!(step, Step::Read(..)));
        let mut decided = match t.commit().await {
            Ok(decided) => decided,
            // Such as that a disk is full.
            Err(error) if error.kind() == ErrorKind::Unknown => Decided::Unknown(t.id()),
            Err(error) => {
                self.expect(&operation, &error, &[ErrorKind::Unavailable, ErrorKind::Full]);
                return self.record.returned(operation, Outcome::Failed);
            }
        };
        if let Decided::Unknown(txn) = decided
            && writes
            && self.rng.random_bool(0.5)
        {
            decided = self.cluster.resolve(txn).await.unwrap_or(decided);
        }
        self.ended(operation, decided, writes);
    }

    fn ended(&mut self, mut operation: Operation, decided: Decided, writes: bool) {
        let outcome = match decided {
            Decided::Committed(at) => {
                operation.at = Some(at.0);
                Outcome::Ok
            }
            Decided::Conflict(_) => Outcome::Failed,
            // Nothing of it can happen.
            Decided::Unknown(_) if !writes => Outcome::Failed,
            Decided::Unknown(txn) => {
                self.open
                    .push((self.cluster.clone(), Open { number: operation.number, client: operation.client, txn }));
                Outcome::Unknown
            }
        };
        self.record.returned(operation, outcome);
    }

    /// The same by `transact`. Each of its tries appends the same elements: whichever was said not to have happened and
    /// has, shows.
    async fn transact(&mut self, acts: Vec<Act>) {
        let mut operation = self.begin(Kind::Transaction, "transact");
        let ahead = self.rng.random_bool(0.5);
        let (done, steps) = transact(&self.cluster, &acts, ahead).await;
        let outcome = match done {
            Ok(()) => Outcome::Ok,
            Err(error) if error.kind() == ErrorKind::Unknown => Outcome::Unknown,
            Err(error) => {
                self.expect(&operation, &error, &[ErrorKind::Unavailable, ErrorKind::Full]);
                Outcome::Failed
            }
        };
        operation.steps = steps;
        self.record.returned(operation, outcome);
    }

    /// Locks something, and leaves; another client comes in its place.
    async fn leave(&mut self) {
        let operation = self.begin(Kind::Locks, "leaving");
        let t = self.cluster.begin(Level::Locks);
        let list = self.objects.lists.choose(&mut self.rng).unwrap().oid;
        // Whether it gets the lock does not matter.
        let _ = t.get_for_update(list).await;
        // One that still has to find something out lives on.
        let is_needed = self.open.iter().any(|(_, open)| open.client == self.number);
        if self.rng.random_bool(0.5) && !is_needed {
            self.cluster.close();
        }
        self.record.returned(operation, Outcome::Failed);
        self.cluster = enter(&self.url, &self.record).await;
        self.number = self.record.client();
    }

    // -------------------------------------------------------------------------------------------- single values

    async fn single(&mut self, writer: usize) {
        if self.rng.random_bool(0.5) {
            let kept = self.objects.singles[writer].choose(&mut self.rng).unwrap().clone();
            let new = self.record.element();
            let mut operation = self.begin(Kind::Write, "put");
            operation.steps.push(Step::write(kept.key, new));
            let outcome = match self.cluster.put(kept.oid, objects::single(new)).await {
                Ok(()) => Outcome::Ok,
                Err(error) => {
                    self.expect(&operation, &error, &[ErrorKind::Unknown]);
                    if error.kind() == ErrorKind::Stopped { Outcome::Failed } else { Outcome::Unknown }
                }
            };
            return self.record.returned(operation, outcome);
        }
        let of = self.objects.singles.choose(&mut self.rng).unwrap();
        let kept = of.choose(&mut self.rng).unwrap().clone();
        let mut operation = self.begin(Kind::Read, "get");
        let outcome = match self.cluster.get(kept.oid).await {
            Ok(object) => match value(object.as_ref()) {
                Ok(value) => {
                    operation.steps.push(Step::read(kept.key, value));
                    Outcome::Ok
                }
                Err(what) => {
                    self.record.trouble(format!("operation {}: {}: {what}", operation.number, kept.key));
                    Outcome::Failed
                }
            },
            Err(error) => {
                self.expect(&operation, &error, &[ErrorKind::Unavailable]);
                Outcome::Failed
            }
        };
        self.record.returned(operation, outcome);
    }

    /// Fills the log of a brick. Nobody judges that.
    async fn ballast(&mut self) {
        let at = self.objects.ballast.choose(&mut self.rng).unwrap().oid;
        let t = self.cluster.begin(Level::Optimistic);
        if t.put(at, Object::blob(vec![1; LARGE].into())).await.is_ok() {
            let _ = t.commit().await;
        }
    }

    /// Writes down an error that is not among those that faults explain.
    fn expect(&self, operation: &Operation, error: &Error, kinds: &[ErrorKind]) {
        let is_stop = self.record.may_stop && error.kind() == ErrorKind::Stopped;
        if !kinds.contains(&error.kind()) && !is_stop {
            self.record.trouble(format!("operation {} ({:?}): {error}", operation.number, operation.kind));
        }
    }
}

/// A new client. While nobody answers, it waits.
async fn enter(url: &str, record: &Record) -> Cluster {
    loop {
        match Cluster::connect_with(url, options()).await {
            Ok(cluster) => return cluster,
            Err(error) if error.kind() == ErrorKind::Unavailable => time::sleep(Duration::from_millis(50)).await,
            Err(error) => {
                record.trouble(format!("a client connects: {error}"));
                time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// Does some acts in a transaction. `ahead` says of what is to be written before it is read.
async fn run_acts(t: &Transaction, acts: &[Act], ahead: bool, steps: &mut Vec<Step>) -> client::Result<()> {
    let torn = |what: String| Error::new(ErrorKind::Corrupt, what);
    for act in acts {
        let (Act::Read(kept) | Act::Append(kept, _) | Act::Balance(kept) | Act::Add(kept, _) | Act::Touch(kept)) = act;
        let writes = !matches!(act, Act::Read(_) | Act::Balance(_));
        let object = if writes && ahead { t.get_for_update(kept.oid).await? } else { t.get(kept.oid).await? };
        let Kept { key, oid } = kept;
        match act {
            Act::Read(_) => steps.push(Step::read_list(key, elements(object.as_ref()).map_err(torn)?)),
            Act::Append(_, element) => {
                let mut all = elements(object.as_ref()).map_err(torn)?;
                steps.push(Step::read_list(key, all.clone()));
                if all.len() < LONGEST {
                    all.push(*element);
                    let is_record = object.is_some_and(|object| object.kind == model::Kind::Record);
                    t.put(*oid, objects::list(is_record, &all)).await?;
                    steps.push(Step::append(key, *element));
                }
            }
            Act::Balance(_) => steps.push(Step::read(key, value(object.as_ref()).map_err(torn)?)),
            Act::Add(_, amount) => {
                let balance = value(object.as_ref()).map_err(torn)?;
                steps.push(Step::read(key, balance));
                let new = balance.unwrap_or(0) + amount;
                t.put(*oid, objects::single(new)).await?;
                steps.push(Step::write(key, new));
            }
            Act::Touch(_) => {
                let there = object.ok_or_else(|| torn(format!("{key} is not there")))?;
                t.put(*oid, there).await?;
            }
        }
    }
    Ok(())
}

/// Runs acts until they are committed. Returns what the try that was did and saw.
async fn transact(cluster: &Cluster, acts: &[Act], ahead: bool) -> (client::Result<()>, Vec<Step>) {
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

/// Writes to each object, and then reads all lists and accounts in one transaction, as a client that waits for long: so
/// nothing is in doubt any more. Returns what it has read.
pub(crate) async fn finish(cluster: &Cluster, record: &Record, objects: &Objects) -> client::Result<Vec<Step>> {
    let number = record.client();
    for kept in &objects.lists {
        let mut operation = record.invoked(number, Kind::Transaction);
        let (done, steps) = transact(cluster, &[Act::Append(kept.clone(), record.element())], false).await;
        operation.steps = steps;
        let outcome = if done.is_ok() { Outcome::Ok } else { Outcome::Unknown };
        record.returned(operation, outcome);
        done?;
    }
    let others: Vec<Act> =
        objects.accounts.iter().chain(objects.singles.iter().flatten()).cloned().map(Act::Touch).collect();
    transact(cluster, &others, true).await.0?;
    let mut operation = record.invoked(number, Kind::ReadOnly);
    let lists = objects.lists.iter().cloned().map(Act::Read);
    let acts: Vec<Act> = lists.chain(objects.accounts.iter().cloned().map(Act::Balance)).collect();
    let (done, steps) = transact(cluster, &acts, false).await;
    done?;
    operation.steps = steps.clone();
    record.returned(operation, Outcome::Ok);
    Ok(steps)
}

/// A client comes, locks something, and is gone without a word.
pub(crate) fn come_and_die(url: String, objects: Arc<Objects>, which: usize) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let cluster = Cluster::connect_with(&url, options()).await.ok()?;
            let t = cluster.begin(Level::Locks);
            let list = &objects.lists[which % objects.lists.len()];
            let _ = t.get_for_update(list.oid).await;
            Some((cluster, t))
        });
        // Its connection first: what it would say when it is dropped nobody hears.
        drop(runtime);
        drop(client);
    });
}
