//! Scrubbing: reads and verifies everything in a snapshot, and lists all damage.
//!
//! 1. Every page of the B-tree matches its checksum. Rows in the range of a damaged page are not listed one by one.
//! 2. Every row with a checksum matches it, and every chunk matches its checksums, in the B-tree and in the blob files.
//! 3. Every chunk belongs to a content, or is to be removed.
//! 4. Every extent in use is used by one chunk and recorded as used; no other extent is.
//!
//! Rows of the store's user have no owner; rules 1 and 2 cover them.
//!
//! A scrub continues after damage. Its memory is bounded: damage beyond the list is only counted, the ranges of damaged pages are joined
//! if there are too many, and the extents in use take one bit for each 64 KiB of content.

use std::error::Error as _;
use std::fmt;
use std::ops::ControlFlow;

use model::{ContentId, Error, Result, limits};

use crate::content::chunk_set::ChunkSet;
use crate::engine::damaged_ranges::DamagedRanges;
use crate::engine::{Checked, Engine, EngineRead, TreeDamage};
use crate::error::IntoModelResult;
use crate::progress::{self, Amount, Progress};
use crate::read::Readable;
use crate::read::layers::{FoundRow, Layers};
use crate::read::rows::verify_value;
use crate::rows::key::{Key, hex, table};
use crate::rows::mob::{Row, Seq};
use crate::rows::row::CHUNK;

mod contents;

#[cfg(test)]
mod tests;

/// Maximum number of listed damages; further ones are counted.
const MAX_LISTED: usize = 1000;

/// One damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The damaged content, if it is known.
    pub content: Option<ContentId>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.content {
            write!(f, "content {id}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// The result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// The log position that was checked.
    pub version: u64,
    /// Contents.
    pub contents: u64,
    /// Rows.
    pub rows: u64,
    /// Bytes of rows and contents that were verified.
    pub bytes: u64,
    /// The first thousand damages.
    pub damage: Vec<Damage>,
    /// The number of damages, listed or not.
    pub damaged: u64,
    /// The number of parts of the B-tree with rows that cannot be read.
    pub unreadable_parts: u64,
}

impl ScrubReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged == 0
    }
}

/// What a check of a part of the B-tree has come to: see [`Store::check_tree`](crate::Store::check_tree).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeCheck {
    /// Bytes of pages that were read.
    pub bytes: u64,
    /// The damaged pages, with their keys.
    pub damage: Vec<String>,
    /// Whether rows are on them.
    pub has_unreadable_rows: bool,
    /// Where the next part begins; `None` if this was the last one.
    pub next: Option<Vec<u8>>,
}

/// Checks the pages of the B-tree from a key on, until this many bytes were read and the pages of a key are complete.
pub(crate) fn check_tree(engine: &dyn Engine, from: &[u8], most_bytes: u64) -> Result<TreeCheck> {
    let mut part = TreeCheck::default();
    let mut observe = |checked: Checked<'_>| {
        match checked {
            Checked::Bytes(bytes) => part.bytes += bytes,
            Checked::Damage(damage) => {
                part.has_unreadable_rows |= damage.range.is_some();
                part.damage.push(damage.to_string());
            }
            Checked::Kept(..) => {}
            Checked::UpTo(key) => {
                part.next = key.map(<[u8]>::to_vec);
                if part.bytes >= most_bytes {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    };
    // Whether it was ended does not matter: the place of the next part says it.
    let mut read = |state: &dyn EngineRead| {
        let _ = state.check_from(from, &mut observe);
    };
    engine.read(&mut read).into_model_result()?;
    Ok(part)
}

/// Verifies everything in a snapshot at position `version`.
pub(crate) fn run(snapshot: &impl Readable, version: Seq, progress: &dyn Progress) -> Result<ScrubReport> {
    let state = snapshot.state();
    // The B-tree is read twice: its pages, then the rows.
    let total_bytes = 2 * state.engine.size() + state.files().map_or(0, |files| files.size());
    snapshot.read_state(|layers| {
        let report = ScrubReport { version, ..ScrubReport::default() };
        let mut scrub = Scrub {
            layers,
            progress,
            total_bytes,
            report,
            page_bytes: 0,
            used: ChunkSet::default(),
            chunks: 0,
            unreadable_heads: 0,
            damaged_ranges: DamagedRanges::default(),
            buffer: vec![0; CHUNK],
        };
        scrub.pages()?;
        scrub.contents()?;
        scrub.garbage()?;
        scrub.chunks()?;
        scrub.extents()?;
        scrub.check_freed_extents()?;
        scrub.blob_files()?;
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
    /// Bytes of pages of the B-tree that were read.
    page_bytes: u64,
    /// The extents that chunks use, until they are compared with their records.
    used: ChunkSet,
    /// Rows of chunks that belong to a content or are to be removed.
    chunks: u64,
    /// Contents whose chunks are unknown because their head is damaged.
    unreadable_heads: u64,
    /// The ranges of keys of damaged pages of the B-tree.
    damaged_ranges: DamagedRanges,
    buffer: Vec<u8>,
}

/// The cause of an error whose message names its content, which the caller names, too.
fn cause(error: &Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl Scrub<'_> {
    fn report_progress(&self) -> Result<()> {
        let (items, bytes) = (self.report.contents + self.report.rows, self.page_bytes + self.report.bytes);
        progress::report(self.progress, "scrub", Amount { items, bytes, total_bytes: self.total_bytes })
    }

    /// Every page of the B-tree. Notes which rows cannot be read.
    fn pages(&mut self) -> Result<()> {
        let mut result = Ok(());
        // Whether the check was ended does not matter: the result says it.
        let _ = self.layers.engine.check(&mut |checked| {
            match checked {
                Checked::Bytes(bytes) => self.page_bytes += bytes,
                Checked::Damage(damage) => self.note_range(damage),
                Checked::Kept(..) | Checked::UpTo(_) => {}
            }
            result = self.report_progress();
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result
    }

    /// Reports a damaged page, and notes its rows.
    fn note_range(&mut self, damage: TreeDamage) {
        self.report_damage(None, damage.to_string());
        let Some(range) = damage.range else { return };
        self.report.unreadable_parts += 1;
        let from = hex(&range.from);
        if self.damaged_ranges.add(range) {
            self.report_damage(
                None,
                format!("the B-tree has too many damaged pages: not all rows behind the key {from} are read"),
            );
        }
    }

    /// Whether rows of the B-tree are missing, so that what refers to them is no further damage.
    fn has_lost_rows(&self) -> bool {
        !self.damaged_ranges.is_empty()
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
        for (from, to) in self.damaged_ranges.readable_parts(prefix, &prefix.prefix_end()) {
            let mut stopped = None;
            let scanned = layers.scan(&from, &to, &mut |key, found| match self
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
            if let Some(error) = stopped {
                return Err(error);
            }
        }
        Ok(())
    }

    fn report_damage(&mut self, content: Option<ContentId>, what: impl Into<String>) {
        self.report.damaged += 1;
        if self.report.damage.len() < MAX_LISTED {
            self.report.damage.push(Damage { content, what: what.into() });
        }
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

    /// Every row matches its checksum and has a valid key.
    fn rows(&mut self) -> Result<()> {
        self.scan_table(&Key::table(table::ROW), "rows", |scrub, key, found| {
            scrub.report.rows += 1;
            let own = &key[1..];
            if !(1..=limits::ROW_KEY).contains(&own.len()) {
                scrub.report_damage(None, format!("the key of row {} has {} bytes", hex(own), own.len()));
            }
            match verify_value(key, found) {
                Ok(value) => scrub.report.bytes += value.len() as u64,
                Err(error) => scrub.report_damage(None, format!("row {}: {error}", hex(own))),
            }
            Ok(())
        })
    }
}
