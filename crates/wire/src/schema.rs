//! Types of fields as messages: the only place that converts between [`FieldType`] and its message.

use model::{Error, ErrorKind, FieldType, Result, limits};

use crate::proto::schema;
use crate::proto::schema::field_type::Kind;

/// A type without parts.
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
        (None, _) => Err(unsupported("a collection without the type of its elements".to_owned())),
        (_, None) => Err(unsupported(format!("a type with more than {} levels of collections", limits::NESTING))),
    };
    let kind = Kind::try_from(of.kind).unwrap_or(Kind::None);
    Ok(match kind {
        Kind::None => return Err(unsupported(format!("the kind of type {}", of.kind))),
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

fn unsupported(what: String) -> Error {
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
    fn types_come_back_from_their_messages() {
        let scalars =
            ["bool", "int64", "float64", "decimal", "string", "bytes", "date", "timestamp", "ref", "ref<a.B>"];
        for text in scalars.into_iter().chain(["list<ref<P>>", "set<int64>", "map<date, list<map<string, bytes>>>"]) {
            assert_eq!(round_trip(text).to_string(), text);
        }
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
