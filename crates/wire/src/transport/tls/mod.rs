//! TLS 1.3 over TCP, by rustls.
//!
//! Certificates and keys are in PEM files ([`ServerFiles`], [`ClientFiles`]), which are checked for each new connection. Replaced files
//! are used from then on without a restart; if they are invalid, the old ones stay in use. The error messages of both sides are in
//! one place (`ErrorContext`).

mod error_context;
mod files;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use model::{Error, ErrorKind, Result};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use x509_cert::Certificate;
use x509_cert::der::Decode;

pub(crate) use error_context::ErrorContext;
pub use files::{Client, ClientFiles, ClientVerification, Identity, Server, ServerFiles};

use super::tcp;

/// The first byte of a TLS connection: a handshake record.
pub(crate) const HANDSHAKE: u8 = 0x16;

/// The subject of a certificate that a trusted authority has issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The whole name, as in RFC 4514: `CN=alice,O=Example`.
    pub name: String,
    /// Its common name, if it has one.
    pub common_name: Option<String>,
}

/// A connection over TLS.
#[derive(Debug)]
pub struct TlsConnection {
    stream: Box<TlsStream<TcpStream>>,
}

pub(super) async fn connect(host: &str, client: &Client) -> Result<TlsConnection> {
    let trouble = |error| ErrorContext::Dialled(host).explain(error);
    let name = server_name(host, client)?;
    let config = client.current();
    let stream = tcp::connect(host).await.map_err(trouble)?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(trouble)?;
    Ok(TlsConnection { stream: Box::new(stream.into()) })
}

/// A client's side of TLS over a connection that exists, for other protocols than Mortar's.
pub type ClientStream = tokio_rustls::client::TlsStream<TcpStream>;

/// Sets up TLS for HTTPS over a connection to `host:port`.
///
/// # Errors
/// [`ErrorKind::Denied`] if a certificate is not accepted, [`ErrorKind::Unsupported`] if the server does not speak TLS 1.3,
/// [`ErrorKind::Invalid`] if no certificate can have the name of the host, [`ErrorKind::Unavailable`] if the connection breaks.
pub async fn connect_https(host: &str, stream: TcpStream, client: &Client) -> Result<ClientStream> {
    let name = server_name(host, client)?;
    let connected = TlsConnector::from(client.current()).connect(name, stream).await;
    connected.map_err(|error| https_context(host, client).explain(error))
}

/// The error for a failure of TLS that caused another error of a connection to `host:port`: a server of TLS 1.3 checks a client's certificate
/// after the client has sent its first request, and refuses it without reading that. `None` if TLS is not the cause.
#[must_use]
pub fn https_refusal(host: &str, client: &Client, error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if let Some(refusal) = io.and_then(|error| https_context(host, client).explain_tls(error)) {
            return Some(refusal);
        }
        cause = error.source();
    }
    None
}

fn https_context<'a>(host: &'a str, client: &Client) -> ErrorContext<'a> {
    ErrorContext::DialledHttps { host, has_certificate: client.files().identity.is_some() }
}

fn server_name(host: &str, client: &Client) -> Result<ServerName<'static>> {
    let name = client.files().name.as_deref().unwrap_or_else(|| host_of(host));
    ServerName::try_from(name.to_owned())
        .map_err(|_| Error::new(ErrorKind::Invalid, format!("{name:?} is not a name that a certificate can have")))
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

pub(super) async fn accept(stream: TcpStream, config: Arc<ServerConfig>) -> Result<TlsConnection> {
    let stream =
        TlsAcceptor::from(config).accept(stream).await.map_err(|error| ErrorContext::Accepted.explain(error))?;
    Ok(TlsConnection { stream: Box::new(stream.into()) })
}

impl TlsConnection {
    pub(super) fn tcp(&self) -> &TcpStream {
        self.stream.get_ref().0
    }

    /// The subject of the other side's certificate, if it has one.
    pub(super) fn subject(&self) -> Option<Subject> {
        let (_, session) = self.stream.get_ref();
        session.peer_certificates().and_then(|chain| chain.first()).and_then(subject)
    }

    pub(super) fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match tokio::io::AsyncRead::poll_read(Pin::new(&mut *self.stream), context, buf) {
            // Closed without `close_notify`. Frames have lengths, so a truncation is noticed.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            read => read,
        }
    }

    pub(super) fn writer(&mut self) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(&mut *self.stream)
    }
}

fn subject(certificate: &CertificateDer<'_>) -> Option<Subject> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let name = certificate.tbs_certificate().subject();
    let common_name = name.common_name().ok().flatten().map(|name| name.value().into_owned());
    Some(Subject { name: name.to_string(), common_name })
}
