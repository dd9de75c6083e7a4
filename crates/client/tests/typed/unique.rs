//! Unique indexes.

use std::time::Duration;

use client::{Client, CommitOutcome, ErrorKind, IsolationLevel, Ref, Result};
use meta::catalog::{IndexState, SchemaAnswer, SchemaRequest};
use model::{Object, RecordBuilder};
use node::catalog_messages::{schema_answer_from_proto, schema_request_to_proto};
use tokio::time::sleep;

use super::kind;
use super::world::World;

#[derive(client::Persistent, Clone, Debug, PartialEq)]
struct User {
    #[persistent(unique)]
    mail: Option<String>,
    #[persistent(unique)]
    number: i64,
    visits: i64,
}

fn user(mail: Option<&str>, number: i64) -> User {
    User { mail: mail.map(str::to_owned), number, visits: 0 }
}

async fn create(cluster: &Client, user: User) -> Result<Ref<User>> {
    cluster
        .transact(|t| {
            let user = user.clone();
            async move { t.create(user).await }
        })
        .await
}

async fn ask(cluster: &Client, request: &SchemaRequest) -> SchemaAnswer {
    let request = schema_request_to_proto("", request).unwrap();
    schema_answer_from_proto(cluster.describe(request).await.unwrap()).unwrap()
}

async fn state_of(cluster: &Client, name: &str) -> (IndexState, Option<String>) {
    let indexes = ask(cluster, &SchemaRequest::Show).await.indexes;
    let index = indexes.into_iter().find(|index| index.name == name).unwrap();
    (index.state, index.flaw)
}

#[tokio::test]
async fn value_of_unique_index_is_refused_for_second_object() {
    let world = World::start(2).await;
    let (one, two) = (world.client().await, world.client().await);
    one.define::<User>().await.unwrap();
    // One client without classes, and one with the class.
    let ann = create(&one, user(Some("ann@example.org"), 1)).await.unwrap();
    two.define::<User>().await.unwrap();
    for cluster in [&one, &two] {
        let error = create(cluster, user(Some("ann@example.org"), 2)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.message().contains(&ann.oid().to_string()) && error.message().contains("mail"), "{error}");
        assert_eq!(kind(create(cluster, user(None, 1)).await), ErrorKind::Exists);
    }
    // Null never conflicts. Objects of one transaction may conflict too.
    create(&one, user(None, 3)).await.unwrap();
    create(&two, user(None, 4)).await.unwrap();
    let t = two.begin(IsolationLevel::Optimistic);
    t.create(user(None, 5)).await.unwrap();
    t.create(user(None, 5)).await.unwrap();
    assert_eq!(kind(t.commit().await), ErrorKind::Exists);
    // An object may change without its values, a removed one releases its values, and two may change theirs in one transaction.
    let changed = two.transact(|t| async move {
        t.load_mut(ann).await?.visits += 1;
        Ok(())
    });
    changed.await.unwrap();
    let renamed = two.transact(|t| async move {
        t.load_mut(ann).await?.mail = Some("anna@example.org".to_owned());
        t.create(user(Some("ann@example.org"), 6)).await
    });
    let other = renamed.await.unwrap();
    let taken = one.transact(|t| async move {
        t.load_mut(other).await?.mail = Some("anna@example.org".to_owned());
        Ok(())
    });
    assert_eq!(kind(taken.await), ErrorKind::Exists);
    one.transact(|t| async move { t.remove(ann).await }).await.unwrap();
    create(&two, user(Some("anna@example.org"), 1)).await.unwrap();
    world.end().await;
}

/// Bricks learn before peer servers, or after them, that queries may use the index.
#[tokio::test]
async fn transaction_right_after_the_creation_of_a_unique_index_commits() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<User>().await.unwrap();
    for round in 0..10 {
        let (name, fields) = (format!("again_{round}"), vec!["number".to_owned()]);
        ask(&cluster, &SchemaRequest::CreateIndex { name, class: "User".to_owned(), fields, unique: true }).await;
        for number in 0..20 {
            let t = cluster.begin(IsolationLevel::Optimistic);
            t.create(user(None, 100 * round + number)).await.unwrap();
            let outcome = t.commit().await.unwrap();
            assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn one_of_many_concurrent_creations_with_same_value_succeeds() {
    let world = World::start(2).await;
    let first = world.client().await;
    first.define::<User>().await.unwrap();
    for round in 0..5 {
        let mut tries = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let cluster = world.client().await;
            tries.spawn(async move { create(&cluster, user(None, 100 + round)).await });
        }
        let ended = tries.join_all().await;
        assert_eq!(ended.iter().filter(|one| one.is_ok()).count(), 1, "{ended:?}");
        let refused = |one: &Result<Ref<User>>| one.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exists);
        assert_eq!(ended.iter().filter(|one| refused(one)).count(), 3, "{ended:?}");
    }
    world.end().await;
}

/// A transaction whose number is in use has read an old state of the counter, so it is repeated and does not fail.
#[tokio::test]
async fn concurrent_increments_of_counter_get_distinct_numbers() {
    let world = World::start(2).await;
    let first = world.client().await;
    first.define::<User>().await.unwrap();
    let counter = create(&first, user(None, 0)).await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let cluster = world.client().await;
        tasks.spawn(async move {
            for _ in 0..10 {
                let taken = cluster.transact(|t| async move {
                    let number = {
                        let mut counter = t.load_mut(counter).await?;
                        counter.visits += 1;
                        counter.visits
                    };
                    t.create(user(None, number)).await
                });
                taken.await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(first.read(counter).await.unwrap().unwrap().visits, 40);
    world.end().await;
}

#[tokio::test]
async fn brick_refuses_writes_of_unchecked_unique_values() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<User>().await.unwrap();
    let ann = create(&cluster, user(Some("ann@example.org"), 1)).await.unwrap();
    // A write outside of transactions does not check unique values first.
    let mut record = RecordBuilder::new();
    record.set(model::FieldNumber(2), 7_i64).unwrap();
    let record = Object::record(ann.oid().class(), record.build().unwrap());
    let error = cluster.put(ann.oid(), record).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert_eq!(cluster.read(ann).await.unwrap().unwrap().number, 1);
    world.end().await;
}

#[tokio::test]
async fn unique_index_becomes_ready_when_duplicates_are_changed() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<User>().await.unwrap();
    // A brick may learn of the indexes later than the client: then it is run again.
    let created = cluster.transact(|t| async move {
        for number in 1..=3 {
            let user = t.create(user(None, number)).await?;
            t.load_mut(user).await?.visits = 7;
        }
        Ok(())
    });
    created.await.unwrap();
    for name in ["User.mail", "User.number"] {
        while state_of(&cluster, name).await.0 != IndexState::Ready {
            sleep(Duration::from_millis(5)).await;
        }
    }
    let fields = vec!["visits".to_owned()];
    let (name, class) = ("by_visits".to_owned(), "User".to_owned());
    ask(&cluster, &SchemaRequest::CreateIndex { name, class, fields, unique: true }).await;
    let flaw = loop {
        match state_of(&cluster, "by_visits").await {
            (IndexState::Building, Some(flaw)) => break flaw,
            (state, _) => assert_eq!(state, IndexState::Building),
        }
        sleep(Duration::from_millis(5)).await;
    };
    assert!(flaw.contains("have the same values"), "{flaw}");
    // The index is enforced for new objects already.
    assert_eq!(kind(create(&cluster, User { visits: 7, ..user(None, 4) }).await), ErrorKind::Exists);
    let found = cluster.query(&query::Query::of("User")).await.unwrap().all().await.unwrap();
    assert_eq!(found.len(), 3);
    for (row, visits) in found.into_iter().zip(8..) {
        let query::Row::Object(oid, _) = row else { panic!("{row:?}") };
        let user = Ref::<User>::new(oid);
        let changed = cluster.transact(|t| async move {
            t.load_mut(user).await?.visits = visits;
            Ok(())
        });
        changed.await.unwrap();
    }
    while state_of(&cluster, "by_visits").await != (IndexState::Ready, None) {
        sleep(Duration::from_millis(20)).await;
    }
    world.end().await;
}
