//! Opens the driver of a logical node with what the store has of it.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use meta::catalog::Removals;
use model::{Error, ErrorKind, NodeId, Object, Result};
use protocol::brick::Brick;
use protocol::commit::Record;
use protocol::commit::participant::ParticipantSettings;
use protocol::ident::{TxnId, Version};
use protocol::lease::Ms;
use store::RowChanges;
use wire::cluster::decode_record;

use super::admission::Admission;
use super::entry_writer::EntryWriter;
use super::index_keeper::{IndexKeeper, PortionLimits};
use super::page_allocator::PageAllocator;
use super::row_writer::RowWriter;
use super::staging::Staging;
use super::txn_rows::TxnRows;
use super::undecidable::Undecidable;
use super::{NodeDriver, named_contents, rows};
use crate::brick::answer_counts::AnswerCounts;
use crate::brick::node_usage::NodeUsage;
use crate::brick::page_rows::Rows;
use crate::brick::plant::{Bug, planted};
use crate::brick::recent_pages::RecentPages;
use crate::brick::row_reader::RowReader;
use protocol::validate::WindowLimits;

/// How a logical node is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSettings {
    /// The logical node.
    pub(crate) node: NodeId,
    /// How often it has moved.
    pub(crate) moves: u32,
    /// How far the clocks of machines may differ, in milliseconds.
    pub(crate) skew_ms: u64,
    /// How many changes validation remembers (V3).
    pub(crate) windows: WindowLimits,
    /// How much is done about an index at a time.
    pub(crate) portion: PortionLimits,
    /// How long an upload lasts after its last bytes, and a staged content without a transaction.
    pub(crate) upload_lease_ms: Ms,
    /// Another number at each opening of a logical node in this process.
    pub(crate) opening: u64,
    /// Whether the store had nothing of the node: see [`NodeDriver::opening_rows`].
    pub(crate) is_new: bool,
}

impl<C: Clone> NodeDriver<C> {
    /// The rows that must be durable before a node is opened of which the store has nothing: from then on there may be holders, whose
    /// leases a restart waits for (D4). `None` if the node was opened before.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn opening_rows(node: NodeId, reader: &RowReader) -> Result<Option<RowChanges>> {
        let limit = rows::limit_key(node);
        if reader.get(&limit)?.is_some() {
            return Ok(None);
        }
        let mut opened = RowChanges::new();
        opened.put(&limit, rows::encode_number(0));
        Ok(Some(opened))
    }

    /// Opens a logical node with what the store has of it.
    ///
    /// # Errors
    /// If that cannot be read.
    pub(crate) fn open(
        settings: OpenSettings,
        reader: RowReader,
        answer_counts: Arc<AnswerCounts>,
        now: Ms,
    ) -> Result<Self> {
        let OpenSettings { node, moves, skew_ms, windows, portion, upload_lease_ms, opening, is_new } = settings;
        let mut machine = Brick::new(ParticipantSettings { node, moves, skew_ms, windows });
        let mut txn_rows = TxnRows::new(node);
        let mut staging = Staging::open(node, moves, upload_lease_ms, &reader, now)?;
        let mut prepared_parts = Vec::new();
        let position_limit = rows::read_count(&reader, &rows::limit_key(node))?;
        let mut contradiction = Ok(());
        recover_records(node, &reader, |at, record, pieces| {
            if at.position > position_limit {
                contradiction = Err(later_than_limit(node, at, position_limit));
                return;
            }
            if let Some(other) = machine.contradicting(&record) {
                let txn = record.txn().unwrap_or(other);
                contradiction = Err(txn_damage_error(txn, &format!("it holds objects of transaction {other:?}")));
                return;
            }
            if let Some(txn) = record.txn() {
                txn_rows.recover(txn, pieces);
            }
            if let Record::Prepared { txn, part, .. } = &record
                && !planted(Bug::RecoveredContentForgotten)
            {
                named_contents(part.writes.values()).for_each(|id| staging.prepare(id, *txn));
                prepared_parts.push((*txn, part.clone()));
            }
            machine.recover(at, record);
        })?;
        contradiction?;
        if !is_new {
            machine.finish_recovery(position_limit, now);
        }
        let usage = NodeUsage::read(&reader, node)?;
        let index = IndexKeeper::open(node, portion, &reader, &machine.prepared_txns().collect(), now)?;
        let mut driver = Self {
            node,
            moves,
            reader,
            machine,
            holders: HashMap::new(),
            writer: RowWriter::open(node, opening, position_limit),
            txn_rows,
            pages: PageAllocator::new(node),
            index,
            staging,
            entries: EntryWriter::default(),
            usage,
            usage_corrected_in: 0,
            quota: None,
            removals: Removals::default(),
            admission: Admission::default(),
            undecidable: Undecidable::default(),
            recent: RecentPages::default(),
            changed_since_copy: None,
            failed: None,
            answer_counts,
            has_prepared: Arc::default(),
            postponed: VecDeque::new(),
            out: VecDeque::new(),
            flush_at: None,
        };
        driver.recover_growth(prepared_parts)?;
        driver.share_prepared();
        Ok(driver)
    }
}

/// Reads the records that the store has of a logical node, and shows each with its position and the number of its rows.
///
/// # Errors
/// If a row cannot be read, or is damaged.
pub(crate) fn recover_records(
    node: NodeId,
    reader: &impl Rows,
    mut recover: impl FnMut(Version, Record<Object>, u16),
) -> Result<()> {
    recover_transactions(node, reader, &mut recover)?;
    let mut recover_one = |row: &[u8]| recover_record(row, 1, &mut recover);
    let (from, to) = rows::mark_range(node);
    let mut failed = Ok(());
    reader.each(&from, &to, |_, row| {
        if planted(Bug::MarksNotRead) {
            return ControlFlow::Break(());
        }
        failed = recover_one(row);
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    for key in [rows::bound_key(node), rows::horizon_key(node)] {
        recover_one(&reader.get(&key)?.unwrap_or_default())?;
    }
    Ok(())
}

/// Calls `recover` with the record of each transaction, its position, and the number of its rows.
///
/// # Errors
/// If a row cannot be read, or is damaged.
pub(crate) fn recover_transactions(
    node: NodeId,
    state: &impl Rows,
    mut recover: impl FnMut(Version, Record<Object>, u16),
) -> Result<()> {
    let (from, to) = rows::txn_range(node);
    let (mut failed, mut whole) = (Ok(()), RecordPieces::default());
    state.each(&from, &to, |key, row| {
        failed = whole.add(key, row, &mut recover);
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    whole.end(&mut recover)
}

/// The pieces of the record of a transaction, as they are read.
#[derive(Default)]
struct RecordPieces {
    txn: Option<TxnId>,
    bytes: Vec<u8>,
    count: u16,
}

impl RecordPieces {
    /// Adds a row. If it is of another transaction, the one before is complete.
    fn add(&mut self, key: &[u8], row: &[u8], recover: &mut impl FnMut(Version, Record<Object>, u16)) -> Result<()> {
        let (txn, piece) = rows::parse_txn(key)?;
        if piece == 0 {
            std::mem::take(self).end(recover)?;
            self.txn = Some(txn);
        } else if self.txn != Some(txn) || self.count != piece {
            return Err(txn_damage_error(txn, &format!("piece {piece} of its record has no piece before it")));
        }
        self.bytes.extend_from_slice(row);
        self.count = piece.checked_add(1).ok_or_else(|| txn_damage_error(txn, "its record has too many pieces"))?;
        Ok(())
    }

    fn end(&self, recover: &mut impl FnMut(Version, Record<Object>, u16)) -> Result<()> {
        let Some(txn) = self.txn else { return Ok(()) };
        let (at, record) =
            decode_record(&self.bytes).map_err(|error| txn_damage_error(txn, error.message()).with_source(error))?;
        if record.txn() != Some(txn) {
            return Err(txn_damage_error(txn, "its record is that of another transaction"));
        }
        recover(at, record, self.count);
        Ok(())
    }
}

fn later_than_limit(node: NodeId, at: Version, limit: u64) -> Error {
    let what = format!(
        "a record of logical node {:x} has position {}, and no position above {limit} was given: its rows are damaged; see \"Mend\" in \
         docs/operations.md",
        node.0, at.position
    );
    Error::new(ErrorKind::Corrupt, what)
}

fn txn_damage_error(txn: TxnId, why: &str) -> Error {
    let what = format!("the record of transaction {txn:?} is damaged: {why}; see \"Mend\" in docs/operations.md");
    Error::new(ErrorKind::Corrupt, what)
}

/// Calls `recover` with a record that has this many rows; nothing, if there is none.
fn recover_record(record: &[u8], pieces: u16, recover: &mut impl FnMut(Version, Record<Object>, u16)) -> Result<()> {
    if !record.is_empty() {
        let damaged = |error: Error| {
            let what = format!("a record of a mark or a bound is damaged: {error}; see \"Mend\" in docs/operations.md");
            Error::new(ErrorKind::Corrupt, what).with_source(error)
        };
        let (at, record) = decode_record(record).map_err(damaged)?;
        recover(at, record, pieces);
    }
    Ok(())
}
