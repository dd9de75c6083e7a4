//! The rivals that Mortar is compared with, each with its best reasonable settings.

#[cfg(libdb)]
pub(crate) mod berkeley;
pub(crate) mod group_commit;
pub(crate) mod lmdb;
pub(crate) mod plain_file;
pub(crate) mod servers;

/// The note in a report if Berkeley DB is missing.
pub(crate) fn missing() -> Vec<String> {
    if cfg!(libdb) {
        return Vec::new();
    }
    vec![
        "Berkeley DB 5.3 was missing when this was built: install libdb5.3-dev (script/bench does, as root)".to_owned(),
    ]
}
