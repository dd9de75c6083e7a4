//! Pending fetches: the holders that wait for a page, and the node that was asked for it (rule R1).

use std::hash::Hash;

use model::PageId;

use super::{Helpers, Output, Redirector};
use crate::ident::{HolderId, Version};
use crate::lease::Ms;
use crate::memory_size::MemorySize;
use crate::page_cache::{FetchId, FetchReply, Invalidation, MESSAGES_LIMIT_BYTES, SlotStates, message_bytes};
use crate::plant::{Bug, planted};
use crate::tree::{Down, Up};

/// How long a helper may take, in milliseconds: about as long as the fetch that it saves.
const HELP_MS: u64 = 50;

/// A holder that waits for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FetchWaiter {
    pub(super) holder: HolderId,
    pub(super) fetch: FetchId,
    pub(super) have: Option<Version>,
}

/// The node that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchStage {
    /// A holder.
    Helping { helper: HolderId, help: FetchId },
    /// The node above; `have` is the version to compare.
    Above { fetch: FetchId, have: Option<Version> },
}

impl FetchStage {
    /// No node yet.
    pub(super) const NOT_ASKED: Self = Self::Above { fetch: FetchId(0), have: None };
}

/// A pending fetch of a page.
#[derive(Clone, Debug)]
pub(super) struct PageFetch<T> {
    pub(super) stage: FetchStage,
    pub(super) waiters: Vec<FetchWaiter>,
    /// Messages that waiting holders were sent since the fetch began.
    pub(super) buffered: Vec<(Invalidation, Option<SlotStates<T>>)>,
    /// The approximate size of these messages in bytes.
    pub(super) buffered_bytes: usize,
}

impl<T> PageFetch<T> {
    fn new(waiters: Vec<FetchWaiter>) -> Self {
        Self { stage: FetchStage::NOT_ASKED, waiters, buffered: Vec::new(), buffered_bytes: 0 }
    }
}

impl<T: Clone + MemorySize + Hash> Redirector<T> {
    /// Handles a holder's fetch of a page. The holder is listed before any node is asked (D1).
    pub(super) fn fetch(&mut self, page: PageId, waiter: FetchWaiter, now: Ms) {
        self.counts.fetches += 1;
        if waiter.have.is_none() || !planted(Bug::UnlistedRevalidation) {
            self.directory.list(page, waiter.holder, waiter.fetch);
        }
        // Until it is known that the page exists.
        self.directory.set_unconfirmed(page, waiter.holder, true);
        // It no longer has its earlier copy.
        if !planted(Bug::HelperStaysComplete) {
            self.mark_incomplete(page, waiter.holder);
        }
        let Some(fetching) = self.fetching.get_mut(&page) else {
            self.fetching.insert(page, PageFetch::new(vec![waiter]));
            return self.dispatch(page, now);
        };
        fetching.waiters.retain(|one| one.holder != waiter.holder);
        fetching.waiters.push(waiter);
        if planted(Bug::MissNotJoined) {
            return self.fetch_above(page);
        }
        // The page under way may be older than the messages that the others received meanwhile.
        for (message, contents) in fetching.buffered.clone().into_iter().filter(|_| !planted(Bug::LateJoiner)) {
            if !planted(Bug::JoinerNotAwaited) {
                self.directory.mark_sent(waiter.holder, page, message.version, now);
            }
            self.send_down(waiter.holder, Down::Invalidate { message, contents });
        }
    }

    /// Whether a holder waits for the answer to this fetch.
    pub(super) fn is_waiting(&self, page: PageId, holder: HolderId, fetch: FetchId) -> bool {
        let is_it = |waiter: &FetchWaiter| waiter.holder == holder && waiter.fetch == fetch;
        self.fetching.get(&page).is_some_and(|fetching| fetching.waiters.iter().any(is_it))
    }

    /// Asks a helper for a page, or the node above if there is none.
    pub(super) fn dispatch(&mut self, page: PageId, now: Ms) {
        let Some(fetching) = self.fetching.get(&page) else { return };
        if fetching.waiters.is_empty() {
            self.fetching.remove(&page);
            self.helping.set(page, None);
            return self.unlist(page);
        }
        let is_bare = fetching.waiters.iter().any(|waiter| waiter.have.is_none());
        let helper = if is_bare { self.helper(page, now) } else { None };
        let Some(helper) = helper else { return self.fetch_above(page) };
        assert!(
            fetching.waiters.iter().all(|waiter| waiter.holder != helper),
            "R1: {helper:?} is asked to help with {page:?} but waits for it"
        );
        self.last_fetch += 1;
        let help = FetchId(self.last_fetch);
        *self.help_counts.entry(helper).or_default() += 1;
        if let Some(fetching) = self.fetching.get_mut(&page) {
            fetching.stage = FetchStage::Helping { helper, help };
        }
        self.helping.set(page, Some(now + HELP_MS));
        self.send_down(helper, Down::Help { page, help });
    }

    /// The holder with a complete copy that has helped least, of those that do not rest.
    fn helper(&self, page: PageId, now: Ms) -> Option<HolderId> {
        if self.helpers == Helpers::None {
            return None;
        }
        let times = |holder: &HolderId| self.help_counts.get(holder).copied().unwrap_or_default();
        let awake = self.complete.get(&page)?.iter().copied().filter(|holder| !self.resting.rests(*holder, now));
        awake.min_by_key(|holder| (if planted(Bug::LoadNotSpread) { 0 } else { times(holder) }, *holder))
    }

    /// Asks the node above.
    pub(super) fn fetch_above(&mut self, page: PageId) {
        let Some(fetching) = self.fetching.get_mut(&page) else { return };
        self.helping.set(page, None);
        self.last_fetch += 1;
        let fetch = FetchId(self.last_fetch);
        // A holder without a copy needs the page; if all have copies, these may be current.
        let bare = fetching.waiters.iter().any(|waiter| waiter.have.is_none());
        let have = fetching.waiters.first().and_then(|waiter| waiter.have).filter(|_| !bare);
        fetching.stage = FetchStage::Above { fetch, have };
        self.listed.insert(page, fetch);
        self.counts.fetched_above += 1;
        self.send_up(Up::Fetch { page, fetch, have });
    }

    /// Keeps a message for holders that join the pending fetch later. Above the size limit the fetch starts again: its
    /// reply is then newer than all these messages.
    pub(super) fn buffer_message(&mut self, page: PageId, message: Invalidation, contents: Option<SlotStates<T>>) {
        let Some(fetching) = self.fetching.get_mut(&page) else { return };
        fetching.buffered_bytes += message_bytes(contents.as_ref());
        fetching.buffered.push((message, contents));
        if fetching.buffered_bytes > MESSAGES_LIMIT_BYTES {
            (fetching.buffered, fetching.buffered_bytes) = (Vec::new(), 0);
            self.fetch_above(page);
        }
    }

    /// Answers all waiting holders.
    pub(super) fn handle_arrived(&mut self, page: PageId, reply: FetchReply<T>, now: Ms) {
        let Some(mut fetching) = self.fetching.remove(&page) else { return };
        self.helping.set(page, None);
        let asked = if let FetchStage::Above { have, .. } = fetching.stage { have } else { None };
        let version = if let FetchReply::Page(fetched) = &reply { Some(fetched.version) } else { asked };
        // An update that was sent since is in the copy as well; an invalidation makes a hole in it.
        let hole = |(message, contents): &(Invalidation, Option<SlotStates<T>>)| {
            contents.is_none() && Some(message.version) > version
        };
        let has_holes = fetching.buffered.iter().any(hole);
        let (mut left, mut is_answered) = (Vec::new(), false);
        for waiter in std::mem::take(&mut fetching.waiters) {
            let reply = match &reply {
                FetchReply::Page(fetched) if waiter.have == Some(fetched.version) => FetchReply::Current,
                FetchReply::Page(fetched) => FetchReply::Page(fetched.clone()),
                // The answer is about the version of the first waiting holder.
                FetchReply::Current | FetchReply::Stale if waiter.have.is_none() => {
                    left.push(waiter);
                    continue;
                }
                FetchReply::Current if waiter.have == asked || planted(Bug::StaleCalledCurrent) => FetchReply::Current,
                FetchReply::Stale if waiter.have != asked => {
                    left.push(waiter);
                    continue;
                }
                FetchReply::Current | FetchReply::Stale => FetchReply::Stale,
                FetchReply::Damaged(why) => FetchReply::Damaged(why.clone()),
            };
            let FetchWaiter { holder, fetch, have } = waiter;
            if is_answered && planted(Bug::OnlyFirstAnswered) {
                continue;
            }
            is_answered = true;
            let is_unconfirmed = match &reply {
                FetchReply::Page(fetched) => fetched.version == Version::ZERO,
                FetchReply::Current => have == Some(Version::ZERO),
                FetchReply::Stale | FetchReply::Damaged(_) => false,
            };
            self.directory.set_unconfirmed(page, holder, is_unconfirmed);
            if !matches!(reply, FetchReply::Stale | FetchReply::Damaged(_)) && !has_holes {
                self.complete.entry(page).or_default().insert(holder);
            }
            self.out.push(Output::Down(holder, Down::Fetched { page, fetch, reply }));
        }
        if left.is_empty() {
            // The waiting holders may be gone.
            self.unlist(page);
        } else {
            self.fetching.insert(page, PageFetch { waiters: left, stage: FetchStage::NOT_ASKED, ..fetching });
            self.dispatch(page, now);
        }
    }
}
