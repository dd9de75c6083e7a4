use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{self, Fields, record};
use crate::{Date, Error, ErrorKind, Oid, Timestamp};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn one(value: impl Into<Value>) -> Fields {
    Fields::from([(FieldNumber(0), value.into())])
}

fn refusal(bytes: &[u8]) -> Error {
    RecordRef::validate(bytes).unwrap_err()
}

/// Encodings stay readable forever: add to this list, never change it.
#[test]
fn version_1_encodings_stay() {
    let decimal = |text: &str| Value::Decimal(text.parse().unwrap());
    let map = BTreeMap::from([("a".into(), 1.into()), ("b".into(), Value::Null)]);
    let fixtures: Vec<(Fields, &str)> = vec![
        (Fields::new(), "01"),
        (one(Value::Null), "01 05 01 00 01 00"),
        (one(false), "01 05 01 00 01 01"),
        (one(true), "01 05 01 00 01 02"),
        (one(0), "01 05 01 00 01 03"),
        (one(1), "01 05 01 00 02 03 01"),
        (one(-1), "01 05 01 00 02 03 ff"),
        (one(128), "01 05 01 00 03 03 0080"),
        (one(i64::MIN), "01 05 01 00 09 03 8000000000000000"),
        (one(1.5), "01 05 01 00 09 04 3ff8000000000000"),
        (one(f64::NAN), "01 05 01 00 09 04 7ff8000000000000"),
        (one(decimal("12.50")), "01 05 01 00 05 05 01 02 04e2"),
        (one(decimal("0")), "01 05 01 00 03 05 00 00"),
        (one(decimal("-1e+300")), "01 05 01 00 05 05 02 fed4 ff"),
        (one("né"), "01 05 01 00 04 06 6ec3a9"),
        (one(vec![0xff]), "01 05 01 00 02 07 ff"),
        (one(Date { days: 20_635 }), "01 05 01 00 03 08 509b"),
        (one(Timestamp::from_millis(1500)), "01 05 01 00 05 09 59682f00"),
        (one(Oid::from_bytes([7; 16])), "01 05 01 00 11 0a 07070707070707070707070707070707"),
        (one(Value::List(vec![])), "01 05 01 00 01 0b"),
        (one(Value::List(vec![1.into(), 0.into()])), "01 05 01 00 08 0b 01 02 02 03 03 01 03"),
        (one(Value::Set([2.into(), 1.into()].into())), "01 05 01 00 09 0c 01 02 02 04 03 01 03 02"),
        (one(Value::Map(map)), "01 05 01 00 0e 0d 01 04 02 04 06 07 06 61 03 01 06 62 00"),
        (
            [(FieldNumber(2), true.into()), (FieldNumber(0x1_0000), "x".into())].into(),
            "01 0d 02 00000002 00010000 01 03 02 06 78",
        ),
    ];
    for (fields, text) in fixtures {
        assert_eq!(record(&fields), hex(text), "{fields:?}");
        assert_eq!(RecordRef::validate(&hex(text)).unwrap().to_fields().unwrap(), fields);
    }
    // 300 fields: two-byte numbers, count and ends.
    let many: Fields = (0..300).map(|number| (FieldNumber(number), Value::Int64(0))).collect();
    let bytes = record(&many);
    assert_eq!(bytes[..8], hex("01 0a 012c 0000 0001"));
    assert_eq!(bytes.len(), 1 + 1 + 2 + 300 * 2 + 300 * 2 + 300);
}

#[test]
fn other_encodings_of_a_record_are_refused() {
    for (text, why) in [
        ("", "empty"),
        ("01 05", "of a table is incomplete"),
        ("01 05 00", "of a table is incomplete"),
        ("01 01 01 01 00", "of a table is incomplete"),
        ("01 45 01 00 01 00", "of a table is incomplete"),
        ("01 05 ff 00 01 00", "of a table is incomplete"),
        ("01 05 01 00 02 00", "offsets of a table do not match"),
        ("01 05 01 00 01 00 00", "offsets of a table do not match"),
        ("01 05 02 00 01 00 01 00", "offsets of a table do not match"),
        ("01 05 02 00 01 02 01 00", "offsets of a table do not match"),
        ("01 06 0001 00 0001 00", "wider than"),
        ("01 09 01 0000 01 00", "wider than"),
        ("01 05 02 01 00 01 02 00 00", "out of order"),
        ("01 05 02 01 01 01 02 00 00", "out of order"),
        ("01 05 01 00 01 7f", "unknown tag 0x7f"),
        ("01 05 01 00 02 00 00", "tag 0x00"),
        ("01 05 01 00 02 03 00", "tag 0x03"),
        ("01 05 01 00 03 03 0001", "tag 0x03"),
        ("01 05 01 00 03 03 ff80", "tag 0x03"),
        ("01 05 01 00 03 03 007f", "tag 0x03"),
        ("01 05 01 00 03 03 ffff", "tag 0x03"),
        ("01 05 01 00 0a 03 010000000000000000", "tag 0x03"),
        ("01 05 01 00 08 04 3ff80000000000", "tag 0x04"),
        ("01 05 01 00 09 04 7ff8000000000001", "tag 0x04"),
        ("01 05 01 00 02 05 00", "tag 0x05"),
        ("01 05 01 00 04 05 01 00 01", "tag 0x05"),
        ("01 05 01 00 04 05 00 0001", "tag 0x05"),
        ("01 05 01 00 03 05 09 01", "tag 0x05"),
        ("01 05 01 00 08 05 05 0100000000 01", "tag 0x05"),
        ("01 05 01 00 02 06 ff", "UTF-8"),
        ("01 05 01 00 10 0a 070707070707070707070707070707", "tag 0x0a"),
        ("01 05 01 00 08 0b 05 01 00 01 00 00 00", "of a table is incomplete"),
        ("01 05 01 00 09 0c 01 02 02 04 03 02 03 01", "out of order"),
        ("01 05 01 00 09 0c 01 02 02 04 03 01 03 01", "out of order"),
        ("01 05 01 00 0e 0d 01 04 02 04 06 07 06 62 03 01 06 61 00", "out of order"),
        ("01 05 01 00 05 0d 01 01 01 00", "no value"),
    ] {
        let error = refusal(&hex(text));
        assert!(error.message().contains(why), "{text}: {error}, not {why:?}");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_record_of_a_newer_version_and_a_damaged_one_have_different_errors() {
    assert_eq!(RecordRef::new(&[2]).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(refusal(&[2]).kind(), ErrorKind::Unsupported);
    assert_eq!(RecordRef::new(&[]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(RecordRef::new(&vec![1; limits::RECORD + 1]).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(refusal(&vec![1; limits::RECORD + 1]).kind(), ErrorKind::TooLarge);
}

#[test]
fn a_damaged_field_leaves_the_others_readable() {
    let fields = Fields::from([(FieldNumber(0), "one".into()), (FieldNumber(1), "two".into())]);
    let mut bytes = record(&fields).to_vec();
    let last = bytes.len() - 1;
    bytes[last] = 0xff;
    let record = RecordRef::new(&bytes).unwrap();
    assert!(matches!(record.field(FieldNumber(0)), Ok(Some(ValueRef::String("one")))));
    assert_eq!(record.field(FieldNumber(1)).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn fields_are_borrowed_from_the_record() {
    let fields = Fields::from([(FieldNumber(3), "text".into()), (FieldNumber(9), vec![1, 2, 3].into())]);
    let bytes = record(&fields);
    let record = RecordRef::new(&bytes).unwrap();
    let Ok(Some(ValueRef::String(text))) = record.field(FieldNumber(3)) else { panic!("no text") };
    let Ok(Some(ValueRef::Bytes(raw))) = record.field(FieldNumber(9)) else { panic!("no bytes") };
    assert!(bytes.as_ptr_range().contains(&text.as_ptr()));
    assert!(bytes.as_ptr_range().contains(&raw.as_ptr()));
}

#[test]
fn a_field_set_twice_has_the_last_value() {
    let mut builder = RecordBuilder::new();
    builder.set(FieldNumber(7), "long gone").unwrap().set(FieldNumber(1), true).unwrap();
    builder.set(FieldNumber(7), 2).unwrap();
    let expected = Fields::from([(FieldNumber(1), true.into()), (FieldNumber(7), 2.into())]);
    assert_eq!(builder.build().unwrap(), record(&expected));
}

fn nested_value(levels: usize) -> Value {
    (0..levels).fold(Value::Null, |inner, level| match level % 3 {
        0 => Value::List(vec![inner]),
        1 => Value::Set(BTreeSet::from([inner])),
        _ => Value::Map(BTreeMap::from([(inner, Value::Null)])),
    })
}

#[test]
fn nesting_is_bounded_on_every_path() {
    let deepest = record(&one(nested_value(limits::NESTING)));
    let field = RecordRef::validate(&deepest).unwrap().field(FieldNumber(0)).unwrap().unwrap();
    assert_eq!(field.to_value().unwrap(), nested_value(limits::NESTING));
    assert!(field.compare(field).unwrap().is_eq());

    let mut builder = RecordBuilder::new();
    let error = builder.set_value(FieldNumber(0), &nested_value(limits::NESTING + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(builder.build().unwrap(), hex("01"), "nothing of the refused value stays");

    // One level more than a builder allows: a list of one element around the deepest value.
    let mut inner = vec![0];
    for _ in 0..=limits::NESTING {
        let len = u8::try_from(inner.len()).unwrap();
        inner = [&[0x0b, 0x01, 0x01, len], inner.as_slice()].concat();
    }
    let bytes = [&[0x01, 0x05, 0x01, 0x00, u8::try_from(inner.len()).unwrap()], inner.as_slice()].concat();
    assert!(refusal(&bytes).message().contains("nested"));
    let field = RecordRef::new(&bytes).unwrap().field(FieldNumber(0)).unwrap().unwrap();
    assert_eq!(field.to_value().unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(field.compare(field).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(RecordBuilder::new().set(FieldNumber(0), field).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_record_over_the_limit_is_not_built() {
    let half = Value::from(vec![0; limits::RECORD / 2]);
    let mut builder = RecordBuilder::new();
    builder.set_value(FieldNumber(0), &half).unwrap().set_value(FieldNumber(1), &half).unwrap();
    assert_eq!(builder.build().unwrap_err().kind(), ErrorKind::TooLarge);
    let list = Value::List(vec![half.clone(), half.clone(), half]);
    assert_eq!(RecordBuilder::new().set_value(FieldNumber(0), &list).unwrap_err().kind(), ErrorKind::TooLarge);
}

#[test]
fn elements_and_entries_are_found_by_index() {
    let list = Value::List(vec![1.into(), "two".into()]);
    let map = Value::Map(BTreeMap::from([("key".into(), 5.into())]));
    let bytes = record(&Fields::from([(FieldNumber(0), list), (FieldNumber(1), map)]));
    let record = RecordRef::new(&bytes).unwrap();
    let Ok(Some(ValueRef::List(list))) = record.field(FieldNumber(0)) else { panic!("no list") };
    assert!(matches!(list.get(1), Ok(Some(ValueRef::String("two")))));
    assert!(matches!(list.get(2), Ok(None)));
    assert_eq!((list.len(), list.iter().count()), (2, 2));
    let Ok(Some(ValueRef::Map(map))) = record.field(FieldNumber(1)) else { panic!("no map") };
    assert!(matches!(map.get(0), Ok(Some((ValueRef::String("key"), ValueRef::Int64(5))))));
    assert!(matches!(map.get(1), Ok(None)));
    assert_eq!((map.len(), map.iter().count(), map.is_empty()), (1, 1, false));
}

/// Calls every read of a record.
fn exercise(bytes: &[u8]) {
    let whole = RecordRef::validate(bytes).map(|record| record.to_fields());
    let Ok(looked) = RecordRef::new(bytes) else { return assert!(whole.is_err()) };
    for number in (0..20).chain([255, 256, 65_536, u32::MAX]) {
        if let Ok(Some(value)) = looked.field(FieldNumber(number)) {
            let _ = (value.to_value(), value.compare(value));
        }
    }
    match whole {
        Ok(fields) => assert_eq!(record(&fields.unwrap()), bytes),
        Err(_) => drop(looked.to_fields()),
    }
}

proptest! {
    #[test]
    fn records_round_trip_and_are_valid(fields in arbitrary::fields()) {
        let bytes = record(&fields);
        prop_assert_eq!(RecordRef::validate(&bytes).unwrap().to_fields().unwrap(), fields);
    }

    #[test]
    fn each_field_is_what_decoding_all_gives(fields in arbitrary::fields(), other: u32) {
        let bytes = record(&fields);
        let record = RecordRef::new(&bytes).unwrap();
        for number in fields.keys().copied().chain((0..12).map(FieldNumber)).chain([FieldNumber(other)]) {
            let found = record.field(number).unwrap().map(|value| value.to_value().unwrap());
            prop_assert_eq!(found.as_ref(), fields.get(&number));
        }
        prop_assert_eq!(record.len(), fields.len());
    }

    #[test]
    fn the_order_of_setting_leaves_no_trace(fields in arbitrary::fields()) {
        let mut builder = RecordBuilder::new();
        for (number, value) in fields.iter().rev() {
            builder.set_value(*number, value).unwrap();
        }
        prop_assert_eq!(builder.build().unwrap(), record(&fields));
    }

    #[test]
    fn values_copied_from_a_record_stay_as_they_are(fields in arbitrary::fields()) {
        let bytes = record(&fields);
        let mut builder = RecordBuilder::new();
        for field in RecordRef::new(&bytes).unwrap().fields() {
            let (number, value) = field.unwrap();
            builder.set(number, value).unwrap();
        }
        prop_assert_eq!(builder.build().unwrap(), bytes);
    }

    #[test]
    fn encoded_values_order_as_values(a in arbitrary::value(), b in arbitrary::value()) {
        let (x, y) = (record(&one(a.clone())), record(&one(b.clone())));
        let field = |bytes| RecordRef::new(bytes).unwrap().field(FieldNumber(0)).unwrap().unwrap();
        prop_assert_eq!(field(&x).compare(field(&y)).unwrap(), a.cmp(&b));
        prop_assert_eq!(x == y, a == b);
    }

    #[test]
    fn bytes_from_anywhere_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), record: bool) {
        if record && bytes.len() > 2 {
            bytes[0] = VERSION;
            bytes[1] = 0b0101 + bytes[1] % 2 * 4 + bytes[1] / 2 % 2;
        }
        exercise(&bytes);
    }

    #[test]
    fn damaged_records_do_no_harm(
        fields in arbitrary::fields(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut: prop::sample::Index,
    ) {
        let mut bytes = record(&fields).to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        exercise(&bytes);
        exercise(&bytes[..cut.index(bytes.len())]);
    }
}
