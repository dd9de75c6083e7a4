//! Who holds copies of which pages, and what they have still to hear.
//!
//! A brick has a [`Directory`] of the nodes directly below it, and each of those of the nodes below it. It is the directory
//! of BuddyCache (section 3.1), made sound and given leases:
//!
//! - **D1.** A holder is listed when its fetch, or a request for help on its behalf, is *sent on*, before the page is read:
//!   no change falls between the reading and the listing. Evictions are told lazily, and name the fetch that they end: one
//!   that crosses a later fetch of the page ends nothing.
//! - **D2.** An invalidation stays pending until the holder has acknowledged it, by saying that its copy's version is at
//!   least this one. A node in the middle acknowledges upward when all below that it concerns have.
//! - **D4.** A holder whose lease has run out is expired: nobody waits for it, and it uses nothing until it has come back.
//!   A lease is never longer than what is left of the node's own. One who has left an invalidation unanswered for longer
//!   than [`ACK_TIMEOUT_MS`] gets no other lease: else it could keep everybody waiting who waits for its acknowledgement (N1).
//!
//! What it says to others: [`Directory::settled`], up to which version of a page nobody has still to hear of a change. The
//! validator retires entries by it (V3), non-transactional writes are released by it (N1), and acknowledgements go upward
//! by it.

use std::collections::{BTreeMap, BTreeSet};

use model::PageId;

use crate::ident::{HolderId, Version};
use crate::lease::{Ms, holder_expiry};
use crate::page_cache::FetchId;
use crate::plant::{Bug, planted};
use crate::schedule::Schedule;
use crate::upstream::LEASE_MS;

/// How long an invalidation may stay unanswered before a client that has to answer it gets no other lease, in milliseconds. A
/// node in the middle has so much more time for each level below it that those there are expired before: it does not
/// suffer for them (R3).
pub const ACK_TIMEOUT_MS: u64 = 10_000;
const ACK_TIMEOUT_PER_LEVEL_MS: u64 = 2 * ACK_TIMEOUT_MS + LEASE_MS;

/// How many levels may be below a node, at most: whoever says that there are more is not waited for longer.
const MAX_HEIGHT: u8 = 4;

/// The copy of a page that a holder may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedCopy {
    /// The fetch that brought, or will bring, it.
    fetch: FetchId,
    /// The newest version that it was told of.
    sent: Version,
    /// The newest version that it has acknowledged. Between the two it has still to hear something.
    acknowledged: Version,
}

impl ListedCopy {
    fn is_pending(&self) -> bool {
        self.acknowledged < self.sent
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holder {
    pages: BTreeSet<PageId>,
    /// Pages of which it has still to hear something, and since when.
    pending: BTreeMap<PageId, Ms>,
    /// When nobody waits for it any more.
    expires: Ms,
    /// How many levels are below it.
    height: u8,
}

/// Who holds what, directly below one node.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    pages: BTreeMap<PageId, BTreeMap<HolderId, ListedCopy>>,
    holders: BTreeMap<HolderId, Holder>,
    /// When holders expire.
    expiring: Schedule<HolderId>,
    /// What is to be acknowledged upward, and the pages of which that may have changed.
    upward: BTreeMap<PageId, Upward>,
    touched: BTreeSet<PageId>,
}

/// How far a page's changes were acknowledged upward, and how far they go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Upward {
    acknowledged: Version,
    newest: Version,
}

impl Directory {
    // ------------------------------------------------------------------------------------------ holders

    /// Grants a holder a lease, new or renewed: `wanted_ms`, but no more than `own_ms`, what is left of this node's own.
    /// Returns how long the lease is: 0 if there is none to be had.
    pub fn grant(&mut self, holder: HolderId, height: u8, now: Ms, wanted_ms: u64, own_ms: u64) -> u64 {
        let lease_ms = if planted(Bug::GrantBeyondOwn) { wanted_ms } else { wanted_ms.min(own_ms) };
        if lease_ms == 0 || self.is_silent(holder, now) {
            return 0;
        }
        assert!(
            lease_ms <= own_ms || planted(Bug::GrantBeyondOwn),
            "D4: {holder:?} is granted {lease_ms} ms, and this node has {own_ms} ms"
        );
        let entry = self.holders.entry(holder).or_default();
        entry.height = entry.height.max(height.min(MAX_HEIGHT));
        entry.expires = entry.expires.max(holder_expiry(now, lease_ms));
        self.expiring.set(holder, Some(entry.expires));
        lease_ms
    }

    /// Whether a holder has left something unanswered for too long.
    fn is_silent(&self, holder: HolderId, now: Ms) -> bool {
        let known = self.holders.get(&holder).filter(|_| !planted(Bug::SilentRenewed));
        let Some(entry) = known else { return false };
        let patience_ms = ACK_TIMEOUT_MS + u64::from(entry.height) * ACK_TIMEOUT_PER_LEVEL_MS;
        entry.pending.values().min().is_some_and(|since| since + patience_ms <= now)
    }

    /// Whether a holder is known and not expired.
    #[must_use]
    pub fn knows(&self, holder: HolderId) -> bool {
        self.holders.contains_key(&holder)
    }

    /// Expires the holders whose leases have run out. Returns them: they come back under another number.
    pub fn expire(&mut self, now: Ms) -> Vec<HolderId> {
        self.expire_with_pages(now).into_iter().map(|(holder, _)| holder).collect()
    }

    /// The same, with the pages that each of them had.
    pub fn expire_with_pages(&mut self, now: Ms) -> Vec<(HolderId, Vec<PageId>)> {
        let mut expired = self.expiring.due(now);
        if planted(Bug::HolderNeverExpires) {
            std::mem::take(&mut expired).into_iter().for_each(|holder| self.expiring.set(holder, None));
        }
        let expired = expired.into_iter();
        let expired: Vec<(HolderId, Vec<PageId>)> =
            expired.map(|holder| (holder, self.pages(holder).collect())).collect();
        for (holder, _) in &expired {
            assert!(self.knows(*holder), "D4: the lease of {holder:?} outlives its entry");
            self.remove(*holder);
        }
        expired
    }

    /// The pages that a holder is listed for.
    pub fn pages(&self, holder: HolderId) -> impl Iterator<Item = PageId> {
        self.holders.get(&holder).into_iter().flat_map(|entry| entry.pages.iter().copied())
    }

    /// When [`Directory::expire`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        self.expiring.first()
    }

    /// Removes a holder that has said itself that it holds nothing any more.
    pub fn remove(&mut self, holder: HolderId) {
        self.expiring.set(holder, None);
        for page in self.holders.remove(&holder).unwrap_or_default().pages {
            self.unlist(page, holder);
        }
    }

    // ------------------------------------------------------------------------------------------ pages

    /// Lists a holder for a page, before that is read for it (D1). Says whether the holder is known; one that is not must
    /// come back first.
    pub fn list(&mut self, page: PageId, holder: HolderId, fetch: FetchId) -> bool {
        let Some(entry) = self.holders.get_mut(&holder) else { return false };
        entry.pages.insert(page);
        let nothing = ListedCopy { fetch, sent: Version::ZERO, acknowledged: Version::ZERO };
        let holding = self.pages.entry(page).or_default().entry(holder).or_insert(nothing);
        holding.fetch = holding.fetch.max(fetch);
        true
    }

    /// A holder has evicted the copy that this fetch brought.
    pub fn evict(&mut self, page: PageId, holder: HolderId, fetch: FetchId) {
        let holding = self.pages.get(&page).and_then(|holders| holders.get(&holder));
        if holding.is_some_and(|holding| holding.fetch <= fetch || planted(Bug::EvictionEndsLaterFetch)) {
            if let Some(entry) = self.holders.get_mut(&holder) {
                entry.pages.remove(&page);
                entry.pending.remove(&page);
            }
            self.unlist(page, holder);
        }
    }

    /// What is to be said upward of a page may have changed.
    fn mark_touched(&mut self, page: PageId) {
        if self.upward.contains_key(&page) {
            self.touched.insert(page);
        }
    }

    fn unlist(&mut self, page: PageId, holder: HolderId) {
        self.mark_touched(page);
        if let Some(holders) = self.pages.get_mut(&page) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.pages.remove(&page);
            }
        }
    }

    /// Who may have a copy of a page.
    pub fn holders(&self, page: PageId) -> impl Iterator<Item = HolderId> {
        self.pages.get(&page).into_iter().flat_map(|holders| holders.keys().copied())
    }

    // ------------------------------------------------------------------------------------------ changes

    /// A page has changed: these have to be told. Each of them is pending until it acknowledges this version.
    pub fn mark_changed(&mut self, page: PageId, version: Version, now: Ms) -> Vec<HolderId> {
        let holders: Vec<HolderId> = self.holders(page).collect();
        holders.iter().for_each(|holder| self.mark_sent(*holder, page, version, now));
        holders
    }

    /// A holder of a page is told of a change, alone: it has joined those who wait for the page.
    pub fn mark_sent(&mut self, holder: HolderId, page: PageId, version: Version, now: Ms) {
        let holding = self.pages.get_mut(&page).and_then(|holders| holders.get_mut(&holder));
        let (Some(holding), Some(entry)) = (holding, self.holders.get_mut(&holder)) else { return };
        assert!(entry.pages.contains(&page), "D1: {holder:?} is listed for {page:?} on one side only");
        holding.sent = holding.sent.max(version);
        if holding.is_pending() {
            entry.pending.entry(page).or_insert(now);
        }
    }

    /// The same at a node in the middle: when all below have heard of it, it is to be acknowledged upward.
    pub fn mark_passed_on(&mut self, page: PageId, version: Version, now: Ms) -> Vec<HolderId> {
        let upward = self.upward.entry(page).or_default();
        upward.newest = version.max(upward.newest);
        self.mark_touched(page);
        self.mark_changed(page, version, now)
    }

    /// A holder says that its copy's version is at least this one. From one that has expired it means nothing.
    pub fn acknowledge(&mut self, holder: HolderId, page: PageId, version: Version) {
        if let Some(holding) = self.pages.get_mut(&page).and_then(|holders| holders.get_mut(&holder)) {
            let version = if planted(Bug::OneAcknowledgesAll) { holding.sent } else { version };
            holding.acknowledged = holding.acknowledged.max(version);
            if !holding.is_pending()
                && let Some(entry) = self.holders.get_mut(&holder)
            {
                entry.pending.remove(&page);
            }
            self.mark_touched(page);
        }
    }

    /// Forgets everybody and everything: this node's own session above is over. Returns who was there.
    pub fn clear(&mut self) -> Vec<HolderId> {
        let holders = std::mem::take(&mut self.holders).into_keys().collect();
        *self = Self::default();
        holders
    }

    /// How many levels are below this node, at most.
    #[must_use]
    pub fn height(&self) -> u8 {
        self.holders.values().map(|holder| holder.height.saturating_add(1)).max().unwrap_or(1)
    }

    /// Everybody who is known.
    pub fn all_holders(&self) -> impl Iterator<Item = HolderId> {
        self.holders.keys().copied()
    }

    /// Up to which version of a page nobody has still to hear of a change; `None` if there is nobody who has.
    #[must_use]
    pub fn settled(&self, page: PageId) -> Option<Version> {
        let holders = self.pages.get(&page)?;
        holders.values().filter(|holding| holding.is_pending()).map(|holding| holding.acknowledged).min()
    }

    /// Whether everybody has heard of this version of a page, or has expired.
    #[must_use]
    pub fn is_settled(&self, page: PageId, version: Version) -> bool {
        self.settled(page).is_none_or(|settled| settled >= version)
    }

    /// What can be acknowledged upward now: each page with the version up to which all below have heard.
    pub fn acknowledge_upward(&mut self) -> Vec<(PageId, Version)> {
        let mut ripe = Vec::new();
        for page in std::mem::take(&mut self.touched) {
            let Some(Upward { acknowledged, newest }) = self.upward.get(&page).copied() else { continue };
            let settled = self.settled(page).map_or(newest, |settled| settled.min(newest));
            let settled = if planted(Bug::AcknowledgedAtOnce) { newest } else { settled };
            if settled > acknowledged {
                ripe.push((page, settled));
            }
            if settled.max(acknowledged) < newest {
                self.upward.insert(page, Upward { acknowledged: settled.max(acknowledged), newest });
            } else {
                self.upward.remove(&page);
            }
        }
        ripe
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The rule that does not, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (page, holders) in &self.pages {
            for holder in holders.keys() {
                if !self.holders.get(holder).is_some_and(|entry| entry.pages.contains(page)) {
                    return Err(format!("D4: {holder:?} is listed for {page:?} and not known"));
                }
            }
        }
        for (page, Upward { acknowledged, newest }) in &self.upward {
            let settled = self.settled(*page).map_or(*newest, |settled| settled.min(*newest));
            if settled > *acknowledged && !self.touched.contains(page) {
                return Err(format!("D2: {page:?} is settled up to {settled:?}, and nobody says so upward"));
            }
        }
        for (holder, entry) in &self.holders {
            let pending = |page: &PageId| self.pages.get(page).is_some_and(|all| all[holder].is_pending());
            if let Some(page) = entry.pending.keys().find(|page| !pending(page)) {
                return Err(format!("D2: {holder:?} has nothing to hear of {page:?}, and is waited for"));
            }
            let listed = |page: &PageId| self.pages.get(page).is_some_and(|holders| holders.contains_key(holder));
            if let Some(page) = entry.pages.iter().find(|page| !listed(page)) {
                return Err(format!("D1: {holder:?} holds {page:?} and is not listed"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
