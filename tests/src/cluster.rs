//! A cluster of real processes, as `mortar cluster up` runs it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandOutput, POLL_INTERVAL, TEST_TIMEOUT, json_lines, mortar, run, send, spawn, spawn_parent, wait};

/// Waits until a process that was just started has written a line into this file, which means that it is ready. Returns the line, or
/// `None` if the process ends before or is not ready within [`TEST_TIMEOUT`].
pub(crate) fn wait_ready(child: &mut Child, output: &Path) -> Option<String> {
    let until = Instant::now() + TEST_TIMEOUT;
    while Instant::now() < until {
        let has_ended = child.try_wait().expect("a child can be waited for").is_some();
        let line = fs::read_to_string(output).expect("the output is text");
        if line.ends_with('\n') {
            return Some(line);
        }
        if has_ended {
            break;
        }
        thread::sleep(POLL_INTERVAL);
    }
    None
}

/// A cluster in its own directory, on its own ports. Dropping it ends all its processes.
pub struct Cluster {
    dir: TempDir,
    up: Option<Child>,
    /// Processes that were started by [`Cluster::restart`].
    restarted: Vec<(String, Child)>,
    ready: Value,
}

impl Cluster {
    /// Starts a cluster and waits until it is healthy.
    ///
    /// # Panics
    /// If it is not within [`TEST_TIMEOUT`].
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("mortar-").tempdir().expect("there is a temporary directory");
        let mut cluster = Self { dir, up: None, restarted: Vec::new(), ready: Value::Null };
        cluster.up(args);
        cluster
    }

    /// Starts all processes again, in the same directory.
    ///
    /// # Panics
    /// As [`Cluster::start`].
    pub fn up(&mut self, args: &[&str]) {
        let output = self.dir.path().join("output");
        let mut command = mortar(&["cluster", "up", "--json", "--data"]);
        command.arg(self.data()).args(args);
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).expect("a log");
        let stdout = File::create(&output).expect("a file for the output");
        command.stdout(stdout).stderr(log);
        let mut up = spawn_parent(command).expect("mortar starts");
        let line = wait_ready(&mut up, &output);
        self.up = Some(up);
        let line = line.unwrap_or_else(|| panic!("the cluster is not ready:\n{}", self.log()));
        self.ready = json_lines(&line).pop().expect("the cluster is ready");
    }

    /// Its directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("cluster")
    }

    /// The URL for clients, with all peer servers.
    ///
    /// # Panics
    /// If the cluster was never ready.
    #[must_use]
    pub fn url(&self) -> &str {
        self.ready["url"].as_str().expect("the cluster was ready")
    }

    fn process(&self, name: &str) -> &Value {
        let processes = self.ready["processes"].as_array().expect("the cluster was ready");
        processes.iter().find(|process| process["name"] == name).expect("there is such a process")
    }

    /// The address of the process with this name.
    ///
    /// # Panics
    /// If there is no such process.
    #[must_use]
    pub fn address(&self, name: &str) -> &str {
        self.process(name)["address"].as_str().expect("a process has an address")
    }

    /// The identifier of the process with this name, as `up` has started it.
    ///
    /// # Panics
    /// If there is no such process.
    #[must_use]
    pub fn pid(&self, name: &str) -> Pid {
        let pid = self.process(name)["pid"].as_i64().expect("a process has an identifier");
        i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process has an identifier")
    }

    /// Sends a signal to the process with this name, whether `up` or [`Cluster::restart`] has started it.
    ///
    /// # Panics
    /// If there is no such process, or it has ended.
    pub fn signal(&self, name: &str, signal: Signal) {
        match self.restarted.iter().find(|(restarted, _)| restarted == name) {
            Some((_, child)) => send(child, signal),
            None => kill_process(self.pid(name), signal).expect("the process can be signalled"),
        }
    }

    /// Kills the process with this name, whether `up` or [`Cluster::restart`] has started it, and waits until it has ended.
    ///
    /// # Panics
    /// If it does not end within [`TEST_TIMEOUT`].
    pub fn kill(&mut self, name: &str) {
        match self.restarted.iter().position(|(restarted, _)| restarted == name) {
            Some(at) => {
                let (_, mut child) = self.restarted.remove(at);
                child.kill().expect("a child can be killed");
                wait(&mut child, TEST_TIMEOUT).expect("a killed process ends");
            }
            None => {
                self.signal(name, Signal::KILL);
                self.wait_process_ended(name);
            }
        }
    }

    /// Waits until the process that `up` has started under this name has ended.
    fn wait_process_ended(&self, name: &str) {
        // A killed process closes its connections first and has its store open for some moments.
        let until = Instant::now() + TEST_TIMEOUT;
        while test_kill_process(self.pid(name)).is_ok() {
            assert!(Instant::now() < until, "{name} has not ended:\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Starts the process with this name when it has ended, with the configuration file of `up`, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not end, or is not ready, within [`TEST_TIMEOUT`].
    pub fn restart(&mut self, name: &str) {
        self.restart_with(name, &[]);
    }

    /// The same with variables in its environment.
    ///
    /// # Panics
    /// As [`Cluster::restart`].
    pub fn restart_with(&mut self, name: &str, environment: &[(&str, &OsStr)]) {
        let config = self.process(name)["config"].as_str().expect("a process has a file").to_owned();
        assert!(Path::new(&config).exists(), "there is no {config}");
        self.wait_process_ended(name);
        let (output, log) =
            (self.dir.path().join(format!("{name}.output")), self.dir.path().join(format!("{name}.again")));
        let role = name.split('-').next().expect("a name begins with its role");
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let mut command = mortar(&["node", "--role", role, "--json", "--config", &config]);
            let stdout = File::create(&output).expect("a file for the output");
            command.stdout(stdout).stderr(File::create(&log).expect("a log")).envs(environment.iter().copied());
            let mut child = spawn(command).expect("mortar starts");
            if wait_ready(&mut child, &output).is_some() {
                self.restarted.push((name.to_owned(), child));
                return;
            }
            // A connection of another test may have got the port meanwhile.
            let is_in_use = fs::read_to_string(&log).is_ok_and(|log| log.contains("Address already in use"));
            if !is_in_use || Instant::now() > until {
                self.restarted.push((name.to_owned(), child));
                panic!("{name} is not ready:\n{}", self.log());
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The output of `mortar cluster status` for each process, once `is_fine` accepts it.
    ///
    /// # Panics
    /// If it is not within [`TEST_TIMEOUT`].
    pub fn status_until(&self, is_fine: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let shown = self.run_at(&["cluster", "status", "--json", "--data"]).json();
            if is_fine(&shown) {
                return shown;
            }
            assert!(Instant::now() < until, "{shown:?}\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Runs a `mortar` command with this directory as its last argument.
    pub fn run_at(&self, args: &[&str]) -> CommandOutput {
        run(mortar(args).arg(self.data()))
    }

    /// Runs a `mortar` command against this cluster.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        run(mortar(args).env("MORTAR_URL", self.url()).current_dir(self.dir.path()))
    }

    /// Asks the cluster to end and waits until it has ended.
    ///
    /// # Panics
    /// If it does not within [`TEST_TIMEOUT`].
    pub fn stop(&mut self, signal: Signal) -> ExitStatus {
        let mut up = self.up.take().expect("the cluster runs");
        send(&up, signal);
        wait(&mut up, TEST_TIMEOUT).unwrap_or_else(|| panic!("the cluster did not end:\n{}", self.log()))
    }

    /// Waits until `up`, and all processes that were started by [`Cluster::restart`], have ended.
    ///
    /// # Panics
    /// If a process has not ended within [`TEST_TIMEOUT`].
    pub fn wait_ended(&mut self) {
        let restarted = self.restarted.drain(..).map(|(_, child)| child);
        let children: Vec<Child> = self.up.take().into_iter().chain(restarted).collect();
        for mut child in children {
            assert!(wait(&mut child, TEST_TIMEOUT).is_some(), "a process did not end:\n{}", self.log());
        }
    }

    /// The logs of all processes.
    #[must_use]
    pub fn log(&self) -> String {
        let mut logs: Vec<PathBuf> = [self.dir.path().to_owned(), self.data()]
            .iter()
            .flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()))
            .filter(|path| path.extension().is_some_and(|ext| ext == "log" || ext == "again") || path.ends_with("log"))
            .collect();
        logs.sort();
        let text = |path: &PathBuf| format!("== {}\n{}", path.display(), fs::read_to_string(path).unwrap_or_default());
        logs.iter().map(text).collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            // The test failed; the logs may tell why.
            let _ = writeln!(io::stderr(), "{}", self.log());
        }
        // A process that has ended must not be signalled.
        if let Some(mut up) = self.up.take()
            && matches!(up.try_wait(), Ok(None))
        {
            send(&up, Signal::TERM);
            if wait(&mut up, TEST_TIMEOUT).is_none() {
                // Never leave a process behind.
                let _ = up.kill();
                let _ = up.wait();
            }
        }
        let _ = self.run_at(&["cluster", "down", "--data"]);
        for (_, mut other) in self.restarted.drain(..) {
            let _ = other.kill();
            let _ = other.wait();
        }
    }
}
