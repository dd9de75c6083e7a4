//! Entries of collections against their collections, their totals, their targets, and the rows under which they are found from these.

use bytes::Bytes;
use model::{Entry, Oid, Result};
use protocol::entries::{FIRST_COMPUTED_PAGE, is_unique_values};

use super::plant::{Bug, planted};
use super::{Place, Problem, Reading, behind, is_damage, is_end};
use crate::brick::entry_rows::{self as rows, Totals};
use crate::brick::page_rows::{self, Rows};

/// A collection while its entries are counted.
struct Tally {
    collection: Oid,
    counted: u64,
    found: u64,
}

/// Checks the entries of a portion. A collection that begins in it is counted to its end in the same state of the store.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check(reading: &mut Reading<'_>, mut from: Vec<u8>, to: &[u8]) -> Result<()> {
    let mut tally: Option<Tally> = None;
    let mut is_full = false;
    loop {
        let rows = reading.rows(&from, to)?;
        for (row, value) in &rows {
            let Some(collection) = reading.accept(rows::oid_in_row(row))? else { continue };
            if tally.as_ref().is_none_or(|tally| tally.collection != collection) {
                finish(reading, tally.take())?;
                if is_full {
                    reading.portion.next = Some(Place { table: b'C', from: row.clone() });
                    return Ok(());
                }
                tally = Some(Tally { collection, counted: 0, found: 0 });
            }
            let Some(tally) = &mut tally else { continue };
            if rows::is_totals(row) {
                tally.counted = reading.accept(Totals::decode(row, value))?.map_or(0, |totals| totals.count);
            } else {
                tally.found += 1;
                check_entry(reading, collection, row, value)?;
            }
        }
        match rows.last().filter(|_| !is_end(&rows)) {
            Some((last, _)) => from = behind(last),
            None => return finish(reading, tally),
        }
        if planted(Bug::SplitsCollections) {
            finish(reading, tally.take())?;
        }
        is_full = true;
    }
}

/// All entries of a collection were seen.
fn finish(reading: &mut Reading<'_>, tally: Option<Tally>) -> Result<()> {
    let Some(Tally { collection, counted, found }) = tally else { return Ok(()) };
    if is_unique_values(collection) {
        return Ok(());
    }
    if counted != found && !planted(Bug::TrustsTotals) {
        reading.report(Problem::CountWrong { collection, counted, found });
    }
    // Root directories exist without having been created.
    if found > 0 && collection.page().number < FIRST_COMPUTED_PAGE {
        let kept = page_rows::read_object(reading.state, collection.page(), collection.slot());
        // A damaged one is reported where objects are walked.
        let is_there = match kept {
            Err(error) if is_damage(&error) => true,
            kept => kept?.is_some_and(|object| object.is_collection() && object.class == collection.class()),
        };
        if !is_there {
            reading.report(Problem::CollectionMissing { collection, entries: found });
        }
    }
    Ok(())
}

fn check_entry(reading: &mut Reading<'_>, collection: Oid, row: &[u8], value: &Bytes) -> Result<()> {
    let parsed = rows::key_in_row(row).and_then(|key| Ok((key, rows::decode_target(row, value)?)));
    let Some((key, target)) = reading.accept(parsed)? else { return Ok(()) };
    // Who had unique values last may be gone, and is not found from its object.
    if is_unique_values(collection) {
        return Ok(());
    }
    let entry = Entry { collection, key };
    if reading.has_row(&rows::reverse_key(target, &entry))? == Some(false) {
        reading.report(Problem::ReverseMissing { entry: entry.clone(), target });
    }
    if target.page().node == reading.node() && !exists(reading, target)? {
        reading.report(Problem::TargetMissing { entry, target });
    }
    Ok(())
}

/// Whether an object of this logical node exists. Root directories always do.
fn exists(reading: &mut Reading<'_>, oid: Oid) -> Result<bool> {
    if oid.page().number >= FIRST_COMPUTED_PAGE {
        return Ok(true);
    }
    let key = page_rows::object_key(oid.page(), oid.slot());
    let class = reading.state.get_with(&key, page_rows::class_in_row);
    let Some(class) = reading.accept(class)? else { return Ok(true) };
    Ok(class.is_some_and(|class| class.is_none_or(|class| class == oid.class())))
}

/// Checks a portion of the rows under which entries are found from their targets.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check_reverse(reading: &mut Reading<'_>, from: Vec<u8>, to: &[u8]) -> Result<()> {
    reading.each(&from, to, |reading, row, _| {
        let parsed = rows::oid_in_row(row).and_then(|target| Ok((target, rows::entry_in_row(row)?)));
        let Some((target, entry)) = reading.accept(parsed)? else { return Ok(()) };
        let found = match rows::read_target(reading.state, entry.collection, &entry.key) {
            // It is reported where entries are walked.
            Err(error) if is_damage(&error) => return Ok(()),
            found => found?,
        };
        match found {
            _ if planted(Bug::SkipsReverse) => {}
            None => reading.report(Problem::EntryMissing { entry, target }),
            Some(found) if found != target => reading.report(Problem::ReverseStray { entry, target }),
            Some(_) => {}
        }
        Ok(())
    })
}
