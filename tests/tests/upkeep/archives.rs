//! Archives, and storage that a removed space gives back.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::{Server, mortar, run};

use super::{filled_server, stat_all};

#[test]
fn backup_is_restored_completely() {
    let mut server = filled_server();
    let before = stat_all(&server);
    server.run(&["backup", "archive"]).ok();
    assert_eq!(server.run(&["backup", "archive"]).code, 4, "an existing archive is not overwritten");
    server.run_with_input(&["put", "-", "/later"], "x").ok();
    server.stop();
    fs::remove_dir_all(server.data()).unwrap();
    let mut restore = server.command(&["restore", "archive", "--json", "--data"]);
    let report = run(restore.arg(server.data()));
    report.ok();
    assert!(report.json()[0]["bytes"].as_u64().unwrap() > 3 << 20, "{}", report.text());
    server.restart();
    assert_eq!(stat_all(&server), before);
    assert_eq!(server.run(&["get", "/large"]).stdout, vec![5; 3 << 20]);
    assert_eq!(server.run(&["get", "/later"]).code, 3);
}

/// The objects that the brick has.
fn stored_objects(server: &Server) -> u64 {
    server.run(&["scrub", "--json"]).json()[0]["objects"].as_u64().unwrap()
}

#[test]
fn removed_space_gives_its_storage_back_and_its_clients_learn_of_it() {
    let server = filled_server();
    let before = stored_objects(&server);
    server.run(&["space", "create", "photos"]).ok();
    let url = format!("{}/photos", server.url().trim_end_matches("/main"));
    let inside = |args: &[&str]| run(server.command(&["--server", &url]).args(args));
    for number in 0..40 {
        server.run_with_input(&["--server", &url, "put", "-", &format!("/{number}")], vec![number; 70_000]).ok();
    }
    let filled = stored_objects(&server);
    assert!(filled >= before + 40, "{before}, then {filled}");
    let refused = server.run(&["space", "rm", "photos"]);
    assert!(refused.code == 4 && refused.stderr.contains("not empty"), "{}", refused.stderr);
    assert_eq!(inside(&["get", "/7"]).stdout, vec![7; 70_000]);

    server.run(&["space", "rm", "photos", "--yes"]).ok();
    assert_eq!(server.run(&["space", "ls"]).text().matches("photos").count(), 0);
    let gone = inside(&["get", "/7"]);
    assert!(gone.code == 3 && gone.stderr.contains("photos"), "{} {}", gone.code, gone.stderr);
    assert_eq!(server.run(&["space", "rm", "photos"]).code, 3);
    let until = Instant::now() + Duration::from_secs(30);
    while stored_objects(&server) > before {
        assert!(Instant::now() < until, "{} objects, {before} before", stored_objects(&server));
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(stat_all(&server).len(), 53, "other spaces are as they were");

    // Nothing of the old one is in a new one.
    server.run(&["space", "create", "photos"]).ok();
    assert_eq!(inside(&["ls"]).text(), "");
    server.run(&["space", "rm", "photos"]).ok();
}

#[test]
fn archives_can_be_piped() {
    let server = filled_server();
    let archive = server.run(&["backup", "-"]);
    assert_eq!(archive.code, 0, "{}", archive.stderr);
    let mut restore = server.command(&["restore", "-", "--data", "again"]);
    mortar_tests::run_with_input(&mut restore, archive.stdout).ok();
    assert!(server.dir().join("again/STORE").is_file());
}

#[test]
fn truncated_archives_and_directories_in_use_are_refused() {
    let mut server = filled_server();
    server.run(&["backup", "archive"]).ok();
    let archive = fs::read(server.dir().join("archive")).unwrap();
    fs::write(server.dir().join("cut"), &archive[..archive.len() / 2]).unwrap();
    assert_eq!(server.run(&["restore", "cut", "--data", "half"]).code, 6);
    assert!(!server.dir().join("half/STORE").exists(), "no store is left that could be opened");
    let restore_onto_it = |server: &Server| {
        let mut restore = server.command(&["restore", "archive", "--data"]);
        run(restore.arg(server.data())).code
    };
    assert_eq!(restore_onto_it(&server), 5, "a server uses the directory");
    server.stop();
    assert_eq!(restore_onto_it(&server), 2, "the directory is not empty");
    let other = server.dir().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("photo"), "x").unwrap();
    assert_eq!(server.run(&["restore", "archive", "--data", "other"]).code, 2);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1, "nothing is left in a directory that is refused");
    assert_eq!(server.run(&["restore", "archive", "--verify"]).code, 2, "--verify is for --list");
    assert_eq!(run(&mut mortar(&["restore", "/no/such/archive", "--data", "x"])).code, 3);
}
