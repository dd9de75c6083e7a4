//! Clients that violate the protocol with their own bytes on the socket.

use std::time::Duration;

use client::ErrorKind;
use meta::catalog::Permission;
use model::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time;
use wire::frame::{Flags, crc32c};
use wire::handshake::{self, Credentials, Introduction};
use wire::outbox::encode_head;
use wire::proto;
use wire::proto::request::Request;
use wire::transport::{Address, Stream};

use super::world::{World, run};

/// A connection whose bytes the test reads and writes. It is authenticated if there is a user.
async fn connect(to: &[Address], user: Option<&str>, password: &str) -> Result<Stream> {
    let mut stream = Stream::connect(&to[0]).await.unwrap();
    let credentials = user.map(|user| Credentials { user: user.to_owned(), password: password.to_owned() });
    let introduction = Introduction { credentials, ..Introduction::new("main", "hostile") };
    handshake::introduce(&mut stream, &introduction).await.map(|_| stream)
}

async fn silent(to: &[Address]) -> TcpStream {
    TcpStream::connect(to[0].to_string()).await.unwrap()
}

fn frame(flags: Flags, request: Request, raw: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_head(&mut bytes, flags, 1, &proto::Request { request: Some(request) }, raw.len(), crc32c(raw));
    bytes.extend_from_slice(raw);
    bytes
}

/// The server's answer to these bytes until it closes the connection; `None` if it does not close it.
async fn answer(stream: &mut Stream, bytes: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    match time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await {
        Ok(_) => Some(answer),
        Err(_) => None,
    }
}

#[test]
fn silent_connections_do_not_block_others() {
    run(async {
        let (world, _) = World::with_users_and(&[("ann", Some(Permission::Write))], |config| {
            config.connections.half_open = 16;
            config.connections.total = 16;
        })
        .await;
        let to = world.peer.addresses();
        let mut held = Vec::new();
        for _ in 0..200 {
            held.push(silent(to).await);
        }
        connect(to, Some("root"), "right one").await.unwrap();
        connect(to, Some("ann"), "right one").await.unwrap();
        // The server has closed all but the newest.
        for mut stream in held.into_iter().take(150) {
            assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
        }
    });
}

#[test]
fn connection_limit_of_a_user_does_not_affect_others() {
    run(async {
        let users = [("ann", Some(Permission::Read)), ("bob", Some(Permission::Read)), ("cyd", Some(Permission::Read))];
        let (world, _) = World::with_users_and(&users, |config| {
            config.connections.per_user = 3;
            config.connections.total = 6;
            config.connections.administrator_reserve = 2;
        })
        .await;
        let to = world.peer.addresses();
        let mut held = Vec::new();
        let mut take = async |user: &'static str| match connect(to, Some(user), "right one").await {
            Ok(stream) => {
                held.push(stream);
                Ok(())
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable);
                Err(error.message().to_owned())
            }
        };
        for user in ["ann", "ann", "ann", "bob", "bob"] {
            take(user).await.unwrap();
        }
        assert!(take("ann").await.unwrap_err().contains("user ann has its 3 connections"));
        take("bob").await.unwrap();
        assert!(take("cyd").await.unwrap_err().contains("the server has its 6 connections"));
        take("root").await.unwrap();
        take("root").await.unwrap();
        assert!(take("root").await.is_err(), "the reserve is finite");
        held.truncate(1);
        // Connections are possible again when the server has noticed the disconnections.
        while connect(to, Some("cyd"), "right one").await.is_err() {
            time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn password_guesses_are_limited_and_do_not_block_known_users() {
    run(async {
        let users = [("ann", Some(Permission::Read)), ("bob", Some(Permission::Read))];
        let (world, _) = World::with(&users).await;
        let to = world.peer.addresses();
        connect(to, Some("ann"), "right one").await.unwrap();
        let (mut guesses, begun) = (JoinSet::new(), time::Instant::now());
        for number in 0..100 {
            let to = to.to_vec();
            guesses
                .spawn(async move { connect(&to, Some("bob"), &format!("wrong {number}")).await.unwrap_err().kind() });
        }
        connect(to, Some("ann"), "right one").await.expect("ann has connected from this address before");
        let kinds = guesses.join_all().await;
        let checked = kinds.iter().filter(|kind| **kind == ErrorKind::Denied).count();
        let most = 11 + begun.elapsed().as_secs() as usize / 6;
        assert!((10..=most).contains(&checked), "{checked} guesses were checked");
        assert!(kinds.iter().all(|kind| [ErrorKind::Denied, ErrorKind::Unavailable].contains(kind)));
    });
}

#[test]
fn invalid_one_way_messages_end_the_connection_at_every_server() {
    run(async {
        let (world, _) = World::with(&[]).await;
        let down = || Request::Down(Box::default());
        let reply = || Request::Reply(proto::cluster::Reply::default());
        let write = || Request::MetaWrite(proto::meta::Write::default());
        for to in [world.peer.addresses(), world.brick.addresses(), world.meta.addresses()] {
            // Each server has its own copy of the catalogue, which may be slightly outdated.
            while connect(to, Some("root"), "right one").await.is_err() {}
            for request in [down(), reply(), write()] {
                let mut stream = Stream::connect(&to[0]).await.unwrap();
                let credentials = Some(Credentials { user: "root".to_owned(), password: "right one".to_owned() });
                let introduction = Introduction { credentials, ..Introduction::new("main", "hostile") };
                handshake::introduce(&mut stream, &introduction).await.unwrap();
                let kind = format!("{request:?}");
                let answer = answer(&mut stream, &frame(Flags::ONE_WAY, request, b"")).await;
                let answer = answer.unwrap_or_else(|| panic!("{kind} does not end the connection with {to:?}"));
                assert!(!answer.is_empty(), "{kind}: {to:?} gives no reason");
            }
        }
        // The servers continue.
        connect(world.peer.addresses(), Some("root"), "right one").await.unwrap();
    });
}

#[test]
fn memory_of_unfinished_requests_is_limited() {
    run(async {
        let (world, _) = World::without_users_with(|config| config.unfinished_input_bytes = 4 << 20).await;
        let to = world.peer.addresses();
        let whole = frame(Flags::REQUEST, Request::WriteContent(proto::contents::Write::default()), &vec![7; 2 << 20]);
        let mut held = Vec::new();
        for _ in 0..10 {
            let mut stream = connect(to, None, "").await.unwrap();
            stream.write_all(&whole[..whole.len() - 1]).await.unwrap();
            held.push(stream);
        }
        // The oldest are refused because the memory is used up.
        for stream in held.iter_mut().take(8) {
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.contains("no memory left"), "{answer:?}");
        }
        let mut honest = connect(to, None, "").await.unwrap();
        honest.write_all(&whole).await.unwrap();
        honest.read_exact(&mut [0; 4]).await.expect("an answer");
    });
}
