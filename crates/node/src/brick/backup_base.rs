//! The index of the base of an incremental backup, as it comes from the command that takes the backup.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bytes::Bytes;
use model::{Error, ErrorKind, Result};
use store::BaseIndex;
use wire::link::DeferredResponder;

use super::service::done_response;

/// Most bytes of a piece. A part of an archive has fewer, unless one of its items is long.
const MAX_PIECE: usize = 1 << 20;
/// Pieces that a connection may send ahead.
const WAITING_PIECES: usize = 4;

/// A piece of an index. It is answered when the backup takes it, so a client sends no faster than it is used.
struct BasePiece {
    bytes: Bytes,
    is_last: bool,
    taken: DeferredResponder,
}

/// Where the pieces go that a connection receives.
pub(crate) struct BaseSender(SyncSender<BasePiece>);

/// The index for a backup.
pub(crate) struct ReceivedBase {
    pieces: Receiver<BasePiece>,
    has_ended: bool,
}

/// The two ends of an index that is received.
pub(crate) fn channel() -> (BaseSender, ReceivedBase) {
    let (sender, pieces) = sync_channel(WAITING_PIECES);
    (BaseSender(sender), ReceivedBase { pieces, has_ended: false })
}

impl BaseSender {
    /// Passes a piece on.
    pub(crate) fn send(&self, bytes: Bytes, is_last: bool, taken: DeferredResponder) {
        if bytes.len() > MAX_PIECE {
            let what = format!("a piece of an index has at most {MAX_PIECE} bytes, not {}", bytes.len());
            return taken.fail(&Error::new(ErrorKind::TooLarge, what));
        }
        let (why, piece) = match self.0.try_send(BasePiece { bytes, is_last, taken }) {
            Ok(()) => return,
            Err(TrySendError::Full(piece)) => {
                let what =
                    format!("at most {WAITING_PIECES} pieces of an index may wait: send the next one after an answer");
                (Error::new(ErrorKind::Invalid, what), piece)
            }
            Err(TrySendError::Disconnected(piece)) => {
                (Error::new(ErrorKind::Unavailable, "the backup of this index has ended"), piece)
            }
        };
        piece.taken.fail(&why);
    }
}

impl BaseIndex for ReceivedBase {
    fn next_piece(&mut self) -> Result<Option<Bytes>> {
        while !self.has_ended {
            // The connection that sends the index has ended, and with it the backup.
            let gone = |_| Error::new(ErrorKind::Unavailable, "the index of the base has ended early");
            let BasePiece { bytes, is_last, taken } = self.pieces.recv().map_err(gone)?;
            self.has_ended = is_last;
            taken.send(done_response(), Vec::new());
            if !bytes.is_empty() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}
