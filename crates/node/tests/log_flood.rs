//! Refused connections do not fill the log. This is the only test of its process, because a process has one log.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use node::cluster_view::ClusterView;
use node::{Config, PeerServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use wire::transport::Address;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn refused_connections_are_logged_at_a_limited_rate() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async {
        let dir = tempfile::tempdir().unwrap();
        let listen = vec![Address::Unix(dir.path().join("socket"))];
        let view = ClusterView::new(|_| Box::pin(async { Ok(1) }));
        let config = Config { listen, threads: 1, ..Config::default() };
        let _server = PeerServer::start(view, 1, config).await.unwrap();
        let begun = std::time::Instant::now();
        for _ in 0..1_000 {
            let mut stream = UnixStream::connect(dir.path().join("socket")).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            stream.shutdown().await.unwrap();
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
        let periods = begun.elapsed().as_secs() as usize / 10 + 1;
        let text = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        let lines = text().lines().filter(|line| line.contains("refused a connection")).count();
        assert!((1..=periods * 10).contains(&lines), "{lines} lines in {periods} periods");
        // The remaining refusals are reported as a number at the end of the period.
        let reported = |text: &str| -> usize {
            let counts = text.split("suppressed=").skip(1);
            counts.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap()).sum()
        };
        loop {
            let text = text();
            let lines = text.lines().filter(|line| line.contains("refused a connection")).count();
            if lines + reported(&text) == 1_000 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs") });
}
