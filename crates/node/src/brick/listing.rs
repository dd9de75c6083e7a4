//! Listings, whose answers have limits in entries and in bytes.

use bytes::{Bytes, BytesMut};
use model::{Error, ErrorKind, Oid, Result, SpaceId, limits};
use wire::convert;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;

use super::service::{View, on};

/// Most entries of a listing that the I/O thread answers directly.
const SHORT: usize = 128;
/// Bytes of attributes after which an answer ends, whatever its limit in entries.
const ENOUGH: usize = 1 << 20;
/// Attributes read at a time, since one may have a mebibyte.
const ATTRIBUTES: usize = 16;

/// A requested listing.
pub(crate) enum Listing {
    Attributes { oid: Oid, after: Option<Bytes>, limit: usize },
    Members { collection: Oid, after: Option<Oid>, limit: usize },
    Names { space: SpaceId, prefix: String, after: Option<String>, limit: usize },
    NamesOf { oid: Oid },
    CollectionsOf { oid: Oid, after: Option<Oid>, limit: usize },
    Objects { space: SpaceId, after: Option<Oid>, limit: usize },
}

fn bounded(limit: u32) -> usize {
    (limit as usize).min(limits::LISTING)
}

impl Listing {
    /// The listing of `request`, and the number of the snapshot to read.
    pub(crate) fn asked_by(request: Request) -> Result<(u64, Self)> {
        Ok(match request {
            Request::ListAttributes(list) => {
                let (oid, limit) = (convert::oid(list.oid, "object")?, bounded(list.limit));
                (list.snapshot, Self::Attributes { oid, after: list.after, limit })
            }
            Request::ListMembers(list) => {
                let collection = convert::oid(list.collection, "collection")?;
                let (after, limit) = (list.after.map(Into::into), bounded(list.limit));
                (list.snapshot, Self::Members { collection, after, limit })
            }
            Request::ListNames(list) => {
                let (space, limit) = (convert::space(list.space)?, bounded(list.limit));
                (list.snapshot, Self::Names { space, prefix: list.prefix, after: list.after, limit })
            }
            Request::ListNamesOf(list) => (list.snapshot, Self::NamesOf { oid: convert::oid(list.oid, "object")? }),
            Request::ListCollectionsOf(list) => {
                let oid = convert::oid(list.oid, "object")?;
                let (after, limit) = (list.after.map(Into::into), bounded(list.limit));
                (list.snapshot, Self::CollectionsOf { oid, after, limit })
            }
            Request::ListObjects(list) => {
                let (space, limit) = (convert::space(list.space)?, bounded(list.limit));
                (list.snapshot, Self::Objects { space, after: list.after.map(Into::into), limit })
            }
            _ => return Err(Error::new(ErrorKind::Internal, "this request is not a listing")),
        })
    }

    /// Whether it is short enough for the I/O thread.
    pub(crate) fn is_short(&self) -> bool {
        match self {
            Self::Members { limit, .. }
            | Self::Names { limit, .. }
            | Self::CollectionsOf { limit, .. }
            | Self::Objects { limit, .. } => *limit <= SHORT,
            Self::NamesOf { .. } => true,
            Self::Attributes { limit, .. } => *limit <= ATTRIBUTES,
        }
    }

    /// Reads it.
    pub(crate) fn read(&self, view: &View) -> Result<(Response, Bytes)> {
        match self {
            Self::Attributes { oid, after, limit } => attributes(view, *oid, after.clone(), *limit),
            Self::Members { collection, after, limit } => {
                oids(on!(view, state => state.members(*collection, *after, *limit))?, *limit)
            }
            Self::CollectionsOf { oid, after, limit } => {
                oids(on!(view, state => state.collections_of(*oid, *after, *limit))?, *limit)
            }
            Self::Names { space, prefix, after, limit } => {
                let names = on!(view, state => state.names(*space, prefix, after.as_deref(), *limit))?;
                let more = names.len() >= *limit;
                let mut raw = BytesMut::new();
                let entries = names.into_iter().map(|(path, oid)| {
                    raw.extend_from_slice(path.as_bytes());
                    proto::NameEntry { path_length: path.len() as u32, oid: Some(oid.into()) }
                });
                let names = proto::Names { entries: entries.collect(), more };
                Ok((Response::Names(names), raw.freeze()))
            }
            Self::NamesOf { oid } => {
                let paths = on!(view, state => state.names_of(*oid))?;
                Ok((Response::NamesOf(proto::NamesOf { paths }), Bytes::new()))
            }
            Self::Objects { space, after, limit } => {
                let objects = on!(view, state => state.objects(*space, *after, *limit))?;
                let more = objects.len() >= *limit;
                let entries = objects.into_iter().map(Into::into).collect();
                Ok((Response::Objects(proto::Objects { entries, more }), Bytes::new()))
            }
        }
    }
}

fn oids(found: Vec<Oid>, limit: usize) -> Result<(Response, Bytes)> {
    let more = found.len() >= limit;
    Ok((Response::Oids(proto::Oids { more }), convert::oids_to_raw(&found)))
}

fn attributes(view: &View, oid: Oid, after: Option<Bytes>, limit: usize) -> Result<(Response, Bytes)> {
    let mut after = after;
    let mut answer = proto::Attributes { entries: Vec::new(), more: true };
    let mut raw = BytesMut::new();
    while answer.entries.len() < limit && raw.len() < ENOUGH {
        let wanted = (limit - answer.entries.len()).min(ATTRIBUTES);
        let found = on!(view, state => state.attributes(oid, after.as_deref(), wanted))?;
        answer.more = found.len() == wanted;
        for (key, value) in found {
            raw.extend_from_slice(&value);
            after = Some(key.clone());
            answer.entries.push(proto::Attribute { key, value_length: value.len() as u32 });
        }
        if !answer.more {
            break;
        }
    }
    Ok((Response::Attributes(answer), raw.freeze()))
}
