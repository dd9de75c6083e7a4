//! Steps that change content: whole, in part, by cloning, and chunk by chunk in the background.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use model::{Kind, Oid, Result, limits};
use smallvec::SmallVec;

use super::{Applier, check_blob_size, damaged};
use crate::error::{corrupt_row, invalid, no_object, too_large};
use crate::log::entry::StagedContent;
use crate::plant::{FaultBug, OperationBug, planted};
use crate::read::layers::{Depth, FoundRow, has_content};
use crate::rows::key::{DataId, Key};
use crate::rows::mob::Row;
use crate::rows::patch::{Base, Patch};
use crate::rows::row::{self, CHUNK, Chunk, Extent, HEAD, Head, RowError, put_extent, put_inline};
use crate::rows::slab::Slabs;

/// The row of an object that is at most this long contains no bytes of its content. It is copied instead of patched.
const SHORT: usize = HEAD + 128;

impl Applier<'_> {
    /// Writes the rows of an object: its head and whole content.
    pub(super) fn put_content(&mut self, oid: Oid, head: Head, content: &StagedContent) -> Result<()> {
        for extent in &content.extents {
            self.adjust_extent_users(extent, 1)?;
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
        self.put_object(oid, &head, len, |row| match (content.extents.first(), first) {
            (Some(extent), _) => put_extent(row, extent),
            (None, Some(bytes)) => put_inline(row, bytes),
            (None, None) => {}
        });
        Ok(())
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

    /// Replaces the whole content.
    pub(super) fn replace(&mut self, oid: Oid, content: &StagedContent) -> Result<()> {
        let kind = self.release_content(oid)?.kind;
        if !has_content(kind) {
            return Err(invalid(format!("{oid} is a {}; it has no content", kind.name())));
        }
        let size = (content.extents.len() * CHUNK + content.bytes.len()) as u64;
        if kind == Kind::Record && size > limits::RECORD as u64 {
            return Err(too_large("a record", size, limits::RECORD as u64));
        }
        let data = self.next_content()?;
        let head = Head { kind, size, version: self.seq, modified_us: self.time_us, data };
        self.put_content(oid, head, content)
    }

    pub(super) fn put_staged(&mut self, oid: Oid, data: DataId, size: u64, first: &Extent, tail: &Bytes) -> Result<()> {
        check_blob_size(oid, size)?;
        self.blob(oid)?;
        self.release_content(oid)?;
        self.adjust_extent_users(first, 1)?;
        if !tail.is_empty() {
            self.put_inline(data, size / CHUNK as u64, tail);
        }
        let head = Head { kind: Kind::Blob, size, version: self.seq, modified_us: self.time_us, data };
        self.put_object(oid, &head, row::EXTENT_LEN, |row| put_extent(row, first));
        self.changes.insert(Key::garbage(data), Row::Tombstone);
        Ok(())
    }

    /// Releases the content of an object; chunks after the first are removed in the background. Returns the head.
    pub(super) fn release_content(&mut self, oid: Oid) -> Result<Head> {
        let (head, extent) = self.layers().head_and_extent(oid)?.ok_or_else(|| no_object(oid))?;
        if let Some(extent) = extent {
            self.adjust_extent_users(&extent, -1)?;
        }
        if has_content(head.kind) && head.size > CHUNK as u64 && !planted(OperationBug::ReplacedContentKept) {
            self.changes.insert(Key::garbage(head.data), Row::Value(Bytes::new()));
        }
        Ok(head)
    }

    pub(super) fn write(&mut self, oid: Oid, offset: u64, bytes: &Bytes) -> Result<()> {
        let head = self.blob(oid)?.head;
        let end = offset.saturating_add(bytes.len() as u64);
        check_blob_size(oid, end)?;
        let size = if bytes.is_empty() { head.size } else { head.size.max(end) };
        self.set_head(oid, Head { size, ..self.updated_head(head) })?;
        let (mut at, mut rest) = (offset, bytes.clone());
        while !rest.is_empty() {
            let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
            let piece = rest.split_to((CHUNK - from).min(rest.len()));
            at += piece.len() as u64;
            // Copied: these bytes stay in memory until they are installed, and must not keep the whole message in
            // memory.
            let mut kept = self.slabs.row(piece.len());
            kept.extend_from_slice(&piece);
            self.patch(oid, head.data, index, |patch, slabs| patch.write(from, kept.freeze(), slabs))?;
        }
        Ok(())
    }

    pub(super) fn write_chunks(&mut self, oid: Oid, index: u64, extents: &[Extent]) -> Result<()> {
        let head = self.blob(oid)?.head;
        let end = index.saturating_add(extents.len() as u64).saturating_mul(CHUNK as u64);
        check_blob_size(oid, end)?;
        let head = Head { size: head.size.max(end), ..self.updated_head(head) };
        self.set_head(oid, head)?;
        for (index, extent) in (index..).zip(extents) {
            self.release_chunk(oid, head.data, index)?;
            self.adjust_extent_users(extent, 1)?;
            if index == 0 {
                self.put_object(oid, &head, row::EXTENT_LEN, |row| put_extent(row, extent));
            } else {
                self.put_extent(head.data, index, extent);
            }
        }
        Ok(())
    }

    /// Releases the extent of a chunk that is about to be replaced.
    fn release_chunk(&mut self, oid: Oid, data: DataId, index: u64) -> Result<()> {
        let (key, skip) = chunk_place(oid, data, index);
        let extent = row_extent(&self.layers().find(&key)?, skip).map_err(damaged(oid))?;
        match extent {
            Some(extent) => self.adjust_extent_users(&extent, -1),
            None => Ok(()),
        }
    }

    /// Changes a part of one chunk.
    fn patch(&mut self, oid: Oid, data: DataId, index: u64, change: impl FnOnce(&mut Patch, &mut Slabs)) -> Result<()> {
        let (key, skip) = chunk_place(oid, data, index);
        let mut patch = self.patch_of(oid, &key, skip)?;
        change(&mut patch, &mut self.slabs);
        self.changes.insert(key, Row::Patch(Arc::new(patch)));
        Ok(())
    }

    /// The current chunk as a patch to change further.
    ///
    /// A patch on an extent keeps the extent readable but is not counted as its user: the installer merges the two into
    /// a row of the B-tree, and the extent stays on disk until no earlier reader is left.
    fn patch_of(&mut self, oid: Oid, key: &Key, skip: usize) -> Result<Patch> {
        let mut patch = {
            let found = self.layers().find(key)?;
            if let FoundRow::Row(Row::Patch(patch), Depth::Active) = &found {
                let own = self.changes.get(key).is_some();
                return Ok(if own { Patch::clone(patch) } else { patch.fork() });
            }
            let mut patch = patch_on(&found, skip).map_err(damaged(oid))?;
            patch.head = match &found {
                _ if skip == 0 => Bytes::new(),
                FoundRow::Row(Row::Patch(older), _) => older.head.clone(),
                found => Bytes::copy_from_slice(found.value().and_then(|row| row.get(..skip)).unwrap_or_default()),
            };
            patch
        };
        if let Base::Extent(extent) = &mut patch.base {
            self.adjust_extent_users(extent, -1)?;
        }
        Ok(patch)
    }

    /// The head with the version and time of this transaction.
    fn updated_head(&self, head: Head) -> Head {
        Head { version: self.seq, modified_us: self.time_us, ..head }
    }

    /// Replaces the head of an object and keeps its first chunk.
    fn set_head(&mut self, oid: Oid, head: Head) -> Result<()> {
        let key = Key::object(oid);
        let encoded = head.encode(oid);
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
                let mut patch = self.patch_of(oid, &key, HEAD)?;
                let mut head = self.slabs.row(encoded.len());
                head.extend_from_slice(&encoded);
                patch.head = head.freeze();
                self.changes.insert(key, Row::Patch(Arc::new(patch)));
            }
        }
        Ok(())
    }

    /// Marks an object as changed and returns its real identifier.
    pub(super) fn mark_changed(&mut self, oid: Oid) -> Result<Oid> {
        let oid = self.resolve(oid)?;
        self.change_member_count(oid, 0)?;
        Ok(oid)
    }

    /// Marks an object as changed and adds `members` to its number of members.
    pub(super) fn change_member_count(&mut self, oid: Oid, members: i64) -> Result<()> {
        let head = self.object(oid)?.head;
        let size = head.size.saturating_add_signed(members);
        self.set_head(oid, Head { size, ..self.updated_head(head) })
    }

    pub(super) fn truncate(&mut self, oid: Oid, size: u64) -> Result<()> {
        check_blob_size(oid, size)?;
        let head = self.blob(oid)?.head;
        self.set_head(oid, Head { size, ..self.updated_head(head) })?;
        if size < head.size {
            self.drop_chunks(oid, head.data, size.div_ceil(CHUNK as u64), head.size.div_ceil(CHUNK as u64))?;
            let kept = (size % CHUNK as u64) as usize;
            if kept > 0 && !planted(OperationBug::TruncatedTailKept) {
                self.patch(oid, head.data, size / CHUNK as u64, |patch, _| patch.truncate(kept))?;
            }
        }
        Ok(())
    }

    pub(super) fn zero(&mut self, oid: Oid, offset: u64, len: u64) -> Result<()> {
        let head = self.blob(oid)?.head;
        self.set_head(oid, self.updated_head(head))?;
        let end = offset.saturating_add(len).min(head.size);
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.div_ceil(CHUNK as u64), end / CHUNK as u64);
        if first < last {
            self.drop_chunks(oid, head.data, first, last)?;
        }
        let mut at = offset;
        while at < end {
            let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
            let to = (end - index * CHUNK as u64).min(CHUNK as u64) as usize;
            if to - from < CHUNK {
                if planted(OperationBug::ZeroedPartKept) {
                    at += (to - from) as u64;
                    continue;
                }
                self.patch(oid, head.data, index, |patch, slabs| patch.zero(from, to, slabs))?;
                at += (to - from) as u64;
            } else {
                at = last * CHUNK as u64;
            }
        }
        Ok(())
    }

    /// Replaces the whole chunks `from..to` by zeros.
    fn drop_chunks(&mut self, oid: Oid, data: DataId, from: u64, to: u64) -> Result<()> {
        if from == 0 && to > 0 {
            let head = self.object(oid)?.head;
            self.release_chunk(oid, data, 0)?;
            self.put(Key::object(oid), &head.encode(oid));
        }
        self.remove_chunks(data, from.max(1), to)
    }

    /// Removes the rows of the chunks `from..to` that exist.
    fn remove_chunks(&mut self, data: DataId, from: u64, to: u64) -> Result<()> {
        let mut chunks = Vec::new();
        self.layers().scan(&Key::chunk(data, from), &Key::chunk(data, to), &mut |key, found| {
            chunks.push((Key::from(key), row_extent(found, 0)));
            ControlFlow::Continue(())
        })?;
        for (key, extent) in chunks {
            if let Some(extent) = extent.map_err(|e| corrupt_row("a chunk", e))? {
                self.adjust_extent_users(&extent, -1)?;
            }
            self.changes.insert(key, Row::Tombstone);
        }
        Ok(())
    }

    pub(super) fn clone_content(&mut self, from: Oid, to: Oid) -> Result<()> {
        let (source, target) = (self.object(from)?.head, self.object(to)?.head);
        if source.kind != target.kind || source.kind == Kind::Collection {
            let (a, b) = (source.kind.name(), target.kind.name());
            return Err(invalid(format!("cannot clone {from}, a {a}, to {to}, a {b}: both must be blobs or records")));
        }
        if from == to {
            return Ok(());
        }
        self.release_content(to)?;
        let data = self.next_content()?;
        let mut first = StagedContent::default();
        for index in self.stored_chunks(source.data, source.size)? {
            match self.shared_chunk(from, source.size, index)? {
                (Some(extent), _) if index == 0 => first.extents.push(extent),
                (Some(extent), _) => {
                    self.adjust_extent_users(&extent, 1)?;
                    self.put_extent(data, index, &extent);
                }
                (None, bytes) if index == 0 => first.bytes = bytes,
                // A chunk of zeros needs no row.
                (None, bytes) if bytes.iter().all(|b| *b == 0) => {}
                (None, bytes) => self.put_inline(data, index, &bytes),
            }
        }
        self.put_content(to, Head { size: source.size, data, ..self.updated_head(target) }, &first)
    }

    /// The stored chunks of a content, and always the first: a blob may consist of gaps.
    fn stored_chunks(&self, data: DataId, size: u64) -> Result<Vec<u64>> {
        let mut chunks: Vec<u64> = (0..size.min(1)).collect();
        let (from, to) = (Key::chunk(data, 1), Key::chunk(data, size.div_ceil(CHUNK as u64)));
        self.layers().scan(&from, &to, &mut |key, _| {
            chunks.extend(key.get(9..17).and_then(|index| index.try_into().ok()).map(u64::from_be_bytes));
            ControlFlow::Continue(())
        })?;
        Ok(chunks)
    }

    /// A chunk for another object: its extent, to be shared, or a copy of its bytes.
    fn shared_chunk(&self, from: Oid, size: u64, index: u64) -> Result<(Option<Extent>, Bytes)> {
        let layers = self.layers();
        let object = self.object(from)?;
        let extent = layers.extent(&object, index)?;
        let mut bytes = Bytes::new();
        if extent.is_none() {
            let offset = index * CHUNK as u64;
            bytes = layers.read(&object, offset, (size - offset).min(CHUNK as u64))?;
        }
        Ok((extent, bytes))
    }

    pub(super) fn stage(&mut self, data: DataId, index: u64, extents: &[Extent]) -> Result<()> {
        for (index, extent) in (index..).zip(extents) {
            self.adjust_extent_users(extent, 1)?;
            self.put_extent(data, index, extent);
        }
        // The content is garbage until an object takes it.
        self.changes.insert(Key::garbage(data), Row::Value(Bytes::new()));
        Ok(())
    }

    pub(super) fn reclaim(&mut self, data: DataId, from: u64, to: u64, done: bool) -> Result<()> {
        if matches!(self.layers().find(&Key::garbage(data))?, FoundRow::Nothing | FoundRow::Row(Row::Tombstone, _)) {
            // An object has taken the content meanwhile, or all of it was removed.
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

fn chunk_place(oid: Oid, data: DataId, index: u64) -> (Key, usize) {
    if index == 0 { (Key::object(oid), HEAD) } else { (Key::chunk(data, index), 0) }
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

/// The extent of which a row counts as a user.
fn row_extent(found: &FoundRow<'_>, skip: usize) -> Result<Option<Extent>, RowError> {
    let Some(row) = found.value() else { return Ok(None) };
    let chunk = Chunk::decode(row.get(skip..).ok_or(RowError::Short)?)?;
    Ok(if let Chunk::Extent(extent) = chunk { Some(extent) } else { None })
}
