//! Clusters of real processes that fail. The operations of their clients are recorded as histories (docs/history.md) and checked by the
//! checkers of the simulator.
//!
//! A seed determines the operations of clients and the faults. The timing of the processes is not deterministic, so a seed that failed
//! need not fail again: the history and the servers' logs are kept.
//!
//! `MORTAR_HISTORIES_SECONDS=N` repeats each scenario with new seeds for N seconds; `MORTAR_HISTORIES_SEED=N` uses one seed.
//! `MORTAR_HISTORIES_BACKUPS=N` repeats the scenario of backups until N of them were restored and judged.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "long runs report what was checked")]

mod acts;
mod backups;
mod client_process;
mod errors;
mod groups;
mod java;
mod judge;
mod levels;
mod message_tap;
mod objects;
mod plan;
mod planted_faults;
mod process_clients;
mod recorder;
mod relay;
mod run;
mod startup;
mod test_cluster;
mod worker;

use std::time::{Duration, Instant};

use plan::Fault;
use run::{Scenario, run};
use test_cluster::ServerId;

/// The seed of the suite.
const SEED: u64 = 1;

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Runs a scenario with the seed of the suite, or as the environment requests.
fn run_scenario(scenario: &Scenario) {
    run_until(scenario, 0);
}

/// The same, at least until this number of backups was restored.
fn run_until(scenario: &Scenario, mut backups: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seconds = Duration::from_secs(env_number("MORTAR_HISTORIES_SECONDS").unwrap_or(0));
    let first = env_number("MORTAR_HISTORIES_SEED");
    let (began, mut seed) = (Instant::now(), first.unwrap_or(SEED));
    loop {
        backups = backups.saturating_sub(runtime.block_on(run(scenario, seed)));
        if began.elapsed() >= seconds && backups == 0 {
            return;
        }
        seed = first.unwrap_or_else(rand::random);
    }
}

#[test]
fn consistency_holds_while_servers_are_killed() {
    run_scenario(&Scenario {
        faults: &[Fault::Kill, Fault::Kill, Fault::Kill, Fault::KillAll, Fault::ClientDies],
        is_all_killed: true,
        is_one_lost: true,
        ..Scenario::new("killed")
    });
}

#[test]
fn consistency_holds_while_servers_pause() {
    let faults = &[Fault::Pause, Fault::Pause, Fault::LongPause];
    run_scenario(&Scenario { faults, length_ms: 8_000, ..Scenario::new("stopped") });
}

#[test]
fn consistency_holds_while_connections_fail() {
    let faults = &[Fault::Cut, Fault::Delay, Fault::Hold, Fault::Refuse];
    run_scenario(&Scenario { faults, gap_ms: 300, ..Scenario::new("connections") });
}

#[test]
fn consistency_holds_in_fail_stop_spaces() {
    let faults = &[Fault::Kill, Fault::Kill, Fault::Cut, Fault::Refuse];
    run_scenario(&Scenario { faults, fail_stop: true, is_one_lost: true, ..Scenario::new("fail-stop") });
}

#[test]
fn consistency_holds_while_disks_are_full() {
    run_scenario(&Scenario { faults: &[Fault::Fill], gap_ms: 400, small_disks: true, ..Scenario::new("disks") });
}

#[test]
fn consistency_holds_while_everything_fails() {
    let faults =
        &[Fault::Kill, Fault::Kill, Fault::KillAll, Fault::Pause, Fault::Cut, Fault::Delay, Fault::Hold, Fault::Refuse];
    run_scenario(&Scenario { faults, is_one_lost: true, gap_ms: 300, ..Scenario::new("everything") });
}

#[test]
fn consistency_holds_while_logical_nodes_move() {
    run_scenario(&Scenario { faults: &[Fault::Move], gap_ms: 60, ..Scenario::new("moves") });
}

#[test]
fn consistency_holds_while_logical_nodes_move_and_servers_are_killed() {
    let faults = &[
        Fault::Move,
        Fault::Move,
        Fault::Move,
        Fault::KillMoving,
        Fault::KillMoving,
        Fault::KillMoving,
        Fault::CancelMoves,
        Fault::Pause,
        Fault::Hold,
        Fault::Cut,
    ];
    run_scenario(&Scenario { faults, gap_ms: 150, is_all_killed: true, ..Scenario::new("moves-killed") });
}

#[test]
#[ignore = "takes long: `script/nightly cuts` runs it"]
fn backups_are_one_moment_while_everything_fails() {
    let faults = &[
        Fault::Backup,
        Fault::Backup,
        Fault::Backup,
        Fault::Backup,
        Fault::Kill,
        Fault::Pause,
        Fault::Cut,
        Fault::Delay,
        Fault::Hold,
        Fault::Move,
        Fault::KillMoving,
    ];
    let wanted = env_number("MORTAR_HISTORIES_BACKUPS").unwrap_or(1);
    run_until(&Scenario { faults, gap_ms: 250, ..Scenario::new("backups") }, wanted);
}

#[test]
fn consistency_holds_in_groups_while_redirectors_and_servers_fail() {
    let faults = &[Fault::Kill, Fault::Kill, Fault::Pause, Fault::Cut, Fault::Delay, Fault::Hold, Fault::Refuse];
    run_scenario(&Scenario { redirectors: 2, faults, gap_ms: 400, length_ms: 10_000, ..Scenario::new("groups") });
}

/// Members of groups are processes here: killed and stopped at any moment, also while they help another one or commit.
#[test]
fn consistency_holds_in_groups_while_members_and_redirectors_fail() {
    let faults = &[
        Fault::KillClients,
        Fault::KillClients,
        Fault::KillClients,
        Fault::PauseClients,
        Fault::PauseClients,
        Fault::PauseClients,
        Fault::Kill,
        Fault::Pause,
        Fault::Cut,
        Fault::Delay,
        Fault::Hold,
    ];
    let fails = |server: &ServerId| matches!(server, ServerId::Redirector(_));
    let (processes, threads) = (4, 2);
    let world = Scenario { redirectors: 2, processes, threads, transactional: 4, ..Scenario::new("members") };
    run_scenario(&Scenario { faults, fails, gap_ms: 150, length_ms: 5_000, ..world });
}

#[test]
fn consistency_holds_in_a_group_while_nothing_fails() {
    run_scenario(&Scenario { redirectors: 1, ..Scenario::new("group") });
}

#[test]
fn consistency_holds_while_nothing_fails() {
    run_scenario(&Scenario { length_ms: 10_000, ..Scenario::new("nothing") });
}
