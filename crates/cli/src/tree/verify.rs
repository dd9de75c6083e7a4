//! Compares a tree on disk with the store: reads everything from the store and compares checksums.

use std::io::{self, Read};
use std::sync::Arc;

use client::Client;
use crc_fast::{CrcAlgorithm, Digest};
use model::{Kind, Oid, Stat};
use serde::Serialize;
use tokio::task::{self, JoinSet};

use super::plan::{TreePlan, Work};
use super::source::{self, Source};
use super::walk::{Entry, EntryKind};
use super::{MAX_BATCHES, SMALL_READ_BYTES, attributes};
use crate::failure::{Failure, Result};
use crate::output;
use crate::progress::Progress;

/// Number of names that are counted with one request.
const NAMES_PER_REQUEST: usize = 10_000;

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

/// The result of comparing one entry.
enum Finding {
    Same,
    Different(String),
    Missing,
    Unreadable(String),
}

/// The state shared by all parts of a verification.
struct Job {
    client: Client,
    progress: Progress,
    json: bool,
}

/// Compares the tree with the objects of the same names.
pub(crate) async fn verify(client: &Client, plan: &TreePlan, progress: &Progress, json: bool) -> Result<Tally> {
    let survey = plan.survey().await?;
    progress.set_total(survey.bytes, survey.objects);
    let job = Arc::new(Job { client: client.clone(), progress: progress.clone(), json });
    let mut tally = Tally::default();
    for group in survey.directories.chunks(NAMES_PER_REQUEST) {
        tally.add(&Arc::clone(&job).compare_all(group.to_vec()).await?);
    }
    let mut work = plan.clone().hand_out();
    let mut running: JoinSet<Result<Tally>> = JoinSet::new();
    while let Some(next) = work.recv().await {
        let job = Arc::clone(&job);
        match next {
            Work::Small(entries) => drop(running.spawn(job.compare_all(entries))),
            Work::Large(entry) => drop(running.spawn(job.compare_all(vec![entry]))),
            Work::Failed(message) => job.record_finding(&mut tally, Finding::Unreadable(message), ""),
        }
        while running.len() >= MAX_BATCHES {
            collect_one(&mut running, &mut tally).await?;
        }
    }
    while !running.is_empty() {
        collect_one(&mut running, &mut tally).await?;
    }
    let named = count_names(client, plan).await?;
    tally.extra = named.saturating_sub(tally.same + tally.different);
    Ok(tally)
}

async fn collect_one(running: &mut JoinSet<Result<Tally>>, tally: &mut Tally) -> Result {
    if let Some(done) = running.join_next().await {
        tally.add(&done.map_err(|e| Failure::new(format!("verifying failed: {e}")))??);
    }
    Ok(())
}

/// Number of the tree's names in the store, including that of its root.
async fn count_names(client: &Client, plan: &TreePlan) -> Result<u64> {
    let below = plan.prefix.below();
    let mut count = u64::from(client.resolve(plan.prefix.root()).await?.is_some());
    let mut after: Option<String> = None;
    loop {
        let page = client.names(&below, after.as_deref(), NAMES_PER_REQUEST).await?;
        // Without a prefix, the listing includes the root's own name.
        count += page.iter().filter(|(name, _)| name != plan.prefix.root()).count() as u64;
        match page.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None => return Ok(count),
        }
    }
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
        };
        self.progress.suspend(|| output::warn(self.json, kind, &message));
    }

    async fn compare_all(self: Arc<Self>, entries: Vec<Entry>) -> Result<Tally> {
        let mut tally = Tally::default();
        let lookups: Vec<_> = entries
            .iter()
            .map(|entry| {
                let (client, name) = (self.client.clone(), entry.name.clone());
                tokio::spawn(async move {
                    match client.resolve(&name).await? {
                        Some(oid) => client.get(oid, SMALL_READ_BYTES).await,
                        None => Ok(None),
                    }
                })
            })
            .collect();
        for (entry, lookup) in entries.into_iter().zip(lookups) {
            let stored = lookup.await.map_err(|e| Failure::new(format!("reading back failed: {e}")))??;
            let name = entry.name.clone();
            let size = entry.size;
            let finding = match stored {
                None => classify_missing(entry).await,
                Some((stat, content)) => self.compare(entry, &stat, content, &mut tally).await?,
            };
            self.progress.advance(size, 1);
            self.record_finding(&mut tally, finding, &name);
        }
        Ok(tally)
    }

    async fn compare(
        &self,
        entry: Entry,
        stat: &Stat,
        content: Option<bytes::Bytes>,
        tally: &mut Tally,
    ) -> Result<Finding> {
        let expected = if entry.kind == EntryKind::Directory { Kind::Collection } else { Kind::Blob };
        if stat.kind != expected {
            return Ok(Finding::Different(format!("in the store it is a {}", stat.kind.name())));
        }
        if entry.kind == EntryKind::Directory {
            return Ok(Finding::Same);
        }
        let mtime = entry.mtime;
        let on_disk = task::spawn_blocking(move || disk_checksum(entry));
        let stored = match content {
            Some(content) => Checksum::of(&content),
            None => self.stored_checksum(stat.oid).await?,
        };
        let on_disk = match on_disk.await.map_err(io::Error::other).and_then(|read| read) {
            Ok(on_disk) => on_disk,
            Err(error) => return Ok(Finding::Unreadable(error.to_string())),
        };
        tally.bytes += stored.bytes;
        if stored == on_disk {
            return Ok(Finding::Same);
        }
        let then = self.client.attribute(stat.oid, attributes::MTIME.as_bytes()).await?;
        let changed = then.is_some_and(|then| then != mtime.to_string().as_bytes());
        Ok(Finding::Different(format!(
            "{} in the store, {} on disk{}",
            stored.describe(),
            on_disk.describe(),
            if changed { "; the file changed since it was imported" } else { "" }
        )))
    }

    async fn stored_checksum(&self, oid: Oid) -> Result<Checksum> {
        let mut summing = ChecksumBuilder::new();
        let mut reader = self.client.reader(oid, ..);
        while let Some(piece) = reader.next().await? {
            summing.update(&piece);
        }
        Ok(summing.finish())
    }
}

/// Classifies an entry that is not in the store: it is missing, unless it could not have been imported.
async fn classify_missing(entry: Entry) -> Finding {
    let unreadable = move || match entry.kind {
        EntryKind::File => Source::open(&entry.path).err().map(|error| format!("{}: {error}", entry.path.display())),
        EntryKind::Directory | EntryKind::Symlink => None,
    };
    match task::spawn_blocking(unreadable).await {
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
    use super::*;

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
