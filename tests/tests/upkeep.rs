//! Backup, restore, scrub and repair on the command line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, IsolationLevel};
use model::ErrorKind;
use mortar_tests::{CommandOutput, Server, mortar, run};
use serde_json::Value;
use store::{Options, RowChanges, Store};

/// How long a store changes while it is scrubbed.
const LOAD: Duration = Duration::from_secs(30);

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
    let other = server.dir().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("photo"), "x").unwrap();
    assert_eq!(server.run(&["restore", "archive", "--data", "other"]).code, 2);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1, "nothing is left in a directory that is refused");
    assert_eq!(server.run(&["restore", "archive", "--verify"]).code, 2, "--verify is for --list");
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

/// Opens the store of a server that was stopped. A process that another test has just forked has a copy of the lock until it executes its program.
fn open_store(server: &Server) -> Store {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match Store::open(&server.data(), Options::default()) {
            Err(error) if error.kind() == model::ErrorKind::Unavailable && Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            store => return store.unwrap(),
        }
    }
}

/// Removes the first row with such a key from the store of a server that was stopped.
fn remove_row(server: &Server, from: &[u8], is_wanted: impl Fn(&[u8]) -> bool) {
    let store = open_store(server);
    let to = [from[0] + 1];
    let mut found = None;
    store
        .rows(from, &to, |key, _| {
            found = Some(key.to_vec()).filter(|key| is_wanted(key));
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    let mut changes = RowChanges::new();
    changes.remove(&found.unwrap());
    store.commit_rows(changes).unwrap();
    store.close().unwrap();
}

/// Runs a command at the brick itself.
fn at_brick(server: &Server, args: &[&str]) -> CommandOutput {
    let bricks = server.run(&["brick", "list", "--json"]).json();
    let url = format!("mortar://{}", bricks[0]["addresses"][0].as_str().unwrap());
    server.run(&[&["--server", &url], args].concat())
}

/// What the brick says of itself.
fn brick_status(server: &Server) -> CommandOutput {
    at_brick(server, &["status", "--json"])
}

#[test]
fn scrub_compares_rows_with_each_other_and_repairs_them_while_the_server_serves() {
    let mut server = filled_server();
    server.run(&["class", "define", "Person", "--field", "name:string", "--field", "age:int64"]).ok();
    server.run(&["index", "create", "by_age", "--class", "Person", "--field", "age"]).ok();
    for age in 20..30 {
        let person = format!("{{\"name\": \"Ann\", \"age\": {age}}}");
        server.run(&["object", "put", &format!("/people/{age}"), "--class", "Person", &person]).ok();
    }
    let report = server.run(&["scrub", "--json"]);
    report.ok();
    assert_eq!(report.json()[0]["problems"], Value::Array(vec![]));
    server.stop();
    // A person in the extent and another one in the index, and an entry of the set under its target.
    remove_row(&server, b"E", |_| true);
    remove_row(&server, b"I", |_| true);
    remove_row(&server, b"R", |_| true);
    server.restart();
    let count = |server: &Server, query: &str| server.run(&["query", "Person", query, "--json"]).json().len();
    assert_eq!((count(&server, "true"), count(&server, "age >= 20")), (9, 9), "queries miss one");
    let kinds = |report: &Value, repair: &str| -> Vec<String> {
        let problems = report["problems"].as_array().unwrap().iter().filter(|problem| problem["repair"] == repair);
        let mut kinds: Vec<String> = problems.map(|problem| problem["kind"].as_str().unwrap().to_owned()).collect();
        kinds.sort();
        kinds
    };
    let expected = ["extent_missing", "index_entry_missing", "reverse_missing"];
    let report = at_brick(&server, &["scrub", "--json"]);
    assert_eq!(report.code, 6, "{}", report.stderr);
    assert_eq!(kinds(&report.json()[0], "possible"), expected, "{:?}", report.json());
    let report = server.run(&["scrub", "--json"]);
    assert_eq!((report.code, report.json()[0]["damaged"].as_array().unwrap().len()), (6, 3), "{:?}", report.json());
    let text = server.run(&["scrub"]);
    assert!(text.code == 6 && text.text().contains("(/people/2"), "{}", text.text());
    let status = brick_status(&server);
    assert!(status.code == 1 && status.json()[0]["health_problem"].as_str().unwrap().contains("scrub"));
    let repaired = server.run(&["scrub", "--repair", "--json"]);
    repaired.ok();
    assert_eq!(kinds(&repaired.json()[0], "done"), expected, "{:?}", repaired.json());
    assert_eq!((count(&server, "true"), count(&server, "age >= 20")), (10, 10));
    let report = server.run(&["scrub", "--json"]);
    report.ok();
    assert_eq!(report.json()[0]["problems"], Value::Array(vec![]));
    brick_status(&server).ok();
    server.stop();
    server.restart();
    server.run(&["scrub"]).ok();
}

#[test]
fn a_scrub_lists_a_wrong_count_of_objects_as_corrected_and_not_as_damage() {
    let mut server = filled_server();
    for command in [&["scrub"][..], &["scrub", "--repair"]] {
        server.stop();
        // That row counts the objects of a logical node.
        remove_row(&server, b"N", |_| true);
        server.restart();
        let scrubbed = server.run(&[command, &["--json"]].concat());
        scrubbed.ok();
        let report = &scrubbed.json()[0];
        let corrected = report["corrected"].as_array().unwrap();
        assert_eq!((corrected.len(), &report["damaged"]), (1, &Value::Array(vec![])), "{report}");
        assert!(corrected[0].as_str().unwrap().contains("counts 0 objects of 0 bytes, and has "), "{report}");
        brick_status(&server).ok();
        let again = server.run(&["scrub"]);
        assert!(again.ok().contains("all is well"), "{}", again.text());
    }
}

#[test]
fn scrub_says_nothing_wrong_of_a_store_that_is_changing() {
    let server = filled_server();
    let started = Instant::now();
    thread::scope(|scope| {
        for writer in 0..2 {
            let server = &server;
            scope.spawn(move || {
                for number in 0_u32.. {
                    if started.elapsed() > LOAD {
                        return;
                    }
                    let name = format!("/load/{writer}/{}", number % 7);
                    server.run_with_input(&["put", "-", &name], vec![1; 40_000 * (number as usize % 4)]).ok();
                    server.run(&["attr", "set", &name, "key", &number.to_string()]).ok();
                    if number % 3 == 0 {
                        server.run(&["rm", &name]).ok();
                    }
                }
            });
        }
        while started.elapsed() < LOAD {
            let report = at_brick(&server, &["scrub", "--json"]);
            report.ok();
            assert_eq!(report.json()[0]["problems"], Value::Array(vec![]), "{:?}", report.json());
            server.run(&["scrub"]).ok();
        }
    });
}

#[test]
fn names_members_and_references_that_lead_nowhere_are_named_and_removed_on_request() {
    let server = filled_server();
    server.run(&["class", "define", "Note", "--field", "about:ref?"]).ok();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let cluster = client::Client::connect(&server.url()).await.unwrap();
        let oid = cluster.resolve("/small/7").await.unwrap().unwrap();
        let note = format!("{{\"about\": \"{oid}\"}}");
        server.run(&["object", "put", "/note", "--class", "Note", &note]).ok();
        // A deletion by itself leaves the name, the membership and the reference.
        cluster.transact(|transaction| async move { transaction.delete(oid).await }).await.unwrap();
        cluster.shutdown().await.unwrap();
    });
    let leads = |args: &[&str]| {
        let report = server.run(args);
        report.ok();
        let problems = report.json()[0]["problems"].as_array().unwrap().clone();
        let of_kind = |kind: &str, repair: &str| {
            let wanted = |one: &&Value| one["kind"] == kind && one["repair"] == repair && one["dangling"] == true;
            problems.iter().filter(wanted).count()
        };
        (
            of_kind("target_missing", "loses"),
            of_kind("target_missing", "done"),
            of_kind("reference_missing", "impossible"),
        )
    };
    assert_eq!(leads(&["scrub", "--references", "--json"]), (2, 0, 1));
    // What leads nowhere is no damage of a brick.
    at_brick(&server, &["scrub", "--json"]).ok();
    brick_status(&server).ok();
    assert_eq!(leads(&["scrub", "--references", "--repair", "--json"]), (2, 0, 1), "nothing is lost without consent");
    assert_eq!(leads(&["scrub", "--references", "--repair", "--yes", "--json"]), (0, 2, 1));
    assert_eq!(leads(&["scrub", "--references", "--json"]), (0, 0, 1));
    brick_status(&server).ok();
}

#[test]
fn values_of_unique_indexes_that_are_lost_or_shared_are_named_and_bound_on_request() {
    let mut server = Server::start(&[]);
    server.run(&["class", "define", "User", "--field", "mail:string?"]).ok();
    server.run(&["index", "create", "by_mail", "--class", "User", "--field", "mail", "--unique"]).ok();
    let put = |server: &Server, name: &str, mail: &str| {
        let user = format!("{{\"mail\": \"{mail}\"}}");
        server.run(&["object", "put", name, "--class", "User", &user])
    };
    put(&server, "/ann", "ann@example.org").ok();
    put(&server, "/bob", "bob@example.org").ok();
    let is_of = |key: &[u8], mail: &[u8]| key.windows(mail.len()).any(|bytes| bytes == mail);
    let scrub = |server: &Server, options: &[&str], code: u8| {
        let report = server.run(&[&["scrub", "--references", "--json"], options].concat());
        assert_eq!(report.code, i32::from(code), "{} {}", report.text(), report.stderr);
        let problems = report.json()[0]["problems"].as_array().unwrap().clone();
        let problems = problems.iter().map(|one| {
            assert_eq!(one["dangling"], false);
            format!("{} {}", one["kind"].as_str().unwrap(), one["repair"].as_str().unwrap())
        });
        // With --repair, a brick itself finds values twice, if both objects are at one logical node.
        let mut problems: Vec<String> = problems.filter(|problem| problem.starts_with("unique_")).collect();
        problems.sort();
        problems
    };
    assert_eq!(scrub(&server, &[], 0), Vec::<String>::new());

    // Both have lost their values, and another object has got those of one of them.
    server.stop();
    for mail in [b"ann@example.org", b"bob@example.org"] {
        remove_row(&server, b"C", |key| is_of(key, mail));
    }
    server.restart();
    put(&server, "/anna", "ann@example.org").ok();
    let found =
        |repair: &str| vec!["unique_values_shared impossible".to_owned(), format!("unique_values_unbound {repair}")];
    assert_eq!(scrub(&server, &[], 6), found("possible"));
    assert_eq!(scrub(&server, &["--repair"], 6), found("done"));
    let text = server.run(&["scrub", "--references"]);
    assert!(text.text().contains("have the same values, and index \"by_mail\" is unique"), "{}", text.text());
    let refused = put(&server, "/robert", "bob@example.org");
    assert!(refused.code != 0 && refused.stderr.contains("by_mail"), "{} {}", refused.code, refused.stderr);
    server.run(&["rm", "/ann"]).ok();
    assert_eq!(scrub(&server, &[], 0), Vec::<String>::new());
}

/// Entries are lost, for example with a page of the B-tree that was given up, and their targets still say that they have them.
#[test]
fn lost_names_and_members_that_their_objects_know_are_restored() {
    let mut server = Server::start(&[]);
    for path in ["/letters/one", "/letters/old/two", "/deleted"] {
        server.run_with_input(&["put", "-", path], path).ok();
    }
    server.run(&["collection", "create", "/set"]).ok();
    server.run(&["collection", "add", "/set", "/letters/one"]).ok();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let oid = client.resolve("/deleted").await.unwrap().unwrap();
        // A deletion by itself leaves the name.
        client.transact(|transaction| async move { transaction.delete(oid).await }).await.unwrap();
        client.shutdown().await.unwrap();
    });
    let listed = server.run(&["ls", "-r"]).text().replace("/deleted\n", "");
    server.stop();
    let is_member = |key: &[u8]| {
        !["one", "old", "two", "letters", "set", "deleted"].iter().any(|name| key.ends_with(name.as_bytes()))
    };
    for name in [&b"one"[..], b"old", b"letters", b"deleted"] {
        remove_row(&server, b"C", |key| key.ends_with(name));
    }
    // The row with the totals of a collection is its shortest one.
    remove_row(&server, b"C", |key| is_member(key) && key.len() > 30);
    server.restart();

    assert_eq!(server.run(&["get", "/letters/one"]).code, 3);
    let found = server.run(&["scrub"]);
    assert_eq!(found.code, 6);
    assert_eq!(found.text().matches(" says that it is its target").count(), 5, "{}", found.text());
    let repaired = server.run(&["scrub", "--repair", "--references", "--json"]);
    repaired.ok();
    let problems = repaired.json()[0]["problems"].as_array().unwrap().clone();
    let restored = problems.iter().filter(|one| one["kind"] == "entry_missing" && one["repair"] == "done").count();
    assert_eq!(restored, 5, "{problems:?}");
    server.run(&["scrub", "--references"]).ok();
    assert_eq!(server.run(&["ls", "-r"]).text(), listed);
    assert_eq!(server.run(&["get", "/letters/old/two"]).stdout, b"/letters/old/two");
    assert_eq!(server.run(&["collection", "ls", "/set", "--json"]).ok().lines().count(), 1);
    server.run(&["rm", "-r", "/letters"]).ok();
    server.run(&["scrub", "--references"]).ok();
}

/// The object of a directory or of a set, without its entries, is lost: for example with a page of the B-tree that was given up.
#[test]
fn lost_objects_of_directories_and_sets_are_created_again() {
    let mut server = Server::start(&[]);
    for path in ["/letters/one", "/letters/old/two", "/loose"] {
        server.run_with_input(&["put", "-", path], path).ok();
    }
    server.run(&["collection", "create", "/set"]).ok();
    server.run(&["collection", "add", "/set", "/loose"]).ok();
    let object = |path: &str| server.run(&["stat", path, "--json"]).json()[0]["oid"].as_str().unwrap().to_owned();
    let lost = ["/letters", "/letters/old", "/set"].map(object);
    server.stop();
    for oid in &lost {
        let numbers: Vec<u64> = oid.split('.').map(|part| u64::from_str_radix(part, 16).unwrap()).collect();
        let [space, _, node, page, slot] = numbers[..] else { panic!("{oid}") };
        let key = [
            b"P",
            &(node as u32).to_be_bytes()[..],
            &(space as u16).to_be_bytes(),
            &page.to_be_bytes()[2..],
            &(slot as u16).to_be_bytes(),
        ]
        .concat();
        remove_row(&server, &key, |found| found == key);
    }
    server.restart();

    assert_eq!(server.run(&["ls", "/letters"]).code, 3);
    let kinds = |args: &[&str], code: i32| {
        let scrub = server.run(&[&["scrub", "--json"], args].concat());
        assert_eq!(scrub.code, code, "{}", scrub.text());
        let found = scrub.json()[0]["problems"].as_array().unwrap().clone();
        let kinds =
            found.iter().map(|one| format!("{} {}", one["kind"].as_str().unwrap(), one["repair"].as_str().unwrap()));
        kinds.collect::<BTreeSet<_>>()
    };
    // What only follows names takes no name away that leads to a directory with names.
    let followed = kinds(&["--references"], 6);
    assert!(!followed.contains("target_missing loses"), "{followed:?}");
    let text = server.run(&["scrub"]);
    assert_eq!(text.code, 6);
    assert_eq!(text.text().matches("it does not exist, or is no collection, and has").count(), 3, "{}", text.text());
    let repaired = kinds(&["--repair", "--references"], 0);
    assert!(repaired.contains("collection_missing done"), "{repaired:?}");
    assert_eq!(kinds(&["--references"], 0), BTreeSet::new());
    assert_eq!(server.run(&["ls", "/letters"]).ok().lines().collect::<Vec<_>>(), ["/letters/old/", "/letters/one"]);
    assert_eq!(server.run(&["get", "/letters/old/two"]).stdout, b"/letters/old/two");
    let members = server.run(&["collection", "list", "/set", "--json"]);
    assert_eq!(members.ok().lines().count(), 1, "{}", members.text());
    server.run_with_input(&["put", "-", "/letters/old/three"], "new").ok();
    server.run(&["rm", "-r", "/letters"]).ok();
    server.run(&["backup", "archive"]).ok();
}

/// Damages the page of the B-tree that has the entry with this name, if it has no rows but entries.
fn damage_page_of_entry(server: &Server, name: &[u8]) {
    const PAGE: usize = 4096;
    let (store, mut row) = (open_store(server), None);
    let find = |key: &[u8], _: &[u8]| {
        row = key.ends_with(name).then(|| key.to_vec());
        if row.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.rows(b"C", b"D", find).unwrap();
    store.close().unwrap();
    let row = row.unwrap();
    let tree = server.data().join("tree/rows");
    let whole = fs::read(&tree).unwrap();
    let pages = (0..whole.len() / PAGE).filter(|page| {
        let bytes = &whole[page * PAGE..(page + 1) * PAGE];
        bytes.windows(name.len()).any(|part| part == name)
    });
    // Other pages may have the name, too: as what is left of former rows, and in rows by target.
    for page in pages {
        let mut bytes = whole.clone();
        bytes[(page + 1) * PAGE - 1] ^= 1;
        fs::write(&tree, bytes).unwrap();
        let Ok(store) = Store::open(&server.data(), Options::default()) else { continue };
        let is_readable = |from: &[u8], to: &[u8]| store.rows(from, to, |_, _| ControlFlow::Continue(())).is_ok();
        if store.row(&row).is_err() && is_readable(b"\0", b"C") && is_readable(b"D", b"\xff") {
            return store.close().unwrap();
        }
    }
    panic!("no page has only entries");
}

/// A page of the B-tree with names of a large directory, and with no other rows, is damaged.
#[test]
fn names_on_a_damaged_page_are_lost_and_all_others_are_exported_and_verified() {
    let mut server = Server::start(&[]);
    let files = server.dir().join("files");
    fs::create_dir(&files).unwrap();
    (100..500).for_each(|number| fs::write(files.join(format!("name-{number}")), format!("{number}")).unwrap());
    server.run(&["import", "files"]).ok();
    server.stop();
    damage_page_of_entry(&server, b"name-250");
    server.restart();

    let lost = server.run(&["get", "/files/name-250"]);
    assert!(lost.code == 6 && lost.stderr.contains("/files/name-250: "), "{}", lost.stderr);
    assert_eq!(server.run(&["get", "/files/name-100"]).stdout, b"100");
    let listed = server.run(&["ls", "/files"]);
    assert!(listed.code == 6 && listed.text().contains("/files/name-499"), "{}", listed.text());
    let all = server.run(&["ls", "-r"]);
    let listed = all.text();
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each name is listed once: {names:?}");
    let exported = server.run(&["export", "out", "--json"]);
    assert!(exported.code == 6 && exported.stderr.contains("/files: damaged"), "{}", exported.stderr);
    let written = exported.json()[0]["files"].as_u64().unwrap();
    assert!((200..400).contains(&written), "{written}");
    assert_eq!(fs::read(server.dir().join("out/files/name-499")).unwrap(), b"499");
    let verified = server.run(&["verify", "files", "--json"]);
    assert!(verified.code == 6 && verified.stderr.contains("/files/name-250: damaged"), "{}", verified.stderr);
    let report = &verified.json()[0];
    // The directory is the same, too.
    assert_eq!(
        (report["same"].as_u64(), report["damaged"].as_u64()),
        (Some(written + 1), Some(400 - written)),
        "{report}"
    );
}

/// Without what it knows of transactions a logical node cannot be served. What needs it fails with the reason, not because it waits too long.
#[test]
fn logical_node_that_cannot_be_served_is_named_and_the_others_are_served() {
    let mut server = Server::start(&[]);
    let node_of = |server: &Server, path: &str| {
        // Its names are looked for at all logical nodes.
        let stat = server.run(&["stat", path, "--json"]);
        u32::from_str_radix(stat.json()[0]["oid"].as_str().unwrap().split('.').nth(2).unwrap(), 16).unwrap()
    };
    let mut paths = (0..40).map(|number| format!("/{number}/object"));
    let root = node_of(&server, "/");
    let (lost, node) = loop {
        let path = paths.next().expect("new objects go to all logical nodes");
        server.run_with_input(&["put", "-", &path], "content").ok();
        let node = node_of(&server, &path);
        if node != root {
            break (path, node);
        }
    };
    server.stop();
    let horizon = [&b"H"[..], &node.to_be_bytes()].concat();
    let store = open_store(&server);
    let whole = store.row(&horizon).unwrap();
    let write_horizon = |store: &Store, row: Option<bytes::Bytes>| {
        let mut changes = RowChanges::new();
        match row {
            Some(row) => changes.put(&horizon, row),
            None => changes.remove(&horizon),
        }
        store.commit_rows(changes).unwrap();
    };
    write_horizon(&store, Some("damaged".into()));
    store.close().unwrap();
    server.restart();

    // Nothing has used it since the start: the brick tells its peer servers by itself.
    let expected = format!("damaged  logical node {node:x} of brick 1: ");
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let shown = server.run(&["space", "show", "main"]);
        if shown.ok().contains(&expected) {
            assert!(shown.text().contains("state    partial"), "{}", shown.text());
            break;
        }
        assert!(Instant::now() < until, "{}", shown.text());
        thread::sleep(Duration::from_millis(100));
    }
    let named = format!("logical node {node:x} cannot be served");
    for args in [&["scrub"][..], &["scrub", "--references"], &["scrub", "--repair", "--yes"], &["ls", "--objects"]] {
        let found = server.run(args);
        let told = format!("{}{}", found.text(), found.stderr);
        assert!(found.code == 6 && told.contains(&named), "{args:?}: {}, {told}", found.code);
    }
    for command in [&["get", &lost][..], &["stat", &lost], &["rm", &lost], &["attr", "set", &lost, "color", "red"]] {
        // The default limit of time would let the test end much later.
        let failed = server.run(&[&["--timeout", "100"], command].concat());
        assert!(failed.code == 6 && failed.stderr.contains(&named), "{command:?}: {}, {}", failed.code, failed.stderr);
    }
    for number in 0..20 {
        let path = format!("/new {number}/object");
        server.run_with_input(&["put", "-", &path], "content").ok();
        assert_ne!(node_of(&server, &path), node, "it is placed elsewhere");
    }
    let status = server.run(&["status", "--json"]);
    assert!(status.text().contains("is damaged"), "{}", status.text());

    server.stop();
    let store = open_store(&server);
    write_horizon(&store, whole);
    store.close().unwrap();
    server.restart();
    assert_eq!(server.run(&["get", &lost]).stdout, b"content");
    assert!(server.run(&["space", "show", "main"]).ok().contains("state    serving"));
}

/// A server with 200 objects, whose B-tree has a damaged page: with the row of `/objects/100`, and without those of the first and the last object.
fn server_with_damaged_rows() -> Server {
    let mut server = Server::start(&[]);
    for number in 0..200 {
        let content = format!("content {number:03} ").repeat(60);
        server.run_with_input(&["put", "-", &format!("/objects/{number:03}")], content).ok();
    }
    server.stop();
    let tree = server.data().join("tree/rows");
    let mut bytes = fs::read(&tree).unwrap();
    let needle = b"content 100 content 100 ";
    let found: Vec<usize> = (0..bytes.len() - needle.len()).filter(|at| bytes[*at..].starts_with(needle)).collect();
    assert!(!found.is_empty(), "the B-tree has no row of the object");
    found.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&tree, bytes).unwrap();
    server.restart();
    server
}

#[test]
fn changes_that_need_a_damaged_row_fail_and_the_rest_is_served() {
    let server = server_with_damaged_rows();
    let refused: [&[&str]; 4] = [
        &["attr", "set", "/objects/100", "color", "red"],
        &["get", "/objects/100"],
        &["put", "-", "/objects/100"],
        &["rm", "/objects/100"],
    ];
    for command in refused {
        let run = server.run_with_input(command, "new");
        assert!(run.code == 6 && run.stderr.contains("damaged"), "{command:?}: {}, {}", run.code, run.stderr);
        server.run(&["attr", "set", "/objects/000", "color", "red"]).ok();
        server.run_with_input(&["put", "-", "/objects/199"], "new").ok();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        let oid = client.resolve("/objects/100").await.unwrap().unwrap();
        for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
            let read = client.begin(level).get(oid).await;
            assert_eq!(read.err().map(|error| error.kind()), Some(ErrorKind::Corrupt), "{level:?}");
        }
    });
    server.run_with_input(&["put", "-", "/objects/199"], "again").ok();
    assert_eq!(server.run(&["get", "/objects/199"]).stdout, b"again");
    let listed = server.run(&["ls", "-r"]);
    assert!(listed.code == 6 && listed.stderr.contains("/objects/100: damaged"), "{}", listed.stderr);
    assert_eq!(listed.text().lines().count(), 201, "a directory and 200 objects");
    let exported = server.run(&["export", "out", "--json"]);
    assert!(exported.code == 6 && exported.stderr.contains("/objects/100: damaged"), "{}", exported.stderr);
    let report = &exported.json()[0];
    assert_eq!(report["files"].as_u64().unwrap() + report["damaged"].as_u64().unwrap(), 200, "{report}");
    assert_eq!(fs::read(server.dir().join("out/objects/199")).unwrap(), b"again");
}

#[test]
fn rows_of_a_damaged_page_are_given_up_when_asked_and_written_again() {
    let mut server = server_with_damaged_rows();
    assert_eq!(server.run(&["backup", "archive"]).code, 6, "a backup omits nothing");
    let scrub = server.run(&["scrub", "--json"]);
    let damaged = scrub.json()[0]["damaged"].as_array().unwrap().clone();
    let with = |text: &str| damaged.iter().filter(|one| one.as_str().unwrap().contains(text)).count();
    assert_eq!((scrub.code, with("the checksum of page"), with("(/objects/100)")), (6, 1, 1), "{damaged:#?}");
    let objects = scrub.json()[0]["objects"].as_u64().unwrap();
    assert_eq!(objects + damaged.len() as u64, 202, "a directory, 200 objects, and the page: {damaged:#?}");
    server.stop();
    let repair = |server: &Server, args: &[&str]| {
        let mut command = server.command(&["repair", "--data"]);
        run(command.arg(server.data()).args(args))
    };
    let report = repair(&server, &[]);
    assert_eq!(report.code, 6);
    assert!(report.text().contains("of the B-tree cannot be read"), "{}", report.text());
    assert!(
        report.stderr.contains("nothing was changed") && report.stderr.contains("--accept-loss"),
        "{}",
        report.stderr
    );
    let again = repair(&server, &["--json"]);
    let (shown, parts) = (&again.json()[0], 1);
    assert_eq!(
        (&shown["usable"], &shown["repaired"], &shown["lost_row_ranges"]),
        (&true.into(), &false.into(), &parts.into())
    );
    let repaired = repair(&server, &["--accept-loss", "--json"]);
    repaired.ok();
    let shown = &repaired.json()[0];
    assert_eq!((&shown["repaired"], &shown["accepted"]["accepted"]), (&true.into(), &true.into()), "{shown}");
    repair(&server, &[]).ok();

    server.restart();
    let lost = server.run(&["get", "/objects/100"]);
    assert!(lost.code == 3 && lost.stderr.contains("which does not exist"), "{}", lost.stderr);
    for number in [0, 199] {
        let content = format!("content {number:03} ").repeat(60);
        assert!(server.run(&["get", &format!("/objects/{number:03}")]).stdout == content.as_bytes(), "{number}");
    }
    server.run_with_input(&["put", "-", "/objects/100"], "new").ok();
    assert_eq!(server.run(&["get", "/objects/100"]).ok(), "new");
    let scrub = server.run(&["scrub", "--repair", "--yes", "--references"]);
    assert!([0, 6].contains(&scrub.code), "{}", scrub.stderr);
    let clean = server.run(&["scrub", "--references"]);
    assert_eq!(clean.code, 0, "{} {}", clean.text(), clean.stderr);
    server.run(&["backup", "archive"]).ok();
    assert_eq!(server.run(&["get", "/objects/100"]).ok(), "new");
}
