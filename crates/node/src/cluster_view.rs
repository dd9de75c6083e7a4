//! What a process knows of its cluster: where logical nodes are served, which spaces there are, and numbers that nobody
//! else has.
//!
//! [`ClusterView::follow`] fills it from the catalogue and keeps it current. Whatever keeps the catalogue may be away: then what is
//! known stays, and so do the numbers in stock.

pub(crate) mod members;
pub(crate) mod moves;
mod number_pool;
mod schema;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};
use meta::catalog::{Catalog, CatalogEditor, Edited, Follower, MovePhase, SpaceOptions};
use meta::{MetaStore, Revision};
use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use tokio::sync::watch;
use tracing::error;
use wire::transport::Address;

use crate::node_placement::{BrickId, CurrentPlacement, NodePlacement, PlacementSnapshot, Transfer};
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

/// The first of some numbers that nobody else has, when they are there.
pub type PendingNumbers = Pin<Box<dyn Future<Output = Result<u64>> + Send>>;

/// What a process knows of its cluster.
pub struct ClusterView {
    /// Where logical nodes are served.
    pub placement: Arc<CurrentPlacement>,
    spaces: ArcSwap<BTreeMap<String, Arc<SpaceView>>>,
    number_source: Box<dyn Fn(u64) -> PendingNumbers + Send + Sync>,
    source: Option<CatalogSource>,
    schema_cache: SchemaCache,
    /// Held while it is filled.
    filling: Mutex<()>,
}

/// The catalogue that a realm is filled from.
struct CatalogSource {
    editor: CatalogEditor,
    follower: Follower,
    number_pool: Arc<NumberPool>,
}

impl std::fmt::Debug for ClusterView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Realm").field("placement", &self.placement).finish_non_exhaustive()
    }
}

impl ClusterView {
    /// A cluster of which nothing is known yet. `numbers` gets so many numbers in a row that nobody else ever gets.
    pub fn new(numbers: impl Fn(u64) -> PendingNumbers + Send + Sync + 'static) -> Arc<Self> {
        let (placement, spaces) = (Arc::default(), ArcSwap::default());
        let schemas = SchemaCache::default();
        Arc::new(Self {
            placement,
            spaces,
            number_source: Box::new(numbers),
            source: None,
            schema_cache: schemas,
            filling: Mutex::default(),
        })
    }

    /// The cluster that a catalogue tells of, as long as this or a clone of it is there.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if whatever keeps the catalogue cannot be asked now; [`ErrorKind::NotFound`] if it has not
    /// been set up, [`ErrorKind::Unsupported`] if a newer program has done that.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn follow(store: Arc<dyn MetaStore>) -> Result<Arc<Self>> {
        let editor = CatalogEditor::new(store.clone());
        editor.parameters().await?;
        let follower = Follower::start(store).await?;
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
            schema_cache: schemas,
            filling,
        });
        realm.update_from_catalog();
        let followed = Arc::downgrade(&realm);
        tokio::spawn(async move {
            while changed.changed().await.is_ok() {
                let Some(realm) = Weak::upgrade(&followed) else { return };
                realm.update_from_catalog();
            }
        });
        Ok(realm)
    }

    /// These are the spaces.
    pub fn set_spaces(&self, spaces: impl IntoIterator<Item = SpaceView>) {
        let spaces = spaces.into_iter().map(|space| (space.name.clone(), Arc::new(space)));
        self.spaces.store(Arc::new(spaces.collect()));
    }

    /// A space, by its name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], with the names there are.
    pub fn space(&self, name: &str) -> Result<Arc<SpaceView>> {
        let spaces = self.spaces.load();
        spaces.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = spaces.keys().map(String::as_str).take(10).collect();
            let what = format!("there is no space {name:?} here; there are: {}", known.join(", "));
            Error::new(ErrorKind::NotFound, what)
        })
    }

    /// All spaces, by name.
    #[must_use]
    pub fn spaces(&self) -> Vec<Arc<SpaceView>> {
        self.spaces.load().values().cloned().collect()
    }

    /// The first of so many numbers in a row that nobody else ever gets.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if whoever gives them cannot be reached.
    pub async fn take_numbers(&self, count: u64) -> Result<u64> {
        (self.number_source)(count).await
    }

    // -------------------------------------------------------------------------------------------- the catalogue

    /// The catalogue as it is known now; `None` if this realm has none.
    #[must_use]
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.source.as_ref().map(|catalogue| catalogue.follower.catalog())
    }

    /// The same for a moment: the quick way.
    pub(crate) fn load_catalog(&self) -> Option<Guard<Arc<Catalog>>> {
        self.source.as_ref().map(|catalogue| catalogue.follower.load())
    }

    /// Tells when the catalogue has changed; `None` if this realm has none.
    pub(crate) fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        self.source.as_ref().map(|catalogue| catalogue.follower.subscribe())
    }

    /// What changes the catalogue.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this realm has none.
    pub fn editor(&self) -> Result<&CatalogEditor> {
        self.source().map(|catalogue| &catalogue.editor)
    }

    fn source(&self) -> Result<&CatalogSource> {
        let none = || Error::new(ErrorKind::Unsupported, "the cluster of this process has no catalogue");
        self.source.as_ref().ok_or_else(none)
    }

    /// Makes a space, and waits until it is known here.
    ///
    /// # Errors
    /// As [`CatalogEditor::create_space`].
    pub async fn create_space(&self, name: &str, options: SpaceOptions) -> Result<Arc<SpaceView>> {
        let catalogue = self.source()?;
        let Edited { revision, .. } = catalogue.editor.create_space(name, options).await?;
        self.wait_for_revision(revision).await?;
        self.space(name)
    }

    /// Waits until all up to this revision of the catalogue is known here.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if this realm has no catalogue, [`ErrorKind::Unavailable`] if the process ends.
    pub async fn wait_for_revision(&self, revision: Revision) -> Result<()> {
        self.source()?.follower.wait_for_revision(revision).await?;
        self.update_from_catalog();
        Ok(())
    }

    /// Has numbers in stock from now on, for the time when whatever keeps the catalogue is away.
    ///
    /// # Errors
    /// If there is no catalogue, or it cannot be changed now.
    pub async fn keep_number_pool_filled(&self) -> Result<()> {
        self.source()?.number_pool.keep_filled().await
    }

    /// Takes over what the catalogue says. One at a time: else who is slow would put an older state in the place of a newer one.
    fn update_from_catalog(&self) {
        let _one = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(catalog) = self.catalog() else { return };
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

/// The placement map as the processes of a cluster use it: bricks that serve something or live, and who serves what.
fn placement_of(catalog: &Catalog) -> PlacementSnapshot {
    let mut map = PlacementSnapshot::default();
    for (node, placed) in catalog.placement_map().nodes() {
        let (brick, epoch) = (BrickId(placed.brick.0), placed.epoch.0);
        let is_sealed = placed.moving.is_some_and(|moving| moving.phase == MovePhase::Sealed);
        if let Some(moving) = placed.moving {
            let (to, sealed) = (BrickId(moving.to.0), is_sealed.then_some(epoch));
            map.moving.insert(node, Transfer { from: brick, to, sealed });
        }
        // Between two bricks nobody serves it.
        if !is_sealed {
            map.nodes.insert(node, NodePlacement { brick, epoch, moves: placed.moves });
        }
    }
    let load = catalog.placement_map().load();
    for (brick, alive) in catalog.bricks() {
        let serves = map.nodes.values().any(|place| place.brick.0 == brick.id.0) || load.contains_key(&brick.id);
        if !serves && alive.is_none() {
            continue;
        }
        let mut addresses = brick.addresses.iter().map(|address| address.parse::<Address>());
        match addresses.find_map(Result::ok) {
            Some(address) => drop(map.bricks.insert(BrickId(brick.id.0), address)),
            None => error!(brick = brick.id.0, "the catalogue has no address of this brick that can be read"),
        }
    }
    map
}

/// Waits until the catalogue changes; for ever, if there is none.
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
