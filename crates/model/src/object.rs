//! Objects of a cluster.

use bytes::Bytes;

use crate::{ClassId, Error, ErrorKind, Kind, RecordRef, Result, limits};

/// An object of a cluster: the content of a slot of a page.
///
/// Cloning is cheap: clones share the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its class, which its identifier contains, too.
    pub class: ClassId,
    /// [`Kind::Record`] or [`Kind::Blob`].
    pub kind: Kind,
    /// The encoded record, or the bytes of the blob.
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

    /// Validates an object from outside.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for more than [`limits::OBJECT`] bytes; [`ErrorKind::Invalid`] for an invalid record, a
    /// blob with a class, and a collection, which cannot be in a page.
    pub fn check(&self) -> Result<()> {
        if self.data.len() > limits::OBJECT {
            let (len, most) = (self.data.len(), limits::OBJECT);
            let what = format!("an object has {len} bytes; the limit is {most}: divide it into several objects");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        match self.kind {
            Kind::Record => RecordRef::validate(&self.data).map(drop),
            Kind::Blob if self.class != ClassId::NONE => Err(Error::new(
                ErrorKind::Invalid,
                format!("a blob has no class, but this one has class {}", self.class.0),
            )),
            Kind::Blob => Ok(()),
            Kind::Collection => {
                Err(Error::new(ErrorKind::Invalid, "a page can contain records and blobs, but not collections"))
            }
        }
    }
}
