//! The machine against simulated bricks: answers that are late, fail, or come from a brick that does not serve the node any more.

use std::collections::BTreeMap;

use model::{ClassId, Object, PageId, RecordRef, SpaceId, Value};
use protocol::ident::{HlcTimestamp, Version};
use protocol::validate::ReadVersion;
use query::{Class, Query, Schema, Type};
use wire::cluster::ScanPosition;

use super::*;
use crate::brick::guards;
use model::planted_bug::assert_noticed;

const SPACE: SpaceId = SpaceId(1);
const PERSON: ClassId = ClassId(1);
const STUDENT: ClassId = ClassId(2);
/// More inputs than any of these queries takes.
const MAX_INPUTS: usize = 20_000;

fn schema(has_students: bool) -> Arc<QuerySchema> {
    let person =
        Class::new(PERSON, "Person").field(1, "age", Type::Int64).field(2, "boss", Type::Reference(Some(PERSON)));
    let student = Class::new(STUDENT, "Student").extends(PERSON);
    let classes = [Some(person), has_students.then_some(student)].into_iter().flatten();
    Arc::new(QuerySchema { classes: Schema::new(classes).unwrap(), indexes: Vec::new() })
}

fn person(class: ClassId, age: i64, boss: Option<Oid>) -> Object {
    let mut record = RecordBuilder::new();
    record.set_value(FieldNumber(1), &Value::Int64(age)).unwrap();
    record.set_value(FieldNumber(2), &boss.map_or(Value::Null, Value::Reference)).unwrap();
    Object::record(class, record.build().unwrap())
}

fn oid(space: SpaceId, node: u32, class: ClassId, slot: u16) -> Oid {
    Oid::new(class, PageId { space, node: NodeId(node), number: 1 }, slot)
}

/// The simulated cluster: each logical node is at the brick with its number.
struct World {
    random: u64,
    space: Arc<SpaceView>,
    objects: BTreeMap<Oid, Object>,
    epochs: BTreeMap<NodeId, u64>,
    /// Changes of each guard, one after each answer.
    guards: BTreeMap<NodeId, u64>,
    /// What the peer server knows of classes, and what bricks and the catalogue know.
    known: Arc<QuerySchema>,
    actual: Arc<QuerySchema>,
    /// The brick that hangs.
    hanging: Option<NodeId>,
    /// In how many of a hundred cases an answer fails, or the node moves before it is asked.
    trouble: u64,
}

impl Bricks for World {
    fn place(&self, node: NodeId) -> Option<NodePlacement> {
        Some(NodePlacement { brick: BrickId(node.0), epoch: *self.epochs.get(&node)?, moves: 0 })
    }

    fn is_silent(&self, brick: BrickId) -> bool {
        self.hanging == Some(NodeId(brick.0))
    }
}

/// What came of a query.
#[derive(Debug, Default)]
struct Answer {
    rows: BTreeMap<Oid, usize>,
    reads: Vec<Read>,
    waited_for: BTreeSet<NodeId>,
}

impl World {
    fn new(seed: u64, nodes: u32) -> Self {
        let nodes: Vec<NodeId> = (1..=nodes).map(NodeId).collect();
        let space = Arc::new(SpaceView { id: SPACE, name: "main".to_owned(), nodes: nodes.clone() });
        let epochs = nodes.iter().map(|node| (*node, 1)).collect();
        let (known, guards) = (schema(false), BTreeMap::new());
        let actual = known.clone();
        let (random, objects) = (seed * 2 + 1, BTreeMap::new());
        Self { random, space, objects, epochs, guards, known, actual, hanging: None, trouble: 0 }
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % most
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Gives each logical node some persons.
    fn populate(&mut self, most: u64, class: ClassId) {
        for node in self.space.nodes.clone() {
            for slot in 0..self.below(most) as u16 {
                let age = self.below(60) as i64;
                self.objects.insert(oid(SPACE, node.0, class, slot), person(class, age, None));
            }
        }
    }

    /// What a brick answers.
    fn scan(&mut self, scan: &Scan) -> Result<Scanned> {
        if self.percent(self.trouble) {
            *self.epochs.get_mut(&scan.node).unwrap() += 1;
        }
        if self.percent(self.trouble) || scan.epoch != self.epochs[&scan.node] {
            return Err(Error::new(ErrorKind::Unavailable, "this brick does not serve the node"));
        }
        if scan.family.is_some() && self.actual.classes.classes().any(|class| !scan.classes.contains(&class.id)) {
            return Ok(Scanned { has_stale_classes: true, ..Scanned::default() });
        }
        let is_wanted = |oid: &Oid, object: &Object| {
            let is_behind = scan.after.as_ref().is_none_or(|after| after.oid < *oid);
            let record = RecordRef::new(&object.data).unwrap();
            let passes = scan.filter.as_ref().is_none_or(|filter| filter.matches(&record).unwrap());
            oid.page().node == scan.node
                && oid.space() == SPACE
                && is_behind
                && scan.classes.contains(&oid.class())
                && passes
        };
        let mut found: Vec<(Oid, Version, Object)> = self
            .objects
            .iter()
            .filter(|(oid, object)| is_wanted(oid, object))
            .map(|(oid, object)| (*oid, Version::ZERO, object.clone()))
            .collect();
        let has_more = found.len() > scan.limit as usize;
        found.truncate(scan.limit as usize);
        let last = found.last().map(|(oid, ..)| ScanPosition { key: Bytes::new(), oid: *oid });
        let changes = self.guards.entry(scan.node).or_default();
        let seen = ReadVersion::At(Version { moves: 0, position: *changes });
        *changes += 1;
        let guards = vec![Read { oid: guards::of_class(SPACE, scan.node, PERSON), seen }];
        Ok(Scanned { next: last.filter(|_| has_more), guards, examined: 1, found, ..Scanned::default() })
    }

    fn event(&mut self, work: Work) -> Option<Event> {
        Some(match work {
            Work::Scan { scan, .. } if self.hanging == Some(scan.node) => return None,
            Work::Scan { ticket, brick, scan } => {
                assert_eq!(brick.0, scan.node.0, "the brick that serves the node is asked");
                Event::Scanned { ticket, answer: self.scan(&scan) }
            }
            Work::Read { generation, oids } => {
                assert!(oids.iter().all(|oid| oid.space() == SPACE), "only objects of the query's space are followed");
                let read = |oid| {
                    let (object, seen) = (self.objects.get(&oid).cloned(), ReadVersion::At(Version::ZERO));
                    (oid, Ok(CachedObject { object, seen, timestamp: HlcTimestamp::ZERO }))
                };
                Event::Read { generation, found: oids.into_iter().map(read).collect() }
            }
            Work::RefreshSchema => Event::Schema(Ok(self.actual.clone())),
            Work::Step(mut run) => {
                let progress = run.step();
                Event::Stepped(Some((run, progress)))
            }
            Work::AcquireTurn => Event::Turn,
            Work::ReleaseTurn => return None,
        })
    }

    /// Asks a query, and answers the machine's questions in random order, until it ends.
    fn ask(&mut self, query: &str, own_writes: BTreeMap<Oid, Option<Object>>) -> Result<Answer> {
        let query = Query::parse_of("Person", query).unwrap().encode().unwrap().into();
        let asked = cluster::QueryRequest { query, own_writes, report_reads: true, ..cluster::QueryRequest::default() };
        let mut machine = QueryMachine::new(&self.space, self.known.clone(), asked, ScanLimits::SMALL)?;
        let (mut now, mut answer, mut open) = (1_000, Answer::default(), Vec::new());
        machine.request(now);
        for _ in 0..MAX_INPUTS {
            if let Some((rows, is_last)) = machine.take_portion(self, now)? {
                for oid in rows.oids {
                    *answer.rows.entry(oid).or_default() += 1;
                }
                answer.reads.extend(rows.reads);
                answer.waited_for.extend(rows.waits_for);
                if is_last {
                    return Ok(answer);
                }
                machine.request(now);
            }
            let activity = machine.advance(self, now)?;
            open.extend(machine.work());
            if activity == Activity::Worked {
                continue;
            }
            match open.is_empty() {
                true => now = now.max(machine.deadline()),
                false => {
                    let chosen = self.below(open.len() as u64) as usize;
                    let work = open.swap_remove(chosen);
                    if let Some(event) = self.event(work) {
                        machine.handle(event, now)?;
                    }
                }
            }
        }
        panic!("the query does not end")
    }
}

/// Asks with and without trouble, and checks rows and guards against what the bricks have.
fn check_random_queries(trouble: u64) {
    for seed in 1..60 {
        let mut world = World::new(seed, 4);
        world.trouble = trouble;
        world.populate(12, PERSON);
        let is_changed = |slot: u16| slot.is_multiple_of(3);
        let changed: BTreeMap<Oid, Option<Object>> = world
            .objects
            .keys()
            .filter(|oid| is_changed(oid.slot()))
            .map(|oid| (*oid, oid.slot().is_multiple_of(2).then(|| person(PERSON, 70, None))))
            .collect();
        let is_expected = |oid: &Oid, object: &Object| {
            let age = RecordRef::new(&object.data).unwrap().field(FieldNumber(1)).unwrap().unwrap().to_value().unwrap();
            match changed.get(oid) {
                Some(own) => own.is_some(),
                None => matches!(age, Value::Int64(30..)),
            }
        };
        let expected = world.objects.iter().filter(|(oid, object)| is_expected(oid, object));
        let expected: BTreeMap<Oid, usize> = expected.map(|(oid, _)| (*oid, 1)).collect();
        let answer = world.ask("age >= 30", changed).unwrap();
        assert_eq!(answer.rows, expected, "seed {seed}");
        let guards: BTreeMap<Oid, ReadVersion> = answer.reads.iter().map(|read| (read.oid, read.seen)).collect();
        assert_eq!(guards.len(), answer.reads.len(), "seed {seed}: a guard is returned once");
        let first = ReadVersion::At(Version::ZERO);
        let of_nodes = world.space.nodes.iter().map(|node| (guards::of_class(SPACE, *node, PERSON), first));
        assert_eq!(guards, of_nodes.collect(), "seed {seed}: guards are those of each node's first page");
    }
}

#[test]
fn answer_is_what_all_nodes_have_with_what_the_transaction_has_written() {
    use Bug::{
        QueryGuardDropped, QueryGuardOfLastPage, QueryOwnWritesShadowed, QueryPageRepeated, QuerySkipsNode,
        QueryStaleEpoch,
    };
    assert_noticed(&[QuerySkipsNode, QueryPageRepeated, QueryOwnWritesShadowed], || check_random_queries(0));
    assert_noticed(&[QueryGuardDropped, QueryGuardOfLastPage, QueryStaleEpoch], || check_random_queries(20));
}

#[test]
fn query_begins_anew_when_bricks_know_other_classes() {
    assert_noticed(&[Bug::QueryStaleClasses, Bug::QueryOldAnswer], || {
        for seed in 1..200 {
            let mut world = World::new(seed, 5);
            (world.actual, world.trouble) = (schema(true), 25);
            world.populate(9, PERSON);
            world.populate(9, STUDENT);
            let expected: BTreeMap<Oid, usize> = world.objects.keys().map(|oid| (*oid, 1)).collect();
            assert_eq!(world.ask("age >= 0", BTreeMap::new()).unwrap().rows, expected, "seed {seed}");
        }
    });
}

/// What comes of a query, by an index or by an extent, whose first scan fails.
fn ask_after_failure(by_index: bool, failure: ErrorKind) -> Result<usize> {
    let mut world = World::new(3, 1);
    let (name, class, fields) = ("by_age".to_owned(), PERSON, vec![FieldNumber(1)]);
    let index = query::Index { id: 7, name, class, fields, unique: false, ready: true };
    let classes = world.known.classes.clone();
    world.known = Arc::new(QuerySchema { classes, indexes: by_index.then_some(index).into_iter().collect() });
    let query = Query::parse_of("Person", "age == 30").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
    let (mut now, mut scans) = (1_000, 0);
    machine.request(now);
    loop {
        if let Some((_, is_last)) = machine.take_portion(&world, now)? {
            if is_last {
                return Ok(scans);
            }
            machine.request(now);
        }
        if machine.advance(&world, now)? == Activity::Worked {
            continue;
        }
        let work: Vec<Work> = machine.work().collect();
        if work.is_empty() {
            now = machine.deadline();
        }
        for one in work {
            let Work::Scan { ticket, scan, .. } = one else { panic!("{one:?}") };
            assert_eq!(scan.range.is_some(), by_index);
            scans += 1;
            let failed = || Err(Error::new(failure, "it fails"));
            let answer = if scans == 1 { failed() } else { Ok(Scanned::default()) };
            machine.handle(Event::Scanned { ticket, answer }, now)?;
        }
    }
}

/// A brick that has just begun to serve a node may not know an index yet. No other error passes by itself, unless a brick is away.
#[test]
fn scan_is_repeated_if_its_brick_is_away_or_does_not_know_the_index_yet() {
    for (by_index, failure, is_repeated) in [
        (true, ErrorKind::Unavailable, true),
        (true, ErrorKind::NotFound, true),
        (true, ErrorKind::Corrupt, false),
        (false, ErrorKind::Unavailable, true),
        (false, ErrorKind::NotFound, false),
        (false, ErrorKind::Corrupt, false),
    ] {
        let answer = ask_after_failure(by_index, failure).map_err(|error| error.kind());
        assert_eq!(answer, if is_repeated { Ok(2) } else { Err(failure) }, "{by_index}: {failure:?}");
    }
}

/// The peer server hears of a class later than bricks do. The query asks for the classes every now and then meanwhile.
#[test]
fn query_asks_for_newer_classes_soon_until_they_are_known() {
    let mut world = World::new(3, 2);
    world.actual = schema(true);
    world.populate(9, STUDENT);
    let known = world.known.clone();
    let query = Query::parse_of("Person", "age >= 0").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, known.clone(), asked, ScanLimits::SMALL).unwrap();
    let (mut now, mut requested, mut rows) = (1_000, Vec::new(), 0);
    machine.request(now);
    loop {
        if let Some((portion, is_last)) = machine.take_portion(&world, now).unwrap() {
            rows += portion.oids.len();
            if is_last {
                break;
            }
            machine.request(now);
        }
        if machine.advance(&world, now).unwrap() == Activity::Worked {
            continue;
        }
        let work: Vec<Work> = machine.work().collect();
        if work.is_empty() {
            now = machine.deadline();
        }
        for one in work {
            let event = match one {
                Work::RefreshSchema => {
                    requested.push(now);
                    Event::Schema(Ok(if requested.len() < 4 { known.clone() } else { world.actual.clone() }))
                }
                other => world.event(other).unwrap(),
            };
            machine.handle(event, now).unwrap();
        }
    }
    assert_eq!(rows, world.objects.len());
    let pauses: Vec<Ms> = requested.windows(2).map(|times| times[1] - times[0]).collect();
    assert!(pauses.len() == 3 && pauses.iter().all(|pause| *pause <= SCHEMA_RETRY_MS), "{requested:?}");
    assert!(requested[3] - requested[0] >= 2 * SCHEMA_RETRY_MS, "{requested:?}");
}

#[test]
fn references_are_followed_within_the_space_only() {
    assert_noticed(&[Bug::QueryFollowsForeign], || {
        let mut world = World::new(3, 2);
        let (boss, foreign) = (oid(SPACE, 2, PERSON, 1), oid(SpaceId(2), 2, PERSON, 1));
        world.objects.insert(boss, person(PERSON, 55, None));
        world.objects.insert(foreign, person(PERSON, 55, None));
        let (one, other) = (oid(SPACE, 1, PERSON, 1), oid(SPACE, 1, PERSON, 2));
        world.objects.insert(one, person(PERSON, 20, Some(boss)));
        world.objects.insert(other, person(PERSON, 20, Some(foreign)));
        let answer = world.ask("boss.age > 50", BTreeMap::new()).unwrap();
        assert_eq!(answer.rows, BTreeMap::from([(one, 1)]));
        assert!(answer.reads.iter().any(|read| read.oid == boss), "the answer depends on the boss");
    });
}

#[test]
fn brick_that_hangs_is_named_and_given_up() {
    assert_noticed(&[Bug::QueryHangs, Bug::QueryHangUnnamed], || {
        let mut world = World::new(3, 2);
        world.populate(9, PERSON);
        world.hanging = Some(NodeId(2));
        let query = Query::parse_of("Person", "age >= 0").unwrap().encode().unwrap().into();
        let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
        let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
        let (mut now, mut open, mut waited_for) = (1_000, Vec::new(), BTreeSet::new());
        machine.request(now);
        let error = loop {
            if let Some((rows, _)) = machine.take_portion(&world, now).unwrap() {
                waited_for.extend(rows.waits_for);
                machine.request(now);
            }
            match machine.advance(&world, now) {
                Ok(Activity::Worked) => {}
                Ok(Activity::Waits) => now += 100,
                Err(error) => break error,
            }
            open.extend(machine.work());
            while let Some(event) = open.pop().and_then(|work| world.event(work)) {
                machine.handle(event, now).unwrap();
            }
            assert!(now < 60_000, "it waits for the brick without an end");
        };
        assert_eq!(waited_for, BTreeSet::from([NodeId(2)]));
        assert!(error.kind() == ErrorKind::Unavailable && error.message().contains("brick 2"), "{error}");
    });
}

#[test]
fn sorted_query_waits_for_its_turn_and_releases_it() {
    let mut world = World::new(5, 3);
    world.populate(12, PERSON);
    let query = Query::parse_of("Person", "order by age").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
    machine.request(1_000);
    assert_eq!(machine.advance(&world, 1_000).unwrap(), Activity::Waits);
    assert!(matches!(machine.work().collect::<Vec<_>>()[..], [Work::AcquireTurn]));
    let (rows, is_last) = machine.take_portion(&world, 3_000).unwrap().expect("the client hears that it is worked on");
    assert!(rows.rows.is_empty() && rows.waits_for.is_empty() && !is_last);
    machine.handle(Event::Turn, 3_000).unwrap();
    machine.request(3_000);
    let (mut has_released, mut steps) = (false, 0);
    for _ in 0..MAX_INPUTS {
        if let Some((_, true)) = machine.take_portion(&world, 3_000).unwrap() {
            has_released = machine.work().any(|work| matches!(work, Work::ReleaseTurn));
            break;
        }
        machine.advance(&world, 3_000).unwrap();
        let open: Vec<Work> = machine.work().collect();
        steps += open.iter().filter(|work| matches!(work, Work::Step(_))).count();
        for event in open.into_iter().filter_map(|work| world.event(work)).collect::<Vec<_>>() {
            machine.handle(event, 3_000).unwrap();
        }
    }
    assert!(has_released);
    assert!((1..=2).contains(&steps), "few objects are examined on the calling thread, and sorted on another one");
}

/// A sorted query that has its turn.
fn sorted_query(world: &World) -> QueryMachine {
    let query = Query::parse_of("Person", "order by age").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
    machine.request(1_000);
    machine.advance(world, 1_000).unwrap();
    assert!(matches!(machine.work().collect::<Vec<_>>()[..], [Work::AcquireTurn]));
    machine.handle(Event::Turn, 1_000).unwrap();
    machine
}

#[test]
fn sorted_query_keeps_its_turn_until_it_has_sorted_all_rows() {
    let mut world = World::new(5, 3);
    world.populate(12, PERSON);
    let mut machine = sorted_query(&world);
    let late = 1_000 + PROGRESS_INTERVAL_MS;
    let (rows, is_last) = machine.take_portion(&world, late).unwrap().expect("it is late");
    assert!(rows.rows.is_empty() && !is_last);
    assert!(!machine.work().any(|work| matches!(work, Work::ReleaseTurn)));
}

#[test]
fn answer_has_a_bounded_number_of_bytes() {
    let mut world = World::new(3, 1);
    for slot in 1..=5 {
        let mut record = RecordBuilder::new();
        record.set_value(FieldNumber(1), &Value::Int64(20)).unwrap();
        record.set_value(FieldNumber(3), &Value::String("x".repeat(PORTION_BYTES / 2))).unwrap();
        world.objects.insert(oid(SPACE, 1, PERSON, slot), Object::record(PERSON, record.build().unwrap()));
    }
    let (mut machine, mut portions) = (sorted_query(&world), Vec::new());
    for _ in 0..MAX_INPUTS {
        if let Some((rows, is_last)) = machine.take_portion(&world, 1_000).unwrap() {
            portions.push(rows.rows.len());
            if is_last {
                break;
            }
            machine.request(1_000);
        }
        machine.advance(&world, 1_000).unwrap();
        for work in machine.work().collect::<Vec<_>>() {
            world.event(work).into_iter().for_each(|event| machine.handle(event, 1_000).unwrap());
        }
    }
    assert_eq!(portions, [2, 2, 1]);
}

#[test]
fn many_objects_of_the_transaction_are_examined_on_another_thread() {
    let world = World::new(3, 2);
    let has_step = |count: usize| {
        let own = |slot: usize| (oid(SPACE, 1, PERSON, slot as u16), Some(person(PERSON, 20, None)));
        let query = Query::parse_of("Person", "age >= 0").unwrap().encode().unwrap().into();
        let own_writes = (1..=count).map(own).collect();
        let asked = cluster::QueryRequest { query, own_writes, ..cluster::QueryRequest::default() };
        let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
        machine.request(1_000);
        machine.advance(&world, 1_000).unwrap();
        machine.work().any(|work| matches!(work, Work::Step(_)))
    };
    assert!(!has_step(MAX_INLINE) && has_step(MAX_INLINE + 1));
}

#[test]
fn silent_brick_is_not_named_before_it_was_asked() {
    let mut world = World::new(3, 2);
    world.populate(9, PERSON);
    world.hanging = Some(NodeId(2));
    let query = Query::parse_of("Person", "age >= 0").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
    machine.request(1_000);
    let late = 1_000 + PROGRESS_INTERVAL_MS;
    let (rows, is_last) = machine.take_portion(&world, late).unwrap().expect("it is late");
    assert!(rows.waits_for.is_empty() && !is_last);
    // Nor right after that.
    machine.advance(&world, late).unwrap();
    assert!(machine.work().any(|work| matches!(work, Work::Scan { .. })));
    let (rows, is_last) = machine.take_portion(&world, late).unwrap().expect("it is late");
    assert!(rows.waits_for.is_empty() && !is_last);
}

#[test]
fn few_logical_nodes_are_asked_at_a_time() {
    let world = World::new(3, 5);
    let query = Query::parse_of("Person", "age >= 0").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
    machine.request(1_000);
    while machine.advance(&world, 1_000).unwrap() == Activity::Worked {}
    let asked = machine.work().filter(|work| matches!(work, Work::Scan { .. })).count();
    assert_eq!(asked, ScanLimits::SMALL.in_flight);
}

/// The error of a query whose classes change at the bricks after its first rows.
fn error_of_classes_after_first_rows(report_reads: bool) -> ErrorKind {
    let mut world = World::new(3, 3);
    for node in 1..=3 {
        world.objects.insert(oid(SPACE, node, PERSON, 1), person(PERSON, 20, None));
    }
    let query = Query::parse_of("Person", "age >= 0").unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, report_reads, ..cluster::QueryRequest::default() };
    let mut machine = QueryMachine::new(&world.space, world.known.clone(), asked, ScanLimits::SMALL).unwrap();
    let (now, mut open) = (1_000, Vec::new());
    machine.request(now);
    for _ in 0..MAX_INPUTS {
        if let Some((rows, is_last)) = machine.take_portion(&world, now).unwrap() {
            assert!(!rows.rows.is_empty() && !is_last);
            world.actual = schema(true);
            machine.request(now);
        }
        match machine.advance(&world, now) {
            Ok(Activity::Worked) => continue,
            Ok(Activity::Waits) => open.extend(machine.work()),
            Err(error) => return error.kind(),
        }
        if let Some(event) = open.pop().and_then(|work| world.event(work)) {
            machine.handle(event, now).unwrap();
        }
    }
    panic!("the query does not end")
}

#[test]
fn classes_added_after_the_first_rows_end_a_query_and_are_a_conflict_in_a_transaction() {
    assert_eq!(error_of_classes_after_first_rows(true), ErrorKind::Conflict);
    assert_eq!(error_of_classes_after_first_rows(false), ErrorKind::Unavailable);
}

#[test]
fn read_set_is_as_of_its_latest_read() {
    let mut reads = ReadSet::new(true);
    for time in [3, 7, 5] {
        reads.add([], HlcTimestamp::at(time)).unwrap();
    }
    assert_eq!(reads.take_unsent(), (Vec::new(), HlcTimestamp::at(7)));
}

#[test]
fn long_work_is_done_by_another_thread_step_by_step() {
    let world = World::new(1, 1);
    let text = "x".repeat(1 << 20);
    let mut record = RecordBuilder::new();
    record.set_value(FieldNumber(3), &Value::String(text)).unwrap();
    let own = Object::record(PERSON, record.build().unwrap());
    let own_writes = (1..=20).map(|slot| (oid(SPACE, 1, PERSON, slot), Some(own.clone()))).collect();
    let tests: Vec<String> = (0..40).map(|n| format!("name.lower() == 'a{n}'")).collect();
    let query = Query::parse_of("Person", &format!("!({})", tests.join(" || "))).unwrap().encode().unwrap().into();
    let asked = cluster::QueryRequest { query, own_writes, ..cluster::QueryRequest::default() };
    let person = Class::new(PERSON, "Person").field(3, "name", Type::String);
    let schema = Arc::new(QuerySchema { classes: Schema::new([person]).unwrap(), indexes: Vec::new() });
    let mut machine = QueryMachine::new(&world.space, schema, asked, ScanLimits::SMALL).unwrap();
    machine.request(0);
    let mut run = loop {
        assert_eq!(machine.take_portion(&world, 0).unwrap(), None, "nothing is found on the calling thread");
        machine.advance(&world, 0).unwrap();
        if let Some(Work::Step(run)) = machine.work().find(|work| matches!(work, Work::Step(_))) {
            break run;
        }
    };
    let mut steps = 1;
    loop {
        let progress = run.step();
        machine.handle(Event::Stepped(Some((run, progress))), 0).unwrap();
        machine.advance(&world, 0).unwrap();
        while machine.take_portion(&world, 0).unwrap().is_some() {}
        machine.advance(&world, 0).unwrap();
        let Some(Work::Step(next)) = machine.work().find(|work| matches!(work, Work::Step(_))) else { break };
        (run, steps) = (next, steps + 1);
    }
    assert!(steps > 2, "{steps} steps");
}
