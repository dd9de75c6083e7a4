//! What happens to the members of sets whose classes change, and what checkers need to know of it.
//!
//! - A text of a class is *retired* when its field is removed: from then on programs of older and newer versions see other things in it. It
//!   is judged up to that moment.
//! - A member is *ended* when an operation has tried to remove it, or to write another one over it. That it is not there does not say then
//!   whether it was not there yet, or is not there any more.

use std::collections::{BTreeMap, BTreeSet};

use check::history::{self, Outcome, Replacements, Step, Value};
use model::{ClassId, Kind, Object, Oid, RecordRef};

use super::World;
use crate::object::Content;
use crate::plan::Key;
use crate::program::{self, Elements, TEXTS};

/// What happened to the members of sets.
#[derive(Default)]
pub(super) struct MemberJournal {
    /// The members that others know of, by the guards of sets, and the places of those that were removed.
    known: BTreeMap<Key, Vec<Oid>>,
    free: BTreeMap<Key, Vec<Oid>>,
    ended: BTreeSet<Oid>,
    /// The first elements of texts of ended members, as members of the sets of those.
    ended_texts: BTreeSet<String>,
    /// The operations that have written a number, up to each of them, by the name of the text.
    writers: BTreeMap<(String, i64), Vec<i64>>,
    retired: BTreeMap<(u64, usize), RetiredText>,
}

/// A text whose field was removed.
struct RetiredText {
    since: u64,
    /// What was stored then, as in [`World::finals`].
    finals: BTreeMap<String, Vec<i64>>,
}

impl MemberJournal {
    /// A transaction has committed that has written these objects, of which those are members that the predicate accepts.
    pub(super) fn note_committed(
        &mut self,
        own_writes: &BTreeMap<Oid, Option<Object>>,
        is_member: impl Fn(Key, Oid) -> bool,
    ) {
        for (oid, object) in own_writes {
            let Some(guard) = key_of(*oid).set().filter(|guard| is_member(*guard, *oid)) else { continue };
            let known = self.known.entry(guard).or_default();
            match object {
                Some(_) if !known.contains(oid) => known.push(*oid),
                Some(_) => {}
                None => {
                    known.retain(|one| one != oid);
                    self.free.entry(guard).or_default().push(*oid);
                }
            }
        }
    }

    /// The members of a set that others know of.
    pub(super) fn known(&self, guard: Key) -> &[Oid] {
        self.known.get(&guard).map_or(&[], Vec::as_slice)
    }

    /// The place of a member that was removed, which is given once.
    pub(super) fn take_free(&mut self, guard: Key, number: u64) -> Option<Oid> {
        let free = self.free.get_mut(&guard).filter(|free| !free.is_empty())?;
        Some(free.remove(number as usize % free.len()))
    }

    /// An operation tries to remove a member, or to write another one over it, or in its place.
    pub(super) fn note_ended(&mut self, oid: Oid, texts: impl IntoIterator<Item = String>) {
        self.ended.insert(oid);
        self.ended_texts.extend(texts);
    }

    /// Whether a member that is not there may have been there.
    pub(super) fn has_ended(&self, oid: Oid) -> bool {
        self.ended.contains(&oid)
    }

    /// An operation writes a number that others have written before.
    pub(super) fn note_writer(&mut self, name: String, before: &[i64], element: i64) {
        self.writers.insert((name, element), [before, &[element]].concat());
    }

    /// The elements of a text of a member, which an operation has inserted.
    ///
    /// # Errors
    /// If the value is none that was written, or does not begin with the default of the text.
    pub(super) fn elements(
        &self,
        (key, member): (Key, i64),
        text: usize,
        value: &model::Value,
    ) -> model::Result<Vec<i64>> {
        match Elements::of(Key::set_page(key.page), text, value)? {
            Elements::All(elements) => Ok(elements),
            Elements::Last(None) => Ok(Vec::new()),
            Elements::Last(Some(last)) => {
                let name = key.text_name(member, text);
                self.writers.get(&(name, last)).cloned().ok_or_else(|| {
                    let what = format!("it is {value}, which no operation has written");
                    model::Error::new(model::ErrorKind::Invalid, what)
                })
            }
        }
    }

    /// Whether a step of an operation can be judged: not what was read or written of a text after its field was removed, nor whether
    /// something that is not there was there.
    fn is_judged(&self, operation: &history::Operation, step: &Step) -> bool {
        let retired = Key::text_of(step.key()).and_then(|text| self.retired.get(&text));
        match (step, retired) {
            (Step::Append(key, element), Some(retired)) => {
                retired.finals.get(key).is_some_and(|elements| elements.contains(element))
            }
            (Step::Read(key, value), retired) => {
                let is_in_time = |retired: &RetiredText| {
                    operation.outcome == Outcome::Ok && operation.returned.is_some_and(|at| at < retired.since)
                };
                let may_have_ended = *value == Value::List(Vec::new()) && self.ended_texts.contains(key);
                retired.is_none_or(is_in_time) && !may_have_ended
            }
            _ => true,
        }
    }
}

/// The place of an object.
pub(super) fn key_of(oid: Oid) -> Key {
    Key { node: oid.page().node.0, page: oid.page().number, slot: oid.slot() }
}

impl World {
    /// The class of a member of the sets of a page is that of these sets, or extends it.
    pub(super) fn is_member_class(&self, guard: Key, class: ClassId) -> bool {
        self.schema.family(guard.set_class()).any(|one| one == class)
    }

    /// A text of a stored member: its default, if the member lacks it; `None` if no class has had it.
    pub(super) fn stored_text(&self, guard: Key, object: &Object, text: usize) -> Option<model::Value> {
        let field = self.schema.text_field(guard.set_class(), text)?;
        let record = RecordRef::new(&object.data).ok()?;
        let stored = record.field(field).ok()?.map(|value| value.to_value()).transpose().ok()?;
        Some(stored.unwrap_or_else(|| program::default(guard.page, text)))
    }

    /// The final lists of a member. Those of retired texts were noted when they were retired.
    pub(super) fn add_texts(
        &self,
        (key, member): (Key, i64),
        object: &Object,
        finals: &mut BTreeMap<String, Vec<i64>>,
    ) {
        let Some(guard) = key.set().filter(|_| self.plan.has_added_fields() && object.kind == Kind::Record) else {
            return;
        };
        if self.is_member_class(guard, object.class) {
            let is_judged = |text: &usize| !self.member_journal.retired.contains_key(&(guard.page, *text));
            for text in (0..TEXTS).filter(is_judged) {
                self.add_text((key, member), object, text, finals);
            }
        }
    }

    fn add_text(
        &self,
        (key, member): (Key, i64),
        object: &Object,
        text: usize,
        finals: &mut BTreeMap<String, Vec<i64>>,
    ) {
        let Some(guard) = key.set() else { return };
        let Some(value) = self.stored_text(guard, object, text) else { return };
        // What is no list is missed by the checkers.
        let list = self.member_journal.elements((key, member), text, &value).unwrap_or_default();
        if let Some(first) = list.first() {
            finals.insert(history::member(&guard.touched_name(text), *first), vec![*first]);
        }
        finals.insert(key.text_name(member, text), list);
    }

    /// The field of a text was removed from the class of the sets of a page.
    pub(super) fn retire_text(&mut self, page: u64, text: usize) {
        let class = Key::guard(1, page).set_class();
        self.oracle.removed_fields.extend(self.schema.text_field(class, text).map(|field| (page, field)));
        let mut finals = BTreeMap::new();
        for ((key, member), object) in self.oracle.last_members() {
            let is_of_page = key.set().is_some_and(|guard| guard.page == page);
            if is_of_page && self.is_member_class(Key::guard(1, page), object.class) {
                self.add_text((key, member), object, text, &mut finals);
            }
        }
        self.member_journal.retired.insert((page, text), RetiredText { since: self.now, finals });
    }

    /// What the members were that are not there any more, and what retired texts were.
    pub(super) fn add_former_members(&self, finals: &mut BTreeMap<String, Vec<i64>>) {
        if !self.plan.replaces_members() {
            return;
        }
        let replacements = Replacements::of(&self.history);
        let living: BTreeMap<(Key, i64), Object> = self.objects().into_iter().filter_map(living_member).collect();
        let mut found: BTreeMap<Key, BTreeSet<i64>> = BTreeMap::new();
        for (key, number) in living.keys() {
            found.entry(key.set().unwrap_or(*key)).or_default().insert(*number);
        }
        for ((key, number), object) in self.oracle.last_members() {
            let Some(guard) = key.set().filter(|guard| self.is_member_class(*guard, object.class)) else { continue };
            if !living.contains_key(&(key, number)) {
                let (set, found) = (guard.to_string(), found.entry(guard).or_default());
                let list = replacements.list_of(&set, number, found);
                finals.insert(history::member(&set, number), list);
                self.add_texts((key, number), object, finals);
            }
        }
        for retired in self.member_journal.retired.values() {
            finals.extend(retired.finals.clone());
        }
    }

    /// Leaves out of the history what cannot be judged.
    pub(super) fn drop_unjudged_steps(&mut self) {
        for operation in &mut self.history.operations {
            let mut steps = std::mem::take(&mut operation.steps);
            steps.retain(|step| self.member_journal.is_judged(operation, step));
            operation.steps = steps;
        }
    }
}

/// A member of a set, with the operation that has inserted it.
fn living_member((key, object): (Key, Object)) -> Option<((Key, i64), Object)> {
    key.set()?;
    Some(((key, Content::number(&object)?), object))
}
