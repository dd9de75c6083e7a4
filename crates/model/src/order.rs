//! The order of values.
//!
//! There are two relations. The second refines the first, so a sorted sequence can be searched by either:
//!
//! - [`compare`] is the relation of filters. Only values of one family are comparable, and all numbers are one family.
//!   1 = 1.0 = 1.00 = 0x3ff0000000000000, exactly and whatever the types: a field that was an integer when an old
//!   record was written may be a decimal in the current class.
//! - [`total_cmp`] is the order of keys and of sets: by family, then by [`compare`], then by what `compare` ignores:
//!   the type of a number (int64, float64, decimal), the sign of a zero (-0.0 < 0.0) and the scale of a decimal (1.0 <
//!   1.00). Two values are equal in it only if their encodings are equal.
//!
//! The order of families: null, bool (false < true), numbers, strings (by code point), bytes, dates, time stamps,
//! references, lists, sets, maps. In both relations NaN is one value, equal to itself and above all other numbers.

use std::cmp::Ordering;

use crate::{DecimalRef, ValueRef};

/// A family: values that are comparable with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    Null,
    Bool,
    Number,
    String,
    Bytes,
    Date,
    Timestamp,
    Reference,
    List,
    Set,
    Map,
}

/// The order of two scalars of one family; `None` for other values.
pub(crate) fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    use ValueRef as V;
    Some(match (a, b) {
        (V::Int64(a), V::Int64(b)) => a.cmp(&b),
        (V::String(a), V::String(b)) => a.cmp(b),
        (V::Null, V::Null) => Ordering::Equal,
        (V::Bool(a), V::Bool(b)) => a.cmp(&b),
        (V::Float64(a), V::Float64(b)) => compare_floats(a, b),
        (V::Int64(a), V::Float64(b)) => compare_int_float(a, b),
        (V::Float64(a), V::Int64(b)) => compare_int_float(b, a).reverse(),
        (V::Decimal(a), V::Decimal(b)) => a.compare(b),
        (V::Decimal(a), V::Int64(b)) => a.compare_i64(b),
        (V::Int64(a), V::Decimal(b)) => b.compare_i64(a).reverse(),
        (V::Decimal(a), V::Float64(b)) => compare_decimal_float(a, b),
        (V::Float64(a), V::Decimal(b)) => compare_decimal_float(b, a).reverse(),
        (V::Bytes(a), V::Bytes(b)) => a.cmp(b),
        (V::Date(a), V::Date(b)) => a.cmp(&b),
        (V::Timestamp(a), V::Timestamp(b)) => a.cmp(&b),
        (V::Reference(a), V::Reference(b)) => a.cmp(&b),
        _ => return None,
    })
}

/// The order of two values of which at least one is a scalar.
pub(crate) fn total_cmp(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    match compare(a, b) {
        Some(order) => order.then_with(|| break_tie(a, b)),
        None => a.family().cmp(&b.family()),
    }
}

/// The position of a value in total order: below the values that equal the scalar, equal, or above them.
pub(crate) fn compare_for_search(value: ValueRef<'_>, scalar: ValueRef<'_>) -> Ordering {
    compare(value, scalar).unwrap_or_else(|| total_cmp(value, scalar))
}

fn break_tie(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    match (a, b) {
        // The sign of a NaN has no meaning.
        (ValueRef::Float64(a), ValueRef::Float64(b)) if a == b => b.is_sign_negative().cmp(&a.is_sign_negative()),
        (ValueRef::Decimal(a), ValueRef::Decimal(b)) => a.scale().cmp(&b.scale()),
        _ => number_type(a).cmp(&number_type(b)),
    }
}

fn number_type(value: ValueRef<'_>) -> u8 {
    match value {
        ValueRef::Float64(_) => 1,
        ValueRef::Decimal(_) => 2,
        _ => 0,
    }
}

fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The exact order, also where `int as f64` rounds.
fn compare_int_float(int: i64, float: f64) -> Ordering {
    /// The first integer above `i64::MAX`. It is a double, and so is its negation, `i64::MIN`.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() || float >= END {
        Ordering::Less
    } else if float < -END {
        Ordering::Greater
    } else {
        int.cmp(&(float as i64)).then_with(|| compare_floats(0.0, float.fract()))
    }
}

fn compare_decimal_float(decimal: DecimalRef<'_>, float: f64) -> Ordering {
    if float.is_nan() || float == f64::INFINITY {
        Ordering::Less
    } else if float == f64::NEG_INFINITY {
        Ordering::Greater
    } else {
        decimal.compare_finite(float)
    }
}
