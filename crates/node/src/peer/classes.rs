//! Clients ask what classes there are, and bring those of their programs.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use meta::Revision;
use meta::catalog::{
    Class, ClassDefinition, Field, FieldDefinition, FieldType, Literal, Schema, WantedClass, WantedIndex,
};
use model::{Error, ErrorKind, FieldNumber, Result, Value, limits};
use tokio::time;
use wire::proto::response::Response;
use wire::proto::schema::{self, field_type::Kind};

use crate::realm::{Realm, Space};

/// How long a revision of the catalogue is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Brings classes up to those of a client's program. `may_change` is why it may not change any, if it may not.
pub(super) async fn defined(
    realm: &Realm,
    space: &Space,
    define: schema::Define,
    may_change: Result<()>,
) -> Result<Response> {
    let wanted = define.classes.into_iter().map(wanted).collect::<Result<Vec<_>>>()?;
    let adopted = realm.editor()?.adopt(&space.name, &wanted, may_change).await?;
    reached(realm, space, adopted.revision).await
}

/// The classes of a space, at this revision or a later one.
pub(super) async fn reached(realm: &Realm, space: &Space, revision: Revision) -> Result<Response> {
    let late = || {
        let what = format!("the peer server has not heard of revision {} of the catalogue yet: try again", revision.0);
        Error::new(ErrorKind::Unavailable, what)
    };
    time::timeout(PATIENCE, realm.reach(revision)).await.map_err(|_| late())??;
    let catalog = realm.catalog().ok_or_else(late)?;
    told(&catalog.schema(space.id), catalog.revision()).map(Response::Schema)
}

// ---------------------------------------------------------------------------------------------- telling

fn told(schema: &Schema, revision: Revision) -> Result<schema::Schema> {
    let classes = schema.classes().map(|shape| class(shape.class())).collect::<Result<_>>()?;
    let unique = schema.indexes().filter(|index| index.unique).map(|index| schema::Unique {
        name: index.name.clone(),
        class: index.class.0,
        fields: index.fields.iter().map(|field| field.0).collect(),
        id: index.id.0,
    });
    Ok(schema::Schema { revision: revision.0, classes, unique: unique.collect() })
}

fn class(class: &Class) -> Result<schema::Class> {
    Ok(schema::Class {
        id: class.id.0,
        name: class.name.clone(),
        parent: class.parent.map(|parent| parent.0),
        version: class.version,
        fields: class.fields.iter().map(field).collect::<Result<_>>()?,
    })
}

fn field(field: &Field) -> Result<schema::Field> {
    let bytes = |literal: &Option<Literal>| -> Result<Option<Bytes>> {
        let value = literal.as_ref().map(|literal| &literal.0).filter(|value| **value != Value::Null);
        Ok(value.map(Value::to_bytes).transpose()?.map(Into::into))
    };
    Ok(schema::Field {
        number: field.number.0,
        name: field.name.clone(),
        r#type: Some(field_type(&field.field_type)),
        default: bytes(&field.missing)?,
        required: !field.optional,
        initial: bytes(&field.default)?,
    })
}

fn field_type(of: &FieldType) -> schema::FieldType {
    let plain = schema::FieldType::plain;
    match of {
        FieldType::Bool => plain(Kind::Bool),
        FieldType::Int64 => plain(Kind::Int64),
        FieldType::Float64 => plain(Kind::Float64),
        FieldType::Decimal => plain(Kind::Decimal),
        FieldType::String => plain(Kind::String),
        FieldType::Bytes => plain(Kind::Bytes),
        FieldType::Date => plain(Kind::Date),
        FieldType::Timestamp => plain(Kind::Timestamp),
        FieldType::Reference(of) => schema::FieldType::reference(of.clone()),
        FieldType::List(of) => schema::FieldType::of(Kind::List, field_type(of)),
        FieldType::Set(of) => schema::FieldType::of(Kind::Set, field_type(of)),
        FieldType::Map(key, of) => schema::FieldType::map(field_type(key), field_type(of)),
    }
}

// ---------------------------------------------------------------------------------------------- being told

fn wanted(definition: schema::ClassDefinition) -> Result<WantedClass> {
    let schema::ClassDefinition { name, parent, fields, indexes } = definition;
    let numbers: BTreeMap<String, FieldNumber> =
        fields.iter().filter_map(|field| Some((field.name.clone(), FieldNumber(field.number?)))).collect();
    let fields = fields.into_iter().map(|field| wanted_field(&name, field)).collect::<Result<_>>()?;
    let indexes = indexes.into_iter().map(|index| {
        let schema::IndexDefinition { name, fields, unique } = index;
        WantedIndex { name, fields, unique }
    });
    Ok(WantedClass { class: ClassDefinition { name, parent, fields }, numbers, indexes: indexes.collect() })
}

fn wanted_field(class: &str, field: schema::FieldDefinition) -> Result<FieldDefinition> {
    let schema::FieldDefinition { name, r#type, optional, default, .. } = field;
    let field_type = r#type.and_then(|of| wanted_type(of, limits::NESTING));
    let field_type = field_type.ok_or_else(|| {
        let what = format!("the type of field {name:.100?} of class {class:.100?} is none that is known here");
        Error::new(ErrorKind::Invalid, what)
    })?;
    let default = default.map(|bytes| Value::from_bytes(&bytes).map(Literal)).transpose()?;
    Ok(FieldDefinition { name, field_type, optional, default })
}

fn wanted_type(of: schema::FieldType, depth: usize) -> Option<FieldType> {
    let boxed = |of: Option<Box<schema::FieldType>>| Some(Box::new(wanted_type(*of?, depth.checked_sub(1)?)?));
    Some(match Kind::try_from(of.kind).ok()? {
        Kind::None => return None,
        Kind::Bool => FieldType::Bool,
        Kind::Int64 => FieldType::Int64,
        Kind::Float64 => FieldType::Float64,
        Kind::Decimal => FieldType::Decimal,
        Kind::String => FieldType::String,
        Kind::Bytes => FieldType::Bytes,
        Kind::Date => FieldType::Date,
        Kind::Timestamp => FieldType::Timestamp,
        Kind::Reference => FieldType::Reference(of.class),
        Kind::List => FieldType::List(boxed(of.element)?),
        Kind::Set => FieldType::Set(boxed(of.element)?),
        Kind::Map => FieldType::Map(boxed(of.element)?, boxed(of.value)?),
    })
}
