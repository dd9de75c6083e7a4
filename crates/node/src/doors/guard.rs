//! Finds out who somebody is.

use std::sync::Arc;

use meta::catalog::{Catalog, MEMBER, Verifier};
use model::{Error, Result};
use tracing::{info, warn};
use wire::handshake::Role;
use wire::proto::Hello;
use wire::transport::Peer;

use super::delay::{Delay, Place};
use super::who::{Login, denied, unknown};
use super::{Membership, Who};

/// Finds out who comes to a server.
pub(crate) struct Guard {
    membership: Membership,
    /// Others than those on this machine can reach the server, and nobody said that this is fine.
    is_exposed: bool,
    verifier: Verifier,
    delay: Delay,
}

/// What whoever is refused learns: the same whether or not there is such a user.
fn wrong() -> Error {
    denied("user or password is wrong")
}

impl Guard {
    pub(crate) fn new(membership: Membership, is_exposed: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { membership, is_exposed, verifier: Verifier::new(processors / 2), delay: Delay::default() }
    }

    /// Who it is that says `hello`, as of this catalogue; without one there is nobody to be known.
    ///
    /// # Errors
    /// [`Denied`](model::ErrorKind::Denied) if it is not who it says, or may not come in; takes a while then.
    pub(crate) async fn admit(&self, catalog: Option<Arc<Catalog>>, hello: &Hello, peer: &Peer) -> Result<Who> {
        let Some(catalog) = catalog else { return Ok(Who::Anyone) };
        let certified = peer.subject.as_ref().and_then(|subject| subject.common_name.as_deref());
        if certified == Some(MEMBER) && hello.user.is_empty() && hello.password.is_empty() {
            return Ok(Who::Member);
        }
        if is_member(hello) {
            return self.member(&catalog, hello, peer).await;
        }
        if catalog.is_open() {
            return self.anyone();
        }
        match certified {
            Some(name) if hello.password.is_empty() && [name, ""].contains(&hello.user.as_str()) => {
                by_certificate(&catalog, name)
            }
            _ if hello.user.is_empty() => Err(unknown()),
            _ => self.by_password(&catalog, hello, peer).await,
        }
    }

    /// Somebody, as long as the doors are open.
    fn anyone(&self) -> Result<Who> {
        if self.is_exposed {
            return Err(denied(
                "this cluster has no users yet, and this server can be reached from other machines: create the first user \
                 on the machine of the meta-server",
            ));
        }
        Ok(Who::Anyone)
    }

    /// A process of the cluster that shows its secret.
    async fn member(&self, catalog: &Catalog, hello: &Hello, peer: &Peer) -> Result<Who> {
        let shown = !hello.password.is_empty();
        match &self.membership.secret {
            Some(secret) if shown => {
                let place = place(peer, MEMBER);
                self.delay.wait(&place).await;
                if secret.is(&hello.password) {
                    return Ok(Who::Member);
                }
                warn!(address = ?peer.address, "somebody shows a wrong cluster secret");
                self.delay.failed(&place).await;
                Err(denied("this is not the secret of this cluster: give all of its processes the same file"))
            }
            _ if catalog.is_open() => self.anyone(),
            None if shown => {
                Err(denied("this server was given no cluster secret: start it with --cluster-secret FILE"))
            }
            _ => Err(denied(format!(
                "this cluster has users, and its processes say who they are: give this one the cluster's secret \
                 (--cluster-secret FILE) or a certificate for {MEMBER}"
            ))),
        }
    }

    async fn by_password(&self, catalog: &Catalog, hello: &Hello, peer: &Peer) -> Result<Who> {
        let place = place(peer, &hello.user);
        self.delay.wait(&place).await;
        let user = catalog.user(&hello.user).cloned();
        let known = self.verifier.verify(user.clone(), hello.password.clone()).await?;
        let Some(user) = user.filter(|_| known) else {
            info!(user = hello.user, address = ?peer.address, "a login with a wrong user or password");
            self.delay.failed(&place).await;
            return Err(wrong());
        };
        // Only whoever knows the password learns this.
        if user.disabled {
            return Err(denied(format!("user {} is disabled: an administrator can change that", user.name)));
        }
        Ok(Who::User(Login::by_password(&user)))
    }
}

/// Whether somebody says that it is a process of the cluster, or shows a secret and no name: that of the cluster.
fn is_member(hello: &Hello) -> bool {
    let is_process = matches!(hello.role(), Role::Brick | Role::Peer | Role::Redirector);
    is_process || hello.user.is_empty() && !hello.password.is_empty()
}

/// The user that a certificate was issued to.
fn by_certificate(catalog: &Catalog, name: &str) -> Result<Who> {
    match catalog.user(name).filter(|user| !user.disabled) {
        Some(user) => Ok(Who::User(Login::by_certificate(user))),
        None => {
            Err(denied(format!("the certificate is for {name:?}, which is no user of this cluster that may log in")))
        }
    }
}

/// Where failures are counted: an IPv6 network of one customer is one place.
fn place(peer: &Peer, name: &str) -> Place {
    let address = peer.address.map(|address| match address.ip().to_canonical() {
        std::net::IpAddr::V6(ip) => std::net::Ipv6Addr::from(u128::from(ip) >> 64 << 64).into(),
        ip => ip,
    });
    (address, name.to_owned())
}

#[cfg(test)]
mod tests;
