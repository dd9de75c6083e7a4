use bigdecimal::BigDecimal;
use proptest::prelude::*;

use super::*;
use crate::arbitrary;

fn decimal(text: &str) -> Value {
    Value::Decimal(text.parse().unwrap())
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    order::compare(a.as_scalar().unwrap(), b.as_scalar().unwrap())
}

/// The number that a value is, slowly: which infinity or NaN, or else its exact digits.
fn exact_value(value: &Value) -> (i8, BigDecimal) {
    match value {
        Value::Int64(number) => (0, BigDecimal::from(*number)),
        Value::Decimal(number) => (0, number.to_big()),
        Value::Float64(number) if number.is_nan() => (2, BigDecimal::default()),
        Value::Float64(number) if number.is_infinite() => (number.signum() as i8, BigDecimal::default()),
        Value::Float64(number) => (0, BigDecimal::try_from(*number).unwrap()),
        other => panic!("{other} is no number"),
    }
}

#[test]
fn the_total_order_goes_by_family_then_number_then_type() {
    let sorted = [
        Value::Null,
        false.into(),
        true.into(),
        f64::NEG_INFINITY.into(),
        i64::MIN.into(),
        (-0.5).into(),
        0.into(),
        (-0.0).into(),
        0.0.into(),
        decimal("0"),
        1.into(),
        1.0.into(),
        decimal("1"),
        decimal("1.0"),
        (i64::MAX - 1).into(),
        i64::MAX.into(),
        9_223_372_036_854_775_808.0.into(),
        decimal("1e+400"),
        f64::INFINITY.into(),
        f64::NAN.into(),
        "".into(),
        "Z".into(),
        "a".into(),
        "é".into(),
        Value::from(Bytes::new()),
        Value::from(vec![0xff]),
        Date { days: 1 }.into(),
        Timestamp::from_millis(-1).into(),
        Timestamp::from_millis(0).into(),
        Oid::MIN.into(),
        Value::List(vec![]),
        Value::List(vec![1.into()]),
        Value::List(vec![1.into(), Value::Null]),
        Value::List(vec![decimal("1.0")]),
        Value::Set(BTreeSet::new()),
        Value::Map(BTreeMap::new()),
        Value::Map(BTreeMap::from([(1.into(), 2.into())])),
        Value::Map(BTreeMap::from([(1.into(), 3.into())])),
    ];
    assert!(sorted.windows(2).all(|pair| pair[0] < pair[1]));
}

#[test]
fn nan_is_one_value() {
    let other = Value::Float64(-f64::from_bits(0x7ff8_0000_0000_1234));
    assert_eq!(Value::Float64(f64::NAN), other);
    assert_eq!(order(&f64::NAN.into(), &other), Some(Ordering::Equal));
    assert_eq!(BTreeSet::from([f64::NAN.into(), other]).len(), 1);
}

#[test]
fn comparison_is_by_number_and_the_total_order_also_by_encoding() {
    for (a, b) in [(1.into(), decimal("1.00")), (0.0.into(), (-0.0).into()), (0.5.into(), decimal("0.5"))] {
        assert_eq!(order(&a, &b), Some(Ordering::Equal), "{a} {b}");
        assert_ne!(a, b);
    }
    // These two are one double.
    assert_eq!(order(&9_007_199_254_740_993.into(), &9_007_199_254_740_992.0.into()), Some(Ordering::Greater));
    assert_eq!(order(&"1".into(), &1.into()), None);
}

#[test]
fn displays_for_people() {
    let map = BTreeMap::from([("a".into(), Value::List(vec![1.into(), Value::Null])), (2.into(), Value::Null)]);
    let shown = [
        (Value::Null, "null"),
        (true.into(), "true"),
        ((-42).into(), "-42"),
        (1.0.into(), "1.0"),
        (1e300.into(), "1e300"),
        (f64::NAN.into(), "NaN"),
        (decimal("12.50"), "12.50"),
        ("say \"hi\"\n".into(), r#""say \"hi\"\n""#),
        (vec![0x0a, 0xff].into(), "x'0aff'"),
        (vec![0; 33].into(), "x'0000000000000000000000000000000000000000000000000000000000000000…' (33 bytes)"),
        (Date { days: 0 }.into(), "1970-01-01"),
        (Timestamp::from_millis(0).into(), "1970-01-01T00:00:00Z"),
        (Oid::MIN.into(), "@0.0.0.0.0"),
        (Value::List(vec![]), "[]"),
        (Value::Set(BTreeSet::from([2.into(), 1.into()])), "{1, 2}"),
        (Value::Map(BTreeMap::new()), "{:}"),
        (Value::Map(map), r#"{2: null, "a": [1, null]}"#),
        (Some(1).into(), "1"),
        (None::<bool>.into(), "null"),
    ];
    for (value, text) in shown {
        assert_eq!(value.to_string(), text);
    }
}

proptest! {
    #[test]
    fn numbers_compare_by_their_exact_value(a in arbitrary::number(), b in arbitrary::number()) {
        prop_assert_eq!(order(&a, &b), Some(exact_value(&a).cmp(&exact_value(&b))));
    }

    #[test]
    fn the_total_order_is_total(a in arbitrary::value(), b in arbitrary::value(), c in arbitrary::value()) {
        let mut three = [a, b, c];
        three.sort();
        let [a, b, c] = three;
        prop_assert!(a <= b && b <= c && a <= c);
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == c, a == b && b == c);
    }

    #[test]
    fn the_total_order_refines_the_comparison(a in arbitrary::scalar(), b in arbitrary::scalar()) {
        if let Some(order) = order(&a, &b) && order.is_ne() {
            prop_assert_eq!(a.cmp(&b), order);
        }
    }

    #[test]
    fn values_round_trip_by_themselves(value in arbitrary::value()) {
        let bytes = value.to_bytes().unwrap();
        prop_assert_eq!(Value::from_bytes(&bytes).unwrap(), value);
    }

    #[test]
    fn damaged_values_are_refused_or_are_other_values(value in arbitrary::value(), at: prop::sample::Index, byte: u8) {
        let mut bytes = value.to_bytes().unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(other) = Value::from_bytes(&bytes) {
            prop_assert_eq!(other.to_bytes().unwrap(), bytes);
        }
    }
}
