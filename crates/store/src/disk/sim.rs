//! A disk in memory that loses and tears unforced data.
//!
//! A crash keeps the forced bytes of every file and, sector by sector, either the forced or the newest bytes. Of every
//! directory it keeps the forced names and a prefix of the later changes. Files share their pages, so an image of the
//! whole disk is cheap, and each crash point of a run can be tried with many outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Disk, DiskFile};

const SECTOR: usize = 512;
const PAGE: usize = 8 * SECTOR;

/// The bytes of a file, in pages that images of the disk share.
#[derive(Clone, Default)]
struct FileBytes {
    len: usize,
    /// `None` reads as zeros.
    pages: Vec<Option<Arc<[u8; PAGE]>>>,
}

impl FileBytes {
    fn resize(&mut self, len: usize) {
        assert!(len >= self.len, "files only grow");
        self.len = len;
        self.pages.resize(len.div_ceil(PAGE), None);
    }

    fn write(&mut self, mut at: usize, mut bytes: &[u8]) {
        self.resize(self.len.max(at + bytes.len()));
        while !bytes.is_empty() {
            let from = at % PAGE;
            let (piece, rest) = bytes.split_at((PAGE - from).min(bytes.len()));
            let page = &mut self.pages[at / PAGE];
            if page.is_some() || piece.iter().any(|b| *b != 0) {
                let page = Arc::make_mut(page.get_or_insert_with(|| Arc::new([0; PAGE])));
                page[from..from + piece.len()].copy_from_slice(piece);
            }
            (at, bytes) = (at + piece.len(), rest);
        }
    }

    fn read(&self, mut at: usize, mut out: &mut [u8]) -> bool {
        if at.checked_add(out.len()).is_none_or(|end| end > self.len) {
            return false;
        }
        while !out.is_empty() {
            let from = at % PAGE;
            let (piece, rest) = out.split_at_mut((PAGE - from).min(out.len()));
            match &self.pages[at / PAGE] {
                Some(page) => piece.copy_from_slice(&page[from..from + piece.len()]),
                None => piece.fill(0),
            }
            (at, out) = (at + piece.len(), rest);
        }
        true
    }

    /// Copies one sector from a newer state of the same file.
    fn take_sector(&mut self, newer: &Self, sector: usize) {
        let from = sector * SECTOR;
        let to = (from + SECTOR).min(newer.len);
        if from < to {
            let mut bytes = [0; SECTOR];
            newer.read(from, &mut bytes[..to - from]);
            self.write(from, &bytes[..to - from]);
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }
}

/// One file: its durable bytes, and its bytes as the operating system shows them.
#[derive(Clone, Default)]
struct FileState {
    durable: FileBytes,
    current: FileBytes,
    /// Sectors in which the two may differ.
    dirty: BTreeSet<usize>,
}

/// A change of names.
#[derive(Clone)]
enum NameChange {
    Create(String, usize),
    Rename(String, String),
    Remove(String),
}

impl NameChange {
    fn dir(&self) -> &str {
        let (Self::Create(name, _) | Self::Rename(name, _) | Self::Remove(name)) = self;
        name.split('/').next().unwrap_or_default()
    }

    fn apply(&self, names: &mut BTreeMap<String, usize>) -> bool {
        match self {
            Self::Create(name, index) => {
                names.insert(name.clone(), *index);
                true
            }
            Self::Rename(from, to) => match names.remove(from) {
                Some(index) => {
                    names.insert(to.clone(), index);
                    true
                }
                None => false,
            },
            Self::Remove(name) => names.remove(name).is_some(),
        }
    }
}

#[derive(Clone, Default)]
struct DiskState {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Unforced changes of names, in order.
    unforced_names: Vec<NameChange>,
    /// Bytes that may be written until the device is full.
    free_bytes: Option<usize>,
    /// Changes of the disk until all further ones fail, as after a crash.
    steps_until_failure: Option<usize>,
    steps: usize,
    /// A planted bug: forcing does nothing.
    ignores_force: bool,
}

/// Called with an image of the disk after every change.
type ImageCallback = Box<dyn FnMut(SimDisk) + Send>;

/// The simulated disk; clones share it.
#[derive(Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<DiskState>>,
    watch: Arc<Mutex<Option<ImageCallback>>>,
}

struct SimFile {
    disk: SimDisk,
    index: usize,
}

impl SimDisk {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The number of changes of the disk so far.
    pub(crate) fn steps(&self) -> usize {
        self.state.lock().steps
    }

    /// Lets the next `steps` changes succeed and every later one fail.
    pub(crate) fn stop_after(&self, steps: usize) {
        self.state.lock().steps_until_failure = Some(steps);
    }

    /// Limits further writes to `bytes`.
    pub(crate) fn set_free_bytes(&self, bytes: Option<usize>) {
        self.state.lock().free_bytes = bytes;
    }

    /// Plants a bug: from now on forces succeed without effect.
    #[cfg(test)]
    pub(crate) fn ignore_forces(&self) {
        self.state.lock().ignores_force = true;
    }

    /// Calls `watch` with an image of the disk after every change from now on.
    #[cfg(test)]
    pub(crate) fn watch(&self, watch: impl FnMut(Self) + Send + 'static) {
        *self.watch.lock() = Some(Box::new(watch));
    }

    /// A copy of the disk as it is, including unforced bytes.
    pub(crate) fn image(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.state.lock().clone())), watch: Arc::default() }
    }

    /// A possible state of the disk after a power failure at this moment.
    pub(crate) fn crash(&self, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut state = self.state.lock().clone();
        // The part of the unforced data that reaches the disk: all, nothing, or a random part.
        let kept: f64 = match random.random_range(0..4) {
            0 => 0.0,
            1 => 1.0,
            _ => random.random(),
        };
        for file in &mut state.files {
            for sector in std::mem::take(&mut file.dirty) {
                if random.random_bool(kept) {
                    file.durable.take_sector(&file.current, sector);
                }
            }
            file.current = file.durable.clone();
        }
        let unforced = std::mem::take(&mut state.unforced_names);
        let dirs: BTreeSet<&str> = unforced.iter().map(NameChange::dir).collect();
        for dir in dirs {
            let changes: Vec<_> = unforced.iter().filter(|naming| naming.dir() == dir).collect();
            let kept = match random.random_range(0..3) {
                0 => 0,
                1 => changes.len(),
                _ => random.random_range(0..=changes.len()),
            };
            for naming in &changes[..kept] {
                naming.apply(&mut state.durable_names);
            }
        }
        state.names.clone_from(&state.durable_names);
        state.free_bytes = None;
        state.steps_until_failure = None;
        Self { state: Arc::new(Mutex::new(state)), watch: Arc::default() }
    }

    /// The disk after the process has stopped and the machine has not: nothing is lost, and nothing more is durable.
    #[cfg(test)]
    pub(crate) fn crash_of_process(&self) -> Self {
        let image = self.image();
        image.state.lock().steps_until_failure = None;
        image
    }

    /// Changes bytes of a file, as a failing device would.
    #[cfg(test)]
    pub(crate) fn damage(&self, name: &str, offset: usize, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        let index = state.names[name];
        let file = &mut state.files[index];
        let mut bytes = file.current.to_vec();
        change(&mut bytes[offset..]);
        file.current.write(0, &bytes);
        file.durable = file.current.clone();
        file.dirty.clear();
    }

    /// Cuts a file, as a failed copy would.
    #[cfg(test)]
    pub(crate) fn cut(&self, name: &str, len: usize) {
        let mut state = self.state.lock();
        let index = state.names[name];
        let (mut bytes, mut cut) = (state.files[index].current.to_vec(), FileBytes::default());
        bytes.truncate(len);
        cut.write(0, &bytes);
        state.files[index] = FileState { durable: cut.clone(), current: cut, dirty: BTreeSet::new() };
    }

    /// A checksum of all names and files as they are now.
    pub(crate) fn digest(&self) -> u32 {
        let state = self.state.lock();
        state.names.iter().fold(0, |digest, (name, index)| {
            let bytes = state.files[*index].current.to_vec();
            let len = (bytes.len() as u64).to_le_bytes();
            crate::checksum::crc32c_parts(&[&u32::to_le_bytes(digest)[..], name.as_bytes(), &len, &bytes])
        })
    }

    /// The bytes of a file.
    #[cfg(test)]
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[state.names[name]].current.to_vec()
    }

    /// Counts a change and fails once the machine has stopped: for components outside of the disk.
    pub(crate) fn count_change(&self) -> io::Result<()> {
        self.change(|_| Ok(()))
    }

    fn change<T>(&self, change: impl FnOnce(&mut DiskState) -> io::Result<T>) -> io::Result<T> {
        let result = {
            let mut state = self.state.lock();
            if let Some(fuse) = &mut state.steps_until_failure {
                if *fuse == 0 {
                    return Err(io::Error::other("the machine has stopped"));
                }
                *fuse -= 1;
            }
            state.steps += 1;
            change(&mut state)
        };
        if let Some(watch) = &mut *self.watch.lock() {
            watch(self.image());
        }
        result
    }

    fn apply_name_change(&self, naming: NameChange, name: &str) -> io::Result<()> {
        self.change(|state| {
            if !naming.apply(&mut state.names) {
                return Err(missing(name));
            }
            state.unforced_names.push(naming);
            Ok(())
        })
    }
}

fn missing(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{name} is not there"))
}

impl Disk for SimDisk {
    fn make_dir(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let index = *self.state.lock().names.get(name).ok_or_else(|| missing(name))?;
        Ok(Arc::new(SimFile { disk: self.clone(), index }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let index = self.change(|state| {
            state.files.push(FileState::default());
            let naming = NameChange::Create(name.to_owned(), state.files.len() - 1);
            naming.apply(&mut state.names);
            state.unforced_names.push(naming);
            Ok(state.files.len() - 1)
        })?;
        Ok(Arc::new(SimFile { disk: self.clone(), index }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.apply_name_change(NameChange::Rename(from.to_owned(), to.to_owned()), from)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.apply_name_change(NameChange::Remove(name.to_owned()), name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{dir}/");
        Ok(self.state.lock().names.keys().filter_map(|n| n.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    fn force_names(&self, dir: &str) -> io::Result<()> {
        self.change(|state| {
            if !state.ignores_force {
                let durable = &mut state.durable_names;
                state.unforced_names.retain(|naming| {
                    if naming.dir() == dir {
                        naming.apply(durable);
                    }
                    naming.dir() != dir
                });
            }
            Ok(())
        })
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state.lock();
        let filled = state.files[self.index].current.read(offset as usize, out);
        if filled { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            let (from, to) = (offset as usize, offset as usize + bytes.len());
            let grown = to.saturating_sub(file.current.len);
            if let Some(room) = &mut state.free_bytes {
                if grown > *room {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                *room -= grown;
            }
            file.current.write(from, bytes);
            file.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
            Ok(())
        })
    }

    fn force(&self) -> io::Result<()> {
        self.disk.change(|state| {
            if !state.ignores_force {
                let file = &mut state.files[self.index];
                file.durable = file.current.clone();
                file.dirty.clear();
            }
            Ok(())
        })
    }

    fn begin_write_back(&self, _offset: u64, _len: u64) {}

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            let to = file.current.len.min((offset + len) as usize);
            let from = (offset as usize).min(to);
            file.current.write(from, &vec![0; to - from]);
            file.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state.lock().files[self.index].current.len as u64)
    }

    fn system_file(&self) -> Option<&Arc<File>> {
        None
    }
}
