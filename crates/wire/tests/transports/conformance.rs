//! Tests that every transport must pass: TCP, Unix sockets, connections within the process, and TLS with and without certificates of
//! clients.

use std::future::Future;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use model::{ErrorKind, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use wire::cluster::Message;
use wire::driving::DeliveryScope;
use wire::link::{self, Caller, DeferredResponder, End, Incoming, Limits, Link, Mailbox, Responder, Service};
use wire::outbox::Piece;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, PeerAddress, Stream};

use super::certificates::{Authority, client, server};
use super::{local, meet, run};

/// Answers with the received bytes, or with parts of a file.
struct Echo(Option<Piece>);

impl Service for Echo {
    fn accepts_one_way(&self, _: &Request) -> bool {
        true
    }

    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        match (incoming.request, &self.0) {
            (Request::ReadObject(_), Some(piece)) => {
                let pieces = vec![Piece::Bytes(Bytes::from_static(b"head ")), piece.clone()];
                reply.defer().send_pieces(content(), pieces, Arc::new(()));
            }
            _ => reply.send_slice(content(), incoming.raw.as_slice()),
        }
    }
}

fn content() -> Response {
    Response::ObjectRead(proto::ObjectRead::default())
}

fn upload() -> Request {
    Request::WriteContent(proto::contents::Write::default())
}

/// One side of a connection at work.
struct Side {
    caller: Caller,
    mailbox: Arc<Mailbox>,
    end: tokio::task::JoinHandle<End>,
}

fn side(stream: Stream, piece: Option<Piece>) -> Side {
    serve(stream, Echo(piece))
}

fn serve(stream: Stream, service: impl Service) -> Side {
    let (mailbox, limits) = (Arc::new(Mailbox::default()), Limits::default());
    let link = Link::new(stream, service, limits, limits.max_frame, mailbox.clone());
    Side { caller: Caller::new(mailbox.clone(), 64 << 20), mailbox, end: tokio::spawn(link::drive(link)) }
}

/// Both ends of one connection over each transport.
async fn pairs(dir: &Path) -> Vec<(&'static str, Stream, Stream)> {
    let authority = Authority::new(dir, "authority");
    let plain = (server(authority.server_for(&authority, false)), client(authority.client(None)));
    let identity = authority.issue("client", "alice", &[], super::certificates::Age::Valid);
    let mutual = (server(authority.server_for(&authority, true)), client(authority.client(Some(identity))));
    let kinds = [
        ("TCP", local(false), None),
        ("Unix", Address::Unix(dir.join("socket")), None),
        ("in process", Address::InProcess(format!("{}#server", dir.display())), None),
        ("TLS", local(true), Some(plain)),
        ("mutual TLS", local(true), Some(mutual)),
    ];
    let mut pairs = Vec::new();
    for (name, address, tls) in kinds {
        let (server, client) = tls.unzip();
        let (near, far) = meet(&address, server.as_ref(), client.as_ref()).await;
        pairs.push((name, near.unwrap(), far.unwrap()));
    }
    pairs
}

/// Runs a test on a connection over each transport.
fn on_each<F: Future<Output = ()>>(test: impl Fn(&'static str, Stream, Stream) -> F) {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        for (name, near, far) in pairs(dir.path()).await {
            test(name, near, far).await;
        }
    });
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn bytes_arrive_unchanged() {
    on_each(async |name, near, far| {
        let (near, _far) = (side(near, None), side(far, None));
        for size in [0, 1, 1000, (16 << 10) - 1, 16 << 10, 60_000, 70_000, 1 << 20, 9 << 20] {
            let bytes = pattern(size);
            let parts = vec![Bytes::from(bytes[..size / 3].to_vec()), Bytes::from(bytes[size / 3..].to_vec())];
            let answer = near.caller.call(upload(), parts).await.unwrap();
            assert!(answer.raw == bytes, "{name}: {size} bytes");
        }
    });
}

#[test]
fn both_sides_send_many_requests_and_one_way_messages_at_once() {
    on_each(async |name, near, far| {
        let (near, far) = (side(near, None), side(far, None));
        let (bytes, large) = (Bytes::from(pattern(100_000)), Bytes::from(pattern(1 << 20)));
        let mut pending = Vec::new();
        for _ in 0..30 {
            for side in [&near, &far] {
                assert!(side.mailbox.send_one_way(upload(), vec![large.clone()]), "{name}");
                pending.push(side.caller.begin(upload(), vec![bytes.clone()]).await.unwrap());
            }
        }
        for mut call in pending {
            assert!(call.answer().await.unwrap().raw == bytes, "{name}");
        }
    });
}

#[test]
fn many_small_calls_are_in_flight_at_once() {
    on_each(async |name, near, far| {
        let (near, _far) = (side(near, None), side(far, None));
        let mut pending = Vec::new();
        for number in 0..3000_u32 {
            let raw = vec![Bytes::from(number.to_le_bytes().to_vec())];
            pending.push(near.caller.begin(upload(), raw).await.unwrap());
        }
        for (number, mut call) in pending.into_iter().enumerate() {
            assert_eq!(call.answer().await.unwrap().raw, (number as u32).to_le_bytes().as_slice(), "{name}");
        }
    });
}

#[test]
fn parts_of_files_are_sent_after_bytes() {
    let stored = pattern(3 << 20);
    let (offset, len) = (17, (2 << 20) + 5);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&stored).unwrap();
    let checksum = wire::frame::crc32c(&stored[offset..offset + len]);
    let piece = Piece::File { file: Arc::new(file), offset: offset as u64, len, checksum };
    on_each(async |name, near, far| {
        let (near, _far) = (side(near, None), side(far, Some(piece.clone())));
        let answer = near.caller.call(Request::ReadObject(proto::ReadObject::default()), Vec::new()).await.unwrap();
        assert_eq!(&answer.raw[..5], b"head ", "{name}");
        assert!(answer.raw[5..] == stored[offset..offset + len], "{name}");
    });
}

#[test]
fn file_that_is_too_short_fails_that_call_alone() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"short").unwrap();
    let piece = Piece::File { file: Arc::new(file), offset: 0, len: 200_000, checksum: 1 };
    on_each(async |name, near, far| {
        let (near, _far) = (side(near, None), side(far, Some(piece.clone())));
        let error = near.caller.call(Request::ReadObject(proto::ReadObject::default()), Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}");
        assert!(near.caller.call(upload(), vec![]).await.is_ok(), "{name}");
    });
}

#[test]
fn closing_is_detected_by_the_other_side() {
    on_each(async |name, near, far| {
        let (near, far) = (side(near, None), side(far, None));
        near.caller.call(upload(), Vec::new()).await.unwrap();
        near.mailbox.hang_up();
        assert!(matches!(near.end.await.unwrap(), End::Closed), "{name}");
        let end = far.end.await.unwrap();
        assert!(matches!(end, End::HungUp), "{name}: {end:?}");
    });
}

#[test]
fn disconnection_between_two_frames_is_detected() {
    on_each(async |name, near, far| {
        let far = side(far, None);
        drop(near);
        let end = far.end.await.unwrap();
        assert!(matches!(end, End::HungUp | End::Broken(_)), "{name}: {end:?}");
    });
}

#[test]
fn drained_connection_answers_pending_requests_before_it_closes() {
    /// Hands out each request that has arrived, to be answered later.
    struct Hold(mpsc::UnboundedSender<(DeferredResponder, Bytes)>);

    impl Service for Hold {
        fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
            let raw = Bytes::copy_from_slice(incoming.raw.as_slice());
            self.0.send((reply.defer(), raw)).unwrap();
        }
    }

    on_each(async |name, near, far| {
        let (arrived, mut requests) = mpsc::unbounded_channel();
        let (near, far) = (side(near, None), serve(far, Hold(arrived)));
        let bytes = Bytes::from(pattern(2 << 20));
        let mut pending = near.caller.begin(upload(), vec![bytes.clone()]).await.unwrap();
        let (request, raw) = requests.recv().await.unwrap();
        far.mailbox.drain();
        request.send(content(), vec![raw]);
        assert!(pending.answer().await.unwrap().raw == bytes, "{name}");
        assert!(matches!(far.end.await.unwrap(), End::Closed), "{name}");
    });
}

#[test]
fn slow_reader_receives_everything() {
    on_each(async |name, mut near, mut far| {
        let bytes = pattern(5 << 20);
        let sent = bytes.clone();
        let writing = tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
            far.flush().await.unwrap();
            far
        });
        let (mut arrived, mut buffer) = (Vec::new(), vec![0; 70_000]);
        while arrived.len() < bytes.len() {
            tokio::task::yield_now().await;
            let read = near.read(&mut buffer).await.unwrap();
            assert!(read > 0, "{name}: the stream ended after {}", arrived.len());
            arrived.extend_from_slice(&buffer[..read]);
        }
        assert!(arrived == bytes, "{name}");
        drop(writing.await.unwrap());
        assert_eq!(near.read(&mut buffer).await.unwrap(), 0, "{name}");
    });
}

#[test]
fn address_and_certificate_of_the_other_end_are_known() {
    on_each(async |name, near, far| {
        let (server, visitor) = (near.peer(), far.peer());
        assert!(server.is_private && visitor.is_private, "{name}: both ends are on this machine");
        let is_uid = |address| matches!(address, Some(PeerAddress::Uid(_)));
        let has_uid = ["Unix", "in process"].contains(&name);
        assert_eq!((is_uid(server.address), is_uid(visitor.address)), (has_uid, has_uid), "{name}");
        assert!(server.address.is_some() && visitor.address.is_some(), "{name}");
        let whom = |subject: Option<wire::transport::tls::Subject>| subject.and_then(|subject| subject.common_name);
        assert_eq!(whom(server.subject).as_deref(), name.contains("TLS").then_some("server"));
        assert_eq!(whom(visitor.subject).as_deref(), (name == "mutual TLS").then_some("alice"));
    });
}

/// Passes messages between machines to the test. One about node 8 breaks the protocol, and one about node 9 meets
/// a mistake of the service.
struct Messages(mpsc::UnboundedSender<Message>);

impl Service for Messages {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.send(content());
    }

    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> model::Result<()> {
        messages.try_for_each(|message| {
            if let Message::NotServedHere { node: NodeId(8), .. } = message {
                return Err(model::Error::new(ErrorKind::Invalid, "nothing about node 8"));
            }
            assert!(!matches!(message, Message::NotServedHere { node: NodeId(9), .. }), "a mistake of this service");
            self.0.send(message).unwrap();
            Ok(())
        })
    }
}

fn about(node: u32, epoch: u64) -> Message {
    Message::NotServedHere { node: NodeId(node), epoch, damage: None }
}

/// A side that sends messages, the other side's end, and the messages that arrive there.
fn messages(near: Stream, far: Stream) -> (Side, tokio::task::JoinHandle<End>, mpsc::UnboundedReceiver<Message>) {
    let (sender, received) = mpsc::unbounded_channel();
    let limits = Limits::default();
    let far = Link::new(far, Messages(sender), limits, limits.max_frame, Arc::default());
    (side(near, None), tokio::spawn(link::drive(far)), received)
}

#[test]
fn messages_of_several_threads_arrive_once_and_in_order() {
    on_each(async |name, near, far| {
        let (near, _far, mut received) = messages(near, far);
        let threads: Vec<_> = (1..=3)
            .map(|node| {
                let mailbox = near.mailbox.clone();
                std::thread::spawn(move || {
                    for epoch in 0..500 {
                        let _scope = (epoch % 2 == 0).then(DeliveryScope::enter);
                        assert!(mailbox.send_message(about(node, epoch), None));
                    }
                })
            })
            .collect();
        let mut next = [0; 4];
        for _ in 0..1_500 {
            let Some(Message::NotServedHere { node, epoch, .. }) = received.recv().await else { panic!("{name}") };
            assert_eq!(epoch, std::mem::replace(&mut next[node.0 as usize], epoch + 1), "{name}: node {node}");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(received.try_recv().is_err(), "{name}: a message came twice");
    });
}

#[test]
fn messages_that_were_sent_before_the_end_arrive() {
    on_each(async |name, near, far| {
        let (near, far, mut received) = messages(near, far);
        for epoch in 0..100 {
            assert!(near.mailbox.send_message(about(1, epoch), None));
        }
        near.mailbox.hang_up();
        assert!(matches!(near.end.await.unwrap(), End::Closed), "{name}");
        for epoch in 0..100 {
            assert_eq!(received.recv().await, Some(about(1, epoch)), "{name}");
        }
        let end = far.await.unwrap();
        assert!(matches!(end, End::HungUp), "{name}: {end:?}");
        assert_eq!(received.recv().await, None, "{name}: the service is dropped");
        assert!(!near.mailbox.send_message(about(1, 100), None), "{name}");
    });
}

#[test]
fn message_that_breaks_the_protocol_ends_the_connection_with_the_reason() {
    on_each(async |name, near, far| {
        let (near, far, mut received) = messages(near, far);
        for message in [about(1, 0), about(8, 0), about(1, 1)] {
            near.mailbox.send_message(message, None);
        }
        for end in [near.end, far] {
            let end = end.await.unwrap().to_string();
            assert!(end.contains("nothing about node 8"), "{name}: {end}");
        }
        assert_eq!(received.recv().await, Some(about(1, 0)), "{name}");
        assert_eq!(received.recv().await, None, "{name}: what follows may depend on it");
    });
}

#[test]
fn mistake_of_a_service_does_not_reach_the_sender_of_the_message() {
    on_each(async |name, near, far| {
        let (near, far, _received) = messages(near, far);
        let scope = DeliveryScope::enter();
        near.mailbox.send_message(about(9, 0), None);
        drop(scope);
        // The task panics, or ends the connection in which another thread has panicked.
        assert!(far.await.map_or(true, |end| matches!(end, End::Closed)), "{name}");
        near.end.await.unwrap();
    });
}
