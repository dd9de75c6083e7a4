//! The encoding of entries: a format byte, the number of steps, then the steps. Numbers are LEB128; bytes are preceded by their
//! length.

use bytes::{Buf, BufMut, Bytes};
use model::{ContentId, limits};

use super::{StagedContent, Step};
use crate::rows::changes::RowChange;
use crate::rows::key::{DataId, is_opening};
use crate::rows::row::{BLOCK, CHUNK, Extent, is_chunk_position};

const FORMAT: u8 = 2;

/// Why a payload is not a valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogEntryError {
    #[error("it ends too early")]
    Short,
    #[error("it has format {0}; this version reads format {FORMAT}")]
    Format(u8),
    #[error("it has a step of kind {0}, which this version does not know")]
    Step(u8),
    #[error("a number in it is not valid")]
    Value,
    #[error("it has a chunk at byte {1} of {0:08x}.blob, where none can be")]
    Position(u32, u64),
    #[error("bytes follow its end")]
    Long,
}

/// Appends the encoding of an entry.
pub(crate) fn encode(out: &mut Vec<u8>, steps: &[Step]) {
    out.put_u8(FORMAT);
    put_number(out, steps.len() as u64);
    steps.iter().for_each(|step| put_step(out, step));
}

fn put_number(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.put_slice(bytes);
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
    pub(super) const CREATE_CONTENT: u8 = 1;
    pub(super) const TAKE_UPLOAD: u8 = 2;
    pub(super) const WRITE: u8 = 3;
    pub(super) const WRITE_CHUNKS: u8 = 4;
    pub(super) const TRUNCATE: u8 = 5;
    pub(super) const ZERO: u8 = 6;
    pub(super) const RESIZE: u8 = 7;
    pub(super) const DELETE: u8 = 8;
    pub(super) const STAGE: u8 = 9;
    pub(super) const RECLAIM: u8 = 10;
    pub(super) const OPEN: u8 = 11;
    pub(super) const ROWS: u8 = 12;
}

fn put_step(out: &mut Vec<u8>, step: &Step) {
    match step {
        Step::CreateContent { id, content } => {
            put_code_and_id(out, code::CREATE_CONTENT, *id);
            put_content(out, content);
        }
        Step::TakeUpload { id, data, size, first, tail } => {
            put_code_and_id(out, code::TAKE_UPLOAD, *id);
            put_number(out, data.0);
            put_number(out, *size);
            put_extent(out, first);
            put_bytes(out, tail);
        }
        Step::Write { id, offset, bytes } => {
            put_code_and_id(out, code::WRITE, *id);
            put_number(out, *offset);
            put_bytes(out, bytes);
        }
        Step::WriteChunks { id, index, extents } => {
            put_code_and_id(out, code::WRITE_CHUNKS, *id);
            put_number(out, *index);
            put_extents(out, extents);
        }
        Step::Truncate { id, size } => {
            put_code_and_id(out, code::TRUNCATE, *id);
            put_number(out, *size);
        }
        Step::Zero { id, offset, len } => {
            put_code_and_id(out, code::ZERO, *id);
            put_number(out, *offset);
            put_number(out, *len);
        }
        Step::Resize { id, size } => {
            put_code_and_id(out, code::RESIZE, *id);
            put_number(out, *size);
        }
        Step::Delete { id } => put_code_and_id(out, code::DELETE, *id),
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
        Step::Open { incarnation } => {
            out.push(code::OPEN);
            put_number(out, u64::from(*incarnation));
        }
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

fn put_code_and_id(out: &mut Vec<u8>, code: u8, id: ContentId) {
    out.push(code);
    out.put_u128(id.0);
}

/// The steps of the entry that `payload` encodes. Bytes of contents share the payload's memory.
pub(crate) fn decode(payload: Bytes) -> Result<Vec<Step>, LogEntryError> {
    let mut rest = Reader(payload);
    match rest.byte()? {
        FORMAT => {}
        other => return Err(LogEntryError::Format(other)),
    }
    // A count is limited by the number of remaining bytes before anything is allocated.
    let steps = (0..rest.count(2)?).map(|_| rest.step()).collect::<Result<_, _>>()?;
    if rest.0.is_empty() { Ok(steps) } else { Err(LogEntryError::Long) }
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

    fn id(&mut self) -> Result<ContentId, LogEntryError> {
        self.0.try_get_u128().map(ContentId).map_err(|_| LogEntryError::Short)
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
        if !is_chunk_position(file, offset) {
            return Err(LogEntryError::Position(file, offset));
        }
        let crc = self.take(4)?.get_u32_le();
        let blocks = self.take((len as usize).div_ceil(BLOCK) * 4)?;
        // Copied: extents stay in memory for long and must not keep the payload in memory.
        Ok(Extent { file, offset, len, crc, blocks: Bytes::copy_from_slice(&blocks) })
    }

    fn extents(&mut self) -> Result<Vec<Extent>, LogEntryError> {
        (0..self.count(7)?).map(|_| self.extent()).collect()
    }

    /// The index of a chunk, and the extents of this chunk and the next ones of a content.
    fn chunks(&mut self) -> Result<(u64, Vec<Extent>), LogEntryError> {
        let (index, extents) = (self.number()?, self.extents()?);
        let end = index.saturating_add(extents.len() as u64);
        if end <= limits::BLOB / CHUNK as u64 { Ok((index, extents)) } else { Err(LogEntryError::Value) }
    }

    /// The bytes after the last whole chunk of an upload.
    fn tail(&mut self) -> Result<Bytes, LogEntryError> {
        self.bytes().and_then(|tail| if tail.len() <= CHUNK { Ok(tail) } else { Err(LogEntryError::Value) })
    }

    /// A count of openings.
    fn opening(&mut self) -> Result<u32, LogEntryError> {
        self.u32().and_then(|count| if is_opening(count) { Ok(count) } else { Err(LogEntryError::Value) })
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
            code::CREATE_CONTENT => Step::CreateContent { id: self.id()?, content: self.content()? },
            code::TAKE_UPLOAD => Step::TakeUpload {
                id: self.id()?,
                data: self.data()?,
                size: self.number()?,
                first: self.extent()?,
                tail: self.tail()?,
            },
            code::WRITE => Step::Write { id: self.id()?, offset: self.number()?, bytes: self.bytes()? },
            code::WRITE_CHUNKS => {
                let (id, (index, extents)) = (self.id()?, self.chunks()?);
                Step::WriteChunks { id, index, extents }
            }
            code::TRUNCATE => Step::Truncate { id: self.id()?, size: self.number()? },
            code::ZERO => Step::Zero { id: self.id()?, offset: self.number()?, len: self.number()? },
            code::RESIZE => Step::Resize { id: self.id()?, size: self.number()? },
            code::DELETE => Step::Delete { id: self.id()? },
            code::STAGE => {
                let (data, (index, extents)) = (self.data()?, self.chunks()?);
                Step::Stage { data, index, extents }
            }
            code::RECLAIM => {
                Step::Reclaim { data: self.data()?, from: self.number()?, to: self.number()?, done: self.flag()? }
            }
            code::OPEN => Step::Open { incarnation: self.opening()? },
            code::ROWS => Step::Rows((0..self.count(3)?).map(|_| self.row()).collect::<Result<_, _>>()?),
            other => return Err(LogEntryError::Step(other)),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::frame;
    use crate::tests::check_corpus;

    fn extent(n: u64) -> Extent {
        let blocks = vec![n as u8; CHUNK / BLOCK * 4].into();
        Extent { file: n as u32, offset: n << 20, len: CHUNK as u32, crc: 9, blocks }
    }

    fn every_step() -> Vec<Step> {
        let (a, b) = (ContentId(7), ContentId(u128::MAX));
        let bytes = || Bytes::from_static(b"bytes");
        let content = StagedContent { extents: vec![extent(1), extent(2)], bytes: bytes() };
        vec![
            Step::CreateContent { id: a, content },
            Step::CreateContent { id: b, content: StagedContent::default() },
            Step::TakeUpload { id: b, data: DataId(u64::MAX), size: 1 << 50, first: extent(3), tail: bytes() },
            Step::Write { id: a, offset: 1 << 49, bytes: bytes() },
            Step::WriteChunks { id: a, index: 300, extents: vec![extent(4)] },
            Step::Truncate { id: a, size: 127 },
            Step::Zero { id: a, offset: 128, len: 16384 },
            Step::Resize { id: b, size: u64::MAX },
            Step::Delete { id: a },
            Step::Stage { data: DataId(5), index: 1, extents: vec![] },
            Step::Reclaim { data: DataId(5), from: 0, to: u64::MAX, done: true },
            Step::Open { incarnation: 4 },
            Step::Rows(vec![RowChange::new(b"a key", Some(bytes())), RowChange::new(b"gone", None)]),
        ]
    }

    fn encode_steps(steps: &[Step]) -> Bytes {
        let mut out = Vec::new();
        encode(&mut out, steps);
        out.into()
    }

    #[test]
    fn every_step_round_trips_and_truncated_entries_are_refused() {
        let payload = encode_steps(&every_step());
        assert_eq!(decode(payload.clone()), Ok(every_step()));
        for len in 0..payload.len() {
            assert!(decode(payload.slice(..len)).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn an_entry_of_another_format_is_refused_with_both_formats() {
        let mut payload = encode_steps(&every_step()).to_vec();
        payload[0] = 1;
        let refused = decode(payload.into()).unwrap_err();
        assert_eq!(refused.to_string(), "it has format 1; this version reads format 2");
    }

    #[test]
    fn extents_where_no_chunk_can_be_are_refused_by_their_position() {
        for (file, offset) in
            [(0, 0), (u32::MAX, 0), (1 << 31, 0), (1, u64::MAX), (1, u64::MAX << 16), (1, 1 << 32), (1, 1)]
        {
            let bad = || Extent { file, offset, ..extent(1) };
            let content = StagedContent { extents: vec![extent(1), bad()], bytes: Bytes::new() };
            for step in [
                Step::CreateContent { id: ContentId(1), content },
                Step::TakeUpload { id: ContentId(1), data: DataId(2), size: 9, first: bad(), tail: Bytes::new() },
                Step::WriteChunks { id: ContentId(1), index: 0, extents: vec![bad()] },
                Step::Stage { data: DataId(2), index: 0, extents: vec![bad()] },
            ] {
                let refused = decode(encode_steps(&[step])).unwrap_err().to_string();
                assert!(refused.contains(&format!("byte {offset} of {file:08x}.blob")), "{refused}");
            }
        }
    }

    #[test]
    fn numbers_that_no_store_logs_are_refused() {
        let (id, data) = (ContentId(1), DataId(2));
        let tail = |len: usize| Bytes::from(vec![7; len]);
        let take = |len| Step::TakeUpload { id, data, size: 9, first: extent(1), tail: tail(len) };
        let stage = |index| Step::Stage { data, index, extents: vec![extent(1), extent(2)] };
        let last = limits::BLOB / CHUNK as u64;
        for (valid, invalid) in [
            (take(CHUNK), take(CHUNK + 1)),
            (stage(last - 2), stage(last - 1)),
            (stage(0), stage(u64::MAX)),
            (Step::Open { incarnation: (1 << 31) - 1 }, Step::Open { incarnation: 1 << 31 }),
            (Step::Open { incarnation: 1 }, Step::Open { incarnation: u32::MAX }),
        ] {
            let decode = |step: &Step| decode(encode_steps(std::slice::from_ref(step)));
            assert!(decode(&valid) == Ok(vec![valid]) && decode(&invalid) == Err(LogEntryError::Value));
        }
    }

    #[test]
    fn the_inputs_for_fuzzing_are_entries_of_this_format() {
        let steps = every_step();
        let single = steps.iter().enumerate().map(|(i, step)| (format!("step-{i:02}"), std::slice::from_ref(step)));
        let mut inputs: Vec<(String, Vec<u8>)> = single
            .chain([("all".to_owned(), &steps[..])])
            .map(|(name, steps)| (name, encode_steps(steps).to_vec()))
            .collect();
        let (mut segment, mut crc) = (Vec::new(), 0);
        for (seq, step) in (1..).zip(&steps) {
            let write = |out: &mut Vec<u8>| encode(out, std::slice::from_ref(step));
            crc = frame::encode(&mut segment, &[7; 16], seq, seq - 1, crc, write).unwrap();
        }
        inputs.push(("segment".to_owned(), segment));
        check_corpus("log_frames", &inputs);
    }

    proptest! {
        #[test]
        fn changed_payloads_never_panic(at in 0usize..4000, value: u8, cut in 0usize..4000) {
            let mut payload = encode_steps(&every_step()).to_vec();
            let at = at % payload.len();
            payload[at] = value;
            payload.truncate(payload.len() - cut % payload.len());
            let _ = decode(payload.into());
        }
    }
}
