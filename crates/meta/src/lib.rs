//! The catalogue of a cluster: who takes part, what the classes are, where things live, who may do what.
//!
//! | module | is |
//! | --- | --- |
//! | [`meta_store`] | the trait of what keeps the catalogue: ordered keys to values, watched by all |
//! | [`embedded`] | one that keeps it in a store of its own process, for one machine |
//! | [`etcd`] | one that keeps it in an etcd, for many machines |
//! | [`catalog`] | what the entries are, the operations on them, and a view of all that is kept current |
//! | `conformance` | what every one of them must do |
//!
//! TODS (section 4.2) has a *meta-server* that keeps all this and is replicated by the database beneath it. Here the
//! replication is etcd's, or there is none.

pub mod catalog;
pub mod embedded;
pub mod etcd;
mod key;
pub mod limits;
pub mod meta_store;

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;

pub use embedded::Embedded;
pub use etcd::{Etcd, EtcdConfig};
pub use key::{Key, Prefix};
pub use meta_store::{
    ChangedKey, Expect, KeyChange, MetaEntry, MetaSession, MetaSessionId, MetaSnapshot, MetaStore, Pending, Revision,
    Watch, WatchBatch, WatchEvent, WriteOutcome,
};
