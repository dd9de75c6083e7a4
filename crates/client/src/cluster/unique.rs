//! Values that no two objects may have.
//!
//! Before a transaction commits that gives an object such values, it asks who has them. By that it relies on nobody getting them
//! meanwhile, as in any query. Bricks take such values from nobody who has not asked; a client that did not know of the
//! index is told so, asks what classes and indexes there are, and begins again.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{ClassId, Error, ErrorKind, FieldNumber, Kind, Object, Oid, RecordRef, Result, Value};
use protocol::page_cache::Lookup;
use query::{Expr, Query, Row, Schema};
use wire::proto::schema;

use super::transaction::Transaction;

/// Fields of a class and of those below it, in which no two objects may have the same values.
#[derive(Debug)]
pub(super) struct UniqueIndex {
    id: u32,
    index: String,
    class: String,
    family: Arc<BTreeSet<ClassId>>,
    fields: Vec<(FieldNumber, String)>,
}

impl UniqueIndex {
    /// What the peer server has told of an index; `None` if its class or a field is not among those that it told.
    pub(super) fn from_proto(told: schema::Unique, schema: &Schema) -> Option<Self> {
        let class = ClassId(told.class);
        let name = |number: u32| {
            let field = schema.fields(class).iter().find(|field| field.number.0 == number)?;
            Some((field.number, field.name.clone()))
        };
        let fields = told.fields.into_iter().map(name).collect::<Option<_>>()?;
        let (id, index) = (told.id, told.name);
        Some(Self { id, index, class: schema.class(class)?.name.clone(), family: schema.family(class), fields })
    }

    /// The values of an object. Those of another class have none, and null is equal to nothing.
    fn values(&self, object: &Object) -> Result<Option<Vec<Value>>> {
        match object.kind == Kind::Record && self.family.contains(&object.class) {
            true => self.values_of(&object.data),
            false => Ok(None),
        }
    }

    /// The same of a record. A field that it lacks is null, as in the index.
    fn values_of(&self, record: &[u8]) -> Result<Option<Vec<Value>>> {
        let record = RecordRef::new(record)?;
        let values = self.fields.iter().map(|(number, _)| match record.field(*number)? {
            Some(value) => value.to_value(),
            None => Ok(Value::Null),
        });
        let values = values.collect::<Result<Vec<Value>>>()?;
        Ok(Some(values).filter(|values| !values.contains(&Value::Null)))
    }

    /// Who has these values, or lacks fields that have them by default.
    fn holders_query(&self, values: &[Value]) -> Query {
        let equal = self.fields.iter().zip(values).map(|((_, name), value)| Expr::path(name).equals(value.clone()));
        equal.fold(Query::of(self.class.as_str()), Query::filter)
    }
}

impl Transaction {
    /// Makes sure that nobody has the values of what this transaction writes that are to be unique.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if somebody has; as [`Transaction::query`].
    pub(super) async fn check_unique(&self) -> Result<()> {
        let known = self.core().classes.unique();
        for (oid, unique, values) in self.new_unique_values(&known)? {
            let mut rows = self.run_query(&unique.holders_query(&values), Some(unique.id)).await?;
            while let Some(row) = rows.next().await? {
                if let Row::Object(other, record) = row
                    && other != oid
                    && unique.values_of(&record)?.as_ref() == Some(&values)
                {
                    let index = &unique.index;
                    let what = format!("{other} has the same values already, and index {index:?} has no two of them");
                    return Err(Error::new(ErrorKind::Exists, what));
                }
            }
        }
        Ok(())
    }

    /// What this transaction gives objects that is to be unique, and they did not have.
    fn new_unique_values<'k>(&self, known: &'k [UniqueIndex]) -> Result<Vec<(Oid, &'k UniqueIndex, Vec<Value>)>> {
        let mut gained = Vec::new();
        if known.is_empty() {
            return Ok(gained);
        }
        for (oid, object) in self.written_objects()? {
            let before = self.core().work(|state, now| match state.session.peek(oid, now) {
                Lookup::Value(before) if !oid.is_temporary() => Some(before.clone()),
                _ => None,
            })?;
            for unique in known {
                let Some(values) = unique.values(&object)? else { continue };
                let had = before.as_ref().map(|before| unique.values(before)).transpose()?.flatten();
                if had.as_ref() != Some(&values) {
                    gained.push((oid, unique, values));
                }
            }
        }
        Ok(gained)
    }
}
