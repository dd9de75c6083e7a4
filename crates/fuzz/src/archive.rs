//! The fuzz target of archives, which may come from any source.

use store::check_archive;

pub(crate) fn run(data: &[u8]) {
    let _ = check_archive(data);
}
