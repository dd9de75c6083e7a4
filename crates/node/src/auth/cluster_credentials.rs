//! The credentials of a process of the cluster, and connecting with them.

use meta::catalog::Catalog;
use model::{Error, ErrorKind, Result};
use wire::handshake::{self, Credentials, Introduction, Role, Terms, Witnessed};
use wire::proto::Hello;
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
    /// Connects to another process of this cluster, in the role of this one, and says what this one saw of the log that the other one serves.
    /// A cluster without a number is not compared.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if nothing listens there; [`ErrorKind::Denied`] also if a process of another cluster does; as
    /// [`handshake::introduce`].
    pub(crate) async fn dial(
        &self,
        address: &Address,
        role: Role,
        cluster: &str,
        witnessed: Vec<Witnessed>,
    ) -> Result<(Stream, Terms)> {
        let introduction = Introduction { witnessed, cluster: cluster.to_owned(), ..self.introduction("", role) };
        let (stream, terms) = self.introduce(address, &introduction).await?;
        match is_another(&terms.cluster, cluster) {
            true => Err(Error::new(ErrorKind::Denied, format!("a process of another cluster answers at {address}"))),
            false => Ok((stream, terms)),
        }
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

/// Checks that a process that connects is of the cluster of this catalogue, as far as it knows its cluster. A restored cluster has the addresses of
/// the archive until its processes announce theirs, so it may connect to the original, and what it saw is of logs of another lineage (K2).
///
/// # Errors
/// [`ErrorKind::Denied`] if not.
pub(crate) fn check_cluster(catalog: &Catalog, hello: &Hello) -> Result<()> {
    let (own, other) = (catalog.cluster(), &hello.cluster);
    match is_another(other, own) {
        true => {
            let what = format!(
                "it is of cluster {own}, this one of cluster {other}: check the address and the data directory"
            );
            Err(Error::new(ErrorKind::Denied, what))
        }
        false => Ok(()),
    }
}

fn is_another(other: &str, own: &str) -> bool {
    !other.is_empty() && !own.is_empty() && other != own
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
