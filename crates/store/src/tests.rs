//! The conformance suite: the same behavior on every kind of store, and after every kind of restart.

use bytes::Bytes;
use model::{ClassId, Committed, Conflict, ErrorKind, Kind, Name, Oid, Op, Outcome, SpaceId, Transaction};

use crate::{Options, Store};

pub(crate) mod audit;
mod contents;
mod crash;
mod faults;
mod objects;
mod planted;
mod planted_content;
mod random;
mod reference_model;
mod rows;
mod scenarios;
mod threads;
pub(crate) mod world;

pub(crate) const MAIN: SpaceId = SpaceId(1);

pub(crate) fn temporary(index: u64) -> Oid {
    Oid::temporary(MAIN, ClassId::NONE, index)
}

pub(crate) fn name(path: &str) -> Name {
    Name { space: MAIN, path: path.to_owned() }
}

pub(crate) fn create(index: u64, kind: Kind, data: impl Into<Bytes>) -> Op {
    Op::Create { oid: temporary(index), kind, data: data.into(), near: None }
}

pub(crate) fn commit(store: &Store, ops: impl Into<Vec<Op>>) -> Committed {
    match store.commit(Transaction { ops: ops.into() }).unwrap() {
        Outcome::Committed(committed) => committed,
        Outcome::Conflict(conflict) => panic!("{conflict:?}"),
    }
}

pub(crate) fn blob(store: &Store, data: impl Into<Bytes>) -> Oid {
    commit(store, [create(0, Kind::Blob, data)]).created[0]
}

pub(crate) fn refusal(store: &Store, ops: impl Into<Vec<Op>>) -> (ErrorKind, String) {
    let error = store.commit(Transaction { ops: ops.into() }).unwrap_err();
    (error.kind(), error.message().to_owned())
}

pub(crate) fn conflict(store: &Store, ops: impl Into<Vec<Op>>) -> Conflict {
    match store.commit(Transaction { ops: ops.into() }).unwrap() {
        Outcome::Conflict(conflict) => conflict,
        Outcome::Committed(committed) => panic!("{committed:?}"),
    }
}

/// Bytes that depend on their position and the seed.
pub(crate) fn pattern(len: usize, seed: u8) -> Bytes {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect::<Vec<_>>().into()
}
