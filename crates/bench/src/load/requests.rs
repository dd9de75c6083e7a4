//! Encoded requests, one for each key, and the values of the keys.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::Result;

/// The values of all keys: noise that begins with the key, so that a wrong value is noticed.
pub(crate) struct Data {
    bytes: Vec<u8>,
    size: usize,
}

/// The requests that get or put each key.
pub(crate) struct Requests<'a> {
    heads: Vec<u8>,
    /// The end of each key's head.
    ends: Vec<usize>,
    /// Sent after the head.
    puts: bool,
    tail: &'static [u8],
    data: &'a Data,
}

impl Data {
    /// Values of `size` bytes, at least eight.
    pub(crate) fn new(keys: usize, size: usize) -> Self {
        assert!(size >= 8, "a value of {size} bytes cannot hold its key");
        let mut bytes = vec![0; keys * size];
        SmallRng::seed_from_u64(7).fill_bytes(&mut bytes);
        for (key, value) in bytes.chunks_exact_mut(size).enumerate() {
            value[..8].copy_from_slice(&(key as u64).to_le_bytes());
        }
        Self { bytes, size }
    }

    pub(crate) fn value(&self, key: usize) -> &[u8] {
        &self.bytes[key * self.size..(key + 1) * self.size]
    }

    /// Fails if a value is not that of the key. Compares the length and the first bytes, or everything if `whole`.
    pub(crate) fn check(&self, key: usize, value: &[u8], whole: bool) -> Result<()> {
        let expected = self.value(key);
        let same = value.len() == expected.len() && if whole { value == expected } else { value[..8] == expected[..8] };
        if same { Ok(()) } else { Err(format!("key {key} was answered with a wrong value").into()) }
    }

    pub(crate) fn keys(&self) -> usize {
        self.bytes.len() / self.size
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl<'a> Requests<'a> {
    /// Requests without a value: gets.
    pub(crate) fn gets(data: &'a Data, head: impl FnMut(usize, &mut Vec<u8>)) -> Self {
        Self::new(data, head, false, b"")
    }

    /// Requests that consist of a head, the key's value, and `tail`.
    pub(crate) fn puts(data: &'a Data, head: impl FnMut(usize, &mut Vec<u8>), tail: &'static [u8]) -> Self {
        Self::new(data, head, true, tail)
    }

    fn new(data: &'a Data, mut head: impl FnMut(usize, &mut Vec<u8>), puts: bool, tail: &'static [u8]) -> Self {
        let (mut heads, mut ends) = (Vec::new(), Vec::with_capacity(data.keys()));
        for key in 0..data.keys() {
            head(key, &mut heads);
            ends.push(heads.len());
        }
        Self { heads, ends, puts, tail, data }
    }

    pub(super) fn data(&self) -> &Data {
        self.data
    }

    pub(super) fn keys(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn write(&self, key: usize, output: &mut Vec<u8>) {
        let begin = if key == 0 { 0 } else { self.ends[key - 1] };
        output.extend_from_slice(&self.heads[begin..self.ends[key]]);
        if self.puts {
            output.extend_from_slice(self.data.value(key));
            output.extend_from_slice(self.tail);
        }
    }
}
