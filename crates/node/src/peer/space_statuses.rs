//! How things are in each space: which of its bricks can be reached, whether it serves, and who is told.
//!
//! A brick is *away* when this peer server has no connection to it, or hears nothing on it ([`BrickLinks::look`]). All that is
//! told follows from that and from the catalogue, and is worked out anew when either has changed: a [`SpaceStatus`] that is not
//! what it was is told to whoever watches the space. While one is stopped, it is refused here what clients ask for; a commit
//! that was taken before is finished.
//!
//! Each peer server sees this for itself, and some moments later than it happens: so for a moment one may still serve what
//! another one refuses. Nothing wrong comes of that: a commit needs all of its bricks, and is validated there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use meta::catalog::{Catalog, IndexState, Schema, Space};
use model::{Error, ErrorKind, Result, SpaceId, Timestamp, checksum};
use tracing::{info, warn};
use wire::cluster::{BrickStatus, Message, SpaceStatus};
use wire::driving::PeerHandle;

use crate::brick_links::BrickLinks;
use crate::node_placement::BrickId;

/// How long a brick may take to be reached for the first time.
const GRACE: Duration = Duration::from_secs(3);

/// How things are in all spaces.
#[derive(Default)]
pub(super) struct SpaceStatuses {
    table: Mutex<StatusTable>,
    /// Why nothing is done in the spaces that are stopped.
    stopped: ArcSwap<HashMap<SpaceId, Arc<str>>>,
}

#[derive(Default)]
struct StatusTable {
    bricks: BTreeMap<BrickId, Reachability>,
    spaces: BTreeMap<SpaceId, WatchedSpace>,
}

/// Whether a brick can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reachability {
    /// It was not yet, since then.
    Expected(Instant),
    Reachable,
    /// It cannot, since then.
    Unreachable(Timestamp),
}

/// A space, and who watches it.
#[derive(Default)]
struct WatchedSpace {
    status: Option<SpaceStatus>,
    /// The schema whose checksum was worked out.
    schema: Option<(Arc<Schema>, u32)>,
    watchers: Vec<PeerHandle>,
}

impl SpaceStatuses {
    fn lock(&self) -> MutexGuard<'_, StatusTable> {
        // Whatever was not finished is worked out anew the next time.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything is done in a space.
    ///
    /// # Errors
    /// [`ErrorKind::Stopped`], with why and what to do.
    pub(super) fn check(&self, space: SpaceId) -> Result<()> {
        match self.stopped.load().get(&space) {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorKind::Stopped, &**why)),
        }
    }

    /// How many spaces are stopped.
    pub(super) fn stopped_count(&self) -> usize {
        self.stopped.load().len()
    }

    /// The bricks that serve something and cannot be reached, or not yet.
    pub(super) fn unreachable_bricks(&self) -> Vec<BrickId> {
        let known = self.lock();
        known.bricks.iter().filter(|(_, reach)| **reach != Reachability::Reachable).map(|(brick, _)| *brick).collect()
    }

    /// Tells somebody how things are in a space, now and whenever that changes.
    pub(super) fn watch(&self, space: SpaceId, post: &PeerHandle) {
        let mut known = self.lock();
        let followed = known.spaces.entry(space).or_default();
        if let Some(standing) = &followed.status {
            post.send(&Message::SpaceStatus(standing.clone()));
        }
        if !followed.watchers.contains(post) {
            followed.watchers.push(post.clone());
        }
    }

    /// Somebody who may have watched a space has gone.
    pub(super) fn unwatch(&self, space: SpaceId, post: &PeerHandle) {
        if let Some(followed) = self.lock().spaces.get_mut(&space) {
            followed.watchers.retain(|watcher| watcher != post);
        }
    }

    /// Works out how things are as of this catalogue and these connections, and tells who watches what has changed.
    pub(super) fn update(&self, catalog: &Catalog, uplinks: &BrickLinks) {
        // Held while it is told: so everybody hears it in order.
        let mut known = self.lock();
        let StatusTable { bricks, spaces } = &mut *known;
        let serving = catalog.placement_map().nodes().flat_map(|(_, placed)| [placed.brick, placed.destination()]);
        let serving: BTreeSet<BrickId> = serving.map(|brick| BrickId(brick.0)).collect();
        bricks.retain(|brick, _| serving.contains(brick));
        for brick in serving {
            let before = bricks.get(&brick).copied();
            bricks.insert(brick, next_reachability(before, uplinks.is_responsive(brick)));
        }
        let mut stopped = HashMap::new();
        for space in catalog.spaces() {
            let followed = spaces.entry(space.id).or_default();
            let standing = space_status(catalog, space, followed.checksum(&catalog.schema(space.id)), bricks);
            if let Some(why) = standing.why_stopped() {
                stopped.insert(space.id, Arc::from(why));
            }
            followed.publish(standing);
        }
        self.stopped.store(Arc::new(stopped));
    }
}

/// Whether a brick can be reached, as of what was so before and whether it is heard now.
fn next_reachability(before: Option<Reachability>, is_heard: bool) -> Reachability {
    match before {
        _ if is_heard => Reachability::Reachable,
        None => Reachability::Expected(Instant::now()),
        Some(Reachability::Expected(since)) if since.elapsed() < GRACE => Reachability::Expected(since),
        Some(Reachability::Unreachable(since)) => Reachability::Unreachable(since),
        Some(Reachability::Expected(_) | Reachability::Reachable) => Reachability::Unreachable(wall_clock()),
    }
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How things are in a space.
fn space_status(catalog: &Catalog, space: &Space, schema: u32, reach: &BTreeMap<BrickId, Reachability>) -> SpaceStatus {
    let mut bricks: BTreeMap<u32, BrickStatus> = BTreeMap::new();
    for node in space.node_ids() {
        let Some(placed) = catalog.node_placement(node) else { continue };
        let brick = bricks.entry(placed.brick.0).or_insert_with(|| {
            let entry = catalog.brick(placed.brick).and_then(|brick| brick.entry.as_ref());
            let address = entry.and_then(|entry| entry.addresses.first().cloned()).unwrap_or_default();
            let unreachable_since = match reach.get(&BrickId(placed.brick.0)) {
                Some(Reachability::Unreachable(since)) => Some(*since),
                _ => None,
            };
            BrickStatus { brick: placed.brick.0, address, unreachable_since, nodes: Vec::new() }
        });
        brick.nodes.push((node, placed.epoch.0));
    }
    SpaceStatus { space: space.name.clone(), policy: space.policy, bricks: bricks.into_values().collect(), schema }
}

impl WatchedSpace {
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

    /// This is how things are in the space.
    fn publish(&mut self, standing: SpaceStatus) {
        if self.status.as_ref() == Some(&standing) {
            return;
        }
        let was_stopped = self.status.as_ref().is_some_and(SpaceStatus::is_stopped);
        match standing.why_stopped() {
            Some(why) if !was_stopped => warn!("{why}"),
            None if was_stopped => info!(space = standing.space, "the space goes on"),
            _ => {}
        }
        let message = Message::SpaceStatus(standing.clone());
        self.watchers.iter().for_each(|watcher| watcher.send(&message));
        self.status = Some(standing);
    }
}

/// A checksum that is another one when a class or an index has changed.
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
    fn a_brick_that_was_heard_is_away_at_once_and_one_that_never_was_gets_time() {
        assert_eq!(next_reachability(None, true), Reachability::Reachable);
        let Reachability::Unreachable(since) = next_reachability(Some(Reachability::Reachable), false) else {
            panic!("it is not heard any more")
        };
        assert_eq!(next_reachability(Some(Reachability::Unreachable(since)), false), Reachability::Unreachable(since));
        assert_eq!(next_reachability(Some(Reachability::Unreachable(since)), true), Reachability::Reachable);
        let expected = next_reachability(None, false);
        assert!(matches!(expected, Reachability::Expected(_)));
        assert_eq!(next_reachability(Some(expected), false), expected);
        let late = Instant::now().checked_sub(GRACE).map(Reachability::Expected);
        assert!(late.is_none_or(|late| matches!(next_reachability(Some(late), false), Reachability::Unreachable(_))));
    }
}
