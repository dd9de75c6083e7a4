//! What is known of transactions and clients against its keys, against each other, and against staged contents.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{Object, Oid, Result};
use protocol::commit::{Part, Record};
use protocol::ident::TxnId;
use protocol::page_cache::ObjectState;
use wire::cluster::decode_record;

use super::plant::{Bug, planted};
use super::{Problem, Reading, behind, is_damage, is_end};
use crate::brick::node_driver::named_contents;
use crate::brick::page_rows::{self as rows, Rows};

/// Checks everything that is known of transactions: prepared ones are compared with each other, so all are of one portion. Their number is
/// bounded: a brick has all of them in memory.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check(reading: &mut Reading<'_>, mut from: Vec<u8>, to: &[u8]) -> Result<()> {
    let mut whole: Option<(TxnId, Vec<u8>, u16)> = None;
    let mut writers: BTreeMap<Oid, TxnId> = BTreeMap::new();
    loop {
        let rows = reading.rows(&from, to)?;
        for (key, value) in &rows {
            let Some((txn, piece)) = reading.accept(rows::parse_txn(key))? else { continue };
            match &mut whole {
                Some((known, bytes, next)) if *known == txn && *next == piece => {
                    bytes.extend_from_slice(value);
                    *next += 1;
                }
                _ => {
                    finish(reading, whole.take(), &mut writers)?;
                    if piece == 0 {
                        whole = Some((txn, value.to_vec(), 1));
                    } else {
                        contradiction(reading, txn, format!("piece {piece} of its record has no piece before it"));
                    }
                }
            }
        }
        match rows.last().filter(|_| !is_end(&rows)) {
            Some((last, _)) => from = behind(last),
            None => return finish(reading, whole, &mut writers),
        }
    }
}

fn contradiction(reading: &mut Reading<'_>, txn: TxnId, what: impl Into<String>) {
    let node = reading.node();
    reading.report(Problem::TransactionContradictory { node, txn, what: what.into() });
}

/// All pieces of a record were seen.
fn finish(
    reading: &mut Reading<'_>,
    whole: Option<(TxnId, Vec<u8>, u16)>,
    writers: &mut BTreeMap<Oid, TxnId>,
) -> Result<()> {
    let Some((txn, bytes, _)) = whole else { return Ok(()) };
    let record = match decode_record(&bytes) {
        Ok((_, record)) => record,
        Err(error) => {
            contradiction(reading, txn, format!("its record cannot be decoded: {}", error.message()));
            return Ok(());
        }
    };
    if record.txn() != Some(txn) && !planted(Bug::TrustsKeys) {
        contradiction(reading, txn, "its record is that of another transaction");
        return Ok(());
    }
    let node = reading.node();
    match record {
        Record::Prepared { participants, part, .. } => {
            if !participants.contains(&node) {
                contradiction(reading, txn, "it is prepared and this logical node is none of its participants");
            }
            if !part.is_at(node) {
                contradiction(reading, txn, "it is prepared with objects of another logical node");
            }
            check_writes(reading, txn, &part, writers);
            check_contents(reading, txn, &part)?;
        }
        Record::Ended { .. } | Record::Marked { .. } => {}
        _ => contradiction(reading, txn, "its record is of a kind that is never stored"),
    }
    Ok(())
}

/// V2: no two prepared transactions write one object as a whole.
fn check_writes(reading: &mut Reading<'_>, txn: TxnId, part: &Part<Object>, writers: &mut BTreeMap<Oid, TxnId>) {
    for (oid, written) in &part.writes {
        if matches!(written, ObjectState::Changed(_)) {
            continue;
        }
        if let Some(other) = writers.insert(*oid, txn) {
            contradiction(reading, txn, format!("it is prepared and writes object {oid}, as does {other:?}"));
        }
    }
}

/// The contents that a prepared transaction will give to objects are staged, or are those of its objects already.
fn check_contents(reading: &mut Reading<'_>, txn: TxnId, part: &Part<Object>) -> Result<()> {
    for (oid, written) in &part.writes {
        let Some(id) = named_contents([written]).next() else { continue };
        if reading.state.get(&rows::staged_key(id))?.is_some() {
            continue;
        }
        let kept = match rows::read_object(reading.state, oid.page(), oid.slot()) {
            Err(error) if is_damage(&error) => continue,
            kept => kept?.and_then(|object| object.content()),
        };
        if kept.is_none_or(|kept| kept.id != id) {
            contradiction(
                reading,
                txn,
                format!("it is prepared to give object {oid} the content {id}, which is not staged"),
            );
        }
    }
    Ok(())
}

/// Checks a portion of what clients have heard.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check_marks(reading: &mut Reading<'_>, from: Vec<u8>, to: &[u8]) -> Result<()> {
    let node = reading.node();
    reading.each(&from, to, |reading, key, value| {
        let Some(client) = reading.accept(rows::parse_mark(key))? else { return Ok(()) };
        let decoded = decode_record(value);
        match reading.accept(decoded)? {
            None => {}
            Some((_, Record::Heard { client: of, .. })) if of == client => {}
            Some(_) => reading.report(Problem::MarkContradictory { node, client }),
        }
        Ok(())
    })
}

/// Checks a portion of the marks of staged contents.
///
/// # Errors
/// If rows cannot be read for another reason than damage.
pub(super) fn check_staged(reading: &mut Reading<'_>, from: Vec<u8>, to: &[u8]) -> Result<()> {
    reading.each(&from, to, |reading, key, value: &Bytes| {
        let Some((content, size)) = reading.accept(rows::parse_staged(key, value))? else { return Ok(()) };
        match reading.accept(reading.state.content_size(content))? {
            None => {}
            Some(None) => reading.report(Problem::StagedMissing { content }),
            Some(Some(found)) if found != size => reading.report(Problem::StagedSize { content, size, found }),
            Some(Some(_)) => {}
        }
        Ok(())
    })
}
