mod appends;
mod entries;
mod postponing;

use std::collections::BTreeMap;

use model::{ClassId, Oid, SpaceId};

use super::*;
use crate::clock::LEAD_MS;
use crate::commit::client_mark::ClientMark;
use crate::ident::ClientId;
use crate::page_cache::ObjectState;
use crate::validate::WindowLimits;
use crate::validate::{Cause, Read, ReadVersion};

const PAGE: PageId = PageId { space: SpaceId(1), node: NodeId(3), number: 7 };
const HERE: NodeId = NodeId(3);
const THERE: NodeId = NodeId(4);
const SETTINGS: ParticipantSettings =
    ParticipantSettings { node: HERE, moves: 0, skew_ms: 50, windows: WindowLimits { page: 100, retained: 0 } };

fn oid(slot: u16) -> Oid {
    Oid::new(ClassId::NONE, PAGE, slot)
}

fn txn(ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(1) }
}

fn part(reads: &[(u16, u64)], writes: &[u16]) -> Part<u64> {
    let read = |(slot, position): &(u16, u64)| Read { oid: oid(*slot), seen: ReadVersion::At(at(*position)) };
    Part {
        reads: reads.iter().map(read).collect(),
        writes: writes.iter().map(|slot| (oid(*slot), ObjectState::Value(1))).collect(),
        ..Part::default()
    }
}

fn touching(slots: &[u16]) -> Part<u64> {
    Part { touches: slots.iter().map(|slot| oid(*slot)).collect(), ..Part::default() }
}

fn at(position: u64) -> Version {
    Version { moves: 0, position }
}

/// A participant with its log and its stored pages.
#[derive(Clone)]
struct World {
    participant: Participant<&'static str, u64>,
    log: Vec<Record<u64>>,
    stored: BTreeMap<PageId, Version>,
    changed: Vec<Invalidation>,
    answers: Vec<(&'static str, Answer)>,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        Self {
            participant: Participant::new(SETTINGS),
            log: Vec::new(),
            stored: BTreeMap::new(),
            changed: Vec::new(),
            answers: Vec::new(),
            now_ms: 1000,
        }
    }

    fn drain(&mut self) {
        let mut again = Vec::new();
        for output in self.participant.outputs() {
            match output {
                Output::Append(position, record) => {
                    self.log.push(record);
                    assert_eq!(position, self.log.len() as u64);
                }
                Output::RemoveRows(_) | Output::RemoveMarks(_) => {}
                Output::Answer(to, answer) => self.answers.push((to, answer)),
                Output::Again(from, request) => again.push((from, request)),
                Output::Changed(invalidation, _) => {
                    self.stored.insert(invalidation.page, invalidation.version);
                    self.changed.push(invalidation);
                }
            }
        }
        for (from, request) in again {
            self.participant.handle(from, request, HlcTimestamp::ZERO, self.now_ms, &self.stored).unwrap();
            self.drain();
        }
        self.participant.check_invariants().unwrap();
    }

    /// Sends a request without forcing the log.
    fn ask(&mut self, request: Request<u64>) -> &mut Self {
        self.participant.handle("peer", request, HlcTimestamp::ZERO, self.now_ms, &self.stored).unwrap();
        self.drain();
        self
    }

    fn force(&mut self) -> &mut Self {
        self.force_to(self.log.len())
    }

    /// Makes this many records durable.
    fn force_to(&mut self, records: usize) -> &mut Self {
        self.participant.handle_forced(records as u64, &self.stored);
        self.drain();
        self
    }

    /// Takes the answers since the last call.
    fn take_answers(&mut self) -> Vec<Answer> {
        self.answers.drain(..).map(|(_, answer)| answer).collect()
    }

    fn ask_forced(&mut self, request: Request<u64>) -> Vec<Answer> {
        self.ask(request).force().take_answers()
    }

    /// The participant after a crash that leaves this many records.
    fn restart(&self, records: usize) -> Self {
        let mut world = Self { now_ms: self.now_ms, ..Self::new() };
        for (position, record) in (1..).zip(&self.log[..records]) {
            world.log.push(record.clone());
            if let Some(change) = world.participant.recover(at(position), record.clone()) {
                world.stored.extend(change.pages().into_keys().map(|page| (page, at(position))));
            }
        }
        world.participant.finish_recovery(records as u64);
        world.participant.check_invariants().unwrap();
        world
    }
}

fn prepare(ms: u64, part: Part<u64>) -> Request<u64> {
    Request::Prepare { txn: txn(ms), participants: vec![HERE, THERE], part }
}

fn commit(ms: u64, part: Part<u64>) -> Request<u64> {
    Request::Commit { txn: txn(ms), part }
}

fn decide(ms: u64, outcome: Outcome) -> Request<u64> {
    Request::Decide { txn: txn(ms), outcome }
}

fn proposal(answers: &[Answer]) -> HlcTimestamp {
    match answers {
        [Answer::Prepared { proposal, .. }] => *proposal,
        other => panic!("{other:?}"),
    }
}

fn outcome_of(answers: &[Answer]) -> (Outcome, Option<Version>) {
    match answers {
        [Answer::Ended { outcome, version, .. }] => (*outcome, *version),
        other => panic!("{other:?}"),
    }
}

fn refusal_of(answers: &[Answer]) -> Refusal {
    match answers {
        [Answer::Refused { why, .. }] => *why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_output_before_it_is_durable() {
    let mut world = World::new();
    assert_eq!(world.ask(commit(1, part(&[], &[1, 2]))).take_answers(), []);
    assert!(world.changed.is_empty());
    // Its locks conflict already.
    let answers = world.ask(commit(2, part(&[(1, 0)], &[]))).take_answers();
    assert_eq!(answers, []);
    let answers = world.force().take_answers();
    assert_eq!(outcome_of(&answers[..1]).1, Some(at(1)));
    assert!(
        matches!(answers[1], Answer::Refused { why: Refusal::Conflict(conflict), .. } if conflict.cause == Cause::Held(txn(1)))
    );
    assert_eq!((world.changed.len(), world.changed[0].version), (1, at(1)));
    // Now it has ended and can be read at its version.
    assert_eq!(outcome_of(&world.ask_forced(commit(3, part(&[(1, 1)], &[1])))).1, Some(at(3)));
}

#[test]
fn prepared_transaction_is_applied_when_its_outcome_is_durable() {
    let mut world = World::new();
    let proposed = proposal(&world.ask_forced(prepare(1, part(&[(5, 0)], &[1]))));
    assert!(world.changed.is_empty());
    let later = HlcTimestamp::at(1040);
    assert_eq!(world.ask(decide(1, Outcome::Committed(later))).take_answers(), []);
    assert_eq!(outcome_of(&world.force().take_answers()), (Outcome::Committed(later), Some(at(2))));
    assert_eq!(world.changed[0].timestamp, later);
    // The clock has learned the commit's timestamp.
    assert!(proposal(&world.ask_forced(prepare(2, part(&[], &[9])))) > later && later > proposed);
}

/// The client may have heard of the commit before it is durable everywhere (C1).
#[test]
fn write_of_a_shared_transaction_is_unsettled_until_its_outcome_is_durable() {
    let mut world = World::new();
    let unsettled = |world: &World| [1, 2, 3].map(|slot| world.participant.is_unsettled(oid(slot)));
    world.ask(prepare(1, part(&[(2, 0)], &[1])));
    assert_eq!(unsettled(&world), [true, false, false], "a read is none");
    world.force();
    assert_eq!(unsettled(&world.restart(1)), [true, false, false]);
    world.ask(decide(1, Outcome::Committed(HlcTimestamp::at(1040))));
    assert_eq!(unsettled(&world), [true, false, false]);
    world.force();
    assert_eq!((unsettled(&world), world.participant.has_prepared()), ([false; 3], false));
    // A transaction with one participant is acknowledged when it is durable.
    world.ask(commit(2, part(&[], &[3])));
    assert_eq!(unsettled(&world), [false; 3]);
}

#[test]
fn repeated_message_gets_the_first_answer() {
    let mut world = World::new();
    let first = world.ask_forced(prepare(1, part(&[], &[1])));
    world.now_ms += 500;
    assert_eq!(world.ask_forced(prepare(1, part(&[], &[1]))), first);
    let done = world.ask_forced(decide(1, Outcome::Committed(proposal(&first))));
    assert_eq!(world.ask_forced(decide(1, Outcome::Committed(proposal(&first)))), done);
    assert_eq!(world.ask_forced(prepare(1, part(&[], &[1]))), done);
    assert_eq!((world.changed.len(), world.log.len()), (1, 2));
}

/// ATTACK: a participant once repeated votes, and answered "unknown" to a coordinator that finished the transaction.
#[test]
fn refusal_persists_over_a_restart() {
    let mut world = World::new();
    world.ask_forced(commit(1, part(&[], &[1])));
    assert!(matches!(refusal_of(&world.ask_forced(prepare(2, part(&[(1, 0)], &[1])))), Refusal::Conflict(_)));
    let mut again = world.restart(world.log.len());
    assert_eq!(refusal_of(&again.ask_forced(prepare(2, part(&[(1, 1)], &[1])))), Refusal::Aborted);
}

#[test]
fn question_about_an_unknown_transaction_aborts_it() {
    let mut world = World::new();
    assert_eq!(world.ask(Request::Ask { txn: txn(1), round: 0 }).take_answers(), []);
    assert_eq!(refusal_of(&world.force().take_answers()), Refusal::Aborted);
    assert_eq!(refusal_of(&world.ask_forced(prepare(1, part(&[], &[1])))), Refusal::Aborted);
    assert_eq!(refusal_of(&world.restart(1).ask_forced(prepare(1, part(&[], &[1])))), Refusal::Aborted);
}

#[test]
fn writes_before_a_move_keep_their_version() {
    let mut world = World::new();
    let first = outcome_of(&world.ask_forced(commit(1, part(&[], &[1]))));
    assert_eq!(first.1, Some(at(1)));
    let settings =
        ParticipantSettings { node: HERE, moves: 1, skew_ms: 1_000, windows: WindowLimits { page: 10, retained: 0 } };
    let mut moved = World { participant: Participant::new(settings), ..World::new() };
    for (position, record) in (1..).zip(&world.log) {
        moved.log.push(record.clone());
        let _ = moved.participant.recover(at(position), record.clone());
    }
    moved.participant.finish_recovery(world.log.len() as u64);
    assert_eq!(outcome_of(&moved.ask_forced(commit(1, part(&[], &[1])))), first);
    let next = outcome_of(&moved.ask_forced(commit(2, part(&[], &[2]))));
    assert_eq!(next.1.map(|version| version.moves), Some(1));
}

#[test]
fn prepared_transaction_holds_its_objects_over_a_restart() {
    let mut world = World::new();
    let answers = world.ask_forced(prepare(1, part(&[(5, 0)], &[1])));
    let mut world = world.restart(1);
    assert_eq!(world.participant.prepared_txns().count(), 1);
    assert!(matches!(refusal_of(&world.ask_forced(commit(2, part(&[], &[5])))), Refusal::Conflict(_)));
    assert!(matches!(refusal_of(&world.ask_forced(commit(3, part(&[(1, 0)], &[])))), Refusal::Conflict(_)));
    assert_eq!(world.ask_forced(Request::Ask { txn: txn(1), round: 0 }), answers);
    world.ask_forced(decide(1, Outcome::Aborted));
    assert!(world.changed.is_empty());
    assert_eq!(outcome_of(&world.ask_forced(commit(4, part(&[(5, 0)], &[1])))).1, Some(at(5)));
}

#[test]
fn outcome_is_forgotten_only_when_acknowledged_and_old() {
    let mut world = World::new();
    let proposed = proposal(&world.ask_forced(prepare(1, part(&[], &[1]))));
    let done = world.ask_forced(decide(1, Outcome::Committed(proposed)));
    world.participant.raise_horizon(HlcTimestamp::at(5));
    world.drain();
    assert_eq!(world.force().ask_forced(prepare(1, part(&[], &[1]))), done, "not all have acknowledged it");
    assert_eq!(world.participant.unacknowledged_txns().count(), 1);
    world.ask(Request::Forget { txn: txn(1) }).force();
    assert_eq!(refusal_of(&world.ask_forced(prepare(1, part(&[], &[1])))), Refusal::TooOld);
    assert_eq!(refusal_of(&world.restart(world.log.len()).ask_forced(prepare(1, part(&[], &[1])))), Refusal::TooOld);
    assert_eq!(world.changed.len(), 1);
}

/// A participant that is away for long leaves many unacknowledged outcomes behind.
#[test]
fn forgetting_outcomes_does_not_visit_unacknowledged_ones() {
    const LINGERING: u64 = 1_000;
    let mut world = World::new();
    for ms in 1..=LINGERING {
        let proposed = proposal(&world.ask_forced(prepare(ms, part(&[], &[ms as u16]))));
        world.ask_forced(decide(ms, Outcome::Committed(proposed)));
    }
    world.participant.raise_horizon(HlcTimestamp::at(LINGERING + 1));
    world.drain();
    world.force();
    let before = world.participant.visited.get();
    for ms in 1..=100 {
        world.ask(Request::Forget { txn: txn(ms) }).force();
    }
    assert_eq!(world.participant.unacknowledged_txns().count() as u64, LINGERING - 100);
    let visited = world.participant.visited.get() - before;
    assert!(visited < 1_000, "{visited} outcomes were visited to forget 100");
}

fn heard_request(ms: u64, open: &[u64]) -> Request<u64> {
    let open = open.iter().map(|ms| txn(*ms).start).collect();
    Request::Heard { txn: txn(ms), mark: ClientMark::new(txn(ms).start.next(), open).unwrap() }
}

#[test]
fn outcomes_that_a_client_has_heard_are_forgotten_and_never_executed_again() {
    let mut world = World::new();
    for ms in 1..=3 {
        world.ask_forced(commit(ms, part(&[], &[1])));
    }
    assert_eq!(world.ask_forced(heard_request(3, &[2])), [], "a mark is not answered");
    assert_eq!([1, 2, 3].map(|ms| world.participant.knows(txn(ms))), [false, true, false]);
    let length = world.log.len();
    world.ask_forced(heard_request(3, &[2]));
    world.ask_forced(heard_request(2, &[]));
    assert_eq!(world.log.len(), length, "a mark that says nothing new writes nothing");
    for world in [&mut world.restart(length), &mut world] {
        for ms in [1, 3] {
            assert_eq!(refusal_of(&world.ask_forced(commit(ms, part(&[], &[1])))), Refusal::TooOld);
            assert_eq!(refusal_of(&world.ask_forced(Request::Ask { txn: txn(ms), round: 1 })), Refusal::TooOld);
        }
        assert!(matches!(outcome_of(&world.ask_forced(commit(2, part(&[], &[1])))).0, Outcome::Committed(_)));
    }
    assert_eq!(world.changed.len(), 3, "each was executed once");
}

#[test]
fn mark_is_durable_before_what_it_lets_a_participant_answer() {
    let mut world = World::new();
    world.ask_forced(commit(1, part(&[], &[1])));
    world.ask(heard_request(1, &[])).ask(commit(1, part(&[], &[1])));
    assert_eq!(world.take_answers(), []);
    assert_eq!(refusal_of(&world.force().take_answers()), Refusal::TooOld);
}

#[test]
fn heard_outcome_is_kept_until_all_participants_have_it() {
    let mut world = World::new();
    let proposed = proposal(&world.ask_forced(prepare(1, part(&[], &[1]))));
    let prepared = world.log.len();
    world.ask_forced(heard_request(1, &[]));
    assert_eq!(world.log.len(), prepared, "it is prepared");
    let done = world.ask_forced(decide(1, Outcome::Committed(proposed)));
    world.ask_forced(heard_request(1, &[]));
    assert_eq!(world.ask_forced(prepare(1, part(&[], &[1]))), done);
    world.ask(Request::Forget { txn: txn(1) }).force();
    world.ask_forced(heard_request(1, &[]));
    assert_eq!(refusal_of(&world.ask_forced(prepare(1, part(&[], &[1])))), Refusal::TooOld);
}

#[test]
fn marks_of_clients_that_vanished_are_forgotten_by_the_horizon() {
    let mut world = World::new();
    world.ask_forced(commit(1, part(&[], &[1])));
    world.ask_forced(heard_request(1, &[]));
    let has_mark =
        |world: &World| world.participant.state_records().iter().any(|one| matches!(one, Record::Heard { .. }));
    assert!(has_mark(&world));
    world.participant.raise_horizon(HlcTimestamp::at(5));
    world.drain();
    world.force();
    assert!(!has_mark(&world));
    assert_eq!(refusal_of(&world.ask_forced(commit(1, part(&[], &[1])))), Refusal::TooOld);
    let length = world.log.len();
    world.participant.raise_horizon(HlcTimestamp::at(6));
    world.drain();
    assert_eq!(world.log.len(), length, "an idle participant writes nothing");
    assert!(!has_mark(&world.restart(length)));
}

#[test]
fn outcome_without_other_participants_is_forgotten_when_old() {
    let mut world = World::new();
    let done = world.ask_forced(commit(1, part(&[], &[1])));
    assert_eq!(world.ask_forced(commit(1, part(&[], &[1]))), done);
    world.participant.raise_horizon(HlcTimestamp::at(5));
    world.drain();
    assert_eq!(refusal_of(&world.force().ask_forced(commit(1, part(&[], &[1])))), Refusal::TooOld);
}

/// ATTACK: a log segment with a prepared record was freed once.
#[test]
fn copied_records_replace_the_freed_log() {
    let mut world = World::new();
    world.ask_forced(prepare(1, part(&[], &[1])));
    world.ask_forced(commit(2, part(&[], &[2])));
    world.ask_forced(commit(3, part(&[(2, 0)], &[])));
    let cut = world.log.len() as u64;
    world.participant.carry_forward(cut);
    world.drain();
    world.force();
    let mut again: Participant<&'static str, u64> = Participant::new(SETTINGS);
    for (position, record) in (cut + 1..).zip(&world.log[cut as usize..]) {
        assert_eq!(again.recover(at(position), record.clone()), None, "the pages are in the B-tree already");
    }
    again.finish_recovery(world.log.len() as u64);
    assert_eq!(again.prepared_txns().map(|(txn, _)| txn).collect::<Vec<_>>(), [txn(1)]);
    assert!(matches!(again.outcome(txn(2)), Some(Outcome::Committed(_))));
    assert_eq!(again.outcome(txn(3)), Some(Outcome::Aborted));
}

/// Found by the simulator when the record of an outcome did not contain the writes: the prepared record was freed
/// before the outcome was installed.
#[test]
fn outcome_needs_no_earlier_record() {
    let mut world = World::new();
    let first = proposal(&world.ask_forced(prepare(1, part(&[], &[1]))));
    world.ask_forced(prepare(2, part(&[], &[2])));
    let done = world.ask_forced(decide(1, Outcome::Committed(first)));
    world.ask_forced(decide(2, Outcome::Aborted));
    world.participant.carry_forward(2);
    world.drain();
    assert_eq!(world.log.len(), 4, "no freed record has to be appended again");
    let mut again = World { now_ms: world.now_ms, ..World::new() };
    again.log = world.log[..2].to_vec();
    for (position, record) in (3..).zip(&world.log[2..]) {
        again.log.push(record.clone());
        if let Some(change) = again.participant.recover(at(position), record.clone()) {
            assert_eq!((change.txn, change.writes), (txn(1), part(&[], &[1]).writes));
        }
    }
    again.participant.finish_recovery(4);
    assert_eq!(again.ask_forced(prepare(1, part(&[], &[1]))), done);
    assert_eq!(again.participant.outcome(txn(2)), Some(Outcome::Aborted));
    again.participant.raise_horizon(HlcTimestamp::at(5));
    again.drain();
    assert_eq!(again.participant.unacknowledged_txns().count(), 2, "the missing acknowledgements are known");
}

#[test]
fn older_datastore_transaction_wounds_a_younger_one_and_gets_its_lock() {
    let mut world = World::new();
    let lock =
        |ms| Request::Lock { txn: txn(ms), first: txn(ms), oid: oid(1), mode: crate::locks::LockMode::Exclusive };
    assert_eq!(
        world.ask_forced(lock(20)),
        [Answer::Locked { txn: txn(20), oid: oid(1), mode: crate::locks::LockMode::Exclusive }]
    );
    let answers = world.ask_forced(lock(10));
    assert!(
        answers.contains(&Answer::Locked { txn: txn(10), oid: oid(1), mode: crate::locks::LockMode::Exclusive }),
        "{answers:?}"
    );
    assert!(answers.contains(&Answer::Refused { txn: txn(20), why: Refusal::Aborted }), "{answers:?}");
    assert_eq!(refusal_of(&world.ask_forced(commit(20, part(&[], &[1])))), Refusal::Aborted);
    assert!(outcome_of(&world.ask_forced(commit(10, part(&[(1, 0)], &[1])))).1.is_some());
}

/// Found by the simulator: transactions that locked a set and inserted into it refused each other again and again.
#[test]
fn prepare_of_an_older_datastore_transaction_wounds_younger_readers_of_what_it_touches() {
    for older_is_retry in [false, true] {
        let mut world = World::new();
        let lock = |ms, first| {
            let mode = crate::locks::LockMode::Shared;
            Request::Lock { txn: txn(ms), first: txn(first), oid: oid(1), mode }
        };
        let (older, first) = if older_is_retry { (30, 10) } else { (10, 10) };
        world.ask_forced(lock(older, first));
        world.ask_forced(lock(20, 20));
        let insert = |ms| Request::Prepare {
            txn: txn(ms),
            participants: vec![HERE, THERE],
            part: Part { reads: part(&[(1, 0)], &[]).reads, ..touching(&[1]) },
        };
        assert!(matches!(refusal_of(&world.ask_forced(insert(20))), Refusal::Conflict(_)), "the other one is older");
        world.ask_forced(lock(21, 20));
        let answers = world.ask_forced(insert(older));
        assert!(answers.contains(&Answer::Refused { txn: txn(21), why: Refusal::Aborted }), "{answers:?}");
        assert!(matches!(answers.last(), Some(Answer::Prepared { .. })), "{answers:?}");
        for world in [&mut world.restart(world.log.len()), &mut world] {
            world.participant.check_invariants().unwrap();
            assert_eq!(refusal_of(&world.ask_forced(insert(21))), Refusal::Aborted);
        }
    }
}

#[test]
fn locks_of_a_silent_transaction_are_released() {
    let mut world = World::new();
    let lock = |ms| Request::Lock { txn: txn(ms), first: txn(ms), oid: oid(1), mode: crate::locks::LockMode::Shared };
    world.ask_forced(lock(10));
    assert!(matches!(refusal_of(&world.ask_forced(commit(20, part(&[], &[1])))), Refusal::Conflict(_)));
    let expires = world.participant.next_expiry().unwrap();
    world.participant.expire(expires);
    world.drain();
    world.force().take_answers();
    assert!(outcome_of(&world.ask_forced(commit(21, part(&[], &[1])))).1.is_some());
    assert_eq!(refusal_of(&world.ask_forced(lock(10))), Refusal::Aborted);
}

/// ATTACK: a promise was forgotten over a restart once.
#[test]
fn proposals_are_later_than_promises_also_after_a_restart() {
    let mut world = World::new();
    let promised = HlcTimestamp::at(1030);
    let check = Request::Check { txn: txn(1), reads: ReadList::default(), at: promised };
    assert_eq!(world.ask(check.clone()).take_answers(), [], "the bound is not durable");
    assert_eq!(world.force().take_answers(), [Answer::Checked { txn: txn(1), verdict: Ok(()) }]);
    assert_eq!(world.ask(check).take_answers().len(), 1, "the bound is durable");
    for mut world in [world.clone(), world.restart(1)] {
        assert!(proposal(&world.ask_forced(prepare(2, part(&[], &[1])))) > promised);
    }
}

/// A promise depends on its bound only. A driver may leave later records unwritten for a while if nothing waits for
/// them.
#[test]
fn promise_waits_for_its_bound_and_for_no_later_record() {
    let mut world = World::new();
    let check = |ms| Request::Check { txn: txn(ms), reads: ReadList::default(), at: HlcTimestamp::at(1030) };
    assert_eq!(world.ask(check(1)).take_answers(), []);
    let bound = world.log.len();
    world.ask(prepare(2, part(&[], &[1])));
    assert_eq!(world.ask(check(3)).take_answers(), []);
    let promised = [1, 3].map(|ms| Answer::Checked { txn: txn(ms), verdict: Ok(()) });
    assert_eq!(world.force_to(bound).take_answers(), promised);
}

/// ATTACK: a read-only transaction missed a commit with a later proposal once.
#[test]
fn reader_conflicts_with_every_prepared_writer() {
    let mut world = World::new();
    world.now_ms = 1040;
    world.ask_forced(prepare(1, part(&[], &[1])));
    let reads = part(&[(1, 0)], &[]).reads;
    let answers = world.ask_forced(Request::Check { txn: txn(2), reads, at: HlcTimestamp::at(1010) });
    assert!(
        matches!(answers[..], [Answer::Checked { verdict: Err(conflict), .. }] if conflict.cause == Cause::Held(txn(1)))
    );
}

#[test]
fn closed_timestamp_stays_below_undecided_transactions() {
    let mut world = World::new();
    let closed = world.participant.close_timestamp(1000);
    world.drain();
    assert_eq!(closed, HlcTimestamp::ZERO, "no bound is durable");
    world.force();
    assert!(world.participant.close_timestamp(1001) >= HlcTimestamp::at(1001));
    let proposed = proposal(&world.ask_forced(prepare(1, part(&[], &[1]))));
    assert!(world.participant.close_timestamp(2000) < proposed);
    world.ask(decide(1, Outcome::Committed(proposed)));
    assert!(world.participant.close_timestamp(2001) < proposed, "its outcome is not durable");
    world.force();
    assert!(world.participant.close_timestamp(2002) >= HlcTimestamp::at(2002));
}

#[test]
fn timestamp_too_far_ahead_changes_nothing() {
    let mut world = World::new();
    let ahead = HlcTimestamp::at(1051 + LEAD_MS);
    let refused = world.participant.handle("peer", commit(1, part(&[], &[1])), ahead, 1000, &BTreeMap::new());
    assert!(refused.is_err());
    world.drain();
    assert!(world.log.is_empty());
}

#[test]
fn log_that_begins_with_the_state_restores_the_same_state() {
    let mut world = World::new();
    world.ask_forced(prepare(1, part(&[], &[1])));
    let done = world.ask_forced(commit(2, part(&[], &[2])));
    world.ask_forced(commit(3, part(&[(2, 0)], &[])));
    let promised = world.participant.close_timestamp(5000);
    world.drain();
    world.force();
    let mut moved = World { now_ms: 1000, ..World::new() };
    for (position, record) in (1..).zip(world.participant.state_records()) {
        moved.log.push(record.clone());
        let version = Version { moves: 1, position };
        assert_eq!(moved.participant.recover(version, record), None, "pages are handed over separately");
    }
    moved.participant.finish_recovery(moved.log.len() as u64);
    moved.participant.check_invariants().unwrap();
    assert_eq!(moved.ask_forced(commit(2, part(&[], &[2]))), done);
    assert_eq!(refusal_of(&moved.ask_forced(commit(3, part(&[(2, 0)], &[])))), Refusal::Aborted);
    assert_eq!(moved.participant.prepared_txns().map(|(txn, _)| txn).collect::<Vec<_>>(), [txn(1)]);
    assert!(proposal(&moved.ask_forced(prepare(4, part(&[], &[9])))) > promised);
}

#[test]
fn touches_of_a_guard_do_not_conflict_and_are_seen_by_its_readers() {
    let mut world = World::new();
    let first = proposal(&world.ask_forced(prepare(1, touching(&[5]))));
    let second = proposal(&world.ask_forced(prepare(2, touching(&[5]))));
    // V2: the guard is held, also over a restart.
    for mut world in [world.clone(), world.restart(2)] {
        let refused = refusal_of(&world.ask_forced(commit(3, part(&[(5, 0)], &[]))));
        assert!(matches!(refused, Refusal::Conflict(conflict) if matches!(conflict.cause, Cause::Held(_))));
    }
    let reads = part(&[(5, 0)], &[]).reads;
    let answers = world.ask_forced(Request::Check { txn: txn(4), reads, at: HlcTimestamp::at(1_010) });
    assert!(matches!(answers[..], [Answer::Checked { verdict: Err(_), .. }]));
    assert_eq!(outcome_of(&world.ask_forced(decide(2, Outcome::Committed(second)))).1, Some(at(4)));
    world.ask_forced(decide(1, Outcome::Committed(first)));
    // Holders are informed as of a write. Only the version is stored.
    let changes: Vec<_> = world.changed.iter().map(|one| (one.version, one.slots.clone())).collect();
    assert_eq!(changes, [(at(4), [5].into()), (at(5), [5].into())]);
    // V1: the guard has changed, and so has its page after a restart.
    let log = world.log.len();
    for mut world in [world.clone(), world.restart(log)] {
        assert!(matches!(refusal_of(&world.ask_forced(commit(6, part(&[(5, 4)], &[])))), Refusal::Conflict(_)));
        assert!(matches!(outcome_of(&world.ask_forced(commit(7, part(&[(5, 5)], &[])))).0, Outcome::Committed(_)));
    }
}

#[test]
fn guards_read_by_a_prepared_transaction_cannot_be_touched() {
    let mut world = World::new();
    world.ask_forced(prepare(1, part(&[(5, 0)], &[1])));
    assert!(matches!(refusal_of(&world.ask_forced(commit(2, touching(&[5])))), Refusal::Conflict(_)));
    assert!(outcome_of(&world.ask_forced(commit(3, touching(&[6])))).1.is_some());
}

/// Two transactions that each search for members and then insert one miss each other's member (write skew).
#[test]
fn reading_and_touching_a_guard_excludes_others() {
    let mut world = World::new();
    let both = || Part { touches: [oid(5)].into(), ..part(&[(5, 0)], &[]) };
    world.ask_forced(prepare(1, both()));
    assert!(matches!(refusal_of(&world.ask_forced(commit(2, both()))), Refusal::Conflict(_)));
    assert!(matches!(refusal_of(&world.ask_forced(commit(3, touching(&[5])))), Refusal::Conflict(_)));
}

#[test]
fn touch_locks_are_shared_and_wait_for_readers() {
    use crate::locks::LockMode::{Exclusive, Shared, Touch};
    let mut world = World::new();
    let lock = |ms, mode| Request::Lock { txn: txn(ms), first: txn(ms), oid: oid(5), mode };
    let locked = |ms, mode| Answer::Locked { txn: txn(ms), oid: oid(5), mode };
    assert_eq!(world.ask_forced(lock(10, Touch)), [locked(10, Touch)]);
    assert_eq!(world.ask_forced(lock(11, Touch)), [locked(11, Touch)]);
    assert_eq!(world.ask_forced(lock(12, Shared)), [], "the youngest waits");
    world.ask_forced(commit(11, touching(&[5])));
    assert!(world.ask_forced(commit(10, touching(&[5]))).contains(&locked(12, Shared)));
    assert_eq!(world.ask_forced(lock(12, Touch)), [locked(12, Exclusive)], "reading and touching is exclusive");
}

/// Changes parts of blobs.
fn patching(reads: &[(u16, u64)], slots: &[u16]) -> Part<u64> {
    let writes = slots.iter().map(|slot| (oid(*slot), ObjectState::Changed(1))).collect();
    Part { writes, ..part(reads, &[]) }
}

#[test]
fn patch_of_a_blob_that_was_read_is_held_as_a_write() {
    let Footprint { reads, writes, patches, .. } = patching(&[(1, 0), (3, 0)], &[1, 2]).footprint();
    assert_eq!((reads, writes, patches), ([oid(3)].into(), [oid(1)].into(), [oid(2)].into()));
}

#[test]
fn patches_follow_each_other_before_they_are_durable_and_reads_wait() {
    let mut world = World::new();
    world.ask(commit(10, patching(&[], &[1]))).ask(commit(20, patching(&[], &[1])));
    assert_eq!((world.log.len(), world.take_answers()), (2, vec![]), "L1: nothing is shown");
    let lock = Request::Lock { txn: txn(40), first: txn(40), oid: oid(1), mode: LockMode::Shared };
    world.ask(lock);
    let others = [patching(&[(1, 0)], &[1]), part(&[(1, 0)], &[]), patching(&[], &[1])];
    for (ms, other) in (30..).zip(others) {
        let answers = world.clone().ask_forced(commit(ms, other));
        let is_conflict = |answer: &Answer| matches!(answer, Answer::Refused { txn: of, why: Refusal::Conflict(_) } if *of == txn(ms));
        assert!(answers.iter().any(is_conflict), "{ms}: {answers:?}");
    }
    (0..=world.log.len()).for_each(|records| drop(world.restart(records)));
    assert!(outcome_of(&world.force_to(1).take_answers()).1 == Some(at(1)));
    let answers = world.force().take_answers();
    assert!(
        matches!(answers[..], [Answer::Locked { .. }, Answer::Ended { .. }]),
        "the lock comes after both: {answers:?}"
    );
    assert_eq!(
        world.changed.iter().map(|change| (change.previous, change.version)).collect::<Vec<_>>(),
        [(at(0), at(1)), (at(1), at(2))]
    );
}

#[test]
fn patch_follows_a_prepared_one_when_its_outcome_is_logged() {
    let mut world = World::new();
    world.ask_forced(prepare(10, patching(&[], &[1])));
    assert!(matches!(refusal_of(&world.ask_forced(commit(20, patching(&[], &[1])))), Refusal::Conflict(_)));
    let outcome = Outcome::Committed(HlcTimestamp::at(1_010));
    world.ask(Request::Decide { txn: txn(10), outcome }).ask(prepare(21, patching(&[], &[1])));
    let is_prepared = |answer: &Answer| matches!(answer, Answer::Prepared { txn: of, .. } if *of == txn(21));
    // Whatever a crash leaves, the second one is prepared only if the first one is decided.
    for records in 0..=world.log.len() {
        let mut restarted = world.restart(records);
        let second = restarted.ask_forced(Request::Ask { txn: txn(21), round: 0 });
        let first = restarted.ask_forced(Request::Ask { txn: txn(10), round: 0 });
        let is_decided = matches!(first.last(), Some(Answer::Ended { .. }));
        assert!(is_decided || !second.iter().any(is_prepared), "{records} records: {first:?}, {second:?}");
    }
    assert!(world.force().take_answers().iter().any(is_prepared));
    assert!(matches!(refusal_of(&world.ask_forced(commit(30, patching(&[], &[1])))), Refusal::Conflict(_)));
}
