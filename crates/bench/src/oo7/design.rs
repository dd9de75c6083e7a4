//! The sizes of an OO7 database.

use clap::ValueEnum;

/// How many objects a database has, and how large its texts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Design {
    pub(crate) modules: u32,
    /// Levels of assemblies in a module. Those of the last level are base assemblies.
    pub(crate) levels: u32,
    /// Assemblies below a complex assembly.
    pub(crate) fanout: usize,
    /// Composite parts of a base assembly.
    pub(crate) components: usize,
    /// Composite parts of a module.
    pub(crate) composite_parts: usize,
    /// Atomic parts of a composite part.
    pub(crate) atomic_parts: usize,
    /// Outgoing connections of an atomic part.
    pub(crate) connections: usize,
    pub(crate) document_bytes: usize,
    pub(crate) manual_bytes: usize,
}

/// A named size: the sizes of OO7, and a small one for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Size {
    /// 20 composite parts of 5 atomic parts, 3 levels: for tests.
    Tiny,
    /// 500 composite parts of 20 atomic parts, 7 levels.
    Small,
    /// 500 composite parts of 200 atomic parts, 7 levels.
    Medium,
}

impl Design {
    /// A database of this many modules.
    pub(crate) fn new(size: Size, modules: u32) -> Self {
        let small = Self {
            modules,
            levels: 7,
            fanout: 3,
            components: 3,
            composite_parts: 500,
            atomic_parts: 20,
            connections: 3,
            document_bytes: 2_000,
            manual_bytes: 100_000,
        };
        match size {
            Size::Tiny => Self {
                levels: 3,
                composite_parts: 20,
                atomic_parts: 5,
                document_bytes: 200,
                manual_bytes: 1_000,
                ..small
            },
            Size::Small => small,
            Size::Medium => Self { atomic_parts: 200, document_bytes: 20_000, manual_bytes: 1_000_000, ..small },
        }
    }

    /// A database with a private module for each user, and after those a module that all share.
    pub(crate) fn for_users(size: Size, users: u32) -> Self {
        Self::new(size, if users == 1 { 1 } else { users + 1 })
    }

    /// Base assemblies of a module.
    pub(crate) fn base_assemblies(&self) -> usize {
        self.fanout.pow(self.levels - 1)
    }

    /// Assemblies of a module.
    pub(crate) fn assemblies(&self) -> usize {
        (0..self.levels).map(|level| self.fanout.pow(level)).sum()
    }

    /// Composite parts of all modules.
    pub(crate) fn all_composite_parts(&self) -> usize {
        self.modules as usize * self.composite_parts
    }

    /// Atomic parts of all modules.
    pub(crate) fn all_atomic_parts(&self) -> usize {
        self.all_composite_parts() * self.atomic_parts
    }
}
