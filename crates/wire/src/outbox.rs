//! Frames as bytes to be sent, many at a time.
//!
//! Everything that was pushed since the last flush is sent with one write: small data is copied into a buffer, large data is
//! referenced, and parts of files go from the system's cache to the socket without passing through this process.

use std::any::Any;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use model::checksum::{ChecksumCombiner, crc32c, crc32c_parts};
use model::{Error, ErrorKind, Result};
use prost::Message;
use tokio::io::AsyncWrite;
use tracing::error;

use crate::frame::{Flags, Header};
use crate::pool;
use crate::transport::Stream;

/// Size from which a raw part is referenced and not copied.
const MIN_REFERENCED: usize = 16 << 10;
/// Most bytes that one call of `poll_flush` sends, so that other connections have their turn.
const MAX_FLUSH: usize = 4 << 20;
/// Most bytes before referenced data that are copied into a segment; more take the buffer with them.
const MAX_COPIED_HEAD: usize = 4 << 10;
/// Number of sent bytes from which they are removed from the buffer.
const MIN_COMPACTION: usize = 64 << 10;
/// Most slices of one write.
const MAX_SLICES: usize = 32;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A part of a raw part.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file.
    File {
        /// The file.
        file: Arc<File>,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
        /// Their CRC-32C when they were written.
        checksum: u32,
    },
}

impl Piece {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads the bytes of pieces. Returns them with the CRC-32C that they should have.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if a file is too short; [`ErrorKind::Io`] if it cannot be read.
pub(crate) fn read_pieces(pieces: &[Piece]) -> Result<(Bytes, u32)> {
    let mut bytes = vec![0; pieces.iter().map(Piece::len).sum()];
    let mut rest = &mut bytes[..];
    for piece in pieces {
        let (here, behind) = rest.split_at_mut(piece.len());
        match piece {
            Piece::Bytes(bytes) => here.copy_from_slice(bytes),
            Piece::File { file, offset, .. } => file.read_exact_at(here, *offset).map_err(unreadable)?,
        }
        rest = behind;
    }
    Ok((bytes.into(), checksum_of(pieces)))
}

fn unreadable(error: io::Error) -> Error {
    let (kind, what) = match error.kind() {
        io::ErrorKind::UnexpectedEof => (ErrorKind::Corrupt, "a file with a part of the answer is too short"),
        _ => (ErrorKind::Io, "a file with a part of the answer cannot be read"),
    };
    Error::new(kind, what).with_source(error)
}

/// The CRC-32C that pieces have together.
fn checksum_of(pieces: &[Piece]) -> u32 {
    let mut joined = ChecksumCombiner::default();
    for piece in pieces {
        let checksum = match piece {
            Piece::Bytes(bytes) => crc32c(bytes),
            Piece::File { checksum, .. } => *checksum,
        };
        joined.push(checksum, piece.len());
    }
    joined.checksum()
}

/// Keeps alive what pieces reference until they are sent.
pub type PieceGuard = Arc<dyn Any + Send + Sync>;

enum Segment {
    Bytes(Bytes),
    File { file: Arc<File>, offset: u64, len: usize },
    Release(#[expect(dead_code, reason = "held, not read")] PieceGuard),
}

/// Bytes to be sent on one connection.
#[derive(Default)]
pub struct Outbox {
    /// Data before `tail`, in order.
    segments: VecDeque<Segment>,
    /// Copied bytes; those before `sent` were sent.
    tail: Vec<u8>,
    sent: usize,
    len: usize,
    /// Number of bytes ever added.
    total_added: u64,
    /// Bytes of raw parts that were added and not counted yet.
    uncounted: u64,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox").field("len", &self.len).finish_non_exhaustive()
    }
}

impl Outbox {
    /// Number of bytes that were not sent yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of bytes ever added.
    #[must_use]
    pub fn total_added(&self) -> u64 {
        self.total_added
    }

    /// Number of bytes ever sent.
    #[must_use]
    pub fn total_sent(&self) -> u64 {
        self.total_added - self.len as u64
    }

    /// Number of bytes of raw parts added since the last call.
    pub fn take_raw_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.uncounted)
    }

    fn grow(&mut self, bytes: usize) {
        self.len += bytes;
        self.total_added += bytes as u64;
    }

    /// Whether everything was sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0 && self.segments.is_empty()
    }

    /// Adds a frame with the slices `raw` as its raw part.
    pub fn push(&mut self, flags: Flags, id: u32, message: &impl Message, raw: &[Bytes]) {
        self.push_checked(flags, id, message, raw, crc32c_parts(raw));
    }

    /// Adds a frame with a raw part that has this checksum.
    pub fn push_checked(&mut self, flags: Flags, id: u32, message: &impl Message, raw: &[Bytes], checksum: u32) {
        let length = raw.iter().map(Bytes::len).sum();
        self.push_head(flags, id, message, length, checksum);
        for part in raw {
            self.push_bytes(part);
        }
    }

    /// Adds a frame with a raw part that is copied at once and has this checksum.
    pub fn push_slice(&mut self, flags: Flags, id: u32, message: &impl Message, raw: &[u8], checksum: u32) {
        self.push_head(flags, id, message, raw.len(), checksum);
        if raw.len() < MIN_REFERENCED {
            self.tail.extend_from_slice(raw);
            self.grow(raw.len());
        } else {
            // In the tail it would be copied again whenever that has to grow.
            self.push_bytes(&Bytes::copy_from_slice(raw));
        }
    }

    /// Adds a frame with a raw part that is partly in files. `guard` is dropped when it was sent.
    pub fn push_pieces(
        &mut self,
        flags: Flags,
        id: u32,
        message: &impl Message,
        pieces: Vec<Piece>,
        guard: PieceGuard,
    ) {
        let length = pieces.iter().map(Piece::len).sum();
        self.push_head(flags, id, message, length, checksum_of(&pieces));
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => self.push_bytes(&bytes),
                Piece::File { file, offset, len, .. } => self.push_file(file, offset, len),
            }
        }
        self.push_tail();
        self.segments.push_back(Segment::Release(guard));
    }

    /// Adds whole frames, which are copied only if other bytes precede them. `raw` is the number of bytes of raw parts in them.
    pub(crate) fn push_frames(&mut self, mut frames: Vec<u8>, raw: u64) {
        self.uncounted += raw;
        self.grow(frames.len());
        if self.tail.is_empty() {
            std::mem::swap(&mut self.tail, &mut frames);
        } else {
            self.tail.extend_from_slice(&frames);
        }
        pool::give(frames);
    }

    fn push_head(&mut self, flags: Flags, id: u32, message: &impl Message, raw: usize, raw_checksum: u32) {
        self.uncounted += raw as u64;
        if self.tail.capacity() == 0 {
            self.tail = pool::take();
        }
        let before = self.tail.len();
        encode_head(&mut self.tail, flags, id, message, raw, raw_checksum);
        self.grow(self.tail.len() - before);
    }

    fn push_bytes(&mut self, bytes: &Bytes) {
        self.grow(bytes.len());
        if bytes.len() < MIN_REFERENCED {
            self.tail.extend_from_slice(bytes);
        } else {
            self.push_tail();
            self.segments.push_back(Segment::Bytes(bytes.clone()));
        }
    }

    /// Adds a part of a file, merged with the previous part if it continues that.
    fn push_file(&mut self, file: Arc<File>, offset: u64, len: usize) {
        self.push_tail();
        self.grow(len);
        if let Some(Segment::File { file: before, offset: start, len: length }) = self.segments.back_mut()
            && Arc::ptr_eq(before, &file)
            && *start + *length as u64 == offset
        {
            *length += len;
            return;
        }
        self.segments.push_back(Segment::File { file, offset, len });
    }

    /// Turns the tail into a segment, so that other data can follow it.
    fn push_tail(&mut self) {
        let unsent = &self.tail[self.sent..];
        if !unsent.is_empty() {
            let bytes = if unsent.len() <= MAX_COPIED_HEAD {
                Bytes::copy_from_slice(unsent)
            } else {
                Bytes::from(std::mem::take(&mut self.tail)).split_off(self.sent)
            };
            self.segments.push_back(Segment::Bytes(bytes));
        }
        self.tail.clear();
        self.sent = 0;
    }

    /// Writes until nothing is left or the stream accepts no more for now.
    pub fn poll_flush(&mut self, context: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<()>> {
        let mut turn = MAX_FLUSH;
        while !self.is_empty() {
            let sent = match self.segments.front_mut() {
                Some(Segment::Release(_)) => {
                    self.segments.pop_front();
                    continue;
                }
                Some(Segment::File { file, offset, len }) => {
                    let sent = match stream.poll_send_file(context, file, *offset, (*len).min(turn)) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(sent) => sent,
                    };
                    match sent {
                        Ok(sent) if sent > 0 => {
                            (*offset, *len) = (*offset + sent as u64, *len - sent);
                            if *len == 0 {
                                self.segments.pop_front();
                            }
                            self.len -= sent;
                            sent
                        }
                        Err(error) if is_connection_error(&error) => return Poll::Ready(Err(error)),
                        failed => {
                            self.replace_by_zeros(failed.err());
                            continue;
                        }
                    }
                }
                _ => match self.poll_write(context, stream) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Poll::Ready(Ok(sent)) => sent,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                },
            };
            turn = turn.saturating_sub(sent);
            if turn == 0 && !self.is_empty() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        // The stream may have buffered what it accepted.
        Pin::new(stream).poll_flush(context)
    }

    /// Writes data in memory up to the next file.
    fn poll_write(&mut self, context: &mut Context<'_>, stream: &mut Stream) -> Poll<io::Result<usize>> {
        let written = if self.segments.is_empty() {
            Pin::new(stream).poll_write(context, &self.tail[self.sent..])
        } else {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            let memory = self.segments.iter().map_while(|segment| match segment {
                Segment::Bytes(bytes) => Some(bytes.as_ref()),
                Segment::File { .. } | Segment::Release(_) => None,
            });
            let only_memory = self.segments.iter().all(|segment| matches!(segment, Segment::Bytes(_)));
            let tail = only_memory.then(|| &self.tail[self.sent..]).filter(|tail| !tail.is_empty());
            for (slot, bytes) in slices.iter_mut().zip(memory.chain(tail)) {
                *slot = IoSlice::new(bytes);
                count += 1;
            }
            Pin::new(stream).poll_write_vectored(context, &slices[..count])
        };
        if let Poll::Ready(Ok(written)) = &written {
            self.advance(*written);
        }
        written
    }

    fn advance(&mut self, mut written: usize) {
        self.len -= written;
        while let Some(Segment::Bytes(bytes)) = self.segments.front_mut() {
            if written < bytes.len() {
                bytes.advance(written);
                return;
            }
            written -= bytes.len();
            self.segments.pop_front();
        }
        self.sent += written;
        if self.sent == self.tail.len() {
            pool::give(std::mem::take(&mut self.tail));
            self.sent = 0;
        } else if self.sent >= MIN_COMPACTION && self.sent >= self.tail.len() / 2 {
            // More bytes were sent than are moved, so the buffer is at most twice as large as its unsent bytes.
            self.tail.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Sends zeros in place of a file that cannot be read. The reader then finds a wrong checksum for this object, and the connection
    /// continues.
    fn replace_by_zeros(&mut self, cause: Option<io::Error>) {
        let Some(Segment::File { offset, len, .. }) = self.segments.pop_front() else { return };
        let cause = cause.map_or_else(|| "it is shorter than it should be".to_owned(), |cause| cause.to_string());
        error!(offset, len, cause, "a file of the store cannot be read; the reader gets a wrong checksum");
        let mut left = len;
        while left > 0 {
            let zeros = left.min(ZEROS.len());
            self.segments.push_front(Segment::Bytes(Bytes::from_static(&ZEROS[..zeros])));
            left -= zeros;
        }
    }
}

/// Whether the socket failed, and not the file.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | TimedOut)
}

/// Appends a frame without its raw part, which has `raw` bytes and `raw_checksum`, to `out`.
pub fn encode_head(out: &mut Vec<u8>, flags: Flags, id: u32, message: &impl Message, raw: usize, raw_checksum: u32) {
    let header = Header { flags, id, message: message.encoded_len(), raw, raw_checksum };
    encode_with(out, header, |out| message.encode(out).expect("encoding into a vector succeeds"));
}

/// Appends a frame whose message is already encoded.
pub(crate) fn encode_frame(out: &mut Vec<u8>, header: Header, message: &[u8], raw: &[u8]) {
    out.reserve(header.frame_len());
    encode_with(out, header, |out| out.extend_from_slice(message));
    out.extend_from_slice(raw);
}

fn encode_with(out: &mut Vec<u8>, header: Header, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.reserve(header.head_len());
    out.extend_from_slice(&header.encode());
    write(out);
    let checksum = crc32c(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto;

    fn push(outbox: &mut Outbox, id: u32, raw: &[u8]) {
        outbox.push_slice(Flags::RESPONSE, id, &proto::Response { response: None }, raw, crc32c(raw));
    }

    #[test]
    fn sent_bytes_take_no_memory_while_others_wait() {
        let mut outbox = Outbox::default();
        for id in 0..20_000 {
            push(&mut outbox, id, &[id as u8; 4 << 10]);
            if outbox.len() > 1 << 20 {
                outbox.advance(8 << 10);
            }
            assert!(outbox.tail.capacity() < 8 << 20, "{} bytes for {}", outbox.tail.capacity(), outbox.len());
        }
    }

    #[test]
    fn bytes_are_sent_in_the_order_in_which_they_were_added() {
        let mut outbox = Outbox::default();
        let (mut expected, mut left) = (Vec::new(), Vec::new());
        for id in 0..3_000_u32 {
            // Some parts are referenced, and some are just too small for that.
            let length =
                if id % 50 == 0 { MIN_REFERENCED - 1 + id as usize / 50 % 3 } else { (id as usize * 37) % 900 };
            let raw = vec![id as u8; length];
            let before = expected.len();
            encode_head(
                &mut expected,
                Flags::RESPONSE,
                id,
                &proto::Response { response: None },
                raw.len(),
                crc32c(&raw),
            );
            expected.extend_from_slice(&raw);
            if id % 5 == 0 {
                outbox.push_frames(expected[before..].to_vec(), raw.len() as u64);
            } else {
                push(&mut outbox, id, &raw);
            }
            if id % 7 == 0 {
                outbox.push_tail();
            }
            while outbox.len() > 200 << 10 {
                let sealed = outbox.segments.iter().flat_map(|segment| match segment {
                    Segment::Bytes(bytes) => bytes.to_vec(),
                    _ => Vec::new(),
                });
                let some: Vec<u8> = sealed.chain(outbox.tail[outbox.sent..].iter().copied()).take(77_777).collect();
                left.extend_from_slice(&some);
                outbox.advance(some.len());
            }
        }
        assert!(left.len() > 1 << 20 && expected.starts_with(&left));
        assert_eq!(left.len() + outbox.len(), expected.len());
    }
}
