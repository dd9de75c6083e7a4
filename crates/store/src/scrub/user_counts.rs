//! Counts of the users of extents: one byte for each chunk of a blob file, and a map for high counts.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::rows::row::CHUNK;

/// Counts of users.
#[derive(Default)]
pub(crate) struct UserCounts {
    files: BTreeMap<u32, Vec<u8>>,
    /// Users beyond those that fit a byte.
    more: HashMap<(u32, u64), u32>,
}

impl UserCounts {
    /// Adds a user.
    pub(crate) fn add(&mut self, file: u32, offset: u64) {
        let counts = self.files.entry(file).or_default();
        let slot = (offset / CHUNK as u64) as usize;
        if counts.len() <= slot {
            counts.resize(slot + 1, 0);
        }
        match counts[slot].checked_add(1) {
            Some(count) => counts[slot] = count,
            None => *self.more.entry((file, offset)).or_default() += 1,
        }
    }

    /// Removes and returns the count of an extent.
    pub(crate) fn take(&mut self, file: u32, offset: u64) -> u32 {
        let slot = (offset / CHUNK as u64) as usize;
        let few = self.files.get_mut(&file).and_then(|counts| counts.get_mut(slot)).map_or(0, std::mem::take);
        u32::from(few) + self.more.remove(&(file, offset)).unwrap_or(0)
    }

    /// The extents whose counts were not removed: file and offset.
    pub(crate) fn remaining(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.files.iter().flat_map(|(file, counts)| {
            let used = (0u64..).zip(counts).filter(|(_, count)| **count > 0);
            used.map(|(slot, _)| (*file, slot * CHUNK as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_users_is_counted() {
        let mut uses = UserCounts::default();
        for _ in 0..1000 {
            uses.add(1, CHUNK as u64);
        }
        uses.add(2, 0);
        assert_eq!(uses.remaining().collect::<Vec<_>>(), [(1, CHUNK as u64), (2, 0)]);
        assert_eq!((uses.take(1, CHUNK as u64), uses.take(1, 0), uses.take(9, 0)), (1000, 0, 0));
        assert_eq!(uses.remaining().collect::<Vec<_>>(), [(2, 0)]);
    }
}
