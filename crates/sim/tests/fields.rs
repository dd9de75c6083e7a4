//! Classes that get fields while clients work whose programs know them or not: no value is lost, an object that is older than a field has its
//! default, and indexes and queries agree with objects.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use sim::counters::RunCounters;
use sim::plan::Topology;
use sim::run::run;
use sim::workload::{Choice, Faults, Workload, plan};

/// Seeds of each topology.
const SEEDS: u64 = 15;

/// Runs many seeds in which fields are added; nothing may be wrong, and enough must have happened to mean anything.
fn all_values_survive(topology: Topology) {
    let mut all = RunCounters::default();
    for seed in 0..SEEDS {
        let faults = Faults::ALL[seed as usize % Faults::ALL.len()];
        let choice = Choice { fields: Some(true), ..Choice::of(topology, Workload::Phantoms, faults) };
        let report = run(plan(seed, choice), None, false);
        assert_eq!(report.wrong, None, "seed {seed} of {choice:?}");
        all += report.count;
    }
    let many = 2 * SEEDS;
    assert!(all.old_members > many, "{topology:?}: programs have seldom read older objects: {all:?}");
    assert!(all.kept_fields > many, "{topology:?}: programs have seldom written objects with newer fields: {all:?}");
    assert!(all.renewed > SEEDS, "{topology:?}: objects were seldom rewritten: {all:?}");
    let queries = matches!(topology, Topology::Peer | Topology::Site);
    assert!(!queries || all.sifted > many, "{topology:?}: queries have seldom found objects by a field: {all:?}");
}

#[test]
fn fields_are_added_while_clients_are_connected_to_bricks() {
    all_values_survive(Topology::Direct);
}

#[test]
fn fields_are_added_while_clients_are_connected_to_peer_servers() {
    all_values_survive(Topology::Peer);
}

#[test]
fn fields_are_added_below_redirectors() {
    all_values_survive(Topology::Group);
}

#[test]
fn fields_are_added_in_sites() {
    all_values_survive(Topology::Site);
}

#[test]
fn fields_are_added_to_classes_in_a_quarter_of_the_plans_with_sets() {
    let choice = Choice::of(Topology::Peer, Workload::Phantoms, Faults::All);
    let count = (0..400).filter(|seed| plan(*seed, choice).has_added_fields()).count();
    assert!((60..140).contains(&count), "{count} of 400");
}
