use std::collections::BTreeSet;

use bigdecimal::BigDecimal;
use proptest::prelude::*;

use super::*;
use crate::arbitrary::{self, Fields, record};

const A: FieldNumber = FieldNumber(0);
const B: FieldNumber = FieldNumber(1);

fn fields(a: impl Into<Value>) -> Fields {
    Fields::from([(A, a.into())])
}

fn matches(filter: &Filter, fields: &Fields) -> bool {
    filter.matches(&RecordRef::new(&record(fields)).unwrap()).unwrap()
}

/// The order of two values, computed slowly and independently.
fn naive_order(a: &Value, b: &Value) -> Option<Ordering> {
    fn number(value: &Value) -> Option<(i8, BigDecimal)> {
        Some(match value {
            Value::Int64(number) => (0, BigDecimal::from(*number)),
            Value::Decimal(number) => (0, number.to_big()),
            Value::Float64(number) if number.is_nan() => (2, BigDecimal::default()),
            Value::Float64(number) if number.is_infinite() => (number.signum() as i8, BigDecimal::default()),
            Value::Float64(number) => (0, BigDecimal::try_from(*number).unwrap()),
            _ => return None,
        })
    }
    match (number(a), number(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (None, None) if std::mem::discriminant(a) == std::mem::discriminant(b) => Some(a.cmp(b)),
        _ => None,
    }
}

/// The expected result of a filter on decoded fields.
fn naive_matches(filter: &Filter, fields: &Fields) -> bool {
    let equal = |value: &Value, operand: &Operand| naive_order(value, operand.value()) == Some(Ordering::Equal);
    match filter {
        Filter::And(parts) => parts.iter().all(|part| naive_matches(part, fields)),
        Filter::Or(parts) => parts.iter().any(|part| naive_matches(part, fields)),
        Filter::Not(part) => !naive_matches(part, fields),
        Filter::IsNull(field) => matches!(fields.get(field), None | Some(Value::Null)),
        Filter::Compare(field, comparison, operand) => fields
            .get(field)
            .and_then(|value| naive_order(value, operand.value()))
            .is_some_and(|order| comparison.holds(order)),
        Filter::StartsWith(field, text) => {
            matches!(fields.get(field), Some(Value::String(value)) if value.starts_with(text))
        }
        Filter::ContainsText(field, text) => {
            matches!(fields.get(field), Some(Value::String(value)) if value.contains(text))
        }
        Filter::OneOf(field, operands) => {
            fields.get(field).is_some_and(|value| operands.as_slice().iter().any(|operand| equal(value, operand)))
        }
        Filter::Contains(field, operand) => match fields.get(field) {
            Some(Value::List(values)) => values.iter().any(|value| equal(value, operand)),
            Some(Value::Set(values)) => values.iter().any(|value| equal(value, operand)),
            Some(Value::Map(entries)) => entries.keys().any(|key| equal(key, operand)),
            _ => false,
        },
    }
}

#[test]
fn only_is_null_is_true_of_an_absent_or_null_field() {
    for fields in [Fields::new(), fields(Value::Null)] {
        for comparison in Comparison::ALL {
            assert!(!matches(&Filter::compare(A, comparison, 3), &fields), "{comparison}");
        }
        assert!(!matches(&Filter::StartsWith(A, String::new()), &fields));
        assert!(!matches(&Filter::one_of(A, [3]), &fields));
        assert!(!matches(&Filter::contains(A, 3), &fields));
        assert!(matches(&Filter::IsNull(A), &fields));
        assert!(matches(&Filter::compare(A, Comparison::Equal, 3).negate(), &fields));
    }
    assert!(!matches(&Filter::IsNull(A), &fields(false)));
}

#[test]
fn a_field_of_another_family_is_neither_equal_nor_unequal() {
    for comparison in Comparison::ALL {
        assert!(!matches(&Filter::compare(A, comparison, 3), &fields("3")));
    }
}

#[test]
fn a_field_that_was_widened_since_is_compared_by_value() {
    let decimal = |text: &str| text.parse::<crate::Decimal>().unwrap();
    let equal = Filter::compare(A, Comparison::Equal, decimal("3.00"));
    assert!(matches(&equal, &fields(3)));
    assert!(matches(&equal, &fields(3.0)));
    assert!(matches(&Filter::one_of(A, [decimal("1"), decimal("3.00")]), &fields(3)));
    assert!(matches(&Filter::contains(A, decimal("3.00")), &fields(Value::Set(BTreeSet::from([1.into(), 3.into()])))));
}

#[test]
fn empty_junctions_are_true_and_false() {
    assert!(matches(&Filter::And(vec![]), &Fields::new()));
    assert!(!matches(&Filter::Or(vec![]), &Fields::new()));
    assert!(!matches(&Filter::one_of::<i64>(A, []), &fields(1)));
}

#[test]
fn fields_that_cannot_change_the_result_are_not_read() {
    let mut bytes = record(&Fields::from([(A, 1.into()), (B, "text".into())])).to_vec();
    let last = bytes.len() - 1;
    bytes[last] = 0xff;
    let record = RecordRef::new(&bytes).unwrap();
    let one = Filter::compare(A, Comparison::Equal, 1);
    let damaged = Filter::StartsWith(B, "t".into());
    assert!(one.matches(&record).unwrap());
    assert!(Filter::Or(vec![one.clone(), damaged.clone()]).matches(&record).unwrap());
    assert!(!Filter::And(vec![one.clone().negate(), damaged.clone()]).matches(&record).unwrap());
    let error = Filter::And(vec![one, damaged]).matches(&record).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn null_and_collections_are_refused_as_operands() {
    for value in [Value::Null, Value::List(vec![]), Value::Set(BTreeSet::new()), Value::Map([].into())] {
        assert_eq!(Operand::new(value).unwrap_err().kind(), ErrorKind::Invalid);
    }
}

#[test]
fn nesting_nodes_and_size_are_bounded() {
    let nested = |levels| (0..levels).fold(Filter::IsNull(A), |inner, _| inner.negate());
    let bytes = nested(limits::FILTER_NESTING).encode().unwrap();
    assert_eq!(Filter::decode(&bytes).unwrap(), nested(limits::FILTER_NESTING));
    let too_deep = nested(limits::FILTER_NESTING + 1);
    assert_eq!(too_deep.encode().unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(too_deep.matches(&RecordRef::new(&[1]).unwrap()).unwrap_err().kind(), ErrorKind::TooLarge);
    let forged = [&[1], [3u8; limits::FILTER_NESTING + 1].as_slice(), &[0x20, 0]].concat();
    assert_eq!(Filter::decode(&forged).unwrap_err().kind(), ErrorKind::TooLarge);

    let wide = |parts| Filter::Or(vec![Filter::IsNull(A); parts]);
    assert!(Filter::decode(&wide(limits::FILTER_NODES - 1).encode().unwrap()).is_ok());
    assert_eq!(wide(limits::FILTER_NODES).encode().unwrap_err().kind(), ErrorKind::TooLarge);
    let forged = [&[1, 2, 0x80, 0x80, 0x01], [0x20u8, 0].repeat(16_384).as_slice()].concat();
    assert_eq!(Filter::decode(&forged).unwrap_err().kind(), ErrorKind::TooLarge);

    let long = Filter::StartsWith(A, "x".repeat(limits::FILTER));
    assert_eq!(long.encode().unwrap_err().kind(), ErrorKind::TooLarge);
    assert_eq!(Filter::decode(&vec![1; limits::FILTER + 1]).unwrap_err().kind(), ErrorKind::TooLarge);
}

/// Encodings stay readable forever: add to this list, never change it.
#[test]
fn version_1_encodings_stay() {
    let fixtures: [(Filter, &[u8]); 8] = [
        (Filter::And(vec![]), &[1, 1, 0]),
        (Filter::Or(vec![Filter::IsNull(A), Filter::IsNull(FieldNumber(300))]), &[1, 2, 2, 0x20, 0, 0x20, 0xac, 2]),
        (Filter::compare(B, Comparison::Equal, 0).negate(), &[1, 3, 0x10, 1, 1, 3]),
        (Filter::compare(B, Comparison::GreaterOrEqual, true), &[1, 0x15, 1, 1, 2]),
        (Filter::StartsWith(A, "ab".into()), &[1, 0x21, 0, 2, b'a', b'b']),
        (Filter::ContainsText(A, String::new()), &[1, 0x22, 0, 0]),
        (Filter::one_of(A, [2, 1, 2]), &[1, 0x23, 0, 2, 2, 3, 1, 2, 3, 2]),
        (Filter::contains(A, "x"), &[1, 0x24, 0, 2, 6, b'x']),
    ];
    for (filter, bytes) in fixtures {
        assert_eq!(filter.encode().unwrap(), bytes);
        assert_eq!(Filter::decode(bytes).unwrap(), filter);
    }
}

#[test]
fn invalid_encodings_are_refused() {
    let cases: [(&[u8], ErrorKind, &str); 13] = [
        (&[], ErrorKind::Invalid, "incomplete"),
        (&[1], ErrorKind::Invalid, "incomplete"),
        (&[2, 1, 0], ErrorKind::Unsupported, "version 2"),
        (&[1, 1, 0, 0], ErrorKind::Invalid, "bytes follow"),
        (&[1, 0x30, 0], ErrorKind::Unsupported, "unknown kind 0x30"),
        (&[1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f], ErrorKind::Invalid, "incomplete"),
        (&[1, 0x20, 0xff, 0xff, 0xff, 0xff, 0x1f], ErrorKind::Invalid, "over 32 bits"),
        (&[1, 0x20, 0x80, 0x00], ErrorKind::Invalid, "not minimally encoded"),
        (&[1, 0x21, 0, 9, b'a'], ErrorKind::Invalid, "incomplete"),
        (&[1, 0x21, 0, 1, 0xff], ErrorKind::Invalid, "UTF-8"),
        (&[1, 0x10, 0, 1, 0], ErrorKind::Invalid, "is null"),
        (&[1, 0x10, 0, 2, 3, 0], ErrorKind::Invalid, "operand is malformed"),
        (&[1, 0x23, 0, 2, 2, 3, 2, 2, 3, 1], ErrorKind::Invalid, "out of order"),
    ];
    for (bytes, kind, why) in cases {
        let error = Filter::decode(bytes).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(why), "{bytes:?}: {error}, not {why:?}");
    }
}

proptest! {
    #[test]
    fn filters_say_what_a_naive_evaluator_says(filter in arbitrary::filter(), fields in arbitrary::fields()) {
        prop_assert_eq!(matches(&filter, &fields), naive_matches(&filter, &fields));
    }

    #[test]
    fn tests_of_what_is_there_say_what_a_naive_evaluator_says(
        value in arbitrary::value(),
        others in proptest::collection::vec(arbitrary::scalar(), 0..6),
        pick: prop::sample::Index,
    ) {
        // Operands from the value itself make equality common.
        let mut operands: Vec<Value> = match &value {
            Value::List(values) => values.clone(),
            Value::Set(values) => values.iter().cloned().collect(),
            Value::Map(entries) => entries.keys().cloned().collect(),
            scalar => vec![scalar.clone()],
        };
        operands.extend(others);
        let operands: Vec<Operand> = operands.into_iter().filter_map(|value| Operand::new(value).ok()).collect();
        prop_assume!(!operands.is_empty());
        let one = operands[pick.index(operands.len())].clone();
        let fields = fields(value);
        for comparison in Comparison::ALL {
            let filter = Filter::compare(A, comparison, one.clone());
            prop_assert_eq!(matches(&filter, &fields), naive_matches(&filter, &fields));
        }
        for filter in [Filter::contains(A, one), Filter::one_of(A, operands)] {
            prop_assert_eq!(matches(&filter, &fields), naive_matches(&filter, &fields));
        }
    }

    #[test]
    fn filters_round_trip(filter in arbitrary::filter()) {
        let bytes = filter.encode().unwrap();
        prop_assert_eq!(Filter::decode(&bytes).unwrap(), filter);
    }

    #[test]
    fn damaged_filters_are_refused_or_are_other_filters(
        filter in arbitrary::filter(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = filter.encode().unwrap();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(other) = Filter::decode(&bytes) {
            prop_assert_eq!(other.encode().unwrap(), bytes);
        }
    }

    #[test]
    fn filters_of_damaged_records_do_no_harm(
        filter in arbitrary::filter(),
        fields in arbitrary::fields(),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let mut bytes = record(&fields).to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(record) = RecordRef::new(&bytes) {
            let _ = filter.matches(&record);
        }
    }
}
