//! How much memory objects take: what is kept for others has a bound in bytes.

use crate::commit::Part;
use crate::page_cache::{Content, Contents};

/// Something that takes memory.
pub trait Weigh {
    /// About how many bytes it takes.
    fn weight(&self) -> usize;
}

/// What everything takes that is kept in a map, in bytes.
const ENTRY: usize = 64;

impl Weigh for model::Object {
    fn weight(&self) -> usize {
        self.data.len()
    }
}

impl Weigh for u64 {
    fn weight(&self) -> usize {
        size_of::<Self>()
    }
}

impl<T> Weigh for Vec<T> {
    fn weight(&self) -> usize {
        self.len() * size_of::<T>()
    }
}

impl<T: Weigh> Weigh for Content<T> {
    fn weight(&self) -> usize {
        match self {
            Self::Value(value) => value.weight(),
            Self::Absent => 0,
        }
    }
}

impl<T: Weigh> Weigh for Part<T> {
    fn weight(&self) -> usize {
        let written: usize = self.writes.values().map(|content| ENTRY + content.weight()).sum();
        written + ENTRY * (self.reads.len() + self.touches.len())
    }
}

impl<T: Weigh> Weigh for Contents<T> {
    fn weight(&self) -> usize {
        self.values().map(|content| ENTRY + content.weight()).sum()
    }
}
