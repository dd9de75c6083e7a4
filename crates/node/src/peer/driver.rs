//! The peer server as a machine: inputs are messages, connections, the catalogue, the placement map and the time;
//! outputs are messages.
//!
//! ```text
//!  client_message ──▶ ┌────────────┐ ──▶ Up, Ask            to bricks
//!  brick_message  ──▶ │ PeerDriver │ ──▶ Down, Reply, …     to clients
//!  map, catalogue ──▶ └────────────┘ ──▶ ReadEnded          to readers of the object cache
//! ```
//!
//! It owns the [`CacheNode`] (coordinator and middle of every cache tree), the object cache, the holders and clients below, the
//! trees that have to be tried again, and the status of spaces. It does no I/O, reads no clock and takes no locks; equal inputs in
//! equal order give equal outputs. The process around it ([`super::shard::PeerShard`]) holds the lock, the sockets and the timers; the
//! simulator runs the same machine.
//!
//! 1. A client uses its own sessions and transactions only, and pages of its own space (N1, C3). A client that breaks this is
//!    disconnected.
//! 2. When a connection ends, its holders are sent nothing more; they stay listed until their leases end (D4). Its client number is
//!    free unless a later connection has taken it.
//! 3. A logical node that is placed elsewhere has a new session in its tree (D4): the old tree is closed first.
//! 4. A logical node of a removed space has no tree and no transactions any more. Its clients are disconnected.
//! 5. In a stopped space no new work is taken, and what was begun is finished in its order (N1).
//! 6. Clients begin transactions by the time that they are told, whenever it changes other than by their own steady clocks (L2).

mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meta::catalog::{Catalog, Permission};
use model::{Error, ErrorKind, NodeId, Oid, Result};
use protocol::cache_node::{self, CacheNode};
use protocol::clock::ClusterTime;
use protocol::commit::Refusal;
use protocol::commit::coordinator::{CommitReply, MixedOutcome};
use protocol::gateway::{Call, CallLimit, Reply};
use protocol::ident::{ClientId, HolderId, TxnId};
use protocol::lease::Ms;
use protocol::tree::{Down, Up};
use tracing::error;
use wire::cluster::damaged_node_error;
use wire::proto::request::Request;

use super::cache::{CachedContent, CachedObject, ObjectCache};
use super::downstreams::{Downstreams, MAX_UNCONFIRMED_PAGES};
use super::outcome_counts::OutcomeCounts;
use super::peer_client::{PeerClient, check_call, required_permission};
use super::plant::{Bug, planted};
use super::requests;
use super::space_statuses::{SpaceStatuses, StoppedSpaces};
use crate::brick::SKEW_MS;
use crate::node_placement::{BrickId, NodePlacement, PlacementSnapshot};

pub use messages::{BrickMessage, ClientMessage, Output, PeerSettings};

/// Pauses before a tree that its brick did not serve is tried again, in milliseconds. The first one is short, since the logical
/// node may just have moved.
const MIN_RETRY_MS: Ms = 20;
const MAX_RETRY_MS: Ms = 200;

/// How often clients are told the time, even if nothing has changed it, in milliseconds: no two steady clocks run at one rate.
const TELL_TIME_MS: Ms = 60_000;

/// When a tree is tried again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    /// `None` while the answer to the last attempt is awaited.
    at: Option<Ms>,
    pause: Ms,
}

/// How long a damage is believed after its brick was connected to again. The brick tells at once what is damaged still.
const RETELL_MS: Ms = 2_000;

/// What is damaged at a logical node.
struct NodeDamage {
    what: Arc<str>,
    /// When it is forgotten, if the brick has not told it again.
    until: Ms,
}

/// The peer server. `A` is the address of a client, `T` an object, `R` the address of a reader of the object cache.
pub struct PeerDriver<A, T, R> {
    settings: PeerSettings,
    node: CacheNode<A, T>,
    cache: ObjectCache<T, R>,
    outcome_counts: OutcomeCounts,
    below: Downstreams<A>,
    retries: BTreeMap<NodeId, Retry>,
    /// Logical nodes that their bricks cannot serve because their rows are damaged.
    damaged: BTreeMap<NodeId, NodeDamage>,
    /// Whether `damaged` has changed since the statuses were computed.
    has_damage_news: bool,
    placement: Arc<PlacementSnapshot>,
    connected: BTreeSet<BrickId>,
    catalog: Option<Arc<Catalog>>,
    statuses: SpaceStatuses<A>,
    time: ClusterTime,
    /// When clients are told the time again.
    tell_time_at: Ms,
    out: Vec<Output<A, T, R>>,
}

impl<A: Clone + PartialEq, T: CachedContent, R> PeerDriver<A, T, R> {
    /// A peer server that knows of no bricks yet.
    #[must_use]
    pub fn new(settings: PeerSettings, now: Ms) -> Self {
        let PeerSettings { process, session_bits, cache_bytes, backlog_bytes, helpers } = settings;
        assert!(process >> (u64::BITS - session_bits) == 0, "D1: the number {process} leaves no room for sessions");
        let first_holder = HolderId(process << session_bits);
        let node = CacheNode::peer_server(first_holder, helpers, SKEW_MS);
        Self {
            settings,
            node: match backlog_bytes {
                Some(bytes) => node.with_limit(bytes),
                None => node,
            },
            cache: ObjectCache::new((ClientId(process), first_holder), cache_bytes),
            outcome_counts: OutcomeCounts::default(),
            below: Downstreams::new(session_bits),
            retries: BTreeMap::new(),
            damaged: BTreeMap::new(),
            has_damage_news: false,
            placement: Arc::default(),
            connected: BTreeSet::new(),
            catalog: None,
            statuses: SpaceStatuses::default(),
            time: ClusterTime::default(),
            tell_time_at: now + TELL_TIME_MS,
            out: Vec::new(),
        }
    }

    /// Takes the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T, R>> {
        self.out.drain(..)
    }

    /// From now on, this is the time of the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime, now: Ms) {
        if self.time == time && now < self.tell_time_at {
            return;
        }
        self.time = time;
        self.node.set_time(time);
        self.tell_time_at = now + TELL_TIME_MS;
        if time.is_trusted && !planted(Bug::TimeNotTold) {
            let time_ms = time.at(now);
            self.out.extend(self.below.connections().map(|to| Output::Time { to: to.clone(), time_ms }));
        }
    }

    // -------------------------------------------------------------------------------------------- clients

    /// Handles a message of a client.
    ///
    /// # Errors
    /// If a client that follows the rules cannot have sent it: disconnect the client.
    pub fn client_message(&mut self, client: &mut PeerClient<A>, message: ClientMessage<T>, now: Ms) -> Result<()> {
        let handled = match message {
            ClientMessage::Up { node, holder, message } => self.client_up(client, (node, holder), message, now),
            ClientMessage::Call { txn, call } => self.client_call(client, txn, call, now),
            ClientMessage::Watch => self.watch(client),
        };
        self.drain(now);
        handled
    }

    fn client_up(
        &mut self,
        client: &mut PeerClient<A>,
        (node, holder): (NodeId, HolderId),
        message: Up<T>,
        now: Ms,
    ) -> Result<()> {
        let replaced = self.below.check_up(client, (node, holder), &message, self.time.at(now));
        self.disconnect_replaced(replaced)?;
        self.check_not_removed(node)?;
        if let Up::Write { write, .. } = &message
            && let Err(denied) = self.check_write(client)
        {
            self.deny_write(client, (node, holder, *write), &denied);
            return Ok(());
        }
        client.check_permission(self.catalog.as_deref(), Permission::Read)?;
        self.below.check_unconfirmed_pages(client, (holder, &message), &self.node, MAX_UNCONFIRMED_PAGES)?;
        self.pass_up(client.address(), (node, holder), message, now)
    }

    /// Checks that a client may ask this now, by the table of requests.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`]; [`ErrorKind::Stopped`].
    pub fn check_request(&self, client: &PeerClient<A>, request: Request) -> Result<()> {
        requests::row(request).access.check(client, self.catalog.as_deref(), self.statuses.stopped_spaces())
    }

    /// Disconnects the earlier connection of a client that has connected again.
    fn disconnect_replaced(&mut self, replaced: Result<Option<A>>) -> Result<()> {
        self.out.extend(replaced?.map(Output::Disconnect));
        Ok(())
    }

    /// Checks the permission for a write outside of transactions. It is taken in a stopped space, too: it may be a
    /// repeated one, and what was begun is finished in its order (N1). Clients begin no new ones then.
    fn check_write(&self, client: &PeerClient<A>) -> Result<()> {
        if planted(Bug::WriteUnchecked) {
            return Ok(());
        }
        if planted(Bug::StoppedSpaceDropsWrites) {
            return client.check_work(self.catalog.as_deref(), self.statuses.stopped_spaces(), Permission::Write);
        }
        client.check_permission(self.catalog.as_deref(), Permission::Write)
    }

    fn client_call(&mut self, client: &mut PeerClient<A>, txn: TxnId, call: Call<T>, now: Ms) -> Result<()> {
        if !planted(Bug::ForeignTransaction) {
            let replaced = self.below.check_number(client, txn.client);
            self.disconnect_replaced(replaced)?;
        }
        client.check_call_pages(&call)?;
        client.space().nodes.first().map_or(Ok(()), |node| self.check_not_removed(*node))?;
        check_call(txn, &call, self.time.at(now))?;
        if let Some((needed, participants)) = required_permission(&call)
            && let Err(refused) = client.check_work(self.catalog.as_deref(), self.statuses.stopped_spaces(), needed)
        {
            return self.refuse_call(client, txn, (participants, call.patched_nodes()), &refused, now);
        }
        self.pass_call(client.address(), txn, call, now)
    }

    /// Checks that the space of a logical node exists.
    fn check_not_removed(&self, node: NodeId) -> Result<()> {
        match self.placement.is_removed(node) {
            true => Err(Error::new(ErrorKind::NotFound, "the space of this connection was removed")),
            false => Ok(()),
        }
    }

    fn watch(&mut self, client: &PeerClient<A>) -> Result<()> {
        if client.space().nodes.is_empty() {
            return Err(invalid("a connection that names no space watches none"));
        }
        client.check_permission(self.catalog.as_deref(), Permission::Read)?;
        self.statuses.watch(client.space().id, client.address());
        Ok(())
    }

    fn pass_up(&mut self, from: &A, (node, holder): (NodeId, HolderId), message: Up<T>, now: Ms) -> Result<()> {
        self.below.note(from, holder, &message);
        self.node.handle_up(node, holder, message, now).map_err(invalid)
    }

    /// The part of a participant was not sent, because the connection to it has much unsent: it is sent soon.
    pub fn ask_again_soon(&mut self, txn: TxnId, node: NodeId, now: Ms) {
        self.node.ask_again_soon(txn, node, now);
    }

    fn pass_call(&mut self, from: &A, txn: TxnId, call: Call<T>, now: Ms) -> Result<()> {
        let passed_on = self.node.handle_call(from.clone(), txn, call, now).map_err(Error::from)?;
        assert!(passed_on.is_none(), "C2: a peer server is the coordinator of every call");
        Ok(())
    }

    /// Tells a client that a write outside of transactions is denied, and that it has ended.
    fn deny_write(&mut self, client: &PeerClient<A>, (node, holder, write): (NodeId, HolderId, TxnId), why: &Error) {
        let to = client.address();
        self.out.push(refusal(to, (node, write), why));
        let message = Down::Written { write, result: Err(Refusal::TooOld) };
        self.out.push(Output::Down { to: to.clone(), node, holder, message });
    }

    /// Tells a client that its call is refused, and finds out how the transaction has ended: an earlier call of it may have been
    /// taken before that. If none was, the transaction is aborted (C2).
    fn refuse_call(
        &mut self,
        client: &PeerClient<A>,
        txn: TxnId,
        (participants, patched): (Vec<NodeId>, Vec<NodeId>),
        why: &Error,
        now: Ms,
    ) -> Result<()> {
        let node = participants.first().copied().unwrap_or(NodeId(0));
        self.out.push(refusal(client.address(), (node, txn), why));
        if planted(Bug::RefusedNotResolved) {
            return Ok(());
        }
        if participants.is_empty() && !planted(Bug::EmptyRefusalUnknown) {
            // It changes nothing, whatever became of an earlier call.
            let (to, reply) = (client.address().clone(), Reply::Ended(CommitReply::Refused(Refusal::Aborted)));
            self.outcome_counts.count(&reply);
            self.out.push(Output::Reply { to, txn, reply });
            return Ok(());
        }
        self.pass_call(client.address(), txn, Call::Resolve { participants, patched }, now)
    }

    /// A client is connected: from now on it is told when the time of the cluster changes.
    pub fn client_connected(&mut self, client: &PeerClient<A>) {
        self.below.connect(client);
    }

    /// The connection of a client has ended.
    pub fn client_disconnected(&mut self, client: &PeerClient<A>, now: Ms) {
        self.statuses.unwatch(client.space().id, client.address());
        self.handle_disconnected(client.address(), now);
        self.below.forget(client);
    }

    /// A connection from below has ended: its holders are sent nothing more, and its calls need no reply.
    pub fn handle_disconnected(&mut self, address: &A, now: Ms) {
        if planted(Bug::HolderNotForgotten) {
            return;
        }
        let gone = self.below.remove_holders(address);
        self.node.handle_disconnected(address, |_, holder| gone.contains(&holder), now);
        self.drain(now);
    }

    // -------------------------------------------------------------------------------------------- bricks

    /// There is a connection to a brick.
    pub fn brick_connected(&mut self, brick: BrickId, now: Ms) {
        self.connected.insert(brick);
        for node in self.nodes_of(brick) {
            if let Some(damage) = self.damaged.get_mut(&node) {
                damage.until = now + RETELL_MS;
            }
            self.open_tree(node, now);
        }
        self.drain(now);
    }

    /// The connection to a brick has ended.
    pub fn brick_disconnected(&mut self, brick: BrickId, now: Ms) {
        self.connected.remove(&brick);
        for node in self.nodes_of(brick) {
            self.node.disconnect(Some(node), now);
        }
        self.drain(now);
    }

    /// Handles a message of a brick.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the brick's clock is further ahead than clocks may differ (L1): disconnect the brick.
    pub fn brick_message(&mut self, brick: BrickId, message: BrickMessage<T>, now: Ms) -> Result<()> {
        let handled = match message {
            BrickMessage::Down { node, holder, message } => {
                self.forget_damage(node);
                self.node.handle_down(node, holder, message, now);
                Ok(())
            }
            BrickMessage::Answer { node, seen, answer, locked } => {
                self.node.handle_answer(node, answer, locked, seen, now).map_err(invalid)
            }
            BrickMessage::Deferred { node, txn, kind, why } => {
                // The participant may take its part in soon.
                self.node.ask_again_soon(txn, node, now);
                // A write of a client below a redirector is the redirector's here.
                let writer = self.node.writer(node, txn).and_then(|holder| self.below.holder(holder));
                if let Some(to) = writer.or_else(|| self.below.client(txn.client)) {
                    self.out.push(Output::Deferred { to: to.clone(), node, txn, kind, why });
                }
                Ok(())
            }
            BrickMessage::NotServedHere { node, damage } => {
                self.close_refused_tree(brick, node, damage, now);
                Ok(())
            }
        };
        self.drain(now);
        handled
    }

    /// A brick does not serve a logical node (any more): its tree is closed, and opened again after a pause.
    fn close_refused_tree(&mut self, brick: BrickId, node: NodeId, damage: Option<Arc<str>>, now: Ms) {
        // A brick that served the node before it moved has no say in the tree of the new one.
        let is_former = self.placement.nodes.get(&node).is_none_or(|place| place.brick != brick);
        if is_former && !planted(Bug::FormerBrickBelieved) {
            return;
        }
        match damage.filter(|_| !planted(Bug::DamageNotPassedOn)) {
            Some(what) => {
                self.has_damage_news |= self.damaged.get(&node).is_none_or(|known| known.what != what);
                self.damaged.insert(node, NodeDamage { what, until: Ms::MAX });
            }
            // The brick says that it serves the node again.
            None if self.forget_damage(node) => return self.open_tree(node, now),
            None => {}
        }
        self.node.disconnect(Some(node), now);
        let retry = self.retries.entry(node).or_insert(Retry { at: None, pause: MIN_RETRY_MS / 2 });
        if retry.at.is_none() && !planted(Bug::TreeNotRetried) {
            retry.pause = (retry.pause * 2).min(MAX_RETRY_MS);
            retry.at = Some(now + retry.pause);
        }
    }

    /// A logical node is served. Returns whether it was damaged.
    fn forget_damage(&mut self, node: NodeId) -> bool {
        let was_damaged = self.damaged.remove(&node).is_some();
        self.has_damage_news |= was_damaged;
        was_damaged
    }

    /// Whether what is known of damaged logical nodes has changed since the statuses were computed.
    #[must_use]
    pub fn has_damage_news(&self) -> bool {
        self.has_damage_news
    }

    fn nodes_of(&self, brick: BrickId) -> Vec<NodeId> {
        self.placement.nodes.iter().filter(|(_, place)| place.brick == brick).map(|(node, _)| *node).collect()
    }

    /// Opens the tree of a logical node if its brick is connected.
    fn open_tree(&mut self, node: NodeId, now: Ms) {
        if self.placement.nodes.get(&node).is_some_and(|place| self.connected.contains(&place.brick)) {
            self.node.connect(Some(node), now);
            self.node.retry_now(node);
        }
    }

    /// There is a newer placement map: trees of logical nodes that are placed elsewhere begin anew there (D4).
    pub fn map(&mut self, map: Arc<PlacementSnapshot>, now: Ms) {
        if planted(Bug::StaleMap) && !self.placement.nodes.is_empty() {
            return;
        }
        let before = std::mem::replace(&mut self.placement, map);
        for node in self.placement.removed_nodes().filter(|node| !before.is_removed(*node)) {
            self.retries.remove(&node);
            self.damaged.remove(&node);
            if !planted(Bug::RemovedNodeKept) {
                self.node.remove_node(node);
            }
        }
        let bricks = self.placement.nodes.iter().map(|(node, place)| (*node, place.brick.0));
        self.node.set_bricks(bricks.collect());
        let is_moved = |node: &NodeId, place: &NodePlacement| before.nodes.get(node) != Some(place);
        let moved: Vec<NodeId> =
            self.placement.nodes.iter().filter(|(node, place)| is_moved(node, place)).map(|(node, _)| *node).collect();
        for node in moved {
            self.retries.remove(&node);
            self.damaged.remove(&node);
            if !planted(Bug::TreeNotClosed) {
                self.node.disconnect(Some(node), now);
            }
            self.open_tree(node, now);
        }
        self.drain(now);
    }

    /// There is a newer catalogue, by which permissions are checked from now on.
    pub fn set_catalog(&mut self, catalog: &Arc<Catalog>) {
        if self.catalog.as_ref().is_none_or(|known| !Arc::ptr_eq(known, catalog)) {
            self.catalog = Some(catalog.clone());
        }
    }

    /// Computes the status of all spaces from the catalogue and from which bricks respond.
    pub fn update_statuses(&mut self, is_responsive: impl Fn(BrickId) -> bool, now: Ms) {
        if let Some(catalog) = self.catalog.clone() {
            self.damaged.retain(|_, damage| now < damage.until);
            let damaged = self.damaged.iter().map(|(node, damage)| (*node, damage.what.clone())).collect();
            self.has_damage_news = false;
            self.statuses.update(&catalog, is_responsive, &damaged, now);
            self.drain(now);
        }
    }

    /// The spaces that are stopped, with the reasons.
    pub(super) fn stopped_spaces(&self) -> &Arc<StoppedSpaces> {
        self.statuses.stopped_spaces()
    }

    /// The bricks that serve something and cannot be reached, or have not been reached yet.
    #[must_use]
    pub fn unreachable_bricks(&self) -> Vec<BrickId> {
        self.statuses.unreachable_bricks()
    }

    // -------------------------------------------------------------------------------------------- the object cache

    /// An object, if the cache has it.
    pub fn read_cached(&mut self, oid: Oid, now: Ms) -> Option<CachedObject<T>> {
        self.cache.get(oid, now)
    }

    /// Reads an object, whose page is fetched if the cache lacks it; the reader gets it by [`Output::ReadEnded`].
    pub fn read(&mut self, oid: Oid, reader: R, now: Ms) {
        self.cache.read(oid, reader, now);
        self.drain(now);
    }

    // -------------------------------------------------------------------------------------------- time

    /// Does what is due.
    pub fn poll(&mut self, now: Ms) {
        let is_due = |retry: &Retry| retry.at.is_some_and(|at| at <= now);
        let due: Vec<NodeId> = self.retries.iter().filter(|(_, retry)| is_due(retry)).map(|(node, _)| *node).collect();
        for node in due {
            self.retries.entry(node).and_modify(|retry| retry.at = None);
            self.open_tree(node, now);
        }
        self.node.poll(now);
        self.cache.poll(now);
        self.drain(now);
    }

    /// When [`PeerDriver::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        let retry = self.retries.values().filter_map(|retry| retry.at).min();
        let cache = Some(self.cache.deadline()).filter(|at| *at < Ms::MAX);
        self.node.deadline().into_iter().chain(retry).chain(cache).min()
    }

    // -------------------------------------------------------------------------------------------- outputs

    /// Turns what the cache node and the object cache want into outputs.
    fn drain(&mut self, now: Ms) {
        loop {
            let (outputs, own) = (self.node.outputs(), self.cache.outputs());
            if outputs.is_empty() && own.is_empty() {
                break;
            }
            for output in outputs {
                self.handle_node_output(output, now);
            }
            // The object cache renews its leases until they have ended.
            for (node, holder, message) in own.into_iter().filter(|(node, ..)| !self.placement.is_removed(*node)) {
                let handled = self.node.handle_up(node, holder, message, now);
                assert!(handled.is_ok(), "D1: the object cache speaks of foreign pages: {handled:?}");
            }
        }
        for (reader, oid, result) in self.cache.take_finished() {
            let result = result.map_err(|late| self.add_brick(late, oid.page().node));
            self.out.push(Output::ReadEnded { reader, result });
        }
        let unsent = self.statuses.take_unsent();
        self.out.extend(unsent.into_iter().map(|(to, status)| Output::Status { to, status }));
    }

    fn handle_node_output(&mut self, output: cache_node::Output<A, T>, now: Ms) {
        let place_of = |node: &NodeId| self.placement.nodes.get(node).copied();
        match output {
            // What cannot be sent now is sent again by the machine.
            cache_node::Output::Up(node, holder, message) => {
                if let Some(to) = place_of(&node) {
                    self.out.push(Output::Up { to, node, holder, message });
                }
            }
            cache_node::Output::Ask(node, request) => {
                if let Some(to) = place_of(&node) {
                    self.out.push(Output::Ask { to, node, seen: self.node.clock(), request });
                }
            }
            cache_node::Output::Down(node, holder, message)
                if self.below.client_of(holder).0 == self.settings.process =>
            {
                self.cache.handle_down(node, holder, message, now);
            }
            cache_node::Output::Down(node, holder, message) => {
                if let Some(to) = self.below.holder(holder) {
                    self.out.push(Output::Down { to: to.clone(), node, holder, message });
                }
            }
            cache_node::Output::Reply(to, txn, reply) => {
                self.outcome_counts.count(&reply);
                self.out.push(Output::Reply { to, txn, reply });
            }
            cache_node::Output::MixedOutcome(txn, MixedOutcome { committed, aborted }) => {
                error!(?txn, %committed, %aborted, "a transaction is committed at a logical node and aborted at another one");
            }
            cache_node::Output::Busy(to, txn, limit) => {
                let node = limit.node();
                let brick = place_of(&node).map_or_else(String::new, |place| format!(" at brick {}", place.brick.0));
                let what = match limit {
                    CallLimit::Participant(node) => {
                        format!(
                            "logical node {:x}{brick} does not answer, and the transactions that wait for it have",
                            node.0
                        )
                    }
                    CallLimit::Client(_) => {
                        "the transactions of this client that wait for outcomes or locks have".to_owned()
                    }
                    CallLimit::Total(_) => "the transactions that wait for their outcomes here have".to_owned(),
                };
                let why = format!("{what} reached their limit: nothing of this one was sent there; try later");
                self.out.push(Output::Deferred { to, node, txn, kind: ErrorKind::Unavailable, why });
            }
            cache_node::Output::Call(txn, _) => unreachable!("C2: a peer server passes on the call of {txn:?}"),
        }
    }

    /// Adds the brick to the error of a read that was not answered in time.
    fn add_brick(&self, error: Error, node: NodeId) -> Error {
        if let Some(damage) = self.damaged.get(&node) {
            return damaged_node_error(node, &damage.what);
        }
        match self.placement.nodes.get(&node).filter(|_| error.kind() == ErrorKind::Unavailable) {
            Some(place) => Error::new(error.kind(), format!("{error}; it is at brick {}", place.brick.0)),
            None => error,
        }
    }

    // -------------------------------------------------------------------------------------------- looking

    /// How transactions of clients have ended.
    pub(super) fn outcome_counts(&self) -> &OutcomeCounts {
        &self.outcome_counts
    }

    /// Reads of the object cache that found their object, reads that did not, and bytes of cached pages.
    #[must_use]
    pub fn cache_counts(&self) -> (u64, u64, usize) {
        (self.cache.hits, self.cache.misses, self.cache.bytes())
    }

    /// How many sessions clients have.
    #[must_use]
    pub fn holder_count(&self) -> usize {
        self.below.holder_count()
    }

    /// The cache node, for checkers.
    #[must_use]
    pub fn cache_node(&self) -> &CacheNode<A, T> {
        &self.node
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not hold, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.node.check_invariants()?;
        if let Some((node, retry)) = self.retries.iter().find(|(_, retry)| retry.pause > MAX_RETRY_MS) {
            return Err(format!("D4: the tree of {node:?} is tried again after {} ms", retry.pause));
        }
        Ok(())
    }
}

/// Tells a client that its transaction, or write, is refused.
fn refusal<A: Clone, T, R>(to: &A, (node, txn): (NodeId, TxnId), why: &Error) -> Output<A, T, R> {
    Output::Deferred { to: to.clone(), node, txn, kind: why.kind(), why: why.message().to_owned() }
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, why.to_string())
}

#[cfg(test)]
mod tests;
