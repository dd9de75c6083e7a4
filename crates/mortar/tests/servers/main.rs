//! The command line against real servers: exit codes, JSON, and clusters on one machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod running_cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use running_cluster::{Running, RunningCluster, mortar, run};

fn names(objects: &[Value]) -> Vec<&str> {
    objects.iter().map(|object| object["name"].as_str().unwrap()).collect()
}

#[test]
fn damaged_file_hides_no_other_process() {
    let mut cluster = RunningCluster::start(&["--bricks", "2"]);
    cluster.edit("brick-2", |_| "listen = [".to_owned());
    let status = cluster.cluster("status", &["--json"]);
    assert_eq!(status.code, Some(1), "{}", status.stderr);
    let shown = status.objects();
    assert_eq!(names(&shown), ["meta", "brick-1", "peer-1", "brick-2"]);
    assert_eq!(shown[3]["state"], "unhealthy");
    assert!(shown[3]["number"].is_u64(), "{}", shown[3]);
    assert!(shown[3]["health_problem"].as_str().unwrap().contains("brick-2.toml"), "{}", shown[3]);
    let (down, up) = cluster.down();
    assert_eq!((down.code, up), (Some(0), Some(0)), "{}", down.stderr);
    assert_eq!(down.objects()[0]["ended"], 4);
}

#[test]
fn process_at_another_address_than_in_its_file_is_shown_once() {
    let cluster = RunningCluster::start(&["--bricks", "1"]);
    let addresses: BTreeMap<String, String> = cluster.addresses().into_iter().collect();
    let listens = &addresses["brick-1"];
    cluster.edit("brick-1", |text| text.replace(&format!("listen = [\"{listens}\"]"), "listen = [\"127.0.0.1:1\"]"));
    let shown = cluster.cluster("status", &["--json"]).objects();
    assert_eq!(names(&shown), ["meta", "brick-1", "peer-1"]);
    assert_eq!(shown[1]["address"], listens.as_str());
    assert!(shown[1]["health_problem"].as_str().unwrap().contains("127.0.0.1:1"), "{}", shown[1]);
}

#[test]
fn restarted_cluster_keeps_its_ports() {
    let mut cluster = RunningCluster::start(&["--bricks", "2", "--peers", "2"]);
    let first = cluster.addresses();
    assert!(first.iter().all(|(_, address)| !address.ends_with(":0")), "{first:?}");
    let quiet = cluster.cluster("status", &["--quiet"]);
    assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(0), ""));
    assert_eq!(cluster.down().1, Some(0));
    cluster.up(&[]);
    assert_eq!(cluster.addresses(), first);
}

#[test]
fn directory_with_other_files_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.txt"), "").unwrap();
    let data = directory.path().to_str().unwrap();
    for args in [
        &["cluster", "up", "--json", "--data", data][..],
        &["dev", "--json", "--listen", "127.0.0.1:0", "--http", "none", "--data", data],
    ] {
        let refused = run(&mut mortar(args));
        assert_eq!(refused.code, Some(4), "{args:?}: {}", refused.stderr);
        assert!(refused.error()["message"].as_str().unwrap().contains("thesis.txt"), "{}", refused.stderr);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "{args:?}");
    }
}

#[test]
fn dev_refuses_the_directory_of_cluster_up() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("meta.toml"), "").unwrap();
    fs::create_dir(directory.path().join("meta")).unwrap();
    let data = directory.path().to_str().unwrap();
    let args = ["dev", "--json", "--listen", "127.0.0.1:0", "--http", "none", "--data", data];
    let refused = run(&mut mortar(&args));
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert!(refused.error()["message"].as_str().unwrap().contains("mortar cluster up"), "{}", refused.stderr);
}

#[test]
fn dev_serves_a_directory_with_a_space_in_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("my data");
    let (socket, file) = (data.join("mortar.sock"), directory.path().join("a file"));
    fs::write(&file, "kept").unwrap();
    let [data, socket, file] = [&data, &socket, &file].map(|path| path.to_str().unwrap());
    let args = ["dev", "--json", "--listen", "127.0.0.1:0", "--http", "none", "--data", data, "--socket", socket];
    let _running = Running::start(&mut mortar(&args));
    let server = format!("mortar+unix://{socket}/main");
    let put = run(&mut mortar(&["put", "--server", &server, file, "/note"]));
    assert_eq!(put.code, Some(0), "{}", put.stderr);
    assert_eq!(run(&mut mortar(&["get", "--server", &server, "/note"])).stdout, "kept");
}

#[test]
fn a_directory_that_others_can_enter_is_opened_only_if_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let args = ["dev", "--json", "--listen", "127.0.0.1:0", "--http", "none", "--data", data.to_str().unwrap()];
    drop(Running::start(&mut mortar(&args)));
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = run(&mut mortar(&args));
    assert_eq!(refused.code, Some(9), "{}", refused.stderr);
    assert!(refused.error()["message"].as_str().unwrap().contains("chmod -R go-rwx"), "{}", refused.stderr);
    assert!(refused.error()["hint"].as_str().unwrap().contains("--allow-loose-permissions"), "{}", refused.stderr);
    drop(Running::start(mortar(&args).arg("--allow-loose-permissions")));
}

/// The fields that docs/operations.md lists for a command.
fn documented_fields(command: &str) -> BTreeSet<String> {
    let page = Path::new("../../docs/operations.md");
    let text = fs::read_to_string(page).unwrap();
    let section = text.split("| command | fields |").nth(1).unwrap().split("\n\n").next().unwrap();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<BTreeSet<_>>();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let row = rows.into_iter().find(|(commands, _)| quoted(commands).contains(command));
    quoted(row.unwrap_or_else(|| panic!("docs/operations.md has no fields for {command}")).1)
}

#[test]
fn json_has_the_documented_fields() {
    let cluster = RunningCluster::start(&["--bricks", "1"]);
    assert_eq!(cluster.run(&["class", "define", "Person", "--field", "name:string"]).code, Some(0));
    for (command, args) in [
        ("object put", &["object", "put", "/ann", "--class", "Person", "{\"name\": \"Ann\"}"][..]),
        ("object get", &["object", "get", "/ann"]),
        ("class list", &["class", "list"]),
        ("class show", &["class", "show", "Person"]),
        ("remap", &["remap"]),
        ("redirector", &["redirector"]),
        ("query", &["query", "Person"]),
        ("name ls", &["name", "ls"]),
        ("name resolve", &["name", "resolve", "/ann"]),
        ("space create", &["space", "create", "photos"]),
        ("space ls", &["space", "ls"]),
        ("space show", &["space", "show", "main"]),
        ("evolve", &["evolve"]),
        ("scrub", &["scrub"]),
        ("job", &["job", "ls"]),
        ("job", &["job", "show", "1"]),
        ("brick list", &["brick", "list"]),
        ("peer list", &["peer", "list"]),
        ("group list", &["group", "list"]),
        ("group add", &["group", "add", "staff"]),
        ("group remove", &["group", "remove", "staff"]),
        ("status", &["status"]),
        ("object rm", &["object", "rm", "/ann"]),
    ] {
        let printed = cluster.run(&[args, &["--json"]].concat());
        assert_eq!(printed.code, Some(0), "{args:?}: {}", printed.stderr);
        let documented = documented_fields(command);
        let objects = printed.objects();
        assert!(!objects.is_empty(), "{args:?}");
        for object in objects {
            let fields: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
            assert!(fields.is_subset(&documented), "{args:?} prints {fields:?}, documented are {documented:?}");
        }
    }
    let documented = documented_fields("cluster status");
    for object in cluster.cluster("status", &["--json"]).objects() {
        let fields: BTreeSet<String> = object.as_object().unwrap().keys().cloned().collect();
        assert!(fields.is_subset(&documented), "{fields:?}");
    }
}

#[test]
fn failures_have_the_documented_exit_codes() {
    let cluster = RunningCluster::start(&["--bricks", "1"]);
    assert_eq!(cluster.run(&["class", "define", "Person", "--field", "age:int64"]).code, Some(0));
    assert_eq!(cluster.run(&["object", "put", "/ann", "--class", "Person", "{\"age\": 1}"]).code, Some(0));
    for (args, code, kind) in [
        (&["object", "get", "/bob"][..], 3, "not_found"),
        (&["object", "put", "/ann", "--new", "--class", "Person", "{\"age\": 1}"], 4, "conflict"),
        (&["object", "put", "--class", "Person", "{\"age\": 1, \"age\": 2}"], 2, "usage"),
        (&["object", "put", "--class", "Person", "{\"size\": 1}"], 2, "usage"),
        (&["query", "Unknown"], 3, "not_found"),
        (&["query", "Person", "age <"], 2, "invalid"),
        (&["space", "create", "main"], 4, "exists"),
        (&["space", "show", "nowhere"], 3, "not_found"),
        (&["group", "remove", "administrators"], 2, "invalid"),
        (&["user", "disable", "unknown"], 3, "not_found"),
        (&["brick", "remove", "1"], 2, "invalid"),
        (&["ls", "/ann"], 2, "usage"),
        (&["ls", "/nowhere"], 3, "not_found"),
    ] {
        let failed = cluster.run(&[args, &["--json"]].concat());
        assert_eq!(failed.code, Some(code), "{args:?}: {}", failed.stderr);
        let error = failed.error();
        assert_eq!((&error["exit_code"], &error["kind"]), (&Value::from(code), &Value::from(kind)), "{args:?}");
    }
}

/// Waits until a peer server has committed this many transactions.
fn wait_committed(cluster: &RunningCluster, exercise: &mut Child, count: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let status = cluster.run(&["status", "--json"]).objects();
        if status[0]["metrics"]["transactions_committed_total"].as_u64().unwrap() >= count {
            return;
        }
        assert!(exercise.try_wait().unwrap().is_none(), "the exercise has ended");
        assert!(Instant::now() < until, "no transfers within a minute: {}", status[0]);
    }
}

#[test]
fn an_interrupted_exercise_leaves_no_locks() {
    let cluster = RunningCluster::start(&["--bricks", "1"]);
    let url = cluster.ready()["url"].as_str().unwrap();
    // With two accounts every transfer needs both of them.
    let args = ["exercise", "--json", "--accounts", "2", "--seconds", "600"];
    let mut exercise = mortar(&args).env("MORTAR_URL", url).stderr(Stdio::piped()).spawn().unwrap();
    wait_committed(&cluster, &mut exercise, 30);
    kill_process(Pid::from_child(&exercise), Signal::INT).unwrap();
    let ended = exercise.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("the coins were not counted"));
    let again = cluster.run(&["exercise", "--json", "--accounts", "2", "--seconds", "3"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let report = &again.objects()[0];
    assert!(report["transfers"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["coins"], 2_000);
}
