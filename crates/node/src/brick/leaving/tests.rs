use std::collections::BTreeMap;
use std::time::Duration;

use store::{Options, Store};

use super::*;
use crate::doors::Membership;
use crate::placement::{BrickId, Map, Place};
use crate::realm::Realm;

const NODE: NodeId = NodeId(7);
const HERE: BrickId = BrickId(1);

fn nodes() -> Arc<Nodes> {
    let realm = Realm::new(|_| Box::pin(async { Ok(1) }));
    Nodes::new(Store::in_memory(Options::default()).unwrap(), realm, HERE, Membership::default())
}

/// The map that the node is served here as of an epoch.
fn served(epoch: u64) -> Map {
    Map { nodes: [(NODE, Place { brick: HERE, epoch, moves: 0 })].into(), ..Map::default() }
}

/// The map that it moves to brick 2, which serves another one.
fn moving(epoch: u64, sealed: Option<u64>) -> Map {
    let transfer = Transfer { from: HERE, to: BrickId(2), sealed };
    let served = served(epoch);
    let nodes = if sealed.is_some() { BTreeMap::new() } else { served.nodes };
    Map { nodes, moving: [(NODE, transfer)].into(), ..Map::default() }
}

async fn follow(nodes: &Arc<Nodes>, map: Map) {
    nodes.realm.placement.set(map);
    nodes.follow_map();
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes.follow_map();
}

/// The first try of the question behind this answer.
fn ask(got: u64, from: Option<Bytes>) -> CopyRows {
    CopyRows { node: NODE, to: 2, attempt: 5, number: got + 1, got, from }
}

fn row(nodes: &Nodes, key: &[u8], value: &str) {
    let mut changes = RowChanges::new();
    changes.put(key, Bytes::copy_from_slice(value.as_bytes()));
    nodes.store.commit_rows(changes).unwrap();
}

/// A key of the node's, or of another one's.
fn key(node: u32, number: u32) -> Vec<u8> {
    [&b"E"[..], &node.to_be_bytes(), &number.to_be_bytes()].concat()
}

#[tokio::test]
async fn what_was_sealed_is_never_served_by_an_old_map() {
    let nodes = nodes();
    follow(&nodes, served(1)).await;
    assert!(nodes.is_served(NODE));
    follow(&nodes, moving(1, None)).await;
    assert!(nodes.is_served(NODE), "copying disturbs nobody");
    follow(&nodes, moving(1, Some(5))).await;
    assert!(!nodes.is_served(NODE) && nodes.leaving.has(NODE));
    for old in [1, 5] {
        follow(&nodes, served(old)).await;
        assert!(!nodes.is_served(NODE));
        assert!(nodes.ailment().unwrap().contains("too old"));
    }
    follow(&nodes, served(6)).await;
    assert!(nodes.is_served(NODE) && nodes.ailment().is_none());
}

#[tokio::test]
async fn all_rows_of_a_node_are_handed_over_in_portions_and_those_that_change_again() {
    let nodes = nodes();
    follow(&nodes, moving(1, None)).await;
    let count = ROWS as u32 + 10;
    for number in 0..count {
        row(&nodes, &key(NODE.0, number), "old");
    }
    row(&nodes, &key(NODE.0 - 1, 1), "another node's");
    row(&nodes, &key(NODE.0 + 1, 1), "another node's");

    let first = nodes.copy_rows(&ask(0, Some(Bytes::new()))).unwrap();
    assert_eq!((first.rows.len(), first.sealed), (ROWS, None));
    assert!(first.rows.iter().all(|(key, _)| rows::moves_with(NODE, key)));
    // One that was copied changes, and one that was not.
    for number in [3, count - 1] {
        row(&nodes, &key(NODE.0, number), "new");
        nodes.with_hosted(NODE, |hosted| Ok(hosted.copied_by(5, 0)?.add(&key(NODE.0, number)))).unwrap();
    }
    let second = nodes.copy_rows(&ask(1, first.next)).unwrap();
    assert_eq!(second.rows[0], (key(NODE.0, 3).into(), Some(Bytes::from_static(b"new"))));
    let changed = second.rows.iter().filter(|(_, value)| value.as_deref() == Some(b"new")).count();
    assert_eq!((changed, second.next.clone(), second.sealed), (2, None, None));
    // The limit of positions is a row too.
    assert_eq!(first.rows.len() + second.rows.len(), count as usize + 2);

    follow(&nodes, moving(1, Some(5))).await;
    let last = nodes.copy_rows(&ask(2, None)).unwrap();
    assert_eq!((last.rows.len(), last.sealed), (0, Some(5)));
    let again = nodes.copy_rows(&CopyRows { number: 4, ..ask(2, None) }).unwrap();
    assert_eq!(again, last);
    assert_eq!(nodes.copy_rows(&ask(2, None)).unwrap_err().kind(), ErrorKind::Unavailable, "it comes late");
}

#[tokio::test]
async fn who_asks_for_what_does_not_move_to_it_is_refused() {
    let nodes = nodes();
    follow(&nodes, served(1)).await;
    assert_eq!(nodes.copy_rows(&ask(0, Some(Bytes::new()))).unwrap_err().kind(), ErrorKind::NotFound);
    follow(&nodes, moving(1, None)).await;
    let other = CopyRows { to: 3, ..ask(0, Some(Bytes::new())) };
    assert_eq!(nodes.copy_rows(&other).unwrap_err().kind(), ErrorKind::NotFound);
    // What has changed before is not known.
    assert_eq!(nodes.copy_rows(&ask(4, None)).unwrap_err().kind(), ErrorKind::NotFound);
    nodes.copy_rows(&ask(0, Some(Bytes::new()))).unwrap();
}
