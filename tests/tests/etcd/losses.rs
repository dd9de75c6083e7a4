//! A member of etcd and a meta-server are lost, one after the other and both together.

use mortar_tests::etcd::EtcdMembers;
use mortar_tests::node_process::NodeProcess;

use crate::small_cluster::{DataProcesses, check_load, meta_args, start};

/// How long the load runs: through all losses.
const LOAD_SECONDS: &str = "25";

#[test]
fn cluster_goes_on_without_a_member_of_etcd_and_a_meta_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut etcd = EtcdMembers::start(dir.path(), 3);
    let members: Vec<String> = etcd.urls().into_iter().flat_map(|url| ["--etcd".to_owned(), url]).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut metas: Vec<NodeProcess> =
        (0..2).map(|number| start(dir.path(), &format!("meta-{number}"), "meta", &members)).collect();
    let addresses: Vec<String> = metas.iter().map(|meta| meta.address().to_owned()).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let mut cluster = DataProcesses::start(dir.path(), &addresses, 2, 2);
    cluster.put("/before");
    let load = cluster.start_load(dir.path(), LOAD_SECONDS);
    for (lost, meta) in metas.iter_mut().enumerate() {
        etcd.kill(lost);
        meta.kill();
        // Commits go on, and the catalogue can be changed: by processes that named the lost meta-server first, too.
        cluster.put(&format!("/during-{lost}"));
        cluster.run(&["space", "create", &format!("during-{lost}")]).ok();
        // A process that starts now finds the other meta-server.
        cluster.peers[1].kill();
        cluster.peers[1].restart();
        let named = meta_args(&addresses);
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        drop(start(dir.path(), &format!("peer-new-{lost}"), "peer", &named));
        etcd.run(lost);
        meta.restart();
        cluster.put(&format!("/after-{lost}"));
    }
    // A brick that starts reads its openings from the catalogue.
    cluster.bricks[0].kill();
    cluster.bricks[0].restart();
    assert!(check_load(dir.path(), load) > 0);
    for name in ["/before", "/during-0", "/after-0", "/during-1", "/after-1"] {
        cluster.get(name);
    }
    let spaces = cluster.run(&["space", "ls", "--json"]).json();
    let mut spaces: Vec<&str> = spaces.iter().map(|space| space["name"].as_str().unwrap()).collect();
    spaces.sort_unstable();
    assert_eq!(spaces, ["during-0", "during-1", "main"]);
}
