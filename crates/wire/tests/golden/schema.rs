//! What clients ask of classes, and are answered.

use model::Value;
use wire::frame::Flags;
use wire::proto::request::Request;
use wire::proto::response::Response;
use wire::proto::schema::field_type::Kind;
use wire::proto::{self, schema};

use super::check;

/// How many vectors there are here.
pub(crate) const VECTORS: usize = 3;

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
fn what_is_asked_and_told_of_classes_is_what_it_was() {
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
    let unique = vec![schema::Unique { name: "Person.size".to_owned(), class: 2, fields: vec![3], id: 7 }];
    let answer = Response::Schema(schema::Schema { revision: 301, classes: vec![class], unique });
    check("response-schema", Flags::RESPONSE, &proto::Response { response: Some(answer) }, b"");
}
