//! The threads that serve connections.

use std::sync::Arc;
use std::thread::{Builder as ThreadBuilder, JoinHandle};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use wire::tasks;

use super::io_error;

/// How long a thread that ends waits for its blocking jobs. A longer one is left alone.
const JOB_PATIENCE: Duration = Duration::from_secs(10);

/// Threads that serve connections. Each has a runtime of its own, so a connection never moves between threads.
///
/// The servers of a process may share them: messages between these servers then often need no other thread. They run until
/// [`IoThreads::end`].
pub struct IoThreads {
    threads: Vec<IoThread>,
}

struct IoThread {
    runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// The runtimes of such threads.
pub type IoRuntimes = Arc<[Handle]>;

impl IoThreads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system grants no thread or no event queue.
    pub fn start(count: usize) -> Result<Self> {
        let threads = (0..count).map(IoThread::start).collect::<Result<_>>()?;
        Ok(Self { threads })
    }

    /// Their runtimes.
    #[must_use]
    pub fn runtimes(&self) -> IoRuntimes {
        self.threads.iter().map(|thread| thread.runtime.clone()).collect()
    }

    /// Ends the threads, and every task on them.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if one has panicked.
    pub async fn end(self) -> Result<()> {
        let threads: Vec<_> = self
            .threads
            .into_iter()
            .map(|IoThread { stop, thread, .. }| {
                // A thread that has panicked does not listen.
                let _ = stop.send(());
                thread
            })
            .collect();
        let join = move || threads.into_iter().filter_map(|thread| thread.join().err()).count();
        match tasks::spawn_blocking(join).await {
            Ok(0) => Ok(()),
            Ok(_) | Err(_) => Err(Error::new(ErrorKind::Internal, "an I/O thread has panicked")),
        }
    }
}

impl IoThread {
    fn start(number: usize) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(64).build();
        let runtime = runtime.map_err(|error| io_error("an I/O thread gets no event queue", error))?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel());
        let serve = async move {
            if stopped.await.is_err() {
                // The handle was dropped: the thread runs until the process ends.
                std::future::pending::<()>().await;
            }
        };
        let run = move || {
            runtime.block_on(serve);
            runtime.shutdown_timeout(JOB_PATIENCE);
        };
        let started = ThreadBuilder::new().name(format!("mortar-io-{number}")).spawn(run);
        let thread = started.map_err(|error| io_error("a thread cannot be started", error))?;
        Ok(Self { runtime: handle, stop, thread })
    }
}
