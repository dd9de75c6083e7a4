//! A peer server or a redirector: a node in the middle of many trees, through which calls pass.
//!
//! For each logical node it has a [`Redirector`] of its own; connections carry the messages of all of them. A peer server is
//! also a [`Gateway`]: calls end at it. At a redirector they go on to the node above, and what they commit is retained (R2).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use model::NodeId;

use crate::brick::LockedObject;
use crate::clock::ClockSkewError;
use crate::commit::coordinator;
use crate::commit::{Answer, Rejected, Request};
use crate::gateway::{self, Call, Gateway, Reply};
use crate::ident::{HlcTimestamp, HolderId, TxnId};
use crate::lease::Ms;
use crate::memory_size::MemorySize;
use crate::redirect::{self, Helpers, Redirector};
use crate::schedule::Schedule;
use crate::tree::{Down, Up};

/// Something that a node in the middle wants done, in this order. `A` is the address of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Tell the node above, in this session of the tree of this logical node.
    Up(NodeId, HolderId, Up<T>),
    /// Tell a holder below.
    Down(NodeId, HolderId, Down<T>),
    /// Ask the participant of a logical node.
    Ask(NodeId, Request<T>),
    /// Pass a call on to the node above.
    Call(TxnId, Call<T>),
    /// Answer a call.
    Reply(A, TxnId, Reply<T>),
    /// Tell a client that its call was not taken: see [`gateway::Output::Busy`].
    Busy(A, TxnId, NodeId),
}

/// The node.
#[derive(Clone, Debug)]
pub struct CacheNode<A, T> {
    helpers: Helpers,
    /// Session numbers are counted from here, in each tree.
    first_holder: HolderId,
    trees: BTreeMap<NodeId, Redirector<T>>,
    /// When each has something to do, and those that something was done with since the last outputs were taken.
    polling: Schedule<NodeId>,
    touched: BTreeSet<NodeId>,
    gateway: Option<Gateway<A, T>>,
    /// Who waits for the reply to a call that was passed on.
    callers: BTreeMap<TxnId, A>,
    connected: bool,
}

impl<A: Clone + PartialEq, T: Clone + MemorySize> CacheNode<A, T> {
    /// A redirector, below a peer server.
    #[must_use]
    pub fn redirector(first_holder: HolderId) -> Self {
        Self::new(first_holder, Helpers::All, None)
    }

    fn new(first_holder: HolderId, helpers: Helpers, gateway: Option<Gateway<A, T>>) -> Self {
        // A peer server is connected to each brick by itself.
        let connected = gateway.is_some();
        Self {
            helpers,
            first_holder,
            trees: BTreeMap::new(),
            polling: Schedule::default(),
            touched: BTreeSet::new(),
            gateway,
            callers: BTreeMap::new(),
            connected,
        }
    }

    /// A peer server, above which are bricks. It believes clocks that are at most so far ahead. With [`Helpers::All`]
    /// it is its clients' redirector too.
    #[must_use]
    pub fn peer_server(first_holder: HolderId, helpers: Helpers, skew_ms: u64) -> Self {
        Self::new(first_holder, helpers, Some(Gateway::new(skew_ms)))
    }

    /// With another bound for what waits for participants that do not answer: see [`Gateway::with_limit`].
    #[must_use]
    pub fn with_limit(mut self, bytes: usize) -> Self {
        self.gateway = self.gateway.map(|gateway| gateway.with_limit(bytes));
        self
    }

    /// About how many bytes are kept of transactions that are brought to their end here.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.gateway.as_ref().map_or(0, Gateway::waiting_bytes)
    }

    /// Does something with a tree, which is there from then on.
    fn with_tree(&mut self, node: NodeId, now: Ms, act: impl FnOnce(&mut Redirector<T>)) {
        let tree = self.trees.entry(node).or_insert_with(|| {
            let mut tree = Redirector::new(self.helpers, self.first_holder);
            if self.connected {
                tree.connect(now);
            }
            tree
        });
        act(tree);
        self.polling.set(node, tree.deadline());
        self.touched.insert(node);
    }

    /// Does something with the tree of a node, or with all that there are.
    fn with_trees(&mut self, node: Option<NodeId>, act: impl Fn(NodeId, &mut Redirector<T>)) {
        let nodes =
            node.map_or((Bound::Unbounded, Bound::Unbounded), |node| (Bound::Included(node), Bound::Included(node)));
        for (at, tree) in self.trees.range_mut(nodes) {
            act(*at, tree);
            self.polling.set(*at, tree.deadline());
            self.touched.insert(*at);
        }
    }

    /// A holder below says something.
    ///
    /// # Errors
    /// If nobody who follows the rules can have sent it: nothing has happened. Whoever sent it is disconnected here; passed on,
    /// its lie would be this node's own.
    pub fn handle_up(&mut self, node: NodeId, holder: HolderId, message: Up<T>, now: Ms) -> Result<(), Rejected> {
        if let Some(page) = message.foreign_page(node) {
            return Err(Rejected::Foreign(page));
        }
        self.with_tree(node, now, |tree| {
            tree.handle_up(holder, message, now);
            // A tree that is new, or was not used, has a session to open.
            tree.poll(now);
        });
        Ok(())
    }

    /// The node above says something.
    pub fn handle_down(&mut self, node: NodeId, session: HolderId, message: Down<T>, now: Ms) {
        self.with_tree(node, now, |tree| tree.handle_down(session, message, now));
    }

    /// A client, or a redirector for one, calls.
    ///
    /// # Errors
    /// If nobody who follows the rules can have called so: nothing has happened.
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
        let is_busy = self.gateway.as_ref().is_some_and(|gateway| gateway.busy_participant(txn, &call, now).is_some());
        if let Call::Commit { parts, creates: false } = &call
            && !is_busy
        {
            for (node, part) in parts {
                // Without a tree there is nobody below who could want it.
                self.with_trees(Some(*node), |_, tree| tree.retain(txn, &part.writes));
            }
        }
        match &mut self.gateway {
            Some(gateway) => gateway.handle_call(from, txn, call, now).map(|()| None),
            None => {
                // Nobody answers that locks are let go of.
                if !matches!(call, Call::Release { .. }) {
                    self.callers.insert(txn, from);
                }
                Ok(Some(Output::Call(txn, call)))
            }
        }
    }

    /// A call that was passed on is answered.
    pub fn handle_reply(&mut self, txn: TxnId, reply: Reply<T>) -> Option<Output<A, T>> {
        if matches!(reply, Reply::Ended(coordinator::CommitReply::Refused(_))) {
            self.trees.values_mut().for_each(|tree| tree.forget_update(txn));
        }
        let is_over = !matches!(reply, Reply::Locked(_));
        let to = if is_over { self.callers.remove(&txn) } else { self.callers.get(&txn).cloned() };
        to.map(|to| Output::Reply(to, txn, reply))
    }

    /// A participant has answered; `seen` is the largest timestamp that its brick knows.
    ///
    /// # Errors
    /// If that is further ahead than clocks may differ: the answer does not count.
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

    /// The largest timestamp that it knows.
    #[must_use]
    pub fn clock(&self) -> HlcTimestamp {
        self.gateway.as_ref().map_or(HlcTimestamp::ZERO, Gateway::clock)
    }

    /// The connection to a client or redirector below is gone.
    pub fn handle_disconnected(&mut self, below: &A, holders: impl Fn(NodeId, HolderId) -> bool, now: Ms) {
        if let Some(gateway) = &mut self.gateway {
            gateway.handle_disconnected(below);
        }
        self.callers.retain(|_, caller| caller != below);
        self.with_trees(None, |node, tree| {
            let gone: Vec<HolderId> = tree.directory().all_holders().filter(|holder| holders(node, *holder)).collect();
            gone.into_iter().for_each(|holder| tree.handle_disconnected(holder, now));
        });
    }

    /// There is a connection to the node above: to the brick of one logical node, or to a peer server for all.
    pub fn connect(&mut self, node: Option<NodeId>, now: Ms) {
        self.connected |= node.is_none();
        self.with_trees(node, |_, tree| {
            tree.connect(now);
            tree.poll(now);
        });
    }

    /// That connection is gone.
    pub fn disconnect(&mut self, node: Option<NodeId>, now: Ms) {
        self.connected &= node.is_some();
        self.with_trees(node, |_, tree| tree.disconnect(now));
    }

    /// The participant of a logical node can be reached again: see [`Gateway::retry_now`].
    pub fn retry_now(&mut self, node: NodeId) {
        if let Some(gateway) = &mut self.gateway {
            gateway.retry_now(node);
        }
    }

    /// Does what it is time for.
    pub fn poll(&mut self, now: Ms) {
        self.polling.due(now).into_iter().for_each(|node| self.with_trees(Some(node), |_, tree| tree.poll(now)));
        if let Some(gateway) = &mut self.gateway {
            gateway.poll(now);
        }
    }

    /// When [`CacheNode::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let gateway = self.gateway.as_ref().and_then(Gateway::deadline);
        self.polling.first().into_iter().chain(gateway).min()
    }

    /// Takes what is wanted, in order.
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
                gateway::Output::Busy(to, txn, node) => Output::Busy(to, txn, node),
            }));
        }
        out
    }

    /// The part of one tree, for checkers.
    #[must_use]
    pub fn tree(&self, node: NodeId) -> Option<&Redirector<T>> {
        self.trees.get(&node)
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.trees.values().try_for_each(Redirector::check_invariants)?;
        match self.trees.iter().find(|(node, tree)| self.polling.at(**node) != tree.deadline()) {
            Some((node, tree)) => Err(format!("D4: {node:?} is to be polled at {:?}, and is not", tree.deadline())),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
