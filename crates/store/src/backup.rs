//! Hot backup: one archive of everything in a snapshot, written while the store serves.
//!
//! The archive contains the objects in the order of their identifiers, then names, pages and rows. It contains nothing
//! of the internal representation: back references, user counts, unfinished uploads and garbage are omitted, and
//! restoring creates them again. Every chunk is verified while it is read. A chunk that several objects share is
//! archived once.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use model::{Kind, Oid, Result, SpaceId};

use crate::content::chunk_set::{ChunkSet, is_chunk_position};
use crate::error::{corrupt, corrupt_row};
use crate::log::frame::StoreId;
use crate::plant::{ContentBug, planted};
use crate::progress::{self, Amount, Progress};
use crate::read::Readable;
use crate::read::layers::{FoundRow, Layers, StoredObject};
use crate::read::rows;
use crate::rows::key::{Key, oid_at, page_of, table};
use crate::rows::mob::Seq;
use crate::rows::row::{self, CHUNK, Chunk, Extent, HEAD, PageUsage, RowError, check_blocks};

pub(crate) mod archive;
pub(crate) mod item;
pub(crate) mod restore;

#[cfg(test)]
pub(crate) mod tests;

pub use archive::check_archive;
use archive::{ArchiveCounts, ArchiveHeader, ArchiveWriter};
use item::Item;

/// The contents of an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// The log position of the archive: the version of the newest change in it, or a later one.
    pub version: u64,
    /// When the backup began, in microseconds since 1970-01-01T00:00Z.
    pub time_us: i64,
    /// Objects, including collections.
    pub objects: u64,
    /// Bytes of content. Shared content counts for each object.
    pub content_bytes: u64,
    /// Attributes.
    pub attributes: u64,
    /// Memberships in collections.
    pub members: u64,
    /// Names.
    pub names: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of the archive.
    pub archive_bytes: u64,
}

impl BackupSummary {
    fn new(header: &ArchiveHeader, counts: &ArchiveCounts, archive_bytes: u64) -> Self {
        Self {
            version: header.version,
            time_us: header.time_us,
            objects: counts.objects,
            content_bytes: counts.content_bytes,
            attributes: counts.attributes,
            members: counts.members,
            names: counts.names,
            rows: counts.rows,
            archive_bytes,
        }
    }
}

/// Writes an archive of what a snapshot of store `id` at position `version` shows.
pub(crate) fn write(
    snapshot: &impl Readable,
    (store, version): (StoreId, Seq),
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<BackupSummary> {
    let state = snapshot.state();
    let time_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_micros() as i64);
    let header = ArchiveHeader { store, version, time_us };
    let total_bytes = state.engine.size() + state.files().map_or(0, |files| files.size());
    snapshot.read_state(|layers| {
        let out = ArchiveWriter::begin(out, &header)?;
        let mut backup =
            Backup { layers, out, progress, total_bytes, archived_chunks: ChunkSet::default(), buffer: vec![0; CHUNK] };
        backup.system()?;
        backup.objects()?;
        backup.names()?;
        backup.pages()?;
        backup.rows()?;
        let (counts, bytes) = backup.out.end()?;
        Ok(BackupSummary::new(&header, &counts, bytes))
    })
}

struct Backup<'a, 'b> {
    layers: &'a Layers<'a>,
    out: ArchiveWriter<'b>,
    progress: &'a dyn Progress,
    total_bytes: u64,
    /// Extents whose bytes are in the archive.
    archived_chunks: ChunkSet,
    buffer: Vec<u8>,
}

/// The value of a row with a checksum, verified.
fn unseal_row<'f>(key: &[u8], found: &'f FoundRow<'_>, what: &dyn Fn() -> String) -> Result<&'f [u8]> {
    let damaged = |e| corrupt_row(&what(), e);
    let row = found.value().ok_or_else(|| damaged(RowError::Value))?;
    let len = row::unseal(key, row).map_err(damaged)?;
    Ok(&row[..len])
}

/// A number in a row of fixed length.
fn fixed_bytes<const N: usize>(found: &FoundRow<'_>, what: &str) -> Result<[u8; N]> {
    let row = found.value().and_then(|row| row.try_into().ok());
    row.ok_or_else(|| corrupt_row(what, RowError::Short))
}

impl Backup<'_, '_> {
    fn report_progress(&self) -> Result<()> {
        let (objects, bytes) = (self.out.objects(), self.out.bytes_written());
        progress::report(self.progress, "backup", Amount { objects, bytes, total_bytes: self.total_bytes })
    }

    /// Spaces and counters.
    fn system(&mut self) -> Result<()> {
        let opened = self.layers.find(&Key::system("incarnation"))?;
        let times = u32::from_be_bytes(fixed_bytes(&opened, "the count of openings")?);
        self.out.write_item(&Item::Incarnation { times })?;
        let (spaces, pages) = (Key::system("space:"), Key::system("page:"));
        let damaged = || corrupt_row("a space", RowError::Value);
        self.layers.for_each_row(&spaces, |key, found| {
            let id = unseal_row(key, found, &|| "a space".to_owned())?.try_into().map_err(|_| damaged())?;
            let name = std::str::from_utf8(&key[spaces.len()..]).map_err(|_| damaged())?;
            self.out.write_item(&Item::Space { id: SpaceId(u16::from_be_bytes(id)), name })
        })?;
        self.layers.for_each_row(&pages, |key, found| {
            let space = key[pages.len()..].try_into().map_err(|_| corrupt_row("a page counter", RowError::Short))?;
            let number = u64::from_be_bytes(fixed_bytes(found, "a page counter")?);
            self.out.write_item(&Item::NextPage { space: SpaceId(u16::from_be_bytes(space)), number })
        })
    }

    /// Every object with its content, attributes and members.
    fn objects(&mut self) -> Result<()> {
        let layers = self.layers;
        layers.for_each_row(&Key::table(table::OBJECT), |key, _| {
            let object = oid_at(key, 1).filter(|_| key.len() == 1 + Oid::LEN);
            let oid = object.ok_or_else(|| corrupt_row("the key of an object", RowError::Short))?;
            // A scan may show a patch without its base: look the object up.
            let Some(object) = layers.object(oid)? else { return Ok(()) };
            self.object(&object)
        })
    }

    fn object(&mut self, object: &StoredObject<'_>) -> Result<()> {
        let (oid, head, layers) = (object.oid, object.head, self.layers);
        let (kind, size, version, modified_us) = (head.kind, head.size, head.version, head.modified_us);
        self.out.write_item(&Item::Object { oid, kind, size, version, modified_us })?;
        if kind == Kind::Collection {
            layers.for_each_row(&Key::members(oid), |key, _| {
                let member = oid_at(key, 1 + Oid::LEN);
                let oid = member.ok_or_else(|| corrupt(oid, RowError::Short))?;
                self.out.write_item(&Item::Member { oid })
            })?;
        } else {
            self.content(object)?;
        }
        layers.for_each_row(&Key::attribute(oid, b""), |key, found| {
            let name = &key[1 + Oid::LEN..];
            let what = || format!("attribute {:?} of {oid}", String::from_utf8_lossy(name));
            let value = unseal_row(key, found, &what)?;
            self.out.write_item(&Item::Attribute { key: name, value })
        })?;
        self.report_progress()
    }

    fn content(&mut self, object: &StoredObject<'_>) -> Result<()> {
        let (oid, size) = (object.oid, object.head.size);
        let chunks = size.div_ceil(CHUNK as u64);
        if chunks > 0 {
            self.chunk(oid, 0, object.row.value().map(|row| row.get(HEAD..).unwrap_or_default()))?;
        }
        if chunks > 1 {
            self.layers.for_each_row(&Key::chunks_of(object.head.data), |key, found| {
                let index = key.get(9..17).and_then(|index| index.try_into().ok()).map(u64::from_be_bytes);
                let index = index.ok_or_else(|| corrupt(oid, RowError::Short))?;
                if index >= chunks {
                    return Ok(());
                }
                self.chunk(oid, index, found.value())?;
                self.report_progress()
            })?;
        }
        Ok(())
    }

    /// One chunk, from its row unless the row is a patch.
    fn chunk(&mut self, oid: Oid, index: u64, row: Option<&[u8]>) -> Result<()> {
        let at = index * CHUNK as u64;
        let damaged = |e| corrupt(oid, e);
        match row.map(Chunk::decode).transpose().map_err(damaged)? {
            None => self.write_patched_chunk(oid, index),
            Some(Chunk::Empty) => Ok(()),
            Some(Chunk::Inline { blocks, bytes }) => {
                check_blocks(blocks, 0, bytes, at).map_err(damaged)?;
                self.out.write_item(&Item::Bytes { index, bytes })
            }
            Some(Chunk::Extent(extent)) => self.extent(oid, index, &extent),
        }
    }

    /// A chunk whose row is a patch, merged with its base.
    fn write_patched_chunk(&mut self, oid: Oid, index: u64) -> Result<()> {
        let Some(object) = self.layers.object(oid)? else { return Ok(()) };
        if planted(ContentBug::PatchesNotBackedUp) {
            return Ok(());
        }
        self.layers.fill(&object, index, 0, &mut self.buffer)?;
        let len = self.buffer.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        if len == 0 {
            return Ok(());
        }
        self.out.write_item(&Item::Bytes { index, bytes: &self.buffer[..len] })
    }

    /// A chunk in a blob file. Its bytes are verified even if they are in the archive already.
    fn extent(&mut self, oid: Oid, index: u64, extent: &Extent) -> Result<()> {
        let at = index * CHUNK as u64;
        let bytes = &mut self.buffer[..extent.len as usize];
        self.layers.read_extent(extent, bytes, at).map_err(|e| e.for_object(oid))?;
        let (file, offset, crc) = (extent.file, extent.offset, extent.crc);
        let bytes = &self.buffer[..extent.len as usize];
        if bytes.len() < CHUNK || !is_chunk_position(file, offset) {
            return self.out.write_item(&Item::Bytes { index, bytes });
        }
        let fresh = self.archived_chunks.insert(file, offset);
        self.out.write_item(&Item::Extent { index, file, offset, crc, bytes: fresh.then_some(bytes) })
    }

    fn names(&mut self) -> Result<()> {
        self.layers.for_each_row(&Key::table(table::NAME), |key, found| {
            let what = || format!("name {:?}", String::from_utf8_lossy(key.get(3..).unwrap_or_default()));
            let damaged = || corrupt_row(&what(), RowError::Value);
            let oid = oid_at(unseal_row(key, found, &what)?, 0).ok_or_else(damaged)?;
            let space = key.get(1..3).and_then(|space| space.try_into().ok()).ok_or_else(damaged)?;
            let path = std::str::from_utf8(&key[3..]).map_err(|_| damaged())?;
            self.out.write_item(&Item::Name { space: SpaceId(u16::from_be_bytes(space)), path, oid })
        })?;
        self.report_progress()
    }

    fn pages(&mut self) -> Result<()> {
        self.layers.for_each_row(&Key::table(table::PAGE), |key, found| {
            let what = "the usage of a page";
            let page = page_of(key).ok_or_else(|| corrupt_row(what, RowError::Short))?;
            let room = found.value().map_or(Err(RowError::Short), PageUsage::decode);
            self.out.write_item(&Item::Page { page, usage: room.map_err(|e| corrupt_row(what, e))? })
        })?;
        self.report_progress()
    }

    fn rows(&mut self) -> Result<()> {
        self.layers.for_each_row(&Key::table(table::ROW), |key, found| {
            let value = rows::verify_value(key, found).map_err(|e| rows::damaged(key, e))?;
            self.out.write_item(&Item::Row { key: &key[1..], value })?;
            self.report_progress()
        })
    }
}
