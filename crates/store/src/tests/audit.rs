//! Reads every row of a store and checks the relations between rows, which hold after any operations.
//!
//! 1. The user count of an extent is the number of rows that contain it, and its bytes have their checksums, even if
//!    only a patch refers to it.
//! 2. A chunk after the first belongs to the content of an object or to unused content.
//! 3. Names and memberships have back references, and back references have their names and memberships. Attributes and
//!    members have owners. The size of a collection is its number of members.
//! 4. At rest (see [`check_leaks`]), no garbage is left, and every stored byte of a blob file belongs to a row.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::{Kind, Oid};

use super::Store;
use super::world::SimulatedStore;
use crate::disk::Disk;
use crate::read::layers::FoundRow;
use crate::rows::key::{self, Key, data_of, oid_at, table};
use crate::rows::mob::Row;
use crate::rows::patch::Base;
use crate::rows::row::{CHUNK, Chunk, Extent, ExtentUse, HEAD, Head};

/// The rows of a store.
#[derive(Default)]
struct AuditedRows {
    objects: BTreeMap<Oid, Head>,
    chunks: BTreeMap<u64, Vec<u64>>,
    garbage: BTreeSet<u64>,
    /// Extents that rows contain, and how many rows contain each.
    held: BTreeMap<(u32, u64), u32>,
    /// Extents that must be readable.
    readable: Vec<Extent>,
    used: BTreeMap<(u32, u64), u32>,
    freed: BTreeSet<(u32, u64)>,
    keys: BTreeSet<Vec<u8>>,
}

impl AuditedRows {
    fn read(store: &Store) -> Self {
        let core = store.core();
        core.state
            .read_state(|layers| {
                let mut rows = Self::default();
                layers.scan(&[0], &[u8::MAX; 40], &mut |key, found| {
                    rows.row(key, found);
                    ControlFlow::Continue(())
                })?;
                Ok(rows)
            })
            .unwrap()
    }

    fn row(&mut self, key: &[u8], found: &FoundRow<'_>) {
        let skip = match Key::table_of(key) {
            table::OBJECT => {
                let oid = oid_at(key, 1).unwrap();
                let head = match found {
                    FoundRow::Row(Row::Patch(patch), _) => Head::decode(oid, &patch.head).unwrap(),
                    found => Head::decode(oid, found.value().unwrap()).unwrap(),
                };
                self.objects.insert(oid, head);
                HEAD
            }
            table::CHUNK => {
                let index = u64::from_be_bytes(key[9..17].try_into().unwrap());
                self.chunks.entry(data_of(key).unwrap().0).or_default().push(index);
                0
            }
            table::EXTENT => {
                let used = ExtentUse::decode(found.value().unwrap()).unwrap();
                self.used.insert(key::extent_of(key).unwrap(), used.users);
                return;
            }
            table::FREED => {
                self.freed.insert(key::extent_of(key).unwrap());
                return;
            }
            table::GARBAGE => {
                self.garbage.insert(data_of(key).unwrap().0);
                return;
            }
            _ => {
                self.keys.insert(key.to_vec());
                return;
            }
        };
        match found {
            FoundRow::Row(Row::Patch(patch), _) => {
                if let Base::Extent(extent) = &patch.base {
                    self.readable.push(extent.clone());
                }
            }
            found => {
                if let Chunk::Extent(extent) = Chunk::decode(&found.value().unwrap()[skip..]).unwrap() {
                    *self.held.entry((extent.file, extent.offset)).or_default() += 1;
                    self.readable.push(extent);
                }
            }
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.keys.contains(&key[..])
    }
}

/// Panics unless the relations between the rows hold.
pub(crate) fn audit(store: &Store) {
    let rows = AuditedRows::read(store);
    assert_eq!(rows.used, rows.held, "user counts of extents, and rows that contain them");
    if let Some(files) = store.core().state.files() {
        let mut chunk = vec![0; CHUNK];
        for extent in &rows.readable {
            let read = files.read(extent, 0, &mut chunk[..extent.len as usize], 0);
            assert!(read.is_ok(), "extent {:x} of file {}: {read:?}", extent.offset, extent.file);
        }
    }
    let contents: BTreeMap<u64, u64> = rows.objects.values().map(|head| (head.data.0, head.size)).collect();
    for (data, indices) in &rows.chunks {
        let size = contents.get(data);
        assert!(size.is_some() || rows.garbage.contains(data), "content {data:x} has no owner");
        for index in indices {
            assert!(
                size.is_none_or(|size| index * (CHUNK as u64) < *size),
                "chunk {index} of {data:x} is beyond the end"
            );
        }
    }
    for data in &rows.garbage {
        assert!(!contents.contains_key(data), "content {data:x} of an object is to be removed");
    }
    audit_references(&rows);
}

fn audit_references(rows: &AuditedRows) {
    let mut members: BTreeMap<Oid, u64> = BTreeMap::new();
    let exists =
        |oid: Oid, what: &str| assert!(rows.objects.contains_key(&oid), "{what} of {oid}, which does not exist");
    for key in &rows.keys {
        match Key::table_of(key) {
            table::ATTRIBUTE => exists(oid_at(key, 1).unwrap(), "an attribute"),
            table::MEMBER => {
                let (collection, member) = (oid_at(key, 1).unwrap(), oid_at(key, 17).unwrap());
                exists(collection, "a member");
                exists(member, "a membership");
                *members.entry(collection).or_default() += 1;
                assert!(rows.has(&Key::back_member(member, collection)), "{member} does not know of {collection}");
            }
            table::NAME => {
                let path = std::str::from_utf8(&key[3..]).unwrap();
                let known = rows.objects.keys().filter(|oid| rows.has(&Key::back_name(**oid, path))).count();
                assert_eq!(known, 1, "objects with a back reference to name {path:?}");
            }
            table::BACK_REFERENCE => {
                let oid = oid_at(key, 1).unwrap();
                exists(oid, "a back reference");
                match key[17] {
                    b'm' => assert!(rows.has(&Key::member(oid_at(key, 18).unwrap(), oid))),
                    _ => assert!(rows.has(&Key::name(oid.space(), std::str::from_utf8(&key[18..]).unwrap()))),
                }
            }
            _ => {}
        }
    }
    for (oid, head) in rows.objects.iter().filter(|(_, head)| head.kind == Kind::Collection) {
        assert_eq!(head.size, members.get(oid).copied().unwrap_or(0), "members of {oid}");
    }
}

/// Panics if a store at rest keeps anything unused.
pub(crate) fn check_leaks(simulated: &SimulatedStore) {
    let rows = AuditedRows::read(&simulated.store);
    assert!(rows.garbage.is_empty(), "garbage: {:x?}", rows.garbage);
    assert!(rows.freed.is_empty(), "extents still to be freed: {:x?}", rows.freed);
    let first = simulated.core().state.files().unwrap().first();
    let files = simulated.disk.list("blobs").unwrap();
    let number = |name: &str| u32::from_str_radix(name.strip_suffix(".blob").unwrap(), 16).unwrap();
    for name in files {
        let file = number(&name);
        let bytes = simulated.disk.bytes(&format!("blobs/{name}"));
        for (at, chunk) in (0..).step_by(CHUNK).zip(bytes.chunks(CHUNK)) {
            let used = rows.used.contains_key(&(file, at));
            assert!(used || chunk.iter().all(|b| *b == 0), "byte {at} of {name} belongs to no row");
        }
        let empty = !rows.used.keys().any(|(used, _)| *used == file);
        // The newest file of an opening is kept even after later ones; the next opening removes it.
        assert!(!empty || file + 1 >= first, "{name} is empty");
    }
}
