//! Steps that change contents: whole, in part, and chunk by chunk in the background.
//!
//! 1. Every extent is used by at most one chunk. While a chunk uses it, the extent has a row; the installer frees the
//!    storage when that row is removed.
//! 2. Chunks after the first are stored under a number of which no content, or one content, makes use. If none does, the
//!    number is recorded as garbage.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use model::{ContentId, Error, ErrorKind, Result, limits};
use smallvec::SmallVec;

use super::Applier;
use crate::error::{corrupt, corrupt_row, invalid, no_content, too_large};
use crate::log::entry::StagedContent;
use crate::plant::{ChangeBug, FaultBug, planted};
use crate::read::layers::{Depth, FoundRow};
use crate::rows::key::{DataId, Key};
use crate::rows::mob::Row;
use crate::rows::patch::{Base, Patch};
use crate::rows::row::{self, CHUNK, Chunk, ContentHead, Extent, HEAD, RowError, put_extent, put_inline};
use crate::rows::slab::Slabs;

/// The row of a content that is at most this long contains no bytes of it. It is copied instead of patched.
const SHORT: usize = HEAD + 128;

impl Applier<'_> {
    pub(super) fn create(&mut self, id: ContentId, content: &StagedContent) -> Result<()> {
        self.check_new(id)?;
        let size = (content.extents.len() * CHUNK + content.bytes.len()) as u64;
        let head = ContentHead { size, data: self.next_data()? };
        self.put_content(id, head, content);
        Ok(())
    }

    pub(super) fn take_upload(
        &mut self,
        id: ContentId,
        data: DataId,
        size: u64,
        first: &Extent,
        tail: &Bytes,
    ) -> Result<()> {
        check_size(id, size)?;
        self.check_new(id)?;
        self.use_extent(first);
        if !tail.is_empty() {
            self.put_inline(data, size / CHUNK as u64, tail);
        }
        self.put_head(id, ContentHead { size, data }, row::EXTENT_LEN, |row| put_extent(row, first));
        self.changes.insert(Key::garbage(data), Row::Tombstone);
        Ok(())
    }

    /// Refuses an identifier that is in use.
    fn check_new(&self, id: ContentId) -> Result<()> {
        match self.layers().content(id)? {
            None => Ok(()),
            Some(_) => {
                let what = format!("there is a content {id} already: identifiers of contents are used once");
                Err(Error::new(ErrorKind::Exists, what))
            }
        }
    }

    /// A number for the chunks of a new content, never used before in this store.
    fn next_data(&mut self) -> Result<DataId> {
        let count = self.content_count.checked_add(1);
        self.content_count =
            count.ok_or_else(|| invalid("more than 65535 contents are created together: split them"))?;
        let number = if planted(ChangeBug::DataNumberReused) { 1 } else { self.content_count };
        Ok(DataId(self.seq << 16 | u64::from(number)))
    }

    fn head(&self, id: ContentId) -> Result<ContentHead> {
        self.layers().content(id)?.map(|content| content.head).ok_or_else(|| no_content(id))
    }

    /// Writes the rows of a content: its head and all its bytes.
    fn put_content(&mut self, id: ContentId, head: ContentHead, content: &StagedContent) {
        for extent in &content.extents {
            self.use_extent(extent);
        }
        for (index, extent) in (0..).zip(&content.extents).skip(1) {
            self.put_extent(head.data, index, extent);
        }
        // A store in memory has no blob files: whole chunks are bytes too.
        let mut rest = content.bytes.chunks(CHUNK);
        let first = if content.extents.is_empty() { rest.next() } else { None };
        let behind = content.extents.len().max(1) as u64;
        for (index, bytes) in (behind..).zip(rest) {
            self.put_inline(head.data, index, bytes);
        }
        let len = first.map_or(row::EXTENT_LEN, |bytes| row::inline_len(bytes.len()));
        self.put_head(id, head, len, |row| match (content.extents.first(), first) {
            (Some(extent), _) => put_extent(row, extent),
            (None, Some(bytes)) => put_inline(row, bytes),
            (None, None) => {}
        });
    }

    /// Sets the row of a content: its head and the encoded first chunk, which takes `len` bytes.
    fn put_head(&mut self, id: ContentId, head: ContentHead, len: usize, chunk: impl FnOnce(&mut BytesMut)) {
        let mut row = self.slabs.row(HEAD + len);
        row.extend_from_slice(&head.encode(id));
        chunk(&mut row);
        self.changes.insert(Key::content(id), Row::Value(row.freeze()));
    }

    fn put_inline(&mut self, data: DataId, index: u64, bytes: &[u8]) {
        let mut row = self.slabs.row(row::inline_len(bytes.len()));
        put_inline(&mut row, bytes);
        self.changes.insert(Key::chunk(data, index), Row::Value(row.freeze()));
    }

    fn put_extent(&mut self, data: DataId, index: u64, extent: &Extent) {
        let mut row = self.slabs.row(row::EXTENT_LEN);
        put_extent(&mut row, extent);
        self.changes.insert(Key::chunk(data, index), Row::Value(row.freeze()));
    }

    /// Records that a chunk uses an extent (rule 1).
    fn use_extent(&mut self, extent: &Extent) {
        self.put(Key::extent(extent.file, extent.offset), &row::encode_extent_len(extent.len));
    }

    /// Records that no chunk uses an extent any more (rule 1).
    fn free_extent(&mut self, extent: &Extent) {
        if !planted(ChangeBug::ReplacedChunkKept) {
            self.changes.insert(Key::extent(extent.file, extent.offset), Row::Tombstone);
        }
    }

    pub(super) fn delete(&mut self, id: ContentId) -> Result<()> {
        let Some((head, extent)) = self.layers().head_and_extent(id)? else { return Ok(()) };
        if let Some(extent) = extent {
            self.free_extent(&extent);
        }
        if head.size > CHUNK as u64 && !planted(ChangeBug::DeletedContentKept) {
            self.changes.insert(Key::garbage(head.data), Row::Value(Bytes::new()));
        }
        self.changes.insert(Key::content(id), Row::Tombstone);
        Ok(())
    }

    pub(super) fn resize(&mut self, id: ContentId, size: u64) -> Result<()> {
        if self.layers().content(id)?.is_none() {
            self.create(id, &StagedContent::default())?;
        }
        self.truncate(id, size)
    }

    pub(super) fn write(&mut self, id: ContentId, offset: u64, bytes: &Bytes) -> Result<()> {
        let head = self.head(id)?;
        let end = offset.saturating_add(bytes.len() as u64);
        check_size(id, end)?;
        if !bytes.is_empty() && end > head.size {
            self.set_size(id, head, end)?;
        }
        let (mut at, mut rest) = (offset, bytes.clone());
        while !rest.is_empty() {
            let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
            let piece = rest.split_to((CHUNK - from).min(rest.len()));
            at += piece.len() as u64;
            // Copied: these bytes stay in memory until they are installed, and must not keep the whole message in
            // memory.
            let mut kept = self.slabs.row(piece.len());
            kept.extend_from_slice(&piece);
            self.patch(id, head.data, index, |patch, slabs| patch.write(from, kept.freeze(), slabs))?;
        }
        Ok(())
    }

    pub(super) fn write_chunks(&mut self, id: ContentId, index: u64, extents: &[Extent]) -> Result<()> {
        let before = self.head(id)?;
        let end = index.saturating_add(extents.len() as u64).saturating_mul(CHUNK as u64);
        check_size(id, end)?;
        let head = ContentHead { size: before.size.max(end), ..before };
        if head != before {
            self.set_size(id, before, head.size)?;
        }
        for (index, extent) in (index..).zip(extents) {
            self.release_chunk(id, head.data, index)?;
            self.use_extent(extent);
            if index == 0 {
                self.put_head(id, head, row::EXTENT_LEN, |row| put_extent(row, extent));
            } else {
                self.put_extent(head.data, index, extent);
            }
        }
        Ok(())
    }

    /// Releases the extent of a chunk that is about to be replaced.
    fn release_chunk(&mut self, id: ContentId, data: DataId, index: u64) -> Result<()> {
        let (key, skip) = chunk_place(id, data, index);
        let extent = self.layers().find(&key)?.extent(skip).map_err(|e| corrupt(id, e))?;
        if let Some(extent) = extent {
            self.free_extent(&extent);
        }
        Ok(())
    }

    /// Changes a part of one chunk.
    fn patch(
        &mut self,
        id: ContentId,
        data: DataId,
        index: u64,
        change: impl FnOnce(&mut Patch, &mut Slabs),
    ) -> Result<()> {
        let (key, skip) = chunk_place(id, data, index);
        let mut patch = self.patch_of(id, &key, skip)?;
        change(&mut patch, &mut self.slabs);
        self.changes.insert(key, Row::Patch(Arc::new(patch)));
        Ok(())
    }

    /// The current chunk as a patch to change further.
    ///
    /// A patch on an extent keeps the extent readable but does not use it (rule 1): the installer merges the two into a
    /// row of the B-tree, and the extent stays on disk until no earlier reader is left.
    fn patch_of(&mut self, id: ContentId, key: &Key, skip: usize) -> Result<Patch> {
        let mut patch = {
            let found = self.layers().find(key)?;
            if let FoundRow::Row(Row::Patch(patch), Depth::Active) = &found {
                let own = self.changes.get(key).is_some();
                return Ok(if own { Patch::clone(patch) } else { patch.fork() });
            }
            let mut patch = patch_on(&found, skip).map_err(|e| corrupt(id, e))?;
            patch.head = match &found {
                _ if skip == 0 => Bytes::new(),
                FoundRow::Row(Row::Patch(older), _) => older.head.clone(),
                found => Bytes::copy_from_slice(found.value().and_then(|row| row.get(..skip)).unwrap_or_default()),
            };
            patch
        };
        if let Base::Extent(extent) = &mut patch.base {
            self.free_extent(extent);
        }
        Ok(patch)
    }

    /// Changes the size in the head of a content and keeps the first chunk.
    fn set_size(&mut self, id: ContentId, head: ContentHead, size: u64) -> Result<()> {
        let key = Key::content(id);
        let encoded = ContentHead { size, ..head }.encode(id);
        let short = match self.layers().find(&key)?.value() {
            Some(row) if row.len() <= SHORT => {
                let mut short = SmallVec::<[u8; SHORT]>::from_slice(&encoded);
                short.extend_from_slice(row.get(HEAD..).unwrap_or_default());
                Some(short)
            }
            _ => None,
        };
        match short {
            Some(row) => self.put(key, &row),
            None => {
                let mut patch = self.patch_of(id, &key, HEAD)?;
                let mut head = self.slabs.row(encoded.len());
                head.extend_from_slice(&encoded);
                patch.head = head.freeze();
                self.changes.insert(key, Row::Patch(Arc::new(patch)));
            }
        }
        Ok(())
    }

    pub(super) fn truncate(&mut self, id: ContentId, size: u64) -> Result<()> {
        check_size(id, size)?;
        let head = self.head(id)?;
        if size == head.size {
            return Ok(());
        }
        if size == 0 && head.size > CHUNK as u64 {
            // Its chunks go in the background, as those of a deleted content do: there may be very many.
            self.delete(id)?;
            return self.create(id, &StagedContent::default());
        }
        self.set_size(id, head, size)?;
        if size < head.size {
            let (from, to) = (size.div_ceil(CHUNK as u64), head.size.div_ceil(CHUNK as u64));
            self.drop_chunks(id, ContentHead { size, ..head }, from, to)?;
            let kept = (size % CHUNK as u64) as usize;
            if kept > 0 && !planted(ChangeBug::TruncatedTailKept) {
                self.patch(id, head.data, size / CHUNK as u64, |patch, _| patch.truncate(kept))?;
            }
        }
        Ok(())
    }

    pub(super) fn zero(&mut self, id: ContentId, offset: u64, len: u64) -> Result<()> {
        let head = self.head(id)?;
        let end = offset.saturating_add(len).min(head.size);
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(CHUNK as u64), end / CHUNK as u64);
        if first < last {
            self.drop_chunks(id, head, first, last)?;
        }
        let mut at = offset;
        while at < end {
            let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
            let to = (end - index * CHUNK as u64).min(CHUNK as u64) as usize;
            if to - from == CHUNK {
                at = last * CHUNK as u64;
                continue;
            }
            at += (to - from) as u64;
            if !planted(ChangeBug::ZeroedPartKept) {
                self.patch(id, head.data, index, |patch, slabs| patch.zero(from, to, slabs))?;
            }
        }
        Ok(())
    }

    /// Replaces the whole chunks `from..to` by zeros.
    fn drop_chunks(&mut self, id: ContentId, head: ContentHead, from: u64, to: u64) -> Result<()> {
        if from == 0 && to > 0 {
            self.release_chunk(id, head.data, 0)?;
            self.put(Key::content(id), &head.encode(id));
        }
        self.remove_chunks(head.data, from.max(1), to)
    }

    /// Removes the rows of the chunks `from..to` that exist.
    fn remove_chunks(&mut self, data: DataId, from: u64, to: u64) -> Result<()> {
        let mut chunks = Vec::new();
        self.layers().scan(&Key::chunk(data, from), &Key::chunk(data, to), &mut |key, found| {
            chunks.push((Key::from(key), found.extent(0)));
            ControlFlow::Continue(())
        })?;
        for (key, extent) in chunks {
            if let Some(extent) = extent.map_err(|e| corrupt_row("a chunk", e))? {
                self.free_extent(&extent);
            }
            self.changes.insert(key, Row::Tombstone);
        }
        Ok(())
    }

    pub(super) fn stage(&mut self, data: DataId, index: u64, extents: &[Extent]) {
        for (index, extent) in (index..).zip(extents) {
            self.use_extent(extent);
            self.put_extent(data, index, extent);
        }
        // The chunks are garbage until a content takes them (rule 2).
        self.changes.insert(Key::garbage(data), Row::Value(Bytes::new()));
    }

    pub(super) fn reclaim(&mut self, data: DataId, from: u64, to: u64, done: bool) -> Result<()> {
        if matches!(self.layers().find(&Key::garbage(data))?, FoundRow::Nothing | FoundRow::Row(Row::Tombstone, _)) {
            // A content has taken the chunks meanwhile, or all of them were removed.
            return Ok(());
        }
        // The range may be older than the last chunk of an upload.
        let all = done && !planted(FaultBug::LateRemovalKeepsChunks);
        let (from, to) = if all { (0, u64::MAX) } else { (from, to) };
        self.remove_chunks(data, from, to)?;
        if done {
            self.changes.insert(Key::garbage(data), Row::Tombstone);
        }
        Ok(())
    }
}

/// Checks the new size of a content.
fn check_size(id: ContentId, size: u64) -> Result<()> {
    if size > limits::BLOB {
        return Err(too_large(&format!("content {id}"), size, limits::BLOB));
    }
    Ok(())
}

fn chunk_place(id: ContentId, data: DataId, index: u64) -> (Key, usize) {
    if index == 0 { (Key::content(id), HEAD) } else { (Key::chunk(data, index), 0) }
}

/// An empty patch on a row that is not in the active buffer.
fn patch_on(found: &FoundRow<'_>, skip: usize) -> Result<Patch, RowError> {
    Ok(match found {
        FoundRow::Nothing | FoundRow::Row(Row::Tombstone, _) => Patch::with_base(Base::Zeros),
        FoundRow::Row(Row::Patch(_), _) => Patch::with_base(Base::Older),
        found => match Chunk::decode(found.value().and_then(|row| row.get(skip..)).ok_or(RowError::Short)?)? {
            Chunk::Empty => Patch::with_base(Base::Zeros),
            Chunk::Extent(extent) => Patch::with_base(Base::Extent(extent)),
            Chunk::Inline { bytes, .. } => match found {
                FoundRow::Row(Row::Value(row), Depth::Active) => Patch::from_bytes(row.slice_ref(bytes)),
                _ => Patch::with_base(Base::Older),
            },
        },
    })
}
