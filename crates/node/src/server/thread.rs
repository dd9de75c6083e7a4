//! What a server does on one of its threads: it serves connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time;
use tracing::{debug, info, warn};
use wire::handshake::{self, HandshakeAuthenticator, Terms};
use wire::link::{self, End, Link, Mailbox};
use wire::proto;
use wire::tasks;
use wire::transport::{AcceptedSocket, PeerAddress, RemoteEndpoint, Stream};

use super::connection_table::ConnectionSlot;
use super::{AdmittedConnection, ConnectionOwner, ServerRole, Shared, ThreadCounters};
use crate::auth::{Principal, check_cluster};

/// The name and version of this software, for clients and logs.
pub(crate) const AGENT: &str = concat!("mortar ", env!("CARGO_PKG_VERSION"));

/// An I/O thread, as others see it.
pub(crate) struct Thread<R: ServerRole> {
    pub(crate) server: Arc<Shared<R>>,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Its place among the threads of the server, from 0.
    pub(crate) number: usize,
    /// Connections that it serves or that were passed to it.
    pub(crate) load: Arc<AtomicUsize>,
}

/// A connection for a thread to serve.
pub(crate) struct AcceptedConnection {
    pub(crate) connection: AcceptedSocket,
    pub(crate) peer: PeerAddress,
    pub(crate) slot: ConnectionSlot,
    /// Counts it among those of the thread.
    pub(crate) load: LoadShare,
}

/// One connection in the load of a thread; dropped, also by a panic of its task, it does not count any more.
pub(crate) struct LoadShare(Arc<AtomicUsize>);

impl LoadShare {
    pub(crate) fn of(load: Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Ordering::Relaxed);
        Self(load)
    }
}

impl Drop for LoadShare {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: ServerRole> Thread<R> {
    pub(crate) fn new(server: Arc<Shared<R>>, metrics: Arc<ThreadCounters>, number: usize) -> Arc<Self> {
        Arc::new(Self { server, counters: metrics, number, load: Arc::default() })
    }

    /// Whether it does the background work that a server does once.
    pub(crate) fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Serves connections until the sender is dropped; those that still exist then are abandoned.
    pub(crate) async fn run(self: Arc<Self>, mut arrivals: mpsc::UnboundedReceiver<AcceptedConnection>) {
        // These tasks end with this one.
        let (mut tasks, mut background) = (JoinSet::new(), JoinSet::new());
        let this = self.clone();
        tasks::spawn_in(&mut background, async move { R::run_background(&this).await });
        loop {
            tokio::select! {
                accepted = arrivals.recv() => {
                    let Some(accepted) = accepted else { return };
                    let thread = self.clone();
                    tasks::spawn_in(&mut tasks, async move { thread.serve(accepted).await });
                    while tasks.try_join_next().is_some() {}
                }
                Some(ended) = background.join_next() => {
                    if ended.is_err_and(|error| error.is_panic()) {
                        self.server.handle_background_panic(self.number);
                    }
                }
            }
        }
    }

    async fn serve(self: &Arc<Self>, accepted: AcceptedConnection) {
        let AcceptedConnection { connection, peer, slot, load: _load } = accepted;
        let server = &self.server;
        let mut check = AdmissionCheck { server, slot: &slot, has_hello: false, admitted: None };
        let handshake = async {
            let mut stream = connection.into_stream().await?;
            let (hello, terms) = handshake::accept(&mut stream, &mut check, AGENT).await?;
            Ok::<_, Error>((stream, hello, terms))
        };
        let evicted = || Error::new(ErrorKind::Unavailable, "it was not authenticated when its place was needed");
        let done = time::timeout(server.config.handshake_timeout, async {
            tokio::select! {
                done = handshake => done,
                () = slot.wait_until_evicted() => Err(evicted()),
            }
        });
        let late = |_| Error::new(ErrorKind::Unavailable, "it was not authenticated in time");
        match done.await.map_err(late).flatten() {
            Ok((stream, hello, terms)) => {
                if let Some((who, pass)) = check.admitted {
                    debug!(%peer, agent = hello.agent, space = hello.space, %who, "connected");
                    // The password is not kept.
                    let hello = proto::Hello { password: String::new(), ..hello };
                    let connection = AdmittedConnection { id: slot.id(), peer, principal: who, hello, terms };
                    self.serve_admitted(stream, connection, pass, slot).await;
                }
            }
            Err(error) if !check.has_hello && is_closed_by_client(&error) => {
                debug!(%peer, "a client left before it was admitted")
            }
            Err(error) => {
                server.counters.refused.fetch_add(1, Ordering::Relaxed);
                if let Some(suppressed) = server.refusal_log.admit() {
                    info!(%peer, %error, suppressed, "refused a connection");
                }
            }
        }
    }

    async fn serve_admitted(
        self: &Arc<Self>,
        stream: Stream,
        connection: AdmittedConnection,
        pass: R::Admission,
        slot: ConnectionSlot,
    ) {
        let (server, mailbox) = (&self.server, Arc::new(Mailbox::default()));
        let peer = connection.peer;
        slot.attach(&mailbox);
        let registered = server.register(connection, &mailbox);
        let (service, limits) = (R::serve(self, pass, &mailbox), server.config.limits);
        let link = Link::new(stream, service, limits, limits.max_frame, mailbox);
        let link = link.with_input_budget(server.input_budget.clone()).with_output_budget(server.output_budget.clone());
        let end = link::drive(link).await;
        drop((registered, slot));
        match end {
            End::Closed | End::HungUp => debug!(%peer, %end, "disconnected"),
            End::Broken(error) => debug!(%peer, %error, "the connection broke"),
            end => self.log_abnormal_end(peer, &end),
        }
    }

    fn log_abnormal_end(&self, peer: PeerAddress, end: &End) {
        if let End::Violated(_) = end {
            self.server.counters.violations.fetch_add(1, Ordering::Relaxed);
        }
        let Some(suppressed) = self.server.refusal_log.admit() else { return };
        match end {
            End::TooLong { .. } => warn!(%peer, %end, suppressed, "disconnected"),
            End::Violated(error) => warn!(%peer, %error, suppressed, "the client broke the protocol"),
            _ => info!(%peer, %end, suppressed, "disconnected"),
        }
    }
}

/// Whether a connection ended because the client closed or reset it. A probe does that, which only looks whether someone listens.
fn is_closed_by_client(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.is_some_and(|source| matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset))
}

/// Authenticates one connection and admits it.
struct AdmissionCheck<'a, R: ServerRole> {
    server: &'a Shared<R>,
    slot: &'a ConnectionSlot,
    /// Whether its first message has come.
    has_hello: bool,
    /// The result, if it was admitted.
    admitted: Option<(Principal, R::Admission)>,
}

impl<R: ServerRole> HandshakeAuthenticator for AdmissionCheck<'_, R> {
    async fn admit(&mut self, hello: &proto::Hello, peer: &RemoteEndpoint) -> Result<Terms> {
        let Shared { role, config, authenticator, .. } = self.server;
        self.has_hello = true;
        self.slot.begin_authentication();
        let who = authenticator.admit(role.catalog(), hello, peer).await?;
        if let Some(catalog) = role.catalog() {
            check_cluster(&catalog, hello)?;
        }
        let (terms, pass) = role.admit(config, hello, &who).await?;
        let is_privileged = who.is_privileged(role.catalog().as_deref());
        self.slot.admit(ConnectionOwner { user: who.user_name(), is_privileged })?;
        self.admitted = Some((who, pass));
        Ok(terms)
    }
}

/// The interval of [`ServerRole::tick`].
pub(crate) const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use client::{AdminClient, AdminOptions};
    use meta::Revision;
    use meta::catalog::Catalog;
    use model::SpaceId;
    use tokio::sync::{Notify, watch};
    use wire::handshake::Permission;
    use wire::link::NoService;
    use wire::transport::Address;

    use super::super::{Config, Metric, Server, ServerCounters};
    use super::*;
    use crate::process_clock::ProcessClock;

    /// A role whose background work panics when it is notified.
    #[derive(Default)]
    struct FaultyRole {
        fault: Notify,
        has_panicked: AtomicBool,
    }

    impl FaultyRole {
        fn check(&self) -> Result<()> {
            let refused = || Err(Error::new(ErrorKind::Unavailable, "its background work has panicked"));
            if self.has_panicked.load(Ordering::Relaxed) { refused() } else { Ok(()) }
        }
    }

    impl ServerRole for FaultyRole {
        type Service = NoService;
        type Admission = ();

        const NAME: &'static str = "faulty";

        fn catalog(&self) -> Option<Arc<Catalog>> {
            None
        }

        fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
            None
        }

        fn clock(&self) -> Option<&ProcessClock> {
            None
        }

        async fn admit(&self, config: &Config, _: &proto::Hello, _: &Principal) -> Result<(Terms, ())> {
            self.check()?;
            let (max_frame, max_in_flight) = (config.limits.max_frame, config.limits.max_in_flight);
            let (space, brick, opening, permission) = (SpaceId(0), 0, None, Permission::None);
            let (time_ms, cluster) = (0, String::new());
            Ok((Terms { space, max_frame, max_in_flight, brick, opening, permission, time_ms, cluster }, ()))
        }

        fn check_admitted(&self, _: &AdmittedConnection) -> Result<()> {
            self.check()
        }

        fn serve(_: &Arc<Thread<Self>>, (): (), _: &Arc<Mailbox>) -> NoService {
            NoService
        }

        async fn run_background(thread: &Thread<Self>) {
            thread.server.role.fault.notified().await;
            panic!("a test of panics");
        }

        fn handle_background_panic(&self, _: usize) {
            self.has_panicked.store(true, Ordering::Relaxed);
        }

        fn tick(&self) {}

        fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
            Vec::new()
        }

        fn health_problem(&self) -> Option<String> {
            self.check().err().map(|error| error.to_string())
        }

        fn close(&self) -> Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn connections_end_and_no_more_are_admitted_when_background_work_panics() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let config = Config { listen: vec![Address::Unix(socket.clone())], threads: 1, ..Config::default() };
        let server = Server::start(FaultyRole::default(), config).await.unwrap();
        let mut options = AdminOptions::default();
        options.retry = Duration::ZERO;
        let url = format!("mortar+unix://{}", socket.display());
        let connect = || AdminClient::connect_with(&url, options.clone());
        let _admitted = connect().await.unwrap();
        server.role().fault.notify_one();
        let all_ended = async {
            while server.shared.connected.receiver_count() > 0 || server.role().health_problem().is_none() {
                time::sleep(Duration::from_millis(10)).await;
            }
        };
        time::timeout(Duration::from_secs(30), all_ended).await.unwrap();
        let refused = connect().await.unwrap_err();
        assert!(refused.to_string().contains("its background work has panicked"), "{refused}");
        server.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_whose_task_panics_counts_no_more() {
        let load = Arc::default();
        let share = LoadShare::of(Arc::clone(&load));
        assert_eq!(load.load(Ordering::Relaxed), 1);
        let task = tokio::spawn(async move {
            let _share = share;
            panic!("a fault of its service");
        });
        assert!(task.await.is_err_and(|error| error.is_panic()));
        assert_eq!(load.load(Ordering::Relaxed), 0);
    }
}
