//! Bounds what a message takes in memory before it is decoded.
//!
//! An empty element of a list has two bytes on the wire and hundreds in memory, so a frame of a size that is accepted could take
//! gigabytes. One walk over the headers of the fields adds up what the lists, strings and nested messages will take; long lists
//! of numbers are one field. The sizes are those of the generated types (`build.rs`).

use prost::Message;

use crate::frame::FrameError;
use crate::proto;

/// Bytes that a decoded message may take in memory, without the unused capacity of its lists.
///
/// Long lists are of numbers of a fixed size, which take as much as on the wire, and so less than
/// [`MAX_MESSAGE`](crate::frame::MAX_MESSAGE). The other lists have at most 16,384 elements with less than 600 bytes each.
pub const MAX_DECODED: usize = 64 << 20;

/// Bytes of a message up to which it is not walked over: it decodes to much less than [`MAX_DECODED`].
const MAX_UNCHECKED: usize = 512;

/// Nested messages at most; also prost's limit.
const MAX_DEPTH: u32 = 100;

struct MessageType {
    /// Bytes of the struct.
    size: usize,
    /// The fields that take memory beside the struct, by rising numbers.
    fields: &'static [(u32, FieldKind)],
}

#[derive(Clone, Copy)]
enum FieldKind {
    /// A message: its place in the table.
    Message(usize),
    /// A string or bytes: bytes of the struct.
    Bytes(usize),
    /// A list of numbers: the bytes of each, encoded at least and in memory.
    Numbers { encoded: usize, size: usize },
}

mod table {
    use super::{FieldKind, MessageType};

    include!(concat!(env!("OUT_DIR"), "/message_table.rs"));
}

/// Decodes a request, and tells about how many bytes it takes in memory.
pub(crate) fn decode_request(bytes: &[u8]) -> Result<(proto::Request, usize), FrameError> {
    let size = check(bytes, table::REQUEST)?;
    Ok((proto::Request::decode(bytes).map_err(unreadable)?, size))
}

/// Decodes an answer.
pub(crate) fn decode_response(bytes: &[u8]) -> Result<proto::Response, FrameError> {
    check(bytes, table::RESPONSE)?;
    proto::Response::decode(bytes).map_err(unreadable)
}

fn unreadable(error: prost::DecodeError) -> FrameError {
    FrameError::Message(error.to_string())
}

fn malformed() -> FrameError {
    FrameError::Message("its fields do not have the lengths that they state".to_owned())
}

/// About how many bytes a message takes in memory; fails if these are more than [`MAX_DECODED`].
fn check(bytes: &[u8], root: usize) -> Result<usize, FrameError> {
    if bytes.len() <= MAX_UNCHECKED {
        return Ok(bytes.len());
    }
    let mut size = DecodedSize { bytes: 0 };
    size.add_message(bytes, root, 0)?;
    Ok(size.bytes.max(bytes.len()))
}

struct DecodedSize {
    bytes: usize,
}

impl DecodedSize {
    fn add(&mut self, bytes: usize) -> Result<(), FrameError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_DECODED { Err(FrameError::TooLargeDecoded { max: MAX_DECODED }) } else { Ok(()) }
    }

    fn add_message(&mut self, mut rest: &[u8], place: usize, depth: u32) -> Result<(), FrameError> {
        let message = &table::MESSAGES[place];
        self.add(message.size)?;
        if depth > MAX_DEPTH {
            return Err(FrameError::Message(format!("it has more than {MAX_DEPTH} nested messages")));
        }
        while !rest.is_empty() {
            let key = take_varint(&mut rest)?;
            let field = u32::try_from(key >> 3).map_err(|_| malformed())?;
            let kind = message.fields.binary_search_by_key(&field, |(number, _)| *number).ok();
            let kind = kind.map(|at| message.fields[at].1);
            let length = match key & 7 {
                0 => {
                    take_varint(&mut rest)?;
                    0
                }
                1 => 8,
                5 => 4,
                2 => usize::try_from(take_varint(&mut rest)?).map_err(|_| malformed())?,
                _ => return Err(malformed()),
            };
            let (content, behind) = rest.split_at_checked(length).ok_or_else(malformed)?;
            rest = behind;
            match (kind, key & 7) {
                (Some(FieldKind::Message(place)), 2) => self.add_message(content, place, depth + 1)?,
                (Some(FieldKind::Bytes(size)), 2) => self.add(size + content.len())?,
                (Some(FieldKind::Numbers { encoded, size }), 2) => self.add(content.len() / encoded * size)?,
                (Some(FieldKind::Numbers { size, .. }), _) => self.add(size)?,
                // A field of the struct itself, an unknown one, or one of another type, which prost refuses.
                _ => {}
            }
        }
        Ok(())
    }
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, FrameError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first().ok_or_else(malformed)?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(malformed())
}

#[cfg(test)]
mod tests;
