//! A request that conflicts with an outcome in the log is handled again when that is durable.

use model::planted_bug::assert_noticed;

use super::*;

/// A world in which a transaction is committed by a record that is not durable, and its read and written objects.
fn decided_world(outcome: Outcome) -> World {
    let mut world = World::new();
    world.ask_forced(prepare(10, part(&[(1, 0)], &[2])));
    world.ask(Request::Decide { txn: txn(10), outcome });
    world
}

fn committed_world() -> World {
    decided_world(Outcome::Committed(HlcTimestamp::at(1_010)))
}

/// The answers to a request before and after the outcome is durable.
fn answers(world: &mut World, request: Request<u64>) -> (Vec<Answer>, Vec<Answer>) {
    let before = world.ask(request).take_answers();
    world.force();
    // What the request appended becomes durable now.
    (before, world.force().take_answers())
}

fn own_read(oid_slot: u16) -> Part<u64> {
    let read = Read { oid: oid(oid_slot), seen: ReadVersion::Written(txn(10)) };
    Part { reads: [read].into_iter().collect(), ..part(&[], &[oid_slot]) }
}

fn next_transaction_waits_for_the_record() {
    // It replaces what the first one wrote, or has read, or it has read what the first one wrote.
    for next in [part(&[], &[2]), part(&[], &[1]), own_read(2)] {
        for request in [commit(20, next.clone()), prepare(20, next.clone())] {
            let (before, after) = answers(&mut committed_world(), request);
            assert_eq!(before, []);
            let is_taken_in = |answer: &Answer| match answer {
                Answer::Prepared { txn: of, .. } => *of == txn(20),
                Answer::Ended { txn: of, outcome: Outcome::Committed(_), .. } => *of == txn(20),
                _ => false,
            };
            assert!(after.iter().any(is_taken_in), "{after:?}");
        }
    }
}

#[test]
fn transaction_that_follows_a_committed_one_is_not_refused() {
    next_transaction_waits_for_the_record();
    assert_noticed(&[Bug::CommittedRefuses, Bug::PostponedForgotten], next_transaction_waits_for_the_record);
}

#[test]
fn check_waits_for_a_committed_writer_of_what_it_read() {
    let reads = own_read(2).reads;
    let check = Request::Check { txn: txn(20), reads, at: HlcTimestamp::at(1_020) };
    let (before, after) = answers(&mut committed_world(), check);
    assert_eq!(before, []);
    assert!(after.iter().any(|answer| matches!(answer, Answer::Checked { verdict: Ok(()), .. })), "{after:?}");
}

#[test]
fn aborted_transaction_refuses_no_later_one() {
    let mut world = decided_world(Outcome::Aborted);
    let (before, after) = answers(&mut world, commit(20, part(&[(2, 0)], &[2])));
    assert_eq!(before, []);
    assert!(after.iter().any(|answer| matches!(answer, Answer::Ended { txn: of, .. } if *of == txn(20))), "{after:?}");
}

#[test]
fn outdated_read_is_refused_at_once() {
    let mut world = committed_world();
    world.ask(commit(20, part(&[(2, 0)], &[3])));
    assert_eq!(world.log.len(), 3, "the refusal is in the log");
    assert!(world.force().take_answers().iter().any(|answer| matches!(answer, Answer::Refused { .. })));
}

#[test]
fn undecided_transaction_is_not_waited_for() {
    let mut world = World::new();
    world.ask_forced(prepare(10, part(&[], &[2])));
    assert!(matches!(refusal_of(&world.ask_forced(commit(20, part(&[], &[2])))), Refusal::Conflict(_)));
    assert!(matches!(refusal_of(&world.ask_forced(prepare(21, part(&[], &[2])))), Refusal::Conflict(_)));
}

#[test]
fn repeated_request_is_postponed_once_and_an_abort_ends_it() {
    let mut world = committed_world();
    for _ in 0..3 {
        world.ask(commit(20, part(&[], &[2])));
    }
    world.force();
    let ended = |answers: &[Answer]| {
        answers.iter().filter(|answer| matches!(answer, Answer::Ended { txn: of, .. } if *of == txn(20))).count()
    };
    assert_eq!(ended(&world.force().take_answers()), 1);

    let mut world = committed_world();
    world.ask(commit(20, part(&[], &[2])));
    world.ask(Request::Decide { txn: txn(20), outcome: Outcome::Aborted });
    world.force();
    let answers = world.force().take_answers();
    assert_eq!(ended(&answers), 0, "{answers:?}");
    assert_eq!(world.participant.outcome(txn(20)), Some(Outcome::Aborted));
}

#[test]
fn request_is_postponed_once() {
    let mut world = committed_world();
    for ms in 20..24 {
        world.ask(commit(ms, part(&[], &[2])));
    }
    world.force().force().force();
    let answers = world.take_answers();
    let is_refused =
        |ms| answers.iter().any(|answer| matches!(answer, Answer::Refused { txn: of, .. } if *of == txn(ms)));
    let written: Vec<TxnId> = world.changed.iter().map(|change| change.txn).collect();
    assert_eq!(written, [10, 20].map(txn));
    assert!((21..24).all(is_refused), "they would else wait for ever: {answers:?}");
}

#[test]
fn repeated_request_is_answered_to_its_last_sender() {
    let mut world = committed_world();
    let request = || commit(20, part(&[], &[2]));
    world.ask(request());
    world.participant.handle("other", request(), HlcTimestamp::ZERO, world.now_ms, &world.stored).unwrap();
    world.force().force();
    let to: Vec<&str> = world.answers.iter().filter(|(_, answer)| answer.txn() == txn(20)).map(|(to, _)| *to).collect();
    assert_eq!(to, ["other"]);
}
