//! Bricks and peer servers.

use model::NodeId;

use super::*;
use crate::catalog::{MemberRequest, MoveRequest, StartNumber};

#[tokio::test]
async fn brick_is_alive_until_its_session_ends() {
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
async fn brick_that_serves_cannot_be_removed() {
    let editor = editor();
    let brick = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value;
    let session = session(&editor).await.id;
    editor.announce_brick(brick.id, StartNumber(1), session).await.unwrap();
    editor.create_space("main", SpaceOptions::default()).await.unwrap();
    for _ in 0..2 {
        let refused = editor.remove_brick(brick.id).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        let refused = refused.to_string();
        assert!(refused.contains("8 logical nodes") && refused.contains("mortar remap --drain"), "{refused}");
        // It serves logical nodes whether it is alive or not.
        editor.store().end_session(session).await.unwrap();
    }
}

#[tokio::test]
async fn empty_brick_can_be_removed_when_it_has_ended_and_no_node_moves_to_it() {
    let editor = with_space().await;
    let added = editor.add_brick(&["c:3".to_owned()], Storage::Durable).await.unwrap().value;
    let session = session(&editor).await.id;
    editor.announce_brick(added.id, StartNumber(9), session).await.unwrap();
    let refused = editor.remove_brick(added.id).await.unwrap_err().to_string();
    assert!(refused.contains("its own process"), "{refused}");
    let node = catalog(&editor).await.placement_map().nodes().next().unwrap().0;
    editor.begin_move(node, added.id).await.unwrap();
    editor.store().end_session(session).await.unwrap();
    let refused = editor.remove_brick(added.id).await.unwrap_err().to_string();
    assert!(refused.contains("1 logical node that moves to it"), "{refused}");
    editor.cancel_move(node).await.unwrap();
    assert_eq!(editor.remove_brick(added.id).await.unwrap().value, added);
    let after = catalog(&editor).await;
    assert!(after.brick(added.id).is_none());
    assert_eq!(kind(editor.announce_brick(added.id, StartNumber(10), session).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.begin_move(node, added.id).await), ErrorKind::NotFound);
}

#[tokio::test]
pub(crate) async fn a_brick_that_is_to_be_empty_gets_nothing_however_it_is_asked_for() {
    let editor = with_space().await;
    let (from, to) = (BrickId(1), BrickId(2));
    let drain = MoveRequest::Drain { brick: to, dry_run: false };
    let (answer, _) = editor.handle_move_request(&catalog(&editor).await, drain).await.unwrap();
    for state in answer.nodes {
        let sealed = editor.seal(NodeId(state.node), from).await.unwrap().value.epoch;
        editor.finish_move(NodeId(state.node), sealed).await.unwrap();
    }
    let drained = catalog(&editor).await;
    let node = drained.placement_map().nodes().next().unwrap().0;
    for refused in [
        editor.begin_move(node, to).await.map(drop).unwrap_err(),
        editor
            .handle_move_request(&drained, MoveRequest::To { nodes: vec![node.0], brick: to, dry_run: false })
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert!(refused.to_string().contains("mortar remap --cancel --drain 2"), "{refused}");
    }
    let spread = MoveRequest::Spread { space: None, dry_run: false };
    assert!(editor.handle_move_request(&drained, spread.clone()).await.unwrap().0.nodes.is_empty());
    editor.handle_move_request(&drained, MoveRequest::Cancel { nodes: Vec::new(), drain: Some(to) }).await.unwrap();
    let kept = catalog(&editor).await;
    assert_eq!(editor.handle_move_request(&kept, spread).await.unwrap().0.nodes.len(), 4);
}

#[tokio::test]
async fn members_are_listed_and_removed_by_request() {
    let editor = with_space().await;
    let peer = editor.add_peer(&["p:1".to_owned()]).await.unwrap().value.id;
    let node = catalog(&editor).await.placement_map().nodes().next().unwrap().0;
    editor.begin_move(node, BrickId(2)).await.unwrap();
    let known = catalog(&editor).await;
    let (answer, changed) = editor.handle_member_request(&known, MemberRequest::List).await.unwrap();
    assert!(changed.is_none());
    let counts: Vec<_> =
        answer.bricks.iter().map(|brick| (brick.brick.0, brick.alive, brick.nodes, brick.coming)).collect();
    assert_eq!(counts, [(1, true, 4, 0), (2, true, 4, 1)]);
    assert_eq!(answer.peers.len(), 1);
    assert!(editor.handle_member_request(&known, MemberRequest::RemoveBrick { brick: BrickId(1) }).await.is_err());
    let (removed, changed) = editor.handle_member_request(&known, MemberRequest::RemovePeer { peer }).await.unwrap();
    assert!(changed.is_some());
    assert_eq!(removed.peers, answer.peers);
    assert!(catalog(&editor).await.peers().next().is_none());
}
