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
        let mut tasks = JoinSet::new();
        let this = self.clone();
        tasks.spawn(async move { R::run_background(&this).await });
        while let Some(accepted) = arrivals.recv().await {
            let thread = self.clone();
            tasks.spawn(async move { thread.serve(accepted).await });
            while tasks.try_join_next().is_some() {}
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
    use super::*;

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
