//! Joint requests: several logical nodes of the brick handle the messages of a transaction with one force (C5).

use std::sync::{Arc, MutexGuard};

use model::{Error, ErrorKind, NodeId, Object, Result};
use protocol::commit::Request;
use protocol::ident::HlcTimestamp;
use wire::driving::PeerHandle;

use super::messages::invalid_message_error;
use super::{Driver, Nodes, ServedNode, handle_local_request};
use crate::brick::node_driver::{DriverOutput, Requester};

/// A logical node whose driver is locked.
pub(super) struct LockedNode<'a> {
    pub(super) node: NodeId,
    pub(super) served: &'a ServedNode,
    pub(super) driver: MutexGuard<'a, Driver>,
}

impl Nodes {
    /// Handles a joint request for these logical nodes, of which the first one is admitted. They are locked together, so that their rows
    /// reach the store together.
    ///
    /// # Errors
    /// If the request violates the protocol: disconnect the sender.
    pub(super) fn handle_joint(
        &self,
        from: &PeerHandle,
        nodes: Vec<NodeId>,
        (first, seen): (NodeId, HlcTimestamp),
        request: Request<Object>,
    ) -> Result<()> {
        if nodes.first() != Some(&first) {
            return Err(Error::new(ErrorKind::Invalid, "a joint request is for the first of its logical nodes"));
        }
        let served: Vec<(NodeId, Arc<ServedNode>)> =
            nodes.into_iter().filter_map(|node| Some((node, self.served(node)?))).collect();
        // Every thread locks rising nodes, so none waits for another one that waits for it.
        let locked = served.iter().filter_map(|(node, served)| {
            let driver = served.lock().ok()?;
            Some(LockedNode { node: *node, served, driver })
        });
        let mut locked: Vec<LockedNode<'_>> = locked.collect();
        let Some(at_first) = locked.first_mut().filter(|one| one.node == first) else {
            self.refuse(from, first);
            return Ok(());
        };
        let handled = at_first.driver.handle_request(Requester::Remote(from.clone()), request, seen, self.time.now());
        self.carry_out_together(&mut locked);
        handled.map_err(invalid_message_error)
    }

    /// Carries out the outputs of several drivers, those of each in order. What they send each other is handled at once, and their rows
    /// are submitted together at the end: no output requires that the rows are submitted.
    pub(super) fn carry_out_together(&self, locked: &mut [LockedNode<'_>]) {
        let now = self.time.now();
        let mut submissions = Vec::new();
        let next = |locked: &mut [LockedNode<'_>]| {
            locked.iter_mut().enumerate().find_map(|(index, one)| Some((index, one.driver.next_output()?)))
        };
        while let Some((index, output)) = next(locked) {
            let from = locked[index].node;
            let place_of = |node: NodeId| locked.iter().position(|one| one.node == node);
            match output {
                DriverOutput::Ask { node, seen, request } if let Some(to) = place_of(node) => {
                    handle_local_request(&mut locked[to].driver, from, (seen, request), now);
                }
                DriverOutput::Answer { to, answer } if let Some(to) = place_of(to) => {
                    locked[to].driver.handle_answer(from, answer, now);
                }
                // The reason precedes the answer, after which its requester is forgotten.
                DriverOutput::Deferred { to, message } if let Some(to) = place_of(to) => {
                    locked[to].driver.handle_deferred(&message);
                }
                DriverOutput::SubmitRows { life, rows } if !self.is_in_memory => {
                    submissions.push((rows, self.on_written(from, life)));
                }
                output => {
                    let LockedNode { served, driver, .. } = &mut locked[index];
                    self.carry_out_one(served, driver, output);
                }
            }
        }
        locked.iter_mut().for_each(|one| self.carry_out(one.served, &mut one.driver));
        if !submissions.is_empty() {
            self.store.submit_rows_together(submissions);
        }
    }
}
