//! Real `mortar` processes for tests: started, asked, killed, started again, every wait bounded.
//!
//! ```no_run
//! let mut server = mortar_tests::Server::start(&["--memory"]);
//! let stored = server.run(&["put", "Cargo.toml", "/cargo"]);
//! assert_eq!(stored.code, 0);
//! server.kill();
//! server.restart();
//! ```
//!
//! The program is the one that `MORTAR_BIN` names; without it cargo builds one, once for each test program.

pub mod cluster;
mod spawn;

use std::ffi::OsStr;
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

/// The README's example has to compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;

/// So does that of objects as structs.
#[cfg(doctest)]
#[doc = include_str!("../../docs/typed.md")]
pub struct Typed;

/// How long anything may take before a test fails: far more than it needs, on the slowest machine.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How often a wait looks again.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

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
    let test = std::env::current_exe().expect("a test knows where it is");
    // target/debug/deps/test-0123456789abcdef
    let profile = test.parent().and_then(Path::parent).expect("a test lies in the target directory");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "mortar", "--bin", "mortar"]);
    if profile.file_name() == Some(OsStr::new("release")) {
        build.arg("--release");
    }
    let target = profile.parent().expect("a profile lies in the target directory");
    let status = build.env("CARGO_TARGET_DIR", target).status().expect("cargo runs");
    assert!(status.success(), "building mortar failed: {status}");
    profile.join("mortar")
}

/// How a command ended and what it said.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit code; -1 if a signal ended it.
    pub code: i32,
    /// What it wrote to the standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to the error stream.
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

    /// The standard output without the space around it, of a command that must have succeeded.
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
    /// If a line is something else.
    #[must_use]
    pub fn json(&self) -> Vec<serde_json::Value> {
        json_lines(self.text())
    }

    /// The JSON objects on the lines of the error stream.
    ///
    /// # Panics
    /// If a line is something else.
    #[must_use]
    pub fn errors(&self) -> Vec<serde_json::Value> {
        json_lines(&self.stderr)
    }
}

/// The JSON objects on the lines of a text.
///
/// # Panics
/// If a line is something else.
#[must_use]
pub fn json_lines(text: &str) -> Vec<serde_json::Value> {
    text.lines()
        .map(|line| match serde_json::from_str(line) {
            Ok(object @ serde_json::Value::Object(_)) => object,
            other => panic!("no JSON object: {line:?}: {other:?}"),
        })
        .collect()
}

/// A `mortar` command that knows no server and reads nothing from this environment.
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
        // Not ours to leave behind.
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

/// Sends a process a signal.
///
/// # Panics
/// If it cannot be sent.
pub fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
    kill_process(pid, signal).expect("a child can be signalled");
}

/// Waits for a process to end; `None` if it has not within `patience`.
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

/// A server in a directory of its own, on a Unix socket. Dropped, it is killed and its directory removed.
pub struct Server {
    dir: TempDir,
    args: Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// Starts `mortar dev` with `args` on an empty data directory and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(args: &[&str]) -> Self {
        let mut server = Self::new(args);
        server.restart();
        server
    }

    /// A server that is not started yet; [`Server::restart`] does.
    ///
    /// # Panics
    /// If no directory can be made for it.
    #[must_use]
    pub fn new(args: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("mortar-").tempdir().expect("there is a temporary directory");
        Self { dir, args: args.iter().map(ToString::to_string).collect(), child: None }
    }

    /// The directory that holds everything of this server; tests may put files into it.
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

    /// What the server has logged since it was first started.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The process's number while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Starts the server without waiting for it.
    ///
    /// # Panics
    /// If it runs already, or cannot be started.
    pub fn launch(&mut self) {
        assert!(self.child.is_none(), "the server runs already");
        let log = File::options().create(true).append(true).open(self.dir.path().join("log")).expect("a log");
        let output = File::create(self.output()).expect("a file for the output");
        let mut command = mortar(&["dev", "--json", "--listen", "none", "--http", "none", "--data"]);
        command.arg(self.data()).arg("--socket").arg(self.socket()).args(&self.args);
        command.stdout(output).stderr(log);
        self.child = Some(spawn(command).expect("mortar starts"));
    }

    /// Starts the server, for the first time or again, and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    pub fn restart(&mut self) {
        self.launch();
        self.wait_ready();
    }

    /// Waits until the server says that it answers.
    ///
    /// # Panics
    /// If it ends, or does not within [`TEST_TIMEOUT`].
    pub fn wait_ready(&mut self) {
        let until = Instant::now() + TEST_TIMEOUT;
        while !fs::read(self.output()).is_ok_and(|said| said.ends_with(b"\n")) {
            if let Some(status) = self.poll_exit() {
                panic!("the server ended with {status}:\n{}", self.log());
            }
            assert!(Instant::now() < until, "the server does not answer:\n{}", self.log());
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// What the server said when it was ready: where it is, and its process.
    ///
    /// # Panics
    /// If it is not ready.
    #[must_use]
    pub fn ready(&self) -> serde_json::Value {
        let said = fs::read_to_string(self.output()).expect("the server was started");
        json_lines(&said).pop().expect("the server is ready")
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join("output")
    }

    /// The status of a server that has ended by itself; it can be started again then.
    ///
    /// # Panics
    /// If the process cannot be waited for.
    pub fn poll_exit(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().expect("a child can be waited for")?;
        self.child = None;
        Some(status)
    }

    /// Waits until the server ends by itself.
    ///
    /// # Panics
    /// If it does not within [`TEST_TIMEOUT`].
    pub fn wait_exit(&mut self) -> ExitStatus {
        let child = self.child.as_mut().expect("the server runs");
        let status = wait(child, TEST_TIMEOUT);
        let status = status.unwrap_or_else(|| panic!("the server did not end:\n{}", self.log()));
        self.child = None;
        status
    }

    /// Kills the server: SIGKILL, wherever it is.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // One that has ended already cannot be killed, and need not.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends the server a signal.
    ///
    /// # Panics
    /// If it does not run.
    pub fn signal(&self, signal: Signal) {
        send(self.child.as_ref().expect("the server runs"), signal);
    }

    /// Asks the server to end and waits until it has.
    ///
    /// # Panics
    /// If it does not within [`TEST_TIMEOUT`].
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit()
    }

    /// A `mortar` command for this server, to be changed before it is run.
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

    /// The same with this standard input.
    pub fn run_with_input<A: AsRef<OsStr>>(&self, args: &[A], input: impl Into<Vec<u8>>) -> CommandOutput {
        run_with_input(&mut self.command(args), input.into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            // The test failed: what the server has to say may tell why.
            let _ = writeln!(io::stderr(), "the server's log:\n{}", self.log());
        }
    }
}
