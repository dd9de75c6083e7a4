//! What a simulated brick reports as durable, if the store has no room for the rows of one of its logical nodes; and what it tells about
//! parts of joint requests that are not taken in.

use std::sync::Arc;

use meta::catalog::{self, Epoch};
use model::planted_bug::plant;
use model::{ClassId, Oid};
use protocol::commit::{Outcome, Part};
use protocol::ident::ClientId;
use protocol::page_cache::ObjectState;

use super::*;
use crate::brick::plant::Bug;

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
    fn new() -> Self {
        let brick = Self::open(SimulatedDisk::default());
        let mut test = Self { brick, now: 1_000_000, transactions: 0, reported: Vec::new(), answered: Vec::new() };
        test.serve(1);
        test
    }

    fn open(disk: SimulatedDisk) -> SimulatedBrick<u8> {
        let settings = BrickSettings { brick: BRICK, first_job: 1 << 32, skew_ms: 5_000, window: 64 };
        SimulatedBrick::open(disk, settings).unwrap()
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

    /// Commits an object of this size. Returns the number of the transaction.
    fn commit(&mut self, node: NodeId, len: usize) -> u64 {
        self.transactions += 1;
        let epoch = self.brick.served_epoch(node).unwrap();
        let txn = TxnId { start: HlcTimestamp::at(self.now), client: ClientId(self.transactions) };
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 1 }, 0);
        let writes = [(oid, ObjectState::Value(Object::blob(vec![1; len].into())))].into();
        let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
        self.brick.handle_request((node, epoch), 0, request, HlcTimestamp::ZERO, self.now).unwrap();
        self.transactions
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
    let prepare = |node: NodeId| {
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 2 }, 0);
        let writes = [(oid, ObjectState::Value(Object::blob(vec![1].into())))].into();
        let part = Part { writes, ..Part::default() };
        (node, Request::Prepare { txn, participants: vec![FIRST, SECOND], part })
    };
    let request = Request::Joint { txn, requests: [FIRST, SECOND].map(prepare).into() };
    test.brick.handle_request((FIRST, 1), 7, request, HlcTimestamp::ZERO, test.now).unwrap();
    let outputs: Vec<_> = std::iter::from_fn(|| test.brick.next_output()).collect();
    let is_told = |output: &BrickOutput<u8>| matches!(output, BrickOutput::Send(7, Message::Deferred { node: SECOND, txn: of, .. }) if *of == txn);
    outputs.iter().any(is_told)
}

#[test]
fn sender_of_a_joint_request_hears_why_a_part_is_not_taken_in() {
    assert!(is_deferral_told());
    let _planted = plant(Bug::JointDeferralDropped);
    assert!(!is_deferral_told(), "the bug is noticed");
}
