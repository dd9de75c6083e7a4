use std::collections::BTreeSet;
use std::time::Duration;

use meta::Embedded;
use meta::catalog::{Parameters, Storage};

use super::*;

async fn catalogue() -> Arc<dyn MetaStore> {
    let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
    CatalogEditor::new(store.clone()).set_up(&Parameters::generate()).await.unwrap();
    store
}

/// Adds a brick that is alive.
async fn brick(editor: &CatalogEditor, address: &str) -> meta::catalog::BrickId {
    let id = editor.add_brick(&[address.to_owned()], Storage::Durable).await.unwrap().value.id;
    let session = editor.store().open_session(Duration::from_secs(60)).await.unwrap().id;
    let start = editor.start_number().await.unwrap();
    editor.announce_brick(id, start, session).await.unwrap();
    id
}

#[tokio::test]
async fn view_has_the_spaces_and_the_map_of_the_catalogue() {
    let realm = ClusterView::follow(catalogue().await).await.unwrap();
    let editor = realm.editor().unwrap().clone();
    let (one, two) = (brick(&editor, "127.0.0.1:1").await, brick(&editor, "127.0.0.1:2").await);
    let options = SpaceOptions { nodes: Some(4), ..SpaceOptions::default() };
    let space = realm.create_space("photos", options).await.unwrap();
    assert_eq!(space.nodes.len(), 4);
    let map = realm.placement.snapshot();
    let served: BTreeSet<u32> = space.nodes.iter().map(|node| map.nodes[node].brick.0).collect();
    assert_eq!(served, BTreeSet::from([one.0, two.0]));
    assert_eq!(map.bricks[&BrickId(one.0)].to_string(), "127.0.0.1:1");
    assert!(realm.space("main").unwrap_err().message().contains("photos"));
    let moved = editor.set_brick_addresses(one, &["127.0.0.1:3".to_owned()]).await.unwrap();
    realm.wait_for_revision(moved.revision).await.unwrap();
    assert_eq!(realm.placement.snapshot().bricks[&BrickId(one.0)].to_string(), "127.0.0.1:3");
    // As in a cluster that was restored, until the brick is started.
    let removed = editor.remove_brick_addresses(one).await.unwrap();
    realm.wait_for_revision(removed.revision).await.unwrap();
    let map = realm.placement.snapshot();
    assert!(!map.bricks.contains_key(&BrickId(one.0)) && map.nodes.values().any(|place| place.brick.0 == one.0));
}

#[tokio::test]
async fn sealed_node_is_not_served() {
    let realm = ClusterView::follow(catalogue().await).await.unwrap();
    let editor = realm.editor().unwrap().clone();
    brick(&editor, "127.0.0.1:1").await;
    let node = realm.create_space("main", SpaceOptions::default()).await.unwrap().nodes[0];
    let epoch = realm.placement.of(node).unwrap().epoch;
    let other = brick(&editor, "127.0.0.1:2").await;
    let begun = editor.begin_move(node, other).await.unwrap();
    realm.wait_for_revision(begun.revision).await.unwrap();
    assert_eq!(realm.placement.of(node).unwrap().epoch, epoch, "a node that is copied is served");
    let sealed = editor.seal(node, other).await.unwrap();
    realm.wait_for_revision(sealed.revision).await.unwrap();
    assert_eq!(realm.placement.of(node), None);
}

#[tokio::test]
async fn numbers_are_given_once_and_are_those_of_starts() {
    let store = catalogue().await;
    let (one, two) =
        (ClusterView::follow(store.clone()).await.unwrap(), ClusterView::follow(store.clone()).await.unwrap());
    one.keep_number_pool_filled().await.unwrap();
    let mut seen = BTreeSet::new();
    for round in 0..1000 {
        for realm in [&one, &two] {
            let count = 1 + round % 16;
            let first = realm.take_numbers(count).await.unwrap();
            assert!((first..first + count).all(|number| seen.insert(number)), "{first} was given before");
        }
    }
    assert!(seen.insert(CatalogEditor::new(store).start_number().await.unwrap().0));
}

#[tokio::test]
async fn schema_is_what_the_catalogue_has_of_classes_and_indexes() {
    use meta::catalog::{ClassDefinition, EvolutionStep, FieldDefinition, FieldType};
    use model::{FieldNumber, Value};
    use query::Type;

    let realm = ClusterView::follow(catalogue().await).await.unwrap();
    let editor = realm.editor().unwrap().clone();
    brick(&editor, "127.0.0.1:1").await;
    let space = realm.create_space("main", SpaceOptions::default()).await.unwrap().id;
    assert_eq!(realm.schema(space).unwrap().classes.classes().count(), 0);
    let person = FieldType::Reference(Some("Person".to_owned()));
    let fields = vec![
        FieldDefinition::required("name", FieldType::String),
        FieldDefinition::optional("friends", FieldType::Set(Box::new(person))),
    ];
    let definition = ClassDefinition { name: "Person".to_owned(), parent: None, fields };
    let student = ClassDefinition { name: "Student".to_owned(), parent: Some("Person".to_owned()), fields: vec![] };
    editor.define("main", &[definition, student]).await.unwrap();
    let index = editor.create_index("main", "by_name", "Person", &["name"], true).await.unwrap();
    realm.wait_for_revision(index.revision).await.unwrap();
    let schema = realm.schema(space).unwrap();
    assert!(Arc::ptr_eq(&schema, &realm.schema(space).unwrap()), "an unchanged schema is computed once");
    let (person, student) = (schema.classes.class_named("Person").unwrap(), schema.classes.class_named("Student"));
    assert_eq!(student.unwrap().parent, Some(person.id));
    let friends = schema.classes.field_named(person.id, "friends").unwrap();
    assert_eq!((&friends.field_type, friends.optional), (&Type::set(Type::Reference(Some(person.id))), true));
    let [made] = schema.indexes.as_slice() else { panic!("{:?}", schema.indexes) };
    assert_eq!((made.name.as_str(), made.class, made.unique, made.ready), ("by_name", person.id, true, false));
    assert_eq!(made.fields, [FieldNumber(1)]);

    // Older records get the default from when the field was added, whatever the default for new objects is.
    let age = FieldDefinition::required("age", FieldType::Int64).with_default(18_i64);
    let other = EvolutionStep::SetDefault { field: "age".to_owned(), default: None };
    editor.evolve("main", "Person", &[EvolutionStep::Add(age), other]).await.unwrap();
    let ready = editor.record_index_build("main", "by_name", index.value.id, None).await.unwrap();
    realm.wait_for_revision(ready.revision).await.unwrap();
    let schema = realm.schema(space).unwrap();
    let age = schema.classes.field_named(person.id, "age").unwrap();
    assert_eq!((&age.missing, age.optional), (&Some(Value::Int64(18)), false));
    assert_eq!(schema.classes.field_named(person.id, "name").unwrap().missing, None);
    assert!(schema.indexes[0].ready);
}
