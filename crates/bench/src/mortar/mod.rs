//! Mortar's sides of the comparisons.

pub(crate) mod embedded;
pub(crate) mod former;
pub(crate) mod server;
