use super::*;
use crate::ident::ClientId;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const TXN: TxnId = TxnId { start: HlcTimestamp::at(1), client: ClientId(1) };

fn part() -> Part<u64> {
    Part::default()
}

fn prepared(ms: u64) -> Answer {
    Answer::Prepared { txn: TXN, proposal: HlcTimestamp::at(ms), participants: vec![A, B], round: 0 }
}

fn ended(outcome: Outcome) -> Answer {
    Answer::Ended { txn: TXN, outcome, version: None }
}

fn refused() -> Answer {
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
    let (mut coordinator, mut out) = coordinator_after(&[(A, prepared(7)), (B, prepared(5))]);
    let reply = Output::Reply(CommitReply::Committed(HlcTimestamp::at(7)));
    assert_eq!(out, [reply, decide(A, committed), decide(B, committed)]);
    out.clear();
    coordinator.handle_answer(A, ended(committed), 20, &mut out);
    assert!(out.is_empty() && !coordinator.is_done());
    coordinator.handle_answer(B, ended(committed), 20, &mut out);
    assert_eq!(out, [A, B].map(|node| Output::Send(node, Request::Forget { txn: TXN })));
    assert_eq!(coordinator.deadline(), None);
}

#[test]
fn one_refusal_aborts_and_the_client_is_answered_at_once() {
    let (coordinator, out) = coordinator_after(&[(B, refused())]);
    assert_eq!(out, [Output::Reply(CommitReply::Refused(Refusal::Aborted)), decide(A, Outcome::Aborted)]);
    assert_eq!(coordinator.outcome(), Some(Outcome::Aborted));
}

#[test]
fn vote_after_a_refusal_changes_nothing() {
    let (coordinator, out) = coordinator_after(&[(B, refused()), (A, prepared(5))]);
    assert_eq!(out.iter().filter(|output| matches!(output, Output::Reply(_))).count(), 1);
    let repeated = Output::Repeat(A, Request::Decide { txn: TXN, outcome: Outcome::Aborted });
    assert_eq!(out.last(), Some(&repeated));
    assert_eq!(coordinator.outcome(), Some(Outcome::Aborted));
}

#[test]
fn unanswered_question_is_repeated() {
    let (mut coordinator, mut out) = coordinator_after(&[(A, prepared(5))]);
    coordinator.poll(199, &mut out);
    assert!(out.is_empty());
    assert_eq!(coordinator.deadline(), Some(200));
    coordinator.poll(200, &mut out);
    let Output::Send(_, asked) = prepare(B) else { panic!("a question is sent") };
    assert_eq!(out, [Output::Repeat(B, asked)]);
}

#[test]
fn conclusion_of_a_participant_is_reported_and_nothing_is_left_to_be_done() {
    let reply = CommitReply::Committed(HlcTimestamp::at(9));
    let (mut coordinator, mut out) = coordinator_after(&[(B, prepared(5)), (A, Answer::Concluded { txn: TXN, reply })]);
    assert_eq!(out, [Output::Reply(reply)]);
    assert!(coordinator.is_done() && !coordinator.has_parts());
    assert_eq!(coordinator.outcome(), Some(Outcome::Committed(HlcTimestamp::at(9))));
    out.clear();
    coordinator.handle_answer(A, Answer::Concluded { txn: TXN, reply }, 20, &mut out);
    assert_eq!(out, [], "the client is answered once");
}

#[test]
fn any_node_finishes_a_transaction_that_all_have_prepared() {
    let mut out = Vec::new();
    let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out);
    assert_eq!(out, [A, B].map(|node| Output::Send(node, Request::Ask { txn: TXN, round: 0 })));
    out.clear();
    coordinator.handle_answer(A, prepared(5), 1, &mut out);
    coordinator.handle_answer(B, prepared(9), 1, &mut out);
    assert_eq!(coordinator.outcome(), Some(Outcome::Committed(HlcTimestamp::at(9))));
}

#[test]
fn known_outcome_of_one_participant_is_the_outcome() {
    let committed = Outcome::Committed(HlcTimestamp::at(5));
    let mut out = Vec::new();
    let mut coordinator: Coordinator<u64> = Coordinator::finish(TXN, [A, B], 0, &mut out);
    out.clear();
    coordinator.handle_answer(A, ended(committed), 1, &mut out);
    assert_eq!(out, [Output::Reply(CommitReply::Committed(HlcTimestamp::at(5))), decide(B, committed)]);
}

#[test]
fn transaction_with_one_participant_takes_one_message() {
    let mut out = Vec::new();
    let mut coordinator = Coordinator::commit(TXN, [(A, part())].into(), 0, &mut out);
    assert_eq!(out, [Output::Send(A, Request::Commit { txn: TXN, part: part() })]);
    out.clear();
    coordinator.handle_answer(A, ended(Outcome::Committed(HlcTimestamp::at(5))), 1, &mut out);
    assert_eq!(out[0], Output::Reply(CommitReply::Committed(HlcTimestamp::at(5))));
    assert!(coordinator.is_done());
}
