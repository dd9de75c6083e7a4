//! Users and groups.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::entry::Record;
use super::error::CatalogError;
use super::{names, password};
use crate::limits;
use crate::plant::{Bug, planted};

/// The group whose members have every permission. It always exists.
pub const ADMINISTRATORS: &str = "administrators";

/// The name in the certificates of a cluster's processes. No user can have it.
pub const NODE_CERTIFICATE_NAME: &str = "mortar-node";

/// A user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its name.
    pub name: String,
    /// The argon2id hash of the password, in the PHC format. With `None` the user logs in with a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// The groups of the user.
    #[serde(default)]
    pub groups: BTreeSet<String>,
    /// Whether the user cannot log in.
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
    /// Whether a password is the user's. Takes some tens of milliseconds of CPU time: do not call it on an I/O thread.
    /// [`PasswordChecker`](super::PasswordChecker) bounds how many checks run at the same time.
    #[must_use]
    pub fn has_password(&self, given: &str) -> bool {
        let known = self.password.as_deref().filter(|_| !self.disabled);
        password::verify(known, given)
    }

    /// Whether the user is an administrator and can log in.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        !self.disabled && self.groups.contains(ADMINISTRATORS)
    }
}

/// Checks that an administrator who can log in remains if the users change from `before` to `after`.
///
/// One of them must have a password, because only the servers know whether they accept certificates. An administrator who has
/// logged in with a certificate (`certified`) has shown that they do. The check passes if `before` had no such administrator.
///
/// # Errors
/// [`CatalogError::Invalid`] for a first user without a password, [`CatalogError::InUse`] if no such administrator would remain.
pub(super) fn check_administrator_remains(
    before: &[User],
    after: &[User],
    certified: bool,
) -> Result<(), CatalogError> {
    let is_lost = |stays: fn(&User) -> bool| {
        let last = before.iter().find(|user| stays(user)).map(|user| user.name.as_str());
        last.filter(|_| !after.iter().any(stays))
    };
    let in_use = |name: &str, by: &str, remedy| {
        Err(CatalogError::InUse { what: "user", name: name.to_owned(), by: format!("the cluster, as {by}"), remedy })
    };
    let is_sure = |user: &User| user.is_administrator() && user.password.is_some();
    if before.is_empty() && !after.iter().any(is_sure) {
        let why = "without one, the user could log in only if the servers accept certificates: give it a password, log in with \
                   its certificate, and then remove the password (`mortar user passwd --no-password`)";
        return Err(CatalogError::invalid("the password of the first user", "none", why));
    }
    if let Some(name) = is_lost(User::is_administrator) {
        return in_use(name, "the last administrator who can log in", "make another user an administrator first");
    }
    match is_lost(is_sure) {
        Some(name) if !certified && !planted(Bug::LastPasswordLost) => {
            let remedy = "give another administrator a password first, or log in with an administrator's certificate";
            in_use(name, "the last administrator with a password", remedy)
        }
        _ => Ok(()),
    }
}

/// Omits the hash of the password, which must not be logged.
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
        names::check_user(&self.name)?;
        if self.groups.len() > limits::GROUPS {
            return Err(CatalogError::TooMany { what: "groups of a user", limit: limits::GROUPS as u64 });
        }
        self.groups.iter().try_for_each(|group| names::check_group(group))?;
        self.password.as_deref().map_or(Ok(()), password::check_hash)
    }
}

impl Record for Group {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_group(&self.name)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `A` and `a` are administrators with and without a password, `X` and `x` disabled ones, `u` is not an administrator.
    fn users(kinds: &str) -> Vec<User> {
        let user = |kind: char| User {
            name: kind.to_string(),
            password: kind.is_uppercase().then(|| "a hash".to_owned()),
            groups: (kind != 'u').then(|| ADMINISTRATORS.to_owned()).into_iter().collect(),
            disabled: matches!(kind, 'X' | 'x'),
        };
        kinds.chars().map(user).collect()
    }

    fn refusal(before: &str, after: &str, certified: bool) -> Option<String> {
        let checked = check_administrator_remains(&users(before), &users(after), certified);
        checked.err().map(|error| error.to_string())
    }

    #[test]
    pub(crate) fn an_administrator_who_can_come_in_always_stays() {
        for (before, after) in [("", "A"), ("Aa", "A"), ("AA", "Aa"), ("Au", "Aa"), ("AX", "Ax"), ("A", "Au")] {
            assert_eq!(refusal(before, after, false), None, "{before} to {after}");
        }
        for (before, after) in [("A", "a"), ("Aa", "aa"), ("Aa", "a"), ("Aa", "Xa"), ("Aau", "aau")] {
            assert!(refusal(before, after, false).is_some_and(|why| why.contains("password")), "{before} to {after}");
            assert_eq!(refusal(before, after, true), None, "certificates count: {before} to {after}");
        }
        for (before, after) in [("A", ""), ("A", "u"), ("A", "X"), ("AX", "X"), ("a", "x"), ("a", "u")] {
            for certified in [false, true] {
                let why = refusal(before, after, certified);
                assert!(why.is_some_and(|why| why.contains("last administrator")), "{before} to {after}");
            }
        }
    }

    #[test]
    fn the_first_user_has_a_password_also_if_a_certificate_is_shown() {
        for certified in [false, true] {
            assert!(refusal("", "a", certified).is_some_and(|why| why.contains("give it a password")));
        }
    }

    #[test]
    fn cluster_without_passwords_can_stay_without() {
        for (before, after) in [("a", "aa"), ("aa", "a"), ("a", "au"), ("a", "aA"), ("x", "x")] {
            assert_eq!(refusal(before, after, false), None, "{before} to {after}");
        }
    }
}
