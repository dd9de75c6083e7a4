//! Fetches that are out: who waits for a page, and who was asked for it (rule R1).

use model::PageId;

use super::{Helpers, Output, Redirector};
use crate::ident::{HolderId, Version};
use crate::lease::Ms;
use crate::memory_size::MemorySize;
use crate::page_cache::{FetchId, FetchReply, Invalidation, MESSAGES_LIMIT_BYTES, SlotStates, message_bytes};
use crate::plant::{Bug, planted};
use crate::tree::{Down, Up};

/// How long a helper may take, in milliseconds: about what the fetch would take that it saves.
const HELP_MS: u64 = 50;

/// Somebody who waits for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FetchWaiter {
    pub(super) holder: HolderId,
    pub(super) fetch: FetchId,
    pub(super) have: Option<Version>,
}

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FetchStage {
    /// One of those below.
    Helping { helper: HolderId, help: FetchId },
    /// The node above, and whether this version is current.
    Above { fetch: FetchId, have: Option<Version> },
}

impl FetchStage {
    /// Nobody yet.
    pub(super) const NOT_ASKED: Self = Self::Above { fetch: FetchId(0), have: None };
}

/// A page that is waited for.
#[derive(Clone, Debug)]
pub(super) struct PageFetch<T> {
    pub(super) stage: FetchStage,
    pub(super) waiters: Vec<FetchWaiter>,
    /// What those who waited were told since it began.
    pub(super) buffered: Vec<(Invalidation, Option<SlotStates<T>>)>,
    /// About how many bytes that is.
    pub(super) buffered_bytes: usize,
}

impl<T> PageFetch<T> {
    fn new(waiters: Vec<FetchWaiter>) -> Self {
        Self { stage: FetchStage::NOT_ASKED, waiters, buffered: Vec::new(), buffered_bytes: 0 }
    }
}

impl<T: Clone + MemorySize> Redirector<T> {
    /// A holder wants a page: it is listed, before anybody is asked (D1).
    pub(super) fn fetch(&mut self, page: PageId, waiter: FetchWaiter, now: Ms) {
        if waiter.have.is_none() || !planted(Bug::UnlistedRevalidation) {
            self.directory.list(page, waiter.holder, waiter.fetch);
        }
        // What it had it does not have now.
        self.mark_incomplete(page, waiter.holder);
        let Some(fetching) = self.fetching.get_mut(&page) else {
            self.fetching.insert(page, PageFetch::new(vec![waiter]));
            return self.dispatch(page, now);
        };
        fetching.waiters.retain(|one| one.holder != waiter.holder);
        fetching.waiters.push(waiter);
        // The page that is under way may be older than what the others have heard meanwhile.
        for (message, contents) in fetching.buffered.clone().into_iter().filter(|_| !planted(Bug::LateJoiner)) {
            self.directory.mark_sent(waiter.holder, page, message.version, now);
            self.send_down(waiter.holder, Down::Invalidate { message, contents });
        }
    }

    /// Asks somebody for a page: a helper, if there is one, else the node above.
    pub(super) fn dispatch(&mut self, page: PageId, now: Ms) {
        let Some(fetching) = self.fetching.get(&page) else { return };
        if fetching.waiters.is_empty() {
            self.fetching.remove(&page);
            self.helping.set(page, None);
            return self.unlist(page);
        }
        let is_bare = fetching.waiters.iter().any(|waiter| waiter.have.is_none());
        let helper = if is_bare { self.helper(page) } else { None };
        let Some(helper) = helper else { return self.fetch_above(page) };
        assert!(
            fetching.waiters.iter().all(|waiter| waiter.holder != helper),
            "R1: {helper:?} waits for {page:?}, and is asked to help with it"
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

    /// Who of those with a complete copy has helped least.
    fn helper(&self, page: PageId) -> Option<HolderId> {
        if self.helpers == Helpers::None {
            return None;
        }
        let times = |holder: &HolderId| self.help_counts.get(holder).copied().unwrap_or_default();
        self.complete.get(&page)?.iter().copied().min_by_key(|holder| (times(holder), *holder))
    }

    /// Asks the node above.
    pub(super) fn fetch_above(&mut self, page: PageId) {
        let Some(fetching) = self.fetching.get_mut(&page) else { return };
        self.helping.set(page, None);
        self.last_fetch += 1;
        let fetch = FetchId(self.last_fetch);
        // Whoever has nothing needs the page; if all have something, they may all have what is current.
        let bare = fetching.waiters.iter().any(|waiter| waiter.have.is_none());
        let have = fetching.waiters.first().and_then(|waiter| waiter.have).filter(|_| !bare);
        fetching.stage = FetchStage::Above { fetch, have };
        self.listed.insert(page, fetch);
        self.send_up(Up::Fetch { page, fetch, have });
    }

    /// Those below were told of a change: whoever joins a fetch that is out has to hear it too. If that becomes too much to keep,
    /// the fetch is begun anew: what it brings then is newer than all that was told.
    pub(super) fn buffer_message(&mut self, page: PageId, message: Invalidation, contents: Option<SlotStates<T>>) {
        let Some(fetching) = self.fetching.get_mut(&page) else { return };
        fetching.buffered_bytes += message_bytes(contents.as_ref());
        fetching.buffered.push((message, contents));
        if fetching.buffered_bytes > MESSAGES_LIMIT_BYTES {
            (fetching.buffered, fetching.buffered_bytes) = (Vec::new(), 0);
            self.fetch_above(page);
        }
    }

    /// An answer for all who wait.
    pub(super) fn handle_arrived(&mut self, page: PageId, reply: FetchReply<T>, now: Ms) {
        let Some(mut fetching) = self.fetching.remove(&page) else { return };
        self.helping.set(page, None);
        let asked = if let FetchStage::Above { have, .. } = fetching.stage { have } else { None };
        let version = if let FetchReply::Page(fetched) = &reply { Some(fetched.version) } else { asked };
        // An update that was told since is in it as well; an invalidation makes a hole in it.
        let hole = |(message, contents): &(Invalidation, Option<SlotStates<T>>)| {
            contents.is_none() && Some(message.version) > version
        };
        let has_holes = fetching.buffered.iter().any(hole);
        let mut left = Vec::new();
        for waiter in std::mem::take(&mut fetching.waiters) {
            let reply = match &reply {
                FetchReply::Page(fetched) if waiter.have == Some(fetched.version) => FetchReply::Current,
                FetchReply::Page(fetched) => FetchReply::Page(fetched.clone()),
                // Said of the version that the first of them had.
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
            };
            let FetchWaiter { holder, fetch, .. } = waiter;
            if !matches!(reply, FetchReply::Stale) && !has_holes {
                self.complete.entry(page).or_default().insert(holder);
            }
            self.out.push(Output::Down(holder, Down::Fetched { page, fetch, reply }));
        }
        if left.is_empty() {
            // Whoever wanted it may be gone meanwhile.
            self.unlist(page);
        } else {
            self.fetching.insert(page, PageFetch { waiters: left, stage: FetchStage::NOT_ASKED, ..fetching });
            self.dispatch(page, now);
        }
    }
}
