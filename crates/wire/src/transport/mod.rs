//! Addresses, listeners and streams: what carries a connection.
//!
//! Each transport is a small module with `connect`, `bind` and the options of its sockets. [`Address`], [`Listener`] and [`Stream`]
//! cover all of them. They are enums and not trait objects, so a read or write of a busy connection is a direct call.

mod in_process;
mod tcp;
pub mod tls;
mod unix;

use std::cell::RefCell;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};

use model::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::direct::DirectQueue;
use crate::handshake;
pub use in_process::InProcessStream;

/// Connections that may wait to be accepted: as many as the system allows (`net.core.somaxconn`), which lowers any larger
/// number to that.
const BACKLOG: u32 = i32::MAX as u32;

/// Bytes of a file that are read and written in one step where the system cannot send a file: some TLS records.
const PIECE: usize = 64 << 10;

thread_local! {
    /// The piece of a file that is being written.
    static PIECE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What precedes the name of a listener in a process.
const IN_PROCESS: &str = "process:";

/// The port of Mortar over TCP: MORT on a telephone's keys.
pub const DEFAULT_PORT: u16 = 6678;

/// An address at which a node listens or which a client dials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`; the host may be a name, an IPv4 address or an IPv6 address in brackets.
    Tcp(String),
    /// `tls:host:port`: the same, over TLS.
    Tls(String),
    /// `unix:PATH`: a Unix socket in the file system.
    Unix(PathBuf),
    /// `process:CLUSTER#SERVER`: a listener in the same process.
    InProcess(String),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why| Error::new(ErrorKind::Invalid, format!("{text:?} is not an address: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong("the path is empty")) } else { Ok(Self::Unix(path.into())) };
        }
        // Only the catalogue has such addresses. A host may have that name, and no host and port has a `#`.
        if let Some(name) = text.strip_prefix(IN_PROCESS).filter(|name| name.contains('#')) {
            return Ok(Self::InProcess(name.to_owned()));
        }
        let (host_port, is_tls) =
            text.strip_prefix("tls:").filter(|rest| rest.contains(':')).map_or((text, false), |rest| (rest, true));
        let Some((host, port)) = host_port.rsplit_once(':') else {
            return Err(wrong("write HOST:PORT, tls:HOST:PORT or unix:PATH"));
        };
        if host.is_empty() || (host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))) {
            return Err(wrong("write HOST:PORT, an IPv6 address in brackets"));
        }
        port.parse::<u16>().map_err(|_| wrong("the port is a number up to 65535"))?;
        Ok(if is_tls { Self::Tls(host_port.to_owned()) } else { Self::Tcp(host_port.to_owned()) })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => f.write_str(host),
            Self::Tls(host) => write!(f, "tls:{host}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::InProcess(name) => write!(f, "{IN_PROCESS}{name}"),
        }
    }
}

/// The address of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerAddress {
    /// Of a TCP connection, with or without TLS.
    Ip(SocketAddr),
    /// Of a Unix socket: the user of this machine that the process runs as, from `SO_PEERCRED`.
    Uid(u32),
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Uid(uid) => write!(f, "unix, uid {uid}"),
        }
    }
}

/// The source of a connection, by which connections and login attempts are limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnectionSource {
    /// An IPv4 address, or the first 64 bits of an IPv6 address: a customer of a provider has at least that many.
    Network(IpAddr),
    /// This machine, over TCP. Every local user and every local proxy shares it.
    Loopback,
    /// A user of this machine, over a Unix socket.
    Uid(u32),
}

impl From<PeerAddress> for ConnectionSource {
    fn from(address: PeerAddress) -> Self {
        let ip = match address {
            PeerAddress::Uid(uid) => return Self::Uid(uid),
            PeerAddress::Ip(address) => address.ip().to_canonical(),
        };
        match ip {
            ip if ip.is_loopback() => Self::Loopback,
            IpAddr::V6(ip) => Self::Network(Ipv6Addr::from(u128::from(ip) >> 64 << 64).into()),
            ip => Self::Network(ip),
        }
    }
}

impl fmt::Display for ConnectionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(ip) => write!(f, "address {ip}"),
            Self::Loopback => f.write_str("this machine"),
            Self::Uid(uid) => write!(f, "uid {uid} of this machine"),
        }
    }
}

/// Facts about the other end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// Its address; `None` if the connection has ended.
    pub address: Option<PeerAddress>,
    /// The subject of its certificate, if it has one that a configured authority issued.
    pub subject: Option<tls::Subject>,
    /// Whether third parties cannot read the connection: it uses TLS, or both ends are on one machine.
    pub is_private: bool,
}

/// A connection: two streams of bytes.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over TLS over TCP.
    Tls(tls::TlsConnection),
    /// Over a Unix socket.
    Unix(UnixStream),
    /// Within the process.
    InProcess(InProcessStream),
}

impl Stream {
    /// Dials an `address` without TLS. What [listens in this process](Listener::bind_in_process) is reached without the network.
    pub async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host) if in_process::is_listening(host) => {
                in_process::connect(host).await.map(Self::InProcess)
            }
            Address::Tcp(host) => tcp::connect(host).await.map(Self::Tcp),
            Address::Tls(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "an address over TLS needs the files of TLS"))
            }
            Address::Unix(path) => unix::connect(path).await.map(Self::Unix),
            Address::InProcess(name) => in_process::connect(name).await.map(Self::InProcess),
        }
    }

    /// Dials any `address`; one over TLS needs `tls`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing listens there, [`ErrorKind::Denied`] if the server's certificate is refused,
    /// [`ErrorKind::Unsupported`] if it does not speak TLS, [`ErrorKind::Invalid`] if `tls` is needed and missing.
    pub async fn dial(address: &Address, tls: Option<&tls::Client>) -> Result<Self> {
        match (address, tls) {
            (Address::Tls(host), Some(client)) => tls::connect(host, client).await.map(Self::Tls),
            (Address::Tls(host), None) => {
                let what = format!(
                    "{host} is dialled over TLS: give the file with the certificate of its authority (`--ca`, `MORTAR_CA`, `ConnectOptions::tls`)"
                );
                Err(Error::new(ErrorKind::Invalid, what))
            }
            (plain, _) => Self::connect(plain)
                .await
                .map_err(|error| tls::ErrorContext::Dialled(&plain.to_string()).explain(error)),
        }
    }

    /// The queues of messages to and from the other end, if that is in this process.
    pub(crate) fn direct_queues(&self) -> Option<(Arc<DirectQueue>, Arc<DirectQueue>)> {
        match self {
            Self::InProcess(stream) => Some((stream.outgoing.clone(), stream.incoming.clone())),
            Self::Tcp(_) | Self::Tls(_) | Self::Unix(_) => None,
        }
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> RemoteEndpoint {
        let address = match self {
            Self::Tcp(stream) => stream.peer_addr().ok().map(PeerAddress::Ip),
            Self::Tls(session) => session.tcp().peer_addr().ok().map(PeerAddress::Ip),
            Self::Unix(stream) => stream.peer_cred().ok().map(|peer| PeerAddress::Uid(peer.uid())),
            Self::InProcess(_) => Some(PeerAddress::Uid(in_process::user())),
        };
        let (subject, is_private) = match self {
            Self::Tcp(_) => {
                (None, address.is_some_and(|address| ConnectionSource::from(address) == ConnectionSource::Loopback))
            }
            Self::Tls(session) => (session.subject(), true),
            Self::Unix(_) | Self::InProcess(_) => (None, true),
        };
        RemoteEndpoint { address, subject, is_private }
    }

    /// Sends up to `len` bytes of `file` from `offset` on; over TCP and Unix sockets without a copy through this process.
    ///
    /// 0 bytes sent means that the file is shorter than that. May block on the disk that holds the file.
    pub fn poll_send_file(
        &mut self,
        context: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            let ready = match self {
                Self::Tls(session) => return poll_copy_file(session.writer(), context, file, offset, len),
                Self::InProcess(stream) => {
                    return poll_copy_file(Pin::new(&mut stream.bytes), context, file, offset, len);
                }
                Self::Tcp(stream) => stream.poll_write_ready(context),
                Self::Unix(stream) => stream.poll_write_ready(context),
            };
            match ready {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            let sent = match self {
                Self::Tls(_) | Self::InProcess(_) => return Poll::Pending,
                Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, || send_file(&*stream, file, offset, len)),
                Self::Unix(stream) => stream.try_io(Interest::WRITABLE, || send_file(&*stream, file, offset, len)),
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

/// Reads a part of a file, and writes what the stream takes of it.
fn poll_copy_file(
    stream: Pin<&mut impl AsyncWrite>,
    context: &mut Context<'_>,
    file: &File,
    offset: u64,
    len: usize,
) -> Poll<io::Result<usize>> {
    PIECE_BUFFER.with_borrow_mut(|buffer| {
        buffer.resize(PIECE, 0);
        let read = file.read_at(&mut buffer[..len.min(PIECE)], offset)?;
        if read == 0 { Poll::Ready(Ok(0)) } else { stream.poll_write(context, &buffer[..read]) }
    })
}

fn send_file(socket: impl AsFd, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buf),
            Self::Tls(session) => session.poll_read(context, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buf),
            Self::InProcess(stream) => Pin::new(&mut stream.bytes).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(session) => session.writer().poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::InProcess(stream) => Pin::new(&mut stream.bytes).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(session) => session.writer().poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::InProcess(stream) => Pin::new(&mut stream.bytes).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tls(session) => session.writer().poll_flush(context),
            Self::Tcp(_) | Self::Unix(_) | Self::InProcess(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(session) => session.writer().poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Self::InProcess(stream) => Pin::new(&mut stream.bytes).poll_shutdown(context),
        }
    }
}

/// Accepts connections at one address.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over TLS over TCP.
    Tls(TcpListener, tls::Server),
    /// Over a Unix socket, whose file is removed on drop.
    Unix(unix::Socket),
    /// Within the process.
    InProcess(in_process::InProcessListener),
}

impl Listener {
    /// Listens at `address`; one over TLS needs `tls`.
    pub async fn bind(address: &Address, tls: Option<&tls::Server>) -> io::Result<Self> {
        match (address, tls) {
            (Address::Tcp(host), _) => tcp::bind(host).await.map(Self::Tcp),
            (Address::Tls(host), Some(server)) => Ok(Self::Tls(tcp::bind(host).await?, server.clone())),
            (Address::Tls(_), None) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, "TLS needs a certificate and a key: give their files"))
            }
            (Address::Unix(path), _) => unix::Socket::bind(path).map(Self::Unix),
            (Address::InProcess(name), _) => in_process::InProcessListener::bind(name).map(Self::InProcess),
        }
    }

    /// Listens for connections of this process to the TCP address `host`, at which it listens for others, too.
    pub fn bind_in_process(host: &str) -> io::Result<Self> {
        in_process::InProcessListener::bind(host).map(Self::InProcess)
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> io::Result<(AcceptedSocket, PeerAddress)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = tcp::accept(listener).await?;
                Ok((AcceptedSocket::Tcp(stream), PeerAddress::Ip(peer)))
            }
            Self::Tls(listener, server) => {
                let (stream, peer) = tcp::accept(listener).await?;
                Ok((AcceptedSocket::Tls(stream, server.clone()), PeerAddress::Ip(peer)))
            }
            Self::Unix(socket) => {
                let (stream, uid) = socket.accept().await?;
                Ok((AcceptedSocket::Unix(stream), PeerAddress::Uid(uid)))
            }
            Self::InProcess(listener) => {
                Ok((AcceptedSocket::InProcess(listener.accept().await?), PeerAddress::Uid(in_process::user())))
            }
        }
    }

    /// The address, with the port that the system chose if the port was 0.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Tls(listener, _) => Ok(Address::Tls(listener.local_addr()?.to_string())),
            Self::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
            Self::InProcess(listener) => Ok(Address::InProcess(listener.name().to_owned())),
        }
    }
}

/// An accepted connection that is registered with no runtime yet, so another thread can serve it.
#[derive(Debug)]
pub enum AcceptedSocket {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over TLS over TCP, which is not negotiated yet.
    Tls(std::net::TcpStream, tls::Server),
    /// Over a Unix socket.
    Unix(std::os::unix::net::UnixStream),
    /// Within the process.
    InProcess(InProcessStream),
}

impl AcceptedSocket {
    /// Registers the connection with the runtime of the calling task. Over TLS this negotiates first, which takes as long as the
    /// other side wants.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the other side does not speak TLS (it was sent a refusal), [`ErrorKind::Denied`] if its
    /// certificate is refused, [`ErrorKind::Unavailable`] if it closed the connection.
    pub async fn into_stream(self) -> Result<Stream> {
        let broken = |error: io::Error| {
            Error::new(ErrorKind::Io, "a connection cannot be registered with the runtime").with_source(error)
        };
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp).map_err(broken),
            Self::Tls(stream, server) => {
                let stream = TcpStream::from_std(stream).map_err(broken)?;
                let mut first = [0];
                let peeked = stream.peek(&mut first).await;
                if peeked.map_err(|error| tls::ErrorContext::Accepted.explain(error))? == 1
                    && first[0] != tls::HANDSHAKE
                {
                    return Err(handshake::refuse_plain(&mut Stream::Tcp(stream)).await);
                }
                tls::accept(stream, server.current()).await.map(Stream::Tls)
            }
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix).map_err(broken),
            Self::InProcess(stream) => Ok(Stream::InProcess(stream)),
        }
    }
}

/// The addresses behind `host:port` that are not on this machine's loopback.
///
/// A node uses this to refuse addresses that other machines can reach.
pub async fn beyond_loopback(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        Address::Unix(_) | Address::InProcess(_) => Ok(Vec::new()),
        Address::Tcp(host) | Address::Tls(host) => {
            Ok(tokio::net::lookup_host(host).await?.filter(|at| !at.ip().is_loopback()).collect())
        }
    }
}
