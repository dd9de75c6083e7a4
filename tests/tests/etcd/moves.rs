//! `mortar cluster move-catalogue`: from a directory to etcd and back, while bricks, peer servers and clients go on.

use std::fs;
use std::path::Path;

use mortar_tests::etcd::EtcdMembers;
use mortar_tests::node_process::{NodeProcess, free_port};
use mortar_tests::{CommandOutput, Server, mortar, run, small_file};

use crate::small_cluster::{DataProcesses, at, check_load, start};

/// The exit code of what is not allowed, and of what exists.
const DENIED: i32 = 9;
const CONFLICT: i32 = 4;

fn move_catalogue(dir: &Path, args: &[&str]) -> CommandOutput {
    run(mortar(&["cluster", "move-catalogue"]).args(args).current_dir(dir))
}

/// Writes the settings of a meta-server at this port.
fn write_settings(dir: &Path, file: &str, port: u16, place: &str) {
    let text = format!("role = \"meta\"\nlisten = [\"127.0.0.1:{port}\"]\n{place}\n");
    fs::write(dir.join(file), text).unwrap();
}

fn etcd_settings(etcd: &EtcdMembers, namespace: &str) -> String {
    format!("etcd = {:?}\netcd_namespace = \"{namespace}\"", etcd.urls())
}

fn serve(dir: &Path, file: &str) -> NodeProcess {
    NodeProcess::start(dir, &file.replace('.', "-"), &["--config", file])
}

fn assert_refused(dir: &Path, file: &str, words: &str) {
    let ended = run(mortar(&["node", "--config", file]).current_dir(dir));
    assert_eq!(ended.code, DENIED, "{}", ended.stderr);
    assert!(ended.stderr.contains(words), "{words:?} is not in {}", ended.stderr);
}

#[test]
fn catalogue_moves_to_etcd_and_back_under_load() {
    let world = tempfile::tempdir().unwrap();
    let (dir, port) = (world.path(), free_port());
    let etcd = EtcdMembers::start(dir, 1);
    write_settings(dir, "meta.toml", port, "data = \"meta\"");
    write_settings(dir, "etcd.toml", port, &etcd_settings(&etcd, "first"));
    write_settings(dir, "back.toml", port, "data = \"meta-2\"");
    let mut original = serve(dir, "meta.toml");
    let mut cluster = DataProcesses::start(dir, &[original.address()], 1, 1);
    cluster.put("/before");
    let load = cluster.start_load(dir, "20");
    cluster.create_space("one");

    // The directory is in use.
    assert_ne!(move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml", "--yes"]).code, 0);
    original.stop();
    let shown = move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml"]);
    assert!(shown.ok().contains("Add --yes"), "{}", shown.text());
    let announced = move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml", "--json"]).json();
    let moved = move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml", "--yes", "--json"]).json();
    assert!(moved[0]["moved"].as_bool().unwrap() && moved[0]["entries"].as_u64().unwrap() > 5, "{moved:?}");
    assert_eq!(announced[0]["entries"], moved[0]["entries"]);
    // The original is not served any more; repeating the move changes nothing.
    assert_refused(dir, "meta.toml", "was moved to etcd");
    move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml", "--yes"]).ok();
    let mut on_etcd = serve(dir, "etcd.toml");
    cluster.create_space("two");
    cluster.put("/on-etcd");
    // Another catalogue is no target.
    let other = move_catalogue(dir, &["--from", "etcd.toml", "--to", "meta.toml", "--yes"]);
    assert_eq!(other.code, CONFLICT, "{}", other.stderr);

    // Back, while the meta-server runs: it ends by itself.
    move_catalogue(dir, &["--from", "etcd.toml", "--to", "back.toml", "--yes"]).ok();
    assert_eq!(on_etcd.wait_exit(), DENIED, "{}", on_etcd.log());
    assert!(on_etcd.log().contains("was moved to"), "{}", on_etcd.log());
    let _back = serve(dir, "back.toml");
    cluster.create_space("three");
    cluster.bricks[0].kill();
    cluster.bricks[0].restart();
    assert!(check_load(dir, load) > 0);
    for name in ["/before", "/on-etcd"] {
        cluster.get(name);
    }
    let spaces = cluster.run(&["space", "ls", "--json"]).json();
    let mut ids: Vec<u64> = spaces.iter().map(|space| space["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4], "numbers continue");
}

/// Both halves of a fork: the original is served again although its copy is in use.
#[test]
fn cancelled_original_serves_until_a_process_has_seen_the_copy() {
    let world = tempfile::tempdir().unwrap();
    let (dir, port) = (world.path(), free_port());
    let etcd = EtcdMembers::start(dir, 1);
    write_settings(dir, "meta.toml", port, "data = \"meta\"");
    write_settings(dir, "etcd.toml", port, &etcd_settings(&etcd, "mortar"));
    let mut original = serve(dir, "meta.toml");
    let cluster = DataProcesses::start(dir, &[original.address()], 1, 1);
    original.stop();
    assert_eq!(move_catalogue(dir, &["--from", "meta.toml", "--cancel", "--yes"]).code, 3, "nothing is moved");
    move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml", "--yes"]).ok();
    // No process has seen the copy.
    move_catalogue(dir, &["--from", "meta.toml", "--cancel", "--yes"]).ok();
    original = serve(dir, "meta.toml");
    cluster.create_space("one");
    original.stop();
    // The bricks follow the copy; then the original is an older catalogue.
    write_settings(dir, "etcd.toml", port, &etcd_settings(&etcd, "second"));
    move_catalogue(dir, &["--from", "meta.toml", "--to", "etcd.toml", "--yes"]).ok();
    let mut copy = serve(dir, "etcd.toml");
    cluster.create_space("two");
    copy.stop();
    move_catalogue(dir, &["--from", "meta.toml", "--cancel", "--yes"]).ok();
    assert_refused(dir, "meta.toml", "the catalogue went back in time");
    copy.restart();
    cluster.create_space("three");
}

#[test]
fn dev_becomes_a_cluster_on_etcd() {
    let mut dev = Server::start(&["--bricks", "2"]);
    dev.run(&["object", "put", "/before", small_file()]).ok();
    dev.stop();
    let dir = dev.dir();
    let etcd = EtcdMembers::start(dir, 1);
    let secret = "cluster_secret = \"data/cluster.secret\"\n";
    write_settings(dir, "etcd.toml", free_port(), &(secret.to_owned() + &etcd_settings(&etcd, "mortar")));
    let shown = move_catalogue(dir, &["--from", "data", "--to", "etcd.toml"]);
    assert!(shown.ok().contains("leaves the first brick"), "{}", shown.text());
    move_catalogue(dir, &["--from", "data", "--to", "etcd.toml", "--yes"]).ok();
    let again = run(mortar(&["dev", "--listen", "none", "--http", "none", "--data", "data"]).current_dir(dir));
    assert!(again.code != 0 && again.stderr.contains("a brick's"), "{}", again.stderr);
    let meta = serve(dir, "etcd.toml");
    let url = format!("mortar://{}", meta.address());
    let common = ["--meta", &url, "--cluster-secret", "data/cluster.secret"];
    let first = start(dir, "first", "brick", &[&["--data", "data"][..], &common].concat());
    let second = start(dir, "second", "brick", &[&["--data", "data/brick-2"][..], &common].concat());
    let peer = start(dir, "peer", "peer", &common);
    let got = at(peer.address(), &["object", "get", "/before"]);
    got.ok();
    assert_eq!(got.text(), fs::read_to_string(small_file()).unwrap());
    at(peer.address(), &["space", "create", "next"]).ok();
    drop((first, second));
}
