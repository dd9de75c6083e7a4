//! Answers of commands at a cluster: exit codes, hints, and metrics.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mortar_tests::cluster::Cluster;
use mortar_tests::{mortar, run};
use serde_json::Value;

fn cluster() -> Cluster {
    Cluster::start(&["--bricks", "1", "--peers", "1", "--memory"])
}

#[test]
fn existing_entries_cannot_be_created_and_missing_ones_not_changed() {
    let cluster = cluster();
    for made in [
        &["group", "add", "staff"][..],
        &["space", "create", "photos"],
        &["class", "define", "Person", "--field", "name:string"],
        &["index", "create", "by_name", "--class", "Person", "--field", "name"],
    ] {
        cluster.run(made).ok();
    }
    for (code, commands) in [
        (
            4,
            &[
                "group add staff",
                "group add administrators",
                "space create photos",
                "class define Person --field name:int64",
                "class evolve Person --add name:string",
                "index create by_name --class Person --field name",
            ][..],
        ),
        (
            3,
            &[
                "group remove nobody",
                "group join nobody ann",
                "user remove nobody",
                "user disable nobody",
                "space set nowhere --policy continue",
                "space show nowhere",
                "space grant main read --to-user nobody",
                "space grant nowhere read --to-group staff",
                "class show Nothing",
                "class history Nothing",
                "class evolve Nothing --add age:int64",
                "class evolve Person --remove age",
                "index create x --class Nothing --field name",
                "index create x --class Person --field nothing",
                "index build nothing",
                "index remove nothing",
                "query Nothing",
                "object get /nothing",
                "object rm 1.0.1.1.1",
                "remap --drain 7",
                "--space nowhere object get /x",
            ],
        ),
    ] {
        for command in commands {
            let args: Vec<&str> = command.split(' ').collect();
            let answer = cluster.run(&args);
            assert_eq!(answer.code, code, "{command}: {}", answer.stderr);
            assert!(!answer.stderr.contains(" a index"), "{command}: {}", answer.stderr);
        }
    }
}

#[test]
fn hints_match_the_kind_of_server() {
    let cluster = cluster();
    let upgrade = |answer: &mortar_tests::CommandOutput| answer.stderr.to_lowercase().contains("upgrade");
    let missing = cluster.run(&["object", "get", "1.0.1.1.1"]);
    assert!(missing.stderr.contains("mortar query") && missing.stderr.contains("mortar ls"), "{}", missing.stderr);
    let nameless = cluster.run(&["object", "get", "/nothing"]);
    assert!(nameless.stderr.contains("nothing has the name /nothing"), "{}", nameless.stderr);
    cluster.run(&["scrub"]).ok();
    let backup = cluster.run(&["backup", "-"]);
    assert!(backup.code == 1 && backup.stderr.contains("catalogue of its cluster is elsewhere"), "{}", backup.stderr);
    let at = |address: &str, command: &[&str]| {
        run(mortar(command).env("MORTAR_URL", format!("mortar://{address}/main")).current_dir(cluster.data()))
    };
    for command in
        [&["object", "get", "/x"][..], &["query", "Person"], &["events"], &["ls"], &["put", "brick-1.toml", "/x"]]
    {
        let answer = at(cluster.address("brick-1"), command);
        assert_eq!(answer.code, 1, "{command:?}: {}", answer.stderr);
        assert!(
            answer.stderr.contains("this is a brick") && answer.stderr.contains("peer server"),
            "{}",
            answer.stderr
        );
        let answer = at(cluster.address("meta"), command);
        assert!(answer.stderr.contains("this is a meta-server") && !upgrade(&answer), "{}", answer.stderr);
    }
    // Operators can still administer a brick.
    at(cluster.address("brick-1"), &["scrub"]).ok();
    at(cluster.address("brick-1"), &["status"]).ok();
}

#[test]
fn peer_server_and_brick_count_received_and_sent_content() {
    let cluster = cluster();
    let path = cluster.data().join("content");
    std::fs::write(&path, vec![7; 300_000]).unwrap();
    let metrics = |server: &str| -> (u64, u64) {
        let url = format!("mortar://{}/main", cluster.address(server));
        let shown: Vec<Value> = run(mortar(&["status", "--json"]).env("MORTAR_URL", url)).json();
        let metric = |name: &str| shown[0]["metrics"][name].as_u64().unwrap();
        (metric("received_bytes_total"), metric("sent_bytes_total"))
    };
    let (few, all) = (0..100_000, 300_000..400_000);
    cluster.run(&["object", "put", "/x", path.to_str().unwrap()]).ok();
    for server in ["peer-1", "brick-1"] {
        let (received, sent) = metrics(server);
        assert!(all.contains(&received) && few.contains(&sent), "{server}: {received} {sent}");
    }
    assert_eq!(cluster.run(&["object", "get", "/x"]).stdout.len(), 300_000);
    for server in ["peer-1", "brick-1"] {
        let (received, sent) = metrics(server);
        assert!(all.contains(&received) && all.contains(&sent), "{server}: {received} {sent}");
    }
}

#[test]
fn meta_server_counts_the_members_of_the_cluster() {
    let cluster = cluster();
    let url = format!("mortar://{}/main", cluster.address("meta"));
    let shown: Vec<Value> = run(mortar(&["status", "--json"]).env("MORTAR_URL", url)).json();
    let metric = |name: &str| shown[0]["metrics"][name].as_u64();
    assert_eq!(["cluster_bricks", "cluster_peers"].map(metric), [Some(1); 2], "{shown:?}");
}
