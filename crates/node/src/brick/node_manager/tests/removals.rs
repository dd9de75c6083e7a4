//! Rows of logical nodes that a brick does not serve any more, or never did, are removed, and no others.

use model::{ContentId, ContentOrigin};
use store::ContentChange;

use super::*;

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
fn bounded_number_of_rows_and_contents_is_removed_at_a_time() {
    let store = Store::in_memory(Options::default()).unwrap();
    let mut changes = RowChanges::new();
    let page = PageId { space: SpaceId(1), node: NODE, number: 1 };
    (0..3).for_each(|slot| changes.put(&rows::object_key(page, slot), "x".into()));
    for number in 0..8 {
        let id = ContentId::new(SpaceId(1), NODE, 0, ContentOrigin::Record, number);
        changes.content(ContentChange::Create { id, data: "abc".into() });
    }
    store.commit_rows(changes).unwrap();
    let mut steps = Vec::new();
    loop {
        let removed = rows_to_remove(&RowReader::new(store.clone()), NODE, 5).unwrap();
        if removed.is_empty() {
            break;
        }
        steps.push(removed.len());
        store.commit_rows(removed).unwrap();
    }
    assert!(steps.iter().all(|removed| *removed <= 5) && steps.iter().sum::<usize>() == 11, "{steps:?}");
}

/// More nodes than are removed at a time: as soon as the rows of one are gone, those of the next are removed.
#[test]
fn rows_of_many_nodes_are_removed_one_after_the_other_without_pauses() {
    let (store, now, nodes) = (Store::in_memory(Options::default()).unwrap(), 1_000, 1..=9);
    let mut seals = RowChanges::new();
    nodes.clone().for_each(|node| seals.put(&rows::seal_key(NodeId(node)), rows::encode_number(4)));
    store.commit_rows(seals).unwrap();
    let settings = ManagerSettings { brick: OLD, first_job: 0, limits: MoveLimits::SMALL };
    let mut manager = NodeManager::new(settings, RowReader::new(store)).unwrap();
    let mut map = PlacementSnapshot::default();
    let place = catalog::NodePlacement { brick: catalog::BrickId(NEW.0), epoch: Epoch(9), moves: 1, moving: None };
    nodes.clone().for_each(|node| map.add(NodeId(node), &place));
    manager.follow_map(Arc::new(map), now);
    let (mut running, mut removed) = (VecDeque::new(), 0);
    loop {
        running.extend(manager.take_outputs().into_iter().filter_map(|output| match output {
            ManagerOutput::Run { job, work: Work::Remove, .. } => Some(job),
            _ => None,
        }));
        assert!(running.len() <= MAX_CONCURRENT, "{running:?}");
        let Some(job) = running.pop_front() else { break };
        manager.finish(job, Finished::Removed(Ok(0)), now);
        removed += 1;
    }
    assert_eq!(removed, nodes.count());
}

/// Rows of some nodes cannot be removed, because they cannot be read. They are tried again when there is a place for them.
#[test]
fn removals_that_keep_failing_hold_up_no_others() {
    let (store, mut now, nodes) = (Store::in_memory(Options::default()).unwrap(), 1_000, 1..=6);
    let mut seals = RowChanges::new();
    nodes.clone().for_each(|node| seals.put(&rows::seal_key(NodeId(node)), rows::encode_number(4)));
    store.commit_rows(seals).unwrap();
    let settings = ManagerSettings { brick: OLD, first_job: 0, limits: MoveLimits::SMALL };
    let mut manager = NodeManager::new(settings, RowReader::new(store)).unwrap();
    let mut map = PlacementSnapshot::default();
    let place = catalog::NodePlacement { brick: catalog::BrickId(NEW.0), epoch: Epoch(9), moves: 1, moving: None };
    nodes.for_each(|node| map.add(NodeId(node), &place));
    manager.follow_map(Arc::new(map), now);
    let is_damaged = |node: NodeId| node.0 <= 3;
    let (mut removed, mut tried) = (BTreeSet::new(), Vec::new());
    for _ in 0..8 {
        loop {
            let running = manager.take_outputs().into_iter().filter_map(|output| match output {
                ManagerOutput::Run { job, node, work: Work::Remove } => Some((node, job)),
                _ => None,
            });
            let running: Vec<(NodeId, JobId)> = running.collect();
            assert!(running.len() <= MAX_CONCURRENT, "{running:?}");
            if running.is_empty() {
                break;
            }
            for (node, job) in running {
                let damage = Err(Error::new(ErrorKind::Corrupt, "a row is damaged"));
                if is_damaged(node) {
                    tried.push(node.0);
                } else {
                    removed.insert(node.0);
                }
                manager.finish(job, Finished::Removed(if is_damaged(node) { damage } else { Ok(0) }), now);
            }
        }
        assert_eq!(removed, (4..=6).collect(), "others are removed at once");
        assert!(manager.deadline() > now);
        now = manager.deadline();
        manager.poll(now);
    }
    assert!((1..=3).all(|node| tried.iter().filter(|tried| **tried == node).count() >= 4), "{tried:?}");
}

#[test]
pub(super) fn old_map_removes_no_rows() {
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
