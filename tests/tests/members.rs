//! `mortar brick` and `mortar peer`: real processes leave a cluster for good.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{TEST_TIMEOUT, mortar, run, send, spawn, wait};
use rustix::process::Signal;
use serde_json::Value;

/// What `mortar brick list` or `mortar peer list` says, once `is_fine` is satisfied.
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
fn a_brick_that_was_drained_is_removed_and_missed_by_nobody() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["object", "put", "/greeting", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]).ok();
    let listed = world.run(&["brick", "list", "--json"]).json();
    let shown: Vec<_> = listed.iter().map(|one| (one["brick"].clone(), one["nodes"].clone())).collect();
    assert_eq!(shown, [(1.into(), 4.into()), (2.into(), 4.into())]);
    check_refused(&world, &["brick", "remove", "2"], 2, "mortar remap --drain");
    check_refused(&world, &["brick", "remove", "7"], 3, "no brick");
    world.run(&["exercise", "--seconds", "1", "--clients", "2"]).ok();
    let committed = || {
        let status = world.run_at(&["cluster", "status", "--json", "--data"]).json();
        let brick = status.iter().find(|one| one["role"] == "brick" && one["number"] == 2).unwrap();
        brick["metrics"]["parts_committed_total"].as_u64().unwrap()
    };
    let before = committed();
    world.run(&["remap", "--drain", "2"]).ok();
    assert!(before > 0 && committed() >= before, "what was counted at nodes that have gone stays");
    check_refused(&world, &["brick", "remove", "2"], 2, "its own process");
    // It gets nothing any more, in none of the ways in which that may be asked for.
    check_refused(&world, &["remap", "--node", "1", "--to", "2"], 2, "mortar remap --cancel --drain 2");
    assert_eq!(world.run(&["remap", "--spread", "--json"]).json()[0]["nodes"], 0);
    assert!(world.run(&["brick", "list"]).ok().contains("drained"));

    // Which of the processes it is, its number does not say.
    let address = listed[1]["addresses"][0].as_str().unwrap();
    let (gone, stays) =
        if world.address("brick-2") == address { ("brick-2", "brick-1") } else { ("brick-1", "brick-2") };
    let status = world.run_at(&["cluster", "status", "--json", "--data"]).json();
    assert_eq!(status.iter().find(|one| one["name"] == gone).unwrap()["number"], 2);
    world.signal(gone, Signal::TERM);
    list_until(&world, "brick", |listed| listed[1]["alive"] == false);
    world.status_until(|shown| state_of(shown, gone) == "down");
    assert_eq!(world.run(&["brick", "remove", "2", "--json"]).json()[0]["removed"], "brick");
    assert_eq!(world.run(&["brick", "list", "--json"]).json().len(), 1);
    let status = world.run_at(&["cluster", "status", "--json", "--data"]);
    assert_eq!((state_of(&status.json(), gone), state_of(&status.json(), stays)), ("removed", "healthy"));
    assert_eq!(status.code, 0, "{}", status.stderr);
    // One that takes part from elsewhere changes nothing of that, and is shown.
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
    assert_eq!((&of(stays)["number"], state_of(&status, gone)), (&1.into(), "removed"));
    assert_eq!(of(gone).get("number"), None);
    send(&outside, Signal::TERM);
    wait(&mut outside, TEST_TIMEOUT).unwrap();
    world.status_until(|shown| state_of(shown, "outside") == "down");
    list_until(&world, "brick", |listed| listed[1]["alive"] == false);
    world.run(&["brick", "remove", "3"]).ok();
    // With what it had it is not let in again.
    let config = world.data().join(format!("{gone}.toml"));
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
fn a_peer_server_that_is_gone_is_removed_and_is_a_new_one_when_it_comes_back() {
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
fn the_end_of_a_cluster_counts_what_was_started_by_hand_too() {
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

/// What the catalogue says of who lives is some seconds old, and a process may be reached elsewhere than its file says.
#[test]
fn a_brick_that_has_just_ended_at_another_address_is_not_called_removed() {
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
