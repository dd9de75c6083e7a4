//! The group of one space: the members below this redirector, and their common connection to the server above.
//!
//! A message is handled on the thread of its connection, and the outputs are sent before the lock is released, so that they keep their
//! order. One task keeps the common connection and one handles timeouts.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use model::{Error, ErrorKind, Object, Result};
use protocol::clock::ClusterTime;
use protocol::lease::Ms;
use protocol::redirect::RedirectorCounts;
use tracing::{debug, info, warn};
use wire::cluster::Message;
use wire::connector::Backoff;
use wire::driving::{DeadlineTimer, DeliveryScope, MonotonicClock, PeerHandle};
use wire::handshake::{ClientNumber, Terms};
use wire::link::{self, Caller, End, Incoming, Limits, Link, Liveness, Mailbox, Responder, Service, wait_until_silent};
use wire::tasks;
use wire::transport::Stream;

use super::driver::{Member, Output, RedirectorDriver};
use super::upstream::Upstream;
use crate::cluster_view::SpaceView;

/// Pauses between attempts to connect.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// How long the common connection may be lost before members are sent elsewhere, and how long a group without members is kept.
const LOST_AFTER: Duration = Duration::from_secs(3);
const ABANDONED_AFTER: Duration = Duration::from_secs(60);
/// Bytes of unanswered calls on the common connection.
const BUDGET: usize = 1 << 20;
/// A repeated call with fewer bytes is sent again, even if earlier ones wait.
const MIN_SKIPPED: usize = 64 << 10;
/// Bits of a session's number below the number of its client.
const SESSION_BITS: u32 = 20;

/// The two connections of a member: to it, and in its name to the server above.
#[derive(Clone, Debug)]
pub(super) struct MemberAddress {
    pub(super) below: PeerHandle,
    pub(super) above: PeerHandle,
}

impl PartialEq for MemberAddress {
    fn eq(&self, other: &Self) -> bool {
        self.below == other.below
    }
}

/// The status of groups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupStatus {
    pub(super) members: u64,
    pub(super) counts: RedirectorCounts,
    /// How far group snapshots are behind, in milliseconds; `None` if no member reads any.
    pub(super) staleness_ms: Option<u64>,
}

impl std::ops::AddAssign for GroupStatus {
    fn add_assign(&mut self, other: Self) {
        let Self { members, counts, staleness_ms } = other;
        self.members += members;
        self.counts += counts;
        self.staleness_ms = self.staleness_ms.max(staleness_ms);
    }
}

type Driver = RedirectorDriver<MemberAddress, Object>;

/// The connections of a group.
struct Connections {
    /// The common one, or since when it is not open.
    above: Result<PeerHandle, Instant>,
    /// Those of members, by numbers that are not used again.
    members: BTreeMap<u64, PeerHandle>,
    last_number: u64,
    /// When the last member has left, or when the group was started.
    left_at: Instant,
}

/// The machine of a space, its lock, its clock, its timer, and its connections.
pub(super) struct Group {
    driver: Mutex<Driver>,
    pub(super) space: Arc<SpaceView>,
    /// The number of the cluster.
    cluster: String,
    connections: Mutex<Connections>,
    timer: Arc<DeadlineTimer>,
    time: MonotonicClock,
}

impl Group {
    /// Serves a space. The group ends when it is dropped.
    pub(super) fn start(space: SpaceView, cluster: String, client: ClientNumber, upstream: Arc<Upstream>) -> Arc<Self> {
        let group = Arc::new(Self {
            driver: Mutex::new(RedirectorDriver::new(client.number, SESSION_BITS).with_secret(random_secret())),
            space: Arc::new(space),
            cluster,
            connections: Mutex::new(Connections {
                above: Err(Instant::now()),
                members: BTreeMap::new(),
                last_number: 0,
                left_at: Instant::now(),
            }),
            timer: Arc::default(),
            time: MonotonicClock::of_process(),
        });
        tasks::spawn(keep_connected(Arc::downgrade(&group), upstream, client));
        tasks::spawn(run_timers(Arc::downgrade(&group), group.timer.clone(), group.time));
        group
    }

    /// The number of the cluster; 0 if the server above does not tell it.
    pub(super) fn cluster_number(&self) -> u128 {
        u128::from_str_radix(&self.cluster, 16).unwrap_or_default()
    }

    fn lock(&self) -> Result<MutexGuard<'_, Driver>> {
        // A machine that has panicked may be in an inconsistent state.
        self.driver.lock().map_err(|_| Error::new(ErrorKind::Internal, "the redirector has panicked"))
    }

    /// Gives the machine an input, and carries out its outputs.
    pub(super) fn with_driver<T>(&self, act: impl FnOnce(&mut Driver, Ms) -> T) -> Result<T> {
        let _delivery = DeliveryScope::enter();
        let mut driver = self.lock()?;
        let done = act(&mut driver, self.time.now());
        let connections = lock(&self.connections);
        for output in driver.outputs() {
            carry_out(output, connections.above.as_ref().ok());
        }
        drop(connections);
        self.timer.set(driver.deadline().unwrap_or(Ms::MAX));
        Ok(done)
    }

    /// Whether the common connection is open.
    pub(super) fn is_connected(&self) -> bool {
        lock(&self.connections).above.is_ok()
    }

    /// Why it does not serve its members; `None` if it does.
    pub(super) fn health_problem(&self) -> Option<String> {
        if !self.is_connected() {
            return Some(format!("the server above cannot be reached for space {}", self.space.name));
        }
        self.lock().err().map(|error| error.to_string())
    }

    /// What it has done, and how it is.
    pub(super) fn status(&self) -> GroupStatus {
        let members = lock(&self.connections).members.len() as u64;
        let Ok(driver) = self.lock() else { return GroupStatus { members, ..GroupStatus::default() } };
        let staleness_ms = driver.staleness_ms(self.time.now());
        GroupStatus { members, counts: driver.counts(), staleness_ms }
    }

    /// There is a connection of a member. Returns the number of the connection.
    pub(super) fn member_connected(&self, below: PeerHandle) -> u64 {
        let mut connections = lock(&self.connections);
        connections.last_number += 1;
        let number = connections.last_number;
        connections.members.insert(number, below);
        number
    }

    /// The connection of a member has ended.
    pub(super) fn member_disconnected(&self, number: u64, member: &Member<MemberAddress>) {
        {
            let mut connections = lock(&self.connections);
            connections.members.remove(&number);
            connections.left_at = Instant::now();
        }
        // After a panic of the machine nothing is served, and there is nothing to forget.
        let _ = self.with_driver(|driver, now| driver.member_disconnected(member, now));
    }

    /// Whether the machine has panicked: then nothing is served.
    pub(super) fn has_panicked(&self) -> bool {
        self.driver.is_poisoned()
    }

    /// Ends the connections of all members: they connect again, to this redirector or elsewhere.
    pub(super) fn disconnect_members(&self) {
        lock(&self.connections).members.values().for_each(PeerHandle::hang_up);
    }

    /// Whether there were no members for some time.
    pub(super) fn is_abandoned(&self) -> bool {
        let connections = lock(&self.connections);
        connections.members.is_empty() && connections.left_at.elapsed() >= ABANDONED_AFTER
    }

    /// Checks that the server above can be reached for pages.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the common connection has not been open for some time, or the machine has panicked: clients are to
    /// go elsewhere.
    pub(super) fn check_connected(&self) -> Result<()> {
        drop(self.lock().map_err(|error| Error::new(ErrorKind::Unavailable, error.to_string()))?);
        match lock(&self.connections).above {
            Err(since) if since.elapsed() >= LOST_AFTER => {
                let what = "this redirector does not reach the server above it; its log says why";
                Err(Error::new(ErrorKind::Unavailable, what))
            }
            _ => Ok(()),
        }
    }
}

/// A lock of something that is consistent between any two statements, so that a panic elsewhere does no harm.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that no member can guess.
fn random_secret() -> u128 {
    let word = |number: u64| u128::from(RandomState::new().hash_one(number));
    word(0) << 64 | word(1)
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(above) = &lock(&self.connections).above {
            above.hang_up();
        }
        // Its tasks end.
        self.timer.wake();
    }
}

/// Carries out an output. What cannot be sent to the server above is sent again by the machine, or by the member.
fn carry_out(output: Output<MemberAddress, Object>, above: Option<&PeerHandle>) {
    match output {
        Output::Up { node, holder, message } => {
            if let Some(above) = above {
                above.send(Message::Up { node, epoch: 0, holder, message });
            }
        }
        Output::Call { from, txn, call, is_repeated } => {
            let message = Message::Call { txn, call };
            // A large one that was sent before waits still: the slow link does not carry it twice. The client repeats it until it is answered.
            let waits = is_repeated && from.above.is_sending() && message.memory_size() > MIN_SKIPPED;
            if !waits {
                from.above.send(message);
            }
        }
        Output::Down { to, node, holder, message } => to.below.send(Message::Down { node, holder, message }),
        Output::Reply { to, txn, reply } => to.below.send(Message::Reply { txn, reply }),
        Output::Deferred { to, node, txn, kind, why } => to.below.send(Message::Deferred { node, txn, kind, why }),
        Output::Disconnect(member) => member.below.hang_up(),
    }
}

/// Polls the machine when it is time, as long as the group exists.
async fn run_timers(group: Weak<Group>, timer: Arc<DeadlineTimer>, time: MonotonicClock) {
    loop {
        timer.wait(&time).await;
        timer.clear();
        let Some(group) = group.upgrade() else { return };
        if group.with_driver(|driver, now| driver.poll(now)).is_err() {
            return;
        }
    }
}

/// Keeps the common connection, as long as the group exists.
async fn keep_connected(group: Weak<Group>, upstream: Arc<Upstream>, client: ClientNumber) {
    let mut pauses = Backoff::new(MIN_PAUSE, MAX_PAUSE);
    let mut last_refusal = None;
    while let Some(current) = group.upgrade() {
        let (space, cluster) = (current.space.clone(), current.cluster.clone());
        // The last member may leave meanwhile.
        drop(current);
        match upstream.dial_space(&space.name, Some(client.clone())).await {
            Ok((stream, terms)) if terms.space == space.id && terms.cluster == cluster => {
                last_refusal = None;
                let begun = Instant::now();
                drive(&group, stream, &terms).await;
                // A server that ends each connection at once is not asked again and again without a pause.
                if begun.elapsed() > MAX_PAUSE {
                    pauses.reset();
                }
            }
            Ok(_) => {
                // Members connect again, and learn the same if their connections lead there, too.
                if let Some(current) = group.upgrade() {
                    current.disconnect_members();
                }
                info!(space = space.name, "the space was removed, or the cluster is another one now");
                return;
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                debug!(space = space.name, %error, "the server above cannot be reached");
            }
            Err(error) => {
                let text = error.to_string();
                if last_refusal.as_ref() != Some(&text) {
                    warn!(space = space.name, %error, "the server above refuses this redirector");
                    last_refusal = Some(text);
                }
            }
        }
        if let Some(current) = group.upgrade()
            && current.check_connected().is_err()
        {
            current.disconnect_members();
        }
        pauses.pause().await;
    }
}

/// Drives the common connection until it ends, or the server above hangs.
async fn drive(group: &Weak<Group>, stream: Stream, terms: &Terms) {
    let Some(current) = group.upgrade() else { return };
    let mailbox = Arc::new(Mailbox::for_transactions());
    let (handle, caller) = (PeerHandle::new(mailbox.clone()), Caller::new(mailbox.clone(), BUDGET));
    let service = UpstreamService { group: group.clone(), handle: handle.clone() };
    let link = Link::new(stream, service, Limits::default(), terms.max_frame, mailbox.clone());
    lock(&current.connections).above = Ok(handle);
    let space = current.space.clone();
    let connected = current.with_driver(|driver, now| {
        if terms.time_ms > 0 {
            driver.set_time(ClusterTime::from_message(terms.time_ms, now));
        }
        driver.upstream_connected(now);
    });
    drop(current);
    if connected.is_ok() {
        let mut driving = std::pin::pin!(link::drive(link));
        tokio::select! {
            biased;
            end = &mut driving => match end {
                End::Closed => debug!(space = space.name, "closed the connection to the server above"),
                end => info!(space = space.name, %end, "the connection to the server above ended"),
            },
            () = wait_until_silent(&mailbox, &caller, Liveness::FAR, || true) => {
                warn!(space = space.name, "the server above does not answer: it is connected to again");
                caller.hang_up();
                // The connections in the members' names hang, too: members connect again, and these go to another server.
                if let Some(current) = group.upgrade() {
                    current.disconnect_members();
                }
            }
        }
    }
    if let Some(current) = group.upgrade() {
        lock(&current.connections).above = Err(Instant::now());
        let _ = current.with_driver(|driver, now| driver.upstream_disconnected(now));
    }
}

/// Handles what the server above sends on the common connection.
struct UpstreamService {
    group: Weak<Group>,
    handle: PeerHandle,
}

impl Service for UpstreamService {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&Error::new(ErrorKind::Unsupported, "a redirector answers no requests of servers above"));
    }

    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        let Some(group) = self.group.upgrade() else {
            self.handle.hang_up();
            return Ok(());
        };
        group.with_driver(|driver, now| {
            messages.try_for_each(|message| {
                match message {
                    Message::Down { node, holder, message } => driver.upstream_down(node, holder, message, now),
                    Message::Deferred { node, txn, kind, why } => driver.upstream_deferred(node, txn, kind, why),
                    Message::Time(time_ms) => driver.set_time(ClusterTime::from_message(time_ms, now)),
                    _ => return Err(unexpected_message_error()),
                }
                Ok(())
            })
        })?
    }
}

/// The error for a message that a server above does not send to a redirector.
pub(super) fn unexpected_message_error() -> Error {
    Error::new(ErrorKind::Invalid, "a server does not send this message to a redirector")
}

#[cfg(test)]
mod tests {
    use model::{NodeId, SpaceId};

    use tokio::sync::OnceCell;

    use super::*;
    use crate::auth::ClusterCredentials;
    use crate::redirector::Groups;

    fn group() -> Arc<Group> {
        let space = SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: vec![NodeId(1)] };
        let upstream = Upstream::new(Vec::new(), ClusterCredentials::default()).unwrap();
        let client = ClientNumber { number: 1, ..ClientNumber::default() };
        Group::start(space, "cluster".to_owned(), client, Arc::new(upstream))
    }

    #[tokio::test]
    async fn server_above_may_tell_the_time_at_any_moment() {
        let group = group();
        let handle = PeerHandle::new(Arc::new(Mailbox::for_transactions()));
        let mut service = UpstreamService { group: Arc::downgrade(&group), handle };
        service.on_messages([Message::Time(5_000)].into_iter()).unwrap();
    }

    #[tokio::test]
    async fn a_group_that_has_panicked_is_reported_and_admits_nobody() {
        let group = group();
        lock(&group.connections).above = Ok(PeerHandle::new(Arc::new(Mailbox::for_transactions())));
        assert_eq!(group.health_problem(), None);
        group.check_connected().unwrap();
        let fault = || group.with_driver(|_, _| panic!("a fault of the machine"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fault)).is_err());
        assert!(group.health_problem().is_some_and(|why| why.contains("panicked")));
        group.check_connected().unwrap_err();
        group.member_connected(PeerHandle::new(Arc::new(Mailbox::for_transactions())));
        assert_eq!(group.status().members, 1);
    }

    #[tokio::test]
    async fn a_group_that_has_panicked_is_replaced() {
        let (groups, group) = (Groups::default(), group());
        let key = ("cluster".to_owned(), SpaceId(1));
        let cell = Arc::new(OnceCell::new_with(Some(group.clone())));
        lock(&groups.groups).insert(key, cell);
        groups.end_panicked();
        assert_eq!(groups.current().len(), 1, "nothing is wrong with it");
        let fault = || group.with_driver(|_, _| panic!("a fault of the machine"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(fault)).is_err());
        groups.end_panicked();
        assert!(groups.current().is_empty(), "the next member makes another one");
    }
}
