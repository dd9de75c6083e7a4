//! A process as its cluster knows it, when it connects to others.

use model::{Error, ErrorKind, Result};
use wire::handshake::{self, Credentials, Introduction, Role, Terms};
use wire::transport::{Address, Stream, tls};

use super::Secret;
use crate::server::AGENT;

/// What a process needs to connect to others of its cluster, and they to it.
#[derive(Clone, Debug, Default)]
pub struct ClusterCredentials {
    /// What the processes of the cluster know each other by, if not by certificates.
    pub secret: Option<Secret>,
    /// Whom to believe over TLS, and the certificate of this process.
    pub tls: Option<tls::Client>,
    /// The secret may be sent where others can listen.
    pub insecure: bool,
}

impl ClusterCredentials {
    /// Connects to another process of the cluster, as what this one is.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nobody is there; as [`handshake::introduce`].
    pub(crate) async fn dial(&self, address: &Address, role: Role) -> Result<(Stream, Terms)> {
        let mut stream = Stream::dial(address, self.tls.as_ref()).await?;
        let password = self.secret.as_ref().map(Secret::primary);
        let credentials = password.map(|password| Credentials { user: String::new(), password });
        let insecure = self.insecure;
        let introduction = Introduction { role, credentials, insecure, ..Introduction::new("", AGENT) };
        let terms = handshake::introduce(&mut stream, &introduction).await.map_err(|error| explain(error, address))?;
        Ok((stream, terms))
    }
}

/// Says who refused this process.
fn explain(error: Error, address: &Address) -> Error {
    match error.kind() {
        ErrorKind::Denied => Error::new(ErrorKind::Denied, format!("{address} says: {}", error.message())),
        _ => error,
    }
}
