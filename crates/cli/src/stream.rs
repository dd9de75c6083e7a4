//! Content of any size from a blocking reader to a server, in bounded memory.
//!
//! Files and pipes block; connections do not. One blocking thread reads a few pieces ahead while earlier ones are sent.

use std::io::{self, Read};

use bytes::Bytes;
use client::ContentWriter;
use tokio::sync::mpsc;
use tokio::task;
use wire::tasks;

/// Bytes of one read.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that are read but not sent.
const READ_AHEAD_PIECES: usize = 2;

/// Why content could not be uploaded.
pub(crate) enum StageError {
    /// It could not be read.
    Source(io::Error),
    /// The server did not accept it.
    Server(model::Error),
}

impl From<model::Error> for StageError {
    fn from(error: model::Error) -> Self {
        Self::Server(error)
    }
}

/// Uploads all of `source`, and calls `sent` with the size of each piece. Returns the source, at its end.
pub(crate) async fn send<R: Read + Send + 'static>(
    writer: &mut ContentWriter,
    source: R,
    mut sent: impl FnMut(u64),
) -> Result<R, StageError> {
    let mut pieces = SourcePieces::begin(source);
    while let Some(piece) = pieces.next().await {
        let size = piece.len() as u64;
        writer.write(piece).await?;
        sent(size);
    }
    pieces.end().await
}

/// The bytes of a source, which one blocking thread reads.
struct SourcePieces<R> {
    pieces: mpsc::Receiver<Bytes>,
    reader: task::JoinHandle<io::Result<R>>,
}

impl<R: Read + Send + 'static> SourcePieces<R> {
    /// Begins to read.
    fn begin(source: R) -> Self {
        let (sender, pieces) = mpsc::channel(READ_AHEAD_PIECES);
        Self { pieces, reader: tasks::spawn_blocking(move || read_pieces(source, &sender)) }
    }

    /// The next bytes; `None` at the end, or after an error.
    async fn next(&mut self) -> Option<Bytes> {
        self.pieces.recv().await
    }

    /// The source, at its end.
    async fn end(self) -> Result<R, StageError> {
        match self.reader.await {
            Ok(Ok(source)) => Ok(source),
            Ok(Err(error)) => Err(StageError::Source(error)),
            Err(error) => Err(StageError::Source(io::Error::other(error))),
        }
    }
}

fn read_pieces<R: Read>(mut source: R, pieces: &mpsc::Sender<Bytes>) -> io::Result<R> {
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        (&mut source).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
        // A closed channel means that sending failed, which is reported there.
        if piece.is_empty() || pieces.blocking_send(piece.into()).is_err() {
            return Ok(source);
        }
    }
}
