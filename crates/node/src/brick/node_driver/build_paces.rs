//! How fast a logical node builds indexes: their jobs may be paused, or have a rate.

use std::collections::BTreeMap;

use meta::catalog::{Catalog, Job, JobKind, JobState};
use model::SpaceId;
use protocol::lease::Ms;
use protocol::token_bucket::TokenBucket;

/// How fast a logical node builds an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuildPace {
    /// Not now.
    Paused,
    /// At most so many objects a second.
    Rate(u64),
}

impl BuildPace {
    /// The paces of the indexes of a space at each of its logical nodes.
    pub(crate) fn of_space(catalog: &Catalog, space: SpaceId) -> BTreeMap<u32, Self> {
        let nodes = catalog.space_by_id(space).map_or(1, |space| u64::from(space.nodes).max(1));
        let pace = |job: &Job| match job.kind {
            JobKind::BuildIndex { space: of, index, .. } if of == space && !job.state.is_end() => {
                let rate = job.rate.map(|rate| Self::Rate((rate / nodes).max(1)));
                let pace = if job.state == JobState::Paused { Some(Self::Paused) } else { rate };
                pace.map(|pace| (index.0, pace))
            }
            _ => None,
        };
        catalog.jobs().filter_map(|job| pace(job)).collect()
    }
}

/// The paces of the indexes of a logical node, by their numbers.
#[derive(Debug, Default)]
pub(super) struct BuildPaces(BTreeMap<u32, (BuildPace, TokenBucket)>);

impl BuildPaces {
    /// Replaces all paces.
    pub(super) fn set(&mut self, paces: &BTreeMap<u32, BuildPace>, now: Ms) {
        self.0.retain(|index, _| paces.contains_key(index));
        for (index, pace) in paces {
            let rate = match pace {
                BuildPace::Paused => None,
                BuildPace::Rate(rate) => Some(*rate),
            };
            let known = self.0.entry(*index).or_insert_with(|| (*pace, TokenBucket::new(rate, now)));
            known.0 = *pace;
            known.1.set_rate(rate, now);
        }
    }

    /// Whether objects may be entered into an index now.
    pub(super) fn may_enter(&mut self, index: u32, now: Ms) -> bool {
        match self.0.get_mut(&index) {
            None => true,
            Some((BuildPace::Paused, _)) => false,
            Some((BuildPace::Rate(_), bucket)) => bucket.wait(now) == 0,
        }
    }

    /// How many objects to enter at a time.
    pub(super) fn portion(&self, index: u32, most: usize) -> usize {
        self.0.get(&index).map_or(most, |(_, bucket)| bucket.portion(most as u64) as usize)
    }

    /// Objects were entered.
    pub(super) fn take(&mut self, index: u32, count: usize, now: Ms) {
        if let Some((_, bucket)) = self.0.get_mut(&index) {
            bucket.take(count as u64, now);
        }
    }
}
