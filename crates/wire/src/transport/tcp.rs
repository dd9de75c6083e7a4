//! TCP. The system tunes the buffers. Small answers are sent at once. Keep-alive detects a machine that has vanished within half
//! a minute, whether or not there is something to send.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};

use super::BACKLOG;

pub(super) async fn connect(host: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(host).await?;
    tune(&stream)?;
    Ok(stream)
}

/// Listens at the first of the addresses behind `host` at which it can.
pub(super) async fn bind(host: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in lookup_host(host).await? {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A server that restarts does not wait for connections of the last one that the system still keeps.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

pub(super) async fn accept(listener: &TcpListener) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    tune(&stream)?;
    Ok((stream.into_std()?, peer))
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = stream.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5))?;
    sockopt::set_tcp_keepcnt(socket, 3)?;
    sockopt::set_tcp_user_timeout(socket, 30_000)?;
    Ok(())
}
