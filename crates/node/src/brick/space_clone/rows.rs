//! Rows of a logical node with the identifiers of a clone.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use model::{ClassId, Entry, EntryKey, Error, ErrorKind, FieldNumber, NodeId, Oid, PageId, Result, SpaceMap};
use protocol::commit::Record;
use protocol::entries::is_unique_values;
use wire::cluster::encode_record;

use super::Portion;
use super::records::map_record;
use crate::brick::entry_rows;
use crate::brick::index_rows::{self, IndexId, Mark};
use crate::brick::indexes::entry_of;
use crate::brick::node_driver::{recover_transactions, txn_pieces};
use crate::brick::page_rows::{self, Key, Rows};
use crate::brick::plant::{Bug, planted};

/// Where a key of any table has its logical node, and behind it, in tables of pages, extents and indexes, its space.
const NODE: Range<usize> = 1..5;
const SPACE: Range<usize> = 5..7;

/// Maps the rows of a logical node.
pub(super) struct RowMapper {
    map: SpaceMap,
    node: NodeId,
    target: NodeId,
    /// The indexes of the clone, with the classes whose objects they contain.
    indexes: Vec<(ClassId, IndexId, Vec<FieldNumber>)>,
}

impl RowMapper {
    /// # Errors
    /// [`ErrorKind::Invalid`] if the logical node is not of the space; those of the snapshot.
    pub(super) fn new(snapshot: &impl Rows, map: SpaceMap, node: NodeId) -> Result<Self> {
        let foreign = || Error::new(ErrorKind::Invalid, format!("logical node {:x} is not of the space", node.0));
        let target = map.node(node).ok_or_else(foreign)?;
        let mut indexes = Vec::new();
        let (from, to) = index_rows::marks_range(node);
        let mut failed = Ok(());
        snapshot.each(&from, &to, |key, row| {
            failed = index_rows::parse_mark(node, key).and_then(|(id, class)| {
                if let Mark::Building(fields) | Mark::Complete(fields) = Mark::decode(id, row)? {
                    let id = IndexId { node: target, space: map.target().space, index: id.index };
                    indexes.push((class, id, fields));
                }
                Ok(())
            });
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        failed?;
        Ok(Self { map, node, target, indexes })
    }

    /// Maps a row of any table but those of indexes and of transactions.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is damaged.
    pub(super) fn map_row(&self, key: &[u8], row: &[u8], portion: &mut Portion) -> Result<()> {
        portion.bytes += (key.len() + row.len()) as u64;
        let value = || Bytes::copy_from_slice(row);
        match key.first() {
            Some(b'B' | b'H' | b'L' | b'M' | b'N') => {
                portion.changes.put(&self.with_node(key)?, value());
                Ok(())
            }
            Some(b'D' | b'E' | b'F') => {
                portion.changes.put(&self.with_space(key)?, value());
                Ok(())
            }
            Some(b'P') => self.map_page_row(key, row, portion),
            Some(b'C') => self.map_entry(key, row, portion),
            Some(b'R') => {
                let (target, Entry { collection, key }) =
                    (entry_rows::oid_in_row(key)?, entry_rows::entry_in_row(key)?);
                let entry = self.entry(collection, &key, target);
                portion.changes.put(&entry_rows::reverse_key(self.map.oid(target), &entry), value());
                Ok(())
            }
            Some(b'U') => {
                let (id, _) = page_rows::parse_staged(key, row)?;
                let id = self.map.content(id).ok_or_else(|| foreign(key))?;
                portion.changes.put(&page_rows::staged_key(id), value());
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Corrupt, format!("row {key:02x?} is in no table that a clone knows"))),
        }
    }

    /// Maps the records of all transactions.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if one is damaged.
    pub(super) fn map_transactions(&self, snapshot: &impl Rows, portion: &mut Portion) -> Result<()> {
        let mut failed = Ok(());
        recover_transactions(self.node, snapshot, |at, record, _| {
            let Some(txn) = record.txn().filter(|_| failed.is_ok()) else { return };
            if planted(Bug::PreparedNotCloned) && matches!(record, Record::Prepared { .. }) {
                return;
            }
            match map_record(&self.map, record) {
                Ok(mapped) => {
                    let encoded = encode_record(&mapped, at);
                    portion.bytes += encoded.len() as u64;
                    for (key, piece) in txn_pieces(self.target, txn, &encoded) {
                        portion.changes.put(&key, piece);
                    }
                }
                Err(error) => failed = Err(error),
            }
        })?;
        failed
    }

    fn entry(&self, collection: Oid, key: &EntryKey, target: Oid) -> Entry {
        // The keys of unique values are any bytes.
        let key = if is_unique_values(collection) { key.clone() } else { self.map.entry_key(key, target) };
        Entry { collection: self.map.oid(collection), key }
    }

    fn map_entry(&self, key: &[u8], row: &[u8], portion: &mut Portion) -> Result<()> {
        let collection = entry_rows::oid_in_row(key)?;
        let (key, value) = if entry_rows::is_totals(key) {
            (entry_rows::totals_key(self.map.oid(collection)), Bytes::copy_from_slice(row))
        } else {
            let target = entry_rows::decode_target(key, row)?;
            let Entry { collection, key } = self.entry(collection, &entry_rows::key_in_row(key)?, target);
            (entry_rows::entry_key(collection, &key), entry_rows::encode_target(self.map.oid(target)))
        };
        portion.changes.put(&key, value);
        Ok(())
    }

    /// Maps the head of a page, or an object with its entries in indexes.
    fn map_page_row(&self, key: &[u8], row: &[u8], portion: &mut Portion) -> Result<()> {
        let (page, slot) = page_rows::parse_key(key).ok_or_else(|| foreign(key))?;
        let to: PageId = self.map.page(page).ok_or_else(|| foreign(key))?;
        let Some(slot) = slot else {
            portion.changes.put(&page_rows::head_key(to), Bytes::copy_from_slice(row));
            return Ok(());
        };
        // A damaged object must not get a new checksum.
        let row = Bytes::copy_from_slice(row);
        let stored = page_rows::verify_object(page, slot, &row).map_err(|(_, error)| error)?;
        let object = self.map.object(&stored)?;
        for (_, index, fields) in self.indexes.iter().filter(|(class, ..)| *class == object.class) {
            if let Some(entry) = entry_of(&object, fields).filter(|_| !planted(Bug::CloneWithoutIndexes)) {
                portion.changes.put(&index_rows::entry_key(*index, &entry.key, to, slot), Bytes::new());
            }
        }
        let row = if object == stored { row } else { page_rows::encode_object(&object) };
        portion.changes.put(&page_rows::object_key(to, slot), row);
        portion.objects += 1;
        Ok(())
    }

    /// A key with the logical node of the clone.
    fn with_node(&self, key: &[u8]) -> Result<Key> {
        let mut mapped = Key::from_slice(key);
        let node = mapped.get_mut(NODE).filter(|node| **node == self.node.0.to_be_bytes()[..]);
        node.ok_or_else(|| foreign(key))?.copy_from_slice(&self.target.0.to_be_bytes());
        Ok(mapped)
    }

    /// A key with the logical node and the space of the clone.
    fn with_space(&self, key: &[u8]) -> Result<Key> {
        let mut mapped = self.with_node(key)?;
        let (from, to) = (self.map.source().space.0.to_be_bytes(), self.map.target().space.0.to_be_bytes());
        let space = mapped.get_mut(SPACE).filter(|space| **space == from[..]);
        space.ok_or_else(|| foreign(key))?.copy_from_slice(&to);
        Ok(mapped)
    }
}

fn foreign(key: &[u8]) -> Error {
    Error::new(ErrorKind::Corrupt, format!("row {key:02x?} is damaged, or of another space than its logical node"))
}
