//! What must hold of a logical node, whatever happened.

use std::collections::BTreeMap;

use protocol::placement::{Epoch, MemberId};

/// What the world knows of one logical node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeHistory {
    /// What was ever told durable, in order.
    pub(crate) durable: Vec<u64>,
    /// The last epoch in which something was told durable that had not been before.
    latest: Epoch,
    /// Up to where reads were ever served, in each epoch.
    served: BTreeMap<Epoch, u64>,
    /// The same, by each brick, over all its lives.
    promised: BTreeMap<MemberId, u64>,
}

impl NodeHistory {
    /// Somebody says, in an epoch, that the log is durable up to a position; this is its log.
    pub(crate) fn record_durable(
        &mut self,
        who: MemberId,
        epoch: Epoch,
        position: u64,
        log: &[u64],
    ) -> Result<(), String> {
        let position = position as usize;
        if position > log.len() {
            return Err(format!("M1.9: {who:?} told {position}, and its log ends at {}", log.len()));
        }
        let known = position.min(self.durable.len());
        if log[..known] != self.durable[..known] {
            return Err(format!(
                "M1: {who:?} has another history: {:?}, and before it was {:?}",
                &log[..known],
                self.durable
            ));
        }
        if position > known {
            if epoch < self.latest {
                return Err(format!("M1.2: {who:?} goes on in {epoch:?}, and others have in {:?}", self.latest));
            }
            self.latest = epoch;
        }
        self.durable.extend(&log[known..position]);
        Ok(())
    }

    /// Somebody leads from now on: its log has all that was ever told durable.
    pub(crate) fn check_leader(&self, who: MemberId, log: &[u64]) -> Result<(), String> {
        if log.starts_with(&self.durable) {
            return Ok(());
        }
        Err(format!("M1.3: {who:?} leads with {log:?}, and {:?} was told durable", self.durable))
    }

    /// Somebody serves reads up to a position, in an epoch.
    pub(crate) fn check_served(&mut self, who: MemberId, epoch: Epoch, position: u64) -> Result<(), String> {
        if position > self.durable.len() as u64 {
            return Err(format!("M1.13: {who:?} shows {position}, and {} is durable", self.durable.len()));
        }
        if epoch < self.latest {
            return Err(format!("M1.2: {who:?} serves in {epoch:?}, and others have gone on in {:?}", self.latest));
        }
        let before = self.served.range(..epoch).map(|(_, position)| *position).max().unwrap_or(0);
        if position < before {
            return Err(format!(
                "M1.10: {who:?} shows {position} in {epoch:?}, and {before} was shown in an earlier one"
            ));
        }
        let promised = self.promised.entry(who).or_default();
        if position < *promised {
            return Err(format!("M1.13: {who:?} shows {position}, and has shown {promised}"));
        }
        *promised = position;
        let served = self.served.entry(epoch).or_default();
        *served = position.max(*served);
        Ok(())
    }
}
