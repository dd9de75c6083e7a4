//! The change of a transaction takes no more of the store than was estimated when it was taken in.

use model::{ContentOp, ContentPatch, Entry, EntryKey, Kind};

use super::*;
use crate::brick::node_driver::change_size::ChangeSize;

/// An index by name, whose keys are as long as names.
const BY_NAME: u32 = 8;
/// Bytes and rows that are written with a transaction and are not of its change: its record, the count of the objects, the limit of positions,
/// transactions that are forgotten.
const OTHER_BYTES: usize = 400;
const OTHER_ROWS: usize = 8;

/// A write of a transaction.
#[derive(Clone, Debug)]
enum Write {
    /// A record with a name of this length.
    Record(u16, usize),
    NoRecord(u16),
    Blob(u16, usize),
    Append(u16, usize),
    NoBlob(u16),
    /// A set without entries is replaced or removed.
    Set(u16),
    NoSet(u16),
    /// An entry with a key of this length, bound or unbound.
    Entry(u8, usize, bool),
}

fn write() -> impl Strategy<Value = Write> {
    prop_oneof![
        8 => (0..100_u16, 0..250_usize).prop_map(|(slot, length)| Write::Record(slot, length)),
        2 => (0..100_u16).prop_map(Write::NoRecord),
        3 => (100..200_u16, 0..300_usize).prop_map(|(slot, length)| Write::Blob(slot, length)),
        3 => (100..200_u16, 1..100_usize).prop_map(|(slot, length)| Write::Append(slot, length)),
        1 => (100..200_u16).prop_map(Write::NoBlob),
        1 => (200..210_u16).prop_map(Write::Set),
        1 => (200..210_u16).prop_map(Write::NoSet),
        4 => (any::<u8>(), 1..255_usize, any::<bool>()).prop_map(|(name, length, is_bound)| Write::Entry(name, length, is_bound)),
    ]
}

fn part(writes: Vec<Write>) -> Part<Object> {
    let mut part = Part::default();
    for write in writes {
        let (oid, content) = match write {
            Write::Record(slot, length) => {
                let mut record = RecordBuilder::new();
                record.set(NAME, &*"n".repeat(length)).unwrap().set(AGE, length as i64).unwrap();
                (oid(PERSON, slot), ObjectState::Value(Object::record(PERSON, record.build().unwrap())))
            }
            Write::NoRecord(slot) => (oid(PERSON, slot), ObjectState::Absent),
            Write::Blob(slot, length) => {
                let mut blob = Object::blob(vec![7; length].into());
                blob.set_attribute("key".into(), Some(vec![7; length].into()));
                (oid(ClassId::NONE, slot), ObjectState::Value(blob))
            }
            Write::Append(slot, length) => {
                let append = ContentPatch::new(vec![ContentOp::Append { data: vec![7; length].into() }]);
                (oid(ClassId::NONE, slot), ObjectState::Changed(append.encode()))
            }
            Write::NoBlob(slot) => (oid(ClassId::NONE, slot), ObjectState::Absent),
            Write::Set(slot) => (oid(ClassId::NONE, slot), ObjectState::Value(Object::collection(Kind::Collection))),
            Write::NoSet(slot) => (oid(ClassId::NONE, slot), ObjectState::Absent),
            Write::Entry(name, length, is_bound) => {
                let collection = oid(ClassId::NONE, 210 + u16::from(name % 3));
                let entry = Entry { collection, key: EntryKey::new(vec![name.max(1); length]).unwrap() };
                part.entries.insert(entry, is_bound.then(|| oid(ClassId::NONE, 300)));
                continue;
            }
        };
        part.writes.insert(oid, content);
    }
    part
}

impl World {
    /// Commits a part. Returns what its change was estimated to take in the store, how many rows were submitted, and their bytes; `None` if it is not
    /// committed.
    fn commit_measured(&mut self, part: Part<Object>) -> Option<(ChangeSize, usize, usize)> {
        let (txn, before) = (self.next_txn(), self.driver.writer.last_position());
        let request = Request::Commit { txn, part };
        self.driver.handle_request(Requester::Node(NodeId(9)), request, HlcTimestamp::ZERO, self.now).unwrap();
        let (mut rows, mut bytes, mut is_committed) = (0, 0, false);
        while let Some(output) = self.driver.next_output() {
            match output {
                DriverOutput::SubmitRows { life, rows: changes } => {
                    (rows, bytes) = (rows + changes.len(), bytes + changes.bytes());
                    let result = self.store.commit_rows(changes).map(drop);
                    self.driver.handle_written(life, result, self.now);
                }
                DriverOutput::Answer { answer: Answer::Ended { outcome: Outcome::Committed(_), .. }, .. } => {
                    is_committed = true;
                }
                _ => {}
            }
        }
        assert!(self.driver.failure().is_none() && self.driver.writer.last_position() <= before + 1);
        is_committed.then(|| (self.driver.admission.current_size(), rows, bytes))
    }
}

/// A logical node with two indexes, and with all blobs and sets.
fn world_to_measure() -> World {
    let mut world = World::with_index();
    let by_name = IndexSpec { index: BY_NAME, fields: vec![NAME, AGE], unique: false, classes: vec![PERSON] };
    world.set_indexes(&[by_age(BY_AGE), by_name]);
    world.settle();
    let all = (100..200).map(|slot| Write::Blob(slot, 9)).chain((200..220).map(Write::Set));
    assert!(world.commit_measured(part(all.collect())).is_some());
    world
}

/// Transactions of many writes that are alike: what is not counted of one of them is more than what is written beside.
#[test]
fn no_change_of_one_kind_takes_more_than_was_estimated() {
    let writes: [fn(u16) -> Write; 12] = [
        |slot| Write::Record(slot, 200),
        |slot| Write::Record(slot, 30),
        Write::NoRecord,
        |slot| Write::Append(100 + slot, 9),
        |slot| Write::Append(100 + slot, 90),
        |slot| Write::Append(100 + slot, 9),
        |slot| Write::Blob(100 + slot, 200),
        |slot| Write::NoBlob(100 + slot),
        |slot| Write::Entry(slot as u8, 200, true),
        |slot| Write::Entry(slot as u8, 200, false),
        |slot| Write::Entry(1, 1 + usize::from(slot), true),
        |slot| Write::NoSet(200 + slot % 10),
    ];
    let mut world = world_to_measure();
    for (number, write) in writes.iter().enumerate() {
        let measured = world.commit_measured(part((0..100).map(write).collect()));
        let (estimate, rows, bytes) = measured.unwrap_or_else(|| panic!("transaction {number} is refused"));
        assert!(bytes <= estimate.bytes + OTHER_BYTES, "transaction {number}: {bytes} bytes, {estimate:?}");
        assert!(rows <= estimate.rows + OTHER_ROWS, "transaction {number}: {rows} rows, {estimate:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_change_takes_more_than_was_estimated(
        writes in proptest::collection::vec(proptest::collection::vec(write(), 1..60), 1..6),
    ) {
        let mut world = world_to_measure();
        for writes in writes {
            let part = part(writes);
            let is_append = |write: &ObjectState<Object>| matches!(write, ObjectState::Changed(_));
            let appends = part.writes.values().any(is_append);
            let measured = world.commit_measured(part);
            // Only a blob that was deleted cannot be appended to.
            prop_assert!(measured.is_some() || appends);
            if let Some((estimate, rows, bytes)) = measured {
                prop_assert!(bytes <= estimate.bytes + OTHER_BYTES, "{bytes} bytes, {estimate:?}");
                prop_assert!(rows <= estimate.rows + OTHER_ROWS, "{rows} rows, {estimate:?}");
            }
        }
    }
}
