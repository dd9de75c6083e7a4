//! The clients and redirectors directly below a cache node, and the checks that they use nothing of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;
use std::ops::RangeInclusive;

use model::{Error, ErrorKind, NodeId, Result};
use protocol::cache_node::CacheNode;
use protocol::ident::{ClientId, HolderId};
use protocol::memory_size::MemorySize;
use protocol::tree::Up;

use super::peer_client::{PeerClient, bytes_of, check_clock, pages_of};
use super::plant::{Bug, planted};

/// Sessions of one client on one connection, at most. A client has one, and another one after each that was lost.
const MAX_SESSIONS: usize = 1024;
/// Most pages that a client of a peer server, and a member of a group at its redirector, may wait for, or have copies of although they do not exist,
/// besides those of the fetches after which they are counted next. A client that follows the rules waits for little more than 2,048
/// ([`FetchLimits`](protocol::session::FetchLimits)). A redirector, also one below another, may have as many as 64 such clients.
pub(crate) const MAX_UNCONFIRMED_PAGES: usize = 16_384;
pub(crate) const MAX_UNCONFIRMED_PAGES_OF_MEMBER: usize = 4_096;
const MAX_UNCONFIRMED_PAGES_OF_REDIRECTOR: usize = 131_072;
/// After so many fetches of a client they are counted.
pub(super) const FETCHES_PER_COUNT: u32 = 1_024;

/// The connections below a cache node. `A` is the address of one.
pub(crate) struct Downstreams<A> {
    /// How many bits of a session's number follow the number of its client.
    session_bits: u32,
    /// The connection of each holder.
    holders: BTreeMap<HolderId, A>,
    /// The connections of all clients of spaces, whether they have sessions and transactions or not.
    connected: Vec<A>,
    /// The connection of each client that has sessions or transactions.
    clients: BTreeMap<ClientId, A>,
}

impl<A: Clone + PartialEq> Downstreams<A> {
    pub(crate) fn new(session_bits: u32) -> Self {
        Self { session_bits, holders: BTreeMap::new(), connected: Vec::new(), clients: BTreeMap::new() }
    }

    /// The client whose session this is.
    pub(crate) fn client_of(&self, holder: HolderId) -> ClientId {
        ClientId(holder.0 >> self.session_bits)
    }

    /// The connection of a holder.
    pub(crate) fn holder(&self, holder: HolderId) -> Option<&A> {
        self.holders.get(&holder)
    }

    /// A client is connected. One about the whole cluster begins no transactions, and is not listed.
    pub(crate) fn connect(&mut self, client: &PeerClient<A>) {
        if !client.space().nodes.is_empty() {
            self.connected.push(client.address().clone());
        }
    }

    /// The connections of all clients of spaces.
    pub(crate) fn connections(&self) -> impl Iterator<Item = &A> {
        self.connected.iter()
    }

    /// The connection of a client.
    pub(crate) fn client(&self, number: ClientId) -> Option<&A> {
        match planted(Bug::DeferredToAnyone) {
            true => self.any_client(),
            false => self.clients.get(&number),
        }
    }

    /// The connection of some client, for planted bugs.
    pub(crate) fn any_client(&self) -> Option<&A> {
        self.clients.values().next()
    }

    pub(crate) fn holder_count(&self) -> usize {
        self.holders.len()
    }

    /// Checks that a client uses its own sessions, and pages of its own space, and that its write is within the limits. A
    /// redirector's write is that of a client below it. Returns an earlier connection of the client, which is to be ended.
    ///
    /// # Errors
    /// If a client that follows the rules cannot have sent the message.
    pub(crate) fn check_up<T: MemorySize>(
        &mut self,
        client: &mut PeerClient<A>,
        (node, holder): (NodeId, HolderId),
        message: &Up<T>,
        time_ms: u64,
    ) -> Result<Option<A>> {
        let mut replaced = None;
        if !planted(Bug::ForeignSession) {
            replaced = self.check_number(client, self.client_of(holder))?;
        }
        client.check_pages(node, pages_of(message))?;
        if matches!(message, Up::Renew { .. }) && !planted(Bug::SessionsUnbounded) {
            self.check_sessions(holder)?;
        }
        match message {
            // Bricks prove updates to redirectors (R2) and wait longer for them.
            Up::Renew { height: 1.., .. } if !client.is_redirector() && !planted(Bug::AnyHeight) => {
                return Err(Error::new(ErrorKind::Invalid, "a client has no holders below it"));
            }
            Up::Renew { replaces: Some(before), .. } if !planted(Bug::ForeignReplacement) => {
                replaced = replaced.or(self.check_number(client, self.client_of(*before))?);
            }
            Up::Write { write, writes } => {
                if !client.is_redirector() {
                    replaced = replaced.or(self.check_number(client, write.client)?);
                }
                check_clock(write.start, time_ms)?;
                model::limits::check_writes(writes.len(), bytes_of(writes.values()))?;
            }
            _ => {}
        }
        Ok(replaced)
    }

    /// The sessions of the client that has this one.
    fn sessions_of(&self, holder: HolderId) -> RangeInclusive<HolderId> {
        let session = (1 << self.session_bits) - 1;
        HolderId(holder.0 & !session)..=HolderId(holder.0 | session)
    }

    /// Checks now and then that a client that fetches pages does not wait for more and more, and does not keep more and more that do not exist: each takes
    /// memory here and at its brick until it is answered, or the client evicts it, and no stored data bounds their number.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`].
    pub(crate) fn check_unconfirmed_pages<T: Clone + MemorySize + Hash>(
        &self,
        client: &mut PeerClient<A>,
        (holder, message): (HolderId, &Up<T>),
        node: &CacheNode<impl Clone + PartialEq, T>,
        most: usize,
    ) -> Result<()> {
        if !matches!(message, Up::Fetch { .. }) || !client.count_fetch() || planted(Bug::MissingPagesUnbounded) {
            return Ok(());
        }
        let most = if client.is_redirector() { MAX_UNCONFIRMED_PAGES_OF_REDIRECTOR } else { most };
        if node.unconfirmed_pages(&self.sessions_of(holder)) <= most {
            return Ok(());
        }
        let what =
            format!("a client waits for {most} pages, or keeps so many that do not exist: it evicts none of them");
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Checks that a client does not open more and more sessions: each takes memory until the connection ends.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`].
    fn check_sessions(&self, holder: HolderId) -> Result<()> {
        if self.holders.contains_key(&holder) || self.holders.range(self.sessions_of(holder)).count() < MAX_SESSIONS {
            return Ok(());
        }
        let what = format!("a client has {MAX_SESSIONS} sessions on one connection: it has to connect again");
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Checks that a number is the client's own. A client that connects again takes its number over from its earlier connection, which is
    /// returned.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(crate) fn check_number(&mut self, client: &mut PeerClient<A>, number: ClientId) -> Result<Option<A>> {
        if client.number() != Some(number) && !planted(Bug::NumberOfAnother) {
            let what = match client.number() {
                None => {
                    "a client without a number has no sessions and transactions: it, or a redirector before it, is of an older version; update it"
                }
                Some(_) => "a client uses the sessions or transactions of another one",
            };
            return Err(Error::new(ErrorKind::Denied, what));
        }
        if client.uses_number() {
            return Ok(None);
        }
        client.begin_number_use();
        let before = self.clients.insert(number, client.address().clone());
        Ok(before.filter(|_| !planted(Bug::OlderConnectionKept)))
    }

    /// Notes from which connection the session of a holder is opened or continued.
    pub(crate) fn note<T>(&mut self, from: &A, holder: HolderId, message: &Up<T>) {
        if matches!(message, Up::Renew { .. })
            && !(planted(Bug::SessionKeepsConnection) && self.holders.contains_key(&holder))
        {
            self.holders.insert(holder, from.clone());
        }
    }

    /// Removes the holders of a connection that has ended.
    pub(crate) fn remove_holders(&mut self, address: &A) -> BTreeSet<HolderId> {
        self.holders.extract_if(.., |_, at| at == address).map(|(holder, _)| holder).collect()
    }

    /// Forgets a client whose connection has ended, and its number unless a later connection has taken it.
    pub(crate) fn forget(&mut self, client: &PeerClient<A>) {
        if let Some(place) = self.connected.iter().position(|at| at == client.address()) {
            self.connected.swap_remove(place);
        }
        let is_of_it = |at: &A| at == client.address() || planted(Bug::LaterConnectionForgotten);
        if let Some(number) = client.number()
            && self.clients.get(&number).is_some_and(is_of_it)
        {
            self.clients.remove(&number);
        }
    }
}
