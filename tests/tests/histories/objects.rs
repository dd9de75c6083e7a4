//! The objects that clients use: growing lists, accounts, and single values; some of each at every logical node.

use bytes::Bytes;
use client::{Client, CommitOutcome, IsolationLevel, PlacementHint, Transaction};
use model::{FieldNumber, NodeId, Object, Value};
use mortar_tests::keyed_objects::{KeyedObject, ObjectForm, list_object, single_object, with_field};
use wire::proto::schema;

use crate::client_process::ClientProcess;

/// The initial balance of each account.
pub(crate) const BALANCE: i64 = 100;
/// Lists at each logical node: the odd ones are records, the others blobs.
const LISTS: u64 = 3;
/// Accounts at each logical node.
const ACCOUNTS: u64 = 2;
/// The definition of the class of lists that are records.
#[derive(client::Persistent)]
struct List {
    elements: Vec<i64>,
}

/// All objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) lists: Vec<KeyedObject>,
    pub(crate) accounts: Vec<KeyedObject>,
    /// Objects with a single value, by the client that writes them.
    pub(crate) singles: Vec<Vec<KeyedObject>>,
    /// Objects for large writes that are never read, one at each logical node.
    pub(crate) ballast: Vec<KeyedObject>,
}

impl Objects {
    /// Creates all objects with their names, in one transaction.
    pub(crate) async fn create(cluster: &Client, nodes: u64, writers: u64) -> Self {
        cluster.define::<List>().await.unwrap();
        let mut all = Self::default();
        let mut created = Vec::new();
        let t = cluster.begin(IsolationLevel::Optimistic);
        let mut create = |key: String, object: Object, node: u64| {
            let at = PlacementHint::At(NodeId(u32::try_from(node).unwrap()));
            let form = ObjectForm::of_class(object.class);
            let oid = t.create_object(object.class, object, at).unwrap();
            created.push((key.clone(), oid));
            KeyedObject { key, oid, form }
        };
        for node in 1..=nodes {
            let lists = (1..=LISTS).map(|list| (format!("list{node}.{list}"), list % 2 == 1));
            all.lists.extend(lists.map(|(key, is_record)| create(key, list_object(is_record, &[]), node)));
            let accounts = (1..=ACCOUNTS).map(|account| format!("account{node}.{account}"));
            all.accounts.extend(accounts.map(|key| create(key, single_object(BALANCE), node)));
        }
        for node in 1..=nodes {
            all.ballast.push(create(format!("ballast{node}"), Object::blob(Bytes::new()), node));
        }
        for writer in 1..=writers {
            let keys = (1..=nodes).map(|node| (format!("single{writer}.{node}"), node));
            all.singles.push(keys.map(|(key, node)| create(key, Object::blob(Bytes::new()), node)).collect());
        }
        for (key, oid) in &created {
            t.bind(key, *oid).await.unwrap();
        }
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        let others = all.accounts.iter_mut().chain(&mut all.ballast);
        for kept in all.lists.iter_mut().chain(others).chain(all.singles.iter_mut().flatten()) {
            kept.oid = t.real_oid(kept.oid).unwrap();
        }
        all
    }

    /// Creates lists and accounts as persistent objects of Java, and names them. Java creates the first of each class, and so defines
    /// the class; the others are copies of its record.
    pub(crate) async fn create_in_java(jvm: &ClientProcess, cluster: &Client, nodes: u64) -> Self {
        let keys = |what: &str, each: u64| -> Vec<(String, u64)> {
            let of_node = |node| (1..=each).map(move |number| (format!("{what}{node}.{number}"), node));
            (1..=nodes).flat_map(of_node).collect()
        };
        let lists = create_in_class(jvm, cluster, &keys("list", LISTS), None).await;
        let accounts = create_in_class(jvm, cluster, &keys("account", ACCOUNTS), Some(BALANCE)).await;
        let all = Self { lists, accounts, ..Self::default() };
        let t = cluster.begin(IsolationLevel::Optimistic);
        for kept in all.lists.iter().chain(&all.accounts) {
            t.bind(&kept.key, kept.oid).await.unwrap();
        }
        assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
        all
    }

    /// Whether all names lead to their objects.
    pub(crate) async fn check_names(&self, t: &Transaction) -> client::Result<bool> {
        for kept in self.lists.iter().chain(&self.accounts).chain(self.singles.iter().flatten()) {
            if t.resolve(&kept.key).await? != Some(kept.oid) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Creates objects of one Java class with these keys, each at a logical node: accounts if they have a balance, else lists.
async fn create_in_class(
    jvm: &ClientProcess,
    cluster: &Client,
    keys: &[(String, u64)],
    balance: Option<i64>,
) -> Vec<KeyedObject> {
    let (first, others) = keys.split_first().unwrap();
    let prototype = jvm.create(&first.0, balance).await;
    let show = schema::describe::Request::Show(schema::Show {});
    let request = schema::Describe { space: String::new(), request: Some(show) };
    let classes = cluster.describe(request).await.unwrap().classes;
    let class = classes.iter().find(|class| class.id == prototype.class().0).unwrap();
    assert!(class.name.starts_with("io.mortar.histories."), "{}", class.name);
    let field = |name| FieldNumber(class.fields.iter().find(|field| field.name == name).unwrap().number);
    let form = ObjectForm::Record(field(if balance.is_some() { "balance" } else { "elements" }));
    let t = cluster.begin(IsolationLevel::Optimistic);
    let object = t.get(prototype).await.unwrap();
    let mut created = vec![KeyedObject { key: first.0.clone(), oid: prototype, form }];
    for (key, node) in others {
        let copy = with_field(object.as_ref(), field("name"), Value::String(key.clone())).unwrap();
        let at = PlacementHint::At(NodeId(u32::try_from(*node).unwrap()));
        created.push(KeyedObject { key: key.clone(), oid: t.create_object(copy.class, copy, at).unwrap(), form });
    }
    assert!(matches!(t.commit().await.unwrap(), CommitOutcome::Committed(_)));
    for kept in &mut created[1..] {
        kept.oid = t.real_oid(kept.oid).unwrap();
    }
    created
}
