//! Users, TLS and its reload, with real processes and the command line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use mortar_tests::cluster::Cluster;
use mortar_tests::{CommandOutput, TEST_TIMEOUT, json_lines, mortar, run, send, spawn, wait};
use rustix::process::Signal;

/// A process of a cluster with TLS.
struct Node {
    child: Child,
    address: String,
}

impl Node {
    fn start(dir: &Path, name: &str, args: &[&str]) -> Self {
        let (output, log) =
            (dir.join(format!("{name}.output")), File::create(dir.join(format!("{name}.log"))).unwrap());
        let mut command = mortar(&["node", "--json", "--listen", "tls:127.0.0.1:0"]);
        for flag in ["cert", "key", "ca", "client-ca"] {
            let file = match flag {
                "cert" => "node.pem",
                "key" => "node.key",
                _ => "ca.pem",
            };
            command.arg(format!("--tls-{flag}")).arg(dir.join("tls").join(file));
        }
        command.args(args).stdout(File::create(&output).unwrap()).stderr(log);
        let child = spawn(command).unwrap();
        let mut node = Self { child, address: String::new() };
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let line = fs::read_to_string(&output).unwrap();
            if line.ends_with('\n') {
                let ready = json_lines(&line).pop().unwrap();
                node.address = ready["addresses"][0].as_str().unwrap().trim_start_matches("tls:").to_owned();
                return node;
            }
            let ended = node.child.try_wait().unwrap();
            let log = || fs::read_to_string(dir.join(format!("{name}.log"))).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < until, "{name} is not ready:\n{}", log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        send(&self.child, Signal::TERM);
        let _ = wait(&mut self.child, TEST_TIMEOUT);
    }
}

/// One process of each role, in the order in which they have to end.
struct World {
    peer: Node,
    _brick: Node,
    meta: Node,
    dir: tempfile::TempDir,
}

fn tls_files(dir: &Path, name: &str) -> PathBuf {
    let files = dir.join(name);
    run(mortar(&["cert", files.to_str().unwrap(), "--for-user", "backup"]).stdin(Stdio::null())).ok();
    files
}

impl World {
    fn start() -> Self {
        let dir = tempfile::Builder::new().prefix("mortar-").tempdir().unwrap();
        tls_files(dir.path(), "tls");
        let data = dir.path().join("meta");
        let mut add = mortar(&["user", "add", "ann", "--data", data.to_str().unwrap()]);
        let added = run(add.env("MORTAR_NEW_PASSWORD", "correct horse"));
        added.ok();
        assert!(added.stderr.contains("access control is on"), "{}", added.stderr);
        let meta = Node::start(dir.path(), "meta", &["--role", "meta", "--data", data.to_str().unwrap()]);
        let url = format!("mortars://{}", meta.address);
        let brick = Node::start(dir.path(), "brick", &["--role", "brick", "--memory", "--meta", &url]);
        let peer = Node::start(dir.path(), "peer", &["--role", "peer", "--meta", &url]);
        Self { peer, _brick: brick, meta, dir }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = mortar(args);
        command.env("MORTAR_CA", self.dir.path().join("tls/ca.pem")).env("MORTAR_PASSWORD", "correct horse");
        command
    }

    fn at_peer(&self, args: &[&str]) -> Command {
        let mut command = self.command(args);
        command.env("MORTAR_URL", format!("mortars://ann@{}/main", self.peer.address));
        command
    }

    fn make_space(&self) {
        let url = format!("mortars://ann@{}", self.meta.address);
        run(self.command(&["space", "create", "main"]).env("MORTAR_URL", url)).ok();
    }

    fn put_greeting(&self, command: &mut Command) -> CommandOutput {
        let greeting = self.dir.path().join("greeting");
        fs::write(&greeting, "hello").unwrap();
        run(command.args(["object", "put", "/greeting"]).arg(greeting))
    }
}

fn check_refused(run: &CommandOutput, code: i32, words: &str) {
    assert_eq!(run.code, code, "{}", run.stderr);
    assert!(run.stderr.contains(words), "{}", run.stderr);
    assert!(!run.stderr.contains("correct horse"), "{}", run.stderr);
}

#[test]
fn users_log_in_over_tls_and_have_the_granted_permissions() {
    let world = World::start();
    world.make_space();
    world.put_greeting(&mut world.at_peer(&[])).ok();
    let get = ["object", "get", "/greeting"];
    assert_eq!(run(&mut world.at_peer(&get)).ok(), "hello");
    check_refused(&run(world.at_peer(&get).env("MORTAR_PASSWORD", "wrong")), 9, "user or password is wrong");
    let file = world.dir.path().join("password");
    fs::write(&file, "correct horse\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let with_file = [&["--password-file", file.to_str().unwrap()], &get[..]].concat();
    assert_eq!(run(world.at_peer(&with_file).env("MORTAR_PASSWORD", "wrong")).ok(), "hello", "the file was named");
    check_refused(&run(world.at_peer(&get).env("MORTAR_USER", "nobody")), 9, "user or password is wrong");
    let plain = format!("mortar://{}/main", world.peer.address);
    check_refused(&run(world.at_peer(&get).env("MORTAR_URL", plain)), 1, "mortars://");
    // With a certificate, in a group that may read only.
    for args in [
        &["group", "add", "programs"][..],
        &["user", "add", "backup", "--no-password", "--group", "programs"],
        &["space", "grant", "main", "read", "--to-group", "programs"],
    ] {
        run(&mut world.at_peer(args)).ok();
    }
    let backup = |args: &[&str]| {
        let (url, tls) = (format!("mortars://{}/main", world.peer.address), world.dir.path().join("tls"));
        let mut command = world.command(args);
        command.env_remove("MORTAR_PASSWORD").env("MORTAR_URL", url);
        command.env("MORTAR_CERT", tls.join("backup.pem")).env("MORTAR_KEY", tls.join("backup.key"));
        command
    };
    assert_eq!(run(&mut backup(&get)).ok(), "hello");
    check_refused(&world.put_greeting(&mut backup(&[])), 9, "no permission to write");
    check_refused(&run(&mut backup(&["user", "list"])), 9, "administrator");
    run(&mut world.at_peer(&["user", "disable", "backup"])).ok();
    check_refused(&run(&mut backup(&get)), 9, "no user of this cluster that may log in");
    check_refused(&run(&mut world.at_peer(&["user", "remove", "ann"])), 2, "last administrator");
    // A user may change its own password.
    run(world.at_peer(&["user", "passwd"]).env("MORTAR_NEW_PASSWORD", "battery staple")).ok();
    check_refused(&run(&mut world.at_peer(&get)), 9, "user or password is wrong");
    assert_eq!(run(world.at_peer(&get).env("MORTAR_PASSWORD", "battery staple")).ok(), "hello");
}

#[test]
fn a_certificate_that_is_kept_is_named_if_another_one_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let files = tls_files(dir.path(), "tls");
    let cert = |args: &[&str]| run(mortar(&["cert"]).arg(&files).args(args));
    cert(&[]).ok();
    let remedy = "node.pem exists and was kept: remove node.pem and node.key to make one for db9";
    check_refused(&cert(&["--host", "db9"]), 4, remedy);
    let again = cert(&["--for-user", "backup"]);
    again.ok();
    assert!(again.stderr.contains("backup.pem exists and was kept"), "{}", again.stderr);
}

#[test]
fn certificates_are_replaced_while_processes_serve() {
    let world = World::start();
    world.make_space();
    let list = ["user", "list"];
    run(&mut world.at_peer(&list)).ok();
    let (old, new) = (world.dir.path().join("tls"), tls_files(world.dir.path(), "new"));
    let believes_new = |world: &World| run(world.at_peer(&list).env("MORTAR_CA", world.dir.path().join("new/ca.pem")));
    check_refused(&believes_new(&world), 9, "not trusted");
    for file in ["node.pem", "node.key"] {
        fs::copy(new.join(file), old.join(file)).unwrap();
    }
    send(&world.peer.child, Signal::HUP);
    believes_new(&world).ok();
    // An invalid file changes nothing.
    fs::write(old.join("node.pem"), "no certificate").unwrap();
    send(&world.peer.child, Signal::HUP);
    believes_new(&world).ok();
}

#[test]
fn follower_of_events_learns_that_access_control_was_turned_on() {
    let cluster = Cluster::start(&["--bricks", "1", "--memory"]);
    let (output, errors) = (cluster.data().join("events"), cluster.data().join("errors"));
    let mut events = mortar(&["events", "--json"]);
    events
        .env("MORTAR_URL", cluster.url())
        .stdout(File::create(&output).unwrap())
        .stderr(File::create(&errors).unwrap());
    let mut events = spawn(events).unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    while !fs::read_to_string(&output).unwrap().contains("connected") {
        assert!(Instant::now() < until, "the command does not connect");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut add = mortar(&["user", "add", "ann"]);
    run(add.env("MORTAR_URL", cluster.url()).env("MORTAR_NEW_PASSWORD", "correct horse")).ok();
    let Some(ended) = wait(&mut events, TEST_TIMEOUT) else {
        events.kill().unwrap();
        panic!("the command continues: {}", fs::read_to_string(&output).unwrap());
    };
    assert_eq!(ended.code(), Some(9));
    let last = json_lines(&fs::read_to_string(&output).unwrap()).pop().unwrap();
    assert!(last["event"] == "refused" && last["why"].as_str().unwrap().contains("give the user as USER@"), "{last}");
    let error = json_lines(&fs::read_to_string(&errors).unwrap()).pop().unwrap();
    assert_eq!((&error["error"]["kind"], &error["error"]["exit_code"]), (&"denied".into(), &9.into()), "{error}");
}

#[test]
fn processes_of_a_cluster_on_one_machine_continue_when_access_control_is_turned_on() {
    let mut cluster = Cluster::start(&["--bricks", "1"]);
    let at = |cluster: &Cluster, args: &[&str]| {
        let mut command = mortar(args);
        command.env("MORTAR_URL", cluster.url());
        command
    };
    run(&mut at(&cluster, &["user", "list"])).ok();
    check_refused(&run(&mut at(&cluster, &["user", "add", "ann", "--no-password"])), 2, "give it a password");
    assert_eq!(run(&mut at(&cluster, &["user", "list"])).ok(), "", "access control is off");
    run(at(&cluster, &["user", "add", "ann"]).env("MORTAR_NEW_PASSWORD", "correct horse")).ok();
    check_refused(&run(&mut at(&cluster, &["user", "list"])), 9, "give the user as USER@");
    let as_ann = |cluster: &Cluster, args: &[&str]| {
        let mut command = at(cluster, args);
        command.env("MORTAR_USER", "ann").env("MORTAR_PASSWORD", "correct horse");
        run(&mut command)
    };
    as_ann(&cluster, &["user", "list"]).ok();
    check_refused(&as_ann(&cluster, &["user", "passwd", "--no-password"]), 2, "last administrator with a password");
    // A user that may only read cannot transfer, and learns why.
    let exercise = ["exercise", "--seconds", "1", "--accounts", "2"];
    as_ann(&cluster, &exercise).ok();
    let mut add = at(&cluster, &["user", "add", "bob"]);
    run(add
        .env("MORTAR_USER", "ann")
        .env("MORTAR_PASSWORD", "correct horse")
        .env("MORTAR_NEW_PASSWORD", "bob's words"))
    .ok();
    as_ann(&cluster, &["space", "grant", "main", "read", "--to-user", "bob"]).ok();
    let mut as_bob = at(&cluster, &exercise);
    as_bob.env("MORTAR_USER", "bob").env("MORTAR_PASSWORD", "bob's words");
    check_refused(&run(&mut as_bob), 9, "no permission to write");
    // The tools and processes of the cluster authenticate by its secret, also after a restart.
    let status = ["cluster", "status", "--data"];
    run(mortar(&status).arg(cluster.data())).ok();
    run(mortar(&["cluster", "down", "--data"]).arg(cluster.data())).ok();
    cluster.up(&[]);
    as_ann(&cluster, &["user", "list"]).ok();
    check_refused(&run(&mut at(&cluster, &["user", "list"])), 9, "give the user as USER@");
}
