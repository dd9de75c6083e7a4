//! Scrubs, and what they repair.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use client::Client;
use mortar_tests::stopped_store::remove_row;
use mortar_tests::{CommandOutput, Server};
use serde_json::Value;

use super::filled_server;

/// How long a store changes while it is scrubbed.
const LOAD: Duration = Duration::from_secs(30);

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
    remove_row(&server.data(), b"E", |_| true);
    remove_row(&server.data(), b"I", |_| true);
    remove_row(&server.data(), b"R", |_| true);
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
        remove_row(&server.data(), b"N", |_| true);
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
        remove_row(&server.data(), b"C", |key| is_of(key, mail));
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
        remove_row(&server.data(), b"C", |key| key.ends_with(name));
    }
    // The row with the totals of a collection is its shortest one.
    remove_row(&server.data(), b"C", |key| is_member(key) && key.len() > 30);
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
        remove_row(&server.data(), &key, |found| found == key);
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
