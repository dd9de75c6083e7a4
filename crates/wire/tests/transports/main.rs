//! Conformance tests of all transports, and tests of TLS.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod certificates;
mod conformance;
mod direct_requests;
mod introductions;
mod sockets;
mod tls;

use std::future::Future;
use std::time::Duration;

use model::{Result, SpaceId};
use wire::handshake::{HandshakeAuthenticator, Terms};
use wire::proto;
use wire::transport::{Address, Listener, RemoteEndpoint, Stream, tls as transport_tls};

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") });
}

/// Admits every client, and remembers the last one.
#[derive(Default)]
struct Door {
    admitted: Option<(proto::Hello, RemoteEndpoint)>,
}

impl HandshakeAuthenticator for Door {
    async fn admit(&mut self, hello: &proto::Hello, peer: &RemoteEndpoint) -> Result<Terms> {
        self.admitted = Some((hello.clone(), peer.clone()));
        Ok(Terms {
            space: SpaceId(1),
            max_frame: 1 << 20,
            max_in_flight: 10,
            brick: 0,
            opening: None,
            permission: wire::handshake::Permission::None,
            time_ms: 0,
            cluster: String::new(),
        })
    }
}

/// The address at which a test server listens, over TCP or TLS.
fn local(over_tls: bool) -> Address {
    let host = "127.0.0.1:0".to_owned();
    if over_tls { Address::Tls(host) } else { Address::Tcp(host) }
}

/// Connects a client to a server. Returns the results of the client and of the server.
async fn meet(
    address: &Address,
    server: Option<&transport_tls::Server>,
    client: Option<&transport_tls::Client>,
) -> (Result<Stream>, Result<Stream>) {
    let listener = Listener::bind(address, server).await.unwrap();
    let address = listener.address().unwrap();
    let accepting = async {
        let (accepted, _) = listener.accept().await.unwrap();
        accepted.into_stream().await
    };
    tokio::join!(Stream::dial(&address, client), accepting)
}
