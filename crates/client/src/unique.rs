//! Unique indexes: values that no two objects may have.
//!
//! Before a transaction that gives an object such values is committed, it queries for other objects that have them. As with any
//! query, the transaction conflicts with one that gives an object these values meanwhile. A brick refuses such values of a
//! transaction that has not queried; a client that does not know the index then fetches the classes and indexes, and begins
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use model::{ClassId, Error, ErrorKind, FieldNumber, Kind, Object, Oid, RecordRef, Result, Value};
use protocol::page_cache::Lookup;
use query::{Expr, Query, Row, Schema};
use wire::proto::schema;

use super::transaction::Transaction;
use crate::plant::{Bug, planted};

/// Values that are queried at once; a client may have 64 queries.
const QUERIES_AT_ONCE: usize = 16;

/// A unique index: fields of a class and its subclasses in which no two objects have the same values.
#[derive(Debug)]
pub(super) struct UniqueIndex {
    id: u32,
    index: String,
    class: String,
    family: Arc<BTreeSet<ClassId>>,
    fields: Vec<(FieldNumber, String)>,
}

impl UniqueIndex {
    /// The index, if its class and its fields are in the schema.
    pub(super) fn from_proto(message: schema::Unique, schema: &Schema) -> Option<Self> {
        let class = ClassId(message.class);
        let name = |number: u32| {
            let field = schema.fields(class).iter().find(|field| field.number.0 == number)?;
            Some((field.number, field.name.clone()))
        };
        let fields = message.fields.into_iter().map(name).collect::<Option<_>>()?;
        let (id, index) = (message.id, message.name);
        Some(Self { id, index, class: schema.class(class)?.name.clone(), family: schema.family(class), fields })
    }

    /// The values of an object. An object of another class has none, nor has one with a null, which equals nothing.
    fn values(&self, object: &Object) -> Result<Option<Vec<Value>>> {
        match object.kind == Kind::Record && self.family.contains(&object.class) {
            true => self.values_of(&object.data),
            false => Ok(None),
        }
    }

    /// The values of a record of the class. A field that the record lacks is null, as in the index.
    fn values_of(&self, record: &[u8]) -> Result<Option<Vec<Value>>> {
        let record = RecordRef::new(record)?;
        let values = self.fields.iter().map(|(number, _)| match record.field(*number)? {
            Some(value) => value.to_value(),
            None => Ok(Value::Null),
        });
        let values = values.collect::<Result<Vec<Value>>>()?;
        Ok(Some(values).filter(|values| !values.contains(&Value::Null)))
    }

    /// Whether these values of object `oid` are those of another object, which has this record.
    fn is_taken_by(&self, oid: Oid, values: &[Value], other: Oid, record: &[u8]) -> Result<bool> {
        let is_same = other != oid && self.values_of(record)?.as_deref() == Some(values);
        Ok(is_same && !planted(Bug::UniqueConflictMissed))
    }

    fn taken_error(&self, holder: Oid) -> Error {
        let what = format!("{holder} has the same values already, and index {:?} is unique", self.index);
        Error::new(ErrorKind::Exists, what).about(holder)
    }

    /// The query for objects that have these values, or lack fields that have them by default.
    fn holders_query(&self, values: &[Value]) -> Query {
        let equal = self.fields.iter().zip(values).map(|((_, name), value)| Expr::path(name).equals(value.clone()));
        equal.fold(Query::of(self.class.as_str()), Query::filter)
    }
}

impl Transaction {
    /// Checks that no other object has a unique value that this transaction gives to an object.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if another object has it; else as [`Transaction::query`].
    pub(super) async fn check_unique(&self) -> Result<()> {
        let known = self.core().classes.unique();
        if known.is_empty() {
            return Ok(());
        }
        let new = self.new_unique_values(&known)?;
        for new in new.chunks(QUERIES_AT_ONCE) {
            let mut checks: Vec<_> = new.iter().map(|new| Box::pin(self.check_new_values(new))).collect();
            // All are polled, so that all queries are sent before the first one is answered.
            poll_fn(|context| {
                let mut failed = None;
                checks.retain_mut(|check| match check.as_mut().poll(context) {
                    Poll::Ready(Ok(())) => false,
                    Poll::Ready(Err(error)) => {
                        failed.get_or_insert(error);
                        false
                    }
                    Poll::Pending => true,
                });
                match (failed, checks.is_empty()) {
                    (Some(error), _) => Poll::Ready(Err(error)),
                    (None, true) => Poll::Ready(Ok(())),
                    (None, false) => Poll::Pending,
                }
            })
            .await?;
        }
        Ok(())
    }

    /// Checks that no object that this transaction does not write has these values.
    async fn check_new_values(&self, (oid, unique, values): &(Oid, &UniqueIndex, Vec<Value>)) -> Result<()> {
        let mut rows = self.run_query(&unique.holders_query(values), Some(unique.id)).await?;
        while let Some(row) = rows.next().await? {
            if let Row::Object(other, record) = row
                && unique.is_taken_by(*oid, values, other, &record)?
                && !self.writes(other)?
            {
                return Err(unique.taken_error(other));
            }
        }
        Ok(())
    }

    /// The unique values that this transaction gives to objects that did not have them.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if it gives two objects the same values.
    fn new_unique_values<'k>(&self, known: &'k [UniqueIndex]) -> Result<Vec<(Oid, &'k UniqueIndex, Vec<Value>)>> {
        let mut gained = Vec::new();
        let mut holders: BTreeMap<(u32, Vec<Value>), Oid> = BTreeMap::new();
        for (oid, object) in self.written_objects()? {
            let before = self.core().with_driver(|driver, now| match driver.peek(oid, now) {
                Lookup::Value(before) if !oid.is_temporary() => Some(before.clone()),
                _ => None,
            })?;
            for unique in known {
                let Some(values) = unique.values(&object)? else { continue };
                if let Some(other) = holders.insert((unique.id, values.clone()), oid) {
                    return Err(unique.taken_error(other));
                }
                let had = before.as_ref().map(|before| unique.values(before)).transpose()?.flatten();
                if had.as_ref() != Some(&values) {
                    gained.push((oid, unique, values));
                }
            }
        }
        Ok(gained)
    }
}

#[cfg(test)]
mod tests {
    use model::{NodeId, PageId, RecordBuilder, SpaceId};

    use super::*;
    use model::planted_bug::is_noticed;

    fn index() -> UniqueIndex {
        let (class, family) = ("Account".to_owned(), Arc::new([ClassId(5)].into()));
        let fields = vec![(FieldNumber(1), "owner".to_owned())];
        UniqueIndex { id: 1, index: "by_owner".to_owned(), class, family, fields }
    }

    fn account(owner: Option<&str>) -> Object {
        let mut record = RecordBuilder::new();
        if let Some(owner) = owner {
            record.set(FieldNumber(1), owner).unwrap();
        }
        Object::record(ClassId(5), record.build().unwrap())
    }

    fn taken_value_is_found() {
        let page = PageId { space: SpaceId(1), node: NodeId(1), number: 1 };
        let (one, other) = (Oid::new(ClassId(5), page, 1), Oid::new(ClassId(5), page, 2));
        let values = index().values(&account(Some("Ann"))).unwrap().unwrap();
        let is_taken = |by, owner| index().is_taken_by(one, &values, by, &account(owner).data).unwrap();
        assert!(is_taken(other, Some("Ann")));
        assert!(!is_taken(one, Some("Ann")), "an object may keep its own value");
        assert!(!is_taken(other, Some("Bob")) && !is_taken(other, None));
    }

    #[test]
    fn value_of_another_object_is_taken() {
        taken_value_is_found();
        assert!(is_noticed(Bug::UniqueConflictMissed, taken_value_is_found));
    }

    #[test]
    fn object_without_a_value_or_of_another_class_is_not_in_the_index() {
        assert_eq!(index().values(&account(None)).unwrap(), None);
        let other = Object::record(ClassId(6), account(Some("Ann")).data);
        assert_eq!(index().values(&other).unwrap(), None);
    }
}
