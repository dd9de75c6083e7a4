//! Repair of a store that refuses to open because acknowledged transactions cannot be read.
//!
//! Repair first reports what is damaged and what would be lost, and changes nothing. If the operator accepts the loss,
//! it copies the damaged segments aside, keeps every transaction that can be read without a gap, gives up the rows on damaged pages of the
//! B-tree, and scrubs the store. Positions of lost transactions are never assigned again, because others may remember them. The store records
//! what is lost ([`Store::loss`]) until the brick that uses the store calls [`Store::accept_loss`].

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use model::{ContentId, Error, ErrorKind, Result};

use crate::content::blob_file;
use crate::directory::{self, DirectoryContents, Identity};
use crate::disk::{self, Disk, RealDisk};
use crate::engine::Engine;
use crate::engine::tree::{self, TreeEngine};
use crate::error::{self, IntoModelResult, StoreError};
use crate::log::entry::{self, Step};
use crate::log::frame::StoreId;
use crate::log::recover::{self, OnDamage, Salvaged};
use crate::log::{self, LogError};
use crate::open;
use crate::options::Options;
use crate::progress::Progress;
use crate::read::view::View;
use crate::rows::mob::Mob;
use crate::scrub::ScrubReport;
use crate::store::Store;

mod loss;
mod lost_rows;
#[cfg(test)]
mod tests;

pub use loss::Loss;
use lost_rows::LostRows;

/// Rows of the store's user, `from <= key < to`, without which the store is of no use. A repair does not give them up.
#[derive(Clone, Copy, Debug)]
pub struct EssentialRows {
    /// The first key.
    pub from: &'static [u8],
    /// Behind the last key.
    pub to: &'static [u8],
    /// What they are: "the catalogue".
    pub what: &'static str,
}

/// What is damaged, what would be lost, and what was repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether the identity file was missing or damaged. The log contains the identity, too.
    pub identity_lost: bool,
    /// The damage of the log, naming frame, file and offset; `None` if it can be read to its end.
    pub damage: Option<String>,
    /// Transactions up to this position are in the B-tree; damage to their frames loses nothing.
    pub installed: u64,
    /// Transactions up to this position can be kept: they are in the B-tree or readable in the log.
    pub kept: u64,
    /// The last position that a readable part of the log mentions, or the record of its end.
    pub seen: u64,
    /// The number of the next transaction after a repair of the log.
    pub next: Option<u64>,
    /// Whether the damage was repaired. Otherwise nothing was changed.
    pub repaired: bool,
    /// Where the damaged segments were copied.
    pub set_aside: Option<PathBuf>,
    /// Damaged parts of the B-tree and their keys: their rows are lost. The first thousand.
    pub lost_rows: Vec<String>,
    /// The number of damaged parts of the B-tree with rows, listed or not.
    pub lost_row_ranges: u64,
    /// Damaged pages of the B-tree without rows: its other header, or the map of used pages. A repair writes them again; nothing is lost
    /// with them.
    pub damaged_structure: Vec<String>,
    /// Whether one of the two records of the end of the log cannot be read: as after a power failure, or after damage.
    pub damaged_tail: bool,
    /// Whether what was given up, now or earlier, has not been accepted yet: see [`Store::loss`].
    pub needs_acceptance: bool,
    /// The result of the scrub after the repair.
    pub scrub: Option<ScrubReport>,
    /// Bytes of the B-tree that were recorded as used, to which nothing referred after damage, and which are free again.
    pub reclaimed: u64,
}

impl RepairReport {
    /// Whether the store can be opened without a repair.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_none() && !self.identity_lost
    }

    /// Whether acknowledged transactions or rows are lost, or may be.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        self.damage.is_some() || self.lost_row_ranges > 0
    }

    /// The first and last lost transaction, as far as is known; `None` if everything known can be kept.
    #[must_use]
    pub fn lost_txns(&self) -> Option<(u64, u64)> {
        (self.damage.is_some() && self.kept < self.seen).then_some((self.kept + 1, self.seen))
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.identity_lost {
            let what = if self.repaired { "was written again" } else { "is lost, and can be written again" };
            writeln!(f, "the file {} {what}", directory::IDENTITY_FILE)?;
        }
        if self.reclaimed > 0 {
            writeln!(f, "{} bytes of the B-tree to which nothing refers are free again", self.reclaimed)?;
        }
        if self.damaged_tail {
            let what = "one of the two records of the end of the log, in log/tail, cannot be read, as after a power failure or damage";
            writeln!(f, "{what}: the next start and the transactions after it write it again")?;
        }
        let verb = if self.repaired { "are" } else { "would be" };
        if !self.damaged_structure.is_empty() {
            let done = if self.repaired { "were" } else { "can be" };
            writeln!(f, "damaged pages of the B-tree that have no rows {done} written again, without loss:")?;
            self.damaged_structure.iter().try_for_each(|damage| writeln!(f, "  {damage}"))?;
        }
        if self.lost_row_ranges > 0 {
            let (parts, pages) = (self.lost_row_ranges, if self.lost_row_ranges == 1 { "part" } else { "parts" });
            writeln!(f, "{parts} {pages} of the B-tree cannot be read; all rows there {verb} given up:")?;
            self.lost_rows.iter().try_for_each(|lost| writeln!(f, "  {lost}"))?;
            let unlisted = self.lost_row_ranges - self.lost_rows.len() as u64;
            if unlisted > 0 {
                writeln!(f, "  and {unlisted} more")?;
            }
        }
        let Some(damage) = &self.damage else {
            let kept = self.kept;
            return write!(
                f,
                "the log is undamaged up to transaction {kept}; blob files are read by `mortar scrub` only"
            );
        };
        writeln!(f, "{damage}")?;
        writeln!(f, "transactions up to {} are in the B-tree and safe", self.installed)?;
        if self.kept > self.installed {
            let (from, to) = (self.installed + 1, self.kept);
            writeln!(f, "transactions {from} to {to} can still be read in the log")?;
        }
        match self.lost_txns() {
            Some((from, to)) => write!(f, "transactions {from} to {to} {verb} lost")?,
            None => {
                let kept = self.kept;
                write!(
                    f,
                    "transactions up to {kept} {verb} kept; what can be read of the log and the record of its end mention no later one, but if its \
                     damaged part has some, these {verb} lost"
                )?;
            }
        }
        if let Some(next) = self.next {
            write!(
                f,
                "\nthe next transaction gets number {next}: numbers that lost transactions may have had are not given again"
            )?;
        }
        match &self.set_aside {
            Some(dir) => write!(f, "\nthe damaged segments are in {}", dir.display()),
            None => Ok(()),
        }
    }
}

impl Store {
    /// Reports what prevents the store in a directory from being opened, and what a repair would lose.
    ///
    /// With `accept_loss` it repairs the store: it copies the damaged segments of the log aside, keeps every
    /// transaction that can be read without a gap, gives up the rows on damaged pages of the B-tree, and scrubs the store. The version of the
    /// next change is far above all that were assigned. Without `accept_loss` nothing is changed. `progress` receives the progress of the
    /// check of the B-tree, and of the scrub.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without the directory; [`ErrorKind::Unavailable`] if a server has it open;
    /// [`ErrorKind::Corrupt`] for damage that requires a backup: to `essential` rows, to the headers of the B-tree, or to every copy of the
    /// store's identity.
    pub fn repair(
        dir: &Path,
        accept_loss: bool,
        essential: &[EssentialRows],
        options: Options,
        progress: &dyn Progress,
    ) -> Result<RepairReport> {
        match DirectoryContents::of(dir)? {
            DirectoryContents::Missing => {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no directory {}", dir.display())));
            }
            DirectoryContents::Empty => {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no store in {}", dir.display())));
            }
            DirectoryContents::Other(name) if !PARTS.contains(&name.as_str()) => {
                let what =
                    format!("{} contains {name}, which is no part of a store: name a data directory", dir.display());
                return Err(Error::new(ErrorKind::Invalid, what));
            }
            DirectoryContents::Store | DirectoryContents::InterruptedRestore | DirectoryContents::Other(_) => {}
        }
        let lock = directory::lock(dir)?;
        let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dir));
        let (id, identity_lost) = identify(dir, &*disk)?;
        check_tree(dir)?;
        let engine = TreeEngine::open(&*disk, &id).into_model_result()?;
        let lost = LostRows::find(&engine, progress)?;
        lost.check_not_essential(essential)?;
        let mut changed = BTreeSet::new();
        let mut report =
            RepairReport { identity_lost, ..inspect(&disk, &lost.without_them(&engine), id, &mut changed)? };
        lost.check_not_changed(&engine, &changed)?;
        (report.lost_row_ranges, report.lost_rows) = (lost.count(), lost.descriptions());
        report.damaged_structure = lost.damaged_structure();
        let has_damaged_record = recover::has_damaged_record(&*disk, &id);
        report.damaged_tail =
            report.damage.is_none() && has_damaged_record.map_err(|e| error::io("reading log/tail", e))?;
        report.needs_acceptance = loss::loss_in(&lost.without_them(&engine))?.is_some();
        if !accept_loss {
            return Ok(report);
        }
        if identity_lost {
            directory::write_identity(dir, &id).map_err(|e| error::io("writing the store's identity", e))?;
        }
        let mut on_damage = OnDamage::Refuse;
        if report.damage.is_some() {
            report.set_aside = Some(copy_damaged_segments(dir, &*disk, &id, report.installed)?);
            on_damage = OnDamage::Salvage;
        }
        // Before the log is opened, whose transactions change rows in their range.
        lost.give_up(&engine)?;
        drop(engine);
        let store = Store::start(open::open_locked(dir, lock, options, on_damage)?)?;
        report.next = report.damage.is_some().then(|| store.position() + 1);
        report.repaired = report.identity_lost || report.is_loss() || !report.damaged_structure.is_empty();
        report.needs_acceptance = store.loss()?.is_some();
        // Before the scrub: it writes the map of used pages, of which a part may be damaged, and a header.
        match store.core().state.engine.reclaim_space().into_model_result() {
            Ok(bytes) => report.reclaimed = bytes,
            // The store is repaired; its file is only larger than it needs to be.
            Err(error) => tracing::warn!(%error, "cannot free the space of the B-tree to which nothing refers"),
        }
        report.scrub = Some(store.scrub(progress)?);
        store.close()?;
        Ok(report)
    }
}

/// Directories of a store, which are left if its identity is lost.
const PARTS: [&str; 3] = [directory::TREE_DIR, log::DIR, blob_file::DIR];

fn identify(dir: &Path, disk: &dyn Disk) -> Result<(StoreId, bool)> {
    match directory::read_identity(dir)? {
        Identity::Known(id) => return Ok((id, false)),
        Identity::Missing if dir.join(directory::RESTORING).exists() => return Err(directory::interrupted_error(dir)),
        Identity::Missing | Identity::Damaged => {}
    }
    let found = recover::store_of(disk).map_err(|e| error::io("reading the log", e))?;
    let unknown = || {
        let (dir, file) = (dir.display(), directory::IDENTITY_FILE);
        let message = format!("{dir} has no readable file {file}, and no log that contains the store's identity");
        Error::new(ErrorKind::Corrupt, format!("{message}: choose the directory of a store, or restore from a backup"))
    };
    found.map(|id| (id, true)).ok_or_else(unknown)
}

fn check_tree(dir: &Path) -> Result<()> {
    let tree = dir.join(tree::NAME);
    if tree.try_exists().map_err(|e| error::io(&format!("looking for {}", tree.display()), e))? {
        return Ok(());
    }
    let message =
        format!("the B-tree is missing: there is no {}; put it back, or restore from a backup", tree.display());
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// Reports what is damaged and what can be kept. Adds the contents that the log changes to `changed`.
fn inspect(
    disk: &Arc<dyn Disk>,
    engine: &dyn Engine,
    id: StoreId,
    changed: &mut BTreeSet<ContentId>,
) -> Result<RepairReport> {
    let Some(position) = open::installed_position(engine)? else {
        // Its creation was interrupted; the next opening creates it again.
        return open::check_new(&**disk, &id).map(|()| RepairReport::default());
    };
    let installed = position.seq;
    let files = open::blob_files(disk, engine, &id)?;
    let mut last = installed;
    let view = View::new(Mob::new());
    let damage = recover::inspect(&**disk, id, position, &mut |seq, payload| {
        last = seq;
        note_changed(payload, changed);
        open::replay(&view, engine, &files, seq, payload)
    });
    let Some(damage) = damage.into_model_result()? else {
        return Ok(RepairReport { installed, kept: last, seen: last, ..RepairReport::default() });
    };
    let view = View::new(Mob::new());
    let mut replay = |seq, payload: &[u8]| open::replay(&view, engine, &files, seq, payload);
    let Salvaged { kept, seen } = recover::find_salvageable(&**disk, &id, position, &mut replay).into_model_result()?;
    Ok(RepairReport { damage: Some(describe(damage)), installed, kept, seen, ..RepairReport::default() })
}

/// Notes the contents of which a logged transaction changes a part.
fn note_changed(payload: &[u8], changed: &mut BTreeSet<ContentId>) {
    for step in entry::decode(bytes::Bytes::copy_from_slice(payload)).unwrap_or_default() {
        match step {
            Step::Write { id, .. }
            | Step::WriteChunks { id, .. }
            | Step::Truncate { id, .. }
            | Step::Zero { id, .. }
            | Step::Resize { id, .. } => drop(changed.insert(id)),
            _ => {}
        }
    }
}

/// The damage without the advice in the error of opening.
fn describe(damage: LogError) -> String {
    match damage {
        LogError::Damaged(damage) => damage.to_string(),
        other => StoreError::from(other).0.to_string(),
    }
}

/// Copies the segments that may be damaged; returns the new directory.
fn copy_damaged_segments(dir: &Path, disk: &dyn Disk, id: &StoreId, installed: u64) -> Result<PathBuf> {
    let segments = recover::segments_from(disk, id, installed + 1).into_model_result()?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let to = dir.join(format!("log-damaged-{seconds}"));
    let copy = || -> io::Result<()> {
        disk::create_private_dir(&to)?;
        for segment in segments {
            let (from, to) = (dir.join(&segment), to.join(Path::new(&segment).file_name().unwrap_or_default()));
            if fs::metadata(&from)?.len() > log::MAX_SEGMENT {
                // No segment, and perhaps larger than the disk: the log removes only its name.
                fs::hard_link(&from, &to)?;
                continue;
            }
            fs::copy(&from, &to)?;
            File::open(&to)?.sync_all()?;
        }
        File::open(&to)?.sync_all()?;
        File::open(dir)?.sync_all()
    };
    copy().map_err(|e| error::io(&format!("copying the damaged log to {}", to.display()), e))?;
    Ok(to)
}
