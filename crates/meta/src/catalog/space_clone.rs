//! What the catalogue knows of a space at the moment of a cut, for its clone.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::{Class, FieldType, NodeId, SpaceMap, SpaceNodes};

use super::Catalog;
use super::entry::{self, Path};
use super::error::CatalogError;
use super::ident::BrickId;
use super::index::{Index, IndexState};
use super::job::{Job, JobKind, JobState, JobWorker};
use super::placement::NodePlacement;
use super::schema::Schema;
use super::space::Space;
use crate::{Key, MetaSnapshot};

type Result<T, E = CatalogError> = std::result::Result<T, E>;

/// A space at one moment: its properties, where its logical nodes are, and its classes and indexes.
#[derive(Clone, Debug)]
pub struct SpaceSnapshot {
    /// The space and its clone.
    pub map: SpaceMap,
    /// The space.
    pub(super) space: Space,
    /// The placement of each logical node of the space, in order.
    pub(super) placements: Vec<NodePlacement>,
    /// The classes and indexes of the clone, and the counters that number them.
    pub(super) schema: Vec<(Key, Bytes)>,
}

impl SpaceSnapshot {
    /// Takes what the job of a clone needs from a snapshot of the catalogue.
    ///
    /// # Errors
    /// [`CatalogError::WrongJobState`] if the job is not running, or not claimed by this worker; [`CatalogError::Missing`] if the space was removed;
    /// [`CatalogError::Moving`] if a logical node is being moved; as [`check_clonable`]; if an entry is damaged.
    pub fn new(state: &MetaSnapshot, job: &Job, worker: JobWorker) -> Result<Self> {
        let JobKind::Clone { space: source, clone, first_node, .. } = job.kind else {
            return Err(CatalogError::invalid("a job", job.id, "it makes no clone"));
        };
        let catalog = Catalog::load(state);
        // A worker that has lost the job must not begin another attempt: the clone may be complete.
        let known = catalog.job(job.id).filter(|known| known.state == JobState::Running);
        if known.is_none() || catalog.job_part(job.id, 0).worker != Some(worker) {
            let state = known.map_or("not running any more", |_| "worked on by another process").to_owned();
            return Err(CatalogError::WrongJobState { job: job.id.0, state, remedy: "leave it" });
        }
        let missing = || CatalogError::missing("space", source.0);
        let space = Space::clone(catalog.space_by_id(source).ok_or_else(missing)?);
        check_clonable(&catalog.schema(source))?;
        let place = |node: NodeId| catalog.node_placement(node).cloned().ok_or_else(missing);
        let placements = space.node_ids().map(place).collect::<Result<Vec<_>>>()?;
        if let Some((node, _)) = space.node_ids().zip(&placements).find(|(_, place)| place.moving.is_some()) {
            return Err(CatalogError::Moving { node });
        }
        let from = SpaceNodes { space: source, first_node: space.first_node };
        let map = SpaceMap::new(from, SpaceNodes { space: clone, first_node }, space.nodes)?;
        Ok(Self { schema: cloned_schema(state, &map)?, map, space, placements })
    }

    /// The logical nodes of the space, by the brick that serves them.
    #[must_use]
    pub fn nodes_by_brick(&self) -> BTreeMap<BrickId, Vec<NodeId>> {
        let mut nodes: BTreeMap<BrickId, Vec<NodeId>> = BTreeMap::new();
        for (node, place) in self.space.node_ids().zip(&self.placements) {
            nodes.entry(place.brick).or_default().push(node);
        }
        nodes
    }
}

/// Checks that a clone can have all indexes of a space.
///
/// # Errors
/// [`CatalogError::Unclonable`] if a unique index has a reference: which logical node keeps its values is computed from them, and the clone's
/// references are others.
pub fn check_clonable(schema: &Schema) -> Result<()> {
    let has_reference = |index: &Index| {
        let class = schema.class(index.class);
        let fields =
            class.into_iter().flat_map(|class| index.fields.iter().filter_map(|field| class.field_by_number(*field)));
        fields.into_iter().any(|field| matches!(field.field_type, FieldType::Reference(_)))
    };
    // An index that is not ready is not cloned.
    let kept = |index: &&Arc<Index>| index.unique && index.state == IndexState::Ready;
    match schema.indexes().filter(kept).find(|index| has_reference(index)) {
        Some(index) => Err(CatalogError::Unclonable { index: index.name.clone() }),
        None => Ok(()),
    }
}

/// The entries of the classes and indexes of a space, and of their counters, as the clone has them.
fn cloned_schema(state: &MetaSnapshot, map: &SpaceMap) -> Result<Vec<(Key, Bytes)>> {
    let (from, to) = (map.source().space, map.target().space);
    let counters = [entry::class_counter, entry::index_counter].map(|counter| (counter(from), counter(to)));
    let mut cloned = Vec::new();
    for (key, found) in &state.entries {
        let class = || map_class(map, entry::decode(key, &found.value)?);
        let (path, value) = match Path::parse(key) {
            Some(Path::Class(space, name)) if space == from => (Path::Class(to, name), class()?),
            Some(Path::Version(space, number, version)) if space == from => {
                (Path::Version(to, number, version), class()?)
            }
            Some(Path::Index(space, name)) if space == from => {
                let index = Index { job: None, ..entry::decode(key, &found.value)? };
                // Bricks forget what they have of an index that is not known.
                if index.state != IndexState::Ready {
                    continue;
                }
                (Path::Index(to, name), entry::encode(&index)?)
            }
            Some(Path::Counter(name)) => {
                let Some((_, counter)) = counters.iter().find(|(counter, _)| *counter == name) else { continue };
                (Path::Counter(counter.clone()), found.value.clone())
            }
            _ => continue,
        };
        cloned.push((path.key()?, value));
    }
    Ok(cloned)
}

/// The entry of a class whose defaults refer to objects of the clone.
fn map_class(map: &SpaceMap, mut class: Class) -> Result<Bytes> {
    for field in &mut class.fields {
        field.default = field.default.take().map(|value| map.value(value));
        field.missing = field.missing.take().map(|value| map.value(value));
    }
    entry::encode(&class)
}
