//! `mortar brick` and `mortar peer`: processes leave a cluster permanently.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{TEST_TIMEOUT, mortar, run, send, small_file, spawn, wait};
use rustix::process::Signal;
use serde_json::Value;

/// The output of `mortar brick list` or `mortar peer list`, once `is_fine` accepts it.
fn list_until(world: &Cluster, what: &str, is_fine: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let listed = world.run(&[what, "list", "--json"]).json();
        if is_fine(&listed) {
            return listed;
        }
        assert!(Instant::now() < until, "{listed:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn check_refused(world: &Cluster, args: &[&str], code: i32, words: &str) {
    let refused = world.run(args);
    assert_eq!(refused.code, code, "{}", refused.stderr);
    assert!(refused.stderr.contains(words), "{}", refused.stderr);
}

fn state_of<'a>(status: &'a [Value], name: &str) -> &'a str {
    status.iter().find(|one| one["name"] == name).and_then(|one| one["state"].as_str()).unwrap()
}

#[test]
fn drained_brick_is_removed() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["object", "put", "/greeting", small_file()]).ok();
    let listed = world.run(&["brick", "list", "--json"]).json();
    let shown: Vec<_> = listed.iter().map(|one| (one["brick"].clone(), one["nodes"].clone())).collect();
    assert_eq!(shown, [(1.into(), 4.into()), (2.into(), 4.into())]);
    check_refused(&world, &["brick", "remove", "2"], 2, "`mortar remap --drain 2` moves them");
    check_refused(&world, &["brick", "remove", "7"], 3, "no brick");
    world.run(&["exercise", "--seconds", "1", "--clients", "2"]).ok();
    let committed = || {
        let status = world.run_at(&["cluster", "status", "--json", "--data"]).json();
        let brick = status.iter().find(|one| one["role"] == "brick" && one["number"] == 2).unwrap();
        brick["metrics"]["parts_committed_total"].as_u64().unwrap()
    };
    let before = committed();
    world.run(&["remap", "--drain", "2"]).ok();
    assert!(before > 0 && committed() >= before, "the counts of nodes that moved away are kept");
    check_refused(&world, &["brick", "remove", "2"], 2, "its own process");
    // No kind of request moves nodes to it any more.
    check_refused(&world, &["remap", "--node", "1", "--to", "2"], 2, "mortar remap --cancel --drain 2");
    assert_eq!(world.run(&["remap", "--spread", "--json"]).json()[0]["nodes"], 0);
    assert!(world.run(&["brick", "list"]).ok().contains("drained"));

    // Its number does not tell which process it is.
    let address = listed[1]["addresses"][0].as_str().unwrap();
    let (removed, remaining) =
        if world.address("brick-2") == address { ("brick-2", "brick-1") } else { ("brick-1", "brick-2") };
    let status = world.run_at(&["cluster", "status", "--json", "--data"]).json();
    assert_eq!(status.iter().find(|one| one["name"] == removed).unwrap()["number"], 2);
    world.signal(removed, Signal::TERM);
    list_until(&world, "brick", |listed| listed[1]["alive"] == false);
    world.status_until(|shown| state_of(shown, removed) == "down");
    assert_eq!(world.run(&["brick", "remove", "2", "--json"]).json()[0]["removed"], "brick");
    assert_eq!(world.run(&["brick", "list", "--json"]).json().len(), 1);
    let status = world.run_at(&["cluster", "status", "--json", "--data"]);
    assert_eq!((state_of(&status.json(), removed), state_of(&status.json(), remaining)), ("removed", "healthy"));
    assert_eq!(status.code, 0, "{}", status.stderr);
    // A brick with another directory does not change that, and is shown.
    let meta = format!("mortar://{}", world.address("meta"));
    let secret = world.data().join("cluster.secret");
    let mut node = mortar(&["node", "--role", "brick", "--memory", "--listen", "127.0.0.1:0", "--meta", &meta]);
    let log = std::fs::File::create(world.data().join("outside.log")).unwrap();
    node.arg("--cluster-secret").arg(secret).stdout(log);
    let mut outside = spawn(node).unwrap();
    let is_up = |one: &Value| one["name"] == "outside" && one["state"] == "healthy";
    let status = world.status_until(|shown| shown.iter().any(is_up));
    let of = |name: &str| status.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!((&of("outside")["number"], state_of(&status, "outside")), (&3.into(), "healthy"));
    assert_eq!((&of(remaining)["number"], state_of(&status, removed)), (&1.into(), "removed"));
    assert_eq!(of(removed).get("number"), None);
    send(&outside, Signal::TERM);
    wait(&mut outside, TEST_TIMEOUT).unwrap();
    world.status_until(|shown| state_of(shown, "outside") == "down");
    list_until(&world, "brick", |listed| listed[1]["alive"] == false);
    world.run(&["brick", "remove", "3"]).ok();
    // It cannot rejoin with its store.
    let config = world.data().join(format!("{removed}.toml"));
    let again = run(mortar(&["node", "--config"]).arg(config));
    assert_eq!(again.code, 9, "{}", again.stderr);
    assert!(again.stderr.contains("was removed from the cluster"), "{}", again.stderr);
    world.run_at(&["cluster", "down", "--data"]).ok();
    world.wait_ended();
    world.up(&[]);
    assert!(world.run(&["object", "get", "/greeting"]).ok().contains("mortar-tests"));
    assert!(world.log().contains("was removed from the cluster"), "{}", world.log());
}

#[test]
fn removed_peer_server_is_a_new_one_when_it_restarts() {
    let mut world = Cluster::start(&["--bricks", "1", "--peers", "2"]);
    let listed = world.run(&["peer", "list", "--json"]).json();
    let of =
        |name: &str| listed.iter().find(|one| one["addresses"][0] == world.address(name)).unwrap()["peer"].to_string();
    let number = of("peer-2");
    check_refused(&world, &["peer", "remove", &number], 2, "its own process");
    world.signal("peer-2", Signal::KILL);
    list_until(&world, "peer", |listed| listed.iter().any(|one| one["alive"] == false));
    assert_eq!(world.run(&["peer", "remove", &number, "--json"]).json()[0]["removed"], "peer");
    assert_eq!(world.run(&["peer", "list", "--json"]).json().len(), 1);
    check_refused(&world, &["peer", "remove", &number], 3, "no peer server");
    world.restart("peer-2");
    let again = list_until(&world, "peer", |listed| listed.len() == 2);
    assert_eq!(again[1]["peer"], 3);
}

#[test]
fn cluster_down_also_counts_processes_started_by_hand() {
    let mut world = Cluster::start(&["--bricks", "1", "--peers", "1"]);
    world.signal("peer-1", Signal::KILL);
    world.status_until(|shown| state_of(shown, "peer-1") == "down");
    world.restart("peer-1");
    let down = world.run_at(&["cluster", "down", "--json", "--data"]);
    down.ok();
    assert_eq!((down.json()[0]["ended"].as_u64(), down.json()[0]["killed"].as_u64()), (Some(3), Some(0)));
    world.wait_ended();
    assert_eq!(world.run_at(&["cluster", "down", "--data"]).code, 5);
}

/// A copy has the addresses of the original, the numbers of its processes in the locks, and perhaps the record of those that run.
#[test]
fn cluster_down_ends_no_process_of_the_directory_that_it_was_copied_from() {
    let world = Cluster::start(&["--bricks", "1", "--peers", "1"]);
    let copy = world.data().with_extension("copy");
    let copied = std::process::Command::new("cp").arg("-r").arg(world.data()).arg(&copy).status().unwrap();
    assert!(copied.success());
    for _ in 0..2 {
        let refused = run(mortar(&["cluster", "down", "--data"]).arg(&copy));
        assert_eq!((refused.code, refused.text()), (5, "ended 0 processes\n"), "{}", refused.stderr);
        let _ = std::fs::remove_file(copy.join("cluster.json"));
    }
    let shown = world.run_at(&["cluster", "status", "--json", "--data"]);
    assert_eq!(shown.code, 0, "{}", shown.text());
    std::fs::remove_dir_all(copy).unwrap();
}

/// The list of live members can be some seconds old, and a process may have another address than its file.
#[test]
fn brick_that_has_just_ended_at_another_address_is_not_shown_as_removed() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.signal("brick-1", Signal::KILL);
    world.status_until(|shown| state_of(shown, "brick-1") == "down");
    let config = world.data().join("brick-1.toml");
    let log = std::fs::File::create(world.data().join("elsewhere.log")).unwrap();
    let mut node = mortar(&["node", "--listen", "127.0.0.1:0", "--config"]);
    node.arg(config).stdout(log);
    let mut elsewhere = spawn(node).unwrap();
    world.status_until(|shown| state_of(shown, "brick-1") == "healthy");
    send(&elsewhere, Signal::KILL);
    wait(&mut elsewhere, TEST_TIMEOUT).unwrap();
    let status = world.run_at(&["cluster", "status", "--json", "--data"]);
    assert_eq!((status.code, state_of(&status.json(), "brick-1")), (1, "down"), "{}", status.text());
}

#[test]
fn brick_that_cannot_listen_is_no_member() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let meta = format!("mortar://{}", world.address("meta"));
    let mut node =
        mortar(&["node", "--role", "brick", "--memory", "--listen", world.address("brick-1"), "--meta", &meta]);
    let refused = run(node.arg("--cluster-secret").arg(world.data().join("cluster.secret")));
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("cannot listen"), "{}", refused.stderr);
    assert_eq!(world.run(&["brick", "list", "--json"]).json().len(), 2);
}

#[test]
fn server_at_the_address_of_a_brick_is_not_taken_for_it() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let (meta, address) = (format!("mortar://{}", world.address("meta")), world.address("brick-2").to_owned());
    world.kill("brick-2");
    let mut node = mortar(&["node", "--role", "peer", "--listen", &address, "--meta", &meta, "--http", "none"]);
    let log = std::fs::File::create(world.data().join("other.log")).unwrap();
    node.arg("--cluster-secret").arg(world.data().join("cluster.secret")).stdout(log);
    let mut other = spawn(node).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while std::net::TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < until, "the peer server does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    let archive = world.data().join("archive");
    check_refused(
        &world,
        &["backup", archive.to_str().unwrap()],
        5,
        "a server that is not a brick answers where brick 2 was expected",
    );
    assert!(!archive.exists());
    send(&other, Signal::TERM);
    wait(&mut other, TEST_TIMEOUT).unwrap();
}
