//! Clusters whose redirectors are in a chain of two levels: what passes through both is served rightly, with faults of each level.

use sim::counters::RunCounters;
use sim::plan::{Action, ProcessName, Topology};
use sim::run::run;
use sim::workload::{Choice, Faults, Workload, plan};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Runs many seeds; nothing may be wrong. Returns what has happened.
#[allow(clippy::print_stderr, reason = "which seed found something is what it is found again by")]
fn run_all(faults: Option<Faults>) -> RunCounters {
    let (first, seeds) = (number("MORTAR_FIRST_SEED", 0), number("MORTAR_SEEDS", 40));
    let (mut total, mut found, mut succeeded) = (RunCounters::default(), Vec::new(), 0);
    for seed in first..first + seeds {
        let choice = Choice { topology: Some(Topology::Chain), faults, ..Choice::default() };
        let report = run(plan(seed, choice), None, false);
        succeeded += report.success_count();
        total += report.count;
        if let Some(wrong) = report.wrong {
            eprintln!("{faults:?} {seed}: {}", wrong.to_string().chars().take(600).collect::<String>());
            found.push(seed);
        }
    }
    let RunCounters { peer_fetches, peer_updates, chained_fetches, chained_updates, .. } = total;
    eprintln!(
        "{faults:?}: {seeds} seeds, {succeeded} operations succeeded, {peer_fetches} peer fetches, {peer_updates} peer updates; between redirectors \
         {chained_fetches} fetches and {chained_updates} updates"
    );
    assert!(found.is_empty(), "{faults:?}: seeds {found:?}");
    assert!(succeeded as u64 > seeds * 20, "{succeeded} operations succeeded: too few to mean anything");
    total
}

#[test]
fn chains_of_redirectors_lose_nothing() {
    for faults in [Some(Faults::None), Some(Faults::All)] {
        let total = run_all(faults);
        assert!(total.peer_fetches > 0 && total.peer_updates > 0, "{total:?}");
        assert!(total.chained_fetches > 0 && total.chained_updates > 0, "{total:?}");
    }
}

/// Whether an action is a crash or a freeze of such a process.
fn is_fault(action: &Action, is_meant: impl Fn(ProcessName) -> bool) -> bool {
    match *action {
        Action::Crash(place, _) | Action::Freeze(place, _) => is_meant(place),
        _ => false,
    }
}

#[test]
fn plans_of_chains_have_faults_on_each_level() {
    let choice = Choice::of(Topology::Chain, Workload::Everything, Faults::All);
    let plans: Vec<_> = (0..60).map(|seed| plan(seed, choice)).collect();
    let actions = || plans.iter().flat_map(|plan| plan.actions.iter().map(|(_, action)| action));
    let is_upper = |place| matches!(place, ProcessName::Redirector(1 | 2));
    let is_lower = |place| matches!(place, ProcessName::Redirector(3 | 4));
    let is_peer = |place| matches!(place, ProcessName::Peer(_));
    let is_client = |place| matches!(place, ProcessName::Client(_));
    assert!(actions().any(|action| is_fault(action, is_upper)) && actions().any(|action| is_fault(action, is_lower)));
    type Level = fn(ProcessName) -> bool;
    let levels: [(Level, Level); 4] =
        [(is_upper, is_peer), (is_lower, is_upper), (is_client, is_lower), (is_client, is_upper)];
    for (index, (lower, upper)) in levels.into_iter().enumerate() {
        let is_between = |one, other| lower(one) && upper(other) || lower(other) && upper(one);
        let is_cut = |action: &Action| matches!(*action, Action::Cut(one, other) if is_between(one, other));
        let is_block = |action: &Action| matches!(*action, Action::Block(one, other, _) if is_between(one, other));
        assert!(actions().any(is_cut) && actions().any(is_block), "level {index}");
    }
}

#[test]
fn half_of_the_drawn_groups_are_chains() {
    let drawn = |topology| (0..840).filter(|seed| plan(*seed, Choice::default()).cluster.topology == topology).count();
    let (groups, chains) = (drawn(Topology::Group), drawn(Topology::Chain));
    assert!(groups + chains == 140 && (40..100).contains(&chains), "{groups} groups, {chains} chains");
}
