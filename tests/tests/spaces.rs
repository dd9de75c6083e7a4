//! What spaces take, and quotas, on the command line.

use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{CommandOutput, Server, TEST_TIMEOUT};
use rustix::process::Signal;
use serde_json::Value;

/// The objects, bytes and staged bytes of a space that a command shows.
fn sizes(shown: &Value) -> [u64; 3] {
    assert!(shown.get("unknown_nodes").is_none(), "{shown}");
    ["objects", "bytes", "staged_bytes"].map(|name| shown[name].as_u64().unwrap_or_else(|| panic!("{shown}")))
}

fn shown(server: &Server) -> [u64; 3] {
    sizes(&server.run(&["space", "show", "main", "--json"]).json()[0])
}

fn put(server: &Server, name: &str, size: usize) -> CommandOutput {
    server.run_with_input(&["put", "-", name, "--type", ""], vec![b'x'; size])
}

fn assert_over_quota(refused: &CommandOutput) {
    assert!(
        refused.code == 7 && refused.stderr.contains("quota of space \"main\""),
        "{} {}",
        refused.code,
        refused.stderr
    );
}

#[test]
fn sizes_of_spaces_follow_what_is_written() {
    let mut server = Server::start(&[]);
    assert_eq!(shown(&server), [0, 0, 0]);
    put(&server, "/a", 1000).ok();
    put(&server, "/large", 3 << 20).ok();
    assert_eq!(shown(&server), [2, 1000 + (3 << 20), 0]);
    put(&server, "/dir/b", 10).ok();
    assert_eq!(shown(&server), [4, 1010 + (3 << 20), 0], "a directory is an object");
    server.run(&["rm", "/large"]).ok();
    server.run_with_input(&["put", "-", "/a", "--append"], "y").ok();
    let expected = [3, 1011, 0];
    assert_eq!(shown(&server), expected);
    server.kill();
    server.restart();
    assert_eq!(shown(&server), expected);
    server.run(&["space", "create", "other"]).ok();
    let listed = server.run(&["space", "list", "--json"]).json();
    let of = |name: &str| sizes(listed.iter().find(|space| space["name"] == name).unwrap());
    assert_eq!((of("main"), of("other")), (expected, [0; 3]));
    let shown = server.run(&["space", "show", "main"]);
    let text = shown.text();
    assert!(text.contains("holds    3 objects, 1.0 kB"), "{text}");
    server.run(&["scrub"]).ok();
}

#[test]
fn quota_refuses_what_exceeds_it_and_nothing_else() {
    let mut server = Server::start(&[]);
    put(&server, "/kept", 600).ok();
    assert_eq!(server.run(&["space", "set", "main"]).code, 2, "nothing is to be set");
    assert_eq!(server.run(&["space", "set", "main", "--max-bytes", "much"]).code, 2);
    server.run(&["space", "set", "main", "--max-bytes", "1000", "--max-objects", "3"]).ok();
    let space = &server.run(&["space", "show", "main", "--json"]).json()[0];
    assert_eq!((&space["max_bytes"], &space["max_objects"]), (&1000.into(), &3.into()));
    let refused = server.run_with_input(&["--json", "put", "-", "/more"], vec![b'x'; 401]);
    assert!(refused.code == 7 && refused.errors()[0]["error"]["kind"] == "quota_exceeded", "{}", refused.stderr);
    assert_over_quota(&put(&server, "/large", 3 << 20));
    assert_eq!(shown(&server)[..2], [1, 600]);
    put(&server, "/more", 400).ok();
    put(&server, "/empty", 0).ok();
    assert_over_quota(&put(&server, "/fourth", 0));
    server.kill();
    server.restart();
    assert_over_quota(&put(&server, "/fourth", 0));
    assert_over_quota(&put(&server, "/empty", 1));
    server.run(&["rm", "/kept"]).ok();
    put(&server, "/fourth", 600).ok();
    // An upload for another object counts while it is staged; what it takes is its own.
    server.run(&["space", "set", "main", "--max-bytes", "4MiB"]).ok();
    server.run(&["rm", "/more"]).ok();
    put(&server, "/large", 3 << 20).ok();
    assert_over_quota(&put(&server, "/large", 3 << 20));
    server.run(&["space", "set", "main", "--max-bytes", "none", "--max-objects", "none"]).ok();
    put(&server, "/fifth", 1 << 20).ok();
    server.run(&["scrub"]).ok();
}

fn cluster_sizes(world: &Cluster) -> [u64; 3] {
    sizes(&world.run(&["space", "show", "main", "--json"]).json()[0])
}

/// Makes objects of 1000 bytes until one is refused. Returns how many were made.
fn fill(world: &Cluster) -> u64 {
    for number in 0..200 {
        let record = format!(r#"{{"text": "{}"}}"#, "x".repeat(950));
        let made = world.run(&["object", "put", "--class", "Note", &record]);
        if made.code != 0 {
            assert_over_quota(&made);
            return number;
        }
    }
    panic!("nothing was refused");
}

#[test]
fn sizes_and_quotas_hold_over_two_bricks() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["class", "define", "Note", "--field", "text:string"]).ok();
    world.run(&["space", "set", "main", "--max-objects", "20"]).ok();
    // Each command is a client of its own, so the objects are spread over both bricks.
    let made = fill(&world);
    let [objects, bytes, staged] = cluster_sizes(&world);
    assert!(made >= 20 && objects == made && staged == 0, "{made} were made, {objects} are there");
    assert!((950 * made..1200 * made).contains(&bytes), "{bytes} bytes of {made} objects");
    let status = world.run(&["space", "show", "main", "--json"]).json();
    let by_brick: Vec<u64> =
        status[0]["bricks"].as_array().unwrap().iter().map(|one| one["objects"].as_u64().unwrap()).collect();
    assert!(by_brick.len() == 2 && by_brick.iter().all(|count| *count > 0), "{by_brick:?}");
    // Moves take the counts along.
    world.run(&["remap", "--drain", "1"]).ok();
    assert_eq!(cluster_sizes(&world), [objects, bytes, 0]);
    world.run(&["remap", "--cancel", "--drain", "1"]).ok();
    world.run(&["remap", "--spread"]).ok();
    assert_eq!(cluster_sizes(&world), [objects, bytes, 0]);
    assert_eq!(fill(&world), 0);
    // A brick that ends keeps its part of the quota.
    world.signal("brick-2", Signal::KILL);
    let partial = until(|| {
        let shown = world.run(&["space", "show", "main", "--json"]).json();
        shown[0].get("unknown_nodes").is_some().then(|| shown[0].clone())
    });
    assert!(partial["objects"].as_u64().unwrap() < objects, "{partial}");
    assert_eq!(fill_reachable(&world), 0);
    world.restart("brick-2");
    until(|| {
        let shown = world.run(&["space", "show", "main", "--json"]).json();
        shown[0].get("unknown_nodes").is_none().then_some(())
    });
    assert_eq!(cluster_sizes(&world), [objects, bytes, 0]);
    world.run(&["scrub"]).ok();
}

/// As [`fill`], with clients that may have to wait for the lost brick.
fn fill_reachable(world: &Cluster) -> u64 {
    let made = world.run(&["--timeout", "5", "object", "put", "--class", "Note", r#"{"text": "x"}"#]);
    u64::from(made.code == 0)
}

fn until<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < end, "it never happens");
        thread::sleep(Duration::from_millis(100));
    }
}
