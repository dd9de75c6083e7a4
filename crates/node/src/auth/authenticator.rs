//! Finds out who somebody is.

use std::sync::Arc;

use meta::catalog::{Catalog, NODE_CERTIFICATE_NAME, PasswordChecker};
use model::{Error, Result};
use tracing::{info, warn};
use wire::handshake::Role;
use wire::proto::Hello;
use wire::transport::RemoteEndpoint;

use super::login_throttle::{LoginSource, LoginThrottle};
use super::principal::{Login, denied, login_required_error};
use super::{ClusterCredentials, Principal};

/// Finds out who comes to a server.
pub(crate) struct Authenticator {
    membership: ClusterCredentials,
    /// Others than those on this machine can reach the server, and nobody said that this is fine.
    is_exposed: bool,
    verifier: PasswordChecker,
    throttle: LoginThrottle,
}

/// What whoever is refused learns: the same whether or not there is such a user.
fn wrong_credentials_error() -> Error {
    denied("user or password is wrong")
}

impl Authenticator {
    pub(crate) fn new(membership: ClusterCredentials, is_exposed: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            membership,
            is_exposed,
            verifier: PasswordChecker::new(processors / 2),
            throttle: LoginThrottle::default(),
        }
    }

    /// Who it is that says `hello`, as of this catalogue; without one there is nobody to be known.
    ///
    /// # Errors
    /// [`Denied`](model::ErrorKind::Denied) if it is not who it says, or may not come in; takes a while then.
    pub(crate) async fn admit(
        &self,
        catalog: Option<Arc<Catalog>>,
        hello: &Hello,
        peer: &RemoteEndpoint,
    ) -> Result<Principal> {
        let Some(catalog) = catalog else { return Ok(Principal::Anonymous) };
        let certified = peer.subject.as_ref().and_then(|subject| subject.common_name.as_deref());
        if certified == Some(NODE_CERTIFICATE_NAME) && hello.user.is_empty() && hello.password.is_empty() {
            return Ok(Principal::Member);
        }
        if is_member(hello) {
            return self.admit_member(&catalog, hello, peer).await;
        }
        if catalog.allows_anonymous() {
            return self.admit_anonymous();
        }
        match certified {
            Some(name) if hello.password.is_empty() && [name, ""].contains(&hello.user.as_str()) => {
                admit_by_certificate(&catalog, name)
            }
            _ if hello.user.is_empty() => Err(login_required_error()),
            _ => self.admit_by_password(&catalog, hello, peer).await,
        }
    }

    /// Somebody, as long as the doors are open.
    fn admit_anonymous(&self) -> Result<Principal> {
        if self.is_exposed {
            return Err(denied(
                "this cluster has no users yet, and this server can be reached from other machines: create the first user \
                 on the machine of the meta-server",
            ));
        }
        Ok(Principal::Anonymous)
    }

    /// A process of the cluster that shows its secret.
    async fn admit_member(&self, catalog: &Catalog, hello: &Hello, peer: &RemoteEndpoint) -> Result<Principal> {
        let shown = !hello.password.is_empty();
        match &self.membership.secret {
            Some(secret) if shown => {
                let place = login_source(peer, NODE_CERTIFICATE_NAME);
                self.throttle.wait(&place).await;
                if secret.matches(&hello.password) {
                    return Ok(Principal::Member);
                }
                warn!(address = ?peer.address, "somebody shows a wrong cluster secret");
                self.throttle.record_failure(&place).await;
                Err(denied("this is not the secret of this cluster: give all of its processes the same file"))
            }
            _ if catalog.allows_anonymous() => self.admit_anonymous(),
            None if shown => {
                Err(denied("this server was given no cluster secret: start it with --cluster-secret FILE"))
            }
            _ => Err(denied(format!(
                "this cluster has users, and its processes say who they are: give this one the cluster's secret \
                 (--cluster-secret FILE) or a certificate for {NODE_CERTIFICATE_NAME}"
            ))),
        }
    }

    async fn admit_by_password(&self, catalog: &Catalog, hello: &Hello, peer: &RemoteEndpoint) -> Result<Principal> {
        let place = login_source(peer, &hello.user);
        self.throttle.wait(&place).await;
        let user = catalog.user(&hello.user).cloned();
        let known = self.verifier.verify(user.clone(), hello.password.clone()).await?;
        let Some(user) = user.filter(|_| known) else {
            info!(user = hello.user, address = ?peer.address, "a login with a wrong user or password");
            self.throttle.record_failure(&place).await;
            return Err(wrong_credentials_error());
        };
        // Only whoever knows the password learns this.
        if user.disabled {
            return Err(denied(format!("user {} is disabled: an administrator can change that", user.name)));
        }
        Ok(Principal::User(Login::by_password(&user)))
    }
}

/// Whether somebody says that it is a process of the cluster, or shows a secret and no name: that of the cluster.
fn is_member(hello: &Hello) -> bool {
    let is_process = matches!(hello.role(), Role::Brick | Role::Peer | Role::Redirector);
    is_process || hello.user.is_empty() && !hello.password.is_empty()
}

/// The user that a certificate was issued to.
fn admit_by_certificate(catalog: &Catalog, name: &str) -> Result<Principal> {
    match catalog.user(name).filter(|user| !user.disabled) {
        Some(user) => Ok(Principal::User(Login::by_certificate(user))),
        None => {
            Err(denied(format!("the certificate is for {name:?}, which is no user of this cluster that may log in")))
        }
    }
}

/// Where failures are counted: an IPv6 network of one customer is one place.
fn login_source(peer: &RemoteEndpoint, name: &str) -> LoginSource {
    let address = peer.address.map(|address| match address.ip().to_canonical() {
        std::net::IpAddr::V6(ip) => std::net::Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
        ip => ip,
    });
    (address, name.to_owned())
}

#[cfg(test)]
mod tests;
