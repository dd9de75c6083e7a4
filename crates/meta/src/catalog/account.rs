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
pub const NODE_CERTIFICATE_NAME: &str = "mortar-node";

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
    /// not be held up, and [`PasswordChecker`](super::PasswordChecker) bounds how many do it at once.
    #[must_use]
    pub fn has_password(&self, given: &str) -> bool {
        let known = self.password.as_deref().filter(|_| !self.disabled);
        password::verify(known, given)
    }

    /// Whether it may do everything, if it is let in.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        !self.disabled && self.groups.contains(ADMINISTRATORS)
    }
}

/// Whether somebody could still say who may do what if the users became these: nobody opens the doors again, and nobody is
/// locked out for good.
///
/// An administrator always stays, and one with a password: whether certificates are believed is known to servers alone. Who has
/// come by one (`certified`) has shown that they are. A cluster that had no such administrator before is left as it is.
///
/// # Errors
/// [`CatalogError::Invalid`] for a first user without a password, [`CatalogError::InUse`] for what would take the last one away.
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
        let why = "nobody could come in unless certificates are believed, which only a login by one shows: give it a password, \
                   and with its certificate take that away (`mortar user passwd --no-password`)";
        return Err(CatalogError::invalid("the password of the first user", "none", why));
    }
    if let Some(name) = is_lost(User::is_administrator) {
        return in_use(name, "the last administrator that may log in", "make another user an administrator first");
    }
    match is_lost(is_sure) {
        Some(name) if !certified => {
            let remedy = "give another administrator a password first, or do this as an administrator that comes by a certificate";
            in_use(name, "the last administrator with a password", remedy)
        }
        _ => Ok(()),
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
mod tests {
    use super::*;

    /// `A` and `a` are administrators with and without a password, `X` and `x` disabled ones, `u` is no administrator.
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
    fn an_administrator_who_can_come_in_always_stays() {
        for (before, after) in [("", "A"), ("Aa", "A"), ("AA", "Aa"), ("Au", "Aa"), ("AX", "Ax"), ("A", "Au")] {
            assert_eq!(refusal(before, after, false), None, "{before} to {after}");
        }
        for (before, after) in [("A", "a"), ("Aa", "aa"), ("Aa", "a"), ("Aa", "Xa"), ("Aau", "aau")] {
            assert!(refusal(before, after, false).is_some_and(|why| why.contains("password")), "{before} to {after}");
            assert_eq!(refusal(before, after, true), None, "certificates are believed: {before} to {after}");
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
    fn a_cluster_that_nobody_enters_by_password_goes_on_without() {
        for (before, after) in [("a", "aa"), ("aa", "a"), ("a", "au"), ("a", "aA"), ("x", "x")] {
            assert_eq!(refusal(before, after, false), None, "{before} to {after}");
        }
    }
}
