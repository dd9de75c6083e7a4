//! Decimal numbers: an integer of any size and a scale.
//!
//! The stored form is that of Java's `BigDecimal`: the value is `unscaled × 10^-scale`, and `unscaled` is a big-endian
//! two's complement integer in the fewest bytes (`BigInteger.toByteArray`). 1.0 and 1.00 are different. Both types here
//! keep these bytes, so a decimal in a record is read without a copy and passed to Java unchanged. Most comparisons
//! need only 128-bit integers; others use [`BigDecimal`].

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;

use crate::{Error, ErrorKind, Result, limits};

/// A decimal number that owns its digits.
///
/// `==` and `<` are those of [`Value`](crate::Value): by number, then by scale, so 1.0 < 1.00 < 1.1.
#[derive(Clone)]
pub struct Decimal {
    scale: i32,
    unscaled: Box<[u8]>,
}

/// A decimal number within an encoded record.
#[derive(Clone, Copy)]
pub struct DecimalRef<'a> {
    scale: i32,
    /// Never empty, minimal, at most [`limits::DECIMAL`] bytes.
    unscaled: &'a [u8],
}

impl Decimal {
    /// The number `unscaled × 10^-scale`.
    #[must_use]
    pub fn new(unscaled: i128, scale: i32) -> Self {
        Self { scale, unscaled: strip_sign_extension(&unscaled.to_be_bytes()).into() }
    }

    /// The number with this big-endian two's complement integer (Java's `BigInteger.toByteArray`) and scale.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] without a byte, [`ErrorKind::TooLarge`] over [`limits::DECIMAL`] bytes.
    pub fn from_be_bytes(unscaled: &[u8], scale: i32) -> Result<Self> {
        if unscaled.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a decimal needs at least one byte of digits"));
        }
        let unscaled = strip_sign_extension(unscaled);
        if unscaled.len() > limits::DECIMAL {
            return Err(too_large(unscaled.len()));
        }
        Ok(Self { scale, unscaled: unscaled.into() })
    }

    /// The number as a [`DecimalRef`].
    #[must_use]
    pub fn as_ref(&self) -> DecimalRef<'_> {
        DecimalRef { scale: self.scale, unscaled: &self.unscaled }
    }

    /// The number for arithmetic.
    #[must_use]
    pub fn to_big(&self) -> BigDecimal {
        self.as_ref().to_big()
    }
}

impl<'a> DecimalRef<'a> {
    /// The number with this encoded form; `None` unless `unscaled` is minimal and within the limit.
    pub(crate) fn from_encoded(unscaled: &'a [u8], scale: i32) -> Option<Self> {
        let fits = (1..=limits::DECIMAL).contains(&unscaled.len());
        (fits && strip_sign_extension(unscaled).len() == unscaled.len()).then_some(Self { scale, unscaled })
    }

    /// The number of digits after the decimal point; a negative scale is a number of zeros before it.
    #[must_use]
    pub fn scale(self) -> i32 {
        self.scale
    }

    /// The digits without the point: a big-endian two's complement integer in the fewest bytes.
    #[must_use]
    pub fn unscaled_value(self) -> &'a [u8] {
        self.unscaled
    }

    /// The number for arithmetic.
    #[must_use]
    pub fn to_big(self) -> BigDecimal {
        BigDecimal::new(BigInt::from_signed_bytes_be(self.unscaled), i64::from(self.scale))
    }

    /// A copy that owns its digits.
    #[must_use]
    pub fn to_decimal(self) -> Decimal {
        Decimal { scale: self.scale, unscaled: self.unscaled.into() }
    }

    /// Orders by number alone: 1.0 and 1.00 are equal.
    #[must_use]
    pub fn compare(self, other: DecimalRef<'_>) -> Ordering {
        match (self.to_i128(), other.to_i128()) {
            (Some(a), Some(b)) => compare_small(a, self.scale, b, other.scale),
            _ => None,
        }
        .unwrap_or_else(|| self.to_big().cmp(&other.to_big()))
    }

    /// The order of this number and an integer.
    #[must_use]
    pub fn compare_i64(self, other: i64) -> Ordering {
        self.compare(DecimalRef { scale: 0, unscaled: strip_sign_extension(&other.to_be_bytes()) })
    }

    /// The exact order of this number and a finite floating-point number: 0.1 is less than the double nearest to it.
    pub(crate) fn compare_finite(self, other: f64) -> Ordering {
        /// Doubles of this size and above are integers.
        const INTEGRAL: f64 = 9_007_199_254_740_992.0;
        if other.fract() == 0.0 && other.abs() <= INTEGRAL {
            return self.compare_i64(other as i64);
        }
        match BigDecimal::try_from(other) {
            Ok(exact) => self.to_big().cmp(&exact),
            // Only NaN and the infinities have no decimal form.
            Err(_) => unreachable!("{other} is finite"),
        }
    }

    /// The number as a multiple of 10^-`scale`; `None` unless that is an integer of 128 bits.
    pub(crate) fn in_units(self, scale: i32) -> Option<i128> {
        let (number, by) = (self.to_i128()?, scale.checked_sub(self.scale)?);
        if number == 0 {
            return Some(0);
        }
        let power = 10i128.checked_pow(by.unsigned_abs())?;
        if by >= 0 { number.checked_mul(power) } else { (number % power == 0).then(|| number / power) }
    }

    fn to_i128(self) -> Option<i128> {
        let mut bytes = [if self.unscaled[0] >= 0x80 { 0xff } else { 0 }; 16];
        let start = 16usize.checked_sub(self.unscaled.len())?;
        bytes[start..].copy_from_slice(self.unscaled);
        Some(i128::from_be_bytes(bytes))
    }
}

/// The order of `a × 10^-a_scale` and `b × 10^-b_scale`, if 128 bits suffice.
fn compare_small(a: i128, a_scale: i32, b: i128, b_scale: i32) -> Option<Ordering> {
    if a_scale == b_scale || a.signum() != b.signum() || a == 0 {
        return Some(a.cmp(&b));
    }
    let up = |number: i128, by: u32| 10i128.checked_pow(by).and_then(|power| number.checked_mul(power));
    if a_scale < b_scale {
        up(a, b_scale.abs_diff(a_scale)).map(|a| a.cmp(&b))
    } else {
        up(b, a_scale.abs_diff(b_scale)).map(|b| a.cmp(&b))
    }
}

/// `bytes` without redundant sign bytes.
pub(crate) fn strip_sign_extension(bytes: &[u8]) -> &[u8] {
    let redundant = bytes.windows(2).take_while(|pair| matches!((pair[0], pair[1]), (0, 0..=0x7f) | (0xff, 0x80..)));
    &bytes[redundant.count()..]
}

fn too_large(bytes: usize) -> Error {
    let limit = limits::DECIMAL;
    Error::new(ErrorKind::TooLarge, format!("a decimal has {bytes} bytes of digits; the limit is {limit}"))
}

impl Ord for DecimalRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(*other).then_with(|| self.scale.cmp(&other.scale))
    }
}

impl PartialOrd for DecimalRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for DecimalRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.scale == other.scale && self.unscaled == other.unscaled
    }
}

impl Eq for DecimalRef<'_> {}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Decimal {}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self::new(i128::from(number), 0)
    }
}

impl TryFrom<&BigDecimal> for Decimal {
    type Error = Error;

    fn try_from(number: &BigDecimal) -> Result<Self> {
        let (unscaled, scale) = number.as_bigint_and_exponent();
        let scale = i32::try_from(scale)
            .map_err(|_| Error::new(ErrorKind::TooLarge, format!("a decimal's scale has 32 bits; {scale} has more")))?;
        Self::from_be_bytes(&unscaled.to_signed_bytes_be(), scale)
    }
}

/// Parses the output of [`Display`](fmt::Display): `12.50`, `-3`, `1e+100`.
impl FromStr for Decimal {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A byte holds 2.4 digits; the rest is for the point, the sign and the exponent.
        if text.len() > limits::DECIMAL * 3 {
            return Err(too_large(text.len() * 10 / 24));
        }
        let number = BigDecimal::from_str(text).map_err(|cause| {
            Error::new(ErrorKind::Invalid, format!("{text:?} is not a decimal number, such as 12.50"))
                .with_source(cause)
        })?;
        Self::try_from(&number)
    }
}

impl fmt::Display for DecimalRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_big().fmt(f)
    }
}

impl fmt::Debug for DecimalRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({self})")
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.as_ref(), f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn keeps_trailing_zeros() {
        assert_eq!(number("1.50").to_string(), "1.50");
        assert_ne!(number("1.50"), number("1.5"));
        assert_eq!(number("1.50").as_ref().compare(number("1.5").as_ref()), Ordering::Equal);
    }

    #[test]
    fn orders_by_number_then_scale() {
        let sorted = ["-1e+2000000000", "-2.5", "-2.50", "-1e-2000000000", "0", "0.0", "1.0", "1.00", "1.1", "1e+9"];
        let mut shuffled: Vec<Decimal> = sorted.iter().rev().map(|text| number(text)).collect();
        shuffled.sort();
        assert_eq!(shuffled, sorted.map(number));
    }

    #[test]
    fn the_largest_scales_are_displayed_in_a_few_characters() {
        for scale in [i32::MIN, i32::MIN + 1, -1_000_000, 1_000_000, i32::MAX] {
            let text = Decimal::new(-12, scale).to_string();
            assert!(text.len() < 20, "{} characters for scale {scale}", text.len());
        }
    }

    #[test]
    fn decimals_have_the_bytes_of_java() {
        assert_eq!(Decimal::new(-128, 0).as_ref().unscaled_value(), [0x80]);
        assert_eq!(Decimal::new(128, 0).as_ref().unscaled_value(), [0, 0x80]);
        assert_eq!(Decimal::new(0, 2).as_ref().unscaled_value(), [0]);
        assert_eq!(Decimal::from_be_bytes(&[0xff, 0xff, 0x38], 1).unwrap(), number("-20.0"));
    }

    #[test]
    fn compares_with_doubles_exactly() {
        assert_eq!(number("0.1").as_ref().compare_finite(0.1), Ordering::Less);
        assert_eq!(number("0.5").as_ref().compare_finite(0.5), Ordering::Equal);
        assert_eq!(number("1e+400").as_ref().compare_finite(f64::MAX), Ordering::Greater);
        assert_eq!(number("1e-400").as_ref().compare_finite(f64::from_bits(1)), Ordering::Less);
        assert_eq!(number("9007199254740993").as_ref().compare_finite(9_007_199_254_740_992.0), Ordering::Greater);
    }

    #[test]
    fn other_and_too_long_texts_are_refused_as_decimals() {
        assert_eq!("12,5".parse::<Decimal>().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!("".parse::<Decimal>().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!("1e9999999999".parse::<Decimal>().unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!("9".repeat(limits::DECIMAL * 3).parse::<Decimal>().unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!("9".repeat(limits::DECIMAL * 4).parse::<Decimal>().unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(Decimal::from_be_bytes(&[], 0).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Decimal::from_be_bytes(&[1; 5000], 0).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    proptest! {
        #[test]
        fn short_cut_agrees_with_big_arithmetic(a: i128, b: i128, drop in 0u32..128, s in -50i32..50, t in -50i32..50) {
            let (a, b) = (Decimal::new(a >> drop, s), Decimal::new(b, t));
            prop_assert_eq!(a.as_ref().compare(b.as_ref()), a.to_big().cmp(&b.to_big()));
        }

        #[test]
        fn display_reads_back_as_the_same_number(unscaled: i128, scale in -40i32..40) {
            let decimal = Decimal::new(unscaled, scale);
            let back: Decimal = decimal.to_string().parse().unwrap();
            prop_assert_eq!(back.as_ref().compare(decimal.as_ref()), Ordering::Equal);
        }

        #[test]
        fn doubles_compare_as_their_exact_decimals(number: f64, other: f64) {
            prop_assume!(number.is_finite() && other.is_finite());
            let exact = Decimal::try_from(&BigDecimal::try_from(number).unwrap()).unwrap();
            prop_assert_eq!(exact.as_ref().compare_finite(other), number.partial_cmp(&other).unwrap());
        }
    }
}
