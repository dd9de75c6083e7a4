//! Messages of etcd's JSON gateway, in protobuf's mapping to JSON: bytes are base64, 64-bit integers are strings.
//!
//! Both sides omit fields with the value zero.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes in base64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Base64(pub(super) Vec<u8>);

impl Base64 {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Self).map_err(D::Error::custom)
    }
}

/// A 64-bit integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JsonInt64(pub(super) i64);

impl JsonInt64 {
    fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// The number; 0 if it is negative, which etcd never sends.
    pub(super) fn to_u64(self) -> u64 {
        u64::try_from(self.0).unwrap_or(0)
    }
}

impl Serialize for JsonInt64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for JsonInt64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(i64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => text.parse().map(Self).map_err(D::Error::custom),
        }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

// ---------------------------------------------------------------------------------------------- answers

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Header {
    pub(super) revision: JsonInt64,
    #[cfg(test)]
    pub(super) member_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Base64,
    pub(super) value: Base64,
    pub(super) mod_revision: JsonInt64,
    pub(super) lease: JsonInt64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeAnswer {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
    pub(super) more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnAnswer {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<OpAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpAnswer {
    pub(super) response_range: Option<RangeAnswer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    #[serde(rename = "ID")]
    pub(super) id: JsonInt64,
    #[serde(rename = "TTL")]
    pub(super) ttl: JsonInt64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Token {
    pub(super) token: String,
}

/// An answer without content.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EmptyAnswer {}

/// A message of a stream.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(super) struct StreamMessage<T> {
    pub(super) result: Option<T>,
    pub(super) error: Option<StreamError>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamError {
    #[serde(alias = "code")]
    pub(super) grpc_code: i32,
    pub(super) message: String,
}

/// An error answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) code: Option<i32>,
    pub(super) message: String,
    pub(super) error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchAnswer {
    pub(super) header: Header,
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) compact_revision: JsonInt64,
    pub(super) cancel_reason: String,
    /// Whether the next answer continues this one.
    pub(super) fragment: bool,
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    /// Omitted for a put.
    #[serde(rename = "type")]
    pub(super) kind: EventKind,
    pub(super) kv: KeyValue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum EventKind {
    #[default]
    Put,
    Delete,
}

// ---------------------------------------------------------------------------------------------- requests

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Range {
    pub(super) key: Base64,
    #[serde(skip_serializing_if = "Base64::is_empty")]
    pub(super) range_end: Base64,
    #[serde(skip_serializing_if = "JsonInt64::is_zero")]
    pub(super) limit: JsonInt64,
    #[serde(skip_serializing_if = "JsonInt64::is_zero")]
    pub(super) revision: JsonInt64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Put {
    pub(super) key: Base64,
    pub(super) value: Base64,
    #[serde(skip_serializing_if = "JsonInt64::is_zero")]
    pub(super) lease: JsonInt64,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) ignore_lease: bool,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct DeleteRange {
    pub(super) key: Base64,
    #[serde(skip_serializing_if = "Base64::is_empty")]
    pub(super) range_end: Base64,
}

impl DeleteRange {
    /// The removal of one key.
    pub(super) fn key(key: Base64) -> Self {
        Self { key, range_end: Base64::default() }
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) enum Op {
    #[serde(rename = "request_range")]
    Range(Range),
    #[serde(rename = "request_put")]
    Put(Put),
    #[serde(rename = "request_delete_range")]
    DeleteRange(DeleteRange),
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Compare {
    pub(super) key: Base64,
    target: &'static str,
    result: &'static str,
    mod_revision: JsonInt64,
}

impl Compare {
    /// The condition that the key was last put by this revision; with zero, that it does not exist.
    pub(super) fn revision(key: Base64, revision: JsonInt64) -> Self {
        Self { key, target: "MOD", result: "EQUAL", mod_revision: revision }
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Txn {
    pub(super) compare: Vec<Compare>,
    pub(super) success: Vec<Op>,
    pub(super) failure: Vec<Op>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Grant {
    #[serde(rename = "TTL")]
    pub(super) ttl: JsonInt64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LeaseId {
    #[serde(rename = "ID")]
    pub(super) id: JsonInt64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Authenticate<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a str,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct WatchRequest {
    pub(super) create_request: CreateWatch,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct CreateWatch {
    pub(super) key: Base64,
    pub(super) range_end: Base64,
    pub(super) start_revision: JsonInt64,
    pub(super) progress_notify: bool,
    pub(super) fragment: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_form_of_the_gateway() {
        let key = || Base64(b"k".to_vec());
        let txn = Txn {
            compare: vec![Compare::revision(key(), JsonInt64(0))],
            success: vec![
                Op::Put(Put { key: key(), value: Base64(vec![0xff]), lease: JsonInt64(i64::MAX), ignore_lease: false }),
                Op::DeleteRange(DeleteRange::key(key())),
            ],
            failure: vec![Op::Range(Range { key: key(), limit: JsonInt64(1), ..Range::default() })],
        };
        let expected = concat!(
            r#"{"compare":[{"key":"aw==","target":"MOD","result":"EQUAL","mod_revision":"0"}],"#,
            r#""success":[{"request_put":{"key":"aw==","value":"/w==","lease":"9223372036854775807"}},"#,
            r#"{"request_delete_range":{"key":"aw=="}}],"failure":[{"request_range":{"key":"aw==","limit":"1"}}]}"#
        );
        assert_eq!(serde_json::to_string(&txn).unwrap(), expected);
    }

    #[test]
    fn answers_with_omitted_fields_are_decoded() {
        let text = r#"{"result":{"header":{"cluster_id":"1","revision":"7"},"events":[{"kv":{"key":"aw==","mod_revision":7}},
                       {"type":"DELETE","kv":{"key":"aw==","mod_revision":"8"}}]}}"#;
        let answer: StreamMessage<WatchAnswer> = serde_json::from_str(text).unwrap();
        let answer = answer.result.unwrap();
        assert_eq!((answer.header.revision, answer.created, answer.fragment), (JsonInt64(7), false, false));
        assert_eq!(answer.events[0].kind, EventKind::Put);
        assert_eq!((answer.events[1].kind, answer.events[1].kv.mod_revision), (EventKind::Delete, JsonInt64(8)));
        assert!(
            serde_json::from_str::<JsonInt64>("\"x\"").is_err() && serde_json::from_str::<Base64>("\"_\"").is_err()
        );
    }
}
