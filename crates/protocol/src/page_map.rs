//! A map of pages for look-ups that are frequent.

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use model::PageId;

/// A hash map from pages to values. Its iteration order follows from the insertions and removals, not from the hashes, so a machine that
/// uses it stays deterministic. Each process has another seed, so an attacker cannot choose pages whose hashes collide.
pub(crate) type PageMap<V> = IndexMap<PageId, V, RandomState>;
