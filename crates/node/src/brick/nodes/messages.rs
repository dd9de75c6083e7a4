//! Messages of coordinators, of cache nodes and of other bricks.

use std::iter::Peekable;
use std::sync::Arc;

use model::{Error, ErrorKind, NodeId, Object, Result, limits};
use protocol::commit::{Part, Request};
use protocol::ident::HlcTimestamp;
use protocol::page_cache::ObjectState;
use protocol::tree::Up;
use wire::cluster::Message;
use wire::driving::PeerHandle;

use super::joint::LockedNode;
use super::{Nodes, ServedNode};
use crate::brick::node_driver::Requester;
use crate::brick::node_manager::refuse_epoch;
use crate::brick_links::BrickLinkHandler;
use crate::node_placement::BrickId;

impl Nodes {
    /// Handles messages of a connection, in order.
    ///
    /// # Errors
    /// If a message violates the protocol: disconnect the sender. Those behind it are not handled.
    pub(crate) fn handle_messages(&self, from: &PeerHandle, messages: impl Iterator<Item = Message>) -> Result<()> {
        let mut messages = messages.peekable();
        while let Some(message) = messages.next() {
            if !self.is_current() {
                return self.check_current();
            }
            match message {
                Message::Up { node, epoch, holder, message } => {
                    if let Up::Write { writes, .. } = &message {
                        limits::check_writes(writes.len(), bytes_of(writes.values()))?;
                    }
                    let Some(served) = self.admit(from, node, epoch) else { continue };
                    let Ok(mut driver) = served.lock() else {
                        self.refuse(from, node);
                        continue;
                    };
                    let handled = driver.handle_up(from, holder, message, self.time.now());
                    self.carry_out(&served, &mut driver);
                    handled.map_err(invalid_message_error)?;
                }
                Message::Ask { node, epoch, seen, request } => {
                    let Some(served) = self.admit(from, node, epoch) else { continue };
                    if let Request::Joint { requests, .. } = &request {
                        check_request(&request)?;
                        let nodes = requests.keys().copied().collect();
                        self.handle_joint(from, nodes, (node, seen), request)?;
                        continue;
                    }
                    self.handle_requests(from, (node, epoch), &served, (seen, request), &mut messages)?;
                }
                _ => return Err(Error::new(ErrorKind::Invalid, "this message is not for a brick")),
            }
        }
        Ok(())
    }

    /// Handles a request, and those behind it to the same logical node. Their rows reach the store together, so that one force makes
    /// them durable.
    fn handle_requests(
        &self,
        from: &PeerHandle,
        (node, epoch): (NodeId, u64),
        served: &ServedNode,
        first: (HlcTimestamp, Request<Object>),
        following: &mut Peekable<impl Iterator<Item = Message>>,
    ) -> Result<()> {
        let Ok(driver) = served.lock() else {
            self.refuse(from, node);
            return Ok(());
        };
        let is_alike = |message: &Message| match message {
            Message::Ask { request: Request::Joint { .. }, .. } => false,
            Message::Ask { node: to, epoch: by, .. } => (*to, *by) == (node, epoch),
            _ => false,
        };
        let mut locked = [LockedNode { node, served, driver }];
        let mut next = Some(first);
        let mut handled = Ok(());
        while let Some((seen, request)) = next.take_if(|_| handled.is_ok()) {
            let driver = &mut locked[0].driver;
            if driver.failure().is_some() {
                self.refuse(from, node);
            } else {
                handled = check_request(&request).and_then(|()| {
                    let handled =
                        driver.handle_request(Requester::Remote(from.clone()), request, seen, self.time.now());
                    handled.map_err(invalid_message_error)
                });
            }
            // A store in memory applies rows at once, and says before the next request whether there is room.
            if self.is_in_memory {
                self.carry_out_together(&mut locked);
            }
            next = following.next_if(is_alike).and_then(|message| match message {
                Message::Ask { seen, request, .. } => Some((seen, request)),
                _ => None,
            });
        }
        self.carry_out_together(&mut locked);
        handled
    }

    /// Tells the sender that the node is not served here. The sender is not disconnected, because it made no mistake.
    pub(super) fn refuse(&self, from: &PeerHandle, node: NodeId) {
        from.send(Message::NotServedHere { node, epoch: 0 });
    }

    /// The logical node for a message that was sent by the placement map of `epoch`; `None` if it is not served here by that. Then the
    /// sender is told.
    fn admit(&self, from: &PeerHandle, node: NodeId, epoch: u64) -> Option<Arc<ServedNode>> {
        let served = self.served(node);
        if let Some(refusal) = refuse_epoch(node, served.as_ref().map(|served| served.epoch), epoch) {
            from.send(refusal);
            return None;
        }
        served
    }

    /// Handles a message with which another brick answers one of the logical nodes here.
    ///
    /// # Errors
    /// If a brick does not send such a message to others.
    fn handle_answer(&self, message: Message) -> Result<()> {
        match message {
            Message::Answer { node, answer, .. } => {
                // Only the driver that asked knows the transaction; the others ignore the answer.
                let now = self.time.now();
                for served in self.served.load().values() {
                    self.act(served, |driver| driver.handle_answer(node, answer.clone(), now));
                }
                Ok(())
            }
            Message::Deferred { .. } => {
                for served in self.served.load().values() {
                    self.act(served, |driver| driver.handle_deferred(&message));
                }
                Ok(())
            }
            // The driver repeats the request, by the newest map then.
            Message::NotServedHere { .. } => Ok(()),
            _ => Err(Error::new(ErrorKind::Invalid, "this message is not for a brick")),
        }
    }
}

impl BrickLinkHandler for Nodes {
    fn on_connected(&self, _: BrickId) {}

    fn handle_messages(&self, _: BrickId, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        messages.try_for_each(|message| self.handle_answer(message))
    }

    fn on_disconnected(&self, _: BrickId) {}
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

pub(super) fn invalid_message_error(why: protocol::commit::Rejected) -> Error {
    Error::new(ErrorKind::Invalid, why.to_string())
}
