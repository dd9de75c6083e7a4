//! The records of transactions with the identifiers of a clone.
//!
//! Guards are computed from the identifiers of their collections, so the guards that a prepared transaction has read or touched are not those of the
//! clone. They only bar other transactions until this one is decided; nothing in the clone has read them.

use std::collections::BTreeSet;

use model::{Entry, Error, ErrorKind, NodeId, Object, Oid, Result, SpaceMap};
use protocol::commit::{AppendOffsets, EntryChanges, Part, Record, Writes};
use protocol::entries::is_unique_values;
use protocol::page_cache::ObjectState;
use protocol::validate::Read;

/// A record with the identifiers of the clone.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if an object is damaged, or a participant is not of the space.
pub(super) fn map_record(map: &SpaceMap, record: Record<Object>) -> Result<Record<Object>> {
    Ok(match record {
        Record::Prepared { txn, participants, part, proposal } => {
            let Part { reads, writes, touches, entries, offsets, transfer_ms } = part;
            let reads = reads.iter().map(|read| Read { oid: map.oid(read.oid), ..read }).collect();
            let part = Part {
                reads,
                writes: map_writes(map, writes)?,
                touches: map_oids(map, &touches),
                entries: map_entries(map, entries),
                offsets: map_offsets(map, offsets),
                transfer_ms,
            };
            Record::Prepared { txn, participants: map_nodes(map, &participants)?, part, proposal }
        }
        Record::Committed { txn, timestamp, writes, touches, entries, offsets } => Record::Committed {
            txn,
            timestamp,
            writes: map_writes(map, writes)?,
            touches: map_oids(map, &touches),
            entries: map_entries(map, entries),
            offsets: map_offsets(map, offsets),
        },
        Record::Decided { txn, outcome, writes, touches, entries, offsets, participants } => Record::Decided {
            txn,
            outcome,
            writes: map_writes(map, writes)?,
            touches: map_oids(map, &touches),
            entries: map_entries(map, entries),
            offsets: map_offsets(map, offsets),
            participants: map_nodes(map, &participants)?,
        },
        Record::Ended { txn, outcome, version, offsets, participants, acknowledged } => Record::Ended {
            txn,
            outcome,
            version,
            offsets: map_offsets(map, offsets),
            participants: map_nodes(map, &participants)?,
            acknowledged,
        },
        unchanged @ (Record::Marked { .. } | Record::Bound(_) | Record::Horizon(_) | Record::Heard { .. }) => unchanged,
    })
}

fn map_nodes(map: &SpaceMap, nodes: &[NodeId]) -> Result<Vec<NodeId>> {
    let foreign = |node: &NodeId| {
        let what = format!("a transaction has logical node {:x} of another space as a participant", node.0);
        Error::new(ErrorKind::Corrupt, what)
    };
    nodes.iter().map(|node| map.node(*node).ok_or_else(|| foreign(node))).collect()
}

fn map_writes(map: &SpaceMap, writes: Writes<Object>) -> Result<Writes<Object>> {
    let state = |state| match state {
        ObjectState::Value(object) => map.object(&object).map(ObjectState::Value),
        other @ (ObjectState::Absent | ObjectState::Changed(_)) => Ok(other),
    };
    writes.into_iter().map(|(oid, written)| Ok((map.oid(oid), state(written)?))).collect()
}

fn map_oids(map: &SpaceMap, oids: &BTreeSet<Oid>) -> BTreeSet<Oid> {
    oids.iter().map(|oid| map.oid(*oid)).collect()
}

fn map_offsets(map: &SpaceMap, offsets: AppendOffsets) -> AppendOffsets {
    offsets.into_iter().map(|(oid, offset)| (map.oid(oid), offset)).collect()
}

fn map_entries(map: &SpaceMap, entries: EntryChanges) -> EntryChanges {
    let changed = |(Entry { collection, key }, target): (Entry, Option<Oid>)| {
        // The keys of unique values are any bytes. Elsewhere sixteen bytes that are an object of the space are a member of a set, because a name has
        // no zero byte: a removal does not say what it removes.
        let member = || key.as_bytes().try_into().ok().map(Oid::from_bytes);
        let key = match target.or_else(member) {
            Some(target) if !is_unique_values(collection) => map.entry_key(&key, target),
            _ => key,
        };
        (Entry { collection: map.oid(collection), key }, target.map(|target| map.oid(target)))
    };
    entries.into_iter().map(changed).collect()
}

#[cfg(test)]
mod tests {
    use model::{ClassId, EntryKey, PageId, SpaceId, SpaceNodes};
    use protocol::ident::{ClientId, HlcTimestamp, TxnId, Version};
    use protocol::validate::ReadVersion;

    use super::*;

    const TXN: TxnId = TxnId { start: HlcTimestamp(9), client: ClientId(1) };

    fn map() -> SpaceMap {
        let place = |space, node| SpaceNodes { space: SpaceId(space), first_node: NodeId(node) };
        SpaceMap::new(place(1, 8), place(2, 16), 4).unwrap()
    }

    fn oid(is_clone: bool, slot: u16) -> Oid {
        let (space, node) = if is_clone { (2, 17) } else { (1, 9) };
        Oid::new(ClassId::NONE, PageId { space: SpaceId(space), node: NodeId(node), number: 5 }, slot)
    }

    /// A prepared transaction of the space, or of the clone.
    fn prepared_record(is_clone: bool) -> Record<Object> {
        let oid = |slot| oid(is_clone, slot);
        let entry = |key| Entry { collection: oid(7), key };
        let part = Part {
            reads: [Read { oid: oid(1), seen: ReadVersion::At(Version { moves: 1, position: 5 }) }]
                .into_iter()
                .collect(),
            writes: [(oid(2), ObjectState::Value(Object::blob("new".into()))), (oid(3), ObjectState::Absent)].into(),
            touches: [oid(4)].into(),
            entries: [
                (entry(EntryKey::name("a name").unwrap()), Some(oid(2))),
                (entry(EntryKey::name("sixteen letters.").unwrap()), None),
                (entry(EntryKey::member(oid(5))), Some(oid(5))),
                (entry(EntryKey::member(oid(6))), None),
            ]
            .into(),
            offsets: [(oid(2), 77)].into(),
            transfer_ms: 0,
        };
        let participants = if is_clone { vec![NodeId(17), NodeId(19)] } else { vec![NodeId(9), NodeId(11)] };
        Record::Prepared { txn: TXN, participants, part, proposal: HlcTimestamp(11) }
    }

    #[test]
    fn all_identifiers_of_a_prepared_transaction_are_those_of_the_clone() {
        assert_eq!(map_record(&map(), prepared_record(false)).unwrap(), prepared_record(true));
        assert_eq!(map_record(&map(), Record::Marked { txn: TXN }).unwrap(), Record::Marked { txn: TXN });
    }

    #[test]
    fn participants_of_other_spaces_are_damage() {
        let ended = Record::Ended {
            txn: TXN,
            outcome: protocol::commit::Outcome::Aborted,
            version: None,
            offsets: AppendOffsets::new(),
            participants: vec![NodeId(12)],
            acknowledged: false,
        };
        assert_eq!(map_record(&map(), ended).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
