//! What has changed of contents while another brick copies their logical node, as keys of [`super::changed_rows`].
//!
//! | key | what has changed |
//! | --- | --- |
//! | `X` content | its size, or it is gone |
//! | `X` content, 0, chunk | it was cut in or before this chunk, and may have grown again |
//! | `X` content, 1, chunk | this chunk |
//! | `X` content, 1, first, end | these chunks, `end` excluded |
//!
//! 1. A change of any size is one key or a few. The chunks of a range are read when they are sent; those that do not fit an answer are noted again.
//! 2. What was cut off is gone, although the content may have the same size again. A cut is sent as two sizes, the one up to the chunk and the one now, and
//!    the chunk. So the other brick has zeros behind it, as this one.
//! 3. The keys of the cuts of a content are before those of its chunks, so a cut is sent before what was written behind it. What was written before the cut is
//!    read when it is sent, and so after the cut.
//!
//! These keys stay in this process. What is sent are the [rows](super::content_rows) of contents.

use std::ops::{ControlFlow, Range};

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Result};
use smallvec::SmallVec;
use store::ContentChange;

use super::content_rows::{self, CHUNK, Contents, chunk_key, size_key};
use super::page_rows::Key;
use super::plant::{Bug, planted};

/// Most chunks of one change that are noted one by one, so that a chunk that changes often is noted once.
const MAX_LISTED_CHUNKS: u64 = if cfg!(test) { 2 } else { 64 };

const CUT: u8 = 0;
const CHUNKS: u8 = 1;

/// A part of a content that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChangedPart {
    /// The size, or the existence.
    Size,
    /// The content was cut in or before this chunk.
    Cut(u64),
    /// These chunks. There may be none behind some.
    Chunks(Range<u64>),
}

impl ChangedPart {
    /// The key that notes it.
    pub(crate) fn key(&self, id: ContentId) -> Key {
        let mut key = size_key(id);
        match self {
            Self::Size => {}
            Self::Cut(chunk) => {
                key.push(CUT);
                key.extend_from_slice(&chunk.to_be_bytes());
            }
            Self::Chunks(chunks) => {
                key.push(CHUNKS);
                key.extend_from_slice(&chunks.start.to_be_bytes());
                if chunks.end != chunks.start + 1 {
                    key.extend_from_slice(&chunks.end.to_be_bytes());
                }
            }
        }
        key
    }

    /// The content of a key and what has changed of it; `None` if the key is that of a row.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if it is malformed.
    pub(crate) fn parse(key: &[u8]) -> Result<Option<(ContentId, Self)>> {
        let prefix = key.get(..size_key(ContentId(0)).len()).unwrap_or(key);
        let Some((id, _)) = content_rows::parse(prefix)? else { return Ok(None) };
        let part = match key.split_at(prefix.len()).1.split_first() {
            None => Some(Self::Size),
            Some((&CUT, chunk)) => number(chunk).map(Self::Cut),
            Some((&CHUNKS, chunks)) => match chunks.split_at_checked(8) {
                Some((chunk, &[])) => number(chunk).map(|chunk| Self::Chunks(chunk..chunk.saturating_add(1))),
                Some((first, end)) => number(first).zip(number(end)).map(|(first, end)| Self::Chunks(first..end)),
                None => None,
            },
            Some(_) => None,
        };
        match part {
            Some(part) => Ok(Some((id, part))),
            None => Err(Error::new(ErrorKind::Internal, format!("a change of a content was noted as {key:02x?}"))),
        }
    }

    /// What of these chunks is before the rest of them.
    pub(crate) fn before(&self, rest: &Self) -> Option<Self> {
        match (self, rest) {
            (Self::Chunks(all), Self::Chunks(rest)) => Some(Self::Chunks(all.start..rest.start)),
            _ => None,
        }
    }

    /// Calls `visit` with the rows to be sent of it, until that breaks, and returns the part that is left. Chunks from `end` on are left out.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn read(
        self,
        (state, id): (&impl Contents, ContentId),
        end: Option<u64>,
        mut visit: impl FnMut(Key, Option<Bytes>) -> ControlFlow<()>,
    ) -> Result<Option<Self>> {
        let size = state.content_size(id)?;
        let chunks = match self {
            Self::Size => {
                let _ = visit(size_key(id), content_rows::read(state, id, None)?);
                return Ok(None);
            }
            Self::Cut(chunk) => {
                // The size of a content that is gone was noted, too.
                let Some(size) = size else { return Ok(None) };
                for size in [size.min(chunk.saturating_mul(CHUNK)), size] {
                    let _ = visit(size_key(id), Some(Bytes::copy_from_slice(&size.to_be_bytes())));
                }
                chunk..chunk.saturating_add(1)
            }
            Self::Chunks(chunks) => chunks,
        };
        let count = size.unwrap_or(0).div_ceil(CHUNK);
        let end = chunks.end.min(count).min(end.unwrap_or(u64::MAX));
        for chunk in chunks.start..end {
            let bytes = content_rows::read(state, id, Some(chunk))?;
            if visit(chunk_key(id, chunk), bytes).is_break() {
                let has_rest = chunk + 1 < end && !planted(Bug::RangeRestForgotten);
                return Ok(has_rest.then_some(Self::Chunks(chunk + 1..end)));
            }
        }
        Ok(None)
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().map(u64::from_be_bytes).ok()
}

/// The keys that note what a change of a content has changed.
pub(crate) fn changed_keys(change: &ContentChange) -> SmallVec<[Key; 4]> {
    match change {
        ContentChange::Create { id, data } => new_content_keys(*id, data.len() as u64),
        ContentChange::CreateFromUpload { id, .. } => new_content_keys(*id, u64::MAX),
        ContentChange::Write { id, offset, data } => keys_in(*id, *offset, data.len() as u64),
        ContentChange::Zero { id, offset, len } => keys_in(*id, *offset, *len),
        ContentChange::Truncate { id, size } | ContentChange::Resize { id, size } => {
            if planted(Bug::CutBytesKept) {
                return keys_in(*id, size.saturating_sub(1), 1);
            }
            [ChangedPart::Size, ChangedPart::Cut(size / CHUNK)].map(|part| part.key(*id)).into_iter().collect()
        }
        ContentChange::Delete { id } => SmallVec::from_iter([size_key(*id)]),
    }
}

/// The keys that note a new content of at most `size` bytes.
pub(crate) fn new_content_keys(id: ContentId, size: u64) -> SmallVec<[Key; 4]> {
    let chunks = (size > 0).then(|| ChangedPart::Chunks(0..size.div_ceil(CHUNK)));
    [ChangedPart::Size].into_iter().chain(chunks).map(|part| part.key(id)).collect()
}

/// The keys that note the size and a range of bytes of a content.
fn keys_in(id: ContentId, offset: u64, len: u64) -> SmallVec<[Key; 4]> {
    let (first, end) = (offset / CHUNK, offset.saturating_add(len).div_ceil(CHUNK));
    if end.saturating_sub(first) > MAX_LISTED_CHUNKS {
        return [ChangedPart::Size, ChangedPart::Chunks(first..end)].map(|part| part.key(id)).into_iter().collect();
    }
    let chunks = (first..end).map(|chunk| ChangedPart::Chunks(chunk..chunk + 1));
    [ChangedPart::Size].into_iter().chain(chunks).map(|part| part.key(id)).collect()
}

/// The first key of what a copy has not reached, if it goes on at the key `from` of a row: what was noted from there on need not be sent.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is malformed.
pub(crate) fn unreached_key(from: &[u8]) -> Result<Key> {
    Ok(match content_rows::parse(from)? {
        // Cuts do no harm.
        Some((id, Some(chunk))) => ChangedPart::Chunks(chunk..chunk.saturating_add(1)).key(id),
        _ => Key::from_slice(from),
    })
}

/// How many rows are to be sent because of a key, or more.
pub(crate) fn row_count(key: &[u8]) -> u64 {
    match ChangedPart::parse(key) {
        Ok(Some((_, ChangedPart::Chunks(chunks)))) => chunks.end.saturating_sub(chunks.start),
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
