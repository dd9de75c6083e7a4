use model::planted_bug::assert_noticed;
use model::{ClassId, PageId, SpaceId};

use super::*;
use crate::ident::ClientId;
use crate::page_cache::ObjectState;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const TXN: TxnId = TxnId { start: HlcTimestamp::at(1), client: ClientId(1) };

fn part() -> Part<u64> {
    Part::default()
}

fn prepared_answer(ms: u64) -> Answer {
    Answer::Prepared {
        txn: TXN,
        proposal: HlcTimestamp::at(ms),
        participants: vec![A, B],
        round: 0,
        offsets: AppendOffsets::new(),
    }
}

fn ended_answer(outcome: Outcome) -> Answer {
    Answer::Ended { txn: TXN, outcome, version: None, offsets: AppendOffsets::new() }
}

fn blob(node: NodeId) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 7 }, 1)
}

/// The answer of a node, with the offset of an append there.
fn with_append(node: NodeId, mut answer: Answer) -> Answer {
    if let Answer::Prepared { offsets, .. } | Answer::Ended { offsets, .. } = &mut answer {
        offsets.insert(blob(node), 10 * u64::from(node.0));
    }
    answer
}

/// The reply with the offsets of both nodes.
fn receipt(ms: u64) -> Output<u64> {
    let offsets = [A, B].map(|node| (blob(node), 10 * u64::from(node.0))).into();
    Output::Reply(CommitReply::Committed(CommitReceipt { timestamp: HlcTimestamp::at(ms), offsets }))
}

fn refused_answer() -> Answer {
    Answer::Refused { txn: TXN, why: Refusal::Aborted }
}

fn decide(node: NodeId, outcome: Outcome) -> Output<u64> {
    Output::Send(node, Request::Decide { txn: TXN, outcome })
}

fn prepare(node: NodeId) -> Output<u64> {
    Output::Send(node, Request::Prepare { txn: TXN, participants: vec![A, B], part: part() })
}

/// A coordinator of two participants after these answers, and its outputs.
fn coordinator_after(answers: &[(NodeId, Answer)]) -> (Coordinator<u64>, Vec<Output<u64>>) {
    let mut out = Vec::new();
    let mut coordinator = Coordinator::commit(TXN, [(A, part()), (B, part())].into(), 0, &mut out);
    assert_eq!(out, [prepare(A), prepare(B)]);
    out.clear();
    for (node, answer) in answers {
        coordinator.handle_answer(*node, answer.clone(), 10, &mut out);
    }
    (coordinator, out)
}

#[test]
fn transaction_commits_at_the_largest_proposal_when_all_have_prepared() {
    let committed = Outcome::Committed(HlcTimestamp::at(7));
    let (mut coordinator, mut out) = coordinator_after(&[(A, prepared_answer(7)), (B, prepared_answer(5))]);
    let reply = Output::Reply(CommitReply::Committed(HlcTimestamp::at(7).into()));
    assert_eq!(out, [reply, decide(A, committed), decide(B, committed)]);
    out.clear();
    coordinator.handle_answer(A, ended_answer(committed), 20, &mut out);
    assert!(out.is_empty() && !coordinator.is_done());
    coordinator.handle_answer(B, ended_answer(committed), 20, &mut out);
    assert_eq!(out, [A, B].map(|node| Output::Send(node, Request::Forget { txn: TXN })));
    assert_eq!(coordinator.deadline(), None);
}

#[test]
fn one_refusal_aborts_and_the_client_is_answered_at_once() {
    let (coordinator, out) = coordinator_after(&[(B, refused_answer())]);
    assert_eq!(out, [Output::Reply(CommitReply::Refused(Refusal::Aborted)), decide(A, Outcome::Aborted)]);
    assert_eq!(coordinator.outcome(), Some(Outcome::Aborted));
}

#[test]
fn vote_after_a_refusal_changes_nothing() {
    let (coordinator, out) = coordinator_after(&[(B, refused_answer()), (A, prepared_answer(5))]);
    assert_eq!(out.iter().filter(|output| matches!(output, Output::Reply(_))).count(), 1);
    let repeated = Output::Repeat(A, Request::Decide { txn: TXN, outcome: Outcome::Aborted });
    assert_eq!(out.last(), Some(&repeated));
    assert_eq!(coordinator.outcome(), Some(Outcome::Aborted));
}

#[test]
fn unanswered_question_is_repeated() {
    let (mut coordinator, mut out) = coordinator_after(&[(A, prepared_answer(5))]);
    coordinator.poll(199, &mut out);
    assert!(out.is_empty());
    assert_eq!(coordinator.deadline(), Some(200));
    coordinator.poll(200, &mut out);
    let Output::Send(_, asked) = prepare(B) else { panic!("a question is sent") };
    assert_eq!(out, [Output::Repeat(B, asked)]);
}

#[test]
fn conclusion_of_a_participant_is_reported_and_nothing_is_left_to_be_done() {
    let reply = CommitReply::Committed(HlcTimestamp::at(9).into());
    let concluded = Answer::Concluded { txn: TXN, reply: reply.clone() };
    let (mut coordinator, mut out) = coordinator_after(&[(B, prepared_answer(5)), (A, concluded.clone())]);
    assert_eq!(out, [Output::Reply(reply)]);
    assert!(coordinator.is_done() && !coordinator.has_parts());
    assert_eq!(coordinator.outcome(), Some(Outcome::Committed(HlcTimestamp::at(9))));
    out.clear();
    coordinator.handle_answer(A, concluded, 20, &mut out);
    assert_eq!(out, [], "the client is answered once");
}

#[test]
fn any_node_finishes_a_transaction_that_all_have_prepared() {
    let mut out = Vec::new();
    let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out);
    assert_eq!(out, [A, B].map(|node| Output::Send(node, Request::Ask { txn: TXN, round: 0 })));
    out.clear();
    coordinator.handle_answer(A, prepared_answer(5), 1, &mut out);
    coordinator.handle_answer(B, prepared_answer(9), 1, &mut out);
    assert_eq!(coordinator.outcome(), Some(Outcome::Committed(HlcTimestamp::at(9))));
}

#[test]
fn known_outcome_of_one_participant_is_the_outcome() {
    let committed = Outcome::Committed(HlcTimestamp::at(5));
    let mut out = Vec::new();
    let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out);
    out.clear();
    coordinator.handle_answer(A, ended_answer(committed), 1, &mut out);
    assert_eq!(out, [Output::Reply(CommitReply::Committed(HlcTimestamp::at(5).into())), decide(B, committed)]);
}

#[test]
fn transaction_with_one_participant_takes_one_message() {
    let mut out = Vec::new();
    let mut coordinator = Coordinator::commit(TXN, [(A, part())].into(), 0, &mut out);
    assert_eq!(out, [Output::Send(A, Request::Commit { txn: TXN, part: part() })]);
    out.clear();
    coordinator.handle_answer(A, ended_answer(Outcome::Committed(HlcTimestamp::at(5))), 1, &mut out);
    assert_eq!(out[0], Output::Reply(CommitReply::Committed(HlcTimestamp::at(5).into())));
    assert!(coordinator.is_done());
}

#[test]
fn reply_has_the_offsets_of_all_participants() {
    let (_, out) =
        coordinator_after(&[(A, with_append(A, prepared_answer(7))), (B, with_append(B, prepared_answer(5)))]);
    assert_eq!(out[0], receipt(7));
}

/// A coordinator that another one has preceded: it learns the outcome from one participant, and the offsets from each.
#[test]
fn client_that_has_appended_hears_of_the_commit_when_all_offsets_are_known() {
    let committed = Outcome::Committed(HlcTimestamp::at(5));
    let patching = |node| {
        let patch = [(blob(node), ObjectState::Changed(1))].into();
        (node, Part::<u64> { writes: patch, ..Part::default() })
    };
    let mut ignored = Vec::new();
    let commits = Coordinator::commit(TXN, [A, B].map(patching).into(), 0, &mut ignored);
    let resolves = Coordinator::finish(TXN, [A, B], 0, &mut ignored).with_appends([A, B]);
    for mut coordinator in [commits, resolves] {
        let mut out = Vec::new();
        coordinator.handle_answer(A, with_append(A, ended_answer(committed)), 1, &mut out);
        assert_eq!(out, [decide(B, committed)], "the offset at B is not known");
        assert_eq!((coordinator.outcome(), coordinator.reply()), (Some(committed), None));
        out.clear();
        coordinator.handle_answer(B, with_append(B, ended_answer(committed)), 2, &mut out);
        let forget = [A, B].map(|node| Output::Send(node, Request::Forget { txn: TXN }));
        assert_eq!(out, [vec![receipt(5)], forget.into()].concat());
        assert!(coordinator.is_done());
    }
}

#[test]
fn client_does_not_wait_for_offsets_of_participants_to_which_it_has_not_appended() {
    let committed = Outcome::Committed(HlcTimestamp::at(5));
    let mut out = Vec::new();
    let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out).with_appends([A]);
    out.clear();
    coordinator.handle_answer(A, ended_answer(committed), 1, &mut out);
    assert_eq!(out, [Output::Reply(CommitReply::Committed(HlcTimestamp::at(5).into())), decide(B, committed)]);
}

#[test]
fn participant_that_has_forgotten_the_transaction_is_not_waited_for() {
    let committed = Outcome::Committed(HlcTimestamp::at(5));
    let too_old = Answer::Refused { txn: TXN, why: Refusal::TooOld };
    let reply = Output::Reply(CommitReply::Committed(CommitReceipt {
        timestamp: HlcTimestamp::at(5),
        offsets: [(blob(A), 10)].into(),
    }));
    for is_first in [true, false] {
        let mut out = Vec::new();
        let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out).with_appends([A, B]);
        let mut answers = [(B, too_old.clone()), (A, with_append(A, ended_answer(committed)))];
        if !is_first {
            answers.reverse();
        }
        for (node, answer) in answers {
            coordinator.handle_answer(node, answer, 1, &mut out);
        }
        assert!(out.contains(&reply) && coordinator.is_done(), "{out:?}");
    }
}

#[test]
fn abortion_is_reported_at_once() {
    let mut out = Vec::new();
    let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out).with_appends([A, B]);
    out.clear();
    coordinator.handle_answer(B, refused_answer(), 1, &mut out);
    assert_eq!(out, [Output::Reply(CommitReply::Refused(Refusal::Aborted)), decide(A, Outcome::Aborted)]);
}

#[test]
fn planted_bug_is_noticed() {
    assert_noticed(&[Bug::OffsetsNotAwaited], client_that_has_appended_hears_of_the_commit_when_all_offsets_are_known);
}

/// What a coordinator knows that finishes a transaction with these answers, and whether it lets the participants forget.
fn finish_with(answers: [(NodeId, Answer); 2]) -> (Option<MixedOutcome>, bool) {
    let mut out = Vec::new();
    let mut coordinator = Coordinator::<u64>::finish(TXN, [A, B], 0, &mut out);
    for (node, answer) in answers {
        coordinator.handle_answer(node, answer, 0, &mut out);
    }
    let is_forgotten = out.iter().any(|output| matches!(output, Output::Send(_, Request::Forget { .. })));
    (coordinator.mixed_outcome(), is_forgotten)
}

#[test]
fn opposite_outcomes_are_known_and_not_forgotten() {
    assert_noticed(&[Bug::MixedOutcomeIgnored], || {
        let committed = || ended_answer(Outcome::Committed(HlcTimestamp::at(7)));
        let mixed = Some(MixedOutcome { committed: A, aborted: B });
        for other in [refused_answer(), ended_answer(Outcome::Aborted)] {
            assert_eq!(finish_with([(A, committed()), (B, other.clone())]), (mixed, false));
            assert_eq!(finish_with([(B, other), (A, committed())]), (mixed, false));
        }
        assert_eq!(finish_with([(A, committed()), (B, committed())]), (None, true));
        assert_eq!(finish_with([(A, refused_answer()), (B, ended_answer(Outcome::Aborted))]), (None, true));
    });
}

#[test]
fn participant_that_has_lost_what_it_had_prepared_is_named() {
    let mut out = Vec::new();
    let mut coordinator = Coordinator::<u64>::finish(TXN, [A, B], 0, &mut out);
    for (node, answer) in [(A, prepared_answer(7)), (B, prepared_answer(8)), (B, refused_answer())] {
        coordinator.handle_answer(node, answer, 0, &mut out);
    }
    assert_eq!(coordinator.mixed_outcome(), Some(MixedOutcome { committed: A, aborted: B }));
}

#[test]
fn participant_that_has_forgotten_what_it_ended_has_not_aborted_it() {
    const C: NodeId = NodeId(3);
    let too_old = || Answer::Refused { txn: TXN, why: Refusal::TooOld };
    let committed = || ended_answer(Outcome::Committed(HlcTimestamp::at(7)));
    let mut out = Vec::new();
    let mut coordinator = Coordinator::<u64>::finish(TXN, [A, B, C], 0, &mut out);
    for (node, answer) in [(B, committed()), (A, committed()), (A, too_old()), (C, committed())] {
        coordinator.handle_answer(node, answer, 0, &mut out);
    }
    assert_eq!((coordinator.mixed_outcome(), coordinator.is_done()), (None, true));
}

/// A client may name fewer participants than the transaction has.
#[test]
fn participants_that_the_client_has_not_named_have_a_vote() {
    assert_noticed(&[Bug::UnnamedNotAsked], || {
        for (answer, outcome) in
            [(refused_answer(), Outcome::Aborted), (prepared_answer(5), Outcome::Committed(HlcTimestamp::at(7)))]
        {
            let mut out = Vec::new();
            let mut coordinator = Coordinator::<u64>::finish(TXN, [A], 0, &mut out);
            out.clear();
            coordinator.handle_answer(A, prepared_answer(7), 10, &mut out);
            assert_eq!(out, [Output::Send(B, Request::Ask { txn: TXN, round: 0 })]);
            coordinator.handle_answer(B, answer, 20, &mut out);
            assert_eq!(coordinator.outcome(), Some(outcome));
        }
    });
    // Nor does a commit of a part of it decide the rest.
    let mut out = Vec::new();
    let mut coordinator = Coordinator::commit(TXN, [(A, part())].into(), 0, &mut out);
    coordinator.handle_answer(A, prepared_answer(7), 10, &mut out);
    coordinator.give_up(20, &mut out);
    coordinator.handle_answer(B, refused_answer(), 30, &mut out);
    assert_eq!(coordinator.outcome(), Some(Outcome::Aborted));
}
