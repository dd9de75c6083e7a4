//! Outcomes of transactions, and reasons of refusals.

use model::Result;
use protocol::commit::client_mark::ClientMark;
use protocol::commit::coordinator::{CommitReceipt, CommitReply};
use protocol::commit::{Outcome, Refusal};
use protocol::ident::HlcTimestamp;
use protocol::validate::{Cause, ValidationConflict};

use super::{ids, states};
use crate::convert::{invalid, missing};
use crate::proto::cluster as proto;

pub(super) fn outcome_to_proto(outcome: Outcome) -> proto::Outcome {
    let outcome = match outcome {
        Outcome::Committed(at) => proto::outcome::Outcome::Committed(at.0),
        Outcome::Aborted => proto::outcome::Outcome::Aborted(proto::Nothing {}),
    };
    proto::Outcome { outcome: Some(outcome) }
}

pub(super) fn outcome(field: Option<proto::Outcome>) -> Result<Outcome> {
    match field.and_then(|field| field.outcome).ok_or_else(|| missing("outcome"))? {
        proto::outcome::Outcome::Committed(at) => Ok(Outcome::Committed(ids::timestamp(at)?)),
        proto::outcome::Outcome::Aborted(_) => Ok(Outcome::Aborted),
    }
}

pub(super) fn mark_to_proto(mark: &ClientMark) -> proto::Mark {
    proto::Mark { below: mark.below().0, open: mark.open().iter().map(|start| start.0).collect() }
}

pub(super) fn mark(field: Option<proto::Mark>) -> Result<ClientMark> {
    let proto::Mark { below, open } = field.ok_or_else(|| missing("mark of a client"))?;
    let open = open.into_iter().map(ids::timestamp).collect::<Result<_>>()?;
    ClientMark::new(ids::timestamp(below)?, open)
        .ok_or_else(|| invalid("the mark of a client excepts impossible times"))
}

pub(super) fn conflict_to_proto(conflict: ValidationConflict) -> proto::Conflict {
    let cause = match conflict.cause {
        Cause::Stale(version) => proto::conflict::Cause::Stale(version.into()),
        Cause::Held(txn) => proto::conflict::Cause::Held(txn.into()),
    };
    proto::Conflict { oid: Some(conflict.oid.into()), cause: Some(cause) }
}

pub(super) fn conflict(field: proto::Conflict) -> Result<ValidationConflict> {
    let cause = match field.cause.ok_or_else(|| missing("cause of the conflict"))? {
        proto::conflict::Cause::Stale(version) => Cause::Stale(ids::version(Some(version))?),
        proto::conflict::Cause::Held(txn) => Cause::Held(ids::txn(Some(txn))?),
    };
    Ok(ValidationConflict { oid: ids::oid(field.oid)?, cause })
}

pub(super) fn refusal_to_proto(refusal: Refusal) -> proto::Refusal {
    let why = match refusal {
        Refusal::Conflict(conflict) => proto::refusal::Why::Conflict(conflict_to_proto(conflict)),
        Refusal::Aborted => proto::refusal::Why::Aborted(proto::Nothing {}),
        Refusal::TooOld => proto::refusal::Why::TooOld(proto::Nothing {}),
    };
    proto::Refusal { why: Some(why) }
}

pub(super) fn refusal(field: proto::Refusal) -> Result<Refusal> {
    Ok(match field.why.ok_or_else(|| missing("reason of the refusal"))? {
        proto::refusal::Why::Conflict(found) => Refusal::Conflict(conflict(found)?),
        proto::refusal::Why::Aborted(_) => Refusal::Aborted,
        proto::refusal::Why::TooOld(_) => Refusal::TooOld,
    })
}

pub(super) fn verdict_to_proto(verdict: Result<HlcTimestamp, Refusal>) -> proto::Verdict {
    let verdict = match verdict {
        Ok(at) => proto::verdict::Verdict::At(at.0),
        Err(why) => proto::verdict::Verdict::Refused(refusal_to_proto(why)),
    };
    proto::Verdict { verdict: Some(verdict) }
}

pub(super) fn verdict(field: Option<proto::Verdict>) -> Result<Result<HlcTimestamp, Refusal>> {
    match field.and_then(|field| field.verdict).ok_or_else(|| missing("verdict"))? {
        proto::verdict::Verdict::At(at) => Ok(Ok(ids::timestamp(at)?)),
        proto::verdict::Verdict::Refused(why) => Ok(Err(refusal(why)?)),
    }
}

pub(super) fn commit_reply_to_proto(reply: &CommitReply) -> proto::CommitReply {
    let (reply, offsets) = match reply {
        CommitReply::Committed(CommitReceipt { timestamp, offsets }) => {
            (proto::commit_reply::Reply::Committed(timestamp.0), states::offsets_to_proto(offsets))
        }
        CommitReply::Refused(why) => (proto::commit_reply::Reply::Refused(refusal_to_proto(*why)), Vec::new()),
    };
    proto::CommitReply { reply: Some(reply), offsets }
}

pub(super) fn commit_reply(field: proto::CommitReply) -> Result<CommitReply> {
    let offsets = states::offsets(&field.offsets)?;
    match field.reply.ok_or_else(|| missing("outcome of the commit"))? {
        proto::commit_reply::Reply::Committed(at) => {
            Ok(CommitReply::Committed(CommitReceipt { timestamp: ids::timestamp(at)?, offsets }))
        }
        proto::commit_reply::Reply::Refused(_) if !offsets.is_empty() => {
            Err(invalid("a transaction that was refused has offsets of appends"))
        }
        proto::commit_reply::Reply::Refused(why) => Ok(CommitReply::Refused(refusal(why)?)),
    }
}
