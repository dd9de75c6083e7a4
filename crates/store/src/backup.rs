//! Hot backup: one archive of everything in a snapshot, or of what has changed since an earlier one, written while the store serves.
//!
//! The archive contains the contents in the order of their identifiers, then the rows. It contains nothing of the internal
//! representation: records of extents, unfinished uploads and garbage are omitted, and restoring creates the records again.
//! Every chunk is verified while it is read.

use std::ops::ControlFlow;

use model::{ContentId, Error, ErrorKind, Result, limits};

use crate::content::chunk_set::ChunkSet;
use crate::engine::Checked;
use crate::error::{corrupt, corrupt_row};
use crate::log::frame::StoreId;
use crate::plant::{ContentBug, planted};
use crate::progress::{self, Amount, Progress};
use crate::read::Readable;
use crate::read::layers::{FoundRow, Layers, StoredContent};
use crate::read::rows;
use crate::rows::key::{self, Key, content_of, index_of, table};
use crate::rows::mob::Seq;
use crate::rows::row::{CHUNK, Chunk, Extent, HEAD, RowError, check_blocks};

pub(crate) mod archive;
mod chain;
pub(crate) mod changes;
mod increment;
pub(crate) mod item;
mod range;
pub(crate) mod restore;

#[cfg(test)]
pub(crate) mod tests;

use archive::{ArchiveCounts, ArchiveHeader, ArchiveKind, ArchiveWriter};
pub use archive::{ArchiveSink, check_archive, read_archive_index};
pub use increment::BaseIndex;
use increment::Increment;
use item::Item;
use range::Position;

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

/// Writes an archive of what a snapshot of a store at a position of its log shows; with the index of a base, of what has changed since.
pub(crate) fn write(
    snapshot: &impl Readable,
    position: (StoreId, Seq),
    base: Option<&mut dyn BaseIndex>,
    out: &mut dyn ArchiveSink,
    progress: &dyn Progress,
) -> Result<BackupSummary> {
    let state = snapshot.state();
    let kind = if base.is_some() { ArchiveKind::Increment } else { ArchiveKind::Full };
    let header = ArchiveHeader::new(position, kind);
    let total_bytes = state.engine.size() + state.files().map_or(0, |files| files.size());
    // A state is read once.
    let mut target = Some((base, out));
    snapshot.read_state(|layers| {
        let Some((base, out)) = target.take() else { return Err(Error::new(ErrorKind::Internal, "a second reading")) };
        let out = ArchiveWriter::begin(out, &header)?;
        let out = match base {
            None => Output::Full(Box::new(out)),
            Some(base) => Output::Increment(Box::new(Increment::begin(out, base)?)),
        };
        let extents = ExtentBytes { layers, buffer: vec![0; CHUNK] };
        let archived_chunks = ChunkSet::default();
        let mut backup =
            Backup { layers, out, extents, progress, total_bytes, done: 0, archived_chunks, buffer: vec![0; CHUNK] };
        let written = backup.incarnation().and_then(|()| backup.contents()).and_then(|()| backup.rows());
        let ended = written.and_then(|()| backup.end());
        let (counts, bytes) = ended.map_err(|error| name_damage(error, layers))?;
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
            && damage.range.is_some()
        {
            pages.push(damage.to_string());
        }
        if pages.len() < MAX_NAMED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let advice = "the archive is not complete; `mortar scrub` lists all damage, and what is written again can be backed up again";
    let named = if pages.is_empty() { String::new() } else { format!(" (damaged: {})", pages.join("; ")) };
    Error::new(ErrorKind::Corrupt, format!("{}{named}: {advice}", error.message())).with_source(error)
}

/// Where the items of a snapshot go.
enum Output<'b> {
    Full(Box<ArchiveWriter<'b>>),
    Increment(Box<Increment<'b>>),
}

/// The length of bytes without the zeros at their end, which an archive omits.
fn len_without_zeros(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Reads chunks of blob files.
struct ExtentBytes<'a> {
    layers: &'a Layers<'a>,
    buffer: Vec<u8>,
}

impl ExtentBytes<'_> {
    /// The bytes of a chunk, verified.
    fn read(&mut self, id: ContentId, index: u64, extent: &Extent) -> Result<&[u8]> {
        let bytes = &mut self.buffer[..extent.len as usize];
        self.layers.read_extent(extent, bytes, index * CHUNK as u64).map_err(|e| e.for_content(id))?;
        Ok(bytes)
    }
}

/// Writes a chunk of a blob file.
fn write_extent(
    out: &mut ArchiveWriter<'_>,
    (position, id, index): (Position, ContentId, u64),
    extent: &Extent,
    extents: &mut ExtentBytes<'_>,
) -> Result<()> {
    let (file, offset, crc) = (extent.file, extent.offset, extent.crc);
    let bytes = extents.read(id, index, extent)?;
    out.write_extent(&Item::Extent { index, file, offset, crc, bytes }, extent.block_checksums(), || position)
}

impl<'b> Output<'b> {
    fn writer(&self) -> &ArchiveWriter<'b> {
        match self {
            Self::Full(out) => out,
            Self::Increment(out) => out.writer(),
        }
    }

    fn add(
        &mut self,
        item: &Item<'_>,
        extents: &mut ExtentBytes<'_>,
        position: impl FnOnce() -> Position,
    ) -> Result<()> {
        match self {
            Self::Full(out) => out.write_item(item, position),
            Self::Increment(out) => out.add(position(), item, extents),
        }
    }
}

struct Backup<'a, 'b> {
    layers: &'a Layers<'a>,
    out: Output<'b>,
    extents: ExtentBytes<'a>,
    progress: &'a dyn Progress,
    total_bytes: u64,
    /// Bytes of the items so far.
    done: u64,
    /// Extents that are in the archive.
    archived_chunks: ChunkSet,
    buffer: Vec<u8>,
}

impl Backup<'_, '_> {
    fn report_progress(&self) -> Result<()> {
        let (items, bytes) = (self.out.writer().items(), self.done);
        progress::report(self.progress, "backup", Amount { items, bytes, total_bytes: self.total_bytes })
    }

    /// How often the store was opened.
    fn incarnation(&mut self) -> Result<()> {
        let found = self.layers.find(&Key::system(key::INCARNATION))?;
        let times = found.value().and_then(|row| row.try_into().ok()).map(u32::from_be_bytes);
        let times = times.ok_or_else(|| corrupt_row("the count of openings", RowError::Short))?;
        match &mut self.out {
            Output::Full(out) => out.write_outside(&Item::Incarnation { times }),
            Output::Increment(out) => out.write_outside(&Item::Incarnation { times }),
        }
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
        self.out.add(&Item::Content { id, size }, &mut self.extents, || Position::chunk(id, 0))?;
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
                self.add_bytes(id, index, bytes)
            }
            Some(Chunk::Extent(extent)) => self.extent(id, index, &extent),
        }
    }

    fn add_bytes(&mut self, id: ContentId, index: u64, bytes: &[u8]) -> Result<()> {
        self.done += bytes.len() as u64;
        self.out.add(&Item::Bytes { index, bytes }, &mut self.extents, || Position::chunk(id, index))
    }

    /// A chunk whose row is a patch, merged with its base.
    fn write_patched_chunk(&mut self, id: ContentId, index: u64) -> Result<()> {
        let Some(content) = self.layers.content(id)? else { return Ok(()) };
        if planted(ContentBug::PatchesNotBackedUp) {
            return Ok(());
        }
        self.add_read(id, index, |layers, buffer| {
            layers.fill(&content, index, 0, buffer)?;
            Ok(len_without_zeros(buffer))
        })
    }

    /// Adds the first bytes of a chunk, as many as `read` says that it has read, if there are any.
    fn add_read(
        &mut self,
        id: ContentId,
        index: u64,
        read: impl FnOnce(&Layers<'_>, &mut [u8]) -> Result<usize>,
    ) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let added = read(self.layers, &mut buffer).and_then(|len| match len {
            0 => Ok(()),
            len => self.add_bytes(id, index, &buffer[..len]),
        });
        self.buffer = buffer;
        added
    }

    /// A chunk in a blob file. It is archived as plain bytes if the store is damaged and another chunk has the same position.
    fn extent(&mut self, id: ContentId, index: u64, extent: &Extent) -> Result<()> {
        let (file, offset) = (extent.file, extent.offset);
        let is_whole = extent.len as usize == CHUNK;
        if !is_whole || !self.archived_chunks.insert(file, offset) {
            return self.add_read(id, index, |layers, buffer| {
                let len = extent.len as usize;
                let read = layers.read_extent(extent, &mut buffer[..len], index * CHUNK as u64);
                read.map(|()| len).map_err(|e| e.for_content(id))
            });
        }
        self.done += CHUNK as u64;
        let at = (Position::chunk(id, index), id, index);
        match &mut self.out {
            Output::Full(out) => write_extent(out, at, extent, &mut self.extents),
            Output::Increment(out) => out.add_extent(at, extent, &mut self.extents),
        }
    }

    fn rows(&mut self) -> Result<()> {
        let skips_buffer = matches!(self.out, Output::Increment(_)) && planted(ContentBug::BufferNotCompared);
        self.layers.for_each_row(&Key::table(table::ROW), |key, found| {
            if skips_buffer && matches!(found, FoundRow::Row(..)) {
                return Ok(());
            }
            // An archive with a longer key could not be restored.
            if key.len() > 1 + limits::ROW_KEY {
                return Err(rows::damage_error(key, RowError::Long));
            }
            let value = rows::verify_value(key, found).map_err(|e| rows::damage_error(key, e))?;
            self.done += (key.len() + value.len()) as u64;
            self.out.add(&Item::Row { key: &key[1..], value }, &mut self.extents, || Position::row(&key[1..]))?;
            self.report_progress()
        })
    }

    fn end(self) -> Result<(ArchiveCounts, u64)> {
        let Self { out, mut extents, .. } = self;
        match out {
            Output::Full(out) => out.end(0),
            Output::Increment(out) => out.end(&mut extents),
        }
    }
}
