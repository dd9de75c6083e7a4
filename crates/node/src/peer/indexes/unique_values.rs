//! Whether a unique index has all that it needs: no two objects have the same values, and all values are bound. For that the entries
//! of all logical nodes are merged by their keys.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use meta::catalog::{Index, Space};
use model::{ClassId, Entry, Error, ErrorKind, NodeId, Oid, RecordRef, Result};
use protocol::entries::unique_entry;
use query::key::{IndexEntry, KeyRange};
use tokio::task::JoinSet;
use wire::cluster::{IndexRange, LookUp, LookedUp, Scan, ScanPosition, Scanned};
use wire::frame::Raw;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::tasks;

use crate::peer::shard::PeerShard;

/// Objects of a logical node that are fetched at a time.
const PORTION: u32 = 500;
/// Values that are looked up at once.
const LOOK_UPS_AT_ONCE: usize = 64;

/// The values of a unique index, as a search has found them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UniqueValues {
    /// No two objects have the same values, and all values are bound.
    Complete,
    /// Some values are not bound.
    Unbound,
    /// These objects have the same values.
    Alike(Oid, Oid),
}

/// The entries of a logical node, in order.
struct EntryStream {
    node: NodeId,
    buffered: VecDeque<(Vec<u8>, Oid)>,
    /// Where the next request continues: `Some(None)` before the first one, `None` after the last one.
    next: Option<Option<ScanPosition>>,
}

/// Searches a unique index. An object that changes meanwhile may be seen twice.
pub(super) async fn search(shard: &Arc<PeerShard>, space: &Space, index: &Index) -> Result<UniqueValues> {
    let catalog = shard.cluster_view.catalog().unwrap_or_default();
    let classes: BTreeSet<ClassId> =
        catalog.schema(space.id).family(index.class).map(|shape| shape.class().id).collect();
    let mut nodes = shard.cluster_view.space(&space.name)?.nodes.clone();
    nodes.sort_unstable();
    let (mut looking, mut is_bound) = (JoinSet::new(), true);
    let mut all: Vec<EntryStream> =
        nodes.iter().map(|node| EntryStream { node: *node, buffered: VecDeque::new(), next: Some(None) }).collect();
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
        let Some((key, oid)) = least.and_then(|entries| entries.buffered.pop_front()) else { break };
        if let Some((before, one)) = &last
            && *before == key
            && *one != oid
        {
            return Ok(UniqueValues::Alike(*one, oid));
        }
        if is_bound {
            if looking.len() == LOOK_UPS_AT_ONCE {
                is_bound = next_is_bound(&mut looking).await?;
            }
            let entry = unique_entry(space.id, &nodes, index.id.0, &key)?;
            tasks::spawn_in(&mut looking, is_bound_to(shard.clone(), entry, oid));
        }
        last = Some((key, oid));
    }
    while is_bound && !looking.is_empty() {
        is_bound = next_is_bound(&mut looking).await?;
    }
    Ok(if is_bound { UniqueValues::Complete } else { UniqueValues::Unbound })
}

/// Waits for one of these look-ups, if there are any. Says whether it has found values that are bound.
async fn next_is_bound(looking: &mut JoinSet<Result<bool>>) -> Result<bool> {
    match looking.join_next().await {
        Some(Ok(is_bound)) => is_bound,
        Some(Err(error)) => Err(Error::new(ErrorKind::Internal, format!("a look-up has panicked: {error}"))),
        None => Ok(true),
    }
}

/// Whether values are bound to this object. Bound to another one, they are as good as free.
async fn is_bound_to(shard: Arc<PeerShard>, Entry { collection, key }: Entry, oid: Oid) -> Result<bool> {
    let wanted = LookUp { collection, keys: vec![key] };
    let answer = shard.call_node(collection.page().node, Request::LookUp(wanted.into_proto())).await?;
    let Response::LookedUp(found) = answer.response else { return Err(other_answer_error()) };
    Ok(LookedUp::from_proto(*found)?.targets.first() == Some(&oid))
}

fn other_answer_error() -> Error {
    Error::new(ErrorKind::Internal, "a brick answered a request with another kind of message")
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
    let Response::Scanned(scanned) = answer.response else { return Err(other_answer_error()) };
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
