use model::{ClassId, PageId, SpaceId};

use super::*;
use crate::commit::AppendOffsets;
use crate::ident::{ClientId, Version};
use crate::page_cache::ObjectState;
use crate::validate::{Read, ReadVersion};

fn txn(ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(1) }
}

fn oid(node: u32) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NodeId(node), number: 7 }, 1)
}

fn call(call: Call<u64>) -> Vec<Output<u8, u64>> {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    gateway.handle_call(1, txn(1), call, 1_000).unwrap();
    gateway.outputs().collect()
}

#[test]
fn empty_commit_succeeds() {
    let parts = BTreeMap::new();
    let reply = Reply::Ended(coordinator::CommitReply::Committed(HlcTimestamp::at(1_000).into()));
    assert_eq!(call(Call::Commit { parts, creates: false }), [Output::Reply(1, txn(1), reply)]);
}

#[test]
fn outcome_without_participants_is_too_old() {
    let reply = Reply::Ended(coordinator::CommitReply::Refused(Refusal::TooOld));
    assert_eq!(
        call(Call::Resolve { participants: Vec::new(), patched: Vec::new() }),
        [Output::Reply(1, txn(1), reply)]
    );
}

#[test]
fn part_with_an_object_of_another_node_is_rejected() {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    let part = Part { writes: [(oid(2), ObjectState::Value(1))].into(), ..Part::default() };
    let lie = Call::Commit { parts: [(NodeId(1), part)].into(), creates: false };
    assert_eq!(gateway.handle_call(1, txn(1), lie, 1_000), Err(Rejected::Elsewhere(txn(1))));
    let reads = [(NodeId(1), [Read { oid: oid(2), seen: ReadVersion::Written(txn(1)) }].into())].into();
    let lie = Call::Check { reads, seen: HlcTimestamp::ZERO };
    assert_eq!(gateway.handle_call(1, txn(1), lie, 1_000), Err(Rejected::Elsewhere(txn(1))));
    assert_eq!(gateway.outputs().count(), 0);
}

#[test]
fn unanswered_questions_are_repeated_when_due() {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    let part = |node| Part { writes: [(oid(node), ObjectState::Value(1))].into(), ..Part::default() };
    let commit = Call::Commit { parts: [(NodeId(1), part(1)), (NodeId(2), part(2))].into(), creates: false };
    gateway.handle_call(1, txn(1), commit, 1_000).unwrap();
    let reads = [(NodeId(1), [Read { oid: oid(1), seen: ReadVersion::Written(txn(1)) }].into())].into();
    gateway.handle_call(2, txn(2), Call::Check { reads, seen: HlcTimestamp::ZERO }, 1_100).unwrap();
    assert_eq!((gateway.outputs().count(), gateway.deadline()), (3, Some(1_000 + REPEAT_MS)));
    gateway.poll(1_000 + REPEAT_MS);
    assert_eq!((gateway.outputs().count(), gateway.deadline()), (2, Some(1_100 + REPEAT_MS)));
    gateway.handle_disconnected(&2);
    assert_eq!(gateway.deadline(), Some(1_000 + 2 * REPEAT_MS));
    for node in [1, 2] {
        let answer =
            Answer::Ended { txn: txn(1), outcome: Outcome::Aborted, version: None, offsets: AppendOffsets::new() };
        gateway.handle_answer(NodeId(node), answer, None, 1_300);
    }
    assert_eq!(gateway.deadline(), None);
}

#[test]
fn unanswered_questions_are_repeated_when_their_participant_is_reachable() {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    let part = |node| Part { writes: [(oid(node), ObjectState::Value(1))].into(), ..Part::default() };
    let commit = Call::Commit { parts: [(NodeId(1), part(1)), (NodeId(2), part(2))].into(), creates: false };
    gateway.handle_call(1, txn(1), commit, 1_000).unwrap();
    let reads = [(NodeId(2), [Read { oid: oid(2), seen: ReadVersion::Written(txn(1)) }].into())].into();
    gateway.handle_call(2, txn(2), Call::Check { reads, seen: HlcTimestamp::ZERO }, 1_000).unwrap();
    assert_eq!(gateway.outputs().count(), 3);
    let lock = Call::Lock { first: txn(3), oid: oid(4), mode: LockMode::Shared };
    gateway.handle_call(3, txn(3), lock, 1_000).unwrap();
    assert_eq!(gateway.outputs().count(), 1);
    gateway.retry_now(NodeId(3));
    assert_eq!(gateway.outputs().count(), 0);
    gateway.retry_now(NodeId(4));
    assert!(matches!(gateway.outputs().next(), Some(Output::Ask(NodeId(4), Request::Lock { .. }))));
    let locked =
        LockedObject { oid: oid(4), mode: LockMode::Shared, version: crate::ident::Version::ZERO, value: None };
    let answer = Answer::Locked { txn: txn(3), oid: oid(4), mode: LockMode::Shared };
    gateway.handle_answer(NodeId(4), answer, Some(locked), 1_005);
    assert_eq!(gateway.outputs().count(), 1);
    gateway.retry_now(NodeId(4));
    assert_eq!(gateway.outputs().count(), 0);
    gateway.retry_now(NodeId(2));
    let asked: Vec<_> = gateway.outputs().collect();
    assert!(matches!(
        &asked[..],
        [Output::Ask(NodeId(2), Request::Prepare { .. }), Output::Ask(NodeId(2), Request::Check { .. })]
    ));
    let prepared = Answer::Prepared {
        txn: txn(1),
        proposal: HlcTimestamp::at(1_001),
        participants: Vec::new(),
        round: 0,
        offsets: AppendOffsets::new(),
    };
    gateway.handle_answer(NodeId(2), prepared, None, 1_010);
    gateway.handle_answer(NodeId(2), Answer::Checked { txn: txn(2), verdict: Ok(()) }, None, 1_010);
    assert_eq!(gateway.outputs().filter(|output| matches!(output, Output::Ask(..))).count(), 0);
    gateway.retry_now(NodeId(2));
    assert_eq!(gateway.outputs().count(), 0);
}

#[test]
fn participant_that_has_answered_is_not_overdue() {
    let mut gateway: Gateway<u8, Vec<i64>> = Gateway::new(50).with_limit(4 << 10);
    let commit = |nodes: &[u32]| {
        let part =
            |node: &u32| Part { writes: [(oid(*node), ObjectState::Value(vec![7; 60]))].into(), ..Part::default() };
        Call::Commit { parts: nodes.iter().map(|node| (NodeId(*node), part(node))).collect(), creates: false }
    };
    for number in 1..=4 {
        gateway.handle_call(1, txn(number), commit(&[1, 2]), 1_000).unwrap();
        let proposal = HlcTimestamp::at(1_001);
        let prepared = Answer::Prepared {
            txn: txn(number),
            proposal,
            participants: Vec::new(),
            round: 0,
            offsets: AppendOffsets::new(),
        };
        gateway.handle_answer(NodeId(1), prepared, None, 1_010);
    }
    gateway.outputs().for_each(drop);
    assert!(gateway.waiting_bytes() > 4 << 10);
    gateway.handle_call(1, txn(5), commit(&[1]), 5_000).unwrap();
    assert!(matches!(gateway.outputs().collect::<Vec<_>>()[..], [Output::Ask(NodeId(1), Request::Commit { .. })]));
    gateway.handle_call(1, txn(6), commit(&[1, 2]), 5_000).unwrap();
    assert_eq!(gateway.outputs().collect::<Vec<_>>(), [Output::Busy(1, txn(6), CallLimit::Participant(NodeId(2)))]);
}

#[test]
fn commits_at_a_silent_participant_are_refused_above_the_memory_limit() {
    let mut gateway: Gateway<u8, Vec<i64>> = Gateway::new(50).with_limit(4 << 10);
    let commit = |nodes: &[u32]| {
        let part =
            |node: &u32| Part { writes: [(oid(*node), ObjectState::Value(vec![7; 100]))].into(), ..Part::default() };
        Call::Commit { parts: nodes.iter().map(|node| (NodeId(*node), part(node))).collect(), creates: false }
    };
    // The limit does not apply before an answer is overdue.
    for number in 1..=4 {
        gateway.handle_call(1, txn(number), commit(&[2]), 1_000).unwrap();
    }
    assert_eq!(gateway.outputs().count(), 4);
    let waiting = gateway.waiting_bytes();
    assert!(waiting > 4 << 10);
    // An answer is overdue: the call is refused and no question is sent, not even to the other participant.
    gateway.handle_call(1, txn(5), commit(&[1, 2]), 2_000).unwrap();
    assert_eq!(gateway.outputs().collect::<Vec<_>>(), [Output::Busy(1, txn(5), CallLimit::Participant(NodeId(2)))]);
    assert_eq!(gateway.waiting_bytes(), waiting);
    // Calls for other participants, repeated calls and calls that resolve outcomes are accepted.
    gateway.handle_call(1, txn(6), commit(&[1]), 2_000).unwrap();
    gateway.handle_call(1, txn(1), commit(&[2]), 2_000).unwrap();
    gateway
        .handle_call(1, txn(5), Call::Resolve { participants: vec![NodeId(1), NodeId(2)], patched: Vec::new() }, 2_000)
        .unwrap();
    let asked: Vec<_> = gateway.outputs().collect();
    assert!(matches!(
        asked[..],
        [
            Output::Ask(NodeId(1), Request::Commit { .. }),
            Output::Ask(NodeId(1), Request::Ask { .. }),
            Output::Ask(NodeId(2), Request::Ask { .. })
        ]
    ));
    // Calls that resolve outcomes have a higher limit.
    let resolve = |number| (txn(number), Call::Resolve { participants: vec![NodeId(2)], patched: Vec::new() });
    let taken = (10..50).take_while(|number| {
        let (txn, call) = resolve(*number);
        gateway.handle_call(1, txn, call, 2_000).unwrap();
        gateway.outputs().all(|output| matches!(output, Output::Ask(..)))
    });
    assert!((1..10).contains(&taken.count()));
    assert!(gateway.waiting_bytes() < 9 << 10);
    // The participant answers: all waiting transactions end, and calls are accepted again.
    for number in (1..=6).chain(10..50) {
        for node in [1, 2] {
            let answer = Answer::Ended {
                txn: txn(number),
                outcome: Outcome::Aborted,
                version: None,
                offsets: AppendOffsets::new(),
            };
            gateway.handle_answer(NodeId(node), answer, None, 2_100);
        }
    }
    assert_eq!(gateway.waiting_bytes(), 0);
    gateway.outputs().for_each(drop);
    gateway.handle_call(1, txn(5), commit(&[1, 2]), 2_100).unwrap();
    assert_eq!(gateway.outputs().count(), 2);
}

/// A gateway with a memory limit of 4 KiB. Its participants answer nothing, and nothing is overdue.
fn bounded_gateway() -> Gateway<u8, Vec<i64>> {
    Gateway::new(50).with_limit(4 << 10)
}

fn of_client(number: u64, client: u64) -> TxnId {
    TxnId { client: ClientId(client), ..txn(number) }
}

#[test]
fn waiting_commits_of_one_client_are_bounded_also_before_an_answer_is_overdue() {
    let mut gateway = bounded_gateway();
    let mut accepted = |client: u64| {
        let taken = (1..100).take_while(|number| {
            gateway.handle_call(1, of_client(*number, client), commit_at(&[2]), 1_000).unwrap();
            let busy = Output::Busy(1, of_client(*number, client), CallLimit::Client(NodeId(2)));
            gateway.outputs().all(|output| output != busy)
        });
        (taken.count(), gateway.waiting_bytes())
    };
    let (first, bytes) = accepted(1);
    assert!(first > 1 && (8 << 10..16 << 10).contains(&bytes), "{first} with {bytes} bytes");
    let (second, bytes) = accepted(2);
    assert!(second > 0, "the commits of another client are not accepted with {bytes} bytes");
    // All together have a limit, too.
    gateway.handle_call(1, of_client(1, 3), commit_at(&[2]), 1_000).unwrap();
    let busy = Output::Busy(1, of_client(1, 3), CallLimit::Total(NodeId(2)));
    assert!(bytes < 16 << 10 || gateway.outputs().any(|output| output == busy));
    // What is deleted makes room.
    let part = Part { writes: [(oid(2), ObjectState::Absent)].into(), ..Part::default() };
    let call = Call::Commit { parts: [(NodeId(2), part)].into(), creates: false };
    gateway.outputs().for_each(drop);
    gateway.handle_call(1, of_client(200, 1), call, 1_000).unwrap();
    assert!(matches!(gateway.outputs().collect::<Vec<_>>()[..], [Output::Ask(NodeId(2), Request::Commit { .. })]));
}

#[test]
fn checks_of_one_client_are_bounded_until_they_end() {
    let mut gateway = bounded_gateway();
    let check = || {
        let read = Read { oid: oid(2), seen: ReadVersion::At(Version { moves: 0, position: 1 }) };
        Call::Check { reads: [(NodeId(2), [read].into_iter().collect())].into(), seen: HlcTimestamp::ZERO }
    };
    let is_asked = |gateway: &mut Gateway<u8, Vec<i64>>, number, client| {
        gateway.handle_call(client as u8, of_client(number, client), check(), 1_000).unwrap();
        matches!(gateway.outputs().collect::<Vec<_>>()[..], [Output::Ask(NodeId(2), Request::Check { .. })])
    };
    let asked = (1..100).take_while(|number| is_asked(&mut gateway, *number, 1)).count();
    assert!((2..17).contains(&asked), "{asked}");
    assert!(is_asked(&mut gateway, 1, 1), "a repeated one is no further one");
    assert!(is_asked(&mut gateway, 1, 2), "the checks of another client are accepted");
    gateway.handle_answer(NodeId(2), Answer::Checked { txn: of_client(1, 1), verdict: Ok(()) }, None, 1_000);
    gateway.outputs().for_each(drop);
    assert!(is_asked(&mut gateway, 300, 1), "one has ended");
    gateway.handle_disconnected(&1);
    assert_eq!((400..500).take_while(|number| is_asked(&mut gateway, *number, 1)).count(), asked);
}

#[test]
fn datastore_transactions_of_one_client_are_bounded() {
    let mut gateway = bounded_gateway();
    let is_asked = |gateway: &mut Gateway<u8, Vec<i64>>, number, client| {
        let txn = of_client(number, client);
        let call = Call::Lock { first: txn, oid: oid(2), mode: LockMode::Exclusive };
        gateway.handle_call(1, txn, call, 1_000).unwrap();
        matches!(gateway.outputs().collect::<Vec<_>>()[..], [Output::Ask(NodeId(2), Request::Lock { .. })])
    };
    assert_eq!((1..20_000).take_while(|number| is_asked(&mut gateway, *number, 1)).count(), MAX_LOCKING);
    assert!(is_asked(&mut gateway, 5, 1), "it has locks already");
    assert!(is_asked(&mut gateway, 1, 2), "the transactions of another client are accepted");
}

fn commit_at(nodes: &[u32]) -> Call<Vec<i64>> {
    let part = |node: &u32| Part { writes: [(oid(*node), ObjectState::Value(vec![7; 200]))].into(), ..Part::default() };
    Call::Commit { parts: nodes.iter().map(|node| (NodeId(*node), part(node))).collect(), creates: false }
}

/// A gateway with a memory limit of 4 KiB, whose participant 2 does not answer.
fn waiting_for_two() -> Gateway<u8, Vec<i64>> {
    let mut gateway: Gateway<u8, Vec<i64>> = Gateway::new(50).with_limit(4 << 10);
    gateway.handle_call(1, txn(1), commit_at(&[1, 2]), 1_000).unwrap();
    gateway.handle_call(2, txn(2), commit_at(&[2]), 1_000).unwrap();
    gateway.outputs().for_each(drop);
    assert!(gateway.waiting_bytes() > 4 << 10);
    gateway
}

#[test]
fn resolving_an_outcome_abandons_the_commit() {
    let mut gateway = waiting_for_two();
    gateway
        .handle_call(1, txn(1), Call::Resolve { participants: vec![NodeId(1), NodeId(2)], patched: Vec::new() }, 1_100)
        .unwrap();
    let ask = |node| Output::Ask(NodeId(node), Request::Ask { txn: txn(1), round: 0 });
    assert_eq!(gateway.outputs().collect::<Vec<_>>(), [ask(1), ask(2)]);
    // Participants may have prepared it meanwhile: if all have, it is committed.
    for node in [1, 2] {
        let proposal = HlcTimestamp::at(1_001);
        let prepared = Answer::Prepared {
            txn: txn(1),
            proposal,
            participants: Vec::new(),
            round: 0,
            offsets: AppendOffsets::new(),
        };
        gateway.handle_answer(NodeId(node), prepared, None, 1_110);
    }
    let reply = coordinator::CommitReply::Committed(HlcTimestamp::at(1_001).into());
    assert_eq!(gateway.outputs().next(), Some(Output::Reply(1, txn(1), Reply::Ended(reply))));
}

#[test]
fn commit_without_calls_is_abandoned() {
    let mut gateway = waiting_for_two();
    gateway.handle_disconnected(&1);
    // Another client repeats its call each second.
    for now in (1_000..=1_000 + ABANDON_AFTER_MS).step_by(1_000) {
        gateway.poll(now);
        gateway.handle_call(2, txn(2), commit_at(&[2]), now).unwrap();
    }
    gateway.outputs().for_each(drop);
    // The commit has 4 KiB, which takes 4 ms to send.
    gateway.poll(1_000 + ABANDON_AFTER_MS + REPEAT_MS);
    assert!(gateway.outputs().all(|output| !matches!(output, Output::Ask(_, Request::Ask { .. }))));
    gateway.poll(1_000 + ABANDON_AFTER_MS + 10 * 4 + REPEAT_MS);
    let asked: Vec<_> = gateway.outputs().collect();
    let gone = |node| Output::Ask(NodeId(node), Request::Ask { txn: txn(1), round: 0 });
    assert_eq!(asked[..2], [gone(1), gone(2)]);
    assert!(matches!(asked[2..], [Output::Ask(NodeId(2), Request::Commit { .. })]), "{asked:?}");
    assert!(gateway.waiting_bytes() < 4 << 10, "{}", gateway.waiting_bytes());
    // A participant that does not know the transaction refuses it for ever.
    let refused = Answer::Refused { txn: txn(1), why: Refusal::Aborted };
    gateway.handle_answer(NodeId(2), refused, None, 12_000);
    let decide = Output::Ask(NodeId(1), Request::Decide { txn: txn(1), outcome: Outcome::Aborted });
    assert!(gateway.outputs().any(|output| output == decide));
}

#[test]
fn deletions_are_accepted_above_the_memory_limit() {
    let mut gateway = waiting_for_two();
    let part = |content| Part { writes: [(oid(2), content)].into(), ..Part::default() };
    let commit = |content| Call::Commit { parts: [(NodeId(2), part(content))].into(), creates: false };
    gateway.handle_call(1, txn(3), commit(ObjectState::Value(vec![7])), 2_000).unwrap();
    assert_eq!(gateway.outputs().collect::<Vec<_>>(), [Output::Busy(1, txn(3), CallLimit::Participant(NodeId(2)))]);
    gateway.handle_call(1, txn(4), commit(ObjectState::Absent), 2_000).unwrap();
    assert!(matches!(gateway.outputs().collect::<Vec<_>>()[..], [Output::Ask(NodeId(2), Request::Commit { .. })]));
}

#[test]
fn disconnected_client_loses_its_locks_at_every_participant() {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    let lock = |number: u64, node| Call::Lock { first: txn(number), oid: oid(node), mode: LockMode::Exclusive };
    for (client, number, node) in [(1, 1, 1), (1, 1, 2), (2, 2, 1)] {
        gateway.handle_call(client, txn(number), lock(number, node), 1_000).unwrap();
    }
    let locked =
        LockedObject { oid: oid(1), mode: LockMode::Exclusive, version: crate::ident::Version::ZERO, value: None };
    let answer = Answer::Locked { txn: txn(1), oid: oid(1), mode: LockMode::Exclusive };
    gateway.handle_answer(NodeId(1), answer, Some(locked), 1_005);
    gateway.outputs().for_each(drop);
    gateway.handle_disconnected(&1);
    let asked: Vec<_> = gateway.outputs().collect();
    let ask = |node| Output::Ask(NodeId(node), Request::Ask { txn: txn(1), round: 0 });
    assert_eq!(asked, [ask(1), ask(2)]);
    // The answer goes to no client, and the other client keeps its lock.
    gateway.handle_answer(NodeId(1), Answer::Refused { txn: txn(1), why: Refusal::Aborted }, None, 1_010);
    assert_eq!(gateway.outputs().count(), 0);
}

#[test]
fn locks_that_a_transaction_waits_for_are_requested_again_and_bounded() {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    let object = |slot| Oid::new(ClassId::NONE, oid(1).page(), slot);
    let lock = |slot| Call::Lock { first: txn(1), oid: object(slot), mode: LockMode::Exclusive };
    let waiting = 1..=u16::try_from(MAX_WAITING_LOCKS).unwrap();
    for slot in waiting.clone() {
        assert_eq!(gateway.reached_limit(txn(1), &lock(slot), 1_000), None);
        gateway.handle_call(1, txn(1), lock(slot), 1_000).unwrap();
    }
    let more = lock(waiting.end() + 1);
    assert_eq!(gateway.reached_limit(txn(1), &more, 1_000), Some(CallLimit::Client(NodeId(1))));
    assert_eq!(gateway.reached_limit(txn(1), &lock(1), 1_000), None, "it is a repetition");
    let version = Version::ZERO;
    let locked = LockedObject { oid: object(2), mode: LockMode::Exclusive, version, value: None };
    let answer = Answer::Locked { txn: txn(1), oid: object(2), mode: LockMode::Exclusive };
    gateway.handle_answer(NodeId(1), answer, Some(locked), 1_005);
    assert_eq!(gateway.reached_limit(txn(1), &more, 1_010), None);
    gateway.outputs().for_each(drop);
    gateway.retry_now(NodeId(1));
    let requested = gateway.outputs().filter_map(|output| match output {
        Output::Ask(NodeId(1), Request::Lock { oid, .. }) => Some(oid.slot()),
        _ => None,
    });
    assert_eq!(requested.collect::<Vec<_>>(), waiting.filter(|slot| *slot != 2).collect::<Vec<_>>());
}

#[test]
fn client_keeps_its_locks_if_it_has_called_on_another_connection() {
    let mut gateway: Gateway<u8, u64> = Gateway::new(50);
    let lock = || Call::Lock { first: txn(1), oid: oid(1), mode: LockMode::Exclusive };
    gateway.handle_call(1, txn(1), lock(), 1_000).unwrap();
    gateway.handle_call(2, txn(1), lock(), 1_100).unwrap();
    gateway.outputs().for_each(drop);
    gateway.handle_disconnected(&1);
    assert_eq!(gateway.outputs().count(), 0);
}

/// A gateway that knows that nodes 1 and 2 are at one brick and node 3 at another one.
fn gateway_of_two_bricks() -> Gateway<u8, u64> {
    let mut gateway = Gateway::new(50);
    gateway.set_bricks([(NodeId(1), 1), (NodeId(2), 1), (NodeId(3), 2)].into());
    gateway
}

/// Commits a transaction that writes at these nodes. Returns the nodes to which messages are sent, and whether they are joint.
fn commit(gateway: &mut Gateway<u8, u64>, nodes: &[u32]) -> Vec<(u32, bool)> {
    let part = |node: &u32| {
        let writes = [(oid(*node), ObjectState::Value(1))].into();
        (NodeId(*node), Part { writes, ..Part::default() })
    };
    let parts = nodes.iter().map(part).collect();
    gateway.handle_call(1, txn(1), Call::Commit { parts, creates: false }, 1_000).unwrap();
    sent_requests(gateway)
}

fn sent_requests(gateway: &mut Gateway<u8, u64>) -> Vec<(u32, bool)> {
    let asked = gateway.outputs().filter_map(|output| match output {
        Output::Ask(node, request) => Some((node.0, matches!(request, Request::Joint { .. }))),
        _ => None,
    });
    asked.collect()
}

#[test]
fn nodes_of_one_brick_get_one_message() {
    assert_eq!(commit(&mut gateway_of_two_bricks(), &[1, 2]), [(1, true)]);
    assert_eq!(commit(&mut gateway_of_two_bricks(), &[1, 2, 3]), [(1, true), (3, false)]);
    assert_eq!(commit(&mut gateway_of_two_bricks(), &[1, 3]), [(1, false), (3, false)]);
    let mut gateway = gateway_of_two_bricks();
    let reads = [1, 2].map(|node| (NodeId(node), ReadList::default())).into();
    gateway.handle_call(1, txn(1), Call::Check { reads, seen: HlcTimestamp::ZERO }, 1_000).unwrap();
    assert_eq!(sent_requests(&mut gateway), [(1, true)]);
}

#[test]
fn joint_request_is_repeated_to_each_node() {
    let mut gateway = gateway_of_two_bricks();
    commit(&mut gateway, &[1, 2]);
    gateway.poll(1_000 + REPEAT_MS);
    assert_eq!(sent_requests(&mut gateway), [(1, false), (2, false)]);
}

#[test]
fn conclusion_of_a_brick_ends_the_transaction() {
    let mut gateway = gateway_of_two_bricks();
    commit(&mut gateway, &[1, 2]);
    let reply = coordinator::CommitReply::Committed(HlcTimestamp::at(1_001).into());
    gateway.handle_answer(NodeId(1), Answer::Concluded { txn: txn(1), reply: reply.clone() }, None, 1_002);
    let outputs: Vec<_> = gateway.outputs().collect();
    assert_eq!(outputs, [Output::Reply(1, txn(1), Reply::Ended(reply))]);
    assert_eq!((gateway.deadline(), gateway.waiting_bytes()), (None, 0));
}

#[test]
fn votes_of_one_brick_count_together() {
    let mut gateway = gateway_of_two_bricks();
    commit(&mut gateway, &[1, 2, 3]);
    let participants: Vec<NodeId> = [1, 2, 3].map(NodeId).into();
    let vote = |ms| {
        let proposal = HlcTimestamp::at(ms);
        Answer::Prepared {
            txn: txn(1),
            proposal,
            participants: participants.clone(),
            round: 0,
            offsets: AppendOffsets::new(),
        }
    };
    let answers = [(NodeId(1), vote(1_005)), (NodeId(2), vote(1_009))].into();
    gateway.handle_answer(NodeId(1), Answer::Joint { txn: txn(1), answers }, None, 1_010);
    assert_eq!(gateway.outputs().count(), 0, "node 3 has not voted");
    gateway.handle_answer(NodeId(3), vote(1_007), None, 1_010);
    let at = HlcTimestamp::at(1_009);
    let reply = Reply::Ended(coordinator::CommitReply::Committed(at.into()));
    let outputs: Vec<_> = gateway.outputs().collect();
    assert_eq!(outputs[0], Output::Reply(1, txn(1), reply));
    let decide = || Request::Decide { txn: txn(1), outcome: Outcome::Committed(at) };
    let requests = [(NodeId(1), decide()), (NodeId(2), decide())].into();
    let joint = Output::Ask(NodeId(1), Request::Joint { txn: txn(1), requests });
    assert_eq!(outputs[1..], [joint, Output::Ask(NodeId(3), decide())]);
}

#[test]
fn part_that_was_not_sent_is_sent_soon_and_others_are_not_sent_again() {
    let mut gateway: Gateway<u8, Vec<i64>> = Gateway::new(50);
    let large = |node| {
        let writes = [(oid(node), ObjectState::Value(vec![7; 1 << 17]))].into();
        (NodeId(node), Part { writes, ..Part::default() })
    };
    let call = Call::Commit { parts: [large(1), large(2)].into(), creates: false };
    gateway.handle_call(1, txn(1), call, 1_000).unwrap();
    assert_eq!(gateway.outputs().count(), 2);
    gateway.ask_again_soon(txn(1), NodeId(2), 1_000);
    assert_eq!(gateway.deadline(), Some(1_000 + REPEAT_MS));
    gateway.poll(1_000 + REPEAT_MS);
    let asked: Vec<_> = gateway.outputs().collect();
    assert!(matches!(asked[..], [Output::Ask(NodeId(2), Request::Prepare { .. })]), "{asked:?}");
    // Two parts of a mebibyte take two seconds on a slow link.
    gateway.poll(2_900);
    assert_eq!(gateway.outputs().count(), 0);
    gateway.poll(3_300);
    assert_eq!(gateway.outputs().count(), 2);
}

/// Another participant may have prepared the transaction, and all of them then have committed it.
#[test]
fn released_locks_do_not_abort_what_is_prepared() {
    model::planted_bug::assert_noticed(&[Bug::ReleaseDecides], || {
        let asked = call(Call::Release { participants: vec![NodeId(1), NodeId(2)] });
        let ask = |node| Output::Ask(NodeId(node), Request::Ask { txn: txn(1), round: 0 });
        assert_eq!(asked, [ask(1), ask(2)]);
    });
}
