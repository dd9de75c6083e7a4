//! How far a backup that follows is behind its cluster.
//!
//! What was acknowledged before a moment began is in it. So a loss of the cluster costs at most what was acknowledged since the last moment that is complete
//! began: the age of that moment. The longer there is none, the more rarely it is said.

use std::convert::Infallible;
use std::future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Timestamp;
use tokio::time::{self, Instant};

use crate::output::warn;
use crate::progress::{HumanDuration, Progress};

/// The least age of the last moment of which it is warned; more if moments are rarer.
const WARN_AT: Duration = Duration::from_secs(2);
/// Intervals without a moment until it is warned.
const WARN_INTERVALS: u32 = 3;

/// The age of the last moment.
#[derive(Clone)]
pub(super) struct Lag {
    progress: Progress,
    json: bool,
    /// When the last moment that is complete began; `None` before the first one.
    last: Option<Instant>,
    warn_at: Duration,
}

impl Lag {
    pub(super) fn new(every: Duration, progress: Progress, json: bool) -> Self {
        Self { progress, json, last: None, warn_at: WARN_AT.max(every * WARN_INTERVALS) }
    }

    /// The last moment is one of an earlier backup, taken at this time, in microseconds since 1970.
    pub(super) fn begin_at(&mut self, time_us: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let then = Duration::from_micros(u64::try_from(time_us).unwrap_or(0));
        let age = now.saturating_sub(then);
        self.last = Instant::now().checked_sub(age);
        let (time, age) = (Timestamp::from_micros(time_us), HumanDuration(age));
        self.warn(&format!(
            "the last moment is {time}, {age} old: what was acknowledged since is in none before an archive is complete"
        ));
    }

    /// How old the last moment is.
    pub(super) fn age(&self) -> Option<Duration> {
        self.last.map(|last| last.elapsed())
    }

    /// A moment that began at this time is complete. Returns how old the one before was.
    pub(super) fn note_moment(&mut self, begun: Instant) -> Option<Duration> {
        let age = self.age();
        self.last = Some(begun);
        if let Some(late) = age.filter(|age| *age >= self.warn_at) {
            self.warn(&format!("moments go on: there was none for {}", HumanDuration(late)));
        }
        age
    }

    /// Warns of the age of the last moment while there is no other one.
    pub(super) async fn watch(&mut self) -> Infallible {
        let Some(last) = self.last else { return future::pending().await };
        let mut warn_at = self.warn_at;
        loop {
            // What is late already is said once.
            warn_at = warn_at.max(last.elapsed());
            time::sleep_until(last + warn_at).await;
            let age = HumanDuration(last.elapsed());
            self.warn(&format!("the last moment is {age} old: what was acknowledged since is in none yet"));
            warn_at *= 2;
        }
    }

    pub(super) fn warn(&self, message: &str) {
        self.progress.suspend(|| warn(self.json, "backup", message));
    }
}
