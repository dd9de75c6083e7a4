//! Moves go on after lost messages, refusals, restarts and silent bricks.

use super::*;

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
pub(super) fn move_that_fails_again_and_again_is_tried_less_and_less_often() {
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

/// A manager to which these nodes move, all of which are served by the other brick.
fn manager_of_moves(nodes: std::ops::RangeInclusive<u32>) -> (NodeManager, PlacementSnapshot) {
    let store = Store::in_memory(Options::default()).unwrap();
    let settings = ManagerSettings { brick: NEW, first_job: 0, limits: MoveLimits::SMALL };
    let mut map = PlacementSnapshot::default();
    let old = catalog::BrickId(OLD.0);
    let mut moving = catalog::NodePlacement { brick: old, epoch: Epoch(4), moves: 0, moving: None };
    moving.begin_move(catalog::BrickId(NEW.0)).unwrap();
    nodes.for_each(|node| map.add(NodeId(node), &moving));
    (NodeManager::new(settings, RowReader::new(store)).unwrap(), map)
}

/// The attempts that begin.
fn begun(manager: &mut NodeManager) -> Vec<(u32, JobId)> {
    let begun = |output| match output {
        ManagerOutput::Run { job, node, work: Work::RefreshMap } => Some((node.0, job)),
        _ => None,
    };
    manager.take_outputs().into_iter().filter_map(begun).collect()
}

/// Ends attempts with an error that does not pass.
fn fail_moves(manager: &mut NodeManager, moves: Vec<(u32, JobId)>, now: Ms) {
    for (_, job) in moves {
        manager.finish(job, Finished::Refreshed(Err(Error::new(ErrorKind::Corrupt, "a row is damaged"))), now);
    }
}

#[test]
fn moves_that_keep_failing_hold_up_no_others() {
    let ((mut manager, map), mut now) = (manager_of_moves(1..=5), 1_000);
    let numbers = |moves: &[(u32, JobId)]| moves.iter().map(|(node, _)| *node).collect::<Vec<_>>();
    manager.follow_map(Arc::new(map), now);
    let first = begun(&mut manager);
    assert_eq!(numbers(&first), [1, 2]);
    fail_moves(&mut manager, first, now);
    let others = begun(&mut manager);
    assert_eq!(numbers(&others), [3, 4], "they get the places");
    now = manager.deadline();
    manager.poll(now);
    assert!(begun(&mut manager).is_empty() && manager.deadline() > now, "those that have failed wait for a place");
    fail_moves(&mut manager, others, now);
    let last = begun(&mut manager);
    assert_eq!(numbers(&last), [5, 1], "the one that has not failed yet comes first");
    fail_moves(&mut manager, last, now);
    // 2 has waited since its pause has ended. All others pause: 1 for longer, because it has failed twice.
    let again = begun(&mut manager);
    assert_eq!(numbers(&again), [2]);
    manager.poll(now + 100);
    assert_eq!(numbers(&begun(&mut manager)), [3], "one place is free, and 4, 5 wait with it");
    fail_moves(&mut manager, again, now + 100);
    manager.poll(now + 200);
    assert_eq!(numbers(&begun(&mut manager)), [4], "1 waits, too, and has failed more often");
}

#[test]
fn sealed_node_whose_attempt_has_failed_waits_for_no_place() {
    let ((mut manager, mut map), now) = (manager_of_moves(1..=4), 1_000);
    manager.follow_map(Arc::new(map.clone()), now);
    let first = begun(&mut manager);
    fail_moves(&mut manager, first[..1].to_vec(), now);
    assert_eq!(begun(&mut manager).len(), 1, "both places are taken");
    map.moving.get_mut(&NodeId(1)).unwrap().sealed = Some(5);
    manager.follow_map(Arc::new(map), now);
    manager.poll(now + 100);
    assert_eq!(begun(&mut manager).iter().map(|(node, _)| *node).collect::<Vec<_>>(), [1], "no brick serves it");
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
fn node_that_is_unsealed_while_its_seal_is_written_is_served_as_soon_as_that_is_done() {
    let mut test = MoveTest::new();
    test.commit(0..10);
    test.begin_move(NEW);
    test.edit(PlacementEdit::Seal { to: NEW });
    let (now, sealed) = (test.now, Arc::new(test.map()));
    test.brick(OLD).follow_map(sealed, now);
    while test.brick(OLD).next_output().is_some() {}
    assert!(!test.is_served(OLD) && test.bricks[&OLD].unforced_count() > 0, "the seal is being written");
    let epoch = test.epoch;
    test.edit(PlacementEdit::Unseal { epoch });
    let map = Arc::new(test.map());
    test.brick(OLD).follow_map(map, now);
    test.settle(OLD);
    assert!(test.is_served(OLD), "{:?}", test.problem(OLD));
    test.commit(10..12);
    assert_eq!(test.committed, 12);
}

#[test]
pub(super) fn node_that_cannot_be_opened_is_a_problem_and_opened_again_after_a_while() {
    let (store, now) = (Store::in_memory(Options::default()).unwrap(), 1_000);
    let settings = ManagerSettings { brick: OLD, first_job: 0, limits: MoveLimits::SMALL };
    let mut manager = NodeManager::new(settings, RowReader::new(store)).unwrap();
    let is_opened = |manager: &mut NodeManager| {
        manager.take_outputs().iter().any(|output| matches!(output, ManagerOutput::Open { node: NODE, .. }))
    };
    manager.follow_map(Arc::new(MoveTest::served_map(OLD, 4)), now);
    assert!(is_opened(&mut manager));
    let fail =
        |manager: &mut NodeManager, kind| manager.handle_opened(NODE, Err(Error::new(kind, "a row is bad")), now);
    fail(&mut manager, ErrorKind::Io);
    assert!(manager.problem().is_some() && manager.damaged().is_empty());
    fail(&mut manager, ErrorKind::Corrupt);
    assert!(manager.problem().unwrap().message().contains("a row is bad") && !is_opened(&mut manager));
    let why = || manager.damaged().get(&NODE).cloned();
    let refused = refuse_epoch(NODE, None, 4, why).unwrap();
    let damage = if let Message::NotServedHere { damage, .. } = &refused { damage.as_deref() } else { None };
    assert_eq!(damage, Some("a row is bad"), "{refused:?}");
    manager.poll(now + 60_000);
    assert!(is_opened(&mut manager));
    manager.handle_opened(NODE, Ok(()), now + 60_000);
    assert!(manager.problem().is_none() && manager.damaged().is_empty());
}

#[test]
fn damage_of_a_node_that_is_placed_elsewhere_is_forgotten() {
    let store = Store::in_memory(Options::default()).unwrap();
    let settings = ManagerSettings { brick: OLD, first_job: 0, limits: MoveLimits::SMALL };
    let mut manager = NodeManager::new(settings, RowReader::new(store)).unwrap();
    manager.follow_map(Arc::new(MoveTest::served_map(OLD, 4)), 1_000);
    manager.handle_opened(NODE, Err(Error::new(ErrorKind::Corrupt, "a row is bad")), 1_000);
    assert_eq!(manager.damaged().len(), 1);
    manager.follow_map(Arc::new(MoveTest::served_map(NEW, 5)), 2_000);
    assert!(manager.damaged().is_empty());
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
