//! Jobs that may take hours, each on a thread of its own: backup.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;

use bytes::{Bytes, BytesMut};
use model::{Error, ErrorKind, Result};
use store::Store;
use tokio::sync::Semaphore;
use tracing::warn;
use wire::link::{Deferred, Reply};
use wire::proto;
use wire::proto::response::Response;

/// Such jobs at a time.
pub(crate) const AT_A_TIME: usize = 4;
/// Bytes in a piece of a backup.
const PIECE: usize = 256 << 10;

/// Runs a job, unless too many are running.
fn run(
    name: &'static str,
    places: &Arc<Semaphore>,
    reply: Reply<'_>,
    job: impl FnOnce(&Deferred) -> Result<Response> + Send + 'static,
) {
    let Ok(place) = places.clone().try_acquire_owned() else {
        let what = format!("{AT_A_TIME} backups and scrubs are running already: wait for one to end");
        return reply.fail(&Error::new(ErrorKind::Unavailable, what));
    };
    let deferred = reply.defer();
    let started = thread::Builder::new().name(format!("mortar-{name}")).spawn(move || {
        match job(&deferred) {
            Ok(response) => deferred.send(response, Vec::new()),
            Err(error) => {
                warn!(name, %error, "a long job failed");
                deferred.fail(&error);
            }
        }
        drop(place);
    });
    if let Err(error) = started {
        // The request was answered when it was dropped with the job.
        warn!(name, %error, "a thread cannot be started");
    }
}

/// Answers with an archive of the store, piece by piece.
pub(crate) fn backup(store: Store, places: &Arc<Semaphore>, reply: Reply<'_>) {
    run("backup", places, reply, move |deferred| {
        let mut pieces = Pieces { deferred, piece: BytesMut::with_capacity(PIECE) };
        let summary = store.backup(&mut pieces, &())?;
        pieces
            .flush()
            .map_err(|error| Error::new(ErrorKind::Unavailable, "the backup was not taken").caused_by(error))?;
        let done = proto::BackupDone { bytes: summary.archive_bytes, objects: summary.objects };
        Ok(Response::BackupDone(done))
    });
}

/// Sends what is written; waits while the client is behind, and fails once it is gone.
struct Pieces<'a> {
    deferred: &'a Deferred,
    piece: BytesMut,
}

impl Pieces<'_> {
    fn send(&self, piece: Bytes) -> io::Result<()> {
        let sent = self.deferred.more(Response::BackupPiece(proto::BackupPiece {}), vec![piece]);
        if sent { Ok(()) } else { Err(io::Error::new(io::ErrorKind::BrokenPipe, "the client has gone")) }
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        if self.piece.len() == PIECE {
            self.flush()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, BytesMut::with_capacity(PIECE));
        self.send(piece.freeze())
    }
}
