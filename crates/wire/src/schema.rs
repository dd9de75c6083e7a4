//! Classes and fields as messages: the only place that converts between the schema types of `model` and their messages.

use bytes::Bytes;
use model::{Class, ClassId, Error, ErrorKind, Field, FieldDefinition, FieldNumber, FieldType, Result, Value, limits};

use crate::proto::schema;
use crate::proto::schema::field_type::Kind;

/// A type without parameters.
fn plain(kind: Kind) -> schema::FieldType {
    schema::FieldType { kind: kind as i32, class: None, element: None, value: None }
}

/// A list or a set.
fn collection(kind: Kind, element: schema::FieldType) -> schema::FieldType {
    schema::FieldType { element: Some(Box::new(element)), ..plain(kind) }
}

impl<C: AsRef<str>> From<&FieldType<C>> for schema::FieldType {
    fn from(of: &FieldType<C>) -> Self {
        match of {
            FieldType::Bool => plain(Kind::Bool),
            FieldType::Int64 => plain(Kind::Int64),
            FieldType::Float64 => plain(Kind::Float64),
            FieldType::Decimal => plain(Kind::Decimal),
            FieldType::String => plain(Kind::String),
            FieldType::Bytes => plain(Kind::Bytes),
            FieldType::Date => plain(Kind::Date),
            FieldType::Timestamp => plain(Kind::Timestamp),
            FieldType::Reference(class) => {
                Self { class: class.as_ref().map(|class| class.as_ref().to_owned()), ..plain(Kind::Reference) }
            }
            FieldType::List(element) => collection(Kind::List, (&**element).into()),
            FieldType::Set(element) => collection(Kind::Set, (&**element).into()),
            FieldType::Map(key, value) => {
                Self { value: Some(Box::new((&**value).into())), ..collection(Kind::Map, (&**key).into()) }
            }
        }
    }
}

impl TryFrom<&schema::FieldType> for FieldType {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::Unsupported`] if this program does not know the kind of type, or the type nests too deep.
    fn try_from(of: &schema::FieldType) -> Result<Self> {
        field_type(of, limits::NESTING)
    }
}

fn field_type(of: &schema::FieldType, depth: usize) -> Result<FieldType> {
    let part = |of: &Option<Box<schema::FieldType>>| match (of, depth.checked_sub(1)) {
        (Some(of), Some(depth)) => field_type(of, depth),
        (None, _) => Err(unsupported_error("a collection type has no element type".to_owned())),
        (_, None) => Err(unsupported_error(format!("a type has more than {} levels of collections", limits::NESTING))),
    };
    let kind = Kind::try_from(of.kind).unwrap_or(Kind::None);
    Ok(match kind {
        Kind::None => return Err(unsupported_error(format!("the kind of type {}", of.kind))),
        Kind::Bool => FieldType::Bool,
        Kind::Int64 => FieldType::Int64,
        Kind::Float64 => FieldType::Float64,
        Kind::Decimal => FieldType::Decimal,
        Kind::String => FieldType::String,
        Kind::Bytes => FieldType::Bytes,
        Kind::Date => FieldType::Date,
        Kind::Timestamp => FieldType::Timestamp,
        Kind::Reference => FieldType::Reference(of.class.clone()),
        Kind::List => FieldType::list(part(&of.element)?),
        Kind::Set => FieldType::set(part(&of.element)?),
        Kind::Map => FieldType::map(part(&of.element)?, part(&of.value)?),
    })
}

// ---------------------------------------------------------------------------------------------- classes

/// The encoding of a value that may be absent.
///
/// # Errors
/// [`ErrorKind::TooLarge`].
pub fn value_to_proto(value: Option<&Value>) -> Result<Option<Bytes>> {
    Ok(value.map(Value::to_bytes).transpose()?.map(Into::into))
}

/// The value of an encoding that may be absent.
///
/// # Errors
/// [`ErrorKind::Corrupt`] if it is no value.
pub fn value_from_proto(value: Option<Bytes>) -> Result<Option<Value>> {
    value.map(|bytes| Value::from_bytes(&bytes)).transpose()
}

/// The type of a field, which every field has.
fn required_type(name: &str, of: Option<&schema::FieldType>) -> Result<FieldType> {
    let of = of.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("field {name:.100?} has no type")))?;
    FieldType::try_from(of).map_err(|error| {
        Error::new(error.kind(), format!("the type of field {name:.100?}: {}", error.message())).with_source(error)
    })
}

impl<C: AsRef<str>> TryFrom<&Class<C>> for schema::Class {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::TooLarge`] if a default is too large to be encoded.
    fn try_from(class: &Class<C>) -> Result<Self> {
        Ok(Self {
            id: class.id.0,
            name: class.name.clone(),
            parent: class.parent.map(|parent| parent.0),
            version: class.version,
            fields: class.fields.iter().map(schema::Field::try_from).collect::<Result<_>>()?,
            last_number: class.last_number,
        })
    }
}

impl<C: AsRef<str>> TryFrom<&Field<C>> for schema::Field {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::TooLarge`] if a default is too large to be encoded.
    fn try_from(field: &Field<C>) -> Result<Self> {
        Ok(Self {
            number: field.number.0,
            name: field.name.clone(),
            r#type: Some((&field.field_type).into()),
            default: value_to_proto(field.missing.as_ref())?,
            required: !field.optional,
            initial: value_to_proto(field.default.as_ref())?,
        })
    }
}

fn class_id(id: u32) -> Result<ClassId> {
    let most = ClassId::MAX.0;
    let too_large = || Error::new(ErrorKind::Invalid, format!("a class has the number {id}; the largest is {most}"));
    Some(ClassId(id)).filter(|id| *id <= ClassId::MAX).ok_or_else(too_large)
}

impl TryFrom<schema::Class> for Class {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::Unsupported`] if this program does not know the type of a field, [`ErrorKind::Invalid`] if a field has
    /// none, [`ErrorKind::Corrupt`] if a default is damaged.
    fn try_from(class: schema::Class) -> Result<Self> {
        let schema::Class { id, name, parent, version, fields, last_number } = class;
        let fields = fields.into_iter().map(Field::try_from).collect::<Result<_>>()?;
        let (id, parent) = (class_id(id)?, parent.map(class_id).transpose()?);
        Ok(Self { id, name, parent, version, fields, last_number })
    }
}

impl TryFrom<schema::Field> for Field {
    type Error = Error;

    /// # Errors
    /// As for [`Class`].
    fn try_from(field: schema::Field) -> Result<Self> {
        let schema::Field { number, name, r#type, default, required, initial } = field;
        Ok(Self {
            number: FieldNumber(number),
            field_type: required_type(&name, r#type.as_ref())?,
            name,
            optional: !required,
            default: value_from_proto(initial)?,
            missing: value_from_proto(default)?,
        })
    }
}

impl TryFrom<&FieldDefinition> for schema::FieldDefinition {
    type Error = Error;

    /// # Errors
    /// [`ErrorKind::TooLarge`] if the default is too large to be encoded.
    fn try_from(field: &FieldDefinition) -> Result<Self> {
        Ok(Self {
            name: field.name.clone(),
            r#type: Some((&field.field_type).into()),
            optional: field.optional,
            default: value_to_proto(field.default.as_ref())?,
            number: None,
        })
    }
}

impl TryFrom<schema::FieldDefinition> for FieldDefinition {
    type Error = Error;

    /// # Errors
    /// As for [`Class`].
    fn try_from(field: schema::FieldDefinition) -> Result<Self> {
        let schema::FieldDefinition { name, r#type, optional, default, number: _ } = field;
        let field_type = required_type(&name, r#type.as_ref())?;
        Ok(Self { name, field_type, optional, default: value_from_proto(default)? })
    }
}

fn unsupported_error(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this program does not know {what}: upgrade it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> FieldType {
        let of: FieldType = text.parse().unwrap();
        FieldType::try_from(&schema::FieldType::from(&of)).unwrap()
    }

    #[test]
    fn types_round_trip() {
        let scalars =
            ["bool", "int64", "float64", "decimal", "string", "bytes", "date", "timestamp", "ref", "ref<a.B>"];
        for text in scalars.into_iter().chain(["list<ref<P>>", "set<int64>", "map<date, list<map<string, bytes>>>"]) {
            assert_eq!(round_trip(text).to_string(), text);
        }
    }

    #[test]
    fn class_with_an_impossible_number_is_refused() {
        for (id, parent) in [(1 << 24, None), (7, Some(u32::MAX))] {
            let class = schema::Class { id, parent, name: "P".to_owned(), ..schema::Class::default() };
            assert_eq!(Class::try_from(class).unwrap_err().kind(), ErrorKind::Invalid, "{id} {parent:?}");
        }
    }

    #[test]
    fn classes_round_trip() {
        let mut class = Class::new(ClassId(7), "P")
            .extends(ClassId(3))
            .version(4)
            .field(1, "plain", FieldType::Int64)
            .field_with_default(
                2,
                "late",
                FieldType::list(FieldType::Reference(Some("P".to_owned()))),
                Value::List(vec![]),
            )
            .required(9, "required", FieldType::Date, model::Date { days: 3 });
        class.last_number = 12;
        class.fields[1].default = None;
        assert_eq!(Class::try_from(schema::Class::try_from(&class).unwrap()).unwrap(), class);
        let field = schema::Field { name: "typeless".to_owned(), ..Default::default() };
        assert_eq!(Field::try_from(field).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn types_that_are_unknown_incomplete_or_too_deep_are_refused() {
        let unknown = schema::FieldType { kind: 99, ..plain(Kind::Bool) };
        let mut deep = plain(Kind::Bool);
        for _ in 0..=limits::NESTING {
            deep = collection(Kind::List, deep);
        }
        let no_value = collection(Kind::Map, plain(Kind::Bool));
        for of in [plain(Kind::None), unknown, plain(Kind::List), no_value, deep] {
            assert_eq!(FieldType::try_from(&of).unwrap_err().kind(), ErrorKind::Unsupported);
        }
    }
}
