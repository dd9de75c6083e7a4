//! Reading through the layers: the changes of the transaction that is being applied, the active and the frozen buffer,
//! and the B-tree.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use model::{ContentId, Result};

use crate::checksum::crc32c;
use crate::content::blob_file::{BlobFiles, ReadError};
use crate::engine::EngineRead;
use crate::error::{self, IntoModelResult, corrupt};
use crate::plant::{ChangeBug, planted};
use crate::rows::changes::Changes;
use crate::rows::key::{DataId, Key, table};
use crate::rows::mob::{Mob, Row, Seq};
use crate::rows::patch::{Base, Patch};
use crate::rows::row::{self, CHUNK, Chunk, ContentHead, Extent, HEAD, RowError, check_blocks};

/// Which versions a read sees.
#[derive(Clone, Copy)]
pub(crate) enum ReadPosition<'a> {
    /// Versions at or below a position.
    Seq(Seq),
    /// The newest durable versions, which may change during the read: for reads of single rows.
    Newest(&'a AtomicU64),
}

impl ReadPosition<'_> {
    pub(crate) fn seq(self) -> Seq {
        match self {
            Self::Seq(seq) => seq,
            Self::Newest(visible) => visible.load(Ordering::Acquire),
        }
    }
}

/// The layers of one read, newest first.
pub(crate) struct Layers<'a> {
    /// Rows that the transaction being applied has changed.
    pub(crate) changes: Option<&'a Changes>,
    pub(crate) active: &'a Mob,
    pub(crate) frozen: Option<&'a Mob>,
    pub(crate) at: ReadPosition<'a>,
    pub(crate) engine: &'a dyn EngineRead,
    pub(crate) files: Option<&'a BlobFiles>,
}

/// Rows of a buffer that a scan reads in its first step; most scans are short.
const FIRST_SCAN_ROWS: usize = 64;
/// Maximum number of rows of a buffer that a later step reads.
const MAX_SCAN_ROWS: usize = 512;
/// Rows of chunks that are looked up one by one rather than scanned.
const FEW_CHUNKS: u64 = 2;

/// The buffer in which a row was found; deeper is older.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Depth {
    Active,
    Frozen,
}

/// A row and where it was found.
pub(crate) enum FoundRow<'a> {
    Nothing,
    Row(Row, Depth),
    Engine(&'a [u8]),
}

/// A row in place.
#[derive(Clone, Copy)]
pub(crate) enum RowRef<'a> {
    Nothing,
    Row(&'a Row),
    Engine(&'a [u8]),
}

impl FoundRow<'_> {
    /// The row in place.
    pub(crate) fn row_ref(&self) -> RowRef<'_> {
        match self {
            FoundRow::Nothing => RowRef::Nothing,
            FoundRow::Row(row, _) => RowRef::Row(row),
            FoundRow::Engine(row) => RowRef::Engine(row),
        }
    }

    /// The whole row, unless it is missing or a patch.
    pub(crate) fn value(&self) -> Option<&[u8]> {
        match self {
            FoundRow::Row(Row::Value(value), _) => Some(value),
            FoundRow::Engine(value) => Some(value),
            _ => None,
        }
    }

    /// The extent that the chunk of the row uses, which begins after `skip` bytes.
    pub(crate) fn extent(&self, skip: usize) -> Result<Option<Extent>, RowError> {
        let Some(row) = self.value() else { return Ok(None) };
        let chunk = Chunk::decode(row.get(skip..).ok_or(RowError::Short)?)?;
        Ok(if let Chunk::Extent(extent) = chunk { Some(extent) } else { None })
    }

    fn head(&self, id: ContentId) -> Result<Option<ContentHead>> {
        let row = match self {
            FoundRow::Nothing | FoundRow::Row(Row::Tombstone | Row::Shared(..), _) => return Ok(None),
            FoundRow::Row(Row::Value(row), _) => row,
            FoundRow::Row(Row::Patch(patch), _) => &patch.head,
            FoundRow::Engine(row) => *row,
        };
        ContentHead::decode(id, row).map(Some).map_err(|e| corrupt(id, e))
    }
}

/// A content: its decoded head and its row.
pub(crate) struct StoredContent<'a> {
    pub(crate) id: ContentId,
    pub(crate) head: ContentHead,
    pub(crate) row: FoundRow<'a>,
}

/// The location of a chunk: its key, the bytes before it in its row, and its offset in the content.
struct ChunkLocation {
    key: Key,
    skip: usize,
    at: u64,
}

fn chunk_location(id: ContentId, data: DataId, index: u64) -> ChunkLocation {
    match index {
        0 => ChunkLocation { key: Key::content(id), skip: HEAD, at: 0 },
        _ => ChunkLocation { key: Key::chunk(data, index), skip: 0, at: index * CHUNK as u64 },
    }
}

impl<'a> Layers<'a> {
    /// The newest visible row of `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Result<FoundRow<'a>> {
        if let Some(row) = self.changes.and_then(|changes| changes.get(key)) {
            return Ok(FoundRow::Row(row.clone(), Depth::Active));
        }
        if let Some(row) = self.active.get(key, || self.at.seq()) {
            return Ok(FoundRow::Row(row, Depth::Active));
        }
        self.find_below(key, Depth::Active)
    }

    /// The row below the one found at `depth`.
    fn find_below(&self, key: &[u8], depth: Depth) -> Result<FoundRow<'a>> {
        if depth == Depth::Active
            && let Some(row) = self.frozen.and_then(|frozen| frozen.get(key, || self.at.seq()))
        {
            return Ok(FoundRow::Row(row, Depth::Frozen));
        }
        match self.engine.get(key).into_model_result()? {
            Some(row) => Ok(FoundRow::Engine(row)),
            None => Ok(FoundRow::Nothing),
        }
    }

    pub(crate) fn content(&self, id: ContentId) -> Result<Option<StoredContent<'a>>> {
        let row = self.find(&Key::content(id))?;
        Ok(row.head(id)?.map(|head| StoredContent { id, head, row }))
    }

    /// Checks that the rows of some chunks after the first can be read, as far as they exist. The chunks themselves are not read.
    pub(crate) fn check_chunks(&self, id: ContentId, data: DataId, chunks: Range<u64>) -> Result<()> {
        let mut chunks = chunks.start.max(1)..chunks.end;
        let check = |found: &FoundRow<'_>| found.extent(0).map(drop).map_err(|e| corrupt(id, e));
        if chunks.end.saturating_sub(chunks.start) <= FEW_CHUNKS {
            return chunks.try_for_each(|index| check(&self.find(&Key::chunk(data, index))?));
        }
        let mut checked = Ok(());
        self.scan(&Key::chunk(data, chunks.start), &Key::chunk(data, chunks.end), &mut |_, found| {
            checked = check(found);
            if checked.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        checked
    }

    /// The head of a content, and the extent that its first chunk uses.
    pub(crate) fn head_and_extent(&self, id: ContentId) -> Result<Option<(ContentHead, Option<Extent>)>> {
        let key = Key::content(id);
        self.with_row(&key, |row| match row {
            RowRef::Nothing | RowRef::Row(Row::Tombstone | Row::Shared(..)) => Ok(None),
            RowRef::Row(Row::Value(row)) => decode_head_and_extent(id, row).map(Some),
            RowRef::Row(Row::Patch(patch)) => decode_head_and_extent(id, &patch.head).map(Some),
            RowRef::Engine(row) => decode_head_and_extent(id, row).map(Some),
        })?
    }

    /// Calls `look` with a row in place, while a part of the store is locked.
    pub(crate) fn with_row<T>(&self, key: &[u8], mut look: impl FnMut(RowRef<'_>) -> T) -> Result<T> {
        if let Some(row) = self.changes.and_then(|changes| changes.get(key)) {
            return Ok(look(RowRef::Row(row)));
        }
        for mob in [Some(self.active), self.frozen].into_iter().flatten() {
            if let Some(looked) = mob.with_row(key, || self.at.seq(), |row| look(RowRef::Row(row))) {
                return Ok(looked);
            }
        }
        Ok(look(self.engine.get(key).into_model_result()?.map_or(RowRef::Nothing, RowRef::Engine)))
    }

    /// The bytes `offset..offset + len` of a content, fewer at its end.
    pub(crate) fn read(&self, content: &StoredContent<'a>, offset: u64, len: u64) -> Result<Bytes> {
        let end = offset.saturating_add(len).min(content.head.size);
        if offset >= end {
            return Ok(Bytes::new());
        }
        if end <= CHUNK as u64
            && let Some(bytes) = slice_of(content, offset as usize, end as usize)
        {
            return Ok(bytes);
        }
        let mut out = vec![0; (end - offset) as usize];
        let (mut at, mut rest) = (offset, &mut out[..]);
        while !rest.is_empty() {
            let from = (at % CHUNK as u64) as usize;
            let (piece, behind) = rest.split_at_mut((CHUNK - from).min(rest.len()));
            self.fill(content, at / CHUNK as u64, from, piece)?;
            at += piece.len() as u64;
            rest = behind;
        }
        Ok(out.into())
    }

    /// Reads the bytes of a chunk from `from` on into `out`; zeros where it has none.
    pub(crate) fn fill(&self, content: &StoredContent<'a>, index: u64, from: usize, out: &mut [u8]) -> Result<()> {
        let place = chunk_location(content.id, content.head.data, index);
        let filled = if index == 0 {
            self.fill_found(&content.row, &place, from, out)
        } else {
            self.fill_found(&self.find(&place.key)?, &place, from, out)
        };
        filled.map_err(|e| e.for_content(content.id))
    }

    /// Reads the bytes of a chunk that is being installed from `from` on into `out`: the patch of the frozen buffer and
    /// its base.
    pub(crate) fn fill_patched(&self, key: &Key, patch: &Patch, from: usize, out: &mut [u8]) -> Result<()> {
        let skip = if Key::table_of(key) == table::CONTENT { HEAD } else { 0 };
        let place = ChunkLocation { key: key.clone(), skip, at: 0 };
        out.fill(0);
        if patch.needs_base(from, from + out.len()) && !planted(ChangeBug::InstalledWithoutBase) {
            let kept = patch.base_len.saturating_sub(from).min(out.len());
            let filled = self.fill_base(patch, Depth::Frozen, &place, from, &mut out[..kept]);
            filled.map_err(|e| match e {
                FillError::Row(e) => error::corrupt_row("a chunk that is being installed", e),
                FillError::Other(e) => e,
            })?;
        }
        patch.overlay(from, out);
        Ok(())
    }

    fn fill_found(
        &self,
        found: &FoundRow<'a>,
        place: &ChunkLocation,
        from: usize,
        out: &mut [u8],
    ) -> Result<(), FillError> {
        match found {
            FoundRow::Nothing | FoundRow::Row(Row::Tombstone | Row::Shared(..), _) => out.fill(0),
            FoundRow::Row(Row::Value(row), _) => self.fill_stored(row, place, from, out)?,
            FoundRow::Engine(row) => self.fill_stored(row, place, from, out)?,
            FoundRow::Row(Row::Patch(patch), depth) => {
                if patch.needs_base(from, from + out.len()) {
                    let base_len = if planted(ChangeBug::BaseNotCut) { CHUNK } else { patch.base_len };
                    let kept = base_len.saturating_sub(from).min(out.len());
                    let (base, behind) = out.split_at_mut(kept);
                    self.fill_base(patch, *depth, place, from, base)?;
                    behind.fill(0);
                } else {
                    out.fill(0);
                }
                patch.overlay(from, out);
            }
        }
        Ok(())
    }

    fn fill_base(
        &self,
        patch: &Patch,
        depth: Depth,
        place: &ChunkLocation,
        from: usize,
        out: &mut [u8],
    ) -> Result<(), FillError> {
        match &patch.base {
            Base::Zeros => out.fill(0),
            Base::Older => self.fill_found(&self.find_below(&place.key, depth)?, place, from, out)?,
            Base::Extent(extent) => self.fill_extent(extent, place, from, out)?,
        }
        Ok(())
    }

    fn fill_stored(&self, row: &[u8], place: &ChunkLocation, from: usize, out: &mut [u8]) -> Result<(), FillError> {
        match Chunk::decode(row.get(place.skip..).ok_or(RowError::Short)?)? {
            Chunk::Empty => out.fill(0),
            Chunk::Inline { blocks, bytes } => {
                let to = (from + out.len()).min(bytes.len());
                let from = from.min(to);
                check_range(blocks, bytes, from, to, place.at)?;
                out[..to - from].copy_from_slice(&bytes[from..to]);
                out[to - from..].fill(0);
            }
            Chunk::Extent(extent) => self.fill_extent(&extent, place, from, out)?,
        }
        Ok(())
    }

    fn fill_extent(
        &self,
        extent: &Extent,
        place: &ChunkLocation,
        from: usize,
        out: &mut [u8],
    ) -> Result<(), FillError> {
        let len = (extent.len as usize).saturating_sub(from).min(out.len());
        let (stored, behind) = out.split_at_mut(len);
        let files = self.files.ok_or(RowError::File)?;
        files.read(extent, from, stored, place.at)?;
        behind.fill(0);
        Ok(())
    }

    /// The extent of a whole chunk, if it is one without a patch.
    pub(crate) fn extent(&self, content: &StoredContent<'a>, index: u64) -> Result<Option<Extent>> {
        let place = chunk_location(content.id, content.head.data, index);
        let other;
        let found = if index == 0 {
            &content.row
        } else {
            other = self.find(&place.key)?;
            &other
        };
        match found {
            FoundRow::Row(Row::Patch(patch), depth) if patch.segments.is_empty() && patch.base_len == CHUNK => {
                match &patch.base {
                    Base::Extent(extent) => Ok(Some(extent.clone())),
                    Base::Older => extent_in(&self.find_below(&place.key, *depth)?, place.skip, content.id),
                    Base::Zeros => Ok(None),
                }
            }
            found => extent_in(found, place.skip, content.id),
        }
    }

    /// Reads a whole extent and verifies all its checksums. `at` is its offset in the content.
    pub(crate) fn read_extent(&self, extent: &Extent, out: &mut [u8], at: u64) -> Result<(), FillError> {
        let files = self.files.ok_or(RowError::File)?;
        files.read(extent, 0, out, at)?;
        if crc32c(out) == extent.crc { Ok(()) } else { Err(RowError::Block(at, at + out.len() as u64).into()) }
    }

    /// Calls `show` with every row under a prefix, in order, until it fails.
    pub(crate) fn for_each_row(
        &self,
        prefix: &Key,
        mut show: impl FnMut(&[u8], &FoundRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut result = Ok(());
        self.scan(prefix, &prefix.prefix_end(), &mut |key, found| {
            result = show(key, found);
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    /// Calls `show` with the rows `from <= key < to`, in order, until it breaks.
    pub(crate) fn scan(
        &self,
        from: &[u8],
        to: &[u8],
        show: &mut dyn FnMut(&[u8], &FoundRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut from = Key::from(from);
        let mut many = FIRST_SCAN_ROWS;
        loop {
            let (rows, end) = self.buffered_rows(&from, to, many);
            many = (many * 4).min(MAX_SCAN_ROWS);
            if rows.is_empty() && end.is_none() {
                return self
                    .engine
                    .range(&from, to, &mut |key, value| show(key, &FoundRow::Engine(value)))
                    .into_model_result();
            }
            let flow = merge(
                rows,
                |buffered, key| buffered < key,
                show,
                |engine| self.engine.range(&from, end.as_deref().unwrap_or(to), engine).into_model_result(),
            )?;
            match end {
                Some(end) if flow.is_continue() => from = end,
                _ => return Ok(()),
            }
        }
    }

    /// As [`Layers::scan`], in reverse order.
    pub(crate) fn scan_back(
        &self,
        from: &[u8],
        to: &[u8],
        show: &mut dyn FnMut(&[u8], &FoundRow<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut to = Key::from(to);
        let mut many = FIRST_SCAN_ROWS;
        loop {
            let (rows, begin) = self.buffered_rows_back(from, &to, many);
            many = (many * 4).min(MAX_SCAN_ROWS);
            let flow = merge(
                rows,
                |buffered, key| buffered > key,
                show,
                |engine| self.engine.range_back(begin.as_deref().unwrap_or(from), &to, engine).into_model_result(),
            )?;
            match begin {
                Some(begin) if flow.is_continue() && !planted(ChangeBug::BackwardScanEnds) => to = begin,
                _ => return Ok(()),
            }
        }
    }

    /// The last rows of the range that are in a buffer, in reverse order, about `many` of each buffer; and the first
    /// key of the part of the range that they cover, if there may be more before it.
    fn buffered_rows_back(&self, from: &[u8], to: &[u8], many: usize) -> (Vec<(Key, Row)>, Option<Key>) {
        let mut keys = Vec::new();
        let mut begin: Option<Key> = None;
        for mob in [Some(self.active), self.frozen].into_iter().flatten() {
            let before = keys.len();
            mob.keys_back(from, to, many, &mut keys);
            if let Some(last) = keys.last().filter(|_| keys.len() - before == many) {
                begin = begin.max(Some(last.clone()));
            }
        }
        let mut rows = self.rows_of(keys, begin.as_deref().unwrap_or(from), to);
        rows.reverse();
        (rows, begin)
    }

    /// The first rows of the range that are in a buffer, in order, about `many` of each buffer; and the key at which to
    /// continue, if there may be more.
    fn buffered_rows(&self, from: &[u8], to: &[u8], many: usize) -> (Vec<(Key, Row)>, Option<Key>) {
        let mut keys = Vec::new();
        let mut end: Option<Key> = None;
        let frozen = self.frozen.filter(|_| !planted(ChangeBug::FrozenNotScanned));
        for mob in [Some(self.active), frozen].into_iter().flatten() {
            let before = keys.len();
            mob.keys(from, to, many, &mut keys);
            if let Some(last) = keys.last().filter(|_| keys.len() - before == many) {
                let behind = last.successor();
                end = Some(end.map_or_else(|| behind.clone(), |end| end.min(behind.clone())));
            }
        }
        let rows = self.rows_of(keys, from, end.as_deref().unwrap_or(to));
        (rows, end)
    }

    /// The buffered rows of these keys and of the changes within the range, in order.
    fn rows_of(&self, keys: Vec<Key>, from: &[u8], to: &[u8]) -> Vec<(Key, Row)> {
        let mut rows: Vec<(Key, Row)> = Vec::with_capacity(keys.len());
        if let (Some(changes), true) = (self.changes, from < to) {
            rows.extend(changes.range(from, to).map(|(key, row)| (key.clone(), row.clone())));
        }
        rows.extend(keys.into_iter().filter(|key| *from <= **key && **key < *to).filter_map(|key| {
            let row = self.active.get(&key, || self.at.seq());
            let row = row.or_else(|| self.frozen.and_then(|frozen| frozen.get(&key, || self.at.seq())))?;
            Some((key, row))
        }));
        // The sort is stable, so the newest row of a key comes first; sorted runs cost little.
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows.dedup_by(|(a, _), (b, _)| a == b);
        rows
    }
}

/// Called with the rows of the B-tree.
type RowVisitorRef<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

/// Merges buffered rows and those of the B-tree in key order. A buffered row replaces that of the B-tree.
fn merge(
    rows: Vec<(Key, Row)>,
    comes_before: fn(&[u8], &[u8]) -> bool,
    show: &mut dyn FnMut(&[u8], &FoundRow<'_>) -> ControlFlow<()>,
    tree: impl FnOnce(RowVisitorRef<'_>) -> Result<()>,
) -> Result<ControlFlow<()>> {
    let mut rows = rows.into_iter().peekable();
    let mut flow = ControlFlow::Continue(());
    tree(&mut |key, value| {
        while let Some((buffered, row)) = rows.next_if(|(buffered, _)| comes_before(buffered, key)) {
            flow = visit_row(show, &buffered, row);
            if flow.is_break() {
                return flow;
            }
        }
        flow = match rows.next_if(|(buffered, _)| **buffered == *key) {
            Some((_, row)) => visit_row(show, key, row),
            None => show(key, &FoundRow::Engine(value)),
        };
        flow
    })?;
    while flow.is_continue() {
        let Some((key, row)) = rows.next() else { break };
        flow = visit_row(show, &key, row);
    }
    Ok(flow)
}

fn visit_row(show: &mut dyn FnMut(&[u8], &FoundRow<'_>) -> ControlFlow<()>, key: &[u8], row: Row) -> ControlFlow<()> {
    match row {
        Row::Tombstone => ControlFlow::Continue(()),
        row => show(key, &FoundRow::Row(row, Depth::Active)),
    }
}

/// The bytes `from..to` of the first chunk: shared if they are contiguous in memory, copied if they are in the B-tree.
fn slice_of(content: &StoredContent<'_>, from: usize, to: usize) -> Option<Bytes> {
    match &content.row {
        FoundRow::Row(Row::Value(row), _) => match Chunk::decode(row.get(HEAD..)?).ok()? {
            Chunk::Inline { bytes, .. } if to <= bytes.len() => Some(row.slice_ref(&bytes[from..to])),
            _ => None,
        },
        FoundRow::Row(Row::Patch(patch), _) => patch.slice(from, to),
        FoundRow::Engine(row) => match Chunk::decode(row.get(HEAD..)?).ok()? {
            Chunk::Inline { blocks, bytes } if to <= bytes.len() => {
                check_range(blocks, bytes, from, to, 0).ok()?;
                Some(Bytes::copy_from_slice(&bytes[from..to]))
            }
            _ => None,
        },
        FoundRow::Nothing | FoundRow::Row(Row::Tombstone | Row::Shared(..), _) => None,
    }
}

/// Verifies the blocks of an inline chunk that cover `from..to`.
pub(crate) fn check_range(blocks: &[u8], bytes: &[u8], from: usize, to: usize, at: u64) -> Result<(), RowError> {
    if from >= to {
        return Ok(());
    }
    let first = from / row::BLOCK;
    let end = to.next_multiple_of(row::BLOCK).min(bytes.len());
    check_blocks(blocks, first, &bytes[first * row::BLOCK..end], at)
}

fn decode_head_and_extent(id: ContentId, row: &[u8]) -> Result<(ContentHead, Option<Extent>)> {
    let decode = || {
        let head = ContentHead::decode(id, row)?;
        let chunk = Chunk::decode(&row[HEAD..])?;
        Ok((head, if let Chunk::Extent(extent) = chunk { Some(extent) } else { None }))
    };
    decode().map_err(|e| corrupt(id, e))
}

fn extent_in(found: &FoundRow<'_>, skip: usize, id: ContentId) -> Result<Option<Extent>> {
    let Some(row) = found.value() else { return Ok(None) };
    let chunk = row.get(skip..).ok_or(RowError::Short).and_then(Chunk::decode).map_err(|e| corrupt(id, e))?;
    Ok(if let Chunk::Extent(extent) = chunk { Some(extent) } else { None })
}

/// An error of reading a chunk. The caller adds the content.
pub(crate) enum FillError {
    Row(RowError),
    Other(model::Error),
}

impl FillError {
    pub(crate) fn for_content(self, id: ContentId) -> model::Error {
        match self {
            Self::Row(e) => corrupt(id, e),
            Self::Other(e) => e,
        }
    }
}

impl From<RowError> for FillError {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

impl From<model::Error> for FillError {
    fn from(error: model::Error) -> Self {
        Self::Other(error)
    }
}

impl From<ReadError> for FillError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Row(e) => Self::Row(e),
            ReadError::Io(e) => Self::Other(error::io("reading a blob file", e)),
        }
    }
}
