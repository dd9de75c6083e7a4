//! Mortar in this process, with the interface of the osbdb workloads: a whole cluster behind the client, as a user gets it.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use client::{Client, Kind, Transaction};
use model::{Oid, limits};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::commit_new;
use crate::Result;
use crate::osbdb::{Collections, Objects, Reopens};

/// Most transactions in flight while none is waited for.
const MAX_PENDING: usize = 256;
/// Contents from this size on are uploaded in pieces; smaller ones are part of their transaction.
const UPLOADED: usize = 256 << 10;
const PIECE: usize = 1 << 20;
const NAME: &str = "name";

/// A cluster in this process.
pub(crate) struct Embedded {
    directory: PathBuf,
    // Before the runtime, which its tasks need.
    client: Option<Client>,
    /// Transactions in flight, with the number of the created object.
    pending: JoinSet<Result<Option<(usize, Oid)>>>,
    created: Vec<(usize, Oid)>,
    /// The paths of directories.
    paths: HashMap<Oid, String>,
    runtime: Runtime,
}

impl Embedded {
    pub(crate) fn create(directory: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = Some(runtime.block_on(Client::open(directory))?);
        let (directory, paths) = (directory.to_owned(), HashMap::new());
        Ok(Self { directory, client, pending: JoinSet::new(), created: Vec::new(), paths, runtime })
    }

    fn client(&self) -> Result<Client> {
        self.client.clone().ok_or_else(|| "the cluster is closed".into())
    }

    /// Starts a transaction, as soon as few enough are in flight.
    fn submit(&mut self, work: impl Future<Output = Result<Option<(usize, Oid)>>> + Send + 'static) -> Result<()> {
        self.wait_below(MAX_PENDING)?;
        self.pending.spawn_on(work, self.runtime.handle());
        Ok(())
    }

    /// Waits until fewer than `limit` transactions are in flight.
    fn wait_below(&mut self, limit: usize) -> Result<()> {
        while self.pending.len() >= limit {
            match self.runtime.block_on(self.pending.join_next()) {
                Some(done) => self.created.extend(done??),
                None => break,
            }
        }
        Ok(())
    }

    /// Creates a directory or an empty object with a name in `parent`.
    fn create_named(&mut self, kind: Kind, parent: Option<Oid>, name: &str) -> Result<Oid> {
        let path = match parent.and_then(|parent| self.paths.get(&parent)) {
            Some(parent) => format!("{parent}/{name}"),
            // One tree after the other is made.
            None => format!("/{name}-{}", self.paths.len()),
        };
        let create = |t: Transaction| {
            let (path, name) = (path.clone(), Bytes::copy_from_slice(name.as_bytes()));
            async move {
                let oid = if kind == Kind::Directory { t.create_directory(&path).await? } else { t.create_blob("")? };
                t.set_attribute(oid, NAME, Some(name)).await?;
                if kind != Kind::Directory {
                    t.bind(&path, oid).await?;
                }
                Ok((oid, t))
            }
        };
        let (oid, transaction) = self.runtime.block_on(self.client()?.transact(create))?;
        let oid = transaction.real_oid(oid).ok_or("a created object has no identifier")?;
        if kind == Kind::Directory {
            self.paths.insert(oid, path);
        }
        Ok(oid)
    }
}

/// Creates an object with this content.
async fn create(client: &Client, content: Bytes) -> Result<Oid> {
    if content.len() < UPLOADED {
        return commit_new(client, &[content]).await?.first().copied().ok_or_else(|| "nothing was created".into());
    }
    let mut writer = client.content_writer(None);
    for at in (0..content.len()).step_by(PIECE) {
        writer.write(content.slice(at..content.len().min(at + PIECE))).await?;
    }
    let staged = writer.finish().await?;
    let (oid, transaction) = client.transact(|t| async move { Ok((t.create_blob_from(staged)?, t)) }).await?;
    transaction.real_oid(oid).ok_or_else(|| "a created object has no identifier".into())
}

impl Reopens for Embedded {
    fn reopen(&mut self) -> Result<()> {
        if let Some(client) = self.client.take() {
            self.runtime.block_on(client.shutdown())?;
        }
        self.client = Some(self.runtime.block_on(Client::open(&self.directory))?);
        Ok(())
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            // The directory is removed next. What was measured is complete.
            let _ = self.runtime.block_on(client.shutdown());
        }
    }
}

impl Objects for Embedded {
    fn create_all(&mut self, contents: &[Bytes]) -> Result<Vec<Oid>> {
        for (number, content) in contents.iter().enumerate() {
            let (client, content) = (self.client()?, content.clone());
            self.submit(async move { Ok(Some((number, create(&client, content).await?))) })?;
        }
        self.wait_below(1)?;
        let mut created = std::mem::take(&mut self.created);
        created.sort_unstable_by_key(|(number, _)| *number);
        if created.len() != contents.len() {
            return Err(format!("{} objects were created of {}", created.len(), contents.len()).into());
        }
        Ok(created.into_iter().map(|(_, oid)| oid).collect())
    }

    fn write(&mut self, oid: Oid, offset: u64, data: &Bytes) -> Result<()> {
        let (client, data) = (self.client()?, data.clone());
        self.submit(async move {
            client
                .transact(|t| {
                    let data = data.clone();
                    async move { t.write_at(oid, offset, data).await }
                })
                .await?;
            Ok(None)
        })
    }

    fn force(&mut self) -> Result<()> {
        self.wait_below(1)
    }

    fn read(&mut self, oid: Oid, offset: u64, len: usize, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let client = self.client()?;
        let bytes = self.runtime.block_on(async {
            // A small blob is read as a whole, and its copy is kept; only the object itself is read of a large one.
            if let Some(object) = client.get(oid).await?.filter(|object| object.content().is_none()) {
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(object.data.len());
                return Ok(object.data.slice(from..object.data.len().min(from + len)));
            }
            let mut reader = client.content_reader(oid, offset).until(offset + len as u64);
            let first = reader.next().await?.unwrap_or_default();
            if first.len() == len {
                return Ok::<_, client::Error>(first);
            }
            let mut bytes = first.to_vec();
            while let Some(piece) = reader.next().await? {
                bytes.extend_from_slice(&piece);
            }
            Ok(bytes.into())
        })?;
        look(&bytes);
        Ok(())
    }
}

impl Collections for Embedded {
    fn create_collection(&mut self, parent: Option<Oid>, name: &str) -> Result<Oid> {
        self.create_named(Kind::Directory, parent, name)
    }

    fn create_object(&mut self, parent: Oid, name: &str) -> Result<Oid> {
        self.create_named(Kind::Blob, Some(parent), name)
    }

    fn members(&mut self, collection: Oid) -> Result<Vec<Oid>> {
        let client = self.client()?;
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let next = self.runtime.block_on(client.entries(collection, after.as_deref(), limits::LISTING))?;
            let is_full = next.len() == limits::LISTING;
            after = next.last().map(|(name, _)| name.clone());
            all.extend(next.into_iter().map(|(_, oid)| oid));
            if !is_full {
                return Ok(all);
            }
        }
    }

    fn describe(&mut self, oid: Oid) -> Result<(bool, Bytes)> {
        let object = self.runtime.block_on(self.client()?.get(oid))?.ok_or_else(|| format!("{oid} does not exist"))?;
        let name = object.attributes().get(NAME.as_bytes()).ok_or_else(|| format!("{oid} has no name"))?;
        Ok((object.kind == Kind::Directory, name.clone()))
    }
}
