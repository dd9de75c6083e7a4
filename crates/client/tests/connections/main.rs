//! Clients whose connections end or hang.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod world;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, ConnectOptions, IsolationLevel, Oid, PlacementHint, Transaction};
use model::{ClassId, NodeId, Object};
use world::{Proxy, SlowLink, World, url};

/// Runs a test, which fails if it hangs.
async fn run_within_limit<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("the test hangs")
}

/// Creates an object at each of two logical nodes.
async fn create_two(cluster: &Client) -> [Oid; 2] {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let create = |node| t.create_object(ClassId::NONE, Object::blob("0".into()), PlacementHint::At(NodeId(node)));
    let created = [create(1).unwrap(), create(2).unwrap()];
    assert!(matches!(t.commit().await.unwrap(), client::CommitOutcome::Committed(_)));
    created.map(|oid| t.real_oid(oid).unwrap())
}

/// Creates an object, after which the client has its connection.
async fn create_one(client: &Client) {
    let t = client.begin(IsolationLevel::Optimistic);
    t.create_blob("0").unwrap();
    assert!(matches!(t.commit().await.unwrap(), client::CommitOutcome::Committed(_)));
}

/// The runtime of the first client ends with all of its tasks, so its connection ends without a message, as if its process had
/// been killed. The timeout of the second client is shorter than the time in which locks expire.
#[tokio::test]
async fn locks_of_a_client_that_was_killed_are_released() {
    run_within_limit(async {
        let world = World::start(2, 1).await;
        let mut options = ConnectOptions::default();
        options.timeout = Duration::from_secs(4);
        let other = world.client_with(options).await;
        let oids = create_two(&other).await;
        let killed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let url = world.url();
        let locking = killed.spawn(async move {
            let cluster = Client::connect(&url).await.unwrap();
            let t = cluster.begin(IsolationLevel::Locks);
            for oid in oids {
                t.get_for_update(oid).await.unwrap();
            }
            (cluster, t)
        });
        let locked = locking.await.unwrap();
        killed.shutdown_background();
        let t = other.begin(IsolationLevel::Locks);
        for oid in oids {
            t.get_for_update(oid).await.unwrap();
        }
        t.abort();
        drop(locked);
        world.end().await;
    })
    .await;
}

#[tokio::test]
async fn client_uses_another_peer_server_if_first_one_is_silent() {
    run_within_limit(async {
        let world = World::start(2, 1).await;
        let hung = Proxy::start(world.host(0), true).await;
        let mut options = ConnectOptions::default();
        // Longer than the test may take.
        options.connect_timeout = Duration::from_secs(3_600);
        let cluster = Client::connect_with(&url(&[hung.host(), world.host(0)]), options).await.unwrap();
        create_two(&cluster).await;
        world.end().await;
    })
    .await;
}

#[tokio::test]
async fn client_changes_to_another_peer_server_when_its_own_hangs() {
    run_within_limit(async {
        let world = World::start(2, 2).await;
        let proxy = Proxy::start(world.host(0), false).await;
        let mut options = ConnectOptions::default();
        options.connect_timeout = Duration::from_secs(3_600);
        options.timeout = Duration::from_secs(3_600);
        let cluster = Client::connect_with(&url(&[proxy.host(), world.host(1)]), options).await.unwrap();
        let [first, second] = create_two(&cluster).await;
        proxy.stall();
        cluster
            .transact(|t| async move {
                t.put(first, Object::blob("1".into())).await?;
                t.put(second, Object::blob("1".into())).await
            })
            .await
            .unwrap();
        assert_eq!(cluster.read_latest(first).await.unwrap(), Some(Object::blob("1".into())));
        world.end().await;
    })
    .await;
}

#[tokio::test]
async fn closed_client_ends_its_connection_and_does_not_connect_again() {
    run_within_limit(async {
        let world = World::start(2, 1).await;
        let proxy = Proxy::start(world.host(0), false).await;
        let cluster = Client::connect(&url(&[proxy.host()])).await.unwrap();
        create_two(&cluster).await;
        let accepted = proxy.accepted_count();
        cluster.close();
        proxy.wait_until_unused().await;
        // Many times as long as a client waits before it connects again.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(proxy.accepted_count(), accepted);
        assert!(cluster.events().is_err(), "it is closed");
        world.end().await;
    })
    .await;
}

/// Regression: each of them first shared the lock of the name with the others, and the oldest one then aborted all others.
#[tokio::test]
async fn transactions_with_locks_that_bind_one_name_wait_for_each_other() {
    run_within_limit(async {
        let world = World::start(2, 1).await;
        let client = Client::connect(&world.url()).await.unwrap();
        let by_age: Vec<Transaction> = (0..3).map(|_| client.begin(IsolationLevel::Locks)).collect();
        let bind_and_commit = async |t: &Transaction| {
            let new = t.create_blob("x").unwrap();
            t.bind("name", new).await.unwrap();
            assert!(matches!(t.commit().await.unwrap(), client::CommitOutcome::Committed(_)));
        };
        tokio::join!(bind_and_commit(&by_age[0]), bind_and_commit(&by_age[1]), bind_and_commit(&by_age[2]));
        world.end().await;
    })
    .await;
}

/// Regression: nothing ended the calls of a client whose runtime had ended, on another runtime and without one.
#[tokio::test]
async fn client_whose_runtime_has_ended_is_closed() {
    run_within_limit(async {
        let world = World::start(2, 1).await;
        let ending = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let url = world.url();
        let connecting = ending.spawn(async move {
            let client = Client::connect(&url).await.unwrap();
            let oids = create_two(&client).await;
            (client, oids)
        });
        let (client, [oid, _]) = connecting.await.unwrap();
        let mut events = client.events().unwrap();
        tokio::task::spawn_blocking(move || ending.shutdown_timeout(Duration::from_secs(10))).await.unwrap();
        let error = client.read_latest(oid).await.unwrap_err();
        assert!(error.message().contains("runtime"), "{error}");
        while events.next().await.is_some() {}
        let t = client.begin(IsolationLevel::Locks);
        assert!(t.get_for_update(oid).await.is_err());
        world.end().await;
    })
    .await;
}

/// Commits a transaction of 12 MiB, and a small one behind it, through peer servers whose links take 1.5 MiB a second. Checks that the
/// links carried each once.
async fn commit_slowly(peers: usize) {
    let world = World::start(1, peers as u64).await;
    let mut links = Vec::new();
    for peer in 0..peers {
        links.push(SlowLink::start(world.host(peer), 3 << 19).await);
    }
    let hosts: Vec<String> = links.iter().map(SlowLink::host).collect();
    let client = Client::connect(&url(&hosts)).await.unwrap();
    for objects in [12, 1] {
        let t = client.begin(IsolationLevel::Optimistic);
        for _ in 0..objects {
            let object = Object::blob(vec![7; (1 << 20) / 12 * objects].into());
            t.create_object(ClassId::NONE, object, PlacementHint::Anywhere).unwrap();
        }
        let outcome = t.commit().await.unwrap();
        assert!(matches!(outcome, client::CommitOutcome::Committed(_)), "{outcome:?} of {objects} objects");
    }
    let carried: u64 = links.iter().map(SlowLink::forwarded_bytes).sum();
    assert!(carried < 13 << 20, "{carried} bytes");
    world.end().await;
}

/// The commit takes longer than the time after which an unanswered call is repeated.
#[tokio::test]
async fn large_transaction_crosses_a_slow_link_once() {
    run_within_limit(commit_slowly(1)).await;
}

/// The commit takes longer than a client waits for the answer of a peer server that seems to hang.
#[tokio::test]
async fn client_does_not_leave_a_peer_server_to_which_it_still_sends() {
    run_within_limit(commit_slowly(2)).await;
}

/// Reads more bytes at once than a connection may have unsent.
#[tokio::test]
async fn many_large_objects_are_read_at_once_over_one_connection() {
    run_within_limit(async {
        let world = World::start(2, 1).await;
        let proxy = Proxy::start(world.host(0), false).await;
        let client = Client::connect(&url(&[proxy.host()])).await.unwrap();
        let mut oids = Vec::new();
        for _ in 0..10 {
            let t = client.begin(IsolationLevel::Optimistic);
            let object = || Object::blob(vec![7; (4 << 20) - 1_000].into());
            let created: Vec<Oid> =
                (0..4).map(|_| t.create_object(ClassId::NONE, object(), PlacementHint::Anywhere).unwrap()).collect();
            assert!(matches!(t.commit().await.unwrap(), client::CommitOutcome::Committed(_)));
            oids.extend(created.into_iter().map(|oid| t.real_oid(oid).unwrap()));
        }
        client.close();
        let reader = Arc::new(Client::connect(&url(&[proxy.host()])).await.unwrap());
        reader.get(oids[0]).await.unwrap();
        let accepted = proxy.accepted_count();
        let reads: Vec<_> = oids
            .into_iter()
            .map(|oid| {
                let reader = reader.clone();
                tokio::spawn(async move { reader.get(oid).await })
            })
            .collect();
        for read in reads {
            assert_eq!(read.await.unwrap().unwrap().unwrap().data.len(), (4 << 20) - 1_000);
        }
        assert_eq!(proxy.accepted_count(), accepted, "the connection has ended meanwhile");
        world.end().await;
    })
    .await;
}

/// More bytes of transactions at once than a connection may have unsent, from one client and from many.
#[tokio::test]
async fn many_large_transactions_are_committed_at_once() {
    run_within_limit(async {
        let world = World::start(1, 1).await;
        let proxy = Proxy::start(world.host(0), false).await;
        let mut clients = Vec::new();
        for _ in 0..12 {
            let client = Client::connect(&url(&[proxy.host()])).await.unwrap();
            create_one(&client).await;
            clients.push(client);
        }
        let accepted = proxy.accepted_count();
        // A client for each, and one for all others.
        let (shared, object) = (clients[0].clone(), Object::blob(vec![7; 4_000_000].into()));
        clients.extend((0..12).map(|_| shared.clone()));
        let commits: Vec<_> = clients
            .into_iter()
            .map(|client| {
                let object = object.clone();
                tokio::spawn(async move {
                    let t = client.begin(IsolationLevel::Optimistic);
                    for _ in 0..8 {
                        t.create_object(ClassId::NONE, object.clone(), PlacementHint::Anywhere).unwrap();
                    }
                    t.commit().await
                })
            })
            .collect();
        for commit in commits {
            assert!(matches!(commit.await.unwrap().unwrap(), client::CommitOutcome::Committed(_)));
        }
        assert_eq!(proxy.accepted_count(), accepted, "a connection has ended meanwhile");
        world.end().await;
    })
    .await;
}
