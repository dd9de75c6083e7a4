//! The paper's object store: objects, collections and attributes as records of one Berkeley DB database (section 2).
//!
//! | key | bytes | value |
//! | --- | --- | --- |
//! | object | 16 | its content, or, with pieces, key and a piece's number in 4 bytes: that piece |
//! | object, `i` | 17 | its length |
//! | object, `a` | 17 | its attribute keys, sorted, 128 bytes each |
//! | object, attribute key | 144 | an attribute's value |
//! | collection | 4 | its members, sorted, 16 bytes each |
//! | collection, `a` and attribute keys | 5, 132 | as an object's |
//! | `c` | 1 | all collections, sorted, 4 bytes each |

use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::Oid;

use super::{Collections, Objects, Reopens};
use crate::Result;
use crate::rival::berkeley::{Berkeley, Force, Settings, Transaction};

/// The attribute that holds a name.
const NAME: &str = "name";
const ATTRIBUTE_KEY: usize = 128;
/// The first byte of a member's identifier that stands for a collection.
const COLLECTION: u8 = 0x40;
/// Number of transactions between two checks of the log's size.
const CHECKPOINT_EVERY: u32 = 64;

/// How the content of an object is stored in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One record, as in the paper.
    Whole,
    /// Records of this many bytes. The paper's client striped files over objects of 4 MiB in this way.
    Pieces(u32),
}

/// The store.
pub(super) struct BerkeleyStore {
    directory: PathBuf,
    settings: Settings,
    layout: Layout,
    db: Option<Berkeley>,
    next: u32,
    since_checkpoint: u32,
    buffer: Vec<u8>,
}

impl BerkeleyStore {
    pub(super) fn create(directory: &Path, settings: Settings, layout: Layout) -> Result<Self> {
        let db = Berkeley::open(directory, settings)?;
        let directory = directory.to_owned();
        Ok(Self { directory, settings, layout, db: Some(db), next: 0, since_checkpoint: 0, buffer: Vec::new() })
    }

    fn db(&self) -> Result<&Berkeley> {
        self.db.as_ref().ok_or_else(|| "Berkeley DB is closed".into())
    }

    fn next_number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn put_content(&self, txn: &Transaction<'_>, oid: Oid, content: &[u8]) -> Result<()> {
        match self.layout {
            Layout::Whole => txn.put(&oid.to_bytes(), content)?,
            Layout::Pieces(size) => {
                for (index, piece) in content.chunks(size as usize).enumerate() {
                    txn.put(&piece_key(oid, index as u32), piece)?;
                }
            }
        }
        put_length(txn, oid, content.len())
    }
}

impl Reopens for BerkeleyStore {
    fn reopen(&mut self) -> Result<()> {
        if let Some(db) = self.db.take() {
            db.close()?;
        }
        self.db = Some(Berkeley::open(&self.directory, self.settings)?);
        Ok(())
    }
}

impl Objects for BerkeleyStore {
    fn create_all(&mut self, contents: &[Bytes]) -> Result<Vec<Oid>> {
        let mut oids = Vec::with_capacity(contents.len());
        for content in contents {
            let oid = object(self.next_number());
            let txn = self.db()?.begin()?;
            self.put_content(&txn, oid, content)?;
            txn.commit(Force::Later)?;
            oids.push(oid);
        }
        self.db()?.force()?;
        Ok(oids)
    }

    fn write(&mut self, oid: Oid, offset: u64, data: &Bytes) -> Result<()> {
        let db = self.db()?;
        let txn = db.begin()?;
        match self.layout {
            Layout::Whole => txn.put_partial(&oid.to_bytes(), u32::try_from(offset)?, data)?,
            Layout::Pieces(size) => {
                for (index, offset, range) in pieces(offset, data.len(), size) {
                    txn.put_partial(&piece_key(oid, index), offset, &data[range])?;
                }
            }
        }
        let end = offset + data.len() as u64;
        if end > length(|key, into| txn.get(key, 0, into), oid)? {
            put_length(&txn, oid, usize::try_from(end)?)?;
        }
        txn.commit(Force::Later)?;
        self.since_checkpoint += 1;
        if self.since_checkpoint == CHECKPOINT_EVERY {
            self.since_checkpoint = 0;
            self.db()?.checkpoint()?;
        }
        Ok(())
    }

    fn force(&mut self) -> Result<()> {
        self.db()?.force()
    }

    fn read(&mut self, oid: Oid, offset: u64, len: usize, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        let db = self.db()?;
        if length(|key, into| db.get(key, 0, into), oid)? < offset + len as u64 {
            return Err(format!("object {oid} ends before {}", offset + len as u64).into());
        }
        match self.layout {
            Layout::Whole => {
                db.get(&oid.to_bytes(), u32::try_from(offset)?, &mut buffer[..len])?;
            }
            Layout::Pieces(size) => {
                for (index, offset, range) in pieces(offset, len, size) {
                    db.get(&piece_key(oid, index), offset, &mut buffer[range])?;
                }
            }
        }
        look(&buffer[..len]);
        self.buffer = buffer;
        Ok(())
    }
}

impl Collections for BerkeleyStore {
    fn create_collection(&mut self, parent: Option<Oid>, name: &str) -> Result<Oid> {
        let number = self.next_number();
        let (oid, key) = (collection(number), number.to_be_bytes());
        let txn = self.db()?.begin()?;
        insert_sorted(&txn, b"c", &key)?;
        txn.put(&key, &[])?;
        put_name(&txn, &key, name)?;
        if let Some(parent) = parent {
            insert_sorted(&txn, &collection_key(parent), &oid.to_bytes())?;
        }
        txn.commit(Force::Now)?;
        Ok(oid)
    }

    fn create_object(&mut self, parent: Oid, name: &str) -> Result<Oid> {
        let oid = object(self.next_number());
        let txn = self.db()?.begin()?;
        txn.put(&oid.to_bytes(), &[])?;
        put_length(&txn, oid, 0)?;
        put_name(&txn, &oid.to_bytes(), name)?;
        insert_sorted(&txn, &collection_key(parent), &oid.to_bytes())?;
        txn.commit(Force::Now)?;
        Ok(oid)
    }

    fn members(&mut self, collection: Oid) -> Result<Vec<Oid>> {
        let key = collection_key(collection);
        let db = self.db()?;
        let array = whole(|into| db.get(&key, 0, into))?.ok_or_else(|| format!("no collection {collection}"))?;
        let (members, _) = array.as_chunks();
        Ok(members.iter().map(|bytes| Oid::from_bytes(*bytes)).collect())
    }

    fn describe(&mut self, oid: Oid) -> Result<(bool, Bytes)> {
        let db = self.db()?;
        let bytes = oid.to_bytes();
        let is_collection = bytes[0] == COLLECTION;
        if !is_collection {
            length(|key, into| db.get(key, 0, into), oid)?;
        }
        let owner = if is_collection { &bytes[12..] } else { &bytes };
        let mut name = [0; 256];
        let len = db.get(&[owner, &attribute_key(NAME)].concat(), 0, &mut name)?;
        let len = len.ok_or_else(|| format!("{oid} has no name"))?;
        Ok((is_collection, Bytes::copy_from_slice(&name[..len])))
    }
}

fn object(number: u32) -> Oid {
    Oid::from_bytes(u128::from(number).to_be_bytes())
}

/// The identifier of a collection as a member.
fn collection(number: u32) -> Oid {
    let mut bytes = u128::from(number).to_be_bytes();
    bytes[0] = COLLECTION;
    Oid::from_bytes(bytes)
}

/// The key of a collection's record: the last four bytes of its identifier.
fn collection_key(oid: Oid) -> [u8; 4] {
    (oid.to_u128() as u32).to_be_bytes()
}

fn piece_key(oid: Oid, index: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&oid.to_bytes());
    key[16..].copy_from_slice(&index.to_be_bytes());
    key
}

fn attribute_key(key: &str) -> [u8; ATTRIBUTE_KEY] {
    let mut padded = [0; ATTRIBUTE_KEY];
    padded[..key.len()].copy_from_slice(key.as_bytes());
    padded
}

fn length_key(oid: Oid) -> [u8; 17] {
    let mut key = [b'i'; 17];
    key[..16].copy_from_slice(&oid.to_bytes());
    key
}

fn put_length(txn: &Transaction<'_>, oid: Oid, length: usize) -> Result<()> {
    txn.put(&length_key(oid), &u32::try_from(length)?.to_le_bytes())
}

/// An object's length, from its inode record.
fn length(get: impl FnOnce(&[u8], &mut [u8]) -> Result<Option<usize>>, oid: Oid) -> Result<u64> {
    let mut into = [0; 4];
    match get(&length_key(oid), &mut into)? {
        Some(4) => Ok(u64::from(u32::from_le_bytes(into))),
        _ => Err(format!("no object {oid}").into()),
    }
}

/// Sets the name of the object or collection with the key `owner`.
fn put_name(txn: &Transaction<'_>, owner: &[u8], name: &str) -> Result<()> {
    let key = attribute_key(NAME);
    insert_sorted(txn, &[owner, b"a"].concat(), &key)?;
    txn.put(&[owner, &key].concat(), name.as_bytes())
}

/// Inserts an element into the sorted array at `key`, which is created if it does not exist.
fn insert_sorted<const N: usize>(txn: &Transaction<'_>, key: &[u8], element: &[u8; N]) -> Result<()> {
    let mut array = whole(|into| txn.get(key, 0, into))?.unwrap_or_default();
    let (elements, _) = array.as_chunks::<N>();
    if let Err(place) = elements.binary_search(element) {
        let at = place * N;
        array.splice(at..at, element.iter().copied());
        txn.put(key, &array)?;
    }
    Ok(())
}

/// Reads a whole value of unknown size.
fn whole(mut get: impl FnMut(&mut [u8]) -> Result<Option<usize>>) -> Result<Option<Vec<u8>>> {
    let mut into = vec![0; 4096];
    while let Some(len) = get(&mut into)? {
        if len < into.len() {
            into.truncate(len);
            return Ok(Some(into));
        }
        into.resize(into.len() * 4, 0);
    }
    Ok(None)
}

/// The pieces of `size` bytes that `len` bytes at `offset` overlap: number, offset in the piece, range of the bytes.
fn pieces(offset: u64, len: usize, size: u32) -> impl Iterator<Item = (u32, u32, Range<usize>)> {
    let size = u64::from(size);
    let end = offset + len as u64;
    (offset / size..end.div_ceil(size)).map(move |index| {
        let from = offset.max(index * size);
        let to = end.min((index + 1) * size);
        (index as u32, (from - index * size) as u32, (from - offset) as usize..(to - offset) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::osbdb::content::{Check, stamped_bytes};
    use crate::rival::berkeley::Access;

    fn round_trip(layout: Layout) {
        let directory = tempfile::tempdir().unwrap();
        let mut store = BerkeleyStore::create(directory.path(), Settings::records(Access::Btree), layout).unwrap();
        let content = stamped_bytes(3, 10_000);
        let oid = store.create_all(&[stamped_bytes(1, 3000), Bytes::new()]).unwrap()[1];
        store.write(oid, 0, &content.slice(..5000)).unwrap();
        store.write(oid, 5000, &content.slice(5000..)).unwrap();
        store.force().unwrap();
        store.reopen().unwrap();
        let mut check = Check::new(&content);
        store.read(oid, 0, 10_000, &mut |piece| check.look(piece)).unwrap();
        check.end().unwrap();
        assert!(store.read(oid, 1, 10_000, &mut |_| ()).is_err());
    }

    #[test]
    fn object_written_in_parts_is_read_as_a_whole() {
        round_trip(Layout::Whole);
        round_trip(Layout::Pieces(4096));
    }

    #[test]
    fn members_are_listed_in_order_with_their_names() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings::records(Access::Btree);
        let mut store = BerkeleyStore::create(directory.path(), settings, Layout::Whole).unwrap();
        let root = store.create_collection(None, "root").unwrap();
        let inner = store.create_collection(Some(root), "inner").unwrap();
        let file = store.create_object(root, "file").unwrap();
        assert_eq!(store.members(root).unwrap(), [file, inner]);
        assert_eq!(store.describe(inner).unwrap(), (true, "inner".into()));
        assert_eq!(store.describe(file).unwrap(), (false, "file".into()));
        assert!(store.members(inner).unwrap().is_empty());
    }
}
