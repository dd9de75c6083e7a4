//! A client that uploads, commits, abandons, changes and deletes contents until it is stopped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use client::{Bytes, Client, ContentWriter, ErrorKind, Oid, Result, StagedContent, Transaction};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::slots::{Content, Slot};

/// Names of a worker.
const SLOTS: usize = 2;
/// The largest usual upload, and the largest upload: the store logs chunks of an unfinished upload from 16 MiB on.
const USUAL_BYTES: usize = 2 << 20;
const LARGEST_BYTES: usize = 20 << 20;
/// The largest change of a part of a content.
const CHANGE_BYTES: usize = 300 << 10;
/// Bytes from which contents are cut.
pub(crate) const POOL_BYTES: usize = 2 * LARGEST_BYTES;
/// How long a worker waits after a failure.
const PAUSE: Duration = Duration::from_millis(5);

/// What all workers have done.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) committed: AtomicU64,
    pub(crate) abandoned: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) doubtful: AtomicU64,
}

impl Counts {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Bytes of a random length that are cut from the pool.
pub(crate) fn cut(rng: &mut StdRng, pool: &Bytes, most: usize) -> Bytes {
    let len = rng.random_range(0..=most);
    let from = rng.random_range(0..=pool.len() - len);
    pool.slice(from..from + len)
}

pub(crate) struct Worker {
    rng: StdRng,
    pool: Bytes,
    pub(crate) slots: Vec<Slot>,
    /// Uploads that are never finished. They are dropped outside of the runtime, so that no client aborts them.
    pub(crate) abandoned: Vec<ContentWriter>,
}

impl Worker {
    pub(crate) fn new(number: usize, seed: u64, pool: Bytes) -> Self {
        let slots = (0..SLOTS).map(|slot| Slot::new(format!("worker-{number}/{slot}"))).collect();
        Self { rng: StdRng::seed_from_u64(seed), pool, slots, abandoned: Vec::new() }
    }

    /// Works until `stop` is set, or the outcome of a change is not known.
    pub(crate) async fn work(&mut self, client: &Client, stop: &AtomicBool, counts: &Counts) {
        while !stop.load(Ordering::Relaxed) && self.slots.iter().all(Slot::is_settled) {
            let at = self.rng.random_range(0..self.slots.len());
            if let Err(error) = self.step(client, at, counts).await {
                Counts::add(&counts.failed);
                let is_expected = matches!(
                    error.kind(),
                    // A restart ends uploads. The lease of a staged content may have ended if the machine is slow.
                    ErrorKind::NotFound | ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Unknown
                );
                assert!(is_expected, "{error:?}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    async fn step(&mut self, client: &Client, at: usize, counts: &Counts) -> Result<()> {
        match (self.slots[at].content().is_some(), self.rng.random_range(0..10)) {
            (_, 0) => self.abandon(client, counts).await,
            (_, 1) => {
                let bytes = self.bytes();
                self.upload(client, bytes).await?;
                Counts::add(&counts.abandoned);
                Ok(())
            }
            (false, _) => {
                let bytes = self.bytes();
                let (path, staged) = (self.slots[at].path.clone(), self.upload(client, bytes.clone()).await?);
                let made = client.transact(|t| create(t, path.clone(), staged)).await;
                self.conclude(at, made, Some(Content::from_upload(bytes)), counts)
            }
            (true, 2..=3) => {
                let deleted = client.transact(|t| delete(t, self.slots[at].path.clone())).await;
                self.conclude(at, deleted, None, counts)
            }
            (true, 4..=5) => {
                let bytes = self.bytes();
                let (path, staged) = (self.slots[at].path.clone(), self.upload(client, bytes.clone()).await?);
                let replaced = client.transact(|t| replace(t, path.clone(), staged)).await;
                self.conclude(at, replaced, Some(Content::from_upload(bytes)), counts)
            }
            (true, _) => self.change(client, at, counts).await,
        }
    }

    /// The bytes of an upload, seldom of a large one.
    fn bytes(&mut self) -> Bytes {
        let most = if self.rng.random_range(0..16) == 0 { LARGEST_BYTES } else { USUAL_BYTES };
        cut(&mut self.rng, &self.pool, most)
    }

    /// Notes what a change has made of a name.
    fn conclude(&mut self, at: usize, ended: Result<()>, after: Option<Content>, counts: &Counts) -> Result<()> {
        match &ended {
            Ok(()) => {
                self.slots[at].set(after);
                Counts::add(&counts.committed);
            }
            Err(error) if error.kind() == ErrorKind::Unknown => {
                self.slots[at].set_doubtful(after);
                Counts::add(&counts.doubtful);
            }
            // Nothing was changed.
            Err(_) => {}
        }
        ended
    }

    /// Sends bytes in pieces of random sizes.
    async fn send(&mut self, client: &Client, mut bytes: Bytes) -> Result<ContentWriter> {
        let mut writer = client.content_writer(None);
        while !bytes.is_empty() {
            let piece = self.rng.random_range(1..=bytes.len());
            writer.write(bytes.split_to(piece)).await?;
        }
        Ok(writer)
    }

    async fn upload(&mut self, client: &Client, bytes: Bytes) -> Result<StagedContent> {
        self.send(client, bytes).await?.finish().await
    }

    /// Begins an upload and never finishes it.
    async fn abandon(&mut self, client: &Client, counts: &Counts) -> Result<()> {
        let bytes = self.bytes();
        let writer = self.send(client, bytes).await?;
        self.abandoned.push(writer);
        Counts::add(&counts.abandoned);
        Ok(())
    }

    /// Changes a part of a content.
    async fn change(&mut self, client: &Client, at: usize, counts: &Counts) -> Result<()> {
        let before = self.slots[at].content().map(|content| content.bytes.clone()).unwrap_or_default();
        let data = cut(&mut self.rng, &self.pool, CHANGE_BYTES);
        let offset = self.rng.random_range(0..=before.len());
        let change = match self.rng.random_range(0..4) {
            0 => Change::Append(data),
            1 => Change::Truncate(offset),
            2 => Change::Zero(offset, data.len().min(before.len() - offset)),
            _ => Change::Write(offset, data),
        };
        let path = self.slots[at].path.clone();
        let changed = client.transact(|t| change.clone().make(t, path.clone())).await;
        let after = Content { bytes: change.apply(&before), is_changed: true };
        self.conclude(at, changed, Some(after), counts)
    }
}

/// A change of a part of a content.
#[derive(Clone)]
enum Change {
    Append(Bytes),
    Truncate(usize),
    Zero(usize, usize),
    Write(usize, Bytes),
}

impl Change {
    async fn make(self, t: Transaction, path: String) -> Result<()> {
        let oid = find(&t, &path).await?;
        match self {
            Self::Append(data) => t.append(oid, data).await,
            Self::Truncate(size) => t.truncate(oid, size as u64).await,
            Self::Zero(offset, len) => t.zero(oid, offset as u64, len as u64).await,
            Self::Write(offset, data) => t.write_at(oid, offset as u64, data).await,
        }
    }

    fn apply(&self, before: &Bytes) -> Bytes {
        let mut bytes = before.to_vec();
        match self {
            Self::Append(data) => bytes.extend_from_slice(data),
            Self::Truncate(size) => bytes.truncate(*size),
            Self::Zero(offset, len) => bytes[*offset..offset + len].fill(0),
            Self::Write(offset, data) => {
                bytes.resize(bytes.len().max(offset + data.len()), 0);
                bytes[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
        bytes.into()
    }
}

async fn find(t: &Transaction, path: &str) -> Result<Oid> {
    Ok(t.resolve(path).await?.unwrap_or_else(|| panic!("{path} was committed and is not found")))
}

async fn create(t: Transaction, path: String, staged: StagedContent) -> Result<()> {
    let blob = t.create_blob_from(staged)?;
    t.bind(&path, blob).await
}

/// Replaces the object of a name: the upload may be at another logical node than the object.
async fn replace(t: Transaction, path: String, staged: StagedContent) -> Result<()> {
    let before = find(&t, &path).await?;
    if before.page().node == staged.node() {
        return t.put_content(before, staged).await;
    }
    let blob = t.create_blob_from(staged)?;
    t.bind(&path, blob).await?;
    t.delete(before).await
}

/// Deletes the object of a name.
pub(crate) async fn delete(t: Transaction, path: String) -> Result<()> {
    let oid = find(&t, &path).await?;
    t.delete_with_names(oid).await
}
