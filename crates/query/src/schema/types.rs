//! The types of fields.

use bigdecimal::{BigDecimal, ToPrimitive};
use model::{ClassId, Decimal, Error, ErrorKind, Result, Value, limits};

/// What a field holds, unless it is null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A truth value.
    Bool,
    /// An integer of 64 bits.
    Int64,
    /// A floating-point number.
    Float64,
    /// A decimal number.
    Decimal,
    /// Text.
    String,
    /// Bytes.
    Bytes,
    /// A day.
    Date,
    /// A moment.
    Timestamp,
    /// An object of the class or of one that extends it, or any object.
    Reference(Option<ClassId>),
    /// Values of one type, in an order of the writer's.
    List(Box<Type>),
    /// Different values of one type.
    Set(Box<Type>),
    /// Values by keys.
    Map(Box<Type>, Box<Type>),
}

impl Type {
    /// A list of such values.
    #[must_use]
    pub fn list(element: Type) -> Self {
        Self::List(Box::new(element))
    }

    /// A set of such values.
    #[must_use]
    pub fn set(element: Type) -> Self {
        Self::Set(Box::new(element))
    }

    /// A map from such keys to such values.
    #[must_use]
    pub fn map(key: Type, value: Type) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    /// Whether it is a type of numbers.
    #[must_use]
    pub fn is_number(&self) -> bool {
        matches!(self, Self::Int64 | Self::Float64 | Self::Decimal)
    }

    /// Whether values of the two compare with each other: equal types, numbers of any type, references to anything.
    #[must_use]
    pub fn compares_with(&self, other: &Type) -> bool {
        match (self, other) {
            (Self::List(_) | Self::Set(_) | Self::Map(..), _) => false,
            (Self::Reference(_), Self::Reference(_)) => true,
            (a, b) => a == b || (a.is_number() && b.is_number()),
        }
    }

    /// The type of an element of a list or set, or of a key of a map.
    #[must_use]
    pub fn element(&self) -> Option<&Type> {
        match self {
            Self::List(element) | Self::Set(element) | Self::Map(element, _) => Some(element),
            _ => None,
        }
    }

    /// Whether a field of this type can hold the value.
    #[must_use]
    pub fn holds(&self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null)
            | (Self::Bool, Value::Bool(_))
            | (Self::Int64, Value::Int64(_))
            | (Self::Float64, Value::Float64(_))
            | (Self::Decimal, Value::Decimal(_))
            | (Self::String, Value::String(_))
            | (Self::Bytes, Value::Bytes(_))
            | (Self::Date, Value::Date(_))
            | (Self::Timestamp, Value::Timestamp(_))
            | (Self::Reference(_), Value::Reference(_)) => true,
            (Self::List(element), Value::List(values)) => values.iter().all(|value| element.holds(value)),
            (Self::Set(element), Value::Set(values)) => values.iter().all(|value| element.holds(value)),
            (Self::Map(key, of), Value::Map(entries)) => {
                entries.iter().all(|(name, value)| key.holds(name) && of.holds(value))
            }
            _ => false,
        }
    }

    /// A value as this type has it: numbers that were written as another type of number become this one, also within
    /// lists, sets and maps; and sets become lists.
    ///
    /// What cannot be converted without becoming another number stays as it is, but for an integer or a decimal that
    /// becomes the nearest floating-point number.
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

    /// The type in a word, without the classes of references and the elements of collections.
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

    /// The classes that are referred to.
    pub(super) fn classes(&self) -> Box<dyn Iterator<Item = ClassId> + '_> {
        match self {
            Self::Reference(class) => Box::new(class.iter().copied()),
            Self::List(element) | Self::Set(element) => element.classes(),
            Self::Map(key, value) => Box::new(key.classes().chain(value.classes())),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Values of the type must fit into records.
    pub(super) fn check_nesting(&self) -> Result<()> {
        fn levels(ty: &Type) -> usize {
            match ty {
                Type::List(element) | Type::Set(element) => 1 + levels(element),
                Type::Map(key, value) => 1 + levels(key).max(levels(value)),
                _ => 0,
            }
        }
        match levels(self) {
            0..=limits::NESTING => Ok(()),
            levels => Err(Error::new(ErrorKind::TooLarge, format!("its type has {levels} levels within each other"))),
        }
    }
}

/// The floating-point number nearest to a decimal, infinite if that is so large.
pub(crate) fn nearest_double(number: &Decimal) -> f64 {
    // Through text, which rounds once, and correctly.
    let number = number.to_big();
    let (digits, scale) = number.as_bigint_and_exponent();
    format!("{digits}e{}", -scale).parse().unwrap_or_else(|_| number.to_f64().unwrap_or(f64::NAN))
}
