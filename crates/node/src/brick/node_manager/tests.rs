//! Two bricks on simulated stores and the placement of one logical node, which moves between them. Random faults are the simulator's;
//! here each rule of a move has its scenario.

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

const NODE: NodeId = NodeId(7);
const OLD: BrickId = BrickId(1);
const NEW: BrickId = BrickId(2);

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
            window: 64,
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
fn node_of_a_removed_space_leaves_nothing_behind() {
    let removed = || PlacementSnapshot { removed: [(NodeId(5), 4)].into(), ..PlacementSnapshot::default() };
    let mut served = MoveTest::new();
    served.commit(0..40);
    served.follow(OLD, &removed());
    served.commit_under(OLD, 4, 41, true);
    served.idle();
    assert!(!served.is_served(OLD) && served.objects(OLD).is_empty());
    assert_eq!(served.committed, 40, "it takes no more transactions");

    // The brick is away when the space is removed.
    let mut away = MoveTest::new();
    away.commit(0..40);
    away.restart(OLD);
    away.follow(OLD, &removed());
    away.idle();
    assert!(away.objects(OLD).is_empty());

    // The node is being copied.
    let mut moving = MoveTest::new();
    moving.commit(0..40);
    moving.begin_move(NEW);
    moving.next_copy();
    assert!(moving.work(), "the first rows are at the new brick");
    [OLD, NEW].into_iter().for_each(|brick| moving.follow(brick, &removed()));
    moving.work.clear();
    moving.idle();
    assert!([OLD, NEW].into_iter().all(|brick| moving.objects(brick).is_empty() && !moving.is_served(brick)));

    // Other nodes are not touched.
    let mut other = MoveTest::new();
    other.commit(0..40);
    let beside = PlacementSnapshot { removed: [(NodeId(1), 6), (NodeId(8), 4)].into(), ..other.map() };
    other.follow(OLD, &beside);
    other.idle();
    assert!(other.is_served(OLD) && other.objects(OLD).len() == 40);
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
    assert!(!test.is_served(NEW));
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
fn silent_new_brick_loses_the_node_and_gets_it_later() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    while test.placed.moving.unwrap().phase == catalog::MovePhase::Copying {
        test.work();
        test.pass(5);
    }
    test.commit_under(OLD, test.placed.epoch.0, 21, true);
    assert_eq!(test.committed, 20, "no brick serves it");
    // The new brick stops.
    test.work.clear();
    for _ in 0..120 {
        test.now += 100;
        let now = test.now;
        test.brick(OLD).poll(now);
        test.settle(OLD);
        test.work();
    }
    assert!(test.is_served(OLD), "it is unsealed");
    test.commit(21..30);
    assert_eq!(test.committed, 29);
    test.pass(5_000);
    test.finish();
    assert!(test.is_served(NEW));
    assert_eq!(test.objects(NEW).len(), 29);
}

#[test]
fn silent_old_brick_fails_the_attempt_and_the_next_one_succeeds() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    test.next_copy();
    for _ in 0..30 {
        // Requests to the old brick are lost.
        test.work.retain(|(_, _, work)| !matches!(work, RemoteWork::Copy { .. }));
        test.pass(500);
    }
    assert!(test.progress(NEW).last_error.unwrap().contains("does not answer"));
    test.finish();
    assert!(test.is_served(NEW) && test.progress(NEW).last_error.is_none());
}

#[test]
fn cancelled_move_leaves_no_rows_at_the_new_brick() {
    let mut test = MoveTest::new();
    test.commit(0..40);
    test.begin_move(NEW);
    while test.objects(NEW).is_empty() {
        test.work();
        test.pass(5);
    }
    test.cancel_move();
    test.tell();
    test.finish();
    assert!(test.is_served(OLD) && !test.is_served(NEW));
    assert_eq!((test.objects(OLD).len(), test.objects(NEW).len()), (40, 0));
}

#[test]
fn lost_answers_of_the_catalogue_do_no_harm() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    // Each edit is made, and its first answer is lost.
    let mut edits = 0;
    for _ in 0..400 {
        if let Some((_, _, RemoteWork::Edit(edit))) = test.work.front().cloned()
            && edits < 3
        {
            edits += 1;
            test.work.pop_front();
            test.edit(edit);
            test.pass(6_000);
        }
        test.work();
        test.pass(20);
    }
    assert!(edits >= 2);
    test.finish();
    assert!(test.is_served(NEW) && test.objects(NEW).len() == 20);
}

#[test]
fn seal_that_an_earlier_request_has_set_is_accepted() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    let seal = loop {
        match test.work.front() {
            Some((_, _, RemoteWork::Edit(edit @ PlacementEdit::Seal { .. }))) => break *edit,
            _ => test.work(),
        };
        test.pass(5);
    };
    test.edit(seal);
    assert!(matches!(test.edit(seal), EditResult::WrongState));
    test.work();
    assert_eq!(test.progress(NEW).last_error, None);
    assert!(matches!(test.work.front(), Some((NEW, _, RemoteWork::Copy { .. }))), "{:?}", test.work);
    test.finish();
    assert_eq!(test.objects(NEW).len(), 20);
}

#[test]
fn end_of_a_move_that_the_catalogue_has_not_recorded_is_asked_for_again() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    let PlacementEdit::Finish { epoch: sealed } = test.copy_all() else { panic!("the copy is not complete") };
    test.work.clear();
    assert!(test.bricks[&NEW].manager().deadline() > test.now, "there is nothing to do until then");
    test.pass(REMOTE_TIMEOUT_MS);
    assert!(test.work.is_empty(), "{:?}", test.work);
    test.pass(RETRY_DELAY_MS);
    let again = test.work.front();
    assert!(
        matches!(again, Some((NEW, _, RemoteWork::Edit(PlacementEdit::Finish { epoch }))) if *epoch == sealed),
        "{again:?}"
    );
    test.finish();
    assert!(test.is_served(NEW));
}

#[test]
fn move_does_not_report_the_error_of_a_cancelled_one() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    let asked = test.next_copy();
    let (brick, job, _) = test.work.pop_front().unwrap();
    let (now, error) = (test.now, Error::new(ErrorKind::Corrupt, "it is damaged"));
    test.brick(brick).handle_copied(job, Err(error), now);
    assert!(test.progress(NEW).last_error.is_some());
    test.cancel_move();
    test.tell();
    test.begin_move(NEW);
    assert!(test.next_copy() != asked);
    assert_eq!(test.progress(NEW).last_error, None);
}

#[test]
fn rows_that_cannot_be_removed_at_once_are_removed_later() {
    let (store, now) = (Store::in_memory(Options::default()).unwrap(), 1_000);
    let mut seal = RowChanges::new();
    seal.put(&rows::seal_key(NODE), rows::encode_number(4));
    store.commit_rows(seal).unwrap();
    let settings = ManagerSettings { brick: OLD, first_job: 0, limits: MoveLimits::SMALL };
    let mut manager = NodeManager::new(settings, RowReader::new(store)).unwrap();
    let removal = |manager: &mut NodeManager| {
        manager.take_outputs().into_iter().find_map(|output| match output {
            ManagerOutput::Run { job, work: Work::Remove, .. } => Some(job),
            _ => None,
        })
    };
    manager.follow_map(Arc::new(MoveTest::served_map(NEW, 9)), now);
    let job = removal(&mut manager).expect("the node is at the other brick");
    let full = Error::new(ErrorKind::Full, "the disk is full");
    manager.finish(job, Finished::Removed(Err(full)), now);
    assert_eq!(removal(&mut manager), None);
    manager.poll(now + 10_000);
    assert!(removal(&mut manager).is_some());
}

#[test]
fn move_that_fails_again_and_again_is_tried_less_and_less_often() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    let fail = |test: &mut MoveTest, kind| {
        test.next_copy();
        let (brick, job, _) = test.work.pop_front().unwrap();
        let now = test.now;
        test.brick(brick).handle_copied(job, Err(Error::new(kind, "it fails")), now);
        let pause = test.bricks[&NEW].manager().deadline() - now;
        test.pass(pause);
        pause
    };
    let damaged: Vec<Ms> = (0..12).map(|_| fail(&mut test, ErrorKind::Corrupt)).collect();
    assert_eq!((damaged[..3].to_vec(), damaged[11]), (vec![100, 200, 400], 51_200));
    while test.placed.moving.unwrap().phase == catalog::MovePhase::Copying {
        test.work();
        test.pass(5);
    }
    assert_eq!(fail(&mut test, ErrorKind::Corrupt), 100, "no brick serves the node");
    test.finish();
    assert!(test.is_served(NEW));
    test.begin_move(OLD);
    test.finish();
    test.begin_move(NEW);
    assert_eq!(fail(&mut test, ErrorKind::Corrupt), 100, "it has moved since");
}

#[test]
fn restarted_new_brick_ends_the_move_of_a_complete_copy() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    test.copy_all();
    test.restart(NEW);
    test.follow(NEW, &test.map());
    let rows = test.progress(NEW).rows;
    test.finish();
    assert!(test.is_served(NEW) && rows == 0, "nothing is copied again");
    assert_eq!(test.objects(NEW).len(), 20);
}

#[test]
fn old_map_removes_no_rows() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    test.finish();
    test.begin_move(OLD);
    test.finish();
    test.begin_move(NEW);
    test.next_copy();
    test.edit(PlacementEdit::Seal { to: NEW });
    test.follow(OLD, &test.map());
    // The brick restarts with the map from when the node was at the other brick for the first time.
    test.restart(OLD);
    test.follow(OLD, &MoveTest::served_map(NEW, 6));
    (0..60).for_each(|_| test.pass(110));
    assert_eq!(test.objects(OLD).len(), 20);
}

/// As [`old_map_removes_no_rows`], before the brick has heard that its move has ended.
#[test]
fn old_map_removes_no_rows_of_a_copy_that_was_just_completed() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    let finish = test.copy_all();
    assert!(matches!(test.edit(finish), EditResult::Done));
    test.follow(NEW, &MoveTest::served_map(OLD, 4));
    (0..60).for_each(|_| test.pass(110));
    test.tell();
    assert!(test.is_served(NEW));
    assert_eq!(test.objects(NEW).len(), 20);
}

#[test]
fn rows_that_are_being_written_when_a_move_is_cancelled_are_removed() {
    let mut test = MoveTest::new();
    test.commit(0..40);
    test.begin_move(NEW);
    let asked = test.next_copy();
    let (brick, job, _) = test.work.pop_front().unwrap();
    let (copied, now) = (test.copy_rows(&asked), test.now);
    assert!(copied.as_ref().is_ok_and(|copied| !copied.rows.is_empty()));
    test.brick(brick).handle_copied(job, copied, now);
    assert!(test.bricks[&NEW].unforced_count() > 0);
    test.cancel_move();
    let map = Arc::new(test.map());
    test.brick(NEW).follow_map(map, now);
    let tasks = &test.bricks[&NEW].manager().tasks;
    assert!(matches!(tasks.get(&NODE), Some(Task::MoveIn(_))), "the removal begins when they are durable");
    test.settle(NEW);
    test.tell();
    test.finish();
    assert_eq!((test.objects(OLD).len(), test.objects(NEW).len()), (40, 0));
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
fn node_that_cannot_be_served_is_tried_again_after_a_while() {
    let mut test = MoveTest::new();
    test.begin_move(NEW);
    test.edit(PlacementEdit::Seal { to: NEW });
    test.follow(OLD, &test.map());
    test.follow(OLD, &MoveTest::served_map(OLD, 4));
    assert!(test.problem(OLD).is_some());
    let deadline = |test: &MoveTest| test.bricks[&OLD].manager().deadline();
    let first = test.now + RETRY_DELAY_MS;
    assert_eq!(deadline(&test), first);
    test.pass(RETRY_DELAY_MS - 1);
    assert_eq!(deadline(&test), first);
    test.pass(1);
    assert_eq!(deadline(&test), first + RETRY_DELAY_MS);
}

#[test]
fn seal_that_cannot_be_written_is_written_again_after_a_while() {
    let store = Store::in_memory(Options::default()).unwrap();
    let settings = ManagerSettings { brick: OLD, first_job: 0, limits: MoveLimits::SMALL };
    let mut manager = NodeManager::new(settings, RowReader::new(store)).unwrap();
    let old = catalog::BrickId(OLD.0);
    let mut placed = catalog::NodePlacement { brick: old, epoch: Epoch(4), moves: 0, moving: None };
    placed.begin_move(catalog::BrickId(NEW.0)).unwrap();
    placed.seal(catalog::BrickId(NEW.0), Epoch(5)).unwrap();
    manager.follow_map(Arc::new(MoveTest::map_of(&placed)), 1_000);
    let written = |manager: &mut NodeManager| {
        let job = |output| match output {
            ManagerOutput::Run { job, work: Work::Write(_), .. } => Some(job),
            _ => None,
        };
        manager.take_outputs().into_iter().find_map(job)
    };
    let first = written(&mut manager).expect("the seal is written");
    let failed = Err(Error::new(ErrorKind::Io, "the log failed"));
    manager.finish(first, Finished::Written(failed), 1_000);
    assert!(manager.problem().is_some() && written(&mut manager).is_none());
    manager.poll(manager.deadline());
    assert!(manager.problem().is_none() && written(&mut manager).is_some());
}

#[test]
fn move_that_was_changed_in_the_catalogue_meanwhile_begins_again_after_a_while() {
    let mut test = MoveTest::new();
    test.commit(0..20);
    test.begin_move(NEW);
    while test.placed.moving.unwrap().phase == catalog::MovePhase::Copying {
        test.work();
        test.pass(5);
    }
    // The new brick has to copy the node again, which has to be unsealed first.
    test.restart(NEW);
    test.follow(NEW, &test.map());
    let (job, unseal) = loop {
        match test.work.pop_front() {
            Some((NEW, job, RemoteWork::Edit(edit @ PlacementEdit::Unseal { .. }))) => break (job, edit),
            Some(work) => test.work.push_front(work),
            None => {}
        }
        test.work();
        test.pass(5);
    };
    test.edit(unseal);
    let edited = test.edit(unseal);
    assert!(matches!(edited, EditResult::WrongState), "the old brick has unsealed it");
    test.tell();
    let now = test.now;
    test.brick(NEW).handle_edited(job, edited, now);
    assert!(test.progress(NEW).last_error.unwrap().contains("has changed in the catalogue"));
    assert!(test.bricks[&NEW].manager().deadline() > now);
    test.finish();
    assert!(test.is_served(NEW));
    assert_eq!(test.objects(NEW).len(), 20);
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
    let checks: [(Bug, fn()); 9] = [
        (Bug::ServedUnsealed, sealed_node_is_never_served_by_an_old_map),
        (Bug::SealNotWritten, sealed_node_is_never_served_by_an_old_map),
        (Bug::CopyNotMarked, incomplete_copy_is_served_by_no_map),
        (Bug::OtherEpochServed, request_under_another_epoch_is_refused),
        (Bug::ClosedWithRowsInFlight, last_rows_are_sent_when_none_are_in_flight_and_the_seal_is_durable),
        (Bug::LastRowsBeforeSeal, last_rows_are_sent_when_none_are_in_flight_and_the_seal_is_durable),
        (Bug::EndsBeforeDurable, node_moves_with_its_objects_and_leaves_nothing_behind),
        (Bug::OldMapRemovesRows, old_map_removes_no_rows),
        (Bug::FailedMoveHurries, move_that_fails_again_and_again_is_tried_less_and_less_often),
    ];
    for (bug, check) in checks {
        assert_noticed(&[bug], check);
    }
}
