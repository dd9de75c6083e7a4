//! What a transaction relies on that takes the rows of a query for true: guards, and the objects that were followed.

use std::collections::BTreeSet;

use model::{Error, ErrorKind, Oid, Result};
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;
use wire::cluster::MAX_MESSAGE_READS;

use crate::peer::plant::{Bug, planted};

/// Objects that the answer of one query may rest on.
const MAX_READS: usize = MAX_MESSAGE_READS / 2;

/// What a transaction relies on.
#[derive(Default)]
pub(super) struct ReadSet {
    is_wanted: bool,
    oids: BTreeSet<Oid>,
    /// What the client has not been sent.
    unsent: Vec<Read>,
    /// A time at or after all of it.
    at: HlcTimestamp,
}

impl ReadSet {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self { is_wanted, ..Self::default() }
    }

    /// Whether the client wants to know it.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Adds reads, as they were when they were first read: a guard that comes again with a later page keeps its first version, since the
    /// earlier page rests on that.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`].
    pub(super) fn add(&mut self, reads: impl IntoIterator<Item = Read>, at: HlcTimestamp) -> Result<()> {
        let is_first_page = self.oids.is_empty();
        self.at = self.at.max(at);
        if self.is_wanted && (is_first_page || !planted(Bug::QueryGuardDropped)) {
            let oids = &mut self.oids;
            let is_new = |read: &Read| oids.insert(read.oid) || planted(Bug::QueryGuardOfLastPage);
            let new: Vec<Read> = reads.into_iter().filter(is_new).collect();
            if planted(Bug::QueryGuardOfLastPage) {
                self.unsent.retain(|read| new.iter().all(|later| later.oid != read.oid));
            }
            self.unsent.extend(new);
        }
        if self.oids.len() <= MAX_READS {
            return Ok(());
        }
        let what = format!(
            "the answer rests on more than {MAX_READS} objects that were followed, too many for one transaction: ask for \
             less, or outside of a transaction"
        );
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Takes what the client has not been sent, and a time at or after all of it.
    pub(super) fn take_unsent(&mut self) -> (Vec<Read>, HlcTimestamp) {
        (std::mem::take(&mut self.unsent), self.at)
    }
}
