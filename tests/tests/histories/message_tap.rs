//! Records the messages that cross a relay, so that a test can count them.

use std::sync::{Arc, Mutex};

use prost::Message;
use wire::frame::Flags;
use wire::handshake::{self, Preamble};
use wire::inbox::{Inbox, Next};
use wire::proto;
use wire::proto::request::Request;

/// The largest frame that a test sends.
const MAX_FRAME_BYTES: u32 = 64 << 20;
/// Bytes before the message of a preamble.
const PREAMBLE_HEADER_BYTES: usize = 12;

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the server.
    Up,
    /// From the server.
    Down,
}

/// A request, or a message without an answer, that the relay has received.
#[derive(Clone, Debug)]
pub(crate) struct TappedMessage {
    /// The number of its connection.
    pub(crate) connection: u64,
    pub(crate) direction: Direction,
    pub(crate) request: Request,
}

/// The messages that a relay has received. Some may not have left it yet.
#[derive(Debug, Default)]
pub(crate) struct MessageTap(Mutex<Vec<TappedMessage>>);

impl MessageTap {
    /// Forgets what was recorded.
    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    /// The messages in this direction of which `select` returns something: that, and the connections.
    pub(crate) fn select<T>(&self, direction: Direction, select: impl Fn(&Request) -> Option<T>) -> Vec<(u64, T)> {
        let messages = self.0.lock().unwrap();
        let of_direction = messages.iter().filter(|message| message.direction == direction);
        of_direction.filter_map(|message| Some((message.connection, select(&message.request)?))).collect()
    }
}

/// Parses the bytes of one direction of a connection.
pub(crate) struct ConnectionTap {
    tap: Arc<MessageTap>,
    connection: u64,
    direction: Direction,
    /// The bytes before the first frame; none after it has begun.
    preamble: Option<Vec<u8>>,
    inbox: Inbox,
}

impl ConnectionTap {
    pub(crate) fn new(tap: Arc<MessageTap>, connection: u64, direction: Direction) -> Self {
        Self { tap, connection, direction, preamble: Some(Vec::new()), inbox: Inbox::new(MAX_FRAME_BYTES) }
    }

    /// Records the messages that are whole with these bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let Some(mut before) = self.preamble.take() else { return self.feed_frames(bytes) };
        before.extend_from_slice(bytes);
        match handshake::decode(&before) {
            Preamble::Mortar { length, .. } if before.len() >= PREAMBLE_HEADER_BYTES + length => {
                self.feed_frames(&before[PREAMBLE_HEADER_BYTES + length..]);
            }
            Preamble::Mortar { .. } | Preamble::Short => self.preamble = Some(before),
            Preamble::NotMortar => panic!("a connection of a test does not begin as one of Mortar"),
        }
    }

    fn feed_frames(&mut self, bytes: &[u8]) {
        let Self { tap, connection, direction, inbox, .. } = self;
        let fed = inbox.feed(bytes, |frame| {
            if frame.flags == Flags::REQUEST || frame.flags == Flags::ONE_WAY {
                let request = proto::Request::decode(frame.message).unwrap().request.unwrap();
                let message = TappedMessage { connection: *connection, direction: *direction, request };
                tap.0.lock().unwrap().push(message);
            }
            Ok(Next::Frame)
        });
        fed.unwrap();
    }
}
