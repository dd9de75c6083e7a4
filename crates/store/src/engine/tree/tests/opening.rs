//! Opening: what is made durable, and which files are never replaced.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::disk::RealDisk;

#[test]
fn the_state_that_an_opening_chose_is_made_durable_where_it_is() {
    let mut world = World::new(12);
    for _ in 1..4 {
        world.work(1, 50, 100);
        // The process ends before it knows that the header is durable.
        let steps = world.disk.steps();
        world.disk.fail_change(2, io::ErrorKind::Other);
        world.reopen();
        let before = world.bytes();
        world.engine.make_durable().unwrap();
        assert_eq!(world.disk.steps(), steps + 2, "a write and a force");
        assert!(world.bytes() == before && !world.disk.has_failed(), "the same bytes");
        world.disk.fail_change(1, io::ErrorKind::Other);
        assert!(matches!(world.engine.make_durable(), Err(EngineError::Failed(_))));
        world.check();
    }
}

#[test]
fn a_tree_that_cannot_be_looked_for_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, path) = (RealDisk::new(dir.path()), dir.path().join(NAME));
    disk.make_dir(DIR).unwrap();
    for target in ["rows", "missing"] {
        std::os::unix::fs::symlink(target, &path).unwrap();
        assert!(matches!(TreeEngine::open(&disk, &ID), Err(EngineError::Failed(_))), "a link to {target}");
        assert_eq!(fs::read_link(&path).unwrap(), PathBuf::from(target), "the link is still there");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_new_tree_replaces_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let disks: [&dyn Disk; 2] = [&SimDisk::new(), &RealDisk::new(dir.path())];
    for disk in disks {
        drop(TreeEngine::open(disk, &ID).unwrap());
        assert_eq!(create(disk, &ID).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(TreeEngine::open(disk, &ID).unwrap());
    }
}
