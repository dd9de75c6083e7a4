//! Where a connection leads and what carries it.
//!
//! Each transport is one small file with `connect`, `bind` and what tunes its sockets; here they meet behind
//! [`Address`], [`Listener`] and [`Stream`]. Enums rather than trait objects: a read or write of a busy connection is
//! a direct call.

mod tcp;
mod unix;

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use model::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// The port of Mortar over TCP: MORT on a telephone's keys.
pub const DEFAULT_PORT: u16 = 6678;

/// Where a node listens, or a client dials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`; the host may be a name, an IPv4 address or an IPv6 address in brackets.
    Tcp(String),
    /// `unix:PATH`: a Unix socket in the file system.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why| Error::new(ErrorKind::Invalid, format!("{text:?} is no address: {why}"));
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong("the path is empty")) } else { Ok(Self::Unix(path.into())) };
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(wrong("write HOST:PORT or unix:PATH"));
        };
        if host.is_empty() || (host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))) {
            return Err(wrong("write HOST:PORT, an IPv6 address in brackets"));
        }
        port.parse::<u16>().map_err(|_| wrong("the port is a number up to 65535"))?;
        Ok(Self::Tcp(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => f.write_str(host),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection's two directions of bytes.
#[derive(Debug)]
pub enum Stream {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Dials `address`.
    pub async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => tcp::connect(host).await.map(Self::Tcp),
            Address::Unix(path) => unix::connect(path).await.map(Self::Unix),
        }
    }

    /// Sends up to `len` bytes of `file` from `offset` on, without a copy through this process.
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
                Self::Tcp(stream) => stream.poll_write_ready(context),
                Self::Unix(stream) => stream.poll_write_ready(context),
            };
            match ready {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
            let sent = match self {
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

fn send_file(socket: impl AsFd, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    let mut offset = offset;
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// Takes connections at one address.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// Over a Unix socket, whose file is removed on drop.
    Unix(unix::Socket),
}

impl Listener {
    /// Listens at `address`.
    pub async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => tcp::bind(host).await.map(Self::Tcp),
            Address::Unix(path) => unix::Socket::bind(path).map(Self::Unix),
        }
    }

    /// Waits for the next connection; the text names the other side in logs.
    pub async fn accept(&self) -> io::Result<(Accepted, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = tcp::accept(listener).await?;
                Ok((Accepted::Tcp(stream), peer.to_string()))
            }
            Self::Unix(socket) => Ok((Accepted::Unix(socket.accept().await?), "unix".to_owned())),
        }
    }

    /// Where it listens: with the port that the system chose, if it was asked to choose.
    pub fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
        }
    }
}

/// A connection that was accepted and belongs to no runtime yet: it may move to another thread's.
#[derive(Debug)]
pub enum Accepted {
    /// Over TCP.
    Tcp(std::net::TcpStream),
    /// Over a Unix socket.
    Unix(std::os::unix::net::UnixStream),
}

impl Accepted {
    /// The stream, served by the runtime of the calling task.
    pub fn into_stream(self) -> io::Result<Stream> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Stream::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Stream::Unix),
        }
    }
}

/// The addresses behind `host:port` that are not on this machine's loopback.
///
/// A node uses it to refuse to listen where others can reach it.
pub async fn beyond_loopback(address: &Address) -> io::Result<Vec<SocketAddr>> {
    match address {
        Address::Unix(_) => Ok(Vec::new()),
        Address::Tcp(host) => Ok(tokio::net::lookup_host(host).await?.filter(|at| !at.ip().is_loopback()).collect()),
    }
}
