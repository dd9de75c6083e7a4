//! Scrubs a brick: the store below it, and its objects.
//!
//! The store checks rows, chunks and contents, of which it knows no more than their identifiers. Here each object is compared with its
//! checksum, and damage is named by object, and by its path as far as its directories are here. The objects of each logical node that is served are counted, and compared with the
//! [row](super::node_usage) that counts them. At last the rows of each of these nodes are compared [with each other](super::consistency).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;

use model::{ContentId, Entry, EntryKey, Error, ErrorKind, NodeId, Oid, Result, SpaceId};
use protocol::commit::coordinator::MixedOutcome;
use protocol::entries::root_directory;
use protocol::ident::TxnId;
use store::{Amount, KeyRange, Progress, Snapshot, Store};
use tracing::{error, warn};

use super::consistency::{NodeCheck, Place, Problem, Severity, is_damage};
use super::entry_rows;
use super::node_manager::DamagedNodes;
use super::node_usage::{DurableCounts, NodeUsage};
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
    /// Whether the scrub of the store has found parts of the B-tree that cannot be read: look-ups of their rows are no further damage.
    pub(crate) has_unreadable_parts: bool,
    /// Logical nodes whose objects are counted wrongly.
    pub(crate) miscounts: Vec<Miscount>,
    /// The first problems between rows.
    pub(crate) problems: Vec<NamedProblem>,
    /// The number of problems between rows that are damage, and of those that lead nowhere, listed or not.
    pub(crate) contradictions: u64,
    pub(crate) dangling: u64,
}

impl ScrubReport {
    /// The listed problems between rows that are damage.
    pub(crate) fn listed_contradictions(&self) -> impl Iterator<Item = &NamedProblem> {
        self.problems.iter().filter(|named| named.problem.severity() == Severity::Damage)
    }

    /// Logs damage, and wrong counts.
    pub(crate) fn log(&self) {
        let (damaged, contradictions) = (self.damaged, self.contradictions);
        if damaged + contradictions > 0 {
            error!(damaged, contradictions, "a scrub found damage");
        }
        for miscount in &self.miscounts {
            warn!(%miscount, "a scrub found a wrong count of objects");
        }
    }
}

/// A problem between rows, with some names of its object.
#[derive(Debug)]
pub(crate) struct NamedProblem {
    pub(crate) problem: Problem,
    pub(crate) names: Vec<String>,
}

impl fmt::Display for NamedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem.object() {
            Some(oid) if self.names.is_empty() => write!(f, "object {oid}: ")?,
            Some(oid) => write!(f, "object {oid} ({}): ", self.names.join(", "))?,
            None => {}
        }
        self.problem.fmt(f)
    }
}

/// The objects of a logical node are not as many, or not as large, as its row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Miscount {
    pub(crate) node: NodeId,
    /// What the row says.
    pub(crate) counted: NodeUsage,
    /// What there is, in the same state of the store.
    pub(crate) found: NodeUsage,
    /// What was durable before that state was taken.
    pub(crate) before: DurableCounts,
}

impl fmt::Display for Miscount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, counted, found, .. } = self;
        write!(f, "logical node {:x} counts {} objects of {} bytes", node.0, counted.objects, counted.bytes)?;
        write!(f, ", and has {} of {} bytes", found.objects, found.bytes)
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

/// What a scrub needs to know from the logical nodes of the store.
pub(crate) struct Serving<'a> {
    /// The logical nodes that are served now, with their epochs: the rows of others may be incomplete copies or leftovers.
    pub(crate) served: &'a dyn Fn() -> BTreeSet<(NodeId, u64)>,
    /// What is durable now of the logical nodes that are served.
    pub(crate) durable_counts: &'a dyn Fn() -> BTreeMap<NodeId, DurableCounts>,
    /// The logical nodes that cannot be served because their rows are damaged, with what is damaged.
    pub(crate) damaged: &'a dyn Fn() -> DamagedNodes,
    /// Whether an index of a space is unique and ready.
    pub(crate) is_unique: &'a dyn Fn(SpaceId, u32) -> bool,
    /// Transactions of a logical node that have the opposite outcome at another one. Every node asks its partners by itself.
    pub(crate) mixed_outcomes: &'a dyn Fn(NodeId) -> Vec<(TxnId, MixedOutcome)>,
}

/// Reads and checks everything, and lists all damage.
///
/// # Errors
/// Those of reading the store; [`ErrorKind::Unavailable`] if `progress` ends it.
pub(crate) fn scrub(store: &Store, serving: &Serving<'_>, progress: &dyn Progress) -> Result<ScrubReport> {
    // The rows are read once more, to be compared with each other.
    let extra_bytes = store.status().tree_bytes;
    let reached = Cell::new(Amount::default());
    let below = store.scrub(&|amount: Amount| {
        reached.set(Amount { total_bytes: amount.total_bytes + extra_bytes, ..amount });
        progress.report(reached.get())
    })?;
    let mut report = check_objects(store, serving, below, &mut |_, _| ControlFlow::Continue(()))?;
    let reached = reached.get();
    let compared =
        |bytes: u64| progress.report(Amount { bytes: (reached.bytes + bytes).min(reached.total_bytes), ..reached });
    compare_rows(store, serving, &compared, &mut report)?;
    Ok(report)
}

/// Checks the objects of a brick, and adds what is found to what the scrub of its store has found. `progress` is called with the
/// objects and the bytes of their rows so far, and may end it.
///
/// # Errors
/// As [`scrub`].
pub(crate) fn check_objects(
    store: &Store,
    serving: &Serving<'_>,
    below: store::ScrubReport,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<ScrubReport> {
    let served_before = (serving.served)();
    let durable_counts = (serving.durable_counts)();
    let state = store.snapshot()?;
    // A node that is served at both times under one epoch is complete in the snapshot.
    let complete: BTreeSet<NodeId> = served_before.intersection(&(serving.served)()).map(|(node, _)| *node).collect();
    let has_unreadable_parts = below.unreadable_parts > 0;
    let (bytes, damaged) = (below.bytes, below.damaged);
    let mut report = ScrubReport { bytes, damaged, has_unreadable_parts, ..ScrubReport::default() };
    // The damages of contents, by position in the list, until their objects are found.
    let mut contents: HashMap<ContentId, Vec<usize>> = HashMap::new();
    for (at, store::Damage { content, what }) in below.damage.into_iter().enumerate() {
        if let Some(content) = content {
            contents.entry(content).or_default().push(at);
        }
        report.damage.push(Damage { content, what, ..Damage::default() });
    }
    for (node, damage) in (serving.damaged)() {
        report.damaged += 1;
        let what = format!("logical node {:x} cannot be served, and is not compared: {damage}", node.0);
        report.damage.push(Damage { what, ..Damage::default() });
    }
    let (mut found_usage, mut damaged) = (BTreeMap::<NodeId, NodeUsage>::new(), Vec::new());
    let (mut is_stopped, mut bytes) = (false, 0);
    let mut unreadable = Vec::new();
    let mut contents_of_objects = Vec::new();
    let visit = |oid: Oid, row_bytes: usize, found: Result<page_rows::Summary>| {
        report.objects += 1;
        bytes += row_bytes as u64;
        let usage = found_usage.entry(oid.page().node).or_default();
        match found {
            Ok(object) => {
                usage.count(object.total_size);
                let places = object.content.and_then(|content| contents.get(&content));
                for at in places.into_iter().flatten() {
                    report.damage[*at].object = Some(oid);
                }
                // Damage of the B-tree is reported by keys, and these do not say whose content it is.
                let content = object.content.filter(|content| has_unreadable_parts && !contents.contains_key(content));
                contents_of_objects.extend(content.map(|content| (oid, content)));
            }
            Err(error) => damaged.push((oid, error.message().to_owned())),
        }
        let next = progress(report.objects, bytes);
        is_stopped = next.is_break();
        next
    };
    page_rows::each_object(&state, visit, |range| unreadable.push(range))?;
    if is_stopped {
        return Err(Error::new(ErrorKind::Unavailable, "the scrub was stopped"));
    }
    let here = served_before.iter().map(|(node, _)| *node).chain((serving.damaged)().into_keys()).collect();
    for oid in lost_objects(&state, &unreadable, &here)? {
        damaged.push((oid, "it is on a part of the B-tree that cannot be read".to_owned()));
    }
    for (oid, content) in contents_of_objects {
        match state.check_content_rows(content) {
            Err(error) if is_damage(&error) => {
                damaged.push((
                    oid,
                    format!("a part of its content {content} is on a part of the B-tree that cannot be read"),
                ));
            }
            checked => checked?,
        }
    }
    report.damaged += damaged.len() as u64;
    let room = MAX_LISTED.saturating_sub(report.damage.len());
    let listed = damaged.into_iter().take(room);
    report.damage.extend(listed.map(|(oid, what)| Damage { object: Some(oid), what, ..Damage::default() }));
    let mut uncounted = damaged_nodes(&report);
    uncounted.extend(complete.iter().filter(|node| {
        let (from, to) = page_rows::table_range(b'P', **node);
        unreadable.iter().any(|range| range.overlaps(&from, &to))
    }));
    let counted = complete.difference(&uncounted).filter_map(|node| Some((*node, *durable_counts.get(node)?)));
    report.miscounts = find_miscounts(&state, &found_usage, counted)?;
    let mut nodes: BTreeSet<NodeId> = found_usage.into_keys().collect();
    nodes.extend(readable(entry_rows::nodes_with_entries(&state))?);
    for damage in &mut report.damage {
        if let Some(oid) = damage.object {
            damage.names = readable(names(&state, &nodes, oid))?;
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

/// Compares the rows of the logical nodes that are served with each other. A problem counts only if its node is served under one epoch
/// before and after the portion is read. `progress` gets the bytes that were read, and may end it.
///
/// # Errors
/// As [`scrub`].
pub(crate) fn compare_rows(
    store: &Store,
    serving: &Serving<'_>,
    progress: &dyn Fn(u64) -> ControlFlow<()>,
    report: &mut ScrubReport,
) -> Result<()> {
    let (mut read, mut problems, mut dangling) = (0, Vec::new(), Vec::new());
    let has_unreadable_parts = report.has_unreadable_parts;
    for (node, epoch) in (serving.served)() {
        let check = NodeCheck { store, node, is_unique: serving.is_unique, reads_contents: false };
        let mut is_stopped = false;
        check.run(Place::first(), |portion| {
            if !(serving.served)().contains(&(node, epoch)) {
                return ControlFlow::Break(());
            }
            read += portion.bytes;
            for problem in portion.problems.into_iter().filter(|problem| !is_known(problem, has_unreadable_parts)) {
                let (count, listed) = match problem.severity() {
                    Severity::Damage => (&mut report.contradictions, &mut problems),
                    Severity::Dangling => (&mut report.dangling, &mut dangling),
                };
                *count += 1;
                if listed.len() < MAX_LISTED {
                    listed.push(problem);
                }
            }
            let flow = progress(read);
            is_stopped = flow.is_break();
            flow
        })?;
        if is_stopped {
            return Err(Error::new(ErrorKind::Unavailable, "the scrub was stopped"));
        }
    }
    for (node, _) in (serving.served)() {
        let mixed = (serving.mixed_outcomes)(node);
        report.contradictions += mixed.len() as u64;
        let room = MAX_LISTED.saturating_sub(problems.len());
        problems.extend(mixed.into_iter().take(room).map(|(txn, mixed)| Problem::MixedOutcome { node, txn, mixed }));
    }
    let state = store.snapshot()?;
    let mut nodes: BTreeSet<NodeId> = (serving.served)().into_iter().map(|(node, _)| node).collect();
    nodes.extend(readable(entry_rows::nodes_with_entries(&state))?);
    for problem in problems.into_iter().chain(dangling) {
        let names = problem.object().map_or(Ok(Vec::new()), |oid| readable(names(&state, &nodes, oid)))?;
        report.problems.push(NamedProblem { problem, names });
    }
    Ok(())
}

/// Whether a problem is reported as damage below.
fn is_known(problem: &Problem, has_unreadable_parts: bool) -> bool {
    match problem {
        Problem::ObjectDamaged { .. } => true,
        Problem::RowDamaged { is_unreadable_part, .. } => *is_unreadable_part && has_unreadable_parts,
        _ => false,
    }
}

/// The objects whose rows are in these ranges, as extents and entries of collections tell: at most as many as are listed. Targets of entries may be at
/// other bricks: an object counts if its logical node is `here`, or is that of the collection.
fn lost_objects(state: &Snapshot, ranges: &[KeyRange], here: &BTreeSet<NodeId>) -> Result<BTreeSet<Oid>> {
    let mut lost = BTreeSet::new();
    if ranges.is_empty() {
        return Ok(lost);
    }
    let mut add = |oid: Oid| {
        let key = page_rows::object_key(oid.page(), oid.slot());
        // A row that was changed since can be read.
        if ranges.iter().any(|range| range.contains(&key)) && state.row(&key).is_err() {
            lost.insert(oid);
        }
        if lost.len() < MAX_LISTED { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let of_extent = |key: &[u8], _: &[u8]| match key.get(1..5).and_then(|node| node.try_into().ok()) {
        Some(node) => {
            page_rows::parse_extent(NodeId(u32::from_be_bytes(node)), key).map_or(ControlFlow::Continue(()), &mut add)
        }
        None => ControlFlow::Continue(()),
    };
    state.rows_beside_damage(b"E", b"F", of_extent, |_, _| ())?;
    let of_entry = |key: &[u8], value: &[u8]| match entry_rows::decode_target(key, value) {
        Ok(target) if !entry_rows::is_totals(key) => {
            let node = target.page().node;
            let is_here = key.get(1..5) == Some(&node.0.to_be_bytes()[..]) || here.contains(&node);
            if is_here { add(target) } else { ControlFlow::Continue(()) }
        }
        _ => ControlFlow::Continue(()),
    };
    state.rows_beside_damage(b"C", b"D", of_entry, |_, _| ())?;
    Ok(lost)
}

/// What was read; nothing if that is on a damaged page, which is reported by itself.
fn readable<T: Default>(read: Result<T>) -> Result<T> {
    read.or_else(|error| if is_damage(&error) { Ok(T::default()) } else { Err(error) })
}

/// The logical nodes of damaged objects, whose sizes are not known.
fn damaged_nodes(report: &ScrubReport) -> BTreeSet<NodeId> {
    report.damage.iter().filter_map(|damage| Some(damage.object?.page().node)).collect()
}

/// Compares what was found of some logical nodes, of which this was durable before, with what their rows say.
fn find_miscounts(
    state: &Snapshot,
    found: &BTreeMap<NodeId, NodeUsage>,
    nodes: impl Iterator<Item = (NodeId, DurableCounts)>,
) -> Result<Vec<Miscount>> {
    let mut miscounts = Vec::new();
    for (node, before) in nodes {
        let found = found.get(&node).copied().unwrap_or_default();
        // Damage of the row is reported by itself.
        let Some(counted) = readable(NodeUsage::read(state, node).map(Some))? else { continue };
        if counted != found {
            miscounts.push(Miscount { node, counted, found, before });
        }
    }
    Ok(miscounts)
}

/// Adds to the error of a damaged content which object has it, with some of its names. That reads the rows of objects until the object is found.
pub(crate) fn name_damaged_object(state: &Snapshot, error: Error) -> Error {
    let Some(content) = store::damaged_content(&error) else { return error };
    let mut found = None;
    let visit = |oid: Oid, _, object: Result<page_rows::Summary>| {
        found = object.is_ok_and(|object| object.content == Some(content)).then_some(oid);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    // Without the object the error is still that of the content.
    let _ = page_rows::each_object(state, visit, |_| ());
    let Some(oid) = found else { return error };
    let nodes = entry_rows::nodes_with_entries(state).unwrap_or_default().into_iter().collect();
    let names = names(state, &nodes, oid).unwrap_or_default();
    let damage = Damage { object: Some(oid), names, content: None, what: error.message().to_owned() };
    Error::new(error.kind(), damage.to_string()).about(oid).with_source(error)
}

/// Some paths of an object, as far as its directories are at these logical nodes.
fn names(state: &Snapshot, nodes: &BTreeSet<NodeId>, oid: Oid) -> Result<Vec<String>> {
    if oid == root_directory(oid.space(), oid.page().node) {
        return Ok(vec!["/".to_owned()]);
    }
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
    use bytes::Bytes;
    use model::{ClassId, ContentOrigin, ContentRef, Object, PageId};
    use store::{ContentChange, Options, RowChanges};

    use super::*;

    const NODE: NodeId = NodeId(3);

    #[test]
    fn wrong_counts_of_logical_nodes_that_are_served_are_found() {
        let store = Store::in_memory(Options::default()).unwrap();
        let page = PageId { space: SpaceId(1), node: NODE, number: 1 };
        let mut rows = RowChanges::new();
        rows.put(&page_rows::object_key(page, 0), page_rows::encode_object(&Object::blob("12345".into())));
        store.commit_rows(rows).unwrap();
        let before = DurableCounts { opening: 4, batches: 7 };
        let miscounts = |served: &dyn Fn() -> BTreeSet<(NodeId, u64)>| {
            scrub(
                &store,
                &Serving {
                    served,
                    durable_counts: &|| [(NODE, before)].into(),
                    damaged: &DamagedNodes::new,
                    is_unique: &|_, _| false,
                    mixed_outcomes: &|_| Vec::new(),
                },
                &(),
            )
            .unwrap()
            .miscounts
        };
        let found = NodeUsage { objects: 1, bytes: 5 };
        let miscount = Miscount { node: NODE, counted: NodeUsage::default(), found, before };
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
        let serving = Serving {
            served: &BTreeSet::new,
            durable_counts: &BTreeMap::new,
            damaged: &DamagedNodes::new,
            is_unique: &|_, _| false,
            mixed_outcomes: &|_| Vec::new(),
        };
        let found = scrub(&store, &serving, &()).unwrap().damage;
        assert_eq!(found.iter().map(|damage| damage.object).collect::<Vec<_>>(), damaged.map(Some));
        assert_eq!(
            (&found[0].names[..], found[1].names.len()),
            (&["/four", "/one", "/three"].map(str::to_owned)[..], 0)
        );
    }

    #[test]
    fn the_object_of_a_damaged_content_is_named_in_the_error_of_a_backup() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open(&path, Options::default()).unwrap();
        let page = PageId { space: SpaceId(1), node: NODE, number: 1 };
        let mut rows = RowChanges::new();
        let contents = [1, 2].map(|number| ContentId::new(SpaceId(1), NODE, 0, ContentOrigin::Record, number));
        let oids = [0, 1].map(|slot| Oid::new(ClassId::NONE, page, slot));
        for (id, oid) in contents.into_iter().zip(oids) {
            rows.content(ContentChange::Create { id, data: vec![7; 200_000].into() });
            let object = Object::blob_with_content(ContentRef { id, size: 200_000, generation: 0 });
            rows.put(&page_rows::object_key(page, oid.slot()), page_rows::encode_object(&object));
            let name = EntryKey::name(&format!("file-{}", oid.slot())).unwrap();
            let entry = Entry { collection: root_directory(SpaceId(1), NODE), key: name };
            rows.put(&entry_rows::reverse_key(oid, &entry), Bytes::new());
        }
        store.commit_rows(rows).unwrap();
        for file in std::fs::read_dir(path.join("blobs")).unwrap() {
            let file = file.unwrap().path();
            let mut bytes = std::fs::read(&file).unwrap();
            let last = bytes.iter().rposition(|byte| *byte == 7).unwrap();
            bytes[last] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
        let state = store.snapshot().unwrap();
        let error = name_damaged_object(&state, state.backup(&mut Vec::new(), &()).unwrap_err());
        let (at, _) = oids.iter().enumerate().find(|(_, oid)| error.object() == Some(**oid)).unwrap();
        let expected = format!("object {} (/file-{at}): content {} is damaged", oids[at], contents[at]);
        assert!(error.kind() == ErrorKind::Corrupt && error.message().starts_with(&expected), "{error}");
        let other = name_damaged_object(&state, Error::new(ErrorKind::Io, "another error"));
        assert_eq!(other.message(), "another error");
    }

    /// Each page of the B-tree in turn has a wrong byte. If a row of the content is there, its object is named although its own row is whole.
    #[test]
    fn the_object_of_a_content_whose_rows_are_on_a_damaged_page_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open(&path, Options::default()).unwrap();
        let oid = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node: NODE, number: 1 }, 0);
        let id = ContentId::new(SpaceId(1), NODE, 0, ContentOrigin::Record, 1);
        let mut rows = RowChanges::new();
        rows.content(ContentChange::Create { id, data: vec![7; 300_000].into() });
        let object = Object::blob_with_content(ContentRef { id, size: 300_000, generation: 0 });
        rows.put(&page_rows::object_key(oid.page(), 0), page_rows::encode_object(&object));
        let entry = Entry { collection: root_directory(SpaceId(1), NODE), key: EntryKey::name("file").unwrap() };
        rows.put(&entry_rows::reverse_key(oid, &entry), Bytes::new());
        store.commit_rows(rows).unwrap();
        store.install().unwrap();
        store.close().unwrap();
        let file = path.join("tree/rows");
        let whole = std::fs::read(&file).unwrap();
        let serving = Serving {
            served: &BTreeSet::new,
            durable_counts: &BTreeMap::new,
            damaged: &DamagedNodes::new,
            is_unique: &|_, _| false,
            mixed_outcomes: &|_| Vec::new(),
        };
        let mut named = 0;
        for page in 17..whole.len() / 4096 {
            let mut bytes = whole.clone();
            bytes[page * 4096 + 100] ^= 1;
            std::fs::write(&file, &bytes).unwrap();
            let Ok(store) = Store::open(&path, Options::default()) else { continue };
            let state = store.snapshot().unwrap();
            let is_row_whole = state.row(&page_rows::object_key(oid.page(), 0)).is_ok();
            if !is_row_whole || state.check_content_rows(id).is_ok() {
                continue;
            }
            let report = scrub(&store, &serving, &()).unwrap();
            let found = report.damage.iter().find(|damage| damage.object == Some(oid));
            let found = found.unwrap_or_else(|| panic!("page {page}: {:?}", report.damage));
            assert!(found.what.contains(&format!("content {id}")), "{found}");
            named += 1;
        }
        assert!(named > 0);
    }

    #[test]
    fn what_cannot_be_read_for_another_reason_than_damage_ends_a_scrub() {
        let read = |kind| readable::<bool>(Err(Error::new(kind, "why"))).map_err(|error| error.kind());
        assert_eq!(read(ErrorKind::Corrupt), Ok(false));
        assert_eq!(read(ErrorKind::Io), Err(ErrorKind::Io));
    }

    /// Each page of the B-tree in turn has a wrong byte. The objects whose rows are there are listed, as far as the extent still has them.
    #[test]
    fn a_damaged_page_and_its_objects_are_listed_and_it_ends_no_scrub() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open(&path, Options::default()).unwrap();
        let mut rows = RowChanges::new();
        let in_page = |number| (0..8).map(move |slot| (PageId { space: SpaceId(1), node: NODE, number }, slot));
        let places: Vec<(PageId, u16)> = (1..=20).flat_map(in_page).collect();
        for (page, slot) in places.iter().copied() {
            let mut object = Object::blob(vec![7; 500].into());
            object.class = ClassId(1);
            rows.put(&page_rows::object_key(page, slot), page_rows::encode_object(&object));
            rows.put(&page_rows::extent_key(ClassId(1), page, slot), Bytes::new());
        }
        // Objects of logical nodes that are elsewhere, whose rows would be on the first and on the last of these pages.
        for node in [NODE.0 - 1, NODE.0 + 1].map(NodeId) {
            let target = Oid::new(ClassId::NONE, PageId { space: SpaceId(1), node, number: 1 }, 0);
            let key = EntryKey::name(&format!("at {node}")).unwrap();
            let collection = root_directory(SpaceId(1), NODE);
            rows.put(&entry_rows::entry_key(collection, &key), entry_rows::encode_target(target));
            rows.put(&entry_rows::reverse_key(target, &Entry { collection, key }), Bytes::new());
        }
        store.commit_rows(rows).unwrap();
        store.install().unwrap();
        store.close().unwrap();
        let file = path.join("tree/rows");
        let whole = std::fs::read(&file).unwrap();
        let serving = Serving {
            served: &|| [(NODE, 1)].into(),
            durable_counts: &BTreeMap::new,
            damaged: &DamagedNodes::new,
            is_unique: &|_, _| false,
            mixed_outcomes: &|_| Vec::new(),
        };
        let (mut damaged, mut lost) = (0, 0);
        for page in 0..whole.len() / 4096 {
            let mut bytes = whole.clone();
            bytes[page * 4096 + 100] ^= 1;
            std::fs::write(&file, &bytes).unwrap();
            // A damaged meta page may be refused by name.
            let Ok(store) = Store::open(&path, Options::default()) else { continue };
            let report = scrub(&store, &serving, &()).unwrap();
            damaged += u64::from(report.damaged > 0);
            let state = store.snapshot().unwrap();
            let is_lost = |(page, slot): &(PageId, u16)| {
                state.row(&page_rows::object_key(*page, *slot)).is_err()
                    && state.row(&page_rows::extent_key(ClassId(1), *page, *slot)).is_ok()
            };
            let listed: BTreeSet<Oid> = report.damage.iter().filter_map(|damage| damage.object).collect();
            assert!(listed.iter().all(|oid| oid.page().node == NODE), "{:?}", report.damage);
            for (place, slot) in places.iter().copied().filter(is_lost) {
                let oid = Oid::new(ClassId(1), place, slot);
                assert!(listed.contains(&oid), "{oid} is not listed: {:?}", report.damage);
                lost += 1;
            }
        }
        assert!(damaged >= 3 && lost >= 3, "{damaged} damaged pages were noticed, and {lost} objects on them");
    }
}
