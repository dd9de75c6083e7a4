//! The disk's limit for durable transactions: append to a file and `fdatasync`, shared by all waiting threads.
//!
//! Committers join the batch that is being filled. The first committer of a batch is its leader. It waits until the
//! previous batch is forced, closes its own batch, writes it with one call and forces it, while the next batch fills.
//! So no thread forces alone while others wait, and no thread is woken for another batch.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Whether the file grows with each append, or its blocks are allocated in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileAllocation {
    /// Each force also writes the file's new size.
    Growing,
    /// The file was written once before, and its contents wrap around after this many bytes.
    Preallocated(u64),
}

/// An append-only file that many threads commit to.
pub(crate) struct GroupCommit {
    file: File,
    allocation: FileAllocation,
    state: Mutex<State>,
    /// Leaders wait here for the previous batch.
    turn: Condvar,
}

struct State {
    filling: Arc<Batch>,
    bytes: Vec<u8>,
    /// An empty buffer for the next batch, so that buffers are not allocated anew.
    spare: Vec<u8>,
    joined: usize,
    forcing: bool,
    end: u64,
}

#[derive(Default)]
struct Batch {
    done: Mutex<Option<Result<(), io::ErrorKind>>>,
    ended: Condvar,
}

impl GroupCommit {
    /// Creates the file.
    pub(crate) fn create(path: &Path, space: FileAllocation) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        if let FileAllocation::Preallocated(size) = space {
            let zeros = vec![0; 1 << 20];
            let mut offset = 0;
            while offset < size {
                file.write_all_at(&zeros, offset)?;
                offset += zeros.len() as u64;
            }
            file.sync_all()?;
        }
        let state = State {
            filling: Arc::default(),
            bytes: Vec::with_capacity(1 << 20),
            spare: Vec::with_capacity(1 << 20),
            joined: 0,
            forcing: false,
            end: 0,
        };
        Ok(Self { file, allocation: space, state: Mutex::new(state), turn: Condvar::new() })
    }

    /// Appends all pieces together. They are on disk when this returns.
    pub(crate) fn commit(&self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut state = lock(&self.state);
        for piece in pieces {
            state.bytes.extend_from_slice(piece);
        }
        state.joined += 1;
        let batch = Arc::clone(&state.filling);
        if state.joined > 1 {
            drop(state);
            return batch.wait();
        }
        while state.forcing {
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.forcing = true;
        state.joined = 0;
        state.filling = Arc::default();
        let spare = mem::take(&mut state.spare);
        let mut bytes = mem::replace(&mut state.bytes, spare);
        let offset = self.reserve(&mut state, bytes.len() as u64);
        drop(state);
        let result = self.file.write_all_at(&bytes, offset).and_then(|()| self.file.sync_data());
        bytes.clear();
        let mut state = lock(&self.state);
        state.spare = bytes;
        state.forcing = false;
        drop(state);
        self.turn.notify_one();
        batch.complete(result.as_ref().copied().map_err(io::Error::kind));
        result
    }

    fn reserve(&self, state: &mut State, len: u64) -> u64 {
        if let FileAllocation::Preallocated(size) = self.allocation
            && state.end + len > size
        {
            state.end = 0;
        }
        let offset = state.end;
        state.end += len;
        offset
    }
}

impl Batch {
    fn wait(&self) -> io::Result<()> {
        let mut done = lock(&self.done);
        loop {
            if let Some(result) = *done {
                return result.map_err(io::Error::from);
            }
            done = self.ended.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn complete(&self, result: Result<(), io::ErrorKind>) {
        *lock(&self.done) = Some(result);
        self.ended.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_of_many_threads_are_in_the_file_once_and_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = GroupCommit::create(&path, FileAllocation::Growing).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8_u8 {
                let log = &log;
                scope.spawn(move || {
                    for round in 0..50_u8 {
                        log.commit(&[&[thread, round], &[thread, round]]).unwrap();
                    }
                });
            }
        });
        let bytes = std::fs::read(&path).unwrap();
        let mut seen: Vec<[u8; 4]> = bytes.chunks_exact(4).map(|c| [c[0], c[1], c[2], c[3]]).collect();
        seen.sort_unstable();
        let expected: Vec<[u8; 4]> =
            (0..8).flat_map(|thread| (0..50).map(move |round| [thread, round, thread, round])).collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_prepared_file_keeps_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = GroupCommit::create(&path, FileAllocation::Preallocated(1 << 20)).unwrap();
        for _ in 0..3 {
            log.commit(&[&[7; 400_000]]).unwrap();
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
    }
}
