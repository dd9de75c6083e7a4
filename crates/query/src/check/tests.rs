use model::ErrorKind;

use super::*;
use crate::Class;

fn schema() -> Schema {
    let person = Class::new(ClassId(1), "Person")
        .field(0, "name", Type::String)
        .field(1, "age", Type::Int64)
        .field(2, "height", Type::Float64)
        .field(3, "boss", Type::Reference(Some(ClassId(1))))
        .field(4, "friends", Type::set(Type::Reference(Some(ClassId(1)))))
        .field(5, "born", Type::Date)
        .field(6, "tags", Type::list(Type::String))
        .field(7, "married", Type::Bool)
        .field(8, "thing", Type::Reference(None))
        .field(9, "scores", Type::map(Type::String, Type::Decimal));
    let employee = Class::new(ClassId(2), "Employee").extends(ClassId(1)).field_with_default(
        10,
        "pay",
        Type::Decimal,
        model::Decimal::from(7),
    );
    Schema::new([person, employee]).unwrap()
}

fn cond(text: &str) -> Cond {
    let query = Query::parse(&format!("from Employee where {text}")).unwrap();
    query.check(&schema()).unwrap_or_else(|error| panic!("{error}")).condition.unwrap_or(Cond::Constant(true))
}

fn explain(text: &str) -> String {
    cond(text).to_string()
}

#[test]
fn valid_conditions_are_resolved() {
    let cases = [
        ("age > 3", "age > 3"),
        ("married", "married == true"),
        ("!married && true", "!(married == true) && true"),
        ("boss == null", "boss == null"),
        ("null != boss.name", "boss.name != null"),
        ("age > 1 + 2 * 3", "age > 7"),
        ("height == 0.1", "height == 0.1"),
        ("height * 2 > pay", "(height * 2) > pay"),
        ("born > '2000-01-01'", "born > 2000-01-01"),
        ("age in [3, 1, null, 2]", "age in [1, 2, 3]"),
        ("age in [3, boss.age]", "age in [3, boss.age]"),
        ("\"2000-01-01\" in [born]", "2000-01-01 == born"),
        ("\"x\" in tags", "\"x\" in tags"),
        ("scores.contains(\"x\")", "\"x\" in scores"),
        ("name.contains(\"x\")", "name.contains(\"x\")"),
        ("friends.any(f => f.boss.age > age)", "friends.any(f.boss.age > age)"),
        ("friends.any(f => f.friends.any(g => g == f))", "friends.any(f.friends.any(g == f))"),
        ("this in friends", "this in friends"),
        ("name.lower().length() > 3", "name.lower().length() > 3"),
        ("null == null", "true"),
        ("3 == null", "false"),
    ];
    for (text, expected) in cases {
        assert_eq!(explain(text), expected, "{text}");
    }
}

#[test]
pub(crate) fn literals_take_the_type_of_the_other_side() {
    let Cond::Compare(_, _, number) = cond("height == 0.1") else { panic!() };
    assert_eq!(number, Term::literal(0.1));
    let Cond::Compare(_, _, number) = cond("height == -(0.1)") else { panic!() };
    assert_eq!(number, Term::literal(-0.1));
    let Cond::Compare(_, _, date) = cond("born == '1970-01-02'") else { panic!() };
    assert_eq!(date, Term::literal(model::Date { days: 1 }));
    let Cond::Compare(_, _, number) = cond("pay == 0.1") else { panic!() };
    assert!(matches!(number.as_literal(), Some(Value::Decimal(_))));
}

#[test]
fn paths_contain_defaults_and_families() {
    let Cond::Compare(_, Term::Path(path), _) = cond("boss.age == 1") else { panic!() };
    assert_eq!(*path.steps[0].classes, BTreeSet::from([ClassId(2)]));
    assert_eq!(*path.steps[1].classes, BTreeSet::from([ClassId(1), ClassId(2)]));
    let Cond::Compare(_, Term::Path(path), _) = cond("pay == 1") else { panic!() };
    assert_eq!(path.steps[0].default.as_deref(), Some(&Value::Decimal(7.into())));
}

#[test]
fn parameters_are_values_of_their_own_type() {
    let check = |text: &str, value: Value| Query::parse(text).unwrap().with("p", value).check(&schema());
    let condition = |text: &str, value: Value| check(text, value).unwrap().condition.unwrap().to_string();
    assert_eq!(condition("from Person where age == :p", Value::Null), "age == null");
    assert_eq!(condition("from Person where age in :p", Value::List(vec![2.into(), 1.into()])), "age in [1, 2]");
    let error = check("from Person where age in :p", Value::List(vec!["x".into()])).unwrap_err();
    assert!(error.message().contains("an int64 cannot equal a string"), "{error}");
    let error = check("from Person where born > :p", "2000-01-01".into()).unwrap_err();
    assert!(error.message().contains("a date cannot be compared with a string"), "{error}");
    let error = Query::parse("from Person where age == :p").unwrap().check(&schema()).unwrap_err();
    assert!(error.message().contains("the parameter :p has no value"), "{error}");
}

#[test]
fn invalid_parts_are_shown_with_their_place() {
    let cases = [
        ("from Person where agee > 3", "Person has no field agee; it has name, age", "agee"),
        ("from Person where pay > 3", "Employee has, which extends it", "pay"),
        ("from Person where boss.name.x == 3", "boss.name is a string, which has no fields", "boss.name.x"),
        ("from Person where thing.x == 3", "thing may be an object of any class", "thing.x"),
        ("from Person where age == \"3\"", "an int64 cannot be compared with a string", "age == \"3\""),
        ("from Person where tags == null && friends == tags", "a set<ref<Person>> cannot", "friends == tags"),
        ("from Person where age", "an int64 is found where a condition", "age"),
        ("from Person where age + 1", "a value is found where a condition", "age + 1"),
        ("from Person where age < null", "null has no order", "age < null"),
        ("from Person where name + 1 == 2", "a string is not a number", "name"),
        ("from Person where age / 0 > 1 && 1 / 0 > age", "1 is divided by zero", "1 / 0"),
        ("from Person where age.lower() == \"x\"", "an int64 is not a text", "age"),
        ("from Person where name.lower(3) == \"x\"", "lower takes no argument", "name.lower(3)"),
        ("from Person where age in [1, \"x\"]", "an int64 cannot equal a string", "\"x\""),
        ("from Person where 3 in tags", "an int64 cannot equal a string", "tags.contains(3)"),
        ("from Person where age in age", "an int64 has no elements", "age"),
        ("from Person where age.any(x => x == 1)", "an int64 has no elements", "age"),
        ("from Person where born > \"soon\"", "not a date", "\"soon\""),
        ("from Person where (age > 3) == true", "a condition is found where a value should be", "(age > 3)"),
        ("from Person where count(*) > 3", "count is an aggregate", "count(*)"),
        ("from Person order by tags", "a list<string> cannot be ordered by", "tags"),
        ("select name, count(*) from Person", "can differ within a group", "name"),
        ("select sum(name) from Person", "a string is not a number", "name"),
        ("from Person group by age", "select columns for the groups", "age"),
        ("from Person order by count(*)", "select columns for the groups", "count(*)"),
        ("select max(tags) from Person", "cannot have a max", "tags"),
    ];
    for (text, message, place) in cases {
        let query = Query::parse(text).unwrap();
        let error = query.check(&schema()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let (shown, error) = (query.to_string(), error.to_string());
        let mut lines = error.lines();
        assert!(lines.next().unwrap().contains(message), "{error}");
        assert!(lines.next().unwrap().contains(place), "{error}");
        let carets = lines.next().unwrap();
        let at = carets.find('^').unwrap() - 2;
        // The window may be cut on the left of long queries; none of these is that long.
        assert_eq!(&shown[at..at + carets.trim().len()], place, "{error}");
    }
    assert_eq!(Query::of("Unknown").check(&schema()).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn columns_have_names_and_types() {
    let text = "select boss.name, avg(age) as mean, avg(pay), count(*), sum(height), min(born) from Employee \
                group by boss.name order by max(age) desc, boss.name limit 3";
    let checked = Query::parse(text).unwrap().check(&schema()).unwrap();
    let columns: Vec<(&str, &Type)> =
        checked.columns().iter().map(|column| (column.name.as_str(), column.ty.as_ref().unwrap())).collect();
    let expected = [
        ("boss.name", &Type::String),
        ("mean", &Type::Float64),
        ("avg(pay)", &Type::Decimal),
        ("count(*)", &Type::Int64),
        ("sum(height)", &Type::Float64),
        ("min(born)", &Type::Date),
    ];
    assert_eq!(columns, expected);
    let Output::Groups(groups) = &checked.output else { panic!() };
    assert_eq!((groups.keys.len(), groups.aggregates.len(), groups.columns.len()), (1, 6, 6));
}

#[test]
pub(crate) fn only_a_class_or_its_family_is_asked_for() {
    let classes = |text: &str| Query::parse(text).unwrap().check(&schema()).unwrap().classes().clone();
    assert_eq!(classes("from Person"), BTreeSet::from([ClassId(1), ClassId(2)]));
    assert_eq!(classes("from only Person"), BTreeSet::from([ClassId(1)]));
}

#[test]
fn query_of_any_depth_is_refused_without_a_stack_overflow() {
    let deep = (0..5000).fold(Expr::path("married"), |inner, _| inner.negate());
    assert_eq!(Query::of("Person").filter(deep).check(&schema()).unwrap_err().kind(), ErrorKind::TooLarge);
}
