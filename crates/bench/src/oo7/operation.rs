//! The traversals and queries by their names.

use std::fmt;

use clap::ValueEnum;
use client::Result;

use super::design::Design;
use super::objects::Database;
use super::query::Query;
use super::traversal::{Counts, Traversal, UpdatedField, Updates, Visits};

/// A traversal or a query of OO7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Visits every atomic part of every composite part of every base assembly.
    T1,
    /// T1, and updates of one atomic part of each composite part.
    T2a,
    /// T1, and updates of all atomic parts.
    T2b,
    /// T1, and four updates of all atomic parts.
    T2c,
    /// T1, and updates of all atomic parts of the first composite part: "T2b" of the BuddyCache paper, section 6.2.
    T2one,
    /// T2a with updates of the build date, which has an index.
    T3a,
    /// T2b with updates of the build date.
    T3b,
    /// T2c with updates of the build date.
    T3c,
    /// Visits the root part of every composite part of every base assembly.
    T6,
    /// Ten atomic parts by identifier.
    Q1,
    /// Atomic parts of the latest 1 % of the build dates.
    Q2,
    /// Atomic parts of the latest 10 % of the build dates.
    Q3,
    /// A hundred documents by title, and the base assemblies that use their composite parts.
    Q4,
    /// Base assemblies that use a composite part with a later build date.
    Q5,
    /// The assemblies of Q5, and all assemblies above them.
    Q6,
    /// Atomic parts of all build dates.
    Q7,
    /// Pairs of documents and atomic parts with the identifier of the document.
    Q8,
}

/// What an operation does.
pub(super) enum Kind {
    Traversal(Traversal),
    Query(Query),
}

impl Operation {
    /// Runs the operation in a transaction. A traversal visits the module with this number.
    pub(crate) async fn run(self, database: &impl Database, design: &Design, module: u32) -> Result<Counts> {
        match self.kind() {
            Kind::Traversal(traversal) if traversal.is_read_only() => {
                database.traverse(async |objects| traversal.run(objects, module).await).await
            }
            Kind::Traversal(traversal) => database.transact(async |objects| traversal.run(objects, module).await).await,
            Kind::Query(query) => {
                let visited = database.transact(async |objects| query.run(objects, design).await).await?;
                Ok(Counts { visited, updated: 0 })
            }
        }
    }

    pub(super) fn kind(self) -> Kind {
        use UpdatedField::{BuildDate, Position};
        let updating = |updates, field| Kind::Traversal(Traversal::updating(updates, field));
        match self {
            Self::T1 => Kind::Traversal(Traversal::reading(Visits::AllParts)),
            Self::T2a => updating(Updates::RootPart, Position),
            Self::T2b => updating(Updates::AllParts, Position),
            Self::T2c => updating(Updates::AllPartsFourTimes, Position),
            Self::T2one => updating(Updates::FirstCompositePart, Position),
            Self::T3a => updating(Updates::RootPart, BuildDate),
            Self::T3b => updating(Updates::AllParts, BuildDate),
            Self::T3c => updating(Updates::AllPartsFourTimes, BuildDate),
            Self::T6 => Kind::Traversal(Traversal::reading(Visits::RootPart)),
            Self::Q1 => Kind::Query(Query::Lookups),
            Self::Q2 => Kind::Query(Query::BuildDates { percent: 1 }),
            Self::Q3 => Kind::Query(Query::BuildDates { percent: 10 }),
            Self::Q4 => Kind::Query(Query::Documents),
            Self::Q5 => Kind::Query(Query::Make),
            Self::Q6 => Kind::Query(Query::MultiLevelMake),
            Self::Q7 => Kind::Query(Query::BuildDates { percent: 100 }),
            Self::Q8 => Kind::Query(Query::Join),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
