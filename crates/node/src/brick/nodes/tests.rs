mod cloning;
mod cold;
mod scrub;

use bytes::Bytes;
use meta::MetaStore;
use meta::catalog::{CatalogEditor, ClassDefinition, FieldDefinition, FieldType, Parameters, SpaceOptions, Storage};
use model::planted_bug::plant;
use model::{ClassId, Object, PageId, limits};
use protocol::commit::coordinator::CommitReply;
use protocol::commit::{Answer, Outcome, Part, Request};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;
use store::{Options, RowChanges};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::cluster::Message;
use wire::handshake::Witnessed;
use wire::link::{self, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::transport::{Address, Stream};

use super::reads::SETTLE_PAUSE;
use super::*;
use crate::auth::ClusterCredentials;
use crate::brick::node_driver::DriverOutput;
use crate::brick::page_rows;
use crate::brick::plant::Bug;
use crate::cluster_view::SpaceView;
use crate::node_placement::{PlacementSnapshot, Transfer};
use crate::openings::open_brick;

pub(super) const NODE: NodeId = NodeId(3);
pub(super) const OTHER: NodeId = NodeId(5);
const EPOCH: u64 = 1;

/// A brick in memory that serves two logical nodes.
fn nodes() -> Arc<Nodes> {
    nodes_on(Store::in_memory(Options::default()).unwrap())
}

pub(super) fn nodes_on(store: Store) -> Arc<Nodes> {
    let view = ClusterView::new(|_| Box::pin(async { Ok(1) }));
    view.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NODE, OTHER] }]);
    let mut map = PlacementSnapshot::default();
    map.bricks.insert(BrickId(1), Address::Tcp("127.0.0.1:1".to_owned()));
    for node in [NODE, OTHER] {
        map.nodes.insert(node, NodePlacement { brick: BrickId(1), epoch: EPOCH, moves: 0 });
    }
    view.placement.set(map);
    let nodes = Nodes::new(store, view, BrickId(1), &Config::default(), None).unwrap();
    nodes.follow_map();
    nodes
}

fn ask(nodes: &Nodes, request: Request<Object>) {
    let seen = HlcTimestamp::ZERO;
    let message = Message::Ask { node: NODE, epoch: EPOCH, seen, request };
    handle(nodes, &PeerHandle::new(Arc::new(Mailbox::default())), message).unwrap();
}

fn handle(nodes: &Nodes, from: &PeerHandle, message: Message) -> Result<()> {
    nodes.handle_messages(from, std::iter::once(message))
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
async fn finished_upload_is_answered_when_a_transaction_can_name_its_content() {
    let nodes = nodes();
    let id = nodes.begin_upload(SpaceId(1), NODE, "").unwrap();
    nodes.add_to_upload(id, 0, "staged".into()).unwrap();
    let (answer, mut answers) = mpsc::unbounded_channel();
    let served = nodes.served_node(NODE).unwrap();
    nodes.finish_upload(id, move |size| {
        // The driver is unlocked when the client is answered.
        let staged = served.driver.try_lock().ok().and_then(|driver| driver.staged_size(id));
        answer.send((size.unwrap(), staged)).unwrap();
    });
    let mut tasks = Vec::new();
    nodes.inbox.take(&mut tasks);
    tasks.into_iter().for_each(|task| nodes.handle_task(task));
    assert_eq!(answers.try_recv().unwrap(), (6, Some(6)));
}

#[tokio::test]
async fn last_bytes_of_an_upload_that_come_again_are_answered_as_before() {
    let nodes = nodes();
    let id = nodes.begin_upload(SpaceId(1), NODE, "").unwrap();
    let (answer, mut answers) = mpsc::unbounded_channel();
    let send_last = || {
        nodes.add_to_upload(id, 0, "staged".into()).unwrap();
        let answer = answer.clone();
        nodes.finish_upload(id, move |size| answer.send(size.unwrap()).unwrap());
    };
    // The client has lost its connection twice while the rows were with the store.
    (0..3).for_each(|_| send_last());
    assert!(answers.try_recv().is_err(), "its rows are with the store");
    let mut tasks = Vec::new();
    nodes.inbox.take(&mut tasks);
    tasks.into_iter().for_each(|task| nodes.handle_task(task));
    for _ in 0..3 {
        assert_eq!(answers.try_recv().unwrap(), 6);
    }
    // And once more afterwards.
    send_last();
    assert_eq!(answers.try_recv().unwrap(), 6);
    let other = nodes.add_to_upload(id, 0, "other".into()).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::NotFound, "the upload has ended with other bytes");
}

#[tokio::test]
async fn refused_rows_of_an_upload_are_told_to_all_who_have_asked() {
    let nodes = nodes();
    let id = nodes.begin_upload(SpaceId(1), NODE, "").unwrap();
    nodes.add_to_upload(id, 0, "staged".into()).unwrap();
    let (answer, mut answers) = mpsc::unbounded_channel();
    for _ in 0..2 {
        let answer = answer.clone();
        nodes.finish_upload(id, move |size| answer.send(size.map_err(|error| error.kind())).unwrap());
    }
    let mut tasks = Vec::new();
    nodes.inbox.take(&mut tasks);
    for task in tasks {
        let NodeTask::Staged { id, answer, .. } = task else { continue };
        let full = Err(Error::new(ErrorKind::Full, "the disk is full"));
        nodes.handle_task(NodeTask::Staged { id, size: full, answer });
    }
    assert_eq!([(); 2].map(|()| answers.try_recv().unwrap()), [Err(ErrorKind::Full); 2]);
}

#[tokio::test]
async fn bytes_of_an_upload_are_added_once_and_in_order() {
    let nodes = nodes();
    let id = nodes.begin_upload(SpaceId(1), NODE, "").unwrap();
    let add = |offset, bytes: &'static str| nodes.add_to_upload(id, offset, bytes.into()).map_err(|error| error.kind());
    let uploaded = || nodes.usage([NODE].into_iter()).nodes[0].staged_bytes;
    for (offset, bytes, size) in [(0, "12345", 5), (5, "678", 8)] {
        // A client that has heard of no answer sends the bytes again.
        for _ in 0..2 {
            assert_eq!(add(offset, bytes), Ok(()));
            assert_eq!(uploaded(), size);
        }
    }
    assert_eq!(add(9, "0"), Err(ErrorKind::Invalid), "a byte is missing");
    assert_eq!(add(0, "12345"), Err(ErrorKind::Invalid), "only the last bytes can have been sent again");
    assert_eq!(uploaded(), 8);
}

#[tokio::test]
async fn upload_for_which_the_store_has_no_room_ends() {
    let nodes = nodes_on(Store::in_memory(Options { memory_bytes: 8 << 20, ..Options::default() }).unwrap());
    let id = nodes.begin_upload(SpaceId(1), NODE, "").unwrap();
    let piece = Bytes::from(vec![7; 1 << 20]);
    let add = |offset: usize| nodes.add_to_upload(id, offset as u64, piece.clone());
    let (offset, error) = (0..)
        .map(|number: usize| number * piece.len())
        .find_map(|offset| Some((offset, add(offset).err()?)))
        .expect("the store has a limit");
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(add(offset).unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn metrics_have_the_sums_over_all_logical_nodes() {
    let nodes = nodes();
    for (node, uploaded, objects) in [(NODE, "12345", 2), (OTHER, "123", 1)] {
        let id = nodes.begin_upload(SpaceId(1), node, "").unwrap();
        nodes.add_to_upload(id, 0, uploaded.into()).unwrap();
        let page = PageId { space: SpaceId(1), node, number: 7 };
        let blob = |slot| (Oid::new(ClassId::NONE, page, slot), ObjectState::Value(Object::blob("1234567".into())));
        let txn = TxnId { start: HlcTimestamp::at(nodes.time.now()), client: ClientId(u64::from(node.0)) };
        let request =
            Request::Commit { txn, part: Part { writes: (0..objects).map(blob).collect(), ..Part::default() } };
        let message = Message::Ask { node, epoch: EPOCH, seen: HlcTimestamp::ZERO, request };
        handle(&nodes, &PeerHandle::new(Arc::new(Mailbox::default())), message).unwrap();
    }
    let metrics = nodes.usage_metrics().map(|metric| (metric.name, metric.value));
    assert_eq!(metrics, [("objects", 3), ("object_bytes", 21), ("staged_bytes", 8)]);
}

#[tokio::test]
async fn metrics_tell_which_logical_nodes_come_and_which_are_about_to_leave() {
    let nodes = nodes();
    let mut map = PlacementSnapshot::default();
    let (here, there) = (BrickId(1), BrickId(2));
    for node in [NODE, OTHER] {
        map.nodes.insert(node, NodePlacement { brick: here, epoch: EPOCH, moves: 0 });
    }
    let moves = [
        (here, there, Some(2)),
        (here, there, None),
        (there, here, None),
        (there, here, Some(2)),
        (there, here, Some(2)),
    ];
    for (node, (from, to, sealed)) in (100..).map(NodeId).zip(moves) {
        map.moving.insert(node, Transfer { from, to, sealed });
    }
    nodes.cluster_view.placement.set(map);
    let metrics = nodes.metrics();
    let value = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().value;
    assert_eq!(["brick_number", "nodes_served", "nodes_moving_in", "nodes_sealed"].map(value), [1, 2, 3, 1]);
}

#[tokio::test]
async fn results_of_a_small_force_are_handled_without_the_task() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = nodes_on(Store::open(&directory.path().join("store"), Options::default()).unwrap());
    // The task of the logical nodes does not run.
    let (near, far) = UnixStream::pair().unwrap();
    let (mailbox, (sender, mut messages)) = (Arc::new(Mailbox::default()), mpsc::unbounded_channel());
    let link = |stream, service, mailbox| Link::new(Stream::Unix(stream), service, Limits::default(), 1 << 20, mailbox);
    tokio::spawn(link::drive(link(near, Record(mpsc::unbounded_channel().0), mailbox.clone())));
    tokio::spawn(link::drive(link(far, Record(sender), Arc::default())));
    let page = PageId { space: SpaceId(1), node: NODE, number: 7 };
    let txn = TxnId { start: HlcTimestamp::at(nodes.time.now()), client: ClientId(1) };
    let writes = [(Oid::new(ClassId::NONE, page, 1), ObjectState::Value(Object::blob("new".into())))].into();
    let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
    let message = Message::Ask { node: NODE, epoch: EPOCH, seen: HlcTimestamp::ZERO, request };
    handle(&nodes, &PeerHandle::new(mailbox), message).unwrap();
    let answer = time::timeout(Duration::from_secs(60), messages.recv()).await.expect("no answer").unwrap();
    let Message::Answer { answer: Answer::Ended { outcome, .. }, .. } = answer else { panic!("{answer:?}") };
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

/// Gives the messages of a connection to the test.
struct Record(mpsc::UnboundedSender<Message>);

impl Service for Record {
    fn on_request(&mut self, incoming: Incoming<'_>, _: Responder<'_>) {
        panic!("{:?}", incoming.request);
    }

    fn on_messages(&mut self, messages: impl Iterator<Item = Message>) -> Result<()> {
        messages.for_each(|message| drop(self.0.send(message)));
        Ok(())
    }
}

/// A connection to a brick, and what the brick sends on it.
fn connection() -> (PeerHandle, mpsc::UnboundedReceiver<Message>) {
    let (near, far) = UnixStream::pair().unwrap();
    let (mailbox, (sender, messages)) = (Arc::new(Mailbox::default()), mpsc::unbounded_channel());
    let link = |stream, service, mailbox| Link::new(Stream::Unix(stream), service, Limits::default(), 1 << 20, mailbox);
    tokio::spawn(link::drive(link(near, Record(mpsc::unbounded_channel().0), mailbox.clone())));
    tokio::spawn(link::drive(link(far, Record(sender), Arc::default())));
    (PeerHandle::new(mailbox), messages)
}

async fn next(messages: &mut mpsc::UnboundedReceiver<Message>) -> Message {
    time::timeout(Duration::from_secs(60), messages.recv()).await.expect("no answer").unwrap()
}

/// A transaction that writes an object of each of these logical nodes, all at this brick.
fn joint_prepare(nodes: &[NodeId], txn: TxnId) -> Request<Object> {
    let prepare = |node: &NodeId| {
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: *node, number: 7 }, 1);
        let writes = [(oid, ObjectState::Value(Object::blob("new".into())))].into();
        let part = Part { writes, ..Part::default() };
        (*node, Request::Prepare { txn, participants: nodes.to_vec(), part })
    };
    Request::Joint { txn, requests: nodes.iter().map(prepare).collect() }
}

#[tokio::test]
async fn transaction_of_two_nodes_is_concluded_at_their_brick() {
    let dir = tempfile::tempdir().unwrap();
    for store in [Store::in_memory(Options::default()).unwrap(), Store::open(dir.path(), Options::default()).unwrap()] {
        let nodes = nodes_on(store);
        let (task, (from, mut messages)) = (nodes.clone(), connection());
        let task = tokio::spawn(async move { task.run().await });
        let txn = TxnId { start: HlcTimestamp::at(nodes.time.now()), client: ClientId(1) };
        let message = |request| Message::Ask { node: NODE, epoch: EPOCH, seen: HlcTimestamp::ZERO, request };
        handle(&nodes, &from, message(joint_prepare(&[NODE, OTHER], txn))).unwrap();
        let concluded = next(&mut messages).await;
        let is_committed = matches!(
            concluded,
            Message::Answer { answer: Answer::Concluded { reply: CommitReply::Committed(_), .. }, .. }
        );
        assert!(is_committed, "{concluded:?}");
        for node in [NODE, OTHER] {
            let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 7 }, 1);
            nodes.wait_settled(oid).await.unwrap();
            let read = nodes.read_latest(oid, |stored| stored.is_some()).unwrap();
            assert_eq!(read, Some(true), "the object of {node} is there");
        }
        let wrong = handle(&nodes, &from, message(joint_prepare(&[OTHER], txn)));
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::Invalid, "the request is for another node");
        task.abort();
    }
}

#[tokio::test]
async fn request_to_a_node_that_has_failed_is_refused() {
    let nodes = nodes();
    let (from, mut messages) = connection();
    let panicking = || nodes.with_driver(NODE, |_| -> Result<()> { panic!("a test of panics") });
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panicking)).is_err());
    let request = Request::Ask { txn: TxnId { start: HlcTimestamp::ZERO, client: ClientId(1) }, round: 0 };
    handle(&nodes, &from, Message::Ask { node: NODE, epoch: EPOCH, seen: HlcTimestamp::ZERO, request }).unwrap();
    let refused = next(&mut messages).await;
    assert!(matches!(refused, Message::NotServedHere { node: NODE, epoch: 0, .. }), "{refused:?}");
}

#[tokio::test]
async fn reason_of_a_refusal_precedes_the_answer_to_a_joint_request() {
    let dir = tempfile::tempdir().unwrap();
    for store in [Store::in_memory(Options::default()).unwrap(), Store::open(dir.path(), Options::default()).unwrap()] {
        for refusing in [NODE, OTHER] {
            let nodes = nodes_on(store.clone());
            let (task, (from, mut messages)) = (nodes.clone(), connection());
            let task = tokio::spawn(async move { task.run().await });
            // The store may have heard of another transaction of this millisecond.
            let txn = TxnId { start: HlcTimestamp::at(nodes.time.now()), client: ClientId(u64::from(refusing.0)) };
            let mut request = joint_prepare(&[NODE, OTHER], txn);
            if let Request::Joint { requests, .. } = &mut request
                && let Some(Request::Prepare { part, .. }) = requests.get_mut(&refusing)
            {
                let of_another_class = Object::record(ClassId(9), Bytes::new());
                part.writes.values_mut().for_each(|written| *written = ObjectState::Value(of_another_class.clone()));
            }
            handle(&nodes, &from, Message::Ask { node: NODE, epoch: EPOCH, seen: HlcTimestamp::ZERO, request })
                .unwrap();
            let deferred = next(&mut messages).await;
            let is_reason =
                matches!(deferred, Message::Deferred { kind: ErrorKind::Invalid, node, .. } if node == refusing);
            assert!(is_reason, "{deferred:?}");
            let concluded = next(&mut messages).await;
            let is_refused = matches!(
                concluded,
                Message::Answer { answer: Answer::Concluded { reply: CommitReply::Refused(_), .. }, .. }
            );
            assert!(is_refused, "{concluded:?}");
            task.abort();
        }
    }
}

#[tokio::test]
async fn requests_that_arrive_together_are_all_answered_up_to_a_wrong_one() {
    let dir = tempfile::tempdir().unwrap();
    for store in [Store::in_memory(Options::default()).unwrap(), Store::open(dir.path(), Options::default()).unwrap()] {
        let nodes = nodes_on(store);
        let (task, (from, mut messages)) = (nodes.clone(), connection());
        let task = tokio::spawn(async move { task.run().await });
        let start = nodes.time.now();
        let commit = |node: NodeId, number: u64| {
            let txn = TxnId { start: HlcTimestamp::at(start + number), client: ClientId(1) };
            let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number }, 1);
            let writes = [(oid, ObjectState::Value(Object::blob("new".into())))].into();
            let request = Request::Commit { txn, part: Part { writes, ..Part::default() } };
            (txn, Message::Ask { node, epoch: EPOCH, seen: HlcTimestamp::ZERO, request })
        };
        let (mut txns, mut together): (Vec<TxnId>, Vec<Message>) = [(NODE, 1), (NODE, 2), (OTHER, 3), (NODE, 4)]
            .map(|(node, number)| commit(node, number))
            .into_iter()
            .unzip();
        let too_many = (0..=limits::OBJECTS as u64).map(|number| {
            let page = PageId { space: SpaceId(1), node: NODE, number: 100 + number };
            (Oid::new(ClassId::NONE, page, 1), ObjectState::Absent)
        });
        let txn = TxnId { start: HlcTimestamp::at(start), client: ClientId(2) };
        let request = Request::Commit { txn, part: Part { writes: too_many.collect(), ..Part::default() } };
        together.push(Message::Ask { node: NODE, epoch: EPOCH, seen: HlcTimestamp::ZERO, request });
        together.push(commit(NODE, 5).1);
        let wrong = nodes.handle_messages(&from, together.into_iter());
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::TooLarge);
        while !txns.is_empty() {
            let answer = next(&mut messages).await;
            let Message::Answer { answer: Answer::Ended { txn, outcome, .. }, .. } = answer else {
                panic!("{answer:?}")
            };
            assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            let known = txns.iter().position(|one| *one == txn).unwrap();
            txns.remove(known);
        }
        let behind = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NODE, number: 5 }, 1);
        assert_eq!(nodes.read_latest(behind, |stored| stored.is_some()).unwrap(), Some(false));
        task.abort();
    }
}

/// A result that came before the node is served would find no driver: the rows behind it would never count as durable.
#[tokio::test]
async fn opening_a_logical_node_submits_rows_only_when_it_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (nodes, node, place) = nodes_with_index(Store::open(dir.path(), Options::default()).unwrap()).await;
    let opened = nodes.open(node, place).unwrap();
    assert!(matches!(opened.lock().unwrap().next_output(), Some(DriverOutput::SubmitRows { .. })));
}

/// A driver that has failed cannot be told to hand over its rows, and closing it with these would be a violation of L1.
#[tokio::test]
async fn logical_node_whose_indexes_cannot_be_read_is_not_opened() {
    let store = Store::in_memory(Options::default()).unwrap();
    let (nodes, node, place) = nodes_with_index(store.clone()).await;
    let catalog = nodes.cluster_view.catalog().unwrap();
    let space = catalog.space_of(node).unwrap().id;
    let class = catalog.schema(space).classes().next().unwrap().class().id;
    let (mut no_place, _) = page_rows::extent_range(node, space, class, None);
    no_place.push(1);
    let mut damage = RowChanges::new();
    damage.put(&no_place, Bytes::new());
    store.commit_rows(damage).unwrap();
    assert!(nodes.open(node, place).is_ok(), "damage is passed over");
    // Other errors end the logical node, as damage does with this bug.
    let _planted = plant(Bug::DamageEndsNode);
    assert_eq!(nodes.open(node, place).err().map(|error| error.kind()), Some(ErrorKind::Corrupt));
}

/// A brick on a store which the catalogue has a logical node placed at that it does not serve yet, with an index.
async fn nodes_with_index(store: Store) -> (Arc<Nodes>, NodeId, NodePlacement) {
    let catalogue: Arc<dyn MetaStore> = Arc::new(meta::Embedded::in_memory().unwrap());
    CatalogEditor::new(catalogue.clone()).set_up(&Parameters::generate()).await.unwrap();
    let view = ClusterView::follow(catalogue).await.unwrap();
    let editor = view.editor().unwrap();
    let brick = editor.add_brick(&["127.0.0.1:1".to_owned()], Storage::Durable).await.unwrap().value.id;
    let session = editor.store().open_session(Duration::from_secs(60)).await.unwrap().id;
    editor.announce_brick(brick, editor.start_number().await.unwrap(), session).await.unwrap();
    let node = view.create_space("main", SpaceOptions::default()).await.unwrap().nodes[0];
    let fields = vec![FieldDefinition::required("number", FieldType::Int64)];
    let class = ClassDefinition { name: "Badge".to_owned(), parent: None, fields };
    editor.define("main", &[class]).await.unwrap();
    let index = editor.create_index("main", "by_number", "Badge", &["number"], true).await.unwrap();
    view.wait_for_revision(index.revision).await.unwrap();
    let place = view.placement.of(node).unwrap();
    (Nodes::new(store, view, BrickId(brick.0), &Config::default(), None).unwrap(), node, place)
}

#[tokio::test]
async fn brick_whose_opening_has_ended_may_not_serve_and_says_why() {
    let catalogue: Arc<dyn MetaStore> = Arc::new(meta::Embedded::in_memory().unwrap());
    CatalogEditor::new(catalogue.clone()).set_up(&Parameters::generate()).await.unwrap();
    let view = ClusterView::follow(catalogue).await.unwrap();
    let editor = view.editor().unwrap();
    let brick = editor.add_brick(&["127.0.0.1:1".to_owned()], Storage::Memory).await.unwrap().value.id;
    let store = Store::in_memory(Options::default()).unwrap();
    let opening = open_brick(&view, &store, brick, &ClusterCredentials::default()).await.unwrap();
    let number = opening.opening().number;
    let nodes = Nodes::new(store, view, BrickId(brick.0), &Config::default(), Some(opening)).unwrap();
    assert!(nodes.check_current().is_ok() && nodes.health_problem().is_none());
    let later = Witnessed { brick: brick.0, number: number + 1, nonce: 1, position: 0, at_us: 0 };
    nodes.answer_witness(&AskWitness { brick: brick.0, claimed: Some(later), transactions: None }).unwrap();
    let refused = nodes.check_current().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert_eq!(nodes.health_problem(), Some(refused.to_string()));
}
