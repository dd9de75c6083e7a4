//! What a simulated brick reports as durable, if the store has no room for the rows of one of its logical nodes; what it tells about parts of
//! joint requests that are not taken in; and what becomes of requests that it handles together.

use std::sync::Arc;

use meta::catalog::{self, Epoch};
use model::planted_bug::{assert_noticed, is_noticed, plant};
use model::{ClassId, Entry, EntryKey, Oid};
use protocol::commit::coordinator::CommitReply;
use protocol::commit::{Answer, Outcome, Part};
use protocol::entries::{unbound_key, unique_values};
use protocol::ident::ClientId;
use protocol::page_cache::ObjectState;

use super::*;
use crate::brick::entry_rows::totals_key;
use crate::brick::plant::Bug;
use protocol::validate::WindowLimits;

const FIRST: NodeId = NodeId(7);
const SECOND: NodeId = NodeId(8);
const BRICK: BrickId = BrickId(1);
/// A content for which the log needs another segment.
const LARGE: usize = SEGMENT_BYTES as usize;

/// A brick that serves two logical nodes, and what it has said so far.
struct ReportTest {
    brick: SimulatedBrick<u8>,
    now: Ms,
    transactions: u64,
    /// The transactions whose changes were reported as durable, and those whose clients were told that they are committed, in this order.
    reported: Vec<u64>,
    answered: Vec<u64>,
}

impl ReportTest {
    const SETTINGS: BrickSettings = BrickSettings {
        brick: BRICK,
        first_job: 1 << 32,
        skew_ms: 5_000,
        windows: WindowLimits { page: 64, retained: 0 },
        applies_at_once: false,
        cold_reads: None,
        commits_in_one_phase: true,
    };

    fn new() -> Self {
        Self::around(Self::open(SimulatedDisk::default()))
    }

    /// A brick whose store applies rows at once.
    fn at_once() -> Self {
        let settings = BrickSettings { applies_at_once: true, ..Self::SETTINGS };
        Self::around(SimulatedBrick::open(SimulatedDisk::default(), settings).unwrap())
    }

    fn around(brick: SimulatedBrick<u8>) -> Self {
        let mut test = Self { brick, now: 1_000_000, transactions: 0, reported: Vec::new(), answered: Vec::new() };
        test.serve(1);
        test
    }

    fn open(disk: SimulatedDisk) -> SimulatedBrick<u8> {
        SimulatedBrick::open(disk, Self::SETTINGS).unwrap()
    }

    /// The first node is served under this epoch.
    fn serve(&mut self, epoch: u64) {
        let mut map = PlacementSnapshot::default();
        for (node, epoch) in [(FIRST, epoch), (SECOND, 1)] {
            let (brick, epoch) = (catalog::BrickId(BRICK.0), Epoch(epoch));
            map.add(node, &catalog::NodePlacement { brick, epoch, moves: 0, moving: None });
        }
        self.brick.follow_map(Arc::new(map), self.now);
        self.settle();
        assert_eq!(self.brick.served_epoch(FIRST), Some(epoch));
    }

    fn ask(&mut self, from: u8, messages: impl IntoIterator<Item = Message>) {
        self.brick.handle_messages(&from, messages.into_iter(), self.now).unwrap();
    }

    /// Commits an object of this size. Returns the number of the transaction.
    fn commit(&mut self, node: NodeId, len: usize) -> u64 {
        let message = self.commit_request(node, len);
        self.ask(0, [message]);
        self.transactions
    }

    /// A request to commit a new object of this size, by a transaction with the next number.
    fn commit_request(&mut self, node: NodeId, len: usize) -> Message {
        self.transactions += 1;
        let epoch = self.brick.served_epoch(node).unwrap();
        let txn = TxnId { start: HlcTimestamp::at(self.now), client: ClientId(self.transactions) };
        let slot = self.transactions as u16;
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 1 }, slot);
        let writes = [(oid, ObjectState::Value(Object::blob(vec![1; len].into())))].into();
        let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
        Message::Ask { node, epoch, seen: HlcTimestamp::ZERO, request }
    }

    /// Commits an object of the first node for which the store has no room: its rows wait.
    fn commit_without_room(&mut self) -> u64 {
        self.brick.set_room(Some(0));
        let refused = self.commit(FIRST, LARGE);
        self.settle();
        assert!(!self.reported.contains(&refused) && !self.answered.contains(&refused));
        refused
    }

    /// Forces everything.
    fn settle(&mut self) {
        self.take_outputs();
        while self.brick.unforced_count() > 0 {
            self.brick.force(usize::MAX).unwrap();
            self.brick.handle_written(self.now);
            self.take_outputs();
        }
    }

    fn take_outputs(&mut self) {
        while let Some(output) = self.brick.next_output() {
            match output {
                BrickOutput::Stored { change, .. } => self.reported.push(change.txn.client.0),
                BrickOutput::Send(_, Message::Answer { answer: Answer::Ended { txn, outcome, .. }, .. }) => {
                    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
                    assert!(self.reported.contains(&txn.client.0), "L1: {txn:?} is shown, and was not reported");
                    self.answered.push(txn.client.0);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn change_is_reported_while_rows_of_another_node_wait_for_room() {
    let mut test = ReportTest::new();
    let refused = test.commit_without_room();
    let durable = test.commit(SECOND, 10);
    test.settle();
    assert_eq!((&test.reported[..], &test.answered[..]), (&[durable][..], &[durable][..]));
    // There is room again.
    test.brick.set_room(None);
    test.now += 1_000;
    test.brick.poll(test.now);
    test.settle();
    assert_eq!((&test.reported[..], &test.answered[..]), (&[durable, refused][..], &[durable, refused][..]));
}

#[test]
fn change_that_is_found_after_a_crash_is_reported_though_rows_of_another_node_waited_for_room() {
    let mut test = ReportTest::new();
    test.commit_without_room();
    let durable = test.commit(SECOND, 10);
    test.brick = ReportTest::open(test.brick.crash(CrashImage { kept: 1, is_torn: false, seed: 1 }));
    test.take_outputs();
    assert_eq!(test.reported, [durable]);
}

#[test]
fn change_whose_rows_waited_for_room_when_its_node_was_closed_is_never_reported() {
    let mut test = ReportTest::new();
    test.commit_without_room();
    test.serve(2);
    // The next change of the page has a higher version.
    let next = test.commit(FIRST, 10);
    test.settle();
    assert_eq!((&test.reported[..], &test.answered[..]), (&[next][..], &[next][..]));
}

/// Whether the sender of a joint request hears that the second node, whose rows wait for room, does not take its part in.
fn is_deferral_told() -> bool {
    let mut test = ReportTest::new();
    test.brick.set_room(Some(0));
    test.commit(SECOND, LARGE);
    test.settle();
    let txn = TxnId { start: HlcTimestamp::at(test.now), client: ClientId(9) };
    let small = || Object::blob(vec![1].into());
    test.ask(7, [joint_request(txn, [small(), small()])]);
    std::iter::from_fn(|| test.brick.next_output()).any(|output| is_deferral(&output, txn))
}

/// A request to prepare a transaction that writes an object at each of the logical nodes.
fn joint_request(txn: TxnId, [first, second]: [Object; 2]) -> Message {
    let prepare = |(node, written): (NodeId, Object)| {
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 2 }, 0);
        let part = Part { writes: [(oid, ObjectState::Value(written))].into(), ..Part::default() };
        (node, Request::Prepare { txn, participants: vec![FIRST, SECOND], part })
    };
    let requests = [(FIRST, first), (SECOND, second)].map(prepare).into();
    Message::Ask { node: FIRST, epoch: 1, seen: HlcTimestamp::ZERO, request: Request::Joint { txn, requests } }
}

/// Whether this says why the second logical node does not take its part of a transaction in.
fn is_deferral(output: &BrickOutput<u8>, of: TxnId) -> bool {
    matches!(output, BrickOutput::Send(7, Message::Deferred { node: SECOND, txn, .. }) if *txn == of)
}

#[test]
fn sender_of_a_joint_request_hears_why_a_part_is_not_taken_in() {
    assert!(is_deferral_told());
    let _planted = plant(Bug::JointDeferralDropped);
    assert!(!is_deferral_told(), "the bug is noticed");
}

impl ReportTest {
    /// Prepares objects of this size at both nodes by a joint request, which commits them in one phase.
    fn commit_jointly(&mut self, len: usize) -> TxnId {
        self.transactions += 1;
        let txn = TxnId { start: HlcTimestamp::at(self.now), client: ClientId(self.transactions) };
        let object = || Object::blob(vec![1; len].into());
        self.ask(7, [joint_request(txn, [object(), object()])]);
        txn
    }

    /// Takes all outputs. Returns how a joint request was answered.
    fn conclusion(&mut self, of: TxnId) -> Option<CommitReply> {
        let mut conclusion = None;
        while let Some(output) = self.brick.next_output() {
            match output {
                BrickOutput::Stored { change, .. } => self.reported.push(change.txn.client.0),
                BrickOutput::Send(7, Message::Answer { answer: Answer::Concluded { txn, reply }, .. }) if txn == of => {
                    conclusion = Some(reply);
                }
                _ => {}
            }
        }
        conclusion
    }

    /// How many of both logical nodes have the object of a joint request, as the store shows it.
    fn stored_parts(&self) -> usize {
        let page = |node| self.brick.page(PageId { space: SpaceId(1), node, number: 2 }).unwrap();
        [FIRST, SECOND].into_iter().filter(|node| !page(*node).objects.is_empty()).count()
    }
}

#[test]
fn joint_request_commits_in_one_phase() {
    for new in [ReportTest::new, ReportTest::at_once] {
        let mut test = new();
        let txn = test.commit_jointly(10);
        let is_at_once = test.brick.unforced_count() == 0;
        if !is_at_once {
            assert_eq!((test.brick.unforced_count(), test.conclusion(txn)), (1, None), "one change of the store");
            test.brick.force(1).unwrap();
            test.brick.handle_written(test.now);
        }
        assert!(matches!(test.conclusion(txn), Some(CommitReply::Committed(_))));
        assert_eq!((test.reported.len(), test.stored_parts()), (2, 2));
        assert_eq!((test.brick.unforced_count(), test.brick.any_prepared()), (0, None), "nothing is left to be done");
        test.brick.check_invariants().unwrap();
    }
}

#[test]
fn one_phase_commit_survives_a_crash_as_a_whole() {
    assert_noticed(&[Bug::OnePhaseRowsApart], || {
        for kept in [0, 1] {
            let mut test = ReportTest::new();
            test.commit_jointly(10);
            test.brick = ReportTest::open(test.brick.crash(CrashImage { kept, is_torn: false, seed: 1 }));
            assert_eq!(test.stored_parts(), 2 * kept, "C1: it is committed at all nodes or at none");
        }
    });
}

#[test]
fn one_phase_commit_for_which_there_is_no_room_changes_nothing() {
    assert_noticed(&[Bug::RefusedOnePhaseRetried, Bug::OnePhaseRowsApart], || {
        let mut test = ReportTest::new();
        test.brick.set_room(Some(0));
        let refused = test.commit_jointly(LARGE);
        test.settle();
        assert_eq!((test.conclusion(refused), test.stored_parts()), (None, 0));
        test.brick.set_room(None);
        test.now += 1_000;
        test.brick.poll(test.now);
        test.take_outputs();
        test.brick.force(1).unwrap();
        test.brick.handle_written(test.now);
        assert_eq!(test.stored_parts(), 0, "no part of it is written alone");
        assert_eq!([FIRST, SECOND].map(|node| test.brick.served_epoch(node)), [Some(1); 2], "both are served again");
        test.brick.check_invariants().unwrap();
        // The sender repeats the request. For some time, both nodes prepare.
        test.ask(7, [joint_request(refused, [10, 10].map(|len| Object::blob(vec![1; len].into())))]);
        assert_eq!(test.brick.unforced_count(), 2);
        test.brick.force(2).unwrap();
        test.brick.handle_written(test.now);
        assert!(matches!(test.conclusion(refused), Some(CommitReply::Committed(_))));
        test.settle();
        assert_eq!(test.stored_parts(), 2);
        test.now += routing::TWO_PHASES_MS;
        test.commit_jointly(10);
        assert_eq!(test.brick.unforced_count(), 1, "one phase again");
    });
}

#[test]
fn nodes_of_a_one_phase_commit_that_is_refused_at_once_are_opened_again() {
    let mut test = ReportTest::at_once();
    test.brick.set_room(Some(0));
    let refused = test.commit_jointly(LARGE);
    assert_eq!((test.conclusion(refused), test.stored_parts()), (None, 0));
    test.brick.check_invariants().unwrap();
    assert_eq!([FIRST, SECOND].map(|node| test.brick.served_epoch(node)), [Some(1); 2], "both are served again");
}

#[test]
fn no_node_commits_in_one_phase_if_one_of_them_cannot_make_its_rows() {
    let check = || {
        for new in [ReportTest::new, ReportTest::at_once] {
            let mut test = new();
            let collection = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: SECOND, number: 3 }, 0);
            let mut damage = RowChanges::new();
            damage.put(&totals_key(collection), Bytes::from_static(b"damaged"));
            test.brick.effects.machine.store().commit_rows(damage).unwrap();
            let txn = TxnId { start: HlcTimestamp::at(test.now), client: ClientId(9) };
            let written = |node| Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 2 }, 0);
            let object = || ObjectState::Value(Object::blob(vec![1].into()));
            let entry = Entry { collection, key: EntryKey::new(b"Ann".to_vec()).unwrap() };
            let first = Part { writes: [(written(FIRST), object())].into(), ..Part::default() };
            let second = Part { entries: [(entry, Some(written(FIRST)))].into(), ..Part::default() };
            let prepare = |(node, part)| (node, Request::Prepare { txn, participants: vec![FIRST, SECOND], part });
            let requests = [(FIRST, first), (SECOND, second)].map(prepare).into();
            let request = Request::Joint { txn, requests };
            test.ask(7, [Message::Ask { node: FIRST, epoch: 1, seen: HlcTimestamp::ZERO, request }]);
            test.brick.force(1).unwrap();
            test.brick.handle_written(test.now);
            assert!(test.brick.served_epoch(SECOND).is_some(), "the part was taken in");
            assert_eq!((test.conclusion(txn), test.stored_parts()), (None, 0), "C1: no part is committed alone");
        }
    };
    {
        // The damage is noticed only when the part was accepted.
        let _late = plant(Bug::GuardsReadLate);
        check();
    }
    assert!(is_noticed(Bug::OnePhaseHalfCommitted, check));
}

/// Sends a part to be committed, as a client of its own. Returns the client.
fn send_part(test: &mut ReportTest, part: Part<Object>) -> u64 {
    test.transactions += 1;
    let number = test.transactions;
    let txn = TxnId { start: HlcTimestamp::at(test.now), client: ClientId(number) };
    let request = Request::Commit { txn, part };
    test.ask(0, [Message::Ask { node: FIRST, epoch: 1, seen: HlcTimestamp::ZERO, request }]);
    number
}

/// A part that binds a key that it takes for unbound.
fn binds_unbound(key: &[u8], slot: u16) -> Part<Object> {
    let target = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: FIRST, number: 1 }, slot);
    let entry = Entry { collection: unique_values(SpaceId(1), FIRST, 7), key: EntryKey::new(key.to_vec()).unwrap() };
    let reads = [unbound_key(entry.collection, &entry.key)].into();
    Part { reads, entries: [(entry, Some(target))].into(), ..Part::default() }
}

#[test]
fn key_is_bound_by_the_first_transaction_that_takes_it_for_unbound() {
    assert_noticed(&[Bug::BoundKeyTakenForUnbound], || {
        for new in [ReportTest::new, ReportTest::at_once] {
            for is_durable in [true, false] {
                let mut test = new();
                let [ann, bob, again] = [(&b"Ann"[..], 1), (b"Bob", 2), (b"Ann", 3)].map(|(key, slot)| {
                    let client = send_part(&mut test, binds_unbound(key, slot));
                    if is_durable {
                        test.settle();
                    }
                    client
                });
                test.settle();
                assert!(test.answered.contains(&ann) && test.answered.contains(&bob));
                assert!(!test.answered.contains(&again), "another transaction has bound it");
            }
        }
    });
}

#[test]
fn transaction_that_replaces_an_object_waits_for_the_one_before_it() {
    use protocol::plant::Bug;
    assert_noticed(&[Bug::CommittedRefuses, Bug::PostponedForgotten], || {
        let mut test = ReportTest::new();
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: FIRST, number: 2 }, 0);
        let clients: Vec<u64> = (0..2)
            .map(|byte| {
                let object = ObjectState::Value(Object::blob(vec![byte].into()));
                send_part(&mut test, Part { writes: [(oid, object)].into(), ..Part::default() })
            })
            .collect();
        test.settle();
        assert!(clients.iter().all(|client| test.answered.contains(client)), "{clients:?}, {:?}", test.answered);
    });
}

/// The second node refuses an object of another class than its identifier names. Its store applies rows at once, so its vote comes without a force.
#[test]
fn reason_of_a_refusal_precedes_the_answer_to_a_joint_request() {
    assert_noticed(&[Bug::DeferralQueued, Bug::JointDeferralDropped], || {
        let mut test = ReportTest::at_once();
        let txn = TxnId { start: HlcTimestamp::at(test.now), client: ClientId(9) };
        let of_another_class = Object::record(ClassId(9), Bytes::new());
        test.ask(7, [joint_request(txn, [Object::blob(vec![1].into()), of_another_class])]);
        let sent: Vec<_> = std::iter::from_fn(|| test.brick.next_output()).collect();
        let concluded = |output: &BrickOutput<u8>| {
            matches!(output, BrickOutput::Send(7, Message::Answer { answer: Answer::Concluded { .. }, .. }))
        };
        let told = sent.iter().position(|output| is_deferral(output, txn)).expect("the sender hears the reason");
        let answered = sent.iter().position(concluded).expect("the request is answered");
        assert!(told < answered, "{sent:?}");
    });
}

#[test]
fn requests_that_arrive_together_become_durable_in_their_order() {
    assert_noticed(&[Bug::JointRowsReversed], || {
        let mut test = ReportTest::new();
        // Too large to be one change of the store.
        let together = [70_000, 80_000, 90_000].map(|len| test.commit_request(FIRST, len));
        test.ask(0, together);
        test.brick.force(1).unwrap();
        test.take_outputs();
        assert_eq!(test.reported, [1]);
        test.settle();
        assert_eq!((&test.reported[..], &test.answered[..]), (&[1, 2, 3][..], &[1, 2, 3][..]));
    });
}

#[test]
fn small_requests_that_arrive_together_are_one_change_of_the_store() {
    let mut test = ReportTest::new();
    let together = [FIRST, SECOND, FIRST, FIRST].map(|node| test.commit_request(node, 10));
    test.ask(0, together);
    assert_eq!(test.brick.unforced_count(), 2, "one for each logical node");
    test.settle();
    assert_eq!((&test.reported[..], &test.answered[..]), (&[1, 3, 4, 2][..], &[1, 3, 4, 2][..]));
}

#[test]
fn requests_that_arrive_together_are_handled_by_their_logical_nodes() {
    for new in [ReportTest::new, ReportTest::at_once] {
        assert_noticed(&[Bug::RunTakesOtherNode], || {
            let mut test = new();
            let together = [FIRST, FIRST, SECOND, FIRST].map(|node| test.commit_request(node, 10));
            test.ask(0, together);
            test.settle();
            assert_eq!(test.answered, [1, 2, 4, 3]);
        });
    }
}
