//! What each level of consistency gives, and what a weaker one does not: the anomalies are made with connections that are
//! held back, not left to luck.
//!
//! | level | gives | does not give |
//! | --- | --- | --- |
//! | transactions on copies, and with locks | strict serializability | |
//! | snapshots | one state of all | the newest state; nothing about what is written later because of them |
//! | `get` and `put` | PRAM: each client's writes in its order | one state of several objects; an order of the writes of several clients |
//! | `look` | the newest state of one object | |
//! | `glance` | a state that the object had | the newest one, or one after what was looked at before |

use std::collections::BTreeMap;
use std::time::Duration;

use client::cluster::{Cluster, ClusterOptions, Decided, Hint, Level, Transaction};
use client::{ErrorKind, Oid};
use model::{ClassId, NodeId};
use sim::check::{pram, strict_serializability};
use sim::history::{History, Kind, Operation, Outcome, Step};
use tokio::time;

use crate::ground::{Ground, Server};
use crate::objects::{single, value};
use crate::relay::{Relay, Weather};

/// How long a client waits: longer than anything takes, shorter than a lease.
const TIMEOUT: Duration = Duration::from_secs(8);
/// How long a test waits before it looks again.
const LOOK: Duration = Duration::from_millis(2);
/// Looks at something that must not happen.
const ROUNDS: usize = 30;

const HELD: Weather =
    Weather { refuses: false, delay: Duration::ZERO, holds_up: false, holds_down: true, one_in: 0, only: None };

/// Two objects with the value 0, at a brick each; two peer servers.
struct Stage {
    ground: Ground,
    x: Oid,
    y: Oid,
}

async fn connect(url: &str) -> Cluster {
    let mut options = ClusterOptions::default();
    (options.timeout, options.snapshots) = (TIMEOUT, true);
    Cluster::connect_with(url, options).await.unwrap()
}

fn is_committed(decided: Decided) -> bool {
    matches!(decided, Decided::Committed(_))
}

async fn get(cluster: &Cluster, oid: Oid) -> i64 {
    value(cluster.get(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

async fn look(cluster: &Cluster, oid: Oid) -> i64 {
    value(cluster.look(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

async fn glance(cluster: &Cluster, oid: Oid) -> i64 {
    value(cluster.glance(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

/// What an object is in a transaction that meets nobody before it ends.
async fn read(t: &Transaction, oid: Oid) -> i64 {
    value(t.get(oid).await.unwrap().as_ref()).unwrap().unwrap()
}

async fn write(cluster: &Cluster, values: &[(Oid, i64)]) {
    let done = cluster.transact(|t| async move {
        for (oid, value) in values {
            t.put(*oid, single(*value)).await?;
        }
        Ok(())
    });
    done.await.unwrap();
}

impl Stage {
    async fn set() -> Self {
        let ground = Ground::start(2, 2).await;
        let cluster = connect(&ground.url(0)).await;
        let t = cluster.begin(Level::Optimistic);
        let new: Vec<Oid> =
            [1, 2].map(|node| t.create_object(ClassId::NONE, single(0), Hint::At(NodeId(node))).unwrap()).into();
        assert!(is_committed(t.commit().await.unwrap()));
        let [x, y] = [t.real(new[0]).unwrap(), t.real(new[1]).unwrap()];
        let stage = Self { ground, x, y };
        for peer in [1, 2] {
            stage.copied_by(&stage.client(peer).await).await;
        }
        stage
    }

    /// A client of a peer server.
    async fn client(&self, peer: u64) -> Cluster {
        connect(&format!("mortar://{}/main", self.ground.relay(Server::Peer(peer)).address)).await
    }

    /// A client whose connection to a peer server nobody shares.
    async fn apart(&self, peer: u64) -> (Cluster, Relay) {
        let relay = self.ground.apart(Server::Peer(peer));
        (connect(&format!("mortar://{}/main", relay.address)).await, relay)
    }

    /// Which of a brick's connections is that of the first peer server: the one that is made when that is started anew.
    async fn link_of_peer(&mut self, brick: u64) -> u64 {
        let (peer, brick) = (Server::Peer(1), Server::Brick(brick));
        self.ground.kill(peer);
        let link = self.ground.relay(brick).accepted();
        self.ground.launch(peer);
        self.ground.ready(peer).await.unwrap();
        while self.ground.relay(brick).accepted() == link {
            time::sleep(LOOK).await;
        }
        link
    }

    /// Waits until a client has copies of both objects, and of a time when they were there: what is committed may still be on
    /// its way to a brick or to a peer server that has a copy of before.
    async fn copied_by(&self, cluster: &Cluster) {
        loop {
            let t = cluster.begin(Level::Snapshot);
            let copies = [t.get(self.x).await.unwrap(), t.get(self.y).await.unwrap()];
            if copies.iter().all(Option::is_some) {
                assert_eq!(copies.map(|copy| value(copy.as_ref()).unwrap()), [Some(0); 2]);
                if is_committed(t.commit().await.unwrap()) {
                    return;
                }
            }
            time::sleep(LOOK).await;
        }
    }
}

#[tokio::test]
async fn snapshot_may_be_of_the_past_and_a_transaction_may_not() {
    let stage = Stage::set().await;
    let ((behind, relay), other) = (stage.apart(1).await, stage.client(2).await);
    stage.copied_by(&behind).await;
    relay.set(HELD);
    write(&other, &[(stage.x, 1)]).await;
    // That is acknowledged, and neither a read nor a snapshot has it.
    assert_eq!(get(&behind, stage.x).await, 0);
    let snapshot = behind.begin(Level::Snapshot);
    assert_eq!(read(&snapshot, stage.x).await, 0);
    assert!(is_committed(snapshot.commit().await.unwrap()));
    let t = behind.begin(Level::Optimistic);
    assert_eq!(read(&t, stage.x).await, 0);
    let ending = tokio::spawn(async move { t.commit().await });
    relay.set(Weather::default());
    let ended = ending.await.unwrap().unwrap();
    assert!(matches!(ended, Decided::Conflict(_)), "{ended:?}");
    let locks = behind.begin(Level::Locks);
    assert_eq!(read(&locks, stage.x).await, 1);
    assert!(is_committed(locks.commit().await.unwrap()));
}

#[tokio::test]
async fn reads_may_be_of_several_states_and_snapshots_and_transactions_are_of_one() {
    let mut stage = Stage::set().await;
    let link = stage.link_of_peer(2).await;
    let (behind, other) = (stage.client(1).await, stage.client(2).await);
    stage.copied_by(&behind).await;
    let relay = stage.ground.relay(Server::Brick(2));
    relay.set(Weather { only: Some(link), ..HELD });
    write(&other, &[(stage.x, 1), (stage.y, 1)]).await;
    while get(&behind, stage.x).await == 0 {
        time::sleep(LOOK).await;
    }
    // Half of a transaction.
    assert_eq!(get(&behind, stage.y).await, 0);
    let mut endings = Vec::new();
    for level in [Level::Snapshot, Level::Optimistic] {
        let t = behind.begin(level);
        assert_eq!((read(&t, stage.x).await, read(&t, stage.y).await), (1, 0));
        endings.push(tokio::spawn(async move { t.commit().await }));
    }
    relay.set(Weather::default());
    for ending in endings {
        let ended = ending.await.unwrap().unwrap();
        assert!(matches!(ended, Decided::Conflict(_)), "{ended:?}");
    }
}

#[tokio::test]
async fn what_is_written_because_of_snapshots_may_be_skewed_and_in_transactions_not() {
    let stage = Stage::set().await;
    let (one, two) = (stage.client(1).await, stage.client(2).await);
    // Each writes one object if both are 0.
    let begin = async |cluster: &Cluster, level| {
        let t = cluster.begin(level);
        assert_eq!((read(&t, stage.x).await, read(&t, stage.y).await), (0, 0));
        t
    };
    let both = async || {
        let t = two.begin(Level::Locks);
        (read(&t, stage.x).await, read(&t, stage.y).await)
    };
    for level in [Level::Optimistic, Level::Locks] {
        let (first, second) = (begin(&one, level).await, begin(&two, level).await);
        first.put(stage.x, single(1)).await.unwrap();
        assert!(is_committed(first.commit().await.unwrap()));
        let is_second = match second.put(stage.y, single(1)).await {
            Ok(()) => is_committed(second.commit().await.unwrap()),
            Err(error) => error.kind() != ErrorKind::Conflict,
        };
        assert!(!is_second, "{level:?}");
        assert_eq!(both().await, (1, 0));
        write(&one, &[(stage.x, 0)]).await;
    }
    for cluster in [&one, &two] {
        stage.copied_by(cluster).await;
    }
    let (first, second) = (begin(&one, Level::Snapshot).await, begin(&two, Level::Snapshot).await);
    assert!(is_committed(first.commit().await.unwrap()) && is_committed(second.commit().await.unwrap()));
    write(&one, &[(stage.x, 1)]).await;
    write(&two, &[(stage.y, 1)]).await;
    assert_eq!(both().await, (1, 1));
}

#[tokio::test]
async fn transactions_with_locks_wait_where_others_conflict() {
    let stage = Stage::set().await;
    let (one, two) = (stage.client(1).await, stage.client(2).await);
    let (first, second) = (one.begin(Level::Optimistic), two.begin(Level::Optimistic));
    for (t, value) in [(&first, 1), (&second, 2)] {
        assert_eq!(read(t, stage.x).await, 0);
        t.put(stage.x, single(value)).await.unwrap();
    }
    assert!(is_committed(first.commit().await.unwrap()));
    assert!(matches!(second.commit().await.unwrap(), Decided::Conflict(_)));

    let first = one.begin(Level::Locks);
    // The younger one waits.
    let second = loop {
        let t = two.begin(Level::Locks);
        if t.id() > first.id() {
            break t;
        }
        time::sleep(LOOK).await;
    };
    let seen = first.get_for_update(stage.x).await.unwrap();
    assert_eq!(value(seen.as_ref()).unwrap(), Some(1));
    let waiting = tokio::spawn(async move {
        let seen = second.get_for_update(stage.x).await.unwrap();
        second.put(stage.x, single(3)).await.unwrap();
        (value(seen.as_ref()).unwrap(), second.commit().await.unwrap())
    });
    for _ in 0..ROUNDS {
        assert_eq!(look(&two, stage.x).await, 1);
    }
    assert!(!waiting.is_finished());
    first.put(stage.x, single(2)).await.unwrap();
    assert!(is_committed(first.commit().await.unwrap()));
    let (seen, ended) = waiting.await.unwrap();
    assert_eq!(seen, Some(2));
    assert!(is_committed(ended));
    assert_eq!(look(&one, stage.x).await, 3);
}

#[tokio::test]
async fn writes_of_several_clients_may_be_seen_in_any_order() {
    let stage = Stage::set().await;
    let ((one, relay_of_one), (two, relay_of_two)) = (stage.apart(1).await, stage.apart(2).await);
    let third = stage.client(1).await;
    for cluster in [&one, &two] {
        stage.copied_by(cluster).await;
    }
    relay_of_one.set(HELD);
    relay_of_two.set(HELD);
    let writing = [(one.clone(), stage.x), (two.clone(), stage.y)]
        .map(|(cluster, oid)| tokio::spawn(async move { cluster.put(oid, single(1)).await }));
    for oid in [stage.x, stage.y] {
        while look(&third, oid).await == 0 {
            time::sleep(LOOK).await;
        }
    }
    // Each sees what it has written, and not what the other has, though both are durable.
    assert_eq!((get(&one, stage.x).await, get(&one, stage.y).await), (1, 0));
    assert_eq!((get(&two, stage.y).await, get(&two, stage.x).await), (1, 0));
    relay_of_one.set(Weather::default());
    relay_of_two.set(Weather::default());
    for writing in writing {
        writing.await.unwrap().unwrap();
    }
    // That is PRAM, and with transactions it could not be.
    let seen = |kinds: [Kind; 2], steps: [[Step; 2]; 2]| {
        let operations = (1..).zip(kinds.into_iter().chain(kinds)).zip(steps.into_iter().flatten());
        let operations = operations.map(|((number, kind), step)| {
            let mut operation = Operation::invoked(number, 1 + (number - 1) / 2, kind, number);
            operation.steps.push(step);
            operation.returned(Outcome::Ok, number);
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
    let mut stage = Stage::set().await;
    let link = stage.link_of_peer(1).await;
    let (reader, writer, third) = (stage.client(1).await, stage.client(2).await, stage.client(2).await);
    stage.copied_by(&reader).await;
    assert_eq!((glance(&reader, stage.x).await, glance(&reader, stage.y).await), (0, 0));
    let relay = stage.ground.relay(Server::Brick(1));
    relay.set(Weather { only: Some(link), ..HELD });
    writer.put(stage.x, single(1)).await.unwrap();
    let writing = {
        let (writer, y) = (writer.clone(), stage.y);
        tokio::spawn(async move { writer.put(y, single(1)).await })
    };
    // The first is durable, and the reader has not heard of it: so the second, which would reach it, is not released.
    for _ in 0..ROUNDS {
        assert_eq!((look(&third, stage.x).await, look(&third, stage.y).await), (1, 0));
        assert_eq!((get(&reader, stage.x).await, get(&reader, stage.y).await), (0, 0));
    }
    // What a cache has may be older than what was looked at before.
    assert_eq!(glance(&reader, stage.x).await, 0);
    assert!(!writing.is_finished());
    relay.set(Weather::default());
    while get(&reader, stage.y).await == 0 {
        time::sleep(LOOK).await;
    }
    assert_eq!(get(&reader, stage.x).await, 1);
    writing.await.unwrap().unwrap();
    while glance(&reader, stage.x).await == 0 {
        time::sleep(LOOK).await;
    }
}
