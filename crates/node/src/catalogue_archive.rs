//! The catalogue of a cluster as a part of a backup: its entries, in one checked block of bytes.
//!
//! ```text
//!   "mortcat1" | revision u64 | count u32 | count × entry | crc32c u32 of all before
//!   entry: revision u64 | key length u16 | key | value length u32 | value
//! ```
//!
//! Numbers are little-endian. Entries that belong to sessions are left out: they say which processes live.

use bytes::{Buf, BufMut, Bytes};
use meta::{Key, MetaEntry, MetaSnapshot, Revision, limits};
use model::checksum::crc32c;
use model::{Error, ErrorKind, Result};

const MAGIC: &[u8; 8] = b"mortcat1";
/// The most bytes of an archive. The whole catalogue is in the memory of each process, and far smaller.
pub const MAX_BYTES: usize = 1 << 30;

/// Encodes what a read of the whole catalogue has returned.
///
/// # Errors
/// [`ErrorKind::TooLarge`] if the catalogue is too large for an archive.
pub fn encode(state: &MetaSnapshot) -> Result<Vec<u8>> {
    let lasting: Vec<_> = state.entries.iter().filter(|(_, entry)| entry.session.is_none()).collect();
    let count = u32::try_from(lasting.len()).map_err(|_| too_large())?;
    let mut out = MAGIC.to_vec();
    out.put_u64_le(state.revision.0);
    out.put_u32_le(count);
    for (key, entry) in lasting {
        let text = key.as_str();
        out.put_u64_le(entry.revision.0);
        out.put_u16_le(u16::try_from(text.len()).map_err(|_| too_large())?);
        out.put_slice(text.as_bytes());
        out.put_u32_le(u32::try_from(entry.value.len()).map_err(|_| too_large())?);
        out.put_slice(&entry.value);
    }
    out.put_u32_le(crc32c(&out));
    if out.len() > MAX_BYTES { Err(too_large()) } else { Ok(out) }
}

fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "the catalogue is too large for an archive")
}

/// Decodes an archive.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is damaged.
pub fn decode(archive: &[u8]) -> Result<MetaSnapshot> {
    decode_checked(archive).ok_or_else(|| Error::new(ErrorKind::Corrupt, "the catalogue in the archive is damaged"))
}

fn decode_checked(archive: &[u8]) -> Option<MetaSnapshot> {
    let (checked, crc) = archive.split_last_chunk::<4>()?;
    if crc32c(checked) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut rest = checked.strip_prefix(MAGIC)?;
    let revision = Revision(rest.try_get_u64_le().ok().filter(|revision| *revision <= model::limits::COUNT)?);
    let count = rest.try_get_u32_le().ok()?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let changed = Revision(rest.try_get_u64_le().ok()?);
        let len = usize::from(rest.try_get_u16_le().ok()?);
        let (key, after) = rest.split_at_checked(len)?;
        rest = after;
        let len = rest.try_get_u32_le().ok()? as usize;
        let (value, after) = rest.split_at_checked(len).filter(|_| len <= limits::VALUE)?;
        rest = after;
        let key = Key::new(str::from_utf8(key).ok()?).ok()?;
        let is_ordered = entries.last().is_none_or(|(last, _): &(Key, MetaEntry)| *last < key);
        if !is_ordered || changed > revision {
            return None;
        }
        entries.push((key, MetaEntry { value: Bytes::copy_from_slice(value), revision: changed, session: None }));
    }
    rest.is_empty().then_some(MetaSnapshot { revision, entries })
}

#[cfg(test)]
mod tests {
    use meta::MetaSessionId;

    use super::*;

    fn state() -> MetaSnapshot {
        let entry = |value: &'static str, revision, session| MetaEntry {
            value: Bytes::from_static(value.as_bytes()),
            revision: Revision(revision),
            session,
        };
        let entries = vec![
            (Key::new("alive/bricks/1").unwrap(), entry("{}", 9, Some(MetaSessionId(3)))),
            (Key::new("bricks/1").unwrap(), entry("{\"a\":1}", 2, None)),
            (Key::new("map").unwrap(), entry("", 7, None)),
        ];
        MetaSnapshot { revision: Revision(9), entries }
    }

    #[test]
    fn a_catalogue_reads_back_without_the_living() {
        let mut lasting = state();
        lasting.entries.remove(0);
        assert_eq!(decode(&encode(&state()).unwrap()).unwrap(), lasting);
    }

    #[test]
    fn damaged_archives_are_refused() {
        let archive = encode(&state()).unwrap();
        for len in 0..archive.len() {
            assert_eq!(decode(&archive[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len} bytes");
        }
        for bit in 0..archive.len() * 8 {
            let mut damaged = archive.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged).unwrap_err().kind(), ErrorKind::Corrupt, "bit {bit}");
        }
        // Entries out of order, with a right checksum.
        let vast = MetaSnapshot { revision: Revision(u64::MAX), ..state() };
        assert_eq!(decode(&encode(&vast).unwrap()).unwrap_err().kind(), ErrorKind::Corrupt);
        let mut swapped = state();
        swapped.entries.reverse();
        assert_eq!(decode(&encode(&swapped).unwrap()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
