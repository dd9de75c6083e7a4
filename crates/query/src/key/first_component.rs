//! The first component of a key: what all objects share that are alike in the first field of an index.

use super::{number, successor, tag};

/// The first component of a key; `None` if these bytes begin with none, or not with all of one.
#[must_use]
pub fn first_component(key: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = key.split_first()?;
    let len = match *tag {
        tag::NULL | tag::FALSE | tag::TRUE | tag::ZERO | tag::COLLECTION => 0,
        tag::INFINITY | tag::MINUS_INFINITY | tag::NAN => 0,
        tag::NEGATIVE => number::number_end(rest, |byte| !byte)?,
        tag::POSITIVE => number::number_end(rest, |byte| byte)?,
        tag::STRING | tag::BYTES => text_end(rest)?,
        tag::DATE => 8,
        tag::TIMESTAMP => 8 + 4,
        tag::REFERENCE => 16,
        _ => return None,
    };
    key.get(..1 + len)
}

/// The first component that all keys from one to another, which is not part of the range, have; `None` if they have several.
#[must_use]
pub fn common_first_component<'k>(from: &'k [u8], to: &[u8]) -> Option<&'k [u8]> {
    first_component(from).filter(|first| to <= &successor(first)[..])
}

/// How many bytes a text takes with its end.
fn text_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|byte| *byte == 0)? + 2;
        match bytes.get(at - 1)? {
            0 | 1 => return Some(at),
            0xff => {}
            _ => return None,
        }
    }
}
