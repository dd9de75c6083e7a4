//! Rows: their keys and encodings, and the buffer of changed rows.

pub(crate) mod changes;
pub(crate) mod key;
mod key_index;
pub(crate) mod key_range;
pub(crate) mod lost;
pub(crate) mod mob;
pub(crate) mod patch;
pub(crate) mod row;
pub(crate) mod slab;
