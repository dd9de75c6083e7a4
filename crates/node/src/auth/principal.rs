//! Principals: who an authenticated caller is, and what it may do.

use std::sync::Arc;

use meta::catalog::{Catalog, Permission, User};
use model::{Error, ErrorKind, Result};

use crate::plant::{Bug, planted};

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// An anonymous caller, while the catalogue has no users.
    Anonymous,
    /// A user of the catalogue.
    User(Login),
    /// A process of the cluster.
    Member,
}

/// A user and how it has authenticated.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    name: Arc<str>,
    /// The hash that its password was checked against; `None` if it came by a certificate. A user whose hash has changed since then
    /// has to log in again.
    password: Option<Arc<str>>,
}

impl Login {
    /// A login with the password of which the catalogue has the hash.
    pub(super) fn by_password(user: &User) -> Self {
        Self { name: user.name.as_str().into(), password: user.password.as_deref().map(Arc::from) }
    }

    /// A login with a certificate for the user's name.
    pub(super) fn by_certificate(user: &User) -> Self {
        Self { name: user.name.as_str().into(), password: None }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has authenticated by a certificate for its name.
    pub(super) fn has_certificate(&self) -> bool {
        self.password.is_none()
    }

    /// The user, if it could still log in in this way.
    fn user<'a>(&self, catalog: &'a Catalog) -> Result<&'a Arc<User>> {
        let name = &self.name;
        let gone = || denied_error(format!("user {name} may not log in any more"));
        let user = catalog.user(name).filter(|user| !user.disabled).ok_or_else(gone)?;
        let is_changed = self.password.is_some() && self.password.as_deref() != user.password.as_deref();
        if is_changed && !planted(Bug::OldPasswordStays) {
            return Err(denied_error(format!("the password of user {name} was changed: log in with the new one")));
        }
        Ok(user)
    }
}

/// Without the hash, which must not be logged.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Principal {
    /// A user that has proved its name by a certificate.
    #[cfg(test)]
    pub(crate) fn of_user(user: &User) -> Self {
        Self::User(Login::by_certificate(user))
    }

    /// Whether it would still be admitted.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(crate) fn check(&self, catalog: Option<&Catalog>) -> Result<()> {
        match (self, catalog) {
            (_, None) | (Self::Member, _) => Ok(()),
            (Self::Anonymous, Some(catalog)) if catalog.allows_anonymous() => Ok(()),
            (Self::Anonymous, _) => Err(login_required_error()),
            (Self::User(login), Some(catalog)) => login.user(catalog).map(drop),
        }
    }

    /// Its permission in a space; `None` if it has none.
    pub(crate) fn permission(&self, catalog: Option<&Catalog>, space: &str) -> Option<Permission> {
        match (self, catalog) {
            (_, None) | (Self::Member, _) => Some(Permission::Admin),
            (Self::Anonymous, Some(catalog)) => catalog.allows_anonymous().then_some(Permission::Admin),
            (Self::User(login), Some(catalog)) if planted(Bug::PermissionOfAnotherSpace) => {
                let user = login.user(catalog).ok()?;
                catalog.spaces().filter_map(|space| catalog.permission(user, space)).max()
            }
            (Self::User(login), Some(catalog)) => catalog.permission(login.user(catalog).ok()?, catalog.space(space)?),
        }
    }

    /// Checks a permission in a space.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`], which names the permission.
    pub(crate) fn check_permission(&self, needed: Permission, catalog: Option<&Catalog>, space: &str) -> Result<()> {
        if self.permission(catalog, space) >= Some(needed) {
            return Ok(());
        }
        self.check(catalog)?;
        Err(self.missing_permission_error(needed, space))
    }

    /// The refusal for a caller that may not know whether the space exists.
    pub(crate) fn space_not_visible_error(&self, space: &str) -> Error {
        denied_error(format!("{self} has no permission to read in space {space:?}, or there is none"))
    }

    /// The refusal for a caller without this permission.
    fn missing_permission_error(&self, needed: Permission, space: &str) -> Error {
        let needed = match needed {
            Permission::Read => "read",
            Permission::Write => "write",
            Permission::Admin => "change classes or permissions",
        };
        denied_error(format!("{self} has no permission to {needed} in space {space:?}: an administrator may grant it"))
    }

    /// Whether it is an administrator of a catalogue with users, or a process of the cluster: such connections may use the
    /// places that a server reserves. Anonymous callers may not, although they may do everything.
    pub(crate) fn is_privileged(&self, catalog: Option<&Catalog>) -> bool {
        match self {
            Self::Anonymous => false,
            Self::Member => true,
            Self::User(_) => self.check_administrator(catalog).is_ok(),
        }
    }

    /// The name of the user, if it is one.
    pub(crate) fn user_name(&self) -> Option<Arc<str>> {
        match self {
            Self::User(login) => Some(login.name.clone()),
            Self::Anonymous | Self::Member => None,
        }
    }

    /// Checks that it is an administrator.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(crate) fn check_administrator(&self, catalog: Option<&Catalog>) -> Result<()> {
        self.check(catalog)?;
        match (self, catalog) {
            (Self::User(login), Some(catalog)) if !is_administrator(catalog, login.user(catalog)?) => {
                Err(denied_error(format!("{self} is not an administrator, and only administrators may do this")))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Principal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anonymous => f.write_str("an anonymous caller"),
            Self::User(login) => write!(f, "user {}", login.name),
            Self::Member => f.write_str("a process of the cluster"),
        }
    }
}

fn is_administrator(catalog: &Catalog, user: &User) -> bool {
    let is_space_admin = || catalog.spaces().any(|space| catalog.permission(user, space) == Some(Permission::Admin));
    catalog.is_administrator(user) || planted(Bug::SpaceAdminIsAdministrator) && is_space_admin()
}

/// The refusal for a caller without credentials.
pub(super) fn login_required_error() -> Error {
    denied_error("this cluster has users: give the user as USER@ before the host of the URL, and the password")
}

pub(super) fn denied_error(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, what.into())
}
