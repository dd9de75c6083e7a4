//! Bricks and peer servers.

use super::*;
use crate::catalog::StartNumber;

#[tokio::test]
async fn bricks_live_as_long_as_their_sessions() {
    let editor = editor();
    let brick = editor.add_brick(&["127.0.0.1:7000".to_owned()], Storage::Durable).await.unwrap().value;
    let peer = editor.add_peer(&["127.0.0.1:7001".to_owned()]).await.unwrap().value;
    let session = session(&editor).await;
    let start = editor.start_number().await.unwrap();
    editor.announce_brick(brick.id, start, session.id).await.unwrap();
    editor.announce_peer(peer.id, start, session.id).await.unwrap();
    let before = catalog(&editor).await;
    assert_eq!(before.brick(brick.id).unwrap().alive.as_ref().unwrap().start, start);
    assert!(before.peer(peer.id).unwrap().alive.is_some());
    assert_eq!(kind(editor.remove_peer(peer.id).await), ErrorKind::Invalid);
    editor.store().end_session(session.id).await.unwrap();
    let after = catalog(&editor).await;
    assert!(after.brick(brick.id).unwrap().alive.is_none());
    assert!(after.peer(peer.id).unwrap().alive.is_none());
    assert_eq!(kind(editor.announce_brick(brick.id, start, session.id).await), ErrorKind::NotFound);
    editor.remove_peer(peer.id).await.unwrap();
    assert!(catalog(&editor).await.peers().next().is_none());
}

#[tokio::test]
async fn an_older_start_does_not_take_over_from_a_newer_one() {
    let editor = editor();
    let brick = brick(&editor, Storage::Memory).await;
    let second = editor.start_number().await.unwrap();
    editor.announce_brick(brick.id, second, session(&editor).await.id).await.unwrap();
    let refused = editor.announce_brick(brick.id, StartNumber(second.0 - 1), session(&editor).await.id).await;
    assert!(matches!(refused, Err(CatalogError::Superseded { .. })), "{refused:?}");
    assert_eq!(catalog(&editor).await.brick(brick.id).unwrap().alive.as_ref().unwrap().start, second);
}

#[tokio::test]
async fn a_number_of_a_brick_is_not_used_again() {
    let editor = editor();
    let add = || async { editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value.id };
    let first = add().await;
    let second = add().await;
    editor.remove_brick(second).await.unwrap();
    let third = add().await;
    assert!(first < second && second < third);
    assert_eq!(kind(editor.remove_brick(second).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.add_brick(&[], Storage::Durable).await), ErrorKind::Invalid);
    let changed = editor.set_brick_addresses(first, &["b:2".to_owned(), "unix:/run/b".to_owned()]).await.unwrap().value;
    assert_eq!(catalog(&editor).await.brick(first).unwrap().entry.as_deref(), Some(&changed));
    assert_eq!(changed.addresses.len(), 2);
}

#[tokio::test]
async fn a_brick_that_serves_stays() {
    let editor = editor();
    let brick = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value;
    let session = session(&editor).await.id;
    editor.announce_brick(brick.id, StartNumber(1), session).await.unwrap();
    editor.create_space("main", SpaceOptions::default()).await.unwrap();
    assert_eq!(kind(editor.remove_brick(brick.id).await), ErrorKind::Invalid);
    editor.store().end_session(session).await.unwrap();
    let refused = editor.remove_brick(brick.id).await.unwrap_err().to_string();
    assert!(refused.contains("8 logical nodes"), "{refused}");
}
