//! A cluster on disk with a catalogue, whose logical nodes can be moved.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{AdminClient, Client};
use meta::catalog::{
    self, CatalogEditor, ClassDefinition, FieldDefinition, FieldType, MovePhase, Parameters, ServerId, SpaceOptions,
};
use meta::{Embedded, MetaStore};
use model::{ClassId, FieldNumber, NodeId, Object, RecordBuilder, RecordRef, Value};
use node::cluster_view::ClusterView;
use node::member::{self, Member};
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use store::{Options, Store};
use tempfile::TempDir;
use tokio::time;

/// The class of accounts.
pub(crate) const ACCOUNT: ClassId = ClassId(1);
/// The class of badges.
pub(crate) const BADGE: ClassId = ClassId(2);

/// How long moves may take on a busy machine.
const MOVE_TIMEOUT: Duration = Duration::from_secs(60);

/// A cluster in one process: its catalogue, some bricks on disk, two peer servers.
pub(crate) struct World {
    pub(crate) cluster_view: Arc<ClusterView>,
    bricks: Vec<Option<(Brick, Member)>>,
    peers: Vec<PeerServer>,
    dir: TempDir,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

impl World {
    /// A cluster with a class of accounts, and an index of them by their owners.
    pub(crate) async fn start(bricks: usize, nodes: u32) -> Self {
        // The log of a test that fails is printed.
        let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::INFO);
        let log = tracing_subscriber::fmt().with_max_level(level);
        // The first test of a process sets it; for the others this fails.
        let _ = log.with_test_writer().try_init();
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        CatalogEditor::new(catalogue.clone()).set_up(&Parameters::generate()).await.unwrap();
        let realm = ClusterView::follow(catalogue).await.unwrap();
        let mut world =
            Self { cluster_view: realm, bricks: Vec::new(), peers: Vec::new(), dir: tempfile::tempdir().unwrap() };
        for number in 0..bricks {
            world.bricks.push(None);
            world.start_brick(number).await;
        }
        let options = SpaceOptions { nodes: Some(nodes), ..SpaceOptions::default() };
        world.cluster_view.create_space("main", options).await.unwrap();
        for _ in 0..2 {
            let start = world.editor().start_number().await.unwrap();
            world.peers.push(PeerServer::start(world.cluster_view.clone(), start.0, config()).await.unwrap());
        }
        let fields = vec![
            FieldDefinition::required("owner", FieldType::String),
            FieldDefinition::required("balance", FieldType::Int64),
        ];
        let class = ClassDefinition { name: "Account".to_owned(), parent: None, fields };
        world.editor().define("main", &[class]).await.unwrap();
        let index = world.editor().create_index("main", "by_owner", "Account", &["owner"], false).await.unwrap().value;
        let ready = world.editor().record_index_build("main", "by_owner", index.id, None).await.unwrap();
        world.cluster_view.wait_for_revision(ready.revision).await.unwrap();
        world
    }

    /// Defines a class of badges, whose numbers are unique.
    pub(crate) async fn define_badges(&self) {
        let fields = vec![FieldDefinition::required("number", FieldType::Int64)];
        let class = ClassDefinition { name: "Badge".to_owned(), parent: None, fields };
        assert_eq!(self.editor().define("main", &[class]).await.unwrap().value[0].id, BADGE);
        let index = self.editor().create_index("main", "by_number", "Badge", &["number"], true).await.unwrap();
        self.cluster_view.wait_for_revision(index.revision).await.unwrap();
    }

    pub(crate) fn editor(&self) -> &CatalogEditor {
        self.cluster_view.editor().unwrap()
    }

    /// Starts the brick with this index.
    pub(crate) async fn start_brick(&mut self, number: usize) {
        let store = Store::open(&self.dir.path().join(format!("brick-{number}")), Options::default()).unwrap();
        let id = member::brick_of(&self.cluster_view, &store, &config().listen).await.unwrap();
        let brick = Brick::start_in(self.cluster_view.clone(), BrickId(id.0), store, config()).await.unwrap();
        let start = self.editor().start_number().await.unwrap();
        let addresses = brick.addresses().to_vec();
        let member = Member::announce(&self.cluster_view, ServerId::Brick(id), start, &addresses).await.unwrap();
        self.bricks[number] = Some((brick, member));
    }

    /// Ends a brick.
    pub(crate) async fn stop_brick(&mut self, number: usize) {
        let (brick, member) = self.bricks[number].take().unwrap();
        member.leave().await;
        brick.shutdown().await.unwrap();
    }

    pub(crate) async fn client(&self, first: usize) -> Client {
        let host = |peer: usize| self.peers[peer % 2].addresses()[0].to_string();
        Client::connect(&format!("mortar://{},{}/main", host(first), host(first + 1))).await.unwrap()
    }

    pub(crate) async fn admin(&self) -> AdminClient {
        AdminClient::connect(&format!("mortar://{}/main", self.peers[0].addresses()[0])).await.unwrap()
    }

    /// The brick of a logical node, and the phase of its move.
    pub(crate) fn placement(&self, node: NodeId) -> (u32, Option<MovePhase>) {
        let catalog = self.cluster_view.catalog().unwrap();
        let placed = catalog.node_placement(node).unwrap();
        (placed.brick.0, placed.moving.map(|moving| moving.phase))
    }

    /// Begins a move of a logical node.
    pub(crate) async fn begin_move(&self, node: NodeId, to: u32) {
        let begun = self.editor().begin_move(node, catalog::BrickId(to)).await.unwrap();
        self.cluster_view.wait_for_revision(begun.revision).await.unwrap();
    }

    /// Waits until no logical node moves.
    ///
    /// # Panics
    /// If that takes a minute.
    pub(crate) async fn wait_for_moves(&self, nodes: &[NodeId]) {
        let begun = Instant::now();
        while nodes.iter().any(|node| self.placement(*node).1.is_some()) {
            let places: Vec<_> = nodes.iter().map(|node| (node, self.placement(*node))).collect();
            assert!(begun.elapsed() < MOVE_TIMEOUT, "logical nodes still move: {places:?}");
            time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(crate) async fn end(self) {
        for peer in self.peers {
            peer.shutdown().await.unwrap();
        }
        for (brick, _) in self.bricks.into_iter().flatten() {
            brick.shutdown().await.unwrap();
        }
    }
}

/// A badge.
pub(crate) fn badge(number: i64) -> Object {
    let mut record = RecordBuilder::new();
    record.set_value(FieldNumber(1), &Value::from(number)).unwrap();
    Object::record(BADGE, record.build().unwrap())
}

/// An account.
pub(crate) fn account(owner: &str, balance: i64) -> Object {
    let mut record = RecordBuilder::new();
    record.set_value(FieldNumber(1), &Value::from(owner)).unwrap();
    record.set_value(FieldNumber(2), &Value::from(balance)).unwrap();
    Object::record(ACCOUNT, record.build().unwrap())
}

/// The owner and the balance of an account. An account that does not exist yet makes the transaction fail.
pub(crate) fn parse_account(object: Option<Object>) -> client::Result<(String, i64)> {
    let missing = || client::Error::new(client::ErrorKind::NotFound, "there is no such account");
    let object = object.ok_or_else(missing)?;
    let record = RecordRef::new(&object.data).unwrap();
    let value = |number| record.field(FieldNumber(number)).unwrap().unwrap().to_value().unwrap();
    match (value(1), value(2)) {
        (Value::String(owner), Value::Int64(balance)) => Ok((owner, balance)),
        other => panic!("{other:?}"),
    }
}
