use crate::Rule;
use crate::history::Operation;
use crate::serial::{ExecutionShape, damage_history, execution, is_serializable, transactions};

use super::*;

const STRICT: Demands = Demands { bound_ms: None, real_time: true };

fn right(text: &str, demands: Demands) -> Summary {
    check(&transactions(text), demands).unwrap_or_else(|violation| panic!("{violation}"))
}

fn wrong(text: &str, demands: Demands) -> Rule {
    check(&transactions(text), demands).expect_err("nothing was noticed").rule
}

#[test]
fn an_old_state_is_right_if_it_is_one_state() {
    let text = "T1 c1 0-5   x+1 y+1
                T2 c1 10-15 x+2
                S3 c2 50-51 x=[1] y=[1]
                S4 c3 50-51 x=[] y=[]";
    assert_eq!(right(text, STRICT).operations, 2);
    assert_eq!(wrong(&text.replace("S4 c3 50-51 x=[] y=[]", "S4 c3 50-51 x=[] y=[1]"), STRICT), Rule::GSingle);
}

#[test]
fn two_snapshots_that_see_two_writes_in_two_orders_are_noticed() {
    let text = "T1 c1 0-5 x+1
                T2 c2 0-5 y+2
                S3 c3 6-7 x=[1] y=[]
                S4 c4 6-7 x=[] y=[2]";
    assert_eq!(wrong(text, Demands::default()), Rule::G2);
}

#[test]
fn a_snapshot_after_the_promise_was_forgotten_is_noticed() {
    // T wrote x behind R's back with an older timestamp than R's, and S is between them.
    let text = "T1 c1 0-5   y+1
                R2 c2 6-9   y=[1] x=[]
                T3 c3 10-15 x+3
                S4 c4 20-21 x=[3] y=[]";
    assert_eq!(wrong(text, Demands::default()), Rule::G2);
}

#[test]
fn a_snapshot_has_what_its_client_did_and_saw() {
    let text = "T1 c1 0-5 x+1
                S2 c1 6-7 x=[]
                R3 c3 0-9 x=[1]";
    assert_eq!(wrong(text, STRICT), Rule::Session);
    right(&text.replace("S2 c1", "S2 c2"), STRICT);
    let text = "T1 c1 0-5   x+1
                S2 c2 6-7   x=[1]
                S3 c2 8-9   x=[]";
    assert_eq!(wrong(text, STRICT), Rule::Session);
}

#[test]
fn a_transaction_has_what_its_client_saw_in_a_snapshot() {
    let text = "T1 c1 0-9 x+1
                S2 c2 0-5 x=[1]
                R3 c2 6-7 x=[]";
    assert_eq!(wrong(text, STRICT), Rule::Session);
}

#[test]
fn a_snapshot_that_is_too_old_is_noticed() {
    let text = "T1 c1 0-5     x+1
                S2 c2 106-107 x=[]
                R3 c3 106-107 x=[1]";
    let bound = |bound_ms| Demands { bound_ms: Some(bound_ms), real_time: true };
    right(text, STRICT);
    right(text, bound(101));
    let violation = check(&transactions(text), bound(100)).unwrap_err();
    assert_eq!(violation.rule, Rule::Stale);
    let says = "T1 returned 101 ms before snapshot T2 was invoked: more than 100 ms".to_string();
    assert!(violation.why.contains(&says), "{violation}");
    // What the client was told is a bound too, and the smaller one counts.
    let mut told = transactions(text);
    told.operations[1].as_of = Some(100);
    assert_eq!(check(&told, bound(200)).unwrap_err().rule, Rule::Stale);
}

#[test]
fn timestamps_against_real_time_are_right_only_where_that_is_allowed() {
    // T1 and T2 have no brick in common, and T2's clock is behind.
    let text = "T1 c1 0-5   x+1
                T2 c2 6-9   y+2
                S3 c3 10-11 x=[] y=[2]";
    right(text, Demands::default());
    assert_eq!(wrong(text, STRICT), Rule::RealTime);
}

const SHAPE: ExecutionShape = ExecutionShape { transactions: 60, clients: 5, keys: 4, snapshots: Some(20) };

#[test]
fn snapshots_of_states_that_were_there_are_right() {
    for seed in 0..500 {
        let (history, _) = execution(seed, SHAPE);
        let summary = check(&history, STRICT).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert!(summary.operations > 1 && summary.relations > 100, "{summary:?}");
    }
}

#[test]
fn a_read_that_is_changed_is_mostly_noticed() {
    let (mut noticed, mut tried) = (0, 0);
    for seed in 0..500 {
        let (history, _) = execution(seed, SHAPE);
        let Some(damaged) = damage_history(&history, seed) else { continue };
        tried += 1;
        noticed += usize::from(check(&damaged, STRICT).is_err());
    }
    assert!(noticed * 100 > tried * 75, "{noticed} of {tried}");
}

#[test]
fn small_histories_are_right_exactly_if_some_order_explains_them() {
    let (mut right, mut wrong, mut missed) = (0, 0, 0);
    for seed in 0..6000 {
        let (mut history, _) =
            execution(seed, ExecutionShape { transactions: 6, clients: 3, keys: 2, snapshots: Some(5) });
        for again in 0..seed % 4 {
            history = damage_history(&history, seed + again).unwrap_or(history);
        }
        let in_time = |one: &Operation, other: &Operation| {
            let late = if other.kind == Kind::Snapshot { 5 } else { 0 };
            one.is_strict() && one.completion_ms().is_some_and(|done| done + late < other.invoked)
        };
        match (is_serializable(&history, in_time), check(&history, STRICT)) {
            (true, Ok(_)) => right += 1,
            (false, Err(_)) => wrong += 1,
            (true, Err(violation)) => panic!("seed {seed}: an order explains it, and yet {violation}"),
            (false, Ok(_)) => missed += 1,
        }
    }
    assert!(right > 1000 && wrong > 1000 && missed * 100 < wrong, "{right} right, {wrong} wrong, {missed} missed");
}
