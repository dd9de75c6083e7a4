//! Openings of a brick.

use meta::opening::plant::Bug;
use model::planted_bug::{PlantedBug, is_noticed};
use sim::openings::{OpeningCounts, OpeningPlan, simulate_openings};

const HONEST: OpeningPlan = OpeningPlan { steps: 2_000, goes_back: false, has_twins: false, has_repairs: false };
const BACK: OpeningPlan = OpeningPlan { steps: 1_000, goes_back: true, has_twins: false, has_repairs: false };
const TWINS: OpeningPlan = OpeningPlan { steps: 1_000, goes_back: true, has_twins: true, has_repairs: false };
const REPAIRS: OpeningPlan = OpeningPlan { steps: 500, goes_back: true, has_twins: false, has_repairs: true };

fn run(plan: OpeningPlan, seeds: u64) -> OpeningCounts {
    let mut all = OpeningCounts::default();
    for seed in 0..seeds {
        let counts = simulate_openings(plan, seed).unwrap();
        all.served += counts.served;
        all.crashed += counts.crashed;
        all.refused += counts.refused;
        all.acknowledged += counts.acknowledged;
    }
    all
}

#[test]
fn honest_restart_is_never_refused() {
    let counts = run(HONEST, 2_000);
    assert!(counts.served + counts.crashed >= 100_000, "{counts:?}");
    assert_eq!(counts.refused, 0);
}

#[test]
fn directory_that_went_back_is_refused_if_a_witness_saw_more() {
    let counts = run(BACK, 2_000);
    assert!(counts.refused > 1_000 && counts.acknowledged > 1_000, "{counts:?}");
}

#[test]
fn repaired_directory_that_lacks_what_a_witness_saw_is_refused() {
    let counts = run(REPAIRS, 2_000);
    assert!(counts.refused > 1_000 && counts.acknowledged > 1_000, "{counts:?}");
}

#[test]
fn two_processes_of_a_brick_are_never_both_believed() {
    let counts = run(TWINS, 2_000);
    assert!(counts.refused > 1_000 && counts.acknowledged > 1_000, "{counts:?}");
}

#[test]
fn run_depends_on_its_seed_only() {
    assert_eq!(simulate_openings(TWINS, 7), simulate_openings(TWINS, 7));
}

#[test]
fn planted_bugs_are_noticed() {
    let test = || {
        for plan in [HONEST, BACK, TWINS, REPAIRS] {
            run(plan, 400);
        }
    };
    // Numbers of claims differ here, so nonces decide nothing; the tests of the rules notice that bug.
    test();
    let bugs = Bug::ALL.iter().copied().filter(|bug| *bug != Bug::NonceIgnored);
    let unnoticed: Vec<Bug> = bugs.filter(|bug| !is_noticed(*bug, test)).collect();
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
