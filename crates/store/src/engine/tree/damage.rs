//! What can be wrong with the file of the tree.

use std::fmt;

use super::super::EngineError;
use super::NAME;
use super::page::PAGE;

/// A damaged page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageDamage {
    pub(super) page: u64,
    pub(super) fault: PageFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageFault {
    Checksum,
    /// The checksum of a value on pages of its own.
    Value,
    /// It is not the page that its parent expects.
    Structure,
    /// Its number is beyond the end of the tree.
    Number,
    /// It was damaged when a row of it was to be changed. Rows that were changed since are in its place.
    Lost,
}

impl PageDamage {
    pub(super) fn error(page: u64, fault: PageFault) -> EngineError {
        EngineError::Damaged(Box::new(Self { page, fault }))
    }

    pub(super) fn structure(page: u64) -> EngineError {
        Self::error(page, PageFault::Structure)
    }
}

impl fmt::Display for PageDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, fault } = self;
        let at = page.saturating_mul(PAGE as u64);
        match fault {
            PageFault::Checksum => write!(f, "the checksum of page {page} at byte {at} of {NAME} does not match"),
            PageFault::Value => write!(f, "the checksum of the value at byte {at} of {NAME} does not match"),
            PageFault::Structure => write!(f, "page {page} at byte {at} of {NAME} is not valid"),
            PageFault::Number => write!(f, "a page of {NAME} names page {page}, which does not exist"),
            PageFault::Lost => {
                write!(f, "page {page} at byte {at} of {NAME} replaces a damaged one, whose other rows are lost")
            }
        }
    }
}

impl std::error::Error for PageDamage {}

/// Why the file was refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileDamage {
    #[error("{NAME} was truncated: it has {found} bytes and needs {needed}")]
    Truncated { found: u64, needed: u64 },
    #[error("{NAME} has no valid header")]
    Header,
    #[error("{NAME} has format {format}; this version reads format {known}")]
    Format { format: u32, known: u32 },
    #[error("{NAME} belongs to another store: put back the B-tree of this store")]
    OtherStore,
}
