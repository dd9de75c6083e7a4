//! What the machine of a logical node looks up in one call: the driver has read it before, because a machine does no I/O.

use std::collections::BTreeSet;

use model::{Oid, PageId};
use protocol::ident::Version;
use protocol::validate::PageVersions;
use smallvec::SmallVec;

use super::admission::DeferredTransaction;
use crate::brick::recent_pages::RecentPages;

/// What was read of the store for a call of the machine.
#[derive(Default)]
pub(super) struct LookedUp {
    /// Versions of pages, in the order of pages.
    pub(super) versions: SmallVec<[(PageId, Version); 8]>,
    /// Guards of keys that are bound to nothing.
    pub(super) unbound: BTreeSet<Oid>,
    /// Why the version of a page is not known that the transaction has read: its head is damaged.
    pub(super) damage: Option<DeferredTransaction>,
}

impl LookedUp {
    /// The same with the pages that changed lately.
    pub(super) fn with<'a>(&'a self, recent: &'a RecentPages) -> KnownVersions<'a> {
        KnownVersions { recent, looked_up: self }
    }
}

/// The versions of pages that the machine may look up in one call.
pub(super) struct KnownVersions<'a> {
    recent: &'a RecentPages,
    looked_up: &'a LookedUp,
}

impl PageVersions for KnownVersions<'_> {
    fn version(&self, page: PageId) -> Version {
        let looked_up = || {
            let versions = &self.looked_up.versions;
            let at = versions.binary_search_by_key(&page, |(page, _)| *page).ok()?;
            versions.get(at).map(|(_, version)| *version)
        };
        let known = self.recent.emitted_version(page).or_else(looked_up);
        // A page that changes is in `recent` until its change was output (rule 3 there); other pages were read before the call.
        known.unwrap_or_else(|| panic!("V1: the version of {page:?} was not read before the machine was called"))
    }

    fn is_unbound(&self, guard: Oid) -> bool {
        self.looked_up.unbound.contains(&guard)
    }
}
