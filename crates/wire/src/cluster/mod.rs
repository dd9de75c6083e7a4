//! Messages between the processes of a cluster: converts between the schema and the machines of `protocol`.
//!
//! A [`Message`] is a one-way request, sent by [`Mailbox::send_one_way`](crate::link::Mailbox::send_one_way). Its answer is another
//! message. The data of objects goes into the raw part without a copy.
//!
//! Messages come from outside, so they are checked here, before anything is allocated by a size that they contain: identifiers
//! are in range and permanent, lists are ordered and not too long, lengths add up to the raw part, objects are within their size
//! limit, and blobs have no class. Records in messages that go *up* (commits, writes, pages of helpers) are also validated
//! ([`Object::check`]) by each receiver; those that come *down* were validated on their way up. The machines check that pages
//! belong to their node, and times.
//!
//! An invalid message ends the connection ([`Responder::refuse`](crate::link::Responder::refuse)): its sender violates the protocol or
//! has another version, and later messages may depend on it.

mod calls;
mod contents;
mod entries;
mod ids;
mod moves;
mod query;
mod record;
mod scan;
mod space_status;
mod states;
mod transactions;
mod tree;
mod verdict;

use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, NodeId, Object, Oid, PageId, Result, SpaceId, limits};
use protocol::brick::LockedObject;
use protocol::commit::{Answer, Request};
use protocol::gateway::{Call, Reply};
use protocol::ident::{HlcTimestamp, HolderId, TxnId};
use protocol::memory_size::MemorySize;
use protocol::page_cache::{FetchReply, PageImage};
use protocol::tree::{Down, Up};

use crate::convert::{self, missing};
use crate::frame::Raw;
use crate::proto;
use crate::proto::cluster;
use crate::proto::request::Request as Envelope;
use states::{Check, Data};

pub use contents::{
    MAX_CONTENT_READ, ReadBytes, ReadContent, content_id, is_expected, read_from_proto, read_to_proto, upload_place,
};
pub use entries::{
    EntriesOf, EntryList, ListEntries, ListEntriesOf, ListNodeObjects, ListedEntry, ListedObject, LookUp, LookedUp,
    MAX_LOOK_UP_KEYS, NodeObjects,
};
pub use ids::{MAX_PARTICIPANTS, node};
pub use moves::{CloneRows, CopiedRows, CopyRows, MAX_COPIED_ROWS};
pub use query::{MAX_COLUMNS, MAX_OPEN_QUERIES, MAX_QUERY_BYTES, MAX_WAITS_FOR, QueryRequest, QueryRows};
pub use record::{decode_record, encode_record};
pub use scan::{IndexRange, MAX_KEY_BYTES, MAX_SCAN_CLASSES, Scan, ScanPosition, Scanned};
pub use space_status::{
    BrickStatus, SpaceStatus, damaged_node_error, describe_damage, policy_from_proto, policy_to_proto,
};
pub use states::{MAX_MESSAGE_READS, MAX_MESSAGE_WRITES};
pub use transactions::{ask_transactions, asked_transactions, known_from_proto, known_to_proto};

/// A message between processes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// To the upstream node in the cache tree of a logical node.
    Up {
        /// The logical node.
        node: NodeId,
        /// The epoch of the placement map that the sender has.
        epoch: u64,
        /// The session.
        holder: HolderId,
        /// The content.
        message: Up<Object>,
    },
    /// To a holder in the cache tree of a logical node.
    Down {
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The content.
        message: Down<Object>,
    },
    /// From a client to its gateway.
    Call {
        /// The transaction.
        txn: TxnId,
        /// The call.
        call: Call<Object>,
    },
    /// From a gateway to a client.
    Reply {
        /// The transaction.
        txn: TxnId,
        /// The answer.
        reply: Reply<Object>,
    },
    /// From a coordinator to a participant.
    Ask {
        /// The logical node that takes part.
        node: NodeId,
        /// The epoch of the placement map that the sender has.
        epoch: u64,
        /// The largest time that the sender knows.
        seen: HlcTimestamp,
        /// The request.
        request: Request<Object>,
    },
    /// From a participant to a coordinator.
    Answer {
        /// The logical node that takes part.
        node: NodeId,
        /// The largest time that the sender knows.
        seen: HlcTimestamp,
        /// The answer.
        answer: Answer,
        /// The locked object, with [`Answer::Locked`].
        locked: Option<LockedObject<Object>>,
    },
    /// The logical node is not served here (any more): fetch the placement map.
    NotServedHere {
        /// The logical node.
        node: NodeId,
        /// The epoch under which it is not served.
        epoch: u64,
        /// What is damaged, if the sender has the node and cannot serve it for that reason.
        damage: Option<Arc<str>>,
    },
    /// A request of a transaction is deferred. If the error is [final](is_final), an answer with the refusal follows, but for a request for a lock; otherwise the
    /// request stays open.
    Deferred {
        /// The logical node.
        node: NodeId,
        /// The transaction.
        txn: TxnId,
        /// The kind of the error, for the client.
        kind: ErrorKind,
        /// The reason, for the client.
        why: String,
    },
    /// From a client: send the status of its space now, and again at each change.
    Watch,
    /// The status of the connection's space.
    SpaceStatus(SpaceStatus),
    /// To clients: the time of the cluster in milliseconds since 1970, by which they begin transactions (L2).
    Time(u64),
}

/// Whether a deferred request with this kind of error is never done without an operator's action.
#[must_use]
pub const fn is_final(kind: ErrorKind) -> bool {
    use ErrorKind::{Conflict, Corrupt, Denied, Invalid, NotFound, QuotaExceeded, Stopped, TooLarge, Unsupported};
    matches!(kind, Conflict | Corrupt | Denied | Invalid | NotFound | QuotaExceeded | TooLarge | Unsupported | Stopped)
}

/// Whether a request is a [`Message`]. These are always one-way; their answers are other messages.
#[must_use]
pub fn is_message(request: &Envelope) -> bool {
    matches!(
        request,
        Envelope::Up(_)
            | Envelope::Down(_)
            | Envelope::Call(_)
            | Envelope::Reply(_)
            | Envelope::Ask(_)
            | Envelope::Answer(_)
            | Envelope::NotServedHere(_)
            | Envelope::Deferred(_)
            | Envelope::Watch(_)
            | Envelope::SpaceStatus(_)
            | Envelope::Time(_)
    )
}

/// The overhead of a message and of each write in it, in bytes.
const OVERHEAD_BYTES: usize = 64;

impl Message {
    /// The approximate size in memory, in bytes.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        let part = MemorySize::memory_size;
        let image = |image: &PageImage<Object>| image.objects.values().map(Object::encoded_len).sum();
        let content = match self {
            Self::Up { message: Up::Write { writes, .. }, .. } => {
                writes.values().map(|state| OVERHEAD_BYTES + state.memory_size()).sum()
            }
            Self::Up { message: Up::Helped { copy, .. }, .. } => copy.as_ref().map_or(0, image),
            Self::Down { message: Down::Fetched { reply: FetchReply::Page(page), .. }, .. } => image(page),
            Self::Down { message: Down::Invalidate { contents, .. }, .. } => {
                contents.as_ref().map_or(0, MemorySize::memory_size)
            }
            Self::Call { call: Call::Commit { parts, .. }, .. } => parts.values().map(part).sum(),
            Self::Call { call: Call::Check { reads, .. }, .. } => reads.values().map(MemorySize::memory_size).sum(),
            Self::Ask { request, .. } => request_size(request),
            Self::Reply { reply: Reply::Locked(locked), .. } | Self::Answer { locked: Some(locked), .. } => {
                locked.value.as_ref().map_or(0, Object::encoded_len)
            }
            _ => 0,
        };
        OVERHEAD_BYTES + content
    }

    /// Replaces a fetched page that is too large for a message by the reason for that. Returns whether it is one.
    pub(crate) fn refuse_large_page(&mut self) -> bool {
        let bytes = self.memory_size();
        let Self::Down { message: Down::Fetched { reply: reply @ FetchReply::Page(_), .. }, .. } = self else {
            return false;
        };
        if bytes <= limits::TRANSACTION {
            return false;
        }
        let (mib, most) = (bytes >> 20, limits::TRANSACTION >> 20);
        *reply = FetchReply::Damaged(format!(
            "its objects have {mib} MiB together, and a page is sent up to {most} MiB: read each object outside of transactions \
             (`read_latest`), store it as a new one, and delete it here"
        ));
        true
    }

    /// Encodes the message and its raw part.
    #[must_use]
    pub fn encode(&self) -> (Envelope, Vec<Bytes>) {
        let mut raw = Vec::new();
        let request = match self {
            Self::Up { node, epoch, holder, message } => Envelope::Up(Box::new(cluster::Up {
                node: node.0,
                epoch: *epoch,
                holder: holder.0,
                up: Some(tree::up_to_proto(message, &mut raw)),
            })),
            Self::Down { node, holder, message } => Envelope::Down(Box::new(cluster::Down {
                node: node.0,
                holder: holder.0,
                down: Some(tree::down_to_proto(message, &mut raw)),
            })),
            Self::Call { txn, call } => Envelope::Call(Box::new(cluster::Call {
                txn: Some((*txn).into()),
                call: Some(calls::call_to_proto(call, &mut raw)),
            })),
            Self::Reply { txn, reply } => Envelope::Reply(cluster::Reply {
                txn: Some((*txn).into()),
                reply: Some(calls::reply_to_proto(reply, &mut raw)),
            }),
            Self::Ask { node, epoch, seen, request } => Envelope::Ask(Box::new(cluster::Ask {
                node: node.0,
                epoch: *epoch,
                seen: seen.0,
                txn: Some(request.txn().into()),
                request: Some(calls::ask_to_proto(request, &mut raw)),
            })),
            Self::Answer { node, seen, answer, locked } => Envelope::Answer(Box::new(cluster::Answer {
                node: node.0,
                seen: seen.0,
                txn: Some(answer.txn().into()),
                answer: Some(calls::answer_to_proto(answer, locked.as_ref(), &mut raw)),
                // The connection fills this in.
                forced: 0,
            })),
            Self::NotServedHere { node, epoch, damage } => {
                let damage = damage.as_deref().unwrap_or_default().to_owned();
                Envelope::NotServedHere(cluster::NotServedHere { node: node.0, epoch: *epoch, damage })
            }
            Self::Deferred { node, txn, kind, why } => {
                let (txn, kind, why) = (Some((*txn).into()), *kind as u32, why.clone());
                Envelope::Deferred(cluster::Deferred { node: node.0, txn, kind, why })
            }
            Self::Watch => Envelope::Watch(cluster::Watch {}),
            Self::SpaceStatus(standing) => Envelope::SpaceStatus(standing.to_proto()),
            Self::Time(time_ms) => Envelope::Time(cluster::Time { time_ms: *time_ms }),
        };
        (request, raw)
    }

    /// Decodes a request and its raw part.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with the invalid part; [`ErrorKind::Unsupported`] if the request is not a message between processes of a
    /// cluster.
    pub fn decode(request: Envelope, raw: Raw<'_>) -> Result<Self> {
        let check = match &request {
            Envelope::Up(_) | Envelope::Call(_) | Envelope::Ask(_) => Check::Records,
            _ => Check::Lengths,
        };
        let mut data = Data::new(raw, check);
        let message = match request {
            Envelope::Up(up) => {
                let node = ids::node(up.node)?;
                let message = tree::up(up.up.ok_or_else(|| missing("content"))?, node, &mut data)?;
                Self::Up { node, epoch: up.epoch, holder: HolderId(up.holder), message }
            }
            Envelope::Down(down) => {
                let node = ids::node(down.node)?;
                let message = tree::down(down.down.ok_or_else(|| missing("content"))?, node, &mut data)?;
                Self::Down { node, holder: HolderId(down.holder), message }
            }
            Envelope::Call(call) => {
                let txn = ids::txn(call.txn)?;
                Self::Call { txn, call: calls::call(call.call.ok_or_else(|| missing("content"))?, &mut data)? }
            }
            Envelope::Reply(reply) => {
                let txn = ids::txn(reply.txn)?;
                Self::Reply { txn, reply: calls::reply(reply.reply.ok_or_else(|| missing("content"))?, &mut data)? }
            }
            Envelope::Ask(ask) => {
                let (node, seen, txn) = (ids::node(ask.node)?, ids::timestamp(ask.seen)?, ids::txn(ask.txn)?);
                let request = calls::ask(ask.request.ok_or_else(|| missing("content"))?, txn, &mut data)?;
                Self::Ask { node, epoch: ask.epoch, seen, request }
            }
            Envelope::Answer(found) => {
                let (node, seen, txn) = (ids::node(found.node)?, ids::timestamp(found.seen)?, ids::txn(found.txn)?);
                let answer = found.answer.ok_or_else(|| missing("content"))?;
                let (answer, locked) = calls::answer(answer, txn, &mut data)?;
                Self::Answer { node, seen, answer, locked }
            }
            Envelope::Deferred(held) => {
                let kind = u8::try_from(held.kind).map_or(ErrorKind::Internal, ErrorKind::from_code);
                Self::Deferred { node: ids::node(held.node)?, txn: ids::txn(held.txn)?, kind, why: held.why }
            }
            Envelope::Watch(_) => Self::Watch,
            Envelope::SpaceStatus(standing) => Self::SpaceStatus(SpaceStatus::from_proto(standing)?),
            Envelope::Time(time) => Self::Time(convert::time_ms(time.time_ms)?),
            Envelope::NotServedHere(elsewhere) => {
                let cluster::NotServedHere { node, epoch, damage } = elsewhere;
                let damage = Some(damage).filter(|damage| !damage.is_empty());
                let damage = damage.map(space_status::damage_from_proto).transpose()?;
                Self::NotServedHere { node: ids::node(node)?, epoch, damage }
            }
            _ => {
                let what = "the request is not a message between processes of a cluster";
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
        };
        data.finish()?;
        Ok(message)
    }
}

/// The approximate size of what a request has for its participant, or for several, in bytes.
fn request_size(request: &Request<Object>) -> usize {
    match request {
        Request::Prepare { part, .. } | Request::Commit { part, .. } => part.memory_size(),
        Request::Check { reads, .. } => reads.memory_size(),
        Request::Joint { requests, .. } => requests.values().map(|one| OVERHEAD_BYTES + request_size(one)).sum(),
        Request::Decide { .. }
        | Request::Ask { .. }
        | Request::Forget { .. }
        | Request::Heard { .. }
        | Request::Lock { .. } => 0,
    }
}

/// Pages that a client reserves for new objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// The space.
    pub space: SpaceId,
    /// The logical node.
    pub node: NodeId,
    /// The number of pages, at most.
    pub pages: u32,
    /// The bytes for which the first page has room, if an earlier client has created objects in it.
    pub room: u32,
}

impl From<Reserve> for proto::Reserve {
    fn from(reserve: Reserve) -> Self {
        let Reserve { space, node, pages, room } = reserve;
        Self { space: u32::from(space.0), node: node.0, pages, room }
    }
}

impl TryFrom<proto::Reserve> for Reserve {
    type Error = Error;

    fn try_from(reserve: proto::Reserve) -> Result<Self> {
        let (space, node) = (convert::space(reserve.space)?, ids::node(reserve.node)?);
        Ok(Self { space, node, pages: reserve.pages, room: reserve.room })
    }
}

/// Slots of a page for the client that fills it. Those above are for objects that are placed near others.
pub const PAGE_SLOTS: u16 = 512;

/// Consecutive pages of a logical node. Only the client that they are reserved for creates objects in them, except for objects near others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservedPages {
    /// The number of the first page.
    pub first: u64,
    /// The number of pages, at least 1.
    pub pages: u32,
    /// Slots of the first page below this one, which is below [`PAGE_SLOTS`], may be taken. The other pages are empty.
    pub slot: u16,
    /// The bytes that may still be added to the first page; 0 if it is empty.
    pub room: u32,
}

impl ReservedPages {
    /// Pages that no client has had yet.
    #[must_use]
    pub fn empty(first: u64, pages: u32) -> Self {
        Self { first, pages, slot: 0, room: 0 }
    }

    /// The first number above those of the pages.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.pages)
    }

    /// Whether the first page has room for an object of so many bytes. An empty page has, whatever they are.
    #[must_use]
    pub fn has_room(&self, bytes: u32) -> bool {
        self.slot == 0 || self.room >= bytes
    }
}

impl From<ReservedPages> for proto::Reserved {
    fn from(range: ReservedPages) -> Self {
        let ReservedPages { first, pages, slot, room } = range;
        Self { first, pages, slot: slot.into(), room }
    }
}

impl TryFrom<proto::Reserved> for ReservedPages {
    type Error = Error;

    fn try_from(reserved: proto::Reserved) -> Result<Self> {
        let proto::Reserved { first, pages, slot, room } = reserved;
        let exist = first.checked_add(u64::from(pages)).is_some_and(|end| end <= PageId::MAX_NUMBER);
        match (u16::try_from(slot), pages) {
            (Ok(slot @ ..PAGE_SLOTS), 1..) if exist => {
                Ok(Self { first, pages, slot, room: if slot == 0 { 0 } else { room } })
            }
            _ => {
                Err(Error::new(ErrorKind::Invalid, format!("{pages} pages from {first} on, slot {slot}, do not exist")))
            }
        }
    }
}

/// A request to complete an index at a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildIndex {
    /// The space.
    pub space: SpaceId,
    /// The logical node.
    pub node: NodeId,
    /// The index.
    pub index: u32,
}

impl From<BuildIndex> for proto::BuildIndex {
    fn from(build: BuildIndex) -> Self {
        Self { space: u32::from(build.space.0), node: build.node.0, index: build.index, only_report: false }
    }
}

impl TryFrom<proto::BuildIndex> for BuildIndex {
    type Error = Error;

    fn try_from(build: proto::BuildIndex) -> Result<Self> {
        let (space, node) = (convert::space(build.space)?, ids::node(build.node)?);
        Ok(Self { space, node, index: build.index })
    }
}

/// The object that a [`proto::ReadObject`] names.
pub fn read_object_from_proto(request: proto::ReadObject) -> Result<Oid> {
    ids::oid(request.oid)
}

/// The answer to a [`proto::ReadObject`]: the code and encoded length of the object, if it exists. Its encoding is the raw part.
#[must_use]
pub fn object_read_to_proto(object: Option<(u8, usize)>) -> proto::ObjectRead {
    proto::ObjectRead { state: object.map_or(0, |(code, length)| states::state_of(code, length)) }
}

/// Decodes the answer to a [`proto::ReadObject`] for `oid`.
pub fn object_read_from_proto(oid: Oid, read: proto::ObjectRead, raw: Raw<'_>) -> Result<Option<Object>> {
    let mut data = Data::new(raw, Check::Lengths);
    let object = data.object(oid.class(), read.state)?;
    data.finish()?;
    Ok(object)
}
