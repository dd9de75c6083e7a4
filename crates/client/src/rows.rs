//! Results of queries, row by row.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{Error, ErrorKind, FieldNumber, NodeId, Object, Oid, RecordRef, Result, Value};
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;
use query::{Query, Row};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{self, Instant};
use wire::cluster;
use wire::link::{Answer, Caller, Pending};
use wire::proto::query as messages;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::client_core::{Core, unexpected_answer_error};
use super::transaction::Transaction;
use crate::plant::{Bug, planted};

/// The steps of a query, and how many objects each has produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// As text: a line for each step, the last step first.
    pub text: String,
    /// As JSON: nested steps.
    pub json: String,
}

/// What the answer of a query relies on.
pub(super) struct ReadSet {
    pub(super) reads: Vec<Read>,
    pub(super) at: HlcTimestamp,
}

/// Options of a query.
#[derive(Debug, Default)]
pub(super) struct QueryOptions {
    pub(super) own_writes: std::collections::BTreeMap<Oid, Option<Object>>,
    pub(super) report_reads: bool,
    pub(super) only_guards: bool,
    pub(super) explain: bool,
}

/// The rows of a query, as they arrive. Dropping it ends the query.
///
/// In a transaction, the rows are valid only if the transaction commits, as everything that it reads.
#[derive(Debug)]
pub struct Rows {
    core: Arc<Core>,
    /// The connection of the query; none if all rows are here.
    caller: Option<Caller>,
    /// The transaction of the query, if any.
    transaction: Option<Transaction>,
    /// The request for the next rows, which is sent before the current ones are read.
    pending: Option<Pending>,
    cursor: Option<u64>,
    /// It bounds the open queries; none if the query has ended.
    open: Option<Arc<OwnedSemaphorePermit>>,
    columns: Vec<String>,
    rows: VecDeque<Row>,
    explanation: Option<Explanation>,
    /// What the answer relies on, outside of a transaction.
    read_set: Vec<Read>,
    /// The logical nodes that the peer server waits for, as of its last message.
    waits_for: Vec<NodeId>,
    /// How long the peer server had waited for bricks when it answered the request for the query.
    waited: Duration,
    /// Why there are no more rows, if that is no end.
    failed: Option<(ErrorKind, String)>,
}

impl Rows {
    /// Sends a query, and waits for the first rows.
    pub(super) async fn ask(
        core: &Arc<Core>,
        query: &Query,
        asking: QueryOptions,
        transaction: Option<Transaction>,
    ) -> Result<Self> {
        let QueryOptions { own_writes: own, report_reads: reads, only_guards, explain } = asking;
        let asked = cluster::QueryRequest {
            query: query.encode()?.into(),
            own_writes: own,
            report_reads: reads,
            only_guards,
            explain,
        };
        let (message, raw) = asked.into_proto();
        let open = Arc::new(core.wait_to_query().await?);
        let asked_at = Instant::now();
        let (caller, answer) = core.ask_query(Request::Query(message), raw, &open).await?;
        let (columns, rows) = (Vec::new(), VecDeque::new());
        let (core, cursor) = (core.clone(), None);
        let mut asked = Self {
            core,
            caller: Some(caller),
            transaction,
            pending: None,
            cursor,
            open: Some(open),
            columns,
            rows,
            explanation: None,
            read_set: Vec::new(),
            waits_for: Vec::new(),
            waited: Duration::ZERO,
            failed: None,
        };
        let first = decode_rows(answer)?;
        asked.columns.clone_from(&first.columns);
        asked.handle_rows(first)?;
        asked.waited = asked_at.elapsed();
        Ok(asked)
    }

    /// The object that a look-up has found, if any.
    pub(super) fn of_look_up(core: &Arc<Core>, found: Option<(Oid, Object)>) -> Self {
        Self {
            core: core.clone(),
            caller: None,
            transaction: None,
            pending: None,
            cursor: None,
            open: None,
            columns: Vec::new(),
            rows: found.into_iter().map(|(oid, object)| Row::Object(oid, object.data)).collect(),
            explanation: None,
            read_set: Vec::new(),
            waits_for: Vec::new(),
            waited: Duration::ZERO,
            failed: None,
        }
    }

    /// The names of the columns; empty if rows are whole objects.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if a brick or the peer server does not answer in time, or the connection ends;
    /// [`ErrorKind::Conflict`] if the transaction cannot be committed any more; other errors of the query. Each later call returns the error
    /// again.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        if let Some((kind, what)) = &self.failed {
            return Err(Error::new(*kind, what.clone()));
        }
        let next = self.receive().await;
        if let Err(error) = &next {
            self.failed = Some((error.kind(), error.message().to_owned()));
        }
        next
    }

    async fn receive(&mut self) -> Result<Option<Row>> {
        let waited = std::mem::take(&mut self.waited);
        let mut patience = QueryTimeout::new(self.core.options.timeout, Instant::now(), waited);
        loop {
            // The next rows are requested while these are read.
            if let (None, Some(cursor), Some(caller)) = (&self.pending, self.cursor, &self.caller) {
                let fetch = Request::FetchRows(messages::FetchRows { cursor });
                self.pending = Some(caller.begin(fetch, Vec::new()).await?);
            }
            if let Some(row) = self.rows.pop_front() {
                return Ok(Some(row));
            }
            let Some(coming) = &mut self.pending else { return Ok(None) };
            // The peer server reports at intervals that it is at work, and which bricks it waits for.
            let until = patience.deadline(!self.waits_for.is_empty(), Instant::now());
            let late = |_| self.core.timeout_error(&self.waits_for);
            let come = time::timeout_at(until, coming.answer()).await.map_err(late).and_then(|come| come);
            let come = come.map_err(|error| match error.kind() {
                // Another peer server does not know the query.
                ErrorKind::Unknown => {
                    Error::new(ErrorKind::Unavailable, "the connection ended during the query: run it again")
                }
                _ => error,
            });
            self.pending = None;
            if let Err(error) = come.and_then(decode_rows).and_then(|come| self.handle_rows(come)) {
                self.end();
                return match &self.transaction {
                    Some(transaction) => transaction.note_timeout(Err(error)),
                    None => Err(error),
                };
            }
        }
    }

    /// All remaining rows.
    ///
    /// # Errors
    /// As [`Rows::next`].
    pub async fn all(mut self) -> Result<Vec<Row>> {
        let mut all = Vec::new();
        while let Some(row) = self.next().await? {
            all.push(row);
        }
        Ok(all)
    }

    /// The steps of the query, if they were requested and all rows have arrived.
    #[must_use]
    pub fn explanation(&self) -> Option<&Explanation> {
        self.explanation.as_ref()
    }

    /// What the rows so far rely on, outside of a transaction.
    pub(super) fn take_read_set(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.read_set)
    }

    /// Takes rows that have arrived.
    fn handle_rows(&mut self, come: cluster::QueryRows) -> Result<()> {
        let cluster::QueryRows { cursor, oids, rows, reads, seen, plan: (text, json), waits_for, .. } = come;
        self.waits_for = waits_for;
        if oids.is_empty() {
            let columns = self.columns.len();
            self.rows = rows.iter().map(|row| values(row, columns).map(Row::Values)).collect::<Result<_>>()?;
        } else {
            self.rows = oids.into_iter().zip(rows).map(|(oid, record)| Row::Object(oid, record)).collect();
        }
        self.cursor = cursor;
        if cursor.is_none() {
            self.open = None;
        }
        if !text.is_empty() {
            self.explanation = Some(Explanation { text, json: String::from_utf8_lossy(&json).into_owned() });
        }
        match &self.transaction {
            Some(transaction) => transaction.rely(ReadSet { reads, at: seen }),
            None => {
                self.read_set.extend(reads);
                Ok(())
            }
        }
    }

    fn end(&mut self) {
        self.pending = None;
        if let (Some(cursor), Some(caller)) = (self.cursor.take(), &self.caller) {
            caller.send_one_way(Request::EndQuery(messages::EndQuery { cursor }));
        }
        self.open = None;
    }
}

impl Drop for Rows {
    fn drop(&mut self) {
        self.end();
    }
}

/// A query of which the first rows have not come. If it is dropped before, the query is ended when they come, and counts as open until then.
pub(super) struct FirstRows<'a> {
    caller: &'a Caller,
    /// None if they have come.
    pending: Option<Pending>,
    open: &'a Arc<OwnedSemaphorePermit>,
    /// That of the task that asks. What asks outside of a runtime leaves the end to the peer server's time limit for idle queries.
    runtime: Option<Handle>,
}

impl<'a> FirstRows<'a> {
    pub(super) fn new(caller: &'a Caller, pending: Pending, open: &'a Arc<OwnedSemaphorePermit>) -> Self {
        Self { caller, pending: Some(pending), open, runtime: Handle::try_current().ok() }
    }

    pub(super) async fn answer(mut self) -> Result<Answer> {
        let Some(pending) = &mut self.pending else { return Err(unexpected_answer_error()) };
        let answer = pending.answer().await;
        self.pending = None;
        answer
    }
}

impl Drop for FirstRows<'_> {
    fn drop(&mut self) {
        let Some(mut pending) = self.pending.take() else { return };
        let (caller, open) = (self.caller.clone(), self.open.clone());
        let end = async move {
            // After an error no query is open.
            if let Ok(cluster::QueryRows { cursor: Some(cursor), .. }) = pending.answer().await.and_then(decode_rows) {
                caller.send_one_way(Request::EndQuery(messages::EndQuery { cursor }));
            }
            drop(open);
        };
        if let Some(runtime) = &self.runtime {
            tasks::spawn_on(runtime, end);
        }
    }
}

/// The time limit of a query whose peer server reports what it waits for.
struct QueryTimeout {
    timeout: Duration,
    /// Since when the peer server may have waited for bricks: the last message that reported something else.
    progressed: Instant,
}

impl QueryTimeout {
    /// A time limit for what follows, if the peer server has waited for bricks for this time already.
    fn new(timeout: Duration, now: Instant, waited: Duration) -> Self {
        Self { timeout, progressed: now.checked_sub(waited).unwrap_or(now) }
    }

    /// When the next message is due. Each message restarts the time limit, unless the peer server waits for bricks: bricks have the
    /// time limit once.
    fn deadline(&mut self, waits_for_bricks: bool, now: Instant) -> Instant {
        if !waits_for_bricks || planted(Bug::StalledBrickWaitedForAnew) {
            self.progressed = now;
        }
        self.progressed + self.timeout
    }
}

fn decode_rows(answer: Answer) -> Result<cluster::QueryRows> {
    let Response::Rows(rows) = answer.response else {
        return Err(unexpected_answer_error());
    };
    cluster::QueryRows::from_proto(*rows, answer.raw)
}

/// The values of a row, which is encoded as a record.
fn values(row: &Bytes, columns: usize) -> Result<Vec<Value>> {
    let record = RecordRef::new(row)?;
    let value = |number| record.field(FieldNumber(number))?.map_or(Ok(Value::Null), |value| value.to_value());
    (1..).take(columns).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::planted_bug::is_noticed;

    #[test]
    fn timeout_counts_from_the_last_progress_while_the_peer_server_waits_for_a_brick() {
        timeout_is_not_restarted_while_a_brick_is_waited_for();
        assert!(is_noticed(Bug::StalledBrickWaitedForAnew, timeout_is_not_restarted_while_a_brick_is_waited_for));
    }

    fn timeout_is_not_restarted_while_a_brick_is_waited_for() {
        let asked = Instant::now();
        let after = |seconds| asked + Duration::from_secs(seconds);
        let mut patience = QueryTimeout::new(Duration::from_secs(10), asked, Duration::ZERO);
        let mut until = |waits_for_bricks, seconds| patience.deadline(waits_for_bricks, after(seconds));
        assert_eq!(until(false, 0), after(10));
        assert_eq!(until(false, 18), after(28), "it is at work");
        assert_eq!(until(true, 20), after(28), "the brick has the time since the last progress");
        assert_eq!(until(true, 22), after(28), "it still waits");
        assert_eq!(until(false, 24), after(34), "it goes on");
        assert_eq!(until(true, 26), after(34), "this is another time");
        // The first answer came after two seconds, and said that a brick was waited for.
        let waited = Duration::from_secs(2);
        assert_eq!(QueryTimeout::new(Duration::from_secs(10), after(2), waited).deadline(true, after(2)), after(10));
    }
}
