//! A thread that serves connections: a runtime of its own, so that a connection never moves between threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use tokio::sync::mpsc;
use tokio::time;
use tracing::{debug, info, warn};
use wire::handshake::{self, Doorkeeper, Terms};
use wire::link::{self, End, Link, Mailbox};
use wire::proto;
use wire::transport::{Accepted, Peer, Stream};

use super::{Role, Shared, ThreadMetrics, Visitor};
use crate::doors::Who;

/// How this software names itself to clients.
pub(crate) const AGENT: &str = concat!("mortar ", env!("CARGO_PKG_VERSION"));

/// What one I/O thread is to others.
pub(crate) struct Thread<R: Role> {
    pub(crate) server: Arc<Shared<R>>,
    pub(crate) metrics: Arc<ThreadMetrics>,
    pub(crate) local: R::Local,
    /// Whether it is the one that does what is done once.
    pub(crate) is_first: bool,
    /// Connections that it serves or is about to.
    pub(crate) load: AtomicUsize,
}

/// A connection for a thread to serve.
pub(crate) struct Arrival {
    pub(crate) connection: Accepted,
    pub(crate) peer: String,
}

impl<R: Role> Thread<R> {
    pub(crate) fn new(server: Arc<Shared<R>>, metrics: Arc<ThreadMetrics>, is_first: bool) -> Arc<Self> {
        Arc::new(Self { server, metrics, local: R::Local::default(), is_first, load: AtomicUsize::new(0) })
    }

    /// Serves arrivals until there will be none.
    pub(crate) async fn run(self: Arc<Self>, mut arrivals: mpsc::UnboundedReceiver<Arrival>) {
        let this = self.clone();
        let beside = tokio::spawn(async move { R::beside(&this).await });
        while let Some(Arrival { connection, peer }) = arrivals.recv().await {
            tokio::spawn(self.clone().serve(connection, peer));
        }
        beside.abort();
    }

    fn leave(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.server.metrics.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn serve(self: Arc<Self>, connection: Accepted, peer: String) {
        let server = &self.server;
        let mut door = Door { server, entered: None };
        let greeting = async {
            let mut stream = connection.into_stream().await?;
            let (hello, _) = handshake::welcome(&mut stream, &mut door, AGENT).await?;
            Ok::<_, Error>((stream, hello))
        };
        match time::timeout(server.config.handshake_timeout, greeting).await {
            Ok(Ok((stream, hello))) => {
                if let Some((who, pass)) = door.entered {
                    debug!(peer, agent = hello.agent, space = hello.space, %who, "connected");
                    // Nothing that was secret is kept.
                    let hello = proto::Hello { password: String::new(), ..hello };
                    self.serve_welcome(stream, Visitor { peer, who, hello }, pass).await;
                }
            }
            Ok(Err(error)) => {
                server.metrics.refused.fetch_add(1, Ordering::Relaxed);
                info!(peer, %error, "refused");
            }
            Err(_) => {
                server.metrics.refused.fetch_add(1, Ordering::Relaxed);
                info!(peer, "did not say who it is in time");
            }
        }
        self.leave();
    }

    async fn serve_welcome(self: &Arc<Self>, stream: Stream, visitor: Visitor, pass: R::Pass) {
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
                server.metrics.violations.fetch_add(1, Ordering::Relaxed);
                warn!(peer, %error, "the client broke the protocol");
            }
        }
    }
}

/// Decides who may come in.
struct Door<'a, R: Role> {
    server: &'a Shared<R>,
    /// Of whoever may.
    entered: Option<(Who, R::Pass)>,
}

impl<R: Role> Doorkeeper for Door<'_, R> {
    async fn admit(&mut self, hello: &proto::Hello, peer: &Peer) -> Result<Terms> {
        let Shared { role, config, metrics, guard, .. } = self.server;
        if metrics.open.load(Ordering::Relaxed) > config.max_connections as u64 {
            let what = format!("the server has its {} connections: try again later", config.max_connections);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let who = guard.admit(role.catalog(), hello, peer).await?;
        let (terms, pass) = role.admit(config, hello, &who)?;
        self.entered = Some((who, pass));
        Ok(terms)
    }
}

/// How often sessions are looked through for what has expired.
pub(crate) const TICK: Duration = Duration::from_secs(1);
