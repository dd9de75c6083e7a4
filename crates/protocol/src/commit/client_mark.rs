//! What clients have heard (C3): outcomes that their clients have heard need not be kept.
//!
//! A client numbers its transactions by their [start](TxnId::start), which only rises. Its *client mark* says which outcomes it has heard: those
//! of all transactions that began before a time, except a few. It sends the client mark now and then to the participants of its transactions.
//! A participant makes the mark durable before, or together with, what it forgets, and refuses what was heard from then on, as it does
//! with transactions that are too old. So what is known of transactions is bounded by the number of clients, not by time and rate. The
//! horizon is for clients that vanish. It is how RIFL (Lee et al., SOSP 2015) collects its completion records.

use std::collections::BTreeMap;

use crate::ident::{ClientId, HlcTimestamp, TxnId};
use crate::plant::{Bug, planted};

/// Most transactions that a mark excepts: one that takes long does not hold back the mark.
pub const MAX_OPEN: usize = 16;

/// The outcomes that a client has heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMark {
    below: HlcTimestamp,
    open: Vec<HlcTimestamp>,
}

impl ClientMark {
    /// The client has heard the outcomes of all its transactions that began before `below`, except those that began at the times of
    /// `open`. `None` if these do not rise, are not before `below`, or are more than [`MAX_OPEN`].
    #[must_use]
    pub fn new(below: HlcTimestamp, open: Vec<HlcTimestamp>) -> Option<Self> {
        let rises = open.windows(2).all(|pair| pair[0] < pair[1]) && open.last().is_none_or(|last| *last < below);
        (rises && open.len() <= MAX_OPEN).then_some(Self { below, open })
    }

    /// The mark of a client that has begun transactions up to `last`; `open` are the starts of those of which it has not heard the
    /// outcome, rising.
    pub(crate) fn of_client(open: impl IntoIterator<Item = HlcTimestamp>, last: HlcTimestamp) -> Self {
        let mut open: Vec<HlcTimestamp> = open.into_iter().take(MAX_OPEN + 1).collect();
        let below = if open.len() > MAX_OPEN { open.pop() } else { None };
        Self { below: below.unwrap_or(last.next()), open }
    }

    /// The time before which all transactions but [some](ClientMark::open) were heard.
    #[must_use]
    pub fn below(&self) -> HlcTimestamp {
        self.below
    }

    /// The starts of earlier transactions of which the client has not heard the outcome.
    #[must_use]
    pub fn open(&self) -> &[HlcTimestamp] {
        &self.open
    }

    /// Whether the client has heard the outcome of its transaction that began at this time, or began none then.
    #[must_use]
    pub fn has_heard(&self, start: HlcTimestamp) -> bool {
        start < self.below && (planted(Bug::OpenIsHeard) || self.open.binary_search(&start).is_err())
    }

    /// Whether all transactions that the mark is about began at or before the horizon.
    fn is_old(&self, horizon: HlcTimestamp) -> bool {
        self.below <= horizon.next()
    }
}

/// The marks that a participant has of its clients, each with the position of its record.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientMarks {
    marks: BTreeMap<ClientId, (ClientMark, u64)>,
}

impl ClientMarks {
    /// Whether a mark says more than what is known of a client.
    pub(super) fn is_news(&self, client: ClientId, mark: &ClientMark) -> bool {
        self.marks.get(&client).is_none_or(|(known, _)| known.below < mark.below)
    }

    /// Replaces the mark of a client; its record is at `position`.
    pub(super) fn insert(&mut self, client: ClientId, mark: ClientMark, position: u64) {
        let below = mark.below;
        let before = self.marks.insert(client, (mark, position)).map(|(before, _)| before.below);
        assert!(before <= Some(below), "C3: the mark of {client:?} goes back from {before:?} to {below:?}");
    }

    /// The position of the record by which the outcome of a transaction was heard, if it was.
    pub(super) fn heard_position(&self, txn: TxnId) -> Option<u64> {
        let (mark, position) = self.marks.get(&txn.client)?;
        (mark.has_heard(txn.start) && !planted(Bug::HeardIsUnknown)).then_some(*position)
    }

    /// The marks, with their positions.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClientId, &ClientMark, u64)> {
        self.marks.iter().map(|(client, (mark, position))| (*client, mark, *position))
    }

    /// Whether the horizon `at` makes a mark superfluous.
    pub(super) fn has_old(&self, at: HlcTimestamp) -> bool {
        self.marks.values().any(|(mark, _)| mark.is_old(at))
    }

    /// Removes the marks that the horizon `at` makes superfluous, and returns their clients.
    pub(super) fn remove_old(&mut self, at: HlcTimestamp) -> Vec<ClientId> {
        self.marks.extract_if(.., |_, (mark, _)| mark.is_old(at)).map(|(client, _)| client).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: u64) -> HlcTimestamp {
        HlcTimestamp(start)
    }

    fn starts(range: std::ops::Range<u64>) -> Vec<HlcTimestamp> {
        range.map(HlcTimestamp).collect()
    }

    #[test]
    fn all_but_open_transactions_are_heard() {
        let mark = ClientMark::of_client([at(3), at(7)], at(9));
        assert_eq!(mark, ClientMark::new(at(10), vec![at(3), at(7)]).unwrap());
        let unheard: Vec<u64> = (0..12).filter(|start| !mark.has_heard(at(*start))).collect();
        assert_eq!(unheard, [3, 7, 10, 11]);
    }

    #[test]
    fn list_is_bounded_and_holds_the_mark_back_when_it_is_full() {
        let mark = ClientMark::of_client(starts(5..40), at(50));
        assert_eq!(mark, ClientMark::new(at(21), starts(5..21)).unwrap());
        assert_eq!(ClientMark::of_client(starts(5..21), at(50)).below(), at(51));
        assert_eq!(ClientMark::new(at(50), starts(5..22)), None, "too many");
        assert_eq!(ClientMark::new(at(8), starts(5..9)), None, "not before");
        assert_eq!(ClientMark::new(at(8), vec![at(5), at(5)]), None, "not rising");
    }

    #[test]
    fn mark_at_the_horizon_is_superfluous() {
        let mut marks = ClientMarks::default();
        marks.insert(ClientId(1), ClientMark::of_client([], at(9)), 1);
        assert!(!marks.has_old(at(8)) && marks.remove_old(at(8)).is_empty());
        assert!(marks.has_old(at(9)));
        assert_eq!(marks.remove_old(at(9)), [ClientId(1)]);
        assert_eq!(marks.heard_position(TxnId { start: at(1), client: ClientId(1) }), None);
    }
}
