//! The log of one member, as far as it is in memory: records with the epochs in which they were appended.
//!
//! The *point* of a record names it for ever: in an epoch only one process appends, its first member, and never twice at one
//! position. So if two logs have the same point, they are the same up to there. That is all that a log has to hold about
//! epochs: with each record, the epoch in which it was first appended, which stays when it is copied.

use std::collections::VecDeque;

use crate::placement::Epoch;
use crate::plant::{Bug, planted};

/// What names a record: the epoch in which it was appended, and its position, counted from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPoint {
    /// When it was appended.
    pub epoch: Epoch,
    /// Where.
    pub position: u64,
}

/// The log.
#[derive(Clone, Debug)]
pub struct ReplicaLog<R> {
    /// Records up to here are not in memory any more.
    base: LogPoint,
    records: VecDeque<(Epoch, R)>,
    /// Up to where it is durable.
    forced: u64,
}

impl<R> ReplicaLog<R> {
    /// A log of which this is left, all of it durable.
    #[must_use]
    pub fn new(base: LogPoint, records: impl IntoIterator<Item = (Epoch, R)>) -> Self {
        let records: VecDeque<_> = records.into_iter().collect();
        let forced = base.position + records.len() as u64;
        Self { base, records, forced }
    }

    /// Where what is in memory begins: behind this point.
    #[must_use]
    pub fn base(&self) -> LogPoint {
        self.base
    }

    /// The position of the last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base.position + self.records.len() as u64
    }

    /// Up to where it is durable.
    #[must_use]
    pub fn forced(&self) -> u64 {
        self.forced
    }

    /// The point at a position, if there is one and it is known.
    #[must_use]
    pub fn point(&self, position: u64) -> Option<LogPoint> {
        if position == self.base.position {
            return Some(self.base);
        }
        self.get(position).map(|(epoch, _)| LogPoint { epoch: *epoch, position })
    }

    /// The record at a position, and its epoch.
    #[must_use]
    pub fn get(&self, position: u64) -> Option<&(Epoch, R)> {
        let index = position.checked_sub(self.base.position + 1)?;
        self.records.get(usize::try_from(index).ok()?)
    }

    /// Records behind a position, in order.
    pub fn after(&self, position: u64) -> impl Iterator<Item = &(Epoch, R)> {
        let skip = position.saturating_sub(self.base.position);
        self.records.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX))
    }

    /// Appends a record; returns its point.
    pub fn append(&mut self, epoch: Epoch, record: R) -> LogPoint {
        self.records.push_back((epoch, record));
        LogPoint { epoch, position: self.end() }
    }

    /// Cuts off what is behind a position.
    pub fn truncate(&mut self, position: u64) {
        assert!(position >= self.base.position, "M1: what was told durable is cut off at {position}");
        // What is left is shorter than what was there.
        self.records.truncate((position - self.base.position) as usize);
        self.forced = self.forced.min(position);
    }

    /// The record at this point, and all before it, are durable. Says nothing if it was cut off since.
    pub fn force(&mut self, point: LogPoint) {
        if self.point(point.position) == Some(point) {
            self.forced = self.forced.max(point.position);
        }
    }

    /// Forgets records up to a position.
    pub fn trim(&mut self, position: u64) {
        while self.base.position < position.min(self.forced)
            && let Some((epoch, _)) = self.records.pop_front()
        {
            self.base = LogPoint { epoch, position: self.base.position + 1 };
        }
    }

    /// The last point of each epoch, in order: enough to find out where two logs part.
    #[must_use]
    pub fn last_points(&self) -> Vec<LogPoint> {
        let mut runs: Vec<LogPoint> = Vec::new();
        let first = (self.base.position > 0).then_some(self.base);
        let rest = (self.base.position + 1..).zip(&self.records);
        let rest = rest.map(|(position, (epoch, _))| LogPoint { epoch: *epoch, position });
        for point in first.into_iter().chain(rest) {
            match runs.last_mut() {
                Some(last) if last.epoch == point.epoch => *last = point,
                _ => runs.push(point),
            }
        }
        runs
    }

    /// The last point that is in both logs, the other being given by its runs.
    #[must_use]
    pub fn common_point(&self, other: &[LogPoint]) -> LogPoint {
        if planted(Bug::CommonIgnoresEpochs) {
            let end = other.last().map_or(0, |last| last.position).min(self.end());
            return self.point(end).unwrap_or_default();
        }
        let own = self.last_points();
        let both = own
            .iter()
            .flat_map(|run| other.iter().filter(|other| other.epoch == run.epoch).map(|other| *other.min(run)));
        both.max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(epochs: &[u64]) -> ReplicaLog<u64> {
        ReplicaLog::new(LogPoint::default(), epochs.iter().map(|epoch| (Epoch(*epoch), *epoch)))
    }

    fn point(epoch: u64, position: u64) -> LogPoint {
        LogPoint { epoch: Epoch(epoch), position }
    }

    #[test]
    fn logs_part_behind_the_last_point_that_both_have() {
        let one = log(&[1, 1, 2, 2, 4]);
        assert_eq!(one.last_points(), [point(1, 2), point(2, 4), point(4, 5)]);
        assert_eq!(one.common_point(&log(&[1, 1, 2, 3]).last_points()), point(2, 3));
        assert_eq!(one.common_point(&log(&[1, 1, 1, 1, 1, 1]).last_points()), point(1, 2));
        assert_eq!(one.common_point(&log(&[1, 1, 2, 2, 4, 4]).last_points()), point(4, 5));
        assert_eq!(one.common_point(&[]), LogPoint::default());
    }

    #[test]
    fn a_force_of_what_was_cut_off_says_nothing() {
        let mut one = log(&[1]);
        one.append(Epoch(1), 7);
        one.truncate(1);
        one.append(Epoch(2), 8);
        one.force(point(1, 2));
        assert_eq!((one.forced(), one.end()), (1, 2));
        one.force(point(2, 2));
        assert_eq!(one.forced(), 2);
    }

    #[test]
    fn what_is_trimmed_leaves_its_point() {
        let mut one = log(&[1, 1, 2]);
        one.trim(2);
        assert_eq!((one.base(), one.point(1), one.point(2), one.end()), (point(1, 2), None, Some(point(1, 2)), 3));
        assert_eq!(one.common_point(&log(&[1, 1]).last_points()), point(1, 2));
        assert_eq!(one.last_points(), [point(1, 2), point(2, 3)]);
        assert_eq!(one.after(2).count(), 1);
    }
}
