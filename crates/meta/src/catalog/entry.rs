//! The entries of the catalogue: their keys, and their values as JSON.
//!
//! | key | value |
//! | --- | --- |
//! | `parameters` | [`Parameters`](super::Parameters) |
//! | `client_number_key` | [`ClientNumberKey`](super::ClientNumberKey) |
//! | `numbers/NAME` | the next number of a counter |
//! | `bricks/ID`, `peers/ID` | [`BrickRecord`](super::BrickRecord), [`PeerRecord`](super::PeerRecord) |
//! | `openings/ID` | [`BrickOpening`](super::BrickOpening): the last opening of a brick's store |
//! | `opening` | [`OpeningHistory`](crate::opening::OpeningHistory): the openings of the catalogue itself |
//! | `moved` | [`CatalogueMove`](crate::catalogue_move::CatalogueMove): the catalogue is sealed, because it was moved to another store |
//! | `alive/bricks/ID`, `alive/peers/ID` | [`Liveness`](super::Liveness); attached to a session |
//! | `spaces/NAME` | [`Space`](super::Space) |
//! | `removed/SPACE` | [`RemovedSpace`](super::RemovedSpace): its logical nodes, whose objects the bricks remove |
//! | `map` | the placement map's epoch; raised by every change of the map |
//! | `placement/SPACE/PART` | [`PlacementRange`](super::PlacementRange): the bricks of 64 logical nodes |
//! | `schemas/SPACE` | counts changes of the space's classes and indexes; raised by every such change |
//! | `classes/SPACE/NAME` | [`Class`](super::Class) |
//! | `versions/SPACE/CLASS/VERSION` | a class as it was |
//! | `indexes/SPACE/NAME` | [`Index`](super::Index) |
//! | `jobs/ID` | [`Job`](super::Job): work that a cluster does in the background |
//! | `progress/JOB/PART` | [`JobPart`](super::JobPart): how far a part of a job is, and which process works on it |
//! | `accounts` | counts changes of users, groups and permissions; raised by every such change |
//! | `users/NAME`, `groups/NAME` | [`User`](super::User), [`Group`](super::Group) |

use std::fmt;

use bytes::Bytes;
use model::{ClassId, Result, SpaceId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::CatalogError;
use super::ident::{BrickId, JobId, PeerId};
use crate::{Key, Prefix};

/// What a key of the catalogue names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Parameters,
    ClientNumberKey,
    Counter(String),
    Brick(BrickId),
    Peer(PeerId),
    Opening(BrickId),
    CatalogueOpenings,
    Moved,
    AliveBrick(BrickId),
    AlivePeer(PeerId),
    Space(String),
    RemovedSpace(SpaceId),
    PlacementMap,
    PlacementRange(SpaceId, u32),
    Schema(SpaceId),
    Class(SpaceId, String),
    Version(SpaceId, ClassId, u32),
    Index(SpaceId, String),
    Job(JobId),
    JobPart(JobId, u32),
    Accounts,
    User(String),
    Group(String),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameters => f.write_str("parameters"),
            Self::ClientNumberKey => f.write_str("client_number_key"),
            Self::Counter(name) => write!(f, "numbers/{name}"),
            Self::Brick(id) => write!(f, "bricks/{id}"),
            Self::Peer(id) => write!(f, "peers/{id}"),
            Self::Opening(id) => write!(f, "openings/{id}"),
            Self::CatalogueOpenings => f.write_str("opening"),
            Self::Moved => f.write_str("moved"),
            Self::AliveBrick(id) => write!(f, "alive/bricks/{id}"),
            Self::AlivePeer(id) => write!(f, "alive/peers/{id}"),
            Self::Space(name) => write!(f, "spaces/{name}"),
            Self::RemovedSpace(space) => write!(f, "removed/{}", space.0),
            Self::PlacementMap => f.write_str("map"),
            Self::PlacementRange(space, part) => write!(f, "placement/{}/{part}", space.0),
            Self::Schema(space) => write!(f, "schemas/{}", space.0),
            Self::Class(space, name) => write!(f, "classes/{}/{name}", space.0),
            Self::Version(space, class, version) => write!(f, "versions/{}/{}/{version}", space.0, class.0),
            Self::Index(space, name) => write!(f, "indexes/{}/{name}", space.0),
            Self::Job(id) => write!(f, "jobs/{id}"),
            Self::JobPart(id, part) => write!(f, "progress/{id}/{part}"),
            Self::Accounts => f.write_str("accounts"),
            Self::User(name) => write!(f, "users/{name}"),
            Self::Group(name) => write!(f, "groups/{name}"),
        }
    }
}

impl Path {
    /// The key.
    ///
    /// # Errors
    /// If a name was not checked and contains characters that keys cannot have.
    pub(crate) fn key(&self) -> Result<Key> {
        Key::new(self.to_string())
    }

    /// Parses a key; `None` if this version does not know its kind, because a newer version may have written it.
    pub(super) fn parse(key: &Key) -> Option<Self> {
        let parts: Vec<&str> = key.as_str().split('/').collect();
        Some(match parts[..] {
            ["parameters"] => Self::Parameters,
            ["client_number_key"] => Self::ClientNumberKey,
            ["numbers", name] => Self::Counter(name.to_owned()),
            ["bricks", id] => Self::Brick(BrickId(number(id)?)),
            ["peers", id] => Self::Peer(PeerId(number(id)?)),
            ["openings", id] => Self::Opening(BrickId(number(id)?)),
            ["opening"] => Self::CatalogueOpenings,
            ["moved"] => Self::Moved,
            ["alive", "bricks", id] => Self::AliveBrick(BrickId(number(id)?)),
            ["alive", "peers", id] => Self::AlivePeer(PeerId(number(id)?)),
            ["spaces", name] => Self::Space(name.to_owned()),
            ["removed", id] => Self::RemovedSpace(space(id)?),
            ["map"] => Self::PlacementMap,
            ["placement", id, part] => Self::PlacementRange(space(id)?, number(part)?),
            ["schemas", id] => Self::Schema(space(id)?),
            ["classes", id, name] => Self::Class(space(id)?, name.to_owned()),
            ["versions", id, class, version] => {
                let class = Some(ClassId(number(class)?)).filter(|class| *class <= ClassId::MAX)?;
                Self::Version(space(id)?, class, number(version)?)
            }
            ["indexes", id, name] => Self::Index(space(id)?, name.to_owned()),
            ["jobs", id] => Self::Job(job(id)?),
            ["progress", id, part] => Self::JobPart(job(id)?, number(part)?),
            ["accounts"] => Self::Accounts,
            ["users", name] => Self::User(name.to_owned()),
            ["groups", name] => Self::Group(name.to_owned()),
            _ => return None,
        })
    }
}

/// Parses a number in its only allowed form, so that each entry has exactly one key.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn job(text: &str) -> Option<JobId> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(JobId(number))
}

fn space(text: &str) -> Option<SpaceId> {
    let id = u16::try_from(number(text)?).ok()?;
    (id <= SpaceId::MAX.0).then_some(SpaceId(id))
}

/// All jobs.
pub(super) fn jobs() -> Result<Prefix> {
    Prefix::new("jobs/")
}

/// The parts of a job.
pub(super) fn job_parts(job: JobId) -> Result<Prefix> {
    Prefix::new(format!("progress/{job}/"))
}

/// The classes of a space.
pub(super) fn classes(space: SpaceId) -> Result<Prefix> {
    Prefix::new(format!("classes/{}/", space.0))
}

/// The indexes of a space.
pub(super) fn indexes(space: SpaceId) -> Result<Prefix> {
    Prefix::new(format!("indexes/{}/", space.0))
}

/// The counter that numbers the classes of a space.
pub(super) fn class_counter(space: SpaceId) -> String {
    format!("classes.{}", space.0)
}

/// The counter that numbers the indexes of a space.
pub(super) fn index_counter(space: SpaceId) -> String {
    format!("indexes.{}", space.0)
}

/// All versions of all classes of a space.
pub(super) fn all_versions(space: SpaceId) -> Result<Prefix> {
    Prefix::new(format!("versions/{}/", space.0))
}

/// The versions of a class.
pub(super) fn versions(space: SpaceId, class: ClassId) -> Result<Prefix> {
    Prefix::new(format!("versions/{}/{}/", space.0, class.0))
}

// ---------------------------------------------------------------------------------------------- values

/// A type of values.
pub(crate) trait Record: Serialize + DeserializeOwned {
    /// Checks what the type itself does not ensure: sizes, names, ranges.
    fn check(&self) -> Result<(), CatalogError>;
}

/// Encodes a value after checking it, so that nothing is written that cannot be read.
pub(crate) fn encode<T: Record>(record: &T) -> Result<Bytes, CatalogError> {
    record.check()?;
    let unwritable = |error: serde_json::Error| {
        model::Error::new(model::ErrorKind::Internal, "an entry of the catalogue cannot be encoded").with_source(error)
    };
    Ok(serde_json::to_vec(record).map_err(unwritable)?.into())
}

/// Decodes and checks a value.
pub(crate) fn decode<T: Record>(key: &Key, bytes: &[u8]) -> Result<T, CatalogError> {
    let damaged = |why: String| CatalogError::Damaged { key: key.to_string(), why };
    let record: T = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
    match record.check() {
        Ok(()) => Ok(record),
        Err(newer @ CatalogError::Newer { .. }) => Err(newer),
        Err(error) => Err(damaged(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_round_trip_through_keys_and_other_keys_are_not_parsed() {
        let name = || "a.b".to_owned();
        for path in [
            Path::Parameters,
            Path::ClientNumberKey,
            Path::Counter(name()),
            Path::Brick(BrickId(7)),
            Path::Peer(PeerId(u32::MAX)),
            Path::Opening(BrickId(2)),
            Path::CatalogueOpenings,
            Path::Moved,
            Path::AliveBrick(BrickId(0)),
            Path::AlivePeer(PeerId(3)),
            Path::Space(name()),
            Path::RemovedSpace(SpaceId(7)),
            Path::PlacementMap,
            Path::PlacementRange(SpaceId(1), 12),
            Path::Schema(SpaceId(2)),
            Path::Class(SpaceId::MAX, name()),
            Path::Version(SpaceId(1), ClassId::MAX, 3),
            Path::Index(SpaceId(1), name()),
            Path::Job(JobId(u64::MAX)),
            Path::JobPart(JobId(3), 2),
            Path::Accounts,
            Path::User(name()),
            Path::Group(name()),
        ] {
            assert_eq!(Path::parse(&path.key().unwrap()), Some(path));
        }
        for text in [
            "x",
            "bricks/",
            "bricks/07",
            "bricks/+7",
            "bricks/4294967296",
            "classes/32768/a",
            "spaces/a/b",
            "map/",
            "jobs/07",
            "progress/1",
        ] {
            assert_eq!(Path::parse(&Key::new(text).unwrap()), None, "{text}");
        }
    }
}
