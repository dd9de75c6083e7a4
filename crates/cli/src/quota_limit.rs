//! Limits of quotas on the command line: `10GiB`, `1000000`, `none`.

use client::QuotaLimit;

/// Units of bytes, with their sizes.
pub(crate) const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

/// A limit in bytes: a whole number, perhaps with a unit, or `none`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_bytes(text: &str) -> Result<QuotaLimit, String> {
    let unit = UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?.trim_end(), *size)));
    let (number, size) = unit.unwrap_or((text, 1));
    parse(text, number, size).ok_or_else(|| {
        format!("{text:?} is no size: give whole bytes, or a whole number of kB, MB, GB, TB, KiB, MiB, GiB or TiB, or `none`")
    })
}

/// A size in bytes: a whole number, perhaps with a unit.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Ok(QuotaLimit::AtMost(bytes)) => Ok(bytes),
        _ => Err(format!(
            "{text:?} is no size: give whole bytes, or a whole number of kB, MB, GB, TB, KiB, MiB, GiB or TiB"
        )),
    }
}

/// A limit of a number: a whole number, or `none`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_count(text: &str) -> Result<QuotaLimit, String> {
    parse(text, text, 1).ok_or_else(|| format!("{text:?} is no number: give a whole number, or `none`"))
}

fn parse(text: &str, number: &str, size: u64) -> Option<QuotaLimit> {
    if text == "none" {
        return Some(QuotaLimit::Unlimited);
    }
    number.parse::<u64>().ok()?.checked_mul(size).map(QuotaLimit::AtMost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in
            [("0", 0), ("123", 123), ("7B", 7), ("10GiB", 10 << 30), ("2 MB", 2_000_000), ("1kB", 1000)]
        {
            assert_eq!(parse_bytes(text), Ok(QuotaLimit::AtMost(bytes)), "{text}");
        }
        assert_eq!(parse_bytes("none"), Ok(QuotaLimit::Unlimited));
        assert_eq!((parse_size("10MiB"), parse_size("500000000")), (Ok(10 << 20), Ok(500_000_000)));
        assert!(parse_size("none").is_err() && parse_size("1.5GB").is_err());
        for text in ["", "GiB", "-1", "1.5GB", "10 gb", "99999999999TiB", "noneB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_have_no_units() {
        assert_eq!(parse_count("1000000"), Ok(QuotaLimit::AtMost(1_000_000)));
        assert_eq!(parse_count("none"), Ok(QuotaLimit::Unlimited));
        assert!(parse_count("1k").is_err() && parse_count("").is_err());
    }
}
