//! Users and groups.

use std::collections::BTreeSet;

use model::{Error, ErrorKind};

use crate::Prefix;

use super::{Edited, Editor, Result, edit};
use crate::catalog::account::{ADMINISTRATORS, Group, User};
use crate::catalog::draft::Draft;
use crate::catalog::error::CatalogError;
use crate::catalog::path::Path;
use crate::catalog::space::Space;
use crate::catalog::{names, password};

const USER: &str = "user";
const GROUP: &str = "group";

impl Editor {
    /// Makes a user. Without a password it logs in with a certificate.
    ///
    /// # Errors
    /// [`CatalogError::Exists`], [`CatalogError::Missing`] for a group, [`CatalogError::Invalid`] for the name or the password.
    pub async fn create_user(&self, name: &str, password: Option<&str>, groups: &[&str]) -> Result<Edited<User>> {
        names::user(name)?;
        let hash = hash(password).await?;
        let path = Path::User(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            if draft.get::<User>(&path).await?.is_some() {
                return Err(CatalogError::Exists { what: USER, name: name.to_owned() });
            }
            let groups = known_groups(&mut draft, groups).await?;
            let user = User { name: name.to_owned(), password: hash.clone(), groups, disabled: false };
            draft.put(&path, &user)?;
            user
        })
    }

    /// Gives a user another password, or none.
    ///
    /// # Errors
    /// [`CatalogError::Missing`], [`CatalogError::Invalid`] for the password.
    pub async fn set_password(&self, user: &str, password: Option<&str>) -> Result<Edited<User>> {
        let hash = hash(password).await?;
        self.change_user(user, |user| user.password.clone_from(&hash)).await
    }

    /// Says whether a user may log in.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn set_disabled(&self, user: &str, disabled: bool) -> Result<Edited<User>> {
        self.change_user(user, |user| user.disabled = disabled).await
    }

    /// Says which groups a user is a member of.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] for the user or a group.
    pub async fn set_groups(&self, user: &str, groups: &[&str]) -> Result<Edited<User>> {
        names::user(user)?;
        let path = Path::User(user.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            let mut record: User = draft.need(&path, USER, user).await?;
            record.groups = known_groups(&mut draft, groups).await?;
            draft.put(&path, &record)?;
            record
        })
    }

    async fn change_user(&self, name: &str, change: impl Fn(&mut User)) -> Result<Edited<User>> {
        names::user(name)?;
        let path = Path::User(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            let mut user: User = draft.need(&path, USER, name).await?;
            change(&mut user);
            draft.put(&path, &user)?;
            user
        })
    }

    /// Removes a user.
    ///
    /// # Errors
    /// [`CatalogError::InUse`] while a space gives it permissions: whoever gets the name later would have them.
    pub async fn remove_user(&self, name: &str) -> Result<Edited<()>> {
        names::user(name)?;
        let path = Path::User(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            draft.need::<User>(&path, USER, name).await?;
            check_ungranted(&draft, USER, name, |space| space.permissions.users.contains_key(name)).await?;
            draft.remove(&path)?;
        })
    }

    /// Makes a group.
    ///
    /// # Errors
    /// [`CatalogError::Exists`], [`CatalogError::Invalid`] for the name.
    pub async fn create_group(&self, name: &str) -> Result<Edited<Group>> {
        names::group(name)?;
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
    /// [`CatalogError::InUse`] while it has members, or a space gives it permissions.
    pub async fn remove_group(&self, name: &str) -> Result<Edited<()>> {
        names::group(name)?;
        let path = Path::Group(name.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            draft.need::<Group>(&path, GROUP, name).await?;
            let users = draft.scan::<User>(Prefix::new("users/")?).await?;
            if let Some((_, user)) = users.iter().find(|(_, user)| user.groups.contains(name)) {
                let (name, by) = (name.to_owned(), format!("user {:?}", user.name));
                return Err(CatalogError::InUse { what: GROUP, name, by, remedy: "take its members out first" });
            }
            check_ungranted(&draft, GROUP, name, |space| space.permissions.groups.contains_key(name)).await?;
            draft.remove(&path)?;
        })
    }
}

/// Hashes a password where that holds nobody up.
async fn hash(given: Option<&str>) -> Result<Option<String>> {
    let Some(given) = given.map(str::to_owned) else { return Ok(None) };
    password::check(&given)?;
    let hashed = tokio::task::spawn_blocking(move || password::hash(&given)).await;
    let ending = |_| Error::new(ErrorKind::Unavailable, "the process ends while a password is being hashed");
    hashed.map_err(ending)?.map(Some)
}

async fn known_groups(draft: &mut Draft<'_>, groups: &[&str]) -> Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    for group in groups {
        names::group(group)?;
        if *group != ADMINISTRATORS {
            draft.need::<Group>(&Path::Group((*group).to_owned()), GROUP, group).await?;
        }
        known.insert((*group).to_owned());
    }
    Ok(known)
}

async fn check_ungranted(
    draft: &Draft<'_>,
    what: &'static str,
    name: &str,
    is_granted: impl Fn(&Space) -> bool,
) -> Result<()> {
    let spaces = draft.scan::<Space>(Prefix::new("spaces/")?).await?;
    match spaces.iter().find(|(_, space)| is_granted(space)) {
        Some((_, space)) => {
            let (name, by) = (name.to_owned(), format!("the permissions of space {:?}", space.name));
            Err(CatalogError::InUse { what, name, by, remedy: "take those away first" })
        }
        None => Ok(()),
    }
}
