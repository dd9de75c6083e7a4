//! Where the driver of a logical node meets what its objects take.

use protocol::lease::Ms;

use super::{NodeDriver, rows};
use crate::brick::node_usage::NodeUsage;

impl<C: Clone> NodeDriver<C> {
    /// What the objects take, changes included that are not durable yet.
    pub(crate) fn usage(&self) -> NodeUsage {
        self.usage
    }

    /// Bytes of uploads and staged contents that no object has.
    pub(crate) fn staged_bytes(&self) -> u64 {
        self.staging.bytes()
    }

    /// A state of the store counts `counted` and has `found`: corrects what is counted since.
    pub(crate) fn correct_usage(&mut self, counted: NodeUsage, found: NodeUsage, now: Ms) {
        let correct = |value: u64, counted: u64, found: u64| value.saturating_add(found).saturating_sub(counted);
        self.usage.objects = correct(self.usage.objects, counted.objects, found.objects);
        self.usage.bytes = correct(self.usage.bytes, counted.bytes, found.bytes);
        self.writer.rows().put(&rows::usage_key(self.node), self.usage.encode());
        self.writer.flush_rows();
        self.process_outputs(true, now);
    }
}
