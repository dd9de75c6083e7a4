//! Prepared transactions whose outcome cannot be written here, because rows are damaged that it replaces.
//!
//! All participants have prepared such a transaction, so it is committed (C1), whatever this logical node can read. Its record says so
//! already: it stays prepared here, and holds its objects, until the rows can be read or were given up. Its coordinators go on to ask,
//! as if the node were away, and the other participants keep the outcome. Everything else is served.
//!
//! 1. The rows are read before the machine hears of the outcome, because a record that it has output cannot be refused. An abort replaces
//!    no rows.
//! 2. Who needs an object that such a transaction holds hears of the damage: waiting or repeating does not help.

use std::collections::BTreeMap;

use model::{Error, ErrorKind, Oid, Result};
use protocol::commit::{Answer, Outcome, Refusal, Request};
use protocol::ident::TxnId;
use protocol::lease::Ms;
use protocol::validate::{Cause, ValidationConflict};
use tracing::{error, info};

use super::admission::{DeferredTransaction, guards_of_entries};
use super::{NodeDriver, Object};
use crate::brick::consistency::is_damage;
use crate::brick::plant::{Bug, planted};
use crate::brick::recent_pages::ObjectReader;

/// The pause between two attempts to write an outcome, in milliseconds. Coordinators ask more often.
const RETRY_MS: Ms = 1_000;

/// Why the outcome of a transaction cannot be written, and when it is tried again.
#[derive(Debug)]
struct Obstacle {
    why: String,
    retry_at: Ms,
}

/// The transactions whose outcome cannot be written.
#[derive(Debug, Default)]
pub(super) struct Undecidable {
    obstacles: BTreeMap<TxnId, Obstacle>,
}

impl Undecidable {
    /// Why the first of them cannot be ended.
    pub(super) fn first(&self) -> Option<(TxnId, &str)> {
        self.obstacles.first_key_value().map(|(txn, obstacle)| (*txn, &*obstacle.why))
    }

    /// What to tell a transaction that needs an object which one of these holds.
    fn deferral(&self, holder: TxnId) -> Option<DeferredTransaction> {
        let Obstacle { why, .. } = self.obstacles.get(&holder)?;
        let why = format!("an object that it needs is held by a committed transaction that cannot be written: {why}");
        Some(DeferredTransaction { kind: ErrorKind::Corrupt, why })
    }
}

impl<C: Clone> NodeDriver<C> {
    /// Whether a request tells an outcome that cannot be written now. It counts as lost then.
    pub(super) fn is_undecidable(&mut self, request: &Request<Object>, now: Ms) -> bool {
        let &Request::Decide { txn, outcome } = request else { return false };
        if self.undecidable.obstacles.get(&txn).is_some_and(|obstacle| now < obstacle.retry_at)
            && outcome != Outcome::Aborted
        {
            return true;
        }
        let read = if outcome == Outcome::Aborted { Ok(()) } else { self.read_replaced_by_prepared(txn) };
        match read {
            Ok(()) => {
                if self.undecidable.obstacles.remove(&txn).is_some() {
                    info!(node = %self.node, ?txn, "the outcome of a transaction can be written again");
                }
                false
            }
            Err(error) if is_damage(&error) && !planted(Bug::DamageEndsNode) => {
                let obstacle = Obstacle { why: error.message().to_owned(), retry_at: now.saturating_add(RETRY_MS) };
                if self.undecidable.obstacles.insert(txn, obstacle).is_none() {
                    error!(node = %self.node, ?txn, %error, "the outcome of a transaction cannot be written: it stays prepared");
                }
                true
            }
            Err(error) => {
                self.fail(error);
                true
            }
        }
    }

    /// Reads what the outcome of a prepared transaction replaces if it is committed, as far as it is not known any more.
    ///
    /// # Errors
    /// If something of that cannot be read; [`ErrorKind::Corrupt`] if it is damaged, or a change of a part of a blob that is lost.
    fn read_replaced_by_prepared(&mut self, txn: TxnId) -> Result<()> {
        let newest = self.newest_version();
        let Some(part) = self.machine.prepared_part(txn) else { return Ok(()) };
        let guards = guards_of_entries(&part.entries);
        for oid in part.writes.keys().chain(&part.touches).chain(&guards) {
            self.recent.enter(oid.page(), &self.reader, newest)?;
        }
        self.entries.read_replaced(&part.entries, false, &self.reader)?;
        let is_current = |replaced: &_| self.index.indexes.is_current(replaced) || planted(Bug::OutdatedReplacedUsed);
        if self.admission.knows_replaced(txn, is_current) {
            return Ok(());
        }
        let objects = ObjectReader { reader: &self.reader, recent: &self.recent };
        let (replaced, _) = self.index.compute_touches(objects, part)?;
        let checked = self.check_contents(txn, part, |oid| replaced.replaced_object(oid));
        if let Err(rejection) = checked {
            let what = format!("a change of the content of an object cannot be made: {rejection:?}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        self.admission.set_replaced(txn, replaced);
        Ok(())
    }

    /// Why a lock cannot be granted: the object is held by a transaction that cannot be ended.
    pub(super) fn find_undecidable_holder(&self, request: &Request<Object>) -> Option<DeferredTransaction> {
        let &Request::Lock { txn, oid, mode, .. } = request else { return None };
        let mut holders = self.undecidable.obstacles.keys();
        let holder = holders.find(|holder| **holder != txn && self.machine.is_barred_by(**holder, oid, mode))?;
        self.undecidable.deferral(*holder)
    }

    /// Why a transaction conflicts: with one that cannot be ended.
    pub(super) fn undecidable_conflict(&self, answer: &Answer) -> Option<DeferredTransaction> {
        let (Answer::Refused { why: Refusal::Conflict(conflict), .. } | Answer::Checked { verdict: Err(conflict), .. }) =
            answer
        else {
            return None;
        };
        let ValidationConflict { cause: Cause::Held(holder), .. } = conflict else { return None };
        self.undecidable.deferral(*holder)
    }

    /// Why an object has no newest state: a transaction that cannot be ended writes it.
    pub(crate) fn undecidable_write(&self, oid: Oid) -> Option<Error> {
        let mut writers = self.undecidable.obstacles.keys();
        let writer = writers.find(|writer| self.machine.is_written_by(**writer, oid))?;
        let DeferredTransaction { kind, why } = self.undecidable.deferral(*writer)?;
        Some(Error::new(kind, why))
    }
}
