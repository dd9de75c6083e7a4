use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use model::ErrorKind;
use model::planted_bug::assert_noticed;

use super::DIR;
use crate::commit::housekeeping::last_swept_file;
use crate::disk::sim::SimDisk;
use crate::disk::{Disk, DiskFile};
use crate::engine::memory::MemoryEngine;
use crate::log::recover::OnDamage;
use crate::open::open_on;
use crate::plant::{ContentBug, FaultBug};
use crate::rows::row::CHUNK;
use crate::store::Store;
use crate::tests::audit::{audit, check_leaks};
use crate::tests::world::{SimulatedStore, small_options};
use crate::tests::{
    bytes, commit, content, create, delete, new_id, of_contents, pattern, refusal, replace, take, upload, write,
};

/// A disk that counts the forces of blob files, and fails them on demand.
#[derive(Clone)]
struct CountingDisk {
    disk: SimDisk,
    forces: Arc<AtomicUsize>,
    failing: Arc<AtomicBool>,
}

struct CountingFile {
    file: Arc<dyn DiskFile>,
    watched: CountingDisk,
}

impl CountingDisk {
    fn open() -> (Self, MemoryEngine, Store) {
        let watched = Self { disk: SimDisk::new(), forces: Arc::default(), failing: Arc::default() };
        let engine = MemoryEngine::default();
        let boxed = Box::new(engine.clone());
        let core = open_on(Arc::new(watched.clone()), boxed, [7; 16], small_options(), OnDamage::Refuse).unwrap();
        (watched, engine, Store::start(core).unwrap())
    }

    fn watch(&self, name: &str, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        if name.starts_with(DIR) { Arc::new(CountingFile { file, watched: self.clone() }) } else { file }
    }
}

impl Disk for CountingDisk {
    fn make_dir(&self, name: &str) -> io::Result<()> {
        self.disk.make_dir(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watch(name, self.disk.open(name)?))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watch(name, self.disk.create(name)?))
    }

    fn create_new(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.watch(name, self.disk.create_new(name)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(dir)
    }

    fn force_names(&self, dir: &str) -> io::Result<()> {
        self.disk.force_names(dir)
    }
}

impl DiskFile for CountingFile {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn force(&self) -> io::Result<()> {
        self.watched.forces.fetch_add(1, Ordering::Relaxed);
        if self.watched.failing.load(Ordering::Relaxed) {
            return Err(io::Error::other("a planted failure"));
        }
        self.file.force()
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.file.grow(len)
    }

    fn begin_write_back(&self, offset: u64, len: u64) {
        self.file.begin_write_back(offset, len);
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.watched.failing.load(Ordering::Relaxed) {
            return Err(io::Error::other("a planted failure"));
        }
        self.file.punch_hole(offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn system_file(&self) -> Option<&Arc<File>> {
        self.file.system_file()
    }

    fn mappable(&self) -> io::Result<Arc<File>> {
        self.file.mappable()
    }
}

#[test]
fn a_batch_forces_its_blob_file_once() {
    let (watched, engine, store) = CountingDisk::open();
    let all: Vec<_> = (0..5).map(|_| new_id()).collect();
    for (seed, id) in (0..).zip(&all) {
        let change = of_contents([create(*id, pattern(3 * CHUNK, seed))]);
        store.submit_rows(change, |result| assert!(result.is_ok()));
    }
    assert_eq!(watched.forces.load(Ordering::Relaxed), 0, "a chunk was forced before its batch was");
    store.force().unwrap();
    assert_eq!(watched.forces.load(Ordering::Relaxed), 1);
    let world = SimulatedStore::open(watched.disk.crash(1), engine.image()).unwrap();
    for (seed, id) in (0..).zip(&all) {
        assert_eq!(bytes(&world.store, *id), pattern(3 * CHUNK, seed));
    }
}

/// The system forgets what it could not write, and reports success for a later force.
#[test]
fn a_blob_file_that_could_not_be_forced_is_not_used_again() {
    assert_noticed(&[ContentBug::FailedFileReused], || {
        let (watched, engine, store) = CountingDisk::open();
        let id = content(&store, "before");
        let upload = upload(&store, &pattern(3 * CHUNK, 1));
        watched.failing.store(true, Ordering::Relaxed);
        let (kind, message) = refusal(&store, replace(id, pattern(2 * CHUNK, 2)));
        assert_eq!(kind, ErrorKind::Io, "{message}");
        watched.failing.store(false, Ordering::Relaxed);
        let (kind, message) = refusal(&store, [take(new_id(), upload)]);
        assert_eq!(kind, ErrorKind::Io, "{message}");
        assert_eq!(bytes(&store, id), b"before");
        let after = content(&store, pattern(2 * CHUNK, 3));
        let world = SimulatedStore::open(watched.disk.crash(1), engine.image()).unwrap();
        assert_eq!(bytes(&world.store, id), b"before");
        assert_eq!(bytes(&world.store, after), pattern(2 * CHUNK, 3));
    });
}

#[test]
fn openings_without_large_content_leave_one_blob_file() {
    let mut world = SimulatedStore::new();
    for seed in 0..5 {
        content(&world.store, "small");
        world = world.crash(seed).unwrap();
    }
    assert_eq!(world.disk.list(DIR).unwrap().len(), 1);
}

#[test]
fn the_number_of_a_removed_blob_file_is_not_assigned_again() {
    let world = SimulatedStore::new();
    let id = content(&world.store, pattern(3 * CHUNK, 1));
    world.store.install().unwrap();
    commit(&world.store, [delete(id)]);
    for _ in 0..3 {
        world.store.core().do_housekeeping().unwrap();
        world.store.force().unwrap();
        world.store.install().unwrap();
    }
    // The next opening frees the storage and removes the file, and stops before the B-tree records that.
    let second = world.crash(1).unwrap();
    second.store.core().do_housekeeping().unwrap();
    let third = second.crash(2).unwrap();
    let id = content(&third.store, pattern(3 * CHUNK, 2));
    third.store.core().do_housekeeping().unwrap();
    assert_eq!(bytes(&third.store, id), pattern(3 * CHUNK, 2));
    assert_eq!(third.store.scrub(&()).unwrap().damage, []);
}

#[test]
fn an_opening_looks_only_at_blob_files_that_no_opening_before_has_swept() {
    let mut world = SimulatedStore::new();
    let mut all = Vec::new();
    for seed in 0..4 {
        all.push(content(&world.store, pattern(2 * CHUNK, seed)));
        // A sweep frees what an upload had staged when the machine stopped.
        upload(&world.store, &pattern(3 * CHUNK, 9));
        world.store.force().unwrap();
        let files = world.core().state.files().unwrap();
        let swept = last_swept_file(&*world.core().state.engine).unwrap();
        assert!(
            files.earlier_files(swept).unwrap().len() <= 1,
            "opening {seed} looks at more than the last one's file"
        );
        world = world.crash(u64::from(seed)).unwrap();
        world.run_housekeeping();
    }
    audit(&world.store);
    check_leaks(&world);
    // A swept file is still removed with its last chunk and does not reappear.
    for (seed, id) in all.into_iter().enumerate() {
        commit(&world.store, [delete(id)]);
        world.run_housekeeping();
        check_leaks(&world);
        world = world.crash(seed as u64).unwrap();
        world.run_housekeeping();
        check_leaks(&world);
    }
}

#[test]
fn chunks_that_could_not_be_freed_are_freed_later() {
    assert_noticed(&[FaultBug::FailedPunchForgotten], || {
        let (watched, _, store) = CountingDisk::open();
        let id = content(&store, pattern(3 * CHUNK, 1));
        store.install().unwrap();
        commit(&store, [delete(id)]);
        let keep_house = || {
            store.install().unwrap();
            let done = store.core().do_housekeeping();
            store.force().unwrap();
            done
        };
        watched.failing.store(true, Ordering::Relaxed);
        assert!((0..4).any(|_| keep_house().is_err()), "freeing fails");
        watched.failing.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            keep_house().unwrap();
        }
        let chunks = watched.disk.bytes(&super::file_name(1)).split_off(super::HEADER as usize);
        assert!(chunks.iter().all(|byte| *byte == 0), "the chunks are freed later");
    });
}

#[test]
fn chunks_in_files_of_two_openings_are_read_and_freed_apart() {
    assert_noticed(&[FaultBug::RunsCrossFiles, FaultBug::UsedFileRemoved, FaultBug::FreedExtentNotRecorded], || {
        let world = SimulatedStore::new();
        let (id, gone) = (content(&world.store, pattern(CHUNK, 1)), content(&world.store, pattern(CHUNK, 2)));
        let world = world.crash(1).unwrap();
        // In the file of the second opening, where the first one has `gone`.
        content(&world.store, pattern(CHUNK, 3));
        commit(&world.store, [write(id, CHUNK, pattern(CHUNK, 4))]);
        let both = [pattern(CHUNK, 1), pattern(CHUNK, 4)].concat();
        assert_eq!(bytes(&world.store, id), both);
        world.run_housekeeping();
        commit(&world.store, [delete(gone)]);
        // The machine stops when the removal is installed and the storage is not freed.
        world.store.install().unwrap();
        let world = world.crash(2).unwrap();
        world.run_housekeeping();
        assert_eq!(bytes(&world.store, id), both);
        check_leaks(&world);
    });
}

#[test]
fn a_file_with_chunks_is_never_created_again_and_one_without_is() {
    let disk = SimDisk::new();
    let create = || super::create(&disk, &[7; 16], 5);
    create().unwrap();
    create().unwrap().write_at(super::position_in_file(0), &[9; CHUNK]).unwrap();
    let before = disk.bytes(&super::file_name(5));
    let error = create().err().unwrap();
    assert!(error.to_string().contains(&super::file_name(5)), "{error}");
    assert_eq!(disk.bytes(&super::file_name(5)), before);
}

#[test]
fn size_of_the_blob_files_is_that_of_their_chunks_whatever_becomes_of_them() {
    let mut world = SimulatedStore::new();
    let check = |world: &SimulatedStore| {
        let len =
            |name: &String| (world.disk.bytes(&format!("{DIR}/{name}")).len() as u64).saturating_sub(super::HEADER);
        let on_disk = world.disk.list(DIR).unwrap().iter().map(len).sum::<u64>();
        assert_eq!(world.store.status().blob_bytes, on_disk);
    };
    for round in 0..6 {
        let (kept, gone) = (content(&world.store, pattern(2 * CHUNK, round)), content(&world.store, pattern(CHUNK, 9)));
        check(&world);
        commit(&world.store, [delete(gone)]);
        if round % 2 == 0 {
            commit(&world.store, [delete(kept)]);
        }
        world.run_housekeeping();
        check(&world);
        world = world.crash(u64::from(round)).unwrap();
        check(&world);
        world.run_housekeeping();
        check(&world);
    }
    assert!(world.store.status().blob_bytes < 12 * CHUNK as u64, "files without chunks are removed");
}
