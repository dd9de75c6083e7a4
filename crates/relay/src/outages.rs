//! Decides when a link is cut: periodically, and by hand. Reads no clock; times are durations since the start of the relay.

use std::time::Duration;

use crate::CutSchedule;

/// The schedules of a link's cuts, and the cut that was made by hand.
#[derive(Debug)]
pub(crate) struct Outages {
    schedules: Vec<CutSchedule>,
    by_hand: bool,
}

impl Outages {
    pub(crate) fn new(schedules: Vec<CutSchedule>) -> Self {
        Self { schedules, by_hand: false }
    }

    /// Cuts the link beside the schedules, or ends that cut.
    pub(crate) fn set_by_hand(&mut self, cut: bool) {
        self.by_hand = cut;
    }

    pub(crate) fn is_cut(&self, now: Duration) -> bool {
        self.by_hand || self.schedules.iter().any(|schedule| schedule.is_cut(now))
    }

    /// When a cut of a schedule begins or ends next; `None` without a schedule.
    pub(crate) fn next_change(&self, now: Duration) -> Option<Duration> {
        self.schedules.iter().map(|schedule| schedule.next_change(now)).min()
    }
}

impl CutSchedule {
    fn is_cut(&self, now: Duration) -> bool {
        now >= self.every && self.phase(now) < self.lasts
    }

    fn next_change(&self, now: Duration) -> Duration {
        let period_start = now - self.phase(now);
        period_start + if self.is_cut(now) { self.lasts } else { self.every }
    }

    /// The time since the last multiple of the period.
    fn phase(&self, now: Duration) -> Duration {
        let nanos = now.as_nanos() % self.every.as_nanos().max(1);
        // Less than the period, which fits.
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_cut_begins_after_each_period_and_lasts_as_long_as_it_should() {
        let outages = Outages::new(vec![CutSchedule { every: seconds(30), lasts: seconds(5) }]);
        let cut: Vec<u64> = (0..100).filter(|second| outages.is_cut(seconds(*second))).collect();
        assert_eq!(cut, [30, 31, 32, 33, 34, 60, 61, 62, 63, 64, 90, 91, 92, 93, 94]);
        for (now, next) in [(0, 30), (29, 30), (30, 35), (34, 35), (35, 60), (60, 65)] {
            assert_eq!(outages.next_change(seconds(now)), Some(seconds(next)), "{now}");
        }
    }

    #[test]
    fn a_link_is_cut_if_any_schedule_cuts_it() {
        let of = |every, lasts| CutSchedule { every: seconds(every), lasts: seconds(lasts) };
        let outages = Outages::new(vec![of(10, 2), of(11, 3)]);
        let cut: Vec<u64> = (0..24).filter(|second| outages.is_cut(seconds(*second))).collect();
        assert_eq!(cut, [10, 11, 12, 13, 20, 21, 22, 23]);
        assert_eq!(outages.next_change(seconds(10)), Some(seconds(11)));
    }

    #[test]
    fn a_cut_by_hand_lasts_until_it_is_ended() {
        let mut outages = Outages::new(Vec::new());
        assert!(!outages.is_cut(seconds(1)) && outages.next_change(seconds(1)).is_none());
        outages.set_by_hand(true);
        assert!(outages.is_cut(seconds(1)));
        outages.set_by_hand(false);
        assert!(!outages.is_cut(seconds(1)));
    }
}
