//! When a node is sealed that changes while it is copied.

use super::super::attempt::{Action, Attempt, Event};
use super::*;

/// The number of the answer after which the node is sealed. After each answer the old brick has so many rows that it has not sent.
fn answers_before_seal(unsent: impl Fn(u64) -> u64) -> u64 {
    let (mut attempt, _) = Attempt::begin((NODE, NEW), 1, (None, 0), MoveLimits::SMALL, 0);
    attempt.handle(Event::Done, 0).unwrap();
    let mut action = attempt.handle(Event::Removed(0), 0).unwrap();
    for answer in 1.. {
        while let Action::Rest(_) = action {
            action = attempt.handle(Event::Done, 0).unwrap();
        }
        assert!(matches!(action, Action::Ask(_)), "{action:?}");
        let rows = vec![(rows::usage_key(NODE).to_vec().into(), Some("x".into()))];
        let copied = CopiedRows { rows, changed: unsent(answer), ..CopiedRows::default() };
        attempt.handle(Event::Answered(copied), 0).unwrap();
        action = attempt.handle(Event::Done, 0).unwrap();
        if let Action::Seal = action {
            return answer;
        }
    }
    unreachable!()
}

/// After the seal no brick serves the node until the destination has the remaining rows.
#[test]
fn node_is_sealed_when_little_is_left_or_it_changes_as_fast_as_it_is_copied() {
    assert_eq!(answers_before_seal(|_| 0), 1);
    assert_eq!(answers_before_seal(|answer| 1_000 - answer), 1_000, "the rows become fewer");
    let steady = answers_before_seal(|_| 1_000);
    assert!(steady < 30, "{steady}");
    let wavering = answers_before_seal(|answer| 1_000 + answer % 2);
    assert!(steady < wavering && wavering < 2 * steady + 2, "{wavering}");
}
