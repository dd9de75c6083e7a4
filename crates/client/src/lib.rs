//! The client of Mortar.
//!
//! ```no_run
//! # async fn example() -> client::Result<()> {
//! let client = client::Client::connect("mortar://localhost/main").await?;
//! let (hello, transaction) = client
//!     .transact(|t| async move {
//!         let hello = t.create_blob("Hello, world")?;
//!         t.bind("greetings/hello", hello).await?;
//!         Ok((hello, t))
//!     })
//!     .await?;
//! // An identifier is temporary until the commit has assigned the permanent one.
//! let oid = transaction.real_oid(hello).expect("it was committed");
//! assert_eq!(client.resolve("greetings/hello").await?, Some(oid));
//! # Ok(()) }
//! ```
//!
//! [`Client`] reads objects from cached copies and changes them in transactions; objects can be structs: [`Persistent`], [`Ref`].
//! With the feature `embedded`, [`Client::open`] runs the whole cluster in the caller's process. [`AdminClient`] administers
//! users, spaces and servers. [`blocking`] has the same client for threads without an async runtime. Checksums from end to end
//! ensure that a client reads the bytes that were written.

mod admin;
pub mod blocking;
mod classes;
mod client;
mod client_core;
mod concurrent;
mod contents;
mod dial;
#[doc(hidden)]
pub mod driver;
#[cfg(feature = "embedded")]
mod embedded;
mod entries;
mod events;
#[cfg(feature = "jobs")]
pub mod jobs;
mod link;
mod loaded;
mod names;
mod objects;
mod options;
mod outcome;
mod page_allocator;
mod paths;
pub mod persistent;
#[doc(hidden)]
pub mod plant;
mod prefetch;
mod reading;
mod requests;
/// The parts of a [`Query`], for programs that do not write it as text.
pub mod query {
    pub use ::query::{Aggregate, Arithmetic, Expr, Function, Item, OrderKey, Query, Row};
    pub use model::Comparison;
}
mod rows;
mod scan_results;
mod shared_structs;
mod stat;
mod timeout_error;
mod transaction;
mod typed;
mod unique;
mod url;
mod watch;

pub use admin::reports::{
    BackupSummary, ClockStatus, ProblemRepair, Progress, ScrubOptions, ScrubProblem, ScrubReport, SpaceUsage, Status,
    Usage,
};
pub use admin::{
    AdminClient, AdminOptions, ArchivePiece, ArchiveStream, BaseUpload, CloneSource, CutPart, QuotaLimit,
    RedirectorInfo, ServerIdentity, SpaceChange, SpaceInfo, SpaceOptions, take_cut,
};
pub use bytes::Bytes;
pub use client::{Attempts, Client};
pub use client_derive::Persistent;
pub use contents::{ContentReader, ContentWriter, StagedContent};
#[cfg(feature = "embedded")]
pub use embedded::Embedded;
pub use events::{Event, Events};
pub use loaded::{Loaded, LoadedMut};
pub use model::{
    ClassId, Date, Decimal, Error, ErrorKind, FailurePolicy, FieldNumber, Kind, NodeId, Object, Oid, RecordBuilder,
    RecordRef, Result, SpaceId, Timestamp, Value, ValueRef, limits,
};
pub use names::{ListedName, Names};
pub use objects::Objects;
pub use options::{ConnectOptions, MAX_TIMEOUT};
pub use outcome::{CommitOutcome, CommitReceipt, ConflictReason};
pub use persistent::{Persistent, Ref};
pub use protocol::ident::{HlcTimestamp, TxnId};
pub use query::{Query, Row};
pub use rows::{Explanation, Rows};
pub use scan_results::ScanResults;
pub use stat::ObjectStat;
#[cfg(feature = "embedded")]
pub use store::Options as StoreOptions;
pub use transaction::{IsolationLevel, PlacementHint, Transaction};
pub use unique::check::UniqueProblem;
pub use url::{Url, split_group};
pub use watch::Watch;
pub use wire::cluster::{BrickStatus, ListedObject, SpaceStatus};
pub use wire::handshake::Credentials;
pub use wire::transport::tls;
