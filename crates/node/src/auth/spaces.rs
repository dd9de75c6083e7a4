//! Creates and changes spaces, for callers that may.

use meta::Revision;
use meta::catalog::{Catalog, CatalogEditor, SpaceOptions};
use model::{Error, ErrorKind, Result};
use wire::cluster::policy_from_proto;
use wire::proto;

use super::Principal;
use super::accounts::check_space_admin;

/// The name and options of a request to create a space.
///
/// # Errors
/// [`ErrorKind::Invalid`] if the policy is unknown.
pub(crate) fn space_options(create: proto::CreateSpace) -> Result<(String, SpaceOptions)> {
    let proto::CreateSpace { name, nodes, policy } = create;
    let policy = policy.map(policy_from_proto).transpose()?.unwrap_or_default();
    Ok((name, SpaceOptions { nodes, policy, ..SpaceOptions::default() }))
}

/// Removes a space, if `who` may. Returns the revision from which on it is gone.
///
/// # Errors
/// [`ErrorKind::Denied`]; as [`CatalogEditor::remove_space`].
pub(crate) async fn remove_space(
    editor: &CatalogEditor,
    catalog: &Catalog,
    who: &Principal,
    remove: proto::RemoveSpace,
) -> Result<Revision> {
    check_space_admin(who, catalog, &remove.name)?;
    Ok(editor.remove_space(&remove.name).await?.revision)
}

/// Changes a space, if `who` may. Returns the revision from which on the change is visible.
///
/// # Errors
/// [`ErrorKind::Denied`]; as [`CatalogEditor::set_policy`].
pub(crate) async fn set_space(
    editor: &CatalogEditor,
    catalog: &Catalog,
    who: &Principal,
    set: proto::SetSpace,
) -> Result<Revision> {
    let proto::SetSpace { name, policy } = set;
    check_space_admin(who, catalog, &name)?;
    let nothing = || Error::new(ErrorKind::Invalid, "the request names no property of the space to change");
    let policy = policy_from_proto(policy.ok_or_else(nothing)?)?;
    Ok(editor.set_policy(&name, policy).await?.revision)
}
