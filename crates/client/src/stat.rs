//! The properties of an object.

use std::time::{Duration, SystemTime};

use model::{Kind, Object, Oid, Result};
use protocol::ident::HlcTimestamp;

use super::client_core::Core;

/// The properties of an object: [`Client::stat`](super::Client::stat).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// The object.
    pub oid: Oid,
    /// The object with its attributes. A blob has its bytes here only if they are not in a content of their own.
    pub object: Object,
    /// Bytes of a blob or a record, or entries of a collection.
    pub size: u64,
    /// When an entry of the collection was last changed; `None` for other objects, and for a collection that never had one.
    pub entry_changed: Option<SystemTime>,
}

impl ObjectStat {
    /// The kind of the object.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.object.kind
    }
}

impl Core {
    pub(super) async fn stat(&self, oid: Oid) -> Result<Option<ObjectStat>> {
        let object = match self.read_object(oid, false).await? {
            Some(object) => object,
            // It exists without having been created.
            None if oid == self.root()? => Object::collection(Kind::Directory),
            None => return Ok(None),
        };
        let (size, entry_changed) = match object.is_collection() {
            true => {
                let (count, changed) = self.collection_totals(oid).await?;
                let at = SystemTime::UNIX_EPOCH + Duration::from_millis(changed.ms());
                (count, (changed != HlcTimestamp::ZERO).then_some(at))
            }
            false => (object.size(), None),
        };
        Ok(Some(ObjectStat { oid, object, size, entry_changed }))
    }
}
