//! The increments of a restore: their parts are kept in files of the target until the parts of the first archive are read, so that all archives
//! can be pipes, and each is read once.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use meta::MetaSnapshot;
use model::{Error, ErrorKind, Result};
use store::{Amount, Progress, RestoreTarget};

use super::{ArchiveInput, no_cluster_archive, of_archive};
use crate::catalogue_archive;
use crate::cluster_archive::{ArchiveFormat, ArchiveHeader, ClusterArchiveReader, Item, Part, PartName};

/// The directory of the files in the target.
const DIR: &str = "increments";

/// The parts of all increments, in the order of the increments.
#[derive(Default)]
pub(super) struct Increments {
    archives: Vec<IncrementParts>,
    bytes: u64,
}

struct IncrementParts {
    name: String,
    /// The bricks, in the order of the archive.
    bricks: Vec<PartName>,
    files: BTreeMap<PartName, PathBuf>,
}

impl Increments {
    /// Reads the increments of a first archive, each of which must have the one before it as its base. Returns also the name and the head of the last
    /// archive.
    pub(super) fn read(
        target: &mut RestoreTarget,
        first: (&str, ArchiveHeader),
        inputs: Vec<ArchiveInput<'_>>,
        progress: &dyn Progress,
    ) -> Result<(Self, (String, ArchiveHeader))> {
        let mut increments = Self::default();
        if inputs.is_empty() {
            return Ok((increments, (first.0.to_owned(), first.1)));
        }
        let dir = target.place(DIR);
        DirBuilder::new().mode(0o700).create(&dir).map_err(|e| unreadable(&dir, e))?;
        let (mut before, mut last) = (first.0.to_owned(), first.1);
        for ArchiveInput { name, bytes } in inputs {
            let begun = ClusterArchiveReader::begin(bytes).map_err(|error| of_archive(&name, error))?;
            let ArchiveFormat::Cluster(reader, head) = begun else { return Err(no_cluster_archive(&name)) };
            check_base(&name, &head, &before, &last)?;
            increments.read_one(&dir, name.clone(), reader, progress)?;
            (before, last) = (name, head);
        }
        Ok((increments, (before, last)))
    }

    fn read_one(
        &mut self,
        dir: &Path,
        name: String,
        mut reader: ClusterArchiveReader<impl io::Read>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let number = self.archives.len();
        let mut parts = IncrementParts { name: name.clone(), bricks: Vec::new(), files: BTreeMap::new() };
        let mut open: BTreeMap<Part, (PathBuf, File)> = BTreeMap::new();
        while let Some(item) = reader.next_item().map_err(|error| of_archive(&name, error))? {
            match item {
                Item::Begin(part, name) => {
                    let path = dir.join(format!("{number}-{name}"));
                    let mut options = OpenOptions::new();
                    let file = options.write(true).create_new(true).mode(0o600).open(&path);
                    open.insert(part, (path.clone(), file.map_err(|e| unreadable(&path, e))?));
                    if name != PartName::Catalogue {
                        parts.bricks.push(name);
                    }
                    parts.files.insert(name, path);
                }
                Item::Bytes(part, bytes) => {
                    if let Some((path, file)) = open.get_mut(&part) {
                        file.write_all(&bytes).map_err(|e| unreadable(path, e))?;
                    }
                }
                Item::End(part) => drop(open.remove(&part)),
            }
            let amount = Amount { bytes: self.bytes + reader.bytes_read(), ..Amount::default() };
            if progress.report(amount).is_break() {
                return Err(Error::new(ErrorKind::Unavailable, "the restore was stopped"));
            }
        }
        self.bytes += reader.bytes_read();
        self.archives.push(parts);
        Ok(())
    }

    /// Bytes of the increments.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bricks of the last archive, if it is an increment.
    pub(super) fn bricks(&self) -> &[PartName] {
        self.archives.last().map_or(&[], |last| &last.bricks)
    }

    /// The place of a brick in the last archive, if that is an increment.
    pub(super) fn order_of(&self, brick: PartName) -> Option<usize> {
        self.bricks().iter().position(|name| *name == brick)
    }

    /// The files of a brick, or `None` if the last archive does not have it. All increments have a brick that the first archive has, and all after
    /// the first that has it.
    pub(super) fn of_part(&self, brick: PartName, has_base: bool) -> Result<Option<Vec<PathBuf>>> {
        if !self.archives.is_empty() && self.order_of(brick).is_none() {
            return Ok(None);
        }
        let (mut files, mut has_begun) = (Vec::new(), has_base);
        for archive in &self.archives {
            match archive.files.get(&brick) {
                Some(file) => {
                    has_begun = true;
                    files.push(file.clone());
                }
                None if has_begun => {
                    // It left, and joined again: it has nothing from before.
                    let what = format!("{} lacks {brick}, which later archives have: make a full backup", archive.name);
                    return Err(Error::new(ErrorKind::Invalid, what));
                }
                None => {}
            }
        }
        Ok(Some(files))
    }

    /// The catalogue of the last archive; `first` is that of the first one.
    pub(super) fn catalogue_or(&self, first: Option<MetaSnapshot>) -> Result<Option<MetaSnapshot>> {
        let Some(last) = self.archives.last() else { return Ok(first) };
        let Some(path) = last.files.get(&PartName::Catalogue) else { return Ok(None) };
        let len = fs::metadata(path).map_err(|e| unreadable(path, e))?.len();
        if len > catalogue_archive::MAX_BYTES as u64 {
            return Err(Error::new(ErrorKind::TooLarge, "the catalogue in the archive is too large"));
        }
        let decoded = catalogue_archive::decode(&fs::read(path).map_err(|e| unreadable(path, e))?);
        decoded.map(Some).map_err(|error| of_archive(&last.name, error))
    }
}

fn check_base(name: &str, head: &ArchiveHeader, before: &str, last: &ArchiveHeader) -> Result<()> {
    let what = match head.base {
        Some(_) if head.is_changes => format!("{name} is an archive of changes, of a backup that follows the cluster"),
        Some(base) if base == last.id => return Ok(()),
        Some(base) => format!("{name} is an increment of archive {base}, but {before} is archive {}", last.id),
        None => format!("{name} is a full archive: restore it without {before}"),
    };
    Err(Error::new(
        ErrorKind::Invalid,
        format!("{what}; name a full archive and its increments in the order in which they were taken"),
    ))
}

/// Removes the files, when all stores are restored.
pub(super) fn remove(dir: &Path) -> Result<()> {
    remove_files(&dir.join(DIR))
}

/// Removes a directory of files in the target.
pub(super) fn remove_files(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unreadable(dir, error)),
        _ => Ok(()),
    }
}

pub(super) fn unreadable(path: &Path, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {error}", path.display())).with_source(error)
}
