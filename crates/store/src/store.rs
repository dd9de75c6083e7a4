//! The handles of a store: [`Store`] and [`Snapshot`].

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Name, Oid, Outcome, Result, SpaceId, Stat, Transaction, UploadId, limits};
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
use crate::rows::key::content_key;
use crate::rows::row::Head;
use crate::scrub::{self, ScrubReport};
use crate::status::Status;

/// A durable, transactional store of objects, collections, attributes, names and rows.
///
/// Handles are cheap to clone and may be used from any thread. The store is closed when the last handle is dropped, or
/// by [`Store::close`], which returns errors.
#[derive(Clone)]
pub struct Store {
    inner: Arc<OpenStore>,
}

/// An open store with its threads.
struct OpenStore {
    core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// One state of a store. It stays readable while the snapshot exists.
pub struct Snapshot {
    store: Store,
    view: Arc<View>,
    engine: Box<dyn EnginePin>,
    pin: Pin<Arc<PinTable>>,
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(%error, "the store was not closed cleanly; the next opening recovers it");
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

/// Defines the reading calls for the newest state and for a snapshot.
macro_rules! reads {
    ($type:ty) => {
        impl $type {
            /// The kind, size, version and modification time of an object; `None` if it does not exist.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] if the row is damaged, as for every read.
            pub fn stat(&self, oid: Oid) -> Result<Option<Stat>> {
                read::stat(self, oid)
            }

            /// An object, and its content if that has at most `max` bytes. This is the fastest read of a small object.
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn get(&self, oid: Oid, max: usize) -> Result<Option<(Stat, Option<Bytes>)>> {
                read::get(self, oid, max)
            }

            /// The bytes `offset..offset + len` of a blob or record, fewer at its end.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object; [`ErrorKind::Invalid`] for a collection;
            /// [`ErrorKind::TooLarge`] for more than [`limits::TRANSACTION`] bytes.
            pub fn read(&self, oid: Oid, offset: u64, len: u64) -> Result<Bytes> {
                read::read(self, oid, offset, len)
            }

            /// Reads the bytes of a blob or record from `offset` on into `out`; returns the number of bytes read.
            ///
            /// After an error, the content of `out` is undefined.
            ///
            /// # Errors
            /// As [`Self::read`], without its limit.
            pub fn read_into(&self, oid: Oid, offset: u64, out: &mut [u8]) -> Result<usize> {
                read::read_into(self, oid, offset, out)
            }

            /// The bytes `offset..offset + len` as pieces that can be sent without copying.
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

            /// Attributes after `after`, in key order, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn attributes(&self, oid: Oid, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
                read::attributes(self, oid, after, limit)
            }

            /// Members of a collection after `after`, in order, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the collection.
            pub fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
                read::members(self, collection, after, limit)
            }

            /// Whether a collection contains a member.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the collection.
            pub fn contains(&self, collection: Oid, member: Oid) -> Result<bool> {
                read::contains(self, collection, member)
            }

            /// The object to which a name is bound.
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn resolve(&self, name: &Name) -> Result<Option<Oid>> {
                read::resolve(self, name)
            }

            /// Names of a space that begin with `prefix`, after `after`, in order, at most `limit` or
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

            /// The names of an object, at most [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn names_of(&self, oid: Oid) -> Result<Vec<String>> {
                read::names_of(self, oid)
            }

            /// The collections that contain an object, after `after`, in order, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the object.
            pub fn collections_of(&self, oid: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
                read::collections_of(self, oid, after, limit)
            }

            /// The objects of a space after `after`, in order, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn objects(&self, space: SpaceId, after: Option<Oid>, limit: usize) -> Result<Vec<Stat>> {
                read::objects(self, space, after, limit)
            }

            /// The size of a content; `None` if it does not exist.
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn content_size(&self, id: ContentId) -> Result<Option<u64>> {
                Ok(read::stat(self, content_key(id))?.map(|stat| stat.size))
            }

            /// The bytes `offset..offset + len` of a content, fewer at its end.
            ///
            /// # Errors
            /// As [`Self::read`].
            pub fn read_content(&self, id: ContentId, offset: u64, len: u64) -> Result<Bytes> {
                read::read(self, content_key(id), offset, len)
            }

            /// The bytes `offset..offset + len` of a content as pieces that can be sent without copying.
            ///
            /// # Errors
            /// As [`Self::pieces`].
            pub fn content_pieces(&self, id: ContentId, offset: u64, len: u64) -> Result<Pieces> {
                read::pieces(self, content_key(id), offset, len)
            }

            /// Contents from `from` on and below `to`, in order, at most `limit` or [`limits::LISTING`].
            ///
            /// # Errors
            /// As [`Self::stat`].
            pub fn contents(&self, from: ContentId, to: ContentId, limit: usize) -> Result<Vec<ContentId>> {
                read::contents(self, (content_key(from), content_key(to)), limit)
            }

            /// The value of a row; `None` if it does not exist.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] naming the key if the row is damaged.
            pub fn row(&self, key: &[u8]) -> Result<Option<Bytes>> {
                rows::row(self, key)
            }

            /// Calls `show` with the value of a row without copying it, which is the fastest read. `None` if the row
            /// does not exist.
            ///
            /// A part of the store is locked while `show` runs, so it should only copy what it needs.
            ///
            /// # Errors
            /// As [`Self::row`].
            pub fn row_with<T>(&self, key: &[u8], mut show: impl FnMut(&[u8]) -> T) -> Result<Option<T>> {
                rows::with_row_value(self, key, |_, value| show(value))
            }

            /// Calls `visit` with the rows `from <= key < to` of one state, in order, until it breaks.
            ///
            /// `visit` may use the store. It should be quick, because the state stays pinned meanwhile.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] naming the key of a damaged row, after the rows before it.
            pub fn rows(
                &self,
                from: &[u8],
                to: &[u8],
                visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
            ) -> Result<()> {
                rows::rows(self, (from, to), false, visit)
            }

            /// As [`Self::rows`], in reverse order.
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
    /// The log position of the snapshot.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.pin.seq
    }
}

impl Store {
    pub(crate) fn core(&self) -> &Core {
        &self.inner.core
    }

    /// Opens the store in a directory, or creates one in an empty or missing directory.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if another process has it open; [`ErrorKind::Invalid`] if the directory has other
    /// contents; [`ErrorKind::Denied`] if other users can enter the directory; [`ErrorKind::Corrupt`] if acknowledged
    /// transactions cannot be read: then nothing was changed, and the error names the frame.
    pub fn open(dir: &Path, options: Options) -> Result<Self> {
        Self::start(open::open(dir, options)?)
    }

    /// Creates a store in memory, which exists while it is open.
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

    /// Commits a transaction; `done` is called with the outcome once it is durable. It runs on the thread that forces
    /// the log, so it should be quick. In memory, and for invalid requests, it is called before this returns.
    ///
    /// Chunks of 64 KiB and more are written before this returns, and forced with the log.
    pub fn submit(&self, transaction: Transaction, done: impl FnOnce(Result<Outcome>) + Send + 'static) {
        self.core().submit(transaction, Box::new(done));
    }

    /// Commits a transaction and waits until it is durable.
    ///
    /// # Errors
    /// Every kind except [`ErrorKind::Unknown`] means that nothing was changed.
    pub fn commit(&self, transaction: Transaction) -> Result<Outcome> {
        self.core().commit(transaction)
    }

    /// Changes rows together; `done` is called with the log position once the changes are durable.
    ///
    /// `done` runs on the thread that forces the log, so it should be quick. The calls come in the order of the log,
    /// and the log has the changes of one thread in the order of their submission. So a thread gets its replies in that
    /// order, including refusals. In memory, `done` is called before this returns. There are two exceptions to the
    /// order: refusals because the store is closed may come earlier, and calls of [`Store::force`] on a store with
    /// threads of its own mix the replies.
    ///
    /// An empty change gets a position of its own; everything submitted before it is durable with it.
    ///
    /// A failed change does not prevent later ones, unless they are in one [`RowSequence`](crate::RowSequence).
    ///
    /// # Errors
    /// `done` gets [`ErrorKind::Invalid`] for an empty key; [`ErrorKind::TooLarge`] if a key, a value or the changes
    /// together ([`limits::TRANSACTION`], [`limits::OPERATIONS`]) are too large; otherwise the errors of
    /// [`Store::commit`].
    pub fn submit_rows(&self, changes: RowChanges, done: impl FnOnce(Result<u64>) + Send + 'static) {
        self.core().submit_rows(changes, done);
    }

    /// Changes rows together and waits until the changes are durable; returns the log position.
    ///
    /// # Errors
    /// As [`Store::submit_rows`].
    pub fn commit_rows(&self, changes: RowChanges) -> Result<u64> {
        self.core().commit_rows(changes)
    }

    /// Calls `show` with an object, and with its content if that has at most `max` bytes, without copying it. This is
    /// the fastest read of a small object. Returns whether the object exists.
    ///
    /// A part of the store is locked while `show` runs, so it should only copy what it needs.
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

    /// The newest durable state, pinned.
    ///
    /// A snapshot that exists for long prevents memory and disk space from being reused.
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

    /// Begins an upload: content of any size for [`model::Op::PutUpload`].
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

    /// How many bytes of an upload have come.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload.
    pub fn upload_size(&self, id: UploadId) -> Result<u64> {
        Ok(self.core().uploads.find(id)?.lock().size())
    }

    /// Takes no more bytes for an upload, which stays until it is used or aborted; returns its size.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload.
    pub fn seal_upload(&self, id: UploadId) -> Result<u64> {
        self.core().uploads.find(id)?.lock().seal()
    }

    /// Ends an upload without using it. Does nothing if it has ended.
    pub fn abort_upload(&self, id: UploadId) {
        self.core().abort_upload(id);
    }

    /// Creates a space.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if a space has the name; [`ErrorKind::Invalid`] if the name is empty, too long, or has
    /// characters other than letters, digits, `-`, `_` and `.`; [`ErrorKind::Full`] if there are no space numbers left.
    pub fn create_space(&self, name: &str) -> Result<SpaceId> {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > limits::SPACE_NAME || !name.chars().all(valid) {
            let limit = limits::SPACE_NAME;
            return Err(invalid(format!(
                "{name:?} is not a valid space name: use 1 to {limit} letters, digits, '-', '_' and '.'"
            )));
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

    /// Makes everything durable that was submitted. Only a store without threads needs this.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub fn force(&self) -> Result<()> {
        self.core().force()
    }

    /// Moves all changes to the B-tree, so that the next opening replays nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] if the disk is full.
    pub fn install(&self) -> Result<()> {
        self.core().install_all()
    }

    /// Writes the current state of the store to `out` as one archive, while the store serves.
    ///
    /// Memory use is bounded. Unfinished uploads are omitted. An incomplete archive cannot be restored.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] naming an object whose checksum does not match; [`ErrorKind::Io`] and [`ErrorKind::Full`]
    /// from `out`; [`ErrorKind::Unavailable`] if `progress` stopped the backup.
    pub fn backup(&self, out: &mut dyn Write, progress: &dyn Progress) -> Result<BackupSummary> {
        let snapshot = self.snapshot()?;
        backup::write(&snapshot, (self.core().id, snapshot.version()), out, progress)
    }

    /// Restores an archive into a directory that is empty or does not exist.
    ///
    /// The new store has the same objects, identifiers, versions, attributes, names, rows and spaces, and a new
    /// identity. The directory can be opened only after the whole archive was read, verified and made durable. After an
    /// error the directory is empty again; after a crash it says that a restore was interrupted.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a damaged or incomplete archive; [`ErrorKind::Unsupported`] for an archive of a newer
    /// version; [`ErrorKind::Invalid`] if the directory is not empty, or if the bytes are not an archive;
    /// [`ErrorKind::Full`] without room; [`ErrorKind::Unavailable`] if `progress` stopped the restore.
    pub fn restore(
        dir: &Path,
        from: &mut dyn Read,
        options: Options,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        backup::restore::restore(dir, from, &options, progress)
    }

    /// Reads and verifies the current state of the store while it serves, and lists all damage.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if `progress` stopped the scrub. Damage is not an error: the scrub continues.
    pub fn scrub(&self, progress: &dyn Progress) -> Result<ScrubReport> {
        let snapshot = self.snapshot()?;
        scrub::run(&snapshot, snapshot.version(), progress)
    }

    /// Writes to the log that the store was opened, as the first change does.
    ///
    /// A standalone server and a meta-server call it before they serve. A brick does not: other processes remember the
    /// [position](Store::position) of its log, and each start of an old copy would raise that, until the copy seems complete. So the log
    /// of a store that was only opened and read stays as it was.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] or [`ErrorKind::Full`] if the log cannot be written.
    pub fn log_opening(&self) -> Result<()> {
        self.core().log_opening()
    }

    /// The newest durable position of the log: everything up to it is kept, whatever happens to the process.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.state().visible_seq()
    }

    /// The state of the store and its counters.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core().status()
    }

    /// Whether this is a full store in memory, which accepts only changes that free memory or are
    /// [needed](RowChanges::needed).
    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        self.core().is_memory_full()
    }

    /// Closes the store: installs all changes, ends its threads and unlocks the directory. Other handles and snapshots
    /// can still read, but not commit.
    ///
    /// # Errors
    /// If not everything could be installed. No acknowledged change is lost in that case.
    pub fn close(self) -> Result<()> {
        self.inner.stop()
    }
}
