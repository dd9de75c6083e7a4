//! Arithmetic on numbers.

use std::cmp::Ordering;

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::{BigInt, Sign};
use model::{Decimal, Error, ErrorKind, Result, Value, nearest_double};

use crate::{Arithmetic, limits};

/// The maximum difference of the exponents of two decimals that are added.
const MAX_SCALE_DIFFERENCE: u64 = 40_000;

/// The result of an operation on two numbers; null if one is null.
///
/// # Errors
/// [`ErrorKind::Invalid`] if an integer has more than 64 bits, or something is divided by zero;
/// [`ErrorKind::TooLarge`] if a decimal has too many digits.
pub(crate) fn apply(operation: Arithmetic, a: &Value, b: &Value) -> Result<Value> {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        (Value::Int64(a), Value::Int64(b)) => integers(operation, *a, *b).map(Value::Int64),
        (Value::Float64(_), _) | (_, Value::Float64(_)) => {
            let (a, b) = (to_double(a)?, to_double(b)?);
            Ok(Value::Float64(match operation {
                Arithmetic::Add => a + b,
                Arithmetic::Subtract => a - b,
                Arithmetic::Multiply => a * b,
                Arithmetic::Divide => a / b,
                Arithmetic::Remainder => a % b,
            }))
        }
        (a, b) => decimals(operation, to_big(a)?, to_big(b)?).map(Value::Decimal),
    }
}

/// A number times -1; null of null.
pub(crate) fn negate(number: &Value) -> Result<Value> {
    match number {
        Value::Null => Ok(Value::Null),
        Value::Int64(number) => match number.checked_neg() {
            Some(negative) => Ok(Value::Int64(negative)),
            None => Err(overflow(format!("-({number})"))),
        },
        Value::Float64(number) => Ok(Value::Float64(-number)),
        Value::Decimal(number) => Ok(Value::Decimal(Decimal::try_from(&-number.to_big())?)),
        other => Err(not_a_number(other)),
    }
}

/// A number without its sign; null of null.
pub(crate) fn abs(number: &Value) -> Result<Value> {
    match number {
        Value::Int64(number) if *number >= 0 => Ok(Value::Int64(*number)),
        Value::Float64(number) => Ok(Value::Float64(number.abs())),
        Value::Decimal(decimal) if !is_negative(decimal) => Ok(number.clone()),
        other => negate(other),
    }
}

fn integers(operation: Arithmetic, a: i64, b: i64) -> Result<i64> {
    let result = match operation {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Divide | Arithmetic::Remainder if b == 0 => return Err(division_by_zero(&a)),
        Arithmetic::Divide => a.checked_div(b),
        // Defined for the least number and -1 too, although the quotient overflows.
        Arithmetic::Remainder => Some(a.wrapping_rem(b)),
    };
    result.ok_or_else(|| overflow(format!("{a} {} {b}", operation.sign())))
}

fn decimals(operation: Arithmetic, a: BigDecimal, b: BigDecimal) -> Result<Decimal> {
    let apart = a.fractional_digit_count().abs_diff(b.fractional_digit_count());
    if apart > MAX_SCALE_DIFFERENCE && operation != Arithmetic::Multiply {
        let message = format!(
            "the exponents of two decimals are {apart} apart, and may be {MAX_SCALE_DIFFERENCE} in {}",
            operation.sign()
        );
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    let result = match operation {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide | Arithmetic::Remainder if b.sign() == Sign::NoSign => return Err(division_by_zero(&a)),
        Arithmetic::Divide => quotient(&a, &b),
        Arithmetic::Remainder => a % b,
    };
    Decimal::try_from(&result)
}

/// A quotient: exact if it has at most [`limits::QUOTIENT_DIGITS`] digits, else rounded to that many, half to even.
pub(crate) fn quotient(a: &BigDecimal, b: &BigDecimal) -> BigDecimal {
    let ((a, a_scale), (b, b_scale)) = (a.as_bigint_and_exponent(), b.as_bigint_and_exponent());
    if a.sign() == Sign::NoSign {
        return BigDecimal::new(a, a_scale - b_scale);
    }
    // Enough digits, and one that shows whether more would follow.
    let digits = |number: &BigInt| number.to_string().trim_start_matches('-').len() as u64;
    let more = (limits::QUOTIENT_DIGITS + 2 + digits(&b)).saturating_sub(digits(&a));
    let shifted = a * BigInt::from(10).pow(more as u32);
    let (mut quotient, rest) = (&shifted / &b, &shifted % &b);
    let mut scale = a_scale - b_scale + more as i64;
    if rest.sign() != Sign::NoSign {
        quotient = quotient * 10 + if rest.sign() == b.sign() { 1 } else { -1 };
        scale += 1;
    }
    let exact = BigDecimal::new(quotient, scale);
    let least = (a_scale - b_scale).max(0);
    let short = |number: BigDecimal| {
        // Without the zeros behind the point that only the shift brought. An operand of a large exponent would bring as many digits.
        let normal = number.normalized();
        let missing = least.saturating_sub(normal.fractional_digit_count());
        if (1..=limits::QUOTIENT_DIGITS as i64).contains(&missing) { normal.with_scale(least) } else { normal }
    };
    if digits(&exact.normalized().into_bigint_and_exponent().0) <= limits::QUOTIENT_DIGITS {
        return short(exact);
    }
    round(&exact)
}

/// Rounds half to even.
fn round(number: &BigDecimal) -> BigDecimal {
    let (digits, scale) = number.as_bigint_and_exponent();
    let has = digits.to_string().trim_start_matches('-').len() as u64;
    let Some(drop) = has.checked_sub(limits::QUOTIENT_DIGITS).filter(|drop| *drop > 0) else { return number.clone() };
    let unit = BigInt::from(10).pow(drop as u32);
    let (kept, rest) = (&digits / &unit, &digits % &unit);
    let twice = BigInt::from_biguint(Sign::Plus, rest.magnitude() * 2u32);
    let up = match twice.cmp(&unit) {
        Ordering::Less => false,
        Ordering::Equal => kept.bit(0),
        Ordering::Greater => true,
    };
    let away = if digits.sign() == Sign::Minus { -1 } else { 1 };
    BigDecimal::new(if up { kept + away } else { kept }, scale - drop as i64)
}

pub(crate) fn to_double(number: &Value) -> Result<f64> {
    match number {
        Value::Int64(number) => Ok(*number as f64),
        Value::Float64(number) => Ok(*number),
        Value::Decimal(number) => Ok(nearest_double(number)),
        other => Err(not_a_number(other)),
    }
}

pub(crate) fn to_big(number: &Value) -> Result<BigDecimal> {
    match number {
        Value::Int64(number) => Ok(BigDecimal::from(*number)),
        Value::Decimal(number) => Ok(number.to_big()),
        other => Err(not_a_number(other)),
    }
}

fn is_negative(decimal: &Decimal) -> bool {
    decimal.as_ref().unscaled_value().first().is_some_and(|byte| *byte >= 0x80)
}

fn division_by_zero(number: &impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, format!("{number} is divided by zero: test for zero before it, with &&"))
}

fn overflow(of: String) -> Error {
    let message = format!("{of} does not fit an int64: make one side a decimal, as in a * 1.0");
    Error::new(ErrorKind::Invalid, message)
}

/// The error for a stored value that is not of its field's type.
fn not_a_number(value: &Value) -> Error {
    Error::new(ErrorKind::Invalid, format!("{value} is used in arithmetic and is not a number"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Value {
        Value::Decimal(text.parse().unwrap())
    }

    fn compute(a: impl Into<Value>, sign: char, b: impl Into<Value>) -> Result<Value> {
        let operation = Arithmetic::ALL.into_iter().find(|operation| operation.sign() == sign).unwrap();
        apply(operation, &a.into(), &b.into())
    }

    #[test]
    fn integers_are_exact_or_an_error() {
        assert_eq!(compute(7, '/', -2).unwrap(), (-3).into());
        assert_eq!(compute(-7, '%', 2).unwrap(), (-1).into());
        assert_eq!(compute(i64::MIN, '%', -1).unwrap(), 0.into());
        for (a, sign, b) in [(i64::MAX, '+', 1), (i64::MIN, '-', 1), (i64::MAX, '*', 2), (i64::MIN, '/', -1)] {
            let error = compute(a, sign, b).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().contains("does not fit"), "{error}");
        }
        for sign in ['/', '%'] {
            assert!(compute(1, sign, 0).unwrap_err().message().contains("by zero"));
            assert!(compute(decimal("1.5"), sign, 0).unwrap_err().message().contains("by zero"));
        }
        assert!(negate(&i64::MIN.into()).is_err());
        assert_eq!(abs(&(-3).into()).unwrap(), 3.into());
    }

    #[test]
    fn a_float_makes_floats_and_a_decimal_decimals() {
        assert_eq!(compute(1, '/', 4.0).unwrap(), 0.25.into());
        assert_eq!(compute(1.0, '/', 0).unwrap(), f64::INFINITY.into());
        assert_eq!(compute(decimal("0.1"), '+', 1.0).unwrap(), 1.1.into());
        assert_eq!(compute(decimal("0.10"), '+', 1).unwrap(), decimal("1.10"));
        assert_eq!(compute(decimal("-0.5"), '%', decimal("0.3")).unwrap(), decimal("-0.2"));
    }

    #[test]
    fn quotients_are_exact_or_have_34_digits() {
        assert_eq!(compute(decimal("1"), '/', 8).unwrap(), decimal("0.125"));
        assert_eq!(compute(decimal("1.00"), '/', 2).unwrap(), decimal("0.50"));
        assert_eq!(compute(decimal("2"), '/', 3).unwrap(), decimal(&format!("0.{}7", "6".repeat(33))));
        assert_eq!(compute(decimal("-2"), '/', 3).unwrap(), decimal(&format!("-0.{}7", "6".repeat(33))));
        assert_eq!(compute(decimal("0.0"), '/', 3).unwrap(), decimal("0.0"));
    }

    #[test]
    fn nothing_makes_nothing() {
        assert_eq!(compute(Value::Null, '/', 0).unwrap(), Value::Null);
        assert_eq!(compute(0, '+', Value::Null).unwrap(), Value::Null);
    }

    #[test]
    fn exponents_far_apart_are_refused_and_cost_nothing() {
        let (large, small) = (decimal("1e+2000000000"), decimal("1e-2000000000"));
        for sign in ['+', '-', '%', '/'] {
            assert_eq!(compute(large.clone(), sign, small.clone()).unwrap_err().kind(), ErrorKind::TooLarge);
        }
        assert_eq!(compute(large.clone(), '*', small).unwrap(), decimal("1"));
        for (exponent, half) in [("1e+2000000000", "5e+1999999999"), ("1e-2000000000", "5e-2000000001")] {
            let mean = quotient(&exponent.parse::<Decimal>().unwrap().to_big(), &BigDecimal::from(2));
            assert_eq!(Decimal::try_from(&mean).unwrap(), half.parse().unwrap());
        }
    }

    proptest! {
        #[test]
        fn quotients_are_near_enough(a: i64, b: i64, s in -10i64..10, t in -10i64..10) {
            prop_assume!(b != 0);
            let (a, b) = (BigDecimal::new(a.into(), s), BigDecimal::new(b.into(), t));
            let quotient = quotient(&a, &b);
            let off = (&quotient * &b - &a).abs();
            // Half a unit of the last of 34 digits.
            prop_assert!(off <= a.abs() * BigDecimal::new(5.into(), 34), "{quotient}");
        }
    }
}
