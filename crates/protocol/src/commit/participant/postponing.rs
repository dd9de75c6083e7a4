//! Requests that conflict with outcomes that are in the log and not durable yet.
//!
//! A transaction holds its objects until its outcome is durable (V2). Its client may know the outcome before: one of
//! several participants is told when all have prepared (C1). The next transaction of that client then comes while the
//! outcome is being forced, and there is no reason to refuse it. So its request is *postponed*: it is handled again when
//! the outcome is durable, as if the network had delivered it later. If it conflicts again, it is refused: a writer of an
//! object that is read all the time would else wait for ever, and it would never take locks.
//!
//! - **W1.** This is no wait for another transaction: the outcome becomes durable whatever other nodes do. A request
//!   that conflicts with an undecided transaction is refused at once.
//! - What has certainly read an outdated state is refused at once, too.
//! - **V3.** An acknowledgement of the client comes behind its request and may be handled before it now. It must not raise the
//!   floor above what the request has read: no window of a page that it [has read](Participant::is_read_by_postponed) is retired.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use model::PageId;

use super::{DurableAction, Outcome, Output, Participant, TxnState};
use crate::commit::Request;
use crate::ident::TxnId;
use crate::plant::{Bug, planted};
use crate::read_list::ReadList;
use crate::validate::{Cause, ReadVersion, ValidationConflict};

/// A request that is handled again.
#[derive(Clone, Debug)]
pub(super) struct PostponedRequest {
    /// The pages that its transaction has read.
    pages: Vec<PageId>,
    /// Whether the outcome that it waits for is not durable.
    is_waiting: bool,
}

impl<A: Clone, T: Clone> Participant<A, T> {
    /// The position of the outcome by which a conflict may be over. `None` if the transaction must be refused.
    pub(super) fn outcome_to_await(&self, reads: &ReadList, conflict: &ValidationConflict) -> Option<u64> {
        let oid = conflict.oid;
        let other = match conflict.cause {
            Cause::Held(other) => other,
            Cause::Stale(_) => match reads.state_of(oid)? {
                ReadVersion::Written(writer) => writer,
                ReadVersion::At(_) => return None,
            },
        };
        let Some(TxnState::Ended { outcome, position, .. }) = self.transactions.get(&other) else { return None };
        let is_replaced = *outcome != Outcome::Aborted
            && self.validator.is_written_by(other, oid)
            && matches!(reads.state_of(oid), Some(ReadVersion::At(_)));
        (*position > self.forced && !is_replaced && !planted(Bug::CommittedRefuses)).then_some(*position)
    }

    /// Handles a request again when the log is durable up to `position`. If it is a repeated one, its sender gets the answer.
    pub(super) fn postpone(&mut self, position: u64, from: A, request: Request<T>) {
        let txn = request.txn();
        if self.postponed.contains_key(&txn) {
            let known = self.waiting.iter_mut().find_map(|(_, action)| match action {
                DurableAction::Again(known, request) if request.txn() == txn => Some(known),
                _ => None,
            });
            if let Some(known) = known {
                *known = from;
            }
            return;
        }
        let pages: Vec<PageId> = match &request {
            Request::Prepare { part, .. } | Request::Commit { part, .. } => part.reads.pages().collect(),
            Request::Check { reads, .. } => reads.pages().collect(),
            _ => Vec::new(),
        };
        for page in &pages {
            *self.read_by_postponed.entry(*page).or_default() += 1;
        }
        self.postponed.insert(txn, PostponedRequest { pages, is_waiting: true });
        self.run_when_durable(position, DurableAction::Again(from, request));
    }

    /// Forgets a postponed request that is to be handled again. Says whether there was one.
    pub(crate) fn end_postponement(&mut self, txn: TxnId) -> bool {
        let Entry::Occupied(request) = self.postponed.entry(txn) else { return false };
        if request.get().is_waiting {
            return false;
        }
        let ended = request.remove();
        for page in ended.pages {
            let Entry::Occupied(mut requests) = self.read_by_postponed.entry(page) else {
                unreachable!("V3: {txn:?} was postponed and has read {page:?}, which no postponed request has read");
            };
            *requests.get_mut() -= 1;
            if *requests.get() == 0 {
                requests.remove();
            }
        }
        true
    }

    /// Whether a postponed request has read a page, whose window must not be retired then (V3).
    #[must_use]
    pub fn is_read_by_postponed(&self, page: PageId) -> bool {
        self.read_by_postponed.contains_key(&page) && !planted(Bug::PostponedReadsRetired)
    }

    /// Checks that each postponed request waits for a record.
    pub(super) fn check_postponed(&self) -> Result<(), String> {
        let waiting = self.waiting.iter().filter_map(|(_, action)| match action {
            DurableAction::Again(_, request) => Some(request.txn()),
            _ => None,
        });
        let waiting: BTreeSet<TxnId> = waiting.collect();
        let postponed = self.postponed.iter().filter(|(_, request)| request.is_waiting);
        let postponed: BTreeSet<TxnId> = postponed.map(|(txn, _)| *txn).collect();
        match postponed.symmetric_difference(&waiting).next() {
            Some(txn) => Err(format!("W1: {txn:?} is postponed and waits for no record, or the reverse")),
            None => Ok(()),
        }
    }

    pub(super) fn run_postponed(&mut self, from: A, request: Request<T>) {
        if planted(Bug::PostponedForgotten) {
            return;
        }
        if let Some(postponed) = self.postponed.get_mut(&request.txn()) {
            postponed.is_waiting = false;
        }
        self.out.push(Output::Again(from, request));
    }
}
