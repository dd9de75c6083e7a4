//! The messages of a cache tree.
//!
//! A tree caches the pages of one logical node: its brick is the root, clients are the leaves, and peer servers and
//! redirectors are between them. One connection carries the messages of many trees and keeps the order of each tree, in
//! both directions.
//!
//! ```text
//!   brick ◀── Up ── peer server ◀── Up ── redirector ◀── Up ── client
//!         ── Down ▶             ── Down ▶            ── Down ▶
//! ```
//!
//! Every message belongs to a *session* of the lower node with the upper one, whose number is that of the
//! [holder](HolderId). A message of any session but the open one is dropped. So messages that were under way when a
//! connection broke or a lease ended have no effect.

use model::{NodeId, PageId};

use crate::commit::{Refusal, Writes};
use crate::ident::{HlcTimestamp, HolderId, TxnId, Version};
use crate::lease::Ms;
use crate::page_cache::{FetchId, FetchReply, Invalidation, PageImage, SlotStates};

/// A message from a holder to the node above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up<T> {
    /// Requests a new or longer lease (D4). The first message of a session.
    Renew {
        /// When this is sent, by the holder's clock; the lease counts from then.
        asked: Ms,
        /// The requested length, in milliseconds.
        wanted_ms: u64,
        /// Whether this opens the session.
        open: bool,
        /// If it is not 0, the root has to answer, and the answer repeats this number: everything that the holder has
        /// seen on other paths has then arrived on this one (N1).
        sync: u64,
        /// Whether the holder subscribes to closed timestamps (G1).
        subscribe: bool,
        /// The maximum number of nodes below this one on a path to a client; 0 for a client.
        height: u8,
        /// An earlier session of the same holder, whose copies are all suspended.
        replaces: Option<HolderId>,
    },
    /// Fetches a page (D1).
    Fetch {
        /// The page.
        page: PageId,
        /// The number of the fetch.
        fetch: FetchId,
        /// The version of the suspended copy, which may be current (D4).
        have: Option<Version>,
    },
    /// Its copy of a page has at least this version (V3).
    Acknowledge {
        /// The page.
        page: PageId,
        /// The version.
        version: Version,
    },
    /// The copy that this fetch returned is evicted (D1).
    Evict {
        /// The page.
        page: PageId,
        /// The fetch.
        fetch: FetchId,
    },
    /// Answers [`Down::Help`] (R1).
    Helped {
        /// The page.
        page: PageId,
        /// The number of the help request.
        help: FetchId,
        /// The page, if the copy is complete.
        copy: Option<PageImage<T>>,
    },
    /// Writes objects outside of any transaction (N1).
    Write {
        /// Its number: a repeated write takes effect once.
        write: TxnId,
        /// The new states.
        writes: Writes<T>,
    },
}

impl<T> Up<T> {
    /// A page in the message that belongs to another logical node. A message with such a page breaks the rules.
    #[must_use]
    pub fn foreign_page(&self, node: NodeId) -> Option<PageId> {
        let is_foreign = |page: &PageId| page.node != node;
        match self {
            Self::Renew { .. } => None,
            Self::Fetch { page, .. }
            | Self::Acknowledge { page, .. }
            | Self::Evict { page, .. }
            | Self::Helped { page, .. } => Some(*page).filter(is_foreign),
            Self::Write { writes, .. } => writes.keys().map(|oid| oid.page()).find(is_foreign),
        }
    }
}

/// A message from a node to a holder below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down<T> {
    /// The length of the lease, from the time of the request; 0 if none is granted.
    Leased {
        /// The time of the request.
        asked: Ms,
        /// Milliseconds.
        lease_ms: u64,
        /// The number of the question, if the root has answered it.
        sync: u64,
    },
    /// The session is over: open another.
    Closed,
    /// Answers [`Up::Fetch`].
    Fetched {
        /// The page.
        page: PageId,
        /// The number of the fetch.
        fetch: FetchId,
        /// The answer.
        reply: FetchReply<T>,
    },
    /// A page has changed (D2), with its new states if they are available (R2).
    Invalidate {
        /// The change.
        message: Invalidation,
        /// The new states.
        contents: Option<SlotStates<T>>,
    },
    /// Asks for a complete copy of a page for another holder (R1).
    Help {
        /// The page.
        page: PageId,
        /// The number of the request.
        help: FetchId,
    },
    /// All changes up to this time have been sent (G1).
    Close {
        /// The closed timestamp.
        at: HlcTimestamp,
    },
    /// Answers [`Up::Write`].
    Written {
        /// Its number.
        write: TxnId,
        /// The commit timestamp, or the reason of the refusal.
        result: Result<HlcTimestamp, Refusal>,
    },
    /// A write is settled: every holder has acknowledged it, or has expired (N1).
    Settled {
        /// Its number.
        write: TxnId,
    },
}
