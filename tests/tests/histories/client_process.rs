//! A process whose threads are clients: a Java virtual machine with the program in java/histories, whose package documentation describes
//! the lines that it reads and writes, or `history-client`, which is one Rust client.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use check::history::Step;
use client::Oid;
use mortar_tests::acts::Act;
use mortar_tests::keyed_objects::KeyedObject;
use mortar_tests::{send, spawn};
use rustix::process::Signal;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;

use crate::objects::Objects;

/// Options that let a virtual machine start quickly and use little memory.
const JVM_OPTIONS: [&str; 3] = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx192m"];
/// The system property of the worker that plants a fault.
const RETAIN_VALUES: &str = "-Dmortar.histories.retainValues=true";

/// The program of client processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientProgram {
    /// That in java/histories, which has several clients.
    Java {
        /// A planted fault: it reads values of an earlier transaction.
        retains_values: bool,
    },
    /// One Rust client.
    Rust,
}

impl ClientProgram {
    fn command(self) -> Command {
        let Self::Java { retains_values } = self else { return Command::new(env!("CARGO_BIN_EXE_history-client")) };
        let mut library = OsString::from("-Dmortar.library=");
        library.push(required_variable("MORTAR_JAVA_LIBRARY"));
        let mut command = Command::new(java());
        command.args(JVM_OPTIONS).args(Some(RETAIN_VALUES).filter(|_| retains_values)).arg(library);
        command.arg("-jar").arg(required_variable("MORTAR_HISTORIES_JAR"));
        command
    }

    /// The name of a process with this number, for messages.
    fn process_name(self, number: usize) -> String {
        match self {
            Self::Java { .. } => format!("Java virtual machine {number}"),
            Self::Rust => format!("client process {number}"),
        }
    }
}

/// A reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Created(Oid),
    /// The transaction is going to commit.
    Steps(Vec<Step>),
    Committed,
    /// The exception for conflicts, with the objects that it names.
    Conflict(Vec<Oid>, String),
    /// An exception that the API defines as retryable.
    Retryable(String),
    /// It is not known whether the transaction was committed.
    Unknown(String),
    /// Another exception.
    Error(String),
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let message = rest.to_owned();
        let parsed = match word {
            "created" => rest.parse().ok().map(Self::Created),
            "steps" => serde_json::from_str(rest).ok().map(Self::Steps),
            "committed" => Some(Self::Committed),
            "conflict" => parse_conflict(rest),
            "retryable" => Some(Self::Retryable(message)),
            "unknown" => Some(Self::Unknown(message)),
            "error" => Some(Self::Error(message)),
            _ => None,
        };
        parsed.unwrap_or_else(|| Self::Error(format!("not a reply: {text}")))
    }

    /// Whether another reply to the same request follows.
    fn is_last(&self) -> bool {
        !matches!(self, Self::Steps(_))
    }
}

fn parse_conflict(rest: &str) -> Option<Reply> {
    let (objects, message) = rest.split_once(' ')?;
    let oids: Result<Vec<Oid>, _> = objects.split(',').filter(|oid| *oid != "-").map(str::parse).collect();
    Some(Reply::Conflict(oids.ok()?, message.to_owned()))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessState {
    Starting,
    /// It is connected.
    Ready,
    Ended,
}

/// What the thread that reads replies shares with clients.
struct Shared {
    /// The senders of replies by the numbers of their requests; none after the process has ended.
    waiting: Mutex<Option<HashMap<u64, UnboundedSender<Reply>>>>,
    state: watch::Sender<ProcessState>,
}

/// A running process. Dropping it ends it.
pub(crate) struct ClientProcess {
    /// Its program and its number in the run.
    pub(crate) name: String,
    child: Mutex<Child>,
    input: Mutex<ChildStdin>,
    shared: Arc<Shared>,
    log: PathBuf,
    is_killed: AtomicBool,
    /// Transactions that its clients have committed.
    pub(crate) commits: AtomicU64,
}

impl ClientProcess {
    /// Starts a process for the cluster with a URL. Its standard error goes to a log in `dir`.
    pub(crate) fn start(program: ClientProgram, number: usize, url: &str, dir: &Path) -> Arc<Self> {
        let log = dir.join(format!("client-{number}.log"));
        let errors = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = program.command();
        command.arg(url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let name = program.process_name(number);
        let mut child = spawn(command).unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        let (input, output) = (Mutex::new(child.stdin.take().unwrap()), child.stdout.take().unwrap());
        let state = watch::channel(ProcessState::Starting).0;
        let shared = Arc::new(Shared { waiting: Mutex::new(Some(HashMap::new())), state });
        let of_reader = shared.clone();
        thread::spawn(move || dispatch_replies(output, &of_reader));
        let (is_killed, commits) = (AtomicBool::new(false), AtomicU64::new(0));
        Arc::new(Self { name, child: Mutex::new(child), input, shared, log, is_killed, commits })
    }

    /// Waits until the process is connected.
    ///
    /// # Errors
    /// If it has ended, with its log.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let mut state = self.shared.state.subscribe();
        let state = *state.wait_for(|state| *state != ProcessState::Starting).await.unwrap();
        match state {
            ProcessState::Ready => Ok(()),
            _ => Err(format!("it has ended:\n{}", fs::read_to_string(&self.log).unwrap_or_default())),
        }
    }

    /// Gives the objects the keys of requests.
    pub(crate) fn announce(&self, objects: &Objects) {
        for KeyedObject { key, oid, .. } in objects.lists.iter().chain(&objects.accounts) {
            self.send(&format!("object {key} {oid}"));
        }
    }

    /// Creates a list, or an account with a balance.
    pub(crate) async fn create(&self, key: &str, balance: Option<i64>) -> Oid {
        let balance = balance.map(|balance| format!(" {balance}")).unwrap_or_default();
        let mut replies = self.request(1, &format!("create 1 {key}{balance}"));
        match replies.recv().await {
            Some(Reply::Created(oid)) => oid,
            other => panic!("{key} cannot be created: {other:?}"),
        }
    }

    /// Requests a transaction of the thread with this number. `options` are separated by commas.
    pub(crate) fn run(&self, number: u64, thread: u64, options: &[&str], acts: &[Act]) -> UnboundedReceiver<Reply> {
        let options = if options.is_empty() { "-".to_owned() } else { options.join(",") };
        let mut line = format!("run {number} {thread} {options}");
        for act in acts {
            line.push_str(&format!(" {act}"));
        }
        self.request(number, &line)
    }

    /// Sends a request. The channel of its replies closes when the process ends.
    fn request(&self, number: u64, line: &str) -> UnboundedReceiver<Reply> {
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(waiting) = &mut *self.shared.waiting.lock().unwrap() {
            waiting.insert(number, sender);
        }
        self.send(line);
        receiver
    }

    fn send(&self, line: &str) {
        // The reader of replies notices that a process has ended.
        let _ = writeln!(self.input.lock().unwrap(), "{line}");
    }

    /// Stops or continues the process, unless it was killed.
    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.lock().unwrap();
        if !self.is_killed() {
            send(&child, signal);
        }
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&self) {
        let mut child = self.child.lock().unwrap();
        self.is_killed.store(true, Ordering::SeqCst);
        // A process that has ended cannot be killed, and need not be.
        let _ = child.kill();
        let _ = child.wait();
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.is_killed.load(Ordering::SeqCst)
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Gives replies to those that wait for them until the process ends.
fn dispatch_replies(output: ChildStdout, shared: &Shared) {
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        if line == "0 ready" {
            shared.state.send_replace(ProcessState::Ready);
            continue;
        }
        let numbered = line.split_once(' ').and_then(|(number, reply)| Some((number.parse::<u64>().ok()?, reply)));
        // The last line of a process that was killed may be incomplete.
        let Some((number, reply)) = numbered else { continue };
        let reply = Reply::parse(reply);
        let mut waiting = shared.waiting.lock().unwrap();
        let waiting = waiting.as_mut().unwrap();
        let sender = if reply.is_last() { waiting.remove(&number) } else { waiting.get(&number).cloned() };
        if let Some(sender) = sender {
            // The client waits until the last reply, unless its test has failed.
            let _ = sender.send(reply);
        }
    }
    *shared.waiting.lock().unwrap() = None;
    shared.state.send_replace(ProcessState::Ended);
}

fn java() -> PathBuf {
    std::env::var_os("JAVA_HOME").map_or_else(|| "java".into(), |home| Path::new(&home).join("bin/java"))
}

/// The value of an environment variable, which script/java sets.
fn required_variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: run script/java test, which sets it"))
}

#[test]
fn a_line_of_a_client_process_is_a_reply() {
    let steps = vec![Step::read_list("list1", [3, 17]), Step::append("list1", 18)];
    assert_eq!(Reply::parse(r#"steps [["read","list1",[3,17]],["append","list1",18]]"#), Reply::Steps(steps));
    let oid: Oid = "1.2.3.4a.5".parse().unwrap();
    assert_eq!(Reply::parse("conflict 1.2.3.4a.5 it has changed"), Reply::Conflict(vec![oid], "it has changed".into()));
    assert_eq!(Reply::parse("conflict - aborted"), Reply::Conflict(vec![], "aborted".into()));
    assert!(matches!(Reply::parse("conflict x"), Reply::Error(_)));
}
