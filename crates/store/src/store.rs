//! The store: handles, snapshots and their calls.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use model::{Error, ErrorKind, Name, Oid, Outcome, Result, SpaceId, Stat, Transaction, UploadId, limits};
use parking_lot::Mutex;

use crate::backup::{self, BackupSummary};
use crate::commit::Core;
use crate::commit::row_changes::RowChanges;
use crate::engine::EnginePin;
use crate::error::{self, invalid};
use crate::log::entry::Step;
use crate::open;
use crate::options::Options;
use crate::progress::Progress;
use crate::read::layers::{Layers, ReadPosition};
use crate::read::rows;
use crate::read::state::ReadState;
use crate::read::view::{Pin, PinTable, View};
use crate::read::{self, ContentRef, Pieces, Readable};
use crate::rows::row::Head;
use crate::scrub::{self, ScrubReport};
use crate::status::Status;

/// A durable, transactional store of objects, collections, attributes and names.
///
/// Handles are cheap to clone and may be used from any thread. The store is closed when the last one is dropped, or by
/// [`Store::close`], which also says how it went.
#[derive(Clone)]
pub struct Store {
    inner: Arc<OpenStore>,
}

/// An open store with its threads.
struct OpenStore {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// One state of a store, readable as long as it is kept.
pub struct Snapshot {
    store: Store,
    view: Arc<View>,
    engine: Box<dyn EnginePin>,
    pin: Pin<Arc<PinTable>>,
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(%error, "the store was not closed cleanly; it will recover when it is opened");
        }
    }
}

impl OpenStore {
    fn stop(&self) -> Result<()> {
        let threads = std::mem::take(&mut *self.threads.lock());
        let running = !threads.is_empty();
        let installed = if running { self.core.install_all() } else { Ok(()) };
        self.core.pipeline.queue.close();
        self.core.installer.close();
        let mut panicked = false;
        for thread in threads {
            panicked |= thread.join().is_err();
        }
        self.core.refuse_pending();
        if panicked {
            return Err(Error::new(ErrorKind::Internal, "a thread of the store has panicked"));
        }
        installed
    }
}

impl Readable for Store {
    fn state(&self) -> &ReadState {
        &self.core().state
    }

    fn read_row<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T> {
        self.state().read_row(read)
    }

    fn read_state<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T> {
        self.state().read_state(read)
    }

    fn head(&self, oid: Oid) -> Result<Option<Head>> {
        read::newest_head(self.state(), oid)
    }
}

impl Readable for Snapshot {
    fn state(&self) -> &ReadState {
        &self.store.core().state
    }

    fn read_row<T>(&self, read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T> {
        self.read_state(read)
    }

    fn read_state<T>(&self, mut read: impl FnMut(&Layers<'_>) -> Result<T>) -> Result<T> {
        let mut result = None;
        self.engine.read(&mut |engine| {
            result = Some(read(&Layers {
                changes: None,
                active: &self.view.active,
                frozen: self.view.frozen.as_deref(),
                at: ReadPosition::Seq(self.pin.seq),
                engine,
                files: self.state().files(),
            }));
        });
        result.unwrap_or_else(|| Err(Error::new(ErrorKind::Internal, "the B-tree was not read")))
    }
}

/// The calls that read, for the newest state and for a snapshot.
macro_rules! reads {
    ($type:ty) => {
        impl $type {
            /// What is known of an object without its content; `None` if there is none.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] if its row is damaged, as for every read.
            pub fn stat(&self, oid: Oid) -> Result<Option<Stat>> {
                read::stat(self, oid)
            }

            /// An object, with its content if that has at most `max` bytes: the quick way to a small object.
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn get(&self, oid: Oid, max: usize) -> Result<Option<(Stat, Option<Bytes>)>> {
                read::get(self, oid, max)
            }

            /// The bytes `offset..offset + len` of a blob or record, fewer where it ends before.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object; [`ErrorKind::Invalid`] for a collection;
            /// [`ErrorKind::TooLarge`] for more than [`limits::TRANSACTION`] bytes.
            pub fn read(&self, oid: Oid, offset: u64, len: u64) -> Result<Bytes> {
                read::read(self, oid, offset, len)
            }

            /// The bytes of a blob or record from `offset` on into the caller's memory; how many there were.
            ///
            /// After an error, what is in `out` means nothing.
            ///
            /// # Errors
            /// As [`Self::read`], without its limit.
            pub fn read_into(&self, oid: Oid, offset: u64, out: &mut [u8]) -> Result<usize> {
                read::read_into(self, oid, offset, out)
            }

            /// The same range as pieces that can be sent without copying.
            ///
            /// # Errors
            /// As [`Self::read`], without its limit.
            pub fn pieces(&self, oid: Oid, offset: u64, len: u64) -> Result<Pieces> {
                read::pieces(self, oid, offset, len)
            }

            /// The value of an attribute; `None` if the object has no such attribute.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn attribute(&self, oid: Oid, key: &[u8]) -> Result<Option<Bytes>> {
                read::attribute(self, oid, key)
            }

            /// Attributes in the order of their keys, behind `after`, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn attributes(&self, oid: Oid, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
                read::attributes(self, oid, after, limit)
            }

            /// Members of a collection in order, behind `after`, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the collection.
            pub fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
                read::members(self, collection, after, limit)
            }

            /// Whether a collection has a member.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the collection.
            pub fn contains(&self, collection: Oid, member: Oid) -> Result<bool> {
                read::contains(self, collection, member)
            }

            /// What a name is bound to.
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn resolve(&self, name: &Name) -> Result<Option<Oid>> {
                read::resolve(self, name)
            }

            /// Names of a space that begin with `prefix`, in order, behind `after`, at most `limit` or
            /// [`limits::LISTING`].
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn names(
                &self,
                space: SpaceId,
                prefix: &str,
                after: Option<&str>,
                limit: usize,
            ) -> Result<Vec<(String, Oid)>> {
                read::names(self, space, prefix, after, limit)
            }

            /// The names that are bound to an object, at most [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn names_of(&self, oid: Oid) -> Result<Vec<String>> {
                read::names_of(self, oid)
            }

            /// The collections that have an object, in order, behind `after`, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn collections_of(&self, oid: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
                read::collections_of(self, oid, after, limit)
            }

            /// The objects of a space in order, behind `after`, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn objects(&self, space: SpaceId, after: Option<Oid>, limit: usize) -> Result<Vec<Stat>> {
                read::objects(self, space, after, limit)
            }

            /// The value of a row; `None` if there is no such row.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] naming the key if the row is damaged.
            pub fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
                rows::row(self, key)
            }

            /// Shows `show` the value of a row without copying it: the quickest way to one. `None` if there is no such row.
            ///
            /// `show` runs while a part of the store is locked: it should only copy what it needs.
            ///
            /// # Errors
            /// As [`Self::row`].
            pub fn row_with<T>(&self, key: &[u8], mut show: impl FnMut(&[u8]) -> T) -> Result<Option<T>> {
                rows::with_row_value(self, key, |_, value| show(value))
            }

            /// Shows the rows with `from <= key < to` in order, of one state, until `visit` breaks: their keys and values.
            ///
            /// `visit` should be quick, as a state is kept from being cleared away meanwhile. It may use the store.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] naming the key of a row that is damaged; those before it were shown.
            pub fn rows(
                &self,
                from: &[u8],
                to: &[u8],
                visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
            ) -> Result<()> {
                rows::rows(self, (from, to), false, visit)
            }

            /// Shows the same rows, the last first.
            ///
            /// # Errors
            /// As [`Self::rows`].
            pub fn rows_back(
                &self,
                from: &[u8],
                to: &[u8],
                visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
            ) -> Result<()> {
                rows::rows(self, (from, to), true, visit)
            }

            /// The spaces of the store.
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn spaces(&self) -> Result<Vec<(SpaceId, String)>> {
                read::spaces(self)
            }
        }
    };
}

reads!(Store);
reads!(Snapshot);

impl Snapshot {
    /// The position of the log that the snapshot shows.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.pin.seq
    }
}

impl Store {
    pub(crate) fn core(&self) -> &Core {
        &self.inner.core
    }

    /// Opens the store in a directory, or creates it where there is nothing yet.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if another process has it open; [`ErrorKind::Invalid`] if the directory holds something
    /// else; [`ErrorKind::Corrupt`] if acknowledged transactions cannot be read back: then nothing was changed, and the
    /// error names the frame.
    pub fn open(dir: &Path, options: Options) -> Result<Self> {
        Self::start(open::open(dir, options)?)
    }

    /// A store that keeps everything in memory, for as long as it is open.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if its thread cannot be started.
    pub fn in_memory(options: Options) -> Result<Self> {
        Self::start(open::in_memory(options)?)
    }

    pub(crate) fn start(core: Core) -> Result<Self> {
        let core = Arc::new(core);
        let mut threads = Vec::new();
        if core.options.threads {
            let spawn = |name: &str, run: fn(&Core)| {
                let core = Arc::clone(&core);
                let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&core));
                thread.map_err(|e| error::io("starting a thread", e))
            };
            if core.is_durable() {
                threads.push(spawn("mortar-commit", Core::run_committer)?);
            }
            threads.push(spawn("mortar-install", Core::run_installer)?);
        }
        Ok(Self { inner: Arc::new(OpenStore { core, threads: Mutex::new(threads) }) })
    }

    /// Commits a transaction; `done` learns the outcome once it is durable, on the thread that forces the log, so it
    /// should be quick. In memory, and for requests that are wrong in themselves, it is called before this returns.
    ///
    /// Chunks of 64 KiB and more are handed to the system before this returns, and forced with the log.
    pub fn submit(&self, transaction: Transaction, done: impl FnOnce(Result<Outcome>) + Send + 'static) {
        self.core().submit(transaction, Box::new(done));
    }

    /// Commits a transaction and waits until it is durable.
    ///
    /// # Errors
    /// Every kind but [`ErrorKind::Unknown`] means that nothing was changed.
    pub fn commit(&self, transaction: Transaction) -> Result<Outcome> {
        self.core().commit(transaction)
    }

    /// Changes rows, all together; `done` learns the position in the log once they are durable.
    ///
    /// It is called on the thread that forces the log, so it should be quick. The calls come in the order of the log, and
    /// the log has what one thread submits in that order: so it also learns of it in that order, of what is refused too.
    /// In memory, `done` is called before this returns. Only who is refused because the store is closed may learn that
    /// earlier; and [`Store::force`], which a store with threads needs not, mixes the calls if it is used beside them.
    ///
    /// Changes of nothing get a position of their own; all that was submitted before is durable with it.
    ///
    /// That some changes fail does not keep those behind them from being made, unless they are of one
    /// [`RowSequence`](crate::RowSequence).
    ///
    /// # Errors
    /// `done` gets [`ErrorKind::Invalid`] for an empty key; [`ErrorKind::TooLarge`] for a key, a value, or changes
    /// together ([`limits::TRANSACTION`], [`limits::OPERATIONS`]) that are; else what [`Store::commit`] tells.
    pub fn submit_rows(&self, changes: RowChanges, done: impl FnOnce(Result<u64>) + Send + 'static) {
        self.core().submit_rows(changes, done);
    }

    /// Changes rows, all together, and waits until that is durable; returns the position in the log.
    ///
    /// # Errors
    /// As [`Store::submit_rows`].
    pub fn commit_rows(&self, changes: RowChanges) -> Result<u64> {
        self.core().commit_rows(changes)
    }

    /// Shows `show` an object, and its content if that has at most `max` bytes, without copying it: the quickest way to
    /// a small object. False if there is none.
    ///
    /// `show` runs while a part of the store is locked: it should only copy what it needs.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn get_with(&self, oid: Oid, max: usize, mut show: impl FnMut(&Stat, Option<ContentRef<'_>>)) -> Result<bool> {
        if let Some(shown) = read::visit_small(self.state(), oid, max, &mut show)? {
            return Ok(shown);
        }
        let found = self.get(oid, max)?;
        if let Some((stat, bytes)) = &found {
            show(stat, bytes.as_deref().map(|bytes| ContentRef { bytes, crc32c: None }));
        }
        Ok(found.is_some())
    }

    /// The newest durable state, pinned: readable whatever is committed meanwhile.
    ///
    /// A snapshot that is kept long keeps memory and disk from being used again.
    ///
    /// # Errors
    /// As [`Store::stat`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        let state = self.state();
        loop {
            let view = state.view.load_full();
            let engine = state.engine.pin().map_err(|e| error::StoreError::from(e).0)?;
            let pin = state.pin();
            if state.is_current(&view) {
                return Ok(Snapshot { store: self.clone(), view, engine, pin });
            }
        }
    }

    /// Begins to stage content of any size for [`model::Op::PutUpload`].
    ///
    /// # Errors
    /// [`ErrorKind::Full`] if too many uploads are unfinished.
    pub fn begin_upload(&self) -> Result<UploadId> {
        self.core().begin_upload()
    }

    /// Adds bytes to an upload.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has ended; [`ErrorKind::TooLarge`] for more bytes than a blob may have;
    /// [`ErrorKind::Full`] without room. After an error of the disk the upload has ended.
    pub fn upload(&self, id: UploadId, data: Bytes) -> Result<()> {
        self.core().upload(id, data)
    }

    /// Ends an upload without using it; nothing happens if it has ended.
    pub fn abort_upload(&self, id: UploadId) {
        self.core().abort_upload(id);
    }

    /// Creates a space.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if one has the name, [`ErrorKind::Invalid`] for a name that is empty or has other characters than letters, digits, `-`, `_` and `.`.
    pub fn create_space(&self, name: &str) -> Result<SpaceId> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > limits::SPACE_NAME || !name.chars().all(valid) {
            let limit = limits::SPACE_NAME;
            return Err(invalid(format!("space name {name:?}: 1 to {limit} letters, digits, '-', '_' and '.' please")));
        }
        let core = self.core();
        let _one_at_a_time = core.create_space_lock.lock();
        let spaces = self.spaces()?;
        if spaces.iter().any(|(_, known)| known == name) {
            let what = format!("there is a space named {name:?} already: choose another name");
            return Err(Error::new(ErrorKind::Exists, what));
        }
        let id = spaces.last().map_or(0, |(id, _)| id.0) + 1;
        if id > SpaceId::MAX.0 {
            return Err(Error::new(ErrorKind::Full, "there are no space numbers left"));
        }
        core.commit_steps(vec![Step::CreateSpace { id, name: name.to_owned() }], Vec::new())?;
        Ok(SpaceId(id))
    }

    /// Makes everything durable that was submitted. Only needed without threads of the store's own.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn force(&self) -> Result<()> {
        self.core().force()
    }

    /// Moves all changes to the B-tree, so that the next opening has nothing to replay.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] if the disk is full.
    pub fn install(&self) -> Result<()> {
        self.core().install_all()
    }

    /// Writes everything that the store holds now to `out` as one archive, while the store serves.
    ///
    /// Memory stays bounded. What is being uploaded is left out. An archive that was not written to its end is of no use.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] naming the object whose checksum does not match; [`ErrorKind::Io`] and
    /// [`ErrorKind::Full`] from `out`; [`ErrorKind::Unavailable`] if `progress` stopped it.
    pub fn backup(&self, out: &mut dyn Write, progress: &dyn Progress) -> Result<BackupSummary> {
        let snapshot = self.snapshot()?;
        backup::write(&snapshot, (self.core().id, snapshot.version()), out, progress)
    }

    /// Makes a store of an archive, in a directory that is empty or does not exist.
    ///
    /// It has the same objects, identifiers, versions, attributes, names and spaces as the one backed up, and an
    /// identity of its own. The directory can be opened only when all of the archive was read, checked and made durable;
    /// after an error it is empty again, and after a crash it says that restoring was interrupted.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for an archive that is damaged or cut; [`ErrorKind::Unsupported`] for one of a newer
    /// version; [`ErrorKind::Invalid`] if the directory has something in it, or the bytes are no archive;
    /// [`ErrorKind::Full`] without room; [`ErrorKind::Unavailable`] if `progress` stopped it.
    pub fn restore(
        dir: &Path,
        from: &mut dyn Read,
        options: Options,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        backup::restore::restore(dir, from, &options, progress)
    }

    /// Reads and checks everything that the store holds now, while it serves, and lists what is damaged.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if `progress` stopped it. Damage is no error of the scrub: it goes on.
    pub fn scrub(&self, progress: &dyn Progress) -> Result<ScrubReport> {
        let snapshot = self.snapshot()?;
        scrub::run(&snapshot, snapshot.version(), progress)
    }

    /// What the store can say of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core().status()
    }

    /// Whether this is a store in memory that is full: it takes only what makes room, and [what is needed](RowChanges::needed).
    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        self.core().is_memory_full()
    }

    /// Closes the store: installs what is in memory, ends its threads and unlocks the directory. Other handles and
    /// snapshots can still read, and can commit nothing.
    ///
    /// # Errors
    /// If not everything could be installed; nothing acknowledged is lost then either.
    pub fn close(self) -> Result<()> {
        self.inner.stop()
    }
}
