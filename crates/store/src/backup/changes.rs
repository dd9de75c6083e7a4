//! Archives of changes: what a snapshot has of the rows and chunks that a [tracker](crate::change_tracking) has noted. A restored store is rolled
//! forward by them (`crate::roll_forward`). Such an archive costs as much as was changed, where an increment reads all rows.
//!
//! It has the value of each item in the snapshot. So an item that has changed back does no harm, nor does one that has changed after the snapshot: the
//! next archive has it again.

use std::ops::{ControlFlow, Range};

use model::{ContentId, Error, ErrorKind, Result};

use super::archive::{ArchiveHeader, ArchiveKind, ArchiveSink, ArchiveWriter};
use super::item::Item;
use super::{BackupSummary, len_without_zeros};
use crate::change_tracking::{ChangeSet, ChangedChunks};
use crate::error::corrupt;
use crate::log::frame::StoreId;
use crate::plant::{TrackingBug, planted};
use crate::progress::{self, Amount, Progress};
use crate::read::Readable;
use crate::read::layers::{FoundRow, Layers, StoredContent};
use crate::read::rows;
use crate::rows::key::{Key, index_of};
use crate::rows::mob::{Row, Seq};
use crate::rows::row::{CHUNK, RowError};

/// Writes what a snapshot of a store at a position of its log has of the items in `changes`.
pub(crate) fn write(
    snapshot: &impl Readable,
    position: (StoreId, Seq),
    changes: &ChangeSet,
    out: &mut dyn ArchiveSink,
    progress: &dyn Progress,
) -> Result<BackupSummary> {
    let header = ArchiveHeader::new(position, ArchiveKind::Changes);
    // A state is read once.
    let mut out = Some(out);
    snapshot.read_state(|layers| {
        let out = out.take().ok_or_else(|| Error::new(ErrorKind::Internal, "a second reading"))?;
        let out = ArchiveWriter::begin(out, &header)?;
        let mut writer = ChangesWriter { layers, out, buffer: vec![0; CHUNK], progress, bytes: 0 };
        for (id, chunks) in &changes.contents {
            writer.content(*id, chunks)?;
        }
        for key in &changes.rows {
            writer.row(key)?;
        }
        let (counts, bytes) = writer.out.end(0)?;
        Ok(BackupSummary::new(&header, &counts, bytes))
    })
}

struct ChangesWriter<'a, 'b> {
    layers: &'a Layers<'a>,
    out: ArchiveWriter<'b>,
    buffer: Vec<u8>,
    progress: &'a dyn Progress,
    bytes: u64,
}

impl ChangesWriter<'_, '_> {
    fn add(&mut self, item: &Item<'_>, bytes: usize) -> Result<()> {
        self.bytes += bytes as u64;
        self.out.write_outside(item)?;
        progress::report(self.progress, "backup", Amount { items: 0, bytes: self.bytes, total_bytes: 0 })
    }

    fn content(&mut self, id: ContentId, changed: &ChangedChunks) -> Result<()> {
        let Some(content) = self.layers.content(id)? else {
            return self.add(&Item::RemovedContent { id }, 0);
        };
        let size = content.head.size;
        self.add(&Item::Content { id, size }, 0)?;
        for range in changed.ranges(size.div_ceil(CHUNK as u64)) {
            if !planted(TrackingBug::ChunksNotCleared) {
                self.add(&Item::Cleared { from: range.start, to: range.end }, 0)?;
            }
            self.chunks(&content, range)?;
        }
        Ok(())
    }

    /// The chunks of a range that have a row. The others are zeros.
    fn chunks(&mut self, content: &StoredContent<'_>, range: Range<u64>) -> Result<()> {
        if range.start == 0 {
            self.chunk(content, 0)?;
        }
        let (id, data) = (content.id, content.head.data);
        let (from, to) = (Key::chunk(data, range.start.max(1)), Key::chunk(data, range.end));
        let mut written = Ok(());
        let layers = self.layers;
        layers.scan(&from, &to, &mut |key, _| {
            let index = index_of(key).ok_or_else(|| corrupt(id, RowError::Short));
            written = index.and_then(|index| self.chunk(content, index));
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        written
    }

    fn chunk(&mut self, content: &StoredContent<'_>, index: u64) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let len = content.head.size.saturating_sub(index * CHUNK as u64).min(CHUNK as u64) as usize;
        let read = self.layers.fill(content, index, 0, &mut buffer[..len]);
        let written = read.and_then(|()| match len_without_zeros(&buffer[..len]) {
            0 => Ok(()),
            len => self.add(&Item::Bytes { index, bytes: &buffer[..len] }, len),
        });
        self.buffer = buffer;
        written
    }

    fn row(&mut self, key: &Key) -> Result<()> {
        let found = self.layers.find(key)?;
        if matches!(found, FoundRow::Nothing | FoundRow::Row(Row::Tombstone, _)) {
            return self.add(&Item::RemovedRow { key: &key[1..] }, key.len());
        }
        let value = rows::verify_value(key, &found).map_err(|error| rows::damage_error(key, error))?;
        self.add(&Item::Row { key: &key[1..], value }, key.len() + value.len())
    }
}
