//! Clients with users whose permissions change while they work: an operation without permission has no effect, and other clients are not affected.

use sim::counters::RunCounters;
use sim::plan::Topology;
use sim::run::run;
use sim::workload::{Choice, plan};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Runs many seeds with changes of permissions; nothing may be wrong, and enough must have happened to mean anything.
#[allow(clippy::print_stderr, reason = "which seed found something is what it is found again by")]
fn run_all(topology: Topology) -> RunCounters {
    let (first, seeds) = (number("MORTAR_FIRST_SEED", 0), number("MORTAR_SEEDS", 40));
    let (mut total, mut found, mut succeeded) = (RunCounters::default(), Vec::new(), 0);
    for seed in first..first + seeds {
        let choice = Choice { topology: Some(topology), permissions: Some(true), ..Choice::default() };
        let report = run(plan(seed, choice), None, false);
        succeeded += report.success_count();
        total += report.count;
        if let Some(wrong) = report.wrong {
            eprintln!("{topology:?} {seed}: {}", wrong.to_string().chars().take(600).collect::<String>());
            found.push(seed);
        }
    }
    let RunCounters { closed_for_users, refused_clients, denied, stops, stopped, .. } = total;
    eprintln!(
        "{topology:?}: {seeds} seeds, {succeeded} operations succeeded, {closed_for_users} connections closed, {refused_clients} clients \
         refused, {denied} operations denied, {stops} messages that the space is stopped, {stopped} operations stopped"
    );
    assert!(found.is_empty(), "{topology:?}: seeds {found:?}");
    assert!(succeeded as u64 > seeds * 20, "{topology:?}: {succeeded} operations succeeded: too few to mean anything");
    total
}

#[test]
fn users_do_only_what_they_may() {
    for topology in Topology::ALL.into_iter().filter(|topology| topology.has_users()) {
        let total = run_all(topology);
        assert!(total.closed_for_users > 0 && total.refused_clients > 0 && total.denied > 0, "{topology:?}: {total:?}");
        assert!(total.stops > 0 && total.stopped > 0, "{topology:?}: {total:?}");
    }
}

#[test]
fn quarter_of_the_plans_whose_clients_have_users_change_permissions() {
    for topology in Topology::ALL {
        let choice = Choice { topology: Some(topology), ..Choice::default() };
        let changed = (0..120).filter(|seed| plan(*seed, choice).has_users()).count();
        assert!(
            if topology.has_users() { (15..45).contains(&changed) } else { changed == 0 },
            "{topology:?}: {changed} of 120"
        );
    }
}
