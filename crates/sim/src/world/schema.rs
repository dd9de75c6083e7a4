//! The classes and indexes of the space: those of the sets of a run, which come and go, and what processes know of them.
//!
//! Each set has a class, and an index by the numbers of its members; the objects with unique values beside it have another class, and
//! a unique index. During a run a class gets classes that extend it, and more indexes. Bricks and peer servers hear of a change late; a
//! process that starts has read the catalogue.

use std::collections::BTreeMap;
use std::sync::Arc;

use meta::Revision;
use meta::catalog::{self, EvolutionError, IndexId, IndexState, Schema};
use model::{Class, ClassId, FieldNumber, FieldType};
use node::cluster_view::QuerySchema;
use node::drivers::peer::schema_to_proto;

use super::World;
use super::driven_brick::scan_all;
use super::event::Event;
use super::net::Pid;
use super::process::ProcessMachine;
use crate::object::{LOG_FIELD, NUMBER_FIELD, VALUE_FIELD, whole_index};
use crate::plan::{Action, EXTRA_INDEXES, Key, LAST_PROGRAM_PAGE, MAX_ADDED_FIELDS, Plan, ProcessName, SPACE, Step};
use crate::program::{self, ClassChange, LOG, NUMBER};

/// The most classes that extend the class of a set.
const MAX_SUBCLASSES: u32 = 3;
/// The longest time until a process hears of a change, and until the catalogue answers, in milliseconds.
const NEWS_MS: u64 = 300;
const ANSWER_MS: u64 = 20;

/// An index of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetIndex {
    pub(super) index: u32,
    pub(super) class: ClassId,
    pub(super) field: FieldNumber,
    unique: bool,
    is_ready: bool,
}

/// The classes and indexes at one moment.
#[derive(Clone, Debug)]
pub(super) struct SchemaVersion {
    pub(super) catalog: Arc<Schema>,
    pub(super) query: Arc<QuerySchema>,
    /// How many changes each class has gone through.
    changes: BTreeMap<ClassId, usize>,
}

/// The classes and indexes of the space.
#[derive(Clone)]
pub(super) struct SpaceSchema {
    indexes: Vec<SetIndex>,
    /// The classes in their newest versions.
    classes: BTreeMap<ClassId, Class>,
    /// How many changes each class has gone through, and the fields that it got for texts.
    changes: BTreeMap<ClassId, usize>,
    texts: BTreeMap<(ClassId, usize), FieldNumber>,
    extra_indexes: u32,
    /// Indexes that there are no more.
    dropped: Vec<SetIndex>,
    versions: Vec<SchemaVersion>,
}

impl SpaceSchema {
    /// The classes and indexes of the sets of a plan.
    pub(super) fn new(plan: &Plan) -> Self {
        let steps = plan.actions.iter().flat_map(|(_, action)| match action {
            Action::Do(_, operation) => operation.steps(),
            _ => &[],
        });
        let spec = |index, field, unique, class| SetIndex { index, class, field, unique, is_ready: true };
        let specs = steps.filter_map(|step| match step {
            Step::Count(guard)
            | Step::Insert(guard)
            | Step::Note(guard)
            | Step::Sift(guard)
            | Step::Renew(guard)
            | Step::Replace(guard)
            | Step::Reuse(guard) => Some(spec(guard.set_index(), NUMBER_FIELD, false, guard.set_class())),
            Step::Claim(guard, _) => Some(spec(guard.claim_index(), VALUE_FIELD, true, guard.claim_class())),
            _ => None,
        });
        let specs: BTreeMap<u32, SetIndex> = specs.map(|spec| (spec.index, spec)).collect();
        let classes: BTreeMap<_, _> = specs.values().map(|spec| (spec.class, first_version(spec.class))).collect();
        let texts = classes.keys().map(|class| ((*class, 0), LOG_FIELD)).collect();
        let indexes = specs.into_values().collect();
        let (changes, dropped, versions) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut schema = Self { indexes, classes, changes, texts, extra_indexes: 0, dropped, versions };
        schema.add_version();
        schema
    }

    fn add_version(&mut self) {
        let classes = self.classes.values().cloned().map(Arc::new);
        let indexes = self.indexes.iter().map(|spec| {
            let index = catalog::Index {
                id: IndexId(spec.index),
                name: format!("i{}", spec.index),
                class: spec.class,
                fields: vec![spec.field],
                unique: spec.unique,
                state: if spec.is_ready { IndexState::Ready } else { IndexState::Building },
                flaw: None,
                job: None,
            };
            (index.name.clone(), Arc::new(index))
        });
        let (catalog, flawed) = Schema::new(classes.collect::<Vec<_>>(), indexes.collect());
        assert!(flawed.is_empty(), "the classes of a run fit together: {flawed:?}");
        let classes: Vec<&Class> = catalog.classes().map(|shape| shape.class().as_ref()).collect();
        let query = QuerySchema::of(classes, catalog.indexes().map(Arc::as_ref));
        let query = query.unwrap_or_else(|error| panic!("the classes of a run fit together: {error}"));
        let changes = self.changes.clone();
        self.versions.push(SchemaVersion { catalog: Arc::new(catalog), query: Arc::new(query), changes });
    }

    /// The number of changes so far, and the newest state.
    pub(super) fn newest(&self) -> (usize, SchemaVersion) {
        let number = self.versions.len() - 1;
        (number, self.versions[number].clone())
    }

    pub(super) fn version(&self, number: usize) -> &SchemaVersion {
        &self.versions[number]
    }

    /// A class and those that extend it.
    pub(super) fn family(&self, class: ClassId) -> impl Iterator<Item = ClassId> {
        let below = self.classes.values().filter(move |one| one.parent == Some(class)).map(|one| one.id);
        std::iter::once(class).chain(below)
    }

    /// The class of the member that an operation inserts into a set.
    pub(super) fn member_class(&self, guard: Key, number: u64) -> ClassId {
        let family: Vec<ClassId> = self.family(guard.set_class()).collect();
        family[number as usize % family.len()]
    }

    /// How many changes the class of a set has gone through.
    pub(super) fn class_version(&self, class: ClassId) -> usize {
        self.changes.get(&class).copied().unwrap_or_default()
    }

    /// How many it has gone through by the classes of a revision; `None` if they have no class.
    pub(super) fn class_version_at(&self, class: ClassId, revision: u64) -> Option<usize> {
        let version = self.versions.get(revision.checked_sub(1)? as usize)?;
        Some(version.changes.get(&class).copied().unwrap_or_default())
    }

    /// The field of a text of the members of a set, if its class has it or had it.
    pub(super) fn text_field(&self, class: ClassId, text: usize) -> Option<FieldNumber> {
        self.texts.get(&(class, text)).copied()
    }

    /// The field that the next index of a class is about: the last one that was added, or any once fields were changed, too.
    fn field_to_index(&self, class: ClassId) -> FieldNumber {
        let text = match self.class_version(class) {
            version if version <= MAX_ADDED_FIELDS => version,
            version => {
                let fields = program::fields(u64::from(class.0), version);
                fields[1 + self.extra_indexes as usize % (fields.len() - 1)].text
            }
        };
        self.text_field(class, text).filter(|_| text > 0).unwrap_or(NUMBER_FIELD)
    }

    /// Drops indexes. Says whether there were any.
    fn drop_indexes(&mut self, is_dropped: impl Fn(&SetIndex) -> bool) -> bool {
        let dropped: Vec<SetIndex> = self.indexes.extract_if(.., |spec| is_dropped(spec)).collect();
        self.dropped.extend_from_slice(&dropped);
        !dropped.is_empty()
    }

    /// The revision of the catalogue with the newest classes.
    pub(super) fn newest_revision(&self) -> Revision {
        revision(self.versions.len() - 1)
    }

    /// The indexes of a class.
    pub(super) fn indexes_of(&self, class: ClassId) -> Vec<u32> {
        self.indexes.iter().filter(|spec| spec.class == class).map(|spec| spec.index).collect()
    }

    pub(super) fn indexes(&self) -> &[SetIndex] {
        &self.indexes
    }

    /// The indexes that there are no more.
    pub(super) fn dropped_indexes(&self) -> &[SetIndex] {
        &self.dropped
    }
}

/// The revision of the catalogue that has the classes with this number.
fn revision(number: usize) -> Revision {
    Revision(number as u64 + 1)
}

/// A class of a set, or of objects with unique values, before it was changed.
fn first_version(class: ClassId) -> Class {
    let mut first = Class::new(class, class_name(class))
        .field(NUMBER_FIELD.0, NUMBER, FieldType::Int64)
        .field(VALUE_FIELD.0, "value", FieldType::Int64)
        .field(LOG_FIELD.0, LOG, FieldType::String);
    first.last_number = LOG_FIELD.0;
    first
}

/// The name of a class.
pub(super) fn class_name(class: ClassId) -> String {
    format!("C{}", class.0)
}

impl World {
    /// One more index for the sets of a page, or one less. Index numbers are never used twice.
    pub(super) fn reindex(&mut self, page: u64) {
        let class = Key::guard(1, page).set_class();
        let schema = &mut self.schema;
        let is_dropped = schema.drop_indexes(|spec| spec.index > EXTRA_INDEXES && spec.class == class);
        if !is_dropped && schema.classes.contains_key(&class) {
            schema.extra_indexes += 1;
            let (index, field) = (EXTRA_INDEXES + schema.extra_indexes, schema.field_to_index(class));
            schema.indexes.push(SetIndex { index, class, field, unique: false, is_ready: false });
        }
        self.tell_schema();
    }

    /// The class of the sets of a page gets another class that extends it.
    pub(super) fn evolve(&mut self, page: u64) {
        let guard = Key::guard(1, page);
        let count = self.schema.family(guard.set_class()).count() as u32 - 1;
        if count < MAX_SUBCLASSES && self.schema.classes.contains_key(&guard.set_class()) {
            let class = guard.subclass(count);
            let extending = Class::new(class, class_name(class)).extends(guard.set_class());
            self.schema.classes.insert(class, extending);
            self.tell_schema();
        }
    }

    /// The class of the sets of a page gets one more field, unless it has enough.
    pub(super) fn add_field(&mut self, page: u64) {
        if self.schema.class_version(Key::guard(1, page).set_class()) < MAX_ADDED_FIELDS {
            self.change_class(page);
        }
    }

    /// The class of the sets of a page goes through its next change, as the catalogue evolves classes. Indexes of a field that is removed or
    /// widened are dropped first.
    pub(super) fn change_class(&mut self, page: u64) {
        let class = Key::guard(1, page).set_class();
        let version = self.schema.class_version(class);
        let Some(change) = ClassChange::of(page, version).filter(|_| self.schema.classes.contains_key(&class)) else {
            return;
        };
        let mut evolved = self.evolved_class(class, change, version);
        let number = self.schema.text_field(class, change.text());
        if matches!(change, ClassChange::Remove(_) | ClassChange::Widen(_))
            && self.schema.drop_indexes(|spec| spec.class == class && number == Some(spec.field))
        {
            if !matches!(evolved, Err(EvolutionError::Indexed { .. })) {
                self.oracle.report(format!("T7: class {} takes {change:?}, and the field has an index", class.0));
            }
            self.tell_schema();
            evolved = self.evolved_class(class, change, version);
        }
        match evolved {
            Ok(classes) => {
                self.schema.classes.extend(classes.into_iter().map(|class| (class.id, class)));
                self.schema.changes.insert(class, version + 1);
                self.note_changed_text(page, change);
                self.tell_schema();
            }
            Err(error) => self.oracle.report(format!("T7: class {} does not take {change:?}: {error}", class.0)),
        }
    }

    /// The classes that a change of a class writes anew.
    fn evolved_class(&self, class: ClassId, change: ClassChange, version: usize) -> Result<Vec<Class>, EvolutionError> {
        let (_, newest) = self.schema.newest();
        let resolved = newest.catalog.class(class);
        let resolved = resolved.unwrap_or_else(|| panic!("class {} is among those of the run", class.0));
        newest.catalog.evolved(resolved, &[change.step(u64::from(class.0), version)])
    }

    /// The field of an added text is known now, and what is in that of a removed one counts no more.
    fn note_changed_text(&mut self, page: u64, change: ClassChange) {
        let class = Key::guard(1, page).set_class();
        match change {
            ClassChange::Add(text) => {
                let name = program::name_in(page, self.schema.class_version(class), text);
                let fields = self.schema.classes.get(&class).into_iter().flat_map(|class| &class.fields);
                let number = fields.filter(|field| Some(&*field.name) == name).map(|field| field.number).next_back();
                self.schema.texts.extend(number.map(|number| ((class, text), number)));
            }
            ClassChange::Remove(text) => self.retire_text(page, text),
            ClassChange::Rename(..) | ClassChange::Widen(_) => {}
        }
    }

    /// The program of a client is replaced by one that knows the fields that classes have now.
    pub(super) fn upgrade(&mut self, client: usize) {
        let Some(pid) = self.pid(ProcessName::Client(client)) else { return };
        for page in 1..=LAST_PROGRAM_PAGE {
            let version = self.schema.class_version(Key::guard(1, page).set_class());
            self.programs.entry(pid).or_default().insert(page, version);
        }
    }

    /// The classes that the peer server above a client knows; those of the catalogue, if it has none above it.
    pub(super) fn give_classes(&mut self, pid: Pid) {
        let (newest, _) = self.schema.newest();
        let link = self.processes[pid].uplinks.first().and_then(|uplink| uplink.link);
        let above = link.map(|link| self.net.links[link].upper);
        let number = match above {
            Some(above) if matches!(self.processes[above].machine, Some(ProcessMachine::Peer(_))) => {
                self.processes[above].schema
            }
            Some(_) => newest,
            None => return,
        };
        let (revision, schema) = (revision(number), self.schema.version(number).catalog.clone());
        let Some(ProcessMachine::Client(client)) = &mut self.processes[pid].machine else { return };
        // A peer server that has not heard of the client's revision lets it wait.
        if client.classes.revision() > revision.0 {
            return;
        }
        let updated = schema_to_proto(&schema, revision).and_then(|classes| client.classes.update(classes));
        if let Err(error) = updated {
            self.oracle.report(format!("T1: {} cannot read the classes: {error}", self.name(pid)));
        }
        self.drain_process(pid);
    }

    /// Whether an index has all objects at each logical node.
    fn is_complete(&self, spec: &SetIndex) -> bool {
        let classes: Vec<ClassId> = self.schema.family(spec.class).collect();
        self.serving.keys().all(|node| {
            let range = Some(whole_index(spec.index, false));
            self.driven_brick(*node).is_some_and(|driven| scan_all(&driven.brick, *node, &classes, range).is_some())
        })
    }

    /// An index that has not all objects.
    pub(super) fn incomplete_index(&self) -> Option<u32> {
        self.schema.indexes.iter().find(|spec| !self.is_complete(spec)).map(|spec| spec.index)
    }

    /// Marks the indexes that have all objects as ready.
    pub(super) fn update_index_states(&mut self) {
        let building: Vec<SetIndex> = self.schema.indexes.iter().filter(|spec| !spec.is_ready).copied().collect();
        for spec in building {
            if self.is_complete(&spec) {
                self.schema
                    .indexes
                    .iter_mut()
                    .filter(|one| one.index == spec.index)
                    .for_each(|one| one.is_ready = true);
                self.tell_schema();
            }
        }
    }

    /// All processes hear of the newest classes and indexes, at different times.
    fn tell_schema(&mut self) {
        self.schema.add_version();
        for pid in 0..self.processes.len() {
            self.send_schema(pid, NEWS_MS);
        }
    }

    /// A process hears of the newest classes and indexes within this time.
    fn send_schema(&mut self, pid: Pid, most_ms: u64) {
        if matches!(self.processes[pid].machine, Some(ProcessMachine::Driven(_) | ProcessMachine::Peer(_))) {
            let (number, _) = self.schema.newest();
            let (at, life) = (self.now + self.net.chance(pid, (1, most_ms)), self.processes[pid].incarnation);
            self.push(at, Event::Schema(pid, life, number));
        }
    }

    /// A brick asks the catalogue for classes that it lacks.
    pub(super) fn refresh_schema(&mut self, pid: Pid) {
        let (at, life) = (self.now + self.net.chance(pid, (1, ANSWER_MS)), self.processes[pid].incarnation);
        self.push(at, Event::SchemaRefreshed(pid, life));
    }

    /// The catalogue has answered a brick or a query.
    pub(super) fn handle_schema_refreshed(&mut self, pid: Pid, life: u64) {
        if self.processes[pid].incarnation != life {
            return;
        }
        if matches!(self.processes[pid].machine, Some(ProcessMachine::Client(_))) {
            return self.give_classes(pid);
        }
        self.apply_newest_schema(pid);
        self.with_driven(pid, |driven, now| driven.brick.handle_schema_refreshed(SPACE, now));
        self.handle_query_schema(pid);
        self.drain_process(pid);
    }

    /// A process has read the newest classes and indexes.
    pub(super) fn apply_newest_schema(&mut self, pid: Pid) {
        let (number, _) = self.schema.newest();
        self.apply_schema(pid, number);
    }

    /// A process hears of classes and indexes, perhaps late.
    pub(super) fn handle_schema(&mut self, pid: Pid, life: u64, number: usize) {
        if self.processes[pid].incarnation == life && self.processes[pid].schema < number {
            self.apply_schema(pid, number);
        }
    }

    pub(super) fn apply_schema(&mut self, pid: Pid, number: usize) {
        self.processes[pid].schema = number;
        let schema = self.schema.version(number).catalog.clone();
        self.with_driven(pid, |driven, now| driven.brick.set_schema(SPACE, &schema, now));
        self.drain_process(pid);
    }
}
