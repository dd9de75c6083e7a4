//! Objects with the same values in an index: the entries of all logical nodes, merged by their keys.

use std::collections::{BTreeSet, VecDeque};

use meta::catalog::{Index, Space};
use model::{ClassId, Error, ErrorKind, NodeId, Oid, RecordRef, Result};
use query::key::{Entry, Range};
use wire::cluster::{IndexRange, Place, Scan, Scanned};
use wire::frame::Raw;
use wire::proto::request::Request;
use wire::proto::response::Response;

use crate::peer::Peer;

/// Objects of a logical node that are fetched at a time.
const PORTION: u32 = 500;

/// The entries of a logical node, in order.
struct Entries {
    node: NodeId,
    at_hand: VecDeque<(Vec<u8>, Oid)>,
    /// Where it goes on; at first from the beginning.
    next: Option<Option<Place>>,
}

/// Two objects with the same values, if there are any. What changes meanwhile may be seen twice.
pub(super) async fn find(peer: &Peer, space: &Space, index: &Index) -> Result<Option<(Oid, Oid)>> {
    let catalog = peer.realm.catalog().unwrap_or_default();
    let classes: BTreeSet<ClassId> =
        catalog.schema(space.id).below(index.class).map(|shape| shape.class().id).collect();
    let nodes = peer.realm.space(&space.name)?.nodes.clone();
    let mut all: Vec<Entries> =
        nodes.into_iter().map(|node| Entries { node, at_hand: VecDeque::new(), next: Some(None) }).collect();
    let mut last: Option<(Vec<u8>, Oid)> = None;
    loop {
        for entries in &mut all {
            while entries.at_hand.is_empty()
                && let Some(after) = entries.next.take()
            {
                fetch(peer, space, index, &classes, (entries, after)).await?;
            }
        }
        let least = all.iter_mut().filter(|entries| !entries.at_hand.is_empty());
        let least = least.min_by(|one, other| one.at_hand.front().cmp(&other.at_hand.front()));
        let Some((key, oid)) = least.and_then(|entries| entries.at_hand.pop_front()) else { return Ok(None) };
        match last {
            Some((before, one)) if before == key && one != oid => return Ok(Some((one, oid))),
            _ => last = Some((key, oid)),
        }
    }
}

/// Fetches the next entries of a logical node. Those with null are equal to nothing.
async fn fetch(
    peer: &Peer,
    space: &Space,
    index: &Index,
    classes: &BTreeSet<ClassId>,
    (entries, after): (&mut Entries, Option<Place>),
) -> Result<()> {
    let Range { from, to } = Range::all();
    let range = IndexRange { index: index.id.0, from: from.into(), to: to.into(), reverse: false };
    let scan = Scan {
        space: space.id,
        node: entries.node,
        epoch: peer.realm.placement.of(entries.node).map_or(0, |place| place.epoch),
        classes: classes.clone(),
        range: Some(range),
        after,
        limit: PORTION,
        filter: None,
        count: false,
        family: Some(index.class),
    };
    let answer = peer.answer(entries.node, Request::Scan(scan.into_proto()?)).await?;
    let Response::Scanned(scanned) = answer.response else {
        return Err(Error::new(ErrorKind::Internal, "the brick has answered something else"));
    };
    let Scanned { found, next, behind, .. } = Scanned::from_proto(scanned, Raw::Owned(answer.raw))?;
    if behind {
        peer.realm.refresh_schema(space.id).await?;
        let what = format!("classes have come below that of index {:?}: it is looked through again", index.name);
        return Err(Error::new(ErrorKind::Unavailable, what));
    }
    for (oid, _, object) in found {
        let entry = Entry::of(&RecordRef::new(&object.data)?, &index.fields)?;
        if !entry.has_null {
            entries.at_hand.push_back((entry.key, oid));
        }
    }
    entries.next = next.map(Some);
    Ok(())
}
