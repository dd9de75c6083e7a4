//! The directory that is exported to, and the only code that writes below it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT};
use tokio::sync::mpsc;

use crate::failure::{Failure, Result};
use crate::tree::attributes::{Attributes, Mtime};

/// The permission bits that are restored. Set-user-id, set-group-id and sticky bits are not, because the owner is not restored.
const PERMISSIONS: u32 = 0o777;
/// Those of files and directories whose objects have none, less the umask.
const FILE_PERMISSIONS: u32 = 0o666;
const DIRECTORY_PERMISSIONS: u32 = 0o777;
/// The umask if the system does not tell it.
const PRIVATE_UMASK: u32 = 0o077;

/// Checks that a directory does not exist, is empty, or may be overwritten.
pub(crate) fn check_target(root: &Path, overwrite: bool) -> Result {
    let mut entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| Failure::file(root.display(), &e))?,
    };
    if !overwrite && entries.next().is_some() {
        return Err(Failure::usage(format!("{} is not empty", root.display()))
            .hint("Choose another directory, or replace what is there with --overwrite."));
    }
    Ok(())
}

/// The directory that is exported to.
pub(super) struct ExportDirectory {
    root: PathBuf,
    overwrite: bool,
    /// Directories that were checked to be directories and not links, and whether this export has made them.
    known_directories: Mutex<HashMap<PathBuf, bool>>,
    umask: u32,
    next_part: AtomicU64,
}

impl ExportDirectory {
    /// Creates the directory, or opens one that is empty or may be overwritten.
    pub(super) fn open(root: PathBuf, overwrite: bool) -> Result<Self> {
        let cannot = |error| Failure::file(format!("cannot export to {}", root.display()), &error);
        fs::create_dir_all(&root).map_err(cannot)?;
        let root = fs::canonicalize(&root).map_err(cannot)?;
        check_target(&root, overwrite)?;
        // If it was made just now, the umask applies to it already.
        let known_directories = Mutex::new(HashMap::from([(root.clone(), false)]));
        Ok(Self { root, overwrite, known_directories, umask: umask(), next_part: AtomicU64::new(0) })
    }

    /// The path of the directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Creates a directory below the root, with its parents, and checks that none of them is a link.
    pub(super) fn create_directory(&self, path: &Path) -> io::Result<()> {
        if self.known_directories.lock().unwrap_or_else(PoisonError::into_inner).contains_key(path) {
            return Ok(());
        }
        self.create_directory(path.parent().ok_or_else(|| io::Error::other("it is not below the root"))?)?;
        // It is private until it gets its own mode at the end.
        let is_made = match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(error),
        };
        if !fs::symlink_metadata(path)?.is_dir() {
            return Err(io::Error::other("something that is no directory is in the way"));
        }
        // Another thread may have found what this one has made.
        let mut known = self.known_directories.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(path.to_owned()).or_default() |= is_made;
        Ok(())
    }

    /// Writes a file from pieces. An empty piece ends it. A channel that closes without one means that the content is
    /// incomplete: then no file is left.
    pub(super) fn write_file(
        &self,
        path: &Path,
        attributes: &Attributes,
        mut pieces: mpsc::Receiver<Bytes>,
    ) -> io::Result<()> {
        let parent = path.parent().ok_or_else(|| io::Error::other("it is not below the root"))?;
        self.create_directory(parent)?;
        let part = self.part_path(parent);
        // It is private until it is complete.
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&part)?;
        let written = (|| {
            loop {
                match pieces.blocking_recv() {
                    Some(piece) if piece.is_empty() => break,
                    Some(piece) => file.write_all(&piece)?,
                    None => return Err(io::Error::other("the server did not send all of it")),
                }
            }
            let mode = attributes.mode.unwrap_or(FILE_PERMISSIONS & !self.umask);
            file.set_permissions(Permissions::from_mode(mode & PERMISSIONS))?;
            if let Some(mtime) = attributes.mtime {
                rustix::fs::futimens(&file, &times(mtime))?;
            }
            self.place(&part, path)
        })();
        if written.is_err() {
            // It is incomplete; an error of removing it would hide the first error.
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Makes a symbolic link.
    pub(super) fn create_link(&self, path: &Path, target: &[u8], attributes: &Attributes) -> io::Result<()> {
        let parent = path.parent().ok_or_else(|| io::Error::other("it is not below the root"))?;
        self.create_directory(parent)?;
        self.check_free(path)?;
        let part = self.part_path(parent);
        std::os::unix::fs::symlink(OsStr::from_bytes(target), &part)?;
        let made = (|| {
            if let Some(mtime) = attributes.mtime {
                rustix::fs::utimensat(CWD, &part, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?;
            }
            self.place(&part, path)
        })();
        if made.is_err() {
            let _ = fs::remove_file(&part);
        }
        made
    }

    /// Gives a complete file or link its name. Unless files may be replaced, none is, not even one that has just appeared.
    fn place(&self, part: &Path, path: &Path) -> io::Result<()> {
        self.check_free(path)?;
        if self.overwrite {
            return fs::rename(part, path);
        }
        match store::rename_new(part, path) {
            // The file system has neither a rename that replaces nothing nor hard links.
            Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) => {
                self.check_free(path)?;
                fs::rename(part, path)
            }
            renamed => renamed,
        }
    }

    /// Sets the mode and the time of a directory. One that existed before keeps its mode unless the object has another: it may be private.
    pub(super) fn finish_directory(&self, path: &Path, attributes: &Attributes) -> io::Result<()> {
        let known = self.known_directories.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied();
        let by_default = known.unwrap_or_default().then_some(DIRECTORY_PERMISSIONS & !self.umask);
        if let Some(mode) = attributes.mode.or(by_default) {
            fs::set_permissions(path, Permissions::from_mode(mode & PERMISSIONS))?;
        }
        match attributes.mtime {
            Some(mtime) => Ok(rustix::fs::utimensat(CWD, path, &times(mtime), AtFlags::SYMLINK_NOFOLLOW)?),
            None => Ok(()),
        }
    }

    /// Checks that `path` does not exist, or may be replaced.
    fn check_free(&self, path: &Path) -> io::Result<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(metadata) if self.overwrite && !metadata.is_dir() => Ok(()),
            Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "something is in the way")),
            Err(error) => Err(error),
        }
    }

    /// A name for an incomplete file.
    fn part_path(&self, directory: &Path) -> PathBuf {
        let number = self.next_part.fetch_add(1, Ordering::Relaxed);
        directory.join(format!(".mortar-part-{}-{number}", std::process::id()))
    }
}

/// The permission bits that new files of this process do not have.
fn umask() -> u32 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok()).unwrap_or(PRIVATE_UMASK)
}

/// Sets the time of change, and keeps the time of access.
fn times(mtime: Mtime) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: mtime.seconds, tv_nsec: mtime.nanoseconds.into() },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn pieces(all: &[&'static str]) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(all.len() + 1);
        for piece in all {
            sender.try_send(Bytes::from_static(piece.as_bytes())).unwrap();
        }
        receiver
    }

    #[test]
    fn file_is_complete_with_mode_and_time_or_does_not_exist() {
        let dir = tempfile::tempdir().unwrap();
        let place = ExportDirectory::open(dir.path().join("out"), false).unwrap();
        let path = place.root().join("a/b");
        let mtime = Mtime { seconds: 1000, nanoseconds: 7 };
        let attributes = Attributes { mode: Some(0o4640), mtime: Some(mtime), ..Attributes::default() };
        assert!(place.write_file(&path, &attributes, pieces(&["ab"])).is_err());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "no incomplete file is left");
        place.write_file(&path, &attributes, pieces(&["ab", "cd", ""])).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcd");
        assert_eq!((metadata.mode() & 0o7777, metadata.mtime(), metadata.mtime_nsec()), (0o640, 1000, 7));
    }

    #[test]
    fn what_has_no_mode_gets_that_of_the_umask_and_existing_directories_keep_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let [file, directory, root] = ["file", "directory", "out"].map(|name| dir.path().join(name));
        fs::write(&file, "").unwrap();
        fs::create_dir(&directory).unwrap();
        for (path, mode) in [(&root, 0o700), (&root.join("private"), 0o750)] {
            fs::create_dir(path).unwrap();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let place = ExportDirectory::open(root, true).unwrap();
        let [private, new] = ["private", "new"].map(|name| place.root().join(name));
        place.create_directory(&private).unwrap();
        let none = Attributes::default();
        let (sender, receiver) = mpsc::channel(1);
        let part_mode = std::thread::scope(|scope| {
            let writing = scope.spawn(|| place.write_file(&new.join("file"), &none, receiver));
            // The second piece has room when the first one was taken: the file exists then.
            for piece in ["x", "y"] {
                sender.blocking_send(Bytes::from_static(piece.as_bytes())).unwrap();
            }
            let part_mode = mode(&fs::read_dir(&new).unwrap().next().unwrap().unwrap().path());
            sender.blocking_send(Bytes::new()).unwrap();
            writing.join().unwrap().unwrap();
            part_mode
        });
        assert_eq!(part_mode, 0o600, "it is private until it is complete");
        [place.root(), &private, &new].into_iter().for_each(|path| place.finish_directory(path, &none).unwrap());
        assert_eq!((mode(place.root()), mode(&private)), (0o700, 0o750));
        assert_eq!((mode(&new), mode(&new.join("file"))), (mode(&directory), mode(&file)));
        place.finish_directory(&private, &Attributes { mode: Some(0o711), ..none }).unwrap();
        assert_eq!(mode(&private), 0o711);
    }

    #[test]
    fn links_out_of_the_root_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let place = ExportDirectory::open(dir.path().join("out"), true).unwrap();
        symlink(&outside, place.root().join("way")).unwrap();
        assert!(place.write_file(&place.root().join("way/file"), &Attributes::default(), pieces(&["x", ""])).is_err());
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    }

    #[test]
    fn existing_files_are_kept_unless_overwriting_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("out");
        let place = ExportDirectory::open(root.clone(), false).unwrap();
        fs::write(root.join("file"), "old").unwrap();
        assert!(place.write_file(&place.root().join("file"), &Attributes::default(), pieces(&["new", ""])).is_err());
        assert!(ExportDirectory::open(root.clone(), false).is_err(), "the directory is not empty any more");
        let place = ExportDirectory::open(root.clone(), true).unwrap();
        place.create_link(&place.root().join("file"), b"new", &Attributes::default()).unwrap();
        assert_eq!(fs::read_link(root.join("file")).unwrap(), Path::new("new"));
    }
}
