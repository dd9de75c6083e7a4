//! A cluster of real processes of the program under test, and the output of commands.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The output of a command and its exit code.
pub(crate) struct Printed {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Printed {
    /// The objects on the lines of the standard output.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
    }

    /// The failure on the error stream.
    pub(crate) fn error(&self) -> Value {
        let last = self.stderr.lines().last().unwrap_or_default();
        let error: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{}", self.stderr));
        error["error"].clone()
    }
}

/// The program under test, without settings from this environment.
pub(crate) fn mortar(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mortar"));
    command.args(args).stdin(Stdio::null()).env("MORTAR_LOG", "error");
    for variable in ["MORTAR_URL", "MORTAR_USER", "MORTAR_PASSWORD", "MORTAR_CA", "MORTAR_CERT", "MORTAR_KEY"] {
        command.env_remove(variable);
    }
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Printed {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Printed { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A process of the program that has printed its first line.
pub(crate) struct Running {
    child: Child,
    pub(crate) ready: Value,
}

impl Running {
    /// Starts a command that prints one line of JSON when it is ready, or ends.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let output = child.wait_with_output().unwrap();
            panic!("the process did not start: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self { child, ready: serde_json::from_str(&line).unwrap() }
    }

    fn wait(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `mortar cluster up` in its own directory. Dropping it ends the cluster.
pub(crate) struct RunningCluster {
    directory: TempDir,
    up: Option<Running>,
}

impl RunningCluster {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut cluster = Self { directory: tempfile::tempdir().unwrap(), up: None };
        cluster.up(args);
        cluster
    }

    /// Starts the cluster of the directory.
    pub(crate) fn up(&mut self, args: &[&str]) {
        let data = self.data();
        let fixed = ["cluster", "up", "--json", "--data", data.to_str().unwrap()];
        self.up = Some(Running::start(&mut mortar(&[&fixed, args].concat())));
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("cluster")
    }

    /// The report of `cluster up`.
    pub(crate) fn ready(&self) -> &Value {
        &self.up.as_ref().unwrap().ready
    }

    /// The addresses of all processes, by name.
    pub(crate) fn addresses(&self) -> Vec<(String, String)> {
        let processes = self.ready()["processes"].as_array().unwrap();
        let text = |process: &Value, key: &str| process[key].as_str().unwrap().to_owned();
        processes.iter().map(|process| (text(process, "name"), text(process, "address"))).collect()
    }

    /// Changes the file with the settings of a process.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(String) -> String) {
        let path = self.data().join(format!("{name}.toml"));
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, change(text)).unwrap();
    }

    /// Runs a command with the URL of the cluster.
    pub(crate) fn run(&self, args: &[&str]) -> Printed {
        run(mortar(args).env("MORTAR_URL", self.ready()["url"].as_str().unwrap()))
    }

    /// Runs `mortar cluster ACTION` in the cluster's directory.
    pub(crate) fn cluster(&self, action: &str, args: &[&str]) -> Printed {
        let data = self.data();
        run(&mut mortar(&[&["cluster", action, "--data", data.to_str().unwrap()], args].concat()))
    }

    /// Ends the cluster. Returns the output of `cluster down` and the exit code of `cluster up`.
    pub(crate) fn down(&mut self) -> (Printed, Option<i32>) {
        let down = self.cluster("down", &["--json"]);
        (down, self.up.take().and_then(|mut up| up.wait()))
    }
}

impl Drop for RunningCluster {
    fn drop(&mut self) {
        if self.up.is_some() {
            drop(self.cluster("down", &["--quiet"]));
        }
    }
}
