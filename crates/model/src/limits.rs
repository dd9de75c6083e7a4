//! Limits of sizes and counts. They are checked before anything is allocated or logged.

/// Bytes in the path of a name. With its table and space it must fit a key of the B-tree.
pub const NAME: usize = 1024;
/// Bytes in the key of an entry of a collection, and in a component of a path.
pub const ENTRY_KEY: usize = 255;
/// Bytes in an attribute's key.
pub const ATTRIBUTE_KEY: usize = 255;
/// Bytes in an attribute's value.
pub const ATTRIBUTE_VALUE: usize = 1 << 20;
/// Bytes in a record.
pub const RECORD: usize = 16 << 20;
/// Bytes in an object of a page.
pub const OBJECT: usize = 4 << 20;
/// Bytes of objects that one transaction may write. Larger content is uploaded first.
pub const TRANSACTION: usize = 256 << 20;
/// Objects that one transaction may write, and entries of collections that it may change.
pub const OBJECTS: usize = 100_000;
/// Bytes of the keys of entries that one transaction may change. They are sent beside the identifiers and versions of all that it reads
/// and writes.
pub const KEYS: usize = 6 << 20;
/// Objects, and guards of what was listed and queried, that one transaction may read.
pub const READS: usize = 1 << 19;
/// Bytes of the identifiers, versions and keys of all that one transaction reads and writes: one message has them all, without the contents.
pub const HEAD: usize = 23 << 20;
/// Bytes of rows and contents that are changed together in a store: the objects of a transaction, and the keys of their entries.
pub const CHANGE: usize = TRANSACTION + (64 << 20);
/// Rows and contents that are changed together in a store.
pub const OPERATIONS: usize = 1 << 20;
/// Bytes of a content that are read at once.
pub const CONTENT_READ: usize = 32 << 20;
/// Bytes in the key of a row of a store.
pub const ROW_KEY: usize = 400;
/// Bytes in the value of a row of a store.
pub const ROW_VALUE: usize = 5 << 20;
/// Bytes in a blob: 2^50, one pebibyte.
pub const BLOB: u64 = 1 << 50;
/// Entries in one reply of a listing.
pub const LISTING: usize = 10_000;
/// Bytes in the name of a space.
pub const SPACE_NAME: usize = 64;
/// Bytes of the name of a class.
pub const CLASS_NAME: usize = 255;
/// Nested levels of lists, sets and maps.
pub const NESTING: usize = 32;
/// Bytes of a decimal's digits: 9864 digits.
pub const DECIMAL: usize = 4096;
/// Bytes of an encoded filter.
pub const FILTER: usize = 1 << 20;
/// Nodes of a filter: tests, `and`, `or` and `not`.
pub const FILTER_NODES: usize = 16_384;
/// Nested levels of `and`, `or` and `not`.
pub const FILTER_NESTING: usize = 64;

/// The most of a number that is counted up by one, such as a revision, an epoch or a position, where it is read from a disk or a message: 2^62. No count
/// gets that far, so a larger one is damage; and sums of smaller ones with small numbers do not overflow.
pub const COUNT: u64 = 1 << 62;
/// The most of the number of a client or of a start of a process: 2^44 - 1. The other 20 bits of the number of a session count those of one client.
pub const CLIENT_NUMBER: u64 = (1 << 44) - 1;

/// Checks the number of the entries that one transaction changes, and the size of their keys.
///
/// # Errors
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge), with the limits.
pub fn check_entries(entries: usize, key_bytes: usize) -> crate::Result<()> {
    if entries <= OBJECTS && key_bytes <= KEYS {
        return Ok(());
    }
    let what = format!(
        "the transaction changes {entries} entries of collections and values of unique indexes with {key_bytes} bytes of keys; it may \
         change {OBJECTS} with {KEYS} bytes together: part it"
    );
    Err(crate::Error::new(crate::ErrorKind::TooLarge, what))
}

/// Checks the number of reads that a transaction relies on.
///
/// # Errors
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge), with the limit.
pub fn check_reads(reads: usize) -> crate::Result<()> {
    if reads <= READS {
        return Ok(());
    }
    let what =
        format!("the transaction relies on {reads} reads; it may rely on {READS}: part it, or read in a snapshot");
    Err(crate::Error::new(crate::ErrorKind::TooLarge, what))
}

/// Checks the size of the identifiers, versions and keys of all that a transaction reads and writes.
///
/// # Errors
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge), with the limit.
pub fn check_head(bytes: usize) -> crate::Result<()> {
    if bytes <= HEAD {
        return Ok(());
    }
    let what = format!(
        "the identifiers, versions and keys of what the transaction reads and writes have {bytes} bytes; they may have {HEAD}: part it, or \
         read in a snapshot"
    );
    Err(crate::Error::new(crate::ErrorKind::TooLarge, what))
}

/// Checks the number of the objects that one transaction writes, and their size with the keys of the entries that it changes.
///
/// # Errors
/// [`ErrorKind::TooLarge`](crate::ErrorKind::TooLarge), with the limits.
pub fn check_writes(objects: usize, bytes: usize) -> crate::Result<()> {
    if objects <= OBJECTS && bytes <= TRANSACTION {
        return Ok(());
    }
    let what = format!(
        "the transaction writes {objects} objects of {bytes} bytes; it may write {OBJECTS} of \
         {TRANSACTION} bytes together: part it"
    );
    Err(crate::Error::new(crate::ErrorKind::TooLarge, what))
}
