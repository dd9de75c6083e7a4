//! The target of backups: what restoring reads, which may come from anywhere.

use store::check_archive;

pub(crate) fn run(data: &[u8]) {
    let _ = check_archive(data);
}
