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
//! Numbers are little-endian. `length` counts the bytes after itself. The head checksum covers all that is before it;
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
/// Bytes in the checksum after the message.
pub const CHECKSUM: usize = 4;
/// Most bytes of a message without its raw part, whatever the other limits are.
pub const MAX_MESSAGE: usize = 24 << 20;
// A transaction fits, with what surrounds it.
const _: () = assert!(model::limits::HEAD + (1 << 20) <= MAX_MESSAGE);
/// Size up to which [`Raw::slice`] copies instead of keeping the whole frame in memory.
const MAX_COPY: usize = 16 << 10;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// A request that has an answer.
    pub const REQUEST: Self = Self(0);
    /// The last, or only, answer to a request of the other side.
    pub const RESPONSE: Self = Self(1);
    /// With [`Flags::RESPONSE`]: further answers to the same request follow.
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

/// Why bytes are not a frame. The connection ends, because the start of the next frame is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The length of the frame exceeds the limit of this side.
    #[error("a frame has {length} bytes; at most {max} are accepted")]
    TooLong {
        /// Bytes after the length field.
        length: u32,
        /// The limit.
        max: u32,
    },
    /// The length of the frame is less than that of its header and message.
    #[error("a frame of {length} bytes cannot contain a message of {message} bytes")]
    TooShort {
        /// Bytes after the length field.
        length: u32,
        /// Bytes of message.
        message: u32,
    },
    /// Unknown flags: another version, or noise.
    #[error("a frame has unknown flags {0:#04x}")]
    Flags(u8),
    /// Header or message were damaged.
    #[error("the header or message of a frame was damaged in transit")]
    Checksum,
    /// The message is not part of the schema.
    #[error("the message of a frame cannot be decoded: {0}")]
    Message(String),
    /// The decoded message would take too much memory.
    #[error("the message of a frame takes more than {max} bytes of memory")]
    TooLargeDecoded {
        /// The limit.
        max: usize,
    },
    /// An answer to a request that this side did not send.
    #[error("the other side answered request {0}, which was not sent")]
    Stray(u32),
    /// A one-way request was damaged, failed, or is not allowed. Requests behind it may depend on it.
    #[error("a message was refused: {0}")]
    Refused(String),
    /// A frame was begun and not finished in time.
    #[error("only {received} bytes of a frame arrived within {seconds} s")]
    Late {
        /// Bytes that have arrived.
        received: usize,
        /// Seconds since its first byte.
        seconds: u64,
    },
    /// The server needs the memory of an unfinished frame for others.
    #[error("the server has no memory left for an unfinished frame: try again")]
    NoMemory,
    /// The other side ended the connection, with this reason.
    #[error("the other side ended the connection: {0}")]
    ClosedByPeer(String),
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the frame.
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
    /// Decodes a header and checks its lengths; `max` is the most bytes of a frame.
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

    /// Bytes before the raw part: header, message and head checksum.
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
    /// The kind of the frame.
    pub flags: Flags,
    /// The number of the request.
    pub id: u32,
    /// The message, still encoded.
    pub message: &'a [u8],
    /// The raw part.
    pub raw: Raw<'a>,
    /// The checksum of the raw part, as the sender states it.
    pub raw_checksum: u32,
}

impl Frame<'_> {
    /// Whether the raw part matches its checksum.
    #[must_use]
    pub fn is_raw_intact(&self) -> bool {
        crc32c(self.raw.as_slice()) == self.raw_checksum
    }
}

/// The raw part of a received frame, in a buffer that the next read overwrites or in its own buffer.
#[derive(Clone, Debug)]
pub enum Raw<'a> {
    /// In the connection's read buffer.
    Borrowed(&'a [u8]),
    /// In its own buffer.
    Owned(Bytes),
}

impl Raw<'_> {
    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether it has no bytes.
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

    /// A copy or reference of some of the bytes. Short ranges are copied, so that they do not keep a large frame in memory.
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

    /// A copy or reference of all bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.slice(0..self.len())
    }
}
