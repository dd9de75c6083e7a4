//! Where the revisions of a catalogue in etcd begin.
//!
//! Revisions of a catalogue continue when it is moved to an etcd whose own revisions are lower. So a namespace that was filled by a copy has a
//! record, `NAMESPACE/o`, with what is added to each revision of etcd. A namespace without the record adds nothing.
//!
//! 1. Each write expects the record at the revision that its process has read, so no process writes with another origin.
//! 2. A record whose copy is not complete refuses every use of the namespace.
//! 3. History before the record is that of the copy and not of the catalogue: watches that began before it have to read everything again.

use model::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::api::{JsonInt64, KeyValue};
use crate::Revision;
use crate::opening::Opening;

/// The format of the record.
const FORMAT: u32 = 1;

/// The record of a namespace that was filled by a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OriginRecord {
    pub(super) format: u32,
    /// What is added to revisions of etcd.
    pub(super) offset: u64,
    /// The opening of the copy.
    pub(super) opening: Opening,
    /// A number by which attempts to make the copy differ.
    pub(super) attempt: u64,
    /// Whether the copy is complete.
    pub(super) complete: bool,
}

impl OriginRecord {
    pub(super) fn new(offset: u64, opening: Opening, attempt: u64) -> Self {
        Self { format: FORMAT, offset, opening, attempt, complete: false }
    }

    pub(super) fn decode(found: &KeyValue) -> Result<Self> {
        let invalid = |why: String| {
            let key = String::from_utf8_lossy(&found.key.0[..found.key.0.len().min(200)]).into_owned();
            Error::new(ErrorKind::Corrupt, format!("etcd's key {key:?} is no record of a catalogue: {why}"))
        };
        let record: Self = serde_json::from_slice(&found.value.0).map_err(|error| invalid(error.to_string()))?;
        match record.format {
            FORMAT => Ok(record),
            other => Err(invalid(format!("a newer program has written it (format {other})"))),
        }
    }
}

/// Where the revisions of a namespace begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    offset: u64,
    /// etcd's revision of the record; 0 without one.
    pub(super) record: JsonInt64,
}

impl Origin {
    /// The origin that a namespace has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] while the namespace has an incomplete copy; [`ErrorKind::Corrupt`].
    pub(super) fn of(found: Option<&KeyValue>) -> Result<Self> {
        let Some(found) = found else { return Ok(Self::default()) };
        let record = OriginRecord::decode(found)?;
        if !record.complete {
            let what = "this namespace has an incomplete copy of a catalogue: wait for `mortar cluster move-catalogue`, or repeat it if it was interrupted";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(Self::new(record.offset, found.mod_revision))
    }

    pub(super) fn new(offset: u64, record: JsonInt64) -> Self {
        Self { offset, record }
    }

    /// The catalogue's revision for one of etcd.
    pub(super) fn revision(self, of_etcd: JsonInt64) -> Revision {
        Revision(of_etcd.to_u64().saturating_add(self.offset))
    }

    /// etcd's revision for one of the catalogue; -1, which no key has, if it is from before the origin.
    pub(super) fn of_etcd(self, revision: Revision) -> JsonInt64 {
        let revision = revision.0.checked_sub(self.offset).and_then(|revision| i64::try_from(revision).ok());
        JsonInt64(revision.unwrap_or(-1))
    }

    /// Whether the history after a revision is known as that of the catalogue.
    pub(super) fn has_history_after(self, revision: Revision) -> bool {
        revision >= self.revision(self.record) || self.record.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_continue_and_those_from_before_are_no_keys() {
        let origin = Origin::new(1000, JsonInt64(7));
        assert_eq!(origin.revision(JsonInt64(9)), Revision(1009));
        assert_eq!(origin.of_etcd(Revision(1009)), JsonInt64(9));
        assert_eq!(origin.of_etcd(Revision(999)), JsonInt64(-1));
        assert_eq!(origin.of_etcd(Revision(u64::MAX)), JsonInt64(-1));
        assert!(!origin.has_history_after(Revision(1006)) && origin.has_history_after(Revision(1007)));
        assert!(Origin::default().has_history_after(Revision(0)));
    }

    #[test]
    fn records_round_trip_and_others_are_refused() {
        let found = |value: Vec<u8>| KeyValue { value: super::super::api::Base64(value), ..KeyValue::default() };
        let mut record = OriginRecord::new(5, Opening { number: 3, nonce: u64::MAX }, 9);
        let encode = |record: &OriginRecord| found(serde_json::to_vec(record).unwrap());
        assert_eq!(OriginRecord::decode(&encode(&record)).unwrap(), record);
        assert_eq!(Origin::of(Some(&encode(&record))).unwrap_err().kind(), ErrorKind::Invalid);
        record.complete = true;
        assert_eq!(Origin::of(Some(&encode(&record))).unwrap(), Origin::new(5, JsonInt64(0)));
        record.format = 2;
        for other in [encode(&record), found(b"{}".to_vec()), found(vec![0xff])] {
            assert_eq!(OriginRecord::decode(&other).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }
}
