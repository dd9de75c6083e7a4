//! Contents: bytes of any size, written and read in pieces and in bounded memory.

use std::collections::{VecDeque, btree_map};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use model::{
    ClassId, ContentId, ContentOp, ContentPatch, ContentRef, Error, ErrorKind, Kind, NodeId, Object, Oid, Result,
    limits,
};
use protocol::locks::LockMode;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinHandle;
use wire::cluster::{MAX_CONTENT_READ, ReadBytes, ReadContent, content_id, read_from_proto};
use wire::frame::Raw;
use wire::proto::contents as proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use super::client_core::{Core, name_damaged, unexpected_answer_error};
use super::transaction::{Changes, OwnChange, PlacementHint, Transaction};
use super::{Client, IsolationLevel};

/// Bytes of a piece.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that a reader asks for ahead.
const PIECES_AHEAD: usize = 4;

/// Bytes that were uploaded and belong to no object yet. They are freed if no transaction uses them within about a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagedContent {
    content: ContentRef,
}

impl StagedContent {
    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.content.size
    }

    /// The logical node where the bytes are: the object that gets them has to be there.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.content.id.node()
    }
}

impl Client {
    /// Uploads all bytes of `reader`, in bounded memory. A transaction makes them the content of an object:
    /// [`Transaction::create_blob_from`], [`Transaction::put_content`]. The object has to be at the logical node that is given here, or
    /// at the one of [`StagedContent::node`].
    ///
    /// ```no_run
    /// # use client::Client;
    /// # async fn example(cluster: Client, file: impl tokio::io::AsyncRead + Unpin) -> client::Result<()> {
    /// let video = cluster.upload(None, file).await?;
    /// cluster
    ///     .transact(|t| async move {
    ///         let blob = t.create_blob_from(video)?;
    ///         t.bind("videos/first", blob).await
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the reader fails; [`ErrorKind::Unavailable`] if the brick cannot be reached in time;
    /// [`ErrorKind::NotFound`] if the brick was restarted meanwhile; [`ErrorKind::Full`].
    pub async fn upload(&self, node: Option<NodeId>, mut reader: impl AsyncRead + Unpin) -> Result<StagedContent> {
        let mut writer = self.content_writer(node);
        loop {
            let mut piece = BytesMut::with_capacity(PIECE_BYTES);
            while piece.len() < PIECE_BYTES {
                let room = (PIECE_BYTES - piece.len()) as u64;
                let read = (&mut reader).take(room).read_buf(&mut piece).await;
                let failed =
                    |error| Error::new(ErrorKind::Io, "what should be uploaded cannot be read").with_source(error);
                if read.map_err(failed)? == 0 {
                    break;
                }
            }
            if piece.is_empty() {
                return writer.finish().await;
            }
            writer.write(piece.freeze()).await?;
        }
    }

    /// Appends bytes to a blob in a transaction of its own. Returns the offset at which they are. Appends to one blob do not conflict
    /// with each other.
    ///
    /// ```no_run
    /// # async fn example(cluster: client::Client, log: client::Oid) -> client::Result<()> {
    /// let offset = cluster.append(log, "a line\n").await?;
    /// let mut reader = cluster.content_reader(log, offset).until(offset + 7);
    /// assert_eq!(reader.next().await?.unwrap(), "a line\n");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::transact`]; [`ErrorKind::NotFound`] if there is no such blob; [`ErrorKind::TooLarge`] as [`Transaction::write_at`].
    pub async fn append(&self, oid: Oid, data: impl Into<Bytes>) -> Result<u64> {
        let data = data.into();
        let append = |t: Transaction| {
            let data = data.clone();
            async move {
                t.append(oid, data).await?;
                Ok(t)
            }
        };
        let offset = self.transact(append).await?.append_offsets(oid).first().copied();
        let unknown = || Error::new(ErrorKind::Internal, format!("it was not told where bytes were appended to {oid}"));
        offset.ok_or_else(unknown)
    }

    /// Begins an upload whose bytes come one after the other: see [`Client::upload`].
    #[must_use]
    pub fn content_writer(&self, node: Option<NodeId>) -> ContentWriter {
        let (core, tail) = (self.core.clone(), BytesMut::new());
        ContentWriter { core, node, beginning: None, id: None, size: 0, tail, is_interrupted: false, in_flight: None }
    }

    /// Reads the bytes of a blob, wherever they are, from `offset` on, piece by piece. All pieces are of one state.
    #[must_use]
    pub fn content_reader(&self, oid: Oid, offset: u64) -> ContentReader {
        let (core, pieces) = (self.core.clone(), VecDeque::new());
        let (limit, end, expected) = (u64::MAX, None, None);
        ContentReader { core, oid, returned: offset, requested: offset, limit, end, expected, pieces }
    }
}

/// An upload. Dropped before [`ContentWriter::finish`], it leaves nothing behind.
pub struct ContentWriter {
    core: Arc<Core>,
    node: Option<NodeId>,
    /// The request that begins the upload at the brick, until it is answered.
    beginning: Option<JoinHandle<Result<ContentId>>>,
    id: Option<ContentId>,
    /// The bytes that were sent.
    size: u64,
    /// The bytes after them.
    tail: BytesMut,
    /// Whether a write has failed, or its future was dropped: then bytes are missing.
    is_interrupted: bool,
    in_flight: Option<JoinHandle<Result<()>>>,
}

impl std::fmt::Debug for ContentWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentWriter").field("id", &self.id).field("size", &self.size).finish_non_exhaustive()
    }
}

impl ContentWriter {
    async fn begin(&mut self) -> Result<ContentId> {
        if let Some(id) = self.id {
            return Ok(id);
        }
        // If this future is dropped, the answer still tells which upload to abort.
        let (core, node) = (&self.core, self.node);
        let beginning = self.beginning.get_or_insert_with(|| tasks::spawn(begin_upload(core.clone(), node)));
        let begun = beginning.await;
        self.beginning = None;
        let id = begun.map_err(|_| Error::new(ErrorKind::Internal, "the beginning of an upload was cancelled"))??;
        self.id = Some(id);
        Ok(id)
    }

    /// Adds bytes. It waits while earlier ones are on the way.
    ///
    /// # Errors
    /// As [`Client::upload`]; perhaps the error of earlier bytes. After an error, or if the future was dropped, bytes are missing: the
    /// upload cannot go on, and each further call fails with [`ErrorKind::Invalid`].
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.check_uninterrupted()?;
        self.is_interrupted = true;
        self.send_all(bytes).await?;
        self.is_interrupted = false;
        Ok(())
    }

    fn check_uninterrupted(&self) -> Result<()> {
        if self.is_interrupted {
            let what = "a write of this upload has failed or was dropped, so bytes are missing: begin another upload";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        Ok(())
    }

    async fn send_all(&mut self, mut bytes: Bytes) -> Result<()> {
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.tail.len();
            let taken = bytes.split_to(room.min(bytes.len()));
            // A whole piece is sent as it is.
            if self.tail.is_empty() && taken.len() == PIECE_BYTES {
                self.send(taken).await?;
                continue;
            }
            self.tail.extend_from_slice(&taken);
            if self.tail.len() == PIECE_BYTES {
                let piece = self.tail.split().freeze();
                self.send(piece).await?;
            }
        }
        Ok(())
    }

    async fn send(&mut self, piece: Bytes) -> Result<()> {
        let id = self.begin().await?;
        self.settle().await?;
        let (core, offset) = (self.core.clone(), self.size);
        self.size += piece.len() as u64;
        self.in_flight =
            Some(tasks::spawn(async move { write_piece(&core, id, offset, piece, false).await.map(drop) }));
        Ok(())
    }

    /// Waits for the piece that is on the way.
    async fn settle(&mut self) -> Result<()> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(()) };
        in_flight.await.map_err(|_| Error::new(ErrorKind::Internal, "the upload of a piece was cancelled"))?
    }

    /// Waits until all bytes are staged, durably.
    ///
    /// # Errors
    /// As [`ContentWriter::write`].
    pub async fn finish(mut self) -> Result<StagedContent> {
        self.check_uninterrupted()?;
        let id = self.begin().await?;
        self.settle().await?;
        let last = self.tail.split().freeze();
        let expected = self.size + last.len() as u64;
        let size = write_piece(&self.core, id, self.size, last, true).await?;
        self.id = None;
        if size != Some(expected) {
            let what = format!("{expected} bytes were uploaded, and the brick has staged {size:?}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(StagedContent { content: ContentRef { id, size: expected, generation: 0 } })
    }
}

impl Drop for ContentWriter {
    fn drop(&mut self) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.abort();
        }
        let (core, id, beginning) = (self.core.clone(), self.id, self.beginning.take());
        if id.is_none() && beginning.is_none() {
            return;
        }
        let abort = async move {
            let id = match beginning {
                Some(beginning) => beginning.await.ok().and_then(Result::ok),
                None => id,
            };
            if let Some(id) = id {
                let abort = proto::Abort { space: u32::from(core.space.0), content: Some(id.into()) };
                // If this fails, the lease of the upload ends.
                let _ = core.ask(Request::AbortContent(abort)).await;
            }
        };
        // Without a runtime, too.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            tasks::spawn_on(&runtime, abort);
        }
    }
}

/// Begins an upload at a logical node, or at one that the client chooses.
async fn begin_upload(core: Arc<Core>, node: Option<NodeId>) -> Result<ContentId> {
    if let Some(node) = node {
        return begin_upload_at(&core, node).await;
    }
    let unavailable = core.unavailable_nodes()?;
    let mut home = core.page_source.home(&core, &unavailable)?;
    loop {
        match begin_upload_at(&core, home).await {
            Err(error) => home = core.page_source.home_instead(&core, home, &unavailable, error)?,
            Ok(begun) => return Ok(begun),
        }
    }
}

async fn begin_upload_at(core: &Core, node: NodeId) -> Result<ContentId> {
    let begin = proto::Begin { space: u32::from(core.space.0), node: node.0, ..proto::Begin::default() };
    match core.ask(Request::BeginContent(begin)).await? {
        (Response::ContentBegun(begun), _) => content_id(begun.content),
        _ => Err(unexpected_answer_error()),
    }
}

/// Sends a piece. Returns the size of the staged content after the last one.
async fn write_piece(core: &Core, id: ContentId, offset: u64, piece: Bytes, last: bool) -> Result<Option<u64>> {
    let write = proto::Write { space: u32::from(core.space.0), content: Some(id.into()), offset, last };
    let raw = if piece.is_empty() { Vec::new() } else { vec![piece] };
    let (_, answer) = core.ask_with_raw(Request::WriteContent(write), raw).await?;
    match answer.response {
        Response::ContentWritten(written) => Ok(written.size),
        _ => Err(unexpected_answer_error()),
    }
}

/// Reads a range of a blob's bytes at its brick.
async fn read_range(core: &Core, read: ReadContent) -> Result<ReadBytes> {
    core.check_in_space(read.oid)?;
    let bytes = match core.ask(Request::ReadContent(read.into())).await {
        Ok((Response::ContentBytes(found), raw)) => read_from_proto(read.oid, found, Raw::Owned(raw)),
        Ok(_) => Err(unexpected_answer_error()),
        Err(error) => Err(error),
    };
    bytes.map_err(|error| name_damaged(read.oid, error))
}

/// The bytes of a blob, piece by piece.
pub struct ContentReader {
    core: Arc<Core>,
    oid: Oid,
    /// The offset behind the bytes that were returned, and the offset behind those that were requested.
    returned: u64,
    requested: u64,
    /// Only bytes before this offset are read.
    limit: u64,
    /// The offset behind the last byte to read, once the size of the blob is known.
    end: Option<u64>,
    /// The state that is read, once it is known.
    expected: Option<(ContentId, u64)>,
    /// The pieces that were requested, each with its length.
    pieces: VecDeque<(u32, JoinHandle<Result<ReadBytes>>)>,
}

impl std::fmt::Debug for ContentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ContentReader")
            .field("oid", &self.oid)
            .field("returned", &self.returned)
            .finish_non_exhaustive()
    }
}

impl ContentReader {
    /// Reads only the bytes before `end`.
    #[must_use]
    pub fn until(mut self, end: u64) -> Self {
        self.limit = end;
        self
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such blob; [`ErrorKind::Conflict`] if it has changed since the first piece: read it
    /// again; otherwise as [`Client::get`]. After an error, or if the future was dropped, the next call returns the bytes that this one
    /// did not.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(end) = self.end else { return self.first().await.map(Some) };
        while self.requested < end && self.pieces.len() < PIECES_AHEAD {
            let length = (end - self.requested).min(PIECE_BYTES as u64) as u32;
            let read = ReadContent { oid: self.oid, offset: self.requested, length, expected: self.expected };
            let core = self.core.clone();
            self.pieces.push_back((length, tasks::spawn(async move { read_range(&core, read).await })));
            self.requested += u64::from(length);
        }
        // It stays in the queue until it has come.
        let Some((length, piece)) = self.pieces.front_mut() else { return Ok(None) };
        let (length, read) = (*length, piece.await);
        self.pieces.pop_front();
        let read = read.unwrap_or_else(|_| Err(Error::new(ErrorKind::Internal, "the read of a piece was cancelled")));
        match read.and_then(|read| self.whole_piece(read, length)) {
            Ok(bytes) => {
                self.returned += u64::from(length);
                Ok(Some(bytes))
            }
            Err(error) => {
                self.abort_pieces();
                self.requested = self.returned;
                Err(error)
            }
        }
    }

    fn whole_piece(&self, read: ReadBytes, length: u32) -> Result<Bytes> {
        let bytes = read.bytes.ok_or_else(|| changed_error(self.oid))?;
        if bytes.len() != length as usize {
            let (oid, found) = (self.oid, bytes.len());
            let what = format!("the brick returned {found} bytes of {oid} instead of {length}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(bytes)
    }

    fn abort_pieces(&mut self) {
        self.pieces.drain(..).for_each(|(_, piece)| piece.abort());
    }

    async fn first(&mut self) -> Result<Bytes> {
        let length = self.limit.saturating_sub(self.returned).min(PIECE_BYTES as u64) as u32;
        let read = ReadContent { oid: self.oid, offset: self.returned, length, expected: None };
        let ReadBytes { object, bytes } = read_range(&self.core, read).await?;
        let (Some(object), Some(bytes)) = (object, bytes) else { return Err(no_blob_error(self.oid)) };
        let end = object.size().min(self.limit);
        let bytes = match object.content() {
            Some(content) => {
                self.expected = Some((content.id, content.generation));
                bytes
            }
            // The object has all its bytes, and the answer has the object.
            None => object.data.slice(self.returned.min(end) as usize..end as usize),
        };
        self.returned += bytes.len() as u64;
        self.requested = self.returned;
        self.end = Some(end);
        Ok(bytes)
    }
}

impl Drop for ContentReader {
    fn drop(&mut self) {
        self.abort_pieces();
    }
}

// -------------------------------------------------------------------------------------------- in transactions

impl Transaction {
    /// Creates a blob with bytes that were uploaded, at the logical node where they are; see [`Transaction::create_object`].
    ///
    /// # Errors
    /// As there. The commit fails with [`ErrorKind::NotFound`] if the bytes are not staged any more.
    pub fn create_blob_from(&self, staged: StagedContent) -> Result<Oid> {
        let blob = Object::blob_with_content(staged.content);
        self.create_object(ClassId::NONE, blob, PlacementHint::At(staged.node()))
    }

    /// Replaces the bytes of a blob by bytes that were uploaded to its logical node. Its attributes stay.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such blob; [`ErrorKind::Invalid`] if the bytes are at another logical node;
    /// otherwise as [`Transaction::put`].
    pub async fn put_content(&self, oid: Oid, staged: StagedContent) -> Result<()> {
        let blob = only_blob(oid, self.get(oid).await?)?;
        if !oid.is_temporary() && oid.page().node != staged.node() {
            let what = format!(
                "the bytes are at logical node {}, and {oid} is at another one: upload them there",
                staged.node()
            );
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        self.put(oid, blob.with_content(staged.content)).await
    }

    /// Reads the bytes `offset..offset + len` of a blob, wherever they are; fewer at its end.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such blob; [`ErrorKind::TooLarge`] for more than 4 MiB at once; otherwise as
    /// [`Transaction::get`].
    pub async fn read_at(&self, oid: Oid, offset: u64, len: usize) -> Result<Bytes> {
        if len > MAX_CONTENT_READ as usize {
            let what = format!("a read of {len} bytes at once; the limit is {MAX_CONTENT_READ}: read in pieces");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let own = self.own_change(oid)?;
        let before = match &own {
            OwnChange::Written(object) => object.clone(),
            OwnChange::None | OwnChange::Patched(_) => self.read(oid, LockMode::Shared).await?,
        };
        let before = only_blob(oid, before)?;
        let blob = match &own {
            OwnChange::Patched(patch) => with_patch(oid, &before, patch)?,
            OwnChange::None | OwnChange::Written(_) => before.clone(),
        };
        let size = blob.size();
        let len = (len as u64).min(size.saturating_sub(offset)) as usize;
        if blob.content().is_none() {
            let from = offset.min(size) as usize;
            return Ok(blob.data.slice(from..from + len));
        }
        match own {
            OwnChange::None => self.read_content(oid, &blob, offset, len).await,
            // What is staged by this transaction has no object yet.
            OwnChange::Written(_) => {
                let what = format!(
                    "the bytes of {oid} were uploaded for this transaction: they can be read when it has committed"
                );
                Err(Error::new(ErrorKind::Unsupported, what))
            }
            OwnChange::Patched(patch) => {
                let stored = (len as u64).min(before.size().saturating_sub(offset)) as usize;
                let mut window = self.read_content(oid, &before, offset, stored).await?.to_vec();
                window.resize(len, 0);
                apply_to_window(&patch, before.size(), offset, &mut window);
                Ok(window.into())
            }
        }
    }

    async fn read_content(&self, oid: Oid, blob: &Object, offset: u64, len: usize) -> Result<Bytes> {
        let Some(content) = blob.content() else { return Ok(Bytes::new()) };
        let expected = Some((content.id, content.generation));
        let read = ReadContent { oid, offset, length: len as u32, expected };
        let found = self.note_timeout(read_range(&self.inner.core, read).await)?;
        found.bytes.ok_or_else(|| changed_error(oid))
    }

    /// Writes bytes at an offset of a blob. A gap behind its old end reads as zeros.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] beyond the largest size of a blob, and if the changes of this blob in this transaction carry more than
    /// [`limits::OBJECT`] bytes together; the commit fails with [`ErrorKind::NotFound`] if there is no such blob; otherwise as
    /// [`Transaction::put`].
    pub async fn write_at(&self, oid: Oid, offset: u64, data: impl Into<Bytes>) -> Result<()> {
        self.change(oid, ContentOp::Write { offset, data: data.into() }).await
    }

    /// Writes bytes at the end of a blob, wherever that is when the transaction commits. Transactions that append to one blob do not
    /// conflict with each other. [`Transaction::append_offsets`] tells after the commit where the bytes are; [`Client::append`] does
    /// both.
    ///
    /// # Errors
    /// As [`Transaction::write_at`].
    pub async fn append(&self, oid: Oid, data: impl Into<Bytes>) -> Result<()> {
        self.change(oid, ContentOp::Append { data: data.into() }).await
    }

    /// Cuts a blob, or extends it with zeros.
    ///
    /// # Errors
    /// As [`Transaction::write_at`].
    pub async fn truncate(&self, oid: Oid, size: u64) -> Result<()> {
        self.change(oid, ContentOp::Truncate { size }).await
    }

    /// Sets a range of a blob to zeros. Its size does not change.
    ///
    /// # Errors
    /// As [`Transaction::write_at`].
    pub async fn zero(&self, oid: Oid, offset: u64, len: u64) -> Result<()> {
        self.change(oid, ContentOp::Zero { offset, len }).await
    }

    /// Sets an attribute of an object; without a value, removes it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such object; [`ErrorKind::TooLarge`] and [`ErrorKind::Invalid`] for an attribute
    /// beyond its limits; otherwise as [`Transaction::put`].
    pub async fn set_attribute(&self, oid: Oid, key: impl Into<Bytes>, value: Option<Bytes>) -> Result<()> {
        let key = key.into();
        model::check_attribute(&key, value.as_deref().unwrap_or_default())?;
        let missing = || Error::new(ErrorKind::NotFound, format!("there is no object {oid}"));
        loop {
            if self.changes()?.patches.contains_key(&oid) {
                let what = format!(
                    "a part of {oid} was changed in this transaction: set its attributes before that, or in another one"
                );
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            let before = self.get_for_update(oid).await?.ok_or_else(missing)?;
            let mut object = before.clone();
            object.set_attribute(key.clone(), value.clone());
            self.check_page_size(oid, &object)?;
            self.lock(oid).await?;
            // Another task of the transaction may have changed the object meanwhile.
            let is_unchanged = |changes: &Changes| {
                let written = changes.writes.get(&oid);
                !changes.patches.contains_key(&oid) && written.is_none_or(|now| now.as_ref() == Some(&before))
            };
            if self.write_if(oid, Some(object), is_unchanged)? {
                return Ok(());
            }
        }
    }

    async fn change(&self, oid: Oid, op: ContentOp) -> Result<()> {
        if self.inner.level == IsolationLevel::Snapshot {
            return Err(super::typed::read_only_error());
        }
        ContentPatch::new(vec![op.clone()]).check_sizes(0)?;
        if matches!(self.own_change(oid)?, OwnChange::Written(_)) {
            return self.changes()?.change_own(oid, &op);
        }
        if oid.is_temporary() {
            return Err(no_blob_error(oid));
        }
        self.inner.core.check_in_space(oid)?;
        self.lock(oid).await?;
        let changes = &mut *self.changes()?;
        // Another task of the transaction may have replaced the object while this one waited for the lock.
        if changes.writes.contains_key(&oid) {
            return changes.change_own(oid, &op);
        }
        let added = match changes.patches.entry(oid) {
            btree_map::Entry::Occupied(mut patch) => Arc::make_mut(patch.get_mut()).push(op),
            btree_map::Entry::Vacant(place) => {
                let mut patch = ContentPatch::default();
                let added = patch.push(op);
                if added.is_ok() {
                    place.insert(Arc::new(patch));
                }
                added
            }
        };
        added.map_err(|error| error.about(oid))
    }
}

impl Changes {
    /// Changes a part of a blob that this transaction creates or replaces.
    fn change_own(&mut self, oid: Oid, op: &ContentOp) -> Result<()> {
        let blob = only_blob(oid, self.writes.get(&oid).cloned().flatten())?;
        if blob.content().is_some() {
            let what =
                format!("the bytes of {oid} were uploaded for this transaction: change them when it has committed");
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if op.size_after(blob.size()) > limits::OBJECT as u64 {
            let what = format!("a new blob of more than {} bytes is uploaded: see Client::upload", limits::OBJECT);
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let mut bytes = blob.data.to_vec();
        op.apply(&mut bytes);
        if let ContentOp::Append { .. } = op {
            self.append_offsets.entry(oid).or_default().push(blob.size());
        }
        self.writes.insert(oid, Some(blob.with_data(bytes.into())));
        Ok(())
    }
}

/// An object with the changes of a part that a transaction makes.
pub(super) fn with_patch(oid: Oid, object: &Object, patch: &ContentPatch) -> Result<Object> {
    if object.kind != Kind::Blob {
        return Err(no_blob_error(oid));
    }
    let size = patch.check_sizes(object.size())?;
    match object.content() {
        Some(content) => Ok(object.with_content(ContentRef { size, ..content })),
        None if patch.largest_size(object.size()) > limits::OBJECT as u64 => {
            let what = format!(
                "{oid} becomes larger than {} bytes: it can be read when the transaction has committed",
                limits::OBJECT
            );
            Err(Error::new(ErrorKind::TooLarge, what))
        }
        None => {
            let mut bytes = object.data.to_vec();
            patch.ops().iter().for_each(|op| op.apply(&mut bytes));
            Ok(object.with_data(bytes.into()))
        }
    }
}

/// The object, if it is a blob.
fn only_blob(oid: Oid, object: Option<Object>) -> Result<Object> {
    object.filter(|object| object.kind == Kind::Blob).ok_or_else(|| no_blob_error(oid))
}

/// Applies changes to a window of a blob's bytes, which begins at `offset`. The blob has `size` bytes before; the window has zeros
/// behind its end.
fn apply_to_window(patch: &ContentPatch, size: u64, offset: u64, window: &mut [u8]) {
    let mut size = size;
    let end = offset + window.len() as u64;
    let within = |at: u64| (at.clamp(offset, end) - offset) as usize;
    for op in patch.ops() {
        let mut overlay = |at: u64, data: &[u8]| {
            let (from, to) = (within(at), within(at.saturating_add(data.len() as u64)));
            if from < to {
                let skipped = (offset + from as u64 - at) as usize;
                window[from..to].copy_from_slice(&data[skipped..skipped + (to - from)]);
            }
        };
        match op {
            ContentOp::Write { offset, data } => overlay(*offset, data),
            ContentOp::Append { data } => overlay(size, data),
            ContentOp::Truncate { size } => window[within(*size)..].fill(0),
            ContentOp::Zero { offset, len } => {
                window[within(*offset)..within(offset.saturating_add(*len).min(size).max(*offset))].fill(0);
            }
        }
        size = op.size_after(size);
    }
}

fn no_blob_error(oid: Oid) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no blob {oid}"))
}

fn changed_error(oid: Oid) -> Error {
    Error::new(ErrorKind::Conflict, format!("the bytes of {oid} have changed while they were read: read them again"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn op() -> impl Strategy<Value = ContentOp> {
        let data = || proptest::collection::vec(1..=255_u8, 0..20).prop_map(Bytes::from);
        prop_oneof![
            (0..60_u64, data()).prop_map(|(offset, data)| ContentOp::Write { offset, data }),
            data().prop_map(|data| ContentOp::Append { data }),
            (0..60_u64).prop_map(|size| ContentOp::Truncate { size }),
            (0..60_u64, 0..60_u64).prop_map(|(offset, len)| ContentOp::Zero { offset, len }),
        ]
    }

    proptest! {
        #[test]
        fn window_shows_the_bytes_that_the_changes_make(
            base in proptest::collection::vec(1..=255_u8, 0..50),
            ops in proptest::collection::vec(op(), 1..6),
            (offset, len) in (0..70_u64, 0..70_usize),
        ) {
            let patch = ContentPatch::new(ops);
            let mut whole = base.clone();
            patch.ops().iter().for_each(|op| op.apply(&mut whole));
            let from = (offset as usize).min(whole.len());
            let expected = &whole[from..(from + len).min(whole.len())];
            let stored = (offset as usize).min(base.len());
            let mut window = base[stored..(stored + expected.len()).min(base.len())].to_vec();
            window.resize(expected.len(), 0);
            apply_to_window(&patch, base.len() as u64, offset, &mut window);
            prop_assert_eq!(&window[..], expected);
        }
    }
}
