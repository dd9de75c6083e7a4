//! Answers requests for the classes of a space, and adds the classes of clients' programs.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use meta::Revision;
use meta::catalog::{
    Class, ClassDefinition, Field, FieldDefinition, FieldType, Literal, Schema, WantedClass, WantedIndex,
};
use model::{Error, ErrorKind, FieldNumber, Result, Value};
use tokio::time;
use wire::proto::response::Response;
use wire::proto::schema;

use crate::cluster_view::{ClusterView, SpaceView};

/// How long a request waits for a revision of the catalogue.
const REVISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Adopts the classes of a client's program. `may_change` is the error if the client may not change classes.
pub(super) async fn handle_define(
    realm: &ClusterView,
    space: &SpaceView,
    define: schema::Define,
    may_change: Result<()>,
) -> Result<Response> {
    let wanted = define.classes.into_iter().map(class_from_proto).collect::<Result<Vec<_>>>()?;
    let adopted = realm.editor()?.adopt(&space.name, &wanted, may_change).await?;
    schema_at_revision(realm, space, adopted.revision).await
}

/// The classes of a space, as of this revision or a later one.
pub(super) async fn schema_at_revision(realm: &ClusterView, space: &SpaceView, revision: Revision) -> Result<Response> {
    let late = || {
        let what = format!("the peer server has not heard of revision {} of the catalogue yet: try again", revision.0);
        Error::new(ErrorKind::Unavailable, what)
    };
    time::timeout(REVISION_TIMEOUT, realm.wait_for_revision(revision)).await.map_err(|_| late())??;
    let catalog = realm.catalog().ok_or_else(late)?;
    schema_to_proto(&catalog.schema(space.id), catalog.revision()).map(Response::Schema)
}

// ---------------------------------------------------------------------------------------------- encoding

fn schema_to_proto(schema: &Schema, revision: Revision) -> Result<schema::Schema> {
    let classes = schema.classes().map(|shape| class_to_proto(shape.class())).collect::<Result<_>>()?;
    let unique = schema.indexes().filter(|index| index.unique).map(|index| schema::Unique {
        name: index.name.clone(),
        class: index.class.0,
        fields: index.fields.iter().map(|field| field.0).collect(),
        id: index.id.0,
    });
    Ok(schema::Schema { revision: revision.0, classes, unique: unique.collect() })
}

fn class_to_proto(class: &Class) -> Result<schema::Class> {
    Ok(schema::Class {
        id: class.id.0,
        name: class.name.clone(),
        parent: class.parent.map(|parent| parent.0),
        version: class.version,
        fields: class.fields.iter().map(field_to_proto).collect::<Result<_>>()?,
    })
}

fn field_to_proto(field: &Field) -> Result<schema::Field> {
    let bytes = |literal: &Option<Literal>| -> Result<Option<Bytes>> {
        let value = literal.as_ref().map(|literal| &literal.0).filter(|value| **value != Value::Null);
        Ok(value.map(Value::to_bytes).transpose()?.map(Into::into))
    };
    Ok(schema::Field {
        number: field.number.0,
        name: field.name.clone(),
        r#type: Some((&field.field_type).into()),
        default: bytes(&field.missing)?,
        required: !field.optional,
        initial: bytes(&field.default)?,
    })
}

// ---------------------------------------------------------------------------------------------- decoding

fn class_from_proto(definition: schema::ClassDefinition) -> Result<WantedClass> {
    let schema::ClassDefinition { name, parent, fields, indexes } = definition;
    let numbers: BTreeMap<String, FieldNumber> =
        fields.iter().filter_map(|field| Some((field.name.clone(), FieldNumber(field.number?)))).collect();
    let fields = fields.into_iter().map(|field| field_from_proto(&name, field)).collect::<Result<_>>()?;
    let indexes = indexes.into_iter().map(|index| {
        let schema::IndexDefinition { name, fields, unique } = index;
        WantedIndex { name, fields, unique }
    });
    Ok(WantedClass { class: ClassDefinition { name, parent, fields }, numbers, indexes: indexes.collect() })
}

fn field_from_proto(class: &str, field: schema::FieldDefinition) -> Result<FieldDefinition> {
    let schema::FieldDefinition { name, r#type, optional, default, .. } = field;
    let invalid = |why: &str| {
        Error::new(ErrorKind::Invalid, format!("the type of field {name:.100?} of class {class:.100?}: {why}"))
    };
    let field_type = r#type.ok_or_else(|| invalid("it is missing"))?;
    let field_type = FieldType::try_from(&field_type).map_err(|error| invalid(error.message()))?;
    let default = default.map(|bytes| Value::from_bytes(&bytes).map(Literal)).transpose()?;
    Ok(FieldDefinition { name, field_type, optional, default })
}
