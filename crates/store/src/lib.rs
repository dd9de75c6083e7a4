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

mod apply;
mod backup;
mod blob_file;
mod changes;
mod commit;
mod commit_queue;
mod committer;
mod core;
mod directory;
mod disk;
mod engine;
mod entry;
mod error;
mod install;
mod key;
mod key_index;
mod layers;
mod listing_cache;
pub mod log;
mod mob;
mod open;
mod options;
mod patch;
pub mod plant;
mod progress;
mod read;
mod repair;
mod round;
mod row;
mod rows;
mod scrub;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod slab;
mod stage;
mod status;
mod store;
mod upload;
mod view;

pub use backup::{BackupSummary, check_archive};
pub use directory::{DirectoryContents, lock_owner, prepare_directory};
pub use options::Options;
pub use progress::{Amount, Progress};
pub use read::{ContentRef, Piece, Pieces};
pub use repair::RepairReport;
pub use rows::{RowChanges, RowSequence};
pub use scrub::{Damage, ScrubReport};
pub use status::Status;
pub use store::{Snapshot, Store};

use model::checksum;

#[cfg(test)]
mod tests;
