//! Dates and time stamps: counts from 1970 with the range of those in `java.time`.

use std::fmt;
use std::str::FromStr;

use jiff::civil;

use crate::{Error, ErrorKind, Result};

/// A day of the proleptic Gregorian calendar, without a time or a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    /// Days since 1970-01-01; negative before it.
    pub days: i64,
}

/// A point in time in UTC with nanosecond precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    // The derived order depends on the order of these fields.
    seconds: i64,
    nanos: u32,
}

const NANOS_PER_SEC: i128 = 1_000_000_000;

impl Timestamp {
    /// The time `nanos` nanoseconds after `seconds` seconds since 1970-01-01T00:00Z.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if `nanos` is a second or more.
    pub fn new(seconds: i64, nanos: u32) -> Result<Self> {
        if i128::from(nanos) >= NANOS_PER_SEC {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{nanos} nanoseconds are a second or more: carry them into the seconds"),
            ));
        }
        Ok(Self { seconds, nanos })
    }

    /// The time this many milliseconds after 1970-01-01T00:00Z.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self { seconds: millis.div_euclid(1000), nanos: millis.rem_euclid(1000) as u32 * 1_000_000 }
    }

    /// The time this many microseconds after 1970-01-01T00:00Z.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self { seconds: micros.div_euclid(1_000_000), nanos: micros.rem_euclid(1_000_000) as u32 * 1000 }
    }

    /// The time this many nanoseconds after 1970-01-01T00:00Z; `None` if its seconds do not fit 64 bits.
    #[must_use]
    pub fn from_nanos(nanos: i128) -> Option<Self> {
        // Division of 128 bits is slow, and 64 bits suffice for the years 1678 to 2262.
        if let Ok(nanos) = i64::try_from(nanos) {
            const NANOS_PER_SEC: i64 = 1_000_000_000;
            return Some(Self {
                seconds: nanos.div_euclid(NANOS_PER_SEC),
                nanos: nanos.rem_euclid(NANOS_PER_SEC) as u32,
            });
        }
        let seconds = i64::try_from(nanos.div_euclid(NANOS_PER_SEC)).ok()?;
        Some(Self { seconds, nanos: nanos.rem_euclid(NANOS_PER_SEC) as u32 })
    }

    /// Whole seconds since 1970-01-01T00:00Z, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.seconds
    }

    /// Nanoseconds after [`seconds`](Self::seconds): less than a second.
    #[must_use]
    pub const fn subsec_nanos(self) -> u32 {
        self.nanos
    }

    /// Nanoseconds since 1970-01-01T00:00Z.
    #[must_use]
    pub fn as_nanos(self) -> i128 {
        i128::from(self.seconds) * NANOS_PER_SEC + i128::from(self.nanos)
    }
}

/// `2026-07-01`; outside the years -9999 to 9999 the count of days, `@-9000000d`.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let epoch = civil::date(1970, 1, 1);
        let date = jiff::Span::new().try_days(self.days).and_then(|span| epoch.checked_add(span));
        match date {
            Ok(date) => date.fmt(f),
            Err(_) => write!(f, "@{}d", self.days),
        }
    }
}

/// `2026-07-01T12:30:00.5Z`; outside the years -9999 to 9999 the count of seconds, `@1000000000000.5s`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // jiff requires equal signs of seconds and nanoseconds.
        match jiff::Timestamp::from_nanosecond(self.as_nanos()) {
            Ok(moment) => moment.fmt(f),
            Err(_) => write!(f, "@{}s", crate::Decimal::new(self.as_nanos(), 9).to_big().normalized()),
        }
    }
}

/// Parses the output of [`Display`](fmt::Display).
impl FromStr for Date {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Error::new(ErrorKind::Invalid, format!("{text:?} is not a date, such as 2026-07-01"));
        if let Some(days) = text.strip_prefix('@').and_then(|rest| rest.strip_suffix('d')) {
            return Ok(Self { days: days.parse().map_err(|cause| wrong().with_source(cause))? });
        }
        let date: civil::Date = text.parse().map_err(|cause: jiff::Error| wrong().with_source(cause))?;
        let epoch = civil::date(1970, 1, 1);
        let span = epoch.until(date).map_err(|cause| wrong().with_source(cause))?;
        Ok(Self { days: i64::from(span.get_days()) })
    }
}

/// Parses the output of [`Display`](fmt::Display) and other offsets from UTC: `2026-07-01T14:30:00.5+02:00`.
impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::new(ErrorKind::Invalid, format!("{text:?} is not a time stamp, such as 2026-07-01T12:30:00Z"));
        if let Some(seconds) = text.strip_prefix('@').and_then(|rest| rest.strip_suffix('s')) {
            let number: crate::Decimal = seconds.parse().map_err(|cause: Error| wrong().with_source(cause))?;
            return number.as_ref().in_units(9).and_then(Self::from_nanos).ok_or_else(wrong);
        }
        let moment: jiff::Timestamp = text.parse().map_err(|cause: jiff::Error| wrong().with_source(cause))?;
        Self::from_nanos(moment.as_nanosecond()).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_display_as_iso_8601_while_the_year_has_four_digits() {
        assert_eq!(Date { days: 0 }.to_string(), "1970-01-01");
        assert_eq!(Date { days: 20_635 }.to_string(), "2026-07-01");
        assert_eq!(Date { days: -1 }.to_string(), "1969-12-31");
        assert_eq!(Date { days: 2_932_896 }.to_string(), "9999-12-31");
        assert_eq!(Date { days: 2_932_897 }.to_string(), "@2932897d");
        assert_eq!(Date { days: i64::MIN }.to_string(), "@-9223372036854775808d");
    }

    #[test]
    fn timestamps_display_as_rfc_3339_while_the_year_has_four_digits() {
        assert_eq!(Timestamp::from_millis(1_782_909_000_500).to_string(), "2026-07-01T12:30:00.5Z");
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
        assert_eq!(Timestamp::new(i64::MAX, 500_000_000).unwrap().to_string(), "@9223372036854775807.5s");
        assert_eq!(Timestamp::new(1_000_000_000_000, 0).unwrap().to_string(), "@1000000000000s");
    }

    #[test]
    fn a_second_of_nanoseconds_is_refused() {
        assert_eq!(Timestamp::new(0, 1_000_000_000).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Timestamp::from_nanos((i128::from(i64::MAX) + 1) * NANOS_PER_SEC), None);
    }

    #[test]
    fn other_texts_are_refused_as_dates_and_time_stamps() {
        for text in ["", "2026-02-30", "yesterday", "@12", "@d", "@1.5d"] {
            assert_eq!(text.parse::<Date>().unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
        for text in ["", "2026-07-01", "now", "@s", "@1.0000000001s", "@1e+30s", "@1e-30s"] {
            assert_eq!(text.parse::<Timestamp>().unwrap_err().kind(), ErrorKind::Invalid, "{text}");
        }
    }

    proptest! {
        #[test]
        fn displayed_dates_and_time_stamps_read_back(days: i64, near in -4_000_000i64..4_000_000, seconds: i64, nanos in 0u32..1_000_000_000) {
            for days in [days, near] {
                let date = Date { days };
                prop_assert_eq!(date.to_string().parse::<Date>().unwrap(), date);
            }
            for seconds in [seconds, near * 86_400 - 1] {
                let moment = Timestamp::new(seconds, nanos).unwrap();
                prop_assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
            }
        }

        #[test]
        fn nanoseconds_round_trip_and_keep_the_order(a: i64, b: i64, x in 0u32..1_000_000_000, y in 0u32..1_000_000_000) {
            let (a, b) = (Timestamp::new(a, x).unwrap(), Timestamp::new(b, y).unwrap());
            prop_assert_eq!(Timestamp::from_nanos(a.as_nanos()), Some(a));
            prop_assert_eq!(a.as_nanos().cmp(&b.as_nanos()), a.cmp(&b));
        }

        #[test]
        fn coarser_counts_agree_with_nanoseconds(count: i64) {
            prop_assert_eq!(Timestamp::from_millis(count).as_nanos(), i128::from(count) * 1_000_000);
            prop_assert_eq!(Timestamp::from_micros(count).as_nanos(), i128::from(count) * 1_000);
        }
    }
}
