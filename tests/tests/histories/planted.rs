//! Judges that never find anything prove nothing: here something is wrong, and they say so.

use std::path::PathBuf;

use sim::history::{Kind, Outcome, Step, Value};

use crate::ground::Server;
use crate::judge::{Finals, judge};
use crate::run::{Scenario, World};

/// What the demands are called that a judge finds not to hold.
const DEMANDS: [&str; 5] = ["strict serializability", "snapshots", "acknowledged", "exactly once", "bank"];

/// A cluster that has worked for a while, the copy of a brick from the middle of that, and how everything was in the end.
async fn worked() -> (World, PathBuf, Finals) {
    let mut world = World::start(&Scenario { bricks: 2, peers: 1, ..Scenario::new("planted") }, 1).await.unwrap();
    world.fail(1_000).await.unwrap();
    world.ground.kill(Server::Brick(2));
    let copy = world.ground.copy(Server::Brick(2));
    world.ground.launch(Server::Brick(2));
    world.ground.ready(Server::Brick(2)).await.unwrap();
    world.fail(2_000).await.unwrap();
    let opens = world.stop().await.unwrap();
    assert!(world.find_out(opens).await.unwrap().len() < 100);
    let finals = world.finish().await.unwrap();
    (world, copy, finals)
}

#[tokio::test]
async fn brick_that_has_forgotten_commits_is_noticed() {
    let (mut world, copy, finals) = worked().await;
    world.judge(&finals, &[]).unwrap();
    world.ground.kill_all();
    world.ground.roll_back(Server::Brick(2), &copy);
    world.ground.heal(None).await.unwrap();
    let finals = world.finish().await.unwrap();
    let found = world.judge(&finals, &[]).unwrap_err();
    assert!(DEMANDS.iter().any(|demand| found.starts_with(demand)), "{found}");
}

#[tokio::test]
async fn history_that_was_tampered_with_is_noticed() {
    let (world, _, finals) = worked().await;
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
