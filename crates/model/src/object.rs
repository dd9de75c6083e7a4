//! An object, as transactions, caches and pages know it.

use bytes::Bytes;

use crate::{ClassId, Error, ErrorKind, Kind, RecordRef, Result, limits};

/// An object of a cluster: what stands in a slot of a page.
///
/// Cheap to clone: clones share the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its class, which is also that of its identifier.
    pub class: ClassId,
    /// [`Kind::Record`] or [`Kind::Blob`].
    pub kind: Kind,
    /// The record, or the bytes.
    pub data: Bytes,
}

impl Object {
    /// A record of a class.
    #[must_use]
    pub fn record(class: ClassId, data: Bytes) -> Self {
        Self { class, kind: Kind::Record, data }
    }

    /// Bytes without a class.
    #[must_use]
    pub fn blob(data: Bytes) -> Self {
        Self { class: ClassId::NONE, kind: Kind::Blob, data }
    }

    /// Checks what comes from outside.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for more than [`limits::OBJECT`] bytes; [`ErrorKind::Invalid`] for a record that is none, a
    /// blob with a class, and a collection, which is no object of a page.
    pub fn check(&self) -> Result<()> {
        if self.data.len() > limits::OBJECT {
            let (len, most) = (self.data.len(), limits::OBJECT);
            let what = format!("an object has {len} bytes, and may have {most}: part it into several");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        match self.kind {
            Kind::Record => RecordRef::validate(&self.data).map(drop),
            Kind::Blob if self.class != ClassId::NONE => {
                Err(Error::new(ErrorKind::Invalid, format!("a blob belongs to no class, this one to {}", self.class.0)))
            }
            Kind::Blob => Ok(()),
            Kind::Collection => Err(Error::new(ErrorKind::Invalid, "a page has records and blobs, no collections")),
        }
    }
}
