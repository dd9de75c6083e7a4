//! Mortar: its own wire.
//!
//! The number of a request is its key, so replies may arrive in any order. The frames are encoded in advance, including their
//! checksums. As for the other servers, values are compared with those that were put, not by their checksums.

use bytes::Bytes;
use model::{ClassId, Kind, Oid, Op, SpaceId, Transaction};
use prost::Message as _;
use wire::frame::{Flags, HEADER, Header, crc32c};
use wire::handshake::{self, Preamble};
use wire::outbox::encode_head;
use wire::{convert, proto};

use super::{Connection, Data, Protocol, Reply, Requests};
use crate::Result;

/// Bytes before the message of an opening: magic, version, length.
const OPENING_HEADER_BYTES: usize = 12;
/// The largest reply that is accepted.
pub(super) const MAX_FRAME: u32 = 1 << 20;
/// The first byte of a `Got` message: the tag of its field.
const GOT_TAG: u8 = 5 << 3 | 2;
/// The first byte of a `Decided` message.
const DECIDED_TAG: u8 = 3 << 3 | 2;
/// The first byte of a `Decided` that committed.
const COMMITTED_TAG: u8 = 1 << 3 | 2;

/// The expected replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mortar {
    /// Values of this size.
    Gets(usize),
    /// Transactions that committed and created this many objects.
    Commits(usize),
}

/// A get for each key.
pub(crate) fn gets<'a>(data: &'a Data, oids: &[Oid]) -> Requests<'a> {
    let max = data.size() as u32;
    Requests::gets(data, |key, out| {
        let get = proto::Get { oid: Some(oids[key].into()), snapshot: 0, max };
        request(out, key, proto::request::Request::Get(get), &[]);
    })
}

/// A transaction for each key that replaces the object's content.
pub(crate) fn puts<'a>(data: &'a Data, oids: &[Oid]) -> Requests<'a> {
    let head = |key: usize, out: &mut Vec<u8>| {
        let value = Bytes::copy_from_slice(data.value(key));
        commit(out, key, vec![Op::Put { oid: oids[key], data: value }]);
    };
    Requests::puts(data, head, b"")
}

/// A transaction for each key that creates `objects` objects of equal size, which share the key's value.
pub(crate) fn creates(data: &Data, objects: usize) -> Requests<'_> {
    let size = data.size() / objects;
    let head = move |key: usize, out: &mut Vec<u8>| {
        let value = Bytes::copy_from_slice(data.value(key));
        let create = |index: usize| Op::Create {
            oid: Oid::temporary(SpaceId(1), ClassId::NONE, index as u64),
            kind: Kind::Blob,
            data: value.slice(index * size..(index + 1) * size),
            near: None,
        };
        commit(out, key, (0..objects).map(create).collect());
    };
    Requests::puts(data, head, b"")
}

fn commit(out: &mut Vec<u8>, key: usize, ops: Vec<Op>) {
    let (commit, raw) = convert::transaction_to_proto(Transaction { ops });
    request(out, key, proto::request::Request::Commit(commit), &raw.concat());
}

/// Appends a frame without its raw part.
fn request(out: &mut Vec<u8>, key: usize, request: proto::request::Request, raw: &[u8]) {
    let message = proto::Request { request: Some(request) };
    encode_head(out, Flags::REQUEST, key as u32, &message, raw.len(), crc32c(raw));
}

/// Opens a new connection.
pub(super) fn open(connection: &mut Connection) -> Result<()> {
    let hello = proto::Hello {
        features: handshake::FEATURES,
        required: handshake::REQUIRED,
        space: "main".into(),
        agent: "mortar-bench".into(),
        ..proto::Hello::default()
    };
    connection.send(&handshake::encode(handshake::VERSION, &hello))?;
    loop {
        let input = connection.wait()?;
        let length = match handshake::decode(input) {
            Preamble::Mortar { length, .. } => length,
            Preamble::Short => continue,
            Preamble::NotMortar => return Err("the server is not a Mortar server".into()),
        };
        let end = OPENING_HEADER_BYTES + length;
        let Some(message) = input.get(OPENING_HEADER_BYTES..end) else { continue };
        let welcome = proto::Welcome::decode(message)?;
        connection.consume(end);
        return match welcome.answer {
            Some(proto::welcome::Answer::Accepted(_)) => Ok(()),
            refused => Err(format!("Mortar refuses: {refused:?}").into()),
        };
    }
}

impl Protocol for Mortar {
    fn open(&self, connection: &mut Connection) -> Result<()> {
        open(connection)
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<Reply<'a>>> {
        let Some(bytes) = input.first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::decode(bytes, MAX_FRAME)?;
        let (head, len) = (header.head_len(), header.frame_len());
        if input.len() < len {
            return Ok(None);
        }
        let (message, raw) = (&input[HEADER..HEADER + header.message], &input[head..len]);
        let right = match self {
            Self::Gets(size) => message.first() == Some(&GOT_TAG) && raw.len() == *size,
            // The length of a message below 128 bytes takes one byte.
            Self::Commits(created) => {
                let begins = message.first() == Some(&DECIDED_TAG) && message.get(2) == Some(&COMMITTED_TAG);
                begins && raw.len() == created * Oid::LEN
            }
        };
        if !right || header.flags != Flags::RESPONSE {
            return Err(format!("Mortar answered {:?}", proto::Response::decode(message)).into());
        }
        let value = matches!(self, Self::Gets(_)).then_some(raw);
        Ok(Some(Reply { len, key: Some(header.id as usize), value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Committed, Outcome};

    fn response(id: u32, response: proto::response::Response, raw: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let message = proto::Response { response: Some(response) };
        encode_head(&mut out, Flags::RESPONSE, id, &message, raw.len(), crc32c(raw));
        out.extend_from_slice(raw);
        out
    }

    #[test]
    fn incomplete_value_is_not_read() {
        let got = proto::Got { stat: None, with_content: true };
        let bytes = response(7, proto::response::Response::Got(got), b"abc");
        assert_eq!(Mortar::Gets(3).reply(&bytes[..bytes.len() - 1]).unwrap(), None);
        let reply = Mortar::Gets(3).reply(&bytes).unwrap().unwrap();
        assert_eq!(reply, Reply { len: bytes.len(), key: Some(7), value: Some(b"abc") });
        assert!(Mortar::Gets(4).reply(&bytes).is_err());
        assert!(Mortar::Commits(0).reply(&bytes).is_err());
    }

    #[test]
    fn other_replies_are_not_commits() {
        let committed = Outcome::Committed(Committed { version: 1 << 40, created: vec![Oid::MIN; 2] });
        let (decided, raw) = convert::outcome_to_proto(committed);
        let bytes = response(1, proto::response::Response::Decided(decided), &raw);
        assert_eq!(Mortar::Commits(2).reply(&bytes).unwrap().unwrap().key, Some(1));
        assert!(Mortar::Commits(1).reply(&bytes).is_err());
        let conflict = model::Conflict::Object { oid: Oid::MIN, read: Some(1), current: None };
        let (decided, raw) = convert::outcome_to_proto(Outcome::Conflict(conflict));
        let bytes = response(1, proto::response::Response::Decided(decided), &raw);
        assert!(Mortar::Commits(0).reply(&bytes).is_err());
    }
}
