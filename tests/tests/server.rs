//! The life of a server: it starts, stops, is killed, and is refused.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use mortar_tests::{Server, TEST_TIMEOUT, mortar, run, run_with_input, send, spawn, wait};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use wire::frame::{Flags, Header};
use wire::handshake::{self, Introduction};
use wire::transport::Stream;

#[test]
fn acknowledged_commits_survive_a_kill() {
    let mut server = Server::start(&[]);
    for round in 0..3 {
        let name = format!("/round/{round}");
        server.run_with_input(&["put", "-", &name], name.clone()).ok();
        server.kill();
        server.restart();
        for earlier in 0..=round {
            let name = format!("/round/{earlier}");
            assert_eq!(server.run(&["get", &name]).ok(), name);
        }
    }
}

#[test]
fn signal_ends_the_server_cleanly() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(&[]);
        server.run_with_input(&["put", "-", "/a"], "kept").ok();
        server.signal(signal);
        let status = server.wait_exit();
        assert_eq!((status.code(), status.signal()), (Some(0), None), "{}", server.log());
        assert!(!server.socket().exists(), "the socket file is removed");
        server.restart();
        assert_eq!(server.run(&["get", "/a"]).ok(), "kept");
    }
}

#[test]
fn a_second_server_on_one_directory_is_refused() {
    let server = Server::start(&[]);
    let mut second = mortar(&["dev", "--listen", "none", "--http", "none", "--json", "--data"]);
    let second = run(second.arg(server.data()).arg("--socket").arg(server.dir().join("other")));
    assert_eq!(second.code, 5, "{}", second.stderr);
    let last = second.stderr.lines().last().unwrap_or_default();
    let error: serde_json::Value = serde_json::from_str(last).unwrap();
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(&server.pid().unwrap().to_string()), "the message names the process: {message}");
    server.run(&["status"]).ok();
}

#[test]
fn commands_find_the_server_of_the_current_directory() {
    let dir = tempfile::tempdir().unwrap();
    let at = |args: &[&str]| {
        let mut command = mortar(args);
        command.current_dir(dir.path());
        command
    };
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    let mut dev = at(&["dev", "--listen", "none", "--http", "none"]);
    dev.stdout(log.try_clone().unwrap()).stderr(log);
    let mut dev = spawn(dev).unwrap();
    let until = std::time::Instant::now() + TEST_TIMEOUT;
    while !dir.path().join("mortar-data/mortar.sock").exists() {
        assert!(std::time::Instant::now() < until, "the server does not start");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let put = run_with_input(&mut at(&["object", "put", "/greeting", "-"]), b"hello".to_vec());
    put.ok();
    let ended = [
        run(&mut at(&["object", "get", "/greeting"])),
        run(&mut at(&["--space", "main", "name", "ls"])),
        run(&mut at(&["brick", "list"])),
        run(&mut at(&["user", "list"])),
        run(&mut at(&["remap"])),
        run(&mut at(&["space", "show"])),
        run(&mut at(&["status", "--quiet"])),
    ];
    let status = run(&mut at(&["status", "--json"])).json();
    send(&dev, Signal::TERM);
    wait(&mut dev, TEST_TIMEOUT).unwrap();
    for one in &ended {
        assert_eq!(one.code, 0, "{}", one.stderr);
    }
    // The commands look whether the server listens before they connect, which is no reason for an alert.
    assert_eq!(status[0]["metrics"]["connections_refused_total"], 0, "{status:?}");
    assert!(ended[0].text() == "hello" && ended[1].text().contains("/greeting"), "{}", ended[1].text());
}

#[test]
fn server_listens_beyond_loopback_only_if_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let refused = run(mortar(&["dev", "--memory", "--http", "none", "--listen", "0.0.0.0:0"]).current_dir(dir.path()));
    assert_eq!(refused.code, 9, "{}", refused.stderr);
    assert!(refused.stderr.contains("--insecure"), "{}", refused.stderr);
}

#[test]
fn refused_address_leaves_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    let free = format!("127.0.0.1:{}", mortar_tests::node_process::free_port());
    let addresses = [
        (["--listen", &free, "--http", "none", "--meta-listen", &free], 1, "--meta-listen HOST:PORT"),
        (["--listen", &taken, "--http", "none", "--meta-listen", "127.0.0.1:0"], 1, "--listen HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--http", &taken, "--meta-listen", "127.0.0.1:0"], 1, "--http HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--http", "none", "--meta-listen", &taken], 1, "--meta-listen HOST:PORT"),
        (["--listen", "0.0.0.0:0", "--http", "none", "--meta-listen", "127.0.0.1:0"], 9, "--insecure"),
    ];
    for (addresses, code, hint) in addresses {
        let refused = run(mortar(&["dev", "--data", "new"]).args(addresses).current_dir(dir.path()));
        assert_eq!(refused.code, code, "{}", refused.stderr);
        assert!(refused.stderr.contains(hint), "{}", refused.stderr);
        assert!(!dir.path().join("new").exists(), "{addresses:?}");
    }
}

#[test]
fn server_reports_its_address() {
    let server = Server::start(&[]);
    let ready = server.ready();
    assert_eq!(ready["urls"][0], server.url());
    assert_eq!(ready["pid"], server.pid().unwrap());
}

#[test]
fn health_and_metrics_are_served_by_http() {
    let server = Server::start(&["--http", "127.0.0.1:0"]);
    let address = server.ready()["http"].as_str().expect("the report has the address").to_owned();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("/health").starts_with("HTTP/1.1 200"));
    server.run_with_input(&["put", "-", "/a"], "x").ok();
    let metrics = ask("/metrics");
    assert!(metrics.contains("\nmortar_transactions_committed_total "), "{metrics}");
    // Those of the brick of this process, too, and each metric once.
    let value_of = |name: &str| {
        let lines: Vec<&str> =
            metrics.lines().filter_map(|line| line.strip_prefix(&format!("mortar_{name} "))).collect();
        assert_eq!(lines.len(), 1, "{name} in {metrics}");
        lines[0].parse::<u64>().unwrap()
    };
    assert!(value_of("store_forces_total") > 0);
    assert_eq!(value_of("store_disk_full"), 0);
    assert_eq!(value_of("cold_reads_waiting"), 0);
    assert_eq!(value_of("scrub_damage"), 0);
    for line in metrics.lines().filter(|line| line.starts_with("# TYPE ")) {
        assert_eq!(metrics.matches(&format!("{line}\n")).count(), 1, "{line}");
    }
    assert!(ask("/other").starts_with("HTTP/1.1 404"));
}

#[test]
fn objects_in_memory_are_lost_with_the_process() {
    let mut server = Server::start(&["--memory"]);
    server.run_with_input(&["put", "-", "/a"], "x").ok();
    server.stop();
    server.restart();
    assert_eq!(server.run(&["get", "/a"]).code, 3);
    assert!(!server.data().join("STORE").exists());
}

#[test]
fn status_shows_metrics_and_its_exit_code_tells_whether_the_server_runs() {
    let mut server = Server::start(&["--memory"]);
    server.run_with_input(&["put", "-", "/a"], "x").ok();
    let status = server.run(&["status", "--json"]).json().remove(0);
    assert!(status["metrics"]["transactions_committed_total"].as_u64().unwrap() >= 1, "{status}");
    assert_eq!(server.run(&["status", "--quiet"]).ok(), "");
    server.stop();
    let url = server.url();
    let stopped = run(&mut mortar(&["status", "--quiet", "--timeout", "1", "--server", &url]));
    assert_eq!(stopped.code, 5);
}

/// Anonymous memory of a process, in MiB.
fn anonymous_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// Waits until a process has at most this anonymous memory, in MiB.
fn await_anonymous(pid: u32, most: u64) {
    let until = Instant::now() + TEST_TIMEOUT;
    while anonymous_mib(pid) > most {
        assert!(Instant::now() < until, "{} MiB are kept, and not at most {most} MiB", anonymous_mib(pid));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Bytes of an unfinished frame.
const SENT: usize = 126 << 20;

/// A connection that has sent a frame but for its last two MiB.
async fn begin_frame(server: &Server) -> std::io::Result<Stream> {
    let address = format!("unix:{}", server.socket().display()).parse().unwrap();
    let mut stream = Stream::dial(&address, None).await.unwrap();
    handshake::introduce(&mut stream, &Introduction::new("main", "test")).await.unwrap();
    let header = Header { flags: Flags::REQUEST, id: 1, message: 0, raw: SENT + (2 << 20), raw_checksum: 0 };
    stream.write_all(&header.encode()).await?;
    stream.write_all(&vec![0; SENT]).await?;
    Ok(stream)
}

#[test]
fn memory_of_unfinished_frames_is_bounded_and_given_back() {
    /// The default of `unfinished_input_mib`.
    const BUDGET_MIB: u64 = 512;
    let server = Server::start(&[]);
    let pid = server.pid().unwrap();
    let before = anonymous_mib(pid);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut connections, mut most) = (Vec::new(), 0);
    for _ in 0..12 {
        // One whose frame is refused is ended while it sends.
        connections.extend(runtime.block_on(begin_frame(&server)));
        most = most.max(anonymous_mib(pid));
    }
    // The memory of a frame that is refused is given back by its own task, which may run a little later.
    assert!(most < before + 2 * BUDGET_MIB, "{most} MiB, {before} MiB before");
    assert!(most > before + BUDGET_MIB / 2, "the frames are not kept: {most} MiB, {before} MiB before");
    await_anonymous(pid, before + BUDGET_MIB + 64);
    server.run(&["status"]).ok();
    drop(connections);
    await_anonymous(pid, before + 64);
}
