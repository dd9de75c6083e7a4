//! Failures are reported by their kind, end to end, and no data is lost.

use std::time::Duration;

use client::{Client, CommitOutcome, ConnectOptions, ErrorKind, IsolationLevel, Oid, PlacementHint};
use model::{ClassId, Error, NodeId, Object, PageId, SpaceId, limits};
use prost::Message as _;
use protocol::commit::Request;
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId};
use protocol::page_cache::FetchId;
use protocol::tree::Up;
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time;
use wire::cluster::Message;
use wire::driving::PeerHandle;
use wire::handshake::{self, Preamble};
use wire::link::{self, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::proto;
use wire::transport::{Address, RemoteEndpoint, Stream};

use crate::test_cluster::{ServerId, TestCluster};
use mortar_tests::keyed_objects::{list_object, single_object, value};

/// Timeout of the clients in these tests.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of any step while nothing fails.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);

async fn connect(ground: &TestCluster, timeout: Duration) -> Client {
    let mut options = ConnectOptions::default();
    options.timeout = timeout;
    Client::connect_with(&ground.url(0), options).await.unwrap()
}

/// Creates an object with this value at each of two bricks.
async fn create_pair(cluster: &Client, with: i64) -> [Oid; 2] {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let new = [1, 2]
        .map(|node| t.create_object(ClassId::NONE, single_object(with), PlacementHint::At(NodeId(node))).unwrap());
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    new.map(|oid| t.real_oid(oid).unwrap())
}

/// Reads both objects with a client without copies.
async fn read_pair(ground: &TestCluster, oids: [Oid; 2]) -> [Option<i64>; 2] {
    let cluster = connect(ground, RECOVERY_TIMEOUT).await;
    let read = cluster.transact(|t| async move { Ok([t.get(oids[0]).await?, t.get(oids[1]).await?]) });
    read.await.unwrap().map(|object| value(object.as_ref()).unwrap())
}

#[tokio::test]
async fn unknown_space_is_not_found() {
    let ground = TestCluster::start(1, 1).await;
    let url = ground.url(0).replace("/main", "/nowhere");
    let error = Client::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[tokio::test]
async fn oversized_writes_are_refused_before_they_are_sent_and_the_client_continues() {
    let ground = TestCluster::start(2, 1).await;
    let cluster = connect(&ground, RECOVERY_TIMEOUT).await;
    let [x, y] = create_pair(&cluster, 1).await;
    let huge = Object::blob(vec![7; limits::OBJECT + 1].into());
    let large = Object::blob(vec![7; limits::OBJECT].into());
    assert_eq!(cluster.put(x, huge.clone()).await.unwrap_err().kind(), ErrorKind::TooLarge);
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.put(x, single_object(2)).await.unwrap();
    assert_eq!(t.put(y, huge).await.unwrap_err().kind(), ErrorKind::TooLarge);
    // The transaction commits without the refused write.
    let outcome = t.commit().await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.put(x, single_object(3)).await.unwrap();
    for _ in 0..=limits::TRANSACTION / limits::OBJECT {
        t.create_object(ClassId::NONE, large.clone(), PlacementHint::Anywhere).unwrap();
    }
    assert_eq!(t.commit().await.unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(read_pair(&ground, [x, y]).await, [Some(2), Some(1)]);
    cluster.put(y, single_object(4)).await.unwrap();
    assert_eq!(read_pair(&ground, [x, y]).await, [Some(2), Some(4)]);
}

/// As many objects, and as many bytes, as a transaction may write, at two bricks.
#[tokio::test]
async fn largest_transactions_commit() {
    let ground = TestCluster::start(2, 1).await;
    let cluster = connect(&ground, RECOVERY_TIMEOUT).await;
    let [x, y] = create_pair(&cluster, 1).await;
    let large = limits::OBJECT - (1 << 10);
    for (value, objects, bytes) in [(2, limits::OBJECTS - 2, 10), (3, limits::TRANSACTION / limits::OBJECT, large)] {
        let t = cluster.begin(IsolationLevel::Optimistic);
        t.put(x, single_object(value)).await.unwrap();
        t.put(y, single_object(value)).await.unwrap();
        let created: Vec<Oid> = (0..objects)
            .map(|_| t.create_object(ClassId::NONE, Object::blob(vec![7; bytes].into()), PlacementHint::Anywhere))
            .collect::<Result<_, _>>()
            .unwrap();
        let outcome = t.commit().await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?} of {objects} objects");
        assert_eq!(read_pair(&ground, [x, y]).await, [Some(value), Some(value)]);
        for oid in created.iter().step_by(objects / 16) {
            let found = cluster.read_latest(t.real_oid(*oid).unwrap()).await.unwrap().unwrap();
            assert!(found.data.len() == bytes && found.data.iter().all(|byte| *byte == 7));
        }
    }
}

#[tokio::test]
async fn identifier_with_another_class_names_no_object() {
    let ground = TestCluster::start(2, 1).await;
    let cluster = connect(&ground, RECOVERY_TIMEOUT).await;
    let [x, y] = create_pair(&cluster, 1).await;
    let record = list_object(true, &[1]);
    let wrong = Oid::new(record.class, x.page(), x.slot());
    assert_eq!(cluster.get(wrong).await.unwrap(), None);
    assert_eq!(cluster.read_latest(wrong).await.unwrap(), None);
    assert_eq!(cluster.read_cached(wrong).await.unwrap(), None);
    for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
        let t = cluster.begin(level);
        assert_eq!(t.get(wrong).await.unwrap(), None);
        // The class of an object must be that of its identifier.
        let error = t.put(x, record.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)), "the transaction has only read");
        for content in [Some(record.clone()), None] {
            let t = cluster.begin(level);
            t.put(y, single_object(2)).await.unwrap();
            match content {
                Some(record) => t.put(wrong, record).await.unwrap(),
                None => t.delete(wrong).await.unwrap(),
            }
            let error = t.commit().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.message().contains(&wrong.to_string()), "{error}");
        }
    }
    let error = cluster.put(wrong, record).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert_eq!(read_pair(&ground, [x, y]).await, [Some(1), Some(1)]);
}

#[tokio::test]
async fn dead_brick_is_named_and_pending_transactions_are_resolved_when_it_is_back() {
    let mut ground = TestCluster::start(2, 1).await;
    let (cluster, patient) = (connect(&ground, TIMEOUT).await, connect(&ground, RECOVERY_TIMEOUT).await);
    let [x, y] = create_pair(&patient, 1).await;
    ground.kill(ServerId::Brick(2));
    let fresh = connect(&ground, TIMEOUT).await;
    assert_eq!(fresh.get(y).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(fresh.read_latest(y).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let locks = fresh.begin(IsolationLevel::Locks);
    assert_eq!(locks.get(y).await.unwrap_err().kind(), ErrorKind::Unavailable);
    locks.abort();
    assert_eq!(fresh.put(y, single_object(2)).await.unwrap_err().kind(), ErrorKind::Unavailable, "it was not sent");
    fresh.close();
    // Objects at the other brick are served.
    patient.put(x, single_object(3)).await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    for oid in [x, y] {
        t.put(oid, single_object(4)).await.unwrap();
    }
    let error = t.commit().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Unavailable && error.message().contains("brick 2 ("), "{error}");
    ground.launch(ServerId::Brick(2));
    ground.wait_ready(ServerId::Brick(2)).await.unwrap();
    let [x_was, y_was] = read_pair(&ground, [x, y]).await;
    assert!(x_was == Some(3) && [Some(1), Some(2)].contains(&y_was), "{x_was:?} {y_was:?}");
    while cluster.space_status().unwrap().unreachable().next().is_some() {
        time::sleep(Duration::from_millis(5)).await;
    }
    // A brick that hangs is noticed later, so a transaction that begins before may take effect.
    ground.signal(ServerId::Brick(2), Signal::STOP);
    let t = cluster.begin(IsolationLevel::Optimistic);
    for oid in [x, y] {
        t.put(oid, single_object(4)).await.unwrap();
    }
    let CommitOutcome::Unknown(txn) = t.commit().await.unwrap() else { panic!("a participant hangs") };
    ground.kill(ServerId::Brick(2));
    ground.launch(ServerId::Brick(2));
    ground.wait_ready(ServerId::Brick(2)).await.unwrap();
    let until = time::Instant::now() + RECOVERY_TIMEOUT;
    let decided = loop {
        match cluster.outcome(txn).await.unwrap() {
            CommitOutcome::Unknown(_) if time::Instant::now() < until => {}
            decided => break decided,
        }
    };
    let [x_is, y_is] = read_pair(&ground, [x, y]).await;
    match decided {
        CommitOutcome::Committed(_) => assert_eq!([x_is, y_is], [Some(4), Some(4)]),
        _ => assert!(x_is == Some(3) && [Some(1), Some(2)].contains(&y_is), "{x_is:?} {y_is:?}"),
    }
}

/// Admits every client.
struct AdmitAll;

impl handshake::HandshakeAuthenticator for AdmitAll {
    async fn admit(&mut self, _: &proto::Hello, _: &RemoteEndpoint) -> client::Result<handshake::Terms> {
        Ok(handshake::Terms {
            space: SpaceId(1),
            max_frame: 1 << 20,
            max_in_flight: 10,
            brick: 0,
            opening: None,
            permission: handshake::Permission::None,
            time_ms: 0,
            cluster: String::new(),
        })
    }
}

#[tokio::test]
async fn client_connects_although_its_peer_server_dies_meanwhile() {
    let ground = TestCluster::start(1, 1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dying = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let mut stream = Stream::Tcp(listener.accept().await.unwrap().0);
            handshake::accept(&mut stream, &mut AdmitAll, "test").await.unwrap();
        }
    });
    let error = Client::connect(&format!("mortar://{dying}/main")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let url = ground.url(0).replace("mortar://", &format!("mortar://{dying},"));
    Client::connect(&url).await.unwrap();
}

/// Collects the messages of a server.
struct MessageCollector(mpsc::UnboundedSender<Message>);

impl Service for MessageCollector {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&Error::new(ErrorKind::Unsupported, format!("{:?}", incoming.request)));
    }

    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> model::Result<()> {
        let ended = |_| Error::new(ErrorKind::Internal, "the test has ended");
        messages.try_for_each(|message| self.0.send(message).map_err(ended))
    }
}

#[tokio::test]
async fn brick_refuses_requests_by_an_old_map() {
    let ground = TestCluster::start(1, 1).await;
    let cluster = connect(&ground, RECOVERY_TIMEOUT).await;
    let t = cluster.begin(IsolationLevel::Optimistic);
    let new = t.create_object(ClassId::NONE, single_object(1), PlacementHint::Anywhere).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let x = t.real_oid(new).unwrap();

    let address: Address = ground.relay(ServerId::Brick(1)).address.to_string().parse().unwrap();
    let mut stream = Stream::connect(&address).await.unwrap();
    let terms = handshake::dial(&mut stream, "", "test").await.unwrap();
    let (sender, mut messages) = mpsc::unbounded_channel();
    let mailbox = std::sync::Arc::new(Mailbox::default());
    let post = PeerHandle::new(mailbox.clone());
    tokio::spawn(link::drive(Link::new(stream, MessageCollector(sender), Limits::default(), terms.max_frame, mailbox)));
    let (node, epoch) = (NodeId(1), 0);
    let txn = TxnId { start: HlcTimestamp::ZERO, client: ClientId(1 << 40) };
    let ask = Message::Ask { node, epoch, seen: HlcTimestamp::ZERO, request: Request::Ask { txn, round: 0 } };
    let page = PageId { number: 1, ..x.page() };
    let up = Message::Up { node, epoch, holder: HolderId(1 << 60), message: Up::Evict { page, fetch: FetchId(1) } };
    for message in [ask, up] {
        post.send(message);
        let answer = time::timeout(RECOVERY_TIMEOUT, messages.recv()).await.unwrap().unwrap();
        let Message::NotServedHere { node: of, epoch, .. } = answer else { panic!("{answer:?}") };
        assert_eq!((of, epoch > 0), (node, true));
    }
    let look = cluster.read_latest(x).await.unwrap();
    assert_eq!(value(look.as_ref()).unwrap(), Some(1));
}

#[tokio::test]
async fn client_of_another_version_learns_which_features_are_missing() {
    let ground = TestCluster::start(1, 1).await;
    let hello = proto::Hello { space: "main".to_owned(), agent: "test".to_owned(), ..proto::Hello::default() };
    for server in ground.servers() {
        for version in [handshake::VERSION - 1, handshake::VERSION + 98] {
            let mut stream = TcpStream::connect(ground.relay(server).address).await.unwrap();
            stream.write_all(&handshake::encode(version, &hello)).await.unwrap();
            let mut answer = Vec::new();
            time::timeout(RECOVERY_TIMEOUT, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
            let Preamble::Mortar { version: theirs, length } = handshake::decode(&answer) else { panic!("{answer:?}") };
            assert_eq!(theirs, handshake::VERSION);
            let welcome = proto::Welcome::decode(&answer[12..12 + length]).unwrap();
            let Some(proto::welcome::Answer::Refused(error)) = welcome.answer else { panic!("{welcome:?}") };
            assert_eq!(error.kind, ErrorKind::Unsupported as u32, "{server:?}: {error:?}");
        }
    }
    Client::connect(&ground.url(0)).await.unwrap();
}
