use std::collections::BTreeMap;
use std::time::Duration;

use model::{ClassId, Object, Oid, PageId, SpaceId};
use protocol::commit::{Part, Request};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use store::{Options, Store};

use super::*;
use crate::auth::ClusterCredentials;
use crate::brick::node_driver::Requester;
use crate::cluster_view::ClusterView;
use crate::node_placement::{BrickId, NodePlacement, PlacementSnapshot};

const NODE: NodeId = NodeId(7);
const HERE: BrickId = BrickId(1);

fn nodes() -> Arc<Nodes> {
    let realm = ClusterView::new(|_| Box::pin(async { Ok(1) }));
    Nodes::new(Store::in_memory(Options::default()).unwrap(), realm, HERE, ClusterCredentials::default())
}

/// The map by which this brick serves the node under an epoch.
fn served_map(epoch: u64) -> PlacementSnapshot {
    PlacementSnapshot {
        nodes: [(NODE, NodePlacement { brick: HERE, epoch, moves: 0 })].into(),
        ..PlacementSnapshot::default()
    }
}

/// The map by which the node moves to brick 2, which serves another node.
fn moving_map(epoch: u64, sealed: Option<u64>) -> PlacementSnapshot {
    let transfer = Transfer { from: HERE, to: BrickId(2), sealed };
    let served = served_map(epoch);
    let nodes = if sealed.is_some() { BTreeMap::new() } else { served.nodes };
    PlacementSnapshot { nodes, moving: [(NODE, transfer)].into(), ..PlacementSnapshot::default() }
}

async fn follow(nodes: &Arc<Nodes>, map: PlacementSnapshot) {
    nodes.cluster_view.placement.set(map);
    nodes.follow_map();
    tokio::time::sleep(Duration::from_millis(1)).await;
    nodes.follow_map();
}

/// The first try of the request after the answer `got`.
fn copy_request(got: u64, from: Option<Bytes>) -> CopyRows {
    CopyRows { node: NODE, to: 2, attempt: 5, number: got + 1, last_answered: got, from }
}

fn put_row(nodes: &Nodes, key: &[u8], value: &str) {
    let mut changes = RowChanges::new();
    changes.put(key, Bytes::copy_from_slice(value.as_bytes()));
    nodes.store.commit_rows(changes).unwrap();
}

/// The key of a row of a node.
fn key(node: u32, number: u32) -> Vec<u8> {
    [&b"E"[..], &node.to_be_bytes(), &number.to_be_bytes()].concat()
}

#[tokio::test]
async fn sealed_node_is_never_served_by_an_old_map() {
    let nodes = nodes();
    follow(&nodes, served_map(1)).await;
    assert!(nodes.is_served(NODE));
    follow(&nodes, moving_map(1, None)).await;
    assert!(nodes.is_served(NODE), "a node that is copied is served");
    follow(&nodes, moving_map(1, Some(5))).await;
    assert!(!nodes.is_served(NODE) && nodes.move_outs.contains(NODE));
    for old in [1, 5] {
        follow(&nodes, served_map(old)).await;
        assert!(!nodes.is_served(NODE));
        assert!(nodes.health_problem().unwrap().contains("too old"));
    }
    follow(&nodes, served_map(6)).await;
    assert!(nodes.is_served(NODE) && nodes.health_problem().is_none());
}

#[tokio::test]
async fn all_rows_of_a_node_are_sent_in_portions_and_changed_rows_again() {
    let nodes = nodes();
    follow(&nodes, moving_map(1, None)).await;
    let count = MAX_ROWS as u32 + 10;
    for number in 0..count {
        put_row(&nodes, &key(NODE.0, number), "old");
    }
    put_row(&nodes, &key(NODE.0 - 1, 1), "another node's");
    put_row(&nodes, &key(NODE.0 + 1, 1), "another node's");

    let first = nodes.copy_rows(&copy_request(0, Some(Bytes::new()))).unwrap();
    assert_eq!((first.rows.len(), first.sealed), (MAX_ROWS, None));
    assert!(first.rows.iter().all(|(key, _)| rows::belongs_to(NODE, key)));
    // One changed row was copied before, the other was not.
    for number in [3, count - 1] {
        put_row(&nodes, &key(NODE.0, number), "new");
        nodes.with_driver(NODE, |hosted| Ok(hosted.changes_for_attempt(5, 0)?.add(&key(NODE.0, number)))).unwrap();
    }
    let second = nodes.copy_rows(&copy_request(1, first.next)).unwrap();
    assert_eq!(second.rows[0], (key(NODE.0, 3).into(), Some(Bytes::from_static(b"new"))));
    let changed = second.rows.iter().filter(|(_, value)| value.as_deref() == Some(b"new")).count();
    assert_eq!((changed, second.next.clone(), second.sealed), (2, None, None));
    // The limit of positions is a row too.
    assert_eq!(first.rows.len() + second.rows.len(), count as usize + 2);

    follow(&nodes, moving_map(1, Some(5))).await;
    let last = nodes.copy_rows(&copy_request(2, None)).unwrap();
    assert_eq!((last.rows.len(), last.sealed), (0, Some(5)));
    let again = nodes.copy_rows(&CopyRows { number: 4, ..copy_request(2, None) }).unwrap();
    assert_eq!(again, last);
    assert_eq!(
        nodes.copy_rows(&copy_request(2, None)).unwrap_err().kind(),
        ErrorKind::Unavailable,
        "the request is late"
    );
}

#[tokio::test]
async fn requests_for_nodes_that_do_not_move_to_the_brick_are_refused() {
    let nodes = nodes();
    follow(&nodes, served_map(1)).await;
    assert_eq!(nodes.copy_rows(&copy_request(0, Some(Bytes::new()))).unwrap_err().kind(), ErrorKind::NotFound);
    follow(&nodes, moving_map(1, None)).await;
    let other = CopyRows { to: 3, ..copy_request(0, Some(Bytes::new())) };
    assert_eq!(nodes.copy_rows(&other).unwrap_err().kind(), ErrorKind::NotFound);
    // Earlier changes are unknown.
    assert_eq!(nodes.copy_rows(&copy_request(4, None)).unwrap_err().kind(), ErrorKind::NotFound);
    nodes.copy_rows(&copy_request(0, Some(Bytes::new()))).unwrap();
}

/// Commits an object as a client does.
fn commit(nodes: &Nodes, number: u64) {
    let page = PageId { space: SpaceId(1), node: NODE, number: 1 + number % 100 };
    let oid = Oid::new(ClassId::NONE, page, (number % 7) as u16);
    let writes = [(oid, ObjectState::Value(Object::blob(number.to_be_bytes().to_vec().into())))].into();
    let now = nodes.time.now();
    let txn = TxnId { start: HlcTimestamp::at(now), client: ClientId(number) };
    let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
    let asked = |driver: &mut crate::brick::nodes::Driver| {
        driver.handle_request(Requester::Node(NodeId(9)), request, HlcTimestamp::ZERO, now).unwrap();
        Ok(())
    };
    nodes.with_driver(NODE, asked).unwrap();
}

/// All rows of the node.
fn rows_of(nodes: &Nodes) -> BTreeMap<Bytes, Bytes> {
    let mut all = BTreeMap::new();
    for (from, to) in rows::ranges(NODE) {
        let visit = |key: &[u8], value: &[u8]| {
            all.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            ControlFlow::Continue(())
        };
        nodes.store.rows(&from, &to, visit).unwrap();
    }
    all
}

#[tokio::test]
async fn too_many_changes_restart_the_copy_and_lose_none() {
    let nodes = nodes();
    follow(&nodes, moving_map(1, None)).await;
    (0..50).for_each(|number| commit(&nodes, number));
    let first = nodes.copy_rows(&copy_request(0, Some(Bytes::new()))).unwrap();
    assert_eq!(first.next, None);
    (0..20).for_each(|number| commit(&nodes, number));
    assert!(!nodes.copy_rows(&copy_request(1, None)).unwrap().rows.is_empty(), "so many can be remembered");
    (0..1_000).for_each(|number| commit(&nodes, number));
    assert_eq!(nodes.copy_rows(&copy_request(2, None)).unwrap_err().kind(), ErrorKind::NotFound);

    let mut copied: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut asked = CopyRows { attempt: 6, ..copy_request(0, Some(Bytes::new())) };
    for round in 0.. {
        let answer = nodes.copy_rows(&asked).unwrap();
        for (key, value) in answer.rows {
            match value {
                Some(value) => drop(copied.insert(key, value)),
                None => drop(copied.remove(&key)),
            }
        }
        if answer.sealed.is_some() {
            break;
        }
        (asked.last_answered, asked.number, asked.from) = (asked.number, asked.number + 1, answer.next);
        match round {
            0..5 => commit(&nodes, 2_000 + round),
            5 => follow(&nodes, moving_map(1, Some(5))).await,
            _ => assert!(round < 20, "it never ends"),
        }
    }
    // The seal belongs to the old brick.
    assert_eq!(copied, rows_of(&nodes));
}
