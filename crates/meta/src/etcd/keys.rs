//! The keys of the catalogue within an etcd.

use model::{Error, ErrorKind, Result};

use super::api::{Base64, KeyValue};
use super::origin::Origin;
use crate::{Key, MetaEntry, MetaSessionId, Prefix};

/// The keys of one cluster in etcd: keys of the catalogue begin with `NAMESPACE/k/`, markers with
/// `NAMESPACE/w/`, and `NAMESPACE/o` says where revisions begin.
#[derive(Clone, Debug)]
pub(super) struct Namespace(String);

impl Namespace {
    pub(super) fn new(name: &str) -> Result<Self> {
        Key::new(name)?;
        Ok(Self(name.trim_end_matches('/').to_owned()))
    }

    pub(super) fn key(&self, key: &Key) -> Base64 {
        Base64(format!("{}/k/{key}", self.0).into_bytes())
    }

    pub(super) fn marker(&self, number: u128) -> Base64 {
        Base64(format!("{}/w/{number:032x}", self.0).into_bytes())
    }

    /// The key of the record that says where revisions begin.
    pub(super) fn origin(&self) -> Base64 {
        Base64(format!("{}/o", self.0).into_bytes())
    }

    /// The range of the keys with a prefix: its first key, and the first one after it.
    pub(super) fn range(&self, prefix: &Prefix) -> (Base64, Base64) {
        let first = format!("{}/k/{}", self.0, prefix.as_str()).into_bytes();
        let mut end = first.clone();
        // No byte of UTF-8 is 0xff, so incrementing does not overflow.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        (Base64(first), Base64(end))
    }

    /// The key of the catalogue for a key of etcd.
    pub(super) fn strip(&self, key: &Base64) -> Result<Key> {
        let text = std::str::from_utf8(&key.0).ok();
        let own = text.and_then(|text| text.strip_prefix(&*self.0)?.strip_prefix("/k/"));
        own.and_then(|own| Key::new(own).ok()).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&key.0[..key.0.len().min(200)]);
            let message = format!("etcd has the key {shown:?}, which is not a valid key of the catalogue: remove it");
            Error::new(ErrorKind::Corrupt, message)
        })
    }

    /// Decodes an entry of the catalogue.
    pub(super) fn entry(&self, origin: Origin, found: KeyValue) -> Result<(Key, MetaEntry)> {
        let key = self.strip(&found.key)?;
        let session = Some(found.lease.to_u64()).filter(|lease| *lease != 0).map(MetaSessionId);
        let entry = MetaEntry { value: found.value.0.into(), revision: origin.revision(found.mod_revision), session };
        Ok((key, entry))
    }
}
