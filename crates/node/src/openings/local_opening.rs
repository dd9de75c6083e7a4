//! The opening of the brick that this process serves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use meta::Embedded;
use meta::catalog::{BrickId, Catalog, CatalogEditor};
use meta::opening::plant::Bug;
use meta::opening::{ForcedPosition, Opening, OpeningHistory, OpeningRefusal, Witnesses};
use model::planted_bug::planted;
use store::{RowChanges, Store};
use tokio::sync::watch;
use tokio::time::{self, Instant};
use tracing::{debug, error};
use wire::handshake::Witnessed;
use wire::proto::cluster;

use super::kept_rows::{self, Counters};
use super::{WitnessTable, witnessed_from_proto};
use crate::cluster_view::ClusterView;

/// How often a brick writes what it witnessed, if something changed and other changes are written anyway.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// How long an idle brick waits with that.
const KEEP_IDLE: Duration = Duration::from_secs(5);
/// How often the catalogue learns the position of a brick that has changed.
const RECORD_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit of telling the catalogue the last position.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The opening of this process's brick. It ends when another opening of the brick is known, or when a witness shows that the
/// directory went back in time. From then on the brick sends nothing and admits no connection.
pub struct LocalOpening {
    brick: BrickId,
    opening: Opening,
    history: OpeningHistory,
    store: Store,
    is_ended: AtomicBool,
    why: watch::Sender<Option<String>>,
}

impl std::fmt::Debug for LocalOpening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalOpening")
            .field("brick", &self.brick)
            .field("opening", &self.opening)
            .finish_non_exhaustive()
    }
}

impl LocalOpening {
    pub(super) fn new(brick: BrickId, opening: Opening, history: OpeningHistory, store: Store) -> Arc<Self> {
        let why = watch::Sender::new(None);
        Arc::new(Self { brick, opening, history, store, is_ended: AtomicBool::new(false), why })
    }

    /// The number of the brick.
    #[must_use]
    pub fn brick(&self) -> BrickId {
        self.brick
    }

    /// The opening.
    #[must_use]
    pub fn opening(&self) -> Opening {
        self.opening
    }

    /// The brick's name in messages.
    fn name(&self) -> String {
        format!("brick {}", self.brick)
    }

    /// Whether the brick may serve under this opening.
    pub(crate) fn is_current(&self) -> bool {
        !self.is_ended.load(Ordering::Acquire)
    }

    /// Why it has ended, if it has.
    pub(crate) fn end_reason(&self) -> Option<String> {
        self.why.borrow().clone()
    }

    /// Waits until it has ended, and returns why.
    pub async fn wait_until_ended(&self) -> String {
        let mut why = self.why.subscribe();
        let ended = why.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match ended {
            Some(why) => why,
            // The sender is a part of this value.
            None => std::future::pending().await,
        }
    }

    fn end(&self, refusal: &OpeningRefusal, witness: &str) {
        self.is_ended.store(true, Ordering::Release);
        self.why.send_if_modified(|why| {
            let is_first = why.is_none();
            if is_first {
                let reason = refusal.into_error(&self.name(), witness).message().to_owned();
                error!(brick = self.brick.0, opening = self.opening.number, reason, "this brick stops serving");
                *why = Some(reason);
            }
            is_first
        });
    }

    /// Compares the opening with the catalogue.
    pub(crate) fn check_catalog(&self, catalog: &Catalog) {
        let Some(known) = catalog.opening(self.brick) else { return };
        if let Err(refusal) = known.record.check_current(self.opening) {
            self.end(&refusal, "the catalogue says so");
        }
    }

    /// Compares the log with a position that another process saw.
    pub(crate) fn check_forced(&self, seen: ForcedPosition, witness: &str) {
        if let Err(refusal) = self.history.check(self.store.position(), seen) {
            self.end(&refusal, witness);
        }
    }

    /// Compares the log with what a message says, if that is about this brick.
    ///
    /// # Errors
    /// [`Invalid`](model::ErrorKind::Invalid) if it names no opening.
    pub(crate) fn check_witnessed(&self, seen: &Witnessed, witness: &str) -> model::Result<()> {
        if seen.brick == self.brick.0 {
            self.check_forced(witnessed_from_proto(seen)?.1.forced, witness);
        }
        Ok(())
    }

    /// Compares the opening with one that another process has claimed.
    pub(crate) fn check_claim(&self, claimed: Opening) {
        if claimed != self.opening && claimed.number >= self.opening.number {
            let refusal = OpeningRefusal::Superseded { last: self.opening, by: claimed };
            self.end(&refusal, "the other process says so");
        }
    }

    /// The opening and a forced position, for the wire.
    pub(crate) fn own_position(&self) -> Witnessed {
        let Opening { number, nonce } = self.opening;
        Witnessed { brick: self.brick.0, number, nonce, position: self.store.position(), at_us: 0 }
    }

    /// Notes what others know of this brick and of other logs, and compares it.
    ///
    /// # Errors
    /// [`Invalid`](model::ErrorKind::Invalid) if an entry names no opening.
    pub(crate) fn note_all(&self, seen: &cluster::Witnesses, book: &WitnessTable, witness: &str) -> model::Result<()> {
        seen.seen.iter().try_for_each(|one| self.check_witnessed(one, witness))?;
        book.note_all(seen)
    }

    /// Writes what the process witnesses to the store, and the position of the log to the catalogue, as long as the opening exists.
    pub async fn keep(opening: Weak<Self>, view: Weak<ClusterView>) {
        let mut keeper = Keeper::new();
        let mut recorded_at = Instant::now();
        // A catalogue in the same log knows no more than the log itself, and each record would be a change of it.
        let Some(has_catalogue) = opening.upgrade().map(|own| Embedded::exists_in(&own.store)) else { return };
        let has_catalogue = has_catalogue.unwrap_or_else(|error| {
            error!(%error, "cannot read whether this store contains the catalogue: the position of its log is recorded there");
            false
        });
        loop {
            time::sleep(KEEP_INTERVAL).await;
            let (Some(own), Some(view)) = (opening.upgrade(), view.upgrade()) else { return };
            keeper.keep(&own, &view);
            keeper.raise_counters(&view).await;
            if recorded_at.elapsed() >= RECORD_INTERVAL && !has_catalogue {
                recorded_at = Instant::now();
                if let Ok(editor) = view.editor() {
                    keeper.record(&own, editor).await;
                }
            }
        }
    }

    /// Tells the catalogue the last position of a brick that ends in good order.
    pub async fn close(&self, editor: &CatalogEditor) {
        let position = self.store.position();
        let recorded = time::timeout(CLOSE_TIMEOUT, editor.record_position(self.brick, self.opening, position)).await;
        if !matches!(recorded, Ok(Ok(_))) {
            debug!(brick = self.brick.0, position, "the catalogue does not know the last position of the brick");
        }
    }
}

/// What a brick has noted so far.
struct Keeper {
    kept: Witnesses,
    counters: Arc<Counters>,
    kept_at: Instant,
    /// The position of the log when something was last kept.
    position: u64,
    /// Whether there were other changes since the catalogue was last told the position: what the brick keeps of others does not count,
    /// or idle bricks would tell each other of it for ever.
    has_worked: bool,
    /// The last position that the catalogue knows.
    recorded: u64,
}

impl Keeper {
    fn new() -> Self {
        let (kept, counters) = (Witnesses::default(), Arc::default());
        Self { kept, counters, kept_at: Instant::now(), position: 0, has_worked: false, recorded: 0 }
    }

    /// Submits the rows of witnesses and counters if they have changed; they are forced with other changes, or after some seconds.
    fn keep(&mut self, own: &LocalOpening, view: &ClusterView) {
        let (now, position) = (view.witnesses().snapshot(), own.store.position());
        let counters = self.highest_counters(view);
        let is_idle = position == self.position;
        self.has_worked |= !is_idle;
        let is_same = now == self.kept && counters == self.counters;
        if is_same || is_idle && self.kept_at.elapsed() < KEEP_IDLE || planted(Bug::WitnessNotKept) {
            return;
        }
        let mut changes = RowChanges::new();
        kept_rows::put_witnesses(&mut changes, &now);
        if let Err(error) = kept_rows::put_counters(&mut changes, &counters) {
            error!(%error, "what this brick saw of the catalogue's counters is not kept");
        }
        own.store.submit_rows(changes, |written| {
            if let Err(error) = written {
                debug!(%error, "what this brick witnessed cannot be kept now");
            }
        });
        // Its own change follows.
        (self.kept, self.counters, self.kept_at, self.position) = (now, counters, Instant::now(), position + 1);
    }

    /// The counters of the catalogue, or what was kept of them where that is higher.
    fn highest_counters(&self, view: &ClusterView) -> Arc<Counters> {
        let known = view.catalog().map(|catalog| catalog.counters().clone()).unwrap_or_default();
        kept_rows::merge_counters(&known, &self.counters).map_or(known, Arc::new)
    }

    /// Raises the counters of a catalogue that went back in time and whose loss was accepted.
    async fn raise_counters(&self, view: &ClusterView) {
        let (Some(catalog), Ok(editor)) = (view.catalog(), view.editor()) else { return };
        if kept_rows::merge_counters(catalog.counters(), &self.counters).is_some()
            && let Err(error) = editor.raise_counters(&self.counters).await
        {
            debug!(%error, "the counters of the catalogue cannot be raised now");
        }
    }

    async fn record(&mut self, own: &LocalOpening, editor: &CatalogEditor) {
        let position = own.store.position();
        if position != self.recorded && own.is_current() && std::mem::take(&mut self.has_worked) {
            match editor.record_position(own.brick, own.opening, position).await {
                Ok(_) => self.recorded = position,
                Err(error) => debug!(%error, "the catalogue cannot be told the position of the log now"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::*;

    /// The second opening of brick 1, with an empty log.
    fn opening() -> Arc<LocalOpening> {
        let store = Store::in_memory(Options::default()).unwrap();
        let history = OpeningHistory::default().next(0, 5).next(0, 7);
        LocalOpening::new(BrickId(1), Opening { number: 2, nonce: 7 }, history, store)
    }

    #[test]
    fn an_opening_ends_when_another_process_has_claimed_the_same_or_a_later_number() {
        let ends_after = |number, nonce| {
            let opening = opening();
            opening.check_claim(Opening { number, nonce });
            opening.end_reason().is_some()
        };
        assert!(ends_after(2, 8) && ends_after(3, 8) && ends_after(3, 7));
        assert!(!ends_after(2, 7), "its own claim");
        assert!(!ends_after(1, 5), "an earlier one");
    }

    #[test]
    fn an_opening_ends_when_a_witness_saw_more_of_its_log() {
        let ends_after = |brick, number, nonce, position| {
            let opening = opening();
            let seen = Witnessed { brick, number, nonce, position, at_us: 1 };
            opening.check_witnessed(&seen, "a test").unwrap();
            opening.end_reason().is_some()
        };
        assert!(ends_after(1, 2, 7, 1_000_000), "a position that the log does not have");
        assert!(ends_after(1, 3, 8, 0), "a later opening");
        assert!(!ends_after(1, 2, 7, 0) && !ends_after(1, 1, 5, 0));
        assert!(!ends_after(2, 3, 8, 100), "it is about another brick");
    }
}
