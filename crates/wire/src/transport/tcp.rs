//! TCP. Buffers are left to the system's own tuning; small answers go out at once.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

pub(super) async fn connect(host: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(host).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(super) async fn bind(host: &str) -> io::Result<TcpListener> {
    TcpListener::bind(host).await
}

pub(super) async fn accept(listener: &TcpListener) -> io::Result<(std::net::TcpStream, SocketAddr)> {
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream.into_std()?, peer))
}
