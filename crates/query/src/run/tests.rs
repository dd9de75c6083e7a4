use super::*;
use crate::check::CheckedQuery;
use crate::world::{Person, World, oid};
use crate::{Index, Query};

mod naive;

/// Runs a plan as bricks and a peer server would; `parts` is how many streams there are.
fn run(world: &World, plan: &Arc<Plan>, parts: u32) -> Result<(Vec<Row>, Counts)> {
    let mut run = QueryRun::new(Arc::clone(plan));
    let mut rows = Vec::new();
    let mut streams: Vec<VecDeque<(Oid, Bytes)>> = (0..parts).map(|part| world.candidates(plan, part, parts)).collect();
    if plan.counts_only() {
        run.offer_count(streams.iter().map(|stream| stream.len() as u64).sum());
        streams.clear();
    }
    loop {
        match run.step()? {
            Progress::Enough => break,
            Progress::Need(oids) => {
                assert!(!oids.is_empty() && oids.len() <= limits::NEEDED);
                // Not all at once.
                for oid in oids.into_iter().take(3) {
                    run.supply(oid, world.objects.get(&oid).cloned());
                }
            }
            Progress::More => {
                let mut more = false;
                for (stream, candidates) in streams.iter_mut().enumerate() {
                    if run.is_done(stream as u32) {
                        candidates.clear();
                    }
                    for (oid, record) in candidates.drain(..candidates.len().min(2)) {
                        run.offer(stream as u32, oid, record);
                        more = true;
                    }
                }
                if !more {
                    run.end();
                }
            }
            Progress::Again => {}
        }
        rows.extend(run.take());
    }
    rows.extend(run.take());
    Ok((rows, run.counts()))
}

fn check_query(world: &World, text: &str) -> CheckedQuery {
    Query::parse(text).unwrap().check(&world.schema).unwrap_or_else(|error| panic!("{error}"))
}

fn rows(world: &World, text: &str) -> Vec<Row> {
    run(world, &Arc::new(check_query(world, text).plan(&world.schema, &[])), 1).unwrap().0
}

fn values(world: &World, text: &str) -> Vec<Vec<Value>> {
    let values = |row| match row {
        Row::Values(values) => values,
        Row::Object(..) => panic!("an object"),
    };
    rows(world, text).into_iter().map(values).collect()
}

fn people() -> World {
    World::people(&[
        ("Ann", Some(30), None, &[2, 3]),
        ("Bob", Some(20), Some(1), &[]),
        ("Cid", None, Some(2), &[1, 9]),
        ("Dan", Some(40), Some(9), &[2]),
    ])
}

#[test]
pub(crate) fn paths_follow_references_and_are_null_at_missing_objects() {
    let world = people();
    let names = |text: &str| -> Vec<Value> {
        values(&world, &format!("select name from Person where {text} order by name")).into_iter().flatten().collect()
    };
    assert_eq!(names("boss.name == 'Ann'"), ["Bob".into()]);
    assert_eq!(names("boss.boss.name == 'Ann'"), ["Cid".into()]);
    // Dan's boss does not exist any more.
    assert_eq!(names("boss.name == null"), ["Ann".into(), "Dan".into()]);
    assert_eq!(names("boss != null && boss.name == null"), ["Dan".into()]);
    assert_eq!(names("friends.any(f => f.age < 30)"), ["Ann".into(), "Dan".into()]);
    assert_eq!(names("boss in friends"), ["Cid".into()].as_slice()[..0].to_vec());
    assert_eq!(names("friends.length() == 2"), ["Ann".into(), "Cid".into()]);
}

#[test]
pub(crate) fn nulls_count_as_the_decision_says() {
    let world = people();
    let count = |text: &str| values(&world, &format!("select count(*) from Person where {text}"))[0][0].clone();
    assert_eq!(count("age != 30"), 2.into());
    assert_eq!(count("!(age == 30)"), 3.into());
    assert_eq!(count("age + 1 > 0"), 3.into());
    assert_eq!(count("!(age > 0)"), 1.into());
    assert_eq!(count("age in [null, 30]"), 1.into());
    assert_eq!(count("age == boss.age"), 0.into());
}

#[test]
pub(crate) fn aggregates_leave_nulls_out() {
    let world = people();
    let text = "select count(*), count(age), sum(age), min(age), max(name), avg(age) from Person";
    let expected = vec![4.into(), 3.into(), 90.into(), 20.into(), "Dan".into(), 30.0.into()];
    assert_eq!(values(&world, text), [expected]);
    let of_none = vec![0.into(), 0.into(), Value::Null, Value::Null, Value::Null, Value::Null];
    assert_eq!(values(&world, &format!("{text} where name == 'Eve'")), [of_none]);
    let grouped = "select boss == null, count(*) from Person group by boss";
    assert!(Query::parse(grouped).unwrap().check(&world.schema).is_err());
    let grouped = "select name.length(), sum(age) from Person group by name.length() order by sum(age) desc";
    assert_eq!(values(&world, grouped), [vec![3.into(), 90.into()]]);
    assert_eq!(values(&world, "select age from Person where age > 100 group by age"), Vec::<Vec<Value>>::new());
}

#[test]
fn sums_are_exact_or_an_error() {
    let world = World::people(&[("a", Some(i64::MAX), None, &[]), ("b", Some(1), None, &[])]);
    let plan = Arc::new(check_query(&world, "select sum(age) from Person").plan(&world.schema, &[]));
    let error = run(&world, &plan, 1).unwrap_err();
    assert!(error.message().contains("9223372036854775808 does not fit"), "{error}");
    let decimal = Value::Decimal("9223372036854775808.0".parse().unwrap());
    assert_eq!(values(&world, "select sum(age * 1.0) from Person"), [vec![decimal]]);
}

#[test]
pub(crate) fn order_and_page() {
    let world = people();
    let names = |text: &str| -> Vec<Value> {
        values(&world, &format!("select name from Person order by {text}")).into_iter().flatten().collect()
    };
    assert_eq!(names("age"), ["Cid".into(), "Bob".into(), "Ann".into(), "Dan".into()]);
    assert_eq!(names("age desc"), ["Dan".into(), "Ann".into(), "Bob".into(), "Cid".into()]);
    assert_eq!(names("age nulls last"), ["Bob".into(), "Ann".into(), "Dan".into(), "Cid".into()]);
    assert_eq!(names("age desc nulls first skip 1 limit 2"), ["Dan".into(), "Ann".into()]);
    assert_eq!(names("boss.name desc nulls last, name desc"), ["Cid".into(), "Bob".into(), "Dan".into(), "Ann".into()]);
    assert_eq!(names("name limit 0"), Vec::<Value>::new());
}

#[test]
fn whole_objects_are_returned_as_stored() {
    let world = people();
    let expected = [Row::Object(oid(1, 1), world.objects[&oid(1, 1)].clone())];
    assert_eq!(rows(&world, "from Person where name == 'Ann'"), expected);
}

#[test]
fn failed_computations_are_errors_unless_guarded() {
    let world = people();
    let of = |text: &str| run(&world, &Arc::new(check_query(&world, text).plan(&world.schema, &[])), 1);
    let error = of("from Person where 1 / (age - 30) > 0").unwrap_err();
    assert!(error.message().contains("divided by zero"), "{error}");
    assert!(of("from Person where age != 30 && 1 / (age - 30) > 0").is_ok());
    assert!(of("from Person where age - 30 != 0 && 1 / (age - 30) > 0").is_ok());
}

#[test]
fn collections_within_each_other_are_bounded() {
    let many: Vec<u16> = (1..=300).collect();
    let mut world = World::people(&[]);
    world.add_person(1, "x", None, None, &many);
    let of = |depth: usize| {
        let inner =
            (0..depth).fold("1 == 2 || false".to_owned(), |inner, level| format!("friends.any(v{level} => {inner})"));
        let plan = check_query(&world, &format!("from Person where {inner}")).plan(&world.schema, &[]);
        run(&world, &Arc::new(plan), 1)
    };
    assert!(of(2).is_ok());
    assert_eq!(of(3).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn referenced_objects_are_requested_together() {
    let people: Vec<Person<'_>> = (0..200).map(|_| ("x", Some(1), Some(7), [].as_slice())).collect();
    let mut world = World::people(&people);
    let many: Vec<u16> = (1..=100).collect();
    world.add_person(500, "y", None, None, &many);
    let plan = check_query(&world, "from Person where boss.age == 1 || friends.any(f => f.boss.age == 1)");
    let mut run = QueryRun::new(Arc::new(plan.plan(&world.schema, &[])));
    for (oid, record) in &world.objects {
        run.offer(0, *oid, record.clone());
    }
    let Progress::Need(first) = run.step().unwrap() else { panic!() };
    // The shared boss, and the friends of one candidate.
    assert_eq!(first.len(), 100);
    for oid in first {
        run.supply(oid, world.objects.get(&oid).cloned());
    }
    assert_eq!(run.step().unwrap(), Progress::More);
    assert_eq!(run.take().len(), 201);
}

#[test]
fn ordered_index_is_read_only_as_far_as_needed() {
    let people: Vec<Person<'_>> = (0..100).map(|age| ("x", Some(age / 2), None, [].as_slice())).collect();
    let world = World::people(&people);
    let index = Index {
        id: 7,
        name: "by age".into(),
        class: model::ClassId(1),
        fields: vec![model::FieldNumber(1)],
        unique: false,
        ready: true,
    };
    for (order, oldest) in [("age", 1), ("age desc", 49)] {
        let text = format!("select age from Person order by {order}, name skip 2 limit 2");
        let plan = Arc::new(check_query(&world, &text).plan(&world.schema, std::slice::from_ref(&index)));
        let CandidateSource::Index(ranges) = plan.source() else { panic!("{}", plan.explain(&Counts::default())) };
        assert!(ranges.ordered && ranges.reverse == (oldest > 1));
        let (rows, counts) = run(&world, &plan, 1).unwrap();
        let expected = if oldest == 1 { [1, 1] } else { [48, 48] };
        assert_eq!(rows, expected.map(|age: i64| Row::Values(vec![age.into()])));
        assert!(counts.sent.unwrap() < 10, "{counts:?}");
    }
}

#[test]
fn only_the_fields_of_the_order_can_end_the_scan() {
    let names = ["a", "b", "c", "d"];
    let people: Vec<Person<'_>> = names.iter().map(|name| (*name, Some(1), None, [].as_slice())).collect();
    let world = World::people(&people);
    let fields = vec![model::FieldNumber(1), model::FieldNumber(0)];
    let index = Index { id: 7, name: "age, name".into(), class: model::ClassId(1), fields, unique: false, ready: true };
    let text = "select name from Person order by age, name desc limit 1";
    let plan = Arc::new(check_query(&world, text).plan(&world.schema, &[index]));
    assert!(matches!(plan.source(), CandidateSource::Index(index) if index.ordered));
    assert_eq!(run(&world, &plan, 1).unwrap().0, [Row::Values(vec!["d".into()])]);
}

#[test]
fn changed_object_is_evaluated_without_bricks() {
    let world = people();
    let plan = check_query(&world, "from Person where age > 20 && boss.name == 'Ann'").plan(&world.schema, &[]);
    let find = |oid| world.objects.get(&oid).cloned().map(Some);
    let mut changed = people();
    changed.add_person(2, "Bob", Some(21), Some(1), &[]);
    let judged = |record: &Bytes| plan.matches(oid(1, 2), record, find).unwrap();
    assert_eq!(judged(&world.objects[&oid(1, 2)]), Some(false));
    assert_eq!(judged(&changed.objects[&oid(1, 2)]), Some(true));
    assert_eq!(plan.matches(oid(1, 2), &changed.objects[&oid(1, 2)], |_| None).unwrap(), None);
}

/// A run of a query that lowers a string of so many bytes `count` times for each of some people.
fn long_run(people: usize, count: usize, bytes: usize) -> QueryRun {
    let name = "x".repeat(bytes);
    let people: Vec<Person<'_>> = (0..people).map(|_| (name.as_str(), Some(1), None, [].as_slice())).collect();
    let world = World::people(&people);
    let tests: Vec<String> = (0..count).map(|n| format!("name.lower() == 'a{n}'")).collect();
    let text = format!("from Person where age == 1 && !({})", tests.join(" || "));
    let mut run = QueryRun::new(Arc::new(check_query(&world, &text).plan(&world.schema, &[])));
    for (oid, record) in &world.objects {
        run.offer(0, *oid, record.clone());
    }
    run
}

#[test]
fn a_step_ends_after_some_work_and_the_next_one_goes_on() {
    let mut run = long_run(30, 20, 1 << 20);
    let (mut steps, mut rows) = (1, 0);
    while run.step().unwrap() == Progress::Again {
        steps += 1;
        rows += run.take().len();
    }
    assert!(steps > 3, "{steps} steps");
    assert_eq!(rows + run.take().len(), 30);
}

#[test]
fn a_brief_step_gives_up_a_candidate_that_takes_longer() {
    let mut run = long_run(3, 20, 1 << 20);
    assert_eq!(run.step_briefly().unwrap(), Progress::Again);
    assert_eq!(run.step_briefly().unwrap(), Progress::Again);
    assert_eq!(run.take(), []);
    assert_eq!(run.step().unwrap(), Progress::More);
    assert_eq!(run.take().len(), 3);
    // Short work is done at once.
    let world = people();
    let plan = check_query(&world, "from Person where boss.name.lower() == 'ann'").plan(&world.schema, &[]);
    let mut run = QueryRun::new(Arc::new(plan));
    for (oid, record) in &world.objects {
        run.offer(0, *oid, record.clone());
        run.supply(*oid, Some(record.clone()));
    }
    run.supply(oid(1, 9), None);
    assert_eq!(run.step_briefly().unwrap(), Progress::More);
}

#[test]
fn work_for_one_object_is_limited() {
    let error = long_run(1, 1000, 4 << 20).step().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("too much time"), "{error}");
}
