//! Calls of clients to their gateway, and requests of gateways to participants.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::{NodeId, Object, Oid, Result};
use protocol::brick::LockedObject;
use protocol::commit::{Answer, Part, Request};
use protocol::gateway::{Call, Reply};
use protocol::ident::TxnId;
use protocol::locks::LockMode;
use protocol::read_list::ReadList;

use super::entries;
use super::ids;
use super::states::{self, Data};
use super::verdict;
use crate::convert::{invalid, missing};
use crate::proto::cluster as proto;
use crate::proto::cluster::answer::Answer as AnswerMessage;
use crate::proto::cluster::ask::Request as RequestMessage;
use crate::proto::cluster::call::Call as CallMessage;
use crate::proto::cluster::reply::Reply as ReplyMessage;

fn mode(exclusive: bool, touch: bool) -> Result<LockMode> {
    match (exclusive, touch) {
        (false, false) => Ok(LockMode::Shared),
        (false, true) => Ok(LockMode::Touch),
        (true, false) => Ok(LockMode::Exclusive),
        (true, true) => Err(invalid("a lock is both exclusive and a touch")),
    }
}

/// A transaction that locks a blob to change a part of it locks it as for any write.
fn is_exclusive(mode: LockMode) -> bool {
    matches!(mode, LockMode::Patch | LockMode::Exclusive)
}

fn lock(first: TxnId, oid: Oid, mode: LockMode) -> proto::CallLock {
    proto::CallLock {
        first: Some(first.into()),
        oid: Some(oid.into()),
        exclusive: is_exclusive(mode),
        touch: mode == LockMode::Touch,
    }
}

fn participants(nodes: &[NodeId]) -> proto::Participants {
    proto::Participants { nodes: ids::numbers(nodes) }
}

// ------------------------------------------------------------------------------------------------ clients

pub(super) fn call_to_proto(call: &Call<Object>, raw: &mut Vec<Bytes>) -> CallMessage {
    match call {
        Call::Commit { parts, creates } => CallMessage::Commit(proto::CallCommit {
            parts: Some(states::parts_to_proto(parts, raw)),
            creates: *creates,
        }),
        Call::Resolve { participants, patched } => CallMessage::Resolve(proto::CallResolve {
            nodes: ids::numbers(participants),
            patched: ids::numbers(patched),
        }),
        Call::Check { reads, seen } => {
            let idle = reads.iter().filter(|(_, reads)| reads.is_empty()).map(|(node, _)| node);
            let parts = proto::Parts {
                reads: states::reads_to_proto(reads.values().flat_map(ReadList::runs)),
                writes: None,
                idle: ids::numbers(idle),
                touches: Vec::new(),
                entries: None,
            };
            CallMessage::Check(proto::CallCheck { parts: Some(parts), seen: seen.0 })
        }
        Call::Lock { first, oid, mode } => CallMessage::Lock(lock(*first, *oid, *mode)),
        Call::Heard { nodes, mark } => CallMessage::Heard(proto::CallHeard {
            nodes: ids::numbers(nodes),
            mark: Some(verdict::mark_to_proto(mark)),
        }),
        Call::Release { participants: nodes } => CallMessage::Release(participants(nodes)),
    }
}

pub(super) fn call(call: CallMessage, data: &mut Data<'_>) -> Result<Call<Object>> {
    Ok(match call {
        CallMessage::Commit(commit) => {
            Call::Commit { parts: states::parts(commit.parts, data)?, creates: commit.creates }
        }
        CallMessage::Heard(heard) => Call::Heard { nodes: ids::nodes(heard.nodes)?, mark: verdict::mark(heard.mark)? },
        CallMessage::Resolve(resolve) => {
            Call::Resolve { participants: ids::nodes(resolve.nodes)?, patched: ids::nodes(resolve.patched)? }
        }
        CallMessage::Check(check) => {
            let parts = states::parts(check.parts, data)?;
            if parts.values().any(|part| !part.only_reads()) {
                return Err(invalid("a check of a read-only transaction contains writes"));
            }
            let reads = parts.into_iter().map(|(node, part)| (node, part.reads)).collect();
            Call::Check { reads, seen: ids::timestamp(check.seen)? }
        }
        CallMessage::Lock(lock) => Call::Lock {
            first: ids::txn(lock.first)?,
            oid: ids::oid(lock.oid)?,
            mode: mode(lock.exclusive, lock.touch)?,
        },
        CallMessage::Release(release) => Call::Release { participants: ids::nodes(release.nodes)? },
    })
}

pub(super) fn reply_to_proto(reply: &Reply<Object>, raw: &mut Vec<Bytes>) -> ReplyMessage {
    match reply {
        Reply::Ended(ended) => ReplyMessage::Ended(verdict::commit_reply_to_proto(ended)),
        Reply::Checked(checked) => ReplyMessage::Checked(verdict::verdict_to_proto(*checked)),
        Reply::Locked(locked) => ReplyMessage::Locked(locked_to_proto(locked, raw)),
    }
}

pub(super) fn reply(reply: ReplyMessage, data: &mut Data<'_>) -> Result<Reply<Object>> {
    Ok(match reply {
        ReplyMessage::Ended(ended) => Reply::Ended(verdict::commit_reply(ended)?),
        ReplyMessage::Checked(checked) => Reply::Checked(verdict::verdict(Some(checked))?),
        ReplyMessage::Locked(found) => {
            let (_, _, locked) = locked_from_proto(found, data)?;
            Reply::Locked(locked.ok_or_else(|| missing("state of the locked object"))?)
        }
    })
}

fn locked_to_proto(locked: &LockedObject<Object>, raw: &mut Vec<Bytes>) -> proto::Locked {
    proto::Locked {
        oid: Some(locked.oid.into()),
        exclusive: is_exclusive(locked.mode),
        touch: locked.mode == LockMode::Touch,
        version: Some(locked.version.into()),
        state: Some(states::state(locked.value.as_ref(), raw)),
    }
}

/// The locked object, the mode, and the object's state if the message has it.
fn locked_from_proto(
    found: proto::Locked,
    data: &mut Data<'_>,
) -> Result<(Oid, LockMode, Option<LockedObject<Object>>)> {
    let (oid, mode) = (ids::oid(found.oid)?, mode(found.exclusive, found.touch)?);
    let locked = match (ids::optional_version(found.version)?, found.state) {
        (None, None) => None,
        (Some(version), Some(state)) => {
            let value = data.object(oid.class(), state)?;
            Some(LockedObject { oid, mode, version, value })
        }
        _ => return Err(missing("version or state of the locked object")),
    };
    Ok((oid, mode, locked))
}

// ------------------------------------------------------------------------------------------------ participants

pub(super) fn ask_to_proto(request: &Request<Object>, raw: &mut Vec<Bytes>) -> RequestMessage {
    match request {
        Request::Prepare { participants, part, .. } => RequestMessage::Prepare(proto::Prepare {
            participants: ids::numbers(participants),
            reads: states::reads_to_proto(part.reads.runs()),
            writes: states::writes_to_proto(part.writes.iter(), raw),
            touches: states::touches_to_proto(&part.touches),
            entries: entries::changes_to_proto(part.entries.iter()),
            transfer_ms: part.transfer_ms,
        }),
        Request::Commit { part, .. } => RequestMessage::Commit(proto::Commit {
            reads: states::reads_to_proto(part.reads.runs()),
            writes: states::writes_to_proto(part.writes.iter(), raw),
            touches: states::touches_to_proto(&part.touches),
            entries: entries::changes_to_proto(part.entries.iter()),
        }),
        Request::Decide { outcome, .. } => RequestMessage::Decide(verdict::outcome_to_proto(*outcome)),
        Request::Ask { round, .. } => RequestMessage::Ask(*round),
        Request::Forget { .. } => RequestMessage::Forget(proto::Nothing {}),
        Request::Heard { mark, .. } => RequestMessage::Heard(verdict::mark_to_proto(mark)),
        Request::Check { reads, at, .. } => {
            RequestMessage::Check(proto::Check { reads: states::reads_to_proto(reads.runs()), at: at.0 })
        }
        Request::Lock { first, oid, mode, .. } => RequestMessage::Lock(lock(*first, *oid, *mode)),
        Request::Joint { requests, .. } => {
            let ask = |(node, request): (&NodeId, &Request<Object>)| proto::Ask {
                node: node.0,
                request: Some(ask_to_proto(request, raw)),
                ..proto::Ask::default()
            };
            RequestMessage::Joint(proto::JointAsk { requests: requests.iter().map(ask).collect() })
        }
    }
}

pub(super) fn ask(request: RequestMessage, txn: TxnId, data: &mut Data<'_>) -> Result<Request<Object>> {
    Ok(match request {
        RequestMessage::Prepare(prepare) => Request::Prepare {
            txn,
            participants: ids::nodes(prepare.participants)?,
            part: Part {
                transfer_ms: prepare.transfer_ms,
                ..part(prepare.reads, prepare.writes, &prepare.touches, prepare.entries, data)?
            },
        },
        RequestMessage::Commit(commit) => {
            let part = part(commit.reads, commit.writes, &commit.touches, commit.entries, data)?;
            Request::Commit { txn, part }
        }
        RequestMessage::Decide(outcome) => Request::Decide { txn, outcome: verdict::outcome(Some(outcome))? },
        RequestMessage::Ask(round) => Request::Ask { txn, round },
        RequestMessage::Forget(_) => Request::Forget { txn },
        RequestMessage::Heard(mark) => Request::Heard { txn, mark: verdict::mark(Some(mark))? },
        RequestMessage::Check(check) => {
            Request::Check { txn, reads: states::reads(check.reads)?, at: ids::timestamp(check.at)? }
        }
        RequestMessage::Lock(lock) => {
            let (first, oid) = (ids::txn(lock.first)?, ids::oid(lock.oid)?);
            Request::Lock { txn, first, oid, mode: mode(lock.exclusive, lock.touch)? }
        }
        RequestMessage::Joint(joint) => Request::Joint { txn, requests: joint_requests(joint, txn, data)? },
    })
}

fn joint_requests(
    joint: proto::JointAsk,
    txn: TxnId,
    data: &mut Data<'_>,
) -> Result<BTreeMap<NodeId, Request<Object>>> {
    let one = |one: proto::Ask| match one.request.ok_or_else(|| missing("content"))? {
        RequestMessage::Joint(_) | RequestMessage::Lock(_) => Err(invalid("a joint request contains another one")),
        request => Ok((ids::node(one.node)?, ask(request, txn, data)?)),
    };
    rising(joint.requests.into_iter().map(one))
}

/// What there is for each of several nodes, which rise.
fn rising<T>(each: impl ExactSizeIterator<Item = Result<(NodeId, T)>>) -> Result<BTreeMap<NodeId, T>> {
    if each.len() > ids::MAX_PARTICIPANTS {
        return Err(invalid("a joint message is for too many logical nodes"));
    }
    let mut rising = BTreeMap::new();
    for one in each {
        let (node, one) = one?;
        if rising.last_key_value().is_some_and(|(last, _)| *last >= node) {
            return Err(invalid("the logical nodes of a joint message do not rise"));
        }
        rising.insert(node, one);
    }
    Ok(rising)
}

pub(super) fn part(
    reads: Option<proto::Reads>,
    writes: Option<proto::Writes>,
    touches: &[u64],
    entries: Option<proto::Entries>,
    data: &mut Data<'_>,
) -> Result<Part<Object>> {
    let (reads, writes) = (states::reads(reads)?, states::writes(writes, data)?);
    let (touches, entries) = (states::touches(touches)?, entries::changes(entries)?);
    Ok(Part { reads, writes, touches, entries, ..Part::default() })
}

pub(super) fn answer_to_proto(
    answer: &Answer,
    locked: Option<&LockedObject<Object>>,
    raw: &mut Vec<Bytes>,
) -> AnswerMessage {
    match answer {
        Answer::Prepared { proposal, participants, round, offsets, .. } => AnswerMessage::Prepared(proto::Prepared {
            proposal: proposal.0,
            participants: ids::numbers(participants),
            round: *round,
            offsets: states::offsets_to_proto(offsets),
        }),
        Answer::Ended { outcome, version, offsets, .. } => AnswerMessage::Ended(proto::Ended {
            outcome: Some(verdict::outcome_to_proto(*outcome)),
            version: version.map(Into::into),
            offsets: states::offsets_to_proto(offsets),
        }),
        Answer::Refused { why, .. } => AnswerMessage::Refused(verdict::refusal_to_proto(*why)),
        Answer::Checked { verdict: checked, .. } => {
            AnswerMessage::Checked(proto::Checked { conflict: checked.err().map(verdict::conflict_to_proto) })
        }
        Answer::Locked { oid, mode, .. } => AnswerMessage::Locked(match locked {
            Some(locked) => locked_to_proto(&LockedObject { oid: *oid, mode: *mode, ..locked.clone() }, raw),
            None => proto::Locked {
                oid: Some((*oid).into()),
                exclusive: is_exclusive(*mode),
                touch: *mode == LockMode::Touch,
                version: None,
                state: None,
            },
        }),
        Answer::Joint { answers, .. } => {
            let answer = |(node, answer): (&NodeId, &Answer)| proto::Answer {
                node: node.0,
                answer: Some(answer_to_proto(answer, None, raw)),
                ..proto::Answer::default()
            };
            AnswerMessage::Joint(proto::JointAnswer { answers: answers.iter().map(answer).collect() })
        }
        Answer::Concluded { reply, .. } => AnswerMessage::Concluded(verdict::commit_reply_to_proto(reply)),
    }
}

pub(super) fn answer(
    answer: AnswerMessage,
    txn: TxnId,
    data: &mut Data<'_>,
) -> Result<(Answer, Option<LockedObject<Object>>)> {
    let answer = match answer {
        AnswerMessage::Prepared(prepared) => Answer::Prepared {
            txn,
            proposal: ids::timestamp(prepared.proposal)?,
            participants: ids::nodes(prepared.participants)?,
            round: prepared.round,
            offsets: states::offsets(&prepared.offsets)?,
        },
        AnswerMessage::Ended(ended) => Answer::Ended {
            txn,
            outcome: verdict::outcome(ended.outcome)?,
            version: ids::optional_version(ended.version)?,
            offsets: states::offsets(&ended.offsets)?,
        },
        AnswerMessage::Refused(why) => Answer::Refused { txn, why: verdict::refusal(why)? },
        AnswerMessage::Checked(checked) => {
            let conflict = checked.conflict.map(verdict::conflict).transpose()?;
            Answer::Checked { txn, verdict: conflict.map_or(Ok(()), Err) }
        }
        AnswerMessage::Locked(found) => {
            let (oid, mode, locked) = locked_from_proto(found, data)?;
            return Ok((Answer::Locked { txn, oid, mode }, locked));
        }
        AnswerMessage::Joint(joint) => Answer::Joint { txn, answers: joint_answers(joint, txn, data)? },
        AnswerMessage::Concluded(reply) => Answer::Concluded { txn, reply: verdict::commit_reply(reply)? },
    };
    Ok((answer, None))
}

fn joint_answers(joint: proto::JointAnswer, txn: TxnId, data: &mut Data<'_>) -> Result<BTreeMap<NodeId, Answer>> {
    let one = |one: proto::Answer| match one.answer.ok_or_else(|| missing("content"))? {
        AnswerMessage::Joint(_) | AnswerMessage::Concluded(_) | AnswerMessage::Locked(_) => {
            Err(invalid("a joint answer contains another one"))
        }
        found => Ok((ids::node(one.node)?, answer(found, txn, data)?.0)),
    };
    rising(joint.answers.into_iter().map(one))
}
