//! A page of the B-tree that cannot be read for a while.
//!
//! What needs a row of it is refused, or waits until the page is whole again; nothing else is. So the rules of the other runs hold, and
//! a logical node is never given up.

use std::panic::{self, AssertUnwindSafe};

use model::planted_bug::plant;

use super::{Checked, RngExt, World};
use crate::brick::plant::Bug;

/// The runs of the suite.
const SEEDS: std::ops::Range<u64> = 0..20;
const STEPS: u32 = 600;
/// How often a page gets damaged or whole again, in percent of the steps.
const CHANCE: u32 = 4;

/// The damage of a run.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// Whether pages get damaged in this run.
    pub(super) is_enabled: bool,
    /// Whether one is damaged now.
    pub(super) is_present: bool,
    /// How many were.
    pub(super) count: u32,
}

impl World {
    /// Perhaps damages a page, or makes the damaged one whole.
    pub(super) fn change_damage(&mut self) {
        if !self.damage.is_enabled || !self.chance(CHANCE) {
            return;
        }
        if self.damage.is_present {
            return self.heal_damage();
        }
        // What is not installed is in the buffer, which damage does not reach.
        drop(self.machine.install());
        let seed = self.rng.random();
        self.damage.is_present = self.machine.damage(seed);
        self.damage.count += u32::from(self.damage.is_present);
    }

    /// The page is whole again.
    pub(super) fn heal_damage(&mut self) {
        self.machine.heal();
        self.damage.is_present = false;
    }

    /// The result of something that a client reads: it gives up what damage keeps from it.
    pub(super) fn excuse_damage(&self, read: Checked) -> Checked {
        if self.damage.is_present { Ok(()) } else { read }
    }

    /// A run in which pages get damaged.
    fn run_with_damage(seed: u64) -> std::result::Result<Self, super::Violation> {
        let mut world = Self::new(seed)?;
        world.damage.is_enabled = true;
        world.run_on(STEPS)
    }
}

#[test]
fn damaged_page_costs_only_what_is_on_it() {
    let (mut committed, mut damaged) = (0, 0);
    for seed in SEEDS {
        let world = World::run_with_damage(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        committed += world.history.committed_count();
        damaged += world.damage.count;
    }
    assert!(
        committed > 150 && damaged > 30,
        "{committed} were committed, {damaged} pages damaged: too few to mean much"
    );
}

#[test]
fn logical_node_that_damage_ends_is_noticed() {
    let is_noticed = |seed| {
        let _planted = plant(Bug::DamageEndsNode);
        !matches!(panic::catch_unwind(AssertUnwindSafe(|| World::run_with_damage(seed).map(drop))), Ok(Ok(())))
    };
    assert!(SEEDS.into_iter().any(is_noticed));
}
