//! Queries of clients, and their rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Object, Oid, Result, limits};
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;

use super::states::{self, Check, Data, MAX_MESSAGE_WRITES};
use crate::convert::invalid;
use crate::frame::Raw;
use crate::proto;
use crate::proto::query as messages;

/// Most bytes of an encoded query.
pub const MAX_QUERY_BYTES: usize = 1 << 20;
/// Most open queries of one connection.
pub const MAX_OPEN_QUERIES: usize = 64;
/// Most rows in one answer.
const MAX_ROWS: usize = limits::LISTING;
/// Most columns of a row.
pub const MAX_COLUMNS: usize = 256;
/// Most logical nodes that an answer can name as unreachable.
pub const MAX_WAITS_FOR: usize = 64;

/// A query of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRequest {
    /// The query, encoded.
    pub query: Bytes,
    /// The objects that the transaction has written; `None` where it has deleted one.
    pub own_writes: BTreeMap<Oid, Option<Object>>,
    /// Whether to return the read set.
    pub report_reads: bool,
    /// Whether to return only the guards of the scanned sets, without rows.
    pub only_guards: bool,
    /// Whether to return the plan.
    pub explain: bool,
}

/// Rows of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRows {
    /// The cursor for the next rows; `None` if these are the last.
    pub cursor: Option<u64>,
    /// The column names, with the first rows.
    pub columns: Vec<String>,
    /// The identifiers, if rows are objects: one for each row.
    pub oids: Vec<Oid>,
    /// The record of each row.
    pub rows: Vec<Bytes>,
    /// The reads that these rows depend on, apart from those of earlier answers.
    pub reads: Vec<Read>,
    /// A time at or after all changes that were read.
    pub seen: HlcTimestamp,
    /// The plan as text and as JSON, with the last rows; empty if it was not requested.
    pub plan: (String, Bytes),
    /// If there are no rows: unreachable logical nodes for which the query waits, at most [`MAX_WAITS_FOR`].
    pub waits_for: Vec<NodeId>,
}

impl QueryRequest {
    /// Encodes the request and its raw part.
    #[must_use]
    pub fn into_proto(self) -> (messages::Query, Vec<Bytes>) {
        let Self { query, own_writes: own, report_reads: reads, only_guards, explain } = self;
        let mut raw = Vec::new();
        let mut list = proto::cluster::Writes::default();
        for (oid, object) in &own {
            let oid = proto::Oid::from(*oid);
            list.oids.extend([oid.high, oid.low]);
            list.states.push(states::state(object.as_ref(), &mut raw));
        }
        let own = (!list.states.is_empty()).then_some(list);
        (messages::Query { query, own_writes: own, report_reads: reads, only_guards, explain }, raw)
    }

    /// Decodes a request and its raw part.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(message: messages::Query, raw: Raw<'_>) -> Result<Self> {
        let messages::Query { query, own_writes: own, report_reads: reads, only_guards, explain } = message;
        if query.len() > MAX_QUERY_BYTES {
            let what = format!("a query has {} bytes; it may have {MAX_QUERY_BYTES}", query.len());
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let list = own.unwrap_or_default();
        let oids = states::split_chunks::<2, _>(&list.oids, MAX_MESSAGE_WRITES, "writes")?;
        if oids.len() != list.states.len() {
            return Err(invalid(format!(
                "a list of writes has {} objects and {} states",
                oids.len(),
                list.states.len()
            )));
        }
        let mut data = Data::new(raw, Check::Records);
        let mut own = Vec::with_capacity(oids.len());
        for ([high, low], state) in oids.iter().zip(&list.states) {
            let oid = Oid::from(proto::Oid { high: *high, low: *low });
            if own.last().is_some_and(|(last, _)| *last >= oid) {
                return Err(invalid(format!("the write of {oid} is out of order, or repeated")));
            }
            own.push((oid, data.object(oid.class(), *state)?));
        }
        data.finish()?;
        Ok(Self { query, own_writes: own.into_iter().collect(), report_reads: reads, only_guards, explain })
    }
}

impl QueryRows {
    /// Encodes the answer and its raw part.
    #[must_use]
    pub fn into_proto(self) -> (messages::Rows, Vec<Bytes>) {
        let Self { cursor, columns, oids, rows, reads, seen, plan: (plan, plan_json), waits_for } = self;
        let halves = oids.iter().flat_map(|oid| {
            let oid = proto::Oid::from(*oid);
            [oid.high, oid.low]
        });
        let oids = halves.collect();
        // A row is not larger than a frame, whose length has 32 bits.
        let lengths = rows.iter().map(|row| row.len() as u32).collect();
        let reads = states::read_slice_to_proto(&reads);
        let waits_for = waits_for.into_iter().map(|node| node.0).collect();
        (messages::Rows { cursor, columns, oids, lengths, reads, seen: seen.0, plan, plan_json, waits_for }, rows)
    }

    /// Decodes an answer and its raw part.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(message: messages::Rows, mut raw: Bytes) -> Result<Self> {
        let messages::Rows { cursor, columns, oids, lengths, reads, seen, plan, plan_json, waits_for } = message;
        let halves = states::split_chunks::<2, _>(&oids, MAX_ROWS, "rows")?;
        if lengths.len() > MAX_ROWS
            || columns.len() > MAX_COLUMNS
            || !(oids.is_empty() || halves.len() == lengths.len())
        {
            let (rows, columns) = (lengths.len(), columns.len());
            let what = format!("an answer has {rows} rows of {columns} columns, and {} identifiers", halves.len());
            return Err(invalid(what));
        }
        if lengths.iter().map(|length| *length as usize).sum::<usize>() != raw.len() {
            return Err(invalid("the lengths of rows do not add up to the raw part"));
        }
        let rows = lengths.iter().map(|length| raw.split_to(*length as usize)).collect();
        let oids = halves.iter().map(|[high, low]| Oid::from(proto::Oid { high: *high, low: *low })).collect();
        let (reads, seen) = (states::read_vec(reads)?, HlcTimestamp(seen));
        if waits_for.len() > MAX_WAITS_FOR {
            return Err(invalid(format!(
                "an answer names {} unreachable logical nodes; it may name {MAX_WAITS_FOR}",
                waits_for.len()
            )));
        }
        let waits_for = waits_for.into_iter().map(super::node).collect::<Result<_>>()?;
        Ok(Self { cursor, columns, oids, rows, reads, seen, plan: (plan, plan_json), waits_for })
    }
}
