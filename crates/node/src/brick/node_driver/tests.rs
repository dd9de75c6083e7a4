//! A logical node with indexes, asked without connections.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use model::planted_bug::plant;
use model::{ClassId, Comparison, FieldNumber, Filter, Oid, Operand, RecordBuilder, RecordRef, Value, ValueRef};
use proptest::prelude::*;
use protocol::commit::client_mark::ClientMark;
use protocol::commit::{AppendOffsets, Outcome, Record, Refusal, Writes};
use protocol::entries::unique_question;
use protocol::ident::{ClientId, TxnId};
use protocol::page_cache::{FetchId, ObjectState};
use protocol::validate::Read;
use query::key::{IndexEntry, KeyRange};
use store::{Options, RowChanges, Store};
use wire::cluster::{IndexRange, ListNodeObjects, Scan, ScanPosition, Scanned};

use super::*;
use crate::brick::guards;
use crate::brick::index_rows::{self, IndexId, Mark};
use crate::brick::indexes::IndexSpec;
use crate::brick::node_inbox::NodeInbox;
use crate::brick::page_rows::Rows;
use crate::brick::routing::NodeEvent;
use crate::brick::scan::scan;

mod acknowledged;
mod appends;
mod change_size;
mod consistency;
mod contents;
mod damage;
mod entries;
mod indexes;
mod quota;
mod random;
mod removals;
mod room;
mod usage;

const NODE: NodeId = NodeId(3);
const SPACE: SpaceId = SpaceId(1);
const PERSON: ClassId = ClassId(1);
const STUDENT: ClassId = ClassId(2);
const NAME: FieldNumber = FieldNumber(1);
const AGE: FieldNumber = FieldNumber(2);
const BY_AGE: u32 = 7;

fn page(slot: u16) -> PageId {
    PageId { space: SPACE, node: NODE, number: 1 + u64::from(slot % 3) }
}

fn oid(class: ClassId, slot: u16) -> Oid {
    Oid::new(class, page(slot), slot)
}

fn person(class: ClassId, age: i64) -> Object {
    let mut record = RecordBuilder::new();
    record.set(NAME, "Ada").unwrap().set(AGE, age).unwrap();
    Object::record(class, record.build().unwrap())
}

fn age(object: &Object) -> i64 {
    match RecordRef::new(&object.data).unwrap().field(AGE).unwrap() {
        Some(ValueRef::Int64(age)) => age,
        other => panic!("{other:?}"),
    }
}

fn by_age(index: u32) -> IndexSpec {
    IndexSpec { index, fields: vec![AGE], unique: false, classes: vec![PERSON, STUDENT] }
}

fn key(age: i64) -> Vec<u8> {
    IndexEntry::new(&[ValueRef::Int64(age)]).key
}

/// The range of an age, or of ages up to one that is not part of it.
fn ages(from: i64, to: Option<i64>, reverse: bool) -> IndexRange {
    let behind = || {
        let mut behind = key(from);
        behind.iter_mut().rev().take(1).for_each(|end| *end += 1);
        behind
    };
    let to = to.map_or_else(behind, key);
    IndexRange { index: BY_AGE, from: key(from).into(), to: to.into(), reverse }
}

fn everything(index: u32) -> IndexRange {
    let KeyRange { from, to } = KeyRange::all();
    IndexRange { index, from: from.into(), to: to.into(), reverse: false }
}

struct World {
    store: Store,
    driver: NodeDriver<()>,
    is_in_memory: bool,
    inbox: Arc<NodeInbox>,
    /// What was sent beside answers.
    sent: Vec<Message>,
    now: Ms,
    transactions: u64,
    /// What was asked and not answered.
    open: BTreeMap<TxnId, Writes<Object>>,
    prepared: BTreeMap<TxnId, (HlcTimestamp, Writes<Object>)>,
    /// What there must be, by slot.
    model: BTreeMap<u16, Object>,
}

impl World {
    fn with_store(store: Store) -> Self {
        Self::try_open(store).unwrap()
    }

    fn try_open(store: Store) -> Result<Self> {
        let reader = RowReader::new(store.clone());
        let opening_rows = NodeDriver::<()>::opening_rows(NODE, &reader).unwrap();
        let is_new = opening_rows.is_some();
        if let Some(rows) = opening_rows {
            store.commit_rows(rows).unwrap();
        }
        let settings = OpenSettings {
            node: NODE,
            moves: 0,
            skew_ms: 5_000,
            windows: super::WINDOWS,
            portion: super::PortionLimits::SMALL,
            upload_lease_ms: super::STAGING_LEASE_MS,
            opening: 1,
            is_new,
        };
        let driver = NodeDriver::open(settings, reader, Arc::default(), 1_000_000)?;
        let is_in_memory = store.is_in_memory();
        let (inbox, sent, open, prepared, model) = Default::default();
        Ok(Self { store, driver, is_in_memory, inbox, sent, now: 1_000_000, transactions: 0, open, prepared, model })
    }

    /// Does what the driver wants done.
    fn carry_out(&mut self) {
        while let Some(output) = self.driver.next_output() {
            match output {
                DriverOutput::SubmitRows { life, rows } if self.is_in_memory => {
                    let result = self.store.commit_rows(rows.mark_needed()).map(drop);
                    self.driver.handle_written(life, result, self.now);
                }
                DriverOutput::SubmitRows { life, rows } => {
                    let inbox = self.inbox.clone();
                    self.store.submit_rows(rows, move |result| {
                        inbox.add_event(NodeEvent::Written { node: NODE, life, result: result.map(drop) });
                    });
                }
                DriverOutput::ReadPage(read) => {
                    let found = rows::read_page(&self.store, read.page());
                    self.driver.handle_page_read(read, found, self.now);
                }
                DriverOutput::Answer { to, answer } => {
                    self.inbox.add_event(NodeEvent::Answer { to, node: NODE, answer })
                }
                DriverOutput::Ask { node, seen, request } => {
                    self.inbox.add_event(NodeEvent::Ask { from: NODE, node, seen, request });
                }
                DriverOutput::Send((), message) | DriverOutput::Deferred { message, .. } => self.sent.push(message),
                DriverOutput::RefreshSchema { .. } => {}
                DriverOutput::Reopen => panic!("L1: no rows of a one-phase commit were submitted"),
                DriverOutput::AbortUpload(upload) => self.store.abort_upload(upload),
                #[cfg(any(test, feature = "sim"))]
                DriverOutput::Appended { .. } => {}
            }
        }
    }

    /// In memory, with an index by age, and nobody there.
    fn with_index() -> Self {
        let mut world = Self::with_store(Store::in_memory(Options::default()).unwrap());
        world.set_indexes(&[by_age(BY_AGE)]);
        world.settle();
        world
    }

    /// The node is closed and opened again.
    fn reopen(mut self) -> Self {
        self.answer_all();
        assert!(self.driver.close().is_empty());
        let Self { store, now, transactions, prepared, model, .. } = self;
        Self { now, transactions, prepared, model, ..Self::with_store(store) }
    }

    fn set_indexes(&mut self, wanted: &[IndexSpec]) {
        self.driver.set_indexes(SPACE, wanted, self.now);
        self.carry_out();
    }

    fn ask(&mut self, request: Request<Object>) {
        self.driver.handle_request(Requester::Node(NodeId(9)), request, HlcTimestamp::ZERO, self.now).unwrap();
        self.carry_out();
    }

    fn next_txn(&mut self) -> TxnId {
        self.transactions += 1;
        TxnId { start: HlcTimestamp::at(self.now), client: ClientId(self.transactions) }
    }

    fn begin(&mut self, reads: Vec<Read>, writes: Writes<Object>, is_alone: bool) -> TxnId {
        let txn = self.next_txn();
        self.open.insert(txn, writes.clone());
        let part = Part { reads: reads.into(), writes, ..Part::default() };
        self.ask(match is_alone {
            true => Request::Commit { txn, part },
            false => Request::Prepare { txn, participants: vec![NODE, NodeId(8)], part },
        });
        txn
    }

    /// Takes the answers that have come.
    fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        for event in self.inbox.take_events() {
            match event {
                NodeEvent::Written { life, result, .. } => {
                    self.driver.handle_written(life, result, self.now);
                    self.carry_out();
                }
                NodeEvent::Answer { answer, .. } => {
                    self.record_answer(&answer);
                    answers.push(answer);
                }
                NodeEvent::Ask { .. } | NodeEvent::Deferred { .. } | NodeEvent::PageRead { .. } => {}
            }
        }
        answers
    }

    fn record_answer(&mut self, answer: &Answer) {
        let Some(writes) = self.open.remove(&answer.txn()) else { return };
        match answer {
            Answer::Ended { outcome: Outcome::Committed(_), .. } => {
                for (oid, content) in writes {
                    match content {
                        ObjectState::Value(object) => drop(self.model.insert(oid.slot(), object)),
                        ObjectState::Absent => drop(self.model.remove(&oid.slot())),
                        // Tests of contents look at the store.
                        ObjectState::Changed(_) => {}
                    }
                }
            }
            Answer::Prepared { txn, proposal, .. } => drop(self.prepared.insert(*txn, (*proposal, writes))),
            _ => {}
        }
    }

    /// Waits until all is answered.
    fn answer_all(&mut self) -> Vec<Answer> {
        let mut all = Vec::new();
        loop {
            let answers = self.answers();
            let is_idle = answers.is_empty() && self.open.is_empty() && self.driver.writer.is_idle();
            all.extend(answers);
            if is_idle || self.driver.failure().is_some() {
                return all;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn commit(&mut self, reads: &[Read], oid: Oid, content: ObjectState<Object>) -> Answer {
        let txn = self.begin(reads.to_vec(), [(oid, content)].into(), true);
        self.answer_all().into_iter().find(|answer| answer.txn() == txn).unwrap()
    }

    fn put(&mut self, class: ClassId, slot: u16, age: i64) {
        let answer = self.commit(&[], oid(class, slot), ObjectState::Value(person(class, age)));
        assert!(matches!(answer, Answer::Ended { .. }), "{answer:?}");
    }

    fn decide(&mut self, commits: bool) {
        let Some((txn, (at, writes))) = self.prepared.pop_first() else { return };
        let outcome = if commits { Outcome::Committed(at) } else { Outcome::Aborted };
        self.open.insert(txn, writes);
        self.ask(Request::Decide { txn, outcome });
        if !commits {
            self.open.remove(&txn);
        }
    }

    fn poll(&mut self) {
        self.now += 60;
        self.driver.poll(self.now);
        self.carry_out();
    }

    /// Until nothing is left to be done.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            self.answer_all();
            if self.driver.index.due() == Ms::MAX {
                return;
            }
            self.poll();
        }
        panic!("it is never done: {:?}", self.driver.index);
    }

    fn scan(&self, scan_of: Scan) -> Result<Scanned> {
        scan(&self.store, &scan_of)
    }

    /// The ages that an index has, in its order, asked for in portions.
    fn ages(&self, index: u32, reverse: bool, limit: u32) -> Vec<(i64, u16)> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let range = IndexRange { reverse, ..everything(index) };
            let scanned = self.scan(Scan { after, limit, ..scan_request(Some(range)) }).unwrap();
            assert!(
                scanned.found.len() <= limit as usize,
                "{} objects, at most {limit} were wanted",
                scanned.found.len()
            );
            found.extend(scanned.found.iter().map(|(oid, _, object)| (age(object), oid.slot())));
            after = scanned.next;
            if after.is_none() {
                return found;
            }
        }
    }

    /// All entries of an index, as its rows say.
    fn entries(&self, index: u32) -> Vec<(Vec<u8>, u16)> {
        let (id, mut found) = (IndexId { node: NODE, space: SPACE, index }, Vec::new());
        let visit = |row: &[u8], _: &[u8]| {
            let (key, _, slot) = index_rows::parse_entry(id, row).unwrap();
            found.push((key.to_vec(), slot));
            ControlFlow::Continue(())
        };
        self.store.rows(&index_rows::bound(id, &[]), &index_rows::bound(id, &[0xff]), visit).unwrap();
        found
    }

    /// What an index by age must have.
    fn expected_index(&self) -> Vec<(i64, u16)> {
        let people = self.model.iter().filter(|(_, object)| object.class != ClassId::NONE);
        let mut expected: Vec<(i64, u64, u16)> =
            people.map(|(slot, object)| (age(object), page(*slot).number, *slot)).collect();
        expected.sort_unstable();
        expected.into_iter().map(|(age, _, slot)| (age, slot)).collect()
    }
}

fn scan_request(range: Option<IndexRange>) -> Scan {
    let classes = [PERSON, STUDENT].into();
    Scan {
        space: SPACE,
        node: NODE,
        epoch: 0,
        classes,
        range,
        after: None,
        limit: 100,
        filter: None,
        count: false,
        family: None,
    }
}

fn is_refused_for(answer: &Answer, guard: Oid) -> bool {
    matches!(answer, Answer::Refused { why: Refusal::Conflict(conflict), .. } if conflict.oid == guard)
}

#[test]
fn of_two_who_look_and_then_insert_one_is_refused() {
    let index = guards::of_index(SPACE, NODE, BY_AGE);
    let bucket = guards::of_bucket(SPACE, NODE, BY_AGE, &key(20));
    let person_guard = guards::of_class(SPACE, NODE, PERSON);
    for (range, guard) in
        [(None, person_guard), (Some(ages(10, Some(30), false)), index), (Some(ages(20, None, true)), bucket)]
    {
        let mut world = World::with_index();
        world.put(STUDENT, 1, 20);
        let looks = [(); 2].map(|()| world.scan(scan_request(range.clone())).unwrap().guards);
        let first = world.commit(&looks[0], oid(PERSON, 2), ObjectState::Value(person(PERSON, 20)));
        assert!(matches!(first, Answer::Ended { .. }), "{first:?}");
        let second = world.commit(&looks[1], oid(PERSON, 3), ObjectState::Value(person(PERSON, 20)));
        assert!(is_refused_for(&second, guard), "{second:?}");
        // Who looks again sees what was missed.
        let again = world.scan(scan_request(range)).unwrap();
        assert_eq!(again.found.len(), 2);
        let third = world.commit(&again.guards, oid(PERSON, 3), ObjectState::Value(person(PERSON, 20)));
        assert!(matches!(third, Answer::Ended { .. }), "{third:?}");
    }
}

#[test]
fn changes_of_members_in_and_out_of_a_range_are_minded_and_others_are_not() {
    let absent = || ObjectState::Absent;
    let aged = |age| ObjectState::Value(person(PERSON, age));
    let far = (21..99).find(|age| {
        let bucket = |age| guards::of_bucket(SPACE, NODE, BY_AGE, &key(age));
        bucket(*age) != bucket(20) && bucket(*age) != bucket(50)
    });
    let far = far.unwrap();
    let cases = [
        ("changed within", 1, aged(20), true),
        ("moved out", 1, aged(far), true),
        ("moved in", 2, aged(20), true),
        ("removed", 1, absent(), true),
        ("elsewhere", 2, aged(far), false),
        ("removed elsewhere", 2, absent(), false),
    ];
    for (name, slot, content, is_minded) in cases {
        let mut world = World::with_index();
        world.put(PERSON, 1, 20);
        world.put(PERSON, 2, 50);
        let guards = world.scan(scan_request(Some(ages(20, None, false)))).unwrap().guards;
        world.commit(&[], oid(PERSON, slot), content);
        let answer = world.commit(&guards, oid(ClassId::NONE, 9), ObjectState::Value(Object::blob("x".into())));
        assert_eq!(matches!(answer, Answer::Refused { .. }), is_minded, "{name}: {answer:?}");
    }
}

#[test]
fn writes_of_another_class_in_the_place_are_refused() {
    let mut world = World::with_index();
    world.put(PERSON, 1, 20);
    let guards = world.scan(scan_request(None)).unwrap().guards;
    let blob = ObjectState::Value(Object::blob("x".into()));
    let student = ObjectState::Value(person(STUDENT, 5));
    for (class, content) in [(ClassId::NONE, blob.clone()), (STUDENT, ObjectState::Absent), (PERSON, student)] {
        let answer = world.commit(&[], oid(class, 1), content);
        assert!(matches!(answer, Answer::Refused { why: Refusal::Aborted, .. }), "{answer:?}");
    }
    let answer = world.commit(&guards, oid(ClassId::NONE, 9), blob);
    assert!(matches!(answer, Answer::Ended { .. }), "nothing has changed: {answer:?}");
    assert_eq!((world.entries(BY_AGE), world.scan(scan_request(None)).unwrap().found.len()), (vec![(key(20), 1)], 1));
}

#[test]
fn objects_of_a_class_that_there_is_not_are_refused_once_the_catalogue_was_asked() {
    let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
    world.driver.set_schema(SPACE, &Arc::default(), world.now);
    world.carry_out();
    let txn = world.next_txn();
    let bring = |world: &mut World| {
        let writes: Writes<Object> = [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 30)))].into();
        world.ask(Request::Commit { txn, part: Part { writes, ..Part::default() } });
        world.answer_all()
    };
    // An answer to the catalogue that was on its way does not count.
    for _ in 0..2 {
        assert_eq!(bring(&mut world), [], "it may be a new class");
        world.driver.on_schema_refreshed(SPACE);
    }
    let answers = bring(&mut world);
    assert!(matches!(answers[..], [Answer::Refused { why: Refusal::Aborted, .. }]), "{answers:?}");
    assert!(world.scan(scan_request(None)).unwrap().found.is_empty());
}

#[test]
fn values_that_are_to_be_unique_are_taken_only_from_who_binds_them() {
    let mut world = World::with_index();
    world.set_indexes(&[IndexSpec { unique: true, ..by_age(BY_AGE) }]);
    let aged = |age| ObjectState::Value(person(PERSON, age));
    let is_taken = |answer: &Answer| matches!(answer, Answer::Ended { outcome: Outcome::Committed(_), .. });
    let question = unique_question(SPACE, NODE, BY_AGE);
    // Who does not say that it binds them, has scanned the index, or binds those of another index.
    let scanned = world.scan(scan_request(Some(everything(BY_AGE)))).unwrap().guards;
    for reads in [Vec::new(), scanned, vec![unique_question(SPACE, NODE, BY_AGE + 1)]] {
        let answer = world.commit(&reads, oid(PERSON, 1), aged(20));
        assert!(matches!(answer, Answer::Refused { why: Refusal::Aborted, .. }), "{answer:?}");
    }
    assert!(is_taken(&world.commit(&[question], oid(PERSON, 1), aged(20))));
    // Who keeps its values need not bind them, nor who has none.
    assert!(is_taken(&world.commit(&[], oid(PERSON, 1), aged(20))));
    let nameless = Object::record(PERSON, RecordBuilder::new().build().unwrap());
    assert!(is_taken(&world.commit(&[], oid(PERSON, 4), ObjectState::Value(nameless))));
    assert!(is_taken(&world.commit(&[], oid(PERSON, 1), ObjectState::Absent)));
}

/// Opens a session.
fn renew(world: &World) -> Up<Object> {
    let (asked, height) = (world.now, u8::MAX);
    Up::Renew { asked, wanted_ms: 1_000, open: true, sync: 1, subscribe: false, height, replaces: None }
}

#[test]
fn writes_outside_of_transactions_are_minded_too() {
    let mut world = World::with_index();
    let blob = ObjectState::Value(Object::blob("x".into()));
    let guards = world.scan(scan_request(None)).unwrap().guards;
    let holder = HolderId(1);
    let renew = renew(&world);
    let write = Up::Write {
        write: world.next_txn(),
        writes: [(oid(STUDENT, 2), ObjectState::Value(person(STUDENT, 5)))].into(),
    };
    for message in [renew, write] {
        world.driver.handle_up(&(), holder, message, world.now).unwrap();
        world.carry_out();
    }
    world.answer_all();
    assert_eq!(world.entries(BY_AGE), [(key(5), 2)]);
    let answer = world.commit(&guards, oid(ClassId::NONE, 9), blob);
    assert!(is_refused_for(&answer, guards[1].oid), "{answer:?}");
}

#[test]
fn of_two_who_put_objects_of_different_classes_in_one_place_only_one_does() {
    for is_alone in [true, false] {
        // On a disk: what is under way is not there yet.
        let dir = tempfile::tempdir().unwrap();
        let mut world = World::with_store(Store::open(&dir.path().join("store"), Options::default()).unwrap());
        world.set_indexes(&[by_age(BY_AGE)]);
        world.settle();
        let writes = |class, age| Writes::from([(oid(class, 1), ObjectState::Value(person(class, age)))]);
        world.begin(Vec::new(), writes(PERSON, 20), is_alone);
        let answer = world.commit(&[], oid(STUDENT, 1), ObjectState::Value(person(STUDENT, 30)));
        assert!(matches!(answer, Answer::Refused { .. }), "{answer:?}");
        world.decide(true);
        world.settle();
        assert_eq!(world.entries(BY_AGE), [(key(20), 1)]);
        // Then it is wrong for good.
        let answer = world.commit(&[], oid(STUDENT, 1), ObjectState::Value(person(STUDENT, 30)));
        assert!(matches!(answer, Answer::Refused { why: Refusal::Aborted, .. }), "{answer:?}");
    }
}

#[test]
fn one_transaction_puts_one_object_in_a_place() {
    let mut world = World::with_index();
    // The identifier of another object of the page is between the two.
    let writes = [(PERSON, 1), (PERSON, 4), (STUDENT, 1)]
        .map(|(class, slot)| (oid(class, slot), ObjectState::Value(person(class, 20))));
    assert!(page(1) == page(4) && writes.is_sorted_by_key(|(oid, _)| *oid));
    world.begin(Vec::new(), writes.into(), true);
    let answers = world.answers();
    assert!(matches!(answers[..], [Answer::Refused { why: Refusal::Aborted, .. }]), "{answers:?}");
    assert_eq!((world.entries(BY_AGE), world.scan(scan_request(None)).unwrap().found), (vec![], vec![]));
}

#[test]
fn outcome_that_another_participant_tells_is_carried_out_at_once() {
    let mut world = World::with_index();
    let writes: Writes<Object> = [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 20)))].into();
    let txn = world.begin(Vec::new(), writes, false);
    world.answer_all();
    let (at, _) = world.prepared[&txn];
    let is_asked =
        |events: Vec<NodeEvent>| events.iter().any(|event| matches!(event, NodeEvent::Ask { node: NodeId(8), .. }));
    while !is_asked(world.inbox.take_events()) {
        world.now = world.driver.deadline();
        assert!(world.now < Ms::MAX, "the other participant is asked for the outcome");
        world.driver.poll(world.now);
        world.carry_out();
    }
    assert_eq!(world.entries(BY_AGE), []);
    let answer = Answer::Ended { txn, outcome: Outcome::Committed(at), version: None, offsets: AppendOffsets::new() };
    world.driver.handle_answer(NodeId(8), answer, world.now);
    world.carry_out();
    for event in world.inbox.take_events() {
        if let NodeEvent::Ask { node: NODE, request, .. } = event {
            world.ask(request);
        }
    }
    assert_eq!(world.entries(BY_AGE), [(key(20), 1)]);
}

#[test]
fn objects_of_a_logical_node_are_listed_in_portions() {
    let mut world = World::with_index();
    let slots = [3, 6, 1, 4, 2];
    slots.iter().for_each(|slot| world.put(PERSON, *slot, 20));
    let (mut listed, mut next) = (Vec::new(), Some((0, 0)));
    while let Some(from) = next {
        let wanted = ListNodeObjects { space: SPACE, node: NODE, from, limit: 2 };
        let found = rows::list_objects(&world.store.snapshot().unwrap(), &wanted).unwrap();
        assert!(found.objects.len() <= 2);
        listed.extend(found.objects.iter().map(|object| object.oid));
        next = found.next;
    }
    assert_eq!(listed, slots.map(|slot| oid(PERSON, slot)));
}

#[test]
fn driver_with_nothing_to_do_is_not_polled_at_once() {
    let mut world = World::with_index();
    world.put(PERSON, 1, 20);
    world.settle();
    assert!(world.driver.deadline() > world.now);
}

#[test]
fn transactions_that_are_prepared_touch_until_they_are_decided() {
    for commits in [true, false] {
        let mut world = World::with_index();
        let writes: Writes<Object> = [(oid(PERSON, 1), ObjectState::Value(person(PERSON, 20)))].into();
        world.begin(Vec::new(), writes, false);
        world.answer_all();
        let guards = world.scan(scan_request(Some(everything(BY_AGE)))).unwrap().guards;
        let blob = || ObjectState::Value(Object::blob("x".into()));
        let early = world.commit(&guards, oid(ClassId::NONE, 9), blob());
        assert!(is_refused_for(&early, guards[0].oid), "{early:?}");
        let mut world = world.reopen();
        let early = world.commit(&guards, oid(ClassId::NONE, 9), blob());
        assert!(is_refused_for(&early, guards[0].oid), "{early:?}");
        world.decide(commits);
        world.answer_all();
        let late = world.commit(&guards, oid(ClassId::NONE, 9), blob());
        assert_eq!(is_refused_for(&late, guards[0].oid), commits, "{late:?}");
        assert_eq!(world.entries(BY_AGE), if commits { vec![(key(20), 1)] } else { vec![] });
    }
}

/// The rows that the store has of transactions, and of what clients have heard.
fn outcome_rows(world: &World) -> (usize, usize) {
    let count = |(from, to): (rows::Key, rows::Key)| {
        let mut rows = 0;
        world
            .store
            .each(&from, &to, |_, _| {
                rows += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        rows
    };
    (count(rows::txn_range(NODE)), count(rows::mark_range(NODE)))
}

#[test]
fn outcomes_that_a_client_has_heard_leave_one_row() {
    let txn = |number: u64| TxnId { start: HlcTimestamp::at(1_000_000 + number), client: ClientId(7) };
    let commit = |world: &mut World, number| {
        let writes: Writes<Object> = [(oid(ClassId::NONE, 1), ObjectState::Value(Object::blob("x".into())))].into();
        world.ask(Request::Commit { txn: txn(number), part: Part { writes, ..Part::default() } });
        world.answer_all()
    };
    let repeated = || {
        let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
        for number in 0..20 {
            commit(&mut world, number);
        }
        assert_eq!(outcome_rows(&world), (20, 0));
        let mark = ClientMark::new(txn(20).start, vec![txn(4).start]).unwrap();
        world.ask(Request::Heard { txn: txn(19), mark });
        // Some rows are removed with the mark, the others with later changes: these are of another client.
        for number in 0..5 {
            let txn = TxnId { client: ClientId(8), ..txn(number) };
            world.ask(Request::Ask { txn, round: 0 });
            world.answer_all();
        }
        assert_eq!(outcome_rows(&world), (1 + 5, 1));
        let mut world = world.reopen();
        commit(&mut world, 3)
    };
    let refused = [Answer::Refused { txn: txn(3), why: Refusal::TooOld }];
    assert_eq!(repeated(), refused, "it is not executed again");
    let _planted = plant(Bug::MarksNotRead);
    assert_ne!(repeated(), refused, "the bug is noticed");
}

#[test]
fn reservations_made_while_the_node_is_copied_move_with_it() {
    let is_sent = || {
        let mut world = World::with_store(Store::in_memory(Options::default()).unwrap());
        world.driver.changes_for_attempt(5, 0).unwrap();
        let reservation = world.driver.reserve(SPACE, 3).unwrap();
        assert!(!world.driver.pages.is_idle());
        world.store.commit_rows(reservation.rows).unwrap();
        assert!(world.driver.close().is_empty());
        assert!(!world.driver.is_closed(), "a reservation is under way");
        world.driver.finish_reservation();
        assert!(world.driver.is_closed());
        let changed = world.driver.take_changes().unwrap().take(None, 10);
        changed.iter().any(|key| *key == rows::free_key(NODE, SPACE))
    };
    assert!(is_sent());
    let _planted = plant(Bug::ReservationsNotMoved);
    assert!(!is_sent(), "the bug is noticed");
}

/// Regression: the driver asked itself for ever whether requests wait that it does not handle any more.
#[test]
fn failed_driver_has_no_outputs_for_requests_that_waited() {
    for loses_rows in [false, true] {
        let mut world = World::with_index();
        world.settle();
        let txn = TxnId { start: HlcTimestamp(7), client: ClientId(7) };
        let request = Request::Ask { txn, round: 0 };
        let now = world.now;
        world.driver.handle_output(protocol::brick::Output::Again(Requester::Node(NodeId(9)), request), now).unwrap();
        if loses_rows {
            world.driver.lose_rows();
        } else {
            world.driver.fail(Error::new(ErrorKind::Io, "the disk is away"));
        }
        let mut outputs = 0;
        while world.driver.next_output().is_some() {
            outputs += 1;
        }
        assert!(outputs <= 1 && world.driver.failure().is_some(), "{outputs}");
    }
}
