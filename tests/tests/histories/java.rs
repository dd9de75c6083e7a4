//! Java virtual machines and Rust clients that use the same objects. `script/java test` runs these tests.

use std::time::Instant;

use mortar_tests::TEST_TIMEOUT;

use crate::client_process::ClientProgram;
use crate::plan::Fault;
use crate::run::{Scenario, World};
use crate::run_scenario;

/// Operations among which many have read outdated values.
const OUTDATED_OPERATIONS: usize = 500;

impl Scenario {
    /// Two virtual machines and some Rust clients.
    const fn in_java(name: &'static str) -> Self {
        let program = ClientProgram::Java { retains_values: false };
        Self { processes: 2, program, threads: 3, transactional: 3, writers: 0, ..Self::new(name) }
    }
}

#[test]
#[ignore = "needs the Java classes; script/java test runs it"]
fn java_and_rust_are_consistent_while_nothing_fails() {
    run_scenario(&Scenario { length_ms: 6_000, needs_conflicts: true, ..Scenario::in_java("java-nothing") });
}

#[test]
#[ignore = "needs the Java classes; script/java test runs it"]
fn java_and_rust_are_consistent_while_servers_are_killed() {
    let faults = &[Fault::Kill];
    run_scenario(&Scenario { faults, is_one_lost: true, ..Scenario::in_java("java-killed") });
}

#[test]
#[ignore = "needs the Java classes; script/java test runs it"]
fn java_and_rust_are_consistent_while_virtual_machines_are_killed() {
    let faults = &[Fault::KillClients];
    run_scenario(&Scenario { faults, gap_ms: 2_000, ..Scenario::in_java("java-replaced") });
}

/// With `RetainValues`, the persistence managers of JDO read values of an earlier transaction.
#[tokio::test]
#[ignore = "needs the Java classes; script/java test runs it"]
async fn java_that_reads_outdated_values_is_noticed() {
    let program = ClientProgram::Java { retains_values: true };
    let scenario = Scenario { program, ..Scenario::in_java("java-outdated") };
    let mut world = World::start(&scenario, 1).await.unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while world.record.operation_count() < OUTDATED_OPERATIONS && Instant::now() < until {
        world.inject_faults(100).await.unwrap();
    }
    let opens = world.stop().await.unwrap();
    let happened = world.resolve_in_doubt(opens).await.unwrap();
    let finals = world.read_final_state().await.unwrap();
    let found = world.judge(&finals, &happened).unwrap_err();
    assert!(found.starts_with("strict serializability"), "{found}");
}
