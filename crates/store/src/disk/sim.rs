//! A disk in memory that forgets and tears what was not forced.
//!
//! A crash keeps of every file the forced bytes and, sector by sector, either the forced or the newest bytes; names that
//! were not forced may be as before. So each crash point of a run can be tried with many outcomes, in microseconds.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Disk, DiskFile};

const SECTOR: usize = 512;

/// One file: what is durable and what the operating system shows.
#[derive(Clone, Default)]
struct Content {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// Sectors in which the two may differ.
    dirty: std::collections::BTreeSet<usize>,
}

#[derive(Clone, Default)]
struct State {
    files: Vec<Content>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Bytes that may be written before the device is full.
    room: Option<usize>,
    /// Operations that may change the disk before all of them fail, as after a crash.
    fuse: Option<usize>,
    steps: usize,
}

/// The simulated disk; clones share it.
#[derive(Clone, Default)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct SimFile {
    disk: SimDisk,
    index: usize,
}

impl SimDisk {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// How many operations have changed the disk.
    pub(crate) fn steps(&self) -> usize {
        self.state.lock().steps
    }

    /// Lets the next `steps` changes happen and every later one fail: the machine stops there.
    pub(crate) fn stop_after(&self, steps: usize) {
        self.state.lock().fuse = Some(steps);
    }

    /// Lets only `bytes` more be written.
    pub(crate) fn set_room(&self, bytes: Option<usize>) {
        self.state.lock().room = bytes;
    }

    /// The disk as it could be found after a power failure now.
    pub(crate) fn crash(&self, seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut state = self.state.lock().clone();
        // How much of the unforced reaches the disk differs from crash to crash: all, nothing, or a random part.
        let kept: f64 = match random.random_range(0..4) {
            0 => 0.0,
            1 => 1.0,
            _ => random.random(),
        };
        for file in &mut state.files {
            let mut found = file.durable.clone();
            for sector in std::mem::take(&mut file.dirty) {
                if random.random_bool(kept) {
                    let from = sector * SECTOR;
                    let to = (from + SECTOR).min(file.current.len());
                    if from < to {
                        found.resize(found.len().max(to), 0);
                        found[from..to].copy_from_slice(&file.current[from..to]);
                    }
                }
            }
            file.durable.clone_from(&found);
            file.current = found;
        }
        if random.random_bool(0.5) {
            state.names.clone_from(&state.durable_names);
        } else {
            state.durable_names.clone_from(&state.names);
        }
        state.room = None;
        state.fuse = None;
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Changes bytes of a file as a failing device would.
    pub(crate) fn damage(&self, name: &str, offset: usize, change: impl FnOnce(&mut [u8])) {
        let mut state = self.state.lock();
        let index = state.names[name];
        let file = &mut state.files[index];
        change(&mut file.current[offset..]);
        file.durable.clone_from(&file.current);
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        state.files[state.names[name]].current.clone()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock();
        if let Some(fuse) = &mut state.fuse {
            if *fuse == 0 {
                return Err(io::Error::other("the machine has stopped"));
            }
            *fuse -= 1;
        }
        state.steps += 1;
        change(&mut state)
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
            state.files.push(Content::default());
            state.names.insert(name.to_owned(), state.files.len() - 1);
            Ok(state.files.len() - 1)
        })?;
        Ok(Arc::new(SimFile { disk: self.clone(), index }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(|state| {
            let index = state.names.remove(from).ok_or_else(|| missing(from))?;
            state.names.insert(to.to_owned(), index);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(|state| state.names.remove(name).map(drop).ok_or_else(|| missing(name)))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let prefix = format!("{dir}/");
        Ok(self.state.lock().names.keys().filter_map(|n| n.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    fn force_names(&self, dir: &str) -> io::Result<()> {
        let prefix = format!("{dir}/");
        self.change(|state| {
            state.durable_names.retain(|name, _| !name.starts_with(&prefix));
            let names: Vec<_> = state.names.iter().filter(|(n, _)| n.starts_with(&prefix)).collect();
            let names: Vec<_> = names.into_iter().map(|(n, i)| (n.clone(), *i)).collect();
            state.durable_names.extend(names);
            Ok(())
        })
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state.lock();
        let bytes = &state.files[self.index].current;
        let from = offset as usize;
        match bytes.get(from..from + out.len()) {
            Some(found) => out.copy_from_slice(found),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            let (from, to) = (offset as usize, offset as usize + bytes.len());
            let grown = to.saturating_sub(file.current.len());
            if let Some(room) = &mut state.room {
                if grown > *room {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                *room -= grown;
            }
            file.current.resize(file.current.len().max(to), 0);
            file.current[from..to].copy_from_slice(bytes);
            file.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
            Ok(())
        })
    }

    fn force(&self) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            file.durable.resize(file.current.len(), 0);
            for sector in std::mem::take(&mut file.dirty) {
                let from = sector * SECTOR;
                let to = (from + SECTOR).min(file.current.len());
                if from < to {
                    file.durable[from..to].copy_from_slice(&file.current[from..to]);
                }
            }
            Ok(())
        })
    }

    fn begin_write_back(&self, _offset: u64, _len: u64) {}

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk.change(|state| {
            let file = &mut state.files[self.index];
            let to = file.current.len().min((offset + len) as usize);
            file.current[(offset as usize).min(to)..to].fill(0);
            file.dirty.extend(offset as usize / SECTOR..to.div_ceil(SECTOR));
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state.lock().files[self.index].current.len() as u64)
    }

    fn system_file(&self) -> Option<&Arc<File>> {
        None
    }
}
