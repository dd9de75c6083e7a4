//! Real processes whose wall clocks are wrong, by libfaketime: the others go on, and after the correction all is as before (rule L2).
//!
//! `MORTAR_CLOCKS_ALL=1` tries every clock at every process.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use client::{Client, Transaction};
use mortar_tests::cluster::Cluster;
use mortar_tests::{CommandOutput, Server, mortar, run};
use serde_json::Value;
use tokio::runtime::Runtime;

/// How long it may take until a wrong clock is noticed, and until all is as before.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit that commands are given, in seconds, and how late they may be on a slow machine.
const TIMEOUT: &str = "5";
const LATE: Duration = Duration::from_secs(12);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const HOUR: i64 = 3_600;
/// How long a client stays connected while the time of its cluster goes on more slowly: by a sixteenth, it would be ahead by 3 s.
const SLOW_TIME: Duration = Duration::from_secs(50);
/// How far clocks are ahead, in seconds.
const WRONG: [i64; 7] = [-HOUR, -10, 10, -600, 600, HOUR, 10 * 365 * 24 * HOUR];

/// The library that shows other times to a program. `script/setup` installs it.
fn library() -> PathBuf {
    let directories = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
    let multiarch = fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
    let found = directories.into_iter().chain(multiarch).map(|directory| directory.join("faketime/libfaketimeMT.so.1"));
    found.into_iter().find(|path| path.exists()).expect("libfaketime is installed: run script/setup")
}

/// The clock of a process, which a file sets.
struct FakeClock {
    name: String,
    library: PathBuf,
    file: PathBuf,
}

impl FakeClock {
    /// A right clock.
    fn new(directory: &Path, name: &str) -> Self {
        let clock = Self { name: name.to_owned(), library: library(), file: directory.join(format!("{name}.clock")) };
        clock.set(0);
        clock
    }

    /// Sets the clock ahead by these seconds. A reader sees one state or the other.
    fn set(&self, ahead: i64) {
        let next = self.file.with_extension("next");
        fs::write(&next, format!("{ahead:+}\n")).unwrap();
        fs::rename(next, &self.file).unwrap();
    }

    /// The environment of a process with this clock, on a machine of its own. Its steady clock is true.
    fn environment(&self) -> [(&str, &OsStr); 6] {
        [
            ("MORTAR_MACHINE", OsStr::new(&self.name)),
            ("LD_PRELOAD", self.library.as_os_str()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.as_os_str()),
            ("FAKETIME_NO_CACHE", OsStr::new("1")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", OsStr::new("1")),
            ("DONT_FAKE_MONOTONIC", OsStr::new("1")),
        ]
    }
}

/// A cluster in which three processes have clocks that can be set.
struct World {
    cluster: Cluster,
    clocks: Vec<(&'static str, &'static str, FakeClock)>,
    directory: tempfile::TempDir,
    files: u32,
}

impl World {
    fn start() -> Self {
        let mut cluster = Cluster::start(&["--bricks", "2", "--peers", "2"]);
        let directory = tempfile::tempdir().unwrap();
        let named = [("meta", "meta-server"), ("brick-2", "brick 2"), ("peer-1", "peer server 1")];
        let clocks = named.map(|(name, shown)| {
            let clock = FakeClock::new(directory.path(), name);
            cluster.kill(name);
            cluster.restart_with(name, &clock.environment());
            (name, shown, clock)
        });
        let mut world = Self { cluster, clocks: clocks.into(), directory, files: 0 };
        world.wait_as_before();
        world
    }

    /// What the second peer server, whose clock is right, says.
    fn status(&self) -> Option<Value> {
        let url = format!("mortar://{}", self.cluster.address("peer-2"));
        let mut command = mortar(&["--server", &url, "--timeout", TIMEOUT, "status", "--json"]);
        run(&mut command).json().pop()
    }

    /// Waits for a status, for a limited time.
    fn wait_status(&self, what: &str, is_fine: impl Fn(&Value) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if status.as_ref().is_some_and(&is_fine) {
                return;
            }
            assert!(Instant::now() < until, "{what}: {status:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Runs a command with a time limit, which holds.
    fn run(&self, args: &[&str]) -> CommandOutput {
        let begun = Instant::now();
        let ended = self.cluster.run(&[&["--timeout", TIMEOUT], args].concat());
        assert!(begun.elapsed() < LATE, "{args:?} took {:?}: {}", begun.elapsed(), ended.stderr);
        ended
    }

    /// Stores a file at the first brick, through a peer server.
    fn put(&mut self) -> CommandOutput {
        self.files += 1;
        let path = self.directory.path().join("file");
        fs::write(&path, "content").unwrap();
        self.run(&["put", path.to_str().unwrap(), &format!("/file-{}", self.files)])
    }

    /// Waits until all processes are healthy, and transactions over both bricks commit.
    fn wait_as_before(&mut self) {
        self.wait_status("all clocks are right", |status| {
            let clocks = status["clocks"].as_array().unwrap();
            status["healthy"] == true && clocks.len() == 5 && clocks.iter().all(|clock| clock["refused"] == false)
        });
        let until = Instant::now() + PATIENCE;
        loop {
            let exercised = self.run(&["exercise", "--seconds", "1", "--clients", "2"]);
            if exercised.code == 0 {
                break;
            }
            assert!(Instant::now() < until, "{}", exercised.stderr);
        }
        self.put().ok();
    }

    /// A process is refused, and the others go on.
    fn check_refused(&mut self, shown: &str, ahead: i64) {
        self.wait_status(shown, |status| {
            let clocks = status["clocks"].as_array().unwrap();
            let others = clocks.iter().filter(|clock| clock["process"] != shown);
            let is_refused = clocks.iter().any(|clock| {
                let offset = clock["offset_ms"].as_i64().unwrap();
                clock["process"] == shown && clock["refused"] == true && (offset - ahead * 1_000).abs() < 2_000
            });
            is_refused && others.into_iter().all(|clock| clock["refused"] == false)
        });
        for _ in 0..3 {
            self.put().ok();
        }
    }

    fn clock(&self, index: usize) -> (&'static str, &'static str, &FakeClock) {
        let (name, shown, clock) = &self.clocks[index];
        (name, shown, clock)
    }
}

/// The clocks that are tried at a process.
fn clocks_to_try(index: usize) -> Vec<i64> {
    let all = std::env::var_os("MORTAR_CLOCKS_ALL").is_some();
    let few = [&[600][..], &[-HOUR, 10, WRONG[6]], &[-600, HOUR]];
    if all { WRONG.to_vec() } else { few[index].to_vec() }
}

#[test]
fn one_wrong_clock_harms_only_its_process_and_only_while_it_is_wrong() {
    let mut world = World::start();
    for index in 0..world.clocks.len() {
        for ahead in clocks_to_try(index) {
            let (name, shown, clock) = world.clock(index);
            clock.set(ahead);
            world.check_refused(shown, ahead);
            if name == "brick-2" {
                // It asks all bricks.
                world.run(&["space", "ls"]);
            }
            world.clock(index).2.set(0);
            world.wait_as_before();
        }
    }
}

#[test]
fn brick_with_a_wrong_clock_gets_no_logical_nodes() {
    let mut world = World::start();
    world.run(&["remap", "--drain", "2"]).ok();
    world.run(&["remap", "--cancel", "--drain", "2"]).ok();
    world.clock(1).2.set(600);
    world.check_refused("brick 2", 600);
    let listed = world.run(&["brick", "list", "--json"]).json();
    let refused = listed.iter().find(|brick| brick["brick"] == 2).unwrap()["refused"].to_string();
    assert!(refused.contains("ahead"), "{refused}");
    world.run(&["remap", "--spread"]).ok();
    world.run(&["space", "create", "other"]).ok();
    let drained = world.run(&["remap", "--drain", "2"]);
    assert!(drained.code == 2 && drained.stderr.contains("clock of brick 2"), "{} {}", drained.code, drained.stderr);
    let nodes = |world: &World| {
        let listed = world.run(&["brick", "list", "--json"]).json();
        listed.iter().find(|brick| brick["brick"] == 2).unwrap()["nodes"].as_u64().unwrap()
    };
    assert_eq!(nodes(&world), 0);
    world.clock(1).2.set(0);
    world.wait_status("brick 2 serves again", |_| {
        let listed = world.run(&["brick", "list", "--json"]).json();
        listed.iter().all(|brick| brick.get("refused").is_none())
    });
    world.run(&["remap", "--spread"]).ok();
    assert!(nodes(&world) > 0);
}

/// A process is started with a wrong clock, and then with a right one. No client writes in between.
#[test]
fn start_after_a_correction_waits_for_nothing() {
    let mut world = World::start();
    for (index, ahead) in [(1, 600), (2, WRONG[6]), (1, -HOUR)] {
        let (name, shown, _) = world.clock(index);
        for wrong in [ahead, 0] {
            world.cluster.kill(name);
            let (_, _, clock) = &world.clocks[index];
            clock.set(wrong);
            world.cluster.restart_with(name, &clock.environment());
            match wrong {
                0 => world.wait_as_before(),
                _ => world.check_refused(shown, wrong),
            }
        }
    }
}

/// A meta-server that starts again has heard of no clock but its own.
#[test]
fn meta_server_that_starts_again_with_a_wrong_clock_stops_no_other_process() {
    let mut world = World::start();
    world.cluster.kill("meta");
    let (_, shown, clock) = &world.clocks[0];
    let shown = *shown;
    clock.set(HOUR);
    world.cluster.restart_with("meta", &clock.environment());
    // No process is refused meanwhile, so no command waits longer than it takes to find the meta-server again.
    for _ in 0..10 {
        world.put().ok();
        let status = world.status().unwrap();
        let clocks = status["clocks"].as_array().unwrap();
        let refused: Vec<_> = clocks.iter().filter(|clock| clock["refused"] == true).collect();
        assert!(refused.iter().all(|clock| clock["process"] == shown), "{refused:?}");
        thread::sleep(Duration::from_millis(200));
    }
    world.check_refused(shown, HOUR);
    world.clock(0).2.set(0);
    world.wait_as_before();
}

/// All clocks were ahead together: the time of the cluster goes on more slowly, and clients that stay connected follow it.
#[test]
#[ignore = "takes a minute, and the simulator does the same: script/nightly clocks"]
fn clients_stay_connected_while_the_time_of_the_cluster_slows_down() {
    let mut server = Server::new(&["--bricks", "2"]);
    let clock = FakeClock::new(server.dir(), "store");
    clock.environment().iter().for_each(|(name, value)| server.set_env(name, value));
    clock.set(HOUR);
    server.restart();
    let seconds = SLOW_TIME.as_secs().to_string();
    let mut exercise = server.command(&["exercise", "--seconds", &seconds, "--clients", "2"]);
    exercise.env("MORTAR_LOG", "info");
    let exercise = thread::spawn(move || run(&mut exercise));
    // This client does nothing meanwhile.
    let runtime = Runtime::new().unwrap();
    let idle = runtime.block_on(Client::connect(&server.url())).unwrap();
    thread::sleep(Duration::from_secs(2));
    clock.set(0);
    let ended = exercise.join().unwrap();
    ended.ok();
    let begun = Instant::now();
    let create = |t: Transaction| async move { t.create_blob("content").map(drop) };
    runtime.block_on(idle.transact(create)).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(1), "it is not thrown out: {:?}", begun.elapsed());
    assert!(!ended.stderr.contains("the connection to a server ended"), "{}", ended.stderr);
}

#[test]
fn wrong_clock_of_a_client_harms_nothing() {
    let server = Server::start(&["--memory"]);
    fs::write(server.dir().join("file"), "content").unwrap();
    let clock = FakeClock::new(server.dir(), "client");
    for ahead in WRONG {
        clock.set(ahead);
        let path = format!("/{ahead}");
        let mut command = server.command(&["--timeout", TIMEOUT, "put", "file", &path]);
        run(command.envs(clock.environment())).ok();
        assert_eq!(server.run(&["get", &path]).text(), "content");
    }
}

#[test]
fn store_on_its_own_believes_its_clock_and_goes_on_from_its_log() {
    let mut server = Server::new(&[]);
    fs::write(server.dir().join("file"), "content").unwrap();
    let clock = FakeClock::new(server.dir(), "store");
    clock.environment().iter().for_each(|(name, value)| server.set_env(name, value));
    for (round, ahead) in [HOUR, 0, -HOUR, WRONG[6], 0].into_iter().enumerate() {
        clock.set(ahead);
        server.restart();
        let put = |name: &str| server.run(&["--timeout", TIMEOUT, "put", "file", &format!("/{round}-{name}")]);
        put("first").ok();
        server.run(&["--timeout", TIMEOUT, "exercise", "--seconds", "1", "--clients", "2"]).ok();
        // It is set while it runs.
        clock.set(ahead - HOUR);
        thread::sleep(Duration::from_millis(1_500));
        put("second").ok();
        server.kill();
    }
}
