//! Clusters in one process: bricks in memory or on disk, peer servers before them, and clients.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::{Client, CommitOutcome, ConnectOptions, ErrorKind, IsolationLevel, Oid, PlacementHint};
use model::{ClassId, NodeId, Object, PageId, SpaceId};
use node::cluster_view::{ClusterView, SpaceView};
use node::node_placement::{BrickId, NodePlacement, PlacementSnapshot};
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use wire::transport::Address;

struct World {
    cluster_view: Arc<ClusterView>,
    bricks: Vec<Brick>,
    peers: Vec<PeerServer>,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

impl World {
    /// A cluster with a logical node at each brick; in memory, or in directories of `dir`.
    async fn start(bricks: u32, peers: u64, dir: Option<&Path>) -> Self {
        let store = |number| match dir {
            Some(dir) => Store::open(&dir.join(format!("brick-{number}")), Options::default()).unwrap(),
            None => Store::in_memory(Options::default()).unwrap(),
        };
        Self::start_with(bricks, peers, &store).await
    }

    /// Like `start`, with these stores.
    async fn start_with(bricks: u32, peers: u64, store: &dyn Fn(u32) -> Store) -> Self {
        let level =
            std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::ERROR);
        let log = tracing_subscriber::fmt().with_max_level(level);
        // The first test of a process sets it; for the others this fails.
        let _ = log.with_test_writer().try_init();
        let numbers = AtomicU64::new(100);
        let realm = ClusterView::new(move |count| {
            let first = numbers.fetch_add(count, Ordering::Relaxed);
            Box::pin(async move { Ok(first) })
        });
        let nodes: Vec<NodeId> = (1..=bricks).map(NodeId).collect();
        realm.set_spaces([SpaceView { id: SpaceId(1), name: "main".to_owned(), nodes: nodes.clone() }]);
        let mut world = Self { cluster_view: realm, bricks: Vec::new(), peers: Vec::new() };
        let mut map = PlacementSnapshot::default();
        for number in 1..=bricks {
            let brick =
                Brick::start_in(world.cluster_view.clone(), BrickId(number), store(number), config()).await.unwrap();
            map.bricks.insert(BrickId(number), brick.addresses()[0].clone());
            map.nodes.insert(NodeId(number), NodePlacement { brick: BrickId(number), epoch: 1, moves: 0 });
            world.bricks.push(brick);
        }
        world.cluster_view.placement.set(map);
        for number in 1..=peers {
            // Two shards.
            let config = Config { threads: 2, ..config() };
            world.peers.push(PeerServer::start(world.cluster_view.clone(), number, config).await.unwrap());
        }
        world
    }

    fn url(&self) -> String {
        let host = |peer: &PeerServer| match &peer.addresses()[0] {
            Address::Tcp(host) => host.clone(),
            other => other.to_string(),
        };
        format!("mortar://{}/main", self.peers.iter().map(host).collect::<Vec<_>>().join(","))
    }

    async fn client(&self) -> Client {
        Client::connect(&self.url()).await.unwrap()
    }

    async fn end(self) {
        for peer in self.peers {
            peer.shutdown().await.unwrap();
        }
        for brick in self.bricks {
            brick.shutdown().await.unwrap();
        }
    }
}

fn number(object: Option<Object>) -> u64 {
    std::str::from_utf8(&object.unwrap().data).unwrap().parse().unwrap()
}

/// The number of an object, for a transaction: it fails if the object does not exist yet.
fn counter_value(object: Option<Object>) -> client::Result<u64> {
    let missing = || client::Error::new(ErrorKind::NotFound, "there is no such counter");
    object.ok_or_else(missing).map(|object| number(Some(object)))
}

fn blob(number: u64) -> Object {
    Object::blob(number.to_string().into())
}

/// Reads objects in one transaction that is validated.
///
/// A commit is acknowledged before all of its bricks have applied it. Therefore, a read that is not validated may
/// return an older state. A validated read waits for the outcome.
async fn read_validated(cluster: &Client, oids: &[Oid]) -> Vec<Option<Object>> {
    let read = |t: client::Transaction| async move {
        let mut objects = Vec::new();
        for oid in oids {
            objects.push(t.get(*oid).await?);
        }
        Ok(objects)
    };
    cluster.transact(read).await.unwrap()
}

/// Creates an object at each logical node, and binds it to a name.
async fn counters(cluster: &Client, count: u32) -> Vec<Oid> {
    let names: Vec<String> = (1..=count).map(|node| format!("counters/{node}")).collect();
    cluster
        .transact(|t| {
            let names = &names;
            async move {
                for (node, name) in (1..).zip(names) {
                    let oid = t.create_object(ClassId::NONE, blob(0), PlacementHint::At(NodeId(node)))?;
                    t.bind(name, oid).await?;
                }
                Ok(())
            }
        })
        .await
        .unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let mut oids = Vec::new();
    for name in &names {
        oids.push(t.resolve(name).await.unwrap().unwrap());
    }
    oids
}

#[tokio::test]
async fn committed_objects_are_read_by_other_clients() {
    let world = World::start(2, 2, None).await;
    let (one, other) = (world.client().await, world.client().await);
    let oids = counters(&one, 2).await;
    assert_ne!(oids[0].page().node, oids[1].page().node);
    let t = one.begin(IsolationLevel::Optimistic);
    for oid in &oids {
        t.put(*oid, blob(7)).await.unwrap();
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    for object in read_validated(&other, &oids).await {
        assert_eq!(number(object), 7);
    }
    // After the validated read, reads outside of transactions return the objects, too.
    for oid in &oids {
        assert_eq!(number(other.read_latest(*oid).await.unwrap()), 7);
        assert_eq!(number(other.read_cached(*oid).await.unwrap()), 7);
    }
    world.end().await;
}

/// A peer server gives each new connection to the shard with the fewest.
#[tokio::test]
async fn clients_at_all_shards_change_the_same_object() {
    let world = World::start(1, 1, None).await;
    let clients = [world.client().await, world.client().await, world.client().await, world.client().await];
    let oid = counters(&clients[0], 1).await[0];
    for round in 0..5 {
        for (at, client) in clients.iter().enumerate() {
            let add = |t: client::Transaction| async move {
                let before = counter_value(t.get(oid).await?)?;
                t.put(oid, blob(before + 1)).await?;
                Ok(before)
            };
            assert_eq!(client.transact(add).await.unwrap(), round * 4 + at as u64);
        }
    }
    let admin = client::AdminClient::connect(&world.url()).await.unwrap();
    let status = admin.status().await.unwrap();
    assert_eq!(status.metric("transactions_committed_total"), Some(21), "the sum of all shards");
    assert_eq!(status.metric("bricks_unreachable"), Some(0));
    world.end().await;
}

#[tokio::test]
async fn transfers_between_bricks_keep_the_sum() {
    let dir = tempfile::tempdir().unwrap();
    for dir in [None, Some(dir.path())] {
        let world = World::start(3, 2, dir).await;
        let setup = world.client().await;
        let oids = counters(&setup, 3).await;
        let mut tasks = Vec::new();
        for task in 0..6_u64 {
            let (cluster, oids) = (world.client().await, oids.clone());
            tasks.push(tokio::spawn(async move {
                for step in 0..30 {
                    let (from, to) = (oids[(task + step) as usize % 3], oids[(task + 2 * step + 1) as usize % 3]);
                    cluster
                        .transact(|t| async move {
                            let (a, b) = (counter_value(t.get(from).await?)?, counter_value(t.get(to).await?)?);
                            t.put(from, blob(a + 1)).await?;
                            if from != to {
                                t.put(to, blob(b + 1)).await?;
                            }
                            Ok(())
                        })
                        .await
                        .unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let expected: u64 = (0..6_u64)
            .flat_map(|task| {
                (0..30_u64).map(move |step| if (task + step) % 3 == (task + 2 * step + 1) % 3 { 1 } else { 2 })
            })
            .sum();
        let sum: u64 = read_validated(&setup, &oids).await.into_iter().map(number).sum();
        assert_eq!(sum, expected);
        world.end().await;
    }
}

#[tokio::test]
async fn stale_read_is_a_conflict_that_names_the_object() {
    let world = World::start(1, 1, None).await;
    let (one, other) = (world.client().await, world.client().await);
    let oid = counters(&one, 1).await[0];
    let slow = other.begin(IsolationLevel::Optimistic);
    assert_eq!(number(slow.get(oid).await.unwrap()), 0);
    one.transact(|t| async move { t.put(oid, blob(1)).await }).await.unwrap();
    slow.put(oid, blob(5)).await.unwrap();
    match slow.commit().await.unwrap() {
        CommitOutcome::Conflict(clash) => assert!(clash.to_string().contains(&oid.to_string()), "{clash}"),
        other => panic!("{other:?}"),
    }
    world.end().await;
}

#[tokio::test]
async fn lock_makes_other_transactions_wait() {
    let world = World::start(2, 1, None).await;
    let cluster = world.client().await;
    let oids = counters(&cluster, 2).await;
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (cluster, oids) = (world.client().await, oids.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                loop {
                    let t = cluster.begin(IsolationLevel::Locks);
                    let tried = async {
                        for oid in &oids {
                            let old = number(t.get_for_update(*oid).await?);
                            t.put(*oid, blob(old + 1)).await?;
                        }
                        t.commit().await
                    };
                    match tried.await {
                        Ok(CommitOutcome::Committed(_)) => break,
                        Ok(_) => {}
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for oid in oids {
        assert_eq!(number(cluster.read_latest(oid).await.unwrap()), 40);
    }
    world.end().await;
}

#[tokio::test]
async fn timeout_of_a_lock_request_names_the_lock() {
    let world = World::start(1, 1, None).await;
    let mut patience = ConnectOptions::default();
    patience.timeout = Duration::from_millis(500);
    let (holder, other) = (world.client().await, Client::connect_with(&world.url(), patience).await.unwrap());
    let oid = counters(&holder, 1).await[0];
    let holds = holder.begin(IsolationLevel::Locks);
    // A younger transaction does not wound the holder of the lock.
    let waits = loop {
        let waits = other.begin(IsolationLevel::Locks);
        if waits.id() > holds.id() {
            break waits;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(number(holds.get_for_update(oid).await.unwrap()), 0);
    let late = waits.get_for_update(oid).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Unavailable);
    assert!(late.message().contains(&format!("no lock of {oid}")), "{late}");
    for t in [waits, holds] {
        t.abort();
    }
    // To replace or delete an object takes its lock at once, whether or not it was read.
    for deletes in [false, true] {
        let holds = holder.begin(IsolationLevel::Locks);
        match deletes {
            true => holds.delete(oid).await.unwrap(),
            false => holds.put(oid, blob(1)).await.unwrap(),
        }
        let waits = loop {
            let waits = other.begin(IsolationLevel::Locks);
            if waits.id() > holds.id() {
                break waits;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        assert_eq!(waits.get_for_update(oid).await.unwrap_err().kind(), ErrorKind::Unavailable);
        for t in [waits, holds] {
            t.abort();
        }
    }
    world.end().await;
}

#[tokio::test]
async fn snapshot_sees_one_time() {
    let world = World::start(2, 1, None).await;
    let mut options = ConnectOptions::default();
    options.snapshots = true;
    let writer = world.client().await;
    let reader = Client::connect_with(&world.url(), options).await.unwrap();
    let oids = counters(&writer, 2).await;
    let wanted = oids.clone();
    let writing = tokio::spawn(async move {
        for value in 1..=50 {
            let oids = &oids;
            writer
                .transact(|t| async move {
                    for oid in oids {
                        t.put(*oid, blob(value)).await?;
                    }
                    Ok(())
                })
                .await
                .unwrap();
        }
    });
    let (mut seen, mut committed) = (0, 0);
    while !writing.is_finished() || committed == 0 {
        // Cached objects are read without a pause, so the loop would not yield.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let t = reader.begin(IsolationLevel::Snapshot);
        let read = async { Ok::<_, client::Error>((t.get(wanted[0]).await?, t.get(wanted[1]).await?)) };
        let (a, b) = match read.await {
            Ok((a, b)) => (number(a), number(b)),
            Err(error) if error.kind() == ErrorKind::Conflict => continue,
            Err(error) => panic!("{error}"),
        };
        if let CommitOutcome::Committed(_) = t.commit().await.unwrap() {
            assert_eq!(a, b);
            assert!(seen <= a, "a snapshot is older than the previous one");
            (seen, committed) = (a, committed + 1);
        }
    }
    writing.await.unwrap();
    assert!(seen > 0, "no snapshot contains a concurrent write");
    world.end().await;
}

#[tokio::test]
async fn references_to_created_objects_are_permanent_after_the_commit() {
    use model::{FieldNumber, RecordBuilder, RecordRef, Value, ValueRef};
    let world = World::start(2, 1, None).await;
    let cluster = world.client().await;
    let class = ClassId(5);
    let t = cluster.begin(IsolationLevel::Optimistic);
    let leaf = t.create_blob("leaf").unwrap();
    let record = |leaf| {
        let mut record = RecordBuilder::new();
        record.set(FieldNumber(1), ValueRef::Reference(leaf)).unwrap();
        Object::record(class, record.build().unwrap())
    };
    let root = t.create_object(class, record(leaf), PlacementHint::Anywhere).unwrap();
    t.bind("root", root).await.unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let (leaf, root) = (t.real_oid(leaf).unwrap(), t.real_oid(root).unwrap());
    let read = |t: client::Transaction| async move { Ok((t.resolve("root").await?, t.get(root).await?)) };
    let (bound, found) = world.client().await.transact(read).await.unwrap();
    assert_eq!(bound, Some(root));
    let found = found.unwrap();
    let field = RecordRef::new(&found.data).unwrap().field(FieldNumber(1)).unwrap().unwrap();
    assert!(matches!(field, ValueRef::Reference(oid) if oid == leaf), "{field:?}");
    // References in the keys and in the values of maps are replaced, too.
    let t = cluster.begin(IsolationLevel::Optimistic);
    let new = t.create_blob("new").unwrap();
    let maps = [(Value::Reference(new), Value::Null), (Value::Int64(1), Value::Reference(new))];
    let maps = maps.map(|entry| {
        let mut record = RecordBuilder::new();
        record.set_value(FieldNumber(1), &Value::Map([entry].into())).unwrap();
        t.create_object(class, Object::record(class, record.build().unwrap()), PlacementHint::Anywhere).unwrap()
    });
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let new = t.real_oid(new).unwrap();
    let expected = [(Value::Reference(new), Value::Null), (Value::Int64(1), Value::Reference(new))];
    for (map, entry) in maps.into_iter().zip(expected) {
        let found = cluster.read_latest(t.real_oid(map).unwrap()).await.unwrap().unwrap();
        let field = RecordRef::new(&found.data).unwrap().field(FieldNumber(1)).unwrap().unwrap();
        assert_eq!(field.to_value().unwrap(), Value::Map([entry].into()));
    }
    // With a placement hint, objects are created in the same page.
    let t = cluster.begin(IsolationLevel::Optimistic);
    let near = t.create_object(ClassId::NONE, blob(1), PlacementHint::Near(root)).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    assert_eq!(t.real_oid(near).unwrap().page(), root.page());
    world.end().await;
}

#[tokio::test]
async fn object_of_another_space_is_not_read() {
    let world = World::start(1, 1, None).await;
    let cluster = world.client().await;
    let oid = counters(&cluster, 1).await[0];
    let foreign = Oid::new(ClassId::NONE, PageId { space: SpaceId(2), ..oid.page() }, oid.slot());
    for refused in [cluster.read_latest(foreign).await, cluster.read_cached(foreign).await] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    assert_eq!(cluster.names_of(foreign).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(number(cluster.read_latest(oid).await.unwrap()), 0);
    world.end().await;
}

#[tokio::test]
async fn object_that_is_too_large_is_not_sent() {
    let world = World::start(1, 1, None).await;
    let cluster = world.client().await;
    let oid = counters(&cluster, 1).await[0];
    let large = Object::blob(vec![7; model::limits::OBJECT + 1].into());
    let error = cluster.put(oid, large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    assert_eq!(number(cluster.get(oid).await.unwrap()), 0);
    world.end().await;
}

/// Regression: the peer server ended the connection because of such a write, which was sent again after each reconnect.
#[tokio::test]
async fn object_that_cannot_stand_at_its_identifier_is_not_sent() {
    let world = World::start(1, 1, None).await;
    let cluster = world.client().await;
    let oid = counters(&cluster, 1).await[0];
    let record = Object::record(ClassId(5), model::RecordBuilder::new().build().unwrap());
    let of_record = Oid::new(record.class, oid.page(), oid.slot());
    let root = cluster.begin(IsolationLevel::Optimistic).root().unwrap();
    for (at, object) in [(of_record, blob(1)), (oid, record), (root, blob(1))] {
        let error = cluster.put(at, object).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    cluster.put(oid, blob(2)).await.unwrap();
    assert_eq!(number(cluster.get(oid).await.unwrap()), 2);
    world.end().await;
}

#[tokio::test]
async fn error_of_a_body_that_has_aborted_its_transaction_is_returned() {
    let world = World::start(1, 1, None).await;
    let cluster = world.client().await;
    let failed = cluster.transact(|t| async move {
        t.abort();
        Err::<(), _>(client::Error::new(ErrorKind::NotFound, "there is no such counter"))
    });
    let error = failed.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    world.end().await;
}

#[tokio::test]
async fn object_that_is_created_while_its_transaction_begins_to_commit_is_not_lost() {
    let world = World::start(1, 1, None).await;
    let oid = counters(&world.client().await, 1).await[0];
    let cluster = world.client().await;
    // From then on it knows the status of the space. It has no pages yet.
    cluster.transact(|t| async move { t.get(oid).await.map(drop) }).await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    let create = |value| t.create_object(ClassId::NONE, blob(value), PlacementHint::Anywhere).unwrap();
    let first = create(1);
    let mut commit = Box::pin(t.commit());
    tokio::select! {
        biased;
        outcome = &mut commit => panic!("it needs a page: {outcome:?}"),
        // It is polled once.
        () = std::future::ready(()) => {}
    }
    let second = create(2);
    let error = commit.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    for (oid, value) in [(first, 1), (second, 2)] {
        assert_eq!(number(cluster.read_latest(t.real_oid(oid).unwrap()).await.unwrap()), value);
    }
    world.end().await;
}

/// Regression: the logical node was scanned anew.
#[tokio::test]
async fn scan_goes_on_where_it_was_when_a_portion_was_not_awaited() {
    let world = World::start(1, 1, None).await;
    let cluster = world.client().await;
    let record = Object::record(ClassId(5), model::RecordBuilder::new().build().unwrap());
    let t = cluster.begin(IsolationLevel::Optimistic);
    for _ in 0..1_500 {
        t.create_object(record.class, record.clone(), PlacementHint::Anywhere).unwrap();
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let mut found = cluster.find([record.class], None);
    let mut oids: Vec<Oid> = Vec::new();
    while let Some(portion) = found.next().await.unwrap() {
        oids.extend(portion.into_iter().map(|(oid, _)| oid));
        assert!(oids.len() <= 1_500, "objects are found twice");
        tokio::select! {
            biased;
            _ = found.next() => {}
            () = std::future::ready(()) => {}
        }
    }
    let distinct: std::collections::BTreeSet<Oid> = oids.iter().copied().collect();
    assert_eq!((oids.len(), distinct.len()), (1_500, 1_500));
    world.end().await;
}

#[tokio::test]
async fn scan_returns_matching_objects_of_all_bricks() {
    use model::{Comparison, FieldNumber, Filter, Operand, RecordBuilder, Value};
    let world = World::start(3, 1, None).await;
    let cluster = world.client().await;
    let (class, other) = (ClassId(5), ClassId(6));
    let record = |class, value: i64| {
        let mut record = RecordBuilder::new();
        record.set(FieldNumber(1), value).unwrap();
        Object::record(class, record.build().unwrap())
    };
    let t = cluster.begin(IsolationLevel::Optimistic);
    let mut created = Vec::new();
    for value in 0..3_000 {
        let node = PlacementHint::At(NodeId(1 + value % 3));
        created.push(t.create_object(class, record(class, value.into()), node).unwrap());
    }
    t.create_object(other, record(other, 7), PlacementHint::Anywhere).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    // A deleted object is not found.
    let gone = t.real_oid(created[11]).unwrap();
    cluster.transact(|t| async move { t.delete(gone).await }).await.unwrap();
    let below = Filter::Compare(FieldNumber(1), Comparison::Less, Operand::new(Value::Int64(100)).unwrap());
    // The commit is acknowledged before all bricks have applied it. Validated reads wait for that.
    for oid in [t.real_oid(created[0]).unwrap(), t.real_oid(created[1]).unwrap(), gone] {
        cluster.transact(|t| async move { t.get(oid).await.map(drop) }).await.unwrap();
    }
    for (filter, count) in [(None, 2_999), (Some(below), 99)] {
        let (mut found, mut oids) = (cluster.find([class], filter), std::collections::BTreeSet::new());
        while let Some(portion) = found.next().await.unwrap() {
            oids.extend(portion.into_iter().map(|(oid, _)| oid));
        }
        assert_eq!((oids.len(), found.examined_count()), (count, 2_999));
        assert!(oids.iter().all(|oid| oid.class() == class && *oid != gone));
    }
    world.end().await;
}

#[tokio::test]
async fn writes_outside_of_transactions_are_seen_in_order() {
    let world = World::start(2, 2, None).await;
    let (writer, reader) = (world.client().await, world.client().await);
    let oids = counters(&writer, 2).await;
    let (first, second) = (oids[0], oids[1]);
    let writing = tokio::spawn(async move {
        for value in 1..=40 {
            writer.put(first, blob(value)).await.unwrap();
            writer.put(second, blob(value)).await.unwrap();
        }
    });
    while !writing.is_finished() {
        // The objects are read in the opposite order, so the object that is written first is never older.
        let b = number(reader.get(second).await.unwrap());
        let a = number(reader.get(first).await.unwrap());
        assert!(a >= b, "read {b} from the second object, and then {a} from the first");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    writing.await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn transactions_of_many_megabytes_commit_at_several_bricks() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(2, 1, Some(dir.path())).await;
    let cluster = world.client().await;
    let large = |fill: u8| Object::blob(vec![fill; model::limits::OBJECT].into());
    let t = cluster.begin(IsolationLevel::Optimistic);
    let mut created = Vec::new();
    for fill in 0..4 {
        let hint = PlacementHint::At(NodeId(1 + u32::from(fill) % 2));
        created.push((fill, t.create_object(ClassId::NONE, large(fill), hint).unwrap()));
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    let oids: Vec<(u8, Oid)> = created.into_iter().map(|(fill, oid)| (fill, t.real_oid(oid).unwrap())).collect();
    cluster.close();
    world.end().await;
    let world = World::start(2, 1, Some(dir.path())).await;
    let cluster = world.client().await;
    for (fill, oid) in oids {
        assert_eq!(read_validated(&cluster, &[oid]).await, [Some(large(fill))]);
    }
    let t = cluster.begin(IsolationLevel::Optimistic);
    let too_large = Object::blob(vec![0; model::limits::OBJECT + 1].into());
    assert_eq!(
        t.create_object(ClassId::NONE, too_large, PlacementHint::Anywhere).unwrap_err().kind(),
        ErrorKind::TooLarge
    );
    world.end().await;
}

#[tokio::test]
async fn full_brick_refuses_writes_and_serves_reads() {
    let options = Options { memory_bytes: 8 << 20, ..Options::default() };
    let world = World::start_with(1, 1, &|_| Store::in_memory(options.clone()).unwrap()).await;
    let mut patience = ConnectOptions::default();
    patience.timeout = Duration::from_secs(2);
    let cluster = Client::connect_with(&world.url(), patience).await.unwrap();
    let oid = counters(&cluster, 1).await[0];
    let large = || Object::blob(vec![7; 1 << 20].into());
    let (mut refused, mut stored) = (None, Vec::new());
    for _ in 0..16 {
        let t = cluster.begin(IsolationLevel::Optimistic);
        let made = t.create_object(ClassId::NONE, large(), PlacementHint::Anywhere).unwrap();
        match t.commit().await {
            Ok(CommitOutcome::Committed(_)) => stored.push(t.real_oid(made).unwrap()),
            Ok(other) => refused = Some(format!("{other:?}")),
            Err(error) => refused = Some(error.to_string()),
        }
        if refused.is_some() {
            break;
        }
    }
    // The first commit that does not fit may end in another way. The next one is refused.
    assert!(refused.is_some());
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.create_object(ClassId::NONE, large(), PlacementHint::Anywhere).unwrap();
    let full = t.commit().await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full, "the transaction did not commit and never will");
    assert!(full.to_string().contains("no room"), "{full}");
    // Stored objects can be read, also by clients without copies.
    assert_eq!(number(cluster.get(oid).await.unwrap()), 0);
    assert_eq!(number(world.client().await.get(oid).await.unwrap()), 0);
    // Smaller replacements and deletions make room: outside of transactions, and in a transaction that also creates an
    // object.
    cluster.put(stored[0], Object::blob(vec![7; 900 << 10].into())).await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.delete(stored[1]).await.unwrap();
    t.delete(stored[2]).await.unwrap();
    t.create_object(ClassId::NONE, blob(5), PlacementHint::Anywhere).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    cluster.transact(|t| async move { t.delete(oid).await }).await.unwrap();
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.create_object(ClassId::NONE, large(), PlacementHint::Anywhere).unwrap();
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    world.end().await;
}

#[tokio::test]
async fn objects_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let world = World::start(2, 1, Some(dir.path())).await;
    let cluster = world.client().await;
    let oids = counters(&cluster, 2).await;
    let (a, b) = (oids[0], oids[1]);
    for value in 1..=20 {
        let both = |t: client::Transaction| async move {
            t.put(a, blob(value)).await?;
            t.put(b, blob(value)).await
        };
        cluster.transact(both).await.unwrap();
    }
    cluster.close();
    world.end().await;
    let world = World::start(2, 1, Some(dir.path())).await;
    let cluster = world.client().await;
    let found: Vec<u64> = read_validated(&cluster, &oids).await.into_iter().map(number).collect();
    assert_eq!(found, [20, 20]);
    cluster.transact(|t| async move { t.put(a, blob(21)).await }).await.unwrap();
    world.end().await;
}

/// Locks objects with a client that `leave` ends, and checks that the locks and copies of this client block no writes.
async fn check_locks_released(leave: impl AsyncFnOnce(Client, client::Transaction)) {
    let world = World::start(2, 1, None).await;
    let (gone, other) = (world.client().await, world.client().await);
    let oids = counters(&other, 2).await;
    let t = gone.begin(IsolationLevel::Locks);
    for oid in &oids {
        assert_eq!(number(gone.get(*oid).await.unwrap()), 0);
        assert_eq!(number(t.get_for_update(*oid).await.unwrap()), 0);
    }
    leave(gone, t).await;
    // This is shorter than the time after which locks expire and the lease of copies ends.
    let mut options = ConnectOptions::default();
    options.timeout = Duration::from_secs(3);
    let impatient = Client::connect_with(&world.url(), options).await.unwrap();
    for value in 1..=3 {
        for oid in &oids {
            impatient.put(*oid, blob(value)).await.unwrap();
        }
    }
    world.end().await;
}

#[tokio::test]
async fn closed_client_releases_its_locks() {
    check_locks_released(async |client: Client, _| client.close()).await;
}

#[tokio::test]
async fn dropped_client_releases_its_locks() {
    check_locks_released(async |client: Client, t| drop((client, t))).await;
}
