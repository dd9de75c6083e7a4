//! Scrubbing: reads and verifies everything in a snapshot, and lists all damage.
//!
//! 1. Every row with a checksum matches it, and every chunk matches its checksums, in the B-tree and in the blob files.
//! 2. Every row has an owner: attributes, members, names and chunks belong to objects, objects to spaces.
//! 3. References agree in both directions: names and memberships with back references, collections with their sizes.
//! 4. Counts are correct: the users of extents, the slots of pages, the page numbers of spaces.
//!
//! Rows of the store's user have no owner; rule 1 covers them.
//!
//! A scrub continues after damage. Its memory is bounded: damage beyond the list is only counted, and user counts take
//! one byte for each 64 KiB of content.

use std::error::Error as _;
use std::fmt;
use std::ops::ControlFlow;

use hashbrown::HashSet;
use model::{ContentId, Error, Oid, PageId, Result, SpaceId};

use crate::content::chunk_set;
use crate::progress::{self, Amount, Progress};
use crate::read::Readable;
use crate::read::layers::{FoundRow, Layers};
use crate::rows::key::{Key, content_of};
use crate::rows::mob::{Row, Seq};
use crate::rows::row::{self, CHUNK, Extent};

mod content;
mod references;
mod user_counts;

#[cfg(test)]
mod tests;

use user_counts::UserCounts;

/// Maximum number of listed damages; further ones are counted.
const MAX_LISTED: usize = 1000;
/// Maximum number of names listed for a damaged object.
const MAX_NAMES: usize = 3;

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The damaged object, if it is known.
    pub oid: Option<Oid>,
    /// Some of its names.
    pub names: Vec<String>,
    /// What is wrong.
    pub what: String,
}

impl Damage {
    /// The damaged content, if it is one of [`ContentChange`](crate::ContentChange) and belongs to no object of the store.
    #[must_use]
    pub fn content(&self) -> Option<ContentId> {
        self.oid.and_then(content_of)
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(oid) = self.oid {
            write!(f, "object {oid}")?;
            if !self.names.is_empty() {
                write!(f, " ({})", self.names.join(", "))?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}

/// The result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// The log position that was checked.
    pub version: u64,
    /// Objects, including collections.
    pub objects: u64,
    /// Attributes.
    pub attributes: u64,
    /// Memberships in collections.
    pub members: u64,
    /// Names.
    pub names: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of content that were verified.
    pub bytes: u64,
    /// The first thousand damages.
    pub damage: Vec<Damage>,
    /// The number of damages, listed or not.
    pub damaged: u64,
}

impl ScrubReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged == 0
    }
}

/// Verifies everything in a snapshot at position `version`.
pub(crate) fn run(snapshot: &impl Readable, version: Seq, progress: &dyn Progress) -> Result<ScrubReport> {
    let state = snapshot.state();
    let total_bytes = state.engine.size() + state.files().map_or(0, |files| files.size());
    snapshot.read_state(|layers| {
        let report = ScrubReport { version, ..ScrubReport::default() };
        let mut scrub = Scrub {
            layers,
            progress,
            total_bytes,
            report,
            uses: UserCounts::default(),
            spaces: HashSet::new(),
            chunks: 0,
            unreadable_heads: 0,
            page: None,
            buffer: vec![0; CHUNK],
        };
        scrub.system()?;
        scrub.objects()?;
        scrub.garbage()?;
        scrub.chunks()?;
        scrub.attributes()?;
        scrub.members()?;
        scrub.names()?;
        scrub.back_references()?;
        scrub.pages()?;
        scrub.extents()?;
        scrub.freed()?;
        scrub.rows()?;
        Ok(scrub.report)
    })
}

/// A scrub in progress.
struct Scrub<'a> {
    layers: &'a Layers<'a>,
    progress: &'a dyn Progress,
    total_bytes: u64,
    report: ScrubReport,
    /// The number of chunks that use each extent.
    uses: UserCounts,
    spaces: HashSet<SpaceId>,
    /// Rows of chunks that belong to an object or to unused content.
    chunks: u64,
    /// Objects whose size is unknown because their head is damaged.
    unreadable_heads: u64,
    /// The page of the last object, and its highest slot so far.
    page: Option<(PageId, u16)>,
    buffer: Vec<u8>,
}

/// The cause of an error whose message names its object, which the caller names, too.
fn cause(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Scrub<'_> {
    fn report_progress(&self) -> Result<()> {
        let (objects, bytes) = (self.report.objects, self.report.bytes);
        progress::report(self.progress, "scrub", Amount { objects, bytes, total_bytes: self.total_bytes })
    }

    /// Calls `show` with every row under a prefix. A part of the B-tree that cannot be read is damage; other parts are
    /// still read.
    fn scan_table(
        &mut self,
        prefix: &Key,
        what: &str,
        mut show: impl FnMut(&mut Self, &[u8], &FoundRow<'_>) -> Result<()>,
    ) -> Result<()> {
        let layers = self.layers;
        let mut stopped = None;
        let scanned = layers.scan(prefix, &prefix.prefix_end(), &mut |key, found| match self
            .report_progress()
            .and_then(|()| show(self, key, found))
        {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                stopped = Some(error);
                ControlFlow::Break(())
            }
        });
        if let Err(error) = scanned {
            self.report_damage(None, format!("{what} cannot all be read: {error}"));
        }
        stopped.map_or(Ok(()), Err)
    }

    fn report_damage(&mut self, oid: Option<Oid>, what: impl Into<String>) {
        self.report.damaged += 1;
        if self.report.damage.len() < MAX_LISTED {
            let names = oid.map_or_else(Vec::new, |oid| self.some_names(oid));
            self.report.damage.push(Damage { oid, names, what: what.into() });
        }
    }

    fn some_names(&self, oid: Oid) -> Vec<String> {
        let prefix = Key::back_names(oid);
        let mut names = Vec::new();
        // If the names cannot be read either, the identifier is enough.
        let _ = self.layers.scan(&prefix, &prefix.prefix_end(), &mut |key, _| {
            names.push(String::from_utf8_lossy(&key[prefix.len()..]).into_owned());
            if names.len() < MAX_NAMES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        names
    }

    /// Whether a row exists. A row that cannot be read is damage and counts as existing.
    fn exists(&mut self, key: &Key) -> bool {
        match self.layers.find(key) {
            Ok(found) => !matches!(found, FoundRow::Nothing | FoundRow::Row(Row::Tombstone, _)),
            Err(error) => {
                self.report_damage(None, format!("the B-tree cannot be read: {error}"));
                true
            }
        }
    }

    /// Whether a row under a prefix exists.
    fn exists_under(&mut self, prefix: &Key) -> bool {
        let mut any = false;
        let scanned = self.layers.scan(prefix, &prefix.prefix_end(), &mut |_, _| {
            any = true;
            ControlFlow::Break(())
        });
        if let Err(error) = scanned {
            self.report_damage(None, format!("the B-tree cannot be read: {error}"));
        }
        any
    }

    /// The value of a row with a valid checksum.
    fn unseal_row<'f>(
        &mut self,
        oid: Option<Oid>,
        key: &[u8],
        found: &'f FoundRow<'_>,
        what: &str,
    ) -> Option<&'f [u8]> {
        let row = found.value()?;
        match row::unseal(key, row) {
            Ok(len) => Some(&row[..len]),
            Err(error) => {
                self.report_damage(oid, format!("{what}: {error}"));
                None
            }
        }
    }

    /// Adds a user of an extent.
    fn count_use(&mut self, extent: &Extent) {
        if chunk_set::is_chunk_position(extent.file, extent.offset) {
            self.uses.add(extent.file, extent.offset);
        }
    }
}
