//! The commands for objects: their effects, output and exit codes. Each test runs on the smallest and on a larger cluster.

use std::collections::BTreeSet;

use model::{Oid, PageId};
use mortar_tests::Server;
use serde_json::Value;

/// Runs a test on one brick in memory, and on four bricks on disk with two peer servers.
fn on_each_server(test: impl Fn(&Server)) {
    for args in [&["--memory"][..], &["--bricks", "4", "--peers", "2"]] {
        test(&Server::start(args));
    }
}

fn run_json(server: &Server, args: &[&str]) -> Value {
    let mut args = args.to_vec();
    args.push("--json");
    let run = server.run(&args);
    run.ok();
    let mut lines = run.json();
    assert_eq!(lines.len(), 1, "{args:?}: {lines:?}");
    lines.remove(0)
}

#[test]
fn content_is_read_whole_and_in_parts() {
    on_each_server(|server| {
        server.run_with_input(&["put", "-", "/log"], "0123456789").ok();
        assert_eq!(server.run(&["get", "/log"]).ok(), "0123456789");
        assert_eq!(server.run(&["get", "/log", "--range", "2-4"]).ok(), "234");
        assert_eq!(server.run(&["get", "/log", "--range", "-3"]).ok(), "789");
        let appended = server.run_with_input(&["put", "-", "/log", "--append"], "abc").ok().to_owned();
        assert!(appended.ends_with(" 10"), "{appended}: the offset follows the identifier");
        server.run_with_input(&["put", "-", "/log", "--offset", "1"], "XY").ok();
        assert_eq!(server.run(&["get", "/log"]).ok(), "0XY3456789abc");
        let appended = server.run_with_input(&["put", "-", "/log", "--append", "--json"], "d");
        assert_eq!(appended.json()[0]["offset"], 13);
        let created = server.run_with_input(&["put", "-", "/new", "--append", "--json"], "d");
        assert_eq!(created.json()[0]["offset"], 0);
        let replaced = server.run_with_input(&["put", "-", "/new", "--json"], "e");
        assert!(replaced.json()[0].get("offset").is_none());
    });
}

#[test]
fn bound_name_keeps_its_object() {
    on_each_server(|server| {
        let first = server.run_with_input(&["put", "-", "/a"], "one").ok().to_owned();
        let second = server.run_with_input(&["put", "-", "/a"], "two").ok().to_owned();
        assert_eq!(first, second);
        assert_eq!(server.run(&["get", &first]).ok(), "two");
        assert_eq!(server.run_with_input(&["put", "-", "/a", "--new"], "three").code, 4);
        assert_eq!(server.run(&["get", "/a"]).ok(), "two");
    });
}

#[test]
fn objects_of_different_commands_share_pages() {
    let server = Server::start(&["--memory"]);
    let put = |number: usize| {
        let name = format!("/{number}");
        let oid = server.run_with_input(&["put", "-", &name], "short").ok().trim().to_owned();
        oid.parse::<Oid>().unwrap().page()
    };
    let pages: BTreeSet<PageId> = (0..20).map(put).collect();
    assert_eq!(pages.len(), 1, "each command fills the page that the one before has begun");
}

#[test]
fn object_that_has_changed_is_a_conflict() {
    on_each_server(|server| {
        server.run_with_input(&["put", "-", "/a"], "one").ok();
        let etag = run_json(server, &["stat", "/a"])["etag"].as_str().unwrap().to_owned();
        server.run_with_input(&["put", "-", "/a", "--if-match", &etag], "two").ok();
        let late = server.run_with_input(&["put", "-", "/a", "--if-match", &etag, "--json"], "three");
        assert_eq!(late.code, 4);
        assert_eq!(late.errors()[0]["error"]["kind"], "conflict");
        assert_eq!(server.run(&["get", "/a"]).ok(), "two");
    });
}

#[test]
fn large_content_is_streamed_both_ways() {
    on_each_server(|server| {
        let content: Vec<u8> = (0..5_000_011_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        server.run_with_input(&["put", "-", "/large"], content.clone()).ok();
        assert_eq!(server.run(&["get", "/large"]).stdout, content);
        let part = server.run(&["get", "/large", "--range", "1000000-4000000"]);
        assert_eq!(part.stdout, &content[1_000_000..=4_000_000]);
        server.run(&["get", "/large", "-o", "copy"]).ok();
        assert_eq!(std::fs::read(server.dir().join("copy")).unwrap(), content);
    });
}

#[test]
fn stat_shows_kind_names_collections_and_attributes() {
    on_each_server(|server| {
        let oid = server.run_with_input(&["put", "-", "/a.html", "--attr", "owner=ann"], "<p>").ok().to_owned();
        server.run(&["name", "bind", "/b", &oid]).ok();
        let album = server.run(&["collection", "create", "/album"]).ok().to_owned();
        server.run(&["collection", "add", "/album", "/b"]).ok();
        let stat = run_json(server, &["stat", "/a.html"]);
        assert_eq!(stat["oid"], oid);
        assert_eq!(stat["kind"], "blob");
        assert_eq!(stat["size"], 3);
        assert_eq!(stat["names"], serde_json::json!(["/a.html", "/b"]));
        assert_eq!(stat["collections"], serde_json::json!([album]));
        let attributes = serde_json::json!([
            { "key": "content-type", "value": "text/html" },
            { "key": "owner", "value": "ann" },
        ]);
        assert_eq!(stat["attributes"], attributes);
    });
}

#[test]
fn attributes_are_set_read_listed_and_removed() {
    on_each_server(|server| {
        server.run_with_input(&["put", "-", "/a", "--type", ""], "x").ok();
        server.run(&["attr", "set", "/a", "colour", "red"]).ok();
        server.run_with_input(&["attr", "set", "/a", "raw", "-"], [0xff, 0x00]).ok();
        assert_eq!(server.run(&["attr", "get", "/a", "colour"]).ok(), "red");
        assert_eq!(server.run(&["attr", "get", "/a", "raw"]).stdout, [0xff, 0x00]);
        let listed = server.run(&["attr", "ls", "/a", "--json"]).json();
        assert_eq!(listed[1], serde_json::json!({ "key": "raw", "value_hex": "ff00" }));
        server.run(&["attr", "rm", "/a", "colour"]).ok();
        assert_eq!(server.run(&["attr", "get", "/a", "colour"]).code, 3);
    });
}

#[test]
fn names_are_listed_one_level_at_a_time() {
    on_each_server(|server| {
        for name in ["/a", "/dir/x", "/dir/y", "/dir/deep/z", "/z"] {
            server.run_with_input(&["put", "-", name], name).ok();
        }
        assert_eq!(server.run(&["ls"]).ok(), "/a\n/dir/\n/z");
        assert_eq!(server.run(&["ls", "/dir"]).ok(), "/dir/deep/\n/dir/x\n/dir/y");
        assert_eq!(server.run(&["ls", "-r", "/dir"]).ok(), "/dir/deep/\n/dir/deep/z\n/dir/x\n/dir/y");
        assert_eq!(server.run(&["ls", "/nowhere"]).code, 3);
        assert_eq!(server.run(&["ls", "/a"]).code, 2, "not a directory");
        for below in ["/a/b", "/a/b/c"] {
            let refused = server.run_with_input(&["put", "-", below], "x");
            assert!(refused.code == 2 && refused.stderr.contains("\"/a\": "), "{}", refused.stderr);
        }
        let long = server.run(&["ls", "--json", "/dir"]).json();
        assert_eq!((&long[0]["name"], &long[0]["kind"]), (&"/dir/deep/".into(), &"directory".into()));
        assert_eq!((&long[1]["kind"], &long[1]["size"]), (&"blob".into(), &6.into()));
        let objects = server.run(&["ls", "--objects", "--json"]).json();
        let blobs = objects.iter().filter(|object| object["kind"] == "blob").count();
        assert_eq!((objects.len(), blobs), (7, 5), "{objects:?}");
    });
}

#[test]
fn members_outlive_their_collections() {
    on_each_server(|server| {
        server.run_with_input(&["put", "-", "/a"], "a").ok();
        let b = server.run_with_input(&["put", "-"], "b").ok().to_owned();
        server.run(&["collection", "create", "/c"]).ok();
        server.run(&["collection", "add", "/c", "/a", &b]).ok();
        let members = server.run(&["collection", "ls", "/c", "--json"]).json();
        assert_eq!(members.len(), 2);
        assert!(members.contains(&serde_json::json!({ "oid": b, "names": [] })), "{members:?}");
        assert_eq!(server.run(&["rm", "/c"]).code, 2, "the collection has members");
        server.run(&["collection", "remove", "/c", "/a"]).ok();
        assert_eq!(server.run(&["collection", "ls", "/c"]).ok(), b);
        server.run(&["collection", "rm", "/c"]).ok();
        assert_eq!(server.run(&["get", "/a"]).ok(), "a");
        assert_eq!(server.run(&["collection", "ls", "/a"]).code, 2, "not a collection");
    });
}

#[test]
fn names_are_bound_resolved_and_unbound() {
    on_each_server(|server| {
        let oid = server.run_with_input(&["put", "-", "/mail/first"], "mail").ok().to_owned();
        assert_eq!(server.run(&["name", "resolve", "/mail/first"]).ok(), oid);
        server.run(&["name", "bind", "/inbox", "/mail/first"]).ok();
        assert_eq!(server.run(&["name", "bind", "/inbox", &oid, "--new"]).code, 4);
        let names = server.run(&["name", "ls", "--json"]).json();
        assert_eq!(names[0], serde_json::json!({ "name": "/inbox", "oid": oid }));
        server.run(&["name", "unbind", "/inbox"]).ok();
        assert_eq!(server.run(&["name", "resolve", "/inbox"]).code, 3);
        assert_eq!(server.run(&["get", &oid]).ok(), "mail");
    });
}

#[test]
fn removed_objects_lose_their_names() {
    on_each_server(|server| {
        for name in ["/tree/a", "/tree/b/c", "/treetop"] {
            server.run_with_input(&["put", "-", name], name).ok();
        }
        server.run(&["name", "bind", "/other/name", "/tree/a"]).ok();
        assert_eq!(server.run(&["rm", "/tree"]).code, 2, "the directory has names");
        assert_eq!(server.run(&["rm", "-r", "/"]).code, 2);
        // Two blobs and two directories.
        assert_eq!(run_json(server, &["rm", "-r", "/tree"])["deleted"], 4);
        assert_eq!(server.run(&["ls", "-r"]).ok(), "/other/\n/treetop");
        assert_eq!(server.run(&["rm", "/tree/a"]).code, 3);
        server.run(&["rm", "-f", "/tree/a"]).ok();
        for name in ["/one", "/two"] {
            server.run_with_input(&["put", "-", name], name).ok();
        }
        assert_eq!(server.run(&["rm", "/one", "/tree/a", "/two"]).code, 3);
        assert_eq!(server.run(&["get", "/one"]).ok(), "/one", "nothing is deleted if one is missing");
        assert_eq!(run_json(server, &["rm", "/one", "/one"])["deleted"], 1, "both names exist before");
        server.run_with_input(&["put", "-", "/one"], "/one").ok();
        assert_eq!(run_json(server, &["rm", "-f", "/one", "/tree/a", "/one", "/two"])["deleted"], 2);
        assert_eq!(server.run(&["ls", "-r"]).ok(), "/other/\n/treetop");
        let exported = server.dir().join("exported");
        let refused = server.run(&["export", exported.to_str().unwrap(), "--prefix", "/treetop"]);
        assert!(refused.code == 2 && refused.stderr.contains("/treetop is a blob"), "{}", refused.stderr);
        assert!(!exported.exists());
    });
}

#[test]
fn spaces_have_separate_names() {
    on_each_server(|server| {
        server.run(&["space", "create", "photos"]).ok();
        assert_eq!(server.run(&["space", "create", "photos"]).code, 4);
        server.run_with_input(&["--space", "photos", "put", "-", "/x"], "there").ok();
        assert_eq!(server.run(&["get", "/x"]).code, 3);
        assert_eq!(server.run(&["--space", "photos", "get", "/x"]).ok(), "there");
        let spaces = server.run(&["space", "ls", "--json"]).json();
        assert_eq!(spaces[0]["name"], "main");
        assert_eq!(spaces[1]["name"], "photos");
        assert_eq!(server.run(&["--space", "nowhere", "ls"]).code, 3);
    });
}

#[test]
fn closed_output_ends_a_command_quietly() {
    on_each_server(|server| {
        use std::process::Stdio;
        server.run_with_input(&["put", "-", "/large"], vec![7; 4 << 20]).ok();
        let mut child =
            server.command(&["get", "/large"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    });
}

#[test]
fn control_characters_of_a_name_do_not_reach_the_terminal() {
    on_each_server(|server| {
        server.run_with_input(&["put", "-", "/a\u{1b}[2Jb"], "x").ok();
        assert_eq!(server.run(&["ls"]).ok(), "/a\\u{1b}[2Jb");
        assert_eq!(server.run(&["ls", "--json"]).json()[0]["name"], "/a\u{1b}[2Jb");
    });
}
