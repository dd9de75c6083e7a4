//! Repair: what to do when a store refuses to open because acknowledged transactions cannot be read back.
//!
//! Nothing is repaired without being asked for: first it only says what is damaged and what would be lost. Told to
//! accept that, it sets the damaged segments aside, keeps every transaction that can still be read without a gap, and
//! scrubs the store. What was lost had versions and identifiers that someone may remember: none of them is given again.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use model::{Error, ErrorKind, Result};

use crate::directory::{self, Identity};
use crate::disk::{self, Disk, RealDisk};
use crate::engine::Engine;
use crate::engine::lmdb::LmdbEngine;
use crate::error::{self, IntoModelResult, StoreError};
use crate::log::LogError;
use crate::log::frame::StoreId;
use crate::log::recover::{self, OnDamage, Salvaged};
use crate::open;
use crate::options::Options;
use crate::progress::Progress;
use crate::read::view::View;
use crate::rows::mob::Mob;
use crate::scrub::ScrubReport;
use crate::store::Store;

#[cfg(test)]
mod tests;

/// What is damaged, what it costs, and what was done about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether the file that identifies the store was missing or damaged. Its content stands in the log too.
    pub identity_lost: bool,
    /// What is damaged in the log, naming frame, file and offset; `None` if it can be read to its end.
    pub damage: Option<String>,
    /// Transactions up to this position are in the B-tree: damage to their frames costs nothing.
    pub installed: u64,
    /// Transactions up to this position can be kept: they are in the B-tree, or their frames can still be read.
    pub kept: u64,
    /// The last position that anything readable in the log speaks of. Of a missing segment nothing is known.
    pub seen: u64,
    /// Whether the damage was repaired; otherwise nothing was changed.
    pub repaired: bool,
    /// Where the damaged segments were copied to.
    pub set_aside: Option<PathBuf>,
    /// What the scrub behind the repair found.
    pub scrub: Option<ScrubReport>,
}

impl RepairReport {
    /// Whether the store can be opened as it is.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.damage.is_none() && !self.identity_lost
    }

    /// The first and last transaction that is lost, as far as is known; `None` if everything known can be kept.
    #[must_use]
    pub fn lost(&self) -> Option<(u64, u64)> {
        (self.damage.is_some() && self.kept < self.seen).then_some((self.kept + 1, self.seen))
    }
}

impl fmt::Display for RepairReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.identity_lost {
            let what = if self.repaired { "was written again" } else { "is lost, and can be written again" };
            writeln!(f, "the file {} {what}", directory::IDENTITY_FILE)?;
        }
        let Some(damage) = &self.damage else { return write!(f, "the log is sound up to transaction {}", self.kept) };
        writeln!(f, "{damage}")?;
        writeln!(f, "transactions up to {} are in the B-tree and safe", self.installed)?;
        if self.kept > self.installed {
            let (from, to) = (self.installed + 1, self.kept);
            writeln!(f, "transactions {from} to {to} can still be read in the log")?;
        }
        let verb = if self.repaired { "are" } else { "would be" };
        match self.lost() {
            Some((from, to)) => write!(f, "transactions {from} to {to} {verb} lost")?,
            None => write!(f, "no transaction behind {} {verb} known to be lost", self.kept)?,
        }
        match &self.set_aside {
            Some(dir) => write!(f, "\nthe damaged segments are in {}", dir.display()),
            None => Ok(()),
        }
    }
}

impl Store {
    /// Says what keeps the store in a directory from being opened, and what it would cost to go on without it.
    ///
    /// With `accept_loss` it does that: it copies the damaged segments of the log aside, keeps every transaction that can
    /// still be read without a gap, and scrubs the store. The version of the next change is then far beyond all that
    /// were ever given. Without, nothing is changed. `progress` is told of the scrub.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without the directory; [`ErrorKind::Unavailable`] if a server has it open;
    /// [`ErrorKind::Corrupt`] for damage that only a backup helps against: to the B-tree, or to all that says which
    /// store it is.
    pub fn repair(dir: &Path, accept_loss: bool, options: Options, progress: &dyn Progress) -> Result<RepairReport> {
        repair(dir, accept_loss, options, progress)
    }
}

/// Looks at the store in a directory, and repairs it if the loss is accepted.
fn repair(dir: &Path, accept_loss: bool, options: Options, progress: &dyn Progress) -> Result<RepairReport> {
    if !dir.is_dir() {
        return Err(Error::new(ErrorKind::NotFound, format!("there is no directory {}", dir.display())));
    }
    let lock = directory::lock(dir)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(dir));
    let (id, identity_lost) = identify(dir, &*disk)?;
    check_tree(dir)?;
    let mut report = {
        let engine = LmdbEngine::open(&dir.join(directory::TREE_DIR)).into_model_result()?;
        RepairReport { identity_lost, ..inspect(&disk, &engine, id)? }
    };
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
    let store = Store::start(open::open_locked(dir, lock, options, on_damage)?)?;
    report.repaired = !report.is_sound();
    report.scrub = Some(store.scrub(progress)?);
    store.close()?;
    Ok(report)
}

fn identify(dir: &Path, disk: &dyn Disk) -> Result<(StoreId, bool)> {
    match directory::read_identity(dir)? {
        Identity::Known(id) => return Ok((id, false)),
        Identity::Missing if dir.join(directory::RESTORING).exists() => return Err(directory::interrupted_error(dir)),
        Identity::Missing | Identity::Damaged => {}
    }
    let found = recover::store_of(disk).map_err(|e| error::io("reading the log", e))?;
    let unknown = || {
        let (dir, file) = (dir.display(), directory::IDENTITY_FILE);
        let message = format!("{dir} has no readable file {file}, and no log that says which store it is");
        Error::new(ErrorKind::Corrupt, format!("{message}: it is no store, or one to be restored from a backup"))
    };
    found.map(|id| (id, true)).ok_or_else(unknown)
}

fn check_tree(dir: &Path) -> Result<()> {
    let tree = dir.join(directory::TREE_DIR).join("data.mdb");
    if tree.exists() {
        return Ok(());
    }
    let message =
        format!("the B-tree is missing: there is no {}; put it back, or restore from a backup", tree.display());
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// Says what is damaged and what can be kept.
fn inspect(disk: &Arc<dyn Disk>, engine: &dyn Engine, id: StoreId) -> Result<RepairReport> {
    let Some(installed) = open::installed_seq(engine)? else {
        // Creating it was interrupted; the next opening begins again.
        return open::check_new(&**disk, &id).map(|()| RepairReport::default());
    };
    let files = open::blob_files(disk, engine)?;
    let mut last = installed;
    let view = View::new(Mob::new());
    let damage = recover::inspect(&**disk, id, installed, &mut |seq, payload| {
        last = seq;
        open::replay(&view, engine, &files, seq, payload)
    });
    let Some(damage) = damage.into_model_result()? else {
        return Ok(RepairReport { installed, kept: last, seen: last, ..RepairReport::default() });
    };
    let view = View::new(Mob::new());
    let mut replay = |seq, payload: &[u8]| open::replay(&view, engine, &files, seq, payload);
    let Salvaged { kept, seen } =
        recover::find_salvageable(&**disk, &id, installed, &mut replay).into_model_result()?;
    Ok(RepairReport { damage: Some(describe(damage)), installed, kept, seen, ..RepairReport::default() })
}

/// The damage without the advice that opening gives.
fn describe(damage: LogError) -> String {
    match damage {
        LogError::Damaged(damage) => damage.to_string(),
        other => StoreError::from(other).0.to_string(),
    }
}

/// Copies the segments that may be damaged; returns where to.
fn copy_damaged_segments(dir: &Path, disk: &dyn Disk, id: &StoreId, installed: u64) -> Result<PathBuf> {
    let segments = recover::segments_from(disk, id, installed + 1).into_model_result()?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs());
    let to = dir.join(format!("log-damaged-{seconds}"));
    let copy = || -> io::Result<()> {
        disk::create_private_dir(&to)?;
        for segment in segments {
            let name = Path::new(&segment).file_name().unwrap_or_default();
            fs::copy(dir.join(&segment), to.join(name))?;
            File::open(to.join(name))?.sync_all()?;
        }
        File::open(&to)?.sync_all()?;
        File::open(dir)?.sync_all()
    };
    copy().map_err(|e| error::io(&format!("copying the damaged log to {}", to.display()), e))?;
    Ok(to)
}
