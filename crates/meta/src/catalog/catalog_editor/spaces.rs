//! Operations on object spaces.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{FailurePolicy, NodeId, SpaceId};
use tracing::warn;

use crate::{Key, KeyChange, Prefix};

use super::{CatalogEditor, Edited, Result, edit};
use crate::catalog::account::{Group, User};
use crate::catalog::catalog_draft::CatalogDraft;
use crate::catalog::entry::{self, Path};
use crate::catalog::error::CatalogError;
use crate::catalog::ident::{BrickId, Epoch};
use crate::catalog::member::{BrickRecord, Liveness, Storage};
use crate::catalog::names;
use crate::catalog::placement::{self, NODES_PER_RANGE, NodePlacement, PlacementMap, PlacementRange};
use crate::catalog::space::{
    Grantee, Permission, Permissions, Quota, Removals, RemovedSpace, Space, SpaceChange, SpaceOptions,
};
use crate::limits;
use crate::plant::{Bug, planted};

pub(super) const SPACE: &str = "space";

impl CatalogEditor {
    /// Creates a space, with its logical nodes spread evenly over the live bricks.
    ///
    /// # Errors
    /// [`CatalogError::Exists`], [`CatalogError::NoBricks`], [`CatalogError::Invalid`] for its name or a number of nodes,
    /// [`CatalogError::TooMany`].
    pub async fn create_space(&self, name: &str, options: SpaceOptions) -> Result<Edited<Space>> {
        names::check_space(name)?;
        if options.nodes.is_some_and(|nodes| !(1..=limits::NODES).contains(&nodes)) {
            let (given, why) = (options.nodes.unwrap_or(0), format!("it must be 1 to {}", limits::NODES));
            return Err(CatalogError::invalid("the number of a space's logical nodes", given, why));
        }
        let path = Path::Space(name.to_owned());
        edit!(self, |draft| {
            if draft.get::<Space>(&path).await?.is_some() {
                return Err(CatalogError::Exists { what: SPACE, name: name.to_owned() });
            }
            let epoch = Epoch(draft.touch(&Path::PlacementMap).await?);
            let (bricks, storage) = serving_bricks(&draft, options.storage).await?;
            let nodes = options.nodes.unwrap_or_else(|| placement::default_nodes(bricks.len()));
            let id = draft.reserve_numbers("spaces", 1, SpaceId::MAX.0.into()).await?;
            let first = draft.reserve_numbers("nodes", nodes.into(), u64::from(NodeId::MAX.0) - 1).await?;
            // The limits of the reservations are those of the types.
            let (id, first_node) = (SpaceId(id as u16), NodeId(first as u32));
            let load = read_placement_map(&draft).await?.load();
            let placed = placement::assign(nodes, &bricks, &load);
            let placed = placed.into_iter().map(|brick| NodePlacement { brick, epoch, moves: 0, moving: None });
            put_placements(&mut draft, id, first_node, &placed.collect::<Vec<_>>())?;
            let (name, policy, permissions) = (name.to_owned(), options.policy, Permissions::default());
            let (quota, removals) = (Quota::default(), Removals::default());
            let (read_only, clone_of) = (false, None);
            let space = Space {
                id,
                name,
                first_node,
                nodes,
                storage,
                policy,
                quota,
                removals,
                read_only,
                clone_of,
                permissions,
            };
            draft.put(&path, &space)?;
            space
        })
    }

    /// Removes a space with its classes and indexes. Bricks remove its objects, now or when they are back. Its number and those of its
    /// logical nodes are never given again.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn remove_space(&self, name: &str) -> Result<Edited<Space>> {
        self.remove_space_if(name, |_| Ok(())).await
    }

    /// Removes a space that passes a check, in the write that removes it.
    pub(super) async fn remove_space_if(
        &self,
        name: &str,
        check: impl Fn(&Space) -> Result<()>,
    ) -> Result<Edited<Space>> {
        names::check_space(name)?;
        let path = Path::Space(name.to_owned());
        let removed: Result<Edited<Space>> = edit!(self, |draft| {
            let space: Space = draft.require(&path, SPACE, name).await?;
            check(&space)?;
            draft.touch(&Path::PlacementMap).await?;
            for part in 0..space.nodes.div_ceil(NODES_PER_RANGE) {
                draft.remove(&Path::PlacementRange(space.id, part))?;
            }
            let record = RemovedSpace { name: space.name.clone(), first_node: space.first_node, nodes: space.nodes };
            draft.put(&Path::RemovedSpace(space.id), &record)?;
            draft.remove(&path)?;
            space
        });
        let removed = removed?;
        // The schema of a removed space is not read, so what an error leaves of it does no harm.
        if let Err(error) = self.remove_schema(removed.value.id).await {
            warn!(%error, space = name, "the classes of a removed space are still in the catalogue");
        }
        Ok(removed)
    }

    /// Removes the classes and indexes of a space.
    pub(super) async fn remove_schema(&self, space: SpaceId) -> Result<()> {
        for prefix in [entry::indexes(space)?, entry::classes(space)?, entry::all_versions(space)?] {
            let keys: Vec<Key> = self.store().read(prefix).await?.entries.into_iter().map(|(key, _)| key).collect();
            for keys in keys.chunks(limits::CHANGES) {
                let changes = keys.iter().cloned().map(KeyChange::remove).collect();
                // A write that expects nothing has no conflict.
                let _ = self.store().write(Vec::new(), changes).await?;
            }
        }
        let _ = self.store().write(Vec::new(), vec![KeyChange::remove(Path::Schema(space).key()?)]).await?;
        Ok(())
    }

    /// Sets the failure policy of a space.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn set_policy(&self, space: &str, policy: FailurePolicy) -> Result<Edited<Space>> {
        self.change_space(space, SpaceChange { policy: Some(policy), ..SpaceChange::default() }).await
    }

    /// Changes the failure policy and the quota of a space, and whether it is read-only.
    ///
    /// # Errors
    /// [`CatalogError::Missing`].
    pub async fn change_space(&self, space: &str, change: SpaceChange) -> Result<Edited<Space>> {
        let path = Path::Space(space.to_owned());
        let SpaceChange { policy, max_bytes, max_objects, read_only } = change;
        edit!(self, |draft| {
            let mut record: Space = draft.require(&path, SPACE, space).await?;
            record.policy = policy.unwrap_or(record.policy);
            record.quota.max_bytes = max_bytes.unwrap_or(record.quota.max_bytes);
            record.quota.max_objects = max_objects.unwrap_or(record.quota.max_objects);
            record.read_only = read_only.unwrap_or(record.read_only);
            draft.put(&path, &record)?;
            record
        })
    }

    /// Sets the permission of a user or a group in a space; `None` removes it.
    ///
    /// # Errors
    /// [`CatalogError::Missing`] if there is no such space, user or group.
    pub async fn grant(&self, space: &str, to: Grantee<'_>, permission: Option<Permission>) -> Result<Edited<Space>> {
        let path = Path::Space(space.to_owned());
        edit!(self, |draft| {
            draft.touch(&Path::Accounts).await?;
            let mut record: Space = draft.require(&path, SPACE, space).await?;
            let (name, of) = match to {
                Grantee::User(name) => (name, &mut record.permissions.users),
                Grantee::Group(name) => (name, &mut record.permissions.groups),
            };
            match permission {
                Some(permission) => {
                    match to {
                        Grantee::User(_) => {
                            drop(draft.require::<User>(&Path::User(name.to_owned()), "user", name).await?)
                        }
                        Grantee::Group(_) => {
                            drop(draft.require::<Group>(&Path::Group(name.to_owned()), "group", name).await?)
                        }
                    }
                    of.insert(name.to_owned(), permission);
                }
                None => drop(of.remove(name)),
            }
            draft.put(&path, &record)?;
            record
        })
    }
}

/// Writes where the logical nodes of a new space are.
pub(super) fn put_placements(
    draft: &mut CatalogDraft<'_>,
    space: SpaceId,
    first_node: NodeId,
    placements: &[NodePlacement],
) -> Result<()> {
    for (part, nodes) in (0..).zip(placements.chunks(NODES_PER_RANGE as usize)) {
        let range = PlacementRange { first: NodeId(first_node.0 + part * NODES_PER_RANGE), nodes: nodes.to_vec() };
        draft.put(&Path::PlacementRange(space, part), &range)?;
    }
    Ok(())
}

/// The bricks that there are, for a draft that touches the placement map.
pub(super) async fn read_bricks(draft: &CatalogDraft<'_>) -> Result<BTreeSet<BrickId>> {
    let bricks = draft.scan::<BrickRecord>(Prefix::new("bricks/")?).await?;
    Ok(bricks.into_iter().map(|(_, brick)| brick.id).collect())
}

/// The bricks that serve and can get logical nodes, with the given storage; by default durable ones if there are any.
async fn serving_bricks(draft: &CatalogDraft<'_>, storage: Option<Storage>) -> Result<(BTreeSet<BrickId>, Storage)> {
    let bricks = draft.scan::<BrickRecord>(Prefix::new("bricks/")?).await?;
    let alive = draft.scan::<Liveness>(Prefix::new("alive/bricks/")?).await?;
    let serving: BTreeSet<BrickId> =
        alive.iter().filter(|(_, alive)| alive.serves()).filter_map(|(path, _)| brick_of(path)).collect();
    let candidates = || {
        bricks
            .iter()
            .map(|(_, brick)| brick)
            .filter(|brick| serving.contains(&brick.id) && (!brick.leaving || planted(Bug::DrainingBrickAssigned)))
    };
    let has_durable = candidates().any(|brick| brick.storage == Storage::Durable);
    let (requested, is_any_alive) = (storage, alive.iter().any(|(path, _)| brick_of(path).is_some()));
    let storage = storage.unwrap_or(if has_durable { Storage::Durable } else { Storage::Memory });
    let chosen: BTreeSet<BrickId> =
        candidates().filter(|brick| brick.storage == storage).map(|brick| brick.id).collect();
    if chosen.is_empty() {
        let needed = match requested {
            _ if !is_any_alive => String::new(),
            Some(storage) => format!(" that keeps objects {}", storage.adverb()),
            None => " that can get logical nodes".to_owned(),
        };
        return Err(CatalogError::NoBricks { needed });
    }
    Ok((chosen, storage))
}

fn brick_of(path: &Path) -> Option<BrickId> {
    match path {
        Path::AliveBrick(id) => Some(*id),
        _ => None,
    }
}

/// The placement map, for a draft that touches it.
pub(super) async fn read_placement_map(draft: &CatalogDraft<'_>) -> Result<PlacementMap> {
    let mut map = PlacementMap::default();
    for (path, sheet) in draft.scan::<PlacementRange>(Prefix::new("placement/")?).await? {
        if let Path::PlacementRange(space, part) = path {
            map.ranges.insert(sheet.first.0, (space, part, Arc::new(sheet)));
        }
    }
    Ok(map)
}
