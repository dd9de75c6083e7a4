//! Objects with the same values in an index: the entries of all logical nodes, merged by their keys.

use std::collections::{BTreeSet, VecDeque};

use meta::catalog::{Index, Space};
use model::{ClassId, Error, ErrorKind, NodeId, Oid, RecordRef, Result};
use query::key::{IndexEntry, KeyRange};
use wire::cluster::{IndexRange, Scan, ScanPosition, Scanned};
use wire::frame::Raw;
use wire::proto::request::Request;
use wire::proto::response::Response;

use crate::peer::shard::PeerShard;

/// Objects of a logical node that are fetched at a time.
const PORTION: u32 = 500;

/// The entries of a logical node, in order.
struct EntryStream {
    node: NodeId,
    buffered: VecDeque<(Vec<u8>, Oid)>,
    /// Where the next request continues: `Some(None)` before the first one, `None` after the last one.
    next: Option<Option<ScanPosition>>,
}

/// Two objects with the same values, if there are any. An object that changes meanwhile may be seen twice.
pub(super) async fn find(shard: &PeerShard, space: &Space, index: &Index) -> Result<Option<(Oid, Oid)>> {
    let catalog = shard.cluster_view.catalog().unwrap_or_default();
    let classes: BTreeSet<ClassId> =
        catalog.schema(space.id).family(index.class).map(|shape| shape.class().id).collect();
    let nodes = shard.cluster_view.space(&space.name)?.nodes.clone();
    let mut all: Vec<EntryStream> =
        nodes.into_iter().map(|node| EntryStream { node, buffered: VecDeque::new(), next: Some(None) }).collect();
    let mut last: Option<(Vec<u8>, Oid)> = None;
    loop {
        for entries in &mut all {
            while entries.buffered.is_empty()
                && let Some(after) = entries.next.take()
            {
                fetch(shard, space, index, &classes, (entries, after)).await?;
            }
        }
        let least = all.iter_mut().filter(|entries| !entries.buffered.is_empty());
        let least = least.min_by(|one, other| one.buffered.front().cmp(&other.buffered.front()));
        let Some((key, oid)) = least.and_then(|entries| entries.buffered.pop_front()) else { return Ok(None) };
        match last {
            Some((before, one)) if before == key && one != oid => return Ok(Some((one, oid))),
            _ => last = Some((key, oid)),
        }
    }
}

/// Fetches the next entries of a logical node. Entries with null equal no other entry.
async fn fetch(
    shard: &PeerShard,
    space: &Space,
    index: &Index,
    classes: &BTreeSet<ClassId>,
    (entries, after): (&mut EntryStream, Option<ScanPosition>),
) -> Result<()> {
    let KeyRange { from, to } = KeyRange::all();
    let range = IndexRange { index: index.id.0, from: from.into(), to: to.into(), reverse: false };
    let scan = Scan {
        space: space.id,
        node: entries.node,
        epoch: shard.cluster_view.placement.of(entries.node).map_or(0, |place| place.epoch),
        classes: classes.clone(),
        range: Some(range),
        after,
        limit: PORTION,
        filter: None,
        count: false,
        family: Some(index.class),
    };
    let answer = shard.call_node(entries.node, Request::Scan(scan.into_proto()?)).await?;
    let Response::Scanned(scanned) = answer.response else {
        return Err(Error::new(ErrorKind::Internal, "a brick answered a request with another kind of message"));
    };
    let Scanned { found, next, has_stale_classes: behind, .. } = Scanned::from_proto(*scanned, Raw::Owned(answer.raw))?;
    if behind {
        shard.cluster_view.refresh_schema(space.id).await?;
        let what = format!("classes were added below that of index {:?}: it is searched again", index.name);
        return Err(Error::new(ErrorKind::Unavailable, what));
    }
    for (oid, _, object) in found {
        let entry = IndexEntry::of(&RecordRef::new(&object.data)?, &index.fields)?;
        if !entry.has_null {
            entries.buffered.push_back((entry.key, oid));
        }
    }
    entries.next = next.map(Some);
    Ok(())
}
