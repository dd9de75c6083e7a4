use model::ErrorKind;
use model::planted_bug::assert_noticed;

use super::plant::Bug;
use super::*;

fn opening(number: u64) -> Opening {
    Opening { number, nonce: number * 1000 }
}

fn forced_position(number: u64, position: u64) -> ForcedPosition {
    ForcedPosition { opening: opening(number), position }
}

/// A history with openings 1, 2, … that began at these positions.
fn history(from: &[u64]) -> OpeningHistory {
    let mut history = OpeningHistory::default();
    for (number, from) in (1..).zip(from) {
        history = history.with(opening(number), *from);
    }
    history
}

fn record(base: Option<u64>, claimed: Option<u64>, position: u64) -> Option<OpeningRecord> {
    Some(OpeningRecord { base: base.map(opening), claimed: claimed.map(opening), position })
}

fn ends_at(position: u64) -> LogState {
    LogState { position, has_lost: false }
}

/// The states of log and catalogue after each step of an opening: a crash may leave any of them.
fn crash_states(
    before: &OpeningHistory,
    at: Option<OpeningRecord>,
    position: u64,
) -> Vec<(OpeningHistory, Option<OpeningRecord>)> {
    let claim = before.claim(at, position, 7).unwrap();
    vec![
        (before.clone(), at),
        (before.clone(), Some(claim.claimed)),
        (claim.history.clone(), Some(claim.claimed)),
        (claim.history, Some(claim.confirmed)),
    ]
}

pub(crate) fn honest_crash_is_never_refused() {
    let mut states = vec![(OpeningHistory::default(), None)];
    for position in [0, 5, 5, 9] {
        states = states.iter().flat_map(|(log, at)| crash_states(log, *at, position)).collect();
    }
    assert_eq!(states.len(), 256);
    for (log, at) in states {
        let claim = log.claim(at, 9, 1).unwrap();
        assert!(claim.history.check(9, ForcedPosition { opening: claim.opening, position: 9 }).is_ok());
    }
}

pub(crate) fn older_copy_is_refused_in_every_state() {
    // A copy of the directory before an opening that was confirmed, and every state after a crash of the next one.
    let old = history(&[0, 5]);
    let new = old.with(opening(3), 9);
    let mut states = crash_states(&new, record(Some(3), None, 9), 12);
    states.push((new, record(Some(3), None, 9)));
    for (_, at) in states {
        assert!(matches!(old.claim(at, 9, 1), Err(OpeningRefusal::Older { .. })), "{at:?}");
    }
    assert!(matches!(
        OpeningHistory::default().claim(record(Some(3), None, 9), 0, 1),
        Err(OpeningRefusal::Older { .. })
    ));
}

pub(crate) fn copy_opened_under_the_same_number_is_refused() {
    let log = history(&[0, 5]);
    let other = Opening { number: 2, nonce: 1 };
    let confirmed = OpeningRecord { base: Some(other), claimed: None, position: 5 };
    let claimed = OpeningRecord { base: Some(opening(1)), claimed: Some(other), position: 5 };
    for at in [confirmed, claimed] {
        assert!(matches!(log.claim(Some(at), 9, 1), Err(OpeningRefusal::Superseded { .. })));
    }
    let seen = ForcedPosition { opening: other, position: 3 };
    assert!(matches!(log.check(9, seen), Err(OpeningRefusal::Superseded { .. })));
    let mut witnesses = Witnesses::default();
    witnesses.note(Subject::Brick(1), seen, 0);
    assert!(!witnesses.believes(Subject::Brick(1), opening(2)));
}

#[test]
fn log_that_an_older_catalogue_does_not_know_opens_once_that_loss_was_accepted() {
    let log = history(&[0, 5, 9]);
    for record in [None, record(Some(1), None, 3), record(Some(1), Some(2), 3)] {
        let begun = OpeningProcedure::begin_after_loss(&log, record, ends_at(12), 1).unwrap();
        let mut opening = begun.clone();
        assert!(opening.handle_done(true));
        let OpeningStep::Claim { from, to } = opening.step() else { panic!("{opening:?}") };
        assert_eq!((from, to.base, to.claimed.unwrap().number), (record, Some(log.last().unwrap()), 4));
    }
    let older = OpeningProcedure::begin_after_loss(&log, record(Some(4), None, 3), ends_at(12), 1).unwrap_err();
    assert!(matches!(older, OpeningRefusal::Older { .. }));
    let error = older.into_error("brick 7", "the catalogue says so");
    assert!(error.message().contains("the catalogue knows number 4. Put its newer directory back"), "{error}");
}

#[test]
fn older_catalogue_is_refused() {
    let log = history(&[0, 5]);
    for at in [None, record(Some(1), None, 3), record(None, Some(1), 0)] {
        assert!(matches!(log.claim(at, 9, 1), Err(OpeningRefusal::Unknown { .. })), "{at:?}");
    }
}

pub(crate) fn log_with_a_loss_that_nobody_accepted_is_refused() {
    // Its positions are above all that are known.
    let (log, known, position) = (history(&[0, 5]), record(Some(2), None, 5), 1 << 24);
    assert!(OpeningProcedure::begin(&log, known, LogState { position, has_lost: false }, 1).is_ok());
    for begin in [OpeningProcedure::begin, OpeningProcedure::begin_after_loss] {
        let refused = begin(&log, known, LogState { position, has_lost: true }, 1).unwrap_err();
        assert_eq!(refused, OpeningRefusal::Lost);
        let error = refused.into_error("brick 7", "the catalogue says so");
        assert!(error.message().contains("`mortar brick accept-loss --help`"), "{error}");
    }
}

pub(crate) fn log_below_the_position_of_the_record_is_refused() {
    let log = history(&[0, 5]);
    assert!(log.claim(record(Some(2), None, 9), 9, 1).is_ok());
    let refused = log.claim(record(Some(2), None, 10), 9, 1).unwrap_err();
    assert_eq!(refused, OpeningRefusal::Behind { seen: forced_position(2, 10), position: 9 });
    assert!(refused.to_string().ends_with("1 are missing"));
}

pub(crate) fn witnessed_positions_end_where_the_next_opening_begins() {
    let log = history(&[0, 5, 9]);
    for (number, position) in [(1, 5), (2, 9), (3, 20), (1, 0), (3, 0)] {
        assert!(log.check(20, forced_position(number, position)).is_ok(), "{number} {position}");
    }
    for (number, position) in [(1, 6), (2, 10), (3, 21)] {
        assert!(
            matches!(log.check(20, forced_position(number, position)), Err(OpeningRefusal::Behind { .. })),
            "{number}"
        );
    }
    assert!(matches!(log.check(20, forced_position(4, 0)), Err(OpeningRefusal::Superseded { .. })));
}

#[test]
fn announced_claim_that_never_served_is_no_witness_against_the_next() {
    let log = history(&[0, 5]);
    let first = log.claim(record(Some(2), None, 5), 9, 1).unwrap();
    // It crashes after it was announced at position 9.
    let seen = ForcedPosition { opening: first.opening, position: 9 };
    let second = log.claim(Some(first.claimed), 9, 2).unwrap();
    assert_eq!((first.opening.number, second.opening.number), (3, 4));
    assert!(second.history.check(9, seen).is_ok());
    assert!(second.history.check(9, ForcedPosition { position: 10, ..seen }).is_err());
}

#[test]
fn history_is_bounded_and_still_refuses_old_positions() {
    let from: Vec<u64> = (0..200).map(|number| number * 10).collect();
    let log = history(&from);
    assert_eq!(log.starts.len(), MAX_STARTS);
    let oldest = log.starts[0];
    assert!(log.check(5000, forced_position(1, oldest.from)).is_ok());
    assert!(log.check(5000, forced_position(1, oldest.from + 1)).is_err());
}

#[test]
fn accepted_loss_is_not_refused_again() {
    let log = history(&[0, 5]);
    let known = record(Some(4), None, 30);
    assert!(log.claim(known, 9, 1).is_err());
    let accepted = log.accept_loss(&[opening(4), opening(6)], 9, 1);
    let base = accepted.last().unwrap();
    assert_eq!(base.number, 7);
    let claimed = OpeningRecord { base: None, claimed: Some(base), position: 9 };
    let claim = accepted.claim(Some(claimed), 9, 2).unwrap();
    for seen in [forced_position(2, 30), forced_position(4, 30), forced_position(6, 1)] {
        assert!(claim.history.check(9, seen).is_ok(), "{seen:?}");
    }
    let later = ForcedPosition { opening: claim.opening, position: 10 };
    assert!(claim.history.check(9, later).is_err());
    assert_eq!(OpeningHistory::decode(&claim.history.encode()).unwrap(), claim.history);
}

pub(crate) fn process_believes_only_the_newest_opening_that_it_knows() {
    assert!(believes(opening(2), opening(2)) && believes(opening(2), opening(3)));
    assert!(!believes(opening(2), opening(1)));
    assert!(record(Some(2), Some(3), 0).unwrap().check_current(opening(2)).is_err());
    assert!(record(Some(2), None, 0).unwrap().check_current(opening(2)).is_ok());
    assert!(record(None, None, 0).unwrap().check_current(opening(2)).is_ok());
}

pub(crate) fn witness_keeps_the_highest_position() {
    let (mut witnesses, brick) = (Witnesses::default(), Subject::Brick(3));
    assert!(witnesses.believes(brick, opening(1)));
    assert!(witnesses.note(brick, forced_position(1, 5), 1));
    assert!(!witnesses.note(brick, forced_position(1, 4), 2));
    assert!(!witnesses.note(brick, forced_position(1, 5), 3));
    assert_eq!(witnesses.of(brick), [WitnessedPosition { forced: forced_position(1, 5), at_us: 1 }]);
    assert!(witnesses.note(brick, forced_position(2, 0), 4));
    assert!(!witnesses.note(brick, forced_position(1, 3), 5));
    assert!(!witnesses.note(brick, ForcedPosition { opening: Opening { number: 2, nonce: 1 }, position: 9 }, 6));
    assert!(!witnesses.believes(brick, opening(1)));
    witnesses.forget(brick);
    assert!(witnesses.believes(brick, opening(1)));
}

#[test]
fn claim_bars_earlier_openings_and_hides_no_position() {
    let (mut witnesses, brick) = (Witnesses::default(), Subject::Brick(3));
    witnesses.note(brick, forced_position(1, 50), 0);
    witnesses.note_claim(brick, opening(2));
    witnesses.note_claim(brick, Opening { number: 2, nonce: 1 });
    assert!(!witnesses.believes(brick, opening(1)) && witnesses.believes(brick, opening(2)));
    assert_eq!(positions(&witnesses, brick), [forced_position(1, 50)]);
    witnesses.note(brick, forced_position(1, 60), 0);
    assert!(!witnesses.believes(brick, opening(1)), "a late position of the earlier opening changes no belief");
    assert_eq!(positions(&witnesses, brick), [forced_position(1, 60)]);
    witnesses.note(brick, forced_position(3, 60), 0);
    assert!(!witnesses.believes(brick, opening(2)));
}

fn positions(witnesses: &Witnesses, of: Subject) -> Vec<ForcedPosition> {
    witnesses.of(of).iter().map(|seen| seen.forced).collect()
}

/// Two connections of a process end at different times: the log is compared with what the first one saw while the second one ends.
pub(crate) fn positions_seen_during_a_comparison_are_kept() {
    let (mut witnesses, brick) = (Witnesses::default(), Subject::Brick(3));
    witnesses.note(brick, forced_position(5, 900), 0);
    let compared = witnesses.of(brick).to_vec();
    witnesses.note(brick, forced_position(5, 1_000), 0);
    witnesses.note(brick, forced_position(6, 950), 0);
    witnesses.drop_compared(brick, opening(6), &compared);
    assert_eq!(positions(&witnesses, brick), [forced_position(5, 1_000), forced_position(6, 950)]);
    let compared = witnesses.of(brick).to_vec();
    witnesses.drop_compared(brick, opening(6), &compared);
    assert_eq!(positions(&witnesses, brick), [forced_position(6, 950)]);
}

/// A witness that was not asked when the log was opened again knows the later opening from the catalogue.
pub(crate) fn earlier_positions_are_kept_until_the_log_is_compared() {
    let (mut witnesses, brick) = (Witnesses::default(), Subject::Brick(3));
    witnesses.note(brick, forced_position(1, 57), 0);
    witnesses.note(brick, forced_position(2, 40), 0);
    assert_eq!(positions(&witnesses, brick), [forced_position(1, 57), forced_position(2, 40)]);
    witnesses.note(brick, forced_position(1, 58), 0);
    assert_eq!(
        positions(&witnesses, brick),
        [forced_position(1, 58), forced_position(2, 40)],
        "noted when the connection ended"
    );
    let older = history(&[0, 40]);
    let refused = positions(&witnesses, brick).into_iter().filter(|seen| older.check(60, *seen).is_err());
    assert_eq!(refused.collect::<Vec<_>>(), [forced_position(1, 58)]);
    let all = witnesses.of(brick).to_vec();
    witnesses.drop_compared(brick, opening(2), &all);
    assert_eq!(positions(&witnesses, brick), [forced_position(2, 40)]);
    let all = witnesses.of(brick).to_vec();
    witnesses.drop_compared(brick, opening(9), &all);
    assert_eq!(positions(&witnesses, brick), [forced_position(2, 40)], "the last one says what to believe");
    for number in 3..20 {
        witnesses.note(brick, forced_position(number, 100), 0);
    }
    let kept = positions(&witnesses, brick);
    assert_eq!(
        (kept.len(), kept[0], kept[7]),
        (MAX_WITNESSED_OPENINGS, forced_position(2, 40), forced_position(19, 100))
    );
}

#[test]
fn rows_are_the_same_after_encoding_and_damaged_ones_are_refused() {
    let log = history(&[0, 5, 9]);
    assert_eq!(OpeningHistory::decode(&log.encode()).unwrap(), log);
    let mut witnesses = Witnesses::default();
    witnesses.note(Subject::Catalogue, forced_position(4, 77), 9);
    witnesses.note(Subject::Brick(u32::MAX), forced_position(1, u64::MAX), u64::MAX);
    assert_eq!(Witnesses::decode(&witnesses.encode()).unwrap(), witnesses);
    let bytes = log.encode();
    for damaged in
        [&bytes[..0], &bytes[..1], &bytes[..9], &bytes[..bytes.len() - 1], &[&bytes[..], &bytes[1..]].concat()]
    {
        assert_eq!(OpeningHistory::decode(damaged).unwrap_err().kind(), ErrorKind::Corrupt, "{damaged:?}");
    }
    // Numbers after which no other could follow.
    let vast = history(&[0]).accept_loss(&[Opening { number: limits::COUNT, nonce: 1 }], 5, 2);
    assert_eq!(OpeningHistory::decode(&vast.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut witnesses = Witnesses::default();
    let opening = Opening { number: limits::COUNT + 1, nonce: 1 };
    witnesses.note(Subject::Brick(1), ForcedPosition { opening, position: 5 }, 9);
    assert_eq!(Witnesses::decode(&witnesses.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    let newer: Vec<u8> = [2].into_iter().chain(bytes[1..].iter().copied()).collect();
    assert_eq!(OpeningHistory::decode(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut wide = witnesses.encode();
    wide[1 + 7] = 1;
    assert_eq!(Witnesses::decode(&wide).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(OpeningHistory::decode(&vec![1; 1 + 24 * (MAX_STARTS + 2)]).is_err());
}

/// Makes tests of functions that planted bugs name.
macro_rules! tests {
    ($($name:ident)*) => {
        mod named {
            $(#[test]
            fn $name() {
                super::$name();
            })*
        }
    };
}

tests! {
    honest_crash_is_never_refused
    older_copy_is_refused_in_every_state
    copy_opened_under_the_same_number_is_refused
    log_below_the_position_of_the_record_is_refused
    log_with_a_loss_that_nobody_accepted_is_refused
    witnessed_positions_end_where_the_next_opening_begins
    process_believes_only_the_newest_opening_that_it_knows
    witness_keeps_the_highest_position
    earlier_positions_are_kept_until_the_log_is_compared
}

#[test]
fn planted_bugs_in_the_rules_are_noticed() {
    let noticed: [(Bug, fn()); 9] = [
        (Bug::NonceIgnored, copy_opened_under_the_same_number_is_refused),
        (Bug::AnyBase, older_copy_is_refused_in_every_state),
        (Bug::RecordedPositionIgnored, log_below_the_position_of_the_record_is_refused),
        (Bug::LossNotAccepted, log_with_a_loss_that_nobody_accepted_is_refused),
        (Bug::PositionIgnored, witnessed_positions_end_where_the_next_opening_begins),
        (Bug::OldOpeningBelieved, process_believes_only_the_newest_opening_that_it_knows),
        (Bug::WitnessForgotten, witness_keeps_the_highest_position),
        (Bug::EarlierOpeningForgotten, earlier_positions_are_kept_until_the_log_is_compared),
        (Bug::ComparedUnseen, positions_seen_during_a_comparison_are_kept),
    ];
    for (bug, test) in noticed {
        assert_noticed(&[bug], test);
    }
}
