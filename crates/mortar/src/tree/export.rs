//! Objects become a tree of files again.
//!
//! Names come from whoever wrote to the store, so nothing here trusts them: a name that would lead out of the directory
//! is refused, no symbolic link is ever followed, and links are made last of all. Directories get their modes and times
//! when everything is in them.

mod place;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use client::Client;
use model::{Kind, Oid, Stat};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::{self, JoinSet};

use self::place::Place;
use super::attributes::Attributes;
use super::walk::Prefix;
use super::{BATCH_FILES, BATCHES, SMALL_READ, file_name};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;

/// How many names are asked for at a time.
const PAGE: usize = 10_000;
/// Attributes of an object that are looked at.
const ATTRIBUTES: usize = 100;
/// Pieces of a large object that are read but not written.
const AHEAD: usize = 2;

/// What is to be exported.
pub(crate) struct Plan {
    /// What the names begin with.
    pub(crate) prefix: Prefix,
    /// Where the tree goes.
    pub(crate) root: PathBuf,
    /// Whether files that are there already are replaced.
    pub(crate) overwrite: bool,
}

/// What an export did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Regular files written.
    pub(crate) files: u64,
    /// Symbolic links made.
    pub(crate) links: u64,
    /// Directories made or found.
    pub(crate) directories: u64,
    /// Objects that could not be written, each reported on the error stream.
    pub(crate) failed: u64,
    /// Bytes of content written.
    pub(crate) bytes: u64,
}

/// What all parts of an export share.
struct Job {
    client: Client,
    progress: Progress,
    json: bool,
    prefix: Prefix,
    place: Place,
    shared: Mutex<Later>,
}

/// What can be done only when all files are there.
#[derive(Default)]
struct Later {
    tally: Tally,
    links: Vec<(PathBuf, Bytes, Attributes)>,
    directories: Vec<(PathBuf, Attributes)>,
}

/// One object to be written.
struct Item {
    /// Its name below the prefix.
    relative: String,
    oid: Oid,
}

/// Exports all names below the prefix.
pub(crate) async fn export(client: &Client, plan: Plan, progress: &Progress, json: bool) -> Result<Tally> {
    progress.expect(0, count(client, &plan.prefix).await?);
    let place = Place::open(plan.root, plan.overwrite)?;
    let job = Arc::new(Job {
        client: client.clone(),
        progress: progress.clone(),
        json,
        prefix: plan.prefix,
        place,
        shared: Mutex::default(),
    });
    if let Some(root) = client.resolve(job.prefix.root()).await? {
        let pairs = client.attributes(root, None, ATTRIBUTES).await?;
        job.later(|later| later.directories.push((job.place.root().to_owned(), Attributes::read(&pairs))));
    }
    let mut running: JoinSet<Result> = JoinSet::new();
    let below = job.prefix.below();
    let mut after: Option<String> = None;
    loop {
        let names = client.names(&below, after.as_deref(), BATCH_FILES).await?;
        let Some((last, _)) = names.last() else { break };
        after = Some(last.clone());
        let items = names.into_iter().filter_map(|(name, oid)| {
            job.prefix.relative(&name).map(|relative| Item { relative: relative.to_owned(), oid })
        });
        running.spawn(Arc::clone(&job).write_all(items.collect()));
        while running.len() >= BATCHES {
            join(&mut running).await?;
        }
    }
    while !running.is_empty() {
        join(&mut running).await?;
    }
    let job = Arc::into_inner(job).ok_or_else(|| Failure::new("an export ended while parts of it went on"))?;
    task::spawn_blocking(move || job.finish()).await.map_err(|e| Failure::new(format!("exporting failed: {e}")))
}

async fn join(running: &mut JoinSet<Result>) -> Result {
    match running.join_next().await {
        Some(done) => done.map_err(|e| Failure::new(format!("exporting failed: {e}")))?,
        None => Ok(()),
    }
}

async fn count(client: &Client, prefix: &Prefix) -> Result<u64> {
    let below = prefix.below();
    let (mut count, mut after) = (0, None::<String>);
    loop {
        let page = client.names(&below, after.as_deref(), PAGE).await?;
        count += page.len() as u64;
        match page.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None if count == 0 => {
                return Err(Failure::not_found(format!("no name begins with {below}"))
                    .hint("`mortar ls` shows the names there are; --prefix says which to export."));
            }
            None => return Ok(count),
        }
    }
}

impl Job {
    fn later<T>(&self, change: impl FnOnce(&mut Later) -> T) -> T {
        // A thread that panicked in here has left at worst a count too low.
        change(&mut self.shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn fail(&self, message: &str) {
        self.later(|later| later.tally.failed += 1);
        self.progress.aside(|| output::warn(self.json, "not_exported", message));
    }

    async fn write_all(self: Arc<Self>, items: Vec<Item>) -> Result {
        let fetches: Vec<_> = items
            .iter()
            .map(|item| {
                let (client, oid) = (self.client.clone(), item.oid);
                tokio::spawn(async move {
                    let (object, pairs) =
                        tokio::join!(client.get(oid, SMALL_READ), client.attributes(oid, None, ATTRIBUTES));
                    Ok::<_, model::Error>((object?, pairs))
                })
            })
            .collect();
        for (item, fetched) in items.into_iter().zip(fetches) {
            let (object, pairs) = fetched.await.map_err(|e| Failure::new(format!("exporting failed: {e}")))??;
            // What was deleted meanwhile is no part of the tree any more.
            if let Some((stat, content)) = object {
                self.write(&item, stat, content, Attributes::read(&pairs?)).await?;
            }
            self.progress.advance(0, 1);
        }
        Ok(())
    }

    async fn write(
        self: &Arc<Self>,
        item: &Item,
        stat: Stat,
        content: Option<Bytes>,
        attributes: Attributes,
    ) -> Result {
        let path = match file_name::to_path(&item.relative) {
            Ok(relative) => self.place.root().join(relative),
            Err(why) => {
                self.fail(&format!("{}{}: {why}", self.prefix.below(), item.relative));
                return Ok(());
            }
        };
        if stat.kind == Kind::Collection {
            let (job, directory) = (Arc::clone(self), path.clone());
            let made = task::spawn_blocking(move || job.place.directory(&directory)).await;
            return self.done(made, &path, |later| later.directories.push((path.clone(), attributes)));
        }
        if attributes.symlink {
            match content {
                Some(target) => self.later(|later| later.links.push((path, target, attributes))),
                None => self.fail(&format!("{}: too long for the target of a link", path.display())),
            }
            return Ok(());
        }
        let (pieces, read) = mpsc::channel(AHEAD);
        let (job, file) = (Arc::clone(self), path.clone());
        let writing = task::spawn_blocking(move || job.place.file(&file, &attributes, read));
        let sent = self.send_content(stat.oid, content, &pieces).await;
        if sent.is_ok() {
            // The empty piece says that the content is whole; without it the file is thrown away.
            let _ = pieces.send(Bytes::new()).await;
        }
        drop(pieces);
        let written = writing.await;
        let bytes = sent?;
        self.done(written, &path, |later| {
            later.tally.files += 1;
            later.tally.bytes += bytes;
        })
    }

    /// Hands the content to the thread that writes it, and says how much it is.
    async fn send_content(&self, oid: Oid, content: Option<Bytes>, pieces: &mpsc::Sender<Bytes>) -> Result<u64> {
        // A receiver that is gone has failed to write, and says why itself.
        if let Some(content) = content {
            let bytes = content.len() as u64;
            if bytes > 0 {
                let _ = pieces.send(content).await;
            }
            self.progress.advance(bytes, 0);
            return Ok(bytes);
        }
        let mut bytes = 0;
        let mut reader = self.client.reader(oid, ..);
        while let Some(piece) = reader.next().await? {
            bytes += piece.len() as u64;
            self.progress.advance(piece.len() as u64, 0);
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
        Ok(bytes)
    }

    /// Counts what was written, or reports why it was not.
    fn done(
        &self,
        written: std::result::Result<io::Result<()>, task::JoinError>,
        path: &Path,
        count: impl FnOnce(&mut Later),
    ) -> Result {
        match written.map_err(io::Error::other).and_then(|written| written) {
            Ok(()) => self.later(count),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                return Err(Failure::file(format!("cannot write {}", path.display()), &error));
            }
            Err(error) => self.fail(&format!("{}: {error}", path.display())),
        }
        Ok(())
    }

    /// Makes the links, then gives directories what they had, the deepest first.
    fn finish(self) -> Tally {
        let (links, mut directories) =
            self.later(|later| (std::mem::take(&mut later.links), std::mem::take(&mut later.directories)));
        for (path, target, attributes) in &links {
            match self.place.link(path, target, attributes) {
                Ok(()) => self.later(|later| later.tally.links += 1),
                Err(error) => self.fail(&format!("{}: {error}", path.display())),
            }
        }
        directories.sort_unstable_by(|(a, _), (b, _)| b.cmp(a));
        for (path, attributes) in &directories {
            match self.place.finish_directory(path, attributes) {
                Ok(()) => self.later(|later| later.tally.directories += 1),
                Err(error) => self.fail(&format!("{}: {error}", path.display())),
            }
        }
        self.later(|later| later.tally.clone())
    }
}
