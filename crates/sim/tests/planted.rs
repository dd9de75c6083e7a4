//! Every planted bug is noticed, within a bounded number of seeds: a checker that misses one is not finished.

use protocol::plant::Bug;
use sim::run::run;
use sim::workload::{Choice, plan};

/// Seeds that are tried for each bug at most.
fn limit() -> u64 {
    std::env::var("MORTAR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(600)
}

#[test]
#[allow(clippy::print_stderr, reason = "how soon each is noticed is worth knowing")]
fn every_planted_bug_is_noticed() {
    let only = std::env::var("MORTAR_BUG").ok();
    let mut missed = Vec::new();
    for bug in Bug::ALL.iter().copied().filter(|bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only)) {
        let found =
            (0..limit()).find_map(|seed| Some((seed, run(plan(seed, Choice::default()), Some(bug), false).wrong?)));
        match found {
            Some((seed, wrong)) => {
                let wrong = wrong.to_string();
                let line = wrong.lines().next().unwrap_or_default();
                eprintln!("{:3} {bug:?}: seed {seed}: {}", bug.rule(), &line[..line.len().min(150)]);
            }
            None => {
                eprintln!("{:3} {bug:?}: MISSED", bug.rule());
                missed.push(bug);
            }
        }
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}");
}
