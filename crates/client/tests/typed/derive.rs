//! Tests of the derived code.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use client::persistent::{Classes, FieldType, Layout};
use client::{Persistent, Ref};
use model::{ClassId, Date, Decimal, ErrorKind, FieldNumber, Oid, RecordRef, Timestamp, Value};
use query::{Class, Schema, Type};

#[derive(Persistent, Clone, Debug, Default, PartialEq)]
#[persistent(crate = "client", class = "com.example.Person", unique(name, born))]
struct Person {
    #[persistent(index)]
    name: String,
    #[persistent(rename = "birth")]
    born: Option<Date>,
    #[persistent(default = 7)]
    size: i32,
    #[persistent(default)]
    tags: BTreeSet<String>,
    friends: Vec<Ref<Person>>,
    #[persistent(skip)]
    seen: bool,
}

#[derive(Persistent, Clone, Debug, Default, PartialEq)]
struct Employee {
    #[persistent(parent)]
    person: Person,
    #[persistent(number = 17, unique)]
    number: i64,
    r#type: Option<String>,
}

#[derive(Persistent, Debug, PartialEq)]
struct Everything {
    a: bool,
    b: i64,
    c: u16,
    d: f64,
    e: f32,
    f: Decimal,
    g: Bytes,
    h: Timestamp,
    i: Oid,
    j: BTreeMap<String, Vec<Option<i64>>>,
    k: Option<Ref<Employee>>,
}

#[derive(Persistent)]
struct Nothing {}

fn schema() -> Schema {
    let reference = Type::Reference(Some(ClassId(1)));
    let person = Class::new(ClassId(1), "com.example.Person")
        .field(1, "name", Type::String)
        .field(2, "birth", Type::Date)
        .field(3, "size", Type::Int64)
        .field(4, "tags", Type::set(Type::String))
        .field(5, "friends", Type::list(reference))
        .field(6, "added later", Type::String);
    let employee = Class::new(ClassId(2), "Employee")
        .extends(ClassId(1))
        .field(17, "renamed since", Type::Int64)
        .field(18, "type", Type::String);
    Schema::new([person, employee]).expect("the schema is invalid")
}

fn ann() -> Person {
    Person {
        name: "Ann".into(),
        born: Some(Date { days: 3 }),
        size: 170,
        tags: ["x".to_owned()].into(),
        friends: vec![Ref::new(Oid::MIN)],
        seen: false,
    }
}

#[test]
fn class_is_described() {
    let class = Employee::class();
    assert_eq!((class.name, class.parent), ("Employee", Some("com.example.Person")));
    let fields: Vec<(&str, &str, bool)> = class.fields.iter().map(|f| (f.class, f.name, f.optional)).collect();
    let person = "com.example.Person";
    let expected = [
        (person, "name", false),
        (person, "birth", true),
        (person, "size", false),
        (person, "tags", false),
        (person, "friends", false),
        ("Employee", "number", false),
        ("Employee", "type", true),
    ];
    assert_eq!(fields, expected);
    assert_eq!(class.fields[2].default, Some(Value::Int64(7)));
    assert_eq!(class.fields[4].ty, FieldType::List(Box::new(FieldType::Reference(Some(person)))));
    assert_eq!(class.fields[5].number, Some(FieldNumber(17)));
    let indexes = |class: client::persistent::ClassDescription| -> Vec<(String, Vec<&'static str>, bool)> {
        class.indexes.into_iter().map(|index| (index.name, index.fields, index.unique)).collect()
    };
    assert_eq!(indexes(class), [("Employee.number".to_owned(), vec!["number"], true)]);
    let expected = [
        ("com.example.Person.name-birth".to_owned(), vec!["name", "birth"], true),
        ("com.example.Person.name".to_owned(), vec!["name"], false),
    ];
    assert_eq!(indexes(Person::class()), expected);
}

#[test]
fn description_includes_parents_and_referred_classes() {
    #[derive(Persistent)]
    struct Firm {
        staff: BTreeMap<String, Vec<Option<Ref<Employee>>>>,
        parent: Option<Ref<Firm>>,
    }
    let names = |classes: &Classes| -> Vec<&'static str> { classes.iter().map(|class| class.name).collect() };
    assert_eq!(names(&Classes::of::<Firm>()), ["Employee", "Firm", "com.example.Person"]);
    assert_eq!(names(&Classes::of::<Nothing>()), ["Nothing"]);
}

#[test]
fn fields_are_found_by_name_or_number() {
    let layout = Layout::of::<Employee>(&schema()).unwrap();
    let numbers: Vec<u32> = layout.numbers().map(|number| number.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 17, 18]);
    let employee = Employee { person: ann(), number: 9, r#type: None };
    let record = employee.to_record(&layout, None).unwrap();
    let record = RecordRef::validate(&record).unwrap();
    assert_eq!(record.to_fields().unwrap()[&FieldNumber(17)], Value::Int64(9));
    assert_eq!(Employee::from_record(&record, &layout).unwrap(), employee);
}

#[test]
fn every_type_round_trips() {
    let everything = Everything {
        a: true,
        b: i64::MIN,
        c: 65_535,
        d: -0.0,
        e: 1.5,
        f: "1.50".parse().unwrap(),
        g: Bytes::from_static(&[0, 255]),
        h: Timestamp::from_millis(-1),
        i: Oid::MAX,
        j: BTreeMap::from([("x".to_owned(), vec![Some(1), None])]),
        k: Some(Ref::new(Oid::MIN)),
    };
    let layout = Layout::from_declaration::<Everything>(ClassId(1));
    let record = everything.to_record(&layout, None).unwrap();
    assert_eq!(Everything::from_record(&RecordRef::validate(&record).unwrap(), &layout).unwrap(), everything);
    let nothing = Nothing {}.to_record(&Layout::from_declaration::<Nothing>(ClassId(1)), None).unwrap();
    assert!(RecordRef::validate(&nothing).unwrap().is_empty());
}

#[test]
fn unknown_fields_are_kept() {
    let (person, employee) = (Layout::of::<Person>(&schema()).unwrap(), Layout::of::<Employee>(&schema()).unwrap());
    let mut before = model::RecordBuilder::new();
    let whole = Employee { person: ann(), number: 9, r#type: Some("x".into()) }.to_record(&employee, None).unwrap();
    for field in RecordRef::new(&whole).unwrap().fields() {
        let (number, value) = field.unwrap();
        before.set(number, value).unwrap();
    }
    before.set(FieldNumber(6), "later").unwrap().set(FieldNumber(99), "of a field that was removed").unwrap();
    let before = before.build().unwrap();
    // A program that loads the employee as a person, and does not know one of the fields.
    let changed = Person { name: "Anne".into(), ..ann() };
    let after = changed.to_record(&person, Some(&RecordRef::new(&before).unwrap())).unwrap();
    let after = RecordRef::validate(&after).unwrap();
    let fields = after.to_fields().unwrap();
    assert_eq!(fields[&FieldNumber(6)], Value::from("later"));
    assert!(!fields.contains_key(&FieldNumber(7)));
    let seen = Employee::from_record(&after, &employee).unwrap();
    assert_eq!((seen.person, seen.number, seen.r#type.as_deref()), (changed, 9, Some("x")));
}

#[test]
fn fields_newer_than_the_schema_are_kept() {
    let layout = Layout::of::<Person>(&schema()).unwrap();
    let mut before = model::RecordBuilder::new();
    // 18 is the largest field number of the classes; 4 is the number of a field that the struct has.
    before.set(FieldNumber(19), "of a version that the program does not know").unwrap();
    let before = before.build().unwrap();
    let after = ann().to_record(&layout, Some(&RecordRef::new(&before).unwrap())).unwrap();
    assert!(RecordRef::new(&after).unwrap().to_fields().unwrap().contains_key(&FieldNumber(19)));
}

#[test]
fn struct_without_a_required_field_needs_its_default_from_the_class() {
    let whole = Class::new(ClassId(1), "Nothing").required(1, "size", Type::Int64, 3);
    let without_default = whole.clone().required(2, "name", Type::String, Value::Null);
    let complete = |class| Layout::of::<Nothing>(&Schema::new([class]).unwrap()).unwrap().check_complete();
    complete(whole).unwrap();
    // New objects get the default of the class.
    let mut with_default = without_default.clone();
    with_default.fields[1].default = Some(Value::from("unnamed"));
    let layout = Layout::of::<Nothing>(&Schema::new([with_default]).unwrap()).unwrap();
    layout.check_complete().unwrap();
    let made = Nothing {}.to_record(&layout, None).unwrap();
    let made = RecordRef::new(&made).unwrap().to_fields().unwrap();
    assert_eq!((&made[&FieldNumber(1)], &made[&FieldNumber(2)]), (&Value::Int64(3), &Value::from("unnamed")));
    assert!(
        complete(without_default).unwrap_err().message().contains("field name of class Nothing has to have a value")
    );
}

#[test]
fn missing_value_is_the_default_or_an_error() {
    let layout = Layout::of::<Person>(&schema()).unwrap();
    let record = |name: bool| {
        let mut record = model::RecordBuilder::new();
        if name {
            record.set(FieldNumber(1), "Ann").unwrap();
        }
        record.set_value(FieldNumber(5), &Value::List(vec![])).unwrap();
        record.build().unwrap()
    };
    let bytes = record(true);
    let person = Person::from_record(&RecordRef::new(&bytes).unwrap(), &layout).unwrap();
    assert_eq!((person.size, person.tags, person.born), (7, BTreeSet::new(), None));
    let bytes = record(false);
    let error = Person::from_record(&RecordRef::new(&bytes).unwrap(), &layout).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let expected =
        "field name of class com.example.Person: it is null, and of type string in the program: make that an Option";
    assert_eq!(error.message(), expected);
}

#[test]
fn error_of_an_unsuitable_value_names_the_field() {
    let layout = Layout::of::<Person>(&schema()).unwrap();
    let mut record = model::RecordBuilder::new();
    record.set(FieldNumber(1), "Ann").unwrap().set(FieldNumber(3), 1 << 40).unwrap();
    record.set_value(FieldNumber(5), &Value::List(vec![])).unwrap();
    let bytes = record.build().unwrap();
    let error = Person::from_record(&RecordRef::new(&bytes).unwrap(), &layout).unwrap_err();
    assert!(error.message().contains("field size of class com.example.Person: it is 1099511627776"), "{error}");
}

#[test]
fn class_that_differs_from_the_struct_is_refused() {
    let none = Schema::new([]).unwrap();
    assert_eq!(Layout::of::<Person>(&none).unwrap_err().kind(), ErrorKind::NotFound);
    let lacks = Schema::new([Class::new(ClassId(1), "com.example.Person").field(1, "name", Type::String)]).unwrap();
    let error = Layout::of::<Person>(&lacks).unwrap_err();
    assert!(error.message().contains("has no field birth, which the program has"), "{error}");
    let other = Schema::new([Class::new(ClassId(1), "com.example.Person").field(1, "name", Type::Int64)]).unwrap();
    let error = Layout::of::<Person>(&other).unwrap_err();
    assert!(
        error.message().contains("field name of class com.example.Person is of type int64, and of type string"),
        "{error}"
    );
}

#[test]
fn widened_number_is_read_in_the_current_type() {
    #[derive(Persistent)]
    struct Reading {
        value: f64,
    }
    let schema = Schema::new([Class::new(ClassId(1), "Reading").field(1, "value", Type::Float64)]).unwrap();
    let layout = Layout::of::<Reading>(&schema).unwrap();
    let mut record = model::RecordBuilder::new();
    record.set(FieldNumber(1), 3).unwrap();
    let bytes = record.build().unwrap();
    assert_eq!(Reading::from_record(&RecordRef::new(&bytes).unwrap(), &layout).unwrap().value, 3.0);
}
