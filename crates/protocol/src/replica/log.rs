//! The part of a member's log that is in memory: records with the epochs in which they were appended.
//!
//! The *point* of a record identifies it for ever: in an epoch only one process appends, its first member, and never
//! twice at one position. So if two logs have the same point, they are equal up to there. Therefore, a log stores only
//! one epoch with each record: that in which the record was first appended. It stays when the record is copied.

use std::collections::VecDeque;

use crate::placement::Epoch;
use crate::plant::{Bug, planted};

/// Identifies a record by the epoch in which it was appended and its position, counted from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPoint {
    /// The epoch in which it was appended.
    pub epoch: Epoch,
    /// The position in the log.
    pub position: u64,
}

/// The log.
#[derive(Clone, Debug)]
pub struct ReplicaLog<R> {
    /// Records up to here are not in memory any more.
    base: LogPoint,
    records: VecDeque<(Epoch, R)>,
    /// The last durable position.
    forced: u64,
}

impl<R> ReplicaLog<R> {
    /// A durable log with these records after `base`.
    #[must_use]
    pub fn new(base: LogPoint, records: impl IntoIterator<Item = (Epoch, R)>) -> Self {
        let records: VecDeque<_> = records.into_iter().collect();
        let forced = base.position + records.len() as u64;
        Self { base, records, forced }
    }

    /// The point after which the records in memory begin.
    #[must_use]
    pub fn base(&self) -> LogPoint {
        self.base
    }

    /// The position of the last record.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.base.position + self.records.len() as u64
    }

    /// The last durable position.
    #[must_use]
    pub fn forced_position(&self) -> u64 {
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

    /// Records after a position, in order.
    pub fn after(&self, position: u64) -> impl Iterator<Item = &(Epoch, R)> {
        let skip = position.saturating_sub(self.base.position);
        self.records.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX))
    }

    /// Appends a record; returns its point.
    pub fn append(&mut self, epoch: Epoch, record: R) -> LogPoint {
        self.records.push_back((epoch, record));
        LogPoint { epoch, position: self.end() }
    }

    /// Removes the records after a position.
    pub fn truncate(&mut self, position: u64) {
        assert!(position >= self.base.position, "M1: durable records are truncated at {position}");
        // The result is not longer than the log, so it fits into memory.
        self.records.truncate((position - self.base.position) as usize);
        self.forced = self.forced.min(position);
    }

    /// Records that the record at this point and all before it are durable. Has no effect if it was truncated
    /// meanwhile.
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

    /// The last point of each epoch, in order. They determine the last common point of two logs.
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

    /// The last point in both logs. The other log is given by its last points.
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
    fn common_point_is_the_last_one_in_both_logs() {
        let one = log(&[1, 1, 2, 2, 4]);
        assert_eq!(one.last_points(), [point(1, 2), point(2, 4), point(4, 5)]);
        assert_eq!(one.common_point(&log(&[1, 1, 2, 3]).last_points()), point(2, 3));
        assert_eq!(one.common_point(&log(&[1, 1, 1, 1, 1, 1]).last_points()), point(1, 2));
        assert_eq!(one.common_point(&log(&[1, 1, 2, 2, 4, 4]).last_points()), point(4, 5));
        assert_eq!(one.common_point(&[]), LogPoint::default());
    }

    #[test]
    fn force_of_a_truncated_record_has_no_effect() {
        let mut one = log(&[1]);
        one.append(Epoch(1), 7);
        one.truncate(1);
        one.append(Epoch(2), 8);
        one.force(point(1, 2));
        assert_eq!((one.forced_position(), one.end()), (1, 2));
        one.force(point(2, 2));
        assert_eq!(one.forced_position(), 2);
    }

    #[test]
    fn trimmed_log_keeps_its_last_point() {
        let mut one = log(&[1, 1, 2]);
        one.trim(2);
        assert_eq!((one.base(), one.point(1), one.point(2), one.end()), (point(1, 2), None, Some(point(1, 2)), 3));
        assert_eq!(one.common_point(&log(&[1, 1]).last_points()), point(1, 2));
        assert_eq!(one.last_points(), [point(1, 2), point(2, 3)]);
        assert_eq!(one.after(2).count(), 1);
    }
}
