//! The approximate memory of objects, for limits in bytes.

use crate::commit::Part;
use crate::page_cache::{ObjectState, SlotStates};

/// A value with a known approximate size in memory.
pub trait MemorySize {
    /// The approximate size in bytes.
    fn memory_size(&self) -> usize;
}

/// What a write or an entry takes beside its data, about, in bytes.
pub const ENTRY_BYTES: usize = 64;

impl MemorySize for model::Object {
    fn memory_size(&self) -> usize {
        self.encoded_len()
    }
}

impl MemorySize for u64 {
    fn memory_size(&self) -> usize {
        size_of::<Self>()
    }
}

impl<T> MemorySize for Vec<T> {
    fn memory_size(&self) -> usize {
        self.len() * size_of::<T>()
    }
}

impl<T: MemorySize> MemorySize for ObjectState<T> {
    fn memory_size(&self) -> usize {
        match self {
            Self::Value(value) | Self::Changed(value) => value.memory_size(),
            Self::Absent => 0,
        }
    }
}

impl<T: MemorySize> MemorySize for Part<T> {
    fn memory_size(&self) -> usize {
        let written: usize = self.writes.values().map(|content| ENTRY_BYTES + content.memory_size()).sum();
        let keys: usize = self.entries.keys().map(|entry| ENTRY_BYTES + entry.key.as_bytes().len()).sum();
        written + keys + self.reads.memory_size() + ENTRY_BYTES * self.touches.len()
    }
}

impl<T: MemorySize> MemorySize for SlotStates<T> {
    fn memory_size(&self) -> usize {
        self.values().map(|content| ENTRY_BYTES + content.memory_size()).sum()
    }
}
