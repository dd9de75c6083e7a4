use std::collections::BTreeMap;

use model::planted_bug::plant;
use model::{ClassId, NodeId, Oid, PageId, SpaceId};

use super::*;
use crate::brick::Output;
use crate::commit::coordinator::CommitReceipt;
use crate::commit::participant::ParticipantSettings;
use crate::commit::{Answer, Outcome, Record};
use crate::ident::{ClientId, Version};
use crate::page_cache::ObjectState;
use crate::plant::Bug;
use crate::read_list::ReadList;
use crate::validate::WindowLimits;
use crate::validate::{Read, ReadVersion};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const PEER: u32 = 0;
const NOW: Ms = 1_000;

type Node = Brick<u32, u64>;

fn txn(ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(1) }
}

fn object(node: NodeId) -> Oid {
    Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 7 }, 1)
}

fn part(node: NodeId) -> Part<u64> {
    Part { writes: [(object(node), ObjectState::Value(1))].into(), ..Part::default() }
}

fn prepare(txn: TxnId, part: Part<u64>) -> Request<u64> {
    Request::Prepare { txn, participants: vec![A, B], part }
}

fn no_versions() -> BTreeMap<PageId, Version> {
    [A, B].map(|node| (object(node).page(), Version::ZERO)).into()
}

fn nodes() -> [Node; 2] {
    [A, B].map(|node| {
        Brick::new(ParticipantSettings {
            node,
            moves: 0,
            skew_ms: 50,
            windows: WindowLimits { page: 100, retained: 0 },
        })
    })
}

/// Commits these parts in one phase. Returns the time, if all nodes take their parts in.
fn commit(nodes: &mut [Node; 2], txn: TxnId, parts: [Part<u64>; 2]) -> Option<HlcTimestamp> {
    let checked = |(node, part): (&Node, &Part<u64>)| node.check_one_phase(&prepare(txn, part.clone()), &no_versions());
    let footprints: Vec<Footprint> = nodes.iter().zip(&parts).map_while(checked).collect();
    if footprints.len() < parts.len() {
        return None;
    }
    let at = nodes.iter_mut().try_fold(HlcTimestamp::ZERO, |at, node| node.propose(at, NOW)).unwrap();
    nodes.iter_mut().for_each(|node| node.learn(at, NOW).unwrap());
    let mut conclude = Some((PEER, CommitReply::Committed(CommitReceipt::from(at))));
    for ((node, part), footprint) in nodes.iter_mut().zip(parts).zip(&footprints) {
        node.commit_one_phase((txn, part), footprint, at, conclude.take(), NOW);
    }
    Some(at)
}

fn answers(node: &mut Node) -> Vec<Answer> {
    node.outputs()
        .filter_map(|output| if let Output::Answer(_, answer) = output { Some(answer) } else { None })
        .collect()
}

fn ask(node: &mut Node, request: Request<u64>) {
    node.handle_request(PEER, request, HlcTimestamp::ZERO, NOW, &no_versions()).unwrap();
}

#[test]
fn all_nodes_commit_at_one_time_and_one_concludes_when_that_is_durable() {
    let mut nodes = nodes();
    let at = commit(&mut nodes, txn(900), [A, B].map(part)).unwrap();
    let [first, second] = &mut nodes;
    for node in [&mut *first, &mut *second] {
        let records: Vec<_> = node.outputs().collect();
        let is_commit = |output: &Output<u32, u64>| matches!(output, Output::Append(1, Record::Committed { timestamp, .. }) if *timestamp == at);
        assert!(records.len() == 1 && is_commit(&records[0]), "no answer before the force: {records:?}");
    }
    second.handle_forced(1, NOW, &no_versions());
    assert_eq!(answers(second), []);
    first.handle_forced(1, NOW, &no_versions());
    let reply = CommitReply::Committed(at.into());
    assert_eq!(answers(first), [Answer::Concluded { txn: txn(900), reply }]);
    assert!([first, second].into_iter().all(|node| !node.has_prepared() && node.prepared_txns().next().is_none()));
}

#[test]
fn repeated_prepare_gets_the_outcome() {
    let mut nodes = nodes();
    let at = commit(&mut nodes, txn(900), [A, B].map(part)).unwrap();
    assert_eq!(commit(&mut nodes, txn(900), [A, B].map(part)), None, "it is known");
    for (node, id) in nodes.iter_mut().zip([A, B]) {
        node.handle_forced(1, NOW, &no_versions());
        answers(node);
        ask(node, prepare(txn(900), part(id)));
        let answered = answers(node);
        let is_committed =
            matches!(&answered[..], [Answer::Ended { outcome: Outcome::Committed(when), .. }] if *when == at);
        assert!(is_committed, "C3: {answered:?}");
        ask(node, Request::Decide { txn: txn(900), outcome: Outcome::Committed(at) });
        ask(node, Request::Forget { txn: txn(900) });
        assert!(node.check_invariants().is_ok());
    }
}

#[test]
fn transaction_that_is_prepared_or_marked_or_coordinated_is_not_committed_in_one_phase() {
    let mut prepared = nodes();
    ask(&mut prepared[1], prepare(txn(900), part(B)));
    assert_eq!(commit(&mut prepared, txn(900), [A, B].map(part)), None);
    let mut marked = nodes();
    ask(&mut marked[1], Request::Ask { txn: txn(900), round: 0 });
    assert_eq!(commit(&mut marked, txn(900), [A, B].map(part)), None);
    let mut coordinated = nodes();
    let requests = [(A, prepare(txn(900), part(A))), (B, prepare(txn(900), part(B)))].into();
    ask(&mut coordinated[0], Request::Joint { txn: txn(900), requests });
    assert_eq!(commit(&mut coordinated, txn(900), [A, B].map(part)), None);
}

/// Whether a part commits that has read a version that never was.
fn commits_outdated() -> bool {
    let read = Read { oid: Oid::new(ClassId::NONE, object(B).page(), 2), seen: ReadVersion::Written(txn(1)) };
    commit(&mut nodes(), txn(900), [part(A), Part { reads: [read].into(), ..part(B) }]).is_some()
}

/// Whether the time of a commit is not above what the first node has promised (V4).
fn breaks_promise() -> bool {
    let (mut nodes, late) = (nodes(), HlcTimestamp::at(1_040));
    ask(&mut nodes[0], Request::Check { txn: txn(950), reads: ReadList::default(), at: late });
    commit(&mut nodes, txn(900), [A, B].map(part)).unwrap() <= late
}

#[test]
fn planted_bugs_are_noticed() {
    let bugs = [(Bug::OnePhaseUnchecked, commits_outdated as fn() -> bool), (Bug::ProposalsApart, breaks_promise)];
    for (bug, shows) in bugs {
        assert!(!shows(), "without {bug:?}");
        let _planted = plant(bug);
        assert!(shows(), "{bug:?}");
    }
}
