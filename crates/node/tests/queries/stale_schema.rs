//! Classes that some processes do not know yet.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, CommitOutcome, ErrorKind, IsolationLevel};
use meta::catalog::ClassDefinition;
use meta::{
    Expect, Key, KeyChange, MetaSession, MetaSessionId, MetaSnapshot, MetaStore, Pending, Prefix, Revision, Watch,
    WatchEvent, WriteOutcome,
};
use model::ClassId;
use node::PeerServer;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time;

use super::world::{PERSON, World, create, expect_committed, names, object, parse, person};

/// The class that is defined during the tests. It extends students.
const PUPIL: ClassId = ClassId(3);

/// A catalogue whose watches report no changes while it is held. Reads return the changes.
struct Gate {
    store: Arc<dyn MetaStore>,
    held: watch::Sender<bool>,
    asked: watch::Sender<u64>,
}

impl Gate {
    fn new(store: Arc<dyn MetaStore>) -> Arc<Self> {
        Arc::new(Self { store, held: watch::Sender::new(false), asked: watch::Sender::new(0) })
    }

    fn hold(&self) {
        self.held.send_replace(true);
    }

    fn release(&self) {
        self.held.send_replace(false);
    }

    /// Waits until the schema was read more than `after` times. Fails if the work ends before that.
    async fn wait_until_asked<T>(&self, work: &JoinHandle<T>, after: u64) {
        let mut asked = self.asked.subscribe();
        while time::timeout(Duration::from_millis(5), asked.wait_for(|asked| *asked > after)).await.is_err() {
            assert!(!work.is_finished(), "the work has ended without a read of the schema");
        }
    }

    fn times_asked(&self) -> u64 {
        *self.asked.borrow()
    }
}

struct GatedWatch(Box<dyn Watch>, watch::Receiver<bool>);

impl Watch for GatedWatch {
    fn next(&mut self) -> Pending<'_, WatchEvent> {
        Box::pin(async move {
            let next = self.0.next().await;
            let _ = self.1.wait_for(|held| !held).await;
            next
        })
    }
}

impl MetaStore for Gate {
    fn read(&self, prefix: Prefix) -> Pending<'_, MetaSnapshot> {
        self.store.read(prefix)
    }

    fn get(&self, keys: Vec<Key>) -> Pending<'_, MetaSnapshot> {
        if keys.iter().any(|key| key.as_str().starts_with("schemas/")) {
            self.asked.send_modify(|asked| *asked += 1);
        }
        self.store.get(keys)
    }

    fn write(&self, expects: Vec<Expect>, changes: Vec<KeyChange>) -> Pending<'_, WriteOutcome> {
        self.store.write(expects, changes)
    }

    fn watch(&self, prefix: Prefix, after: Revision) -> Pending<'_, Box<dyn Watch>> {
        Box::pin(async move {
            let watch = self.store.watch(prefix, after).await?;
            Ok(Box::new(GatedWatch(watch, self.held.subscribe())) as Box<dyn Watch>)
        })
    }

    fn open_session(&self, ttl: Duration) -> Pending<'_, MetaSession> {
        self.store.open_session(ttl)
    }

    fn renew_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        self.store.renew_session(session)
    }

    fn end_session(&self, session: MetaSessionId) -> Pending<'_, ()> {
        self.store.end_session(session)
    }
}

/// Defines pupils, who are students. Processes whose catalogue is not held learn the class.
async fn define_pupils(world: &World) {
    define(world, "Pupil").await;
}

async fn define(world: &World, name: &str) {
    let class = ClassDefinition { name: name.to_owned(), parent: Some("Student".to_owned()), fields: vec![] };
    let defined = world.cluster_view.editor().unwrap().define("main", &[class]).await.unwrap();
    world.cluster_view.wait_for_revision(defined.revision).await.unwrap();
}

/// A peer server that learns no changes while its gate is held, and a client of it.
async fn late_peer(world: &World) -> (Arc<Gate>, PeerServer, Client) {
    let gate = Gate::new(world.cluster_view.editor().unwrap().store().clone());
    let peer = world.another_peer(gate.clone()).await;
    let url = format!("mortar://{}/main", peer.addresses()[0]);
    (gate, peer, Client::connect(&url).await.unwrap())
}

/// Creates a person, also if the client does not know the unique indexes yet.
async fn add(cluster: &Client, class: ClassId, name: &str) {
    let created = cluster.transact(|t| async move {
        t.create_object(class, object(class, &person(name, 7)), Default::default())?;
        Ok(())
    });
    created.await.unwrap();
}

#[tokio::test]
async fn query_waits_until_the_peer_server_knows_the_class() {
    let world = World::start(2, 4).await;
    create(&world.client().await, &[(PERSON, person("Ann", 30))]).await;
    let (gate, peer, cluster) = late_peer(&world).await;
    gate.hold();
    define_pupils(&world).await;
    create(&world.client().await, &[(PUPIL, person("Bob", 7))]).await;
    // A query of exactly one known class is not delayed.
    let ask = async |text: &str| {
        let query = query::Query::parse(text).unwrap();
        names(&cluster.query(&query).await.unwrap().all().await.unwrap())
    };
    assert_eq!(ask("from only Person").await, ["Ann"]);
    let (before, asking) = (gate.times_asked(), cluster.clone());
    let asked =
        tokio::spawn(async move { asking.query(&parse("age < 40 order by name")).await.unwrap().all().await.unwrap() });
    gate.wait_until_asked(&asked, before).await;
    assert!(!asked.is_finished(), "the peer server does not know the class of pupils yet");
    gate.release();
    assert_eq!(names(&asked.await.unwrap()), ["Ann", "Bob"]);
    assert_eq!(ask("from only Person").await, ["Ann"]);
    peer.shutdown().await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn long_query_also_waits_for_a_new_class() {
    let world = World::start(1, 2).await;
    let (gate, peer, cluster) = late_peer(&world).await;
    // The people do not fit into one portion, so unread sorted queries keep others from being sorted.
    let people: Vec<_> = (0..2_200).map(|number| (PERSON, person(&format!("Ann {number}"), 30))).collect();
    create(&world.client().await, &people).await;
    let sorted = parse("order by name");
    let mut unread = Vec::new();
    for _ in 0..8 {
        unread.push(cluster.query(&sorted).await.unwrap());
    }
    let asking = cluster.clone();
    let asked = tokio::spawn(async move { asking.query(&parse("age < 10 order by name")).await?.all().await });
    // This is longer than the maximum wait for changes of the schema.
    time::sleep(Duration::from_secs(11)).await;
    assert!(!asked.is_finished());
    gate.hold();
    define_pupils(&world).await;
    create(&world.client().await, &[(PUPIL, person("Bob", 7))]).await;
    let before = gate.times_asked();
    drop(unread);
    gate.wait_until_asked(&asked, before).await;
    gate.release();
    assert_eq!(names(&asked.await.unwrap().unwrap()), ["Bob"]);
    peer.shutdown().await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn values_stay_unique_while_a_peer_server_does_not_know_a_class() {
    let world = World::start(2, 4).await;
    let editor = world.cluster_view.editor().unwrap();
    let made = editor.create_index("main", "by_name", "Person", &["name"], true).await.unwrap();
    world.cluster_view.wait_for_revision(made.revision).await.unwrap();
    let (gate, peer, cluster) = late_peer(&world).await;
    add(&cluster, PERSON, "Ann").await;
    gate.hold();
    define_pupils(&world).await;
    add(&world.client().await, PUPIL, "Bob").await;
    // Neither the peer server nor the client knows the class of pupils yet.
    let t = cluster.begin(IsolationLevel::Optimistic);
    t.create_object(PERSON, object(PERSON, &person("Bob", 50)), Default::default()).unwrap();
    let refused = t.commit().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists, "{refused}");
    gate.release();
    // One that is of a new class itself is taken when the class is known.
    add(&cluster, PUPIL, "Cid").await;
    let refused = cluster.transact(|t| async move {
        t.create_object(PERSON, object(PERSON, &person("Cid", 50)), Default::default())?;
        Ok(())
    });
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::Exists);
    peer.shutdown().await.unwrap();
    world.end().await;
}

#[tokio::test]
async fn brick_accepts_objects_of_a_class_when_it_knows_it() {
    let mut gate = None;
    let world = World::start_with(1, 2, |catalogue| gate.insert(Gate::new(catalogue)).clone()).await;
    let gate = gate.unwrap();
    let editor = world.cluster_view.editor().unwrap();
    let made = editor.create_index("main", "by_name", "Person", &["name"], true).await.unwrap();
    world.cluster_view.wait_for_revision(made.revision).await.unwrap();
    let cluster = world.client().await;
    add(&cluster, PERSON, "Ann").await;
    // The brick reads the schema again for each class that it does not know.
    for (class, class_name, name) in [(PUPIL, "Pupil", "Bob"), (ClassId(PUPIL.0 + 1), "Graduate", "Cid")] {
        gate.hold();
        define(&world, class_name).await;
        // The value is free, and the peer server knows all classes. Only the brick does not know the class.
        let before = gate.times_asked();
        let adding = cluster.clone();
        let added = tokio::spawn(async move { add(&adding, class, name).await });
        gate.wait_until_asked(&added, before).await;
        assert!(!added.is_finished(), "the brick keeps no index of the class yet");
        gate.release();
        added.await.unwrap();
        let query = parse(&format!("name == '{name}'"));
        assert_eq!(names(&cluster.query(&query).await.unwrap().all().await.unwrap()), [name]);
    }
    world.end().await;
}

#[tokio::test]
async fn query_before_a_new_class_conflicts_with_its_objects() {
    let world = World::start(2, 4).await;
    let (cluster, other) = (world.client().await, world.client().await);
    let board = create(&cluster, &[(PERSON, person("Board", 0))]).await[0];
    let t = cluster.begin(IsolationLevel::Optimistic);
    let students = query::Query::parse("from Student").unwrap();
    assert_eq!(t.query(&students).await.unwrap().all().await.unwrap(), []);
    define_pupils(&world).await;
    // Another transaction creates a pupil and changes the board. A transaction that reads the changed board must
    // include the pupil.
    let writer = other.begin(IsolationLevel::Optimistic);
    writer.create_object(PUPIL, object(PUPIL, &person("Bob", 7)), Default::default()).unwrap();
    writer.put(board, object(PERSON, &person("Board", 1))).await.unwrap();
    expect_committed(&writer).await;
    let seen = loop {
        // A copy may be slightly outdated.
        let seen = cluster.get(board).await.unwrap().unwrap();
        if seen == object(PERSON, &person("Board", 1)) {
            break t.get(board).await.unwrap().unwrap();
        }
        time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(seen, object(PERSON, &person("Board", 1)));
    assert!(
        matches!(t.commit().await.unwrap(), CommitOutcome::Conflict(_)),
        "it has read the changed board, but its query does not include the pupil"
    );
    world.end().await;
}
