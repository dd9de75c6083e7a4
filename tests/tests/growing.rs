//! A cluster in one process grows: bricks in processes of their own join while it serves, and the first one is drained.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::following::FollowingBackup;
use mortar_tests::{Server, TEST_TIMEOUT, mortar, run, send, spawn, wait};
use rustix::process::Signal;
use serde_json::Value;

/// A brick in a process of its own. Dropping it ends the process.
struct JoinedBrick {
    child: Child,
}

impl JoinedBrick {
    /// Starts a brick that joins the cluster of `server`, and waits until it has joined.
    fn start(server: &Server, name: &str, meta: &str) -> Self {
        let ready: PathBuf = server.dir().join(format!("{name}.ready"));
        let mut command = mortar(&["node", "--json", "--role", "brick", "--listen", "127.0.0.1:0", "--join", meta]);
        command.arg("--data").arg(server.dir().join(name));
        command.arg("--cluster-secret").arg(server.data().join("cluster.secret"));
        command.stdout(File::create(&ready).unwrap()).stderr(File::create(ready.with_extension("log")).unwrap());
        let child = spawn(command).unwrap();
        let until = Instant::now() + TEST_TIMEOUT;
        while !fs::read_to_string(&ready).unwrap().ends_with('\n') {
            assert!(Instant::now() < until, "{}", fs::read_to_string(ready.with_extension("log")).unwrap());
            thread::sleep(Duration::from_millis(10));
        }
        Self { child }
    }
}

impl Drop for JoinedBrick {
    fn drop(&mut self) {
        send(&self.child, Signal::TERM);
        let _ = wait(&mut self.child, TEST_TIMEOUT);
    }
}

/// The number of logical nodes of the main space at each brick.
fn nodes_per_brick(server: &Server) -> Vec<usize> {
    let shown = server.run(&["remap", "--json"]).json();
    let count = |brick: &Value| brick["nodes"]["main"].as_array().map_or(0, Vec::len);
    shown.iter().filter(|line| line["address"].is_string()).map(count).collect()
}

fn make_tree(server: &Server) {
    for directory in 0..8 {
        let directory = server.dir().join(format!("tree/{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..40 {
            fs::write(directory.join(file.to_string()), vec![file as u8; file * 1000]).unwrap();
        }
    }
    fs::write(server.dir().join("tree/large"), vec![7; 3 << 20]).unwrap();
}

#[test]
fn one_process_grows_to_several_bricks_and_gives_up_its_own_while_clients_work() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let meta = format!("127.0.0.1:{port}");
    let mut server = Server::start(&["--meta-listen", &meta]);
    let meta = format!("mortar://{meta}");
    make_tree(&server);
    server.run(&["import", "tree"]).ok();
    let verify = |server: &Server| assert_eq!(server.run(&["verify", "tree", "--json"]).json()[0]["same"], 330);
    verify(&server);
    assert_eq!(nodes_per_brick(&server), [8]);
    let mut following = FollowingBackup::start(&server.url(), &server.dir().join("following"), &[]);
    let first = following.moment();
    let bricks = thread::scope(|scope| {
        let work = scope.spawn(|| server.run(&["exercise", "--seconds", "6", "--clients", "4"]));
        let bricks = ["second", "third"].map(|name| JoinedBrick::start(&server, name, &meta));
        server.run(&["remap", "--spread"]).ok();
        assert_eq!(nodes_per_brick(&server).iter().sum::<usize>(), 8);
        assert!(nodes_per_brick(&server).iter().all(|nodes| (2..=3).contains(nodes)), "{:?}", nodes_per_brick(&server));
        verify(&server);
        server.run(&["remap", "--drain", "1"]).ok();
        assert_eq!(nodes_per_brick(&server), [0, 4, 4]);
        work.join().unwrap().ok();
        bricks
    });
    verify(&server);
    // A backup has all three bricks, and becomes one process again.
    server.run(&["backup", "archive"]).ok();
    let mut copy = Server::new(&[]);
    run(server.command(&["restore", "archive", "--data"]).arg(copy.data())).ok();
    copy.restart();
    let tree = server.dir().join("tree");
    assert_eq!(copy.run(&["verify", tree.to_str().unwrap(), "--json"]).json()[0]["same"], 330);
    drop(copy);
    // So has a backup that has followed; what it had before is one brick.
    let last = following.moment();
    assert!(following.stop().success(), "{}", following.log());
    assert!(following.log().contains("has joined the cluster"), "{}", following.log());
    for (moment, bricks) in [(first, 1), (last, 3)] {
        let mut copy = Server::new(&[]);
        assert_eq!(following.restore(&moment, &copy.data()).json()[0]["bricks"], bricks);
        copy.restart();
        assert_eq!(copy.run(&["verify", tree.to_str().unwrap(), "--json"]).json()[0]["same"], 330);
    }
    server.run(&["scrub"]).ok();
    // The process still has the catalogue and the peer server. A brick that loses it goes on when it is back.
    server.kill();
    server.restart();
    verify(&server);
    server.run_with_input(&["put", "-", "/new"], "written after the restart").ok();
    drop(bricks);
    let _back = ["second", "third"].map(|name| JoinedBrick::start(&server, name, &meta));
    verify(&server);
    assert_eq!(server.run(&["get", "/new"]).ok(), "written after the restart");
}
