//! Short plans that fail.

use std::ops::ControlFlow;

use sim::bug::Bug;
use sim::plan::{Plan, Topology};
use sim::run::run;
use sim::shrink::{ShrinkResult, shrink};
use sim::workload::{Choice, Faults, Workload, plan};

const STALE_READS: Bug = Bug::Protocol(protocol::plant::Bug::StaleReads);

fn choice() -> Choice {
    Choice::of(Topology::Direct, Workload::Lists, Faults::Network)
}

/// A seed at which it is noticed that reads are not validated.
fn failing() -> Plan {
    let plans = (0..50).map(|seed| plan(seed, choice()));
    plans.into_iter().find(|plan| run(plan.clone(), Some(STALE_READS), false).wrong.is_some()).unwrap()
}

#[test]
fn a_minimal_schedule_is_found_in_a_bounded_number_of_runs_and_is_the_same_again() {
    let long = failing();
    let long_actions = long.actions.len();
    let mut told = Vec::new();
    let shrunk = shrink(long.clone(), Some(STALE_READS), 600, &mut |progress| {
        told.push(progress);
        ControlFlow::Continue(())
    });
    let shrunk = shrunk.unwrap();
    assert!(shrunk.runs <= 600 && told.len() + 1 == shrunk.runs);
    // A lost update needs two writers, and little else. The transactions before them decide the pages of new objects.
    let ShrinkResult { plan: short, .. } = &shrunk;
    assert!(short.actions.len() <= 12, "{}", sim::scenario::print(short, &[]));
    assert!(long_actions >= 10 * short.actions.len(), "{long_actions} actions are few");
    assert!(run(short.clone(), Some(STALE_READS), false).wrong.is_some());
    assert!(run(short.clone(), None, false).wrong.is_none());
    let again = shrink(long, Some(STALE_READS), 600, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((again.plan, again.runs), (shrunk.plan, shrunk.runs));
}

#[test]
fn a_plan_that_does_not_fail_is_not_shrunk() {
    assert!(shrink(plan(0, choice()), None, 10, &mut |_| ControlFlow::Continue(())).is_none());
}

#[test]
fn whoever_is_told_can_stop_it() {
    let shrunk = shrink(failing(), Some(STALE_READS), 100, &mut |_| ControlFlow::Break(())).unwrap();
    assert_eq!(shrunk.runs, 2);
}

#[test]
fn what_is_best_when_the_runs_are_used_up_is_given() {
    let shrunk = shrink(failing(), Some(STALE_READS), 5, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(shrunk.runs, 5);
    assert!(run(shrunk.plan, Some(STALE_READS), false).wrong.is_some());
}
