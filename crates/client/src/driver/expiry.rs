//! Calls that have not finished in time.

use model::{Error, ErrorKind, NodeId};
use protocol::ident::TxnId;
use protocol::lease::Ms;
use wire::cluster::is_final;

use super::super::outcome::{CommitOutcome, deferred_error, unknown_outcome_error};
use super::super::timeout_error::{lock_timeout_message, timeout_message, unreachable_bricks};
use super::super::transaction::IsolationLevel;
use super::calls::{CallId, OutcomeGoal, PendingCall, ReadRequest};
use super::{CallResult, ClientDriver, DriverObject, SHORT_WAIT_MS, unknown_write_error};

impl<T: DriverObject> ClientDriver<T> {
    /// A call has not finished in time.
    pub(super) fn expire(&mut self, id: CallId, now: Ms) {
        let result = match self.calls.get_mut(id) {
            Some(PendingCall::Outcome { txn, goal }) => {
                let (txn, goal) = (*txn, goal.clone());
                return self.expire_outcome(id, txn, goal, now);
            }
            Some(PendingCall::Request(request)) => {
                let (nodes, last) = (std::mem::take(&mut request.nodes), request.last_error.take());
                let error = self.timeout_error(&nodes);
                // An unreachable brick has nothing to add.
                Err(match last.filter(|_| nodes.is_empty() || !self.monitor.has_unreachable_bricks()) {
                    Some(last) => error.with_source(last),
                    None => error,
                })
            }
            Some(PendingCall::Read(read)) if read.level == IsolationLevel::Locks => {
                let read = *read;
                let (status, nodes) = (self.monitor.status(), [read.oid.page().node]);
                let what = lock_timeout_message(status, self.is_connected, (read.oid, &nodes), self.timeout);
                self.finish(id, Err(Error::new(ErrorKind::Unavailable, what)));
                return self.forget_lock(&read);
            }
            Some(PendingCall::Read(ReadRequest { oid, .. }) | PendingCall::Get(oid)) => {
                let oid = *oid;
                Err(self.timeout_error(&[oid.page().node]))
            }
            Some(PendingCall::Reachable(nodes)) => {
                let nodes = std::mem::take(nodes);
                Err(self.timeout_error(&nodes))
            }
            Some(PendingCall::Put { oid, number }) => {
                let (oid, number) = (*oid, *number);
                let late = |driver: &Self| driver.timeout_error(&[oid.page().node]);
                Err(match self.session.withdraw(number, now) {
                    true => self.check_serving().err().unwrap_or_else(|| late(self)),
                    false => {
                        let why = self.why_stopped().unwrap_or_else(|| late(self).message().into());
                        unknown_write_error(oid, &format!("; {why}"))
                    }
                })
            }
            // It has no timeout.
            Some(PendingCall::Change(..)) | None => return self.calls.wake_at(id, Ms::MAX),
        };
        self.finish(id, result);
    }

    fn expire_outcome(&mut self, id: CallId, txn: TxnId, goal: OutcomeGoal, now: Ms) {
        let deferred = self.deferred.remove(&txn);
        if !self.session.is_committing(txn) {
            // It has only read, and changes nothing.
            let nodes = self.session.checked_nodes(txn);
            self.abort(txn);
            let why = deferred.map(|(kind, why)| Error::new(kind, why)).or_else(|| self.check_serving().err());
            let error = why.unwrap_or_else(|| self.timeout_error(&nodes));
            return self.finish(id, Err(error));
        }
        self.session.resolve(txn, now);
        let result = match (goal, deferred) {
            // Most often its outcome is found out at once, because the brick answers.
            (OutcomeGoal::Commit, Some((kind, why))) => {
                if let Some(PendingCall::Outcome { goal, .. }) = self.calls.get_mut(id) {
                    *goal = OutcomeGoal::Deferred(kind, why);
                }
                return self.calls.set_deadline(id, now + SHORT_WAIT_MS);
            }
            (OutcomeGoal::Commit, None) => match self.why_stopped() {
                Some(why) => Err(deferred_error(txn, &why)),
                None => Ok(CommitOutcome::Unknown(txn)),
            },
            (OutcomeGoal::Deferred(_, why), _) => Err(deferred_error(txn, &why)),
            (OutcomeGoal::Resolve, Some((kind, why))) if !is_final(kind) => Err(deferred_error(txn, &why)),
            (OutcomeGoal::Resolve, _) => Ok(CommitOutcome::Unknown(txn)),
        };
        self.finish(id, result.map(CallResult::Outcome));
    }

    fn timeout_error(&self, nodes: &[NodeId]) -> Error {
        self.damage_of(nodes).unwrap_or_else(|| {
            let what = timeout_message(self.monitor.status(), self.is_connected, nodes, self.timeout);
            Error::new(ErrorKind::Unavailable, what)
        })
    }

    /// The error of something of these logical nodes that has not come in time.
    #[must_use]
    pub fn late_error(&self, nodes: &[NodeId]) -> Error {
        self.timeout_error(nodes)
    }

    /// The error of a transaction whose outcome is unknown.
    #[must_use]
    pub fn unknown_outcome_error(&self, txn: TxnId) -> Error {
        let unreachable = self.monitor.status().and_then(|status| unreachable_bricks(status, &[]));
        unknown_outcome_error(txn, unreachable.as_deref())
    }
}
