//! Operations on users and groups.

use std::collections::BTreeSet;

use model::{Error, ErrorKind};
use wire::tasks;

use crate::Prefix;

use super::{CatalogEditor, Edited, Result, edit};
use crate::catalog::account::{self, ADMINISTRATORS, Group, User};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::entry::Path;
use crate::catalog::error::CatalogError;
use crate::catalog::space::Space;
use crate::catalog::{names, password};

const USER: &str = "user";
const GROUP: &str = "group";
const USERS: &str = "users/";

impl CatalogEditor {
    /// Creates a user. Without a password the user logs in with a certificate. The first user of a cluster becomes an
    /// administrator and needs a password; from then on every client must log in.
    ///
    /// # Errors
    /// [`CatalogError::Exists`], [`CatalogError::Missing`] for a group, [`CatalogError::Invalid`] for the name,
    /// [`CatalogError::PasswordLength`].
    pub async fn create_user(&self, name: &str, password: Option<&str>, groups: &[&str]) -> Result<Edited<User>> {
        names::check_user(name)?;
        self.create_user_hashed(name, hash(password).await?.as_deref(), groups).await
    }

    /// The same with a hash made by [`hash_password`](crate::catalog::hash_password).
    ///
    /// # Errors
    /// As [`CatalogEditor::create_user`]; [`CatalogError::Invalid`] if it is not such a hash.
    pub async fn create_user_hashed(&self, name: &str, hash: Option<&str>, groups: &[&str]) -> Result<Edited<User>> {
        names::check_user(name)?;
        hash.map_or(Ok(()), password::check_new_hash)?;
        let path = Path::User(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            if draft.get::<User>(&path).await?.is_some() {
                return Err(CatalogError::Exists { what: USER, name: name.to_owned() });
            }
            let mut groups = require_groups(&mut draft, groups).await?;
            if users(&draft).await?.is_empty() {
                groups.insert(ADMINISTRATORS.to_owned());
            }
            let user = User { name: name.to_owned(), password: hash.map(str::to_owned), groups, disabled: false };
            self.check_administrator_remains(&draft, name, Some(&user)).await?;
            draft.put(&path, &user)?;
            user
        })
    }

    /// Changes or removes the password of a user.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], [`CatalogError::PasswordLength`], [`CatalogError::InUse`] for that of the last
    /// administrator who has one.
    pub async fn set_password(&self, user: &str, password: Option<&str>) -> Result<Edited<User>> {
        self.set_password_hashed(user, hash(password).await?.as_deref()).await
    }

    /// The same with a hash made by [`hash_password`](crate::catalog::hash_password).
    ///
    /// # Errors
    /// As [`CatalogEditor::set_password`]; [`CatalogError::Invalid`] if it is not such a hash.
    pub async fn set_password_hashed(&self, user: &str, hash: Option<&str>) -> Result<Edited<User>> {
        hash.map_or(Ok(()), password::check_new_hash)?;
        self.change_user(user, |user| user.password = hash.map(str::to_owned)).await
    }

    /// Sets whether a user can log in.
    ///
    /// # Errors
    /// [`CatalogError::Missing`]; [`CatalogError::InUse`] for the last administrator.
    pub async fn set_disabled(&self, user: &str, disabled: bool) -> Result<Edited<User>> {
        self.change_user(user, |user| user.disabled = disabled).await
    }

    /// Adds a user to a group, or removes it.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] for the user or the group; [`CatalogError::InUse`] for the last administrator.
    pub async fn set_member(&self, group: &str, user: &str, is_member: bool) -> Result<Edited<User>> {
        names::check_user(user)?;
        let path = Path::User(user.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            let mut record: User = draft.require(&path, USER, user).await?;
            require_groups(&mut draft, &[group]).await?;
            match is_member {
                true => drop(record.groups.insert(group.to_owned())),
                false => drop(record.groups.remove(group)),
            }
            self.check_administrator_remains(&draft, user, Some(&record)).await?;
            draft.put(&path, &record)?;
            record
        })
    }

    /// Sets the groups of a user.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] for the user or a group; [`CatalogError::InUse`] for the last administrator.
    pub async fn set_groups(&self, user: &str, groups: &[&str]) -> Result<Edited<User>> {
        names::check_user(user)?;
        let path = Path::User(user.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            let mut record: User = draft.require(&path, USER, user).await?;
            record.groups = require_groups(&mut draft, groups).await?;
            self.check_administrator_remains(&draft, user, Some(&record)).await?;
            draft.put(&path, &record)?;
            record
        })
    }

    /// Checks that an administrator remains if this user is changed, or removed.
    async fn check_administrator_remains(
        &self,
        draft: &CatalogDraft<'_>,
        name: &str,
        user: Option<&User>,
    ) -> Result<()> {
        let before = users(draft).await?;
        let others = before.iter().filter(|other| other.name != name);
        let after: Vec<User> = others.chain(user).cloned().collect();
        account::check_administrator_remains(&before, &after, self.certified)
    }

    async fn change_user(&self, name: &str, change: impl Fn(&mut User)) -> Result<Edited<User>> {
        names::check_user(name)?;
        let path = Path::User(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            let mut user: User = draft.require(&path, USER, name).await?;
            change(&mut user);
            self.check_administrator_remains(&draft, name, Some(&user)).await?;
            draft.put(&path, &user)?;
            user
        })
    }

    /// Removes a user.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] while a space grants it permissions, which a later user of the same name would inherit; and for the
    /// last administrator.
    pub async fn remove_user(&self, name: &str) -> Result<Edited<()>> {
        names::check_user(name)?;
        let path = Path::User(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            draft.require::<User>(&path, USER, name).await?;
            check_no_grants(&draft, USER, name, |space| space.permissions.users.contains_key(name)).await?;
            self.check_administrator_remains(&draft, name, None).await?;
            draft.remove(&path)?;
        })
    }

    /// Creates a group.
    ///
    /// # Errors
    /// [`CatalogError::Exists`], [`CatalogError::Invalid`] for the name.
    pub async fn create_group(&self, name: &str) -> Result<Edited<Group>> {
        names::check_group(name)?;
        let path = Path::Group(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            if name == ADMINISTRATORS || draft.get::<Group>(&path).await?.is_some() {
                return Err(CatalogError::Exists { what: GROUP, name: name.to_owned() });
            }
            let group = Group { name: name.to_owned() };
            draft.put(&path, &group)?;
            group
        })
    }

    /// Removes a group.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] while it has members, or a space grants it permissions.
    pub async fn remove_group(&self, name: &str) -> Result<Edited<()>> {
        names::check_group(name)?;
        if name == ADMINISTRATORS {
            let why = "it is built in; `mortar group leave` removes members".to_owned();
            return Err(CatalogError::Invalid { what: "the group to remove", given: name.to_owned(), why });
        }
        let path = Path::Group(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            draft.require::<Group>(&path, GROUP, name).await?;
            let users = users(&draft).await?;
            if let Some(user) = users.iter().find(|user| user.groups.contains(name)) {
                let (name, by) = (name.to_owned(), format!("user {:?}", user.name));
                return Err(CatalogError::InUse { what: GROUP, name, by, remedy: "remove its members first" });
            }
            check_no_grants(&draft, GROUP, name, |space| space.permissions.groups.contains_key(name)).await?;
            draft.remove(&path)?;
        })
    }
}

/// The hash of a password: argon2id in the PHC format, with a random salt. Takes some tens of milliseconds of CPU time.
///
/// # Errors
/// [`CatalogError::PasswordLength`] for a password that is too short or too long.
pub fn hash_password(password: &str) -> Result<String> {
    password::hash(password)
}

/// Hashes a password on a blocking thread.
async fn hash(given: Option<&str>) -> Result<Option<String>> {
    let Some(given) = given.map(str::to_owned) else { return Ok(None) };
    password::check_password(&given)?;
    let hashed = tasks::spawn_blocking(move || password::hash(&given)).await;
    let ending = |_| Error::new(ErrorKind::Unavailable, "the process ends while a password is being hashed");
    hashed.map_err(ending)?.map(Some)
}

async fn users(draft: &CatalogDraft<'_>) -> Result<Vec<User>> {
    let users = draft.scan::<User>(Prefix::new(USERS)?).await?;
    Ok(users.into_iter().map(|(_, user)| user).collect())
}

async fn require_groups(draft: &mut CatalogDraft<'_>, groups: &[&str]) -> Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    for group in groups {
        names::check_group(group)?;
        if *group != ADMINISTRATORS {
            draft.require::<Group>(&Path::Group((*group).to_owned()), GROUP, group).await?;
        }
        known.insert((*group).to_owned());
    }
    Ok(known)
}

async fn check_no_grants(
    draft: &CatalogDraft<'_>,
    what: &'static str,
    name: &str,
    is_granted: impl Fn(&Space) -> bool,
) -> Result<()> {
    let spaces = draft.scan::<Space>(Prefix::new("spaces/")?).await?;
    match spaces.iter().find(|(_, space)| is_granted(space)) {
        Some((_, space)) => {
            let (name, by) = (name.to_owned(), format!("the permissions of space {:?}", space.name));
            Err(CatalogError::InUse { what, name, by, remedy: "revoke these permissions first" })
        }
        None => Ok(()),
    }
}
