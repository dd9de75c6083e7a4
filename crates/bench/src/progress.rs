//! Reports the progress of a benchmark on standard error.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::time::Instant;

static STARTED: OnceLock<Instant> = OnceLock::new();

/// Writes a line with the time since the first one.
pub(crate) fn line(text: Arguments<'_>) {
    let seconds = STARTED.get_or_init(Instant::now).elapsed().as_secs_f64();
    // A closed standard error does not fail a benchmark.
    let _ = writeln!(io::stderr(), "[{seconds:7.1} s] {text}");
}
