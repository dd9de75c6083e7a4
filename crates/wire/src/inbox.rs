//! Turns received bytes into frames.
//!
//! Small frames are parsed in place, in a buffer that all connections of a thread share, so an idle connection holds no buffer. A
//! larger frame gets its own buffer of the right size, into which the rest of it is read directly. The receiver of the frame can
//! keep parts of it without a copy.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::frame::{CHECKSUM, Frame, FrameError, HEADER, Header, Raw, crc32c};

/// Bytes of the buffer that connections share.
pub const SHARED_BUFFER_LEN: usize = 64 << 10;
/// Size from which a frame gets its own buffer.
const MIN_LARGE_FRAME: usize = SHARED_BUFFER_LEN / 2;
/// Buffers for large frames that a connection keeps until a small frame arrives, and the size of the largest one that it keeps:
/// one for a piece of an upload.
const MAX_SPARES: usize = 8;
const MAX_SPARE_SIZE: usize = (1 << 20) + (4 << 10);
/// Most bytes of such buffers of all connections of the process, because connections may be idle for long.
const MAX_SPARE_BYTES: usize = 16 << 20;

/// Bytes of such buffers now.
static SPARE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The received bytes of one connection that are not a whole frame yet.
#[derive(Debug)]
pub struct Inbox {
    max_frame: u32,
    /// The beginning of a small frame; after a pause, all bytes that were read and not handed out.
    pending: Vec<u8>,
    is_paused: bool,
    /// The beginning of a large frame.
    large: Option<Large>,
    spare: Vec<Spare>,
    /// Frames that were handed out.
    frames: u64,
}

#[derive(Debug)]
struct Large {
    header: Header,
    bytes: BytesMut,
}

/// A buffer that is kept, and counted while it exists.
#[derive(Debug)]
struct Spare {
    bytes: BytesMut,
    counted: usize,
}

impl Spare {
    /// Keeps a buffer of `size` bytes, unless too many are kept.
    fn keep(bytes: BytesMut, size: usize) -> Option<Self> {
        let more = |now: usize| now.checked_add(size).filter(|now| *now <= MAX_SPARE_BYTES);
        let kept = SPARE_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        kept.is_ok().then(|| Self { bytes, counted: size })
    }

    fn take(mut self) -> BytesMut {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        SPARE_BYTES.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

/// What the receiver of frames expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next frame.
    Frame,
    /// No more frames for now: the rest of the read bytes waits for the next call.
    Pause,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// Bytes arrived, and all whole frames were handed out.
    Some,
    /// The other side will send nothing more.
    End,
}

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The bytes are not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Inbox {
    /// An empty inbox that takes frames of up to `max_frame` bytes.
    #[must_use]
    pub fn new(max_frame: u32) -> Self {
        Self { max_frame, pending: Vec::new(), is_paused: false, large: None, spare: Vec::new(), frames: 0 }
    }

    /// Whether the received bytes end between two frames.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.pending.is_empty() && self.large.is_none()
    }

    /// The number and the received bytes of the unfinished frame. `None` if there is none, or if read bytes wait for the next call.
    #[must_use]
    pub fn unfinished_frame(&self) -> Option<(u64, usize)> {
        let bytes = self.large.as_ref().map_or(self.pending.len(), |large| large.bytes.len());
        (bytes > 0 && !self.is_paused).then_some((self.frames, bytes))
    }

    /// Reads once and passes every whole frame to `each`.
    pub fn poll_fill(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        shared: &mut [u8],
        mut each: impl FnMut(Frame<'_>) -> Result<Next, FrameError>,
    ) -> Poll<Result<Filled, InboxError>> {
        if let Some(large) = &mut self.large {
            let room = large.header.frame_len() - large.bytes.len();
            let read = pin!(stream.read_buf(&mut (&mut large.bytes).limit(room))).poll(context)?;
            let Poll::Ready(read) = read else { return Poll::Pending };
            self.finish_large(each)?;
            return Poll::Ready(Ok(if read == 0 { Filled::End } else { Filled::Some }));
        }
        let before = self.pending.len();
        if self.is_paused {
            shared[..before].copy_from_slice(&self.pending);
            self.parse(&shared[..before], &mut each)?;
            return Poll::Ready(Ok(Filled::Some));
        }
        let mut room = &mut shared[before..];
        let read = pin!(stream.read_buf(&mut room)).poll(context)?;
        let Poll::Ready(read) = read else { return Poll::Pending };
        shared[..before].copy_from_slice(&self.pending);
        self.parse(&shared[..before + read], &mut each)?;
        Poll::Ready(Ok(if read == 0 { Filled::End } else { Filled::Some }))
    }

    /// Passes every whole frame in `bytes` to `each` and keeps the beginning of the next one. `bytes` begins with the kept bytes.
    fn parse(
        &mut self,
        bytes: &[u8],
        each: &mut impl FnMut(Frame<'_>) -> Result<Next, FrameError>,
    ) -> Result<(), FrameError> {
        let mut rest = bytes;
        self.is_paused = false;
        while let Some(header) = rest.first_chunk::<HEADER>() {
            let header = Header::decode(header, self.max_frame)?;
            let Some((frame, behind)) = rest.split_at_checked(header.frame_len()) else {
                if header.frame_len() < MIN_LARGE_FRAME {
                    break;
                }
                let mut own = self.buffer(header.frame_len());
                own.extend_from_slice(rest);
                self.large = Some(Large { header, bytes: own });
                rest = &[];
                break;
            };
            let (head, raw) = frame.split_at(header.head_len());
            rest = behind;
            if !self.spare.is_empty() {
                self.spare = Vec::new();
            }
            self.frames += 1;
            if each(decode_frame(header, head, Raw::Borrowed(raw))?)? == Next::Pause {
                self.is_paused = !rest.is_empty();
                break;
            }
        }
        if rest.is_empty() {
            self.pending = Vec::new();
        } else {
            self.pending.clear();
            self.pending.extend_from_slice(rest);
        }
        Ok(())
    }

    /// Passes the large frame to `each` if it is whole.
    fn finish_large(&mut self, mut each: impl FnMut(Frame<'_>) -> Result<Next, FrameError>) -> Result<(), FrameError> {
        let Some(Large { header, mut bytes }) =
            self.large.take_if(|large| large.bytes.len() == large.header.frame_len())
        else {
            return Ok(());
        };
        let mut frame = bytes.split().freeze();
        if self.spare.len() < MAX_SPARES && frame.len() <= MAX_SPARE_SIZE {
            self.spare.extend(Spare::keep(bytes, frame.len()));
        }
        let head = frame.split_to(header.head_len());
        self.frames += 1;
        each(decode_frame(header, &head, Raw::Owned(frame))?)?;
        Ok(())
    }

    /// A buffer for a frame of `len` bytes: a kept one without references, or a new one.
    fn buffer(&mut self, len: usize) -> BytesMut {
        // The buffer that was used last is the likeliest to be in the processor's cache.
        let free = self.spare.iter_mut().rposition(|spare| spare.bytes.try_reclaim(len));
        match free {
            Some(at) => self.spare.remove(at).take(),
            None => {
                if self.spare.len() == MAX_SPARES {
                    self.spare.remove(0);
                }
                BytesMut::with_capacity(len)
            }
        }
    }

    /// Takes bytes that were read elsewhere, for load generators and tests. After a pause, the rest waits for the next call.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Frame<'_>) -> Result<Next, FrameError>,
    ) -> Result<(), FrameError> {
        let mut rest = bytes;
        while let Some(large) = &mut self.large {
            if rest.is_empty() {
                return Ok(());
            }
            let room = large.header.frame_len() - large.bytes.len();
            let (own, behind) = rest.split_at(room.min(rest.len()));
            large.bytes.extend_from_slice(own);
            rest = behind;
            self.finish_large(&mut each)?;
        }
        if self.pending.is_empty() {
            return self.parse(rest, &mut each);
        }
        let mut whole = std::mem::take(&mut self.pending);
        whole.extend_from_slice(rest);
        self.parse(&whole, &mut each)
    }
}

fn decode_frame<'a>(header: Header, head: &'a [u8], raw: Raw<'a>) -> Result<Frame<'a>, FrameError> {
    let (covered, mut checksum) = head.split_at(head.len() - CHECKSUM);
    if crc32c(covered) != checksum.get_u32_le() {
        return Err(FrameError::Checksum);
    }
    let Header { flags, id, raw_checksum, .. } = header;
    Ok(Frame { flags, id, message: &covered[HEADER..], raw, raw_checksum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Flags, crc32c};
    use crate::outbox::encode_head;
    use crate::proto;

    #[test]
    fn memory_of_idle_connections_is_bounded() {
        let raw = vec![7; 1 << 20];
        let mut frame = Vec::new();
        encode_head(&mut frame, Flags::REQUEST, 1, &proto::Done {}, raw.len(), crc32c(&raw));
        frame.extend_from_slice(&raw);
        let mut inboxes: Vec<Inbox> = (0..30).map(|_| Inbox::new(8 << 20)).collect();
        let mut frames = 0;
        for inbox in &mut inboxes {
            inbox.feed(&frame[..100_000], |_| Ok(Next::Frame)).unwrap();
            let whole = inbox.feed(&frame[100_000..], |frame| {
                frames += usize::from(frame.raw.len() == raw.len());
                Ok(Next::Frame)
            });
            whole.unwrap();
        }
        assert_eq!(frames, inboxes.len());
        let kept: usize = inboxes.iter().flat_map(|inbox| &inbox.spare).map(|spare| spare.counted).sum();
        assert!((1..=MAX_SPARE_BYTES).contains(&kept), "{kept} bytes");
    }
}
