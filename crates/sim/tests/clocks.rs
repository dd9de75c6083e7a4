//! Wall clocks that are wrong, of one process of a cluster at a time (rule L2): the others go on, and after the correction all is as before.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use check::history::Outcome;
use node::drivers::peer::plant::Bug as PeerBug;
use protocol::plant::Bug;
use sim::plan::{Action, Key, Operation, Plan, ProcessName, Step, Topology};
use sim::run::{RunReport, run};
use sim::workload::{Choice, Faults, Workload, plan};

const HOUR: i64 = 3_600_000;
const WRONG: [i64; 7] = [-HOUR, -10_000, 10_000, -600_000, 600_000, HOUR, 10 * 365 * 24 * HOUR];
/// When a clock is set wrong, and when it is set right again.
const FROM_MS: u64 = 5_000;
const TO_MS: u64 = 13_000;
/// How far all clocks are ahead together, in milliseconds: more than the time of a client may be ahead.
const AHEAD_MS: i64 = 4_000;
/// How long it takes until a wrong clock is noticed, and the others have given up on its process.
const NOTICED_MS: u64 = 3_000;
/// When everything has ended at the latest: 25 s of work, and some seconds.
const END_MS: u64 = 45_000;

/// A run in which the clock of a process is wrong, from its start on or while it runs.
fn clock_plan(seed: u64, topology: Topology, place: ProcessName, wrong: i64, at_start: bool) -> Plan {
    let workload = [Workload::Lists, Workload::Bank, Workload::Snapshots, Workload::Pram][seed as usize % 4];
    let choice = Choice::of(topology, workload, Faults::None);
    let mut plan = plan(seed, choice);
    // Users without permissions and stopped spaces succeed in nothing, whatever the clocks are.
    plan.actions.retain(|(_, action)| !matches!(action, Action::Permit(..) | Action::SetPolicy(_)));
    if let ProcessName::Brick(number) = place {
        // A client does one thing after the other, and waits for a brick that is away. So half of them use the other bricks only.
        plan.cluster.nodes_per_brick = 1;
        let cluster = plan.cluster;
        plan.actions.retain(|(_, action)| match action {
            Action::Do(client, operation) if client % 2 == 1 => {
                keys(operation).iter().all(|key| cluster.first_brick(key.node) != number)
            }
            _ => true,
        });
    }
    let from = if at_start { 0 } else { FROM_MS };
    plan.actions.push((Some(from), Action::SetClock(place, wrong)));
    plan.actions.push((Some(TO_MS), Action::SetClock(place, 0)));
    plan
}

/// The objects that an operation of these workloads names.
fn keys(operation: &Operation) -> Vec<Key> {
    let of_step = |step: &Step| match *step {
        Step::Read(key) | Step::Append(key) | Step::Write(key, _) => vec![key],
        Step::Move(from, to, _) => vec![from, to],
        _ => Vec::new(),
    };
    match operation {
        Operation::Transact(steps) | Operation::Lock(steps) | Operation::Insist(steps) | Operation::Snapshot(steps) => {
            steps.iter().flat_map(of_step).collect()
        }
        Operation::Put(key) | Operation::Get(key) => vec![*key],
    }
}

/// Operations that were begun while the clock was wrong, and succeeded before it was right again.
fn count_meanwhile(report: &RunReport, from: u64) -> usize {
    let meanwhile = report.history.operations.iter().filter(|operation| {
        let is_between = operation.invoked >= from + NOTICED_MS && operation.returned.is_some_and(|at| at < TO_MS);
        operation.outcome == Outcome::Ok && is_between
    });
    meanwhile.count()
}

fn check(plan: &Plan, from: u64, bug: Option<Bug>) -> Result<(), String> {
    let report = run(plan.clone(), bug.map(Into::into), false);
    if let Some(wrong) = &report.wrong {
        return Err(wrong.to_string());
    }
    if count_meanwhile(&report, from) == 0 {
        return Err(format!("L2: nothing succeeds while a clock is wrong: {:?}", plan.actions.last()));
    }
    if report.count.simulated_ms > END_MS {
        return Err(format!("L2: the run ends only after {} ms", report.count.simulated_ms));
    }
    Ok(())
}

#[test]
fn one_wrong_clock_harms_only_its_process_and_only_while_it_is_wrong() {
    let places =
        [ProcessName::Brick(1), ProcessName::Brick(3), ProcessName::Peer(1), ProcessName::Client(1), ProcessName::Meta];
    let (mut seed, mut failed) = (0, Vec::new());
    for wrong in WRONG {
        for place in places {
            for at_start in [true, false] {
                seed += 1;
                let topology = [Topology::Peer, Topology::Site, Topology::Group][seed as usize % 3];
                let plan = clock_plan(seed, topology, place, wrong, at_start);
                let from = if at_start { 0 } else { FROM_MS };
                if let Err(why) = check(&plan, from, None) {
                    failed.push(format!("{place} {wrong:+} at its start: {at_start}, seed {seed}: {why}"));
                }
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// A brick restarts while its clock is wrong, and with a clock that was set right meanwhile (ATTACK 16).
#[test]
fn no_start_after_a_correction_waits_for_the_time() {
    let mut failed = Vec::new();
    for (seed, wrong) in (1..).zip(WRONG) {
        let place = ProcessName::Brick(1);
        let mut plan = clock_plan(seed, Topology::Peer, place, wrong, false);
        for at in [FROM_MS + 2_000, TO_MS + 500] {
            plan.actions.push((Some(at), Action::Crash(place, 0)));
            plan.actions.push((Some(at + 200), Action::Restart(place)));
        }
        if let Err(why) = check(&plan, FROM_MS, None) {
            failed.push(format!("{wrong:+}, seed {seed}: {why}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// All clocks were wrong together and are set right: the time of the cluster goes on more slowly for a minute, and clients that stay
/// connected follow it.
#[test]
fn clients_follow_the_time_of_the_cluster_when_it_slows_down() {
    let mut failed = Vec::new();
    for (seed, topology) in (1..=8).zip([Topology::Peer, Topology::Group].into_iter().cycle()) {
        let mut plan = clock_plan(seed, topology, ProcessName::Meta, 0, true);
        // Some clients work all the time, others do nothing at first.
        let is_idle = seed % 4 >= 2;
        plan.actions.iter_mut().for_each(|(at, _)| *at = at.map(|at| if is_idle { at + 45_000 } else { at * 3 }));
        let bricks = (1..=plan.cluster.bricks).map(ProcessName::Brick);
        let peers = (1..=plan.cluster.peers).map(ProcessName::Peer);
        for place in bricks.chain(peers).chain([ProcessName::Meta]) {
            plan.actions.push((Some(0), Action::SetClock(place, AHEAD_MS)));
            plan.actions.push((Some(FROM_MS), Action::SetClock(place, 0)));
        }
        let check = |bug| {
            let report = run(plan.clone(), bug, false);
            let last = report.history.operations.iter().filter_map(|one| one.returned).max();
            let is_long = last.is_some_and(|last| last > FROM_MS + 50_000);
            (report.wrong.map(|why| why.to_string()), report.count.simulated_ms < 3 * END_MS, is_long)
        };
        let (expected, seen) = ((None, true, true), check(None));
        if seen != expected {
            failed.push(format!("seed {seed}: {seen:?}"));
        }
        // A redirector and its members learn the time at the same moment, or both do not.
        if topology == Topology::Peer {
            assert_ne!(check(Some(PeerBug::TimeNotTold.into())), expected, "seed {seed}: the bug is noticed");
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// No client writes while the clock is wrong.
#[test]
fn wrong_clock_without_writers_leaves_nothing_behind() {
    for (seed, wrong) in (1..).zip(WRONG) {
        let mut plan = clock_plan(seed, Topology::Peer, ProcessName::Brick(1), wrong, true);
        plan.actions.iter_mut().for_each(|(at, action)| {
            if !matches!(action, Action::SetClock(..)) {
                *at = at.map(|at| at + TO_MS + 1_000);
            }
        });
        let report = run(plan, None, false);
        assert!(report.wrong.is_none(), "{wrong:+}: {:?}", report.wrong);
        assert!(report.success_count() > 0 && report.count.simulated_ms < END_MS + TO_MS, "{wrong:+}");
    }
}

#[test]
fn clocks_that_are_set_take_the_same_course_twice() {
    let plan = clock_plan(3, Topology::Group, ProcessName::Brick(2), 600_000, false);
    assert_eq!(run(plan.clone(), None, false).digest(), run(plan, None, false).digest());
}

/// The other bugs in the comparison of clocks are noticed beside it, in `protocol::clock_agreement`.
#[test]
fn planted_bugs_of_clocks_are_noticed() {
    for bug in [Bug::ServesOutsideSkew, Bug::ServesUncompared, Bug::OwnClockTaken, Bug::OffsetReversed] {
        let noticed = (0..40).find_map(|seed| {
            let place = [ProcessName::Brick(1), ProcessName::Brick(2)][seed as usize % 2];
            let wrong = WRONG[seed as usize % WRONG.len()];
            let at_start = seed % 4 >= 2;
            let mut plan = clock_plan(seed, Topology::Peer, place, wrong, at_start);
            if bug == Bug::ServesUncompared {
                plan.actions.push((Some(FROM_MS + 2_000), Action::Crash(place, 0)));
                plan.actions.push((Some(FROM_MS + 2_200), Action::Restart(place)));
            }
            let from = if at_start { 0 } else { FROM_MS };
            let why = check(&plan, from, Some(bug)).err()?;
            // What is noticed is the bug.
            check(&plan, from, None).is_ok().then_some((seed, why))
        });
        println!("{bug:?}: {noticed:?}");
        assert!(noticed.is_some(), "{bug:?} is not noticed");
    }
}
