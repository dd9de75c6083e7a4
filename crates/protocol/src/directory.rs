//! Which holders have copies of which pages, and which invalidations they have not acknowledged.
//!
//! Each brick and each cache node has a [`Directory`] of the nodes directly below it. It is the directory of BuddyCache
//! (section 3.1) with leases:
//!
//! - **D1.** A holder is listed when its fetch, or a help request on its behalf, is *forwarded*, before the page is
//!   read: no change falls between reading and listing. Evictions are reported lazily and name the fetch that they end:
//!   one that crosses a later fetch of the page has no effect.
//! - **D2.** An invalidation stays pending until the holder acknowledges that its copy has at least this version. A
//!   cache node acknowledges upward when all affected holders below it have acknowledged.
//! - **D4.** A holder whose lease has ended is expired: no node waits for it, and it uses no copy until it has a new
//!   session. A lease never exceeds the rest of the node's own lease. A holder that leaves an invalidation unanswered
//!   for longer than [`ACK_TIMEOUT_MS`] gets no other lease: otherwise it could block every writer that waits for its
//!   acknowledgement (N1).
//!
//! Pages that do not exist can be fetched as well, and are listed like others, because a holder must hear when they are created.
//! Pages that a holder keeps and that do not exist are counted, and those that it waits for, which may not ([`Directory::unconfirmed_pages`]), so that
//! peer servers and redirectors can disconnect one with many.
//!
//! [`Directory::settled_version`] returns the version of a page up to which every holder has acknowledged. The validator
//! retires entries by it (V3), it releases non-transactional writes (N1), and it determines acknowledgements upward.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use model::PageId;

use crate::ident::{HolderId, Version};
use crate::lease::{Ms, holder_expiry};
use crate::page_cache::FetchId;
use crate::page_map::{PageMap, remove_page};
use crate::plant::{Bug, planted};
use crate::schedule::Schedule;
use crate::small_map::SmallMap;
use crate::upstream::LEASE_MS;

/// How long an invalidation may stay unanswered before a client gets no other lease, in milliseconds. A cache node has
/// additional time for each level below it, so that silent holders there expire first and do not affect it (R3).
pub const ACK_TIMEOUT_MS: u64 = 10_000;
const ACK_TIMEOUT_PER_LEVEL_MS: u64 = 2 * ACK_TIMEOUT_MS + LEASE_MS;

/// The maximum number of levels below a node. A larger reported number adds no waiting time.
const MAX_HEIGHT: u8 = 4;

/// A copy that a holder may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedCopy {
    /// The fetch that returned it, or will return it.
    fetch: FetchId,
    /// The newest version that was sent.
    sent: Version,
    /// The newest version that it has acknowledged. If this is less than `sent`, an invalidation is pending.
    acknowledged: Version,
    /// Whether the page does not exist (no object was ever stored there), or may not: the copy is under way.
    is_unconfirmed: bool,
}

impl ListedCopy {
    fn is_pending(&self) -> bool {
        self.acknowledged < self.sent
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holder {
    pages: BTreeSet<PageId>,
    /// Pages with pending invalidations, and since when.
    pending: BTreeMap<PageId, Ms>,
    /// When the holder expires.
    expires: Ms,
    /// The number of levels below it.
    height: u8,
    /// How many of its pages are unconfirmed.
    unconfirmed: usize,
}

/// The holders directly below one node, and their copies.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Most pages have one holder.
    pages: PageMap<SmallMap<HolderId, ListedCopy, 1>>,
    holders: BTreeMap<HolderId, Holder>,
    /// When holders expire.
    expiring: Schedule<HolderId>,
    /// Acknowledgements that are owed upward, and the pages for which they may have changed.
    upward: BTreeMap<PageId, Upward>,
    touched: BTreeSet<PageId>,
}

/// The acknowledged and the newest version of a page, towards the node above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Upward {
    acknowledged: Version,
    newest: Version,
}

impl Directory {
    // ------------------------------------------------------------------------------------------ holders

    /// Grants a holder a new or renewed lease of `wanted_ms`, but at most `own_ms`, the rest of this node's own lease.
    /// Returns its length in milliseconds; 0 means that no lease is granted.
    pub fn grant(&mut self, holder: HolderId, height: u8, now: Ms, wanted_ms: u64, own_ms: u64) -> u64 {
        let lease_ms = if planted(Bug::GrantBeyondOwn) { wanted_ms } else { wanted_ms.min(own_ms) };
        if lease_ms == 0 || self.is_silent(holder, now) {
            return 0;
        }
        assert!(
            lease_ms <= own_ms || planted(Bug::GrantBeyondOwn),
            "D4: {holder:?} is granted {lease_ms} ms, but this node has only {own_ms} ms"
        );
        let entry = self.holders.entry(holder).or_default();
        entry.height = entry.height.max(height.min(MAX_HEIGHT));
        entry.expires = entry.expires.max(holder_expiry(now, lease_ms));
        self.expiring.set(holder, Some(entry.expires));
        lease_ms
    }

    /// Whether a holder has left an invalidation unanswered for too long.
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

    /// Removes the holders whose leases have ended and returns them with their pages. A holder that opens a session again has another
    /// number.
    pub fn expire(&mut self, now: Ms) -> Vec<(HolderId, Vec<PageId>)> {
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

    /// When [`Directory::expire`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Ms> {
        self.expiring.first()
    }

    /// Removes a holder that has reported that it holds nothing.
    pub fn remove(&mut self, holder: HolderId) {
        self.expiring.set(holder, None);
        for page in self.holders.remove(&holder).unwrap_or_default().pages {
            self.unlist(page, holder);
        }
    }

    // ------------------------------------------------------------------------------------------ pages

    /// Lists a holder for a page, before the page is read for it (D1). Returns whether the holder is known; an unknown
    /// one must open a session first.
    pub fn list(&mut self, page: PageId, holder: HolderId, fetch: FetchId) -> bool {
        let Some(entry) = self.holders.get_mut(&holder) else { return false };
        entry.pages.insert(page);
        let nothing = ListedCopy { fetch, sent: Version::ZERO, acknowledged: Version::ZERO, is_unconfirmed: false };
        let holding = self.pages.entry(page).or_default().get_or_insert(holder, nothing);
        holding.fetch = holding.fetch.max(fetch);
        true
    }

    /// Records whether the page of a listed copy exists; one that is being fetched may not. A holder may list pages without end that do not: no
    /// data bounds their number.
    pub fn set_unconfirmed(&mut self, page: PageId, holder: HolderId, is_unconfirmed: bool) {
        let holding = self.pages.get_mut(&page).and_then(|holders| holders.get_mut(&holder));
        let (Some(holding), Some(entry)) = (holding, self.holders.get_mut(&holder)) else { return };
        match (std::mem::replace(&mut holding.is_unconfirmed, is_unconfirmed), is_unconfirmed) {
            (false, true) => entry.unconfirmed += 1,
            (true, false) => entry.unconfirmed -= 1,
            _ => {}
        }
    }

    /// How many pages these holders wait for, or have copies of although they do not exist.
    #[must_use]
    pub fn unconfirmed_pages(&self, holders: RangeInclusive<HolderId>) -> usize {
        self.holders.range(holders).map(|(_, entry)| entry.unconfirmed).sum()
    }

    /// Records that a holder has evicted the copy that this fetch returned.
    pub fn evict(&mut self, page: PageId, holder: HolderId, fetch: FetchId) {
        let holding = self.pages.get(&page).and_then(|holders| holders.get(&holder));
        if holding.is_some_and(|holding| holding.fetch <= fetch || planted(Bug::EvictionEndsLaterFetch)) {
            self.set_unconfirmed(page, holder, false);
            if let Some(entry) = self.holders.get_mut(&holder) {
                entry.pages.remove(&page);
                entry.pending.remove(&page);
            }
            self.unlist(page, holder);
        }
    }

    /// Records that the acknowledgement upward of a page may have changed.
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
                remove_page(&mut self.pages, page);
            }
        }
    }

    /// Holders that may have a copy of a page.
    pub fn holders(&self, page: PageId) -> impl Iterator<Item = HolderId> {
        self.pages.get(&page).into_iter().flat_map(|holders| holders.keys().copied())
    }

    // ------------------------------------------------------------------------------------------ changes

    /// Records a change of a page. Returns the holders to notify; the invalidation is pending until each acknowledges
    /// this version.
    pub fn mark_changed(&mut self, page: PageId, version: Version, now: Ms) -> Vec<HolderId> {
        let holders: Vec<HolderId> = self.holders(page).collect();
        holders.iter().for_each(|holder| self.mark_sent(*holder, page, version, now));
        holders
    }

    /// Whether one of these holders has at least so many levels below it.
    pub fn has_levels_below(&self, holders: &[HolderId], levels: u8) -> bool {
        holders.iter().any(|holder| self.holders.get(holder).is_some_and(|entry| entry.height >= levels))
    }

    /// Records that one holder of a page is notified of a change: it has joined a fetch of the page.
    pub fn mark_sent(&mut self, holder: HolderId, page: PageId, version: Version, now: Ms) {
        self.set_unconfirmed(page, holder, false);
        let holding = self.pages.get_mut(&page).and_then(|holders| holders.get_mut(&holder));
        let (Some(holding), Some(entry)) = (holding, self.holders.get_mut(&holder)) else { return };
        assert!(entry.pages.contains(&page), "D1: {holder:?} is listed for {page:?} on one side only");
        holding.sent = holding.sent.max(version);
        if holding.is_pending() {
            entry.pending.entry(page).or_insert(now);
        }
    }

    /// Like [`Directory::mark_changed`], for a cache node: it acknowledges upward when all holders below have
    /// acknowledged.
    pub fn mark_passed_on(&mut self, page: PageId, version: Version, now: Ms) -> Vec<HolderId> {
        let upward = self.upward.entry(page).or_default();
        upward.newest = version.max(upward.newest);
        self.mark_touched(page);
        self.mark_changed(page, version, now)
    }

    /// Records that a holder has acknowledged that its copy has at least this version. An acknowledgement from an
    /// expired holder has no effect.
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

    /// Removes all holders and pages: this node's own session is over. Returns the holders.
    pub fn clear(&mut self) -> Vec<HolderId> {
        let holders = std::mem::take(&mut self.holders).into_keys().collect();
        *self = Self::default();
        holders
    }

    /// The maximum number of levels below this node.
    #[must_use]
    pub fn height(&self) -> u8 {
        self.holders.values().map(|holder| holder.height.saturating_add(1)).max().unwrap_or(1)
    }

    /// All holders.
    pub fn all_holders(&self) -> impl Iterator<Item = HolderId> {
        self.holders.keys().copied()
    }

    /// The version of a page up to which every holder has acknowledged; `None` if no invalidation is pending.
    #[must_use]
    pub fn settled_version(&self, page: PageId) -> Option<Version> {
        let holders = self.pages.get(&page)?;
        holders.values().filter(|holding| holding.is_pending()).map(|holding| holding.acknowledged).min()
    }

    /// Whether every holder has acknowledged this version of a page, or has expired.
    #[must_use]
    pub fn is_settled(&self, page: PageId, version: Version) -> bool {
        self.settled_version(page).is_none_or(|settled| settled >= version)
    }

    /// The acknowledgements to send upward: each page with the version up to which all holders have acknowledged.
    pub fn acknowledge_upward(&mut self) -> Vec<(PageId, Version)> {
        let mut ripe = Vec::new();
        for page in std::mem::take(&mut self.touched) {
            let Some(Upward { acknowledged, newest }) = self.upward.get(&page).copied() else { continue };
            let settled = self.settled_version(page).map_or(newest, |settled| settled.min(newest));
            let settled = if planted(Bug::AcknowledgedAtOnce) { newest } else { settled };
            assert!(
                acknowledged < newest,
                "D2: {page:?} is acknowledged at {acknowledged:?}, and at {newest:?} awaited"
            );
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

    /// Checks the invariants.
    ///
    /// # Errors
    /// The violated rule, and where.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (page, holders) in &self.pages {
            for holder in holders.keys() {
                if !self.holders.get(holder).is_some_and(|entry| entry.pages.contains(page)) {
                    return Err(format!("D4: {holder:?} is listed for {page:?} but is unknown"));
                }
            }
        }
        for (page, Upward { acknowledged, newest }) in &self.upward {
            let settled = self.settled_version(*page).map_or(*newest, |settled| settled.min(*newest));
            if settled > *acknowledged && !self.touched.contains(page) {
                return Err(format!(
                    "D2: {page:?} is settled up to {settled:?}, but no acknowledgement is sent upward"
                ));
            }
        }
        for (holder, entry) in &self.holders {
            let copy = |page: &PageId| self.pages.get(page).and_then(|holders| holders.get(holder));
            let pending = |page: &PageId| copy(page).is_some_and(ListedCopy::is_pending);
            if let Some(page) = entry.pending.keys().find(|page| !pending(page)) {
                return Err(format!("D2: {holder:?} has acknowledged {page:?} but is listed as pending"));
            }
            let is_unconfirmed = |page: &&PageId| copy(page).is_some_and(|copy| copy.is_unconfirmed);
            let unconfirmed = entry.pages.iter().filter(is_unconfirmed).count();
            if unconfirmed != entry.unconfirmed {
                return Err(format!(
                    "D1: {holder:?} has {unconfirmed} pages that may not exist, not {}",
                    entry.unconfirmed
                ));
            }
            if let Some(page) = entry.pages.iter().find(|page| copy(page).is_none()) {
                return Err(format!("D1: {holder:?} holds {page:?} but is not listed"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
