//! Reads every row of a store and checks the relations between rows, which hold after any changes.
//!
//! 1. An extent is recorded as used while a row contains it, which is one row. Its bytes have their checksums, even if
//!    only a patch refers to it.
//! 2. A chunk after the first belongs to a content or is to be removed.
//! 3. At rest (see [`check_leaks`]), no garbage is left, and every stored byte of a blob file belongs to a row.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::ContentId;

use super::Store;
use super::world::SimulatedStore;
use crate::content::blob_file::position_in_file;
use crate::disk::Disk;
use crate::read::layers::FoundRow;
use crate::rows::key::{self, Key, content_of, data_of, index_of, table};
use crate::rows::mob::Row;
use crate::rows::patch::Base;
use crate::rows::row::{CHUNK, Chunk, ContentHead, Extent, HEAD, decode_extent_len};

/// The rows of a store.
#[derive(Default)]
struct AuditedRows {
    contents: BTreeMap<ContentId, ContentHead>,
    chunks: BTreeMap<u64, Vec<u64>>,
    garbage: BTreeSet<u64>,
    /// Extents that rows contain.
    held: BTreeSet<(u32, u64)>,
    /// Extents that must be readable.
    readable: Vec<Extent>,
    /// Extents that are recorded as used.
    used: BTreeSet<(u32, u64)>,
    freed: BTreeSet<(u32, u64)>,
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
        match Key::table_of(key) {
            table::CONTENT => {
                let id = content_of(key).unwrap();
                let head = match found {
                    FoundRow::Row(Row::Patch(patch), _) => ContentHead::decode(id, &patch.head).unwrap(),
                    found => ContentHead::decode(id, found.value().unwrap()).unwrap(),
                };
                self.contents.insert(id, head);
                self.chunk(found, HEAD);
            }
            table::CHUNK => {
                self.chunks.entry(data_of(key).unwrap().0).or_default().push(index_of(key).unwrap());
                self.chunk(found, 0);
            }
            table::EXTENT => {
                assert_eq!(decode_extent_len(found.value().unwrap()), Ok(CHUNK as u32));
                self.used.insert(key::extent_of(key).unwrap());
            }
            table::FREED => drop(self.freed.insert(key::extent_of(key).unwrap())),
            table::GARBAGE => drop(self.garbage.insert(data_of(key).unwrap().0)),
            table::SYSTEM | table::ROW | table::LOST => {}
            other => panic!("a row of table {other}"),
        }
    }

    fn chunk(&mut self, found: &FoundRow<'_>, skip: usize) {
        match found {
            FoundRow::Row(Row::Patch(patch), _) => {
                if let Base::Extent(extent) = &patch.base {
                    self.readable.push(extent.clone());
                }
            }
            found => {
                if let Chunk::Extent(extent) = Chunk::decode(&found.value().unwrap()[skip..]).unwrap() {
                    let is_new = self.held.insert((extent.file, extent.offset));
                    assert!(is_new, "two rows contain extent {:x} of file {}", extent.offset, extent.file);
                    self.readable.push(extent);
                }
            }
        }
    }
}

/// Panics unless the relations between the rows hold.
pub(crate) fn audit(store: &Store) {
    // Background threads may free extents after the rows were read. A store that has failed has none, and perhaps no snapshot.
    let _pinned = store.snapshot();
    let rows = AuditedRows::read(store);
    assert_eq!(rows.used, rows.held, "extents that are recorded as used, and extents in rows");
    if let Some(files) = store.core().state.files() {
        let mut chunk = vec![0; CHUNK];
        for extent in &rows.readable {
            let read = files.read(extent, 0, &mut chunk[..extent.len as usize], 0);
            assert!(read.is_ok(), "extent {:x} of file {}: {read:?}", extent.offset, extent.file);
        }
    }
    let contents: BTreeMap<u64, u64> = rows.contents.values().map(|head| (head.data.0, head.size)).collect();
    assert_eq!(contents.len(), rows.contents.len(), "two contents have the same number");
    for (data, indices) in &rows.chunks {
        let size = contents.get(data);
        assert!(size.is_some() || rows.garbage.contains(data), "chunks {data:x} have no owner");
        for index in indices {
            assert!(
                size.is_none_or(|size| index * (CHUNK as u64) < *size),
                "chunk {index} of {data:x} is beyond the end"
            );
        }
    }
    for data in &rows.garbage {
        assert!(!contents.contains_key(data), "chunks {data:x} of a content are to be removed");
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
        let chunks = bytes.get(position_in_file(0) as usize..).unwrap_or_default().chunks(CHUNK);
        for (at, chunk) in (0..).step_by(CHUNK).zip(chunks) {
            let used = rows.used.contains(&(file, at));
            assert!(used || chunk.iter().all(|b| *b == 0), "byte {at} of {name} belongs to no row");
        }
        let empty = !rows.used.iter().any(|(used, _)| *used == file);
        // The newest file of an opening is kept even after later ones; the next opening removes it.
        assert!(!empty || file + 1 >= first, "{name} is empty");
    }
}
