//! The connection of a member: its messages go to the machine of its group, everything else to the server above in its name.

use std::sync::{Arc, Weak};
use std::time::Duration;

use model::{Error, ErrorKind, Result, SpaceId};
use protocol::ident::ClientId;
use tracing::{debug, info};
use wire::cluster::Message;
use wire::driving::PeerHandle;
use wire::handshake::{Permission, Terms};
use wire::link::{
    self, Caller, Incoming, Limits, Link, Liveness, Mailbox, Responder, Service, is_one_way_kind, wait_until_silent,
};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;
use wire::transport::Stream;

use super::RedirectorRole;
use super::driver::Member;
use super::group::{Group, MemberAddress, unexpected_message_error};
use crate::auth::Principal;
use crate::peer::peer_client::PeerClient;
use crate::server::{Kind, Thread};

/// Bytes of unanswered calls in the name of one member; its own connection bounds its requests.
const BUDGET: usize = 64 << 20;

/// How long the server above may be silent on the connection of a member.
const PATIENCE: Liveness = Liveness { interval: Duration::from_secs(5), timeout: Duration::from_secs(3) };

/// What a member is admitted with.
pub(crate) struct Admission {
    /// The connection to the server above in its name, and the terms of that.
    pub(super) above: (Stream, Terms),
    /// Whether it is a redirector, which the server above has checked.
    pub(super) is_redirector: bool,
    /// Its number, if it has one. The server above has checked it.
    pub(super) number: Option<ClientId>,
    /// The group of its space; `None` for what concerns the whole cluster.
    pub(super) group: Option<Arc<Group>>,
}

/// The connection of a member.
pub(crate) struct MemberConnection {
    thread: Arc<Thread<RedirectorRole>>,
    /// Calls to the server above, in the name of this member.
    above: Caller,
    address: MemberAddress,
    joined: Option<Joined>,
}

/// A member of a group.
struct Joined {
    group: Arc<Group>,
    /// The number of the connection in the group.
    connection: u64,
    member: Member<MemberAddress>,
    /// Whether it may read what others have read.
    may_read: bool,
}

impl MemberConnection {
    /// Serves a member, and drives the connection in its name.
    pub(super) fn new(thread: Arc<Thread<RedirectorRole>>, admission: Admission, below: PeerHandle) -> Self {
        let Admission { above: (stream, terms), is_redirector, number, group } = admission;
        let mailbox = Arc::new(Mailbox::for_transactions());
        let (above, address) = (
            Caller::new(mailbox.clone(), BUDGET),
            MemberAddress { below: below.clone(), above: PeerHandle::new(mailbox.clone()) },
        );
        let service = MemberUpstreamService { group: group.as_ref().map(Arc::downgrade), below: below.clone() };
        let link = Link::new(stream, service, Limits::default(), terms.max_frame, mailbox.clone());
        let caller = above.clone();
        tasks::spawn(async move {
            tokio::select! {
                biased;
                end = link::drive(link) => debug!(%end, "a connection to the server above in the name of a member ended"),
                () = wait_until_silent(&mailbox, &caller, PATIENCE, || true) => {
                    info!("the server above does not answer on the connection of a member");
                }
            }
            // The member connects again, and learns of a refusal.
            below.hang_up();
        });
        let joined = group.map(|group| {
            let connection = group.member_connected(address.below.clone());
            // The server above has authenticated the member and checked its number, and checks its calls.
            let client = PeerClient::new(address.clone(), group.space.clone(), Principal::Anonymous, number);
            let client = if is_redirector { client.as_redirector() } else { client };
            let member = Member::new(client, terms.permission >= Permission::Write);
            Joined { group, connection, member, may_read: terms.permission >= Permission::Read }
        });
        Self { thread, above, address, joined }
    }

    /// The space whose contents this member shares with others, and the number of its cluster.
    fn shared_space(&self) -> Option<(u128, SpaceId)> {
        let group = &self.joined.as_ref().filter(|joined| joined.may_read)?.group;
        Some((group.cluster_number(), group.space.id))
    }
}

impl Service for MemberConnection {
    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        let Some(Joined { group, member, .. }) = &mut self.joined else {
            return Err(Error::new(ErrorKind::Invalid, "a connection that names no space has no transactions"));
        };
        let (counters, above) = (&self.thread.counters, &self.address.above);
        group.with_driver(|driver, now| {
            messages.try_for_each(|message| {
                counters.count(Kind::of_message(&message));
                match message {
                    Message::Up { node, holder, message, .. } => driver.member_up(member, (node, holder), message, now),
                    Message::Call { txn, call } => driver.member_call(member, txn, call, now),
                    Message::Watch => {
                        above.send(Message::Watch);
                        Ok(())
                    }
                    _ => Err(violation_error()),
                }
            })
        })?
    }

    fn on_request(&mut self, incoming: Incoming<'_>, reply: Responder<'_>) {
        let Incoming { request, raw } = incoming;
        let counters = &self.thread.counters;
        counters.count(Kind::of_request(&request));
        counters.received.add(raw.len() as u64);
        if reply.is_one_way() {
            return match is_one_way_kind(&request) {
                true => self.above.send_one_way(request),
                false => reply.refuse(&violation_error()),
            };
        }
        match request {
            // A member asks whether this redirector hangs, not whether the server above does.
            Request::Ping(_) => reply.send(Response::Done(proto::Done {})),
            Request::GetStatus(_) => reply.send(Response::Status(self.thread.server.status())),
            Request::Backup(_)
            | Request::Cut(_)
            | Request::ReleaseCut(_)
            | Request::BackupBase(_)
            | Request::Scrub(_)
            | Request::MetaGetRun(_)
            | Request::MetaWatch(_) => {
                let what = "a redirector does not forward this: connect to the store itself";
                reply.fail(&Error::new(ErrorKind::Unsupported, what));
            }
            Request::ReadContent(read) if let Some(space) = self.shared_space() => {
                self.thread.server.role.contents.read(space, read, &self.above, reply.defer());
            }
            request => {
                let raw = if raw.is_empty() { Vec::new() } else { vec![raw.to_bytes()] };
                self.above.forward(request, raw, reply.defer());
            }
        }
    }

    fn on_received(&mut self, bytes: u64) {
        self.thread.counters.received.add(bytes);
    }

    fn on_sent(&mut self, bytes: u64) {
        self.thread.counters.sent.add(bytes);
    }

    fn holds_state(&self) -> bool {
        self.joined.as_ref().is_some_and(|joined| joined.member.uses_number())
    }
}

impl Drop for MemberConnection {
    fn drop(&mut self) {
        self.above.hang_up();
        if let Some(Joined { group, connection, member, .. }) = &self.joined {
            group.member_disconnected(*connection, member);
        }
    }
}

/// Handles what the server above sends to a member.
struct MemberUpstreamService {
    group: Option<Weak<Group>>,
    below: PeerHandle,
}

impl Service for MemberUpstreamService {
    fn on_request(&mut self, _: Incoming<'_>, reply: Responder<'_>) {
        reply.fail(&Error::new(ErrorKind::Unsupported, "a client answers no requests"));
    }

    fn on_messages(&mut self, mut messages: impl Iterator<Item = Message>) -> Result<()> {
        let Some(group) = self.group.as_ref().and_then(Weak::upgrade) else {
            self.below.hang_up();
            return Ok(());
        };
        group.with_driver(|driver, _| {
            messages.try_for_each(|message| {
                match message {
                    Message::Reply { txn, reply } => driver.member_reply(txn, reply),
                    message @ (Message::Deferred { .. } | Message::SpaceStatus(_) | Message::Time(_)) => {
                        self.below.send(message)
                    }
                    _ => return Err(unexpected_message_error()),
                }
                Ok(())
            })
        })?
    }
}

fn violation_error() -> Error {
    Error::new(ErrorKind::Invalid, "a client does not send this message, or not in this form")
}
