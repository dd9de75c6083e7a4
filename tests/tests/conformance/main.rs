//! One suite for every way to run Mortar: embedded, `mortar dev`, and clusters of processes, in memory and on disk. No part of it knows
//! which one it runs on.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "only its `run` is tested")]
#[path = "../../../crates/client/examples/jukebox.rs"]
mod jukebox;
mod suite;

use std::process::Command;

use client::{Client, ConnectOptions, Embedded};
use mortar_tests::{Server, cluster::Cluster, mortar, program, run};
use suite::run_all;

const SCRIPT: &str = include_str!("commands.sh");

fn options() -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.snapshots = true;
    options
}

/// Runs the suite and the example program with two clients of the same space.
async fn check(one: Client, other: Client) {
    run_all(&one, &other).await;
    for times in 1..3 {
        let lines = jukebox::run(&one).await.unwrap();
        assert_eq!(lines[1], format!("  Sea (3:10), played {times} times"));
    }
}

fn check_urls(one: &str, other: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let connect = |url: &str| Client::connect_with(url.to_owned().leak(), options());
        check(connect(one).await.unwrap(), connect(other).await.unwrap()).await;
    });
}

/// Runs the script of commands against a server.
fn check_commands(url: &str, is_in_memory: bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", SCRIPT]).current_dir(dir.path());
    if is_in_memory {
        shell.env("IN_MEMORY", "1");
    }
    let path = format!("{}:{}", program().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let ended = run(shell.env("MORTAR_URL", url).env("MORTAR", program()).env("PATH", path));
    assert!(ended.code == 0, "the script failed at {url}:\n{}\n{}", ended.text(), ended.stderr);
}

async fn check_embedded(cluster: &Embedded) {
    let connect = || cluster.connect("main", options());
    check(connect().await.unwrap(), connect().await.unwrap()).await;
    cluster.shutdown().await.unwrap();
}

#[tokio::test]
async fn embedded_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    check_embedded(&Embedded::open(dir.path()).await.unwrap()).await;
    // What it leaves is a store for `mortar dev`.
    let scrubbed = run(&mut mortar(&["repair", "--data", dir.path().to_str().unwrap()]));
    assert_eq!(scrubbed.code, 0, "{}", scrubbed.stderr);
}

#[tokio::test]
async fn embedded_in_memory() {
    check_embedded(&Embedded::in_memory().await.unwrap()).await;
}

#[test]
fn one_process_on_disk() {
    let server = Server::start(&[]);
    check_urls(&server.url(), &server.url());
    check_commands(&server.url(), false);
}

#[test]
fn one_process_in_memory() {
    let server = Server::start(&["--memory"]);
    check_urls(&server.url(), &server.url());
    check_commands(&server.url(), true);
}

/// The connections of a client are with different shards of the peer server.
#[test]
fn one_process_with_several_threads() {
    let server = Server::start(&["--io-threads", "3"]);
    check_urls(&server.url(), &server.url());
    check_commands(&server.url(), false);
}

#[test]
fn one_brick() {
    let cluster = Cluster::start(&["--bricks", "1", "--peers", "1"]);
    check_urls(cluster.url(), cluster.url());
    check_commands(cluster.url(), false);
}

#[test]
fn four_bricks_and_two_peer_servers() {
    let cluster = Cluster::start(&["--bricks", "4", "--peers", "2"]);
    let [one, other] = ["peer-1", "peer-2"].map(|peer| format!("mortar://{}/main", cluster.address(peer)));
    check_urls(&one, &other);
    check_commands(cluster.url(), false);
}

#[test]
fn four_bricks_in_memory() {
    let cluster = Cluster::start(&["--bricks", "4", "--peers", "2", "--memory"]);
    check_urls(cluster.url(), cluster.url());
    check_commands(cluster.url(), true);
}
