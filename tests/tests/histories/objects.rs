//! The objects that clients use: growing lists, accounts, and single values; some of each at every logical node.

use bytes::Bytes;
use client::{Client, CommitOutcome, IsolationLevel, Oid, PlacementHint, Transaction};
use model::{ClassId, FieldNumber, NodeId, Object, RecordBuilder, RecordRef, Value};

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
            let oid = t.create_object(object.class, object, at).unwrap();
            created.push((key.clone(), oid));
            KeyedObject { key, oid }
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

/// A list with these elements.
pub(crate) fn list_object(is_record: bool, elements: &[i64]) -> Object {
    if !is_record {
        let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        return Object::blob(bytes.into());
    }
    let mut record = RecordBuilder::new();
    record.set_value(ELEMENTS, &Value::List(elements.iter().copied().map(Value::Int64).collect())).unwrap();
    Object::record(CLASS, record.build().unwrap())
}

/// The elements of a list. An error means a state that no client should see.
pub(crate) fn elements(object: Option<&Object>) -> Result<Vec<i64>, String> {
    let object = object.ok_or("a list does not exist")?;
    if object.class != CLASS {
        let (numbers, rest) = object.data.as_chunks::<8>();
        let whole = Some(numbers).filter(|_| rest.is_empty()).ok_or("a list as a blob is torn")?;
        return Ok(whole.iter().map(|number| i64::from_le_bytes(*number)).collect());
    }
    let record = RecordRef::validate(&object.data).map_err(|error| format!("a list as a record: {error}"))?;
    let fields = record.to_fields().map_err(|error| format!("a list as a record: {error}"))?;
    let Some(Value::List(list)) = fields.get(&ELEMENTS) else { return Err("a list has no elements field".to_owned()) };
    let number = |value: &Value| match value {
        Value::Int64(number) => Ok(*number),
        other => Err(format!("a list has an element {other:?}")),
    };
    list.iter().map(number).collect()
}

/// A single value.
pub(crate) fn single_object(value: i64) -> Object {
    Object::blob(value.to_string().into())
}

/// The value of an object; `None` if none was ever written.
pub(crate) fn value(object: Option<&Object>) -> Result<Option<i64>, String> {
    let object = object.ok_or("a single value does not exist")?;
    let text = std::str::from_utf8(&object.data).map_err(|error| error.to_string())?;
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error| format!("{text:?} as a single value: {error}")),
    }
}
