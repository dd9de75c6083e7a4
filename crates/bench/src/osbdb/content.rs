//! Content that identifies itself: every kibibyte begins with its own number.

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::Result;

const STAMP_EVERY: usize = 1024;

/// `size` bytes of noise with numbers; `seed` distinguishes objects.
pub(super) fn stamped_bytes(seed: u64, size: usize) -> Bytes {
    let mut bytes = vec![0; size];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    for (index, part) in bytes.chunks_mut(STAMP_EVERY).enumerate() {
        let stamp = (seed << 32 | index as u64).to_le_bytes();
        let len = part.len().min(stamp.len());
        part[..len].copy_from_slice(&stamp[..len]);
    }
    bytes.into()
}

/// Compares bytes with the expected content: the length, and eight bytes of every kibibyte.
pub(super) struct Check<'a> {
    content: &'a [u8],
    seen: usize,
    wrong: bool,
}

impl<'a> Check<'a> {
    pub(super) fn new(content: &'a [u8]) -> Self {
        Self { content, seen: 0, wrong: false }
    }

    /// Checks the next bytes.
    pub(super) fn look(&mut self, piece: &[u8]) {
        let Some(expected) = self.content.get(self.seen..self.seen + piece.len()) else {
            self.wrong = true;
            return;
        };
        for at in (0..piece.len()).step_by(STAMP_EVERY) {
            let end = (at + 8).min(piece.len());
            self.wrong |= piece[at..end] != expected[at..end];
        }
        self.seen += piece.len();
    }

    /// Fails unless all of the content was read and correct.
    pub(super) fn end(self) -> Result<()> {
        match (self.wrong, self.seen == self.content.len()) {
            (false, true) => Ok(()),
            (false, false) => Err(format!("{} bytes were read of {}", self.seen, self.content.len()).into()),
            (true, _) => Err("the bytes read differ from those written".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn piece_from_another_place_is_noticed() {
        let content = stamped_bytes(1, 4096);
        let check = |pieces: &[&[u8]]| {
            let mut check = Check::new(&content);
            pieces.iter().for_each(|piece| check.look(piece));
            check.end()
        };
        assert!(check(&[&content[..1000], &content[1000..]]).is_ok());
        assert!(check(&[&content[1024..2048], &content[1024..]]).is_err());
        assert!(check(&[&content[..4095]]).is_err());
        assert!(check(&[&content, &content[..1]]).is_err());
    }
}
