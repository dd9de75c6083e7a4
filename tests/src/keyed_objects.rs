//! Objects of histories (docs/history.md): growing lists, and objects with a single value.

use std::collections::BTreeMap;

use model::{ClassId, FieldNumber, Object, Oid, RecordBuilder, RecordRef, Value};

/// The class of lists that are records, and the field with the elements: the first ones of the space.
const CLASS: ClassId = ClassId(1);
const ELEMENTS: FieldNumber = FieldNumber(1);

/// An object, and its key in histories.
#[derive(Clone, Debug)]
pub struct KeyedObject {
    /// The key.
    pub key: String,
    /// The object.
    pub oid: Oid,
    /// How it stores its value.
    pub form: ObjectForm,
}

/// How an object stores its value.
#[derive(Clone, Copy, Debug)]
pub enum ObjectForm {
    /// As the bytes of a blob.
    Blob,
    /// As this field of a record.
    Record(FieldNumber),
}

impl ObjectForm {
    /// The form of the objects of a class that Rust clients have created.
    #[must_use]
    pub fn of_class(class: ClassId) -> Self {
        if class == CLASS { Self::Record(ELEMENTS) } else { Self::Blob }
    }
}

impl KeyedObject {
    /// The elements of a list.
    ///
    /// # Errors
    /// With a state that no client should see.
    pub fn elements(&self, object: Option<&Object>) -> Result<Vec<i64>, String> {
        let object = object.ok_or("a list does not exist")?;
        let ObjectForm::Record(field) = self.form else {
            let (numbers, rest) = object.data.as_chunks::<8>();
            let whole = Some(numbers).filter(|_| rest.is_empty()).ok_or("a list as a blob is torn")?;
            return Ok(whole.iter().map(|number| i64::from_le_bytes(*number)).collect());
        };
        let Some(Value::List(list)) = fields(object)?.remove(&field) else {
            return Err("a list has no elements field".to_owned());
        };
        let number = |value: &Value| match value {
            Value::Int64(number) => Ok(*number),
            other => Err(format!("a list has an element {other:?}")),
        };
        list.iter().map(number).collect()
    }

    /// The list with these elements instead.
    ///
    /// # Errors
    /// With a state that no client should see.
    pub fn with_elements(&self, object: Option<&Object>, elements: &[i64]) -> Result<Object, String> {
        match self.form {
            ObjectForm::Blob => Ok(list_object(false, elements)),
            ObjectForm::Record(field) => with_field(object, field, list_value(elements)),
        }
    }

    /// The single value of an object; `None` if none was ever written.
    ///
    /// # Errors
    /// With a state that no client should see.
    pub fn value(&self, object: Option<&Object>) -> Result<Option<i64>, String> {
        let ObjectForm::Record(field) = self.form else { return value(object) };
        match fields(object.ok_or("a single value does not exist")?)?.get(&field) {
            Some(Value::Int64(value)) => Ok(Some(*value)),
            other => Err(format!("{other:?} as a single value")),
        }
    }

    /// The object with this single value instead.
    ///
    /// # Errors
    /// With a state that no client should see.
    pub fn with_value(&self, object: Option<&Object>, value: i64) -> Result<Object, String> {
        match self.form {
            ObjectForm::Blob => Ok(single_object(value)),
            ObjectForm::Record(field) => with_field(object, field, Value::Int64(value)),
        }
    }
}

fn fields(object: &Object) -> Result<BTreeMap<FieldNumber, Value>, String> {
    let record = RecordRef::validate(&object.data).and_then(|record| record.to_fields());
    record.map_err(|error| format!("a record: {error}"))
}

/// The object with another value of a field. The other fields stay.
///
/// # Errors
/// If there is no such object, or it is not a record.
pub fn with_field(object: Option<&Object>, field: FieldNumber, value: Value) -> Result<Object, String> {
    let object = object.ok_or("an object does not exist")?;
    let mut fields = fields(object)?;
    fields.insert(field, value);
    let mut record = RecordBuilder::new();
    for (number, value) in &fields {
        record.set_value(*number, value).map_err(|error| error.to_string())?;
    }
    Ok(Object::record(object.class, record.build().map_err(|error| error.to_string())?))
}

fn list_value(elements: &[i64]) -> Value {
    Value::List(elements.iter().copied().map(Value::Int64).collect())
}

/// A list with these elements.
///
/// # Panics
/// If a record cannot have so many.
#[must_use]
pub fn list_object(is_record: bool, elements: &[i64]) -> Object {
    if !is_record {
        let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_le_bytes()).collect();
        return Object::blob(bytes.into());
    }
    let mut record = RecordBuilder::new();
    record.set_value(ELEMENTS, &list_value(elements)).expect("a list of numbers is a value");
    Object::record(CLASS, record.build().expect("a record has room for the elements"))
}

/// A single value as a blob.
#[must_use]
pub fn single_object(value: i64) -> Object {
    Object::blob(value.to_string().into())
}

/// The value of a blob; `None` if none was ever written.
///
/// # Errors
/// With a state that no client should see.
pub fn value(object: Option<&Object>) -> Result<Option<i64>, String> {
    let object = object.ok_or("a single value does not exist")?;
    let text = std::str::from_utf8(&object.data).map_err(|error| error.to_string())?;
    match text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|error| format!("{text:?} as a single value: {error}")),
    }
}
