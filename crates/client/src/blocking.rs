//! The client for threads without a runtime.
//!
//! The calling threads do the work themselves: there is no thread behind, so a connection moves on only while a call is
//! in progress. Do not call it from within an async runtime.

use std::io::{Read, Write};
use std::ops::RangeBounds;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use model::{Error, ErrorKind, Oid, Outcome, Result, SpaceId, Stat, Transaction, UploadId};
use tokio::runtime::{Builder, Runtime};

use crate::blob::PIECE;
use crate::{BackupSummary, ConnectOptions, Progress, ScrubReport, SpaceInfo, Status, TransactionBuilder, Url};

/// What can be read, by blocking calls; see [`crate::View`].
#[derive(Clone, Debug)]
pub struct View {
    runtime: Arc<Runtime>,
    inner: crate::View,
}

impl View {
    /// See [`crate::View::space`].
    #[must_use]
    pub fn space(&self) -> SpaceId {
        self.inner.space()
    }

    /// See [`crate::View::stat`].
    pub fn stat(&self, oid: Oid) -> Result<Option<Stat>> {
        self.runtime.block_on(self.inner.stat(oid))
    }

    /// See [`crate::View::get`].
    pub fn get(&self, oid: Oid, max: usize) -> Result<Option<(Stat, Option<Bytes>)>> {
        self.runtime.block_on(self.inner.get(oid, max))
    }

    /// See [`crate::View::read`].
    pub fn read(&self, oid: Oid, offset: u64, len: u64) -> Result<Bytes> {
        self.runtime.block_on(self.inner.read(oid, offset, len))
    }

    /// See [`crate::View::reader`].
    pub fn reader(&self, oid: Oid, range: impl RangeBounds<u64>) -> BlobReader {
        BlobReader { runtime: self.runtime.clone(), inner: self.inner.reader(oid, range), rest: Bytes::new() }
    }

    /// See [`crate::View::attribute`].
    pub fn attribute(&self, oid: Oid, key: &[u8]) -> Result<Option<Bytes>> {
        self.runtime.block_on(self.inner.attribute(oid, key))
    }

    /// See [`crate::View::attributes`].
    pub fn attributes(&self, oid: Oid, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        self.runtime.block_on(self.inner.attributes(oid, after, limit))
    }

    /// See [`crate::View::members`].
    pub fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        self.runtime.block_on(self.inner.members(collection, after, limit))
    }

    /// See [`crate::View::contains`].
    pub fn contains(&self, collection: Oid, member: Oid) -> Result<bool> {
        self.runtime.block_on(self.inner.contains(collection, member))
    }

    /// See [`crate::View::resolve`].
    pub fn resolve(&self, path: &str) -> Result<Option<Oid>> {
        self.runtime.block_on(self.inner.resolve(path))
    }

    /// See [`crate::View::names`].
    pub fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Oid)>> {
        self.runtime.block_on(self.inner.names(prefix, after, limit))
    }

    /// See [`crate::View::names_of`].
    pub fn names_of(&self, oid: Oid) -> Result<Vec<String>> {
        self.runtime.block_on(self.inner.names_of(oid))
    }

    /// See [`crate::View::collections_of`].
    pub fn collections_of(&self, oid: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        self.runtime.block_on(self.inner.collections_of(oid, after, limit))
    }

    /// See [`crate::View::objects`].
    pub fn objects(&self, after: Option<Oid>, limit: usize) -> Result<Vec<Stat>> {
        self.runtime.block_on(self.inner.objects(after, limit))
    }
}

/// A handle on a store, by blocking calls; see [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client {
    inner: crate::Client,
    view: View,
}

impl std::ops::Deref for Client {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Client {
    /// See [`crate::Client::connect`].
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_with(url, ConnectOptions::default())
    }

    /// See [`crate::Client::connect_with`].
    pub fn connect_with(url: &str, options: ConnectOptions) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = Arc::new(runtime.map_err(|error| {
            Error::new(ErrorKind::Io, "the operating system grants no event queue").caused_by(error)
        })?);
        let inner = runtime.block_on(crate::Client::connect_with(url, options))?;
        let view = View { runtime, inner: (*inner).clone() };
        Ok(Self { inner, view })
    }

    /// See [`crate::Client::url`].
    #[must_use]
    pub fn url(&self) -> &Url {
        self.inner.url()
    }

    /// See [`crate::Client::transaction`].
    #[must_use]
    pub fn transaction(&self) -> TransactionBuilder {
        self.inner.transaction()
    }

    /// See [`crate::Client::commit`].
    pub fn commit(&self, tx: impl Into<Transaction>) -> Result<Outcome> {
        self.runtime.block_on(self.inner.commit(tx))
    }

    /// See [`crate::Client::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot> {
        let inner = self.runtime.block_on(self.inner.snapshot())?;
        let view = View { runtime: self.runtime.clone(), inner: (*inner).clone() };
        Ok(Snapshot { view, _inner: inner })
    }

    /// See [`crate::Client::upload`].
    pub fn upload(&self, mut reader: impl Read) -> Result<UploadId> {
        let mut writer = self.writer();
        loop {
            let mut piece = BytesMut::zeroed(PIECE);
            let mut filled = 0;
            while filled < PIECE {
                match reader.read(&mut piece[filled..]) {
                    Ok(0) => break,
                    Ok(read) => filled += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(crate::client::read_failed(error)),
                }
            }
            if filled == 0 {
                return writer.finish();
            }
            piece.truncate(filled);
            writer.write(piece.freeze())?;
        }
    }

    /// See [`crate::Client::writer`].
    #[must_use]
    pub fn writer(&self) -> BlobWriter {
        BlobWriter { runtime: self.runtime.clone(), inner: self.inner.writer() }
    }

    /// See [`crate::Client::create_space`].
    pub fn create_space(&self, name: &str) -> Result<SpaceId> {
        self.runtime.block_on(self.inner.create_space(name))
    }

    /// See [`crate::Client::spaces`].
    pub fn spaces(&self) -> Result<Vec<SpaceInfo>> {
        self.runtime.block_on(self.inner.spaces())
    }

    /// See [`crate::Client::status`].
    pub fn status(&self) -> Result<Status> {
        self.runtime.block_on(self.inner.status())
    }

    /// See [`crate::Client::ping`].
    pub fn ping(&self) -> Result<()> {
        self.runtime.block_on(self.inner.ping())
    }

    /// See [`crate::Client::backup_with`].
    pub fn backup(&self, out: impl Write + Unpin, progress: impl FnMut(Progress)) -> Result<BackupSummary> {
        self.runtime.block_on(self.inner.backup_with(Direct(out), progress))
    }

    /// See [`crate::Client::scrub`].
    pub fn scrub(&self, progress: impl FnMut(Progress)) -> Result<ScrubReport> {
        self.runtime.block_on(self.inner.scrub(progress))
    }

    /// See [`crate::Client::close`].
    pub fn close(&self) {
        self.inner.close();
    }
}

/// A lasting view, by blocking calls; see [`crate::Snapshot`].
#[derive(Debug)]
pub struct Snapshot {
    view: View,
    _inner: crate::Snapshot,
}

impl std::ops::Deref for Snapshot {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

/// Content that is being uploaded, by blocking calls; see [`crate::BlobWriter`].
#[derive(Debug)]
pub struct BlobWriter {
    runtime: Arc<Runtime>,
    inner: crate::BlobWriter,
}

impl BlobWriter {
    /// See [`crate::BlobWriter::write`].
    pub fn write(&mut self, data: Bytes) -> Result<()> {
        self.runtime.block_on(self.inner.write(data))
    }

    /// See [`crate::BlobWriter::finish`].
    pub fn finish(self) -> Result<UploadId> {
        self.runtime.block_on(self.inner.finish())
    }
}

/// Content that is being read, by blocking calls; see [`crate::BlobReader`]. Also a [`Read`].
#[derive(Debug)]
pub struct BlobReader {
    runtime: Arc<Runtime>,
    inner: crate::BlobReader,
    /// What [`Read`] took from a piece and did not hand out yet.
    rest: Bytes,
}

impl BlobReader {
    /// See [`crate::BlobReader::next`].
    #[expect(clippy::should_implement_trait, reason = "an iterator could be asked on after an error")]
    pub fn next(&mut self) -> Result<Option<Bytes>> {
        if !self.rest.is_empty() {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        self.runtime.block_on(self.inner.next())
    }
}

impl Read for BlobReader {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.rest.is_empty() {
            self.rest = self.next().map_err(std::io::Error::other)?.unwrap_or_default();
        }
        let piece = self.rest.split_to(self.rest.len().min(buf.len()));
        buf[..piece.len()].copy_from_slice(&piece);
        Ok(piece.len())
    }
}

/// A blocking writer where an async one is asked for: right, since the thread that waits is the caller's own.
struct Direct<W>(W);

impl<W: Write + Unpin> tokio::io::AsyncWrite for Direct<W> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(self.0.flush())
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}
