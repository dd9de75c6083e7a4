//! Object identifiers, values, record encoding and filters of Mortar. No I/O.

mod error;
pub mod limits;
mod oid;
mod transaction;

pub use error::{Error, ErrorKind, Result};
pub use oid::{ClassId, NodeId, Oid, PageId, ParseOidError, SpaceId};
pub use transaction::{Committed, Conflict, Kind, Name, Op, Outcome, Stat, Transaction, UploadId};
