//! Bugs in the rules of the protocol.

use std::collections::BTreeSet;
use std::fs;

use model::planted_bug::PlantedBug;
use protocol::plant::Bug;
use sim::bug;
use sim::plan::Topology;
use sim::scenario::Scenario;
use sim::workload::{Choice, Faults, Workload};

use super::search::{self, Search};

/// Seeds that are tried for each bug at most.
const LIMIT: u64 = 800;

/// Where a bug is looked for: where what it breaks is done most.
fn choice(bug: Bug) -> Choice {
    let (workload, faults) = match bug.rule() {
        // Windows that are full.
        _ if matches!(bug, Bug::WindowDropsEntries | Bug::RetainedDropsEntries) => {
            (Some(Workload::Lists), Some(Faults::All))
        }
        _ if matches!(bug, Bug::ChangePassesPrepared | Bug::OffsetsForgotten | Bug::OffsetsNotAwaited) => {
            (Some(Workload::Hot), Some(Faults::All))
        }
        _ if matches!(bug, Bug::TouchUnseen | Bug::TouchUnchecked | Bug::TouchUnheld | Bug::GuardShared) => {
            (Some(Workload::Phantoms), Some(Faults::All))
        }
        _ if matches!(bug, Bug::KeyGuardNotWritten | Bug::CollectionGuardNotTouched | Bug::EntriesNotDecided) => {
            (Some(Workload::Names), Some(Faults::All))
        }
        _ if bug == Bug::MarkForgotten => (Some(Workload::Own), Some(Faults::All)),
        "N1" | "D2" => (Some(Workload::Pram), Some(Faults::All)),
        "D4" => (Some(Workload::Pram), Some(Faults::All)),
        "G1" | "G2" | "G3" => (Some(Workload::Snapshots), Some(Faults::All)),
        "R3" | "V3" if bug != Bug::LateHelperAsked => (Some(Workload::Slow), None),
        // Transactions that wait for several locks.
        "W1" if bug == Bug::AnyLockGranted => (Some(Workload::Locks), Some(Faults::All)),
        "W1" => (Some(Workload::Hot), None),
        "K1" => (Some(Workload::Wide), Some(Faults::All)),
        "C1" | "C2" | "C3" | "C4" | "C5" | "L1" => (None, Some(Faults::All)),
        _ => (None, None),
    };
    let topology = match bug.rule() {
        "R1" | "R2" | "R4" => Some(Topology::Group),
        _ if matches!(bug, Bug::LateHelperAsked | Bug::EvictedForAll | Bug::MarkForgotten) => Some(Topology::Group),
        // Where bricks may have several logical nodes.
        "C5" | "K1" => Some(Topology::Peer),
        _ => None,
    };
    Choice { topology, workload, faults, ..Choice::default() }
}

/// The bugs that scenarios were written for. The tests of scenarios check that these are noticed.
fn directed_bugs() -> BTreeSet<Bug> {
    let texts =
        fs::read_dir("tests/scenarios").unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let catches = texts.flat_map(|text| Scenario::read(&text).unwrap().catches);
    catches.filter_map(|bug| if let bug::Bug::Protocol(bug) = bug { Some(bug) } else { None }).collect()
}

/// Looks for bugs that no scenario was written for. Returns those that nothing notices.
fn missed_bugs(bugs: &[Bug], choice: impl Fn(Bug) -> Choice) -> Vec<bug::Bug> {
    let directed = directed_bugs();
    let others = bugs.iter().copied().filter(|bug| !directed.contains(bug));
    search::unnoticed_bugs(others.map(|bug| Search { bug: bug.into(), choice: choice(bug), limit: LIMIT }))
}

/// Bugs of which `protocol::cache_node` and `protocol::redirect` have tests. Most cost fetches, messages or time and nothing else; the others
/// need an accident that hardly happens here, such as a thousand messages during a fetch.
const OF_CACHE_NODES_ONLY: [Bug; 14] = [
    Bug::AnyPageFromAbove,
    Bug::ChangedPartIgnored,
    Bug::CreationRetained,
    Bug::DeletionOfNothingKept,
    Bug::EvictionNotReported,
    Bug::ForgerLetInAgain,
    Bug::GoneHelperAwaited,
    Bug::OtherVersionForgiven,
    Bug::RefusedUpdateKept,
    Bug::RestNotEnded,
    Bug::RestNotLonger,
    Bug::RetainedBesideUpdate,
    Bug::RetainedUnbounded,
    Bug::UpdateWithoutProof,
];

/// Bugs of which `protocol` has tests: only a client that breaks the rules makes use of them, and no client here does.
const OF_WICKED_CLIENTS_ONLY: [Bug; 3] = [Bug::AgeChanged, Bug::ReleaseDecides, Bug::UnnamedNotAsked];

/// Bugs of which `protocol::page_cache` has tests: another client must change a new object before the one that has created it hears of the
/// commit, or the outcome must arrive before the message about it while the page is on its way.
const OF_CLIENTS_ONLY: [Bug; 2] = [Bug::OwnWriteInFetched, Bug::OwnOutcomeForgotten];

/// Bugs of which `protocol::cut` has tests: they need a request that is repeated after the end of a hold, and a second hold in the moment of the
/// release.
const OF_CUTS_ONLY: [Bug; 2] = [Bug::CutTakenTwice, Bug::RestartNotNoticed];

/// Bugs of which `protocol::brick` has tests: readers must be promised something between the proposals of two logical nodes.
const OF_ONE_PHASE_ONLY: [Bug; 1] = [Bug::ProposalsApart];

/// Bugs of which `protocol::commit` has tests: a refusal is never wrong for the clients here, and no participant loses durable records.
const OF_COMMITS_ONLY: [Bug; 4] =
    [Bug::CommittedRefuses, Bug::MixedOutcomeIgnored, Bug::LostPartsIgnored, Bug::ForgottenIsLost];

#[test]
fn every_planted_bug_is_noticed() {
    let elsewhere = [
        &OF_CACHE_NODES_ONLY[..],
        &OF_WICKED_CLIENTS_ONLY,
        &OF_CLIENTS_ONLY,
        &OF_CUTS_ONLY,
        &OF_ONE_PHASE_ONLY,
        &OF_COMMITS_ONLY,
    ]
    .concat();
    // Clocks are set wrong in tests of their own.
    let here = |bug: &Bug| !bug.is_of_groups() && bug.rule() != "L2" && !elsewhere.contains(bug);
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(here).collect();
    assert!(bugs.len() >= 40, "{} bugs are few", bugs.len());
    let missed = missed_bugs(&bugs, choice);
    assert!(missed.is_empty(), "nothing noticed {missed:?}, and no scenario is written for them");
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
    let missed = missed_bugs(&bugs, |_| choice);
    assert!(missed.is_empty(), "nothing noticed {missed:?}");
}
