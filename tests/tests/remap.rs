//! `mortar remap`: moves logical nodes of real bricks while clients work.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{TEST_TIMEOUT, small_file};
use rustix::process::Signal;
use serde_json::Value;

/// The number of logical nodes of each brick, by brick number.
fn nodes_per_brick(world: &Cluster) -> Vec<usize> {
    let shown = world.run(&["remap", "--json"]).json();
    let count = |brick: &Value| brick["nodes"]["main"].as_array().map_or(0, Vec::len);
    shown.iter().filter(|line| line["address"].is_string()).map(count).collect()
}

#[test]
fn bricks_are_drained_and_get_their_share_while_clients_work() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    assert_eq!(nodes_per_brick(&world), [4, 4]);
    world.run(&["object", "put", "/greeting", small_file()]).ok();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| world.run(&["exercise", "--seconds", "8"]));
        let dry = world.run(&["remap", "--drain", "1", "--dry-run", "--json"]).json();
        assert_eq!((dry.len(), nodes_per_brick(&world)), (4, vec![4, 4]));
        let drained = world.run(&["remap", "--drain", "1", "--json"]).json();
        assert_eq!(drained[0]["nodes"], 4);
        assert!(drained[0]["rows"].as_u64().unwrap() > 0 && drained[0]["longest_pause_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(nodes_per_brick(&world), [0, 8]);
        // A drained brick gets no nodes unless the drain is cancelled.
        assert_eq!(world.run(&["remap", "--spread", "--json"]).json()[0]["nodes"], 0);
        world.run(&["remap", "--cancel", "--drain", "1"]).ok();
        assert!(world.run(&["remap", "--spread"]).ok().starts_with("moved 4 nodes, "));
        assert_eq!(nodes_per_brick(&world), [4, 4]);
        let shown = world.run(&["remap", "--json"]).json();
        let node = |brick: usize| shown[brick]["nodes"]["main"][0].as_str().unwrap();
        let both = format!("{},{}", node(0), node(1));
        assert!(world.run(&["remap", "--node", &both, "--to", "1"]).ok().starts_with("moved 1 node, "));
        assert_eq!(nodes_per_brick(&world), [5, 3]);
        assert_eq!(world.run(&["remap", "--node", "1", "--to", "9"]).code, 3);
        assert_eq!(world.run(&["remap", "--node", "ff", "--to", "1"]).code, 3);
        work.join().unwrap().ok();
    });
    assert!(world.run(&["object", "get", "/greeting"]).ok().contains("mortar-tests"));

    // Added bricks get their share.
    world.run_at(&["cluster", "down", "--data"]).ok();
    world.wait_ended();
    world.up(&["--bricks", "4"]);
    world.run(&["remap", "--spread"]).ok();
    assert_eq!(nodes_per_brick(&world), [2, 2, 2, 2]);
    assert!(world.run(&["object", "get", "/greeting"]).ok().contains("mortar-tests"));
    assert!(world.run(&["remap"]).ok().starts_with("brick 1"));
}

#[test]
fn problem_of_a_cancelled_move_is_not_reported_for_the_next_one() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let shown = world.run(&["remap", "--json"]).json();
    let (from, to) = if world.address("brick-1") == shown[0]["address"] { (0, 1) } else { (1, 0) };
    let node = shown[from]["nodes"]["main"][0].as_str().unwrap().to_owned();
    let to = shown[to]["brick"].to_string();
    world.signal("brick-1", Signal::STOP);
    world.run(&["remap", "--node", &node, "--to", &to, "--no-wait"]).ok();
    let cancelled = world.run(&["remap", "--cancel", "--json"]).json();
    assert_eq!((cancelled[0]["brick"].as_u64(), cancelled[1]["cancelled"].as_u64()), (Some(from as u64 + 1), Some(1)));
    let nothing = world.run(&["remap", "--cancel"]);
    assert_eq!((nothing.ok(), nothing.stderr.as_str()), ("there were no moves to cancel", ""));
    // The request to the stopped brick is not answered, and the attempt fails.
    let until = Instant::now() + TEST_TIMEOUT;
    while !world.log().contains("the move of a logical node") {
        assert!(Instant::now() < until, "{}", world.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    world.signal("brick-1", Signal::CONT);
    // The entry of the brick in the catalogue may have expired meanwhile.
    while world.run(&["brick", "list", "--json"]).json().iter().any(|brick| brick["alive"] == false) {
        assert!(Instant::now() < until, "{}", world.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let moved = world.run(&["remap", "--node", &node, "--to", &to]);
    assert!(moved.ok().starts_with("moved 1 node, "), "{}", moved.stderr);
    assert_eq!(moved.stderr, "");
    // Cancelling moves does not cancel the drain.
    world.signal("brick-1", Signal::STOP);
    world.run(&["remap", "--drain", &(from + 1).to_string(), "--no-wait"]).ok();
    let given_up = world.run(&["remap", "--cancel"]);
    assert!(given_up.ok().ends_with("cancelled 3 moves"), "{}", given_up.text());
    assert!(given_up.stderr.contains(&format!("mortar remap --cancel --drain {}", from + 1)), "{}", given_up.stderr);
    assert_eq!(world.run(&["remap", "--cancel", "--drain", &(from + 1).to_string()]).stderr, "");
    world.signal("brick-1", Signal::CONT);
}

#[test]
fn logical_nodes_have_the_same_number_in_text_in_json_and_in_arguments() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1", "--memory"]);
    world.run(&["space", "create", "large", "--nodes", "20"]).ok();
    let numbers = |brick: &Value| -> Vec<String> {
        let nodes = brick["nodes"]["large"].as_array().unwrap();
        nodes.iter().map(|node| node.as_str().unwrap().to_owned()).collect()
    };
    let shown = world.run(&["remap", "--json"]).json();
    let first = numbers(&shown[0]);
    let text = world.run(&["remap"]);
    assert!(text.ok().contains(&format!("large: {}", first.join(" "))), "{}", text.text());
    // The nodes of the main space have the first eight numbers.
    assert!(first.iter().chain(&numbers(&shown[1])).any(|node| node == "1a"), "{shown:?}");
    let moved = world.run(&["remap", "--node", "1a", "--to", "1", "--dry-run", "--json"]).json();
    let moved =
        moved.into_iter().chain(world.run(&["remap", "--node", "1a", "--to", "2", "--dry-run", "--json"]).json());
    assert_eq!(moved.map(|line| line["node"].clone()).collect::<Vec<_>>(), ["1a"]);
    let large = world.run(&["space", "show", "large", "--json"]).json();
    let served: Vec<&Value> =
        large[0]["bricks"].as_array().unwrap().iter().flat_map(|it| it["nodes"].as_array().unwrap()).collect();
    assert!(served.iter().any(|node| **node == "1a"), "{served:?}");
    let events = world.run(&["--space", "large", "events", "--count", "1", "--json"]).json();
    assert!(events[0]["bricks"].to_string().contains("\"1a\""), "{events:?}");
}
