//! The catalogue of a cluster: its members, classes, placement, users and permissions.
//!
//! | module | contents |
//! | --- | --- |
//! | [`meta_store`] | the trait of stores for the catalogue: ordered keys to values, with watches |
//! | [`embedded`] | an implementation in a store of the same process, for one machine |
//! | [`etcd`] | an implementation on etcd, for several machines |
//! | [`catalog`] | the entries, the operations on them, and a copy that is kept current |
//! | [`catalogue_move`] | moves a catalogue from one of these to another |
//! | [`opening`] | how a brick or a catalogue that went back in time is recognized |
//! | `conformance` | tests for every implementation |
//!
//! TODS (section 4.2) has a *meta-server* with this task, replicated by the database below it. Here etcd replicates the
//! catalogue; an embedded one is not replicated.

pub mod catalog;
pub mod catalogue_move;
pub mod embedded;
pub mod etcd;
mod key;
pub mod limits;
pub mod meta_store;
pub mod opening;
#[doc(hidden)]
pub mod plant;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

pub use embedded::Embedded;
pub use etcd::{Etcd, EtcdConfig, EtcdUser};
pub use key::{Key, Prefix};
pub use meta_store::{
    ChangedKey, Expect, KeyChange, MetaEntry, MetaSession, MetaSessionId, MetaSnapshot, MetaStore, Pending, Revision,
    Watch, WatchBatch, WatchEvent, WriteOutcome,
};
