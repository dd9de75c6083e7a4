//! The results of a transaction's queries stay valid until it commits, or it does not commit. Also tests of indexes.

use std::time::Duration;

use client::{AdminClient, Client, CommitOutcome, IsolationLevel, Transaction};
use model::{ClassId, Value};
use query::{Query, Row};

use super::world::{self, PERSON, STUDENT, World, create, expect_committed, names, object, parse, person};

/// Creates an index and waits until it is ready.
pub(crate) async fn index(world: &World, name: &str, fields: &[&str]) {
    let editor = world.cluster_view.editor().unwrap();
    let made = editor.create_index("main", name, "Person", fields, false).await.unwrap();
    world.cluster_view.wait_for_revision(made.revision).await.unwrap();
    let client = AdminClient::connect(&world.url()).await.unwrap();
    for node in client.nodes().await.unwrap() {
        while !client.build_index(node, made.value.id.0).await.unwrap_or(false) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let ready = editor.record_index_build("main", name, made.value.id, None).await.unwrap();
    world.cluster_view.wait_for_revision(ready.revision).await.unwrap();
}

async fn count(t: &Transaction, query: &Query) -> client::Result<i64> {
    match t.query(query).await?.all().await?.as_slice() {
        [Row::Values(values)] => match values[0] {
            Value::Int64(count) => Ok(count),
            _ => panic!("{values:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn insert(t: &Transaction, class: ClassId, who: &world::Person) {
    t.create_object(class, object(class, who), Default::default()).unwrap();
}

#[tokio::test]
async fn query_conflicts_with_concurrent_insertion() {
    let world = World::start(2, 4).await;
    for has_index in [false, true] {
        if has_index {
            index(&world, "by_age", &["age"]).await;
        }
        let (one, other) = (world.client().await, world.client().await);
        let query = parse("select count(*) where age >= 30");
        let (a, b) = (one.begin(IsolationLevel::Optimistic), other.begin(IsolationLevel::Optimistic));
        assert_eq!(count(&a, &query).await.unwrap(), count(&b, &query).await.unwrap());
        insert(&a, PERSON, &person("Ann", 30));
        insert(&b, STUDENT, &person("Bob", 31));
        expect_committed(&a).await;
        assert!(
            matches!(b.commit().await.unwrap(), CommitOutcome::Conflict(_)),
            "its count does not include Ann; index: {has_index}"
        );
        // The query of a transaction without writes conflicts, too. A later one includes the insertion.
        let c = other.begin(IsolationLevel::Optimistic);
        let before = count(&c, &query).await.unwrap();
        create(&one, &[(PERSON, person("Cid", 32))]).await;
        assert!(matches!(c.commit().await.unwrap(), CommitOutcome::Conflict(_)));
        let d = other.begin(IsolationLevel::Optimistic);
        assert_eq!(count(&d, &query).await.unwrap(), before + 1);
        expect_committed(&d).await;
    }
    world.end().await;
}

#[tokio::test]
async fn query_conflicts_with_changes_and_deletions_of_its_objects() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let oids = create(&cluster, &[(PERSON, person("Ann", 30)), (PERSON, person("Bob", 40))]).await;
    let query = parse("age >= 20 order by age");
    for step in 0..2 {
        let t = cluster.begin(IsolationLevel::Optimistic);
        assert!(!t.query(&query).await.unwrap().all().await.unwrap().is_empty());
        let other = cluster.begin(IsolationLevel::Optimistic);
        match step {
            0 => other.put(oids[0], object(PERSON, &person("Ann", 31))).await.unwrap(),
            _ => other.delete(oids[1]).await.unwrap(),
        }
        expect_committed(&other).await;
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Conflict(_)), "{step}");
    }
    world.end().await;
}

#[tokio::test]
async fn query_of_one_index_value_does_not_conflict_with_other_values() {
    let world = World::start(2, 4).await;
    index(&world, "by_city", &["city"]).await;
    let cluster = world.client().await;
    let of = |city: &str| world::Person { city: Some(city.to_owned()), ..person("x", 1) };
    create(&cluster, &[(PERSON, of("Rome")), (PERSON, of("Oslo"))]).await;
    let query = parse("city == 'Rome'");
    let t = cluster.begin(IsolationLevel::Optimistic);
    assert_eq!(t.query(&query).await.unwrap().all().await.unwrap().len(), 1);
    create(&cluster, &[(PERSON, of("Oslo")), (PERSON, of("Bonn"))]).await;
    expect_committed(&t).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    assert_eq!(t.query(&query).await.unwrap().all().await.unwrap().len(), 1);
    create(&cluster, &[(PERSON, of("Rome"))]).await;
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Conflict(_)));
    world.end().await;
}

#[tokio::test]
async fn concurrent_counts_and_insertions_are_serializable() {
    let world = World::start(2, 3).await;
    let clients = [world.client().await, world.client().await, world.client().await];
    let rounds = 6;
    let work = |cluster: Client| async move {
        for _ in 0..rounds {
            let query = &parse("select count(*)");
            let counted = cluster.transact(|t| async move {
                let count = count(&t, query).await?;
                insert(&t, PERSON, &person("x", count));
                Ok(count)
            });
            counted.await.unwrap();
        }
    };
    let tasks: Vec<_> = clients.into_iter().map(|cluster| tokio::spawn(work(cluster))).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let cluster = world.client().await;
    let rows = cluster.query(&parse("select age order by age")).await.unwrap().all().await.unwrap();
    let ages: Vec<Row> = (0..3 * rounds).map(|age| Row::Values(vec![Value::Int64(age)])).collect();
    assert_eq!(rows, ages, "each count includes all earlier insertions");
    world.end().await;
}

#[tokio::test]
async fn locking_query_blocks_insertions() {
    // With one logical node there is one guard.
    for nodes in [1, 4] {
        insertions_wait_for_a_locking_query(World::start(1, nodes).await).await;
    }
}

async fn insertions_wait_for_a_locking_query(world: World) {
    let (one, other) = (world.client().await, world.client().await);
    let query = &parse("select count(*)");
    let t = one.begin(IsolationLevel::Locks);
    assert_eq!(count(&t, query).await.unwrap(), 0);
    // The insertion waits, or is refused and repeated, until the other transaction has ended.
    let inserting = tokio::spawn(async move {
        let inserted = other.transact(|t| async move {
            insert(&t, PERSON, &person("Ann", 1));
            Ok(())
        });
        inserted.await.unwrap();
        other
    });
    insert(&t, PERSON, &person("Bob", 2));
    assert_eq!(count(&t, query).await.unwrap(), 1);
    expect_committed(&t).await;
    let other = inserting.await.unwrap();
    let t = other.begin(IsolationLevel::Locks);
    assert_eq!(count(&t, query).await.unwrap(), 2);
    expect_committed(&t).await;
    world.end().await;
}

#[tokio::test]
async fn index_is_read_in_order_and_only_up_to_the_limit() {
    let world = World::start(2, 4).await;
    let cluster = world.client().await;
    let people: Vec<_> = (0..200).map(|age| (PERSON, person(&format!("p{age:03}"), age))).collect();
    create(&cluster, &people).await;
    index(&world, "by_age", &["age"]).await;
    let mut rows = cluster.explain(&parse("order by age desc limit 3")).await.unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().await.unwrap() {
        found.push(row);
    }
    assert_eq!(names(&found), ["p199", "p198", "p197"]);
    let plan = &rows.explanation().unwrap().text;
    assert!(plan.contains("index range [brick]: by_age: everything, backwards; of Person"), "{plan}");
    let scanned: u64 = plan.lines().last().unwrap().rsplit(['(', ')']).nth(1).unwrap().parse().unwrap();
    assert!(scanned <= 24, "three from each of four logical nodes, at most twice: {plan}");
    // The index has entries of objects that were created later.
    let t = cluster.begin(IsolationLevel::Optimistic);
    insert(&t, STUDENT, &person("new", 300));
    assert_eq!(
        names(&t.query(&parse("order by age desc limit 2")).await.unwrap().all().await.unwrap()),
        ["new", "p199"]
    );
    expect_committed(&t).await;
    let rows = cluster.query(&parse("age > 198 order by age")).await.unwrap().all().await.unwrap();
    assert_eq!(names(&rows), ["p199", "new"]);
    world.end().await;
}
