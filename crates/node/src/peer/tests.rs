use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

/// A peer server with two threads.
async fn role() -> PeerRole {
    let view = ClusterView::new(|_| Box::pin(async { Ok(100) }));
    PeerRole::new(view, 1, &Config { threads: 2, ..Config::default() }).await.unwrap()
}

fn panic_of(shard: &PeerShard) {
    let panicked = catch_unwind(AssertUnwindSafe(|| shard.with_driver(|_, _| panic!("a fault of the machine"))));
    assert!(panicked.is_err());
}

#[tokio::test]
async fn a_shard_that_has_panicked_is_reported_and_gets_no_more_connections() {
    let role = role().await;
    assert_eq!(role.health_problem(), None);
    assert!(role.can_serve(0) && role.can_serve(1));
    panic_of(&role.shards[1]);
    assert!(role.health_problem().is_some_and(|why| why.contains("panicked")));
    assert!(role.can_serve(0) && !role.can_serve(1));
}

#[tokio::test]
async fn a_shard_whose_background_work_has_panicked_serves_nothing() {
    let role = role().await;
    role.handle_background_panic(0);
    assert!(role.health_problem().is_some_and(|why| why.contains("panicked")));
    assert!(!role.can_serve(0) && role.can_serve(1));
    assert!(role.shards[0].with_driver(|_, _| ()).is_err() && role.shards[1].with_driver(|_, _| ()).is_ok());
}

#[tokio::test]
async fn metrics_of_other_shards_are_told_after_a_panic_of_one() {
    let role = role().await;
    let names = |metrics: Vec<Metric>| metrics.into_iter().map(|metric| metric.name).collect::<Vec<_>>();
    let before = names(role.metrics(&ServerCounters::new(2)));
    panic_of(&role.shards[0]);
    let metrics = role.metrics(&ServerCounters::new(2));
    let panicked = metrics.iter().find(|metric| metric.name == "threads_panicked").map(|metric| metric.value);
    assert_eq!(panicked, Some(1));
    assert_eq!(names(metrics), before);
}
