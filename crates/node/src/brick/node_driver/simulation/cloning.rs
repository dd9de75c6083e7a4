//! Clones of the simulated brick: a clone of its clone has what a restart finds.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::planted_bug::plant;
use model::{NodeId, SpaceId, SpaceMap, SpaceNodes};
use rand::RngExt;
use store::Store;
use store::sim::{DiskImage, SimStore};
use wire::cluster::CloneRows;

use super::{Checked, NODES, SPACE, World, options};
use crate::brick::consistency::{NodeCheck, Place, Problem};
use crate::brick::node_manager::MoveLimits;
use crate::brick::page_rows::{self as rows, Rows};
use crate::brick::plant::Bug;
use crate::brick::space_clone::make_portion;

const ORIGINAL: SpaceNodes = SpaceNodes { space: SPACE, first_node: NODES[0] };
const CLONE: SpaceNodes = SpaceNodes { space: SpaceId(77), first_node: NodeId(500) };

/// Copies the logical nodes of a space as those of another one.
fn clone_store(from: &Store, to: &SimStore, (source, target): (SpaceNodes, SpaceNodes)) -> model::Result<()> {
    let map = SpaceMap::new(source, target, NODES.len() as u32)?;
    for index in 0..NODES.len() as u32 {
        let node = NodeId(source.first_node.0 + index);
        let mut asked = CloneRows { cut: 1, node, map, from: None };
        loop {
            let portion = make_portion(&from.snapshot()?, &asked, MoveLimits::SMALL)?;
            // Nothing else installs what the store has in memory.
            while to.is_install_wanted() {
                to.install()?;
            }
            to.store().commit_rows(portion.changes)?;
            match portion.next {
                Some(next) => asked.from = Some(next.to_vec().into()),
                None => break,
            }
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
    /// The brick goes on with a clone of a clone, which has its own identifiers.
    fn go_on_with_clone(&mut self) -> Checked {
        let failed = |error: model::Error| format!("a clone cannot be made: {error}");
        self.drivers.clear();
        let image = self.machine.crash(self.rng.random());
        let machine = SimStore::open(image, options()).map_err(failed)?;
        let [clone, again] = [(); 2].map(|()| SimStore::open(DiskImage::default(), options()).unwrap());
        clone_store(&machine.store(), &clone, (ORIGINAL, CLONE)).map_err(failed)?;
        judge_clone(&clone.store())?;
        clone_store(&clone.store(), &again, (CLONE, ORIGINAL)).map_err(failed)?;
        let (expected, found) = (all_rows(&machine.store(), NODES[0]), all_rows(&again.store(), NODES[0]));
        if let Some(row) = expected.iter().zip(&found).find(|(expected, found)| expected != found) {
            return Err(format!("K1: a clone of a clone has other rows: {row:02x?}"));
        }
        if expected.len() != found.len() {
            return Err(format!("K1: a clone of a clone has {} rows, not {}", found.len(), expected.len()));
        }
        self.written = Arc::default();
        (self.machine, self.is_full) = (again, false);
        self.crashes += 1;
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
        let check = NodeCheck { store, node, is_unique: &|_, _| false, reads_contents: true };
        let mut found = Vec::new();
        let checked = check.run(Place::first(), |portion| {
            found.extend(portion.problems);
            ControlFlow::Continue(())
        });
        checked.map_err(|error| error.to_string())?;
        found.retain(|problem| {
            !matches!(
                problem,
                Problem::PageNotReserved { .. } | Problem::TargetMissing { .. } | Problem::CollectionMissing { .. }
            )
        });
        if let Some(problem) = found.first() {
            return Err(format!("K1: node {node} of a clone: {} of {:?}: {problem}", problem.kind(), problem.object()));
        }
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
