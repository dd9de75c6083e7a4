//! The state that a peer server has of one client, and the checks of the client's messages.
//!
//! All checks are functions of this state, the catalogue and the time. They do no I/O.

use std::cell::Cell;
use std::sync::Arc;

use meta::Revision;
use meta::catalog::{Catalog, Permission};
use model::{Error, ErrorKind, NodeId, Oid, PageId, Result, limits};
use protocol::clock::LEAD_MS;
use protocol::gateway::Call;
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::locks::LockMode;
use protocol::memory_size::MemorySize;
use protocol::page_cache::ObjectState;
use protocol::tree::Up;
use wire::handshake;

use super::admission::{admit_to_space, check_still_admitted};
use super::downstreams::FETCHES_PER_COUNT;
use super::plant::{Bug, planted};
use super::space_statuses::{StoppedSpaces, check_not_stopped};
use crate::auth::{Principal, admit_by_certificate, check_writable};
use crate::brick::SKEW_MS;
use crate::cluster_view::SpaceView;

/// A client of a peer server. `A` is the address of its connection.
#[derive(Clone, Debug)]
pub struct PeerClient<A> {
    address: A,
    space: Arc<SpaceView>,
    principal: Principal,
    /// Whether it is a redirector, whose writes are those of the clients below it.
    is_redirector: bool,
    /// The number in the client's sessions and transactions. It was given to this client.
    number: Option<ClientId>,
    /// Whether it has begun to use its number.
    uses_number: bool,
    /// How many pages it has fetched since the last count of those that do not exist.
    fetches: u32,
    /// The permission in the space, as of a revision of the catalogue.
    permission: Cell<Option<(Revision, Option<Permission>)>>,
}

impl<A> PeerClient<A> {
    /// A client that is admitted to a space with the number that it was given, if it has one. Space 0 without logical nodes is for what
    /// concerns the whole cluster.
    pub(crate) fn new(address: A, space: Arc<SpaceView>, principal: Principal, number: Option<ClientId>) -> Self {
        let (is_redirector, uses_number, fetches, permission) = (false, false, 0, Cell::new(None));
        Self { address, space, principal, is_redirector, number, uses_number, fetches, permission }
    }

    /// The same of a redirector: its writes are those of the clients below it. It checks their permissions.
    #[must_use]
    pub fn as_redirector(self) -> Self {
        Self { is_redirector: true, ..self }
    }

    /// A client that may do everything in a space.
    #[must_use]
    pub fn with_all_permissions(address: A, space: Arc<SpaceView>, number: ClientId) -> Self {
        Self::new(address, space, Principal::Member, Some(number))
    }

    /// Admits a user that has proved its name by a certificate. Returns what it may do in the space, too.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub fn admit(
        address: A,
        space: Arc<SpaceView>,
        user: &str,
        number: ClientId,
        catalog: &Catalog,
    ) -> Result<(Self, handshake::Permission)> {
        let principal = admit_by_certificate(catalog, user)?;
        let permission = admit_to_space(&principal, Some(catalog), &space.name)?;
        Ok((Self::new(address, space, principal, Some(number)), permission))
    }

    /// Checks that it may still do what it could do when it was admitted.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`]: its connection is closed.
    pub fn check_still_admitted(&self, catalog: &Catalog, before: handshake::Permission) -> Result<()> {
        check_still_admitted(&self.principal, Some(catalog), &self.space.name, before)
    }

    /// The address of its connection.
    #[must_use]
    pub fn address(&self) -> &A {
        &self.address
    }

    pub(crate) fn space(&self) -> &Arc<SpaceView> {
        &self.space
    }

    pub(super) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(crate) fn number(&self) -> Option<ClientId> {
        self.number
    }

    pub(super) fn is_redirector(&self) -> bool {
        self.is_redirector
    }

    /// Whether it has sessions or transactions.
    pub(crate) fn uses_number(&self) -> bool {
        self.uses_number
    }

    pub(super) fn begin_number_use(&mut self) {
        self.uses_number = true;
    }

    /// Counts a fetch. Returns whether those of its pages that do not exist have to be counted.
    pub(super) fn count_fetch(&mut self) -> bool {
        self.fetches = (self.fetches + 1) % FETCHES_PER_COUNT;
        self.fetches == 0
    }

    // -------------------------------------------------------------------------------------------- permissions

    /// Checks the client's permission in its space, and that the space accepts changes if one is about to be made.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(super) fn check_permission(&self, catalog: Option<&Catalog>, needed: Permission) -> Result<()> {
        let Some(catalog) = catalog else { return Ok(()) };
        let permission = match self.permission.get() {
            Some((at, permission)) if at == catalog.revision() || planted(Bug::PermissionNotRefreshed) => permission,
            _ => {
                let permission = self.principal.permission(Some(catalog), &self.space.name);
                self.permission.set(Some((catalog.revision(), permission)));
                permission
            }
        };
        if permission < Some(needed) {
            return self.principal.check_permission(needed, Some(catalog), &self.space.name);
        }
        match catalog.space_by_id(self.space.id) {
            Some(space) if needed != Permission::Read && !planted(Bug::ReadOnlySpaceWritten) => check_writable(space),
            _ => Ok(()),
        }
    }

    /// Checks the client's permission, and that its space is not stopped.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`]; [`ErrorKind::Stopped`].
    pub(super) fn check_work(
        &self,
        catalog: Option<&Catalog>,
        stopped: &StoppedSpaces,
        needed: Permission,
    ) -> Result<()> {
        self.check_permission(catalog, needed)?;
        if planted(Bug::StoppedSpaceServed) {
            return Ok(());
        }
        check_not_stopped(stopped, self.space.id)
    }

    // -------------------------------------------------------------------------------------------- places

    /// Checks that a logical node is one of the client's space, and that pages are of both.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] for a page, [`ErrorKind::NotFound`] for a node.
    pub(crate) fn check_pages(&self, node: NodeId, pages: impl IntoIterator<Item = PageId>) -> Result<()> {
        let is_foreign =
            |page: &PageId| page.node != node || (page.space != self.space.id && !planted(Bug::ForeignPage));
        if let Some(page) = pages.into_iter().find(is_foreign) {
            let what = format!("page {page:?} is not of space {} and logical node {:x}", self.space.name, node.0);
            return Err(Error::new(ErrorKind::Denied, what));
        }
        if !self.space.nodes.contains(&node) && !planted(Bug::ForeignNode) {
            let what = format!("space {} has no logical node {:x}", self.space.name, node.0);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        Ok(())
    }

    /// Checks that the target of an entry of a collection is of the client's space, and at one of its logical nodes.
    fn check_target(&self, target: Oid) -> Result<()> {
        let is_at_node = self.space.nodes.contains(&target.page().node);
        if target.space() == self.space.id && is_at_node || planted(Bug::ForeignPage) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Denied,
            format!("{target} is not of space {}: it cannot be named here", self.space.name),
        ))
    }

    /// Checks that a call is about the client's space only.
    ///
    /// # Errors
    /// As [`PeerClient::check_pages`].
    pub(crate) fn check_call_pages<T>(&self, call: &Call<T>) -> Result<()> {
        match call {
            Call::Commit { parts, .. } => parts.iter().try_for_each(|(node, part)| {
                let targets = part.entries.values().flatten();
                targets.copied().try_for_each(|target| self.check_target(target))?;
                let collections = part.entries.keys().map(|entry| &entry.collection);
                let changes = part.writes.keys().chain(&part.touches).chain(collections);
                self.check_pages(*node, part.reads.pages().chain(changes.map(|oid| oid.page())))
            }),
            Call::Check { reads, .. } => {
                reads.iter().try_for_each(|(node, reads)| self.check_pages(*node, reads.pages()))
            }
            Call::Lock { oid, .. } => self.check_pages(oid.page().node, [oid.page()]),
            Call::Resolve { participants: nodes, .. }
            | Call::Release { participants: nodes }
            | Call::Heard { nodes, .. } => nodes.iter().try_for_each(|node| self.check_pages(*node, [])),
        }
    }
}

/// Checks that a time is not further ahead than the clocks of clients may be. They follow commit timestamps of bricks, which may be ahead of their time by
/// [`LEAD_MS`] after a restart. The rest is half of what processes accept from each other, so that a client's wrong clock does not make processes disbelieve
/// each other (L2): their times differ by less than the other half.
///
/// # Errors
/// [`ErrorKind::Invalid`].
pub(crate) fn check_clock(at: HlcTimestamp, time_ms: u64) -> Result<()> {
    let ahead = at.ms();
    if ahead <= time_ms + SKEW_MS / 2 + LEAD_MS {
        return Ok(());
    }
    let what =
        format!("the client's clock is {} ms ahead of the peer server's: set one of them right", ahead - time_ms);
    Err(Error::new(ErrorKind::Invalid, what))
}

/// Checks times and sizes in a call.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a time in the future, [`ErrorKind::TooLarge`].
pub(crate) fn check_call<T: MemorySize>(txn: TxnId, call: &Call<T>, time_ms: u64) -> Result<()> {
    if !planted(Bug::FutureTime) {
        check_clock(txn.start, time_ms)?;
    }
    match call {
        Call::Commit { parts, .. } if !planted(Bug::OversizedCommit) => {
            let contents = parts.values().flat_map(|part| part.writes.values());
            let objects = parts.values().map(|part| part.writes.len() + part.touches.len()).sum();
            let entries = || parts.values().flat_map(|part| part.entries.keys());
            let keys: usize = entries().map(|entry| entry.key.as_bytes().len()).sum();
            limits::check_writes(objects, bytes_of(contents) + keys)?;
            limits::check_entries(entries().count(), keys)?;
            limits::check_head(call.head_bytes())
        }
        Call::Check { seen, .. } if !planted(Bug::FutureCheck) => check_clock(*seen, time_ms),
        // The age of a transaction is that of an earlier attempt of its client (W1).
        Call::Lock { first, .. }
            if (first.client != txn.client || first.start > txn.start) && !planted(Bug::ForeignAge) =>
        {
            let what = format!("{first:?} is no earlier attempt of {txn:?}");
            Err(Error::new(ErrorKind::Invalid, what))
        }
        Call::Heard { mark, .. } => check_clock(mark.below(), time_ms),
        _ => Ok(()),
    }
}

/// The permission that a call needs, and its participants; `None` for calls that only end what was begun.
pub(super) fn required_permission<T>(call: &Call<T>) -> Option<(Permission, Vec<NodeId>)> {
    match call {
        Call::Commit { parts, .. } => {
            let writes = parts.values().any(|part| !part.writes.is_empty()) && !planted(Bug::CommitNeedsReadOnly);
            let touches = parts.values().any(|part| !part.touches.is_empty()) && !planted(Bug::TouchNeedsReadOnly);
            let entries = parts.values().any(|part| !part.entries.is_empty()) && !planted(Bug::EntryNeedsReadOnly);
            let needed = if writes || touches || entries { Permission::Write } else { Permission::Read };
            Some((needed, parts.keys().copied().collect()))
        }
        Call::Check { reads, .. } => Some((Permission::Read, reads.keys().copied().collect())),
        Call::Lock { oid, mode, .. } => {
            let needed = if *mode == LockMode::Shared { Permission::Read } else { Permission::Write };
            Some((needed, vec![oid.page().node]))
        }
        Call::Resolve { .. } | Call::Heard { .. } | Call::Release { .. } => None,
    }
}

/// The bytes of all values.
pub(crate) fn bytes_of<'a, T: MemorySize + 'a>(contents: impl Iterator<Item = &'a ObjectState<T>>) -> usize {
    contents.map(MemorySize::memory_size).sum()
}

/// The pages that a message is about.
pub(crate) fn pages_of<T>(message: &Up<T>) -> Vec<PageId> {
    match message {
        Up::Renew { .. } => Vec::new(),
        Up::Fetch { page, .. } | Up::Acknowledge { page, .. } | Up::Evict { page, .. } | Up::Helped { page, .. } => {
            vec![*page]
        }
        Up::Write { writes, .. } => writes.keys().map(|oid| oid.page()).collect(),
    }
}
