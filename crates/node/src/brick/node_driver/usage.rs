//! Where the driver of a logical node meets what its objects take, and the quota of its space.

use std::collections::HashMap;

use model::{ContentId, Error, ErrorKind, Object, Oid, Result};
use protocol::commit::Part;
use protocol::ident::TxnId;
use protocol::lease::Ms;

use super::admission::CheckedContents;
use super::{NodeDriver, rows};
use crate::brick::consistency::is_damage;
use crate::brick::indexes::Replaced;
use crate::brick::node_usage::{DurableCounts, NodeUsage};
use crate::brick::plant::{Bug, planted};
use crate::brick::quota::{Growth, QuotaRefusal, SharedQuota, with_quota};
use crate::brick::recent_pages::ObjectReader;

impl<C: Clone> NodeDriver<C> {
    /// What the objects take, changes included that are not durable yet.
    pub(crate) fn usage(&self) -> NodeUsage {
        self.usage
    }

    /// Bytes of uploads and staged contents that no object has.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.staging.bytes()
    }

    /// What prepared transactions add if they are committed.
    pub(crate) fn pending_usage(&self) -> NodeUsage {
        self.admission.pending()
    }

    /// What is durable now, for a count of the objects in a state of the store that is taken afterwards.
    pub(crate) fn durable_counts(&self) -> DurableCounts {
        DurableCounts { opening: self.writer.opening(), batches: self.writer.durable_count() }
    }

    /// A state of the store counts `counted` and has `found`: corrects what is counted since. `before` was durable before the state was taken.
    ///
    /// Several scrubs may have found the same. So a state that may lack the last correction corrects nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if it may lack that.
    pub(crate) fn correct_usage(
        &mut self,
        before: DurableCounts,
        (counted, found): (NodeUsage, NodeUsage),
        now: Ms,
    ) -> Result<()> {
        if before.opening != self.writer.opening() || before.batches < self.usage_corrected_in {
            let what = format!("the count of logical node {:x} may have been corrected meanwhile", self.node.0);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let correct = |value: u64, counted: u64, found: u64| value.saturating_add(found).saturating_sub(counted);
        self.usage.objects = correct(self.usage.objects, counted.objects, found.objects);
        self.usage.bytes = correct(self.usage.bytes, counted.bytes, found.bytes);
        self.writer.rows().put(&rows::usage_key(self.node), self.usage.encode());
        self.writer.flush_rows();
        self.usage_corrected_in = self.writer.flushed_count();
        self.process_outputs(true, now);
        Ok(())
    }

    /// The space has this quota; `None`: it has none.
    pub(crate) fn set_quota(&mut self, quota: Option<SharedQuota>) {
        if self.failed.is_none() {
            self.quota = quota;
            self.update_quota();
        }
    }

    /// Tells the quota what counts of this logical node. It must be called after each change, when nothing is being taken in.
    pub(super) fn update_quota(&self) {
        if let Some(quota) = &self.quota {
            let staged = NodeUsage { objects: 0, bytes: self.staging.bytes() };
            let usage = self.usage + self.admission.pending() + staged;
            with_quota(quota, |quota| quota.set(self.node, usage));
        }
    }

    /// The logical node is not served here any more.
    pub(super) fn leave_quota(&mut self) {
        if let Some(quota) = self.quota.take() {
            with_quota(&quota, |quota| quota.close(self.node));
        }
    }

    /// The store is about to take bytes of an upload, which then has `size`.
    ///
    /// # Errors
    /// [`ErrorKind::QuotaExceeded`](model::ErrorKind::QuotaExceeded), or
    /// [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) while it is not known what the space takes, or while it is removed.
    pub(crate) fn extend_upload(&mut self, id: ContentId, size: u64) -> Result<()> {
        self.check_space_stays()?;
        let more = size.saturating_sub(self.staging.received_bytes(id));
        let allowed = self.check_quota(Growth::of_bytes(more));
        allowed.map_err(|QuotaRefusal { kind, why }| Error::new(kind, why))?;
        self.staging.set_received(id, size);
        self.update_quota();
        Ok(())
    }

    /// Computes by how much the transactions grow that were prepared when the logical node was opened. What cannot be read because it is
    /// damaged counts as absent: it is reported when the transaction is to be ended.
    pub(super) fn recover_growth(&mut self, prepared: Vec<(TxnId, Part<Object>)>) -> Result<()> {
        for (txn, part) in prepared {
            let objects = ObjectReader { reader: &self.reader, recent: &self.recent };
            let mut replaced: HashMap<Oid, Replaced> = HashMap::new();
            for (oid, written) in &part.writes {
                match self.index.indexes.compute_replaced(objects, oid.page(), oid.slot(), written) {
                    Err(error) if is_damage(&error) && !planted(Bug::DamageEndsNode) => {}
                    one => drop(replaced.insert(*oid, one?)),
                }
            }
            // What was prepared was taken in, so its contents are there; a damaged one is reported when it is committed.
            if let Ok(CheckedContents { growth, .. }) = self.check_contents(txn, &part, |oid| replaced.get(&oid)) {
                self.admission.recover_prepared(txn, growth);
            }
        }
        Ok(())
    }
}
