//! Tells the person who waits what is being measured, on standard error.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Instant;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Writes one line with the time since the first.
pub(crate) fn line(text: Arguments<'_>) {
    let seconds = STARTED.get_or_init(Instant::now).elapsed().as_secs_f64();
    // A closed error stream does not fail a benchmark.
    let _ = writeln!(io::stderr(), "[{seconds:7.1} s] {text}");
}
