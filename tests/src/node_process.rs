//! One `mortar node` of a cluster that a test builds by itself.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::wait_ready;
use crate::{TEST_TIMEOUT, json_lines, mortar, send, spawn, wait};

/// A port of this machine that is free now.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    // Below the ports that the system gives to outgoing connections: another test's connection would take one before it is listened at.
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let ports = 12_000..32_000_u32;
    let start = std::process::id().wrapping_mul(977).wrapping_add(ASKED.fetch_add(7, Ordering::Relaxed));
    let candidates = (0..ports.len() as u32).map(|step| ports.start + start.wrapping_add(step) % ports.len() as u32);
    let mut candidates = candidates.map(|port| port as u16);
    candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("there is a free port")
}

/// A process with its arguments, which can be killed and started again. Dropping it kills it.
pub struct NodeProcess {
    dir: PathBuf,
    name: String,
    args: Vec<String>,
    child: Option<Child>,
    ready: Value,
}

impl NodeProcess {
    /// Starts `mortar node` with these arguments, which must name a fixed address, and waits until it is ready. Its log goes to `dir`.
    ///
    /// # Panics
    /// If it is not ready within [`TEST_TIMEOUT`].
    #[must_use]
    pub fn start(dir: &Path, name: &str, args: &[&str]) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        let mut process = Self { dir: dir.to_owned(), name: name.to_owned(), args, child: None, ready: Value::Null };
        process.restart();
        process
    }

    /// Starts it again.
    ///
    /// # Panics
    /// As [`NodeProcess::start`].
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.name);
        let output = self.dir.join(format!("{}.output", self.name));
        let log = File::options().create(true).append(true).open(self.log_file()).expect("a log");
        let mut command = mortar(&["node", "--json"]);
        command.args(&self.args).current_dir(&self.dir);
        command.stdout(File::create(&output).expect("a file for the output")).stderr(log);
        let mut child = spawn(command).expect("mortar starts");
        let line = wait_ready(&mut child, &output);
        self.child = Some(child);
        let line = line.unwrap_or_else(|| panic!("{} is not ready:\n{}", self.name, self.log()));
        self.ready = json_lines(&line).pop().expect("it is ready");
    }

    /// The address at which it listens.
    ///
    /// # Panics
    /// If it was never ready.
    #[must_use]
    pub fn address(&self) -> &str {
        self.ready["addresses"][0].as_str().expect("it was ready")
    }

    /// Kills it with SIGKILL.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// Ends it in good order.
    ///
    /// # Panics
    /// If it does not end within [`TEST_TIMEOUT`].
    pub fn stop(&mut self) {
        send(self.child.as_ref().expect("it runs"), Signal::TERM);
        let code = self.wait_exit();
        assert_eq!(code, 0, "{}:\n{}", self.name, self.log());
    }

    /// Waits until it has ended by itself, and returns its exit code.
    ///
    /// # Panics
    /// If it does not end within [`TEST_TIMEOUT`].
    pub fn wait_exit(&mut self) -> i32 {
        let mut child = self.child.take().expect("it runs");
        let ended = wait(&mut child, TEST_TIMEOUT);
        ended.unwrap_or_else(|| panic!("{} did not end:\n{}", self.name, self.log())).code().unwrap_or(-1)
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }

    /// Its log since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
