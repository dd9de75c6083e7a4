//! The encoding of rows: heads of contents, chunks, and values with checksums. `docs/format.md` has the byte layout.
//!
//! A content is divided into chunks of [`CHUNK`] bytes. The first chunk is in the content's own row after its head, so a
//! small content needs one look-up. Each further chunk has its own row. A chunk is either *inline* or an *extent* of a
//! blob file. Every [`BLOCK`] bytes have a checksum, so a small read verifies only the blocks that it needs.

use bytes::{BufMut, Bytes, BytesMut};
use model::{ContentId, limits};

use crate::checksum::{crc32c, crc32c_parts};
use crate::rows::key::DataId;

/// Bytes in a chunk. A whole chunk is written once, to a blob file; a smaller one goes through the log.
pub(crate) const CHUNK: usize = 64 << 10;
/// Bytes under one checksum.
pub(crate) const BLOCK: usize = 4 << 10;
/// Bytes of a content's head.
pub(crate) const HEAD: usize = 21;

/// Numbers of blob files are below this, and offsets in them. Both limits are far above those of real stores, so that any number can be counted on from, and
/// no damaged row or archive requests much memory or disk space.
const BLOB_FILES: u32 = 1 << 31;
const BLOB_FILE_END: u64 = 1 << 32;

const FORMAT: u8 = 2;
const INLINE: u8 = 1;
const EXTENT: u8 = 2;

/// Why a stored row cannot be read. The caller adds the name of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
    #[error("its row is too short")]
    Short,
    #[error("its row has format {0}; this version reads format {FORMAT}")]
    Format(u8),
    #[error("it has a chunk of kind {0}, which this version does not know")]
    Chunk(u8),
    #[error("the checksum of its head does not match")]
    Head,
    #[error("the checksum of its bytes {0}..{1} does not match")]
    Block(u64, u64),
    #[error("the checksum of its value does not match")]
    Value,
    #[error("its key or value is longer than a row can have")]
    Long,
    #[error("it has a chunk at byte {1} of {0:08x}.blob, where none can be")]
    Position(u32, u64),
    #[error("its blob file is shorter than its extent")]
    File,
    #[error("its blob file {0:08x}.blob is missing")]
    NoFile(u32),
    #[error("the store does not have it any more")]
    Gone,
}

/// Whether a blob file can have this number.
pub(crate) fn is_blob_file(number: u32) -> bool {
    (1..BLOB_FILES).contains(&number)
}

/// Whether a chunk can be at this position of a blob file.
pub(crate) fn is_chunk_position(file: u32, offset: u64) -> bool {
    is_blob_file(file) && offset < BLOB_FILE_END && offset.is_multiple_of(CHUNK as u64)
}

/// The head of a content's row, before its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentHead {
    /// The size of the content in bytes.
    pub(crate) size: u64,
    /// The number under which the chunks after the first are stored.
    pub(crate) data: DataId,
}

impl ContentHead {
    pub(crate) fn encode(&self, id: ContentId) -> [u8; HEAD] {
        let mut row = [0; HEAD];
        row[0] = FORMAT;
        row[1..9].copy_from_slice(&self.size.to_le_bytes());
        row[9..17].copy_from_slice(&self.data.0.to_le_bytes());
        let crc = head_crc(id, &row);
        row[17..].copy_from_slice(&crc.to_le_bytes());
        row
    }

    pub(crate) fn decode(id: ContentId, row: &[u8]) -> Result<Self, RowError> {
        let row: &[u8; HEAD] = row.first_chunk().ok_or(RowError::Short)?;
        if row[0] != FORMAT {
            return Err(RowError::Format(row[0]));
        }
        if head_crc(id, row) != le32(row, 17) {
            return Err(RowError::Head);
        }
        Ok(Self { size: le64(row, 1), data: DataId(le64(row, 9)) })
    }
}

/// The checksum of a head includes the identifier, so a row under a wrong key is noticed.
fn head_crc(id: ContentId, row: &[u8; HEAD]) -> u32 {
    let mut covered = [0; 16 + 17];
    covered[..16].copy_from_slice(&id.0.to_be_bytes());
    covered[16..].copy_from_slice(&row[..17]);
    crc32c(&covered)
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// A chunk in a blob file: its position and checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// The checksum of the whole chunk.
    pub(crate) crc: u32,
    /// The checksums of its blocks.
    pub(crate) blocks: Bytes,
}

impl Extent {
    /// The checksums of its blocks.
    pub(crate) fn block_checksums(&self) -> impl Iterator<Item = u32> + '_ {
        self.blocks.as_chunks::<4>().0.iter().map(|crc| u32::from_le_bytes(*crc))
    }
}

/// A stored chunk. Bytes between its end and the end of the content are zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Chunk<'a> {
    Empty,
    Inline { blocks: &'a [u8], bytes: &'a [u8] },
    Extent(Extent),
}

/// The checksums of the blocks of `bytes`.
pub(crate) fn block_checksums(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks(BLOCK).map(crc32c)
}

impl<'a> Chunk<'a> {
    pub(crate) fn decode(row: &'a [u8]) -> Result<Self, RowError> {
        if row.is_empty() {
            return Ok(Self::Empty);
        }
        if row.len() < 5 {
            return Err(RowError::Short);
        }
        let len = le32(row, 1) as usize;
        if len > CHUNK {
            return Err(RowError::Short);
        }
        let blocks = len.div_ceil(BLOCK) * 4;
        match row[0] {
            INLINE if row.len() == 5 + blocks + len => {
                let (blocks, bytes) = row[5..].split_at(blocks);
                Ok(Self::Inline { blocks, bytes })
            }
            EXTENT if row.len() == 21 + blocks => {
                let (file, offset) = (le32(row, 5), le64(row, 9));
                if !is_chunk_position(file, offset) {
                    return Err(RowError::Position(file, offset));
                }
                let (crc, blocks) = (le32(row, 17), Bytes::copy_from_slice(&row[21..]));
                Ok(Self::Extent(Extent { file, offset, len: len as u32, crc, blocks }))
            }
            INLINE | EXTENT => Err(RowError::Short),
            other => Err(RowError::Chunk(other)),
        }
    }
}

/// Appends an inline chunk; appends nothing for no bytes.
pub(crate) fn put_inline(row: &mut BytesMut, bytes: &[u8]) {
    debug_assert!(bytes.len() <= CHUNK);
    if bytes.is_empty() {
        return;
    }
    row.reserve(inline_len(bytes.len()));
    row.put_u8(INLINE);
    row.put_u32_le(bytes.len() as u32);
    for crc in block_checksums(bytes) {
        row.put_u32_le(crc);
    }
    row.put_slice(bytes);
}

/// Inverts the checksum of a block of an inline chunk, so that readers get an error for the lost block.
pub(crate) fn mark_damaged(chunk: &mut [u8], block: usize) {
    if let Some(checksum) = chunk.get_mut(5 + block * 4..9 + block * 4) {
        checksum.iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// Bytes that [`put_inline`] appends.
pub(crate) fn inline_len(bytes: usize) -> usize {
    5 + bytes.div_ceil(BLOCK) * 4 + bytes
}

/// Bytes that [`put_extent`] appends for a whole chunk.
pub(crate) const EXTENT_LEN: usize = 21 + CHUNK / BLOCK * 4;

/// Appends a chunk that is an extent.
pub(crate) fn put_extent(row: &mut BytesMut, extent: &Extent) {
    row.reserve(21 + extent.blocks.len());
    row.put_u8(EXTENT);
    row.put_u32_le(extent.len);
    row.put_u32_le(extent.file);
    row.put_u64_le(extent.offset);
    row.put_u32_le(extent.crc);
    row.put_slice(&extent.blocks);
}

/// Verifies `bytes`, which are the bytes of a chunk from block `first` on, against the checksums `blocks`.
///
/// `at` is the offset of the chunk in its content, for the error.
pub(crate) fn check_blocks(blocks: &[u8], first: usize, bytes: &[u8], at: u64) -> Result<(), RowError> {
    for (i, block) in bytes.chunks(BLOCK).enumerate() {
        let expected = blocks.get((first + i) * 4..(first + i) * 4 + 4).ok_or(RowError::Short)?;
        if crc32c(block) != le32(expected, 0) {
            let from = at + ((first + i) * BLOCK) as u64;
            return Err(RowError::Block(from, from + block.len() as u64));
        }
    }
    Ok(())
}

/// The row of a value: the value, then a checksum of its key and bytes.
pub(crate) fn seal(key: &[u8], value: &[u8]) -> Bytes {
    seal_with_checksum(value, crc32c_parts(&[key, value]))
}

/// The row of a value with a known checksum of its key and bytes.
pub(crate) fn seal_with_checksum(value: &[u8], checksum: u32) -> Bytes {
    let mut row = BytesMut::with_capacity(sealed_len(value.len()));
    row.put_slice(value);
    row.put_u32_le(checksum);
    row.freeze()
}

/// Bytes of the row that [`seal`] makes.
pub(crate) fn sealed_len(value: usize) -> usize {
    value + 4
}

/// The length of the value in a row made by [`seal`], if its checksum matches.
pub(crate) fn unseal(key: &[u8], row: &[u8]) -> Result<usize, RowError> {
    let len = row.len().checked_sub(4).ok_or(RowError::Short)?;
    if len > limits::ROW_VALUE {
        return Err(RowError::Long);
    }
    if crc32c_parts(&[key, &row[..len]]) == le32(row, len) { Ok(len) } else { Err(RowError::Value) }
}

/// The row of an extent that a chunk uses: its length.
pub(crate) fn encode_extent_len(len: u32) -> [u8; 4] {
    len.to_le_bytes()
}

/// The length in the row of an extent.
pub(crate) fn decode_extent_len(row: &[u8]) -> Result<u32, RowError> {
    row.try_into().map(u32::from_le_bytes).map_err(|_| RowError::Short)
}

#[cfg(test)]
mod tests;
