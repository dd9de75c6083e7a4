//! `mortar relay` as a process: its output, its report and its signals.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Long enough for everything that is expected to happen.
const TIMEOUT: Duration = Duration::from_secs(60);

fn mortar(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mortar"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A relay in front of a listener of the test; it ends with the test.
struct RunningRelay {
    child: Child,
    output: Lines<BufReader<ChildStdout>>,
    ready: Value,
    listener: TcpListener,
}

impl RunningRelay {
    fn start(args: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = listener.local_addr().unwrap().to_string();
        let mut child =
            mortar(&["relay", "--json", "--listen", "127.0.0.1:0", "--to", &target]).args(args).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
        Self { child, output, ready, listener }
    }

    /// Both ends of a connection through the relay.
    fn connect(&self) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(self.ready["addresses"][0].as_str().unwrap()).unwrap();
        let (target, _) = self.listener.accept().unwrap();
        for stream in [&client, &target] {
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        }
        (client, target)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ends it in order. Returns its last line and its exit code.
    fn end(mut self) -> (Value, Option<i32>) {
        self.signal(Signal::TERM);
        let last = serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap();
        (last, self.child.wait().unwrap().code())
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(mut from: &TcpStream, mut to: &TcpStream, bytes: &[u8]) {
    from.write_all(bytes).unwrap();
    let mut received = vec![0; bytes.len()];
    to.read_exact(&mut received).unwrap();
    assert_eq!(received, bytes);
}

fn read_report(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Waits until the file of the report is as it should be.
fn wait_for(path: &Path, is_expected: impl Fn(&Value) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_expected(&read_report(path)) {
        assert!(Instant::now() < deadline, "{}", read_report(path));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_relay_counts_what_crosses_the_link_and_reports_it_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("link.json");
    let relay = RunningRelay::start(&["--round-trip", "4ms", "--report", report.to_str().unwrap()]);
    assert_eq!(relay.ready["round_trip_us"], 4000);
    assert_eq!(relay.ready["pid"], relay.child.id());
    assert_eq!(read_report(&report)["connections"], 0);
    let (client, target) = relay.connect();
    send(&client, &target, b"question");
    send(&target, &client, b"answer");
    wait_for(&report, |report| report["upstream"]["bytes"] == 8 && report["downstream"]["bytes"] == 6);
    let (last, code) = relay.end();
    assert_eq!(code, Some(0));
    assert_eq!(last["connections"], 1);
    assert_eq!(last["open_connections"], 1);
    assert_eq!(last["upstream"], serde_json::json!({"bytes": 8, "chunks": 1, "losses": 0}));
    assert_eq!(read_report(&report), last);
}

#[test]
fn a_signal_cuts_the_link_and_a_second_one_ends_the_cut() {
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("link.json");
    let relay = RunningRelay::start(&["--report", report.to_str().unwrap()]);
    let (client, target) = relay.connect();
    send(&client, &target, b"before");
    relay.signal(Signal::USR1);
    wait_for(&report, |report| report["cut"] == true);
    { &client }.write_all(b"during").unwrap();
    target.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!({ &target }.read(&mut [0]).is_err());
    target.set_read_timeout(Some(TIMEOUT)).unwrap();
    relay.signal(Signal::USR1);
    let mut received = [0; 6];
    { &target }.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"during");
    assert_eq!(relay.end().1, Some(0));
}

#[test]
fn wrong_values_and_addresses_are_refused_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (args, code, words) in [
        (&["--delay", "20"][..], 2, "such as 500us, 20ms"),
        (&["--delay", "20ms", "--round-trip", "40ms"], 2, "cannot be used with"),
        (&["--delay", "1ms", "--jitter", "2ms"], 2, "longer than the delay"),
        (&["--rate", "fast"], 2, "10MB"),
        (&["--loss", "1"], 2, "write it as 1%"),
        (&["--cut", "5s/30s"], 2, "shorter than its period"),
        (&["--to", "mortar://127.0.0.1:6678"], 2, "not a URL"),
        (&["--report", "/"], 2, "no regular file"),
        (&["--report", "/nowhere/link.json"], 3, "cannot write the report /nowhere/link.json"),
        (&["--listen", "0.0.0.0:0"], 9, "--insecure"),
        (&["--listen", &taken], 1, "port 0"),
    ] {
        let output = mortar(&["relay", "--listen", "127.0.0.1:0"]).args(args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
}

#[test]
fn a_server_that_does_not_run_is_a_warning() {
    let mut relay = RunningRelay::start(&["--quiet"]);
    let address = relay.ready["addresses"][0].as_str().unwrap().to_owned();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    drop(std::mem::replace(&mut relay.listener, free));
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert!(!client.read(&mut [0]).is_ok_and(|count| count > 0));
    let mut warnings = BufReader::new(relay.child.stderr.take().unwrap()).lines();
    let warning: Value = serde_json::from_str(&warnings.next().unwrap().unwrap()).unwrap();
    assert_eq!(warning["warning"]["kind"], "connection");
    assert!(warning["warning"]["message"].as_str().unwrap().contains("cannot connect to"), "{warning}");
    assert_eq!(relay.end().0["failed_connections"], 1);
}
