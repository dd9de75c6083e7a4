//! One module for each command: its arguments, its help and its implementation.

mod accept_loss;
pub(crate) mod attr;
pub(crate) mod backup;
pub(crate) mod cert;
pub(crate) mod class;
pub(crate) mod cluster;
pub(crate) mod collection;
pub(crate) mod dev;
pub(crate) mod events;
pub(crate) mod evolve;
pub(crate) mod exercise;
pub(crate) mod get;
pub(crate) mod index;
pub(crate) mod job;
pub(crate) mod ls;
pub(crate) mod member;
pub(crate) mod moment;
pub(crate) mod mv;
pub(crate) mod name;
pub(crate) mod node;
pub(crate) mod object;
pub(crate) mod put;
pub(crate) mod query;
pub(crate) mod redirector;
pub(crate) mod relay;
pub(crate) mod remap;
pub(crate) mod repair;
pub(crate) mod rm;
pub(crate) mod scrub;
pub(crate) mod shell;
pub(crate) mod space;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod tree;
pub(crate) mod user;

/// Number of entries in one request of a listing.
pub(crate) const LISTING_PAGE: usize = 1000;
