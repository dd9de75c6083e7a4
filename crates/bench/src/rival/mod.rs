//! What Mortar is measured beside, each at its best reasonable settings.

#[cfg(libdb)]
pub(crate) mod berkeley;
pub(crate) mod group_commit;
pub(crate) mod lmdb;
pub(crate) mod plain_file;
pub(crate) mod servers;
