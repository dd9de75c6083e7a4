//! Jobs of a cluster of real processes: they go on when processes are killed, hold still when they are paused, and end right.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{TEST_TIMEOUT, mortar, run_with_input, send, spawn, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

const PEOPLE: u64 = 1500;

/// Stores records of a class, and adds a field to the class, so that all of them are old.
fn store_old_people(cluster: &Cluster) {
    cluster.run(&["class", "define", "Person", "--field", "name:string", "--field", "age:int64"]).ok();
    let records: String =
        (0..PEOPLE).map(|number| json!({"name": format!("p{number}"), "age": number}).to_string() + "\n").collect();
    let mut put = mortar(&["object", "put", "--class", "Person", "-"]);
    run_with_input(put.env("MORTAR_URL", cluster.url()), records.into_bytes()).ok();
    cluster.run(&["class", "evolve", "Person", "--add", "city:string=Rome"]).ok();
}

fn old_people(cluster: &Cluster) -> u64 {
    cluster.run(&["evolve", "Person", "--dry-run", "--json"]).json()[0]["rewritten"].as_u64().unwrap()
}

/// Begins a job with a command that does not wait. Returns its number.
fn begin(cluster: &Cluster, args: &[&str]) -> String {
    let begun = cluster.run(&[args, &["--detach", "--json"]].concat());
    begun.ok();
    begun.json()[0]["job"].as_u64().unwrap().to_string()
}

fn show(cluster: &Cluster, job: &str) -> Value {
    cluster.run(&["job", "show", job, "--json"]).json().remove(0)
}

/// The job, once `is_fine` accepts it.
fn show_until(cluster: &Cluster, job: &str, is_fine: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let shown = cluster.run(&["job", "show", job, "--json"]);
        if let Some(view) = shown.json().pop().filter(|view| shown.code == 0 && is_fine(view)) {
            return view;
        }
        assert!(Instant::now() < until, "{} {}\n{}", shown.text(), shown.stderr, cluster.log());
        thread::sleep(Duration::from_millis(20));
    }
}

fn count(view: &Value, field: &str) -> u64 {
    view[field].as_u64().unwrap()
}

/// The name of the process of a peer server, such as `peer-1`.
fn process_of(cluster: &Cluster, worker: &str) -> String {
    let number: u64 = worker.strip_prefix("peer server ").unwrap().parse().unwrap();
    let all = cluster.run_at(&["cluster", "status", "--json", "--data"]).json();
    let is_it = |process: &&Value| process["role"] == "peer" && process["number"] == number;
    all.iter().find(is_it).unwrap()["name"].as_str().unwrap().to_owned()
}

#[test]
fn an_evolution_goes_on_when_its_peer_server_and_a_brick_are_killed() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "2"]);
    store_old_people(&cluster);
    assert_eq!(old_people(&cluster), PEOPLE);
    let job = begin(&cluster, &["evolve", "Person", "--rate", "300/s"]);
    let view = show_until(&cluster, &job, |view| count(view, "done") > 100);
    assert_eq!((&view["kind"], &view["total"], &view["rate"]), (&json!("evolve"), &json!(PEOPLE), &json!(300)));
    let worker = view["parts"][0]["worker"].as_str().unwrap().to_owned();
    let killed = process_of(&cluster, &worker);
    cluster.kill(&killed);
    let done = count(&show(&cluster, &job), "done");
    assert!(done < PEOPLE, "the rate leaves time for this test");
    let is_taken = |view: &Value| view["parts"][0]["worker"].as_str().is_some_and(|other| other != worker);
    show_until(&cluster, &job, |view| is_taken(view) && count(view, "done") > done);
    cluster.kill("brick-1");
    cluster.restart("brick-1");
    cluster.restart(&killed);
    let watched = cluster.run(&["job", "watch", &job, "--json"]);
    watched.ok();
    let view = &watched.json()[0];
    assert_eq!((&view["state"], count(view, "done"), count(view, "objects")), (&json!("done"), PEOPLE, PEOPLE));
    assert!(count(view, "changed") <= PEOPLE, "{view}");
    assert_eq!(old_people(&cluster), 0);
    let rome = cluster.run(&["query", "Person", "select count(*) as many where city == 'Rome'", "--json"]);
    assert_eq!(rome.json(), [json!({ "many": PEOPLE })]);
    // A second one finds nothing to do, and waits for its end.
    let again = cluster.run(&["evolve", "--json"]).json();
    assert_eq!((&again[0]["objects"], &again[0]["rewritten"]), (&json!(PEOPLE), &json!(0)));
}

#[test]
fn an_evolution_leaves_an_object_that_would_become_too_large_and_says_so() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1"]);
    cluster.run(&["class", "define", "Note", "--field", "text:string"]).ok();
    // An object has at most 4 MiB.
    let notes =
        ["short".to_owned(), "x".repeat((4 << 20) - 100)].map(|text| json!({ "text": text }).to_string() + "\n");
    let mut put = mortar(&["object", "put", "--class", "Note", "-"]);
    run_with_input(put.env("MORTAR_URL", cluster.url()), notes.concat().into_bytes()).ok();
    cluster.run(&["class", "evolve", "Note", "--add", &format!("more:string={}", "y".repeat(200))]).ok();
    let job = begin(&cluster, &["evolve", "Note"]);
    let view = show_until(&cluster, &job, |view| view["state"] == "done" || view["state"] == "failed");
    assert_eq!((&view["state"], count(&view, "changed"), count(&view, "found")), (&json!("done"), 1, 1), "{view}");
    assert!(view["findings"][0].as_str().unwrap().contains("is left as it is"), "{view}");
}

#[test]
fn a_paused_evolution_holds_still_and_a_cancelled_one_keeps_what_is_done() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1", "--memory"]);
    store_old_people(&cluster);
    let job = begin(&cluster, &["evolve", "--rate", "200/s"]);
    show_until(&cluster, &job, |view| count(view, "changed") > 0);
    assert_eq!(cluster.run(&["job", "pause", &job, "--json"]).json()[0]["state"], "paused");
    // Its worker has released it and recorded all.
    let paused = show_until(&cluster, &job, |view| view["parts"][0].get("worker").is_none());
    let old = old_people(&cluster);
    assert_eq!(count(&paused, "changed") + old, PEOPLE, "{paused}");
    thread::sleep(Duration::from_millis(500));
    assert_eq!((old_people(&cluster), count(&show(&cluster, &job), "changed")), (old, PEOPLE - old));
    cluster.run(&["job", "resume", &job]).ok();
    show_until(&cluster, &job, |view| count(view, "changed") > PEOPLE - old);
    assert_eq!(cluster.run(&["job", "cancel", &job, "--json"]).json()[0]["state"], "cancelled");
    let watched = cluster.run(&["job", "watch", &job, "--json"]);
    assert_eq!((watched.code, &watched.errors()[0]["error"]["kind"]), (1, &json!("job_cancelled")));
    // The rest is done by another one.
    let rest = cluster.run(&["evolve", "Person", "--json"]);
    rest.ok();
    assert_eq!(rest.json()[0]["objects"], PEOPLE);
    assert!(rest.json()[0]["rewritten"].as_u64().unwrap() < old);
    assert_eq!(old_people(&cluster), 0);
    // Both are listed.
    let listed = cluster.run(&["job", "ls", "--json"]).json();
    assert_eq!(
        listed.iter().map(|view| view["state"].clone()).collect::<Vec<_>>(),
        [json!("cancelled"), json!("done")]
    );
}

#[test]
fn interrupting_the_command_leaves_the_job_running() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1", "--memory"]);
    store_old_people(&cluster);
    let errors = cluster.data().join("errors");
    let mut command = mortar(&["evolve", "--rate", "100/s"]);
    command.env("MORTAR_URL", cluster.url()).stderr(fs::File::create(&errors).unwrap());
    let mut child = spawn(command).unwrap();
    show_until(&cluster, "1", |view| count(view, "done") > 0);
    send(&child, Signal::INT);
    assert_eq!(wait(&mut child, TEST_TIMEOUT).unwrap().code(), Some(130));
    let said = fs::read_to_string(&errors).unwrap();
    assert!(said.contains("job 1 goes on") && said.contains("mortar job cancel 1"), "{said}");
    let before = count(&show(&cluster, "1"), "done");
    show_until(&cluster, "1", |view| count(view, "done") > before && view["state"] == "running");
    cluster.run(&["job", "set", "1", "--rate", "none"]).ok();
    cluster.run(&["job", "watch", "1"]).ok();
    assert_eq!(old_people(&cluster), 0);
}

#[test]
fn wrong_requests_about_jobs_are_refused() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1", "--memory"]);
    store_old_people(&cluster);
    assert_eq!(cluster.run(&["job", "show", "7"]).code, 3);
    assert_eq!(cluster.run(&["evolve", "Nobody"]).code, 3);
    assert_eq!(cluster.run(&["scrub", "--brick", "9"]).code, 3);
    assert_eq!(cluster.run(&["job", "set", "1", "--rate", "fast"]).code, 2);
    let wrong_unit = cluster.run(&["evolve", "--rate", "5MiB/s"]);
    assert!(wrong_unit.code == 2 && wrong_unit.stderr.contains("objects a second"), "{}", wrong_unit.stderr);
    assert_eq!(cluster.run(&["evolve"]).code, 0);
    for change in [&["job", "pause", "1"][..], &["job", "cancel", "1"], &["job", "set", "1", "--rate", "5/s"]] {
        let refused = cluster.run(change);
        assert!(refused.code == 4 && refused.stderr.contains("job 1 is done"), "{}", refused.stderr);
    }
    // The last part of a class's name is enough.
    cluster.run(&["class", "define", "io.mortar.Note", "--field", "text:string"]).ok();
    let evolved = cluster.run(&["evolve", "Note", "--json"]);
    evolved.ok();
    assert_eq!(evolved.json()[0]["class"], "io.mortar.Note");
}

#[test]
fn an_index_is_built_at_its_rate_and_goes_on_when_a_brick_is_killed() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    store_old_people(&cluster);
    // Bricks that stand still begin with the index and with the rate of its job at once.
    let bricks = ["brick-1", "brick-2"];
    bricks.iter().for_each(|brick| cluster.signal(brick, Signal::STOP));
    let job = begin(&cluster, &["index", "create", "by_age", "--class", "Person", "--field", "age"]);
    cluster.run(&["job", "set", &job, "--rate", "150/s"]).ok();
    bricks.iter().for_each(|brick| cluster.signal(brick, Signal::CONT));
    let all_nodes = |view: &Value| view["parts"].as_array().is_some_and(|parts| parts.len() >= 2);
    let view = show_until(&cluster, &job, |view| all_nodes(view) && count(view, "done") > 0);
    assert_eq!((&view["kind"], &view["unit"], &view["state"]), (&json!("index"), &json!("pages"), &json!("running")));
    cluster.run(&["job", "pause", &job]).ok();
    // The portion that was begun ends.
    thread::sleep(Duration::from_millis(300));
    let paused = show_until(&cluster, &job, all_nodes);
    thread::sleep(Duration::from_millis(500));
    assert_eq!(count(&show_until(&cluster, &job, all_nodes), "done"), count(&paused, "done"));
    cluster.run(&["job", "resume", &job]).ok();
    cluster.kill("brick-1");
    cluster.restart("brick-1");
    cluster.run(&["job", "set", &job, "--rate", "none"]).ok();
    cluster.run(&["job", "watch", &job]).ok();
    let listed = cluster.run(&["index", "list", "--json"]).json();
    assert_eq!(listed[0]["state"], "ready", "{listed:?}");
    let found = cluster.run(&["query", "Person", "age >= 700 && age < 900", "--explain"]);
    assert!(found.ok().contains("by_age"), "{}", found.text());
    let counted = cluster.run(&["query", "Person", "select count(*) as many where age >= 700 && age < 900", "--json"]);
    assert_eq!(counted.json(), [json!({"many": 200})]);
    // One that is cancelled is removed.
    bricks[1..].iter().for_each(|brick| cluster.signal(brick, Signal::STOP));
    let job = begin(&cluster, &["index", "create", "by_name", "--class", "Person", "--field", "name"]);
    cluster.run(&["job", "cancel", &job]).ok();
    bricks[1..].iter().for_each(|brick| cluster.signal(brick, Signal::CONT));
    assert_eq!(cluster.run(&["index", "list", "--json"]).json().len(), 1);
}

/// Stores blobs of a megabyte.
fn store_blobs(cluster: &Cluster, number: usize) {
    let directory = cluster.data().join("blobs");
    fs::create_dir(&directory).unwrap();
    for at in 0..number {
        let bytes: Vec<u8> = (0..1 << 20).map(|byte: usize| (byte.wrapping_mul(31 + at) >> 3) as u8).collect();
        fs::write(directory.join(at.to_string()), bytes).unwrap();
    }
    cluster.run(&["import", directory.to_str().unwrap(), "--prefix", "/blobs"]).ok();
}

#[test]
fn a_scrub_reads_all_bricks_and_goes_on_when_one_is_killed() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    store_blobs(&cluster, 24);
    let whole = cluster.run(&["scrub", "--json"]);
    whole.ok();
    let objects = whole.json()[0]["objects"].as_u64().unwrap();
    assert!(objects >= 24 && whole.json()[0]["damaged"] == json!([]), "{}", whole.text());
    let job = begin(&cluster, &["scrub", "--rate", "2MiB/s"]);
    let refused = cluster.run(&["scrub"]);
    assert!(refused.code == 4 && refused.stderr.contains(&format!("job {job}")), "{}", refused.stderr);
    show_until(&cluster, &job, |view| {
        view["parts"].as_array().is_some_and(|parts| parts.len() == 2) && count(view, "done") > 0
    });
    cluster.kill("brick-1");
    let waiting = show_until(&cluster, &job, |view| view["problems"].is_array());
    assert!(waiting["problems"][0].as_str().unwrap().contains("is not alive"), "{waiting}");
    cluster.restart("brick-1");
    // A paused scrub reads nothing.
    cluster.run(&["job", "pause", &job]).ok();
    let is_released = |view: &Value| view["parts"].as_array().unwrap().iter().all(|part| part.get("worker").is_none());
    let paused = show_until(&cluster, &job, is_released);
    assert_eq!(paused["state"], "paused");
    cluster.run(&["job", "set", &job, "--rate", "none"]).ok();
    cluster.run(&["job", "resume", &job]).ok();
    let watched = cluster.run(&["job", "watch", &job, "--json"]);
    watched.ok();
    let view = &watched.json()[0];
    assert_eq!((count(view, "objects"), count(view, "found")), (objects, 0), "{view}");
    assert!(view["parts"].as_array().unwrap().iter().all(|part| part["ended"] == true), "{view}");
}

#[test]
fn commands_that_begin_a_job_wait_for_a_missing_brick_no_longer_than_their_timeout() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    cluster.run(&["class", "define", "Person", "--field", "name:string"]).ok();
    cluster.kill("brick-2");
    let commands = [("1", &["scrub"][..]), ("2", &["space", "clone", "main", "copy"]), ("3", &["evolve"])];
    for (job, command) in commands {
        let begun = Instant::now();
        let given_up = cluster.run(&[&["--timeout", "2"], command].concat());
        let (code, stderr) = (given_up.code, &given_up.stderr);
        assert!(code == 5 && stderr.contains("brick 2"), "{command:?}: {code} {stderr}");
        assert!(stderr.contains(&format!("mortar job watch {job}")), "{stderr}");
        assert!(begun.elapsed() < TEST_TIMEOUT);
        // The job stays, and goes on.
        assert_eq!(show(&cluster, job)["state"], "running");
    }
    cluster.restart("brick-2");
    for job in ["1", "2", "3"] {
        cluster.run(&["job", "watch", job]).ok();
    }
}

#[test]
fn the_findings_of_a_scrub_stay_listed() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1"]);
    store_blobs(&cluster, 2);
    let blob = fs::read_dir(cluster.data().join("brick-1/blobs")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let scrubbed = cluster.run(&["scrub", "--json"]);
    assert_eq!(scrubbed.code, 6, "{}", scrubbed.text());
    let job = scrubbed.json()[0]["job"].as_u64().unwrap().to_string();
    let view = show(&cluster, &job);
    assert_eq!((&view["state"], count(&view, "found")), (&json!("done"), 1), "{view}");
    assert!(view["findings"][0].as_str().unwrap().contains("/blobs/"), "{view}");
}
