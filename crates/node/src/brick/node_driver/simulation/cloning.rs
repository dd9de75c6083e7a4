//! Clones of the simulated brick: a clone of its clone has what a restart finds.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::planted_bug::plant;
use model::{NodeId, SpaceId, SpaceMap, SpaceNodes};
use rand::RngExt;
use store::sim::SimStore;
use store::{RowChanges, Store};
use wire::cluster::CloneRows;

use super::{Checked, NODES, SPACE, World, judge_node_rows, options};
use crate::brick::node_manager::{MoveLimits, rows_to_remove};
use crate::brick::page_rows::{self as rows, Rows};
use crate::brick::plant::Bug;
use crate::brick::space_clone::make_portion;

const ORIGINAL: SpaceNodes = SpaceNodes { space: SPACE, first_node: NODES[0] };
const CLONE: SpaceNodes = SpaceNodes { space: SpaceId(77), first_node: NodeId(500) };

/// Writes rows. Nothing else installs what the store has in memory.
fn write(machine: &SimStore, changes: RowChanges) -> model::Result<()> {
    while machine.is_install_wanted() {
        machine.install()?;
    }
    machine.store().commit_rows(changes).map(drop)
}

/// Copies the logical nodes of a space as those of another one.
fn clone_nodes(machine: &SimStore, (source, target): (SpaceNodes, SpaceNodes)) -> model::Result<()> {
    let map = SpaceMap::new(source, target, NODES.len() as u32)?;
    let snapshot = machine.store().snapshot()?;
    for index in 0..NODES.len() as u32 {
        let node = NodeId(source.first_node.0 + index);
        let mut asked = CloneRows { cut: 1, node, map, from: None, most_objects: 7 };
        loop {
            let portion = make_portion(&snapshot, &asked, MoveLimits::SMALL)?;
            write(machine, portion.changes)?;
            match portion.next {
                Some(next) => asked.from = Some(next.to_vec().into()),
                None => break,
            }
        }
    }
    Ok(())
}

/// Removes all that the store has of some logical nodes.
fn remove_nodes(machine: &SimStore, first: NodeId) -> model::Result<()> {
    for index in 0..NODES.len() as u32 {
        loop {
            let removed = rows_to_remove(&machine.store(), NodeId(first.0 + index), MoveLimits::SMALL.removed_rows)?;
            if removed.is_empty() {
                break;
            }
            write(machine, removed)?;
        }
    }
    Ok(())
}

/// All rows of some logical nodes, but for entries of indexes: a clone has also those that are still to be made, and none of dropped indexes.
fn all_rows(store: &Store, first: NodeId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    for index in 0..NODES.len() as u32 {
        for (from, to) in rows::ranges(NodeId(first.0 + index)) {
            let visited = Rows::each(store, &from, &to, |key, row| {
                if key[0] != b'I' {
                    found.push((key.to_vec(), row.to_vec()));
                }
                ControlFlow::Continue(())
            });
            visited.unwrap();
        }
    }
    found
}

impl World {
    /// The brick goes on with a clone of a clone, which has its own identifiers. All three are in its store, one after the other.
    fn go_on_with_clone(&mut self) -> Checked {
        let failed = |error: model::Error| format!("a clone cannot be made: {error}");
        self.drivers.clear();
        let image = self.machine.crash(self.rng.random());
        self.machine = SimStore::open(image, options()).map_err(failed)?;
        (self.written, self.is_full) = (Arc::default(), false);
        self.crashes += 1;
        let machine = &self.machine;
        let expected = all_rows(&machine.store(), NODES[0]);
        for (source, target) in [(ORIGINAL, CLONE), (CLONE, ORIGINAL)] {
            clone_nodes(machine, (source, target)).map_err(failed)?;
            remove_nodes(machine, source.first_node).map_err(failed)?;
            if target == CLONE {
                judge_clone(&machine.store())?;
            }
        }
        let found = all_rows(&machine.store(), NODES[0]);
        if let Some(row) = expected.iter().zip(&found).find(|(expected, found)| expected != found) {
            return Err(format!("K1: a clone of a clone has other rows: {row:02x?}"));
        }
        if expected.len() != found.len() {
            return Err(format!("K1: a clone of a clone has {} rows, not {}", found.len(), expected.len()));
        }
        self.open_drivers()
    }

    fn run_with_clones(seed: u64) -> Checked {
        let mut world = Self::new(seed)?;
        for _ in 0..3 {
            (0..150).try_for_each(|_| world.step())?;
            world.go_on_with_clone()?;
            world.judge_rows()?;
        }
        world.quiesce()?;
        world.judge_rows()?;
        world.judge()
    }
}

/// The rows of each logical node of a clone agree with each other, and none has an identifier of the original.
fn judge_clone(store: &Store) -> Checked {
    for index in 0..NODES.len() as u32 {
        let node = NodeId(CLONE.first_node.0 + index);
        judge_node_rows(store, node).map_err(|why| format!("K1: a clone: {why}"))?;
    }
    match all_rows(store, NODES[0]).is_empty() {
        true => Ok(()),
        false => Err("K1: a clone has rows of the original".to_owned()),
    }
}

#[test]
fn clones_have_all_that_a_restart_finds() {
    for seed in 0..40 {
        World::run_with_clones(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
}

#[test]
fn mistakes_in_clones_are_noticed() {
    for bug in [Bug::PreparedNotCloned, Bug::CloneWithoutIndexes] {
        let _planted = plant(bug);
        assert!((0..40).any(|seed| World::run_with_clones(seed).is_err()), "{bug:?} is not noticed");
    }
}
