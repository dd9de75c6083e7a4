use model::{Comparison, Filter};

use super::*;
use crate::{Class, Query, Type, limits};

const AGE: FieldNumber = FieldNumber(1);

fn schema() -> Schema {
    let person = Class::new(ClassId(1), "Person")
        .field(0, "name", Type::String)
        .field(1, "age", Type::Int64)
        .field(2, "boss", Type::Reference(Some(ClassId(1))))
        .field(3, "friends", Type::set(Type::Reference(Some(ClassId(1)))))
        .field_with_default(4, "size", Type::Int64, 7)
        .field(5, "home", Type::String);
    let employee = Class::new(ClassId(2), "Employee").extends(ClassId(1));
    Schema::new([person, employee]).unwrap()
}

fn plan_with(text: &str, indexes: &[Index]) -> Plan {
    let checked = Query::parse(text).unwrap().check(&schema()).unwrap_or_else(|error| panic!("{error}"));
    checked.plan(&schema(), indexes)
}

fn plan(condition: &str) -> Plan {
    plan_with(&format!("from Person where {condition}"), &[])
}

fn index(id: u32, name: &str, fields: &[u32]) -> Index {
    let fields = fields.iter().copied().map(FieldNumber).collect();
    Index { id, name: name.into(), class: ClassId(1), fields, unique: false, ready: true }
}

/// The filter, if it is one test.
fn push_down(condition: &str) -> (Filter, bool) {
    let plan = plan(condition);
    let Filter::And(mut filters) = plan.filter().clone() else { panic!() };
    let filter = if filters.len() == 1 { filters.remove(0) } else { Filter::And(filters) };
    (filter, plan.is_decided_by_bricks())
}

#[test]
fn simple_tests_are_decided_by_bricks() {
    let older = Filter::compare(AGE, Comparison::Greater, 3);
    let cases = [
        ("age > 3", older.clone()),
        ("3 < age", older.clone()),
        ("!(age > 3)", older.clone().negate()),
        ("age == null", Filter::IsNull(AGE)),
        ("age in [1, 2]", Filter::one_of(AGE, [1, 2])),
        ("name.startsWith(\"a\")", Filter::StartsWith(FieldNumber(0), "a".into())),
        ("name.contains(\"a\")", Filter::ContainsText(FieldNumber(0), "a".into())),
        ("age > 3 || age == null", Filter::Or(vec![older, Filter::IsNull(AGE)])),
        ("size > 7", Filter::compare(FieldNumber(4), Comparison::Greater, 7)),
    ];
    for (condition, filter) in cases {
        assert_eq!(push_down(condition), (filter, true), "{condition}");
    }
}

#[test]
fn bricks_filter_nulls_for_the_rest_of_the_condition() {
    let some = |field| Filter::IsNull(FieldNumber(field)).negate();
    let cases = [
        ("boss.name == \"a\"", some(2)),
        ("boss.age < age", Filter::And(vec![some(2), some(1)])),
        ("age + 1 > 3", some(1)),
        ("friends.any(f => f.age == 3)", some(3)),
        ("name.endsWith(\"a\")", Filter::ContainsText(FieldNumber(0), "a".into())),
        ("boss.name == \"a\" || age == 3", Filter::Or(vec![some(2), Filter::compare(AGE, Comparison::Equal, 3)])),
        ("!(boss.name == \"a\")", Filter::And(vec![])),
        ("boss.name == null", Filter::And(vec![])),
    ];
    for (condition, filter) in cases {
        assert_eq!(push_down(condition), (filter, false), "{condition}");
    }
}

#[test]
pub(crate) fn records_that_lack_a_field_are_let_through_if_its_default_passes() {
    let size = FieldNumber(4);
    let test = Filter::compare(size, Comparison::GreaterOrEqual, 7);
    let either = Filter::Or(vec![test.clone(), Filter::IsNull(size)]);
    assert_eq!(push_down("size >= 7"), (either, false));
    assert_eq!(push_down("!(size >= 7)"), (test.negate(), false));
    assert_eq!(push_down("size != null"), (Filter::And(vec![]), false));
    assert_eq!(push_down("size == null"), (Filter::IsNull(size), false));
}

#[test]
fn a_conjunction_is_split() {
    let plan = plan("age > 3 && boss.name == \"a\" && (home == \"b\" && 1 == 1)");
    assert_eq!(plan.residual.as_ref().unwrap().to_string(), "boss.name == \"a\"");
    let Filter::And(filters) = plan.filter() else { panic!() };
    assert_eq!(filters.len(), 3);
    assert!(matches!(self::plan("age > 3 && 1 == 2").source(), CandidateSource::Nothing));
}

#[test]
fn a_filter_is_never_too_large() {
    let text = "x".repeat(limits::QUERY / 2);
    let condition = vec!["name != :p"; 100].join(" && ");
    let query = Query::parse(&format!("from Person where {condition} && age > 3")).unwrap().with("p", text);
    let plan = query.check(&schema()).unwrap().plan(&schema(), &[]);
    assert!(plan.encode_filter().is_ok());
    assert!(!plan.is_decided_by_bricks());
    let Filter::And(filters) = plan.filter() else { panic!() };
    assert!(filters.contains(&Filter::compare(AGE, Comparison::Greater, 3)));
}

#[test]
pub(crate) fn the_index_that_says_most_is_taken() {
    let indexes =
        [index(1, "age", &[1]), index(2, "home, age", &[5, 1]), index(3, "name", &[0]), index(4, "size", &[4])];
    let chosen = |condition: &str| match plan_with(&format!("from Employee where {condition}"), &indexes).source() {
        CandidateSource::Index(index) => (index.name.clone(), index.ranges.len()),
        CandidateSource::Extent => ("extent".into(), 0),
        CandidateSource::Nothing => ("nothing".into(), 0),
    };
    let cases = [
        ("age == 3", "age", 1),
        ("age > 3 && age < 5", "age", 1),
        ("age == 3 && home == \"b\"", "home, age", 1),
        ("age > 3 && home == \"b\"", "home, age", 1),
        ("age > 3 && name == \"b\"", "name", 1),
        ("age in [1, 3, 5]", "age", 3),
        ("name.startsWith(\"b\")", "name", 1),
        ("age == null", "age", 1),
        ("age > 5 && age < 3", "nothing", 0),
        ("age != 3", "extent", 0),
        ("age != null", "extent", 0),
        ("age > 3 || name == \"b\"", "extent", 0),
        ("boss.age == 3", "extent", 0),
        ("size == 8", "size", 1),
        // With those that lack it.
        ("size == 7", "size", 2),
    ];
    for (condition, name, ranges) in cases {
        assert_eq!(chosen(condition), (name.to_owned(), ranges), "{condition}");
    }
}

#[test]
pub(crate) fn an_index_must_be_ready_and_have_all_objects_of_the_class() {
    let of = |class: &str, index: Index| {
        matches!(plan_with(&format!("from {class} where age == 3"), &[index]).source(), CandidateSource::Index(_))
    };
    assert!(of("Person", index(1, "i", &[1])));
    assert!(!of("Person", Index { ready: false, ..index(1, "i", &[1]) }));
    assert!(!of("Person", Index { class: ClassId(2), ..index(1, "i", &[1]) }));
    assert!(of("Employee", Index { class: ClassId(2), ..index(1, "i", &[1]) }));
    assert!(!of("Person", index(1, "i", &[])));
}

#[test]
fn an_index_gives_the_order_of_a_few() {
    let indexes = [index(1, "age, name", &[1, 0]), index(2, "size", &[4])];
    let order = |rest: &str| match plan_with(&format!("from Person {rest}"), &indexes).source() {
        CandidateSource::Index(index) if index.ordered => Some(index.reverse),
        _ => None,
    };
    assert_eq!(order("order by age limit 10"), Some(false));
    assert_eq!(order("order by age desc, home limit 10"), Some(true));
    assert_eq!(order("where age == 3 order by name limit 10"), Some(false));
    assert_eq!(order("where age == 3 order by age, name desc limit 10"), Some(true));
    assert_eq!(order("where age > 3 order by age limit 1000000"), Some(false));
    for none in [
        "order by age",
        "order by name limit 10",
        "order by age nulls last limit 10",
        "order by age limit 1000000",
        "order by size limit 10",
        "order by age + 1 limit 10",
        "where age == 3 order by home limit 10",
    ] {
        assert_eq!(order(none), None, "{none}");
    }
}

#[test]
pub(crate) fn limit_without_an_order_bounds_the_candidates() {
    let enough = |text: &str| plan_with(text, &[]).candidate_limit();
    assert_eq!(enough("from Person where age > 3 skip 2 limit 3"), Some(5));
    assert_eq!(enough("from Person where age > 3"), None);
    assert_eq!(enough("from Person where boss.age > 3 limit 3"), None);
    assert_eq!(enough("from Person order by age limit 3"), None);
    assert_eq!(enough("select count(*) from Person limit 3"), None);
    let counts = |text: &str| plan_with(text, &[]).counts_only();
    assert!(counts("select count(*) from Person where age > 3"));
    assert!(!counts("select count(age) from Person"));
    assert!(!counts("select count(*) from Person where boss.age > 3"));
    assert!(!counts("select age, count(*) from Person group by age"));
}

#[test]
fn a_plan_is_shown_as_text_and_json() {
    let indexes = [index(1, "by age", &[1])];
    let text =
        "select name from Person where age > 3 && boss.name == \"x\" && home != null order by name desc limit 10";
    let counts = Counts { scanned: Some(90), sent: Some(80), navigated: Some(7), matched: Some(20), rows: Some(10) };
    let step = plan_with(text, &indexes).explain(&counts);
    let expected = "\
page [peer]: at most 10  (10)
└ sort [peer]: name desc; the first 10
  └ columns [peer]: name
    └ filter [peer]: boss.name == \"x\"  (20)
      └ filter [brick]: age > 3 && home != null && the part of the rest that needs no references  (80)
        └ index range [brick]: by age: age > 3; of Person and a class that extends it  (90)
      └ navigate [peer]: boss.name  (7)
";
    assert_eq!(step.to_string(), expected);
    let json = step.to_json();
    assert_eq!(json["step"], "page");
    assert_eq!(json["objects"], 10);
    assert_eq!(json["inputs"][0]["inputs"][0]["inputs"][0]["inputs"][1]["what"], "boss.name");
    let text = "select home, max(age) from only Person group by home order by max(age) desc skip 3";
    let expected = "\
page [peer]: all behind the first 3
└ sort [peer]: max(age) desc
  └ group [peer]: home, max(age) by home
    └ extent scan [brick]: Person
";
    assert_eq!(plan_with(text, &[]).explain(&Counts::default()).to_string(), expected);
}
