//! Steps on the members of sets by programs: they insert members, append to the texts that they know, query them, and rewrite them in the
//! newest version of their class.
//!
//! - T1. A program that knows a field reads it in every object: what was written, or the default that the field had when it was added. A program
//!   whose fields its class does not have any more, by name and type, is refused, and no other.
//! - T4. A query for a field finds what the objects have.
//! - T5. Who writes an object omits the fields that its class has lost by the classes that the client knows.
//! - T6. An object that is inserted, or rewritten in a newer version of its class, has all fields of that version: those that the program does
//!   not know have their defaults, and others the values that they had, in the type of that version.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::driver::{KnownClasses, ReadRequest, StructMapping};
use model::{ClassId, Error, NodeId, Object, Oid, RecordRef, Value};
use protocol::ident::TxnId;
use protocol::locks::LockMode;
use protocol::page_cache::ObjectState;
use wire::cluster::Scanned;
use wire::proto;
use wire::proto::request::Request;

use super::ClientProcess;
use super::sets::RESCAN_MS;
use crate::object::Content;
use crate::plan::Key;
use crate::program::{self, Member, Program, TEXTS, TextField};
use crate::world::World;
use crate::world::member_journal::{MemberJournal, key_of};
use crate::world::net::Pid;
use crate::world::process::ProcessMachine;
use crate::world::query::QueryAnswer;
use crate::world::users::Asked;
use check::history;

/// How long a client waits for classes before it asks again, in milliseconds.
const CLASSES_TIMEOUT_MS: u64 = 500;
/// How many members of a set are written: the last ones that are known.
const WRITTEN_MEMBERS: usize = 3;

/// A query for the members that have something in a text; or for all, by a condition that the default of the text fulfils.
pub(super) struct Sift {
    pub(super) program: Program,
    mapping: Arc<StructMapping>,
    /// The field, and its place among those of the program.
    field: TextField,
    at: usize,
    is_all: bool,
}

/// What a program has read of a member.
struct ReadMember {
    member: Member,
    /// The elements of the texts that the program knows.
    lists: Vec<Vec<i64>>,
}

impl World {
    /// The program of a client, and the mapping of its struct to the classes that the client knows; `None` while it waits for others, or if its
    /// transaction has ended because it is too old for its class.
    pub(super) fn program(
        &mut self,
        pid: Pid,
        guard: Key,
        class: Option<ClassId>,
    ) -> Option<(Program, Arc<StructMapping>)> {
        let version = self.current_mut(pid)?.programs.get(&guard.page).copied().unwrap_or_default();
        let program = Program::of(guard, version);
        let newest = self.schema.newest_revision();
        let client = self.client(pid)?;
        let (revision, mapped) = (client.classes.revision(), program.mapping(&client.classes));
        let known = self.schema.class_version_at(guard.set_class(), revision);
        let is_mapped = known.is_some_and(|known| program::maps(guard.page, version, known));
        // A program waits for the classes of its version: it has defined them when it started.
        let is_known = known.is_some_and(|known| known >= version);
        let what = match mapped {
            Ok(mapping) if is_known && is_mapped && class.is_none_or(|class| mapping.covers(class)) => {
                if program::fits(guard.page, version, known.unwrap_or_default()) {
                    return Some((program, mapping));
                }
                // A field that it knows by its name is another one now.
                self.end_old_program(pid, guard);
                return None;
            }
            Err(_) if is_known && !is_mapped => {
                self.end_old_program(pid, guard);
                return None;
            }
            Ok(mapping) => format!("objects of class {class:?} are none of {mapping:?} of {program:?}"),
            Err(error) => format!("{program:?} does not fit: {error}"),
        };
        if revision == newest.0 || is_known && !is_mapped {
            self.oracle.report(format!("T1: {} has classes of revision {revision}, and {what}", self.name(pid)));
        }
        self.ask_for_classes(pid);
        None
    }

    /// The program of a client is too old for the class of a set: its transaction ends, and it is replaced by one that knows the newest
    /// version.
    fn end_old_program(&mut self, pid: Pid, guard: Key) {
        let newest = self.schema.class_version(guard.set_class());
        self.programs.entry(pid).or_default().insert(guard.page, newest);
        self.count.old_programs += 1;
        self.end_transaction(pid);
        self.push_timer(self.now + RESCAN_MS, pid, self.processes[pid].incarnation);
    }

    /// A program cannot read a member. It may be too old, if a field was widened that it knows; else something is wrong.
    pub(super) fn handle_unread(&mut self, pid: Pid, program: Program, (oid, error): (Oid, Error)) {
        let guard = Key::guard(1, program.page);
        let newest = self.schema.class_version(guard.set_class());
        if program::is_widened(program.page, program.version, newest) {
            self.ask_for_classes(pid);
            self.end_old_program(pid, guard);
        } else {
            self.oracle.report(format!("T1: {} reads {oid}: {error}", self.name(pid)));
        }
    }

    /// Whether the program of a client does not fit the newest version of a class, so that queries for its fields may fail.
    pub(super) fn has_old_program(&mut self, pid: Pid) -> bool {
        let programs = self.current_mut(pid).map(|current| current.programs.clone()).unwrap_or_default();
        programs.into_iter().any(|(page, version)| {
            let newest = self.schema.class_version(Key::guard(1, page).set_class());
            !program::fits(page, version, newest)
        })
    }

    /// A client asks for the classes that the catalogue has, unless it waits for them. One that is not permitted to give its operation up.
    pub(super) fn ask_for_classes(&mut self, pid: Pid) {
        let (now, life) = (self.now, self.processes[pid].incarnation);
        let request = Request::GetSchema(proto::schema::GetSchema::default());
        if self.user_of(pid).is_some() && self.may_request(pid, request, RESCAN_MS) != Asked::Allowed {
            return self.push_timer(now + RESCAN_MS, pid, life);
        }
        let Some(client) = self.client(pid) else { return };
        if client.classes_asked_until <= now {
            client.classes_asked_until = now + CLASSES_TIMEOUT_MS;
            self.refresh_schema(pid);
        }
        self.push_timer(now + RESCAN_MS, pid, life);
    }

    pub(super) fn client(&mut self, pid: Pid) -> Option<&mut ClientProcess> {
        match &mut self.processes[pid].machine {
            Some(ProcessMachine::Client(client)) => Some(client),
            _ => None,
        }
    }

    /// The member that an operation inserts; `None` while the client waits for classes.
    pub(super) fn new_member(&mut self, pid: Pid, guard: Key) -> Option<Object> {
        let number = self.current_mut(pid)?.record.number;
        let class = self.schema.member_class(guard, number);
        if !self.plan.has_added_fields() {
            return Some(Content::encode_member(number as i64, class));
        }
        self.encode_new_member(pid, guard, class)
    }

    /// The same, of this class.
    pub(super) fn encode_new_member(&mut self, pid: Pid, guard: Key, class: ClassId) -> Option<Object> {
        let number = self.current_mut(pid)?.record.number as i64;
        let (program, mapping) = self.program(pid, guard, None)?;
        match program.write(&mapping, &program.new_member(number), None) {
            Ok(record) => {
                let object = Object::record(class, record);
                self.check_written(pid, program, &object, true);
                Some(object)
            }
            Err(error) => {
                self.oracle.report(format!("T1: {} cannot insert a member: {error}", self.name(pid)));
                None
            }
        }
    }

    /// What a program writes lacks the fields that the class has lost by the classes that the client knows (T5). If it is new, it has all others
    /// (T6).
    fn check_written(&mut self, pid: Pid, program: Program, object: &Object, is_new: bool) {
        let guard = Key::guard(1, program.page);
        let Some(revision) = self.client(pid).map(|client| client.classes.revision()) else { return };
        let Some(known) = self.schema.class_version_at(guard.set_class(), revision) else { return };
        let has = |text| self.has_text(guard, object, text);
        let kept = program::removed_texts(guard.page, known).find(|text| has(*text));
        let mut all = program::fields(guard.page, known).into_iter().filter(|field| is_new && field.text > 0);
        let lacks = all.find(|field| !has(field.text));
        if let Some(text) = kept {
            let name = self.name(pid);
            self.oracle.report(format!("T5: {name} writes text {text}, and its class has lost it in version {known}"));
        }
        if let Some(field) = lacks {
            let name = self.name(pid);
            self.oracle.report(format!("T6: {name} inserts a member without {field:?} of version {known}"));
        }
    }

    /// Whether a stored member has a text of its own.
    fn has_text(&self, guard: Key, object: &Object, text: usize) -> bool {
        let field = self.schema.text_field(guard.set_class(), text);
        let record = RecordRef::new(&object.data);
        field.zip(record.ok()).is_some_and(|(field, record)| matches!(record.field(field), Ok(Some(_))))
    }

    /// Others hear of the members that a transaction has inserted, replaced or removed.
    pub(super) fn know_members(&mut self, own_writes: &BTreeMap<Oid, Option<Object>>) {
        if self.plan.has_added_fields() {
            let schema = &self.schema;
            let is_member = |guard: Key, oid: Oid| schema.family(guard.set_class()).any(|class| class == oid.class());
            self.member_journal.note_committed(own_writes, is_member);
        }
    }

    /// The member that a step is about: one of the last that are known.
    pub(super) fn written_member(&self, guard: Key, number: u64) -> Option<Oid> {
        let known = self.member_journal.known(guard);
        let last = &known[known.len().saturating_sub(WRITTEN_MEMBERS)..];
        last.get(number as usize % last.len().max(1)).copied()
    }

    /// Reads a member to write it. `None` while that waits, or when the transaction was given up, which the second part says.
    pub(super) fn read_member(&mut self, pid: Pid, txn: TxnId, oid: Oid) -> Result<Option<Object>, bool> {
        match self.read_all(pid, txn, &[(oid, LockMode::Exclusive)]) {
            Some(true) => {}
            Some(false) => return Err(false),
            None => return Err(true),
        }
        let shown = self.local_time(pid);
        let Some(client) = self.client(pid) else { return Err(false) };
        let Some(current) = &client.current else { return Err(false) };
        let read = ReadRequest { txn, level: current.isolation, oid, mode: LockMode::Exclusive };
        match client.driver.read(&read, shown) {
            Ok(Some(object)) => {
                if let Some(object) = object.as_ref().filter(|object| object.class != oid.class()) {
                    self.oracle.report(format!("T1: {oid} is read as an object of class {}", object.class.0));
                }
                Ok(object)
            }
            Ok(None) => Err(false),
            Err(error) => {
                self.give_up(pid, error.kind());
                Err(true)
            }
        }
    }

    /// Appends the number of the operation to a text of a member. Says whether there may be another step.
    pub(super) fn note_member(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        let Some(number) = self.current_mut(pid).map(|current| current.record.number) else { return false };
        let Some(oid) = self.written_member(guard, number) else { return self.end_without_member(pid) };
        let Some((program, mapping)) = self.program(pid, guard, Some(oid.class())) else { return false };
        let before = match self.read_member(pid, txn, oid) {
            Ok(before) => before,
            Err(goes_on) => return goes_on,
        };
        let key = key_of(oid);
        let fields = program.fields();
        let at = number as usize / WRITTEN_MEMBERS % fields.len();
        let Some(before) = before else {
            // This may be the state before it was inserted; the checkers judge it, unless it may have been removed.
            if !self.member_journal.has_ended(oid) {
                let read = history::Step::read_list(key.text_name(inserter(oid), fields[at].text), Vec::new());
                self.current_mut(pid).into_iter().for_each(|current| current.record.steps.push(read.clone()));
            }
            return self.skip_step(pid);
        };
        let Some(ReadMember { mut member, lists }) = self.read_texts(pid, (program, &mapping), oid, &before) else {
            return false;
        };
        let Some(current) = self.current_mut(pid) else { return false };
        let element = number as i64;
        for (field, list) in fields.iter().zip(&lists) {
            let name = key.text_name(member.number, field.text);
            current.record.steps.push(history::Step::read_list(name, list.clone()));
        }
        if lists[at].contains(&element) {
            return self.skip_step(pid);
        }
        let (field, name) = (&fields[at], key.text_name(member.number, fields[at].text));
        member.texts[at] = program::appended(guard.page, field, &member.texts[at], element);
        current.record.steps.push(history::Step::append(name.clone(), element));
        if lists[at].is_empty() {
            current.record.steps.push(history::Step::append(guard.touched_name(field.text), element));
        }
        self.member_journal.note_writer(name, &lists[at], element);
        self.count_shape(program, guard, &before);
        match program.write(&mapping, &member, Some(&before)) {
            Ok(record) => {
                let object = before.with_data(record);
                self.check_written(pid, program, &object, false);
                self.write_member(pid, txn, oid, Some(object));
            }
            Err(error) => self.oracle.report(format!("T1: {} cannot write {oid}: {error}", self.name(pid))),
        }
        self.skip_step(pid)
    }

    /// Counts members of other versions than that of the program.
    fn count_shape(&mut self, program: Program, guard: Key, object: &Object) {
        let fields = program.fields();
        let has = |text| self.has_text(guard, object, text);
        let is_old = fields.iter().skip(1).any(|field| !has(field.text));
        let is_newer = (1..TEXTS).any(|text| has(text) && fields.iter().all(|field| field.text != text));
        let is_widened = fields.iter().any(|field| {
            let stored = self.stored_text(guard, object, field.text);
            stored.is_some_and(|value| value != Value::Null && !field.ty.accepts(&value))
        });
        self.count.old_members += u64::from(is_old);
        self.count.kept_fields += u64::from(is_newer);
        self.count.widened += u64::from(is_widened);
    }

    pub(super) fn write_member(&mut self, pid: Pid, txn: TxnId, oid: Oid, object: Option<Object>) {
        let Some(client) = self.client(pid) else { return };
        let Some(current) = &mut client.current else { return };
        current.own_writes.insert(oid, object.clone());
        let written = client.driver.write(txn, oid, object.map_or(ObjectState::Absent, ObjectState::Value));
        assert_eq!(written, Ok(()), "{txn:?} runs, and has read {oid} to write it");
    }

    /// What a program reads of a member; `None` if it cannot, and its transaction has ended.
    fn read_texts(
        &mut self,
        pid: Pid,
        (program, mapping): (Program, &StructMapping),
        oid: Oid,
        object: &Object,
    ) -> Option<ReadMember> {
        match read_lists(&self.member_journal, (program, mapping), oid, object) {
            Ok(read) => Some(read),
            Err(error) => {
                self.handle_unread(pid, program, (oid, error));
                None
            }
        }
    }

    /// A transaction ends for which there is no member.
    pub(super) fn end_without_member(&mut self, pid: Pid) -> bool {
        self.end_transaction(pid);
        true
    }

    /// The step is done.
    pub(super) fn skip_step(&mut self, pid: Pid) -> bool {
        if let Some(current) = self.current_mut(pid) {
            current.at += 1;
        }
        true
    }

    /// Rewrites a member in the newest version of its class that the client knows, as a job does that evolves a class. Says whether there may
    /// be another step.
    pub(super) fn renew_member(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        let Some(number) = self.current_mut(pid).map(|current| current.record.number) else { return false };
        let Some(oid) = self.written_member(guard, number) else { return self.end_without_member(pid) };
        let Some(client) = self.client(pid) else { return false };
        if client.classes.schema().class(oid.class()).is_none() {
            self.ask_for_classes(pid);
            return false;
        }
        let before = match self.read_member(pid, txn, oid) {
            Ok(before) => before,
            Err(goes_on) => return goes_on,
        };
        let Some(client) = self.client(pid) else { return false };
        let revision = client.classes.revision();
        if let Some(before) = before {
            match renewed(&client.classes, oid, &before) {
                Ok(renewed) => {
                    self.check_renewed(guard, revision, &before, renewed.as_ref().unwrap_or(&before));
                    if renewed.is_some() {
                        self.count.renewed += 1;
                        self.write_member(pid, txn, oid, renewed);
                    }
                }
                Err(error) => self.oracle.report(format!("T1: {} cannot renew {oid}: {error}", self.name(pid))),
            }
        }
        self.skip_step(pid)
    }

    /// A member that was rewritten by the classes of a revision has the fields of its class and their values (T6), and no fields that its class
    /// has lost (T5).
    fn check_renewed(&mut self, guard: Key, revision: u64, before: &Object, after: &Object) {
        let Some(known) = self.schema.class_version_at(guard.set_class(), revision) else { return };
        if let Some(text) = program::removed_texts(guard.page, known).find(|text| self.has_text(guard, after, *text)) {
            let what = format!("T5: a member is rewritten in version {known} of its class, and keeps text {text}");
            self.oracle.report(what);
        }
        for TextField { text, name, ty } in program::fields(guard.page, known) {
            let value = |object| self.stored_text(guard, object, text).unwrap_or(Value::Null);
            // One that is newer than the client's classes is kept as it is.
            let wanted = ty.convert(value(before));
            let is = self.has_text(guard, after, text).then(|| value(after));
            if is.as_ref() != Some(&wanted) {
                let what = format!("{name} is {is:?} in version {known} of its class, and was {wanted:?}");
                self.oracle.report(format!("T6: a member is rewritten: {what}"));
            }
        }
    }

    /// Queries the members that have something in a text that the program knows. Says whether there may be another step.
    pub(super) fn sift_members(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        let Some(number) = self.current_mut(pid).map(|current| current.record.number) else { return false };
        let Some((program, mapping)) = self.program(pid, guard, None) else { return false };
        let mut fields = program.fields();
        let (at, count) = (number as usize % fields.len(), fields.len());
        let field = fields.swap_remove(at);
        let is_all = field.text > 0 && (number as usize / count).is_multiple_of(3);
        self.scan_members(pid, txn, guard, Some(&Sift { program, mapping, field, at, is_all }))
    }

    /// The members that a query has found at a logical node; or those who were first to append to their text. `None` if the program cannot
    /// read them.
    pub(super) fn sifted(&mut self, pid: Pid, sift: &Sift, answer: &QueryAnswer, node: u32) -> Option<Vec<i64>> {
        if sift.is_all {
            return Some(answer.numbers(NodeId(node)));
        }
        let found = answer.found.iter().filter(|(oid, _)| oid.page().node == NodeId(node));
        let mut first = Vec::new();
        for (oid, record) in found {
            let object = Object::record(oid.class(), record.clone());
            match sift.first_element(&self.member_journal, *oid, &object) {
                Ok(Some(element)) => {
                    self.count.sifted += u64::from(sift.field.text > 0);
                    first.push(element);
                }
                Ok(None) => self.oracle.report(format!("T4: {oid} was found, and has nothing in {:?}", sift.field)),
                Err(error) => {
                    self.handle_unread(pid, sift.program, (*oid, error));
                    return None;
                }
            }
        }
        Some(first)
    }
}

/// The operation that has inserted a member, if no other member was in its place.
fn inserter(oid: Oid) -> i64 {
    Key::inserter(oid.slot())
}

/// What a program reads of a member.
fn read_lists(
    journal: &MemberJournal,
    (program, mapping): (Program, &StructMapping),
    oid: Oid,
    object: &Object,
) -> model::Result<ReadMember> {
    let member = program.read(mapping, object)?;
    let place = (key_of(oid), member.number);
    let fields = program.fields();
    let lists = fields.iter().zip(&member.texts).map(|(field, value)| journal.elements(place, field.text, value));
    let lists = lists.collect::<model::Result<_>>()?;
    Ok(ReadMember { member, lists })
}

impl Sift {
    /// The condition of the query.
    pub(super) fn condition(&self) -> String {
        let test = if self.is_all { ">=" } else { ">" };
        format!("{} {test} {}", self.field.name, program::default_literal(self.program.page, self.field.text))
    }

    /// The name of the set that it reads, in histories.
    pub(super) fn name(&self, guard: Key) -> String {
        if self.is_all { guard.to_string() } else { guard.touched_name(self.field.text) }
    }

    /// Whether the classes by which a query was answered have the field of the program by its name.
    pub(super) fn is_answered_by(&self, classes: &query::Schema) -> bool {
        let class = self.mapping.layout().class();
        let number = self.mapping.layout().numbers().nth(self.at + 1);
        classes.field_named(class, self.field.name).map(|field| field.number) == number
    }

    /// What it finds in a scan of all members.
    ///
    /// # Errors
    /// The first member that the program cannot read.
    pub(super) fn of_scan(&self, journal: &MemberJournal, scanned: &Scanned) -> Result<Vec<i64>, (Oid, Error)> {
        let mut found = Vec::new();
        for (oid, _, object) in &scanned.found {
            match self.is_all {
                true => found.extend(Content::number(object)),
                false => found.extend(self.first_element(journal, *oid, object).map_err(|error| (*oid, error))?),
            }
        }
        Ok(found)
    }

    fn first_element(&self, journal: &MemberJournal, oid: Oid, object: &Object) -> model::Result<Option<i64>> {
        let read = read_lists(journal, (self.program, &self.mapping), oid, object)?;
        Ok(read.lists[self.at].first().copied())
    }
}

/// An object in the newest version of its class, if that differs.
fn renewed(classes: &KnownClasses, oid: Oid, object: &Object) -> model::Result<Option<Object>> {
    let record = RecordRef::new(&object.data)?;
    let renewed = classes.schema().upgrade_record(&record, oid.class())?;
    Ok(renewed.map(|data| object.with_data(data)))
}
