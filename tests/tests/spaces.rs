//! What spaces take, quotas, and the removal of spaces and classes, on the command line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{CommandOutput, Server, TEST_TIMEOUT, small_file};
use rustix::process::Signal;
use serde_json::Value;

/// The objects, bytes and staged bytes of a space that a command shows.
fn sizes(shown: &Value) -> [u64; 3] {
    assert!(shown.get("unknown_nodes").is_none(), "{shown}");
    ["objects", "bytes", "staged_bytes"].map(|name| shown[name].as_u64().unwrap_or_else(|| panic!("{shown}")))
}

fn main_sizes(server: &Server) -> [u64; 3] {
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
    assert_eq!(main_sizes(&server), [0, 0, 0]);
    put(&server, "/a", 1000).ok();
    put(&server, "/large", 3 << 20).ok();
    assert_eq!(main_sizes(&server), [2, 1000 + (3 << 20), 0]);
    put(&server, "/dir/b", 10).ok();
    assert_eq!(main_sizes(&server), [4, 1010 + (3 << 20), 0], "a directory is an object");
    server.run(&["rm", "/large"]).ok();
    server.run_with_input(&["put", "-", "/a", "--append"], "y").ok();
    let expected = [3, 1011, 0];
    assert_eq!(main_sizes(&server), expected);
    server.kill();
    server.restart();
    assert_eq!(main_sizes(&server), expected);
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
    assert_eq!(main_sizes(&server)[..2], [1, 600]);
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

/// Makes objects of 1000 bytes until this many are refused in a row. Returns how many were made. Each command is a client of its own, and
/// takes either brick.
fn fill(world: &Cluster, refusals: u32) -> u64 {
    let record = format!(r#"{{"text": "{}"}}"#, "x".repeat(950));
    let (mut made, mut refused) = (0, 0);
    while refused < refusals {
        let put = world.run(&["object", "put", "--class", "Note", &record]);
        if put.code == 0 {
            (made, refused) = (made + 1, 0);
            assert!(made < 200, "nothing was refused");
        } else {
            assert_over_quota(&put);
            refused += 1;
        }
    }
    made
}

#[test]
fn sizes_and_quotas_hold_over_two_bricks() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["class", "define", "Note", "--field", "text:string"]).ok();
    world.run(&["space", "set", "main", "--max-objects", "20"]).ok();
    // A brick that has not heard yet of what the other accepted takes more. After this many refusals both know enough, and accept nothing.
    let made = fill(&world, 16);
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
    assert_eq!(fill(&world, 4), 0);
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

/// Removes something while objects are put into it by commands, again and again. What was acknowledged is never lost: a removal succeeds only
/// if no object was acknowledged before, and none is afterwards.
fn race(
    make: impl Fn(&str),
    remove: impl Fn(&str) -> CommandOutput + Sync,
    put: impl Fn(&str) -> CommandOutput + Sync,
) {
    let mut removed = 0;
    for round in 0..12 {
        let name = format!("Race{round}");
        make(&name);
        // Which of the two begins later, and by how much, changes from round to round.
        let delay = Duration::from_millis(8 * round);
        let (put_delay, remove_delay) = if round % 2 == 0 { (Duration::ZERO, delay) } else { (delay, Duration::ZERO) };
        let (done, acknowledged) = thread::scope(|scope| {
            let putting = scope.spawn(|| {
                thread::sleep(put_delay);
                (0..2).filter(|_| put(&name).code == 0).count()
            });
            thread::sleep(remove_delay);
            let done = remove(&name);
            (done, putting.join().unwrap())
        });
        assert!(matches!(done.code, 0 | 4), "{} {}", done.code, done.stderr);
        assert!(done.code != 0 || acknowledged == 0, "round {round}: {acknowledged} acknowledged objects are lost");
        removed += u32::from(done.code == 0);
    }
    assert!((1..12).contains(&removed), "{removed} of 12 were removed: the test shows nothing");
}

#[test]
fn nothing_is_lost_while_a_space_is_removed() {
    let server = Server::start(&[]);
    let root = server.url().trim_end_matches("/main").to_owned();
    race(
        |name| {
            server.run(&["space", "create", name, "--nodes", "4"]).ok();
        },
        |name| server.run(&["space", "rm", name]),
        |name| {
            let url = format!("{root}/{name}");
            server.run_with_input(&["--server", &url, "--timeout", "5", "put", "-"], "x")
        },
    );
}

#[test]
fn nothing_is_lost_while_a_class_is_removed() {
    let server = Server::start(&[]);
    race(
        |name| {
            server.run(&["class", "define", name, "--field", "text:string"]).ok();
        },
        |name| server.run(&["class", "rm", name]),
        |name| server.run(&["--timeout", "5", "object", "put", "--class", name, r#"{"text": "x"}"#]),
    );
}

#[test]
fn class_is_removed_when_nothing_needs_it() {
    let server = Server::start(&[]);
    server.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    server.run(&["class", "define", "Student", "--extends", "Person", "--field", "boss:ref<Person>?"]).ok();
    server.run(&["index", "create", "by_name", "--class", "Person", "--field", "name"]).ok();
    let refused = |name: &str, code: i32, why: &str| {
        let refused = server.run(&["class", "rm", name]);
        assert!(refused.code == code && refused.stderr.contains(why), "{} {}", refused.code, refused.stderr);
    };
    refused("Person", 2, "Student");
    refused("Nobody", 3, "Nobody");
    server.run(&["object", "put", "/ann", "--class", "Student", r#"{"name": "Ann"}"#]).ok();
    refused("Student", 4, "not empty");
    server.run(&["object", "put", "/bob", "--class", "Student", r#"{"name": "Bob"}"#]).ok();
    server.run(&["rm", "/ann", "/bob"]).ok();
    let before = server.run(&["class", "show", "Student", "--json"]).json()[0]["id"].as_u64().unwrap();
    assert_eq!(server.run(&["class", "rm", "Student", "--json"]).json()[0]["removed"], "Student");
    assert_ne!(server.run(&["object", "put", "--class", "Student", r#"{"name": "Ann"}"#]).code, 0);
    refused("Person", 2, "by_name");
    server.run(&["index", "remove", "by_name"]).ok();
    server.run(&["class", "rm", "Person"]).ok();
    assert_eq!(server.run(&["class", "list", "--json"]).json().len(), 0);
    server.run(&["class", "define", "Student", "--field", "name:string"]).ok();
    assert!(server.run(&["class", "show", "Student", "--json"]).json()[0]["id"].as_u64().unwrap() > before);
    server.run(&["object", "put", "/ann", "--class", "Student", r#"{"name": "Ann"}"#]).ok();
    refused("Student", 4, "not empty");
    let cancel = server.run(&["class", "rm", "Student", "--cancel"]);
    assert!(cancel.code == 4 && cancel.stderr.contains("nothing to cancel"), "{}", cancel.stderr);
    server.run(&["scrub"]).ok();
}

#[test]
fn removal_is_taken_back_when_a_brick_does_not_answer() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["space", "create", "photos", "--nodes", "8"]).ok();
    world.signal("brick-2", Signal::KILL);
    let refused = world.run(&["--timeout", "20", "space", "rm", "photos"]);
    assert!(refused.code == 5 && refused.stderr.contains("brick 2"), "{} {}", refused.code, refused.stderr);
    let listed = world.run(&["space", "list", "--json"]).json();
    let photos = listed.iter().find(|space| space["name"] == "photos").unwrap();
    assert!(photos.get("removing").is_none(), "{photos}");
    world.restart("brick-2");
    let put = world.run(&["--space", "photos", "put", small_file(), "/a"]);
    put.ok();
    assert_eq!(world.run(&["space", "rm", "photos"]).code, 4);
    world.run(&["--space", "photos", "rm", "/a"]).ok();
    assert_eq!(world.run(&["space", "rm", "photos", "--cancel"]).code, 4, "it was taken back already");
    world.run(&["space", "rm", "photos"]).ok();
    assert_eq!(world.run(&["space", "rm", "photos"]).code, 3);
}

#[test]
fn mark_that_a_killed_peer_server_has_left_is_taken_back_by_hand() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["space", "create", "photos", "--nodes", "8"]).ok();
    world.signal("brick-2", Signal::STOP);
    let meta = format!("mortar://{}", world.address("meta"));
    let listed = |world: &Cluster| {
        let spaces = world.run(&["--server", &meta, "space", "list", "--json"]).json();
        spaces.into_iter().find(|space| space["name"] == "photos").unwrap()
    };
    thread::scope(|scope| {
        let removal = scope.spawn(|| world.run(&["--timeout", "5", "space", "rm", "photos"]));
        until(|| listed(&world).get("removing").is_some().then_some(()));
        world.signal("peer-1", Signal::KILL);
        world.signal("brick-2", Signal::CONT);
        assert_ne!(removal.join().unwrap().code, 0);
    });
    world.restart("peer-1");
    let put = ["--timeout", "3", "--space", "photos", "put", small_file(), "/a"];
    let refused = world.run(&put);
    assert!(refused.code == 5 && refused.stderr.contains("being removed"), "{} {}", refused.code, refused.stderr);
    world.run(&["--server", &meta, "space", "rm", "photos", "--cancel"]).ok();
    assert!(listed(&world).get("removing").is_none());
    world.run(&put).ok();
}
