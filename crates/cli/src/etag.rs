//! Etags: what an object is, as a short text. An object that has changed has another one.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// The tag of an object's state, [`model::Object::etag`]: 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Etag(pub(crate) u64);

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Etag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let parsed = u64::from_str_radix(text, 16).ok().filter(|_| digits);
        parsed.map(Self).ok_or_else(|| "an etag has 16 hexadecimal digits, as `mortar stat` shows it".to_owned())
    }
}

impl Serialize for Etag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_have_sixteen_digits() {
        assert_eq!("00000000000000ff".parse(), Ok(Etag(255)));
        assert_eq!(Etag(255).to_string(), "00000000000000ff");
        for wrong in ["", "ff", "+0000000000000ff", "00000000000000fg", "000000000000000ff"] {
            assert!(wrong.parse::<Etag>().is_err(), "{wrong:?}");
        }
    }
}
