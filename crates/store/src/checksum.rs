//! CRC-32C, the one checksum of the log, the rows and the blob files. The wire uses it too, so the checksum of a
//! block that was computed when it was written can travel with it to its reader.

use crc_fast::{CrcAlgorithm, Digest};

/// The CRC-32C of `bytes`.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of the parts one after the other.
pub(crate) fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_agree_with_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i * 7) as u8).collect();
        let whole = crc32c(&bytes);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the catalogue's check value of CRC-32C");
        for cut in [0, 1, 4095, 4096, 9999, 10_000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(crc32c_parts(&[a, b]), whole);
        }
    }
}
