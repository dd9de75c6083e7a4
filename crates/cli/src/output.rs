//! The output of commands: lines of text for a person, or JSON objects for a program.

use std::fmt;
use std::io::{self, BufWriter, Write};

use serde::Serialize;

use crate::failure::{Failure, Result};

/// Something that a command prints.
///
/// With `--json` it becomes one object on one line; otherwise [`Report::write_text`] writes lines for a person.
pub(crate) trait Report: Serialize {
    /// Writes the lines for a person, each with its end.
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()>;
}

/// How the removal of a space, a class or an index has ended, with its name.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RemovalEnd {
    /// It was removed.
    Removed(String),
    /// The removal was cancelled: it stays.
    RemovalCancelled(String),
}

impl Report for RemovalEnd {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Removed(name) => writeln!(out, "removed {}", Printable(name)),
            Self::RemovalCancelled(name) => writeln!(out, "cancelled the removal of {}", Printable(name)),
        }
    }
}

/// Where a command's results go: the standard output, as text or JSON.
pub(crate) struct Output {
    json: bool,
    quiet: bool,
    stdout: BufWriter<Box<dyn Write + Send>>,
}

impl Output {
    /// The standard output.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self::to(Box::new(io::stdout()), json, quiet)
    }

    fn to(stdout: Box<dyn Write + Send>, json: bool, quiet: bool) -> Self {
        Self { json, quiet, stdout: BufWriter::with_capacity(64 << 10, stdout) }
    }

    /// Whether results are JSON.
    pub(crate) fn json(&self) -> bool {
        self.json
    }

    /// Whether only failures and explicitly requested results are printed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether long work should show no progress.
    pub(crate) fn hides_progress(&self) -> bool {
        self.json || self.quiet
    }

    /// Prints a result.
    pub(crate) fn print(&mut self, report: &impl Report) -> Result {
        if self.json {
            let line = serde_json::to_string(report).map_err(|e| Failure::new(format!("cannot print as JSON: {e}")))?;
            writeln!(self.stdout, "{line}")?;
        } else {
            report.write_text(&mut self.stdout)?;
        }
        Ok(())
    }

    /// Prints a result of a command that goes on after it, such as a server: no error of the output ends it. An output whose reader has gone is
    /// ignored, and other errors are warned of.
    pub(crate) fn announce(&mut self, report: &impl Report) {
        if let Err(failure) = self.print(report).and_then(|()| self.flush())
            && !failure.is_broken_pipe()
        {
            warn(self.json, "output", failure.message());
        }
    }

    /// Prints bytes as they are.
    pub(crate) fn write_raw(&mut self, bytes: &[u8]) -> Result {
        Ok(self.stdout.write_all(bytes)?)
    }

    /// Brings all that was printed to its reader.
    pub(crate) fn flush(&mut self) -> Result {
        Ok(self.stdout.flush()?)
    }
}

/// Writes a warning to the error stream: something is left out or wrong, and the work continues.
///
/// `kind` is the word that a program sees with `--json`.
pub(crate) fn warn(json: bool, kind: &'static str, message: &str) {
    let mut stderr = io::stderr().lock();
    // An error of the error stream itself cannot be reported.
    let _ = if json {
        writeln!(stderr, "{}", serde_json::json!({ "warning": { "kind": kind, "message": message } }))
    } else {
        writeln!(stderr, "warning: {}", Printable(message))
    };
}

/// A text with its control characters escaped, so that a name cannot take over the terminal it is shown on.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut plain = 0;
        for (at, character) in self.0.char_indices().filter(|(_, c)| c.is_control()) {
            f.write_str(&self.0[plain..at])?;
            write!(f, "{}", character.escape_default())?;
            plain = at + character.len_utf8();
        }
        f.write_str(&self.0[plain..])
    }
}

/// A count with its digits in groups: `1,234,567`.
pub(crate) struct HumanCount(pub(crate) u64);

impl fmt::Display for HumanCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// A number of bytes in decimal units: `950 B`, `1.5 kB`, `523.4 MB`.
pub(crate) struct HumanBytes(pub(crate) u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
        if self.0 < 1000 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1e3;
        let mut unit = 0;
        // 999.95 would be shown as 1000.0.
        while value >= 999.95 && unit + 1 < UNITS.len() {
            value /= 1e3;
            unit += 1;
        }
        write!(f, "{value:.1} {}", UNITS[unit])
    }
}

/// `singular` or `plural`, with its count in front.
pub(crate) fn pluralize(count: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", HumanCount(count), if count == 1 { singular } else { plural })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output that always fails in this way.
    struct FailedOutput(io::ErrorKind);

    impl Write for FailedOutput {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_goes_on_announces_to_an_output_that_fails() {
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull] {
            let mut output = Output::to(Box::new(FailedOutput(kind)), false, false);
            // More than the buffer holds, so that not only the flush fails.
            (0..3).for_each(|_| output.announce(&RemovalEnd::Removed("name".repeat(10_000))));
            let failure = output.flush().unwrap_err();
            assert_eq!(failure.is_broken_pipe(), kind == io::ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn control_characters_are_escaped_and_the_rest_is_left() {
        assert_eq!(Printable("a\nb\u{1b}[0m é").to_string(), "a\\nb\\u{1b}[0m é");
        assert_eq!(Printable("plain").to_string(), "plain");
    }

    #[test]
    fn counts_and_sizes_read_well() {
        assert_eq!(HumanCount(0).to_string(), "0");
        assert_eq!(HumanCount(999).to_string(), "999");
        assert_eq!(HumanCount(1_234_567).to_string(), "1,234,567");
        assert_eq!(HumanBytes(999).to_string(), "999 B");
        assert_eq!(HumanBytes(1500).to_string(), "1.5 kB");
        assert_eq!(HumanBytes(999_960).to_string(), "1.0 MB");
        assert_eq!(HumanBytes(u64::MAX).to_string(), "18.4 EB");
        assert_eq!(pluralize(1, "object", "objects"), "1 object");
        assert_eq!(pluralize(2000, "object", "objects"), "2,000 objects");
    }
}
