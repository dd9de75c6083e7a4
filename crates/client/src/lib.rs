//! The client of Mortar.
//!
//! ```no_run
//! # async fn example() -> client::Result<()> {
//! let client = client::Client::connect("mortar://localhost/main").await?;
//! let mut tx = client.transaction();
//! let hello = tx.create_blob("Hello, world");
//! tx.bind("greetings/hello", hello);
//! let outcome = client.commit(tx).await?;
//! let oid = client.resolve("greetings/hello").await?.expect("it was just bound");
//! let content = client.read(oid, 0, 1 << 20).await?;
//! # let _ = (outcome, content); Ok(()) }
//! ```
//!
//! [`Client`] is a handle on one connection, which its clones share. Calls are pipelined, and the number of outstanding
//! calls is bounded. A read reconnects and is repeated, with back-off, until it is answered or
//! [`ConnectOptions::retry`] has passed. A commit is never sent twice: if the connection breaks before the answer, its
//! error is [`ErrorKind::Unknown`]. Checksums from end to end ensure that a client reads the bytes that were written.
//!
//! [`cluster`] is the client of a cluster, with objects as structs: [`Persistent`], [`Ref`].
//!
//! [`blocking`] is a client for threads without an async runtime.

mod blob;
pub mod blocking;
mod client;
pub mod cluster;
mod link;
pub mod persistent;
#[doc(hidden)]
pub mod plant;
mod reports;
mod snapshot;
mod transaction;
mod url;
mod view;

pub use blob::{BlobReader, BlobWriter};
pub use bytes::Bytes;
pub use client::{Client, ConnectOptions, SpaceInfo, SpaceOptions};
pub use client_derive::Persistent;
pub use model::{
    Committed, Conflict, Date, Decimal, Error, ErrorKind, FailurePolicy, Kind, Name, Oid, Op, Outcome, Result, SpaceId,
    Stat, Timestamp, Transaction, UploadId,
};
pub use persistent::{Persistent, Ref};
pub use reports::{BackupSummary, Progress, ScrubReport, Status};
pub use snapshot::Snapshot;
pub use transaction::TransactionBuilder;
pub use url::Url;
pub use view::View;
pub use wire::handshake::Credentials;
pub use wire::transport::tls;
