//! Contents in the form of rows, as a move copies them.
//!
//! | key | value |
//! | --- | --- |
//! | `X` content | the size of a content |
//! | `X` content chunk | the bytes of a chunk of 64 KiB; fewer at the end |
//!
//! The store has no such rows. The keys are behind those of all rows of the logical node, in the order of contents and offsets, and the
//! size of a content comes before its chunks.

use std::ops::ControlFlow;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, NodeId, Result};
use store::{ContentChange, RowChanges, Snapshot, Store};

use super::page_rows::Key;

/// A source of contents: the newest durable state, or a snapshot.
pub(crate) trait Contents {
    /// Contents from `from` on and below `to`, in order, at most `limit`.
    fn contents(&self, from: ContentId, to: ContentId, limit: usize) -> Result<Vec<ContentId>>;
    /// The size of a content.
    fn content_size(&self, id: ContentId) -> Result<Option<u64>>;
    /// A range of the bytes of a content.
    fn read_content(&self, id: ContentId, offset: u64, len: u64) -> Result<Bytes>;
}

macro_rules! contents_of {
    ($($place:ty),*) => {$(
        impl Contents for $place {
            fn contents(&self, from: ContentId, to: ContentId, limit: usize) -> Result<Vec<ContentId>> {
                self.contents(from, to, limit)
            }

            fn content_size(&self, id: ContentId) -> Result<Option<u64>> {
                self.content_size(id)
            }

            fn read_content(&self, id: ContentId, offset: u64, len: u64) -> Result<Bytes> {
                self.read_content(id, offset, len)
            }
        }
    )*};
}

contents_of!(Store, Snapshot);

/// Bytes of a chunk.
pub(super) const CHUNK: u64 = 64 << 10;
/// The table of the keys.
const TABLE: u8 = b'X';

/// The key of the size of a content.
pub(super) fn size_key(id: ContentId) -> Key {
    let mut key = Key::from_slice(&[TABLE]);
    key.extend_from_slice(&id.0.to_be_bytes());
    key
}

/// The key of a chunk of a content.
pub(super) fn chunk_key(id: ContentId, chunk: u64) -> Key {
    let mut key = size_key(id);
    key.extend_from_slice(&chunk.to_be_bytes());
    key
}

/// The content of a key, and the chunk, if the key is of one; `None` if the key is in another table.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the key has another length.
pub(crate) fn parse(key: &[u8]) -> Result<Option<(ContentId, Option<u64>)>> {
    let Some((&TABLE, rest)) = key.split_first() else { return Ok(None) };
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok();
    let parsed = rest.split_first_chunk().and_then(|(id, chunk)| {
        let id = ContentId(u128::from_be_bytes(*id));
        if chunk.is_empty() { Some((id, None)) } else { Some((id, Some(number(chunk)?))) }
    });
    match parsed {
        Some(parsed) => Ok(Some(parsed)),
        None => Err(Error::new(ErrorKind::Corrupt, format!("key {key:02x?} is not that of a content"))),
    }
}

/// The value for a key of this table; `None` if there is nothing.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn read(state: &impl Contents, id: ContentId, chunk: Option<u64>) -> Result<Option<Bytes>> {
    let Some(size) = state.content_size(id)? else { return Ok(None) };
    let Some(chunk) = chunk else { return Ok(Some(Bytes::copy_from_slice(&size.to_be_bytes()))) };
    match chunk.checked_mul(CHUNK).filter(|offset| *offset < size) {
        Some(offset) => state.read_content(id, offset, CHUNK.min(size - offset)).map(Some),
        None => Ok(None),
    }
}

/// Visits the contents of a logical node as rows, from a key on that may be in another table.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn each(
    state: &impl Contents,
    node: NodeId,
    from: &[u8],
    mut visit: impl FnMut(&[u8], Bytes) -> ControlFlow<()>,
) -> Result<()> {
    let (first, end) = ContentId::range_of(node);
    let begun = parse(from)?;
    let mut next = begun.map_or(first, |(id, _)| id.max(first));
    let mut begin_chunk = begun.and_then(|(_, chunk)| chunk);
    while let [id] = state.contents(next, end, 1)?[..] {
        if id != next {
            begin_chunk = None;
        }
        if begin_chunk.is_none()
            && let Some(size) = read(state, id, None)?
            && visit(&size_key(id), size).is_break()
        {
            return Ok(());
        }
        for chunk in begin_chunk.unwrap_or(0).. {
            let Some(bytes) = read(state, id, Some(chunk))? else { break };
            if visit(&chunk_key(id, chunk), bytes).is_break() {
                return Ok(());
            }
        }
        (next, begin_chunk) = (ContentId(id.0 + 1), None);
    }
    Ok(())
}

/// Adds what a copied row of this table means for the contents.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the value does not fit the key.
pub(crate) fn apply(
    changes: &mut RowChanges,
    (id, chunk): (ContentId, Option<u64>),
    value: Option<Bytes>,
) -> Result<()> {
    let invalid = || Error::new(ErrorKind::Invalid, format!("a copied part of the content {id} has the wrong length"));
    match (chunk, value) {
        (None, None) => changes.content(ContentChange::Delete { id }),
        (None, Some(size)) => {
            let size = size.as_ref().try_into().map(u64::from_be_bytes).map_err(|_| invalid())?;
            changes.content(ContentChange::Resize { id, size });
        }
        // The size tells that it is gone.
        (Some(_), None) => {}
        (Some(chunk), Some(data)) => {
            let offset = chunk.checked_mul(CHUNK).filter(|_| data.len() as u64 <= CHUNK).ok_or_else(invalid)?;
            changes.content(ContentChange::Write { id, offset, data });
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use model::{ContentOrigin, SpaceId};
    use store::Options;

    use super::*;

    pub(in crate::brick) const NODE: NodeId = NodeId(3);

    pub(in crate::brick) fn id(number: u64) -> ContentId {
        ContentId::new(SpaceId(1), NODE, 1, ContentOrigin::Record, number)
    }

    pub(in crate::brick) fn store() -> Store {
        Store::in_memory(Options::default()).unwrap()
    }

    pub(in crate::brick) fn change(store: &Store, changes: Vec<ContentChange>) {
        let mut all = RowChanges::new();
        changes.into_iter().for_each(|one| all.content(one));
        store.commit_rows(all).unwrap();
    }

    fn rows(store: &Store, from: &[u8], most: usize) -> Vec<(Vec<u8>, Bytes)> {
        let mut all = Vec::new();
        each(store, NODE, from, |key, value| {
            all.push((key.to_vec(), value));
            if all.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
        all
    }

    pub(in crate::brick) fn copy(rows: Vec<(Vec<u8>, Option<Bytes>)>, to: &Store) {
        let mut changes = RowChanges::new();
        for (key, value) in rows {
            apply(&mut changes, parse(&key).unwrap().unwrap(), value).unwrap();
        }
        to.commit_rows(changes).unwrap();
    }

    pub(in crate::brick) fn contents() -> Store {
        let store = store();
        let large: Bytes = (0..200_000_u32).map(|n| n as u8).collect::<Vec<_>>().into();
        change(
            &store,
            vec![
                ContentChange::Create { id: id(1), data: large },
                ContentChange::Create { id: id(2), data: Bytes::new() },
                ContentChange::Create { id: id(3), data: "small".into() },
                ContentChange::Create {
                    id: ContentId::new(SpaceId(1), NodeId(4), 1, ContentOrigin::Record, 9),
                    data: "of another node".into(),
                },
            ],
        );
        store
    }

    pub(in crate::brick) fn assert_equal(one: &Store, other: &Store) {
        assert_eq!(rows(one, b"", usize::MAX), rows(other, b"", usize::MAX));
    }

    #[test]
    fn copied_contents_are_equal_wherever_portions_end() {
        let source = contents();
        let all = rows(&source, b"P", usize::MAX);
        assert_eq!(all.len(), 5 + 1 + 2, "a size and four chunks, a size, a size and a chunk");
        for most in 1..=all.len() {
            let (target, mut from) = (store(), Vec::new());
            loop {
                let mut portion = rows(&source, &from, most + 1);
                let next = (portion.len() > most).then(|| portion.pop().unwrap().0);
                copy(portion.into_iter().map(|(key, value)| (key, Some(value))).collect(), &target);
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
            assert_equal(&source, &target);
        }
    }

    #[test]
    fn malformed_keys_and_values_are_refused() {
        assert_eq!(parse(b"P-key").unwrap(), None);
        assert!(parse(b"X-key").is_err());
        let mut changes = RowChanges::new();
        assert!(apply(&mut changes, (id(1), None), Some("short".into())).is_err());
        assert!(apply(&mut changes, (id(1), Some(0)), Some(vec![0; CHUNK as usize + 1].into())).is_err());
        assert!(apply(&mut changes, (id(1), Some(u64::MAX)), Some(Bytes::new())).is_err());
        assert!(changes.is_empty());
    }
}
