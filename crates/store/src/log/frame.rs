//! Frames: how one transaction lies in a log segment.
//!
//! ```text
//!  0        4        8        12       16               24               32
//! +--------+--------+--------+--------+----------------+----------------+-----------+---------+
//! | magic  |  crc   |  prev  |  len   |      seq       |     forced     |  payload  | padding |
//! |  u32   |  u32   |  u32   |  u32   |      u64       |      u64       | len bytes |  to 8   |
//! +--------+--------+--------+--------+----------------+----------------+-----------+---------+
//! ```
//!
//! All numbers are little-endian. `crc` covers the store's identity, everything behind itself, and the payload; `prev`
//! is the `crc` of the frame before, which chains them. `forced` is the newest position that was durable when the frame
//! was written: it lets recovery tell a torn tail from damage to what had been acknowledged.

use crate::checksum::crc32c_parts;
use crate::rows::mob::{SEQ_END, Seq};

/// Bytes before the payload.
pub const HEADER: usize = 32;
/// Frames begin at multiples of this.
pub const ALIGN: usize = 8;
/// Maximum number of bytes of a payload.
pub const MAX_PAYLOAD: usize = model::limits::CHANGE + (64 << 20);

const MAGIC: u32 = u32::from_le_bytes(*b"mfr1");

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The checksum of the frame.
    pub crc: u32,
    /// The checksum of the previous frame.
    pub prev: u32,
    /// Bytes of payload.
    pub len: u32,
    /// The transaction's position.
    pub seq: Seq,
    /// The newest position that was durable when this frame was written.
    pub forced: Seq,
}

/// The identity of a store: 16 random bytes that its log's checksums include.
pub type StoreId = [u8; 16];

/// Appends a frame with the payload that `write` appends, and returns its checksum.
///
/// # Errors
/// The payload's length if that is over [`MAX_PAYLOAD`]; nothing is appended then.
pub fn encode(
    out: &mut Vec<u8>,
    store: &StoreId,
    seq: Seq,
    forced: Seq,
    prev: u32,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<u32, usize> {
    let at = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let len = out.len() - at - HEADER;
    if len > MAX_PAYLOAD {
        out.truncate(at);
        return Err(len);
    }
    let head = &mut out[at..at + HEADER];
    head[..4].copy_from_slice(&MAGIC.to_le_bytes());
    head[8..12].copy_from_slice(&prev.to_le_bytes());
    head[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    head[16..24].copy_from_slice(&seq.to_le_bytes());
    head[24..32].copy_from_slice(&forced.to_le_bytes());
    let crc = crc32c_parts(&[store, &out[at + 8..]]);
    out[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
    out.resize(at + frame_len(len), 0);
    Ok(crc)
}

/// Bytes that a frame with this much payload takes.
#[must_use]
pub const fn frame_len(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(ALIGN)
}

/// The frame at the beginning of `bytes`, if it is complete, its checksum matches, and a store can reach its positions.
#[must_use]
pub fn decode<'a>(bytes: &'a [u8], store: &StoreId) -> Option<(FrameHeader, &'a [u8])> {
    let head: &[u8; HEADER] = bytes.first_chunk()?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let len = word(12);
    if word(0) != MAGIC || len as usize > MAX_PAYLOAD {
        return None;
    }
    let payload = bytes.get(HEADER..HEADER + len as usize)?;
    let header = FrameHeader { crc: word(4), prev: word(8), len, seq: long(16), forced: long(24) };
    let is_possible = header.seq < SEQ_END && header.forced < SEQ_END;
    (is_possible && crc32c_parts(&[store, &head[8..], payload]) == header.crc).then_some((header, payload))
}

/// Every valid frame in `bytes`, at any position: for finding frames after a bad one.
pub fn scan<'a>(bytes: &'a [u8], store: &'a StoreId) -> impl Iterator<Item = (usize, FrameHeader)> + 'a {
    let magic = MAGIC.to_le_bytes();
    (0..bytes.len().saturating_sub(HEADER - 1))
        .step_by(ALIGN)
        .filter(move |at| bytes[*at..*at + 4] == magic)
        .filter_map(move |at| decode(&bytes[at..], store).map(|(header, _)| (at, header)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STORE: StoreId = *b"0123456789abcdef";

    #[test]
    fn frames_of_another_store_do_not_count() {
        let mut out = Vec::new();
        encode(&mut out, &STORE, 7, 6, 5, |out| out.extend_from_slice(b"payload")).unwrap();
        assert_eq!(out.len() % ALIGN, 0);
        let (header, payload) = decode(&out, &STORE).unwrap();
        assert_eq!((header.seq, header.forced, header.prev, payload), (7, 6, 5, &b"payload"[..]));
        assert!(decode(&out, b"another one, yes").is_none());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut out = Vec::new();
        encode(&mut out, &STORE, 7, 6, 5, |out| out.extend_from_slice(b"12345678")).unwrap();
        for bit in 0..out.len() * 8 {
            out[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&out, &STORE).is_none(), "bit {bit}");
            out[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_scan_finds_frames_behind_garbage() {
        let mut out = vec![0xa5; 64];
        encode(&mut out, &STORE, 1, 0, 0, |out| out.extend_from_slice(b"a")).unwrap();
        out.extend([0xff; 16]);
        encode(&mut out, &STORE, 3, 1, 0, |out| out.extend_from_slice(b"b")).unwrap();
        let found: Vec<Seq> = scan(&out, &STORE).map(|(_, header)| header.seq).collect();
        assert_eq!(found, [1, 3]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_frame_and_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes, &STORE).is_none());
            prop_assert_eq!(scan(&bytes, &STORE).count(), 0);
        }
    }
}
