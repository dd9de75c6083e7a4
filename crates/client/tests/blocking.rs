//! The client for threads without an async runtime, on a cluster within the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use client::blocking::{Client, Transaction};
use client::{ErrorKind, IsolationLevel, Persistent, PlacementHint};
use model::{ClassId, Object};
use query::Query;

#[test]
fn objects_names_and_contents_are_written_and_read_by_threads() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path().join("data")).unwrap();
    let writers: Vec<_> = (0..4)
        .map(|number| {
            let client = client.clone();
            std::thread::spawn(move || {
                let name = number.to_string();
                let bind = |t: &Transaction| t.bind(&name, t.create_blob(name.clone())?);
                client.transact(bind).unwrap();
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let names: Vec<String> = client.names("/").next().unwrap().unwrap().into_iter().map(|name| name.path).collect();
    assert_eq!(names, ["/0", "/1", "/2", "/3"]);

    let content: Vec<u8> = (0..5_000_000_u32).map(|number| (number / 3) as u8).collect();
    let staged = client.upload(None, content.as_slice()).unwrap();
    client.transact(|t| t.bind("large", t.create_blob_from(staged)?)).unwrap();
    let large = client.resolve("large").unwrap().unwrap();
    let mut read = Vec::new();
    client.content_reader(large, 0).read_to_end(&mut read).unwrap();
    assert!(read == content);
    // An upload that is dropped is given up.
    client.content_writer(None).write_all(&content).unwrap();

    let t = client.begin(IsolationLevel::Optimistic);
    let created = t.create_object(ClassId::NONE, Object::blob("mine".into()), PlacementHint::Anywhere).unwrap();
    assert_eq!(t.get(created).unwrap().unwrap().data, "mine");
    t.abort();
    let (mut objects, mut count) = (client.objects(), 0);
    while let Some(portion) = objects.next().unwrap() {
        count += portion.len();
    }
    assert_eq!(count, 5);
    client.shutdown().unwrap();
    let again = Client::open(dir.path().join("data")).unwrap();
    assert!(again.resolve("large").unwrap().is_some());
    again.shutdown().unwrap();
}

#[derive(Persistent, Clone, Debug, PartialEq)]
struct Note {
    text: String,
}

#[test]
fn structs_of_defined_classes_are_stored_and_read_by_threads() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).unwrap();
    let note = Note { text: "hello".to_owned() };
    let create = |t: &Transaction| t.create(note.clone());
    assert_eq!(client.transact(create).unwrap_err().kind(), ErrorKind::NotFound, "its class is not defined");
    client.define::<Note>().unwrap();
    let stored = client.transact(create).unwrap();
    assert_eq!(client.read(stored).unwrap(), Some(note.clone()));
    assert_eq!(client.query(&Query::of("Note")).unwrap().all().unwrap().len(), 1);
    client.shutdown().unwrap();
}

#[test]
fn threads_create_objects_in_one_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).unwrap();
    let t = client.begin(IsolationLevel::Optimistic);
    let creators: Vec<_> = (0..4)
        .map(|_| {
            let t = t.clone();
            std::thread::spawn(move || (0..500).map(|_| t.create_blob("new").unwrap()).collect::<Vec<_>>())
        })
        .collect();
    let created: BTreeSet<_> = creators.into_iter().flat_map(|creator| creator.join().unwrap()).collect();
    assert_eq!(created.len(), 2_000, "each object has an identifier of its own");
    t.abort();
    client.shutdown().unwrap();
}

#[test]
fn body_of_a_transaction_runs_again_after_a_conflict() {
    let dir = tempfile::tempdir().unwrap();
    let client = Client::open(dir.path()).unwrap();
    client.transact(|t| t.bind("count", t.create_blob("0")?)).unwrap();
    let counters: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            std::thread::spawn(move || {
                for _ in 0..25 {
                    let increment = |t: &Transaction| {
                        let oid = t.resolve("count")?.unwrap();
                        let count: u32 = std::str::from_utf8(&t.get(oid)?.unwrap().data).unwrap().parse().unwrap();
                        t.put(oid, Object::blob((count + 1).to_string().into()))
                    };
                    client.transact(increment).unwrap();
                }
            })
        })
        .collect();
    counters.into_iter().for_each(|counter| counter.join().unwrap());
    let oid = client.resolve("count").unwrap().unwrap();
    assert_eq!(client.read_latest(oid).unwrap().unwrap().data, "100");
    client.close();
    assert_eq!(client.resolve("count").unwrap_err().kind(), ErrorKind::Invalid);
}

/// The public methods of `impl TYPE` blocks in the sources of the client.
fn methods(files: &[&str], of: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(Path::new("src").join(file)).unwrap();
        let mut is_inside = false;
        for line in text.lines() {
            if line.starts_with("impl") || line == "}" {
                is_inside = line == format!("impl {of} {{");
            }
            let declared =
                line.trim_start().trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ");
            let is_public = line.starts_with("    pub ") || line.starts_with("        fn ");
            if let Some(rest) = declared.filter(|_| is_inside && is_public && !line.contains("pub(")) {
                names.insert(rest.split(['(', '<']).next().unwrap().to_owned());
            }
        }
    }
    names
}

/// `next` of portions is made by a macro; paths to prefetch along and options of an opened client are left out.
#[test]
fn every_method_of_the_async_client_has_its_counterpart() {
    let files = [
        "client.rs",
        "embedded.rs",
        "contents.rs",
        "entries.rs",
        "paths.rs",
        "names.rs",
        "objects.rs",
        "typed.rs",
        "transaction.rs",
        "prefetch.rs",
        "rows.rs",
        "watch.rs",
    ];
    for (of, missing) in [
        ("Client", &["open_with", "in_memory_with"][..]),
        ("Transaction", &["prefetch_along"]),
        ("Names", &["next"]),
        ("Rows", &["next"]),
    ] {
        let (asynchronous, blocking) = (methods(&files, of), methods(&["blocking.rs"], of));
        assert!(!asynchronous.is_empty() && !blocking.is_empty(), "{of}");
        let lacking: Vec<_> =
            asynchronous.difference(&blocking).filter(|name| !missing.contains(&name.as_str())).collect();
        assert!(lacking.is_empty(), "the blocking {of} lacks {lacking:?}");
    }
}
