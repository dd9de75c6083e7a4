//! What [`crate::brick::routing`] needs of a brick: its drivers, locked, and the effects of their outputs.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use model::{NodeId, Object, Result, SpaceId, UploadId};
use protocol::commit::{Rejected, Request};
use protocol::ident::HlcTimestamp;
use protocol::lease::Ms;
use protocol::page_cache::PageImage;
use smallvec::SmallVec;
use store::{RowChanges, RowReply};
use tracing::warn;
use wire::cluster::Message;
use wire::driving::PeerHandle;

use super::{Driver, NodeTask, Nodes, ServedNode};
use crate::brick::node_driver::{Life, PageRead};
use crate::brick::page_rows as rows;
use crate::brick::routing::{self, Effects, HeldNode, LocalNodes, NodeEvent, Submission, Submissions, copy_result};
use crate::brick_links::BrickLinkHandler;
use crate::node_placement::BrickId;

/// Logical nodes of most requests at most.
const USUAL_NODES: usize = 2;

type LockedDriver<'a> = (&'a ServedNode, MutexGuard<'a, Driver>);

fn held_node<'a>((served, driver): &'a mut LockedDriver<'_>) -> HeldNode<'a, PeerHandle> {
    HeldNode { epoch: served.epoch, driver }
}

impl Nodes {
    /// Handles messages of a connection, in order.
    ///
    /// # Errors
    /// If a message violates the protocol: disconnect the sender. Those behind it are not handled.
    pub(crate) fn handle_messages(&self, from: &PeerHandle, messages: impl Iterator<Item = Message>) -> Result<()> {
        let messages = messages.filter_map(|message| self.defer_cold_request(from, message));
        routing::handle_messages(&mut &*self, from, messages)
    }

    /// Carries out the outputs of a driver.
    pub(super) fn carry_out(&self, served: &ServedNode, driver: &mut Driver) {
        routing::carry_out(&mut [HeldNode { epoch: served.epoch, driver }], &mut &*self);
        self.inbox.wake_at(driver.deadline());
    }

    /// Calls `act` with the driver of a logical node that may have rows in flight, and carries out its outputs.
    pub(super) fn act_at_writing(&self, node: NodeId, act: impl FnOnce(&mut Driver)) {
        (&mut &*self).with_writing(node, |held, effects| {
            act(held.driver);
            routing::carry_out(std::slice::from_mut(held), effects);
        });
    }

    /// Tells a driver what has become of its rows.
    fn on_written(&self, node: NodeId, life: Life) -> impl FnOnce(Result<u64>) + Send + use<> {
        let inbox = self.inbox.clone();
        move |result| inbox.add_event(NodeEvent::Written { node, life, result: result.map(drop) })
    }
}

impl Effects<PeerHandle> for &Nodes {
    fn now(&self) -> Ms {
        self.time.now()
    }

    fn send(&mut self, to: &PeerHandle, message: Message) {
        if self.is_current() {
            to.send(message);
        }
    }

    fn ask_elsewhere(&mut self, node: NodeId, seen: HlcTimestamp, request: Request<Object>) {
        let Some(place) = self.cluster_view.placement.of(node) else { return };
        if let Some(brick) = self.brick_links.handle_to(place.brick) {
            brick.send(Message::Ask { node, epoch: place.epoch, seen, request });
        }
    }

    fn damage_of(&self, node: NodeId) -> Option<Arc<str>> {
        Nodes::damage_of(self, node)
    }

    fn applies_at_once(&self) -> bool {
        self.is_in_memory
    }

    fn apply(&mut self, rows: RowChanges) -> Result<()> {
        self.store.commit_rows(rows.mark_needed()).map(drop)
    }

    fn submit(&mut self, mut submissions: Submissions) {
        if submissions.len() > 1 {
            let boxed = |Submission { node, life, rows }| (rows, Box::new(self.on_written(node, life)) as RowReply);
            self.store.submit_rows_together(submissions.into_iter().map(boxed).collect());
        } else if let Some(Submission { node, life, rows }) = submissions.pop() {
            self.store.submit_rows(rows, self.on_written(node, life));
        }
    }

    fn submit_as_one(&mut self, submissions: Submissions) {
        let mut merged = RowChanges::new();
        let mut replies = Vec::with_capacity(submissions.len());
        for Submission { node, life, rows } in submissions {
            merged.append(rows);
            replies.push(self.on_written(node, life));
        }
        self.store.submit_rows(merged, move |result| {
            replies.into_iter().for_each(|reply| reply(copy_result(&result)));
        });
    }

    fn may_commit_in_one_phase(&self) -> bool {
        self.two_phases_until.load(Ordering::Relaxed) <= self.time.now()
    }

    fn reopen(&mut self, node: NodeId) {
        self.two_phases_until.store(self.time.now() + routing::TWO_PHASES_MS, Ordering::Relaxed);
        self.inbox.add(NodeTask::Reopen { node });
    }

    fn read_page(&mut self, node: NodeId, read: PageRead) -> Option<Result<PageImage<Object>>> {
        let reads_later = self.defer_page_read(node, read);
        (!reads_later).then(|| self.cold_reads.measure(|| rows::read_page(&self.store, read.page())))
    }

    fn add_event(&mut self, event: NodeEvent) {
        self.inbox.add_event(event);
    }

    fn refresh_schema(&mut self, space: SpaceId) {
        self.inbox.add(NodeTask::RefreshSchema { space });
    }

    fn abort_upload(&mut self, upload: UploadId) {
        self.store.abort_upload(upload);
    }

    fn report_rejected(&mut self, node: NodeId, why: &Rejected) {
        warn!(%node, error = %why, "a logical node rejected the request of another one");
    }
}

impl<'n> LocalNodes for &'n Nodes {
    type Connection = PeerHandle;
    type Effects = &'n Nodes;

    fn check_current(&self) -> Result<()> {
        Nodes::check_current(self)
    }

    /// Every thread locks rising nodes, so none waits for another one that waits for it.
    fn with_served<T>(
        &mut self,
        nodes: &[NodeId],
        act: impl FnOnce(&mut [HeldNode<'_, PeerHandle>], &mut Self::Effects) -> T,
    ) -> T {
        let served: SmallVec<[Arc<ServedNode>; USUAL_NODES]> = {
            let all = self.served.load();
            nodes.iter().filter_map(|node| all.get(node).cloned()).collect()
        };
        let locked = served.iter().filter_map(|served| Some((&**served, served.lock().ok()?)));
        let mut locked: SmallVec<[LockedDriver<'_>; USUAL_NODES]> = locked.collect();
        let mut all: SmallVec<[HeldNode<'_, PeerHandle>; USUAL_NODES]> = locked.iter_mut().map(held_node).collect();
        let acted = act(&mut all, self);
        all.iter().for_each(|one| self.inbox.wake_at(one.driver.deadline()));
        acted
    }

    fn each_served(&mut self, mut act: impl FnMut(&mut HeldNode<'_, PeerHandle>, &mut Self::Effects)) {
        for served in self.served.load().values() {
            if let Ok(driver) = served.lock() {
                let mut locked = (&**served, driver);
                act(&mut held_node(&mut locked), self);
                self.inbox.wake_at(locked.1.deadline());
            }
        }
    }

    fn with_writing(&mut self, node: NodeId, act: impl FnOnce(&mut HeldNode<'_, PeerHandle>, &mut Self::Effects)) {
        let closing = self.lock_closing().get(&node).cloned();
        if let Some(served) = closing.or_else(|| self.served_node(node))
            && let Ok(driver) = served.driver.lock()
        {
            let mut locked = (&*served, driver);
            act(&mut held_node(&mut locked), self);
            self.inbox.wake_at(locked.1.deadline());
        }
    }
}

impl BrickLinkHandler for Nodes {
    fn on_connected(&self, _: BrickId) {}

    fn handle_messages(&self, _: BrickId, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        messages.try_for_each(|message| routing::handle_brick_message(&mut &*self, &message))
    }

    fn on_disconnected(&self, _: BrickId) {}
}
