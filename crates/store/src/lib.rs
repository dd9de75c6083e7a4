//! The storage of one brick: rows, contents, and one log.
//!
//! Rows are an ordered map from keys to values. Contents are bytes of any size under identifiers. A commit changes rows and
//! contents together.
//!
//! A commit passes through these steps; readers see its changes after the fourth:
//!
//! ```text
//!   stage ──▶ apply ──▶ log ──▶ force ──▶ show ──▶ install
//!   limits,   rows in   frame   one for   visible  B-tree,
//!   chunks    the MOB           a batch   position segments freed
//! ```
//!
//! | module | contains |
//! | --- | --- |
//! | `commit` | changes of rows and contents; the steps of a commit, `stage` to `install`; `housekeeping` after them |
//! | `log` | segments, frames, entries, and recovery |
//! | `rows` | keys, encodings, and the modified object buffer (MOB) with the changes that are not in the B-tree yet |
//! | `content` | blob files with whole chunks, and uploads |
//! | `read` | rows and contents in the state that readers see, and its layers: MOB, then B-tree and blob files |
//! | `engine` | the B-tree: in a file, or in memory |
//! | `disk`, `directory` | files, and the directory of a store |
//! | `open` | opening: replays what the log has beyond the B-tree |
//! | `backup`, `scrub`, `repair` | archives, checking, and mending a damaged store |
//! | `change_tracking`, `roll_forward` | archives of what has changed since a moment, and applying them to a restored store |
//! | `store` | the handles |
//! | `sim` | a store on a simulated machine |
//!
//! Modules depend on each other in one direction; `tests/module_order.rs` has the order.

mod backup;
mod change_tracking;
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
mod roll_forward;
mod rows;
mod scrub;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod status;
mod store;

pub use backup::restore::RestoreTarget;
pub use backup::{ArchiveSink, BackupSummary, BaseIndex, check_archive, read_archive_index};
pub use change_tracking::{ChangeSet, ChangeTracker};
pub use commit::contents::ContentChange;
pub use commit::force_scope::ForceScope;
pub use commit::row_changes::{RowChanges, RowReply, RowSequence};
pub use directory::{DirectoryContents, lock_owner, prepare_directory};
pub use disk::{begin_write_back, rename_new};
pub use error::{damaged_content, is_unreadable_part, lost_content};
pub use open::check_log_payload;
pub use options::{Options, machine_memory, share_of_memory};
pub use progress::{Amount, Progress};
pub use read::rows::RowValue;
pub use read::{Piece, Pieces};
pub use repair::{EssentialRows, Loss, RepairReport};
pub use roll_forward::{RollForward, check_changes};
pub use rows::key_range::KeyRange;

pub use scrub::{Damage, ScrubReport, TreeCheck};
pub use status::Status;
pub use store::{Hold, Snapshot, Store};

use model::checksum;

#[cfg(test)]
mod tests;
