//! The durable object store of one brick.
//!
//! ```text
//!   Store ── stage ── apply ── log ── MOB ── B-tree          blob files: whole chunks, written once
//!             │         │       │      │        │
//!          limits    rows    force   reads   installs
//! ```
//!
//! A transaction is checked and its large content staged (`stage`); applied under one lock to the rows that it changes
//! (`apply`); forced with others in one write (`commit`, `log`); kept in the modified object buffer (`mob`) and
//! moved to the B-tree in the background (`install`, `engine`). Reads look through these layers (`layers`).
//! Opening replays what the log has beyond the B-tree (`open`).

mod backup;
mod commit;
mod content;
mod directory;
mod disk;
mod engine;
mod error;
pub mod log;
mod open;
mod options;
pub mod plant;
mod progress;
mod read;
mod repair;
mod rows;
mod scrub;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod status;
mod store;

pub use backup::{BackupSummary, check_archive};
pub use commit::row_changes::{RowChanges, RowSequence};
pub use directory::{DirectoryContents, lock_owner, prepare_directory};
pub use open::check_log_payload;
pub use options::Options;
pub use progress::{Amount, Progress};
pub use read::{ContentRef, Piece, Pieces};
pub use repair::RepairReport;

pub use scrub::{Damage, ScrubReport};
pub use status::Status;
pub use store::{Snapshot, Store};

use model::checksum;

#[cfg(test)]
mod tests;
