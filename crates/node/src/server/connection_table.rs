//! The connections of a server: how many there may be, of whom, and which end when there are too many.
//!
//! ```text
//!   accepted ──▶ half-open: silent ──▶ authenticating ──▶ admitted ──▶ ended
//! ```
//!
//! 1. Half-open connections have places of their own. When those are taken, the server evicts one: of the source with the
//!    most of them, the oldest that has sent nothing, or else the oldest.
//! 2. At most [`ConnectionLimits::total`] admitted connections are not privileged. Administrators and processes of the cluster are
//!    privileged: [`ConnectionLimits::administrator_reserve`] more places are for them.
//! 3. One user has at most [`ConnectionLimits::per_user`] admitted connections, and one source at most
//!    [`ConnectionLimits::per_address`]; the latter binds neither privileged connections nor those from loopback, which all local
//!    users and proxies share.
//! 4. A connection that would exceed a limit of rule 2 or 3 evicts the one that has been idle longest among those that count
//!    towards that limit. Connections that hold state are evicted only after those that do not, and after a longer time. If
//!    none is idle, the new connection is refused as `Unavailable`.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use wire::link::Mailbox;
use wire::transport::ConnectionSource;

use crate::plant::{Bug, planted};

/// How many connections a server has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Admitted connections, besides those of administrators and of processes of the cluster that the reserve holds.
    pub total: usize,
    /// Places beyond `total` that only administrators and processes of the cluster can take.
    pub administrator_reserve: usize,
    /// Admitted connections from one source: an IPv4 address, a /64 network of IPv6, or a local user over a Unix socket.
    pub per_address: usize,
    /// Admitted connections of one user.
    pub per_user: usize,
    /// Connections that are not authenticated yet.
    pub half_open: usize,
    /// Seconds without a received byte after which a connection that holds no state can be evicted.
    pub idle_s: u32,
    /// The same for a connection that holds state, such as a snapshot or a session with cached pages.
    pub idle_with_state_s: u32,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            total: 4096,
            administrator_reserve: 32,
            per_address: 2048,
            per_user: 2048,
            half_open: 1024,
            idle_s: 30,
            idle_with_state_s: 300,
        }
    }
}

/// An admitted connection, as the table sees it.
pub(crate) trait AdmittedLink: Send + Sync {
    /// How many reads have brought bytes.
    fn reads(&self) -> u64;
    /// Whether something would be lost if it ended.
    fn holds_state(&self) -> bool;
    fn hang_up(&self);
}

impl AdmittedLink for Mailbox {
    fn reads(&self) -> u64 {
        Mailbox::reads(self)
    }

    fn holds_state(&self) -> bool {
        Mailbox::holds_state(self)
    }

    fn hang_up(&self) {
        Mailbox::hang_up(self);
    }
}

/// The user of an authenticated connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOwner {
    /// The user; `None` of anonymous callers and of processes of the cluster.
    pub(crate) user: Option<Arc<str>>,
    /// Whether it is an administrator or a process of the cluster.
    pub(crate) is_privileged: bool,
}

/// The connections of a server.
pub(crate) struct ConnectionTable {
    limits: ConnectionLimits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_id: u64,
    half_open: HashMap<u64, HalfOpen>,
    admitted: HashMap<u64, Admitted>,
    evicted: u64,
}

struct HalfOpen {
    source: ConnectionSource,
    /// Whether it has begun to authenticate.
    is_authenticating: bool,
    evict: Arc<Notify>,
}

struct Admitted {
    source: ConnectionSource,
    owner: ConnectionOwner,
    /// None until the connection is served.
    link: Option<Weak<dyn AdmittedLink>>,
    /// Reads as of the last tick, and ticks since they changed.
    reads: u64,
    idle_ticks: u32,
}

impl Admitted {
    /// How early it is evicted, the smallest first; `None` if it is not idle.
    fn eviction_rank(&self, limits: &ConnectionLimits) -> Option<(bool, std::cmp::Reverse<u32>)> {
        let link = self.link.as_ref()?.upgrade()?;
        let holds_state = link.holds_state() && !planted(Bug::StateEvictedFirst);
        let needed = if holds_state { limits.idle_with_state_s } else { limits.idle_s };
        // What has come since the last tick counts.
        let is_idle = self.idle_ticks >= needed && link.reads() == self.reads;
        is_idle.then_some((holds_state, std::cmp::Reverse(self.idle_ticks)))
    }
}

/// The place of one connection in the table, until it is dropped.
pub(crate) struct ConnectionSlot {
    table: Arc<ConnectionTable>,
    id: u64,
    evict: Arc<Notify>,
}

impl ConnectionTable {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default() })
    }

    /// Enters a connection that was accepted, and evicts another if half-open ones have no place left.
    pub(crate) fn accept(self: &Arc<Self>, source: ConnectionSource) -> ConnectionSlot {
        let mut state = self.state.lock();
        if state.half_open.len() >= self.limits.half_open.max(1) {
            state.evict_half_open();
        }
        state.last_id += 1;
        let (id, evict) = (state.last_id, Arc::new(Notify::new()));
        state.half_open.insert(id, HalfOpen { source, is_authenticating: false, evict: evict.clone() });
        ConnectionSlot { table: self.clone(), id, evict }
    }

    /// Evicts one connection, if any can be: the process has no file descriptor left.
    pub(crate) fn evict_one(&self) -> bool {
        let mut state = self.state.lock();
        state.evict_half_open() || state.evict_idle(&self.limits, |_| true)
    }

    /// Counts which connections have been idle since the last call. To be called once a second.
    pub(crate) fn tick(&self) {
        for admitted in self.state.lock().admitted.values_mut() {
            let Some(link) = admitted.link.as_ref().and_then(Weak::upgrade) else { continue };
            let reads = link.reads();
            admitted.idle_ticks = if reads == admitted.reads { admitted.idle_ticks.saturating_add(1) } else { 0 };
            admitted.reads = reads;
        }
    }

    /// Connections in the table: half-open ones and admitted ones.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.half_open.len(), state.admitted.len())
    }

    /// Connections evicted since the start.
    pub(crate) fn evicted_count(&self) -> u64 {
        self.state.lock().evicted
    }

    fn admit(&self, id: u64, owner: ConnectionOwner) -> Result<()> {
        let (limits, mut state) = (&self.limits, self.state.lock());
        let Some(source) = state.half_open.get(&id).map(|half_open| half_open.source) else {
            return Err(unavailable("the server is full and has closed this connection".to_owned()));
        };
        if let Some(user) = &owner.user {
            let is_same = |other: &Admitted| other.owner.user.as_ref() == Some(user);
            if state.count(is_same) >= limits.per_user && !state.evict_idle(limits, is_same) {
                let what = format!("user {user} has its {} connections", limits.per_user);
                return Err(unavailable(what));
            }
        }
        let is_bound = !owner.is_privileged && source != ConnectionSource::Loopback;
        if is_bound && !planted(Bug::AddressNotCounted) {
            let is_same = |other: &Admitted| other.source == source && !other.owner.is_privileged;
            if state.count(is_same) >= limits.per_address && !state.evict_idle(limits, is_same) {
                return Err(unavailable(format!("{source} has its {} connections", limits.per_address)));
            }
        }
        if !state.has_place(limits, owner.is_privileged) && !state.evict_idle(limits, |_| true) {
            return Err(unavailable(format!("the server has its {} connections", limits.total)));
        }
        state.half_open.remove(&id);
        state.admitted.insert(id, Admitted { source, owner, link: None, reads: 0, idle_ticks: 0 });
        Ok(())
    }
}

fn unavailable(what: String) -> Error {
    Error::new(ErrorKind::Unavailable, format!("{what}: try again later"))
}

impl State {
    fn count(&self, counts: impl Fn(&Admitted) -> bool) -> usize {
        self.admitted.values().filter(|admitted| counts(admitted)).count()
    }

    fn has_place(&self, limits: &ConnectionLimits, is_privileged: bool) -> bool {
        let privileged = self.count(|admitted| admitted.owner.is_privileged);
        let others = self.admitted.len() - privileged;
        if is_privileged && !planted(Bug::NoReserve) {
            return privileged + others < limits.total + limits.administrator_reserve;
        }
        others + privileged.saturating_sub(limits.administrator_reserve) < limits.total
    }

    /// Evicts a half-open connection: rule 1.
    fn evict_half_open(&mut self) -> bool {
        let mut of_source: HashMap<ConnectionSource, usize> = HashMap::new();
        for half_open in self.half_open.values() {
            *of_source.entry(half_open.source).or_default() += 1;
        }
        let rank = |(id, half_open): &(&u64, &HalfOpen)| {
            let of_source = of_source.get(&half_open.source).copied().unwrap_or_default();
            (half_open.is_authenticating, std::cmp::Reverse(of_source), **id)
        };
        let Some(id) = self.half_open.iter().min_by_key(rank).map(|(id, _)| *id) else { return false };
        if let Some(half_open) = self.half_open.remove(&id) {
            half_open.evict.notify_one();
            self.evicted += 1;
        }
        true
    }

    /// Evicts the connection that has been idle longest among those that `counts` names: rule 4.
    fn evict_idle(&mut self, limits: &ConnectionLimits, counts: impl Fn(&Admitted) -> bool) -> bool {
        let among = self.admitted.iter().filter(|(_, admitted)| counts(admitted));
        let ranked = among.filter_map(|(id, admitted)| Some((admitted.eviction_rank(limits)?, *id)));
        let Some((_, id)) = ranked.min() else { return false };
        if let Some(link) = self.admitted.remove(&id).and_then(|admitted| admitted.link?.upgrade()) {
            link.hang_up();
            self.evicted += 1;
        }
        true
    }
}

impl ConnectionSlot {
    /// Waits until the server needs the place of this connection, which is not admitted yet.
    pub(crate) async fn wait_until_evicted(&self) {
        self.evict.notified().await;
    }

    /// Marks the connection as authenticating.
    pub(crate) fn begin_authentication(&self) {
        if let Some(half_open) = self.table.state.lock().half_open.get_mut(&self.id) {
            half_open.is_authenticating = true;
        }
    }

    /// Counts the connection as one of `owner`.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if a limit is reached and no idle connection can be evicted (rule 4).
    pub(crate) fn admit(&self, owner: ConnectionOwner) -> Result<()> {
        self.table.admit(self.id, owner)
    }

    /// From now on the connection is served and can be evicted while it is idle.
    pub(crate) fn attach<L: AdmittedLink + 'static>(&self, link: &Arc<L>) {
        let link: Weak<L> = Arc::downgrade(link);
        if let Some(admitted) = self.table.state.lock().admitted.get_mut(&self.id) {
            admitted.link = Some(link);
        }
    }

    /// What another task needs to change whether the connection is privileged.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl ConnectionTable {
    /// Sets whether a connection is privileged, which may change with the catalogue.
    pub(crate) fn set_privileged(&self, id: u64, is_privileged: bool) {
        if let Some(admitted) = self.state.lock().admitted.get_mut(&id) {
            admitted.owner.is_privileged =
                is_privileged || admitted.owner.is_privileged && planted(Bug::StaysPrivileged);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.table.state.lock();
        if planted(Bug::PlaceNotReturned) {
            return;
        }
        state.half_open.remove(&self.id);
        state.admitted.remove(&self.id);
    }
}

#[cfg(test)]
mod tests;
