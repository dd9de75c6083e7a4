//! The redirector: members of a group at one site help each other with pages, and share what crosses the wide-area link (BuddyCache).
//!
//! ```text
//!   members ── Up, Call ──▶ ┌──────────────────┐ ── Up, for all members ──▶ peer server
//!           ◀── Down, Reply │ RedirectorDriver │ ── Call, for one member ─▶
//!                           └──────────────────┘
//! ```
//!
//! To a member it is a server like any other. For each member it has a connection to the server above, opened with the member's own
//! `Hello`: so that server authenticates the member, checks what it may do, and closes the connection when it may do less. Calls of
//! transactions and all requests go there. The pages of all members of a space go over one connection, which is the redirector's own.
//!
//! | module | content |
//! | --- | --- |
//! | [`driver`] | the machine of one space |
//! | [`group`] | its lock, clock, timer and connection to the server above |
//! | [`member_connection`] | the connection of a member |
//! | [`upstream`] | connecting to the servers above |

pub(crate) mod driver;
mod group;
mod member_connection;
pub mod plant;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use meta::Revision;
use meta::catalog::Catalog;
use model::{Error, ErrorKind, Result, SpaceId};
use protocol::redirect::RedirectCounts;
use tokio::sync::{Mutex, watch};
use wire::driving::PeerHandle;
use wire::handshake::Terms;
use wire::link::Mailbox;
use wire::proto;
use wire::transport::Address;

use crate::auth::Principal;
use crate::cluster_view::SpaceView;
use crate::server::{
    AdmittedConnection, Config, Metric, Server, ServerCounters, ServerRole, StartingServer, Thread, UserSource,
};
use group::Group;
use member_connection::{Admission, MemberConnection};
use upstream::Upstream;

/// A running redirector.
///
/// Dropping it does not stop the server: it serves until the process ends or [`Redirector::shutdown`] is called.
pub struct Redirector {
    server: Server<RedirectorRole>,
}

impl std::fmt::Debug for Redirector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redirector").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

impl Redirector {
    /// Serves the clients of one site, below the first of these servers that answers.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if no server above is named; as [`Brick::start_in`](crate::Brick::start_in).
    pub async fn start(upstream: Vec<Address>, config: Config) -> Result<Self> {
        if upstream.is_empty() {
            let what = "a redirector needs a server above it: give --upstream mortar://HOST:PORT of a peer server";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let upstream = Arc::new(Upstream::new(upstream, config.cluster_credentials.clone()));
        let role = RedirectorRole { upstream, groups: Mutex::default() };
        Ok(Self { server: start_server(role, config).await? })
    }

    /// The addresses on which it listens, in the order of the configuration, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.server.addresses
    }

    /// The address of `/metrics` and `/health`; `None` if HTTP is off.
    #[must_use]
    pub fn http(&self) -> Option<SocketAddr> {
        self.server.http
    }

    /// Stops accepting connections and answers pending requests.
    ///
    /// # Errors
    /// If the server ends in disorder.
    pub async fn shutdown(self) -> Result<()> {
        self.server.shutdown().await
    }
}

/// As [`Server::start`], compiled in this crate: see [`StartingServer`].
#[inline(never)]
fn start_server(role: RedirectorRole, config: Config) -> StartingServer<RedirectorRole> {
    Box::pin(Server::start(role, config))
}

/// State shared by all threads of a redirector.
pub(crate) struct RedirectorRole {
    upstream: Arc<Upstream>,
    /// The groups that have members.
    groups: Mutex<BTreeMap<SpaceId, Weak<Group>>>,
}

impl RedirectorRole {
    /// The group of a space, which is started for its first member.
    ///
    /// # Errors
    /// As [`Upstream::fetch_setup`].
    async fn group(&self, name: &str, id: SpaceId) -> Result<Arc<Group>> {
        let mut groups = self.groups.lock().await;
        groups.retain(|_, group| group.strong_count() > 0);
        if let Some(group) = groups.get(&id).and_then(Weak::upgrade) {
            return Ok(group);
        }
        let setup = self.upstream.fetch_setup(name).await?;
        let space = SpaceView { id, name: name.to_owned(), nodes: setup.nodes };
        let group = Group::start(space, setup.number, self.upstream.clone());
        groups.insert(id, Arc::downgrade(&group));
        Ok(group)
    }

    /// The groups that have members, unless one is being started.
    fn current_groups(&self) -> Vec<Arc<Group>> {
        let groups = self.groups.try_lock();
        groups.map(|groups| groups.values().filter_map(Weak::upgrade).collect()).unwrap_or_default()
    }
}

impl ServerRole for RedirectorRole {
    type Service = MemberConnection;
    type Admission = Admission;

    const NAME: &'static str = "redirector";

    fn catalog(&self) -> Option<Arc<Catalog>> {
        None
    }

    fn catalog_changes(&self) -> Option<watch::Receiver<Revision>> {
        None
    }

    fn user_source(&self) -> UserSource {
        UserSource::Upstream
    }

    async fn admit(&self, config: &Config, hello: &proto::Hello, _: &Principal) -> Result<(Terms, Admission)> {
        let (stream, above) = self.upstream.dial_for(hello).await?;
        let group = match hello.space.is_empty() {
            true => None,
            false => Some(self.group(&hello.space, above.space).await?),
        };
        let max_frame = config.limits.max_frame.min(above.max_frame);
        let max_in_flight = config.limits.max_in_flight.min(above.max_in_flight);
        Ok((Terms { max_frame, max_in_flight, ..above }, Admission { above: (stream, above), group }))
    }

    fn check_admitted(&self, _: &AdmittedConnection) -> Result<()> {
        // The server above closes the connection in the member's name.
        Ok(())
    }

    fn serve(thread: &Arc<Thread<Self>>, pass: Admission, mailbox: &Arc<Mailbox>) -> MemberConnection {
        MemberConnection::new(thread.clone(), pass, PeerHandle::new(mailbox.clone()))
    }

    async fn run_background(_: &Thread<Self>) {}

    fn tick(&self) {}

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        let mut counts = RedirectCounts::default();
        let groups = self.current_groups();
        groups.iter().for_each(|group| counts += group.counts());
        vec![
            Metric::gauge("groups", groups.len() as u64, "Spaces that have members here."),
            Metric::counter("pages_fetched_total", counts.fetches, "Pages that members asked for."),
            Metric::counter(
                "pages_fetched_above_total",
                counts.fetched_above,
                "Pages that the server above was asked for.",
            ),
            Metric::counter(
                "pages_helped_total",
                counts.helped,
                "Pages that a member had for another one (peer fetch).",
            ),
            Metric::counter("updates_total", counts.updates, "Messages with new states to members (peer update)."),
            Metric::counter("invalidations_total", counts.invalidations, "Invalidations that members were sent."),
        ]
    }

    fn health_problem(&self) -> Option<String> {
        let cut = self.current_groups().into_iter().find(|group| !group.is_connected())?;
        Some(format!("the server above cannot be reached for space {}", cut.space.name))
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
