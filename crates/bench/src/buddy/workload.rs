//! Transactions of the paper (section 6.2), and where their time goes.
//!
//! A transaction descends the tree of assemblies by a random path and visits all atomic parts of one composite part, depth first: T1, or T2b,
//! which changes all of them. The paper's transactions take about 200 ms with all their misses, so they do not traverse a whole module.

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::{AddAssign, Deref};
use std::panic;
use std::pin::pin;
use std::sync::Barrier;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, CommitOutcome, ConnectOptions, ErrorKind, IsolationLevel, Ref};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::runtime::{Builder, Runtime};

use super::site::{Site, Store};
use crate::Result;
use crate::oo7::Stored;
use crate::oo7::model::{AtomicPart, Document, Module};
use crate::oo7::objects::Objects;
use crate::oo7::space::{Space, SpaceTransaction};
use crate::oo7::traversal::{Counts, Traversal, UpdatedField, Updates, Visits};

/// Visits all atomic parts of a composite part.
const READ: Traversal = Traversal::reading(Visits::AllParts);
/// Changes all of them, too.
const WRITE: Traversal = Traversal::updating(Updates::FirstCompositePart, UpdatedField::Position);

/// The levels of isolation that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Strictly serializable: each commit crosses the link.
    Strict,
    /// Group snapshots of transactions that only read: they send nothing over the link.
    Snapshot,
}

impl Level {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Snapshot => "group snapshot",
        }
    }
}

/// A client of a site, with a cache of its own.
pub(super) struct Member {
    // Before the runtime, which its tasks need.
    space: Space,
    runtime: Runtime,
    module: Ref<Module>,
    level: Level,
    random: SmallRng,
}

/// Where the time of transactions went.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) transactions: u64,
    pub(super) conflicts: u64,
    pub(super) total: Duration,
    pub(super) commit: Duration,
    /// Waits for pages that took at least half of a round trip of the link, and their number.
    pub(super) server_fetch: Duration,
    pub(super) server_fetches: u64,
    /// Other waits for pages, and their number.
    pub(super) peer_fetch: Duration,
    pub(super) peer_fetches: u64,
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.transactions += other.transactions;
        self.conflicts += other.conflicts;
        self.total += other.total;
        self.commit += other.commit;
        self.server_fetch += other.server_fetch;
        self.server_fetches += other.server_fetches;
        self.peer_fetch += other.peer_fetch;
        self.peer_fetches += other.peer_fetches;
    }
}

/// Milliseconds of a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Breakdown {
    pub(super) total: f64,
    pub(super) compute: f64,
    pub(super) commit: f64,
    pub(super) server_fetch: f64,
    pub(super) peer_fetch: f64,
}

impl Times {
    pub(super) fn breakdown(&self) -> Breakdown {
        let per_transaction = |time: Duration| time.as_secs_f64() * 1e3 / self.transactions as f64;
        let waits = self.commit + self.server_fetch + self.peer_fetch;
        Breakdown {
            total: per_transaction(self.total),
            compute: per_transaction(self.total.saturating_sub(waits)),
            commit: per_transaction(self.commit),
            server_fetch: per_transaction(self.server_fetch),
            peer_fetch: per_transaction(self.peer_fetch),
        }
    }

    /// Pages that a transaction waited for.
    pub(super) fn misses(&self) -> f64 {
        (self.server_fetches + self.peer_fetches) as f64 / self.transactions as f64
    }
}

/// Objects of a transaction. Measures how long it waits for those that are not cached.
struct MeasuredObjects<'a> {
    inner: &'a SpaceTransaction,
    /// What takes longer comes from the server.
    half_round_trip: Duration,
    times: Cell<Times>,
}

impl MeasuredObjects<'_> {
    fn add_wait(&self, wait: Duration) {
        let mut times = self.times.get();
        if wait >= self.half_round_trip {
            times.server_fetch += wait;
            times.server_fetches += 1;
        } else {
            times.peer_fetch += wait;
            times.peer_fetches += 1;
        }
        self.times.set(times);
    }
}

impl Objects for MeasuredObjects<'_> {
    async fn get<T: Stored>(&self, reference: Ref<T>) -> client::Result<impl Deref<Target = T>> {
        let mut loading = pin!(self.inner.get(reference));
        // An object that is cached is there at once.
        match poll_fn(|context| Poll::Ready(loading.as_mut().poll(context))).await {
            Poll::Ready(loaded) => loaded,
            Poll::Pending => {
                let begun = Instant::now();
                let loaded = loading.await;
                self.add_wait(begun.elapsed());
                loaded
            }
        }
    }

    async fn update<T: Stored>(&self, reference: Ref<T>, change: impl FnOnce(&mut T)) -> client::Result<()> {
        self.inner.update(reference, change).await
    }

    async fn create<T: Stored>(&self, value: T) -> client::Result<Ref<T>> {
        self.inner.create(value).await
    }

    async fn name_module(&self, number: u32, module: Ref<Module>) -> client::Result<()> {
        self.inner.name_module(number, module).await
    }

    async fn module(&self, number: u32) -> client::Result<Ref<Module>> {
        self.inner.module(number).await
    }

    async fn atomic_part(&self, id: i64) -> client::Result<impl Deref<Target = AtomicPart>> {
        self.inner.atomic_part(id).await
    }

    async fn atomic_parts_since(&self, date: i64) -> client::Result<Vec<impl Deref<Target = AtomicPart>>> {
        self.inner.atomic_parts_since(date).await
    }

    async fn document(&self, title: &str) -> client::Result<impl Deref<Target = Document>> {
        self.inner.document(title).await
    }

    async fn all<T: Stored>(&self) -> client::Result<Vec<impl Deref<Target = T>>> {
        self.inner.all().await
    }
}

impl Member {
    /// A client with an empty cache.
    pub(super) fn connect(store: &Store, site: &Site, number: u64, level: Level) -> Result<Self> {
        // As in a program of its own: a thread for the connection beside that of the transactions.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut options = ConnectOptions::default();
        options.snapshots = level == Level::Snapshot;
        let client = runtime.block_on(Client::connect_with(&site.url, options))?;
        let space = Space::new(client, level == Level::Snapshot);
        Ok(Self { space, runtime, module: store.module, level, random: SmallRng::seed_from_u64(number) })
    }

    /// This number of clients of a site.
    pub(super) fn connect_many(store: &Store, site: &Site, count: usize, level: Level) -> Result<Vec<Self>> {
        (0..count as u64).map(|number| Self::connect(store, site, number, level)).collect()
    }

    /// Reads all composite parts, each in a transaction of its own.
    pub(super) fn warm_up(&self) -> Result<()> {
        self.runtime.block_on(async {
            let transaction = self.space.begin(IsolationLevel::Optimistic);
            let parts = Traversal::composite_parts(&transaction, self.module).await?;
            drop(transaction);
            for part in parts {
                let transaction = self.space.begin(IsolationLevel::Optimistic);
                READ.visit_composite_part(&transaction, part, &mut Counts::default()).await?;
            }
            Ok(())
        })
    }

    /// Runs transactions that only read. `round_trip` is that of the link.
    pub(super) fn read(&mut self, transactions: usize, round_trip: Duration) -> Result<Times> {
        let mut times = Times::default();
        for _ in 0..transactions {
            times += self.run(READ, round_trip)?;
        }
        Ok(times)
    }

    /// Runs a transaction that writes or reads, with equal probability.
    pub(super) fn read_or_write(&mut self, round_trip: Duration) -> Result<Times> {
        let traversal = if self.random.random() { WRITE } else { READ };
        self.run(traversal, round_trip)
    }

    /// Runs a transaction that writes.
    pub(super) fn write(&mut self, round_trip: Duration) -> Result<Times> {
        self.run(WRITE, round_trip)
    }

    /// Runs a transaction, again after each conflict.
    fn run(&mut self, traversal: Traversal, round_trip: Duration) -> Result<Times> {
        let level = match self.level {
            Level::Snapshot if traversal.is_read_only() => IsolationLevel::Snapshot,
            Level::Snapshot | Level::Strict => IsolationLevel::Optimistic,
        };
        let begun = Instant::now();
        let path = self.random.clone();
        let mut times = Times::default();
        loop {
            // The same path again after a conflict.
            self.random = path.clone();
            let transaction = self.space.begin(level);
            let cell = Cell::new(Times::default());
            let objects = MeasuredObjects { inner: &transaction, half_round_trip: round_trip / 2, times: cell };
            let random = &mut self.random;
            let choose = |count: usize| random.random_range(0..count);
            let is_committed = self.runtime.block_on(async {
                match traversal.run_one(&objects, self.module, choose).await {
                    Err(error) if error.kind() == ErrorKind::Conflict => return Ok(false),
                    Err(error) => return Err(error),
                    Ok(_) => {}
                }
                let begun = Instant::now();
                let outcome = transaction.commit().await?;
                let mut times = objects.times.get();
                times.commit += begun.elapsed();
                objects.times.set(times);
                Ok(matches!(outcome, CommitOutcome::Committed(_)))
            })?;
            times += objects.times.get();
            if is_committed {
                break;
            }
            times.conflicts += 1;
        }
        times.transactions = 1;
        times.total = begun.elapsed();
        Ok(times)
    }
}

/// Runs something for all members at the same time. Returns what each has measured.
pub(super) fn run_all<T: Send>(
    members: &mut [Member],
    run: impl Fn(usize, &mut Member) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let barrier = Barrier::new(members.len());
    thread::scope(|scope| {
        let start = |(number, member)| {
            let (barrier, run) = (&barrier, &run);
            scope.spawn(move || {
                barrier.wait();
                run(number, member)
            })
        };
        let threads: Vec<_> = members.iter_mut().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|why| panic::resume_unwind(why))).collect()
    })
}

/// The sum of several measurements.
pub(super) fn sum(all: impl IntoIterator<Item = Times>) -> Times {
    all.into_iter().fold(Times::default(), |mut sum, times| {
        sum += times;
        sum
    })
}
