//! Queries of clusters in one process: several bricks, a peer server, and clients.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod guards;
mod random;
mod stale_schema;
mod unreachable;
mod world;

use std::time::Duration;

use client::{Client, CommitOutcome, ConnectOptions, ErrorKind, IsolationLevel};
use model::Value;
use query::{Query, Row};
use wire::cluster::MAX_OPEN_QUERIES;
use world::{PERSON, STUDENT, World, create, expect_committed, names, object, parse, person};

#[tokio::test]
async fn query_merges_all_logical_nodes_in_order() {
    let world = World::start(3, 6).await;
    let cluster = world.client().await;
    let people: Vec<_> = (0..50).map(|age| (PERSON, person(&format!("p{age:02}"), age))).collect();
    create(&cluster, &people).await;
    let found = cluster.query(&parse("age >= 40 order by age")).await.unwrap().all().await.unwrap();
    assert_eq!(names(&found), (40..50).map(|age| format!("p{age:02}")).collect::<Vec<_>>());
    let some = cluster.query(&parse("order by age desc skip 2 limit 3")).await.unwrap().all().await.unwrap();
    assert_eq!(names(&some), ["p47", "p46", "p45"]);
    let none = cluster.query(&parse("age > 100")).await.unwrap().all().await.unwrap();
    assert_eq!(none, []);
    world.end().await;
}

#[tokio::test]
async fn references_are_followed_to_other_logical_nodes() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let bosses = create(&cluster, &[(PERSON, person("Ann", 50)), (PERSON, person("Bea", 60))]).await;
    let workers: Vec<_> = (0..20)
        .map(|index| {
            let boss = Some(bosses[index % 2]);
            (STUDENT, world::Person { boss, ..person(&format!("w{index:02}"), index as i64) })
        })
        .collect();
    create(&cluster, &workers).await;
    let query = parse("boss.name == 'Ann' && age < 6 order by name");
    assert_eq!(names(&cluster.query(&query).await.unwrap().all().await.unwrap()), ["w00", "w02", "w04"]);
    // A reference to a deleted object is followed as null.
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.delete(bosses[0]).await.unwrap();
    expect_committed(&t).await;
    assert_eq!(cluster.query(&query).await.unwrap().all().await.unwrap(), []);
    let left = parse("boss.name == null && boss != null && age < 4 order by name");
    assert_eq!(names(&cluster.query(&left).await.unwrap().all().await.unwrap()), ["w00", "w02"]);
    world.end().await;
}

#[tokio::test]
async fn queries_beyond_the_limit_wait_until_others_have_ended() {
    let world = World::start(1, 2).await;
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(5);
    let cluster = Client::connect_with(&world.url(), options).await.unwrap();
    let people: Vec<_> = (0..3_000).map(|age| (PERSON, person("Ann", age))).collect();
    for some in people.chunks(500) {
        create(&cluster, some).await;
    }
    let ask = || async { cluster.query(&parse("age >= 0")).await };
    let mut open = Vec::new();
    for _ in 0..MAX_OPEN_QUERIES {
        open.push(ask().await.unwrap());
    }
    let refused = ask().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    let (another, ()) = tokio::join!(ask(), async { drop(open.pop()) });
    assert_eq!(another.unwrap().all().await.unwrap().len(), 3_000);
    drop(open);
    // Those whose callers do not wait for the first answer do not stay open.
    for _ in 0..2 * MAX_OPEN_QUERIES {
        tokio::select! {
            biased;
            _ = ask() => {}
            // It is polled once.
            () = std::future::ready(()) => {}
        }
    }
    assert_eq!(ask().await.unwrap().all().await.unwrap().len(), 3_000);
    // So more threads of a program can ask at once.
    let patient = world.client().await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..MAX_OPEN_QUERIES + 20 {
        let patient = patient.clone();
        asking.spawn(async move { patient.query(&parse("age < 5")).await.unwrap().all().await.unwrap().len() });
    }
    assert!(asking.join_all().await.iter().all(|found| *found == 5));
    world.end().await;
}

#[tokio::test]
async fn grouped_query_returns_values_and_columns() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let people: Vec<_> = (0..30)
        .map(|index| {
            let city = Some(["Rome", "Oslo", "Bonn"][index as usize % 3].to_owned());
            (PERSON, world::Person { city, ..person("x", index) })
        })
        .collect();
    create(&cluster, &people).await;
    let query = parse("select city, count(*) as many, avg(age) where age < 20 group by city order by city");
    let rows = cluster.query(&query).await.unwrap();
    assert_eq!(rows.columns(), ["city", "many", "avg(age)"]);
    let row = |city: &str, many: i64, avg: f64| Row::Values(vec![city.into(), many.into(), avg.into()]);
    let rows = rows.all().await.unwrap();
    assert_eq!(rows, [row("Bonn", 6, 9.5), row("Oslo", 7, 10.0), row("Rome", 7, 9.0)]);
    // Bricks return only their counts.
    let count = cluster.query(&parse("select count(*) where age >= 10")).await.unwrap().all().await.unwrap();
    assert_eq!(count, [Row::Values(vec![Value::Int64(20)])]);
    world.end().await;
}

#[tokio::test]
async fn query_includes_subclasses_unless_excluded() {
    let world = World::start(2, 2).await;
    let cluster = world.client().await;
    create(&cluster, &[(PERSON, person("Ann", 1)), (STUDENT, person("Bob", 2))]).await;
    let all = parse("order by name");
    assert_eq!(names(&cluster.query(&all).await.unwrap().all().await.unwrap()), ["Ann", "Bob"]);
    let only = Query { only: true, ..all };
    assert_eq!(names(&cluster.query(&only).await.unwrap().all().await.unwrap()), ["Ann"]);
    let students = Query::parse_of("Student", "").unwrap();
    assert_eq!(names(&cluster.query(&students).await.unwrap().all().await.unwrap()), ["Bob"]);
    world.end().await;
}

#[tokio::test]
async fn query_in_a_transaction_includes_its_writes() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let known =
        create(&cluster, &[(PERSON, person("Ann", 20)), (PERSON, person("Bob", 30)), (PERSON, person("Cid", 40))])
            .await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    let all = parse("age >= 20 order by age");
    let asked = async |query: &Query| names(&t.query(query).await.unwrap().all().await.unwrap());
    assert_eq!(asked(&all).await, ["Ann", "Bob", "Cid"]);
    let counted = async || t.query(&parse("select count(*)")).await.unwrap().all().await.unwrap();
    assert_eq!(counted().await, [Row::Values(vec![Value::Int64(3)])]);
    // An object is changed, one is deleted, and others are created with temporary identifiers.
    t.put(known[0], object(PERSON, &person("Ann", 10))).await.unwrap();
    assert_eq!(counted().await, [Row::Values(vec![Value::Int64(3)])], "a changed object is counted once");
    t.delete(known[1]).await.unwrap();
    let new = t.create_object(STUDENT, object(STUDENT, &person("Dan", 25)), Default::default()).unwrap();
    let worker = world::Person { boss: Some(new), ..person("Eve", 50) };
    t.create_object(PERSON, object(PERSON, &worker), Default::default()).unwrap();
    assert_eq!(asked(&all).await, ["Dan", "Cid", "Eve"]);
    assert_eq!(asked(&parse("age >= 20 order by age limit 1")).await, ["Dan"]);
    assert_eq!(asked(&parse("boss.name == 'Dan'")).await, ["Eve"]);
    assert_eq!(counted().await, [Row::Values(vec![Value::Int64(4)])]);
    // Other clients see the changes after the commit.
    let others = cluster.query(&all).await.unwrap().all().await.unwrap();
    assert_eq!(names(&others), ["Ann", "Bob", "Cid"]);
    expect_committed(&t).await;
    let others = cluster.query(&all).await.unwrap().all().await.unwrap();
    assert_eq!(names(&others), ["Dan", "Cid", "Eve"]);
    world.end().await;
}

#[tokio::test]
async fn followed_references_count_as_reads() {
    let world = World::start(2, 4).await;
    let (one, other) = (world.client().await, world.client().await);
    let boss = create(&one, &[(PERSON, person("Ann", 50))]).await[0];
    create(&one, &[(STUDENT, world::Person { boss: Some(boss), ..person("Bob", 20) })]).await;
    let query = Query::parse_of("Student", "boss.age == 50").unwrap();
    let t = one.begin(IsolationLevel::Optimistic);
    assert_eq!(names(&t.query(&query).await.unwrap().all().await.unwrap()), ["Bob"]);
    let t2 = other.begin(IsolationLevel::Optimistic);
    t2.put(boss, object(PERSON, &person("Ann", 51))).await.unwrap();
    expect_committed(&t2).await;
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Conflict(_)), "the boss has changed");
    world.end().await;
}

/// No copy of the followed objects is held that an invalidation could advance to the version of the page.
#[tokio::test]
async fn followed_references_do_not_conflict_with_changes_of_other_objects_of_the_page() {
    let world = World::start(1, 1).await;
    let (one, other) = (world.client().await, world.client().await);
    let bosses = create(&one, &[(PERSON, person("Ann", 50)), (PERSON, person("Bea", 60))]).await;
    assert_eq!(bosses[0].page(), bosses[1].page());
    create(&one, &[(STUDENT, world::Person { boss: Some(bosses[0]), ..person("Bob", 20) })]).await;
    let query = Query::parse_of("Student", "boss.age == 50").unwrap();
    for age in 61..80 {
        let t = one.begin(IsolationLevel::Optimistic);
        assert_eq!(names(&t.query(&query).await.unwrap().all().await.unwrap()), ["Bob"]);
        let t2 = other.begin(IsolationLevel::Optimistic);
        t2.put(bosses[1], object(PERSON, &person("Bea", age))).await.unwrap();
        expect_committed(&t2).await;
        expect_committed(&t).await;
    }
    world.end().await;
}

#[tokio::test]
async fn explanation_contains_the_counts_of_the_execution() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let boss = create(&cluster, &[(PERSON, person("Ann", 99))]).await[0];
    let people: Vec<_> = (0..40)
        .map(|age| (PERSON, world::Person { boss: Some(boss).filter(|_| age % 4 == 0), ..person("x", age) }))
        .collect();
    create(&cluster, &people).await;
    let query = parse("age >= 20 && boss.name == 'Ann' order by age limit 2");
    let mut rows = cluster.explain(&query).await.unwrap();
    let mut count = 0;
    while rows.next().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 2);
    let explained = rows.explanation().unwrap();
    let lines: Vec<&str> = explained.text.lines().map(str::trim).collect();
    let of = |start: &str| *lines.iter().find(|line| line.trim_start_matches("└ ").starts_with(start)).unwrap();
    assert!(of("page [peer]").ends_with("(2)"), "{}", explained.text);
    assert!(of("filter [peer]").ends_with("(5)"), "{}", explained.text);
    assert!(of("extent scan [brick]").ends_with("(41)"), "{}", explained.text);
    assert!(of("navigate [peer]").ends_with("(1)"), "{}", explained.text);
    let json: serde_json::Value = serde_json::from_str(&explained.json).unwrap();
    assert_eq!((&json["step"], &json["objects"]), (&"page".into(), &2.into()));
    world.end().await;
}

#[tokio::test]
async fn error_of_a_query_shows_its_position() {
    let world = World::start(1, 1).await;
    let cluster = world.client().await;
    let error = cluster.query(&parse("agee > 3")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no field agee") && error.to_string().contains("^^^^"), "{error}");
    let error = cluster.query(&Query::of("Unknown")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    // The same holds for errors during the execution.
    create(&cluster, &[(PERSON, person("Ann", 0))]).await;
    let rows = cluster.query(&parse("10 / age > 3")).await;
    let error = match rows {
        Ok(rows) => rows.all().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    world.end().await;
}

#[tokio::test]
async fn long_result_is_streamed_and_ends_with_its_reader() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    for part in 0..6 {
        let people: Vec<_> = (0..1_000).map(|age| (PERSON, person(&"x".repeat(100), 1_000 * part + age))).collect();
        create(&cluster, &people).await;
    }
    let all = cluster.query(&parse("")).await.unwrap().all().await.unwrap();
    assert_eq!(all.len(), 6_000);
    let t = cluster.begin(IsolationLevel::Optimistic);
    assert_eq!(t.query(&parse("")).await.unwrap().all().await.unwrap().len(), 6_000);
    expect_committed(&t).await;
    // More queries than may be open at a time can be started one after another, because each ends when it is dropped.
    for _ in 0..200 {
        let mut rows = cluster.query(&parse("")).await.unwrap();
        assert!(rows.next().await.unwrap().is_some());
    }
    let mut open = Vec::new();
    let refused = loop {
        match cluster.query(&parse("")).await {
            Ok(rows) => open.push(rows),
            Err(error) => break error,
        }
        assert!(open.len() <= 64);
    };
    assert_eq!(refused.kind(), ErrorKind::TooLarge, "{refused}");
    drop(open);
    assert_eq!(cluster.query(&parse("")).await.unwrap().all().await.unwrap().len(), 6_000);
    world.end().await;
}

#[tokio::test]
async fn query_of_a_group_snapshot_is_refused() {
    let world = World::start(1, 1).await;
    let cluster = world.client().await;
    let t = cluster.begin(IsolationLevel::Snapshot);
    assert_eq!(t.query(&parse("")).await.unwrap_err().kind(), ErrorKind::Unsupported);
    world.end().await;
}
