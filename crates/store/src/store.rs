//! The handles of a store: [`Store`] and [`Snapshot`].

use std::io::Read;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use model::{ContentId, Error, ErrorKind, Result, UploadId};
use parking_lot::{Mutex, MutexGuard};

use crate::backup::{self, ArchiveSink, BackupSummary, BaseIndex};
use crate::change_tracking::{ChangeSet, ChangeTracker};
use crate::commit::Core;
use crate::commit::contents::{ContentChange, check_changeable};
use crate::commit::force_scope;
use crate::commit::row_changes::{RowChanges, RowReply};
use crate::engine::EnginePin;
use crate::error;
use crate::log::FrameBatch;
use crate::open;
use crate::options::Options;
use crate::plant::{CutBug, TrackingBug, planted};
use crate::progress::Progress;
use crate::read::layers::{Layers, ReadPosition};
use crate::read::rows::RowValue;
use crate::read::state::ReadState;
use crate::read::view::{Pin, PinTable, View};
use crate::read::{Pieces, Readable, contents, rows};
use crate::rows::key::Key;
use crate::rows::key_range::KeyRange;
use crate::rows::row::ContentHead;
use crate::scrub::{self, ScrubReport, TreeCheck};
use crate::status::Status;

/// A durable, transactional store of rows and contents.
///
/// Rows are an ordered map from keys to values. Contents are bytes of any size under identifiers. Both are changed together,
/// by [`RowChanges`], in one log.
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

/// Keeps a store from making anything durable while it exists: see [`Store::hold`].
#[must_use]
pub struct Hold<'a> {
    _no_force: Option<MutexGuard<'a, FrameBatch>>,
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

    fn head(&self, id: ContentId) -> Result<Option<ContentHead>> {
        contents::newest_head(self.state(), id)
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
            /// The size of a content; `None` if it does not exist.
            ///
            /// # Errors
            /// [`ErrorKind::Corrupt`] naming the content if its row is damaged.
            pub fn content_size(&self, id: ContentId) -> Result<Option<u64>> {
                contents::size(self, id)
            }

            /// The bytes `offset..offset + len` of a content, fewer at its end.
            ///
            /// # Errors
            /// [`ErrorKind::NotFound`] without the content; [`ErrorKind::Corrupt`] naming the content and the bytes that are
            /// damaged; [`ErrorKind::TooLarge`] for more than [`limits::CONTENT_READ`](model::limits::CONTENT_READ) bytes.
            pub fn read_content(&self, id: ContentId, offset: u64, len: u64) -> Result<Bytes> {
                contents::read(self, id, offset, len)
            }

            /// The bytes `offset..offset + len` of a content as pieces that can be sent without copying.
            ///
            /// # Errors
            /// As [`Self::read_content`], without its limit.
            pub fn content_pieces(&self, id: ContentId, offset: u64, len: u64) -> Result<Pieces> {
                contents::pieces(self, id, offset, len)
            }

            /// Contents from `from` on and below `to`, in order, at most `limit` or
            /// [`limits::LISTING`](model::limits::LISTING).
            ///
            /// # Errors
            /// As [`Self::content_size`].
            pub fn contents(&self, from: ContentId, to: ContentId, limit: usize) -> Result<Vec<ContentId>> {
                contents::list(self, from, to, limit)
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
            pub fn row_with<T>(&self, key: &[u8], mut show: impl FnMut(RowValue<'_>) -> T) -> Result<Option<T>> {
                rows::with_row_value(self, key, |row, value| show(RowValue::new(row, value)))
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

            /// As [`Self::rows`], and goes on behind rows that cannot be read: `damaged` gets the keys among which they are, and the error.
            ///
            /// # Errors
            /// As [`Self::rows`], except for damage.
            pub fn rows_beside_damage(
                &self,
                from: &[u8],
                to: &[u8],
                visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
                damaged: impl FnMut(KeyRange, &Error),
            ) -> Result<()> {
                rows::rows_beside_damage(self, (from, to), visit, damaged)
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

    /// Whether the rows of a content can be read: its head, and those that say where its chunks are. Chunks in blob files are not read.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if a part of the B-tree with some of them cannot be read.
    pub fn check_content_rows(&self, id: ContentId) -> Result<()> {
        contents::check_rows(self, id)
    }

    /// Writes an archive of the snapshot, with which [`Store::restore`] makes a new store.
    ///
    /// # Errors
    /// As [`Store::backup`].
    pub fn backup(&self, out: &mut dyn ArchiveSink, progress: &dyn Progress) -> Result<BackupSummary> {
        backup::write(self, (self.store.core().id, self.version()), None, out, progress)
    }

    /// About the bytes of an archive of the snapshot: those that the B-tree and the blob files have.
    #[must_use]
    pub fn estimated_archive_bytes(&self) -> u64 {
        let state = self.state();
        state.engine.size() + state.files().map_or(0, |files| files.size())
    }

    /// Writes an archive of what has changed since a base, which may be any archive; with the base it is restored by [`Store::restore_chain`].
    /// All rows are read; chunks in blob files only if they are new.
    ///
    /// # Errors
    /// As [`Store::backup`]; those of `base`.
    pub fn backup_increment(
        &self,
        base: &mut dyn BaseIndex,
        out: &mut dyn ArchiveSink,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        backup::write(self, (self.store.core().id, self.version()), Some(base), out, progress)
    }

    /// Writes an archive of what the snapshot has of the items in `changes`, by which a restored store that has the state before them is
    /// [rolled forward](crate::RollForward). Nothing else is read.
    ///
    /// # Errors
    /// As [`Store::backup`].
    pub fn backup_changes(
        &self,
        changes: &ChangeSet,
        out: &mut dyn ArchiveSink,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        backup::changes::write(self, (self.store.core().id, self.version()), changes, out, progress)
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

    /// Changes rows and contents together; `done` is called with the log position once the changes are durable.
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
    /// Chunks of 64 KiB and more of new contents are written before this returns, and forced with the log.
    ///
    /// # Errors
    /// `done` gets [`ErrorKind::Invalid`] for an empty key; [`ErrorKind::TooLarge`] if a key, a value, a content or the
    /// changes together ([`limits::CHANGE`](model::limits::CHANGE), [`limits::OPERATIONS`](model::limits::OPERATIONS))
    /// are too large; [`ErrorKind::Exists`] and [`ErrorKind::NotFound`], naming the content; [`ErrorKind::Full`] without room.
    /// Every kind except [`ErrorKind::Unknown`] means that nothing was changed.
    pub fn submit_rows(&self, changes: RowChanges, done: impl FnOnce(Result<u64>) + Send + 'static) {
        force_scope::note_submission(&self.inner.core, 1);
        self.core().submit_rows(changes, done);
    }

    /// Has `hook` called after the replies to the changes that were forced together, with their number, by the thread that
    /// replies. The store sends no replies to later changes before it returns, and holds no other lock meanwhile. It replaces an earlier hook.
    /// A store in memory forces nothing.
    pub fn set_reply_hook(&self, hook: impl Fn(usize) + Send + Sync + 'static) {
        self.core().reply_hook.store(Some(Arc::new(Box::new(hook))));
    }

    /// Submits several changes, each as by [`Store::submit_rows`] and in this order, so that one force makes all of them
    /// durable, if there is room for them.
    pub fn submit_rows_together(&self, changes: Vec<(RowChanges, RowReply)>) {
        force_scope::note_submission(&self.inner.core, changes.len());
        self.core().submit_rows_together(changes);
    }

    /// Changes rows and contents together and waits until the changes are durable; returns the log position.
    ///
    /// # Errors
    /// As [`Store::submit_rows`].
    pub fn commit_rows(&self, changes: RowChanges) -> Result<u64> {
        self.core().commit_rows(changes)
    }

    /// The newest durable state, pinned.
    ///
    /// A snapshot that exists for long prevents memory and disk space from being reused.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the B-tree cannot be read.
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

    /// Waits for the force under way, and takes a snapshot of what is durable then. Nothing more becomes durable or visible, and no change
    /// is answered, before the [`Hold`] is dropped: changes that are submitted meanwhile wait. So a hold should be short.
    ///
    /// The hold and the calls that force the log themselves, such as [`Store::force`], must not be on the same thread. The receiver of a reply
    /// must not hold the store.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] in memory, where changes are durable at once; those of [`Store::snapshot`].
    pub fn hold(&self) -> Result<(Hold<'_>, Snapshot)> {
        let core = self.core();
        if !core.is_durable() {
            let what = "a store in memory has no log that could be held";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let no_force = core.pipeline.force_lock.lock();
        let hold = Hold { _no_force: Some(no_force).filter(|_| !planted(CutBug::LogNotHeld)) };
        Ok((hold, self.snapshot()?))
    }

    /// Begins to note which rows and contents change. The tracker begins at a position that is durable when this returns, so it knows all changes after
    /// every later [`Store::hold`] and snapshot. It takes memory for each change, at most 64 MiB in all, and ends when it is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] in memory; those of [`Store::commit_rows`].
    pub fn track_changes(&self) -> Result<ChangeTracker> {
        let core = self.core();
        if !core.is_durable() {
            return Err(Error::new(ErrorKind::Unsupported, "the changes of a store in memory are not tracked"));
        }
        let tracker = core.begin_tracking();
        // What was applied before, and is not durable yet, was not noted. A snapshot that lacks it must not count as a beginning.
        if !planted(TrackingBug::BeginsBeforeForce) {
            self.commit_rows(RowChanges::new())?;
        }
        Ok(tracker)
    }

    /// Whether a row can probably be read without waiting for the disk. The answer is a hint, and costs a system call for each level of
    /// the B-tree; if it is false, the disk has begun to read.
    #[must_use]
    pub fn is_row_resident(&self, key: &[u8]) -> bool {
        self.state().is_row_resident(&Key::row(key))
    }

    /// The same of a range of a content, which should be short.
    ///
    /// # Errors
    /// If the rows that name its bytes cannot be read.
    pub fn is_content_resident(&self, id: ContentId, offset: u64, len: u64) -> Result<bool> {
        contents::is_resident(self.state(), id, offset, len)
    }

    /// Checks that changes of contents, applied one after the other, find the rows that they need: the contents that they change are there, and the
    /// rows about all chunks can be read of which they keep or free something. Changes that are committed without that end the store's work. Chunks in
    /// blob files are not read.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without a content; [`ErrorKind::Corrupt`] if a row of one is damaged.
    pub fn check_changeable(&self, changes: &[ContentChange]) -> Result<()> {
        self.read_state(|layers| check_changeable(layers, changes))
    }

    /// The same of the rows `from <= key <= to`, of which there should be few.
    #[must_use]
    pub fn are_rows_resident(&self, from: &[u8], to: &[u8]) -> bool {
        self.state().engine.is_resident(&Key::row(from), &Key::row(to))
    }

    /// Begins an upload: bytes for
    /// [`ContentChange::CreateFromUpload`](crate::ContentChange::CreateFromUpload).
    ///
    /// # Errors
    /// [`ErrorKind::Full`] if too many uploads are unfinished.
    pub fn begin_upload(&self) -> Result<UploadId> {
        self.core().begin_upload(None)
    }

    /// Begins an upload of a user, who may have half of those that may be unfinished.
    ///
    /// # Errors
    /// As [`Store::begin_upload`], also if too many of the user are unfinished.
    pub fn begin_upload_of(&self, user: &str) -> Result<UploadId> {
        self.core().begin_upload(Some(user.into()))
    }

    /// Adds bytes to an upload.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if it has ended; [`ErrorKind::TooLarge`] for more bytes than a content may have;
    /// [`ErrorKind::Full`] without room. After an error of the disk the upload has ended.
    pub fn upload(&self, id: UploadId, data: Bytes) -> Result<()> {
        self.core().upload(id, data)
    }

    /// How many bytes of an upload have come. It waits for a thread that adds some, which may wait for a force.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload.
    pub fn upload_size(&self, id: UploadId) -> Result<u64> {
        self.core().upload_size(id)
    }

    /// Takes no more bytes for an upload, which stays until it is used or aborted; returns its size. It waits for a thread that adds some, which
    /// may wait for a force: the caller must not hold what the receiver of a reply needs.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such upload.
    pub fn seal_upload(&self, id: UploadId) -> Result<u64> {
        self.core().seal_upload(id)
    }

    /// Ends an upload without using it. Does nothing if it has ended. It does not wait for a thread that adds bytes.
    pub fn abort_upload(&self, id: UploadId) {
        self.core().abort_upload(id);
    }

    /// Makes everything durable that was submitted. Only a store without threads needs this.
    ///
    /// # Errors
    /// As [`Store::submit_rows`].
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
    /// [`ErrorKind::Corrupt`] naming a content or row whose checksum does not match; [`ErrorKind::Io`] and [`ErrorKind::Full`]
    /// from `out`; [`ErrorKind::Unavailable`] if `progress` stopped the backup.
    pub fn backup(&self, out: &mut dyn ArchiveSink, progress: &dyn Progress) -> Result<BackupSummary> {
        self.snapshot()?.backup(out, progress)
    }

    /// Restores an archive into a directory that is empty or does not exist.
    ///
    /// The new store has the same rows and contents, and a new identity. The directory can be opened only after the whole
    /// archive was read, verified and made durable. After an error the directory is empty again, or removed if it did not
    /// exist; after a crash it says that a restore was interrupted.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a damaged or incomplete archive; [`ErrorKind::Unsupported`] for an archive of another
    /// format; [`ErrorKind::Invalid`] if the directory is not empty, or if the bytes are not an archive;
    /// [`ErrorKind::Full`] without room; [`ErrorKind::Unavailable`] if `progress` stopped the restore.
    pub fn restore(
        dir: &Path,
        from: &mut dyn Read,
        options: Options,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        Self::restore_chain(dir, vec![Box::new(from)], 0, options, progress)
    }

    /// As [`Store::restore`] for a chain of archives: a full one, and increments, each of which has the archive before it as its base. The log of the
    /// store continues after the position of the last one, and after `position`: that of the last changes by which it will be
    /// [rolled forward](crate::RollForward).
    ///
    /// # Errors
    /// As [`Store::restore`]; [`ErrorKind::Invalid`] if an archive is not the base of the next one, or if the first one is an increment.
    pub fn restore_chain(
        dir: &Path,
        archives: Vec<Box<dyn Read + '_>>,
        position: u64,
        options: Options,
        progress: &dyn Progress,
    ) -> Result<BackupSummary> {
        backup::restore::restore(dir, (archives, position), &options, progress)
    }

    /// Reads and verifies the current state of the store while it serves, and lists all damage.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if `progress` stopped the scrub. Damage is not an error: the scrub continues.
    pub fn scrub(&self, progress: &dyn Progress) -> Result<ScrubReport> {
        let snapshot = self.snapshot()?;
        scrub::run(&snapshot, snapshot.version(), progress)
    }

    /// Reads a part of the pages of the B-tree as they are now, and compares them with their checksums: a scrub of all pages in portions, which holds
    /// nothing between two of them. It begins with no key, and goes on at [`TreeCheck::next`]. Pages without rows, the map of used pages and the
    /// newest header, are read with the first part.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the B-tree cannot be read at all. Damage is not an error.
    pub fn check_tree(&self, from: &[u8], most_bytes: u64) -> Result<TreeCheck> {
        scrub::check_tree(&*self.state().engine, from, most_bytes)
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

    /// The state of the store and its counters. This waits neither for a disk nor for a force.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core().status()
    }

    /// Whether the last installation found the disk full.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        self.core().installer.is_disk_full()
    }

    /// Whether the store is in memory only.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        !self.core().is_durable()
    }

    /// Whether this is a full store in memory, which accepts only changes that free memory or are
    /// [needed](RowChanges::mark_needed).
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
