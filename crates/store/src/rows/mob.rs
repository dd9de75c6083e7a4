//! The modified object buffer (MOB): logged changes that are not in the B-tree yet, with versions (after Thor's MOB).
//!
//! Reads look here first. Every row keeps the versions that a reader may still need: the newest one at or below the
//! *horizon* (the oldest snapshot, or the newest durable position if there is none) and all above it. One writer at a
//! time inserts; any number of readers read concurrently.
//!
//! Rows are found by hash. Listings use an ordered index of the keys (`key_index`).

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use hashbrown::HashTable;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;

use crate::plant::{Bug, FaultBug, planted};
use crate::rows::key::Key;
use crate::rows::key_index::KeyIndex;
use crate::rows::patch::Patch;
use crate::rows::slab::Slabs;

/// A position in the log: the number of a transaction.
pub(crate) type Seq = u64;

/// Positions are below this. No store reaches it, so any position can be counted on from. The numbers of chunks (`DataId`) have 47 bits for one.
pub(crate) const SEQ_END: Seq = 1 << 46;

/// A frame of the log. Frames form a chain of checksums, so equal positions with equal checksums have the same history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPosition {
    pub(crate) seq: Seq,
    /// The checksum of the frame.
    pub(crate) crc: u32,
}

impl LogPosition {
    /// The encoding in a row of the B-tree.
    pub(crate) fn to_row(self) -> [u8; 12] {
        let mut row = [0; 12];
        row[..8].copy_from_slice(&self.seq.to_be_bytes());
        row[8..].copy_from_slice(&self.crc.to_be_bytes());
        row
    }

    pub(crate) fn from_row(row: &[u8]) -> Option<Self> {
        let (seq, crc) = row.split_first_chunk::<8>()?;
        let position = Self { seq: Seq::from_be_bytes(*seq), crc: u32::from_be_bytes(crc.try_into().ok()?) };
        (position.seq < SEQ_END).then_some(position)
    }
}

/// A changed row.
#[derive(Clone, Debug)]
pub(crate) enum Row {
    /// The row does not exist.
    Tombstone,
    /// The whole row.
    Value(Bytes),
    /// A large row that shares its value with its submitter, and the checksum of the value.
    Shared(Bytes, u32),
    /// A partly written chunk.
    Patch(Arc<Patch>),
}

impl Row {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Tombstone => 0,
            Self::Value(value) | Self::Shared(value, _) => value.len(),
            Self::Patch(patch) => patch.size(),
        }
    }
}

/// The bytes that the version at `index` takes. A patch shares most bytes with the version from which it was made, so
/// only the first patch of a series counts in full. A chunk that is written in small steps counts its size, not the sum
/// of all steps.
fn cost(key: &[u8], versions: &[(Seq, Row)], index: usize) -> usize {
    let before = index.checked_sub(1).map(|before| &versions[before].1);
    let row = match (before, &versions[index].1) {
        (Some(Row::Patch(_)), Row::Patch(patch)) => patch.added_bytes(),
        (_, row) => row.size(),
    };
    key.len() + row + OVERHEAD
}

/// The bytes that all versions take.
fn total_cost(key: &[u8], versions: &[(Seq, Row)]) -> usize {
    (0..versions.len()).map(|index| cost(key, versions, index)).sum()
}

/// Estimated overhead of a version, in bytes.
const OVERHEAD: usize = 128;
const SHARDS: usize = 64;

/// Versions in ascending order of positions; nearly always one or two.
type Versions = SmallVec<[(Seq, Row); 1]>;
type Table = HashTable<(Key, Versions)>;

/// What a transaction adds to the buffer.
#[derive(Default)]
struct AddedRows {
    /// New keys.
    keys: SmallVec<[Key; 8]>,
    /// The tables of the new keys, as bits.
    tables: u32,
    /// The change in bytes; negative changes wrap.
    bytes: usize,
}

/// The buffer. The writer, readers and, once it is frozen, the installer share it.
pub(crate) struct Mob {
    /// Memory for rows, used by the writer.
    pub(crate) slabs: Mutex<Slabs>,
    shards: Box<[RwLock<Table>]>,
    key_index: KeyIndex,
    /// The tables of the keys, one bit for each letter. Most listings need not look further.
    tables: AtomicU32,
    /// Keys with versions that a reader still needed when they were replaced, in the order of the changes. Only for a
    /// buffer that is the whole store.
    prunable: Mutex<VecDeque<(Seq, Key)>>,
    hash: foldhash::fast::RandomState,
    bytes: AtomicUsize,
    last: AtomicU64,
    /// The last frame of the log before the buffer was frozen. Every change up to there is in this buffer or installed.
    end: Mutex<LogPosition>,
}

impl Mob {
    /// An empty buffer that is installed as a whole.
    pub(crate) fn new() -> Self {
        Self::with_slabs(Slabs::new_shared())
    }

    /// An empty buffer that is the whole store.
    pub(crate) fn for_memory_store() -> Self {
        Self::with_slabs(Slabs::default())
    }

    fn with_slabs(slabs: Slabs) -> Self {
        Self {
            slabs: Mutex::new(slabs),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            key_index: KeyIndex::default(),
            tables: AtomicU32::new(0),
            prunable: Mutex::default(),
            hash: foldhash::fast::RandomState::default(),
            bytes: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            end: Mutex::default(),
        }
    }

    /// Notes the last frame before the buffer is frozen.
    pub(crate) fn set_end(&self, end: LogPosition) {
        *self.end.lock() = end;
    }

    /// The last frame before the buffer was frozen.
    pub(crate) fn end(&self) -> LogPosition {
        *self.end.lock()
    }

    /// Removes all rows and keeps the memory for reuse: growing the tables while transactions wait would delay them.
    pub(crate) fn clear(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.get_mut().clear());
        self.key_index.clear();
        self.slabs.get_mut().reclaim();
        *self.tables.get_mut() = 0;
        *self.bytes.get_mut() = 0;
        *self.last.get_mut() = 0;
        *self.end.get_mut() = LogPosition::default();
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hash.hash_one(key)
    }

    fn shard(&self, hash: u64) -> &RwLock<Table> {
        // The hash table uses the low bits of the hash.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// The newest version at or below the position that `at` returns. `at` is called while the row cannot change.
    ///
    /// So a reader of the newest durable state, whose horizon moves, still finds the version that it needs.
    pub(crate) fn get(&self, key: &[u8], at: impl FnOnce() -> Seq) -> Option<Row> {
        self.with_row(key, at, Row::clone)
    }

    /// As [`Mob::get`], but calls `look` with the row in place. `look` should be quick.
    pub(crate) fn with_row<T>(&self, key: &[u8], at: impl FnOnce() -> Seq, look: impl FnOnce(&Row) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let hash = self.hash(key);
        let shard = self.shard(hash).read();
        let (_, versions) = shard.find(hash, |(known, _)| **known == *key)?;
        let at = if planted(Bug::SnapshotSeesLater) { Seq::MAX } else { at() };
        versions.iter().rev().find(|(seq, _)| *seq <= at).map(|(_, row)| look(row))
    }

    /// Appends up to `limit` keys with `from <= key < to`, in order.
    pub(crate) fn keys(&self, from: &[u8], to: &[u8], limit: usize, keys: &mut Vec<Key>) {
        if from >= to || self.is_empty() || !self.has_table_of(from, to) {
            return;
        }
        self.key_index.range(from, to, limit, keys);
    }

    /// Appends up to `limit` keys with `from <= key < to`, the last first.
    pub(crate) fn keys_back(&self, from: &[u8], to: &[u8], limit: usize, keys: &mut Vec<Key>) {
        if from >= to || self.is_empty() || !self.has_table_of(from, to) {
            return;
        }
        self.key_index.range_back(from, to, limit, keys);
    }

    /// Whether the buffer may have keys of the tables from that of `from` to that of `to`.
    fn has_table_of(&self, from: &[u8], to: &[u8]) -> bool {
        let between = ((table_bit(to) << 1) - 1) & !(table_bit(from) - 1);
        self.tables.load(Ordering::Acquire) & between != 0
    }

    /// The newest versions of all rows, in key order.
    ///
    /// Iterates in memory order and sorts, which is faster than looking up each key.
    pub(crate) fn newest_rows(&self) -> Vec<(Key, Row)> {
        let mut rows = Vec::with_capacity(self.shards.iter().map(|shard| shard.read().len()).sum());
        for shard in &self.shards {
            let shard = shard.read();
            rows.extend(shard.iter().filter_map(|(key, versions)| Some((key.clone(), versions.last()?.1.clone()))));
        }
        rows.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        rows
    }

    /// Adds a version and drops versions that no reader needs.
    pub(crate) fn insert(&self, key: Key, seq: Seq, row: Row, horizon: Seq) {
        self.insert_all([(key, row)], seq, horizon);
    }

    /// As [`Mob::insert`], for all rows of a transaction, each row once. An empty transaction still records its
    /// position.
    pub(crate) fn insert_all(&self, changes: impl IntoIterator<Item = (Key, Row)>, seq: Seq, horizon: Seq) {
        let mut added = AddedRows::default();
        for (key, row) in changes {
            let hash = self.hash(&key);
            self.add(&mut self.shard(hash).write(), hash, key, seq, row, horizon, &mut added);
        }
        self.record_added(added, seq);
    }

    /// Adds the only row of a transaction. `show` makes it visible and returns the horizon. Versions that no reader
    /// needs are dropped at once, while readers of the row wait.
    ///
    /// Only for a buffer that is the whole store.
    pub(crate) fn insert_and_show(&self, key: Key, seq: Seq, row: Row, show: impl FnOnce() -> Seq) {
        let hash = self.hash(&key);
        let mut shard = self.shard(hash).write();
        if let (Some((key, versions)), Row::Value(_)) = (shard.find_mut(hash, |(known, _)| *known == key), &row) {
            let before = total_cost(key, versions);
            self.last.store(seq, Ordering::Release);
            let horizon = show();
            if horizon >= seq {
                // No reader needs the versions before.
                *versions = SmallVec::from_iter([(seq, row)]);
            } else {
                versions.push((seq, row));
                prune(key, versions, horizon);
                self.prunable.lock().push_back((seq, key.clone()));
            }
            self.bytes.fetch_add(total_cost(key, versions).wrapping_sub(before), Ordering::Relaxed);
            return;
        }
        let mut added = AddedRows::default();
        self.add(&mut shard, hash, key.clone(), seq, row, 0, &mut added);
        self.record_added(added, seq);
        let horizon = show();
        self.prune_key_in(&mut shard, hash, key, seq, horizon);
    }

    fn add(&self, shard: &mut Table, hash: u64, key: Key, seq: Seq, row: Row, horizon: Seq, added: &mut AddedRows) {
        let (more, freed) = match shard.find_mut(hash, |(known, _)| *known == key) {
            Some((key, versions)) => {
                let freed = prune(key, versions, horizon);
                versions.push((seq, row));
                (cost(key, versions, versions.len() - 1), freed)
            }
            None => {
                added.tables |= table_bit(&key);
                added.keys.push(key.clone());
                let versions = SmallVec::from_iter([(seq, row)]);
                let more = cost(&key, &versions, 0);
                shard.insert_unique(hash, (key, versions), |(key, _)| self.hash(key));
                (more, 0)
            }
        };
        added.bytes = added.bytes.wrapping_add(more).wrapping_sub(freed);
    }

    /// Records what was added at `seq`.
    fn record_added(&self, added: AddedRows, seq: Seq) {
        if !added.keys.is_empty() {
            self.tables.fetch_or(added.tables, Ordering::Release);
            self.key_index.add(added.keys);
        }
        self.last.store(seq, Ordering::Release);
        self.bytes.fetch_add(added.bytes, Ordering::Relaxed);
    }

    /// Drops versions of `key`, which changed at `seq`, that no reader needs. Removes the row if it is a tombstone. A
    /// later [`Mob::sweep`] drops the versions that readers still need.
    ///
    /// Only for a buffer that is the whole store.
    pub(crate) fn prune_key(&self, key: Key, seq: Seq, horizon: Seq) {
        let hash = self.hash(&key);
        let mut shard = self.shard(hash).write();
        self.prune_key_in(&mut shard, hash, key, seq, horizon);
    }

    /// Drops the versions that readers needed when they were replaced and do not need any more.
    pub(crate) fn sweep(&self, horizon: Seq) {
        let next = || self.prunable.lock().pop_front_if(|(seq, _)| *seq <= horizon);
        while let Some((seq, key)) = next() {
            self.prune_key(key, seq, horizon);
        }
    }

    fn prune_key_in(&self, shard: &mut Table, hash: u64, key: Key, seq: Seq, horizon: Seq) {
        let Ok(mut found) = shard.find_entry(hash, |(known, _)| *known == key) else { return };
        let (key, versions) = found.get_mut();
        let mut freed = prune(key, versions, horizon);
        if horizon < seq && (versions.len() > 1 || matches!(&versions[..], [(_, Row::Tombstone)])) {
            self.prunable.lock().push_back((seq, key.clone()));
        }
        if matches!(&versions[..], [(seq, Row::Tombstone)] if *seq <= horizon) {
            freed += key.len() + OVERHEAD;
            let ((key, _), _) = found.remove();
            self.key_index.remove(&key);
        }
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Removes every version above `last`: those of transactions whose force failed. The buffer ends at `last` when they are removed and not
    /// before: a frozen buffer that ends at a durable position may be installed at any time.
    pub(crate) fn roll_back(&self, last: LogPosition) {
        if planted(FaultBug::RollbackEndsFirst) {
            self.lower_end(last);
        }
        if !planted(Bug::RollbackKeepsRows) {
            self.remove_above(last.seq);
        }
        self.lower_end(last);
    }

    fn lower_end(&self, last: LogPosition) {
        let mut end = self.end.lock();
        if end.seq > last.seq {
            *end = last;
        }
    }

    /// Removes every version above `last`.
    fn remove_above(&self, last: Seq) {
        let mut freed = 0;
        for shard in &self.shards {
            shard.write().retain(|(key, versions)| {
                let kept = versions.partition_point(|(seq, _)| *seq <= last);
                freed += (kept..versions.len()).map(|index| cost(key, versions, index)).sum::<usize>();
                versions.truncate(kept);
                if versions.is_empty() {
                    self.key_index.remove(key);
                }
                !versions.is_empty()
            });
        }
        self.last.fetch_min(last, Ordering::Release);
        self.bytes.fetch_sub(freed, Ordering::Relaxed);
    }

    /// Whether the changes do not increase the size of the buffer. Each change has the new size of its row, or `None`
    /// for a removal.
    pub(crate) fn has_room_for<'a>(&self, changes: impl Iterator<Item = (&'a Key, Option<usize>)>) -> bool {
        let (mut taken, mut freed) = (0, 0);
        for (key, size) in changes {
            let entry = key.len() + OVERHEAD;
            taken += size.map_or(0, |size| entry + size);
            let size = self.with_row(key, || Seq::MAX, |row| (!matches!(row, Row::Tombstone)).then(|| row.size()));
            freed += size.flatten().map_or(0, |size| entry + size);
        }
        taken <= freed
    }

    /// The estimated size of the buffer in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.last.load(Ordering::Acquire) == 0
    }
}

/// The bit of a key's table. Keys below the first letter or above the last share one.
fn table_bit(key: &[u8]) -> u32 {
    1 << (Key::table_of(key).clamp(b'a' - 1, b'z' + 1) - (b'a' - 1))
}

/// Drops all versions older than the newest one at or below `horizon`; returns the freed bytes.
fn prune(key: &Key, versions: &mut Versions, horizon: Seq) -> usize {
    let visible = versions.iter().take_while(|(seq, _)| *seq <= horizon).count();
    if visible < 2 {
        return 0;
    }
    // The oldest remaining version counts in full from now on.
    let before: usize = (0..visible).map(|index| cost(key, versions, index)).sum();
    versions.drain(..visible - 1);
    before.saturating_sub(cost(key, versions, 0))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use model::planted_bug::assert_noticed;

    use super::*;
    use crate::rows::patch::Base;

    fn value(row: Option<Row>) -> Option<u8> {
        match row? {
            Row::Value(bytes) => Some(bytes[0]),
            _ => None,
        }
    }

    fn key(name: &str) -> Key {
        Key::system(name)
    }

    fn keys(mob: &Mob) -> Vec<Key> {
        let mut keys = Vec::new();
        mob.keys(b"s", b"t", 10, &mut keys);
        keys
    }

    #[test]
    fn buffer_ends_at_what_is_durable_only_without_the_changes_of_a_failed_force() {
        // On a busy machine the other thread may look too late.
        assert_noticed(&[FaultBug::RollbackEndsFirst], || (0..5).for_each(|_| roll_back_beside_an_installer()));
    }

    fn roll_back_beside_an_installer() {
        let mob = Mob::new();
        for number in 0..40_000_u64 {
            let name = format!("{number:05}");
            mob.insert(key(&name), if number % 2 == 0 { 10 } else { 20 }, Row::Value(Bytes::from_static(b"x")), 0);
        }
        mob.set_end(LogPosition { seq: 20, ..LogPosition::default() });
        let is_waiting = Barrier::new(2);
        thread::scope(|scope| {
            let installer = scope.spawn(|| {
                is_waiting.wait();
                while mob.end().seq > 10 {
                    std::hint::spin_loop();
                }
                mob.bytes()
            });
            is_waiting.wait();
            mob.roll_back(LogPosition { seq: 10, ..LogPosition::default() });
            assert_eq!(installer.join().unwrap(), mob.bytes());
            assert_eq!(mob.newest_rows().len(), 20_000);
        });
    }

    #[test]
    fn a_reader_sees_the_newest_version_at_its_position() {
        let mob = Mob::new();
        for seq in 1..=5u8 {
            mob.insert(key("a"), u64::from(seq) * 10, Row::Value(Bytes::from(vec![seq])), 0);
        }
        assert_eq!(value(mob.get(&key("a"), || 9)), None);
        assert_eq!(value(mob.get(&key("a"), || 10)), Some(1));
        assert_eq!(value(mob.get(&key("a"), || 49)), Some(4));
    }

    #[test]
    fn versions_below_the_horizon_are_dropped_except_the_newest() {
        let mob = Mob::new();
        for seq in 1..=4u8 {
            mob.insert(key("a"), u64::from(seq), Row::Value(Bytes::from(vec![seq])), 0);
        }
        mob.insert(key("a"), 5, Row::Value(Bytes::from(vec![5])), 3);
        assert_eq!(value(mob.get(&key("a"), || 2)), None);
        assert_eq!(value(mob.get(&key("a"), || 3)), Some(3));
        assert_eq!(mob.bytes(), 3 * (key("a").len() + 1 + OVERHEAD));
    }

    #[test]
    fn rolling_back_leaves_what_was_durable() {
        let mob = Mob::new();
        mob.insert(key("a"), 1, Row::Value(Bytes::from_static(&[1])), 0);
        mob.insert(key("a"), 2, Row::Tombstone, 1);
        mob.insert(key("b"), 2, Row::Value(Bytes::from_static(&[2])), 1);
        mob.roll_back(LogPosition { seq: 1, crc: 0 });
        assert_eq!(value(mob.get(&key("a"), || 9)), Some(1));
        assert_eq!(keys(&mob), [key("a")]);
        assert_eq!(mob.last.load(Ordering::Acquire), 1);
    }

    #[test]
    fn a_settled_tombstone_leaves_nothing() {
        let mob = Mob::new();
        mob.insert(key("a"), 1, Row::Value(Bytes::from_static(&[1])), 0);
        mob.insert(key("a"), 2, Row::Tombstone, 1);
        mob.prune_key(key("a"), 2, 1);
        assert_eq!(keys(&mob).len(), 1);
        mob.sweep(1);
        assert_eq!(keys(&mob).len(), 1);
        mob.sweep(2);
        assert_eq!(keys(&mob).len(), 0);
        assert_eq!(mob.bytes(), 0);
    }

    /// Regression: each step counted as the sum of all earlier steps, so a small chunk filled the buffer.
    #[test]
    fn a_chunk_written_in_steps_counts_its_size_only() {
        let (mob, mut patch, steps) = (Mob::new(), Patch::with_base(Base::Zeros), 64usize);
        let frames =
            |count: usize| count * (OVERHEAD + key("a").len() + count * size_of::<crate::rows::patch::Segment>());
        for step in 0..steps {
            patch = patch.fork();
            patch.write(step * 1024, vec![1; 1024].into(), &mut Slabs::default());
            mob.insert(key("a"), step as u64 + 1, Row::Patch(Arc::new(patch.clone())), 0);
            // Joining small steps copies each byte at most twice.
            let most = 3 * (step + 1) * 1024 + frames(step + 1);
            assert!(mob.bytes() <= most, "{} of {most} after step {step}", mob.bytes());
        }
        let all = mob.bytes();
        mob.roll_back(LogPosition { seq: 32, crc: 0 });
        assert!(mob.bytes() >= 32 * 1024 && mob.bytes() < all);
        mob.insert(key("a"), 33, Row::Tombstone, 32);
        mob.insert(key("a"), 34, Row::Tombstone, 33);
        assert_eq!(mob.bytes(), 2 * (key("a").len() + OVERHEAD), "all bytes of the patch are freed");
    }
}
