//! Makes and changes spaces, for those who may.

use meta::Revision;
use meta::catalog::{Catalog, CatalogEditor, SpaceOptions};
use model::{Error, ErrorKind, Result};
use wire::cluster::policy_from_proto;
use wire::proto;

use super::Principal;
use super::accounts::check_space_admin;

/// How a space is to be made, with its name.
///
/// # Errors
/// [`ErrorKind::Invalid`] if there is no such policy.
pub(crate) fn space_options(create: proto::CreateSpace) -> Result<(String, SpaceOptions)> {
    let proto::CreateSpace { name, nodes, policy } = create;
    let policy = policy.map(policy_from_proto).transpose()?.unwrap_or_default();
    Ok((name, SpaceOptions { nodes, policy, ..SpaceOptions::default() }))
}

/// Changes a space, if whoever wants it may: when all know it.
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
    let nothing = || Error::new(ErrorKind::Invalid, "what is to change of the space is not said");
    let policy = policy_from_proto(policy.ok_or_else(nothing)?)?;
    Ok(editor.set_policy(&name, policy).await?.revision)
}
