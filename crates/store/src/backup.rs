//! Hot backup: one archive of everything in a snapshot, written while the store serves.
//!
//! The archive contains the contents in the order of their identifiers, then the rows. It contains nothing of the internal
//! representation: records of extents, unfinished uploads and garbage are omitted, and restoring creates the records again.
//! Every chunk is verified while it is read.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use model::{ContentId, Error, ErrorKind, Result};

use crate::content::chunk_set::{ChunkSet, is_chunk_position};
use crate::engine::Checked;
use crate::error::{corrupt, corrupt_row};
use crate::log::frame::StoreId;
use crate::plant::{ContentBug, planted};
use crate::progress::{self, Amount, Progress};
use crate::read::Readable;
use crate::read::layers::{Layers, StoredContent};
use crate::read::rows;
use crate::rows::key::{self, Key, content_of, index_of, table};
use crate::rows::mob::Seq;
use crate::rows::row::{CHUNK, Chunk, Extent, HEAD, RowError, check_blocks};

pub(crate) mod archive;
pub(crate) mod item;
pub(crate) mod restore;

#[cfg(test)]
pub(crate) mod tests;

pub use archive::check_archive;
use archive::{ArchiveCounts, ArchiveHeader, ArchiveWriter};
use item::Item;

/// Damaged pages of the B-tree that an error names at most.
const MAX_NAMED: usize = 5;

/// What an archive contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupSummary {
    /// The log position of the archive: that of the newest change in it, or a later one.
    pub version: u64,
    /// When the backup began, in microseconds since 1970-01-01T00:00Z.
    pub time_us: i64,
    /// Contents.
    pub contents: u64,
    /// Bytes of contents.
    pub content_bytes: u64,
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
            contents: counts.contents,
            content_bytes: counts.content_bytes,
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
        let written = backup.incarnation().and_then(|()| backup.contents()).and_then(|()| backup.rows());
        written.map_err(|error| name_damage(error, layers))?;
        let (counts, bytes) = backup.out.end()?;
        Ok(BackupSummary::new(&header, &counts, bytes))
    })
}

/// A backup is complete, or it fails: adds to the error of a damaged store which pages of the B-tree are damaged, with their keys.
fn name_damage(error: Error, layers: &Layers<'_>) -> Error {
    if error.kind() != ErrorKind::Corrupt {
        return error;
    }
    let mut pages = Vec::new();
    // Whether the check went to its end does not matter.
    let _ = layers.engine.check(&mut |checked| {
        if let Checked::Damage(damage) = checked
            && damage.to.as_ref().is_none_or(|to| !to.is_empty())
        {
            pages.push(damage.to_string());
        }
        if pages.len() < MAX_NAMED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let advice = "the archive is not complete; `mortar scrub` lists all damage, and what is written again can be backed up again";
    let named = if pages.is_empty() { String::new() } else { format!(" (damaged: {})", pages.join("; ")) };
    Error::new(ErrorKind::Corrupt, format!("{}{named}: {advice}", error.message()))
}

struct Backup<'a, 'b> {
    layers: &'a Layers<'a>,
    out: ArchiveWriter<'b>,
    progress: &'a dyn Progress,
    total_bytes: u64,
    /// Extents that are in the archive.
    archived_chunks: ChunkSet,
    buffer: Vec<u8>,
}

impl Backup<'_, '_> {
    fn report_progress(&self) -> Result<()> {
        let (items, bytes) = (self.out.items(), self.out.bytes_written());
        progress::report(self.progress, "backup", Amount { items, bytes, total_bytes: self.total_bytes })
    }

    /// How often the store was opened.
    fn incarnation(&mut self) -> Result<()> {
        let found = self.layers.find(&Key::system(key::INCARNATION))?;
        let times = found.value().and_then(|row| row.try_into().ok()).map(u32::from_be_bytes);
        let times = times.ok_or_else(|| corrupt_row("the count of openings", RowError::Short))?;
        self.out.write_item(&Item::Incarnation { times })
    }

    fn contents(&mut self) -> Result<()> {
        let layers = self.layers;
        layers.for_each_row(&Key::table(table::CONTENT), |key, _| {
            let id = content_of(key).ok_or_else(|| corrupt_row("the key of a content", RowError::Short))?;
            // A scan may show a patch without its base: look the content up.
            let Some(content) = layers.content(id)? else { return Ok(()) };
            self.content(&content)
        })
    }

    fn content(&mut self, content: &StoredContent<'_>) -> Result<()> {
        let (id, size) = (content.id, content.head.size);
        self.out.write_item(&Item::Content { id, size })?;
        let chunks = size.div_ceil(CHUNK as u64);
        if chunks > 0 {
            self.chunk(id, 0, content.row.value().map(|row| row.get(HEAD..).unwrap_or_default()))?;
        }
        if chunks > 1 {
            self.layers.for_each_row(&Key::chunks_of(content.head.data), |key, found| {
                let index = index_of(key).ok_or_else(|| corrupt(id, RowError::Short))?;
                if index >= chunks {
                    return Ok(());
                }
                self.chunk(id, index, found.value())?;
                self.report_progress()
            })?;
        }
        self.report_progress()
    }

    /// One chunk, from its row unless the row is a patch.
    fn chunk(&mut self, id: ContentId, index: u64, row: Option<&[u8]>) -> Result<()> {
        let at = index * CHUNK as u64;
        let damaged = |e| corrupt(id, e);
        match row.map(Chunk::decode).transpose().map_err(damaged)? {
            None => self.write_patched_chunk(id, index),
            Some(Chunk::Empty) => Ok(()),
            Some(Chunk::Inline { blocks, bytes }) => {
                check_blocks(blocks, 0, bytes, at).map_err(damaged)?;
                self.out.write_item(&Item::Bytes { index, bytes })
            }
            Some(Chunk::Extent(extent)) => self.extent(id, index, &extent),
        }
    }

    /// A chunk whose row is a patch, merged with its base.
    fn write_patched_chunk(&mut self, id: ContentId, index: u64) -> Result<()> {
        let Some(content) = self.layers.content(id)? else { return Ok(()) };
        if planted(ContentBug::PatchesNotBackedUp) {
            return Ok(());
        }
        self.layers.fill(&content, index, 0, &mut self.buffer)?;
        let len = self.buffer.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        if len == 0 {
            return Ok(());
        }
        self.out.write_item(&Item::Bytes { index, bytes: &self.buffer[..len] })
    }

    /// A chunk in a blob file. It is archived as plain bytes if the store is damaged and another chunk has the same position.
    fn extent(&mut self, id: ContentId, index: u64, extent: &Extent) -> Result<()> {
        let at = index * CHUNK as u64;
        let bytes = &mut self.buffer[..extent.len as usize];
        self.layers.read_extent(extent, bytes, at).map_err(|e| e.for_content(id))?;
        let (file, offset, crc) = (extent.file, extent.offset, extent.crc);
        let bytes = &self.buffer[..extent.len as usize];
        if bytes.len() < CHUNK || !is_chunk_position(file, offset) || !self.archived_chunks.insert(file, offset) {
            return self.out.write_item(&Item::Bytes { index, bytes });
        }
        self.out.write_item(&Item::Extent { index, file, offset, crc, bytes })
    }

    fn rows(&mut self) -> Result<()> {
        self.layers.for_each_row(&Key::table(table::ROW), |key, found| {
            let value = rows::verify_value(key, found).map_err(|e| rows::damaged(key, e))?;
            self.out.write_item(&Item::Row { key: &key[1..], value })?;
            self.report_progress()
        })
    }
}
