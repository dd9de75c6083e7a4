//! Clusters in which groups of bricks serve logical nodes, and clusters in which nodes move between bricks.

use sim::plan::{Action, Demand, Topology};
use sim::run::run;
use sim::workload::{Choice, plan};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Runs many seeds; nothing may be wrong, and enough must have happened to mean anything.
#[allow(clippy::print_stderr, reason = "which seed found something is what it is found again by")]
fn run_all(topology: Topology, moves: bool) {
    let (first, seeds) = (number("MORTAR_FIRST_SEED", 0), number("MORTAR_SEEDS", 60));
    let (mut found, mut succeeded) = (Vec::new(), 0);
    for seed in first..first + seeds {
        let mut plan = plan(seed, Choice { topology: Some(topology), ..Choice::default() });
        if moves {
            // A move makes others wait, and be refused.
            plan.demand = if plan.demand == Demand::Solo { Demand::None } else { plan.demand };
            let times = (1..8).map(|turn| 3_000 * turn + seed * 37 % 2_000);
            let to = |at: u64| Action::Move((at / 7 % 3) as u32 + 1, (at / 11 % 3) as usize + 1);
            plan.actions.extend(times.map(|at| (Some(at), to(at))));
        }
        let report = run(plan, None, false);
        succeeded += report.success_count();
        if let Some(wrong) = report.wrong {
            eprintln!("{topology:?} {seed}: {}", wrong.to_string().chars().take(600).collect::<String>());
            found.push(seed);
        }
    }
    eprintln!("{topology:?}: {succeeded} operations of {seeds} seeds succeeded");
    assert!(found.is_empty(), "{topology:?}: seeds {found:?}");
    assert!(succeeded as u64 > seeds * 20, "{succeeded} operations succeeded: too few to mean anything");
}

#[test]
fn groups_of_bricks_lose_nothing_when_members_fail() {
    run_all(Topology::Replicated, false);
}

#[test]
fn logical_nodes_move_while_clients_work_and_processes_fail() {
    for topology in Topology::ALL.into_iter().filter(|topology| topology.allows_moves()) {
        run_all(topology, true);
    }
}
