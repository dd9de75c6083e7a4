//! Whether the store of the catalogue answers. An etcd cluster may hang, or have no quorum, while the meta-server in front of it serves what it knows.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use meta::{Key, MetaStore};
use model::{Error, Result};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};
use tracing::{info, warn};
use wire::tasks;

/// How long it is from one question to the next.
const INTERVAL: Duration = Duration::from_secs(3);
/// How long an answer may take.
const LONGEST_ANSWER: Duration = Duration::from_secs(3);
/// A key that is read; there need not be an entry.
const KEY: &str = "parameters";

/// Asks the store again and again, until it is dropped.
pub(super) struct StoreProbe {
    problem: Arc<ArcSwapOption<String>>,
    task: AbortHandle,
}

impl StoreProbe {
    /// # Errors
    /// None in fact: the key is valid.
    pub(super) fn start(store: Arc<dyn MetaStore>) -> Result<Self> {
        let key = Key::new(KEY)?;
        let problem: Arc<ArcSwapOption<String>> = Arc::default();
        let task = tasks::spawn(ask_again_and_again(store, key, problem.clone())).abort_handle();
        Ok(Self { problem, task })
    }

    /// Why the catalogue cannot be read or changed; `None` if its store has answered the last question.
    pub(super) fn problem(&self) -> Option<String> {
        self.problem.load().as_deref().cloned()
    }
}

impl Drop for StoreProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn ask_again_and_again(store: Arc<dyn MetaStore>, key: Key, problem: Arc<ArcSwapOption<String>>) {
    let mut answered = Instant::now();
    loop {
        match ask(&*store, key.clone()).await {
            Ok(()) => {
                answered = Instant::now();
                if problem.swap(None).is_some() {
                    info!("the store of the catalogue answers again");
                }
            }
            Err(why) => {
                let seconds = answered.elapsed().as_secs();
                let what = format!(
                    "the store of the catalogue has not answered for {seconds} s, so nothing in the catalogue can be changed: {why}"
                );
                if problem.swap(Some(Arc::new(what.clone()))).is_none() {
                    warn!("{what}");
                }
            }
        }
        time::sleep(INTERVAL).await;
    }
}

async fn ask(store: &dyn MetaStore, key: Key) -> std::result::Result<(), String> {
    match time::timeout(LONGEST_ANSWER, store.get(vec![key])).await {
        Ok(answer) => answer.map(drop).map_err(|error: Error| error.message().to_owned()),
        Err(_) => {
            Err(format!("no answer within {} s; see whether etcd runs and has a quorum", LONGEST_ANSWER.as_secs()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::sync::atomic::{AtomicBool, Ordering};

    use meta::{
        Embedded, Expect, KeyChange, MetaSession, MetaSessionId, MetaSnapshot, Pending, Prefix, Revision, Watch,
        WriteOutcome,
    };

    use super::*;

    /// A store that answers no reads while it hangs.
    struct Hanging {
        store: Embedded,
        hangs: AtomicBool,
    }

    impl MetaStore for Hanging {
        fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot> {
            self.store.read(prefix)
        }

        fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot> {
            match self.hangs.load(Ordering::Relaxed) {
                true => Box::pin(future::pending()),
                false => self.store.get(keys),
            }
        }

        fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome> {
            self.store.write(expects, changes)
        }

        fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
            self.store.watch(prefix, after)
        }

        fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession> {
            self.store.open_session(ttl)
        }

        fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
            self.store.renew_session(session)
        }

        fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
            self.store.end_session(session)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_hangs_is_a_problem_until_it_answers() {
        let store = Arc::new(Hanging { store: Embedded::in_memory().unwrap(), hangs: AtomicBool::new(false) });
        let probe = StoreProbe::start(store.clone()).unwrap();
        time::sleep(Duration::from_secs(60)).await;
        assert_eq!(probe.problem(), None);
        store.hangs.store(true, Ordering::Relaxed);
        time::sleep(Duration::from_secs(10)).await;
        let problem = probe.problem().unwrap();
        assert!(problem.contains("nothing in the catalogue can be changed"), "{problem}");
        store.hangs.store(false, Ordering::Relaxed);
        time::sleep(Duration::from_secs(10)).await;
        assert_eq!(probe.problem(), None);
    }
}
