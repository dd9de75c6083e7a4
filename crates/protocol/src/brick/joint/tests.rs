use model::planted_bug::plant;
use model::{ClassId, Oid, PageId, SpaceId};

use super::*;
use crate::brick::ORPHAN_SCAN_MS;
use crate::commit::Record;
use crate::commit::participant::ParticipantSettings;
use crate::ident::{ClientId, Version};
use crate::page_cache::ObjectState;
use crate::read_list::ReadList;
use crate::validate::WindowLimits;
use crate::validate::{Read, ReadVersion};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);
const C: NodeId = NodeId(3);
/// The address of the peer server, and that of a logical node of the brick.
const PEER: u32 = 0;

type Node = Brick<u32, u64>;

fn txn(ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(1) }
}

fn part(node: NodeId) -> Part<u64> {
    let page = PageId { space: SpaceId(1), node, number: 7 };
    Part { writes: [(Oid::new(ClassId::NONE, page, 1), ObjectState::Value(1))].into(), ..Part::default() }
}

/// A part that conflicts: it has read a version that never was.
fn conflicting_part(node: NodeId) -> Part<u64> {
    let page = PageId { space: SpaceId(1), node, number: 7 };
    let read = Read { oid: Oid::new(ClassId::NONE, page, 2), seen: ReadVersion::Written(txn(1)) };
    Part { reads: [read].into(), ..part(node) }
}

fn prepare(txn: TxnId, participants: &[NodeId], parts: &[(NodeId, Part<u64>)]) -> Request<u64> {
    let one = |(node, part): &(NodeId, Part<u64>)| {
        let participants = participants.to_vec();
        (*node, Request::Prepare { txn, participants, part: part.clone() })
    };
    Request::Joint { txn, requests: parts.iter().map(one).collect() }
}

/// Logical nodes A and B of one brick, whose records become durable when a test says so.
struct TwoNodes {
    nodes: BTreeMap<NodeId, Node>,
    appended: BTreeMap<NodeId, Vec<Record<u64>>>,
    answers: Vec<Answer>,
    now: Ms,
}

impl TwoNodes {
    fn new() -> Self {
        let node = |node| {
            let settings =
                ParticipantSettings { node, moves: 0, skew_ms: 50, windows: WindowLimits { page: 100, retained: 0 } };
            (node, Brick::new(settings))
        };
        Self { nodes: [A, B].map(node).into(), appended: BTreeMap::new(), answers: Vec::new(), now: 1_000 }
    }

    fn act(&mut self, node: NodeId, act: impl FnOnce(&mut Node, Ms)) {
        act(self.nodes.get_mut(&node).unwrap(), self.now);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        let outputs = |(node, brick): (&NodeId, &mut Node)| (*node, brick.outputs().collect::<Vec<_>>());
        let all: Vec<_> = self.nodes.iter_mut().map(outputs).collect();
        if all.iter().all(|(_, outputs)| outputs.is_empty()) {
            return;
        }
        for (node, output) in all.into_iter().flat_map(|(node, all)| all.into_iter().map(move |one| (node, one))) {
            match output {
                Output::Append(_, record) => self.appended.entry(node).or_default().push(record),
                Output::Answer(PEER, Answer::Checked { .. }) => {}
                Output::Answer(PEER, answer) => self.answers.push(answer),
                Output::Answer(to, answer) => {
                    self.nodes.get_mut(&NodeId(to)).unwrap().handle_answer(node, answer, self.now)
                }
                Output::Ask(to, request) => self.ask(node.0, to, request),
                _ => {}
            }
        }
        self.carry_out();
    }

    fn ask(&mut self, from: u32, to: NodeId, request: Request<u64>) {
        let versions = BTreeMap::<PageId, Version>::new();
        if let Some(brick) = self.nodes.get_mut(&to) {
            brick.handle_request(from, request, HlcTimestamp::ZERO, self.now, &versions).unwrap();
        }
    }

    /// The peer server asks the first node.
    fn joint(&mut self, request: Request<u64>) -> Vec<Answer> {
        self.ask(PEER, A, request);
        self.carry_out();
        std::mem::take(&mut self.answers)
    }

    /// Makes all records of a node durable.
    fn force(&mut self, node: NodeId) -> Vec<Answer> {
        let position = self.appended.get(&node).map_or(0, Vec::len) as u64;
        self.act(node, |brick, now| brick.handle_forced(position, now, &BTreeMap::<PageId, Version>::new()));
        std::mem::take(&mut self.answers)
    }

    /// The last record of a transaction at a node.
    fn last_record(&self, node: NodeId) -> &Record<u64> {
        self.appended[&node].last().unwrap()
    }
}

fn commit_timestamp(answers: &[Answer]) -> HlcTimestamp {
    match answers {
        [Answer::Concluded { reply: CommitReply::Committed(receipt), .. }] => receipt.timestamp,
        other => panic!("one answer is expected, with the commit: {other:?}"),
    }
}

#[test]
fn transaction_of_one_brick_is_concluded_there_when_all_nodes_have_prepared_it() {
    let mut brick = TwoNodes::new();
    let request = prepare(txn(900), &[A, B], &[(A, part(A)), (B, part(B))]);
    assert_eq!(brick.joint(request.clone()), []);
    assert_eq!(brick.force(A), [], "node B has not prepared it durably");
    let at = commit_timestamp(&brick.force(B));
    for node in [A, B] {
        assert!(
            matches!(brick.last_record(node), Record::Decided { outcome: Outcome::Committed(when), .. } if *when == at)
        );
    }
    assert_eq!(commit_timestamp(&brick.joint(request.clone())), at, "a repeated request gets the same answer");
    brick.force(A);
    assert!(!brick.nodes[&A].finishing.is_empty(), "node B has not acknowledged the outcome");
    assert!(matches!(brick.last_record(A), Record::Decided { .. }), "A keeps it until B has");
    brick.force(B);
    assert!(brick.nodes[&A].finishing.is_empty());
    for node in [A, B] {
        assert!(matches!(brick.last_record(node), Record::Ended { acknowledged: true, .. }));
    }
    assert_eq!(commit_timestamp(&brick.joint(request)), at, "also when the transaction has ended");
}

#[test]
fn answer_of_a_brick_has_the_offsets_of_the_appends_at_all_its_nodes() {
    let blob = |node| *part(node).writes.first_key_value().unwrap().0;
    let appending = |(node, offset): (NodeId, u64)| {
        let writes = [(blob(node), ObjectState::Changed(1))].into();
        (node, Part { writes, offsets: [(blob(node), offset)].into(), ..Part::default() })
    };
    let mut brick = TwoNodes::new();
    let request = prepare(txn(900), &[A, B], &[(A, 10), (B, 20)].map(appending));
    // A repeated request finds the blobs longer.
    let again = prepare(txn(900), &[A, B], &[(A, 60), (B, 70)].map(appending));
    let has_offsets = |answers: &[Answer]| {
        let [Answer::Concluded { reply: CommitReply::Committed(receipt), .. }] = answers else { return false };
        receipt.offsets == [(blob(A), 10), (blob(B), 20)].into()
    };
    brick.joint(request);
    brick.force(A);
    assert!(has_offsets(&brick.force(B)));
    assert!(has_offsets(&brick.joint(again.clone())));
    brick.force(A);
    brick.force(B);
    assert!(brick.nodes[&A].finishing.is_empty());
    assert!(has_offsets(&brick.joint(again)), "also when the transaction has ended");
}

#[test]
fn refusal_of_one_node_ends_the_transaction_at_all() {
    let mut brick = TwoNodes::new();
    let request = prepare(txn(900), &[A, B], &[(A, part(A)), (B, conflicting_part(B))]);
    assert_eq!(brick.joint(request.clone()), []);
    let refused = brick.force(B);
    let is_conflict = |answers: &[Answer]| {
        let [Answer::Concluded { reply, .. }] = answers else { return false };
        matches!(reply, CommitReply::Refused(Refusal::Conflict(conflict)) if conflict.oid.page().node == B)
    };
    assert!(is_conflict(&refused), "{refused:?}");
    assert!(matches!(brick.last_record(A), Record::Decided { outcome: Outcome::Aborted, .. }));
    assert!(matches!(brick.last_record(B), Record::Marked { .. }));
    assert!(is_conflict(&brick.joint(request)), "a repeated request gets the same answer");
}

#[test]
fn votes_are_answered_together_when_another_brick_takes_part() {
    let mut brick = TwoNodes::new();
    let participants = [A, B, C];
    assert_eq!(brick.joint(prepare(txn(900), &participants, &[(A, part(A)), (B, part(B))])), []);
    assert_eq!(brick.force(B), []);
    let answers = brick.force(A);
    let [Answer::Joint { answers, .. }] = &answers[..] else { panic!("one answer is expected: {answers:?}") };
    let all = participants.to_vec();
    for answer in [&answers[&A], &answers[&B]] {
        assert!(matches!(answer, Answer::Prepared { participants, .. } if *participants == all), "{answer:?}");
    }
    let at = HlcTimestamp::at(1_001);
    let decide = Request::Decide { txn: txn(900), outcome: Outcome::Committed(at) };
    let decide = Request::Joint { txn: txn(900), requests: [(A, decide.clone()), (B, decide)].into() };
    assert_eq!(brick.joint(decide), []);
    brick.force(A);
    let answers = brick.force(B);
    assert!(matches!(&answers[..], [Answer::Joint { answers, .. }] if answers.len() == 2), "{answers:?}");
}

#[test]
fn joint_request_that_is_not_answered_is_left_to_its_requester() {
    let mut brick = TwoNodes::new();
    // Node C is not at this brick, and does not answer.
    brick.joint(prepare(txn(900), &[A, C], &[(A, part(A)), (C, part(C))]));
    brick.joint(prepare(txn(901), &[A, B, C], &[(A, Part::default()), (C, part(C))]));
    brick.force(A);
    let asked = |brick: &TwoNodes| [txn(900), txn(901)].map(|txn| brick.nodes[&A].joint_requester(txn).is_some());
    assert_eq!(asked(&brick), [true; 2]);
    brick.now += FINISH_MS - 1;
    brick.act(A, |brick, now| brick.poll(now));
    assert_eq!(asked(&brick), [true; 2]);
    brick.now += 1_000;
    brick.act(A, |brick, now| brick.poll(now));
    assert_eq!(asked(&brick), [false; 2], "nobody waits for them any more");
    assert!(brick.nodes[&A].prepared_txns().eq([txn(900), txn(901)]), "what is prepared stays so (C4)");
}

#[test]
fn questions_about_a_transaction_without_coordinator_are_repeated_before_the_next_scan() {
    let mut brick = TwoNodes::new();
    brick.joint(prepare(txn(900), &[A, C], &[(A, part(A)), (C, part(C))]));
    brick.force(A);
    // It is noticed, and later finished.
    for _ in 0..2 {
        brick.now += 10 * FINISH_MS;
        brick.act(A, |brick, now| brick.poll(now));
    }
    let deadline = brick.nodes[&A].deadline();
    assert!(deadline < brick.now + ORPHAN_SCAN_MS, "{deadline} at {}", brick.now);
}

#[test]
fn clock_learns_from_votes() {
    let mut brick = TwoNodes::new();
    let late = HlcTimestamp::at(1_040);
    brick.ask(PEER, B, Request::Check { txn: txn(950), reads: ReadList::default(), at: late });
    brick.joint(prepare(txn(900), &[A, B], &[(A, part(A)), (B, part(B))]));
    brick.force(A);
    let at = commit_timestamp(&brick.force(B));
    assert!(at > late && brick.nodes[&A].clock() >= at, "L1, V4: {at:?}");
}

#[test]
fn planted_bugs_are_noticed() {
    let early = || {
        let mut brick = TwoNodes::new();
        brick.joint(prepare(txn(900), &[A, B], &[(A, part(A)), (B, part(B))]));
        !brick.force(A).is_empty()
    };
    let small = || {
        let mut brick = TwoNodes::new();
        brick.ask(PEER, B, Request::Check { txn: txn(950), reads: ReadList::default(), at: HlcTimestamp::at(1_040) });
        brick.joint(prepare(txn(900), &[A, B], &[(A, part(A)), (B, part(B))]));
        brick.force(A);
        commit_timestamp(&brick.force(B)) <= HlcTimestamp::at(1_040)
    };
    for (bug, shows) in [(Bug::ConcludedAtFirstVote, &early as &dyn Fn() -> bool), (Bug::OwnProposalCounts, &small)] {
        assert!(!shows(), "without {bug:?}");
        let _planted = plant(bug);
        assert!(shows(), "{bug:?}");
    }
}
