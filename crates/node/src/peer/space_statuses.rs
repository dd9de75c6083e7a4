//! The status of each space: which of its bricks are reachable, whether it serves, and which clients receive the status.
//!
//! A brick is *unreachable* when this peer server has no connection to it, or receives nothing on it
//! ([`BrickLinks::check_liveness`](crate::brick_links::BrickLinks::check_liveness)). A [`SpaceStatus`] follows from
//! that and from the catalogue. It is computed again when either has changed, and sent to the watchers of the space if
//! it differs. While a space is stopped, requests of clients are refused here; commits that were taken before are
//! finished.
//!
//! Each peer server determines this on its own, with a short delay, so for a moment one may serve what another one refuses. That is
//! safe: a commit needs all of its bricks, and they validate it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use meta::catalog::{Catalog, IndexState, Schema, Space};
use model::{Error, ErrorKind, NodeId, Result, SpaceId, Timestamp, checksum};
use protocol::lease::Ms;
use tracing::{info, warn};
use wire::cluster::{BrickStatus, SpaceStatus};

use super::plant::{Bug, planted};
use crate::node_placement::BrickId;

/// How long the first connection to a brick may take before the brick counts as unreachable, in milliseconds.
const GRACE_MS: Ms = 3_000;

/// Why the spaces that are stopped are stopped.
pub(super) type StoppedSpaces = HashMap<SpaceId, Arc<str>>;

/// Refuses work in a space that is stopped.
///
/// # Errors
/// [`ErrorKind::Stopped`], with the reason and what to do.
pub(super) fn check_not_stopped(stopped: &StoppedSpaces, space: SpaceId) -> Result<()> {
    match stopped.get(&space) {
        None => Ok(()),
        Some(why) => Err(Error::new(ErrorKind::Stopped, &**why)),
    }
}

/// The status of all spaces. `A` is the address of a client.
pub(super) struct SpaceStatuses<A> {
    bricks: BTreeMap<BrickId, Reachability>,
    spaces: BTreeMap<SpaceId, WatchedSpace<A>>,
    stopped: Arc<StoppedSpaces>,
    /// Statuses to send, and the clients to send them to.
    unsent: Vec<(A, SpaceStatus)>,
}

/// Whether a brick can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reachability {
    /// It has not been reached yet; since then.
    Expected(Ms),
    Reachable,
    /// It cannot be reached, since then.
    Unreachable(Ms),
}

/// A space, and the clients that watch it.
struct WatchedSpace<A> {
    status: Option<SpaceStatus>,
    /// The schema whose checksum was computed, with the checksum.
    schema: Option<(Arc<Schema>, u32)>,
    watchers: Vec<A>,
}

impl<A> Default for WatchedSpace<A> {
    fn default() -> Self {
        Self { status: None, schema: None, watchers: Vec::new() }
    }
}

impl<A> Default for SpaceStatuses<A> {
    fn default() -> Self {
        Self { bricks: BTreeMap::new(), spaces: BTreeMap::new(), stopped: Arc::default(), unsent: Vec::new() }
    }
}

impl<A: Clone + PartialEq> SpaceStatuses<A> {
    /// The spaces that are stopped.
    pub(super) fn stopped_spaces(&self) -> &Arc<StoppedSpaces> {
        &self.stopped
    }

    /// The bricks that serve something and cannot be reached, or have not been reached yet.
    pub(super) fn unreachable_bricks(&self) -> Vec<BrickId> {
        self.bricks.iter().filter(|(_, reach)| **reach != Reachability::Reachable).map(|(brick, _)| *brick).collect()
    }

    /// Sends a client the status of a space now, and again at each change.
    pub(super) fn watch(&mut self, space: SpaceId, client: &A) {
        let watched = self.spaces.entry(space).or_default();
        if let Some(status) = &watched.status {
            self.unsent.push((client.clone(), status.clone()));
        }
        if !watched.watchers.contains(client) {
            watched.watchers.push(client.clone());
        }
    }

    /// Forgets a client.
    pub(super) fn unwatch(&mut self, space: SpaceId, client: &A) {
        if let Some(watched) = self.spaces.get_mut(&space) {
            watched.watchers.retain(|watcher| watcher != client);
        }
    }

    /// Takes the unsent statuses, in order.
    pub(super) fn take_unsent(&mut self) -> Vec<(A, SpaceStatus)> {
        std::mem::take(&mut self.unsent)
    }

    /// Computes all statuses from this catalogue, these connections, and what is damaged at logical nodes.
    pub(super) fn update(
        &mut self,
        catalog: &Catalog,
        is_responsive: impl Fn(BrickId) -> bool,
        damaged: &BTreeMap<NodeId, Arc<str>>,
        now: Ms,
    ) {
        let serving = catalog.placement_map().nodes().flat_map(|(_, placed)| [placed.brick, placed.destination()]);
        let serving: BTreeSet<BrickId> = serving.map(|brick| BrickId(brick.0)).collect();
        self.bricks.retain(|brick, _| serving.contains(brick));
        for brick in serving {
            let before = self.bricks.get(&brick).copied();
            self.bricks.insert(brick, next_reachability(before, is_responsive(brick), now));
        }
        let mut stopped = HashMap::new();
        let everyone: Vec<A> = if planted(Bug::StatusToAll) {
            self.spaces.values().flat_map(|space| space.watchers.iter().cloned()).collect()
        } else {
            Vec::new()
        };
        for space in catalog.spaces() {
            let watched = self.spaces.entry(space.id).or_default();
            let schema = watched.checksum(&catalog.schema(space.id));
            let status = space_status(catalog, space, schema, (&self.bricks, damaged));
            if let Some(why) = status.why_stopped() {
                stopped.insert(space.id, Arc::from(why));
            }
            if watched.status.as_ref() == Some(&status) {
                continue;
            }
            log_change(watched.status.as_ref(), &status);
            if !(planted(Bug::StatusNotRepeated) && watched.status.is_some()) {
                let watchers = watched.watchers.iter().chain(&everyone);
                self.unsent.extend(watchers.map(|watcher| (watcher.clone(), status.clone())));
            }
            watched.status = Some(status);
        }
        self.spaces.retain(|space, watched| !watched.watchers.is_empty() || catalog.space_by_id(*space).is_some());
        if *self.stopped != stopped {
            self.stopped = Arc::new(stopped);
        }
    }
}

/// Whether a brick can be reached, as of what was so before and whether it responds now.
fn next_reachability(before: Option<Reachability>, is_responsive: bool, now: Ms) -> Reachability {
    match before {
        _ if is_responsive => Reachability::Reachable,
        None => Reachability::Expected(now),
        Some(Reachability::Expected(since)) if now < since + GRACE_MS => Reachability::Expected(since),
        Some(Reachability::Unreachable(since)) => Reachability::Unreachable(since),
        Some(Reachability::Expected(_) | Reachability::Reachable) => Reachability::Unreachable(now),
    }
}

fn wall_clock(at: Ms) -> Timestamp {
    Timestamp::from_millis(i64::try_from(at).unwrap_or(i64::MAX))
}

fn log_change(before: Option<&SpaceStatus>, status: &SpaceStatus) {
    let was_stopped = before.is_some_and(SpaceStatus::is_stopped);
    match status.why_stopped() {
        Some(why) if !was_stopped => warn!("{why}"),
        None if was_stopped => info!(space = status.space, "the space serves again"),
        _ => {}
    }
}

/// The status of a space.
fn space_status(
    catalog: &Catalog,
    space: &Space,
    schema: u32,
    (reach, damaged): (&BTreeMap<BrickId, Reachability>, &BTreeMap<NodeId, Arc<str>>),
) -> SpaceStatus {
    let mut bricks: BTreeMap<u32, BrickStatus> = BTreeMap::new();
    for node in space.node_ids() {
        let Some(placed) = catalog.node_placement(node) else { continue };
        let brick = bricks.entry(placed.brick.0).or_insert_with(|| {
            let entry = catalog.brick(placed.brick).and_then(|brick| brick.entry.as_ref());
            let address = entry.and_then(|entry| entry.addresses.first().cloned()).unwrap_or_default();
            let unreachable_since = match reach.get(&BrickId(placed.brick.0)) {
                Some(Reachability::Unreachable(since)) => Some(wall_clock(*since)),
                _ => None,
            };
            BrickStatus { brick: placed.brick.0, address, unreachable_since, nodes: Vec::new(), damaged: Vec::new() }
        });
        brick.nodes.push((node, placed.epoch.0));
        brick.damaged.extend(damaged.get(&node).map(|damage| (node, damage.clone())));
    }
    SpaceStatus { space: space.name.clone(), policy: space.policy, bricks: bricks.into_values().collect(), schema }
}

impl<A> WatchedSpace<A> {
    /// A checksum of the classes and indexes of the space.
    fn checksum(&mut self, schema: &Arc<Schema>) -> u32 {
        match &self.schema {
            Some((known, checksum)) if Arc::ptr_eq(known, schema) => *checksum,
            _ => {
                let checksum = checksum_of(schema);
                self.schema = Some((schema.clone(), checksum));
                checksum
            }
        }
    }
}

/// A checksum that changes with the classes and indexes of a schema.
fn checksum_of(schema: &Schema) -> u32 {
    let mut bytes = Vec::new();
    for shape in schema.classes() {
        let class = shape.class();
        bytes.extend(class.id.0.to_le_bytes());
        bytes.extend(class.version.to_le_bytes());
    }
    for index in schema.indexes() {
        bytes.extend(index.id.0.to_le_bytes());
        bytes.push(u8::from(index.state == IndexState::Ready));
    }
    checksum::crc32c(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brick_that_was_reached_is_unreachable_at_once_and_a_new_one_after_a_grace() {
        let next = |before, is_responsive, now| next_reachability(before, is_responsive, now);
        assert_eq!(next(None, true, 5), Reachability::Reachable);
        assert_eq!(next(Some(Reachability::Reachable), false, 5), Reachability::Unreachable(5));
        assert_eq!(next(Some(Reachability::Unreachable(5)), false, 9), Reachability::Unreachable(5));
        assert_eq!(next(Some(Reachability::Unreachable(5)), true, 9), Reachability::Reachable);
        let expected = next(None, false, 5);
        assert_eq!(expected, Reachability::Expected(5));
        assert_eq!(next(Some(expected), false, 4 + GRACE_MS), expected);
        assert_eq!(next(Some(expected), false, 5 + GRACE_MS), Reachability::Unreachable(5 + GRACE_MS));
    }

    #[test]
    fn space_that_was_removed_is_forgotten_with_its_last_watcher() {
        let (mut statuses, catalog) = (SpaceStatuses::default(), Catalog::default());
        statuses.watch(SpaceId(9), &1_u8);
        statuses.update(&catalog, |_| true, &BTreeMap::new(), 5);
        assert_eq!(statuses.spaces.len(), 1);
        statuses.unwatch(SpaceId(9), &1);
        statuses.update(&catalog, |_| true, &BTreeMap::new(), 6);
        assert!(statuses.spaces.is_empty());
    }
}
