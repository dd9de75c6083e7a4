//! Classes, their evolution, and indexes.

use std::collections::BTreeMap;

use model::{ClassId, FieldNumber, Value};

use super::*;
use crate::catalog::{
    Class, ClassDefinition, EvolutionError, EvolutionStep, FieldDefinition, FieldType, IndexState, ResolvedClass,
    Schema,
};

pub(super) fn definition(name: &str, parent: Option<&str>, fields: &[(&str, &str)]) -> ClassDefinition {
    let field = |(name, field_type): &(&str, &str)| match field_type.strip_suffix('?') {
        Some(optional) => FieldDefinition::optional(*name, optional.parse().unwrap()),
        None => FieldDefinition::required(*name, field_type.parse().unwrap()),
    };
    ClassDefinition {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        fields: fields.iter().map(field).collect(),
    }
}

/// A space with `Person` and, below it, `Student`.
async fn people() -> CatalogEditor {
    let editor = with_space().await;
    let person = definition("Person", None, &[("name", "string"), ("age", "int64"), ("boss", "ref<Person>?")]);
    let student = definition("Student", Some("Person"), &[("year", "int64?")]);
    let classes = editor.define("main", &[student, person]).await.unwrap().value;
    assert_eq!(
        classes.iter().map(|class| (&*class.name, class.id.0)).collect::<Vec<_>>(),
        [("Student", 2), ("Person", 1)]
    );
    editor
}

pub(super) async fn schema(editor: &CatalogEditor) -> Arc<Schema> {
    catalog(editor).await.schema(SpaceId(1))
}

/// The fields with their numbers: `name=1 age=2`.
pub(super) fn show(shape: &ResolvedClass) -> String {
    shape.fields().iter().map(|field| format!("{}={}", field.name, field.number)).collect::<Vec<_>>().join(" ")
}

async fn evolve(editor: &CatalogEditor, class: &str, steps: &[EvolutionStep]) -> Class {
    editor.evolve("main", class, steps).await.unwrap().value
}

async fn evolve_error(editor: &CatalogEditor, class: &str, step: EvolutionStep) -> EvolutionError {
    match editor.evolve("main", class, &[step]).await {
        Err(CatalogError::Evolution { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn add(name: &str, field_type: &str) -> EvolutionStep {
    EvolutionStep::Add(FieldDefinition::optional(name, field_type.parse().unwrap()))
}

fn text(field: &str) -> String {
    field.to_owned()
}

/// Reads a record through a class.
fn read(shape: &ResolvedClass, record: &[(u32, Value)]) -> BTreeMap<String, Value> {
    let value =
        |number: FieldNumber| record.iter().find(|(known, _)| *known == number.0).map(|(_, value)| value.clone());
    shape.fields().iter().map(|field| (field.name.clone(), field.upgrade_value(value(field.number)))).collect()
}

#[tokio::test]
async fn classes_have_the_fields_of_their_parents_and_numbers_of_their_own() {
    let editor = people().await;
    let schema = schema(&editor).await;
    assert_eq!(show(schema.class_named("Person").unwrap()), "name=1 age=2 boss=3");
    assert_eq!(show(schema.class_named("Student").unwrap()), "name=1 age=2 boss=3 year=4");
    let ids = |class: u32| schema.family(ClassId(class)).map(|shape| shape.class().id.0).collect::<Vec<_>>();
    assert_eq!((ids(1), ids(2)), (vec![1, 2], vec![2]));
    assert!(schema.is_a(ClassId(2), ClassId(1)) && !schema.is_a(ClassId(1), ClassId(2)));
    let student = schema.class(ClassId(2)).unwrap();
    assert_eq!(student.lineage(), [ClassId(2), ClassId(1)]);
    assert_eq!(student.field("boss").unwrap().field_type, FieldType::Reference(Some(text("Person"))));
    assert_eq!(student.field_by_number(FieldNumber(4)).unwrap().name, "year");
    assert!(student.field_by_number(FieldNumber(5)).is_none());
}

#[tokio::test]
async fn defining_an_existing_class_changes_nothing_and_names_the_difference() {
    let editor = people().await;
    let before = editor.store().read(Prefix::all()).await.unwrap();
    let person = definition("Person", None, &[("boss", "ref<Person>?"), ("age", "int64"), ("name", "string")]);
    editor.define("main", std::slice::from_ref(&person)).await.unwrap();
    assert_eq!(editor.store().read(Prefix::all()).await.unwrap(), before);
    for (fields, difference) in [
        (&[("name", "string"), ("age", "int64")][..], "field \"boss\" too"),
        (&[("name", "string"), ("age", "int64"), ("boss", "ref<Person>?"), ("x", "bool")], "no field \"x\""),
        (&[("name", "string"), ("age", "float64"), ("boss", "ref<Person>?")], "\"age\" is int64"),
        (&[("name", "string"), ("age", "int64"), ("boss", "ref<Person>")], "\"boss\" may be null"),
    ] {
        let error = editor.define("main", &[definition("Person", None, fields)]).await.unwrap_err();
        assert!(matches!(error, CatalogError::Differs { .. }) && error.to_string().contains(difference), "{error}");
    }
    let other = definition("Person", Some("Student"), &[]);
    assert!(matches!(editor.define("main", &[other]).await, Err(CatalogError::Differs { .. })));
}

#[tokio::test]
async fn invalid_classes_are_refused() {
    let editor = people().await;
    let define = |definition: ClassDefinition| {
        let editor = editor.clone();
        async move { editor.define("main", &[definition]).await.unwrap_err() }
    };
    let orphan = define(definition("A", Some("Nobody"), &[])).await;
    assert_eq!(orphan.kind(), ErrorKind::NotFound);
    let circle = editor.define("main", &[definition("A", Some("B"), &[]), definition("B", Some("A"), &[])]).await;
    assert_eq!(kind(circle), ErrorKind::NotFound);
    let same = define(definition("A", Some("Student"), &[("age", "int64")])).await;
    assert!(matches!(same, CatalogError::Evolution { why: EvolutionError::FieldExists { .. }, .. }), "{same}");
    let stranger = define(definition("A", None, &[("x", "list<ref<Nobody>>")])).await;
    assert!(matches!(stranger, CatalogError::Evolution { why: EvolutionError::NoClass { .. }, .. }), "{stranger}");
    for wrong in [
        definition("a/b", None, &[]),
        definition("A", None, &[("x", "bool"), ("x", "bool")]),
        definition("A", None, &[("a.b", "bool")]),
        with_field(FieldDefinition::required("x", FieldType::Int64).with_default("text")),
        with_field(FieldDefinition::required("x", FieldType::Reference(Some(text("a b"))))),
        with_field(FieldDefinition::required("x", FieldType::Int64).with_default(Value::Null)),
    ] {
        assert_eq!(define(wrong).await.kind(), ErrorKind::Invalid);
    }
    assert_eq!(kind(editor.define("none", &[]).await), ErrorKind::NotFound);
    assert_eq!(schema(&editor).await.classes().count(), 2);
}

/// A class `A` with one field.
fn with_field(field: FieldDefinition) -> ClassDefinition {
    ClassDefinition { name: text("A"), parent: None, fields: vec![field] }
}

#[tokio::test]
pub(crate) async fn records_of_all_versions_are_read_through_the_newest() {
    let editor = people().await;
    let old = [(1, Value::from("ann")), (2, Value::Int64(30)), (3, Value::Null)];
    evolve(
        &editor,
        "Person",
        &[
            EvolutionStep::Add(FieldDefinition::required("country", FieldType::String).with_default("CN")),
            EvolutionStep::Rename { field: text("name"), to: text("full_name") },
            EvolutionStep::Widen { field: text("age"), to: FieldType::Decimal },
            add("note", "string"),
        ],
    )
    .await;
    let newer = evolve(
        &editor,
        "Person",
        &[
            EvolutionStep::SetDefault { field: text("country"), default: Some(Value::from("US")) },
            EvolutionStep::Remove { field: text("boss") },
        ],
    )
    .await;
    assert_eq!(newer.version, 3);
    let schema = schema(&editor).await;
    let person = schema.class_named("Person").unwrap();
    assert_eq!(show(person), "full_name=1 age=2 country=5 note=6", "numbers continue after those of descendants");
    let record = read(person, &old);
    assert_eq!(record["full_name"], Value::from("ann"));
    assert_eq!(record["age"], Value::Decimal(30.into()));
    assert_eq!(record["country"], Value::from("CN"), "the value for older records never changes");
    assert_eq!(record["note"], Value::Null);
    assert!(!record.contains_key("boss"));
    assert_eq!(person.field("country").unwrap().default, Some(Value::from("US")));

    let history = editor.history("main", "Person").await.unwrap();
    let fields = |class: &Class| class.fields.iter().map(|field| &*field.name).collect::<Vec<_>>().join(" ");
    let history: Vec<(u32, String)> = history.iter().map(|class| (class.version, fields(class))).collect();
    let expected = [(1, "name age boss"), (2, "full_name age boss country note"), (3, "full_name age country note")];
    assert_eq!(history, expected.map(|(version, fields)| (version, fields.to_owned())));
}

#[tokio::test]
pub(crate) async fn a_number_is_never_used_again() {
    let editor = people().await;
    evolve(&editor, "Person", &[add("x", "int64"), EvolutionStep::Remove { field: text("x") }, add("x", "string")])
        .await;
    evolve(&editor, "Student", &[EvolutionStep::Remove { field: text("year") }, add("term", "int64")]).await;
    evolve(&editor, "Person", &[add("y", "bool")]).await;
    let schema = schema(&editor).await;
    assert_eq!(show(schema.class_named("Student").unwrap()), "name=1 age=2 boss=3 x=6 term=7 y=8");
    let record = read(schema.class_named("Person").unwrap(), &[(1, "ann".into()), (2, 3.into()), (5, 7.into())]);
    assert_eq!(record["x"], Value::Null, "the value of the removed field is not read as the new field");
}

#[tokio::test]
async fn nulls_become_values_when_a_field_becomes_required() {
    let editor = people().await;
    assert!(matches!(
        evolve_error(&editor, "Student", EvolutionStep::MakeRequired { field: text("year") }).await,
        EvolutionError::NoValue(_)
    ));
    evolve(
        &editor,
        "Student",
        &[
            EvolutionStep::SetDefault { field: text("year"), default: Some(Value::Int64(1)) },
            EvolutionStep::MakeRequired { field: text("year") },
        ],
    )
    .await;
    let known = [(1, Value::from("ann")), (2, Value::Int64(30)), (4, Value::Null)];
    assert_eq!(read(schema(&editor).await.class_named("Student").unwrap(), &known)["year"], Value::Int64(1));
    evolve(&editor, "Student", &[EvolutionStep::MakeOptional { field: text("year") }]).await;
    assert_eq!(read(schema(&editor).await.class_named("Student").unwrap(), &known)["year"], Value::Null);
}

#[tokio::test]
pub(crate) async fn invalid_evolution_is_refused_as_a_whole_with_a_reason() {
    let editor = people().await;
    editor.create_index("main", "by_age", "Student", &["age"], false).await.unwrap();
    let before = editor.store().read(Prefix::all()).await.unwrap();
    let required = EvolutionStep::Add(FieldDefinition::required("x", FieldType::Bool));
    assert!(matches!(evolve_error(&editor, "Person", required).await, EvolutionError::NoValue(_)));
    let widen = |field: &str, to: FieldType| EvolutionStep::Widen { field: text(field), to };
    assert!(matches!(
        evolve_error(&editor, "Person", widen("name", FieldType::Int64)).await,
        EvolutionError::Type { .. }
    ));
    assert!(matches!(
        evolve_error(&editor, "Person", widen("age", FieldType::Decimal)).await,
        EvolutionError::Indexed { .. }
    ));
    assert!(matches!(
        evolve_error(&editor, "Person", EvolutionStep::Remove { field: text("age") }).await,
        EvolutionError::Indexed { .. }
    ));
    assert!(matches!(
        evolve_error(&editor, "Student", EvolutionStep::Remove { field: text("name") }).await,
        EvolutionError::Inherited { .. }
    ));
    assert!(matches!(evolve_error(&editor, "Person", add("year", "bool")).await, EvolutionError::FieldExists { .. }));
    assert!(matches!(evolve_error(&editor, "Student", add("name", "bool")).await, EvolutionError::FieldExists { .. }));
    assert!(matches!(evolve_error(&editor, "Person", add("a b", "bool")).await, EvolutionError::Definition(_)));
    assert!(matches!(evolve_error(&editor, "Person", add("x", "ref<Unknown>")).await, EvolutionError::NoClass { .. }));
    let no_field = EvolutionStep::Rename { field: text("what"), to: text("x") };
    assert!(matches!(evolve_error(&editor, "Person", no_field).await, EvolutionError::NoField(_)));
    let half =
        editor.evolve("main", "Person", &[add("x", "bool"), EvolutionStep::Remove { field: text("what") }]).await;
    assert_eq!(kind(half), ErrorKind::NotFound);
    assert_eq!(kind(editor.evolve("main", "Unknown", &[]).await), ErrorKind::NotFound);
    assert_eq!(editor.store().read(Prefix::all()).await.unwrap().entries, before.entries);
}

#[tokio::test]
async fn references_widen_to_parents() {
    let editor = people().await;
    editor.define("main", &[definition("Class", None, &[("best", "ref<Student>")])]).await.unwrap();
    let to = |name: &str| FieldType::Reference(Some(text(name)));
    evolve(&editor, "Class", &[EvolutionStep::Widen { field: text("best"), to: to("Person") }]).await;
    let back = EvolutionStep::Widen { field: text("best"), to: to("Student") };
    assert!(matches!(evolve_error(&editor, "Class", back).await, EvolutionError::Type { .. }));
}

#[tokio::test]
async fn unchanged_class_gets_no_new_version() {
    let editor = people().await;
    let class = evolve(&editor, "Person", &[EvolutionStep::MakeOptional { field: text("boss") }]).await;
    assert_eq!(class.version, 1);
    assert_eq!(editor.history("main", "Person").await.unwrap().len(), 1);
}

#[tokio::test]
async fn concurrent_changes_of_one_schema_all_succeed() {
    let editor = people().await;
    let changing = (0..8).map(|number| {
        let (editor, class) = (editor.clone(), if number % 2 == 0 { "Person" } else { "Student" });
        tokio::spawn(async move { evolve(&editor, class, &[add(&format!("f{number}"), "bool")]).await })
    });
    for change in changing.collect::<Vec<_>>() {
        change.await.unwrap();
    }
    let schema = schema(&editor).await;
    let student = schema.class_named("Student").unwrap();
    let numbers: Vec<u32> = student.fields().iter().map(|field| field.number.0).collect();
    assert_eq!(numbers, (1..=12).collect::<Vec<_>>(), "{}", show(student));
}

#[tokio::test]
async fn index_is_building_until_it_is_recorded_as_ready() {
    let editor = people().await;
    let index = editor.create_index("main", "by_name", "Person", &["name", "age"], true).await.unwrap().value;
    assert_eq!((index.state, index.unique, index.fields.len()), (IndexState::Building, true, 2));
    let create = |name: &'static str, fields: &'static [&'static str]| {
        let editor = editor.clone();
        async move { kind(editor.create_index("main", name, "Person", fields, false).await) }
    };
    assert_eq!(create("by_name", &["age"]).await, ErrorKind::Exists);
    assert_eq!(create("x", &["what"]).await, ErrorKind::NotFound);
    assert_eq!(create("x", &[]).await, ErrorKind::Invalid);
    assert_eq!(create("x", &["age", "age"]).await, ErrorKind::Invalid);
    evolve(&editor, "Person", &[add("tags", "set<string>")]).await;
    assert_eq!(create("x", &["tags"]).await, ErrorKind::Invalid);
    editor.record_index_build("main", "by_name", index.id, None).await.unwrap();
    let known = schema(&editor).await;
    assert_eq!(known.index("by_name").unwrap().state, IndexState::Ready);
    assert_eq!(known.index_by_id(index.id).unwrap().name, "by_name");
    assert_eq!(known.indexes_of(ClassId(2)).count(), 1);
    editor.remove_index("main", "by_name").await.unwrap();
    let again = editor.create_index("main", "by_name", "Student", &["year"], false).await.unwrap().value;
    assert!(again.id > index.id);
    assert_eq!(kind(editor.record_index_build("main", "by_name", index.id, None).await), ErrorKind::NotFound);
    assert_eq!(schema(&editor).await.indexes_of(ClassId(1)).count(), 0);
}
