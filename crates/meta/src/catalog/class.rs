//! What the catalogue requires of classes and fields: names, types, defaults and numbers.

use std::collections::BTreeSet;

use model::value_json::ValueAsJson;
use model::{Class, ClassDefinition, ClassId, FieldDefinition, FieldType, Value};

use super::entry::Record;
use super::error::CatalogError;
use super::names;
use crate::limits;

/// Checks the name, the type and the default of a field.
pub(super) fn check_field(field: &FieldDefinition) -> Result<(), CatalogError> {
    names::check_field(&field.name)?;
    if !field.field_type.is_within_nesting_limit() {
        let why = format!("lists, sets and maps nest up to {} deep", model::limits::NESTING);
        return Err(CatalogError::invalid("the type of a field", &field.field_type, why));
    }
    field.field_type.classes().into_iter().try_for_each(|class| names::check_class(class))?;
    check_default(&field.field_type, field.optional, field.default.as_ref())
}

/// Checks of the definition of a class what does not depend on other classes.
pub(super) fn check_definition(definition: &ClassDefinition) -> Result<(), CatalogError> {
    names::check_class(&definition.name)?;
    check_count(&definition.name, definition.fields.len())?;
    definition.fields.iter().try_for_each(check_field)?;
    check_names(definition.fields.iter().map(|field| field.name.as_str()))
}

/// Checks that a default fits its field.
pub(super) fn check_default(of: &FieldType, optional: bool, default: Option<&Value>) -> Result<(), CatalogError> {
    let Some(default) = default else { return Ok(()) };
    let refuse = |why: String| Err(CatalogError::invalid("the default of a field", default, why));
    let is_null = matches!(default, Value::Null);
    if json_len(default) > limits::DEFAULT {
        return refuse(format!("it has up to {} bytes", limits::DEFAULT));
    }
    if is_null && !optional {
        return refuse("the field cannot be null".to_owned());
    }
    if !is_null && !of.accepts(default) {
        return refuse(format!("the field holds {of}"));
    }
    Ok(())
}

/// Length of the JSON form of a value.
fn json_len(value: &Value) -> usize {
    // A value that cannot be encoded counts as too long.
    serde_json::to_string(&ValueAsJson(value)).map_or(usize::MAX, |json| json.len())
}

impl Record for Class {
    fn check(&self) -> Result<(), CatalogError> {
        names::check_class(&self.name)?;
        if self.id == ClassId::NONE || self.version == 0 {
            return Err(CatalogError::invalid("the number or version of a class", 0, "they count from 1"));
        }
        check_count(&self.name, self.fields.len())?;
        for field in &self.fields {
            check_field(&field.definition())?;
            // A field that became required keeps the value of older records.
            check_default(&field.field_type, true, field.missing.as_ref())?;
        }
        check_names(self.fields.iter().map(|field| field.name.as_str()))?;
        if !self.fields.is_sorted_by(|a, b| a.number < b.number) {
            return Err(CatalogError::invalid("the fields of a class", &self.name, "their numbers ascend"));
        }
        Ok(())
    }
}

/// Checks the number of fields.
pub(super) fn check_count(class: &str, fields: usize) -> Result<(), CatalogError> {
    if fields > limits::FIELDS {
        let why =
            format!("it has up to {} fields with those of its parents; this one would have {fields}", limits::FIELDS);
        return Err(CatalogError::invalid("a class", class, why));
    }
    Ok(())
}

fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), CatalogError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(CatalogError::invalid("the name of a field", name, "another field of the class has it"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use model::{Date, Timestamp};
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Holder {
        #[serde(with = "model::value_json::option", default)]
        value: Option<Value>,
    }

    fn round_trip(value: Value) -> Option<Value> {
        let text = serde_json::to_string(&Holder { value: Some(value) }).unwrap();
        serde_json::from_str::<Holder>(&text).unwrap().value
    }

    #[test]
    fn values_keep_their_types_in_json() {
        let scalars = vec![
            Value::Bool(true),
            Value::Int64(i64::MIN),
            Value::Float64(0.1),
            Value::Float64(f64::NEG_INFINITY),
            Value::Float64(f64::NAN),
            Value::Float64(-0.0),
            Value::Decimal("1.500".parse().unwrap()),
            Value::Decimal("-12345678901234567890123456789012345678901234567890e-7".parse().unwrap()),
            Value::String("ö\"\n".to_owned()),
            Value::Bytes(Bytes::from_static(b"\0\xff")),
            Value::Date(Date { days: -7 }),
            Value::Timestamp(Timestamp::new(-1, 999_999_999).unwrap()),
            Value::Reference("1.2.3.4.5".parse().unwrap()),
        ];
        for value in &scalars {
            assert_eq!(round_trip(value.clone()).as_ref(), Some(value));
        }
        let list = Value::List(scalars.iter().cloned().chain([Value::Null]).collect());
        let set = Value::Set(scalars.iter().cloned().collect());
        let map = Value::Map([(set.clone(), list.clone()), (list.clone(), Value::Null)].into());
        for value in [list, set, map] {
            assert_eq!(round_trip(value.clone()), Some(value));
        }
        assert_eq!(round_trip(Value::Null), None);
        let json = |value: &Value| serde_json::to_string(&ValueAsJson(value)).unwrap();
        assert_eq!(json(&Value::Int64(5)), r#"{"int64":5}"#);
        assert_eq!(json(&Value::Decimal("1.50".parse().unwrap())), r#"{"decimal":["AJY=",2]}"#);
        assert_eq!(json(&Value::List(vec![Value::Null, 1.5.into()])), r#"{"list":[null,{"float64":"1.5"}]}"#);
        assert_eq!(json(&Value::Timestamp(Timestamp::new(1, 2).unwrap())), r#"{"timestamp":[1,2]}"#);
        assert_eq!(json(&Value::Reference("1.2.3.4.5".parse().unwrap())), r#"{"ref":"1.2.3.4.5"}"#);
    }

    #[test]
    fn invalid_json_values_are_refused() {
        for text in [
            "5",
            "{}",
            r#"{"int64":"5"}"#,
            r#"{"int64":1.5}"#,
            r#"{"int64":5,"bool":true}"#,
            r#"{"what":5}"#,
            r#"{"timestamp":[0,1000000000]}"#,
            r#"{"decimal":["",1]}"#,
            r#"{"map":[[null]]}"#,
            r#"{"ref":"1.2"}"#,
            r#"{"bytes":"_"}"#,
            r#"{"list":[5]}"#,
        ] {
            assert!(serde_json::from_str::<Holder>(&format!(r#"{{"value":{text}}}"#)).is_err(), "{text}");
        }
    }
}
