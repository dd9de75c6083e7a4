//! Unique indexes: values that no two objects may have.
//!
//! Who has the values of a unique index is kept as entries, spread over the logical nodes of the space by the values
//! ([`protocol::entries::unique_entry`]). Before a transaction that gives an object such values is committed, it looks each of them up,
//! and binds it to the object; what an object has no more, it unbinds. So of two transactions that give the same values one
//! conflicts, and a transaction has at most one more participant for each value. A brick refuses values of a transaction that
//! does not say that it has done so; a client that does not know the index then fetches the classes and indexes, and begins again.
//!
//! 1. An entry tells who had the values last. Before it forbids anything, that object is read: it may have been changed or removed by
//!    a client that did not know the index.
//! 2. Values of objects from before the index are not bound. The client that makes the index binds them
//!    ([`Client::complete_unique_indexes`]), when all bricks refuse values that are not bound. A peer server calls the index ready when all are.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use model::{
    ClassId, Comparison, Entry, EntryKey, Error, ErrorKind, FieldNumber, Kind, Object, Oid, RecordRef, Result, Value,
    ValueRef,
};
use protocol::entries::{index_of_values, key_guard, unique_entry, unique_question};
use protocol::ident::HlcTimestamp;
use protocol::locks::LockMode;
use query::key::IndexEntry;
use query::{Expr, Query, Row, Schema};
use tokio::time;
use wire::proto;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema;

use super::client::Client;
use super::client_core::{Core, unexpected_answer_error};
use super::rows::{ReadSet, Rows};
use super::transaction::{Changes, IsolationLevel, Transaction};
use crate::plant::{Bug, planted};

/// Values that are looked up at once.
const LOOK_UPS_AT_ONCE: usize = 64;
/// Objects from before an index whose values are bound in one transaction.
const BOUND_AT_ONCE: usize = 200;
/// How long a peer server may take to hear of a new index.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between questions whether a brick knows an index.
const RETRY_DELAY: Duration = Duration::from_millis(10);
/// How often a client that searches asks whether an index has become ready.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// A unique index: fields of a class and its subclasses in which no two objects have the same values.
#[derive(Debug)]
pub(super) struct UniqueIndex {
    id: u32,
    name: String,
    class: String,
    family: Arc<BTreeSet<ClassId>>,
    fields: Vec<FieldNumber>,
    /// Objects from before the index may have no entries.
    is_building: bool,
}

impl UniqueIndex {
    /// The index, if its class is in the schema.
    pub(super) fn from_proto(message: schema::Unique, schema: &Schema) -> Option<Self> {
        let class = ClassId(message.class);
        Some(Self {
            id: message.id,
            name: message.name,
            class: schema.class(class)?.name.clone(),
            family: schema.family(class),
            fields: message.fields.into_iter().map(FieldNumber).collect(),
            is_building: message.building,
        })
    }

    /// The key of an object's values. An object of another class has none, nor has one with a null, which equals nothing.
    fn key(&self, object: &Object) -> Result<Option<Vec<u8>>> {
        if object.kind != Kind::Record || !self.family.contains(&object.class) {
            return Ok(None);
        }
        self.key_of_record(&object.data)
    }

    fn key_of_record(&self, record: &[u8]) -> Result<Option<Vec<u8>>> {
        let IndexEntry { key, has_null } = IndexEntry::of(&RecordRef::new(record)?, &self.fields)?;
        Ok(Some(key).filter(|_| !has_null))
    }

    /// Whether an object to which values were bound has them still. It may be of a class that this client does not know.
    fn has_values(&self, core: &Core, object: Option<&Object>, bound: &Entry) -> Result<bool> {
        let record = object.filter(|object| object.kind == Kind::Record);
        let key = record.map(|object| self.key_of_record(&object.data)).transpose()?.flatten();
        let entry = key.map(|key| unique_entry(core.space, &core.nodes, self.id, &key)).transpose()?;
        Ok(entry.as_ref() == Some(bound))
    }

    /// Whether an object's values refer to new objects by temporary identifiers.
    fn has_temporary_values(&self, object: &Object) -> Result<bool> {
        let record = RecordRef::new(&object.data)?;
        for number in &self.fields {
            if let Some(ValueRef::Reference(oid)) = record.field(*number)?
                && oid.is_temporary()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The entry of an object's values, if it has any.
    fn entry(&self, core: &Core, object: Option<&Object>) -> Result<Option<Entry>> {
        let key = object.map(|object| self.key(object)).transpose()?.flatten();
        key.map(|key| unique_entry(core.space, &core.nodes, self.id, &key)).transpose()
    }

    fn taken_error(&self, holder: Oid) -> Error {
        let what = format!("{holder} has the same values already, and index {:?} is unique", self.name);
        Error::new(ErrorKind::Exists, what).about(holder)
    }
}

/// A change of the values that an object has in a unique index.
struct ChangedValues<'k> {
    oid: Oid,
    index: &'k UniqueIndex,
    before: Option<Entry>,
    after: Option<Entry>,
    has_temporary: bool,
}

/// What a transaction has bound.
#[derive(Debug, Default)]
pub(super) struct BoundValues {
    /// The objects that gain values of unique indexes, with the numbers of the indexes.
    gained: Vec<(Oid, u32)>,
    /// Some of the values are temporary identifiers: they are bound again when the real ones are known.
    has_temporary: bool,
}

impl Transaction {
    /// Looks up the unique values that this transaction gives to objects, and binds them; unbinds those that it takes away.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if another object has one of them; else as [`Transaction::get`].
    pub(super) async fn bind_unique_values(&self) -> Result<BoundValues> {
        let known = self.known_unique_indexes().await?;
        self.changes()?.forget_unique_entries();
        let changed = self.changed_values(&known).await?;
        for some in changed.chunks(LOOK_UPS_AT_ONCE) {
            let mut checks = Vec::new();
            for one in some {
                checks.push(self.check_free(one));
            }
            all(checks).await?;
        }
        for some in changed.chunks(LOOK_UPS_AT_ONCE) {
            let mut releases = Vec::new();
            for one in some {
                releases.push(self.release_values(one));
            }
            all(releases).await?;
        }
        let mut bound = BoundValues::default();
        for ChangedValues { oid, index, after, has_temporary, .. } in changed {
            if let Some(entry) = after {
                self.changes()?.set_unique_entry(entry, Some(oid));
                bound.gained.push((oid, index.id));
                bound.has_temporary |= has_temporary;
            }
        }
        Ok(bound)
    }

    /// The unique indexes of the space, as of a time when the classes of all that this transaction writes were known.
    async fn known_unique_indexes(&self) -> Result<Arc<[UniqueIndex]>> {
        let core = self.core();
        let schema = core.classes.schema();
        if self.changes()?.writes.keys().any(|oid| oid.class() != ClassId::NONE && schema.class(oid.class()).is_none())
        {
            match core.refresh_classes().await {
                // A cluster without a catalogue has no indexes.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                refreshed => refreshed?,
            }
        }
        Ok(core.classes.unique())
    }

    /// Says to the logical nodes of objects that their unique values are bound, once their real identifiers are known.
    pub(super) async fn rely_on_unique_values(&self, mut bound: BoundValues) -> Result<()> {
        if bound.has_temporary {
            bound = self.bind_unique_values().await?;
        }
        let gained = bound.gained;
        if gained.is_empty() {
            return Ok(());
        }
        let places = gained.into_iter().map(|(oid, index)| (self.real_oid(oid).unwrap_or(oid).page().node, index));
        let places: BTreeSet<_> = places.collect();
        let space = self.core().space;
        let reads = places.into_iter().map(|(node, index)| unique_question(space, node, index)).collect();
        self.rely(ReadSet { reads, at: HlcTimestamp::ZERO })
    }

    /// The objects whose values in unique indexes this transaction changes.
    ///
    /// # Errors
    /// [`ErrorKind::Exists`] if it gives two objects the same values.
    async fn changed_values<'k>(&self, known: &'k [UniqueIndex]) -> Result<Vec<ChangedValues<'k>>> {
        let mut changed = Vec::new();
        if known.is_empty() {
            return Ok(changed);
        }
        let mut holders: BTreeMap<Entry, Oid> = BTreeMap::new();
        let mut written = self.written_records()?;
        written.retain(|(oid, ..)| known.iter().any(|index| index.family.contains(&oid.class())));
        let replaced: Vec<Oid> = written.iter().filter(|(.., is_new)| !is_new).map(|(oid, ..)| *oid).collect();
        if replaced.len() > 1 {
            self.prefetch(replaced).await?;
        }
        for (oid, object, is_new) in written {
            let before = if is_new { None } else { self.read(oid, LockMode::Exclusive).await? };
            for index in known {
                let before = index.entry(self.core(), before.as_ref())?;
                let after = index.entry(self.core(), object.as_ref())?;
                if let Some(after) = &after
                    && let Some(other) = holders.insert(after.clone(), oid)
                {
                    return Err(index.taken_error(other));
                }
                if before != after {
                    let has_temporary =
                        after.is_some() && object.as_ref().map_or(Ok(false), |one| index.has_temporary_values(one))?;
                    changed.push(ChangedValues { oid, index, before, after, has_temporary });
                }
            }
        }
        Ok(changed)
    }

    /// Checks that no other object has the values that an object gains.
    async fn check_free(&self, one: &ChangedValues<'_>) -> Result<()> {
        let Some(entry) = &one.after else { return Ok(()) };
        let Some(holder) = self.bound_to(entry).await?.filter(|holder| *holder != one.oid) else { return Ok(()) };
        let object = self.get(holder).await?;
        let is_taken = one.index.has_values(self.core(), object.as_ref(), entry)?;
        match is_taken && !planted(Bug::UniqueConflictMissed) {
            true => Err(one.index.taken_error(holder)),
            false => Ok(()),
        }
    }

    /// Unbinds the values that an object loses, if they are bound to it.
    async fn release_values(&self, one: &ChangedValues<'_>) -> Result<()> {
        if let Some(entry) = &one.before
            && self.bound_to(entry).await? == Some(one.oid)
        {
            self.changes()?.set_unique_entry(entry.clone(), None);
        }
        Ok(())
    }

    /// The object to which values are bound. This transaction changes that, so it locks the guard exclusively.
    async fn bound_to(&self, Entry { collection, key }: &Entry) -> Result<Option<Oid>> {
        if self.inner.level == IsolationLevel::Locks {
            self.read(key_guard(*collection, key), LockMode::Exclusive).await?;
        }
        self.look_up_values(*collection, key).await
    }

    /// The object to which values are bound. The transaction conflicts if the index is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the index was dropped, or its brick has not learned of it yet.
    async fn look_up_values(&self, collection: Oid, key: &EntryKey) -> Result<Option<Oid>> {
        let holder = match self.look_up_key(collection, key).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.core().refresh_classes().await?;
                time::sleep(RETRY_DELAY).await;
                return Err(Error::new(ErrorKind::Conflict, error.message().to_owned()));
            }
            found => found?,
        };
        if let Some(index) = index_of_values(collection) {
            let question = unique_question(collection.space(), collection.page().node, index);
            self.rely(ReadSet { reads: vec![question], at: HlcTimestamp::ZERO })?;
        }
        Ok(holder)
    }

    /// Binds the values of an object in unique indexes that are not ready, as far as no other object has them.
    async fn bind_values(&self, known: &[UniqueIndex], oid: Oid) -> Result<()> {
        let object = self.get(oid).await?;
        for index in known {
            let Some(entry) = index.entry(self.core(), object.as_ref())?.filter(|_| index.is_building) else {
                continue;
            };
            let one = ChangedValues { oid, index, before: None, after: Some(entry.clone()), has_temporary: false };
            match self.check_free(&one).await {
                Ok(()) => drop(self.changes()?.entries.insert(entry, Some(oid))),
                // The catalogue records which objects have the same values.
                Err(error) if error.kind() == ErrorKind::Exists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

// ---------------------------------------------------------------------------------------------- queries

/// A query for the object that has values of a unique index. It is answered by a look-up.
struct UniqueQuery {
    index: usize,
    known: Arc<[UniqueIndex]>,
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
        let (index, key) = known
            .iter()
            .enumerate()
            .filter(|(_, index)| is_of(index))
            .find_map(|(at, index)| Some((at, key_of(index)?)))?;
        // A query that does not fit the classes fails as others do.
        query.check(&schema).ok()?;
        let entry = unique_entry(core.space, &core.nodes, known.get(index)?.id, &key).ok()?;
        let classes = if *only { Arc::new([class].into()) } else { schema.family(class) };
        Some(Self { index, known, entry, classes })
    }

    /// What was found, if the values are bound to this object.
    fn found(&self, core: &Core, oid: Oid, object: Option<Object>) -> Result<LookedUpObject> {
        let Some(index) = self.known.get(self.index) else { return Ok(LookedUpObject::Unclear) };
        let has_values = index.has_values(core, object.as_ref(), &self.entry)?;
        Ok(match object.filter(|_| has_values && index.family.contains(&oid.class())) {
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
    pub(super) async fn look_up_unique(self: &Arc<Self>, query: &Query) -> Result<Option<Rows>> {
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
            Some(holder) => wanted.found(self, *holder, self.read_object(*holder, false).await?)?,
        };
        Ok(found.into_rows(self))
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
    pub(super) async fn look_up_unique(&self, query: &Query) -> Result<Option<Rows>> {
        let core = self.core();
        core.refresh_building_indexes().await?;
        let Some(wanted) = UniqueQuery::of(core, query) else { return Ok(None) };
        let schema = core.classes.schema();
        for (oid, object, _) in self.written_records()? {
            if schema.class(oid.class()).is_none() {
                return Ok(None);
            }
            if let (Some(object), Some(index)) = (object, wanted.known.get(wanted.index))
                && index.entry(core, Some(&object))?.as_ref() == Some(&wanted.entry)
            {
                return Ok(wanted.found(core, oid, Some(object))?.into_rows(core));
            }
        }
        let found = match self.look_up_values(wanted.entry.collection, &wanted.entry.key).await? {
            None => LookedUpObject::None,
            Some(holder) => wanted.found(core, holder, self.get(holder).await?)?,
        };
        Ok(found.into_rows(core))
    }
}

impl Changes {
    fn set_unique_entry(&mut self, entry: Entry, target: Option<Oid>) {
        self.unique_entries.insert(entry.clone());
        self.entries.insert(entry, target);
    }

    /// Forgets what an earlier try to commit has bound and unbound.
    fn forget_unique_entries(&mut self) {
        for entry in std::mem::take(&mut self.unique_entries) {
            self.entries.remove(&entry);
        }
    }
}

impl Core {
    /// Waits until the peer server has heard of these unique indexes, and with it this client.
    async fn wait_for_unique_indexes(&self, indexes: &BTreeSet<u32>) -> Result<()> {
        let until = Instant::now() + KNOWN_TIMEOUT;
        loop {
            self.refresh_classes().await?;
            let known: BTreeSet<u32> = self.classes.unique().iter().map(|index| index.id).collect();
            // One may have been removed meanwhile.
            if indexes.is_subset(&known) || Instant::now() > until {
                return Ok(());
            }
            time::sleep(RETRY_DELAY).await;
        }
    }

    /// The numbers of the unique indexes of these classes that are not ready.
    pub(super) fn building_indexes(&self, classes: &BTreeSet<&str>) -> Vec<u32> {
        let known = self.classes.unique();
        let building = known.iter().filter(|index| index.is_building && classes.contains(&*index.class));
        building.map(|index| index.id).collect()
    }

    /// Finds out, now and then, whether unique indexes have become ready that were not.
    async fn refresh_building_indexes(&self) -> Result<()> {
        let is_building = self.classes.unique().iter().any(|index| index.is_building);
        if is_building && self.classes.may_refresh(REFRESH_INTERVAL) {
            self.refresh_classes().await?;
        }
        Ok(())
    }

    /// Waits until the bricks of all logical nodes know an index and have entered their objects: then each refuses values that are not bound.
    async fn wait_for_bricks(&self, index: u32) -> Result<()> {
        let until = Instant::now() + self.options.timeout;
        for node in &self.nodes {
            loop {
                let build = proto::BuildIndex { space: u32::from(self.space.0), node: node.0, index };
                match self.ask(Request::BuildIndex(build)).await {
                    Ok((Response::Done(_), _)) => break,
                    Ok((Response::Progress(_), _)) => {}
                    Ok(_) => return Err(unexpected_answer_error()),
                    // The brick has not learned of the index yet.
                    Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < until => {
                        time::sleep(RETRY_DELAY).await;
                        self.refresh_classes().await?;
                        if !self.classes.unique().iter().any(|known| known.id == index) {
                            // It was removed.
                            return Ok(());
                        }
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

impl Client {
    /// Binds the values of all objects from before unique indexes, given by their numbers, as far as they are not ready. An index becomes
    /// ready after that, if no two objects have the same values. [`Client::define`] and [`Client::describe`] do this for the
    /// indexes that they make, and for those of the same classes; a program that was ended meanwhile does it when it is started again.
    ///
    /// # Errors
    /// As [`Client::query`] and [`Client::transact`]; [`ErrorKind::Denied`] without the permission to administer the space. What was bound
    /// stays: call it again.
    pub async fn complete_unique_indexes(&self, indexes: impl IntoIterator<Item = u32> + Send) -> Result<()> {
        let indexes: BTreeSet<u32> = indexes.into_iter().collect();
        self.core.wait_for_unique_indexes(&indexes).await?;
        let mut classes = BTreeSet::new();
        for index in &*self.core.classes.unique() {
            if index.is_building && indexes.contains(&index.id) {
                self.core.wait_for_bricks(index.id).await?;
                classes.insert(index.class.clone());
            }
        }
        for class in classes {
            let mut rows = self.query(&Query::of(&*class)).await?;
            let mut oids = Vec::new();
            loop {
                let row = rows.next().await?;
                let is_last = row.is_none();
                oids.extend(match row {
                    Some(Row::Object(oid, _)) => Some(oid),
                    _ => None,
                });
                if oids.len() >= BOUND_AT_ONCE || is_last && !oids.is_empty() {
                    let oids = &std::mem::take(&mut oids);
                    let bind = |t: Transaction| async move {
                        // An index may be removed meanwhile.
                        let known = t.core().classes.unique();
                        let mut bound = Vec::new();
                        for oid in oids {
                            bound.push(t.bind_values(&known, *oid));
                        }
                        all(bound).await
                    };
                    self.transact(bind).await?;
                }
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Polls all futures until each has ended: all requests are sent before the first one is answered. Returns the first error.
async fn all<F: Future<Output = Result<()>>>(futures: Vec<F>) -> Result<()> {
    let mut pending: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut ended = Ok(());
    poll_fn(|context| {
        pending.retain_mut(|one| match one.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                if ended.is_ok() {
                    ended = result;
                }
                false
            }
        });
        if pending.is_empty() || ended.is_err() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ended
}

#[cfg(test)]
mod tests {
    use model::RecordBuilder;

    use super::*;

    fn index() -> UniqueIndex {
        let (class, family) = ("Account".to_owned(), Arc::new([ClassId(5)].into()));
        let fields = vec![FieldNumber(1)];
        UniqueIndex { id: 1, name: "by_owner".to_owned(), class, family, fields, is_building: false }
    }

    fn account(owner: Option<&str>) -> Object {
        let mut record = RecordBuilder::new();
        if let Some(owner) = owner {
            record.set(FieldNumber(1), owner).unwrap();
        }
        Object::record(ClassId(5), record.build().unwrap())
    }

    #[test]
    fn object_without_a_value_or_of_another_class_is_not_in_the_index() {
        assert_eq!(index().key(&account(None)).unwrap(), None);
        let other = Object::record(ClassId(6), account(Some("Ann")).data);
        assert_eq!(index().key(&other).unwrap(), None);
        assert_eq!(index().key(&account(Some("Ann"))).unwrap(), index().key(&account(Some("Ann"))).unwrap());
        assert_ne!(index().key(&account(Some("Ann"))).unwrap(), index().key(&account(Some("Bob"))).unwrap());
    }
}
