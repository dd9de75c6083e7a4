//! A map of pages for look-ups that are frequent.

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use model::PageId;

/// Values by page, by a hash table. Its order depends on the operations on it only and not on the hashes, whose seeds differ in each process:
/// so a machine that iterates over it gives equal outputs for equal inputs, and nobody can choose pages whose hashes collide.
pub(crate) type PageMap<V> = IndexMap<PageId, V, RandomState>;
