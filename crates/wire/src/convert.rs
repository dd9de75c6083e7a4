//! Converts between the messages of the schema and the types of `model`.
//!
//! Messages come from outside. Everything is checked here, once, so that values of `model` types are valid.

use bytes::Bytes;
use model::{Committed, Conflict, Error, ErrorKind, Kind, Name, Oid, Op, Outcome, Result, SpaceId, Stat};
use model::{Transaction, UploadId, limits};

use crate::frame::Raw;
use crate::proto;
use crate::proto::decided::Outcome as Decided;
use crate::proto::op::Op as Step;

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

impl From<Name> for proto::Name {
    fn from(name: Name) -> Self {
        Self { space: u32::from(name.space.0), path: name.path }
    }
}

/// The name in a required field. The store checks its path.
pub fn name(field: Option<proto::Name>) -> Result<Name> {
    let field = field.ok_or_else(|| missing("name"))?;
    Ok(Name { space: space(field.space)?, path: field.path })
}

/// The kind with this code.
pub fn kind(code: u32) -> Result<Kind> {
    u8::try_from(code)
        .ok()
        .and_then(Kind::from_code)
        // A store of its own has no directories: its names are not in collections.
        .filter(|kind| *kind != Kind::Directory)
        .ok_or_else(|| invalid(format!("no kind of object has the code {code}")))
}

/// Encodes identifiers as raw bytes, 16 each.
#[must_use]
pub fn oids_to_raw(oids: &[Oid]) -> Bytes {
    let mut raw = Vec::with_capacity(oids.len() * Oid::LEN);
    for oid in oids {
        raw.extend_from_slice(&oid.to_bytes());
    }
    raw.into()
}

/// Decodes identifiers from raw bytes.
pub fn oids_from_raw(raw: &[u8]) -> Result<Vec<Oid>> {
    let (oids, rest) = raw.as_chunks::<{ Oid::LEN }>();
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes are not a whole number of identifiers", raw.len())));
    }
    Ok(oids.iter().map(|bytes| Oid::from_bytes(*bytes)).collect())
}

// ------------------------------------------------------------------------------------------------ errors, stat

impl From<&Error> for proto::Error {
    fn from(error: &Error) -> Self {
        let mut message = error.message().to_owned();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self { kind: error.kind() as u32, message }
    }
}

impl From<proto::Error> for Error {
    fn from(error: proto::Error) -> Self {
        let code = u8::try_from(error.kind).unwrap_or(u8::MAX);
        Self::new(ErrorKind::from_code(code), error.message)
    }
}

impl From<Stat> for proto::Stat {
    fn from(stat: Stat) -> Self {
        Self {
            oid: Some(stat.oid.into()),
            kind: stat.kind as u32,
            size: stat.size,
            version: stat.version,
            modified_us: stat.modified_us,
        }
    }
}

impl TryFrom<proto::Stat> for Stat {
    type Error = Error;

    fn try_from(stat: proto::Stat) -> Result<Self> {
        Ok(Self {
            oid: oid(stat.oid, "object")?,
            kind: kind(stat.kind)?,
            size: stat.size,
            version: stat.version,
            modified_us: stat.modified_us,
        })
    }
}

// ------------------------------------------------------------------------------------------------ transactions

/// Encodes a transaction. The data of its operations, in order, is the raw part.
#[must_use]
pub fn transaction_to_proto(transaction: Transaction) -> (proto::Commit, Vec<Bytes>) {
    let mut raw = Vec::new();
    let ops = transaction.ops.into_iter().map(|op| proto::Op { op: Some(step(op, &mut raw)) }).collect();
    (proto::Commit { ops }, raw)
}

/// Adds `data` to the raw part and returns its length. A length that does not fit becomes the largest one; the frame is then too
/// large and is refused.
fn push_data(data: Bytes, raw: &mut Vec<Bytes>) -> u32 {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    if !data.is_empty() {
        raw.push(data);
    }
    length
}

fn step(op: Op, raw: &mut Vec<Bytes>) -> Step {
    match op {
        Op::Create { oid, kind, data, near } => Step::Create(proto::Create {
            oid: Some(oid.into()),
            kind: kind as u32,
            data_length: push_data(data, raw),
            near: near.map(Into::into),
        }),
        Op::Put { oid, data } => Step::Put(proto::Put { oid: Some(oid.into()), data_length: push_data(data, raw) }),
        Op::PutUpload { oid, upload } => Step::PutUpload(proto::PutUpload { oid: Some(oid.into()), upload: upload.0 }),
        Op::Write { oid, offset, data } => {
            Step::Write(proto::Write { oid: Some(oid.into()), offset, data_length: push_data(data, raw) })
        }
        Op::Append { oid, data } => {
            Step::Append(proto::Append { oid: Some(oid.into()), data_length: push_data(data, raw) })
        }
        Op::Truncate { oid, size } => Step::Truncate(proto::Truncate { oid: Some(oid.into()), size }),
        Op::Zero { oid, offset, len } => Step::Zero(proto::Zero { oid: Some(oid.into()), offset, length: len }),
        Op::Clone { from, to } => Step::Clone(proto::Clone { from: Some(from.into()), to: Some(to.into()) }),
        Op::Delete { oid } => Step::Delete(proto::Delete { oid: Some(oid.into()) }),
        Op::SetAttribute { oid, key, value } => {
            Step::SetAttribute(proto::SetAttribute { oid: Some(oid.into()), key, value_length: push_data(value, raw) })
        }
        Op::RemoveAttribute { oid, key } => {
            Step::RemoveAttribute(proto::RemoveAttribute { oid: Some(oid.into()), key })
        }
        Op::Add { collection, member } => Step::Add(membership(collection, member)),
        Op::Remove { collection, member } => Step::Remove(membership(collection, member)),
        Op::Bind { name, oid } => Step::Bind(proto::Bind { name: Some(name.into()), oid: Some(oid.into()) }),
        Op::Unbind { name } => Step::Unbind(proto::Unbind { name: Some(name.into()) }),
        Op::Expect { oid, version } => Step::Expect(proto::Expect { oid: Some(oid.into()), version }),
        Op::ExpectName { name, oid } => {
            Step::ExpectName(proto::ExpectName { name: Some(name.into()), oid: oid.map(Into::into) })
        }
    }
}

fn membership(collection: Oid, member: Oid) -> proto::Member {
    proto::Member { collection: Some(collection.into()), member: Some(member.into()) }
}

/// Decodes a transaction and its raw part.
///
/// Fails if a part is missing or unknown, or if the lengths do not add up to the raw part.
pub fn transaction_from_proto(commit: proto::Commit, raw: &Raw<'_>) -> Result<Transaction> {
    if commit.ops.len() > limits::OPERATIONS {
        let (found, most) = (commit.ops.len(), limits::OPERATIONS);
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!("a transaction has {found} operations; it may have {most}"),
        ));
    }
    let mut data = Cursor::new(raw);
    let mut ops = Vec::with_capacity(commit.ops.len());
    for step in commit.ops {
        let step = step.op.ok_or_else(|| invalid("the transaction has an operation that this server does not know"))?;
        ops.push(op(step, &mut data)?);
    }
    data.finish()?;
    Ok(Transaction { ops })
}

fn op(step: Step, data: &mut Cursor<'_, '_>) -> Result<Op> {
    let object = |field| oid(field, "object");
    Ok(match step {
        Step::Create(create) => Op::Create {
            oid: object(create.oid)?,
            kind: kind(create.kind)?,
            data: data.take(create.data_length)?,
            near: create.near.map(Into::into),
        },
        Step::Put(put) => Op::Put { oid: object(put.oid)?, data: data.take(put.data_length)? },
        Step::PutUpload(put) => Op::PutUpload { oid: object(put.oid)?, upload: UploadId(put.upload) },
        Step::Write(write) => {
            Op::Write { oid: object(write.oid)?, offset: write.offset, data: data.take(write.data_length)? }
        }
        Step::Append(append) => Op::Append { oid: object(append.oid)?, data: data.take(append.data_length)? },
        Step::Truncate(truncate) => Op::Truncate { oid: object(truncate.oid)?, size: truncate.size },
        Step::Zero(zero) => Op::Zero { oid: object(zero.oid)?, offset: zero.offset, len: zero.length },
        Step::Clone(clone) => Op::Clone { from: oid(clone.from, "source")?, to: oid(clone.to, "target")? },
        Step::Delete(delete) => Op::Delete { oid: object(delete.oid)? },
        Step::SetAttribute(set) => {
            Op::SetAttribute { oid: object(set.oid)?, key: set.key, value: data.take(set.value_length)? }
        }
        Step::RemoveAttribute(remove) => Op::RemoveAttribute { oid: object(remove.oid)?, key: remove.key },
        Step::Add(add) => {
            Op::Add { collection: oid(add.collection, "collection")?, member: oid(add.member, "member")? }
        }
        Step::Remove(remove) => {
            Op::Remove { collection: oid(remove.collection, "collection")?, member: oid(remove.member, "member")? }
        }
        Step::Bind(bind) => Op::Bind { name: name(bind.name)?, oid: object(bind.oid)? },
        Step::Unbind(unbind) => Op::Unbind { name: name(unbind.name)? },
        Step::Expect(expect) => Op::Expect { oid: object(expect.oid)?, version: expect.version },
        Step::ExpectName(expect) => Op::ExpectName { name: name(expect.name)?, oid: expect.oid.map(Into::into) },
    })
}

/// Splits a raw part into the pieces whose lengths a message contains, in order.
pub struct Cursor<'r, 'a> {
    raw: &'r Raw<'a>,
    at: usize,
}

impl<'r, 'a> Cursor<'r, 'a> {
    /// Starts at the first byte.
    #[must_use]
    pub fn new(raw: &'r Raw<'a>) -> Self {
        Self { raw, at: 0 }
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: u32) -> Result<Bytes> {
        let end = self.at.checked_add(length as usize).filter(|end| *end <= self.raw.len());
        let end = end.ok_or_else(|| invalid("the lengths in a message exceed its raw part"))?;
        let piece = self.raw.slice(self.at..end);
        self.at = end;
        Ok(piece)
    }

    /// Checks that no bytes are left.
    pub fn finish(self) -> Result<()> {
        if self.at == self.raw.len() {
            return Ok(());
        }
        Err(invalid("the raw part of a message is longer than its lengths"))
    }
}

/// Encodes an outcome. The identifiers of the created objects are the raw part.
#[must_use]
pub fn outcome_to_proto(outcome: Outcome) -> (proto::Decided, Bytes) {
    let (outcome, raw) = match outcome {
        Outcome::Committed(Committed { version, created }) => {
            (Decided::Committed(proto::Committed { version }), oids_to_raw(&created))
        }
        Outcome::Conflict(Conflict::Object { oid, read, current }) => {
            (Decided::ObjectConflict(proto::ObjectConflict { oid: Some(oid.into()), read, current }), Bytes::new())
        }
        Outcome::Conflict(Conflict::Name { name, read, current }) => {
            let (read, current) = (read.map(Into::into), current.map(Into::into));
            (Decided::NameConflict(proto::NameConflict { name: Some(name.into()), read, current }), Bytes::new())
        }
    };
    (proto::Decided { outcome: Some(outcome) }, raw)
}

/// Decodes an outcome and its raw part.
pub fn outcome_from_proto(decided: proto::Decided, raw: &[u8]) -> Result<Outcome> {
    let outcome = decided.outcome.ok_or_else(|| missing("outcome"))?;
    Ok(match outcome {
        Decided::Committed(committed) => {
            Outcome::Committed(Committed { version: committed.version, created: oids_from_raw(raw)? })
        }
        Decided::ObjectConflict(conflict) => Outcome::Conflict(Conflict::Object {
            oid: oid(conflict.oid, "object")?,
            read: conflict.read,
            current: conflict.current,
        }),
        Decided::NameConflict(conflict) => Outcome::Conflict(Conflict::Name {
            name: name(conflict.name)?,
            read: conflict.read.map(Into::into),
            current: conflict.current.map(Into::into),
        }),
    })
}
