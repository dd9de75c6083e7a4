//! Arbitrary queries for property tests, valid or not.

use std::collections::BTreeMap;

use model::{Comparison, Date, Decimal, Oid, Timestamp, Value};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::{Aggregate, Arithmetic, Expr, Function, Item, OrderKey, Query};

/// Any scalar, null included.
pub(crate) fn scalar() -> BoxedStrategy<Value> {
    prop_oneof![
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::Bool),
        3 => number(),
        2 => text().prop_map(Value::String),
        1 => vec(any::<u8>(), 0..5).prop_map(Value::from),
        1 => prop_oneof![any::<i64>(), -40_000..40_000i64].prop_map(|days| Value::Date(Date { days })),
        1 => (prop_oneof![any::<i64>(), -40_000..40_000i64], 0..1_000_000_000u32)
            .prop_map(|(seconds, nanos)| Value::Timestamp(Timestamp::new(seconds, nanos).unwrap())),
        1 => any::<u128>().prop_map(|bits| Value::Reference(Oid::from_bytes(bits.to_be_bytes()))),
    ]
    .boxed()
}

/// Numbers of all types, many of them nearly equal.
pub(crate) fn number() -> BoxedStrategy<Value> {
    let int = prop_oneof![-3..4i64, any::<i64>(), Just(i64::MAX), Just(i64::MIN), (0u32..63).prop_map(|bit| 1 << bit)];
    let near = prop_oneof![Just(0.0), Just(-0.0), Just(1.0), Just(0.1), Just(9_223_372_036_854_775_808.0)];
    let decimal = prop_oneof![
        (-300..300i128, -3..4i32),
        (any::<i128>(), any::<i32>()),
        (int.clone().prop_map(|unscaled| (i128::from(unscaled) * 100, 2))),
        (any::<i64>().prop_map(i128::from), -2..25i32),
    ];
    prop_oneof![
        int.prop_map(Value::Int64),
        near.prop_map(Value::Float64),
        proptest::num::f64::ANY.prop_map(Value::Float64),
        (-100..100i32).prop_map(|tenths| Value::Float64(f64::from(tenths) / 10.0)),
        decimal.prop_map(|(unscaled, scale)| Value::Decimal(Decimal::new(unscaled, scale))),
    ]
    .boxed()
}

pub(crate) fn text() -> BoxedStrategy<String> {
    prop_oneof!["[ab]{0,3}", ".{0,12}", "[a-b\0]{0,4}"].boxed()
}

fn name() -> BoxedStrategy<String> {
    prop_oneof![
        4 => "[a-f]",
        1 => "[a-zé_$][a-z0-9_$]{0,6}",
        1 => Just("order".to_owned()),
        1 => Just("any".to_owned()),
        1 => Just("THIS".to_owned()),
        1 => "[ -~\n`]{1,8}",
    ]
    .boxed()
}

pub(crate) fn expr() -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        scalar().prop_map(Expr::Literal),
        "[a-z][a-z0-9]{0,3}".prop_map(Expr::Parameter),
        vec(name(), 0..4).prop_map(Expr::Path),
    ];
    leaf.prop_recursive(5, 32, 4, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            vec(inner.clone(), 2..4).prop_map(Expr::And),
            vec(inner.clone(), 2..4).prop_map(Expr::Or),
            vec(inner.clone(), 0..4).prop_map(Expr::List),
            boxed().prop_map(Expr::Not),
            boxed().prop_map(Expr::Negate),
            (0..6usize, boxed(), boxed()).prop_map(|(c, a, b)| Expr::Compare(Comparison::ALL[c], a, b)),
            (0..5usize, boxed(), boxed()).prop_map(|(o, a, b)| Expr::Arithmetic(Arithmetic::ALL[o], a, b)),
            (0..7usize, boxed(), vec(inner.clone(), 0..3)).prop_map(|(f, of, a)| Expr::Call(Function::ALL[f], of, a)),
            (boxed(), vec(inner.clone(), 1)).prop_map(|(of, a)| Expr::Call(Function::Contains, of, a)),
            (boxed(), name(), boxed()).prop_map(|(collection, variable, condition)| Expr::Any {
                collection,
                variable,
                condition
            }),
            (0..5usize, boxed()).prop_map(|(a, of)| Expr::Aggregate(Aggregate::ALL[a], Some(of))),
            Just(Expr::Aggregate(Aggregate::Count, None)),
        ]
    })
    .boxed()
}

/// Any query without parameters' values.
pub(crate) fn query() -> BoxedStrategy<Query> {
    let item = (expr(), option::of(name())).prop_map(|(expr, name)| Item { expr, name });
    let key = (expr(), any::<bool>(), any::<Option<bool>>()).prop_map(|(expr, descending, nulls_first)| OrderKey {
        expr,
        descending,
        nulls_first,
    });
    let class = prop_oneof![name(), "[A-C]\\.[a-c]"];
    let lists = (vec(item, 0..3), vec(expr(), 0..2), vec(key, 0..3));
    let page = (prop_oneof![Just(0), any::<u64>()], any::<Option<u64>>());
    (class, any::<bool>(), option::of(expr()), lists, page)
        .prop_map(|(class, only, condition, (select, group, order), (skip, limit))| Query {
            class,
            only,
            condition,
            select,
            group,
            order,
            skip,
            limit,
            parameters: BTreeMap::new(),
        })
        .boxed()
}

/// Any query.
pub(crate) fn query_with_parameters() -> impl Strategy<Value = Query> {
    let list = vec(scalar(), 0..4).prop_map(Value::List);
    (query(), btree_map("[a-z]{1,3}", prop_oneof![scalar(), list], 0..3))
        .prop_map(|(query, parameters)| Query { parameters, ..query })
}
