//! Every planted bug is noticed: by random schedules, within a bounded number of seeds, or by the schedule of a scenario that
//! was written for it. A checker that misses one is not finished.
//!
//! `planted_seeds.txt` has a seed that has noticed each bug, which is tried first; `MORTAR_SEEDS=N` searches from the beginning, in N seeds at most.
//! With `MORTAR_WRITE_SEEDS=1` the file is written anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use model::planted_bug::PlantedBug;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use protocol::plant::Bug;
use sim::bug;
use sim::plan::Topology;
use sim::run::run;
use sim::scenario::Scenario;
use sim::workload::{Choice, Faults, Workload, plan};

/// Seeds that are tried for each bug at most.
const LIMIT: u64 = 800;
/// The same, of those that a scenario is written for: they are noticed anyway.
const DIRECTED_LIMIT: u64 = 20;

/// Where a bug is looked for: where what it breaks is done most.
fn choice(bug: Bug) -> Choice {
    let (workload, faults) = match bug.rule() {
        // A window that is full.
        _ if bug == Bug::WindowDropsEntries => (Some(Workload::Lists), Some(Faults::All)),
        _ if matches!(bug, Bug::ChangePassesPrepared | Bug::OffsetsForgotten | Bug::OffsetsNotAwaited) => {
            (Some(Workload::Hot), Some(Faults::All))
        }
        _ if matches!(bug, Bug::TouchUnseen | Bug::TouchUnchecked | Bug::TouchUnheld | Bug::GuardShared) => {
            (Some(Workload::Phantoms), Some(Faults::All))
        }
        _ if matches!(bug, Bug::KeyGuardNotWritten | Bug::CollectionGuardNotTouched | Bug::EntriesNotDecided) => {
            (Some(Workload::Names), Some(Faults::All))
        }
        "N1" | "D2" => (Some(Workload::Pram), Some(Faults::All)),
        "D4" => (Some(Workload::Pram), Some(Faults::All)),
        "G1" | "G2" | "G3" => (Some(Workload::Snapshots), Some(Faults::All)),
        "R3" | "V3" => (Some(Workload::Slow), None),
        "W1" => (Some(Workload::Hot), None),
        "K1" => (Some(Workload::Wide), Some(Faults::All)),
        "C1" | "C2" | "C3" | "C4" | "C5" | "L1" => (None, Some(Faults::All)),
        _ => (None, None),
    };
    let topology = match bug.rule() {
        "R1" | "R2" | "R4" => Some(Topology::Group),
        // Where bricks may have several logical nodes.
        "C5" | "K1" => Some(Topology::Peer),
        _ => None,
    };
    Choice { topology, workload, faults, backups: None }
}

/// The bugs that scenarios were written for.
fn directed() -> BTreeSet<Bug> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let texts = fs::read_dir(dir).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let catches = texts.flat_map(|text| Scenario::read(&text).unwrap().catches);
    catches.filter_map(|bug| if let bug::Bug::Protocol(bug) = bug { Some(bug) } else { None }).collect()
}

/// A seed that notices a bug, and as what. `known` is tried first.
fn first_noticed(bug: Bug, choice: Choice, known: Option<u64>, limit: u64) -> Option<(u64, String)> {
    let tries = known.into_iter().chain(0..limit).map(|seed| (seed, plan(seed, choice)));
    let mut found =
        tries.filter_map(|(seed, plan)| Some((seed, run(plan, Some(bug.into()), false).wrong?.to_string())));
    found.next().map(|(seed, wrong)| (seed, wrong.lines().next().unwrap_or_default().chars().take(110).collect()))
}

fn seeds_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planted_seeds.txt")
}

/// The seeds that have noticed bugs.
fn known_seeds() -> BTreeMap<String, u64> {
    let text = fs::read_to_string(seeds_file()).unwrap();
    let line = |line: &str| line.split_once(' ').map(|(bug, seed)| (bug.to_owned(), seed.parse().unwrap()));
    text.lines().filter_map(line).collect()
}

fn write_seeds(found: impl Iterator<Item = (Bug, u64)>) {
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap();
    let mut seeds = known_seeds();
    seeds.extend(found.map(|(bug, seed)| (format!("{bug:?}"), seed)));
    let lines: String = seeds.iter().map(|(bug, seed)| format!("{bug} {seed}\n")).collect();
    fs::write(seeds_file(), lines).unwrap();
}

/// Looks for bugs, on all processors. Returns those that nothing noticed.
#[allow(clippy::print_stderr, reason = "how soon each is noticed is worth knowing")]
fn missed(bugs: &[Bug], choice: impl Fn(Bug) -> Choice + Sync) -> Vec<Bug> {
    let only = std::env::var("MORTAR_BUG").ok();
    let wanted = |bug: &&Bug| only.as_ref().is_none_or(|only| format!("{bug:?}") == *only);
    let bugs: Vec<Bug> = bugs.iter().filter(wanted).copied().collect();
    let asked = std::env::var("MORTAR_SEEDS").ok().map(|seeds| seeds.parse().unwrap());
    let (next, found, directed) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()), directed());
    let is_written = std::env::var_os("MORTAR_WRITE_SEEDS").is_some();
    let known = if asked.is_some() || is_written { BTreeMap::new() } else { known_seeds() };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let known = known.get(&format!("{bug:?}")).copied();
                    let limit = if directed.contains(bug) { DIRECTED_LIMIT } else { LIMIT };
                    let result = first_noticed(*bug, choice(*bug), known, asked.unwrap_or(limit));
                    found.lock().unwrap().insert(*bug, result);
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    if is_written {
        write_seeds(found.iter().filter_map(|(bug, found)| found.as_ref().map(|(seed, _)| (*bug, *seed))));
    }
    let mut missed = Vec::new();
    for (bug, result) in found {
        match result {
            Some((seed, wrong)) => eprintln!("{:3} {bug:?}: seed {seed}: {wrong}", bug.rule()),
            None if directed.contains(&bug) => eprintln!("{:3} {bug:?}: by its scenario", bug.rule()),
            None => missed.push(bug),
        }
    }
    missed
}

/// Bugs of which `protocol::cache_node` has tests. Some show only with members that lie or help late, and all are honest and quick here;
/// an update that a joining holder misses is seldom missed here, because a commit seldom passes while its page is fetched.
const OF_CACHE_NODES_ONLY: [Bug; 4] =
    [Bug::ForgedCopyTaken, Bug::ForgerAskedAgain, Bug::LateHelperAsked, Bug::UpdateNotBuffered];

/// Bugs of which `protocol::cut` has tests: they need a request that is repeated after the end of a hold, and a second hold in the moment of the
/// release.
const OF_CUTS_ONLY: [Bug; 2] = [Bug::CutTakenTwice, Bug::RestartNotNoticed];

/// Bugs of which `protocol::brick` has tests: readers must be promised something between the proposals of two logical nodes.
const OF_ONE_PHASE_ONLY: [Bug; 1] = [Bug::ProposalsApart];

/// Bugs of which `protocol::commit` has tests: a refusal is never wrong for the clients here, and no participant loses durable records.
const OF_COMMITS_ONLY: [Bug; 2] = [Bug::CommittedRefuses, Bug::MixedOutcomeIgnored];

#[test]
fn every_planted_bug_is_noticed() {
    let elsewhere = [&OF_CACHE_NODES_ONLY[..], &OF_CUTS_ONLY, &OF_ONE_PHASE_ONLY, &OF_COMMITS_ONLY].concat();
    // Clocks are set wrong in tests of their own.
    let here = |bug: &Bug| !bug.is_of_groups() && bug.rule() != "L2" && !elsewhere.contains(bug);
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(here).collect();
    assert!(bugs.len() >= 40, "{} bugs are few", bugs.len());
    let missed = missed(&bugs, choice);
    assert!(missed.is_empty(), "nothing noticed {missed:?}, and no scenario is written for them");
}

/// What is noticed must be the bug: without one, the same seeds are clean.
#[test]
fn without_a_planted_bug_nothing_is_noticed() {
    for choice in
        Bug::ALL.iter().map(|bug| choice(*bug)).collect::<Vec<_>>().chunk_by(|a, b| a == b).map(|same| same[0])
    {
        for seed in 0..6 {
            if let Some(wrong) = run(plan(seed, choice), None, false).wrong {
                panic!("seed {seed} of {choice:?}: {wrong}");
            }
        }
    }
}

/// Mistakes of groups that show in the tests of the protocol only: members do not serve reads in these clusters, and some need
/// more accidents at once than happen here.
const OF_GROUPS_ONLY: [Bug; 8] = [
    Bug::AckOfAnyEpoch,
    Bug::JoinerHoldsAtOnce,
    Bug::LeaseOfLifeBefore,
    Bug::ReadsBeforeStarted,
    Bug::HoldersForgotten,
    Bug::FollowersToldMore,
    Bug::PreviousUnchecked,
    Bug::TellsWithoutLease,
];

/// Groups have histories of their own, with far more accidents (`tests/groups` of the protocol); most mistakes show in whole
/// clusters too.
#[test]
fn planted_bugs_of_groups_are_noticed_in_whole_clusters() {
    let choice = Choice { topology: Some(Topology::Replicated), ..Choice::default() };
    let here = |bug: &Bug| bug.is_of_groups() && !OF_GROUPS_ONLY.contains(bug);
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(here).collect();
    let missed = missed(&bugs, |_| choice);
    assert!(missed.is_empty(), "nothing noticed {missed:?}");
}
