//! A cluster of two meta-servers, bricks and peer servers, built by hand.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use mortar_tests::node_process::{NodeProcess, free_port};
use mortar_tests::{CommandOutput, TEST_TIMEOUT, mortar, run, small_file, spawn, wait};

/// A process that listens at a fixed address of this machine.
pub(crate) fn start(dir: &Path, name: &str, role: &str, args: &[&str]) -> NodeProcess {
    let listen = format!("127.0.0.1:{}", free_port());
    let common = ["--role", role, "--listen", &listen, "--http", "none", "--io-threads", "2"];
    NodeProcess::start(dir, name, &[&common[..], args].concat())
}

/// The arguments that name these meta-servers.
pub(crate) fn meta_args(metas: &[&str]) -> Vec<String> {
    metas.iter().flat_map(|address| ["--meta".to_owned(), format!("mortar://{address}")]).collect()
}

/// Bricks and peer servers that name these meta-servers, and the space `main`.
pub(crate) struct DataProcesses {
    pub(crate) bricks: Vec<NodeProcess>,
    pub(crate) peers: Vec<NodeProcess>,
}

impl DataProcesses {
    pub(crate) fn start(dir: &Path, metas: &[&str], bricks: usize, peers: usize) -> Self {
        let meta = meta_args(metas);
        let meta: Vec<&str> = meta.iter().map(String::as_str).collect();
        let brick = |number| {
            let name = format!("brick-{number}");
            start(dir, &name, "brick", &[&["--data", &name][..], &meta].concat())
        };
        let bricks = (0..bricks).map(brick).collect();
        at(metas[0], &["space", "create", "main"]).ok();
        let peers = (0..peers).map(|number| start(dir, &format!("peer-{number}"), "peer", &meta)).collect();
        Self { bricks, peers }
    }

    /// The URL of the space `main`, with all peer servers.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<&str> = self.peers.iter().map(NodeProcess::address).collect();
        format!("mortar://{}/main", hosts.join(","))
    }

    pub(crate) fn run(&self, args: &[&str]) -> CommandOutput {
        run(mortar(args).env("MORTAR_URL", self.url()))
    }

    /// Makes a space as soon as a brick has announced itself to the meta-server that serves now.
    pub(crate) fn create_space(&self, name: &str) {
        const UNAVAILABLE: i32 = 5;
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let made = self.run(&["space", "create", name]);
            if made.code != UNAVAILABLE || Instant::now() > until {
                made.ok();
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn put(&self, name: &str) {
        self.run(&["object", "put", name, small_file()]).ok();
    }

    pub(crate) fn get(&self, name: &str) {
        let got = self.run(&["object", "get", name]);
        got.ok();
        assert_eq!(got.text(), fs::read_to_string(small_file()).unwrap());
    }

    /// Clients that move coins between objects all the time. At the end they check that none was lost.
    pub(crate) fn start_load(&self, dir: &Path, seconds: &str) -> Child {
        let mut load = mortar(&["exercise", "--clients", "4", "--seconds", seconds, "--json"]);
        load.env("MORTAR_URL", self.url());
        load.stdout(fs::File::create(dir.join("load")).unwrap())
            .stderr(fs::File::create(dir.join("load.log")).unwrap());
        spawn(load).unwrap()
    }
}

/// Waits for the end of a load, which must have lost nothing, and returns how many transactions it has committed.
pub(crate) fn check_load(dir: &Path, mut load: Child) -> u64 {
    let ended = wait(&mut load, TEST_TIMEOUT).expect("the load ends");
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    assert!(ended.success(), "{ended}: {}\n{}", read("load"), read("load.log"));
    let report: serde_json::Value = serde_json::from_str(read("load").lines().last().unwrap()).unwrap();
    report["transfers"].as_u64().unwrap_or_else(|| panic!("{report}"))
}

/// Runs a command at a server.
pub(crate) fn at(address: &str, args: &[&str]) -> CommandOutput {
    run(mortar(args).env("MORTAR_URL", format!("mortar://{address}/main")))
}
