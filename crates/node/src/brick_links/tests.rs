use std::time::Duration;

use model::SpaceId;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time;
use wire::handshake::{self, HandshakeAuthenticator, Terms, Witnessed};
use wire::link::End;
use wire::proto::response::Response;
use wire::transport::RemoteEndpoint;

use super::*;
use crate::cluster_view::ClusterView;
use crate::peer::PeerRole;
use crate::server::Config;

/// After this time something that should happen at once counts as not happening.
const HANGS: Duration = Duration::from_secs(60);

struct IgnoreAll;

impl BrickLinkHandler for IgnoreAll {
    fn on_connected(&self, _: BrickId) {}

    fn handle_messages(&self, _: BrickId, _: impl Iterator<Item = Message>) -> Result<()> {
        Ok(())
    }

    fn on_disconnected(&self, _: BrickId) {}
}

#[tokio::test]
async fn brick_that_has_left_the_map_is_not_connected_to_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap().to_string());
    let (links, handler) = (BrickLinks::new(ClusterCredentials::default(), WitnessTable::new()), Arc::new(IgnoreAll));
    links.set_bricks(&[(BrickId(1), address)].into(), &handler);
    let (mut first, _) = listener.accept().await.unwrap();
    links.set_bricks(&BTreeMap::new(), &handler);
    // The connection ends without an answer to its introduction.
    assert!(first.read(&mut [0; 1]).await.is_ok());
    drop(first);
    let again = time::timeout(20 * CONNECT_POLICY.min_backoff, listener.accept()).await;
    assert!(again.is_err());
}

#[test]
fn what_an_opening_has_forced_is_kept_until_it_is_superseded() {
    let opening = Opening { number: 3, nonce: 7 };
    let belief = LinkBelief::new(Some(ForcedPosition { opening, position: 5 }));
    belief.forced.fetch_max(9, Ordering::Relaxed);
    assert_eq!(belief.forced_position(), Some(ForcedPosition { opening, position: 9 }));
    assert!(belief.believe().is_some());
    belief.supersede();
    assert!(belief.believe().is_none());
}

/// Admits connections as a brick does.
struct AdmitAll {
    brick: u32,
    opening: Option<Witnessed>,
    cluster: &'static str,
}

impl HandshakeAuthenticator for AdmitAll {
    async fn admit(&mut self, _: &proto::Hello, _: &RemoteEndpoint) -> Result<Terms> {
        let Self { brick, opening, cluster } = *self;
        Ok(Terms {
            space: SpaceId(0),
            max_frame: 1 << 20,
            max_in_flight: 8,
            brick,
            opening,
            permission: handshake::Permission::None,
            time_ms: 0,
            cluster: cluster.to_owned(),
        })
    }
}

type Requested = (Request, DeferredResponder);

/// Gives the requests of a connection to the test.
struct Record(mpsc::UnboundedSender<Requested>);

impl Service for Record {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let _ = self.0.send((incoming.request, reply.defer()));
    }
}

/// The brick's end of a connection.
struct BrickEnd {
    hello: proto::Hello,
    requests: mpsc::UnboundedReceiver<Requested>,
    end: JoinHandle<End>,
}

impl BrickEnd {
    /// Waits for the next connection, and admits it as this brick.
    async fn accept(listener: &TcpListener, brick: u32, opening: Option<Witnessed>) -> Self {
        Self::accept_in("", listener, brick, opening).await
    }

    /// The same as a brick of this cluster; "" if it has no number.
    async fn accept_in(cluster: &'static str, listener: &TcpListener, brick: u32, opening: Option<Witnessed>) -> Self {
        let accepted = time::timeout(HANGS, listener.accept()).await.expect("nothing connects");
        let mut stream = Stream::Tcp(accepted.unwrap().0);
        let (hello, _) =
            handshake::accept(&mut stream, &mut AdmitAll { brick, opening, cluster }, "test").await.unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let link = Link::new(stream, Record(sender), Limits::default(), 1 << 20, Arc::default());
        Self { hello, requests, end: tokio::spawn(link::drive(link)) }
    }

    async fn next(&mut self) -> Requested {
        time::timeout(HANGS, self.requests.recv()).await.expect("nothing is sent").expect("the connection is open")
    }

    /// The witnesses that are shared next.
    async fn next_witnesses(&mut self) -> Vec<Witnessed> {
        match self.next().await.0 {
            Request::Witnesses(witnesses) => witnesses.seen,
            other => panic!("{other:?}"),
        }
    }
}

/// Connections to bricks that the test plays, and what they listen with.
struct World {
    links: Arc<BrickLinks>,
    handler: Arc<IgnoreAll>,
    listeners: Vec<TcpListener>,
}

impl World {
    async fn start(count: u32) -> Self {
        let (mut listeners, mut bricks) = (Vec::new(), BTreeMap::new());
        for brick in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            bricks.insert(BrickId(brick), Address::Tcp(listener.local_addr().unwrap().to_string()));
            listeners.push(listener);
        }
        let witnesses = WitnessTable::new();
        witnesses.set_cluster("one".to_owned());
        let links = BrickLinks::new(ClusterCredentials::default(), witnesses);
        let handler = Arc::new(IgnoreAll);
        links.set_bricks(&bricks, &handler);
        Self { links, handler, listeners }
    }

    /// Waits until the bricks, which have no openings, are connected.
    async fn connect_all(&self) -> Vec<BrickEnd> {
        let mut ends = Vec::new();
        for (brick, listener) in (1..).zip(&self.listeners) {
            let mut end = BrickEnd::accept(listener, brick, None).await;
            end.next_witnesses().await;
            ends.push(end);
        }
        ends
    }

    fn check(&self, count: u32, doubted: &[BrickId]) {
        (0..count).for_each(|_| self.links.check_liveness(&doubted.iter().copied().collect()));
    }
}

/// What a process says of a log with an opening of this number.
fn witnessed_position(brick: u32, number: u64, position: u64) -> Witnessed {
    Witnessed { brick, number, nonce: 7, position, at_us: 1 }
}

fn positions(seen: &[Witnessed]) -> Vec<(u32, u64, u64)> {
    seen.iter().map(|seen| (seen.brick, seen.number, seen.position)).collect()
}

#[tokio::test]
async fn superseded_opening_is_not_connected_to() {
    let world = World::start(1).await;
    let witnesses = &world.links.witnesses;
    let seen = |number, position| witnessed_from_proto(&witnessed_position(1, number, position)).unwrap().1.forced;
    witnesses.note(Subject::Brick(1), seen(3, 50));
    let mut old = BrickEnd::accept(&world.listeners[0], 1, Some(witnessed_position(1, 2, 90))).await;
    assert!(time::timeout(HANGS, old.requests.recv()).await.expect("it is connected").is_none());
    assert_eq!(positions(&witnesses.witnessed_positions(Subject::Brick(1))), [(1, 3, 50)]);
    let mut current = BrickEnd::accept(&world.listeners[0], 1, Some(witnessed_position(1, 4, 60))).await;
    // The brick has compared its log with the former opening.
    assert_eq!(positions(&current.next_witnesses().await), [(1, 4, 60)]);
    drop(world.handler);
}

/// The original of a restored cluster may be at the address that the catalogue has from the archive.
#[tokio::test]
async fn brick_of_another_cluster_is_not_connected_to_nor_believed() {
    let world = World::start(1).await;
    let mut other = BrickEnd::accept_in("other", &world.listeners[0], 1, Some(witnessed_position(1, 3, 90))).await;
    assert!(time::timeout(HANGS, other.requests.recv()).await.expect("it is connected").is_none());
    assert_eq!(positions(&world.links.witnesses.witnessed_positions(Subject::Brick(1))), []);
    let mut own = BrickEnd::accept_in("one", &world.listeners[0], 1, Some(witnessed_position(1, 3, 60))).await;
    assert_eq!(own.hello.cluster, "one");
    assert_eq!(positions(&own.next_witnesses().await), [(1, 3, 60)]);
    drop(world.handler);
}

#[tokio::test]
async fn claim_of_an_opening_ends_the_connections_of_all_shards_to_the_former_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let bricks = [(BrickId(1), Address::Tcp(listener.local_addr().unwrap().to_string()))].into();
    let view = ClusterView::new(|_| Box::pin(async { Ok(100) }));
    let role = PeerRole::new(view, 1, &Config { threads: 2, ..Config::default() }).await.unwrap();
    let (handler, mut ends) = (Arc::new(IgnoreAll), Vec::new());
    for links in role.brick_links() {
        links.set_bricks(&bricks, &handler);
        let mut end = BrickEnd::accept(&listener, 1, Some(witnessed_position(1, 2, 50))).await;
        end.next_witnesses().await;
        ends.push(end);
    }
    assert_eq!(ends.len(), 2);
    let claimed = Some(witnessed_position(1, 3, 0));
    let answer = role.answer_witness(&cluster::AskWitness { brick: 1, claimed, transactions: None }).unwrap();
    assert_eq!(positions(&answer.seen), [(1, 2, 50)]);
    for mut end in ends {
        assert!(time::timeout(HANGS, end.requests.recv()).await.expect("it is connected").is_none());
    }
}

#[tokio::test]
async fn other_brick_at_the_address_is_not_connected_to() {
    let world = World::start(1).await;
    for brick in [2, 0] {
        let mut other = BrickEnd::accept(&world.listeners[0], brick, None).await;
        assert!(time::timeout(HANGS, other.requests.recv()).await.expect("it is connected").is_none());
    }
    world.connect_all().await;
}

#[tokio::test]
async fn witnesses_are_shared_once() {
    let world = World::start(1).await;
    let note = |brick, position| {
        let forced = witnessed_from_proto(&witnessed_position(brick, 1, position)).unwrap().1.forced;
        world.links.witnesses.note(Subject::Brick(brick), forced);
    };
    let mut brick = BrickEnd::accept(&world.listeners[0], 1, Some(witnessed_position(1, 1, 10))).await;
    assert_eq!(positions(&brick.next_witnesses().await), [(1, 1, 10)]);
    note(2, 20);
    world.links.share_witnesses();
    assert_eq!(positions(&brick.next_witnesses().await), [(1, 1, 10), (2, 1, 20)]);
    world.links.share_witnesses();
    note(2, 30);
    world.links.share_witnesses();
    assert_eq!(positions(&brick.next_witnesses().await), [(2, 1, 30)], "only news");
    // Answers say how far the log of the connected brick is forced.
    world.links.lock()[&BrickId(1)].connection.as_ref().unwrap().belief.forced.fetch_max(40, Ordering::Relaxed);
    world.links.share_witnesses();
    assert_eq!(positions(&brick.next_witnesses().await), [(1, 1, 40)]);
}

#[tokio::test]
async fn silent_brick_is_pinged_and_then_disconnected() {
    let world = World::start(1).await;
    let mut brick = world.connect_all().await.pop().unwrap();
    let links = &world.links;
    assert!(!links.is_silent(BrickId(1)));
    world.check(1, &[]);
    assert!(links.is_silent(BrickId(1)));
    world.check(PING_AFTER_TICKS - 1, &[]);
    assert!(links.is_responsive(BrickId(1)));
    let (ping, reply) = brick.next().await;
    assert!(matches!(ping, Request::Ping(_)), "{ping:?}");
    world.check(UNRESPONSIVE_AFTER_TICKS - 1, &[]);
    assert!(links.is_responsive(BrickId(1)));
    world.check(1, &[]);
    assert!(!links.is_responsive(BrickId(1)));
    // It answers, and is silent again.
    reply.send(Response::Done(proto::Done {}), Vec::new());
    let answered = async {
        while links.is_silent(BrickId(1)) {
            time::sleep(Duration::from_millis(1)).await;
        }
    };
    time::timeout(HANGS, answered).await.expect("the answer does not arrive");
    assert!(links.is_responsive(BrickId(1)));
    world.check(PING_AFTER_TICKS, &[]);
    assert!(brick.requests.try_recv().is_err(), "the answer counts as received once");
    world.check(1, &[]);
    assert!(matches!(brick.next().await.0, Request::Ping(_)));
    world.check(DISCONNECT_AFTER_TICKS - 1, &[]);
    assert!(!links.is_responsive(BrickId(1)) && links.handle_to(BrickId(1)).is_some());
    world.check(1, &[]);
    time::timeout(HANGS, brick.end).await.expect("it stays connected").unwrap();
}

#[tokio::test]
async fn one_silent_brick_is_pinged_at_a_time_and_doubted_ones_at_once() {
    let world = World::start(3).await;
    let mut bricks = world.connect_all().await;
    let links = &world.links;
    world.check(1, &[BrickId(2)]);
    assert!(matches!(bricks[1].next().await.0, Request::Ping(_)));
    let pinged = |links: &BrickLinks| -> Vec<u32> {
        let links = links.lock();
        let is_pinged = |link: &BrickLink| link.connection.as_ref().unwrap().ticks_since_ping.is_some();
        links.iter().filter(|(_, link)| is_pinged(link)).map(|(brick, _)| brick.0).collect()
    };
    assert_eq!(pinged(links), [2]);
    world.check(PING_AFTER_TICKS - 2, &[]);
    assert_eq!(pinged(links), [2]);
    world.check(1, &[]);
    assert_eq!(pinged(links).len(), 2);
    world.check(1, &[]);
    assert_eq!(pinged(links), [1, 2, 3]);
}
