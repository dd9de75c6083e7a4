//! CRC-32C (Castagnoli): the checksum of bytes from the writer's memory over the wire and the disk to the reader.
//!
//! Frames on the wire, the log, rows and blob files all use it, so the checksum of a block that was computed when it
//! was written can be sent to its reader.

use crc_fast::{CrcAlgorithm, Digest};

/// The polynomial of CRC-32C, least significant bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// The polynomial 1 in that order.
const ONE: u32 = 1 << 31;

/// The checksum of `bytes`, computed with processor instructions where available.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.is_empty() { 0 } else { crc_fast::crc32_iscsi(bytes) }
}

/// CRC-64/NVME, the same on every machine and in every version. For uses in which 32 bits would collide too often:
/// short keys for long ones, and distribution over places. It is not a cryptographic hash.
#[must_use]
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// [`crc64`] of the concatenated parts.
#[must_use]
pub fn crc64_parts(parts: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

/// Spreads a number or a checksum over all bits, the same on every machine and in every version: the last steps of MurmurHash3. Numbers
/// that follow each other, and checksums of similar bytes, differ in few bits.
#[must_use]
pub const fn mix(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ hash >> 33
}

/// The checksum of the concatenated parts.
#[must_use]
pub fn crc32c_parts(parts: &[impl AsRef<[u8]>]) -> u32 {
    match parts {
        [] => 0,
        [part] => crc32c(part.as_ref()),
        parts => {
            let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
            parts.iter().for_each(|part| digest.update(part.as_ref()));
            digest.finalize() as u32
        }
    }
}

/// The checksum of bytes behind a short prefix, computed from the checksum and the number of the bytes.
#[must_use]
pub fn crc32c_behind(prefix: &[u8], checksum: u32, len: usize) -> u32 {
    let mut joined = ChecksumCombiner::default();
    joined.push(crc32c(prefix), prefix.len());
    joined.push(checksum, len);
    joined.checksum()
}

/// The checksum of concatenated parts, computed from their checksums.
///
/// A checksum is the remainder of a polynomial. Appending a part of `n` bytes multiplies the checksum before it by
/// x^8n. That factor is computed once for a run of parts of equal length, so a part costs one multiplication. (zlib
/// does the same; crc-fast computes the factor by squaring matrices in each call, which is much slower.)
#[derive(Clone, Copy, Debug, Default)]
pub struct ChecksumCombiner {
    checksum: u32,
    /// The length `n` of the last part, and x^8n.
    factor: Option<(usize, u32)>,
}

impl ChecksumCombiner {
    /// Appends a part of `len` bytes with this checksum.
    pub fn push(&mut self, checksum: u32, len: usize) {
        if self.checksum == 0 {
            self.checksum = checksum;
            return;
        }
        let factor = match self.factor {
            Some((known, factor)) if known == len => factor,
            _ => power_of_x(8 * len as u64),
        };
        self.factor = Some((len, factor));
        self.checksum = multiply(factor, self.checksum) ^ checksum;
    }

    /// The checksum of the whole.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.checksum
    }
}

/// The product of two polynomials, modulo CRC-32C's.
fn multiply(a: u32, b: u32) -> u32 {
    let (mut product, mut b) = (0, b);
    for bit in (0..32).rev() {
        if a >> bit & 1 != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

/// A power of x, modulo CRC-32C's polynomial.
fn power_of_x(exponent: u64) -> u32 {
    let (mut power, mut square, mut exponent) = (ONE, ONE >> 1, exponent);
    while exponent > 0 {
        if exponent & 1 != 0 {
            power = multiply(power, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        for cuts in [&[0, 0, 1, 2, 3][..], &[65_536, 131_072, 196_608, 262_144], &[1, 300_000], &[5, 5, 77, 299_999]] {
            let mut joined = ChecksumCombiner::default();
            let mut start = 0;
            for end in cuts.iter().copied().chain([bytes.len()]) {
                joined.push(crc32c(&bytes[start..end]), end - start);
                start = end;
            }
            assert_eq!(joined.checksum(), crc32c(&bytes), "{cuts:?}");
            let (first, rest) = bytes.split_at(cuts[0]);
            assert_eq!(crc32c_parts(&[first, rest]), crc32c(&bytes), "{cuts:?}");
            assert_eq!(crc32c_behind(first, crc32c(rest), rest.len()), crc32c(&bytes), "{cuts:?}");
        }
    }

    #[test]
    fn checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
