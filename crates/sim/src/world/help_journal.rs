//! Which holders a redirector asks for copies: none that has given a forged one (R1), and none that was late a moment ago (R3).

use std::collections::{BTreeMap, BTreeSet};

use model::{NodeId, PageId};
use protocol::ident::HolderId;
use protocol::page_cache::FetchId;

/// How long a holder that was late is not asked at least, in milliseconds.
const REST_MS: u64 = 500;

/// The requests for copies of a redirector, and what has become of them.
#[derive(Clone, Debug, Default)]
pub(super) struct HelpJournal {
    pending: BTreeMap<PageId, (HolderId, FetchId)>,
    /// When each holder was last late, by the clock of the redirector.
    late: BTreeMap<(NodeId, HolderId), u64>,
    forgers: BTreeSet<(NodeId, HolderId)>,
}

impl HelpJournal {
    /// A holder is asked for a copy.
    ///
    /// # Errors
    /// If it must not be asked.
    pub(super) fn note_asked(&mut self, page: PageId, holder: HolderId, help: FetchId, now: u64) -> Result<(), String> {
        let key = (page.node, holder);
        self.pending.insert(page, (holder, help));
        if self.forgers.contains(&key) {
            return Err(format!("R1: {holder:?} is asked for {page:?}, and has given a forged copy before"));
        }
        match self.late.get(&key) {
            Some(late) if now < late + REST_MS => {
                Err(format!("R3: {holder:?} is asked for {page:?} at {now} ms, and was late at {late} ms"))
            }
            _ => Ok(()),
        }
    }

    /// The server above is asked for a page. The holder that was asked before has not answered.
    pub(super) fn note_asked_above(&mut self, page: PageId, now: u64) {
        if let Some((holder, _)) = self.pending.remove(&page) {
            self.late.insert((page.node, holder), now);
        }
    }

    /// A holder answers a request, before the redirector hears of it.
    pub(super) fn note_answer(&mut self, page: PageId, holder: HolderId, help: FetchId) {
        if self.pending.get(&page) == Some(&(holder, help)) {
            self.pending.remove(&page);
        }
    }

    /// The answer of a holder was given on.
    pub(super) fn note_helped(&mut self, node: NodeId, holder: HolderId) {
        self.late.remove(&(node, holder));
    }

    /// The answer of a holder was forged.
    pub(super) fn note_forged(&mut self, node: NodeId, holder: HolderId) {
        self.forgers.insert((node, holder));
    }
}
