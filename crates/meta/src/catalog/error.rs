//! The errors of operations on the catalogue.

use model::{Error, ErrorKind};
use thiserror::Error as ThisError;

use super::evolution::EvolutionError;
use super::ident::BrickId;

/// Why an operation on the catalogue was refused. Nothing was changed, except where a [`CatalogError::Store`] says that it
/// is unknown.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CatalogError {
    /// There is one of that name already.
    #[error("there is {} {what} named {name:?} already: choose another name", article(what))]
    Exists {
        /// What there is: "space", "class", ...
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// There is none of that name.
    #[error("there is no {what} {name:?}: look at which there are, or create it")]
    Missing {
        /// What there is not.
        what: &'static str,
        /// The name, or the number, that was asked for.
        name: String,
    },
    /// A name, or something else that was given, is not allowed.
    #[error("{what} cannot be {given:?}: {why}")]
    Invalid {
        /// What it was to be.
        what: &'static str,
        /// What was given.
        given: String,
        /// What it has to be instead.
        why: String,
    },
    /// There are as many as there may be.
    #[error("there are as many {what} as there may be, {limit}: remove some")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: u64,
    },
    /// Something else needs it.
    #[error("the {what} {name:?} is needed by {by}: {remedy}")]
    InUse {
        /// What was to go or to change.
        what: &'static str,
        /// Its name.
        name: String,
        /// What needs it.
        by: String,
        /// What to do first.
        remedy: &'static str,
    },
    /// A class cannot change so.
    #[error("class {class:?} cannot change so: {why}")]
    Evolution {
        /// The class.
        class: String,
        /// Why not.
        why: EvolutionError,
    },
    /// The class is there, with other fields.
    #[error("class {class:?} is there and differs ({difference}): evolve it to what is wanted")]
    Differs {
        /// The class.
        class: String,
        /// The first difference.
        difference: String,
    },
    /// The class is there, and cannot become what a program has.
    #[error("class {class:?} is there and differs from the program's ({difference}): bring the program up to it")]
    Incompatible {
        /// The class.
        class: String,
        /// The first difference.
        difference: String,
    },
    /// No brick that could serve new logical nodes is alive.
    #[error("no brick that keeps objects {storage} is alive: start one, then try again")]
    NoBricks {
        /// Where objects were to be kept.
        storage: &'static str,
    },
    /// A newer process has taken over.
    #[error("{what} {id} was started again as number {newer}; this is number {start}: end this process")]
    Superseded {
        /// "brick" or "peer server".
        what: &'static str,
        /// Its number.
        id: u32,
        /// Which start this is.
        start: u64,
        /// Which start there is.
        newer: u64,
    },
    /// A logical node is in another state than the change needs.
    #[error("logical node {node:x} is {state}: {remedy}")]
    WrongMoveState {
        /// The node.
        node: u32,
        /// In which state it is.
        state: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The catalogue is empty.
    #[error("the catalogue has not been set up: start a meta-server, or `mortar cluster up`")]
    NotSetUp,
    /// A newer program has written the catalogue.
    #[error("the catalogue has format {found}, this program reads {known}: upgrade this program")]
    Newer {
        /// The format that it has.
        found: u32,
        /// The format that is known here.
        known: u32,
    },
    /// An entry cannot be read.
    #[error("the catalogue's entry {key} is damaged: {why}; restore the meta-server from a backup, or mend the entry")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// Others changed the same again and again.
    #[error("others kept changing the same part of the catalogue, {attempts} times: try again")]
    Busy {
        /// How often it was tried.
        attempts: u32,
    },
    /// What keeps the catalogue has failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl CatalogError {
    /// What the caller should do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Exists { .. } | Self::Differs { .. } => ErrorKind::Exists,
            Self::Evolution { why: EvolutionError::FieldExists { .. }, .. } => ErrorKind::Exists,
            Self::Evolution { why: EvolutionError::NoField(_), .. } => ErrorKind::NotFound,
            Self::Invalid { .. }
            | Self::InUse { .. }
            | Self::Evolution { .. }
            | Self::Incompatible { .. }
            | Self::WrongMoveState { .. } => ErrorKind::Invalid,
            Self::Missing { .. } | Self::NotSetUp => ErrorKind::NotFound,
            Self::TooMany { .. } => ErrorKind::Full,
            Self::NoBricks { .. } | Self::Busy { .. } => ErrorKind::Unavailable,
            Self::Superseded { .. } => ErrorKind::Denied,
            Self::Newer { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Store(error) => error.kind(),
        }
    }

    pub(super) fn missing(what: &'static str, name: impl ToString) -> Self {
        Self::Missing { what, name: name.to_string() }
    }

    /// A brick that is to be emptied gets no logical node.
    pub(super) fn brick_draining(brick: BrickId) -> Self {
        let why =
            format!("it is to be empty: `mortar remap --cancel --drain {brick}` first, if it is to stay after all");
        Self::invalid("the brick that logical nodes move to", brick, why)
    }

    pub(super) fn invalid(what: &'static str, given: impl ToString, why: impl Into<String>) -> Self {
        /// Bytes that are quoted.
        const QUOTED: usize = 100;
        let given: String = given.to_string().chars().take(QUOTED).collect();
        Self::Invalid { what, given, why: why.into() }
    }
}

/// The article of a word that the catalogue has things of.
fn article(what: &str) -> &'static str {
    if what.starts_with(['a', 'e', 'i', 'o']) { "an" } else { "a" }
}

impl From<CatalogError> for Error {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Store(error) => error,
            other => Error::new(other.kind(), other.to_string()),
        }
    }
}
