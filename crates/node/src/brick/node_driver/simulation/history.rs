//! What was seen of the simulated brick, and what there must be in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use model::{ClassId, ContentId, ContentPatch, Kind, NodeId, Object, Oid};
use protocol::commit::coordinator::CommitReceipt;
use protocol::commit::{AppendOffsets, Writes};
use protocol::ident::{HlcTimestamp, TxnId};
use protocol::page_cache::ObjectState;

use super::collections::ObservedEntries;
use super::workload::{AGE, BADGE, age, key};
use super::{Checked, NODES, SPACE, World};
use crate::brick::index_rows::{self, IndexId};
use crate::brick::node_usage::NodeUsage;
use crate::brick::page_rows::{self as rows, Rows};

/// What a scan looks for: objects of some classes at a logical node, of all ages or of those within two.
#[derive(Clone, Debug)]
pub(super) struct Query {
    pub(super) node: NodeId,
    pub(super) classes: BTreeSet<ClassId>,
    pub(super) ages: Option<(i64, i64)>,
    /// The index that is scanned.
    pub(super) index: Option<u32>,
    /// Whether only the number of objects counts: then the transaction relies on guards alone.
    pub(super) is_count: bool,
}

impl Query {
    fn matches(&self, oid: &Oid, object: &Object) -> bool {
        oid.page().node == self.node
            && self.classes.contains(&object.class)
            && self.ages.is_none_or(|(from, to)| (from..=to).contains(&age(object)))
    }
}

/// What a transaction has read and scanned, and what it writes.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    pub(super) reads: Vec<(Oid, Option<Object>)>,
    pub(super) scans: Vec<(Query, BTreeMap<Oid, Object>)>,
    pub(super) writes: Writes<Object>,
    pub(super) entries: ObservedEntries,
    /// Where its commit says that it has appended.
    pub(super) offsets: AppendOffsets,
}

/// What was seen.
#[derive(Default)]
pub(super) struct History {
    committed: BTreeMap<(HlcTimestamp, TxnId), Observed>,
    refused: BTreeSet<TxnId>,
    reserved: BTreeMap<(NodeId, u64), u64>,
    /// Why a transaction was last not taken in.
    deferred: BTreeMap<TxnId, String>,
}

impl History {
    /// The committed transactions, in the order of their timestamps.
    pub(super) fn committed_txns(&self) -> impl Iterator<Item = (&(HlcTimestamp, TxnId), &Observed)> {
        self.committed.iter()
    }

    pub(super) fn committed_count(&self) -> usize {
        self.committed.len()
    }

    pub(super) fn refused_count(&self) -> usize {
        self.refused.len()
    }

    pub(super) fn add_committed(&mut self, receipt: CommitReceipt, txn: TxnId, observed: Observed) {
        let CommitReceipt { timestamp, offsets } = receipt;
        self.committed.insert((timestamp, txn), Observed { offsets, ..observed });
    }

    pub(super) fn add_refused(&mut self, txn: TxnId) {
        self.refused.insert(txn);
    }

    pub(super) fn add_deferred(&mut self, txn: TxnId, why: String) {
        self.deferred.insert(txn, why);
    }

    pub(super) fn deferral(&self, txn: TxnId) -> &str {
        self.deferred.get(&txn).map_or("it was taken in", String::as_str)
    }

    /// Page numbers were handed out.
    pub(super) fn add_reservation(&mut self, node: NodeId, first: u64, pages: u64) -> Checked {
        for number in first..first + pages {
            if self.reserved.insert((node, number), first).is_some() {
                return Err(format!("page {number} of node {node} is handed out twice"));
            }
        }
        Ok(())
    }

    /// Repeats what was committed in the order of timestamps. Returns the objects in the end.
    fn replay(&self) -> std::result::Result<BTreeMap<Oid, Object>, String> {
        let mut objects: BTreeMap<Oid, Object> = BTreeMap::new();
        for ((at, txn), observed) in &self.committed {
            if let Some((oid, seen)) = observed.reads.iter().find(|(oid, seen)| objects.get(oid) != seen.as_ref()) {
                let was = objects.get(oid).map(describe);
                let seen = seen.as_ref().map(describe);
                return Err(format!("V1: {txn:?} at {at:?} has read {oid} as {seen:?}, and it was {was:?}"));
            }
            for (query, seen) in &observed.scans {
                let there: BTreeMap<Oid, Object> = objects
                    .iter()
                    .filter(|(oid, object)| query.matches(oid, object))
                    .map(|(oid, object)| (*oid, object.clone()))
                    .collect();
                let is_right = if query.is_count { there.len() == seen.len() } else { there == *seen };
                if !is_right {
                    let ages = |objects: Vec<(&Oid, &Object)>| {
                        objects.into_iter().map(|(oid, object)| (oid.to_string(), age(object))).collect::<Vec<_>>()
                    };
                    let (seen, there) = (ages(seen.iter().collect()), ages(there.iter().collect()));
                    return Err(format!("G: {txn:?} at {at:?} has seen {seen:?}, and there was {there:?}: {query:?}"));
                }
            }
            let mut offsets = AppendOffsets::new();
            for (oid, content) in &observed.writes {
                match content {
                    ObjectState::Value(object) => drop(objects.insert(*oid, object.clone())),
                    ObjectState::Absent => drop(objects.remove(oid)),
                    ObjectState::Changed(change) => {
                        let patch = ContentPatch::decode(change).map_err(|error| error.to_string())?;
                        let nothing = || format!("S: {txn:?} at {at:?} changes a part of {oid}, which does not exist");
                        let object = objects.get_mut(oid).ok_or_else(nothing)?;
                        let mut bytes = object.data.to_vec();
                        offsets.extend(patch.first_append(bytes.len() as u64).map(|offset| (*oid, offset)));
                        patch.ops().iter().for_each(|op| op.apply(&mut bytes));
                        *object = object.with_data(bytes.into());
                    }
                }
            }
            if observed.offsets != offsets {
                let told = &observed.offsets;
                return Err(format!("C3: {txn:?} at {at:?} has appended at {offsets:?}, and was told {told:?}"));
            }
            check_unique(&objects)?;
        }
        Ok(objects)
    }
}

/// An object in a report.
fn describe(object: &Object) -> String {
    match object.kind {
        Kind::Record => age(object).to_string(),
        _ => format!("{:?}", object.data),
    }
}

fn check_unique(objects: &BTreeMap<Oid, Object>) -> Checked {
    let mut numbers = BTreeSet::new();
    let badges = objects.iter().filter(|(_, object)| object.class == BADGE);
    match badges.map(|(_, badge)| age(badge)).find(|number| !numbers.insert(*number)) {
        Some(number) => Err(format!("U: two badges have number {number}")),
        None => Ok(()),
    }
}

impl World {
    /// Judges what was seen, and what the store has.
    pub(super) fn judge(&self) -> Checked {
        let expected = self.history.replay()?;
        for node in NODES {
            let here = |oid: &&Oid| oid.page().node == node;
            let expected: BTreeMap<Oid, Object> =
                expected.iter().filter(|(oid, _)| here(oid)).map(|(oid, object)| (*oid, object.clone())).collect();
            let found = self.stored_objects(node)?;
            if found != expected {
                let differs = |oid: &&Oid| found.get(oid).map(describe) != expected.get(oid).map(describe);
                let which: Vec<&Oid> = found.keys().chain(expected.keys()).filter(differs).collect();
                return Err(format!("L1: the objects of node {node} are not what was committed: {which:?}"));
            }
            self.judge_usage(node, &expected)?;
            self.judge_sets(node, &expected)?;
            self.judge_heads(node)?;
            self.judge_contents(node)?;
        }
        self.judge_entries(&expected)
    }

    /// The row that counts the objects of a logical node says how many there are, and their bytes.
    fn judge_usage(&self, node: NodeId, objects: &BTreeMap<Oid, Object>) -> Checked {
        let mut expected = NodeUsage::default();
        objects.values().for_each(|object| expected.count(object.total_size()));
        let counted = NodeUsage::read(&self.reader(), node).map_err(|error| error.to_string())?;
        match counted == expected {
            true => Ok(()),
            false => Err(format!("N: node {node} counts {counted:?}, and has {expected:?}")),
        }
    }

    /// All objects of a logical node that are stored.
    fn stored_objects(&self, node: NodeId) -> std::result::Result<BTreeMap<Oid, Object>, String> {
        let (mut found, reader) = (BTreeMap::new(), self.reader());
        for number in 1..=4 {
            let page = model::PageId { space: SPACE, node, number };
            let image = rows::read_page(&reader, page).map_err(|error| error.to_string())?;
            for (slot, object) in image.objects {
                found.insert(Oid::new(object.class, page, slot), self.with_bytes(object)?);
            }
        }
        Ok(found)
    }

    /// The object with its bytes, wherever they are.
    pub(super) fn with_bytes(&self, object: Object) -> std::result::Result<Object, String> {
        let Some(content) = object.content() else { return Ok(object) };
        let store = self.machine.store();
        let size = store.content_size(content.id).map_err(|error| error.to_string())?;
        if size != Some(content.size) {
            return Err(format!("S: {content:?} has {size:?} bytes"));
        }
        let bytes = store.read_content(content.id, 0, content.size).map_err(|error| error.to_string())?;
        Ok(object.with_data(bytes))
    }

    /// Every content is that of one object, or staged.
    fn judge_contents(&self, node: NodeId) -> Checked {
        let (from, to) = ContentId::range_of(node);
        let there = self.machine.store().contents(from, to, 10_000).map_err(|error| error.to_string())?;
        let mut named = Vec::new();
        for number in 1..=4 {
            let page = model::PageId { space: SPACE, node, number };
            let image = rows::read_page(&self.reader(), page).map_err(|error| error.to_string())?;
            named.extend(image.objects.values().filter_map(|object| Some(object.content()?.id)));
        }
        let (from, to) = rows::staged_range(node);
        let mut failed = Ok(());
        let staged = self.reader().each(&from, &to, |key, row| {
            match rows::parse_staged(key, row) {
                Ok((id, _)) => named.push(id),
                Err(error) => failed = Err(error.to_string()),
            }
            ControlFlow::Continue(())
        });
        staged.map_err(|error| error.to_string()).and(failed)?;
        named.sort_unstable();
        match named == there {
            true => Ok(()),
            false => Err(format!("S: objects of node {node} name, or marks have, {named:?}; there are {there:?}")),
        }
    }

    /// Extents and indexes have what there is, and nothing else.
    fn judge_sets(&self, node: NodeId, objects: &BTreeMap<Oid, Object>) -> Checked {
        let keys = |from: &[u8], to: &[u8]| {
            let mut keys = BTreeSet::new();
            let visit = |key: &[u8], _: &[u8]| {
                keys.insert(key.to_vec());
                ControlFlow::Continue(())
            };
            self.reader().each(from, to, visit).map(|()| keys).map_err(|error| error.to_string())
        };
        let extents: BTreeSet<Vec<u8>> = objects
            .keys()
            .filter(|oid| oid.class() != ClassId::NONE)
            .map(|oid| rows::extent_key(oid.class(), oid.page(), oid.slot()).to_vec())
            .collect();
        let [(from, _), (_, to)] = [ClassId(0), ClassId(99)].map(|class| rows::extent_range(node, SPACE, class, None));
        if keys(&from, &to)? != extents {
            return Err(format!("the extents of node {node} do not have the objects that there are"));
        }
        for index in
            (super::workload::BY_AGE..=self.indexes).filter(|index| !self.specs.iter().any(|spec| spec.index == *index))
        {
            let id = IndexId { node, space: SPACE, index };
            if !keys(&index_rows::bound(id, &[]), &index_rows::bound(id, &[0xff]))?.is_empty() {
                return Err(format!("{id} was dropped and has entries"));
            }
        }
        for spec in &self.specs {
            let id = IndexId { node, space: SPACE, index: spec.index };
            let members = objects.iter().filter(|(_, object)| spec.classes.contains(&object.class));
            let entries: BTreeSet<Vec<u8>> = members
                .map(|(oid, object)| index_rows::entry_key(id, &key(age(object)), oid.page(), oid.slot()).to_vec())
                .collect();
            assert_eq!(spec.fields, [AGE]);
            if keys(&index_rows::bound(id, &[]), &index_rows::bound(id, &[0xff]))? != entries {
                return Err(format!("{id} does not have the objects that there are"));
            }
        }
        Ok(())
    }

    /// The timestamp of a page is the largest of those that have written it.
    fn judge_heads(&self, node: NodeId) -> Checked {
        let mut largest: BTreeMap<u64, HlcTimestamp> = BTreeMap::new();
        for ((at, _), observed) in &self.history.committed {
            for oid in observed.writes.keys().filter(|oid| oid.page().node == node) {
                largest.insert(oid.page().number, *at);
            }
        }
        for (number, at) in largest {
            let page = model::PageId { space: SPACE, node, number };
            let head = rows::read_head(&self.reader(), page).map_err(|error| error.to_string())?;
            if head.timestamp != at {
                return Err(format!(
                    "V4: page {number} of node {node} has {:?}, and was written at {at:?}",
                    head.timestamp
                ));
            }
        }
        Ok(())
    }
}
