//! The quota of a space, at one brick.
//!
//! All logical nodes of the space that the brick serves share one [`SpaceQuota`]. It does no I/O and reads no clock.
//!
//! 1. A change that grows is refused if what the whole space takes, as far as it is known here, and the growth exceed the quota.
//! 2. What the logical nodes of this brick take is known exactly: committed, prepared, staged, and being taken in. Of every other node the
//!    last report counts, however old it is; bricks report about once a second. So the quota is exceeded by no more than what other bricks
//!    take in between two reports.
//! 3. Nothing grows before every logical node of the space was heard of once since the brick was started. Of a logical node that cannot be served
//!    because of damage, its brick tells what was last counted, or that it takes nothing if that cannot be read.
//! 4. What does not grow is never refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use meta::catalog::Quota;
use model::{ErrorKind, NodeId};

use super::node_usage::NodeUsage;
use super::plant::{Bug, planted};

/// By how much a change makes objects and bytes more, or fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) objects: i64,
    pub(crate) bytes: i64,
}

impl Growth {
    /// An object of the size `before` gets the size `after`; `None`: there is none.
    pub(crate) fn replace(&mut self, before: Option<u64>, after: Option<u64>) {
        self.objects += i64::from(after.is_some()) - i64::from(before.is_some());
        // A transaction may change a hundred thousand sparse blobs of 2^50 bytes.
        let bytes = to_signed(after.unwrap_or(0)) - to_signed(before.unwrap_or(0));
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// The growth is of bytes that are staged, and so counted before.
    pub(crate) fn take_staged(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(to_signed(bytes));
    }

    /// More bytes are staged.
    pub(crate) fn of_bytes(bytes: u64) -> Self {
        Self { objects: 0, bytes: to_signed(bytes) }
    }

    /// What grows.
    pub(crate) fn increase(self) -> NodeUsage {
        NodeUsage { objects: self.objects.max(0) as u64, bytes: self.bytes.max(0) as u64 }
    }
}

/// Sizes are far below the limit of the type.
fn to_signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Why a change is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotaRefusal {
    pub(crate) kind: ErrorKind,
    pub(crate) why: String,
}

/// What a logical node takes, as far as it is known.
#[derive(Clone, Copy, Debug, Default)]
struct KnownNode {
    /// `None`: nothing was heard of it.
    usage: Option<NodeUsage>,
    /// Whether this brick serves it.
    is_here: bool,
}

/// The quota of a space, and what its logical nodes take.
#[derive(Debug)]
pub(crate) struct SpaceQuota {
    space: String,
    quota: Quota,
    nodes: BTreeMap<NodeId, KnownNode>,
    /// The sum of what is known.
    total: NodeUsage,
    /// The number of logical nodes of which nothing was heard.
    unknown: usize,
}

/// The quota of a space that the drivers of its logical nodes share.
pub(crate) type SharedQuota = Arc<Mutex<SpaceQuota>>;

impl SpaceQuota {
    /// The quota of a space with these logical nodes.
    pub(crate) fn new(space: &str, quota: Quota, nodes: impl Iterator<Item = NodeId>) -> Self {
        let nodes: BTreeMap<_, _> = nodes.map(|node| (node, KnownNode::default())).collect();
        let unknown = nodes.len();
        Self { space: space.to_owned(), quota, nodes, total: NodeUsage::default(), unknown }
    }

    /// The space has another quota.
    pub(crate) fn set_quota(&mut self, quota: Quota) {
        self.quota = quota;
    }

    /// The logical nodes that other bricks serve.
    pub(crate) fn nodes_elsewhere(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(|(_, known)| !known.is_here).map(|(node, _)| *node)
    }

    /// Whether there are logical nodes of which nothing was heard.
    pub(crate) fn has_unknown(&self) -> bool {
        self.unknown > 0
    }

    /// A logical node that this brick serves takes this much.
    pub(crate) fn set(&mut self, node: NodeId, usage: NodeUsage) {
        self.update(node, usage, true);
    }

    /// This brick does not serve a logical node any more. What it takes stays known.
    pub(crate) fn close(&mut self, node: NodeId) {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.is_here = false;
        }
    }

    /// Another brick has reported what a logical node takes. This says nothing new of one that is served here.
    pub(crate) fn report(&mut self, node: NodeId, usage: NodeUsage) {
        if self.nodes.get(&node).is_some_and(|known| !known.is_here) {
            self.update(node, usage, false);
        }
    }

    fn update(&mut self, node: NodeId, usage: NodeUsage, is_here: bool) {
        let Some(known) = self.nodes.get_mut(&node) else { return };
        let before = known.usage.replace(usage);
        known.is_here = is_here;
        self.unknown -= usize::from(before.is_none());
        self.total -= before.unwrap_or_default();
        self.total += usage;
    }

    /// Takes in a change of a logical node that is served here. Until the next [`SpaceQuota::set`] it counts with what grows.
    ///
    /// # Errors
    /// [`ErrorKind::QuotaExceeded`]; [`ErrorKind::Unavailable`] while it is not known what the space takes.
    pub(crate) fn grow(&mut self, node: NodeId, growth: Growth) -> Result<(), QuotaRefusal> {
        let increase = growth.increase();
        if increase == NodeUsage::default() {
            return Ok(());
        }
        self.check(increase)?;
        let taken = self.nodes.get(&node).and_then(|known| known.usage).unwrap_or_default();
        if !planted(Bug::GrowthNotReserved) {
            self.set(node, taken + increase);
        }
        Ok(())
    }

    fn check(&self, increase: NodeUsage) -> Result<(), QuotaRefusal> {
        let Quota { max_bytes, max_objects } = self.quota;
        let is_over = |limit: Option<u64>, used: u64, more: u64| {
            limit.filter(|limit| more > 0 && used.saturating_add(more) > *limit)
        };
        let space = &self.space;
        let refused = |limit: u64, what: &str, used: u64, more: u64| {
            let why = format!(
                "the quota of space {space:?} is {limit} {what}: {used} are used, and this would add {more}; delete something, or \
                 raise the quota with `mortar space set {space} --max-{what}`"
            );
            Err(QuotaRefusal { kind: ErrorKind::QuotaExceeded, why })
        };
        if let Some(limit) = is_over(max_bytes, self.total.bytes, increase.bytes) {
            return refused(limit, "bytes", self.total.bytes, increase.bytes);
        }
        if let Some(limit) = is_over(max_objects, self.total.objects, increase.objects) {
            return refused(limit, "objects", self.total.objects, increase.objects);
        }
        if self.unknown > 0 && !planted(Bug::UnknownCountsAsEmpty) {
            let why = format!(
                "space {space:?} has a quota, and the brick does not know yet what {} of its logical nodes take: try again",
                self.unknown
            );
            return Err(QuotaRefusal { kind: ErrorKind::Unavailable, why });
        }
        Ok(())
    }
}

/// Calls `act` with a quota. A panic leaves it consistent between statements.
pub(crate) fn with_quota<T>(quota: &SharedQuota, act: impl FnOnce(&mut SpaceQuota) -> T) -> T {
    act(&mut quota.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;

    use super::*;

    const HERE: NodeId = NodeId(1);
    const ELSEWHERE: NodeId = NodeId(2);

    fn usage(objects: u64, bytes: u64) -> NodeUsage {
        NodeUsage { objects, bytes }
    }

    fn growth(objects: i64, bytes: i64) -> Growth {
        Growth { objects, bytes }
    }

    /// A space with 10 objects of 100 bytes at most, of which 2 with 20 bytes are here and 3 with 30 bytes elsewhere.
    fn quota() -> SpaceQuota {
        let limits = Quota { max_bytes: Some(100), max_objects: Some(10) };
        let mut quota = SpaceQuota::new("main", limits, [HERE, ELSEWHERE].into_iter());
        quota.set(HERE, usage(2, 20));
        quota.report(ELSEWHERE, usage(3, 30));
        quota
    }

    #[test]
    fn growth_by_more_bytes_than_a_number_has_is_refused() {
        let mut vast = growth(0, 0);
        (0..10_000).for_each(|_| vast.replace(Some(1), Some(model::limits::BLOB)));
        assert_eq!(vast.increase(), usage(0, i64::MAX as u64));
        assert!(is_refused(&mut quota(), vast));
        vast.take_staged(u64::MAX);
        assert_eq!(vast.increase(), usage(0, 0));
    }

    fn is_refused(quota: &mut SpaceQuota, by: Growth) -> bool {
        match quota.grow(HERE, by) {
            Ok(()) => false,
            Err(refusal) => {
                assert_eq!(refusal.kind, ErrorKind::QuotaExceeded, "{refusal:?}");
                assert!(refusal.why.contains("\"main\""), "{refusal:?}");
                true
            }
        }
    }

    #[test]
    fn growth_up_to_the_quota_is_taken_in() {
        assert!(!is_refused(&mut quota(), growth(5, 50)));
        assert!(is_refused(&mut quota(), growth(1, 51)));
        assert!(is_refused(&mut quota(), growth(6, 1)));
        assert!(!is_refused(&mut quota(), growth(-1, 50)), "fewer objects, and bytes within the quota");
    }

    #[test]
    fn what_does_not_grow_is_taken_in_beyond_the_quota() {
        let mut quota = quota();
        quota.set_quota(Quota { max_bytes: Some(1), max_objects: Some(1) });
        assert!(!is_refused(&mut quota, growth(-1, -10)));
        assert!(!is_refused(&mut quota, growth(0, 0)));
        assert!(is_refused(&mut quota, growth(-1, 1)) && is_refused(&mut quota, growth(1, -1)));
        quota.set_quota(Quota::default());
        assert!(!is_refused(&mut quota, growth(1000, 1000)));
    }

    fn check_growth_is_reserved() {
        let mut quota = quota();
        assert!(!is_refused(&mut quota, growth(3, 30)));
        assert!(is_refused(&mut quota, growth(3, 30)), "another connection takes the same room");
        quota.set(HERE, usage(2, 20));
        assert!(!is_refused(&mut quota, growth(3, 30)), "the first one was not committed");
    }

    #[test]
    fn growth_counts_before_it_is_committed() {
        check_growth_is_reserved();
        assert_noticed(&[Bug::GrowthNotReserved], check_growth_is_reserved);
    }

    fn check_unknown_waits() {
        let limits = Quota { max_bytes: Some(100), max_objects: None };
        let mut quota = SpaceQuota::new("main", limits, [HERE, ELSEWHERE].into_iter());
        quota.set(HERE, usage(2, 20));
        assert_eq!(quota.grow(HERE, growth(1, 1)).unwrap_err().kind, ErrorKind::Unavailable);
        assert!(is_refused(&mut quota, growth(1, 81)), "what is known is too much already");
        assert_eq!(quota.grow(HERE, growth(-1, -1)), Ok(()));
        quota.report(ELSEWHERE, usage(1, 80));
        assert!(is_refused(&mut quota, growth(1, 1)));
    }

    #[test]
    fn nothing_grows_before_all_nodes_were_heard_of() {
        check_unknown_waits();
        assert_noticed(&[Bug::UnknownCountsAsEmpty], check_unknown_waits);
    }

    #[test]
    fn node_that_moves_is_counted_once() {
        let mut quota = quota();
        quota.close(HERE);
        quota.report(HERE, usage(4, 40));
        assert_eq!(quota.total, usage(7, 70));
        quota.set(HERE, usage(5, 50));
        quota.report(HERE, usage(1, 10));
        assert_eq!(quota.total, usage(8, 80), "its own count is newer than a report");
        assert_eq!(quota.nodes_elsewhere().collect::<Vec<_>>(), [ELSEWHERE]);
        quota.report(NodeId(9), usage(1, 1));
        assert_eq!((quota.total, quota.unknown), (usage(8, 80), 0), "a node of another space");
    }
}
