//! Reading many objects of one logical node: by their classes, or by an index.

use std::collections::BTreeSet;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, Filter, NodeId, Object, Oid, Result, SpaceId, limits};
use protocol::ident::{HlcTimestamp, Version};
use protocol::validate::{Read, ReadVersion};

use super::ids;
use super::states::{self, Check, Data};
use crate::convert::{self, invalid};
use crate::frame::Raw;
use crate::proto::cluster as proto;

/// Classes that one scan may ask for.
pub const MAX_SCAN_CLASSES: usize = 4096;
/// Bytes of a key of an index.
pub const MAX_KEY_BYTES: usize = 400;

/// Which objects are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// The space.
    pub space: SpaceId,
    /// The logical node.
    pub node: NodeId,
    /// The epoch of the placement map by which it is sent here.
    pub epoch: u64,
    /// Of these classes only.
    pub classes: BTreeSet<ClassId>,
    /// In the order of an index, rather than of the identifiers.
    pub range: Option<IndexRange>,
    /// Only what stands behind this.
    pub after: Option<ScanPosition>,
    /// Entries at most.
    pub limit: u32,
    /// What has to hold of them.
    pub filter: Option<Filter>,
    /// Only how many there are.
    pub count: bool,
    /// The class asked for, if those below it are too: then who knows of more of them than are named must not answer.
    pub family: Option<ClassId>,
}

/// A part of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The index.
    pub index: u32,
    /// The least key.
    pub from: Bytes,
    /// What is above the largest key.
    pub to: Bytes,
    /// The last first.
    pub reverse: bool,
}

/// A place in an extent or in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    /// The key; empty in an extent.
    pub key: Bytes,
    /// The object.
    pub oid: Oid,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// The objects, with the versions of their pages.
    pub found: Vec<(Oid, Version, Object)>,
    /// What a transaction has read besides, if it relies on there being no others.
    pub guards: Vec<Read>,
    /// Where it goes on, if it does.
    pub next: Option<ScanPosition>,
    /// How many objects were looked at.
    pub examined: u64,
    /// How many were found.
    pub count: u64,
    /// A time at or after all changes that were seen.
    pub seen: HlcTimestamp,
    /// Nothing is answered, for there are classes below the one asked for that were not named.
    pub has_stale_classes: bool,
}

impl From<ScanPosition> for proto::ScanPosition {
    fn from(place: ScanPosition) -> Self {
        Self { key: place.key, oid: Some(place.oid.into()) }
    }
}

fn scan_position(place: proto::ScanPosition) -> Result<ScanPosition> {
    Ok(ScanPosition { key: key(place.key)?, oid: ids::oid(place.oid)? })
}

fn key(key: Bytes) -> Result<Bytes> {
    if key.len() > MAX_KEY_BYTES {
        let what = format!("a key of an index with {} bytes; it has at most {MAX_KEY_BYTES}", key.len());
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    Ok(key)
}

impl Scan {
    /// The message of the schema.
    ///
    /// # Errors
    /// If the filter is larger than a filter may be.
    pub fn into_proto(self) -> Result<proto::Scan> {
        let filter = self.filter.map(|filter| filter.encode()).transpose()?.unwrap_or_default();
        let range = self.range.map(|range| {
            let IndexRange { index, from, to, reverse } = range;
            proto::IndexRange { index, from, to, reverse }
        });
        Ok(proto::Scan {
            space: u32::from(self.space.0),
            node: self.node.0,
            epoch: self.epoch,
            classes: self.classes.iter().map(|class| class.0).collect(),
            range,
            after: self.after.map(Into::into),
            limit: self.limit,
            filter: filter.into(),
            count: self.count,
            family: self.family.map_or(ClassId::NONE.0, |class| class.0),
        })
    }

    /// What a message asks for.
    ///
    /// # Errors
    /// If anything in it is not as it has to be, which it names.
    pub fn from_proto(scan: proto::Scan) -> Result<Self> {
        if scan.classes.len() > MAX_SCAN_CLASSES || scan.limit as usize > limits::LISTING {
            let (classes, limit, most) = (scan.classes.len(), scan.limit, limits::LISTING);
            let what =
                format!("a scan of {classes} classes for {limit} objects; at most {MAX_SCAN_CLASSES} and {most} go");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        if scan.classes.contains(&ClassId::NONE.0) {
            let what = "objects without a class are in no extent: they cannot be scanned";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let range = scan.range.map(|range| {
            let proto::IndexRange { index, from, to, reverse } = range;
            Ok::<_, Error>(IndexRange { index, from: key(from)?, to: key(to)?, reverse })
        });
        let filter = (!scan.filter.is_empty()).then(|| Filter::decode(&scan.filter));
        Ok(Self {
            space: convert::space(scan.space)?,
            node: ids::node(scan.node)?,
            epoch: scan.epoch,
            classes: scan.classes.into_iter().map(ids::class).collect::<Result<_>>()?,
            range: range.transpose()?,
            after: scan.after.map(scan_position).transpose()?,
            limit: scan.limit,
            filter: filter.transpose()?,
            count: scan.count,
            family: Some(ids::class(scan.family)?).filter(|class| *class != ClassId::NONE),
        })
    }
}

impl Scanned {
    /// The message of the schema, and the raw part.
    #[must_use]
    pub fn into_proto(self) -> (proto::Scanned, Vec<Bytes>) {
        let mut raw = Vec::with_capacity(self.found.len());
        let reads: Vec<Read> =
            self.found.iter().map(|(oid, version, _)| Read { oid: *oid, seen: ReadVersion::At(*version) }).collect();
        let states = self.found.iter().map(|(_, _, object)| states::state(Some(object), &mut raw)).collect();
        let scanned = proto::Scanned {
            found: states::reads_to_proto(reads.iter()),
            states,
            guards: states::reads_to_proto(self.guards.iter()),
            next: self.next.map(Into::into),
            examined: self.examined,
            count: self.count,
            seen: self.seen.0,
            has_stale_classes: self.has_stale_classes,
        };
        (scanned, raw)
    }

    /// What a message says, with the raw part that came with it.
    ///
    /// # Errors
    /// If anything in it is not as it has to be, which it names.
    pub fn from_proto(scanned: proto::Scanned, raw: Raw<'_>) -> Result<Self> {
        let mut data = Data::new(raw, Check::Lengths);
        let reads = states::reads(scanned.found)?;
        if scanned.states.len() != reads.len() {
            let (found, states) = (reads.len(), scanned.states.len());
            return Err(invalid(format!("{found} objects were found, and {states} states")));
        }
        let mut found = Vec::with_capacity(reads.len());
        for (read, state) in reads.into_iter().zip(scanned.states) {
            let object = data.object(read.oid.class(), state)?;
            let (ReadVersion::At(version), Some(object)) = (read.seen, object) else {
                return Err(invalid(format!("{} was found without a version or without a state", read.oid)));
            };
            found.push((read.oid, version, object));
        }
        data.finish()?;
        let (guards, next) = (states::reads(scanned.guards)?, scanned.next.map(scan_position).transpose()?);
        let (examined, count, seen) = (scanned.examined, scanned.count, HlcTimestamp(scanned.seen));
        Ok(Self { found, guards, next, examined, count, seen, has_stale_classes: scanned.has_stale_classes })
    }
}
