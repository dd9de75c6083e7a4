//! The unit that travels on a connection: `header | message | raw`.
//!
//! ```text
//!  0        4      5       8            12               16             20
//! +--------+------+-------+------------+----------------+--------------+---------+---------------+-----+
//! | length | flags| 0 0 0 | request id | message length | raw checksum | message | head checksum | raw |
//! |  u32   |  u8  |       |    u32     |      u32       | crc32c, u32  |         |  crc32c, u32  |     |
//! +--------+------+-------+------------+----------------+--------------+---------+---------------+-----+
//! ```
//!
//! Numbers are little-endian. `length` counts the bytes behind itself. The head checksum covers all that is before it;
//! if it fails, the connection is lost, since no length can be trusted. The raw checksum covers the raw part alone,
//! from the writer's memory to the reader's. A server may send it from its disk unread, so a mismatch means that this
//! one object is damaged, and the connection continues.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use thiserror::Error;

pub use model::checksum::crc32c;

/// Bytes in a frame's header.
pub const HEADER: usize = 20;
/// Bytes in the checksum behind the message.
pub const CHECKSUM: usize = 4;
/// Bytes in the largest message that is not the raw part, whatever the other limits say.
pub const MAX_MESSAGE: usize = 8 << 20;
/// Bytes of raw part up to which [`Raw::slice`] copies rather than keeps the whole frame in memory.
const MAX_COPY: usize = 16 << 10;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// A request that has an answer.
    pub const REQUEST: Self = Self(0);
    /// The last, or only, answer to a request of the other side.
    pub const RESPONSE: Self = Self(1);
    /// With [`Flags::RESPONSE`]: an answer that others of the same request follow.
    pub const MORE: Self = Self(1 | 2);
    /// A request that has no answer.
    pub const ONE_WAY: Self = Self(4);

    const KNOWN: [Self; 4] = [Self::REQUEST, Self::RESPONSE, Self::MORE, Self::ONE_WAY];

    /// Whether the frame answers a request of its receiver.
    #[must_use]
    pub const fn is_response(self) -> bool {
        self.0 & 1 != 0
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::REQUEST => "request",
            Self::RESPONSE => "response",
            Self::MORE => "response, more follow",
            Self::ONE_WAY => "one-way request",
            Self(_) => "unknown",
        })
    }
}

/// Why bytes are not a frame. The connection ends, as the start of the next frame is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The frame says it is longer than this side takes.
    #[error("a frame of {length} bytes; at most {max} are taken")]
    TooLong {
        /// Bytes behind the length field.
        length: u32,
        /// The most that is taken.
        max: u32,
    },
    /// The frame says it is shorter than its own header and message.
    #[error("a frame of {length} bytes cannot hold a message of {message}")]
    TooShort {
        /// Bytes behind the length field.
        length: u32,
        /// Bytes of message.
        message: u32,
    },
    /// Flags of another version, or noise.
    #[error("a frame with unknown flags {0:#04x}")]
    Flags(u8),
    /// Header and message are not what was sent.
    #[error("a frame whose header or message was damaged on its way")]
    Checksum,
    /// The message is not of the schema.
    #[error("a frame whose message cannot be read: {0}")]
    Message(String),
    /// An answer to a request that this side did not send.
    #[error("an answer to request {0}, which was not sent")]
    Stray(u32),
    /// A one-way request was damaged, failed, or is not allowed. Requests behind it may depend on it.
    #[error("a message that was refused: {0}")]
    Refused(String),
    /// A frame was begun and not finished in time.
    #[error("a frame of which only {received} bytes came in {seconds} s")]
    Late {
        /// Bytes that have arrived.
        received: usize,
        /// Seconds since its first byte.
        seconds: u64,
    },
    /// The server needs the memory of an unfinished frame for others.
    #[error("an unfinished frame, for which the server has no memory left: try again")]
    NoMemory,
    /// The other side ended the connection, with this reason.
    #[error("the other side ended the connection: {0}")]
    ClosedByPeer(String),
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub flags: Flags,
    /// Chosen by the side that sends the request; an answer has the number of its request.
    pub id: u32,
    /// Bytes of message.
    pub message: usize,
    /// Bytes of raw part.
    pub raw: usize,
    /// CRC-32C of the raw part.
    pub raw_checksum: u32,
}

impl Header {
    /// Reads a header and checks every length against `max`, the bytes of the largest frame that is taken.
    pub fn decode(bytes: &[u8; HEADER], max: u32) -> Result<Self, FrameError> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (length, message) = (word(0), word(12));
        if length > max {
            return Err(FrameError::TooLong { length, max });
        }
        let rest = (length as usize + 4).checked_sub(HEADER + CHECKSUM);
        let raw = rest.and_then(|rest| rest.checked_sub(message as usize));
        let Some(raw) = raw else { return Err(FrameError::TooShort { length, message }) };
        if message as usize > MAX_MESSAGE {
            return Err(FrameError::TooLong { length: message, max: MAX_MESSAGE as u32 });
        }
        let flags = Flags(bytes[4]);
        if !Flags::KNOWN.contains(&flags) || bytes[5..8] != [0; 3] {
            return Err(FrameError::Flags(bytes[4]));
        }
        Ok(Self { flags, id: word(8), message: message as usize, raw, raw_checksum: word(16) })
    }

    /// Bytes up to the raw part: header, message and head checksum.
    #[must_use]
    pub fn head_len(&self) -> usize {
        HEADER + self.message + CHECKSUM
    }

    /// Bytes of the whole frame.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        self.head_len() + self.raw
    }

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&((self.frame_len() - 4) as u32).to_le_bytes());
        bytes[4] = self.flags.0;
        bytes[8..12].copy_from_slice(&self.id.to_le_bytes());
        bytes[12..16].copy_from_slice(&(self.message as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_checksum.to_le_bytes());
        bytes
    }
}

/// A frame as it was received.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What the frame is.
    pub flags: Flags,
    /// The request that it is, or answers.
    pub id: u32,
    /// The message, still encoded.
    pub message: &'a [u8],
    /// The bytes that belong to it.
    pub raw: Raw<'a>,
    /// What the sender says the raw part's checksum is.
    pub raw_checksum: u32,
}

impl Frame<'_> {
    /// Whether the raw part is what was sent.
    #[must_use]
    pub fn is_raw_intact(&self) -> bool {
        crc32c(self.raw.as_slice()) == self.raw_checksum
    }
}

/// The raw part of a received frame: in a buffer that the next read overwrites, or in one of its own.
#[derive(Clone, Debug)]
pub enum Raw<'a> {
    /// In the connection's read buffer.
    Borrowed(&'a [u8]),
    /// In a buffer made for this frame.
    Owned(Bytes),
}

impl Raw<'_> {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Owned(bytes) => bytes,
        }
    }

    /// Some of the bytes, to keep. Short ones are copied, so that they do not keep a large frame in memory.
    ///
    /// # Panics
    /// If the range is not within the bytes.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Bytes {
        match self {
            Self::Owned(bytes) if range.len() > MAX_COPY => bytes.slice(range),
            _ if range.is_empty() => Bytes::new(),
            _ => Bytes::copy_from_slice(&self.as_slice()[range]),
        }
    }

    /// All the bytes, to keep.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.slice(0..self.len())
    }
}
