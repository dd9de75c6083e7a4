//! Keys of the catalogue, and prefixes of keys.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use model::{Error, ErrorKind, Result};

use crate::limits;

/// A path such as `spaces/main`: 1 to [`limits::KEY`] bytes without control characters. Keys order by their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// A prefix of keys: up to [`limits::KEY`] bytes. The empty prefix covers all keys.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Prefix(Arc<str>);

impl Key {
    /// The key with this text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is empty or has a control character, [`ErrorKind::TooLarge`] if it is too long.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self> {
        let text = text.into();
        if text.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "a key of the catalogue is empty"));
        }
        check(&text)?;
        Ok(Self(text))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Prefix {
    /// The prefix with this text.
    ///
    /// # Errors
    /// As [`Key::new`], but it may be empty.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self> {
        let text = text.into();
        check(&text)?;
        Ok(Self(text))
    }

    /// The prefix of all keys.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Whether a key has this prefix.
    #[must_use]
    pub fn covers(&self, key: &Key) -> bool {
        key.0.starts_with(&*self.0)
    }

    /// The prefix as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str) -> Result<()> {
    if text.len() > limits::KEY {
        let message = format!("a key of the catalogue has up to {} bytes; this one has {}", limits::KEY, text.len());
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("a key of the catalogue has a control character: {text:?}"),
        ));
    }
    Ok(())
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", &*self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Prefix({:?})", &*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_bounded_text_without_control_characters() {
        assert_eq!(Key::new("").unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Key::new("a\0b").unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Key::new("x".repeat(limits::KEY + 1)).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(Prefix::new("a\nb").unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(Key::new("x".repeat(limits::KEY)).unwrap().as_str().len(), limits::KEY);
    }

    #[test]
    fn a_prefix_covers_the_keys_that_begin_with_it() {
        let key = Key::new("spaces/größe").unwrap();
        assert!(Prefix::all().covers(&key));
        assert!(Prefix::new("spaces/gr").unwrap().covers(&key));
        assert!(!Prefix::new("space/").unwrap().covers(&key));
    }
}
