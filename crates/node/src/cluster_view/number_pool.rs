//! Unique numbers, taken from the catalogue many at a time.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use meta::catalog::CatalogEditor;
use model::Result;
use tokio::sync::Notify;
use tokio::time;
use tracing::debug;
use wire::tasks;

/// Numbers that are taken at a time.
const BATCH: u64 = 1024;
/// With fewer in the pool more are taken.
const REFILL_BELOW: u64 = BATCH / 2;
/// The counter of the catalogue. It is also that of process starts: clients and processes never share a number.
const COUNTER: &str = "starts";
/// The pause after the catalogue could not be changed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A pool of numbers.
pub(super) struct NumberPool {
    editor: CatalogEditor,
    numbers: Mutex<Vec<Range<u64>>>,
    /// Held by the task that takes more numbers.
    refilling: tokio::sync::Mutex<()>,
    low: Notify,
}

impl NumberPool {
    pub(super) fn new(editor: CatalogEditor) -> Arc<Self> {
        let (numbers, fetching, low) = (Mutex::default(), tokio::sync::Mutex::default(), Notify::new());
        Arc::new(Self { editor, numbers, refilling: fetching, low })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        // The list is consistent between any two statements, so a panic elsewhere does no harm.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `count` consecutive numbers and returns the first.
    pub(super) async fn take(&self, count: u64) -> Result<u64> {
        if let Some(first) = self.take_pooled(count) {
            return Ok(first);
        }
        let _fetching = self.refilling.lock().await;
        if let Some(first) = self.take_pooled(count) {
            return Ok(first);
        }
        let mut more = self.editor.take_numbers(COUNTER, count.max(BATCH)).await?;
        let first = more.start;
        more.start += count;
        self.lock().push(more);
        Ok(first)
    }

    fn take_pooled(&self, count: u64) -> Option<u64> {
        let mut numbers = self.lock();
        let range = numbers.iter_mut().find(|range| range.end - range.start >= count)?;
        let first = range.start;
        range.start += count;
        numbers.retain(|range| !range.is_empty());
        if numbers.iter().map(|range| range.end - range.start).sum::<u64>() < REFILL_BELOW {
            self.low.notify_one();
        }
        Some(first)
    }

    /// Fills the pool, and keeps it filled until it is dropped.
    pub(super) async fn keep_filled(self: &Arc<Self>) -> Result<()> {
        self.refill().await?;
        tasks::spawn(keep_filled(Arc::downgrade(self)));
        Ok(())
    }

    async fn refill(&self) -> Result<()> {
        let more = self.editor.take_numbers(COUNTER, BATCH).await?;
        self.lock().push(more);
        Ok(())
    }
}

async fn keep_filled(stock: Weak<NumberPool>) {
    while let Some(kept) = stock.upgrade() {
        // Ends now and then, so that a pool that is not used any more is dropped.
        if time::timeout(60 * RETRY_DELAY, kept.low.notified()).await.is_err() {
            continue;
        }
        while let Err(error) = kept.refill().await {
            debug!(%error, "cannot take numbers from the catalogue now; trying again");
            time::sleep(RETRY_DELAY).await;
        }
    }
}
