//! The directory of a store: permissions, the lock against other processes, and the identity.
//!
//! ```text
//! STORE      format and identity        tree/     the B-tree
//! LOCK       locked while it is open    log/      segments
//!                                       blobs/    blob files
//! ```
//!
//! Directories have mode 0700 and files 0600, independent of the umask. A directory that other users can enter is
//! refused unless [`Options::allow_loose_permissions`](crate::Options::allow_loose_permissions) is set.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use model::{Error, ErrorKind, Result};

use crate::checksum::crc32c;
use crate::disk::{create_private_dir, private_file};
use crate::error::{self, invalid};
use crate::log::frame::StoreId;
use crate::plant::{FaultBug, RecoveryBug, planted};

/// The file with format and identity.
pub(crate) const IDENTITY_FILE: &str = "STORE";
/// The file that says that a backup is being restored into the directory.
pub(crate) const RESTORING: &str = "RESTORING";
pub(crate) const LOCK_FILE: &str = "LOCK";
/// How often a directory is locked before it counts as open elsewhere, and the pause between.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// The size of a lock file, at most.
const MAX_LOCK_BYTES: u64 = 16;
pub(crate) const TREE_DIR: &str = crate::engine::tree::DIR;
/// The identity before it is complete.
const NEW_IDENTITY_FILE: &str = "STORE.new";
/// What `mkfs` leaves in the root of a file system.
const LOST_AND_FOUND: &str = "lost+found";
const PRODUCT: &str = "mortar store ";
const FORMAT: &str = "mortar store 3";
/// The permission bits of group and others.
const OTHERS: u32 = 0o077;

/// The contents of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryContents {
    /// The directory does not exist.
    Missing,
    /// Nothing, or only the remains of a creation that was interrupted before the store had an identity.
    Empty,
    /// A store, possibly damaged.
    Store,
    /// An interrupted restore.
    InterruptedRestore,
    /// Other contents: the name of one entry.
    Other(String),
}

impl DirectoryContents {
    /// Determines the contents of a directory. Changes nothing and needs no lock.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the directory cannot be read.
    pub fn of(dir: &Path) -> Result<Self> {
        let fail = |e: io::Error| error::io(&format!("reading {}", dir.display()), e);
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::Missing),
            Err(e) => return Err(fail(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.map_err(fail)?.file_name());
        }
        let has = |name: &str| names.iter().any(|known| known == name);
        if has(IDENTITY_FILE) {
            return Ok(Self::Store);
        }
        if has(RESTORING) {
            return Ok(Self::InterruptedRestore);
        }
        if has(TREE_DIR) && has(crate::log::DIR) {
            return Ok(Self::Store);
        }
        names.sort();
        let is_ours = |name: &str| match name {
            LOCK_FILE => is_lock(&dir.join(name)),
            _ => [NEW_IDENTITY_FILE, LOST_AND_FOUND].contains(&name),
        };
        let names = names.into_iter().map(|name| name.to_string_lossy().into_owned());
        Ok(names.into_iter().find(|name| !is_ours(name)).map_or(Self::Empty, Self::Other))
    }
}

/// Creates a directory for data with its parents, unless it exists. Checks that only its owner can enter it; an empty
/// directory gets that mode.
///
/// # Errors
/// [`ErrorKind::Denied`] if group or others have any permission, unless `allow_loose_permissions` is set;
/// [`ErrorKind::Io`] if the directory cannot be created or read.
pub fn prepare_directory(dir: &Path, allow_loose_permissions: bool) -> Result<()> {
    create_private_dir(dir).map_err(|e| error::io(&format!("creating {}", dir.display()), e))?;
    let fail = |e: io::Error| error::io(&format!("reading the permissions of {}", dir.display()), e);
    let mode = fs::metadata(dir).map_err(fail)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 || allow_loose_permissions {
        return Ok(());
    }
    let is_empty = DirectoryContents::of(dir)? == DirectoryContents::Empty;
    if is_empty && fs::set_permissions(dir, Permissions::from_mode(mode & !OTHERS)).is_ok() {
        return Ok(());
    }
    let dir = dir.display();
    let message = format!(
        "the data directory {dir} has mode {mode:04o}: other users of this machine may read the data; run \
         `chmod -R go-rwx {dir}`"
    );
    Err(Error::new(ErrorKind::Denied, message))
}

/// The ID of the process that has the store open, or had it open last.
#[must_use]
pub fn lock_owner(dir: &Path) -> Option<u32> {
    read_lock(&dir.join(LOCK_FILE))?.trim().parse().ok()
}

/// The content of a lock file; `None` if it cannot be read or is longer than that of a lock.
fn read_lock(path: &Path) -> Option<String> {
    let mut content = String::new();
    File::open(path).and_then(|file| file.take(MAX_LOCK_BYTES + 1).read_to_string(&mut content)).ok()?;
    Some(content).filter(|content| content.len() as u64 <= MAX_LOCK_BYTES)
}

/// Whether a file of this name is the lock of a store: it has the number of a process, or nothing.
fn is_lock(path: &Path) -> bool {
    read_lock(path).is_some_and(|content| content.is_empty() || content.trim().parse::<u32>().is_ok())
}

/// Locks the directory until the file is closed.
///
/// A process that has just been killed has its lock a moment longer, and so has a child that its process starts, until the child runs its program: a
/// lock that another has is tried again, [`LOCK_TRIES`] times in all.
pub(crate) fn lock(dir: &Path) -> Result<File> {
    lock_pausing(dir, || thread::sleep(LOCK_PAUSE))
}

/// [`lock`], which calls `pause` before each further try.
fn lock_pausing(dir: &Path, mut pause: impl FnMut()) -> Result<File> {
    let path = dir.join(LOCK_FILE);
    let fail = |e: io::Error| error::io(&format!("locking {}", dir.display()), e);
    let mut file = private_file().create(true).truncate(false).open(&path).map_err(fail)?;
    let try_lock = || rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    let mut locked = try_lock();
    for _ in 1..LOCK_TRIES {
        if locked != Err(rustix::io::Errno::WOULDBLOCK) || planted(FaultBug::DirectoryNotLocked) {
            break;
        }
        pause();
        locked = try_lock();
    }
    match locked {
        Err(rustix::io::Errno::WOULDBLOCK) if planted(FaultBug::DirectoryNotLocked) => {}
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            // The process ID is only for the message.
            let who = lock_owner(dir).map(|process| format!(", process {process}")).unwrap_or_default();
            let message =
                format!("{} is open in another server{who}; stop that one, or use another directory", dir.display());
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        Err(e) => return Err(fail(e.into())),
    }
    if !is_at(&file, &path) {
        let message = format!("{} was removed while this process waited for its lock; try again", dir.display());
        return Err(Error::new(ErrorKind::Unavailable, message));
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(fail)?;
    writeln!(file, "{}", std::process::id()).map_err(fail)?;
    Ok(file)
}

/// Whether an open file still has this path. If another process removes the lock file, a third process can create a new file at the path and lock
/// that one. The lock on the removed file then does not keep the third process out, so the caller must lock the new file.
fn is_at(file: &File, path: &Path) -> bool {
    let identify = |about: Metadata| (about.dev(), about.ino());
    file.metadata().map(identify).ok() == fs::metadata(path).map(identify).ok()
}

/// The identity file.
pub(crate) enum Identity {
    Known(StoreId),
    Missing,
    Damaged,
}

pub(crate) fn read_identity(dir: &Path) -> Result<Identity> {
    let path = dir.join(IDENTITY_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Identity::Missing),
        Err(e) => return Err(error::io(&format!("reading {}", path.display()), e)),
    };
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with(PRODUCT) && first != FORMAT {
        let message =
            format!("{} says {first:?}; this version reads {FORMAT:?}: use the version that wrote it", path.display());
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    Ok(parse_identity(&text).map_or(Identity::Damaged, Identity::Known))
}

/// The identity of the store; creates one in an empty directory.
pub(crate) fn load_or_create_identity(dir: &Path) -> Result<StoreId> {
    let lost = |how: &str| {
        let dir = dir.display();
        let message =
            format!("{dir} is a store, but its file {IDENTITY_FILE} is {how}; `mortar repair` can write it again");
        Error::new(ErrorKind::Corrupt, message)
    };
    match read_identity(dir)? {
        Identity::Known(id) => Ok(id),
        Identity::Damaged => Err(lost("damaged")),
        // A restore writes the identity last, and the creation of a store writes it first.
        Identity::Missing if DirectoryContents::of(dir)? == DirectoryContents::Store => Err(lost("missing")),
        Identity::Missing => create_identity(dir),
    }
}

/// Parses the identity file, which must be exactly as it was written.
fn parse_identity(text: &str) -> Option<StoreId> {
    let id = text.lines().nth(1)?.strip_prefix("id ")?;
    let id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
    (identity_text(&id) == text || planted(RecoveryBug::IdentityNotChecked)).then_some(id)
}

fn identity_text(id: &StoreId) -> String {
    let text = format!("{FORMAT}\nid {:032x}\n", u128::from_be_bytes(*id));
    let check = crc32c(text.as_bytes());
    format!("{text}check {check:08x}\n")
}

/// Refuses a directory with contents other than a store.
pub(crate) fn check_no_other_contents(dir: &Path) -> Result<()> {
    match DirectoryContents::of(dir)? {
        DirectoryContents::Missing | DirectoryContents::Empty | DirectoryContents::Store => Ok(()),
        DirectoryContents::InterruptedRestore if planted(RecoveryBug::InterruptedRestoreOpened) => Ok(()),
        DirectoryContents::InterruptedRestore => Err(interrupted_error(dir)),
        DirectoryContents::Other(name) => {
            let dir = dir.display();
            Err(invalid(format!("{dir} is not a store and not empty: it contains {name:?}; choose another directory")))
        }
    }
}

/// The error for a directory with an interrupted restore.
pub(crate) fn interrupted_error(dir: &Path) -> Error {
    let dir = dir.display();
    invalid(format!("{dir} is not a store: restoring a backup into it was interrupted; remove it and restore again"))
}

fn create_identity(dir: &Path) -> Result<StoreId> {
    check_no_other_contents(dir)?;
    let fail = |e: io::Error| error::io(&format!("creating a store in {}", dir.display()), e);
    let id = new_identity().map_err(fail)?;
    write_identity(dir, &id).map_err(fail)?;
    Ok(id)
}

/// A new random identity.
pub(crate) fn new_identity() -> io::Result<StoreId> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

/// Writes the identity, which turns a directory into a store.
pub(crate) fn write_identity(dir: &Path, id: &StoreId) -> io::Result<()> {
    let new = dir.join(NEW_IDENTITY_FILE);
    let mut file = private_file().create(true).truncate(true).open(&new)?;
    file.write_all(identity_text(id).as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, dir.join(IDENTITY_FILE))?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests;
