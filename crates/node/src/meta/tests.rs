//! A meta-server must do what everything that keeps the catalogue does, seen through the wire.

use std::sync::Arc;
use std::time::Duration;

use meta::catalog::{SpaceOptions, Storage};
use meta::conformance::{self, Subject};
use meta::opening::{self, ForcedPosition, Opening};
use meta::{Embedded, Expect, Key, KeyChange, MetaStore, Pending, Revision, WriteOutcome};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::handshake::{HandshakeAuthenticator, Role};
use wire::link::{self, DeferredResponder, Incoming, Limits, Link, Responder, Service};
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, RemoteEndpoint, Stream};

use super::meta_connection::run_watch;
use super::*;
use crate::auth::ClusterCredentials;
use crate::openings::WitnessTable;
use crate::server::Server;

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

/// Serves a catalogue as it is.
async fn serve(store: Arc<dyn MetaStore>, config: Config) -> MetaServer {
    let (editor, follower) = (CatalogEditor::new(store.clone()), Follower::start(store.clone()).await.unwrap());
    let (ended, clock) = (watch::Sender::new(None), ProcessClock::of_catalogue());
    let probe = StoreProbe::start(store.clone()).unwrap();
    let role = MetaRole { store, editor, follower, ended, deduplicator: WriteDeduplicator::new(), clock, probe };
    MetaServer { server: Server::start(role, config).await.unwrap() }
}

/// Each catalogue has a meta-server of its own.
#[derive(Default)]
struct Remotes {
    started: Mutex<Vec<RemoteAndServer>>,
}

/// A catalogue as it is seen from elsewhere, where it is, and what serves it.
type RemoteAndServer = (Arc<dyn MetaStore>, Embedded, MetaServer);

impl Subject for Remotes {
    fn create_empty(&self) -> Pending<'_, Arc<dyn MetaStore>> {
        Box::pin(async {
            let embedded = Embedded::in_memory()?;
            let server = serve(Arc::new(embedded.clone()), config()).await;
            let remote: Arc<dyn MetaStore> = Arc::new(RemoteMetaStore::new(server.addresses().to_vec())?);
            self.started.lock().push((remote.clone(), embedded, server));
            Ok(remote)
        })
    }

    fn forget<'a>(&'a self, store: &'a Arc<dyn MetaStore>, up_to: Revision) -> Pending<'a, ()> {
        Box::pin(async move {
            let known = self.started.lock();
            known.iter().find(|(remote, ..)| Arc::ptr_eq(remote, store)).unwrap().1.forget(up_to);
            Ok(())
        })
    }

    fn shortest_ttl(&self) -> Duration {
        Duration::from_secs(1)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_meta_server_keeps_the_catalogue_like_any_other() {
    conformance::run(&Remotes::default()).await;
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

#[tokio::test]
async fn a_remote_goes_on_when_the_meta_server_is_started_again() {
    let embedded = Arc::new(Embedded::in_memory().unwrap());
    let server = serve(embedded.clone(), config()).await;
    let listen: Vec<Address> = server.addresses().to_vec();
    let remote = RemoteMetaStore::new(listen.clone()).unwrap();
    let WriteOutcome::Done(first) = remote.write(vec![], vec![KeyChange::put(key("a"), "1")]).await.unwrap() else {
        panic!("nothing was expected")
    };
    let mut watch = MetaStore::watch(&remote, meta::Prefix::all(), first).await.unwrap();
    server.shutdown().await.unwrap();
    let writer = remote.clone();
    let changes = vec![KeyChange::put(key("a"), "2")];
    let writing = tokio::spawn(async move { writer.write(vec![Expect::at(key("a"), first)], changes).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _server = serve(embedded, Config { listen, ..config() }).await;
    assert!(matches!(writing.await.unwrap().unwrap(), WriteOutcome::Done(_)));
    match watch.next().await.unwrap() {
        meta::WatchEvent::Changed(batch) => assert_eq!(batch.changes[0].entry.as_ref().unwrap().value, "2"),
        meta::WatchEvent::Compacted => panic!("the history is known"),
    }
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_answer() {
    let server = serve(Arc::new(Embedded::in_memory().unwrap()), config()).await;
    // The listener is closed at once, so nothing listens at its address.
    let closed_address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses = vec![closed_address.to_string().parse().unwrap(), server.addresses()[0].clone()];
    let remote = RemoteMetaStore::new(addresses).unwrap();
    assert!(remote.get(vec![key("a")]).await.unwrap().entries.is_empty());
}

#[tokio::test]
async fn a_write_whose_outcome_is_lost_with_its_run_is_unknown_unless_it_can_happen_once_only() {
    let (at, absent) = (Expect::at(key("a"), Revision(3)), Expect::absent(key("a")));
    let put = vec![KeyChange::put(key("a"), "1")];
    assert!(remote_meta_store::happens_once(std::slice::from_ref(&at), &put));
    assert!(!remote_meta_store::happens_once(&[], &put));
    assert!(!remote_meta_store::happens_once(&[absent], &put));
    assert!(!remote_meta_store::happens_once(&[at], &[KeyChange::put(key("b"), "1")]));
}

/// A meta-server that the test plays.
struct PlayedServer(TcpListener);

type Requested = (Request, DeferredResponder);

/// A connection to it: the requests behind the first one, and what drives it.
struct PlayedConnection(mpsc::UnboundedReceiver<Requested>, JoinHandle<link::End>);

struct AdmitAll;

impl HandshakeAuthenticator for AdmitAll {
    async fn admit(&mut self, _: &proto::Hello, _: &RemoteEndpoint) -> Result<Terms> {
        let (space, permission, cluster) = (SpaceId(0), handshake::Permission::None, String::new());
        let (max_frame, max_in_flight, brick, opening, time_ms) = (1 << 20, 8, 0, None, 0);
        Ok(Terms { space, max_frame, max_in_flight, brick, opening, permission, time_ms, cluster })
    }
}

/// Gives the requests of a connection to the test.
struct Record(mpsc::UnboundedSender<Requested>);

impl Service for Record {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let _ = self.0.send((incoming.request, reply.defer()));
    }
}

impl PlayedServer {
    async fn start() -> (Self, RemoteMetaStore) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap().to_string());
        (Self(listener), RemoteMetaStore::new(vec![address]).unwrap())
    }

    /// Accepts a connection as this run of the meta-server.
    async fn accept(&self, run: u64) -> PlayedConnection {
        let mut stream = Stream::Tcp(self.0.accept().await.unwrap().0);
        handshake::accept(&mut stream, &mut AdmitAll, "test").await.unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let link = Link::new(stream, Record(sender), Limits::default(), 1 << 20, Arc::default());
        let mut connection = PlayedConnection(requests, tokio::spawn(link::drive(link)));
        let (_, reply) = connection.next().await;
        reply.send(Response::MetaRun(proto::meta::Run { run }), Vec::new());
        connection
    }
}

impl PlayedConnection {
    async fn next(&mut self) -> Requested {
        self.0.recv().await.expect("the connection is open")
    }

    /// Whether a write that comes was sent to this run before; and what answers it.
    async fn next_write(&mut self) -> (bool, DeferredResponder) {
        match self.next().await {
            (Request::MetaWrite(write), reply) => (write.again, reply),
            (other, _) => panic!("{other:?}"),
        }
    }

    fn hang_up(&self) {
        self.1.abort();
    }
}

/// Writes; the first run receives that and ends without an answer. Then one of this number is there, which answers if it is asked. Returns
/// whether it was told that the write is sent again, and what the writer is told.
async fn write_to_runs(
    runs: [u64; 2],
    expects: Vec<Expect>,
    answer: WriteOutcome,
) -> (Option<bool>, Result<WriteOutcome>) {
    let (server, remote) = PlayedServer::start().await;
    let writing = remote.write(expects, vec![KeyChange::put(key("a"), "1")]);
    let serving = async {
        let mut first = server.accept(runs[0]).await;
        assert!(!first.next_write().await.0);
        first.hang_up();
        let mut second = server.accept(runs[1]).await;
        let (again, reply) = second.next_write().await;
        reply.send(Response::MetaWritten(codec::write_outcome_to_proto(answer)), Vec::new());
        (again, second)
    };
    tokio::pin!(writing, serving);
    tokio::select! {
        written = &mut writing => (None, written),
        (again, _connected) = serving => (Some(again), writing.await),
    }
}

#[tokio::test]
async fn write_whose_answer_is_lost_is_sent_to_the_same_run_again() {
    for expects in [Vec::new(), vec![Expect::at(key("a"), Revision(3))]] {
        for answer in [WriteOutcome::Done(Revision(4)), WriteOutcome::Conflict] {
            let (again, written) = write_to_runs([7, 7], expects.clone(), answer).await;
            assert_eq!((again, written.unwrap()), (Some(true), answer));
        }
    }
}

#[tokio::test]
async fn write_whose_run_has_ended_is_sent_to_another_one_if_it_can_happen_once_only() {
    let done = WriteOutcome::Done(Revision(4));
    let (again, unknown) = write_to_runs([7, 8], Vec::new(), done).await;
    assert_eq!((again, unknown.unwrap_err().kind()), (None, ErrorKind::Unknown));
    let once = vec![Expect::at(key("a"), Revision(3))];
    let (again, written) = write_to_runs([7, 8], once.clone(), done).await;
    assert_eq!((again, written.unwrap()), (Some(false), done));
    // The first run may have executed it.
    let (_, unknown) = write_to_runs([7, 8], once, WriteOutcome::Conflict).await;
    assert_eq!(unknown.unwrap_err().kind(), ErrorKind::Unknown);
}

#[tokio::test]
async fn process_believes_its_clock_when_the_meta_server_compares_none() {
    let (server, remote) = PlayedServer::start().await;
    let clock = ProcessClock::of_member();
    assert!(clock.check().is_err());
    let serving = async {
        let mut connection = server.accept(7).await;
        let (asked, reply) = connection.next().await;
        assert!(matches!(asked, Request::MetaCompareClocks(_)), "{asked:?}");
        reply.fail(&Error::new(ErrorKind::Unsupported, "this is an older meta-server"));
        connection
    };
    let (compared, _connected) = tokio::join!(clock.compare(&remote), serving);
    compared.unwrap();
    clock.check().unwrap();
}

#[tokio::test]
async fn metrics_count_the_members_of_the_catalogue() {
    let store: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
    let editor = CatalogEditor::new(store.clone());
    editor.set_up(&Parameters::generate()).await.unwrap();
    let session = store.open_session(Duration::from_secs(3600)).await.unwrap().id;
    let address = ["127.0.0.1:1".to_owned()];
    for number in 1..=3 {
        let brick = editor.add_brick(&address, Storage::Memory).await.unwrap().value.id;
        if number > 1 {
            editor.announce_brick(brick, editor.start_number().await.unwrap(), session).await.unwrap();
        }
    }
    for number in 1..=5 {
        let peer = editor.add_peer(&address).await.unwrap().value.id;
        if number > 1 {
            editor.announce_peer(peer, editor.start_number().await.unwrap(), session).await.unwrap();
        }
    }
    let options = SpaceOptions { nodes: Some(6), ..SpaceOptions::default() };
    let revision = editor.create_space("main", options).await.unwrap().revision;
    let catalog = Follower::start(store).await.unwrap().catalog();
    let metrics = catalog_metrics(&catalog);
    let value = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap().value;
    let members = ["cluster_bricks", "cluster_bricks_alive", "cluster_peers", "cluster_peers_alive"];
    assert_eq!(members.map(value), [3, 2, 5, 4]);
    assert_eq!(["cluster_spaces", "cluster_nodes", "catalogue_revision"].map(value), [1, 6, revision.0]);
    assert_eq!(value("placement_epoch"), catalog.placement_map().epoch().0);
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_meta_server_end_within_the_caller_s_time_limit() {
    // Nothing listens on this port.
    let remote = RemoteMetaStore::new(vec!["127.0.0.1:1".parse().unwrap()]).unwrap();
    let (key, patience) = (Key::new("a").unwrap(), Duration::from_millis(700));
    let begun = tokio::time::Instant::now();
    let asked = call_timeout::with_timeout(patience, async {
        let read = remote.get(vec![key.clone()]).await.unwrap_err();
        // Both of them together have so long.
        let written = remote.write(Vec::new(), vec![KeyChange::put(key, "x")]).await.unwrap_err();
        [read, written]
    });
    for error in asked.await {
        assert_eq!(error.kind(), model::ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("no meta-server has answered"), "{error}");
    }
    assert!(begun.elapsed() <= patience, "{:?}", begun.elapsed());
}

/// What it saw is of another catalogue, which may be later than the one here (K2).
#[tokio::test]
async fn process_of_another_cluster_is_refused_before_what_it_saw_counts() {
    let embedded = Arc::new(Embedded::in_memory().unwrap());
    let server = MetaServer::start(embedded.clone(), config()).await.unwrap();
    let cluster = CatalogEditor::new(embedded).parameters().await.unwrap().cluster;
    let read_as = async |cluster: &str| {
        let witnesses = WitnessTable::new();
        witnesses.set_cluster(cluster.to_owned());
        let later = ForcedPosition { opening: Opening { number: 9, nonce: 9 }, position: 1 << 40 };
        witnesses.note(opening::Subject::Catalogue, later);
        let (addresses, credentials) = (server.addresses().to_vec(), ClusterCredentials::default());
        RemoteMetaStore::new_as_witness(addresses, credentials, Role::Brick, witnesses)?.get(vec![key("a")]).await
    };
    let refused = read_as("another").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    assert!(refused.message().contains(&cluster), "{refused}");
    assert!(server.server.role().ended.borrow().is_none());
    // One of this cluster ends it: the catalogue went back in time.
    read_as(&cluster).await.unwrap();
    assert!(server.wait_until_ended().await.contains("went back"));
}

/// A watch that gives its server up after a silence, as that on etcd does.
struct SilentWatch;

impl meta::Watch for SilentWatch {
    fn next(&mut self) -> Pending<'_, meta::WatchEvent> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Ok(meta::WatchEvent::Compacted)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn time_limit_of_a_watch_goes_on_over_keepalives() {
    let keepalives = Mutex::new(0);
    let began = tokio::time::Instant::now();
    let send = |answers: Vec<_>| {
        *keepalives.lock() += answers.len();
        std::future::ready(Ok(()))
    };
    tokio::time::timeout(Duration::from_secs(60), run_watch(Box::new(SilentWatch), send)).await.unwrap().unwrap();
    assert_eq!((began.elapsed(), *keepalives.lock()), (Duration::from_secs(20), 3));
}
