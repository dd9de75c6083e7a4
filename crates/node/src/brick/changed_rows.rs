//! Which rows of a logical node have changed while another brick copies it, and are still to be told.
//!
//! 1. A key is entered when its row is durable. So whoever takes keys from here, and reads their rows after that, reads what
//!    they were entered for.
//! 2. What was taken for an answer is kept until a question shows that this answer has come. Each try of a question has a number of
//!    its own: an answer to one that was given up has come to nobody, and one that comes late is refused.

use std::collections::BTreeSet;

use model::{Error, ErrorKind, Result};

use super::page_rows::Key;
use super::plant::{Bug, planted};

/// Bytes of keys that are remembered: with more, copying begins again.
const MAX_KEY_BYTES: usize = if cfg!(test) { 4 << 10 } else { 16 << 20 };

/// Rows that have changed since a copy was begun.
#[derive(Debug)]
pub(crate) struct ChangedRows {
    attempt: u64,
    /// The last question.
    number: u64,
    keys: BTreeSet<Key>,
    /// What was taken for the last answer.
    sent: BTreeSet<Key>,
    bytes: usize,
}

impl ChangedRows {
    /// Nothing has changed yet.
    pub(crate) fn new(attempt: u64) -> Self {
        Self { attempt, number: 0, keys: BTreeSet::new(), sent: BTreeSet::new(), bytes: 0 }
    }

    /// A question of an attempt, by who has got the answer to the one before or an earlier one (0: to none).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if what has changed since is not known: the copy has to begin again;
    /// [`ErrorKind::Unavailable`] if a later one came before.
    pub(crate) fn begin_answer(&mut self, attempt: u64, number: u64, got: u64) -> Result<()> {
        if attempt != self.attempt || got > self.number {
            return Err(changes_unknown_error());
        }
        if number <= self.number && !planted(Bug::LateQuestionCounts) {
            return Err(Error::new(ErrorKind::Unavailable, "a later question came before: ask again"));
        }
        if got == self.number || planted(Bug::AnswersCountUnheard) {
            self.sent.clear();
        }
        self.number = number;
        self.keys.append(&mut self.sent);
        self.update_bytes();
        Ok(())
    }

    /// Whether it is of this attempt.
    pub(crate) fn is_of_attempt(&self, attempt: u64) -> bool {
        self.attempt == attempt
    }

    fn update_bytes(&mut self) {
        self.bytes = self.keys.iter().chain(&self.sent).map(|key| key.len()).sum();
    }

    /// A row has changed, durably. Says whether that can be remembered.
    pub(crate) fn add(&mut self, key: &[u8]) -> bool {
        if self.keys.insert(Key::from_slice(key)) {
            self.bytes += key.len();
        }
        self.bytes <= MAX_KEY_BYTES
    }

    /// Takes the first keys for an answer. Rows from `from` on are copied later anyway.
    pub(crate) fn take(&mut self, from: Option<&[u8]>, most: usize) -> Vec<Key> {
        if let Some(from) = from {
            self.keys.split_off(from);
        }
        let rest = self.keys.iter().nth(most).cloned().map(|first| self.keys.split_off(&first)).unwrap_or_default();
        self.sent = std::mem::replace(&mut self.keys, rest);
        self.update_bytes();
        self.sent.iter().cloned().collect()
    }

    /// Some of what was taken for an answer did not fit. Says how much is still to be told.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if that is not the last question any more.
    pub(crate) fn put_back(&mut self, (attempt, number): (u64, u64), rest: &[Key]) -> Result<u64> {
        if (attempt, number) != (self.attempt, self.number) {
            return Err(Error::new(ErrorKind::Unavailable, "another question came meanwhile: ask again"));
        }
        for key in rest.iter().filter(|_| !planted(Bug::RestForgotten)) {
            self.sent.remove(key);
            self.keys.insert(key.clone());
        }
        self.update_bytes();
        Ok(self.keys.len() as u64)
    }
}

/// What the new brick is told if it has to begin again.
pub(crate) fn changes_unknown_error() -> Error {
    let what = "what has changed since the copy was begun is not known any more: begin again";
    Error::new(ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::planted_bug::assert_noticed;

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::from_slice(name.as_bytes())).collect()
    }

    fn changed(names: &[&str]) -> ChangedRows {
        let mut changed = ChangedRows::new(7);
        names.iter().for_each(|name| assert!(changed.add(name.as_bytes())));
        changed.begin_answer(7, 1, 0).unwrap();
        changed
    }

    #[test]
    fn what_was_told_is_told_again_until_its_answer_has_come() {
        let mut changed = changed(&["a", "b"]);
        assert_eq!(changed.take(None, 10), keys(&["a", "b"]));
        assert!(changed.add(b"c"));
        changed.begin_answer(7, 2, 0).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["a", "b", "c"]));
        assert!(changed.add(b"a"));
        changed.begin_answer(7, 3, 2).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["a"]));
    }

    #[test]
    fn question_that_comes_late_takes_nothing_away() {
        let mut changed = changed(&["a"]);
        // The first try waits somewhere, the second one is answered.
        changed.begin_answer(7, 3, 0).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["a"]));
        assert!(changed.add(b"w"));
        assert_eq!(changed.begin_answer(7, 2, 0).unwrap_err().kind(), ErrorKind::Unavailable);
        changed.begin_answer(7, 4, 3).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["w"]));
        // Of two answers that nobody got, all is told again.
        assert!(changed.add(b"x"));
        changed.begin_answer(7, 5, 3).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["w", "x"]));
        changed.begin_answer(7, 6, 3).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["w", "x"]));
    }

    #[test]
    fn what_did_not_fit_and_what_is_copied_later_stay_apart() {
        let mut changed = changed(&["a", "b", "c", "x", "y"]);
        // Of what is copied from "x" on nothing need be told.
        assert_eq!(changed.take(Some(b"x"), 2), keys(&["a", "b"]));
        assert_eq!(changed.put_back((7, 1), &keys(&["b"])).unwrap(), 2);
        changed.begin_answer(7, 2, 1).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["b", "c"]));
        assert_eq!(changed.put_back((7, 2), &[]).unwrap(), 0);
        assert_eq!(changed.put_back((7, 1), &[]).unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn strangers_and_those_who_got_what_is_not_known_have_to_begin_again() {
        let mut changed = changed(&["a"]);
        for (attempt, number, got) in [(8, 2, 1), (8, 2, 0), (7, 3, 2)] {
            assert_eq!(changed.begin_answer(attempt, number, got).unwrap_err().kind(), ErrorKind::NotFound);
        }
        changed.begin_answer(7, 2, 1).unwrap();
    }

    #[test]
    fn no_more_is_remembered_than_may_be() {
        let mut changed = ChangedRows::new(7);
        let fits = (0..10_000_u32).take_while(|number| changed.add(&number.to_be_bytes())).count();
        assert_eq!(fits, MAX_KEY_BYTES / 4);
    }

    #[test]
    fn mistakes_in_what_is_sent_again_are_noticed() {
        let checks: [(Bug, fn()); 3] = [
            (Bug::AnswersCountUnheard, what_was_told_is_told_again_until_its_answer_has_come),
            (Bug::LateQuestionCounts, question_that_comes_late_takes_nothing_away),
            (Bug::RestForgotten, what_did_not_fit_and_what_is_copied_later_stay_apart),
        ];
        for (bug, check) in checks {
            assert_noticed(&[bug], check);
        }
    }
}
