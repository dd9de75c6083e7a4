//! Clusters of real processes that are killed, stopped and restarted while clients work.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use client::{CommitOutcome, ConnectOptions, ErrorKind, IsolationLevel, Oid, PlacementHint};
use model::{ClassId, NodeId, Object};
use mortar_tests::cluster::Cluster;
use mortar_tests::{mortar, run};
use rustix::process::Signal;
use serde_json::Value;

async fn connect(url: &str) -> client::Client {
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(60);
    client::Client::connect_with(url, options).await.unwrap()
}

fn blob(number: u64) -> Object {
    Object::blob(number.to_string().into())
}

fn parse_counter(object: Option<Object>) -> client::Result<u64> {
    let missing = || client::Error::new(ErrorKind::NotFound, "there is no such counter");
    let object = object.ok_or_else(missing)?;
    let text = std::str::from_utf8(&object.data).ok().and_then(|text| text.parse().ok());
    text.ok_or_else(|| client::Error::new(ErrorKind::Corrupt, "a counter is not a number"))
}

/// Two counters at consecutive logical nodes, which are at different bricks.
async fn create_counters(cluster: &client::Client) -> [Oid; 2] {
    let nodes = [NodeId(1), NodeId(2)];
    let made = cluster
        .transact(|t| async move {
            let mut made = Vec::new();
            for node in nodes {
                let oid = t.create_object(ClassId::NONE, blob(0), PlacementHint::At(node))?;
                t.bind(&format!("counters/{}", node.0), oid).await?;
                made.push(oid);
            }
            Ok((t, made))
        })
        .await;
    let (t, made) = made.unwrap();
    [t.real_oid(made[0]).unwrap(), t.real_oid(made[1]).unwrap()]
}

/// Increments both counters.
async fn increment(cluster: &client::Client, oids: [Oid; 2]) -> client::Result<()> {
    let both = |t: client::Transaction| async move {
        for oid in oids {
            let count = parse_counter(t.get(oid).await?)?;
            t.put(oid, blob(count + 1)).await?;
        }
        Ok(())
    };
    cluster.transact(both).await
}

/// Reads both counters in one transaction.
async fn read_counters(cluster: &client::Client, oids: [Oid; 2]) -> (u64, u64) {
    let both = |t: client::Transaction| async move {
        Ok((parse_counter(t.get(oids[0]).await?)?, parse_counter(t.get(oids[1]).await?)?))
    };
    cluster.transact(both).await.unwrap()
}

fn state<'a>(shown: &'a [Value], name: &str) -> &'a str {
    let one = shown.iter().find(|one| one["name"] == name).unwrap();
    one["state"].as_str().unwrap()
}

fn all_healthy(shown: &[Value]) -> bool {
    !shown.is_empty() && shown.iter().all(|one| one["state"] == "healthy")
}

#[tokio::test]
async fn commits_survive_a_brick_that_is_killed_and_restarted() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let client = connect(world.url()).await;
    let oids = create_counters(&client).await;
    for _ in 0..20 {
        increment(&client, oids).await.unwrap();
    }
    world.signal("brick-1", Signal::KILL);
    let shown = world.status_until(|shown| state(shown, "brick-1") == "down");
    assert_eq!(state(&shown, "brick-2"), "healthy");
    world.status_until(|shown| state(shown, "peer-1") == "unhealthy");
    let unhealthy = world.run(&["status", "--quiet"]);
    assert_eq!((unhealthy.code, unhealthy.stdout.len()), (1, 0), "{}", unhealthy.stderr);
    assert!(unhealthy.stderr.contains("the peer server is unhealthy"), "{}", unhealthy.stderr);
    world.restart("brick-1");
    world.status_until(all_healthy);
    assert_eq!(read_counters(&client, oids).await, (20, 20));
    increment(&client, oids).await.unwrap();
    let other = connect(world.url()).await;
    assert_eq!(read_counters(&other, oids).await, (21, 21));
    // Processes that were started by hand end cleanly with the others, and the cluster can be started again.
    assert!(world.stop(Signal::INT).success());
    world.wait_ended();
    world.status_until(|shown| shown.iter().all(|one| one["state"] == "down"));
    world.up(&[]);
    assert_eq!(read_counters(&connect(world.url()).await, oids).await, (21, 21));
}

#[tokio::test]
async fn client_continues_at_another_peer_server_when_its_own_is_killed() {
    const TARGET: u64 = 60;
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "2", "--memory"]);
    let client = connect(world.url()).await;
    let oids = create_counters(&client).await;
    let (mut done, mut unknown) = (0, 0);
    while done < TARGET {
        if done == TARGET / 3 && unknown == 0 {
            // The client is connected to the first peer server of its list.
            world.signal("peer-1", Signal::KILL);
        }
        match increment(&client, oids).await {
            Ok(()) => done += 1,
            Err(error) if error.kind() == ErrorKind::Unknown => unknown += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let (one, two) = read_counters(&client, oids).await;
    assert_eq!(one, two);
    assert!((done..=done + unknown).contains(&one), "{one} of {done} and perhaps {unknown}");
    let shown = world.status_until(|shown| state(shown, "peer-1") == "down");
    assert_eq!(state(&shown, "peer-2"), "healthy");
    world.restart("peer-1");
    world.status_until(all_healthy);
    world.run_at(&["cluster", "down", "--data"]).ok();
    world.wait_ended();
}

/// Checks that commands that need the meta-server fail within their time limit and name it.
fn check_without_meta_server(world: &Cluster) {
    let define = ["class", "define", "Late", "--field", "name:string"];
    for args in [&["space", "create", "late"][..], &define, &["brick", "list"], &["remap"], &["user", "add", "ann"]] {
        let mut command = mortar(&[args, &["--timeout", "1"]].concat());
        let ended = run(command.env("MORTAR_URL", world.url()).env("MORTAR_NEW_PASSWORD", "correct horse"));
        assert_eq!(ended.code, 5, "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("no meta-server has answered"), "{args:?}: {}", ended.stderr);
    }
}

#[test]
fn a_brick_that_was_started_by_hand_and_does_not_answer_is_not_down() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.kill("brick-2");
    world.restart("brick-2");
    world.signal("brick-2", Signal::STOP);
    let shown = world.status_until(|shown| state(shown, "brick-2") == "unresponsive");
    let brick = shown.iter().find(|one| one["name"] == "brick-2").unwrap();
    assert!(brick["pid"].is_u64(), "{brick}");
    world.signal("brick-2", Signal::CONT);
    world.status_until(all_healthy);
}

#[tokio::test]
async fn transactions_continue_while_the_meta_server_is_stopped() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let client = connect(world.url()).await;
    let oids = create_counters(&client).await;
    world.signal("meta", Signal::STOP);
    let shown = world.status_until(|shown| state(shown, "meta") == "unresponsive");
    let numbers: Vec<_> = shown.iter().filter(|one| one["role"] == "brick").map(|one| one["number"].as_u64()).collect();
    assert!([[Some(1), Some(2)], [Some(2), Some(1)]].iter().any(|both| *both == *numbers), "{numbers:?}");
    // Longer than any session lives without renewal.
    let until = std::time::Instant::now() + Duration::from_secs(8);
    let mut done = 0;
    while std::time::Instant::now() < until {
        increment(&client, oids).await.unwrap();
        done += 1;
    }
    // New clients too: their numbers come from the pool.
    let other = connect(world.url()).await;
    increment(&other, oids).await.unwrap();
    assert_eq!(read_counters(&other, oids).await, (done + 1, done + 1));
    check_without_meta_server(&world);
    world.signal("meta", Signal::CONT);
    world.status_until(all_healthy);
    world.run(&["space", "create", "photos", "--nodes", "4"]).ok();
    increment(&client, oids).await.unwrap();
    assert_eq!(world.run(&["space", "ls", "--json"]).json().len(), 2);
}

#[tokio::test]
async fn killed_meta_server_restarts_with_its_catalogue() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    world.run(&["space", "create", "photos"]).ok();
    world.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    world.run(&["object", "put", "/ann", "--class", "Person", r#"{"name": "Ann"}"#]).ok();
    let client = connect(world.url()).await;
    let oids = create_counters(&client).await;
    world.signal("meta", Signal::KILL);
    world.status_until(|shown| state(shown, "meta") == "down");
    increment(&client, oids).await.unwrap();
    // Peer servers answer from their copy of the classes.
    for question in [&["query", "Person"][..], &["object", "get", "/ann"], &["class", "list"]] {
        let answer = world.run(&[question, &["--timeout", "3"]].concat());
        assert!(answer.ok().contains("Ann") || question[0] == "class", "{question:?}: {}", answer.text());
    }
    check_without_meta_server(&world);
    world.restart("meta");
    world.status_until(all_healthy);
    world.run(&["space", "create", "music"]).ok();
    increment(&client, oids).await.unwrap();
    let names: Vec<Value> =
        world.run(&["space", "ls", "--json"]).json().iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["main", "music", "photos"]);
    assert_eq!(read_counters(&client, oids).await, (2, 2));
}

#[tokio::test]
async fn objects_are_stored_and_read_by_name() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "2", "--memory"]);
    std::fs::write(world.data().join("file"), "hello").unwrap();
    let file = world.data().join("file");
    let put = |more: &[&str]| world.run(&[&["object", "put", "/greeting", file.to_str().unwrap()], more].concat());
    put(&["--new"]).ok();
    assert_eq!(put(&["--new"]).code, 4);
    put(&[]).ok();
    assert_eq!(world.run(&["object", "get", "/greeting"]).ok(), "hello");
    let client = connect(world.url()).await;
    let t = client.begin(IsolationLevel::Optimistic);
    let oid = t.resolve("/greeting").await.unwrap().unwrap();
    assert_eq!(t.get(oid).await.unwrap().unwrap().data, "hello");
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let statuses = world.run(&["status", "--json"]).json();
    assert_eq!(statuses.len(), 2);
    assert!(statuses.iter().all(|status| status["role"] == "peer server" && status["healthy"] == true));
    world.run(&["object", "rm", "/greeting"]).ok();
    assert_eq!(world.run(&["object", "get", "/greeting"]).code, 3);
}
