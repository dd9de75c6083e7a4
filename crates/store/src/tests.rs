//! The conformance suite: the same behavior on every kind of store, and after every kind of restart.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use model::{ContentId, ErrorKind, UploadId, limits};

use crate::{ContentChange, Options, RowChanges, Store};

pub(crate) mod audit;
mod contents;
mod crash;
mod damage;
mod damaged_rows;
mod faults;
mod holding;
mod identity;
mod impossible_numbers;
mod one_disk;
mod opening;
mod planted;
mod planted_content;
mod random;
mod reference_model;
mod rows;
mod scenarios;
mod threads;
pub(crate) mod world;

/// An identifier that no other call returns. Later ones are greater.
pub(crate) fn new_id() -> ContentId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = u128::from(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    ContentId(number << 64 | number)
}

pub(crate) fn create(id: ContentId, data: impl Into<Bytes>) -> ContentChange {
    ContentChange::Create { id, data: data.into() }
}

pub(crate) fn take(id: ContentId, upload: UploadId) -> ContentChange {
    ContentChange::CreateFromUpload { id, upload }
}

pub(crate) fn write(id: ContentId, offset: usize, data: impl Into<Bytes>) -> ContentChange {
    ContentChange::Write { id, offset: offset as u64, data: data.into() }
}

pub(crate) fn truncate(id: ContentId, size: usize) -> ContentChange {
    ContentChange::Truncate { id, size: size as u64 }
}

pub(crate) fn zero(id: ContentId, offset: usize, len: usize) -> ContentChange {
    ContentChange::Zero { id, offset: offset as u64, len: len as u64 }
}

pub(crate) fn delete(id: ContentId) -> ContentChange {
    ContentChange::Delete { id }
}

/// Replaces all bytes of a content.
pub(crate) fn replace(id: ContentId, data: impl Into<Bytes>) -> [ContentChange; 2] {
    [truncate(id, 0), write(id, 0, data)]
}

/// Changes of contents without rows.
pub(crate) fn of_contents(changes: impl IntoIterator<Item = ContentChange>) -> RowChanges {
    let mut all = RowChanges::new();
    changes.into_iter().for_each(|change| all.content(change));
    all
}

pub(crate) fn commit(store: &Store, changes: impl IntoIterator<Item = ContentChange>) -> u64 {
    store.commit_rows(of_contents(changes)).unwrap()
}

/// Submits changes; the reply does not matter.
pub(crate) fn submit(store: &Store, changes: impl IntoIterator<Item = ContentChange>) {
    store.submit_rows(of_contents(changes), drop);
}

/// Creates a content.
pub(crate) fn content(store: &Store, data: impl Into<Bytes>) -> ContentId {
    let id = new_id();
    commit(store, [create(id, data)]);
    id
}

pub(crate) fn upload(store: &Store, data: &[u8]) -> UploadId {
    let upload = store.begin_upload().unwrap();
    for piece in data.chunks(100_000) {
        store.upload(upload, Bytes::copy_from_slice(piece)).unwrap();
    }
    upload
}

pub(crate) fn refusal(store: &Store, changes: impl IntoIterator<Item = ContentChange>) -> (ErrorKind, String) {
    let error = store.commit_rows(of_contents(changes)).unwrap_err();
    (error.kind(), error.message().to_owned())
}

/// All bytes of a content, in several reads if it is large.
pub(crate) fn bytes(store: &Store, id: ContentId) -> Vec<u8> {
    let size = store.content_size(id).unwrap().unwrap();
    let pieces = (0..size).step_by(8 << 20).map(|at| store.read_content(id, at, 8 << 20).unwrap());
    pieces.flatten().collect()
}

/// All contents of a store.
pub(crate) fn ids(store: &Store) -> Vec<ContentId> {
    store.contents(ContentId(0), ContentId(u128::MAX), 10_000).unwrap()
}

/// Bytes that depend on their position and the seed.
pub(crate) fn pattern(len: usize, seed: u8) -> Bytes {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect::<Vec<_>>().into()
}

/// Panics unless the inputs of a fuzz target are these. With `MORTAR_WRITE_GOLDEN` they are written instead.
pub(crate) fn check_corpus(target: &str, inputs: &[(String, Vec<u8>)]) {
    let dir = Path::new("../../fuzz/corpus").join(target);
    let is_writing = std::env::var_os("MORTAR_WRITE_GOLDEN").is_some();
    for (name, bytes) in inputs {
        if is_writing {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
        let found = std::fs::read(dir.join(name)).unwrap_or_default();
        assert!(found == *bytes, "{target}/{name} is not what the code writes: see MORTAR_WRITE_GOLDEN");
    }
}
