//! Damaged rows: what is named, what is served still, and what can be read.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, IsolationLevel};
use model::ErrorKind;
use mortar_tests::stopped_store::open_store;
use mortar_tests::{Server, run};
use store::{Options, RowChanges, Store};

/// Damages the page of the B-tree that has the entry with this name, if it has no rows but entries.
fn damage_page_of_entry(server: &Server, name: &[u8]) {
    const PAGE: usize = 4096;
    let (store, mut row) = (open_store(&server.data()), None);
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
    let store = open_store(&server.data());
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
    let store = open_store(&server.data());
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
