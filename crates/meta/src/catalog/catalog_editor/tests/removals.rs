//! Removals of spaces and classes that must have no objects.

use super::*;
use crate::catalog::{ClassDefinition, FieldDefinition, FieldType, RemovedSpace, Space};

fn class(name: &str, parent: Option<&str>, refers_to: Option<&str>) -> ClassDefinition {
    let reference = |of: &str| FieldType::List(Box::new(FieldType::Reference(Some(of.to_owned()))));
    let field_type = refers_to.map_or(FieldType::Int64, reference);
    let field = FieldDefinition { name: format!("{name}_field"), field_type, optional: true, default: None };
    ClassDefinition { name: name.to_owned(), parent: parent.map(str::to_owned), fields: vec![field] }
}

#[tokio::test]
async fn marked_space_is_removed_when_the_removal_is_finished() {
    let editor = with_space().await;
    let begun = editor.begin_space_removal("main").await.unwrap().value;
    assert_eq!(catalog(&editor).await.space("main").unwrap().removals.space, Some(begun.number));
    editor.finish_space_removal(&begun).await.unwrap();
    let catalog = catalog(&editor).await;
    assert!(catalog.space("main").is_none());
    assert_eq!(catalog.removed_spaces().map(|one: &RemovedSpace| &*one.name).collect::<Vec<_>>(), ["main"]);
    assert_eq!(kind(editor.begin_space_removal("main").await), ErrorKind::NotFound);
    assert_eq!(kind(editor.finish_space_removal(&begun).await), ErrorKind::NotFound);
}

#[tokio::test]
pub(crate) async fn only_the_last_removal_that_was_not_taken_back_removes() {
    let editor = with_space().await;
    let ended = |result: Result<Edited<Space>>| matches!(result, Err(CatalogError::RemovalEnded { .. }));
    let first = editor.begin_space_removal("main").await.unwrap().value;
    let second = editor.begin_space_removal("main").await.unwrap().value;
    assert!(ended(editor.finish_space_removal(&first).await));
    // What takes back the first one leaves the mark of the second.
    editor.take_back_removal(&first).await.unwrap();
    assert_eq!(catalog(&editor).await.space("main").unwrap().removals.space, Some(second.number));
    editor.cancel_space_removal("main").await.unwrap();
    assert!(catalog(&editor).await.space("main").unwrap().removals.is_none());
    assert!(ended(editor.finish_space_removal(&second).await));
    assert!(matches!(editor.cancel_space_removal("main").await, Err(CatalogError::NotBeingRemoved { .. })));
    let third = editor.begin_space_removal("main").await.unwrap().value;
    editor.finish_space_removal(&third).await.unwrap();
    // A space of the same name is another one.
    editor.create_space("main", SpaceOptions::default()).await.unwrap();
    assert!(ended(editor.finish_space_removal(&third).await));
}

#[tokio::test]
async fn class_is_removed_when_nothing_needs_it_and_its_number_is_not_given_again() {
    let editor = with_space().await;
    let classes =
        [class("Person", None, None), class("Student", Some("Person"), None), class("Club", None, Some("Student"))];
    let made = editor.define("main", &classes).await.unwrap().value;
    editor.create_index("main", "by_person", "Person", &["Person_field"], false).await.unwrap();
    let needed_by = async |name: &str| match editor.begin_class_removal("main", name).await {
        Err(CatalogError::InUse { by, .. }) => by,
        other => panic!("{other:?}"),
    };
    assert!(needed_by("Person").await.contains("Student"));
    assert!(needed_by("Student").await.contains("Club_field"));
    assert_eq!(kind(editor.begin_class_removal("main", "None").await), ErrorKind::NotFound);

    let begun = editor.begin_class_removal("main", "Club").await.unwrap().value;
    // Something needs it since.
    editor.define("main", &[class("Team", Some("Club"), None)]).await.unwrap();
    assert!(matches!(editor.finish_class_removal(&begun, "Club").await, Err(CatalogError::InUse { .. })));
    editor.take_back_removal(&begun).await.unwrap();
    assert!(catalog(&editor).await.space("main").unwrap().removals.is_none());
    for name in ["Team", "Club", "Student"] {
        let begun = editor.begin_class_removal("main", name).await.unwrap().value;
        editor.finish_class_removal(&begun, name).await.unwrap();
    }
    let catalog = catalog(&editor).await;
    let schema = catalog.schema(SpaceId(1));
    let left: Vec<&str> = schema.classes().map(|class| &*class.class().name).collect();
    assert_eq!((left, catalog.space("main").unwrap().removals.is_none()), (vec!["Person"], true));
    assert!(needed_by("Person").await.contains("by_person"));
    let again = editor.define("main", &[class("Club", None, None)]).await.unwrap().value;
    assert!(made.iter().all(|class| class.id < again[0].id), "{again:?}");
    assert_eq!(editor.history("main", "Club").await.unwrap().len(), 1);
}

#[tokio::test]
async fn removal_of_a_class_that_was_taken_back_removes_nothing() {
    let editor = with_space().await;
    editor.define("main", &[class("Person", None, None)]).await.unwrap();
    let begun = editor.begin_class_removal("main", "Person").await.unwrap().value;
    editor.cancel_class_removal("main", "Person").await.unwrap();
    assert_eq!(kind(editor.finish_class_removal(&begun, "Person").await), ErrorKind::Conflict);
    assert!(matches!(
        editor.cancel_class_removal("main", "Person").await,
        Err(CatalogError::NotBeingRemoved { what: "class", .. })
    ));
    assert!(catalog(&editor).await.schema(SpaceId(1)).class_named("Person").is_some());
}
