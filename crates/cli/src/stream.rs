//! Content of any size from a blocking reader to a server, in bounded memory.
//!
//! Files and pipes block; connections do not. One blocking thread reads a few pieces ahead while earlier ones are sent.

use std::io::{self, Read};

use bytes::Bytes;
use client::{BlobWriter, Client};
use tokio::sync::mpsc;
use tokio::task;

/// Bytes of one read.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that are read but not sent.
const READ_AHEAD_PIECES: usize = 2;

/// Content that was uploaded and is not finished.
pub(crate) struct Staged<R> {
    /// The writer of the content; finishing it returns the upload's identifier.
    pub(crate) writer: BlobWriter,
    /// Number of bytes.
    pub(crate) bytes: u64,
    /// The source, at its end.
    pub(crate) source: R,
}

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

/// Uploads all of `source`, and calls `sent` with the size of each piece.
pub(crate) async fn stage<R: Read + Send + 'static>(
    client: &Client,
    source: R,
    sent: impl Fn(u64),
) -> Result<Staged<R>, StageError> {
    let mut writer = client.writer();
    let (bytes, source) = send_pieces(source, async |piece| {
        let size = piece.len() as u64;
        writer.write(piece).await?;
        sent(size);
        Ok(())
    })
    .await?;
    Ok(Staged { writer, bytes, source })
}

/// Reads all of `source` and calls `send` with each piece. Returns the number of bytes, and the source.
pub(crate) async fn send_pieces<R: Read + Send + 'static>(
    source: R,
    mut send: impl AsyncFnMut(Bytes) -> model::Result<()>,
) -> Result<(u64, R), StageError> {
    let (pieces, mut read) = mpsc::channel(READ_AHEAD_PIECES);
    let reader = task::spawn_blocking(move || read_pieces(source, &pieces));
    let mut bytes = 0;
    while let Some(piece) = read.recv().await {
        let piece: Bytes = piece;
        bytes += piece.len() as u64;
        send(piece).await?;
    }
    match reader.await {
        Ok(Ok(source)) => Ok((bytes, source)),
        Ok(Err(error)) => Err(StageError::Source(error)),
        Err(error) => Err(StageError::Source(io::Error::other(error))),
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
