//! A fuzzer without libFuzzer: it mutates known inputs blindly and deterministically.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::Target;

/// Bytes that are boundaries in many formats.
const BOUNDARY_BYTES: [u8; 8] = [0x00, 0x01, 0x02, 0x03, 0x7f, 0x80, 0xfe, 0xff];
/// The length up to which mutations extend an input.
const MAX_INPUT_BYTES: usize = 1 << 16;

/// Runs the target on each input of `corpus` and on `count` mutated copies.
///
/// # Panics
/// If the target panics, after the input was printed; and if the corpus is empty.
pub fn smoke(target: Target, corpus: &[Vec<u8>], count: u32) {
    assert!(!corpus.is_empty(), "{} has no corpus", target.name);
    corpus.iter().for_each(|input| run(target, input));
    let mut random = StdRng::seed_from_u64(0x6d6f_7274_6172);
    let mut input = Vec::new();
    for _ in 0..count {
        input.clone_from(&corpus[random.random_range(0..corpus.len())]);
        for _ in 0..random.random_range(1..=4) {
            let other = &corpus[random.random_range(0..corpus.len())];
            mutate(&mut input, other, &mut random);
        }
        run(target, &input);
    }
}

#[expect(clippy::print_stderr, reason = "the input is needed to reproduce the failure")]
fn run(target: Target, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let hex = input.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        eprintln!("{} failed on these bytes; keep them in fuzz/corpus/{}: {hex}", target.name, target.name);
        resume_unwind(panic);
    }
}

/// Makes one small mutation.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut StdRng) {
    let at = random.random_range(0..=input.len());
    let len = random.random_range(0..=(input.len() - at).min(16));
    let telling = BOUNDARY_BYTES[random.random_range(0..BOUNDARY_BYTES.len())];
    match random.random_range(0..9) {
        0 => input[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.random_range(0..8)),
        1 => input[at..].iter_mut().take(1).for_each(|byte| *byte = telling),
        2 => input[at..].iter_mut().take(1).for_each(|byte| *byte = random.random()),
        3 => input[at..]
            .iter_mut()
            .take(1)
            .for_each(|byte| *byte = byte.wrapping_add(random.random_range(0..3)).wrapping_sub(1)),
        4 => input[at..at + len].fill(telling),
        5 => drop(input.drain(at..at + len)),
        6 => input.truncate(at),
        7 => {
            let copy = input[at..at + len].to_vec();
            input.splice(at..at, copy);
        }
        _ => {
            let from = random.random_range(0..=other.len());
            let part = &other[from..from + random.random_range(0..=other.len() - from)];
            input.splice(at..at + len, part.iter().copied());
        }
    }
    input.truncate(MAX_INPUT_BYTES);
}
