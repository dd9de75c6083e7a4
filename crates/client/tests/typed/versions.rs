//! Programs of several versions, and classes that extend others.

use std::time::Duration;

use client::plant::Bug;
use client::{ErrorKind, IsolationLevel, Ref};
use meta::catalog::{EvolutionStep, IndexState, SchemaRequest};
use model::planted_bug::assert_noticed;
use node::catalog_messages::{schema_answer_from_proto, schema_request_to_proto};

use super::world::World;
use super::{expect_committed, kind};

mod old {
    #[derive(client::Persistent, Debug, PartialEq)]
    pub(super) struct Person {
        pub(super) name: String,
        pub(super) age: i64,
    }
}

mod new {
    #[derive(client::Persistent, Debug, PartialEq)]
    #[persistent(index(name, mail))]
    pub(super) struct Person {
        pub(super) name: String,
        pub(super) age: f64,
        #[persistent(default = "unknown@example.org".to_owned())]
        pub(super) mail: String,
        pub(super) boss: Option<client::Ref<Person>>,
    }

    #[derive(client::Persistent, Debug, PartialEq)]
    pub(super) struct Employee {
        #[persistent(parent)]
        pub(super) person: Person,
        pub(super) number: u32,
    }
}

/// The old version without the field that became wider.
mod middle {
    #[derive(client::Persistent, Debug, PartialEq)]
    pub(super) struct Person {
        pub(super) name: String,
    }
}

#[tokio::test]
async fn programs_of_several_versions_use_same_objects() {
    let world = World::start(2).await;
    let (older, newer) = (world.client().await, world.client().await);
    older.define::<old::Person>().await.unwrap();
    let t = older.begin(IsolationLevel::Optimistic);
    let ann = t.create(old::Person { name: "Ann".to_owned(), age: 30 }).await.unwrap();
    expect_committed(&t).await;
    // A newer program reads what an older one wrote, with defaults.
    newer.define::<new::Employee>().await.unwrap();
    let ann = Ref::<new::Person>::new(ann.oid());
    let t = newer.begin(IsolationLevel::Optimistic);
    {
        let mut person = t.load_mut(ann).await.unwrap();
        assert_eq!((person.age, person.mail.as_str(), person.boss), (30.0, "unknown@example.org", None));
        person.mail = "ann@example.org".to_owned();
    }
    expect_committed(&t).await;
    // An older program keeps fields that it does not have, whether or not its client has the new class.
    let still = Ref::<middle::Person>::new(ann.oid());
    for again in [&older, &world.client().await] {
        let renamed = again.transact(|t| async move {
            t.load_mut(still).await?.name.push('a');
            Ok(())
        });
        renamed.await.unwrap();
    }
    let person = newer.transact(|t| async move { Ok(t.load(ann).await?.mail.clone()) }).await.unwrap();
    assert_eq!(person, "ann@example.org");
    assert_eq!(newer.read(still).await.unwrap().unwrap().name, "Annaa");
    // A program whose field is narrower than the class's gets an error.
    let error = older.define::<old::Person>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("too old"), "{error}");
    let fresh = world.client().await;
    let t = fresh.begin(IsolationLevel::Optimistic);
    let error = t.load(Ref::<old::Person>::new(ann.oid())).await.unwrap_err();
    assert!(error.message().contains("field age of class Person is of type float64"), "{error}");
    // A program without a required field cannot create objects.
    let error = t.create(middle::Person { name: "Bob".to_owned() }).await.unwrap_err();
    assert!(error.message().contains("field age of class Person has to have a value"), "{error}");
    world.end().await;
}

#[tokio::test]
async fn indexes_of_program_become_ready() {
    let world = World::start(2).await;
    let cluster = world.client().await;
    cluster.define::<new::Employee>().await.unwrap();
    let request = schema_request_to_proto("", &SchemaRequest::Show).unwrap();
    loop {
        let known = schema_answer_from_proto(cluster.describe(request.clone()).await.unwrap()).unwrap();
        assert_eq!(known.indexes.len(), 1);
        if known.indexes[0].state == IndexState::Ready {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.end().await;
}

#[tokio::test]
async fn object_can_be_loaded_as_parent_class() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<new::Employee>().await.unwrap();
    let person = new::Person { name: "Ann".to_owned(), age: 3.5, mail: String::new(), boss: None };
    let t = cluster.begin(IsolationLevel::Optimistic);
    let ann = t.create(new::Employee { person, number: 7 }).await.unwrap();
    expect_committed(&t).await;
    let as_person = Ref::<new::Person>::new(ann.oid());
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.load_mut(as_person).await.unwrap().name.push('a');
    // Both are the same object, with one struct at a time.
    let employee = t.load(ann).await.unwrap();
    assert_eq!((employee.person.name.as_str(), employee.number), ("Anna", 7));
    assert_eq!(kind(t.load(as_person).await), ErrorKind::Invalid);
    drop(employee);
    t.load_mut(ann).await.unwrap().number = 8;
    t.load_mut(as_person).await.unwrap().boss = Some(as_person);
    expect_committed(&t).await;
    let employee = cluster.read(ann).await.unwrap().unwrap();
    assert_eq!((employee.person.boss, employee.number), (Some(as_person), 8));
    world.end().await;
}

#[tokio::test]
async fn object_of_a_subclass_that_was_defined_later_can_be_loaded() {
    let world = World::start(1).await;
    let (cluster, other) = (world.client().await, world.client().await);
    cluster.define::<new::Person>().await.unwrap();
    other.define::<new::Employee>().await.unwrap();
    let person = new::Person { name: "Ann".to_owned(), age: 3.5, mail: String::new(), boss: None };
    let t = other.begin(IsolationLevel::Optimistic);
    let ann = t.create(new::Employee { person, number: 7 }).await.unwrap();
    expect_committed(&t).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    assert_eq!(t.load(Ref::<new::Person>::new(ann.oid())).await.unwrap().name, "Ann");
    world.end().await;
}

#[derive(client::Persistent, Debug, PartialEq)]
struct Point {
    x: i64,
    y: i64,
}

/// Two fields exchange their names between two loads of one object, whose record stays the same.
async fn load_before_and_after_a_change_of_the_class() {
    let world = World::start(1).await;
    let cluster = world.client().await;
    cluster.define::<Point>().await.unwrap();
    let point = cluster.transact(|t| async move { t.create(Point { x: 1, y: 2 }).await }).await.unwrap();
    let load = || cluster.transact(|t| async move { Ok(t.load(point).await?.x) });
    assert_eq!((load().await.unwrap(), load().await.unwrap()), (1, 1));
    let rename = |field: &str, to: &str| EvolutionStep::Rename { field: field.to_owned(), to: to.to_owned() };
    for (field, to) in [("x", "z"), ("y", "x"), ("z", "y")] {
        let request = SchemaRequest::Evolve { class: "Point".to_owned(), steps: vec![rename(field, to)] };
        cluster.describe(schema_request_to_proto("", &request).unwrap()).await.unwrap();
    }
    // A program looks at the classes of its space again.
    cluster.define::<Point>().await.unwrap();
    assert_eq!((load().await.unwrap(), load().await.unwrap()), (2, 2));
    world.end().await;
}

#[test]
fn struct_is_decoded_again_when_its_class_has_changed() {
    assert_noticed(&[Bug::OldMappingTaken], || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(load_before_and_after_a_change_of_the_class());
    });
}
