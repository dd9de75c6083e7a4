//! Berkeley DB 5.3 with transactions: one environment with one database, used by one thread.
//!
//! The best settings found: a private environment (no shared regions) without a lock table, a cache that holds the data, large log
//! buffers, removal of logs after a checkpoint, and a checkpoint after each 512 MiB of log. [`Settings`] has the page size and the
//! size of log files.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};

use crate::Result;

const CHECKPOINT_KIB: u32 = 512 << 10;

#[repr(C)]
struct RawDb {
    opaque: [u8; 0],
}

#[repr(C)]
struct RawTxn {
    opaque: [u8; 0],
}

#[repr(C)]
struct RawOptions {
    cache_bytes: u64,
    page_bytes: u32,
    log_buffer_bytes: u32,
    log_file_bytes: u32,
    hash: u32,
    prepared_log: u32,
}

unsafe extern "C" {
    fn bench_db_open(home: *const c_char, options: *const RawOptions, out: *mut *mut RawDb) -> c_int;
    fn bench_db_close(db: *mut RawDb) -> c_int;
    fn bench_db_begin(db: *mut RawDb, txn: *mut *mut RawTxn) -> c_int;
    fn bench_db_commit(txn: *mut RawTxn, force: c_int) -> c_int;
    fn bench_db_abort(txn: *mut RawTxn) -> c_int;
    fn bench_db_force(db: *mut RawDb) -> c_int;
    fn bench_db_checkpoint(db: *mut RawDb, kilobytes: u32) -> c_int;
    fn bench_db_get(
        db: *mut RawDb,
        txn: *mut RawTxn,
        key: *const u8,
        key_len: u32,
        offset: u32,
        into: *mut u8,
        len: u32,
        got: *mut u32,
    ) -> c_int;
    fn bench_db_put(
        db: *mut RawDb,
        txn: *mut RawTxn,
        key: *const u8,
        key_len: u32,
        data: *const u8,
        len: u32,
        offset: u32,
        partial: c_int,
    ) -> c_int;
    fn bench_db_error(error: c_int) -> *const c_char;
    fn bench_db_not_found(error: c_int) -> c_int;
}

/// How keys are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Btree,
    Hash,
}

/// Whether a transaction is on disk when its commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    Now,
    /// With the next force.
    Later,
}

/// The settings for a workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) access: Access,
    pub(crate) page_bytes: u32,
    pub(crate) cache_bytes: u64,
    pub(crate) log_file_bytes: u32,
    /// Whether log files are written once before they are used, which makes small forces faster.
    pub(crate) prepared_log: bool,
}

impl Settings {
    /// For values of many pages: with the largest page size.
    pub(crate) fn bulk(access: Access, cache_bytes: u64) -> Self {
        Self { access, page_bytes: 64 << 10, cache_bytes, log_file_bytes: 256 << 20, prepared_log: false }
    }

    /// For values of about a kilobyte: several fit a page.
    pub(crate) fn records(access: Access) -> Self {
        Self { cache_bytes: 1 << 30, page_bytes: 16 << 10, ..Self::bulk(access, 0) }
    }

    /// For small transactions that are forced individually.
    pub(crate) fn small_forces(access: Access) -> Self {
        Self { access, page_bytes: 8 << 10, cache_bytes: 64 << 20, log_file_bytes: 16 << 20, prepared_log: true }
    }
}

/// An open environment and database.
pub(crate) struct Berkeley {
    raw: NonNull<RawDb>,
}

/// A transaction. Dropping it without [`Transaction::commit`] rolls it back.
pub(crate) struct Transaction<'a> {
    db: &'a Berkeley,
    raw: *mut RawTxn,
}

impl Berkeley {
    /// Opens the database in this directory, and creates it if it does not exist.
    pub(crate) fn open(directory: &Path, settings: Settings) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let home = CString::new(directory.as_os_str().as_bytes())?;
        let options = RawOptions {
            cache_bytes: settings.cache_bytes,
            page_bytes: settings.page_bytes,
            // The library requires a file to be at least four times its buffer.
            log_buffer_bytes: settings.log_file_bytes / 8,
            log_file_bytes: settings.log_file_bytes,
            hash: u32::from(settings.access == Access::Hash),
            prepared_log: u32::from(settings.prepared_log),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: both pointers refer to live values during the call.
        check(unsafe { bench_db_open(home.as_ptr(), &options, &mut raw) })?;
        Ok(Self { raw: NonNull::new(raw).ok_or("Berkeley DB opened nothing")? })
    }

    /// Checkpoints and closes.
    pub(crate) fn close(self) -> Result<()> {
        let raw = self.raw;
        std::mem::forget(self);
        // SAFETY: `raw` came from open and is not used after this.
        check(unsafe { bench_db_close(raw.as_ptr()) })
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<Transaction<'_>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the database is open for the lifetime of `self`.
        check(unsafe { bench_db_begin(self.raw.as_ptr(), &mut raw) })?;
        Ok(Transaction { db: self, raw })
    }

    /// Forces all commits, and makes a checkpoint if much was logged since the last one.
    pub(crate) fn force(&self) -> Result<()> {
        // SAFETY: the database is open for the lifetime of `self`.
        unsafe {
            check(bench_db_force(self.raw.as_ptr()))?;
            check(bench_db_checkpoint(self.raw.as_ptr(), CHECKPOINT_KIB))
        }
    }

    /// Makes a checkpoint if much was logged since the last one, so that logs do not fill the disk.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        // SAFETY: the database is open for the lifetime of `self`.
        check(unsafe { bench_db_checkpoint(self.raw.as_ptr(), CHECKPOINT_KIB) })
    }

    /// Reads the key's value from `offset` on into `into`, outside of any transaction. Returns the number of bytes, or
    /// `None` if there is no such key.
    pub(crate) fn get(&self, key: &[u8], offset: u32, into: &mut [u8]) -> Result<Option<usize>> {
        self.get_in(ptr::null_mut(), key, offset, into)
    }

    fn get_in(&self, txn: *mut RawTxn, key: &[u8], offset: u32, into: &mut [u8]) -> Result<Option<usize>> {
        let (key_len, len) = (u32::try_from(key.len())?, u32::try_from(into.len())?);
        let mut got = 0;
        // SAFETY: key and buffer have the given lengths; the database is open; `txn` is null or in progress.
        let error = unsafe {
            let raw = self.raw.as_ptr();
            bench_db_get(raw, txn, key.as_ptr(), key_len, offset, into.as_mut_ptr(), len, &mut got)
        };
        // SAFETY: only compares the number.
        if unsafe { bench_db_not_found(error) } != 0 {
            return Ok(None);
        }
        check(error)?;
        Ok(Some(got as usize))
    }
}

impl Drop for Berkeley {
    fn drop(&mut self) {
        // SAFETY: `raw` came from open; `close` forgets the value, so this is its last use.
        let error = check(unsafe { bench_db_close(self.raw.as_ptr()) });
        if let Err(error) = error {
            crate::progress::line(format_args!("Berkeley DB was not closed: {error}"));
        }
    }
}

impl Transaction<'_> {
    /// As [`Berkeley::get`], with the writes of the transaction.
    pub(crate) fn get(&self, key: &[u8], offset: u32, into: &mut [u8]) -> Result<Option<usize>> {
        self.db.get_in(self.raw, key, offset, into)
    }

    /// Replaces the key's value.
    pub(crate) fn put(&self, key: &[u8], data: &[u8]) -> Result<()> {
        self.put_at(key, data, None)
    }

    /// Replaces part of the key's value; a gap before it reads as zeros.
    pub(crate) fn put_partial(&self, key: &[u8], offset: u32, data: &[u8]) -> Result<()> {
        self.put_at(key, data, Some(offset))
    }

    fn put_at(&self, key: &[u8], data: &[u8], offset: Option<u32>) -> Result<()> {
        let (key_len, len) = (u32::try_from(key.len())?, u32::try_from(data.len())?);
        let (raw, partial) = (self.db.raw.as_ptr(), c_int::from(offset.is_some()));
        // SAFETY: key and data have the given lengths; the database is open and the transaction in progress.
        check(unsafe {
            let offset = offset.unwrap_or(0);
            bench_db_put(raw, self.raw, key.as_ptr(), key_len, data.as_ptr(), len, offset, partial)
        })
    }

    /// Ends the transaction.
    pub(crate) fn commit(self, force: Force) -> Result<()> {
        let raw = self.raw;
        std::mem::forget(self);
        // SAFETY: the transaction is in progress, and is not used after this.
        check(unsafe { bench_db_commit(raw, c_int::from(force == Force::Now)) })
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SAFETY: the transaction is in progress, because commit forgets the value.
        unsafe { bench_db_abort(self.raw) };
    }
}

fn check(error: c_int) -> Result<()> {
    if error == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a string for every number, which lives at least until its next call.
    let text = unsafe { CStr::from_ptr(bench_db_error(error)) }.to_string_lossy().into_owned();
    Err(format!("Berkeley DB: {text}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_parts_of_values_outlive_reopening() {
        for access in [Access::Btree, Access::Hash] {
            let directory = tempfile::tempdir().unwrap();
            let db = Berkeley::open(directory.path(), Settings::records(access)).unwrap();
            let txn = db.begin().unwrap();
            txn.put(b"key", &[1; 100_000]).unwrap();
            txn.put_partial(b"key", 99_999, &[2; 3]).unwrap();
            txn.commit(Force::Later).unwrap();
            db.force().unwrap();
            db.close().unwrap();
            let db = Berkeley::open(directory.path(), Settings::records(access)).unwrap();
            let mut into = [0; 8];
            assert_eq!(db.get(b"key", 99_998, &mut into).unwrap(), Some(4));
            assert_eq!(into[..4], [1, 2, 2, 2]);
            assert_eq!(db.get(b"other", 0, &mut into).unwrap(), None);
        }
    }

    #[test]
    fn a_dropped_transaction_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let db = Berkeley::open(directory.path(), Settings::small_forces(Access::Btree)).unwrap();
        let txn = db.begin().unwrap();
        txn.put(b"key", b"value").unwrap();
        assert_eq!(txn.get(b"key", 0, &mut [0; 5]).unwrap(), Some(5));
        drop(txn);
        assert_eq!(db.get(b"key", 0, &mut [0; 5]).unwrap(), None);
    }
}
