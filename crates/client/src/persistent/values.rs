//! Types of the fields of persistent structs.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{Date, Decimal, Error, ErrorKind, Oid, Result, Timestamp, Value, ValueRef};

use super::{Classes, FieldType, Persistent, Ref};

/// A type that a field of a [`Persistent`] struct can have. An `Option` of an `Option` does not compile, because `None` and `Some(None)` would
/// both be null:
///
/// ```compile_fail
/// #[derive(client::Persistent)]
/// struct Patient {
///     allergy: Option<Option<String>>,
/// }
/// <Patient as client::Persistent>::class();
/// ```
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
    fn add_related(classes: &mut Classes) {
        let _ = classes;
    }

    /// The value, for a record.
    fn to_value(&self) -> Value;

    /// The value of a record.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is of another type, or too large.
    fn from_value(value: Value) -> Result<Self>;

    /// The same from the encoded value, without a [`Value`] between; `None` if it has to be converted, or cannot be.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the value is damaged.
    fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
        let _ = value;
        Ok(None)
    }
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
    ($($ty:ty => $variant:ident $(, |$encoded:ident| $decoded:expr)?);* $(;)?) => {
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

            $(fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
                Ok(if let ValueRef::$variant($encoded) = value { Some($decoded) } else { None })
            })?
        })*
    };
}

plain! {
    bool => Bool, |value| value;
    i64 => Int64, |value| value;
    f64 => Float64, |value| value;
    Decimal => Decimal;
    String => String, |value| value.to_owned();
    Bytes => Bytes, |value| Self::copy_from_slice(value);
    Date => Date, |value| value;
    Timestamp => Timestamp, |value| value;
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

            fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
                Ok(i64::from_encoded(value)?.and_then(|number| Self::try_from(number).ok()))
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

    fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
        Ok(if let ValueRef::Reference(oid) = value { Some(oid) } else { None })
    }
}

impl<T: Persistent> FieldValue for Ref<T> {
    fn field_type() -> FieldType {
        FieldType::Reference(Some(T::CLASS))
    }

    fn add_related(classes: &mut Classes) {
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

    fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
        Ok(Oid::from_encoded(value)?.map(Self::new))
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    const OPTIONAL: bool = {
        assert!(!T::OPTIONAL, "an Option of an Option is no field: None and Some(None) would both be null");
        true
    };

    fn field_type() -> FieldType {
        // Also of elements, whose `OPTIONAL` nothing else asks for.
        const { assert!(Self::OPTIONAL) };
        T::field_type()
    }

    fn add_related(classes: &mut Classes) {
        T::add_related(classes);
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

    fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
        Ok(T::from_encoded(value)?.map(Some))
    }
}

impl<T: FieldValue> FieldValue for Vec<T> {
    fn field_type() -> FieldType {
        FieldType::List(Box::new(T::field_type()))
    }

    fn add_related(classes: &mut Classes) {
        T::add_related(classes);
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

    fn from_encoded(value: ValueRef<'_>) -> Result<Option<Self>> {
        let ValueRef::List(elements) = value else { return Ok(None) };
        let mut decoded = Self::with_capacity(elements.len());
        for element in elements.iter() {
            let Some(element) = T::from_encoded(element?)? else { return Ok(None) };
            decoded.push(element);
        }
        Ok(Some(decoded))
    }
}

impl<T: FieldValue + Ord> FieldValue for BTreeSet<T> {
    fn field_type() -> FieldType {
        FieldType::Set(Box::new(T::field_type()))
    }

    fn add_related(classes: &mut Classes) {
        T::add_related(classes);
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

    fn add_related(classes: &mut Classes) {
        K::add_related(classes);
        V::add_related(classes);
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

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use model::{ClassId, FieldNumber, NodeId, PageId, RecordBuilder, RecordRef, SpaceId};

    use super::*;

    /// What the encoding of a value is read as. With a [`Value`] between it must be the same.
    fn read<T: FieldValue + PartialEq + Debug>(value: &Value) -> Option<T> {
        let mut builder = RecordBuilder::new();
        builder.set_value(FieldNumber(0), value).unwrap();
        let record = builder.build().unwrap();
        let encoded = RecordRef::new(&record).unwrap().field(FieldNumber(0)).unwrap().unwrap();
        let decoded = T::from_encoded(encoded).unwrap();
        if let Some(decoded) = &decoded {
            assert_eq!(*decoded, T::from_value(encoded.to_value().unwrap()).unwrap());
        }
        decoded
    }

    #[test]
    fn an_encoded_value_is_read_as_the_value_is() {
        let page = PageId { space: SpaceId(1), node: NodeId(2), number: 3 };
        let oid = Oid::new(ClassId(4), page, 5);
        assert_eq!(read(&Value::Bool(true)), Some(true));
        assert_eq!(read(&Value::Int64(-7)), Some(-7_i64));
        assert_eq!(read(&Value::Int64(-7)), Some(-7_i8));
        assert_eq!(read(&Value::Float64(0.5)), Some(0.5));
        assert_eq!(read(&Value::String("a".into())), Some("a".to_owned()));
        assert_eq!(read(&Value::Bytes(Bytes::from_static(b"b"))), Some(Bytes::from_static(b"b")));
        assert_eq!(read(&Value::Reference(oid)), Some(oid));
        assert_eq!(read(&Value::Int64(1)), Some(Some(1_i64)));
        let list = Value::List(vec![Value::Int64(1), Value::Int64(2)]);
        assert_eq!(read(&list), Some(vec![1_i64, 2]));
        assert_eq!(read(&Value::List(vec![list])), Some(vec![vec![1_i64, 2]]));
        assert_eq!(read(&Value::List(vec![])), Some(Vec::<i64>::new()));
    }

    #[test]
    fn value_of_another_type_is_refused_with_its_beginning_and_null_with_what_to_do() {
        let refused = |value: Value| i64::from_value(value).unwrap_err();
        let long = refused(Value::String("é".repeat(1_000)));
        let shown = format!("it is \"{}, and of type int64 in the program", "é".repeat(99));
        assert_eq!((long.kind(), long.message()), (ErrorKind::Invalid, &*shown));
        assert_eq!(refused(Value::Bool(true)).message(), "it is true, and of type int64 in the program");
        assert!(refused(Value::Null).message().contains("make that an Option"));
    }

    #[test]
    fn what_has_to_be_converted_or_refused_is_not_read_from_its_encoding() {
        assert_eq!(read::<f64>(&Value::Int64(1)), None, "of an older version of the class");
        assert_eq!(read::<i8>(&Value::Int64(1_000)), None);
        assert_eq!(read::<i64>(&Value::String("1".into())), None);
        assert_eq!(read::<String>(&Value::Bytes(Bytes::from_static(b"b"))), None);
        assert_eq!(read::<Vec<i64>>(&Value::Set([Value::Int64(1)].into())), None);
        assert_eq!(read::<Vec<f64>>(&Value::List(vec![Value::Float64(1.0), Value::Int64(2)])), None);
        assert_eq!(read::<Vec<Option<i64>>>(&Value::List(vec![Value::Int64(1), Value::Null])), None);
        assert_eq!(read::<f32>(&Value::Float64(0.1)), None);
    }
}
