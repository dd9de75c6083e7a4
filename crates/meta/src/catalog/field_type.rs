//! What fields may hold, and which types can become which others without touching old records.

use std::fmt;

use model::{Decimal, Error, ErrorKind, Result, Value, limits};
use serde::{Deserialize, Serialize};

/// What a field holds. Null is a matter of the field, not of its type; within lists, sets and maps it is always allowed.
///
/// In JSON: `"int64"`, `{"ref":"Person"}` (`{"ref":null}` for objects of any class), `{"list":"string"}`,
/// `{"map":["string","int64"]}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// A truth value.
    Bool,
    /// An integer of 64 bits.
    Int64,
    /// A floating-point number of 64 bits.
    Float64,
    /// A decimal number of any size.
    Decimal,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// A day.
    Date,
    /// A moment, to the nanosecond.
    Timestamp,
    /// An object of a class of the same space, or of one below it; with `None` any object.
    #[serde(rename = "ref")]
    Reference(Option<String>),
    /// Values in an order.
    List(Box<FieldType>),
    /// Different values.
    Set(Box<FieldType>),
    /// Values by different keys.
    Map(Box<FieldType>, Box<FieldType>),
}

impl FieldType {
    /// How deep lists, sets and maps are within each other.
    pub(super) fn depth(&self) -> usize {
        match self {
            Self::List(item) | Self::Set(item) => 1 + item.depth(),
            Self::Map(key, value) => 1 + key.depth().max(value.depth()),
            _ => 0,
        }
    }

    /// Whether it nests no deeper than values may.
    pub(super) fn is_within_nesting_limit(&self) -> bool {
        self.depth() <= limits::NESTING
    }

    /// The names of the classes that it refers to.
    pub(super) fn references(&self) -> Vec<&str> {
        match self {
            Self::Reference(class) => class.as_deref().into_iter().collect(),
            Self::List(item) | Self::Set(item) => item.references(),
            Self::Map(key, value) => [key.references(), value.references()].concat(),
            _ => Vec::new(),
        }
    }

    /// Whether values of the type have an order that an index can use.
    #[must_use]
    pub const fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Set(_) | Self::Map(..))
    }

    /// Whether a value is of the type. Of which class an object is that is referred to, is not looked at.
    #[must_use]
    pub fn accepts(&self, value: &Value) -> bool {
        let nullable = |item: &Self, value: &Value| matches!(value, Value::Null) || item.accepts(value);
        match (self, value) {
            (Self::Bool, Value::Bool(_))
            | (Self::Int64, Value::Int64(_))
            | (Self::Float64, Value::Float64(_))
            | (Self::Decimal, Value::Decimal(_))
            | (Self::String, Value::String(_))
            | (Self::Bytes, Value::Bytes(_))
            | (Self::Date, Value::Date(_))
            | (Self::Timestamp, Value::Timestamp(_))
            | (Self::Reference(_), Value::Reference(_)) => true,
            (Self::List(item), Value::List(values)) => values.iter().all(|value| nullable(item, value)),
            (Self::Set(item), Value::Set(values)) => values.iter().all(|value| nullable(item, value)),
            (Self::Map(key, item), Value::Map(entries)) => {
                entries.iter().all(|(name, value)| nullable(key, name) && nullable(item, value))
            }
            _ => false,
        }
    }

    /// A value of this type, from one that was written when the field had a type that this one was widened from.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the value is of a type that never became this one.
    pub fn widen(&self, value: Value) -> Result<Value> {
        match (self, value) {
            (_, Value::Null) => Ok(Value::Null),
            // What is more than 2^53 away from zero is rounded; whoever widened the field has decided that.
            (Self::Float64, Value::Int64(number)) => Ok(Value::Float64(number as f64)),
            (Self::Decimal, Value::Int64(number)) => Ok(Value::Decimal(Decimal::from(number))),
            (Self::List(item), Value::List(values)) => {
                Ok(Value::List(values.into_iter().map(|value| item.widen(value)).collect::<Result<_>>()?))
            }
            (Self::List(item), Value::Set(values)) => {
                Ok(Value::List(values.into_iter().map(|value| item.widen(value)).collect::<Result<_>>()?))
            }
            (Self::Map(key, item), Value::Map(entries)) => {
                let widened = entries.into_iter().map(|(name, value)| {
                    let fits = matches!(name, Value::Null) || key.accepts(&name);
                    if fits { Ok((name, item.widen(value)?)) } else { Err(self.mismatch(&name)) }
                });
                Ok(Value::Map(widened.collect::<Result<_>>()?))
            }
            (_, value) if self.accepts(&value) => Ok(value),
            (_, value) => Err(self.mismatch(&value)),
        }
    }

    fn mismatch(&self, value: &Value) -> Error {
        let shown: String = value.to_string().chars().take(100).collect();
        Error::new(
            ErrorKind::Corrupt,
            format!("a record has {shown} in a field of type {self}, which it cannot be read as"),
        )
    }

    /// Why fields of this type cannot become fields of another; `Ok` if they can, and old records stay as they are.
    /// `is_below` says whether a class is another one or below it.
    pub(super) fn check_widening(&self, to: &Self, is_below: &dyn Fn(&str, &str) -> bool) -> Result<(), &'static str> {
        match (self, to) {
            (from, to) if from == to => Ok(()),
            (Self::Int64, Self::Float64 | Self::Decimal) | (Self::Reference(_), Self::Reference(None)) => Ok(()),
            (Self::Reference(Some(from)), Self::Reference(Some(to))) if is_below(from, to) => Ok(()),
            (Self::Reference(_), Self::Reference(_)) => Err("old records may refer to objects of other classes"),
            (Self::List(from) | Self::Set(from), Self::List(to)) => from.check_widening(to, is_below),
            (Self::Map(key, from), Self::Map(other, to)) if key == other => from.check_widening(to, is_below),
            (Self::Set(from), Self::Set(to))
                if matches!((&**from, &**to), (Self::Reference(_), Self::Reference(_))) =>
            {
                from.check_widening(to, is_below)
            }
            (Self::Set(_), Self::Set(_)) | (Self::Map(..), Self::Map(..)) => {
                Err("different members of a set, or keys of a map, could become equal")
            }
            (Self::List(_), Self::Set(_)) => Err("a list may hold a value twice and has an order; a set does not"),
            (Self::Float64, Self::Decimal) => Err("infinities and NaN are no decimal numbers"),
            (Self::Decimal, Self::Float64) => Err("digits of decimal numbers would be lost"),
            (Self::Float64 | Self::Decimal, Self::Int64) => Err("fractions would be lost"),
            (Self::Bytes, Self::String) => Err("bytes need not be text"),
            // Queries compare old records as they are, which holds for numbers only.
            (Self::String, Self::Bytes) => Err("text and bytes do not compare with each other in queries"),
            (Self::Date, Self::Timestamp) => Err("days and moments do not compare with each other in queries"),
            (Self::Timestamp, Self::Date) => Err("the time of day would be lost"),
            _ => Err("values of the one are not values of the other: add a field, copy the values, remove the old one"),
        }
    }
}

/// As in queries and listings: `int64`, `ref<Person>`, `ref`, `list<string>`, `map<string, int64>`.
impl fmt::Display for FieldType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Int64 => f.write_str("int64"),
            Self::Float64 => f.write_str("float64"),
            Self::Decimal => f.write_str("decimal"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Date => f.write_str("date"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Reference(None) => f.write_str("ref"),
            Self::Reference(Some(class)) => write!(f, "ref<{class}>"),
            Self::List(item) => write!(f, "list<{item}>"),
            Self::Set(item) => write!(f, "set<{item}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
        }
    }
}

/// Reads what [`Display`](fmt::Display) writes.
impl std::str::FromStr for FieldType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text.trim(), 0).ok_or_else(|| {
            let shown: String = text.chars().take(100).collect();
            let known = "bool, int64, float64, decimal, string, bytes, date, timestamp, ref, ref<CLASS>, list<TYPE>, set<TYPE> \
                         or map<TYPE, TYPE>";
            Error::new(ErrorKind::Invalid, format!("{shown:?} is no type of a field: {known} please"))
        })
    }
}

fn parse(text: &str, depth: usize) -> Option<FieldType> {
    if depth > limits::NESTING {
        return None;
    }
    let inner = |name: &str| text.strip_prefix(name)?.trim_start().strip_prefix('<')?.strip_suffix('>').map(str::trim);
    let boxed = |text: &str| parse(text, depth + 1).map(Box::new);
    Some(match text {
        "bool" => FieldType::Bool,
        "int64" => FieldType::Int64,
        "float64" => FieldType::Float64,
        "decimal" => FieldType::Decimal,
        "string" => FieldType::String,
        "bytes" => FieldType::Bytes,
        "date" => FieldType::Date,
        "timestamp" => FieldType::Timestamp,
        "ref" => FieldType::Reference(None),
        _ => {
            if let Some(class) = inner("ref") {
                super::names::check_class(class).ok()?;
                return Some(FieldType::Reference(Some(class.to_owned())));
            }
            if let Some(item) = inner("list") {
                return Some(FieldType::List(boxed(item)?));
            }
            if let Some(item) = inner("set") {
                return Some(FieldType::Set(boxed(item)?));
            }
            let (key, value) = split_at_comma(inner("map")?)?;
            FieldType::Map(boxed(key)?, boxed(value)?)
        }
    })
}

/// Parts a text at its first comma that is not within `<` and `>`.
fn split_at_comma(text: &str) -> Option<(&str, &str)> {
    let mut open = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '<' => open += 1,
            '>' => open = open.checked_sub(1)?,
            ',' if open == 0 => return Some((text[..at].trim(), text[at + 1..].trim())),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_type(text: &str) -> FieldType {
        text.parse().unwrap()
    }

    #[test]
    fn types_come_back_from_text_and_json() {
        for text in
            ["bool", "ref", "ref<a.B$C>", "list<set<int64>>", "map<string, map<date, list<ref<P>>>>", "map<ref, bytes>"]
        {
            let parsed = field_type(text);
            assert_eq!(parsed.to_string(), text);
            let json = serde_json::to_string(&parsed).unwrap();
            assert_eq!(serde_json::from_str::<FieldType>(&json).unwrap(), parsed, "{json}");
        }
        for text in ["", "int", "list", "list<>", "map<int64>", "ref<a b>", "list<int64", &"list<".repeat(1000)] {
            assert!(text.parse::<FieldType>().is_err(), "{text}");
        }
        assert_eq!(
            serde_json::to_string(&field_type("map<string, ref<P>>")).unwrap(),
            r#"{"map":["string",{"ref":"P"}]}"#
        );
    }

    #[test]
    fn what_can_be_widened_is_read_as_the_new_type() {
        let below = |class: &str, of: &str| class == of || (class == "B" && of == "A");
        let date = Value::Date(model::Date { days: 1 });
        for (from, to, value) in [
            ("int64", "float64", Value::Int64(3)),
            ("int64", "decimal", Value::Int64(-3)),
            ("ref<B>", "ref<A>", Value::Reference("1.2.3.4.5".parse().unwrap())),
            ("ref<A>", "ref", Value::Null),
            ("list<int64>", "list<decimal>", Value::List(vec![Value::Int64(1), Value::Null])),
            ("set<int64>", "list<float64>", Value::Set([Value::Int64(1)].into())),
            ("set<ref<B>>", "set<ref>", Value::Set([].into())),
            ("map<date, int64>", "map<date, decimal>", Value::Map([(date, Value::Int64(1))].into())),
        ] {
            let (from, to) = (field_type(from), field_type(to));
            assert_eq!(from.check_widening(&to, &below), Ok(()), "{from} to {to}");
            assert!(from.accepts(&value) || value == Value::Null);
            let widened = to.widen(value).unwrap();
            assert!(to.accepts(&widened) || widened == Value::Null, "{widened} as {to}");
        }
    }

    #[test]
    fn what_would_lose_something_is_refused() {
        let below = |class: &str, of: &str| class == of;
        for (from, to) in [
            ("float64", "int64"),
            ("decimal", "float64"),
            ("float64", "decimal"),
            ("bytes", "string"),
            ("timestamp", "date"),
            ("string", "bytes"),
            ("date", "timestamp"),
            ("list<date>", "list<timestamp>"),
            ("list<int64>", "set<int64>"),
            ("set<int64>", "set<float64>"),
            ("map<int64, bool>", "map<float64, bool>"),
            ("int64", "string"),
            ("ref<A>", "ref<B>"),
            ("ref", "ref<A>"),
            ("list<bytes>", "list<string>"),
            ("int64", "list<int64>"),
        ] {
            assert!(field_type(from).check_widening(&field_type(to), &below).is_err(), "{from} to {to}");
        }
        assert_eq!(FieldType::Int64.widen(Value::from("x")).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
