//! Queries while a brick is away.

use std::time::Duration;

use client::ErrorKind;
use client::cluster::{Cluster, ClusterOptions, Event};
use tokio::time;

use super::world::{PERSON, World, create, parsed, person};

#[tokio::test]
async fn a_brick_that_is_away_is_blamed_for_what_waits_for_it_and_for_nothing_else() {
    let mut world = World::start(2, 2).await;
    let people: Vec<_> = (0..2_200).map(|number| (PERSON, person(&format!("Ann {number}"), 30))).collect();
    create(&world.client().await, &people).await;
    let mut options = ClusterOptions::default();
    options.timeout = Duration::from_secs(3);
    let (cluster, hasty) = (world.client().await, Cluster::connect_with(&world.url(), options).await.unwrap());
    // Queries that nobody reads keep others from being sorted.
    let sorted = parsed("order by name");
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(cluster.query(&sorted).await.unwrap());
    }
    let mut events = hasty.events().unwrap();
    let asking = hasty.clone();
    let asked = tokio::spawn(async move { asking.query(&parsed("order by name")).await?.all().await });
    world.bricks.remove(1).shutdown().await.unwrap();
    let brick = loop {
        if let Event::BrickFailed(brick) = events.next().await.unwrap() {
            break brick.brick;
        }
    };
    // Longer than the client's patience.
    time::sleep(Duration::from_secs(5)).await;
    assert!(!asked.is_finished(), "it waits for its turn, and not for a brick");
    drop(unread);
    let late = asked.await.unwrap().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert!(late.message().contains(&format!("brick {brick} (")), "{late}");
    world.end().await;
}
