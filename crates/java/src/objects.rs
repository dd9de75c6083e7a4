//! Objects, outcomes and hints in messages.

use client::{CommitOutcome, ConflictReason, ConnectOptions, Credentials, PlacementHint, tls};
use model::{ClassId, Error, ErrorKind, Kind, NodeId, Object, Oid, Result};
use protocol::ident::{ClientId, HlcTimestamp, TxnId};
use std::time::Duration;

use crate::message::{Reader, Writer};

/// Where the bytes of an object are.
const INLINE: u8 = 0;
const IN_CONTENT: u8 = 1;

/// Writes an object. Bytes in a content are not part of it, but their number is.
pub(crate) fn write_object(message: &mut Writer, object: &Object) {
    message.u8(object.kind as u8);
    message.list(object.attributes(), |message, (key, value)| {
        message.bytes(key);
        message.bytes(value);
    });
    match object.content() {
        None => {
            message.u8(INLINE);
            message.bytes(&object.data);
        }
        Some(content) => {
            message.u8(IN_CONTENT);
            message.u64(content.size);
        }
    }
}

/// Reads an object of a class.
pub(crate) fn read_object(message: &mut Reader, class: ClassId) -> Result<Object> {
    let code = message.u8()?;
    let kind = Kind::from_code(code);
    let kind = kind.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("there is no kind of object {code}")))?;
    let attributes = message.list(|message| Ok((message.bytes()?, message.bytes()?)))?;
    if message.u8()? != INLINE {
        let what = "an object whose bytes are in a content cannot be written whole: write parts of it, or upload another content";
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    let mut object = Object::plain(class, kind, message.bytes()?);
    attributes.into_iter().for_each(|(key, value)| object.set_attribute(key, Some(value)));
    object.check()?;
    Ok(object)
}

/// Reads the number of a class.
pub(crate) fn read_class(message: &mut Reader) -> Result<ClassId> {
    let class = ClassId(message.u32()?);
    match class <= ClassId::MAX {
        true => Ok(class),
        false => Err(Error::new(ErrorKind::Invalid, format!("{} is not a class number", class.0))),
    }
}

/// Reads where a new object is to be placed.
pub(crate) fn read_hint(message: &mut Reader) -> Result<PlacementHint> {
    Ok(match message.u8()? {
        0 => PlacementHint::Anywhere,
        1 => PlacementHint::Near(message.oid()?),
        2 => PlacementHint::At(NodeId(message.u32()?)),
        code => return Err(Error::new(ErrorKind::Invalid, format!("there is no placement hint {code}"))),
    })
}

/// Writes the outcome of a transaction.
pub(crate) fn write_outcome(message: &mut Writer, outcome: CommitOutcome) {
    match outcome {
        CommitOutcome::Committed(receipt) => {
            message.u8(0);
            message.u64(receipt.timestamp.ms());
        }
        CommitOutcome::Conflict(reason) => {
            message.u8(1);
            message.string(&reason.to_string());
            message.optional(conflict_object(reason), Writer::oid);
        }
        CommitOutcome::Unknown(txn) => {
            message.u8(2);
            write_txn(message, txn);
        }
    }
}

fn conflict_object(reason: ConflictReason) -> Option<Oid> {
    match reason {
        ConflictReason::Object(oid, _) => Some(oid),
        ConflictReason::Aborted => None,
    }
}

/// Writes the identifier of a transaction.
pub(crate) fn write_txn(message: &mut Writer, txn: TxnId) {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&txn.start.0.to_be_bytes());
    bytes[8..].copy_from_slice(&txn.client.0.to_be_bytes());
    message.bytes(&bytes);
}

/// Reads the identifier of a transaction.
pub(crate) fn read_txn(message: &mut Reader) -> Result<TxnId> {
    let mut parts = Reader::new(message.bytes()?);
    let txn = TxnId { start: HlcTimestamp(parts.u64()?), client: ClientId(parts.u64()?) };
    parts.end()?;
    Ok(txn)
}

/// Reads the options of a client. Zero and empty texts mean defaults.
pub(crate) fn read_options(message: &mut Reader) -> Result<ConnectOptions> {
    let mut options = ConnectOptions::default();
    let [connect_timeout_ms, timeout_ms, cache_bytes] = [message.u64()?, message.u64()?, message.u64()?];
    if connect_timeout_ms > 0 {
        options.connect_timeout = Duration::from_millis(connect_timeout_ms);
    }
    if timeout_ms > 0 {
        options.timeout = Duration::from_millis(timeout_ms);
    }
    if cache_bytes > 0 {
        options.cache_bytes = usize::try_from(cache_bytes).unwrap_or(usize::MAX);
    }
    options.snapshots = message.bool()?;
    options.agent = message.string()?;
    if options.agent.is_empty() {
        options.agent = concat!("mortar-java ", env!("CARGO_PKG_VERSION")).to_owned();
    }
    let (user, password) = (message.optional(Reader::string)?, message.string()?);
    options.credentials = match user {
        Some(user) => Some(Credentials { user, password }),
        // The user is in the URL.
        None if !password.is_empty() => Some(Credentials { user: String::new(), password }),
        None => None,
    };
    options.insecure = message.bool()?;
    let mut file = || message.optional(Reader::string);
    let (ca, certificate, key) = (file()?, file()?, file()?);
    options.tls = match (ca, certificate, key) {
        (None, None, None) => None,
        (Some(ca), certificate, key) if certificate.is_some() == key.is_some() => {
            let identity = certificate.zip(key);
            let identity =
                identity.map(|(certificate, key)| tls::Identity { certificate: certificate.into(), key: key.into() });
            Some(tls::Client::load(tls::ClientFiles { ca: ca.into(), identity, name: None })?)
        }
        _ => {
            let what = "TLS needs the certificate of an authority; a client certificate needs its key, too";
            return Err(Error::new(ErrorKind::Invalid, what));
        }
    };
    Ok(options)
}
