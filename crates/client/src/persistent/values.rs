//! Types of the fields of persistent structs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{Date, Decimal, Error, ErrorKind, Oid, Result, Timestamp, Value};

use super::{Classes, FieldType, Persistent, Ref};

/// A type that a field of a [`Persistent`] struct can have.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a field of a persistent struct",
    label = "not a value of a record",
    note = "fields are bool, i8 to i64, u16, u32, f32, f64, String, Bytes, Decimal, Date, Timestamp, Oid, Ref<T>, and Option, \
            Vec, BTreeSet and BTreeMap of them",
    note = "bytes are `bytes::Bytes`; a struct within a struct is a `Ref<T>`, or a parent: #[persistent(parent)]; what is not \
            to be stored is #[persistent(skip)]"
)]
pub trait FieldValue: Sized {
    /// Whether it may be null.
    const OPTIONAL: bool = false;

    /// The type of the field in the class.
    fn field_type() -> FieldType;

    /// Adds the classes that a field of this type refers to.
    fn related(classes: &mut Classes) {
        let _ = classes;
    }

    /// The value, for a record.
    fn to_value(&self) -> Value;

    /// The value of a record.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is of another type, or too large.
    fn from_value(value: Value) -> Result<Self>;
}

fn mismatch(value: &Value, ty: &FieldType) -> Error {
    if *value == Value::Null {
        return Error::new(
            ErrorKind::Invalid,
            format!("it is null, and of type {ty} in the program: make that an Option"),
        );
    }
    let shown: String = value.to_string().chars().take(100).collect();
    Error::new(ErrorKind::Invalid, format!("it is {shown}, and of type {ty} in the program"))
}

macro_rules! plain {
    ($($ty:ty => $variant:ident),* $(,)?) => {
        $(impl FieldValue for $ty {
            fn field_type() -> FieldType {
                FieldType::$variant
            }

            fn to_value(&self) -> Value {
                Value::$variant(self.clone())
            }

            fn from_value(value: Value) -> Result<Self> {
                match value {
                    Value::$variant(value) => Ok(value),
                    other => Err(mismatch(&other, &Self::field_type())),
                }
            }
        })*
    };
}

plain! {
    bool => Bool,
    i64 => Int64,
    f64 => Float64,
    Decimal => Decimal,
    String => String,
    Bytes => Bytes,
    Date => Date,
    Timestamp => Timestamp,
}

macro_rules! small {
    ($($ty:ty),*) => {
        $(impl FieldValue for $ty {
            fn field_type() -> FieldType {
                FieldType::Int64
            }

            fn to_value(&self) -> Value {
                Value::Int64(i64::from(*self))
            }

            fn from_value(value: Value) -> Result<Self> {
                let number = i64::from_value(value)?;
                Self::try_from(number).map_err(|_| {
                    let ty = stringify!($ty);
                    Error::new(ErrorKind::Invalid, format!("it is {number}, which does not fit the program's {ty}"))
                })
            }
        })*
    };
}

small!(i8, i16, i32, u16, u32);

impl FieldValue for f32 {
    fn field_type() -> FieldType {
        FieldType::Float64
    }

    fn to_value(&self) -> Value {
        Value::Float64(f64::from(*self))
    }

    fn from_value(value: Value) -> Result<Self> {
        let number = f64::from_value(value)?;
        let short = number as f32;
        if f64::from(short) == number || number.is_nan() {
            return Ok(short);
        }
        Err(Error::new(ErrorKind::Invalid, format!("it is {number:?}, which the program's f32 would round")))
    }
}

impl FieldValue for Oid {
    fn field_type() -> FieldType {
        FieldType::Reference(None)
    }

    fn to_value(&self) -> Value {
        Value::Reference(*self)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Reference(oid) => Ok(oid),
            other => Err(mismatch(&other, &Self::field_type())),
        }
    }
}

impl<T: Persistent> FieldValue for Ref<T> {
    fn field_type() -> FieldType {
        FieldType::Reference(Some(T::CLASS))
    }

    fn related(classes: &mut Classes) {
        classes.add::<T>();
    }

    fn to_value(&self) -> Value {
        Value::Reference(self.oid())
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Reference(oid) => Ok(Self::new(oid)),
            other => Err(mismatch(&other, &Self::field_type())),
        }
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    const OPTIONAL: bool = true;

    fn field_type() -> FieldType {
        T::field_type()
    }

    fn related(classes: &mut Classes) {
        T::related(classes);
    }

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl<T: FieldValue> FieldValue for Vec<T> {
    fn field_type() -> FieldType {
        FieldType::List(Box::new(T::field_type()))
    }

    fn related(classes: &mut Classes) {
        T::related(classes);
    }

    fn to_value(&self) -> Value {
        Value::List(self.iter().map(T::to_value).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::List(values) => values.into_iter().map(T::from_value).collect(),
            other => Err(mismatch(&other, &Self::field_type())),
        }
    }
}

impl<T: FieldValue + Ord> FieldValue for BTreeSet<T> {
    fn field_type() -> FieldType {
        FieldType::Set(Box::new(T::field_type()))
    }

    fn related(classes: &mut Classes) {
        T::related(classes);
    }

    fn to_value(&self) -> Value {
        Value::Set(self.iter().map(T::to_value).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        match value {
            Value::Set(values) => values.into_iter().map(T::from_value).collect(),
            other => Err(mismatch(&other, &Self::field_type())),
        }
    }
}

impl<K: FieldValue + Ord, V: FieldValue> FieldValue for BTreeMap<K, V> {
    fn field_type() -> FieldType {
        FieldType::Map(Box::new(K::field_type()), Box::new(V::field_type()))
    }

    fn related(classes: &mut Classes) {
        K::related(classes);
        V::related(classes);
    }

    fn to_value(&self) -> Value {
        Value::Map(self.iter().map(|(key, value)| (key.to_value(), value.to_value())).collect())
    }

    fn from_value(value: Value) -> Result<Self> {
        let entry = |(key, value)| Ok((K::from_value(key)?, V::from_value(value)?));
        match value {
            Value::Map(entries) => entries.into_iter().map(entry).collect(),
            other => Err(mismatch(&other, &Self::field_type())),
        }
    }
}
