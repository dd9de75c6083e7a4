//! Keeps a catalogue current: reads it, then applies the changes that a watch reports.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use model::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time;
use wire::tasks;

use crate::{MetaStore, Prefix, Revision, Watch, WatchEvent};

use super::snapshot::Catalog;
use crate::opening::{ForcedPosition, OpeningHistory, OpeningRefusal};
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

/// Tells the highest position of the catalogue that this process or its witnesses have seen.
type SeenPosition = Box<dyn Fn() -> Option<ForcedPosition> + Send + Sync>;

struct FollowerState {
    seen: SeenPosition,
    problem: ArcSwapOption<String>,
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
        Self::start_after(store, || None).await
    }

    /// The same for a process that remembers the highest position of the catalogue: `seen` tells it before each read. An older
    /// catalogue is refused; later the last state stays in use (rule K3).
    ///
    /// # Errors
    /// Those of the store; [`ErrorKind::Denied`] if the catalogue went back in time.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn start_after(
        store: Arc<dyn MetaStore>,
        seen: impl Fn() -> Option<ForcedPosition> + Send + Sync + 'static,
    ) -> Result<Self> {
        let seen: SeenPosition = Box::new(seen);
        let catalog = read(&*store, &seen).await?;
        let shown = Arc::new(FollowerState {
            seen,
            problem: ArcSwapOption::empty(),
            revision: watch::Sender::new(catalog.revision()),
            catalog: ArcSwap::from_pointee(catalog),
        });
        let task = tasks::spawn(follow(store, shown.clone()));
        Ok(Self { state: shown, _task: Arc::new(FollowTask(task.abort_handle())) })
    }

    /// Why the catalogue is not followed although its store answers; `None` if there is no such reason.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.state.problem.load().as_ref().map(|why| why.to_string())
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

async fn read(store: &dyn MetaStore, seen: &SeenPosition) -> Result<Catalog> {
    // Asked before the read, which shows everything that was seen before it.
    let seen = seen();
    let catalog = Catalog::load(&store.read(Prefix::all()).await?);
    check(&catalog, seen)?;
    Ok(catalog)
}

/// Checks that a catalogue is not older than what was seen of it.
fn check(catalog: &Catalog, seen: Option<ForcedPosition>) -> Result<()> {
    let Some(seen) = seen.filter(|_| !planted(Bug::OlderCatalogueFollowed)) else { return Ok(()) };
    check_went_back(catalog.own_openings(), catalog.revision(), seen, "this process saw it")
}

/// Checks that a catalogue with these openings, at this revision, is not older than what a witness saw of it.
///
/// # Errors
/// [`ErrorKind::Denied`] if it went back in time.
pub fn check_went_back(own: &OpeningHistory, revision: Revision, seen: ForcedPosition, witness: &str) -> Result<()> {
    // A catalogue without openings is older than every one that has some.
    let checked = match own.last() {
        Some(_) => own.check(revision.0, seen),
        None => Err(OpeningRefusal::Older { last: None, latest: seen.opening }),
    };
    checked.map_err(|refusal| {
        let what = format!(
            "the catalogue went back in time: {refusal} ({witness}). Start the meta-server with its newest directory; \
             `mortar cluster accept-loss --help` says what it costs to go on without it"
        );
        Error::new(ErrorKind::Denied, what)
    })
}

async fn follow(store: Arc<dyn MetaStore>, shown: Arc<FollowerState>) {
    let mut reported = None;
    loop {
        if let Err(error) = follow_watch(&*store, &shown).await {
            if error.kind() == ErrorKind::Denied {
                shown.problem.store(Some(Arc::new(error.to_string())));
            }
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
    // What was refused may be allowed by now: a read shows it, also if nothing changes any more.
    if shown.problem.load().is_some() {
        shown.publish(read(store, &shown.seen).await?);
    }
    let revision = shown.catalog.load().revision();
    let mut watch: Box<dyn Watch> = store.watch(Prefix::all(), revision).await?;
    loop {
        match watch.next().await? {
            WatchEvent::Changed(batch) => {
                let mut catalog = Catalog::clone(&shown.catalog.load());
                let changes = if planted(Bug::FollowerSkipsChanges) { &batch.changes[..0] } else { &batch.changes[..] };
                let before = catalog.forced_position();
                catalog.apply(batch.revision, changes);
                check(&catalog, before)?;
                shown.publish(catalog);
            }
            WatchEvent::Compacted => {
                let catalog = read(store, &shown.seen).await?;
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
        self.problem.store(None);
        let revision = catalog.revision();
        self.catalog.store(Arc::new(catalog));
        self.revision.send_replace(revision);
    }
}

#[cfg(test)]
pub(crate) mod tests;
