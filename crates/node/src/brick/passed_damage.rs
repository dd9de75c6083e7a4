//! Damage that a listing passes over, and tells.

use model::{Error, ErrorKind, Result};

use super::consistency::is_damage;

/// Places that one answer passes over, at most. Each takes several look-ups in the B-tree.
const MAX_PASSED: usize = 1_000;

/// The damaged places of a listing.
#[derive(Debug)]
pub(super) struct PassedDamage {
    /// Whether it passes over them. Else the first one is its error.
    passes: bool,
    /// What is wrong with the first one.
    first: Option<String>,
    count: usize,
}

impl PassedDamage {
    pub(super) fn new(passes: bool) -> Self {
        Self { passes, first: None, count: 0 }
    }

    /// Adds a place.
    pub(super) fn add(&mut self, error: &Error) {
        self.count += 1;
        self.first.get_or_insert_with(|| error.message().to_owned());
    }

    /// What was read; `None` if it is damaged and passed over.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn pass<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Err(error) if self.passes && is_damage(&error) => {
                self.add(&error);
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    /// Whether the listing has to end.
    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_PASSED
    }

    /// The places as a listing tells them; `None` if there are none.
    pub(super) fn message(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(match self.count - 1 {
            0 => first.clone(),
            others => format!("{first} (and {others} more places near it)"),
        })
    }

    /// The error of a listing that cannot pass over all of them.
    pub(super) fn error(&self) -> Error {
        let what = format!("too many places of one listing are damaged: {}", self.message().unwrap_or_default());
        Error::new(ErrorKind::Corrupt, what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_and_other_errors_are_returned() {
        let mut passed = PassedDamage::new(true);
        assert_eq!((passed.pass(Ok(7)).unwrap(), passed.message()), (Some(7), None));
        let row = |number: usize| Err::<u8, _>(Error::new(ErrorKind::Corrupt, format!("row {number} is damaged")));
        assert_eq!(passed.pass(row(1)).unwrap(), None);
        assert_eq!(passed.message().unwrap(), "row 1 is damaged");
        passed.pass(row(2)).unwrap();
        assert_eq!(passed.message().unwrap(), "row 1 is damaged (and 1 more places near it)");
        let away = Err::<u8, _>(Error::new(ErrorKind::Unavailable, "the disk is away"));
        assert_eq!(passed.pass(away).unwrap_err().kind(), ErrorKind::Unavailable);
        (passed.count..MAX_PASSED).for_each(|number| drop(passed.pass(row(number))));
        assert!(passed.is_full() && passed.error().message().contains("row 1"));
        assert!(PassedDamage::new(false).pass(row(1)).is_err());
    }
}
