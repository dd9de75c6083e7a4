//! Relays with real sockets. Times have lower bounds only: a busy machine may take longer.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use relay::{Address, Config, Counters, LinkConfig, Relay, StartError};

/// Long enough for everything that is expected to happen.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long bytes are awaited that must not come.
const SILENCE: Duration = Duration::from_millis(100);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn with_delay(delay: Duration) -> LinkConfig {
    LinkConfig { delay, ..LinkConfig::default() }
}

/// A relay in front of a listener, which the test accepts connections of.
fn relay(link: LinkConfig) -> (Relay, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Address::Tcp(listener.local_addr().unwrap().to_string());
    let listen = "127.0.0.1:0".parse().unwrap();
    let relay = Relay::start(Config { link, seed: Some(1), ..Config::new(listen, target) }).unwrap();
    (relay, listener)
}

fn connect(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(relay.address().to_string()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Both ends of a connection through the relay, after its handshake.
fn pair(relay: &Relay, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let (mut client, mut target) = (connect(relay), accept(listener));
    send(&mut client, &mut target, b"hello");
    (client, target)
}

fn send(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    from.write_all(bytes).unwrap();
    let mut received = vec![0; bytes.len()];
    to.read_exact(&mut received).unwrap();
    assert_eq!(received, bytes);
}

/// Waits until the counters are as they should be: they change after the bytes were written.
fn wait_for(relay: &Relay, is_expected: impl Fn(&Counters) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_expected(&relay.counters()) {
        assert!(Instant::now() < deadline, "{:?}", relay.counters());
        thread::sleep(ms(1));
    }
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    let read = stream.read(&mut [0]);
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Bytes without a pattern that a lost or repeated chunk would leave intact.
fn noise(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn a_round_trip_takes_two_delays() {
    let (relay, listener) = relay(with_delay(ms(20)));
    let (mut client, mut target) = pair(&relay, &listener);
    let start = Instant::now();
    send(&mut client, &mut target, b"?");
    assert!(start.elapsed() >= ms(20));
    send(&mut target, &mut client, b"!");
    assert!(start.elapsed() >= ms(40));
}

#[test]
fn a_connection_carries_its_first_bytes_after_a_round_trip() {
    let (relay, listener) = relay(with_delay(ms(20)));
    let start = Instant::now();
    let mut client = connect(&relay);
    let mut target = accept(&listener);
    assert!(start.elapsed() >= ms(20));
    send(&mut client, &mut target, b"hello");
    assert!(start.elapsed() >= ms(60));
}

#[test]
fn a_changed_delay_holds_for_open_connections() {
    let (relay, listener) = relay(LinkConfig::default());
    let (mut client, mut target) = pair(&relay, &listener);
    relay.set_delay(ms(30));
    let start = Instant::now();
    send(&mut client, &mut target, b"?");
    assert!(start.elapsed() >= ms(30));
}

#[test]
fn many_bytes_arrive_unchanged_in_both_directions() {
    let link = LinkConfig { jitter: ms(2), loss: 0.01, ..with_delay(ms(2)) };
    let (relay, listener) = relay(link);
    let (client, target) = pair(&relay, &listener);
    let sent = noise(4 << 20);
    thread::scope(|scope| {
        for (from, to) in [(&client, &target), (&target, &client)] {
            let sent = &sent;
            scope.spawn(move || {
                { from }.write_all(sent).unwrap();
                from.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut received = Vec::new();
                { to }.read_to_end(&mut received).unwrap();
                assert!(received == *sent);
            });
        }
    });
    wait_for(&relay, |counters| counters.open_connections == 0);
    let counters = relay.shutdown();
    assert_eq!(counters.upstream.bytes, sent.len() as u64 + 5);
    assert_eq!(counters.downstream.bytes, sent.len() as u64);
    assert!(counters.upstream.chunks >= 64);
    assert_eq!((counters.connections, counters.failed_connections), (1, 0));
}

#[test]
fn connections_share_the_rate() {
    let (relay, listener) = relay(LinkConfig { rate: NonZeroU64::new(1_000_000), ..LinkConfig::default() });
    let mut pairs = [pair(&relay, &listener), pair(&relay, &listener)];
    let start = Instant::now();
    thread::scope(|scope| {
        for (client, target) in &mut pairs {
            scope.spawn(|| send(client, target, &noise(100_000)));
        }
    });
    assert!(start.elapsed() >= ms(200));
}

#[test]
fn one_direction_can_end_before_the_other() {
    let (relay, listener) = relay(with_delay(ms(1)));
    let (mut client, mut target) = pair(&relay, &listener);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(target.read(&mut [0]).unwrap(), 0);
    send(&mut target, &mut client, b"the answer");
    drop(target);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    wait_for(&relay, |counters| counters.open_connections == 0);
}

#[test]
fn a_broken_connection_is_broken_at_the_other_end() {
    let (relay, listener) = relay(with_delay(ms(1)));
    let (mut client, target) = pair(&relay, &listener);
    // A socket that is closed with unread bytes sends a reset.
    client.write_all(b"unread").unwrap();
    wait_for(&relay, |counters| counters.upstream.bytes == 11);
    drop(target);
    assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    wait_for(&relay, |counters| counters.open_connections == 0);
}

#[test]
fn a_client_that_sends_to_a_closed_target_gets_an_error() {
    let (relay, listener) = relay(with_delay(ms(1)));
    let (mut client, target) = pair(&relay, &listener);
    drop(target);
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
    let deadline = Instant::now() + TIMEOUT;
    while client.write_all(b"more").is_ok() {
        assert!(Instant::now() < deadline);
        thread::sleep(ms(1));
    }
    wait_for(&relay, |counters| counters.open_connections == 0);
}

#[test]
fn a_target_that_refuses_breaks_the_connection_and_is_reported() {
    let (relay, listener) = relay(with_delay(ms(1)));
    drop(listener);
    let mut client = connect(&relay);
    assert!(is_closed(client.read(&mut [0])));
    let counters = relay.counters();
    assert_eq!((counters.connections, counters.failed_connections), (1, 1));
    assert!(counters.last_failure.unwrap().contains("cannot connect to 127.0.0.1:"));
}

fn is_closed(read: io::Result<usize>) -> bool {
    matches!(read, Ok(0)) || read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn a_cut_holds_bytes_and_new_connections_until_it_ends() {
    let (relay, listener) = relay(LinkConfig::default());
    let (mut client, mut target) = pair(&relay, &listener);
    relay.set_cut(true);
    assert!(relay.counters().cut);
    client.write_all(b"up").unwrap();
    target.write_all(b"down").unwrap();
    let mut late = connect(&relay);
    late.write_all(b"new").unwrap();
    assert!(is_silent(&mut client) && is_silent(&mut target));
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();

    relay.set_cut(false);
    let mut bytes = [0; 4];
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"down");
    target.read_exact(&mut bytes[..2]).unwrap();
    assert_eq!(&bytes[..2], b"up");
    accept(&listener).read_exact(&mut bytes[..3]).unwrap();
    assert_eq!(&bytes[..3], b"new");
}

#[test]
fn unix_sockets_are_relayed_and_their_file_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (front, back) = (directory.path().join("front.sock"), directory.path().join("back.sock"));
    let listener = UnixListener::bind(&back).unwrap();
    // The file of a process that has ended.
    drop(UnixListener::bind(&front).unwrap());
    let relay = Relay::start(Config::new(Address::Unix(front.clone()), Address::Unix(back))).unwrap();
    let mut client = UnixStream::connect(&front).unwrap();
    let (mut target, _) = listener.accept().unwrap();
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut received = String::new();
    target.read_to_string(&mut received).unwrap();
    assert_eq!(received, "hello");
    drop(relay);
    assert!(!front.exists());
}

#[test]
fn the_end_of_a_relay_ends_its_connections() {
    let (relay, listener) = relay(with_delay(Duration::from_secs(3600)));
    let mut client = connect(&relay);
    wait_for(&relay, |counters| counters.connections == 1);
    let address = relay.address().to_string();
    assert_eq!(relay.shutdown().open_connections, 1);
    assert!(is_closed(client.read(&mut [0])));
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    drop(listener);
}

#[test]
fn a_taken_address_and_a_wrong_link_are_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(taken.local_addr().unwrap().to_string());
    let config = Config::new(address.clone(), address.clone());
    let error = Relay::start(config.clone()).unwrap_err();
    assert!(matches!(&error, StartError::Listen(at, _) if *at == address), "{error}");
    let link = LinkConfig { loss: 2.0, ..LinkConfig::default() };
    assert!(matches!(Relay::start(Config { link, ..config }), Err(StartError::Invalid(_))));
}
