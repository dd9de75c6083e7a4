//! A set of extents: one bit for each place of a blob file where a chunk can be, 2 MiB for each TiB of content.

use std::collections::BTreeMap;

use crate::rows::row::CHUNK;

/// The highest number of a blob file in an archive, and the end of what one may hold: far beyond what is ever written,
/// so that a damaged row or a strange archive cannot ask for much memory or disk.
const FILES: u32 = 1 << 31;
const FILE_END: u64 = 1 << 32;

/// A set of places in blob files.
#[derive(Default)]
pub(crate) struct ChunkSet {
    files: BTreeMap<u32, Vec<u64>>,
}

/// Whether a whole chunk can be there.
pub(crate) fn is_chunk_position(file: u32, offset: u64) -> bool {
    (1..FILES).contains(&file) && offset < FILE_END && offset.is_multiple_of(CHUNK as u64)
}

impl ChunkSet {
    fn bit(offset: u64) -> (usize, u64) {
        let slot = offset / CHUNK as u64;
        ((slot / 64) as usize, 1 << (slot % 64))
    }

    /// Adds a place; whether it was not there yet.
    pub(crate) fn insert(&mut self, file: u32, offset: u64) -> bool {
        debug_assert!(is_chunk_position(file, offset));
        let (word, bit) = Self::bit(offset);
        let words = self.files.entry(file).or_default();
        if words.len() <= word {
            words.resize(word + 1, 0);
        }
        let fresh = words[word] & bit == 0;
        words[word] |= bit;
        fresh
    }

    pub(crate) fn contains(&self, file: u32, offset: u64) -> bool {
        let (word, bit) = Self::bit(offset);
        self.files.get(&file).and_then(|words| words.get(word)).is_some_and(|word| word & bit != 0)
    }

    /// Whether a place of the file is in the set.
    pub(crate) fn has_file(&self, file: u32) -> bool {
        self.files.contains_key(&file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_new_once() {
        let mut slots = ChunkSet::default();
        for (file, slot) in [(1, 0), (1, 63), (1, 64), (2, 0), (1, 16_000)] {
            let offset = slot * CHUNK as u64;
            assert!(!slots.contains(file, offset));
            assert!(slots.insert(file, offset));
            assert!(!slots.insert(file, offset));
            assert!(slots.contains(file, offset));
        }
        assert!(slots.has_file(2) && !slots.has_file(3));
    }

    #[test]
    fn only_whole_chunks_within_bounds_are_places() {
        assert!(is_chunk_position(1, 0) && is_chunk_position(7, 1 << 30));
        assert!(
            !is_chunk_position(0, 0)
                && !is_chunk_position(1, 4096)
                && !is_chunk_position(1, 1 << 32)
                && !is_chunk_position(u32::MAX, 0)
        );
    }
}
