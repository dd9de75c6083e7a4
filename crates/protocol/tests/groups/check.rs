//! The checks of the history of a logical node.

use std::collections::BTreeMap;

use protocol::placement::{Epoch, MemberId};

/// The history of one logical node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeHistory {
    /// All records that were ever reported durable, in order.
    pub(crate) durable: Vec<u64>,
    /// The last epoch in which a further record was reported durable.
    latest: Epoch,
    /// The largest position of the reads that were served in each epoch.
    served: BTreeMap<Epoch, u64>,
    /// The same for each brick, over all its restarts.
    promised: BTreeMap<MemberId, u64>,
}

impl NodeHistory {
    /// Records that a brick, which has this log, reports in an epoch that it is durable up to a position.
    pub(crate) fn record_durable(
        &mut self,
        who: MemberId,
        epoch: Epoch,
        position: u64,
        log: &[u64],
    ) -> Result<(), String> {
        let position = position as usize;
        if position > log.len() {
            return Err(format!("M1.9: {who:?} reported {position}, but its log ends at {}", log.len()));
        }
        let known = position.min(self.durable.len());
        if log[..known] != self.durable[..known] {
            return Err(format!("M1: {who:?} has another history, {:?} instead of {:?}", &log[..known], self.durable));
        }
        if position > known {
            if epoch < self.latest {
                return Err(format!(
                    "M1.2: {who:?} continues in {epoch:?}, but others have continued in {:?}",
                    self.latest
                ));
            }
            self.latest = epoch;
        }
        self.durable.extend(&log[known..position]);
        Ok(())
    }

    /// Checks that the log of a new leader has all records that were ever reported durable.
    pub(crate) fn check_leader(&self, who: MemberId, log: &[u64]) -> Result<(), String> {
        if log.starts_with(&self.durable) {
            return Ok(());
        }
        Err(format!("M1.3: {who:?} leads with {log:?}, but {:?} was reported durable", self.durable))
    }

    /// Records that a brick serves reads up to a position in an epoch.
    pub(crate) fn check_served(&mut self, who: MemberId, epoch: Epoch, position: u64) -> Result<(), String> {
        if position > self.durable.len() as u64 {
            return Err(format!("M1.13: {who:?} serves {position}, but only {} is durable", self.durable.len()));
        }
        if epoch < self.latest {
            return Err(format!("M1.2: {who:?} serves in {epoch:?}, but others have continued in {:?}", self.latest));
        }
        let before = self.served.range(..epoch).map(|(_, position)| *position).max().unwrap_or(0);
        if position < before {
            return Err(format!(
                "M1.10: {who:?} serves {position} in {epoch:?}, but {before} was served in an earlier epoch"
            ));
        }
        let promised = self.promised.entry(who).or_default();
        if position < *promised {
            return Err(format!("M1.13: {who:?} serves {position} but has served {promised} before"));
        }
        *promised = position;
        let served = self.served.entry(epoch).or_default();
        *served = position.max(*served);
        Ok(())
    }
}
