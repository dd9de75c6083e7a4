//! The read set of a query: guards, and the objects of followed references.

use std::collections::BTreeSet;

use model::{Error, ErrorKind, Oid, Result};
use protocol::ident::HlcTimestamp;
use protocol::validate::Read;
use wire::cluster::MAX_MESSAGE_READS;

use crate::peer::plant::{Bug, planted};

/// Most objects in the read set of one query.
const MAX_READS: usize = MAX_MESSAGE_READS / 2;

/// The read set of a query.
#[derive(Default)]
pub(super) struct ReadSet {
    is_wanted: bool,
    oids: BTreeSet<Oid>,
    /// Reads that were not sent to the client yet.
    unsent: Vec<Read>,
    /// A time at or after all reads.
    at: HlcTimestamp,
}

impl ReadSet {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self { is_wanted, ..Self::default() }
    }

    /// Whether the client requested the read set.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Adds reads with the version of their first read: a guard that occurs again with a later page keeps its first version,
    /// because the earlier page depends on it.
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
            "the answer depends on more than {MAX_READS} referenced objects, too many for one transaction: select \
             fewer objects, or query outside of a transaction"
        );
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    /// Takes the reads that were not sent yet, and a time at or after all of them.
    pub(super) fn take_unsent(&mut self) -> (Vec<Read>, HlcTimestamp) {
        (std::mem::take(&mut self.unsent), self.at)
    }
}
