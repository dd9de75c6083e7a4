//! Scrubs a brick: the store below it, and its objects.
//!
//! The store checks rows, chunks and contents, of which it knows no more than their identifiers. Here each object is compared with its
//! checksum, and damage is named by object and path.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::ControlFlow;

use model::{ContentId, Entry, EntryKey, NodeId, Oid, Result};
use protocol::entries::root_directory;
use store::{Progress, Snapshot, Store};

use super::entry_rows;
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

/// Reads and checks everything, and lists all damage.
///
/// # Errors
/// Those of reading the store; [`ErrorKind::Unavailable`](model::ErrorKind::Unavailable) if `progress` ends it.
pub(crate) fn scrub(store: &Store, progress: &dyn Progress) -> Result<ScrubReport> {
    let below = store.scrub(progress)?;
    let state = store.snapshot()?;
    let mut report = ScrubReport { bytes: below.bytes, damaged: below.damaged, ..ScrubReport::default() };
    // The damages of contents, by position in the list, until their objects are found.
    let mut contents: HashMap<ContentId, Vec<usize>> = HashMap::new();
    for (at, store::Damage { content, what }) in below.damage.into_iter().enumerate() {
        if let Some(content) = content {
            contents.entry(content).or_default().push(at);
        }
        report.damage.push(Damage { content, what, ..Damage::default() });
    }
    let (mut nodes, mut damaged) = (BTreeSet::new(), Vec::new());
    page_rows::each_object(&state, |oid, found| {
        report.objects += 1;
        nodes.insert(oid.page().node);
        match found {
            Ok(object) => {
                let places = object.content.and_then(|content| contents.get(&content));
                for at in places.into_iter().flatten() {
                    report.damage[*at].object = Some(oid);
                }
            }
            Err(error) => damaged.push((oid, error.message().to_owned())),
        }
    })?;
    report.damaged += damaged.len() as u64;
    let room = MAX_LISTED.saturating_sub(report.damage.len());
    let listed = damaged.into_iter().take(room);
    report.damage.extend(listed.map(|(oid, what)| Damage { object: Some(oid), what, ..Damage::default() }));
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
