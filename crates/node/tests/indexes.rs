//! Indexes of a cluster in one process: they are built while clients write, searched, and removed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, PlacementHint};
use meta::catalog::{self, CatalogEditor, ClassDefinition, FieldDefinition, Parameters, SpaceOptions, Storage};
use meta::{Embedded, MetaStore};
use model::{
    ClassId, Error, ErrorKind, FieldNumber, NodeId, Object, RecordBuilder, RecordRef, Result, SpaceId, ValueRef,
};
use node::cluster_view::ClusterView;
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use query::key::KeyRange;
use store::{Options, Store};
use wire::cluster::{BuildIndex, IndexRange, Scan, Scanned};
use wire::frame::Raw;
use wire::link::{self, Caller, Limits, Link, Mailbox, NoService};
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::transport::{Address, Stream};

/// How long a wait may take before a test fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The interval of polls while a test waits.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const SPACE: SpaceId = SpaceId(1);
const PERSON: ClassId = ClassId(1);
const AGE: FieldNumber = FieldNumber(1);

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

struct World {
    cluster_view: Arc<ClusterView>,
    editor: CatalogEditor,
    id: catalog::BrickId,
    nodes: Vec<NodeId>,
    brick: Brick,
    caller: Caller,
}

impl World {
    /// A brick with two logical nodes of a space that has a class of people.
    async fn start(dir: Option<&Path>) -> Self {
        let level =
            std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::ERROR);
        let log = tracing_subscriber::fmt().with_max_level(level);
        // The first test of a process sets it; for the others this fails.
        let _ = log.with_test_writer().try_init();
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        let editor = CatalogEditor::new(catalogue.clone());
        editor.set_up(&Parameters::generate()).await.unwrap();
        let id = editor.add_brick(&["127.0.0.1:1".to_owned()], Storage::Durable).await.unwrap().value.id;
        let session = editor.store().open_session(Duration::from_secs(600)).await.unwrap().id;
        let start = editor.start_number().await.unwrap();
        editor.announce_brick(id, start, session).await.unwrap();
        let realm = ClusterView::follow(catalogue).await.unwrap();
        let options = SpaceOptions { nodes: Some(2), ..SpaceOptions::default() };
        let nodes = realm.create_space("main", options).await.unwrap().nodes.clone();
        let fields = vec![FieldDefinition::required("age", "int64".parse().unwrap())];
        let person = ClassDefinition { name: "Person".to_owned(), parent: None, fields };
        assert_eq!(editor.define("main", &[person]).await.unwrap().value[0].id, PERSON);
        let (brick, caller) = Self::serve(&realm, &editor, id, dir).await;
        Self { cluster_view: realm, editor, id, nodes, brick, caller }
    }

    async fn serve(
        realm: &Arc<ClusterView>,
        editor: &CatalogEditor,
        id: catalog::BrickId,
        dir: Option<&Path>,
    ) -> (Brick, Caller) {
        let store = match dir {
            Some(dir) => Store::open(&dir.join("brick"), Options::default()).unwrap(),
            None => Store::in_memory(Options::default()).unwrap(),
        };
        let brick = Brick::start_in(realm.clone(), BrickId(id.0), store, config()).await.unwrap();
        let address = brick.addresses()[0].clone();
        let moved = editor.set_brick_addresses(id, &[address.to_string()]).await.unwrap();
        realm.wait_for_revision(moved.revision).await.unwrap();
        let mut stream = Stream::connect(&address).await.unwrap();
        let terms = wire::handshake::dial(&mut stream, "", "test").await.unwrap();
        let mailbox = Arc::new(Mailbox::default());
        let caller = Caller::new(mailbox.clone(), 1 << 20);
        tokio::spawn(link::drive(Link::new(stream, NoService, Limits::default(), terms.max_frame, mailbox)));
        (brick, caller)
    }

    async fn reopen(self, dir: &Path) -> Self {
        self.caller.hang_up();
        self.brick.shutdown().await.unwrap();
        let (brick, caller) = Self::serve(&self.cluster_view, &self.editor, self.id, Some(dir)).await;
        Self { brick, caller, ..self }
    }

    async fn index(&self, name: &str) -> u32 {
        self.editor.create_index("main", name, "Person", &["age"], false).await.unwrap().value.id.0
    }

    /// Asks until all logical nodes have all objects in an index.
    async fn wait_until_built(&self, index: u32) {
        let until = Instant::now() + TEST_TIMEOUT;
        for node in &self.nodes {
            let build = || Request::BuildIndex(BuildIndex { space: SPACE, node: *node, index }.into());
            loop {
                assert!(Instant::now() < until, "the index is never built");
                match self.caller.call(build(), Vec::new()).await.map(|answer| answer.response) {
                    Ok(Response::Done(_)) => break,
                    Ok(Response::Progress(progress)) => assert!(progress.done <= progress.total),
                    // The brick does not know the index yet.
                    Err(error) if error.kind() == ErrorKind::NotFound => tokio::time::sleep(POLL_INTERVAL).await,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Scans an index until it has these ages: scans are not validated, and a brick may apply a transaction some time
    /// after its commit was acknowledged.
    async fn wait_for_ages(&self, index: u32, wanted: &[i64]) {
        let until = Instant::now() + TEST_TIMEOUT;
        loop {
            let ages = self.ages(index).await.unwrap();
            if ages == wanted {
                return;
            }
            assert!(Instant::now() < until, "{ages:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn scan(&self, scan: Scan) -> Result<Scanned> {
        let answer = self.caller.call(Request::Scan(scan.into_proto()?), Vec::new()).await?;
        match answer.response {
            Response::Scanned(scanned) => Scanned::from_proto(*scanned, Raw::Owned(answer.raw)),
            other => Err(Error::new(ErrorKind::Internal, format!("{other:?}"))),
        }
    }

    /// The ages in an index at all logical nodes, each in its order.
    async fn ages(&self, index: u32) -> Result<Vec<i64>> {
        let KeyRange { from, to } = KeyRange::all();
        let range = Some(IndexRange { index, from: from.into(), to: to.into(), reverse: false });
        let mut all = Vec::new();
        for node in self.nodes.iter().copied() {
            let (mut after, mut ages) = (None, Vec::new());
            loop {
                let (classes, range, filter) = ([PERSON].into(), range.clone(), None);
                let scan = Scan {
                    space: SPACE,
                    node,
                    epoch: 0,
                    classes,
                    range,
                    after,
                    limit: 33,
                    filter,
                    count: false,
                    family: None,
                };
                let scanned = self.scan(scan).await?;
                ages.extend(scanned.found.iter().map(|(_, _, object)| age(object)));
                after = scanned.next;
                if after.is_none() {
                    break;
                }
            }
            assert!(ages.is_sorted(), "{ages:?}");
            all.extend(ages);
        }
        all.sort_unstable();
        Ok(all)
    }
}

fn person(age: i64) -> Object {
    let mut record = RecordBuilder::new();
    record.set(AGE, age).unwrap();
    Object::record(PERSON, record.build().unwrap())
}

fn age(object: &Object) -> i64 {
    match RecordRef::new(&object.data).unwrap().field(AGE).unwrap() {
        Some(ValueRef::Int64(age)) => age,
        other => panic!("{other:?}"),
    }
}

/// Creates people, one for each age.
async fn populate(cluster: &Client, nodes: &[NodeId], ages: std::ops::Range<i64>) {
    for some in ages.collect::<Vec<_>>().chunks(5) {
        cluster
            .transact(|t| async move {
                for age in some {
                    t.create_object(PERSON, person(*age), PlacementHint::At(nodes[*age as usize % nodes.len()]))?;
                }
                Ok(())
            })
            .await
            .unwrap();
    }
}

async fn check_index_built_while_clients_write(dir: Option<&Path>) {
    let mut world = World::start(dir).await;
    let peer = PeerServer::start(world.cluster_view.clone(), 1, config()).await.unwrap();
    let Address::Tcp(host) = peer.addresses()[0].clone() else { panic!("it does not listen on TCP") };
    let cluster = Client::connect(&format!("mortar://{host}/main")).await.unwrap();
    populate(&cluster, &world.nodes, 0..200).await;
    let error = world.ages(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let (writer, nodes) = (cluster.clone(), world.nodes.clone());
    let writing = tokio::spawn(async move { populate(&writer, &nodes, 200..400).await });
    let index = world.index("by_age").await;
    world.wait_until_built(index).await;
    writing.await.unwrap();
    let all: Vec<i64> = (0..400).collect();
    world.wait_for_ages(index, &all).await;
    if let Some(dir) = dir {
        cluster.close();
        peer.shutdown().await.unwrap();
        world = world.reopen(dir).await;
        world.wait_until_built(index).await;
        world.wait_for_ages(index, &all).await;
    }
    world.editor.remove_index("main", "by_age").await.unwrap();
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        match world.ages(index).await {
            Ok(_) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                break;
            }
        }
        assert!(Instant::now() < until, "the index is never removed");
    }
}

#[tokio::test]
async fn index_in_memory_is_built_while_clients_write() {
    check_index_built_while_clients_write(None).await;
}

#[tokio::test]
async fn index_on_disk_is_built_while_clients_write_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    check_index_built_while_clients_write(Some(dir.path())).await;
}
