//! A copy of contents that change while it is made becomes equal to them.

use model::planted_bug::assert_noticed;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::{RowChanges, Store};
use wire::cluster::CopyRows;

use super::*;
use crate::brick::changed_rows::ChangedRows;
use crate::brick::content_rows::tests::{NODE, assert_equal, change, contents, id, store};
use crate::brick::node_manager::{MoveLimits, RowCopy};

/// A copy that is being made.
struct Copy {
    source: Store,
    target: Store,
    changed: ChangedRows,
    limits: MoveLimits,
    number: u64,
    last_answered: u64,
    from: Option<Bytes>,
}

impl Copy {
    fn new(source: Store, limits: MoveLimits) -> Self {
        let from = Some(Bytes::new());
        let changed = ChangedRows::new(1);
        Self { source, target: store(), changed, limits, number: 0, last_answered: 0, from }
    }

    /// Changes contents in one transaction.
    fn change(&mut self, changes: &[ContentChange]) {
        change(&self.source, changes.to_vec());
        for key in changes.iter().flat_map(changed_keys) {
            assert!(self.changed.add(&key));
        }
    }

    /// Asks once; the answer may be lost. Returns whether nothing is left.
    fn ask(&mut self, is_lost: bool) -> bool {
        self.number += 1;
        let Self { number, last_answered, from, .. } = self;
        let asked = CopyRows {
            node: NODE,
            to: 2,
            attempt: 1,
            number: *number,
            last_answered: *last_answered,
            from: from.clone(),
        };
        let mut copy = RowCopy::begin(&asked, None, &mut self.changed, self.limits).unwrap();
        copy.read(&self.source.snapshot().unwrap()).unwrap();
        let copied = copy.end(&mut self.changed, None).unwrap();
        if is_lost {
            return false;
        }
        let mut changes = RowChanges::new();
        for (key, value) in copied.rows {
            content_rows::apply(&mut changes, content_rows::parse(&key).unwrap().unwrap(), value).unwrap();
        }
        self.target.commit_rows(changes).unwrap();
        self.last_answered = self.number;
        self.from = copied.next;
        self.from.is_none() && copied.changed == 0
    }

    fn finish(&mut self) {
        while !self.ask(false) {}
        assert_equal(&self.source, &self.target);
    }
}

fn write(number: u64, offset: u64, len: usize) -> ContentChange {
    ContentChange::Write { id: id(number), offset, data: vec![len as u8 | 1; len].into() }
}

fn truncate(number: u64, size: u64) -> ContentChange {
    ContentChange::Truncate { id: id(number), size }
}

fn zero(number: u64, offset: u64, len: u64) -> ContentChange {
    ContentChange::Zero { id: id(number), offset, len }
}

/// The first content has 200,000 bytes.
fn check_a_copy_follows_its_source() {
    let transactions = [
        vec![write(1, 65_530, 20)],
        vec![zero(1, 10, 20)],
        // What is cut off is gone, also if the content has the same size again.
        vec![truncate(1, 1_000), truncate(1, 200_000)],
        vec![write(1, 0, 200_000)],
        vec![truncate(1, 1_000), write(1, 190_000, 10_000)],
        vec![write(1, 0, 200_000), write(1, 500_000, 5)],
        vec![truncate(1, 0), truncate(1, 500_005)],
        // Large ranges, in front of and behind cuts.
        vec![write(1, 50_000, 400_000), truncate(1, 150_000), write(1, 140_000, 350_000), truncate(1, 140_001)],
        vec![write(1, 130_000, 400_000), truncate(1, 300_000), write(1, 290_000, 10)],
        vec![zero(1, 70_000, u64::MAX)],
        vec![zero(2, 0, u64::MAX)],
        vec![truncate(2, 70_000)],
        vec![write(2, 0, 400_000)],
        vec![ContentChange::Delete { id: id(3) }],
        vec![ContentChange::Create { id: id(5), data: vec![5; 700_000].into() }],
        vec![ContentChange::Create { id: id(6), data: Bytes::new() }],
        vec![truncate(5, 100_000), ContentChange::Resize { id: id(7), size: 90_000 }],
        vec![write(6, 0, 300_000), ContentChange::Delete { id: id(6) }],
    ];
    for limits in [MoveLimits::SMALL, MoveLimits::SERVING] {
        let mut copy = Copy::new(contents(), limits);
        copy.finish();
        for changes in &transactions {
            copy.change(changes);
            copy.finish();
        }
        // All of them between two answers.
        let mut copy = Copy::new(contents(), limits);
        copy.finish();
        transactions.iter().for_each(|changes| copy.change(changes));
        copy.finish();
    }
}

#[test]
fn copy_follows_its_source() {
    assert_noticed(&[Bug::CutBytesKept, Bug::RangeRestForgotten], check_a_copy_follows_its_source);
}

/// Contents change before and behind the place that the copy has reached, and answers are lost.
#[test]
fn copy_that_loses_answers_follows_its_source() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut copy = Copy::new(contents(), MoveLimits::SMALL);
        for _ in 0..25 {
            for _ in 0..random.random_range(0..3) {
                let (number, offset) = (random.random_range(1..=3), random.random_range(0..400_000));
                let change = match random.random_range(0..5) {
                    0 => truncate(number, offset),
                    1 => zero(number, offset, random.random_range(0..400_000)),
                    2 => write(number, offset, random.random_range(1..300_000)),
                    _ => write(number, offset, random.random_range(1..100)),
                };
                copy.change(&[change]);
            }
            copy.ask(random.random_bool(0.3));
        }
        copy.finish();
    }
}

/// More than four gibibytes change at once.
#[test]
fn changes_of_any_size_are_noted_in_few_keys() {
    let mut changed = ChangedRows::new(1);
    let changes = [
        zero(1, 5, u64::MAX),
        truncate(1, model::limits::BLOB),
        ContentChange::CreateFromUpload { id: id(9), upload: model::UploadId(1) },
    ];
    assert!(changes.iter().flat_map(changed_keys).all(|key| changed.add(&key)));
    assert!(new_content_keys(id(9), model::limits::BLOB).iter().all(|key| changed.add(key)));
    assert!(changes.iter().all(|change| changed_keys(change).len() == 2));
}

#[test]
fn keys_have_the_order_in_which_parts_are_sent() {
    let parts = [
        ChangedPart::Size,
        ChangedPart::Cut(7),
        ChangedPart::Cut(8),
        ChangedPart::Chunks(0..1),
        ChangedPart::Chunks(0..5),
        ChangedPart::Chunks(1..2),
        ChangedPart::Chunks(6..1 << 48),
    ];
    let keys: Vec<Key> = parts.iter().map(|part| part.key(id(1))).collect();
    assert!(keys.is_sorted() && *keys.last().unwrap() < ChangedPart::Size.key(id(2)));
    for (part, key) in parts.into_iter().zip(keys) {
        assert_eq!(ChangedPart::parse(&key).unwrap(), Some((id(1), part)));
    }
    assert_eq!(ChangedPart::parse(b"P-key").unwrap(), None);
    let size = ChangedPart::Size.key(id(1));
    for malformed in [&b"X-key"[..], &[&size[..], &[2]].concat(), &[&size[..], &[CHUNKS, 1]].concat()] {
        assert!(ChangedPart::parse(malformed).is_err());
    }
}
