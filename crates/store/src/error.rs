//! Conversion of the store's internal errors to the public [`Error`].

use std::io;

use model::{ContentId, Error, ErrorKind};

use crate::disk;
use crate::engine::EngineError;
use crate::log::LogError;
use crate::rows::row::RowError;

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

pub(crate) fn too_large(what: &str, size: u64, limit: u64) -> Error {
    Error::new(ErrorKind::TooLarge, format!("{what} has {size} bytes; the limit is {limit}"))
}

pub(crate) fn no_content(id: ContentId) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no content {id}"))
}

/// Why a content cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{row}")]
struct DamagedContent {
    id: ContentId,
    row: RowError,
}

/// The error for a stored row of a content that cannot be read.
pub(crate) fn corrupt(id: ContentId, row: RowError) -> Error {
    let message = format!("content {id} is damaged: {row}; restore it from a backup, or remove it");
    Error::new(ErrorKind::Corrupt, message).with_source(DamagedContent { id, row })
}

/// The error for a content that something in the same state of the store names, and that the store does not have: it is damage.
#[must_use]
pub fn lost_content(id: ContentId) -> Error {
    corrupt(id, RowError::Gone)
}

/// The error for another stored row that cannot be read.
pub(crate) fn corrupt_row(what: &str, row: RowError) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what} is damaged: {row}; run `mortar scrub`")).with_source(row)
}

pub(crate) fn io(what: &str, error: io::Error) -> Error {
    if disk::is_full(&error) {
        let message = format!("{what}: the disk is full; nothing was changed; free disk space and try again");
        return Error::new(ErrorKind::Full, message).with_source(error);
    }
    Error::new(ErrorKind::Io, format!("{what}: {error}")).with_source(error)
}

/// Whether an error says that a part of the B-tree cannot be read: a [scrub](crate::Store::scrub) names that part.
#[must_use]
pub fn is_unreadable_part(error: &Error) -> bool {
    causes(error).any(|cause| matches!(cause.downcast_ref(), Some(EngineError::Damaged(_))))
}

/// The content that is damaged according to an error, if it says that of one.
#[must_use]
pub fn damaged_content(error: &Error) -> Option<ContentId> {
    causes(error).find_map(|cause| cause.downcast_ref().map(|damaged: &DamagedContent| damaged.id))
}

/// An error and its causes.
fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

pub(crate) fn closed_error() -> Error {
    Error::new(ErrorKind::Unavailable, "the store is closed")
}

impl From<EngineError> for StoreError {
    fn from(error: EngineError) -> Self {
        let message = match &error {
            EngineError::Full(_) => {
                "the B-tree has no room: the disk is full; free disk space and try again".to_owned()
            }
            EngineError::Aborted => "a batch for the B-tree was aborted".to_owned(),
            EngineError::Damaged(source) => format!("the B-tree is damaged: {source}; restore from a backup"),
            EngineError::Failed(source) => format!("the B-tree failed: {source}"),
        };
        let kind = match error {
            EngineError::Full(_) => ErrorKind::Full,
            EngineError::Damaged(_) => ErrorKind::Corrupt,
            EngineError::Aborted | EngineError::Failed(_) => ErrorKind::Io,
        };
        Self(Error::new(kind, message).with_source(error))
    }
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> Self {
        Self(match error {
            LogError::Full(source) | LogError::NoSegment(source) => io("the log needs another segment", source),
            LogError::Chunks(source) => io("forcing a blob file", source),
            LogError::Io(source) => io("the log failed", source),
            LogError::Damaged(ref damage) => {
                let message = format!(
                    "the log is damaged: {damage}. Restore from a backup, or accept the loss with `mortar repair`"
                );
                Error::new(ErrorKind::Corrupt, message).with_source(error)
            }
            LogError::Replay { .. } => {
                Error::new(ErrorKind::Corrupt, format!("{error}; restore from a backup, and report a bug"))
                    .with_source(error)
            }
        })
    }
}

/// A wrapper through which internal errors become [`Error`], a type of another crate.
pub(crate) struct StoreError(pub(crate) Error);

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        error.0
    }
}

/// Converts a result with an internal error.
pub(crate) trait IntoModelResult<T> {
    fn into_model_result(self) -> model::Result<T>;
}

impl<T, E: Into<StoreError>> IntoModelResult<T> for Result<T, E> {
    fn into_model_result(self) -> model::Result<T> {
        self.map_err(|error| error.into().0)
    }
}
