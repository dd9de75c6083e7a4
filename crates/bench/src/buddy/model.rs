//! The analytical model of the paper (section 6.1): times of transactions from the costs of their parts.

use super::workload::Level;

/// Costs in a local network, in milliseconds, as [`costs`](super::costs) measures them. Times over a link have its round trip added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// A page from the server, without and with a redirector between.
    pub(super) fetch_base: f64,
    pub(super) fetch_group: f64,
    /// A page from another member.
    pub(super) redirect: f64,
    /// A commit, without and with a redirector between.
    pub(super) commit_base: f64,
    pub(super) commit_group: f64,
    /// What a transaction computes.
    pub(super) compute: f64,
}

impl Costs {
    /// The time of a transaction without a redirector that misses this number of pages: equations 1 and 3.
    pub(super) fn base(&self, round_trip: f64, misses: f64) -> f64 {
        misses * (self.fetch_base + round_trip) + self.compute + self.commit_base + round_trip
    }

    /// The time of a transaction of a group, of whose misses one in `sharing` goes to the server: equations 2 and 4, and 5 without misses.
    pub(super) fn group(&self, round_trip: f64, misses: f64, sharing: f64, level: Level) -> f64 {
        let over_the_link = 1.0 / sharing.max(1.0);
        let miss = over_the_link * (self.fetch_group + round_trip) + (1.0 - over_the_link) * self.redirect;
        let commit = match level {
            Level::Strict => self.commit_group + round_trip,
            // It ends at the site.
            Level::Snapshot => 0.0,
        };
        misses * miss + self.compute + commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_without_overhead_counts_round_trips() {
        let costs = Costs::default();
        assert_eq!(costs.base(40.0, 4.0), 200.0);
        assert_eq!(costs.group(40.0, 4.0, 4.0, Level::Strict), 80.0);
        assert_eq!(costs.group(40.0, 4.0, 4.0, Level::Snapshot), 40.0);
        assert_eq!(costs.group(40.0, 0.0, 1.0, Level::Strict), 40.0, "peer update: no misses");
    }

    #[test]
    fn costs_of_a_redirector_reduce_the_benefit() {
        let costs = Costs { redirect: 1.0, fetch_group: 0.5, commit_group: 0.5, ..Costs::default() };
        assert!(costs.group(0.0, 4.0, 2.0, Level::Strict) > costs.base(0.0, 4.0));
    }
}
