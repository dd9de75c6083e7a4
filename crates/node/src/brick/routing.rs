//! Carries out the outputs of the drivers of a brick's logical nodes, and passes messages to them and between them.
//!
//! The code is pure: it knows no thread, lock, socket or clock. The brick that ships ([`Nodes`](super::nodes::Nodes)) and the simulated one
//! (`SimulatedBrick`) call it, so that what the simulator runs is what ships. They offer the drivers ([`LocalNodes`]) and do what is to be
//! done outside of them ([`Effects`]).
//!
//! | output of a driver | its receiver is at hand | is elsewhere |
//! | --- | --- | --- |
//! | `Ask`, `Answer`, `Deferred` | the receiver handles it at once | it becomes an event; if this brick does not serve the receiver of a request, the brick that does gets it |
//! | `SubmitRows` | submitted together with those of all drivers at hand; or applied at once | |
//! | `ReadPage` | read at once, or later if that would wait for the disk | |
//! | others | carried out at once | |
//!
//! 1. The outputs of a driver are carried out in order. The reason for which a logical node does not take its part of a transaction in
//!    goes the same way as its vote, so it arrives first (C5).
//! 2. Rows are submitted in the order of the outputs, after all other outputs: no output requires that rows are submitted. The logical nodes of
//!    a joint request are held together, and share a force. Rows of requests to one logical node that are handled before its outputs
//!    are carried out are one change of the store.
//! 3. Pages that are read later arrive as events, in any order.
//! 4. The rows of a one-phase commit are one change of the store (`one_phase`).
//! 5. A store in memory applies rows at once, and its result is handled before the next output.

mod messages;
mod one_phase;

use std::iter::Peekable;
use std::sync::Arc;

use model::{NodeId, Object, Result, SpaceId, UploadId};
#[cfg(any(test, feature = "sim"))]
use protocol::commit::Change;
use protocol::commit::{Answer, Rejected, Request};
use protocol::ident::HlcTimestamp;
#[cfg(any(test, feature = "sim"))]
use protocol::ident::Version;
use protocol::lease::Ms;
use protocol::page_cache::PageImage;
use smallvec::SmallVec;
use store::RowChanges;
use wire::cluster::Message;

use super::node_driver::{DriverOutput, Life, NodeDriver, PageRead, Requester};
use super::plant::{Bug, planted};
pub(crate) use messages::{handle_brick_message, handle_messages};
pub(crate) use one_phase::{TWO_PHASES_MS, copy_result};

/// Something that a logical node of the brick has to handle, by whichever thread.
pub(crate) enum NodeEvent {
    /// The store has made the oldest submitted rows of a logical node durable, or has refused them.
    Written { node: NodeId, life: Life, result: Result<()> },
    /// A page was read for a logical node, or cannot be read.
    PageRead { node: NodeId, read: PageRead, found: Result<PageImage<Object>> },
    /// A logical node sends a request to another one.
    Ask { from: NodeId, node: NodeId, seen: HlcTimestamp, request: Request<Object> },
    /// A logical node answers another one of this brick.
    Answer { to: NodeId, node: NodeId, answer: Answer },
    /// A logical node tells another one of this brick that a transaction is not taken in.
    Deferred { to: NodeId, message: Message },
}

impl NodeEvent {
    /// The logical node that handles it.
    pub(crate) fn target_node(&self) -> NodeId {
        match self {
            Self::Written { node, .. } | Self::PageRead { node, .. } | Self::Ask { node, .. } => *node,
            Self::Answer { to, .. } | Self::Deferred { to, .. } => *to,
        }
    }

    /// Whether it is a result of the store that concerns this logical node.
    fn is_written_at(&self, at: NodeId) -> bool {
        matches!(self, Self::Written { node, .. } if *node == at)
    }
}

/// A logical node whose driver is at hand: nothing else uses it meanwhile. `C` is a connection.
pub(crate) struct HeldNode<'a, C> {
    /// The epoch under which it is served.
    pub(crate) epoch: u64,
    pub(crate) driver: &'a mut NodeDriver<C>,
}

/// Rows that a driver submits to the store.
pub(crate) struct Submission {
    pub(crate) node: NodeId,
    pub(crate) life: Life,
    pub(crate) rows: RowChanges,
}

/// Rows that are submitted together. Most often those of one change.
pub(crate) type Submissions = SmallVec<[Submission; 1]>;

/// What a brick does for its drivers, each at once and in the order of the calls. `C` is a connection.
pub(crate) trait Effects<C> {
    /// The time of the brick's clock, in milliseconds.
    fn now(&self) -> Ms;

    /// Sends a message.
    fn send(&mut self, to: &C, message: Message);

    /// Sends a request to the brick that serves a logical node, which this one does not.
    fn ask_elsewhere(&mut self, node: NodeId, seen: HlcTimestamp, request: Request<Object>);

    /// What is damaged at a logical node that cannot be served for that reason.
    fn damage_of(&self, node: NodeId) -> Option<Arc<str>>;

    /// Whether the store applies rows at once.
    fn applies_at_once(&self) -> bool;

    /// Applies rows at once. The store accepts what follows from changes that it has accepted.
    fn apply(&mut self, rows: RowChanges) -> Result<()>;

    /// Submits rows in this order, so that one force makes them durable. Their results are events, in the order of the log.
    fn submit(&mut self, submissions: Submissions);

    /// Submits rows as one change of the store: all become durable together, or none. Each submission has its result.
    fn submit_as_one(&mut self, submissions: Submissions);

    /// Whether transactions may be committed in one phase now: the store has had room.
    fn may_commit_in_one_phase(&self) -> bool;

    /// Closes the driver of a logical node, and opens it again with what is stored. For some time no transaction is committed in one phase.
    fn reopen(&mut self, node: NodeId);

    /// Reads a page for a logical node. `None` if that would wait for the disk: then [`NodeEvent::PageRead`] says later what was found.
    fn read_page(&mut self, node: NodeId, read: PageRead) -> Option<Result<PageImage<Object>>>;

    /// Adds an event behind the others, to be [handled](handle_event) soon.
    fn add_event(&mut self, event: NodeEvent);

    /// Has the classes of a space refreshed from the catalogue.
    fn refresh_schema(&mut self, space: SpaceId);

    /// Aborts an upload in the store.
    fn abort_upload(&mut self, upload: UploadId);

    /// A logical node has rejected a request of another one: one of them breaks the rules.
    fn report_rejected(&mut self, node: NodeId, why: &Rejected);

    /// A change was turned into rows that are about to be submitted. For checkers.
    #[cfg(any(test, feature = "sim"))]
    fn note_appended(&mut self, _node: NodeId, _version: Version, _change: Change<Object>) {}
}

/// The logical nodes of a brick.
pub(crate) trait LocalNodes {
    /// A connection.
    type Connection: Clone;
    /// What the brick does for the drivers.
    type Effects: Effects<Self::Connection>;

    /// Checks that this process may still serve the brick.
    ///
    /// # Errors
    /// The reason if it may not.
    fn check_current(&self) -> Result<()>;

    /// Calls `act` with those of these logical nodes that are served and have not failed, in the order of `nodes`, which rises.
    fn with_served<T>(
        &mut self,
        nodes: &[NodeId],
        act: impl FnOnce(&mut [HeldNode<'_, Self::Connection>], &mut Self::Effects) -> T,
    ) -> T;

    /// Calls `act` with each logical node that is served and has not failed, one after the other.
    fn each_served(&mut self, act: impl FnMut(&mut HeldNode<'_, Self::Connection>, &mut Self::Effects));

    /// Calls `act` with a logical node that may have rows in flight: that is closing, or else is served, even if it has failed.
    fn with_writing(&mut self, node: NodeId, act: impl FnOnce(&mut HeldNode<'_, Self::Connection>, &mut Self::Effects));
}

/// Carries out the outputs of drivers, those of each in order, until there are none.
pub(crate) fn carry_out<C: Clone>(held: &mut [HeldNode<'_, C>], effects: &mut impl Effects<C>) {
    let mut submissions = Submissions::new();
    while let Some((index, output)) = next_output(held) {
        carry_out_one(held, index, output, effects, &mut submissions);
    }
    if planted(Bug::JointRowsReversed) {
        submissions.reverse();
    }
    if !submissions.is_empty() {
        effects.submit(submissions);
    }
}

fn next_output<C: Clone>(held: &mut [HeldNode<'_, C>]) -> Option<(usize, DriverOutput<C>)> {
    held.iter_mut().enumerate().find_map(|(index, one)| Some((index, one.driver.next_output()?)))
}

/// Carries out an output of the driver with this index.
fn carry_out_one<C: Clone>(
    held: &mut [HeldNode<'_, C>],
    index: usize,
    output: DriverOutput<C>,
    effects: &mut impl Effects<C>,
    submissions: &mut Submissions,
) {
    let from = held[index].driver.node();
    let place_of = |node: NodeId| held.iter().position(|one| one.driver.node() == node);
    match output {
        DriverOutput::Send(to, message) => effects.send(&to, message),
        DriverOutput::SubmitRows { life, rows } if effects.applies_at_once() => {
            let result = effects.apply(rows);
            held[index].driver.handle_written(life, result, effects.now());
        }
        DriverOutput::SubmitRows { life, rows } => submissions.push(Submission { node: from, life, rows }),
        DriverOutput::ReadPage(read) => {
            if let Some(found) = effects.read_page(from, read) {
                held[index].driver.handle_page_read(read, found, effects.now());
            }
        }
        DriverOutput::Ask { node, seen, request } => match place_of(node) {
            Some(to) => handle_local_request(held[to].driver, from, (seen, request), effects),
            None => effects.add_event(NodeEvent::Ask { from, node, seen, request }),
        },
        DriverOutput::Answer { to, answer } => match place_of(to) {
            Some(to) => held[to].driver.handle_answer(from, answer, effects.now()),
            None => effects.add_event(NodeEvent::Answer { to, node: from, answer }),
        },
        DriverOutput::Deferred { to, message } => match place_of(to) {
            // The reason precedes the answer, after which its requester is forgotten.
            Some(to) if !planted(Bug::DeferralQueued) => held[to].driver.handle_deferred(&message),
            _ => effects.add_event(NodeEvent::Deferred { to, message }),
        },
        DriverOutput::Reopen => effects.reopen(from),
        DriverOutput::RefreshSchema { space } => effects.refresh_schema(space),
        DriverOutput::AbortUpload(upload) => effects.abort_upload(upload),
        #[cfg(any(test, feature = "sim"))]
        DriverOutput::Appended { version, change } => effects.note_appended(from, version, change),
    }
}

/// A logical node handles a request of another one of its brick, or its own.
fn handle_local_request<C: Clone>(
    driver: &mut NodeDriver<C>,
    from: NodeId,
    (seen, request): (HlcTimestamp, Request<Object>),
    effects: &mut impl Effects<C>,
) {
    if let Err(why) = driver.handle_request(Requester::Node(from), request, seen, effects.now()) {
        effects.report_rejected(driver.node(), &why);
    }
}

/// Handles an event, and the results of the store behind it that concern the same logical node.
pub(crate) fn handle_event<L: LocalNodes>(
    local: &mut L,
    event: NodeEvent,
    following: &mut Peekable<impl Iterator<Item = NodeEvent>>,
) {
    match event {
        NodeEvent::Written { node, life, result } => local.with_writing(node, |held, effects| {
            held.driver.handle_written(life, result, effects.now());
            while let Some(NodeEvent::Written { life, result, .. }) = following.next_if(|next| next.is_written_at(node))
            {
                held.driver.handle_written(life, result, effects.now());
            }
            carry_out(std::slice::from_mut(held), effects);
        }),
        NodeEvent::PageRead { node, read, found } => {
            act_at(local, node, |driver, now| driver.handle_page_read(read, found, now));
        }
        NodeEvent::Answer { to, node, answer } => {
            act_at(local, to, |driver, now| driver.handle_answer(node, answer, now));
        }
        NodeEvent::Deferred { to, message } => act_at(local, to, |driver, _| driver.handle_deferred(&message)),
        NodeEvent::Ask { from, node, seen, request } => {
            local.with_served(&[node], |held, effects| match held.first_mut() {
                Some(one) => {
                    handle_local_request(one.driver, from, (seen, request), effects);
                    carry_out(held, effects);
                }
                None => effects.ask_elsewhere(node, seen, request),
            })
        }
    }
}

/// Calls `act` with the driver of a logical node, if that is served, and carries out its outputs.
fn act_at<L: LocalNodes>(local: &mut L, node: NodeId, act: impl FnOnce(&mut NodeDriver<L::Connection>, Ms)) {
    local.with_served(&[node], |held, effects| {
        if let Some(one) = held.first_mut() {
            act(one.driver, effects.now());
            carry_out(held, effects);
        }
    });
}
