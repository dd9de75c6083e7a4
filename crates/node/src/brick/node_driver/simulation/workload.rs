//! What the clients of the simulated brick do.

use bytes::Bytes;
use model::{
    ClassId, ContentOp, ContentPatch, ContentRef, Entry, FieldNumber, NodeId, Object, Oid, PageId, RecordBuilder,
    RecordRef, ValueRef,
};
use protocol::commit::coordinator::{CommitReceipt, CommitReply, Coordinator, Output};
use protocol::commit::{Answer, Outcome, Part, Refusal, Request};
use protocol::entries::{unique_entry, unique_question};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use protocol::lease::Ms;
use protocol::page_cache::ObjectState;
use protocol::validate::{Read, ReadVersion};
use query::key::IndexEntry;
use std::collections::BTreeMap;
use wire::cluster::{IndexRange, Scan};

use super::history::{Observed, Query};
use super::{Checked, NODES, Packet, RngExt, SPACE, World, Written};
use crate::brick::indexes::IndexSpec;
use crate::brick::page_rows as rows;
use crate::brick::scan::scan;

pub(super) const PERSON: ClassId = ClassId(1);
pub(super) const STUDENT: ClassId = ClassId(2);
pub(super) const BADGE: ClassId = ClassId(3);
pub(super) const NAME: FieldNumber = FieldNumber(1);
pub(super) const AGE: FieldNumber = FieldNumber(2);
/// By age, people and students. By number, badges, each number once.
pub(super) const BY_AGE: u32 = 7;
pub(super) const BY_NUMBER: u32 = 9;
/// Pages of a logical node, slots of a page, and values.
const PAGES: u64 = 4;
const SLOTS: u16 = 8;
const AGES: i64 = 5;
/// How soon a commit at one logical node is sent again, in milliseconds.
const REPEAT_MS: Ms = 200;

/// The indexes that there are. Another one by age comes and goes, each time with another number.
pub(super) fn specs(another: Option<u32>) -> Vec<IndexSpec> {
    let by_age = |index| IndexSpec { index, fields: vec![AGE], unique: false, classes: vec![PERSON, STUDENT] };
    let by_number = IndexSpec { index: BY_NUMBER, fields: vec![AGE], unique: true, classes: vec![BADGE] };
    [by_age(BY_AGE), by_number].into_iter().chain(another.map(by_age)).collect()
}

/// The age of an object, or its number.
pub(super) fn age(object: &Object) -> i64 {
    match RecordRef::new(&object.data).unwrap().field(AGE).unwrap() {
        Some(ValueRef::Int64(age)) => age,
        other => panic!("{other:?}"),
    }
}

pub(super) fn key(age: i64) -> Vec<u8> {
    IndexEntry::new(&[ValueRef::Int64(age)]).key
}

/// The entry for the number of a badge.
pub(super) fn number_entry(number: i64) -> Entry {
    unique_entry(SPACE, &NODES, BY_NUMBER, &key(number)).unwrap()
}

fn object(class: ClassId, age: i64, padding: usize) -> Object {
    let mut record = RecordBuilder::new();
    record.set(NAME, "x".repeat(padding).as_str()).unwrap().set(AGE, age).unwrap();
    Object::record(class, record.build().unwrap())
}

/// The object in a place: its class depends on the slot only.
fn oid(node: NodeId, number: u64, slot: u16) -> Oid {
    let class = [PERSON, STUDENT, PERSON, BADGE][usize::from(slot % 4)];
    Oid::new(class, PageId { space: SPACE, node, number }, slot)
}

/// How a transaction is committed.
enum Commit {
    /// At one logical node, by one message that is sent again until it is answered.
    Alone {
        node: NodeId,
        part: Part<Object>,
        repeat: Ms,
    },
    Several(Coordinator<Object>),
}

/// A transaction that has not ended.
pub(super) struct RunningTxn {
    pub(super) txn: TxnId,
    commit: Commit,
    observed: Observed,
    /// Whether it does what a brick must not take.
    is_wrong: bool,
    /// Crashes before it began: a restarted brick knows that it has refused a transaction, and not why.
    crashes: u32,
    /// Pages that were damaged, and whole again, before it began; `None` if one was damaged then.
    damaged: Option<u32>,
}

/// What a transaction does before it commits.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) observed: Observed,
    pub(super) reads: Vec<Read>,
    is_wrong: bool,
    /// What is written in place of what is observed: contents that were staged.
    staged: BTreeMap<Oid, Object>,
}

impl World {
    /// Begins a transaction: it reads what is durable now, and commits.
    pub(super) fn begin_txn(&mut self) -> Checked {
        let mut draft = Draft::default();
        if let Err(why) = self.draft_txn(&mut draft) {
            return self.excuse_damage(Err(why));
        }
        self.send_txn(draft)
    }

    fn draft_txn(&mut self, draft: &mut Draft) -> Checked {
        let both = self.chance(40);
        let first = NODES[self.rng.random_range(0..2)];
        for node in NODES.into_iter().filter(|node| both || *node == first) {
            match self.rng.random_range(0..10) {
                0..3 => self.add_query(node, draft)?,
                3..5 => self.add_badge(node, draft)?,
                _ => {}
            }
            if self.chance(40) {
                self.add_entries(node, draft)?;
            }
            for _ in 0..self.rng.random_range(1..4) {
                self.add_write(node, draft)?;
            }
            if self.chance(60) {
                self.add_blob(node, draft)?;
            }
        }
        Ok(())
    }

    fn send_txn(&mut self, draft: Draft) -> Checked {
        self.transactions += 1;
        let txn = TxnId { start: HlcTimestamp::at(self.now), client: ClientId(self.transactions) };
        let mut parts: BTreeMap<NodeId, Part<Object>> = BTreeMap::new();
        for read in draft.reads {
            parts.entry(read.oid.page().node).or_default().reads.push(read);
        }
        for (oid, content) in &draft.observed.writes {
            let staged = draft.staged.get(oid).cloned().map(ObjectState::Value);
            let content = staged.unwrap_or_else(|| content.clone());
            parts.entry(oid.page().node).or_default().writes.insert(*oid, content);
        }
        for (entry, target) in &draft.observed.entries.changes {
            parts.entry(entry.collection.page().node).or_default().entries.insert(entry.clone(), *target);
        }
        let commit = match parts.len() {
            1 if self.chance(80) => {
                let (node, part) = parts.pop_first().ok_or("a transaction without parts")?;
                Commit::Alone { node, part, repeat: self.now }
            }
            _ => {
                let mut out = Vec::new();
                let coordinator = Coordinator::commit(txn, parts, self.now, &mut out);
                let sent = out.into_iter().filter_map(|output| self.packet_of(output));
                let sent: Vec<Packet> = sent.collect();
                self.packets.extend(sent);
                Commit::Several(coordinator)
            }
        };
        self.running.push(RunningTxn {
            txn,
            commit,
            observed: draft.observed,
            is_wrong: draft.is_wrong,
            crashes: self.crashes,
            damaged: (!self.damage.is_present).then_some(self.damage.count),
        });
        self.poll_txns();
        Ok(())
    }

    /// Reads the object in a place and replaces it, changes it, or removes it.
    fn add_write(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        let slot = loop {
            let slot = self.rng.random_range(0..SLOTS);
            if slot % 4 != 3 {
                break slot;
            }
        };
        let oid = oid(node, self.rng.random_range(1..=PAGES), slot);
        if self.chance(60) {
            self.add_read(oid, draft)?;
        }
        let content = match self.rng.random_range(0..10) {
            0..3 => ObjectState::Absent,
            _ => {
                let (age, padding) = (self.rng.random_range(0..AGES), self.rng.random_range(0..700));
                ObjectState::Value(object(oid.class(), age, padding))
            }
        };
        draft.observed.writes.insert(oid, content);
        Ok(())
    }

    /// Writes a blob: its bytes, a content that was staged, a part, or nothing.
    fn add_blob(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        // One blob of each node is changed by several transactions that are in flight.
        let (number, slot) = match self.chance(50) {
            true => (1, SLOTS),
            false => (self.rng.random_range(1..=PAGES), SLOTS + self.rng.random_range(0..2)),
        };
        let page = PageId { space: SPACE, node, number };
        let oid = Oid::new(ClassId::NONE, page, slot);
        if self.chance(60) {
            self.add_read(oid, draft)?;
        }
        let bytes = vec![self.rng.random(); self.rng.random_range(0..90)];
        let content = match self.rng.random_range(0..10) {
            0 => ObjectState::Absent,
            1..3 => ObjectState::Value(Object::blob(bytes.into())),
            3..6 => {
                let here: Vec<usize> = (0..self.staged.len()).filter(|at| self.staged[*at].0.node() == node).collect();
                let Some(at) = here.get(self.rng.random_range(0..here.len().max(1))) else { return Ok(()) };
                let (id, staged) = self.staged[*at].clone();
                // Another transaction may have it, or its lease may have ended.
                draft.is_wrong = true;
                let content = ContentRef { id, size: staged.len() as u64, generation: 0 };
                draft.staged.insert(oid, Object::blob_with_content(content));
                ObjectState::Value(Object::blob(staged))
            }
            _ => {
                // There may be no blob.
                draft.is_wrong = true;
                let data: Bytes = bytes.into();
                let (offset, len) = (self.rng.random_range(0..120), self.rng.random_range(0..60));
                let ops = match self.rng.random_range(0..4) {
                    0 => vec![ContentOp::Truncate { size: offset }, ContentOp::Append { data }],
                    1 => vec![ContentOp::Write { offset, data }, ContentOp::Zero { offset: len, len }],
                    _ => vec![ContentOp::Append { data }],
                };
                ObjectState::Changed(ContentPatch::new(ops).encode())
            }
        };
        draft.observed.writes.insert(oid, content);
        Ok(())
    }

    /// Uploads a content, perhaps in part.
    pub(super) fn upload(&mut self) -> Checked {
        let node = NODES[self.rng.random_range(0..2)];
        let store = self.machine.store();
        let Ok(upload) = store.begin_upload() else { return Ok(()) };
        let now = self.now;
        let Some(driver) = self.drivers.get_mut(&node) else { return Ok(()) };
        let id = driver.begin_upload(SPACE, upload, now);
        let bytes: Bytes = vec![self.rng.random(); self.rng.random_range(0..200)].into();
        if store.upload(upload, bytes.clone()).is_err() {
            return self.act(node, |driver, now| driver.abort_upload(id, now));
        }
        if self.chance(20) {
            return Ok(());
        }
        let size = store.seal_upload(upload).map_err(|error| error.to_string())?;
        let Some(driver) = self.drivers.get_mut(&node) else { return Ok(()) };
        let rows = driver.finish_upload(id, size, now).map_err(|error| error.to_string())?;
        let written = self.written.clone();
        store.submit_rows(rows, move |result| {
            written.lock().unwrap().push(Written::Staged { id, bytes, is_durable: result.is_ok() });
        });
        Ok(())
    }

    fn add_read(&mut self, oid: Oid, draft: &mut Draft) -> Checked {
        let (head, found) = rows::read_one(&self.reader(), oid).map_err(|error| error.to_string())?;
        let found = found.map(|object| self.with_bytes(object)).transpose()?;
        draft.reads.push(Read { oid, seen: ReadVersion::At(head.version) });
        draft.observed.reads.push((oid, found));
        Ok(())
    }

    /// Scans an extent, or an index if one has all objects.
    fn add_query(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        let index = match self.another_index() {
            Some(another) if self.chance(60) => another,
            _ => BY_AGE,
        };
        let from = self.rng.random_range(0..AGES);
        let to = if self.chance(50) { from } else { self.rng.random_range(from..AGES) };
        let classes = [PERSON, STUDENT].into();
        let is_count = self.chance(40);
        let ages = Query { node, classes, ages: Some((from, to)), index: Some(index), is_count };
        let everything = Query { ages: None, index: None, ..ages.clone() };
        self.scan(&ages, draft).or_else(|_| self.scan(&everything, draft))
    }

    /// Makes a badge with a number that no other has, most times after looking up who has it.
    fn add_badge(&mut self, node: NodeId, draft: &mut Draft) -> Checked {
        let number = self.rng.random_range(0..9);
        let oid = oid(node, self.rng.random_range(1..=PAGES), [3, 7][self.rng.random_range(0..2)]);
        let badge = ObjectState::Value(object(BADGE, number, 10));
        if !self.chance(80) {
            draft.is_wrong = true;
            draft.observed.writes.insert(oid, badge);
            return Ok(());
        }
        let number_of = |draft: &Draft| draft.observed.reads.last().and_then(|(_, found)| found.as_ref().map(age));
        self.add_read(oid, draft)?;
        let before = number_of(draft).filter(|before| *before != number).map(number_entry);
        let after = number_entry(number);
        if draft.observed.entries.changes.contains_key(&after) {
            // The same transaction has made another badge with this number.
            return Ok(());
        }
        if let Some(holder) = self.look_up_one(&after, draft)?.filter(|holder| *holder != oid) {
            self.add_read(holder, draft)?;
            if number_of(draft) == Some(number) {
                return Ok(());
            }
        }
        if let Some(before) = before
            && self.look_up_one(&before, draft)? == Some(oid)
        {
            draft.observed.entries.changes.entry(before).or_insert(None);
        }
        draft.reads.push(unique_question(SPACE, node, BY_NUMBER));
        draft.observed.entries.changes.insert(after, Some(oid));
        draft.observed.writes.insert(oid, badge);
        Ok(())
    }

    fn scan(&mut self, query: &Query, draft: &mut Draft) -> Checked {
        let range = query.index.zip(query.ages).map(|(index, (from, to))| {
            let mut behind = key(to);
            behind.iter_mut().rev().take(1).for_each(|end| *end += 1);
            IndexRange {
                index,
                from: key(from).into(),
                to: behind.into(),
                reverse: self.transactions.is_multiple_of(2),
            }
        });
        let (mut found, mut guards, mut after) = (BTreeMap::new(), Vec::new(), None);
        loop {
            let wanted = Scan {
                space: SPACE,
                node: query.node,
                epoch: 0,
                classes: query.classes.clone(),
                range: range.clone(),
                after: after.take(),
                limit: 5,
                filter: None,
                count: false,
                family: None,
            };
            let scanned = scan(&self.machine.store(), &wanted).map_err(|error| error.to_string())?;
            guards.extend(scanned.guards);
            found.extend(scanned.found.into_iter().map(|(oid, version, object)| (oid, (version, object))));
            after = scanned.next;
            if after.is_none() {
                break;
            }
        }
        draft.reads.extend(guards);
        let members = found.iter().filter(|_| !query.is_count);
        draft.reads.extend(members.map(|(oid, (version, _))| Read { oid: *oid, seen: ReadVersion::At(*version) }));
        let found = found.into_iter().map(|(oid, (_, object))| (oid, object)).collect();
        draft.observed.scans.push((query.clone(), found));
        Ok(())
    }

    // -------------------------------------------------------------------------------------------- committing

    fn packet_of(&self, output: Output<Object>) -> Option<Packet> {
        match output {
            Output::Send(to, request) | Output::Repeat(to, request) => {
                Some(Packet::Request { from: None, to, seen: HlcTimestamp::at(self.now), request })
            }
            Output::Reply(_) => None,
        }
    }

    /// Sends again what was not answered.
    pub(super) fn poll_txns(&mut self) {
        let (now, mut sent) = (self.now, Vec::new());
        for running in &mut self.running {
            match &mut running.commit {
                Commit::Alone { node, part, repeat } if *repeat <= now => {
                    *repeat = now + REPEAT_MS;
                    sent.push(Output::Send(*node, Request::Commit { txn: running.txn, part: part.clone() }));
                }
                Commit::Alone { .. } => {}
                Commit::Several(coordinator) => coordinator.poll(now, &mut sent),
            }
        }
        let packets: Vec<Packet> = sent.into_iter().filter_map(|output| self.packet_of(output)).collect();
        self.packets.extend(packets);
    }

    /// A participant answers a transaction.
    pub(super) fn answer_txn(&mut self, from: NodeId, answer: Answer) -> Checked {
        let txn = answer.txn();
        let Some(at) = self.running.iter().position(|running| running.txn == txn) else { return Ok(()) };
        let now = self.now;
        let running = &mut self.running[at];
        let (mut out, mut is_done) = (Vec::new(), false);
        let reply = match &mut running.commit {
            Commit::Alone { .. } => {
                is_done = true;
                match answer {
                    Answer::Ended { outcome: Outcome::Committed(timestamp), offsets, .. } => {
                        Some(CommitReply::Committed(CommitReceipt { timestamp, offsets }))
                    }
                    Answer::Refused { why, .. } => Some(CommitReply::Refused(why)),
                    other => return Err(format!("{txn:?} is answered {other:?}")),
                }
            }
            Commit::Several(coordinator) => {
                coordinator.handle_answer(from, answer, now, &mut out);
                is_done |= coordinator.is_done();
                out.iter().find_map(|output| if let Output::Reply(reply) = output { Some(reply.clone()) } else { None })
            }
        };
        let is_alone = matches!(running.commit, Commit::Alone { .. });
        let is_undamaged = running.damaged == Some(self.damage.count);
        match reply {
            Some(CommitReply::Committed(receipt)) => {
                self.history.add_committed(receipt, txn, running.observed.clone());
            }
            // Nobody else asks for a transaction at one logical node.
            Some(CommitReply::Refused(Refusal::Aborted))
                if is_alone && !running.is_wrong && running.crashes == self.crashes && is_undamaged =>
            {
                return Err(format!("C2: {txn:?} is aborted for no reason: {}", self.history.deferral(txn)));
            }
            Some(CommitReply::Refused(_)) => self.history.add_refused(txn),
            None => {}
        }
        if is_done {
            self.running.swap_remove(at);
        }
        let packets: Vec<Packet> = out.into_iter().filter_map(|output| self.packet_of(output)).collect();
        self.packets.extend(packets);
        Ok(())
    }
}
