//! Queries that are answered by a look-up: what they require is that the fields of a unique index equal values, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{ClassId, Comparison, Entry, ErrorKind, Object, Oid, Result, Value, ValueRef};
use protocol::entries::unique_entry;
use query::key::IndexEntry;
use query::{Expr, Query};

use super::UniqueIndex;
use crate::client_core::Core;
use crate::rows::Rows;
use crate::transaction::Transaction;

/// How often a client that searches asks whether an index has become ready.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// A query for the object that has values of a unique index. It is answered by a look-up.
struct UniqueQuery {
    index: Arc<UniqueIndex>,
    entry: Entry,
    /// The classes of what it may find.
    classes: Arc<BTreeSet<ClassId>>,
}

/// What a look-up has found.
enum LookedUpObject {
    None,
    Found(Oid, Object),
    /// It does not have the values, or is of a class that this client does not know: the query is run.
    Unclear,
}

impl UniqueQuery {
    /// The query, if all that it requires is that the fields of a unique index equal values.
    fn of(core: &Core, query: &Query) -> Option<Self> {
        let Query { class, only, condition, select, group, order, skip, limit, parameters } = query;
        let is_plain = select.is_empty() && group.is_empty() && order.is_empty() && *skip == 0 && *limit != Some(0);
        let condition = condition.as_ref().filter(|_| is_plain)?;
        let values = equal_values(condition, parameters)?;
        let (known, schema) = (core.classes.unique(), core.classes.schema());
        let class = schema.class_named(class).ok()?.id;
        let fields = schema.fields(class);
        // Their order is that of the index.
        let key_of = |index: &UniqueIndex| {
            let fields = index.fields.iter().map(|number| fields.iter().find(|field| field.number == *number));
            let values = fields.map(|field| {
                // A record that lacks the field is found by a value for it, and has no entry.
                let field = field.filter(|field| matches!(field.missing, None | Some(Value::Null)))?;
                values.iter().find(|(name, _)| *name == field.name).and_then(|(_, value)| value.as_scalar())
            });
            let values: Vec<ValueRef<'_>> = values.collect::<Option<_>>()?;
            Some(IndexEntry::new(&values).key)
        };
        let is_of = |index: &UniqueIndex| {
            !index.is_building && index.fields.len() == values.len() && index.family.contains(&class)
        };
        let mut of_class = known.iter().filter(|index| is_of(index));
        let (index, key) = of_class.find_map(|index| Some((index.clone(), key_of(index)?)))?;
        // A query that does not fit the classes fails as others do.
        query.check(&schema).ok()?;
        let entry = unique_entry(core.space, &core.nodes, index.id, &key).ok()?;
        let classes = if *only { Arc::new([class].into()) } else { schema.family(class) };
        Some(Self { index, entry, classes })
    }

    /// What was found, if the values are bound to this object.
    fn check_holder(&self, oid: Oid, object: Option<Object>) -> Result<LookedUpObject> {
        let has_values = self.index.has_values(object.as_ref(), &self.entry.key)?;
        Ok(match object.filter(|_| has_values && self.index.family.contains(&oid.class())) {
            Some(object) if self.classes.contains(&oid.class()) => LookedUpObject::Found(oid, object),
            Some(_) => LookedUpObject::None,
            None => LookedUpObject::Unclear,
        })
    }
}

/// The fields that a condition requires to equal values, and nothing else. Null and NaN equal nothing.
fn equal_values<'q>(condition: &'q Expr, parameters: &'q BTreeMap<String, Value>) -> Option<Vec<(&'q str, &'q Value)>> {
    match condition {
        Expr::And(all) => {
            let mut values = Vec::new();
            for one in all {
                values.extend(equal_values(one, parameters)?);
            }
            let names: BTreeSet<&str> = values.iter().map(|(name, _)| *name).collect();
            (names.len() == values.len()).then_some(values)
        }
        Expr::Compare(Comparison::Equal, one, other) => {
            let value = |expr: &'q Expr| match expr {
                Expr::Literal(value) => Some(value),
                Expr::Parameter(name) => parameters.get(name),
                _ => None,
            };
            let (path, value) = match (&**one, &**other) {
                (Expr::Path(path), other) => (path, value(other)?),
                (one, Expr::Path(path)) => (path, value(one)?),
                _ => return None,
            };
            let is_nothing = *value == Value::Null || matches!(value, Value::Float64(number) if number.is_nan());
            let [name] = path.as_slice() else { return None };
            (!is_nothing).then(|| vec![(name.as_str(), value)])
        }
        _ => None,
    }
}

impl Core {
    /// Answers a query outside of transactions by a look-up, if it asks for values of a unique index.
    pub(crate) async fn look_up_unique(self: &Arc<Self>, query: &Query) -> Result<Option<Rows>> {
        self.refresh_building_indexes().await?;
        let Some(wanted) = UniqueQuery::of(self, query) else { return Ok(None) };
        let Entry { collection, key } = &wanted.entry;
        let found = match self.look_up(*collection, std::slice::from_ref(key)).await {
            // The index was dropped, or its brick has not learned of it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => return self.refresh_classes().await.map(|()| None),
            found => found?,
        };
        let found = match found.targets.first() {
            None => LookedUpObject::None,
            Some(holder) => wanted.check_holder(*holder, self.read_object(*holder, false).await?)?,
        };
        Ok(found.into_rows(self))
    }

    /// Finds out, now and then, whether unique indexes have become ready that were not.
    async fn refresh_building_indexes(&self) -> Result<()> {
        let is_building = self.classes.unique().iter().any(|index| index.is_building);
        if is_building && self.classes.may_refresh(REFRESH_INTERVAL) {
            self.refresh_classes().await?;
        }
        Ok(())
    }
}

impl LookedUpObject {
    fn into_rows(self, core: &Arc<Core>) -> Option<Rows> {
        match self {
            Self::None => Some(Rows::of_look_up(core, None)),
            Self::Found(oid, object) => Some(Rows::of_look_up(core, Some((oid, object)))),
            Self::Unclear => None,
        }
    }
}

impl Transaction {
    /// Answers a query by a look-up, if it asks for values of a unique index. The values count as read, and who has them.
    pub(crate) async fn look_up_unique(&self, query: &Query) -> Result<Option<Rows>> {
        let core = self.core();
        core.refresh_building_indexes().await?;
        let Some(wanted) = UniqueQuery::of(core, query) else { return Ok(None) };
        let schema = core.classes.schema();
        for (oid, object, _) in self.written_records()? {
            if schema.class(oid.class()).is_none() {
                return Ok(None);
            }
            if wanted.index.entry(core, object.as_ref())?.as_ref() == Some(&wanted.entry) {
                return Ok(wanted.check_holder(oid, object)?.into_rows(core));
            }
        }
        let found = match self.look_up_values(wanted.entry.collection, &wanted.entry.key).await? {
            None => LookedUpObject::None,
            Some(holder) => wanted.check_holder(holder, self.get(holder).await?)?,
        };
        Ok(found.into_rows(core))
    }
}
