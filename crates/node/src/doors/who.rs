//! Who somebody turned out to be, and what that allows.

use std::sync::Arc;

use meta::catalog::{Catalog, Permission, User};
use model::{Error, ErrorKind, Result};

/// Who somebody turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    /// Somebody, while the doors are open.
    Anyone,
    /// A user of the catalogue.
    User(Arc<str>),
    /// A process of the cluster.
    Member,
}

impl Who {
    /// The user, if it may still log in.
    fn user<'a>(name: &str, catalog: &'a Catalog) -> Result<&'a Arc<User>> {
        let gone = || denied(format!("user {name} may not log in any more"));
        catalog.user(name).filter(|user| !user.disabled).ok_or_else(gone)
    }

    /// Whether it would still be let in.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(crate) fn check(&self, catalog: Option<&Catalog>) -> Result<()> {
        match (self, catalog) {
            (_, None) | (Self::Member, _) => Ok(()),
            (Self::Anyone, Some(catalog)) if catalog.is_open() => Ok(()),
            (Self::Anyone, _) => Err(unknown()),
            (Self::User(name), Some(catalog)) => Self::user(name, catalog).map(drop),
        }
    }

    /// What it may do in a space; `None`: nothing.
    pub(crate) fn permission(&self, catalog: Option<&Catalog>, space: &str) -> Option<Permission> {
        match (self, catalog) {
            (_, None) | (Self::Member, _) => Some(Permission::Admin),
            (Self::Anyone, Some(catalog)) => catalog.is_open().then_some(Permission::Admin),
            (Self::User(name), Some(catalog)) => {
                catalog.permission(Self::user(name, catalog).ok()?, catalog.space(space)?)
            }
        }
    }

    /// Whether it may do something in a space.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`], with what it takes.
    pub(crate) fn may(&self, needed: Permission, catalog: Option<&Catalog>, space: &str) -> Result<()> {
        if self.permission(catalog, space) >= Some(needed) {
            return Ok(());
        }
        self.check(catalog)?;
        Err(self.lacks(needed, space))
    }

    /// That it may not even know whether there is such a space.
    pub(crate) fn finds_none(&self, space: &str) -> Error {
        denied(format!("{self} has no permission to read in space {space:?}, or there is none"))
    }

    /// That it may not do something in a space.
    fn lacks(&self, needed: Permission, space: &str) -> Error {
        let needed = match needed {
            Permission::Read => "read",
            Permission::Write => "write",
            Permission::Admin => "change classes or permissions",
        };
        denied(format!("{self} has no permission to {needed} in space {space:?}: an administrator may grant it"))
    }

    /// Whether it may do everything.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(crate) fn is_administrator(&self, catalog: Option<&Catalog>) -> Result<()> {
        self.check(catalog)?;
        match (self, catalog) {
            (Self::User(name), Some(catalog)) if !catalog.is_administrator(Self::user(name, catalog)?) => {
                Err(denied(format!("{self} is no administrator, and only those may do this")))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anyone => f.write_str("nobody in particular"),
            Self::User(name) => write!(f, "user {name}"),
            Self::Member => f.write_str("a process of the cluster"),
        }
    }
}

/// What whoever did not say who it is gets to hear.
pub(super) fn unknown() -> Error {
    denied("this cluster has users: say which you are, as in mortars://USER@HOST:PORT/SPACE, and the password")
}

pub(super) fn denied(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Denied, what.into())
}
