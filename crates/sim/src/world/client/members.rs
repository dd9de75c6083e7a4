//! Steps on the members of sets by programs: they insert members, append to the texts that they know, query them, and rewrite them in the
//! newest version of their class.
//!
//! - T1. A program that knows a field reads it in every object: what was written, or the default that the field had when it was added.
//! - T4. A query for a field finds what the objects have.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::driver::{KnownClasses, ReadRequest, StructMapping};
use model::{ClassId, Kind, NodeId, Object, Oid, RecordRef, ValueRef};
use protocol::ident::TxnId;
use protocol::locks::LockMode;
use protocol::page_cache::ObjectState;
use wire::cluster::Scanned;
use wire::proto;
use wire::proto::request::Request;

use super::ClientProcess;
use super::sets::RESCAN_MS;
use crate::object::Content;
use crate::plan::{Key, MAX_ADDED_FIELDS};
use crate::program::{Member, Program, elements, text_default, text_name};
use crate::world::World;
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
    program: Program,
    mapping: Arc<StructMapping>,
    text: usize,
    is_all: bool,
}

impl World {
    /// The program of a client, and the mapping of its struct to the classes that the client knows; `None` while it waits for others.
    fn program(&mut self, pid: Pid, guard: Key, class: Option<ClassId>) -> Option<(Program, Arc<StructMapping>)> {
        let added = self.current_mut(pid)?.programs.get(&guard.page).copied().unwrap_or_default();
        let program = Program::of(guard, added);
        let newest = self.schema.newest_revision();
        let client = self.client(pid)?;
        let wrong = match program.mapping(&client.classes) {
            Ok(mapping) if class.is_none_or(|class| mapping.covers(class)) => return Some((program, mapping)),
            Ok(_) => format!("objects of class {class:?} are none of {program:?}"),
            Err(error) => format!("{program:?} does not fit: {error}"),
        };
        if client.classes.revision() == newest.0 {
            self.oracle.report(format!("T1: {} has the newest classes, and {wrong}", self.name(pid)));
        }
        self.ask_for_classes(pid);
        None
    }

    /// A client asks for the classes that the catalogue has, unless it waits for them. One that is not permitted to give its operation up.
    fn ask_for_classes(&mut self, pid: Pid) {
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

    fn client(&mut self, pid: Pid) -> Option<&mut ClientProcess> {
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
        let (program, mapping) = self.program(pid, guard, None)?;
        match program.write(&mapping, &program.new_member(number as i64), None) {
            Ok(record) => Some(Object::record(class, record)),
            Err(error) => {
                self.oracle.report(format!("T1: {} cannot insert a member: {error}", self.name(pid)));
                None
            }
        }
    }

    /// Others hear of the members that a transaction has inserted.
    pub(super) fn know_members(&mut self, own_writes: &BTreeMap<Oid, Option<Object>>) {
        if !self.plan.has_added_fields() {
            return;
        }
        for oid in own_writes.keys() {
            let key = Key { node: oid.page().node.0, page: oid.page().number, slot: oid.slot() };
            let Some(guard) = key.set() else { continue };
            if self.schema.family(guard.set_class()).any(|class| class == oid.class()) {
                let known = self.known_members.entry(guard).or_default();
                if !known.contains(oid) {
                    known.push(*oid);
                }
            }
        }
    }

    /// The member that a step is about: one of the last that are known.
    fn written_member(&self, guard: Key, number: u64) -> Option<Oid> {
        let known = self.known_members.get(&guard)?;
        let last = &known[known.len().saturating_sub(WRITTEN_MEMBERS)..];
        last.get(number as usize % last.len().max(1)).copied()
    }

    /// Reads a member to write it. `None` while that waits, or when the transaction was given up, which the second part says.
    fn read_member(&mut self, pid: Pid, txn: TxnId, oid: Oid) -> Result<Option<Object>, bool> {
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
            Ok(Some(object)) => Ok(object),
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
        let key = Key { node: oid.page().node.0, page: oid.page().number, slot: oid.slot() };
        let text = number as usize / WRITTEN_MEMBERS % program.texts();
        let Some(before) = before else {
            // This may be the state before it was inserted; the checkers judge it.
            let read = history::Step::read_list(key.text_name(text), Vec::new());
            self.current_mut(pid).into_iter().for_each(|current| current.record.steps.push(read.clone()));
            return self.skip_step(pid);
        };
        let (mut member, lists) = match self.read_texts(pid, (program, &mapping), oid, &before) {
            Some(read) => read,
            None => return false,
        };
        let Some(client) = self.client(pid) else { return false };
        let Some(current) = &mut client.current else { return false };
        let element = number as i64;
        for (text, list) in lists.iter().enumerate() {
            current.record.steps.push(history::Step::read_list(key.text_name(text), list.clone()));
        }
        if lists[text].contains(&element) {
            return self.skip_step(pid);
        }
        member.texts[text].push_str(&format!("{element},"));
        current.record.steps.push(history::Step::append(key.text_name(text), element));
        if lists[text].is_empty() {
            current.record.steps.push(history::Step::append(guard.touched_name(text), element));
        }
        self.count_shape(program, guard, &before);
        match program.write(&mapping, &member, Some(&before)) {
            Ok(record) => self.write_member(pid, txn, oid, before.with_data(record)),
            Err(error) => self.oracle.report(format!("T1: {} cannot write {oid}: {error}", self.name(pid))),
        }
        self.skip_step(pid)
    }

    /// Counts members of other versions than that of the program.
    fn count_shape(&mut self, program: Program, guard: Key, object: &Object) {
        let Ok(record) = RecordRef::new(&object.data) else { return };
        let has = |text| {
            let field = self.schema.text_field(guard.set_class(), text);
            field.is_some_and(|field| matches!(record.field(field), Ok(Some(_))))
        };
        let is_old = (1..program.texts()).any(|text| !has(text));
        let is_newer = (program.texts()..=MAX_ADDED_FIELDS).any(has);
        self.count.old_members += u64::from(is_old);
        self.count.kept_fields += u64::from(is_newer);
    }

    fn write_member(&mut self, pid: Pid, txn: TxnId, oid: Oid, object: Object) {
        let Some(client) = self.client(pid) else { return };
        let Some(current) = &mut client.current else { return };
        current.own_writes.insert(oid, Some(object.clone()));
        let written = client.driver.write(txn, oid, ObjectState::Value(object));
        assert_eq!(written, Ok(()), "{txn:?} runs, and has read {oid} to write it");
    }

    /// What a program reads of a member, with the elements of its texts.
    fn read_texts(
        &mut self,
        pid: Pid,
        (program, mapping): (Program, &StructMapping),
        oid: Oid,
        object: &Object,
    ) -> Option<(Member, Vec<Vec<i64>>)> {
        let member = program.read(mapping, object).and_then(|member| {
            let lists = member.texts.iter().enumerate().map(|(text, list)| elements(text, list));
            let lists = lists.collect::<model::Result<Vec<_>>>()?;
            Ok((member, lists))
        });
        member.map_err(|error| self.oracle.report(format!("T1: {} reads {oid}: {error}", self.name(pid)))).ok()
    }

    /// A transaction ends for which there is no member.
    fn end_without_member(&mut self, pid: Pid) -> bool {
        self.end_transaction(pid);
        true
    }

    /// The step is done.
    fn skip_step(&mut self, pid: Pid) -> bool {
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
        if let Some(before) = before {
            match renewed(&client.classes, oid, &before) {
                Ok(Some(renewed)) => {
                    self.count.renewed += 1;
                    self.write_member(pid, txn, oid, renewed);
                }
                Ok(None) => {}
                Err(error) => self.oracle.report(format!("T1: {} cannot renew {oid}: {error}", self.name(pid))),
            }
        }
        self.skip_step(pid)
    }

    /// Queries the members that have something in a text that the program knows. Says whether there may be another step.
    pub(super) fn sift_members(&mut self, pid: Pid, txn: TxnId, guard: Key) -> bool {
        let Some(number) = self.current_mut(pid).map(|current| current.record.number) else { return false };
        let Some((program, mapping)) = self.program(pid, guard, None) else { return false };
        let text = number as usize % program.texts();
        let is_all = text > 0 && (number as usize / program.texts()).is_multiple_of(3);
        self.scan_members(pid, txn, guard, Some(&Sift { program, mapping, text, is_all }))
    }

    /// The members that a query has found at a logical node; or those who were first to append to their text.
    pub(super) fn sifted(&mut self, sift: &Sift, answer: &QueryAnswer, node: u32) -> Vec<i64> {
        if sift.is_all {
            return answer.numbers(NodeId(node));
        }
        let found = answer.found.iter().filter(|(oid, _)| oid.page().node == NodeId(node));
        let mut first = Vec::new();
        for (oid, record) in found {
            let object = Object::record(oid.class(), record.clone());
            match sift.first_element(&object) {
                Ok(Some(element)) => {
                    self.count.sifted += u64::from(sift.text > 0);
                    first.push(element);
                }
                Ok(None) => self.oracle.report(format!("T4: {oid} was found, and has nothing in text {}", sift.text)),
                Err(error) => self.oracle.report(format!("T1: {oid} was found: {error}")),
            }
        }
        first
    }

    /// The final lists of a member.
    pub(in crate::world) fn add_texts(&self, key: Key, object: &Object, finals: &mut BTreeMap<String, Vec<i64>>) {
        let Some(guard) = key.set().filter(|_| self.plan.has_added_fields() && object.kind == Kind::Record) else {
            return;
        };
        if !self.schema.family(guard.set_class()).any(|class| class == object.class) {
            return;
        }
        let texts =
            (0..=MAX_ADDED_FIELDS).filter_map(|text| Some((text, self.schema.text_field(guard.set_class(), text)?)));
        for (text, field) in texts {
            let stored = RecordRef::new(&object.data).ok().and_then(|record| match record.field(field) {
                Ok(Some(ValueRef::String(stored))) => Some(stored.to_owned()),
                _ => None,
            });
            // What is no list is missed by the checkers.
            let list = elements(text, stored.as_deref().unwrap_or(text_default(text))).unwrap_or_default();
            if let Some(first) = list.first() {
                finals.insert(history::member(&guard.touched_name(text), *first), vec![*first]);
            }
            finals.insert(key.text_name(text), list);
        }
    }
}

impl Sift {
    /// The condition of the query.
    pub(super) fn condition(&self) -> String {
        let test = if self.is_all { ">=" } else { ">" };
        format!("{} {test} {:?}", text_name(self.text), text_default(self.text))
    }

    /// The name of the set that it reads, in histories.
    pub(super) fn name(&self, guard: Key) -> String {
        if self.is_all { guard.to_string() } else { guard.touched_name(self.text) }
    }

    /// What it finds in a scan of all members.
    pub(super) fn of_scan(&self, scanned: &Scanned) -> Vec<i64> {
        let objects = scanned.found.iter().map(|(.., object)| object);
        match self.is_all {
            true => objects.filter_map(Content::number).collect(),
            false => objects.filter_map(|object| self.first_element(object).ok().flatten()).collect(),
        }
    }

    fn first_element(&self, object: &Object) -> model::Result<Option<i64>> {
        let member = self.program.read(&self.mapping, object)?;
        Ok(elements(self.text, &member.texts[self.text])?.first().copied())
    }
}

/// An object in the newest version of its class, if that differs.
fn renewed(classes: &KnownClasses, oid: Oid, object: &Object) -> model::Result<Option<Object>> {
    let record = RecordRef::new(&object.data)?;
    let renewed = classes.schema().upgrade_record(&record, oid.class())?;
    Ok(renewed.map(|data| object.with_data(data)))
}
