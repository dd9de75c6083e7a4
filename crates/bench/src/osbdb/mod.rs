//! The workloads of "Object Storage on Berkeley DB": Mortar's store compared with the paper's store on Berkeley DB, in process.
//!
//! Both sides do the same work with the same durability: each object or chunk is one transaction, and all transactions of a stated
//! group are on disk before the clock stops. Files are the third side where a workload needs only files.

#[cfg(libdb)]
mod berkeley_store;
mod chunks;
mod content;
mod files;
mod large_objects;
mod lines;
mod sides;
mod small_objects;
mod tree;

use bytes::Bytes;
use model::Oid;

use crate::Result;
use crate::figure::Figure;
use crate::run::Run;

/// A store in a directory.
pub(crate) trait Reopens {
    /// Closes and reopens the store.
    fn reopen(&mut self) -> Result<()>;
}

/// Objects with content.
pub(crate) trait Objects: Reopens {
    /// Creates an object for each content, each in a transaction of its own; all are on disk on return.
    fn create_all(&mut self, contents: &[Bytes]) -> Result<Vec<Oid>>;

    /// Writes part of an object, in a transaction of its own; on disk only after [`Objects::force`].
    fn write(&mut self, oid: Oid, offset: u64, data: &Bytes) -> Result<()>;

    /// Returns when all writes are on disk.
    fn force(&mut self) -> Result<()>;

    /// Reads part of an object and passes it to `look`. Copies only where the interface of the store does.
    fn read(&mut self, oid: Oid, offset: u64, len: usize, look: &mut dyn FnMut(&[u8])) -> Result<()>;
}

/// Collections of objects and collections, each with a name as its attribute.
pub(crate) trait Collections: Reopens {
    /// Creates a collection in `parent`, on disk on return; the first has no parent.
    fn create_collection(&mut self, parent: Option<Oid>, name: &str) -> Result<Oid>;

    /// Creates an empty object in `parent`, on disk on return.
    fn create_object(&mut self, parent: Oid, name: &str) -> Result<Oid>;

    /// All members, in order of their identifiers.
    fn members(&mut self, collection: Oid) -> Result<Vec<Oid>>;

    /// Whether a member is a collection, and its name.
    fn describe(&mut self, oid: Oid) -> Result<(bool, Bytes)>;
}

/// A figure of the paper: its name for `--only`, and the function that measures it.
type Measure = fn(&Run) -> Result<Figure>;

/// All figures of the paper.
pub(crate) const FIGURES: [(&str, Measure); 7] = [
    ("osbdb-t1", lines::measure),
    ("osbdb-1", large_objects::measure),
    ("osbdb-2", small_objects::measure),
    ("osbdb-3", chunks::measure_large),
    ("osbdb-4", chunks::measure_small),
    ("osbdb-5", tree::measure_make),
    ("osbdb-6", tree::measure_read),
];
