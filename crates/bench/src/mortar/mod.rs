//! Mortar's sides of the comparisons.

pub(crate) mod embedded;
pub(crate) mod server;
