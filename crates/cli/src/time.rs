//! Points in time as text.

use std::time::SystemTime;

use jiff::Timestamp;

/// Microseconds since 1970 as RFC 3339 in UTC, with six decimals: `2025-01-31T12:00:00.000001Z`.
pub(crate) fn from_microseconds(microseconds: i64) -> String {
    match Timestamp::from_microsecond(microseconds) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => format!("{microseconds} µs"),
    }
}

/// A time in that form.
pub(crate) fn from_system_time(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => format!("{time:.6}"),
        Err(_) => "out of range".to_owned(),
    }
}

/// Seconds and nanoseconds since 1970 in that form; `None` if they are out of range.
pub(crate) fn from_seconds(seconds: i64, nanoseconds: u32) -> Option<String> {
    let time = Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()?;
    Some(format!("{time:.6}"))
}

/// The current time of this machine in that form.
pub(crate) fn now() -> String {
    from_microseconds(Timestamp::now().as_microsecond())
}

/// A time rounded down to seconds, for people: `2025-01-31T12:00:00Z`.
pub(crate) fn to_seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        let time = from_microseconds(1_738_324_800_000_001);
        assert_eq!(time, "2025-01-31T12:00:00.000001Z");
        assert_eq!(to_seconds(&time), "2025-01-31T12:00:00Z");
        assert_eq!(from_microseconds(i64::MAX), format!("{} µs", i64::MAX));
    }
}
