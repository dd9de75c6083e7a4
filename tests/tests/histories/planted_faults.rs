//! Judges that never find anything prove nothing: here something is wrong, and they say so.

use std::path::PathBuf;

use sim::history::{Kind, Outcome, Step, Value};

use crate::judge::{FinalState, judge};
use crate::run::{Scenario, World};
use crate::test_cluster::ServerId;

/// What the demands are called that a judge finds not to hold.
const PROPERTIES: [&str; 5] = ["strict serializability", "snapshots", "acknowledged", "exactly once", "bank"];

/// A cluster that has worked for a while, the copy of a brick from the middle of that, and how everything was in the end.
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
    world.test_cluster.heal(None).await.unwrap();
    let finals = world.read_final_state().await.unwrap();
    let found = world.judge(&finals, &[]).unwrap_err();
    assert!(PROPERTIES.iter().any(|demand| found.starts_with(demand)), "{found}");
}

#[tokio::test]
async fn history_that_was_tampered_with_is_noticed() {
    let (world, _, finals) = run_world().await;
    let (history, objects) = (world.record.history(), &world.objects);
    judge(&history, &finals, &[], objects).unwrap();
    let ok = |kind: Kind| {
        move |operation: &&mut sim::history::Operation| operation.outcome == Outcome::Ok && operation.kind == kind
    };

    // An element that was acknowledged is not there in the end.
    let mut less = finals.clone();
    for list in less.lists.values_mut() {
        list.pop();
    }
    let found = judge(&history, &less, &[], objects).unwrap_err();
    assert!(found.starts_with("acknowledged"), "{found}");

    // So is one of a transaction that is said not to have happened.
    let mut denied = history.clone();
    let appends = |operation: &&mut sim::history::Operation| {
        operation.outcome == Outcome::Ok && operation.steps.iter().any(|step| matches!(step, Step::Append(..)))
    };
    denied.operations.iter_mut().find(appends).unwrap().outcome = Outcome::Failed;
    assert!(judge(&denied, &finals, &[], objects).is_err());

    // A transaction has read a list in another order.
    let mut turned = history.clone();
    let steps = turned.operations.iter_mut().filter(ok(Kind::Transaction)).flat_map(|operation| &mut operation.steps);
    let long = |step: &&mut Step| matches!(step, Step::Read(_, Value::List(list)) if list.len() > 1);
    let Some(Step::Read(_, Value::List(list))) = steps.into_iter().find(long) else { panic!("nobody has read two") };
    list.reverse();
    let found = judge(&turned, &finals, &[], objects).unwrap_err();
    assert!(found.starts_with("strict serializability"), "{found}");

    // Money is gone.
    let mut poor = finals.clone();
    *poor.accounts.values_mut().next().unwrap() -= 1;
    let found = judge(&history, &poor, &[], objects).unwrap_err();
    assert!(found.starts_with("bank"), "{found}");

    // A value is there that was replaced before.
    let mut old = finals;
    let kept = old.singles.iter_mut().find(|(_, value)| value.is_some()).unwrap();
    *kept.1 = None;
    let found = judge(&history, &old, &[], objects).unwrap_err();
    assert!(found.starts_with("acknowledged"), "{found}");
}
