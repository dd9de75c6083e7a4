use bytes::Bytes;
use model::{ClassId, PageId};
use protocol::commit::Outcome;
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use store::Options;
use wire::link::Mailbox;
use wire::transport::Address;

use super::*;
use crate::cluster_view::SpaceView;
use crate::node_placement::PlacementSnapshot;

const NODE: NodeId = NodeId(3);
const EPOCH: u64 = 1;

/// A brick in memory that serves one logical node.
fn nodes() -> Arc<Nodes> {
    nodes_on(Store::in_memory(Options::default()).unwrap())
}

fn nodes_on(store: Store) -> Arc<Nodes> {
    let view = ClusterView::new(|_| Box::pin(async { Ok(1) }));
    view.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NODE] }]);
    let mut map = PlacementSnapshot::default();
    map.bricks.insert(BrickId(1), Address::Tcp("127.0.0.1:1".to_owned()));
    map.nodes.insert(NODE, NodePlacement { brick: BrickId(1), epoch: EPOCH, moves: 0 });
    view.placement.set(map);
    let nodes = Nodes::new(store, view, BrickId(1), ClusterCredentials::default(), None).unwrap();
    nodes.follow_map();
    nodes
}

fn ask(nodes: &Nodes, request: Request<Object>) {
    let seen = HlcTimestamp::ZERO;
    let message = Message::Ask { node: NODE, epoch: EPOCH, seen, request };
    nodes.handle_message(&PeerHandle::new(Arc::new(Mailbox::default())), message).unwrap();
}

#[tokio::test]
async fn read_waits_until_a_prepared_transaction_that_writes_the_object_is_decided() {
    let nodes = nodes();
    let page = PageId { space: SpaceId(1), node: NODE, number: 7 };
    let [written, other] = [1, 2].map(|slot| Oid::new(ClassId::NONE, page, slot));
    let start = HlcTimestamp::at(nodes.time.now());
    let txn = TxnId { start, client: ClientId(1) };
    let writes = [(written, ObjectState::Value(Object::blob("new".into())))].into();
    let part = Part { writes, ..Part::default() };
    ask(&nodes, Request::Prepare { txn, participants: vec![NODE, NodeId(4)], part });
    assert!(nodes.wait_settled(other).await.is_ok());
    let waiting = nodes.wait_settled(written);
    tokio::pin!(waiting);
    assert!(time::timeout(4 * SETTLE_PAUSE, &mut waiting).await.is_err());
    ask(&nodes, Request::Decide { txn, outcome: Outcome::Aborted });
    waiting.await.unwrap();
}

#[tokio::test]
async fn upload_for_which_the_store_has_no_room_ends() {
    let nodes = nodes_on(Store::in_memory(Options { memory_bytes: 8 << 20, ..Options::default() }).unwrap());
    let id = nodes.begin_upload(SpaceId(1), NODE).unwrap();
    let piece = Bytes::from(vec![7; 1 << 20]);
    let add = |offset: usize| nodes.add_to_upload(id, offset as u64, piece.clone());
    let (offset, error) = (0..)
        .map(|number: usize| number * piece.len())
        .find_map(|offset| Some((offset, add(offset).err()?)))
        .expect("the store has a limit");
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(add(offset).unwrap_err().kind(), ErrorKind::NotFound);
}
