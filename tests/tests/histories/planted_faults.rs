//! Shows that the checkers notice faults: here something is wrong, and they must report it.

use std::path::PathBuf;

use check::history::{Kind, Outcome, Step, Value};

use crate::judge::{FinalState, judge};
use crate::run::{Scenario, World};
use crate::test_cluster::ServerId;

/// The properties whose violation a checker reports.
const PROPERTIES: [&str; 5] = ["strict serializability", "snapshots", "acknowledged", "exactly once", "bank"];

/// A cluster that has worked for a while, a copy of a brick from the middle of that time, and the final state.
async fn run_world() -> (World, PathBuf, FinalState) {
    let mut world = World::start(&Scenario { bricks: 2, peers: 1, ..Scenario::new("planted") }, 1).await.unwrap();
    world.inject_faults(1_000).await.unwrap();
    world.test_cluster.kill(ServerId::Brick(2));
    let copy = world.test_cluster.copy(ServerId::Brick(2));
    world.test_cluster.launch(ServerId::Brick(2));
    world.test_cluster.wait_ready(ServerId::Brick(2)).await.unwrap();
    world.inject_faults(2_000).await.unwrap();
    let opens = world.stop().await.unwrap();
    assert!(world.resolve_in_doubt(opens).await.unwrap().len() < 100);
    let finals = world.read_final_state().await.unwrap();
    (world, copy, finals)
}

#[tokio::test]
async fn brick_that_has_forgotten_commits_is_noticed() {
    let (mut world, copy, finals) = run_world().await;
    world.judge(&finals, &[]).unwrap();
    world.test_cluster.kill_all();
    world.test_cluster.roll_back(ServerId::Brick(2), &copy);
    // Without this it would be refused.
    world.test_cluster.launch(ServerId::Meta);
    world.test_cluster.wait_ready(ServerId::Meta).await.unwrap();
    world.test_cluster.accept_loss(ServerId::Brick(2));
    world.test_cluster.heal(None).await.unwrap();
    let finals = world.read_final_state().await.unwrap();
    let found = world.judge(&finals, &[]).unwrap_err();
    assert!(PROPERTIES.iter().any(|demand| found.starts_with(demand)), "{found}");
}

#[tokio::test]
async fn modified_history_is_noticed() {
    let (world, _, finals) = run_world().await;
    let (history, objects) = (world.record.history(), &world.objects);
    judge(&history, &finals, &[], objects).unwrap();
    let ok = |kind: Kind| {
        move |operation: &&mut check::history::Operation| operation.outcome == Outcome::Ok && operation.kind == kind
    };

    // An acknowledged element is missing in the final state.
    let mut less = finals.clone();
    for list in less.lists.values_mut() {
        list.pop();
    }
    let found = judge(&history, &less, &[], objects).unwrap_err();
    assert!(found.starts_with("acknowledged"), "{found}");

    // An element of a transaction that reportedly failed exists.
    let mut denied = history.clone();
    let appends = |operation: &&mut check::history::Operation| {
        operation.outcome == Outcome::Ok && operation.steps.iter().any(|step| matches!(step, Step::Append(..)))
    };
    denied.operations.iter_mut().find(appends).unwrap().outcome = Outcome::Failed;
    assert!(judge(&denied, &finals, &[], objects).is_err());

    // A transaction has read a list in another order.
    let mut turned = history.clone();
    let steps = turned.operations.iter_mut().filter(ok(Kind::Transaction)).flat_map(|operation| &mut operation.steps);
    let long = |step: &&mut Step| matches!(step, Step::Read(_, Value::List(list)) if list.len() > 1);
    let Some(Step::Read(_, Value::List(list))) = steps.into_iter().find(long) else {
        panic!("no transaction has read two elements")
    };
    list.reverse();
    let found = judge(&turned, &finals, &[], objects).unwrap_err();
    assert!(found.starts_with("strict serializability"), "{found}");

    // Money is missing.
    let mut poor = finals.clone();
    *poor.accounts.values_mut().next().unwrap() -= 1;
    let found = judge(&history, &poor, &[], objects).unwrap_err();
    assert!(found.starts_with("bank"), "{found}");

    // An object has a value that was replaced before.
    let mut old = finals;
    let kept = old.singles.iter_mut().find(|(_, value)| value.is_some()).unwrap();
    *kept.1 = None;
    let found = judge(&history, &old, &[], objects).unwrap_err();
    assert!(found.starts_with("acknowledged"), "{found}");
}
