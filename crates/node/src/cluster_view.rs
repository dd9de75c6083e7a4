//! A process's view of its cluster: where logical nodes are served, which spaces exist, and a pool of unique numbers.
//!
//! [`ClusterView::follow`] fills it from the catalogue and keeps it current. While the meta-server is unreachable, the
//! view stays as it is, and numbers come from the pool.

pub(crate) mod jobs;
pub(crate) mod members;
pub(crate) mod moves;
mod number_pool;
mod schema;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};
use meta::catalog::{Catalog, CatalogEditor, ClientNumberKey, Edited, Follower, SpaceOptions};
use meta::opening::Subject;
use meta::{MetaStore, Revision};
use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use tokio::sync::{OnceCell, watch};
use tracing::error;
use wire::tasks;
use wire::transport::Address;

use crate::node_placement::{BrickId, CurrentPlacement, PlacementSnapshot};
use crate::openings::WitnessTable;
use crate::process_clock::ProcessClock;
use number_pool::NumberPool;
use schema::SchemaCache;

pub use schema::QuerySchema;
pub(crate) use schema::{handle_schema_request, needs_definition};

/// An object space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceView {
    /// Its number.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Its logical nodes, in the order in which names are spread over them.
    pub nodes: Vec<NodeId>,
}

/// The first of some unique numbers, once they were taken.
pub type PendingNumbers = Pin<Box<dyn Future<Output = Result<u64>> + Send>>;

/// A process's view of its cluster.
pub struct ClusterView {
    /// Where logical nodes are served.
    pub placement: Arc<CurrentPlacement>,
    spaces: ArcSwap<BTreeMap<String, Arc<SpaceView>>>,
    number_source: Box<dyn Fn(u64) -> PendingNumbers + Send + Sync>,
    source: Option<CatalogSource>,
    client_number_key: OnceCell<ClientNumberKey>,
    schema_cache: SchemaCache,
    /// What this process saw of the logs of others.
    pub(crate) witnesses: Arc<WitnessTable>,
    /// The clock of the process.
    pub(crate) clock: Arc<ProcessClock>,
    /// Held while the view is updated.
    filling: Mutex<()>,
}

/// The catalogue that a view follows.
struct CatalogSource {
    editor: CatalogEditor,
    follower: Follower,
    number_pool: Arc<NumberPool>,
}

impl std::fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterView").field("placement", &self.placement).finish_non_exhaustive()
    }
}

impl ClusterView {
    /// An empty view without a catalogue. `numbers` takes a count of consecutive numbers that are never reused.
    pub fn new(numbers: impl Fn(u64) -> PendingNumbers + Send + Sync + 'static) -> Arc<Self> {
        let (placement, spaces) = (Arc::default(), ArcSwap::default());
        let schemas = SchemaCache::default();
        Arc::new(Self {
            placement,
            spaces,
            number_source: Box::new(numbers),
            source: None,
            client_number_key: OnceCell::new(),
            schema_cache: schemas,
            witnesses: WitnessTable::new(),
            clock: ProcessClock::of_catalogue(),
            filling: Mutex::default(),
        })
    }

    /// A view that follows a catalogue for its lifetime.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the catalogue cannot be read now; [`ErrorKind::NotFound`] if it has not been set up,
    /// [`ErrorKind::Unsupported`] if a newer program has set it up.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn follow(store: Arc<dyn MetaStore>) -> Result<Arc<Self>> {
        Self::follow_with(store, WitnessTable::new(), ProcessClock::of_catalogue()).await
    }

    /// As [`ClusterView::follow`], of a process that has this clock, and notes in `witnesses` what it sees of the logs of others.
    ///
    /// # Errors
    /// As [`ClusterView::follow`].
    ///
    /// # Panics
    /// As [`ClusterView::follow`].
    pub async fn follow_with(
        store: Arc<dyn MetaStore>,
        witnesses: Arc<WitnessTable>,
        clock: Arc<ProcessClock>,
    ) -> Result<Arc<Self>> {
        clock.begin_use();
        let editor = CatalogEditor::new(store.clone());
        witnesses.set_cluster(editor.parameters().await?.cluster);
        let seen = witnesses.clone();
        let seen = move || seen.of(Subject::Catalogue).last().map(|seen| seen.forced);
        let follower = Follower::start_after(store, seen).await?;
        let stock = NumberPool::new(editor.clone());
        let (placement, spaces) = (Arc::default(), ArcSwap::default());
        let taken = stock.clone();
        let numbers = move |count| {
            let stock = taken.clone();
            Box::pin(async move { stock.take(count).await }) as PendingNumbers
        };
        let (mut changed, catalogue) =
            (follower.subscribe(), Some(CatalogSource { editor, follower, number_pool: stock }));
        let schemas = SchemaCache::default();
        let filling = Mutex::default();
        let realm = Arc::new(Self {
            placement,
            spaces,
            number_source: Box::new(numbers),
            source: catalogue,
            client_number_key: OnceCell::new(),
            schema_cache: schemas,
            witnesses,
            clock,
            filling,
        });
        realm.update_from_catalog();
        let followed = Arc::downgrade(&realm);
        tasks::spawn(async move {
            while changed.changed().await.is_ok() {
                let Some(realm) = Weak::upgrade(&followed) else { return };
                realm.update_from_catalog();
            }
        });
        Ok(realm)
    }

    /// Replaces the spaces.
    pub fn set_spaces(&self, spaces: impl IntoIterator<Item = SpaceView>) {
        let spaces = spaces.into_iter().map(|space| (space.name.clone(), Arc::new(space)));
        self.spaces.store(Arc::new(spaces.collect()));
    }

    /// A space, by its name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], with the names that exist.
    pub fn space(&self, name: &str) -> Result<Arc<SpaceView>> {
        let spaces = self.spaces.load();
        spaces.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = spaces.keys().map(String::as_str).take(10).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            Error::new(ErrorKind::NotFound, format!("there is no space {name:?} here; there are: {known}"))
        })
    }

    /// All spaces, by name.
    #[must_use]
    pub fn spaces(&self) -> Vec<Arc<SpaceView>> {
        self.spaces.load().values().cloned().collect()
    }

    /// Takes `count` consecutive numbers that are never reused, and returns the first.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the pool is empty and the catalogue cannot be reached.
    pub async fn take_numbers(&self, count: u64) -> Result<u64> {
        (self.number_source)(count).await
    }

    /// Sets the key of client numbers of a view without a catalogue. One that is not set is random. The first key stays.
    pub fn set_client_number_key(&self, key: ClientNumberKey) {
        // An error means that there is a key.
        let _ = self.client_number_key.set(key);
    }

    /// The key by which all peer servers recognise the numbers that any of them has given to a client.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if it was not read yet and the catalogue cannot be reached.
    pub async fn client_number_key(&self) -> Result<&ClientNumberKey> {
        let read = async || match &self.source {
            Some(catalogue) => Ok(catalogue.editor.client_number_key().await?),
            None => Ok(ClientNumberKey::generate()),
        };
        self.client_number_key.get_or_try_init(read).await
    }

    // -------------------------------------------------------------------------------------------- the catalogue

    /// The latest known catalogue; `None` if this view has none.
    #[must_use]
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.source.as_ref().map(|catalogue| catalogue.follower.catalog())
    }

    /// The number of the cluster; empty without a catalogue.
    pub(crate) fn cluster(&self) -> String {
        self.witnesses.cluster().to_owned()
    }

    /// The same without counting references: for a moment only.
    pub(crate) fn load_catalog(&self) -> Option<Guard<Arc<Catalog>>> {
        self.source.as_ref().map(|catalogue| catalogue.follower.load())
    }

    /// Notifies of changes of the catalogue; `None` if this view has none.
    #[must_use]
    pub fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        self.source.as_ref().map(|catalogue| catalogue.follower.subscribe())
    }

    /// The editor of the catalogue.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this view has no catalogue.
    pub fn editor(&self) -> Result<&CatalogEditor> {
        self.source().map(|catalogue| &catalogue.editor)
    }

    /// Why the catalogue is not followed although a meta-server answers: it went back in time.
    pub(crate) fn catalogue_problem(&self) -> Option<String> {
        self.source.as_ref().and_then(|source| source.follower.problem())
    }

    /// What this process saw of the logs of others.
    #[must_use]
    pub fn witnesses(&self) -> &Arc<WitnessTable> {
        &self.witnesses
    }

    fn source(&self) -> Result<&CatalogSource> {
        let none = || Error::new(ErrorKind::Unsupported, "the cluster of this process has no catalogue");
        self.source.as_ref().ok_or_else(none)
    }

    /// Creates a space, and waits until this view has it.
    ///
    /// # Errors
    /// As [`CatalogEditor::create_space`].
    pub async fn create_space(&self, name: &str, options: SpaceOptions) -> Result<Arc<SpaceView>> {
        let catalogue = self.source()?;
        let Edited { revision, .. } = catalogue.editor.create_space(name, options).await?;
        self.wait_for_revision(revision).await?;
        self.space(name)
    }

    /// Waits until this view is as of this revision of the catalogue, or later.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this view has no catalogue, [`ErrorKind::Unavailable`] if the process ends.
    pub async fn wait_for_revision(&self, revision: Revision) -> Result<()> {
        self.source()?.follower.wait_for_revision(revision).await?;
        self.update_from_catalog();
        Ok(())
    }

    /// Keeps a pool of numbers, and their key, from now on, for when the meta-server is unreachable.
    ///
    /// # Errors
    /// If there is no catalogue, or it cannot be changed now.
    pub async fn keep_number_pool_filled(&self) -> Result<()> {
        self.client_number_key().await?;
        self.source()?.number_pool.keep_filled().await
    }

    /// Updates the view from the catalogue. One thread at a time does so: a slow one would replace a newer state by an older one.
    fn update_from_catalog(&self) {
        let _one = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(catalog) = self.catalog() else { return };
        self.witnesses.note_catalog(&catalog);
        if let Some(forced) = catalog.forced_position() {
            self.witnesses.note(Subject::Catalogue, forced);
            // The follower has compared the catalogue with all of it.
            let compared = self.witnesses.of(Subject::Catalogue);
            self.witnesses.drop_compared(Subject::Catalogue, forced.opening, &compared);
        }
        let space = |space: &Arc<meta::catalog::Space>| SpaceView {
            id: space.id,
            name: space.name.clone(),
            nodes: space.node_ids().collect(),
        };
        let spaces: Vec<SpaceView> = catalog.spaces().map(space).collect();
        if !self.spaces.load().values().map(|known| &**known).eq(&spaces) {
            self.set_spaces(spaces);
        }
        let map = placement_of(&catalog);
        if *self.placement.snapshot() != map {
            self.placement.set(map);
        }
    }
}

/// The placement map of a catalogue: the bricks that serve something or are alive, and which brick serves which logical node.
fn placement_of(catalog: &Catalog) -> PlacementSnapshot {
    let mut map = PlacementSnapshot::default();
    for (node, placed) in catalog.placement_map().nodes() {
        map.add(node, placed);
    }
    map.removed.extend(catalog.removed_spaces().map(|space| (space.first_node, space.nodes)));
    let load = catalog.placement_map().load();
    for (brick, alive) in catalog.bricks() {
        let serves = map.nodes.values().any(|place| place.brick.0 == brick.id.0) || load.contains_key(&brick.id);
        if !serves && alive.is_none() {
            continue;
        }
        let mut addresses = brick.addresses.iter().map(|address| address.parse::<Address>());
        match addresses.find_map(Result::ok) {
            Some(address) => drop(map.bricks.insert(BrickId(brick.id.0), address)),
            // It was not started since the cluster was restored.
            None if brick.addresses.is_empty() => {}
            None => error!(
                brick = brick.id.0,
                "the catalogue has no valid address of this brick: set one, or remove the brick"
            ),
        }
    }
    map
}

/// Waits for a change of the catalogue; without a catalogue it never returns.
pub(crate) async fn next_change(changed: &mut Option<watch::Receiver<Revision>>) {
    if let Some(changed) = changed
        && changed.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests;
