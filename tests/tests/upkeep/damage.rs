//! Damaged logs and contents, missing bricks, and `mortar repair`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use mortar_tests::{CommandOutput, Server, mortar, run};
use serde_json::Value;

use super::filled_server;

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
        let mut repair = server.command(&["repair", "--json", "--data"]);
        let report = run(repair.arg(server.data()));
        if report.code == 6 && report.json()[0]["lost"].is_object() {
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
    let clone = server.run(&["space", "clone", "main", "copy"]);
    assert!(clone.code == 6 && clone.stderr.contains("has failed"), "{} {}", clone.code, clone.stderr);
    assert!(!server.dir().join("archive").exists());
}

/// A server of three bricks, the directory of the last one, and an object on it with bytes in a blob file.
fn server_of_three_bricks(args: &[&str]) -> (Server, PathBuf) {
    let server = Server::start(&[&["--bricks", "3"], args].concat());
    let brick = server.data().join("brick-3");
    for number in 0..64 {
        server.run_with_input(&["put", "-", &format!("/{number}")], vec![7; 1 << 20]).ok();
        if blob_files(&brick).iter().any(|file| fs::metadata(file).unwrap().len() > 1 << 20) {
            return (server, brick);
        }
    }
    panic!("no object is on the third brick");
}

fn blob_files(brick: &Path) -> Vec<PathBuf> {
    fs::read_dir(brick.join("blobs")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Flips a bit of the last byte of each blob file.
fn damage_blob_files(brick: &Path) {
    for file in blob_files(brick) {
        let mut bytes = fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&file, bytes).unwrap();
    }
}

#[test]
fn damage_of_any_brick_is_in_the_status_of_the_server_and_stays_after_a_restart() {
    let (mut server, brick) = server_of_three_bricks(&[]);
    server.run(&["status", "--quiet"]).ok();
    assert_eq!(server.run(&["status", "--json"]).json()[0]["metrics"]["scrub_damage"], 0);
    damage_blob_files(&brick);
    assert_eq!(server.run(&["scrub"]).code, 6);
    let check = |server: &Server| {
        let status = server.run(&["status", "--json"]);
        let shown = &status.json()[0];
        assert_eq!(status.code, 1, "{shown}");
        let problem = shown["health_problem"].as_str().unwrap();
        assert!(problem.contains("brick 3: a scrub found"), "{problem}");
        assert!(shown["metrics"]["scrub_damage"].as_u64().unwrap() > 0, "{shown}");
    };
    check(&server);
    server.stop();
    server.restart();
    check(&server);
}

#[test]
fn a_backup_that_damage_ends_names_the_brick_and_the_object() {
    let (server, brick) = server_of_three_bricks(&[]);
    damage_blob_files(&brick);
    let archive = server.dir().join("archive");
    let refused = server.run(&["backup", archive.to_str().unwrap()]);
    assert!(refused.code == 6 && refused.stderr.contains("brick 3: object "), "{} {}", refused.code, refused.stderr);
    assert!(!archive.exists());
    // With its path, if the brick has that, too.
    let server = Server::start(&[]);
    server.run_with_input(&["put", "-", "/large"], vec![7; 1 << 20]).ok();
    damage_blob_files(&server.data());
    let refused = server.run(&["backup", archive.to_str().unwrap()]);
    let is_named = refused.stderr.contains("brick 1: object ") && refused.stderr.contains("(/large): content ");
    assert!(refused.code == 6 && is_named, "{} {}", refused.code, refused.stderr);
}

#[test]
fn missing_blob_file_is_named_at_the_start_and_by_a_scrub() {
    let (mut server, brick) = server_of_three_bricks(&[]);
    server.stop();
    let name = blob_files(&brick).into_iter().min().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    blob_files(&brick).iter().for_each(|file| fs::remove_file(file).unwrap());
    server.restart();
    assert!(server.log().contains("a blob file is missing") && server.log().contains(&name), "{}", server.log());
    let report = server.run(&["scrub", "--json"]);
    let damaged = report.json()[0]["damaged"].to_string();
    assert!(report.code == 6 && damaged.contains(&format!("its blob file {name} is missing")), "{damaged}");
}

#[test]
fn server_does_not_start_without_the_directory_of_a_brick() {
    let (mut server, brick) = server_of_three_bricks(&[]);
    server.stop();
    let aside = server.dir().join("aside");
    fs::rename(&brick, &aside).unwrap();
    server.launch();
    assert_eq!(server.wait_exit().code(), Some(6));
    assert!(
        server.log().contains(&format!("the directory {} of brick 3 is missing", brick.display())),
        "{}",
        server.log()
    );
    assert!(!brick.exists(), "no new brick is made in its place");
    fs::rename(&aside, &brick).unwrap();
    server.restart();
    server.run(&["status", "--quiet"]).ok();
}

#[test]
fn other_bricks_are_served_without_a_directory_on_request() {
    let (mut server, brick) = server_of_three_bricks(&["--allow-missing-bricks"]);
    server.stop();
    fs::remove_dir_all(&brick).unwrap();
    server.restart();
    let status = server.run(&["status", "--json"]);
    assert!(status.json()[0]["health_problem"].as_str().unwrap().contains("cannot be reached: 3"), "{}", status.text());
    assert!(!brick.exists());
}

#[test]
fn repair_examines_the_bricks_below_a_directory_and_names_each() {
    let (mut server, brick) = server_of_three_bricks(&[]);
    server.stop();
    let repair = |server: &Server| run(server.command(&["repair", "--json", "--data"]).arg(server.data()));
    let usable = |report: &CommandOutput| -> Vec<bool> {
        report.json().iter().map(|line| line["usable"].as_bool().unwrap()).collect()
    };
    let report = repair(&server);
    report.ok();
    assert_eq!(usable(&report), [true, true, true]);
    File::options().write(true).open(brick.join("tree/rows")).unwrap().set_len(5000).unwrap();
    let report = repair(&server);
    assert_eq!((report.code, usable(&report)), (6, vec![true, true, false]), "{}", report.stderr);
    assert_eq!(report.json()[2]["data"], brick.to_str().unwrap());
    assert!(report.stderr.contains(brick.to_str().unwrap()), "{}", report.stderr);
    server.launch();
    assert_eq!(server.wait_exit().code(), Some(6));
    let hints = [server.log(), report.stderr];
    assert!(hints.iter().all(|hint| hint.contains("mortar restore FILE --data NEW")), "{hints:#?}");
}

#[test]
fn damaged_record_of_the_end_of_the_log_is_named() {
    let mut server = Server::start(&[]);
    server.run_with_input(&["put", "-", "/one"], "one").ok();
    server.run_with_input(&["put", "-", "/two"], "two").ok();
    server.stop();
    let report = |server: &Server| {
        let mut command = server.command(&["repair", "--json", "--data"]);
        run(command.arg(server.data())).json()[0]["damaged_tail"].clone()
    };
    assert_eq!(report(&server), false);
    let tail = server.data().join("log/tail");
    let mut bytes = fs::read(&tail).unwrap();
    bytes[4096 + 20] ^= 1;
    fs::write(&tail, bytes).unwrap();
    assert_eq!(report(&server), true);
    server.restart();
    assert!(server.log().contains("one of the two records of the end of the log cannot be read"), "{}", server.log());
    for number in 0..4 {
        server.run_with_input(&["put", "-", &format!("/{number}")], "more").ok();
    }
    server.stop();
    assert_eq!(report(&server), false, "it was written again");
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
