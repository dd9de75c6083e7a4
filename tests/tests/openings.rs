//! Bricks and catalogues whose directory went back in time, and two processes of one brick.
//!
//! `MORTAR_OPENINGS_ROUNDS=N` rolls a brick back N times; the suite does so a few times.

#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "long runs report how far they are")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Object, PlacementHint, Transaction};
use model::ClassId;
use mortar_tests::cluster::Cluster;
use mortar_tests::{CommandOutput, Server, TEST_TIMEOUT, mortar, run, small_file, spawn, wait};
use rustix::process::{Signal, test_kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

/// Rounds of the suite.
const ROUNDS: u64 = 4;
/// Rounds between two reports of a long run.
const REPORT_EVERY: u64 = 50;
/// Clients of an exercise, and how long one lasts that is repeated as often as it is needed.
const CLIENTS: &str = "4";
const LOAD_SECONDS: &str = "12";
/// The exit code of a process that is refused.
const DENIED: i32 = 9;

fn rounds() -> u64 {
    std::env::var("MORTAR_OPENINGS_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"))
}

fn report(test: &str, ended: u64) {
    if ended.is_multiple_of(REPORT_EVERY) {
        println!("{test}: {ended} of {} rounds", rounds());
    }
}

fn config(world: &Cluster, name: &str) -> PathBuf {
    world.data().join(format!("{name}.toml"))
}

/// Copies a directory as `cp -r` does.
fn copy(from: &Path, to: &Path) {
    let copied = run(Command::new("cp").arg("-r").arg(from).arg(to));
    // A file may vanish while it is copied from a running brick.
    assert!(copied.code == 0 || copied.stderr.contains("No such file"), "{}", copied.stderr);
}

/// Copies the directory of a running brick, which is stopped meanwhile: a copy of files that change would be a damaged one.
fn copy_of_running(world: &Cluster, brick: &str, to: &Path) {
    world.signal(brick, Signal::STOP);
    copy(&world.data().join(brick), to);
    world.signal(brick, Signal::CONT);
}

fn replace(directory: &Path, by: &Path) {
    fs::remove_dir_all(directory).unwrap();
    copy(by, directory);
}

/// Starts of an old directory that are refused: none of them may bring the next one nearer to being served.
const REFUSED_STARTS: usize = 4;

/// Runs a process of the cluster until it ends; one that does not end is killed.
fn start_refused(world: &Cluster, name: &str) -> CommandOutput {
    run(mortar(&["node", "--config"]).arg(config(world, name)))
}

fn check_refused(refused: &CommandOutput, words: &str) {
    assert_eq!(refused.code, DENIED, "{}", refused.stderr);
    assert!(refused.stderr.contains(words), "{words:?} is not in {}", refused.stderr);
}

fn put(world: &Cluster, name: &str) {
    world.run(&["object", "put", name, small_file()]).ok();
}

fn exercise(world: &Cluster, seconds: &str) -> Child {
    let mut command = mortar(&["exercise", "--clients", CLIENTS, "--seconds", seconds, "--json"]);
    command.env("MORTAR_URL", world.url());
    command.stdout(fs::File::create(world.data().join("exercise")).unwrap());
    spawn(command).unwrap()
}

#[test]
fn older_directory_is_refused_and_the_newer_one_serves_again() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1", "--io-threads", "2"]);
    let (data, old, new) = (world.data().join("brick-1"), world.data().join("old"), world.data().join("new"));
    put(&world, "/first");
    world.kill("brick-1");
    copy(&data, &old);
    world.restart("brick-1");
    for number in 0..8 {
        put(&world, &format!("/later-{number}"));
    }
    world.kill("brick-1");
    fs::rename(&data, &new).unwrap();
    copy(&old, &data);
    check_refused(&start_refused(&world, "brick-1"), "went back in time");
    let listed = world.run(&["brick", "list"]);
    assert!(listed.ok().contains("refused"), "{}", listed.text());
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&new, &data).unwrap();
    world.restart("brick-1");
    for number in 0..8 {
        world.run(&["object", "get", &format!("/later-{number}")]).ok();
    }
    assert!(!world.run(&["brick", "list"]).ok().contains("refused"));
}

/// The copy has the same opening: only witnesses know more.
#[test]
fn copy_within_one_opening_is_refused_by_what_a_peer_server_saw() {
    let mut world = Cluster::start(&["--bricks", "1", "--peers", "2", "--io-threads", "2"]);
    let (data, old) = (world.data().join("brick-1"), world.data().join("old"));
    for round in 0..rounds() {
        put(&world, &format!("/first-{round}"));
        copy_of_running(&world, "brick-1", &old);
        put(&world, &format!("/later-{round}"));
        world.kill("brick-1");
        let new = world.data().join("new");
        fs::rename(&data, &new).unwrap();
        fs::rename(&old, &data).unwrap();
        for _ in 0..REFUSED_STARTS {
            let refused = start_refused(&world, "brick-1");
            check_refused(&refused, "went back in time");
            check_refused(&refused, "are missing");
        }
        replace(&data, &new);
        fs::remove_dir_all(&new).unwrap();
        world.restart("brick-1");
        world.run(&["object", "get", &format!("/later-{round}")]).ok();
        report("copies within one opening", round + 1);
    }
}

/// Commits at brick 2 that a test waits for. The peer server has received the answers to all of them but the last one of each client.
const WITNESSED_COMMITS: u64 = 40;

/// Waits until `load` has committed more at brick 2. A load that has ended is started again.
fn wait_for_commits(world: &Cluster, load: &mut Child) {
    let url = format!("mortar://{}/main", world.address("brick-2"));
    let committed = || {
        let shown = run(mortar(&["status", "--json"]).env("MORTAR_URL", &url)).json();
        shown[0]["metrics"]["parts_committed_total"].as_u64().unwrap()
    };
    let (enough, until) = (committed() + WITNESSED_COMMITS, Instant::now() + TEST_TIMEOUT);
    while committed() < enough {
        assert!(Instant::now() < until, "no transactions are committed at brick 2");
        if load.try_wait().unwrap().is_some() {
            check_exercise(world, std::mem::replace(load, exercise(world, LOAD_SECONDS)));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn check_exercise(world: &Cluster, mut load: Child) {
    let ended = wait(&mut load, TEST_TIMEOUT).unwrap();
    assert!(ended.success(), "{ended}: {}", fs::read_to_string(world.data().join("exercise")).unwrap());
}

#[test]
fn rollback_under_load_is_refused() {
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1", "--io-threads", "2"]);
    put(&world, "/first");
    let (data, old, new) = (world.data().join("brick-2"), world.data().join("old"), world.data().join("new"));
    let mut load = exercise(&world, LOAD_SECONDS);
    for round in 0..rounds() {
        wait_for_commits(&world, &mut load);
        copy(&data, &old);
        // Without them the older directory may have everything that was witnessed.
        wait_for_commits(&world, &mut load);
        world.kill("brick-2");
        fs::rename(&data, &new).unwrap();
        fs::rename(&old, &data).unwrap();
        let refused = start_refused(&world, "brick-2");
        // A copy of a log that is being written may be torn, which is refused before.
        assert!(refused.code != 0, "{}", refused.stderr);
        fs::remove_dir_all(&data).unwrap();
        fs::rename(&new, &data).unwrap();
        world.restart("brick-2");
        report("rollbacks under load", round + 1);
    }
    check_exercise(&world, load);
}

#[test]
fn copy_beside_the_running_brick_is_refused_and_harms_nothing() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1", "--io-threads", "2"]);
    put(&world, "/first");
    let copied = world.data().join("copy");
    let mut load = exercise(&world, "4");
    thread::sleep(Duration::from_secs(1));
    copy(&world.data().join("brick-1"), &copied);
    let mut twin = mortar(&["node", "--http", "none", "--listen", "127.0.0.1:0", "--config"]);
    let refused = run(twin.arg(config(&world, "brick-1")).arg("--data").arg(&copied));
    assert!(refused.code != 0, "{}", refused.stderr);
    assert!(wait(&mut load, TEST_TIMEOUT).unwrap().success());
    put(&world, "/second");
}

/// The original is stopped, so that it can neither refuse the copy nor notice it. Nothing was written since the copy.
#[test]
fn original_that_continues_beside_its_copy_ends() {
    let world = Cluster::start(&["--bricks", "1", "--peers", "1", "--io-threads", "2"]);
    put(&world, "/first");
    let copied = world.data().join("copy");
    world.signal("brick-1", Signal::STOP);
    copy(&world.data().join("brick-1"), &copied);
    let mut twin = mortar(&["node", "--json", "--http", "none", "--listen", "127.0.0.1:0", "--config"]);
    twin.arg(config(&world, "brick-1")).arg("--data").arg(&copied);
    twin.stdout(fs::File::create(world.data().join("twin")).unwrap());
    twin.stderr(fs::File::create(world.data().join("twin.log")).unwrap());
    let mut twin = spawn(twin).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while !fs::read_to_string(world.data().join("twin")).unwrap().ends_with('\n') {
        assert!(Instant::now() < until && twin.try_wait().unwrap().is_none(), "{}", world.log());
        thread::sleep(Duration::from_millis(20));
    }
    put(&world, "/second");
    world.signal("brick-1", Signal::CONT);
    while test_kill_process(world.pid("brick-1")).is_ok() {
        assert!(Instant::now() < until, "the original still runs:\n{}", world.log());
        thread::sleep(Duration::from_millis(5));
    }
    put(&world, "/third");
    for name in ["/first", "/second", "/third"] {
        world.run(&["object", "get", name]).ok();
    }
    // The original's directory is now older than what was served.
    twin.kill().unwrap();
    wait(&mut twin, TEST_TIMEOUT).unwrap();
    check_refused(&start_refused(&world, "brick-1"), "brick 1");
    drop(world);
}

/// The only witness is stopped while the older directory is opened, and knows the later opening from the catalogue when it returns.
#[test]
fn older_brick_ends_when_a_peer_server_returns_that_saw_more() {
    let mut world = Cluster::start(&["--bricks", "1", "--peers", "1", "--io-threads", "2"]);
    let (data, old, new) = (world.data().join("brick-1"), world.data().join("old"), world.data().join("new"));
    put(&world, "/first");
    copy_of_running(&world, "brick-1", &old);
    put(&world, "/later");
    world.signal("peer-1", Signal::STOP);
    world.kill("brick-1");
    fs::rename(&data, &new).unwrap();
    fs::rename(&old, &data).unwrap();
    world.restart("brick-1");
    world.signal("peer-1", Signal::CONT);
    let until = Instant::now() + TEST_TIMEOUT;
    while !world.log().contains("brick 1 went back in time") {
        assert!(Instant::now() < until, "the older directory is still served:\n{}", world.log());
        thread::sleep(Duration::from_millis(20));
    }
    replace(&data, &new);
    check_refused(&start_refused(&world, "brick-1"), "brick 1");
}

#[test]
fn older_catalogue_is_refused_until_its_loss_is_accepted() {
    let mut world = Cluster::start(&["--bricks", "1", "--peers", "1", "--io-threads", "2"]);
    let (data, old, new) = (world.data().join("meta"), world.data().join("old"), world.data().join("new"));
    copy_of_running(&world, "meta", &old);
    for round in 0..rounds() {
        world.run(&["space", "create", &format!("later-{round}")]).ok();
        world.kill("meta");
        fs::rename(&data, &new).unwrap();
        copy(&old, &data);
        for _ in 0..REFUSED_STARTS {
            check_refused(&start_refused(&world, "meta"), "the catalogue went back in time");
        }
        fs::remove_dir_all(&data).unwrap();
        fs::rename(&new, &data).unwrap();
        world.restart("meta");
        put(&world, &format!("/after-{round}"));
        report("older catalogues", round + 1);
    }
    world.kill("brick-1");
    world.restart("brick-1");
    let spaces = |world: &Cluster| world.run(&["space", "list", "--json"]).json();
    let highest = spaces(&world).iter().map(|space| space["id"].as_u64().unwrap()).max().unwrap();
    world.kill("meta");
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&old, &data).unwrap();
    let config = config(&world, "meta");
    let accept = |yes: &[&str]| run(mortar(&["cluster", "accept-loss", "--config"]).arg(&config).args(yes));
    assert!(accept(&[]).ok().contains("Add --yes"));
    check_refused(&start_refused(&world, "meta"), "the catalogue went back in time");
    accept(&["--yes"]).ok();
    world.restart("meta");
    // The brick raises the counters before it serves again. The catalogue does not know its second opening.
    world.kill("brick-1");
    world.restart("brick-1");
    // It still has the newer catalogue, which is gone.
    world.kill("peer-1");
    world.restart("peer-1");
    world.run(&["space", "create", "new"]).ok();
    let created = spaces(&world).iter().find(|space| space["name"] == "new").unwrap()["id"].as_u64().unwrap();
    assert!(created > highest, "the number {created} was given before: {highest}");
}

/// A cluster of two bricks, the directory of the first one, and an older copy of it, which has the names /first-N and not /later-N.
fn cluster_with_old_copy() -> (Cluster, PathBuf, PathBuf) {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1", "--io-threads", "2"]);
    let (data, old) = (world.data().join("brick-1"), world.data().join("old"));
    for number in 0..8 {
        put(&world, &format!("/first-{number}"));
    }
    copy_of_running(&world, "brick-1", &old);
    for number in 0..8 {
        put(&world, &format!("/later-{number}"));
    }
    (world, data, old)
}

#[test]
fn no_loss_is_accepted_in_a_directory_without_a_store() {
    let mut server = Server::start(&["--bricks", "2"]);
    server.run_with_input(&["put", "-", "/a"], "x").ok();
    server.stop();
    let (data, lost, away) = (server.data(), server.data().join("brick-2"), server.dir().join("away"));
    fs::rename(&lost, &away).unwrap();
    let empty = server.dir().join("empty");
    fs::create_dir(&empty).unwrap();
    for (directory, makes) in
        [(lost.clone(), &lost), (empty.clone(), &empty.join("STORE")), (away.join("none"), &away.join("none"))]
    {
        for yes in [&[][..], &["--yes"]] {
            let refused = run(mortar(&["brick", "accept-loss", "--data"]).arg(&directory).args(yes));
            assert!(refused.code == 3 && refused.stderr.contains("there is no "), "{}", refused.text());
            assert!(!makes.exists(), "{}", makes.display());
        }
    }
    let config = server.dir().join("meta.toml");
    let absent = server.dir().join("absent");
    fs::write(&config, format!("role = \"meta\"\ndata = \"{}\"\nlisten = [\"127.0.0.1:0\"]\n", absent.display()))
        .unwrap();
    let refused = run(mortar(&["cluster", "accept-loss", "--yes", "--config"]).arg(&config));
    assert!(refused.code == 3 && !absent.exists(), "{}", refused.text());
    // The server still says what is missing, and starts when that is back.
    let dev = run(mortar(&["dev", "--listen", "none", "--http", "none", "--data"]).arg(data));
    assert!(dev.code == 6 && dev.stderr.contains("brick 2 is missing"), "{}", dev.text());
    fs::rename(&away, &lost).unwrap();
    server.restart();
    assert_eq!(server.run(&["get", "/a"]).ok(), "x");
}

#[test]
fn lost_changes_of_a_brick_are_accepted_explicitly() {
    let (mut world, data, old) = cluster_with_old_copy();
    let config = config(&world, "brick-1");
    let accept = |yes: &[&str]| run(mortar(&["brick", "accept-loss", "--config"]).arg(&config).args(yes));
    world.kill("brick-1");
    assert_eq!(accept(&["--yes"]).code, 2, "there is nothing to accept");
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&old, &data).unwrap();
    check_refused(&start_refused(&world, "brick-1"), "accept-loss");
    let shown = accept(&[]);
    assert!(shown.ok().contains("Add --yes"), "{}", shown.text());
    // However many openings it saw.
    assert_eq!(shown.ok().matches("seen by peer server 1").count(), 1, "{}", shown.text());
    check_refused(&start_refused(&world, "brick-1"), "went back in time");
    assert!(accept(&["--yes"]).ok().contains("Accepted"));
    world.restart("brick-1");
    for number in 0..8 {
        world.run(&["object", "get", &format!("/first-{number}")]).ok();
        // It is there or lost, and never another object.
        let later = world.run(&["object", "get", &format!("/later-{number}")]);
        assert!(later.code == 0 || later.code == 3, "{}", later.stderr);
    }
    for number in 0..8 {
        put(&world, &format!("/new-{number}"));
        world.run(&["object", "get", &format!("/new-{number}")]).ok();
    }
    world.kill("brick-1");
    world.restart("brick-1");
}

#[test]
fn accepted_loss_cancels_the_moves_of_the_brick() {
    let (mut world, data, old) = cluster_with_old_copy();
    let shown = world.run(&["remap", "--json"]).json();
    let number = if world.address("brick-1") == shown[0]["address"] { "1" } else { "2" };
    // The other brick, which copies the logical nodes, does not run. So they are moving until the loss is accepted.
    world.kill("brick-2");
    world.run(&["remap", "--drain", number, "--no-wait"]).ok();
    world.kill("brick-1");
    replace(&data, &old);
    check_refused(&start_refused(&world, "brick-1"), "accept-loss");
    let config = config(&world, "brick-1");
    let accept = |yes: &[&str]| run(mortar(&["brick", "accept-loss", "--config"]).arg(&config).args(yes));
    assert!(accept(&[]).ok().contains("would be cancelled"), "{}", accept(&[]).text());
    assert!(accept(&["--yes"]).ok().contains("were cancelled"));
    world.restart("brick-1");
    world.restart("brick-2");
    // The brick is still to be drained.
    world.run(&["remap", "--drain", number]).ok();
    world.kill("brick-1");
    for number in 0..8 {
        world.run(&["object", "get", &format!("/first-{number}")]).ok();
        let later = world.run(&["object", "get", &format!("/later-{number}")]);
        assert!(later.code == 0 || later.code == 3, "{}", later.stderr);
    }
    world.restart("brick-1");
}

fn repair(data: &Path, args: &[&str]) -> CommandOutput {
    run(mortar(&["repair", "--data"]).arg(data).args(args))
}

/// Damages acknowledged transactions in the log of a brick that was killed. Returns whether they are not in the B-tree.
fn damage_log(data: &Path) -> bool {
    let segments = fs::read_dir(data.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let segment = segments.filter(|path| path.extension().is_some_and(|extension| extension == "seg")).min().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let Some(middle) = bytes.windows(64).rposition(|window| window == [b'x'; 64]) else { return false };
    let middle = middle.saturating_sub(10_000);
    bytes[middle..middle + 8].fill(0xff);
    fs::write(&segment, bytes).unwrap();
    let report = repair(data, &["--json"]);
    report.code == 6 && report.json()[0]["lost"].is_object()
}

/// The positions of a repaired log are above all that witnesses saw, so they do not notice that it went back in time.
#[test]
fn brick_whose_log_was_repaired_is_served_once_that_was_accepted() {
    let mut world = Cluster::start(&["--bricks", "1", "--peers", "1", "--io-threads", "2"]);
    let (data, content) = (world.data().join("brick-1"), world.data().join("content"));
    fs::write(&content, [b'x'; 2000]).unwrap();
    let mut number = 0;
    // The installer may have installed everything before the kill, so that nothing is lost.
    for attempt in 0.. {
        assert!(attempt < 10, "the installer was faster in every attempt");
        for _ in 0..20 {
            world.run(&["object", "put", &format!("/{number}"), content.to_str().unwrap()]).ok();
            number += 1;
        }
        world.kill("brick-1");
        let kept = world.data().join("kept");
        let _ = fs::remove_dir_all(&kept);
        copy(&data, &kept);
        if damage_log(&data) {
            break;
        }
        replace(&data, &kept);
        world.restart("brick-1");
    }
    let refused = start_refused(&world, "brick-1");
    assert!(refused.code == 6 && refused.stderr.contains("mortar repair"), "{}", refused.stderr);
    let repaired = repair(&data, &["--accept-loss"]);
    assert!(repaired.ok().contains("mortar brick accept-loss --config FILE --yes"), "{}", repaired.text());
    check_refused(&start_refused(&world, "brick-1"), "accept-loss");
    let config = config(&world, "brick-1");
    let accept = |yes: &[&str]| run(mortar(&["brick", "accept-loss", "--config"]).arg(&config).args(yes));
    let shown = accept(&[]);
    assert!(shown.ok().contains("a repair gave up all transactions after"), "{}", shown.text());
    check_refused(&start_refused(&world, "brick-1"), "accept-loss");
    assert!(accept(&["--yes"]).ok().contains("Accepted"));
    world.restart("brick-1");
    let found = |world: &Cluster, number: u32| world.run(&["object", "get", &format!("/{number}")]).code;
    let codes: Vec<i32> = (0..number).map(|number| found(&world, number)).collect();
    assert!(codes.iter().all(|code| [0, 3].contains(code)) && codes[0] == 0 && codes.contains(&3), "{codes:?}");
    for number in 0..number {
        world.run(&["object", "put", &format!("/new-{number}"), content.to_str().unwrap()]).ok();
    }
    world.kill("brick-1");
    world.restart("brick-1");
    assert_ne!(accept(&["--yes"]).code, 0, "the brick runs");
}

#[test]
fn lost_changes_of_a_brick_of_one_process_are_accepted_explicitly() {
    let mut server = Server::start(&["--bricks", "2"]);
    let (brick, old) = (server.data().join("brick-2"), server.data().join("old"));
    let put = |server: &Server, name: &str| {
        for number in 0..8 {
            server.run_with_input(&["put", "-", &format!("/{name}-{number}")], name).ok();
        }
    };
    put(&server, "first");
    server.stop();
    copy(&brick, &old);
    let accept = |server: &Server, directory: &Path, yes: &[&str]| {
        run(server.command(&["brick", "accept-loss", "--data"]).arg(directory).args(yes))
    };
    assert_eq!(accept(&server, &brick, &["--yes"]).code, 2, "there is nothing to accept");
    assert_eq!(accept(&server, &server.data(), &[]).code, 2, "nothing is lost");
    server.restart();
    put(&server, "later");
    server.stop();
    replace(&brick, &old);
    server.launch();
    assert_eq!(server.wait_exit().code(), Some(DENIED));
    assert!(server.log().contains("brick 2 went back in time"), "{}", server.log());
    assert!(accept(&server, &brick, &[]).ok().contains("Add --yes"));
    server.launch();
    assert_eq!(server.wait_exit().code(), Some(DENIED), "nothing was accepted");
    assert!(accept(&server, &brick, &["--yes"]).ok().contains("Accepted"));
    server.restart();
    for number in 0..8 {
        server.run(&["get", &format!("/first-{number}")]).ok();
        // It is there or lost, and never another object.
        let later = server.run(&["get", &format!("/later-{number}")]);
        assert!(later.code == 0 || later.code == 3, "{}", later.stderr);
    }
    put(&server, "new");
    server.stop();
    server.restart();
    server.run(&["status", "--quiet"]).ok();
}

/// Clients, each of which has committed one transaction that makes an object at each logical node, so all bricks take part. What a client that stays has not
/// heard is not forgotten.
fn commit_everywhere(runtime: &Runtime, url: &str, count: usize) -> Vec<Client> {
    let commit = async || {
        let client = Client::connect(url).await.unwrap();
        let nodes: Vec<_> = client.nodes().to_vec();
        let nodes = &nodes;
        let make = |t: Transaction| async move {
            for node in nodes {
                t.create_object(ClassId::NONE, Object::blob("x".into()), PlacementHint::At(*node))?;
            }
            Ok(())
        };
        client.transact(make).await.unwrap();
        client
    };
    (0..count).map(|_| runtime.block_on(commit())).collect()
}

/// Checks that a report names so many lost transactions. Their parts are lost, or their votes, if the partner has not heard of the outcome yet.
#[track_caller]
fn check_lost(report: &CommandOutput, count: usize, partner: u64) {
    report.ok();
    let report = &report.json()[0];
    let mut names = BTreeSet::new();
    for one in report["transactions"].as_array().unwrap() {
        assert!(one["partner_bricks"] == Value::from(vec![partner]), "{one:#}");
        assert!(!one["nodes"].as_array().unwrap().is_empty(), "{one:#}");
        match (one["finding"].as_str().unwrap(), one["outcome"].as_str()) {
            ("part_lost", Some("committed")) | ("vote_lost", None) => {
                names.insert(one["transaction"].as_str().unwrap());
            }
            // It was under way when the directory was copied.
            ("completed", Some("committed")) => {}
            _ => panic!("{one:#}"),
        }
    }
    assert_eq!(names.len(), count, "{report:#}");
    assert_eq!(report["unasked"], Value::from(Vec::<u64>::new()), "{report:#}");
}

#[test]
fn transactions_that_partners_hold_as_committed_are_named_before_a_loss_is_accepted() {
    let runtime = Runtime::new().unwrap();
    let mut world = Cluster::start(&["--bricks", "2", "--peers", "1", "--io-threads", "2"]);
    let (data, old) = (world.data().join("brick-2"), world.data().join("old"));
    let before = commit_everywhere(&runtime, world.url(), 2);
    copy_of_running(&world, "brick-2", &old);
    let later = commit_everywhere(&runtime, world.url(), 5);
    world.kill("brick-2");
    let brick = world.run(&["brick", "list", "--json"]).json();
    let partner = |config: &Path| {
        let config = fs::read_to_string(config).unwrap();
        let is_other = |brick: &&Value| !config.contains(brick["addresses"][0].as_str().unwrap_or("none"));
        brick.iter().find(is_other).and_then(|brick| brick["brick"].as_u64()).unwrap_or_else(|| panic!("{brick:?}"))
    };
    replace(&data, &old);
    let config = config(&world, "brick-2");
    let partner = partner(&config);
    check_refused(&start_refused(&world, "brick-2"), "went back in time");
    let accept = |options: &[&str]| run(mortar(&["brick", "accept-loss", "--config"]).arg(&config).args(options));
    check_lost(&accept(&["--json"]), later.len(), partner);
    let text = accept(&[]);
    assert!(text.ok().contains("its part here may be lost"), "{}", text.text());
    // Without the other brick nothing is compared, and that is said.
    world.kill("brick-1");
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let report = accept(&["--json"]);
        report.ok();
        let report = &report.json()[0];
        if report["unasked"] == Value::from(vec![partner]) {
            assert_eq!(report["transactions"], Value::from(Vec::<Value>::new()));
            break;
        }
        assert!(Instant::now() < until, "{report:#}");
    }
    assert!(accept(&[]).ok().contains(&format!("what brick {partner} knows of transactions is not compared")));
    world.restart("brick-1");
    let until = Instant::now() + TEST_TIMEOUT;
    while accept(&["--json"]).json()[0]["unasked"] != Value::from(Vec::<u64>::new()) {
        assert!(Instant::now() < until, "{}", world.log());
    }
    check_lost(&accept(&["--yes", "--json"]), later.len(), partner);
    world.restart("brick-2");
    drop((before, later));
}

#[test]
fn lost_transactions_of_a_brick_of_one_process_are_named() {
    let runtime = Runtime::new().unwrap();
    let mut server = Server::start(&["--bricks", "2"]);
    let (brick, old) = (server.data().join("brick-2"), server.data().join("old"));
    server.stop();
    copy(&brick, &old);
    server.restart();
    let clients = commit_everywhere(&runtime, &server.url(), 4);
    server.kill();
    drop(clients);
    replace(&brick, &old);
    let accept = |options: &[&str]| run(server.command(&["brick", "accept-loss", "--data"]).arg(&brick).args(options));
    check_lost(&accept(&["--json"]), 4, 1);
    check_lost(&accept(&["--json", "--yes"]), 4, 1);
    server.restart();
    server.run(&["status", "--quiet"]).ok();
}
