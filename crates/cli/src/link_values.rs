//! Values that describe a link on the command line: `20ms`, `10MB`, `1%`, `30s/5s`.

use std::num::NonZeroU64;
use std::time::Duration;

use relay::CutSchedule;

use crate::quota_limit;

/// Units of time, in seconds.
const TIME_UNITS: [(&str, f64); 7] =
    [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("min", 60.0), ("h", 3600.0), ("d", 86_400.0), ("s", 1.0)];
/// Units of rates that count bits, in bytes. Those that count bytes are the units of quotas.
const BIT_UNITS: [(&str, f64); 4] = [("kbit", 125.0), ("Mbit", 125e3), ("Gbit", 125e6), ("bit", 0.125)];

/// A duration with its unit, or 0.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is no duration: give a number with its unit, such as 500us, 20ms, 1.5s, 2min, 8h or 14d");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let seconds = TIME_UNITS.iter().find_map(|(unit, seconds)| Some(number_before(text, unit)? * seconds));
    Duration::try_from_secs_f64(seconds.ok_or_else(wrong)?).map_err(|_| wrong())
}

/// Bytes per second: bytes or bits with their unit, perhaps with `/s`.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_rate(text: &str) -> Result<NonZeroU64, String> {
    let wrong =
        || format!("{text:?} is no rate: give bytes per second, such as 500kB, 10MB or 1GiB, or bits, such as 100Mbit");
    let amount = text.strip_suffix("/s").unwrap_or(text);
    let in_bits = BIT_UNITS.iter().find_map(|(unit, bytes)| Some(number_before(amount, unit)? * bytes));
    let in_bytes =
        || quota_limit::UNITS.iter().find_map(|(unit, bytes)| Some(number_before(amount, unit)? * *bytes as f64));
    let rate = in_bits.or_else(in_bytes).or_else(|| number_before(amount, "")).ok_or_else(wrong)?;
    // Too large a number becomes the largest.
    NonZeroU64::new(rate as u64).ok_or_else(|| format!("{text:?} is less than a byte per second"))
}

/// A probability as a percentage.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_loss(text: &str) -> Result<f64, String> {
    match number_before(text, "%") {
        Some(percent) if percent < 100.0 => Ok(percent / 100.0),
        Some(_) => Err(format!("{text:?} loses everything: give less than 100%, or cut the link with --cut")),
        None => Err(format!("{text:?} is no percentage: write it as 1% or 0.5%")),
    }
}

/// Cuts: how often, and how long each of them lasts.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse_cut(text: &str) -> Result<CutSchedule, String> {
    let Some((every, lasts)) = text.split_once('/') else {
        return Err(format!("{text:?} is no schedule: write EVERY/FOR, such as 30s/5s for 5 seconds every 30 seconds"));
    };
    let schedule = CutSchedule { every: parse_duration(every)?, lasts: parse_duration(lasts)? };
    match schedule.lasts < schedule.every && !schedule.lasts.is_zero() {
        true => Ok(schedule),
        false => Err(format!("a cut lasts longer than 0 and shorter than its period, not {lasts} every {every}")),
    }
}

/// The number in front of a unit: digits, perhaps with decimals.
fn number_before(text: &str, unit: &str) -> Option<f64> {
    let number = text.strip_suffix(unit)?.trim_end();
    let is_number = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    number.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, micros) in [
            ("0", 0),
            ("0ms", 0),
            ("250us", 250),
            ("7µs", 7),
            ("20ms", 20_000),
            ("2.5 ms", 2500),
            ("1.5s", 1_500_000),
            ("2min", 120_000_000),
            ("1h", 3_600_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "20", "ms", "-1ms", "20 parsecs", "1e3s", "infs", "99999999999999999999h"] {
            assert!(parse_duration(text).unwrap_err().contains("20ms"), "{text}");
        }
    }

    #[test]
    fn rates_are_bytes_or_bits() {
        for (text, rate) in [
            ("1000", 1000),
            ("10MB", 10_000_000),
            ("10MB/s", 10_000_000),
            ("1.5 MB", 1_500_000),
            ("1MiB", 1 << 20),
            ("100Mbit", 12_500_000),
            ("8bit/s", 1),
        ] {
            assert_eq!(parse_rate(text).map(NonZeroU64::get), Ok(rate), "{text}");
        }
        for text in ["", "MB", "-1MB", "10 mb", "none", "1bit", "0"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn losses_are_percentages_below_100() {
        assert_eq!(parse_loss("1%"), Ok(0.01));
        assert_eq!(parse_loss("0.5%"), Ok(0.005));
        assert!(parse_loss("0.01").unwrap_err().contains("1%"));
        assert!(parse_loss("100%").unwrap_err().contains("--cut"));
        assert!(parse_loss("-1%").is_err());
    }

    #[test]
    fn cuts_are_shorter_than_their_period() {
        let (every, lasts) = (Duration::from_secs(30), Duration::from_millis(500));
        assert_eq!(parse_cut("30s/500ms"), Ok(CutSchedule { every, lasts }));
        for text in ["30s", "5s/5s", "5s/30s", "30s/0", "30/5", "0/0"] {
            assert!(parse_cut(text).is_err(), "{text}");
        }
    }
}
