//! The snapshots and uploads of one connection to a brick.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use model::{Error, ErrorKind, Result, UploadId};
use store::{Snapshot, Store};
use wire::link::DeferredResponder;

/// The snapshots and uploads of one connection, which end with it.
pub(crate) struct BrickSession {
    store: Store,
    snapshots: Mutex<Snapshots>,
    uploads: Mutex<HashMap<UploadId, Pieces>>,
    /// Seconds of the connection's life.
    ticks: AtomicU32,
}

#[derive(Default)]
struct Snapshots {
    last: u64,
    held: HashMap<u64, HeldSnapshot>,
}

struct HeldSnapshot {
    snapshot: Arc<Snapshot>,
    used: u32,
}

/// Pieces of an upload that wait while another one is written.
#[derive(Default)]
struct Pieces {
    waiting: VecDeque<(DeferredResponder, Bytes)>,
    is_busy: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent between statements, so a poisoned lock is harmless.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BrickSession {
    pub(crate) fn new(store: Store) -> Self {
        let (snapshots, uploads) = (Mutex::default(), Mutex::default());
        Self { store, snapshots, uploads, ticks: AtomicU32::new(0) }
    }

    // -------------------------------------------------------------------------------------------- snapshots

    /// Adds a snapshot and returns its number.
    pub(crate) fn hold(&self, snapshot: Snapshot, most: usize) -> Result<u64> {
        let mut snapshots = lock(&self.snapshots);
        if snapshots.held.len() >= most {
            let what = format!("the connection has {most} open snapshots, the maximum: close some");
            return Err(Error::new(ErrorKind::Full, what));
        }
        snapshots.last += 1;
        let (id, used) = (snapshots.last, self.ticks.load(Ordering::Relaxed));
        snapshots.held.insert(id, HeldSnapshot { snapshot: Arc::new(snapshot), used });
        Ok(id)
    }

    /// The snapshot with this number.
    pub(crate) fn snapshot(&self, id: u64) -> Result<Arc<Snapshot>> {
        let mut snapshots = lock(&self.snapshots);
        let held = snapshots.held.get_mut(&id).ok_or_else(|| {
            let what = format!("snapshot {id} was closed, or unused for too long: take another");
            Error::new(ErrorKind::Unavailable, what)
        })?;
        held.used = self.ticks.load(Ordering::Relaxed);
        Ok(held.snapshot.clone())
    }

    pub(crate) fn close_snapshot(&self, id: u64) {
        lock(&self.snapshots).held.remove(&id);
    }

    /// Called once a second. Closes snapshots that were not used for more than `idle` calls.
    pub(crate) fn tick(&self, idle: u32) {
        let now = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut snapshots = lock(&self.snapshots);
        if !snapshots.held.is_empty() {
            snapshots.held.retain(|_, held| now.saturating_sub(held.used) <= idle);
        }
    }

    // -------------------------------------------------------------------------------------------- uploads

    pub(crate) fn begin_upload(&self) -> Result<UploadId> {
        let id = self.store.begin_upload()?;
        lock(&self.uploads).insert(id, Pieces::default());
        Ok(id)
    }

    /// Adds a piece to an upload. If this returns `true`, the caller must call [`Self::write_pieces`] on a thread that may block.
    pub(crate) fn add_piece(&self, id: UploadId, piece: Bytes, deferred: DeferredResponder) -> bool {
        let mut uploads = lock(&self.uploads);
        let Some(pieces) = uploads.get_mut(&id) else {
            deferred.fail(&no_upload(id));
            return false;
        };
        pieces.waiting.push_back((deferred, piece));
        !std::mem::replace(&mut pieces.is_busy, true)
    }

    /// Writes the waiting pieces of an upload, in the order of their arrival.
    pub(crate) fn write_pieces(&self, id: UploadId) {
        let mut next = self.next_piece(id);
        while let Some((deferred, piece)) = next {
            let written = self.store.upload(id, piece);
            // Takes the next piece before it answers, so that an upload whose last piece is answered is not busy.
            next = self.next_piece(id);
            deferred.answer(written.map(|()| super::service::done()));
        }
    }

    fn next_piece(&self, id: UploadId) -> Option<(DeferredResponder, Bytes)> {
        let mut uploads = lock(&self.uploads);
        let pieces = uploads.get_mut(&id)?;
        let next = pieces.waiting.pop_front();
        pieces.is_busy = next.is_some();
        next
    }

    pub(crate) fn abort_upload(&self, id: UploadId) {
        let pieces = lock(&self.uploads).remove(&id);
        let Some(pieces) = pieces else { return };
        self.store.abort_upload(id);
        for (deferred, _) in pieces.waiting {
            deferred.fail(&no_upload(id));
        }
    }

    /// Checks that an upload belongs to this connection and that all its pieces are written.
    pub(crate) fn check_upload(&self, id: UploadId) -> Result<()> {
        match lock(&self.uploads).get(&id) {
            None => Err(no_upload(id)),
            Some(pieces) if pieces.is_busy => {
                Err(Error::new(ErrorKind::Invalid, format!("upload {} is still being written: wait for it", id.0)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Forgets an upload that a transaction has used.
    pub(crate) fn forget_upload(&self, id: UploadId) {
        lock(&self.uploads).remove(&id);
    }

    /// Closes all snapshots and aborts all uploads.
    pub(crate) fn end(&self) {
        lock(&self.snapshots).held.clear();
        let uploads: Vec<UploadId> = lock(&self.uploads).keys().copied().collect();
        for id in uploads {
            self.abort_upload(id);
        }
    }
}

fn no_upload(id: UploadId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no upload {} of this connection", id.0))
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    #[test]
    fn connection_has_as_many_snapshots_as_it_may() {
        let session = BrickSession::new(Store::in_memory(Options::default()).unwrap());
        let hold = || session.hold(session.store.snapshot().unwrap(), 2);
        assert_eq!((hold().unwrap(), hold().unwrap()), (1, 2));
        assert_eq!(hold().unwrap_err().kind(), ErrorKind::Full);
    }
}
