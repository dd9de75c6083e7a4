//! A client's sessions with the nodes above it: fetches, invalidations and acknowledgements.

use super::calls::repeat_at;
use super::*;
use crate::page_cache::FetchReply;

impl<T: Clone + MemorySize> Session<T> {
    pub(super) fn send_up(&mut self, node: NodeId, message: Up<T>) {
        if let Some(upstream) = self.upstreams.get(&node) {
            self.out.push(Output::Up(node, upstream.holder(), message));
        }
    }

    pub(super) fn is_valid(&self, node: NodeId, now: Ms) -> bool {
        self.upstreams.get(&node).is_some_and(|upstream| upstream.is_valid(now))
    }

    /// Opens a session for a logical node, if there is none.
    pub(super) fn open(&mut self, node: NodeId, now: Ms) {
        if !self.upstreams.contains_key(&node) {
            let mut upstream = Upstream::new(self.first_holder);
            upstream.connect(now);
            self.upstreams.insert(node, upstream);
            self.poll_upstream(node, now);
        }
    }

    /// Fetches a page, as soon as there is room for one more fetch at its node.
    pub(super) fn fetch(&mut self, page: PageId) {
        if self.cache.pending_fetch(page).is_some() || self.unfetched.contains(page) {
            return;
        }
        if !self.fetch_limits.have_room(&self.cache, page) && !planted(Bug::FetchesUnlimited) {
            return self.unfetched.push(page);
        }
        if let Some((fetch, have)) = self.cache.fetch(page) {
            self.send_up(page.node, Up::Fetch { page, fetch, have });
        }
    }

    /// Fetches a page that is read and missing.
    pub(super) fn fetch_missing(&mut self, page: PageId) {
        self.read_back.on_missing(page);
        self.fetch(page);
    }

    /// Fetches the pages that a transaction has written to without a copy, if this client reads what it has written.
    pub(super) fn fetch_written(&mut self, txn: TxnId, now: Ms) {
        if self.cache.conflicting_object(txn).is_some() {
            return;
        }
        for page in self.cache.missing_written_pages(txn) {
            if self.is_valid(page.node, now) && self.read_back.on_written(page) {
                self.fetch(page);
            }
        }
    }

    /// Fetches pages that have waited, as many as there is room for. At a node whose session has ended, what is still wanted is asked for again
    /// in the next one.
    fn fetch_waiting(&mut self, now: Ms) {
        if planted(Bug::PlacesNotGivenOn) {
            return;
        }
        let limits = self.fetch_limits;
        while let Some(page) = self.unfetched.pop(|page| limits.have_room(&self.cache, page)) {
            if self.is_valid(page.node, now) {
                self.fetch(page);
            }
        }
    }

    /// Why what waits for a page fails, if this message answers its fetch and the page is damaged. The answer to an earlier fetch says
    /// nothing about the page now (D3).
    #[must_use]
    pub fn damage<'a>(&self, message: &'a Down<T>) -> Option<&'a str> {
        match message {
            Down::Fetched { page, fetch, reply: FetchReply::Damaged(why) } => {
                (self.cache.pending_fetch(*page) == Some(*fetch)).then_some(why)
            }
            _ => None,
        }
    }

    /// Handles a message from the node above in the session with this number.
    pub fn handle_down(&mut self, node: NodeId, session: HolderId, message: Down<T>, now: Ms) {
        let Some(upstream) = self.upstreams.get_mut(&node).filter(|upstream| upstream.holder() == session) else {
            return;
        };
        match message {
            Down::Leased { asked, lease_ms, .. } => {
                if upstream.handle_leased(asked, lease_ms, now) {
                    self.handle_opened(node, now);
                }
            }
            Down::Closed => {
                upstream.close(now);
                self.suspend(node);
                self.fetch_waiting(now);
            }
            Down::Fetched { page, fetch, reply } => {
                if self.cache.handle_fetched(page, fetch, reply) {
                    if self.cache.version(page).is_some() {
                        self.fetch_ids.insert(page, fetch);
                    } else {
                        // The copy is stale or gone: its changes need not be reported.
                        self.send_up(node, Up::Evict { page, fetch });
                    }
                }
                self.fetch_waiting(now);
            }
            Down::Invalidate { message, contents } => {
                let (page, asked) = (message.page, message.version);
                let version = self.cache.invalidate(message, contents);
                assert!(
                    version <= asked || self.cache.version(page) == Some(version),
                    "V3: {page:?} is acknowledged at {version:?}, after a change to {asked:?}"
                );
                self.send_up(node, Up::Acknowledge { page, version });
            }
            Down::Help { page, help } => {
                let copy = self.cache.complete_page(page).filter(|_| self.is_valid(node, now));
                self.send_up(node, Up::Helped { page, help, copy });
            }
            Down::Close { at } => {
                self.cache.close(node, at);
                for txn in std::mem::take(&mut self.waiting) {
                    self.snapshot(txn);
                }
            }
            Down::Written { write, result: Ok(timestamp) } => {
                self.last = self.last.max(timestamp);
                self.handle_written(write);
            }
            Down::Written { write, result: Err(Refusal::TooOld) } => {
                // If it was written, this was so long ago that every holder has acknowledged it or expired.
                let numbers = self.settle(node, write);
                let outcome = if planted(Bug::TooOldIsWritten) { Output::Written } else { Output::Unknown };
                self.out.extend(numbers.into_iter().map(outcome));
            }
            Down::Written { write, .. } => {
                self.pram.handle_refused(write);
                self.retry = Some(now + RETRY_MS);
            }
            Down::Settled { write } => self.handle_settled(node, write),
        }
        self.send_writes(now);
    }

    pub(super) fn handle_written(&mut self, write: TxnId) {
        let numbers = self.pram.handle_written(write);
        self.out.extend(numbers.into_iter().map(Output::Written));
    }

    pub(super) fn handle_settled(&mut self, node: NodeId, write: TxnId) {
        let numbers = self.settle(node, write);
        self.out.extend(numbers.into_iter().map(Output::Written));
    }

    /// A write is settled: it is not repeated any more. Returns the client's numbers if they were not reported before.
    fn settle(&mut self, node: NodeId, write: TxnId) -> Vec<u64> {
        let numbers = self.pram.handle_settled(write);
        self.note_heard(write, [node]);
        numbers
    }

    /// A session has opened: suspended copies are revalidated, and writes that may not have arrived are sent again.
    pub(super) fn handle_opened(&mut self, node: NodeId, now: Ms) {
        assert!(self.is_valid(node, now), "D4: the session for {node:?} is open, and has no lease");
        let aside: Vec<PageId> = self.cache.suspended_pages(node).collect();
        aside.into_iter().for_each(|page| self.fetch(page));
        let again: Vec<(TxnId, crate::commit::Writes<T>)> =
            self.pram.unsettled_batches_at(node).map(|(write, batch)| (write, batch.writes.clone())).collect();
        for (write, writes) in again.into_iter().filter(|_| !planted(Bug::NotWrittenAgain)) {
            self.send_up(node, Up::Write { write, writes });
        }
        self.pram.note_sent_again(node);
        self.send_writes(now);
    }

    pub(super) fn suspend(&mut self, node: NodeId) {
        self.cache.suspend(node);
        self.fetch_ids.retain(|page, _| page.node != node);
    }

    /// Removes a copy to make room.
    pub fn evict(&mut self, page: PageId) {
        self.unfetched.remove(page);
        if self.cache.evict(page)
            && let Some(fetch) = self.fetch_ids.remove(&page)
        {
            self.send_up(page.node, Up::Evict { page, fetch });
        }
    }

    /// A connection to the server of this node is open; `None` means a peer server, which serves all nodes.
    pub fn connect(&mut self, node: Option<NodeId>, now: Ms) {
        for (at, upstream) in &mut self.upstreams {
            if node.is_none_or(|node| node == *at) {
                upstream.connect(now);
            }
        }
        for (key, call) in &self.calls {
            self.repeating.set(*key, Some(repeat_at(call, now)));
        }
        self.poll(now);
        self.out.extend(self.calls.iter().map(|((txn, _), call)| Output::Call(*txn, call.clone())));
    }

    /// The connection is lost.
    pub fn disconnect(&mut self, node: Option<NodeId>, now: Ms) {
        let nodes: Vec<NodeId> =
            self.upstreams.keys().copied().filter(|at| node.is_none_or(|node| node == *at)).collect();
        for node in nodes {
            if let Some(upstream) = self.upstreams.get_mut(&node) {
                upstream.disconnect(now);
            }
            self.suspend(node);
        }
        self.fetch_waiting(now);
    }

    pub(super) fn poll_upstream(&mut self, node: NodeId, now: Ms) {
        let Some(upstream) = self.upstreams.get_mut(&node) else { return };
        if upstream.has_lapsed(now) {
            upstream.close(now);
            self.suspend(node);
            self.fetch_waiting(now);
        }
        if let Some(renew) = self.upstreams.get_mut(&node).and_then(|upstream| upstream.poll(now, 0, self.subscribe)) {
            self.send_up(node, renew);
        }
    }

    /// Performs the actions that are due.
    pub fn poll(&mut self, now: Ms) {
        let nodes: Vec<NodeId> = self.upstreams.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.poll_upstream(node, now));
        for key in self.repeating.due(now) {
            let Some(call) = self.calls.get(&key) else { continue };
            self.repeating.set(key, Some(repeat_at(call, now)));
            self.out.push(Output::Repeat(key.0, call.clone()));
        }
        self.keep_locks_alive(now);
        self.send_writes(now);
    }

    /// A call of a transaction was not accepted: its calls are repeated as soon as those that take no time to send.
    pub fn repeat_soon(&mut self, txn: TxnId, now: Ms) {
        for key in self.calls_of(txn).collect::<Vec<_>>() {
            let soon = self.repeating.at(key).map(|at| at.min(now + REPEAT_MS));
            self.repeating.set(key, soon);
        }
    }

    /// Renews the locks of datastore transactions.
    pub(super) fn keep_locks_alive(&mut self, now: Ms) {
        if now < self.next_keepalive {
            return;
        }
        self.next_keepalive = now + REPEAT_MS;
        for (txn, running) in self.locking.iter().filter_map(|txn| Some((txn, self.running.get(txn)?))) {
            let Level::Locks { first } = running.level else { continue };
            let (first, mut node) = (first.unwrap_or(*txn), None);
            for (oid, (mode, _)) in &running.locked {
                if node.replace(oid.page().node) != Some(oid.page().node) {
                    self.out.push(Output::Call(*txn, Call::Lock { first, oid: *oid, mode: *mode }));
                }
            }
        }
    }

    /// When [`Session::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let sessions = self.upstreams.values().filter_map(Upstream::deadline);
        let keep = self.locking.first().map(|_| self.next_keepalive);
        // Without a session nothing is retried; opening one does it.
        let open = |node: &NodeId| self.upstreams.get(node).is_some_and(Upstream::is_open);
        let retry = self.retry.filter(|_| self.pram.next_node().as_ref().is_some_and(open)).into_iter().chain(keep);
        sessions.chain(self.repeating.first()).chain(retry).min()
    }
}
