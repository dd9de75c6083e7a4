//! Values in JSON, without losing their types: `{"int64":5}`, `{"decimal":"1.50"}`, `{"list":[{"bool":true},null]}`.
//!
//! JSON's own numbers and texts do not tell 1 from 1.0 or a date from a text; a value that comes back as another type would
//! be another value.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::{Date, Timestamp, Value};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value as Json, json};

/// A value that the catalogue keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal(pub Value);

impl Serialize for Literal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        write(&self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        read(&json).map(Self).map_err(|why| D::Error::custom(format_args!("{why}: {}", truncate(&json))))
    }
}

fn write(value: &Value) -> Json {
    let all = |values: &mut dyn Iterator<Item = &Value>| Json::Array(values.map(write).collect());
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => json!({ "bool": value }),
        Value::Int64(value) => json!({ "int64": value }),
        // As text, so that infinities are there and no digit is lost; Rust prints as many as it takes.
        Value::Float64(value) => json!({ "float64": format!("{value:?}") }),
        Value::Decimal(value) => {
            json!({ "decimal": [STANDARD.encode(value.as_ref().unscaled()), value.as_ref().scale()] })
        }
        Value::String(value) => json!({ "string": value }),
        Value::Bytes(value) => json!({ "bytes": STANDARD.encode(value) }),
        Value::Date(value) => json!({ "date": value.days }),
        Value::Timestamp(value) => json!({ "timestamp": [value.seconds(), value.subsec_nanos()] }),
        Value::Reference(value) => json!({ "ref": value.to_string() }),
        Value::List(values) => json!({ "list": all(&mut values.iter()) }),
        Value::Set(values) => json!({ "set": all(&mut values.iter()) }),
        Value::Map(entries) => {
            let pairs = entries.iter().map(|(key, value)| json!([write(key), write(value)]));
            json!({ "map": pairs.collect::<Vec<_>>() })
        }
    }
}

/// What is wrong, in words.
fn read(json: &Json) -> Result<Value, String> {
    let object = match json {
        Json::Null => return Ok(Value::Null),
        Json::Object(object) if object.len() == 1 => object,
        _ => return Err("a value is null or an object with its type".to_owned()),
    };
    let Some((kind, json)) = object.iter().next() else { return Err("a value has a type".to_owned()) };
    read_typed(kind, json)
}

fn read_typed(kind: &str, json: &Json) -> Result<Value, String> {
    let wrong = || format!("this is no {kind}");
    let text = || json.as_str().ok_or_else(wrong);
    let items = || json.as_array().ok_or_else(wrong);
    let pair = |json: &Json| match json.as_array().map(Vec::as_slice) {
        Some([first, second]) => Ok((first.clone(), second.clone())),
        _ => Err(wrong()),
    };
    Ok(match kind {
        "bool" => Value::Bool(json.as_bool().ok_or_else(wrong)?),
        "int64" => Value::Int64(json.as_i64().ok_or_else(wrong)?),
        "float64" => Value::Float64(text()?.parse().map_err(|_| wrong())?),
        "decimal" => {
            let (unscaled, scale) = pair(json)?;
            let unscaled = STANDARD.decode(unscaled.as_str().ok_or_else(wrong)?).map_err(|_| wrong())?;
            let scale = scale.as_i64().and_then(|scale| i32::try_from(scale).ok()).ok_or_else(wrong)?;
            Value::Decimal(model::Decimal::from_be_bytes(&unscaled, scale).map_err(|error| error.to_string())?)
        }
        "string" => Value::String(text()?.to_owned()),
        "bytes" => Value::Bytes(STANDARD.decode(text()?).map_err(|_| wrong())?.into()),
        "date" => Value::Date(Date { days: json.as_i64().ok_or_else(wrong)? }),
        "timestamp" => {
            let (seconds, nanos) = pair(json)?;
            let nanos = nanos.as_u64().and_then(|nanos| u32::try_from(nanos).ok()).ok_or_else(wrong)?;
            let moment = Timestamp::new(seconds.as_i64().ok_or_else(wrong)?, nanos);
            Value::Timestamp(moment.map_err(|error| error.to_string())?)
        }
        "ref" => Value::Reference(text()?.parse().map_err(|error: model::ParseOidError| error.to_string())?),
        "list" => Value::List(items()?.iter().map(read).collect::<Result<Vec<_>, _>>()?),
        "set" => Value::Set(items()?.iter().map(read).collect::<Result<BTreeSet<_>, _>>()?),
        "map" => {
            let entries = items()?.iter().map(|entry| {
                let (key, value) = pair(entry)?;
                Ok((read(&key)?, read(&value)?))
            });
            Value::Map(entries.collect::<Result<BTreeMap<_, _>, String>>()?)
        }
        _ => return Err("a value has a type that is not known".to_owned()),
    })
}

fn truncate(json: &Json) -> String {
    json.to_string().chars().take(100).collect()
}

/// How long the text of a value is.
pub(super) fn text_len(value: &Literal) -> usize {
    write(&value.0).to_string().len()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn round_trip(value: Value) -> Value {
        let text = serde_json::to_string(&Literal(value)).unwrap();
        serde_json::from_str::<Literal>(&text).unwrap().0
    }

    #[test]
    fn values_come_back_as_they_were() {
        let scalars = vec![
            Value::Null,
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
            assert_eq!(round_trip(value.clone()), *value);
        }
        let list = Value::List(scalars.clone());
        let set = Value::Set(scalars.iter().cloned().collect());
        let map = Value::Map([(set.clone(), list.clone()), (list.clone(), Value::Null)].into());
        for value in [list, set, map] {
            assert_eq!(round_trip(value.clone()), value);
        }
    }

    #[test]
    fn what_is_no_value_is_refused() {
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
            assert!(serde_json::from_str::<Literal>(text).is_err(), "{text}");
        }
    }
}
