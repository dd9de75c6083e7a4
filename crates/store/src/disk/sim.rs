//! A disk in memory that loses and tears unforced data.
//!
//! A crash keeps the forced bytes of every file and, sector by sector, either the forced or the newest bytes. Of every
//! directory it keeps the forced names and a prefix of the later changes. Files share their pages, so an image of the
//! whole disk is cheap, and each crash point of a run can be tried with many outcomes.
//!
//! A read, a write or a force can be made to fail. A write that fails has written a part of its bytes. A force that fails makes some
//! sectors durable, and a later one does not force the others: the system shows them, and takes them for written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};

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
    /// Sectors in which the two may differ, and which the next force makes durable.
    dirty: BTreeSet<usize>,
    /// Whether a force failed, so that the two may differ in other sectors, too.
    has_lost_sectors: bool,
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
    /// The change after so many others that fails once, and how.
    failing_change: Option<(usize, io::ErrorKind)>,
    /// Reads until one fails.
    reads_until_failure: Option<usize>,
    /// Pages of files that cannot be read.
    unreadable: BTreeSet<(usize, usize)>,
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
    /// Copies of files for memory maps.
    mapped: Arc<Mutex<BTreeMap<usize, Weak<File>>>>,
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

    /// Lets the change after the next `changes` ones fail, and no other.
    #[cfg(test)]
    pub(crate) fn fail_change(&self, changes: usize, kind: io::ErrorKind) {
        self.state.lock().failing_change = Some((changes, kind));
    }

    /// Lets no change fail any more; returns whether the one of [`SimDisk::fail_change`] has failed.
    #[cfg(test)]
    pub(crate) fn has_failed(&self) -> bool {
        self.state.lock().failing_change.take().is_none()
    }

    /// Lets the read after the next `reads` ones fail, and no other; `None` lets all succeed. Returns whether an earlier one is pending.
    #[cfg(test)]
    pub(crate) fn fail_read(&self, reads: Option<usize>) -> bool {
        std::mem::replace(&mut self.state.lock().reads_until_failure, reads).is_some()
    }

    /// Lets reads of these pages of a file fail, and of no others.
    #[cfg(test)]
    pub(crate) fn set_unreadable(&self, name: &str, pages: &[u64]) {
        let mut state = self.state.lock();
        let index = state.names[name];
        state.unreadable = pages.iter().map(|page| (index, *page as usize)).collect();
    }

    /// A disk with one file, which is durable.
    #[cfg(test)]
    pub(crate) fn with_file(name: &str, bytes: &[u8]) -> Self {
        let mut file = FileState::default();
        file.current.write(0, bytes);
        file.durable = file.current.clone();
        let names = BTreeMap::from([(name.to_owned(), 0)]);
        let state = DiskState { files: vec![file], durable_names: names.clone(), names, ..DiskState::default() };
        Self { state: Arc::new(Mutex::new(state)), ..Self::default() }
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
        Self { state: Arc::new(Mutex::new(self.state.lock().clone())), ..Self::default() }
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
            file.has_lost_sectors = false;
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
        state.failing_change = None;
        Self { state: Arc::new(Mutex::new(state)), ..Self::default() }
    }

    /// The disk after the process has stopped and the machine has not: nothing is lost, and nothing more is durable.
    #[cfg(test)]
    pub(crate) fn crash_of_process(&self) -> Self {
        let image = self.image();
        {
            let mut state = image.state.lock();
            (state.steps_until_failure, state.failing_change) = (None, None);
        }
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
        if let Some(map) = self.map_of(index) {
            map.write_all_at(&bytes, 0).unwrap();
        }
    }

    /// Changes bytes of a file, as [`SimDisk::damage`] does.
    #[cfg(test)]
    pub(crate) fn set_bytes(&self, name: &str, offset: usize, bytes: &[u8]) {
        let mut state = self.state.lock();
        let index = state.names[name];
        let file = &mut state.files[index];
        file.current.write(offset, bytes);
        file.durable.write(offset, bytes);
        if let Some(map) = self.map_of(index) {
            map.write_all_at(bytes, offset as u64).unwrap();
        }
    }

    /// Cuts a file, as a failed copy would.
    #[cfg(test)]
    pub(crate) fn cut(&self, name: &str, len: usize) {
        let mut state = self.state.lock();
        let index = state.names[name];
        let (mut bytes, mut cut) = (state.files[index].current.to_vec(), FileBytes::default());
        bytes.truncate(len);
        cut.write(0, &bytes);
        state.files[index] = FileState { durable: cut.clone(), current: cut, ..FileState::default() };
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

    fn map_of(&self, index: usize) -> Option<Arc<File>> {
        self.mapped.lock().get(&index).and_then(Weak::upgrade)
    }

    fn change<T>(&self, change: impl FnOnce(&mut DiskState) -> io::Result<T>) -> io::Result<T> {
        self.change_or_fail(change, |_| {})
    }

    /// Changes the disk. If this change is to fail, `fail` makes the part of it that happens nevertheless.
    fn change_or_fail<T>(
        &self,
        change: impl FnOnce(&mut DiskState) -> io::Result<T>,
        fail: impl FnOnce(&mut DiskState),
    ) -> io::Result<T> {
        let result = {
            let mut state = self.state.lock();
            if let Some(fuse) = &mut state.steps_until_failure {
                if *fuse == 0 {
                    return Err(io::Error::other("the machine has stopped"));
                }
                *fuse -= 1;
            }
            state.steps += 1;
            match &mut state.failing_change {
                Some((0, kind)) => {
                    let error = io::Error::from(*kind);
                    state.failing_change = None;
                    fail(&mut state);
                    Err(error)
                }
                failing => {
                    failing.iter_mut().for_each(|(left, _)| *left -= 1);
                    change(&mut state)
                }
            }
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

    fn create_new(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if self.state.lock().names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.apply_name_change(NameChange::Rename(from.to_owned(), to.to_owned()), from)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        if self.state.lock().names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(from, to)
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
        let mut state = self.disk.state.lock();
        match &mut state.reads_until_failure {
            Some(0) => {
                state.reads_until_failure = None;
                return Err(io::Error::other("a read that a test lets fail"));
            }
            left => left.iter_mut().for_each(|left| *left -= 1),
        }
        let pages = offset as usize / PAGE..(offset as usize).saturating_add(out.len()).div_ceil(PAGE);
        if state.unreadable.iter().any(|(file, page)| *file == self.index && pages.contains(page)) {
            return Err(io::Error::other("a page that the disk cannot read"));
        }
        let filled = state.files[self.index].current.read(offset as usize, out);
        if filled { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let from = offset as usize;
        let write = |state: &mut DiskState, bytes: &[u8]| {
            let file = &mut state.files[self.index];
            file.current.write(from, bytes);
            file.dirty.extend(from / SECTOR..(from + bytes.len()).div_ceil(SECTOR));
            self.disk.map_of(self.index).map_or(Ok(()), |map| map.write_all_at(bytes, offset))
        };
        self.disk.change_or_fail(
            |state| {
                let grown = (from + bytes.len()).saturating_sub(state.files[self.index].current.len);
                if let Some(room) = &mut state.free_bytes {
                    if grown > *room {
                        return Err(io::ErrorKind::StorageFull.into());
                    }
                    *room -= grown;
                }
                write(state, bytes)
            },
            |state| {
                let part = StdRng::seed_from_u64(state.steps as u64).random_range(0..=bytes.len() / SECTOR);
                write(state, &bytes[..part * SECTOR]).unwrap_or_default();
            },
        )
    }

    fn force(&self) -> io::Result<()> {
        self.disk.change_or_fail(
            |state| {
                let ignores_force = state.ignores_force;
                let file = &mut state.files[self.index];
                if ignores_force {
                    return Ok(());
                }
                if file.has_lost_sectors {
                    file.durable.resize(file.current.len);
                    for sector in std::mem::take(&mut file.dirty) {
                        file.durable.take_sector(&file.current, sector);
                    }
                } else {
                    file.durable = file.current.clone();
                    file.dirty.clear();
                }
                Ok(())
            },
            |state| {
                let mut random = StdRng::seed_from_u64(state.steps as u64);
                let file = &mut state.files[self.index];
                for sector in std::mem::take(&mut file.dirty) {
                    if random.random_bool(0.5) {
                        file.durable.take_sector(&file.current, sector);
                    }
                }
                file.has_lost_sectors = true;
            },
        )
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            file.current.resize(file.current.len.max(len as usize));
            self.disk.map_of(self.index).map_or(Ok(()), |map| map.set_len(file.current.len as u64))
        })
    }

    fn begin_write_back(&self, _offset: u64, _len: u64) {}

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            let to = file.current.len.min((offset + len) as usize);
            let from = (offset as usize).min(to);
            let zeros = vec![0; to - from];
            file.current.write(from, &zeros);
            file.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
            self.disk.map_of(self.index).map_or(Ok(()), |map| map.write_all_at(&zeros, from as u64))
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state.lock().files[self.index].current.len as u64)
    }

    fn system_file(&self) -> Option<&Arc<File>> {
        None
    }

    fn mappable(&self) -> io::Result<Arc<File>> {
        use rustix::fs::{MemfdFlags, memfd_create};
        let state = self.disk.state.lock();
        let mut mapped = self.disk.mapped.lock();
        if let Some(file) = mapped.get(&self.index).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let file = Arc::new(File::from(memfd_create("mortar-sim", MemfdFlags::CLOEXEC)?));
        file.write_all_at(&state.files[self.index].current.to_vec(), 0)?;
        mapped.insert(self.index, Arc::downgrade(&file));
        Ok(file)
    }
}
