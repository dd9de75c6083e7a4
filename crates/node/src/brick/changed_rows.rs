//! Rows of a logical node that have changed while another brick copies it and have not been sent yet, and [parts](super::changed_contents) of its contents.
//!
//! 1. A key is added when its row is durable. A reader that takes keys first and reads their rows afterwards sees the changes.
//! 2. Keys taken for an answer are kept until a later request acknowledges that answer. Each try of a request has its own
//!    number: the answer to an abandoned try is not acknowledged, and a try that arrives late is refused.

use std::collections::BTreeSet;

use model::{Error, ErrorKind, Result};

use super::changed_contents;
use super::page_rows::Key;
use super::plant::{Bug, planted};

/// Most bytes of keys that are remembered. Beyond that, copying begins again.
const MAX_KEY_BYTES: usize = if cfg!(test) { 4 << 10 } else { 16 << 20 };

/// Rows that have changed since a copy began.
#[derive(Debug)]
pub(crate) struct ChangedRows {
    attempt: u64,
    /// Number of the last request.
    number: u64,
    keys: BTreeSet<Key>,
    /// Keys that were taken for the last answer.
    sent: BTreeSet<Key>,
    bytes: usize,
}

impl ChangedRows {
    /// An empty set for an attempt.
    pub(crate) fn new(attempt: u64) -> Self {
        Self { attempt, number: 0, keys: BTreeSet::new(), sent: BTreeSet::new(), bytes: 0 }
    }

    /// Begins the answer to request `number` of an attempt. The requester has received the answers up to request `got` (0: none).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the changes since are unknown: the copy has to begin again; [`ErrorKind::Unavailable`] if a
    /// later request has arrived before.
    pub(crate) fn begin_answer(&mut self, attempt: u64, number: u64, got: u64) -> Result<()> {
        if attempt != self.attempt || got > self.number {
            return Err(changes_unknown_error());
        }
        if number <= self.number && !planted(Bug::LateQuestionCounts) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "a later request for rows arrived before this one: ask again",
            ));
        }
        if got == self.number || planted(Bug::AnswersCountUnheard) {
            self.sent.clear();
        }
        self.number = number;
        self.keys.append(&mut self.sent);
        self.update_bytes();
        Ok(())
    }

    pub(crate) fn is_of_attempt(&self, attempt: u64) -> bool {
        self.attempt == attempt
    }

    fn update_bytes(&mut self) {
        self.bytes = self.keys.iter().chain(&self.sent).map(|key| key.len()).sum();
    }

    /// Adds a row that has changed, durably. Returns false if there are too many to remember.
    pub(crate) fn add(&mut self, key: &[u8]) -> bool {
        if self.keys.insert(Key::from_slice(key)) {
            self.bytes += key.len();
        }
        self.bytes <= MAX_KEY_BYTES
    }

    /// Takes the first keys for an answer. Keys from `from` on are dropped, because the copy has not reached their rows yet.
    pub(crate) fn take(&mut self, from: Option<&[u8]>, most: usize) -> Vec<Key> {
        if let Some(from) = from {
            self.keys.split_off(from);
        }
        let rest = self.keys.iter().nth(most).cloned().map(|first| self.keys.split_off(&first)).unwrap_or_default();
        self.sent = std::mem::replace(&mut self.keys, rest);
        self.update_bytes();
        self.sent.iter().cloned().collect()
    }

    /// Of a key that was taken for the last answer only `part` was sent; the rest is [put back](Self::put_back).
    pub(crate) fn split_sent(&mut self, whole: &[u8], part: Key) {
        if self.sent.remove(whole) {
            self.sent.insert(part);
            self.update_bytes();
        }
    }

    /// Puts back keys whose rows did not fit the answer. Returns the number of rows that are not sent yet.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if this is not the last request any more.
    pub(crate) fn put_back(&mut self, (attempt, number): (u64, u64), rest: &[Key]) -> Result<u64> {
        if (attempt, number) != (self.attempt, self.number) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "another request for rows arrived in the meantime: ask again",
            ));
        }
        for key in rest.iter().filter(|_| !planted(Bug::RestForgotten)) {
            self.sent.remove(key);
            self.keys.insert(key.clone());
        }
        self.update_bytes();
        Ok(self.keys.iter().map(|key| changed_contents::row_count(key)).fold(0, u64::saturating_add))
    }
}

/// The error that makes the new brick begin its copy again.
pub(crate) fn changes_unknown_error() -> Error {
    let what = "the changes since the copy began are not known any more: begin the copy again";
    Error::new(ErrorKind::NotFound, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::planted_bug::assert_noticed;

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::from_slice(name.as_bytes())).collect()
    }

    fn changed_rows(names: &[&str]) -> ChangedRows {
        let mut changed = ChangedRows::new(7);
        names.iter().for_each(|name| assert!(changed.add(name.as_bytes())));
        changed.begin_answer(7, 1, 0).unwrap();
        changed
    }

    #[test]
    fn sent_keys_are_sent_again_until_acknowledged() {
        let mut changed = changed_rows(&["a", "b"]);
        assert_eq!(changed.take(None, 10), keys(&["a", "b"]));
        assert!(changed.add(b"c"));
        changed.begin_answer(7, 2, 0).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["a", "b", "c"]));
        assert!(changed.add(b"a"));
        changed.begin_answer(7, 3, 2).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["a"]));
    }

    /// As long as the new brick hears of them, any number of changes can be copied.
    #[test]
    fn keys_that_were_acknowledged_take_no_room() {
        let mut changed = ChangedRows::new(7);
        for round in 1..=20_u64 {
            for number in 0..MAX_KEY_BYTES as u64 / 32 {
                assert!(changed.add(&[round.to_be_bytes(), number.to_be_bytes()].concat()), "round {round}");
            }
            changed.begin_answer(7, round, round - 1).unwrap();
            assert_eq!(changed.take(None, 1_000).len(), MAX_KEY_BYTES / 32);
        }
    }

    #[test]
    fn late_request_takes_no_keys() {
        let mut changed = changed_rows(&["a"]);
        // The first try is delayed, the second one is answered.
        changed.begin_answer(7, 3, 0).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["a"]));
        assert!(changed.add(b"w"));
        assert_eq!(changed.begin_answer(7, 2, 0).unwrap_err().kind(), ErrorKind::Unavailable);
        changed.begin_answer(7, 4, 3).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["w"]));
        // Neither of two answers was received, so all keys are sent again.
        assert!(changed.add(b"x"));
        changed.begin_answer(7, 5, 3).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["w", "x"]));
        changed.begin_answer(7, 6, 3).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["w", "x"]));
    }

    #[test]
    fn keys_that_did_not_fit_are_kept_and_keys_copied_later_are_dropped() {
        let mut changed = changed_rows(&["a", "b", "c", "x", "y"]);
        // Rows from "x" on are copied later.
        assert_eq!(changed.take(Some(b"x"), 2), keys(&["a", "b"]));
        assert_eq!(changed.put_back((7, 1), &keys(&["b"])).unwrap(), 2);
        changed.begin_answer(7, 2, 1).unwrap();
        assert_eq!(changed.take(None, 10), keys(&["b", "c"]));
        assert_eq!(changed.put_back((7, 2), &[]).unwrap(), 0);
        assert_eq!(changed.put_back((7, 1), &[]).unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn unknown_attempts_and_answers_have_to_begin_again() {
        let mut changed = changed_rows(&["a"]);
        for (attempt, number, got) in [(8, 2, 1), (8, 2, 0), (7, 3, 2)] {
            assert_eq!(changed.begin_answer(attempt, number, got).unwrap_err().kind(), ErrorKind::NotFound);
        }
        changed.begin_answer(7, 2, 1).unwrap();
    }

    #[test]
    fn remembered_keys_are_bounded() {
        let mut changed = ChangedRows::new(7);
        let fits = (0..10_000_u32).take_while(|number| changed.add(&number.to_be_bytes())).count();
        assert_eq!(fits, MAX_KEY_BYTES / 4);
    }

    #[test]
    fn planted_bugs_are_noticed() {
        let checks: [(Bug, fn()); 3] = [
            (Bug::AnswersCountUnheard, sent_keys_are_sent_again_until_acknowledged),
            (Bug::LateQuestionCounts, late_request_takes_no_keys),
            (Bug::RestForgotten, keys_that_did_not_fit_are_kept_and_keys_copied_later_are_dropped),
        ];
        for (bug, check) in checks {
            assert_noticed(&[bug], check);
        }
    }
}
