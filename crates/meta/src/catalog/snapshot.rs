//! The whole catalogue at one revision, in memory.
//!
//! A [`Catalog`] is immutable. The next revision is another [`Catalog`] that shares all unchanged parts. Readers therefore see one
//! consistent state for as long as they hold it, and reading takes no lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Class, NodeId, SpaceId};

use crate::catalogue_move::CatalogueMove;
use crate::opening::{ForcedPosition, OpeningHistory};
use crate::plant::{Bug, planted};
use crate::{ChangedKey, Key, MetaEntry, MetaSnapshot, Revision};

use super::account::{Group, User};
use super::entry::{self, Path, Record};
use super::error::CatalogError;
use super::ident::{BrickId, Epoch, JobId, PeerId, StartNumber};
use super::index::Index;
use super::job::{Job, JobPart};
use super::member::{BrickOpening, BrickRecord, Counter, Liveness, PeerRecord, ServerId, Storage};
use super::parameters::Parameters;
use super::placement::{self, NodePlacement, PlacementMap, PlacementRange, PlannedMove};
use super::schema::Schema;
use super::space::{Permission, RemovedSpace, Space};

/// The name of the epoch of the placement map among the counters.
pub(super) const PLACEMENT_EPOCH: &str = "map";

/// The whole catalogue at one revision.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    revision: Revision,
    parameters: Option<Arc<Parameters>>,
    bricks: Arc<BTreeMap<BrickId, CatalogMember<BrickRecord>>>,
    peers: Arc<BTreeMap<PeerId, CatalogMember<PeerRecord>>>,
    openings: Arc<BTreeMap<BrickId, Arc<BrickOpening>>>,
    own_openings: Arc<OpeningHistory>,
    moved: Option<Arc<CatalogueMove>>,
    counters: Arc<BTreeMap<String, u64>>,
    spaces: Arc<Spaces>,
    removed_spaces: Arc<BTreeMap<SpaceId, Arc<RemovedSpace>>>,
    schemas: Arc<BTreeMap<SpaceId, Arc<SpaceSchema>>>,
    users: Arc<BTreeMap<String, Arc<User>>>,
    groups: Arc<BTreeMap<String, Arc<Group>>>,
    jobs: Arc<BTreeMap<JobId, Arc<Job>>>,
    job_parts: Arc<BTreeMap<(JobId, u32), Arc<JobPart>>>,
    placement_map: Arc<PlacementMap>,
    /// Entries that cannot be read, and why.
    invalid_entries: Arc<BTreeMap<Key, String>>,
}

/// A brick or a peer server, and whether it is alive.
#[derive(Clone, Debug)]
pub struct CatalogMember<T> {
    /// Its record; `None` for a server that is alive and was removed.
    pub entry: Option<Arc<T>>,
    /// Present while it is alive.
    pub alive: Option<Liveness>,
}

impl<T> Default for CatalogMember<T> {
    fn default() -> Self {
        Self { entry: None, alive: None }
    }
}

#[derive(Clone, Debug, Default)]
struct Spaces {
    by_name: BTreeMap<String, Arc<Space>>,
    by_id: BTreeMap<SpaceId, Arc<Space>>,
}

/// The schema of a space, and the entries that it is derived from.
#[derive(Clone, Debug, Default)]
struct SpaceSchema {
    classes: BTreeMap<String, Arc<Class>>,
    indexes: BTreeMap<String, Arc<Index>>,
    schema: Arc<Schema>,
    invalid_classes: Vec<String>,
}

// ---------------------------------------------------------------------------------------------- lookups

impl Catalog {
    /// The revision of the catalogue.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The parameters of the cluster.
    ///
    /// # Errors
    /// [`CatalogError::NotSetUp`].
    pub fn parameters(&self) -> Result<&Arc<Parameters>, CatalogError> {
        self.parameters.as_ref().ok_or(CatalogError::NotSetUp)
    }

    /// The number of the cluster; empty if the catalogue is not set up.
    #[must_use]
    pub fn cluster(&self) -> &str {
        self.parameters.as_ref().map_or("", |parameters| &parameters.cluster)
    }

    /// A brick, alive or not.
    #[must_use]
    pub fn brick(&self, id: BrickId) -> Option<&CatalogMember<BrickRecord>> {
        self.bricks.get(&id).filter(|member| member.entry.is_some())
    }

    /// All bricks by number.
    pub fn bricks(&self) -> impl Iterator<Item = (&Arc<BrickRecord>, Option<&Liveness>)> {
        self.bricks.values().filter_map(|member| Some((member.entry.as_ref()?, member.alive.as_ref())))
    }

    /// What is known of the openings of a brick's store; `None` before the first.
    #[must_use]
    pub fn opening(&self, id: BrickId) -> Option<&BrickOpening> {
        self.openings.get(&id).map(|opening| &**opening)
    }

    /// The openings of the catalogue itself.
    #[must_use]
    pub fn own_openings(&self) -> &OpeningHistory {
        &self.own_openings
    }

    /// Where the catalogue was moved to; `None` unless it is sealed.
    #[must_use]
    pub fn catalogue_move(&self) -> Option<&CatalogueMove> {
        self.moved.as_deref()
    }

    /// The last opening of the catalogue with its revision, for witnesses; `None` if no meta-server has opened it.
    #[must_use]
    pub fn forced_position(&self) -> Option<ForcedPosition> {
        Some(ForcedPosition { opening: self.own_openings.last()?, position: self.revision.0 })
    }

    /// The next number of each counter, and the epoch of the placement map as `map`.
    #[must_use]
    pub fn counters(&self) -> &Arc<BTreeMap<String, u64>> {
        &self.counters
    }

    /// A peer server, alive or not.
    #[must_use]
    pub fn peer(&self, id: PeerId) -> Option<&CatalogMember<PeerRecord>> {
        self.peers.get(&id).filter(|member| member.entry.is_some())
    }

    /// All peer servers by number.
    pub fn peers(&self) -> impl Iterator<Item = (&Arc<PeerRecord>, Option<&Liveness>)> {
        self.peers.values().filter_map(|member| Some((member.entry.as_ref()?, member.alive.as_ref())))
    }

    /// The space with this name.
    #[must_use]
    pub fn space(&self, name: &str) -> Option<&Arc<Space>> {
        self.spaces.by_name.get(name)
    }

    /// The space with this number.
    #[must_use]
    pub fn space_by_id(&self, id: SpaceId) -> Option<&Arc<Space>> {
        self.spaces.by_id.get(&id)
    }

    /// All spaces by name.
    pub fn spaces(&self) -> impl Iterator<Item = &Arc<Space>> {
        self.spaces.by_name.values()
    }

    /// All spaces that were removed, by number.
    pub fn removed_spaces(&self) -> impl Iterator<Item = &RemovedSpace> {
        self.removed_spaces.values().map(|space| &**space)
    }

    /// The classes and indexes of a space.
    #[must_use]
    pub fn schema(&self, space: SpaceId) -> Arc<Schema> {
        self.schemas.get(&space).map(|known| known.schema.clone()).unwrap_or_default()
    }

    /// A user.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// All users by name.
    pub fn users(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// Whether clients need not log in: there are no users, including users whose entry cannot be read.
    #[must_use]
    pub fn allows_anonymous(&self) -> bool {
        self.users.is_empty() && !self.invalid_entries.keys().any(|key| matches!(Path::parse(key), Some(Path::User(_))))
    }

    /// All groups by name, without [`ADMINISTRATORS`](super::ADMINISTRATORS).
    pub fn groups(&self) -> impl Iterator<Item = &Arc<Group>> {
        self.groups.values()
    }

    /// Whether a user has every permission.
    #[must_use]
    pub fn is_administrator(&self, user: &User) -> bool {
        user.is_administrator()
    }

    /// The permission of a user in a space.
    #[must_use]
    pub fn permission(&self, user: &User, space: &Space) -> Option<Permission> {
        if user.disabled && !planted(Bug::DisabledUserPermitted) {
            return None;
        }
        if self.is_administrator(user) {
            return Some(Permission::Admin);
        }
        let groups = user.groups.iter().filter(|group| self.groups.contains_key(*group));
        let by_group = groups.filter_map(|group| space.permissions.groups.get(group));
        by_group.chain(space.permissions.users.get(&user.name)).max().copied()
    }

    /// All jobs by number.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// A job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Arc<Job>> {
        self.jobs.get(&id)
    }

    /// A part of a job; one that no process has worked on yet is empty.
    #[must_use]
    pub fn job_part(&self, id: JobId, part: u32) -> Arc<JobPart> {
        self.job_parts.get(&(id, part)).cloned().unwrap_or_default()
    }

    /// The parts of a job that a process has worked on.
    pub fn job_parts(&self, id: JobId) -> impl Iterator<Item = (u32, &Arc<JobPart>)> {
        self.job_parts.range((id, 0)..=(id, u32::MAX)).map(|((_, part), found)| (*part, found))
    }

    /// Whether this start of a server is alive.
    #[must_use]
    pub fn is_alive(&self, server: ServerId, start: StartNumber) -> bool {
        let alive = match server {
            ServerId::Brick(id) => self.bricks.get(&id).and_then(|member| member.alive.as_ref()),
            ServerId::Peer(id) => self.peers.get(&id).and_then(|member| member.alive.as_ref()),
        };
        alive.is_some_and(|alive| alive.start == start)
    }

    /// The placement map.
    #[must_use]
    pub fn placement_map(&self) -> &Arc<PlacementMap> {
        &self.placement_map
    }

    /// The placement of a logical node.
    #[must_use]
    pub fn node_placement(&self, node: NodeId) -> Option<&NodePlacement> {
        self.placement_map.lookup(node)
    }

    /// The space that a logical node belongs to.
    #[must_use]
    pub fn space_of(&self, node: NodeId) -> Option<&Arc<Space>> {
        let (space, _) = self.placement_map.range_of(node)?;
        self.space_by_id(space)
    }

    /// Entries that cannot be read, with the reason. Their last readable values stay in use. A newer program may have written
    /// them.
    pub fn invalid_entries(&self) -> impl Iterator<Item = (String, &str)> {
        let entries = self.invalid_entries.iter().map(|(key, why)| (key.to_string(), why.as_str()));
        let orphan = |space: SpaceId, name: &str| Path::Class(space, name.to_owned()).to_string();
        let classes = self.schemas.iter().flat_map(move |(space, known)| {
            known
                .invalid_classes
                .iter()
                .map(move |name| (orphan(*space, name), "its parents do not exist, or form a cycle"))
        });
        entries.chain(classes)
    }

    /// The smallest set of moves that spread every space evenly over the live bricks that are not being drained and have the
    /// storage of the space. Nodes that are moving are counted at their destination.
    #[must_use]
    pub fn spread(&self) -> Vec<PlannedMove> {
        self.spread_over(|_| true)
    }

    /// The moves that empty a brick and spread every space as evenly as possible over the others.
    #[must_use]
    pub fn spread_without(&self, brick: BrickId) -> Vec<PlannedMove> {
        let mut moves = self.spread_over(|other| other != brick);
        moves.retain(|one| one.from == brick);
        moves
    }

    fn spread_over(&self, stays: impl Fn(BrickId) -> bool) -> Vec<PlannedMove> {
        let mut load = self.placement_map.load();
        let mut moves = Vec::new();
        for space in self.spaces.by_id.values() {
            let mut bricks = self.candidates(space.storage);
            bricks.retain(|brick| stays(*brick));
            let mut served: BTreeMap<BrickId, Vec<NodeId>> = BTreeMap::new();
            let mut moving = BTreeSet::new();
            for node in space.node_ids() {
                let Some(placed) = self.node_placement(node) else { continue };
                let nodes = served
                    .entry(if planted(Bug::SpreadIgnoresMoves) { placed.brick } else { placed.destination() })
                    .or_default();
                if placed.moving.is_some() {
                    // At the front, because nodes are taken from the end.
                    nodes.insert(0, node);
                    moving.insert(node);
                } else {
                    nodes.push(node);
                }
            }
            moves.extend(
                placement::spread(&served, &bricks, &mut load).into_iter().filter(|one| !moving.contains(&one.node)),
            );
        }
        moves
    }

    fn candidates(&self, storage: Storage) -> BTreeSet<BrickId> {
        let fits = |brick: &BrickRecord, alive: Option<&Liveness>| {
            alive.is_some_and(Liveness::serves) && !brick.leaving && brick.storage == storage
        };
        self.bricks().filter(|(brick, alive)| fits(brick, *alive)).map(|(brick, _)| brick.id).collect()
    }
}

// ---------------------------------------------------------------------------------------------- updates

impl Catalog {
    /// The catalogue of a snapshot of its store.
    #[must_use]
    pub fn load(state: &MetaSnapshot) -> Self {
        let mut catalog = Self::default();
        let entries = state.entries.iter().map(|(key, entry)| (key, Some(entry)));
        catalog.apply_entries(state.revision, entries);
        catalog
    }

    /// Applies a write.
    pub(super) fn apply(&mut self, revision: Revision, changes: &[ChangedKey]) {
        self.apply_entries(revision, changes.iter().map(|one| (&one.key, one.entry.as_ref())));
    }

    fn apply_entries<'a>(
        &mut self,
        revision: Revision,
        entries: impl Iterator<Item = (&'a Key, Option<&'a MetaEntry>)>,
    ) {
        let mut schemas = BTreeSet::new();
        for (key, entry) in entries {
            let Some(path) = Path::parse(key) else { continue };
            let learned = self.apply_entry(&path, key, entry, &mut schemas);
            match learned {
                Ok(()) if self.invalid_entries.contains_key(key) => {
                    drop(Arc::make_mut(&mut self.invalid_entries).remove(key))
                }
                Ok(()) => {}
                Err(why) => drop(Arc::make_mut(&mut self.invalid_entries).insert(key.clone(), why.to_string())),
            }
        }
        for space in schemas {
            if let Some(known) = Arc::make_mut(&mut self.schemas).get_mut(&space) {
                let known = Arc::make_mut(known);
                let (schema, flawed) = Schema::new(known.classes.values().cloned(), known.indexes.clone());
                (known.schema, known.invalid_classes) = (Arc::new(schema), flawed);
            }
        }
        self.revision = revision;
    }

    fn apply_entry(
        &mut self,
        path: &Path,
        key: &Key,
        entry: Option<&MetaEntry>,
        schemas: &mut BTreeSet<SpaceId>,
    ) -> Result<(), CatalogError> {
        match path {
            Path::Parameters => self.parameters = decode(key, entry)?,
            Path::Brick(id) => {
                let record = decode(key, entry)?;
                set_member(Arc::make_mut(&mut self.bricks), *id, |member| member.entry = record);
            }
            Path::Peer(id) => {
                let record = decode(key, entry)?;
                set_member(Arc::make_mut(&mut self.peers), *id, |member| member.entry = record);
            }
            Path::Opening(id) => {
                let openings = Arc::make_mut(&mut self.openings);
                match decode(key, entry)? {
                    Some(record) => drop(openings.insert(*id, record)),
                    None => drop(openings.remove(id)),
                }
            }
            Path::AliveBrick(id) => {
                let alive = decode::<Liveness>(key, entry)?.map(Arc::unwrap_or_clone);
                set_member(Arc::make_mut(&mut self.bricks), *id, |member| member.alive = alive);
            }
            Path::AlivePeer(id) => {
                let alive = decode::<Liveness>(key, entry)?.map(Arc::unwrap_or_clone);
                set_member(Arc::make_mut(&mut self.peers), *id, |member| member.alive = alive);
            }
            Path::Space(name) => {
                let record = decode::<Space>(key, entry)?;
                let spaces = Arc::make_mut(&mut self.spaces);
                if let Some(before) = spaces.by_name.remove(name) {
                    spaces.by_id.remove(&before.id);
                }
                if let Some(space) = record {
                    spaces.by_id.insert(space.id, space.clone());
                    spaces.by_name.insert(name.clone(), space);
                }
            }
            Path::RemovedSpace(space) => {
                let removed = Arc::make_mut(&mut self.removed_spaces);
                match decode(key, entry)? {
                    Some(record) => drop(removed.insert(*space, record)),
                    None => drop(removed.remove(space)),
                }
                Arc::make_mut(&mut self.schemas).remove(space);
            }
            Path::Class(space, _) | Path::Index(space, _) if self.removed_spaces.contains_key(space) => {}
            Path::Class(space, name) => {
                let record = decode(key, entry)?;
                set(&mut self.space_schema(*space).classes, name, record);
                schemas.insert(*space);
            }
            Path::Index(space, name) => {
                let record = decode(key, entry)?;
                set(&mut self.space_schema(*space).indexes, name, record);
                schemas.insert(*space);
            }
            Path::User(name) => set(Arc::make_mut(&mut self.users), name, decode(key, entry)?),
            Path::Group(name) => set(Arc::make_mut(&mut self.groups), name, decode(key, entry)?),
            Path::Job(id) => set_entry(Arc::make_mut(&mut self.jobs), *id, decode(key, entry)?),
            Path::JobPart(id, part) => {
                set_entry(Arc::make_mut(&mut self.job_parts), (*id, *part), decode(key, entry)?);
            }
            Path::PlacementMap => {
                let counter = decode::<Counter>(key, entry)?.map_or(0, |counter| counter.next);
                Arc::make_mut(&mut self.placement_map).epoch = Epoch(counter);
                Arc::make_mut(&mut self.counters).insert(PLACEMENT_EPOCH.to_owned(), counter);
            }
            Path::PlacementRange(space, part) => {
                let record = decode::<PlacementRange>(key, entry)?;
                let map = Arc::make_mut(&mut self.placement_map);
                map.ranges.retain(|_, (of, number, _)| (&*of, &*number) != (space, part));
                if let Some(sheet) = record {
                    map.ranges.insert(sheet.first.0, (*space, *part, sheet));
                }
            }
            Path::CatalogueOpenings => {
                let history = decode::<OpeningHistory>(key, entry)?.map(Arc::unwrap_or_clone).unwrap_or_default();
                let from = entry.map_or(0, |entry| entry.revision.0);
                self.own_openings = Arc::new(history.with_last_from(from));
            }
            Path::Moved => self.moved = decode(key, entry)?,
            Path::Counter(name) => {
                let next = decode::<Counter>(key, entry)?.map_or(0, |counter| counter.next);
                Arc::make_mut(&mut self.counters).insert(name.clone(), next);
            }
            Path::ClientNumberKey | Path::Schema(_) | Path::Version(..) | Path::Accounts => {}
        }
        Ok(())
    }

    fn space_schema(&mut self, space: SpaceId) -> &mut SpaceSchema {
        Arc::make_mut(Arc::make_mut(&mut self.schemas).entry(space).or_default())
    }
}

fn decode<T: Record>(key: &Key, entry: Option<&MetaEntry>) -> Result<Option<Arc<T>>, CatalogError> {
    entry.map(|entry| entry::decode(key, &entry.value).map(Arc::new)).transpose()
}

fn set<T>(of: &mut BTreeMap<String, Arc<T>>, name: &str, record: Option<Arc<T>>) {
    match record {
        Some(record) => of.insert(name.to_owned(), record),
        None => of.remove(name),
    };
}

fn set_entry<K: Ord, T>(of: &mut BTreeMap<K, Arc<T>>, id: K, record: Option<Arc<T>>) {
    match record {
        Some(record) => of.insert(id, record),
        None => of.remove(&id),
    };
}

fn set_member<K: Ord + Copy, T>(
    of: &mut BTreeMap<K, CatalogMember<T>>,
    id: K,
    set: impl FnOnce(&mut CatalogMember<T>),
) {
    let member = of.entry(id).or_default();
    set(member);
    if member.entry.is_none() && member.alive.is_none() {
        of.remove(&id);
    }
}
