//! Users and groups.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::{limits, names, password};

/// The group whose members may do everything: with users, spaces, servers, and in every space. It is always there.
pub const ADMINISTRATORS: &str = "administrators";

/// Whom the certificates of a cluster's processes are issued to: no user has this name.
pub const MEMBER: &str = "mortar-node";

/// A user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its name.
    pub name: String,
    /// What its password is checked against: argon2id in PHC's form. `None`: it has no password, and logs in with a
    /// certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The groups that it is a member of.
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// Whether it may not log in.
    #[serde(default)]
    pub disabled: bool,
}

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
}

impl User {
    /// Whether a password is the user's. Takes some tens of milliseconds of CPU time on purpose: not for threads that must
    /// not be held up, and [`Verifier`](super::Verifier) bounds how many do it at once.
    #[must_use]
    pub fn has_password(&self, given: &str) -> bool {
        let known = self.password.as_deref().filter(|_| !self.disabled);
        password::verify(known, given)
    }
}

/// Without the password's hash: it has no business in a log.
impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = if self.password.is_some() { "set" } else { "none" };
        let mut shown = f.debug_struct("User");
        shown.field("name", &self.name).field("password", &password).field("groups", &self.groups);
        shown.field("disabled", &self.disabled).finish()
    }
}

impl Record for User {
    fn check(&self) -> Result<(), CatalogError> {
        names::user(&self.name)?;
        if self.groups.len() > limits::GROUPS {
            return Err(CatalogError::TooMany { what: "groups of a user", limit: limits::GROUPS as u64 });
        }
        self.groups.iter().try_for_each(|group| names::group(group))?;
        self.password.as_deref().map_or(Ok(()), password::check_hash)
    }
}

impl Record for Group {
    fn check(&self) -> Result<(), CatalogError> {
        names::group(&self.name)
    }
}
