//! Trees of files through a real server: import, verify, export, repeated and interrupted.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Instant;

use client::{Client, Transaction};
use mortar_tests::{Server, TEST_TIMEOUT, send, spawn, wait};
use rustix::process::Signal;
use serde_json::Value;

/// Creates a tree with a file of each kind.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/deeper")).unwrap();
    fs::write(root.join("readme"), "hello\n").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    fs::write(root.join("sub/large.bin"), vec![42; (2 << 20) + 17]).unwrap();
    fs::write(root.join("sub/deeper/page.html"), "<p>").unwrap();
    fs::write(root.join(OsStr::from_bytes(b"odd\xff%41")), "odd").unwrap();
    symlink("sub/deeper", root.join("link")).unwrap();
    symlink("/nowhere/at all", root.join("dangling")).unwrap();
    fs::set_permissions(root.join("readme"), Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(root.join("sub/deeper"), Permissions::from_mode(0o750)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    fs::File::options().write(true).open(root.join("readme")).unwrap().set_modified(time).unwrap();
}

const OBJECTS: u64 = 10;

fn run_json(server: &Server, args: &[&str], code: i32) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    let run = server.run(&args);
    assert_eq!(run.code, code, "{args:?}: {} {}", run.text(), run.stderr);
    run.json().remove(0)
}

fn import_tree() -> (Server, std::path::PathBuf) {
    let server = Server::start(&[]);
    let root = server.dir().join("tree");
    make_tree(&root);
    let report = run_json(&server, &["import", "tree"], 0);
    assert_eq!(report["imported"], OBJECTS, "{report}");
    assert_eq!(report["prefix"], "/tree");
    (server, root)
}

#[test]
fn a_tree_is_imported_with_kinds_and_attributes() {
    let (server, _) = import_tree();
    assert_eq!(server.run(&["get", "/tree/readme"]).stdout, b"hello\n");
    assert_eq!(server.run(&["attr", "get", "/tree/readme", "posix.mode"]).ok(), "0640");
    assert_eq!(server.run(&["attr", "get", "/tree/readme", "posix.mtime"]).ok(), "1000000000.123456789");
    assert_eq!(server.run(&["attr", "get", "/tree/sub/deeper/page.html", "content-type"]).ok(), "text/html");
    assert_eq!(server.run(&["attr", "get", "/tree/link", "posix.type"]).ok(), "symlink");
    assert_eq!(server.run(&["get", "/tree/link"]).ok(), "sub/deeper");
    assert_eq!(server.run(&["get", "/tree/odd%FF%2541"]).ok(), "odd");
    assert_eq!(run_json(&server, &["stat", "/tree/sub/large.bin"], 0)["size"], (2 << 20) + 17);
    let sub = run_json(&server, &["stat", "/tree/sub"], 0);
    assert_eq!((&sub["kind"], &sub["size"]), (&"directory".into(), &2.into()));
    assert_eq!(run_json(&server, &["stat", "/tree"], 0)["size"], 6);
}

#[test]
fn second_import_changes_nothing() {
    let (server, _) = import_tree();
    let before = server.run(&["ls", "-r", "--json"]).stdout;
    let report = run_json(&server, &["import", "tree"], 0);
    assert_eq!((&report["unchanged"], &report["imported"]), (&OBJECTS.into(), &0.into()), "{report}");
    assert_eq!(server.run(&["ls", "-r", "--json"]).stdout, before, "versions are unchanged");
}

#[test]
fn later_import_updates_only_changed_files() {
    let (server, root) = import_tree();
    fs::write(root.join("readme"), "changed").unwrap();
    fs::write(root.join("sub/large.bin"), vec![43; 3 << 20]).unwrap();
    fs::write(root.join("sub/new"), "new").unwrap();
    fs::set_permissions(root.join("empty"), Permissions::from_mode(0o600)).unwrap();
    let report = run_json(&server, &["import", "tree"], 0);
    assert_eq!(report["replaced"], 2, "{report}");
    assert_eq!(report["imported"], 1, "{report}");
    // The mode of a file, and the time of the directory with a new file.
    assert_eq!(report["updated"], 2, "{report}");
    assert_eq!(server.run(&["get", "/tree/readme"]).ok(), "changed");
    assert_eq!(server.run(&["attr", "get", "/tree/empty", "posix.mode"]).ok(), "0600");
    assert_eq!(run_json(&server, &["verify", "tree"], 0)["same"], OBJECTS + 1);
}

#[test]
fn exported_tree_equals_the_imported_one() {
    let (server, root) = import_tree();
    let run = server.run(&["export", "out", "--prefix", "/tree", "--verify", "--json"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let reports = run.json();
    assert_eq!((&reports[0]["files"], &reports[0]["links"]), (&5.into(), &2.into()), "{reports:?}");
    assert_eq!(reports[1]["same"], OBJECTS, "{reports:?}");
    let out = server.dir().join("out");
    for name in [&b"readme"[..], b"sub", b"sub/deeper", b"sub/deeper/page.html", b"link", b"odd\xff%41", b"."] {
        let [before, after] = [&root, &out].map(|dir| fs::symlink_metadata(dir.join(OsStr::from_bytes(name))).unwrap());
        let name = String::from_utf8_lossy(name);
        assert_eq!(before.mode(), after.mode(), "{name}");
        assert_eq!((before.mtime(), before.mtime_nsec()), (after.mtime(), after.mtime_nsec()), "{name}");
    }
    assert_eq!(fs::read_link(out.join("dangling")).unwrap(), Path::new("/nowhere/at all"));
    assert_eq!(server.run(&["export", "out", "--prefix", "/tree"]).code, 2, "the directory is not empty");
    server.run(&["export", "out", "--prefix", "/tree", "--overwrite"]).ok();
}

#[test]
fn verify_names_what_differs_and_what_is_missing() {
    let (server, root) = import_tree();
    server.run_with_input(&["put", "-", "/tree/readme"], "other\n").ok();
    server.run_with_input(&["put", "-", "/tree/extra"], "x").ok();
    fs::write(root.join("sub/new"), "new").unwrap();
    let run = server.run(&["verify", "tree", "--json"]);
    assert_eq!(run.code, 4);
    let report = run.json().remove(0);
    assert_eq!((&report["different"], &report["missing"], &report["extra"]), (&1.into(), &1.into(), &1.into()));
    let warned: Vec<String> = run.errors().iter().map(|line| line["warning"]["message"].to_string()).collect();
    assert!(warned.iter().any(|message| message.contains("/tree/readme")), "{warned:?}");
    assert!(warned.iter().any(|message| message.contains("/tree/sub/new")), "{warned:?}");
}

#[test]
fn special_files_are_counted_and_a_budget_is_respected() {
    let server = Server::start(&["--memory"]);
    let root = server.dir().join("tree");
    make_tree(&root);
    drop(UnixListener::bind(root.join("socket")).unwrap());
    let report = run_json(&server, &["import", "tree", "--max-bytes", "1000"], 0);
    assert_eq!((&report["skipped"], &report["left_out"]), (&1.into(), &1.into()), "{report}");
    assert_eq!(report["imported"], OBJECTS - 1);
    assert_eq!(run_json(&server, &["verify", "tree", "--max-bytes", "1000"], 0)["same"], OBJECTS - 1);
}

#[test]
fn failures_of_an_import_are_reported_and_the_rest_is_imported() {
    let server = Server::start(&["--memory"]);
    let root = server.dir().join("tree");
    make_tree(&root);
    // A blob in the store has the name of the directory.
    server.run_with_input(&["put", "-", "/tree/sub"], "in the way").ok();
    let run = server.run(&["import", "tree", "--json"]);
    assert_eq!(run.code, 1);
    let report = run.json().remove(0);
    // The directory, its subdirectory, and a file in each.
    assert_eq!(report["failed"], 4, "{report}");
    // The tree's root exists already, as the directory of the blob.
    assert_eq!((&report["imported"], &report["updated"]), (&5.into(), &1.into()), "{report}");
    assert_eq!(server.run(&["get", "/tree/sub"]).ok(), "in the way");
}

/// Creates twenty directories of 200 small files.
fn make_many(root: &Path) {
    for directory in 0..20 {
        let directory = root.join(directory.to_string());
        fs::create_dir_all(&directory).unwrap();
        for file in 0..200 {
            fs::write(directory.join(file.to_string()), format!("content of {file}")).unwrap();
        }
    }
}

const MANY_OBJECTS: u64 = 20 * 200 + 21;

/// Starts an import of the tree `many` and waits until it has made progress.
fn start_import(server: &Server) -> Child {
    let mut import = server.command(&["import", "many", "--json"]);
    import.stdout(Stdio::null());
    let import = spawn(import).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while server.run(&["name", "ls", "/many/0/"]).stdout.is_empty() {
        assert!(Instant::now() < until, "nothing is imported");
    }
    import
}

#[test]
fn import_can_be_repeated_after_its_server_was_killed() {
    let mut server = Server::start(&[]);
    make_many(&server.dir().join("many"));
    let mut import = start_import(&server);
    server.kill();
    // The import may have failed already. Either way, the next one continues.
    let _ = import.kill();
    import.wait().unwrap();
    server.restart();
    assert_eq!(run_json(&server, &["import", "many"], 0)["failed"], 0);
    assert_eq!(run_json(&server, &["verify", "many"], 0)["same"], MANY_OBJECTS);
}

#[test]
fn ctrl_c_ends_an_import_even_if_the_server_hangs() {
    let server = Server::start(&[]);
    make_many(&server.dir().join("many"));
    let mut import = start_import(&server);
    server.signal(Signal::STOP);
    send(&import, Signal::INT);
    let status = wait(&mut import, TEST_TIMEOUT).expect("the import ends");
    server.signal(Signal::CONT);
    // The import may have been complete already.
    assert!(matches!(status.code(), Some(130 | 0)), "{status}");
    run_json(&server, &["import", "many"], 0);
    assert_eq!(run_json(&server, &["verify", "many"], 0)["same"], MANY_OBJECTS);
}

#[test]
fn two_imports_at_once_create_each_object_once() {
    let server = Server::start(&[]);
    make_many(&server.dir().join("many"));
    let imports: Vec<_> = (0..2)
        .map(|_| {
            let mut import = server.command(&["import", "many", "--json"]);
            thread::spawn(move || mortar_tests::run(&mut import))
        })
        .collect();
    let reports: Vec<Value> = imports
        .into_iter()
        .map(|import| {
            let run = import.join().unwrap();
            assert_eq!(run.code, 0, "{}", run.stderr);
            run.json().remove(0)
        })
        .collect();
    let count = |what: &str| reports.iter().map(|report| report[what].as_u64().unwrap()).sum::<u64>();
    assert_eq!((count("imported"), count("unchanged")), (MANY_OBJECTS, MANY_OBJECTS), "{reports:?}");
    let verified = run_json(&server, &["verify", "many"], 0);
    assert_eq!((&verified["same"], &verified["extra"]), (&MANY_OBJECTS.into(), &0.into()));
}

#[test]
fn thousands_of_files_are_imported_found_again_and_exported() {
    let server = Server::start(&[]);
    make_many(&server.dir().join("many"));
    let prefix = ["--prefix", "/deep/below/many"];
    let with_prefix = |args: &[&'static str]| [args, &prefix].concat();
    assert_eq!(run_json(&server, &with_prefix(&["import", "many"]), 0)["imported"], MANY_OBJECTS);
    assert_eq!(run_json(&server, &with_prefix(&["import", "many"]), 0)["unchanged"], MANY_OBJECTS);
    let run = server.run(&with_prefix(&["export", "out", "--verify", "--json"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.json()[1]["same"], MANY_OBJECTS);
}

/// Creates files of all sizes that are stored in different ways. The size of a file depends on `turn`.
fn make_sizes(root: &Path, turn: usize) -> u64 {
    const SIZES: [usize; 8] = [0, 1, 32 << 10, (32 << 10) + 1, 200 << 10, 1 << 20, (1 << 20) + 1, (3 << 20) + 5];
    fs::create_dir_all(root).unwrap();
    for file in 0..SIZES.len() {
        let size = SIZES[(file + turn) % SIZES.len()];
        fs::write(root.join(file.to_string()), vec![b'a' + turn as u8; size]).unwrap();
    }
    SIZES.len() as u64
}

#[test]
fn content_of_any_size_is_replaced_by_content_of_any_size() {
    let server = Server::start(&[]);
    let root = server.dir().join("sizes");
    let files = make_sizes(&root, 0);
    assert_eq!(run_json(&server, &["import", "sizes"], 0)["imported"], files + 1);
    for turn in 1..8 {
        make_sizes(&root, turn);
        assert_eq!(run_json(&server, &["import", "sizes"], 0)["replaced"], files, "turn {turn}");
        assert_eq!(run_json(&server, &["verify", "sizes"], 0)["same"], files + 1, "turn {turn}");
    }
    let run = server.run(&["export", "out", "--prefix", "/sizes", "--verify", "--json"]);
    assert_eq!(run.json()[1]["same"], files + 1, "{}", run.stderr);
}

#[test]
fn file_with_a_name_that_is_too_long_is_reported_and_the_rest_is_imported() {
    let server = Server::start(&["--memory"]);
    let root = server.dir().join("tree");
    make_tree(&root);
    // Each of these bytes becomes three in the store.
    fs::write(root.join(OsStr::from_bytes(&[0xff; 86])), "x").unwrap();
    let run = server.run(&["import", "tree", "--json"]);
    assert_eq!(run.code, 1);
    let report = run.json().remove(0);
    assert_eq!((&report["failed"], &report["imported"]), (&1.into(), &OBJECTS.into()), "{report}");
    assert!(run.stderr.contains("255 bytes"), "{}", run.stderr);
}

#[test]
fn tree_can_be_imported_into_the_root_directory() {
    let server = Server::start(&["--memory"]);
    make_tree(&server.dir().join("tree"));
    let report = run_json(&server, &["import", "tree", "--prefix", "/"], 0);
    // The root directory exists already.
    assert_eq!((&report["imported"], &report["unchanged"]), (&(OBJECTS - 1).into(), &1.into()), "{report}");
    let verified = run_json(&server, &["verify", "tree", "--prefix", "/"], 0);
    assert_eq!((&verified["same"], &verified["extra"]), (&OBJECTS.into(), &0.into()));
    assert_eq!(server.run(&["export", "out"]).code, 0);
    assert_eq!(fs::read(server.dir().join("out/readme")).unwrap(), b"hello\n");
}

#[test]
fn names_that_lead_out_of_the_directory_are_not_exported() {
    let server = Server::start(&["--memory"]);
    for name in ["/t/fine", "/t/%2E%2E/x", "/t/a%2Fb", "/t/%41"] {
        server.run_with_input(&["put", "-", name], "x").ok();
    }
    let run = server.run(&["export", "out/in", "--prefix", "/t", "--json"]);
    assert_eq!(run.code, 1);
    assert_eq!(run.json()[0]["files"], 1);
    // The directory, what is in it, the name with a slash, and one that would come back as another.
    assert_eq!(run.json()[0]["failed"], 4, "{}", run.stderr);
    assert!(!server.dir().join("out/x").exists());
    assert!(server.dir().join("out/in/fine").exists());
}

#[test]
fn damaged_object_is_named_and_the_others_are_exported_and_verified() {
    let (server, _) = import_tree();
    let blob = fs::read_dir(server.data().join("blobs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let oid = run_json(&server, &["stat", "/tree/sub/large.bin"], 0)["oid"].as_str().unwrap().to_owned();
    let read = server.run(&["get", "/tree/sub/large.bin"]);
    assert!(read.code == 6 && read.stderr.contains(&oid), "{}", read.stderr);
    let exported = server.run(&["export", "out", "--prefix", "/tree", "--json"]);
    assert_eq!(exported.code, 6, "{}", exported.stderr);
    let report = &exported.json()[0];
    assert_eq!((&report["failed"], &report["damaged"]), (&1.into(), &1.into()), "{report}");
    assert!(exported.stderr.contains("large.bin") && exported.stderr.contains(&oid), "{}", exported.stderr);
    assert_eq!(fs::read(server.dir().join("out/sub/deeper/page.html")).unwrap(), b"<p>");
    assert!(!server.dir().join("out/sub/large.bin").exists());
    let report = run_json(&server, &["verify", "tree"], 6);
    assert_eq!((&report["same"], &report["damaged"]), (&(OBJECTS - 1).into(), &1.into()), "{report}");
    let scrubbed = server.run(&["scrub"]);
    assert!(scrubbed.code == 6 && scrubbed.text().contains("/tree/sub/large.bin"), "{}", scrubbed.text());
    fs::remove_file(&blob).unwrap();
    let report = run_json(&server, &["verify", "tree"], 6);
    assert_eq!((&report["same"], &report["damaged"]), (&(OBJECTS - 1).into(), &1.into()), "{report}");
}

#[test]
fn empty_directory_is_imported_and_exported() {
    let server = Server::start(&["--memory"]);
    fs::create_dir(server.dir().join("empty")).unwrap();
    server.run(&["import", "empty"]).ok();
    let report = run_json(&server, &["export", "out", "--prefix", "/empty"], 0);
    assert_eq!((&report["directories"], &report["files"]), (&1.into(), &0.into()), "{report}");
    assert_eq!(server.run(&["export", "other", "--prefix", "/nothing"]).code, 3);
}

#[test]
fn tree_is_verified_beside_names_that_are_not_in_it() {
    let server = Server::start(&["--memory"]);
    let root = server.dir().join("tree");
    fs::create_dir(&root).unwrap();
    for number in 0..40 {
        fs::write(root.join(format!("{number:02}")), number.to_string()).unwrap();
    }
    server.run(&["import", "tree"]).ok();
    // More names than one listing has, between those of the files.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let directory = client.resolve("/tree").await.unwrap().unwrap();
        for first in (0..1500).step_by(500) {
            let bind = |t: Transaction| async move {
                let blob = t.create_blob("x")?;
                for number in first..first + 500 {
                    t.put_entry(directory, &format!("07-{number:04}"), blob).await?;
                }
                Ok(())
            };
            client.transact(bind).await.unwrap();
        }
    });
    fs::remove_file(root.join("11")).unwrap();
    fs::write(root.join("30-new"), "new").unwrap();
    let elsewhere = server.run(&["verify", "tree", "--prefix", "/nope"]);
    assert_eq!((elsewhere.code, elsewhere.stderr.lines().next()), (3, Some("error: nothing has the name /nope")));
    let report = run_json(&server, &["verify", "tree"], 4);
    let counts = ["same", "different", "missing", "extra"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [40, 0, 1, 1501], "{report}");
    let report = run_json(&server, &["import", "tree"], 0);
    // The time of the directory has changed.
    let counts = ["imported", "updated", "unchanged"].map(|key| report[key].as_u64().unwrap());
    assert_eq!(counts, [1, 1, 39], "{report}");
}

#[test]
fn records_and_sets_are_reported_and_not_exported() {
    let server = Server::start(&["--memory"]);
    server.run_with_input(&["put", "-", "/t/file"], "x").ok();
    server.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    server.run(&["object", "put", "/t/ann", "--class", "Person", r#"{"name": "Ann"}"#]).ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cluster = Client::connect(&server.url()).await.unwrap();
        let bind = async |t: Transaction| t.bind("/t/set", t.create_collection()?).await;
        cluster.transact(bind).await.unwrap();
    });
    let run = server.run(&["export", "out", "--prefix", "/t", "--json"]);
    assert_eq!(run.code, 1);
    assert_eq!((&run.json()[0]["files"], &run.json()[0]["failed"]), (&1.into(), &2.into()), "{}", run.stderr);
    assert!(run.stderr.contains("/t/ann: it is a record"), "{}", run.stderr);
    assert!(run.stderr.contains("/t/set: it is a collection"), "{}", run.stderr);
}
