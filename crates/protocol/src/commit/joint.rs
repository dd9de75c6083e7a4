//! Joint requests: logical nodes of one brick share the messages of a transaction (C5).
//!
//! A coordinator knows which logical nodes are at one brick, and [joins](join) its requests to them. The first of the nodes
//! passes them on within the brick and answers once. Every logical node remains a participant with records of its own, so
//! rules C1 to C4 do not depend on where the nodes are, and a node may move at any time.
//!
//! ```text
//!   some participants:   peer server ── Prepare 1, 2 ──▶ 1 ══▶ 1, 2     one force
//!                                   ◀── votes of 1, 2 ── 1 ◀══ 1, 2
//!   all participants:    peer server ── Prepare 1, 2 ──▶ 1 ══▶ 1, 2     one force, one phase
//!                                   ◀── outcome ──────── 1 ◀══ 1, 2
//!   one phase refused:                                   1 ══▶ 1, 2     Decide, Forget, after the outcome
//! ```
//!
//! - A joint request that prepares all participants commits in [one phase](super::participant::Participant::commit_one_phase) if the brick can
//!   check all of them at once. Otherwise the first one is the coordinator: it decides, and tells the others. Either way
//!   the peer server has nothing more to do.
//! - A joint request is sent once. What is not answered in time is repeated to each participant, so that one node that cannot
//!   be served, or a coordinator that has crashed, does not keep the others waiting. Several coordinators of one
//!   transaction reach the same outcome.

use std::collections::{BTreeMap, BTreeSet};

use model::NodeId;

use super::{Answer, Part, Request};
use crate::ident::TxnId;
use crate::lease::Ms;
use crate::plant::{Bug, planted};

/// Most participants that the requests of a joint one name together, each the names of all: 4 bytes each, so that a message holds them. One
/// of a transaction with 1,024 participants is whole.
pub const MAX_NAMED_PARTICIPANTS: usize = 1 << 20;

/// Joins requests to logical nodes of one brick: those of one transaction, at most one for each node. Others stay as they
/// are, in their order. `brick_of` has a number for each brick; requests to nodes without one are not joined. Requests that name more than
/// [`MAX_NAMED_PARTICIPANTS`] together become several joint ones.
pub fn join<T>(
    requests: impl IntoIterator<Item = (NodeId, Request<T>)>,
    brick_of: impl Fn(NodeId) -> Option<u32>,
) -> Vec<(NodeId, Request<T>)> {
    // With the number of participants that the requests of each name.
    let mut joined: Vec<(usize, BTreeMap<NodeId, Request<T>>)> = Vec::new();
    let mut last: BTreeMap<(TxnId, u32), usize> = BTreeMap::new();
    for (node, request) in requests {
        let place = brick_of(node).filter(|_| request.may_be_joint()).map(|brick| (request.txn(), brick));
        let names = named_participants(&request);
        let found = place.and_then(|place| last.get(&place)).copied().filter(|index| {
            let (named, group): &(usize, BTreeMap<_, _>) = &joined[*index];
            named + names <= MAX_NAMED_PARTICIPANTS && !group.contains_key(&node)
        });
        let index = found.unwrap_or(joined.len());
        if found.is_none() {
            last.extend(place.map(|place| (place, index)));
            joined.push((0, BTreeMap::new()));
        }
        let (named, group) = &mut joined[index];
        *named += names;
        group.insert(node, request);
    }
    joined.into_iter().filter_map(|(_, group)| from_group(group)).collect()
}

/// How many participants a request names.
fn named_participants<T>(request: &Request<T>) -> usize {
    if let Request::Prepare { participants, .. } = request { participants.len() } else { 0 }
}

/// The request for a group of logical nodes, to the first of them.
fn from_group<T>(mut requests: BTreeMap<NodeId, Request<T>>) -> Option<(NodeId, Request<T>)> {
    if requests.len() == 1 {
        return requests.pop_first();
    }
    let (first, request) = requests.first_key_value()?;
    Some((*first, Request::Joint { txn: request.txn(), requests }))
}

/// The parts of a transaction, if these requests prepare it at all its participants.
///
/// # Errors
/// The requests, if they do not.
pub(crate) fn whole_parts<T>(
    requests: BTreeMap<NodeId, Request<T>>,
) -> Result<BTreeMap<NodeId, Part<T>>, BTreeMap<NodeId, Request<T>>> {
    if !is_whole(&requests) {
        return Err(requests);
    }
    let part = |(node, request)| match request {
        Request::Prepare { part, .. } => Some((node, part)),
        _ => None,
    };
    Ok(requests.into_iter().filter_map(part).collect())
}

/// Whether these requests prepare a transaction at all its participants.
#[must_use]
pub fn is_whole<T>(requests: &BTreeMap<NodeId, Request<T>>) -> bool {
    requests.values().all(|request| match request {
        Request::Prepare { participants, .. } => {
            participants.iter().all(|node| requests.contains_key(node)) || planted(Bug::PartTakenForWhole)
        }
        _ => false,
    })
}

/// The answers to a joint request, which are collected until all are there. `A` is an address of a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct CollectedAnswers<A> {
    pub(crate) requester: A,
    pub(crate) since: Ms,
    /// The nodes that have not answered.
    open: BTreeSet<NodeId>,
    answers: BTreeMap<NodeId, Answer>,
}

impl<A> CollectedAnswers<A> {
    /// Waits for the answers to these requests; `None` if none of them is answered.
    pub(crate) fn begin<T>(requester: A, requests: &BTreeMap<NodeId, Request<T>>, now: Ms) -> Option<Self> {
        let answered = requests.iter().filter(|(_, request)| request.is_answered());
        let open: BTreeSet<NodeId> = answered.map(|(node, _)| *node).collect();
        (!open.is_empty()).then(|| Self { requester, since: now, open, answers: BTreeMap::new() })
    }

    /// Adds the answer of a node. Returns whether all are there.
    pub(crate) fn add(&mut self, node: NodeId, answer: &Answer) -> bool {
        if !self.open.remove(&node) {
            return false;
        }
        if planted(Bug::OneAnswersForAll) {
            self.answers.extend(std::mem::take(&mut self.open).into_iter().map(|other| (other, answer.clone())));
        }
        self.answers.insert(node, answer.clone());
        self.open.is_empty()
    }

    /// The answer to the joint request.
    pub(crate) fn into_answer(self, txn: TxnId) -> (A, Answer) {
        assert!(self.open.is_empty(), "C5: the joint answer about {txn:?} lacks those of {:?}", self.open);
        (self.requester, Answer::Joint { txn, answers: self.answers })
    }
}

#[cfg(test)]
mod tests;
