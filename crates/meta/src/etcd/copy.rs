//! Fills a namespace of etcd with the copy of a catalogue.
//!
//! ```text
//!   record (incomplete), without what an interrupted copy has left ─▶ entries ─▶ compare ─▶ openings, and the record (complete)
//! ```
//!
//! Every step expects the record of this attempt. So a repeated step changes nothing, a delayed one of an earlier attempt has no
//! effect, and of two copies that are made at the same time one fails.

use model::{Error, ErrorKind, Result};

use super::api::{Base64, Compare, DeleteRange, JsonInt64, KeyValue, Op, Put, Range, RangeAnswer, Txn, TxnAnswer};
use super::cluster::to_error;
use super::origin::{Origin, OriginRecord};
use super::{Etcd, Inner};
use crate::catalogue_move::{CatalogueCopy, MoveTargetState};
use crate::{Key, MetaEntry, Prefix, limits};

impl Etcd {
    /// What this namespace has for a move to it; `None` for a catalogue that can be read.
    ///
    /// # Errors
    /// Those of etcd.
    pub(crate) async fn copy_state(&self) -> Result<Option<MoveTargetState>> {
        let found = self.inner.record().await?;
        Ok(match found.record.as_ref().map(OriginRecord::decode).transpose()? {
            Some(record) if !record.complete => Some(MoveTargetState::Interrupted),
            None if !self.inner.has_keys().await? => Some(MoveTargetState::Empty),
            _ => None,
        })
    }

    /// Writes a copy to this namespace, which must be empty or have an interrupted copy. `on_copied` gets bytes and entries.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if it has a catalogue, [`ErrorKind::Conflict`] if another process makes a copy here; those of etcd.
    pub(crate) async fn write_copy(&self, copy: &CatalogueCopy, on_copied: &(dyn Fn(u64, u64) + Sync)) -> Result<()> {
        let filling = self.inner.begin_copy(copy).await?;
        for batch in batches(&copy.entries) {
            let puts = batch.iter().map(|(key, entry)| put(self.inner.namespace.key(key), entry.value.to_vec()));
            filling.write(puts.collect()).await?;
            let bytes: usize = batch.iter().map(byte_len).sum();
            on_copied(bytes as u64, batch.len() as u64);
        }
        filling.verify(copy).await?;
        filling.finish(copy).await?;
        on_copied((copy.openings.0.as_str().len() + copy.openings.1.len()) as u64, 1);
        Ok(())
    }
}

/// What a read of the record has returned.
struct FoundRecord {
    record: Option<KeyValue>,
    /// etcd's revision of the read.
    revision: JsonInt64,
}

impl Inner {
    async fn record(&self) -> Result<FoundRecord> {
        let range = Range { key: self.namespace.origin(), ..Range::default() };
        let answer: RangeAnswer = self.cluster.request("/v3/kv/range", &range).await.map_err(to_error)?;
        Ok(FoundRecord { record: answer.kvs.into_iter().next(), revision: answer.header.revision })
    }

    async fn has_keys(&self) -> Result<bool> {
        let (key, range_end) = self.namespace.range(&Prefix::all());
        let range = Range { key, range_end, limit: JsonInt64(1), revision: JsonInt64(0) };
        let answer: RangeAnswer = self.cluster.request("/v3/kv/range", &range).await.map_err(to_error)?;
        Ok(!answer.kvs.is_empty())
    }

    async fn begin_copy(&self, copy: &CatalogueCopy) -> Result<Filling<'_>> {
        let FoundRecord { record: found, revision } = self.record().await?;
        let known = found.as_ref().map(OriginRecord::decode).transpose()?;
        let exists =
            || Error::new(ErrorKind::Exists, "this namespace of etcd has a catalogue already: choose another one");
        if known.as_ref().is_some_and(|known| known.complete) || known.is_none() && self.has_keys().await? {
            return Err(exists());
        }
        // Every later revision of etcd is above the last one of the original.
        let offset = copy.revision.0.saturating_sub(revision.to_u64());
        let record = OriginRecord::new(offset, copy.opening, rand::random());
        let before = found.map_or(JsonInt64(0), |found| found.mod_revision);
        // What an interrupted copy has left is removed in the same step, which happens once: a removal of its own could be repeated late, and
        // would empty this copy.
        let (key, range_end) = self.namespace.range(&Prefix::all());
        let left =
            known.iter().map(|_| Op::DeleteRange(DeleteRange { key: key.clone(), range_end: range_end.clone() }));
        let at = self.replace_record(before, &record, left.collect()).await?;
        let filling = Filling { inner: self, record, at };
        // A meta-server has begun a catalogue here meanwhile.
        if known.is_none() && self.has_keys().await? {
            filling.write(vec![Op::DeleteRange(DeleteRange::key(self.namespace.origin()))]).await?;
            return Err(exists());
        }
        Ok(filling)
    }

    /// Replaces the record if it has this revision, and makes further changes. Returns the revision of the new record.
    async fn replace_record(&self, before: JsonInt64, record: &OriginRecord, mut ops: Vec<Op>) -> Result<JsonInt64> {
        let key = self.namespace.origin();
        let value = serde_json::to_vec(record).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
        ops.push(put(key.clone(), value.clone()));
        let range = Op::Range(Range { key: key.clone(), ..Range::default() });
        let txn = Txn { compare: vec![Compare::revision(key, before)], success: ops, failure: vec![range] };
        let answer: TxnAnswer = self.cluster.request("/v3/kv/txn", &txn).await.map_err(to_error)?;
        if answer.succeeded {
            return Ok(answer.header.revision);
        }
        // An earlier attempt of this request, whose answer was lost, may have written it.
        let found = answer.responses.into_iter().next().and_then(|one| one.response_range?.kvs.into_iter().next());
        found.filter(|found| found.value.0 == value).map(|found| found.mod_revision).ok_or_else(concurrent_copy_error)
    }
}

/// A copy in progress.
struct Filling<'a> {
    inner: &'a Inner,
    record: OriginRecord,
    /// etcd's revision of the record of this attempt.
    at: JsonInt64,
}

impl Filling<'_> {
    /// Makes changes as long as the record is that of this attempt.
    async fn write(&self, ops: Vec<Op>) -> Result<()> {
        let compare = vec![Compare::revision(self.inner.namespace.origin(), self.at)];
        let txn = Txn { compare, success: ops, failure: Vec::new() };
        let answer: TxnAnswer = self.inner.cluster.request("/v3/kv/txn", &txn).await.map_err(to_error)?;
        if answer.succeeded { Ok(()) } else { Err(concurrent_copy_error()) }
    }

    /// Compares what etcd has with the copy.
    async fn verify(&self, copy: &CatalogueCopy) -> Result<()> {
        let read = self.inner.read_from(Origin::new(self.record.offset, self.at), &Prefix::all()).await?;
        let written = read.entries.iter().map(|(key, entry)| (key, &entry.value));
        match written.eq(copy.entries.iter().map(|(key, entry)| (key, &entry.value))) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Internal, "etcd has other entries than were copied: repeat the move")),
        }
    }

    /// Makes the copy a catalogue.
    async fn finish(self, copy: &CatalogueCopy) -> Result<()> {
        let (key, value) = &copy.openings;
        let openings = put(self.inner.namespace.key(key), value.to_vec());
        let record = OriginRecord { complete: true, ..self.record };
        self.inner.replace_record(self.at, &record, vec![openings]).await.map(drop)
    }
}

fn concurrent_copy_error() -> Error {
    Error::new(ErrorKind::Conflict, "another process makes a copy in this namespace of etcd: let only one of them run")
}

fn put(key: Base64, value: Vec<u8>) -> Op {
    Op::Put(Put { key, value: Base64(value), lease: JsonInt64(0), ignore_lease: false })
}

fn byte_len((key, entry): &(Key, MetaEntry)) -> usize {
    key.as_str().len() + entry.value.len()
}

/// Entries in the order of their keys, as many at a time as one write may have.
fn batches(entries: &[(Key, MetaEntry)]) -> Vec<&[(Key, MetaEntry)]> {
    let (mut batches, mut rest) = (Vec::new(), entries);
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |entry: &&(Key, MetaEntry)| {
            bytes += byte_len(entry);
            bytes <= limits::WRITE
        };
        // An entry alone always fits.
        let count = rest.iter().take(limits::CHANGES).take_while(fits).count().max(1);
        let (batch, after) = rest.split_at(count);
        batches.push(batch);
        rest = after;
    }
    batches
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Revision;

    #[test]
    fn batches_keep_the_limits_of_a_write_and_all_entries() {
        let entry = |number: usize, bytes: usize| {
            let value = Bytes::from(vec![0; bytes]);
            (Key::new(format!("k{number:05}")).unwrap(), MetaEntry { value, revision: Revision(1), session: None })
        };
        for sizes in [vec![1; 250], vec![limits::VALUE; 3], vec![], vec![limits::WRITE / 2; 5]] {
            let entries: Vec<_> = sizes.iter().enumerate().map(|(number, bytes)| entry(number, *bytes)).collect();
            let batches = batches(&entries);
            assert_eq!(batches.concat(), entries);
            for batch in batches {
                assert!(batch.len() <= limits::CHANGES && batch.iter().map(byte_len).sum::<usize>() <= limits::WRITE);
            }
        }
    }
}
