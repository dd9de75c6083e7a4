//! The fuzz target of record encoding.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use model::{FieldNumber, RecordBuilder, RecordRef, Value};

/// Numbers that are looked up in addition to existing ones.
const PROBED_NUMBERS: [u32; 6] = [0, 1, 7, 255, 65_536, u32::MAX];

pub(crate) fn run(data: &[u8]) {
    if let Ok(record) = RecordRef::new(data) {
        read_all(&record);
    }
    if let Ok(record) = RecordRef::validate(data) {
        check_valid(&record, data);
    }
}

/// Reads everything in a record that may be damaged anywhere.
fn read_all(record: &RecordRef<'_>) {
    for number in PROBED_NUMBERS {
        if let Ok(Some(value)) = record.field(FieldNumber(number)) {
            let _ = value.to_value();
        }
    }
    let mut previous = None;
    for (_, value) in record.fields().flatten() {
        let _ = value.to_value();
        if let Some(previous) = previous.replace(value) {
            let _ = value.compare(previous);
        }
    }
}

/// A valid record can be decoded and encodes to itself. Its values order as the decoded ones.
fn check_valid(record: &RecordRef<'_>, data: &[u8]) {
    let fields = record.to_fields().expect("a valid record decodes");
    assert_eq!(encode(&fields), data, "a valid record is its own encoding");
    let mut copy = RecordBuilder::new();
    for (number, decoded) in &fields {
        let value = record.field(*number).expect("a valid field decodes").expect("an existing field is found");
        assert_eq!(value.to_value().expect("a valid field decodes"), *decoded);
        assert_eq!(value.compare(value).expect("valid values compare"), Ordering::Equal);
        copy.set(*number, value).expect("a valid field is copied");
    }
    assert_eq!(copy.build().expect("a copy is no larger"), data, "a copy of each field is a copy of the record");
    for (a, b) in fields.iter().zip(fields.iter().skip(1)) {
        let value = |number: FieldNumber| record.field(number).ok().flatten().expect("the field exists");
        let order = value(*a.0).compare(value(*b.0)).expect("valid values compare");
        assert_eq!(order, a.1.cmp(b.1), "{} and {}", a.1, b.1);
    }
}

fn encode(fields: &BTreeMap<FieldNumber, Value>) -> Vec<u8> {
    let mut builder = RecordBuilder::new();
    for (number, value) in fields {
        builder.set_value(*number, value).expect("decoded fields are within the limits");
    }
    builder.build().expect("decoded fields are within the limits").into()
}
