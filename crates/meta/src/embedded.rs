//! A catalogue stored by one process in a store of its own: for one machine.
//!
//! All of it is in memory; rows of the store make it durable. Writes are processed one after the other: each is checked, made
//! durable, and then made visible. The time to live of sessions is measured by this process's clock. Sessions are durable: after a
//! restart each has its whole time to live again.
//!
//! If this process stalls (stopped, or without CPU time), sessions do not expire because of that: a stall counts as a restart.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{self, Instant};

mod history;
mod rows;
mod state;

use crate::catalogue_move::{self, CatalogueCopy};
use crate::{
    Expect, Key, KeyChange, MetaEntry, MetaSession, MetaSessionId, MetaSnapshot, MetaStore, Pending, Prefix, Revision,
    Watch, WatchEvent, WriteOutcome, meta_store,
};
use rows::Rows;
use state::{EmbeddedState, PreparedWrite};
use store::{RowChanges, Store};
use wire::tasks;

/// A delay of the session clock that counts as a stall.
const STALL_THRESHOLD: Duration = Duration::from_millis(500);
/// Pause before the end of a session is tried again that could not be made durable.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A catalogue in this process. Clones share it.
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

struct Inner {
    rows: Box<dyn Rows>,
    shared: Arc<SharedState>,
    /// Its only permit belongs to the current writer.
    writer: Arc<Semaphore>,
    /// Wakes the session clock.
    sessions: Arc<Notify>,
}

/// The visible state. It does not contain the rows: the store's own thread updates it and must not hold the last handle of the
/// store, because it would then wait for its own end.
struct SharedState {
    state: Mutex<EmbeddedState>,
    /// Notifies of writes.
    revision: watch::Sender<Revision>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sessions.notify_one();
    }
}

impl Embedded {
    /// Opens the catalogue in a store, which may hold other data too. It must not be open elsewhere at the same time.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if rows are damaged; errors of reading the store.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn open(store: &Store) -> Result<Self> {
        Self::with_rows(Box::new(store.clone()))
    }

    /// Begins a new lineage of the catalogue in a store: writes these entries, or keeps its own, and leaves out the entries of sessions, because
    /// no process of the new cluster lives yet.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if rows are damaged; those of the store.
    pub fn begin_lineage(store: &Store, state: Option<MetaSnapshot>) -> Result<()> {
        let mut changes = RowChanges::new();
        match state {
            Some(state) => {
                // A catalogue that was read while it was moved is that of the original.
                let moved = catalogue_move::seal_key()?;
                let is_lasting = |key: &Key, entry: &MetaEntry| entry.session.is_none() && *key != moved;
                let lasting = state.entries.iter().filter(|(key, entry)| is_lasting(key, entry));
                put_all(&mut changes, lasting, state.revision, 0);
            }
            None => {
                let mut removed = Vec::new();
                store.load(&mut |name, value| {
                    match rows::parse(name, value)? {
                        rows::Row::Session { id, .. } => removed.push(rows::session(id, None)),
                        rows::Row::Entry { row, entry, .. } if entry.session.is_some() => {
                            removed.push(rows::entry_removal(row));
                        }
                        rows::Row::Entry { .. } | rows::Row::Header { .. } => {}
                    }
                    Ok(())
                })?;
                removed.into_iter().for_each(|row| put_row(&mut changes, row));
            }
        }
        store.commit_rows(changes).map(drop)
    }

    /// Writes the copy of a moved catalogue to a store that has none, in one step.
    ///
    /// Entries keep their revisions. Numbers of sessions begin at a random one, so that none is that of an earlier session of the cluster.
    ///
    /// # Errors
    /// Those of the store.
    pub fn write_copy(store: &Store, copy: &CatalogueCopy) -> Result<()> {
        let (key, value) = copy.openings.clone();
        let openings = (key, MetaEntry { value, revision: copy.revision, session: None });
        let mut changes = RowChanges::new();
        let last_session = rand::random::<u64>() >> 2;
        put_all(&mut changes, copy.entries.iter().chain([&openings]), copy.revision, last_session);
        store.commit_rows(changes).map(drop)
    }

    /// All entries of the catalogue in a store that is not served.
    ///
    /// # Errors
    /// As [`Embedded::open`].
    pub fn snapshot_of(store: &Store) -> Result<MetaSnapshot> {
        EmbeddedState::load(store, Instant::now())?.read(&Prefix::all())
    }

    /// Removes the catalogue from a store that has other data too, with changes of the caller in the same step.
    ///
    /// # Errors
    /// Those of the store.
    pub fn remove_from(store: &Store, mut changes: RowChanges) -> Result<()> {
        store.rows(rows::ROW_PREFIX, rows::ROWS_END, |name, _| {
            changes.remove(name);
            ControlFlow::Continue(())
        })?;
        store.commit_rows(changes).map(drop)
    }

    /// Whether a store contains a catalogue.
    ///
    /// # Errors
    /// Errors of reading the store.
    pub fn exists_in(store: &Store) -> Result<bool> {
        let mut found = false;
        store.rows(rows::ROW_PREFIX, rows::ROWS_END, |_, _| {
            found = true;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The first key of its rows in a store, and the key behind the last one.
    pub const ROWS: (&[u8], &[u8]) = (rows::ROW_PREFIX, rows::ROWS_END);

    /// A catalogue in memory. It ends when its last handle is dropped.
    ///
    /// # Errors
    /// None are known.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn in_memory() -> Result<Self> {
        Self::with_rows(Box::new(rows::MemoryRows::default()))
    }

    fn with_rows(rows: Box<dyn Rows>) -> Result<Self> {
        let catalogue = Mutex::new(EmbeddedState::load(&*rows, Instant::now())?);
        let seen = Arc::new(SharedState { state: catalogue, revision: watch::Sender::default() });
        let (writer, sessions) = (Arc::new(Semaphore::new(1)), Arc::new(Notify::new()));
        let inner = Arc::new(Inner { rows, shared: seen, writer, sessions });
        tasks::spawn(end_sessions(Arc::downgrade(&inner), inner.sessions.clone()));
        Ok(Self { inner })
    }

    /// Waits for the last write, and makes none any more: sessions that expire stay.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if it was closed before.
    pub async fn close(self) -> Result<()> {
        let _last = self.inner.acquire_permit().await?;
        self.inner.writer.close();
        Ok(())
    }

    /// Discards the history up to a revision, for tests of watches.
    #[cfg(any(test, feature = "conformance"))]
    pub fn forget(&self, up_to: Revision) {
        self.inner.shared.state.lock().forget(up_to);
    }
}

fn put_row(changes: &mut RowChanges, (name, value): rows::RowChange) {
    match value {
        Some(value) => changes.put(&name, value),
        None => changes.remove(&name),
    }
}

/// The rows of a whole catalogue.
fn put_all<'a>(
    changes: &mut RowChanges,
    entries: impl Iterator<Item = &'a (Key, MetaEntry)>,
    revision: Revision,
    last_session: u64,
) {
    let mut last_row = 0;
    for (key, entry) in entries {
        last_row += 1;
        put_row(changes, rows::entry(last_row, key, entry));
    }
    put_row(changes, rows::header(revision, last_row, last_session));
}

impl Inner {
    async fn acquire_permit(&self) -> Result<OwnedSemaphorePermit> {
        let closed = |_| Error::new(ErrorKind::Internal, "the catalogue was closed");
        self.writer.clone().acquire_owned().await.map_err(closed)
    }

    /// Makes a prepared write durable, and then visible. This continues if the caller stops waiting.
    async fn finish(&self, permit: OwnedSemaphorePermit, mut prepared: PreparedWrite) -> Result<Revision> {
        let (done, answer) = oneshot::channel();
        let (seen, rows) = (self.shared.clone(), prepared.take_rows());
        if rows.is_empty() {
            return Ok(prepared.revision());
        }
        self.rows.submit(
            rows,
            Box::new(move |result| {
                let result = result.map(|()| {
                    let revision = prepared.revision();
                    seen.state.lock().apply(prepared, Instant::now());
                    seen.revision.send_replace(revision);
                    revision
                });
                drop(permit);
                // The caller may have stopped waiting.
                let _ = done.send(result);
            }),
        );
        let closed = |_| Error::new(ErrorKind::Unknown, "the store of the catalogue was closed before it answered");
        answer.await.map_err(closed)?
    }

    async fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Result<WriteOutcome> {
        meta_store::check_write(&expects, &changes)?;
        let permit = self.acquire_permit().await?;
        let prepared = self.shared.state.lock().prepare(&expects, changes)?;
        match prepared {
            Some(prepared) => Ok(WriteOutcome::Done(self.finish(permit, prepared).await?)),
            None => Ok(WriteOutcome::Conflict),
        }
    }

    async fn open_session(&self, ttl: Duration) -> Result<MetaSession> {
        meta_store::check_ttl(ttl)?;
        let permit = self.acquire_permit().await?;
        let (session, prepared) = self.shared.state.lock().prepare_opening(ttl)?;
        self.finish(permit, prepared).await?;
        self.sessions.notify_one();
        Ok(session)
    }

    async fn end_session(&self, session: MetaSessionId) -> Result<()> {
        let permit = self.acquire_permit().await?;
        let prepared = self.shared.state.lock().prepare_end(session);
        match prepared {
            Some(prepared) => self.finish(permit, prepared).await.map(drop),
            None => Ok(()),
        }
    }
}

impl MetaStore for Embedded {
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot> {
        Box::pin(async move { self.inner.shared.state.lock().read(&prefix) })
    }

    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot> {
        Box::pin(async move {
            meta_store::check_get(&keys)?;
            Ok(self.inner.shared.state.lock().get(keys))
        })
    }

    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome> {
        Box::pin(self.inner.write(expects, changes))
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
        let moved = self.inner.shared.revision.subscribe();
        let watch = EmbeddedWatch { inner: self.inner.clone(), prefix, after, revisions: moved };
        Box::pin(async { Ok(Box::new(watch) as Box<dyn Watch>) })
    }

    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession> {
        Box::pin(self.inner.open_session(ttl))
    }

    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        Box::pin(async move { self.inner.shared.state.lock().renew_session(session, Instant::now()) })
    }

    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        Box::pin(self.inner.end_session(session))
    }
}

/// A watch: a position in the history, which the history may discard.
struct EmbeddedWatch {
    inner: Arc<Inner>,
    prefix: Prefix,
    after: Revision,
    revisions: watch::Receiver<Revision>,
}

impl Watch for EmbeddedWatch {
    fn next(&mut self) -> Pending<'_, WatchEvent> {
        Box::pin(async {
            loop {
                // Before the lookup, so that later writes wake it.
                self.revisions.mark_unchanged();
                if let Some(watched) = self.inner.shared.state.lock().history().next(&self.prefix, &mut self.after) {
                    return Ok(watched);
                }
                let closed = |_| Error::new(ErrorKind::Internal, "the catalogue was closed before its watches");
                self.revisions.changed().await.map_err(closed)?;
            }
        })
    }
}

/// Ends expired sessions until the catalogue is dropped.
async fn end_sessions(inner: Weak<Inner>, woken: Arc<Notify>) {
    loop {
        let Some(alive) = inner.upgrade() else { return };
        let deadline = alive.shared.state.lock().deadline();
        drop(alive);
        let Some(deadline) = deadline else {
            woken.notified().await;
            continue;
        };
        tokio::select! {
            () = woken.notified() => continue,
            () = time::sleep_until(deadline) => {}
        }
        let Some(alive) = inner.upgrade() else { return };
        let now = Instant::now();
        let over = {
            let mut catalogue = alive.shared.state.lock();
            let late = now.saturating_duration_since(deadline);
            if late > STALL_THRESHOLD {
                tracing::warn!(?late, "the meta-server stalled; all sessions are renewed");
                catalogue.renew_all_sessions(now);
            }
            catalogue.expire(now, RETRY_PAUSE)
        };
        for session in over {
            if let Err(error) = alive.end_session(session).await {
                tracing::error!(%error, session = session.0, "an expired session cannot be ended yet");
            }
        }
    }
}

#[cfg(test)]
mod tests;
