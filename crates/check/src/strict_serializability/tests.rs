use crate::Rule;
use crate::serial::{ExecutionShape, damage_history, execution, is_serializable, transactions};

use super::*;

fn right(text: &str) -> Summary {
    check(&transactions(text)).unwrap_or_else(|violation| panic!("{violation}"))
}

fn wrong(text: &str) -> Violation {
    check(&transactions(text)).expect_err("nothing was noticed")
}

/// The rule, and the numbers of the operations, the smallest first, then as they are in the cycle.
fn find_violation(text: &str) -> (Rule, Vec<u64>) {
    let violation = wrong(text);
    let mut numbers: Vec<u64> = violation.operations.iter().map(|operation| operation.number).collect();
    let smallest = numbers.iter().enumerate().min_by_key(|(_, number)| **number).map_or(0, |(at, _)| at);
    numbers.rotate_left(smallest);
    (violation.rule, numbers)
}

#[test]
fn one_after_the_other_is_right() {
    let summary = right(
        "T1 c1 0-5   x=[] x+1 y+2 x=[1]
         L2 c2 6-9   x=[1] y=[2] y+3
         R3 c1 12-13 y=[2,3] x=[1]
         T4 c2 14-15 x+4",
    );
    assert_eq!(summary.operations, 4);
    assert!(summary.relations >= 9, "{summary:?}");
}

#[test]
fn at_the_same_time_any_order_is_right() {
    right(
        "T1 c1 0-10 x+1
         T2 c2 0-10 x+2
         R3 c3 0-10 x=[]
         R4 c4 0-10 x=[2]
         R5 c5 0-10 x=[2,1]",
    );
    // Returned and invoked in the same millisecond: nobody knows which came first.
    right(
        "T1 c1 0-5 x+1
         R2 c2 5-9 x=[]",
    );
}

#[test]
fn what_is_unknown_may_have_happened_or_not_and_late() {
    right(
        "T1 c1 0-5? x+1 y+2
         R2 c2 6-7  x=[]
         T3 c1 8-9  x+3
         R4 c2 8-20 x=[3,1] y=[2]
         T5 c3 0-1? x+5",
    );
}

#[test]
fn an_unknown_that_was_seen_is_judged() {
    let text = "T1 c1 0-5?  x+1 y=[]
                T2 c2 6-7   y+2
                R3 c2 8-9   x=[] y=[2]
                R4 c3 10-11 x=[1]";
    // It found y empty, so it comes before T2, and R3 should have seen it.
    assert_eq!(find_violation(text), (Rule::G2, vec![1, 2, 3]));
    right(&text.replace("x=[1]", "x=[]"));
}

#[test]
fn dirty_write_is_noticed() {
    let violation = wrong(
        "T1 c1 0-9 x+1 y+1
         T2 c2 0-9 x+2 y+2
         R3 c3 10-11 x=[1,2]
         R4 c3 12-13 y=[2,1]",
    );
    assert_eq!(violation.rule, Rule::G0);
    let first = usize::from(violation.operations[0].number == 2);
    assert_eq!(violation.why[first], "T1 appended 1 to x, behind which T2 appended 2");
    assert_eq!(violation.why[1 - first], "T2 appended 2 to y, behind which T1 appended 1");
}

#[test]
fn dirty_read_is_noticed() {
    let text = "T1 c1 0-9! x+1
                R2 c2 0-9 x=[1]";
    assert_eq!(find_violation(text), (Rule::G1a, vec![1, 2]));
}

#[test]
fn an_intermediate_state_that_is_seen_is_noticed() {
    let text = "T1 c1 0-9 x+1 x+2
                R2 c2 0-9 x=[1]
                R3 c3 0-9 x=[1,2]";
    assert_eq!(find_violation(text), (Rule::G1b, vec![1, 2]));
}

#[test]
fn circular_information_is_noticed() {
    let text = "T1 c1 0-9 x+1 y=[2]
                T2 c2 0-9 y+2 x=[1]";
    assert_eq!(find_violation(text), (Rule::G1c, vec![1, 2]));
}

#[test]
fn fractured_read_is_noticed() {
    let text = "T1 c1 0-9 x+1 y+2
                R2 c2 0-9 x=[1] y=[]";
    assert_eq!(find_violation(text), (Rule::GSingle, vec![1, 2]));
}

#[test]
fn read_skew_is_noticed() {
    let text = "T1 c1 0-9 x+1
                T2 c1 10-19 x=[1] y+2
                R3 c2 0-19 x=[] y=[2]";
    assert_eq!(find_violation(text), (Rule::GSingle, vec![1, 2, 3]));
}

#[test]
fn lost_update_is_noticed() {
    let text = "T1 c1 0-9 x=[] x+1
                T2 c2 0-9 x=[] x+2";
    assert_eq!(find_violation(text), (Rule::G2, vec![1, 2]));
    assert_eq!(find_violation(&format!("{text}\nR3 c3 0-9 x=[2,1]")), (Rule::GSingle, vec![1, 2]));
    assert_eq!(find_violation(&format!("{text}\nT4 c4 0-9 x=[] x+4 x=[4]")).0, Rule::G2);
}

#[test]
fn write_skew_is_noticed() {
    // Two lists of which only one may have elements.
    let text = "T1 c1 0-9 x=[] y=[] x+1
                T2 c2 0-9 x=[] y=[] y+2";
    assert_eq!(find_violation(text), (Rule::G2, vec![1, 2]));
    // The item is read and never again: G2-item.
    assert_eq!(find_violation(&format!("{text}\nR3 c3 10-11 x=[1] y=[2]")), (Rule::G2, vec![1, 2]));
}

#[test]
fn long_fork_is_noticed() {
    let text = "T1 c1 0-9 x+1
                T2 c2 0-9 y+2
                R3 c3 0-9 x=[1] y=[]
                R4 c4 0-9 x=[] y=[2]";
    assert_eq!(find_violation(text), (Rule::G2, vec![1, 3, 2, 4]));
}

#[test]
fn a_cycle_over_what_nobody_read_is_noticed() {
    // Nobody read T3's append; whoever read all that was read comes before it.
    let text = "T1 c1 0-9 x+1 z=[]
                R2 c2 0-9 x=[1] y=[5]
                T3 c3 0-9 x+3 y+5";
    let violation = wrong(text);
    assert_eq!(violation.rule, Rule::GSingle);
    assert!(violation.why.contains(&"T2 read x without 3, which T3 appended".to_string()), "{violation}");
    let text = "T1 c1 0-9 x+1 y=[5]
                R2 c2 0-9 x=[1]
                T3 c3 0-9 x+3 y+5";
    let violation = wrong(text);
    assert_eq!(violation.rule, Rule::G1c);
    let says = "T1 appended 1 to x, which was read without 3, which T3 appended".to_string();
    assert!(violation.why.contains(&says), "{violation}");
}

#[test]
fn whoever_found_all_and_appended_more_comes_before_what_nobody_read() {
    let text = "T1 c1 0-9 x=[] x+1 y=[9]
                T2 c2 0-9 x+2 y+9";
    assert_eq!(find_violation(text), (Rule::G1c, vec![1, 2]));
    right(&text.replace("y=[9]", "y=[]"));
}

#[test]
fn a_read_that_cannot_be_repeated_is_noticed() {
    assert_eq!(find_violation("T1 c1 0-9 x+1\nR2 c2 0-9 x=[] x=[1]"), (Rule::Internal, vec![2]));
}

#[test]
fn own_appends_that_are_not_seen_or_too_early_are_noticed() {
    assert_eq!(find_violation("T1 c1 0-9 x+1 x=[]"), (Rule::Internal, vec![1]));
    assert_eq!(find_violation("T1 c1 0-9 x=[1] x+1"), (Rule::Internal, vec![1]));
    assert_eq!(find_violation("T1 c1 0-9 x+1 x+2\nR2 c2 0-9 x=[2,1]"), (Rule::G1b, vec![1, 2]));
    assert_eq!(find_violation("T1 c1 0-9 x+1 x+2\nT3 c1 9-9 x+3\nR2 c2 0-9 x=[2,1,3]"), (Rule::Internal, vec![1]));
    assert_eq!(find_violation("T1 c1 0-9 x+1 x+2\nR2 c2 0-9 x=[2]"), (Rule::Internal, vec![1]));
}

#[test]
fn what_is_done_twice_is_noticed() {
    assert_eq!(find_violation("T1 c1 0-9 x+1\nR2 c2 0-9 x=[1,1]"), (Rule::Duplicate, vec![1, 2]));
    assert_eq!(find_violation("T1 c1 0-9 x+1 x=[1,1]"), (Rule::Duplicate, vec![1]));
    let text = "T1 c1 0-9 x+1\nT2 c2 0-9 x+2\nR3 c3 0-9 x=[1,2,1]\nR4 c4 0-9 x=[1,2]";
    assert_eq!(find_violation(text), (Rule::Duplicate, vec![1, 3]));
}

#[test]
fn reads_that_do_not_begin_alike_are_noticed() {
    let text = "T1 c1 0-9 x+1\nT2 c2 0-9 x+2\nR3 c3 0-9 x=[1,2]\nR4 c4 0-9 x=[2]";
    assert_eq!(find_violation(text), (Rule::Incompatible, vec![3, 4]));
    assert_eq!(
        find_violation(&text.replace("T2 c2 0-9 x+2", "T2 c2 0-9 x+2\nT5 c5 0-9! x+5").replace("[2]", "[5]")).0,
        Rule::G1a
    );
    assert_eq!(find_violation("T1 c1 0-9 x+1\nR2 c2 0-9 x=[1,7]"), (Rule::Phantom, vec![2]));
}

#[test]
fn a_read_back_in_time_is_noticed() {
    let text = "T1 c1 0-5   x+1
                R2 c2 6-9   x=[]
                R3 c3 10-11 x=[1]";
    let violation = wrong(text);
    assert_eq!(violation.rule, Rule::RealTime);
    assert!(violation.why.contains(&"T1 returned at 5, before T2 was invoked at 6".to_string()), "{violation}");
    // By way of two others that have nothing to do with it.
    let text = "T1 c1 0-5   x+1
                T4 c4 6-7   y+1
                T5 c5 8-9   z+1
                R2 c2 10-12 x=[] z=[1]
                R3 c3 10-12 x=[1]";
    assert_eq!(find_violation(text), (Rule::RealTime, vec![1, 2]));
}

#[test]
fn writes_against_the_order_of_time_are_noticed() {
    let text = "T1 c1 0-5   x+1
                T2 c2 6-9   x+2
                R3 c3 10-11 x=[2,1]";
    assert_eq!(find_violation(text), (Rule::RealTime, vec![1, 2]));
}

#[test]
fn a_client_that_does_not_see_what_it_did_in_the_same_millisecond_is_noticed() {
    let text = "T1 c1 5-5 x+1
                R2 c1 5-5 x=[]
                R3 c3 0-9 x=[1]";
    assert_eq!(find_violation(text), (Rule::Session, vec![1, 2]));
    right(&text.replace("R2 c1", "R2 c2"));
}

#[test]
fn a_lost_append_is_noticed() {
    let text = "T1 c1 0-5 x+1
                T2 c2 6-7 x+2
                R3 c3 6-9 x=[2]";
    assert_eq!(find_violation(text).0, Rule::Lost);
    // A part of it is there.
    let text = "T1 c1 0-5 x+1 y+1
                R3 c3 6-9 x=[1]
                R4 c3 9-9 y=[]";
    assert_eq!(find_violation(text).0, Rule::Lost);
    right("T1 c1 0-5? x+1\nT2 c2 6-7 x+2\nR3 c3 6-9 x=[2]");
}

#[test]
fn reads_of_what_did_not_commit_mean_nothing() {
    right(
        "T1 c1 0-5 x+1
         T2 c2 6-7! x=[] x=[3] y+1
         T3 c3 6-7? x=[] y+3",
    );
}

#[test]
fn snapshots_are_left_to_their_own_checker() {
    assert_eq!(right("T1 c1 0-5 x+1\nS2 c2 6-7 x=[]").operations, 1);
}

#[test]
fn what_is_not_unique_cannot_be_judged() {
    assert_eq!(find_violation("T1 c1 0-9 x+1\nT2 c2 0-9! x+1").0, Rule::Malformed);
}

const SMALL: ExecutionShape = ExecutionShape { transactions: 60, clients: 5, keys: 4, snapshots: None };

#[test]
fn what_happened_one_after_the_other_is_right() {
    for seed in 0..500 {
        let (history, _) = execution(seed, SMALL);
        let summary = check(&history).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(summary.operations > 40 && summary.relations > 100, "{summary:?}");
    }
}

#[test]
fn a_read_that_is_changed_is_mostly_noticed() {
    let (mut noticed, mut tried) = (0, 0);
    for seed in 0..500 {
        let (history, _) = execution(seed, SMALL);
        let Some(damaged) = damage_history(&history, seed) else { continue };
        tried += 1;
        noticed += usize::from(check(&damaged).is_err());
    }
    // What is not noticed was read at the same time as something changed it.
    assert!(noticed * 100 > tried * 80, "{noticed} of {tried}");
}

#[test]
fn ten_thousand_transactions_are_judged() {
    let (history, _) = execution(1, ExecutionShape { transactions: 10_000, clients: 20, keys: 100, snapshots: None });
    let summary = check(&history).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(summary.operations > 9_000, "{summary:?}");
}

#[test]
fn small_histories_are_right_exactly_if_some_order_explains_them() {
    let (mut right, mut wrong, mut missed) = (0, 0, 0);
    for seed in 0..6000 {
        let (mut history, _) =
            execution(seed, ExecutionShape { transactions: 6, clients: 3, keys: 2, snapshots: None });
        for again in 0..seed % 4 {
            history = damage_history(&history, seed + again).unwrap_or(history);
        }
        let in_time = |one: &Operation, other: &Operation| one.completion_ms().is_some_and(|done| done < other.invoked);
        let explained = is_serializable(&history, in_time);
        match (explained, check(&history)) {
            (true, Ok(_)) => right += 1,
            (false, Err(_)) => wrong += 1,
            (true, Err(violation)) => panic!("seed {seed}: an order explains it, and yet {violation}"),
            (false, Ok(_)) => missed += 1,
        }
    }
    // What the order of elements that nobody read would be, it does not guess.
    assert!(right > 1000 && wrong > 1000 && missed * 100 < wrong, "{right} right, {wrong} wrong, {missed} missed");
}
