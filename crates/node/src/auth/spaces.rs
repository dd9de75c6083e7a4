//! Creates and changes spaces, for callers that may.

use meta::Revision;
use meta::catalog::{Catalog, CatalogEditor, Space, SpaceChange, SpaceOptions};
use model::{Error, ErrorKind, Result};
use wire::cluster::{policy_from_proto, policy_to_proto};
use wire::proto;
use wire::proto::usage::Limit;

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

/// Removes a space with all that is in it, or takes a removal back that was not ended, if `who` may. Returns the revision from which on
/// that is so.
///
/// # Errors
/// [`ErrorKind::Denied`]; [`ErrorKind::Unsupported`] if the space must be empty, which only bricks know; as
/// [`CatalogEditor::remove_space`].
pub(crate) async fn remove_space(
    editor: &CatalogEditor,
    catalog: &Catalog,
    who: &Principal,
    remove: proto::RemoveSpace,
) -> Result<Revision> {
    check_space_admin(who, catalog, &remove.name)?;
    if remove.cancel {
        return Ok(editor.cancel_space_removal(&remove.name).await?.revision);
    }
    if remove.only_if_empty {
        let what = "this is a meta-server, which does not know whether a space has objects: ask a peer server";
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    Ok(editor.remove_space(&remove.name).await?.revision)
}

/// Checks that a space accepts changes.
///
/// # Errors
/// [`ErrorKind::Denied`] if it is read-only.
pub(crate) fn check_writable(space: &Space) -> Result<()> {
    if !space.read_only {
        return Ok(());
    }
    let name = &space.name;
    let what = format!("space {name:?} is read-only: `mortar space set {name} --read-only false` changes that");
    Err(Error::new(ErrorKind::Denied, what))
}

/// Changes a space, if `who` may. Returns the revision from which on the change is visible.
///
/// # Errors
/// [`ErrorKind::Denied`]; as [`CatalogEditor::change_space`].
pub(crate) async fn set_space(
    editor: &CatalogEditor,
    catalog: &Catalog,
    who: &Principal,
    set: proto::SetSpace,
) -> Result<Revision> {
    let proto::SetSpace { name, policy, max_bytes, max_objects, read_only } = set;
    if max_bytes.is_some() || max_objects.is_some() {
        // A quota bounds what the users of the space take, so its administrators do not set it.
        who.check_administrator(Some(catalog))?;
    }
    check_space_admin(who, catalog, &name)?;
    let limit = |limit: Option<Limit>| limit.map(|limit| limit.value);
    let policy = policy.map(policy_from_proto).transpose()?;
    let change = SpaceChange { policy, max_bytes: limit(max_bytes), max_objects: limit(max_objects), read_only };
    if change == SpaceChange::default() {
        return Err(Error::new(ErrorKind::Invalid, "the request names no property of the space to change"));
    }
    Ok(editor.change_space(&name, change).await?.revision)
}

/// A space, for a listing.
pub(crate) fn space_to_proto(space: &Space) -> proto::Space {
    proto::Space {
        space: space.id.0.into(),
        name: space.name.clone(),
        policy: Some(policy_to_proto(space.policy) as i32),
        max_bytes: space.quota.max_bytes,
        max_objects: space.quota.max_objects,
        removing: space.removals.space.is_some(),
        read_only: space.read_only,
        clone_of: space.clone_of.as_ref().map(|origin| origin.space.clone()),
        cloned_ms: space.clone_of.as_ref().map_or(0, |origin| origin.at_ms),
    }
}
