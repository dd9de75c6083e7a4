//! The brick: a store behind listeners.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use model::{Error, ErrorKind, Result};
use store::Store;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time;
use tracing::{error, info, warn};
use wire::link::Mailbox;
use wire::proto;
use wire::transport::{Address, Listener, beyond_loopback};

use crate::config::Config;
use crate::http;
use crate::io_thread::{AGENT, Arrival, TICK, Thread};
use crate::long_job::AT_A_TIME;
use crate::metrics::Metrics;
use crate::session::Session;

/// What all threads of a brick share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) in_memory: bool,
    pub(crate) config: Arc<Config>,
    pub(crate) metrics: Metrics,
    /// Places for jobs that may take hours.
    pub(crate) long_jobs: Arc<Semaphore>,
    sessions: Mutex<Vec<Weak<Session>>>,
    /// Holds a receiver for every connection, so that their end can be awaited.
    connected: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn register(&self, session: &Arc<Session>) -> watch::Receiver<()> {
        let mut sessions = self.sessions();
        sessions.retain(|session| session.strong_count() > 0);
        sessions.push(Arc::downgrade(session));
        self.connected.subscribe()
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Session>>> {
        // A list that is whole between any two statements: a panic elsewhere spoils nothing.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn for_each_session(&self, each: impl Fn(&Session)) {
        let sessions: Vec<_> = self.sessions().iter().filter_map(Weak::upgrade).collect();
        sessions.iter().for_each(|session| each(session));
    }

    pub(crate) fn status(&self) -> proto::Status {
        let figures = crate::figures::figures(self).into_iter();
        let figures = figures.map(|figure| proto::Figure { name: figure.name.to_owned(), value: figure.value });
        proto::Status { agent: AGENT.to_owned(), figures: figures.collect() }
    }
}

/// A store that is being served.
///
/// Dropped, it goes on serving until the process ends; [`Brick::shutdown`] ends it in good order.
pub struct Brick {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    phase: watch::Sender<Phase>,
    addresses: Vec<Address>,
    http: Option<SocketAddr>,
}

impl std::fmt::Debug for Brick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Brick").field("addresses", &self.addresses).field("http", &self.http).finish_non_exhaustive()
    }
}

/// How far a brick's life has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// No more connections; those there are answer what was asked.
    Draining,
    /// No more connections, and no threads.
    Ended,
}

/// Where a brick listens: the addresses asked for, with the ports that the system chose.
struct Bound {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    http: Option<(tokio::net::TcpListener, SocketAddr)>,
}

impl Brick {
    /// Serves `store` as `config` says. When this returns, the brick listens.
    ///
    /// Fails as [`ErrorKind::Denied`] if it should listen beyond this machine and `config` does not call that
    /// [`insecure`](Config::insecure); as [`ErrorKind::Io`] if it cannot listen.
    pub async fn start(store: Store, config: Config) -> Result<Self> {
        if config.listen.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a brick needs an address to listen at"));
        }
        if !config.insecure {
            refuse_beyond_loopback(&config).await?;
        }
        let count = config.threads.max(1);
        let in_memory = store.status().in_memory;
        let (sessions, (connected, _)) = (Mutex::default(), watch::channel(()));
        let (config, metrics) = (Arc::new(config), Metrics::new(count));
        let long_jobs = Arc::new(Semaphore::new(AT_A_TIME));
        let shared = Arc::new(Shared { store, in_memory, config, metrics, long_jobs, sessions, connected });
        let (phase, watched) = watch::channel(Phase::Serving);
        let mut workers = Vec::new();
        let mut receivers = Vec::new();
        for metrics in &shared.metrics.threads {
            let (sender, receiver) = mpsc::unbounded_channel();
            workers.push((Thread::new(shared.clone(), metrics.clone()), sender));
            receivers.push(receiver);
        }
        let io: Vec<Arc<Thread>> = workers.iter().map(|(thread, _)| thread.clone()).collect();
        let (tell_bound, bound) = oneshot::channel();
        let mut front = Some(Front { shared: shared.clone(), workers, phase: watched, tell_bound });
        let mut threads = Vec::new();
        for (number, (thread, arrivals)) in io.into_iter().zip(receivers).enumerate() {
            let front = front.take();
            let started = thread::Builder::new().name(format!("mortar-io-{number}")).spawn(move || {
                run_thread(thread, arrivals, front);
            });
            threads.push(started.map_err(|error| io_error("a thread cannot be started", error))?);
        }
        let gone = |_| Error::new(ErrorKind::Internal, "an I/O thread ended before it listened");
        let (addresses, http) = bound.await.map_err(gone)??;
        info!(addresses = %join(&addresses), http = ?http, in_memory, "serving");
        Ok(Self { shared, threads, phase, addresses, http })
    }

    /// Where it listens, in the order asked for, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where `/metrics` and `/health` are, if anywhere.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Ends it: takes no more connections, answers what was asked, and closes the store, whose result it returns.
    pub async fn shutdown(self) -> Result<()> {
        info!("shutting down");
        self.phase.send_replace(Phase::Draining);
        self.end_sessions(Mailbox::drain).await;
        self.end_sessions(Mailbox::hang_up).await;
        self.phase.send_replace(Phase::Ended);
        let (shared, threads) = (self.shared, self.threads);
        let closed = tokio::task::spawn_blocking(move || {
            let mut result = Ok(());
            for thread in threads {
                if thread.join().is_err() {
                    result = Err(Error::new(ErrorKind::Internal, "an I/O thread has panicked"));
                }
            }
            result.and(shared.store.clone().close())
        });
        let result = closed.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "closing panicked")));
        match &result {
            Ok(()) => info!("shut down"),
            Err(error) => error!(%error, "shut down, but not cleanly"),
        }
        result
    }

    /// Ends all sessions in one way, and waits a while until they have ended.
    async fn end_sessions(&self, how: impl Fn(&Mailbox)) {
        let patience = self.shared.config.shutdown_timeout;
        let all_ended = async {
            while self.shared.connected.receiver_count() > 0 {
                self.shared.for_each_session(|session| how(&session.mailbox));
                // A connection that was being welcomed registers late, so they are told again.
                let _ = time::timeout(TICK / 20, self.shared.connected.closed()).await;
            }
        };
        if time::timeout(patience, all_ended).await.is_err() {
            self.shared.for_each_session(|session| warn!(peer = session.peer, "does not take its answers"));
        }
    }
}

/// What the first I/O thread does besides: it listens, and hands connections out.
struct Front {
    shared: Arc<Shared>,
    workers: Vec<(Arc<Thread>, mpsc::UnboundedSender<Arrival>)>,
    phase: watch::Receiver<Phase>,
    tell_bound: oneshot::Sender<Result<(Vec<Address>, Option<SocketAddr>)>>,
}

fn run_thread(thread: Arc<Thread>, arrivals: mpsc::UnboundedReceiver<Arrival>, front: Option<Front>) {
    let runtime = match Builder::new_current_thread().enable_all().max_blocking_threads(64).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "an I/O thread gets no event queue");
            return;
        }
    };
    runtime.block_on(async move {
        if let Some(front) = front {
            tokio::spawn(front.run());
        }
        thread.run(arrivals).await;
    });
}

impl Front {
    async fn run(mut self) {
        let bound = match bind(&self.shared.config).await {
            Ok(bound) => bound,
            Err(error) => {
                // Whoever starts the brick waits for this.
                let _ = self.tell_bound.send(Err(error));
                return;
            }
        };
        let http = bound.http.map(|(listener, address)| {
            tokio::spawn(http::serve(listener, self.shared.clone()));
            address
        });
        let _ = self.tell_bound.send(Ok((bound.addresses, http)));
        let workers = Arc::new(self.workers);
        let accepting = bound.listeners.into_iter().map(|listener| {
            let (shared, workers) = (self.shared.clone(), workers.clone());
            tokio::spawn(async move { accept(listener, &shared, &workers).await })
        });
        let accepting: Vec<_> = accepting.collect();
        tokio::spawn(expire(self.shared));
        if self.phase.wait_for(|phase| *phase >= Phase::Draining).await.is_err() {
            // The handle was dropped: it serves until the process ends.
            std::future::pending::<()>().await;
        }
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        // Then the threads learn that no more arrives, and end.
        let _ = self.phase.wait_for(|phase| *phase == Phase::Ended).await;
    }
}

/// Gives up, once a second, what sessions have left unused for too long.
async fn expire(shared: Arc<Shared>) {
    let idle = shared.config.snapshot_idle.as_secs_f64() / TICK.as_secs_f64();
    let mut ticks = time::interval(TICK);
    loop {
        ticks.tick().await;
        shared.for_each_session(|session| session.tick(idle.ceil() as u32));
    }
}

/// Hands what arrives at a listener to the thread with the fewest connections.
async fn accept(listener: Listener, shared: &Shared, workers: &[(Arc<Thread>, mpsc::UnboundedSender<Arrival>)]) {
    loop {
        let (connection, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Mostly too many open files: others may close theirs.
                warn!(%error, "a connection cannot be accepted");
                time::sleep(TICK / 10).await;
                continue;
            }
        };
        let metrics = &shared.metrics;
        metrics.accepted.fetch_add(1, Ordering::Relaxed);
        // Beyond this not even a refusal is worth its cost.
        if metrics.open.fetch_add(1, Ordering::Relaxed) >= 2 * shared.config.max_connections as u64 {
            metrics.open.fetch_sub(1, Ordering::Relaxed);
            metrics.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let idlest = workers.iter().min_by_key(|(thread, _)| thread.load.load(Ordering::Relaxed));
        let Some((thread, arrivals)) = idlest else { return };
        thread.load.fetch_add(1, Ordering::Relaxed);
        if arrivals.send(Arrival { connection, peer }).is_err() {
            return;
        }
    }
}

async fn bind(config: &Config) -> Result<Bound> {
    let mut bound = Bound { listeners: Vec::new(), addresses: Vec::new(), http: None };
    for address in &config.listen {
        let cannot = |error| io_error(&format!("cannot listen at {address}"), error);
        let listener = Listener::bind(address).await.map_err(cannot)?;
        bound.addresses.push(listener.address().map_err(cannot)?);
        bound.listeners.push(listener);
    }
    if let Some(address) = config.http {
        let cannot = |error| io_error(&format!("cannot listen at {address} for HTTP"), error);
        let listener = tokio::net::TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        bound.http = Some((listener, address));
    }
    Ok(bound)
}

async fn refuse_beyond_loopback(config: &Config) -> Result<()> {
    let denied = |address: &dyn std::fmt::Display| {
        let what = format!(
            "{address} can be reached from other machines, and nobody has to say who they are: \
             listen on loopback or a Unix socket, or say --insecure"
        );
        Error::new(ErrorKind::Denied, what)
    };
    for address in &config.listen {
        let cannot = |error| io_error(&format!("cannot find out where {address} is"), error);
        if !beyond_loopback(address).await.map_err(cannot)?.is_empty() {
            return Err(denied(address));
        }
    }
    match config.http {
        Some(address) if !address.ip().is_loopback() => Err(denied(&address)),
        _ => Ok(()),
    }
}

fn io_error(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, what).caused_by(error)
}

fn join(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" ")
}
