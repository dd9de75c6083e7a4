//! The clients and redirectors directly below a cache node, and the checks that they use nothing of each other.

use std::collections::{BTreeMap, BTreeSet};

use model::{Error, ErrorKind, NodeId, Result, SpaceId};
use protocol::ident::{ClientId, HolderId};
use protocol::memory_size::MemorySize;
use protocol::tree::Up;

use super::peer_client::{PeerClient, bytes_of, check_clock, pages_of};
use super::plant::{Bug, planted};

/// The connections below a cache node. `A` is the address of one.
pub(crate) struct Downstreams<A> {
    /// The number of the cache node's own process.
    own: ClientId,
    /// How many bits of a session's number follow the number of its client.
    session_bits: u32,
    /// The connection of each holder.
    holders: BTreeMap<HolderId, A>,
    /// The connections of all clients of spaces, whether they have named their numbers or not.
    connected: Vec<A>,
    /// The connection of each client that has named its number, and its space.
    clients: BTreeMap<ClientId, (A, SpaceId)>,
}

impl<A: Clone + PartialEq> Downstreams<A> {
    pub(crate) fn new(own: ClientId, session_bits: u32) -> Self {
        Self { own, session_bits, holders: BTreeMap::new(), connected: Vec::new(), clients: BTreeMap::new() }
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
    pub(crate) fn connected(&self) -> impl Iterator<Item = &A> {
        self.connected.iter()
    }

    /// The connection of a client.
    pub(crate) fn client(&self, number: ClientId) -> Option<&A> {
        let found = match planted(Bug::DeferredToAnyone) {
            true => self.clients.values().next(),
            false => self.clients.get(&number),
        };
        found.map(|(address, _)| address)
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
        match message {
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

    /// Checks that a number is the client's own. The first number that a client names becomes its own, unless a client of another
    /// space has it. A client that connects again takes its number over from its earlier connection, which is returned.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`].
    pub(crate) fn check_number(&mut self, client: &mut PeerClient<A>, number: ClientId) -> Result<Option<A>> {
        let foreign = || Error::new(ErrorKind::Denied, "a client uses the sessions or transactions of another one");
        if let Some(own) = client.number() {
            return if own == number { Ok(None) } else { Err(foreign()) };
        }
        if number == self.own && !planted(Bug::OwnNumberGiven) {
            return Err(foreign());
        }
        let before = match self.clients.get(&number) {
            Some((_, other)) if *other != client.space().id && !planted(Bug::NumberOfOtherSpace) => {
                return Err(foreign());
            }
            Some((before, _)) if !planted(Bug::OlderConnectionKept) => Some(before.clone()),
            _ => None,
        };
        self.clients.insert(number, (client.address().clone(), client.space().id));
        client.set_number(number);
        Ok(before)
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
            && self.clients.get(&number).is_some_and(|(at, _)| is_of_it(at))
        {
            self.clients.remove(&number);
        }
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not hold.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        match self.clients.contains_key(&self.own) {
            true => Err("C3: a client has the number of the cache node".to_owned()),
            false => Ok(()),
        }
    }
}
