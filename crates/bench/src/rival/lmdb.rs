//! Bare LMDB: a B-tree in a memory map, as the store's is, without checksums and without a store.

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use heed::types;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, WithTls};

use crate::Result;

type Table = Database<'static, types::Bytes, types::Bytes>;

/// One table of 16-byte keys.
pub(crate) struct Lmdb {
    env: Env<WithTls>,
    table: Table,
}

impl Lmdb {
    /// Creates a database with these pairs, in one transaction.
    pub(crate) fn create<'a>(path: &Path, pairs: impl Iterator<Item = ([u8; 16], &'a [u8])>) -> Result<Self> {
        std::fs::create_dir_all(path)?;
        // SAFETY: no other process opens or changes this directory, which was just created.
        let env = unsafe {
            // Read-ahead slows random reads down; the map is large enough for any data that fits into memory.
            EnvOpenOptions::new().map_size(64 << 30).max_readers(64).flags(EnvFlags::NO_READ_AHEAD).open(path)?
        };
        let txn = env.write_txn()?;
        let table = env.create_databases_and_commit(txn, |opener, txn| {
            let created = opener.create_database::<types::Bytes, types::Bytes>(txn, None);
            created.map(CommitOrAbort::<_, Infallible>::Commit)
        })?;
        let table = table.unwrap_commit();
        let mut txn = env.write_txn()?;
        for (key, value) in pairs {
            table.put(&mut txn, &key, value)?;
        }
        txn.commit()?;
        Ok(Self { env, table })
    }

    /// The newest committed value: a read transaction, a lookup and a copy out of the map.
    pub(crate) fn get(&self, key: [u8; 16]) -> Result<Option<Bytes>> {
        let txn = self.env.read_txn()?;
        Ok(self.table.get(&txn, &key)?.map(Bytes::copy_from_slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_values_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let pairs = [([1; 16], b"one".as_slice()), ([2; 16], b"two")];
        let lmdb = Lmdb::create(directory.path(), pairs.into_iter()).unwrap();
        assert_eq!(lmdb.get([2; 16]).unwrap().unwrap(), "two");
        assert_eq!(lmdb.get([3; 16]).unwrap(), None);
    }
}
