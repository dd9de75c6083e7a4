//! Lists and changes users, groups and permissions, for callers that may.

use meta::Revision;
use meta::catalog::{Catalog, CatalogEditor, Edited, Grantee, Permission, Space, User};
use model::{Error, ErrorKind, Result};
use wire::proto::account as proto;
use wire::proto::account::administer::Action;
use wire::proto::account::grant::To;

use super::Principal;
use super::principal::denied_error;

/// Executes an account request of `who`, if it may. Returns the result and the revision from which on it is visible.
///
/// # Errors
/// [`ErrorKind::Denied`]; as the operations of [`CatalogEditor`].
pub(crate) async fn administer(
    editor: &CatalogEditor,
    catalog: &Catalog,
    who: &Principal,
    wanted: proto::Administer,
) -> Result<(proto::Accounts, Revision)> {
    let action = wanted.action.ok_or_else(|| Error::new(ErrorKind::Invalid, "the request names no operation"))?;
    let certified = matches!(who, Principal::User(login) if login.has_certificate()).then(|| editor.with_certificate());
    let editor = certified.as_ref().unwrap_or(editor);
    match action {
        // Administrators of a space may do this for their space.
        Action::Grant(grant) => {
            check_space_admin(who, catalog, &grant.space)?;
            return self::grant(editor, grant).await;
        }
        Action::ListGrants(proto::Name { name }) => {
            check_space_admin(who, catalog, &name)?;
            let unknown = || Error::new(ErrorKind::NotFound, format!("there is no space {name:?}"));
            let grants = grants_to_proto(catalog.space(&name).ok_or_else(unknown)?);
            return Ok((proto::Accounts { grants, ..proto::Accounts::default() }, catalog.revision()));
        }
        Action::SetPassword(set) => return set_password(editor, catalog, who, set).await,
        _ => {}
    }
    who.check_administrator(Some(catalog))?;
    match action {
        Action::AddUser(proto::AddUser { name, hash, groups }) => {
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            user_answer(editor.create_user_hashed(&name, hash.as_deref(), &groups).await?)
        }
        Action::SetDisabled(set) => user_answer(editor.set_disabled(&set.user, set.disabled).await?),
        Action::SetMember(set) => user_answer(editor.set_member(&set.group, &set.user, set.is_member).await?),
        Action::RemoveUser(proto::Name { name }) => empty_answer(editor.remove_user(&name).await?.revision),
        Action::AddGroup(proto::Name { name }) => empty_answer(editor.create_group(&name).await?.revision),
        Action::RemoveGroup(proto::Name { name }) => empty_answer(editor.remove_group(&name).await?.revision),
        _ => Ok((all_accounts(catalog), catalog.revision())),
    }
}

/// Checks that `who` may change the permissions of a space.
pub(crate) fn check_space_admin(who: &Principal, catalog: &Catalog, space: &str) -> Result<()> {
    if catalog.space(space).is_none() {
        // Only administrators may learn that the space does not exist.
        return who.check_administrator(Some(catalog));
    }
    who.check_permission(Permission::Admin, Some(catalog), space)
}

async fn set_password(
    editor: &CatalogEditor,
    catalog: &Catalog,
    who: &Principal,
    set: proto::SetPassword,
) -> Result<(proto::Accounts, Revision)> {
    let user = match who {
        Principal::User(own) if set.user.is_empty() || set.user == own.name() => own.name().to_owned(),
        _ if set.user.is_empty() => return Err(denied_error("the request does not name the user of the password")),
        _ => {
            who.check_administrator(Some(catalog))?;
            set.user
        }
    };
    who.check(Some(catalog))?;
    user_answer(editor.set_password_hashed(&user, set.hash.as_deref()).await?)
}

async fn grant(editor: &CatalogEditor, grant: proto::Grant) -> Result<(proto::Accounts, Revision)> {
    let permission = match grant.permission() {
        proto::Permission::None => None,
        proto::Permission::Read => Some(Permission::Read),
        proto::Permission::Write => Some(Permission::Write),
        proto::Permission::Admin => Some(Permission::Admin),
    };
    let to = match &grant.to {
        Some(To::User(name)) => Grantee::User(name),
        Some(To::Group(name)) => Grantee::Group(name),
        None => return Err(Error::new(ErrorKind::Invalid, "the request names neither a user nor a group")),
    };
    let Edited { value: space, revision } = editor.grant(&grant.space, to, permission).await?;
    Ok((proto::Accounts { grants: grants_to_proto(&space), ..proto::Accounts::default() }, revision))
}

fn user_answer(edited: Edited<User>) -> Result<(proto::Accounts, Revision)> {
    let users = vec![user_to_proto(&edited.value)];
    Ok((proto::Accounts { users, ..proto::Accounts::default() }, edited.revision))
}

fn empty_answer(revision: Revision) -> Result<(proto::Accounts, Revision)> {
    Ok((proto::Accounts::default(), revision))
}

fn all_accounts(catalog: &Catalog) -> proto::Accounts {
    proto::Accounts {
        users: catalog.users().map(|known| user_to_proto(known)).collect(),
        groups: catalog.groups().map(|group| group.name.clone()).collect(),
        grants: catalog.spaces().flat_map(|space| grants_to_proto(space)).collect(),
    }
}

fn user_to_proto(user: &User) -> proto::User {
    proto::User {
        name: user.name.clone(),
        groups: user.groups.iter().cloned().collect(),
        disabled: user.disabled,
        has_password: user.password.is_some(),
    }
}

fn grants_to_proto(space: &Space) -> Vec<proto::Grant> {
    let users = space.permissions.users.iter().map(|(name, permission)| (To::User(name.clone()), *permission));
    let groups = space.permissions.groups.iter().map(|(name, permission)| (To::Group(name.clone()), *permission));
    let grant = |(to, permission)| {
        let permission = permission_to_proto(Some(permission));
        proto::Grant { space: space.name.clone(), to: Some(to), permission: permission.into() }
    };
    users.chain(groups).map(grant).collect()
}

/// A permission as the wire has it.
pub(crate) fn permission_to_proto(permission: Option<Permission>) -> proto::Permission {
    match permission {
        None => proto::Permission::None,
        Some(Permission::Read) => proto::Permission::Read,
        Some(Permission::Write) => proto::Permission::Write,
        Some(Permission::Admin) => proto::Permission::Admin,
    }
}
