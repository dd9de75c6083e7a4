//! Classes of programs of several versions.

use super::classes::{definition, schema, show};
use super::*;
use crate::catalog::{EvolutionError, IndexState, WantedClass, WantedIndex};
use model::Error;

fn wanted_class(name: &str, parent: Option<&str>, fields: &[(&str, &str)]) -> WantedClass {
    WantedClass { class: definition(name, parent, fields), numbers: Default::default(), indexes: Vec::new() }
}

async fn adopt(editor: &CatalogEditor, wanted: &[WantedClass]) {
    editor.adopt("main", wanted, Ok(())).await.unwrap();
}

fn account() -> WantedClass {
    wanted_class("Account", None, &[("owner", "string"), ("balance", "int64"), ("bank", "ref<Bank>?")])
}

#[tokio::test]
async fn missing_classes_are_created_and_existing_ones_extended() {
    let editor = with_space().await;
    let bank = wanted_class("Bank", None, &[("name", "string")]);
    adopt(&editor, &[account(), bank.clone()]).await;
    let first = schema(&editor).await;
    assert_eq!(show(first.class_named("Account").unwrap()), "owner=1 balance=2 bank=3");
    let mut newer = wanted_class("Account", None, &[("owner", "string?"), ("balance", "decimal"), ("note", "string?")]);
    newer
        .class
        .fields
        .push(crate::catalog::FieldDefinition::required("limit", "int64".parse().unwrap()).with_default(5));
    adopt(&editor, &[newer.clone(), wanted_class("Savings", Some("Account"), &[("rate", "decimal?")])]).await;
    let now = schema(&editor).await;
    let account = now.class_named("Account").unwrap();
    assert_eq!(show(account), "owner=1 balance=2 bank=3 note=5 limit=6");
    assert_eq!(show(now.class_named("Savings").unwrap()), "owner=1 balance=2 bank=3 rate=4 note=5 limit=6");
    assert_eq!(account.field("balance").unwrap().field_type.to_string(), "decimal");
    assert!(account.field("owner").unwrap().optional);
    assert_eq!(account.class().version, 2);
    assert_eq!(editor.history("main", "Account").await.unwrap().len(), 2);
    // Adopting the same classes again changes nothing.
    let before = editor.adopt("main", &[newer.clone()], Ok(())).await.unwrap().revision;
    // Without changes no permission is needed.
    let denied = || Err(Error::new(ErrorKind::Denied, "may not"));
    assert_eq!(editor.adopt("main", &[newer, bank], denied()).await.unwrap().revision, before);
    assert_eq!(kind(editor.adopt("main", &[wanted_class("New", None, &[])], denied()).await), ErrorKind::Denied);
    assert_eq!(schema(&editor).await.class_named("Account").unwrap().class().version, 2);
}

#[tokio::test]
pub(crate) async fn a_program_that_is_older_takes_nothing_away() {
    let editor = with_space().await;
    adopt(&editor, &[account(), wanted_class("Bank", None, &[])]).await;
    adopt(&editor, &[wanted_class("Account", None, &[("owner", "string")])]).await;
    let now = schema(&editor).await;
    assert_eq!(show(now.class_named("Account").unwrap()), "owner=1 balance=2 bank=3");
    assert!(now.class_named("Account").unwrap().field("bank").unwrap().optional);
    adopt(&editor, &[wanted_class("Account", None, &[("balance", "decimal")])]).await;
    let too_old = editor.adopt("main", &[account(), wanted_class("New", None, &[])], Ok(())).await.unwrap_err();
    let message = too_old.to_string();
    assert!(message.contains("\"balance\" is decimal in the catalogue, and int64 in the program"), "{message}");
    // The operation is atomic.
    assert!(schema(&editor).await.class_named("New").is_none());
}

#[tokio::test]
async fn incompatible_classes_are_refused_with_a_reason() {
    let editor = with_space().await;
    adopt(&editor, &[account(), wanted_class("Bank", None, &[])]).await;
    let adoption_error = async |class: WantedClass| editor.adopt("main", &[class], Ok(())).await.unwrap_err();
    let error = adoption_error(wanted_class("Account", None, &[("new", "string")])).await;
    assert!(matches!(error, CatalogError::Evolution { why: EvolutionError::NoValue(_), .. }), "{error}");
    let error = adoption_error(wanted_class("Account", None, &[("owner", "int64")])).await;
    assert!(matches!(error, CatalogError::Evolution { why: EvolutionError::Type { .. }, .. }), "{error}");
    let error = adoption_error(wanted_class("Account", Some("Bank"), &[])).await;
    assert!(matches!(error, CatalogError::Incompatible { .. }), "{error}");
    let error = adoption_error(wanted_class("Other", None, &[("x", "ref<Nobody>")])).await;
    assert!(matches!(error, CatalogError::Evolution { why: EvolutionError::NoClass { .. }, .. }), "{error}");
    let mut numbered = wanted_class("Account", None, &[("holder", "string")]);
    numbered.numbers.insert("holder".to_owned(), model::FieldNumber(9));
    assert!(matches!(adoption_error(numbered.clone()).await, CatalogError::Incompatible { .. }));
    // The number identifies the field although it has another name.
    numbered.numbers.insert("holder".to_owned(), model::FieldNumber(1));
    adopt(&editor, &[numbered.clone()]).await;
    numbered.class.name = "Fresh".to_owned();
    assert_eq!(adoption_error(numbered).await.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn indexes_of_programs_are_created_once() {
    let editor = with_space().await;
    let mut class = account();
    let index = WantedIndex { name: "Account.owner".to_owned(), fields: vec!["owner".to_owned()], unique: true };
    class.indexes.push(index.clone());
    let made = editor.adopt("main", &[class.clone(), wanted_class("Bank", None, &[])], Ok(())).await.unwrap().value;
    assert_eq!((made.len(), made[0].state), (1, IndexState::Building));
    assert_eq!(schema(&editor).await.index("Account.owner").unwrap().fields, [model::FieldNumber(1)]);
    assert!(editor.adopt("main", &[class.clone()], Ok(())).await.unwrap().value.is_empty());
    class.indexes[0].unique = false;
    assert!(matches!(editor.adopt("main", &[class.clone()], Ok(())).await, Err(CatalogError::Incompatible { .. })));
    class.indexes[0] = WantedIndex { name: "other".to_owned(), fields: vec!["nothing".to_owned()], unique: false };
    assert_eq!(kind(editor.adopt("main", &[class], Ok(())).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn program_may_have_more_indexes_than_one_write_has_room_for() {
    let editor = with_space().await;
    let class = |number: usize| {
        let fields = [("a", "int64"), ("b", "int64"), ("c", "int64")];
        let mut wanted = wanted_class(&format!("Class{number:02}"), None, &fields);
        wanted.indexes.extend(fields.map(|(field, _)| WantedIndex {
            name: format!("Class{number:02}.{field}"),
            fields: vec![field.to_owned()],
            unique: false,
        }));
        wanted
    };
    let mut classes: Vec<WantedClass> = (0..40).map(class).collect();
    let made = editor.adopt("main", &classes, Ok(())).await.unwrap().value;
    assert_eq!((made.len(), schema(&editor).await.indexes().count()), (120, 120));
    assert!(made.iter().all(|index| index.job.is_some()));
    // What is left of an interrupted call is created by the next one, here beside changes of all classes.
    for class in &mut classes {
        editor.remove_index("main", &class.indexes[1].name).await.unwrap();
        let more = crate::catalog::FieldDefinition::required("d", "int64".parse().unwrap()).with_default(5);
        class.class.fields.push(more);
    }
    let made = editor.adopt("main", &classes, Ok(())).await.unwrap().value;
    assert_eq!((made.len(), schema(&editor).await.indexes().count()), (40, 120));
    assert_eq!(schema(&editor).await.class_named("Class39").unwrap().class().version, 2);
}
