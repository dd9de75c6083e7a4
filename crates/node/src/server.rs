//! What all roles share: listeners, threads and connections.
//!
//! A [`ServerRole`] decides which callers are admitted and answers requests; the server does the rest. Each connection is a task of
//! one I/O thread and stays there.

mod config;
mod connection_table;
mod counters;
mod handle;
mod http;
mod io_threads;
mod log_limiter;
mod metric;
mod thread;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use meta::Revision;
use meta::catalog::Catalog;
use model::{Error, ErrorKind, Result};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time;
use tracing::{error, info, warn};
use wire::handshake::Terms;
use wire::link::{Mailbox, MemoryBudget, Responder, Service};
use wire::proto;
use wire::proto::response::Response;
use wire::tasks;
use wire::transport::{Address, Listener, PeerAddress, beyond_loopback};

use crate::auth::{Authenticator, Principal};
use crate::process_clock::ProcessClock;
pub use config::{Config, OwnClients};
pub use connection_table::ConnectionLimits;
use connection_table::{ConnectionOwner, ConnectionTable};
#[cfg(test)]
pub(crate) use counters::KINDS;
pub(crate) use counters::{Kind, ServerCounters, ThreadCounters};
pub(crate) use handle::server_handle;
pub use io_threads::{IoRuntimes, IoThreads};
pub(crate) use log_limiter::LogLimiter;
pub(crate) use metric::Metric;
pub(crate) use thread::{AGENT, TICK, Thread};

use thread::{AcceptedConnection, LoadShare};

/// The role of a server.
pub(crate) trait ServerRole: Sized + Send + Sync + 'static {
    /// Answers the requests of one connection. Dropped when the connection has ended.
    type Service: Service + Send;
    /// The role's data about an admitted caller.
    type Admission: Send;

    /// Its name in logs.
    const NAME: &'static str;

    /// The current copy of the catalogue, if there is one. Without a catalogue every caller is anonymous.
    fn catalog(&self) -> Option<Arc<Catalog>>;

    /// Signals changes of the catalogue.
    fn catalog_changes(&self) -> Option<watch::Receiver<Revision>>;

    /// The clock of the process; `None` if the role needs no time.
    fn clock(&self) -> Option<&ProcessClock>;

    /// Who decides which callers are users.
    fn user_source(&self) -> UserSource {
        self.catalog().map_or(UserSource::None, UserSource::Catalog)
    }

    /// Decides whether a caller is admitted, and on which terms. `hello` has the caller's password.
    ///
    /// # Errors
    /// The refusal that the caller is sent.
    fn admit(
        &self,
        config: &Config,
        hello: &proto::Hello,
        who: &Principal,
    ) -> impl Future<Output = Result<(Terms, Self::Admission)>> + Send;

    /// Checks that a caller would still be admitted, when the catalogue has changed; one that would not is disconnected.
    ///
    /// # Errors
    /// Why not.
    fn check_admitted(&self, connection: &AdmittedConnection) -> Result<()>;

    /// Creates the service of an admitted connection, which is reached through `mailbox`.
    fn serve(thread: &Arc<Thread<Self>>, pass: Self::Admission, mailbox: &Arc<Mailbox>) -> Self::Service;

    /// The background work of a thread, as long as it runs.
    fn run_background(thread: &Thread<Self>) -> impl Future<Output = ()> + Send;

    /// The background work of a thread has panicked. What cannot serve without it must not admit anybody from now on.
    fn handle_background_panic(&self, _thread: usize) {}

    /// Whether the thread with this number can serve connections. One that cannot gets none while another can.
    fn can_serve(&self, _thread: usize) -> bool {
        true
    }

    /// Called once a second.
    fn tick(&self);

    /// The metrics of the role.
    fn metrics(&self, metrics: &ServerCounters) -> Vec<Metric>;

    /// Why the server is not healthy, if so.
    fn health_problem(&self) -> Option<String>;

    /// Closes the role after the last connection has ended. May block.
    ///
    /// # Errors
    /// If it could not be closed cleanly.
    fn close(&self) -> Result<()>;
}

/// What all threads of a server share.
pub(crate) struct Shared<R> {
    pub(crate) role: R,
    pub(crate) config: Arc<Config>,
    pub(crate) counters: ServerCounters,
    authenticator: Authenticator,
    table: Arc<ConnectionTable>,
    input_budget: Arc<MemoryBudget>,
    output_budget: Arc<MemoryBudget>,
    /// For lines about connections that are refused or evicted, or that break the protocol.
    refusal_log: LogLimiter,
    connections: Mutex<Vec<(Arc<AdmittedConnection>, Weak<Mailbox>)>>,
    /// Holds a receiver for every connection, so that their end can be awaited.
    connected: watch::Sender<()>,
}

/// Who decides which callers are users.
pub(crate) enum UserSource {
    /// Every caller is anonymous.
    None,
    /// The users of this catalogue.
    Catalog(Arc<Catalog>),
    /// The servers that this one passes its callers on to.
    Upstream,
}

/// A connection that was admitted.
pub(crate) struct AdmittedConnection {
    /// Its number in the table of connections.
    id: u64,
    peer: PeerAddress,
    pub(crate) principal: Principal,
    /// Its `Hello`, without the password.
    pub(crate) hello: proto::Hello,
    /// On which terms it was admitted.
    pub(crate) terms: Terms,
}

/// How long a connection that is not admitted any more has to receive the answers to its requests.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

impl<R: ServerRole> Shared<R> {
    fn register(&self, connection: AdmittedConnection, mailbox: &Arc<Mailbox>) -> watch::Receiver<()> {
        let connection = Arc::new(connection);
        {
            let mut connections = self.lock_connections();
            connections.retain(|(_, mailbox)| mailbox.strong_count() > 0);
            connections.push((connection.clone(), Arc::downgrade(mailbox)));
        }
        // The catalogue may have changed after the connection was admitted and before it was in the list.
        self.recheck_admission(&connection, mailbox);
        self.connected.subscribe()
    }

    /// Closes a connection that would not be admitted any more, once its requests are answered: so the client that
    /// creates the first user gets its answer.
    fn recheck_admission(&self, connection: &AdmittedConnection, mailbox: &Arc<Mailbox>) {
        let AdmittedConnection { id, peer, principal: who, .. } = connection;
        let catalog = self.role.catalog();
        self.table.set_privileged(*id, who.is_privileged(catalog.as_deref()));
        let admitted = who.check(catalog.as_deref());
        if let Err(error) = admitted.and_then(|()| self.role.check_admitted(connection)) {
            info!(%peer, %who, %error, "a connection is not admitted any more and is closed");
            mailbox.drain();
            let mailbox = Arc::downgrade(mailbox);
            tasks::spawn(async move {
                tokio::time::sleep(DRAIN_TIMEOUT).await;
                // A streamed answer may never end.
                if let Some(mailbox) = mailbox.upgrade() {
                    mailbox.hang_up();
                }
            });
        }
    }

    /// The background work of a thread has panicked.
    fn handle_background_panic(&self, thread: usize) {
        error!(
            role = R::NAME,
            thread, "the background work has panicked, which is a fault of Mortar: restart the process"
        );
        self.role.handle_background_panic(thread);
        self.for_each_connection(|connection, mailbox| self.recheck_admission(connection, mailbox));
    }

    fn lock_connections(&self) -> std::sync::MutexGuard<'_, Vec<(Arc<AdmittedConnection>, Weak<Mailbox>)>> {
        // The list is consistent between any two statements, so a panic elsewhere does no harm.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn for_each_connection(&self, each: impl Fn(&AdmittedConnection, &Arc<Mailbox>)) {
        let connections: Vec<_> = self
            .lock_connections()
            .iter()
            .filter_map(|(connection, mailbox)| Some((connection.clone(), mailbox.upgrade()?)))
            .collect();
        connections.iter().for_each(|(connection, mailbox)| each(connection, mailbox));
    }

    pub(crate) fn status(&self) -> proto::Status {
        let metrics = metric::metrics(self).into_iter();
        let metrics = metrics.map(|metric| proto::Metric { name: metric.name.to_owned(), value: metric.value });
        let (role, health_problem) = (R::NAME.to_owned(), self.role.health_problem().unwrap_or_default());
        let (agent, process) = (AGENT.to_owned(), std::process::id());
        let clocks = self.role.clock().map(ProcessClock::statuses).unwrap_or_default();
        proto::Status { agent, metrics: metrics.collect(), role, health_problem, process, clocks }
    }
}

/// A running server.
///
/// If it is dropped, it serves until the process ends. [`Server::shutdown`] stops it cleanly.
pub(crate) struct Server<R> {
    shared: Arc<Shared<R>>,
    /// What it runs on each thread.
    tasks: Vec<JoinHandle<()>>,
    /// Its threads, unless it shares those of other servers.
    threads: Option<IoThreads>,
    phase: watch::Sender<Phase>,
    pub(crate) addresses: Vec<Address>,
    pub(crate) http: Option<SocketAddr>,
}

/// A server that is being started.
///
/// For each role, a function that is neither async nor generic makes this from [`Server::start`]. So the code of the
/// role's connections is compiled with this crate. The compiler generates the code of a plain future in the crate that
/// awaits it: the command line, which is optimized for size.
pub(crate) type StartingServer<R> = Pin<Box<dyn Future<Output = Result<Server<R>>> + Send>>;

/// The phases of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// It accepts no connections; those that exist answer the requests that have arrived.
    Draining,
    /// All connections have ended.
    Ended,
}

/// The listeners of a server, with the ports that the system chose.
struct BoundListeners {
    listeners: Vec<Listener>,
    addresses: Vec<Address>,
    http: Option<(tokio::net::TcpListener, SocketAddr)>,
}

impl<R: ServerRole> Server<R> {
    /// Serves `role` as configured. When this returns, the server listens.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] if other machines could reach it without TLS or users, unless it is configured as
    /// [`insecure`](Config::insecure); [`ErrorKind::Io`] if it cannot listen.
    pub(crate) async fn start(role: R, config: Config) -> Result<Self> {
        if config.listen.is_empty() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a server needs an address to listen at: give --listen ADDRESS",
            ));
        }
        let is_exposed = !config.insecure && is_exposed(&config, role.user_source()).await?;
        let authenticator =
            Authenticator::new(config.cluster_credentials.clone(), config.own_clients.clone(), is_exposed);
        let (runtimes, threads) = match config.io_runtimes.clone() {
            Some(shared) => (shared, None),
            None => {
                let threads = IoThreads::start(config.thread_count())?;
                (threads.runtimes(), Some(threads))
            }
        };
        let (connections, (connected, _)) = (Mutex::default(), watch::channel(()));
        let (config, counters) = (Arc::new(config), ServerCounters::new(runtimes.len()));
        let table = ConnectionTable::new(config.connections);
        let input_budget = MemoryBudget::new(config.unfinished_input_bytes);
        let output_budget = MemoryBudget::new(config.unsent_output_bytes);
        let shared = Arc::new(Shared {
            role,
            config,
            counters,
            authenticator,
            table,
            input_budget,
            output_budget,
            refusal_log: LogLimiter::default(),
            connections,
            connected,
        });
        let (phase, watched) = watch::channel(Phase::Serving);
        let mut workers = Vec::new();
        let mut receivers = Vec::new();
        for (number, metrics) in shared.counters.threads.iter().enumerate() {
            let (sender, receiver) = mpsc::unbounded_channel();
            workers.push((Thread::new(shared.clone(), metrics.clone(), number), sender));
            receivers.push(receiver);
        }
        let io: Vec<Arc<Thread<R>>> = workers.iter().map(|(thread, _)| thread.clone()).collect();
        let (tell_bound, bound) = oneshot::channel();
        let acceptor = Acceptor { shared: shared.clone(), workers, phase: watched, tell_bound };
        let serving = io.into_iter().zip(receivers).map(|(thread, arrivals)| thread.run(arrivals));
        let mut running: Vec<_> =
            runtimes.iter().zip(serving).map(|(runtime, serving)| tasks::spawn_on(runtime, serving)).collect();
        running.extend(runtimes.first().map(|runtime| tasks::spawn_on(runtime, acceptor.run())));
        let gone = |_| Error::new(ErrorKind::Internal, "an I/O thread ended before it listened");
        let (addresses, http) = match bound.await.map_err(gone).flatten() {
            Ok(bound) => bound,
            Err(error) => {
                if let Some(threads) = threads {
                    // What went wrong first is reported.
                    let _ = threads.end().await;
                }
                return Err(error);
            }
        };
        info!(role = R::NAME, addresses = %join(&addresses), http = ?http, "serving");
        Ok(Self { shared, tasks: running, threads, phase, addresses, http })
    }

    /// The role that it serves.
    pub(crate) fn role(&self) -> &R {
        &self.shared.role
    }

    /// Stops it: accepts no more connections, answers the requests that have arrived, and closes the role, whose result it returns.
    pub(crate) async fn shutdown(self) -> Result<()> {
        info!(role = R::NAME, "shutting down");
        self.phase.send_replace(Phase::Draining);
        self.end_sessions(Mailbox::drain, "a connection still waits for an answer or does not read it; it is closed")
            .await;
        self.end_sessions(Mailbox::hang_up, "a connection does not end; it is abandoned").await;
        self.phase.send_replace(Phase::Ended);
        let mut served = Ok(());
        for task in self.tasks {
            let panicked = |_| Error::new(ErrorKind::Internal, "an I/O thread has panicked");
            served = served.and(task.await.map_err(panicked));
        }
        if let Some(threads) = self.threads {
            served = served.and(threads.end().await);
        }
        let shared = self.shared;
        let closed = tasks::spawn_blocking(move || shared.role.close()).await;
        let closed = closed.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "closing panicked")));
        let result = served.and(closed);
        match &result {
            Ok(()) => info!("shut down"),
            Err(error) => error!(%error, "shut down, but not cleanly"),
        }
        result
    }

    /// Ends all connections by `how`, and waits a limited time until they have ended.
    async fn end_sessions(&self, how: impl Fn(&Mailbox), late: &str) {
        let patience = self.shared.config.shutdown_timeout;
        let all_ended = async {
            while self.shared.connected.receiver_count() > 0 {
                self.shared.for_each_connection(|_, mailbox| how(mailbox));
                // A connection that was being admitted registers late, so this is repeated.
                let _ = time::timeout(TICK / 20, self.shared.connected.closed()).await;
            }
        };
        if time::timeout(patience, all_ended).await.is_err() {
            self.shared.for_each_connection(|connection, _| warn!(peer = %connection.peer, "{late}"));
        }
    }
}

/// The additional work of the first I/O thread: it listens and distributes connections.
struct Acceptor<R: ServerRole> {
    shared: Arc<Shared<R>>,
    workers: Vec<(Arc<Thread<R>>, mpsc::UnboundedSender<AcceptedConnection>)>,
    phase: watch::Receiver<Phase>,
    tell_bound: oneshot::Sender<Result<(Vec<Address>, Option<SocketAddr>)>>,
}

impl<R: ServerRole> Acceptor<R> {
    async fn run(mut self) {
        let bound = match bind(&self.shared.config).await {
            Ok(bound) => bound,
            Err(error) => {
                // `Server::start` waits for this.
                let _ = self.tell_bound.send(Err(error));
                return;
            }
        };
        // These tasks end with this one.
        let mut tasks = JoinSet::new();
        let http = bound.http.map(|(listener, address)| {
            tasks::spawn_in(&mut tasks, http::serve(listener, self.shared.clone()));
            address
        });
        let _ = self.tell_bound.send(Ok((bound.addresses, http)));
        let workers = Arc::new(self.workers);
        let accept = |listener| {
            let (shared, workers) = (self.shared.clone(), workers.clone());
            tasks::spawn_in(&mut tasks, async move { accept(listener, &shared, &workers).await })
        };
        let accepting: Vec<_> = bound.listeners.into_iter().map(accept).collect();
        tasks::spawn_in(&mut tasks, recheck_on_catalog_change(self.shared.clone()));
        tasks::spawn_in(&mut tasks, recheck_on_clock_change(self.shared.clone()));
        tasks::spawn_in(&mut tasks, run_ticks(self.shared.clone()));
        if self.phase.wait_for(|phase| *phase >= Phase::Draining).await.is_err() {
            // The server was dropped: it serves until the process ends.
            std::future::pending::<()>().await;
        }
        accepting.iter().for_each(tokio::task::AbortHandle::abort);
        // Then the senders are dropped, and the threads serve no more connections.
        let _ = self.phase.wait_for(|phase| *phase == Phase::Ended).await;
    }
}

/// Answers later with the result of `work`, which runs to its end even if the connection ends before.
pub(crate) fn spawn_reply(reply: Responder<'_>, work: impl Future<Output = Result<Response>> + Send + 'static) {
    let deferred = reply.defer();
    tasks::spawn(async move { deferred.answer(work.await) });
}

/// Calls the role's `tick` once a second.
async fn run_ticks<R: ServerRole>(shared: Arc<Shared<R>>) {
    let mut ticks = time::interval(TICK);
    // A process that was stopped for a while does not repeat the ticks that it has missed.
    ticks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.table.tick();
        if let Some(suppressed) = shared.refusal_log.take_suppressed() {
            info!(suppressed, "more connections were refused or closed than are logged");
        }
        if let Some(clock) = shared.role.clock() {
            clock.refresh();
        }
        shared.role.tick();
    }
}

/// Checks all connections again whenever the catalogue has changed.
async fn recheck_on_catalog_change<R: ServerRole>(shared: Arc<Shared<R>>) {
    let Some(mut changed) = shared.role.catalog_changes() else { return };
    while changed.changed().await.is_ok() {
        shared.for_each_connection(|connection, mailbox| shared.recheck_admission(connection, mailbox));
    }
}

/// Checks all connections again whenever the clock of the process has become wrong or right.
async fn recheck_on_clock_change<R: ServerRole>(shared: Arc<Shared<R>>) {
    let Some(mut changed) = shared.role.clock().map(ProcessClock::changes) else { return };
    while changed.changed().await.is_ok() {
        shared.for_each_connection(|connection, mailbox| shared.recheck_admission(connection, mailbox));
    }
}

/// Passes the connections of a listener to the thread with the fewest connections.
async fn accept<R: ServerRole>(
    listener: Listener,
    shared: &Shared<R>,
    workers: &[(Arc<Thread<R>>, mpsc::UnboundedSender<AcceptedConnection>)],
) {
    loop {
        let (connection, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                if let Some(suppressed) = shared.refusal_log.admit() {
                    warn!(%error, suppressed, "a connection cannot be accepted");
                }
                let no_descriptors =
                    [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(|e| Some(e.raw_os_error()));
                if !(no_descriptors.contains(&error.raw_os_error()) && shared.table.evict_one()) {
                    time::sleep(TICK / 10).await;
                }
                continue;
            }
        };
        shared.counters.accepted.fetch_add(1, Ordering::Relaxed);
        // If no thread can serve it, one refuses it with the reason.
        let place = |(thread, _): &&(Arc<Thread<R>>, _)| {
            (!shared.role.can_serve(thread.number), thread.load.load(Ordering::Relaxed))
        };
        let Some((thread, arrivals)) = workers.iter().min_by_key(place) else { return };
        let load = LoadShare::of(thread.load.clone());
        let slot = shared.table.accept(peer.into());
        if arrivals.send(AcceptedConnection { connection, peer, slot, load }).is_err() {
            return;
        }
    }
}

/// Checks the addresses of a server that is to be started, before anything is made for it: that other machines do not reach it without TLS,
/// and that no other process listens there. What depends on users is checked at its start. Unix sockets are not tried: that would make and
/// remove their files.
///
/// # Errors
/// As those of the start of a server.
pub async fn check_addresses(config: &Config) -> Result<()> {
    if !config.insecure {
        is_exposed(config, UserSource::Upstream).await?;
    }
    let is_network = |address: &Address| matches!(address, Address::Tcp(_) | Address::Tls(_));
    let listen = config.listen.iter().filter(|address| is_network(address)).cloned().collect();
    let tried = Config { listen, own_clients: None, is_reached_in_process: false, ..config.clone() };
    bind(&tried).await.map(drop)
}

async fn bind(config: &Config) -> Result<BoundListeners> {
    let mut bound = BoundListeners { listeners: Vec::new(), addresses: Vec::new(), http: None };
    for address in &config.listen {
        let cannot = |error| io_error(&format!("cannot listen at {address}"), error);
        let listener = Listener::bind(address, config.tls.as_ref()).await.map_err(cannot)?;
        let address = listener.address().map_err(cannot)?;
        if let (Address::Tcp(host), true) = (&address, config.is_reached_in_process) {
            bound.listeners.push(Listener::bind_in_process(host).map_err(cannot)?);
        }
        bound.addresses.push(address);
        bound.listeners.push(listener);
    }
    if let Some(own) = &config.own_clients {
        let cannot = |error| io_error("cannot listen for clients of this process", error);
        bound.listeners.push(Listener::bind_in_process(own.name()).map_err(cannot)?);
    }
    if let Some(address) = config.http {
        let cannot = |error| io_error(&format!("cannot listen at {address} for HTTP"), error);
        let listener = tokio::net::TcpListener::bind(address).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        bound.http = Some((listener, address));
    }
    Ok(bound)
}

/// Whether other machines can reach the server. Such a server requires TLS and users.
async fn is_exposed(config: &Config, users: UserSource) -> Result<bool> {
    let denied = |address: &dyn std::fmt::Display, what: &str| {
        Err(Error::new(ErrorKind::Denied, format!("{address} can be reached from other machines{what}")))
    };
    let mut is_exposed = false;
    for address in &config.listen {
        let cannot = |error| io_error(&format!("cannot find out where {address} is"), error);
        if beyond_loopback(address).await.map_err(cannot)?.is_empty() {
            continue;
        }
        is_exposed = true;
        match (address, &users) {
            (_, UserSource::None) => denied(
                address,
                " and has no users: listen on loopback or a Unix socket, run a cluster, which has users, or give --insecure",
            )?,
            (Address::Tls(_), UserSource::Upstream) => {}
            (Address::Tls(_), UserSource::Catalog(catalog)) if !catalog.allows_anonymous() => {}
            (Address::Tls(_), UserSource::Catalog(_)) => denied(
                address,
                ", and there are no users yet: create the first one while all servers listen on loopback, or on the \
                 meta-server's machine with `mortar user add NAME --data DIR` before that starts; or give --insecure",
            )?,
            _ => denied(
                address,
                " without TLS: write tls:HOST:PORT, with a certificate (--tls-cert) and its key (--tls-key), listen on \
                 loopback or a Unix socket, or give --insecure",
            )?,
        }
    }
    if let Some(address) = config.http.filter(|address| !address.ip().is_loopback()) {
        denied(
            &address,
            " by HTTP, which is neither encrypted nor authenticated: use a loopback address, or give --insecure",
        )?;
    }
    Ok(is_exposed)
}

fn io_error(what: &str, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, what).with_source(error)
}

fn join(addresses: &[Address]) -> String {
    addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(" ")
}
