//! What a transaction asks of a store: a list of operations that happen together or not at all.
//!
//! The same vocabulary is spoken by the client library, on the wire and inside the store.

use bytes::Bytes;

use crate::{Oid, SpaceId};

/// What kind of thing an identifier names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Bytes: ranged read and write, append, truncate.
    Blob = 1,
    /// A header that indexes fields, then the fields; read and replaced whole.
    Record = 2,
    /// A set of members, ordered by identifier.
    Collection = 3,
}

impl Kind {
    /// The kind with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Blob),
            2 => Some(Self::Record),
            3 => Some(Self::Collection),
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
        }
    }
}

/// A path in a space, bound to an object: a root of reachability.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// The space.
    pub space: SpaceId,
    /// The path: 1 to [`limits::NAME`] bytes of UTF-8 without NUL. `/` parts it for listings; nothing else is special.
    ///
    /// [`limits::NAME`]: crate::limits::NAME
    pub path: String,
}

/// The content of an object that was staged in the store before the transaction, in pieces, and is not visible yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub u64);

/// One step of a [`Transaction`].
///
/// An operation on an object may name one that an earlier operation of the same transaction creates, by its temporary
/// identifier. "Object" includes collections unless the text says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates an object. `oid` is temporary and chosen by the writer; the commit answers with the real one.
    Create {
        /// The temporary identifier: its space and class stay, the rest is replaced.
        oid: Oid,
        /// What to create.
        kind: Kind,
        /// The first content; empty for a collection.
        data: Bytes,
        /// An object (real, or created earlier in the transaction) beside which this one should live.
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
    /// Writes `data` at `offset` of a blob; a gap behind its end reads as zeros.
    Write {
        /// The blob.
        oid: Oid,
        /// Bytes from its beginning.
        offset: u64,
        /// What to write.
        data: Bytes,
    },
    /// Writes `data` at the end of a blob.
    Append {
        /// The blob.
        oid: Oid,
        /// What to write.
        data: Bytes,
    },
    /// Cuts a blob, or extends it with zeros.
    Truncate {
        /// The blob.
        oid: Oid,
        /// Its new size in bytes.
        size: u64,
    },
    /// Makes a range of a blob zeros, and its storage free; never changes its size.
    Zero {
        /// The blob.
        oid: Oid,
        /// Bytes from its beginning.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// Replaces the content of the blob or record `to` by that of `from`, without copying large content.
    Clone {
        /// Where the content comes from.
        from: Oid,
        /// Where it goes; of the same kind.
        to: Oid,
    },
    /// Removes an object with all that belongs to it: content, attributes, members, names, its place in collections.
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
    /// Removes an attribute of an object; it need not be there.
    RemoveAttribute {
        /// The object.
        oid: Oid,
        /// The attribute's key.
        key: Bytes,
    },
    /// Adds a member to a collection; it may be there already.
    Add {
        /// The collection.
        collection: Oid,
        /// Any object.
        member: Oid,
    },
    /// Removes a member from a collection; it need not be there.
    Remove {
        /// The collection.
        collection: Oid,
        /// The member.
        member: Oid,
    },
    /// Binds a name to an object, in place of what it was bound to.
    Bind {
        /// The name.
        name: Name,
        /// The object.
        oid: Oid,
    },
    /// Unbinds a name; it need not be bound.
    Unbind {
        /// The name.
        name: Name,
    },
    /// Lets the transaction go on only if the object is as expected; else it ends in a conflict.
    Expect {
        /// The object.
        oid: Oid,
        /// The version last read, or `None` if there must be no such object.
        version: Option<u64>,
    },
    /// Lets the transaction go on only if the name is bound as expected; else it ends in a conflict.
    ExpectName {
        /// The name.
        name: Name,
        /// What it must be bound to, or `None` if it must not be bound.
        oid: Option<Oid>,
    },
}

/// Operations that happen together or not at all, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The operations.
    pub ops: Vec<Op>,
}

/// How a transaction that was decided ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a transaction that met a conflict has changed nothing"]
pub enum Outcome {
    /// All of it is durable.
    Committed(Committed),
    /// None of it happened: something is not as the transaction expected.
    Conflict(Conflict),
}

/// What a committed transaction learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The log position of the transaction: the version of every object it changed.
    pub version: u64,
    /// The real identifier of each created object, in the order of the `Create` operations.
    pub created: Vec<Oid>,
}

/// What stood in a transaction's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// An object has another version than was read.
    Object {
        /// The object.
        oid: Oid,
        /// The version the transaction had read.
        read: Option<u64>,
        /// The version it has; `None` if there is no such object.
        current: Option<u64>,
    },
    /// A name is bound to something else.
    Name {
        /// The name.
        name: Name,
        /// What the transaction expected.
        read: Option<Oid>,
        /// What it is bound to.
        current: Option<Oid>,
    },
}

/// What is known of an object without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The object.
    pub oid: Oid,
    /// What it is.
    pub kind: Kind,
    /// Bytes of content, or members of a collection.
    pub size: u64,
    /// The log position of its last change: content, attributes or members.
    pub version: u64,
    /// When that was: microseconds since 1970-01-01T00:00Z, by the store's clock.
    pub modified_us: i64,
}
