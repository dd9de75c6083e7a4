//! How much work a filter is on a record. A unit is a test, or 16 bytes that one reads, as in [`query::limits::WORK`].

use std::collections::BTreeMap;

use model::{Error, ErrorKind, FieldNumber, Filter, Oid, RecordRef, Result, ValueRef};
use query::limits::WORK;

use super::plant::{Bug, planted};

/// The tests of a filter.
#[derive(Debug, Default)]
pub(super) struct FilterCost {
    nodes: u64,
    /// How many tests read each field.
    tests: BTreeMap<FieldNumber, u64>,
}

impl FilterCost {
    pub(super) fn new(filter: Option<&Filter>) -> Self {
        let mut cost = Self::default();
        filter.into_iter().for_each(|filter| cost.add(filter));
        cost
    }

    fn add(&mut self, filter: &Filter) {
        self.nodes += 1;
        match filter {
            Filter::And(parts) | Filter::Or(parts) => parts.iter().for_each(|part| self.add(part)),
            Filter::Not(part) => self.add(part),
            Filter::IsNull(field)
            | Filter::Compare(field, ..)
            | Filter::StartsWith(field, _)
            | Filter::ContainsText(field, _)
            | Filter::OneOf(field, _)
            | Filter::Contains(field, _) => *self.tests.entry(*field).or_default() += 1,
        }
    }

    /// The work on a record of `bytes` bytes, at most.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] if it is more than one object may take; [`ErrorKind::Corrupt`] for a damaged field.
    pub(super) fn work_on(&self, oid: Oid, record: &RecordRef<'_>, bytes: usize) -> Result<u64> {
        let units = |bytes: usize| bytes as u64 / 16;
        let tests: u64 = self.tests.values().sum();
        let most = self.nodes + tests * units(bytes);
        if most <= WORK {
            return Ok(most);
        }
        let mut work = self.nodes;
        for (field, tests) in &self.tests {
            work += tests
                * units(match record.field(*field)? {
                    Some(ValueRef::String(text)) => text.len(),
                    Some(ValueRef::Bytes(data)) => data.len(),
                    Some(ValueRef::List(_) | ValueRef::Set(_) | ValueRef::Map(_)) => bytes,
                    _ => 0,
                });
        }
        if work > WORK && !planted(Bug::FilterWorkUnbounded) {
            let what = format!(
                "the filter is too much work on {oid}, which has {bytes} bytes: ask with fewer tests of its long fields"
            );
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        Ok(work)
    }
}

#[cfg(test)]
mod tests {
    use model::planted_bug::assert_noticed;
    use model::{ClassId, NodeId, PageId, RecordBuilder, SpaceId, Value};

    use super::*;

    const TEXT: FieldNumber = FieldNumber(1);
    const NUMBER: FieldNumber = FieldNumber(2);

    #[test]
    fn work_follows_the_bytes_that_tests_read() {
        assert_noticed(&[Bug::FilterWorkUnbounded], || {
            let mut record = RecordBuilder::new();
            record.set_value(TEXT, &Value::String("x".repeat(4 << 20))).unwrap();
            record.set_value(NUMBER, &Value::Int64(3)).unwrap();
            let data = record.build().unwrap();
            let record = RecordRef::new(&data).unwrap();
            let oid = Oid::new(ClassId(1), PageId { space: SpaceId(1), node: NodeId(1), number: 1 }, 1);
            let work = |test: Filter, count: usize| {
                let filter = Filter::Or(vec![test; count]);
                FilterCost::new(Some(&filter)).work_on(oid, &record, data.len())
            };
            let contains = || Filter::ContainsText(TEXT, "y".to_owned());
            let one = work(contains(), 1).unwrap();
            assert!(((4 << 20) / 16..(4 << 20) / 8).contains(&one), "{one}");
            assert!(work(contains(), 1_000).unwrap() >= 999 * one);
            assert_eq!(work(contains(), 2_000).unwrap_err().kind(), ErrorKind::TooLarge);
            assert!(work(Filter::IsNull(NUMBER), 16_000).unwrap() < 20_000, "a number is short");
        });
    }
}
