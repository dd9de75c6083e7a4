//! Keeps a catalogue current: reads it, then applies the changes that a watch reports.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use model::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time;

use crate::{MetaStore, Prefix, Revision, Watch, WatchEvent};

use super::snapshot::Catalog;
use crate::plant::{Bug, planted};

/// Pause after the store has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Keeps a [`Catalog`] current until the last clone is dropped.
///
/// The catalogue can be slightly out of date. After a change, wait for its revision ([`Follower::wait_for_revision`]).
#[derive(Clone)]
pub struct Follower {
    state: Arc<FollowerState>,
    _task: Arc<FollowTask>,
}

struct FollowerState {
    catalog: ArcSwap<Catalog>,
    revision: watch::Sender<Revision>,
}

/// The task that follows the catalogue; aborted on drop.
struct FollowTask(AbortHandle);

impl Drop for FollowTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Follower {
    /// Reads the catalogue and starts to follow it.
    ///
    /// # Errors
    /// Those of the store.
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

    /// The current catalogue, for a short use: the fast way.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Catalog>> {
        self.state.catalog.load()
    }

    /// The current catalogue, for any length of time.
    #[must_use]
    pub fn catalog(&self) -> Arc<Catalog> {
        self.state.catalog.load_full()
    }

    /// A receiver that is notified of new revisions.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Revision> {
        self.state.revision.subscribe()
    }

    /// Waits until the catalogue has at least this revision. There is no time limit.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the runtime has ended.
    pub async fn wait_for_revision(&self, revision: Revision) -> Result<Arc<Catalog>> {
        let mut changed = self.subscribe();
        let ended =
            |_| Error::new(ErrorKind::Unavailable, "the catalogue is no longer followed, because this process ends");
        changed.wait_for(|reached| *reached >= revision).await.map_err(ended)?;
        Ok(self.catalog())
    }
}

async fn read(store: &dyn MetaStore) -> Result<Catalog> {
    Ok(Catalog::load(&store.read(Prefix::all()).await?))
}

async fn follow(store: Arc<dyn MetaStore>, shown: Arc<FollowerState>) {
    let mut reported = None;
    loop {
        if let Err(error) = follow_watch(&*store, &shown).await {
            // Logs each message once, not at each attempt.
            let message = error.to_string();
            if reported.as_ref() != Some(&message) {
                tracing::warn!(%error, "cannot follow the catalogue; its last known state stays in use");
                reported = Some(message);
            }
        } else {
            reported = None;
        }
        time::sleep(RETRY_PAUSE).await;
    }
}

/// Follows until an error occurs; returns `Ok` after the catalogue was read again because history was compacted.
async fn follow_watch(store: &dyn MetaStore, shown: &FollowerState) -> Result<()> {
    let revision = shown.catalog.load().revision();
    let mut watch: Box<dyn Watch> = store.watch(Prefix::all(), revision).await?;
    loop {
        match watch.next().await? {
            WatchEvent::Changed(batch) => {
                let mut catalog = Catalog::clone(&shown.catalog.load());
                let changes = if planted(Bug::FollowerSkipsChanges) { &batch.changes[..0] } else { &batch.changes[..] };
                catalog.apply(batch.revision, changes);
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
                    "cannot read an entry of the catalogue; its last readable value stays in use"
                );
            }
        }
        let revision = catalog.revision();
        self.catalog.store(Arc::new(catalog));
        self.revision.send_replace(revision);
    }
}

#[cfg(test)]
pub(crate) mod tests;
