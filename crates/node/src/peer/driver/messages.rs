//! What goes into a peer server's machine, and what comes out.

use std::sync::Arc;

use model::{ErrorKind, NodeId, Object, Result};
use protocol::brick::LockedObject;
use protocol::commit::{Answer, Request};
use protocol::gateway::{Call, Reply};
use protocol::ident::{HlcTimestamp, HolderId, TxnId};
use protocol::redirect::Helpers;
use protocol::tree::{Down, Up};
use wire::cluster::SpaceStatus;

use crate::node_placement::NodePlacement;
use crate::peer::cache::CachedObject;

/// What a peer server is made with.
#[derive(Clone, Copy, Debug)]
pub struct PeerSettings {
    /// The number of the process. No other process or client has it.
    pub process: u64,
    /// How many bits of a session's number follow the number of its client.
    pub session_bits: u32,
    /// Bytes of objects that are cached.
    pub cache_bytes: usize,
    /// Bytes of transactions that may wait for bricks that do not answer; `None` for the default.
    pub backlog_bytes: Option<usize>,
    /// Whether clients help each other.
    pub helpers: Helpers,
}

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientMessage<T = Object> {
    /// In the cache tree of a logical node.
    Up {
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The message.
        message: Up<T>,
    },
    /// About a transaction.
    Call {
        /// The transaction.
        txn: TxnId,
        /// The call.
        call: Call<T>,
    },
    /// It wants the status of its space, now and at each change.
    Watch,
}

/// A message of a brick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrickMessage<T = Object> {
    /// In the cache tree of a logical node.
    Down {
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The message.
        message: Down<T>,
    },
    /// From a participant.
    Answer {
        /// The logical node.
        node: NodeId,
        /// The largest time that the brick knows.
        seen: HlcTimestamp,
        /// The answer.
        answer: Answer,
        /// With [`Answer::Locked`]: the object.
        locked: Option<LockedObject<T>>,
    },
    /// A transaction is delayed, or never done.
    Deferred {
        /// The logical node.
        node: NodeId,
        /// The transaction.
        txn: TxnId,
        /// The kind of error.
        kind: ErrorKind,
        /// The reason.
        why: String,
    },
    /// The brick does not serve the logical node.
    NotServedHere {
        /// The logical node.
        node: NodeId,
        /// What is damaged, if the brick has the node and cannot serve it for that reason.
        damage: Option<Arc<str>>,
    },
}

/// What the peer server wants done. Outputs are carried out in order.
#[derive(Debug)]
pub enum Output<A, T, R> {
    /// Send this to a brick, in the cache tree of a logical node.
    Up {
        /// The brick, and the epoch as of which it serves the node.
        to: NodePlacement,
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The message.
        message: Up<T>,
    },
    /// Send this to a participant.
    Ask {
        /// The brick, and the epoch as of which it serves the node.
        to: NodePlacement,
        /// The logical node.
        node: NodeId,
        /// The largest time that this peer server knows (L1).
        seen: HlcTimestamp,
        /// The request.
        request: Request<T>,
    },
    /// Send this to a client, in the cache tree of a logical node.
    Down {
        /// The client.
        to: A,
        /// The logical node.
        node: NodeId,
        /// The session.
        holder: HolderId,
        /// The message.
        message: Down<T>,
    },
    /// Send this to a client that has called.
    Reply {
        /// The client.
        to: A,
        /// The transaction.
        txn: TxnId,
        /// The reply.
        reply: Reply<T>,
    },
    /// Tell a client why its transaction is delayed or refused.
    Deferred {
        /// The client.
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
    /// Send the status of its space to a client.
    Status {
        /// The client.
        to: A,
        /// The status.
        status: SpaceStatus,
    },
    /// Tell a client what time it is in the cluster (L2).
    Time {
        /// The client.
        to: A,
        /// The time, in milliseconds since 1970.
        time_ms: u64,
    },
    /// A read of the object cache has ended.
    ReadEnded {
        /// The reader.
        reader: R,
        /// What it read.
        result: Result<CachedObject<T>>,
    },
    /// End the connection of a client.
    Disconnect(A),
}
