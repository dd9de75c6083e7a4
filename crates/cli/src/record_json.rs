//! Records as JSON, by the fields of their classes.
//!
//! | type | in JSON |
//! | --- | --- |
//! | bool, int64, string | as JSON has it |
//! | float64 | a number; `"NaN"`, `"inf"`, `"-inf"` |
//! | decimal | a text such as `"1.50"`; a number is taken too |
//! | bytes | a text of hexadecimal digits |
//! | date, timestamp | `"2026-07-01"`, `"2026-07-01T12:30:00Z"` |
//! | reference | `"1.1.0.2a.3"`; a name such as `"/ann"` is taken too |
//! | list, set | an array |
//! | map | an object if its keys are text, else an array of pairs |

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use model::{ClassId, Oid, RecordBuilder, RecordRef, Value};
use query::{Schema, Type};
use serde_json::{Map, Value as Json, json};

use crate::failure::{Failure, Result};

/// A value as JSON.
pub(crate) fn to_json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Int64(value) => json!(value),
        Value::Float64(value) if value.is_finite() => json!(value),
        Value::String(value) => json!(value),
        Value::Bytes(value) => json!(value.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        Value::List(values) => values.iter().map(to_json).collect(),
        Value::Set(values) => values.iter().map(to_json).collect(),
        Value::Map(entries) if entries.keys().all(|key| matches!(key, Value::String(_))) => {
            let entries = entries.iter().filter_map(|(key, value)| match key {
                Value::String(key) => Some((key.clone(), to_json(value))),
                _ => None,
            });
            Json::Object(entries.collect())
        }
        Value::Map(entries) => entries.iter().map(|(key, value)| json!([to_json(key), to_json(value)])).collect(),
        Value::Float64(value) => json!(value.to_string()),
        Value::Decimal(value) => json!(value.to_string()),
        Value::Date(value) => json!(value.to_string()),
        Value::Timestamp(value) => json!(value.to_string()),
        Value::Reference(oid) => json!(oid.to_string()),
    }
}

/// The fields of a record, by their current names.
pub(crate) fn fields_to_json(schema: &Schema, class: ClassId, record: &[u8]) -> Result<Map<String, Json>> {
    let read = schema.read(&RecordRef::new(record)?, class)?;
    Ok(read.into_iter().map(|(field, value)| (field.name.clone(), to_json(&value))).collect())
}

/// Names in a record, and their objects as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct NameBindings {
    /// The known bindings.
    pub(crate) bound: BTreeMap<String, Oid>,
    /// Names that were looked up without a known binding.
    pub(crate) unresolved: BTreeSet<String>,
}

impl NameBindings {
    fn resolve(&mut self, text: &str) -> std::result::Result<Oid, String> {
        if let Ok(oid) = text.parse() {
            return Ok(oid);
        }
        if !text.starts_with('/') {
            return Err(format!("{text:?} is neither an identifier nor a name, which begins with a slash"));
        }
        Ok(self.bound.get(text).copied().unwrap_or_else(|| {
            self.unresolved.insert(text.to_owned());
            Oid::MIN
        }))
    }
}

/// Encodes a record of a class from fields. Other fields get their defaults.
pub(crate) fn from_json(schema: &Schema, class: ClassId, json: &Json, names: &mut NameBindings) -> Result<Bytes> {
    let name = schema.class(class).map_or("?", |class| class.name.as_str());
    let Json::Object(given) = json else {
        return Err(Failure::usage(format!(
            "an object of {name} is written as a JSON object: {{\"field\": value, ...}}"
        )));
    };
    let fields = schema.fields(class);
    if let Some(unknown) = given.keys().find(|given| fields.iter().all(|field| field.name != **given)) {
        let known: Vec<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        return Err(Failure::usage(format!("{name} has no field {unknown:?}; it has {}", known.join(", "))));
    }
    let mut record = RecordBuilder::new();
    for field in fields {
        let value = match given.get(&field.name) {
            Some(json) => value_from_json(&field.field_type, json, names)
                .map_err(|why| Failure::usage(format!("field {:?} of {name}: {why}", field.name)))?,
            None => field.default.clone().unwrap_or(Value::Null),
        };
        if !field.optional && matches!(value, Value::Null) {
            return Err(Failure::usage(format!("field {:?} of {name} must have a value", field.name)));
        }
        if let Some(oid) = find_mistyped_reference(schema, &field.field_type, &value) {
            let is = schema.class(oid.class()).map_or("no class of records", |class| class.name.as_str());
            let (of, wanted) = (&field.name, schema.type_name(&field.field_type));
            return Err(Failure::usage(format!("field {of:?} of {name} is a {wanted}, and {oid} is of {is}")));
        }
        record.set_value(field.number, &value)?;
    }
    Ok(record.build()?)
}

/// Finds a referenced object whose class differs from that of its type.
fn find_mistyped_reference(schema: &Schema, ty: &Type, value: &Value) -> Option<Oid> {
    match (ty, value) {
        // Names are resolved later.
        (Type::Reference(Some(class)), Value::Reference(oid)) => {
            (*oid != Oid::MIN && !schema.family(*class).contains(&oid.class())).then_some(*oid)
        }
        (Type::List(item), Value::List(values)) => {
            values.iter().find_map(|value| find_mistyped_reference(schema, item, value))
        }
        (Type::Set(item), Value::Set(values)) => {
            values.iter().find_map(|value| find_mistyped_reference(schema, item, value))
        }
        (Type::Map(key, item), Value::Map(entries)) => {
            let either = |(name, value)| {
                find_mistyped_reference(schema, key, name).or_else(|| find_mistyped_reference(schema, item, value))
            };
            entries.iter().find_map(either)
        }
        _ => None,
    }
}

/// Converts JSON to a value of a type, or returns why that is not possible.
pub(crate) fn value_from_json(ty: &Type, json: &Json, names: &mut NameBindings) -> std::result::Result<Value, String> {
    let shown = || {
        let shown: String = json.to_string().chars().take(80).collect();
        format!("{shown} is not a valid {}", ty.word())
    };
    let text = || json.as_str().ok_or_else(shown);
    let parsed = |text: &str| text.to_owned();
    Ok(match (ty, json) {
        (_, Json::Null) => Value::Null,
        (Type::Bool, Json::Bool(value)) => Value::Bool(*value),
        (Type::Int64, Json::Number(number)) => Value::Int64(number.as_i64().ok_or_else(shown)?),
        (Type::Float64, Json::Number(number)) => Value::Float64(number.as_f64().ok_or_else(shown)?),
        (Type::Float64, Json::String(text)) => Value::Float64(text.parse().map_err(|_| shown())?),
        (Type::Decimal, Json::Number(number)) => Value::Decimal(number.to_string().parse().map_err(|_| shown())?),
        (Type::Decimal, Json::String(text)) => Value::Decimal(text.parse().map_err(|_| shown())?),
        (Type::String, Json::String(text)) => Value::String(parsed(text)),
        (Type::Bytes, Json::String(text)) => Value::Bytes(from_hex(text).ok_or_else(shown)?),
        (Type::Date, _) => Value::Date(text()?.parse().map_err(|_| shown())?),
        (Type::Timestamp, _) => Value::Timestamp(text()?.parse().map_err(|_| shown())?),
        (Type::Reference(_), _) => Value::Reference(names.resolve(text()?)?),
        (Type::List(item), Json::Array(values)) => Value::List(
            values.iter().map(|one| value_from_json(item, one, names)).collect::<std::result::Result<_, _>>()?,
        ),
        (Type::Set(item), Json::Array(values)) => Value::Set(
            values.iter().map(|one| value_from_json(item, one, names)).collect::<std::result::Result<_, _>>()?,
        ),
        (Type::Map(key, item), Json::Object(entries)) => {
            let mut map = BTreeMap::new();
            for (name, one) in entries {
                map.insert(value_from_json(key, &json!(name), names)?, value_from_json(item, one, names)?);
            }
            Value::Map(map)
        }
        (Type::Map(key, item), Json::Array(pairs)) => {
            let mut map = BTreeMap::new();
            for pair in pairs {
                let Some([name, one]) = pair.as_array().map(Vec::as_slice) else { return Err(shown()) };
                map.insert(value_from_json(key, name, names)?, value_from_json(item, one, names)?);
            }
            Value::Map(map)
        }
        _ => return Err(shown()),
    })
}

fn from_hex(text: &str) -> Option<Bytes> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? << 4 | digit(*low)?).ok();
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use query::Class;

    use super::*;

    fn schema() -> Schema {
        let class = Class::new(ClassId(1), "Thing")
            .field(1, "name", Type::String)
            .required(2, "count", Type::Int64, 3_i64)
            .field(3, "price", Type::Decimal)
            .field(4, "size", Type::Float64)
            .field(5, "mark", Type::Bytes)
            .field(6, "day", Type::Date)
            .field(7, "at", Type::Timestamp)
            .field(8, "of", Type::Reference(None))
            .field(9, "tags", Type::set(Type::String))
            .field(10, "sizes", Type::map(Type::String, Type::list(Type::Int64)))
            .field(11, "pairs", Type::map(Type::Int64, Type::Bool))
            .field(12, "boss", Type::Reference(Some(ClassId(1))))
            .field(13, "friends", Type::list(Type::Reference(Some(ClassId(1)))));
        let better = Class::new(ClassId(2), "Better").extends(ClassId(1));
        Schema::new([class, better, Class::new(ClassId(3), "Other")]).unwrap()
    }

    #[test]
    fn records_round_trip_through_json() {
        let json = json!({
            "name": "ö", "count": 9_007_199_254_740_993_i64, "price": "1.50", "size": 0.25, "mark": "00ff", "day": "2026-07-01",
            "at": "2026-07-01T12:30:00Z", "of": "1.1.0.2a.3", "tags": ["a", "b"], "sizes": {"x": [1, null]},
            "pairs": [[1, true], [2, false]], "boss": "1.1.0.2a.3", "friends": ["1.2.0.2a.4", null],
        });
        let schema = schema();
        let record = from_json(&schema, ClassId(1), &json, &mut NameBindings::default()).unwrap();
        assert_eq!(Json::Object(fields_to_json(&schema, ClassId(1), &record).unwrap()), json);
    }

    #[test]
    fn missing_fields_have_defaults_and_errors_name_the_field() {
        let schema = schema();
        let mut names = NameBindings::default();
        let record = from_json(&schema, ClassId(1), &json!({}), &mut names).unwrap();
        let read = fields_to_json(&schema, ClassId(1), &record).unwrap();
        assert_eq!((&read["count"], &read["name"]), (&json!(3), &Json::Null));
        for (json, why) in [
            (json!({"nmae": 1}), "no field \"nmae\""),
            (json!({"count": "x"}), "\"count\""),
            (json!({"count": null}), "must have a value"),
            (json!({"count": 1.5}), "1.5 is not a valid int64"),
            (json!({"mark": "0"}), "is not a valid bytes"),
            (json!({"of": "ann"}), "neither an identifier nor a name"),
            (json!({"boss": "1.3.0.2a.3"}), "is a ref<Thing>, and 1.3.0.2a.3 is of Other"),
            (json!({"friends": ["1.1.0.2a.3", "1.0.0.2a.4"]}), "and 1.0.0.2a.4 is of no class of records"),
            (json!([]), "JSON object"),
        ] {
            let refused = from_json(&schema, ClassId(1), &json, &mut names).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn names_are_resolved_once() {
        let schema = schema();
        let mut names = NameBindings::default();
        from_json(&schema, ClassId(1), &json!({"of": "/ann"}), &mut names).unwrap();
        assert_eq!(names.unresolved, BTreeSet::from(["/ann".to_owned()]));
        let ann: Oid = "1.1.0.2a.3".parse().unwrap();
        let mut names = NameBindings { bound: [("/ann".to_owned(), ann)].into(), ..NameBindings::default() };
        let record = from_json(&schema, ClassId(1), &json!({"of": "/ann"}), &mut names).unwrap();
        assert_eq!(fields_to_json(&schema, ClassId(1), &record).unwrap()["of"], json!(ann.to_string()));
        assert!(names.unresolved.is_empty());
    }
}
