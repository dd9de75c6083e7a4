//! The client of a cluster: it reads objects from cached copies and changes them in transactions.
//!
//! ```no_run
//! # use client::Client;
//! # async fn example() -> client::Result<()> {
//! let cluster = Client::connect("mortar://localhost:6680,localhost:6681/main").await?;
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
//! A [`Client`] is connected to one peer server of its URL, and to another one when that is lost. A read of a cached object
//! takes one lock and does not wait; any other read waits for the peer server. `driver` decides what is sent and when a call
//! ends; the modules around it carry that out.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use model::{ClassId, Error, ErrorKind, Filter, NodeId, Object, Oid, Result, SpaceId};
use protocol::ident::{HlcTimestamp, TxnId};
use query::Query;
use rand::RngExt;
use tokio::time;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use crate::client_core::Core;
use crate::rows::QueryOptions;
use crate::{
    CommitOutcome, ConnectOptions, Events, IsolationLevel, Names, ObjectStat, Objects, Rows, ScanResults, SpaceStatus,
    Transaction, link,
};

/// How often [`Client::transact`] runs a transaction that conflicts before it takes locks.
const OPTIMISTIC_TRIES: u32 = 3;
/// How often a brick may refuse contents that a transaction with locks names. What such a transaction has read is current, unless the brick
/// was restarted: uploaded bytes are gone, and no further attempt brings them back.
const LOCKED_TRIES: u32 = 3;
/// Every this many attempts, a conflict is logged as a warning.
const WARN_AFTER: u32 = 100;
/// The longest pause after the first conflict; it doubles after each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(100);

/// A client of one space of a cluster. Clones share its connection and its cached copies.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) core: Arc<Core>,
}

impl Client {
    /// Connects to `mortar://HOST:PORT[,HOST:PORT…][/SPACE]`: to the first peer server that answers, and later to another one if
    /// the connection ends or the peer server hangs. The client works on the runtime of its caller: it is closed when that ends.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if no peer server answers in time, [`ErrorKind::Denied`] if none admits the client.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, ConnectOptions::default()).await
    }

    /// Connects with `options`.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_with(url: &str, options: ConnectOptions) -> Result<Self> {
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

    /// Reads or changes the classes and indexes of the space. What makes a unique index returns when the values of all objects that exist
    /// are bound: [`Client::complete_unique_indexes`].
    ///
    /// # Errors
    /// Those of the operation.
    pub async fn describe(&self, request: proto::schema::Describe) -> Result<proto::schema::Described> {
        use proto::schema::{
            self,
            describe::Request::{CreateIndex, Define},
        };
        let may_make_index = matches!(request.request, Some(CreateIndex(_) | Define(_)));
        let (Response::Described(described), _) = self.core.ask(Request::Describe(Box::new(request))).await? else {
            return Err(crate::client_core::unexpected_answer_error());
        };
        // A commit that did not know of a new unique index would be refused.
        self.core.refresh_classes().await?;
        if may_make_index {
            let building = schema::IndexState::Building as i32;
            let unique = described.indexes.iter().filter(|index| index.unique && index.state == building);
            let unique: Vec<u32> = unique.map(|index| index.id).collect();
            if !unique.is_empty() {
                self.complete_unique_indexes(unique).await?;
            }
        }
        Ok(described)
    }

    // -------------------------------------------------------------------------------------------- failures

    /// Subscribes to events of the space: bricks fail and recover, the space stops and resumes, this client loses its peer
    /// server. The first events tell the current status.
    ///
    /// ```no_run
    /// # use client::{Client, Event};
    /// # async fn example(cluster: Client) -> client::Result<()> {
    /// let mut events = cluster.events()?;
    /// while let Some(event) = events.next().await {
    ///     match event {
    ///         Event::BrickFailed(brick) => eprintln!("brick {} cannot be reached", brick.brick),
    ///         Event::BrickRecovered(brick) => eprintln!("brick {} is back", brick.brick),
    ///         Event::Stopped { why } => eprintln!("{why}"),
    ///         other => eprintln!("{other}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the client was closed.
    pub fn events(&self) -> Result<Events> {
        Events::new(self.core.clone())
    }

    /// The status of the space, as the peer server has sent it last; `None` before the first time.
    #[must_use]
    pub fn space_status(&self) -> Option<SpaceStatus> {
        self.core.with_driver(|driver, _| driver.status().cloned()).ok()?
    }

    // -------------------------------------------------------------------------------------------- transactions

    /// Begins a transaction. A transaction that is dropped before its commit changes nothing.
    #[must_use]
    pub fn begin(&self, level: IsolationLevel) -> Transaction {
        Transaction::begin(&self.core, level, None)
    }

    /// Runs `body` in a transaction and commits it. If the transaction conflicts with another one, `body` runs again; after the
    /// third conflict with locks. Returns what `body` returned in the attempt that was committed.
    ///
    /// `body` may run several times, and an attempt that conflicts may have read an inconsistent state. Only the attempt that
    /// commits counts, or one that fails after a consistent read. `body` must not run another transaction that uses objects of this one: the
    /// two would conflict, and then wait for each other's locks.
    ///
    /// # Errors
    /// The error of `body`, if what it read was consistent, or if `body` has aborted the transaction: it has changed nothing then.
    /// [`ErrorKind::Unavailable`], with the brick, if something that the transaction needs has not arrived in time: it has changed
    /// nothing. [`ErrorKind::Stopped`], at once, while the space is stopped. [`ErrorKind::Unknown`] if the outcome of the commit
    /// did not arrive in time.
    pub async fn transact<T, F>(&self, mut body: impl FnMut(Transaction) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut attempts = self.attempts();
        loop {
            let transaction = attempts.begin();
            let result = body(transaction.clone()).await;
            if let Some(value) = attempts.end(&transaction, result).await? {
                return Ok(value);
            }
        }
    }

    /// Begins a series of attempts: [`Client::transact`] in steps.
    #[must_use]
    pub fn attempts(&self) -> Attempts {
        Attempts::new(&self.core)
    }

    /// Finds out the outcome of a transaction whose commit was [`CommitOutcome::Unknown`]. A transaction that is not committed by
    /// then never will be.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] if a brick has deferred the transaction and does not answer in time; [`ErrorKind::Invalid`] for a
    /// transaction whose outcome was told, or that this client did not commit.
    pub async fn outcome(&self, txn: TxnId) -> Result<CommitOutcome> {
        self.core.find_outcome(txn).await
    }

    // -------------------------------------------------------------------------------------------- outside of transactions

    /// Reads an object outside of transactions, from the nearest copy. `None` if there is no such object.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the object is of another space; [`ErrorKind::Unavailable`] if it does not arrive in time;
    /// [`ErrorKind::Stopped`]; [`ErrorKind::Denied`].
    pub async fn get(&self, oid: Oid) -> Result<Option<Object>> {
        self.core.get(oid).await
    }

    /// Replaces an object outside of transactions, and waits until that is durable. Other clients see the writes of this client
    /// in the order in which they were started. If the future is dropped, the object is not replaced unless that was sent already.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ErrorKind::Invalid`] and [`ErrorKind::TooLarge`] for an object that cannot be stored there, and for the root
    /// directory; [`ErrorKind::Unknown`] if it is not known whether the object was replaced. After every other error it was not.
    pub async fn put(&self, oid: Oid, object: Object) -> Result<()> {
        self.core.check_write(oid, Some(&object))?;
        self.core.put(oid, protocol::page_cache::ObjectState::Value(object)).await
    }

    /// Reads the newest durable state of an object from its brick, not from a copy.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn read_latest(&self, oid: Oid) -> Result<Option<Object>> {
        self.core.read_object(oid, false).await
    }

    /// Reads an object from the cache of the peer server, without a copy in this client: for objects that are read once.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn read_cached(&self, oid: Oid) -> Result<Option<Object>> {
        self.core.read_object(oid, true).await
    }

    /// Finds the objects of some classes that match `filter`, at the bricks and outside of transactions. They arrive in portions
    /// and in no order, by [`ScanResults::next`].
    #[must_use]
    pub fn find(&self, classes: impl IntoIterator<Item = ClassId>, filter: Option<Filter>) -> ScanResults {
        ScanResults::new(self.core.clone(), classes.into_iter().collect(), filter)
    }

    /// Lists the names of the space that begin with `prefix`, in the order of a walk through the directories, with the objects that
    /// they are bound to. Paths begin with `/`, and so may `prefix`. It is not part of a transaction: a name that is bound or unbound
    /// meanwhile may be listed or not.
    ///
    /// ```no_run
    /// # async fn example(cluster: client::Client) -> client::Result<()> {
    /// let mut names = cluster.names("notes/");
    /// while let Some(portion) = names.next().await? {
    ///     portion.iter().for_each(|name| println!("{} {}", name.path, name.oid));
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn names(&self, prefix: &str) -> Names {
        Names::new(self.core.clone(), prefix)
    }

    /// Lists the objects of the space, with or without names, in portions. Not part of a transaction: objects that are created or
    /// deleted meanwhile may be listed or not.
    #[must_use]
    pub fn objects(&self) -> Objects {
        Objects::new(self.core.clone())
    }

    /// The object that a path is bound to, if any; the root directory for an empty path. Not part of a transaction:
    /// [`Transaction::resolve`] is.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ErrorKind::Invalid`] and [`ErrorKind::TooLarge`] for an invalid path.
    pub async fn resolve(&self, path: &str) -> Result<Option<Oid>> {
        self.core.resolve(path).await
    }

    /// The object that a name in a directory is bound to, if any. Not part of a transaction: [`Transaction::entry`] is.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ErrorKind::Invalid`] for a name that is not one component of a path.
    pub async fn entry(&self, directory: Oid, name: &str) -> Result<Option<Oid>> {
        self.core.entry(directory, name).await
    }

    /// The properties of an object, read from its brick. `None` if there is no such object. Not part of a transaction.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn stat(&self, oid: Oid) -> Result<Option<ObjectStat>> {
        self.core.stat(oid).await
    }

    /// The first members of a set after `after`, in the order of identifiers, at most `limit`. Not part of a transaction.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        self.core.members(collection, after, limit).await
    }

    /// The first names in a directory after `after`, in the order of their bytes, with their objects, at most `limit`. Not part of a
    /// transaction.
    ///
    /// # Errors
    /// As [`Client::entry`].
    pub async fn entries(&self, directory: Oid, after: Option<&str>, limit: usize) -> Result<Vec<(String, Oid)>> {
        self.core.entries(directory, after, limit).await
    }

    /// The absolute paths that an object is bound to, found from the object. Not part of a transaction.
    ///
    /// # Errors
    /// As [`Client::get`]; [`ErrorKind::Corrupt`] if a directory is below itself.
    pub async fn names_of(&self, oid: Oid) -> Result<Vec<String>> {
        self.core.names_of(oid).await
    }

    /// The sets that an object is a member of, found from the object. Not part of a transaction.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn collections_of(&self, oid: Oid) -> Result<Vec<Oid>> {
        self.core.collections_of(oid).await
    }

    /// The number of entries of a set or a directory, and the commit timestamp of the last change of an entry; zero if there was
    /// none. Not part of a transaction.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn collection_totals(&self, collection: Oid) -> Result<(u64, HlcTimestamp)> {
        self.core.collection_totals(collection).await
    }

    /// Runs a query outside of transactions: each object is as it was when the query examined it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], with the position in the query, if it does not match the classes of the space;
    /// [`ErrorKind::Unavailable`] if a brick or the peer server does not answer in time.
    pub async fn query(&self, query: &Query) -> Result<Rows> {
        if let Some(rows) = self.core.look_up_unique(query).await? {
            return Ok(rows);
        }
        Rows::ask(&self.core, query, QueryOptions::default(), None).await
    }

    /// Runs a query and records its steps: [`Rows::explanation`].
    ///
    /// # Errors
    /// As [`Client::query`].
    pub async fn explain(&self, query: &Query) -> Result<Rows> {
        Rows::ask(&self.core, query, QueryOptions { explain: true, ..QueryOptions::default() }, None).await
    }

    /// Closes the client, and waits for at most 100 ms until its server knows. If it was opened by `Client::open`, the servers in this
    /// process end, and the directory can be opened again when this returns.
    ///
    /// # Errors
    /// If the directory cannot be closed.
    pub async fn shutdown(self) -> Result<()> {
        self.close();
        self.core.wait_until_sent().await;
        #[cfg(feature = "embedded")]
        if let Some(own) = self.core.embedded_handle().get().filter(|servers| servers.is_owner) {
            return own.server.shutdown().await;
        }
        Ok(())
    }

    /// Closes the client: its calls fail, and its locks and copies are released. The same happens when the last of its clones and
    /// transactions is dropped.
    pub fn close(&self) {
        self.core.close();
    }
}

/// The attempts of a transaction that runs again after a conflict: [`Client::transact`] in steps, for callers that are no futures, such as
/// clients of other languages.
///
/// ```no_run
/// # async fn example(cluster: client::Client, oid: client::Oid) -> client::Result<()> {
/// let mut attempts = cluster.attempts();
/// loop {
///     let transaction = attempts.begin();
///     let result = transaction.get(oid).await;
///     if let Some(object) = attempts.end(&transaction, result).await? {
///         println!("{object:?}");
///         return Ok(());
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Attempts {
    core: Arc<Core>,
    /// The identifier of the first attempt, which is the age of all.
    first: Option<TxnId>,
    count: u32,
    /// How many attempts with locks named contents that a brick refused.
    refused_with_locks: u32,
    backoff: Duration,
}

impl Attempts {
    fn new(core: &Arc<Core>) -> Self {
        Self { core: core.clone(), first: None, count: 0, refused_with_locks: 0, backoff: FIRST_BACKOFF }
    }

    /// Begins the next attempt.
    pub fn begin(&mut self) -> Transaction {
        let level = if self.count < OPTIMISTIC_TRIES { IsolationLevel::Optimistic } else { IsolationLevel::Locks };
        self.count += 1;
        let transaction = Transaction::begin(&self.core, level, self.first);
        self.first.get_or_insert(transaction.id());
        transaction
    }

    /// Ends an attempt with what its body has returned: commits it after a success. `None` if it conflicts: then this returns when it is
    /// time for the next one.
    ///
    /// # Errors
    /// As [`Client::transact`].
    pub async fn end<T>(&mut self, transaction: &Transaction, result: Result<T>) -> Result<Option<T>> {
        let conflict = match result {
            Ok(value) => match transaction.commit().await {
                Ok(CommitOutcome::Committed(_)) => return Ok(Some(value)),
                Ok(CommitOutcome::Conflict(conflict)) => conflict.to_string(),
                Ok(CommitOutcome::Unknown(txn)) => return Err(self.core.unknown_outcome_error(txn)),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    self.refused_with_locks += u32::from(transaction.inner.level == IsolationLevel::Locks);
                    if self.refused_with_locks == LOCKED_TRIES {
                        return Err(Error::new(ErrorKind::NotFound, error.message()));
                    }
                    error.message().to_owned()
                }
                // The values were claimed, and the commit was refused. What it read may be old. The next attempt looks them up before.
                Err(error) if error.kind() == ErrorKind::Exists && transaction.is_over() => error.message().to_owned(),
                // The other object may have got the value in a transaction that changed what was read here.
                Err(error) if error.kind() == ErrorKind::Exists => match transaction.check().await {
                    Ok(CommitOutcome::Conflict(conflict)) => conflict.to_string(),
                    _ => return Err(error),
                },
                Err(error) => return Err(error),
            },
            Err(error) if error.kind() == ErrorKind::Conflict => error.message().to_owned(),
            // `body` has ended it: there is nothing to check.
            Err(error) if transaction.is_over() => return Err(error),
            // It cannot be checked: a brick that it needs does not answer.
            Err(error) if transaction.has_timed_out() && error.kind() == ErrorKind::Unavailable => return Err(error),
            // If what it read was inconsistent, its error means nothing.
            Err(error) => match transaction.check().await? {
                CommitOutcome::Committed(_) => return Err(error),
                CommitOutcome::Conflict(conflict) => conflict.to_string(),
                CommitOutcome::Unknown(_) => "it is not known whether what it read was consistent".to_owned(),
            },
        };
        transaction.abort();
        if self.count.is_multiple_of(WARN_AFTER) {
            tracing::warn!(attempts = self.count, conflict, "a transaction conflicts again and again");
        } else {
            tracing::debug!(attempts = self.count, conflict, "a transaction conflicts and is run again");
        }
        let part: f64 = rand::rng().random();
        time::sleep(self.backoff.mul_f64(part)).await;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        Ok(None)
    }
}
