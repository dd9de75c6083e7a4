//! How a brick scrubs itself.

use std::time::Duration;

use node::ScrubSettings;

use super::{SettingLine, comment_unless, line};
use crate::failure::{Failure, Result};

/// Most days between two scrubs.
pub(super) const MAX_SCRUB_DAYS: i64 = 3650;

/// The settings of the scrub; `None` for the default.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrubRate {
    /// MiB a second; 0: no scrub.
    pub(crate) mib_s: Option<u32>,
    /// The period.
    pub(crate) days: Option<u32>,
}

impl ScrubRate {
    /// The settings, if they make sense.
    ///
    /// # Errors
    /// If they do not.
    pub(super) fn check(self) -> Result<Self> {
        match self.days {
            Some(days) if !(1..=MAX_SCRUB_DAYS).contains(&i64::from(days)) => {
                Err(Failure::usage(format!("scrub_days is {days}: it must be from 1 to {MAX_SCRUB_DAYS}")))
            }
            _ => Ok(self),
        }
    }

    /// The settings of a brick.
    pub(super) fn settings(self) -> ScrubSettings {
        let defaults = ScrubSettings::default();
        let period = self.days.map_or(defaults.period, |days| Duration::from_secs(u64::from(days) * 24 * 3600));
        ScrubSettings { mib_s: self.mib_s.unwrap_or(defaults.mib_s), period, ..defaults }
    }

    /// The lines of a file of settings.
    pub(super) fn lines(self) -> [SettingLine; 2] {
        let ScrubSettings { mib_s, period, .. } = self.settings();
        let about = "How many MiB it reads in a second at most to scrub itself; 0: it does not.";
        let rate = line(about, "scrub_mib_s", mib_s.to_string());
        let about = "Days from the beginning of a scrub to that of the next one.";
        let days = line(about, "scrub_days", (period.as_secs() / (24 * 3600)).to_string());
        [comment_unless(self.mib_s.is_some(), rate), comment_unless(self.days.is_some(), days)]
    }
}
