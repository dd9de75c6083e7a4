//! Classes and indexes in messages.

use client::Client;
use model::{Class, Error, ErrorKind, Field, FieldType, Result, limits};
use wire::proto::schema::describe::Request;
use wire::proto::schema::evolution_step::Step;
use wire::proto::schema::{
    ClassDefinition, CreateIndex, Define, Describe, Described, EvolutionStep, Evolve, FieldDefinition, Index,
    IndexDefinition, IndexState, RemoveIndex, RenameField, SetDefault, Show, WidenField,
};

use crate::message::{Reader, Writer};
use crate::operation::ClientSchema;

/// Performs an operation with the classes and indexes of the client's space.
pub(crate) async fn perform(
    client: &Client,
    operation: ClientSchema,
    request: &mut Reader,
    reply: &mut Writer,
) -> Result<()> {
    let request = match operation {
        ClientSchema::Schema => {
            let described = describe(client, Request::Show(Show {})).await?;
            complete(client, &described).await?;
            return write_schema(reply, described);
        }
        ClientSchema::Define => Request::Define(Define { classes: request.list(read_class_definition)? }),
        ClientSchema::Evolve => Request::Evolve(Evolve { class: request.string()?, steps: request.list(read_step)? }),
        ClientSchema::CreateIndex => {
            let (class, name) = (request.string()?, request.string()?);
            let (fields, unique) = (request.list(Reader::string)?, request.bool()?);
            Request::CreateIndex(CreateIndex { class, index: Some(IndexDefinition { name, fields, unique }) })
        }
        ClientSchema::RemoveIndex => Request::RemoveIndex(RemoveIndex { name: request.string()? }),
        ClientSchema::RemoveClass => return client.remove_class(&request.string()?).await,
    };
    describe(client, request).await.map(drop)
}

/// Continues to bind the values of unique indexes, if the program that made them was ended meanwhile.
async fn complete(client: &Client, described: &Described) -> Result<()> {
    let is_building = |index: &&Index| index.unique && index.state() == IndexState::Building && index.problem.is_none();
    let building: Vec<u32> = described.indexes.iter().filter(is_building).map(|index| index.id).collect();
    if building.is_empty() {
        return Ok(());
    }
    match client.complete_unique_indexes(building).await {
        // Others may do it, and do.
        Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
        completed => completed,
    }
}

async fn describe(client: &Client, request: Request) -> Result<Described> {
    client.describe(Describe { space: String::new(), request: Some(request) }).await
}

// ---------------------------------------------------------------------------------------------- reading

fn read_class_definition(request: &mut Reader) -> Result<ClassDefinition> {
    let (name, parent) = (request.string()?, request.optional(Reader::string)?);
    Ok(ClassDefinition { name, parent, fields: request.list(read_field_definition)?, indexes: Vec::new() })
}

fn read_field_definition(request: &mut Reader) -> Result<FieldDefinition> {
    let (name, field_type) = (request.string()?, read_type(request, limits::NESTING)?);
    let (optional, default) = (request.bool()?, request.optional(Reader::bytes)?);
    Ok(FieldDefinition { name, r#type: Some((&field_type).into()), optional, default, number: None })
}

/// Reads a type with at most `levels` nested lists, sets and maps.
fn read_type(request: &mut Reader, levels: usize) -> Result<FieldType> {
    let too_deep = || Error::new(ErrorKind::TooLarge, format!("a type nests at most {} levels", limits::NESTING));
    let nested = |request: &mut Reader| read_type(request, levels.checked_sub(1).ok_or_else(too_deep)?);
    Ok(match request.u8()? {
        1 => FieldType::Bool,
        2 => FieldType::Int64,
        3 => FieldType::Float64,
        4 => FieldType::Decimal,
        5 => FieldType::String,
        6 => FieldType::Bytes,
        7 => FieldType::Date,
        8 => FieldType::Timestamp,
        9 => FieldType::Reference(request.optional(Reader::string)?),
        10 => FieldType::list(nested(request)?),
        11 => FieldType::set(nested(request)?),
        12 => FieldType::map(nested(request)?, nested(request)?),
        code => return Err(Error::new(ErrorKind::Invalid, format!("there is no type {code}"))),
    })
}

fn read_step(request: &mut Reader) -> Result<EvolutionStep> {
    let step = match request.u8()? {
        1 => Step::Add(read_field_definition(request)?),
        2 => Step::Remove(request.string()?),
        3 => Step::Rename(RenameField { field: request.string()?, to: request.string()? }),
        4 => {
            let (field, to) = (request.string()?, read_type(request, limits::NESTING)?);
            Step::Widen(WidenField { field, to: Some((&to).into()) })
        }
        5 => Step::SetDefault(SetDefault { field: request.string()?, default: request.optional(Reader::bytes)? }),
        6 => Step::MakeOptional(request.string()?),
        7 => Step::MakeRequired(request.string()?),
        code => return Err(Error::new(ErrorKind::Invalid, format!("there is no evolution step {code}"))),
    };
    Ok(EvolutionStep { step: Some(step) })
}

// ---------------------------------------------------------------------------------------------- writing

/// Writes the classes and indexes of a space.
fn write_schema(reply: &mut Writer, described: Described) -> Result<()> {
    let Described { classes, indexes, .. } = described;
    reply.count(classes.len());
    for class in classes {
        write_class(reply, &Class::try_from(class)?)?;
    }
    reply.list(&indexes, write_index);
    Ok(())
}

fn write_class(reply: &mut Writer, class: &Class) -> Result<()> {
    reply.u32(class.id.0);
    reply.string(&class.name);
    reply.optional(class.parent, |reply, parent| reply.u32(parent.0));
    reply.u32(class.version);
    reply.count(class.fields.len());
    class.fields.iter().try_for_each(|field| write_field(reply, field))
}

fn write_field(reply: &mut Writer, field: &Field) -> Result<()> {
    reply.u32(field.number.0);
    reply.string(&field.name);
    write_type(reply, &field.field_type);
    reply.bool(!field.optional);
    for value in [&field.missing, &field.default] {
        reply.bool(value.is_some());
        value.iter().try_for_each(|value| reply.value(value))?;
    }
    Ok(())
}

fn write_type(reply: &mut Writer, field_type: &FieldType) {
    match field_type {
        FieldType::Bool => reply.u8(1),
        FieldType::Int64 => reply.u8(2),
        FieldType::Float64 => reply.u8(3),
        FieldType::Decimal => reply.u8(4),
        FieldType::String => reply.u8(5),
        FieldType::Bytes => reply.u8(6),
        FieldType::Date => reply.u8(7),
        FieldType::Timestamp => reply.u8(8),
        FieldType::Reference(class) => {
            reply.u8(9);
            reply.optional(class.as_deref(), Writer::string);
        }
        FieldType::List(element) => {
            reply.u8(10);
            write_type(reply, element);
        }
        FieldType::Set(element) => {
            reply.u8(11);
            write_type(reply, element);
        }
        FieldType::Map(key, value) => {
            reply.u8(12);
            write_type(reply, key);
            write_type(reply, value);
        }
    }
}

fn write_index(reply: &mut Writer, index: &Index) {
    reply.u32(index.id);
    reply.string(&index.name);
    reply.u32(index.class);
    reply.list(&index.fields, |reply, number| reply.u32(*number));
    reply.bool(index.unique);
    reply.bool(index.state() == IndexState::Ready);
    reply.optional(index.problem.as_deref(), Writer::string);
}
