//! The fuzz target of connections: frames, however they are divided, and the messages in them.

use std::ops::ControlFlow;

use prost::Message;
use wire::frame::{Flags, Frame, crc32c};
use wire::handshake;
use wire::inbox::{Inbox, Next};
use wire::outbox::encode_head;
use wire::proto;
use wire::proto::response::Response;

const MAX_FRAME: u32 = 1 << 16;

/// The first two bytes are the position at which the rest is divided. The rest is decoded as frames, as the opening of
/// a connection, and as a message with its raw part, because few blind mutations keep the checksum of a frame valid.
pub(crate) fn run(input: &[u8]) {
    let Some(([low, high], bytes)) = input.split_first_chunk() else { return };
    let cut = usize::from(u16::from_le_bytes([*low, *high]));
    check_frames(bytes, cut);
    let _ = handshake::decode(bytes);
    let (message, raw) = bytes.split_at(cut.min(bytes.len()));
    let _ = proto::Hello::decode(message);
    let _ = proto::Welcome::decode(message);
    decode_error(message);
    check_round_trip(message, raw);
}

/// Whole or divided, the same bytes are the same frames.
fn check_frames(bytes: &[u8], cut: usize) {
    let read = |parts: &[&[u8]]| {
        let (mut inbox, mut seen) = (Inbox::new(MAX_FRAME), Vec::new());
        let note = |frame: Frame<'_>| {
            decode_error(frame.message);
            seen.push((frame.flags, frame.id, frame.message.to_vec(), frame.raw.to_bytes()));
            Ok(Next::Frame)
        };
        let mut note = note;
        let fed = parts.iter().try_for_each(|part| match inbox.feed(part, &mut note) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        (fed, seen)
    };
    let (one, two) = bytes.split_at(cut.min(bytes.len()));
    assert_eq!(read(&[bytes]), read(&[one, two]));
}

/// Decodes an error as the side that asked would. The fuzz target of clusters decodes the other messages.
fn decode_error(message: &[u8]) {
    if let Ok(proto::Response { response: Some(Response::Error(error)) }) = proto::Response::decode(message) {
        drop(model::Error::from(error));
    }
}

/// A sent message can be received.
fn check_round_trip(message: &[u8], raw: &[u8]) {
    let Ok(request) = proto::Request::decode(message) else { return };
    let mut bytes = Vec::new();
    encode_head(&mut bytes, Flags::REQUEST, 1, &request, raw.len(), crc32c(raw));
    bytes.extend_from_slice(raw);
    let mut count = 0;
    let fed = Inbox::new(MAX_FRAME).feed(&bytes, |frame| {
        count += 1;
        assert_eq!(proto::Request::decode(frame.message).as_ref(), Ok(&request));
        assert!(frame.raw.as_slice() == raw && frame.is_raw_intact());
        Ok(Next::Frame)
    });
    assert!(fed.is_err() || count == 1);
}
