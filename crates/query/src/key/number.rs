//! Key components of numbers.

use bigdecimal::BigDecimal;
use model::ValueRef;

use super::tag;

/// Exponents up to this absolute value take one byte.
const MAX_SHORT_EXPONENT: i64 = 100;
/// The byte of exponent 0.
const EXPONENT_BIAS: u8 = 128;
/// The byte before a smaller exponent of eight bytes. [`LONG_POSITIVE_EXPONENT`] precedes a larger one.
const LONG_NEGATIVE_EXPONENT: u8 = EXPONENT_BIAS - MAX_SHORT_EXPONENT as u8 - 1;
const LONG_POSITIVE_EXPONENT: u8 = EXPONENT_BIAS + MAX_SHORT_EXPONENT as u8 + 1;
/// The byte of a pair of zeros. The end bytes are below it.
const ZERO_PAIR: u8 = 2;

/// Appends the component of a number, of at most `share` bytes; returns whether it was truncated.
pub(super) fn append_component(value: ValueRef<'_>, share: usize, out: &mut Vec<u8>) -> bool {
    let (digits, scale) = match value {
        ValueRef::Int64(number) => (number.to_string(), 0),
        ValueRef::Float64(number) => match float_digits(number) {
            Ok(digits) => digits,
            Err(tag) => {
                out.push(tag);
                return false;
            }
        },
        ValueRef::Decimal(number) => decimal_digits(&number.to_big()),
        _ => return false,
    };
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, digits.as_str()),
    };
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        out.push(tag::ZERO);
        return false;
    }
    out.push(if negative { tag::NEGATIVE } else { tag::POSITIVE });
    let start = out.len();
    let cut = append_magnitude(digits.as_bytes(), scale, share - 1, out);
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    cut
}

/// The digits of a floating-point number and their scale; or the tag of a number without digits.
fn float_digits(number: f64) -> Result<(String, i64), u8> {
    /// Integral doubles up to this absolute value are 64-bit integers.
    const INTEGERS: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= INTEGERS {
        return Ok(((number as i64).to_string(), 0));
    }
    match BigDecimal::try_from(number) {
        Ok(exact) => Ok(decimal_digits(&exact)),
        Err(_) if number.is_nan() => Err(tag::NAN),
        Err(_) if number > 0.0 => Err(tag::INFINITY),
        Err(_) => Err(tag::MINUS_INFINITY),
    }
}

fn decimal_digits(number: &BigDecimal) -> (String, i64) {
    let (digits, scale) = number.as_bigint_and_exponent();
    (digits.to_string(), scale)
}

/// Appends exponent, digits and end of `digits × 10^-scale`, in at most `share` bytes; returns whether digits were truncated.
fn append_magnitude(digits: &[u8], scale: i64, share: usize, out: &mut Vec<u8>) -> bool {
    let end = out.len().saturating_add(share) - 1;
    // The number is 0.digits × 10^point.
    let point = digits.len() as i64 - scale;
    let exponent = (point + 1).div_euclid(2);
    if exponent.abs() <= MAX_SHORT_EXPONENT {
        out.push((i64::from(EXPONENT_BIAS) + exponent) as u8);
    } else {
        out.push(if exponent < 0 { LONG_NEGATIVE_EXPONENT } else { LONG_POSITIVE_EXPONENT });
        out.extend_from_slice(&(exponent as u64 ^ 1 << 63).to_be_bytes());
    }
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    let digits = &digits[..digits.len() - zeros];
    // With a leading zero if the decimal point is within a pair.
    let odd = usize::from(point.rem_euclid(2) == 1);
    let digit =
        |index: usize| index.checked_sub(odd).and_then(|index| digits.get(index)).map_or(0, |digit| digit - b'0');
    for pair in 0..(digits.len() + odd).div_ceil(2) {
        if out.len() == end {
            out.push(1);
            return true;
        }
        out.push(ZERO_PAIR + 10 * digit(2 * pair) + digit(2 * pair + 1));
    }
    out.push(0);
    false
}

/// The length of a number after its tag, with its end. `turned` gives a byte as it would be in a positive number.
pub(super) fn number_end(bytes: &[u8], turned: fn(u8) -> u8) -> Option<usize> {
    let exponent = match turned(*bytes.first()?) {
        LONG_NEGATIVE_EXPONENT | LONG_POSITIVE_EXPONENT => 1 + 8,
        _ => 1,
    };
    Some(exponent + bytes.get(exponent..)?.iter().position(|byte| turned(*byte) < ZERO_PAIR)? + 1)
}
