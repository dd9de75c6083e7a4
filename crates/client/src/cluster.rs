//! A cluster as its services see it: objects that are read from copies at hand, and changed in transactions.
//!
//! ```no_run
//! # use client::cluster::Cluster;
//! # async fn example() -> client::Result<()> {
//! let cluster = Cluster::connect("mortar://localhost:6680,localhost:6681/main").await?;
//! let counter = cluster
//!     .transact(|t| async move {
//!         let counter = t.create_blob("1")?;
//!         t.bind("counter", counter).await?;
//!         Ok(counter)
//!     })
//!     .await?;
//! # let _ = counter; Ok(()) }
//! ```
//!
//! The rules are the machine's of [`protocol::session`]; here is what it needs: a connection to one of the peer servers,
//! to the next when that breaks, and a task that does what it is time for. A read of what is at hand takes a lock and no
//! await; whoever misses waits for what the connection brings.

mod classes;
mod core;
mod events;
mod link;
mod loaded;
mod names;
mod options;
mod outcome;
mod page_allocator;
mod prefetch;
mod rows;
mod scan_results;
mod timeout_error;
mod transaction;
mod typed;
mod unique;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, Filter, NodeId, Object, Oid, Result, SpaceId};
use protocol::ident::TxnId;
use query::Query;
use rand::RngExt;
use tokio::time;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use self::core::Core;
use self::rows::QueryOptions;
pub use events::{Event, Events};
pub use loaded::{Loaded, LoadedMut};
pub use names::Names;
pub use options::ClusterOptions;
pub use outcome::{CommitOutcome, ConflictReason};
pub use rows::{Explanation, Rows};
pub use scan_results::ScanResults;
pub use transaction::{IsolationLevel, PlacementHint, Transaction};
pub use wire::cluster::{BrickStatus, SpaceStatus};

/// Tries of a transaction that meets others before it takes locks.
const OPTIMISTIC_TRIES: u32 = 3;
/// How long a transaction rests after its first conflict, at most; twice as long after each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(100);

/// A client of a cluster, for one of its spaces. Clones are the same client: they share copies and connection.
#[derive(Clone, Debug)]
pub struct Cluster {
    core: Arc<Core>,
}

impl Cluster {
    /// Connects to `mortar://HOST:PORT[,HOST:PORT…][/SPACE]`: to the first peer server that answers, and to another one
    /// when that is lost.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, ClusterOptions::default()).await
    }

    /// Connects as `options` say.
    pub async fn connect_with(url: &str, options: ClusterOptions) -> Result<Self> {
        Ok(Self { core: link::connect(url, options).await? })
    }

    /// The space of this client.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.core.space
    }

    /// The logical nodes of the space, over which its objects are spread.
    #[must_use]
    pub fn nodes(&self) -> &[NodeId] {
        &self.core.nodes
    }

    /// Asks for the classes and indexes of the space, or changes them: as
    /// [`Client::describe`](crate::Client::describe).
    ///
    /// # Errors
    /// Those of the operation, with words for people.
    pub async fn describe(&self, request: Vec<u8>) -> Result<Bytes> {
        let describe = proto::query::Describe { space: String::new(), request: request.into() };
        match self.core.ask(Request::Describe(describe)).await? {
            (Response::Described(described), _) => Ok(described.answer),
            _ => Err(Error::new(ErrorKind::Internal, "the peer server has answered something else")),
        }
    }

    // -------------------------------------------------------------------------------------------- failures

    /// What happens to the space from now on: bricks that fail and recover, the space that stops and goes on, peer servers that
    /// this client loses. First comes how things are.
    ///
    /// ```no_run
    /// # use client::cluster::{Cluster, Event};
    /// # async fn example(cluster: Cluster) -> client::Result<()> {
    /// let mut events = cluster.events()?;
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         Event::BrickFailed(brick) => eprintln!("do without what is on brick {}", brick.brick),
    ///         Event::BrickRecovered(brick) => eprintln!("brick {} is back", brick.brick),
    ///         Event::Stopped { why } => eprintln!("{why}"),
    ///         other => eprintln!("{other}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the client was closed.
    pub fn events(&self) -> Result<Events> {
        Events::new(self.core.clone())
    }

    /// How things are in the space, as the peer server told last; `None` if none has told yet.
    #[must_use]
    pub fn space_status(&self) -> Option<SpaceStatus> {
        self.core.lock().ok()?.monitor.status().cloned()
    }

    // -------------------------------------------------------------------------------------------- transactions

    /// Begins a transaction. Dropped before its commit, nothing of it happens.
    #[must_use]
    pub fn begin(&self, level: IsolationLevel) -> Transaction {
        Transaction::begin(&self.core, level, None)
    }

    /// Runs a transaction to its end: `body` reads and writes, and is run again if that has met another transaction; with
    /// locks after the third time. What it returns is returned when the transaction is committed.
    ///
    /// `body` may run several times, and some of its tries may read what never was together: only the one that commits
    /// counts, or that fails with what it read being right.
    ///
    /// # Errors
    /// What `body` fails with, if all that it read was there at one time: nothing of the transaction has happened then.
    /// [`ErrorKind::Unavailable`], with the brick, if something that it needs has not come in time: nothing has happened either.
    /// [`ErrorKind::Stopped`], at once, while the space is stopped; [`ErrorKind::Unknown`] if it was not possible to find out in time whether it has.
    pub async fn transact<T, F>(&self, mut body: impl FnMut(Transaction) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut first: Option<TxnId> = None;
        let mut rest = FIRST_BACKOFF;
        for tries in 0_u32.. {
            let level = if tries < OPTIMISTIC_TRIES { IsolationLevel::Optimistic } else { IsolationLevel::Locks };
            let transaction = Transaction::begin(&self.core, level, first);
            first.get_or_insert(transaction.id());
            let result = body(transaction.clone()).await;
            let clash = match result {
                Ok(value) => match transaction.commit().await {
                    Ok(CommitOutcome::Committed(_)) => return Ok(value),
                    Ok(CommitOutcome::Conflict(clash)) => clash.to_string(),
                    Ok(CommitOutcome::Unknown(txn)) => return Err(self.core.unknown_outcome_error(txn)),
                    Err(error) if error.kind() == ErrorKind::Conflict => error.message().to_owned(),
                    // Whoever has the value may have got it because what was read here has changed.
                    Err(error) if error.kind() == ErrorKind::Exists => match transaction.check().await {
                        Ok(CommitOutcome::Conflict(clash)) => clash.to_string(),
                        _ => return Err(error),
                    },
                    Err(error) => return Err(error),
                },
                Err(error) if error.kind() == ErrorKind::Conflict => error.message().to_owned(),
                // It does not know what it would have read: there is nothing to be checked, and nobody to ask.
                Err(error) if transaction.has_timed_out() && error.kind() == ErrorKind::Unavailable => {
                    return Err(error);
                }
                // What it read may never have been together: then its error means nothing.
                Err(error) => match transaction.check().await? {
                    CommitOutcome::Committed(_) => return Err(error),
                    CommitOutcome::Conflict(clash) => clash.to_string(),
                    CommitOutcome::Unknown(_) => "it could not be found out whether what was read was right".to_owned(),
                },
            };
            transaction.abort();
            tracing::debug!(tries, clash, "a transaction is tried again");
            let part: f64 = rand::rng().random();
            time::sleep(rest.mul_f64(part)).await;
            rest = (rest * 2).min(MAX_BACKOFF);
        }
        Err(Error::new(ErrorKind::Unavailable, "the transaction met others each time"))
    }

    /// Finds out how a transaction has ended whose commit was [`CommitOutcome::Unknown`]: if it has not happened, it never will.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nobody who knows answers in time.
    pub async fn resolve(&self, txn: TxnId) -> Result<CommitOutcome> {
        self.core.resolve(txn).await
    }

    // -------------------------------------------------------------------------------------------- outside of transactions

    /// An object, outside of any transaction: the nearest copy. `None` if there is none.
    pub async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        self.core.get(oid).await
    }

    /// Replaces an object outside of any transaction, and waits until that is durable. Others see this client's writes in the
    /// order in which they were begun.
    pub async fn put(&self, oid: Oid, object: Object) -> Result<()> {
        object.check()?;
        self.core.put(oid, protocol::page_cache::ObjectState::Value(object)).await
    }

    /// The newest durable state of an object, past all copies.
    pub async fn read_latest(&self, oid: Oid) -> Result<Option<Object>> {
        self.core.read_object(oid, false).await
    }

    /// An object as the cache of the peer server has it: for what is read once, and not kept here.
    pub async fn read_cached(&self, oid: Oid) -> Result<Option<Object>> {
        self.core.read_object(oid, true).await
    }

    /// The objects of some classes of which `filter` holds, as they are at the bricks now: outside of any transaction, in no
    /// order. They come in portions, with [`ScanResults::next`].
    #[must_use]
    pub fn find(&self, classes: impl IntoIterator<Item = ClassId>, filter: Option<Filter>) -> ScanResults {
        ScanResults::new(self.core.clone(), classes.into_iter().collect(), filter)
    }

    /// The names of the space that begin so, in order, with the objects that they are bound to: outside of any transaction, so
    /// one that is bound or unbound meanwhile may be among them or not.
    ///
    /// ```no_run
    /// # async fn example(cluster: client::cluster::Cluster) -> client::Result<()> {
    /// let mut names = cluster.names("notes/");
    /// while let Some(portion) = names.next().await? {
    ///     portion.iter().for_each(|(path, oid)| println!("{path} {oid}"));
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn names(&self, prefix: &str) -> Names {
        Names::new(self.core.clone(), prefix)
    }

    /// Asks a query outside of any transaction: each object is as it was when it was looked at.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the query does not fit the classes of the space, with its place;
    /// [`ErrorKind::Unavailable`] if no peer server answers in time.
    pub async fn query(&self, query: &Query) -> Result<Rows> {
        Rows::ask(&self.core, query, QueryOptions::default(), None).await
    }

    /// The same, and tells at the end what was done: [`Rows::explanation`].
    ///
    /// # Errors
    /// As [`Cluster::query`].
    pub async fn explain(&self, query: &Query) -> Result<Rows> {
        Rows::ask(&self.core, query, QueryOptions { explain: true, ..QueryOptions::default() }, None).await
    }

    /// Ends the client: what waits fails, and what it holds is let go of. The same happens when the last of its clones and
    /// transactions is dropped.
    pub fn close(&self) {
        self.core.close();
    }
}
