//! Values as JSON that keeps their types: `{"int64":5}`, `{"decimal":["BYTES",2]}`, `{"list":[{"bool":true},null]}`.
//!
//! JSON's own numbers and strings do not distinguish 1 from 1.0, or a date from a string.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Date, Decimal, ParseOidError, Timestamp, Value};

/// A value in this JSON form.
#[derive(Clone, Copy, Debug)]
pub struct ValueAsJson<'a>(pub &'a Value);

impl Serialize for ValueAsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        TypedValue::of(self.0).serialize(serializer)
    }
}

/// Optional values: `#[serde(with = "model::value_json::option", default, skip_serializing_if = "Option::is_none")]`.
/// JSON null is an absent value.
pub mod option {
    use super::{Deserialize, Deserializer, Error, Serialize, Serializer, TypedValue, Value, ValueAsJson};

    /// Writes a value.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(ValueAsJson).serialize(serializer)
    }

    /// Reads a value.
    ///
    /// # Errors
    /// Those of the deserializer, and for JSON that is not a value.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        let typed = Option::<TypedValue>::deserialize(deserializer)?;
        typed.map(TypedValue::into_value).transpose().map_err(D::Error::custom)
    }
}

/// The JSON structure; `None` is null.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TypedValue {
    Bool(bool),
    Int64(i64),
    /// A string, which can express infinity and every digit.
    Float64(String),
    /// The unscaled bytes in base64, and the scale.
    Decimal(String, i32),
    String(String),
    /// In base64.
    Bytes(String),
    /// Days since 1970.
    Date(i64),
    /// Seconds since 1970, and nanoseconds.
    Timestamp(i64, u32),
    Ref(String),
    List(Vec<Option<TypedValue>>),
    Set(Vec<Option<TypedValue>>),
    Map(Vec<(Option<TypedValue>, Option<TypedValue>)>),
}

impl TypedValue {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Bool(value) => Self::Bool(*value),
            Value::Int64(value) => Self::Int64(*value),
            Value::Float64(value) => Self::Float64(format!("{value:?}")),
            Value::Decimal(value) => {
                Self::Decimal(STANDARD.encode(value.as_ref().unscaled_value()), value.as_ref().scale())
            }
            Value::String(value) => Self::String(value.clone()),
            Value::Bytes(value) => Self::Bytes(STANDARD.encode(value)),
            Value::Date(value) => Self::Date(value.days),
            Value::Timestamp(value) => Self::Timestamp(value.seconds(), value.subsec_nanos()),
            Value::Reference(value) => Self::Ref(value.to_string()),
            Value::List(values) => Self::List(values.iter().map(Self::of).collect()),
            Value::Set(values) => Self::Set(values.iter().map(Self::of).collect()),
            Value::Map(entries) => {
                Self::Map(entries.iter().map(|(key, value)| (Self::of(key), Self::of(value))).collect())
            }
        })
    }

    /// The value, or a description of the error.
    fn into_value(self) -> Result<Value, String> {
        let nullable = |typed: Option<Self>| typed.map_or(Ok(Value::Null), Self::into_value);
        let bytes = |text: &str| STANDARD.decode(text).map_err(|_| format!("{text:.100?} is not base64"));
        Ok(match self {
            Self::Bool(value) => Value::Bool(value),
            Self::Int64(value) => Value::Int64(value),
            Self::Float64(text) => {
                Value::Float64(text.parse().map_err(|_| format!("{text:.100?} is not a floating-point number"))?)
            }
            Self::Decimal(unscaled, scale) => {
                Value::Decimal(Decimal::from_be_bytes(&bytes(&unscaled)?, scale).map_err(|error| error.to_string())?)
            }
            Self::String(value) => Value::String(value),
            Self::Bytes(value) => Value::Bytes(bytes(&value)?.into()),
            Self::Date(days) => Value::Date(Date { days }),
            Self::Timestamp(seconds, nanos) => {
                Value::Timestamp(Timestamp::new(seconds, nanos).map_err(|error| error.to_string())?)
            }
            Self::Ref(text) => Value::Reference(text.parse().map_err(|error: ParseOidError| error.to_string())?),
            Self::List(values) => Value::List(values.into_iter().map(nullable).collect::<Result<_, _>>()?),
            Self::Set(values) => Value::Set(values.into_iter().map(nullable).collect::<Result<_, _>>()?),
            Self::Map(entries) => {
                let entries = entries.into_iter().map(|(key, value)| Ok((nullable(key)?, nullable(value)?)));
                Value::Map(entries.collect::<Result<_, String>>()?)
            }
        })
    }
}
