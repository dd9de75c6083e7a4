//! Reading contents.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Result, limits};
use smallvec::SmallVec;

use crate::content::blob_file;
use crate::error::{self, IntoModelResult, corrupt, no_content};
use crate::read::Readable;
use crate::read::layers::{FillError, Layers, StoredContent};
use crate::read::state::ReadState;
use crate::read::view::{Pin, PinTable};
use crate::rows::key::{Key, content_of};
use crate::rows::mob::Row;
use crate::rows::row::{CHUNK, ContentHead, Extent, RowError};

/// A part of a content, without a copy.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A whole chunk in a file that will not change while the [`Pieces`] are held.
    File {
        /// The file.
        file: Arc<File>,
        /// Where in it the chunk begins.
        offset: u64,
        /// Bytes in the chunk.
        len: u64,
        /// The CRC-32C of these bytes when they were written. The reader must verify it.
        crc32c: u32,
    },
}

/// A range of a content as pieces that can be sent without copying.
pub struct Pieces {
    /// The pieces, in order.
    pub pieces: Vec<Piece>,
    /// Keeps the ranges of the files from being freed.
    _pin: Pin<Arc<PinTable>>,
}

/// The head of a content in the newest durable state, decoded in place.
pub(crate) fn newest_head(state: &ReadState, id: ContentId) -> Result<Option<ContentHead>> {
    let key = Key::content(id);
    let decode = |row: &[u8]| ContentHead::decode(id, row).map(Some).map_err(|e| corrupt(id, e));
    let in_buffer = |row: &Row| match row {
        Row::Tombstone | Row::Shared(..) => Ok(None),
        Row::Value(row) => decode(row),
        Row::Patch(patch) => decode(&patch.head),
    };
    let view = state.view.load();
    for mob in [Some(&view.active), view.frozen.as_ref()].into_iter().flatten() {
        if let Some(head) = mob.with_row(&key, || state.visible_seq(), in_buffer) {
            return head;
        }
    }
    state.read_engine(|engine| engine.get(&key).into_model_result()?.map_or(Ok(None), decode))
}

pub(crate) fn size(this: &impl Readable, id: ContentId) -> Result<Option<u64>> {
    Ok(this.head(id)?.map(|head| head.size))
}

fn find<'a>(layers: &Layers<'a>, id: ContentId) -> Result<StoredContent<'a>> {
    layers.content(id)?.ok_or_else(|| no_content(id))
}

pub(crate) fn read(this: &impl Readable, id: ContentId, offset: u64, len: u64) -> Result<Bytes> {
    this.read_state(|layers| {
        let content = find(layers, id)?;
        let len = len.min(content.head.size.saturating_sub(offset));
        if len > limits::CONTENT_READ as u64 {
            let message =
                format!("a read of {len} bytes at once; the limit is {}: read in pieces", limits::CONTENT_READ);
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        if offset % CHUNK as u64 + len <= CHUNK as u64 {
            return layers.read(&content, offset, len);
        }
        let mut out = vec![0; len as usize];
        fill(layers, &content, offset, &mut out)?;
        Ok(out.into())
    })
}

/// Checks that the rows of a content can be read.
pub(crate) fn check_rows(this: &impl Readable, id: ContentId) -> Result<()> {
    this.read_state(|layers| match layers.content(id)? {
        Some(content) => layers.for_each_row(&Key::chunks_of(content.head.data), |_, _| Ok(())),
        None => Ok(()),
    })
}

/// Whether a range of a content can probably be read without waiting for a disk.
///
/// # Errors
/// If the rows that name it cannot be read.
pub(crate) fn is_resident(state: &ReadState, id: ContentId, offset: u64, len: u64) -> Result<bool> {
    if !state.is_row_resident(&Key::content(id)) {
        return Ok(false);
    }
    state.read_state(|layers| {
        let Some(content) = layers.content(id)? else { return Ok(true) };
        let end = offset.saturating_add(len).min(content.head.size);
        let mut at = offset;
        while at < end {
            let (index, from) = (at / CHUNK as u64, at % CHUNK as u64);
            let len = (CHUNK as u64 - from).min(end - at);
            if !state.is_row_resident(&Key::chunk(content.head.data, index)) {
                return Ok(false);
            }
            if let (Some(files), Some(extent)) = (layers.files, layers.extent(&content, index)?)
                && !files.is_in_memory(&extent, from, len)
            {
                return Ok(false);
            }
            at += len;
        }
        Ok(true)
    })
}

/// Reads the bytes of a content from `offset` on into `out`. Whole chunks in files are read together.
fn fill(layers: &Layers<'_>, content: &StoredContent<'_>, offset: u64, out: &mut [u8]) -> Result<()> {
    let (mut at, mut rest) = (offset, out);
    while !rest.is_empty() {
        let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
        let mut run: SmallVec<[Extent; 16]> = SmallVec::new();
        while from == 0
            && run.len() < rest.len() / CHUNK
            && let Some(extent) = layers.extent(content, index + run.len() as u64)?
        {
            run.push(extent);
        }
        if let (Some(files), false) = (layers.files, run.is_empty()) {
            let (chunks, behind) = rest.split_at_mut(run.len() * CHUNK);
            files.read_runs(&run, chunks, at).map_err(|e| FillError::from(e).for_content(content.id))?;
            at += chunks.len() as u64;
            rest = behind;
        }
        // The chunk that ended the run is not a whole chunk in a file.
        let (index, from) = (at / CHUNK as u64, (at % CHUNK as u64) as usize);
        let (piece, behind) = rest.split_at_mut((CHUNK - from).min(rest.len()));
        if !piece.is_empty() {
            layers.fill(content, index, from, piece)?;
        }
        at += piece.len() as u64;
        rest = behind;
    }
    Ok(())
}

pub(crate) fn pieces(this: &impl Readable, id: ContentId, offset: u64, len: u64) -> Result<Pieces> {
    this.read_state(|layers| {
        let content = find(layers, id)?;
        let end = offset.saturating_add(len).min(content.head.size);
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let (index, from) = (at / CHUNK as u64, at % CHUNK as u64);
            let len = (CHUNK as u64 - from).min(end - at);
            let piece = if len == CHUNK as u64 { chunk_in_file(this.state(), layers, &content, index)? } else { None };
            pieces.push(match piece {
                Some(piece) => piece,
                None => Piece::Bytes(layers.read(&content, at, len)?),
            });
            at += len;
        }
        // Pins the position that was read: at the newest one, chunks of these pieces may be freed already.
        let pin = PinTable::pin_again(Arc::clone(&this.state().pins), layers.at.seq());
        Ok(Pieces { pieces, _pin: pin })
    })
}

fn chunk_in_file(
    state: &ReadState,
    layers: &Layers<'_>,
    content: &StoredContent<'_>,
    index: u64,
) -> Result<Option<Piece>> {
    let Some(extent) = layers.extent(content, index)? else { return Ok(None) };
    let file = state.files().map(|files| files.system_file(&extent)).transpose();
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => corrupt(content.id, RowError::NoFile(extent.file)),
        _ => error::io("a blob file", error),
    });
    let file = file?.flatten();
    Ok(file.filter(|_| extent.len as usize == CHUNK).map(|file| Piece::File {
        file,
        offset: blob_file::position_in_file(extent.offset),
        len: u64::from(extent.len),
        crc32c: extent.crc,
    }))
}

/// The contents in a range of identifiers.
pub(crate) fn list(this: &impl Readable, from: ContentId, to: ContentId, limit: usize) -> Result<Vec<ContentId>> {
    let limit = limit.min(limits::LISTING);
    let mut found = Vec::new();
    this.read_state(|layers| {
        found.clear();
        if limit == 0 || from >= to {
            return Ok(());
        }
        layers.scan(&Key::content(from), &Key::content(to), &mut |key, _| {
            found.extend(content_of(key));
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    })?;
    Ok(found)
}
