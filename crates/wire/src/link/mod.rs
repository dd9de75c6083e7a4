//! A connection after its handshake: calls both ways, pipelined, coalesced and bounded.
//!
//! One task drives one connection ([`drive`]). It reads what has arrived, passes each request to its [`Service`], which
//! answers at once or later, passes each answer to its caller, and sends everything that results in one write. Other
//! tasks and threads reach it through its [`Mailbox`]: [`Caller`] puts calls there, [`DeferredResponder`] late answers.
//!
//! If both ends are in one process, requests that read objects or stage contents (`is_direct_kind`) are no frames: the thread that sends one
//! handles it (`direct`), so that neither task is woken for it.
//!
//! Bounds. A side does not read while too many of its answers are unsent or too many requests are unanswered ([`Limits`]), so the
//! other side's writes wait. Its own requests do not keep it from reading. A caller waits while too many bytes of its calls
//! are unanswered ([`Caller::begin`]), and reads of contents wait for each other beyond 16 MiB (`held_requests`). A one-way request ([`Mailbox::send_one_way`]) never waits; a connection with too many unsent ones
//! ends ([`End::Overrun`]). A frame has a deadline ([`Limits::frame_grace`]), and all unfinished frames of a server share a budget
//! ([`MemoryBudget`]). A malformed frame ends its connection and affects no other.

mod call_connection;
mod caller;
mod direct_sink;
mod driver;
mod held_requests;
mod liveness;
mod mailbox;
mod memory_budget;
mod responder;
mod shared_service;
mod unsent_requests;

use std::time::Duration;

use bytes::Bytes;
use model::checksum::crc32c;
use model::{Error, ErrorKind, Result};

use crate::cluster::Message;
use crate::frame::Raw;
use crate::proto::request::Request;
use crate::proto::response::Response;

pub use call_connection::CallConnection;
pub use caller::{AnswerStream, Caller, Pending};
pub(crate) use direct_sink::DirectSink;
pub use driver::{Link, drive};
pub use liveness::{Liveness, wait_until_silent};
pub use mailbox::{MAX_UNSENT_ONE_WAY, Mailbox};
pub use memory_budget::MemoryBudget;
pub use responder::{DeferredResponder, Responder};

/// The limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in the largest frame that is taken.
    pub max_frame: u32,
    /// Requests of the other side that may be unanswered at a time.
    pub max_in_flight: u32,
    /// Bytes of such requests that are kept at a time, with the bytes of contents that they ask for.
    pub max_in_flight_bytes: usize,
    /// Bytes of unsent answers from which on this side does not read. If both sides reach this limit, they wait for each other
    /// and the connection stalls.
    pub max_unsent: usize,
    /// How long the other side may accept no bytes while some are waiting before the connection ends; without limit if `None`.
    pub write_stall: Option<Duration>,
    /// How long the other side may take to finish a frame that it has begun, besides a second for each
    /// [`min_frame_rate`](Self::min_frame_rate) bytes of it that have arrived; without limit if `None`.
    pub frame_grace: Option<Duration>,
    /// Bytes a second.
    pub min_frame_rate: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame: (model::limits::TRANSACTION + crate::frame::MAX_MESSAGE) as u32,
            max_in_flight: 1024,
            max_in_flight_bytes: 64 << 20,
            max_unsent: 8 << 20,
            write_stall: Some(Duration::from_secs(60)),
            frame_grace: Some(Duration::from_secs(30)),
            min_frame_rate: 64 << 10,
        }
    }
}

/// An answer and the bytes that came with it.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The message; never [`Response::Error`], which is an error.
    pub response: Response,
    /// The raw part.
    pub raw: Bytes,
    /// Its CRC-32C, as the sender states it; `None` if it comes from within the process and was not stated.
    pub checksum: Option<u32>,
}

impl Answer {
    /// Whether the raw part is what was sent.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not.
    pub fn check(self) -> Result<Self> {
        match self.checksum.is_none_or(|checksum| crc32c(&self.raw) == checksum) {
            true => Ok(self),
            false => Err(Error::new(ErrorKind::Corrupt, "the bytes do not have their checksum")),
        }
    }

    /// The CRC-32C of the raw part: what was stated, or else what it is.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.checksum.unwrap_or_else(|| crc32c(&self.raw))
    }
}

/// A request that arrived.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// The message.
    pub request: Request,
    /// The raw part; its checksum was right.
    pub raw: Raw<'a>,
}

/// Handles what the other side of a connection sends.
pub trait Service: Send + 'static {
    /// Answers a request at once, or later by [`Responder::defer`]. Must not block.
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>);

    /// Handles messages between machines, in order. Those that arrive together come together, so that a machine is locked once for
    /// them. Must not block. A side without machines ignores what time it is.
    ///
    /// # Errors
    /// If a message breaks the protocol: those behind it are not handled, the connection ends, and the other side gets the reason.
    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        match messages.all(|message| matches!(message, Message::Time(_))) {
            true => Ok(()),
            false => {
                Err(Error::new(ErrorKind::Unsupported, "this side of the connection takes no messages of machines"))
            }
        }
    }

    /// The log of the other side, a brick, is forced up to this position. A message follows that says more of it.
    fn on_forced(&mut self, _position: u64) {}

    /// Called with the number of bytes of the raw part of each message that is received from another process, for counters.
    fn on_received(&mut self, _bytes: u64) {}

    /// Called with the number of bytes when raw parts have been queued for the other side, for counters.
    fn on_sent(&mut self, _bytes: u64) {}

    /// Whether a request of this kind may be one-way. Any other one-way request ends the connection.
    fn accepts_one_way(&self, request: &Request) -> bool {
        is_one_way_kind(request)
    }

    /// Whether something that was asked for on this connection would be lost with it, such as a snapshot, a query or a
    /// transaction. A full server ends connections that hold nothing first.
    fn holds_state(&self) -> bool {
        false
    }
}

/// Whether requests of this kind may be one-way, besides messages between machines.
#[must_use]
pub fn is_one_way_kind(request: &Request) -> bool {
    matches!(request, Request::EndQuery(_) | Request::ReturnPages(_) | Request::Witnesses(_))
}

/// Whether requests of this kind pass as values within a process: they have one answer, and none of them depends on the order in which
/// requests of the connection arrive.
fn is_direct_kind(request: &Request) -> bool {
    matches!(
        request,
        Request::ReadObject(_)
            | Request::ReadContent(_)
            | Request::BeginContent(_)
            | Request::WriteContent(_)
            | Request::AbortContent(_)
            | Request::LookUp(_)
            | Request::ListEntries(_)
            | Request::ListEntriesOf(_)
            | Request::ListNodeObjects(_)
            | Request::Scan(_)
            | Request::Reserve(_)
    )
}

/// Bytes of contents that the answer to a request has, if it is large: they count as part of the request. No request depends on the order of
/// those that promise any.
fn promised_bytes(request: &Request) -> usize {
    match request {
        // A longer read is refused.
        Request::ReadContent(read) => (read.length as usize).min(model::limits::CONTENT_READ),
        _ => 0,
    }
}

/// The service of a side that only sends requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoService;

impl Service for NoService {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&Error::new(model::ErrorKind::Unsupported, "this side of the connection answers no requests"));
    }
}

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// This side closed it, at once or after the last answers ([`Mailbox::drain`]).
    #[error("closed by this side")]
    Closed,
    /// The other side closed it between two frames.
    #[error("closed by the other side")]
    HungUp,
    /// The transport failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    /// The other side accepts no bytes ([`Limits::write_stall`]).
    #[error("the other side accepted no bytes for {0:?}")]
    Stalled(Duration),
    /// The other side reads one-way requests too slowly ([`Mailbox::send_one_way`]).
    #[error("the other side reads too slowly: too many bytes of one-way requests are unsent")]
    Overrun,
    /// The memory for what is unsent is needed for others ([`Link::with_output_budget`]).
    #[error("the other side reads too slowly: the memory for what is unsent is needed for others")]
    Unread,
    /// A one-way request of this side is larger than what the other side accepts.
    #[error("a message of {length} bytes for the other side, which accepts {max}")]
    TooLong {
        /// Bytes of the frame.
        length: usize,
        /// The most that is taken.
        max: usize,
    },
    /// The other side sent something that the protocol does not allow.
    #[error("the other side violated the protocol: {0}")]
    Violated(#[from] crate::frame::FrameError),
}
