//! Backup, restore, scrub and repair through the command line.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;

use mortar_tests::{Server, mortar, run};
use serde_json::Value;

fn filled() -> Server {
    let server = Server::start(&[]);
    for number in 0..50_u32 {
        server.run_with_input(&["put", "-", &format!("/small/{number}")], number.to_string()).ok();
    }
    server.run_with_input(&["put", "-", "/large", "--attr", "colour=red"], vec![5; 3 << 20]).ok();
    server.run(&["collection", "create", "/c"]).ok();
    server.run(&["collection", "add", "/c", "/large", "/small/7"]).ok();
    server
}

fn all_of(server: &Server) -> Vec<Value> {
    let names = server.run(&["ls", "-r", "--json"]).json();
    let stats = names.iter().flat_map(|line| {
        let stat = server.run(&["stat", "--json", line["name"].as_str().unwrap()]);
        stat.ok();
        stat.json()
    });
    stats.collect()
}

#[test]
fn a_backup_is_restored_whole() {
    let mut server = filled();
    let before = all_of(&server);
    server.run(&["backup", "archive"]).ok();
    assert_eq!(server.run(&["backup", "archive"]).code, 4, "it is not overwritten by chance");
    server.run_with_input(&["put", "-", "/later"], "x").ok();
    server.stop();
    fs::remove_dir_all(server.data()).unwrap();
    let mut restore = server.command(&["restore", "archive", "--json", "--data"]);
    let report = run(restore.arg(server.data()));
    report.ok();
    assert_eq!(report.json()[0]["objects"], 52);
    server.restart();
    assert_eq!(all_of(&server), before);
    assert_eq!(server.run(&["get", "/large"]).stdout, vec![5; 3 << 20]);
    assert_eq!(server.run(&["get", "/later"]).code, 3);
}

#[test]
fn an_archive_travels_through_pipes() {
    let server = filled();
    let archive = server.run(&["backup", "-"]);
    assert_eq!(archive.code, 0, "{}", archive.stderr);
    let mut restore = server.command(&["restore", "-", "--data", "again"]);
    mortar_tests::run_with_input(&mut restore, archive.stdout).ok();
    assert!(server.dir().join("again/STORE").is_file());
}

#[test]
fn a_cut_archive_and_a_directory_in_use_are_refused() {
    let mut server = filled();
    server.run(&["backup", "archive"]).ok();
    let archive = fs::read(server.dir().join("archive")).unwrap();
    fs::write(server.dir().join("cut"), &archive[..archive.len() / 2]).unwrap();
    assert_eq!(server.run(&["restore", "cut", "--data", "half"]).code, 6);
    assert!(!server.dir().join("half/STORE").exists(), "nothing that could be opened is left");
    let restore_onto_it = |server: &Server| {
        let mut restore = server.command(&["restore", "archive", "--data"]);
        run(restore.arg(server.data())).code
    };
    assert_eq!(restore_onto_it(&server), 5, "a server has it");
    server.stop();
    assert_eq!(restore_onto_it(&server), 2, "it is not empty");
    assert_eq!(run(&mut mortar(&["restore", "/no/such/archive", "--data", "x"])).code, 3);
}
