//! Contents: uploads, and reads of ranges.

use bytes::Bytes;
use model::{ContentId, ContentRef, Error, NodeId, Object, Oid, Result, SpaceId};

use super::ids;
use super::states::{self, Check, Data};
use crate::convert::{self, invalid};
use crate::frame::Raw;
use crate::proto::contents as proto;

/// Most bytes that one request can read.
pub const MAX_CONTENT_READ: u32 = 4 << 20;

/// A read of a range of a blob's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadContent {
    /// The blob.
    pub oid: Oid,
    /// The first byte.
    pub offset: u64,
    /// How many bytes; fewer are read at the end of the blob.
    pub length: u32,
    /// The content and its generation that are to be read; `None`: the newest.
    pub expected: Option<(ContentId, u64)>,
}

/// The answer to a [`ReadContent`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBytes {
    /// The object, unless its content was in the expected state; `None`, too, if there is no object.
    pub object: Option<Object>,
    /// The bytes; `None` if the content is not in the expected state any more.
    pub bytes: Option<Bytes>,
}

impl From<ContentId> for proto::ContentId {
    fn from(id: ContentId) -> Self {
        Self { high: (id.0 >> 64) as u64, low: id.0 as u64 }
    }
}

/// The identifier of a content.
///
/// # Errors
/// If there is none, or no content can have it.
pub fn content_id(id: Option<proto::ContentId>) -> Result<ContentId> {
    let id = id.ok_or_else(|| invalid("a request names no content"))?;
    let id = ContentId(u128::from(id.high) << 64 | u128::from(id.low));
    if id.0 >> 127 == 0 { Ok(id) } else { Err(invalid(format!("no content has the identifier {id}"))) }
}

/// The space and logical node of a request about an upload.
///
/// # Errors
/// If they cannot be read.
pub fn upload_place(begin: &proto::Begin) -> Result<(SpaceId, NodeId)> {
    Ok((convert::space(begin.space)?, ids::node(begin.node)?))
}

/// Whether an object's content is in the state that was expected.
#[must_use]
pub fn is_expected(expected: Option<(ContentId, u64)>, content: Option<ContentRef>) -> bool {
    expected.is_none_or(|expected| content.is_some_and(|content| (content.id, content.generation) == expected))
}

impl From<ReadContent> for proto::Read {
    fn from(read: ReadContent) -> Self {
        let ReadContent { oid, offset, length, expected } = read;
        let state = |(id, generation): (ContentId, u64)| proto::State { content: Some(id.into()), generation };
        Self { oid: Some(oid.into()), offset, length, expected: expected.map(state) }
    }
}

impl TryFrom<proto::Read> for ReadContent {
    type Error = Error;

    fn try_from(read: proto::Read) -> Result<Self> {
        let proto::Read { oid, offset, length, expected } = read;
        if length > MAX_CONTENT_READ {
            let what = format!("a read of {length} bytes at once; the limit is {MAX_CONTENT_READ}: read in pieces");
            return Err(Error::new(model::ErrorKind::TooLarge, what));
        }
        let expected = expected.map(|state| Ok::<_, Error>((content_id(state.content)?, state.generation)));
        Ok(Self { oid: ids::oid(oid)?, offset, length, expected: expected.transpose()? })
    }
}

/// The answer to a read, and the encoding of the object, which precedes the bytes.
#[must_use]
pub fn read_to_proto(object: Option<&Object>, is_read: bool) -> (proto::Bytes, Vec<Bytes>) {
    let mut raw = Vec::new();
    (proto::Bytes { state: states::state(object, &mut raw), is_read }, raw)
}

/// Decodes the answer to a read of `oid`.
///
/// # Errors
/// If it is not well formed.
pub fn read_from_proto(oid: Oid, read: proto::Bytes, raw: Raw<'_>) -> Result<ReadBytes> {
    let mut data = Data::new(raw, Check::Lengths);
    let object = data.object(oid.class(), read.state)?;
    if !read.is_read {
        data.finish()?;
        return Ok(ReadBytes { object, bytes: None });
    }
    Ok(ReadBytes { object, bytes: Some(data.take_rest()?) })
}
