//! Clients that violate the protocol: their requests fail or end their connections, and other clients are not affected.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use meta::catalog::{CatalogEditor, Grantee, Parameters, Permission, ServerId, SpaceOptions};
use meta::{Embedded, MetaStore};
use model::{ClassId, ErrorKind, NodeId, Object, Oid, PageId, SpaceId, limits};
use node::auth::{ClusterCredentials, Secret};
use node::cluster_view::{ClusterView, SpaceView};
use node::member::{self, Member};
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use protocol::commit::Part;
use protocol::gateway::Call;
use protocol::ident::{ClientId, HlcTimestamp, HolderId, TxnId};
use protocol::page_cache::{FetchId, ObjectState};
use protocol::tree::Up;
use store::{Options, Store};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;
use wire::cluster::Message;
use wire::driving::MonotonicClock;
use wire::handshake::{self, ClientNumber, Credentials, Introduction};
use wire::link::{self, Caller, End, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::Stream;

/// Longer than any step of these tests.
const LONG: Duration = Duration::from_secs(60);
const PASSWORD: &str = "right one";

/// A cluster of one brick and one peer server with two spaces. `reader` may read in `main`, `writer` write in both.
struct World {
    view: Arc<ClusterView>,
    brick: Brick,
    peer: PeerServer,
    _member: Member,
}

/// The settings of a server of the cluster.
fn config() -> Config {
    static SECRET: LazyLock<Secret> = LazyLock::new(Secret::generate);
    let cluster_credentials = ClusterCredentials { secret: Some(SECRET.clone()), ..ClusterCredentials::default() };
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, cluster_credentials, ..Config::default() }
}

impl World {
    async fn start() -> Self {
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(catalogue.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let view = ClusterView::follow(catalogue).await.unwrap();
        let store = Store::in_memory(Options::default()).unwrap();
        let id = member::brick_of(&view, &store, &config().listen).await.unwrap();
        let brick = Brick::start_in(view.clone(), BrickId(id.0), store, config()).await.unwrap();
        let start = editor.start_number().await.unwrap();
        let member = Member::announce(&view, ServerId::Brick(id), start, brick.addresses()).await.unwrap();
        for space in ["main", "other"] {
            let options = SpaceOptions { nodes: Some(1), ..SpaceOptions::default() };
            view.create_space(space, options).await.unwrap();
        }
        for name in ["root", "reader", "writer"] {
            editor.create_user(name, Some(PASSWORD), &[]).await.unwrap();
        }
        for (space, name, permission) in [
            ("main", "reader", Permission::Read),
            ("main", "writer", Permission::Write),
            ("other", "writer", Permission::Write),
        ] {
            let granted = editor.grant(space, Grantee::User(name), Some(permission)).await.unwrap();
            view.wait_for_revision(granted.revision).await.unwrap();
        }
        let start = editor.start_number().await.unwrap();
        let peer = PeerServer::start(view.clone(), start.0, config()).await.unwrap();
        Self { view, brick, peer, _member: member }
    }

    fn space(&self, name: &str) -> Arc<SpaceView> {
        self.view.space(name).unwrap()
    }

    async fn connect(&self, user: &str, space: &str) -> Connection {
        self.connect_as(user, space, None).await.unwrap()
    }

    /// The number of a client of a space, as a peer server would give it.
    async fn client_number(&self, space: &str, number: u64) -> ClientNumber {
        let key = self.view.client_number_key().await.unwrap();
        ClientNumber { number, token: key.token(self.space(space).id, number) }
    }

    /// A connection of a client that has a number.
    async fn connect_numbered(&self, user: &str, space: &str, number: u64) -> Connection {
        let client = self.client_number(space, number).await;
        self.connect_as(user, space, Some(client)).await.unwrap()
    }

    async fn connect_as(&self, user: &str, space: &str, client: Option<ClientNumber>) -> model::Result<Connection> {
        let mut stream = Stream::dial(&self.peer.addresses()[0], None).await.unwrap();
        let credentials = Some(Credentials { user: user.to_owned(), password: PASSWORD.to_owned() });
        let introduction = Introduction { credentials, client, ..Introduction::new(space, "test") };
        let terms = handshake::introduce(&mut stream, &introduction).await?;
        let mailbox = Arc::new(Mailbox::default());
        let link = Link::new(stream, Ignoring, Limits::default(), terms.max_frame, mailbox.clone());
        let caller = Caller::new(mailbox.clone(), 64 << 20);
        Ok(Connection { mailbox, caller, end: tokio::spawn(link::drive(link)) })
    }

    async fn end(self) {
        self.peer.shutdown().await.unwrap();
        self.brick.shutdown().await.unwrap();
    }
}

/// Ignores what the peer server sends.
struct Ignoring;

impl Service for Ignoring {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&model::Error::new(ErrorKind::Unsupported, "a client answers no requests"));
    }

    fn on_messages(&mut self, _: impl Iterator<Item = Message>) -> model::Result<()> {
        Ok(())
    }
}

/// A connection whose messages the test sends itself.
struct Connection {
    mailbox: Arc<Mailbox>,
    caller: Caller,
    end: JoinHandle<End>,
}

impl Connection {
    async fn ask(&self, request: Request) -> Result<Response, ErrorKind> {
        let asked = time::timeout(LONG, self.caller.call(request, Vec::new())).await.expect("no answer");
        asked.map(|answer| answer.response).map_err(|error| error.kind())
    }

    fn send(&self, message: &Message) {
        let (request, raw) = message.encode();
        self.mailbox.send_one_way(request, raw);
    }

    async fn expect_serving(&self) {
        assert!(matches!(self.ask(Request::Ping(proto::Ping {})).await, Ok(Response::Done(_))));
    }

    async fn expect_ended(self, what: &str) {
        let end = time::timeout(LONG, self.end).await;
        assert!(end.is_ok(), "the connection stays open: {what}");
    }
}

fn page(space: SpaceId, node: NodeId) -> PageId {
    PageId { space, node, number: 1 }
}

fn oid(page: PageId) -> Oid {
    Oid::new(ClassId::NONE, page, 1)
}

fn txn(client: u64, ms: u64) -> TxnId {
    TxnId { start: HlcTimestamp::at(ms), client: ClientId(client) }
}

fn up(client: u64, node: NodeId, message: Up<Object>) -> Message {
    Message::Up { node, epoch: 1, holder: HolderId(client << 20), message }
}

fn renew(client: u64, node: NodeId) -> Message {
    let (wanted_ms, subscribe, height) = (10_000, false, 0);
    let message = Up::Renew { asked: 1, wanted_ms, open: true, sync: 1, subscribe, height, replaces: None };
    up(client, node, message)
}

fn commit(txn: TxnId, node: NodeId, oids: impl IntoIterator<Item = Oid>) -> Message {
    let writes = oids.into_iter().map(|oid| (oid, ObjectState::Value(Object::blob("x".into()))));
    let part = Part { writes: writes.collect(), ..Part::default() };
    Message::Call { txn, call: Call::Commit { parts: BTreeMap::from([(node, part)]), creates: false } }
}

#[tokio::test]
async fn messages_of_other_roles_end_the_connection() {
    let world = World::start().await;
    let bystander = world.connect("writer", "main").await;
    let one_way = [
        Request::Down(Default::default()),
        Request::Reply(Default::default()),
        Request::Ask(Default::default()),
        Request::Answer(Default::default()),
        Request::NotServedHere(Default::default()),
        Request::Deferred(Default::default()),
        Request::SpaceStatus(Default::default()),
        // These kinds have an answer.
        Request::Ping(proto::Ping {}),
        Request::Query(Default::default()),
    ];
    for request in one_way {
        let (what, connection) = (format!("{request:?}"), world.connect("writer", "main").await);
        connection.mailbox.send_one_way(request, Vec::new());
        connection.expect_ended(&what).await;
    }
    // These kinds have no answer.
    for request in
        [Request::Up(Default::default()), Request::Call(Default::default()), Request::Watch(Default::default())]
    {
        let (what, connection) = (format!("{request:?}"), world.connect("writer", "main").await);
        assert!(connection.ask(request).await.is_err(), "{what}");
        connection.expect_ended(&what).await;
    }
    bystander.expect_serving().await;
    world.end().await;
}

#[tokio::test]
async fn messages_about_foreign_data_end_the_connection() {
    let world = World::start().await;
    let now = MonotonicClock::of_process().now();
    let (main, other) = (world.space("main"), world.space("other"));
    let (node, foreign_node) = (main.nodes[0], other.nodes[0]);
    let (own, foreign) = (page(main.id, node), page(other.id, node));
    let many = || (0..=limits::OBJECTS as u64).map(|at| Oid::new(ClassId::NONE, PageId { number: at, ..own }, 1));
    let fetch = |page| Up::Fetch { page, fetch: FetchId(1), have: None };
    let bad: Vec<(&str, Message)> = vec![
        ("a page of another space", up(70, node, fetch(foreign))),
        ("a logical node of another space", up(70, foreign_node, fetch(page(main.id, foreign_node)))),
        ("a commit in another space", commit(txn(70, now), node, [oid(foreign)])),
        ("a session of another client", renew(71, node)),
        ("a transaction of another client", commit(txn(71, now), node, [oid(own)])),
        ("a transaction in the future", commit(txn(70, now + 60_000), node, [oid(own)])),
        ("a commit that is too large", commit(txn(70, now), node, many())),
    ];
    for (what, message) in bad {
        let connection = world.connect_numbered("writer", "main", 70).await;
        connection.send(&renew(70, node));
        connection.expect_serving().await;
        connection.send(&message);
        connection.expect_ended(what).await;
    }
    world.end().await;
}

#[tokio::test]
async fn number_of_a_client_is_of_use_to_that_client_only() {
    let world = World::start().await;
    let node = world.space("main").nodes[0];
    let asked = world.connect("reader", "main").await.ask(Request::GetNumbers(proto::GetNumbers { count: 2 })).await;
    let Ok(Response::Numbers(numbers)) = asked else { panic!("{asked:?}") };
    assert_eq!((numbers.tokens.len(), numbers.tokens[0] == numbers.tokens[1]), (2, false));
    let of_reader = ClientNumber { number: numbers.first, token: numbers.tokens[0].clone() };
    assert!(world.connect_as("reader", "main", Some(of_reader.clone())).await.is_ok());
    let owner = world.connect_numbered("writer", "main", 80).await;
    owner.send(&renew(80, node));
    owner.expect_serving().await;
    for (token, space) in [
        (Bytes::new(), "main"),
        (of_reader.token, "main"),
        (world.client_number("other", 80).await.token, "main"),
        (world.client_number("main", 80).await.token, "other"),
    ] {
        let refused = world.connect_as("writer", space, Some(ClientNumber { number: 80, token })).await;
        assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    }
    let unnumbered = world.connect("reader", "main").await;
    unnumbered.send(&renew(80, node));
    unnumbered.expect_ended("the number of another client").await;
    owner.expect_serving().await;
    // The same client, on a new connection.
    let again = world.connect_numbered("writer", "main", 80).await;
    again.send(&renew(80, node));
    owner.expect_ended("an earlier connection of the same client").await;
    again.expect_serving().await;
    world.end().await;
}

/// Pages for new objects: the first one, how many, and the slots of the first one that may be taken.
async fn reserve(client: &Connection, (space, node): (u32, u32), room: u32) -> (u64, u32, u32) {
    let reserve = async || loop {
        match client.ask(Request::Reserve(proto::Reserve { space, node, pages: 4, room })).await {
            Ok(Response::Reserved(reserved)) => return (reserved.first, reserved.pages, reserved.slot),
            // The servers have just started.
            Err(ErrorKind::Unavailable) => time::sleep(Duration::from_millis(20)).await,
            other => panic!("{other:?}"),
        }
    };
    time::timeout(LONG, reserve()).await.expect("the brick does not serve its logical node")
}

#[tokio::test]
async fn pages_are_returned_once_and_by_the_connection_that_has_reserved_them() {
    let world = World::start().await;
    let main = world.space("main");
    let at = (u32::from(main.id.0), main.nodes[0].0);
    let owner = world.connect("writer", "main").await;
    let other = world.connect("writer", "main").await;
    let return_pages = async |client: &Connection, first, slot| {
        let ranges = vec![proto::Reserved { first, pages: 1, slot, room: 500 }];
        let returned = proto::ReturnPages { space: at.0, node: at.1, ranges };
        client.mailbox.send_one_way(Request::ReturnPages(returned), Vec::new());
        // Requests of a connection are handled in order.
        client.expect_serving().await;
    };
    let (first, pages, slot) = reserve(&owner, at, 100).await;
    assert_eq!((pages, slot), (4, 0));
    return_pages(&other, first, 1).await;
    let of_other = reserve(&other, at, 100).await;
    assert_eq!(of_other, (first + 4, 4, 0), "pages of another connection cannot be returned");
    return_pages(&owner, first, 3).await;
    return_pages(&owner, first, 3).await;
    assert_eq!(reserve(&other, at, 501).await, (first + 8, 4, 0), "the returned page has too little room");
    assert_eq!(reserve(&other, at, 500).await, (first, 1, 3), "slots that may be taken stay so");
    assert_eq!(reserve(&other, at, 500).await, (first + 12, 4, 0), "the page was returned once");
    return_pages(&other, first, 2).await;
    assert_eq!(reserve(&other, at, 500).await, (first + 16, 4, 0), "slots of an earlier client stay taken");

    let reader = world.connect("reader", "main").await;
    let returned = proto::ReturnPages { space: at.0, node: at.1, ranges: Vec::new() };
    reader.mailbox.send_one_way(Request::ReturnPages(returned), Vec::new());
    reader.expect_ended("a reader reserves no pages").await;
    // One message returns a bounded number of ranges.
    let reserved = |first| proto::Reserved { first, pages: 1, slot: 0, room: 500 };
    let returned = |count| proto::ReturnPages { space: at.0, node: at.1, ranges: (0..count).map(reserved).collect() };
    owner.mailbox.send_one_way(Request::ReturnPages(returned(64)), Vec::new());
    owner.expect_serving().await;
    owner.mailbox.send_one_way(Request::ReturnPages(returned(65)), Vec::new());
    owner.expect_ended("too many ranges").await;
    world.end().await;
}

#[tokio::test]
async fn one_user_cannot_take_all_uploads_under_any_name() {
    let world = World::start().await;
    let main = world.space("main");
    let (space, node) = (u32::from(main.id.0), main.nodes[0].0);
    let (writer, other) = (world.connect("writer", "main").await, world.connect("root", "main").await);
    // The brick serves its logical node.
    reserve(&writer, (space, node), 100).await;
    let begin =
        |claimed: usize| Request::BeginContent(proto::contents::Begin { space, node, user: claimed.to_string() });
    for number in 0..512 {
        assert!(matches!(writer.ask(begin(number)).await, Ok(Response::ContentBegun(_))), "upload {number}");
    }
    assert_eq!(writer.ask(begin(512)).await.unwrap_err(), ErrorKind::Full);
    assert!(matches!(other.ask(begin(0)).await, Ok(Response::ContentBegun(_))));
    world.end().await;
}

#[tokio::test]
async fn all_scans_of_a_user_are_answered_although_they_wait_for_each_other() {
    let world = World::start().await;
    let main = world.space("main");
    let (space, node) = (u32::from(main.id.0), main.nodes[0].0);
    reserve(&world.connect("writer", "main").await, (space, node), 100).await;
    let reader = world.connect("reader", "main").await;
    let (tell, mut told) = mpsc::unbounded_channel();
    for _ in 0..200 {
        let (tell, list) =
            (tell.clone(), proto::entries::ListNodeObjects { space, node, limit: 10, ..Default::default() });
        reader.caller.ask(Request::ListNodeObjects(list), move |answer| _ = tell.send(answer.is_ok()));
    }
    for number in 0..200 {
        let answered = time::timeout(LONG, told.recv()).await.expect("it waits for ever");
        assert_eq!(answered, Some(true), "scan {number}");
    }
    world.end().await;
}

#[tokio::test]
async fn denied_requests_fail_and_the_connection_stays_open() {
    let world = World::start().await;
    let (main, other) = (world.space("main"), world.space("other"));
    let (space, foreign) = (u32::from(main.id.0), u32::from(other.id.0));
    let node = main.nodes[0].0;
    let reader = world.connect("reader", "main").await;
    let read = |page| proto::ReadObject { oid: Some(oid(page).into()), cached: true };
    let denied = [
        Request::Reserve(proto::Reserve { space, node, pages: 1, room: 0 }),
        Request::BuildIndex(proto::BuildIndex { space, node, index: 1, only_report: false }),
        Request::Scan(proto::cluster::Scan { space: foreign, node, ..Default::default() }),
        Request::ReadObject(read(page(other.id, main.nodes[0]))),
        Request::CreateSpace(Default::default()),
        Request::Move(Default::default()),
        Request::MemberRequest(Default::default()),
        Request::Describe(Box::new(proto::schema::Describe { space: "other".to_owned(), ..Default::default() })),
    ];
    for request in denied {
        let what = format!("{request:?}");
        assert_eq!(reader.ask(request).await.unwrap_err(), ErrorKind::Denied, "{what}");
    }
    for request in [
        Request::Backup(Default::default()),
        Request::MetaRead(Default::default()),
        Request::CopyRows(Default::default()),
        Request::CloneRows(Default::default()),
    ] {
        let what = format!("{request:?}");
        assert_eq!(reader.ask(request).await.unwrap_err(), ErrorKind::Unsupported, "{what}");
    }
    reader.expect_serving().await;
    // A connection for the whole cluster has no space for these requests.
    let stranger = world.connect("reader", "").await;
    for request in [
        Request::Query(Default::default()),
        Request::FetchRows(Default::default()),
        Request::GetNumbers(proto::GetNumbers { count: 1 }),
    ] {
        let what = format!("{request:?}");
        assert_eq!(stranger.ask(request).await.unwrap_err(), ErrorKind::Denied, "{what}");
    }
    stranger.expect_serving().await;
    world.end().await;
}
