//! Content of any size in bounded memory: pieces on the way in both directions, several at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use model::{Error, ErrorKind, Oid, Result, UploadId};
use wire::link::Pending;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use crate::Snapshot;
use crate::link::{Link, Session};
use crate::view::{Source, View, unexpected};

/// Bytes in a piece.
pub(crate) const PIECE: usize = 1 << 20;
/// Pieces on the way at a time.
const AHEAD: usize = 4;
/// How often the connection may break over one piece before the read fails.
const BREAKS: u32 = 3;

/// Content that is being uploaded. Dropped before [`finish`](BlobWriter::finish), it leaves nothing behind.
pub struct BlobWriter {
    link: Arc<Link>,
    open: Option<(Arc<Session>, UploadId)>,
    pending: VecDeque<Pending>,
}

impl BlobWriter {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, open: None, pending: VecDeque::new() }
    }

    async fn open(&mut self) -> Result<(Arc<Session>, UploadId)> {
        if let Some((session, upload)) = &self.open {
            return Ok((session.clone(), *upload));
        }
        let (session, answer) = self.link.read_at(Request::BeginUpload(proto::BeginUpload {})).await?;
        let Response::UploadBegun(begun) = answer.response else { return Err(unexpected(&answer.response)) };
        let upload = UploadId(begun.upload);
        self.open = Some((session.clone(), upload));
        Ok((session, upload))
    }

    /// Sends the next bytes; waits while several pieces are on the way.
    ///
    /// An error may be that of an earlier piece; the upload cannot go on after it.
    pub async fn write(&mut self, mut data: Bytes) -> Result<()> {
        let (session, upload) = self.open().await?;
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(PIECE));
            while self.pending.len() >= AHEAD {
                self.settle_one().await?;
            }
            let request = Request::Upload(proto::Upload { upload: upload.0 });
            self.pending.push_back(session.begin_call(request, vec![piece]).await?);
        }
        Ok(())
    }

    async fn settle_one(&mut self) -> Result<()> {
        let Some(pending) = self.pending.front_mut() else { return Ok(()) };
        let answer = pending.answer().await;
        self.pending.pop_front();
        match answer?.response {
            Response::Done(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until the server has everything. The upload's identifier is good for one transaction of this client.
    pub async fn finish(mut self) -> Result<UploadId> {
        let (_, upload) = self.open().await?;
        while !self.pending.is_empty() {
            self.settle_one().await?;
        }
        self.open = None;
        Ok(upload)
    }
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let upload = self.open.as_ref().map(|(_, upload)| upload);
        f.debug_struct("BlobWriter").field("upload", &upload).field("pending", &self.pending.len()).finish()
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if let Some((session, upload)) = &self.open {
            session.tell(Request::AbortUpload(proto::AbortUpload { upload: upload.0 }));
        }
    }
}

/// Content that is being read, piece by piece, as it was when the first piece was read.
pub struct BlobReader {
    view: View,
    oid: Oid,
    /// What is not asked for yet.
    rest: Range<u64>,
    /// Pieces asked for, in order: where each begins, and how long it may be.
    pending: VecDeque<(u64, u32, Pending)>,
    /// What the pieces are read from, once it is known that there are several.
    snapshot: Option<Snapshot>,
    /// The version that is read, once there is a snapshot.
    version: Option<u64>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was asked for.
    New,
    /// Pieces are read one after the other.
    Pieces,
    /// There is nothing more.
    Done,
}

impl BlobReader {
    pub(crate) fn new(view: View, oid: Oid, range: Range<u64>) -> Self {
        Self { view, oid, rest: range, pending: VecDeque::new(), snapshot: None, version: None, state: State::New }
    }

    /// The next bytes, up to 1 MiB, or `None` at the end. Fails as [`ErrorKind::NotFound`] if there is no such object,
    /// as [`ErrorKind::Corrupt`] if its stored bytes are damaged. If the connection breaks it goes on over another,
    /// unless the object was changed.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let piece = match self.state {
            State::New => self.first().await,
            State::Pieces => self.piece().await,
            State::Done => Ok(None),
        };
        if !matches!(piece, Ok(Some(_))) {
            self.state = State::Done;
            self.pending.clear();
            self.snapshot = None;
        }
        piece
    }

    /// Content that fits one piece takes one call; for more a snapshot is taken, so that the pieces belong together.
    async fn first(&mut self) -> Result<Option<Bytes>> {
        self.state = State::Pieces;
        let length = self.rest.end.saturating_sub(self.rest.start);
        if length == 0 {
            return Ok(None);
        }
        if length <= PIECE as u64 {
            self.state = State::Done;
            let piece = self.view.read_piece(self.oid, self.rest.start, length as u32).await?;
            return Ok(Some(piece).filter(|piece| !piece.is_empty()));
        }
        if self.rest.start == 0 {
            let found = self.view.get(self.oid, PIECE).await?;
            let (_, content) = found.ok_or_else(|| missing(self.oid))?;
            if let Some(content) = content {
                self.state = State::Done;
                return Ok(Some(content).filter(|content| !content.is_empty()));
            }
        }
        self.pin().await?;
        self.piece().await
    }

    /// Takes a snapshot to read from, unless one is read already, and learns where the object ends there.
    async fn pin(&mut self) -> Result<()> {
        if let Source::Newest(link) = &self.view.source {
            self.snapshot = Some(Snapshot::open(link).await?);
        }
        let stat = self.pinned().stat(self.oid).await?.ok_or_else(|| missing(self.oid))?;
        if self.version.is_some_and(|version| version != stat.version) {
            let what =
                format!("object {} was changed while it was read, and the connection broke: start again", self.oid);
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        self.version = Some(stat.version);
        self.rest.end = self.rest.end.min(stat.size);
        Ok(())
    }

    fn pinned(&self) -> &View {
        self.snapshot.as_ref().map_or(&self.view, |snapshot| &snapshot.view)
    }

    async fn piece(&mut self) -> Result<Option<Bytes>> {
        let mut breaks = 0;
        loop {
            let error = match self.try_piece().await {
                Ok(piece) => return Ok(piece),
                Err(error) => error,
            };
            breaks += 1;
            let is_over = matches!(self.view.source, Source::Snapshot { .. }) || breaks > BREAKS;
            if error.kind() != ErrorKind::Unavailable || is_over {
                return Err(error);
            }
            // Goes on where it was, if the object is still the same.
            if let Some((start, ..)) = self.pending.front() {
                self.rest.start = *start;
            }
            self.pending.clear();
            self.pin().await?;
        }
    }

    async fn try_piece(&mut self) -> Result<Option<Bytes>> {
        while self.pending.len() < AHEAD && !self.rest.is_empty() {
            let start = self.rest.start;
            let length = (self.rest.end - start).min(PIECE as u64) as u32;
            let pending = self.pinned().begin_piece(self.oid, start, length).await?;
            self.pending.push_back((start, length, pending));
            self.rest.start += u64::from(length);
        }
        let Some((start, length, pending)) = self.pending.front_mut() else { return Ok(None) };
        let (start, length) = (*start, *length);
        let answer = pending.answer().await;
        let piece = self.pinned().finish_piece(self.oid, start, length, answer)?;
        self.pending.pop_front();
        if piece.len() < length as usize {
            let what = format!("object {} is shorter in a snapshot than the snapshot says", self.oid);
            return Err(Error::new(ErrorKind::Internal, what));
        }
        Ok(Some(piece))
    }
}

fn missing(oid: Oid) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no object {oid}"))
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlobReader").field("oid", &self.oid).field("rest", &self.rest).finish_non_exhaustive()
    }
}
