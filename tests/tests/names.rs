//! Names of a cluster of real processes: listings are complete and in order, or fail.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use client::{Client, ConnectOptions};
use mortar_tests::cluster::Cluster;
use mortar_tests::{Server, small_file};
use rustix::process::Signal;

/// Binds some hundreds of names of several kinds, some to the same object.
async fn bind_names(client: &Client) -> BTreeMap<String, String> {
    let mut bound = BTreeMap::new();
    for part in 0..8 {
        let paths: Vec<String> = (0..50).map(|at| format!("/{}/{part:02}/{at}", ["b", "a", "ä"][at % 3])).collect();
        let paths = &paths;
        let (oid, t) = client
            .transact(|t| async move {
                let oid = t.create_blob("it")?;
                for path in paths {
                    t.bind(path, oid).await?;
                }
                Ok((oid, t))
            })
            .await
            .unwrap();
        bound.extend(paths.iter().map(|path| (path.clone(), t.real_oid(oid).unwrap_or(oid).to_string())));
    }
    client.transact(|t| async move { t.unbind("/a/00/1").await }).await.unwrap();
    bound.remove("/a/00/1").unwrap();
    bound
}

#[test]
fn names_are_listed_in_order_by_prefix_and_in_portions() {
    let world = Cluster::start(&["--bricks", "2", "--peers", "1"]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let bound = runtime.block_on(async {
        let client = Client::connect_with(world.url(), ConnectOptions::default()).await.unwrap();
        assert_eq!(client.names("").next().await.unwrap(), None);
        let bound = bind_names(&client).await;
        let mut names = client.names("").portion_size(150);
        let (mut listed, mut portions) = (Vec::new(), Vec::new());
        while let Some(portion) = names.next().await.unwrap() {
            portions.push(portion.len());
            listed.extend(portion.into_iter().map(|name| (name.path, name.oid.to_string())));
        }
        assert_eq!(portions, [150, 150, 99]);
        assert_eq!(listed, bound.clone().into_iter().collect::<Vec<_>>());
        bound
    });
    let listed = |args: &[&str]| {
        let mut all = vec!["name", "ls", "--json"];
        all.extend(args);
        let ran = world.run(&all);
        ran.ok();
        ran.json().iter().map(|line| line["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<String> = bound.keys().cloned().collect();
    assert_eq!(listed(&[]), all);
    let begin_so = |prefix: &str| all.iter().filter(|name| name.starts_with(prefix)).cloned().collect::<Vec<_>>();
    assert_eq!(listed(&["/ä/0"]), begin_so("/ä/0"));
    assert_eq!(listed(&["/none"]), [""; 0]);
    assert_eq!(listed(&["--after", &all[9], "--limit", "20"]), all[10..30]);
    // What follows a name that is behind the prefix, or before it.
    assert_eq!(listed(&["/a/", "--after", "/b/00"]), [""; 0]);
    assert_eq!(listed(&["/b/", "--after", "/a/07/49"]), begin_so("/b/"));
    assert_eq!(world.run(&["name", "resolve", &all[0]]).ok(), bound[&all[0]]);
    assert_eq!(world.run(&["name", "resolve", "/a/00/1"]).code, 3);
    // All or none.
    assert_eq!(world.run(&["name", "unbind", &all[0], "/none"]).code, 3);
    assert_eq!(world.run(&["name", "resolve", &all[0]]).ok(), bound[&all[0]]);
    // A directory moves with everything below it, to a free name.
    assert_eq!(world.run(&["mv", "/a", "/moved"]).code, 0);
    assert_eq!(listed(&["/a/"]), [""; 0]);
    assert_eq!(listed(&["/moved/"]).len(), begin_so("/a/").len());
    assert_eq!(world.run(&["mv", "/moved", "/moved/below"]).code, 2);
    assert_eq!(world.run(&["mv", "/none", "/a"]).code, 3);
    assert_eq!(world.run(&["mv", "/moved", &all[all.len() - 1]]).code, 4);
    assert_eq!(world.run(&["mv", "/moved", "/a"]).code, 0);
    // Directories have no bytes.
    let file = small_file();
    for directory in ["/", "/a"] {
        assert_eq!(world.run(&["object", "put", directory, file]).code, 2, "{directory}");
    }
    assert_eq!(world.run(&["object", "get", "/a"]).code, 2);
    // In a stopped space with an unreachable brick, a listing fails instead of being incomplete.
    world.run(&["space", "set", "main", "--policy", "fail_stop"]).ok();
    world.signal("brick-1", Signal::KILL);
    world.status_until(|shown| shown.iter().any(|one| one["role"] == "peer" && one["state"] == "unhealthy"));
    let stopped = world.run(&["name", "ls"]);
    assert_eq!((stopped.code, stopped.text()), (5, ""), "{}", stopped.stderr);
}

#[test]
fn names_of_a_store_are_listed_by_the_same_command() {
    let server = Server::start(&["--memory"]);
    for name in ["/c", "/a", "/b/1", "/b/2"] {
        server.run_with_input(&["put", "-", name], "it").ok();
    }
    let listed = |args: &[&str]| {
        let ran = server.run(args);
        ran.ok().lines().map(|line| line.split_once("  ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&["name", "ls"]), ["/a", "/b/1", "/b/2", "/c"]);
    assert_eq!(listed(&["name", "ls", "/b/"]), ["/b/1", "/b/2"]);
    assert_eq!(listed(&["name", "ls", "--after", "/a", "--limit", "2"]), ["/b/1", "/b/2"]);
    server.run(&["mv", "/a", "/d"]).ok();
    assert_eq!(listed(&["name", "ls"]), ["/b/1", "/b/2", "/c", "/d"]);
    assert_eq!(server.run(&["mv", "/c", "/d"]).code, 4);
    let missing = server.run(&["mv", "/a", "/e"]);
    assert!(missing.code == 3 && !missing.stderr.contains("mortar name bind"), "{}", missing.stderr);
    let nowhere = server.run(&["mv", "/d", "/none/d"]);
    assert!(nowhere.code == 3 && nowhere.stderr.contains("mortar name bind"), "{}", nowhere.stderr);
}
