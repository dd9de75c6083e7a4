//! What goes up and down a cache tree.
//!
//! The pages of one logical node are cached by a tree: its brick at the root, clients at the leaves, and between them peer
//! servers and redirectors. One connection carries the messages of many trees; each tree keeps its own order in it, in both
//! directions.
//!
//! ```text
//!   brick ◀── Up ── peer server ◀── Up ── redirector ◀── Up ── client
//!         ── Down ▶             ── Down ▶            ── Down ▶
//! ```
//!
//! Every message belongs to a *session* of the lower node with the upper one, whose number is that of the
//! [holder](HolderId). A message of another session than the one that is open is dropped. So whatever was under way when a
//! connection broke, or a lease ran out, cannot be mistaken for news.

use model::{NodeId, PageId};

use crate::commit::{Refusal, Writes};
use crate::ident::{HlcTimestamp, HolderId, TxnId, Version};
use crate::lease::Ms;
use crate::page_cache::{FetchId, FetchReply, Invalidation, PageImage, SlotStates};

/// What a holder says to the node above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Up<T> {
    /// Wants a lease, new or longer (D4). The first message of a session.
    Renew {
        /// When this is sent, by the holder's clock: the lease counts from then.
        asked: Ms,
        /// How long, in milliseconds.
        wanted_ms: u64,
        /// There was none in this session yet.
        open: bool,
        /// If it is not 0, the answer has to come from the root, and says this number again: whatever the holder has seen
        /// elsewhere, by other ways, has then come by this way too (N1).
        sync: u64,
        /// Closed timestamps are wanted (G1).
        subscribe: bool,
        /// How many nodes are below this one, at most, on the way to a client: a client is 0 high.
        height: u8,
        /// An earlier session of the same holder, of which it has put everything aside.
        replaces: Option<HolderId>,
    },
    /// Wants a page (D1).
    Fetch {
        /// The page.
        page: PageId,
        /// The number of the fetch.
        fetch: FetchId,
        /// The version that is there and may still be current (D4).
        have: Option<Version>,
    },
    /// Its copy of a page has at least this version (V3).
    Acknowledge {
        /// The page.
        page: PageId,
        /// The version.
        version: Version,
    },
    /// Has no copy any more of what this fetch brought (D1).
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
        /// The number of the request for help.
        help: FetchId,
        /// The page, if it is complete there.
        copy: Option<PageImage<T>>,
    },
    /// Writes objects outside of any transaction (N1).
    Write {
        /// Its number: written again, it is written once.
        write: TxnId,
        /// The new states.
        writes: Writes<T>,
    },
}

impl<T> Up<T> {
    /// A page that it is about and that is not of this logical node: then nobody who follows the rules has sent it in the tree of
    /// that node.
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

/// What a node says to a holder below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down<T> {
    /// The lease is so long from when it was asked for; 0 if there is none to be had now.
    Leased {
        /// When it was asked for.
        asked: Ms,
        /// Milliseconds.
        lease_ms: u64,
        /// The number of the question, if the answer comes from the root.
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
    /// A page has changed (D2), with its new states, if they are at hand (R2).
    Invalidate {
        /// What has changed.
        message: Invalidation,
        /// To what.
        contents: Option<SlotStates<T>>,
    },
    /// Another holder wants this page: is it complete there? (R1)
    Help {
        /// The page.
        page: PageId,
        /// The number of the request.
        help: FetchId,
    },
    /// All changes up to this time have been told (G1).
    Close {
        /// The closed timestamp.
        at: HlcTimestamp,
    },
    /// Answers [`Up::Write`].
    Written {
        /// Its number.
        write: TxnId,
        /// When it was committed, or why it was not.
        result: Result<HlcTimestamp, Refusal>,
    },
    /// Everybody has heard of a write, or uses nothing that is older (N1).
    Settled {
        /// Its number.
        write: TxnId,
    },
}
