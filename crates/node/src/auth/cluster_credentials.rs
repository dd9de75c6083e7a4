//! The credentials of a process of the cluster, and connecting with them.

use model::{Error, ErrorKind, Result};
use wire::handshake::{self, Credentials, Introduction, Role, Terms, Witnessed};
use wire::transport::{Address, Stream, tls};

use super::Secret;
use crate::server::AGENT;

/// What the processes of a cluster authenticate each other by.
#[derive(Clone, Debug, Default)]
pub struct ClusterCredentials {
    /// The secret of the cluster, if certificates are not used.
    pub secret: Option<Secret>,
    /// The trusted authorities and the certificate of this process, for TLS.
    pub tls: Option<tls::Client>,
    /// Whether the secret may be sent over a connection that others can read.
    pub insecure: bool,
}

impl ClusterCredentials {
    /// Connects to another process of the cluster, in the role of this one.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing listens there; as [`handshake::introduce`].
    pub(crate) async fn dial(&self, address: &Address, role: Role) -> Result<(Stream, Terms)> {
        self.dial_as_witness(address, role, Vec::new()).await
    }

    /// The same, and says what this process saw of the log that the other one serves.
    ///
    /// # Errors
    /// As [`ClusterCredentials::dial`].
    pub(crate) async fn dial_as_witness(
        &self,
        address: &Address,
        role: Role,
        witnessed: Vec<Witnessed>,
    ) -> Result<(Stream, Terms)> {
        self.introduce(address, &Introduction { witnessed, ..self.introduction("", role) }).await
    }

    /// The introduction of a process of the cluster, about a space.
    pub(crate) fn introduction(&self, space: &str, role: Role) -> Introduction {
        let password = self.secret.as_ref().map(Secret::primary);
        let credentials = password.map(|password| Credentials { user: String::new(), password });
        Introduction { role, credentials, insecure: self.insecure, ..Introduction::new(space, AGENT) }
    }

    /// Connects to another process with this introduction.
    ///
    /// # Errors
    /// As [`ClusterCredentials::dial`].
    pub(crate) async fn introduce(&self, address: &Address, introduction: &Introduction) -> Result<(Stream, Terms)> {
        let mut stream = Stream::dial(address, self.tls.as_ref()).await?;
        let terms = handshake::introduce(&mut stream, introduction).await.map_err(|error| explain(error, address))?;
        Ok((stream, terms))
    }
}

/// Whether a process has answered that is one of another cluster than this. At an address from an archive may be a process of the original (K2). A
/// cluster without a number is not compared.
pub(crate) fn is_of_another_cluster(terms: &Terms, cluster: &str) -> bool {
    !terms.cluster.is_empty() && !cluster.is_empty() && terms.cluster != cluster
}

/// Adds the address of the process that refused to the error.
fn explain(error: Error, address: &Address) -> Error {
    match error.kind() {
        ErrorKind::Denied => {
            Error::new(ErrorKind::Denied, format!("{address} refused this process: {}", error.message()))
        }
        _ => error,
    }
}
