//! The changes of a restore: archives of changes, by which the stores are rolled forward to a later moment.
//!
//! The parts of each brick are kept in one file of the target until the store before them is restored, each as pieces with their lengths before them,
//! and an empty piece at its end. All are verified before the first one is applied.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use meta::MetaSnapshot;
use model::{Error, ErrorKind, Result};
use store::{Amount, Options, Progress, RestoreTarget, RollForward, Store, check_changes};

use super::increments::{remove_files, unreadable};
use super::{ArchiveInput, of_archive};
use crate::catalogue_archive;
use crate::cluster_archive::{ArchiveFormat, ArchiveHeader, ClusterArchiveReader, Item, Part, PartName};

/// The directory of the files in the target.
const DIR: &str = "changes";

/// The changes of all bricks.
#[derive(Default)]
pub(super) struct KeptChanges {
    bricks: BTreeMap<PartName, BrickChanges>,
    catalogue: Option<Vec<u8>>,
    archives: u64,
    bytes: u64,
}

struct BrickChanges {
    path: PathBuf,
    file: BufWriter<File>,
    archives: u64,
}

/// Archives of changes after the last archive of a state, in order, each with its time in microseconds since 1970.
pub type ChangesInput<'a> = Box<dyn Iterator<Item = Result<(i64, ArchiveInput<'a>)>> + 'a>;

/// The archives of changes after the archive of a state, in order. Each has the one before it as its base.
pub struct ChangesChain {
    /// The last archive, and its name.
    last: ArchiveHeader,
    name: String,
}

impl ChangesChain {
    /// Begins after an archive.
    #[must_use]
    pub fn after(name: &str, header: ArchiveHeader) -> Self {
        Self { last: header, name: name.to_owned() }
    }

    /// Begins to read the next archive, which was chosen by its time in microseconds since 1970. Returns its name, too.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it is not the next one, and as [`ClusterArchiveReader::begin`].
    pub fn begin<'a>(
        &mut self,
        time_us: i64,
        ArchiveInput { name, bytes }: ArchiveInput<'a>,
    ) -> Result<(String, ClusterArchiveReader<Box<dyn Read + 'a>>)> {
        let begun = ClusterArchiveReader::begin(bytes).map_err(|error| of_archive(&name, error))?;
        let ArchiveFormat::Cluster(reader, head) = begun else { return Err(not_changes(&name)) };
        if !head.is_changes {
            return Err(not_changes(&name));
        }
        // The time by which it was chosen may be outside of an encrypted archive.
        if head.id.time_us != time_us {
            let what = format!("{name} was taken {}, and not then", head.id);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        if head.base != Some(self.last.id) {
            let what = format!("{name} does not follow {}: changes between them are missing", self.name);
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        (self.last, self.name) = (head, name.clone());
        Ok((name, reader))
    }
}

impl KeptChanges {
    /// Reads archives of changes, of which each has the one before it as its base, and the first one the archive `before`. Returns them.
    pub(super) fn read(
        target: &mut RestoreTarget,
        before: (&str, ArchiveHeader),
        inputs: ChangesInput<'_>,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let (mut changes, mut moments) = (Self::default(), ChangesChain::after(before.0, before.1));
        let mut dir = None;
        for input in inputs {
            let (time_us, input) = input?;
            let (name, reader) = moments.begin(time_us, input)?;
            let dir = match &dir {
                Some(dir) => dir,
                None => dir.insert(make_dir(target)?),
            };
            changes.read_one(dir, &name, reader, progress)?;
        }
        changes.flush()?;
        Ok(changes)
    }

    fn read_one(
        &mut self,
        dir: &Path,
        name: &str,
        mut reader: ClusterArchiveReader<impl Read>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut open: BTreeMap<Part, PartName> = BTreeMap::new();
        self.archives += 1;
        while let Some(item) = reader.next_item().map_err(|error| of_archive(name, error))? {
            match item {
                Item::Begin(part, of) => {
                    open.insert(part, of);
                    match of {
                        PartName::Catalogue => self.catalogue = Some(Vec::new()),
                        of => self.begin_part(dir, name, of)?,
                    }
                }
                Item::Bytes(part, bytes) => match open.get(&part) {
                    Some(PartName::Catalogue) => self.add_to_catalogue(&bytes)?,
                    Some(of) => self.add(*of, &bytes)?,
                    None => {}
                },
                Item::End(part) => {
                    if let Some(of) = open.remove(&part).filter(|of| *of != PartName::Catalogue) {
                        self.add(of, &[])?;
                    }
                }
            }
            let amount = Amount { bytes: self.bytes + reader.bytes_read(), ..Amount::default() };
            if progress.report(amount).is_break() {
                return Err(Error::new(ErrorKind::Unavailable, "the restore was stopped"));
            }
        }
        self.bytes += reader.bytes_read();
        Ok(())
    }

    fn begin_part(&mut self, dir: &Path, name: &str, brick: PartName) -> Result<()> {
        let before = self.archives - 1;
        let known = match self.bricks.entry(brick) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let path = dir.join(brick.to_string());
                let mut options = OpenOptions::new();
                let file = options.write(true).create_new(true).mode(0o600).open(&path);
                let file = BufWriter::new(file.map_err(|error| unreadable(&path, error))?);
                new.insert(BrickChanges { path, file, archives: 0 })
            }
        };
        if known.archives != before {
            return Err(Error::new(ErrorKind::Invalid, format!("archives before {name} lack {brick}")));
        }
        known.archives += 1;
        Ok(())
    }

    /// Writes a piece; an empty one ends an archive.
    fn add(&mut self, brick: PartName, piece: &[u8]) -> Result<()> {
        let Some(BrickChanges { path, file, .. }) = self.bricks.get_mut(&brick) else { return Ok(()) };
        // A payload of an archive has at most 1 MiB.
        let written = file.write_all(&(piece.len() as u32).to_le_bytes()).and_then(|()| file.write_all(piece));
        written.map_err(|error| unreadable(path, error))
    }

    fn add_to_catalogue(&mut self, bytes: &Bytes) -> Result<()> {
        let all = self.catalogue.get_or_insert_default();
        if all.len() + bytes.len() > catalogue_archive::MAX_BYTES {
            return Err(Error::new(ErrorKind::TooLarge, "the catalogue in the archive is too large"));
        }
        all.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.bricks.values_mut().try_for_each(|BrickChanges { path, file, .. }| {
            let flushed = file.flush();
            flushed.map_err(|error| unreadable(path, error))
        })
    }

    /// Bytes of the archives.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file of a brick that was restored; `None` without changes.
    pub(super) fn of_part(&self, brick: PartName) -> Result<Option<PathBuf>> {
        match self.bricks.get(&brick) {
            Some(known) if known.archives == self.archives => Ok(Some(known.path.clone())),
            None if self.archives == 0 => Ok(None),
            _ => Err(Error::new(ErrorKind::Invalid, format!("archives of changes lack {brick}"))),
        }
    }

    /// Checks that they have no brick beyond these.
    pub(super) fn check_bricks(&self, restored: &[PartName]) -> Result<()> {
        match self.bricks.keys().find(|brick| !restored.contains(brick)) {
            None => Ok(()),
            Some(brick) => {
                let what = format!("archives of changes have {brick}, and the archive before them does not");
                Err(Error::new(ErrorKind::Invalid, what))
            }
        }
    }

    /// The newest catalogue; `before` is that of the archives before.
    pub(super) fn catalogue_or(&self, before: Option<MetaSnapshot>) -> Result<Option<MetaSnapshot>> {
        match &self.catalogue {
            None => Ok(before),
            Some(all) => catalogue_archive::decode(all).map(Some),
        }
    }
}

/// It comes from a journal, in which there is nothing else.
fn not_changes(name: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{name} is damaged: it does not begin as an archive of changes does"))
}

/// Removes the files, when all stores are restored.
pub(super) fn remove(dir: &Path) -> Result<()> {
    remove_files(&dir.join(DIR))
}

fn make_dir(target: &mut RestoreTarget) -> Result<PathBuf> {
    let dir = target.place(DIR);
    DirBuilder::new().mode(0o700).create(&dir).map_err(|error| unreadable(&dir, error))?;
    Ok(dir)
}

/// The archives of changes of a brick, in a file.
pub(super) struct ChangesFile {
    path: PathBuf,
    /// The position of the last one.
    pub(super) position: u64,
}

impl ChangesFile {
    /// Verifies all archives in a file.
    pub(super) fn check(path: PathBuf) -> Result<Self> {
        let mut position = 0;
        for_each_archive(&path, |archive| {
            position = check_changes(archive)?;
            Ok(())
        })?;
        Ok(Self { path, position })
    }

    /// Applies all archives to the store in a directory.
    pub(super) fn apply(&self, place: &Path, options: &Options, go_on: impl Fn() -> bool) -> Result<()> {
        let store = Store::open(place, options.clone())?;
        let mut forward = RollForward::begin(&store);
        for_each_archive(&self.path, |archive| match go_on() {
            true => forward.apply(archive),
            false => Err(Error::new(ErrorKind::Unavailable, "the restore was stopped")),
        })?;
        forward.finish()?;
        store.close()
    }
}

fn for_each_archive(path: &Path, mut show: impl FnMut(&mut dyn Read) -> Result<()>) -> Result<()> {
    let file = File::open(path).map_err(|error| unreadable(path, error))?;
    let mut from = BufReader::with_capacity(1 << 18, file);
    while !from.fill_buf().map_err(|error| unreadable(path, error))?.is_empty() {
        show(&mut Pieces { from: &mut from, left: 0, has_ended: false })?;
    }
    Ok(())
}

/// The bytes of one archive.
struct Pieces<'a, R> {
    from: &'a mut R,
    /// Bytes of the piece that were not read yet.
    left: usize,
    has_ended: bool,
}

impl<R: Read> Read for Pieces<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.has_ended {
            let mut len = [0; 4];
            self.from.read_exact(&mut len)?;
            self.left = u32::from_le_bytes(len) as usize;
            self.has_ended = self.left == 0;
        }
        let wanted = self.left.min(into.len());
        let read = self.from.read(&mut into[..wanted])?;
        self.left -= read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brick_that_archives_of_changes_lack_is_not_restored_to_an_earlier_moment() {
        let brick = PartName::Brick(1);
        assert_eq!(KeptChanges::default().of_part(brick).unwrap(), None);
        let changes = KeptChanges { archives: 2, ..KeptChanges::default() };
        assert_eq!(changes.of_part(brick).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
