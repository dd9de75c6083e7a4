//! Files of another store, and older copies of files: each is refused by name, or the store shows all that was acknowledged.

use std::fs;
use std::path::{Path, PathBuf};

use model::planted_bug::assert_noticed;

use super::world::small_options;
use super::*;
use crate::plant::RecoveryBug;

const CHUNK: usize = 64 << 10;

fn options() -> Options {
    Options { mob_bytes: 4 << 20, segment_bytes: 256 << 10, ..small_options() }
}

/// A store in a directory, of which all that is acknowledged is known.
struct World {
    dir: tempfile::TempDir,
    rows: Vec<(u32, Bytes)>,
    contents: Vec<(ContentId, Bytes)>,
}

impl World {
    /// A store with changes in the B-tree, in blob files, and in the log only.
    fn new(seed: u8) -> Self {
        let mut world = Self { dir: tempfile::tempdir().unwrap(), rows: Vec::new(), contents: Vec::new() };
        world.work(seed, 30, true);
        world.work(seed, 40, false);
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn open(&self) -> model::Result<Store> {
        Store::open(self.dir.path(), options())
    }

    /// Commits rows and a large content. The store is dropped without being closed, as if its process had been killed.
    fn work(&mut self, seed: u8, rows: u32, install: bool) {
        let store = self.open().unwrap();
        for _ in 0..rows {
            let number = self.rows.len() as u32;
            let value = pattern(2000 + number as usize, seed);
            let mut changes = RowChanges::new();
            changes.put(&number.to_be_bytes(), value.clone());
            store.commit_rows(changes).unwrap();
            self.rows.push((number, value));
        }
        let (id, data) = (new_id(), pattern(2 * CHUNK + 100, seed));
        commit(&store, [create(id, data.clone())]);
        self.contents.push((id, data));
        if install {
            store.install().unwrap();
        }
    }

    /// Checks that everything acknowledged is there.
    fn check(&self) {
        let store = self.open().unwrap();
        for (number, value) in &self.rows {
            assert_eq!(store.row(&number.to_be_bytes()).unwrap().as_ref(), Some(value), "row {number}");
        }
        for (id, data) in &self.contents {
            assert_eq!(bytes(&store, *id), *data);
        }
        assert_eq!(store.scrub(&()).unwrap().damage, []);
        drop(store);
    }

    fn copy(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        copy_tree(self.dir.path(), dir.path());
        Self { dir, rows: self.rows.clone(), contents: self.contents.clone() }
    }

    /// Replaces a file or a directory by that of another store.
    fn take(&self, name: &str, from: &Self) {
        let to = self.path(name);
        if to.is_dir() {
            fs::remove_dir_all(&to).unwrap();
        }
        copy_tree(&from.path(name), &to);
    }

    fn refusal(&self) -> String {
        let error = self.open().err().expect("the store opens");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        error.message().to_owned()
    }

    fn assert_refused(&self, names: &[&str]) {
        let refusal = self.refusal();
        assert!(names.iter().all(|name| refusal.contains(name)), "{refusal}");
        assert_eq!(self.refusal(), refusal, "a refusal changes nothing");
    }

    /// The newest segment of the log.
    fn last_segment(&self) -> PathBuf {
        let names = fs::read_dir(self.path("log")).unwrap().map(|entry| entry.unwrap().path());
        names.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).max().unwrap()
    }
}

pub(super) fn copy_tree(from: &Path, to: &Path) {
    if from.is_file() {
        fs::copy(from, to).unwrap();
        return;
    }
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        copy_tree(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn a_killed_store_has_everything() {
    World::new(1).check();
}

#[test]
fn the_tree_of_another_store_is_refused_by_name() {
    let world = World::new(1);
    let own = world.copy();
    world.take("tree", &World::new(2));
    world.assert_refused(&["tree/rows belongs to another store", "put back"]);
    world.take("tree", &own);
    world.check();
}

#[test]
fn tree_and_blob_files_of_another_store_are_refused_by_name() {
    let (world, other) = (World::new(1), World::new(2));
    world.take("tree", &other);
    world.take("blobs", &other);
    world.assert_refused(&["tree/rows belongs to another store"]);
}

#[test]
fn a_blob_file_of_another_store_or_number_is_refused_by_name() {
    assert_noticed(&[RecoveryBug::BlobsOfAnyStore], || {
        let (world, other) = (World::new(1), World::new(2));
        let own = world.copy();
        let file = "blobs/00000001.blob";
        world.take(file, &other);
        world.assert_refused(&[file, "belongs to another store"]);
        fs::copy(world.path("blobs/00000002.blob"), world.path(file)).unwrap();
        world.assert_refused(&[file, "is the blob file blobs/00000002.blob"]);
        world.take(file, &own);
        world.check();
    });
}

#[test]
fn a_damaged_header_of_a_blob_file_is_reported_and_its_chunks_are_read() {
    let world = World::new(1);
    let path = world.path("blobs/00000001.blob");
    let mut all = fs::read(&path).unwrap();
    all[10] ^= 1;
    fs::write(&path, all).unwrap();
    let store = world.open().unwrap();
    let (id, data) = &world.contents[0];
    assert_eq!(bytes(&store, *id), *data);
    let damage = store.scrub(&()).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].what, "the header of blobs/00000001.blob is damaged");
}

#[test]
fn the_log_of_another_store_is_refused_by_name() {
    let (world, other) = (World::new(1), World::new(2));
    let own = world.copy();
    world.take("log", &other);
    world.assert_refused(&[".seg belongs to another store"]);
    world.take("log", &own);
    world.take("log/tail", &other);
    world.assert_refused(&["log/tail belongs to another store"]);
    world.take("log/tail", &own);
    world.check();
}

#[test]
fn the_identity_of_another_store_is_refused_by_name() {
    let (world, own) = (World::new(1), World::new(1).copy());
    world.take("STORE", &own);
    world.assert_refused(&["tree/rows belongs to another store"]);
}

#[test]
fn an_older_log_below_a_newer_tree_is_refused_by_name() {
    let mut world = World::new(1);
    let older = world.copy();
    world.work(1, 50, true);
    let newer = world.copy();
    world.take("log", &older);
    world.assert_refused(&["the log ends before frame", "but the B-tree has the transactions up to"]);
    world.take("log", &newer);
    world.check();
}

#[test]
fn an_older_tree_below_a_newer_log_is_refused_by_name_or_replayed() {
    let mut world = World::new(1);
    let older = world.copy();
    world.work(1, 5, true);
    let newer = world.copy();
    // The log still has the frames after the older tree's.
    world.take("tree", &older);
    world.check();
    let mut world = newer;
    world.work(1, 400, true);
    world.take("tree", &older);
    world.assert_refused(&["has no frame", "the B-tree is an older copy"]);
}

/// Two copies of a store that were both used have the same identity and equal positions.
#[test]
fn files_of_another_copy_of_the_store_are_refused() {
    assert_noticed(&[RecoveryBug::HistoryNotChecked], || {
        let mut world = World::new(1);
        let mut other = world.copy();
        world.work(1, 10, true);
        other.work(2, 10, true);
        other.work(2, 10, false);
        world.take("log", &other);
        world.assert_refused(&["is another one than the B-tree names", "different copies of the store"]);
    });
}

#[test]
fn the_last_segment_of_a_killed_store_is_missed_wherever_it_is_cut() {
    assert_noticed(&[RecoveryBug::TailNotRecorded], || {
        let world = World::new(1);
        let segment = world.last_segment();
        let name = segment.file_name().unwrap().to_str().unwrap();
        let whole = fs::read(&segment).unwrap();
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        // It is the only segment.
        fs::remove_file(&segment).unwrap();
        world.assert_refused(&["log has no frame"]);
        for at in [0, 40, 64, 5000, end / 2, end - 300, end] {
            fs::write(&segment, &whole[..at]).unwrap();
            world.assert_refused(&[name]);
            let mut zeroed = whole.clone();
            zeroed[at..].fill(0);
            fs::write(&segment, zeroed).unwrap();
            world.assert_refused(&[name]);
        }
        fs::write(&segment, &whole).unwrap();
        world.check();
    });
}

/// Each part of a store tells by itself that the store has been used.
#[test]
fn a_store_that_lost_its_tree_and_more_is_not_taken_for_a_new_one() {
    assert_noticed(&[RecoveryBug::UsedStoreTakenForNew], || {
        let mut world = World { dir: tempfile::tempdir().unwrap(), rows: Vec::new(), contents: Vec::new() };
        world.work(1, 20, true);
        let remove_log = |world: &World| {
            for entry in fs::read_dir(world.path("log")).unwrap() {
                fs::remove_file(entry.unwrap().path()).unwrap();
            }
        };
        type Damage<'a> = &'a dyn Fn(&World);
        let damages: [Damage<'_>; 5] = [
            &|_| {},
            &remove_log,
            // The record of the log's end is left.
            &|world| {
                fs::remove_dir_all(world.path("blobs")).unwrap();
                fs::remove_file(world.last_segment()).unwrap();
            },
            // Frames behind a damaged beginning are left.
            &|world| {
                fs::remove_dir_all(world.path("blobs")).unwrap();
                fs::remove_file(world.path("log/tail")).unwrap();
                let mut bytes = fs::read(world.last_segment()).unwrap();
                bytes[..4096].fill(0);
                fs::write(world.last_segment(), bytes).unwrap();
            },
            // The number of the last segment is left.
            &|world| {
                fs::remove_dir_all(world.path("blobs")).unwrap();
                let segment = world.path("log").join(format!("{:016x}.seg", 2));
                remove_log(world);
                fs::write(segment, [0; 100]).unwrap();
            },
        ];
        for damage in damages {
            let damaged = world.copy();
            fs::remove_file(damaged.path("tree/rows")).unwrap();
            damage(&damaged);
            damaged.assert_refused(&["the B-tree is missing"]);
        }
    });
}

#[test]
fn a_repair_accepts_each_of_these_losses_and_says_what_is_kept() {
    let mut world = World::new(1);
    let older = world.copy();
    world.work(1, 50, true);
    let installed = world.rows.len();
    world.take("log", &older);
    let report = Store::repair(world.dir.path(), false, &[], options(), &()).unwrap();
    assert!(report.damage.as_ref().unwrap().contains("the log ends before frame"), "{report:?}");
    let report = Store::repair(world.dir.path(), true, &[], options(), &()).unwrap();
    assert!(report.repaired && report.kept == report.installed, "{report:?}");
    assert_eq!(world.rows.len(), installed);
    world.check();
    let path = world.last_segment();
    fs::remove_file(path).unwrap();
    world.assert_refused(&["has no frame"]);
    assert!(Store::repair(world.dir.path(), true, &[], options(), &()).unwrap().repaired);
    world.check();
}
