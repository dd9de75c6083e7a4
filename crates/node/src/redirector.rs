//! The redirector: members of a group at one site help each other with pages, and share what crosses the wide-area link (BuddyCache).
//!
//! ```text
//!   members ── Up, Call ──▶ ┌──────────────────┐ ── Up, for all members ──▶ peer server
//!           ◀── Down, Reply │ RedirectorDriver │ ── Call, for one member ─▶
//!                           └──────────────────┘
//! ```
//!
//! To a member it is a server like any other. For each member it has a connection to the server above, opened with the member's own
//! `Hello`: so that server authenticates the member, checks what it may do, and closes the connection when that changes. Calls of
//! transactions and all requests go there. The pages of all members of a space go over one connection, which is the redirector's own.
//!
//! | module | content |
//! | --- | --- |
//! | [`driver`] | the machine of one space |
//! | [`content_cache`] | contents that members have read |
//! | [`group`] | its lock, clock, timer and connection to the server above |
//! | [`member_connection`] | the connection of a member |
//! | [`upstream`] | connecting to the servers above |
//! | [`registration`] | clients of a group find it by the servers above |

mod content_cache;
pub(crate) mod driver;
mod group;
mod member_connection;
pub mod plant;
mod registration;
mod upstream;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use meta::Revision;
use meta::catalog::Catalog;
use model::{Error, ErrorKind, Result, SpaceId};
use protocol::ident::ClientId;
use protocol::redirect::RedirectorCounts;
use tokio::sync::{OnceCell, watch};
use tracing::error;
use wire::driving::PeerHandle;
use wire::handshake::{ClientNumber, Role, Terms};
use wire::link::Mailbox;
use wire::proto;
use wire::tasks;
use wire::transport::Address;

use crate::auth::Principal;
use crate::cluster_view::SpaceView;
use crate::process_clock::ProcessClock;
use crate::server::{
    AdmittedConnection, Config, Metric, ServerCounters, ServerRole, Thread, UserSource, server_handle,
};
use content_cache::{ContentCache, ContentCounts};
use group::{Group, GroupStatus, lock};
use member_connection::{Admission, MemberConnection};
use registration::{GroupEntry, keep_registered};
use upstream::Upstream;

/// Where a redirector is.
#[derive(Clone, Debug, Default)]
pub struct RedirectorSettings {
    /// The servers above it, of which the first that answers is used.
    pub upstream: Vec<Address>,
    /// The group under whose name clients find it; `None`: its clients name its address.
    pub group: Option<String>,
    /// Where clients of the group reach it; if empty, where it listens.
    pub advertise: Vec<Address>,
}

server_handle! {
    /// A running redirector.
    Redirector serves RedirectorRole
}

impl Redirector {
    /// Serves the clients of one site.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if no server above is named; as [`Brick::start_in`](crate::Brick::start_in).
    pub async fn start(settings: RedirectorSettings, config: Config) -> Result<Self> {
        let RedirectorSettings { upstream, group, advertise } = settings;
        if upstream.is_empty() {
            let what = "a redirector needs a server above it: give --upstream mortar://HOST:PORT of a peer server";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let upstream = Arc::new(Upstream::new(upstream, config.cluster_credentials.clone())?);
        let groups = Arc::new(Groups::default());
        let contents = Arc::new(ContentCache::new(config.cache_bytes));
        let role = RedirectorRole { upstream: upstream.clone(), groups: groups.clone(), contents: contents.clone() };
        let server = Self::start_server(role, config).await?;
        if let Some(group) = group {
            let addresses = if advertise.is_empty() { server.addresses.clone() } else { advertise };
            for place in 0..upstream.count() {
                let entry = GroupEntry { group: group.clone(), addresses: addresses.clone() };
                let (groups, contents) = (Arc::downgrade(&groups), Arc::downgrade(&contents));
                let status = move || {
                    Some(RedirectorStatus {
                        groups: groups.upgrade()?.status(),
                        contents: contents.upgrade()?.counts(),
                    })
                };
                tasks::spawn(keep_registered(Arc::downgrade(&upstream), place, entry, status));
            }
        }
        Ok(Self { server })
    }
}

/// What a redirector has done, and how it is.
#[derive(Clone, Copy, Debug)]
struct RedirectorStatus {
    groups: GroupStatus,
    contents: ContentCounts,
}

/// State shared by all threads of a redirector.
pub(crate) struct RedirectorRole {
    upstream: Arc<Upstream>,
    groups: Arc<Groups>,
    contents: Arc<ContentCache>,
}

/// A group that is there, or is being made.
type GroupCell = Arc<OnceCell<Arc<Group>>>;

/// The groups of all spaces. One without members is kept for a while.
#[derive(Default)]
struct Groups {
    /// By the number of their cluster and their own. A group is made outside of the lock, so that a space that cannot be reached delays no other.
    groups: Mutex<BTreeMap<(String, SpaceId), GroupCell>>,
    /// What groups that have ended did.
    ended: Mutex<RedirectorCounts>,
}

impl Groups {
    /// The group of a space, which is started for its first member.
    ///
    /// # Errors
    /// As [`Upstream::fetch_setup`] and [`Group::check_connected`].
    async fn join(&self, upstream: &Arc<Upstream>, name: &str, (cluster, id): (&str, SpaceId)) -> Result<Arc<Group>> {
        let cell = lock(&self.groups).entry((cluster.to_owned(), id)).or_default().clone();
        let start = || async {
            let setup = upstream.fetch_setup(name).await?;
            let space = SpaceView { id, name: name.to_owned(), nodes: setup.nodes };
            Ok::<_, Error>(Group::start(space, cluster.to_owned(), setup.client, upstream.clone()))
        };
        let group = cell.get_or_try_init(start).await?;
        group.check_connected()?;
        Ok(group.clone())
    }

    fn current(&self) -> Vec<Arc<Group>> {
        lock(&self.groups).values().filter_map(|cell| cell.get().cloned()).collect()
    }

    /// The status of all of them.
    fn status(&self) -> GroupStatus {
        let mut status = GroupStatus { counts: *lock(&self.ended), ..GroupStatus::default() };
        self.current().iter().for_each(|group| status += group.status());
        status
    }

    /// Ends the groups that were without members for a while, and forgets those that could not be made and that no member waits for.
    fn end_abandoned(&self) {
        let abandoned = |cell: &GroupCell| match cell.get() {
            Some(group) => group.is_abandoned(),
            // A member that waits has a clone, which it got under this lock.
            None => Arc::strong_count(cell) == 1,
        };
        let ended: Vec<_> = lock(&self.groups).extract_if(.., |_, cell| abandoned(cell)).collect();
        for group in ended.into_iter().filter_map(|(_, cell)| cell.get().cloned()) {
            *lock(&self.ended) += group.status().counts;
        }
    }

    /// Ends the groups whose machine has panicked. Their members connect again, and the first one makes another group.
    fn end_panicked(&self) {
        let has_panicked = |cell: &GroupCell| cell.get().is_some_and(|group| group.has_panicked());
        let ended: Vec<_> = lock(&self.groups).extract_if(.., |_, cell| has_panicked(cell)).collect();
        for group in ended.into_iter().filter_map(|(_, cell)| cell.get().cloned()) {
            error!(space = group.space.name, "the redirector of this space has panicked, and is started again");
            group.disconnect_members();
        }
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

    fn clock(&self) -> Option<&ProcessClock> {
        // It makes no timestamps, and passes the time of the server above on.
        None
    }

    async fn admit(&self, config: &Config, hello: &proto::Hello, _: &Principal) -> Result<(Terms, Admission)> {
        let is_reached_by_others = config.listen.iter().any(|address| matches!(address, Address::Tls(_)));
        if is_reached_by_others && !config.insecure && hello.user.is_empty() && hello.password.is_empty() {
            let what = "a redirector that other machines can reach admits users with passwords: name yours. It cannot pass on a certificate";
            return Err(Error::new(ErrorKind::Denied, what));
        }
        let (stream, above) = self.upstream.dial_for(hello).await?;
        let group = match hello.space.is_empty() {
            true => None,
            false => Some(self.groups.join(&self.upstream, &hello.space, (&above.cluster, above.space)).await?),
        };
        let max_frame = config.limits.max_frame.min(above.max_frame);
        let max_in_flight = config.limits.max_in_flight.min(above.max_in_flight);
        let is_redirector = hello.role() == Role::Redirector;
        let number = ClientNumber::of_hello(hello).map(|client| ClientId(client.number));
        Ok((
            Terms { max_frame, max_in_flight, ..above.clone() },
            Admission { above: (stream, above), is_redirector, number, group },
        ))
    }

    fn check_admitted(&self, _: &AdmittedConnection) -> Result<()> {
        // The server above closes the connection in the member's name.
        Ok(())
    }

    fn serve(thread: &Arc<Thread<Self>>, pass: Admission, mailbox: &Arc<Mailbox>) -> MemberConnection {
        MemberConnection::new(thread.clone(), pass, PeerHandle::new(mailbox.clone()))
    }

    async fn run_background(_: &Thread<Self>) {}

    fn tick(&self) {
        self.groups.end_panicked();
        self.groups.end_abandoned();
    }

    fn metrics(&self, _: &ServerCounters) -> Vec<Metric> {
        let GroupStatus { members, counts, staleness_ms } = self.groups.status();
        let ContentCounts { reads, kept, kept_bytes } = self.contents.counts();
        let mut metrics = vec![
            Metric::gauge(
                "groups",
                self.groups.current().len() as u64,
                "Spaces that have, or lately had, members here.",
            ),
            Metric::gauge("members", members, "Clients of these spaces."),
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
            Metric::counter(
                "pages_helped_bytes_total",
                counts.helped_bytes,
                "Bytes of objects in pages that a member had.",
            ),
            Metric::counter(
                "copies_forged_total",
                counts.forged,
                "Copies and updates of members that were not what the store has.",
            ),
            Metric::counter("updates_total", counts.updates, "Messages with new states to members (peer update)."),
            Metric::counter("invalidations_total", counts.invalidations, "Invalidations that members were sent."),
            Metric::counter("content_reads_total", reads, "Ranges of contents that members asked for."),
            Metric::counter("contents_kept_total", kept, "Ranges of contents that were kept here."),
            Metric::counter("contents_kept_bytes_total", kept_bytes, "Bytes of these ranges."),
        ];
        let about = "How far group snapshots are behind, in milliseconds.";
        metrics.extend(staleness_ms.map(|staleness| Metric::gauge("snapshot_staleness_ms", staleness, about)));
        metrics
    }

    fn health_problem(&self) -> Option<String> {
        self.groups.current().iter().find_map(|group| group.health_problem())
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
