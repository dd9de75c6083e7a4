//! Groups of clients with redirectors: real processes.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, ConnectOptions, IsolationLevel, Transaction};
use model::{Object, Oid};
use mortar_tests::{CommandOutput, Server, TEST_TIMEOUT, json_lines, mortar, run, run_with_input, send, spawn};
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A redirector of the group `shed` below a server. Dropping it kills the process.
struct Redirector {
    child: Child,
    address: String,
}

impl Redirector {
    fn start(server: &Server, name: &str) -> Self {
        let output: PathBuf = server.dir().join(format!("{name}.output"));
        let log = File::create(server.dir().join(format!("{name}.log"))).unwrap();
        let mut command =
            mortar(&["node", "--json", "--role", "redirector", "--group", "shed", "--listen", "127.0.0.1:0"]);
        command.args(["--upstream", &server.url()]);
        command.stdout(File::create(&output).unwrap()).stderr(log);
        let child = spawn(command).unwrap();
        let until = Instant::now() + TEST_TIMEOUT;
        let line = loop {
            match fs::read_to_string(&output) {
                Ok(line) if line.ends_with('\n') => break line,
                _ => assert!(Instant::now() < until, "the redirector is not ready"),
            }
            thread::sleep(POLL_INTERVAL);
        };
        let ready = json_lines(&line).pop().unwrap();
        assert_eq!(ready["role"], "redirector");
        Self { child, address: ready["addresses"][0].as_str().unwrap().to_owned() }
    }
}

impl Drop for Redirector {
    fn drop(&mut self) {
        send(&self.child, Signal::CONT);
        // One that has ended cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command as a client of the group.
fn in_group(server: &Server, args: &[&str], input: &str) -> CommandOutput {
    let url = format!("{}?group=shed", server.url());
    run_with_input(mortar(&["--server", &url]).args(args), input.as_bytes().to_vec())
}

/// The redirectors that are registered.
fn redirectors(server: &Server) -> Vec<Value> {
    let shown = run(mortar(&["--server", &server.url(), "--json", "redirector"]).arg("shed"));
    shown.json()[0]["redirectors"].as_array().unwrap().clone()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + TEST_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not in time");
        thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn commands_of_a_group_go_through_its_redirector_and_direct_without_one() {
    let server = Server::start(&[]);
    // No redirector is registered yet.
    in_group(&server, &["put", "-", "/a"], "first").ok();
    let redirector = Redirector::start(&server, "one");
    wait_until("it is registered", || redirectors(&server).len() == 1);
    assert_eq!(redirectors(&server)[0]["addresses"][0], redirector.address.as_str());
    assert_eq!(in_group(&server, &["get", "/a"], "").ok(), "first");
    in_group(&server, &["put", "-", "/a"], "second").ok();
    assert_eq!(server.run(&["get", "/a"]).ok(), "second");
    wait_until("it has counted what its members fetched", || redirectors(&server)[0]["fetches"].as_u64().unwrap() > 0);
    let own = format!("mortar://{}/main", redirector.address);
    let status = run(&mut mortar(&["--server", &own, "--json", "status"]));
    assert_eq!(status.json()[0]["role"], "redirector");
    let text = run(&mut mortar(&["--server", &server.url(), "redirector"]));
    assert!(text.ok().contains("shed at") && text.ok().contains("over the link"), "{}", text.text());
    drop(redirector);
    wait_until("it is not registered any more", || redirectors(&server).is_empty());
    assert_eq!(in_group(&server, &["get", "/a"], "").ok(), "second");
}

#[test]
fn settings_of_other_roles_are_refused() {
    for (args, why) in [
        (&["--role", "redirector"][..], "needs the server above it"),
        (&["--role", "redirector", "--upstream", "mortar://a", "--meta", "mortar://b"], "meta is no setting"),
        (&["--role", "redirector", "--upstream", "mortar://a", "--data", "x"], "data is no setting"),
        (&["--role", "redirector", "--upstream", "mortar://a", "--advertise", "a:1"], "advertise is no setting"),
        (&["--role", "peer", "--upstream", "mortar://a"], "upstream is no setting"),
        (&["--role", "peer", "--group", "shed"], "group is no setting"),
    ] {
        let refused = run(mortar(&["node"]).args(args));
        assert_eq!(refused.code, 2, "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(why), "{args:?}: {}", refused.stderr);
    }
    let printed = run(mortar(&["node", "--print-config", "--role", "redirector"]).args(["--upstream", "mortar://a:1"]));
    assert!(printed.ok().contains("upstream = [\"mortar://a:1\"]"), "{}", printed.text());
    let wrong = run(&mut mortar(&["--server", "mortar://127.0.0.1:1/main?groups=x", "get", "/a"]));
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("?group=NAME"), "{}", wrong.stderr);
}

// -------------------------------------------------------------------------------------------- failures

/// Clients of the group that increment a counter.
struct Members {
    runtime: Runtime,
    clients: Vec<Client>,
    counter: Oid,
}

impl Members {
    fn join(server: &Server, count: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let url = format!("{}?group=shed", server.url());
        let connect = || {
            let mut options = ConnectOptions::default();
            options.timeout = TEST_TIMEOUT;
            runtime.block_on(Client::connect_with(&url, options)).unwrap()
        };
        let clients: Vec<Client> = (0..count).map(|_| connect()).collect();
        let counter = runtime.block_on(async {
            let t = clients[0].begin(IsolationLevel::Optimistic);
            let oid = t.create_blob(vec![0; 8]).unwrap();
            assert!(matches!(t.commit().await.unwrap(), client::CommitOutcome::Committed(_)));
            t.real_oid(oid).unwrap()
        });
        Self { runtime, clients, counter }
    }

    /// Each member increments the counter this often.
    fn increment(&self, times: usize) {
        self.runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            for client in self.clients.iter() {
                let (client, counter) = (client.clone(), self.counter);
                running.spawn(async move {
                    for _ in 0..times {
                        client.transact(async |t: Transaction| increment(&t, counter).await).await.unwrap();
                    }
                });
            }
            running.join_all().await;
        });
    }

    fn value(&self) -> u64 {
        self.runtime.block_on(async {
            let read = async |t: Transaction| Ok(value_of(&t.get(self.counter).await?));
            self.clients[0].transact(read).await.unwrap()
        })
    }
}

fn value_of(object: &Option<Object>) -> u64 {
    u64::from_le_bytes(object.as_ref().unwrap().data[..8].try_into().unwrap())
}

async fn increment(t: &Transaction, counter: Oid) -> client::Result<()> {
    let value = value_of(&t.get(counter).await?) + 1;
    t.put(counter, Object::blob(value.to_le_bytes().to_vec().into())).await
}

#[test]
fn members_go_on_when_their_redirector_is_killed_or_stopped() {
    let server = Server::start(&[]);
    let mut redirectors_of_shed: Vec<Redirector> =
        ["one", "two"].iter().map(|name| Redirector::start(&server, name)).collect();
    redirectors_of_shed.sort_by(|one, two| one.address.cmp(&two.address));
    wait_until("both are registered", || redirectors(&server).len() == 2);
    let members = Members::join(&server, 4);
    members.increment(10);
    assert_eq!(members.value(), 40);
    // The first one is stopped: its connections do not end.
    send(&redirectors_of_shed[0].child, Signal::STOP);
    members.increment(10);
    assert_eq!(members.value(), 80);
    // The second one is killed, and the first one works again.
    drop(redirectors_of_shed.pop());
    send(&redirectors_of_shed[0].child, Signal::CONT);
    members.increment(10);
    assert_eq!(members.value(), 120);
    drop(redirectors_of_shed);
    members.increment(10);
    assert_eq!(members.value(), 160);
}

#[test]
fn members_go_on_beside_one_that_is_stopped() {
    let server = Server::start(&[]);
    let _redirector = Redirector::start(&server, "one");
    wait_until("it is registered", || redirectors(&server).len() == 1);
    let members = Members::join(&server, 3);
    // A program that commits, and then stands still.
    let mut program = mortar(&["--server", &format!("{}?group=shed", server.url()), "exercise", "--seconds", "60"]);
    program.stdout(File::create(server.dir().join("exercise")).unwrap());
    let program = KillOnDrop(spawn(program).unwrap());
    wait_until("it is a member", || redirectors(&server)[0]["members"].as_u64().unwrap() > 3);
    wait_until("it commits", || redirectors(&server)[0]["updates"].as_u64().unwrap() > 0);
    send(&program.0, Signal::STOP);
    members.increment(20);
    assert_eq!(members.value(), 60);
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
