//! Keeps a catalogue current: reads it, and applies what a watch sees.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use model::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time;

use crate::{MetaStore, Prefix, Revision, Watch, WatchEvent};

use super::snapshot::Catalog;

/// How long it waits after what keeps the catalogue has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Keeps a [`Catalog`] current, as long as it or a clone of it is there.
///
/// What it shows may be a moment old: whoever has changed something waits for that revision ([`Follower::wait_for_revision`]).
#[derive(Clone)]
pub struct Follower {
    state: Arc<FollowerState>,
    _task: Arc<FollowTask>,
}

struct FollowerState {
    catalog: ArcSwap<Catalog>,
    revision: watch::Sender<Revision>,
}

/// The task that follows; it ends with this.
struct FollowTask(AbortHandle);

impl Drop for FollowTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Follower {
    /// Reads the catalogue and begins to follow it.
    ///
    /// # Errors
    /// If it cannot be read: [`ErrorKind::Unavailable`] and others of what keeps it.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn start(store: Arc<dyn MetaStore>) -> Result<Self> {
        let catalog = read(&*store).await?;
        let shown = Arc::new(FollowerState {
            revision: watch::Sender::new(catalog.revision()),
            catalog: ArcSwap::from_pointee(catalog),
        });
        let task = tokio::spawn(follow(store, shown.clone()));
        Ok(Self { state: shown, _task: Arc::new(FollowTask(task.abort_handle())) })
    }

    /// The catalogue as it is now, for a moment: the quick way.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Catalog>> {
        self.state.catalog.load()
    }

    /// The catalogue as it is now, for as long as it is needed.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.state.catalog.load_full()
    }

    /// Tells when the catalogue has changed, and to which revision.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.state.revision.subscribe()
    }

    /// Waits until the catalogue is at least at this revision. As long as nobody can be asked, that may be for ever.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if following has ended, as the runtime goes away.
    pub async fn wait_for_revision(&self, revision: Revision) -> Result<Arc<Catalog>> {
        let mut changed = self.subscribe();
        let ended = |_| Error::new(ErrorKind::Unavailable, "nobody follows the catalogue any more: this process ends");
        changed.wait_for(|reached| *reached >= revision).await.map_err(ended)?;
        Ok(self.catalog())
    }
}

async fn read(store: &dyn MetaStore) -> Result<Catalog> {
    Ok(Catalog::load(&store.read(Prefix::all()).await?))
}

async fn follow(store: Arc<dyn MetaStore>, shown: Arc<FollowerState>) {
    let mut told = None;
    loop {
        if let Err(error) = follow_watch(&*store, &shown).await {
            // Once for each pause, not twice a second.
            let message = error.to_string();
            if told.as_ref() != Some(&message) {
                tracing::warn!(%error, "the catalogue cannot be followed; what is known of it is gone by until it can");
                told = Some(message);
            }
        } else {
            told = None;
        }
        time::sleep(RETRY_PAUSE).await;
    }
}

/// Follows until that fails; ends well after the catalogue had to be read anew.
async fn follow_watch(store: &dyn MetaStore, shown: &FollowerState) -> Result<()> {
    let revision = shown.catalog.load().revision();
    let mut watch: Box<dyn Watch> = store.watch(Prefix::all(), revision).await?;
    loop {
        match watch.next().await? {
            WatchEvent::Changed(batch) => {
                let mut catalog = Catalog::clone(&shown.catalog.load());
                catalog.apply(batch.revision, &batch.changes);
                shown.publish(catalog);
            }
            WatchEvent::Compacted => {
                let catalog = read(store).await?;
                shown.publish(catalog);
                return Ok(());
            }
        }
    }
}

impl FollowerState {
    fn publish(&self, catalog: Catalog) {
        let before = self.catalog.load();
        for (key, why) in catalog.invalid_entries() {
            if !before.invalid_entries().any(|(known, _)| known == key) {
                tracing::error!(
                    key,
                    why,
                    "an entry of the catalogue cannot be read; what was known of it before stays"
                );
            }
        }
        let revision = catalog.revision();
        self.catalog.store(Arc::new(catalog));
        self.revision.send_replace(revision);
    }
}

#[cfg(test)]
mod tests;
