//! The offsets of appends: part of each answer, the repeated ones included (C3).

use model::planted_bug::assert_noticed;

use super::*;

/// A part that appends to the blob in a slot, at this offset.
fn appending(slot: u16, offset: u64) -> Part<u64> {
    Part { offsets: [(oid(slot), offset)].into(), ..patching(&[], &[slot]) }
}

fn offsets(answers: &[Answer]) -> &AppendOffsets {
    match answers {
        [Answer::Prepared { offsets, .. } | Answer::Ended { offsets, .. }] => offsets,
        other => panic!("one answer is expected: {other:?}"),
    }
}

/// Reads rows instead of a log, as a brick with a store does.
fn restart_from_rows(world: &World) -> World {
    let mut rows: BTreeMap<TxnId, (Version, Record<u64>)> = BTreeMap::new();
    for (position, record) in (1..).zip(&world.log) {
        if let Some(txn) = record.txn() {
            rows.insert(txn, (at(position), record.clone().into_row(at(position))));
        }
    }
    let mut restarted = World { now_ms: world.now_ms, log: world.log.clone(), ..World::new() };
    for (version, row) in rows.into_values() {
        restarted.participant.recover(version, row);
    }
    restarted.participant.finish_recovery(world.log.len() as u64);
    restarted
}

#[test]
fn repeated_commit_returns_the_first_offset_also_after_a_restart() {
    let mut world = World::new();
    let expected: AppendOffsets = [(oid(1), 40)].into();
    assert_eq!(offsets(&world.ask_forced(commit(1, appending(1, 40)))), &expected);
    // The blob is longer now: the offset in a repeated request is another one.
    let again = || commit(1, appending(1, 90));
    assert_eq!(offsets(&world.ask_forced(again())), &expected);
    for mut restarted in [world.restart(world.log.len()), restart_from_rows(&world)] {
        assert_eq!(offsets(&restarted.ask_forced(again())), &expected);
        assert_eq!(offsets(&restarted.ask_forced(Request::Ask { txn: txn(1), round: 0 })), &expected);
    }
}

#[test]
fn vote_and_end_of_a_prepared_transaction_have_its_offsets_also_after_a_restart() {
    let mut world = World::new();
    let expected: AppendOffsets = [(oid(1), 40)].into();
    let vote = world.ask_forced(prepare(1, appending(1, 40)));
    assert_eq!(offsets(&vote), &expected);
    let committed = decide(1, Outcome::Committed(proposal(&vote)));
    for mut world in [world.restart(1), restart_from_rows(&world), world] {
        assert_eq!(offsets(&world.ask_forced(Request::Ask { txn: txn(1), round: 0 })), &expected);
        assert_eq!(offsets(&world.ask_forced(committed.clone())), &expected);
        for mut restarted in [world.restart(world.log.len()), restart_from_rows(&world)] {
            assert_eq!(offsets(&restarted.ask_forced(committed.clone())), &expected);
        }
        // The outcome is acknowledged, and its record is shorter.
        world.ask(Request::Forget { txn: txn(1) }).force();
        assert_eq!(offsets(&world.restart(world.log.len()).ask_forced(committed.clone())), &expected);
    }
}

#[test]
fn aborted_transaction_has_no_offsets() {
    let mut world = World::new();
    world.ask_forced(prepare(1, appending(1, 40)));
    assert!(offsets(&world.ask_forced(decide(1, Outcome::Aborted))).is_empty());
    assert!(offsets(&world.restart(2).ask_forced(decide(1, Outcome::Aborted))).is_empty());
}

#[test]
fn planted_bug_is_noticed() {
    assert_noticed(&[Bug::OffsetsForgotten], repeated_commit_returns_the_first_offset_also_after_a_restart);
    assert_noticed(
        &[Bug::OffsetsForgotten],
        vote_and_end_of_a_prepared_transaction_have_its_offsets_also_after_a_restart,
    );
}
