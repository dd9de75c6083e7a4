//! Clusters with a catalogue and classes of people.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::{Client, CommitOutcome, IsolationLevel, PlacementHint, Transaction};
use meta::catalog::{CatalogEditor, ClassDefinition, FieldDefinition, FieldType, Parameters, ServerId, SpaceOptions};
use meta::{Embedded, MetaStore};
use model::{ClassId, FieldNumber, Object, Oid, RecordBuilder, Value};
use node::cluster_view::ClusterView;
use node::member::{self, Member};
use node::node_placement::BrickId;
use node::{Brick, Config, PeerServer};
use query::{Query, QueryRun, Row, Schema};
use store::{Options, Store};
use wire::transport::Address;

/// A cluster in one process: its catalogue, some bricks in memory, a peer server.
pub(crate) struct World {
    pub(crate) cluster_view: Arc<ClusterView>,
    pub(crate) bricks: Vec<Brick>,
    pub(crate) peer: PeerServer,
    _members: Vec<Member>,
}

fn config() -> Config {
    Config { listen: vec!["127.0.0.1:0".parse().unwrap()], threads: 1, ..Config::default() }
}

/// A person: name, age, city, boss, friends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) age: Option<i64>,
    pub(crate) city: Option<String>,
    pub(crate) boss: Option<Oid>,
    pub(crate) friends: Vec<Oid>,
}

pub(crate) fn person(name: &str, age: i64) -> Person {
    Person { name: name.to_owned(), age: Some(age), city: None, boss: None, friends: Vec::new() }
}

impl World {
    /// A cluster with classes of people, students among them.
    pub(crate) async fn start(bricks: u32, nodes: u32) -> Self {
        Self::start_with(bricks, nodes, |catalogue| catalogue).await
    }

    /// Like `start`, with a catalogue for the bricks that `of_bricks` returns.
    pub(crate) async fn start_with(
        bricks: u32,
        nodes: u32,
        of_bricks: impl FnOnce(Arc<dyn MetaStore>) -> Arc<dyn MetaStore>,
    ) -> Self {
        let level =
            std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok()).unwrap_or(tracing::Level::ERROR);
        let log = tracing_subscriber::fmt().with_max_level(level);
        // The first test of a process sets it; for the others this fails.
        let _ = log.with_test_writer().try_init();
        let catalogue: Arc<dyn MetaStore> = Arc::new(Embedded::in_memory().unwrap());
        CatalogEditor::new(catalogue.clone()).set_up(&Parameters::generate()).await.unwrap();
        let realm = ClusterView::follow(catalogue.clone()).await.unwrap();
        let theirs = ClusterView::follow(of_bricks(catalogue)).await.unwrap();
        let (mut served, mut members) = (Vec::new(), Vec::new());
        for _ in 0..bricks {
            let store = Store::in_memory(Options::default()).unwrap();
            let id = member::brick_of(&realm, &store, &config().listen).await.unwrap();
            let brick = Brick::start_in(theirs.clone(), BrickId(id.0), store, config()).await.unwrap();
            let start = realm.editor().unwrap().start_number().await.unwrap();
            let addresses = brick.addresses().to_vec();
            members.push(Member::announce(&realm, ServerId::Brick(id), start, &addresses).await.unwrap());
            served.push(brick);
        }
        let options = SpaceOptions { nodes: Some(nodes), ..SpaceOptions::default() };
        realm.create_space("main", options).await.unwrap();
        let start = realm.editor().unwrap().start_number().await.unwrap();
        let peer = PeerServer::start(realm.clone(), start.0, config()).await.unwrap();
        let world = Self { cluster_view: realm, bricks: served, peer, _members: members };
        world.define().await;
        world
    }

    /// Starts another peer server with this catalogue.
    pub(crate) async fn another_peer(&self, catalogue: Arc<dyn MetaStore>) -> PeerServer {
        let start = self.cluster_view.editor().unwrap().start_number().await.unwrap();
        PeerServer::start(ClusterView::follow(catalogue).await.unwrap(), start.0, config()).await.unwrap()
    }

    async fn define(&self) {
        let people = || FieldType::Reference(Some("Person".to_owned()));
        let fields = vec![
            FieldDefinition::required("name", FieldType::String),
            FieldDefinition::optional("age", FieldType::Int64),
            FieldDefinition::optional("city", FieldType::String),
            FieldDefinition::optional("boss", people()),
            FieldDefinition::required("friends", FieldType::Set(Box::new(people()))),
        ];
        let class = ClassDefinition { name: "Person".to_owned(), parent: None, fields };
        let student = ClassDefinition { name: "Student".to_owned(), parent: Some("Person".to_owned()), fields: vec![] };
        let defined = self.cluster_view.editor().unwrap().define("main", &[class, student]).await.unwrap();
        self.cluster_view.wait_for_revision(defined.revision).await.unwrap();
    }

    pub(crate) fn url(&self) -> String {
        match &self.peer.addresses()[0] {
            Address::Tcp(host) => format!("mortar://{host}/main"),
            other => panic!("{other}"),
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn end(self) {
        self.peer.shutdown().await.unwrap();
        for brick in self.bricks {
            brick.shutdown().await.unwrap();
        }
    }
}

/// The class of people and that of students.
pub(crate) const PERSON: ClassId = ClassId(1);
pub(crate) const STUDENT: ClassId = ClassId(2);

pub(crate) fn object(class: ClassId, person: &Person) -> Object {
    let friends = person.friends.iter().map(|friend| Value::Reference(*friend)).collect();
    let values: [Value; 5] = [
        person.name.as_str().into(),
        person.age.into(),
        person.city.clone().map_or(Value::Null, Value::String),
        person.boss.map_or(Value::Null, Value::Reference),
        Value::Set(friends),
    ];
    let mut record = RecordBuilder::new();
    for (number, value) in (1..).map(FieldNumber).zip(&values) {
        record.set_value(number, value).unwrap();
    }
    Object::record(class, record.build().unwrap())
}

/// Creates people, spread over all logical nodes, in one transaction.
pub(crate) async fn create(cluster: &Client, people: &[(ClassId, Person)]) -> Vec<Oid> {
    let t = cluster.begin(IsolationLevel::Optimistic);
    let nodes = cluster.nodes();
    let at = |index: usize| PlacementHint::At(nodes[index % nodes.len()]);
    let made: Vec<Oid> = people
        .iter()
        .enumerate()
        .map(|(index, (class, person))| t.create_object(*class, object(*class, person), at(index)).unwrap())
        .collect();
    expect_committed(&t).await;
    made.into_iter().map(|oid| t.real_oid(oid).unwrap()).collect()
}

pub(crate) async fn expect_committed(t: &Transaction) {
    let decided = t.commit().await.unwrap();
    assert!(matches!(decided, CommitOutcome::Committed(_)), "{decided:?}");
}

/// The names in a result, in its order.
pub(crate) fn names(rows: &[Row]) -> Vec<String> {
    let name = |row: &Row| match row {
        Row::Object(_, record) => {
            let record = model::RecordRef::new(record).unwrap();
            match record.field(FieldNumber(1)).unwrap().unwrap().to_value().unwrap() {
                Value::String(name) => name,
                other => panic!("{other}"),
            }
        }
        Row::Values(values) => match &values[0] {
            Value::String(name) => name.clone(),
            other => panic!("{other}"),
        },
    };
    rows.iter().map(name).collect()
}

pub(crate) fn parse(text: &str) -> Query {
    Query::parse_of("Person", text).unwrap()
}

/// Evaluates a query over these objects, without bricks, indexes or streams.
pub(crate) fn expected_rows(
    schema: &Schema,
    query: &Query,
    objects: &BTreeMap<Oid, Object>,
) -> model::Result<Vec<Row>> {
    let plan = Arc::new(query.check(schema)?.plan(schema, &[]));
    let mut run = QueryRun::new(plan.clone());
    for (oid, object) in objects {
        let passes = plan.filter().matches(&model::RecordRef::new(&object.data).unwrap()).unwrap();
        if plan.classes().contains(&oid.class()) && passes {
            run.offer(0, *oid, object.data.clone());
        }
    }
    run.end();
    loop {
        match run.step()? {
            query::Progress::Need(oids) => {
                for oid in oids {
                    run.supply(oid, objects.get(&oid).map(|object| object.data.clone()));
                }
            }
            query::Progress::Again => {}
            query::Progress::More => panic!("the query has not ended"),
            query::Progress::Enough => return Ok(run.take()),
        }
    }
}
