//! Faults of connections, and their limited effects.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::sync::Arc;
use std::time::Duration;

use client::{AdminClient, AdminOptions, Client, ConnectOptions, ErrorKind, Transaction};
use meta::catalog::{CatalogEditor, Parameters, SpaceOptions, Storage};
use meta::{Embedded, MetaStore};
use model::SpaceId;
use node::cluster_view::ClusterView;
use node::{Config, PeerServer};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use wire::frame::{Flags, crc32c};
use wire::handshake::{self, HandshakeAuthenticator, Terms};
use wire::link::{self, DeferredResponder, Incoming, Limits, Link, Responder, Service};
use wire::outbox::encode_head;
use wire::proto;
use wire::proto::request::Request;
use wire::transport::{Address, RemoteEndpoint, Stream};
use world::{World, pattern, run, view};

async fn socket(world: &World) -> UnixStream {
    UnixStream::connect(world.dir.path().join("socket")).await.unwrap()
}

async fn read_all(stream: &mut (impl AsyncReadExt + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes).await {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

fn hello(required: u64, space: &str) -> proto::Hello {
    let (space, agent) = (space.to_owned(), "test".to_owned());
    proto::Hello { features: required, required, space, agent, ..proto::Hello::default() }
}

/// The server's answer to an opening.
async fn read_refusal(world: &World, opening: &[u8]) -> (u16, proto::Error) {
    let mut stream = socket(world).await;
    stream.write_all(opening).await.unwrap();
    let answer = read_all(&mut stream).await;
    let handshake::Preamble::Mortar { version, length } = handshake::decode(&answer) else { panic!("{answer:?}") };
    let welcome = proto::Welcome::decode(&answer[12..12 + length]).unwrap();
    let Some(proto::welcome::Answer::Refused(error)) = welcome.answer else { panic!("{welcome:?}") };
    (version, error)
}

fn frame(id: u32, request: Request, raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let request = proto::Request { request: Some(request) };
    encode_head(&mut bytes, Flags::REQUEST, id, &request, raw.len(), crc32c(raw));
    bytes.extend_from_slice(raw);
    bytes
}

/// A connection after its handshake, whose bytes the test reads and writes.
async fn open_connection(world: &World) -> Stream {
    let mut stream = Stream::Unix(socket(world).await);
    handshake::dial(&mut stream, "main", "test").await.unwrap();
    stream
}

#[test]
fn browser_without_the_protocol_shows_the_reason() {
    run(async {
        let world = World::start().await;
        let host = world.tcp();
        let mut stream = TcpStream::connect(host).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let answer = String::from_utf8(read_all(&mut stream).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(answer.contains("mortar://"), "{answer}");
        world.admin().await.ping().await.unwrap();
    });
}

#[test]
fn refused_client_learns_the_reason() {
    run(async {
        let world = World::start().await;
        let (version, error) = read_refusal(&world, &handshake::encode(99, &hello(0, "main"))).await;
        assert_eq!((version, error.kind), (handshake::VERSION, ErrorKind::Unsupported as u32));
        let (_, error) = read_refusal(&world, &handshake::encode(handshake::VERSION, &hello(1 << 60, "main"))).await;
        assert_eq!(error.kind, ErrorKind::Unsupported as u32);
        let (_, error) = read_refusal(&world, &handshake::encode(handshake::VERSION, &hello(0, "nowhere"))).await;
        assert_eq!(error.kind, ErrorKind::NotFound as u32);
        let mut garbled = handshake::encode(handshake::VERSION, &hello(0, "main"));
        garbled[12] = 0xff;
        let (_, error) = read_refusal(&world, &garbled).await;
        assert_eq!(error.kind, ErrorKind::Invalid as u32);
    });
}

#[test]
fn client_recognizes_a_server_of_another_protocol() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("mortar://{}/main", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"220 mail.example.org ESMTP\r\n").await.unwrap();
            std::future::pending::<()>().await;
        });
        assert_eq!(AdminClient::connect(&url).await.unwrap_err().kind(), ErrorKind::Unsupported);
        let unreachable = AdminClient::connect("mortar://127.0.0.1:1/main").await.unwrap_err();
        assert_eq!(unreachable.kind(), ErrorKind::Unavailable);
        assert!(unreachable.message().contains("127.0.0.1:1"), "{unreachable}");
    });
}

#[test]
fn connection_without_an_introduction_is_closed() {
    run(async {
        let world = World::with(|config| config.handshake_timeout = Duration::from_millis(30)).await;
        for opening in [&b""[..], b"MOR", b"MORTAR\x01\x00\x10\x00\x00\x00hal"] {
            let mut stream = socket(&world).await;
            stream.write_all(opening).await.unwrap();
            assert_eq!(read_all(&mut stream).await, b"");
        }
    });
}

#[test]
fn invalid_frame_ends_its_connection_only() {
    run(async {
        let world = World::start().await;
        let client = world.admin().await;
        for bad in [pattern(1000, 1), vec![0xff; 100], vec![0; 64], b"GET / HTTP/1.1\r\n\r\nxxxxxxxxx".to_vec()] {
            let mut stream = open_connection(&world).await;
            stream.write_all(&frame(1, Request::Ping(proto::Ping {}), b"")).await.unwrap();
            stream.write_all(&bad).await.unwrap();
            stream.shutdown().await.unwrap();
            assert!(!read_all(&mut stream).await.is_empty(), "the earlier ping was not answered");
            client.ping().await.unwrap();
        }
        assert_eq!(client.status().await.unwrap().metric("protocol_violations_total"), Some(4));
    });
}

#[test]
fn damaged_upload_is_refused_and_the_connection_stays_open() {
    run(async {
        let world = World::start().await;
        let mut stream = open_connection(&world).await;
        let mut bytes = frame(1, Request::WriteContent(proto::contents::Write::default()), b"content");
        *bytes.last_mut().unwrap() ^= 1;
        bytes.extend(frame(2, Request::Ping(proto::Ping {}), b""));
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let answers = read_all(&mut stream).await;
        let mut kinds = Vec::new();
        let note = |frame: wire::frame::Frame<'_>| {
            let response = proto::Response::decode(frame.message).unwrap().response.unwrap();
            kinds.push((frame.id, matches!(response, proto::response::Response::Error(_))));
            Ok(wire::inbox::Next::Frame)
        };
        wire::inbox::Inbox::new(1 << 20).feed(&answers, note).unwrap();
        assert_eq!(kinds, [(1, true), (2, false)]);
    });
}

#[test]
fn answers_to_quick_requests_keep_their_order() {
    run(async {
        let world = World::start().await;
        let mut stream = open_connection(&world).await;
        let requests: Vec<u8> = (0..500).flat_map(|id| frame(id, Request::Ping(proto::Ping {}), b"")).collect();
        stream.write_all(&requests).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut ids = Vec::new();
        let note = |frame: wire::frame::Frame<'_>| {
            ids.push(frame.id);
            Ok(wire::inbox::Next::Frame)
        };
        wire::inbox::Inbox::new(1 << 20).feed(&read_all(&mut stream).await, note).unwrap();
        assert_eq!(ids, (0..500).collect::<Vec<_>>());
    });
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    run(async {
        let world = World::with(|config| config.connections.total = 2).await;
        let (one, _two) = (world.admin().await, world.admin().await);
        let three = AdminClient::connect(&world.unix()).await.unwrap_err();
        assert_eq!(three.kind(), ErrorKind::Unavailable);
        one.ping().await.unwrap();
        drop(one);
        while AdminClient::connect(&world.unix()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn shutdown_answers_pending_requests_and_keeps_what_it_acknowledged() {
    run(async {
        let mut world = World::start().await;
        let mut options = ConnectOptions::default();
        options.timeout = Duration::from_secs(2);
        let client = Client::connect_with(&world.unix(), options).await.unwrap();
        let (acknowledged, mut first) = tokio::sync::mpsc::unbounded_channel();
        let mut commits = Vec::new();
        for number in 0..200_u32 {
            let (client, acknowledged) = (client.clone(), acknowledged.clone());
            commits.push(tokio::spawn(async move {
                let bind = |t: Transaction| async move { t.bind(&number.to_string(), t.create_blob("content")?).await };
                let bound = client.transact(bind).await;
                let _ = acknowledged.send(());
                bound.map(|_| number)
            }));
        }
        // Most requests are under way when the first one has been answered.
        first.recv().await.unwrap();
        world.restart().await;
        let mut done = Vec::new();
        for commit in commits {
            match commit.await.unwrap() {
                Ok(number) => done.push(number),
                Err(error) => assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}"),
            }
        }
        assert!(!done.is_empty());
        let reader = Client::connect(&world.unix()).await.unwrap();
        for number in done {
            assert!(reader.resolve(&number.to_string()).await.unwrap().is_some(), "{number} was acknowledged");
        }
    });
}

#[test]
fn reads_continue_after_a_restart_of_the_server() {
    run(async {
        let mut world = World::start().await;
        let (admin, client) = (world.admin().await, Client::connect(&world.unix()).await.unwrap());
        client.transact(|t| async move { t.bind("name", t.create_blob("kept")?).await }).await.unwrap();
        world.restart().await;
        admin.ping().await.unwrap();
        let oid = client.resolve("name").await.unwrap().unwrap();
        assert_eq!(client.get(oid).await.unwrap().unwrap().data, "kept");
        world.end().await;
        let mut options = AdminOptions::default();
        options.retry = Duration::ZERO;
        assert_eq!(admin.ping().await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(AdminClient::connect_with(&world.unix(), options).await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn change_whose_answer_is_lost_is_unknown_and_is_not_sent_again() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        struct AdmitAll;
        impl handshake::HandshakeAuthenticator for AdmitAll {
            async fn admit(&mut self, _: &proto::Hello, _: &RemoteEndpoint) -> model::Result<handshake::Terms> {
                let space = client::SpaceId(1);
                Ok(handshake::Terms {
                    space,
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
        let connections = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = connections.clone();
        tokio::spawn(async move {
            loop {
                let mut stream = Stream::Unix(listener.accept().await.unwrap().0);
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                handshake::accept(&mut stream, &mut AdmitAll, "test").await.unwrap();
                let mut request = [0; 10];
                stream.read_exact(&mut request).await.unwrap();
            }
        });
        let client = AdminClient::connect(&format!("mortar+unix://{}", path.display())).await.unwrap();
        assert_eq!(client.create_space("photos").await.unwrap_err().kind(), ErrorKind::Unknown);
        assert_eq!(connections.load(std::sync::atomic::Ordering::SeqCst), 1);
    });
}

#[test]
fn server_listens_on_loopback_only_unless_configured() {
    run(async {
        let start = async |listen: &str, http: Option<&str>, insecure| {
            let listen = vec![listen.parse().unwrap()];
            let http = http.map(|address| address.parse().unwrap());
            PeerServer::start(view(), 1, Config { listen, http, insecure, ..Config::default() }).await
        };
        assert_eq!(start("0.0.0.0:0", None, false).await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(start("[::]:0", None, false).await.unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(start("127.0.0.1:0", Some("0.0.0.0:0"), false).await.unwrap_err().kind(), ErrorKind::Denied);
        start("localhost:0", None, false).await.unwrap().shutdown().await.unwrap();
    });
}

#[test]
fn address_in_use_is_an_error_but_an_abandoned_socket_is_replaced() {
    run(async {
        let mut world = World::start().await;
        let listen = vec![Address::Unix(world.dir.path().join("socket"))];
        let config = Config { listen, ..Config::default() };
        let error = PeerServer::start(view(), 2, config.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.message().contains("socket"), "{error}");
        let path = world.dir.path().join("socket");
        world.end().await;
        // A killed server leaves its socket behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        PeerServer::start(view(), 2, config).await.unwrap().shutdown().await.unwrap();
        assert!(!path.exists());
    });
}

async fn http(world: &World, request: &str) -> String {
    let mut stream = TcpStream::connect(world.http()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    String::from_utf8(read_all(&mut stream).await).unwrap()
}

#[test]
fn metrics_and_health_are_served_over_http() {
    run(async {
        let world = World::start().await;
        let client = world.admin().await;
        client.ping().await.unwrap();
        let get = |path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let metrics = http(&world, &get("/metrics")).await;
        for expected in [
            "HTTP/1.1 200",
            "text/plain; version=0.0.4",
            "\nmortar_connections 1\n",
            "\nmortar_requests_total{kind=\"ping\"} 1\n",
            "\n# TYPE mortar_connections_accepted_total counter\n",
        ] {
            assert!(metrics.contains(expected), "{expected:?} is not in {metrics}");
        }
        assert!(http(&world, &get("/health")).await.ends_with("\r\n\r\nok\n"));
        assert!(http(&world, &get("/else")).await.starts_with("HTTP/1.1 404"));
        let posted = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert!(http(&world, posted).await.starts_with("HTTP/1.1 405"));
    });
}

/// Admits connections as a brick does, and answers nothing.
struct HangingBrick {
    number: u32,
    pinged: mpsc::UnboundedSender<u32>,
    unanswered: Vec<DeferredResponder>,
}

impl HandshakeAuthenticator for HangingBrick {
    async fn admit(&mut self, _: &proto::Hello, _: &RemoteEndpoint) -> model::Result<Terms> {
        let (space, max_frame) = (SpaceId(0), Limits::default().max_frame);
        Ok(Terms {
            space,
            max_frame,
            max_in_flight: 8,
            brick: self.number,
            opening: None,
            permission: handshake::Permission::None,
            time_ms: 0,
            cluster: String::new(),
        })
    }
}

impl Service for HangingBrick {
    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        if let Request::Ping(_) = incoming.request {
            self.pinged.send(self.number).unwrap();
        }
        self.unanswered.push(reply.defer());
    }
}

#[test]
fn brick_whose_entry_has_expired_is_pinged_before_others() {
    run(async {
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(catalogue.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let view = ClusterView::follow(catalogue).await.unwrap();
        let (mut bricks, mut sessions) = (Vec::new(), Vec::new());
        let (pinged, mut pings) = mpsc::unbounded_channel();
        for number in 1..=2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let brick = editor.add_brick(&[address], Storage::Memory).await.unwrap().value.id;
            assert_eq!(brick.0, number);
            let session = editor.store().open_session(Duration::from_secs(600)).await.unwrap().id;
            editor.announce_brick(brick, editor.start_number().await.unwrap(), session).await.unwrap();
            sessions.push(session);
            bricks.push((HangingBrick { number, pinged: pinged.clone(), unanswered: Vec::new() }, listener));
        }
        let options = SpaceOptions { nodes: Some(2), ..SpaceOptions::default() };
        view.create_space("main", options).await.unwrap();
        editor.store().end_session(sessions[1]).await.unwrap();
        let start = editor.start_number().await.unwrap();
        let config = Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() };
        let peer = PeerServer::start(view, start.0, config).await.unwrap();
        for (mut brick, listener) in bricks {
            let mut stream = Stream::Tcp(listener.accept().await.unwrap().0);
            handshake::accept(&mut stream, &mut brick, "test").await.unwrap();
            let limits = Limits::default();
            tokio::spawn(link::drive(Link::new(stream, brick, limits, limits.max_frame, Arc::default())));
        }
        assert_eq!(pings.recv().await, Some(2));
        peer.shutdown().await.unwrap();
    });
}
