//! The inputs of a driver: answers to requests, the state of the connection, and the messages of the peer server.

use std::sync::Arc;

use model::{Error, ErrorKind, NodeId, PageId, Result};
use protocol::commit::Refusal;
use protocol::gateway;
use protocol::ident::{HolderId, TxnId};
use protocol::lease::Ms;
use protocol::session::{self, TxnOutcome};
use protocol::tree::Down;
use wire::cluster::{SpaceStatus, is_final};

use super::super::outcome::{CommitOutcome, commit_outcome};
use super::calls::{CallId, OutcomeGoal, PendingCall, WaitKey};
use super::{
    CallResult, ClientDriver, DriverObject, MAX_OUTCOMES, OVERHEAD, Output, REQUEST_RETRY_MS, SHORT_WAIT_MS,
    WATCH_RETRY_MS,
};
use super::{ended_error, unknown_write_error};
use crate::plant::{Bug, planted};

impl<T: DriverObject> ClientDriver<T> {
    // -------------------------------------------------------------------------------------------- requests

    pub(super) fn send_request(&mut self, id: CallId) {
        let is_connected = self.is_connected;
        let Some(PendingCall::Request(request)) = self.calls.get_mut(id) else { return };
        if request.is_sent && !planted(Bug::RequestSentTwice) {
            return;
        }
        if is_connected {
            request.is_sent = true;
            self.out.push(Output::Request(id));
        } else {
            let unconnected = || Error::new(ErrorKind::Unavailable, "no peer server is connected");
            request.last_error.get_or_insert_with(unconnected);
        }
    }

    /// A request was answered; the caller has the answer.
    pub fn handle_answered(&mut self, id: CallId) {
        self.calls.remove(id);
    }

    /// A request has failed: it is sent again if the connection was lost, else the call fails.
    pub fn handle_failed(&mut self, id: CallId, error: Error, now: Ms) {
        let Some(PendingCall::Request(request)) = self.calls.get_mut(id) else { return };
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) {
            return self.finish(id, Err(error));
        }
        (request.is_sent, request.last_error) = (planted(Bug::RequestNotRepeated), Some(error));
        match self.check_access() {
            Ok(()) => self.calls.wake_at(id, now + REQUEST_RETRY_MS),
            Err(error) => self.finish(id, Err(error)),
        }
    }

    // -------------------------------------------------------------------------------------------- the connection

    /// A peer server is connected, at this address.
    pub fn handle_connected(&mut self, peer: Arc<str>, now: Ms) {
        self.is_connected = true;
        if !planted(Bug::RefusalKept) {
            self.access_refused = None;
        }
        // The first output, so that the status of the space arrives before all other answers.
        if !planted(Bug::StatusNotWatched) {
            self.out.push(Output::Watch);
        }
        self.monitor.on_connected(peer);
        self.link_up(None, now);
        for id in self.calls.waiting_for(WaitKey::PeerServer) {
            self.send_request(id);
        }
    }

    /// There is a connection to the server of this logical node; `None`: of all nodes, as with peer servers.
    pub fn link_up(&mut self, node: Option<NodeId>, now: Ms) {
        self.session.connect(node, now);
        self.drain();
        self.attempt_all(self.calls.waiting_for_pages(node), now);
        self.drain();
    }

    /// The connection to the peer server has ended.
    pub fn handle_disconnected(&mut self, why: &str, now: Ms) {
        self.is_connected = false;
        self.monitor.on_disconnected(why);
        if planted(Bug::WriteLostOverReconnect) {
            let writes = |id: &CallId| matches!(self.calls.get(*id), Some(PendingCall::Put { .. }));
            let lost: Vec<CallId> = self.calls.ids().into_iter().filter(writes).collect();
            lost.into_iter().for_each(|id| drop(self.calls.remove(id)));
        }
        self.link_down(None, now);
    }

    /// The connection to the server of this logical node, or of all, has ended.
    pub fn link_down(&mut self, node: Option<NodeId>, now: Ms) {
        self.session.disconnect(node, now);
        self.drain();
        self.attempt_all(self.calls.waiting_for_pages(node), now);
        self.drain();
    }

    /// No peer server admits the client, and waiting does not change that.
    pub fn handle_refused(&mut self, why: &Error, now: Ms) {
        self.access_refused = Some((why.kind(), why.message().into()));
        self.monitor.on_refused(why.message());
        if !planted(Bug::DeniedWaits) {
            self.handle_stopped(now);
        }
        self.drain();
    }

    /// Everything is refused. Calls that have changed nothing fail; others get [`SHORT_WAIT_MS`].
    fn handle_stopped(&mut self, now: Ms) {
        for id in self.calls.ids() {
            match self.calls.get(id) {
                Some(PendingCall::Request(request)) if request.is_sent => {}
                Some(PendingCall::Request(_)) => {
                    if let Err(error) = self.check_access() {
                        self.finish(id, Err(error));
                    }
                }
                Some(call) if call.is_write() => self.calls.shorten(id, now + SHORT_WAIT_MS),
                _ => self.attempt(id, now),
            }
        }
    }

    /// A message from the node above, in this session of the tree of a logical node.
    pub fn handle_down(&mut self, node: NodeId, holder: HolderId, message: Down<T>, now: Ms) {
        let fetched = if let Down::Fetched { page, .. } = &message { Some(*page) } else { None };
        let damage = self.session.damage(&message).map(str::to_owned);
        let changed = if let Down::Invalidate { message, .. } = &message { Some(message.page) } else { None };
        let is_session_news = matches!(message, Down::Leased { .. } | Down::Closed);
        match &message {
            Down::Written { .. } if planted(Bug::RefusalOfAnotherWrite) => {
                self.refused_write = self.deferred.values().next().cloned().map(|(kind, why)| (kind, why, false));
            }
            Down::Written { write, result } => {
                let refused = self.deferred.remove(write);
                // What concerns only one of several writes is not the fate of all.
                if *result == Err(Refusal::TooOld)
                    && refused.as_ref().is_some_and(|(kind, _)| may_concern_one_write(*kind))
                    && self.session.halve_writes(node, holder, *write, now)
                {
                    return self.drain();
                }
                let is_sent_again = self.session.is_sent_again(*write) && !planted(Bug::DeniedIsNotWritten);
                self.refused_write = refused.map(|(kind, why)| (kind, why, is_sent_again));
            }
            _ => self.refused_write = None,
        }
        self.session.handle_down(node, holder, message, now);
        self.drain();
        if let Some(page) = fetched {
            self.count_copy(page, now);
            if let Some(damage) = damage.filter(|_| !planted(Bug::DamagedPageFetchedAgain)) {
                for id in self.calls.waiting_for(WaitKey::Page(page)) {
                    self.finish(id, Err(Error::new(ErrorKind::Corrupt, &*damage)));
                }
            }
            self.attempt_page(page, now);
        }
        let is_cached = |page: &PageId| self.session.cache().version(*page).is_some();
        if let Some(page) = changed.filter(is_cached).filter(|_| !planted(Bug::GrowthNotCounted)) {
            self.count_copy(page, now);
        }
        if let Some(page) = changed.filter(|_| !planted(Bug::ChangeNotNoticed)) {
            self.attempt_all(self.watches_and_reads_of(page).0, now);
        }
        if is_session_news && !planted(Bug::LeaseNewsIgnored) {
            self.attempt_all(self.calls.waiting_for_pages(Some(node)), now);
        }
        self.drain();
    }

    /// The gateway's answer to a call of a transaction.
    pub fn handle_reply(&mut self, txn: TxnId, reply: gateway::Reply<T>, now: Ms) {
        self.session.handle_reply(txn, reply);
        self.drain();
        self.attempt_all(self.calls.waiting_for(WaitKey::Txn(txn)), now);
        self.drain();
    }

    /// A transaction or a write is deferred or refused for this reason.
    pub fn handle_deferred(&mut self, txn: TxnId, kind: ErrorKind, why: String, now: Ms) {
        let is_final = is_final(kind);
        if kind == ErrorKind::Unavailable {
            self.session.repeat_soon(txn, now);
        }
        let is_wanted = is_final || self.calls.is_awaited(WaitKey::Outcome(txn));
        let is_under_way = self.session.is_running(txn) || self.session.is_writing(txn);
        if is_wanted && is_under_way && !planted(Bug::RefusalIsConflict) {
            self.deferred.insert(txn, (kind, why));
        }
        if is_final {
            self.attempt_all(self.calls.waiting_for(WaitKey::Txn(txn)), now);
        }
        self.drain();
    }

    /// The peer server's message with the status of the space.
    pub fn handle_status(&mut self, status: SpaceStatus, now: Ms) {
        self.monitor.update(status);
        self.attempt_all(self.calls.waiting_for(WaitKey::SpaceStatus), now);
        if self.monitor.current_status().is_some_and(|status| status.damaged().next().is_some()) {
            self.calls.ids().into_iter().for_each(|id| self.give_up_damaged(id));
        }
        if self.monitor.check().is_err() {
            self.handle_stopped(now);
        }
        self.drain();
    }

    // -------------------------------------------------------------------------------------------- outputs of the session

    pub(super) fn drain(&mut self) {
        self.out.extend(self.monitor.events().map(Output::Event));
        loop {
            let outputs: Vec<session::Output<T>> = self.session.outputs().collect();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    session::Output::Up(node, holder, message) => self.out.push(Output::Up(node, holder, message)),
                    session::Output::Call(txn, call) => self.out.push(Output::Call(txn, call)),
                    session::Output::Repeat(txn, call) => self.out.push(Output::Repeat(txn, call)),
                    session::Output::Ended(txn, ended) => self.handle_ended(txn, ended),
                    session::Output::Written(number) => self.finish_write(number, true),
                    session::Output::Unknown(number) => self.finish_write(number, false),
                }
            }
        }
    }

    fn finish_write(&mut self, number: u64, is_durable: bool) {
        for id in self.calls.waiting_for(WaitKey::Write(number)) {
            let Some(PendingCall::Put { oid, .. }) = self.calls.get(id) else { continue };
            let result = match (&self.refused_write, is_durable) {
                (_, true) => Ok(CallResult::Written),
                // The first message of it may have been taken, before the client lost the permission or the space stopped.
                (Some((_, why, true)), false) => Err(unknown_write_error(*oid, &format!("; {why}"))),
                (Some((kind, why, false)), false) => Err(Error::new(*kind, why.clone())),
                (None, false) => Err(unknown_write_error(*oid, "")),
            };
            self.finish(id, result);
        }
    }

    /// A transaction has ended.
    pub(super) fn handle_ended(&mut self, txn: TxnId, ended: TxnOutcome) {
        for id in self.calls.waiting_for(WaitKey::Txn(txn)) {
            self.finish(id, Err(ended_error(txn, ended.clone())));
        }
        let mut waiting = self.calls.waiting_for(WaitKey::Outcome(txn));
        if planted(Bug::WrongTryBelieved) {
            let is_commit = |id: &CallId| matches!(self.calls.get(*id), Some(PendingCall::Outcome { .. }));
            waiting = self.calls.ids().into_iter().filter(is_commit).take(1).collect();
        }
        if waiting.is_empty() {
            if !planted(Bug::OutcomeNotKept) {
                let before = self.outcomes.insert(txn, ended);
                assert!(before.is_none(), "C3: {txn:?} has ended twice, first as {before:?}");
            }
            if self.outcomes.len() > MAX_OUTCOMES
                && let Some((oldest, _)) = self.outcomes.pop_first()
            {
                self.deferred.remove(&oldest);
            }
            return;
        }
        let deferred = self.deferred.remove(&txn);
        for id in waiting {
            let Some(PendingCall::Outcome { goal, .. }) = self.calls.get(id) else { continue };
            let result = outcome_result(txn, ended.clone(), goal, deferred.as_ref());
            self.finish(id, result.map(CallResult::Outcome));
        }
    }

    /// The calls that wait for changes of objects of a page, and those that read them.
    fn watches_and_reads_of(&self, page: PageId) -> (Vec<CallId>, Vec<CallId>) {
        let ids = self.calls.waiting_for(WaitKey::Page(page));
        ids.into_iter().partition(|id| matches!(self.calls.get(*id), Some(PendingCall::Change(..))))
    }

    /// A page has arrived, or a change of it, which may have brought objects. Evicts others if the cache is full.
    fn count_copy(&mut self, page: PageId, now: Ms) {
        let objects = self.session.cache().valid_objects(page).map(|(_, object, _)| OVERHEAD + object.memory_size());
        let bytes = OVERHEAD + objects.sum::<usize>();
        // A copy that has been validated again has kept its derived values.
        let derived = self.session.cache().derived_bytes(page);
        self.derived.set(page, derived);
        self.residents.insert(page, bytes + derived);
        self.evict_surplus(page, now);
    }

    /// Evicts copies if the cache is full, but not this one, which is about to be used.
    pub(super) fn evict_surplus(&mut self, page: PageId, now: Ms) {
        while let Some(evicted) = self.residents.evict(page) {
            if planted(Bug::NothingEvicted) {
                continue;
            }
            self.derived.set(evicted, 0);
            self.session.evict(evicted);
            let (watches, reads) = self.watches_and_reads_of(evicted);
            // Without a copy the client hears of no change of the page.
            if !planted(Bug::EvictedPageNotWatched) {
                watches.into_iter().for_each(|id| self.calls.wake_at(id, now + WATCH_RETRY_MS));
            }
            // Its fetch may have waited for its turn, because an object in the copy was invalid.
            if !planted(Bug::EvictedPageNotFetched) {
                self.attempt_all(reads, now);
            }
        }
    }
}

/// Whether a refusal of writes for this reason may concern one of them only, and the others not.
fn may_concern_one_write(kind: ErrorKind) -> bool {
    is_final(kind) && !matches!(kind, ErrorKind::Denied | ErrorKind::Stopped)
}

/// What the end of a transaction means for a call that waits for it, with the reason for which a brick has deferred it.
fn outcome_result(
    txn: TxnId,
    ended: TxnOutcome,
    goal: &OutcomeGoal,
    deferred: Option<&(ErrorKind, String)>,
) -> Result<CommitOutcome> {
    match (goal, ended, deferred) {
        (OutcomeGoal::Commit, TxnOutcome::Committed(receipt), _) => Ok(CommitOutcome::Committed(receipt)),
        // It may have been committed before it was refused.
        (OutcomeGoal::Commit, TxnOutcome::Unknown, Some(_)) => Ok(CommitOutcome::Unknown(txn)),
        (OutcomeGoal::Commit, _, Some((kind, why))) if is_final(*kind) => Err(Error::new(*kind, why.clone())),
        (OutcomeGoal::Deferred(kind, why), TxnOutcome::Refused(Refusal::Aborted), _) => {
            Err(Error::new(*kind, why.clone()))
        }
        (_, ended, _) => Ok(commit_outcome(txn, ended)),
    }
}
