//! What each consistency level guarantees, and which anomalies a weaker one allows. The anomalies are produced deterministically, by
//! delaying connections.
//!
//! | level | guarantees | does not guarantee |
//! | --- | --- | --- |
//! | transactions on copies, and with locks | strict serializability | |
//! | snapshots | one state of all objects | the newest state; anything about writes that depend on them |
//! | `get` and `put` | PRAM: each client's writes in its order | one state of several objects; an order of the writes of several clients |
//! | `read_latest` | the newest state of one object | |
//! | `read_cached` | a state that the object had | the newest one, or one after an earlier read |

use std::collections::BTreeMap;
use std::time::Duration;

use check::history::{History, Kind, Operation, Outcome, Step};
use check::{pram, strict_serializability};
use client::{Client, CommitOutcome, ConnectOptions, ErrorKind, IsolationLevel, Oid, PlacementHint, Transaction};
use model::{ClassId, NodeId};
use mortar_tests::keyed_objects::{single_object, value};
use tokio::time;

use crate::relay::{NetworkConditions, Relay};
use crate::test_cluster::{ServerId, TestCluster};

/// Timeout of the clients: longer than any step takes, shorter than a lease.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How often a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How often a test checks that something does not happen.
const ROUNDS: usize = 30;

const DOWNSTREAM_HELD: NetworkConditions = NetworkConditions {
    refuses: false,
    delay: Duration::ZERO,
    holds_upstream: false,
    holds_downstream: true,
    one_in: 0,
    only: None,
};

/// Two objects with the value 0, each at its own brick; two peer servers.
struct Fixture {
    test_cluster: TestCluster,
    x: Oid,
    y: Oid,
}

async fn connect(url: &str) -> Client {
    let mut options = ConnectOptions::default();
    (options.timeout, options.snapshots) = (TIMEOUT, true);
    Client::connect_with(url, options).await.unwrap()
}

fn is_committed(decided: CommitOutcome) -> bool {
    matches!(decided, CommitOutcome::Committed(_))
}

async fn get(cluster: &Client, oid: Oid) -> i64 {
    value(cluster.get(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

async fn read_latest(cluster: &Client, oid: Oid) -> i64 {
    value(cluster.read_latest(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

async fn read_cached(cluster: &Client, oid: Oid) -> i64 {
    value(cluster.read_cached(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

/// Reads an object in a transaction that cannot conflict before it ends.
async fn read(t: &Transaction, oid: Oid) -> i64 {
    value(t.get(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

async fn write(cluster: &Client, values: &[(Oid, i64)]) {
    let done = cluster.transact(|t| async move {
        for (oid, value) in values {
            t.put(*oid, single_object(*value)).await?;
        }
        Ok(())
    });
    done.await.unwrap();
}

impl Fixture {
    async fn start() -> Self {
        let ground = TestCluster::start(2, 2).await;
        let cluster = connect(&ground.url(0)).await;
        let t = cluster.begin(IsolationLevel::Optimistic);
        let new: Vec<Oid> = [1, 2]
            .map(|node| t.create_object(ClassId::NONE, single_object(0), PlacementHint::At(NodeId(node))).unwrap())
            .into();
        assert!(is_committed(t.commit().await.unwrap()));
        let [x, y] = [t.real_oid(new[0]).unwrap(), t.real_oid(new[1]).unwrap()];
        let stage = Self { test_cluster: ground, x, y };
        for peer in [1, 2] {
            stage.wait_for_copies(&stage.client(peer).await).await;
        }
        stage
    }

    /// A client of a peer server.
    async fn client(&self, peer: u64) -> Client {
        connect(&format!("mortar://{}/main", self.test_cluster.relay(ServerId::Peer(peer)).address)).await
    }

    /// A client with its own connection to a peer server.
    async fn private_client(&self, peer: u64) -> (Client, Relay) {
        let relay = self.test_cluster.private_relay(ServerId::Peer(peer));
        (connect(&format!("mortar://{}/main", relay.address)).await, relay)
    }

    /// The number of the connection from the first peer server to a brick: the one that appears when that peer server restarts.
    async fn link_of_peer(&mut self, brick: u64) -> u64 {
        let (peer, brick) = (ServerId::Peer(1), ServerId::Brick(brick));
        self.test_cluster.kill(peer);
        let link = self.test_cluster.relay(brick).accepted_count();
        self.test_cluster.launch(peer);
        self.test_cluster.wait_ready(peer).await.unwrap();
        while self.test_cluster.relay(brick).accepted_count() == link {
            time::sleep(POLL_INTERVAL).await;
        }
        link
    }

    /// Waits until a client has copies of both objects and of a time at which they existed: a commit may still be in flight to a brick,
    /// or to a peer server with an older copy.
    async fn wait_for_copies(&self, cluster: &Client) {
        loop {
            let t = cluster.begin(IsolationLevel::Snapshot);
            let copies = [t.get(self.x).await.unwrap(), t.get(self.y).await.unwrap()];
            if copies.iter().all(Option::is_some) {
                assert_eq!(copies.map(|copy| value(copy.as_ref()).unwrap()), [Some(0); 2]);
                if is_committed(t.commit().await.unwrap()) {
                    return;
                }
            }
            time::sleep(POLL_INTERVAL).await;
        }
    }
}

#[tokio::test]
async fn snapshot_may_be_outdated_and_a_transaction_may_not() {
    let stage = Fixture::start().await;
    let ((behind, relay), other) = (stage.private_client(1).await, stage.client(2).await);
    stage.wait_for_copies(&behind).await;
    relay.set_conditions(DOWNSTREAM_HELD);
    write(&other, &[(stage.x, 1)]).await;
    // The write is acknowledged, and neither a read nor a snapshot sees it.
    assert_eq!(get(&behind, stage.x).await, 0);
    let snapshot = behind.begin(IsolationLevel::Snapshot);
    assert_eq!(read(&snapshot, stage.x).await, 0);
    assert!(is_committed(snapshot.commit().await.unwrap()));
    let t = behind.begin(IsolationLevel::Optimistic);
    assert_eq!(read(&t, stage.x).await, 0);
    let ending = tokio::spawn(async move { t.commit().await });
    relay.set_conditions(NetworkConditions::default());
    let ended = ending.await.unwrap().unwrap();
    assert!(matches!(ended, CommitOutcome::Conflict(_)), "{ended:?}");
    let locks = behind.begin(IsolationLevel::Locks);
    assert_eq!(read(&locks, stage.x).await, 1);
    assert!(is_committed(locks.commit().await.unwrap()));
}

#[tokio::test]
async fn reads_may_mix_states_and_snapshots_and_transactions_see_one() {
    let mut stage = Fixture::start().await;
    let link = stage.link_of_peer(2).await;
    let (behind, other) = (stage.client(1).await, stage.client(2).await);
    stage.wait_for_copies(&behind).await;
    let relay = stage.test_cluster.relay(ServerId::Brick(2));
    relay.set_conditions(NetworkConditions { only: Some(link), ..DOWNSTREAM_HELD });
    write(&other, &[(stage.x, 1), (stage.y, 1)]).await;
    while get(&behind, stage.x).await == 0 {
        time::sleep(POLL_INTERVAL).await;
    }
    // The reads see half of a transaction.
    assert_eq!(get(&behind, stage.y).await, 0);
    let mut endings = Vec::new();
    for level in [IsolationLevel::Snapshot, IsolationLevel::Optimistic] {
        let t = behind.begin(level);
        assert_eq!((read(&t, stage.x).await, read(&t, stage.y).await), (1, 0));
        endings.push(tokio::spawn(async move { t.commit().await }));
    }
    relay.set_conditions(NetworkConditions::default());
    for ending in endings {
        let ended = ending.await.unwrap().unwrap();
        assert!(matches!(ended, CommitOutcome::Conflict(_)), "{ended:?}");
    }
}

#[tokio::test]
async fn snapshots_allow_write_skew_and_transactions_do_not() {
    let stage = Fixture::start().await;
    let (one, two) = (stage.client(1).await, stage.client(2).await);
    // Each client writes one object if both are 0.
    let begin = async |cluster: &Client, level| {
        let t = cluster.begin(level);
        assert_eq!((read(&t, stage.x).await, read(&t, stage.y).await), (0, 0));
        t
    };
    let both = async || {
        let t = two.begin(IsolationLevel::Locks);
        (read(&t, stage.x).await, read(&t, stage.y).await)
    };
    for level in [IsolationLevel::Optimistic, IsolationLevel::Locks] {
        let (first, second) = (begin(&one, level).await, begin(&two, level).await);
        first.put(stage.x, single_object(1)).await.unwrap();
        assert!(is_committed(first.commit().await.unwrap()));
        let is_second = match second.put(stage.y, single_object(1)).await {
            Ok(()) => is_committed(second.commit().await.unwrap()),
            Err(error) => error.kind() != ErrorKind::Conflict,
        };
        assert!(!is_second, "{level:?}");
        assert_eq!(both().await, (1, 0));
        write(&one, &[(stage.x, 0)]).await;
    }
    for cluster in [&one, &two] {
        stage.wait_for_copies(cluster).await;
    }
    let (first, second) = (begin(&one, IsolationLevel::Snapshot).await, begin(&two, IsolationLevel::Snapshot).await);
    assert!(is_committed(first.commit().await.unwrap()) && is_committed(second.commit().await.unwrap()));
    write(&one, &[(stage.x, 1)]).await;
    write(&two, &[(stage.y, 1)]).await;
    assert_eq!(both().await, (1, 1));
}

#[tokio::test]
async fn transactions_with_locks_wait_where_optimistic_ones_conflict() {
    let stage = Fixture::start().await;
    let (one, two) = (stage.client(1).await, stage.client(2).await);
    let (first, second) = (one.begin(IsolationLevel::Optimistic), two.begin(IsolationLevel::Optimistic));
    for (t, value) in [(&first, 1), (&second, 2)] {
        assert_eq!(read(t, stage.x).await, 0);
        t.put(stage.x, single_object(value)).await.unwrap();
    }
    assert!(is_committed(first.commit().await.unwrap()));
    assert!(matches!(second.commit().await.unwrap(), CommitOutcome::Conflict(_)));

    let first = one.begin(IsolationLevel::Locks);
    // The younger transaction waits.
    let second = loop {
        let t = two.begin(IsolationLevel::Locks);
        if t.id() > first.id() {
            break t;
        }
        time::sleep(POLL_INTERVAL).await;
    };
    let seen = first.get_for_update(stage.x).await.unwrap();
    assert_eq!(value(seen.as_ref()).unwrap(), Some(1));
    let waiting = tokio::spawn(async move {
        let seen = second.get_for_update(stage.x).await.unwrap();
        second.put(stage.x, single_object(3)).await.unwrap();
        (value(seen.as_ref()).unwrap(), second.commit().await.unwrap())
    });
    for _ in 0..ROUNDS {
        assert_eq!(read_latest(&two, stage.x).await, 1);
    }
    assert!(!waiting.is_finished());
    first.put(stage.x, single_object(2)).await.unwrap();
    assert!(is_committed(first.commit().await.unwrap()));
    let (seen, ended) = waiting.await.unwrap();
    assert_eq!(seen, Some(2));
    assert!(is_committed(ended));
    assert_eq!(read_latest(&one, stage.x).await, 3);
}

#[tokio::test]
async fn writes_of_several_clients_may_be_seen_in_any_order() {
    let stage = Fixture::start().await;
    let ((one, relay_of_one), (two, relay_of_two)) = (stage.private_client(1).await, stage.private_client(2).await);
    let third = stage.client(1).await;
    for cluster in [&one, &two] {
        stage.wait_for_copies(cluster).await;
    }
    relay_of_one.set_conditions(DOWNSTREAM_HELD);
    relay_of_two.set_conditions(DOWNSTREAM_HELD);
    let writing = [(one.clone(), stage.x), (two.clone(), stage.y)]
        .map(|(cluster, oid)| tokio::spawn(async move { cluster.put(oid, single_object(1)).await }));
    for oid in [stage.x, stage.y] {
        while read_latest(&third, oid).await == 0 {
            time::sleep(POLL_INTERVAL).await;
        }
    }
    // Each client sees its own write and not that of the other, although both are durable.
    assert_eq!((get(&one, stage.x).await, get(&one, stage.y).await), (1, 0));
    assert_eq!((get(&two, stage.y).await, get(&two, stage.x).await), (1, 0));
    relay_of_one.set_conditions(NetworkConditions::default());
    relay_of_two.set_conditions(NetworkConditions::default());
    for writing in writing {
        writing.await.unwrap().unwrap();
    }
    // PRAM allows that; strict serializability does not.
    let seen = |kinds: [Kind; 2], steps: [[Step; 2]; 2]| {
        let operations = (1..).zip(kinds.into_iter().chain(kinds)).zip(steps.into_iter().flatten());
        let operations = operations.map(|((number, kind), step)| {
            let mut operation = Operation::begin(number, 1 + (number - 1) / 2, kind, number);
            operation.steps.push(step);
            operation.finish(Outcome::Ok, number);
            operation
        });
        History { operations: operations.collect() }
    };
    let weak = seen(
        [Kind::Write, Kind::Read],
        [[Step::write("x", 1), Step::read("y", None)], [Step::write("y", 2), Step::read("x", None)]],
    );
    pram::check(&weak, &BTreeMap::new()).unwrap();
    let strict = seen(
        [Kind::Transaction, Kind::ReadOnly],
        [
            [Step::append("x", 1), Step::read_list("y", Vec::new())],
            [Step::append("y", 2), Step::read_list("x", Vec::new())],
        ],
    );
    strict_serializability::check(&strict).unwrap_err();
}

#[tokio::test]
async fn writes_of_one_client_are_seen_in_its_order() {
    let mut stage = Fixture::start().await;
    let link = stage.link_of_peer(1).await;
    let (reader, writer, third) = (stage.client(1).await, stage.client(2).await, stage.client(2).await);
    stage.wait_for_copies(&reader).await;
    assert_eq!((read_cached(&reader, stage.x).await, read_cached(&reader, stage.y).await), (0, 0));
    let relay = stage.test_cluster.relay(ServerId::Brick(1));
    relay.set_conditions(NetworkConditions { only: Some(link), ..DOWNSTREAM_HELD });
    writer.put(stage.x, single_object(1)).await.unwrap();
    let writing = {
        let (writer, y) = (writer.clone(), stage.y);
        tokio::spawn(async move { writer.put(y, single_object(1)).await })
    };
    // The first write is durable, and the reader has not received its invalidation. So the second write is not released.
    for _ in 0..ROUNDS {
        assert_eq!((read_latest(&third, stage.x).await, read_latest(&third, stage.y).await), (1, 0));
        assert_eq!((get(&reader, stage.x).await, get(&reader, stage.y).await), (0, 0));
    }
    // A cached read may be older than an earlier read of the newest state.
    assert_eq!(read_cached(&reader, stage.x).await, 0);
    assert!(!writing.is_finished());
    relay.set_conditions(NetworkConditions::default());
    while get(&reader, stage.y).await == 0 {
        time::sleep(POLL_INTERVAL).await;
    }
    assert_eq!(get(&reader, stage.x).await, 1);
    writing.await.unwrap().unwrap();
    while read_cached(&reader, stage.x).await == 0 {
        time::sleep(POLL_INTERVAL).await;
    }
}
