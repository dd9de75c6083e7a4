use super::*;
use crate::commit::{Outcome, Refusal};
use crate::ident::{ClientId, HlcTimestamp};
use crate::locks::LockMode;

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
const TXN: TxnId = TxnId { start: HlcTimestamp::at(1), client: ClientId(1) };
const OTHER: TxnId = TxnId { start: HlcTimestamp::at(2), client: ClientId(1) };

type Asked = Request<u64>;

fn prepare(participants: &[NodeId]) -> Asked {
    Request::Prepare { txn: TXN, participants: participants.to_vec(), part: Part::default() }
}

fn decide(txn: TxnId) -> Asked {
    Request::Decide { txn, outcome: Outcome::Aborted }
}

fn forget() -> Asked {
    Request::Forget { txn: TXN }
}

fn joint<const N: usize>(requests: [(NodeId, Asked); N]) -> Asked {
    Request::Joint { txn: TXN, requests: requests.into() }
}

/// A and C are at one brick, B at another one; where other nodes are is not known.
fn brick_of(node: NodeId) -> Option<u32> {
    match node {
        A | C => Some(1),
        B => Some(2),
        _ => None,
    }
}

#[test]
fn requests_to_nodes_of_one_brick_are_joined() {
    let all = [A, B, C];
    let joined = join(all.map(|node| (node, prepare(&all))), brick_of);
    assert_eq!(joined, [(A, joint([(A, prepare(&all)), (C, prepare(&all))])), (B, prepare(&all))]);
}

#[test]
fn transaction_with_very_many_participants_has_several_joint_requests() {
    let sizes_of = |count: u32| {
        let all: Vec<NodeId> = (1..=count).map(NodeId).collect();
        let joined = join(all.iter().map(|node| (*node, prepare(&all))), |_| Some(1));
        let sizes = joined.into_iter().map(|(first, request)| match request {
            Request::Joint { requests, .. } => {
                assert_eq!(requests.first_key_value().map(|(node, _)| *node), Some(first));
                requests.len()
            }
            other => panic!("{first:?} is asked alone: {other:?}"),
        });
        sizes.collect::<Vec<_>>()
    };
    assert_eq!(sizes_of(1_024), [1_024]);
    let sizes = sizes_of(4_096);
    assert_eq!(sizes, [256; 16]);
    assert!(sizes.iter().all(|size| size * 4_096 <= MAX_NAMED_PARTICIPANTS));
}

#[test]
fn requests_of_other_transactions_and_to_unknown_bricks_are_not_joined() {
    let asked = [(A, decide(TXN)), (C, decide(OTHER)), (NodeId(7), decide(TXN)), (NodeId(8), decide(TXN))];
    assert_eq!(join(asked.clone(), brick_of), asked);
}

#[test]
fn requests_to_one_node_keep_their_order() {
    let asked = [(A, decide(TXN)), (A, forget()), (C, forget())];
    assert_eq!(join(asked, brick_of), [(A, decide(TXN)), (A, joint([(A, forget()), (C, forget())]))]);
}

#[test]
fn lock_requests_are_not_joined() {
    let oid = model::Oid::new(model::ClassId::NONE, model::PageId { space: model::SpaceId(1), node: A, number: 1 }, 1);
    let lock: Asked = Request::Lock { txn: TXN, first: TXN, oid, mode: LockMode::Shared };
    let asked = [(A, lock.clone()), (C, lock.clone())];
    assert_eq!(join(asked.clone(), brick_of), asked);
    assert!(!joint([(A, lock)]).is_at(A));
    assert!(!joint([(A, joint([(A, forget())]))]).is_at(A), "a joint request contains no other one");
}

#[test]
fn joint_request_is_for_the_first_of_its_nodes() {
    let request = joint([(A, forget()), (C, forget())]);
    assert!(request.is_at(A) && !request.is_at(C) && !request.is_at(B));
    assert!(!joint([(A, prepare(&[B, C]))]).is_at(A), "each request is checked");
    assert!(!joint([]).is_at(A));
}

#[test]
fn transaction_is_whole_if_all_participants_are_prepared() {
    let whole = |nodes: &[NodeId], participants: &[NodeId]| {
        let requests = nodes.iter().map(|node| (*node, prepare(participants))).collect();
        whole_parts(requests).is_ok_and(|parts| parts.keys().eq(nodes))
    };
    assert!(whole(&[A, C], &[A, C]));
    assert!(!whole(&[A, C], &[A, B, C]));
    assert!(whole_parts([(A, decide(TXN)), (C, decide(TXN))].into()).is_err());
}

#[test]
fn answers_are_collected_until_all_are_there() {
    let requests = [(A, decide(TXN)), (C, decide(TXN))].into();
    let answer = Answer::Refused { txn: TXN, why: Refusal::Aborted };
    let mut collected = CollectedAnswers::begin(7, &requests, 0).expect("decisions are answered");
    assert!(!collected.add(A, &answer));
    assert!(!collected.add(A, &answer), "one node answers once");
    assert!(!collected.add(B, &answer), "it was not asked");
    assert!(collected.add(C, &answer));
    let answers = [(A, answer.clone()), (C, answer)].into();
    assert_eq!(collected.into_answer(TXN), (7, Answer::Joint { txn: TXN, answers }));
    assert!(CollectedAnswers::begin(7, &[(A, forget()), (C, forget())].into(), 0).is_none());
}
