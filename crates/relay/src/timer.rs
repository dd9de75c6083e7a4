//! Wakes tasks at exact times.
//!
//! Timers of tokio have steps of a millisecond. This one is a thread that sleeps until the earliest time, with the precision of the
//! system: about a tenth of a millisecond.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use tokio::sync::oneshot;

/// A thread that wakes tasks. Dropping it ends the thread, and wakes the tasks that wait.
#[derive(Debug)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    schedule: Mutex<Schedule>,
    changed: Condvar,
}

/// The tasks that wait.
#[derive(Debug, Default)]
struct Schedule {
    /// By time; the number makes keys unique and keeps the order of equal times.
    waiting: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    next_number: u64,
    has_ended: bool,
}

impl Timer {
    pub(crate) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("relay-timer".to_owned()).spawn({
            let shared = shared.clone();
            move || shared.run()
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until this time.
    pub(crate) async fn sleep_until(&self, at: Instant) {
        if at > Instant::now() {
            // An error says that the timer has ended.
            let _ = self.shared.add(at).await;
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.shared.lock().has_ended = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, at: Instant) -> oneshot::Receiver<()> {
        let (waker, woken) = oneshot::channel();
        let mut schedule = self.lock();
        let key = (at, schedule.next_number);
        schedule.next_number += 1;
        schedule.waiting.insert(key, waker);
        let is_earliest = schedule.waiting.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(schedule);
        if is_earliest {
            self.changed.notify_one();
        }
        woken
    }

    fn run(&self) {
        let mut schedule = self.lock();
        while !schedule.has_ended {
            schedule.wake(Instant::now());
            schedule = match schedule.waiting.first_key_value() {
                None => self.changed.wait(schedule).unwrap_or_else(PoisonError::into_inner),
                Some(((at, _), _)) => {
                    let pause = at.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(schedule, pause).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        schedule.waiting.clear();
    }
}

impl Schedule {
    /// Wakes the tasks whose time has come.
    fn wake(&mut self, now: Instant) {
        while let Some(first) = self.waiting.first_entry().filter(|entry| entry.key().0 <= now) {
            // A task that was dropped meanwhile does not wait any more.
            let _ = first.remove().send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn no_task_is_woken_early() {
        let timer = Timer::start().unwrap();
        for ms in [3, 0, 1, 2] {
            let at = Instant::now() + Duration::from_millis(ms);
            timer.sleep_until(at).await;
            assert!(Instant::now() >= at);
        }
    }

    #[tokio::test]
    async fn tasks_are_woken_in_the_order_of_their_times() {
        let timer = Timer::start().unwrap();
        let order = Mutex::new(Vec::new());
        let start = Instant::now();
        let sleep = async |ms: u64| {
            timer.sleep_until(start + Duration::from_millis(ms)).await;
            order.lock().unwrap().push(ms);
        };
        tokio::join!(sleep(30), sleep(10), sleep(20));
        assert_eq!(*order.lock().unwrap(), [10, 20, 30]);
    }

    #[tokio::test]
    async fn the_end_of_the_timer_wakes_its_tasks() {
        let timer = Timer::start().unwrap();
        let woken = timer.shared.add(Instant::now() + Duration::from_secs(3600));
        drop(timer);
        assert!(woken.await.is_err());
    }
}
