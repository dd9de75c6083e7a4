//! Two bricks on simulated stores and the placement of one logical node, which moves between them. Random faults are the simulator's;
//! here each rule of a move has its scenario.

mod removals;
mod retries;
mod sealing;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use meta::catalog::{self, Epoch};
use model::planted_bug::assert_noticed;
use model::{ClassId, Object, Oid, PageId, SpaceId};
use protocol::commit::{Answer, Part, Request};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use store::{Options, Store};
use wire::cluster::CopiedRows;

use super::*;
use crate::brick::simulated::{BrickOutput, BrickSettings, CrashImage, RemoteWork, SimulatedBrick, SimulatedDisk};
use crate::node_placement::BrickId;
use protocol::validate::WindowLimits;

const NODE: NodeId = NodeId(7);
const OLD: BrickId = BrickId(1);
const NEW: BrickId = BrickId(2);
/// So many objects that their changes do not fit an answer, and are remembered.
const MANY: u64 = 24;

/// The bricks by their numbers, and the placement of the node.
struct MoveTest {
    bricks: BTreeMap<BrickId, SimulatedBrick<u8>>,
    placed: catalog::NodePlacement,
    epoch: u64,
    now: Ms,
    /// Work of bricks that was not done yet.
    work: VecDeque<(BrickId, JobId, RemoteWork)>,
    /// The outcomes that clients were told.
    committed: u64,
    transactions: u64,
    starts: u64,
}

impl MoveTest {
    fn new() -> Self {
        let placed = catalog::NodePlacement { brick: catalog::BrickId(OLD.0), epoch: Epoch(4), moves: 0, moving: None };
        let mut test = Self {
            bricks: BTreeMap::new(),
            placed,
            epoch: 4,
            now: 1_000_000,
            work: VecDeque::new(),
            committed: 0,
            transactions: 0,
            starts: 0,
        };
        for brick in [OLD, NEW] {
            test.open(brick, SimulatedDisk::default());
            test.follow(brick, &test.map());
        }
        test
    }

    fn open(&mut self, brick: BrickId, disk: SimulatedDisk) {
        self.starts += 1;
        let settings = BrickSettings {
            brick,
            first_job: self.starts << 32,
            skew_ms: 5_000,
            windows: WindowLimits { page: 64, retained: 0 },
            applies_at_once: false,
            cold_reads: None,
            commits_in_one_phase: true,
        };
        self.bricks.insert(brick, SimulatedBrick::open(disk, settings).unwrap());
    }

    fn restart(&mut self, brick: BrickId) {
        let stopped = self.bricks.remove(&brick).unwrap();
        let disk = stopped.crash(CrashImage { kept: 0, is_torn: false, seed: 1 });
        self.work.retain(|(of, ..)| *of != brick);
        self.open(brick, disk);
    }

    fn map(&self) -> PlacementSnapshot {
        Self::map_of(&self.placed)
    }

    fn map_of(placed: &catalog::NodePlacement) -> PlacementSnapshot {
        let mut map = PlacementSnapshot::default();
        map.add(NODE, placed);
        map
    }

    /// A map by which a brick serves the node under an epoch.
    fn served_map(brick: BrickId, epoch: u64) -> PlacementSnapshot {
        let brick = catalog::BrickId(brick.0);
        Self::map_of(&catalog::NodePlacement { brick, epoch: Epoch(epoch), moves: 0, moving: None })
    }

    fn brick(&mut self, brick: BrickId) -> &mut SimulatedBrick<u8> {
        self.bricks.get_mut(&brick).unwrap()
    }

    fn follow(&mut self, brick: BrickId, map: &PlacementSnapshot) {
        let (now, map) = (self.now, Arc::new(map.clone()));
        self.brick(brick).follow_map(map, now);
        self.settle(brick);
    }

    /// Cancels the move in the catalogue.
    fn cancel_move(&mut self) {
        self.epoch += 1;
        self.placed.cancel_move(Epoch(self.epoch)).unwrap();
    }

    /// Works until the new brick asks to end the move, because its copy is complete. Returns that edit, which is not made.
    fn copy_all(&mut self) -> PlacementEdit {
        loop {
            self.work();
            self.pass(5);
            if let Some((_, _, RemoteWork::Edit(edit @ PlacementEdit::Finish { .. }))) = self.work.front() {
                return *edit;
            }
        }
    }

    /// Forces everything at a brick, and collects its outputs.
    fn settle(&mut self, brick: BrickId) {
        let now = self.now;
        loop {
            let one = self.bricks.get_mut(&brick).unwrap();
            while let Some(output) = one.next_output() {
                match output {
                    BrickOutput::Work { job, work, .. } => self.work.push_back((brick, job, work)),
                    BrickOutput::Send(_, Message::Answer { answer: Answer::Ended { .. }, .. }) => self.committed += 1,
                    _ => {}
                }
            }
            if one.unforced_count() == 0 {
                return;
            }
            one.force(usize::MAX).unwrap();
            one.handle_written(now);
        }
    }

    fn is_served(&self, brick: BrickId) -> bool {
        self.bricks[&brick].served_epoch(NODE).is_some()
    }

    fn object(number: u64) -> Oid {
        let page = PageId { space: SpaceId(1), node: NODE, number: 1 + number / 8 };
        Oid::new(ClassId::NONE, page, (number % 8) as u16)
    }

    /// Commits an object at a brick, which the client believes to serve the node under this epoch.
    fn commit_under(&mut self, brick: BrickId, epoch: u64, number: u64, force: bool) {
        self.transactions += 1;
        let (now, transaction) = (self.now, self.transactions);
        let txn = TxnId { start: HlcTimestamp::at(now), client: ClientId(transaction) };
        let content = Object::blob(transaction.to_be_bytes().to_vec().into());
        let writes = [(Self::object(number), ObjectState::Value(content))].into();
        let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
        let message = Message::Ask { node: NODE, epoch, seen: HlcTimestamp::ZERO, request };
        self.brick(brick).handle_messages(&0, std::iter::once(message), now).unwrap();
        if force {
            self.settle(brick);
        }
    }

    fn commit(&mut self, numbers: std::ops::Range<u64>) {
        let (brick, epoch) = (BrickId(self.placed.brick.0), self.placed.epoch.0);
        numbers.for_each(|number| self.commit_under(brick, epoch, number, true));
    }

    /// The objects that a brick has.
    fn objects(&self, brick: BrickId) -> BTreeMap<u64, Object> {
        let mut objects = BTreeMap::new();
        for page in 1..20 {
            let id = PageId { space: SpaceId(1), node: NODE, number: page };
            for (slot, object) in self.bricks[&brick].page(id).unwrap().objects {
                objects.insert((page - 1) * 8 + u64::from(slot), object);
            }
        }
        objects
    }

    fn begin_move(&mut self, to: BrickId) {
        self.placed.begin_move(catalog::BrickId(to.0)).unwrap();
        self.tell();
    }

    fn tell(&mut self) {
        let map = self.map();
        [OLD, NEW].into_iter().for_each(|brick| self.follow(brick, &map));
    }

    fn edit(&mut self, edit: PlacementEdit) -> EditResult {
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        let edited = match edit {
            PlacementEdit::Seal { to } => self.placed.seal(catalog::BrickId(to.0), epoch),
            PlacementEdit::Unseal { epoch: sealed } => self.placed.unseal(Epoch(sealed), epoch),
            PlacementEdit::Finish { epoch: sealed } => self.placed.finish_move(Epoch(sealed), epoch),
        };
        edited.map_or(EditResult::WrongState, |()| EditResult::Done)
    }

    /// Does the oldest work of a brick. Returns false if there is none.
    fn work(&mut self) -> bool {
        let Some((brick, job, work)) = self.work.pop_front() else { return false };
        self.now += 1;
        let now = self.now;
        match work {
            RemoteWork::RefreshMap => {
                self.follow(brick, &self.map());
                self.brick(brick).handle_refreshed(job, now);
            }
            RemoteWork::Edit(edit) => {
                let edited = self.edit(edit);
                self.tell();
                self.brick(brick).handle_edited(job, edited, now);
            }
            RemoteWork::Copy { from, asked } => {
                let copied = self.brick(from).copy_rows(&asked, now);
                self.settle(from);
                self.brick(brick).handle_copied(job, copied, now);
            }
        }
        self.settle(brick);
        true
    }

    fn pass(&mut self, ms: Ms) {
        self.now += ms;
        let now = self.now;
        for brick in [OLD, NEW] {
            self.brick(brick).poll(now);
            self.settle(brick);
        }
    }

    /// Does all work until there is none for a while, in which rows are removed.
    fn idle(&mut self) {
        let mut rounds = 0;
        while rounds < 60 {
            rounds = if self.work() { 0 } else { rounds + 1 };
            self.pass(110);
        }
    }

    /// The same with a move, which ends.
    fn finish(&mut self) {
        self.idle();
        assert_eq!(self.placed.moving, None, "the move ends");
    }

    fn progress(&self, brick: BrickId) -> MoveProgress {
        self.bricks[&brick].manager().progress(NODE).cloned().unwrap_or_default()
    }

    fn problem(&self, brick: BrickId) -> Option<String> {
        self.bricks[&brick].manager().problem().map(ToString::to_string)
    }

    fn next_copy(&mut self) -> CopyRows {
        for _ in 0..100 {
            if let Some((_, _, RemoteWork::Copy { asked, .. })) = self.work.front() {
                return asked.clone();
            }
            self.work();
            self.pass(5);
        }
        panic!("the new brick asks for nothing: {:?}", self.work)
    }

    fn copy_rows(&mut self, asked: &CopyRows) -> Result<CopiedRows> {
        let now = self.now;
        self.brick(OLD).copy_rows(asked, now)
    }
}

#[test]
fn node_moves_with_its_objects_and_leaves_nothing_behind() {
    let mut test = MoveTest::new();
    test.commit(0..40);
    test.begin_move(NEW);
    for number in 0..30 {
        test.work();
        test.commit(number..number + 2);
        test.pass(7);
    }
    test.finish();
    assert!(test.is_served(NEW) && !test.is_served(OLD) && test.placed.moves == 1);
    assert_eq!(test.objects(NEW).len(), 40);
    assert!(test.objects(OLD).is_empty(), "its rows are removed");
    let progress = test.progress(NEW);
    assert!(progress.rows > 40 && progress.bytes > 400 && progress.last_error.is_none(), "{progress:?}");
    assert!(progress.pause_ms.is_some_and(|pause| pause < 2_000), "{progress:?}");
    test.commit(40..50);
    // It moves back.
    test.begin_move(OLD);
    test.finish();
    assert_eq!((test.objects(OLD).len(), test.objects(NEW).len(), test.placed.moves), (50, 0, 2));
    assert_eq!(test.committed, test.transactions);
}

#[test]
fn sealed_node_is_never_served_by_an_old_map() {
    let mut test = MoveTest::new();
    test.begin_move(NEW);
    assert!(test.is_served(OLD), "a node that is copied is served");
    test.edit(PlacementEdit::Seal { to: NEW });
    test.follow(OLD, &test.map());
    assert!(!test.is_served(OLD));
    for old in [1, 4, 5] {
        test.restart(OLD);
        test.follow(OLD, &MoveTest::served_map(OLD, old));
        assert!(!test.is_served(OLD), "by the map of epoch {old}");
        assert!(test.problem(OLD).unwrap().contains("too old"));
    }
    test.follow(OLD, &MoveTest::served_map(OLD, 6));
    assert!(test.is_served(OLD) && test.problem(OLD).is_none());
}

#[test]
fn incomplete_copy_is_served_by_no_map() {
    let mut test = MoveTest::new();
    test.commit(0..40);
    test.begin_move(NEW);
    test.next_copy();
    assert!(test.work(), "the first rows are here");
    test.restart(NEW);
    test.follow(NEW, &MoveTest::served_map(NEW, 99));
    assert!(!test.is_served(NEW) && test.problem(NEW).unwrap().contains("too old"));
}

#[test]
fn request_under_another_epoch_is_refused() {
    let mut test = MoveTest::new();
    for epoch in [3, 5] {
        test.commit_under(OLD, epoch, 1, true);
        test.commit_under(NEW, 4, 1, true);
    }
    assert_eq!((test.committed, test.objects(OLD).len(), test.objects(NEW).len()), (0, 0, 0));
}

#[test]
fn last_rows_are_sent_when_none_are_in_flight_and_the_seal_is_durable() {
    let mut test = MoveTest::new();
    test.commit(0..10);
    test.begin_move(NEW);
    let asked = test.next_copy();
    // A transaction is being written when the node is sealed.
    test.commit_under(OLD, 4, 30, false);
    test.edit(PlacementEdit::Seal { to: NEW });
    let (now, map) = (test.now, Arc::new(test.map()));
    test.brick(OLD).follow_map(map, now);
    assert_eq!(test.copy_rows(&asked).unwrap_err().kind(), ErrorKind::Unavailable, "it is closing");
    // The transaction is durable; the seal is submitted then, and is not.
    let now = test.now;
    test.brick(OLD).force(usize::MAX).unwrap();
    test.brick(OLD).handle_written(now);
    assert!(test.bricks[&OLD].unforced_count() > 0);
    let asked = CopyRows { number: asked.number + 1, ..asked };
    assert_eq!(test.copy_rows(&asked).unwrap_err().kind(), ErrorKind::Unavailable, "the seal is not durable");
    test.settle(OLD);
    test.finish();
    assert!(test.objects(NEW).contains_key(&30), "the transaction has moved");
}

/// All objects of a brick change while a copy of them is under way: the answers to several requests are needed for the changes.
#[test]
fn more_changes_than_fit_an_answer_are_copied_with_several() {
    let mut test = MoveTest::new();
    test.commit(0..MANY);
    test.begin_move(NEW);
    let (mut largest, mut is_changed) = (0, false);
    while test.placed.moving.is_some() {
        if let Some((_, _, RemoteWork::Copy { asked, .. })) = test.work.front().cloned() {
            if asked.from.is_none() && !is_changed {
                // The rows are here; what has changed since follows.
                is_changed = true;
                test.commit(0..MANY);
            }
            let (brick, job, _) = test.work.pop_front().unwrap();
            let (copied, now) = (test.copy_rows(&asked), test.now);
            largest = largest.max(copied.as_ref().map_or(0, |copied| copied.changed));
            test.settle(OLD);
            test.brick(brick).handle_copied(job, copied, now);
            test.settle(brick);
        }
        let expected = test.objects(OLD);
        test.work();
        test.pass(5);
        if test.placed.moving.is_none() {
            assert_eq!(test.objects(NEW), expected);
        }
    }
    assert!(is_changed && largest > MoveLimits::SMALL.answer_rows as u64, "{largest} keys were left for later answers");
}

#[test]
fn copy_begins_again_when_changes_are_unknown() {
    let mut test = MoveTest::new();
    test.commit(0..40);
    test.begin_move(NEW);
    let asked = test.next_copy();
    assert!(!test.copy_rows(&asked).unwrap().rows.is_empty());
    let late = CopyRows { number: asked.number + 1, last_answered: asked.number + 9, ..asked.clone() };
    assert_eq!(test.copy_rows(&late).unwrap_err().kind(), ErrorKind::NotFound);
    let other = CopyRows { to: 3, number: asked.number + 2, ..asked.clone() };
    assert_eq!(test.copy_rows(&other).unwrap_err().kind(), ErrorKind::NotFound);
    // More changes than are remembered.
    for _ in 0..20 {
        test.commit(0..40);
    }
    test.finish();
    assert_eq!(test.objects(NEW).len(), 40);
}

#[test]
fn node_that_does_not_change_is_copied_once() {
    let mut test = MoveTest::new();
    test.commit(0..2);
    test.begin_move(NEW);
    test.next_copy();
    let progress = test.progress(NEW);
    assert_eq!((progress.rows, progress.bytes), (0, 0), "nothing has been copied");
    let mut copies = 0;
    while test.placed.moving.unwrap().phase == catalog::MovePhase::Copying {
        copies += u32::from(matches!(test.work.front(), Some((_, _, RemoteWork::Copy { .. }))));
        test.work();
        test.pass(5);
    }
    assert!(copies <= 3, "{copies} requests for a few rows");
}

#[test]
fn answers_of_a_copy_are_bounded() {
    let mut test = MoveTest::new();
    test.commit(0..40);
    test.begin_move(NEW);
    let asked = test.next_copy();
    let rows = test.copy_rows(&asked).unwrap().rows;
    let size = |(key, value): &(Bytes, Option<Bytes>)| key.len() + value.as_ref().map_or(0, Bytes::len);
    let MoveLimits { answer_rows, answer_bytes, .. } = MoveLimits::SMALL;
    let before_last: usize = rows.iter().rev().skip(1).map(size).sum();
    assert!(rows.len() <= answer_rows && before_last < answer_bytes, "{} rows, {before_last} bytes", rows.len());
    assert!(rows.iter().map(size).sum::<usize>() >= answer_bytes || rows.len() == answer_rows, "it is filled");
}

#[test]
fn rows_of_another_node_are_refused() {
    let mut test = MoveTest::new();
    test.commit(0..5);
    test.begin_move(NEW);
    test.next_copy();
    let (brick, job, _) = test.work.pop_front().unwrap();
    let foreign = rows::object_key(PageId { space: SpaceId(1), node: NodeId(8), number: 1 }, 1);
    let row = (foreign.to_vec().into(), Some("x".into()));
    let now = test.now;
    test.brick(brick).handle_copied(job, Ok(CopiedRows { rows: vec![row], ..CopiedRows::default() }), now);
    assert!(test.progress(NEW).last_error.unwrap().contains("does not belong"));
    test.finish();
}

#[test]
fn planted_bugs_are_noticed() {
    let checks: [(Bug, fn()); 10] = [
        (Bug::ServedUnsealed, sealed_node_is_never_served_by_an_old_map),
        (Bug::SealNotWritten, sealed_node_is_never_served_by_an_old_map),
        (Bug::CopyNotMarked, incomplete_copy_is_served_by_no_map),
        (Bug::OtherEpochServed, request_under_another_epoch_is_refused),
        (Bug::ClosedWithRowsInFlight, last_rows_are_sent_when_none_are_in_flight_and_the_seal_is_durable),
        (Bug::LastRowsBeforeSeal, last_rows_are_sent_when_none_are_in_flight_and_the_seal_is_durable),
        (Bug::EndsBeforeDurable, node_moves_with_its_objects_and_leaves_nothing_behind),
        (Bug::OldMapRemovesRows, removals::old_map_removes_no_rows),
        (Bug::DamagedNodeNotNoted, retries::node_that_cannot_be_opened_is_a_problem_and_opened_again_after_a_while),
        (Bug::FailedMoveHurries, retries::move_that_fails_again_and_again_is_tried_less_and_less_often),
    ];
    for (bug, check) in checks {
        assert_noticed(&[bug], check);
    }
}
