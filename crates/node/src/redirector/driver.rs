//! The redirector of one space as a machine: inputs are messages, connections and the time; outputs are messages.
//!
//! ```text
//!  member_up, member_call ──▶ ┌──────────────────┐ ──▶ Up           to the server above, for all members
//!  upstream_message       ──▶ │ RedirectorDriver │ ──▶ Call         to the server above, for one member
//!  member_reply           ──▶ └──────────────────┘ ──▶ Down, Reply  to members
//! ```
//!
//! It owns the [`CacheNode`] of the members' pages. It does no I/O, reads no clock and takes no locks; the simulator runs the same
//! machine. A member has a connection of its own to the server above, on which its calls go: that server checks what the member may do.
//!
//! 1. A member uses its own sessions and transactions only, and pages of its own space (N1, C3). A member that breaks this is
//!    disconnected.
//! 2. A member that may not write has no write outside of transactions forwarded: the server above sees those as the redirector's.
//! 3. When the connection of a member ends, its holders are sent nothing more; they stay listed until their leases end (D4).

use std::hash::Hash;

use model::{Error, ErrorKind, NodeId, Result};
use protocol::cache_node::{self, CacheNode};
use protocol::clock::ClusterTime;
use protocol::commit::Refusal;
use protocol::gateway::{Call, Reply};
use protocol::ident::{HolderId, TxnId};
use protocol::lease::Ms;
use protocol::memory_size::MemorySize;
use protocol::redirect::RedirectorCounts;
use protocol::tree::{Down, Up};

use super::plant::{Bug, planted};
use crate::peer::downstreams::{Downstreams, MAX_UNCONFIRMED_PAGES_OF_MEMBER};
use crate::peer::peer_client::{PeerClient, check_call};

/// What the redirector wants done. Outputs are carried out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<A, T> {
    /// Send this to the server above, in the cache tree of a logical node.
    Up {
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The message.
        message: Up<T>,
    },
    /// Send this call to the server above, on the member's own connection.
    Call {
        /// The member.
        from: A,
        /// The transaction.
        txn: TxnId,
        /// The call.
        call: Call<T>,
        /// Whether it only repeats one that was forwarded and is not answered: see [`CacheNode::is_repetition`].
        is_repeated: bool,
    },
    /// Send this to a member, in the cache tree of a logical node.
    Down {
        /// The member.
        to: A,
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The message.
        message: Down<T>,
    },
    /// Send this to a member that has called.
    Reply {
        /// The member.
        to: A,
        /// The transaction.
        txn: TxnId,
        /// The reply.
        reply: Reply<T>,
    },
    /// Tell a member why its transaction is delayed or refused.
    Deferred {
        /// The member.
        to: A,
        /// The logical node that is the reason.
        node: NodeId,
        /// The transaction.
        txn: TxnId,
        /// The kind of error.
        kind: ErrorKind,
        /// The reason.
        why: String,
    },
    /// End the connection of a member.
    Disconnect(A),
}

/// A client below a redirector. `A` is the address of its connection.
#[derive(Clone, Debug)]
pub struct Member<A> {
    client: PeerClient<A>,
    may_write: bool,
}

impl<A> Member<A> {
    /// A member that the server above has admitted.
    #[must_use]
    pub fn new(client: PeerClient<A>, may_write: bool) -> Self {
        Self { client, may_write }
    }

    /// Whether it has sessions or transactions.
    pub(super) fn uses_number(&self) -> bool {
        self.client.uses_number()
    }
}

/// The redirector of one space. `A` is the address of a member, `T` an object.
pub struct RedirectorDriver<A, T> {
    node: CacheNode<A, T>,
    below: Downstreams<A>,
    time: ClusterTime,
    out: Vec<Output<A, T>>,
}

impl<A: Clone + PartialEq, T: Clone + MemorySize + Hash> RedirectorDriver<A, T> {
    /// A redirector that is not connected. No other process or client has its `number`; the number of a session continues that
    /// of its client by `session_bits`.
    #[must_use]
    pub fn new(number: u64, session_bits: u32) -> Self {
        assert!(number >> (u64::BITS - session_bits) == 0, "D1: the number {number} leaves no room for sessions");
        let node = CacheNode::redirector(HolderId(number << session_bits));
        Self { node, below: Downstreams::new(session_bits), time: ClusterTime::default(), out: Vec::new() }
    }

    /// With a secret that its members must not know: see [`CacheNode::with_secret`].
    #[must_use]
    pub fn with_secret(self, secret: u128) -> Self {
        Self { node: self.node.with_secret(secret), ..self }
    }

    /// Takes the outputs, in order.
    pub fn outputs(&mut self) -> impl Iterator<Item = Output<A, T>> {
        self.out.drain(..)
    }

    // -------------------------------------------------------------------------------------------- members

    /// Handles a message of a member in the cache tree of a logical node.
    ///
    /// # Errors
    /// If a member that follows the rules cannot have sent it: disconnect the member.
    pub fn member_up(
        &mut self,
        member: &mut Member<A>,
        (node, holder): (NodeId, HolderId),
        message: Up<T>,
        now: Ms,
    ) -> Result<()> {
        let replaced = self.below.check_up(&mut member.client, (node, holder), &message, self.time.at(now))?;
        self.out.extend(replaced.map(Output::Disconnect));
        let from = member.client.address();
        if let Up::Write { write, .. } = &message
            && !member.may_write
            && !planted(Bug::MemberWriteUnchecked)
        {
            self.deny_write(from, (node, holder, *write));
            return Ok(());
        }
        let (fetched, most) = ((holder, &message), MAX_UNCONFIRMED_PAGES_OF_MEMBER);
        self.below.check_unconfirmed_pages(&mut member.client, fetched, &self.node, most)?;
        self.below.note(member.client.address(), holder, &message);
        self.node.handle_up(node, holder, message, now).map_err(invalid)?;
        self.drain();
        Ok(())
    }

    /// Tells a member that its write outside of transactions is denied, and that it has ended.
    fn deny_write(&mut self, to: &A, (node, holder, write): (NodeId, HolderId, TxnId)) {
        let (kind, why) = (ErrorKind::Denied, "this user may not write here".to_owned());
        self.out.push(Output::Deferred { to: to.clone(), node, txn: write, kind, why });
        if !planted(Bug::DeniedWriteHangs) {
            let message = Down::Written { write, result: Err(Refusal::TooOld) };
            self.out.push(Output::Down { to: to.clone(), node, holder, message });
        }
    }

    /// Handles a call of a member.
    ///
    /// # Errors
    /// As [`RedirectorDriver::member_up`].
    pub fn member_call(&mut self, member: &mut Member<A>, txn: TxnId, call: Call<T>, now: Ms) -> Result<()> {
        let client = &mut member.client;
        if !planted(Bug::MemberUsesOthersTransaction) {
            let replaced = self.below.check_number(client, txn.client)?;
            self.out.extend(replaced.map(Output::Disconnect));
        }
        if !planted(Bug::MemberCallUnchecked) {
            client.check_call_pages(&call)?;
        }
        if !planted(Bug::MemberCallTooLarge) {
            check_call(txn, &call, self.time.at(now))?;
        }
        let from = client.address().clone();
        let is_repeated = self.node.is_repetition(&from, txn, &call);
        let forwarded = self.node.handle_call(from.clone(), txn, call, now).map_err(invalid)?;
        if !member.may_write && !planted(Bug::ReaderUpdates) {
            self.node.forget_update(txn);
        }
        match forwarded {
            Some(cache_node::Output::Call(txn, call)) => {
                let other = self.below.any_client().filter(|_| planted(Bug::CallOnOtherConnection));
                let from = other.cloned().unwrap_or(from);
                self.out.push(Output::Call { from, txn, call, is_repeated });
            }
            Some(cache_node::Output::Busy(to, txn, limit)) => {
                let why = "the transactions of this client that wait for replies have reached their limit at this redirector: nothing of \
                           this one was sent; try later";
                let (node, kind) = (limit.node(), ErrorKind::Unavailable);
                self.out.push(Output::Deferred { to, node, txn, kind, why: why.to_owned() });
            }
            _ => {}
        }
        self.drain();
        Ok(())
    }

    /// Handles the reply to a member's call.
    pub fn member_reply(&mut self, txn: TxnId, reply: Reply<T>) {
        if let Some(cache_node::Output::Reply(to, txn, reply)) = self.node.handle_reply(txn, reply)
            && !planted(Bug::ReplyDropped)
        {
            self.out.push(Output::Reply { to, txn, reply });
        }
        self.drain();
    }

    /// The connection of a member has ended.
    pub fn member_disconnected(&mut self, member: &Member<A>, now: Ms) {
        let address = member.client.address();
        if !planted(Bug::MemberNotForgotten) {
            let gone = self.below.remove_holders(address);
            let is_gone = |holder| gone.contains(&holder) || planted(Bug::MemberClosesOthers);
            self.node.handle_disconnected(address, |_, holder| is_gone(holder), now);
        }
        self.below.forget(&member.client);
        self.drain();
    }

    // -------------------------------------------------------------------------------------------- the server above

    /// The server above says what time it is in the cluster (L2).
    pub fn set_time(&mut self, time: ClusterTime) {
        self.time = time;
    }

    /// There is a connection to the server above.
    pub fn upstream_connected(&mut self, now: Ms) {
        if !planted(Bug::UpstreamReturnIgnored) {
            self.node.connect(None, now);
        }
        self.drain();
    }

    /// The connection to the server above has ended.
    pub fn upstream_disconnected(&mut self, now: Ms) {
        if !planted(Bug::UpstreamLossIgnored) {
            self.node.disconnect(None, now);
        }
        self.drain();
    }

    /// Handles a message of the server above in the cache tree of a logical node.
    pub fn upstream_down(&mut self, node: NodeId, session: HolderId, message: Down<T>, now: Ms) {
        self.node.handle_down(node, session, message, now);
        self.drain();
    }

    /// The server above tells why a write outside of transactions is delayed or refused.
    pub fn upstream_deferred(&mut self, node: NodeId, txn: TxnId, kind: ErrorKind, why: String) {
        // A write of a member of a redirector below is that redirector's here, which waits for its end on the same connection.
        let writer = self.node.writer(node, txn).and_then(|holder| self.below.holder(holder));
        let writer = writer.filter(|_| !planted(Bug::DeferredToMember));
        if let Some(to) = writer.or_else(|| self.below.client(txn.client))
            && !planted(Bug::DeferredToNone)
        {
            self.out.push(Output::Deferred { to: to.clone(), node, txn, kind, why });
        }
    }

    // -------------------------------------------------------------------------------------------- time and outputs

    /// Does what is due.
    pub fn poll(&mut self, now: Ms) {
        self.node.poll(now);
        self.drain();
    }

    /// When [`RedirectorDriver::poll`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        self.node.deadline()
    }

    /// Turns what the cache node wants into outputs.
    fn drain(&mut self) {
        for output in self.node.outputs() {
            match output {
                cache_node::Output::Up(node, holder, message) => self.out.push(Output::Up { node, holder, message }),
                cache_node::Output::Down(node, holder, message) => {
                    if let Some(to) = self.below.holder(holder) {
                        self.out.push(Output::Down { to: to.clone(), node, holder, message });
                    }
                }
                cache_node::Output::Reply(to, txn, reply) => self.out.push(Output::Reply { to, txn, reply }),
                cache_node::Output::Ask(..)
                | cache_node::Output::Busy(..)
                | cache_node::Output::MixedOutcome(..)
                | cache_node::Output::Call(..) => {
                    unreachable!("C2: a redirector coordinates no transactions")
                }
            }
        }
    }

    // -------------------------------------------------------------------------------------------- looking

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> RedirectorCounts {
        self.node.counts()
    }

    /// How far group snapshots of members are behind, in milliseconds; `None` if none of them reads any.
    #[must_use]
    pub fn staleness_ms(&self, now: Ms) -> Option<u64> {
        Some(now.saturating_sub(self.node.closed_timestamp()?.ms()))
    }

    /// The cache node, for checkers.
    #[must_use]
    pub fn cache_node(&self) -> &CacheNode<A, T> {
        &self.node
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not hold, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.node.check_invariants()
    }
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, why.to_string())
}

#[cfg(test)]
mod tests;
