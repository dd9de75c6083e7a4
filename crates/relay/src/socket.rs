//! TCP and Unix sockets, listening and connected.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixSocket, UnixStream, lookup_host};

use crate::Address;

/// Connections that the system accepts before the relay does.
const BACKLOG: u32 = 1024;
/// The mode of a Unix socket's file: only processes of the same user can connect.
const SOCKET_MODE: u32 = 0o600;

/// The half of a stream that is read.
pub(crate) type ReadHalf<'a> = Box<dyn AsyncRead + Send + Unpin + 'a>;
/// The half of a stream that is written.
pub(crate) type WriteHalf<'a> = Box<dyn AsyncWrite + Send + Unpin + 'a>;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(crate) async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => Self::from_tcp(TcpStream::connect(host).await?),
            Address::Unix(path) => UnixStream::connect(path).await.map(Self::Unix),
        }
    }

    fn from_tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    pub(crate) fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        match self {
            Self::Tcp(stream) => {
                let (read, write) = stream.split();
                (Box::new(read), Box::new(write))
            }
            Self::Unix(stream) => {
                let (read, write) = stream.split();
                (Box::new(read), Box::new(write))
            }
        }
    }

    /// Closes the connection so that the other end sees it broken. Unix sockets have no reset; theirs ends.
    pub(crate) fn reset(self) {
        if let Self::Tcp(stream) = self {
            // Fails only if the connection has ended.
            let _ = stream.set_zero_linger();
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// The file of a Unix socket; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Listener {
    /// Listens at an address. The file of a Unix socket that another process has left is replaced.
    pub(crate) async fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Tcp(host) => bind_tcp(host).await.map(Self::Tcp),
            Address::Unix(path) => {
                let listener = match bind_unix(path) {
                    Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_abandoned(path) => {
                        fs::remove_file(path)?;
                        bind_unix(path)?
                    }
                    bound => bound?,
                };
                Ok(Self::Unix(listener, SocketFile(path.clone())))
            }
        }
    }

    /// The address with the port that the system has chosen.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?.to_string())),
            Self::Unix(_, SocketFile(path)) => Ok(Address::Unix(path.clone())),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp(listener) => Stream::from_tcp(listener.accept().await?.0),
            Self::Unix(listener, _) => Ok(Stream::Unix(listener.accept().await?.0)),
        }
    }
}

/// Listens at the first of the addresses behind `host` at which it can.
async fn bind_tcp(host: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in lookup_host(host).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A relay that is started again does not wait for connections of the last one that the system still keeps.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    // Connections are refused until the socket listens.
    fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    socket.listen(BACKLOG)
}

/// Whether `path` is a socket that refuses connections, so its process has ended.
fn is_abandoned(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let answer = std::os::unix::net::UnixStream::connect(path);
    is_socket && answer.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The next relay replaces a file that is left behind.
        let _ = fs::remove_file(&self.0);
    }
}
