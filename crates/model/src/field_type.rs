//! The types of fields, and the changes of types that keep old records readable.

use std::convert::Infallible;
use std::fmt;

use bigdecimal::{BigDecimal, ToPrimitive};

use crate::{Decimal, Error, ErrorKind, Result, Value, limits};

/// The type of a field. Whether a field is nullable is a property of the field; elements of lists, sets and maps are
/// always nullable.
///
/// `C` is the name of a class in references: a text in the catalogue, on the wire and in programs, a
/// [`ClassId`](crate::ClassId) in queries. [`FieldType::try_map_classes`] converts between them.
///
/// In JSON (feature `serde`): `"int64"`, `{"ref":"Person"}` (`{"ref":null}` for objects of any class),
/// `{"list":"string"}`, `{"map":["string","int64"]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum FieldType<C = String> {
    /// A Boolean value.
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
    /// A point in time with nanosecond precision.
    Timestamp,
    /// A reference to an object of this class or of a subclass, in the same space; any object for `None`.
    #[cfg_attr(feature = "serde", serde(rename = "ref"))]
    Reference(Option<C>),
    /// An ordered list.
    List(Box<Self>),
    /// A set.
    Set(Box<Self>),
    /// A map.
    Map(Box<Self>, Box<Self>),
}

impl<C> FieldType<C> {
    /// A list of values of this type.
    #[must_use]
    pub fn list(element: Self) -> Self {
        Self::List(Box::new(element))
    }

    /// A set of values of this type.
    #[must_use]
    pub fn set(element: Self) -> Self {
        Self::Set(Box::new(element))
    }

    /// A map from keys to values of these types.
    #[must_use]
    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    /// The type with classes named in another way. If `class` returns `None` for a class, references to it become
    /// references to any object.
    ///
    /// # Errors
    /// The first error of `class`.
    pub fn try_map_classes<D, E>(
        &self,
        class: &mut impl FnMut(&C) -> std::result::Result<Option<D>, E>,
    ) -> std::result::Result<FieldType<D>, E> {
        Ok(match self {
            Self::Bool => FieldType::Bool,
            Self::Int64 => FieldType::Int64,
            Self::Float64 => FieldType::Float64,
            Self::Decimal => FieldType::Decimal,
            Self::String => FieldType::String,
            Self::Bytes => FieldType::Bytes,
            Self::Date => FieldType::Date,
            Self::Timestamp => FieldType::Timestamp,
            Self::Reference(of) => FieldType::Reference(of.as_ref().map(class).transpose()?.flatten()),
            Self::List(element) => FieldType::list(element.try_map_classes(class)?),
            Self::Set(element) => FieldType::set(element.try_map_classes(class)?),
            Self::Map(key, value) => FieldType::map(key.try_map_classes(class)?, value.try_map_classes(class)?),
        })
    }

    /// As [`FieldType::try_map_classes`], for a conversion that cannot fail.
    #[must_use]
    pub fn map_classes<D>(&self, class: &impl Fn(&C) -> Option<D>) -> FieldType<D> {
        let Ok(mapped) = self.try_map_classes(&mut |of| Ok::<_, Infallible>(class(of)));
        mapped
    }

    /// The classes that references name.
    #[must_use]
    pub fn classes(&self) -> Vec<&C> {
        match self {
            Self::Reference(class) => class.iter().collect(),
            Self::List(element) | Self::Set(element) => element.classes(),
            Self::Map(key, value) => key.classes().into_iter().chain(value.classes()).collect(),
            _ => Vec::new(),
        }
    }

    /// The number of nested levels of lists, sets and maps.
    #[must_use]
    pub fn depth(&self) -> usize {
        match self {
            Self::List(element) | Self::Set(element) => 1 + element.depth(),
            Self::Map(key, value) => 1 + key.depth().max(value.depth()),
            _ => 0,
        }
    }

    /// Whether the type is nested at most as deep as values can be ([`limits::NESTING`]).
    #[must_use]
    pub fn is_within_nesting_limit(&self) -> bool {
        self.depth() <= limits::NESTING
    }

    /// Whether the type is numeric.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Int64 | Self::Float64 | Self::Decimal)
    }

    /// Whether values of the type are ordered, so that an index can contain them.
    #[must_use]
    pub const fn is_scalar(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Set(_) | Self::Map(..))
    }

    /// The type of an element of a list or set, or of a key of a map.
    #[must_use]
    pub fn element(&self) -> Option<&Self> {
        match self {
            Self::List(element) | Self::Set(element) | Self::Map(element, _) => Some(element),
            _ => None,
        }
    }

    /// Whether queries can compare values of the two types: equal types, numeric types, or references.
    #[must_use]
    pub fn compares_with(&self, other: &Self) -> bool
    where
        C: PartialEq,
    {
        match (self, other) {
            (Self::List(_) | Self::Set(_) | Self::Map(..), _) => false,
            (Self::Reference(_), Self::Reference(_)) => true,
            (a, b) => a == b || (a.is_number() && b.is_number()),
        }
    }

    /// The name of the type without the classes of references and the elements of collections.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int64 => "int64",
            Self::Float64 => "float64",
            Self::Decimal => "decimal",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Date => "date",
            Self::Timestamp => "timestamp",
            Self::Reference(_) => "reference",
            Self::List(_) => "list",
            Self::Set(_) => "set",
            Self::Map(..) => "map",
        }
    }
}

// ---------------------------------------------------------------------------------------------- values

impl<C> FieldType<C> {
    /// Whether a value is of the type. Null is of no type. The class of a referenced object is not checked.
    #[must_use]
    pub fn accepts(&self, value: &Value) -> bool {
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
            (Self::List(element), Value::List(values)) => values.iter().all(|value| element.accepts_or_null(value)),
            (Self::Set(element), Value::Set(values)) => values.iter().all(|value| element.accepts_or_null(value)),
            (Self::Map(key, of), Value::Map(entries)) => {
                entries.iter().all(|(name, value)| key.accepts_or_null(name) && of.accepts_or_null(value))
            }
            _ => false,
        }
    }

    /// Whether a value is of the type, or null.
    #[must_use]
    pub fn accepts_or_null(&self, value: &Value) -> bool {
        matches!(value, Value::Null) || self.accepts(value)
    }

    /// Converts a value that was stored when the field had another type. Numbers of another type become numbers of this
    /// type, also within lists, sets and maps; sets become lists.
    ///
    /// An integer or a decimal becomes the nearest floating-point number. Any other value without an equal in this type
    /// is returned unchanged.
    #[must_use]
    pub fn convert(&self, value: Value) -> Value {
        match (self, value) {
            (Self::Float64, Value::Int64(number)) => Value::Float64(number as f64),
            (Self::Float64, Value::Decimal(number)) => Value::Float64(nearest_double(&number)),
            (Self::Decimal, Value::Int64(number)) => Value::Decimal(number.into()),
            (Self::Decimal, Value::Float64(number)) => {
                let exact = BigDecimal::try_from(number).ok().and_then(|exact| Decimal::try_from(&exact).ok());
                exact.map_or(Value::Float64(number), Value::Decimal)
            }
            (Self::List(element), Value::List(values)) => {
                Value::List(values.into_iter().map(|value| element.convert(value)).collect())
            }
            (Self::List(element), Value::Set(values)) => {
                Value::List(values.into_iter().map(|value| element.convert(value)).collect())
            }
            (Self::Set(element), Value::Set(values)) => {
                Value::Set(values.into_iter().map(|value| element.convert(value)).collect())
            }
            (Self::Map(key, of), Value::Map(entries)) => {
                Value::Map(entries.into_iter().map(|(name, value)| (key.convert(name), of.convert(value))).collect())
            }
            (_, value) => value,
        }
    }

    /// Checks that the type of a field can change to `to` while old records stay as they are. `is_below` returns
    /// whether the first class is the second one or a subclass of it.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn check_widening(&self, to: &Self, is_below: &dyn Fn(&C, &C) -> bool) -> std::result::Result<(), &'static str>
    where
        C: PartialEq,
    {
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
            (Self::Float64, Self::Decimal) => Err("infinities and NaN are not decimal numbers"),
            (Self::Decimal, Self::Float64) => Err("digits of decimal numbers would be lost"),
            (Self::Float64 | Self::Decimal, Self::Int64) => Err("fractions would be lost"),
            (Self::Bytes, Self::String) => Err("bytes need not be text"),
            // Queries compare stored values without conversion, which is correct for numbers only.
            (Self::String, Self::Bytes) => Err("text and bytes do not compare with each other in queries"),
            (Self::Date, Self::Timestamp) => Err("days and moments do not compare with each other in queries"),
            (Self::Timestamp, Self::Date) => Err("the time of day would be lost"),
            _ => Err("their values cannot be converted: add a field, copy the values, and remove the old field"),
        }
    }
}

// ---------------------------------------------------------------------------------------------- text

/// The form in listings and error messages: `int64`, `ref<Person>`, `ref`, `list<string>`, `map<string, int64>`.
impl<C: fmt::Display> fmt::Display for FieldType<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reference(None) => f.write_str("ref"),
            Self::Reference(Some(class)) => write!(f, "ref<{class}>"),
            Self::List(element) => write!(f, "list<{element}>"),
            Self::Set(element) => write!(f, "set<{element}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
            scalar => f.write_str(scalar.word()),
        }
    }
}

/// Parses the output of [`Display`](fmt::Display).
impl std::str::FromStr for FieldType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text.trim(), 0).ok_or_else(|| {
            let shown: String = text.chars().take(100).collect();
            let known = "bool, int64, float64, decimal, string, bytes, date, timestamp, ref, ref<CLASS>, list<TYPE>, set<TYPE> \
                         and map<TYPE, TYPE>";
            Error::new(ErrorKind::Invalid, format!("{shown:?} is not a field type; the types are {known}"))
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
                return is_class_name(class).then(|| FieldType::Reference(Some(class.to_owned())));
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

/// Splits a text at its first comma outside of `<` and `>`.
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

/// Whether a text is a valid class name: up to 255 bytes of identifiers separated by dots, such as
/// `com.example.Point$Inner`.
#[must_use]
pub fn is_class_name(text: &str) -> bool {
    text.len() <= limits::CLASS_NAME && text.split('.').all(is_identifier)
}

/// Whether a text is an identifier as in Java: a letter, `_` or `$`, followed by these and digits.
#[must_use]
pub fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = |c: char| c.is_alphabetic() || matches!(c, '_' | '$');
    chars.next().is_some_and(begins) && chars.all(|c| begins(c) || c.is_alphanumeric())
}

/// The floating-point number nearest to a decimal; infinite if the decimal is out of range.
#[must_use]
pub fn nearest_double(number: &Decimal) -> f64 {
    // Parsing the text rounds once and correctly.
    let number = number.to_big();
    let (digits, scale) = number.as_bigint_and_exponent();
    format!("{digits}e{}", -scale).parse().unwrap_or_else(|_| number.to_f64().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_type(text: &str) -> FieldType {
        text.parse().unwrap()
    }

    #[test]
    fn types_are_parsed_from_their_text() {
        for text in
            ["bool", "ref", "ref<a.B$C>", "list<set<int64>>", "map<string, map<date, list<ref<P>>>>", "map<ref, bytes>"]
        {
            let parsed = field_type(text);
            assert_eq!(parsed.to_string(), text);
        }
        for text in ["", "int", "list", "list<>", "map<int64>", "ref<a b>", "list<int64", &"list<".repeat(1000)] {
            assert!(text.parse::<FieldType>().is_err(), "{text}");
        }
    }

    #[test]
    fn widened_values_are_read_as_the_new_type() {
        let below = |class: &String, of: &String| class == of || (class == "B" && of == "A");
        let date = Value::Date(crate::Date { days: 1 });
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
            let widened = to.convert(value);
            assert!(to.accepts(&widened) || widened == Value::Null, "{widened} as {to}");
        }
    }

    #[test]
    fn changes_of_types_that_lose_values_are_refused() {
        let below = |class: &String, of: &String| class == of;
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
    }
}
