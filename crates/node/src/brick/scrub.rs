//! Scrubs a brick: the store below it, and its objects.
//!
//! The store checks rows, chunks and contents, of which it knows no more than their identifiers. Here each object is compared with its
//! checksum, and damage is named by object and path. The objects of each logical node that is served are counted, and compared with the
//! [row](super::node_usage) that counts them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;

use model::{ContentId, Entry, EntryKey, Error, ErrorKind, NodeId, Oid, Result};
use protocol::entries::root_directory;
use store::{Progress, Snapshot, Store};

use super::entry_rows;
use super::node_usage::NodeUsage;
use super::page_rows;

/// Most damages that are listed, and most names of a damaged object.
const MAX_LISTED: usize = 1000;
const MAX_NAMES: usize = 3;
/// Most directories in a path that is looked for.
const MAX_DEPTH: usize = 512;

/// The result of a scrub.
#[derive(Debug, Default)]
pub(crate) struct ScrubReport {
    pub(crate) objects: u64,
    /// Bytes of rows and contents that were verified.
    pub(crate) bytes: u64,
    /// The first damages.
    pub(crate) damage: Vec<Damage>,
    /// The number of damages, listed or not.
    pub(crate) damaged: u64,
    /// Logical nodes whose objects are counted wrongly.
    pub(crate) miscounts: Vec<Miscount>,
}

/// The objects of a logical node are not as many, or not as large, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miscount {
    pub(crate) node: NodeId,
    /// What the row says.
    pub(crate) counted: NodeUsage,
    /// What there is, in the same state of the store.
    pub(crate) found: NodeUsage,
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, counted, found } = self;
        write!(f, "logical node {:x} counts {} objects of {} bytes", node.0, counted.objects, counted.bytes)?;
        write!(f, ", and has {} of {} bytes: corrected", found.objects, found.bytes)
    }
}

/// One damage.
#[derive(Debug, Default)]
pub(crate) struct Damage {
    /// The damaged object, if it is known.
    pub(crate) object: Option<Oid>,
    /// Some of its names.
    pub(crate) names: Vec<String>,
    /// The damaged content, if the damage is in one.
    pub(crate) content: Option<ContentId>,
    /// What is wrong.
    pub(crate) what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.object, self.content) {
            (Some(oid), _) if self.names.is_empty() => write!(f, "object {oid}: ")?,
            (Some(oid), _) => write!(f, "object {oid} ({}): ", self.names.join(", "))?,
            (None, Some(content)) => write!(f, "content {content}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.what)
    }
}

/// Reads and checks everything, and lists all damage. `served` tells which logical nodes are served now, with their epochs: the rows of
/// others may be incomplete copies or leftovers.
///
/// # Errors
/// Those of reading the store; [`ErrorKind::Unavailable`] if `progress` ends it.
pub(crate) fn scrub(
    store: &Store,
    served: &dyn Fn() -> BTreeSet<(NodeId, u64)>,
    progress: &dyn Progress,
) -> Result<ScrubReport> {
    let below = store.scrub(progress)?;
    check_objects(store, served, below, &mut |_| ControlFlow::Continue(()))
}

/// Checks the objects of a brick, and adds what is found to what the scrub of its store has found. `progress` is called with the number of
/// objects so far, and may end it.
///
/// # Errors
/// As [`scrub`].
pub(crate) fn check_objects(
    store: &Store,
    served: &dyn Fn() -> BTreeSet<(NodeId, u64)>,
    below: store::ScrubReport,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<ScrubReport> {
    let served_before = served();
    let state = store.snapshot()?;
    // A node that is served at both times under one epoch is complete in the snapshot.
    let complete: BTreeSet<NodeId> = served_before.intersection(&served()).map(|(node, _)| *node).collect();
    let mut report = ScrubReport { bytes: below.bytes, damaged: below.damaged, ..ScrubReport::default() };
    // The damages of contents, by position in the list, until their objects are found.
    let mut contents: HashMap<ContentId, Vec<usize>> = HashMap::new();
    for (at, store::Damage { content, what }) in below.damage.into_iter().enumerate() {
        if let Some(content) = content {
            contents.entry(content).or_default().push(at);
        }
        report.damage.push(Damage { content, what, ..Damage::default() });
    }
    let (mut found_usage, mut damaged) = (BTreeMap::<NodeId, NodeUsage>::new(), Vec::new());
    let mut is_stopped = false;
    page_rows::each_object(&state, |oid, found| {
        report.objects += 1;
        let usage = found_usage.entry(oid.page().node).or_default();
        match found {
            Ok(object) => {
                usage.count(object.total_size);
                let places = object.content.and_then(|content| contents.get(&content));
                for at in places.into_iter().flatten() {
                    report.damage[*at].object = Some(oid);
                }
            }
            Err(error) => damaged.push((oid, error.message().to_owned())),
        }
        let next = progress(report.objects);
        is_stopped = next.is_break();
        next
    })?;
    if is_stopped {
        return Err(Error::new(ErrorKind::Unavailable, "the scrub was stopped"));
    }
    report.damaged += damaged.len() as u64;
    let room = MAX_LISTED.saturating_sub(report.damage.len());
    let listed = damaged.into_iter().take(room);
    report.damage.extend(listed.map(|(oid, what)| Damage { object: Some(oid), what, ..Damage::default() }));
    let unreadable: BTreeSet<NodeId> = damaged_nodes(&report);
    report.miscounts = find_miscounts(&state, &found_usage, complete.difference(&unreadable).copied())?;
    let mut nodes: BTreeSet<NodeId> = found_usage.into_keys().collect();
    nodes.extend(entry_rows::nodes_with_entries(&state)?);
    for damage in &mut report.damage {
        if let Some(oid) = damage.object {
            damage.names = names(&state, &nodes, oid)?;
        }
    }
    // Each chunk of a content is checked: what is said of several is said once.
    let listed = report.damage.len();
    report.damage.dedup_by(|one, before| {
        (one.object, one.content) == (before.object, before.content) && one.what == before.what
    });
    report.damaged -= (listed - report.damage.len()) as u64;
    Ok(report)
}

/// The logical nodes of damaged objects, whose sizes are not known.
fn damaged_nodes(report: &ScrubReport) -> BTreeSet<NodeId> {
    report.damage.iter().filter_map(|damage| Some(damage.object?.page().node)).collect()
}

/// Compares what was found of some logical nodes with what their rows say.
fn find_miscounts(
    state: &Snapshot,
    found: &BTreeMap<NodeId, NodeUsage>,
    nodes: impl Iterator<Item = NodeId>,
) -> Result<Vec<Miscount>> {
    let mut miscounts = Vec::new();
    for node in nodes {
        let (counted, found) = (NodeUsage::read(state, node)?, found.get(&node).copied().unwrap_or_default());
        if counted != found {
            miscounts.push(Miscount { node, counted, found });
        }
    }
    Ok(miscounts)
}

/// Some paths of an object, as far as its directories are at these logical nodes.
fn names(state: &Snapshot, nodes: &BTreeSet<NodeId>, oid: Oid) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut pending = vec![(oid, String::new(), 0)];
    while let Some((oid, below, depth)) = pending.pop() {
        for Entry { collection, key } in entries_of(state, nodes, oid)? {
            let Some(name) = key.to_name().filter(|_| key != EntryKey::member(oid)) else { continue };
            let path = format!("/{name}{below}");
            if collection == root_directory(collection.space(), collection.page().node) {
                names.push(path);
            } else if depth < MAX_DEPTH {
                pending.push((collection, path, depth + 1));
            }
            if names.len() == MAX_NAMES {
                return Ok(names);
            }
        }
    }
    Ok(names)
}

/// Some entries that have a target.
fn entries_of(state: &Snapshot, nodes: &BTreeSet<NodeId>, target: Oid) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for node in nodes {
        let (from, to) = entry_rows::reverse_range(*node, target, None);
        let mut failed = None;
        state.rows(&from, &to, |row, _| match entry_rows::entry_in_row(row) {
            Ok(entry) => {
                entries.push(entry);
                if entries.len() < MAX_NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            }
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)?;
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;
    use model::{ClassId, Object, PageId, SpaceId};
    use store::{Options, RowChanges};

    use super::*;

    const NODE: NodeId = NodeId(3);

    #[test]
    fn wrong_counts_of_logical_nodes_that_are_served_are_found() {
        let store = Store::in_memory(Options::default()).unwrap();
        let page = PageId { space: SpaceId(1), node: NODE, number: 1 };
        let mut rows = RowChanges::new();
        rows.put(&page_rows::object_key(page, 0), page_rows::encode_object(&Object::blob("12345".into())));
        store.commit_rows(rows).unwrap();
        let miscounts = |served: &dyn Fn() -> BTreeSet<(NodeId, u64)>| scrub(&store, served, &()).unwrap().miscounts;
        let found = NodeUsage { objects: 1, bytes: 5 };
        let miscount = Miscount { node: NODE, counted: NodeUsage::default(), found };
        assert_eq!(miscounts(&|| [(NODE, 1)].into()), [miscount]);
        // A logical node that goes and comes back may be incomplete in between.
        let epoch = Cell::new(0);
        let moving = || {
            epoch.set(epoch.get() + 1);
            [(NODE, epoch.get())].into()
        };
        assert_eq!(miscounts(&moving), []);
        let mut counted = RowChanges::new();
        counted.put(&page_rows::usage_key(NODE), found.encode());
        store.commit_rows(counted).unwrap();
        assert_eq!(miscounts(&|| [(NODE, 1)].into()), []);
    }

    #[test]
    fn each_damaged_object_is_listed_with_some_of_its_names() {
        let store = Store::in_memory(Options::default()).unwrap();
        let page = PageId { space: SpaceId(1), node: NODE, number: 1 };
        let (root, damaged) =
            (root_directory(SpaceId(1), NODE), [0, 1].map(|slot| Oid::new(ClassId::NONE, page, slot)));
        let mut rows = RowChanges::new();
        damaged.iter().for_each(|oid| rows.put(&page_rows::object_key(page, oid.slot()), "bad".into()));
        for name in ["one", "two", "three", "four"] {
            let entry = Entry { collection: root, key: EntryKey::name(name).unwrap() };
            rows.put(&entry_rows::reverse_key(damaged[0], &entry), Bytes::new());
        }
        store.commit_rows(rows).unwrap();
        let found = scrub(&store, &BTreeSet::new, &()).unwrap().damage;
        assert_eq!(found.iter().map(|damage| damage.object).collect::<Vec<_>>(), damaged.map(Some));
        assert_eq!(
            (&found[0].names[..], found[1].names.len()),
            (&["/four", "/one", "/three"].map(str::to_owned)[..], 0)
        );
    }
}
