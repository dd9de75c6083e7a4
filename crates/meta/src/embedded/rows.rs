//! The catalogue as rows: their format, and the stores that keep them.
//!
//! ```text
//!   meta/r             version | revision u64 | last row u64 | last session u64
//!   meta/e ROW         version | revision u64 | session u64 or 0 | key length u16 | key | value
//!   meta/s SESSION     version | time to live in ms u64
//! ```
//!
//! Numbers are big-endian. The name of an entry's row contains a number instead of the entry's key, because keys can be longer than
//! names of rows. Rows are never looked up by key, as the whole catalogue is in memory.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use store::{RowChanges, Store};

use crate::{Key, MetaEntry, MetaSessionId, Revision, limits};

/// The prefix of all rows of the catalogue.
pub(super) const ROW_PREFIX: &[u8] = b"meta/";
/// The end of the range of the catalogue's rows.
pub(super) const ROWS_END: &[u8] = b"meta0";

const HEADER: &[u8] = b"meta/r";
const VERSION: u8 = 1;

/// A changed row: its name and its new value; `None` if it is removed.
pub(super) type RowChange = (Vec<u8>, Option<Bytes>);

/// Called when changes are durable or have failed.
pub(super) type DurableCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// A store of rows.
pub(super) trait Rows: Send + Sync {
    /// Visits all rows of the catalogue, in any order.
    fn load(&self, visit: &mut dyn FnMut(&[u8], Bytes) -> Result<()>) -> Result<()>;

    /// Makes changes durable together, and then calls `done`, on any thread, perhaps before it returns.
    fn submit(&self, changes: Vec<RowChange>, done: DurableCallback);
}

/// A decoded row.
#[derive(Debug, PartialEq)]
pub(super) enum Row {
    Header { revision: Revision, last_row: u64, last_session: u64 },
    Entry { row: u64, key: Key, entry: MetaEntry },
    Session { id: MetaSessionId, ttl: Duration },
}

/// The row with the counters.
pub(super) fn header(revision: Revision, last_row: u64, last_session: u64) -> RowChange {
    let mut bytes = BytesMut::new();
    bytes.put_u8(VERSION);
    bytes.put_u64(revision.0);
    bytes.put_u64(last_row);
    bytes.put_u64(last_session);
    (HEADER.to_vec(), Some(bytes.freeze()))
}

/// The row of an entry.
pub(super) fn entry(row: u64, key: &Key, entry: &MetaEntry) -> RowChange {
    let text = key.as_str();
    let mut bytes = BytesMut::with_capacity(19 + text.len() + entry.value.len());
    bytes.put_u8(VERSION);
    bytes.put_u64(entry.revision.0);
    bytes.put_u64(entry.session.map_or(0, |session| session.0));
    // At most `limits::KEY`, so it fits.
    bytes.put_u16(text.len() as u16);
    bytes.put_slice(text.as_bytes());
    bytes.put_slice(&entry.value);
    (name(b'e', row), Some(bytes.freeze()))
}

/// The removal of the row of an entry.
pub(super) fn entry_removal(row: u64) -> RowChange {
    (name(b'e', row), None)
}

/// The row of a session; without a time to live, its removal.
pub(super) fn session(id: MetaSessionId, ttl: Option<Duration>) -> RowChange {
    let value = ttl.map(|ttl| {
        let mut bytes = BytesMut::new();
        bytes.put_u8(VERSION);
        bytes.put_u64(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
        bytes.freeze()
    });
    (name(b's', id.0), value)
}

fn name(kind: u8, number: u64) -> Vec<u8> {
    let mut name = ROW_PREFIX.to_vec();
    name.push(kind);
    name.extend_from_slice(&number.to_be_bytes());
    name
}

/// Decodes a row.
pub(super) fn parse(name: &[u8], value: Bytes) -> Result<Row> {
    parse_known(name, value).ok_or_else(|| {
        let message = format!(
            "a row of the catalogue is damaged, or a newer program wrote it: {}; restore the meta-server's store from a backup",
            name.escape_ascii()
        );
        Error::new(ErrorKind::Corrupt, message)
    })
}

fn parse_known(name: &[u8], mut value: Bytes) -> Option<Row> {
    if value.try_get_u8().ok()? != VERSION {
        return None;
    }
    let rest = name.strip_prefix(ROW_PREFIX)?;
    match rest.split_first()? {
        (b'r', []) => {
            let mut count = || value.try_get_u64().ok().filter(|count| *count <= model::limits::COUNT);
            let (revision, last_row, last_session) = (Revision(count()?), count()?, count()?);
            value.is_empty().then_some(Row::Header { revision, last_row, last_session })
        }
        (b'e', number) => {
            let row = u64::from_be_bytes(number.try_into().ok()?);
            let revision = Revision(value.try_get_u64().ok()?);
            let session = Some(value.try_get_u64().ok()?).filter(|id| *id != 0).map(MetaSessionId);
            let length = usize::from(value.try_get_u16().ok()?);
            if value.len() < length {
                return None;
            }
            let key = Key::new(std::str::from_utf8(&value.split_to(length)).ok()?).ok()?;
            (value.len() <= limits::VALUE).then_some(())?;
            Some(Row::Entry { row, key, entry: MetaEntry { value, revision, session } })
        }
        (b's', number) => {
            let id = MetaSessionId(u64::from_be_bytes(number.try_into().ok()?));
            let ttl = Duration::from_millis(value.try_get_u64().ok()?);
            (value.is_empty() && limits::TTL.contains(&ttl)).then_some(Row::Session { id, ttl })
        }
        _ => None,
    }
}

/// Rows become durable in the log of the store before they become visible.
impl Rows for Store {
    fn load(&self, visit: &mut dyn FnMut(&[u8], Bytes) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        self.rows(ROW_PREFIX, ROWS_END, |name, value| {
            result = visit(name, Bytes::copy_from_slice(value));
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result
    }

    fn submit(&self, changes: Vec<RowChange>, done: DurableCallback) {
        let mut rows = RowChanges::new();
        for (name, value) in changes {
            match value {
                Some(value) => rows.put(&name, value),
                None => rows.remove(&name),
            }
        }
        self.submit_rows(rows, |result| done(result.map(drop)));
    }
}

/// Rows in memory. Clones share them.
#[derive(Clone, Default)]
pub(super) struct MemoryRows(Arc<Mutex<BTreeMap<Vec<u8>, Bytes>>>);

impl Rows for MemoryRows {
    fn load(&self, visit: &mut dyn FnMut(&[u8], Bytes) -> Result<()>) -> Result<()> {
        self.0.lock().iter().try_for_each(|(name, value)| visit(name, value.clone()))
    }

    fn submit(&self, changes: Vec<RowChange>, done: DurableCallback) {
        let mut rows = self.0.lock();
        for (name, value) in changes {
            match value {
                Some(value) => rows.insert(name, value),
                None => rows.remove(&name),
            };
        }
        drop(rows);
        done(Ok(()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip((name, value): RowChange) -> Row {
        parse(&name, value.unwrap()).unwrap()
    }

    #[test]
    fn rows_read_back_as_they_were_written() {
        let key = Key::new("spaces/größe").unwrap();
        for session in [None, Some(MetaSessionId(9))] {
            let written = MetaEntry { value: Bytes::from_static(b"{}"), revision: Revision(7), session };
            assert_eq!(round_trip(entry(3, &key, &written)), Row::Entry { row: 3, key: key.clone(), entry: written });
        }
        let ttl = Duration::from_millis(2500);
        assert_eq!(round_trip(session(MetaSessionId(4), Some(ttl))), Row::Session { id: MetaSessionId(4), ttl });
        let counters = Row::Header { revision: Revision(1), last_row: 2, last_session: 3 };
        assert_eq!(round_trip(header(Revision(1), 2, 3)), counters);
    }

    #[test]
    fn damaged_rows_are_refused_wherever_they_are_cut() {
        let key = Key::new("k").unwrap();
        let written = MetaEntry { value: Bytes::new(), revision: Revision(7), session: None };
        for (name, value) in [
            entry(3, &key, &written),
            header(Revision(1), 2, 3),
            session(MetaSessionId(4), Some(limits::TTL.start().to_owned())),
        ] {
            let value = value.unwrap();
            for end in 0..value.len() {
                assert_eq!(
                    parse(&name, value.slice(..end)).unwrap_err().kind(),
                    ErrorKind::Corrupt,
                    "{name:?} to {end}"
                );
            }
            assert_eq!(parse(&name[..name.len() - 1], value.clone()).unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(parse(b"other", value).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        // Counters from which nothing can be counted on.
        for counters in [[u64::MAX, 2, 3], [1, u64::MAX, 3], [1, 2, u64::MAX]] {
            let [revision, last_row, last_session] = counters;
            let (name, value) = header(Revision(revision), last_row, last_session);
            assert_eq!(parse(&name, value.unwrap()).unwrap_err().kind(), ErrorKind::Corrupt, "{counters:?}");
        }
    }
}
