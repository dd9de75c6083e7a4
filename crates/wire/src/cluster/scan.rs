//! Scans of one logical node: through classes, or through an index.

use std::collections::BTreeSet;

use bytes::Bytes;
use model::{ClassId, Error, ErrorKind, Filter, NodeId, Object, Oid, Result, SpaceId, limits};
use protocol::ident::{HlcTimestamp, Version};
use protocol::read_list::ReadList;
use protocol::validate::{Read, ReadVersion};

use super::ids;
use super::states::{self, Check, Data};
use crate::convert::{self, invalid};
use crate::frame::Raw;
use crate::proto::cluster as proto;

/// Most classes of one scan.
pub const MAX_SCAN_CLASSES: usize = 4096;
/// Most bytes of a key of an index.
pub const MAX_KEY_BYTES: usize = 400;

/// A request to scan a logical node.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    /// The space.
    pub space: SpaceId,
    /// The logical node.
    pub node: NodeId,
    /// The epoch of the placement map that the sender has.
    pub epoch: u64,
    /// The classes of the objects.
    pub classes: BTreeSet<ClassId>,
    /// The range of an index to scan; `None`: the extents of the classes.
    pub range: Option<IndexRange>,
    /// Continue after this position.
    pub after: Option<ScanPosition>,
    /// Most objects to return.
    pub limit: u32,
    /// The condition on the objects.
    pub filter: Option<Filter>,
    /// Whether to return only their number.
    pub count: bool,
    /// The class, if subclasses are included. A brick that knows a subclass missing in `classes` does not answer the scan.
    pub family: Option<ClassId>,
}

/// A range of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRange {
    /// The index.
    pub index: u32,
    /// The smallest key.
    pub from: Bytes,
    /// The end of the range; not included.
    pub to: Bytes,
    /// Whether to scan in descending order.
    pub reverse: bool,
}

/// A position in an extent or in an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    /// The key; empty in an extent.
    pub key: Bytes,
    /// The object.
    pub oid: Oid,
}

/// The answer to a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// The objects, with the versions of their pages.
    pub found: Vec<(Oid, Version, Object)>,
    /// The guards of the scanned set, with their versions.
    pub guards: Vec<Read>,
    /// The position to continue after; `None` at the end.
    pub next: Option<ScanPosition>,
    /// Number of objects that were examined.
    pub examined: u64,
    /// Number of objects that matched.
    pub count: u64,
    /// A time at or after all changes that were read.
    pub seen: HlcTimestamp,
    /// Set if the scan was not done because the brick knows subclasses missing in the request.
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
        let what = format!("a key of an index has {} bytes; it may have {MAX_KEY_BYTES}", key.len());
        return Err(Error::new(ErrorKind::TooLarge, what));
    }
    Ok(key)
}

impl Scan {
    /// Encodes the request.
    ///
    /// # Errors
    /// If the filter exceeds its size limit.
    pub fn into_proto(self) -> Result<proto::Scan> {
        let filter = self.filter.map(|filter| filter.encode()).transpose()?.unwrap_or_default();
        let range = self.range.map(|range| {
            let IndexRange { index, from, to, reverse } = range;
            Box::new(proto::IndexRange { index, from, to, reverse })
        });
        Ok(proto::Scan {
            space: u32::from(self.space.0),
            node: self.node.0,
            epoch: self.epoch,
            classes: self.classes.iter().map(|class| class.0).collect(),
            range,
            after: self.after.map(|after| Box::new(after.into())),
            limit: self.limit,
            filter: filter.into(),
            count: self.count,
            family: self.family.map_or(ClassId::NONE.0, |class| class.0),
        })
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(scan: proto::Scan) -> Result<Self> {
        if scan.classes.len() > MAX_SCAN_CLASSES || scan.limit as usize > limits::LISTING {
            let (classes, limit, most) = (scan.classes.len(), scan.limit, limits::LISTING);
            let what = format!(
                "a scan names {classes} classes and {limit} objects; the limits are {MAX_SCAN_CLASSES} and {most}"
            );
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        if scan.classes.contains(&ClassId::NONE.0) {
            let what = "objects without a class have no extent and cannot be scanned";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let range = scan.range.map(|range| {
            let proto::IndexRange { index, from, to, reverse } = *range;
            Ok::<_, Error>(IndexRange { index, from: key(from)?, to: key(to)?, reverse })
        });
        let filter = (!scan.filter.is_empty()).then(|| Filter::decode(&scan.filter));
        Ok(Self {
            space: convert::space(scan.space)?,
            node: ids::node(scan.node)?,
            epoch: scan.epoch,
            classes: scan.classes.into_iter().map(ids::class).collect::<Result<_>>()?,
            range: range.transpose()?,
            after: scan.after.map(|after| scan_position(*after)).transpose()?,
            limit: scan.limit,
            filter: filter.transpose()?,
            count: scan.count,
            family: Some(ids::class(scan.family)?).filter(|class| *class != ClassId::NONE),
        })
    }
}

impl Scanned {
    /// Encodes the answer and its raw part.
    #[must_use]
    pub fn into_proto(self) -> (Box<proto::Scanned>, Vec<Bytes>) {
        let mut raw = Vec::with_capacity(self.found.len());
        let reads: ReadList =
            self.found.iter().map(|(oid, version, _)| Read { oid: *oid, seen: ReadVersion::At(*version) }).collect();
        let states = self.found.iter().map(|(_, _, object)| states::state(Some(object), &mut raw)).collect();
        let scanned = proto::Scanned {
            found: states::reads_to_proto(reads.runs()),
            states,
            guards: states::read_slice_to_proto(&self.guards),
            next: self.next.map(Into::into),
            examined: self.examined,
            count: self.count,
            seen: self.seen.0,
            has_stale_classes: self.has_stale_classes,
        };
        (Box::new(scanned), raw)
    }

    /// Decodes an answer and its raw part.
    ///
    /// # Errors
    /// If a part is invalid; the error names it.
    pub fn from_proto(scanned: proto::Scanned, raw: Raw<'_>) -> Result<Self> {
        let mut data = Data::new(raw, Check::Lengths);
        let reads = states::reads(scanned.found)?;
        if scanned.states.len() != reads.len() {
            let (found, states) = (reads.len(), scanned.states.len());
            return Err(invalid(format!("an answer to a scan has {found} objects and {states} states")));
        }
        let mut found = Vec::with_capacity(reads.len());
        for (read, state) in reads.iter().zip(scanned.states) {
            let object = data.object(read.oid.class(), state)?;
            let (ReadVersion::At(version), Some(object)) = (read.seen, object) else {
                return Err(invalid(format!("object {} has no version or no state", read.oid)));
            };
            found.push((read.oid, version, object));
        }
        data.finish()?;
        let (guards, next) = (states::read_vec(scanned.guards)?, scanned.next.map(scan_position).transpose()?);
        let (examined, count, seen) = (scanned.examined, scanned.count, HlcTimestamp(scanned.seen));
        Ok(Self { found, guards, next, examined, count, seen, has_stale_classes: scanned.has_stale_classes })
    }
}
