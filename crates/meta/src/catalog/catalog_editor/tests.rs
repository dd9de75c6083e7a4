use std::time::Duration;

use model::{ErrorKind, SpaceId};

use super::*;
use crate::catalog::{BrickId, BrickRecord, Catalog, CatalogError, SpaceOptions, Storage};
use crate::{Embedded, MetaSession, Prefix};

pub(crate) mod accounts;
pub(crate) mod adopt;
pub(crate) mod classes;
pub(crate) mod clones;
mod jobs;
pub(crate) mod members;
mod openings;
pub(crate) mod removals;
pub(crate) mod spaces;

/// An editor of a catalogue in memory.
fn editor() -> CatalogEditor {
    CatalogEditor::new(Arc::new(Embedded::in_memory().unwrap()))
}

async fn session(editor: &CatalogEditor) -> MetaSession {
    editor.store().open_session(Duration::from_secs(600)).await.unwrap()
}

/// Adds a brick that is alive.
async fn brick(editor: &CatalogEditor, storage: Storage) -> BrickRecord {
    let brick = editor.add_brick(&["127.0.0.1:7000".to_owned()], storage).await.unwrap().value;
    let start = editor.start_number().await.unwrap();
    editor.announce_brick(brick.id, start, session(editor).await.id).await.unwrap();
    brick
}

/// An editor of a catalogue with two durable bricks and a space.
async fn with_space() -> CatalogEditor {
    let editor = editor();
    brick(&editor, Storage::Durable).await;
    brick(&editor, Storage::Durable).await;
    let space = editor.create_space("main", SpaceOptions::default()).await.unwrap().value;
    assert_eq!(space.id, SpaceId(1));
    editor
}

async fn catalog(editor: &CatalogEditor) -> Catalog {
    let catalog = Catalog::load(&editor.store().read(Prefix::all()).await.unwrap());
    assert_eq!(catalog.invalid_entries().count(), 0);
    catalog
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[tokio::test]
async fn parameters_are_set_once() {
    let editor = editor();
    assert!(matches!(editor.parameters().await, Err(CatalogError::NotSetUp)));
    let first = Parameters::generate();
    assert_eq!(editor.set_up(&first).await.unwrap().value, first);
    assert_eq!(editor.set_up(&Parameters::generate()).await.unwrap().value, first);
    assert_eq!(editor.parameters().await.unwrap(), first);
}

#[tokio::test]
async fn catalogue_of_a_newer_program_is_not_changed() {
    let editor = editor();
    let text = r#"{"format":2,"cluster":"0123456789abcdef0123456789abcdef","session_ttl_ms":1000,"what":"is new"}"#;
    let key = crate::Key::new("parameters").unwrap();
    let _ = editor.store().write(vec![], vec![crate::KeyChange::put(key, text)]).await.unwrap();
    assert!(matches!(editor.parameters().await, Err(CatalogError::Newer { found: 2, .. })));
    assert_eq!(kind(editor.set_up(&Parameters::generate()).await), ErrorKind::Unsupported);
}

#[tokio::test]
async fn parameters_with_the_leases_and_skew_of_older_programs_are_read() {
    let editor = editor();
    let text = r#"{"format":1,"cluster":"0123456789abcdef0123456789abcdef","brick_lease_ms":1000,"holder_lease_ms":1000,
                   "session_ttl_ms":2000,"skew_ms":100}"#;
    let key = crate::Key::new("parameters").unwrap();
    let _ = editor.store().write(vec![], vec![crate::KeyChange::put(key, text)]).await.unwrap();
    assert_eq!(editor.parameters().await.unwrap().session_ttl_ms, 2_000);
}

#[tokio::test]
async fn numbers_are_reserved_once() {
    let editor = editor();
    let takers = (0..6).map(|_| {
        let editor = editor.clone();
        tokio::spawn(async move {
            let mut taken = Vec::new();
            for count in 1..6 {
                taken.extend(editor.take_numbers("tickets", count).await.unwrap());
            }
            taken
        })
    });
    let mut all = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        all.extend(taker.await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (1..=6 * 15).collect::<Vec<u64>>());
    assert!(editor.start_number().await.unwrap() < editor.start_number().await.unwrap());
    assert_eq!(kind(editor.take_numbers("tickets", 0).await), ErrorKind::Invalid);
    // The number of a session has no room for more.
    let seen = [("tickets".to_owned(), model::limits::CLIENT_NUMBER)].into();
    editor.raise_counters(&seen).await.unwrap();
    assert_eq!(editor.take_numbers("tickets", 1).await.unwrap().start, model::limits::CLIENT_NUMBER);
    assert_eq!(kind(editor.take_numbers("tickets", 1).await), ErrorKind::Full);
    // A damaged one is not counted on from.
    let put = |next: u64| {
        let key = crate::Key::new("numbers/tickets").unwrap();
        crate::KeyChange::put(key, format!("{{\"next\":{next}}}"))
    };
    let _ = editor.store().write(vec![], vec![put(u64::MAX)]).await.unwrap();
    assert_eq!(kind(editor.take_numbers("tickets", 1).await), ErrorKind::Corrupt);
    assert_eq!(kind(editor.take_numbers("a/b", 1).await), ErrorKind::Invalid);
}

#[tokio::test]
async fn restored_cluster_has_another_key_of_client_numbers() {
    let editor = editor();
    editor.set_up(&Parameters::generate()).await.unwrap();
    let key = editor.client_number_key().await.unwrap();
    assert_eq!(editor.client_number_key().await.unwrap(), key, "it is made once");
    let parameters = editor.begin_lineage().await.unwrap().value;
    assert_eq!(editor.parameters().await.unwrap(), parameters);
    assert!(editor.client_number_key().await.unwrap() != key);
}
