use std::cmp::Ordering;

use model::{Decimal, Value};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::arbitrary::{number, scalar, text};

fn entry(values: &[Value]) -> IndexEntry {
    let scalars: Vec<ValueRef<'_>> = values.iter().map(|value| value.as_scalar().unwrap()).collect();
    IndexEntry::new(&scalars)
}

/// The order of filters, and of families.
fn compare(a: &Value, b: &Value) -> Ordering {
    let coarse = a.as_scalar().unwrap().compare_as_filters(b.as_scalar().unwrap());
    coarse.unwrap_or_else(|| a.cmp(b))
}

fn compare_all(a: &[Value], b: &[Value]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| compare(a, b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

fn decimal(text: &str) -> Value {
    Value::Decimal(text.parse().unwrap())
}

#[test]
fn equal_numbers_of_different_types_have_one_key() {
    for same in [
        [1.into(), 1.0.into(), decimal("1.00")],
        [0.into(), (-0.0).into(), decimal("0.000")],
        [(-120).into(), (-120.0).into(), decimal("-1.2e2")],
        [(1 << 60).into(), ((1i64 << 60) as f64).into(), decimal("1152921504606846976.0")],
    ] {
        let keys: Vec<IndexEntry> = same.iter().map(|value| entry(std::slice::from_ref(value))).collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{same:?}");
    }
}

/// Keys are stored on disk, so these must not change.
#[test]
fn keys_do_not_change() {
    let cases: [(Value, &[u8]); 12] = [
        (Value::Null, &[0x05]),
        (true.into(), &[0x11]),
        (0.into(), &[0x22]),
        (1.into(), &[0x23, 129, 3, 0]),
        (1200.into(), &[0x23, 130, 14, 0]),
        ((-1).into(), &[0x21, 126, 252, 255]),
        (decimal("0.05"), &[0x23, 128, 7, 0]),
        (decimal("1e1000"), &[0x23, 229, 0x80, 0, 0, 0, 0, 0, 1, 0xf5, 3, 0]),
        ("a\0b".into(), &[0x30, b'a', 0, 0xff, b'b', 0, 0]),
        (vec![0xff].into(), &[0x31, 0xff, 0, 0]),
        (model::Date { days: -1 }.into(), &[0x40, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (f64::NAN.into(), &[0x25]),
    ];
    for (value, key) in cases {
        assert_eq!(entry(std::slice::from_ref(&value)).key, key, "{value}");
    }
}

#[test]
pub(crate) fn long_values_are_cut_and_still_told_apart() {
    let long = |end: &str| Value::from("x".repeat(1000) + end);
    let (a, b) = (entry(&[long("a")]), entry(&[long("b")]));
    assert_ne!(a, b);
    assert_eq!(a.key.len(), limits::KEY);
    assert!(entry(&["x".into()]).key < a.key && a.key < entry(&["y".into()]).key);
    let tiny = f64::from_bits(1);
    assert_eq!(entry(&[tiny.into()]).key.len(), limits::KEY);
    assert_ne!(entry(&[tiny.into()]), entry(&[(tiny * 3.0).into()]));
}

#[test]
pub(crate) fn nulls_are_noted() {
    assert!(entry(&[1.into(), Value::Null]).has_null);
    assert!(!entry(&[1.into(), 2.into()]).has_null);
    let record = model::RecordBuilder::new().build().unwrap();
    let absent = IndexEntry::of(&RecordRef::new(&record).unwrap(), &[FieldNumber(3)]).unwrap();
    assert_eq!(absent, entry(&[Value::Null]));
}

fn long_text() -> BoxedStrategy<Value> {
    (
        prop::sample::select(vec![0usize, 5, 25, 33, 34, 90, 287, 288, 289, 290, 400]),
        text(),
        prop::sample::select(vec!["x", "\0"]),
    )
        .prop_map(|(length, end, of)| Value::String(of.repeat(length) + &end))
        .boxed()
}

fn value() -> BoxedStrategy<Value> {
    prop_oneof![3 => scalar(), 1 => long_text(), 1 => (any::<i128>(), 0..600i32).prop_map(|(digits, scale)| {
        Value::Decimal(Decimal::new(digits, scale))
    })]
    .boxed()
}

/// The component parts of keys, without the checksum.
fn components(values: &[Value]) -> Vec<u8> {
    let mut prefix = KeyPrefix::new(values.len());
    values.iter().for_each(|value| prefix.push(value.as_scalar().unwrap()));
    prefix.bytes().to_vec()
}

proptest! {
    #[test]
    fn bytes_are_ordered_as_numbers(a in number(), b in number()) {
        let (x, y) = (full_key(&[a.as_scalar().unwrap()]), full_key(&[b.as_scalar().unwrap()]));
        prop_assert_eq!(x.cmp(&y), compare(&a, &b), "{} {}", a, b);
    }

    #[test]
    fn bytes_are_ordered_as_values(a in vec(value(), 3), b in vec(value(), 3), alike in 0..3usize) {
        let b: Vec<Value> = a.iter().take(alike).chain(&b[alike..]).cloned().collect();
        let (x, y) = (components(&a), components(&b));
        let expected = compare_all(&a, &b);
        // Truncated values have the same bytes.
        prop_assert!(x.cmp(&y) == expected || x == y, "{:?} {:?}", a, b);
        if x.len() < 80 && y.len() < 80 {
            prop_assert_eq!(x.cmp(&y), expected);
        }
        let (a, b) = (entry(&a), entry(&b));
        prop_assert!(a.key.len() <= limits::KEY && b.key.len() <= limits::KEY);
        prop_assert_eq!(a.key == b.key, expected.is_eq());
    }

    #[test]
    fn keys_of_any_number_of_fields_are_short(values in vec(value(), 1..=limits::KEY_FIELDS)) {
        prop_assert!(entry(&values).key.len() <= limits::KEY);
    }

    #[test]
    fn ranges_contain_all_values_that_satisfy_the_comparison(first in value(), bound in value(), other in value(), last in value(), same: bool) {
        prop_assume!(!matches!(bound, Value::Null));
        let other = if same { bound.clone() } else { other };
        let key = entry(&[first.clone(), other.clone(), last]).key;
        let mut prefix = KeyPrefix::new(3);
        prefix.push(first.as_scalar().unwrap());
        let cut = prefix.cut;
        prop_assert!(prefix.range().contains(&key));
        let (a, b) = (other.as_scalar().unwrap(), bound.as_scalar().unwrap());
        for comparison in Comparison::ALL {
            let range = prefix.compare(comparison, b);
            let holds = a.compare_as_filters(b).is_some_and(|order| comparison.holds(order));
            prop_assert!(!holds || range.contains(&key), "{} {} {}", other, comparison, bound);
            // Also with further bytes.
            prop_assert_eq!(range.contains(&key), range.contains(&[key.as_slice(), &[0xff; 16]].concat()));
            if !cut && a.compare_as_filters(b).is_none() {
                prop_assert!(!range.contains(&key));
            }
        }
        prop_assert!(prefix.null().contains(&key) || other != Value::Null);
        prop_assert!(prefix.not_null().contains(&key) || other == Value::Null);
        prop_assert!(cut || !prefix.null().contains(&key) || !prefix.not_null().contains(&key));
    }

    #[test]
    fn ranges_of_prefixes_contain_all_values_with_the_prefix(of in long_text(), cut: prop::sample::Index, other in value()) {
        let Value::String(text) = &of else { panic!() };
        let at = (0..=cut.index(text.len() + 1)).rev().find(|at| text.is_char_boundary(*at)).unwrap();
        let range = KeyPrefix::new(2).starts_with(&text[..at]);
        prop_assert!(range.contains(&entry(&[of.clone(), other.clone()]).key));
        if !matches!(other, Value::String(_)) {
            prop_assert!(!range.contains(&entry(&[other, of]).key));
        }
    }
}

proptest! {
    #[test]
    fn first_component_is_that_of_the_first_value(values in vec(scalar(), 1..4)) {
        let key = entry(&values).key;
        let share = (limits::KEY - CHECKSUM) / values.len();
        let mut one = Vec::new();
        append_component(values[0].as_scalar().unwrap(), share, &mut one);
        prop_assert_eq!(first_component(&key), Some(&one[..]));
        // Exactly the keys with this prefix have it.
        let mut prefix = KeyPrefix::new(values.len());
        prefix.push(values[0].as_scalar().unwrap());
        let range = prefix.range();
        prop_assert_eq!(common_first_component(&range.from, &range.to), Some(&one[..]));
        let mut above = range.to.clone();
        above.push(0);
        prop_assert_eq!(common_first_component(&range.from, &above), None);
        for len in 0..one.len() {
            prop_assert_eq!(first_component(&one[..len]), None);
        }
    }

    #[test]
    fn first_component_of_any_bytes_does_not_panic(bytes in vec(any::<u8>(), 0..40), to in vec(any::<u8>(), 0..40)) {
        if let Some(first) = first_component(&bytes) {
            prop_assert!(bytes.starts_with(first));
        }
        let _ = common_first_component(&bytes, &to);
    }
}
