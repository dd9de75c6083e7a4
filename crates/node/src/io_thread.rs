//! A thread that serves connections: a runtime of its own, so that a connection never moves between threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::{Error, ErrorKind, Result};
use store::Store;
use tokio::sync::mpsc;
use tokio::time;
use tracing::{debug, info, warn};
use wire::handshake::{self, Doorkeeper, Terms};
use wire::link::{self, End, Link, Mailbox};
use wire::proto;
use wire::transport::{Accepted, Stream};

use crate::brick::Shared;
use crate::completions::Completions;
use crate::metrics::ThreadMetrics;
use crate::service::{Answerer, MAX_READ, Timing};
use crate::session::Session;

/// How this software names itself to clients.
pub(crate) const AGENT: &str = concat!("mortar ", env!("CARGO_PKG_VERSION"));

/// What one I/O thread is to others.
pub(crate) struct Thread {
    pub(crate) brick: Arc<Shared>,
    pub(crate) metrics: Arc<ThreadMetrics>,
    pub(crate) completions: Completions,
    /// Connections that it serves or is about to.
    pub(crate) load: AtomicUsize,
}

/// A connection for a thread to serve.
pub(crate) struct Arrival {
    pub(crate) connection: Accepted,
    pub(crate) peer: String,
}

impl Thread {
    pub(crate) fn new(brick: Arc<Shared>, metrics: Arc<ThreadMetrics>) -> Arc<Self> {
        Arc::new(Self { brick, metrics, completions: Completions::default(), load: AtomicUsize::new(0) })
    }

    /// Serves arrivals until there will be none.
    pub(crate) async fn run(self: Arc<Self>, mut arrivals: mpsc::UnboundedReceiver<Arrival>) {
        let this = self.clone();
        let completions = tokio::spawn(async move { this.completions.run(&this.metrics).await });
        while let Some(Arrival { connection, peer }) = arrivals.recv().await {
            match connection.into_stream() {
                Ok(stream) => drop(tokio::spawn(self.clone().serve(stream, peer))),
                Err(error) => {
                    warn!(peer, %error, "a connection cannot be watched");
                    self.leave();
                }
            }
        }
        completions.abort();
    }

    fn leave(&self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.brick.metrics.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn serve(self: Arc<Self>, mut stream: Stream, peer: String) {
        let brick = &self.brick;
        let mut door = Door { store: &brick.store, brick };
        let greeting = handshake::welcome(&mut stream, &mut door, AGENT);
        match time::timeout(brick.config.handshake_timeout, greeting).await {
            Ok(Ok((hello, _))) => {
                debug!(peer, agent = hello.agent, space = hello.space, "connected");
                self.serve_welcome(stream, peer).await;
            }
            Ok(Err(error)) => {
                brick.metrics.refused.fetch_add(1, Ordering::Relaxed);
                info!(peer, %error, "refused");
            }
            Err(_) => {
                brick.metrics.refused.fetch_add(1, Ordering::Relaxed);
                info!(peer, "did not say who it is in time");
            }
        }
        self.leave();
    }

    async fn serve_welcome(self: &Arc<Self>, stream: Stream, peer: String) {
        let (brick, mailbox) = (&self.brick, Arc::new(Mailbox::default()));
        let session = Arc::new(Session::new(peer.clone(), mailbox.clone(), brick.store.clone()));
        let answerer = Answerer {
            store: brick.store.clone(),
            in_memory: brick.in_memory,
            config: brick.config.clone(),
            session: session.clone(),
            thread: self.clone(),
            timing: Timing::default(),
        };
        let limits = brick.config.limits;
        let registered = brick.register(&session);
        let end = link::drive(Link::new(stream, answerer, limits, limits.max_frame, mailbox)).await;
        drop(registered);
        // Files may have to be given back, which may block.
        crate::blocking::run(move || session.end());
        match end {
            End::Closed | End::HungUp => debug!(peer, %end, "disconnected"),
            End::Broken(error) => debug!(peer, %error, "the connection broke"),
            End::Stalled(_) => info!(peer, %end, "given up"),
            End::Violated(error) => {
                brick.metrics.violations.fetch_add(1, Ordering::Relaxed);
                warn!(peer, %error, "the client broke the protocol");
            }
        }
    }
}

/// Decides who may come in.
struct Door<'a> {
    store: &'a Store,
    brick: &'a Shared,
}

impl Doorkeeper for Door<'_> {
    fn admit(&mut self, hello: &proto::Hello) -> Result<Terms> {
        let config = &self.brick.config;
        if self.brick.metrics.open.load(Ordering::Relaxed) > config.max_connections as u64 {
            let what = format!("the server has its {} connections: try again later", config.max_connections);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let spaces = self.store.spaces()?;
        let space = spaces.iter().find(|(_, name)| *name == hello.space).map(|(space, _)| *space);
        let space = space.ok_or_else(|| {
            let known: Vec<&str> = spaces.iter().map(|(_, name)| name.as_str()).take(10).collect();
            let what = format!("there is no space {:?} here; there are: {}", hello.space, known.join(", "));
            Error::new(ErrorKind::NotFound, what)
        })?;
        let limits = &config.limits;
        Ok(Terms { space, max_frame: limits.max_frame, max_read: MAX_READ, max_in_flight: limits.max_in_flight })
    }
}

/// How often sessions are looked through for what has expired.
pub(crate) const TICK: Duration = Duration::from_secs(1);
