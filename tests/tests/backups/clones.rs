//! Clones of spaces, made while clients work: each is one consistent moment (K1), and a space of its own.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::cluster::Cluster;
use mortar_tests::{CommandOutput, Server, TEST_TIMEOUT, mortar, run, run_with_input, send};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{ACCOUNTS, BALANCE, Bank, back_up_under_load};

/// The address of a space of a cluster.
fn space_url(url: &str, space: &str) -> String {
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/{space}")
}

fn run_in(url: &str, args: &[&str]) -> CommandOutput {
    run(mortar(args).env("MORTAR_URL", url))
}

fn put_text(url: &str, name: &str, text: &str) -> CommandOutput {
    run_with_input(mortar(&["put", "-", name]).env("MORTAR_URL", url), text.into())
}

/// A space that has something of everything.
fn fill(url: &str, dir: &Path) {
    let run = |args: &[&str]| drop(run_in(url, args).ok().to_owned());
    fs::write(dir.join("large"), vec![7; 3 << 20]).unwrap();
    run(&["put", dir.join("large").to_str().unwrap(), "/files/large", "--attr", "colour=red"]);
    run(&[
        "class",
        "define",
        "Person",
        "--field",
        "name:string",
        "--field",
        "age:int64",
        "--field",
        "boss:ref<Person>?",
    ]);
    run(&["index", "create", "by_name", "--class", "Person", "--field", "name", "--unique"]);
    run(&["index", "create", "by_age", "--class", "Person", "--field", "age"]);
    run(&["object", "put", "/people/ann", "--class", "Person", r#"{"name": "Ann", "age": 50}"#]);
    for number in [60, 120, 180, 240] {
        let record = json!({"name": format!("p{number}"), "age": number, "boss": "/people/ann"}).to_string();
        run(&["object", "put", "--class", "Person", &record]);
    }
    run(&["collection", "create", "/staff"]);
    run(&["collection", "add", "/staff", "/people/ann"]);
}

/// Checks what [`fill`] has made.
fn check_filled(url: &str) {
    assert_eq!(run_in(url, &["get", "/files/large"]).stdout, vec![7; 3 << 20]);
    assert!(run_in(url, &["attr", "ls", "/files/large"]).text().contains("colour"));
    // Through an index, and through a reference, which leads to the object of this space.
    let found = |query: &str| run_in(url, &["query", "Person", query, "--json"]).json();
    assert_eq!(found("age >= 60 && boss.name == \"Ann\"").len(), 4);
    assert_eq!(found("name == \"Ann\"").len(), 1);
    let explained = run_in(url, &["query", "Person", "age == 120", "--explain"]);
    assert!(explained.ok().contains("index"), "{}", explained.text());
    let ann = run_in(url, &["stat", "/people/ann", "--json"]).json()[0]["oid"].clone();
    let members = run_in(url, &["collection", "ls", "/staff", "--json"]).json();
    assert_eq!((members.len(), &members[0]["oid"]), (1, &ann));
    let bosses = run_in(url, &["query", "Person", "age == 60", "--json"]).json();
    assert_eq!(bosses[0]["fields"]["boss"], ann, "{}", bosses[0]);
}

/// Scrubs the whole cluster, with references: nothing is wrong.
fn check_scrubbed(url: &str) {
    let scrubbed = run_in(url, &["scrub", "--references", "--json"]);
    assert!(scrubbed.code == 0, "{} {}", scrubbed.text(), scrubbed.stderr);
}

fn space_line(url: &str, name: &str) -> Option<Value> {
    run_in(url, &["space", "ls", "--json"]).json().into_iter().find(|space| space["name"] == name)
}

#[test]
fn a_clone_is_one_moment_of_a_space_that_is_used_and_a_space_of_its_own() {
    let runtime = Runtime::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&["--bricks", "3", "--peers", "2"]);
    let url = cluster.url().to_owned();
    fill(&url, dir.path());
    let names = ["first", "second"].map(|name| dir.path().join(name));
    let taken = back_up_under_load(&runtime, &url, &names, |clone| {
        let name = clone.file_name().unwrap().to_str().unwrap();
        let made = run_in(&url, &["space", "clone", "main", name, "--json"]);
        made.ok();
        assert_eq!(
            (&made.json()[0]["read_only"], &made.json()[0]["clone_of"]["space"]),
            (&json!(true), &json!("main"))
        );
    });
    for taken in &taken {
        let clone = space_url(&url, taken.archive.file_name().unwrap().to_str().unwrap());
        let (sum, counters) = runtime.block_on(async { Bank::open(&clone).await.read().await });
        assert_eq!(sum, BALANCE * ACCOUNTS as i64, "a transfer is in the clone by half");
        for (worker, [one, other]) in counters.into_iter().enumerate() {
            let (least, most, at) = (taken.least[worker], taken.most[worker], u64::try_from(one).unwrap());
            assert!(one == other && (least..=most).contains(&at), "worker {worker} is at {one} and {other}");
        }
        check_filled(&clone);
    }
    check_scrubbed(&url);
    // It changes with nothing, and nothing changes it.
    let first = space_url(&url, "first");
    run_in(&url, &["rm", "/files/large"]).ok();
    check_filled(&first);
    for refused in [
        put_text(&first, "/new", "x"),
        run_in(&first, &["rm", "/files/large"]),
        run_in(&first, &["class", "define", "Other", "--field", "name:string"]),
        run_in(&first, &["object", "put", "--class", "Person", r#"{"name": "Bob", "age": 1}"#]),
    ] {
        assert!(refused.code != 0 && refused.stderr.contains("read-only"), "{} {}", refused.code, refused.stderr);
    }
    // Until it is told to accept changes. Unique values of the clone are its own.
    run_in(&url, &["space", "set", "first", "--read-only", "false"]).ok();
    put_text(&first, "/new", "x").ok();
    let again = run_in(&first, &["object", "put", "--class", "Person", r#"{"name": "Ann", "age": 1}"#]);
    assert!(again.code != 0 && again.stderr.contains("unique"), "{}", again.stderr);
    run_in(&first, &["object", "put", "--class", "Person", r#"{"name": "Bob", "age": 1}"#]).ok();
    run_in(&first, &["class", "define", "Other", "--field", "name:string"]).ok();
    assert_ne!(run_in(&url, &["get", "/new"]).code, 0);
    check_scrubbed(&url);
    // It goes with `space rm`, and the other stays over a restart of a brick.
    run_in(&url, &["space", "rm", "first", "--yes"]).ok();
    cluster.kill("brick-2");
    cluster.restart("brick-2");
    cluster.status_until(|all| all.iter().all(|one| one["state"] == "healthy"));
    check_filled(&space_url(&url, "second"));
    assert!(cluster.stop(Signal::TERM).success());
}

/// The job, once `is_fine` accepts it.
fn job_until(url: &str, job: &str, is_fine: impl Fn(&Value) -> bool) -> Value {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let shown = run_in(url, &["job", "show", job, "--json"]);
        if let Some(view) = shown.json().pop().filter(|view| shown.code == 0 && is_fine(view)) {
            return view;
        }
        assert!(Instant::now() < until, "{} {}", shown.text(), shown.stderr);
        thread::sleep(Duration::from_millis(20));
    }
}

fn store_numbers(url: &str, count: u64) {
    run_in(url, &["class", "define", "Number", "--field", "value:int64"]).ok();
    let records: String = (0..count).map(|value| json!({"value": value}).to_string() + "\n").collect();
    let mut put = mortar(&["object", "put", "--class", "Number", "-"]);
    run_with_input(put.env("MORTAR_URL", url), records.into_bytes()).ok();
}

fn count_numbers(url: &str) -> usize {
    run_in(url, &["query", "Number", "--json"]).json().len()
}

#[test]
fn a_clone_begins_again_when_a_brick_and_its_peer_server_are_killed() {
    let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "2"]);
    let url = cluster.url().to_owned();
    store_numbers(&url, 1_500);
    let begun = run_in(&url, &["space", "clone", "main", "copy", "--rate", "200/s", "--detach", "--json"]);
    let job = begun.json()[0]["job"].as_u64().unwrap().to_string();
    let second = run_in(&url, &["space", "clone", "main", "copy"]);
    assert_eq!(second.code, 4, "its name is taken: {}", second.stderr);
    let view = job_until(&url, &job, |view| view["done"].as_u64().unwrap() > 0);
    assert_eq!((&view["kind"], &view["subjects"], &view["space"]), (&json!("clone"), &json!(["copy"]), &json!("main")));
    cluster.kill("brick-1");
    cluster.restart("brick-1");
    job_until(&url, &job, |view| view["done"].as_u64().unwrap() > 0);
    cluster.kill("peer-1");
    cluster.restart("peer-1");
    run_in(&url, &["job", "set", &job, "--rate", "none"]).ok();
    let ended = job_until(&url, &job, |view| view["state"] != "running");
    assert_eq!(ended["state"], "done", "{ended}");
    assert_eq!(count_numbers(&space_url(&url, "copy")), 1_500);
    check_scrubbed(&url);
    assert!(cluster.stop(Signal::TERM).success());
}

#[test]
fn a_clone_that_is_cancelled_leaves_nothing_and_its_name_is_free() {
    let server = Server::start(&[]);
    let url = format!("{}/main", server.url().trim_end_matches("/main"));
    store_numbers(&url, 2_000);
    let begin = || {
        let begun = run_in(&url, &["space", "clone", "main", "copy", "--rate", "1/s", "--detach", "--json"]);
        begun.ok();
        begun.json()[0]["job"].as_u64().unwrap().to_string()
    };
    let job = begin();
    run_in(&url, &["job", "pause", &job]).ok();
    run_in(&url, &["job", "cancel", &job]).ok();
    assert!(space_line(&url, "copy").is_none());
    let job = begin();
    job_until(&url, &job, |view| view["done"].as_u64().unwrap() > 0);
    run_in(&url, &["job", "cancel", &job]).ok();
    let watched = run_in(&url, &["job", "watch", &job]);
    assert!(watched.code != 0 && watched.stderr.contains("cancelled"), "{}", watched.stderr);
    assert!(space_line(&url, "copy").is_none());
    check_scrubbed(&url);
    run_in(&url, &["space", "clone", "main", "copy"]).ok();
    assert_eq!(count_numbers(&space_url(&url, "copy")), 2_000);
    assert_eq!(space_line(&url, "copy").unwrap()["objects"], space_line(&url, "main").unwrap()["objects"]);
}

#[test]
fn a_clone_is_in_backups_and_files_of_one_moment_come_from_it() {
    let mut server = Server::start(&[]);
    let url = format!("{}/main", server.url().trim_end_matches("/main"));
    fill(&url, server.dir());
    run_in(&url, &["space", "clone", "main", "copy"]).ok();
    let archive = server.dir().join("archive");
    run_in(&url, &["backup", archive.to_str().unwrap()]).ok();
    server.stop();
    server.restart();
    let copy = space_url(&url, "copy");
    check_filled(&copy);
    let target = server.dir().join("files");
    let target = target.to_str().unwrap();
    run_in(&copy, &["export", target, "--prefix", "/files", "--verify"]).ok();
    assert_eq!(fs::read(Path::new(target).join("large")).unwrap().len(), 3 << 20);
    // The same in one step leaves no clone behind.
    run_in(&url, &["export", target, "--prefix", "/files", "--overwrite", "--moment"]).ok();
    run_in(&url, &["verify", target, "--prefix", "/files", "--moment"]).ok();
    run_in(&url, &["rm", "/files/large"]).ok();
    assert_eq!(run_in(&url, &["verify", target, "--prefix", "/files", "--moment"]).code, 4);
    let count_spaces = || run_in(&url, &["space", "ls", "--json"]).json().len();
    assert_eq!(count_spaces(), 2);
    // A wrong command line makes none.
    let count_jobs = || run_in(&url, &["job", "ls", "--json"]).json().len();
    let jobs = count_jobs();
    assert_eq!(run_in(&url, &["export", target, "--prefix", "/files", "--moment"]).code, 2, "it is not empty");
    assert_eq!(run_in(&url, &["verify", target, "--prefix", "/none", "--moment"]).code, 3);
    assert_eq!(count_jobs(), jobs);
    // One that is stopped leaves none behind, whatever it does at the time.
    for delay_ms in [30, 60, 120, 240] {
        let mut command = mortar(&["export", target, "--prefix", "/files", "--overwrite", "--moment"]);
        let mut export = command.env("MORTAR_URL", &url).stderr(Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_millis(delay_ms));
        send(&export, Signal::INT);
        export.wait().unwrap();
        let until = Instant::now() + TEST_TIMEOUT;
        while count_spaces() > 2 {
            assert!(Instant::now() < until, "the clone stays");
            thread::sleep(Duration::from_millis(50));
        }
    }
    let restored = super::restored_server(&archive);
    let url = format!("{}/copy", restored.url().trim_end_matches("/main"));
    check_filled(&url);
    assert!(put_text(&url, "/new", "x").stderr.contains("read-only"));
    // A space whose unique values refer to objects cannot be cloned, and the error says which index.
    let index = ["index", "create", "by_boss", "--class", "Person", "--field", "boss", "--field", "name", "--unique"];
    run_in(&restored.url(), &index).ok();
    let refused = run_in(&restored.url(), &["space", "clone", "main", "other"]);
    assert!(refused.code != 0 && refused.stderr.contains("by_boss"), "{}", refused.stderr);
}
