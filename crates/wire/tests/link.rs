//! Tests of both sides of a connection over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use model::{ClassId, ErrorKind, NodeId, Oid, PageId, SpaceId};
use protocol::gateway::Call;
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::validate::{Read, ReadVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::cluster::Message;
use wire::frame::{Flags, Frame, HEADER, MAX_MESSAGE};
use wire::inbox::{Inbox, Next};
use wire::link::{
    self, Caller, DeferredResponder, End, Incoming, Limits, Link, Mailbox, NoService, Responder, Service,
};
use wire::outbox::{Piece, encode_head};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::Stream;

/// Answers `WriteContent` with its bytes, defers `Ping` until the test releases it, answers `ReadObject` with a part of a file, and streams for
/// `Backup`.
struct Echo {
    deferred: mpsc::UnboundedSender<DeferredResponder>,
    piece: Option<Piece>,
}

impl Service for Echo {
    fn accepts_one_way(&self, _: &Request) -> bool {
        true
    }

    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        match incoming.request {
            Request::WriteContent(_) => reply.send_slice(content(), incoming.raw.as_slice()),
            Request::ReadObject(_) => {
                let pieces = vec![Piece::Bytes(Bytes::from_static(b"head ")), self.piece.clone().unwrap()];
                reply.defer().send_pieces(content(), pieces, Arc::new(()));
            }
            Request::Backup(_) => {
                let deferred = reply.defer();
                std::thread::spawn(move || while deferred.send_more(content(), vec![Bytes::from(vec![7; 1 << 20])]) {});
            }
            _ => drop(self.deferred.send(reply.defer())),
        }
    }
}

fn content() -> Response {
    Response::ObjectRead(proto::ObjectRead::default())
}

fn ping() -> Request {
    Request::Ping(proto::Ping {})
}

fn upload() -> Request {
    Request::WriteContent(proto::contents::Write::default())
}

struct World {
    caller: Caller,
    server: Arc<Mailbox>,
    deferred: mpsc::UnboundedReceiver<DeferredResponder>,
    ends: (tokio::task::JoinHandle<End>, tokio::task::JoinHandle<End>),
}

fn world_of(client: Stream, server: Stream, limits: Limits, piece: Option<Piece>) -> World {
    let (sender, deferred) = mpsc::unbounded_channel();
    let (near, far) = (Arc::new(Mailbox::default()), Arc::new(Mailbox::default()));
    let service = Echo { deferred: sender, piece };
    let server = Link::new(server, service, limits, limits.max_frame, far.clone());
    let client = Link::new(client, NoService, limits, limits.max_frame, near.clone());
    let ends = (tokio::spawn(link::drive(client)), tokio::spawn(link::drive(server)));
    World { caller: Caller::new(near, 64 << 20), server: far, deferred, ends }
}

fn unix(limits: Limits, piece: Option<Piece>) -> World {
    let (client, server) = UnixStream::pair().unwrap();
    world_of(Stream::Unix(client), Stream::Unix(server), limits, piece)
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") });
}

fn temporary_file(content: &[u8]) -> Arc<std::fs::File> {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    Arc::new(file)
}

#[test]
fn many_calls_are_in_flight_at_once() {
    run(async {
        let world = unix(Limits::default(), None);
        let mut pending = Vec::new();
        for number in 0..5000_u32 {
            let raw = vec![Bytes::from(number.to_le_bytes().to_vec())];
            pending.push(world.caller.begin(upload(), raw).await.unwrap());
        }
        for (number, mut call) in pending.into_iter().enumerate() {
            assert_eq!(call.answer().await.unwrap().raw, (number as u32).to_le_bytes().as_slice());
        }
    });
}

#[test]
fn answers_may_arrive_in_another_order() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let mut first = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let mut second = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let (one, two) = (world.deferred.recv().await.unwrap(), world.deferred.recv().await.unwrap());
        two.send(content(), vec![Bytes::from_static(b"two")]);
        assert_eq!(second.answer().await.unwrap().raw, "two");
        one.send(content(), vec![Bytes::from_static(b"one")]);
        assert_eq!(first.answer().await.unwrap().raw, "one");
    });
}

#[test]
fn connection_with_an_unanswered_request_holds_state() {
    run(async {
        let mut world = unix(Limits::default(), None);
        world.caller.call(upload(), Vec::new()).await.unwrap();
        assert!(!world.server.holds_state());
        let mut pending = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let deferred = world.deferred.recv().await.unwrap();
        assert!(world.server.holds_state());
        deferred.send(content(), Vec::new());
        pending.answer().await.unwrap();
        // It is noticed with the next read.
        world.caller.call(upload(), Vec::new()).await.unwrap();
        assert!(!world.server.holds_state());
    });
}

#[test]
fn parts_of_files_are_sent_after_bytes() {
    run(async {
        let stored = vec![b'x'; 3 << 20];
        let (offset, len) = (17, (2 << 20) + 5);
        let checksum = wire::frame::crc32c(&stored[..len]);
        let piece = Piece::File { file: temporary_file(&stored), offset, len, checksum };
        let world = unix(Limits::default(), Some(piece));
        let answer = world.caller.call(Request::ReadObject(proto::ReadObject::default()), Vec::new()).await.unwrap();
        assert_eq!(answer.raw.len(), 5 + len);
        assert_eq!(&answer.raw[..6], b"head x");
    });
}

#[test]
fn file_that_is_too_short_fails_that_call_alone() {
    run(async {
        let piece = Piece::File { file: temporary_file(b"short"), offset: 0, len: 200_000, checksum: 1 };
        let world = unix(Limits::default(), Some(piece));
        let error = world.caller.call(Request::ReadObject(proto::ReadObject::default()), Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(world.caller.call(upload(), vec![]).await.is_ok());
    });
}

#[test]
fn damaged_bytes_of_a_forwarded_answer_are_detected_by_the_caller() {
    run(async {
        for len in [200, 200_000] {
            let piece = Piece::File { file: temporary_file(b"short"), offset: 0, len, checksum: 1 };
            let (behind, mut world) = (unix(Limits::default(), Some(piece)), unix(Limits::default(), None));
            let mut call = world.caller.begin(ping(), Vec::new()).await.unwrap();
            let deferred = world.deferred.recv().await.unwrap();
            behind.caller.forward(Request::ReadObject(proto::ReadObject::default()), Vec::new(), deferred);
            assert_eq!(call.answer().await.unwrap_err().kind(), ErrorKind::Corrupt);
            assert!(world.caller.call(upload(), vec![]).await.is_ok());
        }
    });
}

#[test]
fn forwarded_answers_reach_their_callers() {
    run(async {
        let limits = Limits { max_in_flight: 64, ..Limits::default() };
        let (mut behind, mut world) = (unix(limits, None), unix(limits, None));
        // More than the limit of unanswered requests, so each forwarded request must be counted.
        for round in 0..8_usize {
            let mut calls = Vec::new();
            for number in 0..64 {
                calls.push((number, world.caller.begin(ping(), Vec::new()).await.unwrap()));
            }
            for (number, _) in &calls {
                let deferred = world.deferred.recv().await.unwrap();
                behind.caller.forward(ping(), Vec::new(), deferred);
                let answer = behind.deferred.recv().await.unwrap();
                match number % 3 {
                    0 => answer.send(content(), vec![Bytes::from(vec![*number as u8; number * 1_000 * round])]),
                    1 => answer.fail(&model::Error::new(ErrorKind::NotFound, format!("no {number}"))),
                    _ => answer.answer(Ok(Response::Done(proto::Done {}))),
                }
            }
            for (number, mut call) in calls.into_iter().rev() {
                match (number % 3, call.answer().await) {
                    (0, Ok(answer)) => assert_eq!(answer.raw, vec![number as u8; number * 1_000 * round]),
                    (1, Err(error)) => assert_eq!(error.message(), format!("no {number}")),
                    (2, Ok(answer)) => {
                        assert!(answer.raw.is_empty() && answer.response == Response::Done(proto::Done {}))
                    }
                    (_, other) => panic!("{number}: {other:?}"),
                }
            }
        }
    });
}

#[test]
fn forwarding_over_a_closed_connection_fails_at_the_caller() {
    run(async {
        let (behind, mut world) = (unix(Limits::default(), None), unix(Limits::default(), None));
        for is_asked in [true, false] {
            let mut call = world.caller.begin(ping(), Vec::new()).await.unwrap();
            let deferred = world.deferred.recv().await.unwrap();
            if !is_asked {
                behind.server.hang_up();
                while !behind.caller.is_closed() {
                    tokio::task::yield_now().await;
                }
            }
            behind.caller.forward(ping(), Vec::new(), deferred);
            if is_asked {
                behind.caller.hang_up();
            }
            let error = call.answer().await.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
        }
    });
}

#[test]
fn requests_wait_while_three_quarters_of_the_limit_are_unanswered() {
    run(async {
        let limits = Limits { max_in_flight: 4, ..Limits::default() };
        let mut world = unix(limits, None);
        let mut pending = Vec::new();
        for _ in 0..10 {
            pending.push(world.caller.begin(ping(), Vec::new()).await.unwrap());
        }
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(world.deferred.recv().await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(world.deferred.try_recv().is_err(), "a fourth request was sent");
        for _ in 0..7 {
            held.remove(0).send(content(), Vec::new());
            held.push(world.deferred.recv().await.unwrap());
        }
        held.into_iter().for_each(|deferred| deferred.send(content(), Vec::new()));
        for call in &mut pending {
            call.answer().await.unwrap();
        }
    });
}

#[test]
fn reads_of_contents_wait_for_each_other_and_nothing_waits_for_them() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let read =
            || Request::ReadContent(proto::contents::Read { length: 4 << 20, ..proto::contents::Read::default() });
        let mut pending = Vec::new();
        for _ in 0..100 {
            pending.push(world.caller.begin(read(), Vec::new()).await.unwrap());
        }
        let mut asked = VecDeque::new();
        for _ in 0..4 {
            asked.push_back(world.deferred.recv().await.unwrap());
        }
        // Answered at once, behind all of them.
        world.caller.call(upload(), Vec::new()).await.unwrap();
        assert!(world.deferred.try_recv().is_err(), "more than 16 MiB were asked for");
        for (number, mut call) in pending.into_iter().enumerate() {
            asked.pop_front().unwrap().send(content(), Vec::new());
            call.answer().await.unwrap();
            if number + 4 < 100 {
                asked.push_back(world.deferred.recv().await.unwrap());
            }
        }
    });
}

#[test]
fn contents_that_were_asked_for_count_as_a_part_of_their_requests() {
    run(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (sender, mut deferred) = mpsc::unbounded_channel();
        let (service, limits) = (Echo { deferred: sender, piece: None }, Limits::default());
        tokio::spawn(link::drive(Link::new(Stream::Unix(server), service, limits, limits.max_frame, Arc::default())));
        // The other side does not hold any back.
        let read = Request::ReadContent(proto::contents::Read { length: 4 << 20, ..proto::contents::Read::default() });
        let mut requests = Vec::new();
        for id in 0..40 {
            encode_head(&mut requests, Flags::REQUEST, id, &proto::Request { request: Some(read.clone()) }, 0, 0);
        }
        client.write_all(&requests).await.unwrap();
        let mut asked = Vec::new();
        for _ in 0..16 {
            asked.push(deferred.recv().await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(deferred.try_recv().is_err(), "more than 64 MiB are unanswered");
        asked.remove(0).send(content(), Vec::new());
        asked.push(deferred.recv().await.unwrap());
    });
}

#[test]
fn slow_reader_of_a_stream_blocks_its_writer() {
    run(async {
        let world = unix(Limits::default(), None);
        let mut answers = world.caller.stream(Request::Backup(proto::Backup::default())).unwrap();
        for _ in 0..40 {
            assert_eq!(answers.next().await.unwrap().raw.len(), 1 << 20);
        }
        // The stream is not read now. Bytes in flight are bounded, so the connection becomes idle and can be closed.
        tokio::time::sleep(Duration::from_millis(50)).await;
        world.caller.hang_up();
        assert!(matches!(world.ends.0.await.unwrap(), End::Closed));
        assert!(!matches!(world.ends.1.await.unwrap(), End::Closed));
    });
}

#[test]
fn drained_connection_answers_pending_requests() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let mut call = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let deferred = world.deferred.recv().await.unwrap();
        world.server.drain();
        tokio::task::yield_now().await;
        deferred.send(content(), Vec::new());
        assert!(call.answer().await.is_ok());
        assert!(matches!(world.ends.1.await.unwrap(), End::Closed));
        assert!(matches!(world.ends.0.await.unwrap(), End::HungUp));
        assert_eq!(world.caller.call(ping(), Vec::new()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn call_on_a_connection_that_has_ended_may_use_it_in_its_handler() {
    run(async {
        let world = unix(Limits::default(), None);
        world.caller.hang_up();
        world.ends.0.await.unwrap();
        let (sender, called) = std::sync::mpsc::channel();
        // On a thread of its own, since it would wait for itself for ever.
        std::thread::spawn(move || {
            let again = world.caller.clone();
            world.caller.ask(ping(), move |answer| sender.send((answer.is_err(), again.is_closed())).unwrap());
        });
        let called = called.recv_timeout(Duration::from_secs(20));
        assert_eq!(called, Ok((true, true)));
    });
}

#[test]
fn connection_whose_task_is_aborted_takes_no_more_calls() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let mut pending = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let _deferred = world.deferred.recv().await.unwrap();
        world.ends.0.abort();
        assert!(world.ends.0.await.unwrap_err().is_cancelled());
        assert_eq!(pending.answer().await.unwrap_err().kind(), ErrorKind::Unknown);
        assert!(world.caller.is_closed());
        assert_eq!(world.caller.call(ping(), Vec::new()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn call_without_an_answer_ends_as_unknown() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let mut call = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let _never_answered = world.deferred.recv().await.unwrap();
        world.server.hang_up();
        assert_eq!(call.answer().await.unwrap_err().kind(), ErrorKind::Unknown);
    });
}

#[test]
fn answer_to_a_connection_that_has_ended_is_known_to_be_lost() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let _call = world.caller.begin(ping(), Vec::new()).await.unwrap();
        let deferred = world.deferred.recv().await.unwrap();
        assert!(!deferred.is_closed());
        world.caller.hang_up();
        world.ends.1.await.unwrap();
        assert!(deferred.is_closed());
    });
}

#[test]
fn dropped_request_is_answered_with_an_error() {
    run(async {
        let mut world = unix(Limits::default(), None);
        let mut call = world.caller.begin(ping(), Vec::new()).await.unwrap();
        drop(world.deferred.recv().await.unwrap());
        assert_eq!(call.answer().await.unwrap_err().kind(), ErrorKind::Internal);
    });
}

#[test]
fn both_sides_can_send_requests() {
    run(async {
        let (client, server) = UnixStream::pair().unwrap();
        let (near, far) = (Arc::new(Mailbox::default()), Arc::new(Mailbox::default()));
        let (sender, _deferred) = mpsc::unbounded_channel();
        let (one, two) = (Echo { deferred: sender.clone(), piece: None }, Echo { deferred: sender, piece: None });
        let limits = Limits::default();
        tokio::spawn(link::drive(Link::new(Stream::Unix(client), one, limits, limits.max_frame, near.clone())));
        tokio::spawn(link::drive(Link::new(Stream::Unix(server), two, limits, limits.max_frame, far.clone())));
        let (near, far) = (Caller::new(near, 1 << 20), Caller::new(far, 1 << 20));
        let (there, back) = tokio::join!(
            near.call(upload(), vec![Bytes::from_static(b"there")]),
            far.call(upload(), vec![Bytes::from_static(b"back")]),
        );
        assert_eq!((there.unwrap().raw, back.unwrap().raw), ("there".into(), "back".into()));
    });
}

#[test]
fn request_over_the_limit_of_the_other_side_is_not_sent() {
    run(async {
        let world = unix(Limits { max_frame: 10_000, ..Limits::default() }, None);
        let error = world.caller.call(upload(), vec![Bytes::from(vec![0; 10_000])]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        assert!(world.caller.call(upload(), vec![Bytes::from(vec![0; 9_000])]).await.is_ok());
    });
}

/// A valid request as a frame.
fn frame(raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let request = proto::Request { request: Some(upload()) };
    encode_head(&mut bytes, Flags::REQUEST, 7, &request, raw.len(), wire::frame::crc32c(raw));
    bytes.extend_from_slice(raw);
    bytes
}

/// Sends `bytes` to a server. Returns what it sends until it closes the connection, and how its side ended.
async fn provoke(bytes: &[u8]) -> (Vec<u8>, End) {
    let (mut client, server) = UnixStream::pair().unwrap();
    let (sender, _deferred) = mpsc::unbounded_channel();
    let limits = Limits { max_frame: 1 << 20, ..Limits::default() };
    let service = Echo { deferred: sender, piece: None };
    let link = Link::new(Stream::Unix(server), service, limits, limits.max_frame, Arc::default());
    let end = tokio::spawn(link::drive(link));
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let mut received = Vec::new();
    match client.read_to_end(&mut received).await {
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
        _ => {}
    }
    (received, end.await.unwrap())
}

fn answers_in(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut answers = Vec::new();
    let note = |frame: Frame<'_>| {
        answers.push((frame.id, frame.raw.as_slice().to_vec()));
        Ok(Next::Frame)
    };
    Inbox::new(1 << 20).feed(bytes, note).unwrap();
    answers
}

#[test]
fn bad_frame_ends_the_connection_after_the_answers_to_earlier_frames() {
    run(async {
        let mut cases = vec![("noise", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec())];
        for (name, at, value) in [
            ("length over the limit", 3, 0x7f),
            ("length under the header's", 0, 0x01),
            ("unknown flags", 4, 0x70),
            ("reserved bytes", 6, 1),
            ("request id", 8, 0xff),
            ("message length over the frame's", 13, 0xff),
            ("message", HEADER, 0xff),
        ] {
            let mut bad = frame(b"bad");
            bad[at] = value;
            cases.push((name, bad));
        }
        for (name, bad) in cases {
            let bytes = [frame(b"good"), bad].concat();
            let (received, end) = provoke(&bytes).await;
            assert!(matches!(end, End::Violated(_) | End::Broken(_)), "{name}: {end:?}");
            let answers = answers_in(&received);
            assert_eq!(answers[0], (7, b"good".to_vec()), "{name}");
            assert!(answers.len() == 1 || (answers.len() == 2 && answers[1].0 == u32::MAX), "{name}: {answers:?}");
        }
    });
}

#[test]
fn damaged_bytes_fail_their_request_alone() {
    run(async {
        let mut damaged = frame(b"content");
        *damaged.last_mut().unwrap() ^= 1;
        let (received, end) = provoke(&[damaged, frame(b"good")].concat()).await;
        assert!(matches!(end, End::HungUp), "{end:?}");
        assert_eq!(answers_in(&received), [(7, Vec::new()), (7, b"good".to_vec())]);
    });
}

#[test]
fn connection_that_ends_within_a_frame_is_broken() {
    run(async {
        let whole = frame(&[1; 100_000]);
        for cut in [1, HEADER, HEADER + 3, 5_000, whole.len() - 1] {
            let (received, end) = provoke(&whole[..cut]).await;
            assert!(received.is_empty());
            assert!(matches!(end, End::Broken(_)), "{cut}: {end:?}");
        }
    });
}

/// A server that echoes, and the client's end of the socket.
fn echo(limits: Limits) -> (UnixStream, tokio::task::JoinHandle<End>) {
    let (client, server) = UnixStream::pair().unwrap();
    let service = Echo { deferred: mpsc::unbounded_channel().0, piece: None };
    let link = Link::new(Stream::Unix(server), service, limits, limits.max_frame, Arc::default());
    (client, tokio::spawn(link::drive(link)))
}

#[test]
fn connection_of_a_client_that_reads_no_answers_ends() {
    run(async {
        tokio::time::pause();
        let (mut client, end) = echo(Limits { write_stall: Some(Duration::from_secs(40)), ..Limits::default() });
        let request = frame(&[1; 100_000]);
        while !end.is_finished() {
            // The server stops reading when too many answers are unsent; then this write blocks too.
            let _ = tokio::time::timeout(Duration::from_secs(1), client.write_all(&request)).await;
        }
        assert!(matches!(end.await.unwrap(), End::Stalled(_)));
    });
}

#[test]
fn slow_client_gets_all_answers() {
    run(async {
        tokio::time::pause();
        let (client, end) = echo(Limits { write_stall: Some(Duration::from_secs(4)), ..Limits::default() });
        let (mut reader, mut writer) = client.into_split();
        let asking = tokio::spawn(async move {
            for _ in 0..30 {
                writer.write_all(&frame(&[1; 100_000])).await.unwrap();
            }
            writer
        });
        let (mut received, mut buffer) = (Vec::new(), vec![0; 100_000]);
        while answers_in(&received).len() < 30 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let read = reader.read(&mut buffer).await.unwrap();
            assert!(read > 0, "the connection ended");
            received.extend_from_slice(&buffer[..read]);
        }
        drop(asking.await.unwrap());
        assert!(matches!(end.await.unwrap(), End::HungUp));
    });
}

/// A service that counts the answers that have arrived at all clients whenever it gets a request.
struct Watch {
    clients: Vec<Arc<UnixStream>>,
    seen: mpsc::UnboundedSender<usize>,
}

impl Service for Watch {
    fn accepts_one_way(&self, _: &Request) -> bool {
        true
    }

    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        let mut byte = [0];
        let arrived = self.clients.iter().filter(|client| client.try_read(&mut byte).is_ok()).count();
        self.seen.send(arrived).unwrap();
        reply.send(content());
    }
}

#[test]
fn connections_that_are_ready_at_once_are_answered_together() {
    run(async {
        let (seen, mut arrived) = mpsc::unbounded_channel();
        let pairs: Vec<_> = (0..8).map(|_| UnixStream::pair().unwrap()).collect();
        let (clients, servers): (Vec<_>, Vec<_>) =
            pairs.into_iter().map(|(client, server)| (Arc::new(client), server)).unzip();
        let limits = Limits::default();
        for server in servers {
            let service = Watch { clients: clients.clone(), seen: seen.clone() };
            tokio::spawn(link::drive(Link::new(Stream::Unix(server), service, limits, 1 << 20, Arc::default())));
        }
        tokio::task::yield_now().await;
        for client in &clients {
            client.writable().await.unwrap();
            client.try_write(&frame(b"question")).unwrap();
        }
        for _ in &clients {
            assert_eq!(arrived.recv().await, Some(0), "an answer was sent before all requests were read");
        }
        for client in &clients {
            client.readable().await.unwrap();
        }
    });
}

/// Forwards one-way messages to the test, and refuses a ping.
struct Listener {
    received: mpsc::UnboundedSender<Bytes>,
}

impl Service for Listener {
    fn accepts_one_way(&self, _: &Request) -> bool {
        true
    }

    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        match incoming.request {
            Request::Ping(_) => reply.refuse(&model::Error::new(ErrorKind::Invalid, "no pings here")),
            _ => self.received.send(incoming.raw.to_bytes()).unwrap(),
        }
    }
}

struct Telling {
    mailbox: Arc<Mailbox>,
    received: mpsc::UnboundedReceiver<Bytes>,
    ends: (tokio::task::JoinHandle<End>, tokio::task::JoinHandle<End>),
}

fn telling(their_max_frame: u32) -> Telling {
    let (client, server) = UnixStream::pair().unwrap();
    let (sender, received) = mpsc::unbounded_channel();
    let (mailbox, limits) = (Arc::new(Mailbox::default()), Limits::default());
    let near = Link::new(Stream::Unix(client), NoService, limits, their_max_frame, mailbox.clone());
    let far = Link::new(Stream::Unix(server), Listener { received: sender }, limits, limits.max_frame, Arc::default());
    Telling { mailbox, received, ends: (tokio::spawn(link::drive(near)), tokio::spawn(link::drive(far))) }
}

#[test]
fn one_way_messages_of_all_threads_arrive_in_order() {
    run(async {
        let mut world = telling(1 << 20);
        let (mailbox, part) = (world.mailbox.clone(), |byte: u8, len: usize| Bytes::from(vec![byte; len]));
        let telling = std::thread::spawn(move || {
            (0..200_u8)
                .all(|byte| mailbox.send_one_way(upload(), vec![part(byte, 3), part(byte, usize::from(byte) * 400)]))
        });
        for byte in 0..200_u8 {
            assert_eq!(world.received.recv().await.unwrap(), vec![byte; 3 + usize::from(byte) * 400]);
        }
        assert!(telling.join().unwrap());
    });
}

#[test]
fn one_way_messages_can_exceed_the_limit_of_unsent_bytes_if_they_are_read() {
    run(async {
        let mut world = telling(2 << 20);
        let piece = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..3 {
            for _ in 0..40 {
                assert!(world.mailbox.send_one_way(upload(), vec![piece.clone()]));
            }
            for _ in 0..40 {
                world.received.recv().await.unwrap();
            }
        }
    });
}

#[test]
fn connection_with_too_many_unsent_one_way_messages_ends() {
    run(async {
        let (_client, server) = UnixStream::pair().unwrap();
        let mailbox = Arc::new(Mailbox::default());
        let limits = Limits::default();
        let end = link::drive(Link::new(Stream::Unix(server), NoService, limits, 2 << 20, mailbox.clone()));
        let end = tokio::spawn(end);
        let piece = Bytes::from(vec![7; 1 << 20]);
        let mut queued = 0;
        while mailbox.send_one_way(upload(), vec![piece.clone()]) {
            queued += 1;
            tokio::task::yield_now().await;
        }
        assert!(
            (link::MAX_UNSENT_ONE_WAY >> 20) - 2 < queued && queued < (link::MAX_UNSENT_ONE_WAY >> 20) + 8,
            "{queued} MiB"
        );
        let end = end.await.unwrap();
        assert!(matches!(end, End::Overrun), "{end:?}");
        assert!(!mailbox.send_one_way(upload(), Vec::new()));
    });
}

#[test]
fn message_over_the_limit_of_the_other_side_is_not_sent() {
    run(async {
        let world = telling(1000);
        world.mailbox.send_one_way(upload(), vec![Bytes::from(vec![7; 1000])]);
        let (near, far) = world.ends;
        let (near, far) = (near.await.unwrap(), far.await.unwrap());
        assert!(matches!(near, End::TooLong { max: 1000, .. }), "{near:?}");
        assert!(matches!(far, End::HungUp), "{far:?}");
    });
}

#[test]
fn request_of_a_transaction_that_is_too_long_for_a_message_is_lost_alone() {
    run(async {
        let mut world = telling(Limits::default().max_frame);
        let oid = |number| {
            let page = PageId { space: SpaceId(1), node: NodeId(1), number };
            Oid::new(ClassId::NONE, page, 1)
        };
        let txn = TxnId { start: HlcTimestamp::at(1_000), client: ClientId(7) };
        let read = |number| Read { oid: oid(number), seen: ReadVersion::Written(txn) };
        // Each read takes 40 bytes.
        let reads = (1..=700_000).map(read).collect();
        let call = Call::Check { reads: [(NodeId(1), reads)].into(), seen: txn.start };
        assert!(world.mailbox.send_message(Message::Call { txn, call }, None));
        assert!(world.mailbox.send_one_way(upload(), vec![Bytes::from_static(b"behind it")]));
        assert_eq!(world.received.recv().await.unwrap(), "behind it");
        // Anything else ends the connection: what is behind it may depend on it.
        let long = "x".repeat(MAX_MESSAGE);
        let why = Message::Deferred { node: NodeId(1), txn, kind: ErrorKind::Unavailable, why: long };
        world.mailbox.send_message(why, None);
        let end = world.ends.0.await.unwrap();
        assert!(matches!(end, End::TooLong { max: MAX_MESSAGE, .. }), "{end:?}");
    });
}

#[test]
fn sender_of_a_refused_message_learns_the_reason() {
    run(async {
        let mut world = telling(1 << 20);
        for request in [upload(), ping(), upload()] {
            world.mailbox.send_one_way(request, Vec::new());
        }
        let (near, far) = world.ends;
        let (near, far) = (near.await.unwrap().to_string(), far.await.unwrap().to_string());
        assert!(near.contains("no pings here"), "{near}");
        assert!(far.contains("no pings here"), "{far}");
        assert!(world.received.recv().await.is_some(), "the message before it arrives");
        assert!(world.received.recv().await.is_none(), "the message after it is not read");
    });
}

#[test]
fn damaged_one_way_message_ends_the_connection() {
    run(async {
        let mut damaged = Vec::new();
        let request = proto::Request { request: Some(upload()) };
        encode_head(&mut damaged, Flags::ONE_WAY, 0, &request, 7, 1);
        damaged.extend_from_slice(b"content");
        let (received, end) = provoke(&[damaged, frame(b"good")].concat()).await;
        assert!(end.to_string().contains("damaged"), "{end:?}");
        assert_eq!(answers_in(&received).len(), 1, "only the reason");
    });
}
