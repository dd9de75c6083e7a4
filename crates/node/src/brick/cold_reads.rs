//! Reads that would wait for the disk, on threads that may wait.
//!
//! The store's B-tree is read from a memory map. A read of a page of it that is not in memory stops the thread until the disk has
//! delivered it, and an I/O thread has many connections. So the store is asked first whether rows are in memory, which takes some
//! microseconds. While nothing waits for the disk, the store is not asked:
//!
//! | event | reads before which the store is asked from then on |
//! | --- | --- |
//! | the brick starts | the next [`PROBES_AT_START`] |
//! | rows are not in memory | the next [`PROBES_AFTER_COLD`] |
//! | a read took longer than [`SLOW`] | the next [`PROBES_AFTER_SLOW`]: it waited for the disk or for a processor |
//!
//! Rows that are not in memory are read by at most [`MAX_THREADS`] threads of its own, in the order in which they were asked for. If more
//! than [`MAX_WAITING`] reads wait, or requests of [`MAX_WAITING_BYTES`], the calling thread reads, as it would without this module: then
//! the disk limits how many requests are taken in.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tracing::error;

use crate::server::Metric;

/// Threads that read at a time.
const MAX_THREADS: usize = 16;
/// How long such a thread waits for something to read before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// Reads that wait for such a thread at most.
const MAX_WAITING: usize = if cfg!(test) { 4 } else { 16_384 };
/// Bytes of requests that wait for such a thread, apart from one.
const MAX_WAITING_BYTES: usize = 64 << 20;
/// Reads before which the store is asked, after rows were not in memory.
const PROBES_AFTER_COLD: u32 = 1 << 16;
/// Reads before which the store is asked, when the brick has started.
const PROBES_AT_START: u32 = 16;
/// Reads before which the store is asked, after a read took long.
const PROBES_AFTER_SLOW: u32 = 4;
/// A read that takes longer than this may have waited for the disk.
const SLOW: Duration = Duration::from_micros(50);

/// Something to be done on a thread that may wait.
type Job = Box<dyn FnOnce() + Send>;

/// Decides which reads would wait for the disk, and has threads for them.
#[derive(Default)]
pub(crate) struct ColdReads {
    probes_left: AtomicU32,
    /// Reads that were handed to other threads.
    deferred: AtomicU64,
    queue: Mutex<ReadQueue>,
    /// Wakes a thread when there is something to read, and all of them when the queue is closed.
    changed: Condvar,
    /// What tests take for rows that are not in memory.
    #[cfg(test)]
    pub(super) simulated: simulated_disk::SimulatedDisk,
}

#[derive(Default)]
struct ReadQueue {
    /// What is to be done, each with the bytes that it keeps.
    waiting: VecDeque<(Job, usize)>,
    waiting_bytes: usize,
    threads: usize,
    /// Threads that wait for something to read.
    idle: usize,
    is_closed: bool,
}

/// A place in the queue.
pub(crate) struct ReadPlace {
    reads: Arc<ColdReads>,
    runtime: Handle,
    bytes: usize,
}

/// Closes the queue when it is dropped.
pub(crate) struct ClosingGuard(Arc<ColdReads>);

impl ColdReads {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { probes_left: AtomicU32::new(PROBES_AT_START), ..Self::default() })
    }

    /// Whether the store is to be asked before rows are read.
    pub(crate) fn is_probing(&self) -> bool {
        self.probes_left.load(Ordering::Relaxed) > 0
    }

    /// Whether a read would wait for the disk. `is_resident` asks the store; it is called only if that may be so.
    pub(crate) fn would_wait(&self, is_resident: impl FnOnce() -> bool) -> bool {
        if !self.is_probing() {
            return false;
        }
        if is_resident() {
            let fewer = |left: u32| left.checked_sub(1);
            // It fails if another thread has counted the last one.
            let _ = self.probes_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
            return false;
        }
        self.probes_left.store(PROBES_AFTER_COLD, Ordering::Relaxed);
        true
    }

    /// Reads on this thread, and notices if that takes long.
    pub(crate) fn measure<T>(&self, read: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let found = read();
        if began.elapsed() > SLOW {
            self.probes_left.fetch_max(PROBES_AFTER_SLOW, Ordering::Relaxed);
        }
        found
    }

    /// A place for a read by another thread, for a request of this many bytes. `None` if there is none: too many wait, the queue is
    /// closed, or this thread belongs to no runtime.
    pub(crate) fn place(self: &Arc<Self>, bytes: usize) -> Option<ReadPlace> {
        let runtime = Handle::try_current().ok()?;
        let queue = self.lock();
        let is_heavy = bytes > 0 && queue.waiting_bytes > 0 && queue.waiting_bytes + bytes > MAX_WAITING_BYTES;
        let is_full = queue.is_closed || queue.waiting.len() >= MAX_WAITING || is_heavy;
        (!is_full).then(|| ReadPlace { reads: self.clone(), runtime, bytes })
    }

    /// Starts a thread that is counted already. Without one, a thread of the runtime reads, which scans may delay.
    fn spawn_thread(self: &Arc<Self>, runtime: Handle) {
        let (reads, context) = (self.clone(), runtime.clone());
        let run = move || {
            // A request that is handled may need the runtime.
            let _context = context.enter();
            reads.run();
        };
        if let Err(error) = thread::Builder::new().name("mortar-read".to_owned()).spawn(run) {
            error!(%error, "the system grants no thread for reads that wait for the disk");
            let reads = self.clone();
            drop(runtime.spawn_blocking(move || reads.run()));
        }
    }

    /// Does what waits, until nothing does.
    fn run(&self) {
        while let Some(job) = self.next_job() {
            #[cfg(test)]
            self.simulated.wait();
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                error!("a read of rows that were not in memory has panicked");
            }
        }
    }

    /// The next job; `None` if the thread is to end.
    fn next_job(&self) -> Option<Job> {
        let mut queue = self.lock();
        if queue.waiting.is_empty() && !queue.is_closed {
            queue.idle += 1;
            let is_idle = |queue: &mut ReadQueue| queue.waiting.is_empty() && !queue.is_closed;
            let waited = self.changed.wait_timeout_while(queue, IDLE_TIMEOUT, is_idle);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            queue.idle -= 1;
        }
        match queue.waiting.pop_front() {
            Some((job, bytes)) => {
                queue.waiting_bytes -= bytes;
                Some(job)
            }
            None => {
                queue.threads -= 1;
                None
            }
        }
    }

    /// Drops what waits when the guard is dropped, and takes no more.
    pub(crate) fn closing_guard(self: &Arc<Self>) -> ClosingGuard {
        ClosingGuard(self.clone())
    }

    pub(crate) fn metrics(&self) -> [Metric; 2] {
        let waiting = self.lock().waiting.len() as u64;
        let deferred = self.deferred.load(Ordering::Relaxed);
        [
            Metric::counter(
                "cold_reads_total",
                deferred,
                "Reads of rows that were not in memory, by threads of their own.",
            ),
            Metric::gauge("cold_reads_waiting", waiting, "Such reads that wait for a thread."),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        // The data is consistent between statements, so a poisoned lock is harmless.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadPlace {
    /// Has another thread do something. It is dropped if the queue has been closed.
    pub(crate) fn run(self, job: impl FnOnce() + Send + 'static) {
        let Self { reads, runtime, bytes } = self;
        let mut queue = reads.lock();
        if queue.is_closed {
            return;
        }
        queue.waiting.push_back((Box::new(job), bytes));
        queue.waiting_bytes += bytes;
        reads.deferred.fetch_add(1, Ordering::Relaxed);
        if queue.waiting.len() <= queue.idle {
            reads.changed.notify_one();
        } else if queue.threads < MAX_THREADS {
            queue.threads += 1;
            drop(queue);
            reads.spawn_thread(runtime);
        }
    }
}

impl Drop for ClosingGuard {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        queue.waiting_bytes = 0;
        drop(queue);
        self.0.changed.notify_all();
        // A dropped job closes the channel on which `read_latest_later` waits; that returns an error.
        drop(waiting);
    }
}

/// A disk for tests: pages that count as not in memory, and reads of them that wait until the test lets them go on.
#[cfg(test)]
pub(super) mod simulated_disk {
    use std::collections::BTreeSet;
    use std::sync::{Condvar, Mutex};

    use model::PageId;

    #[derive(Default)]
    pub(in crate::brick) struct SimulatedDisk {
        cold: Mutex<BTreeSet<PageId>>,
        is_stopped: Mutex<bool>,
        changed: Condvar,
    }

    impl SimulatedDisk {
        pub(in crate::brick) fn evict(&self, page: PageId) {
            self.cold.lock().unwrap().insert(page);
        }

        pub(in crate::brick) fn is_cold(&self, page: PageId) -> bool {
            self.cold.lock().unwrap().contains(&page)
        }

        pub(in crate::brick) fn stop(&self, is_stopped: bool) {
            *self.is_stopped.lock().unwrap() = is_stopped;
            self.changed.notify_all();
        }

        pub(super) fn wait(&self) {
            let stopped = self.is_stopped.lock().unwrap();
            drop(self.changed.wait_while(stopped, |stopped| *stopped).unwrap());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn store_is_asked_until_nothing_was_cold_for_long() {
        let reads = ColdReads::new();
        let ask = |is_resident| reads.would_wait(|| is_resident);
        assert!((0..PROBES_AT_START).all(|_| reads.is_probing() && !ask(true)));
        assert!(!reads.is_probing());
        assert!(!ask(false), "the store is not asked");
        reads.measure(|| thread::sleep(SLOW));
        assert!((1..PROBES_AFTER_SLOW).all(|_| !ask(true)));
        assert!(ask(false));
        assert!((0..PROBES_AFTER_COLD).all(|_| reads.is_probing() && !ask(true)));
        assert!(!reads.is_probing());
    }

    #[test]
    fn thread_without_a_runtime_reads_by_itself() {
        assert!(ColdReads::new().place(0).is_none());
    }

    #[tokio::test]
    async fn limited_number_of_reads_waits_and_none_does_once_the_queue_is_closed() {
        let reads = ColdReads::new();
        reads.simulated.stop(true);
        let (done, finished) = mpsc::channel();
        let defer = || {
            let (place, done) = (reads.place(0), done.clone());
            place.map(|place| place.run(move || done.send(()).unwrap_or_default())).is_some()
        };
        let mut begun = 0;
        // Each thread has taken one job or will: wait until no more are taken.
        while begun < MAX_THREADS + MAX_WAITING {
            if defer() {
                begun += 1;
            } else {
                tokio::task::yield_now().await;
            }
        }
        assert!(!defer(), "{} wait", reads.lock().waiting.len());
        assert_eq!(reads.lock().threads, MAX_THREADS);
        drop(reads.closing_guard());
        assert!(!defer());
        reads.simulated.stop(false);
        drop(done);
        let finished = tokio::task::spawn_blocking(move || finished.iter().count()).await.unwrap();
        assert_eq!(finished, MAX_THREADS, "those that waited are dropped");
    }

    #[tokio::test]
    async fn bytes_of_requests_that_wait_are_limited_and_one_may_have_any_number() {
        let reads = ColdReads::new();
        reads.lock().threads = MAX_THREADS;
        let take = |bytes| reads.place(bytes).map(|place| place.run(|| {})).is_some();
        assert!(take(0) && take(2 * MAX_WAITING_BYTES), "nothing with bytes waits");
        assert!(!take(1) && take(0), "pages need no room");
        reads.run();
        assert_eq!(reads.lock().waiting_bytes, 0);
    }

    #[tokio::test]
    async fn thread_that_has_nothing_to_read_waits_for_the_next_read() {
        let reads = ColdReads::new();
        let (done, finished) = mpsc::channel();
        let read = || {
            let done = done.clone();
            reads.place(0).unwrap().run(move || done.send(thread::current().id()).unwrap());
            finished.recv().unwrap()
        };
        let is_busy = || {
            let queue = reads.lock();
            queue.idle == 0 && queue.threads > 0
        };
        // On a busy machine a thread may end before its next read is there.
        let is_used_again = (0..20).any(|_| {
            let first = read();
            while is_busy() {
                thread::yield_now();
            }
            read() == first
        });
        assert!(is_used_again);
    }

    #[tokio::test]
    async fn job_that_panics_ends_no_thread() {
        let reads = ColdReads::new();
        let (done, finished) = mpsc::channel();
        reads.place(0).unwrap().run(|| panic!("a mistake"));
        reads.place(0).unwrap().run(move || done.send(()).unwrap());
        tokio::task::spawn_blocking(move || finished.recv().unwrap()).await.unwrap();
    }
}
