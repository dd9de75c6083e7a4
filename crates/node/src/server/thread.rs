//! A thread that serves connections: a runtime of its own, so that a connection never moves between threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::mpsc;
use tokio::time;
use tracing::{debug, info, warn};
use wire::handshake::{self, HandshakeAuthenticator, Terms};
use wire::link::{self, End, Link, Mailbox};
use wire::proto;
use wire::transport::{AcceptedSocket, RemoteEndpoint, Stream};

use super::{AdmittedConnection, ServerRole, Shared, ThreadCounters};
use crate::auth::Principal;

/// How this software names itself to clients.
pub(crate) const AGENT: &str = concat!("mortar ", env!("CARGO_PKG_VERSION"));

/// What one I/O thread is to others.
pub(crate) struct Thread<R: ServerRole> {
    pub(crate) server: Arc<Shared<R>>,
    pub(crate) counters: Arc<ThreadCounters>,
    pub(crate) local: R::Local,
    /// Whether it is the one that does what is done once.
    pub(crate) is_first: bool,
    /// Connections that it serves or is about to.
    pub(crate) load: AtomicUsize,
}

/// A connection for a thread to serve.
pub(crate) struct AcceptedConnection {
    pub(crate) connection: AcceptedSocket,
    pub(crate) peer: String,
}

impl<R: ServerRole> Thread<R> {
    pub(crate) fn new(server: Arc<Shared<R>>, metrics: Arc<ThreadCounters>, is_first: bool) -> Arc<Self> {
        Arc::new(Self { server, counters: metrics, local: R::Local::default(), is_first, load: AtomicUsize::new(0) })
    }

    /// Serves arrivals until there will be none.
    pub(crate) async fn run(self: Arc<Self>, mut arrivals: mpsc::UnboundedReceiver<AcceptedConnection>) {
        let this = self.clone();
        let beside = tokio::spawn(async move { R::run_background(&this).await });
        while let Some(AcceptedConnection { connection, peer }) = arrivals.recv().await {
            tokio::spawn(self.clone().serve(connection, peer));
        }
        beside.abort();
    }

    fn count_closed(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.server.counters.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn serve(self: Arc<Self>, connection: AcceptedSocket, peer: String) {
        let server = &self.server;
        let mut door = AdmissionCheck { server, admitted: None };
        let greeting = async {
            let mut stream = connection.into_stream().await?;
            let (hello, _) = handshake::accept(&mut stream, &mut door, AGENT).await?;
            Ok::<_, Error>((stream, hello))
        };
        match time::timeout(server.config.handshake_timeout, greeting).await {
            Ok(Ok((stream, hello))) => {
                if let Some((who, pass)) = door.admitted {
                    debug!(peer, agent = hello.agent, space = hello.space, %who, "connected");
                    // Nothing that was secret is kept.
                    let hello = proto::Hello { password: String::new(), ..hello };
                    self.serve_admitted(stream, AdmittedConnection { peer, principal: who, hello }, pass).await;
                }
            }
            Ok(Err(error)) => {
                server.counters.refused.fetch_add(1, Ordering::Relaxed);
                info!(peer, %error, "refused");
            }
            Err(_) => {
                server.counters.refused.fetch_add(1, Ordering::Relaxed);
                info!(peer, "did not say who it is in time");
            }
        }
        self.count_closed();
    }

    async fn serve_admitted(self: &Arc<Self>, stream: Stream, visitor: AdmittedConnection, pass: R::Admission) {
        let (server, mailbox) = (&self.server, Arc::new(Mailbox::default()));
        let peer = visitor.peer.clone();
        let registered = server.register(visitor, &mailbox);
        let (service, limits) = (R::serve(self, pass, &mailbox), server.config.limits);
        let end = link::drive(Link::new(stream, service, limits, limits.max_frame, mailbox)).await;
        drop(registered);
        match end {
            End::Closed | End::HungUp => debug!(peer, %end, "disconnected"),
            End::Broken(error) => debug!(peer, %error, "the connection broke"),
            End::Stalled(_) | End::Overrun => info!(peer, %end, "given up"),
            End::TooLong { .. } => warn!(peer, %end, "disconnected"),
            End::Violated(error) => {
                server.counters.violations.fetch_add(1, Ordering::Relaxed);
                warn!(peer, %error, "the client broke the protocol");
            }
        }
    }
}

/// Decides who may come in.
struct AdmissionCheck<'a, R: ServerRole> {
    server: &'a Shared<R>,
    /// Of whoever may.
    admitted: Option<(Principal, R::Admission)>,
}

impl<R: ServerRole> HandshakeAuthenticator for AdmissionCheck<'_, R> {
    async fn admit(&mut self, hello: &proto::Hello, peer: &RemoteEndpoint) -> Result<Terms> {
        let Shared { role, config, counters: metrics, authenticator: guard, .. } = self.server;
        if metrics.open.load(Ordering::Relaxed) > config.max_connections as u64 {
            let what = format!("the server has its {} connections: try again later", config.max_connections);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let who = guard.admit(role.catalog(), hello, peer).await?;
        let (terms, pass) = role.admit(config, hello, &who)?;
        self.admitted = Some((who, pass));
        Ok(terms)
    }
}

/// How often sessions are looked through for what has expired.
pub(crate) const TICK: Duration = Duration::from_secs(1);
