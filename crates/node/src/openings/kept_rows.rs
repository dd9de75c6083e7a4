//! What a brick's store keeps about openings: three rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use meta::opening::{OpeningHistory, Witnesses};
use model::{Error, ErrorKind, Result};
use store::{RowChanges, Store};

/// The row with the brick's openings.
const OPENINGS_ROW: &[u8] = b"openings";
/// The row with what the brick witnessed of other logs.
const WITNESSES_ROW: &[u8] = b"witnesses";
/// The row with the counters of the catalogue, as JSON.
const COUNTERS_ROW: &[u8] = b"counters";

/// Names of counters of the catalogue, each with the next number it gives.
pub(super) type Counters = BTreeMap<String, u64>;

/// The openings of a brick; none in a new store.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if the row is damaged; those of the store.
pub(super) fn history(store: &Store) -> Result<OpeningHistory> {
    store.row(OPENINGS_ROW)?.map_or_else(|| Ok(OpeningHistory::default()), |row| OpeningHistory::decode(&row))
}

/// What a brick witnessed of other logs, if it has kept that.
///
/// # Errors
/// As [`history`].
pub(super) fn witnesses(store: &Store) -> Result<Option<Witnesses>> {
    store.row(WITNESSES_ROW)?.map(|row| Witnesses::decode(&row)).transpose()
}

/// The highest counters of the catalogue that a brick has kept.
///
/// # Errors
/// As [`history`].
pub(super) fn counters(store: &Store) -> Result<Counters> {
    let damaged = |error| Error::new(ErrorKind::Corrupt, "the row of counters is damaged").with_source(error);
    store.row(COUNTERS_ROW)?.map_or_else(|| Ok(Counters::new()), |row| serde_json::from_slice(&row).map_err(damaged))
}

pub(super) fn put_history(changes: &mut RowChanges, history: &OpeningHistory) {
    changes.put(OPENINGS_ROW, Bytes::from(history.encode()));
}

pub(super) fn put_witnesses(changes: &mut RowChanges, witnesses: &Witnesses) {
    changes.put(WITNESSES_ROW, Bytes::from(witnesses.encode()));
}

/// # Errors
/// [`ErrorKind::Internal`] if they cannot be encoded.
pub(super) fn put_counters(changes: &mut RowChanges, counters: &Counters) -> Result<()> {
    let failed =
        |error| Error::new(ErrorKind::Internal, "the counters of the catalogue cannot be encoded").with_source(error);
    changes.put(COUNTERS_ROW, Bytes::from(serde_json::to_vec(counters).map_err(failed)?));
    Ok(())
}

/// The counters of the catalogue, or what a brick has kept of them where that is higher; `None` if it is higher nowhere.
pub(super) fn merge_counters(known: &Counters, kept: &Counters) -> Option<Counters> {
    let is_higher = |(name, next): &(&String, &u64)| known.get(*name).is_none_or(|known| known < *next);
    let mut higher = kept.iter().filter(is_higher).peekable();
    higher.peek()?;
    let mut raised = known.clone();
    raised.extend(higher.map(|(name, next)| (name.clone(), *next)));
    Some(raised)
}
