//! The encoding of entries: a format byte, then fields in order. Numbers are LEB128; bytes are preceded by their
//! length.

use bytes::{Buf, BufMut, Bytes};
use model::{Kind, Name, Oid, SpaceId, limits};

use super::{LogEntry, StagedContent, Step};
use crate::rows::changes::RowChange;
use crate::rows::key::DataId;
use crate::rows::row::{BLOCK, CHUNK, Extent};

const FORMAT: u8 = 1;

/// Why a payload is not a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogEntryError {
    #[error("it ends too early")]
    Short,
    #[error("it has format {0}, which this version does not know")]
    Format(u8),
    #[error("it has a step of kind {0}, which this version does not know")]
    Step(u8),
    #[error("a number or text in it is not valid")]
    Value,
    #[error("bytes follow its end")]
    Long,
}

/// Appends the encoding of an entry.
pub(crate) fn encode(out: &mut Vec<u8>, entry: &LogEntry) {
    out.put_u8(FORMAT);
    out.put_i64_le(entry.time_us);
    put_number(out, entry.created.len() as u64);
    entry.created.iter().for_each(|oid| put_oid(out, *oid));
    put_number(out, entry.steps.len() as u64);
    entry.steps.iter().for_each(|step| put_step(out, step));
}

fn put_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_oid(out: &mut Vec<u8>, oid: Oid) {
    out.put_slice(&oid.to_bytes());
}

fn put_optional_oid(out: &mut Vec<u8>, oid: Option<Oid>) {
    out.push(u8::from(oid.is_some()));
    if let Some(oid) = oid {
        put_oid(out, oid);
    }
}

fn put_optional_number(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    if let Some(number) = number {
        put_number(out, number);
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.put_slice(bytes);
}

fn put_name(out: &mut Vec<u8>, name: &Name) {
    put_number(out, u64::from(name.space.0));
    put_bytes(out, name.path.as_bytes());
}

fn put_extent(out: &mut Vec<u8>, extent: &Extent) {
    put_number(out, u64::from(extent.file));
    put_number(out, extent.offset);
    put_number(out, u64::from(extent.len));
    out.put_u32_le(extent.crc);
    out.put_slice(&extent.blocks);
}

fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put_number(out, extents.len() as u64);
    extents.iter().for_each(|extent| put_extent(out, extent));
}

fn put_content(out: &mut Vec<u8>, content: &StagedContent) {
    put_extents(out, &content.extents);
    put_bytes(out, &content.bytes);
}

/// The codes of the steps. They never change.
mod code {
    pub(super) const CREATE: u8 = 1;
    pub(super) const PUT: u8 = 2;
    pub(super) const PUT_STAGED: u8 = 3;
    pub(super) const WRITE: u8 = 4;
    pub(super) const WRITE_CHUNKS: u8 = 5;
    pub(super) const APPEND: u8 = 6;
    pub(super) const TRUNCATE: u8 = 7;
    pub(super) const ZERO: u8 = 8;
    pub(super) const CLONE: u8 = 9;
    pub(super) const DELETE: u8 = 10;
    pub(super) const SET_ATTRIBUTE: u8 = 11;
    pub(super) const REMOVE_ATTRIBUTE: u8 = 12;
    pub(super) const ADD: u8 = 13;
    pub(super) const REMOVE: u8 = 14;
    pub(super) const BIND: u8 = 15;
    pub(super) const UNBIND: u8 = 16;
    pub(super) const EXPECT: u8 = 17;
    pub(super) const EXPECT_NAME: u8 = 18;
    pub(super) const STAGE: u8 = 19;
    pub(super) const RECLAIM: u8 = 20;
    pub(super) const CREATE_SPACE: u8 = 21;
    pub(super) const OPEN: u8 = 22;
    pub(super) const ROWS: u8 = 23;
    pub(super) const CREATE_CONTENT: u8 = 24;
    pub(super) const RESIZE_CONTENT: u8 = 25;
    pub(super) const DELETE_CONTENT: u8 = 26;
}

fn put_step(out: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Create { oid, kind, near, content } => {
            out.push(code::CREATE);
            put_oid(out, *oid);
            out.push(*kind as u8);
            put_optional_oid(out, *near);
            put_content(out, content);
        }
        Step::Put { oid, content } => {
            put_code_and_oid(out, code::PUT, *oid);
            put_content(out, content);
        }
        Step::PutStaged { oid, data, size, first, tail } => {
            put_code_and_oid(out, code::PUT_STAGED, *oid);
            put_number(out, data.0);
            put_number(out, *size);
            put_extent(out, first);
            put_bytes(out, tail);
        }
        Step::Write { oid, offset, bytes } => {
            put_code_and_oid(out, code::WRITE, *oid);
            put_number(out, *offset);
            put_bytes(out, bytes);
        }
        Step::WriteChunks { oid, index, extents } => {
            put_code_and_oid(out, code::WRITE_CHUNKS, *oid);
            put_number(out, *index);
            put_extents(out, extents);
        }
        Step::Append { oid, at, content } => {
            put_code_and_oid(out, code::APPEND, *oid);
            put_optional_number(out, *at);
            put_content(out, content);
        }
        Step::Truncate { oid, size } => {
            put_code_and_oid(out, code::TRUNCATE, *oid);
            put_number(out, *size);
        }
        Step::Zero { oid, offset, len } => {
            put_code_and_oid(out, code::ZERO, *oid);
            put_number(out, *offset);
            put_number(out, *len);
        }
        Step::Clone { from, to } => put_pair(out, code::CLONE, *from, *to),
        Step::Delete { oid } => put_code_and_oid(out, code::DELETE, *oid),
        Step::SetAttribute { oid, key, value } => {
            put_code_and_oid(out, code::SET_ATTRIBUTE, *oid);
            put_bytes(out, key);
            put_bytes(out, value);
        }
        Step::RemoveAttribute { oid, key } => {
            put_code_and_oid(out, code::REMOVE_ATTRIBUTE, *oid);
            put_bytes(out, key);
        }
        Step::Add { collection, member } => put_pair(out, code::ADD, *collection, *member),
        Step::Remove { collection, member } => put_pair(out, code::REMOVE, *collection, *member),
        Step::Bind { name, oid } => {
            put_code_and_oid(out, code::BIND, *oid);
            put_name(out, name);
        }
        Step::Unbind { name } => {
            out.push(code::UNBIND);
            put_name(out, name);
        }
        Step::Expect { oid, version } => {
            put_code_and_oid(out, code::EXPECT, *oid);
            put_optional_number(out, *version);
        }
        Step::ExpectName { name, oid } => {
            out.push(code::EXPECT_NAME);
            put_name(out, name);
            put_optional_oid(out, *oid);
        }
        Step::Stage { data, index, extents } => {
            out.push(code::STAGE);
            put_number(out, data.0);
            put_number(out, *index);
            put_extents(out, extents);
        }
        Step::Reclaim { data, from, to, done } => {
            out.push(code::RECLAIM);
            put_number(out, data.0);
            put_number(out, *from);
            put_number(out, *to);
            out.push(u8::from(*done));
        }
        Step::CreateSpace { id, name } => {
            out.push(code::CREATE_SPACE);
            put_number(out, u64::from(*id));
            put_bytes(out, name.as_bytes());
        }
        Step::Open { incarnation } => {
            out.push(code::OPEN);
            put_number(out, u64::from(*incarnation));
        }
        Step::CreateContent { id, content } => {
            put_code_and_oid(out, code::CREATE_CONTENT, *id);
            put_content(out, content);
        }
        Step::ResizeContent { id, size } => {
            put_code_and_oid(out, code::RESIZE_CONTENT, *id);
            put_number(out, *size);
        }
        Step::DeleteContent { id } => put_code_and_oid(out, code::DELETE_CONTENT, *id),
        Step::Rows(changes) => {
            out.push(code::ROWS);
            put_number(out, changes.len() as u64);
            changes.iter().for_each(|change| put_row(out, change));
        }
    }
}

fn put_row(out: &mut Vec<u8>, change: &RowChange) {
    put_bytes(out, change.key());
    out.push(u8::from(!change.is_removal()));
    if let Some(value) = &change.value {
        put_bytes(out, value);
    }
}

fn put_code_and_oid(out: &mut Vec<u8>, code: u8, oid: Oid) {
    out.push(code);
    put_oid(out, oid);
}

fn put_pair(out: &mut Vec<u8>, code: u8, first: Oid, second: Oid) {
    put_code_and_oid(out, code, first);
    put_oid(out, second);
}

/// The entry that `payload` encodes. Bytes of its content share the payload's memory.
pub(crate) fn decode(payload: Bytes) -> Result<LogEntry, LogEntryError> {
    let mut rest = Reader(payload);
    match rest.byte()? {
        FORMAT => {}
        other => return Err(LogEntryError::Format(other)),
    }
    let time_us = rest.take(8)?.get_i64_le();
    // A count is limited by the number of remaining bytes before anything is allocated.
    let created = (0..rest.count(Oid::LEN)?).map(|_| rest.oid()).collect::<Result<_, _>>()?;
    let steps = (0..rest.count(2)?).map(|_| rest.step()).collect::<Result<_, _>>()?;
    if rest.0.is_empty() { Ok(LogEntry { time_us, created, steps }) } else { Err(LogEntryError::Long) }
}

struct Reader(Bytes);

impl Reader {
    fn take(&mut self, len: usize) -> Result<Bytes, LogEntryError> {
        if len > self.0.len() { Err(LogEntryError::Short) } else { Ok(self.0.split_to(len)) }
    }

    fn byte(&mut self) -> Result<u8, LogEntryError> {
        self.0.try_get_u8().map_err(|_| LogEntryError::Short)
    }

    fn flag(&mut self) -> Result<bool, LogEntryError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(LogEntryError::Value),
        }
    }

    fn number(&mut self) -> Result<u64, LogEntryError> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(LogEntryError::Value);
            }
            n |= part << shift;
            if byte < 0x80 {
                return Ok(n);
            }
        }
        Err(LogEntryError::Value)
    }

    /// A number of elements of at least `least` bytes each.
    fn count(&mut self, least: usize) -> Result<usize, LogEntryError> {
        let n = self.number()?;
        if n > (self.0.len() / least) as u64 { Err(LogEntryError::Short) } else { Ok(n as usize) }
    }

    fn bytes(&mut self) -> Result<Bytes, LogEntryError> {
        let len = self.count(1)?;
        self.take(len)
    }

    fn text(&mut self) -> Result<String, LogEntryError> {
        String::from_utf8(self.bytes()?.into()).map_err(|_| LogEntryError::Value)
    }

    fn oid(&mut self) -> Result<Oid, LogEntryError> {
        Ok(Oid::from_bytes(self.take(Oid::LEN)?[..].try_into().map_err(|_| LogEntryError::Short)?))
    }

    fn optional_oid(&mut self) -> Result<Option<Oid>, LogEntryError> {
        if self.flag()? { self.oid().map(Some) } else { Ok(None) }
    }

    fn optional_number(&mut self) -> Result<Option<u64>, LogEntryError> {
        if self.flag()? { self.number().map(Some) } else { Ok(None) }
    }

    fn space(&mut self) -> Result<SpaceId, LogEntryError> {
        let n = self.number()?;
        if n > u64::from(SpaceId::MAX.0) { Err(LogEntryError::Value) } else { Ok(SpaceId(n as u16)) }
    }

    fn name(&mut self) -> Result<Name, LogEntryError> {
        Ok(Name { space: self.space()?, path: self.text()? })
    }

    fn data(&mut self) -> Result<DataId, LogEntryError> {
        self.number().map(DataId)
    }

    fn u32(&mut self) -> Result<u32, LogEntryError> {
        u32::try_from(self.number()?).map_err(|_| LogEntryError::Value)
    }

    fn extent(&mut self) -> Result<Extent, LogEntryError> {
        let (file, offset, len) = (self.u32()?, self.number()?, self.u32()?);
        if len as usize > CHUNK {
            return Err(LogEntryError::Value);
        }
        let crc = self.take(4)?.get_u32_le();
        let blocks = self.take((len as usize).div_ceil(BLOCK) * 4)?;
        // Copied: extents stay in memory for long and must not keep the payload in memory.
        Ok(Extent { file, offset, len, crc, blocks: Bytes::copy_from_slice(&blocks) })
    }

    fn extents(&mut self) -> Result<Vec<Extent>, LogEntryError> {
        (0..self.count(7)?).map(|_| self.extent()).collect()
    }

    fn content(&mut self) -> Result<StagedContent, LogEntryError> {
        Ok(StagedContent { extents: self.extents()?, bytes: self.bytes()? })
    }

    fn row(&mut self) -> Result<RowChange, LogEntryError> {
        let key = self.bytes()?;
        let value = if self.flag()? { Some(self.bytes()?) } else { None };
        let fits = (1..=limits::ROW_KEY).contains(&key.len());
        if !fits || value.as_ref().is_some_and(|value| value.len() > limits::ROW_VALUE) {
            return Err(LogEntryError::Value);
        }
        Ok(RowChange::new(&key, value))
    }

    fn step(&mut self) -> Result<Step, LogEntryError> {
        Ok(match self.byte()? {
            code::CREATE => Step::Create {
                oid: self.oid()?,
                kind: Kind::from_code(self.byte()?).ok_or(LogEntryError::Value)?,
                near: self.optional_oid()?,
                content: self.content()?,
            },
            code::PUT => Step::Put { oid: self.oid()?, content: self.content()? },
            code::PUT_STAGED => Step::PutStaged {
                oid: self.oid()?,
                data: self.data()?,
                size: self.number()?,
                first: self.extent()?,
                tail: self.bytes()?,
            },
            code::WRITE => Step::Write { oid: self.oid()?, offset: self.number()?, bytes: self.bytes()? },
            code::WRITE_CHUNKS => {
                Step::WriteChunks { oid: self.oid()?, index: self.number()?, extents: self.extents()? }
            }
            code::APPEND => Step::Append { oid: self.oid()?, at: self.optional_number()?, content: self.content()? },
            code::TRUNCATE => Step::Truncate { oid: self.oid()?, size: self.number()? },
            code::ZERO => Step::Zero { oid: self.oid()?, offset: self.number()?, len: self.number()? },
            code::CLONE => Step::Clone { from: self.oid()?, to: self.oid()? },
            code::DELETE => Step::Delete { oid: self.oid()? },
            code::SET_ATTRIBUTE => Step::SetAttribute { oid: self.oid()?, key: self.bytes()?, value: self.bytes()? },
            code::REMOVE_ATTRIBUTE => Step::RemoveAttribute { oid: self.oid()?, key: self.bytes()? },
            code::ADD => Step::Add { collection: self.oid()?, member: self.oid()? },
            code::REMOVE => Step::Remove { collection: self.oid()?, member: self.oid()? },
            code::BIND => {
                let oid = self.oid()?;
                Step::Bind { name: self.name()?, oid }
            }
            code::UNBIND => Step::Unbind { name: self.name()? },
            code::EXPECT => Step::Expect { oid: self.oid()?, version: self.optional_number()? },
            code::EXPECT_NAME => Step::ExpectName { name: self.name()?, oid: self.optional_oid()? },
            code::STAGE => Step::Stage { data: self.data()?, index: self.number()?, extents: self.extents()? },
            code::RECLAIM => {
                Step::Reclaim { data: self.data()?, from: self.number()?, to: self.number()?, done: self.flag()? }
            }
            code::CREATE_SPACE => Step::CreateSpace { id: self.space()?.0, name: self.text()? },
            code::OPEN => Step::Open { incarnation: self.u32()? },
            code::CREATE_CONTENT => Step::CreateContent { id: self.oid()?, content: self.content()? },
            code::RESIZE_CONTENT => Step::ResizeContent { id: self.oid()?, size: self.number()? },
            code::DELETE_CONTENT => Step::DeleteContent { id: self.oid()? },
            code::ROWS => Step::Rows((0..self.count(3)?).map(|_| self.row()).collect::<Result<_, _>>()?),
            other => return Err(LogEntryError::Step(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(n: u64) -> Extent {
        let blocks = vec![n as u8; CHUNK / BLOCK * 4].into();
        Extent { file: n as u32, offset: n << 40, len: CHUNK as u32, crc: 9, blocks }
    }

    fn every_step() -> Vec<Step> {
        let (a, b): (Oid, Oid) = ("~1.0.0.2a.3".parse().unwrap(), "7.1.0.0.ffff".parse().unwrap());
        let name = || Name { space: SpaceId(3), path: "a/ü".to_owned() };
        let bytes = || Bytes::from_static(b"bytes");
        let content = || StagedContent { extents: vec![extent(1), extent(2)], bytes: bytes() };
        vec![
            Step::Create { oid: a, kind: Kind::Record, near: Some(b), content: content() },
            Step::Put { oid: b, content: StagedContent::default() },
            Step::PutStaged { oid: b, data: DataId(u64::MAX), size: 1 << 50, first: extent(3), tail: bytes() },
            Step::Write { oid: a, offset: 1 << 49, bytes: bytes() },
            Step::WriteChunks { oid: a, index: 300, extents: vec![extent(4)] },
            Step::Append { oid: a, at: Some(0), content: content() },
            Step::Truncate { oid: a, size: 127 },
            Step::Zero { oid: a, offset: 128, len: 16384 },
            Step::Clone { from: a, to: b },
            Step::Delete { oid: a },
            Step::SetAttribute { oid: a, key: bytes(), value: bytes() },
            Step::RemoveAttribute { oid: a, key: bytes() },
            Step::Add { collection: a, member: b },
            Step::Remove { collection: a, member: b },
            Step::Bind { name: name(), oid: a },
            Step::Unbind { name: name() },
            Step::Expect { oid: a, version: None },
            Step::ExpectName { name: name(), oid: Some(a) },
            Step::Stage { data: DataId(5), index: 1, extents: vec![] },
            Step::Reclaim { data: DataId(5), from: 0, to: u64::MAX, done: true },
            Step::CreateSpace { id: 9, name: "space".to_owned() },
            Step::Open { incarnation: 4 },
            Step::Rows(vec![RowChange::new(b"a key", Some(bytes())), RowChange::new(b"gone", None)]),
        ]
    }

    fn encoded(entry: &LogEntry) -> Bytes {
        let mut out = Vec::new();
        encode(&mut out, entry);
        out.into()
    }

    #[test]
    fn every_step_round_trips_and_truncated_entries_are_refused() {
        let entry = LogEntry { time_us: -1, created: vec![Oid::MAX], steps: every_step() };
        let payload = encoded(&entry);
        assert_eq!(decode(payload.clone()), Ok(entry));
        for len in 0..payload.len() {
            assert!(decode(payload.slice(..len)).is_err(), "cut at {len}");
        }
    }

    proptest! {
        #[test]
        fn changed_payloads_never_panic(at in 0usize..4000, value: u8, cut in 0usize..4000) {
            let entry = LogEntry { time_us: 1, created: vec![], steps: every_step() };
            let mut payload = encoded(&entry).to_vec();
            let at = at % payload.len();
            payload[at] = value;
            payload.truncate(payload.len() - cut % payload.len());
            let _ = decode(payload.into());
        }
    }
}
