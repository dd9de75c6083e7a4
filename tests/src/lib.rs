//! Runs real `mortar` processes for tests. All waits are bounded.
//!
//! ```no_run
//! let mut server = mortar_tests::Server::start(&["--memory"]);
//! let stored = server.run(&["put", "Cargo.toml", "/cargo"]);
//! assert_eq!(stored.code, 0);
//! server.kill();
//! server.restart();
//! ```
//!
//! `MORTAR_BIN` names the program. Without it cargo builds one, once for each test program.

pub mod acts;
pub mod cluster;
pub mod etcd;
pub mod following;
pub mod keyed_objects;
pub mod node_process;
mod spawn;
pub mod stopped_store;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use spawn::{spawn, spawn_parent};

/// The example of the README, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// The example of objects as structs, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../../docs/typed.md")]
pub struct Typed;

/// Time limit of any step of a test: far more than it takes on the slowest machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A small file for commands, whatever directory they run in: Cargo runs tests in the directory of their package.
///
/// # Panics
/// If the working directory is gone.
#[must_use]
pub fn small_file() -> &'static str {
    static FILE: OnceLock<String> = OnceLock::new();
    FILE.get_or_init(|| std::path::absolute("Cargo.toml").expect("a working directory").display().to_string())
}

/// The program under test.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| match std::env::var_os("MORTAR_BIN") {
        Some(program) => program.into(),
        None => build(),
    })
}

/// Builds the program into the directory that this test was built into.
fn build() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test is known");
    // target/debug/deps/test-0123456789abcdef
    let profile = test.parent().and_then(Path::parent).expect("a test is in the target directory");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "mortar", "--bin", "mortar"]);
    if profile.file_name() == Some(OsStr::new("release")) {
        build.arg("--release");
    }
    let target = profile.parent().expect("a profile is in the target directory");
    let status = build.env("CARGO_TARGET_DIR", target).status().expect("cargo runs");
    assert!(status.success(), "building mortar failed: {status}");
    profile.join("mortar")
}

/// The exit code and the output of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    /// The standard output.
    pub stdout: Vec<u8>,
    /// The standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// The standard output as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("the output is text")
    }

    /// The trimmed standard output of a command that must have succeeded.
    ///
    /// # Panics
    /// If the command failed.
    pub fn ok(&self) -> &str {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", String::from_utf8_lossy(&self.stdout), self.stderr);
        self.text().trim()
    }

    /// The JSON objects on the lines of the standard output.
    ///
    /// # Panics
    /// If a line is not a JSON object.
    #[must_use]
    pub fn json(&self) -> Vec<serde_json::Value> {
        json_lines(self.text())
    }

    /// The JSON objects on the lines of the standard error.
    ///
    /// # Panics
    /// If a line is not a JSON object.
    #[must_use]
    pub fn errors(&self) -> Vec<serde_json::Value> {
        json_lines(&self.stderr)
    }
}

/// The JSON objects on the lines of a text.
///
/// # Panics
/// If a line is not a JSON object.
#[must_use]
pub fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| match serde_json::from_str(line) {
            Ok(object @ serde_json::Value::Object(_)) => object,
            other => panic!("not a JSON object: {line:?}: {other:?}"),
        })
        .collect()
}

/// A `mortar` command without a default server and without settings from this environment.
#[must_use]
pub fn mortar<A: AsRef<OsStr>>(args: &[A]) -> Command {
    let mut command = Command::new(program());
    command.args(args).env_remove("MORTAR_URL").env_remove("MORTAR_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started, or does not end within [`TEST_TIMEOUT`].
pub fn run(command: &mut Command) -> CommandOutput {
    run_with_input(command, Vec::new())
}

/// Runs a command to its end with this standard input.
///
/// # Panics
/// If it cannot be started, or does not end within [`TEST_TIMEOUT`].
pub fn run_with_input(command: &mut Command, input: Vec<u8>) -> CommandOutput {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("mortar starts");
    let mut stdin = child.stdin.take().expect("the standard input is a pipe");
    // A command that needs no input closes the pipe early.
    thread::spawn(move || drop(stdin.write_all(&input)));
    let stdout = read_in_background(child.stdout.take());
    let stderr = read_in_background(child.stderr.take());
    let status = wait(&mut child, TEST_TIMEOUT).unwrap_or_else(|| {
        // Never leave a process behind.
        let _ = child.kill();
        panic!("the command did not end: {command:?}");
    });
    let stderr = stderr.join().expect("reading does not panic");
    CommandOutput {
        code: status.code().unwrap_or(-1),
        stdout: stdout.join().expect("reading does not panic"),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

fn read_in_background(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut all).expect("a pipe is readable");
        }
        all
    })
}

/// Sends a signal to a process.
///
/// # Panics
/// If it cannot be sent.
pub fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has an identifier");
    kill_process(pid, signal).expect("a child can be signalled");
}

/// Waits for a process to end; returns `None` if it has not ended within `patience`.
///
/// # Panics
/// If the process cannot be waited for.
pub fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() > until {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// A server in its own directory, on a Unix socket. Dropping it kills the process and removes the directory.
pub struct Server {
    dir: TempDir,
    args: Vec<String>,
    environment: Vec<(String, OsString)>,
    child: Option<Child>,
}

impl Server {
    /// Starts `mortar dev` with `args` on an empty data directory and waits until it answers.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        let mut server = Self::new(args);
        server.restart();
        server
    }

    /// A server that is not started yet; [`Server::restart`] does.
    ///
    /// # Panics
    /// If its directory cannot be created.
    #[must_use]
    pub fn new(args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("mortar-").tempdir().expect("there is a temporary directory");
        Self { dir, args: args.iter().map(ToString::to_string).collect(), environment: Vec::new(), child: None }
    }

    /// Starts it with this variable in its environment from now on.
    pub fn set_env(&mut self, name: &str, value: impl Into<OsString>) {
        self.environment.push((name.to_owned(), value.into()));
    }

    /// The directory of this server. Tests may put files into it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's data directory.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The server's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// The server's URL, for clients in this process.
    #[must_use]
    pub fn url(&self) -> String {
        format!("mortar+unix://{}/main", self.socket().display())
    }

    /// The log of the server since its first start.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The identifier of the process while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the server without waiting for it.
    ///
    /// # Panics
    /// If it runs already, or cannot be started.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "the server is running");
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).expect("a log");
        let output = File::create(self.output()).expect("a file for the output");
        let mut command = mortar(&["dev", "--json", "--listen", "none", "--http", "none", "--data"]);
        command.arg(self.data()).arg("--socket").arg(self.socket()).args(&self.args);
        command.stdout(output).stderr(log).envs(self.environment.iter().map(|(name, value)| (name, value)));
        self.child = Some(spawn(command).expect("mortar starts"));
    }

    /// Starts the server, for the first time or again, and waits until it answers.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn restart(&mut self) {
        self.launch();
        self.wait_ready();
    }

    /// Waits until the server reports that it is ready.
    ///
    /// # Panics
    /// If it ends, or is not ready within [`TEST_TIMEOUT`].
    pub fn wait_ready(&mut self) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !fs::read(self.output()).is_ok_and(|line| line.ends_with(b"\n")) {
            if let Some(status) = self.poll_exit() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            assert!(Instant::now() < until, "the server is not ready:\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// The report of the server when it was ready: its address and its process.
    ///
    /// # Panics
    /// If it is not ready.
    #[must_use]
    pub fn ready(&self) -> serde_json::Value {
        let line = fs::read_to_string(self.output()).expect("the server was started");
        json_lines(&line).pop().expect("the server is ready")
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join("output")
    }

    /// The status of a server that has ended; it can be started again then.
    ///
    /// # Panics
    /// If the process cannot be waited for.
    pub fn poll_exit(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().expect("a child can be waited for")?;
        self.child = None;
        Some(status)
    }

    /// Waits until the server has ended.
    ///
    /// # Panics
    /// If it has not ended within [`TEST_TIMEOUT`].
    pub fn wait_exit(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("the server runs");
        let status = wait(child, TEST_TIMEOUT);
        let status = status.unwrap_or_else(|| panic!("the server did not end:\n{}", self.log()));
        self.child = None;
        status
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A server that has ended cannot be killed, and need not be.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal to the server.
    ///
    /// # Panics
    /// If it is not running.
    pub fn signal(&self, signal: Signal) {
        send(self.child.as_ref().expect("the server runs"), signal);
    }

    /// Asks the server to end and waits until it has ended.
    ///
    /// # Panics
    /// If it has not ended within [`TEST_TIMEOUT`].
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit()
    }

    /// A `mortar` command for this server that is not run yet.
    #[must_use]
    pub fn command<A: AsRef<OsStr>>(&self, args: &[A]) -> Command {
        let mut command = mortar(args);
        command.env("MORTAR_URL", self.url()).current_dir(self.dir.path());
        command
    }

    /// Runs a `mortar` command against this server, in its directory.
    pub fn run<A: AsRef<OsStr>>(&self, args: &[A]) -> CommandOutput {
        run(&mut self.command(args))
    }

    /// Runs a `mortar` command with this standard input.
    pub fn run_with_input<A: AsRef<OsStr>>(&self, args: &[A], input: impl Into<Vec<u8>>) -> CommandOutput {
        run_with_input(&mut self.command(args), input.into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            // The test failed; the log may tell why.
            let _ = writeln!(io::stderr(), "the server's log:\n{}", self.log());
        }
    }
}
