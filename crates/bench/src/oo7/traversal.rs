//! The traversals of OO7: depth first over the assemblies of a module, their composite parts, and the graphs of atomic parts.
//!
//! OO7 swaps `x` and `y` where T2 updates. Here both grow by one, and so does the build date in T3: a composite part that two base
//! assemblies use is visited twice, and two swaps would change nothing.

use std::collections::HashSet;

use client::{Ref, Result};

use super::model::{AtomicPart, CompositePart, Module};
use super::objects::Objects;

/// What a traversal visits and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traversal {
    pub(crate) visits: Visits,
    pub(crate) updates: Updates,
    pub(crate) field: UpdatedField,
}

/// The atomic parts that a traversal visits in a composite part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visits {
    RootPart,
    AllParts,
}

/// The atomic parts that a traversal changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Updates {
    None,
    /// One of each composite part: the root.
    RootPart,
    /// All of each composite part.
    AllParts,
    /// All of each composite part, four times each.
    AllPartsFourTimes,
    /// All of the first composite part that is visited.
    FirstCompositePart,
}

/// The fields that a traversal changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdatedField {
    /// `x` and `y`, which have no index.
    Position,
    /// The build date, which has an index.
    BuildDate,
}

/// The result of a traversal or a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Atomic parts that a traversal has visited, or objects that a query has found.
    pub(crate) visited: u64,
    /// Updates of atomic parts.
    pub(crate) updated: u64,
}

impl Traversal {
    /// T1 or T6.
    pub(crate) const fn reading(visits: Visits) -> Self {
        Self { visits, updates: Updates::None, field: UpdatedField::Position }
    }

    /// T2 or T3.
    pub(crate) const fn updating(updates: Updates, field: UpdatedField) -> Self {
        Self { visits: Visits::AllParts, updates, field }
    }

    /// Whether it changes nothing.
    pub(crate) fn is_read_only(self) -> bool {
        self.updates == Updates::None
    }

    /// Traverses a module.
    pub(crate) async fn run(self, objects: &impl Objects, module: u32) -> Result<Counts> {
        let mut counts = Counts::default();
        let module = objects.module(module).await?;
        let mut assemblies = vec![objects.get(module).await?.design_root];
        while let Some(assembly) = assemblies.pop() {
            let assembly = objects.get(assembly).await?;
            for base in &assembly.base_assemblies {
                for part in &objects.get(*base).await?.components {
                    self.visit_composite_part(objects, *part, &mut counts).await?;
                }
            }
            assemblies.extend(assembly.sub_assemblies.iter().rev());
        }
        Ok(counts)
    }

    /// Descends from the root of a module to a base assembly and visits one of its composite parts. `choose` takes a branch: it returns a
    /// number below the one that it is given.
    pub(crate) async fn run_one(
        self,
        objects: &impl Objects,
        module: Ref<Module>,
        mut choose: impl FnMut(usize) -> usize,
    ) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut assembly = objects.get(module).await?.design_root;
        let base = loop {
            let loaded = objects.get(assembly).await?;
            if loaded.sub_assemblies.is_empty() {
                break loaded.base_assemblies[choose(loaded.base_assemblies.len())];
            }
            assembly = loaded.sub_assemblies[choose(loaded.sub_assemblies.len())];
        };
        let part = {
            let components = &objects.get(base).await?.components;
            components[choose(components.len())]
        };
        self.visit_composite_part(objects, part, &mut counts).await?;
        Ok(counts)
    }

    /// The composite parts of a module.
    pub(crate) async fn composite_parts(
        objects: &impl Objects,
        module: Ref<Module>,
    ) -> Result<HashSet<Ref<CompositePart>>> {
        let mut found = HashSet::new();
        let mut assemblies = vec![objects.get(module).await?.design_root];
        while let Some(assembly) = assemblies.pop() {
            let assembly = objects.get(assembly).await?;
            for base in &assembly.base_assemblies {
                found.extend(objects.get(*base).await?.components.iter().copied());
            }
            assemblies.extend(&assembly.sub_assemblies);
        }
        Ok(found)
    }

    /// Visits the graph of a composite part, depth first.
    pub(crate) async fn visit_composite_part(
        self,
        objects: &impl Objects,
        part: Ref<CompositePart>,
        counts: &mut Counts,
    ) -> Result<()> {
        let updates = if counts.visited == 0 { self.updates.of_first() } else { self.updates };
        let root = objects.get(part).await?.root_part;
        let (mut visited, mut connections) = (HashSet::new(), Vec::new());
        let mut next = Some(root);
        while let Some(part) = next {
            if visited.insert(part) {
                let loaded = objects.get(part).await?;
                counts.visited += visit(&loaded);
                if self.visits == Visits::AllParts {
                    connections.extend(loaded.outgoing.iter().rev());
                }
                drop(loaded);
                for _ in 0..updates.of_part(part == root) {
                    self.update(objects, part).await?;
                    counts.updated += 1;
                }
            }
            next = match connections.pop() {
                Some(connection) => Some(objects.get(connection).await?.target),
                None => None,
            };
        }
        Ok(())
    }

    async fn update(self, objects: &impl Objects, part: Ref<AtomicPart>) -> Result<()> {
        let change = |part: &mut AtomicPart| match self.field {
            UpdatedField::Position => (part.x, part.y) = (part.x + 1, part.y + 1),
            UpdatedField::BuildDate => part.build_date += 1,
        };
        objects.update(part, change).await
    }
}

impl Updates {
    /// The updates in the first composite part.
    pub(super) fn of_first(self) -> Self {
        if self == Self::FirstCompositePart { Self::AllParts } else { self }
    }

    /// How often an atomic part is changed.
    pub(super) fn of_part(self, is_root: bool) -> u32 {
        match self {
            Self::None | Self::FirstCompositePart => 0,
            Self::RootPart => u32::from(is_root),
            Self::AllParts => 1,
            Self::AllPartsFourTimes => 4,
        }
    }
}

/// Visits an atomic part: reads two fields, whose sum is never negative.
pub(crate) fn visit(part: &AtomicPart) -> u64 {
    u64::from(part.x + part.y >= 0)
}
