//! Converts between the messages of the schema and the types of `model`.
//!
//! Messages come from outside. Everything is checked here, once, so that values of `model` types are valid.

use model::{Error, ErrorKind, Oid, Result, SpaceId};
use protocol::clock::MAX_TIME_MS;

use crate::proto;

pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, message)
}

pub(crate) fn missing(part: &'static str) -> Error {
    invalid(format!("the message lacks its {part}"))
}

// ------------------------------------------------------------------------------------------------ identifiers

impl From<Oid> for proto::Oid {
    fn from(oid: Oid) -> Self {
        let bits = oid.to_u128();
        Self { high: (bits >> 64) as u64, low: bits as u64 }
    }
}

impl From<proto::Oid> for Oid {
    fn from(oid: proto::Oid) -> Self {
        Self::from_bytes((u128::from(oid.high) << 64 | u128::from(oid.low)).to_be_bytes())
    }
}

/// The identifier in a required field; `part` names the field in the error.
pub fn oid(field: Option<proto::Oid>, part: &'static str) -> Result<Oid> {
    field.map(Oid::from).ok_or_else(|| missing(part))
}

/// The space with this number.
pub fn space(number: u32) -> Result<SpaceId> {
    u16::try_from(number)
        .ok()
        .map(SpaceId)
        .filter(|space| *space <= SpaceId::MAX)
        .ok_or_else(|| invalid(format!("space {number} does not fit into 15 bits")))
}

/// A time in milliseconds since 1970.
pub(crate) fn time_ms(time_ms: u64) -> Result<u64> {
    if time_ms <= MAX_TIME_MS { Ok(time_ms) } else { Err(invalid(format!("{time_ms} ms since 1970 is no time"))) }
}

// ------------------------------------------------------------------------------------------------ errors

impl From<&Error> for proto::Error {
    fn from(error: &Error) -> Self {
        Self { kind: error.kind() as u32, message: error.message_with_causes() }
    }
}

impl From<proto::Error> for Error {
    fn from(error: proto::Error) -> Self {
        let code = u8::try_from(error.kind).unwrap_or(u8::MAX);
        Self::new(ErrorKind::from_code(code), error.message)
    }
}
