//! What a process knows of its cluster: where logical nodes are served, which spaces there are, and numbers that nobody
//! else has.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use model::{Error, ErrorKind, NodeId, Result, SpaceId};

use crate::placement::Placement;

/// An object space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its number.
    pub id: SpaceId,
    /// Its name.
    pub name: String,
    /// Its logical nodes, in the order in which names are spread over them.
    pub nodes: Vec<NodeId>,
}

/// The first of some numbers that nobody else has, when they are there.
pub type Numbers = Pin<Box<dyn Future<Output = Result<u64>> + Send>>;

/// What a process knows of its cluster.
pub struct Realm {
    /// Where logical nodes are served.
    pub placement: Arc<Placement>,
    spaces: ArcSwap<BTreeMap<String, Arc<Space>>>,
    numbers: Box<dyn Fn(u64) -> Numbers + Send + Sync>,
}

impl std::fmt::Debug for Realm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Realm").field("placement", &self.placement).finish_non_exhaustive()
    }
}

impl Realm {
    /// A cluster of which nothing is known yet. `numbers` gets so many numbers in a row that nobody else ever gets.
    pub fn new(numbers: impl Fn(u64) -> Numbers + Send + Sync + 'static) -> Arc<Self> {
        let (placement, spaces) = (Arc::default(), ArcSwap::default());
        Arc::new(Self { placement, spaces, numbers: Box::new(numbers) })
    }

    /// These are the spaces.
    pub fn set_spaces(&self, spaces: impl IntoIterator<Item = Space>) {
        let spaces = spaces.into_iter().map(|space| (space.name.clone(), Arc::new(space)));
        self.spaces.store(Arc::new(spaces.collect()));
    }

    /// A space, by its name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], with the names there are.
    pub fn space(&self, name: &str) -> Result<Arc<Space>> {
        let spaces = self.spaces.load();
        spaces.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = spaces.keys().map(String::as_str).take(10).collect();
            let what = format!("there is no space {name:?} here; there are: {}", known.join(", "));
            Error::new(ErrorKind::NotFound, what)
        })
    }

    /// The first of so many numbers in a row that nobody else ever gets.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if whoever gives them cannot be reached.
    pub async fn numbers(&self, count: u64) -> Result<u64> {
        (self.numbers)(count).await
    }
}
