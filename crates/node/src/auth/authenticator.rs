//! Authenticates callers.

use std::sync::Arc;

use meta::catalog::{Catalog, NODE_CERTIFICATE_NAME, PasswordChecker};
use model::{Error, Result};
use tracing::{info, warn};
use wire::handshake::Role;
use wire::proto::Hello;
use wire::transport::{ConnectionSource, RemoteEndpoint};

use super::login_queue::LoginQueue;
use super::login_throttle::{AttemptKind, ClientKey, LoginAttempt, LoginThrottle};
use super::principal::{Login, denied_error, login_required_error};
use super::{ClusterCredentials, Principal};
use crate::plant::{Bug, planted};
use crate::server::{LogLimiter, OwnClients};

/// Authenticates the callers of one server.
pub(crate) struct Authenticator {
    credentials: ClusterCredentials,
    own_clients: Option<OwnClients>,
    /// Whether other machines can reach the server, and it was not started with `insecure`.
    is_exposed: bool,
    checker: PasswordChecker,
    queue: Arc<LoginQueue>,
    throttle: LoginThrottle,
    failure_log: LogLimiter,
}

/// The refusal of a wrong name or password. It does not tell which.
fn wrong_credentials_error() -> Error {
    denied_error("user or password is wrong")
}

impl Authenticator {
    pub(crate) fn new(credentials: ClusterCredentials, own_clients: Option<OwnClients>, is_exposed: bool) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let at_once = (processors / 2).max(1);
        Self {
            credentials,
            own_clients,
            is_exposed,
            checker: PasswordChecker::new(at_once),
            queue: LoginQueue::new(at_once),
            throttle: LoginThrottle::default(),
            failure_log: LogLimiter::default(),
        }
    }

    /// Authenticates the sender of `hello` by this catalogue. Without a catalogue every caller is anonymous.
    ///
    /// # Errors
    /// [`Denied`](model::ErrorKind::Denied) if the credentials are wrong or the caller is not allowed;
    /// [`Unavailable`](model::ErrorKind::Unavailable) if too many logins have failed, or too many are being checked.
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
        if hello.user.is_empty() && self.own_clients.as_ref().is_some_and(|own| own.matches(&hello.password)) {
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

    /// Admits an anonymous caller: the catalogue has no users.
    fn admit_anonymous(&self) -> Result<Principal> {
        if self.is_exposed {
            return Err(denied_error(
                "this cluster has no users yet, and this server can be reached from other machines: create the first user \
                 on the machine of the meta-server",
            ));
        }
        Ok(Principal::Anonymous)
    }

    /// Admits a process of the cluster by the cluster's secret.
    async fn admit_member(&self, catalog: &Catalog, hello: &Hello, peer: &RemoteEndpoint) -> Result<Principal> {
        let is_shown = !hello.password.is_empty();
        match &self.credentials.secret {
            Some(secret) if is_shown => {
                let mut attempt = self.begin_attempt(peer, NODE_CERTIFICATE_NAME, AttemptKind::ClusterSecret).await?;
                attempt.begin_check();
                if secret.matches(&hello.password) {
                    attempt.succeed();
                    return Ok(Principal::Member);
                }
                if let Some(suppressed) = self.failure_log.admit() {
                    warn!(address = %source(peer), suppressed, "a connection with a wrong cluster secret");
                }
                Err(denied_error("this is not the secret of this cluster: give all of its processes the same file"))
            }
            _ if catalog.allows_anonymous() => self.admit_anonymous(),
            None if is_shown => {
                Err(denied_error("this server was given no cluster secret: start it with --cluster-secret FILE"))
            }
            _ => Err(denied_error(format!(
                "this cluster has users, and its processes say who they are: give this one the cluster's secret \
                 (--cluster-secret FILE) or a certificate for {NODE_CERTIFICATE_NAME}"
            ))),
        }
    }

    async fn admit_by_password(&self, catalog: &Catalog, hello: &Hello, peer: &RemoteEndpoint) -> Result<Principal> {
        let user = catalog.user(&hello.user).cloned();
        let kind = AttemptKind::Password { user_exists: user.is_some() };
        let mut attempt = self.begin_attempt(peer, &hello.user, kind).await?;
        let permit = self.queue.acquire(source(peer), attempt.is_known()).await?;
        attempt.begin_check();
        let is_right = match self.checker.verify(user.clone(), hello.password.clone()).await {
            Ok(is_right) => is_right,
            Err(error) => {
                attempt.forgive();
                return Err(error);
            }
        };
        drop(permit);
        let Some(user) = user.filter(|_| is_right) else {
            if let Some(suppressed) = self.failure_log.admit() {
                info!(user = hello.user, address = %source(peer), suppressed, "a login with a wrong user or password");
            }
            return Err(wrong_credentials_error());
        };
        // Only callers that have the password learn this.
        if user.disabled && !planted(Bug::DisabledLogsIn) {
            attempt.forgive();
            return Err(denied_error(format!("user {} is disabled: an administrator can change that", user.name)));
        }
        attempt.succeed();
        Ok(Principal::User(Login::by_password(&user)))
    }

    async fn begin_attempt(&self, peer: &RemoteEndpoint, name: &str, kind: AttemptKind) -> Result<LoginAttempt<'_>> {
        let client = match &peer.subject {
            Some(subject) => ClientKey::Certificate(subject.name.clone()),
            None => ClientKey::Address(source(peer)),
        };
        let attempt = self.throttle.begin(client, name, kind).await;
        if let Err(error) = &attempt
            && let Some(suppressed) = self.failure_log.admit()
        {
            warn!(user = name, address = %source(peer), suppressed, %error, "a login is refused unchecked");
        }
        attempt
    }
}

/// Where a caller is. A connection that has ended has no address any more, and counts as one of this machine.
fn source(peer: &RemoteEndpoint) -> ConnectionSource {
    peer.address.map_or(ConnectionSource::Loopback, ConnectionSource::from)
}

/// Whether the caller is a process of the cluster by its role, or gives a password without a name: the cluster's secret.
pub(crate) fn is_member(hello: &Hello) -> bool {
    let is_process = matches!(hello.role(), Role::Brick | Role::Peer | Role::Redirector);
    is_process || hello.user.is_empty() && !hello.password.is_empty()
}

/// The user that a certificate was issued to.
pub(crate) fn admit_by_certificate(catalog: &Catalog, name: &str) -> Result<Principal> {
    match catalog.user(name).filter(|user| !user.disabled) {
        Some(user) => Ok(Principal::User(Login::by_certificate(user))),
        None => Err(denied_error(format!(
            "the certificate is for {name:?}, which is no user of this cluster that may log in"
        ))),
    }
}

#[cfg(test)]
mod tests;
