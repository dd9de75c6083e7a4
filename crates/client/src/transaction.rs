//! Building transactions without counting temporary identifiers.

use bytes::Bytes;
use model::{ClassId, Kind, Name, Oid, Op, SpaceId, Transaction, UploadId};

/// A transaction in the making, in one space. Hand it to [`Client::commit`](crate::Client::commit).
///
/// What `create_*` returns is a temporary identifier: good for later calls on the same builder. The commit answers with
/// the real ones, in the order of creation.
#[derive(Clone, Debug)]
pub struct TransactionBuilder {
    space: SpaceId,
    created: u64,
    ops: Vec<Op>,
}

impl TransactionBuilder {
    /// An empty transaction in `space`.
    #[must_use]
    pub fn new(space: SpaceId) -> Self {
        Self { space, created: 0, ops: Vec::new() }
    }

    fn create(&mut self, class: ClassId, kind: Kind, data: Bytes, near: Option<Oid>) -> Oid {
        let oid = Oid::temporary(self.space, class, self.created);
        self.created += 1;
        self.ops.push(Op::Create { oid, kind, data, near });
        oid
    }

    fn name(&self, path: impl Into<String>) -> Name {
        Name { space: self.space, path: path.into() }
    }

    /// Adds an operation as it is.
    pub fn op(&mut self, op: Op) -> &mut Self {
        self.ops.push(op);
        self
    }

    /// How many operations there are so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are no operations yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Creates a blob.
    pub fn create_blob(&mut self, data: impl Into<Bytes>) -> Oid {
        self.create(ClassId::NONE, Kind::Blob, data.into(), None)
    }

    /// Creates a blob from an upload.
    pub fn create_blob_from(&mut self, upload: UploadId) -> Oid {
        let oid = self.create_blob(Bytes::new());
        self.ops.push(Op::PutUpload { oid, upload });
        oid
    }

    /// Creates a blob that should live beside `near`.
    pub fn create_blob_near(&mut self, near: Oid, data: impl Into<Bytes>) -> Oid {
        self.create(ClassId::NONE, Kind::Blob, data.into(), Some(near))
    }

    /// Creates a record of a class.
    ///
    /// # Panics
    /// If `class` does not fit its 24 bits.
    pub fn create_record(&mut self, class: ClassId, data: impl Into<Bytes>) -> Oid {
        self.create(class, Kind::Record, data.into(), None)
    }

    /// Creates an empty collection.
    pub fn create_collection(&mut self) -> Oid {
        self.create(ClassId::NONE, Kind::Collection, Bytes::new(), None)
    }

    /// Replaces the content of a blob or record.
    pub fn put(&mut self, oid: Oid, data: impl Into<Bytes>) -> &mut Self {
        self.op(Op::Put { oid, data: data.into() })
    }

    /// Replaces the content of a blob by an upload.
    pub fn put_upload(&mut self, oid: Oid, upload: UploadId) -> &mut Self {
        self.op(Op::PutUpload { oid, upload })
    }

    /// Writes into a blob.
    pub fn write(&mut self, oid: Oid, offset: u64, data: impl Into<Bytes>) -> &mut Self {
        self.op(Op::Write { oid, offset, data: data.into() })
    }

    /// Writes at the end of a blob.
    pub fn append(&mut self, oid: Oid, data: impl Into<Bytes>) -> &mut Self {
        self.op(Op::Append { oid, data: data.into() })
    }

    /// Cuts a blob, or extends it with zeros.
    pub fn truncate(&mut self, oid: Oid, size: u64) -> &mut Self {
        self.op(Op::Truncate { oid, size })
    }

    /// Makes a range of a blob zeros.
    pub fn zero(&mut self, oid: Oid, offset: u64, len: u64) -> &mut Self {
        self.op(Op::Zero { oid, offset, len })
    }

    /// Replaces the content of `to` by that of `from`.
    pub fn copy(&mut self, from: Oid, to: Oid) -> &mut Self {
        self.op(Op::Clone { from, to })
    }

    /// Removes an object with all that belongs to it.
    pub fn delete(&mut self, oid: Oid) -> &mut Self {
        self.op(Op::Delete { oid })
    }

    /// Sets an attribute.
    pub fn set_attribute(&mut self, oid: Oid, key: impl Into<Bytes>, value: impl Into<Bytes>) -> &mut Self {
        self.op(Op::SetAttribute { oid, key: key.into(), value: value.into() })
    }

    /// Removes an attribute.
    pub fn remove_attribute(&mut self, oid: Oid, key: impl Into<Bytes>) -> &mut Self {
        self.op(Op::RemoveAttribute { oid, key: key.into() })
    }

    /// Adds a member to a collection.
    pub fn add(&mut self, collection: Oid, member: Oid) -> &mut Self {
        self.op(Op::Add { collection, member })
    }

    /// Removes a member from a collection.
    pub fn remove(&mut self, collection: Oid, member: Oid) -> &mut Self {
        self.op(Op::Remove { collection, member })
    }

    /// Binds a name of this space.
    pub fn bind(&mut self, path: impl Into<String>, oid: Oid) -> &mut Self {
        let name = self.name(path);
        self.op(Op::Bind { name, oid })
    }

    /// Unbinds a name of this space.
    pub fn unbind(&mut self, path: impl Into<String>) -> &mut Self {
        let name = self.name(path);
        self.op(Op::Unbind { name })
    }

    /// Lets the transaction go on only if the object has this version, or, for `None`, is not there.
    pub fn expect(&mut self, oid: Oid, version: Option<u64>) -> &mut Self {
        self.op(Op::Expect { oid, version })
    }

    /// Lets the transaction go on only if the name is bound to this object, or, for `None`, is not bound.
    pub fn expect_name(&mut self, path: impl Into<String>, oid: Option<Oid>) -> &mut Self {
        let name = self.name(path);
        self.op(Op::ExpectName { name, oid })
    }
}

impl From<TransactionBuilder> for Transaction {
    fn from(builder: TransactionBuilder) -> Self {
        Self { ops: builder.ops }
    }
}
