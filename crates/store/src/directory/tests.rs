//! Recognition of directories, and refusals.

use model::planted_bug::assert_noticed;

use super::*;
use crate::tests::world::small_options;
use crate::{Options, Store};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_directory_that_others_can_enter_is_refused_unless_allowed() {
    let dir = tempfile::tempdir().unwrap();
    Store::open(dir.path(), small_options()).unwrap().close().unwrap();
    for loose in [0o755, 0o750, 0o710, 0o701, 0o707] {
        set_mode(dir.path(), loose);
        let error = Store::open(dir.path(), small_options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Denied);
        let advice = format!("`chmod -R go-rwx {}`", dir.path().display());
        assert!(error.message().contains(&advice) && error.message().contains(&format!("{loose:04o}")), "{error}");
        let options = Options { allow_loose_permissions: true, ..small_options() };
        Store::open(dir.path(), options).unwrap().close().unwrap();
        assert_eq!(mode(dir.path()), loose, "an allowed mode is not changed");
    }
    set_mode(dir.path(), 0o700);
    Store::open(dir.path(), small_options()).unwrap().close().unwrap();
    let other = tempfile::tempdir().unwrap();
    set_mode(other.path(), 0o755);
    fs::write(other.path().join("photo"), "").unwrap();
    let error = Store::open(other.path(), small_options()).err().unwrap();
    assert!(error.message().contains("is not a store"), "no advice to change the mode of other directories: {error}");
}

#[test]
fn an_empty_directory_is_restricted_to_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    Store::open(dir.path(), small_options()).unwrap().close().unwrap();
    assert_eq!(mode(dir.path()), 0o700);
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    fs::write(dir.path().join("notes"), "").unwrap();
    assert_eq!(prepare_directory(dir.path(), false).unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(mode(dir.path()), 0o755, "the mode of a directory with contents is not changed");
}

#[test]
fn a_file_of_the_user_is_not_taken_for_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(LOCK_FILE);
    for (content, is_lock) in
        [("", true), ("4711\n", true), ("the combination is 4711", false), (&"1".repeat(17), false)]
    {
        fs::write(&path, content).unwrap();
        let expected = if is_lock { DirectoryContents::Empty } else { DirectoryContents::Other(LOCK_FILE.to_owned()) };
        assert_eq!(DirectoryContents::of(dir.path()).unwrap(), expected, "{content:?}");
    }
    let error = Store::open(dir.path(), small_options()).err().unwrap();
    assert!(error.message().contains("is not a store"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "1".repeat(17), "it is not written");
}

#[test]
fn the_contents_of_a_directory_are_recognized() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| DirectoryContents::of(&dir.path().join(name)).unwrap();
    assert_eq!(of("none"), DirectoryContents::Missing);
    let store = dir.path().join("store");
    Store::open(&store, small_options()).unwrap().close().unwrap();
    assert_eq!(of("store"), DirectoryContents::Store);
    fs::remove_file(store.join(IDENTITY_FILE)).unwrap();
    assert_eq!(of("store"), DirectoryContents::Store, "a store without its identity is a store");
    let other = dir.path().join("other");
    create_private_dir(&other).unwrap();
    fs::write(other.join(LOCK_FILE), "").unwrap();
    fs::write(other.join(NEW_IDENTITY_FILE), "").unwrap();
    assert_eq!(of("other"), DirectoryContents::Empty);
    fs::write(other.join("photo"), "").unwrap();
    assert_eq!(of("other"), DirectoryContents::Other("photo".to_owned()));
    fs::write(other.join(RESTORING), "").unwrap();
    assert_eq!(of("other"), DirectoryContents::InterruptedRestore);
}

#[test]
fn a_store_that_is_open_is_not_opened_again() {
    assert_noticed(&[FaultBug::DirectoryNotLocked], || {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), small_options()).unwrap();
        let error = Store::open(dir.path(), small_options()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        drop(store);
        Store::open(dir.path(), small_options()).unwrap();
    });
}

#[test]
fn lock_that_another_process_gives_up_soon_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let (mut other, mut pauses) = (Some(lock(dir.path()).unwrap()), 0);
    let pause = || {
        pauses += 1;
        other.take_if(|_| pauses == 3);
    };
    let own = lock_pausing(dir.path(), pause).unwrap();
    assert_eq!(pauses, 3);
    let refused = lock_pausing(dir.path(), || {}).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    drop(own);
}

#[test]
fn lock_of_a_directory_that_was_removed_meanwhile_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = Some(lock(dir.path()).unwrap());
    let pause = || {
        let _ = fs::remove_file(dir.path().join(LOCK_FILE));
        other = None;
    };
    let refused = lock_pausing(dir.path(), pause).unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.message().contains("removed"), "{refused}");
    lock(dir.path()).unwrap();
}
