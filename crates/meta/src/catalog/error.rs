//! The errors of operations on the catalogue.

use model::{Error, ErrorKind, NodeId};
use thiserror::Error as ThisError;

use super::evolution::EvolutionError;
use super::ident::BrickId;

/// Why an operation on the catalogue failed. Nothing was changed, except that the outcome of a [`CatalogError::Store`] may be
/// unknown.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum CatalogError {
    /// An entry of that name exists.
    #[error("there is {} {what} named {name:?} already: choose another name", article(what))]
    Exists {
        /// The kind of entry: "space", "class", ...
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// No entry has that name.
    #[error("there is no {what} {name:?}: {}", missing_remedy(what))]
    Missing {
        /// The kind of entry.
        what: &'static str,
        /// The requested name or number.
        name: String,
    },
    /// A name or another argument is not allowed.
    #[error("{what} cannot be {given:?}: {why}")]
    Invalid {
        /// What the argument stands for.
        what: &'static str,
        /// The argument.
        given: String,
        /// The rule that it violates.
        why: String,
    },
    /// A password is too short or too long.
    #[error("the password has {length}; it must have {needed}")]
    PasswordLength {
        /// Its length with its unit.
        length: String,
        /// The rule that it violates.
        needed: String,
    },
    /// A limit is reached.
    #[error("there are {limit} {what}, the maximum: remove some")]
    TooMany {
        /// What the limit counts.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// Another entry depends on it.
    #[error("the {what} {name:?} is needed by {by}: {remedy}")]
    InUse {
        /// The kind of entry that was to be removed or changed.
        what: &'static str,
        /// Its name.
        name: String,
        /// What depends on it.
        by: String,
        /// What to do first.
        remedy: &'static str,
    },
    /// A removal was taken back, or another one of the same has begun.
    #[error("the removal of {what} {name:?} was taken back, or begun again: nothing was removed")]
    RemovalEnded {
        /// The kind of entry that was being removed.
        what: &'static str,
        /// Its name, or that of its space.
        name: String,
    },
    /// There is no removal that could be cancelled.
    #[error("the {what} {name:?} is not being removed: there is nothing to cancel")]
    NotBeingRemoved {
        /// The kind of entry.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A class cannot change in this way.
    #[error("class {class:?} cannot change in this way: {why}")]
    Evolution {
        /// The class.
        class: String,
        /// The reason.
        why: EvolutionError,
    },
    /// The class exists with other fields.
    #[error("class {class:?} exists and differs ({difference}): evolve it to match the definition")]
    Differs {
        /// The class.
        class: String,
        /// The first difference.
        difference: String,
    },
    /// The class exists and cannot be extended to match a program's.
    #[error("class {class:?} exists and differs from the program's ({difference}): update the program")]
    Incompatible {
        /// The class.
        class: String,
        /// The first difference.
        difference: String,
    },
    /// No brick that could serve new logical nodes is alive.
    #[error("no brick{needed} is alive: start one, then try again")]
    NoBricks {
        /// What the brick needs, with a space before it; nothing if no brick of any kind is alive.
        needed: String,
    },
    /// A newer process has taken over.
    #[error("{what} {id} was started again as number {newer}; this is number {start}: end this process")]
    Superseded {
        /// "brick" or "peer server".
        what: &'static str,
        /// Its number.
        id: u32,
        /// The number of this start.
        start: u64,
        /// The number of the later start.
        newer: u64,
    },
    /// A logical node is in the wrong state for the change.
    #[error("logical node {node:x} is {state}: {remedy}")]
    WrongMoveState {
        /// The node.
        node: u32,
        /// Its state.
        state: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A clone cannot be made while a logical node moves.
    #[error("logical node {node} is being moved: a clone waits for its end")]
    Moving {
        /// The node.
        node: NodeId,
    },
    /// A space cannot be cloned.
    #[error("the unique index {index:?} has a reference, which has another value in a clone: drop the index first")]
    Unclonable {
        /// The index.
        index: String,
    },
    /// A job is in the wrong state for the change.
    #[error("job {job} is {state}: {remedy}")]
    WrongJobState {
        /// The job.
        job: u64,
        /// Its state.
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
        /// The format of the catalogue.
        found: u32,
        /// The newest format that this version knows.
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
    /// Every attempt conflicted with a concurrent change.
    #[error("the change conflicted with concurrent changes of the catalogue in {attempts} attempts: try again")]
    Busy {
        /// Number of attempts.
        attempts: u32,
    },
    /// The store of the catalogue has failed.
    #[error(transparent)]
    Store(#[from] Error),
}

impl CatalogError {
    /// The kind of the error, which tells the caller what to do.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Exists { .. } | Self::Differs { .. } => ErrorKind::Exists,
            Self::Evolution { why: EvolutionError::FieldExists { .. }, .. } => ErrorKind::Exists,
            Self::Evolution { why: EvolutionError::NoField(_), .. } => ErrorKind::NotFound,
            Self::Invalid { .. }
            | Self::PasswordLength { .. }
            | Self::InUse { .. }
            | Self::Evolution { .. }
            | Self::Incompatible { .. }
            | Self::WrongMoveState { .. } => ErrorKind::Invalid,
            Self::Missing { .. } | Self::NotSetUp => ErrorKind::NotFound,
            Self::RemovalEnded { .. } | Self::NotBeingRemoved { .. } | Self::WrongJobState { .. } => {
                ErrorKind::Conflict
            }
            Self::TooMany { .. } => ErrorKind::Full,
            Self::NoBricks { .. } | Self::Busy { .. } | Self::Moving { .. } => ErrorKind::Unavailable,
            Self::Superseded { .. } => ErrorKind::Denied,
            Self::Newer { .. } | Self::Unclonable { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } => ErrorKind::Corrupt,
            Self::Store(error) => error.kind(),
        }
    }

    pub(super) fn missing(what: &'static str, name: impl ToString) -> Self {
        Self::Missing { what, name: name.to_string() }
    }

    /// The error for a move to a brick that is being drained.
    pub(super) fn brick_draining(brick: BrickId) -> Self {
        let why = format!("it is being drained: to keep it, run `mortar remap --cancel --drain {brick}` first");
        Self::invalid("the brick that logical nodes move to", brick, why)
    }

    pub(crate) fn invalid(what: &'static str, given: impl ToString, why: impl Into<String>) -> Self {
        /// Most characters that are quoted.
        const QUOTED: usize = 100;
        let given: String = given.to_string().chars().take(QUOTED).collect();
        Self::Invalid { what, given, why: why.into() }
    }
}

/// What to do when there is no entry of a kind. Some kinds are made only by processes.
fn missing_remedy(what: &str) -> &'static str {
    match what {
        "space" | "class" | "field" | "index" | "user" | "group" => "list the existing ones, or create it",
        _ => "list the existing ones",
    }
}

/// The indefinite article of a kind of entry.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_user_can_create_is_offered_to_be_created() {
        assert!(CatalogError::missing("space", "x").to_string().ends_with("list the existing ones, or create it"));
        assert!(CatalogError::missing("brick", 9).to_string().ends_with("list the existing ones"));
    }
}
