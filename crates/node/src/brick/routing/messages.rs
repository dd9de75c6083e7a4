//! Messages of coordinators, of cache nodes and of other bricks.

use std::iter::Peekable;

use model::{Error, ErrorKind, NodeId, Object, Result, limits};
use protocol::commit::{Part, Rejected, Request};
use protocol::ident::{HlcTimestamp, HolderId};
use protocol::lease::Ms;
use protocol::page_cache::ObjectState;
use protocol::tree::Up;
use smallvec::SmallVec;
use wire::cluster::{Message, describe_damage};

use super::{Effects, HeldNode, LocalNodes, carry_out, one_phase};
use crate::brick::node_driver::{NodeDriver, Requester};
use crate::brick::node_manager::refuse_epoch;
use crate::brick::plant::{Bug, planted};

/// Requests that are handled together, at most.
const MAX_RUN: usize = 32;

/// Handles messages of a connection. Those to one logical node are handled in order.
///
/// # Errors
/// If a message violates the protocol: disconnect the sender. Those behind it are not handled.
pub(crate) fn handle_messages<L: LocalNodes>(
    local: &mut L,
    from: &L::Connection,
    messages: impl Iterator<Item = Message>,
) -> Result<()> {
    let mut messages = messages.peekable();
    while let Some(message) = messages.next() {
        local.check_current()?;
        match message {
            Message::Up { node, epoch, holder, message } => {
                handle_up(local, from, (node, epoch), holder, message)?;
            }
            Message::Ask { node, epoch, seen, request: request @ Request::Joint { .. } } => {
                handle_joint(local, from, (node, epoch), (seen, request))?;
            }
            Message::Ask { node, epoch, seen, request } => {
                check_request(&request)?;
                let first = NodeRequest { at: (node, epoch), seen, request };
                handle_requests(local, from, collect_requests(first, &mut messages))?;
            }
            _ => return Err(not_for_bricks()),
        }
    }
    Ok(())
}

/// Handles a message of a holder.
fn handle_up<L: LocalNodes>(
    local: &mut L,
    from: &L::Connection,
    (node, epoch): (NodeId, u64),
    holder: HolderId,
    message: Up<Object>,
) -> Result<()> {
    if let Up::Write { writes, .. } = &message {
        limits::check_writes(writes.len(), bytes_of(writes.values()))?;
    }
    with_admitted(local, from, &[node], epoch, |driver, now| driver.handle_up(from, holder, message, now))
}

/// Calls `act` with the first of these logical nodes, if it is admitted, and carries out what follows at all of them together.
fn with_admitted<L: LocalNodes>(
    local: &mut L,
    from: &L::Connection,
    nodes: &[NodeId],
    epoch: u64,
    act: impl FnOnce(&mut NodeDriver<L::Connection>, Ms) -> std::result::Result<(), Rejected>,
) -> Result<()> {
    let Some(first) = nodes.first() else { return Ok(()) };
    local.with_served(nodes, |held, effects| {
        let Some(one) = admit(held, from, (*first, epoch), effects) else { return Ok(()) };
        let handled = act(one.driver, effects.now());
        carry_out(held, effects);
        handled.map_err(Error::from)
    })
}

/// Handles a joint request, of whose logical nodes the first one is admitted (C5). They are held together, so that their rows reach the
/// store together.
fn handle_joint<L: LocalNodes>(
    local: &mut L,
    from: &L::Connection,
    (first, epoch): (NodeId, u64),
    (seen, request): (HlcTimestamp, Request<Object>),
) -> Result<()> {
    check_request(&request)?;
    let Request::Joint { requests, .. } = &request else { return Ok(()) };
    let nodes: Vec<NodeId> = requests.keys().copied().collect();
    if nodes.first() != Some(&first) {
        return Err(Error::new(ErrorKind::Invalid, "a joint request is for the first of its logical nodes"));
    }
    local.with_served(&nodes, |held, effects| {
        if admit(held, from, (first, epoch), effects).is_none() {
            return Ok(());
        }
        let Some(request) = one_phase::try_commit(held, from, (seen, request), effects) else { return Ok(()) };
        let handled = handle_request(held, from, (seen, request), effects);
        carry_out(held, effects);
        handled
    })
}

/// A request to a logical node, as of an epoch.
struct NodeRequest {
    at: (NodeId, u64),
    seen: HlcTimestamp,
    request: Request<Object>,
}

/// Requests that arrive together. Most often it is one.
type NodeRequests = SmallVec<[NodeRequest; 1]>;

/// Takes the requests behind the first one, up to another kind of message or one that is too large. Those to one logical node follow each
/// other then, in their order; no rule orders requests to different ones.
fn collect_requests(first: NodeRequest, messages: &mut Peekable<impl Iterator<Item = Message>>) -> NodeRequests {
    let is_request = |message: &Message| {
        matches!(message, Message::Ask { request, .. }
            if !matches!(request, Request::Joint { .. }) && check_request(request).is_ok())
    };
    let mut requests = NodeRequests::from_iter([first]);
    while requests.len() < MAX_RUN
        && let Some(Message::Ask { node, epoch, seen, request }) = messages.next_if(is_request)
    {
        requests.push(NodeRequest { at: (node, epoch), seen, request });
    }
    requests.sort_by_key(|request| request.at);
    requests
}

/// Handles requests, those to one logical node together: their rows reach the store together, as one change.
fn handle_requests<L: LocalNodes>(local: &mut L, from: &L::Connection, requests: NodeRequests) -> Result<()> {
    let mut requests = requests.into_iter().peekable();
    while let Some(NodeRequest { at, seen, request }) = requests.next() {
        local.with_served(&[at.0], |held, effects| {
            if admit(held, from, at, effects).is_none() {
                return Ok(());
            }
            let mut next = Some((seen, request));
            let mut handled = Ok(());
            while let Some(request) = next.take().filter(|_| handled.is_ok()) {
                handled = handle_request(held, from, request, effects);
                let following = requests.next_if(|next| next.at == at || planted(Bug::RunTakesOtherNode));
                next = following.map(|NodeRequest { seen, request, .. }| (seen, request));
            }
            carry_out(held, effects);
            handled
        })?;
    }
    Ok(())
}

/// Handles one of several requests to a logical node. One of those before it may have made the node fail.
fn handle_request<C: Clone>(
    held: &mut [HeldNode<'_, C>],
    from: &C,
    (seen, request): (HlcTimestamp, Request<Object>),
    effects: &mut impl Effects<C>,
) -> Result<()> {
    let Some(HeldNode { driver, .. }) = held.first_mut() else { return Ok(()) };
    if let Some(why) = driver.failure() {
        let damage = (why.kind() == ErrorKind::Corrupt).then(|| describe_damage(why));
        effects.send(from, Message::NotServedHere { node: driver.node(), epoch: 0, damage });
        return Ok(());
    }
    let handled = driver.handle_request(Requester::Remote(from.clone()), request, seen, effects.now());
    handled.map_err(Error::from)
}

/// The logical node for a message that was sent by the placement map of `epoch`, if it is the first one at hand. Otherwise the sender is
/// told that it is not served here. It is not disconnected, because it made no mistake.
fn admit<'a, 'b, C: Clone>(
    held: &'a mut [HeldNode<'b, C>],
    from: &C,
    (node, epoch): (NodeId, u64),
    effects: &mut impl Effects<C>,
) -> Option<&'a mut HeldNode<'b, C>> {
    let found = held.first_mut().filter(|one| one.driver.node() == node);
    match refuse_epoch(node, found.as_ref().map(|one| one.epoch), epoch, || effects.damage_of(node)) {
        Some(refusal) => {
            effects.send(from, refusal);
            None
        }
        None => found,
    }
}

/// Handles a message with which another brick answers one of the logical nodes here.
///
/// # Errors
/// If a brick does not send such a message to others.
pub(crate) fn handle_brick_message<L: LocalNodes>(local: &mut L, message: &Message) -> Result<()> {
    match message {
        // Only the driver that asked knows the transaction; the others ignore the answer.
        Message::Answer { node, answer, .. } => local.each_served(|one, effects| {
            one.driver.handle_answer(*node, answer.clone(), effects.now());
            carry_out(std::slice::from_mut(one), effects);
        }),
        Message::Deferred { .. } => local.each_served(|one, effects| {
            one.driver.handle_deferred(message);
            carry_out(std::slice::from_mut(one), effects);
        }),
        // The driver repeats the request, by the newest map then.
        Message::NotServedHere { .. } => {}
        _ => return Err(not_for_bricks()),
    }
    Ok(())
}

/// Checks the sizes of the parts in a request.
fn check_request(request: &Request<Object>) -> Result<()> {
    match request {
        Request::Prepare { part, .. } | Request::Commit { part, .. } => check_part(part),
        Request::Joint { requests, .. } => requests.values().try_for_each(check_request),
        _ => Ok(()),
    }
}

/// Checks the size of a part of a transaction.
fn check_part(part: &Part<Object>) -> Result<()> {
    let keys: usize = part.entries.keys().map(|entry| entry.key.as_bytes().len()).sum();
    limits::check_writes(part.writes.len(), bytes_of(part.writes.values()) + keys)?;
    limits::check_entries(part.entries.len(), keys)
}

/// Sum of the sizes of objects.
fn bytes_of<'a>(contents: impl Iterator<Item = &'a ObjectState<Object>>) -> usize {
    let bytes = |content: &ObjectState<Object>| match content {
        ObjectState::Value(object) | ObjectState::Changed(object) => object.encoded_len(),
        ObjectState::Absent => 0,
    };
    contents.map(bytes).sum()
}

fn not_for_bricks() -> Error {
    Error::new(ErrorKind::Invalid, "this message is not for a brick")
}
