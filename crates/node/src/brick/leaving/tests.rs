use std::collections::BTreeMap;
use std::time::Duration;

use model::{ClassId, Object, Oid, PageId, SpaceId};
use protocol::commit::{Part, Request};
use protocol::ident::{ClientId, Timestamp, TxnId};
use protocol::page_cache::Content;
use store::{Options, Store};

use super::*;
use crate::brick::hosted::Asker;
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

/// Commits an object, as a client would.
fn commit(nodes: &Nodes, number: u64) {
    let page = PageId { space: SpaceId(1), node: NODE, number: 1 + number % 100 };
    let oid = Oid::new(ClassId::NONE, page, (number % 7) as u16);
    let writes = [(oid, Content::Value(Object::blob(number.to_be_bytes().to_vec().into())))].into();
    let now = nodes.time.now();
    let txn = TxnId { start: Timestamp::at(now), client: ClientId(number) };
    let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
    let asked = |hosted: &mut crate::brick::hosted::Hosted| {
        hosted.request(Asker::Node(NodeId(9)), request, Timestamp::ZERO, now).unwrap();
        Ok(())
    };
    nodes.with_hosted(NODE, asked).unwrap();
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
async fn more_changes_than_can_be_remembered_make_the_copy_begin_again_and_none_is_lost() {
    let nodes = nodes();
    follow(&nodes, moving(1, None)).await;
    (0..50).for_each(|number| commit(&nodes, number));
    let first = nodes.copy_rows(&ask(0, Some(Bytes::new()))).unwrap();
    assert_eq!(first.next, None);
    (0..20).for_each(|number| commit(&nodes, number));
    assert!(!nodes.copy_rows(&ask(1, None)).unwrap().rows.is_empty(), "so many can be remembered");
    (0..1_000).for_each(|number| commit(&nodes, number));
    assert_eq!(nodes.copy_rows(&ask(2, None)).unwrap_err().kind(), ErrorKind::NotFound);

    let mut copied: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let mut asked = CopyRows { attempt: 6, ..ask(0, Some(Bytes::new())) };
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
        (asked.got, asked.number, asked.from) = (asked.number, asked.number + 1, answer.next);
        match round {
            0..5 => commit(&nodes, 2_000 + round),
            5 => follow(&nodes, moving(1, Some(5))).await,
            _ => assert!(round < 20, "it never ends"),
        }
    }
    // The seal is of the old brick.
    assert_eq!(copied, rows_of(&nodes));
}
