//! Requests and answers about classes.

use model::Value;
use wire::frame::Flags;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema::field_type::Kind;
use wire::proto::{self, schema};

use super::check;

/// Number of vectors in this file.
pub(crate) const VECTORS: usize = 4 + 7;

fn ty(kind: Kind) -> schema::FieldType {
    schema::FieldType { kind: kind as i32, ..schema::FieldType::default() }
}

/// A map from names to lists of people.
fn people() -> schema::FieldType {
    let person = schema::FieldType { class: Some("Person".to_owned()), ..ty(Kind::Reference) };
    let list = schema::FieldType { element: Some(Box::new(person)), ..ty(Kind::List) };
    schema::FieldType { element: Some(Box::new(ty(Kind::String))), value: Some(Box::new(list)), ..ty(Kind::Map) }
}

#[test]
fn messages_about_schemas_are_unchanged() {
    let default = Some(Value::Int64(7).to_bytes().unwrap().into());
    let size = schema::FieldDefinition {
        name: "size".to_owned(),
        r#type: Some(ty(Kind::Int64)),
        optional: false,
        default: default.clone(),
        number: Some(3),
    };
    let friends = schema::FieldDefinition {
        name: "friends".to_owned(),
        r#type: Some(people()),
        optional: true,
        default: None,
        number: None,
    };
    let index = schema::IndexDefinition { name: "by_size".to_owned(), fields: vec!["size".to_owned()], unique: true };
    let class = schema::ClassDefinition {
        name: "Person".to_owned(),
        parent: Some("Being".to_owned()),
        fields: vec![size, friends],
        indexes: vec![index],
    };
    let requests = [
        ("get-schema", Request::GetSchema(schema::GetSchema { revision: 300 })),
        ("define", Request::Define(schema::Define { classes: vec![class] })),
    ];
    for (name, request) in requests {
        check(&format!("request-{name}"), Flags::REQUEST, &proto::Request { request: Some(request) }, b"");
    }
    let size = schema::Field {
        number: 3,
        name: "size".to_owned(),
        r#type: Some(ty(Kind::Int64)),
        default: default.clone(),
        required: true,
        initial: default,
    };
    let friends = schema::Field {
        number: 4,
        name: "friends".to_owned(),
        r#type: Some(people()),
        default: None,
        required: false,
        initial: None,
    };
    let class = schema::Class {
        id: 2,
        name: "Person".to_owned(),
        parent: Some(1),
        version: 5,
        fields: vec![size, friends],
        last_number: 0,
    };
    let unique =
        vec![schema::Unique { name: "Person.size".to_owned(), class: 2, fields: vec![3], id: 7, building: true }];
    let answer = Response::Schema(schema::Schema { revision: 301, classes: vec![class], unique });
    check("response-schema", Flags::RESPONSE, &proto::Response { response: Some(answer) }, b"");
}

#[test]
fn requests_about_classes_and_indexes_are_unchanged() {
    use schema::describe::Request as Asked;
    use schema::evolution_step::Step;

    let field = schema::FieldDefinition {
        name: "size".to_owned(),
        r#type: Some(ty(Kind::Int64)),
        optional: true,
        default: None,
        number: None,
    };
    let class = || "Person".to_owned();
    let definition =
        schema::ClassDefinition { name: class(), parent: None, fields: vec![field.clone()], indexes: vec![] };
    let steps = [
        Step::Add(field),
        Step::Remove("old".to_owned()),
        Step::Rename(schema::RenameField { field: "a".to_owned(), to: "b".to_owned() }),
        Step::Widen(schema::WidenField { field: "n".to_owned(), to: Some(ty(Kind::Float64)) }),
        Step::SetDefault(schema::SetDefault {
            field: "n".to_owned(),
            default: Some(Value::Int64(7).to_bytes().unwrap().into()),
        }),
        Step::MakeOptional("n".to_owned()),
        Step::MakeRequired("n".to_owned()),
    ];
    let steps = steps.map(|step| schema::EvolutionStep { step: Some(step) }).to_vec();
    let index = schema::IndexDefinition { name: "by_size".to_owned(), fields: vec!["size".to_owned()], unique: true };
    let requests = [
        ("show", Asked::Show(schema::Show {})),
        ("history", Asked::History(schema::History { class: class() })),
        ("define", Asked::Define(schema::Define { classes: vec![definition] })),
        ("evolve", Asked::Evolve(schema::Evolve { class: class(), steps })),
        ("create-index", Asked::CreateIndex(schema::CreateIndex { class: class(), index: Some(index) })),
        ("remove-class", Asked::RemoveClass(schema::RemoveClass { name: "Box".to_owned(), cancel: true })),
        ("remove-index", Asked::RemoveIndex(schema::RemoveIndex { name: "by_size".to_owned() })),
    ];
    for (name, request) in requests {
        let describe = schema::Describe { space: "main".to_owned(), request: Some(request) };
        let message = proto::Request { request: Some(Request::Describe(Box::new(describe))) };
        check(&format!("request-describe-{name}"), Flags::REQUEST, &message, b"");
    }
    let index = schema::Index {
        id: 7,
        name: "by_size".to_owned(),
        class: 2,
        fields: vec![3, 4],
        unique: true,
        state: schema::IndexState::Ready.into(),
        problem: Some("two objects have 4".to_owned()),
        job: None,
    };
    let class = schema::Class { id: 2, name: class(), version: 5, ..schema::Class::default() };
    let described = schema::Described { classes: vec![class], indexes: vec![index] };
    let message = proto::Response { response: Some(Response::Described(described)) };
    check("response-classes-described", Flags::RESPONSE, &message, b"");
}
