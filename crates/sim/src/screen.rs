//! Output to the terminal: lines and a progress bar. Results go to standard output, everything else to standard error.

use std::fmt::Arguments;
use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};

/// Prints a line of a result. A closed output is no failure.
pub(crate) fn result(text: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// A line beside the result.
pub(crate) fn status(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A progress bar, which is shown on a terminal only.
pub(crate) fn bar(many: u64) -> ProgressBar {
    let bar = ProgressBar::new(many);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// A large number that can be read: 1,234,567.
pub(crate) fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A time that can be read: 3 d 4 h, 5 h 12 min, 3 min 7 s, 4.2 s.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (1.., ..) => format!("{days} d {} h", hours % 24),
        (0, 1.., _) => format!("{hours} h {} min", minutes % 60),
        (0, 0, 1..) => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{:.1} s", ms as f64 / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_can_be_read() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(group_digits), ["0", "999", "1,000", "1,234,567"]);
        let times = [4_200, 187_000, 18_720_000, 273_600_000].map(duration);
        assert_eq!(times, ["4.2 s", "3 min 7 s", "5 h 12 min", "3 d 4 h"]);
    }
}
