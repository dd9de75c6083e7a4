//! The encoding of rows: object heads, chunks and values with checksums. `docs/format.md` has the byte layout.
//!
//! A blob or record is divided into chunks of [`CHUNK`] bytes. The first chunk is in the object's own row after its
//! head, so a small object needs one look-up. Each further chunk has its own row. A chunk is either *inline* or an
//! *extent* of a blob file. Every [`BLOCK`] bytes have a checksum, so a small read verifies only the blocks that it
//! needs.

use bytes::{BufMut, Bytes, BytesMut};
use model::{Kind, Oid};

use crate::checksum::{crc32c, crc32c_parts};
use crate::rows::key::DataId;

/// Bytes in a chunk. A whole chunk is written once, to a blob file; a smaller one goes through the log.
pub(crate) const CHUNK: usize = 64 << 10;
/// Bytes under one checksum.
pub(crate) const BLOCK: usize = 4 << 10;
/// Bytes of an object's head.
pub(crate) const HEAD: usize = 38;

const FORMAT: u8 = 1;
const INLINE: u8 = 1;
const EXTENT: u8 = 2;

/// Why a stored row cannot be read. The caller adds the name of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RowError {
    #[error("its row is too short")]
    Short,
    #[error("its row has format {0}, which this version does not know")]
    Format(u8),
    #[error("the checksum of its head does not match")]
    Head,
    #[error("the checksum of its bytes {0}..{1} does not match")]
    Block(u64, u64),
    #[error("the checksum of its value does not match")]
    Value,
    #[error("its blob file is shorter than its extent")]
    File,
}

/// The head of an object's row, before its first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) version: u64,
    pub(crate) modified_us: i64,
    pub(crate) data: DataId,
}

impl Head {
    pub(crate) fn encode(&self, oid: Oid) -> [u8; HEAD] {
        let mut row = [0; HEAD];
        row[0] = FORMAT;
        row[1] = self.kind as u8;
        row[2..10].copy_from_slice(&self.size.to_le_bytes());
        row[10..18].copy_from_slice(&self.version.to_le_bytes());
        row[18..26].copy_from_slice(&self.modified_us.to_le_bytes());
        row[26..34].copy_from_slice(&self.data.0.to_le_bytes());
        let crc = head_crc(oid, &row);
        row[34..38].copy_from_slice(&crc.to_le_bytes());
        row
    }

    pub(crate) fn decode(oid: Oid, row: &[u8]) -> Result<Self, RowError> {
        let row: &[u8; HEAD] = row.first_chunk().ok_or(RowError::Short)?;
        if row[0] != FORMAT {
            return Err(RowError::Format(row[0]));
        }
        if head_crc(oid, row) != le32(row, 34) {
            return Err(RowError::Head);
        }
        Ok(Self {
            kind: Kind::from_code(row[1]).ok_or(RowError::Head)?,
            size: le64(row, 2),
            version: le64(row, 10),
            modified_us: le64(row, 18) as i64,
            data: DataId(le64(row, 26)),
        })
    }
}

/// The checksum of a head includes the identifier, so a row under a wrong key is noticed.
fn head_crc(oid: Oid, row: &[u8; HEAD]) -> u32 {
    let mut covered = [0; 16 + 34];
    covered[..16].copy_from_slice(&oid.to_bytes());
    covered[16..].copy_from_slice(&row[..34]);
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

/// A stored chunk. Bytes between its end and the end of the blob are zeros.
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
            EXTENT if row.len() == 21 + blocks => Ok(Self::Extent(Extent {
                file: le32(row, 5),
                offset: le64(row, 9),
                len: len as u32,
                crc: le32(row, 17),
                blocks: Bytes::copy_from_slice(&row[21..]),
            })),
            INLINE | EXTENT => Err(RowError::Short),
            other => Err(RowError::Format(other)),
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
/// `at` is the offset of the chunk in its object, for the error.
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

/// Appends a value and a checksum of its key and bytes.
pub(crate) fn put_sealed(row: &mut BytesMut, key: &[u8], value: &[u8]) {
    row.put_slice(value);
    row.put_u32_le(crc32c_parts(&[key, value]));
}

/// The row that [`put_sealed`] makes.
pub(crate) fn seal(key: &[u8], value: &[u8]) -> Bytes {
    let mut row = BytesMut::with_capacity(sealed_len(value.len()));
    put_sealed(&mut row, key, value);
    row.freeze()
}

/// The row of a value with a known checksum of its key and bytes.
pub(crate) fn seal_with_checksum(value: &[u8], checksum: u32) -> Bytes {
    let mut row = BytesMut::with_capacity(sealed_len(value.len()));
    row.put_slice(value);
    row.put_u32_le(checksum);
    row.freeze()
}

/// Bytes that [`put_sealed`] appends.
pub(crate) fn sealed_len(value: usize) -> usize {
    value + 4
}

/// The length of the value in a row made by [`seal`], if its checksum matches.
pub(crate) fn unseal(key: &[u8], row: &[u8]) -> Result<usize, RowError> {
    let len = row.len().checked_sub(4).ok_or(RowError::Short)?;
    if crc32c_parts(&[key, &row[..len]]) == le32(row, len) { Ok(len) } else { Err(RowError::Value) }
}

/// How full a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageUsage {
    pub(crate) next_slot: u16,
    pub(crate) used: u32,
}

impl PageUsage {
    pub(crate) fn encode(self) -> [u8; 6] {
        let mut row = [0; 6];
        row[..2].copy_from_slice(&self.next_slot.to_le_bytes());
        row[2..].copy_from_slice(&self.used.to_le_bytes());
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self, RowError> {
        let row: &[u8; 6] = row.try_into().map_err(|_| RowError::Short)?;
        Ok(Self { next_slot: u16::from_le_bytes([row[0], row[1]]), used: le32(row, 2) })
    }
}

/// The length of an extent and the number of chunks that share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentUse {
    pub(crate) len: u32,
    pub(crate) users: u32,
}

impl ExtentUse {
    pub(crate) fn encode(self) -> [u8; 8] {
        let mut row = [0; 8];
        row[..4].copy_from_slice(&self.len.to_le_bytes());
        row[4..].copy_from_slice(&self.users.to_le_bytes());
        row
    }

    pub(crate) fn decode(row: &[u8]) -> Result<Self, RowError> {
        if row.len() == 8 { Ok(Self { len: le32(row, 0), users: le32(row, 4) }) } else { Err(RowError::Short) }
    }
}

#[cfg(test)]
mod tests;
