//! Queries: their form, their plans and their evaluation.
//!
//! 1. A [`Query`] is a typed tree, built by a program or parsed from text ([`Query::parse`]). It is sent in a compact encoding.
//! 2. [`Query::check`] checks it against a [`Schema`]: names become field numbers, every part gets a type, and errors point at the
//!    part that is wrong.
//! 3. [`CheckedQuery::plan`] decides what the bricks evaluate, as a filter or a range of an [`Index`], and what remains.
//! 4. A [`QueryRun`] evaluates the rest: it takes candidates, asks for the objects that they refer to, and returns rows.
//!
//! This crate does no I/O, does not wait and reads no clock: the driver of a run provides the objects. The meaning of
//! nulls is the same everywhere (docs/decisions/filter-nulls.md). docs/queries.md is the description for users.

mod check;
mod eval;
pub mod key;
pub mod limits;
mod number;
mod plan;
#[doc(hidden)]
pub mod plant;
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
