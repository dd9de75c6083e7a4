//! The rows of the entries of collections.
//!
//! | key | value |
//! | --- | --- |
//! | `C` node collection | totals: the number of entries, and the largest commit timestamp of a change of an entry |
//! | `C` node collection key | the identifier of the target: an entry |
//! | `R` node target collection key | nothing: the entry, found from its target |
//!
//! `node` is the logical node of the collection in both tables. Identifiers have 16 bytes, keys of entries 1 to 255. So the entries
//! of a collection are one range of keys, in the order of their own keys, behind the totals.

use std::ops::ControlFlow;

use bytes::{BufMut, Bytes, BytesMut};
use model::{Entry, EntryKey, Error, ErrorKind, NodeId, Oid, Result, limits};
use protocol::ident::HlcTimestamp;

use super::page_rows::{Key, Rows};

/// Bytes of the prefix of the entries of a collection, and of those that have a target.
const PREFIX: usize = 1 + 4 + Oid::LEN;
/// Bytes of the totals.
const TOTALS: usize = 8 + 8;

const _: () = assert!(PREFIX + Oid::LEN + limits::ENTRY_KEY <= limits::ROW_KEY);

/// What is known of a collection without its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The number of entries.
    pub(crate) count: u64,
    /// The largest commit timestamp of a change of an entry.
    pub(crate) modified: HlcTimestamp,
}

fn prefix(table: u8, node: NodeId, oid: Oid) -> Key {
    let mut key = Key::new();
    key.push(table);
    key.extend_from_slice(&node.0.to_be_bytes());
    key.extend_from_slice(&oid.to_bytes());
    key
}

/// Before all rows that are found from targets at this logical node, and behind those of the nodes before it.
fn targets_of(node: u32) -> Key {
    let mut key = Key::from_slice(b"R");
    key.extend_from_slice(&node.to_be_bytes());
    key
}

/// The key of the totals of a collection, which is before the keys of its entries.
pub(crate) fn totals_key(collection: Oid) -> Key {
    prefix(b'C', collection.page().node, collection)
}

/// The key of an entry.
pub(crate) fn entry_key(collection: Oid, key: &EntryKey) -> Key {
    let mut row = totals_key(collection);
    row.extend_from_slice(key.as_bytes());
    row
}

/// The key under which an entry is found from its target.
pub(crate) fn reverse_key(target: Oid, entry: &Entry) -> Key {
    let mut row = prefix(b'R', entry.collection.page().node, target);
    row.extend_from_slice(&entry.collection.to_bytes());
    row.extend_from_slice(entry.key.as_bytes());
    row
}

/// The keys of the entries of a collection whose keys begin with `with`.
pub(crate) fn entry_range(collection: Oid, with: &[u8]) -> (Key, Key) {
    let mut from = totals_key(collection);
    from.extend_from_slice(with);
    let to = successor(&from);
    if with.is_empty() {
        // The totals are no entry.
        from.push(0);
    }
    (from, to)
}

/// The keys of the entries at a logical node that have a target, behind one of them.
pub(crate) fn reverse_range(node: NodeId, target: Oid, after: Option<&Entry>) -> (Key, Key) {
    let all = prefix(b'R', node, target);
    let from = match after {
        Some(entry) => {
            let mut from = reverse_key(target, entry);
            from.push(0);
            from
        }
        None => all.clone(),
    };
    (from, successor(&all))
}

/// The logical nodes at which something has entries.
///
/// # Errors
/// If rows cannot be read.
pub(crate) fn nodes_with_entries(state: &impl Rows) -> Result<Vec<NodeId>> {
    let (mut nodes, mut from) = (Vec::new(), Key::from_slice(b"R"));
    loop {
        let mut next = None;
        state.each(&from, b"S", |key, _| {
            next = key.get(1..5).and_then(|node| node.try_into().ok()).map(u32::from_be_bytes);
            ControlFlow::Break(())
        })?;
        let Some(node) = next else { return Ok(nodes) };
        if node > NodeId::MAX.0 {
            return Err(damage_error(&targets_of(node), "it is of no logical node"));
        }
        nodes.push(NodeId(node));
        from = targets_of(node + 1);
    }
}

/// The smallest key above all that begin with this one, which has a byte below 255: its table.
fn successor(key: &[u8]) -> Key {
    let mut next = Key::from_slice(key);
    while let Some(last) = next.pop() {
        if last < u8::MAX {
            next.push(last + 1);
            break;
        }
    }
    next
}

/// The collection in the key of a row of table `C`, or the target in one of table `R`.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn oid_in_row(row: &[u8]) -> Result<Oid> {
    let oid = row.get(5..PREFIX).and_then(|oid| oid.try_into().ok());
    oid.map(Oid::from_bytes).ok_or_else(|| damage_error(row, "it names no object"))
}

/// Whether a row of table `C` has the totals of a collection.
pub(crate) fn is_totals(row: &[u8]) -> bool {
    row.len() == PREFIX
}

/// The key of an entry in the key of its row.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn key_in_row(row: &[u8]) -> Result<EntryKey> {
    let key = row.get(PREFIX..).map(Bytes::copy_from_slice).unwrap_or_default();
    EntryKey::new(key).map_err(|_| damage_error(row, "it has no key"))
}

/// The entry in the key of a row of table `R`.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn entry_in_row(row: &[u8]) -> Result<Entry> {
    let parts = row.get(PREFIX..).and_then(|rest| rest.split_first_chunk::<{ Oid::LEN }>());
    let (collection, key) = parts.ok_or_else(|| damage_error(row, "it has no collection"))?;
    let key = EntryKey::new(Bytes::copy_from_slice(key)).map_err(|_| damage_error(row, "it has no key"))?;
    Ok(Entry { collection: Oid::from_bytes(*collection), key })
}

/// The value of the row of an entry.
pub(crate) fn encode_target(target: Oid) -> Bytes {
    Bytes::copy_from_slice(&target.to_bytes())
}

/// The target in the value of a row.
///
/// # Errors
/// [`ErrorKind::Corrupt`].
pub(crate) fn decode_target(row: &[u8], value: &[u8]) -> Result<Oid> {
    let bytes = value.try_into().map_err(|_| damage_error(row, "its target has the wrong length"))?;
    Ok(Oid::from_bytes(bytes))
}

/// The target of an entry; `None` if there is no such entry.
///
/// # Errors
/// If the row cannot be read.
pub(crate) fn read_target(state: &impl Rows, collection: Oid, key: &EntryKey) -> Result<Option<Oid>> {
    let row = entry_key(collection, key);
    state.get_with(&row, |value| decode_target(&row, value))?.transpose()
}

impl Totals {
    /// The value of a row of totals.
    pub(crate) fn encode(self) -> Bytes {
        let mut row = BytesMut::with_capacity(TOTALS);
        row.put_u64(self.count);
        row.put_u64(self.modified.0);
        row.freeze()
    }

    /// Reads the totals of a collection: none, if no entry was ever changed.
    ///
    /// # Errors
    /// If the row cannot be read.
    pub(crate) fn read(state: &impl Rows, collection: Oid) -> Result<Self> {
        let key = totals_key(collection);
        let totals = state.get_with(&key, |row| Self::decode(&key, row))?;
        totals.unwrap_or(Ok(Self::default()))
    }

    /// The totals in the value of a row.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`].
    pub(crate) fn decode(key: &[u8], row: &[u8]) -> Result<Self> {
        let row: &[u8; TOTALS] = row.try_into().map_err(|_| damage_error(key, "it has the wrong length"))?;
        let [c0, c1, c2, c3, c4, c5, c6, c7, modified @ ..] = *row;
        let count = u64::from_be_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
        Ok(Self { count, modified: HlcTimestamp(u64::from_be_bytes(modified)) })
    }
}

fn damage_error(row: &[u8], why: &str) -> Error {
    let what = format!("row {row:02x?} of a collection is damaged: {why}; see \"Mend\" in docs/operations.md");
    Error::new(ErrorKind::Corrupt, what)
}

#[cfg(test)]
mod tests {
    use model::{ClassId, PageId, SpaceId};
    use store::{Options, RowChanges, Store};

    use super::*;
    use crate::brick::row_reader::RowReader;

    fn oid(slot: u16) -> Oid {
        Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(3), number: 7 }, slot)
    }

    fn key(bytes: &[u8]) -> EntryKey {
        EntryKey::new(bytes.to_vec()).unwrap()
    }

    #[test]
    fn range_has_the_entries_of_one_collection_and_not_its_totals() {
        let (from, to) = entry_range(oid(u16::MAX), b"");
        for bytes in [&[0][..], &[0xff; 255], b"name"] {
            let row = entry_key(oid(u16::MAX), &key(bytes));
            assert!(from <= row && row < to, "{bytes:?}");
            assert_eq!(key_in_row(&row).unwrap(), key(bytes));
        }
        assert!(totals_key(oid(u16::MAX)) < from);
        assert!(entry_key(oid(u16::MAX - 1), &key(&[0xff; 255])) < from);
        let (from, to) = entry_range(oid(1), b"a\xff");
        assert!(from <= entry_key(oid(1), &key(b"a\xff")) && entry_key(oid(1), &key(b"a\xff\xff")) < to);
        assert!(entry_key(oid(1), &key(b"b")) >= to && entry_key(oid(1), &key(b"a")) < from);
    }

    #[test]
    fn row_of_no_logical_node_is_damage() {
        let store = Store::in_memory(Options::default()).unwrap();
        let write = |key: &[u8]| {
            let mut changes = RowChanges::new();
            changes.put(key, "".into());
            store.commit_rows(changes).unwrap();
        };
        write(&reverse_key(oid(9), &Entry { collection: oid(5), key: key(b"name") }));
        assert_eq!(nodes_with_entries(&RowReader::new(store.clone())).unwrap(), [NodeId(3)]);
        write(&targets_of(u32::MAX));
        assert_eq!(nodes_with_entries(&RowReader::new(store.clone())).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn entries_are_found_from_their_targets() {
        let entry = Entry { collection: oid(5), key: key(b"name") };
        let row = reverse_key(oid(9), &entry);
        assert_eq!(entry_in_row(&row).unwrap(), entry);
        let (from, to) = reverse_range(NodeId(3), oid(9), None);
        assert!(from <= row && row < to);
        let (after, _) = reverse_range(NodeId(3), oid(9), Some(&entry));
        assert!(row < after && after < to);
        assert!(row < reverse_range(NodeId(3), oid(10), None).0);
    }

    #[test]
    fn each_logical_node_with_entries_of_targets_is_found_once() {
        let store = Store::in_memory(Options::default()).unwrap();
        let mut rows = RowChanges::new();
        for (node, name) in [(0, "a"), (3, "a"), (3, "b"), (4, "a"), (0x00ff_ffff, "a")] {
            let page = PageId { space: SpaceId(1), node: NodeId(node), number: 7 };
            let entry = Entry { collection: Oid::new(ClassId::NONE, page, 1), key: key(name.as_bytes()) };
            rows.put(&reverse_key(oid(9), &entry), Bytes::new());
        }
        store.commit_rows(rows).unwrap();
        let found = nodes_with_entries(&store.snapshot().unwrap()).unwrap();
        assert_eq!(found, [NodeId(0), NodeId(3), NodeId(4), NodeId(0x00ff_ffff)]);
    }

    #[test]
    fn damaged_rows_are_errors() {
        let kind = |error: Error| error.kind();
        assert_eq!(key_in_row(&totals_key(oid(1))).map_err(kind), Err(ErrorKind::Corrupt));
        assert_eq!(entry_in_row(b"R").map_err(kind), Err(ErrorKind::Corrupt));
        assert_eq!(decode_target(b"C", b"short").map_err(kind), Err(ErrorKind::Corrupt));
    }
}
