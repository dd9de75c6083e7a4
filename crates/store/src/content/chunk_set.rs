//! A set of chunks in blob files: one bit for each possible position, 2 MiB for each TiB of content.

use std::collections::BTreeMap;

use crate::rows::row::{CHUNK, is_chunk_position};

/// A set of positions in blob files.
#[derive(Default)]
pub(crate) struct ChunkSet {
    files: BTreeMap<u32, Vec<u64>>,
}

impl ChunkSet {
    fn bit(offset: u64) -> (usize, u64) {
        let slot = offset / CHUNK as u64;
        ((slot / 64) as usize, 1 << (slot % 64))
    }

    /// Adds a position; returns whether it is new.
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

    /// Removes a position; returns whether the set contained it.
    pub(crate) fn remove(&mut self, file: u32, offset: u64) -> bool {
        let (word, bit) = Self::bit(offset);
        let word = self.files.get_mut(&file).and_then(|words| words.get_mut(word));
        word.is_some_and(|word| std::mem::replace(word, *word & !bit) & bit != 0)
    }

    /// The positions, in order: file and offset.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.files.iter().flat_map(|(file, words)| {
            let slots = 0..words.len() as u64 * 64;
            slots.map(|slot| (*file, slot * CHUNK as u64)).filter(|(file, offset)| self.contains(*file, *offset))
        })
    }

    /// Whether the set contains a position in the file.
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
    fn a_removed_place_is_gone_and_the_others_are_listed_in_order() {
        let mut slots = ChunkSet::default();
        let place = |slot: u64| (1 + (slot / 100) as u32, slot % 100 * CHUNK as u64);
        for (file, offset) in [130, 3, 64, 65].map(place) {
            slots.insert(file, offset);
        }
        let (file, offset) = place(64);
        assert!(slots.remove(file, offset));
        assert!(!slots.remove(file, offset) && !slots.remove(9, 0) && !slots.remove(1, 1 << 40));
        assert_eq!(slots.iter().collect::<Vec<_>>(), [3, 65, 130].map(place));
    }
}
