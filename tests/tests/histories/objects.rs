//! The objects that clients use: growing lists, accounts, and single values; some of each at every logical node.

use std::collections::BTreeMap;

use bytes::Bytes;
use client::{Client, CommitOutcome, IsolationLevel, Oid, PlacementHint, Transaction};
use model::{ClassId, FieldNumber, NodeId, Object, RecordBuilder, RecordRef, Value};
use wire::proto::schema;

use crate::jvm::Jvm;

/// The initial balance of each account.
pub(crate) const BALANCE: i64 = 100;
/// Lists at each logical node: the odd ones are records, the others blobs.
const LISTS: u64 = 3;
/// Accounts at each logical node.
const ACCOUNTS: u64 = 2;
/// The class of lists that are records, and the field with the elements: the first ones of the space.
const CLASS: ClassId = ClassId(1);
const ELEMENTS: FieldNumber = FieldNumber(1);

/// The definition of that class.
#[derive(client::Persistent)]
struct List {
    elements: Vec<i64>,
}

/// An object, and its key in histories.
#[derive(Clone, Debug)]
pub(crate) struct KeyedObject {
    pub(crate) key: String,
    pub(crate) oid: Oid,
    pub(crate) form: ObjectForm,
}

/// How an object stores its value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ObjectForm {
    Blob,
    /// As this field of a record.
    Record(FieldNumber),
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
            let form = if object.class == CLASS { ObjectForm::Record(ELEMENTS) } else { ObjectForm::Blob };
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
    pub(crate) async fn create_in_java(jvm: &Jvm, cluster: &Client, nodes: u64) -> Self {
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
    jvm: &Jvm,
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

impl KeyedObject {
    /// The elements of a list. An error means a state that no client should see.
    pub(crate) fn elements(&self, object: Option<&Object>) -> Result<Vec<i64>, String> {
        let object = object.ok_or("a list does not exist")?;
        let ObjectForm::Record(field) = self.form else {
            let (numbers, rest) = object.data.as_chunks::<8>();
            let whole = Some(numbers).filter(|_| rest.is_empty()).ok_or("a list as a blob is torn")?;
            return Ok(whole.iter().map(|number| i64::from_le_bytes(*number)).collect());
        };
        let Some(Value::List(list)) = fields(object)?.remove(&field) else {
            return Err("a list has no elements field".to_owned());
        };
        let number = |value: &Value| match value {
            Value::Int64(number) => Ok(*number),
            other => Err(format!("a list has an element {other:?}")),
        };
        list.iter().map(number).collect()
    }

    /// The list with these elements instead.
    pub(crate) fn with_elements(&self, object: Option<&Object>, elements: &[i64]) -> Result<Object, String> {
        match self.form {
            ObjectForm::Blob => Ok(list_object(false, elements)),
            ObjectForm::Record(field) => with_field(object, field, list_value(elements)),
        }
    }

    /// The single value of an object; `None` if none was ever written.
    pub(crate) fn value(&self, object: Option<&Object>) -> Result<Option<i64>, String> {
        let ObjectForm::Record(field) = self.form else { return value(object) };
        match fields(object.ok_or("a single value does not exist")?)?.get(&field) {
            Some(Value::Int64(value)) => Ok(Some(*value)),
            other => Err(format!("{other:?} as a single value")),
        }
    }

    /// The object with this single value instead.
    pub(crate) fn with_value(&self, object: Option<&Object>, value: i64) -> Result<Object, String> {
        match self.form {
            ObjectForm::Blob => Ok(single_object(value)),
            ObjectForm::Record(field) => with_field(object, field, Value::Int64(value)),
        }
    }
}

fn fields(object: &Object) -> Result<BTreeMap<FieldNumber, Value>, String> {
    let record = RecordRef::validate(&object.data).and_then(|record| record.to_fields());
    record.map_err(|error| format!("a record: {error}"))
}

/// The object with another value of a field. The other fields stay.
fn with_field(object: Option<&Object>, field: FieldNumber, value: Value) -> Result<Object, String> {
    let object = object.ok_or("an object does not exist")?;
    let mut fields = fields(object)?;
    fields.insert(field, value);
    let mut record = RecordBuilder::new();
    for (number, value) in &fields {
        record.set_value(*number, value).map_err(|error| error.to_string())?;
    }
    Ok(Object::record(object.class, record.build().map_err(|error| error.to_string())?))
}

fn list_value(elements: &[i64]) -> Value {
    Value::List(elements.iter().copied().map(Value::Int64).collect())
}

/// A list with these elements.
pub(crate) fn list_object(is_record: bool, elements: &[i64]) -> Object {
    if !is_record {
        let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        return Object::blob(bytes.into());
    }
    let mut record = RecordBuilder::new();
    record.set_value(ELEMENTS, &list_value(elements)).unwrap();
    Object::record(CLASS, record.build().unwrap())
}

/// A single value as a blob.
pub(crate) fn single_object(value: i64) -> Object {
    Object::blob(value.to_string().into())
}

/// The value of a blob; `None` if none was ever written.
pub(crate) fn value(object: Option<&Object>) -> Result<Option<i64>, String> {
    let object = object.ok_or("a single value does not exist")?;
    let text = std::str::from_utf8(&object.data).map_err(|error| error.to_string())?;
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error| format!("{text:?} as a single value: {error}")),
    }
}
