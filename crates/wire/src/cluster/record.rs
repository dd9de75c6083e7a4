//! The records that a participant keeps of transactions, as bytes on its disk.
//!
//! ```text
//!  0         1
//! +---------+-------------------+--------+-----------------+
//! | format  | length of message | Record | data of objects |
//! |  1, u8  |      varint       |        |                 |
//! +---------+-------------------+--------+-----------------+
//! ```
//!
//! The rows of the store that hold them have checksums.

use bytes::{BufMut, Bytes};
use model::{Object, Result};
use prost::Message;
use protocol::commit::{Part, Record};
use protocol::ident::{ClientId, TxnId, Version};

use super::states::{self, Check, Data};
use super::{calls, entries, ids, verdict};
use crate::convert::{invalid, missing};
use crate::frame::Raw;
use crate::proto::cluster as proto;
use crate::proto::cluster::record::Record as RecordMessage;

const FORMAT: u8 = 1;

/// Encodes a record and its position in the log.
#[must_use]
pub fn encode_record(record: &Record<Object>, version: Version) -> Bytes {
    let mut raw = Vec::new();
    let (txn, record) = record_to_proto(record, &mut raw);
    let version = Some(version.into());
    let head = proto::Record { version, txn: txn.map(Into::into), record: Some(record) };
    let length = head.encoded_len();
    let data: usize = raw.iter().map(Bytes::len).sum();
    let mut bytes = Vec::with_capacity(1 + prost::length_delimiter_len(length) + length + data);
    bytes.put_u8(FORMAT);
    head.encode_length_delimited(&mut bytes).expect("encoding into a vector succeeds");
    for part in raw {
        bytes.extend_from_slice(&part);
    }
    bytes.into()
}

fn record_to_proto(record: &Record<Object>, raw: &mut Vec<Bytes>) -> (Option<TxnId>, RecordMessage) {
    match record {
        Record::Prepared { txn, participants, part, proposal } => {
            let prepared = proto::RecordPrepared {
                participants: ids::numbers(participants),
                reads: states::reads_to_proto(part.reads.runs()),
                writes: states::writes_to_proto(part.writes.iter(), raw),
                proposal: proposal.0,
                touches: states::touches_to_proto(&part.touches),
                entries: entries::changes_to_proto(part.entries.iter()),
                offsets: states::offsets_to_proto(&part.offsets),
            };
            (Some(*txn), RecordMessage::Prepared(prepared))
        }
        Record::Committed { txn, timestamp, writes, touches, entries, offsets } => {
            let committed = proto::RecordCommitted {
                timestamp: timestamp.0,
                writes: states::writes_to_proto(writes.iter(), raw),
                touches: states::touches_to_proto(touches),
                entries: entries::changes_to_proto(entries.iter()),
                offsets: states::offsets_to_proto(offsets),
            };
            (Some(*txn), RecordMessage::Committed(committed))
        }
        Record::Decided { txn, outcome, writes, touches, entries, offsets, participants } => {
            let decided = proto::RecordDecided {
                outcome: Some(verdict::outcome_to_proto(*outcome)),
                writes: states::writes_to_proto(writes.iter(), raw),
                participants: ids::numbers(participants),
                touches: states::touches_to_proto(touches),
                entries: entries::changes_to_proto(entries.iter()),
                offsets: states::offsets_to_proto(offsets),
            };
            (Some(*txn), RecordMessage::Decided(decided))
        }
        Record::Marked { txn } => (Some(*txn), RecordMessage::Marked(proto::Nothing {})),
        Record::Bound(at) => (None, RecordMessage::Bound(at.0)),
        Record::Horizon(at) => (None, RecordMessage::Horizon(at.0)),
        Record::Heard { client, mark } => {
            let heard = proto::RecordHeard { client: client.0, mark: Some(verdict::mark_to_proto(mark)) };
            (None, RecordMessage::Heard(heard))
        }
        Record::Ended { txn, outcome, version, offsets, participants, acknowledged } => {
            let ended = proto::RecordEnded {
                outcome: Some(verdict::outcome_to_proto(*outcome)),
                version: version.map(Into::into),
                participants: ids::numbers(participants),
                offsets: states::offsets_to_proto(offsets),
                acknowledged: *acknowledged,
            };
            (Some(*txn), RecordMessage::Ended(ended))
        }
    }
}

/// Decodes a record and its position.
///
/// # Errors
/// If the bytes are not a record, or one of a later version of Mortar.
pub fn decode_record(bytes: &[u8]) -> Result<(Version, Record<Object>)> {
    let (head, data) = match bytes.split_first() {
        Some((&FORMAT, rest)) => part_head(rest)?,
        Some((format, _)) => {
            return Err(invalid(format!("a record of a transaction has format {format}, not {FORMAT}")));
        }
        None => return Err(invalid("a record of a transaction is empty")),
    };
    let head = proto::Record::decode(head)
        .map_err(|error| invalid("a record of a transaction cannot be decoded").with_source(error))?;
    let mut data = Data::new(Raw::Borrowed(data), Check::Lengths);
    let version = ids::version(head.version)?;
    let record = head.record.ok_or_else(|| missing("content"))?;
    let record = record_from_proto(record, head.txn, &mut data)?;
    data.finish()?;
    Ok((version, record))
}

fn part_head(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let mut rest = bytes;
    let length = prost::decode_length_delimiter(&mut rest).ok();
    let parts = length.and_then(|length| rest.split_at_checked(length));
    parts.ok_or_else(|| invalid("a record of a transaction is truncated"))
}

fn record_from_proto(
    record: RecordMessage,
    txn: Option<crate::proto::Txn>,
    data: &mut Data<'_>,
) -> Result<Record<Object>> {
    Ok(match record {
        RecordMessage::Prepared(prepared) => Record::Prepared {
            txn: ids::txn(txn)?,
            participants: ids::nodes(prepared.participants)?,
            part: Part {
                offsets: states::offsets(&prepared.offsets)?,
                ..calls::part(prepared.reads, prepared.writes, &prepared.touches, prepared.entries, data)?
            },
            proposal: ids::timestamp(prepared.proposal)?,
        },
        RecordMessage::Committed(committed) => Record::Committed {
            txn: ids::txn(txn)?,
            timestamp: ids::timestamp(committed.timestamp)?,
            writes: states::writes(committed.writes, data)?,
            touches: states::touches(&committed.touches)?,
            entries: entries::changes(committed.entries)?,
            offsets: states::offsets(&committed.offsets)?,
        },
        RecordMessage::Decided(decided) => Record::Decided {
            txn: ids::txn(txn)?,
            outcome: verdict::outcome(decided.outcome)?,
            writes: states::writes(decided.writes, data)?,
            touches: states::touches(&decided.touches)?,
            entries: entries::changes(decided.entries)?,
            offsets: states::offsets(&decided.offsets)?,
            participants: ids::nodes(decided.participants)?,
        },
        RecordMessage::Marked(_) => Record::Marked { txn: ids::txn(txn)? },
        RecordMessage::Bound(at) => Record::Bound(ids::timestamp(at)?),
        RecordMessage::Horizon(at) => Record::Horizon(ids::timestamp(at)?),
        RecordMessage::Heard(heard) => {
            Record::Heard { client: ClientId(heard.client), mark: verdict::mark(heard.mark)? }
        }
        RecordMessage::Ended(ended) => Record::Ended {
            txn: ids::txn(txn)?,
            outcome: verdict::outcome(ended.outcome)?,
            version: ids::optional_version(ended.version)?,
            offsets: states::offsets(&ended.offsets)?,
            participants: ids::nodes(ended.participants)?,
            acknowledged: ended.acknowledged,
        },
    })
}
