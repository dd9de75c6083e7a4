//! Opening: what is made durable, and which files are never replaced.

use super::super::file::Operation;
use super::*;

#[test]
fn the_state_that_an_opening_chose_is_made_durable_where_it_is() {
    let mut world = World::new(12);
    for batches in 1..4 {
        world.work(1, 50, 100);
        world.reopen();
        let before = fs::read(world.path()).unwrap();
        world.engine.make_durable().unwrap();
        let operations = std::mem::take(&mut world.engine.file.trial.lock().operations);
        assert_eq!(operations, [Operation::Write(batches % 2), Operation::Force]);
        assert!(fs::read(world.path()).unwrap() == before, "the same bytes");
        world.engine.file.trial.lock().left = Some(1);
        assert!(matches!(world.engine.make_durable(), Err(EngineError::Failed(_))));
        world.engine.file.trial.lock().left = None;
        world.check();
    }
}

#[test]
fn a_tree_that_cannot_be_looked_for_is_not_created_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE);
    for target in [FILE, "missing"] {
        std::os::unix::fs::symlink(target, &path).unwrap();
        assert!(matches!(TreeEngine::open(dir.path(), &ID), Err(EngineError::Failed(_))), "a link to {target}");
        assert_eq!(fs::read_link(&path).unwrap(), PathBuf::from(target), "the link is still there");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_new_tree_replaces_no_file() {
    let world = World::new(13);
    let before = fs::read(world.path()).unwrap();
    assert_eq!(create(world.dir.path(), &ID).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(fs::read(world.path()).unwrap() == before);
}
