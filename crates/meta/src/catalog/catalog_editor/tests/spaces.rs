//! Spaces and their placement.

use std::collections::BTreeMap;

use model::{FailurePolicy, NodeId};

use super::*;
use crate::Key;
use crate::catalog::{
    ClassDefinition, Epoch, Liveness, MovePhase, MoveRequest, NodePlacement, Quota, RemovedSpace, SpaceChange,
};

#[tokio::test]
pub(crate) async fn a_space_is_spread_evenly_over_the_bricks_that_live() {
    let editor = editor();
    for _ in 0..3 {
        brick(&editor, Storage::Durable).await;
    }
    let dead = editor.add_brick(&["a:1".to_owned()], Storage::Durable).await.unwrap().value.id;
    let leaving = brick(&editor, Storage::Durable).await.id;
    editor.set_brick_draining(leaving, true).await.unwrap();
    brick(&editor, Storage::Memory).await;
    let main = editor.create_space("main", SpaceOptions::default()).await.unwrap().value;
    let other = SpaceOptions { nodes: Some(130), policy: FailurePolicy::FailStop, ..SpaceOptions::default() };
    let other = editor.create_space("other", other).await.unwrap().value;
    assert_eq!((main.nodes, main.storage, main.policy), (16, Storage::Durable, FailurePolicy::Continue));
    assert_eq!(other.policy, FailurePolicy::FailStop);
    assert_eq!((other.id, other.nodes, other.first_node), (SpaceId(2), 130, NodeId(main.first_node.0 + 16)));

    let catalog = catalog(&editor).await;
    assert_eq!(catalog.placement_map().epoch(), Epoch(2));
    for space in [&main, &other] {
        let mut counts: BTreeMap<BrickId, u32> = BTreeMap::new();
        for node in space.node_ids() {
            *counts.entry(catalog.node_placement(node).unwrap().brick).or_default() += 1;
            assert_eq!(catalog.space_of(node).unwrap().name, space.name);
        }
        let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
        assert!(most - least <= 1 && counts.len() == 3, "{counts:?}");
        assert!(!counts.contains_key(&dead) && !counts.contains_key(&leaving));
    }
    let loads: Vec<usize> = catalog.placement_map().load().into_values().collect();
    assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{loads:?}");
    assert!(catalog.node_placement(NodeId(0)).is_none() && catalog.node_placement(NodeId(147)).is_none());
    assert_eq!(catalog.placement_map().nodes().count(), 146);
    assert!(catalog.spread().is_empty());
}

#[tokio::test]
pub(crate) async fn brick_that_refuses_to_serve_gets_no_logical_nodes() {
    let editor = editor();
    let serving = brick(&editor, Storage::Durable).await.id;
    let refusing = brick(&editor, Storage::Durable).await.id;
    let start = editor.start_number().await.unwrap();
    let announce = async |refused: Option<&str>| {
        let liveness = Liveness { refused: refused.map(str::to_owned), ..Liveness::of(start) };
        editor.announce_brick_as(refusing, &liveness, session(&editor).await.id).await.unwrap();
    };
    announce(Some("its clock is 600.0 s ahead")).await;
    let space = editor.create_space("main", SpaceOptions::default()).await.unwrap().value;
    let before = catalog(&editor).await;
    assert!(space.node_ids().all(|node| before.node_placement(node).unwrap().brick == serving));
    assert!(before.spread().is_empty());
    let node = space.first_node.0;
    for request in [
        MoveRequest::To { nodes: vec![node], brick: refusing, dry_run: true },
        MoveRequest::Drain { brick: refusing, dry_run: true },
    ] {
        let refused = editor.handle_move_request(&before, request).await.unwrap_err();
        assert!(refused.to_string().contains("its clock is 600.0 s ahead"), "{refused}");
    }
    announce(None).await;
    assert!(!catalog(&editor).await.spread().is_empty());
}

#[tokio::test]
async fn space_needs_a_unique_name_and_a_brick_with_its_storage() {
    let editor = editor();
    let create = |name: &'static str, storage| {
        let editor = editor.clone();
        async move { editor.create_space(name, SpaceOptions { storage, ..SpaceOptions::default() }).await }
    };
    for storage in [None, Some(Storage::Durable)] {
        let refused = create("main", storage).await.unwrap_err();
        assert_eq!(refused.to_string(), "no brick is alive: start one, then try again");
    }
    brick(&editor, Storage::Memory).await;
    assert_eq!(create("main", None).await.unwrap().value.storage, Storage::Memory);
    assert!(matches!(create("main", None).await, Err(CatalogError::Exists { .. })));
    let refused = create("other", Some(Storage::Durable)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert_eq!(refused.to_string(), "no brick that keeps objects durably is alive: start one, then try again");
    assert_eq!(kind(create("a/b", None).await), ErrorKind::Invalid);
    let too_many = SpaceOptions { nodes: Some(5000), ..SpaceOptions::default() };
    assert_eq!(kind(editor.create_space("large", too_many).await), ErrorKind::Invalid);
    editor.set_policy("main", FailurePolicy::FailStop).await.unwrap();
    assert_eq!(catalog(&editor).await.space("main").unwrap().policy, FailurePolicy::FailStop);
    assert_eq!(kind(editor.set_policy("none", FailurePolicy::Continue).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn quota_changes_by_its_parts() {
    let editor = with_space().await;
    assert!(catalog(&editor).await.space("main").unwrap().quota.is_none());
    let change = |max_bytes, max_objects| SpaceChange { max_bytes, max_objects, ..SpaceChange::default() };
    editor.change_space("main", change(Some(Some(10)), None)).await.unwrap();
    editor.change_space("main", change(None, Some(Some(3)))).await.unwrap();
    let quota = async || catalog(&editor).await.space("main").unwrap().quota;
    assert_eq!(quota().await, Quota { max_bytes: Some(10), max_objects: Some(3) });
    editor.set_policy("main", FailurePolicy::FailStop).await.unwrap();
    editor.change_space("main", change(Some(None), None)).await.unwrap();
    assert_eq!(quota().await, Quota { max_bytes: None, max_objects: Some(3) });
    assert_eq!(catalog(&editor).await.space("main").unwrap().policy, FailurePolicy::FailStop);
    assert_eq!(kind(editor.change_space("none", change(None, None)).await), ErrorKind::NotFound);
}

#[tokio::test]
async fn concurrently_created_spaces_get_different_numbers_and_nodes() {
    let editor = editor();
    brick(&editor, Storage::Durable).await;
    let making = (0..8).map(|number| {
        let editor = editor.clone();
        tokio::spawn(async move { editor.create_space(&format!("s{number}"), SpaceOptions::default()).await.unwrap() })
    });
    for space in making.collect::<Vec<_>>() {
        space.await.unwrap();
    }
    let catalog = catalog(&editor).await;
    assert_eq!(catalog.spaces().count(), 8);
    assert_eq!((1..=8).filter(|id| catalog.space_by_id(SpaceId(*id)).is_some()).count(), 8);
    assert_eq!(catalog.placement_map().nodes().count(), 64);
    assert_eq!(catalog.placement_map().epoch(), Epoch(8));
}

#[tokio::test]
pub(crate) async fn a_logical_node_moves_step_by_step_and_counts_it() {
    let editor = with_space().await;
    let third = brick(&editor, Storage::Durable).await.id;
    let memory = brick(&editor, Storage::Memory).await.id;
    let node = NodeId(3);
    let before = catalog(&editor).await.node_placement(node).unwrap().clone();
    let moving = |result: Result<Edited<NodePlacement>>| matches!(result, Err(CatalogError::WrongMoveState { .. }));

    assert!(moving(editor.seal(node, third).await));
    assert!(moving(editor.begin_move(node, before.brick).await));
    assert_eq!(kind(editor.begin_move(node, memory).await), ErrorKind::Invalid);
    assert_eq!(kind(editor.begin_move(node, BrickId(99)).await), ErrorKind::NotFound);
    assert_eq!(kind(editor.begin_move(NodeId(99), third).await), ErrorKind::NotFound);
    let began = editor.begin_move(node, third).await.unwrap().value;
    assert_eq!((began.brick, began.moves, began.moving.unwrap().phase), (before.brick, 0, MovePhase::Copying));
    assert_eq!(began.epoch, before.epoch, "a node that is copied keeps its epoch");
    assert!(moving(editor.begin_move(node, third).await));
    assert!(moving(editor.finish_move(node, began.epoch).await));
    assert_eq!(editor.cancel_move(node).await.unwrap().value.epoch, before.epoch);
    assert!(moving(editor.cancel_move(node).await));

    editor.begin_move(node, third).await.unwrap();
    assert_eq!(kind(editor.remove_brick(third).await), ErrorKind::Invalid);
    assert!(moving(editor.seal(node, before.brick).await));
    let sealed = editor.seal(node, third).await.unwrap().value;
    assert!(sealed.epoch > before.epoch);
    assert!(moving(editor.seal(node, third).await));
    assert!(moving(editor.finish_move(node, before.epoch).await));
    editor.finish_move(node, sealed.epoch).await.unwrap();
    let catalog = catalog(&editor).await;
    let after = catalog.node_placement(node).unwrap();
    assert_eq!((after.brick, after.moves, after.moving), (third, 1, None));
    assert_eq!(after.epoch, catalog.placement_map().epoch());
    assert_eq!(catalog.node_placement(NodeId(2)).unwrap().epoch, before.epoch, "other nodes are unchanged");
}

#[tokio::test]
pub(crate) async fn a_hand_over_counts_only_for_the_seal_that_it_belongs_to() {
    let editor = with_space().await;
    let third = brick(&editor, Storage::Durable).await.id;
    let node = NodeId(3);
    let moving = |result: Result<Edited<NodePlacement>>| matches!(result, Err(CatalogError::WrongMoveState { .. }));
    editor.begin_move(node, third).await.unwrap();
    let first = editor.seal(node, third).await.unwrap().value.epoch;
    let opened = editor.unseal(node, first).await.unwrap().value;
    assert_eq!(opened.moving.unwrap().phase, MovePhase::Copying);
    assert!(opened.epoch > first);
    assert!(moving(editor.finish_move(node, first).await));
    let second = editor.seal(node, third).await.unwrap().value.epoch;
    assert!(moving(editor.unseal(node, first).await));
    assert!(moving(editor.finish_move(node, first).await));
    let given_back = editor.cancel_move(node).await.unwrap().value;
    assert!(given_back.epoch > second && given_back.moving.is_none());
    assert!(moving(editor.finish_move(node, second).await));
    assert!(moving(editor.unseal(node, second).await));
}

#[tokio::test]
pub(crate) async fn spreading_gives_new_bricks_their_part_and_empties_those_that_leave() {
    let editor = with_space().await;
    let [third, fourth] = [brick(&editor, Storage::Durable).await.id, brick(&editor, Storage::Durable).await.id];
    // A moving node counts as moved.
    let first = catalog(&editor).await.node_placement(NodeId(1)).unwrap().brick;
    editor.begin_move(NodeId(1), third).await.unwrap();
    let moves = catalog(&editor).await.spread();
    assert_eq!(moves.len(), 3, "{moves:?}");
    for one in moves {
        editor.begin_move(one.node, one.to).await.unwrap();
        let sealed = editor.seal(one.node, one.to).await.unwrap().value;
        editor.finish_move(one.node, sealed.epoch).await.unwrap();
    }
    let spread = catalog(&editor).await;
    assert!(spread.spread().is_empty());
    assert_eq!(spread.placement_map().load().into_values().collect::<Vec<_>>(), [2, 2, 2, 2]);
    editor.set_brick_draining(fourth, true).await.unwrap();
    let moves = catalog(&editor).await.spread();
    assert_eq!(moves.len(), 2);
    assert!(moves.iter().all(|one| one.from == fourth && one.to != fourth));
    assert_ne!(first, third);
}

#[tokio::test]
async fn removed_space_leaves_its_nodes_to_be_emptied_and_its_numbers_unused() {
    let editor = editor();
    brick(&editor, Storage::Durable).await;
    let options = SpaceOptions { nodes: Some(70), ..SpaceOptions::default() };
    let photos = editor.create_space("photos", options).await.unwrap().value;
    let kept = editor.create_space("kept", SpaceOptions::default()).await.unwrap().value;
    let person = ClassDefinition { name: "Person".to_owned(), parent: None, fields: Vec::new() };
    for space in ["photos", "kept"] {
        editor.define(space, std::slice::from_ref(&person)).await.unwrap();
    }
    let epoch = catalog(&editor).await.placement_map().epoch();

    assert_eq!(editor.remove_space("photos").await.unwrap().value, photos);
    let catalog_now = catalog(&editor).await;
    assert!(catalog_now.space("photos").is_none() && catalog_now.space_by_id(photos.id).is_none());
    assert!(catalog_now.placement_map().epoch() > epoch);
    assert!(photos.node_ids().all(|node| catalog_now.node_placement(node).is_none()));
    assert!(kept.node_ids().all(|node| catalog_now.node_placement(node).is_some()));
    let removed: Vec<_> = catalog_now.removed_spaces().collect();
    let expected = RemovedSpace { name: "photos".to_owned(), first_node: photos.first_node, nodes: 70 };
    assert_eq!(removed, [&expected]);
    assert_eq!(catalog_now.schema(photos.id).classes().count(), 0);
    assert_eq!(catalog_now.schema(kept.id).classes().count(), 1);
    let left = editor.store().read(Prefix::all()).await.unwrap().entries;
    let of_it = |key: &Key| {
        let parts: Vec<&str> = key.as_str().split('/').collect();
        matches!(parts[..], ["classes" | "versions" | "indexes" | "schemas" | "placement", id, ..] if id == photos.id.0.to_string())
    };
    assert_eq!(left.iter().map(|(key, _)| key).find(|key| of_it(key)), None);

    assert_eq!(kind(editor.remove_space("photos").await), ErrorKind::NotFound);
    let again = editor.create_space("photos", SpaceOptions::default()).await.unwrap().value;
    assert!(again.id > kept.id && again.first_node.0 >= kept.first_node.0 + kept.nodes);
}
