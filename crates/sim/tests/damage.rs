//! Pages of the B-trees of bricks that cannot be read for a while: what needs a row of them ends with that error or waits, and all else goes on.

use sim::counters::RunCounters;
use sim::plan::Topology;
use sim::run::run;
use sim::workload::{Choice, Faults, Workload, plan};

/// Seeds of each topology.
const SEEDS: u64 = 40;

const WORKLOADS: [Workload; 5] =
    [Workload::Everything, Workload::Phantoms, Workload::Classes, Workload::Names, Workload::Lists];

/// Runs many seeds in which pages are damaged; nothing may be wrong, and enough must have happened to mean anything.
fn damage_is_survived(topology: Topology) {
    let mut all = RunCounters::default();
    for seed in 0..SEEDS {
        let workload = WORKLOADS[seed as usize % WORKLOADS.len()];
        let faults = [Faults::None, Faults::All][(seed / 5) as usize % 2];
        let choice = Choice { damage: Some(true), ..Choice::of(topology, workload, faults) };
        let report = run(plan(seed, choice), None, false);
        assert_eq!(report.wrong, None, "seed {seed} of {choice:?}");
        all += report.count;
    }
    assert!(all.damaged > 2 * SEEDS, "{topology:?}: pages were seldom damaged: {all:?}");
    assert!(all.stopped_by_damage > SEEDS, "{topology:?}: operations have seldom needed damaged rows: {all:?}");
}

#[test]
fn pages_are_damaged_while_clients_are_connected_to_bricks() {
    damage_is_survived(Topology::Direct);
}

#[test]
fn pages_are_damaged_while_clients_are_connected_to_peer_servers() {
    damage_is_survived(Topology::Peer);
}

#[test]
fn pages_are_damaged_in_groups() {
    damage_is_survived(Topology::Group);
}

#[test]
fn pages_are_damaged_in_a_part_of_the_plans_with_crashes() {
    let has_damage = |seed| plan(seed, Choice::default()).has_damage();
    let count = (0..2_000).filter(|seed| has_damage(*seed)).count();
    assert!((150..400).contains(&count), "{count} of 2,000 plans");
}
