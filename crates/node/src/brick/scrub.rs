//! Scrubs a brick: the store below it, and its objects.
//!
//! The store checks rows, chunks and contents, of which it knows no more than their identifiers. Here each object is compared with its
//! checksum, and damage is named by object and path.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;

use model::{ContentId, Entry, EntryKey, NodeId, Oid, Result};
use protocol::entries::root_directory;
use store::{Damage, Progress, ScrubReport, Snapshot, Store};

use super::entry_rows;
use super::page_rows;

/// Most damages that are listed, and most names of a damaged object.
const MAX_LISTED: usize = 1000;
const MAX_NAMES: usize = 3;
/// Most directories in a path that is looked for.
const MAX_DEPTH: usize = 512;

/// Reads and checks everything, and lists all damage.
///
/// # Errors
/// Those of reading the store; [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if `progress` ends it.
pub(crate) fn scrub(store: &Store, progress: &dyn Progress) -> Result<ScrubReport> {
    let mut report = store.scrub(progress)?;
    let state = store.snapshot()?;
    // The damages of contents, by position in the list, until their objects are found.
    let mut contents: HashMap<ContentId, Vec<usize>> = HashMap::new();
    for (at, damage) in report.damage.iter().enumerate() {
        if let Some(content) = damage.content() {
            contents.entry(content).or_default().push(at);
        }
    }
    report.objects = 0;
    let (mut nodes, mut damaged) = (BTreeSet::new(), Vec::new());
    page_rows::each_object(&state, |oid, found| {
        report.objects += 1;
        nodes.insert(oid.page().node);
        match found {
            Ok(object) => {
                let places = object.content.and_then(|content| contents.get(&content));
                for at in places.into_iter().flatten() {
                    report.damage[*at].oid = Some(oid);
                }
            }
            Err(error) => damaged.push((oid, error.message().to_owned())),
        }
    })?;
    report.damaged += damaged.len() as u64;
    let room = MAX_LISTED.saturating_sub(report.damage.len());
    let listed = damaged.into_iter().take(room);
    report.damage.extend(listed.map(|(oid, what)| Damage { oid: Some(oid), names: Vec::new(), what }));
    nodes.extend(entry_rows::nodes_with_entries(&state)?);
    for damage in &mut report.damage {
        if let Some(oid) = damage.oid.filter(|_| damage.content().is_none() && damage.names.is_empty()) {
            damage.names = names(&state, &nodes, oid)?;
        }
    }
    // Each chunk of a content is checked: what is said of several is said once.
    let listed = report.damage.len();
    report.damage.dedup_by(|one, before| one.oid == before.oid && one.what == before.what);
    report.damaged -= (listed - report.damage.len()) as u64;
    Ok(report)
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
