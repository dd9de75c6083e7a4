//! The modes of everything that a store writes, with a umask of 0. The umask belongs to the process, so this is the
//! only test in this file.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use model::ContentId;
use rustix::fs::Mode;
use store::{ContentChange, Options, RowChanges, Store};

fn options() -> Options {
    Options { mob_bytes: 1 << 20, segment_bytes: 64 << 10, threads: false, ..Options::default() }
}

/// Creates a content under an identifier that depends on the position of the log.
fn create_content(store: &Store, len: usize) {
    let mut changes = RowChanges::new();
    let id = ContentId(u128::from(store.position()));
    changes.content(ContentChange::Create { id, data: vec![7; len].into() });
    store.commit_rows(changes).unwrap();
}

/// All files and directories below a directory, and the directory.
fn all_paths(dir: &Path) -> Vec<PathBuf> {
    let mut paths = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { paths.extend(all_paths(&path)) } else { paths.push(path) }
    }
    paths
}

/// A store that was damaged and repaired, so that there is a copy of the damaged segments.
fn damage_and_repair(dir: &Path) {
    let store = Store::open(dir, options()).unwrap();
    for _ in 0..20 {
        create_content(&store, 2000);
    }
    drop(store);
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "seg");
    let segment = all_paths(&dir.join("log")).into_iter().find(is_segment).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    bytes[8000..8100].fill(0xee);
    fs::write(&segment, bytes).unwrap();
    assert!(Store::repair(dir, true, &[], options(), &()).unwrap().set_aside.is_some());
}

#[test]
fn files_of_a_store_are_accessible_by_the_owner_only_whatever_the_umask() {
    rustix::process::umask(Mode::empty());
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("below/store"), options()).unwrap();
    create_content(&store, 300_000);
    for _ in 0..40 {
        create_content(&store, 20_000);
        store.install().unwrap();
    }
    let mut archive = Vec::new();
    store.backup(&mut archive, &()).unwrap();
    store.close().unwrap();
    let restored = dir.path().join("restored");
    Store::restore(&restored, &mut archive.as_slice(), options(), &()).unwrap();
    Store::open(&restored, options()).unwrap().close().unwrap();
    damage_and_repair(&dir.path().join("damaged"));
    for store in ["below/store", "restored", "damaged"] {
        let paths = all_paths(&dir.path().join(store));
        let files = paths.iter().filter(|path| path.is_file()).count();
        assert!(files >= 5, "{files} files in {store}");
        for path in paths {
            let expected = if path.is_dir() { 0o700 } else { 0o600 };
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(mode, expected, "mode of {}", path.display());
        }
    }
    let parent = fs::metadata(dir.path().join("below")).unwrap();
    assert_eq!(parent.permissions().mode() & 0o7777, 0o700);
}
