//! A peer server or a redirector: a cache node in the trees of many logical nodes, which also forwards calls.
//!
//! It has a [`Redirector`] for each logical node; a connection carries the messages of all of them. A peer server is
//! also a [`Gateway`], which handles calls. A redirector forwards calls to the node above and retains the writes of
//! commits (R2).

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::ops::{Bound, RangeInclusive};

use model::NodeId;

use crate::brick::LockedObject;
use crate::clock::{ClockSkewError, ClusterTime};
use crate::commit::coordinator;
use crate::commit::coordinator::MixedOutcome;
use crate::commit::{Answer, Rejected, Request};
use crate::gateway::{self, Call, CallLimit, Gateway, Reply};
use crate::ident::{HlcTimestamp, HolderId, TxnId};
use crate::lease::Ms;
use crate::memory_size::MemorySize;
use crate::plant::{Bug, planted};
use crate::redirect::{self, Helpers, Redirector, RedirectorCounts};
use crate::schedule::Schedule;
use crate::tree::{Down, Up};

mod callers;

use callers::Callers;

/// An output of a cache node. Outputs are carried out in order. `A` is the address of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Send a message to the node above, in this session of the tree of this logical node.
    Up(NodeId, HolderId, Up<T>),
    /// Send a message to a holder.
    Down(NodeId, HolderId, Down<T>),
    /// Send a question to the participant of a logical node.
    Ask(NodeId, Request<T>),
    /// Forward a call to the node above.
    Call(TxnId, Call<T>),
    /// Answer a call.
    Reply(A, TxnId, Reply<T>),
    /// Tell a client that its call was not accepted: see [`gateway::Output::Busy`]. A redirector does not forward it.
    Busy(A, TxnId, CallLimit),
    /// Report that a transaction has opposite outcomes at two participants.
    MixedOutcome(TxnId, MixedOutcome),
}

/// The cache node.
#[derive(Clone, Debug)]
pub struct CacheNode<A, T> {
    helpers: Helpers,
    /// The number of the first session in each tree.
    first_holder: HolderId,
    /// See [`Redirector::with_secret`].
    secret: u128,
    trees: BTreeMap<NodeId, Redirector<T>>,
    /// The deadline of each tree, and the trees that may have outputs.
    polling: Schedule<NodeId>,
    touched: BTreeSet<NodeId>,
    gateway: Option<Gateway<A, T>>,
    /// Clients that wait for the reply to a forwarded call.
    callers: Callers<A>,
    connected: bool,
}

impl<A: Clone + PartialEq, T: Clone + MemorySize + Hash> CacheNode<A, T> {
    /// A redirector below a peer server.
    #[must_use]
    pub fn redirector(first_holder: HolderId) -> Self {
        Self::new(first_holder, Helpers::All, None)
    }

    fn new(first_holder: HolderId, helpers: Helpers, gateway: Option<Gateway<A, T>>) -> Self {
        // A peer server has a connection to each brick.
        let connected = gateway.is_some();
        Self {
            helpers,
            first_holder,
            secret: 0,
            trees: BTreeMap::new(),
            polling: Schedule::default(),
            touched: BTreeSet::new(),
            gateway,
            callers: Callers::default(),
            connected,
        }
    }

    /// A peer server below bricks. It accepts timestamps that are at most `skew_ms` ahead. With [`Helpers::All`] it is
    /// also the redirector of its clients.
    #[must_use]
    pub fn peer_server(first_holder: HolderId, helpers: Helpers, skew_ms: u64) -> Self {
        Self::new(first_holder, helpers, Some(Gateway::new(skew_ms)))
    }

    /// Sets the memory limit for calls that wait for participants: see [`Gateway::with_limit`].
    #[must_use]
    pub fn with_limit(mut self, bytes: usize) -> Self {
        self.gateway = self.gateway.map(|gateway| gateway.with_limit(bytes));
        self
    }

    /// With a secret that its holders must not know: see [`Redirector::with_secret`].
    #[must_use]
    pub fn with_secret(mut self, secret: u128) -> Self {
        self.secret = secret;
        self
    }

    /// Sets which brick serves each logical node: see [`Gateway::set_bricks`].
    pub fn set_bricks(&mut self, bricks: BTreeMap<NodeId, u32>) {
        if let Some(gateway) = &mut self.gateway {
            gateway.set_bricks(bricks);
        }
    }

    /// The approximate memory of pending transactions, in bytes.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.gateway.as_ref().map_or(0, Gateway::waiting_bytes)
    }

    /// Calls a function with a tree, which is created if necessary.
    fn with_tree(&mut self, node: NodeId, now: Ms, act: impl FnOnce(&mut Redirector<T>)) {
        let tree = self.trees.entry(node).or_insert_with(|| {
            let mut tree = Redirector::new(self.helpers, self.first_holder).with_secret(self.secret);
            if self.connected {
                tree.connect(now);
            }
            tree
        });
        act(tree);
        self.polling.set(node, tree.deadline());
        self.touched.insert(node);
    }

    /// Calls a function with the tree of a node, or with all trees.
    fn with_trees(&mut self, node: Option<NodeId>, act: impl Fn(NodeId, &mut Redirector<T>)) {
        let nodes =
            node.map_or((Bound::Unbounded, Bound::Unbounded), |node| (Bound::Included(node), Bound::Included(node)));
        for (at, tree) in self.trees.range_mut(nodes) {
            act(*at, tree);
            self.polling.set(*at, tree.deadline());
            self.touched.insert(*at);
        }
    }

    /// Handles a message from a holder.
    ///
    /// # Errors
    /// If no process that follows the rules sends this message. The state is unchanged; disconnect the sender. If the
    /// message were forwarded, this node would break the rules.
    pub fn handle_up(&mut self, node: NodeId, holder: HolderId, message: Up<T>, now: Ms) -> Result<(), Rejected> {
        if let Some(page) = message.foreign_page(node) {
            return Err(Rejected::Foreign(page));
        }
        self.with_tree(node, now, |tree| {
            tree.handle_up(holder, message, now);
            // A new or unused tree has to open a session.
            tree.poll(now);
        });
        Ok(())
    }

    /// How many pages these holders wait for in all trees, or have copies of although they do not exist: see [`Directory::unconfirmed_pages`].
    ///
    /// [`Directory::unconfirmed_pages`]: crate::directory::Directory::unconfirmed_pages
    #[must_use]
    pub fn unconfirmed_pages(&self, holders: &RangeInclusive<HolderId>) -> usize {
        self.trees.values().map(|tree| tree.directory().unconfirmed_pages(holders.clone())).sum()
    }

    /// Handles a message from the node above.
    pub fn handle_down(&mut self, node: NodeId, session: HolderId, message: Down<T>, now: Ms) {
        self.with_tree(node, now, |tree| tree.handle_down(session, message, now));
    }

    /// Handles a call of a client, or of a redirector for a client.
    ///
    /// # Errors
    /// If no process that follows the rules sends this call. The state is unchanged.
    pub fn handle_call(
        &mut self,
        from: A,
        txn: TxnId,
        call: Call<T>,
        now: Ms,
    ) -> Result<Option<Output<A, T>>, Rejected> {
        if !call.is_consistent() {
            return Err(Rejected::Elsewhere(txn));
        }
        if self.gateway.is_none()
            && !matches!(call, Call::Heard { .. } | Call::Release { .. })
            && self.callers.is_full(txn)
        {
            // As if it were lost: the client calls again.
            return Ok(call.first_node().map(|node| Output::Busy(from, txn, CallLimit::Client(node))));
        }
        let is_busy = self.gateway.as_ref().is_some_and(|gateway| gateway.reached_limit(txn, &call, now).is_some());
        if let Call::Commit { parts, creates } = &call
            && (!creates || planted(Bug::CreationRetained))
            && !is_busy
        {
            for (node, part) in parts {
                // Without a tree there is no holder that could need the update.
                self.with_trees(Some(*node), |_, tree| tree.retain(txn, &part.writes));
            }
        }
        match &mut self.gateway {
            Some(gateway) => gateway.handle_call(from, txn, call, now).map(|()| None),
            None => {
                // A release has no answer, and ends the transaction.
                if matches!(call, Call::Release { .. }) {
                    self.callers.remove(txn);
                }
                if !matches!(call, Call::Heard { .. } | Call::Release { .. }) {
                    self.callers.add(from, txn, call.ends());
                }
                Ok(Some(Output::Call(txn, call)))
            }
        }
    }

    /// Forgets the writes of a commit that will not be committed.
    pub fn forget_update(&mut self, txn: TxnId) {
        self.trees.values_mut().for_each(|tree| tree.forget_update(txn));
    }

    /// Whether this call only repeats one that was forwarded and is not answered: the commit or the check of a transaction. Each other call
    /// counts: a lock is requested, or renewed, by each call for it, whatever else of its transaction is not answered.
    #[must_use]
    pub fn is_repetition(&self, from: &A, txn: TxnId, call: &Call<T>) -> bool {
        call.ends() && self.callers.is_ending(from, txn)
    }

    /// The holder that waits for the reply to a write.
    #[must_use]
    pub fn writer(&self, node: NodeId, write: TxnId) -> Option<HolderId> {
        self.trees.get(&node)?.writer(write)
    }

    /// Handles the answer to a forwarded call.
    pub fn handle_reply(&mut self, txn: TxnId, reply: Reply<T>) -> Option<Output<A, T>> {
        if matches!(reply, Reply::Ended(coordinator::CommitReply::Refused(_))) {
            self.forget_update(txn);
        }
        let is_over = !matches!(reply, Reply::Locked(_));
        let to = if is_over { self.callers.remove(txn) } else { self.callers.address(txn).cloned() };
        to.map(|to| Output::Reply(to, txn, reply))
    }

    /// Handles the answer of a participant; `seen` is the largest timestamp that its brick knows.
    ///
    /// # Errors
    /// If `seen` is further ahead than clocks may differ: the answer is ignored.
    pub fn handle_answer(
        &mut self,
        node: NodeId,
        answer: Answer,
        locked: Option<LockedObject<T>>,
        seen: HlcTimestamp,
        now: Ms,
    ) -> Result<(), ClockSkewError> {
        let Some(gateway) = &mut self.gateway else { return Ok(()) };
        gateway.learn(seen, now)?;
        gateway.handle_answer(node, answer, locked, now);
        Ok(())
    }

    /// From now on, this is the time of the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        if let Some(gateway) = &mut self.gateway {
            gateway.set_time(time);
        }
    }

    /// The largest timestamp that it knows.
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.gateway.as_ref().map_or(HlcTimestamp::ZERO, Gateway::clock)
    }

    /// Handles the loss of the connection to a client or redirector below.
    pub fn handle_disconnected(&mut self, below: &A, holders: impl Fn(NodeId, HolderId) -> bool, now: Ms) {
        if let Some(gateway) = &mut self.gateway {
            gateway.handle_disconnected(below);
        }
        self.callers.disconnect(below);
        self.with_trees(None, |node, tree| {
            let gone: Vec<HolderId> = tree.directory().all_holders().filter(|holder| holders(node, *holder)).collect();
            gone.into_iter().for_each(|holder| tree.handle_disconnected(holder, now));
        });
    }

    /// Handles a new connection to the node above: to the brick of one logical node, or to a peer server for all.
    pub fn connect(&mut self, node: Option<NodeId>, now: Ms) {
        self.connected |= node.is_none();
        self.with_trees(node, |_, tree| {
            tree.connect(now);
            tree.poll(now);
        });
    }

    /// Handles the loss of that connection.
    pub fn disconnect(&mut self, node: Option<NodeId>, now: Ms) {
        self.connected &= node.is_some();
        self.with_trees(node, |_, tree| tree.disconnect(now));
    }

    /// Forgets a logical node whose space was removed, with its tree and its transactions: see [`Gateway::remove_node`].
    pub fn remove_node(&mut self, node: NodeId) {
        self.trees.remove(&node);
        self.polling.set(node, None);
        if let Some(gateway) = &mut self.gateway {
            gateway.remove_node(node);
        }
    }

    /// A question to a participant was not sent, or has to be asked again: see [`Gateway::ask_again_soon`].
    pub fn ask_again_soon(&mut self, txn: TxnId, node: NodeId, now: Ms) {
        if let Some(gateway) = &mut self.gateway {
            gateway.ask_again_soon(txn, node, now);
        }
    }

    /// Repeats the unanswered questions to the participant of a logical node: see [`Gateway::retry_now`].
    pub fn retry_now(&mut self, node: NodeId) {
        if let Some(gateway) = &mut self.gateway {
            gateway.retry_now(node);
        }
    }

    /// Performs the actions that are due.
    pub fn poll(&mut self, now: Ms) {
        self.polling.due(now).into_iter().for_each(|node| self.with_trees(Some(node), |_, tree| tree.poll(now)));
        if let Some(gateway) = &mut self.gateway {
            gateway.poll(now);
        }
    }

    /// When [`CacheNode::poll`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let gateway = self.gateway.as_ref().and_then(Gateway::deadline);
        self.polling.first().into_iter().chain(gateway).min()
    }

    /// Removes and returns the outputs, in order.
    pub fn outputs(&mut self) -> Vec<Output<A, T>> {
        let mut out = Vec::new();
        for node in std::mem::take(&mut self.touched) {
            let Some(tree) = self.trees.get_mut(&node) else { continue };
            out.extend(tree.outputs().map(|output| match output {
                redirect::Output::Up(session, message) => Output::Up(node, session, message),
                redirect::Output::Down(holder, message) => Output::Down(node, holder, message),
            }));
        }
        if let Some(gateway) = &mut self.gateway {
            out.extend(gateway.outputs().map(|output| match output {
                gateway::Output::Ask(node, request) => Output::Ask(node, request),
                gateway::Output::Reply(to, txn, reply) => Output::Reply(to, txn, reply),
                gateway::Output::Busy(to, txn, limit) => Output::Busy(to, txn, limit),
                gateway::Output::MixedOutcome(txn, mixed) => Output::MixedOutcome(txn, mixed),
            }));
        }
        out
    }

    /// What it has done in all trees.
    #[must_use]
    pub fn counts(&self) -> RedirectorCounts {
        let mut counts = RedirectorCounts::default();
        self.trees.values().for_each(|tree| counts += tree.counts());
        counts
    }

    /// The smallest of the closed timestamps in the trees with subscribers: how far group snapshots are behind.
    #[must_use]
    pub fn closed_timestamp(&self) -> Option<HlcTimestamp> {
        self.trees.values().filter_map(Redirector::closed_timestamp).min()
    }

    /// The part of one tree, for checkers.
    #[must_use]
    pub fn tree(&self, node: NodeId) -> Option<&Redirector<T>> {
        self.trees.get(&node)
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.trees.values().try_for_each(Redirector::check_invariants)?;
        match self.trees.iter().find(|(node, tree)| self.polling.at(**node) != tree.deadline()) {
            Some((node, tree)) => {
                Err(format!("D4: {node:?} is due at {:?}, but is not scheduled then", tree.deadline()))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
