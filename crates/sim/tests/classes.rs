//! Classes that get, lose, rename and widen fields while programs of several versions read, write, replace and remove their objects: what a
//! program reads was written, an index has what objects have, and what a class has lost does not come back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use sim::counters::RunCounters;
use sim::plan::Topology;
use sim::run::run;
use sim::workload::{Choice, Faults, Workload, plan};

/// Seeds of each topology.
const SEEDS: u64 = 8;

/// Runs many seeds in which classes change; nothing may be wrong, and enough must have happened to mean anything.
fn all_values_survive(topology: Topology) {
    let mut all = RunCounters::default();
    for seed in 0..SEEDS {
        let faults = Faults::ALL[seed as usize % Faults::ALL.len()];
        let choice = Choice::of(topology, Workload::Classes, faults);
        let report = run(plan(seed, choice), None, false);
        assert_eq!(report.wrong, None, "seed {seed} of {choice:?}");
        all += report.count;
    }
    let many = 2 * SEEDS;
    assert!(all.old_members > many, "{topology:?}: programs have seldom read older objects: {all:?}");
    assert!(all.kept_fields > many, "{topology:?}: programs have seldom written objects with other fields: {all:?}");
    assert!(all.renewed > SEEDS, "{topology:?}: objects were seldom rewritten: {all:?}");
    assert!(all.old_programs > SEEDS, "{topology:?}: programs were seldom too old: {all:?}");
    assert!(all.widened > SEEDS, "{topology:?}: values were seldom read as another type: {all:?}");
    assert!(all.replaced > many, "{topology:?}: objects were seldom replaced: {all:?}");
    assert!(all.reused > SEEDS, "{topology:?}: places of removed objects were seldom taken: {all:?}");
    let queries = matches!(topology, Topology::Peer | Topology::Site);
    assert!(!queries || all.sifted > many, "{topology:?}: queries have seldom found objects by a field: {all:?}");
}

#[test]
fn classes_change_while_clients_are_connected_to_bricks() {
    all_values_survive(Topology::Direct);
}

#[test]
fn classes_change_while_clients_are_connected_to_peer_servers() {
    all_values_survive(Topology::Peer);
}

#[test]
fn classes_change_in_sites() {
    all_values_survive(Topology::Site);
}

#[test]
fn classes_change_in_half_of_the_plans_with_sets() {
    let plans: Vec<_> = (0..2_800).map(|seed| plan(seed, Choice::default())).collect();
    let count = plans.iter().filter(|plan| plan.replaces_members()).count();
    assert!((60..140).contains(&count), "{count} of the 200 plans with sets");
}
