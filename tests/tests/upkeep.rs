//! Backup, restore, scrub and repair on the command line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::{Server, mortar, run};
use serde_json::Value;

fn filled_server() -> Server {
    let server = Server::start(&[]);
    for number in 0..50_u32 {
        server.run_with_input(&["put", "-", &format!("/small/{number}")], number.to_string()).ok();
    }
    server.run_with_input(&["put", "-", "/large", "--attr", "colour=red"], vec![5; 3 << 20]).ok();
    server.run(&["collection", "create", "/c"]).ok();
    server.run(&["collection", "add", "/c", "/large", "/small/7"]).ok();
    server
}

fn stat_all(server: &Server) -> Vec<Value> {
    let names = server.run(&["ls", "-r", "--json"]).json();
    let stats = names.iter().flat_map(|line| {
        let stat = server.run(&["stat", "--json", line["name"].as_str().unwrap()]);
        stat.ok();
        stat.json()
    });
    stats.collect()
}

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
    assert_eq!(run(&mut mortar(&["restore", "/no/such/archive", "--data", "x"])).code, 3);
}

#[test]
fn intact_store_needs_no_repair() {
    let mut server = filled_server();
    let mut repair = server.command(&["repair", "--data"]);
    assert_eq!(run(repair.arg(server.data())).code, 5, "a server uses the directory");
    server.stop();
    let mut repair = server.command(&["repair", "--json", "--data"]);
    let report = run(repair.arg(server.data()));
    report.ok();
    assert_eq!(report.json()[0]["usable"], true);
    assert_eq!(report.json()[0]["repaired"], false);
    assert_eq!(run(&mut mortar(&["repair", "--data", "/no/such/directory"])).code, 3);
}

/// A server that was killed, with damage to transactions that are only in its log.
fn damaged_server() -> Server {
    for _ in 0..20 {
        let mut server = Server::start(&[]);
        for number in 0..20 {
            server.run_with_input(&["put", "-", &format!("/{number}")], vec![b'x'; 2000]).ok();
        }
        // Killed, so that the log still has all transactions.
        server.kill();
        let log = server.data().join("log");
        let segment = fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
        let mut bytes = fs::read(&segment).unwrap();
        let middle = bytes.windows(64).position(|window| window == [b'x'; 64]).unwrap() + 10_000;
        bytes[middle..middle + 8].fill(0xff);
        fs::write(&segment, bytes).unwrap();
        let mut repair = server.command(&["repair", "--data"]);
        if run(repair.arg(server.data())).code == 6 {
            return server;
        }
        // The installer has installed everything before the kill, so no transaction would be lost.
    }
    panic!("the installer was faster in every attempt");
}

#[test]
fn damaged_acknowledged_transactions_are_reported_and_dropped_only_on_request() {
    let mut server = damaged_server();
    server.launch();
    assert_eq!(server.wait_exit().code(), Some(6), "{}", server.log());
    let repair = |server: &Server, args: &[&str]| {
        let mut command = server.command(&["repair", "--json", "--data"]);
        run(command.arg(server.data()).args(args))
    };
    let report = repair(&server, &[]);
    assert_eq!(report.code, 6);
    assert_eq!(report.json()[0]["usable"], false);
    assert!(report.json()[0]["lost"]["first"].as_u64().unwrap() > 1, "{:?}", report.json());
    server.launch();
    assert_eq!(server.wait_exit().code(), Some(6), "nothing is repaired without a request");
    let repaired = repair(&server, &["--accept-loss"]);
    repaired.ok();
    assert_eq!(repaired.json()[0]["lost"], report.json()[0]["lost"]);
    server.restart();
    assert_eq!(server.run(&["get", "/0"]).stdout, vec![b'x'; 2000]);
    assert_eq!(server.run(&["get", "/19"]).code, 3);
    server.run_with_input(&["put", "-", "/19"], "again").ok();
}

#[test]
fn scrub_names_damaged_objects_while_the_server_serves() {
    let server = filled_server();
    let report = server.run(&["scrub", "--json"]);
    report.ok();
    // 50 small blobs and their directory, a large one and a collection.
    assert_eq!((&report.json()[0]["objects"], &report.json()[0]["damaged"]), (&Value::from(53), &Value::Array(vec![])));
    // Flips a bit of the large object on the disk.
    let blob = fs::read_dir(server.data().join("blobs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let report = server.run(&["scrub", "--json"]);
    assert_eq!(report.code, 6, "{}", report.stderr);
    let damaged = report.json()[0]["damaged"].as_array().unwrap().clone();
    assert_eq!(damaged.len(), 1, "{damaged:?}");
    assert!(damaged[0].as_str().unwrap().contains("(/large)"), "{damaged:?}");
    assert_eq!(server.run(&["get", "/large"]).code, 6, "damaged bytes are never returned");
    assert_eq!(server.run(&["get", "/small/7"]).stdout, b"7");
    assert_eq!(server.run(&["backup", "archive"]).code, 6, "a backup contains no damaged data");
    assert!(!server.dir().join("archive").exists());
}

#[test]
fn repair_leaves_a_directory_alone_that_is_no_store() {
    let server = Server::new(&[]);
    let dir = server.dir().join("letters");
    fs::create_dir(&dir).unwrap();
    assert_eq!(server.run(&["repair", "--data", "letters"]).code, 3);
    fs::write(dir.join("one.txt"), "dear").unwrap();
    let refused = server.run(&["repair", "--data", "letters", "--accept-loss"]);
    assert!(refused.code == 2 && refused.stderr.contains("one.txt"), "{} {}", refused.code, refused.stderr);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}
