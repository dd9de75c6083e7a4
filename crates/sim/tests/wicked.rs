//! Tests of groups in which one member breaks the rules: the others stay strictly serializable and make progress.

use sim::counters::RunCounters;
use sim::deceit::Deceit;
use sim::plan::{Action, Topology};
use sim::run::run;
use sim::workload::{Choice, plan};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Runs seeds in which one client deceives in this way. Nothing may be wrong.
#[allow(clippy::print_stderr, reason = "which seed found something is what it is found again by")]
fn run_all(topology: Topology, deceit: Deceit, seeds: u64) -> RunCounters {
    let (first, seeds) = (number("MORTAR_FIRST_SEED", 0), number("MORTAR_SEEDS", seeds));
    let (mut found, mut total) = (Vec::new(), RunCounters::default());
    for seed in first..first + seeds {
        let mut plan = plan(seed, Choice { topology: Some(topology), ..Choice::default() });
        plan.actions.retain(|(_, action)| !matches!(action, Action::Deceive(..)));
        plan.actions.insert(0, (Some(0), Action::Deceive(seed as usize % plan.cluster.clients + 1, deceit)));
        let report = run(plan, None, false);
        total += report.count;
        if let Some(wrong) = report.wrong {
            eprintln!("{topology:?} {deceit:?} {seed}: {}", wrong.to_string().chars().take(600).collect::<String>());
            found.push(seed);
        }
    }
    let RunCounters { peer_fetches, peer_updates, forgeries, rejected, .. } = total;
    eprintln!(
        "{topology:?} {deceit:?}: {seeds} seeds, {peer_fetches} peer fetches, {peer_updates} peer updates, {forgeries} forgeries, {rejected} rejected"
    );
    assert!(found.is_empty(), "{topology:?} {deceit:?}: seeds {found:?}");
    total
}

/// What redirectors notice as a forgery.
const FORGERIES: [Deceit; 6] = [
    Deceit::AlteredCopy,
    Deceit::IncompleteCopy,
    Deceit::OutdatedCopy,
    Deceit::EarlierTime,
    Deceit::OtherPage,
    Deceit::TwoContents,
];

/// What redirectors reject.
const REJECTED: [Deceit; 3] = [Deceit::HoldersBelow, Deceit::OtherSession, Deceit::OtherTransaction];

#[test]
fn each_deceit_is_noticed_and_harms_nobody_else() {
    for deceit in Deceit::ALL {
        let total = run_all(Topology::Group, deceit, 14);
        assert!(total.peer_fetches > 0 && total.peer_updates > 0, "{deceit:?}: {total:?}");
        assert_eq!(total.forgeries > 0, FORGERIES.contains(&deceit) || deceit == Deceit::Any, "{deceit:?}: {total:?}");
        assert_eq!(total.rejected > 0, REJECTED.contains(&deceit) || deceit == Deceit::Any, "{deceit:?}: {total:?}");
    }
}

#[test]
fn third_of_the_plans_with_groups_have_a_wicked_member() {
    let is_wicked = |topology: Topology, seed: u64| {
        let plan = plan(seed, Choice { topology: Some(topology), ..Choice::default() });
        plan.actions.iter().any(|(_, action)| matches!(action, Action::Deceive(..)))
    };
    for topology in Topology::ALL {
        let has_groups = matches!(topology, Topology::Group | Topology::Site | Topology::Mixed | Topology::Chain);
        let wicked = (0..120).filter(|seed| is_wicked(topology, *seed)).count();
        assert!(if has_groups { (20..60).contains(&wicked) } else { wicked == 0 }, "{topology:?}: {wicked} of 120");
    }
}

#[test]
fn wicked_members_harm_nobody_else() {
    for topology in [Topology::Group, Topology::Mixed, Topology::Site, Topology::Chain] {
        let total = run_all(topology, Deceit::Any, 30);
        assert!(total.peer_fetches > 0 && total.peer_updates > 0 && total.forgeries > 0, "{topology:?}: {total:?}");
    }
}
