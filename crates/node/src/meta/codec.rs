//! Between the messages of `proto/meta.proto` and the types of `meta`.
//!
//! Messages come from outside: keys are checked, and lengths against the bytes that arrived.

use std::time::Duration;

use bytes::Bytes;
use meta::{
    ChangedKey, Expect, Key, KeyChange, MetaEntry, MetaSession, MetaSessionId, MetaSnapshot, Revision, WatchBatch,
    WriteOutcome,
};
use model::{Error, ErrorKind, Result};
use wire::frame::Raw;
use wire::proto::meta as proto;
use wire::proto::response::Response;

/// Bytes of keys and values in one of several answers, unless a single entry has more.
const PIECE: usize = 1 << 20;
/// Entries in one of several answers.
const PIECE_ENTRIES: usize = 4096;

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::Invalid, what.to_owned())
}

/// The values of a message, in order.
struct Values<'a> {
    raw: Raw<'a>,
    at: usize,
}

impl<'a> Values<'a> {
    fn new(raw: Raw<'a>) -> Self {
        Self { raw, at: 0 }
    }

    fn take(&mut self, length: u32) -> Result<Bytes> {
        let end = self.at.checked_add(length as usize).filter(|end| *end <= self.raw.len());
        let end = end.ok_or_else(|| invalid("a message about the catalogue has fewer bytes than its values need"))?;
        let value = self.raw.slice(self.at..end);
        self.at = end;
        Ok(value)
    }

    fn finish(self) -> Result<()> {
        match self.at == self.raw.len() {
            true => Ok(()),
            false => Err(invalid("a message about the catalogue has more bytes than its values need")),
        }
    }
}

fn length(value: &Bytes) -> u32 {
    // A value is at most a MiB.
    value.len() as u32
}

// ---------------------------------------------------------------------------------------------- writes

pub(super) fn write_to_proto(
    writer: &[u8; 16],
    number: u64,
    expects: &[Expect],
    changes: &[KeyChange],
) -> (proto::Write, Vec<Bytes>) {
    let mut raw = Vec::new();
    let expect = |expect: &Expect| {
        let revision = expect.revision.map(|revision| revision.0);
        proto::Expect { key: expect.key.to_string(), revision }
    };
    let expects = expects.iter().map(expect).collect();
    let mut change = |change: &KeyChange| {
        let (key, change) = match change {
            KeyChange::Put { key, value, session } => {
                raw.push(value.clone());
                let put = proto::Put { value_length: length(value), session: session.map(|session| session.0) };
                (key, proto::change::Change::Put(put))
            }
            KeyChange::Remove { key } => (key, proto::change::Change::Remove(proto::Remove {})),
        };
        proto::Change { key: key.to_string(), change: Some(change) }
    };
    let changes = changes.iter().map(&mut change).collect();
    let writer = Bytes::copy_from_slice(writer);
    (proto::Write { writer, number, again: false, expects, changes }, raw)
}

pub(super) fn expects(expects: Vec<proto::Expect>) -> Result<Vec<Expect>> {
    let expect =
        |expect: proto::Expect| Ok(Expect { key: Key::new(expect.key)?, revision: expect.revision.map(Revision) });
    expects.into_iter().map(expect).collect()
}

pub(super) fn changes(changes: Vec<proto::Change>, raw: Raw<'_>) -> Result<Vec<KeyChange>> {
    let mut values = Values::new(raw);
    let mut change = |change: proto::Change| {
        let key = Key::new(change.key)?;
        match change.change {
            Some(proto::change::Change::Put(put)) => Ok(KeyChange::Put {
                key,
                value: values.take(put.value_length)?,
                session: put.session.map(MetaSessionId),
            }),
            Some(proto::change::Change::Remove(_)) => Ok(KeyChange::Remove { key }),
            None => Err(invalid("a change of the catalogue does not say what changes")),
        }
    };
    let changes = changes.into_iter().map(&mut change).collect::<Result<_>>()?;
    values.finish()?;
    Ok(changes)
}

pub(super) fn write_outcome_to_proto(written: WriteOutcome) -> proto::Written {
    let written = match written {
        WriteOutcome::Done(revision) => proto::written::Written::Revision(revision.0),
        WriteOutcome::Conflict => proto::written::Written::Conflict(proto::Conflict {}),
    };
    proto::Written { written: Some(written) }
}

pub(super) fn write_outcome_from_proto(written: &proto::Written) -> Result<WriteOutcome> {
    match written.written {
        Some(proto::written::Written::Revision(revision)) => Ok(WriteOutcome::Done(Revision(revision))),
        Some(proto::written::Written::Conflict(_)) => Ok(WriteOutcome::Conflict),
        None => Err(invalid("the meta-server does not say how a write ended")),
    }
}

// ---------------------------------------------------------------------------------------------- reads

/// The answers that make up a state, in order.
pub(super) fn state_to_proto(state: MetaSnapshot) -> Vec<(Response, Vec<Bytes>)> {
    let revision = state.revision.0;
    let entry = |(key, entry): (Key, MetaEntry)| {
        let MetaEntry { value, revision, session } = entry;
        let (value_length, session) = (length(&value), session.map(|session| session.0));
        (proto::Entry { key: key.to_string(), value_length, revision: revision.0, session }, value)
    };
    let pieces = pieces(state.entries.into_iter().map(entry), |entry| entry.key.len());
    let last = pieces.len() - 1;
    let answer =
        |(at, (entries, raw))| (Response::MetaState(proto::State { revision, entries, more: at != last }), raw);
    pieces.into_iter().enumerate().map(answer).collect()
}

/// Adds an answer to a state; `true` if more follow.
pub(super) fn extend_state(state: &mut MetaSnapshot, piece: proto::State, raw: Bytes) -> Result<bool> {
    let mut values = Values::new(Raw::Owned(raw));
    for proto::Entry { key, value_length, revision, session } in piece.entries {
        let value = values.take(value_length)?;
        let (revision, session) = (Revision(revision), session.map(MetaSessionId));
        state.entries.push((Key::new(key)?, MetaEntry { value, revision, session }));
    }
    values.finish()?;
    state.revision = Revision(piece.revision);
    Ok(piece.more)
}

/// The answers that make up a batch, in order.
pub(super) fn batch_to_proto(batch: WatchBatch) -> Vec<(Response, Vec<Bytes>)> {
    let revision = batch.revision.0;
    let changed = |ChangedKey { key, entry }: ChangedKey| {
        let (value, session) = entry.map_or((None, None), |entry| (Some(entry.value), entry.session));
        let entered = value
            .as_ref()
            .map(|value| proto::EntryValue { value_length: length(value), session: session.map(|session| session.0) });
        (proto::Changed { key: key.to_string(), entry: entered }, value.unwrap_or_default())
    };
    let pieces = pieces(batch.changes.into_iter().map(changed), |changed| changed.key.len());
    let last = pieces.len() - 1;
    let answer =
        |(at, (changes, raw))| (Response::MetaBatch(proto::Batch { revision, changes, more: at != last }), raw);
    pieces.into_iter().enumerate().map(answer).collect()
}

/// Adds an answer to a batch; `true` if more follow.
pub(super) fn extend_batch(batch: &mut WatchBatch, piece: proto::Batch, raw: Bytes) -> Result<bool> {
    let mut values = Values::new(Raw::Owned(raw));
    batch.revision = Revision(piece.revision);
    for proto::Changed { key, entry } in piece.changes {
        let revision = batch.revision;
        let enter = |entered: proto::EntryValue| {
            let value = values.take(entered.value_length)?;
            Ok::<_, Error>(MetaEntry { value, revision, session: entered.session.map(MetaSessionId) })
        };
        batch.changes.push(ChangedKey { key: Key::new(key)?, entry: entry.map(enter).transpose()? });
    }
    values.finish()?;
    Ok(piece.more)
}

/// Packs items and their values into messages of bounded size: at least one, which may be empty.
fn pieces<T>(things: impl Iterator<Item = (T, Bytes)>, overhead: impl Fn(&T) -> usize) -> Vec<(Vec<T>, Vec<Bytes>)> {
    let mut pieces = vec![(Vec::new(), Vec::new())];
    let mut bytes = 0;
    for (thing, value) in things {
        let size = overhead(&thing) + value.len();
        let (last, _) = &pieces[pieces.len() - 1];
        if !last.is_empty() && (bytes + size > PIECE || last.len() >= PIECE_ENTRIES) {
            pieces.push((Vec::new(), Vec::new()));
            bytes = 0;
        }
        bytes += size;
        if let Some((things, values)) = pieces.last_mut() {
            things.push(thing);
            values.push(value);
        }
    }
    pieces
}

// ---------------------------------------------------------------------------------------------- sessions

pub(super) fn session_to_proto(session: MetaSession) -> proto::Session {
    proto::Session { id: session.id.0, ttl_ms: milliseconds(session.ttl) }
}

pub(super) fn session(session: &proto::Session) -> MetaSession {
    MetaSession { id: MetaSessionId(session.id), ttl: Duration::from_millis(session.ttl_ms) }
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_states_and_batches_are_whole_again() {
        let key = |number: usize| Key::new(format!("key/{number:06}")).unwrap();
        let entry = |number: usize| MetaEntry {
            value: Bytes::from(vec![7; if number.is_multiple_of(100) { PIECE } else { number % 7 }]),
            revision: Revision(9),
            session: number.is_multiple_of(3).then_some(MetaSessionId(number as u64)),
        };
        for count in [0, 1, 3 * PIECE_ENTRIES] {
            let state =
                MetaSnapshot { revision: Revision(10), entries: (0..count).map(|n| (key(n), entry(n))).collect() };
            let (mut read, mut more) = (MetaSnapshot::default(), true);
            for (piece, raw) in state_to_proto(state.clone()) {
                assert!(more);
                let Response::MetaState(piece) = piece else { panic!("{piece:?}") };
                more = extend_state(&mut read, piece, raw.concat().into()).unwrap();
            }
            assert!(!more && read == state);
            let changed = |n: usize| ChangedKey { key: key(n), entry: Some(entry(n)).filter(|_| n % 5 != 1) };
            let batch = WatchBatch { revision: Revision(9), changes: (0..count).map(changed).collect() };
            let (mut read, mut more) = (WatchBatch { revision: Revision(0), changes: Vec::new() }, true);
            for (piece, raw) in batch_to_proto(batch.clone()) {
                assert!(more);
                let Response::MetaBatch(piece) = piece else { panic!("{piece:?}") };
                more = extend_batch(&mut read, piece, raw.concat().into()).unwrap();
            }
            assert!(!more && read == batch);
        }
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let change = |value_length| {
            let put = proto::Put { value_length, session: None };
            vec![proto::Change { key: "a".to_owned(), change: Some(proto::change::Change::Put(put)) }]
        };
        assert!(changes(change(3), Raw::Borrowed(b"abc")).is_ok());
        for wrong in [2, 4, u32::MAX] {
            assert_eq!(changes(change(wrong), Raw::Borrowed(b"abc")).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
