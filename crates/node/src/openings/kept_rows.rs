//! What a brick's store keeps about openings: three rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use meta::opening::{OpeningHistory, Witnesses};
use model::{Error, ErrorKind, Result, limits};
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
    let damaged = || Error::new(ErrorKind::Corrupt, "the row of counters is damaged");
    let Some(row) = store.row(COUNTERS_ROW)? else { return Ok(Counters::new()) };
    let counters: Counters = serde_json::from_slice(&row).map_err(|error| damaged().with_source(error))?;
    if counters.values().all(|next| *next <= limits::COUNT) { Ok(counters) } else { Err(damaged()) }
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

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    #[test]
    fn counters_from_which_nothing_can_be_counted_on_are_damaged() {
        let store = Store::in_memory(Options::default()).unwrap();
        for (next, is_valid) in [(limits::COUNT, true), (limits::COUNT + 1, false)] {
            let mut changes = RowChanges::new();
            put_counters(&mut changes, &[("starts".to_owned(), next)].into()).unwrap();
            store.commit_rows(changes).unwrap();
            assert_eq!(counters(&store).map_err(|error| error.kind()).is_ok(), is_valid, "{next}");
        }
    }
}
