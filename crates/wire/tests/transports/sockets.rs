//! Options of listening sockets.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdUnixStream;

use wire::transport::{Address, ConnectionSource, Listener, PeerAddress, Stream};

use super::run;

/// The system's limit of connections that wait to be accepted.
fn somaxconn() -> usize {
    std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap()
}

#[test]
fn only_its_user_can_connect_to_a_unix_socket_whatever_the_umask() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = Listener::bind(&Address::Unix(path.clone()), None).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    });
}

#[test]
fn accept_backlog_is_the_limit_of_the_system() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _listener = Listener::bind(&Address::Unix(path.clone()), None).await.unwrap();
        // More than 1,024, the usual default of libraries.
        let (count, limit) = (1_100, somaxconn());
        let mut waiting = Vec::new();
        for number in 0..count.min(limit) {
            let socket = rustix::net::socket_with(
                rustix::net::AddressFamily::UNIX,
                rustix::net::SocketType::STREAM,
                rustix::net::SocketFlags::NONBLOCK,
                None,
            )
            .unwrap();
            let connected = rustix::net::connect(&socket, &rustix::net::SocketAddrUnix::new(&path).unwrap());
            assert!(connected.is_ok(), "connection {number}: {connected:?}");
            waiting.push(StdUnixStream::from(socket));
        }
    });
}

#[test]
fn connection_names_its_other_end() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let own = rustix::process::getuid().as_raw();
        let unix = Listener::bind(&Address::Unix(dir.path().join("socket")), None).await.unwrap();
        let tcp = Listener::bind(&Address::Tcp("127.0.0.1:0".to_owned()), None).await.unwrap();
        for (listener, source) in [(unix, ConnectionSource::Uid(own)), (tcp, ConnectionSource::Loopback)] {
            let address = listener.address().unwrap();
            let (dialled, accepted) = tokio::join!(Stream::dial(&address, None), listener.accept());
            let (dialled, (socket, address)) = (dialled.unwrap(), accepted.unwrap());
            assert_eq!(ConnectionSource::from(address), source);
            let stream = socket.into_stream().await.unwrap();
            assert_eq!(stream.peer().address.map(ConnectionSource::from), Some(source));
            assert!(stream.peer().is_private && dialled.peer().is_private);
        }
    });
}

#[test]
fn addresses_of_one_customer_are_one_source() {
    let source =
        |ip: &str| ConnectionSource::from(PeerAddress::Ip((ip.parse::<std::net::IpAddr>().unwrap(), 1).into()));
    assert_eq!(source("2001:db8:1:2::1"), source("2001:db8:1:2:ffff::7"));
    assert_ne!(source("2001:db8:1:2::1"), source("2001:db8:1:3::1"));
    assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    for loopback in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(source(loopback), ConnectionSource::Loopback, "{loopback}");
    }
}
