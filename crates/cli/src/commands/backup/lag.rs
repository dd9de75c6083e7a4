//! How far a backup that follows is behind its cluster.
//!
//! What was acknowledged before a moment began is in it. So a loss of the cluster costs at most what was acknowledged since the last moment that is complete
//! began: the age of that moment. The longer there is none, the more rarely it is said, with what the cluster says is wrong.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::AdminClient;
use model::Timestamp;
use tokio::time::{self, Instant};

use crate::output::warn;
use crate::progress::{HumanDuration, Progress};

/// The least age of the last moment of which it is warned; more if moments are rarer.
const WARN_AT: Duration = Duration::from_secs(2);
/// Intervals without a moment until it is warned.
const WARN_INTERVALS: u32 = 3;
/// How long a server may take to say what is wrong.
const STATUS_TIMEOUT: Duration = Duration::from_secs(1);

/// The age of the last moment. A clone is of the same backup.
#[derive(Clone)]
pub(super) struct Lag {
    progress: Progress,
    json: bool,
    warn_at: Duration,
    known: Rc<RefCell<Known>>,
}

#[derive(Default)]
struct Known {
    /// When the last moment that is complete began; `None` before the first one.
    last: Option<Instant>,
    /// The same of an earlier backup to the directory, with its time, until the directory is known to be of the cluster.
    earlier: Option<(Timestamp, Instant)>,
    /// A server of the cluster.
    server: Option<AdminClient>,
}

impl Lag {
    pub(super) fn new(every: Duration, progress: Progress, json: bool) -> Self {
        Self { progress, json, warn_at: WARN_AT.max(every * WARN_INTERVALS), known: Rc::default() }
    }

    /// The last moment is one of an earlier backup, taken at this time, in microseconds since 1970.
    pub(super) fn note_earlier(&self, time_us: i64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = now.saturating_sub(Duration::from_micros(u64::try_from(time_us).unwrap_or(0)));
        let then = Instant::now().checked_sub(age);
        self.known.borrow_mut().earlier = then.map(|then| (Timestamp::from_micros(time_us), then));
    }

    /// The directory is that of the cluster of this server. Says how old the last moment of an earlier backup is.
    pub(super) fn note_cluster(&self, server: AdminClient) {
        let earlier = {
            let mut known = self.known.borrow_mut();
            known.server = Some(server);
            let earlier = known.earlier.take();
            known.last = known.last.or(earlier.map(|(_, then)| then));
            earlier
        };
        let Some((time, then)) = earlier else { return };
        let age = HumanDuration(then.elapsed());
        self.warn(&format!(
            "the last moment is {time}, {age} old: what was acknowledged since is in none before an archive is complete"
        ));
    }

    /// How old the last moment is.
    pub(super) fn age(&self) -> Option<Duration> {
        let known = self.known.borrow();
        known.last.or(known.earlier.map(|(_, then)| then)).map(|then| then.elapsed())
    }

    /// A moment that began at this time is complete. Returns how old the one before was.
    pub(super) fn note_moment(&self, begun: Instant) -> Option<Duration> {
        let age = self.age();
        self.known.borrow_mut().last = Some(begun);
        if let Some(late) = age.filter(|age| *age >= self.warn_at) {
            self.warn(&format!("moments go on: there was none for {}", HumanDuration(late)));
        }
        age
    }

    /// Warns of the age of the last moment while there is no other one.
    pub(super) async fn watch(&self) -> Infallible {
        let mut warn_at = self.warn_at;
        loop {
            let Some(last) = self.known.borrow().last else {
                time::sleep(WARN_AT).await;
                continue;
            };
            // What is late already was said.
            while warn_at <= last.elapsed() {
                warn_at *= 2;
            }
            time::sleep_until(last + warn_at).await;
            let problem = self.problem().await.map(|problem| format!("; {problem}")).unwrap_or_default();
            let age = HumanDuration(last.elapsed());
            self.warn(&format!("the last moment is {age} old: what was acknowledged since is in none yet{problem}"));
        }
    }

    /// What is wrong with the cluster, such as a brick that cannot be reached, according to its server.
    async fn problem(&self) -> Option<String> {
        let server = self.known.borrow().server.clone()?;
        let status = time::timeout(STATUS_TIMEOUT, server.status()).await.ok()?;
        status.ok()?.health_problem
    }

    pub(super) fn warn(&self, message: &str) {
        self.progress.suspend(|| warn(self.json, "backup", message));
    }
}
