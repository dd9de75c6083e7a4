//! Unique indexes.

use std::time::Duration;

use client::{AdminClient, Client, CommitOutcome, ErrorKind, IsolationLevel, Ref, Result};
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

#[derive(client::Persistent, Clone, Debug, PartialEq)]
struct Label {
    #[persistent(unique)]
    blob: client::Oid,
}

#[derive(client::Persistent, Clone, Debug, PartialEq)]
struct Guest {
    #[persistent(parent)]
    user: User,
    host: String,
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

#[tokio::test]
async fn transaction_with_locks_commits_many_objects_with_unique_values() {
    let world = World::start(1).await;
    let client = world.client().await;
    client.define::<User>().await.unwrap();
    for round in 0..3 {
        let t = client.begin(IsolationLevel::Locks);
        for number in 0..2_000 {
            t.create(user(None, 10_000 * round + number)).await.unwrap();
        }
        assert!(matches!(t.commit().await, Ok(CommitOutcome::Committed(_))), "round {round}");
    }
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

#[tokio::test]
async fn values_of_objects_from_before_a_unique_index_are_bound_when_it_is_made() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<User>().await.unwrap();
    let with_visits = |visits, number| User { visits, ..user(None, number) };
    let mut users = Vec::new();
    for number in 0..20 {
        users.push(create(&cluster, with_visits(100 + number, number)).await.unwrap());
    }
    let fields = vec!["visits".to_owned()];
    let (name, class) = ("by_visits".to_owned(), "User".to_owned());
    ask(&cluster, &SchemaRequest::CreateIndex { name, class, fields, unique: true }).await;
    while state_of(&cluster, "by_visits").await != (IndexState::Ready, None) {
        sleep(Duration::from_millis(5)).await;
    }
    for number in 0..20 {
        assert_eq!(kind(create(&cluster, with_visits(100 + number, 50)).await), ErrorKind::Exists);
    }
    // With locks, too; and a commit that was refused may be tried again with another value.
    let t = cluster.begin(IsolationLevel::Locks);
    let new = t.create(with_visits(100, 50)).await.unwrap();
    assert_eq!(kind(t.commit().await), ErrorKind::Exists);
    t.load_mut(new).await.unwrap().visits = 99;
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    // Who is removed, whether it was read or not, and who changes its value, releases it.
    let other = world.client().await;
    let (removed, deleted, changed) = (users[0], users[1].oid(), users[2]);
    other
        .transact(|t| async move {
            t.remove(removed).await?;
            t.delete(deleted).await?;
            t.load_mut(changed).await?.visits = 200;
            Ok(())
        })
        .await
        .unwrap();
    for (visits, number) in [(100, 60), (101, 61), (102, 62)] {
        create(&other, with_visits(visits, number)).await.unwrap();
    }
    for visits in [100, 101, 102, 200, 99] {
        assert_eq!(kind(create(&cluster, with_visits(visits, 70)).await), ErrorKind::Exists);
    }
    world.end().await;
}

/// A client that creates an index binds the values of existing objects. If it ends before, another object could get one of these values.
#[tokio::test]
async fn unique_index_is_not_ready_before_the_values_of_all_objects_are_bound() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<User>().await.unwrap();
    for number in 0..20 {
        create(&cluster, User { visits: 100 + number, ..user(None, number) }).await.unwrap();
    }
    let admin = AdminClient::connect(&world.url()).await.unwrap();
    let fields = vec!["visits".to_owned()];
    let (name, class) = ("by_visits".to_owned(), "User".to_owned());
    let request = SchemaRequest::CreateIndex { name, class, fields, unique: true };
    let made = admin.describe(schema_request_to_proto("main", &request).unwrap()).await.unwrap();
    let index = schema_answer_from_proto(made).unwrap().indexes.into_iter().find(|index| index.name == "by_visits");
    let index = index.unwrap().id.0;
    for node in admin.nodes().await.unwrap() {
        while !admin.build_index(node, index).await.unwrap_or(false) {
            sleep(Duration::from_millis(5)).await;
        }
    }
    for _ in 0..100 {
        assert_eq!(state_of(&cluster, "by_visits").await, (IndexState::Building, None));
        sleep(Duration::from_millis(10)).await;
    }
    cluster.complete_unique_indexes([index]).await.unwrap();
    while state_of(&cluster, "by_visits").await != (IndexState::Ready, None) {
        sleep(Duration::from_millis(5)).await;
    }
    world.end().await;
}

fn with_number(number: i64) -> query::Query {
    query::Query::parse_of("User", &format!("number == {number}")).unwrap()
}

/// The numbers of visits of the users that a query finds.
async fn visits(rows: client::Rows) -> Vec<i64> {
    let rows = rows.all().await.unwrap();
    let records = rows.iter().map(|row| match row {
        query::Row::Object(_, record) => model::RecordRef::new(record).unwrap(),
        other => panic!("{other:?}"),
    });
    let visits = |record: model::RecordRef<'_>| match record.field(model::FieldNumber(3)).unwrap() {
        Some(model::ValueRef::Int64(visits)) => visits,
        other => panic!("{other:?}"),
    };
    records.map(visits).collect()
}

#[tokio::test]
async fn query_for_a_unique_value_sees_every_change() {
    let world = World::start(2).await;
    let (one, two) = (world.client().await, world.client().await);
    one.define::<User>().await.unwrap();
    two.define::<User>().await.unwrap();
    while state_of(&one, "User.number").await.0 != IndexState::Ready {
        sleep(Duration::from_millis(5)).await;
    }
    two.define::<User>().await.unwrap();
    assert_eq!(visits(two.query(&with_number(1)).await.unwrap()).await, [0; 0]);
    let ann = create(&one, User { visits: 5, ..user(None, 1) }).await.unwrap();
    for cluster in [&one, &two] {
        assert_eq!(visits(cluster.query(&with_number(1)).await.unwrap()).await, [5]);
        assert_eq!(visits(cluster.query(&with_number(2)).await.unwrap()).await, [0; 0]);
        let wrong = query::Query::parse_of("User", "number == 'one'").unwrap();
        assert_eq!(kind(cluster.query(&wrong).await), ErrorKind::Invalid);
    }
    // A transaction sees what it has written and not committed.
    let t = two.begin(IsolationLevel::Optimistic);
    t.load_mut(ann).await.unwrap().number = 2;
    t.create(User { visits: 9, ..user(None, 3) }).await.unwrap();
    for (number, expected) in [(1, &[][..]), (2, &[5]), (3, &[9])] {
        assert_eq!(visits(t.query(&with_number(number)).await.unwrap()).await, expected, "number {number}");
    }
    t.abort();
    // What it has looked up counts as read, whether it was found or not.
    for number in [1, 7] {
        let t = two.begin(IsolationLevel::Optimistic);
        drop(t.query(&with_number(number)).await.unwrap());
        t.create(user(None, 100 + number)).await.unwrap();
        let changed = one.transact(|t| async move {
            t.load_mut(ann).await?.number = 8 - number;
            Ok(())
        });
        changed.await.unwrap();
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Conflict(_)));
    }
    // A client that has not heard that the index was removed finds what is there.
    ask(&one, &SchemaRequest::RemoveIndex { name: "User.number".to_owned() }).await;
    // A brick may hear of that later than this client: then the transaction conflicts, and is begun again.
    let created = one.transact(|t| async move {
        for _ in 0..2 {
            t.create(User { visits: 4, ..user(None, 20) }).await?;
        }
        Ok(())
    });
    created.await.unwrap();
    for _ in 0..2 {
        assert_eq!(visits(two.query(&with_number(20)).await.unwrap()).await, [4, 4]);
        let found = two.transact(|t| async move { t.query(&with_number(20)).await?.all().await });
        assert_eq!(found.await.unwrap().len(), 2);
    }
    create(&two, user(None, 20)).await.unwrap();
    world.end().await;
}

/// An index has the values of subclasses, too. A query that asks for one class alone does not find their objects by it.
#[tokio::test]
async fn query_for_a_unique_value_of_one_class_does_not_find_an_object_of_a_subclass() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Guest>().await.unwrap();
    while state_of(&cluster, "User.number").await.0 != IndexState::Ready {
        sleep(Duration::from_millis(5)).await;
    }
    cluster.define::<Guest>().await.unwrap();
    let guest = Guest { user: User { visits: 5, ..user(None, 7) }, host: "Ann".to_owned() };
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.create(guest).await.unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let of_one_class = query::Query { only: true, ..with_number(7) };
    assert_eq!(visits(cluster.query(&with_number(7)).await.unwrap()).await, [5]);
    assert_eq!(visits(cluster.query(&of_one_class).await.unwrap()).await, [0; 0]);
    world.end().await;
}

#[tokio::test]
async fn unique_reference_to_an_object_of_the_same_transaction_is_that_to_the_object() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<Label>().await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let blob = t.create_blob("new").unwrap();
    t.create(Label { blob }).await.unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let real = t.real_oid(blob).unwrap();
    let again = cluster.transact(|t| async move { t.create(Label { blob: real }).await });
    assert_eq!(kind(again.await), ErrorKind::Exists);
    world.end().await;
}
