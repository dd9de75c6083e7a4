//! How things are in each space: which of its bricks can be reached, whether it serves, and who is told.
//!
//! A brick is *away* when this peer server has no connection to it, or hears nothing on it ([`Uplinks::look`]). All that is
//! told follows from that and from the catalogue, and is worked out anew when either has changed: a [`Standing`] that is not
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
use wire::cluster::{BrickStanding, Message, Standing};
use wire::driving::Post;

use crate::placement::BrickId;
use crate::uplink::Uplinks;

/// How long a brick may take to be reached for the first time.
const GRACE: Duration = Duration::from_secs(3);

/// How things are in all spaces.
#[derive(Default)]
pub(super) struct Standings {
    known: Mutex<Known>,
    /// Why nothing is done in the spaces that are stopped.
    stopped: ArcSwap<HashMap<SpaceId, Arc<str>>>,
}

#[derive(Default)]
struct Known {
    bricks: BTreeMap<BrickId, Reach>,
    spaces: BTreeMap<SpaceId, Followed>,
}

/// Whether a brick can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// It was not yet, since then.
    Expected(Instant),
    Reached,
    /// It cannot, since then.
    Away(Timestamp),
}

/// A space, and who watches it.
#[derive(Default)]
struct Followed {
    standing: Option<Standing>,
    /// The schema whose checksum was worked out.
    schema: Option<(Arc<Schema>, u32)>,
    watchers: Vec<Post>,
}

impl Standings {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Whatever was not finished is worked out anew the next time.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
    pub(super) fn stopped(&self) -> usize {
        self.stopped.load().len()
    }

    /// The bricks that serve something and cannot be reached, or not yet.
    pub(super) fn unreached(&self) -> Vec<BrickId> {
        let known = self.lock();
        known.bricks.iter().filter(|(_, reach)| **reach != Reach::Reached).map(|(brick, _)| *brick).collect()
    }

    /// Tells somebody how things are in a space, now and whenever that changes.
    pub(super) fn watch(&self, space: SpaceId, post: &Post) {
        let mut known = self.lock();
        let followed = known.spaces.entry(space).or_default();
        if let Some(standing) = &followed.standing {
            post.send(&Message::Standing(standing.clone()));
        }
        if !followed.watchers.contains(post) {
            followed.watchers.push(post.clone());
        }
    }

    /// Somebody who may have watched a space has gone.
    pub(super) fn unwatch(&self, space: SpaceId, post: &Post) {
        if let Some(followed) = self.lock().spaces.get_mut(&space) {
            followed.watchers.retain(|watcher| watcher != post);
        }
    }

    /// Works out how things are as of this catalogue and these connections, and tells who watches what has changed.
    pub(super) fn review(&self, catalog: &Catalog, uplinks: &Uplinks) {
        // Held while it is told: so everybody hears it in order.
        let mut known = self.lock();
        let Known { bricks, spaces } = &mut *known;
        let serving = catalog.map().nodes().flat_map(|(_, placed)| [placed.brick, placed.destination()]);
        let serving: BTreeSet<BrickId> = serving.map(|brick| BrickId(brick.0)).collect();
        bricks.retain(|brick, _| serving.contains(brick));
        for brick in serving {
            let before = bricks.get(&brick).copied();
            bricks.insert(brick, reach(before, uplinks.hears(brick)));
        }
        let mut stopped = HashMap::new();
        for space in catalog.spaces() {
            let followed = spaces.entry(space.id).or_default();
            let standing = standing(catalog, space, followed.checksum(&catalog.schema(space.id)), bricks);
            if let Some(why) = standing.why_stopped() {
                stopped.insert(space.id, Arc::from(why));
            }
            followed.tell(standing);
        }
        self.stopped.store(Arc::new(stopped));
    }
}

/// Whether a brick can be reached, as of what was so before and whether it is heard now.
fn reach(before: Option<Reach>, is_heard: bool) -> Reach {
    match before {
        _ if is_heard => Reach::Reached,
        None => Reach::Expected(Instant::now()),
        Some(Reach::Expected(since)) if since.elapsed() < GRACE => Reach::Expected(since),
        Some(Reach::Away(since)) => Reach::Away(since),
        Some(Reach::Expected(_) | Reach::Reached) => Reach::Away(now()),
    }
}

fn now() -> Timestamp {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How things are in a space.
fn standing(catalog: &Catalog, space: &Space, schema: u32, reach: &BTreeMap<BrickId, Reach>) -> Standing {
    let mut bricks: BTreeMap<u32, BrickStanding> = BTreeMap::new();
    for node in space.node_ids() {
        let Some(placed) = catalog.placed(node) else { continue };
        let brick = bricks.entry(placed.brick.0).or_insert_with(|| {
            let entry = catalog.brick(placed.brick).and_then(|brick| brick.entry.as_ref());
            let address = entry.and_then(|entry| entry.addresses.first().cloned()).unwrap_or_default();
            let away_since = match reach.get(&BrickId(placed.brick.0)) {
                Some(Reach::Away(since)) => Some(*since),
                _ => None,
            };
            BrickStanding { brick: placed.brick.0, address, away_since, nodes: Vec::new() }
        });
        brick.nodes.push((node, placed.epoch.0));
    }
    Standing { space: space.name.clone(), policy: space.policy, bricks: bricks.into_values().collect(), schema }
}

impl Followed {
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
    fn tell(&mut self, standing: Standing) {
        if self.standing.as_ref() == Some(&standing) {
            return;
        }
        let was_stopped = self.standing.as_ref().is_some_and(Standing::is_stopped);
        match standing.why_stopped() {
            Some(why) if !was_stopped => warn!("{why}"),
            None if was_stopped => info!(space = standing.space, "the space goes on"),
            _ => {}
        }
        let message = Message::Standing(standing.clone());
        self.watchers.iter().for_each(|watcher| watcher.send(&message));
        self.standing = Some(standing);
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
        assert_eq!(reach(None, true), Reach::Reached);
        let Reach::Away(since) = reach(Some(Reach::Reached), false) else { panic!("it is not heard any more") };
        assert_eq!(reach(Some(Reach::Away(since)), false), Reach::Away(since));
        assert_eq!(reach(Some(Reach::Away(since)), true), Reach::Reached);
        let expected = reach(None, false);
        assert!(matches!(expected, Reach::Expected(_)));
        assert_eq!(reach(Some(expected), false), expected);
        let late = Instant::now().checked_sub(GRACE).map(Reach::Expected);
        assert!(late.is_none_or(|late| matches!(reach(Some(late), false), Reach::Away(_))));
    }
}
