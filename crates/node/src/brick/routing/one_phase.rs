//! One-phase commits (C5): a joint request that prepares all participants of a transaction commits it at once, if all of them are at hand and
//! take it in, and if their rows fit one change of the store.
//!
//! The rows of all logical nodes become durable together or not at all, so no node has to be prepared and told the outcome later. If the
//! store refuses them, all these nodes [are opened again](super::Effects::reopen). So are the others if one node fails to make its rows.

use model::{Error, Object, Result};
use protocol::commit::coordinator::{CommitReceipt, CommitReply};
use protocol::commit::joint::is_whole;
use protocol::commit::{AppendOffsets, Part, Request};
use protocol::ident::HlcTimestamp;
use protocol::lease::Ms;
use protocol::validate::Footprint;
use store::{RowChanges, RowSequence};

use super::{Effects, HeldNode, Submission, Submissions, carry_out, carry_out_one, next_output};
use crate::brick::node_driver::DriverOutput;
use crate::brick::plant::{Bug, planted};

/// Logical nodes that commit in one phase at most.
const MAX_NODES: usize = 16;
/// How long no transaction is committed in one phase after the store has refused one for lack of room, in milliseconds.
pub(crate) const TWO_PHASES_MS: Ms = 10_000;

/// Commits the transaction of a joint request in one phase, and carries out what follows. Returns the request if it is to be handled as it
/// is. The held nodes are among those of the request.
pub(super) fn try_commit<C: Clone>(
    held: &mut [HeldNode<'_, C>],
    from: &C,
    (seen, request): (HlcTimestamp, Request<Object>),
    effects: &mut impl Effects<C>,
) -> Option<Request<Object>> {
    let is_here = held.first().is_some_and(|first| request.is_at(first.driver.node()));
    let Request::Joint { txn, mut requests } = request else { return Some(request) };
    let is_possible = requests.len() == held.len() && held.len() <= MAX_NODES && is_here && is_whole(&requests);
    if !is_possible || !effects.may_commit_in_one_phase() {
        return Some(Request::Joint { txn, requests });
    }
    let mut footprints: Vec<Footprint> = Vec::with_capacity(held.len());
    for (one, request) in held.iter_mut().zip(requests.values_mut()) {
        match one.driver.begin_one_phase(request) {
            Some(footprint) => footprints.push(footprint),
            None => break,
        }
    }
    let is_taken_in = footprints.len() == held.len();
    let Some(timestamp) = (if is_taken_in { agree(held, seen, effects.now()) } else { None }) else {
        held.iter_mut().for_each(|one| one.driver.cancel_one_phase());
        return Some(Request::Joint { txn, requests });
    };
    let part = |request| match request {
        Request::Prepare { part, .. } => part,
        _ => unreachable!("C5: a part of {txn:?} that is not prepared was taken in"),
    };
    let parts: Vec<Part<Object>> = requests.into_values().map(part).collect();
    let mut offsets = AppendOffsets::new();
    parts.iter().for_each(|part| offsets.extend(&part.offsets));
    let mut conclude = Some((from.clone(), CommitReply::Committed(CommitReceipt { timestamp, offsets })));
    for ((one, part), footprint) in held.iter_mut().zip(parts).zip(&footprints) {
        one.driver.commit_one_phase((txn, part), footprint, timestamp, conclude.take(), effects.now());
    }
    carry_out_as_one(held, effects);
    None
}

/// The time of a commit at all these nodes. `None` if it is further ahead than clocks may differ.
fn agree<C: Clone>(held: &mut [HeldNode<'_, C>], seen: HlcTimestamp, now: Ms) -> Option<HlcTimestamp> {
    let timestamp = held.iter_mut().try_fold(seen, |at, one| one.driver.propose(at, now)).ok()?;
    held.iter_mut().try_for_each(|one| one.driver.learn(timestamp, now)).ok()?;
    Some(timestamp)
}

/// Carries out the outputs of drivers as [`carry_out`] does, with all rows as one change of the store.
fn carry_out_as_one<C: Clone>(held: &mut [HeldNode<'_, C>], effects: &mut impl Effects<C>) {
    let mut submissions = Submissions::new();
    while let Some((index, output)) = next_output(held) {
        match output {
            DriverOutput::SubmitRows { life, rows } => {
                submissions.push(Submission { node: held[index].driver.node(), life, rows });
            }
            output => carry_out_one(held, index, output, effects, &mut submissions),
        }
    }
    let is_first_of_node = |at: usize| submissions[..at].iter().all(|before| before.node != submissions[at].node);
    assert!((0..submissions.len()).all(is_first_of_node), "C5: each logical node has one change of a one-phase commit");
    // A node may fail to read what its rows depend on. Then the others must not commit alone: the store refuses their rows, in the order of their
    // submission, and they are opened again.
    let is_whole = held.iter().all(|one| one.driver.failure().is_none()) || planted(Bug::OnePhaseHalfCommitted);
    if let Some(first) = submissions.first_mut().filter(|_| !is_whole) {
        first.rows.append(RowSequence::new_broken().changes());
    }
    // The first node concludes. When its sender hears that, the others hold nothing any more.
    let concluding = submissions.len().min(1);
    submissions.rotate_left(concluding);
    if effects.applies_at_once() {
        let mut merged = RowChanges::new();
        submissions.iter_mut().for_each(|one| merged.append(std::mem::take(&mut one.rows)));
        let result = effects.apply(merged);
        for Submission { node, life, .. } in submissions {
            if let Some(one) = held.iter_mut().find(|one| one.driver.node() == node) {
                one.driver.handle_written(life, copy_result(&result), effects.now());
            }
        }
        carry_out(held, effects);
    } else if planted(Bug::OnePhaseRowsApart) {
        effects.submit(submissions);
    } else {
        effects.submit_as_one(submissions);
    }
}

/// The result of a change of the store for one of those who share it.
pub(crate) fn copy_result<T: Copy>(result: &Result<T>) -> Result<T> {
    match result {
        Ok(done) => Ok(*done),
        Err(error) => Err(Error::new(error.kind(), error.message().to_owned())),
    }
}
