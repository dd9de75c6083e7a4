//! Introductions of clients, and how servers answer them.

use model::ErrorKind;
use tokio::net::{TcpListener, TcpStream};
use wire::handshake::{self, Credentials, Introduction, Role};
use wire::proto;
use wire::transport::Stream;

use super::{Door, run};

fn alice() -> Introduction {
    let credentials = Some(Credentials { user: "alice".to_owned(), password: "secret".to_owned() });
    Introduction { role: Role::Peer, credentials, ..Introduction::new("main", "test") }
}

async fn connect() -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (Stream::Tcp(client), Stream::Tcp(listener.accept().await.unwrap().0))
}

#[test]
fn authenticator_receives_the_introduction() {
    run(async {
        let (mut client, mut server) = connect().await;
        let (mut door, introduction) = (Door::default(), alice());
        let opening = handshake::introduce(&mut client, &introduction);
        let (near, far) = tokio::join!(opening, handshake::accept(&mut server, &mut door, "server"));
        assert!(near.is_ok() && far.is_ok());
        let (hello, peer) = door.admitted.unwrap();
        assert_eq!((hello.role(), hello.space.as_str()), (Role::Peer, "main"));
        assert_eq!((hello.user.as_str(), hello.password.as_str()), ("alice", "secret"));
        assert!(peer.is_private && peer.address.is_some() && peer.subject.is_none());
    });
}

#[test]
fn password_is_not_in_logs() {
    let hello = proto::Hello { user: "alice".to_owned(), password: "secret".to_owned(), ..proto::Hello::default() };
    for text in [format!("{hello:?}"), format!("{:?}", alice())] {
        assert!(text.contains("alice") && !text.contains("secret"), "{text}");
    }
}

#[test]
fn lengths_of_names_and_passwords_are_bounded() {
    run(async {
        let (mut client, mut server) = connect().await;
        let long = Credentials { user: "a".repeat(handshake::MAX_USER + 1), password: String::new() };
        let introduction = Introduction { credentials: Some(long), ..alice() };
        let error = handshake::introduce(&mut client, &introduction).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        // The server also checks the lengths.
        let (mut door, long) = (Door::default(), "a".repeat(handshake::MAX_PASSWORD + 1));
        let hello = proto::Hello { password: long, ..proto::Hello::default() };
        let bytes = handshake::encode(handshake::VERSION, &hello);
        let saying = tokio::io::AsyncWriteExt::write_all(&mut client, &bytes);
        let (_, far) = tokio::join!(saying, handshake::accept(&mut server, &mut door, "server"));
        assert_eq!(far.unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(door.admitted.is_none());
    });
}

#[test]
fn unknown_role_is_refused() {
    run(async {
        let (mut client, mut server) = connect().await;
        let mut door = Door::default();
        let hello = proto::Hello { role: 99, ..proto::Hello::default() };
        let bytes = handshake::encode(handshake::VERSION, &hello);
        let saying = tokio::io::AsyncWriteExt::write_all(&mut client, &bytes);
        let (_, far) = tokio::join!(saying, handshake::accept(&mut server, &mut door, "server"));
        assert_eq!(far.unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(door.admitted.is_none());
    });
}
