//! Values for property tests, biased towards nearly equal ones.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;

use crate::{Comparison, Date, Decimal, FieldNumber, Filter, Oid, Operand, RecordBuilder, Timestamp, Value};

/// The fields of a record for naive implementations in tests.
pub(crate) type Fields = BTreeMap<FieldNumber, Value>;

pub(crate) fn oid() -> impl Strategy<Value = Oid> {
    // A few bits, so that parts are often equal, or all bits.
    prop_oneof![any::<u128>(), (any::<u128>(), any::<u128>(), any::<u128>()).prop_map(|(a, b, c)| a & b & c)]
        .prop_map(|bits: u128| Oid::from_bytes(bits.to_be_bytes()))
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![-3..4i64, any::<i64>(), Just(i64::MAX), Just(i64::MIN), (0u32..63).prop_map(|bit| -(1 << bit))]
}

/// Any number, of any type.
pub(crate) fn number() -> impl Strategy<Value = Value> {
    let near = prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(0.5), Just(9_223_372_036_854_775_808.0)];
    let decimal = prop_oneof![
        (-300..300i128, -3..4i32),
        (any::<i128>(), any::<i32>()),
        integer().prop_map(|unscaled| (i128::from(unscaled) * 100, 2)),
    ];
    let long = (vec(any::<u8>(), 1..60), -3..4i32);
    prop_oneof![
        integer().prop_map(Value::Int64),
        near.prop_map(Value::Float64),
        proptest::num::f64::ANY.prop_map(Value::Float64),
        decimal.prop_map(|(unscaled, scale)| Value::Decimal(Decimal::new(unscaled, scale))),
        long.prop_map(|(unscaled, scale)| Value::Decimal(Decimal::from_be_bytes(&unscaled, scale).unwrap())),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[ab]{0,3}", ".{0,12}", "[a-c]{250,260}"]
}

/// Any value but a list, set or map.
pub(crate) fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        4 => number(),
        2 => text().prop_map(Value::String),
        1 => vec(any::<u8>(), 0..5).prop_map(Value::from),
        1 => integer().prop_map(|days| Value::Date(Date { days })),
        1 => (integer(), 0..1_000_000_000u32)
            .prop_map(|(seconds, nanos)| Value::Timestamp(Timestamp::new(seconds, nanos).unwrap())),
        1 => oid().prop_map(Value::Reference),
    ]
}

/// Any value.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::List),
            btree_set(inner.clone(), 0..6).prop_map(Value::Set),
            btree_map(inner.clone(), inner, 0..4).prop_map(Value::Map),
        ]
    })
}

/// Fields with dense, sparse or large numbers.
pub(crate) fn fields() -> impl Strategy<Value = Fields> {
    let number = prop_oneof![0..12u32, 0..1000u32, any::<u32>()].prop_map(FieldNumber);
    btree_map(number, value(), 0..10)
}

/// Filters over fields 0 to 5.
pub(crate) fn filter() -> impl Strategy<Value = Filter> {
    let field = || (0..6u32).prop_map(FieldNumber);
    let operand = || scalar().prop_filter_map("null", |value| Operand::new(value).ok());
    let test = prop_oneof![
        field().prop_map(Filter::IsNull),
        (field(), 0..6usize, operand()).prop_map(|(f, c, o)| Filter::Compare(f, Comparison::ALL[c], o)),
        (field(), text()).prop_map(|(field, text)| Filter::StartsWith(field, text)),
        (field(), text()).prop_map(|(field, text)| Filter::ContainsText(field, text)),
        (field(), vec(operand(), 0..8)).prop_map(|(field, operands)| Filter::one_of(field, operands)),
        (field(), operand()).prop_map(|(field, operand)| Filter::Contains(field, operand)),
    ];
    test.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Filter::And),
            vec(inner.clone(), 0..4).prop_map(Filter::Or),
            inner.prop_map(Filter::negate),
        ]
    })
}

/// The encoding of these fields.
pub(crate) fn record(fields: &Fields) -> bytes::Bytes {
    let mut builder = RecordBuilder::new();
    for (number, value) in fields {
        builder.set_value(*number, value).unwrap();
    }
    builder.build().unwrap()
}
