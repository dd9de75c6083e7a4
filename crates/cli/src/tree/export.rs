//! Writes objects back as a tree of files.
//!
//! Names in the store are untrusted: a name that would lead out of the directory is refused, symbolic links are never followed, and
//! links are created last. Directories get their modes and times when all of their entries are written.

mod export_directory;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::{Client, ListedName};
use model::{Error, ErrorKind, Kind, Object, Oid};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use self::export_directory::ExportDirectory;
pub(crate) use self::export_directory::check_target;
use super::attributes::Attributes;
use super::lookup::ObjectState;
use super::walk::Prefix;
use super::{
    BATCH_FILES, FILES_AT_A_TIME, MAX_BATCHES, SMALL_FILE_BYTES, file_name, join_all, join_all_limited, lookup,
};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use wire::tasks;

/// Pieces of a large object that are read ahead.
const READ_AHEAD_PIECES: usize = 2;

/// The parameters of an export.
pub(crate) struct ExportPlan {
    /// The prefix of the names.
    pub(crate) prefix: Prefix,
    /// The directory of the exported tree.
    pub(crate) root: PathBuf,
    /// Whether existing files are replaced.
    pub(crate) overwrite: bool,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Regular files written.
    pub(crate) files: u64,
    /// Symbolic links created.
    pub(crate) links: u64,
    /// Directories created or found.
    pub(crate) directories: u64,
    /// Objects that could not be written, each reported on the error stream; damaged ones are among them.
    pub(crate) failed: u64,
    /// Objects that are damaged in the store.
    pub(crate) damaged: u64,
    /// Bytes of content written.
    pub(crate) bytes: u64,
}

/// The state shared by all parts of an export.
struct Job {
    cluster: Client,
    progress: Progress,
    json: bool,
    prefix: Prefix,
    directory: ExportDirectory,
    shared: Mutex<PendingWork>,
}

/// Work that is done when all files are written.
#[derive(Default)]
struct PendingWork {
    tally: Tally,
    links: Vec<(PathBuf, Bytes, Attributes)>,
    directories: Vec<(PathBuf, Attributes)>,
}

/// Exports all names below the prefix.
pub(crate) async fn export(cluster: &Client, plan: ExportPlan, progress: &Progress, json: bool) -> Result<Tally> {
    let below = plan.prefix.below();
    let count = lookup::count_names(cluster, &plan.prefix).await?;
    if count == 0 {
        let root = cluster.resolve(plan.prefix.root()).await?.ok_or_else(|| {
            Failure::not_found(format!("no name begins with {below}"))
                .hint("`mortar ls` shows the names there are; --prefix says which to export.")
        })?;
        let kind = cluster.stat(root).await?.map(|stat| stat.kind());
        if let Some(kind) = kind.filter(|kind| *kind != Kind::Directory) {
            let (root, kind) = (plan.prefix.root(), kind.name());
            return Err(Failure::usage(format!("{root} is a {kind}, not a directory"))
                .hint(format!("`mortar get {root} -o FILE` writes one object to a file.")));
        }
    }
    progress.set_total(0, count);
    let directory = ExportDirectory::open(plan.root, plan.overwrite)?;
    let job = Arc::new(Job {
        cluster: cluster.clone(),
        progress: progress.clone(),
        json,
        prefix: plan.prefix,
        directory,
        shared: Mutex::default(),
    });
    job.add_root().await?;
    let mut running: JoinSet<Result> = JoinSet::new();
    let mut names = cluster.names(&below).with_directories().portion_size(BATCH_FILES).below_damage();
    while let Some(portion) = names.next().await? {
        tasks::spawn_in(&mut running, Arc::clone(&job).write_all(portion));
        while running.len() >= MAX_BATCHES {
            join_one(&mut running).await?;
        }
    }
    while !running.is_empty() {
        join_one(&mut running).await?;
    }
    let job = Arc::into_inner(job).ok_or_else(|| Failure::new("an export ended while parts of it were running"))?;
    tasks::spawn_blocking(move || job.finish()).await.map_err(|e| Failure::new(format!("exporting failed: {e}")))
}

/// Whether a blob could not be read because it was changed or deleted meanwhile.
fn is_changed(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound)
}

async fn join_one(running: &mut JoinSet<Result>) -> Result {
    match running.join_next().await {
        Some(done) => done.map_err(|e| Failure::new(format!("exporting failed: {e}")))?,
        None => Ok(()),
    }
}

impl Job {
    fn with_pending<T>(&self, change: impl FnOnce(&mut PendingWork) -> T) -> T {
        // A thread that has panicked has left at worst a count that is too low.
        change(&mut self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn report_failure(&self, message: &str) {
        self.with_pending(|later| later.tally.failed += 1);
        self.progress.suspend(|| output::warn(self.json, "not_exported", message));
    }

    fn report_damage(&self, path: &str, why: &str) {
        self.with_pending(|later| {
            later.tally.failed += 1;
            later.tally.damaged += 1;
        });
        self.progress.suspend(|| output::warn(self.json, "damaged", &format!("{path}: damaged in the store: {why}")));
    }

    /// Records the directory of the prefix, whose mode and time the root of the exported tree gets.
    async fn add_root(&self) -> Result {
        let Some(oid) = self.cluster.resolve(self.prefix.root()).await? else { return Ok(()) };
        match lookup::read_state(&self.cluster, oid).await? {
            ObjectState::Present(object) => {
                let root = (self.directory.root().to_owned(), Attributes::of(&object));
                self.with_pending(|later| later.directories.push(root));
            }
            ObjectState::Deleted => {}
            ObjectState::Damaged(why) => self.report_damage(self.prefix.root(), &why),
        }
        Ok(())
    }

    async fn write_all(self: Arc<Self>, names: Vec<ListedName>) -> Result {
        let (damaged, names): (Vec<ListedName>, _) = names.into_iter().partition(|name| name.damage.is_some());
        for ListedName { path, is_directory, damage, .. } in damaged {
            self.report_damage(&path, &damage.unwrap_or_default());
            // A directory is listed twice if its entries are damaged.
            self.progress.advance(0, u64::from(!is_directory));
        }
        let read = |name: &ListedName| {
            let (cluster, oid) = (self.cluster.clone(), name.oid);
            async move { lookup::read_state(&cluster, oid).await }
        };
        let states = join_all(names.iter().map(read).collect()).await?;
        let found = names.into_iter().zip(states).filter_map(|(name, state)| match state {
            ObjectState::Present(object) => Some((name, object)),
            // An object that was deleted meanwhile is not part of the tree any more.
            ObjectState::Deleted => None,
            ObjectState::Damaged(why) => {
                self.report_damage(&name.path, &why);
                self.progress.advance(0, 1);
                None
            }
        });
        let (large, small): (Vec<_>, Vec<_>) = found.partition(|(_, object)| object.size() > SMALL_FILE_BYTES);
        let small = small.into_iter().map(|(name, object)| Arc::clone(&self).write(name, object));
        join_all_limited(FILES_AT_A_TIME, small.collect()).await?;
        for (name, object) in large {
            Arc::clone(&self).write(name, object).await?;
        }
        Ok(())
    }

    /// Writes an object, or reports why it cannot be written.
    async fn write(self: Arc<Self>, name: ListedName, object: Object) -> Result {
        let written = self.write_as_kind(&name, object).await;
        self.progress.advance(0, 1);
        written
    }

    async fn write_as_kind(self: &Arc<Self>, name: &ListedName, object: Object) -> Result {
        let relative = self.prefix.relative(&name.path).unwrap_or_default();
        let path = match file_name::to_path(relative) {
            Ok(relative) => self.directory.root().join(relative),
            Err(why) => {
                self.report_failure(&format!("{}: {why}", name.path));
                return Ok(());
            }
        };
        let attributes = Attributes::of(&object);
        match object.kind {
            Kind::Directory => self.create_directory(path, attributes).await,
            Kind::Blob if attributes.symlink => {
                match object.content() {
                    None => self.with_pending(|later| later.links.push((path, object.data, attributes))),
                    Some(_) => self.report_failure(&format!("{}: too long for the target of a link", path.display())),
                }
                Ok(())
            }
            Kind::Blob => self.write_file(&path, name, object, attributes).await,
            kind @ (Kind::Record | Kind::Collection) => {
                let what = if kind == Kind::Record { "a record" } else { "a collection" };
                self.report_failure(&format!("{}: it is {what}, which cannot become a file", name.path));
                Ok(())
            }
        }
    }

    async fn create_directory(self: &Arc<Self>, path: PathBuf, attributes: Attributes) -> Result {
        let (job, directory) = (Arc::clone(self), path.clone());
        let made = tasks::spawn_blocking(move || job.directory.create_directory(&directory)).await;
        self.record_result(made, &path, |later| later.directories.push((path.clone(), attributes)))
    }

    async fn write_file(
        self: &Arc<Self>,
        path: &Path,
        name: &ListedName,
        object: Object,
        attributes: Attributes,
    ) -> Result {
        let (pieces, read) = mpsc::channel(READ_AHEAD_PIECES);
        let (job, file) = (Arc::clone(self), path.to_owned());
        let writing = tasks::spawn_blocking(move || job.directory.write_file(&file, &attributes, read));
        let sent = self.send_content(name.oid, object, &pieces).await;
        if sent.is_ok() {
            // The empty piece marks the content as complete; without it the file is removed.
            let _ = pieces.send(Bytes::new()).await;
        }
        drop(pieces);
        let written = writing.await;
        let bytes = match sent {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.report_damage(&name.path, error.message());
                return Ok(());
            }
            Err(error) if is_changed(&error) => {
                self.report_failure(&format!("{}: it changed while it was read; export again", path.display()));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        self.record_result(written, path, |later| {
            later.tally.files += 1;
            later.tally.bytes += bytes;
        })
    }

    /// Sends the content to the thread that writes it. Returns its size.
    async fn send_content(&self, oid: Oid, object: Object, pieces: &mpsc::Sender<Bytes>) -> model::Result<u64> {
        // If the receiver is gone, writing has failed, and that error is reported.
        if object.content().is_none() {
            let bytes = object.size();
            if bytes > 0 {
                let _ = pieces.send(object.data).await;
            }
            self.progress.advance(bytes, 0);
            return Ok(bytes);
        }
        let mut bytes = 0;
        let mut reader = self.cluster.content_reader(oid, 0);
        while let Some(piece) = reader.next().await? {
            // An empty piece would mark the content as complete.
            if piece.is_empty() {
                continue;
            }
            bytes += piece.len() as u64;
            self.progress.advance(piece.len() as u64, 0);
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
        Ok(bytes)
    }

    /// Counts a written file, or reports why it was not written.
    fn record_result(
        &self,
        written: std::result::Result<io::Result<()>, JoinError>,
        path: &Path,
        count: impl FnOnce(&mut PendingWork),
    ) -> Result {
        match written.map_err(io::Error::other).and_then(|written| written) {
            Ok(()) => self.with_pending(count),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(Failure::file(format!("cannot write {}", path.display()), &error));
            }
            Err(error) => self.report_failure(&format!("{}: {error}", path.display())),
        }
        Ok(())
    }

    /// Creates the links, and then sets modes and times of directories, the deepest first.
    fn finish(self) -> Tally {
        let (links, mut directories) =
            self.with_pending(|later| (std::mem::take(&mut later.links), std::mem::take(&mut later.directories)));
        for (path, target, attributes) in &links {
            match self.directory.create_link(path, target, attributes) {
                Ok(()) => self.with_pending(|later| later.tally.links += 1),
                Err(error) => self.report_failure(&format!("{}: {error}", path.display())),
            }
        }
        directories.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        for (path, attributes) in &directories {
            match self.directory.finish_directory(path, attributes) {
                Ok(()) => self.with_pending(|later| later.tally.directories += 1),
                Err(error) => self.report_failure(&format!("{}: {error}", path.display())),
            }
        }
        self.with_pending(|later| later.tally.clone())
    }
}
