//! Hostile peers: they cannot hold memory with unfinished frames, nor send requests in a form that their kind does not
//! have.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{self, Instant};
use wire::cluster::Message;
use wire::frame::{Flags, FrameError, crc32c};
use wire::link::{self, End, Incoming, Limits, Link, Mailbox, MemoryBudget, Responder, Service};
use wire::outbox::encode_head;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::Stream;

const MIB: usize = 1 << 20;

/// Answers every request.
struct Done;

impl Service for Done {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.send(Response::Done(proto::Done {}));
    }

    fn on_messages(&mut self, _: impl Iterator<Item = Message>) -> model::Result<()> {
        Ok(())
    }
}

/// The client's end of a connection, and how the server's end ended.
fn connect(limits: Limits, budget: Option<Arc<MemoryBudget>>) -> (UnixStream, tokio::task::JoinHandle<End>) {
    let (client, server) = UnixStream::pair().unwrap();
    let link = Link::new(Stream::Unix(server), Done, limits, limits.max_frame, Arc::new(Mailbox::default()));
    let link = match budget {
        Some(budget) => link.with_input_budget(budget),
        None => link,
    };
    (client, tokio::spawn(link::drive(link)))
}

fn frame(flags: Flags, request: Request, raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_head(&mut bytes, flags, 1, &proto::Request { request: Some(request) }, raw.len(), crc32c(raw));
    bytes.extend_from_slice(raw);
    bytes
}

fn upload(len: usize) -> Vec<u8> {
    frame(Flags::REQUEST, Request::WriteContent(proto::contents::Write::default()), &vec![7; len])
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test);
}

#[test]
fn frame_has_a_deadline_that_grows_with_received_bytes() {
    run(async {
        for (sent, seconds) in [(21, 30), (MIB, 30 + 16), (8 * MIB, 30 + 128)] {
            let (mut client, end) = connect(Limits::default(), None);
            let begun = Instant::now();
            client.write_all(&upload(9 * MIB)[..sent]).await.unwrap();
            let end = end.await.unwrap();
            assert!(matches!(end, End::Violated(FrameError::Late { received, .. }) if received == sent), "{end:?}");
            let took = begun.elapsed().as_secs();
            assert!((seconds..=seconds + 2).contains(&took), "{sent} bytes: {took} s");
        }
    });
}

#[test]
fn single_bytes_do_not_extend_the_deadline() {
    run(async {
        let (mut client, end) = connect(Limits::default(), None);
        let trickle = tokio::spawn(async move {
            for byte in upload(1000) {
                if client.write_all(&[byte]).await.is_err() {
                    return;
                }
                time::sleep(Duration::from_secs(5)).await;
            }
        });
        let begun = Instant::now();
        assert!(matches!(end.await.unwrap(), End::Violated(FrameError::Late { .. })));
        assert!(begun.elapsed() < Duration::from_secs(60));
        trickle.abort();
    });
}

#[test]
fn slow_and_silent_connections_without_unfinished_frames_stay_open() {
    run(async {
        let (mut client, end) = connect(Limits::default(), None);
        let whole = upload(100_000);
        let (first, second) = whole.split_at(50_000);
        for _ in 0..20 {
            client.write_all(first).await.unwrap();
            time::sleep(Duration::from_secs(25)).await;
            client.write_all(second).await.unwrap();
        }
        time::sleep(Duration::from_secs(3600)).await;
        let mut answer = [0; 1];
        client.read_exact(&mut answer).await.unwrap();
        assert!(!end.is_finished());
    });
}

#[test]
fn unfinished_frames_are_bounded_by_the_budget_and_the_oldest_is_evicted() {
    run(async {
        let budget = MemoryBudget::new(16 * MIB);
        let mut attackers = Vec::new();
        for _ in 0..10 {
            let (mut client, end) = connect(Limits::default(), Some(budget.clone()));
            client.write_all(&upload(8 * MIB)[..7 * MIB]).await.unwrap();
            // Waits until the server has read everything.
            while budget.used_bytes() == 0 {
                time::sleep(Duration::from_millis(1)).await;
            }
            time::sleep(Duration::from_millis(100)).await;
            assert!(budget.used_bytes() <= 16 * MIB, "{} bytes", budget.used_bytes());
            attackers.push((client, end));
        }
        // A client that finishes its frames is served meanwhile.
        let (mut client, end) = connect(Limits::default(), Some(budget.clone()));
        client.write_all(&upload(8 * MIB)).await.unwrap();
        client.read_exact(&mut [0; 1]).await.unwrap();
        assert!(!end.is_finished());
        drop(client);
        // A connection that the server ends stays open for a second, so that the reason arrives.
        time::sleep(Duration::from_secs(2)).await;
        let (mut evicted, mut alive) = (0, Vec::new());
        for (client, end) in attackers {
            if end.is_finished() {
                let end = end.await.unwrap();
                assert!(matches!(end, End::Violated(FrameError::NoMemory)), "{end:?}");
                evicted += 1;
            } else {
                alive.push((client, end));
            }
        }
        assert!(evicted >= 8, "{evicted}");
        for (client, end) in alive {
            drop(client);
            end.await.unwrap();
        }
        // The client has not read the whole answer.
        assert!(matches!(end.await.unwrap(), End::HungUp | End::Broken(_)));
        assert_eq!(budget.used_bytes(), 0, "the budget is free again");
    });
}

async fn end_of(bytes: Vec<u8>) -> End {
    let (mut client, end) = connect(Limits::default(), None);
    client.write_all(&bytes).await.unwrap();
    client.shutdown().await.unwrap();
    end.await.unwrap()
}

#[test]
fn one_way_request_of_a_kind_with_an_answer_ends_the_connection() {
    run(async {
        let wanting = [
            Request::Ping(proto::Ping {}),
            Request::Scan(proto::cluster::Scan::default()),
            Request::ReadObject(proto::ReadObject::default()),
            Request::WriteContent(proto::contents::Write::default()),
            Request::MetaWrite(proto::meta::Write::default()),
            Request::Administer(proto::account::Administer::default()),
            Request::Query(proto::query::Query::default()),
        ];
        for request in wanting {
            let end = end_of(frame(Flags::ONE_WAY, request.clone(), b"")).await;
            assert!(
                matches!(&end, End::Violated(FrameError::Refused(why)) if why.contains("wants an answer")),
                "{end:?}"
            );
            assert!(matches!(end_of(frame(Flags::REQUEST, request, b"")).await, End::HungUp));
        }
        let releasing = Request::EndQuery(proto::query::EndQuery::default());
        assert!(matches!(end_of(frame(Flags::ONE_WAY, releasing, b"")).await, End::HungUp));
    });
}

#[test]
fn machine_message_with_an_answer_ends_the_connection() {
    run(async {
        let messages = [
            Request::Up(Box::default()),
            Request::Ask(Box::default()),
            Request::Watch(proto::cluster::Watch::default()),
        ];
        for request in messages {
            let end = end_of(frame(Flags::REQUEST, request.clone(), b"")).await;
            assert!(matches!(&end, End::Violated(FrameError::Refused(why)) if why.contains("no answer")), "{end:?}");
            let is_complete = matches!(request, Request::Watch(_));
            let end = end_of(frame(Flags::ONE_WAY, request, b"")).await;
            match is_complete {
                true => assert!(matches!(end, End::HungUp), "{end:?}"),
                false => assert!(matches!(&end, End::Violated(FrameError::Refused(_))), "{end:?}"),
            }
        }
    });
}

#[test]
fn failed_or_unknown_one_way_request_ends_the_connection() {
    struct Failing;
    impl Service for Failing {
        fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
            reply.fail(&model::Error::new(model::ErrorKind::Denied, "not for you"));
        }
    }
    run(async {
        let (mut client, server) = UnixStream::pair().unwrap();
        let limits = Limits::default();
        let link = Link::new(Stream::Unix(server), Failing, limits, limits.max_frame, Arc::new(Mailbox::default()));
        let end = tokio::spawn(link::drive(link));
        client
            .write_all(&frame(Flags::ONE_WAY, Request::EndQuery(proto::query::EndQuery::default()), b""))
            .await
            .unwrap();
        let end = end.await.unwrap();
        assert!(matches!(&end, End::Violated(FrameError::Refused(why)) if why.contains("not for you")), "{end:?}");
        // A kind from a later version.
        let mut unknown = Vec::new();
        encode_head(&mut unknown, Flags::ONE_WAY, 1, &proto::Request { request: None }, 0, crc32c(b""));
        assert!(matches!(end_of(unknown).await, End::Violated(FrameError::Refused(_))));
    });
}

#[test]
fn messages_that_take_much_more_memory_than_bytes_end_the_connection() {
    run(async {
        let (mut client, end) = connect(Limits::default(), None);
        let requests = vec![proto::cluster::Ask::default(); MIB];
        let joint = proto::cluster::ask::Request::Joint(proto::cluster::JointAsk { requests });
        let ask = Request::Ask(Box::new(proto::cluster::Ask { request: Some(joint), ..Default::default() }));
        client.write_all(&frame(Flags::ONE_WAY, ask, &[])).await.unwrap();
        let end = end.await.unwrap();
        assert!(matches!(end, End::Violated(FrameError::TooLargeDecoded { .. })), "{end:?}");
    });
}

#[test]
fn messages_of_unanswered_requests_count_towards_their_bytes() {
    run(async {
        let limits = Limits { max_in_flight_bytes: MIB, ..Limits::default() };
        let (mut client, server) = UnixStream::pair().unwrap();
        let (service, held) = Holding::new();
        let link = Link::new(Stream::Unix(server), service, limits, limits.max_frame, Arc::new(Mailbox::default()));
        tokio::spawn(link::drive(link));
        let classes = vec![proto::schema::ClassDefinition::default(); 2000];
        let request = frame(Flags::REQUEST, Request::Define(proto::schema::Define { classes }), &[]);
        let written = time::timeout(Duration::from_secs(60), async {
            for _ in 0..1000 {
                client.write_all(&request).await.unwrap();
            }
        });
        assert!(written.await.is_err(), "the server does not read all of it");
        let held = held.lock().unwrap().len();
        assert!((1..20).contains(&held), "{held} requests");
    });
}

/// Keeps all requests unanswered, and counts messages.
struct Holding(Arc<std::sync::Mutex<Vec<wire::link::DeferredResponder>>>, Arc<std::sync::atomic::AtomicUsize>);

impl Holding {
    fn new() -> (Self, Arc<std::sync::Mutex<Vec<wire::link::DeferredResponder>>>) {
        let held = Arc::default();
        (Self(Arc::clone(&held), Arc::default()), held)
    }
}

impl Service for Holding {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        self.0.lock().unwrap().push(reply.defer());
    }

    fn on_messages(&mut self, messages: impl Iterator<Item = Message>) -> model::Result<()> {
        self.1.fetch_add(messages.count(), std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn unsent_answers_of_all_connections_are_bounded() {
    /// Answers every request with a MiB.
    struct Large;

    impl Service for Large {
        fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
            reply.send_slice(Response::ContentBytes(proto::contents::Bytes::default()), &[7; MIB]);
        }

        fn on_messages(&mut self, _: impl Iterator<Item = Message>) -> model::Result<()> {
            Ok(())
        }
    }
    run(async {
        let budget = MemoryBudget::new(20 * MIB);
        let limits = Limits { write_stall: None, ..Limits::default() };
        let connect = |requests: usize| {
            let (client, server) = UnixStream::pair().unwrap();
            let link = Link::new(Stream::Unix(server), Large, limits, limits.max_frame, Arc::new(Mailbox::default()));
            let end = tokio::spawn(link::drive(link.with_output_budget(budget.clone())));
            let ping = frame(Flags::REQUEST, Request::Ping(proto::Ping {}), &[]).repeat(requests);
            (client, end, ping)
        };
        let mut attackers = Vec::new();
        for _ in 0..40 {
            let (mut client, end, ping) = connect(20);
            client.write_all(&ping).await.unwrap();
            attackers.push((client, end));
            time::sleep(Duration::from_millis(10)).await;
            assert!(budget.used_bytes() <= 20 * MIB);
        }
        let ended = attackers.iter().filter(|(_, end)| end.is_finished()).count();
        assert!((10..40).contains(&ended), "{ended} connections have ended");
        // A client that reads is served.
        let (mut client, end, ping) = connect(1);
        for _ in 0..50 {
            client.write_all(&ping).await.unwrap();
            let mut answer = vec![0; MIB];
            client.read_exact(&mut answer).await.unwrap();
        }
        assert!(!end.is_finished());
        let (_, end) = attackers.swap_remove(0);
        assert!(matches!(end.await.unwrap(), End::Unread));
    });
}

#[test]
fn messages_between_machines_overtake_requests_that_wait_for_answers() {
    run(async {
        for (requests, len) in [(40, 0), (8, 200 << 10)] {
            let limits = Limits { max_in_flight: 8, max_in_flight_bytes: MIB, ..Limits::default() };
            let (client, server) = UnixStream::pair().unwrap();
            let (service, held) = Holding::new();
            let messages = service.1.clone();
            let link = Link::new(Stream::Unix(server), service, limits, limits.max_frame, Arc::new(Mailbox::default()));
            tokio::spawn(link::drive(link));
            let mailbox = Arc::new(Mailbox::default());
            let link = Link::new(Stream::Unix(client), Done, limits, limits.max_frame, mailbox.clone());
            tokio::spawn(link::drive(link));
            let caller = link::Caller::new(mailbox.clone(), 64 * MIB);
            let mut calls = Vec::new();
            for _ in 0..requests {
                let write = Request::WriteContent(proto::contents::Write::default());
                calls.push(caller.begin(write, vec![vec![7; len].into()]).await.unwrap());
            }
            time::sleep(Duration::from_millis(10)).await;
            assert!(mailbox.send_message(Message::Time(1), None));
            time::sleep(Duration::from_millis(10)).await;
            assert_eq!(messages.load(std::sync::atomic::Ordering::Relaxed), 1, "{requests} requests of {len} bytes");
            // The others follow when these are answered.
            let mut answered = 0;
            while answered < requests {
                let ready: Vec<_> = held.lock().unwrap().drain(..).collect();
                assert!(!ready.is_empty(), "{answered} answered");
                answered += ready.len();
                ready.into_iter().for_each(|reply| reply.send(Response::Done(proto::Done {}), Vec::new()));
                time::sleep(Duration::from_millis(10)).await;
            }
            for mut call in calls {
                call.answer().await.unwrap();
            }
        }
    });
}

#[test]
fn reading_stops_at_the_limit_of_unanswered_requests() {
    run(async {
        let limits = Limits { max_in_flight: 3, ..Limits::default() };
        let (mut client, server) = UnixStream::pair().unwrap();
        let (service, held) = Holding::new();
        let link = Link::new(Stream::Unix(server), service, limits, limits.max_frame, Arc::new(Mailbox::default()));
        tokio::spawn(link::drive(link));
        client.write_all(&frame(Flags::REQUEST, Request::Ping(proto::Ping {}), &[]).repeat(10)).await.unwrap();
        for answered in 0..8 {
            time::sleep(Duration::from_millis(10)).await;
            assert_eq!(held.lock().unwrap().len(), 3, "after {answered} answers");
            let reply = held.lock().unwrap().remove(0);
            reply.send(Response::Done(proto::Done {}), Vec::new());
        }
    });
}
