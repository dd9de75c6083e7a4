use model::{Decimal, RecordBuilder, ValueRef};

use super::*;

fn person() -> Class {
    Class::new(ClassId(1), "Person").field(0, "name", Type::String).field(1, "age", Type::Int64).field(
        2,
        "boss",
        Type::Reference(Some(ClassId(2))),
    )
}

fn employee() -> Class {
    Class::new(ClassId(2), "com.example.Employee").extends(ClassId(1)).field_with_default(
        3,
        "pay",
        Type::Decimal,
        Decimal::from(0),
    )
}

fn schema_error(classes: impl IntoIterator<Item = Class>) -> String {
    let error = Schema::new(classes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn fields_and_families_go_down_the_ancestors() {
    let schema = Schema::new([employee(), person()]).unwrap();
    let names: Vec<&str> = schema.fields(ClassId(2)).iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["name", "age", "boss", "pay"]);
    assert_eq!(schema.field_named(ClassId(2), "age").unwrap().number, FieldNumber(1));
    assert!(schema.field_named(ClassId(1), "pay").is_none());
    assert_eq!(*schema.family(ClassId(1)), BTreeSet::from([ClassId(1), ClassId(2)]));
    assert_eq!(*schema.family(ClassId(2)), BTreeSet::from([ClassId(2)]));
}

#[test]
fn class_is_found_by_a_unique_end_of_its_name() {
    let schema = Schema::new([person(), employee()]).unwrap();
    assert_eq!(schema.class_named("Employee").unwrap().id, ClassId(2));
    assert_eq!(schema.class_named("mployee").unwrap_err().kind(), ErrorKind::NotFound);
    let other = Class::new(ClassId(3), "org.example.Employee");
    let schema = Schema::new([person(), employee(), other]).unwrap();
    assert_eq!(schema.class_named("Employee").unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(schema.class_named("org.example.Employee").unwrap().id, ClassId(3));
}

#[test]
fn inconsistent_schemas_are_refused() {
    let cases: [(Vec<Class>, &str); 9] = [
        (vec![Class::new(ClassId(0), "A")], "no class can have"),
        (vec![Class::new(ClassId(1), "")], "is no name"),
        (vec![Class::new(ClassId(1), "A"), Class::new(ClassId(2), "A")], "both named A"),
        (vec![Class::new(ClassId(1), "A"), Class::new(ClassId(1), "B")], "the number 1"),
        (vec![employee()], "not there"),
        (vec![person().extends(ClassId(2)), employee()], "own ancestors"),
        (vec![person().field(3, "name", Type::Int64), employee()], "twice"),
        (vec![person(), employee().field(1, "size", Type::Int64)], "which is age's"),
        (vec![Class::new(ClassId(1), "A").field_with_default(0, "a", Type::Int64, "x")], "has the default"),
    ];
    for (classes, why) in cases {
        let message = schema_error(classes);
        assert!(message.contains(why), "{message}, not {why}");
    }
}

#[test]
fn an_old_record_is_read_through_the_newer_class() {
    let old = RecordBuilder::new()
        .set(FieldNumber(0), "Miles")
        .and_then(|record| record.set(FieldNumber(1), 3))
        .and_then(|record| record.set(FieldNumber(4), ValueRef::Null))
        .and_then(|record| record.set(FieldNumber(5), ValueRef::Null))
        .and_then(|record| record.set(FieldNumber(9), "of a field that was removed"))
        .cloned()
        .and_then(RecordBuilder::build)
        .unwrap();
    // Renamed, widened, and added with and without a default.
    let class = Class::new(ClassId(1), "Person")
        .version(2)
        .field(0, "full name", Type::String)
        .field(1, "age", Type::Decimal)
        .field_with_default(2, "married", Type::Bool, false)
        .field(3, "home", Type::String)
        .required(4, "rank", Type::Int64, 9)
        .field_with_default(5, "wage", Type::Int64, 9);
    let schema = Schema::new([class]).unwrap();
    let fields = schema.read(&RecordRef::new(&old).unwrap(), ClassId(1)).unwrap();
    let fields: Vec<(&str, Value)> = fields.into_iter().map(|(field, value)| (field.name.as_str(), value)).collect();
    let expected = [
        ("full name", "Miles".into()),
        ("age", Value::Decimal(3.into())),
        ("married", false.into()),
        ("home", Value::Null),
        ("rank", 9.into()),
        ("wage", Value::Null),
    ];
    assert_eq!(fields, expected);
}

#[test]
fn numbers_are_converted_at_every_depth() {
    let decimal = |text: &str| Value::Decimal(text.parse().unwrap());
    assert_eq!(Type::Float64.convert(3.into()), 3.0.into());
    assert_eq!(Type::Float64.convert(decimal("0.1")), 0.1.into());
    assert_eq!(Type::Float64.convert(decimal("1e+400")), f64::INFINITY.into());
    assert_eq!(Type::Decimal.convert(0.5.into()), decimal("0.5"));
    assert_eq!(Type::Decimal.convert(f64::NAN.into()), f64::NAN.into());
    assert_eq!(Type::Int64.convert(0.5.into()), 0.5.into());
    assert_eq!(Type::String.convert(3.into()), 3.into());
    let list = Type::list(Type::map(Type::String, Type::Float64));
    let map = |number: Value| Value::Map([("a".into(), number)].into());
    assert_eq!(list.convert(Value::List(vec![map(1.into())])), Value::List(vec![map(1.0.into())]));
}
