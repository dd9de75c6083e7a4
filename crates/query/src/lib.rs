//! Queries: what is asked, how it is answered, and where.
//!
//! 1. A [`Query`] is a typed tree, built by a program or read from text ([`Query::parse`]); it travels in a compact encoding.
//! 2. [`Query::check`] holds it against a [`Schema`]: names become field numbers, every part gets a type, and what does not
//!    fit is an error that points at its place.
//! 3. [`CheckedQuery::plan`] decides what goes down to the bricks as a filter or as a range of an [`Index`], and what is left.
//! 4. A [`QueryRun`] does what is left: it takes candidates, asks for the objects that they refer to, and gives rows.
//!
//! Nothing here does I/O, waits or reads a clock: whoever drives a run brings it the objects. What nulls mean is the
//! same everywhere, as docs/decisions/filter-nulls.md has it; docs/queries.md is the description for users.

mod check;
mod eval;
pub mod key;
pub mod limits;
mod number;
mod plan;
mod query;
mod run;
pub mod schema;
mod text;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod world;

pub use check::{CheckedQuery, Column};
pub use plan::{CandidateSource, Counts, Index, IndexRanges, Plan, PlanStep};
pub use query::{Aggregate, Arithmetic, Expr, Function, Item, OrderKey, Query};
pub use run::{Progress, QueryRun, Row};
pub use schema::{Class, Field, Schema, Type};
