//! Compares a tree on disk with the store: reads everything from the store and compares checksums.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use client::Client;
use crc_fast::{CrcAlgorithm, Digest};
use model::{ErrorKind, Kind, Object, Oid};
use serde::Serialize;
use tokio::task::JoinSet;
use wire::tasks;

use super::attributes::Attributes;
use super::lookup::{self, BoundObject, ObjectState};
use super::plan::{TreePlan, Work};
use super::source::{self, Source};
use super::walk::{Entry, EntryKind};
use super::{BATCH_DIRECTORIES, FILES_AT_A_TIME, MAX_BATCHES, join_all_limited};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    /// Files, links and directories that are equal in the store and on disk.
    pub(crate) same: u64,
    /// Those that differ, each reported on the error stream.
    pub(crate) different: u64,
    /// Those that are missing in the store, each reported on the error stream.
    pub(crate) missing: u64,
    /// Files that could not be read on disk, each reported on the error stream.
    pub(crate) failed: u64,
    /// Objects that are damaged in the store, each reported on the error stream.
    pub(crate) damaged: u64,
    /// Names below the prefix that do not exist in the tree.
    pub(crate) extra: u64,
    /// Bytes that were compared.
    pub(crate) bytes: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.same += other.same;
        self.different += other.different;
        self.missing += other.missing;
        self.failed += other.failed;
        self.damaged += other.damaged;
        self.bytes += other.bytes;
    }

    /// Whether the tree differs from the store.
    pub(crate) fn differs(&self) -> bool {
        self.different + self.missing > 0
    }
}

/// The length and CRC-64/NVME of a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Checksum {
    bytes: u64,
    crc64: u64,
}

/// Computes a [`Checksum`] of content in pieces.
struct ChecksumBuilder(Digest, u64);

impl ChecksumBuilder {
    fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme), 0)
    }

    fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
        self.1 += piece.len() as u64;
    }

    fn finish(self) -> Checksum {
        Checksum { bytes: self.1, crc64: self.0.finalize() }
    }
}

impl Checksum {
    fn of(content: &[u8]) -> Self {
        let mut summing = ChecksumBuilder::new();
        summing.update(content);
        summing.finish()
    }
}

/// The object of a name, or what is damaged if it cannot be found.
type FoundName = std::result::Result<Option<BoundObject>, String>;

/// The result of comparing one entry.
enum Finding {
    Same,
    Different(String),
    Missing,
    Unreadable(String),
    Damaged(String),
}

/// The state shared by all parts of a verification.
struct Job {
    cluster: Client,
    progress: Progress,
    json: bool,
    /// The tree's directories in the store, by path.
    directories: HashMap<String, Oid>,
}

/// Compares the tree with the objects of the same names.
pub(crate) async fn verify(cluster: &Client, plan: &TreePlan, progress: &Progress, json: bool) -> Result<Tally> {
    let survey = plan.survey().await?;
    progress.set_total(survey.bytes, survey.objects);
    let mut job = Job { cluster: cluster.clone(), progress: progress.clone(), json, directories: HashMap::new() };
    let mut tally = Tally::default();
    for group in survey.directories.chunks(BATCH_DIRECTORIES) {
        tally.add(&job.compare_directories(group).await?);
    }
    let job = Arc::new(job);
    let mut work = plan.clone().hand_out();
    let mut running: JoinSet<Result<Tally>> = JoinSet::new();
    while let Some(next) = work.recv().await {
        let job = Arc::clone(&job);
        match next {
            Work::Small(entries) => drop(tasks::spawn_in(&mut running, job.compare_all(entries))),
            Work::Large(entry) => drop(tasks::spawn_in(&mut running, job.compare_all(vec![entry]))),
            Work::Failed(message) => job.record_finding(&mut tally, Finding::Unreadable(message), ""),
        }
        while running.len() >= MAX_BATCHES {
            collect_one(&mut running, &mut tally).await?;
        }
    }
    while !running.is_empty() {
        collect_one(&mut running, &mut tally).await?;
    }
    let root = cluster.resolve(plan.prefix.root()).await?;
    let named = u64::from(root.is_some()) + lookup::count_names(cluster, &plan.prefix).await?;
    tally.extra = named.saturating_sub(tally.same + tally.different + tally.damaged);
    Ok(tally)
}

async fn collect_one(running: &mut JoinSet<Result<Tally>>, tally: &mut Tally) -> Result {
    if let Some(done) = running.join_next().await {
        tally.add(&done.map_err(|e| Failure::new(format!("verifying failed: {e}")))??);
    }
    Ok(())
}

impl Job {
    fn record_finding(&self, tally: &mut Tally, finding: Finding, name: &str) {
        let (kind, message) = match finding {
            Finding::Same => {
                tally.same += 1;
                return;
            }
            Finding::Different(why) => {
                tally.different += 1;
                ("different", format!("{name}: {why}"))
            }
            Finding::Missing => {
                tally.missing += 1;
                ("missing", format!("{name}: not in the store"))
            }
            Finding::Unreadable(why) => {
                tally.failed += 1;
                ("unreadable", why)
            }
            Finding::Damaged(why) => {
                tally.damaged += 1;
                ("damaged", format!("{name}: damaged in the store: {why}"))
            }
        };
        self.progress.suspend(|| output::warn(self.json, kind, &message));
    }

    async fn look_up(&self, entries: &[Entry]) -> Result<Vec<FoundName>> {
        Ok(lookup::find_readable(&self.cluster, &self.directories, entries).await?)
    }

    /// Compares directories, and records where they are in the store.
    async fn compare_directories(&mut self, entries: &[Entry]) -> Result<Tally> {
        let mut tally = Tally::default();
        for (entry, found) in entries.iter().zip(self.look_up(entries).await?) {
            let (finding, directory) = match found {
                Ok(None | Some(BoundObject { state: ObjectState::Deleted, .. })) => (Finding::Missing, None),
                Err(why) | Ok(Some(BoundObject { state: ObjectState::Damaged(why), .. })) => {
                    (Finding::Damaged(why), None)
                }
                Ok(Some(BoundObject { oid, state: ObjectState::Present(object) })) => {
                    match kind_difference(entry, &object) {
                        Some(different) => (different, None),
                        None => (Finding::Same, Some(oid)),
                    }
                }
            };
            self.directories.extend(directory.map(|oid| (entry.name.clone(), oid)));
            self.progress.advance(0, 1);
            self.record_finding(&mut tally, finding, &entry.name);
        }
        Ok(tally)
    }

    /// Compares files and links, which are small or one.
    async fn compare_all(self: Arc<Self>, entries: Vec<Entry>) -> Result<Tally> {
        let found = self.look_up(&entries).await?;
        let compared = entries.into_iter().zip(found).map(|(entry, found)| Arc::clone(&self).compare(entry, found));
        let mut tally = Tally::default();
        join_all_limited(FILES_AT_A_TIME, compared.collect()).await?.iter().for_each(|one| tally.add(one));
        Ok(tally)
    }

    async fn compare(self: Arc<Self>, entry: Entry, found: FoundName) -> Result<Tally> {
        let mut tally = Tally::default();
        let (name, size) = (entry.name.clone(), entry.size);
        let finding = match found {
            Ok(None | Some(BoundObject { state: ObjectState::Deleted, .. })) => classify_missing(entry).await,
            Err(why) | Ok(Some(BoundObject { state: ObjectState::Damaged(why), .. })) => Finding::Damaged(why),
            Ok(Some(BoundObject { oid, state: ObjectState::Present(object) })) => {
                match kind_difference(&entry, &object) {
                    Some(different) => different,
                    None => self.compare_content(entry, oid, object, &mut tally).await?,
                }
            }
        };
        self.progress.advance(size, 1);
        self.record_finding(&mut tally, finding, &name);
        Ok(tally)
    }

    async fn compare_content(&self, entry: Entry, oid: Oid, object: Object, tally: &mut Tally) -> Result<Finding> {
        let (mtime, then) = (entry.mtime, Attributes::of(&object).mtime);
        let on_disk = tasks::spawn_blocking(move || disk_checksum(entry));
        let stored = match self.stored_checksum(oid, object).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound) => {
                return Ok(Finding::Different("in the store it changed while it was read".to_owned()));
            }
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                return Ok(Finding::Damaged(error.message().to_owned()));
            }
            sum => sum?,
        };
        let on_disk = match on_disk.await.map_err(io::Error::other).and_then(|read| read) {
            Ok(on_disk) => on_disk,
            Err(error) => return Ok(Finding::Unreadable(error.to_string())),
        };
        tally.bytes += stored.bytes;
        if stored == on_disk {
            return Ok(Finding::Same);
        }
        let changed = then.is_some_and(|then| then != mtime);
        Ok(Finding::Different(format!(
            "{} in the store, {} on disk{}",
            stored.describe(),
            on_disk.describe(),
            if changed { "; the file changed since it was imported" } else { "" }
        )))
    }

    async fn stored_checksum(&self, oid: Oid, object: Object) -> model::Result<Checksum> {
        if object.content().is_none() {
            return Ok(Checksum::of(&object.data));
        }
        let mut summing = ChecksumBuilder::new();
        let mut reader = self.cluster.content_reader(oid, 0);
        while let Some(piece) = reader.next().await? {
            summing.update(&piece);
        }
        Ok(summing.finish())
    }
}

/// The difference between the kinds of an entry and of an object, if there is one. A link and a file with its target as content are both blobs.
fn kind_difference(entry: &Entry, object: &Object) -> Option<Finding> {
    let expected = if entry.kind == EntryKind::Directory { Kind::Directory } else { Kind::Blob };
    if object.kind != expected {
        return Some(Finding::Different(format!("in the store it is a {}", object.kind.name())));
    }
    let is_link = expected == Kind::Blob && Attributes::of(object).symlink;
    match (is_link, entry.kind) {
        (true, EntryKind::File) => Some(Finding::Different("in the store it is a symbolic link".to_owned())),
        (false, EntryKind::Symlink) => Some(Finding::Different("in the store it is no symbolic link".to_owned())),
        _ => None,
    }
}

/// Classifies an entry that is not in the store: it is missing, unless it could not have been imported.
async fn classify_missing(entry: Entry) -> Finding {
    let unreadable = move || match entry.kind {
        EntryKind::File => Source::open(&entry.path).err().map(|error| format!("{}: {error}", entry.path.display())),
        EntryKind::Directory | EntryKind::Symlink => None,
    };
    match tasks::spawn_blocking(unreadable).await {
        Ok(Some(why)) => Finding::Unreadable(why),
        _ => Finding::Missing,
    }
}

impl Checksum {
    fn describe(&self) -> String {
        format!("{} bytes with checksum {:016x}", self.bytes, self.crc64)
    }
}

/// Reads a file or link on disk; the error names it.
fn disk_checksum(mut entry: Entry) -> io::Result<Checksum> {
    let named = |error: io::Error, entry: &Entry| io::Error::other(format!("{}: {error}", entry.path.display()));
    if entry.kind == EntryKind::Symlink {
        let target = source::read_small(&mut entry, u64::MAX - 1).map_err(|e| named(e, &entry))?;
        return Ok(Checksum::of(&target));
    }
    let sum = || {
        let mut source = Source::open(&entry.path)?;
        let mut summing = ChecksumBuilder::new();
        let mut piece = vec![0; (1 << 20).min(usize::try_from(source.size).unwrap_or(usize::MAX) + 1)];
        loop {
            match source.read(&mut piece)? {
                0 => return Ok(summing.finish()),
                read => summing.update(&piece[..read]),
            }
        }
    };
    sum().map_err(|e| named(e, &entry))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::tree::attributes::Mtime;

    #[test]
    fn a_link_is_no_file_with_the_same_bytes() {
        let object = |symlink| {
            let mut object = Object::blob(Bytes::from_static(b"target"));
            Attributes { symlink, ..Attributes::default() }.apply(&mut object);
            object
        };
        let entry = |kind| {
            let mtime = Mtime { seconds: 0, nanoseconds: 0 };
            Entry { path: "x".into(), name: "/x".to_owned(), parent: None, kind, size: 6, mode: 0, mtime }
        };
        for (kind, symlink, is_same) in [
            (EntryKind::File, false, true),
            (EntryKind::File, true, false),
            (EntryKind::Symlink, false, false),
            (EntryKind::Symlink, true, true),
            (EntryKind::Directory, false, false),
        ] {
            let difference = kind_difference(&entry(kind), &object(symlink));
            assert_eq!(difference.is_none(), is_same, "{kind:?}, {symlink}");
        }
    }

    #[test]
    fn a_checksum_does_not_depend_on_the_pieces() {
        let mut summing = ChecksumBuilder::new();
        summing.update(b"1234");
        summing.update(b"");
        summing.update(b"56789");
        let sum = summing.finish();
        assert_eq!(sum, Checksum::of(b"123456789"));
        // The check value that the algorithm's definition gives.
        assert_eq!(sum, Checksum { bytes: 9, crc64: 0xae8b_1486_0a79_9888 });
        assert_ne!(sum, Checksum::of(b"123456780"));
    }
}
