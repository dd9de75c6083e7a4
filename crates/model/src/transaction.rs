//! Transactions of a store: lists of operations that are applied together or not at all.
//!
//! The client library, the wire and the store use the same types.

use bytes::Bytes;

use crate::{Oid, SpaceId};

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes: ranged read and write, append, truncate.
    Blob = 1,
    /// A header that indexes fields, then the fields; read and replaced as a whole.
    Record = 2,
    /// A set of members, ordered by identifier.
    Collection = 3,
    /// A directory: names of objects, ordered by their bytes.
    Directory = 4,
}

impl Kind {
    /// The kind with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Blob),
            2 => Some(Self::Record),
            3 => Some(Self::Collection),
            4 => Some(Self::Directory),
            _ => None,
        }
    }

    /// The kind's name in listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Record => "record",
            Self::Collection => "collection",
            Self::Directory => "directory",
        }
    }
}

/// A path in a space, bound to an object: a root of reachability.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The space.
    pub space: SpaceId,
    /// The path: 1 to [`limits::NAME`] bytes of UTF-8 without NUL. `/` separates components in listings; no other
    /// character is special.
    ///
    /// [`limits::NAME`]: crate::limits::NAME
    pub path: String,
}

/// Content that is staged in the store before the transaction that makes it visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub u64);

/// One operation of a [`Transaction`].
///
/// It may refer to an object that an earlier operation of the same transaction creates, by its temporary identifier.
/// "Object" includes collections unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates an object. The writer chooses the temporary `oid`; the commit returns the real one.
    Create {
        /// The temporary identifier. Its space and class are kept; the other parts are replaced.
        oid: Oid,
        /// The kind of object.
        kind: Kind,
        /// The first content; empty for a collection.
        data: Bytes,
        /// An object (real, or created earlier in the transaction) near which this one should be placed.
        near: Option<Oid>,
    },
    /// Replaces the content of a blob or record.
    Put {
        /// The object.
        oid: Oid,
        /// Its new content.
        data: Bytes,
    },
    /// Replaces the content of a blob by a finished upload, whatever its size.
    PutUpload {
        /// The blob.
        oid: Oid,
        /// The upload; it ends with the transaction.
        upload: UploadId,
    },
    /// Writes `data` at `offset` of a blob. A gap after its old end reads as zeros.
    Write {
        /// The blob.
        oid: Oid,
        /// Offset in bytes.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Writes `data` at the end of a blob.
    Append {
        /// The blob.
        oid: Oid,
        /// The bytes.
        data: Bytes,
    },
    /// Cuts a blob, or extends it with zeros.
    Truncate {
        /// The blob.
        oid: Oid,
        /// Its new size in bytes.
        size: u64,
    },
    /// Sets a range of a blob to zeros and frees its storage. The size does not change.
    Zero {
        /// The blob.
        oid: Oid,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Replaces the content of the blob or record `to` by that of `from`, without copying large content.
    Clone {
        /// The source.
        from: Oid,
        /// The target, of the same kind.
        to: Oid,
    },
    /// Removes an object with its content, attributes, members, names and memberships.
    Delete {
        /// The object.
        oid: Oid,
    },
    /// Sets an attribute of an object.
    SetAttribute {
        /// The object.
        oid: Oid,
        /// 1 to 255 bytes.
        key: Bytes,
        /// At most [`limits::ATTRIBUTE_VALUE`](crate::limits::ATTRIBUTE_VALUE) bytes.
        value: Bytes,
    },
    /// Removes an attribute of an object, if it exists.
    RemoveAttribute {
        /// The object.
        oid: Oid,
        /// The attribute's key.
        key: Bytes,
    },
    /// Adds a member to a collection, unless it is one already.
    Add {
        /// The collection.
        collection: Oid,
        /// Any object.
        member: Oid,
    },
    /// Removes a member from a collection, if it is one.
    Remove {
        /// The collection.
        collection: Oid,
        /// The member.
        member: Oid,
    },
    /// Binds a name to an object, replacing an earlier binding.
    Bind {
        /// The name.
        name: Name,
        /// The object.
        oid: Oid,
    },
    /// Unbinds a name, if it is bound.
    Unbind {
        /// The name.
        name: Name,
    },
    /// Makes the transaction a conflict unless the object has this version.
    Expect {
        /// The object.
        oid: Oid,
        /// The version that was read; `None` if the object must not exist.
        version: Option<u64>,
    },
    /// Makes the transaction a conflict unless the name is bound to this object.
    ExpectName {
        /// The name.
        name: Name,
        /// The expected object; `None` if the name must not be bound.
        oid: Option<Oid>,
    },
}

/// Operations that are applied together or not at all, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations.
    pub ops: Vec<Op>,
}

/// The outcome of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a transaction that met a conflict has changed nothing"]
pub enum Outcome {
    /// All of it is durable.
    Committed(Committed),
    /// Nothing was changed, because an expectation did not hold.
    Conflict(Conflict),
}

/// The result of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The log position of the transaction: the version of every object that it changed.
    pub version: u64,
    /// The real identifier of each created object, in the order of the `Create` operations.
    pub created: Vec<Oid>,
}

/// Why a transaction was not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// An object has another version than expected.
    Object {
        /// The object.
        oid: Oid,
        /// The expected version.
        read: Option<u64>,
        /// The current version; `None` if the object does not exist.
        current: Option<u64>,
    },
    /// A name is bound to another object.
    Name {
        /// The name.
        name: Name,
        /// The expected object.
        read: Option<Oid>,
        /// The object to which it is bound.
        current: Option<Oid>,
    },
}

/// The properties of an object without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The object.
    pub oid: Oid,
    /// Its kind.
    pub kind: Kind,
    /// Bytes of content, or members of a collection.
    pub size: u64,
    /// The log position of the last change of content, attributes or members.
    pub version: u64,
    /// The time of the last change: microseconds since 1970-01-01T00:00Z by the store's clock.
    pub modified_us: i64,
}
