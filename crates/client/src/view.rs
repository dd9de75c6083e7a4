//! Reading: the newest committed state, or a snapshot of it.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use model::{Error, ErrorKind, Name, Oid, Result, SpaceId, Stat, limits};
use wire::convert::{self, Cursor};
use wire::frame::Raw;
use wire::link::{Answer, Pending};
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use crate::BlobReader;
use crate::link::{Link, Session, unanswered_read};

/// What can be read. A [`Client`](crate::Client) reads the newest committed state, a [`Snapshot`](crate::Snapshot) what
/// was committed when it was taken; both lend these methods.
///
/// Listings answer with at most `limit` entries, in order, behind `after`; fewer mean that there are no more.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) source: Source,
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Whatever connection there is at the moment.
    Newest(Arc<Link>),
    /// A snapshot that the server holds for one connection.
    Snapshot { session: Arc<Session>, id: u64, space: SpaceId },
}

impl View {
    fn snapshot(&self) -> u64 {
        match self.source {
            Source::Newest(_) => 0,
            Source::Snapshot { id, .. } => id,
        }
    }

    /// The space that names and listings are about.
    #[must_use]
    pub fn space(&self) -> SpaceId {
        match &self.source {
            Source::Newest(link) => link.space(),
            Source::Snapshot { space, .. } => *space,
        }
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Answer> {
        match &self.source {
            Source::Newest(link) => link.read(request).await,
            Source::Snapshot { session, .. } => session.call(request, Vec::new()).await.map_err(unanswered_read),
        }
    }

    fn name(&self, path: &str) -> proto::Name {
        Name { space: self.space(), path: path.to_owned() }.into()
    }

    /// What is known of an object without its content, or `None` if there is none.
    pub async fn stat(&self, oid: Oid) -> Result<Option<Stat>> {
        let request = proto::GetStat { oid: Some(oid.into()), snapshot: self.snapshot() };
        match self.ask(Request::GetStat(request)).await?.response {
            Response::Stated(stated) => stated.stat.map(Stat::try_from).transpose(),
            other => Err(unexpected(&other)),
        }
    }

    /// An object, with its content if that is at most `max` bytes: one round trip.
    pub async fn get(&self, oid: Oid, max: usize) -> Result<Option<(Stat, Option<Bytes>)>> {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let request = proto::Get { oid: Some(oid.into()), snapshot: self.snapshot(), max };
        let answer = self.ask(Request::Get(request)).await?;
        match answer.response {
            Response::Got(proto::Got { stat: Some(stat), with_content }) => {
                Ok(Some((stat.try_into()?, with_content.then_some(answer.raw))))
            }
            Response::Got(_) => Ok(None),
            other => Err(unexpected(&other)),
        }
    }

    /// Up to `len` bytes from `offset` on; fewer at the end. For content larger than memory see [`View::reader`].
    pub async fn read(&self, oid: Oid, offset: u64, len: u64) -> Result<Bytes> {
        let mut reader = self.reader(oid, offset..offset.saturating_add(len));
        let Some(first) = reader.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = reader.next().await? else { return Ok(first) };
        let mut whole = BytesMut::from(first);
        whole.extend_from_slice(&second);
        while let Some(piece) = reader.next().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    }

    /// Content piece by piece, with read-ahead: any size in bounded memory.
    pub fn reader(&self, oid: Oid, range: impl RangeBounds<u64>) -> BlobReader {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        BlobReader::new(self.clone(), oid, start..end)
    }

    pub(crate) async fn read_piece(&self, oid: Oid, offset: u64, length: u32) -> Result<Bytes> {
        let answer = self.ask(self.read_request(oid, offset, length)).await;
        self.finish_piece(oid, offset, length, answer)
    }

    fn read_request(&self, oid: Oid, offset: u64, length: u32) -> Request {
        Request::Read(proto::Read { oid: Some(oid.into()), snapshot: self.snapshot(), offset, length })
    }

    /// Asks for a piece without waiting for it: for read-ahead.
    pub(crate) async fn begin_piece(&self, oid: Oid, offset: u64, length: u32) -> Result<Pending> {
        let request = self.read_request(oid, offset, length);
        match &self.source {
            Source::Newest(link) => link.session().await?.begin_call(request, Vec::new()).await,
            Source::Snapshot { session, .. } => session.begin_call(request, Vec::new()).await,
        }
    }

    pub(crate) fn finish_piece(&self, oid: Oid, offset: u64, length: u32, answer: Result<Answer>) -> Result<Bytes> {
        let answer = answer.map_err(|error| match error.kind() {
            ErrorKind::Corrupt => {
                let what = format!("object {oid} is damaged in bytes {offset} to {}", offset + u64::from(length));
                Error::new(ErrorKind::Corrupt, what).caused_by(error)
            }
            _ => unanswered_read(error),
        })?;
        match answer.response {
            Response::Content(_) => Ok(answer.raw),
            other => Err(unexpected(&other)),
        }
    }

    /// The value of an attribute, or `None` if the object has no such attribute.
    pub async fn attribute(&self, oid: Oid, key: &[u8]) -> Result<Option<Bytes>> {
        let key = Bytes::copy_from_slice(key);
        let request = proto::GetAttribute { oid: Some(oid.into()), snapshot: self.snapshot(), key };
        let answer = self.ask(Request::GetAttribute(request)).await?;
        match answer.response {
            Response::AttributeValue(value) => Ok(value.found.then_some(answer.raw)),
            other => Err(unexpected(&other)),
        }
    }

    /// Attributes of an object, by key.
    pub async fn attributes(&self, oid: Oid, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let mut after = after.map(Bytes::copy_from_slice);
        let mut found = Vec::new();
        while found.len() < limit {
            let request = proto::ListAttributes {
                oid: Some(oid.into()),
                snapshot: self.snapshot(),
                after: after.clone(),
                limit: page(limit - found.len()),
            };
            let answer = self.ask(Request::ListAttributes(request)).await?;
            let Response::Attributes(attributes) = answer.response else { return Err(unexpected(&answer.response)) };
            let (raw, before) = (Raw::Owned(answer.raw), found.len());
            let mut values = Cursor::new(&raw);
            for entry in attributes.entries {
                found.push((entry.key, values.take(entry.value_length)?));
            }
            values.finish()?;
            if !attributes.more || found.len() == before {
                break;
            }
            after = found.last().map(|(key, _)| key.clone());
        }
        Ok(found)
    }

    async fn oids(
        &self,
        after: Option<Oid>,
        limit: usize,
        ask: impl Fn(Option<Oid>, u32) -> Request,
    ) -> Result<Vec<Oid>> {
        let (mut after, mut found) = (after, Vec::new());
        while found.len() < limit {
            let answer = self.ask(ask(after, page(limit - found.len()))).await?;
            let Response::Oids(oids) = answer.response else { return Err(unexpected(&answer.response)) };
            let entries = convert::oids_from_raw(&answer.raw)?;
            let is_last = !oids.more || entries.is_empty();
            found.extend(entries);
            if is_last {
                break;
            }
            after = found.last().copied();
        }
        Ok(found)
    }

    /// Members of a collection, by identifier.
    pub async fn members(&self, collection: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        self.oids(after, limit, |after, limit| {
            let (after, snapshot) = (after.map(Into::into), self.snapshot());
            Request::ListMembers(proto::ListMembers { collection: Some(collection.into()), snapshot, after, limit })
        })
        .await
    }

    /// Whether `member` is in the collection.
    pub async fn contains(&self, collection: Oid, member: Oid) -> Result<bool> {
        let (collection, member) = (Some(collection.into()), Some(member.into()));
        let request = proto::Contains { collection, member, snapshot: self.snapshot() };
        match self.ask(Request::Contains(request)).await?.response {
            Response::Contained(contained) => Ok(contained.found),
            other => Err(unexpected(&other)),
        }
    }

    /// The object that a name of this space is bound to.
    pub async fn resolve(&self, path: &str) -> Result<Option<Oid>> {
        let request = proto::Resolve { name: Some(self.name(path)), snapshot: self.snapshot() };
        match self.ask(Request::Resolve(request)).await?.response {
            Response::Resolved(resolved) => Ok(resolved.oid.map(Into::into)),
            other => Err(unexpected(&other)),
        }
    }

    /// Names of this space that begin with `prefix`, in order, with their objects.
    pub async fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<(String, Oid)>> {
        let mut after = after.map(str::to_owned);
        let mut found: Vec<(String, Oid)> = Vec::new();
        while found.len() < limit {
            let request = proto::ListNames {
                space: u32::from(self.space().0),
                snapshot: self.snapshot(),
                prefix: prefix.to_owned(),
                after: after.clone(),
                limit: page(limit - found.len()),
            };
            let answer = self.ask(Request::ListNames(request)).await?;
            let Response::Names(names) = answer.response else { return Err(unexpected(&answer.response)) };
            let (raw, before) = (Raw::Borrowed(&answer.raw), found.len());
            let mut paths = Cursor::new(&raw);
            for entry in names.entries {
                let path = paths.take(entry.path_length)?;
                let path = String::from_utf8(path.into()).map_err(|_| garbled("a name that is no UTF-8"))?;
                found.push((path, convert::oid(entry.oid, "object")?));
            }
            paths.finish()?;
            if !names.more || found.len() == before {
                break;
            }
            after = found.last().map(|(path, _)| path.clone());
        }
        Ok(found)
    }

    /// The names that are bound to an object.
    pub async fn names_of(&self, oid: Oid) -> Result<Vec<String>> {
        let request = proto::ListNamesOf { oid: Some(oid.into()), snapshot: self.snapshot() };
        match self.ask(Request::ListNamesOf(request)).await?.response {
            Response::NamesOf(names) => Ok(names.paths),
            other => Err(unexpected(&other)),
        }
    }

    /// The collections that an object is in, by identifier.
    pub async fn collections_of(&self, oid: Oid, after: Option<Oid>, limit: usize) -> Result<Vec<Oid>> {
        self.oids(after, limit, |after, limit| {
            let (after, snapshot) = (after.map(Into::into), self.snapshot());
            Request::ListCollectionsOf(proto::ListCollectionsOf { oid: Some(oid.into()), snapshot, after, limit })
        })
        .await
    }

    /// Every object of this space, by identifier.
    pub async fn objects(&self, after: Option<Oid>, limit: usize) -> Result<Vec<Stat>> {
        let mut after = after;
        let mut found: Vec<Stat> = Vec::new();
        while found.len() < limit {
            let request = proto::ListObjects {
                space: u32::from(self.space().0),
                snapshot: self.snapshot(),
                after: after.map(Into::into),
                limit: page(limit - found.len()),
            };
            let answer = self.ask(Request::ListObjects(request)).await?;
            let Response::Objects(objects) = answer.response else { return Err(unexpected(&answer.response)) };
            let before = found.len();
            for entry in objects.entries {
                found.push(entry.try_into()?);
            }
            if !objects.more || found.len() == before {
                break;
            }
            after = found.last().map(|stat| stat.oid);
        }
        Ok(found)
    }
}

/// How many entries to ask for at once when `wanted` are wanted.
fn page(wanted: usize) -> u32 {
    wanted.min(limits::LISTING) as u32
}

fn garbled(what: &str) -> Error {
    Error::new(ErrorKind::Internal, format!("the server answered with {what}"))
}

/// The error for an answer that does not belong to its question.
pub(crate) fn unexpected(response: &Response) -> Error {
    let name = format!("{response:?}");
    let name = name.split(['(', ' ']).next().unwrap_or_default();
    garbled(&format!("{name}, which does not belong to the question"))
}
