//! Queries while a brick is unreachable.

use std::time::Duration;

use client::{Client, CommitOutcome, ConnectOptions, ErrorKind, Event, IsolationLevel, PlacementHint};
use model::{ClassId, Kind, Object, Oid};
use query::Query;
use tokio::time;

use super::world::{PERSON, Person, STUDENT, World, create, expect_committed, object, parse, person};

#[tokio::test]
async fn unreachable_brick_is_reported_only_by_queries_that_wait_for_it() {
    let mut world = World::start(2, 2).await;
    let people: Vec<_> = (0..2_200).map(|number| (PERSON, person(&format!("Ann {number}"), 30))).collect();
    create(&world.client().await, &people).await;
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(3);
    let (cluster, hasty) = (world.client().await, Client::connect_with(&world.url(), options).await.unwrap());
    // Unread sorted queries keep others from being sorted.
    let sorted = parse("order by name");
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(cluster.query(&sorted).await.unwrap());
    }
    let mut events = hasty.events().unwrap();
    assert_eq!(world.peer.connection_problem(), None);
    let asking = hasty.clone();
    let asked = tokio::spawn(async move {
        let mut rows = asking.query(&parse("order by name")).await?;
        let first = rows.next().await;
        if first.is_err() {
            assert!(rows.next().await.is_err(), "the error is returned again");
        }
        first
    });
    world.bricks.remove(1).shutdown().await.unwrap();
    let brick = loop {
        if let Event::BrickFailed(brick) = events.next().await.unwrap() {
            break brick.brick;
        }
    };
    let problem = world.peer.connection_problem().expect("a brick cannot be reached");
    assert!(problem.ends_with(&format!(": {brick}")), "{problem}");
    // This is longer than the timeout of the client.
    time::sleep(Duration::from_secs(5)).await;
    assert!(!asked.is_finished(), "the query waits for other queries, not for a brick");
    drop(unread);
    let late = asked.await.unwrap().unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert!(late.message().contains(&format!("brick {brick} (")), "{late}");
    world.end().await;
}

#[tokio::test]
async fn wait_for_the_brick_of_a_reference_is_limited() {
    let mut world = World::start(2, 2).await;
    let maker = world.client().await;
    // One boss is at each brick. All students are at the first brick, and those with its boss are returned first.
    let bosses = create(&maker, &[(PERSON, person("Boss", 50)), (PERSON, person("Boss", 60))]).await;
    let brick = |boss: &Oid| world.cluster_view.placement.of(boss.page().node).unwrap().brick;
    let gone = world.bricks.pop().unwrap();
    let is_of_gone = |boss: &Oid| world.cluster_view.placement.snapshot().bricks[&brick(boss)] == gone.addresses()[0];
    let (of_gone, of_other): (Vec<Oid>, Vec<Oid>) = bosses.into_iter().partition(is_of_gone);
    let (away, here, number) = (of_gone[0], of_other[0], brick(&of_gone[0]).0);
    let t = maker.begin(IsolationLevel::Optimistic);
    for student in 0..1_800 {
        let boss = if student < 1_200 { here } else { away };
        let student = Person { boss: Some(boss), ..person(&format!("Ann {student}"), 20) };
        t.create_object(STUDENT, object(STUDENT, &student), PlacementHint::At(here.page().node)).unwrap();
    }
    expect_committed(&t).await;
    maker.close();
    let with = |timeout| {
        let mut options = ConnectOptions::default();
        options.timeout = Duration::from_secs(timeout);
        options
    };
    let hasty = Client::connect_with(&world.url(), with(3)).await.unwrap();
    let patient = Client::connect_with(&world.url(), with(60)).await.unwrap();
    let asked = Query::parse_of("Student", "boss.name == \"Boss\"").unwrap();
    let (of_hasty, of_patient) = (hasty.query(&asked).await.unwrap(), patient.query(&asked).await.unwrap());
    let mut events = hasty.events().unwrap();
    // The second brick has no students and has reported so by then. The query needs only one boss from it.
    time::sleep(Duration::from_secs(1)).await;
    gone.shutdown().await.unwrap();
    while !matches!(events.next().await.unwrap(), Event::BrickFailed(_)) {}
    let long = Duration::from_secs(30);
    let (of_hasty, of_patient) =
        tokio::join!(time::timeout(long, of_hasty.all()), time::timeout(long, of_patient.all()));
    let late = of_hasty.expect("the query waits for ever").unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert!(late.message().contains(&format!("brick {number} (")), "{late}");
    // The wait of the peer server is limited, too, whatever the timeout of the client.
    let late = of_patient.expect("the query waits for ever").unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert!(late.message().ends_with(&format!("; it is at brick {number}")), "{late}");
    world.end().await;
}

#[tokio::test]
async fn commit_is_sent_only_if_all_bricks_that_it_needs_can_be_reached() {
    let mut world = World::start(2, 2).await;
    let blob = || Object::blob("content".into());
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(1);
    options.snapshots = true;
    let maker = world.client().await;
    let t = maker.begin(IsolationLevel::Optimistic);
    let space = world.cluster_view.space("main").unwrap();
    let oids: Vec<Oid> = space
        .nodes
        .iter()
        .map(|node| t.create_object(ClassId::NONE, blob(), PlacementHint::At(*node)).unwrap())
        .collect();
    expect_committed(&t).await;
    let oids = oids.into_iter().map(|oid| t.real_oid(oid).unwrap());
    let gone = world.bricks.pop().unwrap();
    let is_of_gone = |oid: &Oid| {
        let brick = world.cluster_view.placement.of(oid.page().node).unwrap().brick;
        world.cluster_view.placement.snapshot().bricks[&brick] == gone.addresses()[0]
    };
    let (away, here): (Vec<Oid>, Vec<Oid>) = oids.partition(is_of_gone);
    let (away, here) = (away[0], here[0]);
    let cluster = Client::connect_with(&world.url(), options).await.unwrap();
    let snapshot = cluster.begin(IsolationLevel::Snapshot);
    assert_eq!(snapshot.get(away).await.unwrap(), Some(blob()));
    let mut events = cluster.events().unwrap();
    gone.shutdown().await.unwrap();
    while !matches!(events.next().await.unwrap(), Event::BrickFailed(_)) {}
    let [creates, replaces, uses_other] = [(); 3].map(|()| cluster.begin(IsolationLevel::Optimistic));
    creates.create_object(ClassId::NONE, blob(), PlacementHint::Near(away)).unwrap();
    replaces.put(away, blob()).await.unwrap();
    uses_other.put(here, blob()).await.unwrap();
    uses_other.create_object(ClassId::NONE, blob(), PlacementHint::Near(here)).unwrap();
    let set = Object::collection(Kind::Collection);
    let set = uses_other.create_object(ClassId::NONE, set, PlacementHint::Near(here)).unwrap();
    uses_other.add_member(set, here).await.unwrap();
    let (created, replaced, other) = tokio::join!(creates.commit(), replaces.commit(), uses_other.commit());
    for refused in [created, replaced] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(matches!(other.unwrap(), CommitOutcome::Committed(_)));
    // The end of a snapshot needs no brick.
    assert!(snapshot.commit().await.is_ok());
    world.end().await;
}
